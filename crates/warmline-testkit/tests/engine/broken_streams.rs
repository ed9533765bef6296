//! Streams that break more often than anybody would count.

use crate::prelude::*;

/// So often the stream of one call breaks.
const BREAKS: u64 = 10_000;

/// A stack that a call for each break would not fit into.
const SMALL_STACK: usize = 512 * 1024;

/// A147: a stream that breaks ten thousand times is taken up ten thousand times, after a pause each,
/// on the same small stack, and brings every piece of news once.
#[test]
fn ten_thousand_breaks_need_no_more_stack_than_one() {
    let story = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(breaks());
    };
    let thread = std::thread::Builder::new().stack_size(SMALL_STACK);
    thread.spawn(story).unwrap().join().unwrap();
}

async fn breaks() {
    let form = ReplyFormat::Sse(SseFormat::resumable());
    let world = World::new(Personality::legacy().reply(form));
    let ledger = world.in_run();
    ledger.ping().await.unwrap();
    let cut = |method: &str| {
        FaultRule::new(Fault::Cut(CutPoint::AfterEvents(1), ConnectionEnd::Clean)).on_method(method)
    };
    world.inject(cut("tools/call"));
    let times = u32::try_from(BREAKS - 1).unwrap();
    world.inject(cut("GET").times(times));
    let heard = Arc::new(AtomicU64::new(0));
    let hearing = Arc::clone(&heard);
    let day = Duration::from_secs(86_400 * 30);
    let call = ledger
        .call("progress", json!({ "steps": BREAKS + 5 }))
        .timeout(day)
        .idle_timeout(day)
        .on_notification(move |_| {
            hearing.fetch_add(1, Ordering::Relaxed);
        });
    // Only pauses are skipped: the clock moves when nothing else is to be done.
    let answered = async {
        let call = call.into_future();
        tokio::pin!(call);
        loop {
            tokio::select! {
                biased;
                answered = &mut call => break answered,
                () = std::future::ready(()) => pass(Duration::from_millis(25)).await,
            }
            tokio::task::yield_now().await;
        }
    };
    let progressed = answered.await.unwrap();
    assert_eq!(progressed.attempts(), 1);
    assert_eq!(heard.load(Ordering::Relaxed), BREAKS + 5);
    let taken_up = world.received("GET");
    assert_eq!(u64::try_from(taken_up).unwrap(), BREAKS);
    world.finish().await;
}
