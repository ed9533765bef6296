//! The server behind TLS.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use warmline_testkit::{LedgerServer, Personality};

#[test]
fn a_server_with_a_certificate_speaks_tls() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    let server = LedgerServer::start_tls(Personality::legacy(), Arc::new(server)).unwrap();
    assert!(server.url().starts_with("https://localhost:"));

    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(client), name).unwrap();
    let socket = std::net::TcpStream::connect(server.address()).unwrap();
    let mut tls = StreamOwned::new(connection, socket);
    tls.write_all(b"GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut first = [0; 12];
    tls.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 404");
}
