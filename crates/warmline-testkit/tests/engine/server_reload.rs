//! Servers that are declared anew while runs are live: no state is lost without a word.

use crate::prelude::*;

/// What decides about sessions.
fn held(server: Server, per: SessionScope, loss: StateLossPolicy) -> Server {
    let server = server.session_per(per).calls(CallConcurrency::SideBySide);
    server.max_per_key(1).on_state_loss(loss)
}

/// A live run keeps what it has where the session is its own. What it shares ends when
/// the server is reached otherwise or held otherwise, and each run that had state there is told so,
/// once.
#[tokio::test]
async fn a_shared_session_that_a_reload_ends_is_told_to_each_run() {
    use SessionScope::{Call, Identity, Run, Server as Everybody};
    for (from, to, is_elsewhere) in [
        (Identity, Identity, true),
        (Identity, Run, false),
        (Identity, Run, true),
        (Identity, Everybody, false),
        (Identity, Call, false),
        (Everybody, Everybody, true),
        (Everybody, Identity, false),
        (Everybody, Call, true),
    ] {
        let which = format!("{from:?} to {to:?}, elsewhere {is_elsewhere}");
        let tell = StateLossPolicy::Tell;
        let world = World::with(Personality::legacy(), |server| held(server, from, tell));
        let runs = [world.warm.begin_run(), world.warm.begin_run()];
        let untouched = world.warm.begin_run();
        for run in &runs {
            count(&run.server(LEDGER).unwrap()).await;
        }
        let server = held(Server::http(LEDGER, world.server.url()), to, tell);
        let server = match is_elsewhere {
            true => server.header("X-New", "1"),
            false => server,
        };
        world.add_server(server);
        for run in &runs {
            let ledger = run.server(LEDGER).unwrap();
            let reply = ledger.call("counter", json!({})).await.unwrap();
            assert!(reply.state_lost(), "{which}");
            let again = ledger.call("counter", json!({})).await.unwrap();
            assert!(!again.state_lost(), "{which}: it was told");
        }
        let ledger = untouched.server(LEDGER).unwrap();
        let result = ledger.call("counter", json!({})).await.unwrap();
        assert!(!result.state_lost(), "{which}: it had nothing to lose");
        world.finish().await;
    }
}

/// Where calls are dangerous on fresh state, the first one after a reload is refused and the next
/// one works. Where a server keeps nothing nobody loses anything.
#[tokio::test]
async fn a_reload_that_takes_state_refuses_the_first_call_where_that_is_asked_for() {
    for (personality, keeps) in [
        (Personality::legacy(), true),
        (Personality::modern(), false),
        (Personality::legacy_stateless(), false),
    ] {
        let (per, fail) = (SessionScope::Identity, StateLossPolicy::Fail);
        let world = World::with(personality, |server| held(server, per, fail));
        let run = world.warm.begin_run();
        let paid = world.pay(&run.server(LEDGER).unwrap(), "one").await;
        assert!(paid.is_ok());
        let server = held(Server::http(LEDGER, world.server.url()), per, fail);
        world.add_server(server.header("X-New", "1"));
        let ledger = run.server(LEDGER).unwrap();
        let paid = world.pay(&ledger, "two").await;
        let told = paid.err().map(|error| error.code().as_str());
        assert_eq!(told, keeps.then_some("session-lost"));
        assert_eq!(world.payments("two"), usize::from(!keeps));
        let next = ledger.call("counter", json!({})).await.unwrap();
        assert!(next.structured::<Value>().is_ok() && !next.state_lost());
        run.end().await;
        world.finish_after_faults(0).await;
    }
}
