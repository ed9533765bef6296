//! How a gateway stops: calls under way may end, then sessions are closed, all in bounded time.

use std::time::Duration;

use warmline::core::policy::Ceilings;
use warmline::{Warmline, clock};
use warmline_gateway::Gateway;

use crate::interrupt::Signals;

/// What closing sessions takes, beside the grace of runs.
const TO_CLOSE: Duration = Duration::from_secs(2);
/// How long answers that are written already may take to leave.
const TO_LEAVE: Duration = Duration::from_secs(1);
/// How often calls under way are counted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The exit code where calls were cut: what became of them is not known to their callers.
const CUT: u8 = 3;

/// Stops; a second signal, or a word by the admin socket, stops waiting. The number is the exit
/// code.
pub(crate) async fn stop(gateway: Gateway, ceilings: Ceilings, signals: &mut Signals) -> u8 {
    let warm = gateway.warm().clone();
    let under_way = calls_under_way(&warm);
    tracing::info!(under_way, "stopping: calls under way may end");
    let notice = gateway.leave();
    let unknown = calls_unknown(&warm);
    let stopped = tokio::select! {
        () = ended(&gateway, &warm, &ceilings, notice) => "stopped",
        () = signals.stop() => "stopped at once",
        () = gateway.asked_to_end_at_once() => "stopped at once, as asked",
    };
    let cut = calls_under_way(&warm) + calls_unknown(&warm).saturating_sub(unknown);
    tracing::info!(cut, "{stopped}");
    if cut == 0 { 0 } else { CUT }
}

/// Waits until it was noticed and for calls, then closes everything, within the limit in all.
async fn ended(gateway: &Gateway, warm: &Warmline, ceilings: &Ceilings, notice: Duration) {
    let closing = ceilings.grace + TO_CLOSE;
    let waiting = ceilings.drain.saturating_sub(closing + TO_LEAVE);
    let notice = notice.min(waiting / 2);
    clock::sleep(notice).await;
    gateway.drain();
    let waiting = waiting.saturating_sub(notice);
    let quiet = async {
        while calls_under_way(warm) > 0 {
            clock::sleep(LOOK_EVERY).await;
        }
    };
    clock::timeout(waiting, quiet).await.ok();
    clock::timeout(closing, warm.close()).await.ok();
    // What rests open now is no call: streams on which clients wait for news.
    clock::timeout(TO_LEAVE, gateway.drained()).await.ok();
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
