//! The modern driver over Streamable HTTP: nothing is opened, everything is said in each request.
//!
//! Asked by: [`session`](super::session).  Speaks 2026-07-28.
//!
//! Closing the response stream is the cancel of this era, so a dropped call needs no notice: its
//! connection goes with it. There is no resumption and no session to lose.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use warmline_core::code::Reason;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Fate, Reply, Request, Trouble, Words};
use warmline_core::protocol::headers::{self, METHOD, NAME};
use warmline_core::protocol::meta::{self, ClientMeta};
use warmline_core::protocol::params::Params;
use warmline_core::protocol::splice::{self, Edit};
use warmline_core::protocol::sse::SseParser;

use super::answer;
use super::greeting::{self, Heard};
use super::hidden::Hidden;
use super::http::{Arrival, BodyKind, Lost};
use super::letterhead::{Form, Letterhead};
use super::limits::{Digits, Ids, Limits};
use super::listener::Listener;
use super::lists::{self, List};
use super::mirrors::{Mirrors, NotMirrored};
use super::notices::{Hearing, Speaker};
use super::session::{Declared, Standing};
use super::stream::{Pause, Watch};
use crate::clock;

/// A modern server over HTTP.
#[derive(Debug)]
pub(crate) struct ModernHttp {
    head: Letterhead,
    said: ClientMeta,
    hearing: Hearing,
    ids: Ids,
    /// What the tools seen so far want mirrored into headers.
    mirrors: Mirrors,
    pub(crate) standing: Standing,
}

/// The bytes of a modern request: what its sender is and can do, and a progress token.
pub(crate) fn write_modern(id: u64, request: &Request, said: &ClientMeta) -> Bytes {
    let token = Digits::of(id);
    let [version, capabilities, client] = said.edits();
    let token = Edit::Set(meta::PROGRESS_TOKEN, token.as_bytes());
    let meta: &[Edit<'_>] = match request.words() {
        Words::Ours => &[version, capabilities, client, token],
        Words::Passed | Words::PassedWithHeaders => &[version, token],
    };
    let mut body = Vec::with_capacity(512 + request.params().raw().len());
    splice::write_request(&mut body, id, request.method(), request.params(), &[], meta);
    body.into()
}

impl ModernHttp {
    /// A driver for a server that is known to speak this version.
    pub(crate) fn new(head: Letterhead, (version, declared): (Version, &Declared)) -> Self {
        Self {
            head: head.speaking(version),
            said: ClientMeta::new(
                version,
                declared.capabilities.clone(),
                &declared.client_name,
                &declared.client_version,
            ),
            hearing: Hearing::default(),
            ids: Ids::new(),
            mirrors: Mirrors::default(),
            standing: Standing::default(),
        }
    }

    /// The same, with somebody who hears what concerns everybody.
    pub(crate) fn heard_by(mut self, hearing: Hearing) -> Self {
        self.hearing = hearing;
        self
    }

    /// Asks `server/discover`, the only request without side effects.
    pub(crate) async fn discover(&self) -> Result<Heard, Trouble> {
        let id = self.ids.next();
        let request = Request::new("server/discover", Params::empty());
        let by = clock::after(self.head.way.times.handshake);
        let body = write_modern(id, &request, &self.said);
        let headers = |map: &mut HeaderMap| self.write_headers(&request, &[], map);
        let arrival = self
            .head
            .way
            .endpoint
            .send(Method::POST, headers, body, by)
            .await
            .map_err(|lost| lost.trouble)?;
        Ok(greeting::hear(self.sent(id), arrival, by).await)
    }

    /// Sends one request and stays with it to its end.
    pub(crate) async fn send(&self, request: Request, listener: &dyn Listener) -> Ending {
        let mut limits = Limits::begin(request.patience());
        let ending = self.attempt(request, limits, listener).await;
        // The tool changed what it wants in headers since we saw it. The server refused, so the
        // request may go out once more with what the list says now.
        let request = match &ending {
            Ending::Failed(failure) if failure.trouble.reason == Reason::HeaderMismatch => {
                match &failure.fate {
                    Fate::Refused(request) => request.clone(),
                    Fate::Unsent(_) | Fate::Unknown => return ending,
                }
            },
            Ending::Failed(_) | Ending::Answered(_) => return ending,
        };
        match clock::timeout_at(limits.total_by(), self.learn_tools(&request)).await {
            Ok(true) => {
                limits.sign_of_life();
                self.attempt(request, limits, listener).await
            },
            Ok(false) | Err(clock::Elapsed) => ending,
        }
    }

    async fn attempt(&self, request: Request, limits: Limits, listener: &dyn Listener) -> Ending {
        let id = self.ids.next();
        let mirrored = match self.mirrors.made(&request) {
            Ok(mirrored) => mirrored,
            Err(NotMirrored::NotValid(trouble)) => return trouble.unsent(request),
            Err(NotMirrored::Mismatch(error)) => return Ending::Answered(Reply::Error(error)),
        };
        let body = write_modern(id, &request, &self.said);
        let headers = |map: &mut HeaderMap| self.write_headers(&request, &mirrored, map);
        let sent = self
            .head
            .way
            .endpoint
            .send(Method::POST, headers, body, limits.by())
            .await;
        let is_list = request.method() == "tools/list";
        let ending = match sent {
            Ok(arrival) => {
                let mut watch = Watch::new(id, limits, listener);
                watch.hearing = self.hearing.clone();
                watch.speaker = Speaker::of(self);
                self.read(arrival, request, watch).await
            },
            Err(lost) => answer::lost(lost, request),
        };
        if let (true, Ending::Answered(Reply::Result(list))) = (is_list, &ending) {
            self.mirrors.note(self.server(), list);
        }
        ending
    }

    async fn read(&self, arrival: Arrival, request: Request, mut watch: Watch<'_>) -> Ending {
        if arrival.status == StatusCode::OK && arrival.kind() == BodyKind::Stream {
            // On the heap, so that the usual call, which has no stream, stays small.
            return Box::pin(self.follow(arrival, &mut watch)).await;
        }
        if arrival.status != StatusCode::OK {
            watch.listener.answered_with(arrival.status.as_u16());
        }
        let (sent, by) = (self.sent(watch.id), watch.limits.by());
        answer::ending(sent, arrival, request, by, watch.listener).await
    }

    fn sent(&self, id: u64) -> answer::Sent<'_> {
        answer::Sent {
            way: &self.head.way,
            era: Era::Modern,
            with_session: false,
            id,
            standing: &self.standing,
        }
    }

    async fn follow(&self, mut arrival: Arrival, watch: &mut Watch<'_>) -> Ending {
        let server = self.head.way.server();
        let mut parser = SseParser::new(self.head.way.sizes.event);
        watch.listener.stream_begun();
        loop {
            match watch.read(&mut arrival, &mut parser).await {
                Pause::Reply(message) => {
                    arrival.drain();
                    return answer::replied(server, &message);
                },
                // A modern server must not send requests; there is no way to answer one.
                Pause::Ask(asking) => {
                    tracing::debug!(%server, method = asking.method, "request ignored");
                },
                Pause::Turned(_) => {},
                Pause::Ended => {
                    let why = "the server ended the stream without an answer";
                    return answer::cut_stream(server, watch, why);
                },
                Pause::Broken(why) => return answer::cut_stream(server, watch, &why),
                Pause::TooLarge { limit } => return answer::too_large(server, "event", limit),
                Pause::Late => return answer::late(server),
                Pause::Strays => return answer::strays(server, &self.standing),
            }
        }
    }

    /// What must not be told of what it sends.
    pub(crate) fn hidden(&self) -> Hidden {
        self.head.hidden()
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &str {
        self.head.way.server()
    }

    /// Sends a notification. Modern servers over HTTP know none of ours; they drop it.
    pub(crate) async fn notify(&self, method: &str, params: &[u8]) -> Result<(), Lost> {
        let mut body = Vec::new();
        splice::write_notification(&mut body, method, Some(params));
        answer::deliver(self.head.clone(), Vec::new(), body.into()).await
    }

    fn write_headers(
        &self,
        request: &Request,
        mirrored: &[(HeaderName, HeaderValue)],
        map: &mut HeaderMap,
    ) {
        self.head.write(Form::Message, request.headers(), map);
        if let Some(method) = headers::mcp_method(request.method()) {
            map.insert(METHOD, method);
        }
        if let Some(name) = headers::mcp_name(request.method(), request.params()) {
            map.insert(NAME, name);
        }
        for (name, value) in mirrored {
            map.insert(name.clone(), value.clone());
        }
    }

    /// Reads the list of tools again, page by page; whether it could be had.
    async fn learn_tools(&self, called: &Request) -> bool {
        let mut params = Params::empty();
        for _ in 0..MAX_PAGES {
            let request = of_the_same_caller(called, Request::new("tools/list", params));
            let limits = Limits::begin(request.patience());
            let page = Box::pin(self.attempt(request, limits, &())).await;
            let Ending::Answered(Reply::Result(page)) = page else {
                return false;
            };
            match lists::read_page(List::Tools, &page) {
                Ok((_, Some(next))) => params = lists::first_or_next(Some(&next)),
                Ok((_, None)) => return true,
                Err(_) => return false,
            }
        }
        false
    }
}

/// The same request with the headers and the patience of another: a caller's credential may stand
/// in its headers.
fn of_the_same_caller(called: &Request, request: Request) -> Request {
    let headers = called.headers().iter().cloned();
    headers.fold(
        request.patient(called.patience()),
        |request, (name, value)| request.header(name, value),
    )
}

/// So many pages are read to learn what one tool wants in headers.
const MAX_PAGES: usize = 100;
