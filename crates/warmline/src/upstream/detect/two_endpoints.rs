//! The transport of 2024-11-05: a stream that names a second endpoint to post to.
//!
//! Recognised, so that its users are told what stands at their URL; not spoken yet.

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use warmline_core::code::Reason;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::sse::SseParser;

use super::Opening;
use crate::clock;
use crate::upstream::http::{Arrival, BodyKind};
use crate::upstream::server::HttpReach;

impl Opening<'_> {
    /// Nobody took our POST (row P11). Looks whether a GET brings the `endpoint` event; what the
    /// POST got stays the answer if it does not.
    pub(super) async fn or_two_endpoints(
        &mut self,
        reach: &HttpReach,
        refused: Trouble,
    ) -> Trouble {
        let Ok((endpoint, mut base)) = self.upstream.endpoint(self.server, reach) else {
            return refused;
        };
        base.insert(
            header::ACCEPT,
            HeaderValue::from_static("text/event-stream"),
        );
        base.remove(header::CONTENT_TYPE);
        let by = clock::now() + self.server.times.connect;
        let got = endpoint
            .send(Method::GET, || base.clone(), Bytes::new(), by)
            .await;
        let Ok(arrival) = got else { return refused };
        if arrival.status != StatusCode::OK || arrival.kind() != BodyKind::Stream {
            return refused;
        }
        let names_endpoint = clock::timeout_at(by, first_event(arrival, self.server.sizes.event));
        if names_endpoint.await != Ok(Some("endpoint".to_owned())) {
            return refused;
        }
        self.note("GET", "an `endpoint` event");
        let server = &self.server.name;
        Trouble::new(
            Reason::Version,
            format!("`{server}` offers only the HTTP+SSE transport of 2024-11-05 at this URL"),
        )
        .because("a POST is refused, and a GET names another endpoint to post to")
        .hint("use its Streamable HTTP endpoint, which often ends in /mcp")
    }
}

async fn first_event(mut arrival: Arrival, limit: usize) -> Option<String> {
    let mut parser = SseParser::new(limit);
    loop {
        if let Some(event) = parser.next() {
            return event.ok()?.event;
        }
        parser.push(&arrival.piece().await?.ok()?);
    }
}
