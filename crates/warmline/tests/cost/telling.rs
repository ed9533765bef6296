//! What it costs to tell and to count: nothing on the heap while nobody listens.

use std::sync::Arc;
use std::time::Duration;

use warmline::core::code::Reason;
use warmline::events::{Event, Events, Which};
use warmline::metrics::{Acquired, CallOutcome, CallUnderWay, MethodWord, Metrics, OpenResult};

/// Allocations of this thread while that ran.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = crate::ALLOCATIONS.with(std::cell::Cell::get);
    work();
    crate::ALLOCATIONS.with(std::cell::Cell::get) - before
}

#[test]
fn an_event_that_nobody_hears_allocates_nothing() {
    let events = Events::default();
    let server: Arc<str> = "github".into();
    let tell = || {
        let session = Which::of(Arc::clone(&server))
            .generation(2)
            .session_id(Some("6f1ed002-ab59-4bbd-9e4b"));
        events.tell(Event::SessionOpened {
            session: session.clone(),
            how: OpenResult::Opened,
            took: Duration::from_millis(3),
        });
        events.tell(Event::SentAgain {
            session,
            reason: Reason::SessionGone,
            attempt: 2,
        });
    };
    // The first time, the log makes up its mind about each line.
    tell();
    assert_eq!(allocations(|| (0..1000).for_each(|_| tell())), 0);
    drop(events.subscribe());
    assert_eq!(allocations(|| (0..1000).for_each(|_| tell())), 0);
}

#[test]
fn counting_a_call_allocates_nothing() {
    let server = Metrics::default().server("github");
    let call = || {
        server.acquires.one_more(Acquired::Hit);
        let mut call = CallUnderWay::begin(&server, MethodWord::of("tools/call"));
        call.attempt();
        server.lease_time.took(Duration::from_micros(80));
        call.answered(CallOutcome::Ok);
    };
    assert_eq!(allocations(|| (0..1000).for_each(|_| call())), 0);
}
