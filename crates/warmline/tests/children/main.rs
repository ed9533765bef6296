//! Stories of process trees. They need a warden, and this binary is its own: run again with other
//! first arguments it is the warden, or the program that gets killed.
//!
//! A tree is told by a mark in the environment of its root, which all below inherit, so that a
//! descendant that left its group and its session is found as well.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test with a `main` of its own, which clippy does not know for one"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

mod owner_program;
mod process_scan;
mod process_trees;
mod random_endings;

fn main() -> ExitCode {
    warmline_upstream::child::warden::run_if_asked();
    process_scan::given_to_us();
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some(owner_program::HOLD) => owner_program::hold(arguments),
        Some(random_endings::HOLD_RUNS) => random_endings::hold_runs(arguments),
        Some(owner_program::FIND) => owner_program::find(arguments),
        first => {
            let asked: Vec<String> = first
                .map(str::to_owned)
                .into_iter()
                .chain(arguments)
                .collect();
            run(&asked)
        },
    }
}

/// A test of this file: its name and what it does.
type Story = (&'static str, fn());

/// Runs the stories whose names hold one of the words asked for, as the usual harness would.
fn run(asked: &[String]) -> ExitCode {
    let words: Vec<&String> = asked.iter().filter(|word| !word.starts_with('-')).collect();
    let all = || process_trees::ALL.iter().chain(random_endings::ALL);
    let chosen: Vec<&Story> = all()
        .filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(*word)))
        .collect();
    if asked.iter().any(|word| word == "--list") {
        for (name, _) in chosen {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let began = now();
    let mut failures = 0;
    let result = |passed| if passed { "ok" } else { "FAILED" };
    for (name, story) in &chosen {
        let passed = std::panic::catch_unwind(story).is_ok();
        println!("test {name} ... {}", result(passed));
        failures += usize::from(!passed);
    }
    println!(
        "\ntest result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out; finished in {:.2}s\n",
        result(failures == 0),
        chosen.len() - failures,
        failures,
        all().count() - chosen.len(),
        began.elapsed().as_secs_f32(),
    );
    ExitCode::from(u8::from(failures > 0))
}

/// This moment of the real world: what is measured here is processes.
#[expect(
    clippy::disallowed_methods,
    reason = "the time other processes take is real"
)]
fn now() -> Instant {
    Instant::now()
}

/// Runs a story on a runtime of its own.
fn on_runtime<T>(story: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(story)
}

fn alive_tasks() -> usize {
    let runtime = tokio::runtime::Handle::current();
    runtime.metrics().num_alive_tasks()
}

/// Waits until something is true, and says whether it came.
async fn is_within(limit: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let began = now();
    while !is_true() {
        if began.elapsed() > limit {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    true
}

/// Waits until something is true, and fails when it does not come.
async fn until(what: &str, limit: Duration, is_true: impl FnMut() -> bool) {
    let came = is_within(limit, is_true).await;
    assert!(came, "not within {limit:?}: {what}");
}
