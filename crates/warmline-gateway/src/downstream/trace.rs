//! The trace context of a request, passed on to its server.
//!
//! The gateway makes no spans (`docs/adr/0013-traces-are-forwarded.md`), so headers are passed on as
//! headers, `_meta` as `_meta`, and what is only in `_meta` as headers too. A program gets what is only
//! in headers in its `_meta`. Malformed values are dropped.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};
use memchr::memmem;
use warmline_core::message::params::Params;
use warmline_core::protocol::meta::{BAGGAGE, TRACE_PARENT, TRACE_STATE};
use warmline_core::protocol::trace::trace_id;

/// A longer `tracestate` is not passed on.
const MAX_TRACESTATE: usize = 4 << 10;
/// A longer `baggage` is not passed on: the limit of its specification.
const MAX_BAGGAGE: usize = 8 << 10;

pub(crate) fn trace_headers(
    headers: &HeaderMap,
    params: &Params,
) -> impl Iterator<Item = (HeaderName, HeaderValue)> + use<> {
    let said = TraceSource { headers, params };
    let parent = said.traceparent();
    let state = parent.as_ref().and_then(|_| said.value(TRACE_STATE));
    let state = state.filter(|state| state.len() <= MAX_TRACESTATE);
    let baggage = said.value(BAGGAGE);
    let baggage = baggage.filter(|baggage| baggage.len() <= MAX_BAGGAGE);
    let made = [
        trace_header(TRACE_PARENT, parent),
        trace_header(TRACE_STATE, state),
        trace_header(BAGGAGE, baggage),
    ];
    made.into_iter().flatten()
}

fn trace_header(
    name: &'static str,
    text: Option<Cow<'_, str>>,
) -> Option<(HeaderName, HeaderValue)> {
    let value = HeaderValue::from_str(&text?).ok()?;
    Some((HeaderName::from_static(name), value))
}

pub(crate) fn request_trace_id(headers: &HeaderMap, params: &Params) -> Option<String> {
    let parent = TraceSource { headers, params }.traceparent()?;
    trace_id(&parent).map(str::to_owned)
}

#[derive(Clone, Copy)]
struct TraceSource<'a> {
    headers: &'a HeaderMap,
    params: &'a Params,
}

impl<'a> TraceSource<'a> {
    /// The valid `traceparent`: of the header, else of `_meta`.
    fn traceparent(self) -> Option<Cow<'a, str>> {
        let is_one = |parent: &Cow<'a, str>| trace_id(parent).is_some();
        let header = self.header(TRACE_PARENT).filter(is_one);
        header.or_else(|| self.meta_value(TRACE_PARENT).filter(is_one))
    }

    fn value(self, name: &'static str) -> Option<Cow<'a, str>> {
        self.header(name).or_else(|| self.meta_value(name))
    }

    /// The text of a header. Several headers of one name are one list.
    fn header(self, name: &'static str) -> Option<Cow<'a, str>> {
        let mut all = self.headers.get_all(name).iter();
        let first = all.next()?.to_str().ok()?;
        let mut text = Cow::Borrowed(first);
        for more in all {
            // Two parents are invalid.
            if name == TRACE_PARENT {
                return None;
            }
            let joined = text.to_mut();
            joined.push(',');
            joined.push_str(more.to_str().ok()?);
        }
        Some(text)
    }

    /// Most requests have no trace, and are not parsed for it.
    fn meta_value(self, name: &'static str) -> Option<Cow<'a, str>> {
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
        let passed = trace_headers(&head.headers, &params);
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
