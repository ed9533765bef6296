//! Tasks: a handle that a server gave to one caller is no handle of anybody else.

use crate::prelude::*;

use super::raw_client::{Reply, Wire, call, request};

const TASKS: &str = "io.modelcontextprotocol/tasks";
/// The id of the server's own, which every caller could guess.
const OWN: &str = "task-0";

/// A request of a client that knows of tasks.
fn knowing(wire: Wire) -> Wire {
    wire.changed(|body| {
        let meta = &mut body["params"]["_meta"];
        meta["io.modelcontextprotocol/clientCapabilities"] = json!({ "extensions": { TASKS: {} } });
    })
}

fn by(who: &str, wire: Wire) -> Wire {
    wire.with("Authorization", &format!("Bearer token-of-{who}"))
}

fn about(method: &str, task: &str) -> Wire {
    knowing(request(method, json!({ "taskId": task })))
}

fn result(back: &Reply) -> Value {
    assert_eq!(back.status, 200, "{back:?}");
    back.json()["result"].clone()
}

/// Makes the server hand out a task for every call, and know it.
fn with_tasks(world: &World) {
    let task = |more: Value| {
        let mut task =
            json!({ "taskId": OWN, "createdAt": "x", "lastUpdatedAt": "x", "ttlMs": null });
        task.as_object_mut()
            .unwrap()
            .append(&mut more.as_object().unwrap().clone());
        Fault::Result(task)
    };
    let rows = [
        (
            "tools/call",
            task(json!({ "resultType": "task", "status": "working" })),
        ),
        (
            "tasks/get",
            task(json!({ "status": "completed", "result": { "content": [] } })),
        ),
        ("tasks/cancel", Fault::Result(json!({}))),
        ("tasks/update", Fault::Result(json!({}))),
    ];
    for (method, answer) in rows {
        world.inject(FaultRule::new(answer).on_method(method).always());
    }
}

fn asked_upstream(world: &World, method: &str) -> Vec<Value> {
    let entries = world.server.ledger().entries().into_iter();
    let asked = entries.filter(|entry| entry.method == method);
    asked
        .map(|entry| entry.arguments["taskId"].clone())
        .collect()
}

/// reliability F91, DESIGN 13: a task is of whoever it was given to, at its server and in its run;
/// the server's own id is nobody's. Others hear that there is no such task, and the server nothing.
#[tokio::test]
async fn a_task_is_good_for_its_caller_alone() {
    let world = World::of_alice(Personality::modern()).await;
    with_tasks(&world);
    let given = result(
        &by("alice", knowing(call("echo", json!({}))))
            .send(&world)
            .await,
    );
    assert_eq!(given["resultType"], "task", "{given}");
    let task = given["taskId"].as_str().unwrap();
    assert_ne!(task, OWN);
    assert!(task.bytes().all(|byte| byte.is_ascii_graphic()), "{task}");

    let got = result(&by("alice", about("tasks/get", task)).send(&world).await);
    assert_eq!(got["taskId"], task, "{got}");
    for method in ["tasks/cancel", "tasks/update"] {
        assert!(result(&by("alice", about(method, task)).send(&world).await).is_object());
        assert_eq!(asked_upstream(&world, method), [OWN]);
    }
    assert_eq!(asked_upstream(&world, "tasks/get"), [OWN]);

    let heard = world.server.ledger().entries().len();
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        for (what, wire) in [
            ("somebody else", by("bob", about(method, task))),
            ("the server's own", by("alice", about(method, OWN))),
            ("made up", by("bob", about(method, "x"))),
            (
                "another run",
                by("alice", about(method, task)).with("Warmline-Run", "r1"),
            ),
        ] {
            let back = wire.send(&world).await;
            assert_eq!(back.refusal(), (200, -32602), "{method} {what}: {back:?}");
        }
    }
    // Both are gone; the one would show the tasks of everybody.
    let all = by("alice", knowing(request("tasks/list", json!({}))));
    assert_eq!(all.send(&world).await.refusal(), (404, -32601));
    let waiting = by("alice", about("tasks/result", task));
    assert_eq!(waiting.send(&world).await.refusal(), (404, -32601));
    assert_eq!(world.server.ledger().entries().len(), heard);
    world.finish().await;
}

/// mcp-spec A6: who listens for a task hears of it by the id that it was given, and of no other.
#[tokio::test]
async fn a_listen_hears_of_its_own_tasks_alone() {
    let world = World::of_alice(Personality::modern()).await;
    with_tasks(&world);
    let given = result(
        &by("alice", knowing(call("echo", json!({}))))
            .send(&world)
            .await,
    );
    let task = given["taskId"].clone();
    let listen = |who: &str| {
        let wanted = json!({ "notifications": { "taskIds": [task, OWN] } });
        by(who, knowing(request("subscriptions/listen", wanted)))
    };
    let mut alice = listen("alice").begin(&world).await;
    let mut bob = listen("bob").begin(&world).await;
    for (stream, expected) in [(&mut alice, json!([task])), (&mut bob, json!([]))] {
        let agreed = stream.message().await.unwrap();
        assert_eq!(agreed["params"]["notifications"]["taskIds"], expected);
    }
    let tell = |task: &str| {
        let params = json!({ "taskId": task, "status": "working" });
        world
            .control()
            .notify_listens("notifications/tasks", &params);
    };
    tell("task-1");
    tell(OWN);
    world
        .control()
        .notify_listens("notifications/tools/list_changed", &json!({}));
    let told = alice.message().await.unwrap();
    assert_eq!(told["params"]["taskId"], task, "{told}");
    let last = bob.message().await.unwrap();
    assert_eq!(last["method"], "notifications/tools/list_changed", "{last}");
    drop((alice, bob));
    world.finish().await;
}

/// mcp-spec 6.4, T34: a kind of result that nobody declared is no result.
#[tokio::test]
async fn a_kind_of_result_that_nobody_declared_is_an_error() {
    let world = World::new(Personality::modern()).await;
    let plain = || call("echo", json!({}));
    let other = || {
        plain().changed(|body| {
            let meta = &mut body["params"]["_meta"];
            meta["io.modelcontextprotocol/clientCapabilities"] =
                json!({ "extensions": { "com.example/fruit": {} } });
        })
    };
    let result = |kind: Value| json!({ "resultType": kind, "content": [], "taskId": "t" });
    let rows = [
        ("complete", plain(), result(json!("complete")), 0),
        ("unknown", plain(), result(json!("banana")), -32603),
        ("no text", plain(), result(json!(1)), -32603),
        ("a task", plain(), result(json!("task")), -32603),
        ("a task for others", other(), result(json!("task")), -32603),
        (
            "a declared task",
            knowing(plain()),
            result(json!("task")),
            0,
        ),
        ("of an extension", other(), result(json!("banana")), 0),
        (
            "deep inside",
            plain(),
            json!({ "content": [], "structuredContent": { "resultType": "banana" } }),
            0,
        ),
        (
            "a list",
            request("tools/list", json!({})),
            json!({ "resultType": "banana", "tools": [] }),
            -32603,
        ),
    ];
    for (what, wire, said, expected) in rows {
        let body: Value = serde_json::from_str(&wire.body).unwrap();
        let method = body["method"].as_str().unwrap();
        world.inject(FaultRule::new(Fault::Result(said)).on_method(method));
        let back = wire.send(&world).await;
        assert_eq!(back.refusal(), (200, expected), "{what}: {back:?}");
        if expected != 0 {
            let response = back.json();
            let delivery = &response["error"]["data"]["warmline"]["delivery"];
            assert_eq!(delivery, "answered", "{what}: the call ran");
        }
    }
    world.finish().await;
}

/// mcp-spec 5.7: where a legacy server keeps nothing apart for a client, tasks would be everybody's:
/// they are not offered, and nobody gets at one.
#[tokio::test]
async fn tasks_of_a_server_without_sessions_are_not_offered_to_legacy_clients() {
    for (personality, is_shared) in [
        (Personality::legacy_stateless(), true),
        (Personality::legacy(), false),
    ] {
        let world = World::of_alice(personality).await;
        let greeting = json!({
            "protocolVersion": "2025-11-25", "serverInfo": { "name": "s", "version": "1" },
            "capabilities": { "tools": {}, "tasks": { "list": {} }, "logging": {} },
        });
        with_tasks(&world);
        let said = FaultRule::new(Fault::Result(greeting)).on_method("initialize");
        if is_shared {
            world.inject(said.always());
        }
        let mut client = world.greet_as_alice("/servers/ledger/mcp").await;
        let hello = initialize("2025-11-25", json!({}));
        client.ticket = String::new();
        let greeted = client.post(&hello).await.answer().await;
        let capabilities = &greeted["result"]["capabilities"];
        assert!(capabilities.get("tasks").is_none(), "{greeted}");
        if is_shared {
            assert!(capabilities.get("logging").is_some(), "{greeted}");
        }
        let client = world.greet_as_alice("/servers/ledger/mcp").await;
        let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": { "taskId": OWN } });
        let answer = client.post(&ask).await.answer().await;
        let refused = is_shared.then_some(-32601);
        assert_eq!(answer["error"]["code"].as_i64(), refused, "{answer}");
        assert_eq!(asked_upstream(&world, "tasks/get").is_empty(), is_shared);
        world.finish().await;
    }
}
