//! What a server tells and asks, in the middle of a call or outside any, on its way to the client.
//!
//! News that nobody takes away in time is dropped, because it must not hold up the call; answers
//! and questions are not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rmcp::model::{NumberOrString, RequestId};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use warmline::core::exchange::{Answer, News, Question};
use warmline::upstream::{Asked, Listener, Notices, Whose};

use crate::wire::{self, Incoming};

/// The questions that wait for an answer of the client.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<Answer>>>,
    last: AtomicI64,
}

impl Questions {
    /// The client answered a question; one that nobody waits for any more is let go.
    pub(crate) fn answered(&self, id: &RequestId, answer: Answer) {
        if let Some(waiting) = self.remove(id) {
            waiting.send(answer).ok();
        }
    }

    fn open(&self) -> (RequestId, oneshot::Receiver<Answer>) {
        let id = NumberOrString::Number(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let (tell, told) = oneshot::channel();
        self.locked().insert(id.clone(), tell);
        (id, told)
    }

    fn remove(&self, id: &RequestId) -> Option<oneshot::Sender<Answer>> {
        self.locked().remove(id)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, HashMap<RequestId, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The way to the client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) tell: mpsc::Sender<Incoming>,
    pub(crate) questions: Arc<Questions>,
}

impl Client {
    fn told(&self, message: Option<Incoming>) {
        if let Some(message) = message
            && self.tell.try_send(message).is_err()
        {
            tracing::debug!("news dropped, the client did not take it");
        }
    }

    /// What it hears between its calls and in the middle of them it hears once.
    fn whose(&self) -> Whose {
        Whose::of(&*self.questions)
    }

    async fn asked(&self, question: Question) -> Answer {
        let (id, told) = self.questions.open();
        let pending = Pending { client: self, id };
        let Question { method, params, .. } = question;
        let Some(message) = wire::question(&pending.id, &method, &params) else {
            return Answer::Declined;
        };
        if self.tell.send(message).await.is_err() {
            return Answer::Declined;
        }
        told.await.unwrap_or(Answer::Declined)
    }
}

/// The ear for what belongs to no call.
#[derive(Debug)]
pub(crate) struct Between(pub(crate) Client);

impl Notices for Between {
    fn notice(&self, method: &str, params: &[u8]) {
        self.0.told(wire::notification(method, params));
    }

    fn whose(&self) -> Option<Whose> {
        Some(self.0.whose())
    }

    fn question(&self, question: Question) -> Option<Asked<'static>> {
        let client = self.0.clone();
        Some(Box::pin(async move { client.asked(question).await }))
    }
}

/// The ear of one call.
#[derive(Debug)]
pub(crate) struct Hearing {
    pub(crate) client: Client,
    /// The progress token of the client's request, as raw JSON.
    pub(crate) token: Option<Bytes>,
}

impl Listener for Hearing {
    fn news(&self, news: News) {
        let message = match news {
            News::Progress(params) => self.progress(&params),
            News::Log(params) => wire::notification("notifications/message", &params),
            News::Other(method, params) => wire::notification(&method, &params),
        };
        self.client.told(message);
    }

    fn question(&self, question: Question) -> Asked<'_> {
        Box::pin(self.client.asked(question))
    }

    fn whose(&self) -> Option<Whose> {
        Some(self.client.whose())
    }
}

impl Hearing {
    /// Progress under the client's own token. Who gave none wants none.
    fn progress(&self, params: &[u8]) -> Option<Incoming> {
        let token: Value = serde_json::from_slice(self.token.as_ref()?).ok()?;
        let mut params: Value = serde_json::from_slice(params).ok()?;
        *params.get_mut("progressToken")? = token;
        wire::notification("notifications/progress", params.to_string().as_bytes())
    }
}

/// A question that was put to the client. If nobody wants to know any more before it is answered,
/// the client is told so.
struct Pending<'a> {
    client: &'a Client,
    id: RequestId,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.client.questions.remove(&self.id).is_none() {
            return;
        }
        let params = json!({ "requestId": self.id }).to_string();
        if let Some(withdrawn) = wire::notification("notifications/cancelled", params.as_bytes()) {
            self.client.tell.try_send(withdrawn).ok();
        }
    }
}
