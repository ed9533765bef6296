//! TLS of the listener: certificate and key from files, reloaded when they change.
//!
//! A certificate that cannot be used does not replace one that can.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use warmline_platform::clock::{self, Instant};
use warmline_platform::private_file;

use crate::auth::FileStamps;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The files of a TLS listener, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

pub(crate) struct ReloadingTlsAcceptor {
    files: TlsFiles,
    loaded: Mutex<LoadedCertificate>,
}

struct LoadedCertificate {
    acceptor: TlsAcceptor,
    stamps: FileStamps,
    checked_at: Instant,
}

impl ReloadingTlsAcceptor {
    pub(crate) fn new(files: TlsFiles) -> Result<Self, String> {
        let loaded = LoadedCertificate {
            stamps: files.stamps(),
            acceptor: load_acceptor(&files).map_err(TlsFileError::into_message)?,
            checked_at: clock::now(),
        };
        Ok(Self {
            files,
            loaded: Mutex::new(loaded),
        })
    }

    pub(crate) async fn accept<I>(&self, socket: I) -> io::Result<TlsStream<I>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let accepting = self.current_acceptor().accept(socket);
        match clock::timeout(HANDSHAKE_TIMEOUT, accepting).await {
            Ok(accepted) => accepted,
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    fn current_acceptor(&self) -> TlsAcceptor {
        let mut loaded = self.loaded.lock();
        let now = clock::now();
        if now.saturating_duration_since(loaded.checked_at) >= FILE_CHECK_INTERVAL {
            loaded.checked_at = now;
            let stamps = self.files.stamps();
            if stamps != loaded.stamps {
                loaded.stamps = stamps;
                self.reload(&mut loaded);
            }
        }
        loaded.acceptor.clone()
    }

    fn reload(&self, loaded: &mut LoadedCertificate) {
        let certificate = self.files.certificate.display();
        match load_acceptor(&self.files).map_err(TlsFileError::into_message) {
            Ok(acceptor) => {
                loaded.acceptor = acceptor;
                tracing::info!(%certificate, "certificate reloaded");
            },
            Err(why) => {
                let what = "the new certificate cannot be used; the old one stays";
                tracing::warn!(%certificate, %why, "{what}");
            },
        }
    }
}

impl TlsFiles {
    fn stamps(&self) -> FileStamps {
        FileStamps::read([&self.certificate, &self.key])
    }
}

pub(crate) enum TlsFileError {
    Certificate(String),
    Key(String),
}

impl TlsFileError {
    pub(crate) fn into_message(self) -> String {
        match self {
            Self::Certificate(why) | Self::Key(why) => why,
        }
    }
}

pub(crate) fn check_certificate(files: &TlsFiles) -> Result<(), TlsFileError> {
    load_acceptor(files).map(drop)
}

fn load_acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsFileError> {
    let certificates = load_certificates(&files.certificate).map_err(TlsFileError::Certificate)?;
    let key = read_pem_file(&files.key, PrivateKeyDer::from_pem_slice);
    let key = key.map_err(TlsFileError::Key)?;
    build_acceptor(certificates, key).map_err(|error| {
        let (key, certificate) = (files.key.display(), files.certificate.display());
        TlsFileError::Key(format!(
            "`{key}` cannot be used with `{certificate}`: {error}"
        ))
    })
}

fn load_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = |text: &[u8]| CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    let certificates = read_pem_file(file, all)?;
    if certificates.is_empty() {
        return Err(format!("`{}` holds no certificate", file.display()));
    }
    Ok(certificates)
}

fn build_acceptor(
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

const MAX_FILE_BYTES: u64 = 1 << 20;

fn read_pem_file<T>(
    file: &Path,
    parse: impl FnOnce(&[u8]) -> Result<T, pem::Error>,
) -> Result<T, String> {
    let unusable =
        |error: &dyn fmt::Display| format!("`{}` cannot be used: {error}", file.display());
    let text =
        private_file::read_limited(file, MAX_FILE_BYTES).map_err(|error| unusable(&error))?;
    parse(&text).map_err(|error| unusable(&error))
}
