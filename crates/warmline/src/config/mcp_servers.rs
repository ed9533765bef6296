//! Files of other programs: `{"mcpServers": {…}}`, and `{"servers": {…}}` as editors write it.
//!
//! They belong to others, so keys we do not know are theirs and no error; values we need and
//! cannot read are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use warmline_core::code::Code;

use super::access::Access;
use super::declaration::{Declaration, DeclaredReach, Described, Refusal, Written};
use super::expand::{self, Expand};
use super::file::MOST_FAULTS;
use super::kinds::{ServerKind, missing};
use super::members::Members;
use super::{NearMiss, Read, capabilities, jsonc, located, not_json};
use crate::settings::place::{ConfigError, Place, Show, Source};
use crate::settings::{self, Group as _, Origin, ServerSettings, nearest};

/// What a JSON file declares: `mcpServers`, or capabilities that name their servers. What is wrong
/// with one server is a fault, and the others are read.
pub(crate) fn read(source: Source<'_>, faults: &mut Vec<ConfigError>) -> Result<Read, ConfigError> {
    let text = &*jsonc::plain(source.text);
    let source = Source { text, ..source };
    if text.trim_start().starts_with('[') {
        return capabilities::read(source, &[text]);
    }
    let file: File<'_> = parse(text).map_err(|error| broken(source, text, &error))?;
    if file.mcp_metadata.is_some() {
        return capabilities::read(source, &[text]);
    }
    if let Some(capabilities) = file.capabilities {
        return capabilities::read(source, &[capabilities.get()]);
    }
    let Some(servers) = file.mcp_servers.or(file.servers) else {
        let what = "the file has neither `mcpServers` nor `servers` at its top";
        return Err(ConfigError::new(Code::ConfigBadValue, what).at(Place::whole(source.file)));
    };
    let servers: Members<'_, &RawValue> =
        parse(servers.get()).map_err(|error| broken(source, servers.get(), &error))?;
    let mut declarations: Vec<Declaration> = Vec::new();
    let mut misses = Vec::new();
    for (written, raw) in servers.by_name(source, faults) {
        if faults.len() >= MOST_FAULTS {
            break;
        }
        let near = near_misses(&written, raw);
        let declared = said_once(source, raw)
            .and_then(|()| declaration(source, &written, raw, &near))
            .and_then(|one| closed(source, one, raw))
            .map(|one| located::of_json(source, one, raw));
        misses.extend(near);
        match declared.and_then(|one| distinct(one, &declarations)) {
            Ok(declaration) => declarations.push(declaration),
            Err(error) => faults.push(error),
        }
    }
    declarations.sort_by_key(|declaration| declaration.span.start);
    Ok(Read {
        declarations,
        near_misses: misses,
        ..Read::default()
    })
}

/// Whether a file is empty, or about other things altogether.
pub(super) fn says_nothing(text: &str) -> bool {
    let says = |file: File<'_>| {
        let parts = [
            file.mcp_servers,
            file.servers,
            file.mcp_metadata,
            file.capabilities,
        ];
        parts.iter().any(Option::is_some)
    };
    let text = jsonc::plain(text);
    text.trim().is_empty() || parse(&text).is_ok_and(|file| !says(file))
}

/// The server, unless another one has its name here.
fn distinct(one: Declaration, known: &[Declaration]) -> Result<Declaration, ConfigError> {
    let Some(other) = known.iter().find(|other| other.name == one.name) else {
        return Ok(one);
    };
    let what = format!(
        "`{}` and `{}` both become `{}` here",
        one.written, other.written, one.name
    );
    Err(ConfigError::new(Code::ConfigBadValue, what)
        .at(one.place)
        .hint("rename one of them"))
}

/// Whether each variable and each header of an entry stands there once.
fn said_once(source: Source<'_>, raw: &RawValue) -> Result<(), ConfigError> {
    // What cannot be read at all is told by whoever reads the entry for its values.
    let tables: Tables<'_> = parse(raw.get()).unwrap_or_default();
    let mut twice = Vec::new();
    tables.env.by_name(source, &mut twice);
    tables.headers.by_name(source, &mut twice);
    twice.into_iter().next().map_or(Ok(()), Err)
}

/// The tables of an entry whose names people choose.
#[derive(Default, Deserialize)]
struct Tables<'a> {
    #[serde(borrow, default)]
    env: Members<'a, IgnoredAny>,
    #[serde(borrow, default)]
    headers: Members<'a, IgnoredAny>,
}

/// The server, unless a variable begins in one of its texts and does not end there.
fn closed(
    source: Source<'_>,
    one: Declaration,
    raw: &RawValue,
) -> Result<Declaration, ConfigError> {
    let mut texts = one.texts().into_iter();
    if !texts.any(|text| expand::is_open(&text.text, one.expand)) {
        return Ok(one);
    }
    let what = format!("a `${{` of `{}` is not closed by a `}}`", one.written);
    let place = open_at(raw.get()).map_or(one.place, |at| {
        let start = span(source.text, raw.get()).start + at;
        source.place(start..start + 2, Show::Nothing)
    });
    Err(ConfigError::new(Code::ConfigBadValue, what)
        .at(place)
        .hint("write `${NAME}`; a `$` without a `{` behind it is a dollar sign"))
}

/// Where the first `${` stands that is not closed before its text ends.
fn open_at(raw: &str) -> Option<usize> {
    raw.match_indices("${").map(|(at, _)| at).find(|at| {
        let behind = raw.get(*at..).unwrap_or_default();
        let mut escaped = false;
        let end = behind.find(|letter: char| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        let text = behind.get(..end.unwrap_or(behind.len()));
        !text.unwrap_or_default().contains('}')
    })
}

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow, rename = "mcpServers")]
    mcp_servers: Option<&'a RawValue>,
    #[serde(borrow)]
    servers: Option<&'a RawValue>,
    #[serde(borrow)]
    mcp_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    capabilities: Option<&'a RawValue>,
}

/// Keys of an entry that are nearly some that we read, and are not there beside them.
fn near_misses(written: &str, raw: &RawValue) -> Vec<NearMiss> {
    let entry: BTreeMap<String, IgnoredAny> = parse(raw.get()).unwrap_or_default();
    let misspelt = entry.keys().filter_map(|key| {
        let is_known = KEYS.contains(&key.as_str()) || MEANT.contains(&key.as_str());
        let said = SAID_FOR.iter().find(|(said, _)| said == key);
        let meant = match said {
            Some((_, meant)) => Some(*meant),
            None => nearest(key, KEYS.iter().copied()).filter(|_| !is_known),
        }?;
        let meant = KEYS.iter().copied().find(|known| *known == meant)?;
        (!entry.contains_key(meant)).then(|| NearMiss {
            server: written.to_owned(),
            key: key.clone(),
            meant,
        })
    });
    misspelt.collect()
}

/// What counts of an entry.
const KEYS: &[&str] = &[
    "command", "args", "env", "cwd", "url", "headers", "type", "disabled", "enabled",
];

/// Other words for some of them.
const SAID_FOR: &[(&str, &str)] = &[
    ("cmd", "command"),
    ("program", "command"),
    ("argv", "args"),
    ("arguments", "args"),
    ("environment", "env"),
    ("serverUrl", "url"),
    ("endpoint", "url"),
];

/// Words that are meant as they stand, by us or by other programs.
const MEANT: &[&str] = &[
    "transport",
    "kind",
    "name",
    "id",
    "slug",
    "folder",
    "dev",
    "auth",
    "icon",
    "tools",
    "timeout",
];

#[derive(Deserialize)]
struct Entry {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, Value>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(rename = "type", alias = "transport", alias = "kind")]
    kind: Option<Value>,
    disabled: Option<Value>,
    #[serde(alias = "is_enabled", alias = "isEnabled")]
    enabled: Option<Value>,
    id: Option<Value>,
    slug: Option<String>,
    #[serde(alias = "folder_path", alias = "folderPath")]
    folder: Option<String>,
}

impl Entry {
    /// How it was switched off, if it was.
    fn off(&self, written: &str) -> Option<Refusal> {
        let (said, hint) = match (&self.disabled, &self.enabled) {
            (Some(Value::Bool(true)), _) => (
                "\"disabled\": true",
                "take `disabled` out, or set it to `false`",
            ),
            (_, Some(Value::Bool(false))) => (
                "\"enabled\": false",
                "take `enabled` out, or set it to `true`",
            ),
            _ => return None,
        };
        Some(Refusal {
            what: format!("`{written}` is switched off by `{said}`"),
            hint: Some(hint.to_owned()),
        })
    }

    /// Why it cannot be used although it can be read.
    fn refusal(&self, written: &str) -> Option<Refusal> {
        if let Err(refusal) = self.kind(written) {
            return Some(refusal);
        }
        let (name, value) = self
            .env
            .iter()
            .find(|(_, value)| text_of(value).is_none())?;
        Some(Refusal {
            what: format!(
                "`env.{name}` of `{written}` is {}, not a text",
                kind_of(value)
            ),
            hint: None,
        })
    }

    /// The kind it says it is of, if it says so.
    fn kind(&self, written: &str) -> Result<Option<ServerKind>, Refusal> {
        match &self.kind {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(word)) => ServerKind::parse(word, written).map(Some),
            Some(other) => ServerKind::parse(&other.to_string(), written).map(Some),
        }
    }

    fn described(&self) -> Described {
        Described {
            id: self.id.as_ref().and_then(text_of),
            slug: self.slug.clone(),
            folder: self.folder.clone(),
            labels: BTreeMap::new(),
        }
    }
}

/// Values of `env` are texts, but people write numbers and truth values as well.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
        Value::String(_) | Value::Number(_) | Value::Bool(_) => "a text",
    }
}

fn declaration(
    source: Source<'_>,
    written: &str,
    raw: &RawValue,
    misses: &[NearMiss],
) -> Result<Declaration, ConfigError> {
    let span = span(source.text, raw.get());
    let place = source.place(span.clone(), Show::Nothing);
    let entry: Entry = parse(raw.get()).map_err(|error| {
        let mut error = broken(source, raw.get(), &error);
        if error.code == Code::ConfigBadValue {
            error.what = format!("a value of `{written}` has another type than expected");
        }
        error
    })?;
    let (off, refusal) = (entry.off(written), entry.refusal(written));
    let mut settings = ServerSettings::default();
    if off.is_some()
        && let Some(enabled) = ServerSettings::setting("enabled")
    {
        settings.put(
            enabled,
            settings::Value::Switch(false),
            Origin::of_place(&place),
        );
    }
    let described = entry.described();
    let bad = |what: String| ConfigError::new(Code::ConfigBadValue, what).at(place.clone());
    let reach = reach(entry, written).map_err(|what| match misses {
        [] => bad(what),
        [NearMiss { key, meant, .. }, ..] => bad(what).hint(format!(
            "did you mean `{meant}` by `{}`?",
            key.escape_debug()
        )),
    })?;
    let Some(name) = plain_name(written) else {
        return Err(bad(format!(
            "`{written}` holds no letter or digit to make a name of"
        )));
    };
    Ok(Declaration {
        name,
        written: written.to_owned(),
        place,
        span,
        reach,
        credential: None,
        access: Access::default(),
        settings,
        url_env: None,
        auth_env: None,
        described,
        expand: Expand::Variables,
        off,
        refusal,
        base: source.file.parent().unwrap_or(Path::new("")).to_owned(),
    })
}

/// How it is reached; or what is wrong. Which transport it speaks, if it is a URL, is found out.
fn reach(entry: Entry, written: &str) -> Result<DeclaredReach, String> {
    let kind = entry.kind(written).ok().flatten();
    let is_found = entry.slug.is_some();
    let reach = match (entry.command, entry.url) {
        (Some(command), None) if !command.is_empty() => Ok(DeclaredReach::Command {
            argv: std::iter::once(command)
                .chain(entry.args)
                .map(Written::new)
                .collect(),
            env: entry
                .env
                .into_iter()
                .map(|(name, value)| (name, Written::new(text_of(&value).unwrap_or_default())))
                .collect(),
            env_pass: Vec::new(),
            cwd: entry.cwd.map(Into::into),
        }),
        (Some(_), Some(_)) => Err(format!(
            "`{written}` has a `command` and a `url`; a server has one"
        )),
        (None, url) if url.is_some() || is_found => Ok(DeclaredReach::Url {
            url: url.map(Written::new),
            headers: entry
                .headers
                .into_iter()
                .map(|(name, value)| (name, Written::new(value)))
                .collect(),
            ca_file: None,
        }),
        (Some(_) | None, _) => Err(missing(kind, written)),
    }?;
    match kind.and_then(|kind| kind.contradicts(&reach, written)) {
        Some(what) => Err(what),
        None => Ok(reach),
    }
}

/// Other programs allow any name; ours is made of `[a-z0-9-]` and has at most 24.
pub fn plain_name(written: &str) -> Option<String> {
    let mut name = String::new();
    for letter in written.chars() {
        match letter.to_ascii_lowercase() {
            plain @ ('a'..='z' | '0'..='9') => name.push(plain),
            _ if name.ends_with('-') || name.is_empty() => {},
            _ => name.push('-'),
        }
    }
    name.truncate(24);
    let name = name.trim_matches('-');
    (!name.is_empty()).then(|| name.to_owned())
}

pub(super) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text)
}

/// A parser's complaint about a part of the file, as a place in the whole of it.
pub(super) fn broken(source: Source<'_>, part: &str, error: &serde_json::Error) -> ConfigError {
    let start = span(source.text, part).start;
    let before = source.text.get(..start).unwrap_or_default();
    let lines = before.matches('\n').count();
    let column = match error.line() {
        1 => {
            before
                .rsplit('\n')
                .next()
                .map_or(0, |head| head.chars().count())
                + error.column()
        },
        _ => error.column(),
    };
    let place = source.place_at(lines + error.line(), column);
    let (code, what) = if error.is_data() {
        (
            Code::ConfigBadValue,
            "a value has another type than expected",
        )
    } else {
        (Code::ConfigUnreadable, "the file is not JSON")
    };
    let at = (lines + error.line(), column);
    let broken = ConfigError::new(code, what)
        .at(place)
        .because(not_json::plain(error));
    match not_json::hint(source.text, at) {
        Some(hint) => broken.hint(hint),
        None => broken,
    }
}

/// Where a part that was borrowed from the text stands in it.
pub(super) fn span(text: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize)
        .saturating_sub(text.as_ptr() as usize)
        .min(text.len());
    start..(start + part.len()).min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_programs_become_plain_ones() {
        #[rustfmt::skip]
        let table = [
            ("github", Some("github")), ("GitHub Copilot", Some("github-copilot")), ("@scope/server", Some("scope-server")),
            ("a__b", Some("a-b")), ("ünï", Some("n")), ("…", None), ("", None),
            ("a-name-that-is-much-longer-than-it-may-be", Some("a-name-that-is-much-long")),
        ];
        for (written, name) in table {
            assert_eq!(plain_name(written).as_deref(), name, "{written}");
        }
    }
}
