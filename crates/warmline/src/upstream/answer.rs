//! Answers: what a reply over HTTP means for the request it belongs to.
//!
//! Asked by: both HTTP drivers, and by detection.  The meaning of a status and its body is decided
//! by [`warmline_core::protocol::status`]; this file reads the bytes and puts the meaning into
//! words that name the server, the place and the limit.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Reply, Request, Trouble, Words};
use warmline_core::protocol::batch;
use warmline_core::protocol::envelope::{Kind, Message};
use warmline_core::protocol::gone::{Dialect, Remedy, SentSession};
use warmline_core::protocol::splice::{self, Edit};
use warmline_core::protocol::status::{
    Body, Meaning, Standing as Stream, StatusFacts, read_status,
};

use super::http::{Arrival, BodyKind, Cut, Lost};
use super::letterhead::{Form, Letterhead, Own};
use super::limits::Digits;
use super::listener::Listener;
use super::pipes::notification;
use super::session::Standing;
use super::stream::Watch;
use super::way::Way;
use super::wording::{plain, text_of};
use crate::clock::{self, Instant};

/// The body of a refusal is read up to here; what it says stands at its beginning.
const REFUSAL_BODY: usize = 64 << 10;

/// What is known of a request when its reply arrives.
#[derive(Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) way: &'a Way,
    pub(crate) era: Era,
    pub(crate) with_session: bool,
    pub(crate) id: u64,
    pub(crate) standing: &'a Standing,
}

/// Ends a call whose reply is not a stream.
pub(crate) async fn ending(
    sent: Sent<'_>,
    arrival: Arrival,
    request: Request,
    by: Instant,
    listener: &dyn Listener,
) -> Ending {
    let whole = Whole::read(sent, arrival, by, listener).await;
    whole.ending(sent, request)
}

/// A reply that is not a stream, read to its end.
pub(crate) struct Whole {
    status: u16,
    kind: BodyKind,
    said: Said,
    read: Result<Bytes, Cut>,
}

impl Whole {
    pub(crate) async fn read(
        sent: Sent<'_>,
        arrival: Arrival,
        by: Instant,
        listener: &dyn Listener,
    ) -> Self {
        let status = arrival.status.as_u16();
        let limit = if status == 200 {
            sent.way.sizes.reply
        } else {
            REFUSAL_BODY
        };
        Self {
            status,
            kind: arrival.kind(),
            said: Said::of(&arrival),
            read: arrival.whole(limit, by, listener).await,
        }
    }

    /// The text of several messages, where this is one.
    pub(crate) fn batch(&self, version: Option<Version>) -> Option<Bytes> {
        let is_answer = self.status == 200 && self.kind == BodyKind::Json;
        let text = self.read.as_ref().ok().filter(|_| is_answer)?;
        batch::is_one(text, version).then(|| text.clone())
    }

    /// Ends the call that it answers.
    pub(crate) fn ending(self, sent: Sent<'_>, request: Request) -> Ending {
        let server = sent.way.server();
        let Self {
            status,
            kind,
            said,
            read,
        } = self;
        let body = match &read {
            Ok(body) => Body::Whole(body),
            Err(Cut::Late) => return late(server),
            Err(Cut::TooLarge { limit }) if status == 200 => {
                return too_large(server, "reply", *limit);
            },
            Err(Cut::Broken(why)) if status == 200 => return lost_reply(server, why),
            Err(Cut::TooLarge { .. }) => Body::TooLarge,
            Err(Cut::Broken(_)) => Body::Cut,
        };
        let text = read.as_deref().unwrap_or_default();
        // JSON under another name is not an answer: pages and proxies send such things (D28).
        if status == 200 && kind != BodyKind::Json {
            return said
                .trouble(server, status, Reason::BadReply, text)
                .unknown();
        }
        match read_status(&sent.facts(status, body, &said)) {
            Meaning::Answer(message) => replied(server, &message),
            Meaning::Refused { reason, gone } => {
                if let Some(message) = own_words(&request, reason, text) {
                    return replied(server, &message);
                }
                if gone.is_some() {
                    sent.standing.retire(reason);
                }
                let trouble = said.trouble(server, status, reason, text);
                told_gone(server, trouble, gone).refused(request)
            },
            Meaning::Unknown { reason, gone } => {
                if gone.is_some() {
                    sent.standing.retire(reason);
                }
                if reason == Reason::BadReply && is_response(text) {
                    return foreign(server, sent.standing);
                }
                let trouble = said.trouble(server, status, reason, text);
                let mut trouble = told_gone(server, trouble, gone);
                // It is not known that it did not act, whatever the status sounds like.
                if trouble.code == Code::RequestRefused {
                    trouble.code = Code::AnswerLost;
                }
                trouble.unknown()
            },
            Meaning::Wait => said
                .trouble(server, status, Reason::NoReplyChannel, text)
                .unknown(),
        }
    }
}

/// What a client hears in the server's own words: whoever wrote the headers mends them.
fn own_words(request: &Request, reason: Reason, body: &[u8]) -> Option<Message> {
    let wrote_them = request.words() == Words::PassedWithHeaders;
    let is_for_client = wrote_them && reason == Reason::HeaderMismatch;
    is_for_client
        .then(|| Message::split(Bytes::copy_from_slice(body)).ok())
        .flatten()
}

impl<'a> Sent<'a> {
    pub(super) fn facts(&self, status: u16, body: Body<'a>, said: &'a Said) -> StatusFacts<'a> {
        StatusFacts {
            status,
            era: self.era,
            sent: if self.with_session {
                SentSession::WithId
            } else {
                SentSession::WithoutId
            },
            our_id: self.id,
            body,
            challenge: said.challenge.as_deref(),
            dialects: self.way.dialects,
            standing: Stream::None,
        }
    }
}

/// Whether a body is a response, if only to somebody else.
fn is_response(body: &[u8]) -> bool {
    Message::split(Bytes::copy_from_slice(body))
        .is_ok_and(|message| matches!(message.kind(), Kind::Result | Kind::Error))
}

/// What the head of a reply said, kept while its body is read.
#[derive(Default)]
pub(super) struct Said {
    content_type: String,
    challenge: Option<String>,
    location: Option<String>,
    retry_after: Option<Duration>,
}

impl Said {
    pub(super) fn of(arrival: &Arrival) -> Self {
        // Nothing of this is needed, nor allocated, for the usual answer.
        if arrival.status.as_u16() == 200 && arrival.kind() == BodyKind::Json {
            return Self::default();
        }
        Self {
            content_type: arrival.content_type().to_owned(),
            challenge: arrival.challenge().map(str::to_owned),
            location: arrival.location().map(str::to_owned),
            retry_after: arrival.retry_after(),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "most refusals read the same"
    )]
    pub(super) fn trouble(
        &self,
        server: &str,
        status: u16,
        reason: Reason,
        body: &[u8],
    ) -> Trouble {
        let what = match reason {
            Reason::BadReply => format!("what `{server}` answered is not an MCP answer"),
            Reason::Unauthorized => format!("`{server}` wants a credential that it accepts"),
            Reason::Forbidden => format!("`{server}` forbids this request"),
            Reason::SessionGone => format!("`{server}` does not know our session any more"),
            Reason::NotFound => format!("`{server}` is not at this URL"),
            Reason::Redirect => format!("`{server}` sends us elsewhere, which we do not follow"),
            Reason::RateLimited => format!("`{server}` wants fewer requests"),
            Reason::NoReplyChannel => {
                format!("`{server}` took the request and will answer nowhere")
            },
            Reason::ServerError | Reason::GatewayError | Reason::Unavailable => {
                format!("`{server}` failed with HTTP {status}")
            },
            _ => format!("`{server}` refused the request with HTTP {status}"),
        };
        let mut why = format!("HTTP {status}");
        if let Some(location) = &self.location {
            why = format!("{why} to {}", plain(location.as_bytes(), 200));
        } else if let Some(text) = text_of(body) {
            let gap = if text.starts_with('"') { " " } else { ", " };
            why = format!("{why}{gap}{text}");
        } else if reason == Reason::BadReply {
            let body = if body.is_empty() {
                "an empty body"
            } else {
                "a body"
            };
            why = format!("{why} with {body} of type {}", self.content_type);
        }
        let mut trouble = Trouble::new(reason, what).because(why);
        trouble.retry_after = self.retry_after;
        if reason == Reason::Unauthorized {
            trouble = trouble.hint(
                "give the server a token that it accepts: `Server::bearer`, or `credential` in a configuration file",
            );
        }
        trouble
    }
}

/// The same with the form in which the server spoke of our session, and words that fit it.
pub(super) fn told_gone(server: &str, mut trouble: Trouble, gone: Option<Dialect>) -> Trouble {
    trouble.gone = gone;
    match gone.map(Dialect::remedy) {
        Some(Remedy::Open) => {
            trouble.what = format!("`{server}` wants a session, and the request had none");
            trouble
                .hint(r#"leave it to be found out whether it needs sessions: `sessions = "auto"`"#)
        },
        Some(Remedy::Wait) => {
            trouble.what = format!("`{server}` holds one session only, and somebody has it");
            trouble.hint(SINGLE_SESSION)
        },
        Some(Remedy::Reopen | Remedy::ReopenOnce | Remedy::GoStateless | Remedy::DropSession)
        | None => trouble,
    }
}

/// What to do about a server that holds one session only.
pub(super) const SINGLE_SESSION: &str =
    "this server keeps one session per process; end the other client, or restart it";

/// Ends a call whose answer came on a stream. Some servers say there, too, that a session is gone:
/// in an error, and before anything else.
pub(crate) fn streamed(
    sent: Sent<'_>,
    message: &Message,
    request: Request,
    before: Before,
) -> Ending {
    let server = sent.way.server();
    let is_error = message.kind() == Kind::Error;
    if sent.era == Era::Modern || !is_error || before == Before::Something {
        return replied(server, message);
    }
    let said = Said::default();
    let meaning = read_status(&sent.facts(200, Body::Whole(message.raw()), &said));
    let (reason, gone, is_safe) = match meaning {
        Meaning::Refused { reason, gone } if gone.is_some() => (reason, gone, true),
        Meaning::Unknown { reason, gone } if gone.is_some() => (reason, gone, false),
        Meaning::Answer(_) | Meaning::Wait | Meaning::Refused { .. } | Meaning::Unknown { .. } => {
            return replied(server, message);
        },
    };
    sent.standing.retire(reason);
    let trouble = said.trouble(server, 200, reason, message.raw());
    let trouble = told_gone(server, trouble, gone);
    if is_safe {
        trouble.refused(request)
    } else {
        trouble.unknown()
    }
}

/// Whether a stream brought anything before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Something,
}

/// Ends a call with the server's answer.
pub(crate) fn replied(server: &str, message: &Message) -> Ending {
    match (message.kind(), message.result(), message.error()) {
        (Kind::Result, Some(result), _) => Ending::Answered(Reply::Result(result)),
        (Kind::Error, _, Some(error)) => Ending::Answered(Reply::Error(error)),
        _ => Trouble::new(
            Reason::BadReply,
            format!("what `{server}` answered is not a response"),
        )
        .unknown(),
    }
}

/// Ends a call whose reply holds messages, and none of them is its answer.
pub(crate) fn without_answer(server: &str) -> Ending {
    let what = format!("no answer stands in the batch of `{server}`");
    Trouble::new(Reason::BadReply, what).unknown()
}

/// Ends a call that brought no response head.
pub(crate) fn lost(lost: Lost, request: Request) -> Ending {
    match lost.delivery {
        Delivery::Unsent => lost.trouble.unsent(request),
        Delivery::Refused | Delivery::Answered | Delivery::Unknown => lost.trouble.unknown(),
    }
}

/// Ends a call whose stream is over without a response.
pub(crate) fn cut_stream(server: &str, watch: &Watch<'_>, why: &str) -> Ending {
    match &watch.bad {
        Some(bad) => Trouble::new(
            Reason::BadReply,
            format!("`{server}` sent an event that is not an MCP message"),
        )
        .because(bad.clone())
        .unknown(),
        None => lost_reply(server, why),
    }
}

fn lost_reply(server: &str, why: &str) -> Ending {
    Trouble::new(
        Reason::ReplyLost,
        format!("the answer of `{server}` did not arrive"),
    )
    .because(why)
    .unknown()
}

/// Ends a call whose time is over.
pub(crate) fn late(server: &str) -> Ending {
    Trouble::new(
        Reason::Timeout,
        format!("`{server}` did not answer in time"),
    )
    .unknown()
}

/// Ends a call whose answer is larger than we take.
pub(crate) fn too_large(server: &str, what: &str, limit: usize) -> Ending {
    Trouble::new(
        Reason::ReplyTooLarge,
        format!("`{server}` sent a larger {what} than the limit of {limit} bytes"),
    )
    .unknown()
}

/// Ends a call on a session that answers what nobody asked.
pub(crate) fn strays(server: &str, standing: &Standing) -> Ending {
    standing.retire(Reason::BadReply);
    Trouble::new(
        Reason::BadReply,
        format!("`{server}` keeps answering requests nobody sent"),
    )
    .unknown()
}

/// Ends a call that got another call's answer: isolation is in doubt, so is the session.
fn foreign(server: &str, standing: &Standing) -> Ending {
    standing.retire(Reason::BadReply);
    Trouble::new(
        Reason::BadReply,
        format!("`{server}` answered with the id of another request"),
    )
    .unknown()
}

/// A message that was not taken, or may not have been.
pub(crate) struct NotTaken {
    pub(crate) lost: Lost,
    /// Whether it may be taken another time.
    pub(crate) may_be_taken: bool,
}

/// Posts a message that is only acknowledged: a notification, or the answer to a question.
pub(crate) async fn post(
    head: Letterhead,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> Result<(), Trouble> {
    let delivered = deliver(head, own, body).await;
    delivered.map_err(|lost| lost.trouble)
}

/// The same, for whoever wants to know what became of a message that was not accepted.
pub(crate) async fn deliver(
    head: Letterhead,
    own: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
) -> Result<(), Lost> {
    let posted = post_once(&head, &own, body).await;
    posted.map_err(|not_taken| not_taken.lost)
}

/// The same, and says whether it is worth another try.
pub(crate) async fn post_once(head: &Letterhead, own: &Own, body: Bytes) -> Result<(), NotTaken> {
    let by = clock::after(head.way.times.handshake);
    let headers = |map: &mut HeaderMap| head.write(Form::Message, own, map);
    let sent = head.way.endpoint.send(Method::POST, headers, body, by);
    let arrival = sent.await.map_err(|lost| NotTaken {
        may_be_taken: lost.trouble.reason != Reason::Timeout,
        lost,
    })?;
    let status = arrival.status.as_u16();
    let accepted = accepted(&head.way, arrival, by).await;
    accepted.map_err(|lost| NotTaken {
        lost: Lost {
            trouble: head.struck(lost.trouble),
            ..lost
        },
        may_be_taken: matches!(status, 408 | 425 | 429 | 500 | 502..=504),
    })
}

/// The trouble of a call whose server does not take the answer to what it asked: it would wait for
/// it, and the caller with it.
pub(crate) fn unanswered(server: &str, trouble: Trouble) -> Trouble {
    let what =
        format!("`{server}` did not take the answer to its question, so the call was given up");
    let why = match trouble.why {
        Some(why) => format!("{}: {why}", trouble.what),
        None => trouble.what,
    };
    Trouble::new(Reason::ReplyLost, what).because(why)
}

/// Reads what a notification or an answer of ours got.
async fn accepted(way: &Way, arrival: Arrival, by: Instant) -> Result<(), Lost> {
    let status = arrival.status.as_u16();
    // Whatever follows an acceptance, nobody waits for it.
    if (200..300).contains(&status) {
        arrival.drain();
        return Ok(());
    }
    let said = Said::of(&arrival);
    let body = arrival
        .whole(REFUSAL_BODY, by, &())
        .await
        .unwrap_or_default();
    let mut trouble = said.trouble(way.server(), status, Reason::Rejected, &body);
    let meaning = read_status(&StatusFacts {
        status,
        era: Era::Legacy,
        sent: SentSession::WithId,
        our_id: 0,
        body: Body::Whole(&body),
        challenge: said.challenge.as_deref(),
        dialects: way.dialects,
        standing: Stream::None,
    });
    let delivery = match meaning {
        // What helps is another credential, not another message.
        Meaning::Refused {
            reason: Reason::Unauthorized,
            ..
        } => {
            trouble = said.trouble(way.server(), status, Reason::Unauthorized, &body);
            Delivery::Refused
        },
        Meaning::Refused { .. } => Delivery::Refused,
        Meaning::Answer(_) | Meaning::Wait | Meaning::Unknown { .. } => {
            trouble.code = Code::AnswerLost;
            Delivery::Unknown
        },
    };
    Err(Lost { delivery, trouble })
}

/// The notice that a call was given up: in the words of its caller where it said any, else in ours.
pub(crate) fn cancelled(id: u64, listener: &dyn Listener) -> Bytes {
    let named = |words: Bytes| {
        let mut params = Vec::with_capacity(words.len() + 32);
        let id = Digits::of(id);
        let edits = [Edit::Set("requestId", id.as_bytes())];
        splice::edit_object(&words, &edits, &mut params).ok()?;
        Some(params)
    };
    let params = listener.parting_words().and_then(named);
    let ours = || format!(r#"{{"requestId":{id},"reason":"the caller no longer waits"}}"#);
    let params = params.unwrap_or_else(|| ours().into_bytes());
    notification("notifications/cancelled", Some(&params))
}
