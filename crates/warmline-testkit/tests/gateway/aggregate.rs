//! All servers in one, for a legacy client.

use crate::prelude::*;

/// A place where nobody listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}/mcp", listener.local_addr().unwrap())
}

async fn counted(client: &Legacy, tool: &str) -> i64 {
    let answer = client.call(tool, json!({})).await;
    let count = &answer["result"]["structuredContent"]["count"];
    count.as_i64().unwrap_or_else(|| panic!("{answer}"))
}

/// P111: two servers with the same tools stand in one list, under names that say whose they are,
/// in the same order each time, and each call reaches its own server in the session of its run.
#[tokio::test]
async fn two_servers_with_the_same_tools_are_told_apart_by_name() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("beta", legacy()), ("alpha", legacy().page_size(3))]).await;
    let client = world.greet("/mcp", json!({})).await;
    // Nothing was opened for the greeting.
    for name in ["alpha", "beta"] {
        let received = world.server(name).ledger().messages_received("initialize");
        assert_eq!(received, 0);
    }
    let tools = list(&client, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    let (first, second) = names.split_at(names.len() / 2);
    let own = |names: &[&str], server: &str| -> Vec<String> {
        let own = names.iter().map(|name| name.strip_prefix(server).unwrap());
        own.map(str::to_owned).collect()
    };
    assert_eq!(own(first, "alpha__"), own(second, "beta__"));
    assert!(tools.get("nextCursor").is_none() && tools.get("_meta").is_none());
    assert_eq!(list(&client, "tools/list", json!({})).await, tools);

    for expected in 1..=2 {
        assert_eq!(counted(&client, "alpha__counter").await, expected);
    }
    assert_eq!(counted(&client, "beta__counter").await, 1);
    for (name, times) in [("alpha", 2), ("beta", 1)] {
        let ledger = world.server(name).ledger();
        assert_eq!(ledger.executions("counter"), times);
        assert_eq!(ledger.messages_received("initialize"), 1, "{name}");
    }
    // Another client is another run.
    let other = world.greet("/mcp", json!({})).await;
    assert_eq!(counted(&other, "alpha__counter").await, 1);
    // What a client made ends with it, at every server.
    client.delete().await;
    other.delete().await;
    for name in ["alpha", "beta"] {
        assert_eq!(world.server(name).counts().open_sessions, 0, "{name}");
    }
    world.finish().await;
}

/// A run in the path is shared by all clients of it, at the place of all servers and at that of
/// one; clients that never send their id back are served as well.
#[tokio::test]
async fn a_run_in_the_path_is_the_same_at_every_place() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let mut client = world.greet("/runs/r1/mcp", json!({})).await;
    assert_eq!(counted(&client, "alpha__counter").await, 1);
    let alone = world.greet("/runs/r1/servers/alpha/mcp", json!({})).await;
    assert_eq!(alone.count().await, 2);
    client.ticket = String::new();
    assert_eq!(counted(&client, "alpha__counter").await, 3);
    // A ticket is good at its own place alone.
    let strange = Legacy {
        ticket: alone.ticket.clone(),
        ..client
    };
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(strange.post(&message).await.status, 404);
    world.finish().await;
}

/// P101: a server that is dead is left out of the list and named, and the others are there.
#[tokio::test]
async fn a_dead_server_is_left_out_and_named() {
    let dead = Server::http("dead", nobody().await);
    let world = Merged::beside(
        vec![("alpha", Personality::legacy())],
        vec![dead],
        |options| options,
    )
    .await;
    let client = world.greet("/mcp", json!({})).await;
    let tools = list(&client, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("alpha__")));
    let left_out = &tools["_meta"]["dev.warmline/leftOut"];
    assert_eq!(left_out[0]["server"], "dead", "{left_out}");
    assert_eq!(left_out[0]["code"], "cannot-reach");
    let answer = client.call("dead__anything", json!({})).await;
    assert_eq!(answer["error"]["code"], 7501, "{answer}");
    world.finish_with(&client).await;
}

/// A server that cannot be started is one line for one list of all servers, however often it was
/// tried for it, and no page of folders.
#[tokio::test]
async fn a_program_that_does_not_start_is_one_line() {
    let (book, _guard) = Logbook::open();
    let missing = Server::stdio("missing", ["no-such-program-here"]);
    let ends = Server::stdio("ends", ["/bin/sh", "-c", "echo in vain >&2; exit 3"]);
    let personalities = vec![("alpha", Personality::legacy())];
    let world = Merged::beside(personalities, vec![missing, ends], |options| options).await;
    let client = world.greet("/mcp", json!({})).await;
    let tools = list(&client, "tools/list", json!({})).await;
    let left_out = &tools["_meta"]["dev.warmline/leftOut"];
    assert_eq!(left_out.as_array().unwrap().len(), 2, "{left_out}");
    world.finish_with(&client).await;
    let lines = book.lines();
    let warned: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("WARN"))
        .collect();
    for (server, says) in [("missing", "no-such-program-here"), ("ends", "in vain")] {
        let of = |message: &str| {
            let about = format!("server=\"{server}\"");
            let told = warned.iter().filter(|line| line.contains(&about));
            told.filter(|line| line.contains(message) && line.contains(says))
                .count()
        };
        let found = (of("opening failed"), of("child lost"));
        assert_eq!(found, (1, 0), "{lines:#?}");
    }
    let of_folders = |line: &&&String| line.contains("searched PATH");
    assert_eq!(warned.iter().find(of_folders), None);
}

/// mcp-spec 2.6.1: what is asked for and is nobody's has its code, and reaches no server.
#[tokio::test]
async fn what_is_nobodys_is_refused_here() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    let named = |name: &str| json!({ "name": name, "arguments": {} });
    let cases = [
        ("tools/call", named("counter"), -32602),
        ("tools/call", named("gone__counter"), -32602),
        ("tools/call", json!({}), -32602),
        ("tools/list", json!({ "cursor": "from-3" }), -32602),
        ("tools/list", json!({ "cursor": 3 }), -32602),
        ("tasks/list", json!({}), -32601),
        ("made/up", json!({}), -32601),
    ];
    for (method, params, code) in cases {
        let answer = ask(&client, method, params.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
    }
    assert_eq!(ask(&client, "ping", json!({})).await["result"], json!({}));
    assert_eq!(world.server("alpha").ledger().entries().len(), 0);
    world.finish_with(&client).await;
}

/// The place says what it is in the version of its client, and always the same.
#[tokio::test]
async fn the_greeting_is_ours_and_opens_nothing() {
    let world = Merged::new(vec![("alpha", Personality::legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    for (offered, agreed) in [
        (NEWEST, NEWEST),
        ("2024-11-05", "2024-11-05"),
        ("1999-01-01", NEWEST),
    ] {
        let mut response = client.post(&initialize(offered, json!({}))).await;
        assert!(response.header("mcp-session-id").is_some());
        let said: Value = response.answer().await["result"].clone();
        assert_eq!(said["protocolVersion"], agreed);
        assert_eq!(said["serverInfo"]["name"], "warmline");
        assert_eq!(said["capabilities"]["tools"]["listChanged"], true);
        assert!(said["instructions"].as_str().unwrap().contains("alpha"));
    }
    assert_eq!(world.server("alpha").ledger().entries().len(), 0);
    world.finish().await;
}

/// Two servers whose resources have schemes of their own.
async fn of_two_schemes() -> Merged {
    let of = |scheme| Personality::legacy().uri_scheme(scheme);
    Merged::new(vec![("alpha", of("one")), ("beta", of("two"))]).await
}

/// Resources keep their URIs and are read where they are; what no list names is looked for, and
/// what nobody has is not found.
#[tokio::test]
async fn a_resource_is_read_from_the_server_that_has_it() {
    let world = of_two_schemes().await;
    let client = world.greet("/mcp", json!({})).await;
    let resources = list(&client, "resources/list", json!({})).await;
    let uris = each(&resources, "resources", "uri");
    assert_eq!(uris.first(), Some(&"one://page/1"));
    assert_eq!(uris.last(), Some(&"two://page/3"));
    let templates = list(&client, "resources/templates/list", json!({})).await;
    let templates = each(&templates, "resourceTemplates", "uriTemplate");
    assert_eq!(templates, ["one://page/{number}", "two://page/{number}"]);

    let read = |uri: &str| json!({ "uri": uri });
    for uri in ["two://page/2", "two://page/77", "two://else"] {
        let result = list(&client, "resources/read", read(uri)).await;
        assert_eq!(result["contents"][0]["uri"], uri);
    }
    assert_eq!(world.asked("resources/read"), (0, 3));
    // The lists were read once.
    assert_eq!(world.asked("resources/list"), (1, 1));
    let answer = ask(&client, "resources/read", read("gone://x")).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    assert_eq!(answer["error"]["data"]["uri"], "gone://x");
    let answer = ask(&client, "resources/subscribe", read("gone://x")).await;
    assert_eq!(answer["error"]["code"], -32002, "{answer}");
    ask(&client, "resources/subscribe", read("one://page/1")).await;
    assert_eq!(world.asked("resources/subscribe"), (1, 0));
    ask(&client, "resources/unsubscribe", read("one://page/1")).await;
    assert_eq!(world.asked("resources/unsubscribe"), (1, 0));
    world.finish_with(&client).await;
}

/// Where two servers list the same URI, it stands in the list once, and is read from the first.
#[tokio::test]
async fn a_uri_of_two_servers_is_the_first_ones() {
    let legacy = Personality::legacy;
    let world = Merged::new(vec![("beta", legacy()), ("alpha", legacy())]).await;
    let client = world.greet("/mcp", json!({})).await;
    let resources = list(&client, "resources/list", json!({})).await;
    let uris = each(&resources, "resources", "uri");
    let expected = ["ledger://page/1", "ledger://page/2", "ledger://page/3"];
    assert_eq!(uris, expected);
    list(
        &client,
        "resources/read",
        json!({ "uri": "ledger://page/1" }),
    )
    .await;
    assert_eq!(world.asked("resources/read"), (1, 0));
    world.finish_with(&client).await;
}

/// Prompts have names as tools have; completions are about the prompts and resources of one server.
#[tokio::test]
async fn prompts_and_completions_go_to_their_own_server() {
    let world = of_two_schemes().await;
    let client = world.greet("/mcp", json!({})).await;
    let prompts = list(&client, "prompts/list", json!({})).await;
    let names = each(&prompts, "prompts", "name");
    assert_eq!(
        names,
        ["alpha__greet", "alpha__plain", "beta__greet", "beta__plain"]
    );
    let wanted = json!({ "name": "beta__greet", "arguments": { "who": "Ada" } });
    let prompt = list(&client, "prompts/get", wanted).await;
    assert_eq!(prompt["messages"][0]["content"]["text"], "Greet Ada.");
    assert_eq!(world.asked("prompts/get"), (0, 1));
    let about = |about: Value| json!({ "ref": about, "argument": { "name": "who", "value": "A" } });
    for (of, expected) in [
        (
            json!({ "type": "ref/prompt", "name": "beta__greet" }),
            (0, 1),
        ),
        (
            json!({ "type": "ref/resource", "uri": "one://page/{number}" }),
            (1, 1),
        ),
    ] {
        list(&client, "completion/complete", about(of)).await;
        assert_eq!(world.asked("completion/complete"), expected);
    }
    let cases = [
        json!({ "type": "ref/prompt", "name": "gone__greet" }),
        json!({ "type": "ref/else" }),
        json!(7),
    ];
    for case in cases {
        let answer = ask(&client, "completion/complete", about(case.clone())).await;
        assert_eq!(answer["error"]["code"], -32602, "{case}: {answer}");
    }
    world.finish_with(&client).await;
}

/// A log level is said to every server, and what a client tells is told to those it has called.
#[tokio::test]
async fn what_concerns_all_is_said_to_all() {
    let world = of_two_schemes().await;
    let client = world.greet("/mcp", json!({ "roots": {} })).await;
    let answer = ask(&client, "logging/setLevel", json!({ "level": "info" })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    assert_eq!(world.asked("logging/setLevel"), (1, 1));
    let answer = ask(&client, "logging/setLevel", json!({ "level": "loud" })).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let changed = "notifications/roots/list_changed";
    let notice = json!({ "jsonrpc": "2.0", "method": changed });
    assert_eq!(client.post(&notice).await.status, 202);
    for name in ["alpha", "beta"] {
        let came = |entries: &[LedgerEntry]| entries.iter().any(|entry| entry.method == changed);
        let ledger = world.server(name).ledger();
        assert!(ledger.wait_until(Duration::from_secs(5), came).await);
    }
    world.finish_with(&client).await;
}

/// P111, P112: tools whose names no provider takes are listed under fine ones, and a call by
/// those reaches the tool by its own name, also from a client that never listed.
#[tokio::test]
async fn tools_with_odd_names_are_called_by_fine_ones() {
    let long = "x".repeat(120);
    let odd = Personality::legacy().extra_tools(&["files.read", "files/read", &long]);
    let world = Merged::new(vec![("alpha", odd)]).await;
    let client = world.greet("/mcp", json!({})).await;
    let tools = list(&client, "tools/list", json!({})).await;
    let names = each(&tools, "tools", "name");
    let is_fine = |name: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        name.len() <= 48 && name.bytes().all(plain)
    };
    assert!(names.iter().all(is_fine), "{names:?}");
    let (_, made) = names.split_at(names.len() - 3);
    let other = world.greet("/mcp", json!({})).await;
    for (name, own) in made.iter().zip(["files.read", "files/read", &long]) {
        for client in [&client, &other] {
            let answer = client.call(name, json!({})).await;
            let text = &answer["result"]["content"][0]["text"];
            assert_eq!(text, &format!("{own} ran"), "{answer}");
        }
    }
    client.delete().await;
    world.finish_with(&other).await;
}

/// P77, P79: questions, progress and the tool's own errors come from the one server that a call
/// went to.
#[tokio::test]
async fn what_comes_down_during_a_call_is_the_calls_own() {
    let world = of_two_schemes().await;
    let client = world.greet("/mcp", json!({ "roots": {} })).await;
    let mut stream = client.post(&call(7, "beta__ask_roots", json!({}))).await;
    let question = stream.message().await.unwrap();
    assert_eq!(question["method"], "roots/list");
    let roots = json!({ "roots": [{ "uri": "file:///a" }] });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": roots });
    assert_eq!(client.post(&answer).await.status, 202);
    let answers = stream.answer().await["result"]["structuredContent"]["answers"].clone();
    assert_eq!(answers[0], roots);
    let mut steps = call(8, "alpha__progress", json!({ "steps": 2 }));
    steps["params"]["_meta"] = json!({ "progressToken": "mine" });
    let mut stream = client.post(&steps).await;
    let told = stream.message().await.unwrap();
    assert_eq!(told["params"]["progressToken"], "mine", "{told}");
    stream.answer().await;
    let unknown = client.call("alpha__no_such_tool", json!({})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    world.finish_with(&client).await;
}

/// P101: a server that is required and dead lets no gateway start, and is named; one that answers
/// does, whatever others are dead.
#[tokio::test]
async fn a_required_server_that_is_dead_lets_no_gateway_start() {
    let required = |server: Server| server.with_policy(|policy| policy.required = true);
    let alive = LedgerServer::start(Personality::legacy()).unwrap();
    let start = async |servers: Vec<Server>| {
        let warm = Warmline::builder().servers(servers).build().unwrap();
        let options = local();
        (warm.clone(), Gateway::start(warm, options).await)
    };
    let here = || required(Server::http("here", alive.url()));
    let dead = nobody().await;
    let (warm, started) = start(vec![here(), required(Server::http("dead", &dead))]).await;
    let Err(StartError::RequiredServer(error)) = started else {
        panic!("it started");
    };
    assert_eq!(error.server(), Some("dead"));
    assert_eq!(error.code().as_str(), "cannot-reach");
    warm.close().await;
    let (warm, started) = start(vec![here(), Server::http("dead", &dead)]).await;
    let gateway = started.unwrap();
    let client = Legacy::greet_at(gateway.address(), "/mcp", NEWEST, json!({}), Vec::new()).await;
    assert_eq!(counted(&client, "here__counter").await, 1);
    client.delete().await;
    gateway.stop().await;
    warm.close().await;
}
