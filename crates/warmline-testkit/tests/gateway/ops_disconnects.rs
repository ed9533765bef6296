//! Clients that leave, or stop to read: what is counted of them.

use crate::prelude::*;

use tokio::net::TcpSocket;

use super::raw_client::{self, initialize};

const LEFT: &str = "warmline_gateway_left_calls_total";
const DROPPED: &str = "warmline_dropped_replies_total";

async fn world(personality: Personality) -> World {
    World::with(personality, |mut options| {
        options.ops = Some(([127, 0, 0, 1], 0).into());
        options.limits.stall_timeout = Duration::from_millis(100);
        options
    })
    .await
}

/// Waits until a number is this.
pub(super) async fn becomes(world: &World, name: &str, label: (&str, &str), expected: f64) {
    let number = async || scraped(&world.gateway).await.number(name, &[label]);
    let looking = async { while number().await != expected {} };
    let found = tokio::time::timeout(Duration::from_secs(20), looking).await;
    assert!(found.is_ok(), "{name} {label:?} becomes {expected}");
}

/// Waits until one call was given up. Of none is it unknown whether it ran.
async fn gave_one_up(world: &World) {
    let counted = |word: &str| {
        let snapshot = world.warm.snapshot();
        let servers = snapshot.servers.iter();
        servers
            .map(|server| server.count("calls_total", &[word]))
            .sum::<u64>()
    };
    until("one is given up", || counted("cancelled") == 1).await;
    assert_eq!(counted("unknown"), 0);
}

/// Sends a message of a client, and gives the connection back before anything is read.
pub(super) async fn ask(client: &Legacy, message: &Value) -> TcpStream {
    send(client.address, &client.path, &client.session(), message).await
}

async fn send(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    message: &Value,
) -> TcpStream {
    // As little as the system allows is taken off the gateway's hands.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut socket = socket.connect(address).await.unwrap();
    let text = raw_client::post(path, headers, message).replace("Connection: close\r\n", "");
    socket.write_all(text.as_bytes()).await.unwrap();
    socket
}

/// reliability D129: a legacy client that leaves is counted, its call goes on, and an answer that
/// nobody can come back for is counted as dropped.
#[tokio::test]
async fn a_legacy_call_goes_on_without_its_client_and_is_counted() {
    let world = world(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let asked = ask(&client, &call(5, "slow", json!({ "ms": 200 }))).await;
    world.under_way("slow", 1).await;
    drop(asked);
    becomes(&world, LEFT, ("then", "goes-on"), 1.0).await;
    becomes(&world, DROPPED, ("why", "left"), 1.0).await;
    assert_eq!(world.server.ledger().executions("slow"), 1);
    world.finish().await;
}

/// reliability D129: a modern client that leaves cancels its call, and that is counted.
#[tokio::test]
async fn a_modern_call_is_cancelled_by_leaving_and_counted() {
    let world = world(Personality::modern()).await;
    let mut message = call(5, "slow", json!({ "ms": 60_000 }));
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "by-hand", "version": "1" },
    });
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "slow"),
    ];
    let asked = send(world.gateway.address(), PATH, &headers, &message).await;
    world.under_way("slow", 1).await;
    drop(asked);
    becomes(&world, LEFT, ("then", "cancelled"), 1.0).await;
    gave_one_up(&world).await;
    world.finish().await;
}

/// reliability D129: what a client gives up, and what it only listened to, is no call of which
/// nobody knows whether it ran.
#[tokio::test]
async fn what_clients_give_up_is_counted_apart() {
    let legacy = world(Personality::legacy()).await;
    let client = Legacy::greet(&legacy, PATH, "2025-11-25", json!({})).await;
    let slow = call(5, "slow", json!({ "ms": 60_000 }));
    let asked = ask(&client, &slow).await;
    legacy.under_way("slow", 1).await;
    let given_up = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 },
    });
    let telling = ask(&client, &given_up).await;
    gave_one_up(&legacy).await;
    drop((asked, telling));
    legacy.finish().await;

    let modern = world(Personality::modern()).await;
    let listen = json!({
        "jsonrpc": "2.0", "id": 5, "method": "subscriptions/listen",
        "params": {
            "notifications": { "resourceSubscriptions": ["ledger://page/1"] },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "subscriptions/listen"),
    ];
    let asked = send(modern.gateway.address(), PATH, &headers, &listen).await;
    until("it listens", || modern.server.control().open_listens() == 1).await;
    drop(asked);
    gave_one_up(&modern).await;
    modern.finish().await;
}

/// P110, reliability D132, reliability F39: a client that reads nothing is left, and what it did not take
/// is counted; the call was answered.
#[tokio::test]
async fn a_reply_that_a_slow_reader_never_took_is_counted() {
    let world = world(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let big = call(5, "big", json!({ "bytes": 12 << 20 }));
    let asked = ask(&client, &big).await;
    becomes(&world, DROPPED, ("why", "stalled"), 1.0).await;
    assert_eq!(world.server.ledger().executions("big"), 1);
    drop(asked);
    world.finish().await;
}

/// reliability F39: however many clients read nothing, the log has one line of it in ten seconds.
#[tokio::test]
async fn clients_that_read_nothing_do_not_fill_the_log() {
    let (book, _guard) = Logbook::open();
    let world = world(Personality::legacy()).await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let began = Instant::now();
    for id in 1_i32..=3 {
        let message = call(id.into(), "big", json!({ "bytes": 4 << 20 }));
        let unread = ask(&client, &message).await;
        becomes(&world, DROPPED, ("why", "stalled"), f64::from(id)).await;
        drop(unread);
    }
    let lines = book.lines_with("client stopped reading");
    let told = |level: &str| lines.iter().filter(|line| line.starts_with(level)).count();
    let most = 1 + began.elapsed().as_secs() / 10;
    let (aloud, quietly) = (told("INFO"), told("DEBUG"));
    assert_eq!(aloud + quietly, 3, "{lines:#?}");
    assert!((1..=most).contains(&(aloud as u64)), "{lines:#?}");
    world.finish().await;
}

/// reliability O1, reliability O7: a gateway that is about to go says so before it takes nobody any
/// more: who watches it has three seconds to send requests elsewhere, and those that still come are
/// answered on connections that end with them.
#[tokio::test]
async fn who_watches_a_gateway_that_goes_has_time_to_notice() {
    let world = world(Personality::legacy()).await;
    let ops = world.gateway.ops_address().unwrap();
    let ready = async || raw_http::get(ops, "/readyz").await.status;
    assert_eq!(ready().await, 200);
    assert_eq!(world.gateway.announce_shutdown(), Duration::from_secs(3));
    assert_eq!(ready().await, 503);
    let greeting = raw_client::post(PATH, &[], &initialize()).replace("Connection: close\r\n", "");
    let reply = raw_client::send(world.gateway.address(), &greeting).await;
    let header = (reply.status, reply.header("connection"));
    assert_eq!(header, (200, Some("close")));
    world.finish().await;
}

/// reliability 8.3: a call whose client left takes up its place and its bytes until it is over,
/// whether its answer had begun or not; where there are too many, the next one is turned away.
#[tokio::test]
async fn a_call_that_goes_on_counts_until_it_is_over() {
    const UNDER_WAY: &str = "warmline_gateway_requests_under_way";
    const BYTES: &str = "warmline_buffer_bytes";
    let world = World::with(Personality::legacy(), |mut options| {
        options.ops = Some(([127, 0, 0, 1], 0).into());
        options.limits.max_requests = 2;
        options
    })
    .await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let pad = "x".repeat(64 << 10);
    let silent = call(5, "slow", json!({ "ms": 5_000, "pad": pad }));
    let asked = ask(&client, &silent).await;
    let mut told = call(
        6,
        "progress",
        json!({ "steps": 4, "pause_ms": 1_200, "pad": pad }),
    );
    told["params"]["_meta"] = json!({ "progressToken": 1 });
    let streamed = client.post(&told).await;
    assert_eq!(streamed.header("content-type"), Some("text/event-stream"));
    world.under_way("slow", 1).await;
    world.under_way("progress", 1).await;
    drop((asked, streamed));
    let held = f64::from(2 * (66_u32 << 10));
    becomes(&world, LEFT, ("then", "goes-on"), 2.0).await;
    let page = scraped(&world.gateway).await;
    assert_eq!(page.number(UNDER_WAY, &[]), 2.0);
    let bytes = page.number(BYTES, &[("kind", "requests")]);
    assert!(bytes >= held - 8_192.0, "{bytes}");
    let turned_away = client.post(&call(7, "counter", json!({}))).await;
    assert_eq!(turned_away.status, 503);
    becomes(&world, BYTES, ("kind", "requests"), 0.0).await;
    assert_eq!(client.count().await, 1);
    world.finish_with(&client).await;
}
