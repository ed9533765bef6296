//! A legacy client as it is seen on the wire: its messages, its statuses, its session.

use crate::prelude::*;

/// Headers, a message, and the status it gets.
type Case<'a> = (&'a [(&'a str, &'a str)], &'a Value, u16);

fn asked_for(method: &'static str) -> impl Fn(&[LedgerEntry]) -> bool {
    move |entries| entries.iter().any(|entry| entry.method == method)
}

/// P77, P78: a question reaches the client whose call caused it, and what it answers goes back as
/// it is, an error as an error.
#[tokio::test]
async fn a_question_is_answered_in_the_clients_own_words() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    let cases = [
        json!({ "result": { "roots": [{ "uri": "file:///a" }] } }),
        json!({ "error": { "code": -1, "message": "no", "data": [1] } }),
    ];
    for case in cases {
        let mut stream = client.post(&call(7, "ask_roots", json!({}))).await;
        let question = stream.message().await.unwrap();
        assert_eq!(question["method"], "roots/list");
        let mut answer = case.clone();
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = question["id"].clone();
        assert_eq!(client.post(&answer).await.status, 202);
        let answers = stream.answer().await["result"]["structuredContent"]["answers"].clone();
        let expected = case.get("result").or(case.get("error")).unwrap();
        assert_eq!(answers[0], *expected);
    }
    world.finish_with(&client).await;
}

/// Bad input: what `initialize` says must be what it is called.
#[tokio::test]
async fn a_greeting_whose_parts_are_none_is_refused() {
    let world = World::new(Personality::legacy()).await;
    for capabilities in [json!("x"), json!([]), json!(7), Value::Null] {
        let mut greeting = initialize(NEWEST, json!({}));
        greeting["params"]["capabilities"] = capabilities;
        let mut reply = request(
            world.gateway.address(),
            "POST",
            PATH,
            &[("Content-Type", "application/json")],
            &greeting.to_string(),
        )
        .await;
        assert_eq!(reply.status, 400, "{greeting}");
        assert_eq!(reply.json().await["error"]["code"], -32602, "{greeting}");
    }
    assert_eq!(world.server.ledger().entries().len(), 0);
    world.finish().await;
}

/// What a client tells is the server's, unless it is ours, and nothing is opened for it.
#[tokio::test]
async fn notices_of_a_client_go_to_its_session() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({ "roots": {} })).await;
    client.count().await;
    for method in ["notifications/roots/list_changed", "notifications/made/up"] {
        let notice = json!({ "jsonrpc": "2.0", "method": method, "params": { "a": 1 } });
        assert_eq!(client.post(&notice).await.status, 202);
        let ledger = world.server.ledger();
        assert!(
            ledger
                .wait_until(Duration::from_secs(5), asked_for(method))
                .await
        );
    }
    // The gateway's own handshake, and no second one.
    let ledger = world.server.ledger();
    assert_eq!(ledger.messages_received("notifications/initialized"), 1);
    world.finish_with(&client).await;
}

/// P80, P135: a cancel reaches the server under the server's id, and no answer comes.
#[tokio::test]
async fn a_cancelled_call_ends_without_an_answer() {
    for reply in [ReplyFormat::Json, ReplyFormat::Sse(SseFormat::plain())] {
        let world = World::new(Personality::legacy().reply(reply)).await;
        let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
        let slow = call(5, "slow", json!({ "ms": 60_000 }));
        let other = client.clone();
        let waiting = tokio::spawn(async move {
            let mut response = other.post(&slow).await;
            (response.status, response.whole().await)
        });
        let ledger = world.server.ledger();
        let begun = |entries: &[LedgerEntry]| {
            entries.iter().any(|entry| {
                entry.phase == ExecutionPhase::Begin && entry.tool.as_deref() == Some("slow")
            })
        };
        assert!(ledger.wait_until(Duration::from_secs(5), begun).await);
        let cancel = |id: Value| {
            json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
            })
        };
        // An id of another type, or of nothing, is nobody's.
        for stranger in [json!("5"), json!(99), json!(null)] {
            assert_eq!(client.post(&cancel(stranger)).await.status, 202);
        }
        assert_eq!(client.post(&cancel(json!(5))).await.status, 202);
        let (status, body) = waiting.await.unwrap();
        assert!(status == 202 || status == 200, "{status}");
        assert!(!body.contains("took"), "{body}");
        let cancelled = asked_for("notifications/cancelled");
        assert!(ledger.wait_until(Duration::from_secs(5), cancelled).await);
        world.finish_with(&client).await;
    }
}

/// reliability D130: the same id twice in flight is two calls, each with its own answer.
#[tokio::test]
async fn the_same_id_twice_in_flight_is_two_calls() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let calls = (0..8).map(|number| {
        let client = client.clone();
        tokio::spawn(async move {
            let echo = call(1, "echo", json!({ "number": number }));
            let answer = client.post(&echo).await.answer().await;
            assert_eq!(answer["id"], 1);
            let text = answer["result"]["content"][0]["text"]
                .as_str()
                .unwrap()
                .to_owned();
            assert!(text.contains(&number.to_string()), "{text}");
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    world.finish_with(&client).await;
}

/// P126: each request that cannot be served gets its status (mcp-spec 3.2, 5.3, 9.3.2) and a JSON-RPC body, and
/// nothing of it reaches the server.
#[tokio::test]
async fn what_cannot_be_served_gets_its_status() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    client.count().await;
    let before = world.server.ledger().entries().len();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let batch = json!([list]);
    let elsewhere = format!("{}x", client.ticket);
    let cases: &[Case<'_>] = &[
        (&[("MCP-Protocol-Version", "1999-01-01")], &list, 400),
        (&[("Accept", "image/png")], &list, 406),
        (&[("Content-Type", "text/plain")], &list, 415),
        (&[("Mcp-Session-Id", "made-up")], &list, 404),
        (&[("Mcp-Session-Id", &elsewhere)], &list, 404),
        (&[("Warmline-Run", "no/name")], &list, 400),
        (&[], &batch, 400),
    ];
    for (headers, message, status) in cases {
        let mut response = client.post_with(headers, message).await;
        assert_eq!(response.status, *status, "{headers:?}");
        let body = response.json().await;
        assert!(body["error"]["code"].is_i64(), "{body}");
    }
    assert_eq!(world.server.ledger().entries().len(), before);
    // A version that was not agreed on, but is one, is taken; and `ping` is answered here.
    let older = [("MCP-Protocol-Version", "2025-06-18")];
    let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    let mut pong = client.post_with(&older, &ping).await;
    let found = pong.json().await;
    assert_eq!(found, json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
    assert_eq!(world.server.ledger().entries().len(), before);
    // The session is as it was.
    assert_eq!(client.count().await, 2);
    world.finish_with(&client).await;
}

/// P125: a greeting that carries a stale id is a greeting all the same.
#[tokio::test]
async fn a_greeting_with_a_stale_session_id_is_answered() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let ended = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    ended.delete().await;
    for stale in [&client.ticket, &ended.ticket, "made-up", "\u{7f}"] {
        let carried = [("Mcp-Session-Id", stale)];
        let hello = initialize(NEWEST, json!({}));
        let mut again = client.post_with(&carried, &hello).await;
        if stale == "\u{7f}" {
            // No header at all, so no request either.
            assert_eq!(again.status, 400);
            continue;
        }
        assert_eq!(again.status, 200, "{stale}");
        let ticket = again.header("mcp-session-id").unwrap().to_owned();
        assert_ne!(ticket, stale);
        assert_eq!(again.answer().await["result"]["protocolVersion"], NEWEST);
        let again = Legacy {
            ticket,
            ..client.clone()
        };
        assert_eq!(again.count().await, 1);
        again.delete().await;
    }
    assert_eq!(client.count().await, 1, "it is as it was");
    world.finish_with(&client).await;
}

/// A10, P48, P119: a client that never sends the id back works by the run it names.
#[tokio::test]
async fn a_client_without_the_session_id_works_by_its_run() {
    let world = World::new(Personality::legacy()).await;
    let mut client = Legacy::greet(&world, "/runs/r1/servers/ledger/mcp", NEWEST, json!({})).await;
    client.ticket = String::new();
    for expected in 1..=3 {
        assert_eq!(client.count().await, expected);
    }
    let mut by_header = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    by_header.more = vec![("Warmline-Run".to_owned(), "r2".to_owned())];
    for expected in 1..=2 {
        assert_eq!(by_header.count().await, expected);
    }
    by_header.ticket = String::new();
    assert_eq!(by_header.count().await, 3);
    world.finish().await;
}

/// A run is named to the gateway: no server hears its name, and everything else stays.
#[tokio::test]
async fn the_name_of_a_run_goes_no_further() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let meta = json!({ "dev.warmline/run": "trip", "x": 1 });
    let mut asked = call(1, "counter", json!({}));
    asked["params"]["_meta"] = meta.clone();
    for expected in 1..=2 {
        let answer = client.post(&asked).await.answer().await;
        assert_eq!(answer["result"]["structuredContent"]["count"], expected);
    }
    let told = json!({
        "jsonrpc": "2.0", "method": "notifications/made/up", "params": { "_meta": meta },
    });
    assert_eq!(client.post(&told).await.status, 202);
    let entries = world.server.ledger().entries();
    let heard = |entry: &&LedgerEntry| {
        entry.tool.as_deref() == Some("counter") || entry.method == "notifications/made/up"
    };
    let heard: Vec<_> = entries.iter().filter(heard).collect();
    assert!(heard.len() >= 3, "{heard:?}");
    for entry in heard {
        assert_eq!(entry.meta["x"], 1, "{entry:?}");
        assert!(entry.meta.get("dev.warmline/run").is_none(), "{entry:?}");
    }
    world.finish_with(&client).await;
}

/// mcp-spec T23, mcp-spec R9: a client of the one version that knows batches gets its answers
/// together. A notice that is not taken keeps no call from its answer.
#[tokio::test]
async fn a_batch_is_split_and_answered_as_one() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, "2025-03-26", json!({})).await;
    let notice = json!({ "jsonrpc": "2.0", "method": "notifications/made/up" });
    let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
    let pings = |many: u64| {
        let ping = |id| json!({ "jsonrpc": "2.0", "id": id, "method": "ping" });
        Value::from_iter((0..many).map(ping))
    };
    let batch = json!([
        call(1, "counter", json!({})),
        notice,
        call(2, "counter", json!({})),
        ping
    ]);
    let mut response = client.post(&batch).await;
    assert_eq!(response.status, 200);
    let answers = response.json().await;
    let answers = answers.as_array().unwrap();
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].clone()).collect();
    assert_eq!(ids, [json!(1), json!(2), json!("p")]);
    let nowhere = json!({
        "jsonrpc": "2.0", "method": "notifications/made/up",
        "params": { "_meta": { "dev.warmline/run": "no name" } },
    });
    let mut modern = call(3, "counter", json!({}));
    modern["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let cases = [
        (json!([notice]), 202),
        (json!([nowhere]), 400),
        (json!([ping, nowhere]), 200),
        (json!([ping, modern]), 400),
        (json!([]), 400),
        (json!([1]), 400),
        (json!([initialize("2025-03-26", json!({}))]), 400),
        (json!([ping, ping]), 400),
        (pings(50), 200),
        (pings(51), 400),
    ];
    for (batch, status) in cases {
        assert_eq!(client.post(&batch).await.status, status, "{batch}");
    }
    assert_eq!(client.count().await, 3);
    world.finish_with(&client).await;
}

/// mcp-spec 2.1.2, 3.4.6: what is no JSON is told so, however it begins, in every version; an id is
/// a text or an integer.
#[tokio::test]
async fn a_message_is_read_before_it_is_judged() {
    let world = World::new(Personality::legacy()).await;
    for version in ["2025-03-26", NEWEST] {
        let client = Legacy::greet(&world, PATH, version, json!({})).await;
        let session = ("Mcp-Session-Id", &*client.ticket);
        let with_id = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        for (body, code) in [
            ("[".to_owned(), -32700),
            ("[not JSON".to_owned(), -32700),
            ("[] []".to_owned(), -32700),
            (" [1,]".to_owned(), -32700),
            ("[]".to_owned(), -32600),
            ("[1]".to_owned(), -32600),
            (with_id("1.5"), -32600),
            (with_id("1e400"), -32600),
            (with_id("-1E3"), -32600),
            (with_id("true"), -32600),
        ] {
            let headers = [session, ("Content-Type", "application/json")];
            let address = world.gateway.address();
            let mut response = request(address, "POST", PATH, &headers, &body).await;
            assert_eq!(response.status, 400, "{version} {body}");
            let answer = response.json().await;
            assert_eq!(answer["error"]["code"], code, "{version} {body}: {answer}");
            assert_eq!(answer["id"], Value::Null, "{version} {body}");
        }
        client.delete().await;
    }
    world.finish().await;
}

/// P80, P135: a cancel of one call of a batch reaches the server for that call alone; it has no
/// answer, and a batch of which nothing is left has none at all.
#[tokio::test]
async fn a_cancel_inside_a_batch_concerns_its_call_alone() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, "2025-03-26", json!({})).await;
    let ledger = world.server.ledger();
    let slow = |id: i64| call(id, "slow", json!({ "ms": 60_000 }));
    let cancel = |id: i64| {
        json!({
            "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id },
        })
    };
    let batch = json!([slow(1), call(2, "counter", json!({}))]);
    let (mut response, ()) = tokio::join!(client.post(&batch), async {
        until("it is called", || ledger.started_executions("slow") == 1).await;
        assert_eq!(client.post(&cancel(1)).await.status, 202);
    });
    let answers = response.json().await;
    let ids: Vec<_> = answers.as_array().unwrap().iter().collect();
    assert_eq!(ids.len(), 1, "{answers}");
    assert_eq!(answers[0]["id"], 2);
    let told = || ledger.messages_received("notifications/cancelled");
    until("the server is told", || told() == 1).await;

    let batch = json!([slow(3), slow(4)]);
    let (response, ()) = tokio::join!(client.post(&batch), async {
        until("both are called", || ledger.started_executions("slow") == 3).await;
        let both = json!([cancel(3), cancel(4)]);
        assert_eq!(client.post(&both).await.status, 202);
    });
    assert_eq!(response.status, 202);
    until("the server is told", || told() == 3).await;
    // Whatever was given up before it was sent is never sent.
    assert_eq!(client.post(&json!([slow(5), cancel(5)])).await.status, 202);
    assert_eq!(ledger.started_executions("slow"), 3);
    world.finish_with(&client).await;
}

/// P121: a client that neither keeps its session nor names a run leaves nothing behind.
#[tokio::test]
async fn calls_without_a_session_leave_nothing_behind() {
    let world = World::new(Personality::legacy()).await;
    let mut client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    client.delete().await;
    client.ticket = String::new();
    for _ in 0..5 {
        assert_eq!(client.count().await, 1);
    }
    let control = world.control();
    until("no session is left", || control.session_ids().is_empty()).await;
    assert!(world.warm.snapshot().runs.is_empty());
    world.finish().await;
}

/// P79, P128: progress comes under the client's own token, and log lines with it, before the answer.
#[tokio::test]
async fn news_of_a_call_come_on_its_own_stream() {
    let world = World::new(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    let mut asked = call(1, "progress", json!({ "steps": 3 }));
    asked["params"]["_meta"] = json!({ "progressToken": "mine" });
    let mut stream = client.post(&asked).await;
    for stream in [&stream, &client.get(None).await] {
        assert_eq!(stream.header("content-type"), Some("text/event-stream"));
        assert_eq!(stream.header("x-accel-buffering"), Some("no"));
        let caching = stream.header("cache-control").unwrap();
        assert!(caching.contains("no-cache"), "{caching}");
    }
    for step in 1..=3 {
        let news = stream.message().await.unwrap();
        assert_eq!(news["method"], "notifications/progress");
        assert_eq!(news["params"]["progressToken"], "mine");
        assert_eq!(news["params"]["progress"], step);
    }
    assert_eq!(stream.message().await.unwrap()["id"], 1);
    assert_eq!(stream.message().await, None);
    world.finish_with(&client).await;
}

/// What a client session did is gone with its `DELETE`, and nothing of it is left at the server.
#[tokio::test]
async fn a_client_that_is_done_leaves_nothing_behind() {
    let world = World::new(Personality::legacy()).await;
    let through = world.client(PATH);
    let run = through.begin_run();
    assert_eq!(count(&run.server("through").unwrap()).await, 1);
    run.end().await;
    through.close().await;
    let is_so = || world.server.counts().open_sessions == 0;
    until("the server holds no session", is_so).await;
    assert_eq!(world.warm.server_names(), [LEDGER]);
    world.finish().await;
}
