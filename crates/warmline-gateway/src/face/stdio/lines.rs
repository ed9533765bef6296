//! Lines of a client, each within its limit.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line without its end.
    Text(Bytes),
    /// A line that is longer than allowed; it is skipped to its end.
    TooLong,
}

/// Reads lines. Dropping [`Lines::next`] loses nothing.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    limit: usize,
    buffer: BytesMut,
    /// How far the buffer was searched.
    searched: usize,
    skipping: bool,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(input: R, limit: usize) -> Self {
        Self {
            input,
            limit,
            buffer: BytesMut::new(),
            searched: 0,
            skipping: false,
            ended: false,
        }
    }

    /// The next line that is not empty; none at the end of input.
    pub(super) async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.found() {
                return Ok(Some(line));
            }
            if self.ended {
                return Ok(None);
            }
            self.buffer.reserve(8 << 10);
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                self.ended = true;
                // A last line may have no end.
                self.buffer.extend_from_slice(b"\n");
            }
        }
    }

    fn found(&mut self) -> Option<Line> {
        loop {
            let unsearched = self.buffer.get(self.searched..).unwrap_or_default();
            let Some(end) = memchr(b'\n', unsearched).map(|end| end + self.searched) else {
                return self.unfinished();
            };
            let line = self.buffer.split_to(end).freeze();
            self.buffer.advance(1);
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                continue;
            }
            if line.len() > self.limit {
                return Some(Line::TooLong);
            }
            if !line.trim_ascii().is_empty() {
                return Some(Line::Text(line));
            }
        }
    }

    /// A line that has no end yet, and may be too long already.
    fn unfinished(&mut self) -> Option<Line> {
        if self.skipping {
            self.buffer.clear();
        }
        self.searched = self.buffer.len();
        if self.buffer.len() <= self.limit {
            return None;
        }
        self.buffer.clear();
        (self.searched, self.skipping) = (0, true);
        Some(Line::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_cut_at_their_ends_however_they_arrive() {
        let text = b"one\r\n\n  \ntwo\nfar too long for this\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::new(Pieces { text, size }, 8);
            let mut seen = Vec::new();
            while let Some(line) = lines.next().await.unwrap() {
                seen.push(match line {
                    Line::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
                    Line::TooLong => "!".to_owned(),
                });
            }
            assert_eq!(seen, ["one\r", "two", "!", "three"], "pieces of {size}");
        }
    }

    /// Input that comes in pieces of one size.
    struct Pieces {
        text: &'static [u8],
        size: usize,
    }

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: std::pin::Pin<&mut Self>,
            _cx: &mut std::task::Context<'_>,
            into: &mut tokio::io::ReadBuf<'_>,
        ) -> std::task::Poll<io::Result<()>> {
            let size = self.size.min(self.text.len()).min(into.remaining());
            let (now, later) = self.text.split_at(size);
            into.put_slice(now);
            self.text = later;
            std::task::Poll::Ready(Ok(()))
        }
    }
}
