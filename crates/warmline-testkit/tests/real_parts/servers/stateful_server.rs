//! A real server that keeps state, as the engine calls it.

use crate::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use warmline::{ServerHandle, ToolResult};

use crate::census::until;

/// The name of the server in every engine here.
pub(crate) const REAL: &str = "real";
/// Names a test's folder to all processes that it starts.
const MARK: &str = "WARMLINE_STAGE";

/// What a server does with state: a tool that says how many calls its session has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remembers {
    /// The counters of the SDKs.
    Count,
    /// The thoughts of the sequential-thinking server.
    Thoughts,
}

impl Remembers {
    /// Calls the tool once more.
    pub(crate) async fn step(self, server: &ServerHandle) -> u64 {
        let result = match self {
            Self::Count => server.call("bump", json!({})).await,
            Self::Thoughts => server.call("sequentialthinking", thought()).await,
        };
        self.seen(&result.unwrap().ok().unwrap())
    }

    /// What the tool says.
    pub(crate) fn seen(self, result: &ToolResult) -> u64 {
        match self {
            Self::Count => result.text().lines().last().unwrap().parse().unwrap(),
            Self::Thoughts => {
                let reply: Value = result.structured().unwrap();
                reply["thoughtHistoryLength"].as_u64().unwrap()
            },
        }
    }
}

fn thought() -> Value {
    json!({ "thought": "so far", "thoughtNumber": 1, "totalThoughts": 9, "nextThoughtNeeded": true })
}

/// A server as the engine knows it, and what of it can be seen from outside.
#[derive(Debug)]
pub(crate) struct Stateful {
    pub(crate) warm: Warmline,
    pub(crate) remembers: Remembers,
    /// Where a program's processes are known by; none for a server that runs by itself.
    folder: Option<TempDir>,
}

impl Stateful {
    /// A program that the engine starts.
    pub(crate) fn program(program: &Program, remembers: Remembers) -> Self {
        let folder = TempDir::new().unwrap();
        let place = folder.path().to_str().unwrap();
        let command = [program.program()].into_iter().chain(program.args.clone());
        let server = Server::stdio(REAL, command).env(MARK, place);
        Self {
            warm: Warmline::builder().server(server).build().unwrap(),
            remembers,
            folder: Some(folder),
        }
    }

    /// A server that runs already.
    pub(crate) fn running(running: &Running, remembers: Remembers) -> Self {
        let server = Server::http(REAL, &running.url);
        Self {
            warm: Warmline::builder().server(server).build().unwrap(),
            remembers,
            folder: None,
        }
    }

    /// One more step outside any run, or in the current one.
    pub(crate) async fn step(&self) -> u64 {
        self.remembers.step(&self.warm.server(REAL).unwrap()).await
    }

    /// One more step in this run.
    pub(crate) async fn step_in(&self, run: &Run) -> u64 {
        self.remembers.step(&run.server(REAL).unwrap()).await
    }

    /// The processes of the program that live: all that carry its mark in their environment.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let Some(folder) = &self.folder else {
            return Vec::new();
        };
        let mark = format!("{MARK}={}", folder.path().display());
        let ids = std::fs::read_dir("/proc").unwrap().flatten();
        let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let carries_it = |id: &i32| {
            let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            let mut variables = environment.split(|byte| *byte == 0);
            variables.any(|variable| variable == mark.as_bytes())
        };
        ids.filter(carries_it).filter_map(Pid::from_raw).collect()
    }

    /// Ends every process of the program as `kill -9` does, and waits until the engine has seen it:
    /// what is sent to a process that is about to end may have been read.
    pub(crate) async fn kill_processes(&self) {
        for process in self.processes() {
            kill_process(process, Signal::KILL).unwrap();
            let traces = format!("/proc/{}", process.as_raw_nonzero());
            let is_reaped = || !Path::new(&traces).exists();
            until("the process that was killed is no more", is_reaped).await;
        }
    }

    /// Waits until so many processes of the program live. A server that runs by itself has none.
    pub(crate) async fn has_processes(&self, wanted: usize) {
        if self.folder.is_some() {
            let what = format!("{wanted} processes of the server live");
            until(&what, || self.processes().len() == wanted).await;
        }
    }

    /// Closes the engine: no session and no process is left.
    pub(crate) async fn finish(self) {
        self.warm.close().await;
        let left = self.warm.snapshot();
        assert!(left.sessions.is_empty(), "{:?}", left.sessions);
        assert!(left.runs.is_empty(), "{:?}", left.runs);
        assert_eq!(self.processes(), Vec::new());
    }
}
