//! Follows the event stream of a call. One that breaks after an event with an id is resumed there,
//! with `Last-Event-ID`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Request};
use warmline_core::message::sse::SseParser;
use warmline_core::protocol::headers::LAST_EVENT_ID;
use warmline_platform::clock;

use super::session::LegacyHttpSession;
use crate::http::call_reader::{CallReader, StreamEnd};
use crate::http::endpoint::HttpResponse;
use crate::http::response;

/// The pause before a broken stream is resumed, if the server names none.
const DEFAULT_RESUME_DELAY: Duration = Duration::from_secs(1);
/// No server is asked more often, whatever pause it names.
const MIN_RESUME_DELAY: Duration = Duration::from_millis(50);
/// A longer pause is no pause but an end; the call's own deadlines come first.
const MAX_RESUME_DELAY: Duration = Duration::from_secs(3600);
/// How often in a row a resumption may bring nothing before the reply counts as lost.
const MAX_RESUME_ATTEMPTS: u32 = 5;

impl LegacyHttpSession {
    /// Follows the stream of a call, over as many connections as the server likes.
    pub(super) async fn follow_stream(
        self: &Arc<Self>,
        mut stream: HttpResponse,
        request: Request,
        call: &mut CallReader<'_>,
    ) -> AttemptResult {
        let endpoint = &self.poster.headers.endpoint;
        let mut parser = SseParser::new(endpoint.size_limits.event);
        call.listener.on_stream_started();
        let (mut attempts, mut seen) = (0, None::<String>);
        loop {
            let end = call.read_stream(stream, &mut parser).await;
            let StreamEnd::Over { why, was_closed } = end else {
                return response::ending_of_stream(self.sent_request(call.id), end, request, call);
            };
            let Some(last) = parser.last_id().map(str::to_owned) else {
                return response::stream_interrupted(&endpoint.server, call, &why);
            };
            let asked = parser.retry().map(Duration::from_millis);
            let pause = asked.unwrap_or(DEFAULT_RESUME_DELAY);
            let pause = pause.clamp(MIN_RESUME_DELAY, MAX_RESUME_DELAY);
            if was_closed {
                call.listener.on_stream_paused(pause);
            }
            parser.finish();
            // Only a stream that brought something new resets the count.
            if seen.as_deref() != Some(last.as_str()) {
                attempts = 0;
                seen = Some(last.clone());
            }
            stream = match self.resume_stream(&last, pause, &mut attempts, call).await {
                Ok(stream) => stream,
                Err(ending) => return ending,
            };
        }
    }

    async fn resume_stream(
        &self,
        last: &str,
        mut pause: Duration,
        attempts: &mut u32,
        call: &mut CallReader<'_>,
    ) -> Result<HttpResponse, AttemptResult> {
        let server = &self.poster.headers.endpoint.server;
        let Ok(last) = HeaderValue::from_str(last) else {
            let why = "its event id cannot be a header";
            return Err(response::stream_interrupted(server, call, why));
        };
        loop {
            let wait = add_jitter(pause);
            let by = call.wait_deadline();
            if clock::after(wait) >= by {
                clock::sleep_until(by).await;
                return Err(response::timeout_diagnostic(server).into_unknown());
            }
            clock::sleep(wait).await;
            let by = call.wait_deadline();
            let (kind, own) = (Method::GET, &call.extra_headers);
            let resume = |map: &mut HeaderMap| {
                map.insert(LAST_EVENT_ID, last.clone());
            };
            let sent = self
                .poster
                .headers
                .send(kind, own, Bytes::new(), by, resume);
            let why = match sent.await {
                Ok(stream) if stream.is_event_stream() => return Ok(stream),
                Ok(other) => {
                    let status = other.status.as_u16();
                    let why = format!("resuming it got HTTP {status}");
                    // A busy server or a gateway in trouble may still have the stream.
                    if !matches!(status, 429 | 500..=599) {
                        // The session may be gone; that says nothing about the request itself.
                        if matches!(status, 404 | 410) {
                            self.retirement.set(Reason::SessionGone);
                        }
                        return Err(response::stream_interrupted(server, call, &why));
                    }
                    why
                },
                Err(lost) => lost.diagnostic.cause.unwrap_or(lost.diagnostic.message),
            };
            *attempts += 1;
            if *attempts >= MAX_RESUME_ATTEMPTS {
                return Err(response::stream_interrupted(server, call, &why));
            }
            pause = (pause * 2).clamp(Duration::from_millis(100), Duration::from_secs(30));
        }
    }
}

/// A pause that is up to a quarter longer: streams that broke together are not resumed together.
pub(super) fn add_jitter(pause: Duration) -> Duration {
    pause + pause.mul_f64(fastrand::f64() / 4.0)
}
