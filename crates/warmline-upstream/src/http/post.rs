//! Posts messages that are only acknowledged: replies to server requests, notifications and cancels.
//! Each is a request of its own, with the headers of the call it belongs to.
//!
//! A reply is a short task, so that reading the server's messages never waits for the server to take
//! ours. A few are posted at a time, some wait behind them, and a server that keeps asking without
//! reading loses the rest. A reply that was not taken is posted again a few times: its id says what
//! it answers, so a second one does no harm. Replies end with their session.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use warmline_core::delivery::Delivery;
use warmline_core::era::Era;
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::message::splice::{self, Edit};
use warmline_core::protocol::http_status::{ReplyBody, classify_reply};

use crate::http::endpoint::{Endpoint, HttpResponse, RequestHeaders, SendFailure};
use crate::http::response::{MAX_ERROR_BODY, ResponseHead, SentRequest};
use crate::listener::{ExtraHeaders, Listener, ReplyPayload, ReplySink};
use crate::session_state::Retirement;
use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;

const MAX_CONCURRENT_POSTS: usize = 8;
const MAX_REPLIES_IN_FLIGHT: usize = 1024;
const RETRY_DELAYS: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// A server that wants a longer pause does not get it: somebody waits for the call.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How many cancels the end of a session waits for, and how long.
const MAX_CANCELS: u16 = 1024;
const CANCEL_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct MessagePoster {
    pub(crate) headers: RequestHeaders,
    /// Created with the first reply or cancel: most sessions need neither.
    in_flight: OnceLock<Box<PostsInFlight>>,
}

#[derive(Debug)]
struct PostsInFlight {
    post_permits: Arc<Semaphore>,
    /// Each cancel on its way holds one.
    cancel_permits: Arc<Semaphore>,
    /// None once the session is over: no reply is sent any more.
    replies: Mutex<Option<JoinSet<()>>>,
}

impl Default for PostsInFlight {
    fn default() -> Self {
        Self {
            post_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_POSTS)),
            cancel_permits: Arc::new(Semaphore::new(usize::from(MAX_CANCELS))),
            replies: Mutex::new(Some(JoinSet::new())),
        }
    }
}

impl MessagePoster {
    pub(crate) fn new(headers: RequestHeaders) -> Self {
        Self {
            headers,
            in_flight: OnceLock::new(),
        }
    }

    pub(crate) async fn post_message(&self, body: Bytes) -> Result<(), SendFailure> {
        let posted = post_message(&self.headers, &[], body).await;
        posted.map_err(|lost| lost.failure)
    }

    pub(crate) fn spawn_cancel(&self, notice: Bytes, own: Vec<(HeaderName, HeaderValue)>) {
        let headers = self.headers.clone();
        let in_flight = self.in_flight.get_or_init(Box::default);
        let permit = Arc::clone(&in_flight.cancel_permits)
            .try_acquire_owned()
            .ok();
        clock::spawn_if_running("cancel a call", async move {
            if let Err(lost) = post_message(&headers, &own, notice).await {
                let (server, trouble) = (&headers.endpoint.server, lost.failure.diagnostic);
                tracing::debug!(%server, %trouble, "cancel not delivered");
            }
            drop(permit);
        });
    }

    /// Waits until the server has all cancels, within a second: after the end of the session nobody
    /// takes them.
    pub(crate) async fn flush_cancels(&self) {
        if let Some(in_flight) = self.in_flight.get() {
            let all = in_flight.cancel_permits.acquire_many(MAX_CANCELS.into());
            drop(clock::timeout(CANCEL_FLUSH_TIMEOUT, all).await);
        }
    }

    /// Ends the replies that are still on their way; from now on there are none.
    pub(crate) fn shutdown(&self) {
        let in_flight = self.in_flight.get_or_init(Box::default);
        drop(in_flight.replies.lock().take());
    }
}

impl ReplySink for MessagePoster {
    fn send_reply(
        &self,
        id: &[u8],
        payload: ReplyPayload,
        own: &ExtraHeaders,
    ) -> oneshot::Receiver<Diagnostic> {
        let (failed, undelivered) = oneshot::channel();
        let in_flight = self.in_flight.get_or_init(Box::default);
        let mut replies = in_flight.replies.lock();
        // A call that is dropped refuses its server requests, perhaps after the end of the runtime.
        let Some(replies) = replies
            .as_mut()
            .filter(|_| clock::current_runtime_id().is_some())
        else {
            return undelivered;
        };
        while replies.try_join_next().is_some() {}
        let server = Arc::clone(&self.headers.endpoint.server);
        if replies.len() >= MAX_REPLIES_IN_FLIGHT {
            tracing::warn!(%server, "reply dropped: the server does not take the earlier ones");
            let what = format!("`{server}` does not take earlier replies");
            let full = Diagnostic::new(Reason::LocalResources, what);
            failed.send(reply_not_delivered(&server, full)).ok();
            return undelivered;
        }
        let permits = Arc::clone(&in_flight.post_permits);
        let (headers, own) = (self.headers.clone(), own.to_vec());
        let body = Bytes::from(payload.into_message(id));
        clock::spawn_in("post a reply", replies, async move {
            let permit = permits.acquire_owned().await;
            if let Err(diagnostic) = post_with_retries(headers, own, body).await {
                tracing::warn!(%server, trouble = %diagnostic, "reply not delivered");
                failed.send(reply_not_delivered(&server, diagnostic)).ok();
            }
            drop(permit);
        });
        undelivered
    }
}

/// Posts a reply until it is taken, or there were enough tries. A person may take longer to answer
/// than a token lasts: the credential is renewed once.
async fn post_with_retries(
    headers: RequestHeaders,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> Result<(), Diagnostic> {
    let (mut pauses, mut may_renew) = (RETRY_DELAYS.into_iter(), true);
    loop {
        let credential = headers.credential.as_ref();
        let epoch = credential.map_or(0, |source| source.epoch());
        let Err(lost) = post_message(&headers, &own, body.clone()).await else {
            return Ok(());
        };
        let diagnostic = lost.failure.diagnostic;
        if diagnostic.reason == Reason::Unauthorized
            && std::mem::take(&mut may_renew)
            && let Some(source) = credential
            && source.renew(epoch).await
        {
            continue;
        }
        let pause = pauses.next().filter(|_| lost.is_retryable);
        let Some(pause) = pause else {
            return Err(diagnostic);
        };
        let wanted = diagnostic.retry_after.unwrap_or_default();
        clock::sleep(pause.max(wanted).min(MAX_RETRY_DELAY)).await;
    }
}

pub(crate) struct PostFailure {
    pub(crate) failure: SendFailure,
    pub(crate) is_retryable: bool,
}

/// Posts a message that is only acknowledged: a notification, or a reply of ours.
pub(crate) async fn post_message(
    head: &RequestHeaders,
    own: &ExtraHeaders,
    body: Bytes,
) -> Result<(), PostFailure> {
    let by = clock::after(head.endpoint.timeouts.handshake);
    let sent = head.send(Method::POST, own, body, by, |_| {});
    let arrival = sent.await.map_err(|lost| PostFailure {
        is_retryable: lost.diagnostic.reason != Reason::Timeout,
        failure: lost,
    })?;
    let status = arrival.status.as_u16();
    let accepted = check_accepted(&head.endpoint, arrival, by).await;
    accepted.map_err(|lost| PostFailure {
        failure: SendFailure {
            // Some servers repeat what was sent.
            diagnostic: head.redactor().redact_diagnostic(lost.diagnostic),
            ..lost
        },
        is_retryable: matches!(status, 408 | 425 | 429 | 500 | 502..=504),
    })
}

/// The diagnostic of a call whose server does not take the reply to its request: it would wait for
/// ever, and the caller with it.
pub(crate) fn reply_not_delivered(server: &str, diagnostic: Diagnostic) -> Diagnostic {
    let what =
        format!("`{server}` did not take the reply to its request, so the call was abandoned");
    let why = match diagnostic.cause {
        Some(why) => format!("{}: {why}", diagnostic.message),
        None => diagnostic.message,
    };
    Diagnostic::new(Reason::ReplyLost, what).with_cause(why)
}

async fn check_accepted(
    endpoint: &Endpoint,
    arrival: HttpResponse,
    by: Instant,
) -> Result<(), SendFailure> {
    let status = arrival.status.as_u16();
    if (200..300).contains(&status) {
        arrival.drain();
        return Ok(());
    }
    let said = ResponseHead::from_response(&arrival);
    let body = arrival
        .read_body(MAX_ERROR_BODY, by, &())
        .await
        .unwrap_or_default();
    let mut diagnostic = said.diagnostic(&endpoint.server, status, Reason::Rejected, &body);
    let sent = SentRequest {
        endpoint,
        era: Era::Legacy,
        has_session: true,
        id: 0,
        retirement: &Retirement::default(),
    };
    let meaning = classify_reply(&sent.status_facts(status, ReplyBody::Complete(&body), &said));
    let delivery = match meaning {
        // Another credential helps, another message does not.
        Err(failure) if failure.is_refused && failure.reason == Reason::Unauthorized => {
            diagnostic = said.diagnostic(&endpoint.server, status, Reason::Unauthorized, &body);
            Delivery::Refused
        },
        Err(failure) if failure.is_refused => Delivery::Refused,
        Ok(_) | Err(_) => {
            diagnostic.code = Code::AnswerLost;
            Delivery::Unknown
        },
    };
    Err(SendFailure {
        delivery,
        diagnostic,
    })
}

/// The cancel of a call, with its caller's parameters if there are any.
pub(crate) fn encode_cancelled(id: u64, listener: &dyn Listener) -> Bytes {
    let named = |words: Bytes| {
        let mut params = Vec::with_capacity(words.len() + 32);
        let mut digits = itoa::Buffer::new();
        let edits = [Edit::Set("requestId", digits.format(id).as_bytes())];
        splice::edit_object(&words, &edits, &mut params).ok()?;
        Some(params)
    };
    let params = listener.cancel_params().and_then(named);
    let ours = || format!(r#"{{"requestId":{id},"reason":"the caller no longer waits"}}"#);
    let params = params.unwrap_or_else(|| ours().into_bytes());
    encode_notification("notifications/cancelled", Some(&params))
}

/// A notification, on one line.
pub(crate) fn encode_notification(method: &str, params: Option<&[u8]>) -> Bytes {
    let mut line = Vec::new();
    splice::write_notification(&mut line, method, params);
    splice::to_single_line(line.into())
}
