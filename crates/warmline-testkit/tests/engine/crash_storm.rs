//! A server that is killed again and again while it is called: nothing runs twice that must not,
//! and every caller is told the truth.

use crate::prelude::*;

use rustix::process::{Pid, Signal, kill_process};
use warmline_testkit::census;

use super::fixture::ReportedOutcomes;

/// Says the seed of a story that failed.
struct Seed(u64);

impl Seed {
    /// A new one, or the one that the environment names.
    fn new() -> Self {
        let named = std::env::var("STORY_SEED").ok();
        let named = named.and_then(|seed| seed.parse().ok());
        Self(named.unwrap_or_else(|| fastrand::u64(..)))
    }

    fn dice(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.0)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the same dice again: STORY_SEED={}", self.0);
        }
    }
}

const WORKERS: usize = 20;
const CALLS: usize = 50;

/// How many times as long a storm takes as usual: `make soak` asks for more.
fn strength() -> usize {
    let asked = std::env::var("WARMLINE_STORM").ok();
    asked.map_or(1, |asked| asked.parse().unwrap())
}

/// Waits for a while in real time: the story is about moments nobody chose.
async fn while_away(dice: &mut fastrand::Rng, most_ms: u64) {
    tokio::time::sleep(Duration::from_micros(dice.u64(0..most_ms * 1000))).await;
}

/// A120, A128, P1, P84, reliability P6, reliability P7, reliability P8: a thousand payments to
/// a server that is killed fifty times.
#[tokio::test]
async fn a_server_that_is_killed_fifty_times_makes_no_payment_twice() {
    let seed = Seed::new();
    let world = World::with(Personality::legacy(), |server| {
        server.with_policy(|policy| {
            policy.breaker.reset = Duration::from_millis(20);
            policy.breaker.longest = Duration::from_millis(100);
        })
    });
    // Answers take a moment, so that there is always one on its way when the server dies.
    let slow = FaultRule::new(Fault::Delay(10, FaultTiming::AfterExecuting));
    world.inject(slow.on_tool("pay").always());
    let ledger = world.in_run();
    let cut = AtomicUsize::new(0);
    let mut dice = seed.dice();
    let workers = join_all((0..WORKERS).map(|worker| {
        let (world, ledger, cut, mut dice) = (&world, &ledger, &cut, dice.fork());
        async move {
            for number in 0..CALLS * strength() {
                // What failed is told; the world holds it against the ledger in the end.
                let paid = world.pay(ledger, &format!("{worker}, {number}")).await;
                if paid.is_err_and(|error| error.delivery() == Delivery::Unknown) {
                    cut.fetch_add(1, Ordering::Relaxed);
                }
                while_away(&mut dice, 60).await;
            }
        }
    }));
    let killer = async {
        for _ in 0..50 * strength() {
            while_away(&mut dice, 30).await;
            world.server.restart().unwrap();
        }
    };
    tokio::join!(workers, killer);
    for worker in 0..WORKERS {
        for number in 0..CALLS * strength() {
            let account = format!("{worker}, {number}");
            assert!(world.payments(&account) <= 1, "{account} was paid twice");
        }
    }
    assert!(world.handshakes() > 10, "it was not much of a storm");
    let cut = cut.into_inner();
    assert!(cut >= 10, "only {cut} calls were cut on their way");
    // After the storm everything works.
    let paid = world.pay(&ledger, "after the storm").await;
    paid.unwrap().ok().unwrap();
    world.finish().await;
}

/// A48, A128, P1, reliability P7, reliability P8: the same for a program that is killed.
#[tokio::test]
async fn a_program_that_is_killed_makes_no_payment_twice() {
    let seed = Seed::new();
    let program = Program::ledger(&["--personality", "legacy"]);
    let declared = program.declared("child").with_policy(|policy| {
        policy.breaker.reset = Duration::from_millis(20);
        policy.breaker.longest = Duration::from_millis(100);
    });
    let warm = Warmline::builder().server(declared).build().unwrap();
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    let told = ReportedOutcomes::default();
    let mut dice = seed.dice();
    let workers = join_all((0..10).map(|worker| {
        let (child, told, mut dice) = (&child, &told, dice.fork());
        async move {
            for number in 0..30 * strength() {
                pay(child, told, &format!("{worker}, {number}")).await;
                while_away(&mut dice, 40).await;
            }
        }
    }));
    let killer = async {
        for _ in 0..15 * strength() {
            while_away(&mut dice, 80).await;
            kill_all(&program);
        }
    };
    tokio::join!(workers, killer);
    let done = |account: &str| program.payments(account);
    told.agree_with(done);
    assert!(program.starts() > 3, "it was not much of a storm");
    // The last ones died young: it is tried again after a moment.
    let paid = payment(&child, "after the storm").await;
    if let Err(error) = paid.and_then(ToolResult::ok) {
        assert_eq!(error.code().as_str(), "breaker-open", "{error:?}");
        tokio::time::sleep(error.retry_after().unwrap()).await;
        let paid = payment(&child, "after the storm").await;
        paid.unwrap().ok().unwrap();
    }
    run.end().await;
    program.gone().await;
    warm.close().await;
}

async fn pay(child: &ServerHandle, told: &ReportedOutcomes, account: &str) {
    told.note(account, &payment(child, account).await);
}

/// Kills every process of a program, and says which they were.
pub(crate) fn kill_all(program: &Program) -> Vec<u32> {
    let place = program.place();
    let mut killed = Vec::new();
    for child in census::descendants(std::process::id()) {
        let environment = std::fs::read(format!("/proc/{}/environ", child.pid));
        let is_its = environment.is_ok_and(|environment| {
            let text = String::from_utf8_lossy(&environment).into_owned();
            text.contains(&place)
        });
        let pid = i32::try_from(child.pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| is_its && child.name.contains("ledger")) {
            // It may have ended by itself.
            kill_process(pid, Signal::KILL).unwrap_or_default();
            killed.push(child.pid);
        }
    }
    killed
}

/// Waits until nothing is left of processes that were killed. One that dies has no environment any
/// more while its pipes are still open: what is written to it then is lost, and may have been read.
pub(crate) async fn are_buried(killed: &[u32]) {
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    until("the processes are buried", || !killed.iter().any(is_there)).await;
}
