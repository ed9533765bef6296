//! Rounds: a modern server answers `input_required`, and the same request goes up again with the
//! answers to its questions.
//!
//! `requestState` goes back byte for byte. Each round is a new request with a new id; the answers
//! of a round belong to the next one alone.

use std::time::Duration;

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::exchange::{Ending, Question, QuestionKind, Reply, Request, Trouble};
use warmline_core::protocol::params::Params;
use warmline_core::protocol::rounds::{InputRequest, ResultType, result_type};
use warmline_core::protocol::splice::Edit;

use super::answer::plain;
use super::listener::{Listener, Spoken, spoken};
use super::session::Session;
use crate::clock;

/// A server that still asks after this many rounds does not know what it wants.
const MAX_ROUNDS: u32 = 10;
/// A round without questions is how servers shed load; it is not answered at once.
const PACE: Duration = Duration::from_millis(200);

/// What a server wants to know before it goes on.
struct Round {
    questions: Vec<InputRequest>,
    state: Option<Bytes>,
}

/// Sends a request, and goes through the rounds until there is a final answer.
pub(crate) async fn drive(session: &Session, request: Request, listener: &dyn Listener) -> Ending {
    let mut next = request.clone();
    for _ in 0..=MAX_ROUNDS {
        let ending = session.send(next, listener).await;
        let Ending::Answered(Reply::Result(result)) = &ending else {
            return ending;
        };
        let round = match read_round(result) {
            Ok(Some(round)) => round,
            Ok(None) => return ending,
            Err(trouble) => return trouble.unknown(),
        };
        if round.questions.is_empty() {
            clock::sleep(PACE).await;
        }
        next = match answer_all(&request, &round, listener).await {
            Ok(params) => request.clone().with_params(params),
            Err(trouble) => return trouble.unsent(request),
        };
    }
    Trouble::new(
        Reason::TooManyRounds,
        format!("the server asked for input {MAX_ROUNDS} times and still gave no answer"),
    )
    .unknown()
}

/// What a result asks for; nothing, where it is final.
fn read_round(result: &[u8]) -> Result<Option<Round>, Trouble> {
    match result_type(result) {
        Ok(ResultType::InputRequired { requests, state }) => Ok(Some(Round {
            questions: requests,
            state,
        })),
        Ok(ResultType::Complete) => Ok(None),
        // We declare no extension, so there is no other kind of result we could understand.
        Ok(ResultType::Other(kind)) => Err(Trouble::new(
            Reason::BadReply,
            "the result is of a kind we did not declare",
        )
        .because(format!("resultType \"{}\"", plain(kind.as_bytes(), 60)))),
        Err(malformed) => Err(
            Trouble::new(Reason::BadReply, "the result is not an MCP result")
                .because(malformed.to_string()),
        ),
    }
}

/// The parameters of the next round: the same as before, with the answers and the state.
async fn answer_all(
    request: &Request,
    round: &Round,
    listener: &dyn Listener,
) -> Result<Params, Trouble> {
    let mut answers = Vec::new();
    for InputRequest {
        key,
        method,
        params,
    } in &round.questions
    {
        let answer = match QuestionKind::of(method) {
            Some(kind) => {
                let given = listener
                    .question(Question {
                        kind,
                        params: params.clone(),
                    })
                    .await;
                spoken(kind, given)
            },
            None => Spoken::Error(-32601, ""),
        };
        // What nobody can answer is left out; the server asks again or goes on without it.
        if let Spoken::Result(raw) = answer {
            answers.push((key.as_str(), raw));
        }
    }
    let mut responses = b"{}".to_vec();
    if !answers.is_empty() {
        let edits: Vec<Edit<'_>> = answers.iter().map(|(k, raw)| Edit::Set(k, raw)).collect();
        let mut out = Vec::new();
        warmline_core::protocol::splice::edit_object(b"{}", &edits, &mut out)
            .map_err(bad_answer)?;
        responses = out;
    }
    let mut edits = vec![Edit::Set("inputResponses", &responses)];
    match &round.state {
        Some(state) => edits.push(Edit::Set("requestState", state)),
        None => edits.push(Edit::Remove("requestState")),
    }
    let mut raw = Vec::new();
    request.params().write_with(&mut raw, &edits, &[]);
    Params::parse(raw.into()).map_err(bad_answer)
}

fn bad_answer(malformed: impl std::fmt::Display) -> Trouble {
    Trouble::new(
        Reason::InvalidRequest,
        "an answer to the server's question is not valid JSON",
    )
    .because(malformed.to_string())
}
