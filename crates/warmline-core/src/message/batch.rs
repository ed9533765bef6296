//! Batches: several messages in one text, which only 2025-03-26 has. A batch in a batch is none.

use bytes::Bytes;

use crate::era::Version;
use crate::message::object;
use crate::message::scanner;

/// The messages of a text: those of a batch, where this version has batches, or else the text
/// itself.
pub fn split_batch(text: Bytes, version: Option<Version>) -> BatchMessages {
    let next = first_message_offset(&text, version).map_or(BatchPosition::Whole, BatchPosition::At);
    BatchMessages { text, next }
}

/// Whether a text is a batch where this version knows such.
pub fn is_batch(text: &[u8], version: Option<Version>) -> bool {
    first_message_offset(text, version).is_some()
}

/// Where the first message of a batch begins.
fn first_message_offset(text: &[u8], version: Option<Version>) -> Option<usize> {
    version.filter(|version| version.supports_batches())?;
    let open = scanner::skip_whitespace(text, 0);
    if text.get(open) != Some(&b'[') {
        return None;
    }
    let first = scanner::skip_whitespace(text, open + 1);
    let end = scanner::value_end(text, open).ok()?;
    let is_all =
        scanner::skip_whitespace(text, end) == text.len() && object::parse_utf8(text).is_ok();
    (is_all && text.get(first) != Some(&b']')).then_some(first)
}

/// The texts of messages that came in one. They are found one by one: however many there are,
/// nothing is held of them.
#[derive(Clone, Debug, Default)]
pub struct BatchMessages {
    text: Bytes,
    next: BatchPosition,
}

#[derive(Clone, Copy, Debug, Default)]
enum BatchPosition {
    /// The text itself.
    Whole,
    /// The one that begins there.
    At(usize),
    #[default]
    Done,
}

impl Iterator for BatchMessages {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let at = match self.next {
            BatchPosition::Whole => {
                self.next = BatchPosition::Done;
                return Some(std::mem::take(&mut self.text));
            },
            BatchPosition::At(at) => at,
            BatchPosition::Done => return None,
        };
        self.next = BatchPosition::Done;
        // That all of it is JSON was seen before.
        let end = scanner::value_end(&self.text, at).ok()?;
        let behind = scanner::skip_whitespace(&self.text, end);
        if self.text.get(behind) == Some(&b',') {
            self.next = BatchPosition::At(scanner::skip_whitespace(&self.text, behind + 1));
        }
        Some(self.text.slice(at..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &'static str, version: Version) -> Vec<Bytes> {
        split_batch(Bytes::from_static(text.as_bytes()), Some(version)).collect()
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
        let unknown: Vec<_> = split_batch(Bytes::from_static(batch.as_bytes()), None).collect();
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
        let kept: Vec<_> = split_batch(bad.clone(), Some(Version::V2025_03_26)).collect();
        assert_eq!(kept, [bad]);
    }
}
