//! Sockets: the only door to the network.
//!
//! Every upstream socket has `TCP_NODELAY`. Many real servers leave Nagle on, write a small reply in
//! two pieces, and the second piece then waits 40 ms for an acknowledgement that our kernel delays.
//! So on Linux what was read is acknowledged at once (`TCP_QUICKACK`) where more of a reply is
//! waited for. A whole reply is acknowledged by the next request: a packet of its own for it would
//! cost as much as sending that request.
//!
//! A connection that rested may have been closed by the server a moment ago, and the runtime hears
//! of it only when it next asks the kernel. A request sent before that is lost in a way nobody can
//! tell from an execution, so reads can be had to ask the kernel themselves.
//!
//! Whoever drives a connection says which of it counts: see [`Reads`].

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::clock;

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// The host as the user wrote it: some servers check the name they are called by.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
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

/// Makes connections in another way than ours: through a proxy, with another resolver, with
/// certificates of its own.
pub trait Dial: Send + Sync + fmt::Debug {
    /// What it is, without secrets. Connections and what is remembered of a server are kept apart
    /// by it: two of the same label are taken for the same.
    fn label(&self) -> &str;

    /// Makes a connection to a place.
    fn dial<'a>(&'a self, to: Destination<'a>) -> Dialing<'a>;
}

/// A connection that is being made.
pub type Dialing<'a> = Pin<Box<dyn Future<Output = io::Result<Dialed>> + Send + 'a>>;

/// Where a connection shall lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination<'a> {
    /// The host, by name or address.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// Whether TLS is spoken there.
    pub tls: bool,
}

/// A connection that was made.
pub enum Dialed {
    /// The bytes of the server. TLS is put on them where the URL asks for it.
    Plain(Box<dyn ByteStream>),
    /// TLS stands on it already, and whoever made it has checked the certificate.
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

/// Why a connection could not be made. Nothing of a request has left us then.
#[derive(Debug)]
pub(crate) enum ConnectError {
    /// The name did not resolve.
    Dns(io::Error),
    /// Nobody could be reached at any of its addresses.
    Tcp(io::Error),
    /// They were reached, but not safely.
    Tls(io::Error),
}

/// A connection to a server, plain or under TLS.
pub(crate) enum Socket {
    Plain(TokioIo<QuickAck>),
    Tls(TokioIo<Box<TlsStream<QuickAck>>>),
}

/// How the reads of a socket behave. At first they acknowledge whenever they have to wait, as a
/// TLS handshake needs it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reads(Arc<Manner>);

#[derive(Debug, Default)]
struct Manner {
    /// Acknowledge only where it is asked for.
    quiet: AtomicBool,
    /// Ask the kernel, which knows of a close before the runtime does.
    looking: AtomicBool,
    /// Something was read that no acknowledgement of ours has told of yet.
    owing: AtomicBool,
    /// The head of a reply is waited for.
    headless: AtomicBool,
    /// So many bytes may still come before it, and so many before the connection is driven again.
    before_head: AtomicUsize,
    at_once: AtomicUsize,
}

impl Reads {
    /// From now on whoever drives the connection says when to acknowledge.
    pub(crate) fn quieten(&self) {
        self.0.quiet.store(true, Ordering::Relaxed);
    }

    /// Whether something was read since we last wrote or acknowledged.
    pub(crate) fn owe(&self) -> bool {
        self.0.owing.load(Ordering::Relaxed)
    }

    /// Has the next read that waits acknowledge what was read before it.
    pub(crate) fn acknowledging<T>(&self, drive: impl FnOnce() -> T) -> T {
        self.0.quiet.store(false, Ordering::Relaxed);
        let driven = drive();
        self.0.quiet.store(true, Ordering::Relaxed);
        driven
    }

    /// The head of a reply is waited for from now on, which may have this size.
    pub(crate) fn await_head(&self, largest: usize) {
        let most = largest.saturating_add(BESIDE_HEAD);
        self.0.before_head.store(most, Ordering::Relaxed);
        self.0.headless.store(true, Ordering::Relaxed);
    }

    /// The head of the reply is there.
    pub(crate) fn head_came(&self) {
        self.0.headless.store(false, Ordering::Relaxed);
    }

    /// The connection is driven, and may read its share again.
    pub(crate) fn begin_share(&self) {
        self.0.at_once.store(AT_ONCE, Ordering::Relaxed);
    }

    /// Whether a reply that has no head yet may be read on. A server can send informational
    /// replies without end, and all that came are looked at before anybody else has a turn.
    fn may_read(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let manner = &self.0;
        if !manner.headless.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        if manner.before_head.load(Ordering::Relaxed) == 0 {
            let what = "there was no end of informational replies";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, what)));
        }
        if manner.at_once.load(Ordering::Relaxed) == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// So many bytes were read.
    fn took(&self, count: usize) {
        let manner = &self.0;
        manner.owing.store(true, Ordering::Relaxed);
        if manner.headless.load(Ordering::Relaxed) {
            for left in [&manner.before_head, &manner.at_once] {
                let less = left.load(Ordering::Relaxed).saturating_sub(count);
                left.store(less, Ordering::Relaxed);
            }
        }
    }

    /// Has reads look for themselves, until the kernel says that there is nothing.
    pub(crate) fn looking<T>(&self, look: impl FnOnce() -> T) -> T {
        self.0.looking.store(true, Ordering::Relaxed);
        let seen = look();
        self.0.looking.store(false, Ordering::Relaxed);
        seen
    }
}

/// Connects to an origin, in our way or in somebody else's.
pub(crate) async fn connect(
    origin: &Origin,
    mut tls: Option<Arc<ClientConfig>>,
    maker: Option<&dyn Dial>,
) -> Result<(Socket, Reads), ConnectError> {
    let stream = match maker {
        None => Wire::Ours(dial(origin).await?),
        Some(maker) => match maker.dial(origin.destination()).await {
            Ok(Dialed::Plain(stream)) => Wire::Made(stream),
            Ok(Dialed::Secured(stream)) => {
                tls = None;
                Wire::Made(stream)
            },
            Err(error) => return Err(ConnectError::Tcp(error)),
        },
    };
    let reads = Reads::default();
    let stream = QuickAck {
        stream,
        reads: reads.clone(),
    };
    let Some(config) = tls else {
        return Ok((Socket::Plain(TokioIo::new(stream)), reads));
    };
    let name = ServerName::try_from(origin.bare_host().to_owned())
        .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(ConnectError::Tls)?;
    Ok((Socket::Tls(TokioIo::new(Box::new(stream))), reads))
}

/// Tries the addresses of a name one after the other. One that stays silent does not use up the
/// time of those after it.
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
            clock::timeout(EACH_ADDRESS, connecting)
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

/// How long an address may stay silent if there is another one to try.
const EACH_ADDRESS: Duration = Duration::from_secs(2);

/// So many bytes may come beside the head of a reply until it is there: informational replies, and
/// what of its body was read with it.
const BESIDE_HEAD: usize = 1024 * 1024;
/// So many of them are read before others have their turn.
const AT_ONCE: usize = 64 * 1024;

/// A stream that acknowledges when it should, where it is a socket of ours.
pub(crate) struct QuickAck {
    stream: Wire,
    reads: Reads,
}

/// The bytes below HTTP and TLS.
enum Wire {
    Ours(TcpStream),
    Made(Box<dyn ByteStream>),
}

impl Wire {
    /// The stream, whoever made it.
    fn stream(&mut self) -> Pin<&mut dyn ByteStream> {
        match self {
            Self::Ours(stream) => Pin::new(stream),
            Self::Made(stream) => Pin::new(&mut **stream),
        }
    }

    #[cfg(target_os = "linux")]
    fn acknowledge(&self) {
        if let Self::Ours(stream) = self {
            // A kernel that refuses costs 40 ms a reply, nothing else.
            rustix::net::sockopt::set_tcp_quickack(stream, true).ok();
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn acknowledge(&self) {}

    /// Reads what the kernel has, though the runtime says there is nothing.
    fn look(&self, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        use rustix::net::{RecvFlags, recv};
        let Self::Ours(stream) = self else {
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

impl AsyncRead for QuickAck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        std::task::ready!(self.reads.may_read(cx))?;
        let before = buf.filled().len();
        let mut read = self.stream.stream().poll_read(cx, buf);
        let manner = &self.reads.0;
        if read.is_pending() && manner.looking.load(Ordering::Relaxed) {
            read = self.stream.look(buf);
            manner.looking.store(read.is_ready(), Ordering::Relaxed);
        }
        if buf.filled().len() > before {
            self.reads.took(buf.filled().len() - before);
        } else if read.is_pending()
            && !manner.quiet.load(Ordering::Relaxed)
            && manner.owing.swap(false, Ordering::Relaxed)
        {
            self.stream.acknowledge();
        }
        read
    }
}

impl QuickAck {
    /// What is written carries the acknowledgement with it.
    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(_))) {
            self.reads.0.owing.store(false, Ordering::Relaxed);
        }
        written
    }
}

impl AsyncWrite for QuickAck {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.stream().poll_write(cx, buf);
        self.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.stream.stream().poll_write_vectored(cx, bufs);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Wire::Ours(stream) => stream.is_write_vectored(),
            Wire::Made(stream) => stream.is_write_vectored(),
        }
    }
}

impl hyper::rt::Read for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl hyper::rt::Write for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Self::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_flush(cx),
            Self::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Self::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Self::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(io) => io.is_write_vectored(),
            Self::Tls(io) => io.is_write_vectored(),
        }
    }
}
