//! A listener that writes down what it hears and answers as it was told.

use crate::prelude::*;

/// Hears everything; answers what it has an answer for.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    answers: Answers,
    news: Mutex<Vec<(&'static str, Value)>>,
    questions: Mutex<Vec<(ServerRequestKind, Value)>>,
}

/// How questions are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answers {
    /// As `()` does it.
    #[default]
    Declined,
    /// With an answer that fits its kind.
    Fitting,
    /// Never.
    Never,
    /// The first never, the others fitting.
    NeverTheFirst,
}

impl Ear {
    pub(crate) fn that_answers(answers: Answers) -> Self {
        Self {
            answers,
            ..Self::default()
        }
    }

    /// The `progress` of each report, in order.
    pub(crate) fn progress(&self) -> Vec<u64> {
        let news = self.news.lock().unwrap();
        let reports = news.iter().filter(|(kind, _)| *kind == "progress");
        reports
            .filter_map(|(_, params)| params["progress"].as_u64())
            .collect()
    }

    /// How much was heard.
    pub(crate) fn heard(&self) -> usize {
        self.news.lock().unwrap().len()
    }

    /// What was asked, in order.
    pub(crate) fn questions(&self) -> Vec<(ServerRequestKind, Value)> {
        self.questions.lock().unwrap().clone()
    }
}

/// The answer that fits a question.
pub(crate) fn fitting(kind: ServerRequestKind, params: &Value) -> Value {
    match kind {
        ServerRequestKind::Elicitation if params["mode"] == "url" => json!({"action": "accept"}),
        ServerRequestKind::Elicitation => {
            json!({"action": "accept", "content": {"name": "Ada \"é\""}})
        },
        ServerRequestKind::Sampling => json!({
            "role": "assistant", "model": "none", "stopReason": "endTurn",
            "content": {"type": "text", "text": "well"},
        }),
        ServerRequestKind::Roots => json!({"roots": [{"uri": "file:///here", "name": "here"}]}),
        ServerRequestKind::Other => json!({}),
    }
}

impl Listener for Ear {
    fn on_notification(&self, news: Notification) {
        let (kind, params) = match news {
            Notification::Progress(params) => ("progress", params),
            Notification::Log(params) => ("log", params),
            Notification::Other(_, params) => ("other", params),
        };
        let params = serde_json::from_slice(&params).unwrap();
        self.news.lock().unwrap().push((kind, params));
    }

    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        let params: Value = serde_json::from_slice(&question.params).unwrap();
        let mut asked = self.questions.lock().unwrap();
        asked.push((question.kind, params.clone()));
        let is_first = asked.len() == 1;
        drop(asked);
        let answer = match self.answers {
            Answers::Declined => ServerRequestReply::Declined,
            Answers::Never => return Box::pin(std::future::pending()),
            Answers::NeverTheFirst if is_first => return Box::pin(std::future::pending()),
            // It knows nothing of it.
            Answers::NeverTheFirst | Answers::Fitting
                if question.kind == ServerRequestKind::Other =>
            {
                ServerRequestReply::Declined
            },
            Answers::NeverTheFirst | Answers::Fitting => {
                ServerRequestReply::Result(Bytes::from(fitting(question.kind, &params).to_string()))
            },
        };
        Box::pin(std::future::ready(answer))
    }
}
