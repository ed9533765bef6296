//! Sockets to servers.
//!
//! Every socket has `TCP_NODELAY`. Many servers leave Nagle on and write a small reply in two pieces;
//! the second waits 40 ms for an acknowledgement that our kernel delays. So on Linux what was read is
//! acknowledged at once (`TCP_QUICKACK`) while more of a reply is expected. A complete reply is
//! acknowledged by the next request: its own packet would cost as much as sending that request.
//!
//! The server may have closed an idle connection a moment ago, which the runtime sees only when it next
//! polls the kernel. A request sent before that cannot be told from an executed one, so reads can ask
//! the kernel themselves. See [`ReadControl`].

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::clock;

/// The server end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The host as the user wrote it: some servers check it.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether to use TLS.
    pub tls: bool,
}

impl Origin {
    /// The host without the brackets that a URL puts around an IPv6 address.
    fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    fn destination(&self) -> Destination<'_> {
        Destination {
            host: self.bare_host(),
            port: self.port,
            tls: self.tls,
        }
    }
}

/// Makes connections in a custom way: through a proxy, with another resolver or other certificates.
pub trait Dial: Send + Sync + fmt::Debug {
    /// Identifies it, without secrets. Connections and known facts of a server are kept apart by the
    /// label.
    fn label(&self) -> &str;

    /// Makes a connection.
    fn dial<'a>(&'a self, to: Destination<'a>) -> Dialing<'a>;
}

/// A connection that is being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Dialed>> + Send + 'a>>;

/// The server end of a connection to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The host, by name or address.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// Whether to use TLS.
    pub tls: bool,
}

/// A connection that was made.
pub enum Dialed {
    /// Bytes of the server. TLS is added if the URL wants it.
    Plain(Box<dyn ByteStream>),
    /// Bytes under TLS, whose certificate was checked.
    Secured(Box<dyn ByteStream>),
}

impl fmt::Debug for Dialed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain",
            Self::Secured(_) => "Secured",
        })
    }
}

/// Bytes both ways.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Why a connection could not be made. Nothing of a request has left then.
#[derive(Debug)]
pub enum ConnectError {
    /// The name did not resolve.
    Dns(io::Error),
    /// None of its addresses accepted a connection.
    Tcp(io::Error),
    /// TLS failed.
    Tls(io::Error),
}

/// A connection to a server, plain or under TLS.
pub type Socket = TokioIo<Box<dyn ByteStream>>;

/// Controls the reads of a socket. At first they acknowledge whenever they wait, as a TLS handshake
/// needs it.
#[derive(Clone, Debug, Default)]
pub struct ReadControl(Arc<ReadFlags>);

#[derive(Debug, Default)]
struct ReadFlags {
    /// Acknowledge only inside `with_ack`.
    manual_ack: AtomicBool,
    /// Ask the kernel, which knows of a close before the runtime does.
    kernel_poll: AtomicBool,
    /// Something was read that is not acknowledged yet.
    ack_pending: AtomicBool,
    /// A reply has no head yet.
    awaiting_head: AtomicBool,
    /// How many bytes may come before the head, and before other tasks run.
    head_budget: AtomicUsize,
    turn_budget: AtomicUsize,
}

impl ReadControl {
    /// From now on reads acknowledge only inside [`ReadControl::with_ack`].
    pub fn set_manual_ack(&self) {
        self.0.manual_ack.store(true, Ordering::Relaxed);
    }

    /// Whether something was read since the last write or acknowledgement.
    pub fn is_ack_pending(&self) -> bool {
        self.0.ack_pending.load(Ordering::Relaxed)
    }

    /// The next read that waits acknowledges what was read before.
    pub fn with_ack<T>(&self, drive: impl FnOnce() -> T) -> T {
        self.0.manual_ack.store(false, Ordering::Relaxed);
        let driven = drive();
        self.0.manual_ack.store(true, Ordering::Relaxed);
        driven
    }

    /// From now on the head of a reply is expected, of at most this size.
    pub fn await_head(&self, largest: usize) {
        let most = largest.saturating_add(MAX_BYTES_BESIDE_HEAD);
        self.0.head_budget.store(most, Ordering::Relaxed);
        self.0.awaiting_head.store(true, Ordering::Relaxed);
    }

    /// The head of the reply is there.
    pub fn head_received(&self) {
        self.0.awaiting_head.store(false, Ordering::Relaxed);
    }

    /// The connection may read its share again.
    pub fn reset_turn_budget(&self) {
        self.0
            .turn_budget
            .store(MAX_BYTES_PER_TURN, Ordering::Relaxed);
    }

    /// Limits what is read before the head of a reply: a server can send informational replies without
    /// end, and all that came are handled before other tasks run.
    fn poll_read_allowed(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let manner = &self.0;
        if !manner.awaiting_head.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        if manner.head_budget.load(Ordering::Relaxed) == 0 {
            let what = "the server sends informational replies without end";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        if manner.turn_budget.load(Ordering::Relaxed) == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    fn record_read(&self, count: usize) {
        let manner = &self.0;
        manner.ack_pending.store(true, Ordering::Relaxed);
        if manner.awaiting_head.load(Ordering::Relaxed) {
            for left in [&manner.head_budget, &manner.turn_budget] {
                let less = left.load(Ordering::Relaxed).saturating_sub(count);
                left.store(less, Ordering::Relaxed);
            }
        }
    }

    /// Reads ask the kernel, until it has nothing.
    pub fn with_kernel_poll<T>(&self, look: impl FnOnce() -> T) -> T {
        self.0.kernel_poll.store(true, Ordering::Relaxed);
        let seen = look();
        self.0.kernel_poll.store(false, Ordering::Relaxed);
        seen
    }
}

/// Connects to an origin, by a custom dialer if there is one.
pub async fn connect(
    origin: &Origin,
    mut tls: Option<Arc<ClientConfig>>,
    maker: Option<&dyn Dial>,
) -> Result<(Socket, ReadControl), ConnectError> {
    let stream = match maker {
        None => RawStream::Tcp(dial(origin).await?),
        Some(maker) => match maker.dial(origin.destination()).await {
            Ok(Dialed::Plain(stream)) => RawStream::Custom(stream),
            Ok(Dialed::Secured(stream)) => {
                tls = None;
                RawStream::Custom(stream)
            },
            Err(error) => return Err(ConnectError::Tcp(error)),
        },
    };
    let reads = ReadControl::default();
    let stream = QuickAckStream {
        stream,
        control: reads.clone(),
    };
    let Some(config) = tls else {
        return Ok((TokioIo::new(Box::new(stream)), reads));
    };
    let name = ServerName::try_from(origin.bare_host().to_owned())
        .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(ConnectError::Tls)?;
    Ok((TokioIo::new(Box::new(stream)), reads))
}

/// Tries the addresses of a name one after the other. A silent one does not use up the time of the
/// others.
async fn dial(origin: &Origin) -> Result<TcpStream, ConnectError> {
    let mut addresses = tokio::net::lookup_host((origin.bare_host(), origin.port))
        .await
        .map_err(ConnectError::Dns)?
        .peekable();
    let mut last = io::Error::other("the name has no address");
    let mut found = false;
    while let Some(address) = addresses.next() {
        found = true;
        let connecting = TcpStream::connect(address);
        let outcome = if addresses.peek().is_some() {
            let silent = |_| io::Error::from(io::ErrorKind::TimedOut);
            clock::timeout(ADDRESS_TIMEOUT, connecting)
                .await
                .map_err(silent)
                .flatten()
        } else {
            connecting.await
        };
        match outcome {
            Ok(stream) => {
                // A socket that refuses the option still works, only slower.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY not set");
                }
                return Ok(stream);
            },
            Err(error) => last = error,
        }
    }
    Err(if found {
        ConnectError::Tcp(last)
    } else {
        ConnectError::Dns(last)
    })
}

/// How long an address may stay silent if there is another one.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// How many bytes may come beside the head of a reply: informational replies, and the start of the body.
const MAX_BYTES_BESIDE_HEAD: usize = 1024 * 1024;
/// How many of them are read before other tasks run.
const MAX_BYTES_PER_TURN: usize = 64 * 1024;

/// A stream that acknowledges as [`ReadControl`] says, if it is our own socket.
struct QuickAckStream {
    stream: RawStream,
    control: ReadControl,
}

/// The bytes below HTTP and TLS.
enum RawStream {
    Tcp(TcpStream),
    Custom(Box<dyn ByteStream>),
}

impl RawStream {
    fn as_pin_mut(&mut self) -> Pin<&mut dyn ByteStream> {
        match self {
            Self::Tcp(stream) => Pin::new(stream),
            Self::Custom(stream) => Pin::new(&mut **stream),
        }
    }

    #[cfg(target_os = "linux")]
    fn acknowledge(&self) {
        if let Self::Tcp(stream) = self {
            // A kernel that refuses costs 40 ms a reply, nothing else.
            rustix::net::sockopt::set_tcp_quickack(stream, true).ok();
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn acknowledge(&self) {}

    /// Reads what the kernel has, although the runtime has nothing.
    fn read_kernel(&self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        use rustix::net::{RecvFlags, recv};
        let Self::Tcp(stream) = self else {
            return Poll::Pending;
        };
        let mut bytes = [0; 512];
        let room = bytes.len().min(buf.remaining());
        match recv(stream, &mut bytes[..room], RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                buf.put_slice(&bytes[..count]);
                Poll::Ready(Ok(()))
            },
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl AsyncRead for QuickAckStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.control.poll_read_allowed(cx))?;
        let before = buf.filled().len();
        let mut read = self.stream.as_pin_mut().poll_read(cx, buf);
        let manner = &self.control.0;
        if read.is_pending() && manner.kernel_poll.load(Ordering::Relaxed) {
            read = self.stream.read_kernel(buf);
            manner.kernel_poll.store(read.is_ready(), Ordering::Relaxed);
        }
        if buf.filled().len() > before {
            self.control.record_read(buf.filled().len() - before);
        } else if read.is_pending()
            && !manner.manual_ack.load(Ordering::Relaxed)
            && manner.ack_pending.swap(false, Ordering::Relaxed)
        {
            self.stream.acknowledge();
        }
        read
    }
}

impl QuickAckStream {
    /// A write acknowledges what was read.
    fn record_write(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(_))) {
            self.control.0.ack_pending.store(false, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncWrite for QuickAckStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.as_pin_mut().poll_write(cx, buf);
        self.record_write(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_pin_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_pin_mut().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.as_pin_mut().poll_write_vectored(cx, bufs);
        self.record_write(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            RawStream::Tcp(stream) => stream.is_write_vectored(),
            RawStream::Custom(stream) => stream.is_write_vectored(),
        }
    }
}
