//! The word that a run is owed of a loss outlives what the loss happened to: the session, its key,
//! the way there, the server, and the call that saw it happen.

use crate::prelude::*;

use super::loss_attribution::{forgets, says_so};
use super::session_lifetime::keep;
use super::session_replacement::read;

const POLICIES: [StateLossPolicy; 2] = [StateLossPolicy::Tell, StateLossPolicy::Fail];

/// One session for all runs of whoever calls, or of everybody.
fn shared(server: Server, per: SessionScope, then: StateLossPolicy) -> Server {
    let server = server.session_per(per).calls(CallConcurrency::SideBySide);
    server.on_state_loss(then)
}

/// Two runs that left state in one session.
async fn two_runs(world: &World) -> [Run; 2] {
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    for (run, expected) in runs.iter().zip(1..) {
        assert_eq!(count(&at(run)).await, expected);
    }
    runs
}

fn at(run: &Run) -> ServerHandle {
    run.server(LEDGER).unwrap()
}

/// The run is told by its next call, once.
async fn is_told(run: &Run, then: StateLossPolicy, which: &str) {
    let next = at(run).call("counter", json!({})).await;
    assert!(says_so(then, &next), "{which}, {then:?}: {next:?}");
    is_not_told(run, which).await;
}

async fn is_not_told(run: &Run, which: &str) {
    let next = at(run).call("counter", json!({})).await.unwrap();
    assert!(!next.state_lost(), "{which}: {}", next.text());
}

/// The first of two runs is told what both lost, and leaves nothing on the new session.
async fn the_first_is_told(world: &World, [first, _]: &[Run; 2], then: StateLossPolicy) {
    world.control().forget_sessions();
    let told = read(&at(first)).await;
    assert!(says_so(then, &told), "{then:?}: {told:?}");
}

/// A server that is not what it was.
fn stateless_by_now() -> Personality {
    Personality::legacy().session_gone(warmline_testkit::faults::dialects::by_name("a23").unwrap())
}

/// Whoever begins a session is turned away.
fn turns_away(status: u16) -> FaultRule {
    FaultRule::new(Fault::Reply(CannedReply::new(status, "{}").json())).on_method("initialize")
}

async fn over(_runs: impl IntoIterator<Item = Run>, world: World) {
    world.finish().await;
}

/// A48: where a server turns out to be another one, each run that had state on the session that
/// they shared is told.
#[tokio::test]
async fn each_run_is_told_where_their_server_is_not_any_more_what_it_was() {
    for then in POLICIES {
        for per in [SessionScope::Identity, SessionScope::Server] {
            let world = World::with(stateless_by_now(), |server| shared(server, per, then));
            let runs = two_runs(&world).await;
            world.control().forget_sessions();
            for run in &runs {
                is_told(run, then, &format!("{per:?}")).await;
            }
            let late = world.warm.begin_run();
            is_not_told(&late, "it lost nothing").await;
            over(runs.into_iter().chain([late]), world).await;
        }
    }
}

/// A48: a call that sees its server change and fails leaves the word to the next one.
#[tokio::test]
async fn a_loss_outlives_the_call_that_saw_it() {
    for then in POLICIES {
        for per in [SessionScope::Run, SessionScope::Identity] {
            let world = World::with(stateless_by_now(), |server| shared(server, per, then));
            let run = world.warm.begin_run();
            count(&at(&run)).await;
            world.control().forget_sessions();
            world.inject(turns_away(503).always());
            let failed = at(&run).call("counter", json!({})).await.unwrap_err();
            assert_ne!(failed.code().as_str(), "session-lost");
            world.control().clear_faults();
            is_told(&run, then, &format!("{per:?}")).await;
            over([run], world).await;
        }
    }
}

/// A call that learns of a loss and does not tell it.
#[derive(Clone, Copy, Debug)]
enum Silent {
    /// It touches nothing that is lost.
    List,
    /// It is answered with an error.
    Error,
    /// Nobody waits for it any more.
    Cancelled,
}

impl Silent {
    async fn happens(self, world: &World, ledger: &ServerHandle) {
        match self {
            Self::List => drop(ledger.request("tools/list", json!({})).await.unwrap()),
            Self::Error => {
                let failed = ledger.call("no_such_tool", json!({})).await.unwrap_err();
                assert_ne!(failed.code().as_str(), "session-lost");
            },
            Self::Cancelled => {
                let slow = FaultRule::new(Fault::Delay(300, FaultTiming::BeforeExecuting));
                world.server.inject(slow.on_method("initialize").always());
                let book = world.server.ledger().clone();
                let before = book.messages_received("initialize");
                let call = tokio::spawn(ledger.call("counter", json!({})).into_future());
                let is_so = || book.messages_received("initialize") > before;
                until("it looks for another way", is_so).await;
                call.abort();
                call.await.unwrap_err();
                world.control().clear_faults();
            },
        }
    }
}

/// A48: a server keeps no sessions any more, and what learns that does not tell what was lost: the
/// next call does.
#[tokio::test]
async fn a_loss_outlives_a_call_that_does_not_tell() {
    for then in POLICIES {
        for (per, silent) in [SessionScope::Run, SessionScope::Identity]
            .into_iter()
            .flat_map(|per| [Silent::List, Silent::Error, Silent::Cancelled].map(|it| (per, it)))
        {
            // A call that fails by the policy tells it by that.
            if matches!((silent, then), (Silent::Error, StateLossPolicy::Fail)) {
                continue;
            }
            let world = World::with(stateless_by_now(), |server| shared(server, per, then));
            let run = world.warm.begin_run();
            count(&at(&run)).await;
            world.control().forget_sessions();
            silent.happens(&world, &at(&run)).await;
            is_told(&run, then, &format!("{per:?}, {silent:?}")).await;
            over([run], world).await;
        }
    }
}

/// What becomes of a server.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// It is reached otherwise.
    Elsewhere,
    /// Its sessions are for something else.
    For(SessionScope),
    /// It is taken away, and comes back.
    Gone,
}

/// A48: a loss that a run was not told of yet is told where its server is declared anew, taken away
/// or held otherwise; who was told before is not told again.
#[tokio::test]
async fn a_loss_outlives_the_declaration_of_its_server() {
    use SessionScope::{Call, Identity, Run as OneRun, Server as Everybody};
    let changes = [
        Then::Elsewhere,
        Then::For(OneRun),
        Then::For(Everybody),
        Then::For(Call),
        Then::Gone,
    ];
    for then in POLICIES {
        for change in changes {
            let which = format!("{change:?}");
            let world = World::with(Personality::legacy(), |server| {
                shared(server, Identity, then)
            });
            let runs = two_runs(&world).await;
            the_first_is_told(&world, &runs, then).await;
            let plain = Server::http(LEDGER, world.server.url());
            let anew = match change {
                Then::Elsewhere => shared(plain, Identity, then).header("X-New", "1"),
                Then::For(per) => shared(plain, per, then),
                Then::Gone => {
                    world.warm.remove_server(LEDGER);
                    keep(10, secs(10)).await;
                    shared(plain, Identity, then)
                },
            };
            world.add_server(anew);
            is_told(&runs[1], then, &which).await;
            is_not_told(&runs[0], &which).await;
            over(runs, world).await;
        }
    }
}

/// A48: a loss that nobody was told of at all is told to each run where its server is declared anew.
#[tokio::test]
async fn a_loss_that_nobody_was_told_of_outlives_the_declaration_of_its_server() {
    for then in POLICIES {
        let per = SessionScope::Identity;
        let world = World::with(Personality::legacy(), |server| shared(server, per, then));
        let runs = two_runs(&world).await;
        world.control().forget_sessions();
        // It heals, and tells nobody.
        at(&runs[0]).request("tools/list", json!({})).await.unwrap();
        let anew = Server::http(LEDGER, world.server.url()).header("X-New", "1");
        world.add_server(shared(anew, per, then));
        for run in &runs {
            is_told(run, then, "declared anew").await;
        }
        over(runs, world).await;
    }
}

/// A48: what a call leaves in a shared session that a reload ends under it is lost as well.
#[tokio::test]
async fn what_a_call_leaves_while_its_server_is_declared_anew_is_told() {
    for then in POLICIES {
        let per = SessionScope::Identity;
        let world = World::with(Personality::legacy(), |server| shared(server, per, then));
        let run = world.warm.begin_run();
        let slow = tokio::spawn(at(&run).call("slow", json!({"ms": 300})).into_future());
        world.under_way("slow", 1).await;
        let anew = Server::http(LEDGER, world.server.url()).header("X-New", "1");
        world.add_server(shared(anew, per, then));
        slow.await.unwrap().unwrap().ok().unwrap();
        is_told(&run, then, "under way").await;
        over([run], world).await;
    }
}

/// A48: what is not a tool's call mentions a loss that a reload brought, and the next tool is told
/// in words.
#[tokio::test]
async fn a_read_after_a_reload_leaves_the_word_to_the_next_tool() {
    let (per, then) = (SessionScope::Identity, StateLossPolicy::Tell);
    let world = World::with(Personality::legacy(), |server| shared(server, per, then));
    let run = world.warm.begin_run();
    count(&at(&run)).await;
    let resources = at(&run).list(ListKind::Resources).await.unwrap();
    let first: Value = serde_json::from_slice(&resources[0]).unwrap();
    let uri = first["uri"].as_str().unwrap();
    let anew = Server::http(LEDGER, world.server.url()).header("X-New", "1");
    world.add_server(shared(anew, per, then));
    let read: Value = serde_json::from_slice(&at(&run).read_resource(uri).await.unwrap()).unwrap();
    assert_eq!(read["_meta"]["dev.warmline/stateLost"], true, "{read}");
    is_told(&run, then, "after a read").await;
    over([run], world).await;
}

/// A48, A79: the key of a shared session is forgotten when nobody asked for it for long; a run that
/// was not told of a loss there is told by the next one.
#[tokio::test]
async fn a_loss_outlives_the_key_of_its_session() {
    for then in POLICIES {
        let world = World::with(Personality::legacy(), |server| {
            shared(server, SessionScope::Identity, then)
                .with_policy(|policy| policy.max_idle = Some(secs(60)))
        });
        let runs = two_runs(&world).await;
        the_first_is_told(&world, &runs, then).await;
        keep(75, secs(10)).await;
        is_told(&runs[1], then, "its key is forgotten").await;
        let fresh = at(&runs[0]).call("counter", json!({})).await.unwrap();
        assert_eq!((fresh.generation(), fresh.state_lost()), (1, false));
        over(runs, world).await;
    }
}

/// A48: the way to a session is looked for anew where nothing stands any more where it was; a run
/// that was not told of a loss there is told all the same.
#[tokio::test]
async fn a_loss_outlives_the_way_to_its_session() {
    for then in POLICIES {
        let per = SessionScope::Identity;
        let world = World::with(Personality::legacy(), |server| shared(server, per, then));
        let runs = two_runs(&world).await;
        the_first_is_told(&world, &runs, then).await;
        // The session that took its place is lost too, with nothing in it.
        world.inject(forgets("tools/list").times(1));
        world.inject(turns_away(404).times(1));
        at(&runs[1]).request("tools/list", json!({})).await.ok();
        is_told(&runs[1], then, "found anew").await;
        for run in runs {
            run.end().await;
        }
        // The server still has the session that it said it forgot.
        world.warm.close().await;
    }
}

/// A48: the sessions of a tool are shared by all runs of an identity where that is decided so; each
/// of them is told.
#[tokio::test]
async fn each_run_is_told_of_what_a_tool_lost_that_has_a_session_of_its_own() {
    for then in POLICIES {
        let world = World::with(Personality::legacy(), |server| {
            let server = server
                .calls(CallConcurrency::SideBySide)
                .on_state_loss(then);
            let of_its_own = ToolPolicy {
                session_per: Some(SessionScope::Identity),
                ..ToolPolicy::default()
            };
            server.tool("counter", of_its_own)
        });
        let runs = two_runs(&world).await;
        world.control().forget_sessions();
        for run in &runs {
            is_told(run, then, "of a tool").await;
        }
        over(runs, world).await;
    }
}
