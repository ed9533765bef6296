//! Which session a call gets: the table of `session_per`.

use std::time::Duration;

use crate::era::Era;
use crate::policy::{CallConcurrency, Policy, SessionMode, SessionScope};
use crate::pool::{EndCondition, EntryPolicy, Sharing, StabilityCriterion};
use crate::pool_key::{OwnerKind, ScopeKind, Transport};

/// What detection found out about a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerProfile {
    pub era: Era,
    pub transport: Transport,
    /// Whether the server keeps something for a session: it issued an id, or it is a process.
    pub has_sessions: bool,
}

/// Which session a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPlan {
    /// One that is kept for calls of the same key.
    Pooled(PooledPlan),
    PerCall,
}

/// How a kept session is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PooledPlan {
    pub owner: OwnerKind,
    /// How far the owner shares it.
    pub scope: ScopeKind,
    pub sharing: Sharing,
    /// False where the server holds nothing, so that nothing is counted.
    pub needs_permit: bool,
}

/// What the caller adds to the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// What is decided for the tool that is called.
    pub tool: Option<SessionScope>,
    pub in_run: bool,
    pub pool_enabled: bool,
    /// Whether the caller can come back under the same identity.
    pub is_returning: bool,
}

/// Decides which session a call gets.
pub fn plan_session(leg: ServerProfile, policy: &Policy, asking: PlanRequest) -> SessionPlan {
    // There is only the era to remember, so it serves every caller with the same credential.
    let asks_for_none = policy.sessions == SessionMode::Never && leg.transport != Transport::Stdio;
    if !leg.has_sessions || asks_for_none {
        return SessionPlan::Pooled(PooledPlan {
            owner: OwnerKind::AnyIdentity,
            scope: ScopeKind::Shared,
            sharing: Sharing::SideBySide,
            needs_permit: false,
        });
    }
    if !asking.pool_enabled {
        return SessionPlan::PerCall;
    }
    let handles_live_in_the_process = leg.era == Era::Modern && leg.transport == Transport::Stdio;
    let (usual, concurrency) = if handles_live_in_the_process {
        (SessionScope::Identity, CallConcurrency::SideBySide)
    } else {
        (SessionScope::Run, CallConcurrency::OneByOne)
    };
    let side_by_side = if policy.serial {
        Sharing::Serial
    } else {
        Sharing::SideBySide
    };
    let pooled = |owner, scope, sharing| {
        SessionPlan::Pooled(PooledPlan {
            owner,
            scope,
            sharing,
            needs_permit: true,
        })
    };
    let shared = |owner, usual| {
        let sharing = match policy.calls.unwrap_or(usual) {
            CallConcurrency::OneByOne => Sharing::OnePerCaller,
            CallConcurrency::SideBySide => side_by_side,
        };
        pooled(owner, ScopeKind::Shared, sharing)
    };
    match asking.tool.or(policy.session_per).unwrap_or(usual) {
        SessionScope::Run if asking.in_run => {
            pooled(OwnerKind::Identity, ScopeKind::Run, side_by_side)
        },
        // Outside a run it is not known how long to keep one.
        SessionScope::Run | SessionScope::Call => SessionPlan::PerCall,
        // No later caller could use it.
        SessionScope::Identity if !asking.is_returning => SessionPlan::PerCall,
        SessionScope::Identity => shared(OwnerKind::Identity, concurrency),
        SessionScope::Server => shared(OwnerKind::AnyIdentity, CallConcurrency::SideBySide),
    }
}

/// The limits of the sessions of a key.
pub fn entry_policy(
    leg: ServerProfile,
    holding: PooledPlan,
    policy: &Policy,
    waiters: u32,
) -> EntryPolicy {
    let is_process = leg.transport == Transport::Stdio;
    let free = !holding.needs_permit;
    let (ends, max_age, max_idle) = match holding.scope {
        ScopeKind::Run => {
            let by_name = policy.run_max_age.filter(|limit| !limit.is_zero());
            (EndCondition::WithRunEnd, by_name, None)
        },
        ScopeKind::Shared if free => (EndCondition::AtLimits, None, None),
        ScopeKind::Shared => (
            EndCondition::AtLimits,
            policy.age_limit(leg.transport),
            policy.idle_limit(leg.transport),
        ),
    };
    let keep_alive =
        (holding.scope == ScopeKind::Run && !is_process && !policy.keep_alive.is_zero())
            .then_some(policy.keep_alive);
    EntryPolicy {
        sharing: holding.sharing,
        max_sessions: match holding.sharing {
            Sharing::SideBySide | Sharing::Serial => 1,
            Sharing::OnePerCaller => policy.max_per_key,
        },
        max_age,
        max_idle,
        // A server that holds nothing cannot lose anything.
        check_after: if free {
            Duration::MAX
        } else {
            policy.check_after
        },
        keep_alive,
        max_waiters: waiters,
        stability: StabilityCriterion::for_transport(leg.transport),
        end_condition: ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY_HTTP: ServerProfile = ServerProfile {
        era: Era::Legacy,
        transport: Transport::Http,
        has_sessions: true,
    };
    const LEGACY_STDIO: ServerProfile = ServerProfile {
        transport: Transport::Stdio,
        ..LEGACY_HTTP
    };
    const MODERN_STDIO: ServerProfile = ServerProfile {
        era: Era::Modern,
        ..LEGACY_STDIO
    };
    const NO_SESSION: ServerProfile = ServerProfile {
        has_sessions: false,
        ..LEGACY_HTTP
    };
    const MODERN_HTTP: ServerProfile = ServerProfile {
        era: Era::Modern,
        ..NO_SESSION
    };

    fn asking(inside_run: bool) -> PlanRequest {
        PlanRequest {
            tool: None,
            in_run: inside_run,
            pool_enabled: true,
            is_returning: true,
        }
    }

    fn words(plan: SessionPlan) -> String {
        match plan {
            SessionPlan::PerCall => "once".to_owned(),
            SessionPlan::Pooled(h) => {
                let permit = if h.needs_permit { "Counted" } else { "Free" };
                format!("{:?} {:?} {:?} {permit}", h.owner, h.scope, h.sharing)
            },
        }
    }

    /// A12, A15, A19, A67, A70, A74, A204, A206, P32: the table of `session_per`.
    #[test]
    fn which_session_a_call_gets_is_the_table_of_session_per() {
        use SessionScope::{Call, Identity, Run, Server};
        const STATELESS: &str = "AnyIdentity Shared SideBySide Free";
        #[rustfmt::skip]
        let table = [
            // the leg      session_per      inside a run                            outside
            (LEGACY_HTTP,  None,           "Identity Run SideBySide Counted",      "once"),
            (LEGACY_STDIO, None,           "Identity Run SideBySide Counted",      "once"),
            (MODERN_STDIO, None,           "Identity Shared SideBySide Counted",   "Identity Shared SideBySide Counted"),
            (NO_SESSION,   None,           STATELESS,                              STATELESS),
            (MODERN_HTTP,  None,           STATELESS,                              STATELESS),
            (MODERN_HTTP,  Some(Run),      STATELESS,                              STATELESS),
            (LEGACY_HTTP,  Some(Run),      "Identity Run SideBySide Counted",      "once"),
            (LEGACY_HTTP,  Some(Identity), "Identity Shared OnePerCaller Counted",      "Identity Shared OnePerCaller Counted"),
            (LEGACY_HTTP,  Some(Call),     "once",                                 "once"),
            (LEGACY_HTTP,  Some(Server),   "AnyIdentity Shared SideBySide Counted",  "AnyIdentity Shared SideBySide Counted"),
            (MODERN_STDIO, Some(Run),      "Identity Run SideBySide Counted",      "once"),
        ];
        for (leg, per, inside, outside) in table {
            let policy = Policy {
                session_per: per,
                ..Policy::default()
            };
            assert_eq!(
                words(plan_session(leg, &policy, asking(true))),
                inside,
                "{leg:?} {per:?}"
            );
            assert_eq!(
                words(plan_session(leg, &policy, asking(false))),
                outside,
                "{leg:?} {per:?}"
            );
        }
    }

    /// A54, A88, P108, S1, S27: what a tool, `serial`, a switched-off pool and a caller who cannot
    /// come back change.
    #[test]
    fn a_tool_a_serial_server_and_a_switched_off_pool_change_the_plan() {
        let serial = Policy {
            serial: true,
            ..Policy::default()
        };
        assert_eq!(
            words(plan_session(LEGACY_HTTP, &serial, asking(true))),
            "Identity Run Serial Counted"
        );
        let usual = Policy::default();
        let tool = PlanRequest {
            tool: Some(SessionScope::Call),
            ..asking(true)
        };
        assert_eq!(
            plan_session(LEGACY_HTTP, &usual, tool),
            SessionPlan::PerCall
        );
        let off = PlanRequest {
            pool_enabled: false,
            ..asking(true)
        };
        assert_eq!(plan_session(LEGACY_HTTP, &usual, off), SessionPlan::PerCall);
        assert_eq!(
            words(plan_session(MODERN_HTTP, &usual, off)),
            "AnyIdentity Shared SideBySide Free"
        );
        let for_one_call = PlanRequest {
            is_returning: false,
            ..asking(false)
        };
        assert_eq!(
            plan_session(MODERN_STDIO, &usual, for_one_call),
            SessionPlan::PerCall
        );
        assert_eq!(
            words(plan_session(MODERN_HTTP, &usual, for_one_call)),
            "AnyIdentity Shared SideBySide Free"
        );
    }

    /// S3, S28, A51, A193: ages belong to shared sessions, unless an operator names runs.
    #[test]
    fn only_shared_sessions_age_unless_the_operator_names_runs() {
        let usual = Policy::default();
        let limits = |leg, policy: &Policy, inside| match plan_session(leg, policy, asking(inside))
        {
            SessionPlan::Pooled(holding) => entry_policy(leg, holding, policy, 7),
            SessionPlan::PerCall => panic!("not held"),
        };
        let run = limits(LEGACY_HTTP, &usual, true);
        assert_eq!(
            (run.max_age, run.max_idle, run.end_condition),
            (None, None, EndCondition::WithRunEnd)
        );
        assert_eq!(run.keep_alive, Some(Duration::from_secs(120)));
        let by_identity = Policy {
            session_per: Some(SessionScope::Identity),
            ..Policy::default()
        };
        let shared = limits(LEGACY_HTTP, &by_identity, true);
        assert_eq!(
            (shared.max_age, shared.max_sessions, shared.keep_alive),
            (Some(Duration::from_secs(300)), 10, None)
        );
        let process = limits(MODERN_STDIO, &usual, true);
        assert_eq!(
            (process.max_age, process.max_idle),
            (None, Some(Duration::from_secs(1800)))
        );
        let named = Policy {
            run_max_age: Some(Duration::from_secs(9)),
            ..Policy::default()
        };
        assert_eq!(
            limits(LEGACY_HTTP, &named, true).max_age,
            Some(Duration::from_secs(9))
        );
        let never = Policy {
            max_age: Some(Duration::ZERO),
            ..by_identity
        };
        assert_eq!(limits(LEGACY_HTTP, &never, false).max_age, None);
    }
}
