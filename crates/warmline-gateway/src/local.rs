//! The other end of a socket of this machine: how a program of the same user asks a gateway.
//!
//! Asked by: the command line.  Whoever listens there must be our own user: a socket that somebody
//! else put in its place is told nothing.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use warmline::clock;
use warmline::upstream::{Destination, Dial, Dialed, Dialing};

use crate::admin::VERSION_HEADER;
use crate::body::Body;

/// What a URL that leads through the socket begins with: the host is a name of this machine.
pub const BASE: &str = "http://localhost";

/// The largest answer that is read.
const LARGEST: usize = 64 << 20;
/// How long connecting may take.
const TO_CONNECT: Duration = Duration::from_secs(5);

/// A gateway of our own user, behind a socket.
#[derive(Clone, Debug)]
pub struct LocalGateway {
    socket: PathBuf,
}

/// What it answered.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Whether it did what it was asked.
    pub status: StatusCode,
    /// Its version, where it says one.
    pub version: Option<String>,
    /// The answer.
    pub body: Bytes,
}

/// Why nothing was answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum Unanswered {
    /// Nobody listens there.
    Nobody(io::Error),
    /// Somebody else listens there.
    Foreign(u32),
    /// The connection broke, or what came back is no answer.
    Broken(String),
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody(error) => write!(f, "nobody listens there: {error}"),
            Self::Foreign(uid) => write!(f, "user {uid} listens there, not ours"),
            Self::Broken(why) => write!(f, "the gateway broke off: {why}"),
        }
    }
}

impl std::error::Error for Unanswered {}

impl LocalGateway {
    /// The gateway behind a socket.
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
        }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Makes connections through the socket, wherever they shall lead.
    pub fn dial(&self) -> SocketDial {
        SocketDial {
            label: format!("socket {}", self.socket.display()),
            socket: self.socket.clone(),
        }
    }

    /// Asks for something; a body is JSON.
    ///
    /// # Errors
    /// Nobody of our own user answers.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Answered, Unanswered> {
        let (head, body) = self.send(method, path, body).await?.into_parts();
        let version = head.headers.get(VERSION_HEADER);
        Ok(Answered {
            status: head.status,
            version: version.and_then(|version| Some(version.to_str().ok()?.to_owned())),
            body: read(body).await?,
        })
    }

    /// The process of our own user that listens there, as the system knows it, whether it answers
    /// or not.
    pub async fn process(&self) -> Option<u32> {
        let stream = connect(&self.socket).await.ok()?;
        let pid = stream.peer_cred().ok()?.pid()?;
        u32::try_from(pid).ok()
    }

    /// Hears what happens there from now on.
    ///
    /// # Errors
    /// Nobody of our own user answers, or not with events.
    pub async fn events(&self) -> Result<Happenings, Unanswered> {
        let response = self.send(Method::GET, "/admin/events", None).await?;
        if response.status() != StatusCode::OK {
            let why = format!("it answered with status {}", response.status());
            return Err(Unanswered::Broken(why));
        }
        Ok(Happenings {
            body: response.into_body(),
            read: BytesMut::new(),
        })
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>, Unanswered> {
        let stream = connect(&self.socket).await?;
        let broken = |error: hyper::Error| Unanswered::Broken(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        drop(clock::spawn("local-gateway", async {
            connection.await.ok();
        }));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(body.map_or(Body::Empty, Body::whole))
            .map_err(|error| Unanswered::Broken(error.to_string()))?;
        sender.send_request(request).await.map_err(broken)
    }
}

/// What happens in a gateway, as it is told: one JSON object each.
#[derive(Debug)]
pub struct Happenings {
    body: Incoming,
    read: BytesMut,
}

impl Happenings {
    /// The next thing that happened; none once the gateway is gone.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let mut line = self.read.split_to(end + 1);
                line.truncate(end);
                return Some(line.freeze());
            }
            let body = &mut self.body;
            let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
            let data = frame?.ok()?.into_data().unwrap_or_default();
            if self.read.len() + data.len() > LARGEST {
                return None;
            }
            self.read.extend_from_slice(&data);
        }
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, Unanswered> {
    let mut whole = BytesMut::new();
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        match frame {
            None => return Ok(whole.freeze()),
            Some(Err(error)) => return Err(Unanswered::Broken(error.to_string())),
            Some(Ok(frame)) => {
                let data = frame.into_data().unwrap_or_default();
                if whole.len() + data.len() > LARGEST {
                    return Err(Unanswered::Broken("the answer is too large".to_owned()));
                }
                whole.extend_from_slice(&data);
            },
        }
    }
}

/// Connects to a socket, and looks who is there.
async fn connect(socket: &Path) -> Result<UnixStream, Unanswered> {
    let connecting = clock::timeout(TO_CONNECT, UnixStream::connect(socket)).await;
    let stream = connecting
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
        .flatten()
        .map_err(unconnected)?;
    let peer = stream.peer_cred().map_err(unconnected)?;
    if peer.uid() == rustix::process::geteuid().as_raw() {
        Ok(stream)
    } else {
        Err(Unanswered::Foreign(peer.uid()))
    }
}

/// Somebody may be there and just going, which is another thing than nobody.
fn unconnected(error: io::Error) -> Unanswered {
    let going = [
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::BrokenPipe,
        io::ErrorKind::NotConnected,
    ];
    if going.contains(&error.kind()) {
        return Unanswered::Broken(error.to_string());
    }
    Unanswered::Nobody(error)
}

/// Makes connections through a socket of our own user.
#[derive(Clone, Debug)]
pub struct SocketDial {
    label: String,
    socket: PathBuf,
}

impl Dial for SocketDial {
    fn label(&self) -> &str {
        &self.label
    }

    fn dial<'a>(&'a self, _to: Destination<'a>) -> Dialing<'a> {
        Box::pin(async {
            let stream = connect(&self.socket).await.map_err(io::Error::other)?;
            Ok(Dialed::Plain(Box::new(stream)))
        })
    }
}
