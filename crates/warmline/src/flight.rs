//! Single flight: any number of callers, one piece of work, one result for all.
//!
//! The work runs in a task of its own, so a caller that gives up takes nothing from the others.
//! Nothing is remembered afterwards: whoever comes after the result starts anew.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;

use tokio::sync::watch;

use crate::clock;
use crate::sync::Mutex;

/// Work under way, by what it is for.
#[derive(Debug)]
pub(crate) struct Flights<K, T>(std::sync::Arc<Mutex<HashMap<K, watch::Receiver<Option<T>>>>>);

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(std::sync::Arc::default())
    }
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Whether any work is under way.
    pub(crate) fn is_anything_under_way(&self) -> bool {
        !self.0.lock().is_empty()
    }

    /// The result of the work for a key: of the work that is under way, or of this.
    ///
    /// Work dies with the runtime of whoever began it. Then the first of those who waited for it
    /// and are still there begins its own. None if that died too; nothing is known of its result.
    pub(crate) async fn join<F>(
        &self,
        name: &'static str,
        key: K,
        work: impl FnOnce() -> F,
    ) -> Option<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut work = Some(work);
        loop {
            let mut result = {
                let mut under_way = self.0.lock();
                match under_way.get(&key) {
                    Some(result) => result.clone(),
                    None => {
                        let (tell, result) = watch::channel(None);
                        let work = work.take()?();
                        under_way.insert(key.clone(), result.clone());
                        self.begin(name, key.clone(), work, tell);
                        result
                    },
                }
            };
            if let Ok(told) = result.wait_for(Option::is_some).await {
                return told.clone();
            }
        }
    }

    fn begin<F>(&self, name: &'static str, key: K, work: F, tell: watch::Sender<Option<T>>)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let done = Landing {
            flights: std::sync::Arc::clone(&self.0),
            key,
        };
        drop(clock::spawn(name, async move {
            let output = work.await;
            // Off the board before it is told: who comes now starts anew.
            drop(done);
            tell.send_replace(Some(output));
        }));
    }
}

/// Takes work off the board, however it ends.
struct Landing<K: Eq + Hash, T> {
    flights: std::sync::Arc<Mutex<HashMap<K, watch::Receiver<Option<T>>>>>,
    key: K,
}

impl<K: Eq + Hash, T> Drop for Landing<K, T> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}
