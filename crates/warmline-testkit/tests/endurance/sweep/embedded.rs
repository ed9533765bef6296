//! The engine that people embed, dropped half-way: every future of its public face, in every way
//! a program can leave one.
//!
//! An act is one such future. It is cut at each of its points, by dropping it, by aborting the
//! task that runs it and by a panic beside it. Then all is as it was, and the next call of the
//! same run gets its answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use warmline::{Run, Server, ServerHandle, SessionStore, ToolResult, Warmline};
use warmline_testkit::sweep::{CancelPoint, DropTiming, TaskTermination, drop_at, end_task_at};
use warmline_testkit::{Census, LedgerServer, Personality};
use warmline_upstream::{Timeouts, TransportConfig};

use crate::census::until;
use crate::stdio_program::Program;

mod calls;
mod first_call;
mod runs;
mod stores;

/// The name of the server in every engine here.
pub(crate) const SCENE: &str = "scene";

/// How soon all must be as it was.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);
/// More points than any act here has.
const MOST_POINTS: usize = 400;

/// A server and how it is declared; what was alive before there was an engine.
pub(crate) struct Stage {
    behind: Behind,
    pub(crate) declared: Server,
    store: Option<Arc<dyn SessionStore>>,
    quiet: Census,
}

/// A stage that is built when its turn comes.
pub(crate) type Starts = fn() -> Stage;

enum Behind {
    Url(LedgerServer),
    Pipes(Program),
}

/// What an act works with. Dropping it ends nothing.
#[derive(Clone)]
pub(crate) struct Stand {
    pub(crate) warm: Warmline,
    pub(crate) run: Run,
    pub(crate) ledger: ServerHandle,
    /// The server again, for those who call it without a declaration.
    pub(crate) declared: Server,
}

pub(crate) type Acting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A future of the public face that must succeed when it is left alone.
pub(crate) type Act = fn(Stand) -> Acting;

/// What is done before each time an act is played.
pub(crate) type Prepare = for<'a> fn(&'a Stage, &'a Stand) -> Preparing<'a>;
pub(crate) type Preparing<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Nothing is to be prepared.
pub(crate) fn nothing<'a>(_: &'a Stage, _: &'a Stand) -> Preparing<'a> {
    Box::pin(async {})
}

/// How an act is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Dropped(DropTiming),
    Ended(TaskTermination),
}

const CUTS: [Cut; 4] = [
    Cut::Dropped(DropTiming::AfterPoll),
    Cut::Dropped(DropTiming::OnWake),
    Cut::Ended(TaskTermination::Abort),
    Cut::Ended(TaskTermination::Panic),
];

/// What must work after an act was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Afterwards {
    /// The next call of the same run.
    SameRun,
    /// A call of another run: the act ends the one it works with.
    AnotherRun,
    /// Closing the engine: the act closes it.
    Closing,
}

impl Stage {
    /// A server behind a URL. Idle connections end at once, so that the census comes out even.
    pub(crate) fn http(personality: Personality) -> Self {
        let ledger = LedgerServer::start(personality).unwrap();
        let declared = Server::http(SCENE, ledger.url()).times(Timeouts {
            connection_idle: Duration::from_millis(4),
            ..Timeouts::default()
        });
        Self::of(declared, Behind::Url(ledger))
    }

    /// A server that is a child.
    pub(crate) fn stdio(args: &[&str]) -> Self {
        let program = Program::ledger(args);
        let TransportConfig::Stdio(reach) = program.server().transport else {
            panic!("a program is started, not reached");
        };
        let words = std::iter::once(reach.program).chain(reach.args);
        let declared = Server::stdio(SCENE, words);
        let with_mark = |server: Server, (name, value)| server.env(name, value);
        let declared = reach.env.into_iter().fold(declared, with_mark);
        Self::of(declared, Behind::Pipes(program))
    }

    fn of(declared: Server, behind: Behind) -> Self {
        Self {
            declared,
            behind,
            store: None,
            quiet: Census::take(),
        }
    }

    /// The same, declared with more words.
    pub(crate) fn declare(mut self, declare: impl FnOnce(Server) -> Server) -> Self {
        self.declared = declare(self.declared);
        self
    }

    /// The same, in engines that keep records.
    pub(crate) fn stored(mut self, store: impl SessionStore + 'static) -> Self {
        self.store = Some(Arc::new(store));
        self
    }

    /// The server behind the URL.
    pub(crate) fn ledger(&self) -> &LedgerServer {
        match &self.behind {
            Behind::Url(ledger) => ledger,
            Behind::Pipes(_) => panic!("it is a child"),
        }
    }

    fn engine(&self) -> Warmline {
        let builder = Warmline::builder().server(self.declared.clone());
        let builder = match &self.store {
            Some(store) => builder.store(Arc::clone(store)),
            None => builder,
        };
        builder.build().unwrap()
    }

    fn stand(&self, warm: &Warmline, run: &Run) -> Stand {
        Stand {
            warm: warm.clone(),
            run: run.clone(),
            ledger: run.server(SCENE).unwrap(),
            declared: self.declared.clone(),
        }
    }

    /// Cuts an act at each of its points, in an engine whose run has its session already.
    pub(crate) async fn held(&self, story: &str, prepare: Prepare, act: Act) {
        let warm = self.engine();
        let run = warm.begin_run();
        let stand = self.stand(&warm, &run);
        echoes(&stand.ledger).await;
        let rest = self.rests().await;
        let mut points = 0;
        'acts: for polls in 0..MOST_POINTS {
            for cut in cuts(polls) {
                prepare(self, &stand).await;
                if played(polls, cut, act(stand.clone())).await {
                    points = polls;
                    break 'acts;
                }
                let when = format!("{story}, {cut:?} after {polls} polls");
                settles(&rest, &when).await;
                let call = tokio::time::timeout(SETTLES_WITHIN, echoes(&stand.ledger));
                assert!(call.await.is_ok(), "{when}: the next call hangs");
                self.is_quiet(&warm, &when).await;
            }
        }
        assert!(points > 0, "{story}: it never waits, or never ends");
        drop(stand);
        run.end().await;
        self.ends(warm, story).await;
    }

    /// Cuts an act at each of its points, each time in an engine of its own.
    pub(crate) async fn fresh(&self, story: &str, prepare: Prepare, act: Act, then: Afterwards) {
        for polls in 0..MOST_POINTS {
            for cut in cuts(polls) {
                let warm = self.engine();
                let run = warm.begin_run();
                let stand = self.stand(&warm, &run);
                prepare(self, &stand).await;
                let done = played(polls, cut, act(stand.clone())).await;
                let when = format!("{story}, {cut:?} after {polls} polls");
                let works = async {
                    match then {
                        Afterwards::SameRun => echoes(&stand.ledger).await,
                        Afterwards::AnotherRun => {
                            let another = warm.begin_run();
                            echoes(&another.server(SCENE).unwrap()).await;
                            another.end().await;
                        },
                        Afterwards::Closing => {},
                    }
                    drop(stand);
                    run.end().await;
                };
                let works = tokio::time::timeout(SETTLES_WITHIN, works);
                assert!(works.await.is_ok(), "{when}: what comes next hangs");
                self.ends(warm, &when).await;
                if done {
                    assert!(polls > 0, "{story}: it never waits");
                    return;
                }
            }
        }
        panic!("{story}: it never ends");
    }

    /// What is alive while an engine with one session rests.
    async fn rests(&self) -> Census {
        if let Behind::Url(ledger) = &self.behind {
            // The keeper of the engine.
            let mut rest = self.quiet.clone();
            rest.tasks += 1;
            let open = || ledger.counts().open_connections;
            until("the connections rest", || open() == 0).await;
            settles(&rest, "the session rests").await;
            return rest;
        }
        let tasks = || Census::take().tasks;
        let (mut last, mut same) = (0, 0);
        until("nothing changes any more", || {
            let now = tasks();
            same = if now == last { same + 1 } else { 0 };
            last = now;
            same > 5
        })
        .await;
        Census::take()
    }

    /// The engine counts nothing that is not there.
    async fn is_quiet(&self, warm: &Warmline, when: &str) {
        let snapshot = warm.snapshot();
        let server = snapshot.server(SCENE);
        for level in ["calls_under_way", "waiters"] {
            let left = server.map_or(0, |numbers| numbers.count(level, &[]));
            assert_eq!(left, 0, "{when}: {level}");
        }
        assert_eq!(snapshot.count("invariant_failed_total", &[]), 0, "{when}");
        assert_eq!(snapshot.count("runs", &[]), 1, "{when}: runs");
        if let Behind::Url(ledger) = &self.behind {
            // The run's, and one that was opened for somebody who left: the next one takes it.
            let sessions = || ledger.counts().open_sessions;
            until("the server has few sessions", || sessions() <= 2).await;
        }
    }

    /// The engine is closed: nothing is left, and the server saw nothing that must not be.
    async fn ends(&self, warm: Warmline, when: &str) {
        let closing = tokio::time::timeout(SETTLES_WITHIN, warm.close());
        assert!(closing.await.is_ok(), "{when}: closing hangs");
        let snapshot = warm.snapshot();
        assert!(snapshot.sessions.is_empty(), "{when}: {snapshot:?}");
        assert!(snapshot.runs.is_empty(), "{when}: {snapshot:?}");
        assert_eq!(snapshot.count("invariant_failed_total", &[]), 0, "{when}");
        assert_eq!(snapshot.count("drift_total", &[]), 0, "{when}");
        drop(warm);
        settles(&self.quiet, &format!("{when}, closed")).await;
        if let Some(store) = &self.store {
            let left = store.scan().await.unwrap();
            assert_eq!(left.len(), 0, "{when}: records of runs that ended");
        }
        match &self.behind {
            Behind::Url(ledger) => {
                let is_so = || ledger.counts().open_sessions == 0;
                until("the server has no session left", is_so).await;
                assert_eq!(ledger.violations(), Vec::<String>::new(), "{when}");
            },
            Behind::Pipes(program) => program.gone().await,
        }
    }
}

fn cuts(polls: usize) -> impl Iterator<Item = Cut> {
    // What was never polled waits for nothing.
    let makes_sense = move |cut: &Cut| polls > 0 || *cut != Cut::Dropped(DropTiming::OnWake);
    CUTS.into_iter().filter(makes_sense)
}

/// Plays an act up to a point; true if it came to its end before.
async fn played(polls: usize, cut: Cut, acting: Acting) -> bool {
    match cut {
        Cut::Dropped(when) => drop_at(
            CancelPoint {
                polls,
                timing: when,
            },
            acting,
        )
        .await
        .is_some(),
        Cut::Ended(way) => end_task_at(way, polls, acting).await.is_some(),
    }
}

async fn settles(before: &Census, when: &str) {
    if let Err(leaks) = before.wait_until_clean(SETTLES_WITHIN).await {
        panic!("{when}: {leaks}");
    }
}

/// Two calls side by side, each of which must get its own answer.
pub(crate) async fn echoes(ledger: &ServerHandle) {
    tokio::join!(echo(ledger), echo(ledger));
}

/// A call that must get its own answer.
pub(crate) async fn echo(ledger: &ServerHandle) {
    let value = json!({"unique": fastrand::u64(..)});
    let result = ledger.call("echo", &value).await.unwrap();
    is_echo(&result, &value);
}

pub(crate) fn is_echo(result: &ToolResult, value: &Value) {
    let reply: Value = result.structured().unwrap();
    assert_eq!(reply["arguments"], *value);
}
