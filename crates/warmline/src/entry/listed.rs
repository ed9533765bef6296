//! Lists beside tools that were read (resources, their templates, prompts), for those who may see
//! them, until a horizon.
//!
//! One reading serves all who wait for it. What was read before a list changed is not kept.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::Whose;
use crate::clock::{self, Instant};
use crate::error::{Error, Result};
use crate::flight::Flights;
use crate::sync::Mutex;
use crate::tools::{Age, Read};
use crate::upstream::List;

/// Lists of one server are kept for at most this many who may see different ones.
const MOST_LISTS: usize = 1_024;
/// All lists of one server together are at most this large.
const MOST_BYTES: usize = 64 << 20;

/// The items of a list, each as raw JSON.
pub(crate) type Items = Arc<[Bytes]>;

/// Whose list it is, and which.
type Which = (Whose, List);

/// The lists of one server.
#[derive(Debug)]
pub(crate) struct Listed {
    shelf: Arc<Mutex<Shelf>>,
    readings: Flights<(Which, u64, u32), Result<Items>>,
    horizon: Duration,
}

/// What is kept.
#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<Which, Kept>,
    /// Raised when lists are dropped: what was asked for before is not kept afterwards.
    epoch: u64,
}

#[derive(Debug)]
struct Kept {
    items: Items,
    bytes: usize,
    until: Instant,
    /// So long it is good by the word of its server, if that said anything.
    good_until: Option<Instant>,
    /// How many calls its session had when the reading began.
    calls: u32,
}

impl Listed {
    /// Lists that hold for `horizon`.
    pub(super) fn new(horizon: Duration) -> Self {
        Self {
            shelf: Arc::default(),
            readings: Flights::default(),
            horizon,
        }
    }

    /// The list that holds now, or the one that `reading` brings: read once for all who ask. It is
    /// kept only if somebody may still ask for it then.
    pub(crate) async fn list<F, R>(
        &self,
        which: Which,
        age: Age,
        is_wanted: impl Fn() -> bool + Send + 'static,
        reading: F,
    ) -> Result<Items>
    where
        F: Future<Output = Result<R>> + Send + 'static,
        R: Into<Read>,
    {
        let epoch = {
            let shelf = self.shelf.lock();
            let kept = shelf.kept.get(&which);
            let holds =
                |kept: &&Kept| kept.until > clock::now() && age.allows(kept.calls, kept.good_until);
            if let Some(kept) = kept.filter(holds) {
                return Ok(Arc::clone(&kept.items));
            }
            shelf.epoch
        };
        let (shelf, horizon) = (Arc::clone(&self.shelf), self.horizon);
        let work = move || async move {
            let Read { items, good_for } = reading.await?.into();
            let items = Items::from(items);
            let kept = Kept {
                bytes: items.iter().map(Bytes::len).sum(),
                items: Arc::clone(&items),
                until: clock::after(horizon),
                good_until: good_for.map(clock::after),
                calls: age.calls,
            };
            let mut shelf = shelf.lock();
            // Looked at while the shelf is locked: whoever clears it says so before.
            if !horizon.is_zero() && epoch == shelf.epoch && is_wanted() {
                shelf.keep(which, kept);
            }
            Ok(items)
        };
        let flight = (which, epoch, age.calls);
        let read = self.readings.join("list", flight, work).await;
        read.unwrap_or_else(|| {
            let what = "the task that read a list ended without a word";
            Err(Error::unsent(Trouble::new(Reason::Internal, what)))
        })
    }

    /// Ends readings that nobody waits for.
    pub(crate) fn end_unwanted(&self) {
        self.readings.end_unwanted();
    }

    /// Drops every list: one changed, or a session was replaced.
    pub(crate) fn forget_all(&self) {
        let mut shelf = self.shelf.lock();
        shelf.epoch += 1;
        shelf.kept.clear();
    }

    /// Drops the lists of somebody who is gone.
    pub(super) fn forget(&self, is_gone: impl Fn(&Whose) -> bool) {
        let mut shelf = self.shelf.lock();
        shelf.kept.retain(|(whose, _), _| !is_gone(whose));
    }
}

impl Shelf {
    /// Keeps a list, and drops the oldest until the rest is small enough.
    fn keep(&mut self, which: Which, kept: Kept) {
        self.kept.insert(which, kept);
        let mut bytes: usize = self.kept.values().map(|kept| kept.bytes).sum();
        while self.kept.len() > 1 && (self.kept.len() > MOST_LISTS || bytes > MOST_BYTES) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.until);
            let Some(which) = oldest.map(|(which, _)| *which) else {
                return;
            };
            let dropped = self.kept.remove(&which);
            bytes -= dropped.map_or(0, |kept| kept.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use warmline_core::key::{CredentialId, Digest, Identity, RunId, Scope};

    use super::*;
    use crate::tools::{Outlives, Stated};

    fn run(number: u8) -> RunId {
        RunId(Digest::new([number; 16]))
    }

    /// The prompts of somebody's run.
    fn of(who: u8, number: u8) -> Which {
        let digest = Digest::new([who; 16]);
        let whose = Whose {
            of: (Identity(digest), CredentialId(digest)),
            scope: Scope::Run(run(number)),
            era: None,
        };
        (whose, List::Prompts)
    }

    /// P81: a list is read once, again after its horizon, and again after a change; what was
    /// asked for before the change is not kept.
    #[tokio::test(start_paused = true)]
    async fn a_list_is_read_again_after_its_horizon_and_after_a_change() {
        let lists = Listed::new(Duration::from_secs(60));
        let reads = Arc::new(AtomicUsize::new(0));
        let reading = || {
            let reads = Arc::clone(&reads);
            async move {
                reads.fetch_add(1, Ordering::Relaxed);
                clock::sleep(Duration::from_secs(1)).await;
                Ok(vec![Bytes::from_static(b"{}")])
            }
        };
        let read = || lists.list(of(1, 1), Age::ANY, || true, reading());
        assert_eq!(read().await.unwrap().len(), 1);
        read().await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        let others = lists.list(of(2, 1), Age::ANY, || true, reading());
        others.await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 2, "nobody else's");
        clock::sleep(Duration::from_secs(60)).await;
        let (first, second) = tokio::join!(read(), read());
        assert!(Arc::ptr_eq(&first.unwrap(), &second.unwrap()));
        assert_eq!(reads.load(Ordering::Relaxed), 3, "once for both");
        lists.forget_all();
        let changing = async {
            clock::sleep(Duration::from_millis(500)).await;
            lists.forget_all();
        };
        let (_, ()) = tokio::join!(read(), changing);
        read().await.unwrap();
        assert_eq!(
            reads.load(Ordering::Relaxed),
            5,
            "not from before the change"
        );
    }

    /// mcp-spec 8.3.1: what one run was listed is not shown to another, goes with its run, and is
    /// not kept for one that is over.
    #[tokio::test(start_paused = true)]
    async fn a_list_of_a_run_is_of_that_run_alone_and_goes_with_it() {
        let lists = Listed::new(Duration::from_secs(60));
        let reads = Arc::new(AtomicUsize::new(0));
        let read = async |number: u8, is_live: bool| {
            let reading = {
                let reads = Arc::clone(&reads);
                async move {
                    Ok(vec![Bytes::from(
                        reads.fetch_add(1, Ordering::Relaxed).to_string(),
                    )])
                }
            };
            let read = lists.list(of(1, number), Age::ANY, move || is_live, reading);
            read.await.unwrap()[0].clone()
        };
        let steps = [
            (1, true, "0"),
            (2, true, "1"),
            (1, true, "0"),
            (2, true, "1"),
        ];
        for (number, is_live, expected) in steps {
            assert_eq!(read(number, is_live).await, expected);
        }
        lists.forget(|whose| whose.is_of_run(run(1)));
        assert_eq!(read(2, true).await, "1", "another run keeps its own");
        assert_eq!(read(1, false).await, "2");
        assert_eq!(
            read(1, true).await,
            "3",
            "nothing is kept for a run that is over"
        );
    }

    /// mcp-spec 8.3.1: where nobody would say that a list changed, it does not outlive a call, also
    /// where it was still on its way.
    #[tokio::test(start_paused = true)]
    async fn a_list_does_not_outlive_a_call_where_nobody_would_tell() {
        let lists = Listed::new(Duration::from_secs(60));
        let reads = Arc::new(AtomicUsize::new(0));
        let read = |calls: u32, outlives: Outlives| {
            let reads = Arc::clone(&reads);
            let reading = async move {
                let number = reads.fetch_add(1, Ordering::Relaxed);
                clock::sleep(Duration::from_secs(1)).await;
                Ok(vec![Bytes::from(number.to_string())])
            };
            let stated = Stated::Counts;
            let age = Age {
                calls,
                outlives,
                stated,
            };
            let read = lists.list(of(1, 1), age, || true, reading);
            async move { read.await.unwrap()[0].clone() }
        };
        let strict = Outlives::NoCall;
        let both = tokio::join!(read(0, strict), read(1, strict));
        assert_eq!(both, (Bytes::from("0"), Bytes::from("1")));
        assert_eq!(read(1, strict).await, "1");
        assert_eq!(read(2, Outlives::AnyCall).await, "1");
        assert_eq!(read(2, strict).await, "2");
        assert_eq!(read(2, strict).await, "2");
    }
}
