//! `warmline stdio`: an MCP server over stdio, in front of others.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;
use warmline::core::code::Code;
use warmline::metrics::SessionLine;
use warmline::upstream::Transport;
use warmline::{Run, Server};
use warmline_gateway::{Auth, LOCAL, Options, Pipe, settings};

use crate::args;
use crate::gate::stopping::{Cuts, Steps, close_at_once};
use crate::gate::{Kept, Source};
use crate::interrupt::Signals;
use crate::kept::{self, Holder, Holding, Note};
use crate::log;
use crate::problem::{Outcome, Problem};
use crate::report::Report;
use crate::target::state_folder;

/// Speaks with whoever started us, until it closes its end.
pub(super) async fn run(typed: &args::Stdio, report: &Report) -> Outcome<u8> {
    if let Some(run) = &typed.run {
        Run::check_name(run).map_err(|error| {
            Problem::usage("that cannot be the name of a run")
                .hint(error.hint().unwrap_or_default())
        })?;
    }
    let mut source = Source::of(&typed.served)?;
    let (wanted, cautions) = source.read()?;
    log::start_beside(&wanted.gateway);
    for caution in cautions {
        report.caution_aside(&caution);
    }
    if let Some(run) = &typed.run {
        let lost = wanted.servers.iter().filter(|server| ends_with_us(server));
        lost.for_each(|server| report.caution_aside(&not_kept(server.name(), run)));
    }
    let state = state_folder(typed.served.state_dir.as_deref())?;
    let steps = Steps::within(wanted.engine.ceilings.drain);
    let kept = Kept::open(&state, wanted)?;
    settings::check(&kept.settings, &kept.accesses)?;
    let options = Options {
        // A pipe leads to whoever started us: nobody else can speak here.
        auth: Auth::None,
        rules: settings::rules(&kept.settings, &kept.accesses)?,
        max_request: kept.settings.max_request,
        list_share: kept.settings.list_share,
        ..Options::default()
    };
    let mut pipe = Pipe::new(kept.warm.clone(), options).going_on_for(steps.for_calls);
    if let Some(audit) = settings::audit(&kept.settings) {
        pipe = pipe.audited(audit).map_err(|error| {
            Problem::new(Code::ConfigBadValue, "the audit cannot be written")
                .because(error.to_string())
                .hint("decide another `audit.file`, or none")
        })?;
    }
    if let [server] = kept.warm.servers().as_slice() {
        pipe = pipe.to(server);
    }
    if let Some(run) = &typed.run {
        pipe = pipe.in_run(run);
    }
    if report.hears_a_person() {
        report.caution_aside(&for_clients(&typed.served));
    }
    let left = Left {
        run: typed.run.as_deref(),
        config: typed.served.config.as_deref(),
        state: &state,
        source: &source,
        kept: &kept,
    };
    Ok(speak(pipe, &left, &steps).await)
}

/// What of a named run is left to the next client, or the next command.
pub(super) struct Left<'l> {
    pub(super) run: Option<&'l str>,
    pub(super) config: Option<&'l Path>,
    pub(super) state: &'l Path,
    pub(super) source: &'l Source,
    pub(super) kept: &'l Kept,
}

impl Left<'_> {
    /// Notes the sessions of the run for `ps` and `end`, while they are known. Where that fails,
    /// the run is kept all the same.
    pub(super) fn note_down(&self) {
        let (Some(run), warm) = (self.run, &self.kept.warm) else {
            return;
        };
        let sessions = warm.snapshot().sessions;
        let of_a_run = |line: &SessionLine| line.run.is_some() && line.transport == HTTP;
        let servers = sessions.iter().filter(|line| of_a_run(line));
        let servers: BTreeSet<&str> = servers.map(|line| &*line.server).collect();
        for server in servers {
            let holding = Holding {
                by: Holder::Pipe,
                run,
                server,
                who: &warm.identity(LOCAL),
                vault: warm.vault(),
                records: &self.kept.records,
            };
            let note = Note::of_served(&self.source.served(server), self.config, &holding);
            if let Ok(Some(note)) = note {
                kept::write_down(&note, self.state, warm.vault());
            }
        }
    }
}

/// What sessions are called that have a record.
const HTTP: &str = Transport::Http.word();

/// What a person is told who typed this: clients start it, and write to it.
fn for_clients(served: &args::Served) -> String {
    let mut words = vec!["stdio".to_owned()];
    words.extend(served.words.iter().cloned());
    let command = served.command.iter().map(|word| word.to_string_lossy());
    let dashes = command.len().min(1);
    words.extend(std::iter::repeat_n("--".to_owned(), dashes));
    words.extend(command.map(String::from));
    let name = served.words.first().filter(|word| !word.contains("://"));
    let name = name.map_or("warmline", String::as_str);
    let entry = json!({"mcpServers": {name: {"command": "warmline", "args": words}}});
    format!(
        "waiting for messages of an MCP client on stdin, which starts this by itself; put into its \
         file:\n  {entry}\nCtrl-D ends it; to try a server by hand: `warmline tools`, `warmline call`"
    )
}

/// A program that we start; one that is switched off never is.
fn ends_with_us(server: &Server) -> bool {
    server.is_a_program() && server.policy().enabled
}

/// Whoever names a run wants to find it again, and of a program there is nothing to be found.
fn not_kept(server: &str, run: &str) -> String {
    format!(
        "`{server}` is a program and ends with this client: run `{run}` keeps nothing of it. What \
         `warmline serve` starts goes on, for clients that come by URL: /runs/{run}/servers/{server}/mcp"
    )
}

/// Speaks until the client closes its end or somebody ends us. Every call has its answer before
/// that, also one that had to be cut. The number is the exit code.
async fn speak(pipe: Pipe, left: &Left<'_>, steps: &Steps) -> u8 {
    let warm = &left.kept.warm;
    let mut signals = Signals::hear();
    let mut hand = pipe.hand();
    let speaking = async {
        let speaking = Box::pin(pipe.serve(tokio::io::stdin(), tokio::io::stdout()));
        if let Err(error) = speaking.await {
            tracing::debug!(%error, "the client left in the middle of a word");
        }
    };
    let closing = async {
        let told = tokio::select! {
            () = hand.left() => None,
            signal = signals.heard() => Some(signal),
        };
        let cuts = Cuts::from_now(warm);
        if told.is_none() {
            // The client may tell us in both ways.
            tokio::select! {
                () = hand.over() => {},
                _ = signals.heard() => {},
            }
        }
        hand.stop();
        let orderly = async {
            hand.over().await;
            left.note_down();
            warm.close_now(steps.to_close).await;
        };
        tokio::select! {
            () = orderly => {},
            _ = signals.heard() => {
                left.note_down();
                close_at_once(warm).await;
            },
        }
        cuts
    };
    let ((), cuts) = tokio::join!(speaking, closing);
    cuts.told("ended", 0)
}
