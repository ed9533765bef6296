//! Notes whether anything of a call reached its caller before the call ended. An update of a
//! resource reaches who asked for it, also where its server tells it in the middle of a call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use warmline_core::delivery::Heard;
use warmline_core::exchange::{Answer, News, Question};
use warmline_core::key::{Digest, Identity};

use super::Job;
use crate::connect::{Setup, updated};
use crate::upstream::{Asked, Listener, Roomy, Whose};

/// Notes whether anything reached the caller's listener.
pub(super) struct Hearing<'a> {
    listener: Option<&'a dyn Listener>,
    setup: &'a Setup,
    who: Identity,
    /// Whether the call itself asks to hear what changes.
    listens: bool,
    something: AtomicBool,
}

impl<'a> Hearing<'a> {
    pub(super) fn of(job: &'a Job, who: Identity, setup: &'a Setup) -> Self {
        Self {
            listener: job.listener.as_deref(),
            setup,
            who,
            listens: job.method == "subscriptions/listen",
            something: AtomicBool::new(false),
        }
    }

    pub(super) fn heard(&self) -> Heard {
        if self.something.load(Ordering::Relaxed) {
            Heard::Something
        } else {
            Heard::Nothing
        }
    }
}

impl Listener for Hearing<'_> {
    fn news(&self, news: News) {
        let Some(listener) = self.listener else {
            return;
        };
        if let News::Other(method, params) = &news
            && let Some(uri) = updated(method, params)
            && !self.listens
            && !self.setup.is_for(listener.client(), self.who, &uri)
        {
            return;
        }
        self.something.store(true, Ordering::Relaxed);
        listener.news(news);
    }

    fn question(&self, question: Question) -> Asked<'_> {
        match self.listener {
            Some(listener) => {
                self.something.store(true, Ordering::Relaxed);
                listener.question(question)
            },
            None => Box::pin(std::future::ready(Answer::Declined)),
        }
    }

    fn is_asked(&self) -> bool {
        self.listener.is_some_and(Listener::is_asked)
    }

    fn client(&self) -> Option<Digest> {
        self.listener.and_then(Listener::client)
    }

    fn whose(&self) -> Option<Whose> {
        self.listener.and_then(Listener::whose)
    }

    fn room(&self, bytes: usize) -> Option<Roomy<'_>> {
        self.listener.and_then(|listener| listener.room(bytes))
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.listener.and_then(Listener::behind)
    }

    fn missed(&self, notices: u64) {
        if let Some(listener) = self.listener {
            listener.missed(notices);
        }
    }

    // How an answer comes says nothing of what is in it.
    fn stream_begun(&self) {
        if let Some(listener) = self.listener {
            listener.stream_begun();
        }
    }

    fn answered_with(&self, status: u16) {
        if let Some(listener) = self.listener {
            listener.answered_with(status);
        }
    }

    fn parting_words(&self) -> Option<Bytes> {
        self.listener.and_then(Listener::parting_words)
    }

    fn stream_paused(&self, come_back_after: Duration) {
        if let Some(listener) = self.listener {
            listener.stream_paused(come_back_after);
        }
    }
}
