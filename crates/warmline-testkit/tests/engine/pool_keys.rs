//! Keys: what a session belongs to, no less and no more.

use crate::prelude::*;

use std::collections::HashSet;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use warmline::Dial;
use warmline_core::pool_key::{
    ClientProfileId, ConfigRevision, CredentialId, Digest, Identity, KeyOwner, KeyScope, PoolKey,
    RunId, TargetKey, Transport,
};
use warmline_platform::net::{Destination, Dialed, Dialing};
use warmline_upstream::Timeouts;

use super::http_sse_server::OldServer;

const fn digest(number: u8) -> Digest {
    Digest::new([number; 16])
}

fn place(server: &str, revision: u8, era: Era, transport: Transport) -> TargetKey {
    TargetKey {
        server: Arc::from(server),
        revision: ConfigRevision(digest(revision)),
        era,
        transport,
    }
}

/// reliability I1, A64, A200: a key is made whole or not at all, and two that differ in any part are
/// different keys: the transport among them.
#[test]
fn keys_that_differ_in_any_part_are_different() {
    let usual = || place("a", 1, Era::Legacy, Transport::Http);
    let places = [
        usual(),
        place("b", 1, Era::Legacy, Transport::Http),
        place("a", 2, Era::Legacy, Transport::Http),
        place("a", 1, Era::Modern, Transport::Http),
        place("a", 1, Era::Legacy, Transport::HttpSse),
        place("a", 1, Era::Legacy, Transport::Stdio),
    ];
    let owners = [
        KeyOwner::AnyIdentity,
        KeyOwner::Identity(Identity(digest(1))),
        KeyOwner::Identity(Identity(digest(2))),
    ];
    let scopes = [
        KeyScope::Run(RunId(digest(1))),
        KeyScope::Run(RunId(digest(2))),
        KeyScope::Shared(ClientProfileId(digest(1))),
        KeyScope::Shared(ClientProfileId(digest(2))),
    ];
    let mut keys = HashSet::new();
    let mut made = 0;
    for place in &places {
        for owner in owners {
            for credential in [1, 2].map(|number| CredentialId(digest(number))) {
                for scope in scopes {
                    let make = || PoolKey::new(place.clone(), owner, credential, scope);
                    assert_eq!(make(), make(), "equal parts, equal keys");
                    keys.insert(make());
                    made += 1;
                }
            }
        }
    }
    assert_eq!(keys.len(), made);
}

/// A64: a server that spoke HTTP+SSE speaks Streamable HTTP at the same URL by now: it gets a
/// session of its own there, and each transport shows as what it is.
#[tokio::test]
async fn a_url_has_a_session_for_each_transport() {
    let old = OldServer::start();
    let url = old.url();
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, &url).times(Timeouts {
            connection_idle: Duration::from_millis(1),
            ..Timeouts::default()
        }))
        .build()
        .unwrap();
    let transports = || -> Vec<&str> {
        let sessions = warm.snapshot().sessions;
        sessions.iter().map(|line| line.transport).collect()
    };
    let run = warm.begin_run();
    run.server(LEDGER)
        .unwrap()
        .call("echo", json!({}))
        .await
        .unwrap()
        .ok()
        .unwrap();
    assert_eq!(transports(), ["http+sse"]);
    run.end().await;
    let address = url.trim_start_matches("http://").trim_end_matches("/sse");
    let address = address.parse().unwrap();
    drop(old);
    let mut personality = Personality::legacy();
    personality.path = "/sse".to_owned();
    let server = LedgerServer::start(personality).unwrap();
    let proxy = FaultProxy::start_on(address, server.address()).unwrap();
    let run = warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!((count(&ledger).await, count(&ledger).await), (1, 2));
    assert_eq!(transports(), ["http"]);
    assert_eq!(server.counts().open_sessions, 1);
    run.end().await;
    warm.close().await;
    drop(warm);
    let is_so = || server.counts().open_sessions == 0;
    until("the session was ended", is_so).await;
    nothing_left().await;
    drop(proxy);
}

/// Leads to a server of 2024-11-05, whatever the URL says.
#[derive(Debug)]
struct ToTheOld(SocketAddr);

impl Dial for ToTheOld {
    fn label(&self) -> &str {
        "to the old"
    }

    fn dial<'a>(&'a self, _: Destination<'a>) -> Dialing<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(self.0).await?;
            Ok(Dialed::Plain(Box::new(stream)))
        })
    }
}

/// A64: one URL over HTTP+SSE and over Streamable HTTP at the same time: a session for each, and what
/// is decided about one does not hold for the other.
#[tokio::test]
async fn each_transport_of_a_url_has_its_own_session_and_settings() {
    let old = OldServer::start();
    let address = old.url();
    let address = address.trim_start_matches("http://");
    let to_the_old = ToTheOld(address.trim_end_matches("/sse").parse().unwrap());
    let mut personality = Personality::legacy();
    personality.path = "/sse".to_owned();
    let server = LedgerServer::start(personality).unwrap();
    let declared = |name: &str| Server::http(name, server.url());
    let soon = Duration::from_millis(300);
    let warm = Warmline::builder()
        .server(declared("old").dial(to_the_old).allow(["echo"]))
        .server(declared("new").deadlines(soon, soon))
        .build()
        .unwrap();
    let run = warm.begin_run();
    let (first, second) = (run.server("old").unwrap(), run.server("new").unwrap());
    first.call("echo", json!({})).await.unwrap().ok().unwrap();
    assert_eq!(count(&second).await, 1);
    let sessions = warm.snapshot().sessions;
    let mut transports: Vec<(&str, &str)> = sessions
        .iter()
        .map(|line| (&*line.server, line.transport))
        .collect();
    transports.sort_unstable();
    assert_eq!(transports, [("new", "http"), ("old", "http+sse")]);
    let refused = first.call("counter", json!({})).await.unwrap_err();
    assert_eq!(refused.code().as_str(), "not-allowed", "{refused:?}");
    assert_eq!(count(&second).await, 2);
    let late = second.call("slow", json!({"ms": 20_000})).await;
    assert_eq!(late.unwrap_err().code().as_str(), "deadline");
    first.call("echo", json!({})).await.unwrap().ok().unwrap();
    run.end().await;
    warm.close().await;
    let is_so = || server.counts().open_sessions == 0;
    until("the session was ended", is_so).await;
}

/// A67: callers without any identity share nothing: neither two runs, nor two calls outside of any,
/// unless the server keeps nothing or sharing was switched on by name.
#[tokio::test]
async fn nobody_shares_with_nobody_unless_it_is_said() {
    let world = World::new(Personality::legacy());
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    for number in 1..=3 {
        for run in &runs {
            assert_eq!(count(&run.server(LEDGER).unwrap()).await, number);
        }
        assert_eq!(count(&world.ledger()).await, 1);
    }
    assert_eq!(world.server.counts().sessions, 2 + 3);
    world.finish().await;

    let shared = |server: Server| server.session_per(SessionScope::Server);
    let world = World::with(Personality::legacy(), shared);
    let runs = [world.warm.begin_run(), world.warm.begin_run()];
    for (number, run) in (1..).zip(&runs) {
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, number);
    }
    assert_eq!(world.server.counts().sessions, 1);
    world.finish().await;

    let world = World::new(Personality::legacy_stateless());
    let calls = (0..20).map(|_| async {
        let (run, ledger) = world.new_run();
        ledger.call("echo", json!({})).await.unwrap().ok().unwrap();
        run.end().await;
    });
    join_all(calls).await;
    assert_eq!(world.handshakes(), 1, "there is nothing to keep apart");
    world.finish().await;
}

/// P35: the folders, labels and catalogues a server is found in are no part of its key: whoever
/// comes from another one uses the session that is there.
#[tokio::test]
async fn a_server_found_in_two_places_has_one_session() {
    let shared = |server: Server| {
        server
            .session_per(SessionScope::Identity)
            .calls(CallConcurrency::SideBySide)
    };
    let world = World::with(Personality::legacy(), shared);
    let url = world.server.url();
    let alice = world.warm.identity("alice");
    assert_eq!(count(&alice.server(LEDGER).unwrap()).await, 1);
    for (number, folder) in (2..).zip(["Shared/Tools", "team-a", "team-b"]) {
        let again = shared(Server::http(LEDGER, &url)).card(|card| {
            card.folder = Some(folder.to_owned());
            card.slug = Some(format!("{folder}-ledger"));
            card.labels
                .insert("namespace".to_owned(), folder.to_owned());
        });
        world.add_server(again);
        let run = alice.begin_run();
        assert_eq!(count(&run.server(LEDGER).unwrap()).await, number);
        run.end().await;
    }
    assert_eq!(world.handshakes(), 1);
    world.finish().await;
}
