//! The decision about sending again, row by row.

use proptest::prelude::*;

use super::*;

mod idempotency;

const MILLI: Duration = Duration::from_millis(1);
const ZERO: Duration = Duration::ZERO;

/// How earlier attempts ended, and what was done before the next.
type Before = &'static [(Delivery, RetryPreparation)];

/// An attempt with time, money and patience for everything.
fn attempt(delivery: Delivery, repeat: Idempotency, hurdle: FailureClass) -> Attempt {
    Attempt {
        delivery,
        idempotency: repeat,
        failure: hurdle,
        retry_after: None,
        history: AttemptHistory::default(),
        max_session_replacements: 1,
        has_streamed: false,
        can_refresh_credential: true,
        time_left: Duration::from_secs(60),
        max_retry_after: Duration::from_secs(30),
        typical_latency: Duration::ZERO,
        has_budget: true,
        random: u32::MAX,
    }
}

fn after(resends: &[(Delivery, RetryPreparation)]) -> AttemptHistory {
    let mut so_far = AttemptHistory::default();
    for (ended, first) in resends {
        so_far.record_retry(*ended, *first);
    }
    so_far
}

/// The decision in one character: `y` at once, `w` after a pause, `h` after healing, `c` with a
/// fresh credential, `n` not at all, `-` there is an answer.
fn letter(next: RetryDecision) -> char {
    match next {
        RetryDecision::Done => '-',
        RetryDecision::Fail => 'n',
        RetryDecision::Retry {
            preparation: RetryPreparation::ReplaceSession,
            ..
        } => 'h',
        RetryDecision::Retry {
            preparation: RetryPreparation::RefreshCredential,
            ..
        } => 'c',
        RetryDecision::Retry { delay: pause, .. } if pause > Duration::ZERO => 'w',
        RetryDecision::Retry { .. } => 'y',
    }
}

fn is_again(next: RetryDecision) -> bool {
    matches!(next, RetryDecision::Retry { .. })
}

/// A128, P84, P87: by default what may have run is told, not run again.
#[test]
fn a_request_runs_twice_only_if_the_server_cannot_have_acted_or_somebody_says_it_may() {
    use {Delivery::*, Idempotency::*};
    #[rustfmt::skip]
    let table = [
        // how far it got   may run twice   so
        (Unsent,            NotIdempotent,         'y'),
        (Unsent,            Idempotent,           'y'),
        (Refused,           NotIdempotent,         'y'),
        (Refused,           Idempotent,           'y'),
        (Unknown,           NotIdempotent,         'n'),
        (Unknown,           Idempotent,           'y'),
        (Answered,          NotIdempotent,         '-'),
        (Answered,          Idempotent,           '-'),
    ];
    for (delivery, repeat, next) in table {
        let attempt = attempt(delivery, repeat, FailureClass::ConnectionFailed);
        assert_eq!(
            letter(decide_retry(&attempt)),
            next,
            "{delivery:?} / {repeat:?}"
        );
    }
}

/// reliability R3, reliability R4, reliability R6: what stood in the way says what helps.
#[test]
fn what_stood_in_the_way_says_what_helps() {
    use FailureClass::*;
    #[rustfmt::skip]
    let table = [
        //                 unsent        refused       unknown
        //                 safe unsafe   safe unsafe   safe unsafe
        (SessionGone,      ['h', 'h',    'h', 'h',     'h', 'n']),
        (SessionGoneOnce,  ['h', 'h',    'h', 'h',     'h', 'n']),
        (Credential,       ['c', 'c',    'c', 'c',     'c', 'n']),
        (ConnectionFailed,           ['y', 'y',    'y', 'y',     'y', 'n']),
        (Busy,             ['w', 'w',    'w', 'w',     'w', 'n']),
        (Throttled,        ['w', 'n',    'w', 'n',     'w', 'n']),
        (RetryOnce,             ['y', 'y',    'y', 'y',     'y', 'n']),
        (Permanent,            ['n', 'n',    'n', 'n',     'n', 'n']),
    ];
    for (hurdle, row) in table {
        let mut columns = row.into_iter();
        for delivery in [Delivery::Unsent, Delivery::Refused, Delivery::Unknown] {
            for repeat in [Idempotency::Idempotent, Idempotency::NotIdempotent] {
                let next = letter(decide_retry(&attempt(delivery, repeat, hurdle)));
                assert_eq!(
                    Some(next),
                    columns.next(),
                    "{hurdle:?} {delivery:?} {repeat:?}"
                );
            }
        }
    }
}

/// reliability R1: progress that was handed on cannot be taken back.
#[test]
fn a_caller_that_heard_something_of_a_lost_reply_does_not_hear_it_twice() {
    use Delivery::*;
    #[rustfmt::skip]
    let table = [
        (Unknown, false, true),
        (Unknown, true,  false),
        // A round that was refused is the same round again: its answers were not used.
        (Refused, true,  true),
        (Unsent,  true,  true),
    ];
    for (delivery, heard, again) in table {
        let attempt = Attempt {
            has_streamed: heard,
            ..attempt(
                delivery,
                Idempotency::Idempotent,
                FailureClass::ConnectionFailed,
            )
        };
        assert_eq!(
            is_again(decide_retry(&attempt)),
            again,
            "{delivery:?} {heard:?}"
        );
    }
}

/// reliability R2, reliability R4: no resend that could not end in time.
#[test]
fn nothing_is_sent_again_that_cannot_be_answered_in_time() {
    #[rustfmt::skip]
    let table = [
        // left         usual         asked for            hurdle              again
        (100 * MILLI,   ZERO,         None,                FailureClass::Busy,       true),
        (99 * MILLI,    ZERO,         None,                FailureClass::Busy,       false),
        (150 * MILLI,   50 * MILLI,   None,                FailureClass::Busy,       true),
        (149 * MILLI,   50 * MILLI,   None,                FailureClass::Busy,       false),
        (ZERO,          ZERO,         None,                FailureClass::ConnectionFailed,     false),
        (MILLI,         ZERO,         None,                FailureClass::ConnectionFailed,     true),
        (MILLI,         2 * MILLI,    None,                FailureClass::ConnectionFailed,     false),
        (5000 * MILLI,  ZERO,         Some(5000 * MILLI),  FailureClass::Throttled,  true),
        (4999 * MILLI,  ZERO,         Some(5000 * MILLI),  FailureClass::Throttled,  false),
        (4999 * MILLI,  ZERO,         Some(Duration::MAX), FailureClass::Throttled,  false),
    ];
    for (left, typical, retry_after, hurdle, again) in table {
        let attempt = Attempt {
            time_left: left,
            typical_latency: typical,
            retry_after,
            ..attempt(Delivery::Refused, Idempotency::NotIdempotent, hurdle)
        };
        assert_eq!(is_again(decide_retry(&attempt)), again, "{attempt:?}");
    }
}

/// reliability R4, reliability F25: a pause that is longer than anybody waits for a session is told,
/// not waited out. Pauses of our own are short enough for everybody.
#[test]
fn a_pause_is_waited_out_for_as_long_as_a_session_is_waited_for() {
    #[rustfmt::skip]
    let table = [
        // patience     asked for             again
        (30_000,        Some(30_000),         true),
        (30_000,        Some(30_001),         false),
        (30_000,        Some(3_600_000),      false),
        (10_000,        Some(30_000),         false),
        (0,             Some(2_000),          true),
        (0,             Some(2_001),          false),
        (0,             None,                 true),
    ];
    for (deadlines, asked, again) in table {
        let attempt = Attempt {
            time_left: Duration::from_secs(3600),
            max_retry_after: deadlines * MILLI,
            retry_after: asked.map(|asked: u32| asked * MILLI),
            ..attempt(
                Delivery::Refused,
                Idempotency::Idempotent,
                FailureClass::Throttled,
            )
        };
        assert_eq!(is_again(decide_retry(&attempt)), again, "{attempt:?}");
    }
}

/// reliability R4, reliability R6: a server that names a pause gets it.
#[test]
fn a_pause_is_as_long_as_the_server_asks_and_spread_where_it_does_not() {
    let none = AttemptHistory::default();
    let one = after(&[(Delivery::Refused, RetryPreparation::Nothing)]);
    #[rustfmt::skip]
    let table = [
        // asked for           dice          before   pause
        (None,                 u32::MAX,     none,    100 * MILLI),
        (None,                 0,            none,    ZERO),
        (None,                 u32::MAX,     one,     200 * MILLI),
        (Some(3000 * MILLI),   u32::MAX,     none,    3000 * MILLI),
        (Some(3000 * MILLI),   0,            one,     3000 * MILLI),
        // "Now" still means: not all at once.
        (Some(ZERO),           u32::MAX,     none,    100 * MILLI),
    ];
    for (retry_after, dice, so_far, expected) in table {
        let attempt = Attempt {
            retry_after,
            random: dice,
            history: so_far,
            ..attempt(
                Delivery::Refused,
                Idempotency::Idempotent,
                FailureClass::Throttled,
            )
        };
        let RetryDecision::Retry { delay: pause, .. } = decide_retry(&attempt) else {
            panic!("{attempt:?} is not sent again");
        };
        assert_eq!(pause, expected, "{attempt:?}");
    }
}

/// A126, reliability R3: attempts are counted, by what they followed.
#[test]
fn a_call_has_a_bounded_number_of_attempts() {
    use Delivery::*;
    const HEAL: RetryPreparation = RetryPreparation::ReplaceSession;
    const PLAIN: RetryPreparation = RetryPreparation::Nothing;
    const FRESH: RetryPreparation = RetryPreparation::RefreshCredential;
    #[rustfmt::skip]
    let table: &[(Before, u32, Delivery, FailureClass, bool)] = &[
        // before                               heals  this      hurdle                   again
        (&[(Refused, PLAIN)],                   1,     Refused,  FailureClass::Busy,            true),
        (&[(Refused, PLAIN), (Unsent, PLAIN)],  1,     Refused,  FailureClass::Busy,            false),
        (&[(Refused, HEAL)],                    1,     Refused,  FailureClass::SessionGone,     false),
        (&[(Refused, HEAL)],                    2,     Refused,  FailureClass::SessionGone,     true),
        (&[(Refused, HEAL)],                    2,     Refused,  FailureClass::SessionGoneOnce, false),
        (&[(Refused, HEAL); 4],                 5,     Refused,  FailureClass::SessionGone,     true),
        (&[(Refused, HEAL); 5],                 5,     Refused,  FailureClass::SessionGone,     false),
        (&[],                                   0,     Refused,  FailureClass::SessionGone,     false),
        (&[],                                   0,     Refused,  FailureClass::Busy,            true),
        (&[(Refused, HEAL)],                    1,     Refused,  FailureClass::Credential,      true),
        (&[(Refused, FRESH)],                   1,     Refused,  FailureClass::Credential,      false),
        (&[(Refused, FRESH)],                   1,     Refused,  FailureClass::SessionGone,     true),
        (&[(Unsent, PLAIN)],                    1,     Refused,  FailureClass::RetryOnce,            false),
        // What followed an unknown ending is not followed by another try …
        (&[(Unknown, PLAIN)],                   1,     Unknown,  FailureClass::ConnectionFailed,          false),
        (&[(Unknown, PLAIN)],                   1,     Unsent,   FailureClass::Busy,            false),
        (&[(Unknown, HEAL)],                    1,     Refused,  FailureClass::SessionGone,     false),
        // … unless the server did not look at it: a restarted server says so only now.
        (&[(Unknown, PLAIN)],                   1,     Refused,  FailureClass::SessionGone,     true),
        (&[(Unknown, PLAIN)],                   1,     Unknown,  FailureClass::SessionGone,     false),
    ];
    for (before, heals_allowed, delivery, hurdle, again) in table {
        let attempt = Attempt {
            history: after(before),
            max_session_replacements: *heals_allowed,
            ..attempt(*delivery, Idempotency::Idempotent, *hurdle)
        };
        assert_eq!(is_again(decide_retry(&attempt)), *again, "{attempt:?}");
    }
}

/// A123, reliability R5: a hundred calls that lose one session, or one token, all go on; a server
/// in trouble gets no more load than its budget allows.
#[test]
fn repairs_are_free_and_everything_else_is_paid() {
    use Delivery::*;
    #[rustfmt::skip]
    let table = [
        (Refused, FailureClass::SessionGone, false),
        (Unknown, FailureClass::SessionGone, false),
        (Refused, FailureClass::Credential,  false),
        (Unsent,  FailureClass::ConnectionFailed,      false),
        (Unknown, FailureClass::ConnectionFailed,      true),
        (Unsent,  FailureClass::Busy,        true),
        (Refused, FailureClass::Throttled,   true),
        (Refused, FailureClass::RetryOnce,        true),
    ];
    for (delivery, hurdle, expected) in table {
        let full = attempt(delivery, Idempotency::Idempotent, hurdle);
        let RetryDecision::Retry { costs_budget, .. } = decide_retry(&full) else {
            panic!("{full:?} is not sent again");
        };
        assert_eq!(costs_budget, expected, "{full:?}");
        let empty = Attempt {
            has_budget: false,
            ..full
        };
        assert_eq!(is_again(decide_retry(&empty)), !costs_budget, "{empty:?}");
    }
}

#[test]
fn a_credential_that_cannot_be_renewed_is_not_tried_again() {
    let attempt = Attempt {
        can_refresh_credential: false,
        ..attempt(
            Delivery::Refused,
            Idempotency::Idempotent,
            FailureClass::Credential,
        )
    };
    assert_eq!(decide_retry(&attempt), RetryDecision::Fail);
}

/// reliability C5: the last attempt speaks for the call, unless an earlier one may have run.
#[test]
fn a_call_may_have_run_if_any_of_its_attempts_may_have() {
    use Delivery::*;
    const AGAIN: RetryPreparation = RetryPreparation::Nothing;
    #[rustfmt::skip]
    let table: &[(Before, Delivery, Delivery)] = &[
        (&[],                                   Unsent,    Unsent),
        (&[],                                   Unknown,   Unknown),
        (&[(Unsent, AGAIN)],                    Refused,   Refused),
        (&[(Unknown, AGAIN)],                   Unsent,    Unknown),
        (&[(Unknown, AGAIN)],                   Refused,   Unknown),
        (&[(Unknown, AGAIN)],                   Answered,  Answered),
        (&[(Unknown, AGAIN), (Refused, AGAIN)], Refused,   Unknown),
    ];
    for (before, last, call) in table {
        let so_far = after(before);
        assert_eq!(so_far.overall_delivery(*last), *call, "{before:?} {last:?}");
        assert_eq!(so_far.attempts() as usize, before.len() + 1);
    }
}

fn deliveries() -> impl Strategy<Value = Delivery> {
    prop::sample::select(vec![Delivery::Unsent, Delivery::Refused, Delivery::Unknown])
}

fn hurdles() -> impl Strategy<Value = FailureClass> {
    prop::sample::select(vec![
        FailureClass::SessionGone,
        FailureClass::SessionGoneOnce,
        FailureClass::Credential,
        FailureClass::ConnectionFailed,
        FailureClass::Busy,
        FailureClass::Throttled,
        FailureClass::RetryOnce,
        FailureClass::Permanent,
    ])
}

proptest! {
    /// reliability P8, reliability R3: whatever goes wrong, in any order, a call ends; and what must not run
    /// twice is never sent after an attempt that may have run.
    #[test]
    fn every_call_ends_and_nothing_unsafe_follows_an_unknown_ending(
        history in prop::collection::vec((deliveries(), hurdles(), any::<u32>()), 20),
        repeat in prop::sample::select(vec![Idempotency::Idempotent, Idempotency::NotIdempotent]),
        heals_allowed in 0..8_u32,
    ) {
        let mut so_far = AttemptHistory::default();
        let mut may_have_run = false;
        for (delivery, hurdle, dice) in history {
            prop_assert!(repeat == Idempotency::Idempotent || !may_have_run);
            let attempt = Attempt {
                history: so_far,
                max_session_replacements: heals_allowed,
                random: dice,
                ..attempt(delivery, repeat, hurdle)
            };
            may_have_run |= delivery == Delivery::Unknown;
            match decide_retry(&attempt) {
                RetryDecision::Done => prop_assert!(false, "there was no answer"),
                RetryDecision::Fail => return Ok(()),
                RetryDecision::Retry { preparation, delay, .. } => {
                    prop_assert!(delay <= MAX_BACKOFF);
                    so_far.record_retry(delivery, preparation);
                },
            }
            prop_assert!(so_far.attempts() <= 1 + heals_allowed.max(MAX_RETRIES));
        }
        prop_assert!(false, "the call never ends: {so_far:?}");
    }
}
