//! Sends one request over a connection, and knows how far it came.
//!
//! The witness for "unsent" is that nobody pulled the body (row W1 of `docs/reference/rows.md`): then the
//! server cannot have received a complete request. An idle connection that turns out dead before that
//! is replaced here. After that the delivery is unknown, unless the response says otherwise, which the
//! core decides.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use warmline_core::delivery::Delivery;
use warmline_core::era::Version;
use warmline_core::error::code::Reason;
use warmline_core::exchange::Diagnostic;
use warmline_core::protocol::headers::{PROTOCOL_VERSION, SESSION_ID};
use warmline_core::protocol::session_gone::SessionGoneMatching;

use crate::http::connections::{Connection, Connections};
use crate::http::response;
use crate::http::tls;
use crate::listener::{ExtraHeaders, LARGE_REPLY_BYTES, Listener};
use crate::redaction::Redactor;
use crate::target::{HeaderSource, SizeLimits, Timeouts};
use warmline_platform::clock::{self, Instant};
use warmline_platform::net::ConnectError;

/// Accept, content type and length, session, version, credential; in the modern era method and
/// name; and where a stream broke.
const EXTRA_CAPACITY: usize = 9;
const JSON_OR_EVENT_STREAM: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A server over HTTP. All its sessions share one, so that a session costs little more than its id.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) server: Arc<str>,
    pub(crate) connections: Arc<Connections>,
    /// Path and query; the host is a header.
    pub(crate) uri: Uri,
    pub(crate) display_url: Arc<str>,
    /// Host, user agent, and the server's own headers.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) timeouts: Timeouts,
    pub(crate) size_limits: SizeLimits,
    /// Which forms of "this session is gone" are believed.
    pub(crate) session_gone_matching: SessionGoneMatching,
    pub(crate) redactor: Arc<Redactor>,
}

/// The headers of every request of a session.
///
/// The credential is read for each request, so the very next one uses a refreshed token; no copy is
/// kept. What wins, from the last: headers that only Warmline may write, the credential, the headers
/// of one request, those of the server's configuration. A request cannot overwrite a secret of the
/// configuration.
#[derive(Clone, Debug)]
pub(crate) struct RequestHeaders {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(super) credential: Option<Arc<dyn HeaderSource>>,
    session_id: Option<HeaderValue>,
    /// The version that is spoken, once it is known.
    pub(crate) version: Option<Version>,
}

/// A message that was not accepted, or may not have been.
#[derive(Debug)]
pub struct SendFailure {
    pub delivery: Delivery,
    pub diagnostic: Diagnostic,
}

impl SendFailure {
    pub(crate) fn unsent(diagnostic: Diagnostic) -> Self {
        Self {
            delivery: Delivery::Unsent,
            diagnostic,
        }
    }

    pub(crate) fn unknown(diagnostic: Diagnostic) -> Self {
        Self {
            delivery: Delivery::Unknown,
            diagnostic,
        }
    }
}

pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    connection: Connection,
    connections: Arc<Connections>,
}

#[derive(Debug)]
pub(crate) enum BodyError {
    Interrupted(String),
    TooLarge { limit: usize },
    TimedOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    EventStream,
    Other,
}

impl RequestHeaders {
    pub(crate) fn new(endpoint: Arc<Endpoint>, credential: Option<Arc<dyn HeaderSource>>) -> Self {
        Self {
            endpoint,
            credential,
            session_id: None,
            version: None,
        }
    }

    /// The same in a session. The id is copied, because what it was read from may be large, and
    /// marked sensitive, because it gives access to the session.
    pub(crate) fn with_session_id(mut self, id: &HeaderValue) -> Self {
        self.session_id = HeaderValue::from_bytes(id.as_bytes()).ok();
        if let Some(id) = &mut self.session_id {
            id.set_sensitive(true);
        }
        self
    }

    pub(crate) fn with_version(mut self, version: Version) -> Self {
        self.version = Some(version);
        self
    }

    pub(crate) fn redactor(&self) -> Redactor {
        let credential = self.credential.as_ref().and_then(|source| source.header());
        Redactor::clone(&self.endpoint.redactor).with_headers(credential.as_slice())
    }

    pub(crate) fn session_id(&self) -> Option<&str> {
        self.session_id.as_ref()?.to_str().ok()
    }

    /// Sends a request and waits for the head of its response until `by`. `own` are the headers of
    /// this request; `extra` writes more, once there is a connection.
    ///
    /// The headers are written for each connection that is tried, into the map of its last response, so
    /// that the usual single try costs neither a copy nor a map.
    pub(crate) async fn send(
        &self,
        method: Method,
        own: &ExtraHeaders,
        body: Bytes,
        by: Instant,
        extra: impl Fn(&mut HeaderMap),
    ) -> Result<HttpResponse, SendFailure> {
        let endpoint = &self.endpoint;
        loop {
            let mut line = endpoint.acquire_connection(&method, by).await?;
            let was_kept = line.was_used;
            let mut head = Request::new(());
            *head.method_mut() = method.clone();
            *head.uri_mut() = endpoint.uri.clone();
            *head.headers_mut() = line.take_headers();
            self.write(&method, own, head.headers_mut());
            extra(head.headers_mut());
            if !body.is_empty() {
                let mut digits = itoa::Buffer::new();
                if let Ok(length) = HeaderValue::from_str(digits.format(body.len())) {
                    head.headers_mut().insert(CONTENT_LENGTH, length);
                }
            }
            let outcome = clock::timeout_at(by, line.send(head, body.clone())).await;
            match outcome {
                Ok(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    return Ok(HttpResponse {
                        status: parts.status,
                        headers: parts.headers,
                        body,
                        connection: line,
                        connections: Arc::clone(&endpoint.connections),
                    });
                },
                // Nobody pulled the body: an idle connection was dead.
                Ok(Err(_)) if !line.was_body_pulled() && was_kept => {},
                Ok(Err(error)) => return Err(endpoint.send_failure(&error, line.was_body_pulled())),
                Err(clock::Elapsed) => return Err(endpoint.timeout_failure(line.was_body_pulled())),
            }
        }
    }

    fn write(&self, method: &Method, own: &ExtraHeaders, map: &mut HeaderMap) {
        let always = &self.endpoint.headers;
        map.reserve(always.len() + own.len() + EXTRA_CAPACITY);
        for (name, value) in always {
            map.insert(name.clone(), value.clone());
        }
        for (name, value) in own {
            if !map.get(name).is_some_and(HeaderValue::is_sensitive) {
                map.insert(name.clone(), value.clone());
            }
        }
        if let Some((name, mut value)) = self.credential.as_ref().and_then(|source| source.header())
        {
            value.set_sensitive(true);
            map.insert(name, value);
        }
        let accepted = match *method {
            Method::GET => EVENT_STREAM,
            _ => JSON_OR_EVENT_STREAM,
        };
        map.insert(ACCEPT, accepted);
        if *method == Method::POST {
            map.insert(CONTENT_TYPE, JSON);
        }
        if let Some(id) = &self.session_id {
            map.insert(SESSION_ID, id.clone());
        }
        // Older versions have no header for it.
        if let Some(version) = self.version.filter(|it| *it >= Version::V2025_06_18) {
            map.insert(PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
        }
    }
}

impl Endpoint {
    pub(crate) async fn ensure_connected(&self, by: Instant) -> Result<(), Diagnostic> {
        let line = self.acquire_connection(&Method::POST, by).await;
        let line = line.map_err(|lost| lost.diagnostic)?;
        self.connections.release(line);
        Ok(())
    }

    /// An idle connection, or a new one. A GET opens a long-lived stream: it always gets a new one.
    async fn acquire_connection(
        &self,
        method: &Method,
        by: Instant,
    ) -> Result<Connection, SendFailure> {
        if *method != Method::GET
            && let Some(line) = self.connections.take_idle()
        {
            return Ok(line);
        }
        let connect_by = by.min(clock::after(self.timeouts.connect));
        match clock::timeout_at(connect_by, Box::pin(self.connections.open())).await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(self.connect_failure(error)),
            // The call's own deadline says nothing about the server.
            Err(clock::Elapsed) if connect_by == by => Err(self.timeout_failure(false)),
            Err(clock::Elapsed) => {
                let (server, url) = (&self.server, &self.display_url);
                let what = format!("`{server}` could not be reached: no connection in time");
                let why = match url.starts_with("https:") {
                    true => {
                        "did not complete the TLS handshake; a server without TLS needs http://"
                    },
                    false => "did not accept a connection",
                };
                let diagnostic = Diagnostic::new(Reason::ConnectTimeout, what);
                Err(SendFailure::unsent(
                    diagnostic.with_cause(format!("{url} {why}")),
                ))
            },
        }
    }

    fn connect_failure(&self, error: ConnectError) -> SendFailure {
        let (server, url) = (&self.server, &self.display_url);
        SendFailure::unsent(match error {
            ConnectError::Dns(error) => {
                let what = format!("the host of `{server}` was not found: {url}");
                Diagnostic::new(Reason::Dns, what)
                    .with_cause(error.to_string())
                    .with_hint("check the host name in the URL")
            },
            ConnectError::Tcp(error) => {
                let reason = if error.kind() == io::ErrorKind::ConnectionRefused {
                    Reason::ConnectRefused
                } else if is_local_limit(&error) {
                    Reason::LocalResources
                } else {
                    Reason::Unreachable
                };
                let what = format!("`{server}` could not be reached at {url}");
                Diagnostic::new(reason, what).with_cause(error.to_string())
            },
            ConnectError::Tls(error) => {
                let (why, hint) = tls::describe_error(&error);
                let what = format!("`{server}` could not be reached safely: TLS to {url} failed");
                let mut diagnostic = Diagnostic::new(tls_reason(&error), what).with_cause(why);
                diagnostic.hint = hint.map(str::to_owned);
                diagnostic
            },
        })
    }

    fn send_failure(&self, error: &hyper::Error, was_pulled: bool) -> SendFailure {
        let server = &self.server;
        let why = innermost_cause(error);
        if !was_pulled {
            let what = format!("the request to `{server}` could not be written");
            return SendFailure::unsent(Diagnostic::new(Reason::WriteFailed, what).with_cause(why));
        }
        let (reason, what) = if error.is_parse_too_large() {
            let limit = self.size_limits.headers;
            let what = format!("`{server}` sent a larger head than the limit of {limit} bytes");
            (Reason::BadReply, what)
        } else if error.is_parse() || error.is_parse_status() {
            let what = format!("the answer of `{server}` is not HTTP");
            (Reason::BadReply, what)
        } else {
            (Reason::ReplyLost, format!("`{server}` sent no answer"))
        };
        SendFailure::unknown(Diagnostic::new(reason, what).with_cause(why))
    }

    pub(crate) fn timeout_failure(&self, was_pulled: bool) -> SendFailure {
        let server = &self.server;
        if was_pulled {
            return SendFailure::unknown(response::timeout_diagnostic(server));
        }
        let what = format!("the request to `{server}` could not be sent in time");
        SendFailure::unsent(Diagnostic::new(Reason::TimeoutUnsent, what))
    }
}

impl HttpResponse {
    pub(crate) fn is_event_stream(&self) -> bool {
        self.status == StatusCode::OK && self.body_kind() == BodyKind::EventStream
    }

    pub(crate) fn body_kind(&self) -> BodyKind {
        let kind = self.header(&CONTENT_TYPE).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") {
            BodyKind::Json
        } else if kind.eq_ignore_ascii_case("text/event-stream") {
            BodyKind::EventStream
        } else {
            BodyKind::Other
        }
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The next chunk of the body; none at its end.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn next_chunk(&mut self) -> Option<Result<Bytes, String>> {
        let chunk = self.connection.next_chunk(&mut self.body).await?;
        Some(chunk.map_err(|error| innermost_cause(&error)))
    }

    /// Reads the whole body, up to `limit` bytes, until `by`, and releases the connection. The listener
    /// reserves room for a large body.
    pub(crate) async fn read_body(
        mut self,
        limit: usize,
        by: Instant,
        listener: &dyn Listener,
    ) -> Result<Bytes, BodyError> {
        let bytes = clock::timeout_at(by, self.collect_body(limit, listener))
            .await
            .map_err(|clock::Elapsed| BodyError::TimedOut)??;
        // The body was read to its end.
        drop(self.body);
        self.connection.recycle_headers(self.headers);
        self.connections.release(self.connection);
        Ok(bytes)
    }

    async fn collect_body(
        &mut self,
        limit: usize,
        listener: &dyn Listener,
    ) -> Result<Bytes, BodyError> {
        // Most replies are one chunk, which needs no copy.
        let Some(first) = self.next_chunk().await else {
            return Ok(Bytes::new());
        };
        let first = first.map_err(BodyError::Interrupted)?;
        if first.len() > limit {
            return Err(BodyError::TooLarge { limit });
        }
        let Some(second) = self.next_chunk().await else {
            return Ok(first);
        };
        // A body without a length may be as large as the limit.
        let stated = self.header(&CONTENT_LENGTH).and_then(|it| it.parse().ok());
        let stated = stated.unwrap_or(limit).min(limit);
        let room = (stated > LARGE_REPLY_BYTES)
            .then(|| listener.reserve_reply(stated))
            .flatten();
        if let Some(room) = room {
            room.await;
        }
        let mut whole = BytesMut::with_capacity(first.len() * 2);
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(piece) = next {
            let piece = piece.map_err(BodyError::Interrupted)?;
            if whole.len() + piece.len() > limit {
                return Err(BodyError::TooLarge { limit });
            }
            whole.extend_from_slice(&piece);
            next = self.next_chunk().await;
        }
        Ok(whole.freeze())
    }

    /// The reply is here, and the stream should end soon. Nobody waits for that: the connection becomes
    /// idle with the rest of the body, and is used again only after its end.
    pub(crate) fn drain(mut self) {
        self.connection.undrained_body = Some(self.body);
        self.connection.recycle_headers(self.headers);
        self.connections.release(self.connection);
    }
}

/// The innermost cause says more than the chain around it.
fn innermost_cause(error: &hyper::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    if error.is_incomplete_message() {
        return "the connection closed before the answer was complete".to_owned();
    }
    tls::clean_error_text(&innermost.to_string())
}

fn is_local_limit(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let Some(number) = error.raw_os_error() else {
        return false;
    };
    [
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::ADDRNOTAVAIL,
        Errno::AGAIN,
        Errno::NOBUFS,
    ]
    .into_iter()
    .any(|errno| errno.raw_os_error() == number)
}

/// A peer that closes is told from a bad certificate.
fn tls_reason(error: &io::Error) -> Reason {
    use io::ErrorKind as E;
    let closed = [
        E::UnexpectedEof,
        E::ConnectionReset,
        E::ConnectionAborted,
        E::BrokenPipe,
    ];
    match closed.contains(&error.kind()) {
        true => Reason::TlsClosed,
        false => Reason::Tls,
    }
}
