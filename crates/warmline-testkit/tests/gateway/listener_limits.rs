//! The door under attack: limits, slow clients, malformed requests and TLS.

use crate::prelude::*;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use warmline_gateway::TlsFiles;

use super::raw_client::{call, initialize, post, send, send_on};

async fn limited(change: impl FnOnce(&mut ListenerLimits)) -> World {
    World::knowing(Personality::legacy(), |options, vault| {
        let mut options = watched(known(options, vault, &["alice"]));
        change(&mut options.limits);
        options
    })
    .await
}

fn greeting() -> String {
    let shown = [("Authorization", "Bearer token-of-alice")];
    post(PATH, &shown, &initialize())
}

/// P43, reliability T16, reliability F83: over a limit of connections the answer is no, at once, and a
/// place that is left is free again.
#[tokio::test]
async fn connections_of_one_address_have_a_limit() {
    let world = limited(|limits| limits.max_connections_per_address = 2).await;
    let at = world.gateway.address();
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut socket = TcpStream::connect(at).await.unwrap();
        // It has its place once it is heard.
        socket
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .await
            .unwrap();
        assert!(socket.read(&mut [0; 64]).await.unwrap() > 0);
        held.push(socket);
    }
    let full = send(at, &greeting()).await;
    // The answer may be cut off by what we did not read of it.
    assert!(matches!(full.status, 503 | 0), "{full:?}");
    drop(held);
    let mut status = 0;
    for _ in 0..200 {
        status = send(at, &greeting()).await.status;
        if status == 200 {
            break;
        }
    }
    assert_eq!(status, 200);
    world.finish().await;
}

/// P43, reliability T16: who guesses at tokens is stopped, and who has one is not.
#[tokio::test]
async fn strangers_are_stopped_and_known_callers_are_not() {
    let world = limited(|limits| limits.max_auth_failures_per_minute = 3).await;
    let at = world.gateway.address();
    for number in 0..6 {
        let guess = format!("Bearer guess-{number}");
        let reply = send(at, &post(PATH, &[("Authorization", &guess)], &initialize())).await;
        assert_eq!(reply.status, if number < 3 { 401 } else { 429 });
        assert_eq!(reply.header("retry-after"), (number >= 3).then_some("60"));
        assert_eq!(send(at, &greeting()).await.status, 200);
    }
    world.finish().await;
}

/// The same request, of a size that nobody knows before its end.
fn chunked(request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    let head = head.replace(&length, "Transfer-Encoding: chunked");
    format!("{head}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
}

/// reliability T16: too much to do is said early, with when to come back, and nothing of it reaches
/// a server.
#[tokio::test]
async fn an_overloaded_gateway_says_so_early() {
    for change in [
        (|limits: &mut ListenerLimits| limits.max_requests = 1) as fn(&mut ListenerLimits),
        |limits| limits.max_request_bytes = 1 << 10,
    ] {
        let world = limited(change).await;
        let at = world.gateway.address();
        let whole = chunked(&greeting());
        let (first, last) = whole.split_at(whole.len() - 1);
        let mut slow = TcpStream::connect(at).await.unwrap();
        slow.write_all(first.as_bytes()).await.unwrap();
        let mut shed = send(at, &greeting()).await;
        for _ in 0..200 {
            if shed.status == 503 {
                break;
            }
            shed = send(at, &greeting()).await;
        }
        assert_eq!((shed.status, shed.header("retry-after")), (503, Some("1")));
        let rest = send_on(slow, last).await;
        assert_eq!(rest.status, 200, "what was begun goes on");
        assert_eq!(send(at, &greeting()).await.status, 200);
        world.finish().await;
    }
}

/// reliability F83: who is slow with the head or with the body is told, counted, and has a line in
/// the log; who says nothing at all is just left.
#[tokio::test]
async fn slow_clients_are_told_and_left() {
    let (book, _guard) = Logbook::open();
    let soon = Duration::from_millis(200);
    let world = limited(|limits| {
        limits.head_timeout = soon;
        limits.body_timeout = soon;
        limits.idle_timeout = soon;
    })
    .await;
    let at = world.gateway.address();
    let whole = greeting();
    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
    let (begun, _) = head.split_at(40);
    let silent = send(at, "").await;
    assert_eq!((silent.status, &*silent.head), (0, ""));
    let (some, _) = body.split_at(10);
    let resting = whole.replace("Connection: close\r\n", "");
    let rested = send(at, &resting).await;
    assert_eq!(rested.status, 200);
    assert_eq!(rested.body.matches("HTTP/1.1").count(), 0, "{rested:?}");
    for slow in [begun.to_owned(), format!("{head}\r\n\r\n{some}")] {
        let told = send(at, &slow).await;
        assert_eq!(told.status, 408, "{slow}");
        assert_eq!(told.json()["error"]["code"], -32600);
        assert_eq!(told.header("connection"), Some("close"));
    }
    let page = scraped(&world.gateway).await;
    let refused = page.number("warmline_gateway_refused_total", &[("reason", "too-slow")]);
    assert_eq!(refused, 2.0);
    let told = book.lines_with("reason=\"too-slow\" status=408");
    assert_eq!(told.len(), 2, "{:#?}", book.lines());
    world.finish().await;
}

/// A head with these headers.
fn with(headers: &str) -> String {
    format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer token-of-alice\r\n\
         Content-Type: application/json\r\n{headers}\r\n\r\n"
    )
}

/// A request of one meaning at most: what is wrong with it, the request, and what it may get.
type Unclear = (&'static str, String, &'static [u16]);

/// Requests whose bodies end in two ways.
fn that_end_twice() -> Vec<Unclear> {
    let body = call("counter", &json!({})).to_string();
    let pieces = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let rows = [
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6"),
        ("one length twice", "Content-Length: 5\r\nContent-Length: 5"),
        ("no number", "Content-Length: +5"),
        (
            "a length and pieces",
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
        ),
        (
            "pieces and a length",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
        ),
        (
            "pieces twice",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ),
        ("pieces of pieces", "Transfer-Encoding: chunked, chunked"),
        ("packed pieces", "Transfer-Encoding: gzip, chunked"),
        ("pieces as they are", "Transfer-Encoding: identity, chunked"),
        ("no pieces", "Transfer-Encoding: xchunked"),
    ];
    let rows = rows.map(|(what, headers)| (what, with(headers) + &pieces, &[400][..]));
    rows.into()
}

/// reliability T8, reliability F81: a request that two readers could read differently is refused,
/// and its connection is closed.
#[tokio::test]
async fn a_request_that_could_be_read_in_two_ways_is_refused() {
    let world = limited(|_| {}).await;
    let at = world.gateway.address();
    let large = format!("X-Large: {}", "a".repeat(64 << 10));
    let mut rows: Vec<Unclear> = vec![
        (
            "unknown coding",
            with("Transfer-Encoding: gzip"),
            &[400, 501],
        ),
        ("folded", with("X-A: b\r\n c"), &[400]),
        ("bare name", with("X-A"), &[400]),
        ("blank before the colon", with("X-A : b"), &[400]),
        ("large head", with(&large), &[431, 0]),
        ("two hosts", with("Host: localhost"), &[400]),
        ("large body", with("Content-Length: 99999999"), &[413]),
        ("no version", "GET /\r\n\r\n".to_owned(), &[400]),
        ("no HTTP", "\u{16}\u{3}\u{1}\r\n\r\n".to_owned(), &[400, 0]),
    ];
    rows.extend(that_end_twice());
    let mut own_responses = 0;
    for (what, text, statuses) in rows {
        let reply = send(at, &text).await;
        assert!(statuses.contains(&reply.status), "{what}: {reply:?}");
        // A head that hyper cannot parse gets its bare response.
        if !reply.body.is_empty() {
            own_responses += 1;
            assert_eq!(reply.json()["error"]["code"], -32600, "{what}: {reply:?}");
            assert_eq!(reply.header("connection"), Some("close"), "{what}");
            let kind = reply.header("content-type");
            assert_eq!(kind, Some("application/json"), "{what}");
        }
    }
    assert_eq!(own_responses, 9);
    assert_eq!(world.server.counts().requests, 0, "nothing reached it");
    world.finish().await;
}

/// reliability F81: what follows a request that ends in two ways is not heard, nor is one behind
/// others on its connection; and requests in pieces may follow each other.
#[tokio::test]
async fn a_request_that_ends_twice_is_the_last_on_its_connection() {
    let world = limited(|_| {}).await;
    let at = world.gateway.address();
    let plain = greeting().replace("Connection: close\r\n", "");
    let in_pieces = chunked(&plain);
    for (what, twice, _) in that_end_twice() {
        let all = [&*plain, &in_pieces, &in_pieces, &plain, &twice, &plain].concat();
        let mut socket = TcpStream::connect(at).await.unwrap();
        socket.write_all(all.as_bytes()).await.unwrap();
        let mut read = String::new();
        // The rest of what was sent is not read, so the connection may be reset.
        socket.read_to_string(&mut read).await.ok();
        let answers = read.matches("HTTP/1.1 ").count();
        assert_eq!(read.matches("HTTP/1.1 200").count(), 4, "{what}: {read}");
        assert_eq!(read.matches("HTTP/1.1 400").count(), 1, "{what}: {read}");
        assert_eq!(answers, 5, "{what}: {read}");
    }
    world.finish().await;
}

/// reliability T7: pages of elsewhere, and names that lead here by rebinding, are refused before
/// anybody is asked for a token.
#[tokio::test]
async fn pages_of_elsewhere_are_refused() {
    let world = limited(|_| {}).await;
    let at = world.gateway.address();
    for (host, origin, status) in [
        ("localhost", None, 200),
        ("127.0.0.1:8484", Some("http://localhost:3000"), 200),
        ("localhost", Some("https://evil.example"), 403),
        ("evil.example", None, 403),
        ("127.0.0.1:80@evil.example", None, 403),
        ("localhost@evil.example", None, 403),
        ("[::1]evil.example", None, 403),
        ("localhost", Some("null"), 403),
    ] {
        let text = greeting().replace("Host: localhost", &format!("Host: {host}"));
        let text = match origin {
            Some(origin) => text.replacen("\r\n", &format!("\r\nOrigin: {origin}\r\n"), 1),
            None => text,
        };
        let reply = send(at, &text).await;
        assert_eq!(reply.status, status, "{host} {origin:?}");
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    // A whole address in the first line counts before the Host beside it.
    for (named, status) in [
        ("localhost", 200),
        ("127.0.0.1:8484", 200),
        ("evil.example", 403),
        ("localhost@evil.example", 403),
    ] {
        let text = greeting().replacen(PATH, &format!("http://{named}{PATH}"), 1);
        assert_eq!(send(at, &text).await.status, status, "{named}");
    }
    world.finish().await;
}

fn write_certificate(folder: &Path) -> (TlsFiles, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: folder.join("certificate.pem"),
        key: folder.join("key.pem"),
    };
    fs::write(&files.certificate, made.cert.pem()).unwrap();
    fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    (files, made.cert.der().clone())
}

async fn secure(world: &World, trusted: &CertificateDer<'static>) -> Option<u16> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let socket = TcpStream::connect(world.gateway.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connected = TlsConnector::from(Arc::new(config))
        .connect(name, socket)
        .await;
    Some(send_on(connected.ok()?, &greeting()).await.status)
}

/// reliability T22: a listener with a certificate speaks TLS alone, and shows a new certificate
/// without being started again; one that cannot be used does not replace one that can.
#[tokio::test]
async fn a_certificate_is_read_again_when_it_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (files, first) = write_certificate(folder.path());
    let tls = files.clone();
    let world = World::knowing(Personality::legacy(), |options, vault| GatewayOptions {
        tls: Some(tls),
        ..known(options, vault, &["alice"])
    })
    .await;
    assert_eq!(secure(&world, &first).await, Some(200));
    let plain = send(world.gateway.address(), &greeting()).await;
    assert_eq!(plain.status, 0, "nothing is said in the clear");
    fs::write(&files.key, "no key").unwrap();
    pass(Duration::from_secs(2)).await;
    assert_eq!(secure(&world, &first).await, Some(200), "the old one stays");
    let (_, second) = write_certificate(folder.path());
    pass(Duration::from_secs(2)).await;
    assert_eq!(secure(&world, &second).await, Some(200));
    assert_eq!(secure(&world, &first).await, None);
    world.finish().await;
}

/// A certificate that cannot be used is told at the start.
#[tokio::test]
async fn a_listener_without_a_usable_certificate_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let (files, _) = write_certificate(folder.path());
    fs::write(&files.certificate, "nothing").unwrap();
    let warm = Warmline::builder().build().unwrap();
    let options = GatewayOptions {
        tls: Some(files),
        ..local()
    };
    let refused = Gateway::start(warm.clone(), options).await;
    assert!(matches!(refused, Err(StartError::Tls(_))), "{refused:?}");
    warm.close().await;
}
