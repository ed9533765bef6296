//! Single flight: any number of callers, one piece of work, one result for all.
//!
//! The work runs in a task of its own, so a caller that gives up takes nothing from the others.
//! Nothing is remembered afterwards: whoever comes after the result starts anew.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::clock::{self, Home};
use crate::sync::Mutex;

/// Work under way, by what it is for.
#[derive(Debug)]
pub(crate) struct Flights<K, T>(Arc<Mutex<Board<K, T>>>);

type Board<K, T> = HashMap<K, Flight<T>>;

/// One piece of work.
#[derive(Debug)]
struct Flight<T> {
    /// Who waits for its result has a receiver; nobody else does.
    tell: Arc<watch::Sender<Option<T>>>,
    task: AbortHandle,
    /// Where it is carried out.
    home: Option<Home>,
}

/// Which piece of work it is, for those who keep it from nobody.
type Mark<T> = Weak<watch::Sender<Option<T>>>;

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Arc::default())
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

    /// Ends work that nobody waits for. Whoever comes for it at this moment begins it anew.
    pub(crate) fn end_unwanted(&self) {
        let unwanted: Vec<_> = {
            let under_way = self.0.lock();
            let flights = under_way.values();
            let unwanted = flights.filter(|flight| flight.tell.receiver_count() == 0);
            unwanted.map(|flight| flight.task.clone()).collect()
        };
        for task in unwanted {
            task.abort();
        }
    }

    /// The result of the work for a key: of the work that is under way, or of this.
    ///
    /// Work dies with the runtime of whoever began it, and rests as long as nobody drives that. Then
    /// the first of those who waited for it and are still there begins its own. None if that died
    /// too; nothing is known of its result.
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
            let (mut result, mark, elsewhere) = {
                let mut under_way = self.0.lock();
                match under_way.get(&key) {
                    Some(flight) => {
                        let mark = Arc::downgrade(&flight.tell);
                        (flight.tell.subscribe(), mark, flight.elsewhere())
                    },
                    None => {
                        let (tell, result) = watch::channel(None);
                        let tell = Arc::new(tell);
                        let work = work.take()?();
                        let task = self.begin(name, key.clone(), work, Arc::clone(&tell));
                        let mark = Arc::downgrade(&tell);
                        let home = Home::here();
                        under_way.insert(key.clone(), Flight { tell, task, home });
                        (result, mark, None)
                    },
                }
            };
            tokio::select! {
                biased;
                told = result.wait_for(Option::is_some) => {
                    if let Ok(told) = told {
                        return told.clone();
                    }
                },
                () = clock::rests(elsewhere) => take_off(&self.0, &key, &mark),
            }
        }
    }

    fn begin<F>(
        &self,
        name: &'static str,
        key: K,
        work: F,
        tell: Arc<watch::Sender<Option<T>>>,
    ) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
    {
        let done = Landing {
            flights: Arc::clone(&self.0),
            key,
            mark: Arc::downgrade(&tell),
        };
        let task = clock::spawn(name, async move {
            let output = work.await;
            // Off the board before it is told: who comes now starts anew.
            drop(done);
            tell.send_replace(Some(output));
        });
        task.abort_handle()
    }
}

impl<T> Flight<T> {
    /// Where it is carried out, if that is not here.
    fn elsewhere(&self) -> Option<Home> {
        self.home.clone().filter(|home| !home.is_here())
    }
}

/// Takes work off the board, however it ends.
struct Landing<K: Eq + Hash, T> {
    flights: Arc<Mutex<Board<K, T>>>,
    key: K,
    mark: Mark<T>,
}

impl<K: Eq + Hash, T> Drop for Landing<K, T> {
    fn drop(&mut self) {
        take_off(&self.flights, &self.key, &self.mark);
    }
}

/// Takes this very work off the board; somebody else may have begun it anew.
fn take_off<K: Eq + Hash, T>(flights: &Mutex<Board<K, T>>, key: &K, mark: &Mark<T>) {
    let mut under_way = flights.lock();
    let is_it = |flight: &Flight<T>| mark.as_ptr() == Arc::as_ptr(&flight.tell);
    if under_way.get(key).is_some_and(is_it) {
        under_way.remove(key);
    }
}
