//! TLS of the listener: certificate and key from files, read again when they changed.
//!
//! Asked by: [`door`](crate::door), for every connection. A certificate is renewed every few
//! weeks by somebody who does not know of us; one that cannot be read does not replace one that
//! can.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use warmline::clock::{self, Instant};
use warmline::private;

/// A client may take so long for the handshake.
const WITHIN: Duration = Duration::from_secs(10);
/// Files are looked at again so often at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The files of a TLS listener, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that lead to its root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Takes TLS connections.
pub(crate) struct Acceptor {
    files: TlsFiles,
    held: Mutex<Held>,
}

struct Held {
    acceptor: TlsAcceptor,
    look: Look,
    looked_at: Instant,
}

/// What the two files look like from outside.
type Look = [Option<(SystemTime, u64)>; 2];

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Acceptor {
    /// One that shows what the files hold now.
    pub(crate) fn new(files: TlsFiles) -> Result<Self, String> {
        let look = look(&files);
        let held = Held {
            acceptor: read(&files).map_err(Unusable::why)?,
            look,
            looked_at: clock::now(),
        };
        Ok(Self {
            files,
            held: Mutex::new(held),
        })
    }

    /// The handshake of one connection.
    pub(crate) async fn accept<I>(&self, socket: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = self.current().accept(socket);
        match clock::timeout(WITHIN, accepting).await {
            Ok(accepted) => accepted,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn current(&self) -> TlsAcceptor {
        let mut held = self.held.lock();
        let now = clock::now();
        if now.saturating_duration_since(held.looked_at) >= LOOK_EVERY {
            held.looked_at = now;
            let seen = look(&self.files);
            if seen != held.look {
                self.renew(&mut held, seen);
            }
        }
        held.acceptor.clone()
    }

    fn renew(&self, held: &mut Held, seen: Look) {
        held.look = seen;
        let certificate = self.files.certificate.display();
        match read(&self.files).map_err(Unusable::why) {
            Ok(acceptor) => {
                held.acceptor = acceptor;
                tracing::info!(%certificate, "the certificate was read again");
            },
            Err(why) => {
                let what = "a new certificate cannot be used; the old one stays";
                tracing::warn!(%certificate, %why, "{what}");
            },
        }
    }
}

fn look(files: &TlsFiles) -> Look {
    [&files.certificate, &files.key].map(|file| {
        let seen = fs::metadata(file).ok()?;
        Some((seen.modified().ok()?, seen.len()))
    })
}

/// The one of the two files that cannot be used, and why.
pub(crate) enum Unusable {
    Certificate(String),
    Key(String),
}

impl Unusable {
    pub(crate) fn why(self) -> String {
        match self {
            Self::Certificate(why) | Self::Key(why) => why,
        }
    }
}

/// Whether the files can be used as they are now.
pub(crate) fn check(files: &TlsFiles) -> Result<(), Unusable> {
    read(files).map(drop)
}

fn read(files: &TlsFiles) -> Result<TlsAcceptor, Unusable> {
    let certificates = certificates(&files.certificate).map_err(Unusable::Certificate)?;
    let key = key(&files.key).map_err(Unusable::Key)?;
    acceptor(certificates, key).map_err(|error| {
        Unusable::Key(format!(
            "`{}` cannot be used with `{}`: {error}",
            files.key.display(),
            files.certificate.display()
        ))
    })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = text_of(file)?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| told(file, &error))?;
    if certificates.is_empty() {
        return Err(format!("`{}` holds no certificate", file.display()));
    }
    Ok(certificates)
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let text = text_of(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| told(file, &error))
}

fn acceptor(
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<TlsAcceptor, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A file of certificates or of a key is no larger.
const MOST_BYTES: u64 = 1 << 20;

fn text_of(file: &Path) -> Result<Vec<u8>, String> {
    private::read_named(file, MOST_BYTES).map_err(|error| told(file, &error))
}

fn told(file: &Path, error: &dyn fmt::Display) -> String {
    format!("`{}` cannot be used: {error}", file.display())
}
