//! The plan: which session does a call get?
//!
//! Asked by: the engine, once it knows what a server is like.  The table of `session_per` is here
//! and nowhere else.

use std::time::Duration;

use crate::era::Era;
use crate::key::Transport;
use crate::policy::{Calls, Policy, SessionPer, Sessions};
use crate::pool::{CellPolicy, Ends, Proof, Sharing};

/// What detection found out about the way that is taken to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg {
    /// The era that is spoken on it.
    pub era: Era,
    /// How bytes travel on it.
    pub transport: Transport,
    /// Whether the server keeps something for a session: it issued an id, or it is a process.
    pub keeps_session: bool,
}

/// Which session a call gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// One that is kept for others of the same key.
    Held(Holding),
    /// One of its own.
    Once,
}

/// How a kept session is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Whose it is.
    pub owner: Ownership,
    /// How far the owner shares it.
    pub reach: Reach,
    /// How calls share it.
    pub sharing: Sharing,
    /// Whether it takes a place among the limited ones.
    pub room: Room,
}

/// Whose a kept session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The caller's identity's alone.
    Identity,
    /// Everybody's with the same credential.
    Everybody,
}

/// How far a kept session is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// By the caller's run.
    Run,
    /// By everything of its owner.
    Shared,
}

/// Whether a session takes a place among the limited ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// It does.
    Counted,
    /// Nothing is held at the server, so nothing is counted.
    Free,
}

/// What the caller adds to the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// What is decided for the tool that is called.
    pub tool: Option<SessionPer>,
    /// Whether the call belongs to a run.
    pub inside_run: bool,
    /// Whether sessions are kept at all.
    pub pool_enabled: bool,
    /// Whether whoever asks can come back as the same one.
    pub comes_back: bool,
}

/// Decides which session a call gets.
pub fn plan(leg: Leg, policy: &Policy, asking: Asking) -> Plan {
    // A verdict is all there is to hold, so it serves everybody with the same credential.
    let asks_for_none = policy.sessions == Sessions::Never && leg.transport != Transport::Stdio;
    if !leg.keeps_session || asks_for_none {
        return held(
            Ownership::Everybody,
            Reach::Shared,
            Sharing::SideBySide,
            Room::Free,
        );
    }
    if !asking.pool_enabled {
        return Plan::Once;
    }
    let handles_live_in_the_process = leg.era == Era::Modern && leg.transport == Transport::Stdio;
    let usual = if handles_live_in_the_process {
        SessionPer::Identity
    } else {
        SessionPer::Run
    };
    let side_by_side = if policy.serial {
        Sharing::Serial
    } else {
        Sharing::SideBySide
    };
    match asking.tool.or(policy.session_per).unwrap_or(usual) {
        SessionPer::Run if asking.inside_run => {
            held(Ownership::Identity, Reach::Run, side_by_side, Room::Counted)
        },
        // Outside any run nobody says how long a session of one would have to be kept.
        SessionPer::Run | SessionPer::Call => Plan::Once,
        // Nobody could ever use it again.
        SessionPer::Identity if !asking.comes_back => Plan::Once,
        SessionPer::Identity => {
            let calls = policy.calls.unwrap_or(if handles_live_in_the_process {
                Calls::SideBySide
            } else {
                Calls::OneByOne
            });
            let sharing = match calls {
                Calls::OneByOne => Sharing::OneEach,
                Calls::SideBySide => side_by_side,
            };
            held(Ownership::Identity, Reach::Shared, sharing, Room::Counted)
        },
        SessionPer::Server => {
            let sharing = match policy.calls {
                Some(Calls::OneByOne) => Sharing::OneEach,
                Some(Calls::SideBySide) | None => side_by_side,
            };
            held(Ownership::Everybody, Reach::Shared, sharing, Room::Counted)
        },
    }
}

const fn held(owner: Ownership, reach: Reach, sharing: Sharing, room: Room) -> Plan {
    Plan::Held(Holding {
        owner,
        reach,
        sharing,
        room,
    })
}

/// The limits of the sessions of a key that is held so.
pub fn cell_policy(leg: Leg, holding: Holding, policy: &Policy, waiters: u32) -> CellPolicy {
    let is_process = leg.transport == Transport::Stdio;
    let free = holding.room == Room::Free;
    let (ends, max_age, max_idle) = match holding.reach {
        Reach::Run => {
            let by_name = policy.run_max_age.filter(|limit| !limit.is_zero());
            (Ends::WithRun, by_name, None)
        },
        Reach::Shared if free => (Ends::ByLimits, None, None),
        Reach::Shared => (
            Ends::ByLimits,
            policy.age_limit(leg.transport),
            policy.idle_limit(leg.transport),
        ),
    };
    let keep_alive = (holding.reach == Reach::Run && !is_process && !policy.keep_alive.is_zero())
        .then_some(policy.keep_alive);
    CellPolicy {
        sharing: holding.sharing,
        max: match holding.sharing {
            Sharing::SideBySide | Sharing::Serial => 1,
            Sharing::OneEach => policy.max_per_key,
        },
        max_age,
        max_idle,
        // What holds nothing has nothing that could have died.
        check_after: if free {
            Duration::MAX
        } else {
            policy.check_after
        },
        keep_alive,
        waiters,
        proof: Proof::over(leg.transport),
        ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEGACY_HTTP: Leg = Leg {
        era: Era::Legacy,
        transport: Transport::Http,
        keeps_session: true,
    };
    const LEGACY_STDIO: Leg = Leg {
        transport: Transport::Stdio,
        ..LEGACY_HTTP
    };
    const MODERN_STDIO: Leg = Leg {
        era: Era::Modern,
        ..LEGACY_STDIO
    };
    const NO_SESSION: Leg = Leg {
        keeps_session: false,
        ..LEGACY_HTTP
    };
    const MODERN_HTTP: Leg = Leg {
        era: Era::Modern,
        ..NO_SESSION
    };

    fn asking(inside_run: bool) -> Asking {
        Asking {
            tool: None,
            inside_run,
            pool_enabled: true,
            comes_back: true,
        }
    }

    fn words(plan: Plan) -> String {
        match plan {
            Plan::Once => "once".to_owned(),
            Plan::Held(h) => format!("{:?} {:?} {:?} {:?}", h.owner, h.reach, h.sharing, h.room),
        }
    }

    /// A12, A15, A19, A67, A70, A74, A204, A206, P32: the table of `session_per`.
    #[test]
    fn which_session_a_call_gets_is_the_table_of_session_per() {
        use SessionPer::{Call, Identity, Run, Server};
        const STATELESS: &str = "Everybody Shared SideBySide Free";
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
            (LEGACY_HTTP,  Some(Identity), "Identity Shared OneEach Counted",      "Identity Shared OneEach Counted"),
            (LEGACY_HTTP,  Some(Call),     "once",                                 "once"),
            (LEGACY_HTTP,  Some(Server),   "Everybody Shared SideBySide Counted",  "Everybody Shared SideBySide Counted"),
            (MODERN_STDIO, Some(Run),      "Identity Run SideBySide Counted",      "once"),
        ];
        for (leg, per, inside, outside) in table {
            let policy = Policy {
                session_per: per,
                ..Policy::default()
            };
            assert_eq!(
                words(plan(leg, &policy, asking(true))),
                inside,
                "{leg:?} {per:?}"
            );
            assert_eq!(
                words(plan(leg, &policy, asking(false))),
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
            words(plan(LEGACY_HTTP, &serial, asking(true))),
            "Identity Run Serial Counted"
        );
        let usual = Policy::default();
        let tool = Asking {
            tool: Some(SessionPer::Call),
            ..asking(true)
        };
        assert_eq!(plan(LEGACY_HTTP, &usual, tool), Plan::Once);
        let off = Asking {
            pool_enabled: false,
            ..asking(true)
        };
        assert_eq!(plan(LEGACY_HTTP, &usual, off), Plan::Once);
        assert_eq!(
            words(plan(MODERN_HTTP, &usual, off)),
            "Everybody Shared SideBySide Free"
        );
        let for_one_call = Asking {
            comes_back: false,
            ..asking(false)
        };
        assert_eq!(plan(MODERN_STDIO, &usual, for_one_call), Plan::Once);
        assert_eq!(
            words(plan(MODERN_HTTP, &usual, for_one_call)),
            "Everybody Shared SideBySide Free"
        );
    }

    /// S3, S28, A51, A193: ages belong to shared sessions, unless an operator names runs.
    #[test]
    fn only_shared_sessions_age_unless_the_operator_names_runs() {
        let usual = Policy::default();
        let limits = |leg, policy: &Policy, inside| match plan(leg, policy, asking(inside)) {
            Plan::Held(holding) => cell_policy(leg, holding, policy, 7),
            Plan::Once => panic!("not held"),
        };
        let run = limits(LEGACY_HTTP, &usual, true);
        assert_eq!(
            (run.max_age, run.max_idle, run.ends),
            (None, None, Ends::WithRun)
        );
        assert_eq!(run.keep_alive, Some(Duration::from_secs(120)));
        let by_identity = Policy {
            session_per: Some(SessionPer::Identity),
            ..Policy::default()
        };
        let shared = limits(LEGACY_HTTP, &by_identity, true);
        assert_eq!(
            (shared.max_age, shared.max, shared.keep_alive),
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
