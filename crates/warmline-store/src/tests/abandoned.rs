//! What nobody came back for is found by this process's own clock, and nothing else is.

use super::*;
use warmline_platform::clock;

const IDLE: Duration = Duration::from_secs(30 * 60);
const ROUND: Duration = Duration::from_secs(60);

fn nothing_is_held(_: &PoolKey) -> bool {
    false
}

/// Runs the keeper's rounds for so long, and gives what it found.
async fn rounds(records: &Records, minutes: u32, spare: fn(&PoolKey) -> bool) -> Vec<Record> {
    let mut found = Vec::new();
    for _ in 0..minutes {
        found.extend(records.abandoned(IDLE, spare).await);
        clock::sleep(ROUND).await;
    }
    found
}

/// A49: sessions that a killed process left in the store are ended, each once.
#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_came_back_for_is_found_once_its_time_is_over() {
    let store = MemoryStore::new();
    let left = record(&key(ALICE, 1), 3, "abc");
    assert_done(&records(&store).save(&left, None).await);
    let keeper = records(&store);
    assert_eq!(rounds(&keeper, 30, nothing_is_held).await, []);
    assert_eq!(
        rounds(&keeper, 15, nothing_is_held).await,
        std::slice::from_ref(&left)
    );
    assert!(keeper.clear(&left.key, 3, Some("abc")).await.is_some());
    assert_eq!(rounds(&keeper, 60, nothing_is_held).await, []);
}

/// A144: what another process renews is not touched, however long that goes on.
#[tokio::test(start_paused = true)]
async fn a_session_that_another_process_uses_is_left_alone() {
    static WALL: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1_790_000_000);
    let wall = || WALL.load(std::sync::atomic::Ordering::Relaxed);
    let store = MemoryStore::new();
    let mut user = Records::new(Arc::new(store.clone()), vault(), TIMEOUT);
    user.wall_clock = wall;
    let used = record(&key(ALICE, 1), 1, "abc");
    assert_done(&user.save(&used, None).await);
    let keeper = records(&store);
    for _ in 0..30 {
        assert_eq!(rounds(&keeper, 10, nothing_is_held).await, []);
        WALL.fetch_add(600, std::sync::atomic::Ordering::Relaxed);
        assert_done(&user.touch(&used).await);
    }
}

/// A store may be shared by servers and by what is held here.
#[tokio::test(start_paused = true)]
async fn what_is_held_here_is_never_found() {
    let store = MemoryStore::new();
    let keeper = records(&store);
    let (held, left) = (
        record(&key(ALICE, 1), 1, "held"),
        record(&key(BOB, 1), 1, "left"),
    );
    assert_done(&keeper.save(&held, None).await);
    assert_done(&keeper.save(&left, None).await);
    let spare = |key: &PoolKey| key.owner == super::key(ALICE, 1).owner;
    assert_eq!(rounds(&keeper, 60, spare).await, [left]);
}

/// reliability P22, reliability F50: a record from 1970, or from the future, is as new as this process's look.
#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumped_ends_no_session() {
    let store = MemoryStore::new();
    let ancient = record(&key(ALICE, 1), 1, "1970");
    let future = record(&key(ALICE, 2), 1, "2100");
    let mut before = Records::new(Arc::new(store.clone()), vault(), TIMEOUT);
    before.wall_clock = || 0;
    assert_done(&before.touch(&ancient).await);
    let mut after = Records::new(Arc::new(store), vault(), TIMEOUT);
    after.wall_clock = || 4_102_444_800;
    assert_done(&after.touch(&future).await);
    for keeper in [before, after] {
        assert_eq!(rounds(&keeper, 30, nothing_is_held).await, []);
        assert_eq!(rounds(&keeper, 15, nothing_is_held).await.len(), 2);
    }
}

/// A49: what cannot be ended is tried for some hours, and then left to its server.
#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_ended_is_kept_for_a_few_tries() {
    let store = MemoryStore::new();
    let left = record(&key(ALICE, 1), 1, "abc");
    assert_done(&records(&store).save(&left, None).await);
    let keeper = records(&store);
    assert!(!keeper.has_attempts_left(&left), "nobody watches it");
    let mut kept = Vec::new();
    for _ in 0..5 * 60 {
        for named in rounds(&keeper, 1, nothing_is_held).await {
            kept.push(keeper.has_attempts_left(&named));
        }
    }
    let given_up = kept.iter().position(|is_kept| !is_kept);
    assert_eq!(given_up, Some(7), "{kept:?}");
}

/// A store full of what cannot be ended does not hide the rest.
#[tokio::test(start_paused = true)]
async fn no_record_stands_in_the_way_of_others() {
    let store = MemoryStore::new();
    let keeper = records(&store);
    for byte in 0..=255 {
        assert_done(
            &keeper
                .save(&record(&key(ALICE, byte), 1, "held"), None)
                .await,
        );
        assert_done(&keeper.save(&record(&key(BOB, byte), 1, "left"), None).await);
    }
    let spare = |key: &PoolKey| key.owner == super::key(ALICE, 1).owner;
    assert_eq!(rounds(&keeper, 60, spare).await.len(), 256);
}

/// The store is looked through now and then, not in every round.
#[tokio::test(start_paused = true)]
async fn rounds_close_to_each_other_look_once() {
    let store = MemoryStore::new();
    let keeper = records(&store);
    assert_done(&keeper.save(&record(&key(ALICE, 1), 1, "abc"), None).await);
    assert_eq!(keeper.abandoned(Duration::ZERO, nothing_is_held).await, []);
    clock::sleep(Duration::from_secs(121)).await;
    assert_eq!(keeper.abandoned(IDLE, nothing_is_held).await, []);
    clock::sleep(Duration::from_secs(180)).await;
    assert_eq!(
        keeper
            .abandoned(Duration::ZERO, nothing_is_held)
            .await
            .len(),
        1
    );
}

/// Who asks what is kept is told of sessions alone, and changes nothing by asking.
#[tokio::test(start_paused = true)]
async fn what_is_kept_is_told_without_waiting() {
    let store = MemoryStore::new();
    let asked = records(&store);
    assert_eq!(asked.list().await.unwrap(), []);
    let session = record(&key(ALICE, 1), 1, "abc");
    let mut gone = record(&key(BOB, 1), 1, "def");
    gone.session_id = None;
    assert_done(&asked.save(&session, None).await);
    assert_done(&asked.save(&gone, None).await);
    for _ in 0..2 {
        assert_eq!(asked.list().await.unwrap(), std::slice::from_ref(&session));
    }
}
