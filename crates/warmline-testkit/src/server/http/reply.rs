//! Replies as bytes.

use serde_json::Value;

use crate::faults::dialects::{DialectReply, fill_placeholders};
use crate::faults::fault::{AfterReply, CannedReply};

/// A whole reply before it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpReply {
    /// 0: `body` is all there is to write.
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// So many bytes of the body are written, then the connection ends.
    pub(crate) cut_after: Option<usize>,
    /// What becomes of the connection.
    pub(crate) after_reply: AfterReply,
}

impl HttpReply {
    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub(crate) fn text(status: u16, words: &str) -> Self {
        Self::empty(status).with_body("text/plain; charset=utf-8", words.as_bytes().to_vec())
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::empty(status).with_body("application/json", body.to_string().into_bytes())
    }

    /// A JSON-RPC error that is about no request in particular.
    pub(crate) fn error(status: u16, id: &Value, code: i64, message: &str) -> Self {
        let error = serde_json::json!({"code": code, "message": message});
        Self::json(
            status,
            &serde_json::json!({"jsonrpc": "2.0", "id": id, "error": error}),
        )
    }

    /// A row of the dialects, filled.
    pub(crate) fn from_dialect(words: &DialectReply, id: &Value, session: Option<&str>) -> Self {
        let mut reply = Self::empty(words.status);
        if let Some(content_type) = words.content_type {
            reply = reply.with_header("Content-Type", content_type);
        }
        for (name, value) in words.headers {
            reply = reply.with_header(name, &fill_placeholders(value, id, session));
        }
        reply.body = words.fill_body(id, session).into_bytes();
        reply
    }

    pub(crate) fn from_canned(canned: &CannedReply, id: &Value, session: Option<&str>) -> Self {
        Self {
            status: canned.status,
            headers: canned.headers.clone(),
            body: fill_placeholders(&canned.body, id, session).into_bytes(),
            cut_after: canned.cut_after,
            after_reply: canned.after_reply,
        }
    }

    pub(crate) fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn with_body(self, content_type: &str, body: Vec<u8>) -> Self {
        let mut reply = self.with_header("Content-Type", content_type);
        reply.body = body;
        reply
    }

    /// The status line and headers, with `Content-Length` unless the reply says how long it is.
    pub(crate) fn head_bytes(&self) -> Vec<u8> {
        let framed = self.headers.iter().any(|(name, _)| {
            name.eq_ignore_ascii_case("content-length")
                || name.eq_ignore_ascii_case("transfer-encoding")
        });
        let mut head = status_and_headers(self.status, &self.headers);
        if !framed && self.status != 204 && self.status >= 200 {
            head.extend(format!("Content-Length: {}\r\n", self.body.len()).into_bytes());
        }
        head.extend(b"\r\n");
        head
    }
}

/// The status line and these headers, without the empty line at the end.
pub(crate) fn status_and_headers(status: u16, headers: &[(String, String)]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status)).into_bytes();
    for (name, value) in headers {
        head.extend(name.as_bytes());
        head.extend(b": ");
        // One byte for each character, so that a test can put any byte into a header.
        head.extend(
            value
                .chars()
                .map(|letter| u8::try_from(u32::from(letter)).unwrap_or(b'?')),
        );
        head.extend(b"\r\n");
    }
    head
}

const fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Status",
    }
}
