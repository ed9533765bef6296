//! Settings of the whole engine: the values, and the table that fills them.

use std::path::PathBuf;

use warmline_core::policy::EngineLimits;

use super::{ConfigError, SettingOrigin, SettingOrigins, SettingsGroup as _, memory_limit};
use crate::settings_table;

/// The settings that all servers share, each with its origin.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Limits of the whole engine.
    pub limits: EngineLimits,
    /// Headers that make up the identity of a caller where a program passes headers instead of a name.
    pub identity_headers: Vec<String>,
    /// The folder of session records; none keeps them in memory.
    pub store: Option<PathBuf>,
    pub(crate) origins: SettingOrigins,
}

impl Default for EngineSettings {
    fn default() -> Self {
        let headers = [
            "authorization",
            "x-tenant-id",
            "x-user-id",
            "x-api-key",
            "cookie",
        ];
        Self {
            limits: EngineLimits::default(),
            identity_headers: headers.map(str::to_owned).to_vec(),
            store: None,
            origins: SettingOrigins::new(),
        }
    }
}

settings_table! { EngineSettings;
    "pool.enabled" ["S1", "MCP_SESSION_POOL_ENABLED"]: switch() => limits.pool_enabled,
        "whether sessions are kept at all; off opens one per call";
    "pool.evict_after" ["S12", "MCP_SESSION_POOL_IDLE_EVICTION"]: time() => limits.evict_after,
        "how long a key without sessions is remembered";
    "pool.sweep_every": time() => limits.sweep_every,
        "how often sessions are looked through for age, rest and keep-alive";
    "pool.list_horizon": time() => limits.list_horizon,
        "how long a tool list is taken from the cache";
    "limits.sessions": count(1..=10_000_000) => limits.sessions,
        "HTTP sessions in all";
    "limits.processes": count(1..=100_000) => limits.processes,
        "programs in all; fewer where the memory limit divided by 128 MiB is less";
    "limits.sessions_per_identity": count(1..=10_000_000) => limits.sessions_per_identity,
        "HTTP sessions of one identity";
    "limits.processes_per_identity": count(1..=100_000) => limits.processes_per_identity,
        "programs of one identity";
    "limits.runs_per_identity": count(1..=10_000_000) => limits.runs_per_identity,
        "live runs of one identity";
    "limits.waiters_per_key": count(1..=1_000_000) => limits.waiters_per_key,
        "callers in line for sessions of one key";
    "limits.max_spares": count(0..=10_000) => limits.max_spares,
        "sessions opened ahead, in all";
    "limits.drain": time() => limits.drain,
        "how long closing everything may take";
    "runs.idle": time() => limits.run_idle,
        "how long a run may rest before it ends";
    "runs.grace": time() => limits.grace,
        "how long calls under way may go on when their run ends";
    "store.path" ["S31"]: path() => store { "memory" => None },
        "the folder that session records are kept in";
    "store.timeout": time() => limits.store_timeout,
        "how long the store may take for one operation";
    "identity.headers" ["S15"]: texts() => identity_headers,
        "headers whose values tell callers apart, where a program hands in headers instead of a name";
}

impl EngineSettings {
    /// Checks every value's range, and lowers defaults that exceed the memory of this machine.
    ///
    /// # Errors
    /// `config-bad-value` names the setting and what is possible.
    pub fn normalize(&mut self) -> Result<(), ConfigError> {
        self.check_ranges()?;
        self.cap_processes(memory_limit::max_processes());
        Ok(())
    }

    pub(super) fn cap_processes(&mut self, processes: Option<u32>) {
        const KEY: &str = "limits.processes";
        if let Some(fit) = processes
            && fit < self.limits.processes
            && self.origin(KEY) == SettingOrigin::Default
        {
            self.limits.processes = fit;
            self.origins.insert(KEY, SettingOrigin::MachineLimit);
        }
    }
}
