//! The world of a story: a server that keeps a ledger, an engine, and the census at the end.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::RuntimeFlavor;
use warmline::core::delivery::Delivery;
use warmline::metrics::{ServerNumbers, Snapshot};
use warmline::{Builder, Call, Error, Server, ServerHandle, ToolResult, Warmline};
use warmline_testkit::{LedgerServer, Personality, Phase};

use super::census::until;

/// The name of the server in every world.
pub(crate) const LEDGER: &str = "ledger";

/// A server that keeps a ledger, and an engine that calls it.
pub(crate) struct World {
    pub(crate) server: LedgerServer,
    pub(crate) warm: Warmline,
    told: Told,
}

/// What callers were told, by the account that they paid for.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeMap<String, Vec<Said>>>);

/// What one call was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
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
        build: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        Self::around(LedgerServer::start(personality).unwrap(), declare, build)
    }

    /// The same around a server that runs already.
    pub(crate) fn around(
        server: LedgerServer,
        declare: impl FnOnce(Server) -> Server,
        build: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let declared = declare(Server::http(LEDGER, server.url()));
        let builder = build(Warmline::builder().server(declared));
        Self {
            server,
            warm: builder.build().unwrap(),
            told: Told::default(),
        }
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
        self.warm.close().await;
        agrees_after_faults(&self.warm.snapshot(), faults);
        self.told.agree(&self.server);
        assert_eq!(self.server.violations(), Vec::<String>::new());
        let Self { server, warm, .. } = self;
        until("the server has no session left", || {
            server.counts().open_sessions == 0
        })
        .await;
        drop(warm);
        nothing_left().await;
        until("no connection is left", || {
            server.counts().open_connections == 0
        })
        .await;
    }
}

impl Told {
    /// Notes what a call for an account was told.
    pub(crate) fn note(&self, account: &str, paid: &Result<ToolResult, Error>) {
        let said = match paid {
            Ok(_) => Said::Result,
            Err(error) => Said::Failed(error.delivery()),
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
            let sure = told.iter().filter(|said| **said == Said::Result).count();
            let doubtful = [
                Said::Failed(Delivery::Unknown),
                Said::Failed(Delivery::Answered),
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
fn sum(server: &ServerNumbers, name: &str) -> u64 {
    let of_name = server.numbers.iter().filter(|one| one.name == name);
    of_name.map(|one| server.count(name, &one.words)).sum()
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
        entry.phase == Phase::Commit && entry.arguments["account"].as_str() == Some(account)
    })
}

/// A payment: the plainest call that may not run twice.
pub(crate) fn payment(handle: &ServerHandle, account: &str) -> Call<ToolResult> {
    handle.call("pay", json!({ "amount": 1, "account": account }))
}

/// One more call of the counter, which counts in its session.
pub(crate) async fn count(handle: &ServerHandle) -> i64 {
    counted(&handle.call("counter", json!({})).await.unwrap())
}

/// What the counter said.
pub(crate) fn counted(result: &ToolResult) -> i64 {
    let said: Value = result.structured().unwrap();
    said["count"].as_i64().unwrap()
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
