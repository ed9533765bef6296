//! Sockets: the only door to the network.
//!
//! Every upstream socket has `TCP_NODELAY`, and on Linux `TCP_QUICKACK` is armed again after each
//! read: many real servers leave Nagle on, write a small reply in two pieces, and the second
//! piece then waits 40 ms for an acknowledgement that our kernel delays. The flag is not sticky,
//! which is why it is set at each read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::ReadBufCursor;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

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
}

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

/// Connects to an origin.
pub(crate) async fn connect(
    origin: &Origin,
    tls: Option<Arc<ClientConfig>>,
) -> Result<Socket, ConnectError> {
    let stream = dial(origin).await?;
    // A socket that refuses the option still works, only slower.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY not set");
    }
    let stream = QuickAck(stream);
    let Some(config) = tls else {
        return Ok(Socket::Plain(TokioIo::new(stream)));
    };
    let name = ServerName::try_from(origin.bare_host().to_owned())
        .map_err(|error| ConnectError::Tls(io::Error::other(error)))?;
    let stream = TlsConnector::from(config)
        .connect(name, stream)
        .await
        .map_err(ConnectError::Tls)?;
    Ok(Socket::Tls(TokioIo::new(Box::new(stream))))
}

/// Tries the addresses of a name one after the other.
async fn dial(origin: &Origin) -> Result<TcpStream, ConnectError> {
    let addresses = tokio::net::lookup_host((origin.bare_host(), origin.port))
        .await
        .map_err(ConnectError::Dns)?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(
        || ConnectError::Dns(io::Error::other("the name has no address")),
        ConnectError::Tcp,
    ))
}

/// A TCP stream that acknowledges at once.
#[derive(Debug)]
pub(crate) struct QuickAck(TcpStream);

impl QuickAck {
    #[cfg(target_os = "linux")]
    fn acknowledge(&self) {
        // A kernel that refuses costs 40 ms a reply, nothing else.
        rustix::net::sockopt::set_tcp_quickack(&self.0, true).ok();
    }

    #[cfg(not(target_os = "linux"))]
    fn acknowledge(&self) {}
}

impl AsyncRead for QuickAck {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.0).poll_read(cx, buf);
        self.acknowledge();
        read
    }
}

impl AsyncWrite for QuickAck {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
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
