//! Bodies: reading what a client sends within its limits, and what goes back.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use warmline::clock;

use crate::admin::EventLines;
use crate::door::replies::{ReplyRoom, is_large};
use crate::face::sse;
use crate::flow::Flow;

/// What goes back to a client.
pub(crate) enum Body {
    /// Nothing.
    Empty,
    /// All of it at once: JSON, unless its headers say otherwise.
    Whole(Option<Bytes>),
    /// Events, as they come.
    Events(Arc<Mutex<Flow>>),
    /// Lines about what happens, as they come.
    Lines(Box<EventLines>),
    /// All that comes down to a client of the 2024-11-05 transport.
    Told(Box<sse::Stream>),
}

impl Body {
    pub(crate) const fn whole(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes))
    }

    /// The same, counted until its client has read it.
    pub(crate) fn held_in(self, room: impl FnOnce() -> ReplyRoom) -> Self {
        match self {
            Self::Whole(Some(bytes)) if is_large(&bytes) => Self::Whole(Some(room().held(bytes))),
            Self::Events(flow) => {
                flow.lock().hold_in(room());
                Self::Events(flow)
            },
            Self::Empty | Self::Whole(_) | Self::Lines(_) | Self::Told(_) => self,
        }
    }

    /// Lets the call behind it go on, whether or not anybody reads.
    pub(crate) fn drive(&self, cx: &mut Context<'_>) {
        if let Self::Events(flow) = self {
            flow.lock().drive(cx);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Events(flow) => flow
                .lock()
                .poll_events(cx)
                .map(|events| events.map(|events| Ok(Frame::data(events)))),
            Self::Lines(lines) => lines.poll_lines(cx),
            Self::Told(stream) => stream
                .poll_events(cx)
                .map(|events| events.map(|events| Ok(Frame::data(events)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_none(),
            Self::Events(_) | Self::Lines(_) | Self::Told(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).unwrap_or(u64::MAX))
            },
            Self::Events(_) | Self::Lines(_) | Self::Told(_) => SizeHint::default(),
        }
    }
}

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is larger than allowed.
    TooLarge,
    /// It did not come in time.
    TooSlow,
    /// The connection broke.
    Broken,
}

/// What became of a body that nobody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// All of it was taken: the next request may follow.
    Gone,
    /// Some of it is still to come.
    Left,
}

/// More than this of a body that nobody wants is not taken, nor is it waited for longer.
const MAX_REST: usize = 64 << 10;
const REST_WITHIN: Duration = Duration::from_millis(50);

/// Takes what is left of a body, as far as it is little and there already.
pub(crate) async fn drain(body: &mut Incoming) -> Rest {
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > MAX_REST) {
        return Rest::Left;
    }
    let draining = async {
        let mut taken = 0_usize;
        while taken <= MAX_REST {
            match std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
                None => return Rest::Gone,
                Some(Err(_)) => return Rest::Left,
                Some(Ok(frame)) => taken += frame.data_ref().map_or(0, Bytes::len),
            }
        }
        Rest::Left
    };
    let drained = clock::timeout(REST_WITHIN, draining).await;
    drained.unwrap_or(Rest::Left)
}

/// A body takes up no more than this beside what it has.
const MAX_SPARE: usize = 64 << 10;

/// Reads a body whole. One that came in one piece is not copied; any other takes up no more than it
/// has, or than the limit while its end is not known.
pub(crate) async fn read(
    body: &mut Incoming,
    limit: usize,
    within: Duration,
) -> Result<Bytes, Unread> {
    let stated = body.size_hint().lower();
    if usize::try_from(stated).map_or(true, |stated| stated > limit) {
        return Err(Unread::TooLarge);
    }
    let stated = body.size_hint().exact();
    let stated = stated.and_then(|stated| usize::try_from(stated).ok());
    let reading = collect(body, stated, limit);
    let read = clock::timeout(within, reading).await;
    read.unwrap_or(Err(Unread::TooSlow))
}

async fn collect(
    body: &mut Incoming,
    stated: Option<usize>,
    limit: usize,
) -> Result<Bytes, Unread> {
    let mut first = Bytes::new();
    let mut more: Option<BytesMut> = None;
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let data = match frame {
            None => break,
            Some(Err(_)) => return Err(Unread::Broken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => data,
                Err(_) => continue,
            },
        };
        let so_far = more.as_ref().map_or(first.len(), BytesMut::len);
        if so_far.saturating_add(data.len()) > limit {
            return Err(Unread::TooLarge);
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
        // What grew without knowing its end may have grown far too much.
        Some(whole) if whole.capacity() - whole.len() > MAX_SPARE => Bytes::copy_from_slice(&whole),
        Some(whole) => whole.freeze(),
    })
}
