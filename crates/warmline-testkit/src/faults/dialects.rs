//! The dialects of refusal: every form in which a known server says that a session is gone or
//! missing, byte for byte.
//!
//! Two placeholders stand in bodies and are filled when a refusal is written: `$ID` is the
//! request's id as JSON (null where it has none), `$SESSION` the session id it carried.

mod field_reports;
mod sdk;

use std::sync::LazyLock;

use serde_json::Value;

pub use self::field_reports::FIELD_REPORTS;
pub use self::sdk::{SDK, SESSION_MISSING};

/// Every form of "this session is gone": what SDKs and gateways say, then what was met in the field.
pub static SESSION_GONE: LazyLock<Vec<Dialect>> =
    LazyLock::new(|| SDK.iter().chain(FIELD_REPORTS).copied().collect());

/// What the specification asks for: 404. The words are those of the Python SDK 2.x.
pub static SESSION_GONE_SPEC: Dialect = Dialect::uniform("spec", "the specification", J2);
/// What the specification asks for when the id is missing: 400.
pub static SESSION_MISSING_SPEC: Dialect = Dialect::uniform(
    "spec-missing",
    "the specification",
    DialectReply::json(
        400,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
    ),
);

/// One server's way to refuse a session id it does not know, by what was sent to it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Dialect {
    /// Short name: the row of the table it was collected in.
    pub name: &'static str,
    /// Who speaks so.
    pub server: &'static str,
    /// Answer to a POST of an ordinary request.
    pub post: DialectReply,
    /// Answer to a GET.
    pub get: DialectReply,
    /// Answer to a DELETE.
    pub delete: DialectReply,
    /// Answer to an `initialize` that carries the dead id.
    pub initialize: DialectReply,
}

/// One answer, byte for byte.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DialectReply {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type`, if one is sent.
    pub content_type: Option<&'static str>,
    /// Further headers.
    pub headers: &'static [(&'static str, &'static str)],
    /// The body, with `$ID` and `$SESSION` to be filled.
    pub body: &'static str,
    /// Whether the request is executed.
    pub effect: DialectEffect,
}

/// Whether a request that is answered in a dialect is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialectEffect {
    /// Refused before anything was done.
    NotExecuted,
    /// Served as if the id were good, or absent: status and body of the row do not apply.
    Served,
    /// Executed, and answered with these words all the same.
    Executed,
}

impl Dialect {
    /// The same words whatever was sent.
    pub(crate) const fn uniform(
        name: &'static str,
        server: &'static str,
        words: DialectReply,
    ) -> Self {
        Self {
            name,
            server,
            post: words,
            get: words,
            delete: words,
            initialize: words,
        }
    }

    const fn with_get(mut self, words: DialectReply) -> Self {
        self.get = words;
        self
    }

    const fn with_delete(mut self, words: DialectReply) -> Self {
        self.delete = words;
        self
    }

    const fn with_initialize(mut self, words: DialectReply) -> Self {
        self.initialize = words;
        self
    }
}

impl DialectReply {
    const fn json(status: u16, body: &'static str) -> Self {
        Self::with_content_type(status, Some("application/json"), body)
    }

    const fn without_content_type(status: u16, body: &'static str) -> Self {
        Self::with_content_type(status, None, body)
    }

    const fn plain_text(status: u16, body: &'static str) -> Self {
        Self::with_content_type(status, Some("text/plain; charset=utf-8"), body)
    }

    const fn html(status: u16, body: &'static str) -> Self {
        Self::with_content_type(status, Some("text/html; charset=utf-8"), body)
    }

    const fn with_content_type(
        status: u16,
        content_type: Option<&'static str>,
        body: &'static str,
    ) -> Self {
        Self {
            status,
            content_type,
            headers: &[],
            body,
            effect: DialectEffect::NotExecuted,
        }
    }

    const fn served() -> Self {
        Self {
            effect: DialectEffect::Served,
            ..Self::without_content_type(200, "")
        }
    }

    const fn with_headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    const fn executed(mut self) -> Self {
        self.effect = DialectEffect::Executed;
        self
    }

    /// The body as it leaves the server.
    pub fn fill_body(&self, id: &Value, session: Option<&str>) -> String {
        fill_placeholders(self.body, id, session)
    }
}

/// Finds a dialect by its name, among the gone and the missing.
pub fn by_name(name: &str) -> Option<&'static Dialect> {
    SESSION_GONE
        .iter()
        .chain(SESSION_MISSING)
        .find(|dialect| dialect.name == name)
}

/// Fills `$ID` and `$SESSION`.
pub(crate) fn fill_placeholders(body: &str, id: &Value, session: Option<&str>) -> String {
    body.replace("$ID", &id.to_string())
        .replace("$SESSION", session.unwrap_or_default())
}

/// J1: Python 1.26 and later.
pub const J1: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
);
/// J2: Python 2.x.
pub const J2: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}"#,
);
/// J3: Python before 1.26, the id is unknown.
pub const J3: DialectReply =
    DialectReply::without_content_type(400, "Bad Request: No valid session ID provided");
/// J4: Python before 1.26, the id was deleted; the header echoes it.
pub const J4: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Not Found: Session has been terminated"}}"#,
)
.with_headers(&[("mcp-session-id", "$SESSION")]);
/// J5: TypeScript.
pub const J5: DialectReply = DialectReply::json(
    404,
    r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#,
);
/// J6: TypeScript, one transport object, just restarted.
pub const J6: DialectReply = DialectReply::json(
    400,
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}"#,
);
/// J7: TypeScript after the published example.
pub const J7: DialectReply = DialectReply::json(
    400,
    r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
);
/// J8: the same example, for GET and DELETE.
pub const J8: DialectReply = DialectReply::html(400, "Invalid or missing session ID");
/// J9: rmcp from 0.17.
pub const J9: DialectReply =
    DialectReply::without_content_type(404, "Not Found: Session not found");
/// J10: rmcp up to 0.16; no challenge comes with it.
pub const J10: DialectReply =
    DialectReply::without_content_type(401, "Unauthorized: Session not found");
/// J11: Go.
pub const J11: DialectReply = DialectReply::plain_text(404, "session not found\n");
/// J12: C#, with the request's id.
pub const J12: DialectReply = DialectReply::json(
    404,
    r#"{"error":{"code":-32001,"message":"Session not found"},"id":$ID,"jsonrpc":"2.0"}"#,
);
/// J13: C# without sessions.
pub const J13: DialectReply = DialectReply::json(
    400,
    r#"{"error":{"code":-32000,"message":"Bad Request: The Mcp-Session-Id header is not supported in stateless mode"},"id":$ID,"jsonrpc":"2.0"}"#,
);
