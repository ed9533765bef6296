//! The trace that a request belongs to, passed on to its server.
//!
//! Asked by: the faces, for every request that goes to a server, and the audit.  We make no spans
//! (`docs/adr/0013-a-trace-is-passed-on.md`), so what a client says is passed on as it is: its headers as headers, its `_meta` as `_meta`, and
//! what stands only in `_meta` as headers too. A program gets what stands only in headers in its
//! `_meta`. What is malformed is left out.

use std::borrow::Cow;

use http::request::Parts;
use http::{HeaderName, HeaderValue};
use memchr::memmem;
use warmline::core::protocol::meta::{BAGGAGE, TRACE_PARENT, TRACE_STATE};
use warmline::core::protocol::params::Params;
use warmline::core::protocol::trace::trace_id;

/// More than this of what vendors add is not passed on.
const MAX_STATE: usize = 4 << 10;
/// More than this of what applications add is not passed on: the limit of its specification.
const MAX_BAGGAGE: usize = 8 << 10;

/// The headers that pass on which trace a request belongs to; none where it says nothing of one.
pub(crate) fn passed_on(
    head: &Parts,
    params: &Params,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let said = Said { head, params };
    let parent = said.parent();
    let state = parent.as_ref().and_then(|_| said.text(TRACE_STATE));
    let state = state.filter(|state| state.len() <= MAX_STATE);
    let baggage = said.text(BAGGAGE);
    let baggage = baggage.filter(|baggage| baggage.len() <= MAX_BAGGAGE);
    let made = [
        made(TRACE_PARENT, parent),
        made(TRACE_STATE, state),
        made(BAGGAGE, baggage),
    ];
    made.into_iter().flatten()
}

fn made(name: &'static str, text: Option<Cow<'_, str>>) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(&text?).ok()?;
    Some((HeaderName::from_static(name), value))
}

/// The id of the trace that a request belongs to.
pub(crate) fn id(head: &Parts, params: &Params) -> Option<String> {
    let parent = Said { head, params }.parent()?;
    trace_id(&parent).map(str::to_owned)
}

/// What a request says of its trace, in two places.
#[derive(Clone, Copy)]
struct Said<'a> {
    head: &'a Parts,
    params: &'a Params,
}

impl<'a> Said<'a> {
    /// The `traceparent` that counts: the header's, else the one of `_meta`, if it is one.
    fn parent(self) -> Option<Cow<'a, str>> {
        let is_one = |parent: &Cow<'a, str>| trace_id(parent).is_some();
        let header = self.header(TRACE_PARENT).filter(is_one);
        header.or_else(|| self.in_meta(TRACE_PARENT).filter(is_one))
    }

    fn text(self, name: &'static str) -> Option<Cow<'a, str>> {
        self.header(name).or_else(|| self.in_meta(name))
    }

    /// The text of a header; several of one name are one list.
    fn header(self, name: &'static str) -> Option<Cow<'a, str>> {
        let mut all = self.head.headers.get_all(name).iter();
        let first = all.next()?.to_str().ok()?;
        let mut text = Cow::Borrowed(first);
        for more in all {
            // Two parents are none.
            if name == TRACE_PARENT {
                return None;
            }
            let joined = text.to_mut();
            joined.push(',');
            joined.push_str(more.to_str().ok()?);
        }
        Some(text)
    }

    /// Most requests say nothing of a trace, and are not looked through for it.
    fn in_meta(self, name: &'static str) -> Option<Cow<'a, str>> {
        memmem::find(self.params.raw(), name.as_bytes())?;
        let raw = self.params.meta_member(name)?;
        let text: String = serde_json::from_slice(raw).ok()?;
        Some(Cow::Owned(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::Request;
    use serde_json::{Value, json};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const OTHER: &str = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn passed(headers: &[(&str, &str)], meta: &Value) -> Vec<(String, String)> {
        let mut request = Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let raw = json!({ "_meta": meta }).to_string();
        let params = Params::parse(Bytes::from(raw)).unwrap();
        let passed = passed_on(&head, &params);
        passed
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect()
    }

    /// Headers, `_meta`, and what is passed on.
    type Case<'a> = (Vec<(&'a str, &'a str)>, Value, Vec<(String, String)>);

    /// P57: each request passes on its own trace, from where it is said, and no other.
    #[test]
    fn what_is_said_of_a_trace_is_passed_on_and_what_is_malformed_is_not() {
        let large = format!("a={}", "x".repeat(MAX_BAGGAGE));
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            let owned = pairs.iter();
            owned
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect()
        };
        #[rustfmt::skip]
        let cases: Vec<Case<'_>> = vec![
            (vec![], json!({}), vec![]),
            (vec![("traceparent", PARENT)], json!({}), pairs(&[("traceparent", PARENT)])),
            (vec![], json!({ "traceparent": PARENT }), pairs(&[("traceparent", PARENT)])),
            (vec![("traceparent", PARENT)], json!({ "traceparent": OTHER }), pairs(&[("traceparent", PARENT)])),
            (vec![("traceparent", "nonsense")], json!({ "traceparent": OTHER }), pairs(&[("traceparent", OTHER)])),
            (vec![("traceparent", "nonsense"), ("tracestate", "a=1")], json!({}), vec![]),
            (vec![("traceparent", PARENT), ("traceparent", OTHER)], json!({}), vec![]),
            (vec![("tracestate", "a=1")], json!({}), vec![]),
            (vec![], json!({ "traceparent": 7, "tracestate": ["a"] }), vec![]),
            (vec![], json!({ "traceparent": format!("{PARENT}\r\nX: y") }), vec![]),
            (
                vec![("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2")],
                json!({}),
                pairs(&[("traceparent", PARENT), ("tracestate", "a=1,b=2")]),
            ),
            (vec![("baggage", "who=me")], json!({}), pairs(&[("baggage", "who=me")])),
            (vec![], json!({ "baggage": "who=me\r\nX: y" }), vec![]),
            (vec![("baggage", &large)], json!({}), vec![]),
        ];
        for (headers, meta, expected) in cases {
            assert_eq!(passed(&headers, &meta), expected, "{headers:?} {meta}");
        }
    }
}
