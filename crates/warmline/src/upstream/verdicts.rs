//! Verdicts: what is remembered of a server, so that it is asked once and not at every opening.
//!
//! Asked by: [`detect`](super::detect), before it probes.  Told by: every opening that ends well.
//!
//! A verdict belongs to how the server is reached, the credential included, and to what we declare:
//! what a server says of itself may depend on both. It is forgotten when an opening speaks against
//! it, and after its horizon: a legacy server that was upgraded still answers `initialize`, so a
//! stale legacy verdict never fails by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use warmline_core::era::Era;

use super::facts::Facts;
use super::server::{Reach, Server};
use super::session::Declared;
use crate::clock::{self, Instant};
use crate::sync::Mutex;

/// How long a verdict holds.
const HORIZON: Duration = Duration::from_secs(24 * 60 * 60);
/// How many are kept; the oldest goes first.
const MAX_VERDICTS: usize = 4096;

/// What is remembered of a server: the legs it was seen to speak on.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// What the legacy leg was like when it was last opened.
    pub legacy: Option<Arc<Facts>>,
    /// What the modern leg was like when it was last opened.
    pub modern: Option<Arc<Facts>>,
}

impl Verdict {
    /// The leg to take where nobody says which: the modern one, which costs least to open.
    pub(crate) fn preferred(&self) -> Option<&Arc<Facts>> {
        self.modern.as_ref().or(self.legacy.as_ref())
    }
}

/// A verdict that a session rests on.
#[derive(Debug)]
pub(crate) struct Held {
    verdicts: Arc<Verdicts>,
    key: Box<Key>,
}

impl Held {
    pub(crate) fn new(verdicts: &Arc<Verdicts>, server: &Server, declared: &Declared) -> Self {
        Self {
            verdicts: Arc::clone(verdicts),
            key: Box::new(Key::of(server, declared)),
        }
    }

    /// Something spoke against it.
    pub(crate) fn forget(&self) {
        self.verdicts.0.lock().remove(&*self.key);
    }
}

/// All that is remembered.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<HashMap<Key, (Verdict, Instant)>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    reach: Reach,
    declared: Declared,
}

impl Key {
    fn of(server: &Server, declared: &Declared) -> Self {
        Self {
            reach: server.reach.clone(),
            declared: declared.clone(),
        }
    }
}

impl Verdicts {
    /// What is known of a server, while it holds.
    pub(crate) fn recall(&self, server: &Server, declared: &Declared) -> Option<Verdict> {
        let key = Key::of(server, declared);
        let mut known = self.0.lock();
        let (verdict, until) = known.get(&key)?;
        if clock::now() < *until {
            return Some(verdict.clone());
        }
        known.remove(&key);
        None
    }

    /// A leg of a server was opened and is like this.
    pub(crate) fn learn(&self, server: &Server, declared: &Declared, facts: &Arc<Facts>) {
        let key = Key::of(server, declared);
        let mut known = self.0.lock();
        if known.len() >= MAX_VERDICTS && !known.contains_key(&key) {
            let oldest = known
                .iter()
                .min_by_key(|(_, (_, until))| *until)
                .map(|(k, _)| k.clone());
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        let (verdict, until) = known
            .entry(key)
            .or_insert_with(|| (Verdict::default(), clock::after(HORIZON)));
        let leg = match facts.era {
            Era::Legacy => &mut verdict.legacy,
            Era::Modern => &mut verdict.modern,
        };
        *leg = Some(Arc::clone(facts));
        *until = clock::after(HORIZON);
    }

    /// Something spoke against what is known of a server.
    pub(crate) fn forget(&self, server: &Server, declared: &Declared) {
        self.0.lock().remove(&Key::of(server, declared));
    }
}
