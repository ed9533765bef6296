//! Clients that send no session id, on a session that several identities share: what others want is
//! not theirs to hear, nor to take back.

use crate::prelude::*;

use super::notification_routing::has_begun;
use super::shared_subscriptions::{order, told};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const ALICES: &str = "note:///alices";
const BOBS: &str = "note:///bobs";

/// What a person shows.
fn shown(name: &str) -> (String, String) {
    let token = format!("Bearer token-of-{name}");
    ("Authorization".to_owned(), token)
}

/// A client of a person that knows no session id.
fn nameless(address: SocketAddr, name: &str) -> Legacy {
    // What is declared keeps shared sessions apart.
    let version = ("MCP-Protocol-Version".to_owned(), NEWEST.to_owned());
    Legacy {
        address,
        path: PATH.to_owned(),
        ticket: String::new(),
        version: String::new(),
        more: vec![shown(name), version],
    }
}

/// mcp-spec 8.7.2: in a session that identities share, a call of somebody without a session id hears
/// what its identity asked for, and nothing of what another did.
#[tokio::test]
async fn a_call_without_a_session_id_hears_no_update_of_another_identity() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let declared = program.declared(LEDGER).session_per(SessionScope::Server);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let options = known(local(), warm.vault(), &["alice", "bob"]);
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    let (at, more) = (gateway.address(), vec![shown("alice")]);
    let alice = Legacy::greet_at(at, PATH, NEWEST, json!({}), more).await;
    let bob = nameless(at, "bob");
    order(&alice, "resources/subscribe", json!({ "uri": ALICES })).await;
    order(&bob, "resources/subscribe", json!({ "uri": BOBS })).await;
    let slow = call(1, "slow", json!({ "ms": 3000 }));
    let lasting = tokio::spawn(async move { bob.post(&slow).await });
    until("it is under way", || has_begun(&program, "slow")).await;
    assert_eq!(program.alive(), 1, "they share a session");
    let updated = [ALICES, BOBS, "note:///nobodys"];
    let change = call(1, "change_tools", json!({ "updated": updated }));
    let of_alice = Log::of(alice.post(&change).await);
    let of_bob = Log::of(lasting.await.unwrap());
    for log in [&of_alice, &of_bob] {
        until("all was heard", || log.has("an answer")).await;
    }
    assert_eq!(of_bob.heard(), [BOBS, TOOLS_CHANGED, "an answer"]);
    assert!(of_alice.has(ALICES) && !of_alice.has(BOBS));
    gateway.stop().await;
    warm.close().await;
    program.gone().await;
}

/// mcp-spec T16: one who wants very much of a session that identities share takes nothing from the
/// others; and whoever wants too much is told so.
#[tokio::test]
async fn a_client_that_wants_very_much_starves_no_other() {
    let world = World::shared(SessionScope::Server, &["alice", "bob"]).await;
    let control = world.control();
    let alice = world.greet_as_alice(PATH).await;
    let more = vec![shown("bob")];
    let bob = Legacy::greet_at(alice.address, PATH, NEWEST, json!({}), more).await;
    let subscribe = async |client: &Legacy, uri: &str| {
        ask(client, "resources/subscribe", json!({ "uri": uri })).await
    };
    for number in 0..1_000 {
        let answer = subscribe(&alice, &format!("note:///{number}")).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    let mut heard = bob.get(None).await;
    for uri in [BOBS, "note:///5"] {
        order(&bob, "resources/subscribe", json!({ "uri": uri })).await;
        streams_held(&control, 1).await;
        control.update_resource(uri);
        let news = heard.heard("notifications/resources/updated").await;
        assert_eq!(news["params"]["uri"], uri);
    }
    let mut refused = Value::Null;
    for number in 0..100 {
        let long = format!("note:///{number}/{}", "x".repeat(100 << 10));
        refused = subscribe(&alice, &long).await["error"].take();
        if !refused.is_null() {
            break;
        }
    }
    assert_eq!(
        refused["data"]["warmline"]["code"], "overloaded",
        "{refused}"
    );
    let words = refused["message"].as_str().unwrap();
    let holds = words.contains("`ledger`") && words.contains("10000");
    assert!(holds, "{words}");
    order(&bob, "resources/subscribe", json!({ "uri": ALICES })).await;
    drop(heard);
    alice.delete().await;
    world.finish_with(&bob).await;
}

/// mcp-spec T16, T17: whoever sends no session id takes back nothing that another identity wants,
/// known or not; and what they want themselves is theirs to take back.
#[tokio::test]
async fn an_order_without_a_session_id_takes_back_nothing_of_another_identity() {
    let subscribe = "resources/subscribe";
    let unsubscribe = "resources/unsubscribe";
    for people in [&["alice", "bob"][..], &[]] {
        let world = World::shared(SessionScope::Server, people).await;
        let told = |method, member| told(&world, method, member);
        let alice = world.greet_as_alice(PATH).await;
        order(&alice, subscribe, json!({ "uri": ALICES })).await;
        order(&alice, "logging/setLevel", json!({ "level": "debug" })).await;
        let bob = nameless(world.gateway.address(), "bob");
        order(&bob, unsubscribe, json!({ "uri": ALICES })).await;
        order(&bob, "logging/setLevel", json!({ "level": "emergency" })).await;
        assert_eq!(told(unsubscribe, "uri"), Vec::<Value>::new());
        assert_eq!(told("logging/setLevel", "level"), ["debug"]);
        if !people.is_empty() {
            order(&bob, subscribe, json!({ "uri": BOBS })).await;
            order(&bob, unsubscribe, json!({ "uri": BOBS })).await;
            assert_eq!(told(unsubscribe, "uri"), [BOBS]);
        }
        let before = told(subscribe, "uri");
        world.control().forget_sessions();
        assert_eq!(alice.count().await, 1, "it is a new session");
        let again: Vec<_> = told(subscribe, "uri").split_off(before.len());
        assert_eq!(again, [ALICES]);
        assert_eq!(told("logging/setLevel", "level"), ["debug", "debug"]);
        world.finish_with(&alice).await;
    }
}
