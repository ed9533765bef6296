//! Changes of the declared servers and of the rules, for streams that stay open at the aggregate endpoint.

use std::sync::Arc;

use tokio::sync::watch;
use warmline_engine::ServerSetWatcher;
use warmline_engine::admin::EngineAdmin as _;

use crate::GatewayState;
use crate::access::AccessPolicy;

pub(super) struct AggregateChanges {
    shared: Arc<GatewayState>,
    declarations: ServerSetWatcher,
    policy_changes: watch::Receiver<()>,
    last_policy: Arc<AccessPolicy>,
}

impl AggregateChanges {
    pub(super) fn new(shared: &Arc<GatewayState>) -> Self {
        Self {
            declarations: shared.warmline.watch_servers(),
            policy_changes: shared.access_policy.subscribe(),
            last_policy: shared.access_policy.load_full(),
            shared: Arc::clone(shared),
        }
    }

    /// Resolves when servers or rules have changed. Dropping it loses nothing.
    pub(super) async fn changed(&mut self) {
        loop {
            tokio::select! {
                () = self.declarations.changed() => return,
                // Its sender lives as long as the gateway.
                _ = self.policy_changes.changed() => {},
            }
            let now = self.shared.access_policy.load_full();
            let is_other = now.rules != self.last_policy.rules;
            self.last_policy = now;
            // Most changes of the policy are of tokens, which do not matter here.
            if is_other {
                return;
            }
        }
    }
}
