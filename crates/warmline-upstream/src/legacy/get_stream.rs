//! The GET stream of a legacy session: what the server sends outside the streams of calls.
//!
//! Some servers send a server request there even if it belongs to a call. So a session that declared
//! it can answer them holds the stream while its calls run, and for a short while after the last. A
//! session that declared nothing opens it only for subscribers, and a server that refuses it is not
//! asked twice.

mod reader;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use warmline_core::exchange::Diagnostic;

use self::reader::run_get_stream;
use crate::legacy::session::LegacyHttpSession;
use crate::legacy::stream_resume::add_jitter;
use crate::listener::{ExtraHeaders, IncomingRequest, Listener, ReplyPayload, ReplySink};
use crate::pending::{PendingKind, PendingRequest, PendingRequests, StreamLayout};
use crate::unsolicited::UnsolicitedDispatcher;
use warmline_platform::clock;
use warmline_platform::lock::Mutex;

const REOPEN_DELAY: Duration = Duration::from_secs(1);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(60);

/// How long, in milliseconds, a call that may need the stream waits for its head: a server request
/// on a stream that is not there is lost, and the call waits for ever. A server that sends no head
/// before its first event costs the first call this much, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GetStreamWait(u16);

impl GetStreamWait {
    pub(super) const SHORTEST: Self = Self(250);
    const LONGEST: Self = Self(5_000);

    /// A server that is slow in its handshake is slow here, too.
    pub(crate) fn for_handshake_duration(handshake: Duration) -> Self {
        let handshake = u16::try_from(handshake.as_millis()).unwrap_or(u16::MAX);
        let wait = handshake.saturating_mul(2).saturating_add(Self::SHORTEST.0);
        Self(wait.min(Self::LONGEST.0))
    }

    fn duration(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

#[derive(Debug)]
pub(super) struct GetStream {
    pending: Arc<PendingRequests>,
    state: Mutex<GetStreamState>,
    /// The head of the stream has come, and its end has not.
    open: AtomicBool,
    /// How many subscribers hold it between calls, too.
    holders: AtomicUsize,
    /// The id of the last event, to resume after it.
    last_event_id: Mutex<Option<HeaderValue>>,
    /// Something may have been sent that nobody can receive any more.
    has_gap: AtomicBool,
    /// Notified when a stream is open, and when a reader has ended, however it did.
    state_changed: Notify,
    /// Notified when a call or subscriber came or left.
    demand_changed: Notify,
}

#[derive(Debug, Default)]
enum GetStreamState {
    #[default]
    Closed,
    Running(JoinHandle<()>),
    Refused(StreamHoldOutcome),
}

/// Why a session's stream is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamHoldOutcome {
    /// This session has no GET stream.
    Unsupported,
    /// The server did not find it: this session has none, or is gone.
    NotFound,
    /// The server wants another credential.
    Unauthorized,
    /// It could not be opened this time. A call does not wait for it again.
    Failed,
    SessionEnded,
}

struct StreamHold<'a>(&'a GetStream);

impl<'a> StreamHold<'a> {
    fn new(stream: &'a GetStream) -> Self {
        stream.holders.fetch_add(1, Ordering::Relaxed);
        stream.demand_changed.notify_one();
        Self(stream)
    }
}

impl Drop for StreamHold<'_> {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Ordering::Relaxed);
        self.0.demand_changed.notify_one();
    }
}

impl GetStream {
    fn new(unsolicited: UnsolicitedDispatcher) -> Self {
        let pending = PendingRequests::new(StreamLayout::PerCallStreams, unsolicited);
        Self {
            pending: Arc::new(pending),
            state: Mutex::default(),
            open: AtomicBool::new(false),
            holders: AtomicUsize::new(0),
            last_event_id: Mutex::default(),
            has_gap: AtomicBool::new(false),
            state_changed: Notify::new(),
            demand_changed: Notify::new(),
        }
    }

    /// Ends the stream, and there is none again.
    pub(super) fn close(&self) {
        let ended = std::mem::replace(
            &mut *self.state.lock(),
            GetStreamState::Refused(StreamHoldOutcome::SessionEnded),
        );
        if let GetStreamState::Running(reader) = ended {
            reader.abort();
        }
        self.pending.cancel_server_requests();
        self.state_changed.notify_waiters();
    }

    /// Waits for the head of a stream that was asked for, for a short time: else the server is asked
    /// for the stream of a session after its end.
    pub(super) async fn wait_until_settled(&self) {
        let changed = self.state_changed.notified();
        let is_opening =
            matches!(&*self.state.lock(), GetStreamState::Running(_)) && !self.is_open();
        if is_opening {
            let wait = GetStreamWait::SHORTEST.duration();
            clock::timeout(wait, changed).await.ok();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }
}

impl LegacyHttpSession {
    fn get_or_create_stream(&self) -> &Arc<GetStream> {
        let create = || Arc::new(GetStream::new(self.unsolicited.clone()));
        self.get_stream.get_or_init(create)
    }

    pub(super) async fn register_on_get_stream(
        self: &Arc<Self>,
        id: u64,
        listener: &dyn Listener,
        wait: GetStreamWait,
    ) -> PendingRequest {
        let stream = self.get_or_create_stream();
        let pending = &stream.pending;
        let call = pending.register(id, PendingKind::Call, listener.caller());
        stream.demand_changed.notify_one();
        if let Some(opened) = self.start_get_stream(false) {
            // After the wait the stream goes on opening while the call runs.
            clock::timeout(wait.duration(), opened.notified())
                .await
                .ok();
        }
        call
    }

    /// Starts the reader unless one runs or the server has no stream. The result is notified once
    /// the head has come, or will not.
    fn start_get_stream(self: &Arc<Self>, is_for_subscriber: bool) -> Option<Arc<Notify>> {
        let stream = self.get_stream.get()?;
        let mut state = stream.state.lock();
        let may_open = match &*state {
            GetStreamState::Closed => true,
            GetStreamState::Running(reader) => reader.is_finished(),
            GetStreamState::Refused(
                StreamHoldOutcome::Failed | StreamHoldOutcome::Unauthorized,
            ) => is_for_subscriber,
            GetStreamState::Refused(_) => false,
        };
        if !may_open {
            return None;
        }
        let opened = Arc::new(Notify::new());
        let reading = run_get_stream(
            Arc::clone(stream),
            Arc::downgrade(self),
            Arc::clone(&opened),
            is_for_subscriber,
        );
        *state = GetStreamState::Running(clock::spawn("read a GET stream", reading));
        Some(opened)
    }

    /// Holds the GET stream, and opens it again where it breaks, as long as this session has one and
    /// it can be opened. Calls `on_gap` when it is open again and something was missed.
    ///
    /// # Cancel safety
    /// Dropping it releases the stream.
    pub(crate) async fn hold_get_stream(self: &Arc<Self>, on_gap: impl Fn()) -> StreamHoldOutcome {
        if self.poster.headers.session_id().is_none() {
            return StreamHoldOutcome::Unsupported;
        }
        let stream = self.get_or_create_stream();
        let _hold = StreamHold::new(stream);
        let mut pause = REOPEN_DELAY / 2;
        loop {
            let started = clock::now();
            self.start_get_stream(true);
            let mut was_open = false;
            let ended = self.wait_for_stream_end(stream, &on_gap, &mut was_open);
            if let Some(outcome) = ended.await {
                return outcome;
            }
            // Another session may have one meanwhile.
            if !was_open {
                return StreamHoldOutcome::Failed;
            }
            // A stream that lasted is opened again soon, one that did not less often.
            pause = if started.elapsed() > pause {
                REOPEN_DELAY
            } else {
                (pause * 2).min(MAX_REOPEN_DELAY)
            };
            clock::sleep(add_jitter(pause)).await;
        }
    }

    /// Waits for the end of the stream; returns the outcome if none follows.
    async fn wait_for_stream_end(
        &self,
        stream: &GetStream,
        on_gap: &impl Fn(),
        was_open: &mut bool,
    ) -> Option<StreamHoldOutcome> {
        loop {
            let mut changed = pin!(stream.state_changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.retirement.get().is_some() {
                return Some(StreamHoldOutcome::SessionEnded);
            }
            *was_open |= stream.is_open();
            if stream.is_open() && stream.has_gap.swap(false, Ordering::Relaxed) {
                on_gap();
            }
            match &*stream.state.lock() {
                GetStreamState::Running(_) => {},
                GetStreamState::Closed => return None,
                GetStreamState::Refused(StreamHoldOutcome::Failed) => return None,
                GetStreamState::Refused(outcome) => return Some(*outcome),
            }
            changed.await;
        }
    }
}

impl ReplySink for Arc<LegacyHttpSession> {
    fn send_reply(
        &self,
        id: &[u8],
        payload: ReplyPayload,
        own: &ExtraHeaders,
    ) -> oneshot::Receiver<Diagnostic> {
        self.poster.send_reply(id, payload, own)
    }

    fn ask_unsolicited(&self, request: IncomingRequest) {
        let pending = &self.get_or_create_stream().pending;
        pending.ask_unsolicited(request, reply_callback(self));
    }
}

fn reply_callback(
    session: &Arc<LegacyHttpSession>,
) -> impl Fn(&[u8], ReplyPayload) + Clone + Send + 'static {
    let session = Arc::downgrade(session);
    move |id, payload| {
        if let Some(session) = session.upgrade() {
            drop(session.poster.send_reply(id, payload, &[]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_server_has_more_time_for_its_stream() {
        for (handshake, wait) in [(0, 250), (5, 260), (700, 1_650), (60_000, 5_000)] {
            let handshake = Duration::from_millis(handshake);
            let found = GetStreamWait::for_handshake_duration(handshake);
            assert_eq!(found.duration(), Duration::from_millis(wait));
        }
        let never = GetStreamWait::for_handshake_duration(Duration::MAX);
        assert_eq!(never, GetStreamWait::LONGEST);
    }
}
