//! All servers in one, for a modern client.

use crate::prelude::*;

use super::raw_client::{Reply, Stream, Wire, call, request};
use crate::aggregate_resources::Audited;

const RUN: &str = "/runs/r1/mcp";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

async fn two() -> Merged {
    let of = |scheme| Personality::modern().uri_scheme(scheme);
    Merged::modern(vec![("beta", of("two")), ("alpha", of("one"))]).await
}

async fn send(world: &Merged, wire: Wire) -> Reply {
    wire.at("/mcp").send_to(world.gateway.address()).await
}

async fn result(world: &Merged, method: &str, params: Value) -> Value {
    let back = send(world, request(method, params)).await;
    assert_eq!(back.status, 200, "{back:?}");
    let result = back.json()["result"].clone();
    assert_eq!(result["resultType"], "complete", "{back:?}");
    result
}

/// P111: the lists of all servers are one list, with everything a modern result has to say, and
/// each request reaches its own server.
#[tokio::test]
async fn all_servers_are_one_in_the_modern_era_as_well() {
    let world = two().await;
    let response = result(&world, "server/discover", json!({})).await;
    assert_eq!(response["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(response["capabilities"]["tools"]["listChanged"], true);
    let found = world.asked("server/discover");
    assert_eq!(found, (0, 0), "nothing is opened for it");
    let tools = result(&world, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    assert!(names.contains(&"alpha__echo") && names.contains(&"beta__echo"));
    let found = (&tools["ttlMs"], &tools["cacheScope"]);
    assert_eq!(found, (&json!(0), &json!("private")));
    let info = &tools["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "warmline");

    let echo = send(&world, call("beta__echo", json!({ "name": "x" }))).await;
    assert_eq!(
        echo.json()["result"]["structuredContent"]["arguments"]["name"],
        "x"
    );
    let calls = |name| world.server(name).ledger().executions("echo");
    assert_eq!((calls("alpha"), calls("beta")), (0, 1));
    for uri in ["two://page/2", "two://else"] {
        let read = result(&world, "resources/read", json!({ "uri": uri })).await;
        assert_eq!(read["contents"][0]["uri"], uri);
    }
    assert_eq!(world.asked("resources/read"), (0, 2));
    result(&world, "prompts/get", json!({ "name": "alpha__plain" })).await;
    assert_eq!(world.asked("prompts/get"), (1, 0));
    let about = json!({ "type": "ref/prompt", "name": "beta__greet" });
    let wanted = json!({ "ref": about, "argument": { "name": "who", "value": "A" } });
    result(&world, "completion/complete", wanted).await;
    assert_eq!(world.asked("completion/complete"), (0, 1));
    world.finish().await;
}

/// mcp-spec 6.5.2: a list is no older than its server said that it is good, which is not at all.
#[tokio::test]
async fn a_list_is_as_fresh_as_its_server_says() {
    let world = two().await;
    let before = result(&world, "tools/list", json!({})).await;
    world.server("alpha").control().change_tools();
    let after = result(&world, "tools/list", json!({})).await;
    assert_ne!(
        each(&before, "tools", "name"),
        each(&after, "tools", "name")
    );
    assert_eq!(world.asked("tools/list"), (2, 2));
    world.finish().await;
}

/// What is asked for and is nobody's has its status and its code.
#[tokio::test]
async fn what_is_nobodys_is_refused_here() {
    let world = two().await;
    let rows = [
        (call("echo", json!({})), (200, -32602)),
        (call("gone__echo", json!({})), (200, -32602)),
        (
            request("resources/read", json!({ "uri": "gone://x" })),
            (200, -32602),
        ),
        (
            request("tools/list", json!({ "cursor": "x" })),
            (200, -32602),
        ),
        (
            request("completion/complete", json!({ "ref": 1 })),
            (200, -32602),
        ),
        (
            request("resources/subscribe", json!({ "uri": "one://page/1" })),
            (404, -32601),
        ),
        (request("made/up", json!({})), (404, -32601)),
    ];
    for (wire, expected) in rows {
        let back = send(&world, wire).await;
        assert_eq!(back.refusal(), expected, "{back:?}");
    }
    world.finish().await;
}

/// DESIGN 7: the place speaks this era once all its servers are known to, and until then answers
/// as a legacy server would.
#[tokio::test]
async fn the_place_speaks_this_era_once_all_its_servers_do() {
    let world = Merged::new(vec![
        ("alpha", Personality::modern()),
        ("beta", Personality::dual()),
    ])
    .await;
    let probes = || {
        [
            request("server/discover", json!({})),
            request("tools/list", json!({})),
            request("made/up", json!({})),
            call("gone__echo", json!({})),
        ]
    };
    for name in ["alpha", "beta"] {
        for probe in probes() {
            let back = send(&world, probe).await;
            assert_eq!(back.refusal(), (400, -32600), "{back:?}");
        }
        // Whoever visits a server finds out what it speaks.
        let there = format!("/servers/{name}/mcp");
        let visit = request("server/discover", json!({})).at(&there);
        let back = visit.send_to(world.gateway.address()).await;
        assert_eq!(back.status, 200, "{back:?}");
    }
    result(&world, "server/discover", json!({})).await;
    let tools = result(&world, "tools/list", json!({})).await;
    assert!(each(&tools, "tools", "name").contains(&"beta__echo"));
    world.finish().await;
}

/// A client that falls back finds no server of its era, is told so, and the next one that asks
/// first is answered in this era: by then the servers are known.
#[tokio::test]
async fn modern_servers_are_known_once_somebody_looked_for_them() {
    let world = Merged::new(vec![("alpha", Personality::modern())]).await;
    let back = send(&world, request("server/discover", json!({}))).await;
    assert_eq!(back.refusal(), (400, -32600), "{back:?}");
    let client = world.greet("/mcp", json!({})).await;
    let tools = list(&client, "tools/list", json!({})).await;
    assert_eq!(tools["tools"], json!([]));
    let left_out = &tools["_meta"]["dev.warmline/leftOut"];
    assert_eq!(left_out[0]["code"], "era-unknown", "{left_out}");
    client.delete().await;
    let tools = result(&world, "tools/list", json!({})).await;
    assert!(each(&tools, "tools", "name").contains(&"alpha__echo"));
    world.finish().await;
}

/// mcp-spec 6.3: what a server asks comes back from the server of the call, and the answer goes
/// there.
#[tokio::test]
async fn a_question_comes_from_the_server_of_the_call() {
    let world = two().await;
    let ask = || {
        call("beta__ask_form", json!({})).changed(|body| {
            let name = "io.modelcontextprotocol/clientCapabilities";
            body["params"]["_meta"][name] = json!({ "elicitation": {} });
        })
    };
    let asked = send(&world, ask()).await.json()["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let keys = asked["inputRequests"].as_object().unwrap().keys();
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    let answers: Value = keys.map(|key| (key.clone(), answer.clone())).collect();
    let next = ask().changed(|body| {
        body["params"]["requestState"] = asked["requestState"].clone();
        body["params"]["inputResponses"] = answers;
    });
    let elsewhere = next
        .clone()
        .changed(|body| body["params"]["name"] = json!("alpha__ask_form"));
    let elsewhere = elsewhere.set("Mcp-Name", "alpha__ask_form");
    assert_eq!(send(&world, elsewhere).await.refusal(), (400, -32602));
    let done = send(&world, next).await.json()["result"].clone();
    assert_eq!(done["resultType"], "complete", "{done}");
    world.finish().await;
}

async fn next(stream: &mut Stream) -> Value {
    let message = stream.message().await.expect("the stream ended");
    let told = message.get("params").or_else(|| message.get("result"));
    assert_eq!(told.unwrap()["_meta"][SUBSCRIPTION], "wire-1", "{message}");
    message
}

async fn heard(stream: &mut Stream, method: &str) -> Value {
    loop {
        let message = next(stream).await;
        if message["method"] == method {
            return message;
        }
    }
}

/// P82, P83, P104: one listen hears what changes at every server, and that there are others than
/// before; with the client all of them end.
#[tokio::test]
async fn one_listen_hears_all_servers() {
    let world = two().await;
    let wanted = json!({
        "toolsListChanged": true, "resourceSubscriptions": ["two://page/1"],
    });
    let listen = request("subscriptions/listen", json!({ "notifications": wanted }));
    // A run, in which lists are remembered.
    let mut stream = listen.at(RUN).begin_at(world.gateway.address()).await;
    let tools = || async {
        let wire = request("tools/list", json!({})).at(RUN);
        let back = wire.send_to(world.gateway.address()).await;
        each(&back.json()["result"], "tools", "name").len()
    };
    let first = next(&mut stream).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], wanted);
    let listens = |name: &str| world.server(name).control().open_listens();
    let is_so = || listens("alpha") + listens("beta") == 2;
    until("both are listened to", is_so).await;
    let before = tools().await;
    for (number, name) in ["alpha", "beta"].into_iter().enumerate() {
        world.server(name).control().change_tools();
        heard(&mut stream, "notifications/tools/list_changed").await;
        assert_eq!(tools().await, before + number + 1);
    }
    world
        .server("beta")
        .control()
        .update_resource("two://page/1");
    let told = heard(&mut stream, "notifications/resources/updated").await;
    assert_eq!(told["params"]["uri"], "two://page/1");

    let more = LedgerServer::start(Personality::modern()).unwrap();
    let declared = Server::http("more", more.url()).era(Era::Modern);
    world.add_server(declared);
    heard(&mut stream, "notifications/tools/list_changed").await;
    let is_so = || more.control().open_listens() == 1;
    until("the new one is listened to", is_so).await;
    drop(stream);
    let all = || listens("alpha") + listens("beta") + more.control().open_listens();
    until("nobody is listened to", || all() == 0).await;
    world.finish().await;
}

/// mcp-spec 6.6.2: what is acknowledged is what the servers agreed to, each for what it was asked:
/// not what no server tells of, nor a resource that nobody has.
#[tokio::test]
async fn what_no_server_agreed_to_is_not_acknowledged() {
    let wanted = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourceSubscriptions": ["one://page/1", "two://page/1", "gone://9"],
    });
    let tools: &[&str] = &["toolsListChanged"];
    let resources: &[&str] = &["resourceSubscriptions"];
    let cases = [
        (tools, tools, json!({ "toolsListChanged": true })),
        (
            tools,
            resources,
            json!({ "toolsListChanged": true, "resourceSubscriptions": ["two://page/1"] }),
        ),
        (&[], &[], json!({})),
    ];
    for (first, second, expected) in cases {
        let of = |scheme: &str, kinds| {
            Personality::modern()
                .uri_scheme(scheme)
                .notification_kinds(kinds)
        };
        let servers = vec![("alpha", of("one", first)), ("beta", of("two", second))];
        let world = Merged::modern(servers).await;
        let listen = request("subscriptions/listen", json!({ "notifications": wanted }));
        let mut stream = listen.at(RUN).begin_at(world.gateway.address()).await;
        let first = next(&mut stream).await;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["notifications"], expected);
        drop(stream);
        world.finish().await;
    }
}

/// mcp-spec 6.6.2: a server that does not say in time what it agrees to keeps nobody waiting, and
/// its resources are not promised. That its tools will be there is told when they are.
#[tokio::test]
async fn a_server_that_says_late_what_it_agrees_to_is_not_waited_for() {
    let of = |scheme| Personality::modern().uri_scheme(scheme);
    let servers = vec![("alpha", of("one")), ("beta", of("two"))];
    let world = Merged::modern_with(servers, |options| GatewayOptions {
        list_share: Duration::from_millis(300),
        ..options
    })
    .await;
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    let silent = FaultRule::new(silence)
        .on_method("subscriptions/listen")
        .always();
    world.server("beta").inject(silent);
    let uris = ["one://page/1", "two://page/1"];
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": uris });
    let listen = request("subscriptions/listen", json!({ "notifications": wanted }));
    let mut stream = listen.at(RUN).begin_at(world.gateway.address()).await;
    let first = next(&mut stream).await;
    let expected = json!({ "toolsListChanged": true, "resourceSubscriptions": ["one://page/1"] });
    assert_eq!(first["params"]["notifications"], expected);
    let alpha = world.server("alpha").control();
    alpha.update_resource("one://page/1");
    heard(&mut stream, "notifications/resources/updated").await;
    drop(stream);
    world.finish().await;
}

/// mcp-spec 8.7.1: what no list names is read from who has it, of those that list others of its
/// scheme; nobody else hears of it. Each of them has its line in the audit, also where it is read
/// for a listen.
#[tokio::test]
async fn a_resource_of_a_scheme_that_several_list_is_read_from_who_has_it() {
    let audited = Audited::new();
    let of = |scheme| Personality::modern().uri_scheme(scheme);
    let servers = vec![
        ("alpha", of("one")),
        ("beta", of("one")),
        ("delta", of("two")),
    ];
    let world = Merged::modern_with(servers, |options| audited.options(options)).await;
    let none =
        r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"Resource not found"}}"#;
    let none = Fault::Reply(CannedReply::new(200, none).json());
    let reads = |fault| FaultRule::new(fault).on_method("resources/read").always();
    world.server("alpha").inject(reads(none));
    let made = json!({
        "contents": [{ "uri": "one://made", "text": "beta's" }],
        "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
    });
    world.server("beta").inject(reads(Fault::Result(made)));
    let read = result(&world, "resources/read", json!({ "uri": "one://made" })).await;
    assert_eq!(read["contents"][0]["text"], "beta's");
    assert_eq!(world.asked("resources/read"), (1, 1));
    // What is listed is asked for where it is listed, and nowhere else.
    let listed = request("resources/read", json!({ "uri": "one://page/1" }));
    let back = send(&world, listed).await;
    assert_eq!(back.json()["error"]["code"], -32602, "{back:?}");
    assert_eq!(world.asked("resources/read"), (2, 1));
    // Whoever wants to hear of it hears it from there.
    let wanted = json!({ "resourceSubscriptions": ["one://made"] });
    let listen = request("subscriptions/listen", json!({ "notifications": wanted }));
    let mut stream = listen.at(RUN).begin_at(world.gateway.address()).await;
    let first = next(&mut stream).await;
    assert_eq!(first["params"]["notifications"], wanted);
    world.server("beta").control().update_resource("one://made");
    heard(&mut stream, "notifications/resources/updated").await;
    drop(stream);
    let others = world
        .server("delta")
        .ledger()
        .messages_received("resources/read");
    assert_eq!(others, 0);
    world.finish().await;
    let read = |name: &str| format!("resources/read {name} answered");
    let each = ["alpha", "alpha", "alpha", "beta", "beta"];
    assert_eq!(audited.lines(), each.map(read));
}
