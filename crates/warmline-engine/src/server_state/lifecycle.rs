//! Whether a server is declared, was replaced, or was removed.

use std::sync::atomic::{Ordering, fence};

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;

use super::ServerState;
use crate::settings::ServerSettings;

// Flags; a server without any is declared.

/// No name leads to it. It keeps this flag when it is withdrawn.
const UNDECLARED: u8 = 1;
const WITHDRAWN: u8 = 2;
const REMOVED: u8 = 4;

impl ServerState {
    /// No name leads to this server: only its handles know it.
    pub(crate) fn mark_undeclared(&self) {
        self.lifecycle.fetch_or(UNDECLARED, Ordering::Release);
    }

    /// The server was replaced or removed: only sessions of runs stay open there.
    pub(crate) fn withdraw(&self) {
        self.lifecycle.fetch_or(WITHDRAWN, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The drain after a removal is over: runs lose their sessions there too.
    pub(crate) fn mark_removed(&self) {
        self.lifecycle.fetch_or(REMOVED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.lifecycle.load(Ordering::SeqCst) & REMOVED != 0
    }

    pub(crate) fn is_undeclared(&self) -> bool {
        self.lifecycle.load(Ordering::Relaxed) & UNDECLARED != 0
    }

    /// Whether it was replaced or removed.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.lifecycle.load(Ordering::SeqCst) & WITHDRAWN != 0
    }

    /// Whether the rules of its own declaration hold, not those of a later one.
    pub(crate) fn has_own_rules(&self) -> bool {
        self.lifecycle.load(Ordering::SeqCst) & (UNDECLARED | WITHDRAWN) != WITHDRAWN
    }

    /// Whether its own declaration lets it be called.
    pub(crate) fn check_enabled(&self) -> Result<(), Diagnostic> {
        self.settings().check_enabled(&self.name)
    }
}

impl ServerSettings {
    pub(crate) fn check_enabled(&self, server: &str) -> Result<(), Diagnostic> {
        if self.policy.enabled {
            return Ok(());
        }
        let what = format!("`{server}` is switched off");
        Err(Diagnostic::new(Reason::NotAllowed, what))
    }
}
