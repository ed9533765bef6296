//! What is refused at the door, and whether its connection may be used again.

use crate::prelude::*;

use super::raw_client::{Reply, initialize, post, reply, send};

const ALICE: (&str, &str) = ("Authorization", "Bearer token-of-alice");

async fn world() -> World {
    World::knowing(Personality::legacy(), |options, vault| {
        let mut options = watched(known(options, vault, &["alice"]));
        options.max_request = 4 << 10;
        options.limits.max_head = 16 << 10;
        options
    })
    .await
}

/// A request that leaves its connection open.
fn staying(headers: &[(&str, &str)]) -> String {
    post(PATH, headers, &initialize()).replace("Connection: close\r\n", "")
}

/// Sends a text and reads one answer; the connection is left as it is.
async fn one(socket: &mut TcpStream, text: &str) -> Reply {
    socket.write_all(text.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    loop {
        let so_far = reply(&read);
        let length = so_far.header("content-length");
        let length: Option<usize> = length.and_then(|length| length.parse().ok());
        if so_far.status > 0 && length == Some(so_far.body.len()) {
            return so_far;
        }
        assert!(socket.read_buf(&mut read).await.unwrap() > 0, "{so_far:?}");
    }
}

/// A refusal whose request came whole leaves its connection as it was.
#[tokio::test]
async fn a_connection_goes_on_after_a_refusal() {
    let world = world().await;
    let mut socket = TcpStream::connect(world.gateway.address()).await.unwrap();
    let evil = [ALICE, ("Origin", "http://evil.example")];
    let text = staying(&[ALICE]).replace("application/json\r\nAccept", "text/plain\r\nAccept");
    for (text, status) in [
        (staying(&[]), 401),
        (staying(&evil), 403),
        (text, 415),
        (staying(&[ALICE]), 200),
    ] {
        let reply = one(&mut socket, &text).await;
        assert_eq!((reply.status, reply.header("connection")), (status, None));
    }
    world.finish().await;
}

/// A refusal whose request is not read to its end says that its connection ends with it: no
/// client takes it for a connection that can be used again.
#[tokio::test]
async fn a_refusal_that_leaves_something_unread_closes_its_connection_and_says_so() {
    let world = world().await;
    let unfinished = |headers: &[(&str, &str)], length: usize| {
        let text = staying(headers);
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        let lines = head
            .lines()
            .filter(|line| !line.starts_with("Content-Length"));
        let lines: Vec<_> = lines.collect();
        format!(
            "{}\r\nContent-Length: {length}\r\n\r\n{{",
            lines.join("\r\n")
        )
    };
    let evil = [ALICE, ("Origin", "http://evil.example")];
    let expecting = [("Expect", "100-continue")];
    for (text, status) in [
        (unfinished(&[], 1000), 401),
        (unfinished(&expecting, 1000), 401),
        (unfinished(&evil, 1000), 403),
        (unfinished(&[ALICE], 100_000_000), 413),
        (unfinished(&[ALICE], 5 << 10), 413),
    ] {
        let reply = send(world.gateway.address(), &text).await;
        let told = (reply.status, reply.header("connection"));
        assert_eq!(told, (status, Some("close")), "{text}");
        assert_eq!(reply.json()["error"]["code"], -32600, "{reply:?}");
    }
    world.finish().await;
}

/// Two readers of a header that stands there twice would see two requests.
#[tokio::test]
async fn a_header_that_counts_stands_there_once() {
    let world = world().await;
    let at = world.gateway.address();
    for (name, value, other) in [
        ("Origin", "http://localhost", "http://evil.example"),
        ("Mcp-Session-Id", "one", "two"),
        ("MCP-Protocol-Version", "2025-11-25", "2026-07-28"),
    ] {
        for second in [value, other] {
            let headers = [ALICE, (name, value), (name, second)];
            let reply = send(at, &post(PATH, &headers, &initialize())).await;
            assert_eq!(reply.status, 400, "{name}: {reply:?}");
            assert_eq!(reply.json()["error"]["code"], -32600, "{name}");
        }
    }
    assert_eq!(world.received("initialize"), 0);
    world.finish().await;
}

/// The limit of a head is met to the byte, and whoever goes over it is told, counted and logged.
#[tokio::test]
async fn a_head_may_be_as_large_as_it_is_configured_and_no_larger() {
    let (book, _guard) = Logbook::open();
    let world = world().await;
    let at = world.gateway.address();
    let padded = |size: usize| {
        let text = post(PATH, &[ALICE, ("X-Pad", "")], &initialize());
        let head = text.find("\r\n\r\n").unwrap() + 4;
        text.replace("X-Pad: ", &format!("X-Pad: {}", "a".repeat(size - head)))
    };
    assert_eq!(send(at, &padded(16 << 10)).await.status, 200);
    let reply = send(at, &padded((16 << 10) + 1)).await;
    assert_eq!((reply.status, &*reply.body), (431, ""));
    let page = scraped(&world.gateway).await;
    let refused = page.number("warmline_gateway_refused_total", &[("reason", "head")]);
    assert_eq!(refused, 1.0);
    let labels = [("face", "none"), ("status", "4xx")];
    assert_eq!(page.number("warmline_gateway_requests_total", &labels), 1.0);
    let preface = send(at, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert_eq!(
        preface.status, 0,
        "who speaks HTTP/2 would not read an answer"
    );
    let page = scraped(&world.gateway).await;
    let refused = page.number("warmline_gateway_refused_total", &[("reason", "head")]);
    assert_eq!(refused, 2.0);
    let refused = book.lines_with("request refused");
    let too_large = refused.iter().filter(|line| line.contains("431"));
    assert_eq!(too_large.count(), 1, "{refused:?}");
    world.finish().await;
}
