//! TLS to servers: rustls with aws-lc-rs, and the roots of the system or of a file.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;

use warmline_platform::private_file;

/// Four times the size of the files that systems come with.
const MAX_CA_FILE_BYTES: u64 = 1 << 20;

/// The TLS configuration with the roots of this file, or of the system.
///
/// # Errors
/// The roots cannot be read.
pub fn client_config(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Diagnostic> {
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_setting("the TLS versions are not usable", &error))?;
    let builder = match ca_file {
        Some(file) => builder.with_root_certificates(load_roots(file)?),
        None => builder
            .with_platform_verifier()
            .map_err(|error| bad_setting("the system's certificates cannot be read", &error))?,
    };
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn load_roots(file: &Path) -> Result<RootCertStore, Diagnostic> {
    let name = file.display();
    let mut store = RootCertStore::empty();
    let text = private_file::read_limited(file, MAX_CA_FILE_BYTES)
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
            Diagnostic::new(Reason::Tls, format!("`{name}` holds no certificate"))
                .with_code(Code::ConfigBadValue)
                .with_hint("name a PEM file with at least one CERTIFICATE block as `ca_file`"),
        );
    }
    Ok(store)
}

fn bad_setting(what: &str, why: &dyn std::fmt::Display) -> Diagnostic {
    Diagnostic::new(Reason::Tls, what)
        .with_code(Code::ConfigBadValue)
        .with_cause(why.to_string())
}

/// Why there is no TLS connection, and what to do, if anything.
pub(crate) fn describe_error(error: &io::Error) -> (String, Option<&'static str>) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidCertificate(error)) => {
            let (why, hint) = describe_certificate_error(error);
            (why, Some(hint))
        },
        Some(Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            let why = "it does not speak TLS there; a plain server needs http:// in its URL";
            (why.to_owned(), Some("try the URL with `http://`"))
        },
        Some(Error::AlertReceived(alert)) => {
            let alert = camel_case_to_words(&format!("{alert:?}"));
            (format!("it broke the handshake off: {alert}"), None)
        },
        Some(_) | None => (clean_error_text(&error.to_string()), None),
    }
}

/// The text of an error, without what only developers need.
pub(crate) fn clean_error_text(text: &str) -> String {
    if text.contains("close_notify") {
        return "the connection closed without a TLS close_notify".to_owned();
    }
    let end = text.find("https://docs.rs").unwrap_or(text.len());
    let text = text.get(..end).unwrap_or(text);
    text.trim_end_matches([' ', ':', '\n']).to_owned()
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is rare, and told by its name"
)]
fn describe_certificate_error(error: &CertificateError) -> (String, &'static str) {
    use CertificateError as E;
    let (what, hint) = match error {
        E::Expired => ("expired", RENEW_HINT),
        E::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / (24 * 60 * 60);
            return (
                format!("its certificate expired {days} days ago"),
                RENEW_HINT,
            );
        },
        E::NotValidYet | E::NotValidYetContext { .. } => ("is not valid yet", RENEW_HINT),
        E::Revoked => ("was revoked", RENEW_HINT),
        E::UnknownIssuer => (
            "is not signed by a trusted authority (unknown issuer)",
            CA_FILE_HINT,
        ),
        E::NotValidForName => ("is not valid for this name", SERVER_NAME_HINT),
        E::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| quoted_part(name)).collect();
            let names = match names.as_slice() {
                [] => "for no name at all".to_owned(),
                names => format!("only for {}", names.join(", ")),
            };
            let name = expected.to_str();
            let why = format!("its certificate is not valid for name `{name}`, {names}");
            return (why, SERVER_NAME_HINT);
        },
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => (
            "is not one for servers",
            "make one with `-addext extendedKeyUsage=serverAuth`",
        ),
        E::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => (
            "is that of an authority (CA:TRUE), which no server may show",
            SERVER_CERTIFICATE_HINT,
        ),
        other => {
            let why = error_name_as_words(other);
            let hint = "look at it with `openssl x509 -text`";
            return (format!("its certificate cannot be used: {why}"), hint);
        },
    };
    (format!("its certificate {what}"), hint)
}

const RENEW_HINT: &str =
    "the certificate must be renewed at the server; or this machine's clock is wrong";
const CA_FILE_HINT: &str = "name the authority that signed it, or the certificate itself: `--ca-file FILE`, or `ca_file` of the server";
const SERVER_NAME_HINT: &str = "use a name of the certificate in the URL, or make one for this name: \
    `-addext subjectAltName=DNS:NAME,IP:ADDRESS`";
const SERVER_CERTIFICATE_HINT: &str = "make one for the server: `openssl req -x509 … -addext \
    basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1`";

fn error_name_as_words(error: &CertificateError) -> String {
    let shown = format!("{error:?}");
    let outer = shown.strip_prefix("Other(OtherError(").unwrap_or(&shown);
    let name = outer.split(|letter: char| !letter.is_ascii_alphanumeric());
    camel_case_to_words(name.into_iter().next().unwrap_or_default())
}

/// `UnknownIssuer` as `unknown issuer`.
fn camel_case_to_words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn quoted_part(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[derive(Debug)]
    enum Webpki {
        CaUsedAsEndEntity,
        MaximumSignatureChecksExceeded,
    }

    impl std::fmt::Display for Webpki {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{self:?}")
        }
    }

    impl std::error::Error for Webpki {}

    #[test]
    fn what_tls_complains_about_is_said_in_words() {
        let other = |error: Webpki| CertificateError::Other(OtherError(Arc::new(error)));
        let name = CertificateError::NotValidForNameContext {
            expected: "example.com".try_into().unwrap(),
            presented: vec!["DnsName(\"localhost\")".to_owned()],
        };
        #[rustfmt::skip]
        let table = [
            (CertificateError::Expired, "its certificate expired"),
            (CertificateError::UnknownIssuer, "its certificate is not signed by a trusted authority (unknown issuer)"),
            (name, "its certificate is not valid for name `example.com`, only for localhost"),
            (other(Webpki::CaUsedAsEndEntity), "its certificate is that of an authority (CA:TRUE), which no server may show"),
            (other(Webpki::MaximumSignatureChecksExceeded), "its certificate cannot be used: maximum signature checks exceeded"),
            (CertificateError::BadEncoding, "its certificate cannot be used: bad encoding"),
        ];
        for (error, why) in table {
            let told = describe_error(&io::Error::other(Error::InvalidCertificate(error)));
            assert_eq!(told.0, why);
            assert!(told.1.is_some(), "{why}");
        }
        let farewell =
            "peer closed connection without sending TLS close_notify: \nhttps://docs.rs/rustls/x";
        assert_eq!(
            clean_error_text(farewell),
            "the connection closed without a TLS close_notify"
        );
        assert_eq!(
            clean_error_text("strange: https://docs.rs/rustls/x"),
            "strange"
        );
    }
}
