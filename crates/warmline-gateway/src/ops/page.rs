//! What stands on the pages for machines: whether we are ready, the servers, all numbers.
//!
//! Asked by: [`ops`](super).  Nothing here names an identity, a run or an argument: these pages
//! ask nobody who they are.

use serde_json::{Value, json};
use warmline::metrics::{Metric, ServerLine, ServerState};

use super::exposition::{Lines, Page};
use super::vitals::Process;
use crate::Shared;
use crate::face::legacy::clients::MAX_STREAM_BYTES;
use crate::metrics::{METRICS, Reloaded};

/// Why nothing more should be sent to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotReady {
    /// We are going down.
    Draining,
    /// There is no room for another request.
    Overloaded,
    /// A server fails that this gateway is of no use without.
    Required,
}

impl NotReady {
    const fn word(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::Overloaded => "overloaded",
            Self::Required => "required",
        }
    }

    fn of(shared: &Shared, standing: &[ServerLine]) -> Option<Self> {
        let fails = |line: &ServerLine| {
            let fails = matches!(line.state, ServerState::Degraded | ServerState::BreakerOpen);
            line.required && fails
        };
        if shared.departure.has_begun() || *shared.stopping.borrow() {
            Some(Self::Draining)
        } else if shared.gate.is_full() {
            Some(Self::Overloaded)
        } else if standing.iter().any(fails) {
            Some(Self::Required)
        } else {
            None
        }
    }
}

/// Whether we are ready, and how the servers stand. Only what is ours decides, and servers that
/// were said to be required: any other that is dead makes nobody unready.
pub(super) fn readiness(shared: &Shared) -> (bool, Value) {
    let standing = shared.warm.snapshot().standing;
    let not_ready = NotReady::of(shared, &standing);
    let servers: Vec<Value> = standing
        .iter()
        .map(|line| json!({ "server": line.server, "state": line.state }))
        .collect();
    let mut said = json!({ "ready": not_ready.is_none(), "servers": servers });
    if let (Some(why), Some(said)) = (not_ready, said.as_object_mut()) {
        said.insert("why".to_owned(), json!(why.word()));
    }
    (not_ready.is_none(), said)
}

/// Each server as it stands, in words of ours.
pub(super) fn servers(shared: &Shared) -> Value {
    let standing = shared.warm.snapshot().standing.into_iter();
    let lines: Vec<ServerLine> = standing.map(ServerLine::in_words).collect();
    json!({ "servers": lines })
}

/// All numbers.
pub(super) fn metrics(shared: &Shared) -> String {
    let mut page = Page::default();
    page.engine(&shared.warm.snapshot());
    for metric in METRICS {
        number(&mut page, metric, shared);
    }
    page.into_text()
}

/// The numbers of one metric of ours.
fn number(page: &mut Page, metric: &'static Metric, shared: &Shared) {
    let (counts, gate) = (&shared.counts, &shared.gate);
    let mut lines = page.metric(metric);
    match metric.name {
        "gateway_requests_total" => lines.by_two(&counts.requests),
        "gateway_refused_total" => lines.by(&counts.turned_away),
        "gateway_connections" => lines.number(gate.connections()),
        "gateway_connections_limit" => lines.number(gate.limits().connections),
        "gateway_requests_under_way" => lines.number(gate.requests()),
        "gateway_requests_limit" => lines.number(gate.limits().requests),
        "gateway_clients" => lines.number(shared.clients.len()),
        "gateway_streams" => lines.number(shared.clients.streams()),
        "gateway_left_calls_total" => lines.by(&counts.left),
        "dropped_replies_total" => lines.by(&counts.undelivered),
        "dropped_notices_total" => lines.number(counts.unheard.count()),
        "buffer_bytes" => {
            lines.with(&["requests"], gate.bytes());
            lines.with(&["replies"], gate.reply_bytes());
            lines.with(&["streams"], shared.clients.stream_bytes());
        },
        "buffer_limit_bytes" => {
            lines.with(&["requests"], gate.limits().request_bytes);
            lines.with(&["replies"], gate.limits().request_bytes);
            lines.with(&["streams"], MAX_STREAM_BYTES);
        },
        "audit_lines_total" => lines.number(counts.audit.lines.count()),
        "audit_lost_total" => lines.number(counts.audit.lost.count()),
        "log_lost_total" => {
            let lost = shared.options.log_lost.as_ref();
            lines.number(lost.map_or(0, |lost| lost.count()));
        },
        "reload_total" => lines.by(&counts.reloads),
        "config_epoch" => lines.number(1 + counts.reloads.count(Reloaded::Taken)),
        "draining" => lines.number(u8::from(
            NotReady::of(shared, &[]) == Some(NotReady::Draining),
        )),
        _ => of_process(&mut lines, metric.name, shared),
    }
}

fn of_process(lines: &mut Lines<'_>, name: &str, shared: &Shared) {
    let process = Process::now();
    let known = match name {
        "memory_bytes" => process.memory,
        "fds" => process.descriptors,
        "fds_limit" => process.descriptors_limit,
        "start_time_seconds" => Some(shared.vitals.since),
        "clock_jumps_total" => Some(shared.vitals.jumps.count()),
        "tasks" => {
            let tasks = tokio::runtime::Handle::try_current().ok();
            tasks.and_then(|here| u64::try_from(here.metrics().num_alive_tasks()).ok())
        },
        "loop_lag_seconds" => return lines.number(shared.vitals.lag().as_secs_f64()),
        "build_info" => return lines.with(&[env!("CARGO_PKG_VERSION")], 1),
        _ => None,
    };
    if let Some(known) = known {
        lines.number(known);
    }
}
