//! Reasons: the finer words beside a code.

use super::Code;

/// What happened, more finely than a [`Code`] says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The name of the host leads nowhere.
    Dns,
    /// Nobody listens at the address.
    ConnectRefused,
    /// No connection within the time for one.
    ConnectTimeout,
    /// No way to the address.
    Unreachable,
    /// The certificate or the terms of TLS do not fit.
    Tls,
    /// The other side ended the TLS handshake.
    TlsClosed,
    /// A proxy on the way refused.
    Proxy,
    /// Descriptors, memory or ports of this machine are used up.
    LocalResources,
    /// The connection failed before the request was sent.
    WriteFailed,
    /// The connection failed after the request was sent.
    ReplyLost,
    /// The reply is not what the protocol says.
    BadReply,
    /// The reply is larger than allowed.
    ReplyTooLarge,
    /// No answer in time.
    Timeout,
    /// Not sent in time.
    TimeoutUnsent,
    /// The server points elsewhere.
    Redirect,
    /// The server did not take the request.
    Rejected,
    /// The server said no in a way that does not tell whether it acted.
    RejectedUnclear,
    /// 401: no credential, or one that does not count.
    Unauthorized,
    /// 403: this credential may not do that.
    Forbidden,
    /// 404 or 410 outside a session: nothing is served there.
    NotFound,
    /// The request is larger than the server takes.
    TooLarge,
    /// 409.
    Conflict,
    /// 429.
    RateLimited,
    /// 425.
    TooEarly,
    /// 500 and its like.
    ServerError,
    /// A gateway before the server failed.
    GatewayError,
    /// 503.
    Unavailable,
    /// The server took the request, and no stream is open to answer on.
    NoReplyChannel,
    /// No version of the protocol in common.
    Version,
    /// The headers of a modern request are unlike its body.
    HeaderMismatch,
    /// The server does not know the session any more.
    SessionGone,
    /// The session belongs to another user.
    SessionMismatch,
    /// The server gave out a session id that no session may have.
    BadSessionId,
    /// The request was wrong before anything was sent.
    InvalidRequest,
    /// The program could not be started.
    Spawn,
    /// There is no such program.
    ProgramMissing,
    /// The process of the server ended.
    ChildExit,
    /// The handshake failed.
    Handshake,
    /// The server said nothing at all.
    SilentServer,
    /// What answers there does not speak MCP.
    NotMcp,
    /// The server holds one session only, and it is taken.
    SingleSession,
    /// The caller gave up.
    Cancelled,
    /// The handle was closed.
    Closed,
    /// The server asked again and again.
    TooManyRounds,
    /// No run of that name is live.
    RunUnknown,
    /// The run ended.
    RunEnded,
    /// The rules forbid it.
    NotAllowed,
    /// Nothing says who is asking.
    IdentityMissing,
    /// The source of the credential gave none.
    CredentialUnavailable,
    /// The caller's request lacks the header that the credential is taken from.
    CredentialNotSent,
    /// Nobody could say where the server is.
    ResolveFailed,
    /// Too many openings failed lately.
    BreakerOpen,
    /// No session was free in time.
    PoolFull,
    /// Too much at once.
    Overloaded,
    /// The store cannot be used.
    StoreUnavailable,
    /// A stored record cannot be used.
    RecordRefused,
    /// Nothing new is taken.
    Draining,
    /// No server of that name is configured.
    ServerUnknown,
    /// The server has no tool of that name.
    ToolUnknown,
    /// The session's state was lost, and the policy forbids going on.
    StateLost,
    /// A promise of ours was broken.
    Internal,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 61] = [
        Self::Dns,
        Self::ConnectRefused,
        Self::ConnectTimeout,
        Self::Unreachable,
        Self::Tls,
        Self::TlsClosed,
        Self::Proxy,
        Self::LocalResources,
        Self::WriteFailed,
        Self::ReplyLost,
        Self::BadReply,
        Self::ReplyTooLarge,
        Self::Timeout,
        Self::TimeoutUnsent,
        Self::Redirect,
        Self::Rejected,
        Self::RejectedUnclear,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::TooLarge,
        Self::Conflict,
        Self::RateLimited,
        Self::TooEarly,
        Self::ServerError,
        Self::GatewayError,
        Self::Unavailable,
        Self::NoReplyChannel,
        Self::Version,
        Self::HeaderMismatch,
        Self::SessionGone,
        Self::SessionMismatch,
        Self::BadSessionId,
        Self::InvalidRequest,
        Self::Spawn,
        Self::ProgramMissing,
        Self::ChildExit,
        Self::Handshake,
        Self::SilentServer,
        Self::NotMcp,
        Self::SingleSession,
        Self::Cancelled,
        Self::Closed,
        Self::TooManyRounds,
        Self::RunUnknown,
        Self::RunEnded,
        Self::NotAllowed,
        Self::IdentityMissing,
        Self::CredentialUnavailable,
        Self::CredentialNotSent,
        Self::ResolveFailed,
        Self::BreakerOpen,
        Self::PoolFull,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::RecordRefused,
        Self::Draining,
        Self::ServerUnknown,
        Self::ToolUnknown,
        Self::StateLost,
        Self::Internal,
    ];

    /// The word used in logs, metrics and JSON.
    pub const fn word(self) -> &'static str {
        self.row().0
    }

    /// The code it belongs to.
    pub const fn code(self) -> Code {
        self.row().1
    }

    /// What it means, in a sentence.
    #[expect(clippy::too_many_lines, reason = "one line for each reason")]
    #[rustfmt::skip]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Dns => "The name of the host leads nowhere.",
            Self::ConnectRefused => "Nobody listens at the address.",
            Self::ConnectTimeout => "No connection within the time for one.",
            Self::Unreachable => "No way to the address.",
            Self::Tls => "The certificate or the terms of TLS do not fit.",
            Self::TlsClosed => "The other side ended the TLS handshake.",
            Self::Proxy => "A proxy on the way refused.",
            Self::LocalResources => "Descriptors, memory or ports of this machine are used up.",
            Self::WriteFailed => "The connection failed before the request was sent.",
            Self::Spawn => "The program could not be started.",
            Self::ProgramMissing => "There is no such program.",
            Self::BadSessionId => "The server gave out a session id that no session may have.",
            Self::Handshake => "The handshake failed.",
            Self::SilentServer => "The server said nothing at all.",
            Self::NotMcp => "What answers there does not speak MCP.",
            Self::SingleSession => "The server holds one session only, and it is taken.",
            Self::Redirect => "The server points elsewhere.",
            Self::Rejected => "The server did not take the request.",
            Self::Forbidden => "403: this credential may not do that.",
            Self::NotFound => "404 or 410 outside a session: nothing is served there.",
            Self::TooLarge => "The request is larger than the server takes.",
            Self::RateLimited => "429: too many requests in a short time.",
            Self::TooEarly => "425: the server does not take it as early data.",
            Self::HeaderMismatch => "The headers of a modern request are unlike its body.",
            Self::Unauthorized => "401: no credential, or one that does not count.",
            Self::Version => "No version of the protocol in common.",
            Self::InvalidRequest => "The request was wrong before anything was sent.",
            Self::SessionGone => "The server does not know the session any more.",
            Self::SessionMismatch => "The session belongs to another user.",
            Self::ReplyLost => "The connection failed after the request was sent.",
            Self::Conflict => "409: what is asked for is at odds with what is there.",
            Self::ServerError => "500 and its like: the server failed while it worked.",
            Self::GatewayError => "A gateway before the server failed.",
            Self::Unavailable => "503: the server cannot serve just now.",
            Self::NoReplyChannel => "The server took the request, and no stream is open to answer on.",
            Self::ChildExit => "The process of the server ended.",
            Self::RejectedUnclear => "The server said no in a way that does not tell whether it acted.",
            Self::BadReply => "The reply is not what the protocol says.",
            Self::ReplyTooLarge => "The reply is larger than allowed.",
            Self::TooManyRounds => "The server asked again and again.",
            Self::Timeout => "No answer in time.",
            Self::TimeoutUnsent => "Not sent in time.",
            Self::Cancelled => "The caller gave up.",
            Self::Closed => "The handle was closed.",
            Self::RunUnknown => "No run of that name is live.",
            Self::RunEnded => "The run ended.",
            Self::NotAllowed => "The rules forbid it.",
            Self::IdentityMissing => "Nothing says who is asking.",
            Self::CredentialUnavailable => "The source of the credential gave none.",
            Self::CredentialNotSent => "The caller's request lacks the header that the credential is taken from.",
            Self::ResolveFailed => "Nobody could say where the server is.",
            Self::BreakerOpen => "Too many openings failed lately.",
            Self::PoolFull => "No session was free in time.",
            Self::Overloaded => "Too much at once.",
            Self::StoreUnavailable => "The store cannot be used.",
            Self::RecordRefused => "A stored record cannot be used.",
            Self::Draining => "Nothing new is taken.",
            Self::ServerUnknown => "No server of that name is configured.",
            Self::ToolUnknown => "The server has no tool of that name.",
            Self::StateLost => "The session's state was lost, and the policy forbids going on.",
            Self::Internal => "A promise of ours was broken.",
        }
    }

    /// The reason of this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    #[expect(clippy::too_many_lines, reason = "one line for each reason")]
    #[rustfmt::skip]
    const fn row(self) -> (&'static str, Code) {
        match self {
            Self::Dns             => ("dns",               Code::CannotReach),
            Self::ConnectRefused  => ("connect-refused",   Code::CannotReach),
            Self::ConnectTimeout  => ("connect-timeout",   Code::CannotReach),
            Self::Unreachable     => ("unreachable",       Code::CannotReach),
            Self::Tls             => ("tls",               Code::CannotReach),
            Self::TlsClosed       => ("tls-closed",        Code::CannotReach),
            Self::Proxy           => ("proxy",             Code::CannotReach),
            Self::LocalResources  => ("local-resources",   Code::CannotReach),
            Self::WriteFailed     => ("write-failed",      Code::CannotReach),
            Self::Spawn           => ("spawn",             Code::CannotReach),
            Self::ProgramMissing  => ("program-missing",   Code::CannotReach),
            Self::BadSessionId    => ("bad-session-id",    Code::OpenFailed),
            Self::Handshake       => ("handshake",         Code::OpenFailed),
            Self::SilentServer    => ("silent-server",     Code::OpenFailed),
            Self::NotMcp          => ("not-mcp",           Code::OpenFailed),
            Self::SingleSession   => ("single-session",    Code::OpenFailed),
            Self::Redirect        => ("redirect",          Code::RequestRefused),
            Self::Rejected        => ("rejected",          Code::RequestRefused),
            Self::Forbidden       => ("forbidden",         Code::RequestRefused),
            Self::NotFound        => ("not-found",         Code::RequestRefused),
            Self::TooLarge        => ("too-large",         Code::RequestRefused),
            Self::RateLimited     => ("rate-limited",      Code::RequestRefused),
            Self::TooEarly        => ("too-early",         Code::RequestRefused),
            Self::HeaderMismatch  => ("header-mismatch",   Code::RequestRefused),
            Self::Unauthorized    => ("unauthorized",      Code::CredentialRefused),
            Self::Version         => ("version",           Code::EraUnknown),
            Self::InvalidRequest  => ("invalid-request",   Code::BadMessage),
            Self::SessionGone     => ("session-gone",      Code::SessionLost),
            Self::SessionMismatch => ("session-mismatch",  Code::SessionLost),
            Self::ReplyLost       => ("reply-lost",        Code::AnswerLost),
            Self::Conflict        => ("conflict",          Code::AnswerLost),
            Self::ServerError     => ("server-error",      Code::AnswerLost),
            Self::GatewayError    => ("gateway-error",     Code::AnswerLost),
            Self::Unavailable     => ("unavailable",       Code::AnswerLost),
            Self::NoReplyChannel  => ("no-reply-channel",  Code::AnswerLost),
            Self::ChildExit       => ("child-exit",        Code::AnswerLost),
            Self::RejectedUnclear => ("rejected-unclear",  Code::AnswerLost),
            Self::BadReply        => ("bad-reply",         Code::BadAnswer),
            Self::ReplyTooLarge   => ("reply-too-large",   Code::BadAnswer),
            Self::TooManyRounds   => ("too-many-rounds",   Code::BadAnswer),
            Self::Timeout         => ("timeout",           Code::Deadline),
            Self::TimeoutUnsent   => ("timeout-unsent",    Code::Deadline),
            Self::Cancelled       => ("cancelled",         Code::Cancelled),
            Self::Closed          => ("closed",            Code::Closed),
            Self::RunUnknown => ("run-unknown", Code::RunUnknown),
            Self::RunEnded => ("run-ended", Code::RunEnded),
            Self::NotAllowed => ("not-allowed", Code::NotAllowed),
            Self::IdentityMissing => ("identity-missing", Code::IdentityMissing),
            Self::CredentialUnavailable => ("credential-unavailable", Code::CredentialUnavailable),
            Self::CredentialNotSent => ("credential-not-sent", Code::CredentialUnavailable),
            Self::ResolveFailed => ("resolve-failed", Code::ResolveFailed),
            Self::BreakerOpen => ("breaker-open", Code::BreakerOpen),
            Self::PoolFull => ("pool-full", Code::PoolFull),
            Self::Overloaded => ("overloaded", Code::Overloaded),
            Self::StoreUnavailable => ("store-unavailable", Code::StoreUnavailable),
            Self::RecordRefused => ("record-refused", Code::RecordRefused),
            Self::Draining => ("draining", Code::Draining),
            Self::ServerUnknown => ("server-unknown", Code::ServerUnknown),
            Self::ToolUnknown => ("tool-unknown", Code::ToolUnknown),
            Self::StateLost => ("state-lost", Code::SessionLost),
            Self::Internal        => ("internal",          Code::Bug),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
