//! Error codes: the stable name of each error, the party it concerns, and its page.
//!
//! A code is never renamed and never gets a second meaning: people search for it, scripts branch on
//! it, metrics count by it. A [`Reason`] is the finer word beside it. The texts are in `errors/` of
//! this crate, one page per code.

#![warn(missing_docs)]

use crate::delivery::Delivery;
use crate::word_enum::word_enum;

word_enum! {
    /// The party that can do something about an error.
    pub enum Party {
        /// The person who configures or types.
        User = "you",
        /// The MCP client that calls.
        Client = "client",
        /// The upstream server.
        Server = "server",
        /// The network between Warmline and the server.
        Network = "network",
        /// Too much at once, or too little time.
        Load = "load",
        /// The tool that was called.
        Tool = "tool",
        /// The store of session records.
        Store = "store",
        /// Warmline.
        Warmline = "us",
    }
}

/// The reader that an advice is for; what a person at a terminal can do is in
/// [`Code::suggestions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// A program that embeds the library.
    Rust,
    /// A client of the gateway.
    Gateway,
}

/// Each row: variant, word, party, usual delivery, exit code where delivery does not decide it.
macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident = $word:literal, $party:ident, $delivery:expr, $exit:expr;)+) => {
        word_enum! {
            /// The stable name of an error.
            pub enum Code { $($(#[doc = $doc])+ $variant = $word),+ }
        }

        impl Code {
            /// The party that it concerns.
            pub const fn party(self) -> Party {
                match self {
                    $(Self::$variant => Party::$party),+
                }
            }

            /// What is usually known of the request; none without a request, or if it depends.
            pub const fn usual_delivery(self) -> Option<Delivery> {
                match self {
                    $(Self::$variant => $delivery),+
                }
            }

            const fn fixed_exit_code(self) -> Option<u8> {
                match self {
                    $(Self::$variant => $exit),+
                }
            }

            /// Its page, in Markdown.
            const fn page(self) -> &'static str {
                match self {
                    $(Self::$variant => {
                        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/errors/", $word, ".md"))
                    }),+
                }
            }
        }
    };
}

use Delivery::{Answered, Refused, Unknown, Unsent};

codes! {
    /// A configuration file cannot be read.
    ConfigUnreadable = "config-unreadable", User, None, Some(2);
    /// A configuration file holds an unknown key.
    ConfigUnknownKey = "config-unknown-key", User, None, Some(2);
    /// A setting has a value it cannot have.
    ConfigBadValue = "config-bad-value", User, None, Some(2);
    /// A configuration file from the working folder is not trusted yet.
    ConfigUntrusted = "config-untrusted", User, None, Some(2);
    /// An argument of a command is wrong.
    UsageBadArgument = "usage-bad-argument", User, None, Some(2);
    /// No server of that name is configured.
    ServerUnknown = "server-unknown", User, Some(Unsent), Some(2);
    /// The server has no tool of that name.
    ToolUnknown = "tool-unknown", User, Some(Unsent), Some(2);
    /// The server did not accept our credential.
    CredentialRefused = "credential-refused", User, Some(Refused), None;
    /// The message to send is not an MCP message.
    BadMessage = "bad-message", Client, Some(Unsent), Some(2);
    /// The two sides share no version of the protocol.
    EraUnknown = "era-unknown", Client, Some(Unsent), Some(2);
    /// No connection, or no program.
    CannotReach = "cannot-reach", Server, Some(Unsent), None;
    /// Connected, but the handshake failed.
    OpenFailed = "open-failed", Server, Some(Unsent), None;
    /// The server turned the request away.
    RequestRefused = "request-refused", Server, Some(Refused), None;
    /// The time for the call was over.
    Deadline = "deadline", Load, None, None;
    /// The server forgot the session.
    SessionLost = "session-lost", Server, Some(Refused), None;
    /// Sent, and no answer came.
    AnswerLost = "answer-lost", Network, Some(Unknown), None;
    /// An answer came that cannot be read.
    BadAnswer = "bad-answer", Server, Some(Unknown), None;
    /// The tool itself answered with an error.
    ToolFailed = "tool-failed", Tool, Some(Answered), Some(1);
    /// No run of that name is live.
    RunUnknown = "run-unknown", User, Some(Unsent), Some(2);
    /// The run ended before the call could be sent.
    RunEnded = "run-ended", Client, None, None;
    /// The rules do not allow this server or tool.
    NotAllowed = "not-allowed", User, Some(Unsent), Some(2);
    /// Nothing in the request says who is asking.
    IdentityMissing = "identity-missing", User, Some(Unsent), Some(2);
    /// The source of a credential gave none.
    CredentialUnavailable = "credential-unavailable", User, Some(Unsent), None;
    /// The resolver gave no address for the server.
    ResolveFailed = "resolve-failed", User, Some(Unsent), None;
    /// Too many sessions of this server failed to open.
    BreakerOpen = "breaker-open", Server, Some(Unsent), None;
    /// No session was free in time.
    PoolFull = "pool-full", Load, Some(Unsent), None;
    /// Too many callers, or the server asked for a pause.
    Overloaded = "overloaded", Load, Some(Unsent), None;
    /// Session records cannot be saved or read.
    StoreUnavailable = "store-unavailable", Store, None, Some(2);
    /// A session record cannot be used.
    RecordRefused = "record-refused", Store, None, Some(2);
    /// Warmline is shutting down.
    Draining = "draining", Warmline, Some(Unsent), None;
    /// The caller gave up.
    Cancelled = "cancelled", Client, None, None;
    /// The handle was closed.
    Closed = "closed", Warmline, Some(Unsent), None;
    /// A bug in Warmline.
    Bug = "bug", Warmline, None, None;
}

impl Code {
    /// What it means, in one sentence.
    pub fn meaning(self) -> &'static str {
        self.page().lines().nth(2).unwrap_or_default()
    }

    /// The usual causes.
    pub fn causes(self) -> Vec<&'static str> {
        self.items("## Usual causes").collect()
    }

    /// What to try, most promising first.
    pub fn suggestions(self) -> Vec<&'static str> {
        self.items("## What to try").collect()
    }

    /// One thing to do. If the call may have been executed, checking that comes first.
    pub fn advice(self, audience: Audience, delivery: Delivery) -> &'static str {
        let heading = match (delivery, audience, self) {
            (Unknown, _, Self::Deadline) => {
                return "check whether it was executed before calling again; then ask for less, or allow more time";
            },
            (Unknown, _, Self::BadAnswer) => {
                return "check whether it was executed before calling again; if it was too large, ask for less";
            },
            (Unknown, ..) => return "check whether it was executed before calling again",
            (Unsent | Refused | Answered, Audience::Rust, _) => "## From Rust",
            (Unsent | Refused | Answered, Audience::Gateway, _) => "## Through the gateway",
        };
        self.items(heading).next().unwrap_or_default()
    }

    /// The list under a heading of the page.
    fn items(self, heading: &str) -> impl Iterator<Item = &'static str> {
        let (_, section) = self.page().split_once(heading).unwrap_or_default();
        let lines = section.lines().take_while(|line| !line.starts_with('#'));
        lines.filter_map(|line| line.strip_prefix("- "))
    }

    /// The exit code of a command that ends with it: 1 the other side said no, 2 usage or
    /// configuration, 3 not executed, 4 may have been executed.
    pub const fn exit_code(self, delivery: Delivery) -> u8 {
        match (self.fixed_exit_code(), delivery) {
            (Some(code), _) => code,
            (None, Unsent | Refused) => 3,
            (None, Unknown) => 4,
            (None, Answered) => 1,
        }
    }
}

/// The JSON-RPC number of an error that says what is known of a request; none for an answer,
/// which has a number of its own.
pub const fn rpc_error_code(delivery: Delivery) -> Option<i64> {
    match delivery {
        Unsent => Some(7501),
        Refused => Some(7502),
        Unknown => Some(7503),
        Answered => None,
    }
}

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

#[cfg(test)]
mod tests;
