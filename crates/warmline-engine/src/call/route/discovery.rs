//! The first contact with a server, made once for all callers that wait. Its session takes a permit
//! first, waits among the spares for its caller, and ends with the run that it was opened for.
//!
//! That a server keeps sessions gets a record (A171), so that a later process opens one at once. The
//! record has no session, and its key cannot be that of one: it belongs to all identities and to a run
//! that nobody can name.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::policy::SessionMode;
use warmline_core::pool::EndReason;
use warmline_core::pool_key::{KeyOwner, KeyScope, PoolKey, RunId, Transport};
use warmline_core::session_plan::ServerProfile;

use super::{RouteQuery, lacks_era};
use crate::context::draining_diagnostic;
use crate::run_state;
use crate::server_state::{DiscoveryError, DiscoveryGoal, DiscoveryKey, profile_of, transport_of};
use crate::session_factory::pool_events::{identity_ref, record_refusal};
use crate::session_factory::{DiscoveredSession, record_of_facts};
use warmline_platform::clock;
use warmline_pool::{CleanupToken, FirstContactInfo, HeldUntilCleanup, SessionPermit};
use warmline_store::keyring::Purpose;
use warmline_store::{Records, WriteOutcome};
use warmline_upstream::{EraSelection, ServerFacts};

/// The time that a first contact gets after the end of its run, because the server may have opened a
/// session that has to be closed.
const RUN_END_GRACE: Duration = Duration::from_secs(2);
/// The number of other runs' first contacts that may end early before a caller gives up.
const MAX_FOREIGN_ATTEMPTS: u32 = 16;

impl RouteQuery<'_> {
    /// The discovered server: cached, recorded, or discovered now, once for all that wait.
    pub(super) async fn discover(self) -> Result<ServerProfile, Diagnostic> {
        let server = self.server;
        let key = self.discovery_key();
        if let Some(discovered) = server.discovered_profile(&key) {
            return Ok(discovered);
        }
        if let Some(server_profile) = self.recorded_profile(key).await {
            server.record_discovery(key, server_profile);
            return Ok(server_profile);
        }
        if let DiscoveryGoal::Era(era) = key.goal
            && self.lacks_era(era)
        {
            let what = format!("`{}` does not speak the {era} era", server.name);
            return Err(Diagnostic::new(Reason::Version, what)
                .with_cause("so it is decided, or so it said before"));
        }
        for _ in 0..MAX_FOREIGN_ATTEMPTS {
            let work = || {
                let (caller, server) = (self.caller.clone(), Arc::clone(server));
                let access = self.access.clone();
                async move {
                    let query = RouteQuery {
                        caller: &caller,
                        server: &server,
                        access: &access,
                    };
                    query.run_discovery(key).await
                }
            };
            let flights = &server.discovery_flights;
            match flights.join_or_start("first-contact", key, work).await {
                Some(Ok(discovered)) => return Ok(discovered),
                Some(Err(DiscoveryError::Failed(diagnostic))) => return Err(diagnostic),
                Some(Err(DiscoveryError::RunEnded)) => match &self.caller.run {
                    Some(run) if run.cancel.is_set() => {
                        return Err(run_state::ended_diagnostic(&run.name));
                    },
                    Some(_) | None => {},
                },
                None => break,
            }
        }
        let what = format!(
            "the first contact with `{}` ended without a word",
            server.name
        );
        Err(Diagnostic::new(Reason::Internal, what))
    }

    pub(super) fn is_discovered(self) -> bool {
        let known = self.server.discovered_profile(&self.discovery_key());
        known.is_some()
    }

    fn discovery_key(self) -> DiscoveryKey {
        let caller = self.caller;
        DiscoveryKey {
            credential: self.access.credential_id(),
            client_profile_id: caller.client_profile.id,
            goal: self.server.discovery_goal(caller.run.is_some(), caller.era),
        }
    }

    fn lacks_era(self, era: Era) -> bool {
        lacks_era(self.caller, self.server, self.access, era)
    }

    /// Makes the first contact. Its session becomes a spare for the caller.
    async fn run_discovery(self, key: DiscoveryKey) -> Result<ServerProfile, DiscoveryError> {
        let Self { caller, server, .. } = self;
        // Another flight may have finished while this caller looked for a record.
        if let Some(discovered) = server.discovered_profile(&key) {
            return Ok(discovered);
        }
        let seen = server.discovery_epoch();
        let contact = self.connect_until_run_over(key).await;
        let contact = contact.ok_or(DiscoveryError::RunEnded)?;
        let (contact, info) = contact.map_err(DiscoveryError::Failed)?;
        let facts = Arc::clone(contact.session.shared_facts());
        let profile = profile_of(&facts);
        if let Some(other) = contact.other_era_facts
            && !profile.has_sessions
            && other.keeps_session
        {
            tracing::info!(server = %server.name, era = %other.era, "the other era of this server keeps state");
        }
        let setup = Arc::new(self.session_setup(profile));
        let spare_key = self.spare_key(profile);
        let spares = caller.engine.pool.spares();
        spares.add_first_contact(&spare_key, &setup, contact.session, info);
        // Either the end of the run or the withdrawal sees the spare, or we see them.
        fence(Ordering::SeqCst);
        if let Some(run) = &caller.run
            && run.cancel.is_set()
        {
            spares.end_first_contacts_of_run(run.id);
        }
        if server.is_withdrawn() {
            spares.clear(EndReason::Reloaded, |key, _| *key == spare_key);
        }
        self.save_server_record(key, &facts).await;
        // Last, so that a caller that finds the contact finds the spare, too. After a change of the
        // server it counts only for those that wait.
        if server.discovery_epoch() == seen {
            server.record_discovery(key, profile);
        }
        Ok(profile)
    }

    async fn connect_until_run_over(
        self,
        key: DiscoveryKey,
    ) -> Option<Result<(DiscoveredSession, FirstContactInfo), Diagnostic>> {
        let mut connecting = std::pin::pin!(self.connect_first(key));
        let Some(run) = &self.caller.run else {
            return Some(connecting.await);
        };
        match run.cancel.run_until_set(connecting.as_mut()).await {
            Some(contact) => Some(contact),
            None => clock::timeout(RUN_END_GRACE, connecting).await.ok(),
        }
    }

    /// Contacts the server if permits and breakers allow it, and reports the result.
    async fn connect_first(
        self,
        key: DiscoveryKey,
    ) -> Result<(DiscoveredSession, FirstContactInfo), Diagnostic> {
        let Self {
            caller,
            server,
            access,
        } = self;
        let identity = caller.identity.id;
        let (factory, pool) = (&caller.engine.session_factory, &caller.engine.pool);
        let refused = |blocked: &Diagnostic| record_refusal(server, blocked, None);
        let (permit, second_permit) = self.acquire_permits(key).await.inspect_err(refused)?;
        let began = clock::now();
        let (breaker, changes) = pool
            .acquire_breaker_permit(
                &server.name,
                access.location.revision,
                KeyOwner::Identity(identity),
                key.credential,
                server.settings.load().policy.breaker,
            )
            .inspect_err(refused)?;
        factory.record_breaker_changes(server, identity, changes);
        let eras = self.eras_to_try(key.goal, second_permit.is_some());
        let goal = (key.goal, eras);
        let (cleanup, cleanups) = CleanupToken::new();
        // An unused process keeps its permit until it is gone.
        let permits = HeldUntilCleanup::new((permit, second_permit), cleanups);
        let contacting =
            factory.discover_server(server, access, &caller.client_profile, goal, cleanup);
        // A hanging server does not outlive the engine.
        let contact = caller
            .engine
            .run_until_cancelled(std::pin::pin!(contacting))
            .await
            .unwrap_or_else(|| Err(draining_diagnostic()));
        let changes = match &contact {
            Ok(_) => breaker.succeeded(),
            // It replied in the other era: not a failure of the server.
            Err(_) if matches!(key.goal, DiscoveryGoal::Era(era) if self.lacks_era(era)) => {
                breaker.succeeded()
            },
            Err(diagnostic) => {
                let session = identity_ref(server, identity);
                factory.record_open_failure(server, session, diagnostic, began.elapsed());
                breaker.failed(diagnostic)
            },
        };
        factory.record_breaker_changes(server, identity, changes);
        let mut contact = contact?;
        let (permit, second_permit) = permits.into_inner().unwrap_or_default();
        if let Some(unused) = contact.unused_session.take() {
            // It keeps its permit until it is gone.
            clock::spawn_if_running("close", async move {
                unused.close().await;
                drop(second_permit);
            });
        }
        let info = FirstContactInfo {
            took: began.elapsed(),
            run: caller.run.as_ref().map(|run| run.id),
            permit,
        };
        Ok((contact, info))
    }

    fn transport(self) -> Transport {
        transport_of(&self.access.location.transport)
    }

    fn eras_to_try(self, goal: DiscoveryGoal, has_second_permit: bool) -> EraSelection {
        match (goal, self.transport()) {
            (DiscoveryGoal::Any | DiscoveryGoal::Era(_), _) => EraSelection::FirstAnswering,
            // Two processes at once need a permit for the second.
            (DiscoveryGoal::Stateful, Transport::Stdio) if !has_second_permit => {
                EraSelection::BothInTurn
            },
            (DiscoveryGoal::Stateful, _) => EraSelection::Both,
        }
    }

    /// A permit for the session, and a second one where both eras are tried and one is free now.
    ///
    /// The owner of the session is not known yet, so only the limits of the server and the engine count.
    /// An unknown HTTP server may open a session.
    async fn acquire_permits(
        self,
        key: DiscoveryKey,
    ) -> Result<(Option<SessionPermit>, Option<SessionPermit>), Diagnostic> {
        let engine = &self.caller.engine;
        let transport = self.transport();
        let (most, wait, sessions) = {
            let policy = &self.server.settings.load().policy;
            (policy.max_sessions, policy.wait, policy.sessions)
        };
        let may_be_legacy =
            sessions != SessionMode::Never && key.goal != DiscoveryGoal::Era(Era::Modern);
        let target = self.target_key(ServerProfile {
            era: match may_be_legacy {
                true => Era::Legacy,
                false => Era::Modern,
            },
            transport,
            has_sessions: true,
        });
        let scope = KeyScope::Shared(self.caller.client_profile.sharing_id);
        let owner = KeyOwner::AnyIdentity;
        let key_of_nobody = Arc::new(PoolKey::new(target, owner, key.credential, scope));
        let until = clock::after(wait);
        let waiting = engine
            .pool
            .permit_for_first_contact(&key_of_nobody, most, until);
        let permit = engine.run_until_cancelled(std::pin::pin!(waiting)).await;
        let permit = permit.unwrap_or_else(|| Err(draining_diagnostic()))?;
        let needs_two = key.goal == DiscoveryGoal::Stateful && transport == Transport::Stdio;
        let second = needs_two.then(|| {
            engine
                .pool
                .try_permit_for_first_contact(&key_of_nobody, most)
        });
        Ok((permit, second.flatten()))
    }
}

/// The generation of a record without a session.
const FACT_GENERATION: u32 = 1;

impl RouteQuery<'_> {
    /// The recorded profile: of the run's session, or discovered by an earlier process. Sends nothing.
    async fn recorded_profile(self, key: DiscoveryKey) -> Option<ServerProfile> {
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
    async fn save_server_record(self, key: DiscoveryKey, facts: &ServerFacts) {
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
                let record = record_of_facts(of_server, FACT_GENERATION, profile, facts);
                if let WriteOutcome::Failed(diagnostic) = records.save(&record, None).await {
                    tracing::debug!(server = %server.name, trouble = %diagnostic, "cannot record the server");
                }
            } else if server.discovery_epoch() > 0 {
                records.clear(&of_server, FACT_GENERATION, None).await;
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
