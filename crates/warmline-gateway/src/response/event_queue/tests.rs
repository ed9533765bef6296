//! Event queues that no store retains.

use std::task::Waker;

use super::*;

fn read(queue: &EventQueue, after: u64) -> Poll<Option<(u64, Bytes)>> {
    let mut cx = Context::from_waker(Waker::noop());
    queue.poll_next(after, 0, &mut cx)
}

fn event(number: u64, message: &'static str) -> Poll<Option<(u64, Bytes)>> {
    Poll::Ready(Some((number, message.into())))
}

#[test]
fn messages_come_in_order_and_then_it_is_over() {
    for keeps_read in [false, true] {
        let queue = EventQueue::default();
        queue.0.lock().keeps_read = keeps_read;
        assert!(read(&queue, 0).is_pending());
        assert!(queue.push_droppable("a".into()));
        queue.finish(Some("b".into()));
        assert!(!queue.push_droppable("late".into()));
        assert_eq!(read(&queue, 0), event(1, "a"));
        assert_eq!(read(&queue, 1), event(2, "b"));
        assert_eq!(read(&queue, 2), Poll::Ready(None));
        let expected = match keeps_read {
            false => Poll::Ready(None),
            true => event(1, "a"),
        };
        assert_eq!(read(&queue, 0), expected, "{keeps_read}");
    }
}

#[test]
fn what_is_too_much_is_left_out_but_never_the_end() {
    let queue = EventQueue::default();
    for _ in 0..100 {
        queue.push_droppable(Bytes::from(vec![b'x'; 10 << 10]));
    }
    queue.finish(Some(Bytes::from(vec![b'y'; MAX_RETAINED_BYTES + 1])));
    let Poll::Ready(Some((number, last))) = read(&queue, 0) else {
        panic!("nothing is held");
    };
    assert_eq!((number, last.len()), (101, MAX_RETAINED_BYTES + 1));
    assert!(queue.can_replay_after(100));
    assert!(!queue.can_replay_after(1));
    assert!(!queue.can_replay_after(102));
}

#[test]
fn a_reader_that_can_come_back_is_let_go_once() {
    let queue = EventQueue::default();
    queue.attach_reader(AcceptedFormats::Both);
    queue.request_pause(Duration::from_millis(7));
    assert_eq!(queue.requested_pause(), Some(Duration::from_millis(7)));
    queue.attach_reader(AcceptedFormats::Both);
    assert_eq!(queue.requested_pause(), None);
}

#[test]
fn a_question_waits_for_a_client_that_does_not_read() {
    let queue = EventQueue::default();
    queue.push_required("?".into());
    for _ in 0..100 {
        queue.push_droppable(Bytes::from(vec![b'x'; 10 << 10]));
    }
    assert_eq!(read(&queue, 0), event(1, "?"));
    let held: usize = queue
        .0
        .lock()
        .events
        .iter()
        .map(|held| held.message.len())
        .sum();
    assert!(held <= MAX_RETAINED_BYTES, "{held}");
}

#[test]
fn a_call_that_was_given_up_has_no_end() {
    let queue = EventQueue::default();
    queue.push_droppable("a".into());
    queue.cancel(None);
    queue.finish(Some("b".into()));
    assert_eq!(read(&queue, 0), Poll::Ready(None));
}

#[test]
fn whoever_comes_last_reads_the_rest() {
    let queue = EventQueue::default();
    let first = queue.attach_reader(AcceptedFormats::Both);
    queue.push_droppable("a".into());
    let second = queue.attach_reader(AcceptedFormats::Both);
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(queue.poll_next(0, first, &mut cx), Poll::Ready(None));
    assert_eq!(queue.poll_next(0, second, &mut cx), event(1, "a"));
}

fn kilobytes(count: usize) -> Bytes {
    Bytes::from(vec![b'x'; count << 10])
}

/// mcp-spec T30: for a client that reads nothing is left out; who tells it waits until it has read.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_is_waited_for() {
    let counts = Arc::<GatewayCounters>::default();
    let queue = EventQueue::new(&counts);
    let reader = queue.attach_reader(AcceptedFormats::Both);
    let mut cx = Context::from_waker(Waker::noop());
    let mut told = 0;
    while queue.backpressure().is_none() {
        queue.push_droppable(kilobytes(10));
        told += 1;
    }
    // One that is larger than all that may be held for somebody who is away.
    queue.push_droppable(kilobytes(300));
    let mut behind = queue.backpressure().unwrap();
    let mut waits = || behind.as_mut().poll(&mut cx).is_pending();
    assert!(waits());
    for number in 1..=told + 1 {
        let mut cx = Context::from_waker(Waker::noop());
        let next = queue.poll_next(number - 1, reader, &mut cx);
        assert!(matches!(next, Poll::Ready(Some((found, _))) if found == number));
    }
    assert!(waits(), "the last is not read yet");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(queue.poll_next(told + 1, reader, &mut cx).is_pending());
    assert!(!waits());
    assert_eq!(counts.dropped_notifications.count(), 0);
}

/// reliability F79: who tells others as well waits for a while; then what is too much is left out,
/// and counted.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_holds_up_others_for_a_while() {
    let counts = Arc::<GatewayCounters>::default();
    let queue = EventQueue::new(&counts);
    queue.attach_reader(AcceptedFormats::Both);
    for _ in 0..100 {
        queue.push_droppable(kilobytes(10));
        if let Some(behind) = queue.bounded_backpressure() {
            behind.await;
        }
    }
    assert!(
        queue.retained_bytes() <= MAX_RETAINED_BYTES,
        "{}",
        queue.retained_bytes()
    );
    let held = u64::try_from(queue.retained_bytes() / (10 << 10)).unwrap();
    assert_eq!(counts.dropped_notifications.count() + held, 100);
}

/// Whoever leaves is waited for no longer, and a client that takes no stream never is.
#[tokio::test]
async fn nobody_waits_for_who_does_not_read() {
    let counts = Arc::<GatewayCounters>::default();
    let queue = EventQueue::new(&counts);
    let reader = queue.attach_reader(AcceptedFormats::Both);
    queue.push_droppable(kilobytes(200));
    let behind = queue.backpressure().unwrap();
    queue.detach_reader(reader);
    behind.await;
    let queue = EventQueue::default();
    queue.attach_reader(AcceptedFormats::Json);
    queue.push_droppable(kilobytes(200));
    assert!(queue.backpressure().is_none());
    assert_eq!(queue.retained_bytes(), 0);
}
