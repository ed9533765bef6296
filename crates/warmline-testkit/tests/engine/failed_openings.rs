//! Opening: what a caller hears of an opening that fails, and how many go on beside each other.

use crate::prelude::*;

use super::close::{names, of_many_names};

/// So many programs of one server are started at the same time.
const STARTS: usize = 16;

/// Programs of one server that hang at their start hold up those of no other.
#[tokio::test]
async fn programs_that_hang_at_their_start_hold_up_no_other_server() {
    let hangs = r#"[ -e "$WARMLINE_STAGE/hang" ] && exec sleep 97
        exec "$0" --stdio --ledger "$WARMLINE_STAGE/$$.ledger" --personality legacy"#;
    let sick = Program::of(["-c", hangs, env!("CARGO_BIN_EXE_warmline-ledger")].into_iter());
    let good = Program::ledger(&["--personality", "legacy"]);
    let servers = [sick.declared("sick"), good.declared("good")];
    let warm = Warmline::builder().servers(servers).build().unwrap();
    // It worked once.
    let known = warm.begin_run();
    for name in ["sick", "good"] {
        assert_eq!(count(&known.server(name).unwrap()).await, 1);
    }
    known.end().await;
    std::fs::write(format!("{}/hang", sick.place()), "").unwrap();
    let runs: Vec<_> = (0..3 * STARTS)
        .map(|at| warm.identity(&format!("{}", at % 8)).begin_run())
        .collect();
    let calls: Vec<_> = runs
        .iter()
        .map(|run| run.server("sick").unwrap().call("counter", json!({})))
        .map(|call| tokio::spawn(call.into_future()))
        .collect();
    until("they hang", || sick.alive() >= 2 * STARTS).await;
    let run = warm.begin_run();
    let ledger = run.server("good").unwrap();
    let counted = tokio::time::timeout(secs(20), count(&ledger)).await;
    assert_eq!(
        counted,
        Ok(1),
        "the other server's programs wait for theirs"
    );
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    drop((runs, run));
    warm.close_fast_within(secs(5)).await;
    sick.gone().await;
    good.gone().await;
}

/// A32, A34: an opening that fails is told by what was at its root: the status, or the connection;
/// with the server's name and its URL, and without secrets.
#[tokio::test]
async fn the_first_cause_is_what_the_caller_sees() {
    let table = [
        (401, Reason::Unauthorized),
        (403, Reason::Forbidden),
        (429, Reason::RateLimited),
        (500, Reason::ServerError),
        (503, Reason::Unavailable),
    ];
    for (status, reason) in table {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        let url = format!("{}?key=s3cret", server.url());
        let keyed = move |_| Server::http(LEDGER, &url);
        let world = World::around(server, keyed, |builder| builder);
        let refusal = Fault::Reply(CannedReply::new(status, "the reason of the server"));
        world.inject(FaultRule::new(refusal).always());
        let (_run, ledger) = world.new_run();
        // All who waited for it hear the same.
        let calls = (0..3).map(|_| async { payment(&ledger, "nested").await.unwrap_err() });
        for error in join_all(calls).await {
            assert_eq!(error.reason(), reason, "{status}: {error:?}");
            assert_eq!(error.delivery(), Delivery::Unsent);
            assert_eq!(error.server(), Some(LEDGER));
            let words = format!("{error} {error:?}");
            assert!(words.contains(&status.to_string()), "{words}");
            assert!(words.contains("127.0.0.1"), "{words}");
            assert!(!words.contains("s3cret"), "{words}");
        }
        world.control().clear_faults();
        world.finish().await;
    }
    let world = World::new(Personality::legacy());
    world.server.stop();
    let run = world.warm.begin_run();
    let error = payment(&run.server(LEDGER).unwrap(), "nobody").await;
    let error = error.unwrap_err();
    assert_eq!(error.reason(), Reason::ConnectRefused, "{error:?}");
    assert_eq!(error.code().as_str(), "cannot-reach");
    run.end().await;
    world.server.start_again().unwrap();
    world.finish().await;
}

/// A122: whatever a server says to `notifications/initialized`, if it is a success.
#[tokio::test]
async fn every_success_accepts_the_end_of_the_handshake() {
    for status in [200, 202, 204] {
        let world = World::new(Personality::legacy());
        let accepted = Fault::Reply(CannedReply::new(status, "").execute_first());
        let rule = FaultRule::new(accepted).on_method("notifications/initialized");
        world.inject(rule.always());
        let ledger = world.in_run();
        let found = (count(&ledger).await, count(&ledger).await);
        assert_eq!(found, (1, 2), "{status}");
        assert_eq!(world.handshakes(), 1, "{status}");
        world.finish().await;
    }
}

/// P94: a server that was scaled to zero has lost its sessions and takes its time; the call waits.
#[tokio::test]
async fn a_server_that_wakes_up_slowly_is_waited_for() {
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| policy.create = Some(secs(20)))
    });
    let ledger = world.in_counted_run().await;
    world.control().forget_sessions();
    let slow = Fault::Delay(1_500, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(slow).on_method("initialize"));
    let paid = world.pay(&ledger, "woken").await.unwrap();
    assert_eq!((paid.attempts(), paid.generation()), (2, 2));
    assert_eq!(world.payments("woken"), 1);
    assert_eq!(world.received("initialize"), 2);
    world.finish().await;
}

/// P103: only so many programs are started at the same time; who waits for a turn loses nothing of
/// the time for its own start.
#[tokio::test]
async fn starts_are_bounded_and_each_has_its_own_time() {
    const AT_ONCE: usize = 32;
    let limit = secs(20);
    // It never becomes ready, and says that it was started.
    let silent =
        || Program::of(["-c", r#"touch "$WARMLINE_STAGE/started"; exec sleep 600"#].into_iter());
    let programs: Vec<Program> = (0..AT_ONCE).map(|_| silent()).collect();
    let started = || {
        let there = |program: &&Program| Path::new(&program.place()).join("started").exists();
        programs.iter().filter(there).count()
    };
    let quick = Program::ledger(&["--personality", "legacy"]);
    let declared = programs.iter().enumerate().map(|(number, program)| {
        let declared = program.declared(&format!("s{number}"));
        declared.with_policy(|policy| policy.create = Some(limit))
    });
    let late = quick
        .declared("late")
        .with_policy(|policy| policy.create = Some(limit));
    let builder = Warmline::builder().servers(declared).server(late);
    let warm = builder.build().unwrap();
    let run = warm.begin_run();
    let calls = (0..AT_ONCE).map(|number| {
        let server = run.server(&format!("s{number}")).unwrap();
        tokio::spawn(async move { payment(&server, "never").await.unwrap_err() })
    });
    let calls: Vec<_> = calls.collect();
    until("as many are started as may be", || started() == AT_ONCE).await;
    let late = run.server("late").unwrap();
    let waiting = tokio::spawn(async move { count(&late).await });
    pass(limit / 2).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(quick.starts(), 0, "it waits for its turn");
    pass(limit).await;
    for failed in join_all(calls).await {
        let error = failed.unwrap();
        assert_eq!(error.code().as_str(), "deadline", "{error:?}");
    }
    assert_eq!(waiting.await.unwrap(), 1);
    assert_eq!(quick.starts(), 1);
    run.end().await;
    warm.close().await;
    for program in programs.iter().chain([&quick]) {
        program.gone().await;
    }
}

/// P102: a session may be opened ahead of its first call, which costs no handshake then.
#[tokio::test]
async fn a_session_can_be_opened_ahead() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let server = program.declared("child");
    let warm = Warmline::builder().server(server).build().unwrap();
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    child.info().await.unwrap();
    assert_eq!((program.starts(), warm.snapshot().sessions.len()), (1, 1));
    assert_eq!((count(&child).await, program.starts()), (1, 1));
    run.end().await;
    program.gone().await;
    warm.close().await;
}

/// P101: a server that is dead stops nobody from beginning, and is used when it is back.
#[tokio::test]
async fn one_dead_server_stops_nobody() {
    let dead = LedgerServer::start(Personality::legacy()).unwrap();
    dead.stop();
    let more = Server::http("dead", dead.url());
    let world = World::with_engine(Personality::legacy(), |builder| builder.server(more));
    let run = world.warm.begin_run();
    let late = run.server("dead").unwrap();
    let (lost, counted) = tokio::join!(payment(&late, "dead"), async {
        count(&run.server(LEDGER).unwrap()).await
    });
    assert_eq!(lost.unwrap_err().code().as_str(), "cannot-reach");
    assert_eq!(counted, 1);
    dead.start_again().unwrap();
    assert_eq!(count(&late).await, 1);
    run.end().await;
    until("its session is ended", || dead.counts().open_sessions == 0).await;
    pass(secs(20)).await;
    world.finish().await;
}

/// A86, E17: an opening that takes longer than it may is torn down, also at its last step.
#[tokio::test]
async fn an_opening_past_its_limit_leaves_nothing() {
    for step in ["initialize", "notifications/initialized"] {
        let world = World::with(Personality::legacy(), |server| {
            server.with_policy(|policy| policy.create = Some(Duration::from_millis(400)))
        });
        let stuck = Fault::Silence(FaultTiming::BeforeExecuting);
        world.inject(FaultRule::new(stuck).on_method(step).always());
        let ledger = world.in_run();
        let error = ledger.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.code().as_str(), "deadline", "{step}: {error:?}");
        assert_eq!(error.delivery(), Delivery::Unsent);
        assert!(world.warm.snapshot().sessions.is_empty());
        world.control().clear_faults();
        world.no_session_left().await;
        assert_eq!(count(&ledger).await, 1);
        world.finish().await;
    }
}

/// A192: sessions with several servers are opened side by side, and kept alive side by side: none
/// waits for another that takes its time.
#[tokio::test]
async fn many_sessions_are_opened_and_kept_alive_side_by_side() {
    let names = names(20);
    let world = of_many_names(&names);
    let slow = Fault::Delay(2_000, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(slow).on_method("initialize").times(20));
    let run = world.begin_run();
    let handles: Vec<_> = names.iter().map(|name| run.server(name).unwrap()).collect();
    let opening = handles.clone();
    let opening = tokio::spawn(async move { join_all(opening.iter().map(count)).await });
    let asked = |method: &str| world.received(method);
    until("all are asked for", || asked("initialize") == 20).await;
    let done = asked("notifications/initialized");
    assert!(done < 10, "one after the other: {done} are there");
    assert_eq!(opening.await.unwrap(), vec![1; 20]);

    // Each alone is waited for longer than all of them may take together.
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(silence).on_method("ping").times(20));
    for _ in 0..14 {
        pass(secs(10)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(asked("ping") >= 20, "{} were asked", asked("ping"));
    pass(secs(20)).await;
    assert_eq!(join_all(handles.iter().map(count)).await, vec![2; 20]);
    assert_eq!(world.handshakes(), 20);
    world.finish().await;
}

/// P102: a program that starts slower than its callers are patient is not started anew for each of
/// them: it goes on starting, and whoever comes when it is ready is served.
#[tokio::test]
async fn a_program_goes_on_starting_when_its_callers_give_up() {
    let program = Program::ledger(&["--personality", "legacy", "--start-delay-ms", "4000"]);
    let server = program.declared("child");
    let warm = Warmline::builder().server(server).build().unwrap();
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    for _ in 0..3 {
        let call = child.call("counter", json!({}));
        let given_up = call.timeout(Duration::from_millis(200)).await;
        assert_eq!(given_up.unwrap_err().delivery(), Delivery::Unsent);
    }
    let counted = child.call("counter", json!({})).await.unwrap();
    assert_eq!(super::fixture::counted(&counted), 1);
    let started = program.starts();
    assert_eq!(started, 1, "the work of its start was not thrown away");
    run.end().await;
    program.gone().await;
    warm.close().await;
}
