//! What TLS complains about, in words of people: what is wrong with a certificate, and what to do.
//!
//! Asked by: whoever could not connect, and whoever lost a connection.

use std::io;

use rustls::{CertificateError, Error};

/// Why no TLS connection came about, and one thing to do where there is one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) why: String,
    pub(crate) hint: Option<&'static str>,
}

/// What an error of a connection says.
pub(crate) fn complaint(error: &io::Error) -> Complaint {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(Error::InvalidCertificate(error)) => of_certificate(error),
        Some(Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => Complaint {
            why: "it does not speak TLS there; a plain server needs http:// in its URL".to_owned(),
            hint: Some("try the URL with `http://`"),
        },
        Some(Error::AlertReceived(alert)) => Complaint {
            why: format!(
                "it broke the handshake off: {}",
                spaced(&format!("{alert:?}"))
            ),
            hint: None,
        },
        Some(_) | None => Complaint {
            why: plain(&error.to_string()),
            hint: None,
        },
    }
}

/// The text of an error of the system or of the TLS library, without what only its makers need.
pub(crate) fn plain(text: &str) -> String {
    if text.contains("close_notify") {
        return "the connection closed without the farewell that TLS has".to_owned();
    }
    let end = text.find("https://docs.rs").unwrap_or(text.len());
    let text = text.get(..end).unwrap_or(text);
    text.trim_end_matches([' ', ':', '\n']).to_owned()
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the rest is rare, and told by its name"
)]
fn of_certificate(error: &CertificateError) -> Complaint {
    use CertificateError as E;
    let said = |why: &str, hint| Complaint {
        why: why.to_owned(),
        hint,
    };
    match error {
        E::Expired => said("its certificate expired", Some(RENEW)),
        E::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / (24 * 60 * 60);
            said(
                &format!("its certificate expired {days} days ago"),
                Some(RENEW),
            )
        },
        E::NotValidYet | E::NotValidYetContext { .. } => {
            said("its certificate is not valid yet", Some(RENEW))
        },
        E::Revoked => said("its certificate was revoked", Some(RENEW)),
        E::UnknownIssuer => said(
            "nobody that is trusted here signed its certificate (unknown issuer)",
            Some(NAME_THE_AUTHORITY),
        ),
        E::NotValidForName => said("its certificate is not valid for this name", Some(NAME_IT)),
        E::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| quoted_part(name)).collect();
            let names = match names.as_slice() {
                [] => "for no name at all".to_owned(),
                names => format!("only for {}", names.join(", ")),
            };
            Complaint {
                why: format!(
                    "its certificate is not valid for name `{}`, {names}",
                    expected.to_str()
                ),
                hint: Some(NAME_IT),
            }
        },
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => said(
            "its certificate is not one for servers",
            Some("make one with `-addext extendedKeyUsage=serverAuth`"),
        ),
        E::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => said(
            "its certificate is that of an authority (CA:TRUE), which no server may show",
            Some(FOR_A_SERVER),
        ),
        other => Complaint {
            why: format!("its certificate cannot be used: {}", words_of(other)),
            hint: Some("look at it with `openssl x509 -text`"),
        },
    }
}

const RENEW: &str =
    "whoever runs the server must renew its certificate; or this machine's clock is wrong";
const NAME_THE_AUTHORITY: &str = "name the authority that signed it, or the certificate itself: `--ca-file FILE`, or `ca_file` of the server";
const NAME_IT: &str = "use a name of the certificate in the URL, or make one for this name: \
    `-addext subjectAltName=DNS:NAME,IP:ADDRESS`";
const FOR_A_SERVER: &str = "make one for the server: `openssl req -x509 … -addext \
    basicConstraints=critical,CA:FALSE -addext subjectAltName=DNS:localhost,IP:127.0.0.1`";

/// What an error is called, as words: its innermost name, without its parts.
fn words_of(error: &CertificateError) -> String {
    let shown = format!("{error:?}");
    let outer = shown.strip_prefix("Other(OtherError(").unwrap_or(&shown);
    let name = outer.split(|letter: char| !letter.is_ascii_alphanumeric());
    spaced(name.into_iter().next().unwrap_or_default())
}

/// `UnknownIssuer` as `unknown issuer`.
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

/// What stands between quotes, or all of it.
fn quoted_part(name: &str) -> &str {
    let mut parts = name.split('"');
    match (parts.next(), parts.next(), parts.next()) {
        (_, Some(inner), Some(_)) => inner,
        _ => name,
    }
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
            (CertificateError::UnknownIssuer, "nobody that is trusted here signed its certificate (unknown issuer)"),
            (name, "its certificate is not valid for name `example.com`, only for localhost"),
            (other(Webpki::CaUsedAsEndEntity), "its certificate is that of an authority (CA:TRUE), which no server may show"),
            (other(Webpki::MaximumSignatureChecksExceeded), "its certificate cannot be used: maximum signature checks exceeded"),
            (CertificateError::BadEncoding, "its certificate cannot be used: bad encoding"),
        ];
        for (error, why) in table {
            let told = complaint(&io::Error::other(Error::InvalidCertificate(error)));
            assert_eq!(told.why, why);
            assert!(told.hint.is_some(), "{why}");
        }
        let farewell =
            "peer closed connection without sending TLS close_notify: \nhttps://docs.rs/rustls/x";
        assert_eq!(
            plain(farewell),
            "the connection closed without the farewell that TLS has"
        );
        assert_eq!(plain("strange: https://docs.rs/rustls/x"), "strange");
    }
}
