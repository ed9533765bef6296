//! The proxy cuts where it was told to.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use warmline_testkit::proxy::{Direction, Gate, Happening, Lane};
use warmline_testkit::{End, FaultProxy, LedgerServer, Personality};

use crate::client::{Client, Session};

/// A server that gives every byte back, and the proxy in front of it.
fn echo() -> FaultProxy {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = socket.read(&mut buffer) {
                    if socket.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    FaultProxy::start(address).unwrap()
}

fn connect(proxy: &FaultProxy) -> TcpStream {
    let socket = TcpStream::connect(proxy.address()).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket
}

/// What comes back, and how it ended.
fn read_to_end(socket: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return (all, None),
            Ok(count) => all.extend(&buffer[..count]),
            Err(error) => return (all, Some(error.kind())),
        }
    }
}

#[test]
fn bytes_pass_unharmed_and_are_counted() {
    let proxy = echo();
    let mut socket = connect(&proxy);
    socket.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    socket.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    let traffic = proxy.traffic();
    assert_eq!((traffic.connections, traffic.up, traffic.down), (1, 5, 5));
}

#[test]
fn a_connection_is_cut_after_each_number_of_bytes() {
    let proxy = echo();
    for bytes in 0..6 {
        for happening in [Happening::Fin, Happening::Rst] {
            proxy.set(Direction::Down, Lane::default().after(bytes, happening));
            let mut socket = connect(&proxy);
            let written = socket.write_all(b"hello!");
            let (back, error) = read_to_end(&mut socket);
            match happening {
                Happening::Fin => assert_eq!(back.len() as u64, bytes),
                Happening::Rst | Happening::HalfClose | Happening::Swallow => {
                    // What a reset overtakes is lost; it is told once, to the write or the read.
                    assert!(back.len() as u64 <= bytes);
                    assert!(written.is_err() || error == Some(ErrorKind::ConnectionReset));
                },
            }
        }
    }
}

#[test]
fn a_kept_connection_is_cut_in_its_next_exchange_and_once_only() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut session = Session::open(&server, json!({}));
    session.client = Client::to(proxy.address());
    assert!(session.call("echo", json!({})).whole);
    proxy.set(
        Direction::Down,
        Lane::default().after(20, Happening::Fin).once(),
    );
    assert!(!session.call("pay", json!({"amount": 1})).whole);
    assert_eq!(server.control().paid(), 1);
    session.client = Client::to(proxy.address());
    assert!(session.call("echo", json!({})).whole);
}

#[test]
fn one_direction_is_swallowed_and_the_other_lives() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut session = Session::open(&server, json!({}));
    session.client = Client::to(proxy.address());
    proxy.set(Direction::Down, Lane::default().swallow());
    std::thread::scope(|scope| {
        let lost = scope.spawn(move || session.call("pay", json!({"amount": 4})));
        while server.ledger().executions("pay") == 0 {
            std::thread::yield_now();
        }
        proxy.end_all(End::Rst);
        assert_eq!(lost.join().unwrap().status, 0);
    });
    assert_eq!(server.control().paid(), 4);
}

#[test]
fn slices_arrive_whole_and_delays_are_kept() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let mut session = Session::open(&server, json!({}));
    session.client = Client::to(proxy.address());
    proxy.set(Direction::Up, Lane::default().slice(1));
    proxy.set(Direction::Down, Lane::default().slice(3));
    let reply = session.call("echo", json!({"a": 1}));
    assert_eq!(
        reply.json()["result"]["structuredContent"]["arguments"]["a"],
        1
    );
    proxy.mend();
    proxy.set(
        Direction::Up,
        Lane::default().delay(Duration::from_millis(80)),
    );
    let start = Instant::now();
    session.call("echo", json!({}));
    assert!(start.elapsed() >= Duration::from_millis(80));
}

#[test]
fn the_gate_refuses_resets_and_keeps_silent() {
    let proxy = echo();
    proxy.gate(Gate::Reset);
    let mut socket = connect(&proxy);
    assert_eq!(read_to_end(&mut socket).1, Some(ErrorKind::ConnectionReset));
    proxy.gate(Gate::Closed);
    // The listener goes as soon as the proxy hears of it.
    while TcpStream::connect(proxy.address()).is_ok() {
        std::thread::yield_now();
    }
    proxy.gate(Gate::Open);
    let mut socket = loop {
        if let Ok(socket) = TcpStream::connect(proxy.address()) {
            break socket;
        }
        std::thread::yield_now();
    };
    socket.write_all(b"x").unwrap();
    socket.read_exact(&mut [0]).unwrap();
}
