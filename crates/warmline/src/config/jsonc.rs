//! JSON as editors write it by hand: with comments, and with a comma behind the last entry.
//!
//! Asked by: readers of JSON files, before they read.  What is not JSON becomes blanks, so that all
//! else stays where it was, and an error names the line and column of the file. Texts are left
//! alone, and so is a comment that nobody closed: the parser complains of it at its place.

use std::borrow::Cow;

/// The same text in plain JSON, byte for byte as long.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    let mut struck = Struck::default();
    let bytes = text.as_bytes();
    let mut at = 0;
    // What was seen last, blanks and comments apart, and the comma that it is, if it ends an entry.
    let (mut last, mut comma) = (None, None);
    while let Some(&byte) = bytes.get(at) {
        let next = match (byte, bytes.get(at + 1)) {
            (b'/', Some(b'/' | b'*')) => {
                let Some(end) = end_of_comment(text, at) else {
                    break;
                };
                struck.0.push((at, end));
                at = end;
                continue;
            },
            (b'"', _) => end_of_text(bytes, at),
            _ => at + 1,
        };
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {},
            b',' => {
                let is_behind_an_entry = !matches!(last, None | Some(b'{' | b'[' | b',' | b':'));
                comma = is_behind_an_entry.then_some(at);
                last = Some(byte);
            },
            b'}' | b']' => {
                let idle = comma.filter(|_| last == Some(b','));
                struck.0.extend(idle.map(|comma| (comma, comma + 1)));
                last = Some(byte);
            },
            _ => last = Some(byte),
        }
        at = next;
    }
    struck.out_of(text)
}

/// The parts of a text that are no JSON, each from where to where.
#[derive(Default)]
struct Struck(Vec<(usize, usize)>);

impl Struck {
    /// The text with blanks in their place. Lines stay lines.
    fn out_of(self, text: &str) -> Cow<'_, str> {
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut bytes = text.as_bytes().to_vec();
        for (start, end) in self.0 {
            for byte in bytes.get_mut(start..end).into_iter().flatten() {
                if !matches!(byte, b'\n' | b'\r') {
                    *byte = b' ';
                }
            }
        }
        // Each part begins and ends at a letter of ASCII, so no other letter was cut.
        String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
    }
}

/// Behind a comment that begins there; none where nobody closed it.
fn end_of_comment(text: &str, at: usize) -> Option<usize> {
    let inside = text.get(at + 2..)?;
    let length = match text.as_bytes().get(at + 1) {
        Some(b'/') => inside.find(['\n', '\r']).unwrap_or(inside.len()),
        _ => inside.find("*/")? + 2,
    };
    Some(at + 2 + length)
}

/// Behind a text that begins there.
fn end_of_text(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn comments_and_idle_commas_become_blanks() {
        #[rustfmt::skip]
        let table = [
            ("{\"a\": 1, // one\n \"b\": 2}",   "{\"a\": 1,       \n \"b\": 2}"),
            ("{/* a\r\nb */\"a\": 1}",          "{    \r\n    \"a\": 1}"),
            ("{\"a\": [1, 2,], }",              "{\"a\": [1, 2 ]  }"),
            ("{\"a\": 1, /* , */ }",            "{\"a\": 1          }"),
            ("{\"a\": 1} // é",                 "{\"a\": 1}      "),
            ("{\"u\": \"https://x/*,]\\\"//\"}", "{\"u\": \"https://x/*,]\\\"//\"}"),
            // What no editor takes stays, so that somebody complains of it.
            ("[,]",                             "[,]"),
            ("[1,,]",                           "[1,,]"),
            ("{\"a\":,}",                       "{\"a\":,}"),
            ("{ /* never closed }",             "{ /* never closed }"),
            ("{\"a",                            "{\"a"),
            ("/",                               "/"),
            ("",                                ""),
        ];
        for (text, read) in table {
            assert_eq!(plain(text), read, "{text}");
        }
    }

    /// What may stand between two tokens.
    fn gap() -> impl Strategy<Value = String> {
        prop::sample::select(vec![
            "",
            " ",
            "\n",
            "\r\n",
            "// \" , ] } é\n",
            "/* \" // , } *\n/ */",
            "/**/",
        ])
        .prop_map(str::to_owned)
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i32>().prop_map(Value::from),
            "[a/*,\"\\\\ é\\[{}\\]]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/*\",]{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The value as somebody may write it by hand.
    fn written(value: &Value, gaps: &mut impl Iterator<Item = String>) -> String {
        let mut gap = || gaps.next().unwrap_or_default();
        let (open, entries, close) = match value {
            Value::Array(items) => {
                let entries: Vec<_> = items.iter().map(|item| (None, item)).collect();
                ("[", entries, "]")
            },
            Value::Object(map) => {
                let entries: Vec<_> = map.iter().map(|(key, item)| (Some(key), item)).collect();
                ("{", entries, "}")
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                return format!("{}{value}{}", gap(), gap());
            },
        };
        let mut out = format!("{}{open}{}", gap(), gap());
        let count = entries.len();
        for (place, (key, item)) in entries.into_iter().enumerate() {
            if let Some(key) = key {
                let key = Value::from(key.as_str());
                let (before, behind) = (gaps.next(), gaps.next());
                out += &format!(
                    "{}{key}{}:",
                    before.unwrap_or_default(),
                    behind.unwrap_or_default()
                );
            }
            out += &written(item, gaps);
            // Half of the time behind the last one too.
            let is_last = place + 1 == count;
            if !is_last || gaps.next().is_some_and(|gap| gap.len() % 2 == 0) {
                out.push(',');
            }
        }
        let end = gaps.next().unwrap_or_default();
        out + &end + close
    }

    proptest! {
        /// However it is written by hand, it reads as it was meant.
        #[test]
        fn what_is_written_by_hand_reads_as_it_was_meant(
            value in value(),
            gaps in prop::collection::vec(gap(), 16),
        ) {
            let text = written(&value, &mut gaps.into_iter().cycle());
            let read = plain(&text);
            prop_assert_eq!(read.len(), text.len());
            prop_assert_eq!(serde_json::from_str::<Value>(&read).unwrap(), value, "{}", text);
        }

        /// Plain JSON stays as it is, and nothing that is no JSON moves a line.
        #[test]
        fn nothing_moves(value in value(), junk in "[a\"\\\\/*,{}\\[\\]\n é]{0,40}") {
            let text = value.to_string();
            prop_assert!(matches!(plain(&text), Cow::Borrowed(_)));
            let read = plain(&junk);
            prop_assert_eq!(read.len(), junk.len());
            let lines = |text: &str| text.match_indices('\n').map(|(at, _)| at).collect::<Vec<_>>();
            prop_assert_eq!(lines(&read), lines(&junk));
        }
    }
}
