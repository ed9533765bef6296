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

use super::ToolsOf;
use crate::clock::{self, Instant};
use crate::error::{Error, Result};
use crate::flight::Flights;
use crate::sync::Mutex;
use crate::upstream::List;

/// Lists of one server are kept for at most this many who may see different ones.
const MOST_LISTS: usize = 1_024;
/// All lists of one server together are at most this large.
const MOST_BYTES: usize = 64 << 20;

/// The items of a list, each as raw JSON.
pub(crate) type Items = Arc<[Bytes]>;

/// Whose list it is, and which.
type Whose = (ToolsOf, List);

/// The lists of one server.
#[derive(Debug)]
pub(crate) struct Listed {
    shelf: Arc<Mutex<Shelf>>,
    readings: Flights<(Whose, u64), Result<Items>>,
    horizon: Duration,
}

/// What is kept.
#[derive(Debug, Default)]
struct Shelf {
    kept: HashMap<Whose, Kept>,
    /// Raised when lists are dropped: what was asked for before is not kept afterwards.
    epoch: u64,
}

#[derive(Debug)]
struct Kept {
    items: Items,
    until: Instant,
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

    /// The list that holds now, or the one that `reading` brings: read once for all who ask.
    pub(crate) async fn list<F>(&self, whose: Whose, reading: F) -> Result<Items>
    where
        F: Future<Output = Result<Vec<Bytes>>> + Send + 'static,
    {
        let epoch = {
            let shelf = self.shelf.lock();
            let kept = shelf.kept.get(&whose);
            if let Some(kept) = kept.filter(|kept| kept.until > clock::now()) {
                return Ok(Arc::clone(&kept.items));
            }
            shelf.epoch
        };
        let (shelf, horizon) = (Arc::clone(&self.shelf), self.horizon);
        let work = move || async move {
            let items: Items = reading.await?.into();
            shelf.lock().keep(whose, epoch, &items, horizon);
            Ok(items)
        };
        let read = self.readings.join("list", (whose, epoch), work).await;
        read.unwrap_or_else(|| {
            let what = "the task that read a list ended without a word";
            Err(Error::unsent(Trouble::new(Reason::Internal, what)))
        })
    }

    /// Drops every list: one changed, or a session was replaced.
    pub(crate) fn forget_all(&self) {
        let mut shelf = self.shelf.lock();
        shelf.epoch += 1;
        shelf.kept.clear();
    }
}

impl Shelf {
    /// Keeps a list, unless lists were dropped since it was asked for.
    fn keep(&mut self, whose: Whose, epoch: u64, items: &Items, horizon: Duration) {
        if epoch != self.epoch || horizon.is_zero() {
            return;
        }
        let kept = Kept {
            items: Arc::clone(items),
            until: clock::after(horizon),
        };
        self.kept.insert(whose, kept);
        while self.kept.len() > 1 && (self.kept.len() > MOST_LISTS || self.bytes() > MOST_BYTES) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.until);
            let Some(whose) = oldest.map(|(whose, _)| *whose) else {
                return;
            };
            self.kept.remove(&whose);
        }
    }

    fn bytes(&self) -> usize {
        let items = self.kept.values().flat_map(|kept| kept.items.iter());
        items.map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use warmline_core::key::{CredentialId, Digest, Identity};

    use super::*;

    fn whose(number: u8) -> Whose {
        let digest = Digest::new([number; 16]);
        ((Identity(digest), CredentialId(digest)), List::Prompts)
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
        let read = || lists.list(whose(1), reading());
        assert_eq!(read().await.unwrap().len(), 1);
        read().await.unwrap();
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        lists.list(whose(2), reading()).await.unwrap();
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
}
