//! Settings of one server: the table, and the values it fills.

use std::time::Duration;

use warmline_core::code::Code;
use warmline_core::era::{Era, Version};
use warmline_core::policy::{Calls, OnStateLoss, Policy, SessionPer, Sessions, ToolPolicy};
use warmline_core::protocol::gone::Breadth;

use super::kind::{Kind, Value};
use super::{ConfigError, Origins, Setting, plain, words};
use crate::upstream::server::{Sizes, Times};

/// What is decided about one server, and where each value came from.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// About its sessions and calls.
    pub policy: Policy,
    /// How long opening may take.
    pub times: Times,
    /// How large things may be.
    pub sizes: Sizes,
    /// Which era to speak; none finds out.
    pub era: Option<Era>,
    /// Where values came from.
    pub(crate) origins: Origins,
}

impl ServerSettings {
    /// The table knows nothing of single tools, and a call without any time is no decision.
    pub(super) fn tools_have_time(&self) -> Result<(), ConfigError> {
        let has_none = |tool: &ToolPolicy| [tool.idle, tool.total].contains(&Some(Duration::ZERO));
        let mut tools = self.policy.tools.iter();
        let Some((name, _)) = tools.find(|(_, tool)| has_none(tool)) else {
            return Ok(());
        };
        let what = format!("calls of `{}` have no time", name.escape_debug());
        let error = ConfigError::new(Code::ConfigBadValue, what);
        Err(error.hint("leave the time out, or give some"))
    }
}

type Of = Setting<ServerSettings>;

/// Every setting of a server, in the order of the reference page.
pub(crate) const TABLE: &[Of] = &[
    // Sessions
    Of::new(
        "sessions",
        Kind::words(Sessions::WORDS).also(&[("true", "always"), ("false", "never")]),
        "whether the server needs sessions; `auto` finds out, once",
        words!(policy.sessions: Sessions),
    )
    .row("S19"),
    Of::new(
        "session_per",
        Kind::words(&["auto", "run", "identity", "call", "server"]),
        "what one session is held for; `auto` goes by what the server turns out to be",
        words!(policy.session_per: SessionPer, or "auto"),
    )
    .row("S27"),
    Of::new(
        "serial",
        Kind::switch(),
        "one call at a time on a run's session",
        plain!(Switch, policy.serial),
    ),
    Of::new(
        "calls",
        Kind::words(&["auto", "one-by-one", "side-by-side"]),
        "how calls share a session held per identity",
        words!(policy.calls: Calls, or "auto"),
    ),
    Of::new(
        "max_per_key",
        Kind::count(1..=10_000),
        "most sessions of one identity, where sessions are held per identity",
        plain!(Count, policy.max_per_key),
    )
    .elsewhere("S2", "MCP_SESSION_POOL_MAX_PER_KEY"),
    Of::new(
        "max_sessions",
        Kind::count(1..=1_000_000).or(&["none"]),
        "most sessions of this server; without it the totals count",
        plain!(Count, policy.max_sessions, or "none" => None),
    ),
    Of::new(
        "spares",
        Kind::count(0..=64),
        "sessions opened ahead, for runs to come",
        plain!(Count, policy.spares),
    ),
    Of::new(
        "max_age",
        Kind::time().or(&["auto", "none"]),
        "age at which a shared session is closed instead of put back; `auto`: 300s over HTTP, none for programs",
        plain!(Time, policy.max_age, or "auto" => None, "none" => Some(Duration::ZERO)),
    )
    .elsewhere("S3", "MCP_SESSION_POOL_TTL"),
    Of::new(
        "max_idle",
        Kind::time().or(&["auto", "none"]),
        "how long a shared session may rest; `auto`: none over HTTP, 30min for programs",
        plain!(Time, policy.max_idle, or "auto" => None, "none" => Some(Duration::ZERO)),
    ),
    Of::new(
        "run_max_age",
        Kind::time().or(&["none"]),
        "age at which a run's session is replaced, between two calls; its state is lost then",
        plain!(Time, policy.run_max_age, or "none" => None),
    )
    .row("S28"),
    Of::new(
        "wait",
        Kind::time(),
        "how long a caller waits for a free session",
        plain!(Time, policy.wait),
    )
    .elsewhere("S8", "MCP_SESSION_POOL_ACQUIRE_TIMEOUT"),
    Of::new(
        "enabled",
        Kind::switch(),
        "whether the server may be used; off, it has no tools",
        plain!(Switch, policy.enabled),
    )
    .row("S32"),
    Of::new(
        "required",
        Kind::switch(),
        "whether `serve` needs it: does not start where it cannot be met, and is not ready while it fails",
        plain!(Switch, policy.required),
    ),
    // Health
    Of::new(
        "check_after",
        Kind::time(),
        "how long a session may rest before it is checked ahead of its next use; `health_check_interval` counts if it is shorter",
        plain!(Time, policy.check_after),
    )
    .elsewhere("S4", "MCP_SESSION_POOL_HEALTH_CHECK_INTERVAL"),
    Of::new(
        "health_check_interval",
        Kind::time(),
        "how often an HTTP server is looked at in the background",
        plain!(Time, policy.health_check_interval),
    )
    .elsewhere("S5", "HEALTH_CHECK_INTERVAL"),
    Of::new(
        "health_check_timeout",
        Kind::time(),
        "how long one check may take",
        plain!(Time, policy.health_check_timeout),
    )
    .elsewhere("S6", "HEALTH_CHECK_TIMEOUT"),
    Of::new(
        "explicit_health_rpc",
        Kind::switch(),
        "whether every check makes a request, however fresh the session is",
        plain!(Switch, policy.explicit_health_rpc),
    )
    .elsewhere("S13", "MCP_SESSION_POOL_EXPLICIT_HEALTH_RPC"),
    Of::new(
        "keep_alive",
        Kind::time().or(&["off"]),
        "how often the HTTP session of a live run is kept alive",
        (
            |of| match of.policy.keep_alive {
                Duration::ZERO => Value::Word("off"),
                time => Value::Time(time),
            },
            |of, value| {
                of.policy.keep_alive = if let Value::Time(time) = value {
                    time
                } else {
                    Duration::ZERO
                }
            },
        ),
    ),
    Of::new(
        "breaker.threshold",
        Kind::count(1..=1_000),
        "failed openings in a row after which opening is not tried for a while",
        plain!(Count, policy.breaker.threshold),
    )
    .elsewhere("S10", "MCP_SESSION_POOL_CIRCUIT_BREAKER_THRESHOLD"),
    Of::new(
        "breaker.reset",
        Kind::time(),
        "how long that while is at first; it doubles with each failure",
        plain!(Time, policy.breaker.reset),
    )
    .elsewhere("S11", "MCP_SESSION_POOL_CIRCUIT_BREAKER_RESET"),
    Of::new(
        "breaker.longest",
        Kind::time(),
        "the longest it becomes; never shorter than `breaker.reset`",
        plain!(Time, policy.breaker.longest),
    ),
    // Calls
    Of::new(
        "on_state_loss",
        Kind::words(&["auto", "tell", "continue", "fail", "end_run"]),
        "what becomes of a call whose session's state was lost; `auto`: `fail` with `sessions = \"always\"`, else `tell`",
        words!(policy.on_state_loss: OnStateLoss, or "auto"),
    ),
    Of::new(
        "heals_per_call",
        Kind::count(0..=10),
        "how often one call may be sent again because its session was gone",
        plain!(Count, policy.heals_per_call),
    )
    .row("S30"),
    Of::new(
        "dialects",
        Kind::words(&["sure", "wide"]),
        "which forms of \"session gone\" are believed; `wide` adds the doubtful ones",
        (
            |of| {
                Value::Word(match of.policy.dialects {
                    Breadth::Sure => "sure",
                    Breadth::Wide => "wide",
                })
            },
            |of, value| {
                of.policy.dialects = if value == Value::Word("wide") {
                    Breadth::Wide
                } else {
                    Breadth::Sure
                }
            },
        ),
    ),
    Of::new(
        "read_only_hint",
        Kind::switch(),
        "whether a tool that calls itself read-only may run twice",
        plain!(Switch, policy.trust_read_only_hint),
    ),
    Of::new(
        "idempotent_hint",
        Kind::texts(),
        "tools that may run twice because they call themselves idempotent",
        plain!(Texts, policy.trust_idempotent_hint),
    ),
    Of::new(
        "reads_have_effects",
        Kind::switch(),
        "whether reading a resource or a prompt may have effects",
        plain!(Switch, policy.reads_have_effects),
    ),
    Of::new(
        "dedupe",
        Kind::words(&["none", "call_id"]),
        "`call_id`: the server tells repeats by `dev.warmline/callId`, so every tool may be sent again",
        (
            |of| {
                Value::Word(match of.policy.dedupe_by_call_id {
                    true => "call_id",
                    false => "none",
                })
            },
            |of, value| of.policy.dedupe_by_call_id = value == Value::Word("call_id"),
        ),
    ),
    Of::new(
        "allow",
        Kind::texts(),
        "the only tools that may be called; `*` stands for any characters; none allows all",
        plain!(Texts, policy.allow),
    ),
    Of::new(
        "deny",
        Kind::texts(),
        "tools that may not be called, whatever is allowed",
        plain!(Texts, policy.deny),
    ),
    // Protocol
    Of::new(
        "era",
        Kind::words(&["auto", "legacy", "modern"]),
        "which era to speak; `auto` finds out",
        (
            |of| Value::Word(of.era.map_or("auto", Era::word)),
            |of, value| {
                let mut eras = [Era::Legacy, Era::Modern].into_iter();
                of.era = eras.find(|era| value == Value::Word(era.word()));
            },
        ),
    ),
    Of::new(
        "protocol_version",
        Kind::words(&[
            "auto",
            "2024-11-05",
            "2025-03-26",
            "2025-06-18",
            "2025-11-25",
            "2026-07-28",
        ]),
        "the one version to offer; `auto` offers the newest",
        (
            |of| Value::Word(of.policy.version.map_or("auto", Version::as_str)),
            |of, value| {
                let mut versions = Version::ALL.into_iter();
                of.policy.version = versions.find(|one| value == Value::Word(one.as_str()));
            },
        ),
    )
    .row("S22"),
    // Time limits
    Of::new(
        "connect_timeout",
        Kind::time(),
        "to connect, TLS included",
        plain!(Time, times.connect),
    )
    .elsewhere("S7", "MCP_SESSION_POOL_TRANSPORT_TIMEOUT"),
    Of::new(
        "handshake_timeout",
        Kind::time(),
        "for one message of the handshake",
        plain!(Time, times.handshake),
    )
    .elsewhere("S7", "MCP_SESSION_POOL_TRANSPORT_TIMEOUT"),
    Of::new(
        "start_timeout",
        Kind::time(),
        "for a program to show that it lives",
        plain!(Time, times.start),
    ),
    Of::new(
        "create_timeout",
        Kind::time().or(&["none"]),
        "to open a session, all its steps together; without it each step has its own limit",
        plain!(Time, policy.create, or "none" => None),
    )
    .elsewhere("S9", "MCP_SESSION_POOL_CREATE_TIMEOUT"),
    Of::new(
        "call_idle_timeout",
        Kind::time(),
        "how long a call may show no sign of life; progress starts it anew",
        plain!(Time, policy.patience.idle),
    )
    .row("S25"),
    Of::new(
        "call_timeout",
        Kind::time(),
        "how long a call may take in all",
        plain!(Time, policy.patience.total),
    )
    .row("S29"),
    Of::new(
        "probe_silence",
        Kind::time(),
        "how long a program may leave a probe unanswered before `initialize` is sent as well",
        plain!(Time, times.probe_silence),
    ),
    Of::new(
        "connection_idle",
        Kind::time(),
        "how long an unused connection is kept",
        plain!(Time, times.connection_idle),
    ),
    // Sizes
    Of::new(
        "max_reply",
        Kind::size(LEAST..=MOST),
        "the largest reply as one body",
        plain!(Size, sizes.reply),
    ),
    Of::new(
        "max_event",
        Kind::size(LEAST..=MOST),
        "the largest event of a stream",
        plain!(Size, sizes.event),
    ),
    Of::new(
        "max_line",
        Kind::size(LEAST..=MOST),
        "the longest line a program may print",
        plain!(Size, sizes.line),
    ),
    Of::new(
        "max_headers",
        Kind::size(LEAST..=1 << 20),
        "the largest header block of a reply",
        plain!(Size, sizes.headers),
    ),
];

const LEAST: usize = 1 << 10;
const MOST: usize = 1 << 30;
