//! Every dialect in which a server says that a session is gone, met by the engine: the sure ones
//! heal by themselves, the wide ones where an operator asked for it.

use crate::prelude::*;

use warmline_testkit::Dialect;
use warmline_testkit::faults::dialects::{self, DialectEffect};

use super::session_replacement::read;

/// What a payment comes to that is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Nothing is wrong.
    Served,
    /// It is made once, on a new session.
    Healed,
    /// It is made once, by a server that is met anew.
    MetAnew,
    /// It is refused, and the next call has a new session.
    Refused,
    /// It may have been made; the next call has a new session.
    Doubtful,
    /// It means what its status says, and nothing becomes of the session.
    Status(Delivery),
}

#[rustfmt::skip]
fn narrow(dialect: &Dialect) -> Then {
    match dialect.name {
        _ if dialect.post.effect == DialectEffect::Served => Then::Served,
        "a19" | "a22" | "e20" => Then::Refused,
        "a23"                 => Then::MetAnew,
        "g11"                 => Then::Doubtful,
        "a38-502" | "a38-503" => Then::Status(Delivery::Unknown),
        "e19" | "g7" | "g8" | "g9" => Then::Status(Delivery::Unknown),
        "e21" | "e22" | "g10" => Then::Status(Delivery::Answered),
        _                     => Then::Healed,
    }
}

fn wide(dialect: &Dialect) -> Then {
    match dialect.name {
        "e19" | "g7" | "g8" | "g9" | "e21" | "e22" | "g10" => Then::Doubtful,
        _ => narrow(dialect),
    }
}

async fn meet(dialect: &'static Dialect, world: World, then: Then) {
    let name = dialect.name;
    let ledger = world.in_counted_run().await;
    world.control().forget_sessions();
    let paid = world.pay(&ledger, name).await;
    let told = match (&paid, then) {
        (Ok(paid), Then::Served) => paid.attempts() == 1 && !paid.state_lost(),
        (Ok(paid), Then::Healed) => {
            paid.attempts() == 2 && paid.generation() == 2 && paid.state_lost()
        },
        (Ok(paid), Then::MetAnew) => paid.attempts() == 2,
        (Err(error), Then::Refused) => error.delivery() == Delivery::Refused,
        (Err(error), Then::Doubtful) => error.delivery() == Delivery::Unknown,
        (Err(error), Then::Status(delivery)) => error.delivery() == delivery,
        _ => false,
    };
    assert!(told, "{name}: {then:?}, but {paid:?}");
    let executed = usize::from(paid.is_ok());
    assert_eq!(world.payments(name), executed, "{name}");
    match then {
        Then::Served => {},
        Then::Healed | Then::MetAnew => assert_eq!(world.handshakes(), 2, "{name}"),
        Then::Refused | Then::Doubtful => {
            // The next one has a session of its own again.
            let next = world.pay(&ledger, "next").await;
            let next = next.unwrap_or_else(|error| panic!("{name}, next: {error:?}"));
            assert_eq!(next.generation(), 2, "{name}");
            assert_eq!(world.handshakes(), 2, "{name}");
        },
        Then::Status(_) => assert_eq!(world.handshakes(), 1, "{name}"),
    }
    world.finish().await;
}

/// A172, P4, P7, E1 to E3, E6 to E10, E18, E22, E25: every sure dialect heals, and no wide one
/// does unasked.
#[tokio::test]
async fn every_sure_dialect_heals_by_itself() {
    for dialect in dialects::SESSION_GONE.iter() {
        let world = World::new(Personality::legacy().session_gone(dialect));
        meet(dialect, world, narrow(dialect)).await;
    }
}

/// A172, P7, E19, E21, E22: with `dialects = "wide"` the others heal too, and nothing is paid
/// twice.
#[tokio::test]
async fn every_wide_dialect_heals_where_it_is_asked_for() {
    for dialect in dialects::SESSION_GONE.iter() {
        let personality = Personality::legacy().session_gone(dialect);
        let world = World::with(personality, |server| server.wide_dialects());
        meet(dialect, world, wide(dialect)).await;
    }
}

/// E19, E21, reliability P8: what only reads is sent again, on the new session.
#[tokio::test]
async fn what_may_run_twice_is_sent_again_after_a_doubtful_dialect() {
    let doubtful = dialects::SESSION_GONE
        .iter()
        .filter(|dialect| wide(dialect) == Then::Doubtful);
    for dialect in doubtful {
        let name = dialect.name;
        let personality = Personality::legacy().session_gone(dialect);
        let world = World::with(personality, |server| server.wide_dialects());
        let ledger = world.in_counted_run().await;
        world.control().forget_sessions();
        let got = read(&ledger).await;
        let got = got.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!((got.attempts(), got.generation()), (2, 2), "{name}");
        assert_eq!(world.handshakes(), 2, "{name}");
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        world.finish().await;
    }
}
