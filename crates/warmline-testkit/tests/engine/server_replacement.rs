//! Servers that are replaced, decided about anew or taken away while they are in use, and those
//! that are declared nowhere.

use crate::prelude::*;

use super::fixture::{is_inner, payments};

fn legacy() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// A list in which a payment is said to be harmless.
fn lying() -> Value {
    let pay = json!({
        "name": "pay",
        "inputSchema": { "type": "object" },
        "annotations": { "readOnlyHint": true },
    });
    json!({ "tools": [pay] })
}

/// What a call of a counter that must fail is called.
async fn refused(handle: &ServerHandle) -> &'static str {
    let called = handle.call("counter", json!({})).await;
    called.unwrap_err().code().as_str()
}

/// P106, reliability P8: what tools of one server say of themselves decides nothing about a call to
/// another that took its name: neither for new runs, nor for those that keep the old one.
#[tokio::test]
async fn hints_of_a_replaced_server_and_of_the_new_one_are_kept_apart() {
    for old_lies in [true, false] {
        let (world, other) = (World::new(Personality::legacy()), legacy());
        let live = world.warm.begin_run();
        count(&live.server(LEDGER).unwrap()).await;
        world.add_server(Server::http(LEDGER, other.url()));
        let new = world.warm.begin_run();
        count(&new.server(LEDGER).unwrap()).await;
        // Both list their tools; the payment is made by the one whose server did not lie.
        let (liar, payer, honest) = match old_lies {
            true => (&world.server, &new, &other),
            false => (&other, &live, &world.server),
        };
        liar.inject(
            FaultRule::new(Fault::Result(lying()))
                .on_method("tools/list")
                .always(),
        );
        for run in [&live, &new] {
            run.server(LEDGER).unwrap().tools().await.unwrap();
        }
        let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
        honest.inject(FaultRule::new(cut).on_tool("pay"));
        let paid = payment(&payer.server(LEDGER).unwrap(), "p").await;
        assert!(paid.is_err(), "{paid:?}");
        assert_eq!(payments(honest, "p"), 1, "a payment ran twice");
        for server in [&world.server, &other] {
            assert!(server.ledger().messages_received("tools/list") >= 1);
        }
        world.finish().await;
    }
}

/// P106: a handle that was made before its server was replaced leads a run to the one where it has
/// its session, and outside of runs to the new one.
#[tokio::test]
async fn a_handle_follows_its_server() {
    let (world, other) = (World::new(Personality::legacy()), legacy());
    let (live, late) = (world.warm.begin_run(), world.warm.begin_run());
    let handles = [&live, &late].map(|run| run.server(LEDGER).unwrap());
    let outside = world.ledger();
    assert_eq!(count(&handles[0]).await, 1);
    world.add_server(Server::http(LEDGER, other.url()));
    assert_eq!(count(&handles[0]).await, 2);
    assert_eq!(count(&live.server(LEDGER).unwrap()).await, 3);
    let before = other.counts().initializes;
    count(&handles[1]).await;
    count(&outside).await;
    assert_eq!(other.counts().initializes - before, 2);
    world.finish().await;
}

/// P106: what is decided about a server counts at once, for sessions that are open too.
#[tokio::test]
async fn another_decision_counts_for_what_is_open() {
    // Which tools may be called, and whether any.
    let world = World::new(Personality::legacy());
    let again = || Server::http(LEDGER, world.server.url());
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    ledger.tools().await.unwrap();
    world.add_server(again().deny(["counter"]));
    assert_eq!(refused(&ledger).await, "not-allowed");
    let listed = ledger.tools().await.unwrap();
    assert!(listed.find("counter").is_err(), "it is still listed");
    world.add_server(again());
    assert_eq!(count(&ledger).await, 2);
    world.add_server(again().enabled(false));
    assert_eq!(refused(&ledger).await, "not-allowed");
    assert!(run.server(LEDGER).is_err());
    world.finish().await;
}

/// P106: how calls share sessions is decided for those that are open too.
#[tokio::test]
async fn another_decision_about_sharing_counts_for_what_is_open() {
    let shared = |server: Server| server.session_per(SessionScope::Identity);
    let world = World::with(Personality::legacy(), shared);
    let side_by_side = |calls: usize| {
        let slow = || world.ledger().call("slow", json!({ "ms": 200 }));
        join_all((0..calls).map(move |_| async move { slow().await.unwrap().ok().unwrap() }))
    };
    side_by_side(2).await;
    assert_eq!(world.handshakes(), 2);
    let again = shared(Server::http(LEDGER, world.server.url()));
    world.add_server(again.calls(CallConcurrency::SideBySide));
    side_by_side(5).await;
    assert_eq!(world.handshakes(), 2, "five calls share what is there");
    // Nobody is led to what an identity shares any more.
    let per_call = Server::http(LEDGER, world.server.url()).session_per(SessionScope::Call);
    world.add_server(per_call);
    world.finish().await;
}

/// P106: which era is spoken is decided anew.
#[tokio::test]
async fn another_decision_about_the_era_counts_at_once() {
    let world = World::new(Personality::dual());
    let era = async || world.ledger().info().await.unwrap().era;
    assert_eq!(era().await, Era::Modern);
    let again = Server::http(LEDGER, world.server.url());
    world.add_server(again.era(Era::Legacy));
    assert_eq!(era().await, Era::Legacy);
    world.finish().await;
}

/// P106: nothing is held for a server that was taken away; runs keep what they have there.
#[tokio::test]
async fn a_server_that_was_taken_away_is_there_for_its_runs_alone() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Identity)
    });
    let shared = world.ledger();
    count(&shared).await;
    assert!(world.warm.remove_server(LEDGER));
    assert_eq!(refused(&shared).await, "server-unknown");
    world.no_session_left().await;

    world.add_server(Server::http(LEDGER, world.server.url()));
    let (run, late) = (world.warm.begin_run(), world.warm.begin_run());
    let handles = [&run, &late].map(|run| run.server(LEDGER).unwrap());
    assert_eq!(count(&handles[0]).await, 1);
    assert!(world.warm.remove_server(LEDGER));
    assert_eq!(count(&handles[0]).await, 2);
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 3);
    assert_eq!(refused(&handles[1]).await, "server-unknown");
    assert!(late.server(LEDGER).is_err());
    world.finish().await;
}

/// A175, reliability P17: of a server that is declared nowhere nothing is left when its last handle
/// is gone.
#[tokio::test]
async fn a_server_that_is_declared_nowhere_leaves_nothing() {
    let (server, warm) = (legacy(), Warmline::builder().build().unwrap());
    let shared = |name: &str| Server::http(name, server.url()).session_per(SessionScope::Identity);
    warm.add_server(shared("kept")).unwrap();
    count(&warm.server("kept").unwrap()).await;
    for name in ["kept", "one", "two", "two"] {
        let handle = warm.once(shared(name));
        let same = handle.clone();
        assert_eq!(count(&handle).await, 1, "it shares with nobody");
        drop(handle);
        assert_eq!(count(&same).await, 2);
    }
    let names = || {
        let servers = warm.snapshot().servers;
        servers
            .into_iter()
            .map(|numbers| numbers.server.to_string())
    };
    assert_eq!(names().collect::<Vec<_>>(), ["kept"]);
    let is_so = || server.counts().open_sessions == 1;
    until("what was declared is left", is_so).await;
    assert_eq!(count(&warm.server("kept").unwrap()).await, 2);
    warm.close().await;
}

/// A175: a server that is declared nowhere is not taken for a declared one of the same name, also
/// not in a run.
#[tokio::test]
async fn a_server_that_is_declared_nowhere_is_found_by_no_name() {
    let (world, other) = (World::new(Personality::legacy()), legacy());
    world
        .warm
        .run(async |run| {
            let ledger = run.server(LEDGER).unwrap();
            assert_eq!(count(&ledger).await, 1);
            let once = world.warm.once(Server::http(LEDGER, other.url()));
            assert_eq!(count(&once).await, 1);
            assert_eq!(count(&once).await, 2);
            drop(once);
            assert_eq!(count(&run.server(LEDGER).unwrap()).await, 2);
        })
        .await;
    until("the run left nothing", || other.counts().open_sessions == 0).await;
    world.finish().await;
}

/// P106: a server that is declared nowhere has nothing to do with one that has its name.
#[tokio::test]
async fn a_server_that_is_declared_nowhere_outlives_a_declared_one_of_its_name() {
    let shared = |server: Server| server.session_per(SessionScope::Identity).spares(1);
    let world = World::with(Personality::legacy(), shared);
    let (other, third) = (legacy(), legacy());
    let once = world.warm.once(shared(Server::http(LEDGER, other.url())));
    assert_eq!(count(&once).await, 1);
    let declare = |url| world.warm.add_server(shared(Server::http(LEDGER, url)));
    let table: [&dyn Fn(); 3] = [
        &|| declare(third.url()).unwrap(),
        &|| assert!(world.warm.remove_server(LEDGER)),
        &|| declare(world.server.url()).unwrap(),
    ];
    for (times, change) in (2..).zip(table) {
        change();
        assert_eq!(count(&once).await, times);
    }
    drop(once);
    let is_so = || other.counts().open_sessions == 0;
    until("nothing is left of it", is_so).await;
    world.finish().await;
}

/// P106, reliability P12: another limit of a server counts for those who wait as well, and before
/// those who come later.
#[tokio::test]
async fn a_raised_limit_lets_in_who_waits() {
    let at_most = |most: u32| {
        move |server: Server| server.with_policy(|policy| policy.max_sessions = Some(most))
    };
    let world = World::with(Personality::legacy(), at_most(1));
    let runs = [(); 3].map(|()| world.warm.begin_run());
    let [first, second, third] = runs.each_ref().map(|run| run.server(LEDGER).unwrap());
    assert_eq!(count(&first).await, 1);
    let call = second.call("counter", json!({}));
    let waiting = tokio::spawn(call.into_future());
    until("it waits", || world.number("waiters", &[]) == 1).await;
    let raised = at_most(2)(Server::http(LEDGER, world.server.url()));
    world.add_server(raised);
    assert!(waiting.await.unwrap().is_ok());
    let late = third.call("counter", json!({})).timeout(secs(1));
    let error = late.await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
    world.finish().await;
}

/// DESIGN 5.2: a run whose server was taken away for good, and is there again, is told what it lost.
#[tokio::test]
async fn what_went_with_a_server_is_told_where_it_is_declared_again() {
    let world = World::new(Personality::legacy());
    let ledger = world.in_run();
    assert_eq!(count(&ledger).await, 1);
    assert!(world.warm.remove_server(LEDGER));
    world.add_server(Server::http(LEDGER, world.server.url()));
    assert_eq!(count(&ledger).await, 2);
    // Longer than a drain takes, and the keeper looks.
    pass(secs(60)).await;
    world.no_session_left().await;
    let anew = ledger.call("counter", json!({})).await.unwrap();
    assert!(anew.state_lost(), "{anew:?}");
    let next = ledger.call("counter", json!({})).await.unwrap();
    assert!(!next.state_lost(), "told twice: {next:?}");
    world.finish().await;
}

/// A175: the rules for servers hold for one that is declared nowhere.
#[tokio::test]
async fn rules_hold_for_a_server_that_is_declared_nowhere() {
    let server = legacy();
    let warm = Warmline::builder().allow_servers(["good"]).build();
    let warm = warm.unwrap();
    let named = |name: &str| Server::http(name, server.url());
    let cases = [
        (named("bad"), "not-allowed"),
        (named("good").enabled(false), "not-allowed"),
        (named("good").deny(["counter"]), "not-allowed"),
        (
            named("good").with_policy(|policy| policy.max_per_key = 0),
            "config-bad-value",
        ),
        (named("good").spares(u32::MAX), "config-bad-value"),
    ];
    for (server, code) in cases {
        let shown = format!("{server:?}");
        assert_eq!(refused(&warm.once(server)).await, code, "{shown}");
    }
    assert_eq!(server.counts().requests, 0);
    warm.close().await;
}

/// S2: where the environment counts, it counts for servers that come later, too.
#[tokio::test]
async fn the_environment_counts_for_servers_that_come_later() {
    let name = "the_environment_counts_for_servers_that_come_later";
    if !is_inner(
        module_path!(),
        name,
        &[("MCP_SESSION_POOL_MAX_PER_KEY", b"1")],
    ) {
        return;
    }
    let server = legacy();
    let declared = || Server::http(LEDGER, server.url()).session_per(SessionScope::Identity);
    let built = Warmline::builder().from_env().server(declared()).build();
    let later = Warmline::builder().from_env().build().unwrap();
    later.add_server(declared()).unwrap();
    let process = Warmline::process().unwrap();
    process.add_server(declared()).unwrap();
    let warm = [built.unwrap(), later, process];
    let mut handles: Vec<ServerHandle> =
        warm.iter().map(|one| one.server(LEDGER).unwrap()).collect();
    handles.push(warm[1].once(declared()));
    for handle in handles {
        let before = server.counts().initializes;
        let slow = || async {
            handle
                .call("slow", json!({ "ms": 100 }))
                .await
                .unwrap()
                .ok()
        };
        let (one, other) = tokio::join!(slow(), slow());
        assert!(one.is_ok() && other.is_ok());
        assert_eq!(server.counts().initializes - before, 1);
    }
    for one in warm {
        one.close().await;
    }
}

/// S2: a variable that is no text is told of where it is asked for.
#[test]
fn a_variable_that_is_no_text_is_told_of() {
    const MAX: &str = "MCP_SESSION_POOL_MAX_PER_KEY";
    let name = "a_variable_that_is_no_text_is_told_of";
    if !is_inner(
        module_path!(),
        name,
        &[(MAX, b"\xff1"), ("WARMLINE_RUN", b"x\xff")],
    ) {
        return;
    }
    let warm = Warmline::builder().build().unwrap();
    let heeding = Warmline::builder().from_env();
    let server = Server::http(LEDGER, "http://127.0.0.1:1/mcp");
    let cases = [
        (warm.run_from_env().unwrap_err(), "WARMLINE_RUN"),
        (heeding.server(server).build().unwrap_err(), MAX),
    ];
    for (error, variable) in cases {
        assert_eq!(error.code().as_str(), "config-bad-value", "{error:?}");
        assert!(error.to_string().contains(variable), "{error:?}");
    }
}

/// A119: a credential in a variable that is no text is told by the variable's name, and no lesser
/// one is taken instead.
#[tokio::test]
async fn a_credential_that_is_no_text_is_told_of() {
    const TOKEN: &str = "STORY_TOKEN_THAT_IS_NO_TEXT";
    let name = "a_credential_that_is_no_text_is_told_of";
    if !is_inner(module_path!(), name, &[(TOKEN, b"canary\xff")]) {
        return;
    }
    let server = legacy();
    let table = [
        Secret::env(TOKEN),
        Secret::env(TOKEN).optional(),
        Secret::first_of([Secret::env(TOKEN), Secret::new("lesser")]),
    ];
    for secret in table {
        let declared = Server::http(LEDGER, server.url()).bearer(secret);
        let warm = Warmline::builder().server(declared).build().unwrap();
        let ledger = warm.server(LEDGER).unwrap();
        let error = ledger.call("echo", json!({})).await.unwrap_err();
        assert_eq!(error.code().as_str(), "credential-unavailable", "{error:?}");
        assert!(error.to_string().contains(TOKEN), "{error:?}");
        assert!(!format!("{error:?}").contains("canary"), "{error:?}");
        warm.close().await;
    }
    assert_eq!(server.counts().requests, 0);
}
