//! Cursors of merged lists: where the next page begins, said in the cursor itself.
//!
//! Nothing is remembered for it, and it holds nothing that its client may not know: whoever makes
//! one up sees what they would see anyway.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use warmline::List;
use warmline::core::protocol::params::Params;

/// The first letters of a cursor; another form is not read.
const FORM: &str = "1";
/// No cursor of ours is longer.
const MAX_TEXT: usize = 200;

/// Where a page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The server with which it begins; those before it in order are done with.
    pub(super) server: String,
    /// How many of that server's items were told before.
    pub(super) told: usize,
}

impl Cursor {
    /// The text that a client carries.
    pub(super) fn text(&self, list: List) -> String {
        let Self { server, told } = self;
        URL_SAFE_NO_PAD.encode(format!("{FORM}:{}:{server}:{told}", list.method()))
    }

    /// Where a page begins that is asked for; none where what is said is no cursor of this list.
    pub(crate) fn asked(list: List, params: &Params) -> Option<Self> {
        match params.member("cursor") {
            None | Some(b"null") => Some(Self::default()),
            Some(raw) => Self::read(&serde_json::from_slice::<String>(raw).ok()?, list),
        }
    }

    /// What a text says, if it is a cursor of this list.
    pub(super) fn read(text: &str, list: List) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let plain = URL_SAFE_NO_PAD.decode(text).ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let mut parts = plain.split(':');
        let (form, method) = (parts.next()?, parts.next()?);
        let (server, told) = (parts.next()?, parts.next()?);
        if form != FORM || method != list.method() || parts.next().is_some() {
            return None;
        }
        Some(Self {
            server: server.to_owned(),
            told: told.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_says_where_to_go_on_in_its_own_list_alone() {
        let cursor = Cursor {
            server: "browser".to_owned(),
            told: 17,
        };
        let text = cursor.text(List::Tools);
        assert_eq!(Cursor::read(&text, List::Tools), Some(cursor));
        assert_eq!(Cursor::read(&text, List::Prompts), None);
        let cut = text.strip_prefix('M').unwrap();
        let long = "A".repeat(4096);
        let odd = URL_SAFE_NO_PAD.encode("1:tools/list:a:-1");
        let more = URL_SAFE_NO_PAD.encode("1:tools/list:a:1:2");
        let other = URL_SAFE_NO_PAD.encode("2:tools/list:a:1");
        for bad in ["", "from-3", "é", cut, &long, &odd, &more, &other] {
            assert_eq!(Cursor::read(bad, List::Tools), None, "{bad}");
        }
    }
}
