//! A broken wire: only the server's word ends a session, and where it keeps none there is none to lose.

use crate::prelude::*;

use warmline_testkit::faults::dialects;
use warmline_testkit::proxy::AcceptMode;

/// DESIGN 5.1, 5.2, 6: nobody can be reached for a while, and calls fail. When the server is there again all
/// of its sessions are, too: nothing is opened anew, nobody is told of a loss, and nobody waits for a breaker.
#[tokio::test]
async fn an_outage_loses_nothing_that_the_server_still_knows() {
    let table = [
        ("modern", Personality::modern(), None),
        ("without sessions", Personality::legacy_stateless(), None),
        ("of runs", Personality::legacy(), None),
        (
            "of people",
            Personality::legacy(),
            Some(SessionScope::Identity),
        ),
        ("of all", Personality::legacy(), Some(SessionScope::Server)),
    ];
    for (case, personality, per) in table {
        let server = LedgerServer::start(personality).unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let declared = Server::http(LEDGER, proxy.proxied_url(&server.url()));
        let declared = match per {
            Some(per) => declared.session_per(per),
            None => declared,
        };
        let warm = Warmline::builder().server(declared).build().unwrap();
        let runs = ["alice", "bob"].map(|who| warm.identity(who).begin_run());
        let ledgers = runs.each_ref().map(|run| run.server(LEDGER).unwrap());
        let mut before = Vec::new();
        for ledger in &ledgers {
            let first = ledger.call("counter", json!({})).await.unwrap();
            before.push(counted(&first.ok().unwrap()));
        }
        let opened = server.counts().initializes;

        proxy.set_accept_mode(AcceptMode::Refuse);
        proxy.end_connections(ConnectionEnd::Rst);
        for _ in 0..8 {
            let call = ledgers[0].call("counter", json!({})).not_repeatable();
            assert!(call.await.is_err(), "{case}: nobody is there");
        }
        proxy.set_accept_mode(AcceptMode::Forward);

        for (ledger, before) in ledgers.iter().zip(before) {
            let next = ledger.call("counter", json!({})).await;
            let next = next.unwrap_or_else(|error| panic!("{case}: {error:?}"));
            let next = next.ok().unwrap();
            assert!(!next.state_lost(), "{case}");
            let goes_on = counted(&next) > before;
            let keeps_none = ["modern", "without sessions"].contains(&case);
            assert!(goes_on || keeps_none, "{case}: another session");
        }
        assert_eq!(server.counts().initializes, opened, "{case}");
        for run in runs {
            run.end().await;
        }
        warm.close().await;
    }
}

/// reliability B9, G9: a server that forgot a shared session and says so in words that nobody knows is
/// asked whether it lives; what it refuses is replaced, and nobody fails for long.
#[tokio::test]
async fn a_shared_session_that_its_server_refuses_is_replaced() {
    for name in ["g7", "g9"] {
        let mut rows = dialects::SESSION_GONE.iter();
        let dialect = rows.find(|row| row.name == name).unwrap();
        let world = World::with(Personality::legacy().session_gone(dialect), |server| {
            server.session_per(SessionScope::Server)
        });
        let ledger = world.ledger();
        let call = async || ledger.call("counter", json!({})).not_repeatable().await;
        call().await.unwrap().ok().unwrap();
        world.control().forget_sessions();
        let failed = call().await.is_err();
        let next = call().await;
        let next = next.unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(counted(&next.ok().unwrap()), 1, "{name}: {failed}");
        world.warm.close().await;
    }
}
