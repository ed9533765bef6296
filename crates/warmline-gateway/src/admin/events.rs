//! The event stream: what happens in the engine, one line of JSON each, as it happens.
//!
//! Asked by: [`admin`](super).  Nothing waits for a reader: one that does not keep up loses the
//! oldest events, and its next line says how many. The stream ends with the gateway.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use warmline::clock;
use warmline::events::{Heard, Subscription};

use super::VERSION;
use crate::Shared;
use crate::body::Body;
use crate::door::stopped;

/// So long what happens is told after nothing new is taken.
const TO_THE_END: Duration = Duration::from_secs(24);

/// Lines as they come.
pub(crate) struct EventLines(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl fmt::Debug for EventLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLines").finish_non_exhaustive()
    }
}

impl EventLines {
    pub(crate) fn poll_lines(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let lines = self.0.as_mut().poll_next(cx);
        lines.map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

/// Everything that happens from now on.
pub(super) fn answer(shared: &Shared) -> Response<Body> {
    let events = shared.warm.events();
    let first = line(&json!({ "kind": "listening", "version": VERSION }));
    let following = stream::unfold((events, shared.stopping.clone()), |(events, stopping)| {
        next(events, stopping)
    });
    let lines = stream::once(std::future::ready(first)).chain(following);
    let mut response = Response::new(Body::Lines(Box::new(EventLines(Box::pin(lines)))));
    let kind = HeaderValue::from_static("application/x-ndjson");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

type Hearing = (Subscription, watch::Receiver<bool>);

async fn next(
    mut events: Subscription,
    mut stopping: watch::Receiver<bool>,
) -> Option<(Bytes, Hearing)> {
    let over = async {
        stopped(&mut stopping).await;
        clock::sleep(TO_THE_END).await;
    };
    let heard = tokio::select! {
        heard = events.next() => heard?,
        () = over => return None,
    };
    let told = match heard {
        Heard::Event(event) => serde_json::to_value(&event).unwrap_or_default(),
        Heard::Missed(count) => json!({ "kind": "missed", "events": count }),
    };
    Some((line(&told), (events, stopping)))
}

/// A line, with when it was told.
fn line(told: &Value) -> Bytes {
    let mut told = told.clone();
    if let Some(fields) = told.as_object_mut() {
        fields.insert("at".to_owned(), clock::wall_seconds().into());
    }
    Bytes::from(format!("{told}\n"))
}
