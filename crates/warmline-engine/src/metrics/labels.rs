//! The labels of metrics.

use warmline_core::protocol::session_gone::SessionGoneForm;
use warmline_core::word_enum::{WordEnum, word_enum};

word_enum! {
    /// How a call got its session (M1).
    #[non_exhaustive]
    pub enum AcquireOutcome {
        /// A session of its key was open.
        Hit = "hit",
        /// One was opened for it.
        Miss = "miss",
        /// It waited for one.
        Wait = "wait",
        /// It got its own session, closed afterwards.
        Ephemeral = "ephemeral",
        /// It got none.
        Refused = "refused",
    }
}

word_enum! {
    /// What a session is doing (M2).
    #[non_exhaustive]
    pub enum SessionState {
        /// Its handshake is under way.
        Opening = "opening",
        /// Open and unused.
        Idle = "idle",
        /// In use.
        Active = "active",
        /// It accepts no new call and closes after the last.
        Closing = "closing",
        /// Opened in advance and never used.
        Spare = "spare",
    }
}

word_enum! {
    /// How an opening ended (M3).
    #[non_exhaustive]
    pub enum OpenResult {
        /// A fresh session.
        Opened = "opened",
        /// A spare was taken instead.
        Spare = "spare",
        /// A recorded session was resumed, with nothing on the wire.
        Resumed = "resumed",
        /// The server refused, or does not speak MCP.
        Failed = "failed",
        /// The server could not be reached.
        Unreachable = "unreachable",
        /// The server did not accept our credential.
        CredentialRefused = "credential-refused",
        /// It took too long.
        TimedOut = "timed-out",
        /// It was given up: no caller wanted it any more.
        GivenUp = "given-up",
    }
}

/// What showed that a session is lost (M4): the form in which the server said so, or something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum HealCause {
    /// The server said so.
    Reported(SessionGoneForm),
    /// The child ended.
    ChildExit,
    /// The stream of an HTTP+SSE session ended.
    StreamEnd,
    /// A check before reuse failed.
    CheckFailed,
}

impl HealCause {
    /// The word it goes by in logs, metrics and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reported(form) => form.as_str(),
            Self::ChildExit => "child-exit",
            Self::StreamEnd => "stream-end",
            Self::CheckFailed => "check-failed",
        }
    }
}

impl WordEnum for HealCause {
    const ALL: &'static [Self] = &{
        let mut all = [Self::ChildExit; SessionGoneForm::ALL.len() + 3];
        let mut at = 0;
        while at < SessionGoneForm::ALL.len() {
            all[at] = Self::Reported(SessionGoneForm::ALL[at]);
            at += 1;
        }
        all[at + 1] = Self::StreamEnd;
        all[at + 2] = Self::CheckFailed;
        all
    };

    fn as_str(self) -> &'static str {
        self.as_str()
    }

    fn index(self) -> usize {
        let mut all = Self::ALL.iter();
        all.position(|one| *one == self).unwrap_or_default()
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Reported(form) => form.meaning(),
            Self::ChildExit => "The child ended.",
            Self::StreamEnd => "The stream of an HTTP+SSE session ended.",
            Self::CheckFailed => "A check before reuse failed.",
        }
    }
}

impl std::fmt::Display for HealCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl serde::Serialize for HealCause {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

word_enum! {
    /// How a healing ended (M4).
    #[non_exhaustive]
    pub enum HealResult {
        /// A new session replaced the lost one.
        Healed = "healed",
        /// None could be opened.
        Failed = "failed",
        /// The new one was lost as well, and the call was sent often enough.
        LostAgain = "lost-again",
    }
}

word_enum! {
    /// What a check found (M5).
    #[non_exhaustive]
    pub enum CheckResult {
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

word_enum! {
    /// Whose openings a breaker covers (M7).
    #[non_exhaustive]
    pub enum BreakerScope {
        /// All openings at the server.
        Server = "server",
        /// One identity and its credential.
        Identity = "identity",
    }
}

word_enum! {
    /// What was asked for (M10).
    #[non_exhaustive]
    pub enum MethodLabel {
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

word_enum! {
    /// How a call ended (M10).
    #[non_exhaustive]
    pub enum CallOutcome {
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

word_enum! {
    /// Whether the server executed a call.
    #[non_exhaustive]
    pub enum CallDelivery {
        /// Nothing was sent.
        Unsent = "unsent",
        /// The server refused it.
        Refused = "refused",
        /// The server answered it.
        Answered = "answered",
        /// It may have been executed, and its caller was told so.
        Unknown = "unknown",
        /// Its caller gave it up while it was under way, or closed what it listened to.
        Cancelled = "cancelled",
    }
}

word_enum! {
    /// How a child ended (M11).
    #[non_exhaustive]
    pub enum ChildEnd {
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

word_enum! {
    /// What was asked of a store (M12).
    #[non_exhaustive]
    pub enum StoreOperation {
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

word_enum! {
    /// What a store did (M12).
    #[non_exhaustive]
    pub enum StoreResult {
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

word_enum! {
    /// What came of asking for a credential again (M13).
    #[non_exhaustive]
    pub enum RefreshResult {
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
