//! The census: what is alive in this process, before and after.
//!
//! Counted are the tasks of the runtime the census is taken on, the open file descriptors by kind,
//! and the processes below this one. A leak is what was not there at the start. Descriptors and
//! children belong to the whole process: tests that run side by side in one process see each
//! other's, so such a test runs alone in its process.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use crate::ledger::real_time_sleep;

/// What was alive at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Tasks of the current runtime; 0 outside of one.
    pub tasks: usize,
    /// Open file descriptors by kind: `socket`, `pipe`, `anon_inode:[eventfd]`, a path.
    pub files: BTreeMap<String, usize>,
    /// Processes below this one, dead but unburied ones too.
    pub descendants: BTreeSet<Process>,
}

/// A process below this one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name as the kernel knows it.
    pub name: String,
    /// Its state: `R`, `S`, `Z` and so on.
    pub state: char,
}

/// What is alive and was not there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaks(Vec<String>);

impl Census {
    /// Counts now.
    pub fn take() -> Self {
        let tasks = tokio::runtime::Handle::try_current()
            .map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        Self {
            tasks,
            files: open_files(),
            descendants: descendants(std::process::id()),
        }
    }

    /// What is there now and was not there at this census; empty when nothing is.
    pub fn leaks(&self) -> Vec<String> {
        let now = Self::take();
        let mut leaks = Vec::new();
        if now.tasks > self.tasks {
            leaks.push(format!("tasks: {} -> {}", self.tasks, now.tasks));
        }
        for (kind, count) in &now.files {
            let before = self.files.get(kind).copied().unwrap_or(0);
            if *count > before {
                leaks.push(format!("open {kind}: {before} -> {count}"));
            }
        }
        let known: BTreeSet<u32> = self.descendants.iter().map(|child| child.pid).collect();
        for child in now
            .descendants
            .iter()
            .filter(|child| !known.contains(&child.pid))
        {
            leaks.push(format!(
                "process {} {} ({})",
                child.pid, child.name, child.state
            ));
        }
        leaks
    }

    /// Waits, for at most `limit`, until nothing is left that was not there at this census.
    pub async fn wait_until_clean(&self, limit: Duration) -> Result<(), Leaks> {
        let end = Instant::now() + limit;
        loop {
            let leaks = self.leaks();
            if leaks.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Leaks(leaks));
            }
            real_time_sleep(Duration::from_millis(3)).await;
        }
    }
}

impl fmt::Display for Leaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "left over: {}", self.0.join("; "))
    }
}

impl std::error::Error for Leaks {}

fn open_files() -> BTreeMap<String, usize> {
    let mut files = BTreeMap::new();
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        return files;
    };
    for entry in folder.flatten() {
        // The descriptor of this very listing is gone when its link is read.
        let Ok(target) = std::fs::read_link(entry.path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        if target.starts_with("/proc/") {
            continue;
        }
        let kind = match target.split_once(":[") {
            Some((kind @ ("socket" | "pipe"), _)) => kind.to_owned(),
            _ => target,
        };
        *files.entry(kind).or_default() += 1;
    }
    files
}

/// Every process below this one, by the kernel's own list.
pub fn descendants(root: u32) -> BTreeSet<Process> {
    let all = processes();
    let mut below = BTreeSet::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (process, _) in all.iter().filter(|(_, of)| *of == parent) {
            if below.insert(process.clone()) {
                parents.push(process.pid);
            }
        }
    }
    below
}

/// Every process and the number of its parent.
fn processes() -> Vec<(Process, u32)> {
    let Ok(folder) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = folder
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read_process).collect()
}

fn read_process(pid: u32) -> Option<(Process, u32)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold any character.
    let (before, after) = line.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let mut rest = after.split_whitespace();
    let state = rest.next()?.chars().next()?;
    let parent = rest.next()?.parse().ok()?;
    Some((
        Process {
            pid,
            name: name.to_owned(),
            state,
        },
        parent,
    ))
}
