//! How a caller hears the news of one call and answers its questions: by functions, or as a
//! stream of events that ends with the result.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use warmline_core::exchange::{Answer, News, Question};

use super::{Call, Outcome};
use crate::error::Result;
use crate::upstream::{Asked, Listener};

/// So many events wait for a caller who does not look; later news are dropped.
const WAITING: usize = 1_024;

/// What functions of a caller hear.
#[derive(Clone, Default)]
pub(super) struct Functions {
    news: Option<Arc<dyn Fn(News) + Send + Sync>>,
    question: Option<Arc<Answering>>,
}

type Answering = dyn Fn(Question) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync;

impl Functions {
    pub(super) fn news(&mut self, hear: impl Fn(News) + Send + Sync + 'static) {
        self.news = Some(Arc::new(hear));
    }

    pub(super) fn question<F>(&mut self, answer: impl Fn(Question) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.question = Some(Arc::new(move |question| Box::pin(answer(question))));
    }
}

impl Listener for Functions {
    fn news(&self, news: News) {
        if let Some(hear) = &self.news {
            hear(news);
        }
    }

    fn question(&self, question: Question) -> Asked<'_> {
        match &self.question {
            Some(answer) => answer(question),
            None => ().question(question),
        }
    }
}

/// The events of one call, in order; the last is its result.
///
/// Dropping it cancels the call.
pub struct CallEvents<T> {
    call: Option<Pin<Box<dyn Future<Output = Result<T>> + Send>>>,
    heard: mpsc::Receiver<CallEvent<T>>,
    /// The result, until everything that came before it was handed out.
    result: Option<Result<T>>,
}

/// One event of a call.
#[derive(Debug)]
pub enum CallEvent<T> {
    /// The server told something: progress, a log line, another notification.
    News(News),
    /// The server asks something; the call goes on when it is answered.
    Question(Question, Responder),
    /// The call is over.
    Done(Result<T>),
}

/// Answers one question. Dropping it declines.
#[derive(Debug)]
pub struct Responder(oneshot::Sender<Answer>);

impl Responder {
    /// Answers. What comes too late is of no use to anybody.
    pub fn answer(self, answer: Answer) {
        drop(self.0.send(answer));
    }
}

impl<T> std::fmt::Debug for CallEvents<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallEvents").finish_non_exhaustive()
    }
}

struct Told<T>(mpsc::Sender<CallEvent<T>>);

impl<T: Send + 'static> Listener for Told<T> {
    fn news(&self, news: News) {
        // A caller who does not look loses news, never the result.
        self.0.try_send(CallEvent::News(news)).ok();
    }

    fn question(&self, question: Question) -> Asked<'_> {
        let (tell, answered) = oneshot::channel();
        let event = CallEvent::Question(question, Responder(tell));
        Box::pin(async move {
            if self.0.send(event).await.is_err() {
                return Answer::Declined;
            }
            answered.await.unwrap_or(Answer::Declined)
        })
    }
}

impl<T: Outcome> Call<T> {
    /// Hears the news of this call.
    pub fn on_news(mut self, hear: impl Fn(News) + Send + Sync + 'static) -> Self {
        self.functions().news(hear);
        self
    }

    /// Answers the questions of this call.
    pub fn on_question<F>(mut self, answer: impl Fn(Question) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        self.functions().question(answer);
        self
    }

    /// Sends the call and hands out its events as they come, questions with somebody to answer
    /// them, and the result last.
    pub fn events(self) -> CallEvents<T> {
        let (tell, heard) = mpsc::channel(WAITING);
        let call = self.listened_by(Arc::new(Told(tell)));
        CallEvents {
            call: Some(call.into_future()),
            heard,
            result: None,
        }
    }
}

impl<T> CallEvents<T> {
    /// The next event; none after the result.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: the call stands still until it is asked again.
    pub async fn next(&mut self) -> Option<CallEvent<T>> {
        if let Some(call) = &mut self.call {
            tokio::select! {
                biased;
                event = self.heard.recv() => {
                    if event.is_some() {
                        return event;
                    }
                },
                result = call => self.result = Some(result),
            }
            self.call = None;
        }
        // What was told before the result comes before it.
        if let Ok(event) = self.heard.try_recv() {
            return Some(event);
        }
        self.result.take().map(CallEvent::Done)
    }
}
