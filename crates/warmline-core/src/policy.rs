//! What an operator decided about a server's sessions and calls, with the defaults.

#![warn(missing_docs)]

use std::collections::BTreeMap;
use std::time::Duration;

use crate::era::Version;
use crate::exchange::Deadlines;
use crate::pool_key::Transport;
use crate::protocol::session_gone::SessionGoneMatching;
use crate::tool_names::matches_any_pattern;
use crate::word_enum::word_enum;

word_enum! {
    /// Whether a server needs sessions at all.
    pub enum SessionMode: default Auto {
        /// Found out once, by discovery and handshake, and remembered.
        Auto = "auto",
        /// Always: a handshake comes before the first call, and losing a session is an error.
        Always = "always" | "true",
        /// Never: no handshake is made and no session header sent.
        Never = "never" | "false",
    }
}

word_enum! {
    /// What one session is held for.
    pub enum SessionScope {
        /// One run of one identity.
        Run = "run",
        /// One identity.
        Identity = "identity",
        /// One call.
        Call = "call",
        /// Every identity with the same credential.
        Server = "server",
    }
}

word_enum! {
    /// How calls share a session that is held per identity.
    pub enum CallConcurrency {
        /// One call at a time on each session.
        OneByOne = "one-by-one",
        /// All calls on one session at the same time.
        SideBySide = "side-by-side",
    }
}

word_enum! {
    /// What happens to a call when the session's state was lost.
    pub enum StateLossPolicy {
        /// It is sent again, and its result begins with a sentence that says what is gone.
        Tell = "tell",
        /// It is sent again; the loss is in `_meta` and the events.
        Continue = "continue",
        /// It ends `refused` with `session-lost`; the next one works.
        Fail = "fail",
        /// As `Fail`, and the run ends.
        EndRun = "end_run",
    }
}

/// Declares a struct whose fields stand beside their defaults.
macro_rules! with_defaults {
    ($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])+ pub $field:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$doc])+ pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }
    };
}

with_defaults! {
    /// What an operator decided about one server.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Policy {
        /// Whether the server may be used at all.
        pub enabled: bool = true,
        /// Whether a gateway is of no use without the server, and does not start.
        pub required: bool = false,
        /// Whether it needs sessions.
        pub sessions: SessionMode = SessionMode::Auto,
        /// What one session is held for; none leaves it to what the server turns out to be.
        pub session_per: Option<SessionScope> = None,
        /// One call at a time on a run's session.
        pub serial: bool = false,
        /// How calls share a session held per identity; none leaves it to the server's kind.
        pub calls: Option<CallConcurrency> = None,
        /// Most sessions of one key.
        pub max_per_key: u32 = 10,
        /// Most sessions of this server; none leaves it to the totals.
        pub max_sessions: Option<u32> = None,
        /// Sessions opened ahead.
        pub spares: u32 = 0,
        /// Age at which a shared session is closed instead of put back; none leaves it to the default
        /// of its kind ([`Policy::age_limit`]), zero means no limit.
        pub max_age: Option<Duration> = None,
        /// How long a shared session may be idle; as `max_age`.
        pub max_idle: Option<Duration> = None,
        /// Age at which a run's session is replaced between two calls; none by default.
        pub run_max_age: Option<Duration> = None,
        /// How long a session may be idle before it is checked ahead of its next use.
        pub check_after: Duration = Duration::from_secs(60),
        /// How often the session of a live run is kept alive over HTTP; zero switches it off.
        pub keep_alive: Duration = Duration::from_secs(120),
        /// How often an HTTP server is looked at in the background.
        pub health_check_interval: Duration = Duration::from_secs(60),
        /// How long one check may take.
        pub health_check_timeout: Duration = Duration::from_secs(10),
        /// Whether health checks always make a request.
        pub explicit_health_rpc: bool = false,
        /// How long a caller waits for a free session.
        pub wait: Duration = Duration::from_secs(30),
        /// How long opening a session may take in all; none leaves it to the steps' own limits.
        pub create: Option<Duration> = None,
        /// What happens to a call whose session lost its state; none leaves it to `sessions`.
        pub on_state_loss: Option<StateLossPolicy> = None,
        /// Which forms of "session gone" are believed.
        pub dialects: SessionGoneMatching = SessionGoneMatching::Sure,
        /// How often one call may be sent again because its session was gone.
        pub heals_per_call: u32 = 1,
        /// When the breaker trips.
        pub breaker: BreakerPolicy = BreakerPolicy::default(),
        /// Whether `readOnlyHint` makes a tool repeatable.
        pub trust_read_only_hint: bool = true,
        /// Tools whose `idempotentHint` makes them repeatable.
        pub trust_idempotent_hint: Vec<String> = Vec::new(),
        /// Whether `resources/read` and `prompts/get` may have effects.
        pub reads_have_effects: bool = false,
        /// Whether the server deduplicates by `dev.warmline/callId`, so that every tool is repeatable.
        pub dedupe_by_call_id: bool = false,
        /// Tools that may be called; empty allows all. `*` stands for any characters.
        pub allow: Vec<String> = Vec::new(),
        /// Tools that may not be called, whatever is allowed.
        pub deny: Vec<String> = Vec::new(),
        /// Policies of single tools.
        pub tools: BTreeMap<String, ToolPolicy> = BTreeMap::new(),
        /// The one protocol version to offer; none offers the newest.
        pub version: Option<Version> = None,
        /// How long a call may take.
        pub deadlines: Deadlines = Deadlines::default(),
    }
}

/// The policy of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    /// Whether it may run twice; none leaves it to the tool's own hints.
    pub repeatable: Option<bool>,
    /// Whether its calls share sessions as the server's do; `Call` gives each its own.
    pub session_per: Option<SessionScope>,
    /// How long a call may show no sign of life.
    pub idle: Option<Duration>,
    /// How long a call may take in all.
    pub total: Option<Duration>,
}

with_defaults! {
    /// When openings stop being tried, and for how long.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BreakerPolicy {
        /// Failed openings in a row that trip it.
        pub threshold: u32 = 5,
        /// How long it stays tripped at first; doubles with each failed probe.
        pub reset: Duration = Duration::from_secs(10),
        /// The longest it stays tripped.
        pub longest: Duration = Duration::from_secs(60),
    }
}

impl Policy {
    /// Whether a tool may be listed and called, by its name at the server: nothing denies it, and
    /// something allows it, or there is no list of allowed ones.
    pub fn allows_tool(&self, name: &str) -> bool {
        !matches_any_pattern(&self.deny, name)
            && (self.allow.is_empty() || matches_any_pattern(&self.allow, name))
    }

    /// What happens to a call whose session lost its state.
    pub const fn state_loss_policy(&self) -> StateLossPolicy {
        match (self.on_state_loss, self.sessions) {
            (Some(said), _) => said,
            // An operator who requires sessions does not want calls on fresh state.
            (None, SessionMode::Always) => StateLossPolicy::Fail,
            (None, SessionMode::Auto | SessionMode::Never) => StateLossPolicy::Tell,
        }
    }

    /// Age at which a shared session of this kind is closed instead of put back.
    pub fn age_limit(&self, transport: Transport) -> Option<Duration> {
        // A process is expensive to start again, and its age says nothing of its health.
        let usual = match transport {
            Transport::Http | Transport::HttpSse => Some(DEFAULT_HTTP_MAX_AGE),
            Transport::Stdio => None,
        };
        limit_or_default(self.max_age, usual)
    }

    /// How long a shared session of this kind may be idle before it is closed.
    pub fn idle_limit(&self, transport: Transport) -> Option<Duration> {
        let usual = match transport {
            Transport::Http | Transport::HttpSse => None,
            Transport::Stdio => Some(DEFAULT_PROCESS_MAX_IDLE),
        };
        limit_or_default(self.max_idle, usual)
    }

    /// The same with settings that depend on each other brought together: a session is checked
    /// after the shorter of `check_after` and `health_check_interval`, and the breaker's longest
    /// pause is no shorter than its first.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        self.check_after = self.check_after.min(self.health_check_interval);
        self.breaker.longest = self.breaker.longest.max(self.breaker.reset);
        self
    }
}

/// The configured limit, where zero means none; or else the default.
fn limit_or_default(said: Option<Duration>, usual: Option<Duration>) -> Option<Duration> {
    match said {
        Some(said) => Some(said).filter(|said| !said.is_zero()),
        None => usual,
    }
}

const DEFAULT_HTTP_MAX_AGE: Duration = Duration::from_secs(300);
const DEFAULT_PROCESS_MAX_IDLE: Duration = Duration::from_secs(30 * 60);

with_defaults! {
    /// Limits of the whole engine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct EngineLimits {
        /// Whether sessions are kept at all; off means a session per call.
        pub pool_enabled: bool = true,
        /// HTTP sessions in all.
        pub sessions: u32 = 100_000,
        /// Child processes in all.
        pub processes: u32 = 64,
        /// HTTP sessions of one identity.
        pub sessions_per_identity: u32 = 512,
        /// Child processes of one identity.
        pub processes_per_identity: u32 = 16,
        /// Live runs of one identity.
        pub runs_per_identity: u32 = 256,
        /// Queued callers of one key.
        pub waiters_per_key: u32 = 1_024,
        /// Spares in all.
        pub max_spares: u32 = 16,
        /// How long a run may be idle before it ends.
        pub run_idle: Duration = Duration::from_secs(30 * 60),
        /// How long calls under way may go on when their run ends.
        pub grace: Duration = Duration::from_secs(5),
        /// How long closing everything may take.
        pub drain: Duration = Duration::from_secs(24),
        /// How long an empty key is remembered.
        pub evict_after: Duration = Duration::from_secs(600),
        /// How often the keeper looks around.
        pub sweep_every: Duration = Duration::from_secs(10),
        /// How long the store may take for one operation.
        pub store_timeout: Duration = Duration::from_secs(2),
        /// How long a tool list is taken from the cache.
        pub list_horizon: Duration = Duration::from_secs(300),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_rests_have_the_default_of_their_kind() {
        let usual = Policy::default();
        let secs = |secs| Some(Duration::from_secs(secs));
        assert_eq!(usual.age_limit(Transport::Http), secs(300));
        assert_eq!(usual.age_limit(Transport::Stdio), None);
        assert_eq!(usual.idle_limit(Transport::HttpSse), None);
        assert_eq!(usual.idle_limit(Transport::Stdio), secs(1800));
        let said = Policy {
            max_age: Some(Duration::ZERO),
            max_idle: secs(7),
            ..usual
        };
        assert_eq!(said.age_limit(Transport::Http), None, "zero is no limit");
        assert_eq!(said.idle_limit(Transport::Http), secs(7));
    }

    /// A96, S4, S5: the effective check interval is the smaller of the two.
    #[test]
    fn the_smaller_of_two_check_intervals_counts() {
        for (own, general, effective) in [(60, 60, 60), (600, 60, 60), (5, 60, 5), (60, 7, 7)] {
            let policy = Policy {
                check_after: Duration::from_secs(own),
                health_check_interval: Duration::from_secs(general),
                ..Policy::default()
            };
            let settled = policy.normalized();
            assert_eq!(settled.check_after.as_secs(), effective);
            assert_eq!(settled.health_check_interval.as_secs(), general);
        }
    }

    #[test]
    fn every_word_says_what_it_means() {
        for word in SessionMode::WORDS {
            assert_eq!(
                SessionMode::parse(word).map(SessionMode::as_str),
                Some(*word)
            );
        }
        assert_eq!(SessionMode::parse("true"), Some(SessionMode::Always));
        assert_eq!(SessionMode::parse("false"), Some(SessionMode::Never));
        assert_eq!(SessionMode::parse("yes"), None);
    }
}
