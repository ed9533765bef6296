//! A response for a client whose messages go another way than back on its request: taken apart
//! into messages again.
//!
//! Asked by: the stdio face, and that of the 2024-11-05 transport.

use std::future::Future as _;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

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
    while let Some(Ok(frame)) = driving(&mut body, |body, cx| Pin::new(body).poll_frame(cx)).await {
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match &mut events {
            None => send(out, held_in(room, data), &mut body).await,
            Some(events) => {
                events.push(&data);
                for event in events.by_ref().flatten() {
                    if !event.data.is_empty() {
                        send(out, held_in(room, event.data), &mut body).await;
                    }
                }
            },
        }
    }
}

/// Sends a message. The call behind it goes on while nobody reads.
async fn send(out: &mpsc::Sender<Bytes>, message: Bytes, body: &mut Body) {
    let mut sending = pin!(out.send(message));
    drop(driving(body, |_, cx| sending.as_mut().poll(cx)).await);
}

/// Waits for something, and drives the call of a response meanwhile.
async fn driving<T>(
    body: &mut Body,
    mut poll: impl FnMut(&mut Body, &mut Context<'_>) -> Poll<T>,
) -> T {
    std::future::poll_fn(|cx| {
        body.drive(cx);
        poll(body, cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::StatusCode;
    use tokio::sync::oneshot;
    use warmline::clock;

    use super::*;
    use crate::door::limits::Burden;
    use crate::flow::{Accepts, Calling, Ended, Flow, Leaving, Manner};
    use crate::lane::{Keep, Lane};

    /// reliability O1b: a call is over when its run or its gateway ends it, also where its client
    /// takes nothing of what was said before.
    #[tokio::test(start_paused = true)]
    async fn a_call_ends_though_nobody_takes_what_it_said() {
        let lane = Arc::new(Lane::new(Keep::Nothing));
        let (end, asked_to_end) = oneshot::channel::<()>();
        let (over, is_over) = oneshot::channel();
        let calling: Calling = Box::pin(async move {
            asked_to_end.await.ok();
            over.send(()).ok();
            Ended {
                status: StatusCode::OK,
                message: "{}".into(),
            }
        });
        let manner = Manner {
            accepts: Accepts::Events,
            leaving: Leaving::Cancels,
            stream: None,
        };
        let flow = Flow::of(calling, Arc::clone(&lane), manner, Burden::default());
        for _ in 0..3 {
            lane.tell("{}".into());
        }
        let (out, mut said) = mpsc::channel(1);
        let passing = clock::spawn("passing", async move {
            pass(flow.response(), (&out, None), 1_024).await;
        });
        // Time goes on when nobody has anything to do: the second message waits for the first.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        end.send(()).unwrap();
        let within = std::time::Duration::from_secs(1);
        tokio::time::timeout(within, is_over)
            .await
            .unwrap()
            .unwrap();
        for _ in 0..4 {
            assert!(said.recv().await.is_some());
        }
        passing.await.unwrap();
    }
}
