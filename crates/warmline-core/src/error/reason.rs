//! Reasons: the finer words beside a code.

use crate::error::code::Code;
use crate::word_enum::word_enum;

/// Each row: its meaning, variant, word and code.
macro_rules! reasons {
    ($(#[doc = $meaning:literal] $variant:ident = $word:literal, $code:ident;)+) => {
        word_enum! {
            /// What happened, more finely than a [`Code`] says it.
            pub enum Reason { $(#[doc = $meaning] $variant = $word),+ }
        }

        impl Reason {
            /// The code it belongs to.
            pub const fn code(self) -> Code {
                match self {
                    $(Self::$variant => Code::$code),+
                }
            }
        }
    };
}

reasons! {
    /// The name of the host cannot be resolved.
    Dns = "dns", CannotReach;
    /// The address refuses connections: no server listens there.
    ConnectRefused = "connect-refused", CannotReach;
    /// The connection was not established in time.
    ConnectTimeout = "connect-timeout", CannotReach;
    /// There is no route to the address.
    Unreachable = "unreachable", CannotReach;
    /// The certificate or the TLS parameters do not fit.
    Tls = "tls", CannotReach;
    /// The other side ended the TLS handshake.
    TlsClosed = "tls-closed", CannotReach;
    /// A proxy between Warmline and the server refused.
    Proxy = "proxy", CannotReach;
    /// This machine is out of descriptors, memory or ports.
    LocalResources = "local-resources", CannotReach;
    /// The connection failed before the request was sent.
    WriteFailed = "write-failed", CannotReach;
    /// The connection failed after the request was sent.
    ReplyLost = "reply-lost", AnswerLost;
    /// The reply breaks the protocol.
    BadReply = "bad-reply", BadAnswer;
    /// The reply is larger than allowed.
    ReplyTooLarge = "reply-too-large", BadAnswer;
    /// No answer in time.
    Timeout = "timeout", Deadline;
    /// Not sent in time.
    TimeoutUnsent = "timeout-unsent", Deadline;
    /// The server redirects to another URL.
    Redirect = "redirect", RequestRefused;
    /// The server rejected the request.
    Rejected = "rejected", RequestRefused;
    /// The server rejected the request in a way that does not tell whether it acted.
    RejectedUnclear = "rejected-unclear", AnswerLost;
    /// 401: no credential, or one that is not valid.
    Unauthorized = "unauthorized", CredentialRefused;
    /// 403: this credential may not do that.
    Forbidden = "forbidden", RequestRefused;
    /// 404 or 410 outside a session: nothing is served there.
    NotFound = "not-found", RequestRefused;
    /// The request is larger than the server takes.
    TooLarge = "too-large", RequestRefused;
    /// 409: the request conflicts with the state of the server.
    Conflict = "conflict", AnswerLost;
    /// 429: too many requests in a short time.
    RateLimited = "rate-limited", RequestRefused;
    /// 425: the server does not take it as early data.
    TooEarly = "too-early", RequestRefused;
    /// 500 and its like: the server failed while it worked.
    ServerError = "server-error", AnswerLost;
    /// A gateway before the server failed.
    GatewayError = "gateway-error", AnswerLost;
    /// 503: the server is not available now.
    Unavailable = "unavailable", AnswerLost;
    /// The server accepted the request, and no stream is open for its response.
    NoReplyChannel = "no-reply-channel", AnswerLost;
    /// The two sides share no version of the protocol.
    Version = "version", EraUnknown;
    /// The headers of a modern request contradict its body.
    HeaderMismatch = "header-mismatch", RequestRefused;
    /// The server no longer knows the session.
    SessionGone = "session-gone", SessionLost;
    /// The session belongs to another user.
    SessionMismatch = "session-mismatch", SessionLost;
    /// The server assigned a session id that is not valid.
    BadSessionId = "bad-session-id", OpenFailed;
    /// The request was invalid before it was sent.
    InvalidRequest = "invalid-request", BadMessage;
    /// The program could not be started.
    Spawn = "spawn", CannotReach;
    /// There is no such program.
    ProgramMissing = "program-missing", CannotReach;
    /// The process of the server ended.
    ChildExit = "child-exit", AnswerLost;
    /// The handshake failed.
    Handshake = "handshake", OpenFailed;
    /// The server sent nothing at all.
    SilentServer = "silent-server", OpenFailed;
    /// The peer does not speak MCP.
    NotMcp = "not-mcp", OpenFailed;
    /// The server holds one session only, and it is taken.
    SingleSession = "single-session", OpenFailed;
    /// The caller cancelled.
    Cancelled = "cancelled", Cancelled;
    /// The handle was closed.
    Closed = "closed", Closed;
    /// The server asked for input again and again.
    TooManyRounds = "too-many-rounds", BadAnswer;
    /// No run of that name is live.
    RunUnknown = "run-unknown", RunUnknown;
    /// The run ended.
    RunEnded = "run-ended", RunEnded;
    /// The rules forbid it.
    NotAllowed = "not-allowed", NotAllowed;
    /// Nothing in the request says who is asking.
    IdentityMissing = "identity-missing", IdentityMissing;
    /// The source of the credential gave none.
    CredentialUnavailable = "credential-unavailable", CredentialUnavailable;
    /// The caller's request lacks the header that the credential is taken from.
    CredentialNotSent = "credential-not-sent", CredentialUnavailable;
    /// The resolver gave no address for the server.
    ResolveFailed = "resolve-failed", ResolveFailed;
    /// Too many sessions of this server failed to open lately.
    BreakerOpen = "breaker-open", BreakerOpen;
    /// No session was free in time.
    PoolFull = "pool-full", PoolFull;
    /// Too many callers at once, or the server asked for a pause.
    Overloaded = "overloaded", Overloaded;
    /// The store cannot be used.
    StoreUnavailable = "store-unavailable", StoreUnavailable;
    /// A stored record cannot be used.
    RecordRefused = "record-refused", RecordRefused;
    /// Warmline is shutting down and takes no new calls.
    Draining = "draining", Draining;
    /// No server of that name is configured.
    ServerUnknown = "server-unknown", ServerUnknown;
    /// The server has no tool of that name.
    ToolUnknown = "tool-unknown", ToolUnknown;
    /// The session's state was lost, and the policy forbids going on.
    StateLost = "state-lost", SessionLost;
    /// A bug in Warmline.
    Internal = "internal", Bug;
}
