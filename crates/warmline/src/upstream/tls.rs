//! TLS towards servers: rustls with aws-lc-rs, the system's roots or a file of them.

mod wording;

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;

use crate::private;

pub(crate) use wording::{Complaint, complaint, plain};

/// A file of certificates is no larger: all that systems come with are a quarter of it.
const MOST_BYTES: u64 = 1 << 20;

/// The TLS settings for servers that are trusted through this file, or through the system.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Trouble> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_setting("the TLS versions are not usable", &error))?;
    let mut config = match ca_file {
        Some(file) => builder
            .with_root_certificates(roots(file)?)
            .with_no_client_auth(),
        None => builder
            .with_platform_verifier()
            .map_err(|error| bad_setting("the system's certificates cannot be read", &error))?
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn roots(file: &Path) -> Result<RootCertStore, Trouble> {
    let name = file.display();
    let mut store = RootCertStore::empty();
    let text = private::read_named(file, MOST_BYTES)
        .map_err(|error| bad_setting(&format!("`{name}` cannot be read"), &error))?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate
            .map_err(|error| bad_setting(&format!("`{name}` is not a PEM file"), &error))?;
        store.add(certificate).map_err(|error| {
            bad_setting(
                &format!("`{name}` holds a certificate that cannot be used"),
                &error,
            )
        })?;
    }
    if store.is_empty() {
        return Err(
            Trouble::new(Reason::Tls, format!("`{name}` holds no certificate"))
                .coded(Code::ConfigBadValue)
                .hint("name a PEM file with at least one CERTIFICATE block as `ca_file`"),
        );
    }
    Ok(store)
}

fn bad_setting(what: &str, why: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(Reason::Tls, what)
        .coded(Code::ConfigBadValue)
        .because(why.to_string())
}
