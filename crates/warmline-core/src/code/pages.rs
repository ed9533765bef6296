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
        Code::RunUnknown => &RUN_UNKNOWN,
        Code::RunEnded => &RUN_ENDED,
        Code::NotAllowed => &NOT_ALLOWED,
        Code::IdentityMissing => &IDENTITY_MISSING,
        Code::CredentialUnavailable => &CREDENTIAL_UNAVAILABLE,
        Code::ResolveFailed => &RESOLVE_FAILED,
        Code::BreakerOpen => &BREAKER_OPEN,
        Code::PoolFull => &POOL_FULL,
        Code::Overloaded => &OVERLOADED,
        Code::StoreUnavailable => &STORE_UNAVAILABLE,
        Code::RecordRefused => &RECORD_REFUSED,
        Code::Draining => &DRAINING,
        Code::Cancelled => &CANCELLED,
        Code::Closed => &CLOSED,
        Code::Bug => &BUG,
    }
}

static CONFIG_UNREADABLE: Page = Page {
    word: "config-unreadable",
    meaning: "A configuration file cannot be read, or is not written in its language.",
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
    meaning: "A configuration file holds a key that nobody knows.",
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
    meaning: "A configuration file was found in the working folder, and nobody said that it is trusted.",
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
        "another configuration file is in use than expected",
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
        "ask `warmline doctor NAME` what would be sent",
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
        "ask `warmline doctor NAME` which versions the server speaks",
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
        "ask `warmline doctor NAME`",
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
    try_this: &["ask `warmline doctor NAME`", "run the program by hand"],
};

static REQUEST_REFUSED: Page = Page {
    word: "request-refused",
    meaning: "The server turned the request away.",
    party: Party::Server,
    delivery: Some(Delivery::Refused),
    exit: Exit::ByDelivery,
    causes: &[
        "too many requests in a short time",
        "the credential may not do that",
        "the path of the URL is wrong, or the request is too large",
        "it does not know the method, or not in this version",
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
        "ask `warmline doctor NAME` whether it answers",
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
    try_this: &[
        "do again what earlier calls had prepared, then call again: that runs on a new session",
        "say `on_state_loss = \"tell\"` if calls may go on without it",
    ],
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

static RUN_UNKNOWN: Page = Page {
    word: "run-unknown",
    meaning: "No run of that name is live under this identity.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "the run ended, by itself or by idling",
        "the name is misspelled",
        "the run belongs to another identity, which looks the same",
    ],
    try_this: &["begin the run by naming it instead of joining it"],
};

static RUN_ENDED: Page = Page {
    word: "run-ended",
    meaning: "The run ended, so no new call is let in and calls under way were cut.",
    party: Party::Client,
    delivery: None,
    exit: Exit::ByDelivery,
    causes: &[
        "`end()` was called, or what began the run was dropped",
        "the run was idle for too long",
        "the session's state was lost and `on_state_loss` is `end_run`",
    ],
    try_this: &["begin a new run"],
};

static NOT_ALLOWED: Page = Page {
    word: "not-allowed",
    meaning: "The configured rules do not allow this call.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "`allow` does not list the tool, or `deny` does",
        "the server is switched off",
    ],
    try_this: &["change the rules of this server, or call another tool"],
};

static IDENTITY_MISSING: Page = Page {
    word: "identity-missing",
    meaning: "Nothing in the request says who is asking.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::Fixed(2),
    causes: &[
        "none of the headers of the identity rule is there",
        "the identity's own rule found nothing",
    ],
    try_this: &["send what the rule looks for, or change the rule"],
};

static CREDENTIAL_UNAVAILABLE: Page = Page {
    word: "credential-unavailable",
    meaning: "The source of the credential failed, hung, or gave something that cannot be sent.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "a variable is not set, or a file not there",
        "a credential command failed or took too long",
        "the secret holds characters that a header cannot",
    ],
    try_this: &["run the command by hand, or look at the variable or file the error names"],
};

static RESOLVE_FAILED: Page = Page {
    word: "resolve-failed",
    meaning: "The resolver could not say where the server is.",
    party: Party::You,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "the resolver failed or took too long",
        "what it said is no URL",
    ],
    try_this: &["look at what the resolver asks; the next call asks it again"],
};

static BREAKER_OPEN: Page = Page {
    word: "breaker-open",
    meaning: "Too many openings of this server failed, so it is left alone for a while.",
    party: Party::Server,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "the server is down or refuses sessions",
        "this identity's credential was refused again and again",
    ],
    try_this: &[
        "wait until the time the error names",
        "see what the server says: `warmline doctor NAME`",
    ],
};

static POOL_FULL: Page = Page {
    word: "pool-full",
    meaning: "No session was free within the time for waiting, and no more may be opened.",
    party: Party::Load,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "every session of this key is in use",
        "a limit per server, identity or in all is reached",
    ],
    try_this: &["raise the limit the error names, or let runs end sooner"],
};

static OVERLOADED: Page = Page {
    word: "overloaded",
    meaning: "Too many callers wait already, too many runs are live, or the server asked for a pause.",
    party: Party::Load,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &[
        "more callers than the line holds",
        "runs that are never ended",
        "a pause that the server asked for, longer than a call waits (`wait`)",
    ],
    try_this: &["come back later, or end runs that are over"],
};

static STORE_UNAVAILABLE: Page = Page {
    word: "store-unavailable",
    meaning: "The store of session records cannot be used.",
    party: Party::Store,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &[
        "its folder is not there or not writable",
        "a store over the network does not answer",
    ],
    try_this: &["look at the place the error names; calls go on without records"],
};

static RECORD_REFUSED: Page = Page {
    word: "record-refused",
    meaning: "A stored session record is foreign, broken, or too new, and was not used.",
    party: Party::Store,
    delivery: None,
    exit: Exit::Fixed(2),
    causes: &[
        "the record was sealed with another key",
        "the file was cut or changed",
        "a newer Warmline wrote it",
    ],
    try_this: &["nothing: a new session was opened; keep the sealing keys with the store"],
};

static DRAINING: Page = Page {
    word: "draining",
    meaning: "Warmline is going down and takes nothing new.",
    party: Party::Us,
    delivery: Some(Delivery::Unsent),
    exit: Exit::ByDelivery,
    causes: &["`close()` was called"],
    try_this: &["call another instance"],
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
