//! What kind of server the ledger server is: its eras, its sessions, the form of its replies.
//!
//! Start from one of the constructors and change what the test is about:
//!
//! ```
//! use warmline_testkit::{Personality, ReplyFormat, SseFormat};
//!
//! let server = Personality::dual().reply(ReplyFormat::Sse(SseFormat::python()));
//! ```

use std::time::Duration;

use crate::faults::dialects::Dialect;

/// Versions of the protocol that begin with `initialize`, newest first.
pub const LEGACY_VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];
/// The version without a handshake.
pub const MODERN_VERSION: &str = "2026-07-28";

/// What the legacy side of a server does with sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegacySupport {
    /// There is none: `initialize` is refused with the versions that are served.
    Refused,
    /// A session id is given at `initialize` and asked for ever after.
    Sessions,
    /// `initialize` works, no id is given, any id is ignored, state lives for one request.
    Stateless,
}

/// Whether requests of the modern era are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModernSupport {
    /// They are not: a modern request meets the rules of the legacy era.
    Unknown,
    /// They are refused with -32022 and a list of legacy versions (as stateful Go and C# do).
    RefusedByVersion,
    /// They are served.
    Served,
}

/// The form of a reply to a request over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyFormat {
    /// One JSON object; a stream only where something must be said before the response.
    Json,
    /// Always a stream of events.
    Sse(SseFormat),
}

/// How a stream of events is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseFormat {
    /// Whether events have ids, so that a broken stream can be resumed (legacy era only).
    pub event_ids: EventIds,
    /// `retry:` of the first, empty event; none: no such event. Needs event ids.
    pub priming_retry_ms: Option<u64>,
    /// How lines end.
    pub newline: Newline,
    /// Comment lines while nothing else is to be said.
    pub keep_alive: Option<Duration>,
    /// Whether `event: message` is written.
    pub event_name: EventName,
}

/// Whether events have ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventIds {
    /// No ids: a broken stream is lost.
    Absent,
    /// `<stream>.<n>`, before the data.
    BeforeData,
    /// The same, after the data (as rmcp writes them).
    AfterData,
}

/// How lines of a stream end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newline {
    /// LF.
    Lf,
    /// CR LF, as Python writes.
    CrLf,
    /// CR alone: allowed, and met by nobody.
    Cr,
}

/// Whether events are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventName {
    /// `event: message`.
    Message,
    /// No `event:` line.
    Absent,
}

/// What `GET` gets on the legacy side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetStreamSupport {
    /// The standing stream of the session, one at a time.
    Offered,
    /// 405.
    Refused,
    /// 200 and silence for ever, with or without a session (as stateless Python).
    Silent,
}

/// How replies leave the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Each reply or event in one write, `TCP_NODELAY` set.
    Whole,
    /// Head, chunk sizes and data in writes of their own, `TCP_NODELAY` not set: a client that
    /// delays its acknowledgements waits about 40 ms for each reply.
    Pieces,
}

/// What a modern request does to a later `initialize` on the same pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EraLock {
    /// Nothing.
    Free,
    /// The pipe is modern from then on and `initialize` is refused with -32022 (as Python 2.3).
    FirstWins,
}

/// What kind of server this is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Personality {
    /// `serverInfo.name`.
    pub name: String,
    /// The legacy side.
    pub legacy: LegacySupport,
    /// The modern side.
    pub modern: ModernSupport,
    /// Form of replies.
    pub reply: ReplyFormat,
    /// Versions accepted by `initialize`, newest first.
    pub legacy_versions: Vec<String>,
    /// Versions accepted in modern requests.
    pub modern_versions: Vec<String>,
    /// `supportedVersions` as told by `server/discover`, true or not.
    pub advertised_versions: Vec<String>,
    /// How an unknown session id is refused.
    pub session_gone: &'static Dialect,
    /// How a request without a session id is refused.
    pub session_missing: &'static Dialect,
    /// Tools, resources and prompts per page; none: all at once.
    pub page_size: Option<usize>,
    /// What the URIs of its resources begin with.
    pub uri_scheme: String,
    /// Tools beside the usual ones, which do nothing.
    pub extra_tools: Vec<String>,
    /// The kinds of news that it agrees to tell of where somebody listens, and declares in its
    /// greeting; none: all that are wanted.
    pub notification_kinds: Option<Vec<String>>,
    /// What `GET` gets.
    pub get_stream: GetStreamSupport,
    /// How replies leave.
    pub write_mode: WriteMode,
    /// The path of the endpoint.
    pub path: String,
    /// `Authorization: Bearer` that every request must show; none: nobody is asked.
    pub token: Option<String>,
    /// A connection that was idle for so long is closed.
    pub idle_close: Option<Duration>,
    /// Longest life of a session without a request; none: for ever.
    pub session_idle: Option<Duration>,
    /// How many seconds a session is kept, as told by `initialize`, true or not; none: nothing is
    /// said.
    pub advertised_expiry: Option<u32>,
    /// What a modern request does to `initialize` on the same pipe.
    pub era_lock: EraLock,
}

impl Personality {
    /// Legacy only, with sessions, JSON replies.
    pub fn legacy() -> Self {
        Self {
            name: "warmline-ledger".to_owned(),
            legacy: LegacySupport::Sessions,
            modern: ModernSupport::Unknown,
            reply: ReplyFormat::Json,
            legacy_versions: LEGACY_VERSIONS.map(str::to_owned).to_vec(),
            modern_versions: vec![MODERN_VERSION.to_owned()],
            advertised_versions: vec![MODERN_VERSION.to_owned()],
            session_gone: &crate::faults::dialects::SESSION_GONE_SPEC,
            session_missing: &crate::faults::dialects::SESSION_MISSING_SPEC,
            page_size: None,
            uri_scheme: "ledger".to_owned(),
            extra_tools: Vec::new(),
            notification_kinds: None,
            get_stream: GetStreamSupport::Offered,
            write_mode: WriteMode::Whole,
            path: "/mcp".to_owned(),
            token: None,
            idle_close: None,
            session_idle: None,
            advertised_expiry: None,
            era_lock: EraLock::Free,
        }
    }

    /// Legacy only, no session ids, state for one request.
    pub fn legacy_stateless() -> Self {
        Self {
            legacy: LegacySupport::Stateless,
            get_stream: GetStreamSupport::Refused,
            ..Self::legacy()
        }
    }

    /// Modern only.
    pub fn modern() -> Self {
        Self {
            legacy: LegacySupport::Refused,
            modern: ModernSupport::Served,
            ..Self::legacy()
        }
    }

    /// Both eras; the legacy side keeps sessions.
    pub fn dual() -> Self {
        Self {
            modern: ModernSupport::Served,
            ..Self::legacy()
        }
    }

    /// Both eras; the legacy side keeps none.
    pub fn dual_stateless() -> Self {
        Self {
            modern: ModernSupport::Served,
            ..Self::legacy_stateless()
        }
    }

    /// Sets the form of replies.
    #[must_use]
    pub fn reply(mut self, form: ReplyFormat) -> Self {
        self.reply = form;
        self
    }

    /// Sets the versions that `initialize` accepts, newest first.
    #[must_use]
    pub fn legacy_versions(mut self, versions: &[&str]) -> Self {
        self.legacy_versions = versions.iter().map(|&version| version.to_owned()).collect();
        self
    }

    /// Sets what the URIs of its resources begin with.
    #[must_use]
    pub fn uri_scheme(mut self, scheme: &str) -> Self {
        scheme.clone_into(&mut self.uri_scheme);
        self
    }

    /// Adds tools of these names, which do nothing.
    #[must_use]
    pub fn extra_tools(mut self, names: &[&str]) -> Self {
        self.extra_tools = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Sets the kinds of news that it agrees to tell of where somebody listens.
    #[must_use]
    pub fn notification_kinds(mut self, kinds: &[&str]) -> Self {
        self.notification_kinds = Some(kinds.iter().map(|kind| (*kind).to_owned()).collect());
        self
    }

    /// Sets the versions that modern requests may name.
    #[must_use]
    pub fn modern_versions(mut self, versions: &[&str]) -> Self {
        self.modern_versions = versions.iter().map(|&version| version.to_owned()).collect();
        self
    }

    /// Sets `supportedVersions` of `server/discover`, true or not.
    #[must_use]
    pub fn advertised_versions(mut self, versions: &[&str]) -> Self {
        self.advertised_versions = versions.iter().map(|&version| version.to_owned()).collect();
        self
    }

    /// Sets what the modern side does.
    #[must_use]
    pub fn modern_support(mut self, leg: ModernSupport) -> Self {
        self.modern = leg;
        self
    }

    /// Sets how unknown session ids are refused: one row of [`dialects::ALL`](crate::faults::dialects::SESSION_GONE).
    #[must_use]
    pub fn session_gone(mut self, dialect: &'static Dialect) -> Self {
        self.session_gone = dialect;
        self
    }

    /// Sets how requests without a session id are refused: a row of
    /// [`dialects::MISSING`](crate::faults::dialects::SESSION_MISSING).
    #[must_use]
    pub fn session_missing(mut self, dialect: &'static Dialect) -> Self {
        self.session_missing = dialect;
        self
    }

    /// Lists come in pages of this size.
    #[must_use]
    pub fn page_size(mut self, size: usize) -> Self {
        self.page_size = Some(size.max(1));
        self
    }

    /// Sets what `GET` gets.
    #[must_use]
    pub fn get_stream(mut self, get: GetStreamSupport) -> Self {
        self.get_stream = get;
        self
    }

    /// Sets how replies leave the server.
    #[must_use]
    pub fn write_mode(mut self, writes: WriteMode) -> Self {
        self.write_mode = writes;
        self
    }

    /// Every request must show this bearer token.
    #[must_use]
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    /// Idle connections are closed after this time.
    #[must_use]
    pub fn idle_close(mut self, after: Duration) -> Self {
        self.idle_close = Some(after);
        self
    }

    /// Sessions without a request for so long are forgotten.
    #[must_use]
    pub fn session_idle(mut self, limit: Duration) -> Self {
        self.session_idle = Some(limit);
        self
    }

    /// `initialize` says that a session is kept for so many seconds.
    #[must_use]
    pub fn advertised_expiry(mut self, seconds: u32) -> Self {
        self.advertised_expiry = Some(seconds);
        self
    }

    /// The first modern request makes a pipe modern for good.
    #[must_use]
    pub fn lock_era(mut self) -> Self {
        self.era_lock = EraLock::FirstWins;
        self
    }

    pub(crate) fn sse_format(&self) -> SseFormat {
        match &self.reply {
            ReplyFormat::Json => SseFormat::plain(),
            ReplyFormat::Sse(form) => form.clone(),
        }
    }
}

impl SseFormat {
    /// LF, named events, no ids.
    pub fn plain() -> Self {
        Self {
            event_ids: EventIds::Absent,
            priming_retry_ms: None,
            newline: Newline::Lf,
            keep_alive: None,
            event_name: EventName::Message,
        }
    }

    /// As Python servers write: CR LF, named events, no ids.
    pub fn python() -> Self {
        Self {
            newline: Newline::CrLf,
            ..Self::plain()
        }
    }

    /// As rmcp writes: LF, no names, ids after the data, a first empty event with `retry`.
    pub fn rmcp() -> Self {
        Self {
            event_ids: EventIds::AfterData,
            priming_retry_ms: Some(3000),
            event_name: EventName::Absent,
            ..Self::plain()
        }
    }

    /// Streams that can be resumed: ids, and a first empty event with a short `retry`.
    pub fn resumable() -> Self {
        Self {
            event_ids: EventIds::BeforeData,
            priming_retry_ms: Some(20),
            ..Self::plain()
        }
    }

    /// Adds comment lines while there is nothing to say.
    #[must_use]
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.keep_alive = Some(every);
        self
    }

    /// Sets how lines end.
    #[must_use]
    pub fn newline(mut self, newline: Newline) -> Self {
        self.newline = newline;
        self
    }
}

impl Newline {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cr => "\r",
        }
    }
}
