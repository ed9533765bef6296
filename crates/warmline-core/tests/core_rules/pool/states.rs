//! Every event in every state: what becomes of the session, and what the shell must do. The page
//! `docs/reference/session-states.md` is written from here and cannot drift.

use std::fmt::Write as _;
use std::time::Duration;

use warmline_core::pool::{
    Effect, EndCondition, EndReason, EntryPolicy, EntryState, Event, Generation, HealthCheckResult,
    LeaseKind, LeaseMode, LeaseOutcome, LeaseRefusal, OpenedSession, QueuePosition, SessionState,
    Sharing, StabilityCriterion, WaiterId,
};
use warmline_core::time::Tick;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/session-states.md"
);

const HEAD: &str = "\
# The states of a session

What each event does in each state of a session. This page is written by a test that walks all pairs \
(`crates/warmline-core/tests/core_rules/pool/states.rs`) and fails when page and code differ.

```
              asked for               opened             asked for
  (nothing) ───────────► opening ───────────────► idle ◄───────────► leased
                            │                      │    last settled    │
                            │ failed               │ limits, gone,      │ gone, ended, expired:
                            ▼                      ▼ ended              ▼ no new lease
                         closed ◄───────────── closed ◄──────────── retiring
                                                        last settled
```

A check is a lease that is not shared. The holder of an exclusive session has one lease, and one more for each request \
it sends. A spare waits until an opening takes it. Closed is final: the entry forgets the session at once. Where a row \
says so, one more caller waits; \"you\" is the caller of the row. An opening was in vain if its session is lost before \
its first answer, or if its process is lost within a minute; openings in vain count for the breaker.
";

/// A key in one state, with one session of generation 1 at most.
struct Scene {
    name: &'static str,
    cell: EntryState,
    now: Tick,
}

const CALLER: WaiterId = WaiterId(99);
const FIRST: Generation = Generation::FIRST;

fn policy(sharing: Sharing, ends: EndCondition) -> EntryPolicy {
    EntryPolicy {
        sharing,
        max_sessions: 1,
        max_age: None,
        max_idle: Some(Duration::from_secs(1_800)),
        check_after: Duration::from_secs(60),
        keep_alive: (ends == EndCondition::WithRunEnd).then(|| Duration::from_secs(120)),
        max_waiters: 8,
        stability: StabilityCriterion::FirstReply,
        end_condition: ends,
    }
}

fn asked(want: LeaseMode) -> Event {
    Event::LeaseRequested {
        waiter: CALLER,
        mode: want,
        position: QueuePosition::Back,
    }
}

const fn asked_again() -> Event {
    Event::LeaseRequested {
        waiter: CALLER,
        mode: LeaseMode::Shared,
        position: QueuePosition::Front,
    }
}

const OPENED: Event = Event::Opened(FIRST, OpenedSession::FRESH);

const fn settled(outcome: LeaseOutcome) -> Event {
    Event::LeaseReturned(FIRST, outcome)
}

const FINE: LeaseOutcome = LeaseOutcome::Answered { stateful: true };

fn scenes(policy: EntryPolicy) -> Vec<Scene> {
    let told = |name, events: &[(u64, Event)]| {
        let start = Tick::from_start(Duration::from_secs(1_000));
        let mut cell = EntryState::new(policy, 1, start);
        let mut now = start;
        for (wait, event) in events {
            now = now.after(Duration::from_secs(*wait));
            cell.handle_event(*event, now);
        }
        Scene { name, cell, now }
    };
    let ask = asked(LeaseMode::Shared);
    let used = [(0, ask), (0, OPENED), (0, settled(FINE))];
    let and = |more: &[(u64, Event)]| [&used[..], more].concat();
    let gone = Event::SessionEnded(FIRST, EndReason::Gone);
    vec![
        told("nothing there", &[]),
        told("opening", &[(0, ask)]),
        told("idle", &used),
        told(
            "idle, rested for a minute",
            &and(&[(60, Event::ServerLostSessions(Tick::START))]),
        ),
        told("leased", &and(&[(0, ask)])),
        told("leased alone", &and(&[(0, asked(LeaseMode::Exclusive))])),
        told("leased by a check", &and(&[(60, ask)])),
        told(
            "retiring: the server said gone",
            &and(&[(0, ask), (0, gone)]),
        ),
        told(
            "key ended, still leased",
            &and(&[(0, ask), (0, Event::EntryEnded(EndReason::RunEnded))]),
        ),
    ]
}

/// An event of the page: its name, the seconds that pass before it, and the event itself.
type NamedEvent = (&'static str, u64, Event);

/// Every kind of event, about generation 1 where it is about a session.
fn events() -> Vec<NamedEvent> {
    let generation = FIRST;
    let gone = |why| Event::SessionEnded(generation, why);
    let sweep = Event::MaintenanceTick(Duration::from_secs(600));
    let mut events = lease_events();
    events.extend([
        ("told of the loss", 0, Event::LossReported(1)),
        ("news: gone", 0, gone(EndReason::Gone)),
        ("an operator closes it", 0, gone(EndReason::ByOperator)),
    ]);
    events.extend(health_check_events());
    events.extend([
        (
            "its server lost sessions",
            0,
            Event::ServerLostSessions(Tick::NEVER),
        ),
        ("room is needed", 0, Event::PermitNeeded(generation)),
        ("swept", 0, sweep),
        ("swept after an hour", 3_600, sweep),
        ("key ended", 0, Event::EntryEnded(EndReason::RunEnded)),
        ("cut", 0, Event::GraceExpired),
    ]);
    events
}

/// From the request for a lease to its return.
fn lease_events() -> Vec<NamedEvent> {
    let generation = FIRST;
    vec![
        ("you ask", 0, asked(LeaseMode::Shared)),
        ("you ask to be alone", 0, asked(LeaseMode::Exclusive)),
        ("you had a turn, and ask again", 0, asked_again()),
        ("the first in line leaves", 0, Event::WaiterLeft(CALLER)),
        (
            "its holder sends on it",
            0,
            Event::HolderCallStarted(CALLER, generation),
        ),
        ("opened", 0, OPENED),
        ("opening failed", 0, Event::OpenFailed(generation)),
        ("opening withdrawn", 0, Event::OpenCancelled(generation)),
        ("opening deserted", 0, Event::OpenerLost(generation)),
        ("settled: fine", 0, settled(FINE)),
        (
            "settled: broken",
            0,
            settled(LeaseOutcome::ConnectionFailed),
        ),
        (
            "settled: gone",
            0,
            settled(LeaseOutcome::SessionEnded(EndReason::Gone)),
        ),
        ("settled: dropped", 0, settled(LeaseOutcome::Cancelled)),
        ("settled: unused", 0, settled(LeaseOutcome::Unused)),
    ]
}

/// Every result of a check and of a keep-alive.
fn health_check_events() -> Vec<NamedEvent> {
    let generation = FIRST;
    let checked = |health| Event::CheckFinished(generation, health);
    let kept = |health| Event::KeepAliveFinished(generation, health);
    vec![
        ("checked: alive", 0, checked(HealthCheckResult::Alive)),
        ("checked: gone", 0, checked(HealthCheckResult::Gone)),
        ("checked: silent", 0, checked(HealthCheckResult::TimedOut)),
        ("checked: refused", 0, checked(HealthCheckResult::Refused)),
        (
            "checked: unreachable",
            0,
            checked(HealthCheckResult::Unreachable),
        ),
        ("kept alive: alive", 0, kept(HealthCheckResult::Alive)),
        ("kept alive: gone", 0, kept(HealthCheckResult::Gone)),
        ("kept alive: silent", 0, kept(HealthCheckResult::TimedOut)),
        ("kept alive: refused", 0, kept(HealthCheckResult::Refused)),
        (
            "kept alive: unreachable",
            0,
            kept(HealthCheckResult::Unreachable),
        ),
    ]
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let parts = [
        (
            "Held by a run, calls side by side",
            Sharing::SideBySide,
            EndCondition::WithRunEnd,
        ),
        (
            "Shared by limits, calls side by side",
            Sharing::SideBySide,
            EndCondition::AtLimits,
        ),
        (
            "Shared by limits, one call each, at most one session",
            Sharing::OnePerCaller,
            EndCondition::AtLimits,
        ),
    ];
    for (title, sharing, ends) in parts {
        write!(page, "\n## {title}\n").expect("text");
        for scene in scenes(policy(sharing, ends)) {
            page.push_str(&part(&scene));
        }
    }
    page
}

/// What changes something stands in the table, and what does not below it.
fn part(scene: &Scene) -> String {
    let mut part = format!(
        "\n### {}\n\n| event | then | to do |\n|---|---|---|\n",
        scene.name
    );
    let (mut nothing, mut mistakes) = (Vec::new(), Vec::new());
    for (name, wait, event) in events() {
        let mut cell = scene.cell.clone();
        let effects = cell.handle_event(event, scene.now.after(Duration::from_secs(wait)));
        let same = state_words(&cell) == state_words(&scene.cell) && effects.is_empty();
        let mistaken = cell.invalid_events() > scene.cell.invalid_events();
        match (same, mistaken) {
            (true, true) => mistakes.push(name),
            (true, false) => nothing.push(name),
            (false, _) => {
                let to_do: Vec<String> = effects.iter().map(|one| effect_words(*one)).collect();
                let to_do = if to_do.is_empty() {
                    "-".to_owned()
                } else {
                    to_do.join("; ")
                };
                let mistaken = if mistaken {
                    "; counted as a mistake"
                } else {
                    ""
                };
                let then = state_words(&cell);
                writeln!(part, "| {name} | {then} | {to_do}{mistaken} |").expect("text");
            },
        }
    }
    for (what, names) in [
        ("Changes nothing that is seen here", nothing),
        ("Makes no sense, changes nothing, is counted", mistakes),
    ] {
        if !names.is_empty() {
            write!(part, "\n{what}: {}.\n", names.join("; ")).expect("text");
        }
    }
    part
}

fn state_words(cell: &EntryState) -> String {
    let mut words: Vec<String> = cell
        .sessions()
        .iter()
        .map(|session| {
            let state = match session.state {
                SessionState::Leased {
                    kind: LeaseKind::Check,
                    ..
                } => "leased by a check".to_owned(),
                SessionState::Leased {
                    kind: LeaseKind::Single,
                    ..
                } => "leased for one call".to_owned(),
                SessionState::Leased {
                    kind: LeaseKind::Exclusive,
                    leases,
                } if leases.get() == 1 => "leased alone".to_owned(),
                SessionState::Leased {
                    kind: LeaseKind::Exclusive,
                    leases,
                } => format!("leased alone, with {} under way", leases.get() - 1),
                SessionState::Leased { leases, .. } => format!("leased × {leases}"),
                SessionState::Retiring {
                    leases,
                    reason: why,
                    ..
                } => format!("retiring ({why}) × {leases}"),
                other @ (SessionState::Opening | SessionState::Idle | SessionState::Closed(_)) => {
                    other.as_str().to_owned()
                },
            };
            format!("{}: {state}", session.generation)
        })
        .collect();
    let waiting = cell.counts().waiting;
    if waiting > 0 {
        words.push(format!("{waiting} in line"));
    }
    if words.is_empty() {
        words.push("nothing".to_owned());
    }
    words.join(", ")
}

fn effect_words(effect: Effect) -> String {
    match effect {
        Effect::GrantLease {
            generation, loss, ..
        } => match loss {
            Some(loss) => format!("lease {generation}, tell the loss of {}", loss.generation),
            None => format!("lease {generation}"),
        },
        Effect::RefuseLease(_, refusal) => match refusal {
            LeaseRefusal::QueueFull => "refuse: too many in line".to_owned(),
            LeaseRefusal::OpenFailed => "refuse: what the opening said".to_owned(),
            LeaseRefusal::OpenerLost => "refuse: ask again".to_owned(),
            LeaseRefusal::EntryEnded(why) => format!("refuse: {why}"),
        },
        Effect::OpenSession(generation) => format!("open {generation}"),
        Effect::OpenUnneeded(generation) => format!("{generation} need not begin"),
        Effect::AbortOpen(generation) => format!("stop opening {generation}"),
        Effect::Renumber { from, to } => format!("{from} is {to}"),
        Effect::CheckSession(generation) => format!("check {generation}"),
        Effect::KeepAlive(generation) => format!("keep {generation} alive"),
        Effect::SessionStable(generation) => format!("{generation} was worth it"),
        Effect::SessionShortLived(generation, _) => format!("{generation} was opened in vain"),
        Effect::SessionLost(generation, why) => format!("{generation} was lost ({why})"),
        Effect::CloseSession(generation, why) => format!("close {generation} ({why})"),
        Effect::EvictEntry => "forget the key".to_owned(),
    }
}

/// reliability I8: every event in every state, as the page says it.
#[test]
fn the_page_of_states_says_what_the_machine_does() {
    let written = include_str!("../../../../../docs/reference/session-states.md");
    assert!(
        written == page(),
        "docs/reference/session-states.md is behind the machine; write it anew:\n\
         cargo test -p warmline-core --test core_rules -- --ignored write_the_page_of_states"
    );
}

#[test]
#[ignore = "writes the page instead of looking at it"]
#[expect(clippy::disallowed_methods, reason = "this is how the page is made")]
fn write_the_page_of_states() {
    std::fs::write(PAGE, page()).expect("the page");
}
