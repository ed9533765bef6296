//! How a gateway stops: calls under way may end, the rest is cut and told so, sessions are closed,
//! programs are ended, all in bounded time.
//!
//! One clock counts for all steps: each has a share of the whole, and none begins another.

use std::time::Duration;

use warmline::clock::Instant;
use warmline::core::policy::Ceilings;
use warmline::{Warmline, clock};
use warmline_gateway::Gateway;

use crate::interrupt::Signals;
use crate::log;
use crate::report::Report;
use crate::report::text::count;

/// What closing sessions and ending programs takes at most. A program has 2 s after its input is
/// closed, and 2 s more before it is killed.
const TO_CLOSE: Duration = Duration::from_secs(5);
/// The same for whoever does not wait.
const TO_CLOSE_AT_ONCE: Duration = Duration::from_secs(2);
/// How long clients have to take what they are told when their calls are cut.
const TO_LEAVE: Duration = Duration::from_secs(1);
/// How often calls under way are counted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The exit code where calls were cut: what became of them is not known to their callers.
const CUT: u8 = 3;

/// The time of each step of a stop.
pub(crate) struct Steps {
    /// So long calls may go on.
    pub(crate) for_calls: Duration,
    pub(crate) to_close: Duration,
    to_leave: Duration,
}

impl Steps {
    /// All of them within so long. Where that is little, calls have half of it still.
    pub(crate) fn within(all: Duration) -> Self {
        let to_close = TO_CLOSE.min(all * 3 / 8);
        let to_leave = TO_LEAVE.min(all / 8);
        Self {
            for_calls: all.saturating_sub(to_close + to_leave),
            to_close,
            to_leave,
        }
    }
}

/// How many calls have an unknown outcome since somebody began to stop.
pub(crate) struct Cuts<'w> {
    warm: &'w Warmline,
    unknown_before: u64,
}

impl<'w> Cuts<'w> {
    pub(crate) fn from_now(warm: &'w Warmline) -> Self {
        let unknown_before = calls_unknown(warm);
        Self {
            warm,
            unknown_before,
        }
    }

    fn number(&self) -> u64 {
        let unknown = calls_unknown(self.warm).saturating_sub(self.unknown_before);
        calls_under_way(self.warm) + unknown
    }

    /// Tells how many there were, with so many answers that did not leave. The number is the exit
    /// code.
    pub(crate) fn told(&self, stopped: &str, answers: u64) -> u8 {
        let cut = self.number() + answers;
        tracing::info!(cut, "{stopped}");
        if cut == 0 { 0 } else { CUT }
    }
}

/// Stops; a second signal, or a word by the admin socket, stops waiting. The number is the exit
/// code.
pub(crate) async fn stop(
    gateway: Gateway,
    ceilings: Ceilings,
    signals: &mut Signals,
    report: Option<&Report>,
) -> u8 {
    let steps = Steps::within(ceilings.drain);
    let calls_by = clock::after(steps.for_calls);
    let warm = gateway.warm().clone();
    let under_way = calls_under_way(&warm) + gateway.answers_leaving();
    let seconds = steps.for_calls.as_secs();
    tracing::info!(
        under_way,
        up_to_seconds = seconds,
        "stopping: calls under way may end"
    );
    // A log of objects says it already, and takes no line that is none.
    if let Some(report) = report.filter(|_| under_way > 0 && !log::is_json()) {
        let calls = count(usize::try_from(under_way).unwrap_or(usize::MAX), "call");
        report.note(&format!(
            "stopping: waits up to {seconds} s for {calls} under way; again to close at once"
        ));
    }
    let notice = gateway.leave();
    let cuts = Cuts::from_now(&warm);
    let stopped = tokio::select! {
        () = ended(&gateway, &steps, calls_by, notice) => "stopped",
        () = signals.stop() => at_once(&gateway, &steps, "stopped at once").await,
        () = gateway.asked_to_end_at_once() => {
            at_once(&gateway, &steps, "stopped at once, as asked").await
        },
    };
    let answers = gateway.answers_leaving();
    // Its sockets are gone when this ends, so that another can take its place.
    gateway.stop().await;
    cuts.told(stopped, answers)
}

/// Stops what has not begun to listen: nobody has a call there that could be cut. A second signal
/// stops waiting. The number is the exit code.
pub(crate) async fn stop_unbegun(warm: &Warmline, ceilings: Ceilings, signals: &mut Signals) -> u8 {
    let steps = Steps::within(ceilings.drain);
    let stopped = tokio::select! {
        () = warm.close_now(steps.to_close) => "stopped before it began",
        () = signals.stop() => {
            close_at_once(warm).await;
            "stopped at once, before it began"
        },
    };
    tracing::info!("{stopped}");
    0
}

/// Waits until it was noticed, for calls and for their answers, cuts those that are left, and closes
/// everything.
async fn ended(gateway: &Gateway, steps: &Steps, calls_by: Instant, notice: Duration) {
    let warm = gateway.warm();
    let waiting = calls_by.saturating_duration_since(clock::now());
    clock::sleep(notice.min(waiting / 2)).await;
    gateway.drain();
    let in_time = async {
        while calls_under_way(warm) > 0 {
            // Looks of our own are nobody's calls.
            warm.end_unwanted();
            clock::sleep(LOOK_EVERY).await;
        }
        // Whoever came in since then has what is left of the time as well.
        warm.close().await;
        // Who was answered last begins to read now.
        told(gateway, steps).await;
        while gateway.answers_leaving() > 0 {
            clock::sleep(LOOK_EVERY).await;
        }
    };
    if clock::timeout_at(calls_by, in_time).await.is_err() {
        gateway.calls_are_cut();
        warm.close_now(steps.to_close).await;
        told(gateway, steps).await;
    }
}

/// Lets clients take what they are told. What rests open after that is no call: streams on which
/// they wait for news.
async fn told(gateway: &Gateway, steps: &Steps) {
    clock::timeout(steps.to_leave, gateway.drained()).await.ok();
}

/// Waits for nobody: calls are cut and told so, and everything is closed.
async fn at_once(gateway: &Gateway, steps: &Steps, said: &'static str) -> &'static str {
    gateway.drain();
    gateway.calls_are_cut();
    close_at_once(gateway.warm()).await;
    told(gateway, steps).await;
    said
}

/// Closes everything as fast as can be.
pub(crate) async fn close_at_once(warm: &Warmline) {
    warm.close_in_a_hurry(TO_CLOSE_AT_ONCE).await;
}

fn calls_under_way(warm: &Warmline) -> u64 {
    counted(warm, "calls_under_way", &[])
}

fn calls_unknown(warm: &Warmline) -> u64 {
    counted(warm, "calls_total", &["unknown"])
}

fn counted(warm: &Warmline, name: &str, words: &[&str]) -> u64 {
    let snapshot = warm.snapshot();
    let servers = snapshot.servers.iter();
    servers.map(|server| server.count(name, words)).sum()
}
