//! Modern requests in front of a modern server: what goes up, and what comes down.

use crate::prelude::*;

use super::raw_client::{Reply, Wire, call, request};

const LIMIT: Duration = Duration::from_secs(10);

fn with_meta(wire: Wire, name: &str, value: Value) -> Wire {
    wire.changed(|body| body["params"]["_meta"][name] = value)
}

/// A call that may be asked to fill in a form.
fn asking(arguments: Value) -> Wire {
    let name = "io.modelcontextprotocol/clientCapabilities";
    with_meta(
        call("ask_form", arguments),
        name,
        json!({ "elicitation": {} }),
    )
}

/// The next round of a call that was asked something.
fn answering(arguments: Value, asked: &Value) -> Wire {
    let state = asked["requestState"].clone();
    let keys = asked["inputRequests"].as_object().unwrap().keys();
    let answer = json!({ "action": "accept", "content": { "name": "Ada" } });
    let answers: Value = keys.map(|key| (key.clone(), answer.clone())).collect();
    asking(arguments).changed(|body| {
        body["params"]["requestState"] = state;
        body["params"]["inputResponses"] = answers;
    })
}

/// One letter of its state is another.
fn with_forged_state(wire: Wire) -> Wire {
    wire.changed(|body| {
        let state = body["params"]["requestState"].as_str().unwrap();
        let mut forged = state.to_owned().into_bytes();
        let middle = forged.len() / 2;
        forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        body["params"]["requestState"] = json!(forged);
    })
}

fn result(back: &Reply) -> Value {
    assert_eq!(back.status, 200, "{back:?}");
    back.json()["result"].clone()
}

/// mcp-spec 6.3: questions come back as the result, with a state that is ours; the server gets its
/// own back byte for byte, round after round.
#[tokio::test]
async fn a_question_goes_to_the_client_and_its_state_back_to_the_server() {
    let world = World::new(Personality::modern()).await;
    let arguments = json!({ "rounds": 2 });
    let mut asked = result(&asking(arguments.clone()).send(&world).await);
    for round in 1..=2 {
        assert_eq!(asked["resultType"], "input_required");
        let key = format!("question-{round}");
        assert!(asked["inputRequests"][&key].is_object(), "{asked}");
        let state = asked["requestState"].as_str().unwrap();
        assert!(state.bytes().all(|byte| byte.is_ascii_graphic()), "{state}");
        asked = result(&answering(arguments.clone(), &asked).send(&world).await);
    }
    assert_eq!(asked["resultType"], "complete");
    let answers = asked["structuredContent"]["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 2);
    world.finish().await;
}

/// mcp-spec 6.3.4, 6.3.6: a state of somebody else, of another server, run, tool or place, or with a
/// letter changed is no state, and the server hears nothing of it.
#[tokio::test]
async fn a_state_is_good_for_its_caller_alone() {
    let mut world = World::new(Personality::modern()).await;
    let vault = world.warm.vault();
    let token = |who: &str| BearerToken::from_text(vault, who, &format!("token of {who}"));
    let options = GatewayOptions {
        auth: Auth::tokens(vec![token("alice"), token("bob")]),
        ..local()
    };
    let other = Server::http("other", world.server.url());
    world.add_server(other);
    world.gateway = Gateway::start(world.warm.clone(), options).await.unwrap();
    let by = |who: &str, wire: Wire| wire.with("Authorization", &format!("Bearer token of {who}"));
    let asked = result(&by("alice", asking(json!({}))).send(&world).await);
    let next = || answering(json!({}), &asked);
    let forged = with_forged_state(next());
    let named = |tool: &str| {
        let wire = next().changed(|body| body["params"]["name"] = json!(tool));
        wire.set("Mcp-Name", tool)
    };
    let made_up = next().changed(|body| body["params"]["requestState"] = json!("état"));
    let before = world.received("tools/call");
    let rows = [
        ("somebody else", by("bob", next())),
        (
            "another server",
            by("alice", next().at("/servers/other/mcp")),
        ),
        (
            "a run in the path",
            by("alice", next().at("/runs/r1/servers/ledger/mcp")),
        ),
        (
            "a run in a header",
            by("alice", next().with("Warmline-Run", "r1")),
        ),
        ("another tool", by("alice", named("echo"))),
        (
            "at the place of all servers",
            by("alice", named("ledger__ask_form").at("/mcp")),
        ),
        ("forged", by("alice", forged)),
        ("made up", by("alice", made_up)),
    ];
    for (what, wire) in rows {
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), (400, -32602), "{what}: {back:?}");
    }
    assert_eq!(world.received("tools/call"), before);
    let done = result(&by("alice", next()).send(&world).await);
    assert_eq!(done["resultType"], "complete");
    world.finish().await;
}

/// mcp-spec 3.4.10, 3.4.11, 8.6: headers of arguments pass as they are while the tool is not known;
/// then they are checked here, and made anew for the server.
#[tokio::test]
async fn headers_of_arguments_are_checked_once_the_tool_is_known() {
    let world = World::new(Personality::modern()).await;
    let arguments = json!({ "region": "köln", "level": 42 });
    let coded = "=?base64?a8O2bG4=?=";
    let bare = || call("routed", arguments.clone());
    let right = || {
        bare()
            .with("Mcp-Param-Region", coded)
            .with("Mcp-Param-Level", "42")
    };
    let refused = (400, -32020);
    let passes = right().send(&world).await;
    assert_eq!(passes.refusal(), (200, 0), "{passes:?}");
    // The server itself says no, and its word passes.
    let word = bare().send(&world).await;
    assert_eq!(word.refusal(), refused, "{word:?}");
    world.control().clear_violations();
    assert_eq!(world.received("tools/list"), 0);

    let listed = request("tools/list", json!({})).send(&world).await;
    assert_eq!(listed.status, 200);
    let before = world.received("tools/call");
    let rows = [
        ("missing", bare(), refused),
        ("one missing", bare().with("Mcp-Param-Level", "42"), refused),
        ("another", right().set("Mcp-Param-Level", "43"), refused),
        (
            "badly coded",
            right().set("Mcp-Param-Region", "=?base64?a8O2bG4?=x"),
            refused,
        ),
        ("twice", right().with("Mcp-Param-Level", "42"), refused),
        (
            "of an argument that is not there",
            right().changed(|body| {
                let arguments = &mut body["params"]["arguments"];
                arguments.as_object_mut().unwrap().remove("level");
            }),
            refused,
        ),
        ("right", right(), (200, 0)),
        (
            "the same number",
            right().set("Mcp-Param-Level", "42.0"),
            (200, 0),
        ),
        (
            "one that nobody asked for",
            right().with("Mcp-Param-Else", "x"),
            (200, 0),
        ),
    ];
    for (what, wire, expected) in rows {
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), expected, "{what}: {back:?}");
    }
    assert_eq!(world.received("tools/call"), before + 3);
    world.finish().await;
}

/// mcp-spec 3.4.11: an argument that no header can carry is a mismatch like others: nothing reaches the
/// server, nothing of it is doubted, and nothing is asked anew.
#[tokio::test]
async fn an_argument_that_no_header_can_carry_is_a_mismatch() {
    let world = World::new(Personality::modern()).await;
    let listed = request("tools/list", json!({})).send(&world).await;
    assert_eq!(listed.status, 200);
    let received = || {
        let ledger = world.server.ledger();
        ["tools/call", "server/discover"].map(|method| ledger.messages_received(method))
    };
    let [calls, asked] = received();
    for level in [
        json!([42]),
        json!({ "a": 1 }),
        json!(9_007_199_254_740_993_u64),
    ] {
        let wire = call("routed", json!({ "level": level }));
        let back = wire.with("Mcp-Param-Level", "42").send(&world).await;
        assert_eq!(back.refusal(), (400, -32020), "{level}: {back:?}");
    }
    assert_eq!(received(), [calls, asked]);
    let right = call("routed", json!({ "level": 42 })).with("Mcp-Param-Level", "42");
    assert_eq!(right.send(&world).await.refusal(), (200, 0));
    assert_eq!(received(), [calls + 1, asked]);
    world.finish().await;
}

/// The same in front of a program, which never sees a header: here nobody else would tell.
#[tokio::test]
async fn headers_of_arguments_are_checked_in_front_of_a_program_too() {
    let world = World::new(Personality::modern()).await;
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let child = [ledger, "--stdio", "--personality", "modern"];
    world.add_server(Server::stdio("child", child));
    let at = "/runs/r/servers/child/mcp";
    let bare = || call("routed", json!({ "level": 42 })).at(at);
    let steps = [
        ("not known yet", bare(), (200, 0)),
        (
            "the list",
            request("tools/list", json!({})).at(at),
            (200, 0),
        ),
        ("missing", bare(), (400, -32020)),
        (
            "another",
            bare().with("Mcp-Param-Level", "41"),
            (400, -32020),
        ),
        ("right", bare().with("Mcp-Param-Level", "42"), (200, 0)),
    ];
    for (what, wire, expected) in steps {
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), expected, "{what}: {back:?}");
    }
    world.finish().await;
}

/// P79: progress comes under the client's own token, and only where it gave one.
#[tokio::test]
async fn progress_is_told_under_the_token_of_the_client() {
    let world = World::new(Personality::modern()).await;
    let plain = || call("progress", json!({ "steps": 3 }));
    for token in [json!("mine"), json!(7)] {
        let back = with_meta(plain(), "progressToken", token.clone())
            .send(&world)
            .await;
        assert_eq!(back.header("content-type"), Some("text/event-stream"));
        assert_eq!(back.header("x-accel-buffering"), Some("no"));
        let told = back.messages();
        let progress = told
            .iter()
            .filter(|one| one["method"] == "notifications/progress");
        let progress: Vec<&Value> = progress.collect();
        assert_eq!(progress.len(), 3, "{back:?}");
        assert!(
            progress
                .iter()
                .all(|one| one["params"]["progressToken"] == token)
        );
        assert_eq!(told.last().unwrap()["result"]["resultType"], "complete");
    }
    let silent = plain().send(&world).await;
    let told = silent.messages();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["result"]["resultType"], "complete");
    world.finish().await;
}

/// mcp-spec T30: a client hears every report of its call, also where they come faster than it reads.
#[tokio::test]
async fn a_burst_of_reports_is_heard_whole() {
    let world = World::new(Personality::modern()).await;
    let many = json!({ "steps": 1_000, "bytes": 5_000, "pause_ms": 0 });
    let back = with_meta(call("progress", many), "progressToken", json!("mine"))
        .send(&world)
        .await;
    let told = back.messages();
    let steps = told.iter().map(|one| one["params"]["progress"].as_u64());
    let expected = (1..=1_000).map(Some).chain([None]);
    assert!(steps.eq(expected), "{} came", told.len());
    world.finish().await;
}

/// mcp-spec 6.7: lines of log come where the request asked for them, and nowhere else.
#[tokio::test]
async fn log_lines_come_where_they_were_asked_for() {
    let world = World::new(Personality::modern()).await;
    let plain = || call("log", json!({ "lines": 3 }));
    let name = "io.modelcontextprotocol/logLevel";
    let back = with_meta(plain(), name, json!("info")).send(&world).await;
    let lines = back.messages();
    let lines = lines
        .iter()
        .filter(|one| one["method"] == "notifications/message");
    assert_eq!(lines.count(), 3, "{back:?}");
    let silent = plain().send(&world).await;
    assert!(silent.messages().is_empty(), "{silent:?}");
    world.finish().await;
}

/// P71, P80: a client that leaves cancels its call at the server, and nobody else's.
#[tokio::test]
async fn a_client_that_leaves_cancels_its_own_call() {
    let world = World::new(Personality::modern()).await;
    let slow = |ms: u64| call("slow", json!({ "ms": ms }));
    let staying = slow(1500);
    let leaving = with_meta(
        call("progress", json!({ "steps": 100_000, "pause_ms": 20 })),
        "progressToken",
        json!(1),
    );
    let other = staying.send(&world);
    let story = async {
        let mut stream = leaving.begin(&world).await;
        assert!(stream.message().await.is_some());
        drop(stream);
        let ledger = world.server.ledger();
        let gone = |entries: &[LedgerEntry]| {
            let mut abandoned = entries
                .iter()
                .filter(|one| one.phase == ExecutionPhase::Abandoned);
            abandoned.any(|one| one.tool.as_deref() == Some("progress"))
        };
        let holds = ledger.wait_until(LIMIT, gone).await;
        assert!(holds, "{:?}", ledger.entries());
    };
    let (stayed, ()) = tokio::join!(other, story);
    assert_eq!(stayed.status, 200);
    assert_eq!(world.server.ledger().executions("slow"), 1);
    assert_eq!(world.server.ledger().executions("progress"), 0);
    world.finish().await;
}

/// The same for a client that waits for JSON and hears nothing yet.
#[tokio::test]
async fn a_client_that_leaves_before_anything_came_cancels_too() {
    let world = World::new(Personality::modern()).await;
    let waiting = call("slow", json!({ "ms": 600_000 })).send(&world);
    let ledger = world.server.ledger();
    let came_to = |phase: ExecutionPhase| {
        ledger.wait_until(LIMIT, move |entries| {
            let mut calls = entries.iter().filter(|one| one.tool.is_some());
            calls.any(|one| one.phase == phase)
        })
    };
    tokio::select! {
        back = waiting => panic!("it ended: {back:?}"),
        begun = came_to(ExecutionPhase::Begin) => assert!(begun),
    }
    assert!(came_to(ExecutionPhase::Abandoned).await);
    assert_eq!(ledger.executions("slow"), 0);
    world.finish().await;
}

/// mcp-spec 6.8, 6.9: methods of extensions pass, and what names a task is checked.
#[tokio::test]
async fn extensions_pass_and_tasks_are_named_in_a_header() {
    let world = World::new(Personality::modern()).await;
    let task = || request("tasks/get", json!({ "taskId": "t-1" }));
    let wrong = task().set("Mcp-Name", "t-2").send(&world).await;
    assert_eq!(wrong.refusal(), (400, -32020));
    assert_eq!(world.received("tasks/get"), 0);
    let unknown = task().send(&world).await;
    assert_eq!(unknown.refusal(), (200, -32602), "{unknown:?}");
    assert_eq!(world.received("tasks/get"), 0);
    let passed = request("x.example/do", json!({})).send(&world).await;
    let found = passed.refusal();
    assert_eq!(found, (404, -32601), "the server's own word: {passed:?}");
    assert_eq!(world.received("x.example/do"), 1);
    let own = "x.example/extension";
    let name = "io.modelcontextprotocol/clientCapabilities";
    let declared = json!({ "extensions": { own: {} } });
    let wire = with_meta(
        with_meta(call("echo", json!({})), name, declared.clone()),
        own,
        json!([1]),
    );
    assert_eq!(wire.send(&world).await.status, 200);
    let entries = world.server.ledger().entries();
    let meta = &entries.last().unwrap().meta;
    assert_eq!((&meta[name], &meta[own]), (&declared, &json!([1])));
    world.finish().await;
}

/// mcp-spec 6.1: a server is described in its own words, with the versions that can be spoken here.
#[tokio::test]
async fn a_server_is_described_in_its_own_words() {
    let told = ["2026-07-28", "2099-01-01"];
    let world = World::new(Personality::modern().advertised_versions(&told)).await;
    let discover = || request("server/discover", json!({}));
    let first = result(&discover().send(&world).await);
    assert_eq!(first["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(
        first["instructions"],
        "A server that writes down what it does."
    );
    let found = (&first["ttlMs"], &first["cacheScope"]);
    assert_eq!(found, (&json!(0), &json!("private")));
    let info = &first["_meta"]["io.modelcontextprotocol/serverInfo"]["name"];
    assert_eq!(info, "warmline-ledger");
    // What is stale at once is asked for each time, and once for the first.
    assert_eq!(world.received("server/discover"), 1);
    assert_eq!(result(&discover().send(&world).await), first);
    assert_eq!(world.received("server/discover"), 2);
    // Old words are better than none.
    world.server.stop();
    assert_eq!(result(&discover().send(&world).await), first);
    world.finish().await;
}
