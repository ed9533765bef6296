//! Values of a call: `KEY=VALUE` typed by the tool's schema, `KEY:=JSON`, `KEY=@FILE`, `KEY:=@FILE`,
//! `--args`.
//!
//! A value is checked before anything is sent: a call with a wrong value is one that never was.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde_json::value::RawValue;
use warmline::config::nearest;

use crate::problem::{Outcome, Problem};

mod object;
mod schema;
#[cfg(test)]
mod tests;

pub(crate) use object::Object;
pub(crate) use schema::Schema;

/// Everything that was given for one call.
#[derive(Debug, Default)]
pub(crate) struct GivenValues {
    pairs: Vec<(String, Given)>,
    whole: Option<Object>,
}

/// In which form a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Given {
    Text(String),
    Json(Box<str>),
    File(PathBuf, String),
}

impl GivenValues {
    /// Reads what was typed. Files are read here, so that later steps only look at text.
    pub(crate) fn read(words: &[String], whole: Option<&str>) -> Outcome<Self> {
        let pairs = words
            .iter()
            .map(|word| pair(word))
            .collect::<Outcome<_>>()?;
        let whole = whole.map(read_whole).transpose()?;
        Ok(Self { pairs, whole })
    }

    /// Whether only `--args` was given, which is sent as it is.
    pub(crate) fn is_exact(&self) -> bool {
        self.whole.is_some() && self.pairs.is_empty()
    }

    /// The names that were given, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let whole = self.whole.iter().flat_map(Object::names);
        whole.chain(self.pairs.iter().map(|(key, _)| key.as_str()))
    }

    /// One JSON object of all values, typed by a tool's schema where it says anything.
    pub(crate) fn arguments(&self, schema: &Schema) -> Outcome<Bytes> {
        let mut object = self.whole.clone().unwrap_or_default();
        let mut seen: Vec<&str> = Vec::new();
        for (key, _) in &self.pairs {
            if seen.contains(&key.as_str()) {
                continue;
            }
            seen.push(key);
            let given: Vec<&Given> = self
                .pairs
                .iter()
                .filter(|(other, _)| other == key)
                .map(|(_, g)| g)
                .collect();
            object.set(key, member(key, &given, schema)?);
        }
        Ok(object.into_bytes())
    }

    /// Checks names against a tool's schema.
    ///
    /// A name that is nearly right is a slip of the hand, and a call with it is refused: the
    /// server would execute it without what was meant. What is only suspicious is given back as
    /// notes: the server may know more than its schema says.
    pub(crate) fn check_names(&self, tool: &str, schema: &Schema) -> Outcome<Vec<String>> {
        let known = schema.names();
        let mut notes = Vec::new();
        for name in self.names().filter(|_| !known.is_empty()) {
            if known.contains(&name) {
                continue;
            }
            let what = format!("`{tool}` has no argument `{}`", name.escape_debug());
            let near = nearest(name, known.iter().copied());
            match (near, schema.is_closed()) {
                (Some(near), true) => {
                    return Err(Problem::usage(what).hint(format!("did you mean `{near}`?")));
                },
                (None, true) => {
                    return Err(Problem::usage(what).hint(format!("it takes {}", listed(&known))));
                },
                (Some(near), false) if !self.is_meant(name) => {
                    return Err(Problem::usage(what).hint(format!(
                        "did you mean `{near}`? If not, write '{name}:=JSON', which is sent as it is"
                    )));
                },
                (_, false) => notes.push(format!("{what}; it is sent all the same")),
            }
        }
        self.check_required(tool, schema)?;
        Ok(notes)
    }

    /// Whether a name was given in a form that takes everything as it is.
    fn is_meant(&self, name: &str) -> bool {
        !self
            .pairs
            .iter()
            .any(|(key, given)| key == name && !matches!(given, Given::Json(_)))
    }

    fn check_required(&self, tool: &str, schema: &Schema) -> Outcome<()> {
        let given: Vec<&str> = self.names().collect();
        let missing: Vec<&str> = schema
            .required()
            .into_iter()
            .filter(|name| !given.contains(name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let example: Vec<String> = missing
            .iter()
            .map(|name| format!("{name}={}", schema.placeholder(name)))
            .collect();
        Err(
            Problem::usage(format!("`{tool}` needs {}", listed(&missing)))
                .hint(format!("add `{}`", example.join(" "))),
        )
    }
}

/// `a`, `b` and `c`.
fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

fn pair(word: &str) -> Outcome<(String, Given)> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(
            Problem::usage(format!("`{}` is not a value", word.escape_debug()))
                .hint("write KEY=VALUE, KEY:=JSON or KEY=@FILE"),
        );
    };
    let (key, given) = match (key.strip_suffix(':'), value.strip_prefix('@')) {
        (Some(key), Some(file)) => {
            let (path, text) = file_of(key, file)?;
            let text = text.trim();
            parse(text).map_err(|why| {
                Problem::usage(format!("the file of `{key}` is not JSON"))
                    .at(path.display().to_string())
                    .because(why)
                    .hint(format!("write `{key}=@…` for its text"))
            })?;
            (key, Given::Json(text.into()))
        },
        (Some(key), None) => {
            parse(value).map_err(|why| {
                Problem::usage(format!("the value of `{key}` is not JSON"))
                    .because(why)
                    .hint(format!("write `{key}=…` for a text, or quote JSON for the shell: '{key}:={{\"a\":1}}'"))
            })?;
            (key, Given::Json(value.into()))
        },
        (None, Some(file)) => {
            let (path, text) = file_of(key, file)?;
            (key, Given::File(path, text))
        },
        (None, None) => (key, Given::Text(value.to_owned())),
    };
    if key.is_empty() {
        return Err(Problem::usage(format!(
            "`{}` has no name before `=`",
            word.escape_debug()
        )));
    }
    Ok((key.to_owned(), given))
}

/// The file that a value names, and its text.
fn file_of(key: &str, file: &str) -> Outcome<(PathBuf, String)> {
    let path = PathBuf::from(file);
    let text = read_file(&path).map_err(|why| {
        let problem = Problem::usage(format!("the file of `{key}` cannot be read"))
            .at(path.display().to_string())
            .because(why);
        if path.exists() {
            return problem;
        }
        problem.hint(format!(
            "for a text that begins with `@` write '{key}:=\"@…\"'"
        ))
    })?;
    Ok((path, text))
}

/// The value of one member: one given value, or several for a list.
fn member(key: &str, given: &[&Given], schema: &Schema) -> Outcome<Box<RawValue>> {
    let property = schema.property(key);
    let is_list = property.is_list();
    if let [only] = given {
        let is_item =
            is_list && matches!(only, Given::Text(text) if !text.trim_start().starts_with('['));
        if !is_item {
            return one(key, only, &property);
        }
    }
    if is_list || property.says_nothing() {
        return list(key, given, &property.items());
    }
    Err(Problem::usage(format!(
        "`{key}` is given {} times and is no list",
        given.len()
    )))
}

fn list(key: &str, given: &[&Given], items: &Schema) -> Outcome<Box<RawValue>> {
    let values: Vec<Box<RawValue>> = given
        .iter()
        .map(|given| one(key, given, items))
        .collect::<Outcome<_>>()?;
    raw(key, &values)
}

fn one(key: &str, given: &Given, property: &Schema) -> Outcome<Box<RawValue>> {
    let text = match given {
        Given::Json(json) => {
            return RawValue::from_string(json.to_string()).map_err(|error| {
                Problem::usage(format!("the value of `{key}` is not JSON: {error}"))
            });
        },
        Given::Text(text) => text,
        Given::File(path, text) => {
            return property.typed(text).map_err(|why| {
                Problem::usage(format!("the file of `{key}` does not fit: {why}"))
                    .at(path.display().to_string())
            });
        },
    };
    property.typed(text).map_err(|why| {
        let problem = Problem::usage(format!(
            "`{key}` cannot be `{}`: {why}",
            text.escape_debug()
        ));
        match property.nearest_choice(text) {
            Some(near) => problem.hint(format!("did you mean `{key}={near}`?")),
            None => problem,
        }
    })
}

fn raw(key: &str, value: &impl serde::Serialize) -> Outcome<Box<RawValue>> {
    serde_json::value::to_raw_value(value)
        .map_err(|error| Problem::usage(format!("the value of `{key}` cannot be written: {error}")))
}

fn read_whole(written: &str) -> Outcome<Object> {
    let (place, text) = if written == "-" {
        ("stdin".to_owned(), read_bounded(std::io::stdin().lock()))
    } else if let Some(file) = written.strip_prefix('@') {
        (file.to_owned(), read_file(Path::new(file)))
    } else {
        ("--args".to_owned(), Ok(written.to_owned()))
    };
    let text = text.map_err(|why| {
        Problem::usage("the values of --args cannot be read")
            .at(place.clone())
            .because(why)
    })?;
    Object::parse(&text).map_err(|why| {
        Problem::usage("--args is not a JSON object")
            .at(place)
            .because(why)
            .hint("write one object: --args '{\"key\":\"value\"}', --args @file or --args -")
    })
}

/// Whether a text is JSON; the complaint says where it is not.
fn parse(text: &str) -> Result<&RawValue, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn read_file(path: &Path) -> Result<String, String> {
    read_bounded(std::fs::File::open(path).map_err(|error| error.to_string())?)
}

fn read_bounded(from: impl std::io::Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    from.take(VALUE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > VALUE_BYTES {
        return Err(format!("it is larger than {} MiB", VALUE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// No request is larger than this.
const VALUE_BYTES: u64 = 16 << 20;
