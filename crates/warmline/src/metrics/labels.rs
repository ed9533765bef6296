//! The words that metrics are counted by.
//!
//! Asked by: the engine, which says one of them at each count.

use warmline_core::delivery::Delivery;
use warmline_core::pool::Health;
use warmline_core::pool::breaker::Change;
use warmline_core::protocol::gone::Dialect;

use super::closed_set::closed_set;

closed_set! {
    /// How a call came by its session (M1).
    Acquired {
        /// A session of its key was there.
        Hit = "hit",
        /// One was opened for it.
        Miss = "miss",
        /// It stood in line for one.
        Wait = "wait",
        /// It got one of its own, closed afterwards.
        Ephemeral = "ephemeral",
        /// It got none.
        Refused = "refused",
    }
}

closed_set! {
    /// What a session is doing (M2).
    SessionState {
        /// Its handshake is under way.
        Opening = "opening",
        /// Open, nobody uses it.
        Idle = "idle",
        /// Somebody uses it.
        Active = "active",
        /// It takes no new call and ends after the last.
        Closing = "closing",
        /// Opened ahead, and never used by anyone.
        Spare = "spare",
    }
}

closed_set! {
    /// How an opening ended (M3).
    OpenResult {
        /// A fresh session.
        Opened = "opened",
        /// A spare was taken instead.
        Spare = "spare",
        /// A record was taken up, with nothing on the wire.
        Resumed = "resumed",
        /// The server said no, or something else than MCP.
        Failed = "failed",
        /// Nobody could be reached.
        Unreachable = "unreachable",
        /// The server did not accept our credential.
        CredentialRefused = "credential-refused",
        /// It took too long.
        TimedOut = "timed-out",
        /// It was given up: nobody wanted it any more.
        GivenUp = "given-up",
    }
}

closed_set! {
    /// What showed that a session is lost (M4): a dialect of the server, or something else.
    HealCause {
        /// 404, whatever the body says.
        NotFound = "not-found",
        /// 404 "method not found" whose text names the session.
        NotFoundNamesSession = "not-found-names-session",
        /// 410.
        Gone = "gone",
        /// "No valid session ID".
        NoValidId = "no-valid-id",
        /// "Invalid session".
        InvalidId = "invalid-id",
        /// 400 "Session not found".
        BadRequestNotFound = "bad-request-not-found",
        /// "Server not initialized".
        NotInitialized = "not-initialized",
        /// The server keeps no sessions any more.
        Stateless = "stateless",
        /// Something on the way takes the id out.
        Stripped = "stripped",
        /// 401 "Session not found".
        UnauthorizedNotFound = "unauthorized-not-found",
        /// 401 "No valid session ID provided".
        UnauthorizedNoValidId = "unauthorized-no-valid-id",
        /// Gone while the request ran.
        EndedWhileRunning = "ended-while-running",
        /// 409 whose text says that the session is stale.
        Conflict = "conflict",
        /// 503 whose text says that the session is unknown.
        Unavailable = "unavailable",
        /// 500 with one of these wrapped in its text.
        Wrapped = "wrapped",
        /// 200 with an error that says it.
        InBand = "in-band",
        /// `-32603` whose text says it.
        Internal = "internal",
        /// A request without an id was told that it needs one.
        NeedsSession = "needs-session",
        /// 403: another user's.
        OtherUser = "other-user",
        /// The server holds one session only.
        SingleSession = "single-session",
        /// The child ended.
        ChildExit = "child-exit",
        /// The stream of an HTTP+SSE session ended.
        StreamEnd = "stream-end",
        /// A check before reuse failed.
        CheckFailed = "check-failed",
    }
}

impl HealCause {
    /// The cause a dialect is.
    pub const fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::NotFound => Self::NotFound,
            Dialect::NotFoundNamesSession => Self::NotFoundNamesSession,
            Dialect::Gone => Self::Gone,
            Dialect::NoValidId => Self::NoValidId,
            Dialect::InvalidId => Self::InvalidId,
            Dialect::BadRequestNotFound => Self::BadRequestNotFound,
            Dialect::NotInitialized => Self::NotInitialized,
            Dialect::Stateless => Self::Stateless,
            Dialect::Stripped => Self::Stripped,
            Dialect::UnauthorizedNotFound => Self::UnauthorizedNotFound,
            Dialect::UnauthorizedNoValidId => Self::UnauthorizedNoValidId,
            Dialect::EndedWhileRunning => Self::EndedWhileRunning,
            Dialect::Conflict => Self::Conflict,
            Dialect::Unavailable => Self::Unavailable,
            Dialect::Wrapped => Self::Wrapped,
            Dialect::InBand => Self::InBand,
            Dialect::Internal => Self::Internal,
            Dialect::NeedsSession => Self::NeedsSession,
            Dialect::OtherUser => Self::OtherUser,
            Dialect::SingleSession => Self::SingleSession,
        }
    }
}

closed_set! {
    /// How a healing ended (M4).
    HealResult {
        /// A new session took the place of the lost one.
        Healed = "healed",
        /// None could be opened.
        Failed = "failed",
        /// The new one was lost as well, and the call was sent often enough.
        LostAgain = "lost-again",
    }
}

closed_set! {
    /// What a check found (M5).
    CheckResult {
        /// The session lives.
        Alive = "alive",
        /// The server does not know it any more.
        Gone = "gone",
        /// Nothing was heard in time.
        Silent = "silent",
        /// The server refused to be asked.
        Refused = "refused",
        /// Nobody could be reached.
        Unreachable = "unreachable",
        /// The server does not know this kind of check.
        NotUnderstood = "not-understood",
    }
}

impl From<Health> for CheckResult {
    fn from(health: Health) -> Self {
        match health {
            Health::Alive => Self::Alive,
            Health::Gone => Self::Gone,
            Health::Silent => Self::Silent,
            Health::Refused => Self::Refused,
            Health::Unreachable => Self::Unreachable,
        }
    }
}

closed_set! {
    /// Whom a breaker speaks for (M7).
    BreakerScope {
        /// Everybody who opens a session to the server.
        Server = "server",
        /// One identity and its credential.
        Identity = "identity",
    }
}

closed_set! {
    /// What a breaker does (M7).
    BreakerState {
        /// Openings go through.
        Passing = "passing",
        /// Openings are refused at once.
        Tripped = "tripped",
        /// One opening is tried.
        Probing = "probing",
    }
}

impl From<Change> for BreakerState {
    fn from(change: Change) -> Self {
        match change {
            Change::Passing => Self::Passing,
            Change::Tripped(_) => Self::Tripped,
            Change::Probing => Self::Probing,
        }
    }
}

closed_set! {
    /// What was asked for (M10).
    MethodWord {
        /// `tools/call`.
        ToolsCall = "tools/call",
        /// `tools/list`.
        ToolsList = "tools/list",
        /// `resources/list`.
        ResourcesList = "resources/list",
        /// `resources/templates/list`.
        ResourceTemplatesList = "resources/templates/list",
        /// `resources/read`.
        ResourcesRead = "resources/read",
        /// `resources/subscribe`.
        ResourcesSubscribe = "resources/subscribe",
        /// `resources/unsubscribe`.
        ResourcesUnsubscribe = "resources/unsubscribe",
        /// `prompts/list`.
        PromptsList = "prompts/list",
        /// `prompts/get`.
        PromptsGet = "prompts/get",
        /// `completion/complete`.
        Complete = "completion/complete",
        /// `logging/setLevel`.
        SetLevel = "logging/setLevel",
        /// `ping`.
        Ping = "ping",
        /// `server/discover`.
        Discover = "server/discover",
        /// `subscriptions/listen`.
        Listen = "subscriptions/listen",
        /// Any other: a caller must not make a label.
        Other = "other",
    }
}

impl MethodWord {
    /// The word for a method.
    pub fn of(method: &str) -> Self {
        match method {
            "tools/call" => Self::ToolsCall,
            "tools/list" => Self::ToolsList,
            "resources/list" => Self::ResourcesList,
            "resources/templates/list" => Self::ResourceTemplatesList,
            "resources/read" => Self::ResourcesRead,
            "resources/subscribe" => Self::ResourcesSubscribe,
            "resources/unsubscribe" => Self::ResourcesUnsubscribe,
            "prompts/list" => Self::PromptsList,
            "prompts/get" => Self::PromptsGet,
            "completion/complete" => Self::Complete,
            "logging/setLevel" => Self::SetLevel,
            "ping" => Self::Ping,
            "server/discover" => Self::Discover,
            "subscriptions/listen" => Self::Listen,
            _ => Self::Other,
        }
    }
}

closed_set! {
    /// How a call ended (M10).
    CallOutcome {
        /// With a result.
        Ok = "ok",
        /// With a result that says `isError`.
        ToolError = "tool-error",
        /// With a JSON-RPC error.
        ProtocolError = "protocol-error",
        /// Its time was over.
        Timeout = "timeout",
        /// Its caller gave up.
        Cancelled = "cancelled",
        /// It was not executed: unsent or refused.
        NotExecuted = "not-executed",
        /// It may have been executed.
        OutcomeUnknown = "outcome-unknown",
    }
}

closed_set! {
    /// What is known of a call that is over.
    CallFate {
        /// Nothing of it left us.
        Unsent = "unsent",
        /// The server did not take it.
        Refused = "refused",
        /// The server answered it.
        Answered = "answered",
        /// It may have been executed, and its caller was told so.
        Unknown = "unknown",
        /// Its caller gave it up while it was under way, or closed what it listened to.
        Cancelled = "cancelled",
    }
}

impl CallFate {
    /// What is known of a call that its caller waited for.
    pub const fn of(delivery: Delivery) -> Self {
        match delivery {
            Delivery::Unsent => Self::Unsent,
            Delivery::Refused => Self::Refused,
            Delivery::Answered => Self::Answered,
            Delivery::Unknown => Self::Unknown,
        }
    }
}

closed_set! {
    /// How a child ended (M11).
    ChildEnd {
        /// We closed it.
        Closed = "closed",
        /// By itself, with status 0.
        Finished = "finished",
        /// By itself, with another status.
        Failed = "failed",
        /// By a signal.
        Killed = "killed",
        /// It could not be started.
        NotStarted = "not-started",
    }
}

closed_set! {
    /// What was asked of a store (M12).
    StoreOperation {
        /// To read a record.
        Load = "load",
        /// To write one.
        Save = "save",
        /// To take one out.
        Clear = "clear",
        /// To look through all of them.
        Scan = "scan",
    }
}

closed_set! {
    /// What a store did (M12).
    StoreResult {
        /// What was asked.
        Done = "done",
        /// There was none.
        Missing = "missing",
        /// Somebody else wrote first.
        Lost = "lost",
        /// It failed.
        Failed = "failed",
        /// It took too long.
        TimedOut = "timed-out",
        /// What it held cannot be used.
        Refused = "refused",
    }
}

closed_set! {
    /// What came of asking for a credential again (M13).
    RefreshResult {
        /// Another one.
        Renewed = "renewed",
        /// The same one.
        Unchanged = "unchanged",
        /// None.
        Failed = "failed",
        /// It took too long.
        TimedOut = "timed-out",
    }
}

closed_set! {
    /// Why a call was turned away before it was sent.
    Refusal {
        /// No session was free in time.
        PoolFull = "pool-full",
        /// Too many waited already.
        Overloaded = "overloaded",
        /// Too many openings failed lately.
        BreakerOpen = "breaker-open",
        /// Nothing new is taken.
        Draining = "draining",
        /// The handle was closed.
        Closed = "closed",
        /// Its run ended.
        RunEnded = "run-ended",
        /// The rules forbid it.
        NotAllowed = "not-allowed",
        /// Its time was over.
        Deadline = "deadline",
    }
}
