//! Schedules: the pool's shell under a scheduler that decides who runs after every lock and every
//! wait. Each schedule ends with a drain, and then nothing may be left.
//!
//! The files of the pool are built a second time here, beside a clock and locks that the explorer
//! controls. `WARMLINE_SCHEDULES` says how many schedules of each kind are tried. A schedule that
//! fails is printed by the explorer in a form that repeats it.

#![expect(clippy::expect_used, reason = "a story that cannot go on fails")]

mod clock;
mod fake;
mod lock;
#[expect(dead_code, unreachable_pub, reason = "the engine uses more of it")]
mod pool_files;
mod tasks;

use std::io::Write as _;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Schedules of each kind, if nobody says otherwise.
const USUALLY: usize = 100;
/// How many turns at the most are taken out of order, for the scheduler that looks for bugs which
/// need few of them.
const DEPTH: usize = 4;

/// A story that is told under many schedules: its name, and what happens.
type Story = (&'static str, fn());

const STORIES: [Story; 7] = [
    (
        "calls, losses and ends leave nothing behind, in any order",
        tasks::everything_at_once,
    ),
    (
        "callers of one key are served, whoever leaves",
        tasks::one_key_many_callers,
    ),
    ("room is neither lost nor given twice", tasks::little_room),
    (
        "a lost session and its replacement never have more room than there is",
        tasks::replaced_in_little_room,
    ),
    ("spares are given to one caller each", tasks::few_spares),
    (
        "first contacts pass their room on, and end with their runs",
        tasks::first_contacts,
    ),
    (
        "a drain at any time leaves nothing behind",
        tasks::a_drain_at_any_time,
    ),
];

fn main() {
    let count = schedules();
    for (name, story) in STORIES {
        explore(RandomScheduler::new(count), story);
        explore(PctScheduler::new(DEPTH, count), story);
        say(&format!("{name}: 2 × {count} schedules"));
    }
}

fn explore(scheduler: impl Scheduler + 'static, story: fn()) {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(story);
}

fn schedules() -> usize {
    let said = std::env::var("WARMLINE_SCHEDULES").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(USUALLY)
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    drop(writeln!(out, "{line}"));
}
