//! The reading of a standing stream: what comes on it goes to whom it is for, or waits for them.
//!
//! Begun by: [`listening`](super), once the stream is open.  Told by: whoever comes to listen, or
//! leaves.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use warmline_core::code::Reason;
use warmline_core::protocol::batch;
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::sse::SseParser;

use super::LegacyHttp;
use crate::clock;
use crate::upstream::calls::{Calls, Routed};
use crate::upstream::fair::Share;
use crate::upstream::http::Arrival;
use crate::upstream::notices::Speaker;
use crate::upstream::pace::ASK_AFTER;

/// The reading of a stream.
pub(super) struct Reading {
    pub(super) session: Weak<LegacyHttp>,
    pub(super) calls: Arc<Calls>,
    pub(super) wanted: Arc<Notify>,
    pub(super) parser: SseParser,
    /// Whether somebody attended since it was opened.
    pub(super) was_held: bool,
    /// Bytes that were told since those who hear it were last known to keep up.
    pub(super) told: usize,
}

/// Who wants what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ears {
    /// Somebody does, at this moment.
    There,
    /// Nobody, since the last call ended: what comes is refused.
    Gone,
    /// Whoever attended left and may come back: what comes waits for them.
    Away,
}

impl Reading {
    /// Reads the stream until it ends, or until nobody has waited for anything for a while.
    pub(super) async fn read(&mut self, mut stream: Arrival, rest: Duration) {
        let mut rested_by = clock::after(rest);
        let most = self.parser.max_event_bytes();
        let mut share = Share::default();
        loop {
            let ears = loop {
                let ears = self.ears();
                if ears == Ears::Away {
                    break ears;
                }
                self.keep_pace(most).await;
                match self
                    .parser
                    .next()
                    .map(|event| event.map(|event| event.data))
                {
                    Some(Ok(data)) => {
                        let bytes = data.len();
                        self.told += bytes;
                        if self.route(data).is_none() {
                            return;
                        }
                        share.took(bytes).await;
                    },
                    Some(Err(_)) | None => break ears,
                }
            };
            if ears == Ears::There {
                rested_by = clock::after(rest);
            } else if clock::now() >= rested_by {
                return;
            }
            tokio::select! {
                biased;
                () = self.wanted.notified() => {},
                piece = stream.piece(), if ears != Ears::Away => match piece {
                    Some(Ok(bytes)) => {
                        self.parser.push(&bytes);
                        share.took(bytes.len()).await;
                    },
                    Some(Err(_)) | None => return,
                },
                () = clock::sleep_until(rested_by) => {},
            }
        }
    }

    /// Waits for those who hear what came, where they do not take it.
    async fn keep_pace(&mut self, most_untaken: usize) {
        let session = &self.session;
        let is_alone = |only| {
            let session = session.upgrade();
            session.is_some_and(|session| session.hearing.is_alone(only))
        };
        self.calls.room(most_untaken, is_alone).await;
        if self.told >= ASK_AFTER {
            self.told = 0;
            let session = self.session.upgrade();
            if let Some(hearing) = session.map(|session| session.hearing.clone()) {
                hearing.keep_pace().await;
            }
        }
    }

    fn ears(&mut self) -> Ears {
        let session = self.session.upgrade();
        let listening = session.as_ref().and_then(|session| session.listening.get());
        let is_held = listening.is_some_and(|listening| listening.held.load(Ordering::Relaxed) > 0);
        self.was_held |= is_held;
        match (is_held || !self.calls.is_empty(), self.was_held) {
            (true, _) => Ears::There,
            (false, true) => Ears::Away,
            (false, false) => Ears::Gone,
        }
    }

    /// Leads each message of a text to whom it is for; none where nothing more is to be read.
    fn route(&self, data: Bytes) -> Option<()> {
        let session = self.session.upgrade()?;
        let mut texts = batch::parts(data, session.voice.head.version());
        texts.try_for_each(|text| self.route_one(&session, text))
    }

    fn route_one(&self, session: &Arc<LegacyHttp>, text: Bytes) -> Option<()> {
        let Ok(message) = Message::split(text) else {
            return Some(());
        };
        match self.calls.route(message) {
            Routed::Done => {},
            Routed::Unheard(notice) => session.hearing.tell(&notice),
            Routed::ForAll(notice) => {
                let told = session.hearing.tell_all(&notice, Speaker::of(&**session));
                self.calls.tell_callers(&notice, &told);
            },
            Routed::Answer(id, spoken) => session.voice.answer(&id, spoken, &[]),
            Routed::Stray(stray) => session.ask_aside(stray),
            Routed::OneCallers(whose, stray, question) => {
                session.ask_caller(whose, stray, question);
            },
            Routed::Nobodys(id, kind) => {
                let spoken = session.hearing.refuse(kind);
                session.voice.answer(&id, spoken, &[]);
            },
            Routed::TakenBack(id) => session.take_back(&id),
            Routed::TooManyStrays => {
                session.standing.retire(Reason::BadReply);
                return None;
            },
        }
        Some(())
    }
}
