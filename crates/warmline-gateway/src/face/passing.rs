//! A response for a client whose messages go another way than back on its request: taken apart
//! into messages again.
//!
//! Asked by: the stdio face, and that of the 2024-11-05 transport.

use std::pin::Pin;

use bytes::Bytes;
use http::Response;
use http_body::Body as _;
use tokio::sync::mpsc;
use warmline::core::protocol::sse::SseParser;

use crate::body::Body;
use crate::door::replies::ReplyRoom;
use crate::flow::held_in;

/// Passes the messages of a response on, as they come; large ones are counted in that room until
/// they were read. Whoever reads no more hears of nothing.
pub(super) async fn pass(
    response: Response<Body>,
    (out, room): (&mpsc::Sender<Bytes>, Option<&ReplyRoom>),
    limit: usize,
) {
    let mut body = response.into_body();
    let mut events = match body {
        Body::Events(_) => Some(SseParser::new(limit.saturating_mul(8))),
        Body::Empty | Body::Whole(_) | Body::Lines(_) | Body::Told(_) => None,
    };
    while let Some(Ok(frame)) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
    {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match &mut events {
            None => drop(out.send(held_in(room, data)).await),
            Some(events) => {
                events.push(&data);
                for event in events.by_ref().flatten() {
                    if !event.data.is_empty() {
                        drop(out.send(held_in(room, event.data)).await);
                    }
                }
            },
        }
    }
}
