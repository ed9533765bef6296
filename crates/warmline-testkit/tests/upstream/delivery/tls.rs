//! TLS: a CA of our own works, and everything that does not hold leaves the request unsent with
//! its cause named (D15, D16).

use crate::prelude::*;

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio_rustls::TlsAcceptor;

use super::fixture::Expected::{Result, Unsent};

/// A certificate authority, and the file in which people name it.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
    _folder: TempDir,
}

impl Authority {
    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, certificate.pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            file,
            _folder: folder,
        }
    }

    /// What a server shows that has this name until that year.
    pub(crate) fn server(&self, name: &str, until: i32) -> Arc<ServerConfig> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let chain = vec![CertificateDer::from(certificate.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        Arc::new(config)
    }
}

impl Authority {
    /// Has a client trust it alone.
    pub(crate) fn is_trusted_by(&self, setting: &mut Setting) {
        if let TransportConfig::Http(reach) = &mut setting.known_as.transport {
            reach.ca_file = Some(self.file.clone());
        }
    }
}

/// A setting whose client trusts this authority alone.
fn trusting(authority: &Authority, tls: Arc<ServerConfig>, era: Era) -> Setting {
    let personality = personality_of(era);
    let mut setting = Setting::around(LedgerServer::start_tls(personality, tls).unwrap(), era);
    authority.is_trusted_by(&mut setting);
    setting
}

/// A152: the certificates that a declaration names are the ones that count.
#[tokio::test]
async fn a_server_under_our_own_authority_is_reached_over_kept_connections() {
    let authority = Authority::named("ours");
    for era in [Era::Legacy, Era::Modern] {
        let setting = trusting(&authority, authority.server("localhost", 2090), era);
        for number in 0..5 {
            let outcome = setting.pay(&format!("safe {number}"), &()).await;
            outcome.ends(Result);
        }
        assert_eq!(setting.server.counts().connections, 1);
        // The connection that rested is found dead under TLS as well.
        setting.server.stop();
        setting.server.start_again().unwrap();
        let outcome = setting.pay("replaced", &()).await;
        outcome.ends(Result);
        setting.finish().await;
    }
}

/// A33, A152: TLS that fails is told as such.
#[tokio::test]
async fn a_certificate_that_does_not_hold_gives_no_session_and_says_why() {
    let (authority, other) = (Authority::named("ours"), Authority::named("theirs"));
    let table = [
        (
            "wrong authority",
            other.server("localhost", 2090),
            "unknown issuer",
        ),
        (
            "wrong name",
            authority.server("elsewhere.example", 2090),
            "not valid for name",
        ),
        ("expired", authority.server("localhost", 2001), "expired"),
    ];
    for (case, tls, cause) in table {
        let setting = trusting(&authority, tls, Era::Legacy);
        let trouble = setting.try_open().await.unwrap_err();
        assert_eq!(trouble.reason, Reason::Tls, "{case}: {trouble:?}");
        assert_eq!(trouble.code, Code::CannotReach, "{case}: {trouble:?}");
        assert!(trouble.message.contains("`ledger`"), "{case}: {trouble}");
        let why = trouble.cause.unwrap();
        assert!(why.contains(cause), "{case}: {why}");
        assert!(setting.server.ledger().entries().is_empty(), "{case}");
        setting.finish().await;
    }
}

/// Listens where a server listened before.
fn in_its_place(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(16).unwrap()
}

/// Who stands there instead.
#[derive(Clone)]
enum Impostor {
    /// Accepts and closes.
    Closes,
    /// Reads the greeting, then resets.
    Resets,
    /// Speaks plain HTTP.
    Plain,
    /// Shows this.
    Shows(Arc<ServerConfig>),
}

async fn pose(listener: TcpListener, impostor: Impostor) {
    while let Ok((mut socket, _)) = listener.accept().await {
        match &impostor {
            Impostor::Closes => drop(socket),
            Impostor::Resets => {
                socket.readable().await.unwrap();
                socket.set_zero_linger().unwrap();
            },
            Impostor::Plain => {
                socket
                    .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    .await
                    .unwrap();
                // Held until the client has read it: what is unread at a close is reset.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                    drop(socket);
                });
            },
            Impostor::Shows(config) => {
                drop(TlsAcceptor::from(Arc::clone(config)).accept(socket).await);
            },
        }
    }
}

#[tokio::test]
async fn a_server_that_is_no_longer_safe_gets_nothing_and_the_request_comes_back() {
    let (authority, other) = (Authority::named("ours"), Authority::named("theirs"));
    let mut setting = trusting(&authority, authority.server("localhost", 2090), Era::Legacy);
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let address = setting.server.address();
    let table = [
        ("D16 closed", Impostor::Closes, Reason::TlsClosed),
        ("D16 reset", Impostor::Resets, Reason::TlsClosed),
        ("D15 plain HTTP", Impostor::Plain, Reason::Tls),
        (
            "D15 authority",
            Impostor::Shows(other.server("localhost", 2090)),
            Reason::Tls,
        ),
        (
            "D15 name",
            Impostor::Shows(authority.server("else.example", 2090)),
            Reason::Tls,
        ),
        (
            "D15 expired",
            Impostor::Shows(authority.server("localhost", 2001)),
            Reason::Tls,
        ),
    ];
    for (account, impostor, reason) in table {
        let session = setting.session().await;
        setting.server.stop();
        let posing = tokio::spawn(pose(in_its_place(address), impostor));
        let ending = session.call(payment(account), &()).await;
        let mut outcome = setting.told(account, ending);
        let expected = Unsent(reason);
        assert_eq!(outcome.ended, expected, "{account}: {:?}", outcome.trouble);
        let holds = outcome.trouble.as_ref().unwrap().cause.is_some();
        assert!(holds, "{account}");
        outcome.names_the_server(account);
        posing.abort();
        assert!(posing.await.unwrap_err().is_cancelled(), "{account}");
        setting.server.start_again().unwrap();
        setting.go_on(account, &mut outcome).await;
    }
    setting.finish().await;
}

/// A97, reliability P10: connecting has a limit, TLS included.
#[tokio::test]
async fn a_handshake_that_stalls_ends_at_the_connect_limit() {
    let authority = Authority::named("ours");
    let mut setting = trusting(&authority, authority.server("localhost", 2090), Era::Legacy);
    setting.known_as.timeouts.connect = Duration::from_millis(300);
    setting.server.stop();
    let silent = in_its_place(setting.server.address());
    let trouble = setting.try_open().await.unwrap_err();
    assert_eq!(trouble.reason, Reason::ConnectTimeout, "{trouble:?}");
    drop(silent);
    setting.finish().await;
}

#[tokio::test]
async fn a_file_of_authorities_that_cannot_be_used_says_what_is_wrong_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::named("ours");
    let mut setting = trusting(&authority, authority.server("localhost", 2090), Era::Legacy);
    let garbage =
        "-----BEGIN CERTIFICATE-----\nbm90IGEgY2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n";
    let table = [
        ("missing.pem", None),
        ("empty.pem", Some("")),
        ("garbage.pem", Some(garbage)),
    ];
    for (name, content) in table {
        let file = folder.path().join(name);
        if let Some(content) = content {
            std::fs::write(&file, content).unwrap();
        }
        if let TransportConfig::Http(reach) = &mut setting.known_as.transport {
            reach.ca_file = Some(file);
        }
        let trouble = setting.try_open().await.unwrap_err();
        assert!(trouble.message.contains(name), "{trouble}");
        assert_eq!(trouble.code.as_str(), "config-bad-value");
    }
    setting.finish().await;
}
