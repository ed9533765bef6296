//! What records say of a server before it is contacted.
//!
//! That a server keeps sessions gets a record (A171), so that a later process opens one at once. The
//! record has no session, and its key cannot be that of one: it belongs to all identities and to a run
//! that nobody can name.

use warmline_core::era::Era;
use warmline_core::pool_key::{KeyOwner, KeyScope, PoolKey, RunId};
use warmline_core::session_plan::ServerProfile;

use super::RouteQuery;
use crate::server_state::{DiscoveryGoal, DiscoveryKey};
use crate::session_factory::record_of_facts;
use warmline_store::keyring::Purpose;
use warmline_store::{Records, WriteOutcome};
use warmline_upstream::ServerFacts;

const GENERATION: u32 = 1;

impl RouteQuery<'_> {
    /// The recorded profile: of the run's session, or discovered by an earlier process. Sends nothing.
    pub(super) async fn recorded_profile(self, key: DiscoveryKey) -> Option<ServerProfile> {
        let Self { caller, server, .. } = self;
        let records = caller.engine.context.records_of(server)?;
        // Records exist for the legacy era only. After a contradiction the server is asked instead.
        if server.discovery_epoch() > 0 || key.goal == DiscoveryGoal::Era(Era::Modern) {
            return None;
        }
        let profile = self.stateful_profile();
        let of_server = self.server_record_key(key, key.goal);
        if records.outlives_process() && says_keeps_sessions(&records, &of_server).await {
            return Some(profile);
        }
        if let Some(run) = &caller.run {
            let of_session = PoolKey::new(
                self.target_key(profile),
                KeyOwner::Identity(caller.identity.id),
                self.access.credential_id(),
                KeyScope::Run(run.id),
            );
            if says_keeps_sessions(&records, &of_session).await {
                return Some(profile);
            }
        }
        // Before we write a record.
        let factory = &caller.engine.session_factory;
        factory.detect_replaced_secrets(server, &records).await;
        None
    }

    /// Saves what a first contact discovered, or clears what it disproved.
    pub(super) async fn save_server_record(self, key: DiscoveryKey, facts: &ServerFacts) {
        let Self { caller, server, .. } = self;
        let records = caller.engine.context.records_of(server);
        let Some(records) = records.filter(|records| records.outlives_process()) else {
            return;
        };
        let profile = self.stateful_profile();
        let keeps_sessions =
            facts.keeps_session && (facts.era, facts.transport) == (profile.era, profile.transport);
        // A server that replies in the legacy era to any goal has no other era.
        let goals: &[DiscoveryGoal] = match key.goal {
            DiscoveryGoal::Any => &[DiscoveryGoal::Any, DiscoveryGoal::Stateful],
            DiscoveryGoal::Stateful => &[DiscoveryGoal::Stateful],
            DiscoveryGoal::Era(Era::Legacy) => &[DiscoveryGoal::Era(Era::Legacy)],
            DiscoveryGoal::Era(Era::Modern) => &[],
        };
        for goal in goals {
            let of_server = self.server_record_key(key, *goal);
            if keeps_sessions {
                let profile = &caller.client_profile.profile;
                let record = record_of_facts(of_server, GENERATION, profile, facts);
                if let WriteOutcome::Failed(diagnostic) = records.save(&record, None).await {
                    tracing::debug!(server = %server.name, trouble = %diagnostic, "cannot record the server");
                }
            } else if server.discovery_epoch() > 0 {
                records.clear(&of_server, GENERATION, None).await;
            }
        }
    }

    fn stateful_profile(self) -> ServerProfile {
        ServerProfile {
            era: Era::Legacy,
            transport: self.transport(),
            has_sessions: true,
        }
    }

    fn server_record_key(self, key: DiscoveryKey, goal: DiscoveryGoal) -> PoolKey {
        let goal: &[u8] = match goal {
            DiscoveryGoal::Any => b"any",
            DiscoveryGoal::Stateful => b"state",
            DiscoveryGoal::Era(Era::Legacy) => b"legacy",
            DiscoveryGoal::Era(Era::Modern) => b"modern",
        };
        let vault = &self.caller.engine.context.vault;
        let parts = [key.client_profile_id.0.as_bytes(), goal];
        let run_of_nobody = RunId(vault.digest(Purpose::Contact, &parts));
        PoolKey::new(
            self.target_key(self.stateful_profile()),
            KeyOwner::AnyIdentity,
            key.credential,
            KeyScope::Run(run_of_nobody),
        )
    }
}

/// Whether a record says that the server keeps sessions. The record of a lost session does not.
async fn says_keeps_sessions(records: &Records, key: &PoolKey) -> bool {
    let found = records.load(key).await.ok().flatten();
    found.is_some_and(|record| !record.is_loss_marker())
}
