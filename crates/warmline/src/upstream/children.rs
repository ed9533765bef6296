//! The children of one engine: how many there are, and whether they have to end in a hurry.
//!
//! Told by: the owner of each child, which is counted until nothing is left of it.  Asked by:
//! whoever closes the engine, because a process that ends must not leave its children to others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock;

/// What a child has between its steps once nobody has time any more.
const IN_A_HURRY: Duration = Duration::from_millis(300);

/// How many there are, and whether nobody has time for them any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    alive: usize,
    is_hurried: bool,
}

/// All children that were started by the same hand.
#[derive(Debug, Default)]
pub(crate) struct Children(watch::Sender<Counted>);

impl Children {
    /// One more, until what is given back is dropped.
    pub(crate) fn one_more(self: &Arc<Self>) -> CountedChild {
        self.0.send_modify(|counted| counted.alive += 1);
        CountedChild(Arc::clone(self))
    }

    /// Lets those that are being ended, and those to come, have a moment for each step only.
    pub(crate) fn hurry(&self) {
        self.0.send_modify(|counted| counted.is_hurried = true);
    }

    /// Ends when there are none. The sender lives in us, so this ends only when it is true.
    pub(crate) async fn gone(&self) {
        let mut counted = self.0.subscribe();
        drop(counted.wait_for(|counted| counted.alive == 0).await);
    }
}

/// A child that is counted.
#[derive(Debug)]
pub(crate) struct CountedChild(Arc<Children>);

impl CountedChild {
    /// Ends when a step has taken so long, or after a moment where nobody has time.
    pub(crate) fn patience(&self, limit: Duration) -> impl Future<Output = ()> + use<> {
        let mut counted = self.0.0.subscribe();
        let hurried = async move {
            drop(counted.wait_for(|counted| counted.is_hurried).await);
            clock::sleep(IN_A_HURRY).await;
        };
        async move {
            clock::timeout(limit, hurried).await.ok();
        }
    }
}

impl Drop for CountedChild {
    fn drop(&mut self) {
        self.0.0.send_modify(|counted| counted.alive -= 1);
    }
}
