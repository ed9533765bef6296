//! A session as the pool holds it, and the session ids in use.
//!
//! A session id is all that tells one session of a server from another. A server that issues an id
//! twice, by a fault or to spy, would put two callers into one conversation: the second session is
//! not used. A key may get its own id again, from its record or when a healed session has the id of
//! the lost one.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::pool_key::PoolKey;
use warmline_core::time::Tick;

use super::{NotificationTarget, SessionFactory, SessionSetup};
use crate::server_state::{ServerLocation, ServerState};
use warmline_platform::lock::Mutex;
use warmline_upstream::{ServerFacts, Session};

#[derive(Debug)]
pub(crate) struct PooledSession {
    pub(crate) upstream: Session,
    /// Its number within its key, once it has one.
    pub(super) generation: AtomicU32,
    opened_at: Tick,
    /// Set if it was opened before its key was known.
    pub(super) notification_target: Option<Arc<NotificationTarget>>,
    loss_seen: AtomicBool,
    /// Whether it answered a call that was not idempotent: there is state to lose with it. Its key knows
    /// this only of the current session.
    pub(crate) stateful: AtomicBool,
}

/// The result of a first contact.
pub(crate) struct DiscoveredSession {
    pub(crate) session: Arc<PooledSession>,
    pub(crate) other_era_facts: Option<Arc<ServerFacts>>,
    /// A session of the other era that nobody will use.
    pub(crate) unused_session: Option<Session>,
}

impl PooledSession {
    fn new(
        session: Session,
        receiver: Option<Arc<NotificationTarget>>,
        opened_at: Tick,
    ) -> Arc<Self> {
        Arc::new(Self {
            upstream: session,
            notification_target: receiver,
            generation: AtomicU32::new(0),
            opened_at,
            loss_seen: AtomicBool::new(false),
            stateful: AtomicBool::new(false),
        })
    }

    /// Whether this call is the first to see the loss: however many calls see it, it is one loss.
    pub(crate) fn mark_loss_seen(&self) -> bool {
        !self.loss_seen.swap(true, Ordering::Relaxed)
    }

    /// The time since it was opened or resumed, by the engine's clock.
    pub(crate) fn age(&self, now: Tick) -> Duration {
        now.duration_since(self.opened_at)
    }
}

impl Deref for PooledSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.upstream
    }
}

/// The ids in use, by a keyed hash of server and id: a session has to cost little.
#[derive(Debug, Default)]
pub(super) struct LiveSessionIds {
    hasher: RandomState,
    ids: Mutex<HashMap<SessionIdHash, LiveSessionId>>,
}

/// Two halves, so that a row takes twelve bytes and not sixteen.
type SessionIdHash = [u32; 2];

#[derive(Debug)]
struct LiveSessionId {
    owner: ShortKeyHash,
    /// Our sessions with this id: one, or lost ones beside their replacement.
    session_count: u8,
}

type ShortKeyHash = [u8; 3];

/// The owner of a session without a key.
const NO_OWNER: ShortKeyHash = [0; 3];

impl LiveSessionIds {
    /// Registers the id of a session. False if another session has it, and they may not share it.
    fn try_claim(
        &self,
        hash: Option<SessionIdHash>,
        owner: ShortKeyHash,
        may_share: impl FnOnce(&LiveSessionId) -> bool,
    ) -> bool {
        let Some(hash) = hash else { return true };
        let new = LiveSessionId {
            owner,
            session_count: 0,
        };
        let mut ids = self.ids.lock();
        let live = ids.entry(hash).or_insert(new);
        let may_have = live.session_count == 0 || may_share(live);
        live.session_count = live.session_count.saturating_add(u8::from(may_have));
        may_have
    }

    fn short_key_hash(&self, key: &PoolKey) -> ShortKeyHash {
        let [a, b, c, ..] = self.hasher.hash_one(key).to_le_bytes();
        // Never that of a session without a key.
        [a.max(1), b, c]
    }

    fn session_id_hash(
        &self,
        server: &ServerState,
        location: &ServerLocation,
        session: &Session,
    ) -> Option<SessionIdHash> {
        let id = session.session_id()?;
        let server = (&server.name, location.revision.0.as_bytes());
        let [a, b, c, d, e, f, g, h] = self.hasher.hash_one((server, id)).to_le_bytes();
        Some([[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes))
    }
}

impl SessionFactory {
    /// Takes over a session that a server issued, unless its id is that of another one in use.
    pub(super) fn adopt_session(
        &self,
        (server, location): (&ServerState, &ServerLocation),
        (session, receiver): (Session, Option<Arc<NotificationTarget>>),
        replaces: Option<&Arc<PooledSession>>,
    ) -> Result<Arc<PooledSession>, Diagnostic> {
        let replaced = replaces.and_then(|old| old.session_id());
        let is_reissued = replaced.is_some() && replaced == session.session_id();
        let hash = self.live_ids.session_id_hash(server, location, &session);
        if self.live_ids.try_claim(hash, NO_OWNER, |_| is_reissued) {
            return Ok(PooledSession::new(session, receiver, self.context.tick()));
        }
        // It is not closed either: that would close the other one.
        let what = format!(
            "`{}` issued the id of a session that is in use",
            server.name
        );
        Err(Diagnostic::new(Reason::BadSessionId, what))
    }

    /// Takes over the session of a record; none if its id is that of another key's session.
    pub(super) fn adopt_recorded_session(
        &self,
        setup: &SessionSetup,
        key: &PoolKey,
        session: Session,
    ) -> Option<Arc<PooledSession>> {
        let ids = &self.live_ids;
        let owner = ids.short_key_hash(key);
        let hash = ids.session_id_hash(&setup.server, &setup.location, &session);
        let may = ids.try_claim(hash, owner, |live| live.owner == owner);
        may.then(|| PooledSession::new(session, None, self.context.tick()))
    }

    /// Runs `update` on the row of a session's id.
    fn with_live_id<T>(
        &self,
        setup: &SessionSetup,
        session: &Session,
        update: impl FnOnce(&mut LiveSessionId) -> T,
    ) -> Option<T> {
        let hash = self
            .live_ids
            .session_id_hash(&setup.server, &setup.location, session)?;
        let mut ids = self.live_ids.ids.lock();
        let live = ids.get_mut(&hash)?;
        let updated = update(live);
        if live.session_count == 0 {
            ids.remove(&hash);
        }
        Some(updated)
    }

    /// From now on a session belongs to a key.
    pub(super) fn assign_session_id(&self, setup: &SessionSetup, key: &PoolKey, session: &Session) {
        let owner = self.live_ids.short_key_hash(key);
        self.with_live_id(setup, session, |live| live.owner = owner);
    }

    /// Whether closing this session would close another one of ours with the same id.
    pub(super) fn shares_session_id(&self, setup: &SessionSetup, session: &Session) -> bool {
        let is_shared = self.with_live_id(setup, session, |live| live.session_count > 1);
        is_shared == Some(true)
    }

    /// A session is over: the server may issue its id again.
    pub(super) fn release_session_id(&self, setup: &SessionSetup, session: &Session) {
        self.with_live_id(setup, session, |live| {
            live.session_count = live.session_count.saturating_sub(1);
        });
    }
}
