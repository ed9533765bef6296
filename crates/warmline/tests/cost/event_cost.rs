//! What it costs to tell and to count: nothing on the heap while nobody listens.

use std::sync::Arc;
use std::time::Duration;

use warmline_core::error::code::Reason;
use warmline_engine::events::{Event, Events, SessionRef};
use warmline_engine::metrics::{AcquireOutcome, CallOutcome, CallRecorder, Metrics, OpenResult};

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
        let session = SessionRef::for_server(Arc::clone(&server))
            .with_generation(2)
            .with_session_id(Some("6f1ed002-ab59-4bbd-9e4b"));
        events.emit(Event::SessionOpened {
            session: session.clone(),
            how: OpenResult::Opened,
            took: Duration::from_millis(3),
        });
        events.emit(Event::CallRetried {
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
        server.acquires.increment(AcquireOutcome::Hit);
        let mut call = CallRecorder::start(&server, "tools/call");
        call.record_attempt();
        server.lease_time.record_time(Duration::from_micros(80));
        call.finish_answered(CallOutcome::Ok);
    };
    assert_eq!(allocations(|| (0..1000).for_each(|_| call())), 0);
}
