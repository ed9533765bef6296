//! Policy: what an operator decided about a server's sessions and calls, with the defaults.
//!
//! Asked by: the engine, at every decision that people may want otherwise.  Told by: builder,
//! configuration file and environment; where a value came from is kept beside it in the shell.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::era::Version;
use crate::exchange::Patience;
use crate::key::Transport;
use crate::protocol::gone::Breadth;

/// Whether a server needs sessions at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Sessions {
    /// Found out once, by discovery and handshake, and remembered.
    #[default]
    Auto,
    /// Always: a handshake comes before the first call, and losing one is worth an error.
    Always,
    /// Never: no handshake is made and no session header sent.
    Never,
}

/// What one session is held for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionPer {
    /// One run of one identity.
    Run,
    /// One identity.
    Identity,
    /// One call.
    Call,
    /// Everybody with the same credential.
    Server,
}

/// How calls share a session that is held per identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Calls {
    /// One call at a time on each session.
    OneByOne,
    /// All calls on one session at the same time.
    SideBySide,
}

/// What happens to a call when the session's state was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnStateLoss {
    /// It is sent again, and its result begins with a sentence that says what is gone.
    Tell,
    /// It is sent again; the loss stands in `_meta` and the events.
    Continue,
    /// It ends `refused` with `session-lost`; the next one works.
    Fail,
    /// As `Fail`, and the run ends.
    EndRun,
}

/// Words of settings, both ways.
macro_rules! words {
    ($type:ty: $($variant:ident = $word:literal $(| $also:literal)*),+ $(,)?) => {
        impl $type {
            /// Every word it can be said by, the usual one of each first.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word it goes by.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word),+
                }
            }

            /// What a word means; none for a word that means nothing here.
            pub fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word $(| $also)* => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

words!(Sessions: Auto = "auto", Always = "always" | "true", Never = "never" | "false");
words!(SessionPer: Run = "run", Identity = "identity", Call = "call", Server = "server");
words!(Calls: OneByOne = "one-by-one", SideBySide = "side-by-side");
words!(OnStateLoss: Tell = "tell", Continue = "continue", Fail = "fail", EndRun = "end_run");

/// What an operator decided about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the operator with a name of its own, and none depends on another"
)]
pub struct Policy {
    /// Whether the server may be used at all.
    pub enabled: bool,
    /// Whether a gateway is of no use without the server, and does not start.
    pub required: bool,
    /// Whether it needs sessions.
    pub sessions: Sessions,
    /// What one session is held for; none leaves it to what the server turns out to be.
    pub session_per: Option<SessionPer>,
    /// One call at a time on a run's session.
    pub serial: bool,
    /// How calls share a session held per identity; none leaves it to the server's kind.
    pub calls: Option<Calls>,
    /// Most sessions of one key.
    pub max_per_key: u32,
    /// Most sessions of this server; none leaves it to the totals.
    pub max_sessions: Option<u32>,
    /// Sessions opened ahead.
    pub spares: u32,
    /// Age at which a shared session is closed instead of put back; none leaves it to the default
    /// of its kind ([`Policy::age_limit`]), zero means no limit.
    pub max_age: Option<Duration>,
    /// How long a shared session may rest; as `max_age`.
    pub max_idle: Option<Duration>,
    /// Age at which a run's session is replaced between two calls; none by default.
    pub run_max_age: Option<Duration>,
    /// How long a session may rest before it is checked ahead of its next use.
    pub check_after: Duration,
    /// How often the session of a live run is kept alive over HTTP; zero switches it off.
    pub keep_alive: Duration,
    /// How often an HTTP server is looked at in the background.
    pub health_check_interval: Duration,
    /// How long one check may take.
    pub health_check_timeout: Duration,
    /// Whether health checks always make a request.
    pub explicit_health_rpc: bool,
    /// How long a caller waits for a free session.
    pub wait: Duration,
    /// How long opening a session may take in all; none leaves it to the steps' own limits.
    pub create: Option<Duration>,
    /// What becomes of a call whose session's state was lost; none leaves it to `sessions`.
    pub on_state_loss: Option<OnStateLoss>,
    /// Which forms of "session gone" are believed.
    pub dialects: Breadth,
    /// How often one call may be sent again because its session was gone.
    pub heals_per_call: u32,
    /// When the breaker trips.
    pub breaker: BreakerPolicy,
    /// Whether `readOnlyHint` makes a tool repeatable.
    pub trust_read_only_hint: bool,
    /// Tools whose `idempotentHint` makes them repeatable.
    pub trust_idempotent_hint: Vec<String>,
    /// Whether `resources/read` and `prompts/get` may have effects.
    pub reads_have_effects: bool,
    /// Whether the server tells repeats by `dev.warmline/callId`, so that every tool is repeatable.
    pub dedupe_by_call_id: bool,
    /// Tools that may be called; empty allows all. `*` stands for any characters.
    pub allow: Vec<String>,
    /// Tools that may not be called, whatever is allowed.
    pub deny: Vec<String>,
    /// What is decided for single tools.
    pub tools: BTreeMap<String, ToolPolicy>,
    /// The one protocol version to offer; none offers the newest.
    pub version: Option<Version>,
    /// How long a call may take.
    pub patience: Patience,
}

/// What is decided for one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolPolicy {
    /// Whether it may run twice; none leaves it to the tool's own hints.
    pub repeatable: Option<bool>,
    /// Whether its calls share sessions as the server's do; `Call` gives each its own.
    pub session_per: Option<SessionPer>,
    /// How long a call may show no sign of life.
    pub idle: Option<Duration>,
    /// How long a call may take in all.
    pub total: Option<Duration>,
}

/// When openings stop being tried, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Failed openings in a row that trip it.
    pub threshold: u32,
    /// How long it stays tripped at first; doubles with each failed probe.
    pub reset: Duration,
    /// The longest it stays tripped.
    pub longest: Duration,
}

impl Default for BreakerPolicy {
    fn default() -> Self {
        Self {
            threshold: 5,
            reset: Duration::from_secs(10),
            longest: Duration::from_secs(60),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            enabled: true,
            required: false,
            sessions: Sessions::Auto,
            session_per: None,
            serial: false,
            calls: None,
            max_per_key: 10,
            max_sessions: None,
            spares: 0,
            max_age: None,
            max_idle: None,
            run_max_age: None,
            check_after: Duration::from_secs(60),
            keep_alive: Duration::from_secs(120),
            health_check_interval: Duration::from_secs(60),
            health_check_timeout: Duration::from_secs(10),
            explicit_health_rpc: false,
            wait: Duration::from_secs(30),
            create: None,
            on_state_loss: None,
            dialects: Breadth::Sure,
            heals_per_call: 1,
            breaker: BreakerPolicy::default(),
            trust_read_only_hint: true,
            trust_idempotent_hint: Vec::new(),
            reads_have_effects: false,
            dedupe_by_call_id: false,
            allow: Vec::new(),
            deny: Vec::new(),
            tools: BTreeMap::new(),
            version: None,
            patience: Patience::default(),
        }
    }
}

impl Policy {
    /// What becomes of a call whose session's state was lost.
    pub const fn state_loss(&self) -> OnStateLoss {
        match (self.on_state_loss, self.sessions) {
            (Some(said), _) => said,
            // Whoever says that sessions are always needed does not want calls on fresh state.
            (None, Sessions::Always) => OnStateLoss::Fail,
            (None, Sessions::Auto | Sessions::Never) => OnStateLoss::Tell,
        }
    }

    /// Age at which a shared session of this kind is closed instead of put back.
    pub fn age_limit(&self, transport: Transport) -> Option<Duration> {
        // A process is expensive to start again, and its age says nothing of its health.
        let usual = match transport {
            Transport::Http | Transport::HttpSse => Some(SHARED_HTTP_AGE),
            Transport::Stdio => None,
        };
        limit(self.max_age, usual)
    }

    /// How long a shared session of this kind may rest before it is closed.
    pub fn idle_limit(&self, transport: Transport) -> Option<Duration> {
        let usual = match transport {
            Transport::Http | Transport::HttpSse => None,
            Transport::Stdio => Some(SHARED_PROCESS_IDLE),
        };
        limit(self.max_idle, usual)
    }

    /// The same with settings that depend on each other brought together: a session is checked
    /// after the shorter of `check_after` and `health_check_interval`, and the breaker's longest
    /// pause is no shorter than its first.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.check_after = self.check_after.min(self.health_check_interval);
        self.breaker.longest = self.breaker.longest.max(self.breaker.reset);
        self
    }
}

/// What was said, where zero means no limit; or else what is usual.
fn limit(said: Option<Duration>, usual: Option<Duration>) -> Option<Duration> {
    match said {
        Some(said) => Some(said).filter(|said| !said.is_zero()),
        None => usual,
    }
}

const SHARED_HTTP_AGE: Duration = Duration::from_secs(300);
const SHARED_PROCESS_IDLE: Duration = Duration::from_secs(30 * 60);

/// Limits of the whole engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceilings {
    /// Whether sessions are kept at all; off means a session per call.
    pub pool_enabled: bool,
    /// HTTP sessions in all.
    pub sessions: u32,
    /// Child processes in all.
    pub processes: u32,
    /// HTTP sessions of one identity.
    pub sessions_per_identity: u32,
    /// Child processes of one identity.
    pub processes_per_identity: u32,
    /// Live runs of one identity.
    pub runs_per_identity: u32,
    /// Callers in line for one key.
    pub waiters_per_key: u32,
    /// Spares in all.
    pub max_spares: u32,
    /// How long a run may rest before it ends.
    pub run_idle: Duration,
    /// How long calls under way may go on when their run ends.
    pub grace: Duration,
    /// How long closing everything may take.
    pub drain: Duration,
    /// How long an empty key is remembered.
    pub evict_after: Duration,
    /// How often the keeper looks around.
    pub sweep_every: Duration,
    /// How long the store may take for one operation.
    pub store_timeout: Duration,
    /// How long a tool list is taken from the cache.
    pub list_horizon: Duration,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self {
            pool_enabled: true,
            sessions: 100_000,
            processes: 64,
            sessions_per_identity: 512,
            processes_per_identity: 16,
            runs_per_identity: 256,
            waiters_per_key: 1_024,
            max_spares: 16,
            run_idle: Duration::from_secs(30 * 60),
            grace: Duration::from_secs(5),
            drain: Duration::from_secs(24),
            evict_after: Duration::from_secs(600),
            sweep_every: Duration::from_secs(10),
            store_timeout: Duration::from_secs(2),
            list_horizon: Duration::from_secs(300),
        }
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
            let settled = policy.settled();
            assert_eq!(settled.check_after.as_secs(), effective);
            assert_eq!(settled.health_check_interval.as_secs(), general);
        }
    }

    #[test]
    fn every_word_says_what_it_means() {
        for word in Sessions::WORDS {
            assert_eq!(Sessions::parse(word).map(Sessions::word), Some(*word));
        }
        assert_eq!(Sessions::parse("true"), Some(Sessions::Always));
        assert_eq!(Sessions::parse("false"), Some(Sessions::Never));
        assert_eq!(Sessions::parse("yes"), None);
    }
}
