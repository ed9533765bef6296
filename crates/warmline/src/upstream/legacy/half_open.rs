//! A session between `initialize` and `notifications/initialized`.
//!
//! Asked by: the handshake, which may be given up at any moment: its caller leaves, its time is over.

use std::sync::Arc;

use super::LegacyHttp;
use crate::clock;

/// A session that the server has given and that is not open yet. An opening that is given up here
/// ends it in the background: nobody else knows of it, and the server would keep it.
pub(super) struct HalfOpen {
    pub(super) session: Arc<LegacyHttp>,
    is_ours_to_end: bool,
}

impl HalfOpen {
    pub(super) fn of(session: Arc<LegacyHttp>) -> Self {
        Self {
            session,
            is_ours_to_end: true,
        }
    }

    pub(super) fn opened(mut self) -> Arc<LegacyHttp> {
        self.is_ours_to_end = false;
        Arc::clone(&self.session)
    }

    pub(super) async fn end(mut self) {
        self.session.end().await.ok();
        self.is_ours_to_end = false;
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        if self.is_ours_to_end {
            let session = Arc::clone(&self.session);
            clock::spawn_if_running("half-open", async move {
                session.end().await.ok();
            });
        }
    }
}
