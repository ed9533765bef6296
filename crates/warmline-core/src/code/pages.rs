//! One page per error code, as `warmline explain` shows it.

use super::{Code, Party};
use crate::delivery::Delivery;

/// Everything that is said of a code.
pub(super) struct Page {
    pub(super) word: &'static str,
    pub(super) meaning: &'static str,
    pub(super) party: Party,
    pub(super) delivery: Option<Delivery>,
    pub(super) exit: Exit,
    pub(super) causes: &'static [&'static str],
    pub(super) try_this: &'static [&'static str],
}

/// How a command ends with a code.
#[derive(Clone, Copy)]
pub(super) enum Exit {
    /// Always so.
    Fixed(u8),
    /// 3 if the request was not executed, 4 if it may have been.
    ByDelivery,
}

/// The page of a code.
pub(super) const fn page(code: Code) -> &'static Page {
    match code {
        Code::ConfigUnreadable => &CONFIG_UNREADABLE,
        Code::ConfigUnknownKey => &CONFIG_UNKNOWN_KEY,
        Code::ConfigBadValue => &CONFIG_BAD_VALUE,
        Code::ConfigUntrusted => &CONFIG_UNTRUSTED,
        Code::UsageBadArgument => &USAGE_BAD_ARGUMENT,
        Code::ServerUnknown => &SERVER_UNKNOWN,
        Code::ToolUnknown => &TOOL_UNKNOWN,
        Code::CredentialRefused => &CREDENTIAL_REFUSED,
        Code::BadMessage => &BAD_MESSAGE,
        Code::EraUnknown => &ERA_UNKNOWN,
        Code::CannotReach => &CANNOT_REACH,
        Code::OpenFailed => &OPEN_FAILED,
        Code::RequestRefused => &REQUEST_REFUSED,
        Code::Deadline => &DEADLINE,
        Code::SessionLost => &SESSION_LOST,
        Code::AnswerLost => &ANSWER_LOST,
        Code::BadAnswer => &BAD_ANSWER,
        Code::ToolFailed => &TOOL_FAILED,
        Code::Cancelled => &CANCELLED,
        Code::Closed => &CLOSED,
        Code::Bug => &BUG,
    }
}

static CONFIG_UNREADABLE: Page = Page {
    word: "config-unreadable",
    meaning: "A settings file cannot be read, or is not written in its language.",
    party: Party::You,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &[
        "the file is missing or not readable",
        "a quote, comma or bracket is missing",
    ],
    try_this: &[
        "look at the line and column the error names",
        "give the file with `--config`",
    ],
};

static CONFIG_UNKNOWN_KEY: Page = Page {
    word: "config-unknown-key",
    meaning: "A settings file holds a key that nobody knows.",
    party: Party::You,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &["a key is misspelled", "a key stands in the wrong table"],
    try_this: &["take the nearest right word that the error names"],
};

static CONFIG_BAD_VALUE: Page = Page {
    word: "config-bad-value",
    meaning: "A setting has a value that it cannot have.",
    party: Party::You,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &[
        "a number without its unit",
        "a word that is not one of the choices",
        "a `${VARIABLE}` in warmline.toml, which fills in none",
        "a server that its file switches off",
    ],
    try_this: &["look at the line and column the error names, and at the form it asks for"],
};

static CONFIG_UNTRUSTED: Page = Page {
    word: "config-untrusted",
    meaning: "A settings file was found in the working folder, and nobody said that it is trusted.",
    party: Party::You,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &[
        "the file is new, or changed since it was trusted",
        "the folder was just cloned",
    ],
    try_this: &[
        "read what the file would run with `warmline trust`, then confirm",
        "give the file with `--config` if it is yours",
    ],
};

static USAGE_BAD_ARGUMENT: Page = Page {
    word: "usage-bad-argument",
    meaning: "An argument of a command is wrong.",
    party: Party::You,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &[
        "a value is not of the type the tool asks for",
        "an argument is missing",
    ],
    try_this: &[
        "look at the examples of `--help`",
        "list what a tool takes with `warmline tools`",
    ],
};

static SERVER_UNKNOWN: Page = Page {
    word: "server-unknown",
    meaning: "No server of that name is configured.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "the name is misspelled",
        "another settings file is in use than expected",
    ],
    try_this: &[
        "take one of the names that the error lists",
        "`warmline doctor` shows the files",
    ],
};

static TOOL_UNKNOWN: Page = Page {
    word: "tool-unknown",
    meaning: "The server has no tool of that name.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "the name is misspelled",
        "the server was updated and renamed its tools",
    ],
    try_this: &["list the tools with `warmline tools`"],
};

static CREDENTIAL_REFUSED: Page = Page {
    word: "credential-refused",
    meaning: "The server did not accept our credential, or got none.",
    party: Party::You,
    delivery: Some(Delivery::Refused),
    exit: Exit::ByDelivery,
    causes: &[
        "no token was sent",
        "the token is expired, revoked or for another server",
    ],
    try_this: &[
        "give a token with `--header-env Authorization=NAME`, where the variable holds `Bearer …`",
        "or with `credential = { env = \"NAME\" }`, where it holds the token alone",
        "ask `warmline doctor` what would be sent",
    ],
};

static BAD_MESSAGE: Page = Page {
    word: "bad-message",
    meaning: "What was to be sent is not an MCP message.",
    party: Party::Client,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "the parameters are not a JSON object",
        "a member stands there twice",
    ],
    try_this: &["look at the byte the error names"],
};

static ERA_UNKNOWN: Page = Page {
    word: "era-unknown",
    meaning: "Both sides have no version of the protocol in common.",
    party: Party::Client,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "one side is much newer than the other",
        "`era` is set to the wrong one",
    ],
    try_this: &[
        "ask `warmline doctor` which versions the server speaks",
        "leave `era` out",
    ],
};

static CANNOT_REACH: Page = Page {
    word: "cannot-reach",
    meaning: "There is no connection to the server, or no program to start.",
    party: Party::Server,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "nothing listens at that address, or its name leads nowhere",
        "the certificate is expired, or of an authority this machine does not know",
        "the program is not installed, or not on the PATH",
    ],
    try_this: &[
        "ask `warmline doctor`",
        "check the URL or the program's name",
    ],
};

static OPEN_FAILED: Page = Page {
    word: "open-failed",
    meaning: "The server was reached, but did not complete the handshake.",
    party: Party::Server,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "the program ended at once; its last words are on stderr",
        "what answers at that URL is a web page, not an MCP server",
        "the server serves one session only, and it is taken",
    ],
    try_this: &["ask `warmline doctor`", "run the program by hand"],
};

static REQUEST_REFUSED: Page = Page {
    word: "request-refused",
    meaning: "The server turned the request away and did not act on it.",
    party: Party::Server,
    delivery: Some(Delivery::Refused),
    exit: Exit::ByDelivery,
    causes: &[
        "too many requests in a short time",
        "the credential may not do that",
        "the path of the URL is wrong, or the request is too large",
    ],
    try_this: &[
        "read what the server said",
        "wait as long as it asks for, then call again",
    ],
};

static DEADLINE: Page = Page {
    word: "deadline",
    meaning: "The time for the call was over before an answer came.",
    party: Party::Load,
    delivery: None,
    exit: Exit::ByDelivery,
    causes: &["the tool takes longer than allowed", "the server hangs"],
    try_this: &[
        "allow more time with `--timeout`",
        "ask `warmline doctor` whether it answers",
    ],
};

static SESSION_LOST: Page = Page {
    word: "session-lost",
    meaning: "The server forgot the session, and going on without its state is not allowed.",
    party: Party::Server,
    delivery: Some(Delivery::Refused),
    exit: Exit::ByDelivery,
    causes: &[
        "the server was restarted, or ends sessions that rest",
        "a balancer sends each request to another replica",
    ],
    try_this: &["call again: the next call opens a new session"],
};

static ANSWER_LOST: Page = Page {
    word: "answer-lost",
    meaning: "The request was sent, and no answer to it arrived.",
    party: Party::Network,
    delivery: Some(Delivery::Unknown),
    exit: Exit::ByDelivery,
    causes: &[
        "the connection closed after the request was sent",
        "the server, or a gateway before it, failed while it worked",
        "the answer came, and could not be written to where the output goes",
    ],
    try_this: &["check whether it was executed before calling again"],
};

static BAD_ANSWER: Page = Page {
    word: "bad-answer",
    meaning: "A reply came that is not an answer: malformed, too large, or for another request.",
    party: Party::Server,
    delivery: Some(Delivery::Unknown),
    exit: Exit::ByDelivery,
    causes: &[
        "the server breaks the protocol",
        "the result is larger than the limit",
    ],
    try_this: &[
        "report it to the server's makers",
        "ask for less at once, if the reply was too large",
    ],
};

static TOOL_FAILED: Page = Page {
    word: "tool-failed",
    meaning: "The tool itself answered with an error.",
    party: Party::Tool,
    delivery: Some(Delivery::Answered),
    exit: Exit::Fixed(1),
    causes: &[
        "arguments the tool does not accept",
        "what the tool works with is not there",
    ],
    try_this: &["read what the tool says"],
};

static CANCELLED: Page = Page {
    word: "cancelled",
    meaning: "The caller gave up before the answer came.",
    party: Party::Client,
    delivery: None,
    exit: Exit::ByDelivery,
    causes: &["the call was interrupted"],
    try_this: &["check whether it was executed before calling again"],
};

static CLOSED: Page = Page {
    word: "closed",
    meaning: "The session was closed on our side.",
    party: Party::Us,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &["a call was made on a handle that was closed"],
    try_this: &["open the server again"],
};

static BUG: Page = Page {
    word: "bug",
    meaning: "A promise of Warmline was broken.",
    party: Party::Us,
    delivery: None,
    exit: Exit::ByDelivery,
    causes: &["a mistake in Warmline"],
    try_this: &["report it with the output of `--verbose`"],
};
