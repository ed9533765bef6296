//! The pages for machines that watch: alive, ready, servers, numbers.

use crate::prelude::*;

use warmline_engine::metrics::{METRICS, SampleValue as Counted};
use warmline_engine::relay::RelayHandle as _;

use super::prometheus_text::Scraped;

async fn world() -> World {
    World::with(Personality::legacy(), watched).await
}

fn ops(gateway: &Gateway) -> SocketAddr {
    gateway.ops_address().unwrap()
}

async fn page(gateway: &Gateway, path: &str) -> (u16, String) {
    let mut response = raw_http::get(ops(gateway), path).await;
    (response.status, response.whole().await)
}

pub(crate) async fn scraped(gateway: &Gateway) -> Scraped {
    let (status, text) = page(gateway, "/metrics").await;
    assert_eq!(status, 200);
    Scraped::read(&text)
}

/// A gateway with its pages in front of these servers.
async fn watched_gateway(servers: impl IntoIterator<Item = Server>) -> (Warmline, Gateway) {
    let warm = Warmline::builder().servers(servers).build().unwrap();
    let gateway = Gateway::start(warm.clone(), watched(local())).await;
    (warm, gateway.unwrap())
}

async fn json_of(gateway: &Gateway, path: &str) -> (u16, Value) {
    let (status, text) = page(gateway, path).await;
    (status, serde_json::from_str(&text).unwrap())
}

/// P50, reliability O6, reliability O7: alive and ready while it serves; not ready, but alive, while it
/// goes down. A dead server makes nobody unready.
#[tokio::test]
async fn ready_until_it_goes_down_and_alive_until_the_end() {
    let dead = Server::http(LEDGER, "http://127.0.0.1:1/mcp");
    let (warm, gateway) = watched_gateway([dead]).await;
    let tried = warm.server(LEDGER).unwrap().ping().await;
    assert!(tried.is_err());
    assert_eq!(page(&gateway, "/livez").await, (200, "ok\n".to_owned()));
    let (status, ready) = json_of(&gateway, "/readyz").await;
    assert_eq!((status, &ready["ready"]), (200, &json!(true)));
    let expected = json!([{ "server": LEDGER, "state": "degraded" }]);
    assert_eq!(ready["servers"], expected);
    gateway.drain();
    let (status, ready) = json_of(&gateway, "/readyz").await;
    assert_eq!((status, &ready["why"]), (503, &json!("draining")));
    assert_eq!(page(&gateway, "/livez").await.0, 200);
    let addresses = [gateway.address(), ops(&gateway)];
    gateway.stop().await;
    for address in addresses {
        let is_so = || std::net::TcpStream::connect(address).is_err();
        until("nobody is let in, and the pages are gone", is_so).await;
    }
    warm.close().await;
}

/// reliability O7: a gateway without room for one more request is not ready.
#[tokio::test]
async fn without_room_it_is_not_ready() {
    let world = World::with(Personality::legacy(), |options| {
        let mut options = watched(options);
        options.limits.max_connections = 1;
        options
    })
    .await;
    let held = TcpStream::connect(world.gateway.address()).await.unwrap();
    let gateway = &world.gateway;
    loop {
        let (status, ready) = json_of(gateway, "/readyz").await;
        if status == 503 {
            assert_eq!(ready["why"], "overloaded");
            break;
        }
    }
    drop(held);
    while json_of(gateway, "/readyz").await.0 != 200 {}
    world.finish().await;
}

/// reliability T7, reliability T19: who comes under another name, from a page, or with another
/// method is turned away, and there is nothing else.
#[tokio::test]
async fn the_pages_are_read_by_machines_and_not_by_browsers() {
    let world = world().await;
    let at = ops(&world.gateway);
    for (method, path, headers, status) in [
        ("HEAD", "/livez", &[][..], 200),
        ("POST", "/livez", &[], 405),
        ("DELETE", "/servers", &[], 405),
        ("GET", "/", &[], 404),
        ("GET", "/metrics/", &[], 404),
        ("GET", "/mcp", &[], 404),
        ("GET", "/metrics", &[("Origin", "http://127.0.0.1")], 403),
    ] {
        let response = request(at, method, path, headers, "").await;
        assert_eq!(response.status, status, "{method} {path}");
    }
    assert_eq!(called(at, "evil.example").await, 403);
    assert_eq!(page(&world.gateway, "/servers?x=1").await.0, 200);
    world.finish().await;
}

/// The status of a page that is asked for by this name.
async fn called(at: SocketAddr, host: &str) -> u16 {
    let named = [("Host", host)];
    let response = request(at, "GET", "/livez", &named, "").await;
    response.status
}

/// The names by which clients may call are the door's. Where other machines may look at the pages,
/// a probe asks by the address of a pod; on loopback a strange name may lead here by rebinding.
#[tokio::test]
async fn names_of_the_door_turn_no_probe_away() {
    for (listening, status) in [([0, 0, 0, 0], 200), ([127, 0, 0, 1], 403)] {
        let world = World::with(Personality::legacy(), |options| GatewayOptions {
            ops: Some((listening, 0).into()),
            allowed_hosts: vec!["mcp.example.com".to_owned()],
            ..options
        })
        .await;
        let at = ([127, 0, 0, 1], ops(&world.gateway).port()).into();
        assert_eq!(called(at, "10.0.0.5:8485").await, status, "{listening:?}");
        assert_eq!(called(at, "mcp.example.com").await, 200, "{listening:?}");
        world.finish().await;
    }
}

/// reliability O6, reliability F69: however many watchers stay or hang, a probe is answered, and calls
/// go on: they take places of their own.
#[tokio::test]
async fn watchers_that_stay_turn_no_probe_away() {
    let world = world().await;
    let mut staying = Vec::new();
    for number in 0..64 {
        let mut socket = TcpStream::connect(ops(&world.gateway)).await.unwrap();
        // Some hang in the middle of a head, others are done and stay connected.
        let half = b"GET /metrics HTTP/1.1\r\n";
        let whole = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let said: &[u8] = if number % 2 == 0 { half } else { whole };
        // Those that came first may be gone by now.
        socket.write_all(said).await.ok();
        staying.push(socket);
        for path in ["/livez", "/readyz"] {
            assert_eq!(page(&world.gateway, path).await.0, 200, "{number}");
        }
    }
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    assert_eq!(client.count().await, 1);
    drop(staying);
    world.finish().await;
}

/// M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14, reliability I28: the page holds
/// every number of the engine, by the grammar of the format, and says what the snapshot says.
#[tokio::test]
async fn the_page_of_numbers_says_what_the_engine_counted() {
    let world = world().await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    for _ in 0..5 {
        client.count().await;
    }
    client.call("no-such-tool", json!({})).await;
    world.server.ledger();
    let page = scraped(&world.gateway).await;
    let snapshot = world.warm.snapshot();
    for metric in METRICS {
        let name = format!("warmline_{}", metric.name);
        assert_eq!(page.families[&name].kind, metric.kind.as_str(), "{name}");
    }
    let of_engine = snapshot.engine.iter().map(|number| (None, number));
    let ledger = snapshot.server(LEDGER).unwrap();
    let of_server = ledger.samples.iter().map(|number| (Some(LEDGER), number));
    for (server, number) in of_engine.chain(of_server) {
        let labels = metric_of(number.name).labels;
        let words = number.label_values.iter().copied();
        let mut labels: Vec<_> = labels.iter().copied().zip(words).collect();
        labels.extend(server.map(|server| ("server", server)));
        let name = format!("warmline_{}", number.name);
        match &number.value {
            Counted::Count(count) => {
                let found = page.number(&name, &labels);
                assert_eq!(found, *count as f64, "{name} {labels:?}");
            },
            Counted::Histogram(spread) => {
                let of_family = &page.families[&name];
                let labels = labels
                    .iter()
                    .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
                let count = of_family.samples[&(format!("{name}_count"), labels.collect())];
                assert_eq!(count, spread.count as f64, "{name}");
            },
            other => panic!("{other:?}"),
        }
    }
    let answered = page.number(
        "warmline_calls_total",
        &[("server", LEDGER), ("delivery", "answered")],
    );
    assert!(answered >= 6.0, "{answered}");
    world.finish().await;
}

fn metric_of(name: &str) -> &'static warmline_engine::metrics::Metric {
    warmline_engine::metrics::Metric::find(name).unwrap()
}

/// reliability T20, reliability T9: however many identities, runs and clients there are, and
/// whatever they send, the page has the same series, and none of their names.
#[tokio::test]
async fn no_caller_makes_a_series() {
    let names: Vec<String> = (0..20).map(|number| format!("person-{number}")).collect();
    let people: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::knowing(Personality::legacy(), |options, vault| {
        watched(known(options, vault, &people))
    })
    .await;
    let mut before = BTreeSet::new();
    for (place, name) in names.iter().enumerate() {
        let path = format!("/runs/run-of-{name}/servers/{LEDGER}/mcp");
        let more = bearer(name);
        let client = Legacy::greet_with(&world, &path, "2025-11-25", json!({}), more).await;
        client.count().await;
        client.call(&format!("tool-of-{name}"), json!({})).await;
        let odd = json!({ "jsonrpc": "2.0", "id": 1, "method": format!("made-up/{name}") });
        client.post(&odd).await.whole().await;
        let series = scraped(&world.gateway).await.series();
        if place > 0 {
            assert_eq!(series, before, "{name}");
        }
        before = series;
    }
    let allowed = [
        "server", "le", "outcome", "state", "result", "cause", "dialect", "why", "scope", "reason",
        "delivery", "method", "code", "how", "op", "face", "status", "then", "kind", "version",
    ];
    for (name, labels) in &before {
        for (label, value) in labels {
            assert!(allowed.contains(&label.as_str()), "{name} {label}");
            assert!(!value.contains("person"), "{name} {value}");
        }
    }
    for path in ["/metrics", "/servers", "/readyz"] {
        let (_, text) = page(&world.gateway, path).await;
        let holds = !text.contains("person") && !text.contains("run-of");
        assert!(holds, "{text}");
    }
    world.finish().await;
}

/// P101: while a server fails that is required, nothing more should be sent here; any other one
/// makes nobody unready.
#[tokio::test]
async fn a_required_server_that_fails_makes_the_gateway_unready() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let needed = Server::http(LEDGER, server.url()).required(true);
    let (warm, gateway) = watched_gateway([needed]).await;
    let met = server.ledger().messages_received("initialize");
    assert_eq!(met, 1, "it was met before anybody called");
    let (status, ready) = json_of(&gateway, "/readyz").await;
    assert_eq!((status, &ready["ready"]), (200, &json!(true)), "{ready}");
    drop(server);
    let run = warm.named_run("trip").unwrap();
    let tried = run.server(LEDGER).unwrap().call("counter", json!({})).await;
    assert!(tried.is_err());
    let (status, ready) = json_of(&gateway, "/readyz").await;
    let found = (status, &ready["why"]);
    assert_eq!(found, (503, &json!("required")), "{ready}");
    gateway.stop().await;
    let refused = Gateway::start(warm.clone(), local()).await.unwrap_err();
    assert!(
        matches!(refused, StartError::RequiredServer(ref error) if error.server() == Some(LEDGER))
    );
    warm.close().await;
}

/// reliability O8, A95: each server with what it is, how it stands, what went wrong last and when
/// it is tried again.
#[tokio::test]
async fn the_page_of_servers_says_how_each_one_stands() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let (warm, gateway) = watched_gateway([
        Server::http(LEDGER, server.url()),
        Server::http("dead", "http://127.0.0.1:1/mcp?key=hidden-query"),
        Server::http("never", "http://127.0.0.1:1/mcp"),
    ])
    .await;
    let run = warm.named_run("r").unwrap();
    count(&run.server(LEDGER).unwrap()).await;
    let dead = run.server("dead").unwrap();
    for _ in 0..6 {
        dead.ping().await.unwrap_err();
    }
    let (status, said) = json_of(&gateway, "/servers").await;
    assert_eq!(status, 200);
    let [dead, ledger, never] = said["servers"].as_array().unwrap().as_slice() else {
        panic!("{said}");
    };
    assert_eq!(ledger["state"], "ok", "{said}");
    assert_eq!(ledger["transport"], "http");
    assert_eq!(ledger["eras"], json!(["legacy"]));
    assert_eq!(ledger["keeps_session"], true);
    assert_eq!(ledger["sessions"], 1);
    assert_eq!(never["state"], "untried");
    assert_eq!(dead["state"], "breaker-open", "{said}");
    assert!(dead["retry_in_ms"].as_u64().unwrap() > 0, "{said}");
    let failure = &dead["last_failure"];
    assert_eq!(failure["code"], "cannot-reach", "{said}");
    assert!(failure["in_a_row"].as_u64().unwrap() >= 5, "{said}");
    assert!(failure["at"].as_u64().unwrap() > 1_700_000_000, "{said}");
    let holds = failure["what"].is_null();
    assert!(holds, "strangers get words of ours: {said}");
    assert!(!said.to_string().contains("hidden-query"));
    run.end().await;
    gateway.stop().await;
    warm.close().await;
}

/// reliability O8: who is ill is known from the calls that find it so; nobody has to open a session.
#[tokio::test]
async fn a_server_that_calls_find_dead_is_ill_and_well_again_when_one_is_answered() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let (warm, gateway) = watched_gateway([Server::http(LEDGER, server.url())]).await;
    let run = warm.named_run("r").unwrap();
    let ledger = run.server(LEDGER).unwrap();
    count(&ledger).await;
    server.stop();
    ledger.call("counter", json!({})).await.unwrap_err();
    let (_, said) = json_of(&gateway, "/servers").await;
    let shown = &said["servers"][0];
    assert_eq!(shown["state"], "degraded", "{said}");
    assert_eq!(shown["last_failure"]["reason"], "connect-refused", "{said}");
    server.start_again().unwrap();
    count(&ledger).await;
    let (_, said) = json_of(&gateway, "/servers").await;
    assert_eq!(said["servers"][0]["state"], "ok", "{said}");
    run.end().await;
    gateway.stop().await;
    warm.close().await;
}

/// Every metric of the gateway is there, with numbers that can be.
fn has_all_of_ours(page: &Scraped) {
    assert!(page.number("warmline_memory_bytes", &[]) > 1e6);
    assert!(page.number("warmline_fds", &[]) > 1.0);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    assert_eq!(page.number("warmline_build_info", &version), 1.0);
    for metric in warmline_gateway::METRICS {
        let family = &page.families[&format!("warmline_{}", metric.name)];
        assert!(!family.samples.is_empty(), "{}", metric.name);
    }
}

/// The door counts every request once: by era and status, and by why it went no further.
#[tokio::test]
async fn every_request_is_counted_once_and_what_is_refused_by_its_reason() {
    let world = World::knowing(Personality::legacy(), |options, vault| {
        let mut options = watched(GatewayOptions {
            max_request: 1_000,
            ..known(options, vault, &["alice"])
        });
        options.limits.max_auth_failures_per_minute = 2;
        options
    })
    .await;
    let at = world.gateway.address();
    let alice = ("Authorization", "Bearer token-of-alice");
    let json = ("Content-Type", "application/json");
    let large = "x".repeat(2_000);
    let greeting = initialize("2025-11-25", json!({})).to_string();
    let modern = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let version = ("MCP-Protocol-Version", "2026-07-28");
    #[rustfmt::skip]
    let cases = [
        ("POST", PATH, vec![json, alice], greeting.as_str(), 200),
        ("POST", PATH, vec![json, alice, version], modern.as_str(), 400),
        ("POST", PATH, vec![json, alice], "{", 400),
        ("POST", PATH, vec![json, alice], large.as_str(), 413),
        ("POST", PATH, vec![("Content-Type", "text/plain"), alice], "{}", 415),
        ("POST", "/nothing", vec![json, alice], "{}", 404),
        ("POST", PATH, vec![json, alice, ("Origin", "http://evil.example")], "{}", 403),
        ("POST", PATH, vec![json], "{}", 401),
        ("POST", PATH, vec![json, ("Authorization", "Bearer x")], "{}", 401),
        ("POST", PATH, vec![json, ("Authorization", "Bearer x")], "{}", 429),
    ];
    let number = cases.len() as f64;
    for (method, path, headers, body, status) in cases {
        let response = request(at, method, path, &headers, body).await;
        assert_eq!(response.status, status, "{path} {headers:?} {body}");
    }
    let page = scraped(&world.gateway).await;
    let requests = |face: &str, status: &str| {
        let labels = [("face", face), ("status", status)];
        page.number("warmline_gateway_requests_total", &labels)
    };
    assert_eq!(requests("legacy", "2xx"), 1.0);
    assert_eq!(requests("modern", "4xx"), 1.0);
    assert_eq!(requests("none", "4xx"), number - 2.0);
    for reason in [
        "too-large",
        "head",
        "path",
        "origin",
        "no-token",
        "unknown-token",
        "strangers",
    ] {
        let refused = page.number("warmline_gateway_refused_total", &[("reason", reason)]);
        assert_eq!(refused, 1.0, "{reason}");
    }
    has_all_of_ours(&page);
    world.finish().await;
}

/// What stands in the log of faults, at a level.
fn told<'b>(lines: &'b [String], level: &str) -> Vec<&'b String> {
    let of_level = lines.iter().filter(|line| line.starts_with(level));
    of_level
        .filter(|line| line.contains("request refused") || line.contains("call failed"))
        .collect()
}

/// reliability O25, reliability T9: what is wrong with a request is one line, with its reason and
/// without what was sent; the same again is only counted.
#[tokio::test]
async fn a_fault_of_a_client_is_one_line() {
    let (book, _guard) = Logbook::open();
    let world = World::declared(Personality::legacy(), |server| server, &["alice"]).await;
    let at = world.gateway.address();
    let json = ("Content-Type", "application/json");
    let alice = ("Authorization", "Bearer token-of-alice");
    for (headers, body, level, said) in [
        (
            vec![json, alice],
            "{\"secret-body",
            "INFO",
            "reason=\"message\" status=400 code=-32700",
        ),
        (vec![json], "{}", "INFO", "reason=\"no-token\" status=401"),
        (
            vec![json, ("Authorization", "Bearer secret-token")],
            "{}",
            "WARN",
            "reason=\"unknown-token\" status=401",
        ),
        (
            vec![json, alice, ("Origin", "http://evil.example")],
            "{}",
            "WARN",
            "reason=\"origin\" status=403",
        ),
    ] {
        let before = told(&book.lines(), level).len();
        for _ in 0..3 {
            request(at, "POST", PATH, &headers, body).await;
        }
        let lines = book.lines();
        let new = told(&lines, level);
        assert_eq!(new.len(), before + 1, "{said}: {new:#?}");
        assert!(new.last().unwrap().contains(said), "{new:#?}");
    }
    assert_eq!(told(&book.lines(), "DEBUG").len(), 8);
    let all = book.lines().join("\n");
    assert!(!all.contains("secret-"), "{all}");
    world.finish().await;
}

/// reliability O23: a call of which nobody knows whether it ran is a warning, once; one that was
/// answered, or whose opening has a line already, is none.
#[tokio::test]
async fn a_call_that_may_have_run_is_a_warning() {
    let (book, _guard) = Logbook::open();
    let world = world().await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    client.count().await;
    client.call("fail", json!({})).await;
    client.call("no-such-tool", json!({})).await;
    assert!(told(&book.lines(), "WARN").is_empty());
    let cut = FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Fin));
    world.inject(cut.on_tool("pay"));
    let lost = client.call("pay", json!({ "amount": 1 })).await;
    assert_eq!(lost["error"]["code"], 7503, "{lost}");
    let lines = book.lines();
    let warned = told(&lines, "WARN");
    assert_eq!(warned.len(), 1, "{warned:#?}");
    for field in [
        "server=\"ledger\"",
        "delivery=\"unknown\"",
        "method=\"tools/call\"",
    ] {
        assert!(warned[0].contains(field), "{warned:#?}");
    }
    world.finish().await;
}
