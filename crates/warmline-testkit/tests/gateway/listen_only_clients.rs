//! Clients that only listen: what they want is held for them, whatever is lost around them.

use crate::prelude::*;

use super::session_tickets::stored;

const RUN: &str = "/runs/trip/servers/ledger/mcp";
const UPDATED: &str = "notifications/resources/updated";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const URI: &str = "note:///a";

/// Lets time pass, and whoever waits for it act.
async fn pass(time: Duration) {
    crate::fixture::pass(time).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Lets time pass until something is true; the words say what did not come true.
pub(super) async fn pass_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..600 {
        if holds() {
            return;
        }
        pass(Duration::from_secs(1)).await;
    }
    panic!("it must come true that {what}");
}

async fn order(client: &Legacy, method: &str, params: Value) {
    let answer = ask(client, method, params).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
}

pub(super) async fn subscribe(client: &Legacy) {
    order(client, "resources/subscribe", json!({ "uri": URI })).await;
}

/// A client that subscribed and reads its stream.
async fn listener(world: &World, path: &str) -> (Legacy, Response) {
    let client = Legacy::greet(world, path, NEWEST, json!({})).await;
    client.count().await;
    subscribe(&client).await;
    let standing = client.get(None).await;
    let control = world.control();
    streams_held(&control, 1).await;
    (client, standing)
}

/// mcp-spec 5.5.1: a session that the server forgot is opened again for a client that only listens,
/// with its subscriptions. What was lost with it is told to the next call.
#[tokio::test]
async fn a_session_that_was_forgotten_is_opened_for_who_only_listens() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let (client, mut standing) = listener(&world, PATH).await;
    control.forget_sessions();
    pass_until("it is listened to", || control.open_get_streams() == 1).await;
    control.update_resource(URI);
    assert_eq!(standing.heard(UPDATED).await["params"]["uri"], URI);
    let next = client.call("counter", json!({})).await;
    assert_eq!(next["result"]["structuredContent"]["count"], 1, "{next}");
    assert_eq!(next["result"]["_meta"]["dev.warmline/stateLost"], true);
    world.finish_with(&client).await;
}

/// P49: after a restart the session of a client that subscribed is listened to as
/// soon as the client listens.
#[tokio::test]
async fn who_only_listens_is_heard_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let control = server.control();
    let (warm, gateway) = stored(&folder, &server).await;
    let mut client = Legacy::greet_at(gateway.address(), PATH, NEWEST, json!({}), Vec::new()).await;
    client.count().await;
    subscribe(&client).await;
    gateway.stop().await;
    warm.close().await;
    let (warm, gateway) = stored(&folder, &server).await;
    client.address = gateway.address();
    let mut standing = client.get(None).await;
    pass_until("it is listened to", || control.open_get_streams() == 1).await;
    control.update_resource(URI);
    standing.heard(UPDATED).await;
    assert_eq!(server.counts().initializes, 1, "it is the old one");
    client.delete().await;
    gateway.stop().await;
    warm.close().await;
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// P37: a run does not rest while a client of it listens for what it subscribed to; it does when
/// the client has left.
#[tokio::test]
async fn a_run_that_somebody_listens_to_does_not_rest() {
    let world = World::new(Personality::legacy()).await;
    let quiet = Server::http(LEDGER, world.server.url()).with_policy(|policy| {
        policy.keep_alive = Duration::ZERO;
        policy.health_check_interval = Duration::from_secs(100 * 3600);
    });
    world.add_server(quiet);
    let control = world.control();
    let (client, mut standing) = listener(&world, PATH).await;
    for _ in 0..40 {
        pass(Duration::from_secs(60)).await;
    }
    control.update_resource(URI);
    standing.heard(UPDATED).await;
    assert_eq!(client.count().await, 2);
    drop(standing);
    for _ in 0..40 {
        pass(Duration::from_secs(60)).await;
    }
    until("it rested", || control.session_ids().is_empty()).await;
    world.finish_with(&client).await;
}

/// A run that was named when the client session began is heard on the stream that stands also where
/// it ended and is begun again.
#[tokio::test]
async fn a_run_that_was_named_once_is_heard_when_it_is_begun_again() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let named = vec![("Warmline-Run".to_owned(), "trip".to_owned())];
    let mut client = Legacy::greet_with(&world, PATH, NEWEST, json!({}), named).await;
    client.more.clear();
    client.count().await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    let address = world.gateway.address();
    let ended = request(address, "DELETE", "/runs/trip", &[], "").await;
    assert!(matches!(ended.status, 200..=299), "{}", ended.status);
    until("its session is gone", || control.session_ids().is_empty()).await;
    client.count().await;
    subscribe(&client).await;
    streams_held(&control, 1).await;
    control.update_resource(URI);
    standing.heard(UPDATED).await;
    world.finish_with(&client).await;
}

/// mcp-spec Y6: a question of no call gets its end when the client that was asked ends its session,
/// though the run goes on.
#[tokio::test]
async fn a_question_ends_with_the_session_of_the_client_that_was_asked() {
    let world = World::new(Personality::legacy()).await;
    let (control, ledger) = (world.control(), world.server.ledger());
    for asked in 1..=2 {
        let client = Legacy::greet(&world, RUN, NEWEST, json!({ "elicitation": {} })).await;
        client.count().await;
        let mut standing = client.get(None).await;
        streams_held(&control, 1).await;
        // It is attended a moment after its stream has begun.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let params = json!({ "message": "?", "requestedSchema": {} });
        control.send_server_request("elicitation/create", &params);
        standing.heard("elicitation/create").await;
        client.delete().await;
        let is_so = || ledger.messages_received("(response)") == asked;
        until("the server is told", is_so).await;
    }
    world.finish().await;
}

/// DESIGN 14: a client that holds its stream wants to hear of lists, also where it never asked its
/// server for anything, because its greeting came from memory.
#[tokio::test]
async fn a_client_that_only_holds_its_stream_hears_of_lists() {
    let world = World::of_alice(Personality::legacy()).await;
    let (control, ledger) = (world.control(), world.server.ledger());
    world.greet_as_alice(PATH).await.delete().await;
    let client = world.greet_as_alice(PATH).await;
    let received = ledger.messages_received("initialize");
    assert_eq!(received, 1, "it came from memory");
    let mut standing = client.get(None).await;
    pass_until("it is listened to", || control.open_get_streams() == 1).await;
    control.change_tools();
    standing.heard(TOOLS_CHANGED).await;
    world.finish_with(&client).await;
}

/// The same at the place of all servers, where a greeting asks nobody.
#[tokio::test]
async fn a_client_that_only_holds_its_stream_hears_of_the_lists_of_all() {
    let of = |scheme| Personality::legacy().uri_scheme(scheme);
    let world = Merged::new(vec![("alpha", of("one")), ("beta", of("two"))]).await;
    let first = world.greet("/mcp", json!({})).await;
    ask(&first, "tools/list", json!({})).await;
    first.delete().await;
    let client = world.greet("/mcp", json!({})).await;
    let mut standing = client.get(None).await;
    for name in ["alpha", "beta"] {
        let control = world.server(name).control();
        pass_until("it is listened to", || control.open_get_streams() == 1).await;
        control.change_tools();
        standing.heard(TOOLS_CHANGED).await;
    }
    world.finish_with(&client).await;
}

/// P81: what was subscribed to in a session that all share, or all of one identity, is listened to,
/// whether or not the server tells of lists.
#[tokio::test]
async fn a_subscription_in_a_session_of_all_is_listened_to() {
    for per in [SessionScope::Server, SessionScope::Identity] {
        let terse = Personality::legacy().notification_kinds(&[]);
        let world = World::declared(terse, |server| server.session_per(per), &[]).await;
        let control = world.control();
        let (client, mut standing) = listener(&world, PATH).await;
        control.update_resource(URI);
        standing.heard(UPDATED).await;
        world.finish_with(&client).await;
    }
}

/// DESIGN 7: a client that did nothing for a while is forgotten, and nothing of what it asked for:
/// neither its log level nor what is to be taken back when it leaves.
#[tokio::test]
async fn what_a_client_asked_for_is_known_after_it_was_forgotten() {
    let world = World::new(Personality::legacy()).await;
    let (control, ledger) = (world.control(), world.server.ledger());
    let other = Legacy::greet(&world, RUN, NEWEST, json!({})).await;
    order(&other, "logging/setLevel", json!({ "level": "debug" })).await;
    let client = Legacy::greet(&world, RUN, NEWEST, json!({})).await;
    order(&client, "logging/setLevel", json!({ "level": "error" })).await;
    subscribe(&client).await;
    for _ in 0..8 {
        pass(Duration::from_secs(20)).await;
    }
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    for level in ["debug", "error"] {
        let params = json!({ "level": level, "data": level });
        let method = "notifications/message";
        control
            .send_on_get_streams(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }
    let line = standing.heard("notifications/message").await;
    assert_eq!(line["params"]["level"], "error");
    drop(standing);
    for _ in 0..8 {
        pass(Duration::from_secs(20)).await;
    }
    assert_eq!(client.delete().await.status, 204);
    let is_so = || ledger.messages_received("resources/unsubscribe") == 1;
    until("it is taken back", is_so).await;
    world.finish_with(&other).await;
}
