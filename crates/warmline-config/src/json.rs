//! JSON as editors write it by hand: with comments, and with a comma behind the last entry.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::value::RawValue;
use warmline_core::error::code::Code;
use warmline_engine::settings::config_error::{ConfigError, ExcerptPolicy, SourceFile};

use crate::document::{Key, Member, Node, Value};

/// Parses a file. Members of one name are all kept.
pub(crate) fn parse_json(source: SourceFile<'_>) -> Result<Node<'_>, ConfigError> {
    let mut parser = JsonParser::new(source);
    let root = parser.value()?;
    match parser.peek() {
        None => Ok(root),
        Some(_) => Err(parser.error("trailing characters")),
    }
}

/// Whether a file holds blanks and comments alone.
pub(crate) fn is_blank_json(source: SourceFile<'_>) -> bool {
    JsonParser::new(source).peek().is_none()
}

/// Refuses a value that has, at any depth, two members of one name: nobody can tell which is meant.
pub(crate) fn check_unique_names(
    source: SourceFile<'_>,
    node: &Node<'_>,
) -> Result<(), ConfigError> {
    if let Value::List(items) = &node.value {
        let mut items = items.iter();
        return items.try_for_each(|item| check_unique_names(source, item));
    }
    let Value::Table(members) = &node.value else {
        return Ok(());
    };
    let mut names = BTreeSet::new();
    members.iter().try_for_each(|(key, node)| {
        if !names.insert(&key.name) {
            return Err(duplicate_error(source, key));
        }
        check_unique_names(source, node)
    })
}

/// The error of a member that has the name of an earlier one.
pub(crate) fn duplicate_error(source: SourceFile<'_>, key: &Key<'_>) -> ConfigError {
    let what = format!("`{}` stands here twice", key.name.escape_debug());
    let place = source.location(key.span.clone(), ExcerptPolicy::KeyOnly);
    ConfigError::new(Code::ConfigBadValue, what)
        .with_location(place)
        .with_hint("rename one of them, or remove one")
}

/// Values are read no deeper than this.
const MAX_DEPTH: usize = 128;

struct JsonParser<'t> {
    source: SourceFile<'t>,
    at: usize,
    depth: usize,
}

impl<'t> JsonParser<'t> {
    const fn new(source: SourceFile<'t>) -> Self {
        Self {
            source,
            at: 0,
            depth: 0,
        }
    }

    fn rest(&self) -> &'t str {
        self.source.text.get(self.at..).unwrap_or_default()
    }

    /// The next byte behind blanks and comments. A comment that is not closed is no comment.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let rest = self.rest();
            let behind = rest.trim_start_matches([' ', '\t', '\n', '\r']);
            self.at += rest.len() - behind.len();
            let comment = match behind.get(..2) {
                Some("//") => behind.find(['\n', '\r']).unwrap_or(behind.len()),
                Some("/*") => match behind.get(2..).and_then(|inside| inside.find("*/")) {
                    Some(length) => length + 4,
                    None => return Some(b'/'),
                },
                Some(_) | None => return behind.bytes().next(),
            };
            self.at += comment;
        }
    }

    fn skip(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self) -> Result<Node<'t>, ConfigError> {
        let first = self.peek();
        let start = self.at;
        let value = match first {
            Some(b'{' | b'[') if self.depth == MAX_DEPTH => {
                self.raw_value()?;
                Value::Unreadable("a value that is nested too deep")
            },
            Some(b'{') => Value::Table(self.items(b'}', Self::member)?),
            Some(b'[') => Value::List(self.items(b']', Self::value)?),
            Some(b'"') => match serde_json::from_str(self.raw_value()?) {
                Ok(text) => Value::Text(Cow::Owned(text)),
                // Half a character: what editors leave that cut a text. Only its readers mind.
                Err(_) => Value::Unreadable("a string that is not Unicode"),
            },
            Some(_) => self.scalar()?,
            None => return Err(self.error("it ends where a value is expected")),
        };
        Ok(Node {
            span: start..self.at,
            value,
        })
    }

    /// The items up to a closing bracket.
    fn items<T>(
        &mut self,
        close: u8,
        item: fn(&mut Self) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        self.at += 1;
        self.depth += 1;
        let mut items = Vec::new();
        while !self.skip(close) {
            items.push(item(self)?);
            if !self.skip(b',') && self.peek() != Some(close) {
                let close = char::from(close);
                return Err(self.error(&format!("expected `,` or `{close}`")));
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    fn member(&mut self) -> Result<Member<'t>, ConfigError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("key must be a string"));
        }
        let start = self.at;
        let raw = self.raw_value()?;
        let key = Key {
            name: serde_json::from_str(raw).map_or(Cow::Borrowed(raw), Cow::Owned),
            span: start..self.at,
        };
        if !self.skip(b':') {
            return Err(self.error("expected `:`"));
        }
        Ok((key, self.value()?))
    }

    /// The text of a value without comments. Nesting costs no stack.
    fn raw_value(&mut self) -> Result<&'t str, ConfigError> {
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<&RawValue>();
        let next = values.next();
        let length = values.byte_offset();
        match next {
            Some(Ok(raw)) => {
                self.at += length;
                Ok(raw.get())
            },
            Some(Err(error)) => Err(self.syntax_error(&error)),
            None => Err(self.error("expected a value")),
        }
    }

    /// The error of a value, where serde found it. Its words repeat nothing of the value.
    fn syntax_error(&mut self, error: &serde_json::Error) -> ConfigError {
        let cause = error.to_string();
        let cause = cause.split(" at line ").next().unwrap_or_default();
        let lines = self.rest().split_inclusive('\n');
        let before = lines.take(error.line().saturating_sub(1));
        let before: usize = before.map(str::len).sum();
        // The column counts the bytes of the line up to the fault.
        let at = self.at + before + error.column().saturating_sub(1);
        self.at = self.source.text.floor_char_boundary(at);
        self.error(cause)
    }

    /// A number, or a word such as `true`.
    fn scalar(&mut self) -> Result<Value<'t>, ConfigError> {
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_ascii_whitespace() || "{}[]:,/\"".contains(c));
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        if serde_json::from_str::<&RawValue>(word).is_err() {
            return Err(self.error("expected a value"));
        }
        self.at += word.len();
        Ok(match word {
            "null" => Value::Null,
            "true" => Value::Switch(true),
            "false" => Value::Switch(false),
            _ if word.contains(['.', 'e', 'E']) => Value::Fraction,
            _ => Value::Integer(word.parse().ok()),
        })
    }

    /// What is wrong here. It never repeats a value, which may be secret.
    fn error(&self, cause: &str) -> ConfigError {
        let place = self
            .source
            .location(self.at..self.at, ExcerptPolicy::Hidden);
        let error = ConfigError::new(Code::ConfigUnreadable, "the file is not JSON")
            .with_location(place)
            .with_cause(cause);
        match self.rest().starts_with("/*") {
            true => error.with_hint("this comment is never closed: end it with `*/`"),
            false => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::{Value as Json, json};

    use super::*;

    fn source(text: &str) -> SourceFile<'_> {
        SourceFile {
            file: Path::new("mcp.json"),
            text,
        }
    }

    #[test]
    fn comments_and_idle_commas_are_skipped() {
        #[rustfmt::skip]
        let table = [
            ("{\"a\": 1, // one\n \"b\": 2}",    json!({"a": 1, "b": 2})),
            ("{/* a\r\nb */\"a\": 1}",           json!({"a": 1})),
            ("{\"a\": [1, 2,], }",               json!({"a": [1, 2]})),
            ("{\"a\": 1, /* , */ }",             json!({"a": 1})),
            ("{\"a\": 1} // é",                  json!({"a": 1})),
            ("{\"u\": \"https://x/*,]\\\"//\"}", json!({"u": "https://x/*,]\"//"})),
        ];
        for (text, value) in table {
            assert_eq!(plain(&parse_json(source(text)).unwrap()), value, "{text}");
        }
    }

    #[test]
    fn what_no_editor_takes_is_refused_with_its_place() {
        #[rustfmt::skip]
        let table = [
            ("[,]",                   2, "expected a value"),
            ("[1,,]",                 4, "expected a value"),
            ("{\"a\":,}",             6, "expected a value"),
            ("{ /* never closed }",   3, "key must be a string"),
            ("[ /* never closed ]",   3, "expected a value"),
            ("{\"a",                  3, "EOF while parsing a string"),
            ("{\"a\" 1}",             6, "expected `:`"),
            ("[1 2]",                 4, "expected `,` or `]`"),
            ("[1] 2",                 5, "trailing characters"),
            ("[01]",                  2, "expected a value"),
            ("[\"\\x\"]",             4, "invalid escape"),
            ("/",                     1, "expected a value"),
            ("",                      1, "it ends where a value is expected"),
        ];
        for (text, column, cause) in table {
            let error = parse_json(source(text)).unwrap_err();
            assert_eq!(error.cause.as_deref(), Some(cause), "{text}");
            assert_eq!(
                error.location.unwrap().position,
                Some((1, column)),
                "{text}"
            );
            assert_eq!(error.hint.is_some(), text.contains("never"), "{text}");
        }
        let deep = "[".repeat(1_000_000);
        assert!(parse_json(source(&deep)).is_err());
    }

    /// Clients keep much else in their files.
    #[test]
    fn a_value_that_nobody_reads_may_be_odd() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for odd in ["\"cut \\ud83d\"", deep.as_str()] {
            let text = format!("{{\"odd\": {odd}, \"a\": 1}}");
            let root = parse_json(source(&text)).unwrap();
            let a = root.member(&["a"]).unwrap();
            assert!(matches!(a.value, Value::Integer(Some(1))));
        }
    }

    /// The value without places.
    fn plain(node: &Node<'_>) -> Json {
        match &node.value {
            Value::Null | Value::Fraction | Value::Date | Value::Unreadable(_) => Json::Null,
            Value::Switch(on) => json!(on),
            Value::Integer(number) => json!(number),
            Value::Text(text) => json!(text),
            Value::List(items) => items.iter().map(plain).collect(),
            Value::Table(members) => {
                let members = members.iter();
                members
                    .map(|(key, node)| (key.name.to_string(), plain(node)))
                    .collect()
            },
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

    fn value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<i32>().prop_map(Json::from),
            "[a/*,\"\\\\ é\\[{}\\]]{0,12}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[a-c/*\",]{0,4}", inner, 0..4)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    /// The value as somebody may write it by hand.
    fn written(value: &Json, gaps: &mut impl Iterator<Item = String>) -> String {
        let mut gap = || gaps.next().unwrap_or_default();
        let (open, entries, close) = match value {
            Json::Array(items) => {
                let entries: Vec<_> = items.iter().map(|item| (None, item)).collect();
                ("[", entries, "]")
            },
            Json::Object(map) => {
                let entries: Vec<_> = map.iter().map(|(key, item)| (Some(key), item)).collect();
                ("{", entries, "}")
            },
            Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {
                return format!("{}{value}{}", gap(), gap());
            },
        };
        let mut out = format!("{}{open}{}", gap(), gap());
        let count = entries.len();
        for (place, (key, item)) in entries.into_iter().enumerate() {
            if let Some(key) = key {
                let key = Json::from(key.as_str());
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
            let read = parse_json(source(&text)).unwrap();
            prop_assert_eq!(plain(&read), value, "{}", text);
        }

        #[test]
        fn nothing_panics(junk in "[a\"\\\\/*,:{}\\[\\]\n é]{0,40}") {
            drop(parse_json(source(&junk)));
        }
    }
}
