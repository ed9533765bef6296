//! The line for a session that is lost: whoever stood first is served first, on the new one too.

use crate::prelude::*;

use tokio::task::JoinHandle;

type Paying = JoinHandle<Result<ToolResult, Error>>;

/// Calls that stand in line, one after the other, for as long as somebody holds the session.
async fn in_line(world: &World, handle: &ServerHandle, number: usize) -> Vec<Paying> {
    let mut line = Vec::new();
    for place in 0..number {
        let pay = payment(handle, &format!("a{place}"));
        line.push(tokio::spawn(pay.into_future()));
        let stand = u64::try_from(place + 1).unwrap();
        let is_so = || world.number("waiters", &[]) == stand;
        until("it stands in line", is_so).await;
    }
    line
}

/// Who was paid for, in this order.
fn paid(world: &World) -> Vec<String> {
    let entries = world.server.ledger().entries();
    let paid = entries
        .iter()
        .filter(|entry| entry.phase == ExecutionPhase::Commit);
    let accounts = paid.filter_map(|entry| entry.arguments["account"].as_str());
    accounts.map(str::to_owned).collect()
}

/// reliability I15, reliability P12: the order of the line outlives the session that it waits for,
/// and those who leave it.
#[tokio::test]
async fn a_line_keeps_its_order_when_its_session_is_lost() {
    for per in [SessionScope::Identity, SessionScope::Run] {
        let world = World::with(Personality::legacy(), |server| {
            server.session_per(per).max_per_key(1).serial()
        });
        let run = world.begin_run();
        let lease = run.lease(LEDGER).await.unwrap();
        let line = in_line(&world, &run.server(LEDGER).unwrap(), 12).await;
        for gone in [0, 4, 5] {
            line[gone].abort();
        }
        until("they left", || world.number("waiters", &[]) == 9).await;
        world.control().forget_sessions();
        drop(lease);
        for paying in line {
            if let Ok(paid) = paying.await {
                paid.unwrap().ok().unwrap();
            }
        }
        let stayed = [1, 2, 3, 6, 7, 8, 9, 10, 11];
        let order = stayed.map(|place| format!("a{place}"));
        assert_eq!(paid(&world), order, "{per:?}");
        world.finish().await;
    }
}

/// reliability I15, reliability P12: whoever had its turn, and met a lost session, is not sent away
/// because others stand in line by now.
#[tokio::test]
async fn a_full_line_sends_nobody_away_who_had_its_turn() {
    let world = World::built(
        Personality::legacy(),
        |server| server.serial(),
        |builder| builder.limits(|limits| limits.waiters_per_key = 5),
    );
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let lease = run.lease(LEDGER).await.unwrap();
    let line = in_line(&world, &ledger, 5).await;
    world.control().forget_sessions();
    drop(lease);
    // The first has its turn now, and its place in line goes to another.
    let late = tokio::spawn(payment(&ledger, "late").into_future());
    for paying in line {
        paying.await.unwrap().unwrap().ok().unwrap();
    }
    drop(late.await.unwrap());
    world.finish().await;
}

/// reliability P12: whoever is first in line, and meets a lost session, does not wait its whole time
/// again behind all others.
#[tokio::test]
async fn a_call_that_is_healed_waits_in_line_once() {
    let world = World::with(Personality::legacy(), |server| {
        server.serial().with_policy(|policy| policy.wait = secs(2))
    });
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let lease = run.lease(LEDGER).await.unwrap();
    let first = in_line(&world, &ledger, 1).await.pop().unwrap();
    let slow = || ledger.call("slow", json!({ "ms": 700 })).into_future();
    let others: Vec<_> = (0..4).map(|_| tokio::spawn(slow())).collect();
    until("all stand in line", || world.number("waiters", &[]) == 5).await;
    world.control().forget_sessions();
    drop(lease);
    let began = Instant::now();
    first.await.unwrap().unwrap().ok().unwrap();
    assert!(began.elapsed() < Duration::from_millis(700), "it was first");
    for other in others {
        // Four of 700 ms do not fit into two seconds.
        drop(other.await.unwrap());
    }
    world.finish().await;
}

/// P14, reliability P14: the time in line and the time of an opening are two limits. Whoever stood in
/// line for nearly all of the one still has the other, and does not see that the session was lost.
#[tokio::test]
async fn a_call_that_stood_in_line_for_long_is_healed_all_the_same() {
    let world = World::with(Personality::legacy(), |server| server.serial());
    let run = world.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let lease = run.lease(LEDGER).await.unwrap();
    let paying = in_line(&world, &ledger, 1).await.pop().unwrap();
    // It waits for 30 s at most.
    pass(Duration::from_millis(29_500)).await;
    world.control().forget_sessions();
    let slow = Fault::Delay(1_000, FaultTiming::BeforeExecuting);
    world.inject(FaultRule::new(slow).on_method("initialize"));
    drop(lease);
    paying.await.unwrap().unwrap().ok().unwrap();
    assert_eq!(world.handshakes(), 2);
    world.finish().await;
}
