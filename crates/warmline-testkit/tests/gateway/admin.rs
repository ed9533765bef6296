//! The admin socket: what runs, for the user it runs for, and what they may do about it.

use crate::prelude::*;

use std::os::unix::fs::PermissionsExt as _;

use http::{Method, StatusCode};
use warmline::Run;
use warmline_engine::credentials::CredentialSource;
use warmline_gateway::ShutdownRequest;
use warmline_gateway::admin::socket_client::SocketClient;

use super::raw_client;

const IN_RUN: &str = "/runs/trip/servers/ledger/mcp";

/// A world that is looked after by a socket.
struct LookedAfter {
    world: World,
    admin: SocketClient,
    folder: TempDir,
}

impl LookedAfter {
    async fn new() -> Self {
        Self::with(|options| options).await
    }

    async fn with(decide: impl FnOnce(GatewayOptions) -> GatewayOptions) -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("admin");
        let mcp = folder.path().join("mcp");
        let world = World::knowing(Personality::legacy(), |options, vault| {
            decide(GatewayOptions {
                admin_socket: Some(socket.clone()),
                socket: Some(mcp),
                ..known(options, vault, &["alice"])
            })
        })
        .await;
        Self {
            world,
            admin: SocketClient::new(socket),
            folder,
        }
    }

    async fn ask(&self, method: Method, path: &str) -> (StatusCode, Value) {
        let answered = self.admin.request(method, path, None).await.unwrap();
        assert_eq!(answered.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
        (
            answered.status,
            serde_json::from_slice(&answered.body).unwrap(),
        )
    }

    async fn look(&self, list: &str) -> Vec<Value> {
        let (status, body) = self.ask(Method::GET, &format!("/admin/{list}")).await;
        assert_eq!(status, 200);
        body[list].as_array().unwrap().clone()
    }

    fn run_of(&self, identity: &str, name: &str) -> Run {
        let identity = self.world.warm.identity(identity);
        identity.named_run(name).unwrap()
    }

    fn mcp_socket(&self) -> PathBuf {
        self.folder.path().join("mcp")
    }
}

/// What happens, as somebody hears of it who asked for it.
struct Events(BufReader<UnixStream>);

impl Events {
    async fn of(admin: &SocketClient) -> Self {
        let mut socket = UnixStream::connect(admin.socket()).await.unwrap();
        let request = b"GET /admin/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        socket.write_all(request).await.unwrap();
        Self(BufReader::new(socket))
    }

    async fn next(&mut self) -> Value {
        let reading = async {
            let mut line = String::new();
            // Neither the head of the response nor the lengths of its pieces.
            while !line.starts_with('{') {
                line.clear();
                assert!(self.0.read_line(&mut line).await.unwrap() > 0, "it ended");
            }
            line
        };
        let line = tokio::time::timeout(Duration::from_secs(20), reading).await;
        serde_json::from_str(&line.unwrap()).unwrap()
    }
}

/// reliability O9: what is open is listed; of others than the user themselves only fingerprints.
#[tokio::test]
async fn servers_runs_and_sessions_are_listed_without_secrets_or_identities() {
    let looked = LookedAfter::new().await;
    let alice = looked.world.greet_as_alice(IN_RUN).await;
    assert_eq!(alice.count().await, 1);
    let servers = looked.look("servers").await;
    assert_eq!(servers[0]["server"], "ledger");
    assert_eq!(servers[0]["sessions"], 1);
    let runs = looked.look("runs").await;
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(runs[0]["sessions"], 1);
    let sessions = looked.look("sessions").await;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0]["generation"], 1);
    assert_eq!(sessions[0]["run"], runs[0]["run"]);
    let ids = looked.world.control().session_ids();
    let shown = sessions[0]["session"].as_str().unwrap();
    assert!(!ids[0].starts_with(shown.trim_end_matches('…')), "{shown}");
    let holds = shown.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(holds, "{shown}");
    let said = json!([servers, runs, sessions]).to_string();
    for secret in ["alice", "trip", "token-of"] {
        assert!(!said.contains(secret), "{secret} is in {said}");
    }
    // The run of the same name of our own user is another one, and is named.
    looked.run_of("local", "trip").detach();
    let runs = looked.look("runs").await;
    let named = runs.iter().filter(|run| run["run_name"] == "trip");
    assert_eq!((runs.len(), named.count()), (2, 1), "{runs:?}");
    looked.world.finish().await;
}

/// A server that is called with what a caller hands in, and who hands in nothing: their own list says
/// so, and nobody who looks after the gateway is told of it, how often ever it happens.
#[tokio::test]
async fn what_a_caller_does_not_hand_in_is_no_fault_of_the_server() {
    let looked = LookedAfter::new().await;
    let source = CredentialSource::bearer(Secret::header("X-Ledger-Token").unwrap());
    let handed = Server::http("handed", looked.world.server.url()).credential(source);
    looked.world.add_server(handed);
    let alice = looked.world.greet_as_alice("/mcp").await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let listed: Value = alice.post(&list).await.answer().await;
    let left_out = &listed["result"]["_meta"]["dev.warmline/leftOut"][0];
    assert_eq!(left_out["server"], "handed", "{listed}");
    let said = looked.look("servers").await[0].clone();
    assert_eq!(said["server"], "handed", "{said}");
    assert!(said["left_out"].is_null(), "{said}");
    looked.world.finish().await;
}

/// A server that hangs is said to be tried, and left out of the lists where it is missed.
#[tokio::test]
async fn a_server_that_hangs_is_seen_to_hang() {
    let looked = LookedAfter::with(|options| GatewayOptions {
        list_share: Duration::from_millis(100),
        ..options
    })
    .await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    let server = Server::http("hung", url);
    looked.world.add_server(server);
    let hung = async || looked.look("servers").await[0].clone();
    assert_eq!(hung().await["state"], "untried");
    let alice = looked.world.greet_as_alice("/mcp").await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    alice.post(&list).await.whole().await;
    let said = hung().await;
    let stands = (&said["state"], &said["left_out"]);
    assert_eq!(stands, (&json!("trying"), &json!("late")), "{said}");
    let other = looked.look("servers").await[1].clone();
    assert!(other["left_out"].is_null(), "{other}");
    drop(silent);
    looked.world.finish().await;
}

/// A run ends by its fingerprint, and by its name; one that is over is not there.
#[tokio::test]
async fn a_run_is_ended_from_outside() {
    let looked = LookedAfter::new().await;
    let (status, said) = looked.ask(Method::DELETE, "/admin/runs/trip").await;
    assert_eq!(status, 404);
    assert_eq!(said["error"]["code"], "run-unknown");
    let alice = looked.world.greet_as_alice(IN_RUN).await;
    assert_eq!(alice.count().await, 1);
    let run = looked.look("runs").await[0]["run"].clone();
    let path = format!("/admin/runs/{}", run.as_str().unwrap());
    let (status, said) = looked.ask(Method::DELETE, &path).await;
    assert_eq!((status.as_u16(), &said["ended"]), (200, &run));
    assert!(looked.look("runs").await.is_empty());
    assert_eq!(looked.world.server.counts().open_sessions, 0);
    assert_eq!(looked.ask(Method::DELETE, &path).await.0, 404);

    looked.run_of("local", "mine").detach();
    let (status, _) = looked.ask(Method::DELETE, "/admin/runs/mine").await;
    assert_eq!(status, 200);
    looked.world.finish().await;
}

/// A name means our own run, else the one run that has it, whosever it is; where several have it,
/// nobody guesses which is meant.
#[tokio::test]
async fn a_run_of_others_is_ended_by_a_name_that_is_clear() {
    let looked = LookedAfter::new().await;
    let end = async || looked.ask(Method::DELETE, "/admin/runs/trip").await;
    let left = async || looked.look("runs").await.len();
    for identity in ["local", "alice", "bob"] {
        looked.run_of(identity, "trip").detach();
    }
    assert_eq!((end().await.0.as_u16(), left().await), (200, 2));
    let own = looked.world.warm.identity("local");
    assert!(own.join_run("trip").is_err(), "our own is meant first");
    let (status, said) = end().await;
    assert_eq!((status.as_u16(), left().await), (409, 2), "{said}");
    for run in looked.look("runs").await {
        let hint = said["error"]["hint"].as_str().unwrap();
        assert!(hint.contains(run["run"].as_str().unwrap()), "{hint}");
    }
    let bob = looked.world.warm.identity("bob").join_run("trip").unwrap();
    bob.end().await;
    assert_eq!((end().await.0.as_u16(), left().await), (200, 0));
    looked.world.finish().await;
}

/// A session that is closed is closed at its server too; its run goes on with another, and hears
/// of the loss.
#[tokio::test]
async fn a_session_is_closed_and_its_run_hears_of_it() {
    let looked = LookedAfter::new().await;
    let run = looked.run_of("local", "trip");
    let server = run.server("ledger").unwrap();
    assert_eq!(count(&server).await, 1);
    let session = looked.look("sessions").await[0].clone();
    let named = format!("{}.{}", session["key"], session["generation"]);
    let path = format!("/admin/servers/ledger/sessions/{named}");
    let (status, said) = looked.ask(Method::DELETE, &path).await;
    assert_eq!((status.as_u16(), said), (200, json!({ "closed": 1 })));
    let open = || looked.world.server.counts().open_sessions;
    until("its server ended it", || open() == 0).await;
    let result = server.call("counter", json!({})).await.unwrap();
    assert!(result.text().contains("lost its session"), "{result:?}");
    assert_eq!(looked.ask(Method::DELETE, &path).await.0, 404, "it is gone");
    for nonsense in ["x", "0", "0.x", "9.9"] {
        let path = format!("/admin/servers/ledger/sessions/{nonsense}");
        assert_eq!(looked.ask(Method::DELETE, &path).await.0, 404, "{nonsense}");
    }
    let all = "/admin/servers/ledger/sessions";
    let (status, said) = looked.ask(Method::DELETE, all).await;
    assert_eq!((status.as_u16(), said), (200, json!({ "closed": 1 })));
    let none = "/admin/servers/ledgr/sessions";
    let (status, said) = looked.ask(Method::DELETE, none).await;
    assert_eq!(status, 404);
    assert_eq!(said["error"]["code"], "server-unknown");
    assert_eq!(said["error"]["hint"], "did you mean `ledger`?");
    drop((run, server));
    looked.world.finish().await;
}

/// What happens is told as it happens; whoever does not keep up hears how much it missed.
#[tokio::test]
async fn events_are_told_and_a_slow_reader_hears_what_it_missed() {
    let looked = LookedAfter::with(|mut options| {
        // However long a busy machine takes to make them all, the slow reader is not cut off.
        options.limits.stall_timeout = Duration::from_hours(1);
        options
    })
    .await;
    let mut events = Events::of(&looked.admin).await;
    assert_eq!(events.next().await["kind"], "listening");
    let alice = looked.world.greet_as_alice(IN_RUN).await;
    assert_eq!(alice.count().await, 1);
    let mut kinds = Vec::new();
    while !kinds.contains(&json!("session-opened")) {
        kinds.push(events.next().await["kind"].clone());
    }
    assert_eq!(kinds[0], "run-began");

    let mut slow = Events::of(&looked.admin).await;
    assert_eq!(slow.next().await["kind"], "listening");
    // Far more than sockets and we keep for somebody who does not read.
    for _ in 0..8_000 {
        looked.world.warm.begin_run().end().await;
    }
    let (mut missed, mut heard) = (0, 0);
    while missed == 0 {
        let told = slow.next().await;
        match told["kind"].as_str() {
            Some("missed") => missed = told["events"].as_u64().unwrap(),
            _ => heard += 1,
        }
    }
    assert!(heard + missed <= 16_000, "{heard} {missed}");
    assert_eq!(alice.count().await, 2, "nobody else noticed");
    drop((events, slow));
    looked.world.finish().await;
}

/// A110: the counters, in the shape of the seed; whoever is not let in as admin gets 401 or 403.
#[tokio::test]
async fn the_numbers_of_the_pool_stand_at_the_path_of_the_seed() {
    let looked = LookedAfter::new().await;
    let alice = looked.world.greet_as_alice(IN_RUN).await;
    for number in 1..=3 {
        assert_eq!(alice.count().await, number);
    }
    let path = "/admin/mcp-pool/metrics";
    let (status, said) = looked.ask(Method::GET, path).await;
    assert_eq!(status, 200);
    assert_eq!(said["misses"], 1, "{said}");
    assert_eq!(said["hits"], 3, "{said}");
    assert_eq!(said["hit_rate"], 0.75);
    assert_eq!(said["pools"]["ledger"]["sessions"], 1);
    assert_eq!(said["pool_key_count"], 1);
    assert_eq!(said["runs"], 1);
    for name in [
        "evictions",
        "health_check_failures",
        "circuit_breaker_trips",
        "refused",
    ] {
        assert_eq!(said[name], 0, "{name}");
    }
    let numbers = said["numbers"].to_string();
    for name in [
        "acquires_total",
        "open_seconds",
        "call_outcomes_total",
        "run_sessions",
    ] {
        assert!(numbers.contains(name), "{name} is not in {numbers}");
    }
    let address = looked.world.gateway.address();
    for (token, status) in [
        (None, 401),
        (Some("forged"), 401),
        (Some("token-of-alice"), 403),
    ] {
        let shown = token.map(|token| format!("Bearer {token}"));
        let headers = shown.iter().map(|shown| ("Authorization", &**shown));
        let headers: Vec<_> = headers.collect();
        for path in [path, "/admin/runs", "/admin/drain", "/admin/nothing"] {
            let response = request(address, "GET", path, &headers, "").await;
            assert_eq!(response.status, status, "{token:?} {path}");
        }
    }
    looked.world.finish().await;
}

/// The one who owns the gateway hears that it shall end; nothing is cut by that.
#[tokio::test]
async fn a_drain_is_asked_for_and_may_be_hurried() {
    let looked = LookedAfter::new().await;
    let (status, said) = looked.ask(Method::POST, "/admin/drain").await;
    assert_eq!((status.as_u16(), said), (200, json!({ "draining": true })));
    let requested = looked.world.gateway.shutdown_requested().await;
    assert_eq!(requested, ShutdownRequest::Drain);
    let hurry = looked.world.gateway.immediate_shutdown_requested();
    let (answered, ()) = tokio::join!(looked.ask(Method::POST, "/admin/drain?now"), hurry);
    assert_eq!(answered.0, 200);
    let (status, _) = looked.ask(Method::POST, "/admin/drain").await;
    assert_eq!(status, 200, "an end that is asked for is not taken back");
    let requested = looked.world.gateway.shutdown_requested().await;
    assert_eq!(requested, ShutdownRequest::AtOnce);
    looked.world.finish().await;
}

/// reliability T19: the socket is for its user alone, has no MCP behind it, and says what there is; nothing is
/// handed in where that was not decided.
#[tokio::test]
async fn the_socket_opens_to_its_user_and_to_nothing_else() {
    let looked = LookedAfter::new().await;
    let mode = fs::metadata(looked.admin.socket()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let cases = [
        (Method::POST, "/admin/runs", 405),
        (Method::GET, "/admin/drain", 405),
        (Method::DELETE, "/admin/servers", 405),
        (Method::POST, "/admin/join", 404),
        (Method::GET, "/admin/nothing", 404),
        (Method::GET, "/admin/runs/x/y", 404),
    ];
    for (method, path, status) in cases {
        let (answered, said) = looked.ask(method.clone(), path).await;
        assert_eq!(answered.as_u16(), status, "{method} {path}");
        assert_eq!(said["error"]["code"], "bad-message");
        assert!(said["error"]["hint"].is_string());
    }
    for path in [PATH, "/mcp", "/runs/trip"] {
        let answered = looked.admin.request(Method::POST, path, None).await;
        assert_eq!(answered.unwrap().status, 404, "{path}");
    }
    let mcp = SocketClient::new(looked.mcp_socket());
    let answered = mcp.request(Method::GET, "/admin/runs", None).await.unwrap();
    assert_eq!(answered.status, 403, "nor the other way round");
    looked.world.finish().await;
}

/// Whoever looks after a gateway is heard also when it has no place for another request.
#[tokio::test]
async fn an_overloaded_gateway_still_answers_its_user() {
    let looked = LookedAfter::with(|mut options| {
        options.limits.max_requests = 1;
        options
    })
    .await;
    let alice: Legacy = looked.world.greet_as_alice(PATH).await;
    let slow = alice.call("slow", json!({ "ms": 1500 }));
    let looking = async {
        until("the call is under way", || {
            let snapshot = looked.world.warm.snapshot();
            snapshot.sessions.iter().any(|line| line.calls > 0)
        })
        .await;
        assert_eq!(looked.look("sessions").await[0]["calls"], 1);
    };
    tokio::join!(slow, looking);
    looked.world.finish().await;
}

/// reliability O1: while it goes down, a socket of this machine is a door like that of the network:
/// new calls are told so. Who looks after the gateway is heard to the end, and is told as well.
#[tokio::test]
async fn who_comes_by_a_socket_is_told_that_the_gateway_goes_down() {
    let looked = LookedAfter::new().await;
    assert_eq!(looked.ask(Method::GET, "/admin").await.1["draining"], false);
    looked.world.gateway.drain();
    let mcp = UnixStream::connect(looked.mcp_socket()).await.unwrap();
    let greeting = raw_client::post(PATH, &[], &raw_client::initialize());
    let told = raw_client::send_on(mcp, &greeting).await;
    let response: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!(told.status, 503, "{response}");
    let known = &response["error"]["data"]["warmline"];
    assert_eq!(known["code"], "draining", "{response}");
    assert_eq!(known["delivery"], "unsent", "{response}");
    assert_eq!(looked.ask(Method::GET, "/admin").await.1["draining"], true);
    let (status, _) = looked.ask(Method::POST, "/admin/drain?now").await;
    assert_eq!(status, 200);
    let requested = looked.world.gateway.shutdown_requested().await;
    assert_eq!(requested, ShutdownRequest::AtOnce);
    looked.world.gateway.drained().await;
    let (admin, mcp) = (looked.admin, looked.folder.path().join("mcp"));
    looked.world.finish().await;
    assert!(!admin.socket().exists() && !mcp.exists());
}
