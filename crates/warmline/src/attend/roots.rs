//! The roots of several clients of one session, where they agree.
//!
//! Asked by: [`attend`](super), when a server wants to know the roots and no call says whose.  Roots
//! are the one thing that may be answered without knowing whose question it is: all who listen are
//! asked, and what all of them say is true whomever the server meant.

use std::sync::Arc;

use futures_util::future;
use serde_json::Value;
use warmline_core::exchange::{Answer, Question, QuestionKind};

use super::{Audience, Place, ask};
use crate::entry::Entry;
use crate::upstream::Asked;

/// More than these are not asked for one answer.
const MAX_PLACES: usize = 16;

/// Asks all of them. None where one of them cannot be asked: nobody knows what that one would say.
pub(super) fn of_all(
    entry: &Arc<Entry>,
    audience: &Arc<Audience>,
    places: &[Arc<Place>],
    question: &Question,
) -> Option<Asked<'static>> {
    if question.kind != QuestionKind::Roots || places.len() > MAX_PLACES {
        return None;
    }
    let each = places.iter();
    let asked = each.map(|place| ask(audience, place, question.clone()));
    let asked: Vec<Asked<'static>> = asked.collect::<Option<_>>()?;
    let entry = Arc::clone(entry);
    Some(Box::pin(async move {
        agreed(future::join_all(asked).await).unwrap_or_else(|| {
            entry.question_refused(QuestionKind::Roots);
            Answer::Declined
        })
    }))
}

/// What all of them say, whatever the order of members and blanks between them.
fn agreed(answers: Vec<Answer>) -> Option<Answer> {
    let read = |answer: &Answer| match answer {
        Answer::Result(raw) => serde_json::from_slice::<Value>(raw).ok(),
        Answer::Error(_) | Answer::Declined => None,
    };
    let all: Vec<Value> = answers.iter().map(read).collect::<Option<_>>()?;
    let is_one = all.windows(2).all(|pair| pair.first() == pair.last());
    answers.into_iter().next().filter(|_| is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_agreed_on_where_all_say_the_same() {
        let said = |raw: &'static str| Answer::Result(raw.into());
        let one = r#"{"roots":[{"uri":"file:///a","name":"a"}]}"#;
        let same = r#"{ "roots": [{"name":"a", "uri":"file:///a"}] }"#;
        let other = r#"{"roots":[]}"#;
        let first = |answers| match agreed(answers) {
            Some(Answer::Result(raw)) => Some(raw),
            _ => None,
        };
        assert_eq!(first(vec![said(one), said(same)]).unwrap(), one);
        assert_eq!(first(vec![said(one), said(same), said(other)]), None);
        assert_eq!(first(vec![said(one), Answer::Declined]), None);
        assert_eq!(first(vec![Answer::Error("{}".into()), said(one)]), None);
        assert_eq!(first(vec![said("{"), said("{")]), None);
    }
}
