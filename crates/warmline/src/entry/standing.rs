//! How an entry stands in its engine, and which one a call is governed by.
//!
//! Asked by: handles, before every call.  Told by: whoever declares, replaces or takes away a
//! server.
//!
//! A handle keeps the entry it was made with, and the server may be replaced meanwhile. Policy,
//! cached tools and session must be those of one entry: a hint of one server must never decide
//! about a call to another. Rules are of a name: what may be called is what was said last about a
//! server of that name, also where a run keeps an older one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;

use super::Entry;
use crate::engine::{Caller, Engine};

/// How an entry stands in its engine: declared, as long as nothing else is said.
#[derive(Debug, Default)]
pub(super) struct Standing(AtomicU8);

/// It is found by no name. It stays so when it is withdrawn.
const UNDECLARED: u8 = 1;
const WITHDRAWN: u8 = 2;
const PUT_AWAY: u8 = 4;

impl Entry {
    /// Nobody else knows it: it is found by no name.
    pub(crate) fn stands_alone(&self) {
        self.standing.0.fetch_or(UNDECLARED, Ordering::Release);
    }

    /// It was replaced or taken away: nothing is held for it any more, but what runs have there.
    pub(crate) fn withdraw(&self) {
        self.standing.0.fetch_or(WITHDRAWN, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// It was taken away long enough ago: runs that still had sessions there lose them too.
    pub(crate) fn put_away(&self) {
        self.standing.0.fetch_or(PUT_AWAY, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether runs may not use it any more either.
    pub(crate) fn is_put_away(&self) -> bool {
        self.standing.0.load(Ordering::SeqCst) & PUT_AWAY != 0
    }

    /// Whether it is found by no name.
    pub(crate) fn is_undeclared(&self) -> bool {
        self.standing.0.load(Ordering::Relaxed) & UNDECLARED != 0
    }

    /// Whether it was replaced or taken away.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.standing.0.load(Ordering::SeqCst) & WITHDRAWN != 0
    }

    /// Whether it may be called at all, as it was declared.
    pub(crate) fn check_enabled(&self) -> Result<(), Trouble> {
        if self.policy().enabled {
            return Ok(());
        }
        let what = format!("`{}` is switched off", self.name);
        Err(Trouble::new(Reason::NotAllowed, what))
    }

    /// Whether it may be called at all, by what was said last.
    pub(crate) fn may_be_used(&self, engine: &Engine) -> Result<(), Trouble> {
        self.with_rules(engine, Self::check_enabled)
    }

    /// Whether a tool of it may be listed and called, by what was said last.
    pub(crate) fn may_call(&self, engine: &Engine, tool: &str) -> bool {
        self.with_rules(engine, |ruling| {
            crate::tools::may_call(&ruling.policy(), tool)
        })
    }

    /// Whether only some of its tools may be called, by what was said last.
    pub(crate) fn chooses_tools(&self, engine: &Engine) -> bool {
        self.with_rules(engine, |ruling| {
            let policy = ruling.policy();
            !(policy.allow.is_empty() && policy.deny.is_empty())
        })
    }

    /// Asks the entry whose rules count for this one: itself, or what was declared after it under
    /// its name. What was taken away is held to what counted then.
    pub(crate) fn with_rules<T>(&self, engine: &Engine, ask: impl FnOnce(&Self) -> T) -> T {
        if self.is_undeclared() || !self.is_withdrawn() {
            return ask(self);
        }
        if let Some(newest) = engine.entries().get(&self.name) {
            return ask(newest);
        }
        match engine.keeper.last_removed(&self.name) {
            Some(last) => ask(&last),
            None => ask(self),
        }
    }
}

/// The entry that governs a call of this caller: that of the server where its run has sessions of
/// its own, else the one that stands by that name.
pub(crate) fn governing(caller: &Caller, entry: &Arc<Entry>) -> Result<Arc<Entry>, Trouble> {
    if entry.is_undeclared() {
        return Ok(Arc::clone(entry));
    }
    let run = caller.run.as_ref();
    if let Some(kept) = run.and_then(|run| run.routes.kept(&entry.name))
        && !kept.is_put_away()
    {
        return Ok(kept);
    }
    match entry.is_withdrawn() {
        true => caller.engine.entry(&entry.name),
        false => Ok(Arc::clone(entry)),
    }
}
