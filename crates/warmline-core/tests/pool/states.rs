//! Every event in every state: what becomes of the session, and what the shell must do. The page
//! `docs/reference/session-states.md` is written from here and cannot drift.

use std::fmt::Write as _;
use std::time::Duration;

use warmline_core::pool::{
    Arrival, Cell, CellPolicy, Effect, Ends, Event, Generation, Health, Hold, Outcome, Proof,
    Refusal, Sharing, State, Turn, WaiterId, Want, Why,
};
use warmline_core::tick::Tick;

const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/reference/session-states.md"
);

const HEAD: &str = "\
# The states of a session

What happens to a session when a call asks, an opening fails, a server forgets? This page answers for every \
state and every event. It is written by a test that walks all of them \
(`crates/warmline-core/tests/pool/states.rs`) and fails when the page and the code differ.

```
              asked for               opened             asked for
  (nothing) ───────────► opening ───────────────► idle ◄───────────► leased
                            │                      │    last settled    │
                            │ failed               │ limits, gone,      │ gone, ended, expired:
                            ▼                      ▼ ended              ▼ no new lease
                         closed ◄───────────── closed ◄──────────── retiring
                                                        last settled
```

A check is a lease that nobody else shares. Whoever holds a session alone has a lease, and one more for whatever it \
sends. A spare lies on a shelf until an opening takes it. \
Closed is final: the cell forgets the session in that moment. One more caller stands in line wherever a row says so; \
\"you\" is the caller of the row. A session that is lost before it answered anything was opened in vain, and so was \
a process that is lost before it is a minute old, whatever it answered; openings in vain count for the breaker.
";

/// A key in one state, with one session of generation 1 at most.
struct Scene {
    name: &'static str,
    cell: Cell,
    now: Tick,
}

const CALLER: WaiterId = WaiterId(99);
const FIRST: Generation = Generation::FIRST;

fn policy(sharing: Sharing, ends: Ends) -> CellPolicy {
    CellPolicy {
        sharing,
        max: 1,
        max_age: None,
        max_idle: Some(Duration::from_secs(1_800)),
        check_after: Duration::from_secs(60),
        keep_alive: (ends == Ends::WithRun).then(|| Duration::from_secs(120)),
        waiters: 8,
        proof: Proof::Serving,
        ends,
    }
}

fn asked(want: Want) -> Event {
    Event::Asked {
        waiter: CALLER,
        want,
        turn: Turn::Last,
    }
}

const fn asked_again() -> Event {
    Event::Asked {
        waiter: CALLER,
        want: Want::Shared,
        turn: Turn::First,
    }
}

const OPENED: Event = Event::Opened {
    generation: FIRST,
    arrival: Arrival::FRESH,
};

const fn settled(outcome: Outcome) -> Event {
    Event::Settled {
        generation: FIRST,
        outcome,
    }
}

const FINE: Outcome = Outcome::Fine { left_state: true };

fn scenes(policy: CellPolicy) -> Vec<Scene> {
    let told = |name, events: &[(u64, Event)]| {
        let start = Tick::at(Duration::from_secs(1_000));
        let mut cell = Cell::new(policy, 1, start);
        let mut now = start;
        for (wait, event) in events {
            now = now.after(Duration::from_secs(*wait));
            cell.on(*event, now);
        }
        Scene { name, cell, now }
    };
    let ask = asked(Want::Shared);
    let used = [(0, ask), (0, OPENED), (0, settled(FINE))];
    let and = |more: &[(u64, Event)]| [&used[..], more].concat();
    let gone = Event::Gone {
        generation: FIRST,
        why: Why::Gone,
    };
    vec![
        told("nothing there", &[]),
        told("opening", &[(0, ask)]),
        told("idle", &used),
        told(
            "idle, rested for a minute",
            &and(&[(60, Event::Doubted { since: Tick::START })]),
        ),
        told("leased", &and(&[(0, ask)])),
        told("leased alone", &and(&[(0, asked(Want::Exclusive))])),
        told("leased by a check", &and(&[(60, ask)])),
        told(
            "retiring: the server said gone",
            &and(&[(0, ask), (0, gone)]),
        ),
        told(
            "key ended, still leased",
            &and(&[(0, ask), (0, Event::Ended(Why::RunEnded))]),
        ),
    ]
}

/// Every kind of event, about generation 1 where it is about a session.
fn events() -> Vec<(&'static str, u64, Event)> {
    let generation = FIRST;
    let checked = |health| Event::Checked { generation, health };
    let kept = |health| Event::KeptAlive { generation, health };
    let gone = |why| Event::Gone { generation, why };
    let sweep = Event::Swept {
        forget_after: Duration::from_secs(600),
    };
    vec![
        ("you ask", 0, asked(Want::Shared)),
        ("you ask to be alone", 0, asked(Want::Exclusive)),
        ("you had a turn, and ask again", 0, asked_again()),
        (
            "the first in line leaves",
            0,
            Event::Left { waiter: CALLER },
        ),
        (
            "its holder sends on it",
            0,
            Event::Joined {
                waiter: CALLER,
                generation,
            },
        ),
        ("opened", 0, OPENED),
        ("opening failed", 0, Event::OpenFailed { generation }),
        ("opening withdrawn", 0, Event::Withdrawn { generation }),
        ("opening deserted", 0, Event::Deserted { generation }),
        ("settled: fine", 0, settled(FINE)),
        ("settled: broken", 0, settled(Outcome::Broken)),
        ("settled: gone", 0, settled(Outcome::Gone(Why::Gone))),
        ("settled: dropped", 0, settled(Outcome::Dropped)),
        ("settled: unused", 0, settled(Outcome::Unused)),
        ("told of the loss", 0, Event::Told { number: 1 }),
        ("news: gone", 0, gone(Why::Gone)),
        ("an operator closes it", 0, gone(Why::ByOperator)),
        ("checked: alive", 0, checked(Health::Alive)),
        ("checked: gone", 0, checked(Health::Gone)),
        ("checked: silent", 0, checked(Health::Silent)),
        ("checked: refused", 0, checked(Health::Refused)),
        ("checked: unreachable", 0, checked(Health::Unreachable)),
        ("kept alive: alive", 0, kept(Health::Alive)),
        ("kept alive: gone", 0, kept(Health::Gone)),
        ("kept alive: silent", 0, kept(Health::Silent)),
        ("kept alive: refused", 0, kept(Health::Refused)),
        ("kept alive: unreachable", 0, kept(Health::Unreachable)),
        (
            "its server lost sessions",
            0,
            Event::Doubted { since: Tick::NEVER },
        ),
        ("room is needed", 0, Event::RoomNeeded { generation }),
        ("swept", 0, sweep),
        ("swept after an hour", 3_600, sweep),
        ("key ended", 0, Event::Ended(Why::RunEnded)),
        ("cut", 0, Event::Cut),
    ]
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    let parts = [
        (
            "Held by a run, calls side by side",
            Sharing::SideBySide,
            Ends::WithRun,
        ),
        (
            "Shared by limits, calls side by side",
            Sharing::SideBySide,
            Ends::ByLimits,
        ),
        (
            "Shared by limits, one call each, at most one session",
            Sharing::OneEach,
            Ends::ByLimits,
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
        let effects = cell.on(event, scene.now.after(Duration::from_secs(wait)));
        let same = state_words(&cell) == state_words(&scene.cell) && effects.is_empty();
        let mistaken = cell.mistakes() > scene.cell.mistakes();
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

fn state_words(cell: &Cell) -> String {
    let mut words: Vec<String> = cell
        .sessions()
        .iter()
        .map(|session| {
            let state = match session.state() {
                State::Leased {
                    hold: Hold::Check, ..
                } => "leased by a check".to_owned(),
                State::Leased {
                    hold: Hold::Single, ..
                } => "leased for one call".to_owned(),
                State::Leased {
                    hold: Hold::Exclusive,
                    leases,
                } if leases.get() == 1 => "leased alone".to_owned(),
                State::Leased {
                    hold: Hold::Exclusive,
                    leases,
                } => format!("leased alone, with {} under way", leases.get() - 1),
                State::Leased { leases, .. } => format!("leased × {leases}"),
                State::Retiring { leases, why, .. } => format!("retiring ({why}) × {leases}"),
                other @ (State::Opening | State::Idle | State::Closed(_)) => {
                    other.word().to_owned()
                },
            };
            format!("{}: {state}", session.generation())
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
        Effect::Lease {
            generation, loss, ..
        } => match loss {
            Some(loss) => format!("lease {generation}, tell the loss of {}", loss.generation),
            None => format!("lease {generation}"),
        },
        Effect::Refuse { refusal, .. } => match refusal {
            Refusal::LineFull => "refuse: too many in line".to_owned(),
            Refusal::OpenFailed => "refuse: what the opening said".to_owned(),
            Refusal::Deserted => "refuse: ask again".to_owned(),
            Refusal::Ended(why) => format!("refuse: {why}"),
        },
        Effect::Open { generation } => format!("open {generation}"),
        Effect::Unwanted { generation } => format!("{generation} need not begin"),
        Effect::Abandon { generation } => format!("stop opening {generation}"),
        Effect::Renumber { from, to } => format!("{from} is {to}"),
        Effect::Check { generation } => format!("check {generation}"),
        Effect::KeepAlive { generation } => format!("keep {generation} alive"),
        Effect::Proven { generation } => format!("{generation} was worth it"),
        Effect::InVain { generation, .. } => format!("{generation} was opened in vain"),
        Effect::Lost { generation, why } => format!("{generation} was lost ({why})"),
        Effect::Close { generation, why } => format!("close {generation} ({why})"),
        Effect::Forget => "forget the key".to_owned(),
    }
}

/// reliability I8: every event in every state, as the page says it.
#[test]
fn the_page_of_states_says_what_the_machine_does() {
    let written = include_str!("../../../../docs/reference/session-states.md");
    assert!(
        written == page(),
        "docs/reference/session-states.md is behind the machine; write it anew:\n\
         cargo test -p warmline-core --test pool -- --ignored write_the_page_of_states"
    );
}

#[test]
#[ignore = "writes the page instead of looking at it"]
#[expect(clippy::disallowed_methods, reason = "this is how the page is made")]
fn write_the_page_of_states() {
    std::fs::write(PAGE, page()).expect("the page");
}
