//! Who hears what a server says outside any call, while calls are under way.

use crate::prelude::*;

use std::sync::Mutex;

use tokio::io::{DuplexStream, Lines};
use warmline_testkit::ServerControl;

const RUN: &str = "/runs/together/servers/ledger/mcp";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const LINE: &str = "notifications/message";
const COMPLETE: &str = "notifications/elicitation/complete";
const READY: &str = "note:///ready";
const LAST: &str = "note:///last";

/// What is heard on a stream: methods, and the resources that were updated.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Reads a stream to its end, in the background.
    pub(super) fn of(mut stream: Response) -> Self {
        let log = Self::default();
        let heard = log.clone();
        tokio::spawn(async move {
            while let Some(event) = stream.event_ever().await {
                if !event.data.is_empty() {
                    heard.0.lock().unwrap().push(word(&event.message()));
                }
            }
        });
        log
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.0.lock().unwrap().iter().any(|heard| heard == word)
    }

    /// All but what showed that somebody listens.
    pub(super) fn heard(&self) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        heard
            .iter()
            .filter(|word| *word != READY)
            .cloned()
            .collect()
    }

    /// Waits until what the session says is heard here.
    pub(super) async fn is_told(&self, control: &ServerControl) {
        until("it is told", || {
            control.update_resource(READY);
            self.has(READY)
        })
        .await;
    }
}

fn word(message: &Value) -> String {
    let uri = message["params"]["uri"].as_str();
    let method = message["method"].as_str();
    uri.or(method).unwrap_or("an answer").to_owned()
}

/// Says what concerns everybody.
fn say_all(control: &ServerControl) {
    control.update_resource("note:///a");
    control.change_tools();
    control.send_on_get_streams(&json!({
        "jsonrpc": "2.0", "method": COMPLETE, "params": { "elicitationId": "e" },
    }));
    control.update_resource(LAST);
}

const ALL: [&str; 4] = ["note:///a", TOOLS_CHANGED, COMPLETE, LAST];

async fn subscribe(client: &Legacy, uris: &[&str]) {
    for uri in uris {
        let answer = ask(client, "resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
}

/// What most of these clients ask for.
const WANTED: [&str; 3] = ["note:///a", READY, LAST];

async fn subscribed(world: &World, path: &str) -> Legacy {
    let client = Legacy::greet(world, path, NEWEST, json!({ "elicitation": {} })).await;
    subscribe(&client, &WANTED).await;
    client
}

async fn listener(world: &World, path: &str) -> (Legacy, Log) {
    let client = subscribed(world, path).await;
    let log = listening(world, &client).await;
    (client, log)
}

async fn listening(world: &World, client: &Legacy) -> Log {
    let log = Log::of(client.get(None).await);
    log.is_told(&world.control()).await;
    log
}

/// A client of a person, who wants to hear every line.
async fn greet_as(at: SocketAddr, path: &str, name: &str) -> Legacy {
    let shown = vec![(
        "Authorization".to_owned(),
        format!("Bearer token-of-{name}"),
    )];
    let client = Legacy::greet_at(at, path, NEWEST, json!({}), shown).await;
    let answer = ask(&client, "logging/setLevel", json!({ "level": "debug" })).await;
    assert_eq!(answer["result"], json!({}), "{answer}");
    client
}

/// Whether a program has begun with a call of this tool.
pub(super) fn has_begun(program: &Program, tool: &str) -> bool {
    let lives = program.lives();
    let mut lines = lives.iter().flatten();
    lines.any(|line| line["phase"] == "begin" && line["tool"] == tool)
}

/// The first that a response says, whichever form it has.
async fn first_of(mut response: Response) -> Value {
    match response.header("content-type") {
        Some("application/json") => response.answer().await,
        _ => response.message().await.unwrap(),
    }
}

fn withheld(warm: &Warmline, server: &str) -> u64 {
    let snapshot = warm.snapshot();
    let numbers = snapshot.server(server).unwrap();
    numbers.count("notices_withheld_total", &[])
}

/// DESIGN 4, mcp-spec T31: people share a session. What it says outside of calls and may be of a
/// call of one of them is told to nobody; what concerns all of them is told to all.
#[tokio::test]
async fn a_log_line_never_goes_to_another_identity() {
    let world = World::shared(SessionScope::Server, &["alice", "bob"]).await;
    let (at, control) = (world.gateway.address(), world.control());
    let path = "/servers/ledger/mcp";
    let (alice, bob) = (
        greet_as(at, path, "alice").await,
        greet_as(at, path, "bob").await,
    );
    for client in [&alice, &bob] {
        subscribe(client, &WANTED).await;
    }
    let logs = [
        listening(&world, &alice).await,
        listening(&world, &bob).await,
    ];
    assert_eq!(control.session_ids().len(), 1);
    let line = json!({ "level": "error", "data": "of one of them" });
    for (method, params) in [(LINE, line), ("custom/private", json!({}))] {
        control
            .send_on_get_streams(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }
    control.change_tools();
    for log in &logs {
        until("all heard of the lists", || log.has(TOOLS_CHANGED)).await;
        assert_eq!(log.heard(), [TOOLS_CHANGED]);
    }
    assert_eq!(withheld(&world.warm, LEDGER), 2);
    world.finish().await;
}

/// DESIGN 4, mcp-spec T31: the same on the pipe of a program. With calls of several in flight a line
/// that names none is given to none of them.
#[tokio::test]
async fn a_log_line_on_a_pipe_is_given_to_no_call_of_another() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let declared = program.declared("child").session_per(SessionScope::Server);
    let warm = Warmline::builder().server(declared).build().unwrap();
    let options = known(local(), warm.vault(), &["alice", "bob"]);
    let gateway = Gateway::start(warm.clone(), options).await.unwrap();
    let (at, path) = (gateway.address(), "/servers/child/mcp");
    let (alice, bob) = (
        greet_as(at, path, "alice").await,
        greet_as(at, path, "bob").await,
    );
    let slow = {
        let alice = alice.clone();
        let slow = call(1, "slow", json!({ "ms": 3000 }));
        tokio::spawn(async move { alice.post(&slow).await })
    };
    until("it runs", || has_begun(&program, "slow")).await;
    let lines = bob.post(&call(1, "log", json!({ "lines": 2 }))).await;
    for response in [lines, slow.await.unwrap()] {
        let first = first_of(response).await;
        assert_eq!(first["id"], 1, "something came before it: {first}");
    }
    assert_eq!(withheld(&warm, "child"), 2);
    // Alone, a call has what is said meanwhile.
    let line = bob.post(&call(2, "log", json!({ "lines": 1 }))).await;
    assert_eq!(first_of(line).await["method"], LINE);
    gateway.stop().await;
    warm.close().await;
    program.gone().await;
}

/// mcp-spec T32, 3.2.3: what concerns everybody is heard once by each client of the session: on its
/// standing stream or, where it has none, on the stream of its call.
#[tokio::test]
async fn what_concerns_everybody_is_heard_once_by_each_client() {
    for caller_listens in [false, true] {
        let world = World::new(Personality::legacy()).await;
        let (control, ledger) = (world.control(), world.server.ledger());
        let (subscriber, standing) = listener(&world, RUN).await;
        let (caller, of_caller) = match caller_listens {
            true => listener(&world, RUN).await,
            false => (subscribed(&world, RUN).await, Log::default()),
        };
        let calling = caller.clone();
        let lasting = tokio::spawn(async move {
            let slow = call(1, "slow", json!({ "ms": 60_000 }));
            calling.post(&slow).await
        });
        until("it is under way", || ledger.started_executions("slow") == 1).await;
        say_all(&control);
        until("the subscriber heard it", || standing.has(LAST)).await;
        assert_eq!(standing.heard(), ALL);
        if caller_listens {
            until("the caller heard it", || of_caller.has(LAST)).await;
            assert_eq!(of_caller.heard(), ALL);
            assert!(!lasting.is_finished(), "it was told twice");
            lasting.abort();
        } else {
            let of_call = Log::of(lasting.await.unwrap());
            until("the caller heard it", || of_call.has(LAST)).await;
            assert_eq!(of_call.heard(), ALL);
        }
        subscriber.delete().await;
        world.finish_with(&caller).await;
    }
}

/// Says that a resource changed, whoever asked for it.
fn update(control: &ServerControl, uri: &str) {
    let method = "notifications/resources/updated";
    control.send_on_get_streams(
        &json!({ "jsonrpc": "2.0", "method": method, "params": { "uri": uri } }),
    );
}

/// mcp-spec 8.7.2: of clients that share a session those hear of a resource, or of a part of it, that
/// asked for it: on their standing streams and on those of their calls. What nobody asked for is
/// for all of them.
#[tokio::test]
async fn an_update_is_for_those_clients_of_a_session_that_asked_for_it() {
    let world = World::new(Personality::legacy()).await;
    let (control, ledger) = (world.control(), world.server.ledger());
    let (subscriber, standing) = listener(&world, RUN).await;
    let greet = || Legacy::greet(&world, RUN, NEWEST, json!({}));
    let (other, caller) = (greet().await, greet().await);
    subscribe(&other, &["note:///b", READY, LAST]).await;
    let of_other = Log::of(other.get(None).await);
    of_other.is_told(&control).await;
    let calling = caller.clone();
    let lasting = tokio::spawn(async move {
        let slow = call(1, "slow", json!({ "ms": 60_000 }));
        calling.post(&slow).await
    });
    until("it is under way", || ledger.started_executions("slow") == 1).await;
    for uri in [
        "note:///a",
        "note:///a/part",
        "note:///b",
        "note:///ab",
        LAST,
    ] {
        update(&control, uri);
    }
    control.change_tools();
    let of_caller = Log::of(lasting.await.unwrap());
    let cases: [(&Log, &[&str]); 3] = [
        (
            &standing,
            &["note:///a", "note:///a/part", "note:///ab", LAST],
        ),
        (&of_other, &["note:///b", "note:///ab", LAST]),
        (&of_caller, &["note:///ab"]),
    ];
    for (log, expected) in cases {
        until("the last was heard", || log.has(TOOLS_CHANGED)).await;
        let heard = log.heard();
        assert_eq!(heard[..heard.len() - 1], *expected);
    }
    for client in [subscriber, other, caller] {
        client.delete().await;
    }
    world.finish().await;
}

/// mcp-spec 8.7.2: in a session that all identities share nobody hears of what another asked for, nor
/// of what nobody did.
#[tokio::test]
async fn an_update_is_for_no_other_identity() {
    let world = World::shared(SessionScope::Server, &["alice", "bob"]).await;
    let control = world.control();
    let path = "/servers/ledger/mcp";
    let alice = world.greet_as_alice(path).await;
    let token = "Bearer token-of-bob".to_owned();
    let bobs = vec![("Authorization".to_owned(), token)];
    let bob = Legacy::greet_with(&world, path, NEWEST, json!({}), bobs).await;
    let mut logs = Vec::new();
    for (client, own) in [(&alice, "note:///alices"), (&bob, "note:///bobs")] {
        subscribe(client, &[own, READY]).await;
        let log = Log::of(client.get(None).await);
        log.is_told(&control).await;
        logs.push((log, own));
    }
    assert_eq!(control.open_get_streams(), 1, "they share a session");
    for uri in ["note:///bobs", "note:///alices", "note:///nobodys"] {
        update(&control, uri);
    }
    control.change_tools();
    for (log, own) in logs {
        until("the last was heard", || log.has(TOOLS_CHANGED)).await;
        assert_eq!(log.heard(), [own, TOOLS_CHANGED]);
    }
    alice.delete().await;
    world.finish_with(&bob).await;
}

/// mcp-spec T32: what comes on the stream of a call is heard by others too, and by its own client
/// once.
#[tokio::test]
async fn what_comes_with_a_call_is_heard_by_others_too() {
    let world = World::new(Personality::legacy()).await;
    let (subscriber, standing) = listener(&world, RUN).await;
    let (caller, of_caller) = listener(&world, RUN).await;
    let changing = call(1, "change_tools", json!({}));
    let mut response = caller.post(&changing).await;
    let answer = response.answer().await;
    assert!(answer["result"].is_object(), "{answer}");
    world.control().update_resource(LAST);
    for log in [&standing, &of_caller] {
        until("it was heard", || log.has(LAST)).await;
        assert_eq!(log.heard(), [TOOLS_CHANGED, LAST]);
    }
    subscriber.delete().await;
    world.finish_with(&caller).await;
}

/// mcp-spec T32: a client that reads no stream with its call hears it on the one that stands.
#[tokio::test]
async fn a_call_that_reads_no_stream_costs_its_client_nothing() {
    let world = World::new(Personality::legacy()).await;
    let (client, standing) = listener(&world, RUN).await;
    let calling = client.clone();
    let lasting = tokio::spawn(async move {
        let slow = call(1, "slow", json!({ "ms": 60_000 }));
        let plain = [("Accept", "application/json")];
        calling.post_with(&plain, &slow).await
    });
    let ledger = world.server.ledger();
    until("it is under way", || ledger.started_executions("slow") == 1).await;
    say_all(&world.control());
    until("it was heard", || standing.has(LAST)).await;
    assert_eq!(standing.heard(), ALL);
    lasting.abort();
    world.finish_with(&client).await;
}

/// mcp-spec T28, T32, Y6: a list that is read for nobody in particular is no client's call. What the
/// server says and asks meanwhile is for whoever listens.
#[tokio::test]
async fn what_comes_while_a_list_is_read_for_all_is_for_whoever_listens() {
    let world = World::new(Personality::legacy()).await;
    let (control, ledger) = (world.control(), world.server.ledger());
    let client = Legacy::greet(&world, "/mcp", NEWEST, json!({ "elicitation": {} })).await;
    for uri in ["note:///a", READY, LAST] {
        let answer = ask(&client, "resources/subscribe", json!({ "uri": uri })).await;
        assert_eq!(answer["result"], json!({}), "{answer}");
    }
    let standing = Log::of(client.get(None).await);
    standing.is_told(&control).await;
    let before = control.faults_applied();
    let silence = FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting));
    control.inject(silence.on_method("prompts/list"));
    let listing = client.clone();
    let listing = tokio::spawn(async move { ask(&listing, "prompts/list", json!({})).await });
    until("the list is read", || control.faults_applied() > before).await;
    control.send_server_request(
        "elicitation/create",
        &json!({ "message": "?", "requestedSchema": {} }),
    );
    say_all(&control);
    until("it was heard", || standing.has(LAST)).await;
    let mut all = vec!["elicitation/create"];
    all.extend(ALL);
    assert_eq!(standing.heard(), all);
    let received = ledger.messages_received("(response)");
    assert_eq!(received, 0, "nobody answered for it");
    listing.abort();
    control.clear_faults();
    world.finish_with(&client).await;
}

/// One client on a pair of pipes.
struct Piped {
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
}

impl Piped {
    async fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input.write_all(line.as_bytes()).await.unwrap();
    }

    async fn hear(&mut self) -> Value {
        let line = self.output.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn greet(&mut self) {
        self.say(&initialize(NEWEST, json!({}))).await;
        assert!(self.hear().await["result"].is_object());
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        self.say(&ready).await;
    }
}

/// A client on a pipe that greets a second time hears everything once.
#[tokio::test]
async fn who_greets_twice_on_a_pipe_hears_everything_once() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let (input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let pipe = StdioClient::new(world.warm.clone(), GatewayOptions::default()).for_server(LEDGER);
    let serving = tokio::spawn(pipe.serve(theirs, ours));
    let output = BufReader::new(output).lines();
    let mut client = Piped { input, output };
    for _ in 0..2 {
        client.greet().await;
        for uri in ["note:///a", LAST] {
            let params = json!({ "uri": uri });
            let method = "resources/subscribe";
            client
                .say(&json!({ "jsonrpc": "2.0", "id": uri, "method": method, "params": params }))
                .await;
            assert_eq!(client.hear().await["result"], json!({}));
        }
        streams_held(&control, 1).await;
    }
    // Whoever left is gone by then.
    client.say(&call(7, "counter", json!({}))).await;
    assert!(client.hear().await["result"].is_object());
    control.update_resource("note:///a");
    control.update_resource(LAST);
    for uri in ["note:///a", LAST] {
        assert_eq!(word(&client.hear().await), uri);
    }
    drop(client);
    serving.await.unwrap().unwrap();
    world.finish().await;
}
