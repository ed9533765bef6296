//! The event stream: events of the engine, one line of JSON each.
//!
//! Nothing waits for a reader: one that does not keep up misses the oldest events, and its next
//! line counts them. The stream ends with the gateway.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use warmline_engine::events::EventItem;
use warmline_platform::clock;

use super::VERSION;
use crate::GatewayState;
use crate::response::body::ResponseBody;
use crate::shutdown::wait_for_stop;

const DRAIN_GRACE: Duration = Duration::from_secs(24);

pub(super) fn stream_events(shared: &GatewayState) -> Response<ResponseBody> {
    let first = event_line(json!({ "kind": "listening", "version": VERSION }));
    let streams = (shared.warmline.events(), shared.stopping.clone());
    let following = stream::unfold(streams, |(mut events, mut stopping)| async move {
        let ended = async {
            wait_for_stop(&mut stopping).await;
            clock::sleep(DRAIN_GRACE).await;
        };
        let item = tokio::select! {
            item = events.next() => item?,
            () = ended => return None,
        };
        let line = match item {
            EventItem::Event(event) => serde_json::to_value(&event).unwrap_or_default(),
            EventItem::Missed(count) => json!({ "kind": "missed", "events": count }),
        };
        Some((event_line(line), (events, stopping)))
    });
    let lines = stream::once(std::future::ready(first)).chain(following);
    let mut response = Response::new(ResponseBody::Stream(lines.boxed()));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn event_line(mut event: Value) -> Bytes {
    if event.is_object() {
        event["at"] = clock::wall_seconds().into();
    }
    Bytes::from(format!("{event}\n"))
}
