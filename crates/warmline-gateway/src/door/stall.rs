//! A connection whose other end must go on reading: who takes nothing for too long is left.
//!
//! Used by: [`door`](crate::door), around every connection. Without it, a client that stops
//! reading holds what was written for it for as long as it likes.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use warmline::clock;

/// A connection that ends when nothing can be written to it for too long.
pub(crate) struct Stalling<I> {
    inner: I,
    after: Duration,
    since: Option<Pin<Box<Sleep>>>,
    /// Told when the other end is left.
    told: Option<Box<dyn FnOnce() + Send>>,
}

impl<I> Stalling<I> {
    pub(crate) const fn new(inner: I, after: Duration) -> Self {
        Self {
            inner,
            after,
            since: None,
            told: None,
        }
    }

    /// The same, telling somebody when the other end is left.
    pub(crate) fn telling(mut self, told: impl FnOnce() + Send + 'static) -> Self {
        self.told = Some(Box::new(told));
        self
    }

    /// What a write came to, unless it has been waiting for too long.
    fn watched<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.since = None;
            return written;
        }
        let since = self
            .since
            .get_or_insert_with(|| Box::pin(clock::sleep_until(clock::after(self.after))));
        match since.as_mut().poll(cx) {
            Poll::Ready(()) => {
                if let Some(told) = self.told.take() {
                    told();
                }
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            },
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Stalling<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Stalling<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watched(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.watched(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.watched(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watched(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// reliability F39: a client that reads nothing is left after its time, one that reads slowly
    /// is not.
    #[tokio::test(start_paused = true)]
    async fn only_who_takes_nothing_at_all_is_left() {
        let after = Duration::from_secs(30);
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut ours = Stalling::new(ours, after);
        let reading = clock::spawn("reading", async move {
            let mut one = [0; 16];
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_secs(29)).await;
                theirs.read_exact(&mut one).await.unwrap();
            }
            theirs
        });
        ours.write_all(&[7; 160]).await.unwrap();
        let theirs = reading.await.unwrap();
        let begun = clock::now();
        let error = ours.write_all(&[7; 160]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= after);
        drop(theirs);
    }
}
