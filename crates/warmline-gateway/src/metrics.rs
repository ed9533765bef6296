//! Metrics of the gateway itself: what happened at the door and on the way back to clients.
//!
//! Asked by: `ops`.  Told by: the door, the faces, the audit, a reload. What happens
//! behind them is counted by the engine. All labels are closed sets: no caller makes one.

use std::sync::Arc;

use http::StatusCode;
use warmline::closed_set;
use warmline::metrics::{CountBy, CountByTwo, Counter, Kind, Metric};

closed_set! {
    /// How a request was spoken with.
    Face {
        /// As a message of the legacy era.
        Legacy = "legacy",
        /// As a message of the modern era.
        Modern = "modern",
        /// As neither: it was turned away, or was no message.
        None = "none",
    }
}

closed_set! {
    /// The class of a status.
    StatusClass {
        /// It went well, as far as HTTP says.
        Fine = "2xx",
        /// It is elsewhere.
        Elsewhere = "3xx",
        /// The client did something wrong.
        Client = "4xx",
        /// We could not.
        Us = "5xx",
    }
}

impl StatusClass {
    /// The class of a status.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() / 100 {
            5 => Self::Us,
            4 => Self::Client,
            3 => Self::Elsewhere,
            _ => Self::Fine,
        }
    }
}

closed_set! {
    /// Why somebody was turned away at the door.
    TurnedAwayFor {
        /// There were too many connections.
        Connections = "connections",
        /// There was too much to do.
        Overloaded = "overloaded",
        /// Its caller had so much under way that others would have found no room.
        Share = "share",
        /// It asked for something new while we go down.
        Draining = "draining",
        /// The handshake of TLS failed.
        Handshake = "handshake",
        /// It was for a host that is not ours.
        Host = "host",
        /// It came from a page of elsewhere.
        Origin = "origin",
        /// There is nothing at its path.
        Path = "path",
        /// Its method, its type, or what its client can read.
        Head = "head",
        /// It showed no token.
        NoToken = "no-token",
        /// It showed a token that is not known.
        UnknownToken = "unknown-token",
        /// Too many came from there without a token that is known.
        Strangers = "strangers",
        /// The rules say no.
        NotAllowed = "not-allowed",
        /// Its body is too large.
        TooLarge = "too-large",
        /// Its body did not come in time.
        TooSlow = "too-slow",
        /// Its body broke off.
        BrokeOff = "broke-off",
    }
}

closed_set! {
    /// What became of a call whose client left or gave it up.
    LeftCall {
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It went on: its client may come back.
        GoesOn = "goes-on",
    }
}

closed_set! {
    /// Why something that was said to a client never reached it.
    Undelivered {
        /// The client stopped reading, and was left.
        Stalled = "stalled",
        /// The client was gone when it came.
        Left = "left",
        /// It was held for a client that did not come back.
        Expired = "expired",
    }
}

closed_set! {
    /// What came of reading the configuration again.
    Reloaded {
        /// It counts.
        Taken = "taken",
        /// It cannot be used, and what ran goes on.
        Refused = "refused",
    }
}

/// What a gateway counts.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) requests: CountByTwo<Face, StatusClass>,
    pub(crate) turned_away: CountBy<TurnedAwayFor>,
    pub(crate) left: CountBy<LeftCall>,
    pub(crate) undelivered: CountBy<Undelivered>,
    /// Notices that were left out of what a client reads.
    pub(crate) unheard: Counter,
    pub(crate) reloads: CountBy<Reloaded>,
    pub(crate) audit: Arc<AuditCounts>,
}

/// What is counted of the audit.
#[derive(Debug, Default)]
pub(crate) struct AuditCounts {
    /// Lines that were handed over to be written.
    pub(crate) lines: Counter,
    /// Lines that nobody will ever read.
    pub(crate) lost: Counter,
}

/// Every metric of a gateway beside those of its engine.
pub const METRICS: &[Metric] = &[
    Metric::of(
        Kind::Counter,
        "gateway_requests_total",
        &["face", "status"],
        "Requests of clients by the era they were spoken with and the class of their status",
    ),
    Metric::of(
        Kind::Counter,
        "gateway_refused_total",
        &["reason"],
        "Connections and requests that were turned away at the door",
    ),
    Metric::of(
        Kind::Gauge,
        "gateway_connections",
        &[],
        "Connections of clients",
    ),
    Metric::of(
        Kind::Gauge,
        "gateway_connections_limit",
        &[],
        "Connections of clients that there may be",
    ),
    Metric::of(
        Kind::Gauge,
        "gateway_requests_under_way",
        &[],
        "Requests of clients that have no answer yet, also where their clients left",
    ),
    Metric::of(
        Kind::Gauge,
        "gateway_requests_limit",
        &[],
        "Requests of clients without an answer that there may be",
    ),
    Metric::of(
        Kind::Gauge,
        "gateway_clients",
        &[],
        "Client sessions that were used lately",
    ),
    Metric::of(
        Kind::Gauge,
        "gateway_streams",
        &[],
        "Streams that are held for clients that may come back",
    ),
    Metric::of(
        Kind::Counter,
        "gateway_left_calls_total",
        &["then"],
        "Calls whose clients left or gave them up, by what became of them",
    ),
    Metric::of(
        Kind::Counter,
        "dropped_replies_total",
        &["why"],
        "Replies that came and that no client took",
    ),
    Metric::of(
        Kind::Counter,
        "dropped_notices_total",
        &[],
        "Notices that were left out because their clients did not read for too long, or were away",
    ),
    Metric::of(
        Kind::Gauge,
        "buffer_bytes",
        &["kind"],
        "Bytes that are held: of requests until their calls are over, of large replies until their clients read them, of streams for clients that may come back",
    ),
    Metric::of(
        Kind::Gauge,
        "buffer_limit_bytes",
        &["kind"],
        "Bytes that may be held",
    ),
    Metric::of(
        Kind::Counter,
        "audit_lines_total",
        &[],
        "Lines for the audit",
    ),
    Metric::of(
        Kind::Counter,
        "audit_lost_total",
        &[],
        "Lines of the audit that could not be written",
    ),
    Metric::of(
        Kind::Counter,
        "log_lost_total",
        &[],
        "Lines of the log that could not be written",
    ),
    Metric::of(
        Kind::Counter,
        "reload_total",
        &["result"],
        "Times that the configuration was read again",
    ),
    Metric::of(
        Kind::Gauge,
        "config_epoch",
        &[],
        "Which configuration counts: 1 is the one of the start, each that was taken since is one more",
    ),
    Metric::of(
        Kind::Gauge,
        "draining",
        &[],
        "1 while nothing new is taken, else 0",
    ),
    Metric::of(
        Kind::Gauge,
        "memory_bytes",
        &[],
        "Resident memory of the process",
    ),
    Metric::of(
        Kind::Gauge,
        "fds",
        &[],
        "Descriptors that the process has open",
    ),
    Metric::of(
        Kind::Gauge,
        "fds_limit",
        &[],
        "Descriptors that the process may have open",
    ),
    Metric::of(Kind::Gauge, "tasks", &[], "Tasks of the runtime"),
    Metric::of(
        Kind::Gauge,
        "loop_lag_seconds",
        &[],
        "How late the last beat of the runtime was",
    ),
    Metric::of(
        Kind::Counter,
        "clock_jumps_total",
        &[],
        "Times that the wall clock went another way than time itself: it was set, or the machine slept",
    ),
    Metric::of(
        Kind::Gauge,
        "start_time_seconds",
        &[],
        "When the gateway started, in seconds since 1970",
    ),
    Metric::of(
        Kind::Gauge,
        "build_info",
        &["version"],
        "1, and which version runs",
    ),
];
