//! One client's conversation: its calls under way, and what is on its way to it.
//!
//! Who moves the calls: whoever waits for the next message, which the SDK does all the time. So
//!   there is no task to count, and a conversation that is dropped cancels its calls.
//! Who hears the rest: whoever attends the session, from the moment in which the client says that
//!   it is ready until the conversation ends.
//! In which order things arrive: news and questions of a call before its answer, always.
//! What goes first: the calls. News that come faster than the client takes them away hold up none.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, JsonRpcMessage, RequestId};
use tokio::sync::mpsc;
use warmline::core::era::Era;
use warmline::core::exchange::Answer;
use warmline::core::protocol::meta::LOG_LEVEL;
use warmline::core::protocol::params::Params;
use warmline::core::protocol::splice::Edit;
use warmline::upstream::Listener;

use crate::engine::{Attended, Behind, Telling};
use crate::greeting::Hello;
use crate::hearing::{Between, Client, Hearing, Questions};
use crate::lists::ListNews;
use crate::transport::NotSent;
use crate::wire::{self, Incoming, Outgoing, Spoken};

/// A conversation with one client of the SDK.
#[derive(Debug)]
pub(crate) struct Conversation<B> {
    server: B,
    calls: FuturesUnordered<Abortable<UnderWay>>,
    cancels: HashMap<RequestId, AbortHandle>,
    /// What is to be handed out before anything else.
    next: VecDeque<Incoming>,
    client: Client,
    heard: mpsc::Receiver<Incoming>,
    /// What its server says outside any call is heard as long as this is there.
    attended: Option<Box<dyn Attended>>,
    lists: ListNews,
    /// The era of the server, once it is known.
    era: Option<Era>,
    /// From which level on a modern server is asked for log lines, as raw JSON.
    log_level: Option<Bytes>,
    phase: Phase,
}

type UnderWay = Pin<Box<dyn Future<Output = Settled> + Send>>;

/// What became of a request.
#[derive(Debug)]
struct Settled {
    id: RequestId,
    message: Incoming,
    /// The era, if this told it.
    era: Option<Era>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Ended,
}

impl<B: Behind> Conversation<B> {
    pub(crate) fn with(server: B) -> Self {
        let (tell, heard) = mpsc::channel(NEWS);
        Self {
            server,
            calls: FuturesUnordered::new(),
            cancels: HashMap::new(),
            next: VecDeque::new(),
            client: Client {
                tell,
                questions: Arc::new(Questions::default()),
            },
            heard,
            attended: None,
            lists: ListNews::default(),
            era: None,
            log_level: None,
            phase: Phase::Open,
        }
    }

    /// The same for a client that hears of changed lists.
    pub(crate) fn hearing(mut self, lists: ListNews) -> Self {
        self.lists = lists;
        self
    }

    /// Takes in a message of the client, and gives what is still to be done for it.
    pub(crate) fn take(&mut self, message: Outgoing) -> Result<Option<Telling>, NotSent> {
        match &message {
            JsonRpcMessage::Request(request) => {
                let spoken = wire::spoken(&message).map_err(NotSent::malformed)?;
                self.asked(request.id.clone(), spoken);
            },
            JsonRpcMessage::Notification(_) => {
                let spoken = wire::spoken(&message).map_err(NotSent::malformed)?;
                return Ok(self.told(spoken));
            },
            JsonRpcMessage::Response(response) => {
                let result = wire::raw(&response.result).map_err(NotSent::malformed)?;
                let answer = Answer::Result(result);
                self.client.questions.answered(&response.id, answer);
            },
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    let error = wire::raw(&error.error).map_err(NotSent::malformed)?;
                    self.client.questions.answered(id, Answer::Error(error));
                }
            },
        }
        Ok(None)
    }

    /// The next message for the client; none once the conversation was ended.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: the calls stay where they are.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        loop {
            if self.phase == Phase::Ended {
                return None;
            }
            if let Some(message) = self.next.pop_front() {
                return Some(message);
            }
            tokio::select! {
                biased;
                Some(settled) = self.calls.next(), if !self.calls.is_empty() => {
                    if let Ok(settled) = settled {
                        self.settle(settled);
                    }
                },
                Some(message) = self.heard.recv() => return Some(message),
                changed = self.lists.changed(self.server.name()) => {
                    // Whoever attends hears it from the session itself.
                    if self.attended.as_ref().is_none_or(|attended| attended.is_over()) {
                        self.next.extend(changed);
                    }
                },
            }
        }
    }

    /// Cancels what is under way.
    pub(crate) fn end(&mut self) {
        self.phase = Phase::Ended;
        self.attended = None;
        self.calls.clear();
        self.cancels.clear();
    }

    fn settle(&mut self, settled: Settled) {
        self.cancels.remove(&settled.id);
        self.era = settled.era.or(self.era);
        // What the call told before it ended comes first. What comes from now on may never end.
        for _ in 0..self.heard.len() {
            self.next.extend(self.heard.try_recv().ok());
        }
        self.next.push_back(settled.message);
    }

    fn asked(&mut self, id: RequestId, spoken: Spoken) {
        match (spoken.method.as_str(), self.era) {
            ("initialize", _) => self.greet(id, &spoken.params),
            ("server/discover", _) => {
                let what = "this transport begins with `initialize`";
                let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, what, None);
                self.next.push_back(wire::failure(&id, error));
            },
            ("ping", Some(Era::Modern)) => self.next.push_back(wire::result(&id, b"{}")),
            ("logging/setLevel", Some(Era::Modern)) => {
                let level = spoken.params.member("level");
                self.log_level = level.map(Bytes::copy_from_slice);
                self.next.push_back(wire::result(&id, b"{}"));
            },
            _ => self.call(id, spoken),
        }
    }

    fn greet(&mut self, id: RequestId, params: &Params) {
        let hello = match Hello::read(params) {
            Ok(hello) => hello,
            Err(error) => {
                let error = ErrorData::invalid_params(error.to_string(), None);
                return self.next.push_back(wire::failure(&id, error));
            },
        };
        self.server = self.server.declaring(hello.declared());
        let name = self.server.name().to_owned();
        let facts = self.server.facts();
        self.begin(id.clone(), async move {
            let (message, era) = match facts.await {
                Ok(facts) => (hello.answer(&id, &name, &facts), Some(facts.era)),
                Err(error) => (wire::failure(&id, error), None),
            };
            Settled { id, message, era }
        });
    }

    fn call(&mut self, id: RequestId, spoken: Spoken) {
        let token = spoken.params.meta_member("progressToken");
        let listener: Arc<dyn Listener> = Arc::new(Hearing {
            client: self.client.clone(),
            token: token.map(Bytes::copy_from_slice),
        });
        let params = self.with_log_level(spoken.params);
        let call = self.server.request(spoken.method, params, listener);
        self.begin(id.clone(), async move {
            let message = match call.await {
                Ok(result) => wire::result(&id, &result),
                Err(error) => wire::failure(&id, error),
            };
            Settled {
                id,
                message,
                era: None,
            }
        });
    }

    /// A modern server is told the level with every request.
    fn with_log_level(&self, params: Params) -> Params {
        let Some(level) = &self.log_level else {
            return params;
        };
        let mut raw = Vec::with_capacity(params.raw().len() + 64);
        params.write_with(&mut raw, &[], &[Edit::Set(LOG_LEVEL, level)]);
        Params::parse(raw.into()).unwrap_or(params)
    }

    fn begin(&mut self, id: RequestId, call: impl Future<Output = Settled> + Send + 'static) {
        let (cancel, registration) = AbortHandle::new_pair();
        let call: UnderWay = Box::pin(call);
        self.calls.push(Abortable::new(call, registration));
        self.cancels.insert(id, cancel);
    }

    /// The client told something: what is not for us is for its server.
    fn told(&mut self, spoken: Spoken) -> Option<Telling> {
        match spoken.method.as_str() {
            // We greeted the server ourselves. From now on the client may be told things.
            "notifications/initialized" => {
                let ear = Arc::new(Between(self.client.clone()));
                self.attended = self.server.attend(ear);
                None
            },
            "notifications/cancelled" => {
                let id = spoken.params.member("requestId");
                let id: Option<RequestId> = id.and_then(|raw| serde_json::from_slice(raw).ok());
                if let Some(cancel) = id.and_then(|id| self.cancels.remove(&id)) {
                    cancel.abort();
                }
                None
            },
            lacking if self.era == Some(Era::Modern) && LEGACY_ALONE.contains(&lacking) => {
                tracing::debug!(
                    method = lacking,
                    "the server's era has no such notification"
                );
                None
            },
            _ => Some(self.server.notify(spoken.method, spoken.params)),
        }
    }
}

/// News that wait for the client; more are dropped.
const NEWS: usize = 1024;

/// Notifications of a client that the modern era does not have.
const LEGACY_ALONE: [&str; 2] = ["notifications/roots/list_changed", "notifications/progress"];

#[cfg(test)]
mod tests;
