//! Orders of clients that share a session: what one of them takes back, another may still want.

use crate::prelude::*;

const PATH: &str = "/runs/r/servers/ledger/mcp";
const URI: &str = "note:///a";
const LOG: &str = "notifications/message";

/// What the server was told by these requests, in order.
pub(super) fn told(world: &World, method: &str, member: &str) -> Vec<Value> {
    let entries = world.server.ledger().entries().into_iter();
    let received = entries.filter(|entry| entry.phase == ExecutionPhase::Received);
    let asked = received.filter(|entry| entry.method == method);
    asked.map(|entry| entry.arguments[member].clone()).collect()
}

pub(super) async fn order(client: &Legacy, method: &str, params: Value) {
    let answer = ask(client, method, params).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

async fn two(world: &World) -> (Legacy, Legacy) {
    let greet = || Legacy::greet(world, PATH, NEWEST, json!({}));
    (greet().await, greet().await)
}

/// mcp-spec T16: a subscription ends at the server when the last client that wants it takes it
/// back, or leaves.
#[tokio::test]
async fn a_subscription_lasts_while_any_client_of_the_session_wants_it() {
    let world = World::new(Personality::legacy()).await;
    let (one, other) = two(&world).await;
    let only_one = "note:///b";
    for client in [&one, &other] {
        order(client, "resources/subscribe", json!({ "uri": URI })).await;
    }
    order(&one, "resources/subscribe", json!({ "uri": only_one })).await;
    let mut heard = other.get(None).await;
    streams_held(&world.control(), 1).await;
    order(&one, "resources/unsubscribe", json!({ "uri": URI })).await;
    let ended = || told(&world, "resources/unsubscribe", "uri");
    assert_eq!(ended(), Vec::<Value>::new());
    world.control().update_resource(URI);
    let news = heard.heard("notifications/resources/updated").await;
    assert_eq!(news["params"]["uri"], URI);
    order(&other, "resources/unsubscribe", json!({ "uri": URI })).await;
    assert_eq!(ended(), [json!(URI)]);
    // Whoever leaves wants nothing any more.
    assert_eq!(one.delete().await.status, 204);
    until("it is taken back", || ended() == [URI, only_one]).await;
    drop(heard);
    world.finish_with(&other).await;
}

/// mcp-spec T16: the same where a session is shared by all clients of an identity, or by all, and
/// each of them has a run of its own, which ends with it. What nobody wants any more is not said to
/// the session that takes the place of a lost one either.
#[tokio::test]
async fn whoever_leaves_a_session_that_is_no_runs_own_wants_nothing_of_it() {
    for per in [SessionScope::Identity, SessionScope::Server] {
        let world = World::shared(per, &["alice"]).await;
        let control = world.control();
        let greet = || world.greet_as_alice("/servers/ledger/mcp");
        let (one, other, bystander) = (greet().await, greet().await, greet().await);
        bystander.count().await;
        let only_one = "note:///b";
        for client in [&one, &other] {
            order(client, "resources/subscribe", json!({ "uri": URI })).await;
        }
        order(&one, "resources/subscribe", json!({ "uri": only_one })).await;
        let mut heard = other.get(None).await;
        streams_held(&control, 1).await;
        assert_eq!(control.session_ids().len(), 1, "{per:?}: they share it");

        let ended = || told(&world, "resources/unsubscribe", "uri");
        assert_eq!(one.delete().await.status, 204);
        let is_so = || ended() == [only_one];
        until("what it alone wanted is taken back", is_so).await;
        control.update_resource(URI);
        let news = heard.heard("notifications/resources/updated").await;
        assert_eq!(news["params"]["uri"], URI);
        assert_eq!(other.delete().await.status, 204);
        let is_so = || ended() == [only_one, URI];
        until("and what the last one wanted", is_so).await;

        let subscribed = told(&world, "resources/subscribe", "uri");
        control.forget_sessions();
        assert_eq!(bystander.count().await, 1, "{per:?}: it is a new session");
        assert_eq!(told(&world, "resources/subscribe", "uri"), subscribed);
        world.finish_with(&bystander).await;
    }
}

/// mcp-spec T16: the same for a client that the gateway has forgotten meanwhile.
#[tokio::test]
async fn a_client_that_was_forgotten_takes_back_what_it_wanted_too() {
    let world = World::shared(SessionScope::Identity, &["alice"]).await;
    let mut client = world.greet_as_alice("/servers/ledger/mcp").await;
    order(&client, "resources/subscribe", json!({ "uri": URI })).await;
    // Another gateway of the same engine knows nothing of it but what its ticket says.
    let options = known(local(), world.warm.vault(), &["alice"]);
    let another = Gateway::start(world.warm.clone(), options).await.unwrap();
    client.address = another.address();
    assert_eq!(client.delete().await.status, 204);
    let is_so = || told(&world, "resources/unsubscribe", "uri") == [URI];
    until("it is taken back", is_so).await;
    another.stop().await;
    world.finish().await;
}

/// mcp-spec T16: a client that is gone is not waited for by a server that cannot be told: what it
/// wanted is forgotten all the same.
#[tokio::test]
async fn what_a_server_could_not_be_told_is_not_said_again() {
    let world = World::shared(SessionScope::Server, &[]).await;
    let control = world.control();
    let greet = || Legacy::greet(&world, "/servers/ledger/mcp", NEWEST, json!({}));
    let (one, bystander) = (greet().await, greet().await);
    order(&one, "resources/subscribe", json!({ "uri": URI })).await;
    let refusal = Fault::Reply(CannedReply::new(500, "not now"));
    control.inject(FaultRule::new(refusal).on_method("resources/unsubscribe"));
    let before = control.faults_applied();
    assert_eq!(one.delete().await.status, 204);
    until("it was tried", || control.faults_applied() > before).await;
    control.forget_sessions();
    assert_eq!(bystander.count().await, 1, "it is a new session");
    assert_eq!(told(&world, "resources/subscribe", "uri"), [URI]);
    world.finish_with(&bystander).await;
}

/// mcp-spec T16: a subscription that one client takes back is kept while another asks for it. When
/// nothing comes of that, nobody wants it: the server hears so, and no later session is told of it.
#[tokio::test]
async fn a_subscription_is_not_kept_for_a_client_that_asked_in_vain() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let (one, other) = two(&world).await;
    order(&one, "resources/subscribe", json!({ "uri": URI })).await;
    let silence = Fault::Silence(FaultTiming::AfterExecuting);
    control.inject(FaultRule::new(silence).on_method("resources/subscribe"));
    let asking = other.clone();
    let in_vain = tokio::spawn(async move {
        let params = json!({ "uri": URI });
        let method = "resources/subscribe";
        let ask = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        drop(asking.post(&ask).await);
    });
    let asked = || told(&world, "resources/subscribe", "uri");
    until("the other asks for it", || asked() == [URI, URI]).await;
    order(&one, "resources/unsubscribe", json!({ "uri": URI })).await;
    let ended = || told(&world, "resources/unsubscribe", "uri");
    assert_eq!(ended(), Vec::<Value>::new(), "the other may still get it");
    let cancelled = "notifications/cancelled";
    let give_up = json!({ "jsonrpc": "2.0", "method": cancelled, "params": { "requestId": 7 } });
    assert_eq!(other.post(&give_up).await.status, 202);
    until("it is taken back", || ended() == [URI]).await;
    control.forget_sessions();
    assert_eq!(one.count().await, 1, "it is a new session");
    assert_eq!(asked(), [URI, URI], "nobody wants it");
    in_vain.abort();
    for client in [one, other] {
        client.delete().await;
    }
    world.finish().await;
}

/// mcp-spec T17: what the one who wanted most leaves, the server need not tell any more; nor is it
/// said to the session that takes the place of a lost one.
#[tokio::test]
async fn whoever_leaves_takes_its_log_level_along() {
    for per in [SessionScope::Run, SessionScope::Server] {
        let world = World::shared(per, &[]).await;
        let levels = || told(&world, "logging/setLevel", "level");
        let (one, other) = two(&world).await;
        order(&one, "logging/setLevel", json!({ "level": "error" })).await;
        order(&other, "logging/setLevel", json!({ "level": "debug" })).await;
        assert_eq!(other.delete().await.status, 204);
        let is_so = || levels() == ["error", "debug", "error"];
        until("the server hears what is wanted now", is_so).await;
        world.control().forget_sessions();
        assert_eq!(one.count().await, 1, "{per:?}: it is a new session");
        assert_eq!(levels(), ["error", "debug", "error", "error"], "{per:?}");
        world.finish_with(&one).await;
    }
}

/// mcp-spec T17: the server tells as much as any of its clients wants to hear, and each of them
/// hears what it asked for.
#[tokio::test]
async fn a_server_logs_for_the_one_who_wants_most_and_each_hears_its_own_level() {
    let world = World::new(Personality::legacy()).await;
    let (one, other) = two(&world).await;
    let level = |client: Legacy, level: &'static str| async move {
        order(&client, "logging/setLevel", json!({ "level": level })).await;
    };
    let steps = [
        (&one, "debug", vec!["debug"]),
        (&other, "error", vec!["debug"]),
        (&one, "warning", vec!["debug", "warning"]),
        (&one, "emergency", vec!["debug", "warning", "error"]),
        (&one, "info", vec!["debug", "warning", "error", "info"]),
    ];
    for (client, said, expected) in steps {
        level(client.clone(), said).await;
        let found = told(&world, "logging/setLevel", "level");
        assert_eq!(found, expected, "{said}");
    }
    let (mut ones, mut others) = (one.get(None).await, other.get(None).await);
    streams_held(&world.control(), 1).await;
    let log = |level: &str| {
        let params = json!({ "level": level, "data": level });
        world
            .control()
            .send_on_get_streams(&json!({ "jsonrpc": "2.0", "method": LOG, "params": params }));
    };
    for level in ["debug", "info", "error"] {
        log(level);
    }
    for (stream, expected) in [(&mut ones, "info"), (&mut others, "error")] {
        let line = stream.heard(LOG).await;
        assert_eq!(line["params"]["level"], expected);
    }
    drop((ones, others));
    world.finish().await;
}
