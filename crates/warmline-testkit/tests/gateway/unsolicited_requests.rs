//! Whose question is it? What a server asks outside the streams of its calls, and what it takes
//! back.

use crate::prelude::*;

use tokio::sync::mpsc;

use super::notification_routing::has_begun;

const RUN: &str = "/runs/together/servers/ledger/mcp";

/// A call that lasts, and its response when it begins.
fn lasting(client: &Legacy, id: i64) -> JoinHandle<Response> {
    calling(client, call(id, "slow", json!({ "ms": 60_000 })))
}

/// The same for a call that ends by itself.
fn ending(client: &Legacy, id: i64, ms: u64) -> JoinHandle<Response> {
    calling(client, call(id, "slow", json!({ "ms": ms })))
}

fn calling(client: &Legacy, call: Value) -> JoinHandle<Response> {
    let client = client.clone();
    tokio::spawn(async move { client.post(&call).await })
}

/// What comes on a stream.
fn messages(mut stream: Response) -> mpsc::UnboundedReceiver<Value> {
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(event) = stream.event_ever().await {
            if !event.data.is_empty() && tell.send(event.message()).is_err() {
                break;
            }
        }
    });
    told
}

async fn next_of(told: &mut mpsc::UnboundedReceiver<Value>, method: &str) -> Value {
    let found = async {
        loop {
            let message = told.recv().await.unwrap();
            if message["method"] == method {
                break message;
            }
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(20), found).await;
    found.unwrap_or_else(|_| panic!("{method} never came"))
}

/// Waits until what the server says on no call reaches this stream.
async fn attends(world: &World, told: &mut mpsc::UnboundedReceiver<Value>) {
    let here = json!({ "jsonrpc": "2.0", "method": "notifications/here" });
    let heard = async {
        loop {
            world.control().send_on_get_streams(&here);
            let next = next_of(told, "notifications/here");
            if tokio::time::timeout(Duration::from_millis(50), next)
                .await
                .is_ok()
            {
                return;
            }
        }
    };
    let heard = tokio::time::timeout(Duration::from_secs(20), heard).await;
    heard.expect("nobody attends");
}

fn refused(world: &World) -> u64 {
    let snapshot = world.warm.snapshot();
    let numbers = snapshot.server(LEDGER).unwrap();
    numbers.count("questions_refused_total", &[])
}

async fn under_way(world: &World, calls: usize) {
    let (ledger, control) = (world.server.ledger(), world.control());
    until("all calls are under way on one session", || {
        ledger.started_executions("slow") == calls
            && control.open_get_streams() == 1
            && control.session_ids().len() == 1
    })
    .await;
}

async fn answered(world: &World) {
    let is_answer =
        |entries: &[LedgerEntry]| entries.iter().any(|entry| entry.method == "(response)");
    let ledger = world.server.ledger();
    assert!(ledger.wait_until(Duration::from_secs(5), is_answer).await);
}

/// P77, P78: two clients of one named run share its session. What the server asks
/// outside their calls could be of either, so it is put to neither and refused at once.
#[tokio::test]
async fn a_question_that_could_be_of_several_clients_is_nobodys() {
    let world = World::new(Personality::legacy()).await;
    let capabilities = || json!({ "elicitation": {}, "roots": {} });
    let first = Legacy::greet(&world, RUN, NEWEST, capabilities()).await;
    let second = Legacy::greet(&world, RUN, NEWEST, capabilities()).await;
    let calls = [lasting(&first, 1), lasting(&second, 1)];
    under_way(&world, 2).await;
    let params = json!({ "message": "?", "requestedSchema": {} });
    world
        .control()
        .send_server_request("elicitation/create", &params);
    answered(&world).await;
    assert_eq!(refused(&world), 1);
    for call in calls {
        assert!(!call.is_finished(), "somebody was asked");
        call.abort();
    }
    first.delete().await;
    world.finish_with(&second).await;
}

/// mcp-spec 4.4.5: roots that no call asks for are answered where all clients that listen say the
/// same, and refused where they do not.
#[tokio::test]
async fn roots_are_answered_where_all_clients_of_a_session_say_the_same() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let mut clients = Vec::new();
    for count in 1..=2 {
        let client = Legacy::greet(&world, RUN, NEWEST, json!({ "roots": {} })).await;
        assert_eq!(client.count().await, count, "they share a session");
        let mut told = messages(client.get(None).await);
        attends(&world, &mut told).await;
        clients.push((client, told));
    }
    let (ledger, mut answers) = (world.server.ledger(), 0);
    for (said, refusals) in [(["a", "a"], 0), (["a", "b"], 1)] {
        control.send_server_request("roots/list", &json!({}));
        for ((client, told), root) in clients.iter_mut().zip(said) {
            let question = next_of(told, "roots/list").await;
            let received = ledger.messages_received("(response)");
            assert_eq!(received, answers, "one is not all");
            let roots = json!([{ "uri": format!("file:///{root}") }]);
            let answer =
                json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": roots } });
            assert_eq!(client.post(&answer).await.status, 202);
        }
        answers += 1;
        let is_so = || ledger.messages_received("(response)") == answers;
        until("the server is answered", is_so).await;
        assert_eq!(refused(&world), refusals);
    }
    for (client, _) in clients {
        client.delete().await;
    }
    world.finish().await;
}

/// DESIGN 4, mcp-spec 4.4.5 Y6: people share a session, and one of them listens. What is asked when
/// no call is in flight may be of a call of the other, so it is put to nobody and refused at once.
#[tokio::test]
async fn a_question_of_no_call_never_goes_to_another_identity() {
    let world = World::shared(SessionScope::Server, &["alice", "bob"]).await;
    let greet = async |name: &str| {
        let token = format!("Bearer token-of-{name}");
        let shown = vec![("Authorization".to_owned(), token)];
        Legacy::greet_with(&world, PATH, NEWEST, json!({ "elicitation": {} }), shown).await
    };
    let (alice, bob) = (greet("alice").await, greet("bob").await);
    let found = (bob.count().await, alice.count().await);
    assert_eq!(found, (1, 2), "they share");
    let mut standing = bob.get(None).await;
    let control = world.control();
    streams_held(&control, 1).await;
    let params = json!({ "message": "of alice", "requestedSchema": {} });
    control.send_server_request("elicitation/create", &params);
    answered(&world).await;
    assert_eq!(refused(&world), 1);
    control.change_tools();
    let told = standing.message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed", "{told}");
    drop(standing);
    world.finish().await;
}

/// P78: several calls of one client are one client's; the oldest of them is asked.
#[tokio::test]
async fn a_question_among_several_calls_of_one_client_is_that_clients() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, RUN, NEWEST, json!({ "roots": {} })).await;
    let oldest = lasting(&client, 1);
    under_way(&world, 1).await;
    let other = lasting(&client, 2);
    under_way(&world, 2).await;
    world
        .control()
        .send_server_request("roots/list", &json!({}));
    let mut stream = oldest.await.unwrap();
    let question = stream.message().await.unwrap();
    assert_eq!(question["method"], "roots/list");
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    assert_eq!(client.post(&answer).await.status, 202);
    answered(&world).await;
    assert_eq!(refused(&world), 0);
    other.abort();
    drop(stream);
    world.finish_with(&client).await;
}

/// mcp-spec 4.4.5 Y4, P78: of several calls of a client nobody can know which one asks. Where the
/// client has a standing stream it is asked there, and whichever call ends, the question stays.
#[tokio::test]
async fn a_question_outlives_a_call_that_it_may_not_be_of() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    client.count().await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    let oldest = ending(&client, 1, 3000);
    under_way(&world, 1).await;
    let other = lasting(&client, 2);
    under_way(&world, 2).await;
    control.send_server_request("roots/list", &json!({}));
    let question = standing.heard("roots/list").await;
    let ended = oldest.await.unwrap().answer().await;
    assert_eq!(ended["id"], 1, "{ended}");
    assert_eq!(world.received("(response)"), 0);
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": [] } });
    assert_eq!(client.post(&answer).await.status, 202);
    answered(&world).await;
    assert_eq!(refused(&world), 0);
    other.abort();
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// mcp-spec 4.4.5 Y4, P80: what a client is asked on the stream of a call is taken back when that
/// call ends; the server that waits for its answer hears so, too.
#[tokio::test]
async fn a_question_that_ends_with_its_call_is_refused_at_its_server() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "elicitation": {} })).await;
    client.count().await;
    let oldest = ending(&client, 1, 3000);
    under_way(&world, 1).await;
    let other = lasting(&client, 2);
    under_way(&world, 2).await;
    let params = json!({ "message": "?", "requestedSchema": {} });
    world
        .control()
        .send_server_request("elicitation/create", &params);
    let mut stream = oldest.await.unwrap();
    let question = stream.heard("elicitation/create").await;
    let taken_back = stream.heard("notifications/cancelled").await;
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    answered(&world).await;
    other.abort();
    world.finish_with(&client).await;
}

/// mcp-spec 4.4.5 Y4: the same on a pipe. While somebody thinks about it no call of theirs counts as
/// one without a sign of life, whichever it is of.
#[tokio::test]
async fn a_question_on_a_pipe_outlives_a_call_that_it_may_not_be_of() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let (idle, total) = (Duration::from_secs(3), Duration::from_secs(60));
    let declared = program.declared("child").deadlines(idle, total);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
    let (at, able) = (gateway.address(), json!({ "elicitation": {} }));
    let client = Legacy::greet_at(at, "/servers/child/mcp", NEWEST, able, Vec::new()).await;
    let mut standing = messages(client.get(None).await);
    let mut attended = false;
    while !attended {
        let changed = client.post(&call(1, "change_tools", json!({}))).await;
        drop(changed);
        let heard = tokio::time::timeout(Duration::from_millis(100), standing.recv()).await;
        attended = heard.is_ok();
    }
    let oldest = ending(&client, 2, 4000);
    until("it runs", || has_begun(&program, "slow")).await;
    let asking = calling(&client, call(3, "ask_form", json!({})));
    let question = next_of(&mut standing, "elicitation/create").await;
    let ended = oldest.await.unwrap().answer().await;
    assert!(ended["result"].is_object(), "{ended}");
    let answer = json!({
        "jsonrpc": "2.0", "id": question["id"],
        "result": { "action": "accept", "content": { "name": "Ada" } },
    });
    assert_eq!(client.post(&answer).await.status, 202);
    let answered = asking.await.unwrap().answer().await;
    assert!(answered.to_string().contains("Ada"), "{answered}");
    client.delete().await;
    program.gone().await;
    gateway.stop().await;
    warm.close().await;
}

/// P80: a question that belongs to no call is taken back from the client that was asked, under the
/// id by which the client knows it; what it says afterwards is nothing to anybody.
#[tokio::test]
async fn a_question_that_is_taken_back_is_taken_back_from_its_client() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "elicitation": {} })).await;
    client.count().await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    let params = json!({ "message": "?", "requestedSchema": {} });
    control.send_server_request("elicitation/create", &params);
    let question = standing.heard("elicitation/create").await;
    // It was the server's first.
    control.send_on_get_streams(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 },
    }));
    let taken_back = standing.heard("notifications/cancelled").await;
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    let late = json!({
        "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" },
    });
    assert_eq!(client.post(&late).await.status, 202);
    // The next question is another one.
    control.send_server_request("elicitation/create", &params);
    let next = standing.heard("elicitation/create").await;
    assert_ne!(next["id"], question["id"]);
    let answer = json!({
        "jsonrpc": "2.0", "id": next["id"], "result": { "action": "decline" },
    });
    assert_eq!(client.post(&answer).await.status, 202);
    answered(&world).await;
    assert_eq!(world.received("(response)"), 1);
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// A server whose calls take so long at most, behind a gateway.
async fn limited(total: Duration) -> World {
    World::declared(
        Personality::legacy(),
        |server| server.deadlines(total, total),
        &[],
    )
    .await
}

/// mcp-spec 3.2.2, reliability D129: a stream that closes takes no question back. Its client comes
/// back for it, or answers without, and the call goes on; where nobody answers, the limit of the
/// call ends it, at the server as well.
#[tokio::test]
async fn a_question_waits_for_a_client_that_left_as_long_as_its_call_may_take() {
    let world = limited(Duration::from_secs(3)).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    let mut stream = client.post(&call(1, "ask_roots", json!({}))).await;
    let first = stream.event().await.unwrap().id.unwrap();
    let question = stream.heard("roots/list").await;
    drop(stream);
    let mut again = client.get(Some(&first)).await;
    assert_eq!(again.heard("roots/list").await, question);
    drop(again);
    let roots = json!([{ "uri": "file:///a" }]);
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": roots } });
    assert_eq!(client.post(&answer).await.status, 202);
    let ended = client.get(Some(&first)).await.answer().await;
    assert!(ended.to_string().contains("file:///a"), "{ended}");

    let mut stream = client.post(&call(2, "ask_roots", json!({}))).await;
    let first = stream.event().await.unwrap().id.unwrap();
    stream.heard("roots/list").await;
    drop(stream);
    let ledger = world.server.ledger();
    let given_up = || ledger.messages_received("notifications/cancelled") == 1;
    until("the server hears that nobody waits", given_up).await;
    let mut rest = client.get(Some(&first)).await;
    let taken_back = rest.heard("notifications/cancelled").await;
    assert!(taken_back["params"]["requestId"].is_u64(), "{taken_back}");
    let ended = rest.answer().await;
    assert_eq!(
        ended["error"]["data"]["warmline"]["code"], "deadline",
        "{ended}"
    );
    world.finish_with(&client).await;
}

/// mcp-spec 3.2.4: a client that reads only JSON where it calls is asked on the stream that stands. One
/// that has none is not asked, and its call does not wait for an answer that cannot come.
#[tokio::test]
async fn a_client_that_reads_only_json_is_asked_where_it_listens() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    let asks = |id: i64| {
        let client = client.clone();
        tokio::spawn(async move {
            let asked = call(id, "ask_roots", json!({}));
            let accept = [("Accept", "application/json")];
            client.post_with(&accept, &asked).await.answer().await
        })
    };
    let refused = asks(1).await.unwrap();
    assert_eq!(refused["id"], 1, "{refused}");
    let mut standing = client.get(None).await;
    let control = world.control();
    streams_held(&control, 1).await;
    let asking = asks(2);
    let question = standing.heard("roots/list").await;
    let roots = json!([{ "uri": "file:///a" }]);
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "roots": roots } });
    assert_eq!(client.post(&answer).await.status, 202);
    let answered = asking.await.unwrap();
    assert!(answered.to_string().contains("file:///a"), "{answered}");
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// mcp-spec 4.4.5: whoever could not be asked has not declined. The server of a client that can be
/// asked nowhere hears that nobody decided.
#[tokio::test]
async fn a_question_that_nobody_could_be_asked_is_not_declined() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "elicitation": {} })).await;
    let asked = call(1, "ask_form", json!({}));
    let accept = [("Accept", "application/json")];
    let answer = client.post_with(&accept, &asked).await.answer().await;
    let said = answer["result"]["content"][0]["text"].as_str().unwrap();
    let said: Value = serde_json::from_str(said).unwrap();
    assert_eq!(said["answers"][0]["action"], "cancel", "{answer}");
    world.finish_with(&client).await;
}
