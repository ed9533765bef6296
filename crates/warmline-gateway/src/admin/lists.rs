//! What there is: servers, runs and sessions, as JSON.
//!
//! Asked by: [`admin`](super).  Told by: the engine's snapshot. Runs of our own user stand there
//! by name; identities, and runs of others, by fingerprint; ids of sessions shortened.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::Shared;
use crate::who::{self, Split, Subject};

pub(super) fn servers(shared: &Shared) -> Value {
    json!({ "servers": shared.warm.snapshot().standing })
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
