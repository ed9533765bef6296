//! Closing: the end of a run closes its sessions, all of them and no others, in bounded time.

use crate::prelude::*;

use futures_util::FutureExt;
use warmline_upstream::Timeouts;

/// A server that goes by so many names, so that a run has a session with each.
pub(crate) fn of_many_names(names: &[String]) -> World {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url();
    let more: Vec<Server> = names.iter().map(|name| Server::http(name, &url)).collect();
    World::around(server, |declared| declared, |builder| builder.servers(more))
}

/// So many names.
pub(crate) fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("s{number}")).collect()
}

/// A session of the run with each of these servers.
async fn open_all(run: &Run, names: &[String]) {
    let opening = names.iter().map(|name| async {
        count(&run.server(name).unwrap()).await;
    });
    join_all(opening).await;
}

/// The next so many sessions are not ended by the server, whatever it is told.
fn mute(world: &World, deletes: u32) {
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    let rule = FaultRule::new(silence).on_method("DELETE").times(deletes);
    world.inject(rule);
}

fn deletes(world: &World) -> usize {
    world.received("DELETE")
}

/// A42, P24: the run that is done first closes nothing of the others, also in the middle of a call.
#[tokio::test]
async fn the_end_of_one_run_touches_no_other() {
    let world = World::new(Personality::legacy());
    let (first, second) = (world.warm.begin_run(), world.warm.begin_run());
    count(&first.server(LEDGER).unwrap()).await;
    let ledger = second.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    let working = tokio::spawn(ledger.call("slow", json!({"ms": 300})).into_future());
    world.under_way("slow", 1).await;
    first.end().await;
    assert_eq!((deletes(&world), working.is_finished()), (1, false));
    assert_eq!(working.await.unwrap().unwrap().attempts(), 1);
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 2));
    world.finish().await;
}

/// A44, A131: what the server does not end is told with its key and keeps nothing else open, and
/// the run's result is there.
#[tokio::test]
async fn one_session_that_fails_to_close_keeps_no_other_open() {
    let names = names(10);
    let world = of_many_names(&names);
    let mut told = world.warm.events();
    let broken = Fault::Reply(CannedReply::new(500, "no"));
    world.inject(FaultRule::new(broken).on_method("DELETE"));
    let result = world
        .warm
        .run(async |run| {
            open_all(&run, &names).await;
            "the result"
        })
        .await;
    assert_eq!(result, "the result");
    assert_eq!(world.server.counts().open_sessions, 1);
    assert_eq!(deletes(&world), 10, "each was asked once");
    assert!(world.warm.snapshot().sessions.is_empty());
    let mut not_ended = Vec::new();
    let mut run_of = None;
    while let Some(Some(EventItem::Event(event))) = told.next().now_or_never() {
        if let Event::RunEnded { identity, run, .. } = event {
            run_of = Some((identity, run));
        } else if let Event::SessionNotEnded { session, what } = event {
            not_ended.push((session, what));
        }
    }
    let [(session, what)] = not_ended.as_slice() else {
        panic!("one warning for one session: {not_ended:?}");
    };
    assert!(names.contains(&session.server.to_string()), "{session:?}");
    let found = session.identity.zip(session.run);
    assert_eq!(found, run_of, "it names the key");
    assert!(what.contains("500"), "{what}");
    world.control().forget_sessions();
    world.finish().await;
}

/// A43, A45, A149, A192: twenty sessions that are slow to end are ended side by side, each in its own time.
#[tokio::test]
async fn twenty_slow_closes_happen_at_the_same_time() {
    let names = names(20);
    let world = of_many_names(&names);
    let (run, other) = (world.warm.begin_run(), world.warm.begin_run());
    open_all(&run, &names).await;
    let other = other.server(&names[0]).unwrap();
    assert_eq!(count(&other).await, 1);
    mute(&world, 20);
    let ending = tokio::spawn(run.end());
    until("all were asked to end", || deletes(&world) == 20).await;
    assert_eq!(count(&other).await, 2, "another run goes on");
    assert!(!ending.is_finished());
    // The time that one of them has is the time that all have.
    pass(secs(2)).await;
    let ended = tokio::time::timeout(secs(1), ending).await;
    ended.expect("no more than two seconds for all").unwrap();
    world.control().forget_sessions();
    world.finish().await;
}

/// A133: what was acquired step by step is given back in reverse: an opening that fails at its
/// last step ends the session first and its connection after it.
#[tokio::test]
async fn what_was_acquired_step_by_step_is_released_in_reverse() {
    let world = World::new(Personality::legacy());
    let refusal = Fault::Reply(CannedReply::new(500, "not now"));
    let rule = FaultRule::new(refusal).on_method("notifications/initialized");
    world.inject(rule.always());
    let (run, ledger) = world.new_run();
    let error = world.pay(&ledger, "half open").await.unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
    let given = world.server.counts().sessions;
    let is_so = || deletes(&world) as u64 == given;
    until("what was given is ended", is_so).await;
    let entries = world.server.ledger().entries();
    let began = entries.iter().find(|entry| entry.method == "initialize");
    let ended = entries.iter().find(|entry| entry.method == "DELETE");
    let connections = [began, ended].map(|entry| entry.unwrap().connection);
    assert_eq!(
        connections[0], connections[1],
        "the connection outlived the session"
    );
    // On the way down the same: never before, then the session, then the connection.
    world.control().clear_faults();
    assert_eq!(count(&ledger).await, 1);
    assert_eq!(deletes(&world) as u64, given);
    run.end().await;
    assert_eq!(deletes(&world) as u64, given + 1);
    world.finish().await;
}

/// P38: every session is ended with DELETE, spares and those of single calls too.
#[tokio::test]
async fn every_session_is_ended_with_delete() {
    let world = World::with(Personality::legacy(), |server| server.spares(2));
    let run = world.warm.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    for _ in 0..3 {
        count(&world.ledger()).await;
    }
    until("the spares are there, and no others", || {
        let seen = world.server.counts();
        seen.sessions >= 6 && seen.open_sessions == 3
    })
    .await;
    run.end().await;
    world.warm.close().await;
    let seen = world.server.counts();
    assert_eq!(deletes(&world) as u64, seen.sessions);
    let ended = world.server.ledger().entries().into_iter();
    let mut ended: Vec<_> = ended
        .filter(|entry| entry.phase == ExecutionPhase::Received && entry.method == "DELETE")
        .map(|entry| entry.session)
        .collect();
    ended.sort();
    ended.dedup();
    assert_eq!(ended.len() as u64, seen.sessions, "each once");
    world.finish().await;
}

/// A87, reliability P25: who does not wait for calls has them cut, inside of runs and outside, also
/// where a close that does wait is under way; servers hear of it, and nothing is left.
#[tokio::test]
async fn a_close_that_does_not_wait_cuts_and_tells_every_call() {
    let world = World::new(Personality::legacy());
    let run = world.warm.begin_run();
    let callers = [run.server(LEDGER).unwrap(), world.ledger()];
    let calling = callers.map(|ledger| {
        tokio::spawn(async move { ledger.call("slow", json!({"ms": 60_000})).await })
    });
    world.under_way("slow", 2).await;
    let waiting = world.warm.clone();
    let waiting = tokio::spawn(async move { waiting.close().await });
    let is_so = || world.warm.snapshot().runs.is_empty() || !run.is_live();
    until("nothing new is taken", is_so).await;
    world.warm.close_within(secs(2)).await;
    for call in calling {
        let error = call.await.unwrap().unwrap_err();
        failed_as(&error, "draining", Delivery::Unknown);
    }
    waiting.await.unwrap();
    let cancels = world.received("notifications/cancelled");
    assert_eq!(cancels, 2);
    // Two kinds of callers may meet a server at the same moment; what one of them opens too much is
    // ended like the others.
    assert_eq!(deletes(&world) as u64, world.server.counts().sessions);
    drop(run);
    world.finish().await;
}

/// reliability P25, I37: after a close no connection rests and no task is left, though somebody
/// still has the engine.
#[tokio::test]
async fn after_a_close_no_connection_is_left() {
    let world = World::with(Personality::legacy(), |server| {
        server.times(Timeouts {
            connection_idle: secs(3600),
            ..Timeouts::default()
        })
    });
    let run = world.warm.begin_run();
    count(&run.server(LEDGER).unwrap()).await;
    run.end().await;
    assert!(world.server.counts().open_connections > 0, "one rests");
    world.warm.close().await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let is_so = || (world.server.counts().open_connections, tasks()) == (0, 0);
    until("no connection and no task is left", is_so).await;
    world.finish().await;
}

/// P36, P68: the result comes first; a server that does not end its session delays nobody.
#[tokio::test]
async fn a_result_never_waits_for_a_close() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Call)
    });
    mute(&world, 3);
    for _ in 0..3 {
        assert_eq!(count(&world.ledger()).await, 1);
    }
    until("all were asked to end", || deletes(&world) == 3).await;
    assert_eq!(world.server.counts().open_sessions, 3);
    pass(secs(2)).await;
    world.control().forget_sessions();
    world.finish().await;
}

/// P36: the same for a process that ignores the end of its input.
#[tokio::test]
async fn a_result_never_waits_for_the_end_of_a_process() {
    let program = Program::ledger(&["--personality", "legacy", "--ignore-eof", "--ignore-term"]);
    let server = program.declared("child").session_per(SessionScope::Call);
    let warm = Warmline::builder().server(server).build().unwrap();
    let child = warm.server("child").unwrap();
    let result = child.call("counter", json!({})).await.unwrap();
    assert_eq!(result.attempts(), 1);
    assert_eq!(program.starts(), 1, "it is still there");
    warm.close().await;
    program.gone().await;
    drop((warm, child));
    nothing_left().await;
}

/// A87: whoever gives up while an engine closes, and drops it, leaves no session either.
#[tokio::test]
async fn a_close_that_is_given_up_leaves_nothing_behind() {
    let shared = |server: Server| server.session_per(SessionScope::Identity);
    let World { server, warm, .. } = World::with(Personality::legacy(), shared);
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    warm.add_server(Server::http("other", other.url())).unwrap();
    let ledger = warm.server(LEDGER).unwrap();
    assert_eq!(count(&ledger).await, 1);
    // The grace of its call is what the close waits for.
    let run = warm.begin_run();
    let called = run.server("other").unwrap();
    let slow = called.call("slow", json!({ "ms": 60_000 }));
    let slow = tokio::spawn(slow.into_future());
    let is_so = || other.ledger().started_executions("slow") == 1;
    until("a call is under way", is_so).await;
    assert!(warm.close().now_or_never().is_none(), "it waits");
    drop((warm, ledger, called, run));
    pass(secs(6)).await;
    let error = slow.await.unwrap().unwrap_err();
    assert_eq!(error.delivery(), Delivery::Unknown, "{error:?}");
    let is_so = || [&server, &other].map(|server| server.counts().open_sessions) == [0, 0];
    until("no session is left", is_so).await;
    nothing_left().await;
}

/// What is told so far of the sessions that ended, and why.
fn ends(told: &mut EventSubscription) -> Vec<String> {
    let mut ends = Vec::new();
    while let Some(heard) = told.next().now_or_never().flatten() {
        match heard {
            EventItem::Event(Event::SessionGone { cause, .. }) => {
                ends.push(cause.as_str().to_owned());
            },
            EventItem::Event(Event::SessionClosed { why, .. }) => {
                ends.push(why.as_str().to_owned());
            },
            EventItem::Event(_) | EventItem::Missed(_) => {},
        }
    }
    ends
}

/// reliability P5: sessions that an operator closes say nothing of their server: all who had them go
/// on with new ones, and it is told who closed them.
#[tokio::test]
async fn sessions_that_an_operator_closes_stop_nobody() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let world = World::new(Personality::legacy());
    world.add_server(program.declared("child"));
    for (server, used) in [
        (LEDGER, true),
        (LEDGER, false),
        ("child", true),
        ("child", false),
    ] {
        let tenant = |number| world.warm.identity(&format!("tenant {number}")).begin_run();
        let runs: Vec<Run> = (0..8).map(tenant).collect();
        for run in &runs {
            let handle = run.server(server).unwrap();
            match used {
                true => drop(count(&handle).await),
                false => drop(handle.info().await.unwrap()),
            }
        }
        let mut told = world.warm.events();
        assert_eq!(world.warm.close_sessions(server, None), 8);
        for run in &runs {
            let again = run.server(server).unwrap().call("counter", json!({})).await;
            let again = again.unwrap_or_else(|error| panic!("{server}: {error:?}"));
            assert_eq!((again.generation(), again.state_lost()), (2, used));
        }
        let mut all = Vec::new();
        until("all are closed", || {
            all.extend(ends(&mut told));
            all.len() >= 8
        })
        .await;
        assert_eq!(all, ["by-operator"; 8], "{server}");
        for run in runs {
            run.end().await;
        }
    }
    world.finish().await;
    program.gone().await;
}
