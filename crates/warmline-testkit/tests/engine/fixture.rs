//! The world of a story: a server that keeps a ledger, an engine, and the census at the end.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::RuntimeFlavor;
use warmline::{
    CallBuilder, Error, Run, Server, ServerHandle, ToolOutput, ToolResult, Warmline,
    WarmlineBuilder,
};
use warmline_core::delivery::Delivery;
use warmline_engine::metrics::{ServerSamples, Snapshot};
use warmline_testkit::{ExecutionPhase, FaultRule, LedgerServer, Personality, ServerControl};

use super::census::until;

/// The name of the server in every world.
pub(crate) const LEDGER: &str = "ledger";

/// A server that keeps a ledger, and an engine that calls it.
pub(crate) struct World {
    pub(crate) server: LedgerServer,
    pub(crate) warm: Warmline,
    told: ReportedOutcomes,
    /// Runs that end with the story.
    runs: Mutex<Vec<Run>>,
}

/// What callers were told, by the account that they paid for.
#[derive(Debug, Default)]
pub(crate) struct ReportedOutcomes(Mutex<BTreeMap<String, Vec<ReportedOutcome>>>);

/// What one call was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedOutcome {
    Result,
    Failed(Delivery),
}

impl World {
    /// A server of this kind, as it is declared without a word about it.
    pub(crate) fn new(personality: Personality) -> Self {
        Self::with(personality, |server| server)
    }

    /// The same, declared with more words.
    pub(crate) fn with(personality: Personality, declare: impl FnOnce(Server) -> Server) -> Self {
        Self::built(personality, declare, |builder| builder)
    }

    /// The same, in an engine with more words.
    pub(crate) fn built(
        personality: Personality,
        declare: impl FnOnce(Server) -> Server,
        build: impl FnOnce(WarmlineBuilder) -> WarmlineBuilder,
    ) -> Self {
        Self::around(LedgerServer::start(personality).unwrap(), declare, build)
    }

    /// The same, in an engine with more words about other things than this server.
    pub(crate) fn with_engine(
        personality: Personality,
        build: impl FnOnce(WarmlineBuilder) -> WarmlineBuilder,
    ) -> Self {
        Self::built(personality, |server| server, build)
    }

    /// The same around a server that runs already.
    pub(crate) fn around(
        server: LedgerServer,
        declare: impl FnOnce(Server) -> Server,
        build: impl FnOnce(WarmlineBuilder) -> WarmlineBuilder,
    ) -> Self {
        let declared = declare(Server::http(LEDGER, server.url()));
        let builder = build(Warmline::builder().server(declared));
        Self {
            server,
            warm: builder.build().unwrap(),
            told: ReportedOutcomes::default(),
            runs: Mutex::default(),
        }
    }

    /// Begins a run, which ends with the story.
    pub(crate) fn begin_run(&self) -> Run {
        let run = self.warm.begin_run();
        self.runs.lock().unwrap().push(run.clone());
        run
    }

    /// A run that the story ends, and the server as that calls it.
    pub(crate) fn new_run(&self) -> (Run, ServerHandle) {
        let run = self.warm.begin_run();
        let ledger = run.server(LEDGER).unwrap();
        (run, ledger)
    }

    /// The server, as a new run calls it, which ends with the story.
    pub(crate) fn in_run(&self) -> ServerHandle {
        let (run, ledger) = self.new_run();
        self.runs.lock().unwrap().push(run);
        ledger
    }

    /// The same, after one call of the counter: there is something to lose in its session.
    pub(crate) async fn in_counted_run(&self) -> ServerHandle {
        let ledger = self.in_run();
        count(&ledger).await;
        ledger
    }

    /// Declares another server.
    pub(crate) fn add_server(&self, server: Server) {
        self.warm.add_server(server).unwrap();
    }

    /// What the server is made to do.
    pub(crate) fn control(&self) -> ServerControl {
        self.server.control()
    }

    /// What the server does wrong from now on.
    pub(crate) fn inject(&self, rule: FaultRule) {
        self.server.inject(rule);
    }

    /// Waits until so many calls of a tool have begun at the server.
    pub(crate) async fn under_way(&self, tool: &str, calls: usize) {
        let book = self.server.ledger();
        let is_so = || book.started_executions(tool) == calls;
        until("the calls are under way", is_so).await;
    }

    /// How many messages of this method the server got.
    pub(crate) fn received(&self, method: &str) -> usize {
        self.server.ledger().messages_received(method)
    }

    /// Waits until the server has no session left.
    pub(crate) async fn no_session_left(&self) {
        let is_so = || self.server.counts().open_sessions == 0;
        until("the server has no session left", is_so).await;
    }

    /// The server, as this process calls it: in the current run, or outside.
    pub(crate) fn ledger(&self) -> ServerHandle {
        self.warm.server(LEDGER).unwrap()
    }

    /// Pays once for an account, and notes what the caller was told.
    pub(crate) async fn pay(
        &self,
        handle: &ServerHandle,
        account: &str,
    ) -> Result<ToolResult, Error> {
        let paid = payment(handle, account).await;
        self.told.note(account, &paid);
        paid
    }

    /// How often an account was paid for.
    pub(crate) fn payments(&self, account: &str) -> usize {
        payments(&self.server, account)
    }

    /// How many `initialize` the server got.
    pub(crate) fn handshakes(&self) -> u64 {
        self.server.counts().initializes
    }

    /// A number of the server, by its name and words.
    pub(crate) fn number(&self, name: &str, words: &[&str]) -> u64 {
        number(&self.warm.snapshot(), LEDGER, name, words)
    }

    /// The end of every story: everything is closed, and the census is taken.
    pub(crate) async fn finish(self) {
        self.finish_after_faults(0).await;
    }

    /// The same where so many calls failed by faults that were made on purpose.
    pub(crate) async fn finish_after_faults(self, faults: u64) {
        let runs = std::mem::take(&mut *self.runs.lock().unwrap());
        for run in runs {
            run.end().await;
        }
        self.warm.close().await;
        agrees_after_faults(&self.warm.snapshot(), faults);
        self.told.agree(&self.server);
        assert_eq!(self.server.violations(), Vec::<String>::new());
        self.no_session_left().await;
        let Self { server, warm, .. } = self;
        drop(warm);
        nothing_left().await;
        let is_so = || server.counts().open_connections == 0;
        until("no connection is left", is_so).await;
    }
}

impl ReportedOutcomes {
    /// Notes what a call for an account was told.
    pub(crate) fn note(&self, account: &str, paid: &Result<ToolResult, Error>) {
        let said = match paid {
            Ok(_) => ReportedOutcome::Result,
            Err(error) => ReportedOutcome::Failed(error.delivery()),
        };
        let mut told = self.0.lock().unwrap();
        told.entry(account.to_owned()).or_default().push(said);
    }

    /// The equation: what was done lies between what callers know was done and what they know may
    /// have been done.
    pub(crate) fn agree(&self, server: &LedgerServer) {
        self.agree_with(|account| payments(server, account));
    }

    /// The same with somebody else's account of what was done.
    pub(crate) fn agree_with(&self, done: impl Fn(&str) -> usize) {
        for (account, told) in self.0.lock().unwrap().iter() {
            let sure = told
                .iter()
                .filter(|said| **said == ReportedOutcome::Result)
                .count();
            let doubtful = [
                ReportedOutcome::Failed(Delivery::Unknown),
                ReportedOutcome::Failed(Delivery::Answered),
            ];
            let most = sure + told.iter().filter(|said| doubtful.contains(said)).count();
            let done = done(account);
            assert!(
                (sure..=most).contains(&done),
                "{account}: executed {done} times, and callers were told {told:?}"
            );
        }
    }
}

/// The engine's numbers agree with each other now that it is quiet.
pub(crate) fn agrees(snapshot: &Snapshot) {
    agrees_after_faults(snapshot, 0);
}

fn agrees_after_faults(snapshot: &Snapshot, faults: u64) {
    assert_eq!(snapshot.count("invariant_failed_total", &[]), faults);
    assert_eq!(snapshot.count("drift_total", &[]), 0);
    assert_eq!(snapshot.count("runs", &[]), 0, "runs are left");
    assert!(snapshot.runs.is_empty(), "{:?}", snapshot.runs);
    assert!(snapshot.sessions.is_empty(), "{:?}", snapshot.sessions);
    for server in &snapshot.servers {
        let name = &server.server;
        for level in ["calls_under_way", "waiters", "children"] {
            assert_eq!(server.count(level, &[]), 0, "{level} of {name}");
        }
        for state in ["opening", "idle", "active", "closing", "spare"] {
            let left = server.count("sessions", &[state]);
            assert_eq!(left, 0, "sessions of {name} that are {state}");
        }
        assert_eq!(server.count("isolation_violation_total", &[]), 0, "{name}");
        let opens = |how| server.count("opens_total", &[how]);
        let (came, ended) = (
            opens("opened") + opens("resumed"),
            sum(server, "closes_total"),
        );
        assert_eq!(came, ended, "sessions of {name} that came, and ended");
        let started = server.count("child_starts_total", &[]);
        let exited = sum(server, "child_exits_total");
        assert_eq!(started, exited, "processes of {name} that came, and ended");
    }
}

/// All that was counted under a name, whatever the words.
fn sum(server: &ServerSamples, name: &str) -> u64 {
    let of_name = server.samples.iter().filter(|one| one.name == name);
    of_name
        .map(|one| server.count(name, &one.label_values))
        .sum()
}

/// Waits until no task of this runtime is left.
///
/// The keeper of connections sleeps for half the time that they are kept: it is woken by letting
/// that time pass, where the clock is ours.
pub(crate) async fn nothing_left() {
    let runtime = tokio::runtime::Handle::current();
    let tasks = || runtime.metrics().num_alive_tasks();
    match runtime.runtime_flavor() {
        RuntimeFlavor::CurrentThread => {
            until("no task is left but keepers", || tasks() <= KEEPERS).await;
            pass(secs(30)).await;
            until("no task is left", || tasks() == 0).await;
        },
        RuntimeFlavor::MultiThread | _ => {
            until("no task is left but a keeper", || tasks() <= 1).await;
        },
    }
}

/// Most ways to servers in one story: each has a keeper of its connections.
const KEEPERS: usize = 10;

/// A number of a server in a snapshot.
pub(crate) fn number(snapshot: &Snapshot, server: &str, name: &str, words: &[&str]) -> u64 {
    let server = snapshot.server(server);
    server.map_or(0, |numbers| numbers.count(name, words))
}

/// How often an account was paid for.
pub(crate) fn payments(server: &LedgerServer, account: &str) -> usize {
    server.ledger().count(|entry| {
        entry.phase == ExecutionPhase::Commit
            && entry.arguments["account"].as_str() == Some(account)
    })
}

/// A payment: the plainest call that may not run twice.
pub(crate) fn payment(handle: &ServerHandle, account: &str) -> CallBuilder<ToolResult> {
    handle.call("pay", json!({ "amount": 1, "account": account }))
}

/// A call failed with this code, and this became of it.
#[track_caller]
pub(crate) fn failed_as(error: &Error, code: &str, delivery: Delivery) {
    let told = (error.code().as_str(), error.delivery());
    assert_eq!(told, (code, delivery), "{error:?}");
}

/// What a call said that was no error, of the tool neither.
pub(crate) async fn done(call: CallBuilder<ToolResult>) -> ToolOutput {
    call.await.unwrap().ok().unwrap()
}

/// One more call of the counter, which counts in its session.
pub(crate) async fn count(handle: &ServerHandle) -> i64 {
    counted(&handle.call("counter", json!({})).await.unwrap())
}

/// What the counter said.
pub(crate) fn counted(result: &ToolResult) -> i64 {
    let reply: Value = result.structured().unwrap();
    reply["count"].as_i64().unwrap()
}

/// Lets that much time pass at once, for everything that waits in this runtime.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Seconds, shortly.
pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// What names the inner half of a test to itself.
const INNER: &str = "WARMLINE_INNER_TEST";

/// Runs one test of a module once more, in a process with these variables: the environment of a
/// process is not changed while it runs. True where that is the process.
pub(crate) fn is_inner(module: &str, test: &str, variables: &[(&str, &[u8])]) -> bool {
    if std::env::var_os(INNER).is_some() {
        return true;
    }
    let (_, module) = module.split_once("::").unwrap();
    let inner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env(INNER, "1")
        .envs(
            variables
                .iter()
                .map(|(name, value)| (name, OsStr::from_bytes(value))),
        )
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inner.stdout);
    let holds = inner.status.success() && said.contains("1 passed");
    assert!(holds, "{inner:?}");
    false
}
