//! The client side of a local socket: how a program asks a gateway of the same user.
//!
//! A listener of another user is sent nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use warmline_platform::clock;
use warmline_platform::net::{Destination, Dial, Dialed, Dialing};

use crate::admin::VERSION_HEADER;
use crate::response::{ReadBodyError, ResponseBody, read_body};

/// The base of URLs that lead through the socket.
pub const BASE_URL: &str = "http://localhost";

const MAX_RESPONSE_BYTES: usize = 64 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For the body of a response, once its head has arrived.
const READ_TIMEOUT: Duration = Duration::from_mins(10);

/// A client of the gateway behind a socket. As a dialer it leads every destination there.
#[derive(Clone, Debug)]
pub struct SocketClient {
    socket: PathBuf,
    label: String,
}

/// The gateway's response.
#[derive(Clone, Debug)]
pub struct SocketResponse {
    /// The status.
    pub status: StatusCode,
    /// The gateway's version, if it states one.
    pub version: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// Why there is no response.
#[derive(Debug)]
#[non_exhaustive]
pub enum SocketClientError {
    /// No process listens on the socket.
    NotListening(io::Error),
    /// A process of another user listens.
    OtherUser(u32),
    /// The connection broke, or the response is invalid.
    Broken(String),
}

impl fmt::Display for SocketClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListening(error) => write!(f, "no gateway listens on the socket: {error}"),
            Self::OtherUser(uid) => write!(f, "another user ({uid}) listens on the socket"),
            Self::Broken(why) => write!(f, "lost the connection to the gateway: {why}"),
        }
    }
}

impl std::error::Error for SocketClientError {}

impl SocketClient {
    /// A client of the gateway behind this socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        Self {
            label: format!("socket {}", socket.display()),
            socket,
        }
    }

    /// The path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Sends a request; a body is JSON.
    ///
    /// # Errors
    /// No process of the same user answers.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<SocketResponse, SocketClientError> {
        let stream = connect(&self.socket).await?;
        let broken = |error: hyper::Error| SocketClientError::Broken(error.to_string());
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
            .body(body.map_or(ResponseBody::Empty, ResponseBody::full))
            .map_err(|error| SocketClientError::Broken(error.to_string()))?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let (head, mut body) = response.into_parts();
        let version = head.headers.get(VERSION_HEADER);
        let read = read_body(&mut body, MAX_RESPONSE_BYTES, READ_TIMEOUT).await;
        Ok(SocketResponse {
            status: head.status,
            version: version.and_then(|version| Some(version.to_str().ok()?.to_owned())),
            body: read.map_err(|error| {
                SocketClientError::Broken(match error {
                    ReadBodyError::TooLarge => "the response is too large".to_owned(),
                    ReadBodyError::TooSlow | ReadBodyError::Broken => {
                        "the response is incomplete".to_owned()
                    },
                })
            })?,
        })
    }

    /// The id of the process that listens, if it belongs to the same user.
    pub async fn peer_pid(&self) -> Option<u32> {
        let stream = connect(&self.socket).await.ok()?;
        let pid = stream.peer_cred().ok()?.pid()?;
        u32::try_from(pid).ok()
    }
}

async fn connect(socket: &Path) -> Result<UnixStream, SocketClientError> {
    let connecting = clock::timeout(CONNECT_TIMEOUT, UnixStream::connect(socket)).await;
    let stream = connecting
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))
        .flatten()
        .map_err(connect_error)?;
    let peer = stream.peer_cred().map_err(connect_error)?;
    if peer.uid() == rustix::process::geteuid().as_raw() {
        Ok(stream)
    } else {
        Err(SocketClientError::OtherUser(peer.uid()))
    }
}

/// A gateway that is just stopping resets the connection, which differs from no listener.
fn connect_error(error: io::Error) -> SocketClientError {
    let is_stopping = matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::NotConnected
    );
    match is_stopping {
        true => SocketClientError::Broken(error.to_string()),
        false => SocketClientError::NotListening(error),
    }
}

impl Dial for SocketClient {
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
