//! The fields of an object for programs, in the order in which they were put.

use std::fmt::Write as _;

use serde::Serialize;

/// Named JSON values; one line when it is printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(&'static str, String)>);

impl Fields {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// A value; what is not there is left out.
    pub(crate) fn put(mut self, name: &'static str, value: impl Serialize) -> Self {
        match serde_json::to_string(&value) {
            Ok(json) if json != "null" => self.0.push((name, json)),
            // Our own values are texts, numbers and lists of them: these can always be written.
            Ok(_) | Err(_) => {},
        }
        self
    }

    /// JSON as somebody else wrote it. Line breaks are whitespace there, never content.
    pub(crate) fn raw(mut self, name: &'static str, json: &[u8]) -> Self {
        let json = String::from_utf8_lossy(json).replace(['\n', '\r'], " ");
        self.0.push((name, json));
        self
    }

    /// The object as one line. `kind` comes first: a reader tells lines apart at a glance.
    pub(super) fn line(&self, kind: &str) -> String {
        let mut line = format!("{{\"kind\":\"{kind}\"");
        for (name, json) in &self.0 {
            // Writing into a String does not fail.
            write!(line, ",\"{name}\":{json}").ok();
        }
        line.push('}');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_one_line_in_the_order_of_its_fields() {
        let fields = Fields::new()
            .put("server", "a\"b")
            .put("hint", None::<&str>)
            .put("ms", 84)
            .raw("result", b"{\n \"z\": 1.0,\r\n \"a\": 2}");
        assert_eq!(
            fields.line("reply"),
            r#"{"kind":"reply","server":"a\"b","ms":84,"result":{  "z": 1.0,   "a": 2}}"#
        );
    }
}
