//! Hears that other servers stand behind the place of all servers than before, or other rules.
//!
//! Asked by: streams that stay open there. What somebody may not use any more must not be heard by
//! them either.

use std::sync::Arc;

use tokio::sync::watch;
use warmline::Declarations;

use crate::Shared;
use crate::terms::Terms;

/// Hears of changes from now on.
pub(crate) struct Changes {
    shared: Arc<Shared>,
    declarations: Declarations,
    terms: watch::Receiver<()>,
    before: Arc<Terms>,
}

impl Changes {
    pub(crate) fn of(shared: &Arc<Shared>) -> Self {
        Self {
            declarations: shared.warm.declarations(),
            terms: shared.terms.changes(),
            before: shared.terms.hold(),
            shared: Arc::clone(shared),
        }
    }

    /// Ends when there are other servers, or other rules. Dropping it loses nothing.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                () = self.declarations.changed() => return,
                () = told(&mut self.terms) => {},
            }
            let now = self.shared.terms.hold();
            let is_other = now.rules != self.before.rules;
            self.before = now;
            // Most changes are of tokens, which are looked at elsewhere.
            if is_other {
                return;
            }
        }
    }
}

async fn told(terms: &mut watch::Receiver<()>) {
    if terms.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
