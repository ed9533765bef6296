//! Saying orders again: to a session that takes the place of the one that was told, and to those
//! beside it.
//!
//! Asked by: whoever moves a session in, before anybody gets it, and once more when it is there:
//! an order may have been answered by the old session meanwhile; and by calls that gave an order to
//! one of several sessions.
//!
//! A session works also if what is said again gets no answer. So all of it has one limit together,
//! and what could not be said is told in one line of the log.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream;
use warmline_core::exchange::{Ending, Patience, Request, Trouble};
use warmline_core::pool::Sharing;
use warmline_core::protocol::params::Params;

use super::{Line, Orders, Setup};
use crate::clock;
use crate::upstream::Session;

/// So much is said at a time, where calls go side by side.
const AT_ONCE: usize = 8;

/// An order as it is said: method and parameters.
pub(crate) type Said = (&'static str, Params);

/// Says to a session that moves in what was said to the one before, and notes what that was.
pub(super) async fn say_again(setup: &Setup, line: &Arc<Line>) {
    let orders = setup.orders();
    if orders.is_empty() {
        return;
    }
    say(setup, line, orders.beyond(None)).await;
    setup.has_told(line, orders);
}

impl Setup {
    /// Says to a session beside the one that was told what was ordered since then.
    pub(crate) async fn tells(&self, line: Arc<Line>, before: &Orders) {
        let missed = self.orders().beyond(Some(before));
        if !missed.is_empty() {
            say(self, &line, missed).await;
        }
    }
}

/// Says to a session that is there now, in the background, what was ordered while it moved in.
pub(super) fn catch_up(setup: &Arc<Setup>, line: &Arc<Line>) {
    let mut told = setup.take_told(line);
    if setup.orders().beyond(told.as_ref()).is_empty() {
        return;
    }
    // It was written down before.
    setup.renews();
    let (setup, line) = (Arc::clone(setup), Arc::clone(line));
    clock::spawn_if_running("say again", async move {
        loop {
            let orders = setup.orders();
            let missed = orders.beyond(told.as_ref());
            if missed.is_empty() {
                return;
            }
            say(&setup, &line, missed).await;
            told = Some(orders);
        }
    });
}

async fn say(setup: &Setup, session: &Session, all: Vec<Said>) {
    let limit = setup.entry.policy().health_check_timeout;
    let at_once = match setup.sharing() {
        Some(Sharing::SideBySide) => AT_ONCE,
        Some(Sharing::Serial | Sharing::OneEach) | None => 1,
    };
    let count = all.len();
    let (mut said, mut trouble) = (0, None);
    let saying = async {
        // The level first: what is said next may be worth a line.
        let (first, rest): (Vec<Said>, Vec<Said>) =
            all.into_iter().partition(|(method, _)| *method == LEVEL);
        for some in [first, rest] {
            let mut waiting: Vec<BoxFuture<'_, _>> = Vec::with_capacity(some.len());
            for order in some {
                waiting.push(Box::pin(said_to(session, order, limit)));
            }
            let mut saying = stream::iter(waiting).buffer_unordered(at_once);
            while let Some(ended) = saying.next().await {
                match ended {
                    Ok(()) => said += 1,
                    Err(failed) => trouble = Some(failed),
                }
            }
        }
    };
    let late = clock::timeout(limit, saying).await.is_err();
    if said < count {
        let unsaid = count - said;
        let server = &setup.entry.name;
        let trouble = trouble.map(|trouble| trouble.to_string());
        tracing::warn!(%server, unsaid, late, trouble, "not said to another session");
    }
}

pub(super) const LEVEL: &str = "logging/setLevel";

async fn said_to(
    session: &Session,
    (method, params): Said,
    limit: Duration,
) -> Result<(), Trouble> {
    let patience = Patience {
        idle: limit,
        total: limit,
    };
    let request = Request::new(method, params).patient(patience);
    match session.call(request, &()).await {
        Ending::Answered(_) => Ok(()),
        Ending::Failed(failure) => Err(failure.trouble),
    }
}
