//! Error codes: each once, with its meaning, the party it concerns, and what to do.
//!
//! Asked by: everything that reports a failure, and `warmline explain`.
//!
//! A code is a word, never renamed and never given a second meaning: people search for it,
//! scripts branch on it, metrics count by it. A [`Reason`] is the finer word beside it.

use crate::delivery::Delivery;

mod pages;
mod reason;

pub use reason::Reason;

/// The stable name of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// A configuration file cannot be read.
    ConfigUnreadable,
    /// A configuration file holds a key nobody knows.
    ConfigUnknownKey,
    /// A setting has a value it cannot have.
    ConfigBadValue,
    /// A configuration file was found in the working folder and nobody said that it is trusted.
    ConfigUntrusted,
    /// An argument of a command is wrong.
    UsageBadArgument,
    /// No server of that name is configured.
    ServerUnknown,
    /// The server has no tool of that name.
    ToolUnknown,
    /// The server did not accept our credential.
    CredentialRefused,
    /// What was to be sent is not an MCP message.
    BadMessage,
    /// Both sides have no version of the protocol in common.
    EraUnknown,
    /// No connection, or no program.
    CannotReach,
    /// Connected, but the handshake failed.
    OpenFailed,
    /// The server turned the request away.
    RequestRefused,
    /// The time was over.
    Deadline,
    /// The server forgot the session.
    SessionLost,
    /// Sent, and no answer came.
    AnswerLost,
    /// An answer came that cannot be read.
    BadAnswer,
    /// The tool itself answered with an error.
    ToolFailed,
    /// No run of that name is live.
    RunUnknown,
    /// The run ended before the call could be sent.
    RunEnded,
    /// The rules do not allow this server or tool.
    NotAllowed,
    /// Nothing says who is asking.
    IdentityMissing,
    /// The source of a secret gave none.
    CredentialUnavailable,
    /// Nobody could say where the server is.
    ResolveFailed,
    /// Too many openings failed lately.
    BreakerOpen,
    /// No session was free in time.
    PoolFull,
    /// Too much at once.
    Overloaded,
    /// Session records cannot be saved or read.
    StoreUnavailable,
    /// A session record cannot be used.
    RecordRefused,
    /// Going down, nothing new is taken.
    Draining,
    /// The caller gave up.
    Cancelled,
    /// The handle was closed.
    Closed,
    /// A promise of ours was broken.
    Bug,
}

/// Whom an error concerns: who can do something about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// Whoever configures or types.
    You,
    /// Whoever speaks MCP to us.
    Client,
    /// The upstream server.
    Server,
    /// What lies between us and the server.
    Network,
    /// Too much at once, or too little time.
    Load,
    /// The tool that was called.
    Tool,
    /// Where sessions are kept.
    Store,
    /// Warmline.
    Us,
}

impl Party {
    /// The word used in output.
    pub const fn word(self) -> &'static str {
        match self {
            Self::You => "you",
            Self::Client => "client",
            Self::Server => "server",
            Self::Network => "network",
            Self::Load => "load",
            Self::Tool => "tool",
            Self::Store => "store",
            Self::Us => "us",
        }
    }
}

impl std::fmt::Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

impl Code {
    /// What to do where nobody knows whether a call was executed: to find that out comes first.
    pub const fn advice_while_unknown(self) -> &'static str {
        if matches!(self, Self::Deadline) {
            "check whether it was executed before calling again; then ask for less, or allow more time"
        } else if matches!(self, Self::BadAnswer) {
            "check whether it was executed before calling again; if it was too large, ask for less"
        } else {
            "check whether it was executed before calling again"
        }
    }

    /// Every code.
    pub const ALL: [Self; 33] = [
        Self::ConfigUnreadable,
        Self::ConfigUnknownKey,
        Self::ConfigBadValue,
        Self::ConfigUntrusted,
        Self::UsageBadArgument,
        Self::ServerUnknown,
        Self::ToolUnknown,
        Self::CredentialRefused,
        Self::BadMessage,
        Self::EraUnknown,
        Self::CannotReach,
        Self::OpenFailed,
        Self::RequestRefused,
        Self::Deadline,
        Self::SessionLost,
        Self::AnswerLost,
        Self::BadAnswer,
        Self::ToolFailed,
        Self::RunUnknown,
        Self::RunEnded,
        Self::NotAllowed,
        Self::IdentityMissing,
        Self::CredentialUnavailable,
        Self::ResolveFailed,
        Self::BreakerOpen,
        Self::PoolFull,
        Self::Overloaded,
        Self::StoreUnavailable,
        Self::RecordRefused,
        Self::Draining,
        Self::Cancelled,
        Self::Closed,
        Self::Bug,
    ];

    /// The word it goes by.
    pub const fn word(self) -> &'static str {
        pages::page(self).word
    }

    /// The code that goes by a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.word() == word)
    }

    /// What it means, in one sentence.
    pub const fn meaning(self) -> &'static str {
        pages::page(self).meaning
    }

    /// Whom it concerns.
    pub const fn party(self) -> Party {
        pages::page(self).party
    }

    /// What is usually known of the request; none where there was no request, or it depends.
    pub const fn usual_delivery(self) -> Option<Delivery> {
        pages::page(self).delivery
    }

    /// What usually leads to it.
    pub const fn causes(self) -> &'static [&'static str] {
        pages::page(self).causes
    }

    /// What to try, most promising first.
    pub const fn try_this(self) -> &'static [&'static str] {
        pages::page(self).try_this
    }

    /// The exit code of a command that ends with it: 1 the other side said no, 2 usage or
    /// configuration, 3 not executed, 4 may have been executed.
    pub const fn exit(self, delivery: Delivery) -> u8 {
        match (pages::page(self).exit, delivery) {
            (pages::Exit::Fixed(code), _) => code,
            (pages::Exit::ByDelivery, Delivery::Unsent | Delivery::Refused) => 3,
            (pages::Exit::ByDelivery, Delivery::Unknown) => 4,
            (pages::Exit::ByDelivery, Delivery::Answered) => 1,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// The JSON-RPC number of an error that says what is known of a request; none for an answer,
/// which has a number of its own.
pub const fn rpc_number(delivery: Delivery) -> Option<i64> {
    match delivery {
        Delivery::Unsent => Some(7501),
        Delivery::Refused => Some(7502),
        Delivery::Unknown => Some(7503),
        Delivery::Answered => None,
    }
}

#[cfg(test)]
mod tests;
