//! Stops a gateway: calls in flight may finish, the rest is cut, sessions are closed, programs ended.
//!
//! All steps share one deadline.

use std::time::Duration;

use warmline_core::policy::EngineLimits;
use warmline_engine::Warmline;
use warmline_engine::admin::EngineAdmin as _;
use warmline_gateway::Gateway;
use warmline_platform::clock::{self, Instant};

use crate::logging;
use crate::output::{Report, pluralize};
use crate::signals::Signals;

/// For closing sessions and ending programs: a program has 2 s after its input is closed, and 2 s more
/// before it is killed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
const FAST_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long clients have to read the errors of calls that are cut.
const CLIENT_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The exit code if calls were cut: their outcome is unknown.
const CALLS_CUT_EXIT_CODE: u8 = 3;

pub(crate) struct ShutdownTimes {
    pub(crate) calls: Duration,
    pub(crate) close: Duration,
    client_drain: Duration,
}

impl ShutdownTimes {
    /// Splits the whole time. Calls get at least half of it.
    pub(crate) fn within(all: Duration) -> Self {
        let close = CLOSE_TIMEOUT.min(all * 3 / 8);
        let client_drain = CLIENT_DRAIN_TIMEOUT.min(all / 8);
        Self {
            calls: all.saturating_sub(close + client_drain),
            close,
            client_drain,
        }
    }
}

/// Counts calls with an unknown outcome since the stop began.
pub(crate) struct CutCallCounter<'w> {
    warmline: &'w Warmline,
    unknown_before: u64,
}

impl<'w> CutCallCounter<'w> {
    pub(crate) fn start(warmline: &'w Warmline) -> Self {
        let unknown_before = calls_with_unknown_outcome(warmline);
        Self {
            warmline,
            unknown_before,
        }
    }

    /// Logs the count, with `answers` that were not sent. Returns the exit code.
    pub(crate) fn log_and_exit_code(&self, stopped: &str, answers: u64) -> u8 {
        let unknown = calls_with_unknown_outcome(self.warmline).saturating_sub(self.unknown_before);
        let cut = calls_in_flight(self.warmline) + unknown + answers;
        tracing::info!(cut, "{stopped}");
        if cut == 0 { 0 } else { CALLS_CUT_EXIT_CODE }
    }
}

/// Stops. A second signal, or a request on the admin socket, stops waiting. Returns the exit code.
pub(crate) async fn shut_down(
    gateway: Gateway,
    ceilings: EngineLimits,
    signals: &mut Signals,
    report: Option<&Report>,
) -> u8 {
    let steps = ShutdownTimes::within(ceilings.drain);
    let calls_by = clock::after(steps.calls);
    let warm = gateway.warmline().clone();
    let under_way = calls_in_flight(&warm) + gateway.unfinished_responses();
    let seconds = steps.calls.as_secs();
    tracing::info!(
        under_way,
        up_to_seconds = seconds,
        "stopping: calls under way may end"
    );
    // A JSON log has it already, and must have no other lines.
    if let Some(report) = report.filter(|_| under_way > 0 && !logging::is_json()) {
        let calls = pluralize(under_way, "call");
        report.print_note(&format!(
            "stopping: waits up to {seconds} s for {calls} in flight; signal again to close at once"
        ));
    }
    let notice = gateway.announce_shutdown();
    let cuts = CutCallCounter::start(&warm);
    let stopped = tokio::select! {
        () = drain_and_close(&gateway, &steps, calls_by, notice) => "stopped",
        () = signals.wait_for_stop() => close_immediately(&gateway, &steps, "stopped at once").await,
        () = gateway.immediate_shutdown_requested() => {
            close_immediately(&gateway, &steps, "stopped at once, as asked").await
        },
    };
    let answers = gateway.unfinished_responses();
    // Its sockets are closed after this, so that another gateway can listen.
    gateway.stop().await;
    cuts.log_and_exit_code(stopped, answers)
}

/// Stops a gateway that does not listen yet. A second signal stops waiting. Returns the exit code.
pub(crate) async fn shut_down_unstarted(
    warm: &Warmline,
    ceilings: EngineLimits,
    signals: &mut Signals,
) -> u8 {
    let steps = ShutdownTimes::within(ceilings.drain);
    let stopped = tokio::select! {
        () = warm.close_within(steps.close) => "stopped before it began",
        () = signals.wait_for_stop() => {
            close_engine_fast(warm).await;
            "stopped at once, before it began"
        },
    };
    tracing::info!("{stopped}");
    0
}

/// Waits for load balancers, for calls and for their answers; then cuts what is left and closes.
async fn drain_and_close(
    gateway: &Gateway,
    steps: &ShutdownTimes,
    calls_by: Instant,
    notice: Duration,
) {
    let warm = gateway.warmline();
    let waiting = calls_by.saturating_duration_since(clock::now());
    clock::sleep(notice.min(waiting / 2)).await;
    gateway.drain();
    let in_time = async {
        while calls_in_flight(warm) > 0 {
            // Background reads are no calls.
            warm.cancel_orphaned_reads();
            clock::sleep(POLL_INTERVAL).await;
        }
        // Calls that came in since then have the rest of the time.
        warm.close().await;
        // The last answers are being read now.
        wait_for_clients(gateway, steps).await;
        while gateway.unfinished_responses() > 0 {
            clock::sleep(POLL_INTERVAL).await;
        }
    };
    if clock::timeout_at(calls_by, in_time).await.is_err() {
        gateway.mark_calls_cut();
        warm.close_within(steps.close).await;
        wait_for_clients(gateway, steps).await;
    }
}

/// Lets clients read their errors. Streams for notifications may stay open.
async fn wait_for_clients(gateway: &Gateway, steps: &ShutdownTimes) {
    clock::timeout(steps.client_drain, gateway.drained())
        .await
        .ok();
}

async fn close_immediately(
    gateway: &Gateway,
    steps: &ShutdownTimes,
    said: &'static str,
) -> &'static str {
    gateway.drain();
    gateway.mark_calls_cut();
    close_engine_fast(gateway.warmline()).await;
    wait_for_clients(gateway, steps).await;
    said
}

pub(crate) async fn close_engine_fast(warm: &Warmline) {
    warm.close_fast_within(FAST_CLOSE_TIMEOUT).await;
}

fn calls_in_flight(warm: &Warmline) -> u64 {
    metric_sum(warm, "calls_under_way", &[])
}

fn calls_with_unknown_outcome(warm: &Warmline) -> u64 {
    metric_sum(warm, "calls_total", &["unknown"])
}

fn metric_sum(warm: &Warmline, name: &str, words: &[&str]) -> u64 {
    let snapshot = warm.snapshot();
    let servers = snapshot.servers.iter();
    servers.map(|server| server.count(name, words)).sum()
}
