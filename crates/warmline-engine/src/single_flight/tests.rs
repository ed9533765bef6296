use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;
use warmline_core::error::code::Code;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn asking() -> Arc<RefreshableValue<u64>> {
    RefreshableValue::new("the oracle".to_owned(), Reason::ResolveFailed, LIMIT)
}

/// Counts how often it is asked, and answers when the gate is open.
#[derive(Debug)]
struct Oracle {
    asked: AtomicU64,
    gate: Semaphore,
}

impl Oracle {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            asked: AtomicU64::new(0),
            gate: Semaphore::new(0),
        })
    }

    async fn answer(self: Arc<Self>) -> Result<u64, Diagnostic> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        self.gate.acquire().await.unwrap().forget();
        Ok(number)
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn newer(
    asking: Arc<RefreshableValue<u64>>,
    oracle: Arc<Oracle>,
    seen: u64,
) -> Result<u64, Diagnostic> {
    let held = asking.get_newer_than(seen, || oracle.answer()).await?;
    Ok(held.value)
}

#[tokio::test]
async fn a_thousand_callers_make_one_asking() {
    let (asking, oracle) = (asking(), Oracle::new());
    let callers: Vec<_> = (0..1000)
        .map(|_| {
            let caller = newer(Arc::clone(&asking), Arc::clone(&oracle), 0);
            clock::spawn("caller", caller)
        })
        .collect();
    oracle.gate.add_permits(1000);
    for caller in callers {
        assert_eq!(caller.await.unwrap().unwrap(), 1);
    }
    assert_eq!(oracle.asked(), 1);
    assert_eq!(
        newer(Arc::clone(&asking), Arc::clone(&oracle), 0)
            .await
            .unwrap(),
        1
    );
    assert_eq!(newer(asking, Arc::clone(&oracle), 1).await.unwrap(), 2);
    assert_eq!(oracle.asked(), 2);
}

/// A25: a failure is told to everybody who waited, once, and the next one asks again.
#[tokio::test]
async fn a_failure_is_told_to_all_and_forgotten() {
    let asking = asking();
    let failing = || async { Err(Diagnostic::new(Reason::ResolveFailed, "closed on Sundays")) };
    let callers = (0..100).map(|_| asking.get_newer_than(0, failing));
    for told in futures_util::future::join_all(callers).await {
        assert_eq!(told.unwrap_err().message, "closed on Sundays");
    }
    assert_eq!(asking.epoch(), 0);
    let held = asking.get_newer_than(0, || async { Ok(7) }).await.unwrap();
    assert_eq!((held.value, held.epoch, held.unchanged_since), (7, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn who_hangs_is_cut_off() {
    let asking = asking();
    let began = clock::now();
    let diagnostic = asking
        .get_newer_than(0, std::future::pending)
        .await
        .unwrap_err();
    assert_eq!(clock::now() - began, LIMIT);
    assert_eq!(diagnostic.code, Code::ResolveFailed);
    assert_eq!(diagnostic.message, "the oracle gave no answer in 10s");
    assert!(asking.get_newer_than(0, || async { Ok(1) }).await.is_ok());
}

#[tokio::test]
async fn one_who_panics_is_told_as_one_who_failed() {
    let asking = asking();
    async fn breaks() -> Result<u64, Diagnostic> {
        panic!("a bug of a stranger")
    }
    let diagnostic = asking.get_newer_than(0, breaks).await.unwrap_err();
    assert_eq!(diagnostic.message, "the oracle broke off");
    assert!(asking.get_newer_than(0, || async { Ok(1) }).await.is_ok());
}

#[tokio::test]
async fn the_same_answer_again_is_known_to_be_the_same() {
    let asking = asking();
    let table = [(5, 1, 1), (5, 2, 1), (6, 3, 3), (6, 4, 3), (5, 5, 5)];
    for (value, epoch, since) in table {
        let seen = asking.epoch();
        let held = asking
            .get_newer_than(seen, move || async move { Ok(value) })
            .await
            .unwrap();
        assert_eq!((held.epoch, held.unchanged_since), (epoch, since));
    }
    asking.set_if_changed(5);
    assert_eq!(asking.epoch(), 5, "the same put again changes nothing");
    asking.set_if_changed(9);
    assert_eq!(asking.epoch(), 6);
}

#[tokio::test(start_paused = true)]
async fn asking_ahead_of_time_rests_after_a_failure() {
    let asking = asking();
    asking.set_if_changed(1);
    let asked = Arc::new(AtomicU64::new(0));
    let failing = || {
        let asked = Arc::clone(&asked);
        async move {
            asked.fetch_add(1, Ordering::SeqCst);
            Err(Diagnostic::new(Reason::ResolveFailed, "no"))
        }
    };
    for round in 1..=3 {
        for _ in 0..10 {
            asking.refresh_ahead(1, failing);
            clock::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(asked.load(Ordering::SeqCst), round);
        clock::sleep(FAILED_FETCH_PAUSE).await;
    }
    assert_eq!(asking.epoch(), 1, "what was held is still held");
}

/// The asking dies with the runtime that it runs in: one of those who wait in another one asks.
#[test]
fn the_asking_of_a_runtime_that_ends_is_taken_over() {
    let (asking, oracle) = (asking(), Oracle::new());
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let (ending, staying) = (runtime(), runtime());
    let caller = || newer(Arc::clone(&asking), Arc::clone(&oracle), 0);
    ending.spawn(caller());
    while oracle.asked() == 0 {
        std::thread::yield_now();
    }
    let others = [staying.spawn(caller()), staying.spawn(caller())];
    ending.shutdown_timeout(LIMIT);
    oracle.gate.add_permits(1);
    for other in others {
        assert_eq!(staying.block_on(other).unwrap().unwrap(), 2);
    }
    assert_eq!(oracle.asked(), 2);
}
