//! `warmline.toml`: every key is known, or it is an error with the nearest right word.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_spanned::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use warmline_core::code::Code;
use warmline_core::era::Era;
use warmline_core::exchange::Patience;

use super::declaration::{Credential, Declaration, DeclaredReach, Written, set_time};
use super::expand::{self, Expand};
use super::{keys, name_problem};
use crate::settings::nearest;
use crate::settings::parse_duration;
use crate::settings::place::{ConfigError, Show, Source};
use crate::upstream::server::Times;

type Key<'i> = Spanned<DeString<'i>>;
type Value<'i> = Spanned<DeValue<'i>>;

/// The declarations of a `warmline.toml`.
pub(crate) fn read(source: Source<'_>) -> Result<Vec<Declaration>, ConfigError> {
    let table = DeTable::parse(source.text).map_err(|error| {
        let what = format!("{} is not TOML", name_of(source.file));
        let broken = ConfigError::new(Code::ConfigUnreadable, what).because(error.message());
        match error.span() {
            Some(span) => broken.at(source.place(span, Show::Nothing)),
            None => broken.at(super::Place::whole(source.file)),
        }
    })?;
    let reader = Reader { source };
    let mut declarations = Vec::new();
    for (key, value) in table.get_ref() {
        match key.get_ref().as_ref() {
            keys::SERVERS => reader.servers(value, &mut declarations)?,
            name if keys::TOP_ELSEWHERE.contains(&name) => {
                tracing::debug!(table = name, "read by other parts of Warmline, not here");
            },
            _ => {
                let known = keys::TOP_ELSEWHERE.iter().copied().chain([keys::SERVERS]);
                return Err(reader.unknown(key, "table of this file", known));
            },
        }
    }
    declarations.sort_by_key(|declaration| declaration.span.start);
    Ok(declarations)
}

/// What to write instead of a variable, given its name.
type Instead = fn(&str) -> String;
const BY_CREDENTIAL: Instead =
    |variable| format!("use `credential = {{ env = \"{variable}\" }}`, or `url_env`");
const BY_PASSING: Instead =
    |variable| format!("pass the variable on: `env_pass = [\"{variable}\"]`");

struct Reader<'s> {
    source: Source<'s>,
}

/// What has been read of one server so far.
#[derive(Default)]
struct Draft {
    command: Option<Vec<Written>>,
    url: Option<Written>,
    headers: Vec<(String, Written)>,
    ca_file: Option<PathBuf>,
    env: BTreeMap<String, Written>,
    env_pass: Vec<String>,
    cwd: Option<PathBuf>,
    credential: Option<(Credential, super::Place)>,
    era: Option<Era>,
    times: Times,
    patience: Patience,
    url_env: Option<String>,
    auth_env: Option<String>,
    elsewhere: Vec<String>,
}

impl Draft {
    /// How the server is reached; or what contradicts itself.
    fn reach(&self, whose: &str) -> Result<DeclaredReach, String> {
        let is_program = !self.env.is_empty() || !self.env_pass.is_empty() || self.cwd.is_some();
        let is_http =
            !self.headers.is_empty() || self.ca_file.is_some() || self.credential.is_some();
        match (&self.command, &self.url) {
            (Some(_), Some(_)) => Err(format!(
                "`{whose}` has a `command` and a `url`; a server has one of them"
            )),
            (None, None) => Err(format!("`{whose}` has neither a `command` nor a `url`")),
            (Some(_), None) if is_http => Err(format!(
                "`{whose}` is a program: `headers`, `credential` and `ca_file` are for a `url`"
            )),
            (None, Some(_)) if is_program => Err(format!(
                "`{whose}` is a URL: `env`, `env_pass` and `cwd` are for a `command`"
            )),
            (Some(argv), None) => Ok(DeclaredReach::Command {
                argv: argv.clone(),
                env: self.env.clone(),
                env_pass: self.env_pass.clone(),
                cwd: self.cwd.clone(),
            }),
            (None, Some(url)) => Ok(DeclaredReach::Url {
                url: url.clone(),
                headers: self.headers.clone(),
                ca_file: self.ca_file.clone(),
            }),
        }
    }
}

impl Reader<'_> {
    fn servers(&self, value: &Value<'_>, out: &mut Vec<Declaration>) -> Result<(), ConfigError> {
        for (name, server) in self.table("servers", value)? {
            if let Some(problem) = name_problem(name.get_ref()) {
                let what = format!(
                    "`{}` cannot be the name of a server: {problem}",
                    name.get_ref()
                );
                return Err(self.bad(what, name.span(), Show::Key));
            }
            out.push(self.server(name, server)?);
        }
        Ok(())
    }

    fn server(&self, name: &Key<'_>, value: &Value<'_>) -> Result<Declaration, ConfigError> {
        let mut draft = Draft::default();
        for (key, value) in self.table(name.get_ref(), value)? {
            self.setting(key, value, &mut draft)?;
        }
        let whose = name.get_ref();
        let reach = draft.reach(whose).map_err(|what| {
            let bad = self.bad(what, name.span(), Show::Key);
            match (&draft.command, &draft.url) {
                (None, None) => {
                    bad.hint("add `url = \"https://…\"` or `command = [\"program\", \"argument\"]`")
                },
                _ => bad,
            }
        })?;
        Ok(Declaration {
            name: whose.to_string(),
            written: whose.to_string(),
            place: self.source.place(name.span(), Show::Key),
            elsewhere: draft.elsewhere,
            span: name.span(),
            reach,
            credential: draft.credential,
            era: draft.era,
            times: draft.times,
            patience: draft.patience,
            url_env: draft.url_env,
            auth_env: draft.auth_env,
            expand: Expand::Nothing,
            refusal: None,
            folder: self
                .source
                .file
                .parent()
                .unwrap_or(Path::new(""))
                .to_owned(),
        })
    }

    fn setting(
        &self,
        key: &Key<'_>,
        value: &Value<'_>,
        draft: &mut Draft,
    ) -> Result<(), ConfigError> {
        let name = key.get_ref().as_ref();
        match name {
            "command" => draft.command = Some(self.command(value)?),
            "url" => draft.url = Some(Written(self.literal(name, value, BY_CREDENTIAL)?)),
            "headers" => {
                draft.headers = self
                    .texts(name, value, BY_CREDENTIAL)?
                    .into_iter()
                    .collect();
            },
            "ca_file" => draft.ca_file = Some(self.text(name, value)?.into()),
            "env" => draft.env = self.texts(name, value, BY_PASSING)?,
            "env_pass" => draft.env_pass = self.words(name, value)?,
            "cwd" => draft.cwd = Some(self.text(name, value)?.into()),
            "credential" => {
                let place = self.source.place(key.span(), Show::Key);
                draft.credential = Some((self.credential(value)?, place));
            },
            "era" => draft.era = self.era(value)?,
            "url_env" => draft.url_env = Some(self.text(name, value)?),
            "auth_env" => draft.auth_env = Some(self.text(name, value)?),
            "connect_timeout" | "handshake_timeout" | "start_timeout" | "call_idle_timeout"
            | "call_timeout" => {
                let written = self.text(name, value)?;
                let duration = parse_duration(&written).ok_or_else(|| {
                    self.bad(
                        format!("`{name}` is not a duration"),
                        value.span(),
                        Show::Line,
                    )
                    .hint("write a number and a unit: `500ms`, `30s`, `2min`, `1h`")
                })?;
                set_time(name, duration, &mut draft.times, &mut draft.patience);
            },
            _ if keys::SERVER_ELSEWHERE.contains(&name) => {
                tracing::debug!(setting = name, "read by other parts of Warmline, not here");
                draft.elsewhere.push(name.to_owned());
            },
            _ => return Err(self.unknown(key, "setting of a server", keys::of_a_server())),
        }
        Ok(())
    }

    fn command(&self, value: &Value<'_>) -> Result<Vec<Written>, ConfigError> {
        if let DeValue::String(_) = value.get_ref() {
            return Err(self
                .bad(
                    "`command` is one text, and no shell will split it",
                    value.span(),
                    Show::Nothing,
                )
                .hint("write a list: `command = [\"npx\", \"-y\", \"some-server\"]`"));
        }
        let words = self.words("command", value)?;
        // A shell behind `-c` fills in variables itself.
        if let DeValue::Array(list) = value.get_ref()
            && !words.iter().any(|word| word == "-c")
        {
            for word in list.iter() {
                self.literal("command", word, BY_PASSING)?;
            }
        }
        if words.first().is_none_or(String::is_empty) {
            return Err(self.bad("`command` names no program", value.span(), Show::Nothing));
        }
        Ok(words.into_iter().map(Written).collect())
    }

    fn era(&self, value: &Value<'_>) -> Result<Option<Era>, ConfigError> {
        let written = self.text("era", value)?;
        match written.as_str() {
            "auto" => Ok(None),
            "legacy" => Ok(Some(Era::Legacy)),
            "modern" => Ok(Some(Era::Modern)),
            other => {
                let bad = self.bad(format!("`{other}` is not an era"), value.span(), Show::Line);
                Err(
                    bad.hint(match nearest(other, ["auto", "legacy", "modern"]) {
                        Some(word) => format!("did you mean `{word}`?"),
                        None => "write `auto`, `legacy` or `modern`".to_owned(),
                    }),
                )
            },
        }
    }

    fn credential(&self, value: &Value<'_>) -> Result<Credential, ConfigError> {
        let mut found = None;
        for (key, value) in self.table("credential", value)? {
            found = Some(match key.get_ref().as_ref() {
                "env" => Credential::Env(self.text("credential.env", value)?),
                "file" => Credential::File(self.text("credential.file", value)?.into()),
                name if keys::CREDENTIAL_ELSEWHERE.contains(&name) => {
                    let what = format!("a credential by `{name}` is not for single commands");
                    return Err(self
                        .bad(what, key.span(), Show::Key)
                        .hint("use `credential = { env = \"NAME\" }` or `{ file = \"path\" }`"));
                },
                _ => {
                    let known = keys::CREDENTIAL
                        .iter()
                        .chain(keys::CREDENTIAL_ELSEWHERE)
                        .copied();
                    return Err(self.unknown(key, "form of a credential", known));
                },
            });
        }
        found.ok_or_else(|| {
            self.bad("`credential` says nothing", value.span(), Show::Nothing)
                .hint("use `credential = { env = \"NAME\" }` or `{ file = \"path\" }`")
        })
    }

    fn table<'v, 'i>(
        &self,
        name: &str,
        value: &'v Value<'i>,
    ) -> Result<&'v DeTable<'i>, ConfigError> {
        if let DeValue::Table(table) = value.get_ref() {
            return Ok(table);
        }
        Err(self.wrong(name, "a table", value))
    }

    fn text(&self, name: &str, value: &Value<'_>) -> Result<String, ConfigError> {
        if let DeValue::String(text) = value.get_ref() {
            return Ok(text.to_string());
        }
        Err(self.wrong(name, "a text", value))
    }

    fn words(&self, name: &str, value: &Value<'_>) -> Result<Vec<String>, ConfigError> {
        if let DeValue::Array(words) = value.get_ref() {
            return words.iter().map(|word| self.text(name, word)).collect();
        }
        Err(self.wrong(name, "a list of texts", value))
    }

    fn texts(
        &self,
        name: &str,
        value: &Value<'_>,
        instead: Instead,
    ) -> Result<BTreeMap<String, Written>, ConfigError> {
        self.table(name, value)?
            .iter()
            .map(|(key, value)| {
                let path = format!("{name}.{}", key.get_ref());
                let text = self.literal(&path, value, instead)?;
                Ok((key.get_ref().to_string(), Written(text)))
            })
            .collect()
    }

    /// A text that is sent as it stands. One that seems to count on a variable is refused: the
    /// server would get the dollar sign.
    fn literal(
        &self,
        name: &str,
        value: &Value<'_>,
        instead: Instead,
    ) -> Result<String, ConfigError> {
        let text = self.text(name, value)?;
        match expand::names(&text, Expand::Variables).first() {
            None => Ok(text),
            Some(variable) => {
                let what = format!(
                    "{} does not fill in `${{{}}}`",
                    name_of(self.source.file),
                    variable.escape_debug()
                );
                let bad = self.bad(what, value.span(), Show::Nothing);
                Err(bad.hint(instead(variable)))
            },
        }
    }

    fn wrong(&self, name: &str, wanted: &str, found: &Value<'_>) -> ConfigError {
        let kind = found.get_ref().type_str();
        let what = format!("`{name}` is {wanted}, not {}", article(kind));
        self.bad(what, found.span(), Show::Nothing)
    }

    fn bad(
        &self,
        what: impl Into<String>,
        span: std::ops::Range<usize>,
        show: Show,
    ) -> ConfigError {
        ConfigError::new(Code::ConfigBadValue, what).at(self.source.place(span, show))
    }

    fn unknown<'k>(
        &self,
        key: &Key<'_>,
        of_what: &str,
        known: impl Iterator<Item = &'k str>,
    ) -> ConfigError {
        let name = key.get_ref();
        let error = ConfigError::new(
            Code::ConfigUnknownKey,
            format!("`{}` is not a {of_what}", name.escape_debug()),
        )
        .at(self.source.place(key.span(), Show::Key));
        if name.as_ref() == "timeout" {
            return error.hint(
                "`call_timeout` is for a whole call, `call_idle_timeout` for silence in it, \
                 `connect_timeout`, `handshake_timeout` and `start_timeout` for opening",
            );
        }
        match nearest(name, known) {
            Some(word) => error.hint(format!("did you mean `{word}`?")),
            None => error,
        }
    }
}

fn name_of(file: &Path) -> String {
    file.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn article(kind: &str) -> String {
    match kind.chars().next() {
        Some('a' | 'e' | 'i' | 'o' | 'u') => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}
