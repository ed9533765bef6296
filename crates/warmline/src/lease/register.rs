//! Who holds a session alone, and since when.
//!
//! Told by: leases that begin and end.  Asked by: the keeper, which names those that are held for
//! long, and by whoever ends a run or closes the engine.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Holder;
use crate::clock::{self, Instant};
use crate::engine::Caller;
use crate::events::Which;
use crate::sync::Mutex;

/// Leases that were taken and not dropped yet, by their address.
#[derive(Debug, Default)]
pub(crate) struct Register(Mutex<HashMap<usize, Line>>);

#[derive(Debug)]
struct Line {
    holder: Weak<Holder>,
    since: Instant,
    told: bool,
}

impl Register {
    pub(super) fn enter(&self, holder: &Arc<Holder>) {
        let line = Line {
            holder: Arc::downgrade(holder),
            since: clock::now(),
            told: false,
        };
        self.0.lock().insert(Arc::as_ptr(holder).addr(), line);
    }

    /// A lease is dropped; how long it was held is counted.
    pub(super) fn leave(&self, holder: &Holder) {
        let line = self.0.lock().remove(&std::ptr::from_ref(holder).addr());
        if let Some(line) = line {
            let time = clock::now().saturating_duration_since(line.since);
            holder.entry.metrics.lease_time.took(time);
        }
    }

    /// Those that are held for longer than this and were not named yet, with the time.
    pub(crate) fn held_longer_than(&self, most: Duration) -> Vec<(Which, Duration)> {
        let now = clock::now();
        let mut long = Vec::new();
        for line in self.0.lock().values_mut() {
            let time = now.saturating_duration_since(line.since);
            if time >= most && !std::mem::replace(&mut line.told, true) {
                long.push((Weak::clone(&line.holder), time));
            }
        }
        let named = long.into_iter().filter_map(|(holder, time)| {
            let holder = holder.upgrade()?;
            holder.entry.metrics.long_leases.one_more();
            let server = Arc::clone(&holder.entry.name);
            Some((Which::of(server).generation(holder.generation), time))
        });
        named.collect()
    }

    /// Nothing can be sent on these leases any more: they are over, each with its last call.
    pub(crate) fn let_go_of(&self, whose: impl Fn(&Caller) -> bool) {
        let all: Vec<_> = self
            .0
            .lock()
            .values()
            .map(|line| Weak::clone(&line.holder))
            .collect();
        let holders = all.iter().filter_map(Weak::upgrade);
        for holder in holders.filter(|holder| whose(&holder.caller)) {
            holder.let_go_if_quiet();
        }
    }
}
