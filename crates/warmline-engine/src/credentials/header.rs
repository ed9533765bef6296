//! The header that shows a secret: its name, and the text around the secret.

use http::{HeaderName, HeaderValue};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::protocol::headers::is_reserved_header;
use zeroize::Zeroizing;

/// The header that shows a secret to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialHeader {
    name: HeaderName,
    prefix: String,
    suffix: String,
}

impl CredentialHeader {
    /// `Authorization: Bearer {}`.
    pub fn bearer() -> Self {
        Self {
            name: http::header::AUTHORIZATION,
            prefix: "Bearer ".to_owned(),
            suffix: String::new(),
        }
    }

    /// `Authorization: {}`.
    pub(super) fn raw() -> Self {
        Self {
            prefix: String::new(),
            ..Self::bearer()
        }
    }

    /// A header of that name; `form` holds `{}` once, where the secret goes.
    ///
    /// # Errors
    /// `config-bad-value`, if the name or the form cannot be used.
    pub fn new(name: &str, form: &str) -> Result<Self, Diagnostic> {
        let Ok(name) = HeaderName::try_from(name.trim()) else {
            let shown = name.trim().escape_debug();
            return Err(bad_credential_header(format!(
                "`{shown}` is not the name of a header"
            )));
        };
        if is_reserved_header(&name) {
            return Err(bad_credential_header(format!(
                "`{name}` is written by Warmline itself"
            )));
        }
        let (before, after) = match form.split_once("{}") {
            Some((before, after)) if !after.contains("{}") => (before, after),
            Some(_) | None => {
                return Err(bad_credential_header(
                    "the form holds `{}` once, for the secret",
                ));
            },
        };
        if HeaderValue::from_str(before).is_err() || HeaderValue::from_str(after).is_err() {
            return Err(bad_credential_header(
                "the form holds characters no header can carry",
            ));
        }
        Ok(Self {
            name,
            prefix: before.to_owned(),
            suffix: after.to_owned(),
        })
    }

    /// The name of the header.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The value that shows a secret; none if it is no valid header value.
    pub fn render(&self, secret: &str) -> Option<HeaderValue> {
        // A token that is stored with its prefix does not get it twice.
        let is_said = secret.get(..self.prefix.len());
        let is_said = is_said.is_some_and(|head| head.eq_ignore_ascii_case(&self.prefix));
        let bare = match is_said && !self.prefix.is_empty() {
            true => secret.get(self.prefix.len()..).unwrap_or(secret),
            false => secret,
        };
        let whole = Zeroizing::new(format!("{}{bare}{}", self.prefix, self.suffix));
        // Servers read other characters in different ways.
        let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let mut value = HeaderValue::from_str(&whole)
            .ok()
            .filter(|_| whole.bytes().all(plain))?;
        value.set_sensitive(true);
        Some(value)
    }

    /// What identifies the header.
    pub(crate) fn digest_parts(&self) -> [&[u8]; 3] {
        [
            self.name.as_str().as_bytes(),
            self.prefix.as_bytes(),
            self.suffix.as_bytes(),
        ]
    }
}

fn bad_credential_header(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(
        Reason::InvalidRequest,
        "the form of the credential cannot be used",
    )
    .with_code(Code::ConfigBadValue)
    .with_cause(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_stands_where_the_form_says() {
        let table = [
            ("Authorization", "Bearer {}", "Bearer s"),
            ("X-Api-Key", "{}", "s"),
            ("x-auth", "token={};v=1", "token=s;v=1"),
        ];
        for (name, form, shown) in table {
            let form = CredentialHeader::new(name, form).unwrap();
            let value = form.render("s").unwrap();
            assert_eq!(value, shown);
            // A word that stands before the secret already is not said twice.
            let before = shown.split('s').next().unwrap_or_default();
            if form == CredentialHeader::bearer() {
                assert_eq!(form.render(&format!("{before}s")).unwrap(), shown);
                assert_eq!(form.render("bearer s").unwrap(), shown);
            }
            assert!(value.is_sensitive());
        }
        assert_eq!(
            CredentialHeader::bearer(),
            CredentialHeader::new("authorization", "Bearer {}").unwrap()
        );
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        let table = [
            ("X Key", "{}"),
            ("", "{}"),
            ("Mcp-Session-Id", "{}"),
            ("Host", "{}"),
            ("X-Key", "Bearer"),
            ("X-Key", "{} {}"),
            ("X-Key", "a\n{}"),
        ];
        for (name, form) in table {
            let diagnostic = CredentialHeader::new(name, form).unwrap_err();
            assert_eq!(diagnostic.code, Code::ConfigBadValue, "{name} {form}");
        }
        for secret in ["a\nb", "a\0", "ä", "a\r"] {
            assert!(CredentialHeader::bearer().render(secret).is_none());
        }
    }
}
