//! The decision about sending again, row by row.

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);
const ZERO: Duration = Duration::ZERO;

/// How earlier attempts ended, and what was done before the next.
type Before = &'static [(Delivery, First)];

/// An attempt with time, money and patience for everything.
fn attempt(delivery: Delivery, repeat: Repeat, hurdle: Hurdle) -> Attempt {
    Attempt {
        delivery,
        repeat,
        hurdle,
        retry_after: None,
        so_far: SoFar::default(),
        heals_allowed: 1,
        heard: Heard::Nothing,
        renewal: Renewal::Possible,
        left: Duration::from_secs(60),
        patience: Duration::from_secs(30),
        typical: Duration::ZERO,
        purse: Purse::Full,
        dice: u32::MAX,
    }
}

fn after(resends: &[(Delivery, First)]) -> SoFar {
    let mut so_far = SoFar::default();
    for (ended, first) in resends {
        so_far.note(*ended, *first);
    }
    so_far
}

/// The decision in one character: `y` at once, `w` after a pause, `h` after healing, `c` with a
/// fresh credential, `n` not at all, `-` there is an answer.
fn letter(next: Next) -> char {
    match next {
        Next::Done => '-',
        Next::Surface => 'n',
        Next::SendAgain {
            first: First::Heal, ..
        } => 'h',
        Next::SendAgain {
            first: First::RenewCredential,
            ..
        } => 'c',
        Next::SendAgain { pause, .. } if pause > Duration::ZERO => 'w',
        Next::SendAgain { .. } => 'y',
    }
}

fn is_again(next: Next) -> bool {
    matches!(next, Next::SendAgain { .. })
}

/// A128, P84, P87: by default what may have run is told, not run again.
#[test]
fn a_request_runs_twice_only_if_the_server_cannot_have_acted_or_somebody_says_it_may() {
    use {Delivery::*, Repeat::*};
    #[rustfmt::skip]
    let table = [
        // how far it got   may run twice   so
        (Unsent,            Unsafe,         'y'),
        (Unsent,            Safe,           'y'),
        (Refused,           Unsafe,         'y'),
        (Refused,           Safe,           'y'),
        (Unknown,           Unsafe,         'n'),
        (Unknown,           Safe,           'y'),
        (Answered,          Unsafe,         '-'),
        (Answered,          Safe,           '-'),
    ];
    for (delivery, repeat, next) in table {
        let attempt = attempt(delivery, repeat, Hurdle::Broken);
        assert_eq!(letter(decide(&attempt)), next, "{delivery:?} / {repeat:?}");
    }
}

/// reliability R3, reliability R4, reliability R6: what stood in the way says what helps.
#[test]
fn what_stood_in_the_way_says_what_helps() {
    use Hurdle::*;
    #[rustfmt::skip]
    let table = [
        //                 unsent        refused       unknown
        //                 safe unsafe   safe unsafe   safe unsafe
        (SessionGone,      ['h', 'h',    'h', 'h',     'h', 'n']),
        (SessionGoneOnce,  ['h', 'h',    'h', 'h',     'h', 'n']),
        (Credential,       ['c', 'c',    'c', 'c',     'c', 'n']),
        (Broken,           ['y', 'y',    'y', 'y',     'y', 'n']),
        (Busy,             ['w', 'w',    'w', 'w',     'w', 'n']),
        (Throttled,        ['w', 'n',    'w', 'n',     'w', 'n']),
        (Once,             ['y', 'y',    'y', 'y',     'y', 'n']),
        (Final,            ['n', 'n',    'n', 'n',     'n', 'n']),
    ];
    for (hurdle, row) in table {
        let mut columns = row.into_iter();
        for delivery in [Delivery::Unsent, Delivery::Refused, Delivery::Unknown] {
            for repeat in [Repeat::Safe, Repeat::Unsafe] {
                let next = letter(decide(&attempt(delivery, repeat, hurdle)));
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
    use {Delivery::*, Heard::*};
    #[rustfmt::skip]
    let table = [
        (Unknown, Nothing,   true),
        (Unknown, Something, false),
        // A round that was refused is the same round again: its answers were not used.
        (Refused, Something, true),
        (Unsent,  Something, true),
    ];
    for (delivery, heard, again) in table {
        let attempt = Attempt {
            heard,
            ..attempt(delivery, Repeat::Safe, Hurdle::Broken)
        };
        assert_eq!(is_again(decide(&attempt)), again, "{delivery:?} {heard:?}");
    }
}

/// reliability R2, reliability R4: no resend that could not end in time.
#[test]
fn nothing_is_sent_again_that_cannot_be_answered_in_time() {
    #[rustfmt::skip]
    let table = [
        // left         usual         asked for            hurdle              again
        (100 * MILLI,   ZERO,         None,                Hurdle::Busy,       true),
        (99 * MILLI,    ZERO,         None,                Hurdle::Busy,       false),
        (150 * MILLI,   50 * MILLI,   None,                Hurdle::Busy,       true),
        (149 * MILLI,   50 * MILLI,   None,                Hurdle::Busy,       false),
        (ZERO,          ZERO,         None,                Hurdle::Broken,     false),
        (MILLI,         ZERO,         None,                Hurdle::Broken,     true),
        (MILLI,         2 * MILLI,    None,                Hurdle::Broken,     false),
        (5000 * MILLI,  ZERO,         Some(5000 * MILLI),  Hurdle::Throttled,  true),
        (4999 * MILLI,  ZERO,         Some(5000 * MILLI),  Hurdle::Throttled,  false),
        (4999 * MILLI,  ZERO,         Some(Duration::MAX), Hurdle::Throttled,  false),
    ];
    for (left, typical, retry_after, hurdle, again) in table {
        let attempt = Attempt {
            left,
            typical,
            retry_after,
            ..attempt(Delivery::Refused, Repeat::Unsafe, hurdle)
        };
        assert_eq!(is_again(decide(&attempt)), again, "{attempt:?}");
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
    for (patience, asked, again) in table {
        let attempt = Attempt {
            left: Duration::from_secs(3600),
            patience: patience * MILLI,
            retry_after: asked.map(|asked: u32| asked * MILLI),
            ..attempt(Delivery::Refused, Repeat::Safe, Hurdle::Throttled)
        };
        assert_eq!(is_again(decide(&attempt)), again, "{attempt:?}");
    }
}

/// reliability R4, reliability R6: a server that names a pause gets it.
#[test]
fn a_pause_is_as_long_as_the_server_asks_and_spread_where_it_does_not() {
    let none = SoFar::default();
    let one = after(&[(Delivery::Refused, First::Nothing)]);
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
            dice,
            so_far,
            ..attempt(Delivery::Refused, Repeat::Safe, Hurdle::Throttled)
        };
        let Next::SendAgain { pause, .. } = decide(&attempt) else {
            panic!("{attempt:?} is not sent again");
        };
        assert_eq!(pause, expected, "{attempt:?}");
    }
}

/// A126, reliability R3: attempts are counted, by what they followed.
#[test]
fn a_call_has_a_bounded_number_of_attempts() {
    use Delivery::*;
    const HEAL: First = First::Heal;
    const PLAIN: First = First::Nothing;
    const FRESH: First = First::RenewCredential;
    #[rustfmt::skip]
    let table: &[(Before, u32, Delivery, Hurdle, bool)] = &[
        // before                               heals  this      hurdle                   again
        (&[(Refused, PLAIN)],                   1,     Refused,  Hurdle::Busy,            true),
        (&[(Refused, PLAIN), (Unsent, PLAIN)],  1,     Refused,  Hurdle::Busy,            false),
        (&[(Refused, HEAL)],                    1,     Refused,  Hurdle::SessionGone,     false),
        (&[(Refused, HEAL)],                    2,     Refused,  Hurdle::SessionGone,     true),
        (&[(Refused, HEAL)],                    2,     Refused,  Hurdle::SessionGoneOnce, false),
        (&[(Refused, HEAL); 4],                 5,     Refused,  Hurdle::SessionGone,     true),
        (&[(Refused, HEAL); 5],                 5,     Refused,  Hurdle::SessionGone,     false),
        (&[],                                   0,     Refused,  Hurdle::SessionGone,     false),
        (&[],                                   0,     Refused,  Hurdle::Busy,            true),
        (&[(Refused, HEAL)],                    1,     Refused,  Hurdle::Credential,      true),
        (&[(Refused, FRESH)],                   1,     Refused,  Hurdle::Credential,      false),
        (&[(Refused, FRESH)],                   1,     Refused,  Hurdle::SessionGone,     true),
        (&[(Unsent, PLAIN)],                    1,     Refused,  Hurdle::Once,            false),
        // What followed an unknown ending is not followed by another try …
        (&[(Unknown, PLAIN)],                   1,     Unknown,  Hurdle::Broken,          false),
        (&[(Unknown, PLAIN)],                   1,     Unsent,   Hurdle::Busy,            false),
        (&[(Unknown, HEAL)],                    1,     Refused,  Hurdle::SessionGone,     false),
        // … unless the server did not look at it: a restarted server says so only now.
        (&[(Unknown, PLAIN)],                   1,     Refused,  Hurdle::SessionGone,     true),
        (&[(Unknown, PLAIN)],                   1,     Unknown,  Hurdle::SessionGone,     false),
    ];
    for (before, heals_allowed, delivery, hurdle, again) in table {
        let attempt = Attempt {
            so_far: after(before),
            heals_allowed: *heals_allowed,
            ..attempt(*delivery, Repeat::Safe, *hurdle)
        };
        assert_eq!(is_again(decide(&attempt)), *again, "{attempt:?}");
    }
}

/// A123, reliability R5: a hundred calls that lose one session, or one token, all go on; a server
/// in trouble gets no more load than its budget allows.
#[test]
fn repairs_are_free_and_everything_else_is_paid() {
    use {Cost::*, Delivery::*};
    #[rustfmt::skip]
    let table = [
        (Refused, Hurdle::SessionGone, Free),
        (Unknown, Hurdle::SessionGone, Free),
        (Refused, Hurdle::Credential,  Free),
        (Unsent,  Hurdle::Broken,      Free),
        (Unknown, Hurdle::Broken,      One),
        (Unsent,  Hurdle::Busy,        One),
        (Refused, Hurdle::Throttled,   One),
        (Refused, Hurdle::Once,        One),
    ];
    for (delivery, hurdle, expected) in table {
        let full = attempt(delivery, Repeat::Safe, hurdle);
        let Next::SendAgain { cost, .. } = decide(&full) else {
            panic!("{full:?} is not sent again");
        };
        assert_eq!(cost, expected, "{full:?}");
        let empty = Attempt {
            purse: Purse::Empty,
            ..full
        };
        assert_eq!(is_again(decide(&empty)), cost == Free, "{empty:?}");
    }
}

#[test]
fn a_credential_that_cannot_be_renewed_is_not_tried_again() {
    let attempt = Attempt {
        renewal: Renewal::Pointless,
        ..attempt(Delivery::Refused, Repeat::Safe, Hurdle::Credential)
    };
    assert_eq!(decide(&attempt), Next::Surface);
}

/// reliability C5: the last attempt speaks for the call, unless an earlier one may have run.
#[test]
fn a_call_may_have_run_if_any_of_its_attempts_may_have() {
    use Delivery::*;
    const AGAIN: First = First::Nothing;
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
        assert_eq!(so_far.delivery(*last), *call, "{before:?} {last:?}");
        assert_eq!(so_far.attempts() as usize, before.len() + 1);
    }
}

fn deliveries() -> impl Strategy<Value = Delivery> {
    prop::sample::select(vec![Delivery::Unsent, Delivery::Refused, Delivery::Unknown])
}

fn hurdles() -> impl Strategy<Value = Hurdle> {
    prop::sample::select(vec![
        Hurdle::SessionGone,
        Hurdle::SessionGoneOnce,
        Hurdle::Credential,
        Hurdle::Broken,
        Hurdle::Busy,
        Hurdle::Throttled,
        Hurdle::Once,
        Hurdle::Final,
    ])
}

proptest! {
    /// reliability P8, reliability R3: whatever goes wrong, in any order, a call ends; and what must not run
    /// twice is never sent after an attempt that may have run.
    #[test]
    fn every_call_ends_and_nothing_unsafe_follows_an_unknown_ending(
        history in prop::collection::vec((deliveries(), hurdles(), any::<u32>()), 20),
        repeat in prop::sample::select(vec![Repeat::Safe, Repeat::Unsafe]),
        heals_allowed in 0..8_u32,
    ) {
        let mut so_far = SoFar::default();
        let mut may_have_run = false;
        for (delivery, hurdle, dice) in history {
            prop_assert!(repeat == Repeat::Safe || !may_have_run);
            let attempt = Attempt { so_far, heals_allowed, dice, ..attempt(delivery, repeat, hurdle) };
            may_have_run |= delivery == Delivery::Unknown;
            match decide(&attempt) {
                Next::Done => prop_assert!(false, "there was no answer"),
                Next::Surface => return Ok(()),
                Next::SendAgain { first, pause, .. } => {
                    prop_assert!(pause <= LONGEST_PAUSE);
                    so_far.note(delivery, first);
                },
            }
            prop_assert!(so_far.attempts() <= 1 + heals_allowed.max(MOST_RESENDS));
        }
        prop_assert!(false, "the call never ends: {so_far:?}");
    }
}
