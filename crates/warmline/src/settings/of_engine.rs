//! Settings of the whole engine: the table, and the values it fills.

use std::path::PathBuf;

use warmline_core::policy::Ceilings;

use super::kind::{Kind, Value};
use super::{Origins, Setting, plain};

/// What is decided for all servers together, and where each value came from.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Limits of the whole engine.
    pub ceilings: Ceilings,
    /// Headers that split identities where a program hands in headers instead of a name.
    pub identity_headers: Vec<String>,
    /// The folder that session records are kept in; none keeps them in memory.
    pub store: Option<PathBuf>,
    /// Where values came from.
    pub(crate) origins: Origins,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            ceilings: Ceilings::default(),
            identity_headers: IDENTITY_HEADERS.map(str::to_owned).to_vec(),
            store: None,
            origins: Origins::default(),
        }
    }
}

/// What the identity of a caller is made of where nothing else is said.
const IDENTITY_HEADERS: [&str; 5] = [
    "authorization",
    "x-tenant-id",
    "x-user-id",
    "x-api-key",
    "cookie",
];

type Of = Setting<EngineSettings>;

/// Every setting of the engine, in the order of the reference page. The part before the dot is the
/// table it stands in.
pub(crate) const TABLE: &[Of] = &[
    Of::new(
        "pool.enabled",
        Kind::switch(),
        "whether sessions are kept at all; off opens one per call",
        plain!(Switch, ceilings.pool_enabled),
    )
    .elsewhere("S1", "MCP_SESSION_POOL_ENABLED"),
    Of::new(
        "pool.evict_after",
        Kind::time(),
        "how long a key without sessions is remembered",
        plain!(Time, ceilings.evict_after),
    )
    .elsewhere("S12", "MCP_SESSION_POOL_IDLE_EVICTION"),
    Of::new(
        "pool.sweep_every",
        Kind::time(),
        "how often sessions are looked through for age, rest and keep-alive",
        plain!(Time, ceilings.sweep_every),
    ),
    Of::new(
        "pool.list_horizon",
        Kind::time(),
        "how long a tool list is taken from the cache",
        plain!(Time, ceilings.list_horizon),
    ),
    Of::new(
        "limits.sessions",
        Kind::count(1..=10_000_000),
        "HTTP sessions in all",
        plain!(Count, ceilings.sessions),
    ),
    Of::new(
        "limits.processes",
        Kind::count(1..=100_000),
        "programs in all; fewer where the memory limit divided by 128 MiB is less",
        plain!(Count, ceilings.processes),
    ),
    Of::new(
        "limits.sessions_per_identity",
        Kind::count(1..=10_000_000),
        "HTTP sessions of one identity",
        plain!(Count, ceilings.sessions_per_identity),
    ),
    Of::new(
        "limits.processes_per_identity",
        Kind::count(1..=100_000),
        "programs of one identity",
        plain!(Count, ceilings.processes_per_identity),
    ),
    Of::new(
        "limits.runs_per_identity",
        Kind::count(1..=10_000_000),
        "live runs of one identity",
        plain!(Count, ceilings.runs_per_identity),
    ),
    Of::new(
        "limits.waiters_per_key",
        Kind::count(1..=1_000_000),
        "callers in line for sessions of one key",
        plain!(Count, ceilings.waiters_per_key),
    ),
    Of::new(
        "limits.max_spares",
        Kind::count(0..=10_000),
        "sessions opened ahead, in all",
        plain!(Count, ceilings.max_spares),
    ),
    Of::new(
        "limits.drain",
        Kind::time(),
        "how long closing everything may take",
        plain!(Time, ceilings.drain),
    ),
    Of::new(
        "runs.idle",
        Kind::time(),
        "how long a run may rest before it ends",
        plain!(Time, ceilings.run_idle),
    ),
    Of::new(
        "runs.grace",
        Kind::time(),
        "how long calls under way may go on when their run ends",
        plain!(Time, ceilings.grace),
    ),
    Of::new(
        "store.path",
        Kind::path().or(&["memory"]),
        "the folder that session records are kept in",
        (
            |of| match &of.store {
                Some(path) => Value::Path(path.clone()),
                None => Value::Word("memory"),
            },
            |of, value| {
                of.store = if let Value::Path(path) = value {
                    Some(path)
                } else {
                    None
                }
            },
        ),
    )
    .row("S31"),
    Of::new(
        "store.timeout",
        Kind::time(),
        "how long the store may take for one operation",
        plain!(Time, ceilings.store_timeout),
    ),
    Of::new(
        "identity.headers",
        Kind::texts(),
        "headers whose values tell callers apart, where a program hands in headers instead of a name",
        plain!(Texts, identity_headers),
    )
    .row("S15"),
];
