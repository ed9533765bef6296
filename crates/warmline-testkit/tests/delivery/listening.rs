//! A listener that writes down what it hears and answers as it was told.

use std::sync::Mutex;

use bytes::Bytes;
use serde_json::{Value, json};
use warmline::core::exchange::{Answer, News, Question, QuestionKind};
use warmline::upstream::{Asked, Listener};

/// Hears everything; answers what it has an answer for.
#[derive(Debug, Default)]
pub(crate) struct Ear {
    answers: Answers,
    news: Mutex<Vec<(&'static str, Value)>>,
    questions: Mutex<Vec<(QuestionKind, Value)>>,
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
    pub(crate) fn questions(&self) -> Vec<(QuestionKind, Value)> {
        self.questions.lock().unwrap().clone()
    }
}

/// The answer that fits a question.
pub(crate) fn fitting(kind: QuestionKind, params: &Value) -> Value {
    match kind {
        QuestionKind::Elicitation if params["mode"] == "url" => json!({"action": "accept"}),
        QuestionKind::Elicitation => json!({"action": "accept", "content": {"name": "Ada \"é\""}}),
        QuestionKind::Sampling => json!({
            "role": "assistant", "model": "none", "stopReason": "endTurn",
            "content": {"type": "text", "text": "well"},
        }),
        QuestionKind::Roots => json!({"roots": [{"uri": "file:///here", "name": "here"}]}),
        QuestionKind::Other => json!({}),
    }
}

impl Listener for Ear {
    fn news(&self, news: News) {
        let (kind, params) = match news {
            News::Progress(params) => ("progress", params),
            News::Log(params) => ("log", params),
            News::Other(_, params) => ("other", params),
        };
        let params = serde_json::from_slice(&params).unwrap();
        self.news.lock().unwrap().push((kind, params));
    }

    fn question(&self, question: Question) -> Asked<'_> {
        let params: Value = serde_json::from_slice(&question.params).unwrap();
        let mut asked = self.questions.lock().unwrap();
        asked.push((question.kind, params.clone()));
        let is_first = asked.len() == 1;
        drop(asked);
        let answer = match self.answers {
            Answers::Declined => Answer::Declined,
            Answers::Never => return Box::pin(std::future::pending()),
            Answers::NeverTheFirst if is_first => return Box::pin(std::future::pending()),
            // It knows nothing of it.
            Answers::NeverTheFirst | Answers::Fitting if question.kind == QuestionKind::Other => {
                Answer::Declined
            },
            Answers::NeverTheFirst | Answers::Fitting => {
                Answer::Result(Bytes::from(fitting(question.kind, &params).to_string()))
            },
        };
        Box::pin(std::future::ready(answer))
    }
}
