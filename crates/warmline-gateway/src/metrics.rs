//! Counters of the gateway, and their labels. The engine counts what happens behind them.
//!
//! All labels are closed sets, so that no caller creates one. Their docs appear in
//! `warmline explain`.

use warmline_core::word_enum::word_enum;
use warmline_engine::metrics::{Counter, LabeledCounter, TwoLabelCounter};

word_enum! {
    /// The era of a request.
    #[non_exhaustive]
    pub enum RequestEra {
        /// A message of the legacy era.
        Legacy = "legacy",
        /// A message of the modern era.
        Modern = "modern",
        /// No message, or rejected before it was parsed.
        None = "none",
    }
}

word_enum! {
    /// The class of a status.
    #[non_exhaustive]
    pub enum StatusClass {
        /// Success.
        Success = "2xx",
        /// A redirect.
        Redirect = "3xx",
        /// An error of the client.
        ClientError = "4xx",
        /// An error of the gateway or a server.
        ServerError = "5xx",
    }
}

word_enum! {
    /// Why a connection or request was rejected before its message was parsed.
    #[non_exhaustive]
    pub enum RejectionReason {
        /// There were too many connections.
        Connections = "connections",
        /// Too many requests were in flight.
        Overloaded = "overloaded",
        /// The caller's own requests in flight would have left no room for others.
        Quota = "share",
        /// It was a new request while the gateway was shutting down.
        Draining = "draining",
        /// The TLS handshake failed.
        TlsHandshake = "handshake",
        /// Its Host is not allowed.
        Host = "host",
        /// It came from a web page whose Origin is not allowed.
        Origin = "origin",
        /// There is nothing at its path.
        Path = "path",
        /// Its head is invalid: the method, the content type, or the types the client accepts.
        Head = "head",
        /// It has no token.
        NoToken = "no-token",
        /// Its token is unknown, revoked or expired.
        UnknownToken = "unknown-token",
        /// Too many requests from its address had no valid token.
        AuthFailures = "strangers",
        /// The access rules deny it.
        NotAllowed = "not-allowed",
        /// Its body is too large.
        TooLarge = "too-large",
        /// Its head or body did not arrive in time.
        TooSlow = "too-slow",
        /// Its body is incomplete.
        Truncated = "broke-off",
    }
}

word_enum! {
    /// What happened to a call whose client left or cancelled it.
    #[non_exhaustive]
    pub enum AbandonedCall {
        /// It was cancelled.
        Cancelled = "cancelled",
        /// It went on: its client may return.
        Continued = "goes-on",
    }
}

word_enum! {
    /// Why a reply never reached its client.
    #[non_exhaustive]
    pub enum UndeliveredReason {
        /// The client stopped reading and was disconnected.
        Stalled = "stalled",
        /// The client was gone when it came.
        Disconnected = "left",
        /// It was held for a client that did not return.
        Expired = "expired",
    }
}

word_enum! {
    /// The result of a reload of the configuration.
    #[non_exhaustive]
    pub enum ReloadResult {
        /// It is in force.
        Applied = "taken",
        /// It was rejected, and the old one stays in force.
        Rejected = "refused",
    }
}

#[derive(Debug, Default)]
pub(crate) struct GatewayCounters {
    pub(crate) requests: TwoLabelCounter<RequestEra, StatusClass>,
    pub(crate) rejected: LabeledCounter<RejectionReason>,
    pub(crate) abandoned_calls: LabeledCounter<AbandonedCall>,
    pub(crate) undelivered: LabeledCounter<UndeliveredReason>,
    pub(crate) dropped_notifications: Counter,
    pub(crate) reloads: LabeledCounter<ReloadResult>,
    pub(crate) audit_lines: Counter,
    pub(crate) audit_lines_lost: Counter,
}
