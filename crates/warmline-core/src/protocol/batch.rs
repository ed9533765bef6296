//! Batches: several messages in one text, which only 2025-03-26 knows.
//!
//! Asked by: drivers, for what a server says, and the gateway, for what a client says.  Each message
//! of a batch is a text of its own from there on. A batch inside of a batch is none.

use bytes::Bytes;

use super::object;
use super::scan;
use crate::era::Version;

/// The texts that stand in one: those of a batch where this version knows such, else itself alone.
/// What is no whole batch, or one of nothing, is left to whoever reads it as a message.
pub fn parts(text: Bytes, version: Option<Version>) -> Parts {
    let next = first_of(&text, version).map_or(Next::Whole, Next::At);
    Parts { text, next }
}

/// Whether a text is a batch where this version knows such.
pub fn is_one(text: &[u8], version: Option<Version>) -> bool {
    first_of(text, version).is_some()
}

/// Where the first message of a batch stands.
fn first_of(text: &[u8], version: Option<Version>) -> Option<usize> {
    version.filter(|version| version.knows_batches())?;
    let open = scan::blanks(text, 0);
    if text.get(open) != Some(&b'[') {
        return None;
    }
    let first = scan::blanks(text, open + 1);
    let end = scan::value(text, open).ok()?;
    let is_all = scan::blanks(text, end) == text.len() && object::utf8(text).is_ok();
    (is_all && text.get(first) != Some(&b']')).then_some(first)
}

/// The texts of messages that came in one. They are found one by one: however many there are,
/// nothing is held of them.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    text: Bytes,
    next: Next,
}

#[derive(Clone, Copy, Debug, Default)]
enum Next {
    /// The text itself.
    Whole,
    /// The one that begins there.
    At(usize),
    #[default]
    Over,
}

impl Iterator for Parts {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let at = match self.next {
            Next::Whole => {
                self.next = Next::Over;
                return Some(std::mem::take(&mut self.text));
            },
            Next::At(at) => at,
            Next::Over => return None,
        };
        self.next = Next::Over;
        // That all of it is JSON was seen before.
        let end = scan::value(&self.text, at).ok()?;
        let behind = scan::blanks(&self.text, end);
        if self.text.get(behind) == Some(&b',') {
            self.next = Next::At(scan::blanks(&self.text, behind + 1));
        }
        Some(self.text.slice(at..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &'static str, version: Version) -> Vec<Bytes> {
        parts(Bytes::from_static(text.as_bytes()), Some(version)).collect()
    }

    #[test]
    fn a_batch_is_taken_apart_where_the_version_knows_it() {
        let batch = " [ {\"a\":[1,{}]} ,\"],\", [2] ]\n";
        let apart = ["{\"a\":[1,{}]}", "\"],\"", "[2]"];
        for version in Version::ALL {
            let expected: &[&str] = match version {
                Version::V2025_03_26 => &apart,
                Version::V2024_11_05
                | Version::V2025_06_18
                | Version::V2025_11_25
                | Version::V2026_07_28 => &[batch],
            };
            assert_eq!(split(batch, version), expected, "{version}");
        }
        let unknown: Vec<_> = parts(Bytes::from_static(batch.as_bytes()), None).collect();
        assert_eq!(unknown, [batch]);
    }

    #[test]
    fn what_is_no_whole_batch_stays_one_text() {
        for text in [
            "", "{}", "[]", "[ ]", "[1", "[1,]", "[1] 2", "[1]]", "nothing", "\"[1]\"",
        ] {
            assert_eq!(split(text, Version::V2025_03_26), [text]);
        }
        let bad = Bytes::from_static(b"[\"\xff\"]");
        let kept: Vec<_> = parts(bad.clone(), Some(Version::V2025_03_26)).collect();
        assert_eq!(kept, [bad]);
    }
}
