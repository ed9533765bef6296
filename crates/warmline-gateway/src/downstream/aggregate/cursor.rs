//! Cursors of merged lists: the position of the next page, in the cursor itself.
//!
//! The gateway stores nothing for it. A forged cursor shows nothing that its client could not see anyway.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use warmline_core::message::params::Params;
use warmline_upstream::ListKind;

const FORMAT_VERSION: &str = "1";
const MAX_TEXT: usize = 200;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The first server of the page.
    pub(super) server: String,
    /// How many of that server's items earlier pages had.
    pub(super) offset: usize,
}

impl Cursor {
    pub(super) fn encode(&self, list: ListKind) -> String {
        let Self {
            server,
            offset: told,
        } = self;
        URL_SAFE_NO_PAD.encode(format!(
            "{FORMAT_VERSION}:{}:{server}:{told}",
            list.method()
        ))
    }

    /// The position that a request asks for; `None` where its cursor is not one of this list.
    pub(crate) fn from_params(list: ListKind, params: &Params) -> Option<Self> {
        match params.member("cursor") {
            None | Some(b"null") => Some(Self::default()),
            Some(raw) => Self::decode(&serde_json::from_slice::<String>(raw).ok()?, list),
        }
    }

    pub(super) fn decode(text: &str, list: ListKind) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let plain = URL_SAFE_NO_PAD.decode(text).ok()?;
        let plain = String::from_utf8(plain).ok()?;
        let mut parts = plain.split(':');
        let (form, method) = (parts.next()?, parts.next()?);
        let (server, told) = (parts.next()?, parts.next()?);
        if form != FORMAT_VERSION || method != list.method() || parts.next().is_some() {
            return None;
        }
        Some(Self {
            server: server.to_owned(),
            offset: told.parse().ok()?,
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
            offset: 17,
        };
        let text = cursor.encode(ListKind::Tools);
        assert_eq!(Cursor::decode(&text, ListKind::Tools), Some(cursor));
        assert_eq!(Cursor::decode(&text, ListKind::Prompts), None);
        let cut = text.strip_prefix('M').unwrap();
        let long = "A".repeat(4096);
        let odd = URL_SAFE_NO_PAD.encode("1:tools/list:a:-1");
        let more = URL_SAFE_NO_PAD.encode("1:tools/list:a:1:2");
        let other = URL_SAFE_NO_PAD.encode("2:tools/list:a:1");
        for bad in ["", "from-3", "é", cut, &long, &odd, &more, &other] {
            assert_eq!(Cursor::decode(bad, ListKind::Tools), None, "{bad}");
        }
    }
}
