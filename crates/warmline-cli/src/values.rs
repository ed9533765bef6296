//! Values of a call: `KEY=VALUE` typed by the tool's schema, `KEY:=JSON`, `KEY=@FILE`, `KEY:=@FILE`,
//! `--args`.
//!
//! Values are checked before anything is sent.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use warmline_config::closest_match;

use crate::output::{CliResult, Problem};

mod schema;
#[cfg(test)]
mod tests;

pub(crate) use schema::Schema;

#[derive(Debug, Default)]
pub(crate) struct ArgumentValues {
    pairs: Vec<(String, ArgumentValue)>,
    json_args: Option<RawObject>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ArgumentValue {
    Text(String),
    Json(Box<str>),
    File(PathBuf, String),
}

impl ArgumentValues {
    pub(crate) fn parse(words: &[String], whole: Option<&str>) -> CliResult<Self> {
        let pairs = words.iter().map(|word| parse_pair(word));
        Ok(Self {
            pairs: pairs.collect::<CliResult<_>>()?,
            json_args: whole.map(parse_json_args).transpose()?,
        })
    }

    pub(crate) fn is_json_only(&self) -> bool {
        self.json_args.is_some() && self.pairs.is_empty()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let whole = self.json_args.iter().flat_map(RawObject::names);
        whole.chain(self.pairs.iter().map(|(key, _)| key.as_str()))
    }

    pub(crate) fn to_json(&self, schema: Schema<'_>) -> CliResult<Bytes> {
        let mut object = self.json_args.clone().unwrap_or_default();
        let mut seen: Vec<&str> = Vec::new();
        for (key, _) in &self.pairs {
            if seen.contains(&key.as_str()) {
                continue;
            }
            seen.push(key);
            let same_key = self.pairs.iter().filter(|(other, _)| other == key);
            let given: Vec<&ArgumentValue> = same_key.map(|(_, value)| value).collect();
            object.insert(key, argument_json(key, &given, schema)?);
        }
        Ok(object.into_bytes())
    }

    /// Checks names against a tool's schema. Returns notes on unknown names, which the server may
    /// know all the same. A near miss is an error: the server would execute the call without what
    /// was meant.
    pub(crate) fn check_names(&self, tool: &str, schema: Schema<'_>) -> CliResult<Vec<String>> {
        let known = schema.names();
        let mut notes = Vec::new();
        for name in self.names().filter(|_| !known.is_empty()) {
            if known.contains(&name) {
                continue;
            }
            let what = format!("`{tool}` has no argument `{}`", name.escape_debug());
            let hint = match (
                closest_match(name, known.iter().copied()),
                schema.is_closed(),
            ) {
                (Some(near), true) => format!("did you mean `{near}`?"),
                (None, true) => format!("it takes {}", join_names(&known)),
                (Some(near), false) if !self.is_explicit_json(name) => format!(
                    "did you mean `{near}`? If not, write '{name}:=JSON', which is sent unchanged"
                ),
                (_, false) => {
                    notes.push(format!("{what}; it is sent anyway"));
                    continue;
                },
            };
            return Err(Problem::usage(what).with_hint(hint));
        }
        self.check_required(tool, schema)?;
        Ok(notes)
    }

    fn is_explicit_json(&self, name: &str) -> bool {
        let mut values = self.pairs.iter().filter(|(key, _)| key == name);
        values.all(|(_, value)| matches!(value, ArgumentValue::Json(_)))
    }

    fn check_required(&self, tool: &str, schema: Schema<'_>) -> CliResult<()> {
        let mut missing = schema.required();
        missing.retain(|name| self.names().all(|given| given != *name));
        if missing.is_empty() {
            return Ok(());
        }
        let example = |name: &&str| format!("{name}={}", schema.placeholder(name));
        let example: Vec<String> = missing.iter().map(example).collect();
        let what = format!("`{tool}` needs {}", join_names(&missing));
        Err(Problem::usage(what).with_hint(format!("add `{}`", example.join(" "))))
    }
}

fn join_names(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn parse_pair(word: &str) -> CliResult<(String, ArgumentValue)> {
    let Some((key, value)) = word.split_once('=') else {
        let what = format!("`{}` is not a value", word.escape_debug());
        return Err(Problem::usage(what).with_hint("write KEY=VALUE, KEY:=JSON or KEY=@FILE"));
    };
    let (key, given) = match (key.strip_suffix(':'), value.strip_prefix('@')) {
        (Some(key), Some(file)) => {
            let (path, text) = read_value_file(key, file)?;
            let text = text.trim();
            validate_json(text).map_err(|why| {
                Problem::usage(format!("the file of `{key}` is not JSON"))
                    .with_location(path.display().to_string())
                    .with_cause(why)
                    .with_hint(format!("write `{key}=@…` for its text"))
            })?;
            (key, ArgumentValue::Json(text.into()))
        },
        (Some(key), None) => {
            validate_json(value).map_err(|why| {
                Problem::usage(format!("the value of `{key}` is not JSON"))
                    .with_cause(why)
                    .with_hint(format!("write `{key}=…` for a text, or quote JSON for the shell: '{key}:={{\"a\":1}}'"))
            })?;
            (key, ArgumentValue::Json(value.into()))
        },
        (None, Some(file)) => {
            let (path, text) = read_value_file(key, file)?;
            (key, ArgumentValue::File(path, text))
        },
        (None, None) => (key, ArgumentValue::Text(value.to_owned())),
    };
    if key.is_empty() {
        let what = format!("`{}` has no name before `=`", word.escape_debug());
        return Err(Problem::usage(what));
    }
    Ok((key.to_owned(), given))
}

fn read_value_file(key: &str, file: &str) -> CliResult<(PathBuf, String)> {
    let path = PathBuf::from(file);
    let text = read_file(&path).map_err(|why| {
        let problem = Problem::usage(format!("the file of `{key}` cannot be read"))
            .with_location(path.display().to_string())
            .with_cause(why);
        if path.exists() {
            return problem;
        }
        problem.with_hint(format!(
            "for a text that begins with `@` write '{key}:=\"@…\"'"
        ))
    })?;
    Ok((path, text))
}

/// The JSON of one member: of one value, or of several for a list.
fn argument_json(
    key: &str,
    given: &[&ArgumentValue],
    schema: Schema<'_>,
) -> CliResult<Box<RawValue>> {
    let property = schema.property(key);
    let is_list = property.is_list();
    if let [only] = given {
        let is_item = is_list
            && matches!(only, ArgumentValue::Text(text) if !text.trim_start().starts_with('['));
        if !is_item {
            return value_json(key, only, property);
        }
    }
    if !is_list && !property.is_unconstrained() {
        let what = format!("`{key}` is given {} times and is not a list", given.len());
        return Err(Problem::usage(what));
    }
    let items = property.items();
    let values = given.iter().map(|value| value_json(key, value, items));
    let values: Vec<Box<RawValue>> = values.collect::<CliResult<_>>()?;
    serde_json::value::to_raw_value(&values)
        .map_err(|error| Problem::usage(format!("cannot write the value of `{key}`: {error}")))
}

fn value_json(key: &str, given: &ArgumentValue, property: Schema<'_>) -> CliResult<Box<RawValue>> {
    match given {
        ArgumentValue::Json(json) => RawValue::from_string(json.to_string())
            .map_err(|error| Problem::usage(format!("the value of `{key}` is not JSON: {error}"))),
        ArgumentValue::File(path, text) => property.parse_text(text).map_err(|why| {
            Problem::usage(format!("the file of `{key}` does not fit: {why}"))
                .with_location(path.display().to_string())
        }),
        ArgumentValue::Text(text) => property.parse_text(text).map_err(|why| {
            let what = format!("`{key}` cannot be `{}`: {why}", text.escape_debug());
            let problem = Problem::usage(what);
            match property.nearest_choice(text) {
                Some(near) => problem.with_hint(format!("did you mean `{key}={near}`?")),
                None => problem,
            }
        }),
    }
}

fn parse_json_args(written: &str) -> CliResult<RawObject> {
    let (place, text) = if written == "-" {
        ("stdin".to_owned(), read_bounded(std::io::stdin().lock()))
    } else if let Some(file) = written.strip_prefix('@') {
        (file.to_owned(), read_file(Path::new(file)))
    } else {
        ("--args".to_owned(), Ok(written.to_owned()))
    };
    let text = text.map_err(|why| {
        Problem::usage("the values of --args cannot be read")
            .with_location(place.clone())
            .with_cause(why)
    })?;
    RawObject::parse(&text).map_err(|why| {
        Problem::usage("--args is not a JSON object")
            .with_location(place)
            .with_cause(why)
            .with_hint("write one object: --args '{\"key\":\"value\"}', --args @file or --args -")
    })
}

/// Checks that a text is JSON; the error says where it is not.
fn validate_json(text: &str) -> Result<&RawValue, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn read_file(path: &Path) -> Result<String, String> {
    read_bounded(std::fs::File::open(path).map_err(|error| error.to_string())?)
}

fn read_bounded(from: impl std::io::Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    from.take(MAX_VALUE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_VALUE_BYTES {
        return Err(format!("it is larger than {} MiB", MAX_VALUE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// A JSON object as raw members in their order, without duplicates: numbers and spacing stay as
/// typed.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let object = reader.deserialize_map(RawObjectVisitor);
        let object = object.map_err(|error| error.to_string())?;
        reader.end().map_err(|error| error.to_string())?;
        Ok(object)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn member(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.get())
    }

    fn insert(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn into_bytes(self) -> Bytes {
        let name = |name: &str| serde_json::Value::from(name).to_string();
        let members = self.0.iter();
        let members = members.map(|(n, value)| format!("{}:{}", name(n), value.get()));
        let members: Vec<String> = members.collect();
        Bytes::from(format!("{{{}}}", members.join(",")))
    }
}

struct RawObjectVisitor;

impl<'de> Visitor<'de> for RawObjectVisitor {
    type Value = RawObject;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject, A::Error> {
        let mut object = RawObject::default();
        while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
            if object.names().any(|other| other == name) {
                return Err(A::Error::custom(format!("`{name}` is there twice")));
            }
            object.0.push((name, value));
        }
        Ok(object)
    }
}

/// Requests are never larger.
const MAX_VALUE_BYTES: u64 = 16 << 20;
