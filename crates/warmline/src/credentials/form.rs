//! How a secret is shown: the name of a header, and what stands around the secret in it.

use http::{HeaderName, HeaderValue};
use warmline_core::code::{Code, Reason};
use warmline_core::exchange::Trouble;
use warmline_core::protocol::headers::is_ours;
use zeroize::Zeroizing;

/// How a secret is shown to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    name: HeaderName,
    before: String,
    after: String,
}

impl Form {
    /// `Authorization: Bearer {}`.
    pub fn bearer() -> Self {
        Self {
            name: http::header::AUTHORIZATION,
            before: "Bearer ".to_owned(),
            after: String::new(),
        }
    }

    /// `Authorization: {}`.
    pub(super) fn whole() -> Self {
        Self {
            before: String::new(),
            ..Self::bearer()
        }
    }

    /// A header of that name, in a form that holds `{}` once, where the secret stands.
    ///
    /// # Errors
    /// `config-bad-value`, if the name or the form cannot be used.
    pub fn of(name: &str, form: &str) -> Result<Self, Trouble> {
        let Ok(name) = HeaderName::try_from(name.trim()) else {
            let shown = name.trim().escape_debug();
            return Err(bad_form(format!("`{shown}` is not the name of a header")));
        };
        if is_ours(&name) {
            return Err(bad_form(format!("`{name}` is written by Warmline itself")));
        }
        let (before, after) = match form.split_once("{}") {
            Some((before, after)) if !after.contains("{}") => (before, after),
            Some(_) | None => return Err(bad_form("the form holds `{}` once, for the secret")),
        };
        if HeaderValue::from_str(before).is_err() || HeaderValue::from_str(after).is_err() {
            return Err(bad_form("the form holds characters no header can carry"));
        }
        Ok(Self {
            name,
            before: before.to_owned(),
            after: after.to_owned(),
        })
    }

    /// The name of the header.
    pub fn name(&self) -> &HeaderName {
        &self.name
    }

    /// The value that shows a secret; none if no header can carry it.
    pub(crate) fn value(&self, secret: &str) -> Option<HeaderValue> {
        // Who keeps a token with the word before it does not mean to say the word twice.
        let is_said = secret.get(..self.before.len());
        let is_said = is_said.is_some_and(|head| head.eq_ignore_ascii_case(&self.before));
        let bare = match is_said && !self.before.is_empty() {
            true => secret.get(self.before.len()..).unwrap_or(secret),
            false => secret,
        };
        let whole = Zeroizing::new(format!("{}{bare}{}", self.before, self.after));
        // Anything but plain characters is read differently by different servers.
        let plain = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let mut value = HeaderValue::from_str(&whole)
            .ok()
            .filter(|_| whole.bytes().all(plain))?;
        value.set_sensitive(true);
        Some(value)
    }

    /// What tells it from other forms.
    pub(crate) fn marks(&self) -> [&[u8]; 3] {
        [
            self.name.as_str().as_bytes(),
            self.before.as_bytes(),
            self.after.as_bytes(),
        ]
    }
}

fn bad_form(why: impl Into<String>) -> Trouble {
    Trouble::new(
        Reason::InvalidRequest,
        "the form of the credential cannot be used",
    )
    .coded(Code::ConfigBadValue)
    .because(why)
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
            let form = Form::of(name, form).unwrap();
            let value = form.value("s").unwrap();
            assert_eq!(value, shown);
            // A word that stands before the secret already is not said twice.
            let before = shown.split('s').next().unwrap_or_default();
            if form == Form::bearer() {
                assert_eq!(form.value(&format!("{before}s")).unwrap(), shown);
                assert_eq!(form.value("bearer s").unwrap(), shown);
            }
            assert!(value.is_sensitive());
        }
        assert_eq!(
            Form::bearer(),
            Form::of("authorization", "Bearer {}").unwrap()
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
            let trouble = Form::of(name, form).unwrap_err();
            assert_eq!(trouble.code, Code::ConfigBadValue, "{name} {form}");
        }
        for secret in ["a\nb", "a\0", "ä", "a\r"] {
            assert!(Form::bearer().value(secret).is_none());
        }
    }
}
