//! Holding: a session belongs to its key, not to whoever opened it, and is given back once.

use crate::prelude::*;

use warmline::Dial;
use warmline_platform::net::{Destination, Dialed, Dialing};

/// One session for all calls of an identity.
fn one_for_all(server: Server) -> Server {
    server
        .session_per(SessionScope::Identity)
        .calls(CallConcurrency::SideBySide)
}

/// A23, P73, P75, reliability I6: a session outlives the task that opened it, and a task that dies in the
/// middle of a call. It is no task itself.
#[tokio::test]
async fn a_session_does_not_belong_to_the_task_that_opened_it() {
    let world = World::with(Personality::legacy(), one_for_all);
    let ledger = world.ledger();
    let opener = ledger.clone();
    assert_eq!(
        tokio::spawn(async move { count(&opener).await })
            .await
            .unwrap(),
        1
    );
    // On a runtime that ends with its thread, too.
    let elsewhere = ledger.clone();
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { count(&elsewhere).await })
    });
    while !other.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.join().unwrap(), 2);
    // The next one dies in the middle of its call.
    let dying = tokio::spawn(ledger.call("slow", json!({"ms": 60_000})).into_future());
    world.under_way("slow", 1).await;
    dying.abort();
    assert!(dying.await.unwrap_err().is_cancelled());
    assert_eq!((count(&ledger).await, world.handshakes()), (3, 1));
    // At rest there is the keeper, and none of a session once its connection was given up.
    for _ in 0..3 {
        pass(secs(10)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    until("only the keeper is left", || tasks() <= 1).await;
    assert_eq!(count(&ledger).await, 4);
    world.finish().await;
}

/// reliability I10, A75: however a call ends, its session is given back once.
#[tokio::test]
async fn a_session_is_given_back_once_however_its_call_ends() {
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Identity).max_per_key(1)
    });
    let ledger = world.ledger();
    let active = || world.warm.snapshot().count("sessions", &["active"]);
    let held = || {
        let sessions = world.warm.snapshot().sessions;
        sessions.iter().map(|session| session.calls).sum::<u32>()
    };
    for round in 0..4 {
        let call = tokio::spawn(ledger.call("slow", json!({"ms": 150})).into_future());
        let begun = round + 1;
        world.under_way("slow", begun).await;
        assert_eq!(held(), 1);
        if round % 2 == 0 {
            call.abort();
        }
        drop(call.await);
        until("it is given back", || held() == 0).await;
        ledger
            .call("fail", json!({}))
            .await
            .unwrap()
            .ok()
            .unwrap_err();
        ledger.request("no/such", json!({})).await.unwrap_err();
        let lease = ledger.lease().await.unwrap();
        let second = lease.clone();
        drop(lease);
        assert_eq!(held(), 1, "a clone still holds it");
        done(second.call("counter", json!({}))).await;
        drop(second);
        assert_eq!(held(), 0);
    }
    assert_eq!(active(), 0);
    assert_eq!(world.server.counts().open_sessions, 1);
    world.finish().await;
}

/// Dials as usual, but for the first time: then it breaks a promise of its own.
#[derive(Debug, Default)]
struct Broken {
    dialed: AtomicUsize,
}

impl Dial for Broken {
    fn label(&self) -> &str {
        "broken once"
    }

    fn dial<'a>(&'a self, to: Destination<'a>) -> Dialing<'a> {
        let number = self.dialed.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            assert!(number > 0, "a panic on purpose");
            let stream = tokio::net::TcpStream::connect((to.host, to.port)).await?;
            Ok(Dialed::Plain(Box::new(stream)))
        })
    }
}

/// reliability I35, reliability I40: a task that panics ends what it was for, and nothing else.
#[tokio::test]
async fn a_panic_ends_the_opening_it_happened_in_and_nothing_else() {
    const CALLS: u64 = 5;
    let world = World::new(Personality::legacy());
    let url = world.server.url();
    let broken = Server::http("broken", url).dial(Broken::default());
    world.add_server(broken);
    let (run, ledger) = world.new_run();
    assert_eq!(count(&ledger).await, 1);
    let broken = run.server("broken").unwrap();
    let calls = (0..CALLS).map(|_| async { payment(&broken, "panic").await.unwrap_err() });
    for error in join_all(calls).await {
        failed_as(&error, "bug", Delivery::Unsent);
    }
    assert_eq!(world.payments("panic"), 0);
    assert_eq!((count(&ledger).await, count(&broken).await), (2, 1));
    run.end().await;
    pass(secs(20)).await;
    // Each of them was told, and a person is to look at it.
    world.finish_after_faults(CALLS).await;
}

/// reliability I38: no lock is held over an await: its guard cannot travel between threads, and
/// every future of the library can.
#[tokio::test]
async fn every_future_of_the_library_can_travel() {
    fn travels<F: Future + Send>(future: F) -> F {
        future
    }
    let warm = Warmline::builder().build().unwrap();
    let run = warm.begin_run();
    travels(run.lease("none")).await.unwrap_err();
    let nowhere = warm.once(Server::http("none", "http://127.0.0.1:1/mcp"));
    travels(nowhere.call("a", json!({})).into_future())
        .await
        .unwrap_err();
    travels(nowhere.tools()).await.unwrap_err();
    travels(nowhere.info()).await.unwrap_err();
    travels(nowhere.lease()).await.unwrap_err();
    travels(nowhere.call_by_exposed_name("a", json!({})))
        .await
        .unwrap_err();
    let mut events = warm.events();
    drop(travels(events.next()));
    travels(run.end()).await;
    travels(warm.close()).await;
}

/// A186: a session that the server gave for a time is replaced before that, between two calls.
#[tokio::test]
async fn a_session_is_replaced_before_its_stated_expiry() {
    let world = World::with(Personality::legacy().advertised_expiry(100), one_for_all);
    let ledger = world.ledger();
    let read = || ledger.call("get", json!({"key": "a"})).repeatable();
    assert_eq!(read().await.unwrap().generation(), 1);
    let snapshot = world.warm.snapshot();
    let [session] = &snapshot.sessions[..] else {
        panic!("{:?}", snapshot.sessions);
    };
    let ends = session.expires_at.unwrap();
    let holds = (95..=100).contains(&(ends - session.opened_at));
    assert!(holds, "{session:?}");
    pass(secs(85)).await;
    let slow = ledger.call("slow", json!({"ms": 200})).repeatable();
    let slow = tokio::spawn(slow.into_future());
    world.under_way("slow", 1).await;
    pass(secs(10)).await;
    let slow = slow.await.unwrap().unwrap();
    assert_eq!((slow.generation(), slow.attempts()), (1, 1), "not under it");
    let next = read().await.unwrap();
    assert_eq!((next.generation(), next.attempts()), (2, 1));
    assert!(!next.state_lost());
    until("the old one is ended", || world.received("DELETE") == 1).await;
    world.finish().await;
}

/// P39, P41: whatever was opened and closed, nothing of it is kept: ten thousand sessions, half of
/// them for one call each and half for one run each.
#[tokio::test]
async fn openings_and_closings_leave_an_empty_table() {
    const SIDE_BY_SIDE: u64 = 50;
    let pairs = 5_000;
    let world = World::with(Personality::legacy(), |server| {
        server.session_per(SessionScope::Call)
    });
    let ledger = world.ledger();
    for _ in 0..pairs / SIDE_BY_SIDE {
        join_all((0..SIDE_BY_SIDE).map(|_| count(&ledger))).await;
    }
    for round in 0..pairs / SIDE_BY_SIDE {
        let people = (0..SIDE_BY_SIDE).map(|number| {
            let run = world
                .warm
                .identity(&format!("{round}, {number}"))
                .begin_run();
            async move {
                count(&run.server(LEDGER).unwrap()).await;
                run.end().await;
            }
        });
        join_all(people).await;
    }
    world.no_session_left().await;
    assert_eq!(world.server.counts().sessions, 2 * pairs);
    assert_eq!(world.received("DELETE") as u64, 2 * pairs);
    let snapshot = world.warm.snapshot();
    assert!(snapshot.sessions.is_empty() && snapshot.runs.is_empty());
    assert_eq!(snapshot.count("keys", &[]), 0);
    world.finish().await;
}

/// P93: a server that has one session only serves one key, and the others are told that by name.
#[tokio::test]
async fn a_server_of_one_session_is_refused_by_name() {
    let world = World::new(Personality::legacy());
    let first = world.warm.identity("first").begin_run();
    let held = first.server(LEDGER).unwrap();
    assert_eq!(count(&held).await, 1);
    let taken = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#;
    let rule = FaultRule::new(Fault::Reply(CannedReply::new(400, taken).json()));
    world.inject(rule.on_method("initialize").always());
    let second = world.warm.identity("second").begin_run();
    let other = second.server(LEDGER).unwrap();
    let calls = (0..5).map(|number| {
        let (other, account) = (other.clone(), format!("taken {number}"));
        async move { payment(&other, &account).await.unwrap_err() }
    });
    for error in join_all(calls).await {
        assert_eq!(error.reason(), Reason::SingleSession, "{error:?}");
        assert_eq!(error.delivery(), Delivery::Unsent);
        assert_eq!(error.server(), Some(LEDGER));
    }
    // Whoever has it is served as before, any number at a time.
    let mut counts = join_all((0..5).map(|_| count(&held))).await;
    counts.sort_unstable();
    assert_eq!(counts, [2, 3, 4, 5, 6]);
    first.end().await;
    world.control().clear_faults();
    assert_eq!(count(&other).await, 1);
    world.finish().await;
}

/// P127: ages at which a server dropped sessions are remembered and shown, and clean sessions are
/// replaced before that age.
#[tokio::test]
async fn sessions_are_renewed_before_the_age_at_which_a_server_drops_them() {
    let world = World::with(Personality::legacy(), |server| {
        one_for_all(server).with_policy(|policy| {
            policy.check_after = secs(100_000);
            policy.health_check_interval = secs(100_000);
            policy.max_age = Some(Duration::ZERO);
        })
    });
    let ledger = world.ledger();
    let read = || ledger.call("get", json!({"key": "a"})).repeatable();
    read().await.unwrap().ok().unwrap();
    let mut generation = 1;
    // It drops each at the same age, and says nothing of it.
    for _ in 0..5 {
        pass(secs(900)).await;
        world.control().forget_sessions();
        let healed = read().await.unwrap();
        assert!(healed.generation() > generation);
        generation = healed.generation();
    }
    let ages = world.warm.snapshot();
    let server = ages.server(LEDGER).unwrap();
    let holds = server.count("session_gone_age_seconds", &[]) >= 3;
    assert!(holds, "{server:?}");
    // By now it is known.
    let before = world.handshakes();
    pass(secs(880)).await;
    let renewed = read().await.unwrap();
    assert_eq!((renewed.attempts(), world.handshakes()), (1, before + 1));
    world.finish().await;
}
