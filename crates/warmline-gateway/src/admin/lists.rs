//! Lists of servers, runs and sessions, and the metrics of the pool, as JSON.
//!
//! Runs of the local user appear by name; identities, other runs and session ids by fingerprint.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::{Value, json};
use warmline_engine::Run;
use warmline_engine::metrics::{ServerSamples, Snapshot};

use super::local_caller;
use crate::GatewayState;
use crate::auth::AnonymousScope;

pub(super) fn servers(shared: &GatewayState) -> Value {
    let skipped = shared.absent_servers.recently_skipped();
    let statuses = shared.warmline.snapshot().server_statuses.into_iter();
    let lines = statuses.map(|status| {
        let skipped = skipped.get(&*status.server);
        // Texts and numbers always serialise.
        let mut line = serde_json::to_value(status).unwrap_or_default();
        if let Some(reason) = skipped {
            line["left_out"] = json!(reason);
        }
        line
    });
    json!({ "servers": lines.collect::<Vec<Value>>() })
}

pub(super) fn runs(shared: &GatewayState) -> Value {
    json!({ "runs": with_run_names(shared, &shared.warmline.snapshot().runs) })
}

pub(super) fn sessions(shared: &GatewayState) -> Value {
    json!({ "sessions": with_run_names(shared, &shared.warmline.snapshot().sessions) })
}

fn with_run_names<T: Serialize>(shared: &GatewayState, lines: &[T]) -> Vec<Value> {
    let runs = local_caller(shared, AnonymousScope::Request).runs();
    let name = |run: &Run| (run.fingerprint(), run.name().to_owned());
    let names: HashMap<String, String> = runs.iter().map(name).collect();
    let line = |line: &T| {
        // Texts and numbers always serialise.
        let mut line = serde_json::to_value(line).unwrap_or_default();
        let run = line.get("run").and_then(Value::as_str);
        if let Some(name) = run.and_then(|run| names.get(run)) {
            line["run_name"] = name.as_str().into();
        }
        line
    };
    lines.iter().map(line).collect()
}

/// The metrics of the pool in the form that dashboards of other gateways read, beside our own.
pub(super) fn pool_metrics(shared: &GatewayState) -> Value {
    let snapshot = shared.warmline.snapshot();
    let all: Vec<&ServerSamples> = snapshot.servers.iter().collect();
    let mut metrics = pool_counts(&all, &snapshot);
    let pools = snapshot
        .servers
        .iter()
        .map(|server| (server.server.to_string(), pool_counts(&[server], &snapshot)));
    metrics["pools"] = Value::Object(pools.collect());
    metrics["pool_key_count"] = snapshot.count("keys", &[]).into();
    metrics["pool_keys_evicted"] = snapshot.count("keys_evicted_total", &[]).into();
    metrics["runs"] = snapshot.count("runs", &[]).into();
    metrics["numbers"] = json!({ "engine": snapshot.engine, "servers": snapshot.servers });
    metrics
}

fn pool_counts(servers: &[&ServerSamples], snapshot: &Snapshot) -> Value {
    // The sum for one combination of labels.
    let count = |name: &str, labels: &[&str]| -> u64 {
        let counts = servers.iter().map(|server| server.count(name, labels));
        counts.sum()
    };
    // The sum over some values of the only label.
    let sum = |name: &str, values: &[&str]| -> u64 {
        values.iter().map(|value| count(name, &[value])).sum()
    };
    let acquired = |how: &str| count("acquires_total", &[how]);
    let (hits, misses) = (acquired("hit"), acquired("miss"));
    let state = |state: &str| count("sessions", &[state]);
    let tripped = |scope: &str| count("breaker_changes_total", &[scope, "tripped"]);
    let is_counted = |name: &str| servers.iter().any(|server| *server.server == *name);
    let sessions = snapshot.sessions.iter();
    let reinits = servers.iter().flat_map(|server| {
        let samples = server.samples.iter();
        let reinits = samples.filter(|sample| sample.name == "reinits_total");
        reinits.map(|sample| server.count(sample.name, &sample.label_values))
    });
    json!({
        "hits": hits,
        "misses": misses,
        "waits": acquired("wait"),
        "ephemeral": acquired("ephemeral"),
        "refused": acquired("refused"),
        "hit_rate": ratio(hits, hits + misses),
        "sessions": sessions.filter(|line| is_counted(&line.server)).count(),
        "idle": state("idle"),
        "active": state("active"),
        "opening": state("opening"),
        "spares": state("spare"),
        "waiters": count("waiters", &[]),
        "evictions": sum("closes_total", &["aged", "idle-too-long", "evicted", "expired"]),
        "health_check_failures":
            sum("checks_total", &["gone", "silent", "unreachable", "not-understood"]),
        "circuit_breaker_trips": tripped("server") + tripped("identity"),
        "reinitialized": reinits.sum::<u64>(),
    })
}

/// A part of a whole; 0 of nothing.
#[expect(
    clippy::cast_precision_loss,
    reason = "a few digits of a ratio are enough"
)]
fn ratio(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}
