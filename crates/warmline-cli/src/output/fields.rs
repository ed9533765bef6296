//! The fields of an object for programs, in the order of insertion.

use std::fmt::Write as _;

use serde::Serialize;

/// Named JSON values; one line when it is printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonFields(Vec<(&'static str, String)>);

impl JsonFields {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Fields that begin with this one.
    pub(crate) fn with(name: &'static str, value: impl Serialize) -> Self {
        Self::default().put(name, value)
    }

    pub(crate) fn put(mut self, name: &'static str, value: impl Serialize) -> Self {
        match serde_json::to_string(&value) {
            Ok(json) if json != "null" => self.0.push((name, json)),
            // Our own values can always be written.
            Ok(_) | Err(_) => {},
        }
        self
    }

    pub(crate) fn put_fields(mut self, other: &Self) -> Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    /// JSON as a server wrote it. Line breaks are whitespace there, never content.
    pub(crate) fn put_raw(mut self, name: &'static str, json: &[u8]) -> Self {
        let json = String::from_utf8_lossy(json).replace(['\n', '\r'], " ");
        self.0.push((name, json));
        self
    }

    pub(super) fn to_line(&self, kind: &str) -> String {
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
        let fields = JsonFields::new()
            .put("server", "a\"b")
            .put("hint", None::<&str>)
            .put("ms", 84)
            .put_raw("result", b"{\n \"z\": 1.0,\r\n \"a\": 2}");
        assert_eq!(
            fields.to_line("reply"),
            r#"{"kind":"reply","server":"a\"b","ms":84,"result":{  "z": 1.0,   "a": 2}}"#
        );
    }
}
