//! The servers of the demo, and the engine that calls them.

use std::time::Duration;

use serde_json::json;
use warmline::core::code::Code;
use warmline::core::era::Era;
use warmline::events::{Event, Heard};
use warmline::{Error, Run, Server, ToolResult, Warmline};
use warmline_testkit::LedgerServer;
use warmline_testkit::personality::Personality;

use crate::clock;
use crate::problem::{Outcome, Problem};

/// A server over HTTP, one over stdio, and one over stdio with a spare.
pub(super) struct World {
    pub(super) warm: Warmline,
    pub(super) http: LedgerServer,
}

impl World {
    /// The server behind a URL.
    pub(super) const WEB: &str = "demo";
    /// This very program, started as a server over stdio.
    pub(super) const PROGRAM: &str = "program";
    /// The same, with one process ahead of its callers.
    pub(super) const SPARED: &str = "spared";

    pub(super) fn start() -> Outcome<Self> {
        let http = LedgerServer::start(Personality::legacy()).map_err(|error| {
            Problem::new(Code::CannotReach, "the demo server cannot listen")
                .because(error.to_string())
        })?;
        let program = std::env::current_exe().map_err(|error| bug(&error.to_string()))?;
        let program = program.to_string_lossy().into_owned();
        let words = [
            program.as_str(),
            "demo-server",
            "--stdio",
            "--era",
            "legacy",
        ];
        let web = Server::http(Self::WEB, http.url());
        let process = Server::stdio(Self::PROGRAM, words);
        let spared = Server::stdio(Self::SPARED, words).spares(1);
        let hurried = [web, process, spared]
            .map(|server| server.era(Era::Legacy).patience(PATIENCE, PATIENCE));
        let warm = Warmline::builder().servers(hurried).build();
        let warm = warm.map_err(|error| unanswered(&error))?;
        Ok(Self { warm, http })
    }

    pub(super) fn named(&self, run: &str) -> Outcome<Run> {
        self.warm.named(run).map_err(|error| unanswered(&error))
    }

    /// Waits until a process stands ready for whoever comes next.
    pub(super) async fn spare(&self) -> Outcome<()> {
        let mut events = self.warm.events();
        // The first run that uses a server shows that spares of it are wanted.
        let first = self.warm.begin();
        let server = first.server(Self::SPARED);
        let server = server.map_err(|error| unanswered(&error))?;
        let used = server.call("counter", json!({})).await;
        used.and_then(ToolResult::ok)
            .map_err(|error| unanswered(&error))?;
        let opened = async {
            while let Some(heard) = events.next().await {
                if matches!(heard, Heard::Event(Event::SpareOpened { .. })) {
                    return true;
                }
            }
            false
        };
        let opened = clock::timeout(PATIENCE, opened).await;
        first.end().await;
        match opened {
            Some(true) => Ok(()),
            Some(false) | None => Err(bug("no spare was opened")),
        }
    }

    pub(super) async fn close(self) {
        self.warm.close().await;
    }
}

/// A call of the demo that failed, which none should.
pub(super) fn unanswered(error: &Error) -> Problem {
    let why = error.why().map(|why| format!(": {why}"));
    bug(&format!("{error}{}", why.unwrap_or_default())).delivered(error.delivery())
}

pub(super) fn bug(why: &str) -> Problem {
    Problem::new(Code::Bug, "the demo does not get on with its own server").because(why)
}

/// More time no step needs.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
