//! HTTP: one request over a kept connection, and what is known of it.
//!
//! Asked by: the drivers ([`legacy`](super::legacy), [`modern`](super::modern)).
//!
//! The witness for "unsent" is that nobody pulled the body (row W1 of `docs/reference/rows.md`): whatever else goes
//! wrong then, the server cannot have received a complete request. A kept connection that turns
//! out dead before that is replaced here, silently and for free. Everything after it is unknown,
//! unless the answer says otherwise, and that is read by the core, not here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::retry_after::read_retry_after;

use super::connections::{Connections, Line};
use super::limits::Digits;
use super::listener::{LARGE, Listener};
use super::tls::{self, Complaint};
use crate::clock::{self, Instant};
use crate::net::ConnectError;

/// One URL, and the connections that lead to it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// The server's name, for messages.
    pub(crate) server: Arc<str>,
    pub(crate) connections: Arc<Connections>,
    /// Path and query; the host stands in the header.
    pub(crate) uri: Uri,
    /// Where it is, for messages.
    pub(crate) place: Arc<str>,
    pub(crate) connect_within: Duration,
}

/// A request that brought no response head, and what is known of it.
#[derive(Debug)]
pub(crate) struct Lost {
    /// [`Delivery::Unsent`] or [`Delivery::Unknown`].
    pub(crate) delivery: Delivery,
    pub(crate) trouble: Trouble,
}

/// A response whose head is here and whose body is on its way.
pub(crate) struct Arrival {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    body: Incoming,
    line: Line,
    connections: Arc<Connections>,
}

/// Why the rest of a response cannot be read.
#[derive(Debug)]
pub(crate) enum Cut {
    /// The connection ended in the middle.
    Broken(String),
    /// It is larger than the limit.
    TooLarge { limit: usize },
    /// The time for it was over.
    Late,
}

/// What a response says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    Json,
    Stream,
    Other,
}

impl Endpoint {
    /// Sends one request and waits for the head of its response until `by`.
    ///
    /// The headers are written for each connection that is tried, where those of the last response
    /// stood, so that the usual single try costs neither a copy nor a map of them.
    pub(crate) async fn send(
        &self,
        method: Method,
        headers: impl Fn(&mut HeaderMap),
        body: Bytes,
        by: Instant,
    ) -> Result<Arrival, Lost> {
        loop {
            let mut line = self.line(&method, by).await?;
            let was_kept = line.used;
            let mut head = Request::new(());
            *head.method_mut() = method.clone();
            *head.uri_mut() = self.uri.clone();
            *head.headers_mut() = line.take_map();
            headers(head.headers_mut());
            if !body.is_empty() {
                let length = Digits::of(u64::try_from(body.len()).unwrap_or(u64::MAX));
                if let Ok(length) = HeaderValue::from_bytes(length.as_bytes()) {
                    head.headers_mut().insert(CONTENT_LENGTH, length);
                }
            }
            let outcome = clock::timeout_at(by, line.send(head, body.clone())).await;
            match outcome {
                Ok(Ok(response)) => {
                    let (parts, body) = response.into_parts();
                    return Ok(Arrival {
                        status: parts.status,
                        headers: parts.headers,
                        body,
                        line,
                        connections: Arc::clone(&self.connections),
                    });
                },
                // Nobody asked for the body: on a kept connection this only means it was dead.
                Ok(Err(_)) if !line.was_pulled() && was_kept => {},
                Ok(Err(error)) => return Err(self.lost(&error, line.was_pulled())),
                Err(clock::Elapsed) => return Err(self.late(line.was_pulled())),
            }
        }
    }

    /// Makes sure that there is a connection, and lets it rest.
    pub(crate) async fn reach(&self, by: Instant) -> Result<(), Trouble> {
        let line = self.line(&Method::POST, by).await;
        let line = line.map_err(|lost| lost.trouble)?;
        self.connections.give_back(line);
        Ok(())
    }

    /// A kept connection, or a new one. A GET asks for a stream that stands for long: it always
    /// has a connection of its own.
    async fn line(&self, method: &Method, by: Instant) -> Result<Line, Lost> {
        if *method != Method::GET
            && let Some(line) = self.connections.take_kept()
        {
            return Ok(line);
        }
        let connect_by = by.min(clock::after(self.connect_within));
        match clock::timeout_at(connect_by, Box::pin(self.connections.open())).await {
            Ok(Ok(line)) => Ok(line),
            Ok(Err(error)) => Err(self.unreachable(error)),
            // The call's own time is over, which says nothing about the server.
            Err(clock::Elapsed) if connect_by == by => Err(self.late(false)),
            Err(clock::Elapsed) => Err(Lost {
                delivery: Delivery::Unsent,
                trouble: Trouble::new(
                    Reason::ConnectTimeout,
                    format!(
                        "`{}` could not be reached: no connection in time",
                        self.server
                    ),
                )
                .because(self.silence()),
            }),
        }
    }

    fn silence(&self) -> String {
        let place = &self.place;
        if place.starts_with("https:") {
            return format!("{place} did not shake hands; a server without TLS needs http://");
        }
        format!("{place} did not accept a connection")
    }

    fn unreachable(&self, error: ConnectError) -> Lost {
        let (server, place) = (&self.server, &self.place);
        let trouble = match error {
            ConnectError::Dns(error) => Trouble::new(
                Reason::Dns,
                format!("`{server}` could not be found: {place}"),
            )
            .because(error.to_string())
            .hint("check the host name in the URL"),
            ConnectError::Tcp(error) => {
                let reason = if error.kind() == io::ErrorKind::ConnectionRefused {
                    Reason::ConnectRefused
                } else if is_local(&error) {
                    Reason::LocalResources
                } else {
                    Reason::Unreachable
                };
                Trouble::new(
                    reason,
                    format!("`{server}` could not be reached at {place}"),
                )
                .because(error.to_string())
            },
            ConnectError::Tls(error) => {
                let Complaint { why, hint } = tls::complaint(&error);
                let what = format!("`{server}` could not be reached safely: TLS to {place} failed");
                let trouble = Trouble::new(tls_reason(&error), what).because(why);
                hint.map(str::to_owned)
                    .into_iter()
                    .fold(trouble, Trouble::hint)
            },
        };
        Lost {
            delivery: Delivery::Unsent,
            trouble,
        }
    }

    fn lost(&self, error: &hyper::Error, pulled: bool) -> Lost {
        let server = &self.server;
        let why = cause(error);
        if !pulled {
            return Lost {
                delivery: Delivery::Unsent,
                trouble: Trouble::new(
                    Reason::WriteFailed,
                    format!("the request to `{server}` could not be written"),
                )
                .because(why),
            };
        }
        let trouble = if error.is_parse_too_large() {
            let limit = self.connections.max_head();
            Trouble::new(
                Reason::BadReply,
                format!("`{server}` sent a larger head than the limit of {limit} bytes"),
            )
        } else if error.is_parse() || error.is_parse_status() {
            Trouble::new(
                Reason::BadReply,
                format!("what `{server}` answered is not HTTP"),
            )
        } else {
            Trouble::new(Reason::ReplyLost, format!("`{server}` sent no answer"))
        };
        Lost {
            delivery: Delivery::Unknown,
            trouble: trouble.because(why),
        }
    }

    /// The time of a call was over; whether its body was pulled decides what is known of it.
    pub(crate) fn late(&self, pulled: bool) -> Lost {
        let server = &self.server;
        if pulled {
            Lost {
                delivery: Delivery::Unknown,
                trouble: Trouble::new(
                    Reason::Timeout,
                    format!("`{server}` did not answer in time"),
                ),
            }
        } else {
            Lost {
                delivery: Delivery::Unsent,
                trouble: Trouble::new(
                    Reason::TimeoutUnsent,
                    format!("the request to `{server}` could not be sent in time"),
                ),
            }
        }
    }
}

impl Arrival {
    /// What the response says it is.
    pub(crate) fn kind(&self) -> BodyKind {
        let kind = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .unwrap_or("");
        let kind = kind.split(';').next().unwrap_or("").trim();
        if kind.eq_ignore_ascii_case("application/json") {
            BodyKind::Json
        } else if kind.eq_ignore_ascii_case("text/event-stream") {
            BodyKind::Stream
        } else {
            BodyKind::Other
        }
    }

    /// The content type as the server wrote it.
    pub(crate) fn content_type(&self) -> &str {
        self.header(&CONTENT_TYPE).unwrap_or("none")
    }

    pub(crate) fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// How long the server asks us to wait.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        read_retry_after(self.header(&RETRY_AFTER)?, clock::wall_seconds())
    }

    /// What the server asks for where it refuses our credential.
    pub(crate) fn challenge(&self) -> Option<&str> {
        self.header(&WWW_AUTHENTICATE)
    }

    /// Where a redirect leads.
    pub(crate) fn location(&self) -> Option<&str> {
        self.header(&LOCATION)
    }

    /// The next piece of the body; none at its end.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub(crate) async fn piece(&mut self) -> Option<Result<Bytes, Cut>> {
        let piece = self.line.piece(&mut self.body).await?;
        Some(piece.map_err(|error| Cut::Broken(cause(&error))))
    }

    /// The whole body, up to `limit` bytes, until `by`. Gives the connection back. A large one is
    /// read when the listener has room for it.
    pub(crate) async fn whole(
        mut self,
        limit: usize,
        by: Instant,
        listener: &dyn Listener,
    ) -> Result<Bytes, Cut> {
        let read = clock::timeout_at(by, self.read_whole(limit, listener)).await;
        match read {
            Err(clock::Elapsed) => Err(Cut::Late),
            Ok(Err(cut)) => Err(cut),
            Ok(Ok(bytes)) => {
                self.done();
                Ok(bytes)
            },
        }
    }

    async fn read_whole(&mut self, limit: usize, listener: &dyn Listener) -> Result<Bytes, Cut> {
        // Most replies are one piece: then it is taken as it is, without a copy.
        let Some(first) = self.piece().await else {
            return Ok(Bytes::new());
        };
        let first = first?;
        if first.len() > limit {
            return Err(Cut::TooLarge { limit });
        }
        let Some(second) = self.piece().await else {
            return Ok(first);
        };
        // What does not say how large it is may be as large as any.
        let stated = self.stated_length().unwrap_or(limit).min(limit);
        let room = (stated > LARGE).then(|| listener.room(stated)).flatten();
        if let Some(room) = room {
            room.await;
        }
        let mut whole = BytesMut::with_capacity(first.len() * 2);
        whole.extend_from_slice(&first);
        let mut next = Some(second);
        while let Some(piece) = next {
            let piece = piece?;
            if whole.len() + piece.len() > limit {
                return Err(Cut::TooLarge { limit });
            }
            whole.extend_from_slice(&piece);
            next = self.piece().await;
        }
        Ok(whole.freeze())
    }

    fn stated_length(&self) -> Option<usize> {
        self.header(&CONTENT_LENGTH)?.parse().ok()
    }

    /// The response is here, and the stream should end any moment. Nobody waits for that: the
    /// connection goes to rest with what is left, and is used again only if the end came.
    pub(crate) fn drain(mut self) {
        self.line.tail = Some(self.body);
        self.line.keep_map(self.headers);
        self.connections.give_back(self.line);
    }

    /// The body was read to its end: the connection may carry another request.
    fn done(mut self) {
        drop(self.body);
        self.line.keep_map(self.headers);
        self.connections.give_back(self.line);
    }
}

/// The innermost cause: it says more than the chain around it.
fn cause(error: &hyper::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    if error.is_incomplete_message() {
        return "the connection closed before the answer was complete".to_owned();
    }
    tls::plain(&innermost.to_string())
}

/// Whether the fault is a limit of this machine, not of the server.
fn is_local(error: &io::Error) -> bool {
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

/// A peer that hangs up is another thing than a certificate that does not hold.
fn tls_reason(error: &io::Error) -> Reason {
    let closed = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
    );
    if closed {
        Reason::TlsClosed
    } else {
        Reason::Tls
    }
}
