//! Settings of the whole engine: the values, the table that fills them, and the default of
//! `limits.processes` from the memory of this machine.

use std::path::PathBuf;

use warmline_core::policy::EngineLimits;

use super::{ConfigError, SettingOrigin, SettingOrigins, SettingsGroup as _};
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
        self.cap_processes(max_processes());
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

/// The number of programs that fit into the memory of this process; none if it is unknown.
fn max_processes() -> Option<u32> {
    let read = |file: &str| std::fs::read_to_string(file).ok();
    memory_limit(&read).map(processes_for_memory)
}

/// The smallest of the limits on this process: of its control groups, and of the machine itself.
fn memory_limit(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let of_groups = groups
        .lines()
        .flat_map(cgroup_limit_files)
        .filter_map(|file| read(&file)?.trim().parse().ok());
    let of_machine = read("/proc/meminfo").and_then(|text| parse_mem_total(&text));
    of_groups.chain(of_machine).min()
}

/// The files that may hold the limit of a control group and of those around it.
fn cgroup_limit_files(group: &str) -> Vec<String> {
    let mut parts = group.splitn(3, ':');
    let (_, controllers, path) = (parts.next(), parts.next(), parts.next().unwrap_or("/"));
    let (root, name) = match controllers {
        Some("") => ("/sys/fs/cgroup", "memory.max"),
        Some(all) if all.split(',').any(|one| one == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        },
        Some(_) | None => return Vec::new(),
    };
    let mut path = path.trim_end_matches('/');
    let mut files = Vec::new();
    loop {
        files.push(format!("{root}{path}/{name}"));
        match path.rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return files,
        }
    }
}

fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let mut lines = meminfo.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The number of programs that fit into some memory; at least one.
fn processes_for_memory(bytes: u64) -> u32 {
    u32::try_from(bytes / BYTES_PER_PROCESS)
        .unwrap_or(u32::MAX)
        .max(1)
}

/// The estimate for one program. Real ones take 60 to 200 MiB.
const BYTES_PER_PROCESS: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_program_fits_into_any_memory() {
        let table = [
            (0, 1),
            (1, 1),
            (256 << 20, 2),
            (8 << 30, 64),
            (u64::MAX, u32::MAX),
        ];
        for (bytes, fit) in table {
            assert_eq!(processes_for_memory(bytes), fit);
        }
    }

    /// Names of files with their texts.
    type Files = &'static [(&'static str, &'static str)];

    #[test]
    fn the_smallest_limit_around_this_process_counts() {
        const MACHINE: (&str, &str) = ("/proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\n");
        const GROUP: (&str, &str) = ("/proc/self/cgroup", "0::/a/b\n");
        const OLDER: (&str, &str) = ("/proc/self/cgroup", "3:cpu:/x\n4:memory,hugetlb:/x\n");
        #[rustfmt::skip]
        let table: [(Files, Option<u64>); 7] = [
            (&[],                                                                      None),
            (&[MACHINE],                                                               Some(8 << 30)),
            (&[MACHINE, GROUP, ("/sys/fs/cgroup/a/b/memory.max", "max\n")],            Some(8 << 30)),
            (&[MACHINE, GROUP, ("/sys/fs/cgroup/a/memory.max", "1073741824\n")],       Some(1 << 30)),
            (&[MACHINE, GROUP, ("/sys/fs/cgroup/memory.max", "5\n")],                  Some(5)),
            (&[MACHINE, OLDER, ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "7")], Some(7)),
            (&[("/proc/meminfo", "nonsense"), ("/proc/self/cgroup", "::::")],          None),
        ];
        for (files, bytes) in table {
            let read = |file: &str| {
                let found = files.iter().find(|(name, _)| *name == file);
                found.map(|(_, text)| (*text).to_owned())
            };
            assert_eq!(memory_limit(&read), bytes, "{files:?}");
        }
    }
}
