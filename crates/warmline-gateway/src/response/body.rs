//! HTTP bodies: request bodies are read within limits, response bodies are driven.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::BoxStream;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use warmline_platform::clock;

use super::stream::ResponseStream;
use crate::limits::reply_budget::{IdentityReplyBudget, is_large_reply};

pub(crate) enum ResponseBody {
    Empty,
    /// The whole body: JSON, unless the headers say otherwise.
    Full(Option<Bytes>),
    /// Events, perhaps with the call behind them.
    Events(Arc<Mutex<ResponseStream>>),
    /// A stream that belongs to no request, such as that of admin events.
    Stream(BoxStream<'static, Bytes>),
}

impl ResponseBody {
    pub(crate) const fn full(bytes: Bytes) -> Self {
        Self::Full(Some(bytes))
    }

    /// Charges the body to the budget until the client has read it.
    pub(crate) fn with_reply_budget(self, budget: impl FnOnce() -> IdentityReplyBudget) -> Self {
        match self {
            Self::Full(Some(bytes)) if is_large_reply(&bytes) => {
                Self::Full(Some(budget().track_reply(bytes)))
            },
            Self::Events(events) => {
                events.lock().reply_budget = Some(budget());
                Self::Events(events)
            },
            Self::Empty | Self::Full(_) | Self::Stream(_) => self,
        }
    }

    /// The next message, for a transport that frames messages itself; none at the end.
    pub(crate) fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Events(events) => events.lock().poll_message(cx),
            Self::Stream(stream) => stream.as_mut().poll_next(cx),
        }
    }

    /// Drives the call behind it, whether or not its client reads.
    pub(crate) fn drive_call(&self, cx: &mut Context<'_>) {
        if let Self::Events(events) = self {
            events.lock().drive_call(cx);
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(events) => events.lock().poll_events(cx).map(data_frame),
            Self::Stream(stream) => stream.as_mut().poll_next(cx).map(data_frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Full(bytes) => bytes.is_none(),
            Self::Events(_) | Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Full(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            },
            Self::Events(_) | Self::Stream(_) => SizeHint::default(),
        }
    }
}

fn data_frame(data: Option<Bytes>) -> Option<Result<Frame<Bytes>, Infallible>> {
    data.map(|data| Ok(Frame::data(data)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBodyError {
    TooLarge,
    TooSlow,
    Broken,
}

/// Whether an unwanted body was read to its end, so that the next request may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrainOutcome {
    Drained,
    Remaining,
}

/// An unwanted body is read up to this size, and for this long.
const MAX_DRAIN_BYTES: usize = 64 << 10;
const DRAIN_TIMEOUT: Duration = Duration::from_millis(50);

/// Reads the rest of an unwanted body, if it is small and has arrived already.
pub(crate) async fn drain_body(body: &mut Incoming) -> DrainOutcome {
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > MAX_DRAIN_BYTES) {
        return DrainOutcome::Remaining;
    }
    let draining = async {
        let mut taken = 0_usize;
        while taken <= MAX_DRAIN_BYTES {
            match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                None => return DrainOutcome::Drained,
                Some(Err(_)) => return DrainOutcome::Remaining,
                Some(Ok(frame)) => taken += frame.data_ref().map_or(0, Bytes::len),
            }
        }
        DrainOutcome::Remaining
    };
    let drained = clock::timeout(DRAIN_TIMEOUT, draining).await;
    drained.unwrap_or(DrainOutcome::Remaining)
}

/// A buffer holds at most this much beside its body.
const MAX_SPARE_CAPACITY: usize = 64 << 10;

/// Reads a whole body. A body of one frame is not copied; for any other the buffer is as large as
/// the body, or as the limit while its length is not known.
pub(crate) async fn read_body(
    body: &mut Incoming,
    limit: usize,
    within: Duration,
) -> Result<Bytes, ReadBodyError> {
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > limit) {
        return Err(ReadBodyError::TooLarge);
    }
    let stated = body.size_hint().exact();
    let stated = stated.and_then(|stated| usize::try_from(stated).ok());
    let reading = collect_body(body, stated, limit);
    let read = clock::timeout(within, reading).await;
    read.unwrap_or(Err(ReadBodyError::TooSlow))
}

async fn collect_body(
    body: &mut Incoming,
    stated: Option<usize>,
    limit: usize,
) -> Result<Bytes, ReadBodyError> {
    let mut first = Bytes::new();
    let mut more: Option<BytesMut> = None;
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let data = match frame {
            None => break,
            Some(Err(_)) => return Err(ReadBodyError::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
        };
        let so_far = more.as_ref().map_or(first.len(), BytesMut::len);
        if so_far.saturating_add(data.len()) > limit {
            return Err(ReadBodyError::TooLarge);
        }
        match &mut more {
            None if first.is_empty() => first = data,
            None => {
                let so_far = first.len() + data.len();
                let mut whole = BytesMut::with_capacity(stated.unwrap_or(so_far).max(so_far));
                whole.extend_from_slice(&first);
                whole.extend_from_slice(&data);
                (more, first) = (Some(whole), Bytes::new());
            },
            Some(whole) => {
                let missing = (whole.len() + data.len()).saturating_sub(whole.capacity());
                if missing > 0 {
                    let double = whole.capacity().saturating_mul(2).min(limit);
                    whole.reserve(double.saturating_sub(whole.len()).max(data.len()));
                }
                whole.extend_from_slice(&data);
            },
        }
    }
    Ok(match more {
        None => first,
        // A body of unknown length may have grown its buffer far too much.
        Some(whole) if whole.capacity() - whole.len() > MAX_SPARE_CAPACITY => {
            Bytes::copy_from_slice(&whole)
        },
        Some(whole) => whole.freeze(),
    })
}
