//! An `initialize` on its way: where nobody hears what came of it, the server may hold a session
//! that nobody can end.
//!
//! Told by: the handshake of a legacy session over HTTP.  It counts when it is dropped, so that an
//! opening that is given up counts as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;

use super::greeting::Heard;
use super::http::Lost;
use super::server::Server;
use crate::metrics::ServerMetrics;

/// An `initialize` whose answer was not heard yet.
#[derive(Debug)]
pub(crate) struct Unheard {
    counts: Option<Arc<ServerMetrics>>,
    is_sent: AtomicBool,
}

impl Unheard {
    pub(crate) fn of(server: &Server) -> Self {
        Self {
            counts: server.counts.clone(),
            is_sent: AtomicBool::new(false),
        }
    }

    /// There is a connection, and it is written.
    pub(crate) fn goes_out(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// It is lost.
    pub(crate) fn lost(&self, lost: &Lost) {
        if lost.delivery == Delivery::Unsent {
            self.settled();
        }
    }

    /// This came back. An answer that broke off may have been that of a session.
    pub(crate) fn heard(&self, heard: &Heard) {
        let broken_off = [Reason::ReplyLost, Reason::ReplyTooLarge, Reason::Timeout];
        let trouble = heard.trouble.as_ref();
        let is_cut = trouble.is_some_and(|trouble| broken_off.contains(&trouble.reason));
        if heard.status != 200 || heard.message.is_some() || !is_cut {
            self.settled();
        }
    }

    fn settled(&self) {
        self.is_sent.store(false, Ordering::Relaxed);
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        if let Some(counts) = &self.counts
            && self.is_sent.load(Ordering::Relaxed)
        {
            counts.orphans_possible.one_more();
        }
    }
}
