//! `subscriptions/listen`: what changes reaches whoever listens, under its own id.

use crate::prelude::*;

use super::raw_client::{Stream, Wire, call, request};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const LIMIT: Duration = Duration::from_secs(10);

fn listen(id: Value) -> Wire {
    let wanted = json!({ "toolsListChanged": true, "resourceSubscriptions": ["ledger://page/1"] });
    let wire = request("subscriptions/listen", json!({ "notifications": wanted }));
    wire.changed(|body| body["id"] = id)
}

/// The next message, which belongs to this listen.
async fn next(stream: &mut Stream, id: &Value) -> Value {
    let message = stream.message().await.expect("the stream ended");
    let told = message.get("params").or_else(|| message.get("result"));
    let told = told.unwrap_or_else(|| panic!("{message}"));
    assert_eq!(told["_meta"][SUBSCRIPTION], *id, "{message}");
    message
}

async fn acknowledged(stream: &mut Stream, id: &Value) {
    let first = next(stream, id).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"]["toolsListChanged"], true);
}

/// Waits until the server has so many listens open.
async fn open(world: &World, count: usize) {
    let control = world.control();
    let are_open = || control.open_listens() == count;
    until(&format!("{count} listens are open"), are_open).await;
}

/// P82, P83: each listen is acknowledged first and hears what changes under its own id, whatever
/// type that has; one that leaves is ended at the server, and the others go on.
#[tokio::test]
async fn whoever_listens_hears_what_changes_under_its_own_id() {
    let world = World::new(Personality::modern()).await;
    let (one, other) = (json!("one"), json!(2));
    let mut first = listen(one.clone()).begin(&world).await;
    let mut second = listen(other.clone()).begin(&world).await;
    assert_eq!(first.status, 200);
    acknowledged(&mut first, &one).await;
    acknowledged(&mut second, &other).await;
    open(&world, 2).await;
    world.control().change_tools();
    for (stream, id) in [(&mut first, &one), (&mut second, &other)] {
        let told = next(stream, id).await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
    }
    drop(first);
    open(&world, 1).await;
    world.control().update_resource("ledger://page/1");
    let told = next(&mut second, &other).await;
    assert_eq!(told["method"], "notifications/resources/updated");
    assert_eq!(told["params"]["uri"], "ledger://page/1");
    drop(second);
    open(&world, 0).await;
    world.finish().await;
}

/// A listen of somebody for lists alone, at this path.
async fn for_lists(world: &World, who: &str, path: &str, id: &Value, kinds: Value) -> Stream {
    let wanted = request("subscriptions/listen", json!({ "notifications": kinds }));
    let wanted = wanted.changed(|body| body["id"] = id.clone()).at(path);
    let token = format!("Bearer token-of-{who}");
    let mut stream = wanted.with("Authorization", &token).begin(world).await;
    let first = next(&mut stream, id).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], kinds, "{first}");
    stream
}

/// P82: one listen at the server is enough for the lists of all clients of an identity, whatever
/// their runs; each hears what it asked for under its own id. It ends with the last of them.
#[tokio::test]
async fn list_changes_for_many_come_from_one_listen() {
    let world = World::of_alice(Personality::modern()).await;
    let tools = || json!({ "toolsListChanged": true });
    let all = json!({ "toolsListChanged": true, "promptsListChanged": true });
    let prompts = json!({ "promptsListChanged": true });
    let place = "/servers/ledger/mcp";
    let (one, two, three) = (json!("one"), json!(2), json!("three"));
    let mut first = for_lists(&world, "alice", place, &one, tools()).await;
    let in_run = "/runs/r/servers/ledger/mcp";
    let mut second = for_lists(&world, "alice", in_run, &two, all).await;
    let mut quiet = for_lists(&world, "alice", place, &three, prompts).await;
    open(&world, 1).await;
    let mut of_bob = for_lists(&world, "bob", place, &one, tools()).await;
    open(&world, 2).await;
    world.control().change_tools();
    for (stream, id) in [(&mut first, &one), (&mut second, &two), (&mut of_bob, &one)] {
        let told = next(stream, id).await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
    }
    drop((first, of_bob));
    open(&world, 1).await;
    world.control().change_tools();
    let told = next(&mut second, &two).await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    // Whoever did not ask hears of the end alone.
    world.control().end_listens();
    for (stream, id) in [(&mut second, &two), (&mut quiet, &three)] {
        let last = next(stream, id).await;
        assert_eq!(last["result"]["resultType"], "complete", "{last}");
        assert_eq!(last["id"], *id);
    }
    let again = for_lists(&world, "alice", place, &one, tools()).await;
    open(&world, 1).await;
    drop(again);
    open(&world, 0).await;
    world.finish().await;
}

/// P82: a listen ends with its run, whatever it wants to hear of and at whichever place; those outside
/// the run go on.
#[tokio::test]
async fn a_listen_for_lists_ends_with_its_run() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let declared = Server::http("ledger", server.url()).era(Era::Modern);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let people = ["alice"];
    let world = World::around(server, warm, |options, vault| {
        known(options, vault, &people)
    })
    .await;
    let tools = || json!({ "toolsListChanged": true });
    let (one, two, three) = (json!(1), json!(2), json!(3));
    let place = "/servers/ledger/mcp";
    let mut outside = for_lists(&world, "alice", place, &one, tools()).await;
    let in_run = format!("/runs/r{place}");
    let at_server = for_lists(&world, "alice", &in_run, &two, tools()).await;
    let among_all = for_lists(&world, "alice", "/runs/r/mcp", &three, tools()).await;
    let end = request("ping", json!({}))
        .at("/runs/r")
        .http("DELETE")
        .body("");
    let end = end.with("Authorization", "Bearer token-of-alice");
    assert_eq!(end.send(&world).await.status, 204);
    for (mut stream, id) in [(at_server, two), (among_all, three)] {
        let last = tokio::time::timeout(LIMIT, next(&mut stream, &id)).await;
        let last = last.expect("it outlives its run");
        assert_eq!(last["result"]["resultType"], "complete", "{last}");
        assert!(stream.message().await.is_none());
    }
    world.control().change_tools();
    let told = next(&mut outside, &one).await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    drop(outside);
    open(&world, 0).await;
    world.finish().await;
}

/// P82: one that breaks is opened once for all of them, and all hear that something may have changed.
#[tokio::test]
async fn a_listen_for_many_that_breaks_is_opened_anew_once() {
    let world = World::of_alice(Personality::modern()).await;
    let place = "/servers/ledger/mcp";
    let mut streams = Vec::new();
    for id in [json!(1), json!(2), json!(3)] {
        let tools = json!({ "toolsListChanged": true });
        let stream = for_lists(&world, "alice", place, &id, tools).await;
        streams.push((stream, id));
    }
    open(&world, 1).await;
    world.server.restart().unwrap();
    for (stream, id) in &mut streams {
        let told = next(stream, id).await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
    }
    assert_eq!(world.received("subscriptions/listen"), 2);
    drop(streams);
    open(&world, 0).await;
    world.finish().await;
}

/// mcp-spec 6.6.4: an end in good order is told, by the server or by us.
#[tokio::test]
async fn an_end_in_good_order_is_told() {
    for ends_itself in [true, false] {
        let world = World::new(Personality::modern()).await;
        let id = json!("one");
        let mut stream = listen(id.clone()).begin(&world).await;
        acknowledged(&mut stream, &id).await;
        open(&world, 1).await;
        let World {
            server,
            warm,
            gateway,
        } = world;
        let gateway = if ends_itself {
            server.control().end_listens();
            Some(gateway)
        } else {
            gateway.stop().await;
            None
        };
        let last = next(&mut stream, &id).await;
        assert_eq!(last["id"], id);
        assert_eq!(last["result"]["resultType"], "complete");
        assert_eq!(stream.message().await, None);
        drop(gateway);
        warm.close().await;
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

/// A listen inside a run ends with it, and says so: one that stayed would hear nothing of the next.
#[tokio::test]
async fn a_listen_inside_a_run_ends_with_it() {
    let world = World::new(Personality::modern()).await;
    let id = json!("one");
    for path in ["/runs/r1/servers/ledger/mcp", "/runs/r1/mcp"] {
        let mut stream = listen(id.clone()).at(path).begin(&world).await;
        acknowledged(&mut stream, &id).await;
        let address = world.gateway.address();
        let ended = raw_http::request(address, "DELETE", "/runs/r1", &[], "").await;
        assert_eq!(ended.status, 204, "{path}");
        let last = next(&mut stream, &id).await;
        assert_eq!(last["result"]["resultType"], "complete", "{path}: {last}");
        assert_eq!(stream.message().await, None, "{path}");
    }
    open(&world, 0).await;
    world.finish().await;
}

/// P82: a stream of the server that breaks is opened anew; what may have changed is said to have.
#[tokio::test]
async fn a_stream_that_breaks_is_opened_anew_and_the_client_stays() {
    let world = World::new(Personality::modern()).await;
    let id = json!("one");
    let mut stream = listen(id.clone()).begin(&world).await;
    acknowledged(&mut stream, &id).await;
    open(&world, 1).await;
    world.server.restart().unwrap();
    let list = next(&mut stream, &id).await;
    assert_eq!(list["method"], "notifications/tools/list_changed");
    let page = next(&mut stream, &id).await;
    assert_eq!(page["method"], "notifications/resources/updated");
    world.control().change_tools();
    let told = next(&mut stream, &id).await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(world.received("subscriptions/listen"), 2);
    drop(stream);
    open(&world, 0).await;
    world.finish().await;
}

/// Lets so much time pass at once as lies between two tries at most, and a try be made.
async fn one_try() {
    pass(Duration::from_secs(31)).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// A server on which no stream holds for long finds whoever listened still there when one does.
#[tokio::test]
async fn a_listen_outlasts_many_streams_that_break() {
    let world = World::new(Personality::modern()).await;
    let id = json!("one");
    let mut stream = listen(id.clone()).begin(&world).await;
    acknowledged(&mut stream, &id).await;
    open(&world, 1).await;
    let control = world.control();
    let breaks = FaultRule::new(Fault::Cut(CutPoint::BeforeExecuting, ConnectionEnd::Fin));
    control.inject(breaks.on_method("subscriptions/listen").always());
    world.server.restart().unwrap();
    let tried = || world.received("subscriptions/listen");
    let before = tried();
    for _ in 0..200 {
        if tried() > before + 100 {
            break;
        }
        one_try().await;
    }
    assert!(tried() > before + 100, "{}", tried());
    control.clear_faults();
    for _ in 0..20 {
        if control.open_listens() == 1 {
            break;
        }
        one_try().await;
    }
    let list = next(&mut stream, &id).await;
    assert_eq!(list["method"], "notifications/tools/list_changed");
    drop(stream);
    open(&world, 0).await;
    world.finish().await;
}

/// mcp-spec 6.6.3: what changes comes as events and in no other form.
#[tokio::test]
async fn a_client_that_reads_no_events_cannot_listen() {
    let world = World::new(Personality::modern()).await;
    let back = listen(json!(1))
        .set("Accept", "application/json")
        .send(&world)
        .await;
    assert_eq!(back.refusal(), (406, -32600), "{back:?}");
    assert!(world.server.ledger().entries().is_empty());
    world.finish().await;
}

/// mcp-spec 6.6.7: one caller opens only so many; the others still can.
#[tokio::test]
async fn one_caller_opens_only_so_many() {
    let world = World::new(Personality::modern()).await;
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = listen(json!(held.len())).begin(&world).await;
        let message = match stream.header("content-type") {
            Some("text/event-stream") => stream.message().await,
            _ => None,
        };
        match message {
            Some(_) => held.push(stream),
            None => break held.len(),
        }
        assert!(held.len() < 1000, "nothing is refused");
    };
    assert_eq!(refused, 64);
    let more = listen(json!("more")).send(&world).await;
    assert_eq!(more.refusal(), (200, -32603), "{more:?}");
    let elsewhere = listen(json!("x"))
        .at("/runs/r/servers/ledger/mcp")
        .begin(&world)
        .await;
    assert_eq!(elsewhere.header("content-type"), Some("text/event-stream"));
    drop((held, elsewhere));
    open(&world, 0).await;
    world.finish().await;
}

/// P82: over pipes, a program's listens share its output, and each hears its own.
#[tokio::test]
async fn a_program_is_listened_to_as_well() {
    let world = World::new(Personality::modern()).await;
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    world.add_server(Server::stdio(
        "child",
        [ledger, "--stdio", "--personality", "modern"],
    ));
    let at = "/runs/r/servers/child/mcp";
    let (one, other) = (json!("one"), json!(2));
    let mut first = listen(one.clone()).at(at).begin(&world).await;
    acknowledged(&mut first, &one).await;
    let mut second = listen(other.clone()).at(at).begin(&world).await;
    acknowledged(&mut second, &other).await;
    let name = "io.modelcontextprotocol/logLevel";
    let logged = call("log", json!({ "lines": 2 })).at(at);
    let logged = logged.changed(|body| body["params"]["_meta"][name] = json!("info"));
    let logged = logged.send(&world).await;
    let messages = logged.messages().len();
    assert_eq!(messages, 3, "a call hears its own lines: {logged:?}");
    for stream in [Some(first), None].into_iter().flatten() {
        let mut stream = stream;
        let changed = call("change_tools", json!({})).at(at).send(&world).await;
        assert_eq!(changed.status, 200);
        let told = next(&mut stream, &one).await;
        assert_eq!(told["method"], "notifications/tools/list_changed");
    }
    let told = next(&mut second, &other).await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    world.finish().await;
}

/// What a server says of itself and what a client listens to stand in the audit, also where the
/// client just leaves.
#[tokio::test]
async fn a_discover_and_a_listen_stand_in_the_audit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit = audit_into(file.clone());
    let world = World::with(Personality::modern(), |options| GatewayOptions {
        audit: Some(audit),
        ..options
    })
    .await;
    let back = request("server/discover", json!({})).send(&world).await;
    assert_eq!(back.status, 200);
    let mut stream = listen(json!(1)).begin(&world).await;
    acknowledged(&mut stream, &json!(1)).await;
    drop(stream);
    world.finish().await;
    let lines = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for method in ["server/discover", "subscriptions/listen"] {
        let of_method: Vec<&Value> = lines
            .iter()
            .filter(|line| line["method"] == method)
            .collect();
        let [line] = of_method.try_into().unwrap();
        assert_eq!(line["delivery"], "answered", "{line}");
        assert_eq!(line["server"], "ledger", "{line}");
    }
}
