//! Streams of a legacy client: what it missed it gets again, what belongs to no call it hears on the
//! one that stands.

use crate::prelude::*;

use warmline_testkit::GetStreamSupport;

fn progress(steps: u64, pause: u64) -> Value {
    let mut asked = call(1, "progress", json!({ "steps": steps, "pause_ms": pause }));
    asked["params"]["_meta"] = json!({ "progressToken": 1 });
    asked
}

/// mcp-spec 3.2.5: only clients of the newest version get an event that holds nothing but an id.
#[tokio::test]
async fn a_stream_is_primed_for_those_who_know_it() {
    let world = World::new(Personality::legacy()).await;
    for (version, primed) in [(NEWEST, true), ("2025-06-18", false), ("2025-03-26", false)] {
        let client = Legacy::greet(&world, PATH, version, json!({})).await;
        for mut stream in [client.post(&progress(1, 1)).await, client.get(None).await] {
            if !primed && stream.header("content-type").is_some() {
                // The standing stream of an older client says nothing at first.
                continue;
            }
            let first = stream.event().await.unwrap();
            assert_eq!(first.data.is_empty(), primed, "{version}: {first:?}");
            assert_eq!(first.retry.is_some(), primed);
            assert!(first.id.is_some());
        }
        client.delete().await;
    }
    world.finish().await;
}

/// P88, P126: a client that leaves in the middle of a call finds the rest,
/// also when the call is over by then, and nothing twice.
#[tokio::test]
async fn a_client_that_left_gets_what_it_missed() {
    for pause in [1, 50] {
        let world = World::new(Personality::legacy()).await;
        let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
        let mut stream = client.post(&progress(6, pause)).await;
        let mut last = String::new();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let event = stream.event().await.unwrap();
            last = event.id.clone().unwrap();
            if !event.data.is_empty() {
                seen.push(event.message());
            }
        }
        drop(stream);
        let executed = || world.server.ledger().executions("progress") == 1;
        if pause == 1 {
            until("the call is over", executed).await;
        }
        let mut rest = client.get(Some(&last)).await;
        assert_eq!(rest.status, 200);
        while let Some(message) = rest.message().await {
            seen.push(message);
        }
        let steps: Vec<_> = seen
            .iter()
            .filter_map(|message| message["params"]["progress"].as_u64())
            .collect();
        assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
        assert_eq!(seen.last().unwrap()["id"], 1);
        // Once more, from the beginning of what is held: the same again.
        let stream = last.split('-').next().unwrap();
        let mut again = client.get(Some(&format!("{stream}-0"))).await;
        let mut count = 0;
        while again.message().await.is_some() {
            count += 1;
        }
        assert_eq!(count, 7);
        assert!(executed());
        world.finish_with(&client).await;
    }
}

/// mcp-spec 5.6.3: what is not held is 400; another's stream is nobody's.
#[tokio::test]
async fn a_stream_that_is_not_held_is_not_taken_up() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let other = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let mut stream = client.post(&progress(2, 1)).await;
    let id = stream.event().await.unwrap().id.unwrap();
    while stream.message().await.is_some() {}
    let (name, _) = id.split_once('-').unwrap();
    let beyond = format!("{name}-99");
    for (whose, last, status) in [
        (&client, id.as_str(), 200),
        (&client, &beyond, 400),
        (&client, "1-1", 400),
        (&client, "no id", 400),
        (&other, &id, 400),
    ] {
        let response = whose.get(Some(last)).await;
        assert_eq!(response.status, status, "{last}");
    }
    client.delete().await;
    world.finish_with(&other).await;
}

/// P81, P83, A146: what belongs to no call comes on the standing stream, of which
/// a client has one; the server's own is held only while somebody reads ours.
#[tokio::test]
async fn what_belongs_to_no_call_comes_on_the_standing_stream() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "elicitation": {} })).await;
    client.count().await;
    let mut standing = client.get(None).await;
    assert_eq!(standing.status, 200);
    assert_eq!(client.get(None).await.status, 409);
    streams_held(&control, 1).await;

    control.change_tools();
    standing.heard("notifications/tools/list_changed").await;
    let subscribe = json!({
        "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": { "uri": "note:///a" },
    });
    client.post(&subscribe).await.answer().await;
    control.update_resource("note:///a");
    let updated = standing.heard("notifications/resources/updated").await;
    assert_eq!(updated["params"]["uri"], "note:///a");
    control.send_on_get_streams(&json!({
        "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x" },
    }));
    standing.heard("notifications/message").await;

    // A question with no call in flight is the one client's.
    control.send_server_request(
        "elicitation/create",
        &json!({ "message": "?", "requestedSchema": {} }),
    );
    let question = standing.heard("elicitation/create").await;
    let answer = json!({
        "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": {} },
    });
    assert_eq!(client.post(&answer).await.status, 202);
    let answered =
        |entries: &[LedgerEntry]| entries.iter().any(|entry| entry.method == "(response)");
    let ledger = world.server.ledger();
    assert!(ledger.wait_until(Duration::from_secs(5), answered).await);

    client.delete().await;
    drop(standing);
    streams_held(&control, 0).await;
    world.finish().await;
}

/// mcp-spec T32: one stream at the server is enough for the lists of all clients of an identity, and
/// another takes over when its holder leaves.
#[tokio::test]
async fn list_changes_for_many_come_from_one_stream() {
    let world = World::of_alice(Personality::legacy()).await;
    let control = world.control();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = world.greet_as_alice(PATH).await;
        client.count().await;
        let standing = client.get(None).await;
        clients.push((client, standing));
    }
    streams_held(&control, 1).await;
    control.change_tools();
    for (_, standing) in &mut clients {
        standing.heard("notifications/tools/list_changed").await;
    }
    let (first, standing) = clients.remove(0);
    drop(standing);
    first.delete().await;
    let is_so = || control.open_get_streams() == 1 && control.session_ids().len() == 2;
    until("another took it over", is_so).await;
    control.change_tools();
    for (_, standing) in &mut clients {
        standing.heard("notifications/tools/list_changed").await;
    }
    for (client, _) in &clients {
        // Whoever took it over has it before it leaves as well.
        streams_held(&control, 1).await;
        client.delete().await;
    }
    drop(clients);
    world.finish().await;
}

/// P67, P91, P130: a server without a standing stream, or with one that says nothing, changes nothing for a client.
#[tokio::test]
async fn a_server_without_a_standing_stream_is_served_all_the_same() {
    for get in [GetStreamSupport::Refused, GetStreamSupport::Silent] {
        let world = World::new(Personality::legacy().get_stream(get)).await;
        let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
        let mut standing = client.get(None).await;
        assert_eq!(standing.status, 200);
        assert!(standing.event().await.unwrap().data.is_empty());
        for expected in 1..=2 {
            assert_eq!(client.count().await, expected);
        }
        assert_eq!(world.received("GET"), 1, "asked once");
        world.finish_with(&client).await;
    }
}

/// P90: the server's standing stream is opened again after it broke, and goes on where it was.
#[tokio::test]
async fn a_standing_stream_that_broke_upstream_is_taken_up() {
    let personality = Personality::legacy().reply(ReplyFormat::Sse(SseFormat::resumable()));
    let world = World::new(personality).await;
    let control = world.control();
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    client.count().await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    control.change_tools();
    standing.heard("notifications/tools/list_changed").await;
    // The session is forgotten, and with it its stream: the next call heals it.
    control.forget_sessions();
    client.count().await;
    streams_held(&control, 1).await;
    control.change_tools();
    standing.heard("notifications/tools/list_changed").await;
    client.delete().await;
    drop(standing);
    world.finish().await;
}

/// What a client missed of its standing stream it gets again as well.
#[tokio::test]
async fn the_standing_stream_is_taken_up_where_it_broke() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    client.count().await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    let first = standing.event().await.unwrap().id.unwrap();
    control.change_tools();
    standing.heard("notifications/tools/list_changed").await;
    drop(standing);
    let mut again = client.get(Some(&first)).await;
    assert_eq!(again.status, 200);
    again.heard("notifications/tools/list_changed").await;
    control.change_tools();
    again.heard("notifications/tools/list_changed").await;
    client.delete().await;
    drop(again);
    world.finish().await;
}

/// A streamed call with an answer of so many bytes, read to its end: the id of its first event.
async fn streamed(client: &Legacy, bytes: usize) -> String {
    let asked = call(1, "big", json!({ "bytes": bytes }));
    let mut stream = client
        .post_with(&[("Accept", "text/event-stream")], &asked)
        .await;
    let first = stream.event().await.unwrap().id.unwrap();
    assert_eq!(stream.answer().await["id"], 1);
    first
}

/// reliability 8.3: what is held for clients that may come back is bounded in bytes all the time, and
/// who holds most loses first.
#[tokio::test]
async fn large_answers_that_are_held_push_out_their_owners_oldest() {
    const LARGE: usize = 12 << 20;
    let world = World::of_alice(Personality::legacy()).await;
    let alice = world.greet_as_alice(PATH).await;
    let shown = ("Authorization".to_owned(), "Bearer token-of-bob".to_owned());
    let bob = Legacy::greet_with(&world, PATH, NEWEST, json!({}), vec![shown]).await;
    let of_alice = streamed(&alice, LARGE).await;
    let mut of_bob = Vec::new();
    for _ in 0..6 {
        of_bob.push(streamed(&bob, LARGE).await);
    }
    assert_eq!(
        bob.get(Some(&of_bob[0])).await.status,
        400,
        "it is too much"
    );
    for (client, held) in [(&bob, &of_bob[5]), (&alice, &of_alice)] {
        let mut again = client.get(Some(held)).await;
        assert_eq!(again.status, 200);
        assert_eq!(again.answer().await["id"], 1);
    }
    alice.delete().await;
    world.finish_with(&bob).await;
}

/// mcp-spec 3.2.6: a standing stream that was taken up while its old connection stood has the place
/// of it, also after the old one is gone.
#[tokio::test]
async fn a_stream_that_was_taken_up_keeps_its_place() {
    // It is asked for its own stream once, so that none begins while the session ends.
    let world = World::new(Personality::legacy().get_stream(GetStreamSupport::Refused)).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    let mut old = client.get(None).await;
    let first = old.event().await.unwrap().id.unwrap();
    client.count().await;
    let ledger = world.server.ledger();
    let is_so = || ledger.messages_received("GET") == 1;
    until("the server has none", is_so).await;
    let new = client.get(Some(&first)).await;
    assert_eq!(new.status, 200);
    assert!(old.event().await.is_none(), "the new one has the rest");
    drop(old);
    assert_eq!(client.get(None).await.status, 409, "one stands");
    let newest = client.get(Some(&first)).await;
    assert_eq!(newest.status, 200);
    drop((new, newest));
    world.finish_with(&client).await;
}
