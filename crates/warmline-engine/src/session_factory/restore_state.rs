//! Sends again what clients want of a session: to the session that replaces the one that was told,
//! and to the sessions beside it.
//!
//! A session works also if these requests get no answer. All of them share one time limit, and those
//! that failed are one line in the log.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream;
use warmline_core::exchange::{AttemptResult, Deadlines, Diagnostic, Request};
use warmline_core::message::params::Params;
use warmline_core::pool::Sharing;

use super::{ClientState, PooledSession, SessionSetup};
use warmline_platform::clock;
use warmline_upstream::Session;

/// Requests that are sent at a time where calls run side by side.
const MAX_CONCURRENT: usize = 8;

/// A request that is sent again: method and parameters.
pub(crate) type RestoreRequest = (&'static str, Params);

/// Sends a joining session what the one before it got.
pub(super) async fn restore_client_state(setup: &SessionSetup, session: &Arc<PooledSession>) {
    let wanted = setup.client_state();
    if !wanted.is_empty() {
        send_requests(setup, session, wanted.requests_since(None)).await;
        setup.set_last_sent(session, wanted);
    }
}

impl SessionSetup {
    /// Sends what clients asked for since then to a session beside the one that was told.
    pub(crate) async fn sync_session(&self, session: Arc<PooledSession>, before: &ClientState) {
        let missed = self.client_state().requests_since(Some(before));
        if !missed.is_empty() {
            send_requests(self, &session, missed).await;
        }
    }
}

/// Sends, in the background, what clients asked for while the session joined.
pub(super) fn send_missed_state(setup: &Arc<SessionSetup>, session: &Arc<PooledSession>) {
    let mut sent = setup.take_last_sent(session);
    let wanted = setup.client_state();
    if wanted.requests_since(sent.as_ref()).is_empty() {
        return;
    }
    // The record was written before that.
    setup.schedule_record_renewal();
    let (setup, session) = (Arc::clone(setup), Arc::clone(session));
    clock::spawn_if_running("client state", async move {
        loop {
            let wanted = setup.client_state();
            let missed = wanted.requests_since(sent.as_ref());
            if missed.is_empty() {
                return;
            }
            send_requests(&setup, &session, missed).await;
            sent = Some(wanted);
        }
    });
}

async fn send_requests(setup: &SessionSetup, session: &Session, all: Vec<RestoreRequest>) {
    let limit = setup.server.policy().health_check_timeout;
    let concurrent = match setup.sharing() {
        Some(Sharing::SideBySide) => MAX_CONCURRENT,
        Some(Sharing::Serial | Sharing::OnePerCaller) | None => 1,
    };
    let count = all.len();
    let (mut sent, mut diagnostic) = (0, None);
    let sending = async {
        // The level first: what follows may cause a log line.
        let (first, rest): (Vec<RestoreRequest>, Vec<RestoreRequest>) = all
            .into_iter()
            .partition(|(method, _)| *method == SET_LEVEL_METHOD);
        for some in [first, rest] {
            let mut requests: Vec<BoxFuture<'_, _>> = Vec::with_capacity(some.len());
            for request in some {
                requests.push(Box::pin(send_request(session, request, limit)));
            }
            let mut replies = stream::iter(requests).buffer_unordered(concurrent);
            while let Some(reply) = replies.next().await {
                match reply {
                    Ok(()) => sent += 1,
                    Err(failed) => diagnostic = Some(failed),
                }
            }
        }
    };
    let late = clock::timeout(limit, sending).await.is_err();
    if sent < count {
        let unsaid = count - sent;
        let server = &setup.server.name;
        let diagnostic = diagnostic.map(|diagnostic| diagnostic.to_string());
        tracing::warn!(%server, unsaid, late, diagnostic, "a new session did not get all that clients want of it");
    }
}

pub(super) const SET_LEVEL_METHOD: &str = "logging/setLevel";

async fn send_request(
    session: &Session,
    (method, params): RestoreRequest,
    limit: Duration,
) -> Result<(), Diagnostic> {
    let deadlines = Deadlines {
        idle: limit,
        total: limit,
    };
    let request = Request::new(method, params).with_deadlines(deadlines);
    match session.call(request, &()).await {
        AttemptResult::Answered(_) => Ok(()),
        AttemptResult::Failed(failure) => Err(failure.diagnostic),
    }
}
