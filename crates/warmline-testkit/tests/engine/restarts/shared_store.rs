//! Two programs at once on one store: one session for each run, and nobody ends the other's.

use crate::fixture::is_inner;

use tokio::net::TcpStream;
use warmline::Dial;
use warmline_platform::net::{Destination, Dialed, Dialing};

use super::*;

/// A144, reliability F48: the second one finds the session of the first, and both go on with it.
#[tokio::test]
async fn two_programs_share_the_session_of_a_run() {
    let (server, store) = (server(), RecordingStore::new());
    let (one, other) = (life(&server, &store), life(&server, &store));
    assert_eq!(count_in(&one, "chat").await, 1);
    assert_eq!(count_in(&other, "chat").await, 2);
    assert_eq!(count_in(&one, "chat").await, 3);
    assert_eq!(server.counts().initializes, 1);
    one.close().await;
    let found = count_in(&other, "chat").await;
    assert_eq!(found, 4, "the other's close ended nothing");
    other.named_run("chat").unwrap().end().await;
    other.close().await;
    let is_so = || server.counts().open_sessions == 0;
    until("the session was ended", is_so).await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A7, A10, A144: whoever was handed a run by its environment joins it, and ends nothing of it.
#[tokio::test]
async fn a_run_of_the_environment_is_ended_by_whoever_began_it() {
    let name = "a_run_of_the_environment_is_ended_by_whoever_began_it";
    if !is_inner(module_path!(), name, &[("WARMLINE_RUN", b"chat")]) {
        return;
    }
    let (server, store) = (server(), RecordingStore::new());
    let (parent, child) = (life(&server, &store), life(&server, &store));
    let begun = parent.named_run("chat").unwrap();
    assert_eq!(count(&begun.server(LEDGER).unwrap()).await, 1);
    let handed = child.run_from_env().unwrap().unwrap();
    assert_eq!((handed.name(), handed.is_root()), ("chat", false));
    assert_eq!(count(&handed.server(LEDGER).unwrap()).await, 2);
    drop(handed);
    child.close().await;
    assert_eq!(count(&begun.server(LEDGER).unwrap()).await, 3);
    assert_eq!(server.counts().initializes, 1);
    begun.end().await;
    parent.close().await;
    assert_eq!(server.counts().open_sessions, 0);
}

/// Connects as usual, and is known by a name: what a proxy, a client certificate or another name for
/// a host come to.
#[derive(Debug)]
struct Through(&'static str);

impl Dial for Through {
    fn label(&self) -> &str {
        self.0
    }

    fn dial<'a>(&'a self, to: Destination<'a>) -> Dialing<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect((to.host, to.port)).await?;
            Ok(Dialed::Plain(Box::new(stream)))
        })
    }
}

/// A65: the same URL, reached with another CA, or in another way, has a session of its own for each:
/// none takes up what another one left, and each finds its own again.
#[tokio::test]
async fn each_way_to_a_server_has_a_stored_session_of_its_own() {
    let (server, store) = (server(), RecordingStore::new());
    let ways: [fn(Server) -> Server; 5] = [
        |plain| plain,
        |plain| plain.ca_file("one.pem"),
        |plain| plain.ca_file("two.pem"),
        |plain| plain.dial(Through("one")),
        |plain| plain.dial(Through("two")),
    ];
    for expected in 1..=2 {
        for way in ways {
            let declared = way(Server::http(LEDGER, server.url()));
            let shown = format!("{declared:?}");
            let warm = life_of(declared, &store);
            assert_eq!(count_in(&warm, "chat").await, expected, "{shown}");
            warm.close().await;
        }
    }
    assert_eq!(server.counts().open_sessions, ways.len() as u64);
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A144, reliability P32: an id is only used with the identity and the run it was made for.
#[tokio::test]
async fn another_identity_never_gets_a_stored_session() {
    let (server, store) = (server(), RecordingStore::new());
    let first = life(&server, &store);
    let run = first.identity("alice").named_run("chat").unwrap();
    assert_eq!(count(&run.server(LEDGER).unwrap()).await, 1);
    run.detach();
    first.close().await;
    let second = life(&server, &store);
    for (who, name, expected) in [
        ("bob", "chat", 1),
        ("alice", "other", 1),
        ("alice", "chat", 2),
    ] {
        let run = second.identity(who).named_run(name).unwrap();
        let counted = count(&run.server(LEDGER).unwrap()).await;
        assert_eq!(counted, expected, "{who} {name}");
        run.end().await;
    }
    second.close().await;
    until("no session is left", || server.counts().open_sessions == 0).await;
}

/// A144, reliability F48: opened at the same moment, one session is kept and the other one ended.
#[tokio::test]
async fn of_two_that_open_at_once_one_session_stays() {
    let (server, store) = (server(), RecordingStore::new());
    let (one, other) = (life(&server, &store), life(&server, &store));
    // A first contact has a session of its own for a while, which is another story.
    for (warm, run) in [(&one, "one"), (&other, "other")] {
        count_in(warm, run).await;
        warm.named_run(run).unwrap().end().await;
    }
    until("no session is left", || server.counts().open_sessions == 0).await;
    let (a, b) = tokio::join!(count_in(&one, "chat"), count_in(&other, "chat"));
    assert_eq!(a + b, 1 + 2, "both counted in one session");
    assert_eq!(server.counts().initializes, 4, "both opened one");
    until("one session is left", || server.counts().open_sessions == 1).await;
    assert_eq!(count_in(&one, "chat").await, 3);
    assert_eq!(count_in(&other, "chat").await, 4);
    one.close().await;
    other.named_run("chat").unwrap().end().await;
    other.close().await;
    let is_so = || server.counts().open_sessions == 0;
    until("the session was ended", is_so).await;
}

/// A144: when both see the session go, both end up in the one that replaces it.
#[tokio::test]
async fn two_programs_heal_into_one_session() {
    let (server, store) = (server(), RecordingStore::new());
    let (one, other) = (life(&server, &store), life(&server, &store));
    count_in(&one, "chat").await;
    count_in(&other, "chat").await;
    server.control().forget_sessions();
    let (a, b) = tokio::join!(count_in(&one, "chat"), count_in(&other, "chat"));
    assert_eq!(a + b, 1 + 2, "both counted in one session");
    until("one session is left", || server.counts().open_sessions == 1).await;
    one.close().await;
    let (run, ledger) = chat(&other);
    let next = ledger.call("counter", json!({})).await.unwrap();
    assert_eq!(next.structured::<Value>().unwrap()["count"], 3);
    run.end().await;
    other.close().await;
}

/// reliability D122, reliability F74: a session id that lives is nobody else's, whatever a record
/// of another life says.
#[tokio::test]
async fn a_record_gives_nobody_the_session_of_another() {
    let (server, store) = (server(), RecordingStore::new());
    let same = FaultRule::new(Fault::SessionId("same".to_owned()));
    server.inject(same.on_method("initialize").always());
    let first = life(&server, &store);
    assert_eq!(count_in(&first, "one").await, 1);
    first.close().await;
    // The server begins anew, and gives the id that stands in the record of run `one`.
    server.control().forget_sessions();
    let second = life(&server, &store);
    assert_eq!(count_in(&second, "other").await, 1);
    let one = second.named_run("one").unwrap();
    let call = one.server(LEDGER).unwrap().call("counter", json!({}));
    let error = call.await.unwrap_err();
    assert_eq!(error.reason().as_str(), "bad-session-id", "{error:?}");
    assert_eq!(server.ledger().messages_received("DELETE"), 0);
    // It began anew when it gave the id once more, and nobody ended it.
    assert_eq!(count_in(&second, "other").await, 1);
    // Its own record is its own right, also while the life before is still closing.
    second.close().await;
    let third = life(&server, &store);
    assert_eq!(count_in(&third, "other").await, 2);
    third.close().await;
}
