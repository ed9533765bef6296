//! What is read, by whom it is seen, and how long it is kept.

use std::sync::atomic::{AtomicU32, Ordering};

use futures_util::future;
use warmline_core::pool_key::Digest;

use super::*;

const TTL: Duration = Duration::from_secs(300);

/// A server whose list holds the number of the read; each read takes a second.
#[derive(Clone, Default)]
struct Source(Arc<AtomicU32>);

impl Source {
    fn reads(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn read(&self) -> impl Future<Output = Result<FetchedList<u32>>> + Send + 'static {
        let count = Arc::clone(&self.0);
        async move {
            let value = count.fetch_add(1, Ordering::Relaxed) + 1;
            clock::sleep(Duration::from_secs(1)).await;
            Ok(FetchedList {
                value,
                bytes: 1,
                server_ttl: None,
            })
        }
    }

    fn fail(&self) -> impl Future<Output = Result<FetchedList<u32>>> + Send + 'static {
        let read = self.read();
        async move {
            read.await?;
            let diagnostic = Diagnostic::new(Reason::ConnectRefused, "nobody there");
            Err(Error::unsent(diagnostic))
        }
    }
}

/// A cache of one source, read by the owners that are named by numbers.
struct Bed {
    cache: ListCache<ListOwner, u32>,
    source: Source,
}

impl Bed {
    fn new() -> Self {
        Self {
            cache: ListCache::new(TTL),
            source: Source::default(),
        }
    }

    async fn read(&self, who: u8) -> u32 {
        let key = owner(who, 1);
        let read = self
            .cache
            .get_or_read(key, ListAgeLimit::ANY, || true, self.source.read());
        read.await.unwrap()
    }
}

fn run(number: u8) -> RunId {
    RunId(Digest::new([number; 16]))
}

/// Somebody's list in a run.
fn owner(who: u8, number: u8) -> ListOwner {
    let digest = Digest::new([who; 16]);
    ListOwner {
        principal: (Identity(digest), CredentialId(digest)),
        scope: KeyScope::Run(run(number)),
        era: None,
    }
}

/// P17, P25, A158: any number of callers cost one reading until the horizon.
#[tokio::test(start_paused = true)]
async fn any_number_of_callers_cost_one_reading() {
    let bed = Bed::new();
    let lists = future::join_all((0..100).map(|_| bed.read(1))).await;
    assert!(lists.iter().all(|list| *list == 1));

    clock::sleep(TTL - Duration::from_secs(1)).await;
    assert_eq!(bed.read(1).await, 1);

    clock::sleep(Duration::from_secs(1)).await;
    assert!(bed.cache.peek(&owner(1, 1)).is_none());
    assert_eq!(bed.read(1).await, 2);
}

/// P99, reliability P4: what one may see is not shown to another.
#[tokio::test(start_paused = true)]
async fn lists_are_kept_apart_by_who_may_see_them() {
    let bed = Bed::new();
    assert_eq!(bed.read(1).await, 1);
    assert!(bed.cache.peek(&owner(2, 1)).is_none());
    assert_eq!(bed.read(2).await, 2);
    assert_eq!(bed.read(1).await, 1);
}

/// P81, A163: after a change the list is read again, also where the old one was still on its way.
#[tokio::test(start_paused = true)]
async fn a_list_from_before_a_change_is_not_kept() {
    let bed = Bed::new();
    let changed = async {
        clock::sleep(Duration::from_millis(500)).await;
        bed.cache.forget_all();
        // Who asks now does not get what was asked for before the change.
        bed.read(1).await
    };
    assert_eq!(future::join(bed.read(1), changed).await, (1, 2));
    assert_eq!(bed.cache.peek(&owner(1, 1)), Some(2));

    bed.cache.forget_all();
    assert!(bed.cache.peek(&owner(1, 1)).is_none());
    assert_eq!(bed.read(1).await, 3);
}

/// A25: who waited is told once, and the next caller reads anew.
#[tokio::test(start_paused = true)]
async fn a_failed_reading_is_told_to_all_who_waited_and_poisons_nothing() {
    let Bed { cache, source } = &Bed::new();
    let key = owner(1, 1);
    let failures =
        (0..10).map(|_| cache.get_or_read(key, ListAgeLimit::ANY, || true, source.fail()));
    for failure in future::join_all(failures).await {
        assert_eq!(failure.unwrap_err().reason(), Reason::ConnectRefused);
    }
    assert_eq!(source.reads(), 1);
    let again = cache.get_or_read(key, ListAgeLimit::ANY, || true, source.read());
    assert_eq!(again.await.unwrap(), 2);
}

/// reliability P26: a caller that gives up takes nothing from the others.
#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_cancel_the_reading_of_others() {
    let bed = Bed::new();
    let first = clock::timeout(Duration::from_millis(500), bed.read(1));
    let (first, second) = future::join(first, bed.read(1)).await;
    assert!(first.is_err(), "gave up");
    assert_eq!(second, 1);
    assert_eq!(bed.source.reads(), 1);
}

/// reliability P17: the cache has a bound, and what nobody asks for goes first.
#[tokio::test(start_paused = true)]
async fn what_nobody_asks_for_is_dropped_first() {
    let cache: ListCache<u32, ()> = ListCache::new(TTL);
    let read = || async {
        Ok(FetchedList {
            value: (),
            bytes: 1,
            server_ttl: None,
        })
    };
    for key in 0..=1_024 {
        let list = cache.get_or_read(key, ListAgeLimit::ANY, || true, read());
        list.await.unwrap();
        clock::sleep(Duration::from_millis(1)).await;
        assert!(
            cache.peek(&0).is_some(),
            "somebody asks for it all the time"
        );
    }
    assert!(cache.peek(&1).is_none());
    assert!(cache.peek(&2).is_some());
}

/// mcp-spec 8.3.1: what one run was listed is not shown to another, goes with its run, and is
/// not kept for one that is over.
#[tokio::test(start_paused = true)]
async fn a_list_of_a_run_is_of_that_run_alone_and_goes_with_it() {
    let Bed { cache, source } = &Bed::new();
    let read = async |number: u8, is_live: bool| {
        let key = owner(1, number);
        let read = cache.get_or_read(key, ListAgeLimit::ANY, move || is_live, source.read());
        read.await.unwrap()
    };
    for (number, list) in [(1, 1), (2, 2), (1, 1), (2, 2)] {
        assert_eq!(read(number, true).await, list);
    }
    cache.forget_where(|whose| whose.is_of_run(run(1)));
    assert_eq!(read(2, true).await, 2, "another run keeps its own");
    assert_eq!(read(1, false).await, 3);
    assert_eq!(
        read(1, true).await,
        4,
        "nothing is kept for a run that is over"
    );
}

/// mcp-spec 8.3.1: where nobody would say that a list changed, it does not outlive a call, also
/// where it was still on its way.
#[tokio::test(start_paused = true)]
async fn a_list_does_not_outlive_a_call_where_nobody_would_tell() {
    let Bed { cache, source } = &Bed::new();
    let read = async |call_count: u32, is_invalidated_by_calls: bool| {
        let age = ListAgeLimit {
            call_count,
            is_invalidated_by_calls,
            honors_server_ttl: true,
        };
        let read = cache.get_or_read(owner(1, 1), age, || true, source.read());
        read.await.unwrap()
    };
    assert_eq!(tokio::join!(read(0, true), read(1, true)), (1, 2));
    assert_eq!(read(1, true).await, 2);
    assert_eq!(read(2, false).await, 2);
    assert_eq!(read(2, true).await, 3);
    assert_eq!(read(2, true).await, 3);
}
