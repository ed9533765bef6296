//! How many sessions there may be: of one key (`max_per_key`), of one server, of one identity, and in
//! all.
//!
//! A blocked claim queues at the limit that blocks it; a claim blocked by its own identity's limit
//! blocks no other. Limits hold at every step, not only in the end (reliability I22).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::session::{Session, SessionState};
use super::{EntryPolicy, Sharing};
use crate::era::Era;
use crate::policy::EngineLimits;
use crate::pool_key::{Identity, KeyOwner, PoolKey, TargetKey, Transport};

/// Compares the sessions of a key with the most that it may have. A shared session that retires beside
/// its replacement does not count: a busy one could not be replaced otherwise.
pub(super) fn compare_with_key_limit(policy: &EntryPolicy, sessions: &[Session]) -> Ordering {
    let (limit, counts): (u32, fn(&SessionState) -> bool) = match policy.sharing {
        Sharing::OnePerCaller => (policy.max_sessions.max(1), SessionState::counts_toward_max),
        Sharing::SideBySide | Sharing::Serial => (1, |state| {
            *state == SessionState::Opening || state.is_usable()
        }),
    };
    let used = sessions.iter().filter(|one| counts(&one.state)).count();
    u32::try_from(used).unwrap_or(u32::MAX).cmp(&limit)
}

/// What a session uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PermitKind {
    /// A session at an HTTP server.
    Session,
    Process,
}

impl PermitKind {
    /// What a session of this target uses; none if the server holds nothing per session.
    pub const fn for_target(place: &TargetKey) -> Option<Self> {
        match (place.transport, place.era) {
            (Transport::Stdio, _) => Some(Self::Process),
            (Transport::Http, Era::Modern) => None,
            (Transport::Http | Transport::HttpSse, _) => Some(Self::Session),
        }
    }
}

/// A claim to a permit for one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermitClaim {
    kind: PermitKind,
    server: Arc<str>,
    identity: Option<Identity>,
    server_max: Option<u32>,
}

impl PermitClaim {
    /// The claim for a session of a key; none if it needs no permit.
    pub fn for_key(key: &PoolKey, server_max: Option<u32>) -> Option<Self> {
        Some(Self {
            kind: PermitKind::for_target(&key.target)?,
            server: Arc::clone(&key.target.server),
            identity: match key.owner {
                KeyOwner::Identity(identity) => Some(identity),
                KeyOwner::AnyIdentity => None,
            },
            server_max,
        })
    }

    pub fn is_unblocked_by_closing(&self, full: &SessionLimit, key: &PoolKey) -> bool {
        Self::for_key(key, None).is_some_and(|other| other.limits().any(|limit| limit == *full))
    }

    fn limits(&self) -> impl Iterator<Item = SessionLimit> + use<> {
        let server = SessionLimit::Server(Arc::clone(&self.server));
        let identity = self
            .identity
            .map(|identity| SessionLimit::Identity(identity, self.kind));
        [Some(server), identity, Some(SessionLimit::All(self.kind))]
            .into_iter()
            .flatten()
    }
}

/// A limit of sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionLimit {
    Server(Arc<str>),
    Identity(Identity, PermitKind),
    All(PermitKind),
}

/// A queued claim; also the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimId(u64);

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ClaimOutcome {
    Granted,
    /// A limit is full. The claim is granted when it has room.
    Queued(ClaimId, SessionLimit),
}

/// Queued claims that were granted, in order.
pub type GrantedClaims = SmallVec<[ClaimId; 1]>;

/// The permits in use, and the queued claims.
#[derive(Clone, Debug)]
pub struct SessionLimits {
    engine_limits: EngineLimits,
    used: BTreeMap<SessionLimit, u32>,
    /// Each claim queues at the limit that blocks it.
    queues: BTreeMap<SessionLimit, BTreeMap<ClaimId, PermitClaim>>,
    queued_at: BTreeMap<ClaimId, SessionLimit>,
    /// Permits that will be released soon, because their sessions are being evicted.
    announced_releases: BTreeMap<SessionLimit, u32>,
    /// Claims that another limit blocks since [`SessionLimits::take_requeued`] was last called.
    requeued: Vec<ClaimId>,
    next_id: ClaimId,
}

impl SessionLimits {
    /// Limits without permits in use.
    pub const fn new(engine_limits: EngineLimits) -> Self {
        Self {
            engine_limits,
            used: BTreeMap::new(),
            queues: BTreeMap::new(),
            queued_at: BTreeMap::new(),
            announced_releases: BTreeMap::new(),
            requeued: Vec::new(),
            next_id: ClaimId(0),
        }
    }

    pub fn claim(&mut self, claim: PermitClaim) -> ClaimOutcome {
        if let Some(full) = self.blocking_limit(&claim) {
            let ticket = self.next_id;
            self.next_id = ClaimId(ticket.0 + 1);
            self.enqueue(ticket, claim, full.clone());
            return ClaimOutcome::Queued(ticket, full);
        }
        self.add_usage(&claim);
        ClaimOutcome::Granted
    }

    /// Assigns a permit of no identity to the identity of this claim; false if the identity is at
    /// its limit.
    pub fn assign_to_identity(&mut self, claim: &PermitClaim) -> bool {
        let Some(identity) = claim.identity else {
            return true;
        };
        let own = SessionLimit::Identity(identity, claim.kind);
        let has_room = self.usage_of(&own) < self.max_for(&own, claim);
        if has_room {
            increment(&mut self.used, own);
        }
        has_room
    }

    /// Whether a queued claim needs this permit, beyond the releases that were announced.
    pub fn is_needed(&self, claim: &PermitClaim) -> bool {
        claim.limits().any(|limit| {
            let waiting = self.queues.get(&limit).map_or(0, BTreeMap::len);
            let promised = self.announced_releases.get(&limit).copied().unwrap_or(0);
            u32::try_from(waiting).unwrap_or(u32::MAX) > promised
        })
    }

    /// The permit will be released as soon as its session is closed.
    pub fn announce_release(&mut self, claim: &PermitClaim) {
        for limit in claim.limits() {
            increment(&mut self.announced_releases, limit);
        }
    }

    /// Releases a permit, and returns the claims that are granted by it.
    pub fn release(&mut self, claim: &PermitClaim, was_announced: bool) -> GrantedClaims {
        for limit in claim.limits() {
            decrement(&mut self.used, &limit);
            if was_announced {
                decrement(&mut self.announced_releases, &limit);
            }
        }
        let freed: SmallVec<[SessionLimit; 3]> = claim.limits().collect();
        self.grant_queued(&freed)
    }

    /// Removes a queued claim; false if it was granted already.
    pub fn cancel_claim(&mut self, ticket: ClaimId) -> bool {
        let Some(limit) = self.queued_at.remove(&ticket) else {
            return false;
        };
        self.dequeue(&limit, ticket);
        true
    }

    /// Applies other limits, and returns the claims that are granted by it.
    pub fn reconfigure(&mut self, ceilings: EngineLimits) -> GrantedClaims {
        self.engine_limits = ceilings;
        let waited_for: Vec<SessionLimit> = self.queues.keys().cloned().collect();
        self.grant_queued(&waited_for)
    }

    /// Applies another maximum to a server, also for queued claims. Returns those that are granted
    /// by it.
    pub fn set_server_max(&mut self, server: &str, most: Option<u32>) -> GrantedClaims {
        let claims = self.queues.values_mut().flat_map(BTreeMap::values_mut);
        for claim in claims.filter(|claim| *claim.server == *server) {
            claim.server_max = most;
        }
        self.grant_queued(&[SessionLimit::Server(Arc::from(server))])
    }

    /// Whether a limit was lowered below the permits in use since this claim was granted.
    pub fn is_over_limit(&self, claim: &PermitClaim) -> bool {
        claim
            .limits()
            .any(|limit| self.usage_of(&limit) > self.max_for(&limit, claim))
    }

    /// The limit that blocks this claim now, and its maximum.
    pub fn blocking_limit_and_max(&self, claim: &PermitClaim) -> Option<(SessionLimit, u32)> {
        let full = self.blocking_limit(claim)?;
        let most = self.max_for(&full, claim);
        Some((full, most))
    }

    /// Claims that another limit blocks since this was last called.
    pub fn take_requeued(&mut self) -> Vec<ClaimId> {
        std::mem::take(&mut self.requeued)
    }

    /// The limit that blocks a queued claim; none if it was granted or cancelled.
    pub fn queued_limit(&self, ticket: ClaimId) -> Option<&SessionLimit> {
        self.queued_at.get(&ticket)
    }

    pub fn used_permits(&self, kind: PermitKind) -> u32 {
        self.usage_of(&SessionLimit::All(kind))
    }

    pub fn queued_claims(&self) -> usize {
        self.queued_at.len()
    }

    /// Grants the earliest claims that these limits have room for.
    fn grant_queued(&mut self, freed: &[SessionLimit]) -> GrantedClaims {
        let mut called = GrantedClaims::new();
        while let Some((ticket, limit)) = self.first_grantable(freed) {
            let Some(claim) = self.dequeue(&limit, ticket) else {
                break;
            };
            match self.blocking_limit(&claim) {
                // It queues there in its order of arrival.
                Some(full) => {
                    self.enqueue(ticket, claim, full);
                    self.requeued.push(ticket);
                },
                None => {
                    self.queued_at.remove(&ticket);
                    self.add_usage(&claim);
                    called.push(ticket);
                },
            }
        }
        called
    }

    /// The earliest claim that one of these limits has room for.
    fn first_grantable(&self, limits: &[SessionLimit]) -> Option<(ClaimId, SessionLimit)> {
        let firsts = limits.iter().filter_map(|limit| {
            let (ticket, claim) = self.queues.get(limit)?.first_key_value()?;
            let room = self.usage_of(limit) < self.max_for(limit, claim);
            room.then(|| (*ticket, limit.clone()))
        });
        firsts.min_by_key(|(ticket, _)| *ticket)
    }

    fn blocking_limit(&self, claim: &PermitClaim) -> Option<SessionLimit> {
        claim
            .limits()
            .find(|limit| self.usage_of(limit) >= self.max_for(limit, claim))
    }

    fn add_usage(&mut self, claim: &PermitClaim) {
        for limit in claim.limits() {
            increment(&mut self.used, limit);
        }
    }

    fn enqueue(&mut self, ticket: ClaimId, claim: PermitClaim, full: SessionLimit) {
        self.queued_at.insert(ticket, full.clone());
        self.queues.entry(full).or_default().insert(ticket, claim);
    }

    fn dequeue(&mut self, limit: &SessionLimit, ticket: ClaimId) -> Option<PermitClaim> {
        let line = self.queues.get_mut(limit)?;
        let claim = line.remove(&ticket);
        if line.is_empty() {
            self.queues.remove(limit);
        }
        claim
    }

    fn usage_of(&self, limit: &SessionLimit) -> u32 {
        self.used.get(limit).copied().unwrap_or(0)
    }

    fn max_for(&self, limit: &SessionLimit, claim: &PermitClaim) -> u32 {
        let ceilings = &self.engine_limits;
        match limit {
            SessionLimit::Server(_) => claim.server_max.unwrap_or(u32::MAX),
            SessionLimit::Identity(_, PermitKind::Session) => ceilings.sessions_per_identity,
            SessionLimit::Identity(_, PermitKind::Process) => ceilings.processes_per_identity,
            SessionLimit::All(PermitKind::Session) => ceilings.sessions,
            SessionLimit::All(PermitKind::Process) => ceilings.processes,
        }
    }
}

fn increment(counts: &mut BTreeMap<SessionLimit, u32>, limit: SessionLimit) {
    let count = counts.entry(limit).or_insert(0);
    *count = count.saturating_add(1);
}

fn decrement(counts: &mut BTreeMap<SessionLimit, u32>, limit: &SessionLimit) {
    if let Some(count) = counts.get_mut(limit) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(limit);
        }
    }
}

#[cfg(test)]
mod tests;
