//! Rounds: a modern server answers `input_required`, and the same request goes up again with the
//! answers to its questions.
//!
//! `requestState` goes back byte for byte. Each round is a new request with a new id; the answers
//! of a round belong to the next one alone. The total limit of the call spans all of them, the
//! time that people take included.

use std::time::Duration;

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::exchange::{Ending, Fate, Patience, Question, Reply, Request, Trouble};
use warmline_core::protocol::params::Params;
use warmline_core::protocol::rounds::{
    InputRequest, ResultType, result_type, write_input_responses,
};
use warmline_core::protocol::splice::Edit;

use super::answer;
use super::listener::{Listener, Spoken, spoken};
use super::session::Session;
use super::wording::plain;
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
    let (server, patience) = (session.server(), request.patience());
    let total_by = clock::after(patience.total);
    let mut next = request.clone();
    for _ in 0..=MAX_ROUNDS {
        let ending = session.send(next, listener).await;
        let Ending::Answered(Reply::Result(result)) = &ending else {
            return as_patient(ending, patience);
        };
        let round = match read_round(server, result) {
            Ok(Some(round)) => round,
            Ok(None) => return ending,
            Err(trouble) => return trouble.unknown(),
        };
        let answers = clock::timeout_at(total_by, answer_all(&request, &round, listener));
        let params = match answers.await {
            Ok(Ok(params)) => params,
            // The server began with the call when it asked; how far it went is not known.
            Ok(Err(trouble)) => return trouble.unknown(),
            Err(clock::Elapsed) => return answer::late(server),
        };
        let total = total_by.saturating_duration_since(clock::now());
        next = request
            .clone()
            .with_params(params)
            .patient(Patience { total, ..patience });
    }
    Trouble::new(
        Reason::TooManyRounds,
        format!("`{server}` asked for input more than {MAX_ROUNDS} times and gave no answer"),
    )
    .unknown()
}

/// A request that comes back has the patience it came with, not what was left of it.
fn as_patient(ending: Ending, patience: Patience) -> Ending {
    let Ending::Failed(mut failure) = ending else {
        return ending;
    };
    failure.fate = match failure.fate {
        Fate::Unsent(request) => Fate::Unsent(request.patient(patience)),
        Fate::Refused(request) => Fate::Refused(request.patient(patience)),
        Fate::Unknown => Fate::Unknown,
    };
    Ending::Failed(failure)
}

/// What a result asks for; nothing, where it is final.
fn read_round(server: &str, result: &[u8]) -> Result<Option<Round>, Trouble> {
    match result_type(result) {
        Ok(ResultType::InputRequired { requests, state }) => Ok(Some(Round {
            questions: requests,
            state,
        })),
        Ok(ResultType::Complete) => Ok(None),
        // We declare no extension, so there is no other kind of result we could understand.
        Ok(ResultType::Other(kind)) => Err(Trouble::new(
            Reason::BadReply,
            format!("the result of `{server}` is of a kind we did not declare"),
        )
        .because(format!("resultType \"{}\"", plain(kind.as_bytes(), 60)))),
        Err(malformed) => Err(Trouble::new(
            Reason::BadReply,
            format!("the result of `{server}` is not an MCP result"),
        )
        .because(malformed.to_string())),
    }
}

/// The parameters of the next round: the same as before, with the answers and the state.
async fn answer_all(
    request: &Request,
    round: &Round,
    listener: &dyn Listener,
) -> Result<Params, Trouble> {
    if round.questions.is_empty() {
        clock::sleep(PACE).await;
    }
    let mut answers = Vec::new();
    for InputRequest {
        key,
        method,
        params,
    } in &round.questions
    {
        let question = Question::new(method, params.clone());
        let kind = question.kind;
        let answer = spoken(kind, listener.question(question).await);
        // What nobody can answer is left out; the server asks again or goes on without it.
        if let Spoken::Result(raw) = answer {
            answers.push((key.as_str(), raw));
        }
    }
    if let ([], [first, ..]) = (answers.as_slice(), round.questions.as_slice()) {
        let method = plain(first.method.as_bytes(), 60);
        return Err(Trouble::new(
            Reason::TooManyRounds,
            format!("the server needs an answer to `{method}`, and nobody here can give it"),
        ));
    }
    let mut responses = Vec::new();
    write_input_responses(&mut responses, answers.iter().map(|(key, raw)| (*key, raw)));
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
