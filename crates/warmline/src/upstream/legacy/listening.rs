//! The standing stream of a legacy session: what a server says and asks outside any call's stream.
//!
//! Some servers send a question on the session's GET stream even if it belongs to a call. So a
//! session that declared it can answer questions holds that stream while its calls run, and for a
//! short rest after the last. A session that declared nothing never opens it, and a server that
//! refuses it is not asked twice.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::exchange::Trouble;
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::sse::SseParser;

use super::{LegacyHttp, STREAM};
use crate::clock;
use crate::sync::Mutex;
use crate::upstream::calls::{Call, Calls, Routed};
use crate::upstream::http::{Arrival, BodyKind, Lost};
use crate::upstream::listener;
use crate::upstream::stream::{Pause, Watch, next_of};

/// A server that does not begin its stream within this time has none for us.
const OPEN_WITHIN: Duration = Duration::from_secs(2);

/// The standing stream of one session, and who waits for what comes on it.
#[derive(Debug, Default)]
pub(super) struct Listening {
    calls: Arc<Calls>,
    stream: Mutex<Stream>,
}

#[derive(Debug, Default)]
enum Stream {
    #[default]
    Closed,
    Open(JoinHandle<()>),
    /// The server has none.
    Refused,
}

impl Listening {
    /// Ends the stream.
    pub(super) fn end(&self) {
        if let Stream::Open(reader) = std::mem::take(&mut *self.stream.lock()) {
            reader.abort();
        }
    }

    /// Takes a stream in, unless a call beside this one was faster.
    fn settle(&self, stream: Stream) {
        let mut current = self.stream.lock();
        match (&*current, stream) {
            (Stream::Open(reader), Stream::Open(second)) if !reader.is_finished() => second.abort(),
            (Stream::Open(reader), Stream::Closed | Stream::Refused) if !reader.is_finished() => {},
            (_, stream) => *current = stream,
        }
    }

    fn is_wanted(&self) -> bool {
        match &*self.stream.lock() {
            Stream::Closed => true,
            Stream::Open(reader) => reader.is_finished(),
            Stream::Refused => false,
        }
    }
}

impl LegacyHttp {
    /// Lets a call hear what comes on the standing stream, and sees that there is one.
    pub(super) async fn listen(self: &Arc<Self>, id: u64) -> Option<Call> {
        if !self.may_be_asked {
            return None;
        }
        let call = self.listening.calls.register(id).ok()?;
        if self.listening.is_wanted() {
            let stream = self.open_aside().await;
            self.listening.settle(stream);
        }
        Some(call)
    }

    async fn open_aside(self: &Arc<Self>) -> Stream {
        let headers = || {
            let mut headers = self.base.clone();
            headers.insert(header::ACCEPT, STREAM);
            headers.remove(header::CONTENT_TYPE);
            headers
        };
        let by = clock::now() + OPEN_WITHIN;
        match self
            .endpoint
            .send(Method::GET, headers, Bytes::new(), by)
            .await
        {
            Ok(stream) if stream.status == StatusCode::OK && stream.kind() == BodyKind::Stream => {
                let session = Arc::downgrade(self);
                let calls = Arc::clone(&self.listening.calls);
                let rest = self.times.connection_idle;
                let parser = SseParser::new(self.sizes.event);
                let reading = read(session, calls, stream, parser, rest);
                Stream::Open(clock::spawn("read a standing stream", reading))
            },
            // Another connection holds the one stream there is (409): nothing of ours is lost.
            Ok(other) if other.status == StatusCode::CONFLICT => Stream::Closed,
            Ok(_) | Err(_) => Stream::Refused,
        }
    }

    /// Waits for the head of a response while questions may come on the standing stream.
    pub(super) async fn while_listening(
        &self,
        sent: impl Future<Output = Result<Arrival, Lost>>,
        watch: &mut Watch<'_>,
    ) -> Result<Arrival, Lost> {
        let mut sent = pin!(sent);
        loop {
            let by = watch.by();
            let message = tokio::select! {
                biased;
                done = &mut sent => return done,
                (id, kind, answer) = watch.open.answered() => {
                    watch.limits.sign_of_life();
                    self.answer(&id, listener::spoken(kind, answer)).await;
                    continue;
                },
                message = next_of(&mut watch.standing) => message,
                () = clock::sleep_until(by) => return Err(late(&self.endpoint.server)),
            };
            if let Some(Pause::Ask(asking)) = watch.heed_message(message) {
                self.hear_question(watch, asking).await;
            }
        }
    }
}

/// The request left, or may have: how far it got is not known from here.
fn late(server: &str) -> Lost {
    Lost {
        delivery: Delivery::Unknown,
        trouble: Trouble::new(
            Reason::Timeout,
            format!("`{server}` did not answer in time"),
        ),
    }
}

/// Reads the stream until it ends, or until nobody has waited for anything for a while.
async fn read(
    session: Weak<LegacyHttp>,
    calls: Arc<Calls>,
    mut stream: Arrival,
    mut parser: SseParser,
    rest: Duration,
) {
    loop {
        while let Some(Ok(event)) = parser.next() {
            let Ok(message) = Message::split(event.data) else {
                continue;
            };
            let Some(session) = session.upgrade() else {
                return;
            };
            match calls.route(message) {
                Routed::Done => {},
                Routed::Answer(id, spoken) => session.answer(&id, spoken).await,
                Routed::TooManyStrays => return session.standing.retire(Reason::BadReply),
            }
        }
        tokio::select! {
            biased;
            piece = stream.piece() => match piece {
                Some(Ok(bytes)) => parser.push(&bytes),
                Some(Err(_)) | None => return,
            },
            () = clock::sleep(rest) => if calls.is_empty() { return },
        }
    }
}
