//! The session ids of legacy clients: whose they are, where they are good, and how long.

use crate::prelude::*;

use warmline_store::FileStore;
use warmline_store::keyring::Keyring;

fn list() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" })
}

fn bearer(name: &str) -> Vec<(String, String)> {
    vec![(
        "Authorization".to_owned(),
        format!("Bearer token-of-{name}"),
    )]
}

/// A69, P97, P98: an id that is somebody else's, of another route, or ended is answered like one that
/// never was, whatever is asked with it.
#[tokio::test]
async fn an_id_that_does_not_fit_is_like_one_that_never_was() {
    let world = World::of_alice(Personality::legacy()).await;
    let alice = world.greet_as_alice(PATH).await;
    alice.count().await;
    let ended = world.greet_as_alice(PATH).await;
    ended.count().await;
    assert_eq!(ended.delete().await.status, 204);
    let bob = Legacy {
        more: bearer("bob"),
        ..alice.clone()
    };
    let elsewhere = Legacy {
        path: format!("/runs/r1{PATH}"),
        ..alice.clone()
    };
    let never = Legacy {
        ticket: "never".to_owned(),
        ..alice.clone()
    };
    let is_so = || world.server.counts().open_sessions == 1;
    until("what was ended is ended", is_so).await;
    let heard = world.server.ledger().entries().len();
    let mut answers = Vec::new();
    for client in [bob, elsewhere, ended, never] {
        let mut response = client.post(&list()).await;
        answers.push((response.status, response.json().await));
        assert_eq!(client.get(None).await.status, 404);
        assert_eq!(client.delete().await.status, 404);
    }
    let not_found = json!({
        "jsonrpc": "2.0", "id": 1, "error": { "code": -32600, "message": "Session not found" },
    });
    assert!(
        answers
            .iter()
            .all(|answer| *answer == (404, not_found.clone())),
        "{answers:?}"
    );
    let entries = world.server.ledger().entries().len();
    assert_eq!(entries, heard, "nothing of it reached the server");
    // It is good where it was given.
    assert_eq!(alice.count().await, 2);
    world.finish_with(&alice).await;
}

/// A server that all reach by one key, with sessions as it was decided, behind a gateway that knows
/// these people; where it knows nobody it asks nobody.
async fn behind_one_key(per: Option<SessionScope>, people: &[&str]) -> World {
    let server = LedgerServer::start(Personality::legacy().token("key")).unwrap();
    let declared = Server::http(LEDGER, server.url()).bearer(Secret::new("key"));
    let declared = match per {
        Some(per) => declared.session_per(per),
        None => declared,
    };
    let warm = Warmline::builder().server(declared).build().unwrap();
    World::around(server, warm, |options, vault| match people {
        [] => options,
        _ => known(options, vault, people),
    })
    .await
}

/// A67, A68, A70: two client sessions share no session of the server, be they of one person, of two
/// behind one key, or of nobody; what is shared is said by name for the server.
#[tokio::test]
async fn client_sessions_are_apart_unless_sharing_is_said() {
    let (known, nobody) = (["alice", "bob"], []);
    let apart = [[1, 1, 1], [2, 2, 2]];
    let shared = [[1, 2, 3], [4, 5, 6]];
    #[rustfmt::skip]
    let table = [
        (None,                       &known[..],  apart),
        (Some(SessionScope::Identity), &known[..],  [[1, 2, 1], [3, 4, 2]]),
        (Some(SessionScope::Server),   &known[..],  shared),
        (None,                       &nobody[..], apart),
        (Some(SessionScope::Identity), &nobody[..], apart),
        (Some(SessionScope::Server),   &nobody[..], shared),
    ];
    for (per, people, expected) in table {
        let world = behind_one_key(per, people).await;
        let mut clients = Vec::new();
        for name in ["alice", "alice", "bob"] {
            let shown = if people.is_empty() {
                Vec::new()
            } else {
                bearer(name)
            };
            clients.push(Legacy::greet_with(&world, PATH, NEWEST, json!({}), shown).await);
        }
        for round in expected {
            let mut counts = Vec::new();
            for client in &clients {
                counts.push(client.count().await);
            }
            assert_eq!(counts, round, "{per:?} {people:?}");
        }
        for client in clients {
            client.delete().await;
        }
        world.finish().await;
    }
}

/// P48: ids are opaque, of one size, and no two are alike.
#[tokio::test]
async fn ids_are_of_one_size_and_say_nothing() {
    let world = World::of_alice(Personality::legacy()).await;
    let paths = [PATH.to_owned(), format!("/runs/{}{PATH}", "r".repeat(128))];
    let mut seen = Vec::new();
    for path in &paths {
        for _ in 0..2 {
            let client = world.greet_as_alice(path).await;
            assert!(client.ticket.len() <= 300);
            assert!(client.ticket.bytes().all(|byte| byte.is_ascii_graphic()));
            assert!(!client.ticket.contains("alice") && !client.ticket.contains("rrrr"));
            seen.push(client.ticket.clone());
            client.delete().await;
        }
    }
    let size = seen[0].len();
    assert!(seen.iter().all(|ticket| ticket.len() == size));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 4);
    world.finish().await;
}

/// P126: `DELETE` ends the run that a client session made; one that was named outlives it.
#[tokio::test]
async fn what_a_client_made_ends_with_it_and_what_was_named_does_not() {
    let world = World::new(Personality::legacy()).await;
    let named = format!("/runs/r1{PATH}");
    for expected in 1..=2 {
        let client = Legacy::greet(&world, &named, NEWEST, json!({})).await;
        assert_eq!(client.count().await, expected);
        assert_eq!(client.delete().await.status, 204);
    }
    let own = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    assert_eq!(own.count().await, 1);
    assert_eq!(world.server.counts().open_sessions, 2);
    own.delete().await;
    let is_so = || world.server.counts().open_sessions == 1;
    until("only the named run's session is left", is_so).await;
    world.finish().await;
}

/// A run that is over when its client comes back is begun anew, and the model hears what that means,
/// once.
#[tokio::test]
async fn a_client_that_comes_back_to_a_run_that_is_over_hears_of_the_loss() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, &format!("/runs/r1{PATH}"), NEWEST, json!({})).await;
    assert_eq!(client.count().await, 1);
    let ended = request(client.address, "DELETE", "/runs/r1", &[], "").await;
    assert_eq!(ended.status, 204);
    let answer = client.call("counter", json!({})).await;
    assert_eq!(
        answer["result"]["_meta"]["dev.warmline/stateLost"], true,
        "{answer}"
    );
    assert_eq!(answer["result"]["structuredContent"]["count"], 1);
    let again = client.call("counter", json!({})).await;
    assert_eq!(again["result"].get("_meta"), None, "{again}");
    // Whoever names the run for the first time has lost nothing.
    let fresh = Legacy::greet(&world, &format!("/runs/r2{PATH}"), NEWEST, json!({})).await;
    let answer = fresh.call("counter", json!({})).await;
    assert_eq!(answer["result"].get("_meta"), None, "{answer}");
    world.finish().await;
}

/// A gateway with its secrets and its store in a folder.
pub(super) async fn stored(folder: &TempDir, server: &LedgerServer) -> (Warmline, Gateway) {
    let warm = Warmline::builder()
        .server(Server::http(LEDGER, server.url()))
        .vault(Keyring::in_folder(folder.path()).unwrap())
        .store(FileStore::in_folder(folder.path().join("sessions")))
        .build()
        .unwrap();
    let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
    (warm, gateway)
}

/// P49, P120: a restart loses no client session: the id is good, and so is what is behind it.
#[tokio::test]
async fn a_restart_loses_no_client_session() {
    let folder = TempDir::new().unwrap();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let start = || stored(&folder, &server);
    let (warm, gateway) = start().await;
    let mut client = Legacy::greet_at(gateway.address(), PATH, NEWEST, json!({}), Vec::new()).await;
    assert_eq!(client.count().await, 1);
    let names = ["r1".to_owned(), "r".repeat(128)];
    let mut in_runs = Vec::new();
    for name in &names {
        let named = vec![("Warmline-Run".to_owned(), name.clone())];
        let in_run = Legacy::greet_at(gateway.address(), PATH, NEWEST, json!({}), named).await;
        assert_eq!(in_run.count().await, 1);
        in_runs.push(in_run);
    }
    gateway.stop().await;
    warm.close().await;

    let (warm, gateway) = start().await;
    client.address = gateway.address();
    assert_eq!(client.count().await, 2);
    for mut in_run in in_runs {
        in_run.address = gateway.address();
        // The ticket alone is enough.
        let named = std::mem::take(&mut in_run.more);
        assert_eq!(in_run.count().await, 2);
        in_run.more = named;
        assert_eq!(in_run.count().await, 3);
    }
    assert_eq!(server.counts().initializes, 3);
    client.delete().await;
    for name in names {
        let path = format!("/runs/{name}");
        let ended = request(gateway.address(), "DELETE", &path, &[], "").await;
        assert_eq!(ended.status, 204);
    }
    until("nothing is left", || server.counts().open_sessions == 0).await;
    gateway.stop().await;
    warm.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// What a client hears that comes into a session of others is no word for those who greet as it did.
#[tokio::test]
async fn a_greeting_of_a_session_of_others_is_not_remembered() {
    let world = World::new(Personality::legacy()).await;
    let in_run = format!("/runs/r1{PATH}");
    let first = Legacy::greet(&world, &in_run, NEWEST, json!({})).await;
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
    ];
    let old = initialize("2024-11-05", json!({})).to_string();
    let mut joins = request(first.address, "POST", &in_run, &headers, &old).await;
    assert_eq!(joins.answer().await["result"]["protocolVersion"], NEWEST);
    // It is told its own version.
    let alone = Legacy::greet(&world, PATH, "2024-11-05", json!({})).await;
    first.delete().await;
    world.finish_with(&alone).await;
}

/// A server is greeted once for clients of one identity that say the same of themselves; their
/// sessions are opened when they call.
#[tokio::test]
async fn a_greeting_is_remembered_for_those_who_greet_alike() {
    let world = World::of_alice(Personality::legacy()).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(world.greet_as_alice(PATH).await);
    }
    assert_eq!(world.server.counts().initializes, 1);
    let capable = json!({ "roots": {} });
    clients.push(Legacy::greet_with(&world, PATH, NEWEST, capable, bearer("alice")).await);
    clients.push(Legacy::greet_with(&world, PATH, NEWEST, json!({}), bearer("bob")).await);
    assert_eq!(world.server.counts().initializes, 3);
    for client in &clients {
        assert_eq!(client.count().await, 1);
        client.delete().await;
    }
    world.finish().await;
}

/// mcp-spec 5.5.4: what a server said in its newest handshake is what the next client hears, also if
/// that handshake was made for a call, and the client before it heard the old words from memory.
#[tokio::test]
async fn the_newest_handshake_is_told() {
    let world = World::of_alice(Personality::legacy()).await;
    let agreed = async || {
        let shown = [
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            ("Authorization", "Bearer token-of-alice"),
        ];
        let hello = initialize(NEWEST, json!({})).to_string();
        let mut greeted = request(world.gateway.address(), "POST", PATH, &shown, &hello).await;
        let version = &greeted.answer().await["result"]["protocolVersion"];
        version.as_str().unwrap().to_owned()
    };
    let first = world.greet_as_alice(PATH).await;
    first.count().await;
    first.delete().await;
    // The server is another one by now, and forgot nobody who is still there.
    let older = Fault::Version("2025-03-26".to_owned());
    world.inject(FaultRule::new(older).on_method("initialize").always());
    let second = world.greet_as_alice(PATH).await;
    assert_eq!(agreed().await, NEWEST);
    second.count().await;
    assert_eq!(agreed().await, "2025-03-26");
    world.finish_with(&second).await;
}

/// mcp-spec 3.4.12, 4.3.2: a server that speaks only the modern era says so, with its versions, and
/// in words that say what to do. Who shows no more than the status reads the reason there.
#[tokio::test]
async fn a_modern_server_tells_a_legacy_client_its_versions() {
    let world = World::new(Personality::modern()).await;
    let address = world.gateway.address();
    for _ in 0..2 {
        let headers = [("Content-Type", "application/json")];
        let hello = initialize(NEWEST, json!({})).to_string();
        let mut response = request(address, "POST", PATH, &headers, &hello).await;
        let error = response.json().await["error"].clone();
        assert_eq!(response.status, 400, "{error}");
        assert_eq!(error["code"], -32022, "{error}");
        assert_eq!(error["data"]["requested"], NEWEST);
        assert_eq!(error["data"]["supported"][0], "2026-07-28");
        let said = error["message"].as_str().unwrap();
        for part in [
            "`ledger` speaks 2026-07-28 alone",
            "use a client that speaks it",
        ] {
            assert!(said.contains(part), "{said}");
        }
        let words = "Unsupported protocol version: this server speaks 2026-07-28 alone";
        assert_eq!(response.words, words);
    }
    world.finish().await;
}

/// P44, P47: what a client session belongs to is sealed into its id: of three gateways with the same
/// secrets and the same store each serves it, in the same session, whichever one is asked.
#[tokio::test]
async fn every_gateway_of_several_serves_every_client_session() {
    let folder = TempDir::new().unwrap();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let start = || stored(&folder, &server);
    let gateways = [start().await, start().await, start().await];
    let addresses = gateways.each_ref().map(|(_, gateway)| gateway.address());
    let mut clients = Vec::new();
    for number in 0..5 {
        let at = addresses[number % 3];
        clients.push(Legacy::greet_at(at, PATH, NEWEST, json!({}), Vec::new()).await);
    }
    // Round robin, over all clients.
    let mut turn = addresses.iter().cycle();
    for expected in 1..=10 {
        for client in &mut clients {
            client.address = *turn.next().unwrap();
            assert_eq!(client.count().await, expected);
        }
    }
    let is_so = || server.counts().open_sessions == clients.len() as u64;
    until("there is one session for each", is_so).await;
    for client in &clients {
        client.delete().await;
    }
    until("nothing is left", || server.counts().open_sessions == 0).await;
    for (warm, gateway) in gateways {
        gateway.stop().await;
        warm.close().await;
    }
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// DESIGN 7, "Which run": the run that was named at `initialize` holds for the ticket, also for
/// requests that do not name it again, for the standing stream, and after a restart. Nothing was
/// lost, so nothing is said to be.
#[tokio::test]
async fn the_run_named_at_initialize_holds_for_the_ticket() {
    let long = "x".repeat(128);
    for run in ["x1", "0b7e6f0e-4a53-4b8e-9d5f-0a1b2c3d4e5f", &long] {
        let world = World::of_alice(Personality::legacy()).await;
        let mut greeting = initialize(NEWEST, json!({}));
        greeting["params"]["_meta"] = json!({ "dev.warmline/run": run });
        let by_header = vec![("Warmline-Run".to_owned(), run.to_owned())];
        for (greeting, named) in [
            (greeting, Vec::new()),
            (initialize(NEWEST, json!({})), by_header),
        ] {
            let mut client = Legacy {
                address: world.gateway.address(),
                path: PATH.to_owned(),
                ticket: String::new(),
                version: NEWEST.to_owned(),
                more: [bearer("alice"), named].concat(),
            };
            let response = client.post(&greeting).await;
            client.ticket = response.header("mcp-session-id").unwrap().to_owned();
            client.more = bearer("alice");
            let _standing = client.get(None).await;
            let answer = client.call("counter", json!({})).await;
            let result = &answer["result"];
            let holds = result["_meta"]["dev.warmline/stateLost"].is_null();
            assert!(holds, "{answer}");
            assert_eq!(result["content"].as_array().unwrap().len(), 1, "{answer}");
        }
        assert_eq!(world.received("initialize"), 1, "{run}");
        let counted = world.warm.identity("alice").join_run(run).unwrap();
        let handle = counted.server(LEDGER).unwrap();
        assert_eq!(count(&handle).await, 3, "{run}");
        world.finish().await;
    }
}
