//! Mirrors: which arguments of a tool travel in headers as well (`x-mcp-header`), as far as its
//! list was seen.
//!
//! Asked by: the modern drivers, before a call.  Told by: every list of tools that they carry.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use papaya::HashMap;
use warmline_core::code::Reason;
use warmline_core::exchange::{Request, Trouble, Words};
use warmline_core::protocol::headers::{self, HeaderRule, ToolHeaders};

use super::lists::{self, List};

/// Headers made from arguments.
pub(crate) type Mirrored = Vec<(HeaderName, HeaderValue)>;

/// What the tools seen so far want mirrored, by name. Read by every call of everybody, and written
/// when a list comes by.
#[derive(Debug, Default)]
pub(crate) struct Mirrors(HashMap<String, Wanted>);

/// What a tool's schema asks for; an error where it breaks the rules, and the tool is not used.
type Wanted = Result<Arc<ToolHeaders>, HeaderRule>;

/// What more tools than this want is learnt anew.
const MAX_TOOLS: usize = 4096;
/// The code of headers that are unlike the body.
const HEADER_MISMATCH: i64 = -32020;

impl Mirrors {
    /// The headers that a tool's schema asks for, made from the arguments; none where the tool is
    /// not known, or asks for nothing.
    pub(crate) fn made(&self, request: &Request) -> Result<Mirrored, NotMirrored> {
        if request.method() != "tools/call" || self.0.is_empty() {
            return Ok(Vec::new());
        }
        let Some(name) = request.params().name() else {
            return Ok(Vec::new());
        };
        let wanted = self.0.pin().get(&*name).cloned();
        let arguments = request.params().member("arguments").unwrap_or(b"{}");
        let not_valid = |rule: HeaderRule| {
            let what = format!(
                "`{name}` cannot be called: a header that its schema asks for is not valid"
            );
            let trouble = Trouble::new(Reason::InvalidRequest, what).because(rule.to_string());
            NotMirrored::NotValid(trouble)
        };
        let Some(wanted) = wanted else {
            return Ok(Vec::new());
        };
        let wanted = wanted.map_err(not_valid)?;
        let made = match wanted.of(arguments) {
            Ok(made) => made,
            // Whoever wrote the arguments writes the headers, and is told in the words of both.
            Err(rule) if request.words() == Words::PassedWithHeaders => {
                let why = format!("an argument cannot stand in its header: {rule}");
                return Err(NotMirrored::Mismatch(mismatched(&why)));
            },
            Err(rule) => return Err(not_valid(rule)),
        };
        match mismatch(request, &wanted, &made) {
            Some(error) => Err(NotMirrored::Mismatch(error)),
            None => Ok(made),
        }
    }

    /// Notes what the tools of a page want.
    pub(crate) fn note(&self, server: &str, page: &[u8]) {
        let Ok((items, _)) = lists::read_page(List::Tools, page) else {
            return;
        };
        let tools = self.0.pin();
        if tools.len() > MAX_TOOLS {
            tools.clear();
        }
        for item in items {
            let Ok(tool) = serde_json::from_slice::<lists::Tool<'_>>(&item) else {
                continue;
            };
            match ToolHeaders::of_schema(tool.input_schema.get().as_bytes()) {
                Ok(wanted) if wanted.is_empty() => {
                    tools.remove(&tool.name);
                },
                Ok(wanted) => {
                    tools.insert(tool.name, Ok(Arc::new(wanted)));
                },
                Err(rule) => {
                    tracing::warn!(%server, tool = tool.name, %rule, "tool with bad x-mcp-header");
                    tools.insert(tool.name, Err(rule));
                },
            }
        }
    }
}

/// Why the headers of a call do not say what its arguments say.
pub(crate) enum NotMirrored {
    /// The schema or the arguments allow none.
    NotValid(Trouble),
    /// The client's own say something else than its arguments: the error that it gets.
    Mismatch(Bytes),
}

/// The error of a client whose headers do not say what its arguments say. Headers that the schema
/// does not name are nobody's business.
fn mismatch(
    request: &Request,
    wanted: &ToolHeaders,
    made: &[(HeaderName, HeaderValue)],
) -> Option<Bytes> {
    if request.words() != Words::PassedWithHeaders {
        return None;
    }
    let value = |all: &[(HeaderName, HeaderValue)], name: &HeaderName| {
        let found = all.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    };
    let differs = |name: &&HeaderName| match (value(request.headers(), name), value(made, name)) {
        (None, None) => false,
        (Some(sent), Some(made)) => !says_the_same(&sent, &made),
        (Some(_), None) | (None, Some(_)) => true,
    };
    let name = wanted.names().find(differs)?;
    Some(mismatched(&format!(
        "`{name}` is not what the arguments say"
    )))
}

/// The error of a client whose headers and arguments do not go together.
fn mismatched(why: &str) -> Bytes {
    let what = format!("Header mismatch: {why}");
    let error = serde_json::json!({ "code": HEADER_MISMATCH, "message": what });
    error.to_string().into()
}

/// Whether two headers say the same, however they are coded; numbers by their value.
fn says_the_same(sent: &HeaderValue, made: &HeaderValue) -> bool {
    let (Some(sent), Some(made)) = (headers::decode_value(sent), headers::decode_value(made))
    else {
        return false;
    };
    let number = |text: &str| text.parse::<f64>().ok().map(f64::to_bits);
    sent == made || number(&made).is_some_and(|made| number(&sent) == Some(made))
}
