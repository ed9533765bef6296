//! HTTP/1.1 by hand: every byte of a reply is ours to write, to spoil or to leave out.

pub(crate) mod control_endpoint;
pub(crate) mod exchange;
pub(crate) mod legacy;
pub(crate) mod modern;
pub(crate) mod reply;
pub(crate) mod reply_writer;
pub(crate) mod sse;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::faults::personality::WriteMode;

/// One request as it was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case, in the order they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl HttpRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(crate) fn header_count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(key, _)| key == name).count()
    }

    pub(crate) fn accepts(&self, content_type: &str) -> bool {
        let accept = self.header("accept").unwrap_or_default();
        accept
            .split(',')
            .filter_map(|part| part.split(';').next())
            .any(|part| {
                let part = part.trim();
                part.eq_ignore_ascii_case(content_type) || part == "*/*"
            })
    }
}

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct HttpConnection {
    pub(crate) number: u64,
    stream: ClientStream,
    buffer: BytesMut,
    write_mode: WriteMode,
}

/// Bytes to a client, plain or by TLS.
#[derive(Debug)]
pub(crate) enum ClientStream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl HttpConnection {
    pub(crate) fn new(number: u64, stream: ClientStream, write_mode: WriteMode) -> Self {
        Self {
            number,
            stream,
            buffer: BytesMut::with_capacity(8 * 1024),
            write_mode,
        }
    }

    /// The next request; none when the client is done.
    pub(crate) async fn next_request(&mut self) -> io::Result<Option<HttpRequest>> {
        let head_end = loop {
            if let Some(place) = find_bytes(&self.buffer, b"\r\n\r\n") {
                break place;
            }
            if self.buffer.len() > MAX_HEAD_BYTES {
                return Err(io::Error::other("the head of the request is too long"));
            }
            if self.fill_buffer().await? == 0 {
                return Ok(None);
            }
        };
        let head = self.buffer.split_to(head_end + 4);
        let mut request = parse_head(&head)?;
        request.body = self.read_body(&request).await?;
        Ok(Some(request))
    }

    /// Waits until the client closes; what it sends meanwhile is kept for later.
    pub(crate) async fn wait_for_close(&mut self) {
        while let Ok(count) = self.fill_buffer().await {
            if count == 0 || self.buffer.len() > MAX_BODY_BYTES {
                return;
            }
        }
    }

    /// Writes these parts: in one go, or each by itself.
    pub(crate) async fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        match self.write_mode {
            WriteMode::Whole => self.stream.write_all(&parts.concat()).await?,
            WriteMode::Pieces => {
                for part in parts {
                    self.stream.write_all(part).await?;
                    self.stream.flush().await?;
                }
            },
        }
        self.stream.flush().await
    }

    /// Ends the connection with FIN.
    pub(crate) async fn close(mut self) {
        drop(self.stream.shutdown().await);
    }

    /// Ends the connection with RST.
    pub(crate) fn reset(self) {
        let socket = match &self.stream {
            ClientStream::Plain(socket) => socket,
            ClientStream::Tls(tls) => tls.get_ref().0,
        };
        drop(socket.set_zero_linger());
    }

    async fn fill_buffer(&mut self) -> io::Result<usize> {
        self.stream.read_buf(&mut self.buffer).await
    }

    async fn read_body(&mut self, request: &HttpRequest) -> io::Result<Vec<u8>> {
        let coding = request.header("transfer-encoding").unwrap_or_default();
        if coding.eq_ignore_ascii_case("chunked") {
            return self.read_chunked_body().await;
        }
        let length = request.header("content-length").unwrap_or("0").trim();
        let length: usize = length
            .parse()
            .map_err(|_| io::Error::other("bad Content-Length"))?;
        self.read_bytes(length).await
    }

    async fn read_chunked_body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line().await?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size =
                usize::from_str_radix(size, 16).map_err(|_| io::Error::other("bad chunk"))?;
            body.extend(self.read_bytes(size).await?);
            self.read_line().await?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    async fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(place) = find_bytes(&self.buffer, b"\r\n") {
                let line = self.buffer.split_to(place);
                self.buffer.advance(2);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.fill_buffer().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    async fn read_bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > MAX_BODY_BYTES {
            return Err(io::Error::other("the body of the request is too long"));
        }
        while self.buffer.len() < length {
            if self.fill_buffer().await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.split_to(length).to_vec())
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}

fn parse_head(head: &[u8]) -> io::Result<HttpRequest> {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some("HTTP/1.1")) = (first.next(), first.next(), first.next())
    else {
        return Err(io::Error::other("not an HTTP/1.1 request"));
    };
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Ok(HttpRequest {
        method: method.to_owned(),
        path: origin_form(path).to_owned(),
        headers,
        body: Vec::new(),
    })
}

/// The path of a target that names its server as well, which every server must understand.
fn origin_form(target: &str) -> &str {
    let Some(rest) = target.strip_prefix("http://") else {
        return target;
    };
    let path = rest.find('/').and_then(|at| rest.get(at..));
    path.unwrap_or("/")
}

/// Where `wanted` begins in `bytes`.
pub(crate) fn find_bytes(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

const MAX_HEAD_BYTES: usize = 1 << 20;
const MAX_BODY_BYTES: usize = 64 << 20;
