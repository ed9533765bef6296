//! A list that changed is told once to each client, whichever sessions tell of it; and it is told.

use crate::prelude::*;

use warmline_testkit::ServerControl;

const RUN: &str = "/runs/together/servers/ledger/mcp";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const RESOURCES_CHANGED: &str = "notifications/resources/list_changed";
const LAST: &str = "note:///last";

fn say(control: &ServerControl, method: &str) {
    control.send_on_get_streams(&json!({ "jsonrpc": "2.0", "method": method, "params": {} }));
}

/// How often a word was heard.
fn times(log: &Log, word: &str) -> usize {
    log.heard().iter().filter(|heard| *heard == word).count()
}

/// Two clients of Alice's, with a session each: the lists of both are heard on that of the first.
async fn two_sessions(world: &World) -> [(Legacy, Log); 2] {
    let control = world.control();
    let first = world.greet_as_alice(PATH).await;
    first.count().await;
    let of_first = Log::of(first.get(None).await);
    streams_held(&control, 1).await;
    let second = world.greet_as_alice(PATH).await;
    second.count().await;
    let of_second = Log::of(second.get(None).await);
    until("the second hears of lists", || {
        say(&control, PROMPTS_CHANGED);
        of_second.has(PROMPTS_CHANGED)
    })
    .await;
    assert_eq!(control.open_get_streams(), 1);
    [(first, of_first), (second, of_second)]
}

/// Waits until each of these heard all that was said until now.
async fn all_heard(control: &ServerControl, logs: [&Log; 2]) {
    say(control, RESOURCES_CHANGED);
    for log in logs {
        until("the last was heard", || log.has(RESOURCES_CHANGED)).await;
    }
}

/// mcp-spec T32: a change that a client's own session tells on a call, and another session of its
/// identity on the stream that is held for lists, is one change.
#[tokio::test]
async fn a_change_that_two_sessions_tell_is_told_once() {
    let world = World::of_alice(Personality::legacy()).await;
    let control = world.control();
    let [(first, of_first), (second, of_second)] = two_sessions(&world).await;
    second.call("change_tools", json!({})).await;
    all_heard(&control, [&of_first, &of_second]).await;
    for log in [&of_first, &of_second] {
        assert_eq!(times(log, TOOLS_CHANGED), 1);
    }
    first.delete().await;
    world.finish_with(&second).await;
}

/// mcp-spec T32: what comes after a client has read the list is another change, and so is what one
/// session tells twice.
#[tokio::test]
async fn no_change_is_taken_for_one_that_was_told() {
    let world = World::of_alice(Personality::legacy()).await;
    let control = world.control();
    let [(first, of_first), (second, of_second)] = two_sessions(&world).await;
    second.call("change_tools", json!({})).await;
    until("it was heard", || of_second.has(TOOLS_CHANGED)).await;
    let listed: Value = ask(&second, "tools/list", json!({})).await;
    assert!(listed["result"].is_object(), "{listed}");
    let before = times(&of_second, TOOLS_CHANGED);
    control.change_tools();
    let is_so = || times(&of_second, TOOLS_CHANGED) == before + 1;
    until("the next was heard", is_so).await;
    for expected in 2..=4 {
        control.change_tools();
        let is_so = || times(&of_second, TOOLS_CHANGED) == before + expected;
        until("each was heard", is_so).await;
    }
    all_heard(&control, [&of_first, &of_second]).await;
    assert_eq!(times(&of_second, TOOLS_CHANGED), before + 4);
    first.delete().await;
    world.finish_with(&second).await;
}

/// Waits until the streams of all sessions that were forgotten were asked for again, in vain.
async fn asked_again(world: &World, streams: usize) {
    let ledger = world.server.ledger();
    let before = ledger.messages_received("GET");
    world.control().forget_sessions();
    while ledger.messages_received("GET") < before + streams {
        pass(Duration::from_millis(100)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn subscribe(client: &Legacy) {
    let answer = ask(client, "resources/subscribe", json!({ "uri": LAST })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

/// mcp-spec T32: lists may be others after a heal. Who has a stream of its own hears that
/// once, not also from the session that hears for all of its identity, whichever that is.
#[tokio::test]
async fn after_a_heal_of_two_sessions_each_client_is_told_once() {
    let world = World::of_alice(Personality::legacy()).await;
    let control = world.control();
    let clients = two_sessions(&world).await;
    for (client, _) in &clients {
        subscribe(client).await;
    }
    streams_held(&control, 2).await;
    for heal in 1..=5 {
        asked_again(&world, 2).await;
        for (client, _) in &clients {
            client.count().await;
        }
        streams_held(&control, 2).await;
        for (client, log) in &clients {
            let before = times(log, LAST);
            until("the last was heard", || {
                control.update_resource(LAST);
                times(log, LAST) > before
            })
            .await;
            assert_eq!(times(log, TOOLS_CHANGED), heal);
            let listed = ask(client, "tools/list", json!({})).await;
            assert!(listed["result"].is_object(), "{listed}");
        }
    }
    for (client, _) in &clients {
        client.delete().await;
    }
    world.finish().await;
}

/// mcp-spec T32: the same where clients share the session that was lost.
#[tokio::test]
async fn after_a_heal_of_a_session_that_is_shared_each_client_is_told_once() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = Legacy::greet(&world, RUN, "2025-11-25", json!({})).await;
        subscribe(&client).await;
        let log = Log::of(client.get(None).await);
        until("it is told", || {
            say(&control, PROMPTS_CHANGED);
            log.has(PROMPTS_CHANGED)
        })
        .await;
        clients.push((client, log));
    }
    asked_again(&world, 1).await;
    for (client, _) in &clients {
        client.count().await;
    }
    streams_held(&control, 1).await;
    for (_, log) in &clients {
        until("the last was heard", || {
            control.update_resource(LAST);
            log.has(LAST)
        })
        .await;
        assert_eq!(times(log, TOOLS_CHANGED), 1);
    }
    for (client, _) in &clients {
        client.delete().await;
    }
    world.finish().await;
}

/// DESIGN 4, mcp-spec T32: where people share sessions, each of them hears of lists, also their
/// clients that said something else of themselves and share a session that holds no stream.
#[tokio::test]
async fn a_change_in_a_session_of_all_is_told_to_the_other_clients_of_each_identity() {
    let world = World::shared(SessionScope::Server, &["alice", "bob"]).await;
    let control = world.control();
    let mut clients = Vec::new();
    for declares in [json!({}), json!({ "elicitation": {} })] {
        for name in ["alice", "bob"] {
            let shown = (
                "Authorization".to_owned(),
                format!("Bearer token-of-{name}"),
            );
            let of = declares.clone();
            let client = Legacy::greet_with(&world, PATH, "2025-11-25", of, vec![shown]).await;
            let log = Log::of(client.get(None).await);
            until("it hears of lists", || {
                say(&control, PROMPTS_CHANGED);
                log.has(PROMPTS_CHANGED)
            })
            .await;
            clients.push((client, log));
        }
    }
    assert_eq!(control.session_ids().len(), 2, "each is shared by two");
    assert_eq!(control.open_get_streams(), 1, "one of them is heard");
    control.change_tools();
    for (client, log) in clients {
        until("each was told", || log.has(TOOLS_CHANGED)).await;
        client.delete().await;
    }
    world.finish().await;
}

/// mcp-spec T32: a session that is opened beside others, because all of them are busy, takes the
/// place of none: no list is another.
#[tokio::test]
async fn one_more_session_of_a_key_is_no_change_of_lists() {
    let world = one_each().await;
    let (control, ledger) = (world.control(), world.server.ledger());
    let client = world.greet_as_alice(PATH).await;
    client.count().await;
    let log = Log::of(client.get(None).await);
    streams_held(&control, 1).await;
    let calls = at_once(&client, 3);
    let is_so = || ledger.started_executions("slow") == 3;
    until("all are under way", is_so).await;
    assert_eq!(control.session_ids().len(), 3);
    until("it is heard", || {
        say(&control, PROMPTS_CHANGED);
        log.has(PROMPTS_CHANGED)
    })
    .await;
    assert!(!log.has(TOOLS_CHANGED), "{:?}", log.heard());
    assert_eq!(control.open_get_streams(), 1);
    calls.into_iter().for_each(|call| call.abort());
    world.finish_with(&client).await;
}

/// mcp-spec 5.5.1: a key with several sessions is one to its clients. What is ordered while some of
/// them are busy is known to all of them, so it is heard whichever of them is listened to.
#[tokio::test]
async fn an_order_is_known_to_all_sessions_of_a_key() {
    let world = one_each().await;
    let (control, ledger) = (world.control(), world.server.ledger());
    let client = world.greet_as_alice(PATH).await;
    let log = Log::of(client.get(None).await);
    let calls = at_once(&client, 3);
    let is_so = || ledger.started_executions("slow") == 3;
    until("all are under way", is_so).await;
    subscribe(&client).await;
    let wanted = json!({ "level": "error" });
    let answer = ask(&client, "logging/setLevel", wanted).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    streams_held(&control, 1).await;
    control.update_resource(LAST);
    until("it is heard", || log.has(LAST)).await;
    let answer = ask(&client, "resources/unsubscribe", json!({ "uri": LAST })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    let all: BTreeSet<_> = control.session_ids().into_iter().collect();
    for method in [
        "resources/subscribe",
        "logging/setLevel",
        "resources/unsubscribe",
    ] {
        let to = || -> BTreeSet<_> {
            let said = ledger.entries().into_iter();
            let said = said
                .filter(|entry| entry.phase == ExecutionPhase::Received && entry.method == method);
            said.filter_map(|entry| entry.session).collect()
        };
        until(method, || to() == all).await;
    }
    calls.into_iter().for_each(|call| call.abort());
    world.finish_with(&client).await;
}

/// A world of Alice's whose calls have a session each.
async fn one_each() -> World {
    World::shared(SessionScope::Identity, &["alice"]).await
}

/// So many calls that do not end by themselves.
fn at_once(client: &Legacy, many: i64) -> Vec<JoinHandle<()>> {
    let calling = |id| {
        let client = client.clone();
        tokio::spawn(async move {
            let slow = call(id, "slow", json!({ "ms": 60_000 }));
            drop(client.post(&slow).await);
        })
    };
    (1..=many).map(calling).collect()
}
