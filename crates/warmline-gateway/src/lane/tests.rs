//! Lanes alone, without anybody who holds them.

use super::*;

fn read(lane: &Lane, number: u64) -> Poll<Next> {
    let mut cx = Context::from_waker(Waker::noop());
    lane.next(number, 0, &mut cx, Pausing::No)
}

#[test]
fn messages_come_in_order_and_then_it_is_over() {
    for keep in [Keep::Nothing, Keep::Written] {
        let lane = Lane::new(keep);
        assert!(read(&lane, 1).is_pending());
        assert!(lane.tell("a".into()));
        lane.end(Some("b".into()));
        assert!(!lane.tell("late".into()));
        assert_eq!(read(&lane, 1), Poll::Ready(Next::Message(1, "a".into())));
        assert_eq!(read(&lane, 2), Poll::Ready(Next::Message(2, "b".into())));
        assert_eq!(read(&lane, 3), Poll::Ready(Next::Over));
        let again = read(&lane, 1);
        let expected = match keep {
            Keep::Nothing => Next::Over,
            Keep::Written => Next::Message(1, "a".into()),
        };
        assert_eq!(again, Poll::Ready(expected), "{keep:?}");
    }
}

#[test]
fn what_is_too_much_is_left_out_but_never_the_end() {
    let lane = Lane::new(Keep::Written);
    for _ in 0..100 {
        lane.tell(Bytes::from(vec![b'x'; 10 << 10]));
    }
    lane.end(Some(Bytes::from(vec![b'y'; MAX_BYTES + 1])));
    let Poll::Ready(Next::Message(number, last)) = read(&lane, 1) else {
        panic!("nothing is held");
    };
    assert_eq!((number, last.len()), (101, MAX_BYTES + 1));
    assert!(lane.can_go_on_after(100));
    assert!(!lane.can_go_on_after(1));
    assert!(!lane.can_go_on_after(102));
}

#[test]
fn a_reader_that_can_come_back_is_let_go_once() {
    let lane = Lane::new(Keep::Written);
    let mut cx = Context::from_waker(Waker::noop());
    let pause = Duration::from_millis(7);
    let first = lane.attach(Hears::All);
    lane.tell("a".into());
    lane.pause(pause);
    let mut next = |number, reader, pausing| lane.next(number, reader, &mut cx, pausing);
    let a = Next::Message(1, "a".into());
    assert_eq!(next(1, first, Pausing::Yes), Poll::Ready(a));
    assert!(next(2, first, Pausing::No).is_pending());
    assert_eq!(
        next(2, first, Pausing::Yes),
        Poll::Ready(Next::Pause(pause))
    );
    let second = lane.attach(Hears::All);
    assert!(next(2, second, Pausing::Yes).is_pending());
}

#[test]
fn a_question_waits_for_a_client_that_does_not_read() {
    let lane = Lane::new(Keep::Written);
    lane.ask("?".into());
    for _ in 0..100 {
        lane.tell(Bytes::from(vec![b'x'; 10 << 10]));
    }
    assert_eq!(read(&lane, 1), Poll::Ready(Next::Message(1, "?".into())));
    let held: usize = lane
        .0
        .lock()
        .held
        .iter()
        .map(|held| held.message.len())
        .sum();
    assert!(held <= MAX_BYTES, "{held}");
}

#[test]
fn a_call_that_was_given_up_has_no_end() {
    let lane = Lane::new(Keep::Nothing);
    lane.tell("a".into());
    lane.cancel();
    lane.end(Some("b".into()));
    assert_eq!(read(&lane, 1), Poll::Ready(Next::Cancelled));
}

#[test]
fn whoever_comes_last_reads_the_rest() {
    let lane = Lane::new(Keep::Written);
    let first = lane.attach(Hears::All);
    lane.tell("a".into());
    let second = lane.attach(Hears::All);
    let mut cx = Context::from_waker(Waker::noop());
    assert_eq!(
        lane.next(1, first, &mut cx, Pausing::No),
        Poll::Ready(Next::Over)
    );
    let a = Next::Message(1, "a".into());
    assert_eq!(lane.next(1, second, &mut cx, Pausing::No), Poll::Ready(a));
}

fn kilobytes(count: usize) -> Bytes {
    Bytes::from(vec![b'x'; count << 10])
}

/// mcp-spec T30: for a client that reads nothing is left out; who tells it waits until it has read.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_is_waited_for() {
    let counts = Arc::<Counts>::default();
    let lane = Lane::new(Keep::Written).counted(&counts);
    let reader = lane.attach(Hears::All);
    let mut cx = Context::from_waker(Waker::noop());
    let mut told = 0;
    while lane.behind().is_none() {
        lane.tell(kilobytes(10));
        told += 1;
    }
    // One that is larger than all that may be held for somebody who is away.
    lane.tell(kilobytes(300));
    let mut behind = lane.behind().unwrap();
    let mut waits = || behind.as_mut().poll(&mut cx).is_pending();
    assert!(waits());
    for number in 1..=told + 1 {
        let mut cx = Context::from_waker(Waker::noop());
        let next = lane.next(number, reader, &mut cx, Pausing::No);
        assert!(matches!(next, Poll::Ready(Next::Message(found, _)) if found == number));
    }
    assert!(waits(), "the last is not read yet");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(
        lane.next(told + 2, reader, &mut cx, Pausing::No)
            .is_pending()
    );
    assert!(!waits());
    assert_eq!(counts.unheard.count(), 0);
}

/// reliability F79: who tells others as well waits for a while; then what is too much is left out,
/// and counted.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_holds_up_others_for_a_while() {
    let counts = Arc::<Counts>::default();
    let lane = Lane::new(Keep::Nothing).counted(&counts);
    lane.attach(Hears::All);
    for _ in 0..100 {
        lane.tell(kilobytes(10));
        if let Some(behind) = lane.behind_for_a_while() {
            behind.await;
        }
    }
    assert!(lane.bytes() <= MAX_BYTES, "{}", lane.bytes());
    let held = u64::try_from(lane.bytes() / (10 << 10)).unwrap();
    assert_eq!(counts.unheard.count() + held, 100);
}

/// Whoever leaves is waited for no longer, and a client that takes no stream never is.
#[tokio::test]
async fn nobody_waits_for_who_does_not_read() {
    let counts = Arc::<Counts>::default();
    let lane = Lane::new(Keep::Written).counted(&counts);
    let reader = lane.attach(Hears::All);
    lane.tell(kilobytes(200));
    let behind = lane.behind().unwrap();
    lane.leave(reader);
    behind.await;
    let lane = Lane::new(Keep::Nothing);
    lane.attach(Hears::TheEnd);
    lane.tell(kilobytes(200));
    assert!(lane.behind().is_none());
    assert_eq!(lane.bytes(), 0);
}
