//! Comparing with the files in `before/`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Members whose texts are words of a closed set: their values are compared too.
const WORDS: &[&str] = &[
    "auth",
    "cause",
    "code",
    "delivery",
    "era",
    "eras",
    "exit",
    "found",
    "how",
    "kind",
    "left_out",
    "level",
    "method",
    "origin",
    "outcome",
    "party",
    "question",
    "reason",
    "refused",
    "state",
    "status",
    "step",
    "transport",
    "why",
];
/// Members that hold what a server said: it is no promise of ours.
const OF_SERVERS: &[&str] = &["definition", "structuredContent"];

/// A set of lines.
pub(crate) type Lines = BTreeSet<String>;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/promises/before")
}

/// What a file of the repository says.
pub(crate) fn of_repository(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of before.
pub(crate) fn read(name: &str) -> Lines {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(str::to_owned).collect()
}

/// These are exactly the lines of before.
#[track_caller]
pub(crate) fn same(name: &str, now: &Lines) {
    compare(name, now, true);
}

/// All lines of before are among these; what depends on the moment may stand beside them.
#[track_caller]
pub(crate) fn nothing_is_lost(name: &str, now: &Lines) {
    compare(name, now, false);
}

#[track_caller]
fn compare(name: &str, now: &Lines, exactly: bool) {
    if std::env::var_os("WARMLINE_BLESS").is_some() {
        let text: String = now.iter().map(|line| format!("{line}\n")).collect();
        return std::fs::write(folder().join(name), text).unwrap();
    }
    let before = read(name);
    let lost: Vec<_> = before.difference(now).collect();
    let added: Vec<_> = now.difference(&before).collect();
    assert!(
        lost.is_empty() && (added.is_empty() || !exactly),
        "{name} is not what it was\nlost: {lost:#?}\nadded: {added:#?}"
    );
}

/// Adds the members of a value as paths with types; values are left out, but for words.
pub(crate) fn add_shape(root: &str, value: &Value, lines: &mut Lines) {
    let name = root.rsplit('.').next().unwrap_or(root);
    let name = name.trim_end_matches("[]");
    // Where a word may stand beside prose, prose has blanks.
    let is_prose = name != "question" && value.as_str().is_some_and(|text| text.contains(' '));
    let is_word = WORDS.contains(&name) && !is_prose;
    let says = match value {
        _ if OF_SERVERS.contains(&name) => "of the server".to_owned(),
        Value::Object(members) if !members.is_empty() => {
            for (key, value) in members {
                add_shape(&format!("{root}.{key}"), value, lines);
            }
            return;
        },
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                add_shape(&format!("{root}[]"), item, lines);
            }
            return;
        },
        Value::Object(_) => "{}".to_owned(),
        Value::Array(_) => "[]".to_owned(),
        value @ (Value::String(_) | Value::Number(_)) if is_word => value.to_string(),
        Value::String(_) => "text".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::Bool(_) => "true or false".to_owned(),
        Value::Null => "null".to_owned(),
    };
    lines.insert(format!("{root}: {says}"));
}

/// Adds the shape of every line of JSON, each below its kind.
pub(crate) fn add_shapes(root: &str, text: &str, lines: &mut Lines) {
    for line in text.lines() {
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|_| panic!("{root}: {line} is no JSON"));
        match value["kind"].as_str() {
            Some(kind) => add_shape(&format!("{root} {kind}"), &value, lines),
            None => add_shape(root, &value, lines),
        }
    }
}
