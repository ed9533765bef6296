//! Settings of one server: the values, and the table that fills them.

use std::collections::BTreeMap;
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_core::policy::{Policy, SessionMode, ToolPolicy};
use warmline_core::protocol::session_gone::SessionGoneMatching;

use super::{ConfigError, Setting, SettingOrigins, SettingsGroup};
use crate::settings_table;
use warmline_upstream::target::{ServerTarget, SizeLimits, Timeouts};

/// The settings of one server, each with its origin.
#[derive(Clone, Debug, Default)]
pub struct ServerSettings {
    /// Its sessions and calls.
    pub policy: Policy,
    /// Time limits for opening a session.
    pub timeouts: Timeouts,
    /// Size limits.
    pub size_limits: SizeLimits,
    /// The era to speak; none detects it.
    pub era: Option<Era>,
    pub(crate) origins: SettingOrigins,
}

settings_table! { ServerSettings;
    // Sessions
    "sessions" ["S19"]: words(SessionMode::WORDS).with_aliases(&[("true", "always"), ("false", "never")]) => policy.sessions,
        "whether the server needs sessions; `auto` finds out, once";
    "session_per" ["S27"]: words(&["auto", "run", "identity", "call", "server"]) => policy.session_per,
        "what one session is held for; `auto` goes by what the server turns out to be";
    "serial": switch() => policy.serial,
        "one call at a time on a run's session";
    "calls": words(&["auto", "one-by-one", "side-by-side"]) => policy.calls,
        "how calls share a session held per identity";
    "max_per_key" ["S2", "MCP_SESSION_POOL_MAX_PER_KEY"]: count(1..=10_000) => policy.max_per_key,
        "most sessions of one identity, where sessions are held per identity";
    "max_sessions": count(1..=1_000_000).with_words(&["none"]) => policy.max_sessions,
        "most sessions of this server; without it the totals count";
    "spares": count(0..=64) => policy.spares,
        "sessions opened ahead, for runs to come";
    "max_age" ["S3", "MCP_SESSION_POOL_TTL"]: time() => policy.max_age { "auto" => None, "none" => Some(Duration::ZERO) },
        "age at which a shared session is closed instead of put back; `auto`: 300s over HTTP, none for programs";
    "max_idle": time() => policy.max_idle { "auto" => None, "none" => Some(Duration::ZERO) },
        "how long a shared session may rest; `auto`: none over HTTP, 30min for programs";
    "run_max_age" ["S28"]: time().with_words(&["none"]) => policy.run_max_age,
        "age at which a run's session is replaced, between two calls; its state is lost then";
    "wait" ["S8", "MCP_SESSION_POOL_ACQUIRE_TIMEOUT"]: time() => policy.wait,
        "how long a caller waits for a free session";
    "enabled" ["S32"]: switch() => policy.enabled,
        "whether the server may be used; off, it has no tools";
    "required": switch() => policy.required,
        "whether `serve` needs it: does not start where it cannot be met, and is not ready while it fails";
    // Health
    "check_after" ["S4", "MCP_SESSION_POOL_HEALTH_CHECK_INTERVAL"]: time() => policy.check_after,
        "how long a session may rest before it is checked ahead of its next use; `health_check_interval` counts if it is shorter";
    "health_check_interval" ["S5", "HEALTH_CHECK_INTERVAL"]: time() => policy.health_check_interval,
        "how often an HTTP server is looked at in the background";
    "health_check_timeout" ["S6", "HEALTH_CHECK_TIMEOUT"]: time() => policy.health_check_timeout,
        "how long one check may take";
    "explicit_health_rpc" ["S13", "MCP_SESSION_POOL_EXPLICIT_HEALTH_RPC"]: switch() => policy.explicit_health_rpc,
        "whether every check makes a request, however fresh the session is";
    "keep_alive": time() => policy.keep_alive { "off" => Duration::ZERO },
        "how often the HTTP session of a live run is kept alive";
    "breaker.threshold" ["S10", "MCP_SESSION_POOL_CIRCUIT_BREAKER_THRESHOLD"]: count(1..=1_000) => policy.breaker.threshold,
        "failed openings in a row after which opening is not tried for a while";
    "breaker.reset" ["S11", "MCP_SESSION_POOL_CIRCUIT_BREAKER_RESET"]: time() => policy.breaker.reset,
        "how long that while is at first; it doubles with each failure";
    "breaker.longest": time() => policy.breaker.longest,
        "the longest it becomes; never shorter than `breaker.reset`";
    // Calls
    "on_state_loss": words(&["auto", "tell", "continue", "fail", "end_run"]) => policy.on_state_loss,
        "what becomes of a call whose session's state was lost; `auto`: `fail` with `sessions = \"always\"`, else `tell`";
    "heals_per_call" ["S30"]: count(0..=10) => policy.heals_per_call,
        "how often one call may be sent again because its session was gone";
    "dialects": words(SessionGoneMatching::WORDS) => policy.dialects,
        "which forms of \"session gone\" are believed; `wide` adds the doubtful ones";
    "read_only_hint": switch() => policy.trust_read_only_hint,
        "whether a tool that calls itself read-only may run twice";
    "idempotent_hint": texts() => policy.trust_idempotent_hint,
        "tools that may run twice because they call themselves idempotent";
    "reads_have_effects": switch() => policy.reads_have_effects,
        "whether reading a resource or a prompt may have effects";
    "dedupe": words(&[]) => policy.dedupe_by_call_id { "none" => false, "call_id" => true },
        "`call_id`: the server tells repeats by `dev.warmline/callId`, so every tool may be sent again";
    "allow": texts() => policy.allow,
        "the only tools that may be called; `*` stands for any characters; none allows all";
    "deny": texts() => policy.deny,
        "tools that may not be called, whatever is allowed";
    // Protocol
    "era": words(&["auto", "legacy", "modern"]) => era,
        "which era to speak; `auto` finds out";
    "protocol_version" ["S22"]: words(&["auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]) => policy.version,
        "the one version to offer; `auto` offers the newest";
    // Time limits
    "connect_timeout" ["S7", "MCP_SESSION_POOL_TRANSPORT_TIMEOUT"]: time() => timeouts.connect,
        "to connect, TLS included";
    "handshake_timeout" ["S7", "MCP_SESSION_POOL_TRANSPORT_TIMEOUT"]: time() => timeouts.handshake,
        "for one message of the handshake";
    "start_timeout": time() => timeouts.start,
        "for a program to show that it lives";
    "create_timeout" ["S9", "MCP_SESSION_POOL_CREATE_TIMEOUT"]: time().with_words(&["none"]) => policy.create,
        "to open a session, all its steps together; without it each step has its own limit";
    "call_idle_timeout" ["S25"]: time() => policy.deadlines.idle,
        "how long a call may show no sign of life; progress restarts it";
    "call_timeout" ["S29"]: time() => policy.deadlines.total,
        "how long a call may take in all";
    "probe_silence": time() => timeouts.probe_silence,
        "how long a program may leave a probe unanswered before `initialize` is sent as well";
    "connection_idle": time() => timeouts.connection_idle,
        "how long an unused connection is kept";
    // Sizes
    "max_reply": size(MIN_SIZE..=MAX_SIZE) => size_limits.reply,
        "the largest reply as one body";
    "max_event": size(MIN_SIZE..=MAX_SIZE) => size_limits.event,
        "the largest event of a stream";
    "max_line": size(MIN_SIZE..=MAX_SIZE) => size_limits.line,
        "the longest line a program may print";
    "max_headers": size(MIN_SIZE..=1 << 20) => size_limits.headers,
        "the largest header block of a reply";
}

const MIN_SIZE: usize = 1 << 10;
const MAX_SIZE: usize = 1 << 30;

impl ServerSettings {
    /// Brings settings together that depend on each other, and checks every value's range.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and what is possible.
    pub fn normalize(&mut self) -> Result<(), ConfigError> {
        self.check_ranges()?;
        self.check_tool_timeouts()?;
        let (check, longest) = (self.policy.check_after, self.policy.breaker.longest);
        self.policy = std::mem::take(&mut self.policy).normalized();
        // A value that changed takes the origin of the setting that changed it.
        if self.policy.check_after != check {
            let origin = self.origin("health_check_interval");
            self.origins.insert("check_after", origin);
        }
        if self.policy.breaker.longest != longest {
            let origin = self.origin("breaker.reset");
            self.origins.insert("breaker.longest", origin);
        }
        Ok(())
    }

    /// Tools have no rows in the table, so their time limits are checked here: zero is an error.
    fn check_tool_timeouts(&self) -> Result<(), ConfigError> {
        let is_zero = |tool: &ToolPolicy| [tool.idle, tool.total].contains(&Some(Duration::ZERO));
        let mut tools = self.policy.tools.iter();
        let Some((name, _)) = tools.find(|(_, tool)| is_zero(tool)) else {
            return Ok(());
        };
        let what = format!("calls of `{}` have no time", name.escape_debug());
        let error = ConfigError::new(Code::ConfigBadValue, what);
        Err(error.with_hint("leave the time out, or give some"))
    }

    /// Whether all values are equal, whatever their origins.
    pub fn has_same_values(&self, other: &Self) -> bool {
        (self.era, self.timeouts, self.size_limits)
            == (other.era, other.timeouts, other.size_limits)
            && self.policy == other.policy
    }

    /// The values that differ from the default, by the names of their variables.
    pub fn to_variables(&self) -> BTreeMap<String, String> {
        let usual = Self::default();
        let differs = |setting: &&Setting<Self>| (setting.get)(self) != (setting.get)(&usual);
        let settings = Self::TABLE.iter().filter(differs);
        settings
            .map(|setting| (setting.variable(), (setting.get)(self).to_string()))
            .collect()
    }

    /// Applies these settings to a server that is about to be opened.
    pub fn apply_to(&self, server: &mut ServerTarget) {
        (server.era, server.version) = (self.era, self.policy.version);
        (server.sessions, server.session_gone_matching) =
            (self.policy.sessions, self.policy.dialects);
        (server.timeouts, server.size_limits) = (self.timeouts, self.size_limits);
    }
}
