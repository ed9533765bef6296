//! The numbers of the pool in the shape that dashboards of other gateways read.
//!
//! Asked by: [`admin`](super), at `/admin/mcp-pool/metrics`.  Told by: the engine's snapshot, which
//! stands beside it whole: every number of ours under its own name.

use serde_json::{Value, json};
use warmline::metrics::{ServerNumbers, Snapshot};

use crate::Shared;

pub(super) fn metrics(shared: &Shared) -> Value {
    let snapshot = shared.warm.snapshot();
    let all: Vec<&ServerNumbers> = snapshot.servers.iter().collect();
    let mut said = counted(&all, &snapshot);
    let pools = snapshot.servers.iter().map(|server| {
        let of_server = counted(&[server], &snapshot);
        (server.server.to_string(), of_server)
    });
    said["pools"] = Value::Object(pools.collect());
    said["pool_key_count"] = engine_number(&snapshot, "keys").into();
    said["pool_keys_evicted"] = engine_number(&snapshot, "keys_evicted_total").into();
    said["runs"] = engine_number(&snapshot, "runs").into();
    said["numbers"] = json!({ "engine": snapshot.engine, "servers": snapshot.servers });
    said
}

/// What the pool did for some servers, in its own few words.
fn counted(servers: &[&ServerNumbers], snapshot: &Snapshot) -> Value {
    let sum = |name: &str, words: &[&str]| -> u64 {
        servers.iter().map(|server| server.count(name, words)).sum()
    };
    let acquired = |how: &str| sum("acquires_total", &[how]);
    let (hits, misses) = (acquired("hit"), acquired("miss"));
    let failed = ["gone", "silent", "unreachable", "not-understood"];
    let failed_checks: u64 = failed
        .iter()
        .map(|found| sum("checks_total", &[found]))
        .sum();
    let healed: u64 = servers
        .iter()
        .map(|server| all(server, "reinits_total"))
        .sum();
    let closed =
        |whys: &[&str]| -> u64 { whys.iter().map(|why| sum("closes_total", &[why])).sum() };
    let tripped = |scope: &str| sum("breaker_changes_total", &[scope, "tripped"]);
    let state = |state: &str| sum("sessions", &[state]);
    let is_meant = |name: &str| servers.iter().any(|server| *server.server == *name);
    let sessions = snapshot.sessions.iter();
    json!({
        "hits": hits,
        "misses": misses,
        "waits": acquired("wait"),
        "ephemeral": acquired("ephemeral"),
        "refused": acquired("refused"),
        "hit_rate": rate(hits, hits + misses),
        "sessions": sessions.filter(|line| is_meant(&line.server)).count(),
        "idle": state("idle"),
        "active": state("active"),
        "opening": state("opening"),
        "spares": state("spare"),
        "waiters": sum("waiters", &[]),
        "evictions": closed(&["aged", "idle-too-long", "evicted", "expired"]),
        "health_check_failures": failed_checks,
        "circuit_breaker_trips": tripped("server") + tripped("identity"),
        "reinitialized": healed,
    })
}

/// A count under all its words.
fn all(server: &ServerNumbers, name: &str) -> u64 {
    let numbers = server.numbers.iter().filter(|number| number.name == name);
    numbers
        .map(|number| server.count(name, &number.words))
        .sum()
}

/// A share of a whole; none of nothing.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share is told to a few digits"
)]
fn rate(part: u64, whole: u64) -> f64 {
    match whole {
        0 => 0.0,
        whole => part as f64 / whole as f64,
    }
}

fn engine_number(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.count(name, &[])
}
