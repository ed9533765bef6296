//! Whether a store holds records that were sealed with other secrets, and none of ours.
//!
//! Asked by: whoever found no record for its key, before anything is written.  What was kept in a
//! store is found by our secrets alone: where these were removed or replaced, nothing is found, and
//! a run would begin anew without a word.
//!
//! Asked once per process, and only where nothing was found. From the first record of ours on the
//! store is ours, whatever else lies there.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;

use super::records::{Inner, Records};
use super::sealed::Kind;
use crate::clock;

/// So many records are looked at: of names that are digests any will do.
const LOOKED_AT: usize = 256;

/// Whether somebody looked already.
#[derive(Debug, Default)]
pub(super) struct Strangers(AtomicBool);

impl Records {
    /// Whether there are records here, and all of them were sealed with other secrets than ours;
    /// true at most once. Nothing is said of a store that is down, slow or cannot tell what it
    /// holds.
    pub async fn are_all_strangers(&self) -> bool {
        let inner = self.inner();
        if !self.outlives_process()
            || self.is_down()
            || inner.strangers.0.swap(true, Ordering::AcqRel)
        {
            return false;
        }
        // A store is somebody else's program. No outage is seen in this: a large store takes long.
        let look = AssertUnwindSafe(inner.holds_only_strangers()).catch_unwind();
        let looked = clock::timeout(inner.timeout, look).await;
        matches!(looked, Ok(Ok(true)))
    }
}

impl Inner {
    async fn holds_only_strangers(&self) -> bool {
        let stored = self.scan().await.unwrap_or_default();
        let mut some = false;
        for (name, _) in stored.into_iter().take(LOOKED_AT) {
            let Ok(Some(stored)) = self.store.load(name).await else {
                continue;
            };
            match self
                .sealer
                .open(name, &stored)
                .map_err(|useless| useless.kind)
            {
                Ok(_) | Err(Kind::Needed) => return false,
                Err(Kind::Foreign) => some = true,
                Err(Kind::Broken) => {},
            }
        }
        some
    }
}
