//! Runs: who belongs to one, and when it ends.

use crate::prelude::*;

use std::collections::HashSet;

use warmline::{Caller, InCurrentRun};

fn engine() -> Warmline {
    Warmline::builder().build().unwrap()
}

/// A1, A2, A8: the current run is none, then the run, then none again.
#[tokio::test]
async fn the_current_run_is_none_before_and_after() {
    assert_eq!(Run::current_name(), None);
    let error = Run::current().unwrap_err();
    assert_eq!(error.code().as_str(), "run-unknown");
    assert!(error.hint().unwrap().contains("in_current_run"));
    let warm = engine();
    let name = warm
        .run(async |run| {
            // Before anything else happens it is there.
            assert_eq!(Run::current_name().as_deref(), Some(run.name()));
            assert!(run.is_live());
            run.name().to_owned()
        })
        .await;
    assert_eq!(Run::current_name(), None);
    assert!(warm.join_run(&name).is_err());
    warm.close().await;
}

/// A3, S26: names of runs differ, begin alike, and hold 128 random bits.
#[tokio::test]
async fn names_of_runs_differ_and_begin_alike() {
    let warm = engine();
    let mut names = HashSet::new();
    for _ in 0..20_000 {
        let run = warm.begin_run();
        let name = run.name().to_owned();
        let (head, digits) = name.split_at(4);
        assert_eq!(head, "run_");
        assert!(digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert!(names.insert(name));
        run.end().await;
    }
    assert_eq!(warm.snapshot().runs.len(), 0);
    warm.close().await;
    drop(warm);
    nothing_left().await;
}

/// A4: children read the name of their parent's run, side by side and spawned.
#[tokio::test]
async fn children_belong_to_the_run_of_their_parent() {
    let warm = engine();
    warm.run(async |run| {
        let name = || async { Run::current_name().unwrap() };
        let spawned = tokio::spawn(name().in_current_run());
        let unaware = tokio::spawn(async { Run::current_name() });
        let (one, two, spawned) = tokio::join!(name(), name(), spawned);
        for read in [one, two, spawned.unwrap()] {
            assert_eq!(read, run.name());
        }
        assert_eq!(unaware.await.unwrap(), None);
        run.sync_scope(|| assert_eq!(Run::current_name().as_deref(), Some(run.name())));
    })
    .await;
    warm.close().await;
}

/// A5, A57: a child that goes its own way changes nothing for the others, and the scope closes what
/// it began itself.
#[tokio::test]
async fn a_child_with_a_run_of_its_own_changes_nothing_for_others() {
    let world = World::new(Personality::legacy());
    let warm = &world.warm;
    let here = || async {
        tokio::task::yield_now().await;
        let counted = count(&world.ledger()).await;
        (Run::current_name().unwrap(), counted)
    };
    let began = warm
        .run(async |run| {
            let other = warm.named_run("other").unwrap();
            let (inside, beside) = tokio::join!(other.scope(here()), here());
            assert_eq!(inside, ("other".to_owned(), 1));
            assert_eq!(beside, (run.name().to_owned(), 1));
            assert_eq!(here().await, (run.name().to_owned(), 2));
            assert!(other.is_root());
            other.detach();
            run.name().to_owned()
        })
        .await;
    // The scope ended what it began, and not what was named inside of it.
    assert!(warm.join_run(&began).is_err());
    assert_eq!(world.server.counts().open_sessions, 1);
    let other = warm.join_run("other").unwrap();
    assert_eq!(count(&other.server(LEDGER).unwrap()).await, 2);
    drop(other);
    world.finish().await;
}

/// A7, A56: only the outermost scope is the root; an inner one joins it and closes nothing.
#[tokio::test]
async fn an_inner_scope_joins_the_outer_one() {
    let world = World::new(Personality::legacy());
    world
        .warm
        .run(async |outer| {
            assert!(outer.is_root());
            assert!(!Run::current().unwrap().is_root());
            assert!(!outer.clone().is_root());
            assert_eq!(count(&outer.server(LEDGER).unwrap()).await, 1);
            let warm = &world.warm;
            let inner = warm
                .run(async |inner| {
                    assert!(!inner.is_root());
                    assert_eq!(count(&inner.server(LEDGER).unwrap()).await, 2);
                    inner.name().to_owned()
                })
                .await;
            assert_eq!(inner, outer.name());
            let joined = warm.join_run(outer.name()).unwrap();
            assert!(!joined.is_root());
            drop(joined);
            assert_eq!(count(&outer.server(LEDGER).unwrap()).await, 3);
        })
        .await;
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}

/// A10: whoever knows the name of a run is in it, on a thread that knows of no run and in a pool of
/// blocking work too, and uses its session. Other processes are told in the same way: by the name.
#[tokio::test]
async fn a_run_is_handed_over_by_its_name() {
    let world = World::new(Personality::legacy());
    let alice = world.warm.identity("alice");
    let run = alice.named_run("thread-7").unwrap();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    let name = run.name().to_owned();
    let joined = alice.join_run(&name).unwrap();
    assert_eq!(count(&joined.server(LEDGER).unwrap()).await, 2);
    let named = alice.named_run(&name).unwrap();
    assert!(!named.is_root());
    drop(named);
    let runtime = tokio::runtime::Handle::current();
    let elsewhere = |alice: Caller, name: String| {
        let runtime = runtime.clone();
        move || {
            assert_eq!(Run::current_name(), None);
            let joined = alice.join_run(&name).unwrap();
            runtime.block_on(async { count(&joined.server(LEDGER).unwrap()).await })
        }
    };
    let blocking = tokio::task::spawn_blocking(elsewhere(alice.clone(), name.clone()));
    assert_eq!(blocking.await.unwrap(), 3);
    let (done, counted) = tokio::sync::oneshot::channel();
    let in_thread = elsewhere(alice.clone(), name);
    let thread = std::thread::spawn(move || done.send(in_thread()).unwrap());
    assert_eq!(counted.await.unwrap(), 4);
    thread.join().unwrap();
    assert_eq!(world.handshakes(), 1);
    // Nothing is named in this environment.
    assert!(world.warm.run_from_env().unwrap().is_none());
    world.finish().await;
}

/// A11: engines share nothing; the one of the process is the same on every access.
#[tokio::test]
async fn engines_share_nothing() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let engines = [engine(), engine()];
    for warm in &engines {
        warm.add_server(Server::http(LEDGER, server.url())).unwrap();
        let run = warm.named_run("same").unwrap();
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
        run.detach();
    }
    assert_eq!(server.counts().sessions, 2);
    for warm in engines {
        warm.close().await;
    }
    let name = "of-the-process";
    let process = Warmline::process().unwrap();
    process
        .add_server(Server::http(name, server.url()))
        .unwrap();
    let again = Warmline::process().unwrap();
    assert!(again.server_names().contains(&name.to_owned()));
    assert!(again.remove_server(name));
}

/// A7, P74: a named run is ended by what began it, and by nobody who joined.
#[tokio::test]
async fn only_what_began_a_run_ends_it() {
    let world = World::new(Personality::legacy());
    let began = world.warm.named_run("n").unwrap();
    count(&began.server(LEDGER).unwrap()).await;
    drop(world.warm.named_run("n").unwrap());
    drop(began.clone());
    assert_eq!(count(&began.server(LEDGER).unwrap()).await, 2);
    drop(began);
    until("the run is over", || world.warm.join_run("n").is_err()).await;
    world.no_session_left().await;
    // The same name begins another run.
    let again = world.warm.named_run("n").unwrap();
    assert!(again.is_root());
    assert_eq!(count(&again.server(LEDGER).unwrap()).await, 1);
    world.finish().await;
}

/// A run that was detached goes on until it rests too long.
#[tokio::test]
async fn a_run_that_rests_too_long_ends() {
    let world = World::new(Personality::legacy());
    let run = world.warm.named_run("resting").unwrap();
    count(&run.server(LEDGER).unwrap()).await;
    run.detach();
    pass(secs(20 * 60)).await;
    let joined = world.warm.join_run("resting").unwrap();
    assert_eq!(count(&joined.server(LEDGER).unwrap()).await, 2);
    for _ in 0..4 {
        pass(secs(10 * 60)).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until("the run is over", || !joined.is_live()).await;
    let error = joined.server(LEDGER).unwrap().ping().await.unwrap_err();
    failed_as(&error, "run-ended", Delivery::Unsent);
    world.finish().await;
}

/// A41: names that no run may have are errors, whoever gives them: what separates the parts of a
/// key anywhere else is among them.
#[tokio::test]
async fn bad_names_are_errors() {
    let warm = engine();
    let long = "x".repeat(129);
    for bad in [
        "",
        ".",
        "..",
        "a b",
        "a/b",
        "x:b",
        "é",
        "a\n",
        long.as_str(),
    ] {
        for error in [
            warm.named_run(bad).unwrap_err(),
            warm.join_run(bad).unwrap_err(),
        ] {
            assert_eq!(error.delivery(), Delivery::Unsent);
            assert!(error.hint().unwrap().contains("128"), "{error:?}");
        }
    }
    for good in ["a", "...", "A-b_c.d~9", &"x".repeat(128)] {
        warm.named_run(good).unwrap().end().await;
    }
    let code = warm.join_run("never").unwrap_err().code().as_str();
    assert_eq!(code, "run-unknown");
    warm.close().await;
}

/// A run may not be a fork bomb: one identity has so many at a time, others are not concerned.
#[tokio::test]
async fn an_identity_has_so_many_runs_at_a_time() {
    let world = World::with_engine(Personality::legacy(), |builder| {
        builder.limits(|limits| limits.runs_per_identity = 3)
    });
    let alice = world.warm.identity("alice");
    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = alice.begin_run();
        count(&run.server(LEDGER).unwrap()).await;
        runs.push(run);
    }
    let fourth = alice.begin_run();
    let call = fourth.server(LEDGER).unwrap().call("counter", json!({}));
    let error = call.await.unwrap_err();
    failed_as(&error, "overloaded", Delivery::Unsent);
    // Nobody knows when a run ends, so nothing is said of it.
    assert_eq!(error.retry_after(), None, "{error:?}");
    // A name begins no more of them, and still joins those that live.
    let named = alice.named_run("by-name").unwrap_err();
    assert_eq!(named.code().as_str(), "overloaded", "{named:?}");
    drop(alice.named_run(runs[0].name()).unwrap());
    let bob = world.warm.identity("bob").begin_run();
    count(&bob.server(LEDGER).unwrap()).await;
    bob.end().await;
    // Where one ends, who was refused before is not any more.
    runs.remove(0).end().await;
    count(&fourth.server(LEDGER).unwrap()).await;
    assert!(alice.named_run("by-name").is_err());
    drop(runs.remove(0));
    alice.named_run("by-name").unwrap().end().await;
    fourth.end().await;
    world.finish().await;
}

/// A server that is unknown is named with the nearest one.
#[tokio::test]
async fn an_unknown_server_is_named_with_the_nearest() {
    let world = World::new(Personality::legacy());
    let run = world.begin_run();
    for error in [
        world.warm.server("ledgr").unwrap_err(),
        run.server("ledgr").unwrap_err(),
        run.lease("ledgr").await.unwrap_err(),
    ] {
        failed_as(&error, "server-unknown", Delivery::Unsent);
        assert!(error.hint().unwrap().contains("ledger"), "{error:?}");
    }
    world.finish().await;
}
