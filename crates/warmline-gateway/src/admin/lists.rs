//! What there is: servers, runs and sessions, as JSON.
//!
//! Asked by: [`admin`](super).  Told by: the engine's snapshot. Runs of our own user stand there
//! by name; identities, runs of others and ids of sessions by fingerprint.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::Shared;
use crate::who::{self, Split, Subject};

pub(super) fn servers(shared: &Shared) -> Value {
    let left_out = shared.absences.now();
    let standing = shared.warm.snapshot().standing.into_iter();
    let lines = standing.map(|line| {
        let left_out = left_out.get(&*line.server);
        // Texts and numbers can always be written.
        let mut said = serde_json::to_value(line).unwrap_or_default();
        if let (Some(word), Some(said)) = (left_out, said.as_object_mut()) {
            said.insert("left_out".to_owned(), json!(word));
        }
        said
    });
    json!({ "servers": lines.collect::<Vec<Value>>() })
}

pub(super) fn runs(shared: &Shared) -> Value {
    json!({ "runs": named(shared, &shared.warm.snapshot().runs) })
}

pub(super) fn sessions(shared: &Shared) -> Value {
    json!({ "sessions": named(shared, &shared.warm.snapshot().sessions) })
}

/// Lines of a snapshot, with the names of runs that may be told.
fn named<T: Serialize>(shared: &Shared, all: &[T]) -> Vec<Value> {
    let names = names(shared);
    let line = |one: &T| {
        // Texts and numbers can always be written.
        let mut line = serde_json::to_value(one).unwrap_or_default();
        let name = line.get("run").and_then(Value::as_str);
        let name = name.and_then(|run| names.get(run)).cloned();
        if let (Some(name), Some(line)) = (name, line.as_object_mut()) {
            line.insert("run_name".to_owned(), name.into());
        }
        line
    };
    all.iter().map(line).collect()
}

/// The runs of our own user, which are the only ones whose names are told here.
fn names(shared: &Shared) -> HashMap<String, String> {
    let subject = Subject::local(&shared.warm);
    let identity = who::identity(&shared.warm, &subject, Split::Once);
    let runs = identity.runs().into_iter();
    runs.map(|run| (run.fingerprint(), run.name().to_owned()))
        .collect()
}
