//! What the library of HTTP refuses by itself, said in our words.
//!
//! Used by: [`door`](crate::door), around every connection.  A head that cannot be read, or is too
//! large, never becomes a request: the library answers with a bare status and closes. Nobody else
//! sees that, so it is noticed here, where its bytes go out, and replaced by a response with an
//! error of JSON-RPC in it. None of our own responses looks like it: those with such a status have
//! a body. What goes out otherwise is looked at for its last four bytes.
//!
//! A head that does not come whole in time is answered here, too: of it nobody else knows.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http::StatusCode;
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::pace::SlowHead;

/// The body that a refusal gets.
type Wording = Box<dyn FnMut(StatusCode) -> Bytes + Send>;

/// A connection on which every refusal has a body.
pub(crate) struct Worded<I> {
    inner: I,
    wording: Wording,
    /// What is still to be written in place of a bare refusal.
    instead: Option<Bytes>,
    /// What is still to be written to somebody whose head took too long, and what it took.
    parting: Option<(Bytes, io::Error)>,
}

impl<I> Worded<I> {
    /// `wording` gives the body for a status, and hears of it that way.
    pub(crate) fn new(inner: I, wording: impl FnMut(StatusCode) -> Bytes + Send + 'static) -> Self {
        Self {
            inner,
            wording: Box::new(wording),
            instead: None,
            parting: None,
        }
    }

    /// Notices a bare refusal at the end of what is to be written.
    fn look(&mut self, bytes: &[u8]) {
        if self.instead.is_some() || !bytes.ends_with(b"\r\n\r\n") {
            return;
        }
        let Some(at) = memmem::rfind(bytes, b"HTTP/1.1 4") else {
            return;
        };
        let (before, head) = bytes.split_at(at);
        let Some(status) = bare(head) else { return };
        let body = (self.wording)(status);
        let length = format!("content-length: {}\r\n", body.len());
        let at = memmem::find(head, EMPTY).unwrap_or_default();
        let (first, rest) = head.split_at(at);
        let rest = rest.strip_prefix(EMPTY).unwrap_or(rest);
        // The library says of some of them that the connection ends, and ends it after all.
        let says_so = memmem::find(head, CLOSE).is_some();
        let parts = [
            before,
            first,
            length.as_bytes(),
            b"content-type: application/json\r\n",
            if says_so { b"" } else { CLOSE },
            rest,
            &body,
        ];
        self.instead = Some(parts.concat().into());
    }
}

/// Whether the head of a request did not come whole in time.
fn is_slow_head(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<SlowHead>())
}

const EMPTY: &[u8] = b"content-length: 0\r\n";
const CLOSE: &[u8] = b"connection: close\r\n";

/// The status of a head that the library of HTTP made by itself.
fn bare(head: &[u8]) -> Option<StatusCode> {
    memmem::find(head, EMPTY)?;
    let status = StatusCode::from_bytes(head.get(9..12)?).ok()?;
    let is_theirs = matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::URI_TOO_LONG
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
    is_theirs.then_some(status)
}

impl<I: AsyncWrite + Unpin> Worded<I> {
    /// Writes what stands in place of `bytes`, then says that these were written.
    fn poll_instead(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<usize>> {
        while let Some(rest) = self.instead.as_mut().filter(|rest| rest.has_remaining()) {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            rest.advance(written);
        }
        self.instead = None;
        Poll::Ready(Ok(bytes))
    }

    /// Writes what somebody gets whose head took too long, then tells the error that it took.
    /// Nothing else is written meanwhile: no answer is under way.
    fn poll_parting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some((rest, _)) = self.parting.as_mut().filter(|(rest, _)| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.inner).poll_write(cx, rest)) {
                Ok(written @ 1..) => rest.advance(written),
                // It does not listen either.
                Ok(0) | Err(_) => rest.clear(),
            }
        }
        ready!(Pin::new(&mut self.inner).poll_flush(cx)).ok();
        let took = self.parting.take();
        Poll::Ready(Err(
            took.map_or_else(|| io::ErrorKind::TimedOut.into(), |(_, error)| error)
        ))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Worded<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.parting.is_some() {
            return self.poll_parting(cx);
        }
        match ready!(Pin::new(&mut self.inner).poll_read(cx, buffer)) {
            Err(error) if is_slow_head(&error) => {
                let body = (self.wording)(StatusCode::REQUEST_TIMEOUT);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 408 Request Timeout\r\ncontent-length: {length}\r\n\
                     content-type: application/json\r\nconnection: close\r\n\r\n"
                );
                self.parting = Some(([head.as_bytes(), &body].concat().into(), error));
                self.poll_parting(cx)
            },
            read => Poll::Ready(read),
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Worded<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.look(bytes);
        if self.instead.is_some() {
            return self.poll_instead(cx, bytes.len());
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A refusal is a head alone, and comes in one piece.
        if let [only] = pieces {
            return self.poll_write(cx, only);
        }
        Pin::new(&mut self.inner).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const BARE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\
        date: today\r\n\r\n";

    async fn written(bytes: &[u8]) -> (String, usize) {
        // So small that everything goes in pieces.
        let (ours, mut theirs) = tokio::io::duplex(7);
        let (told, hears) = std::sync::mpsc::channel();
        let mut ours = Worded::new(ours, move |status| {
            told.send(status).ok();
            Bytes::from_static(b"{\"error\":1}")
        });
        let sent = bytes.to_vec();
        let sending = async move {
            ours.write_all(&sent).await.unwrap();
            ours.shutdown().await.unwrap();
        };
        let mut read = String::new();
        let (_, result) = tokio::join!(sending, theirs.read_to_string(&mut read));
        result.unwrap();
        (read, hears.try_iter().count())
    }

    #[tokio::test]
    async fn a_bare_refusal_gets_a_body_and_nothing_else_is_touched() {
        let worded = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 11\r\n\
            content-type: application/json\r\nconnection: close\r\ndate: today\r\n\r\n{\"error\":1}";
        assert_eq!(written(BARE).await, (worded.to_owned(), 1));
        for closing in [
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        ] {
            let (told, _) = written(closing.as_bytes()).await;
            assert_eq!(told.matches("connection: close").count(), 1, "{told}");
        }
        let behind = [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", BARE].concat();
        let (both, told) = written(&behind).await;
        assert!(
            both.starts_with("HTTP/1.1 200 OK\r\n") && both.ends_with(worded),
            "{both}"
        );
        assert_eq!(told, 1);
        for untouched in [
            "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 405 Method Not Allowed\r\nallow: POST\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 4\r\n\r\n\r\n\r\n",
            "0\r\n\r\n",
            "data: HTTP/1.1 4\r\n\r\n",
        ] {
            assert_eq!(
                written(untouched.as_bytes()).await,
                (untouched.to_owned(), 0)
            );
        }
    }
}
