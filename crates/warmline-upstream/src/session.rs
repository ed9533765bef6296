//! A session: one conversation with a server, whatever its era and transport.
//!
//! A modern server may answer `input_required`: then the same request is sent again with the input.
//! `requestState` goes back byte for byte. Each round is a new request with a new id; the input of a
//! round belongs only to the next one. The total deadline of the call spans all rounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use warmline_core::era::Era;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{
    AttemptResult, Deadlines, DeliveryFailure, Diagnostic, Reply, Request, RequestOrigin,
    ServerRequest,
};
use warmline_core::message::params::Params;
use warmline_core::message::splice::Edit;
use warmline_core::protocol::input_required::{
    InputRequest, ResultType, read_result_type, write_input_responses,
};

use super::listener::{Listener, ReplyPayload, reply_payload};
use super::lists::{ListKind, ListReader, is_usable_item};
use super::redaction::Redactor;
use super::server_facts::{ResumableSession, ServerFacts};
use crate::http::endpoint::{RequestHeaders, SendFailure};
use crate::http::response;
use crate::http_sse::HttpSseSession;
use crate::legacy::session::{LegacyHttpSession, StreamHoldOutcome};
use crate::modern::ModernHttpSession;
use crate::sanitize::sanitize_line;
use crate::server_facts::known_eras::KnownErasEntry;
use crate::stdio::pipe::ChildReport;
use crate::stdio::session::StdioSession;
use warmline_platform::clock;

/// An open session to a server.
///
/// Calls may run side by side. Dropping it closes a child in the background and forgets an HTTP
/// session; [`Session::close`] ends both in order.
#[derive(Debug)]
pub struct Session {
    pub(crate) driver: Driver,
    facts: Arc<ServerFacts>,
    known_eras: Option<Box<KnownErasEntry>>,
}

#[derive(Debug)]
pub(crate) enum Driver {
    LegacyHttp(Arc<LegacyHttpSession>),
    ModernHttp(Box<ModernHttpSession>),
    Stdio(Box<StdioSession>),
    HttpSse(Box<HttpSseSession>),
}

impl Session {
    pub(crate) fn new(
        driver: Driver,
        facts: Arc<ServerFacts>,
        known_eras: Option<Box<KnownErasEntry>>,
    ) -> Self {
        Self {
            driver,
            facts,
            known_eras,
        }
    }

    /// What the server said when the session was opened.
    pub fn facts(&self) -> &ServerFacts {
        &self.facts
    }

    /// The same; similar sessions share it.
    pub fn shared_facts(&self) -> &Arc<ServerFacts> {
        &self.facts
    }

    /// What all requests over HTTP carry; else the driver of the child.
    fn headers(&self) -> Result<&RequestHeaders, &StdioSession> {
        match &self.driver {
            Driver::LegacyHttp(driver) => Ok(&driver.poster.headers),
            Driver::ModernHttp(driver) => Ok(&driver.headers),
            Driver::HttpSse(driver) => Ok(&driver.shared.poster.headers),
            Driver::Stdio(driver) => Err(driver),
        }
    }

    pub fn session_id(&self) -> Option<&str> {
        self.headers().ok()?.session_id()
    }

    pub(crate) fn server(&self) -> &str {
        match self.headers() {
            Ok(headers) => &headers.endpoint.server,
            Err(driver) => &driver.server,
        }
    }

    /// What [`Upstream::resume`](super::Upstream::resume) needs; none if the session lives in a
    /// process or a stream, or the server keeps none.
    pub fn kept(&self) -> Option<ResumableSession> {
        self.session_id().map(|id| ResumableSession {
            session_id: id.to_owned(),
            facts: Arc::clone(&self.facts),
        })
    }

    /// Why this session must not be used any more: it is gone, or its state is in doubt.
    pub fn retired_reason(&self) -> Option<Reason> {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.retirement.get(),
            Driver::ModernHttp(driver) => driver.retirement.get(),
            Driver::Stdio(driver) => driver.retirement.get(),
            Driver::HttpSse(driver) => driver.shared.retirement.get(),
        }
    }

    /// Sends one request and follows it to its end: one attempt, one ending.
    ///
    /// A modern server's `input_required` is an answer here; [`Session::call`] answers it.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server. Its delivery is unknown then.
    pub async fn send(&self, request: Request, listener: &dyn Listener) -> AttemptResult {
        if let Some(reason) = self.retired_reason() {
            let what = format!("this session with `{}` is not used any more", self.server());
            return Diagnostic::new(Reason::Closed, what)
                .with_cause(format!("it was retired before: {}", reason.as_str()))
                .with_hint("open a new session; the state of the old one is lost")
                .into_unsent(request);
        }
        let ending = match &self.driver {
            Driver::LegacyHttp(driver) => driver.send(request, listener).await,
            Driver::ModernHttp(driver) => {
                let ending = driver.send(request, listener).await;
                self.forget_contradicted_era(&ending);
                ending
            },
            Driver::Stdio(driver) => driver.send(request, listener).await,
            // On the heap: this transport is rare, and its call is large.
            Driver::HttpSse(driver) => Box::pin(driver.send(request, listener)).await,
        };
        match ending {
            // A result is its caller's: nothing is redacted.
            AttemptResult::Answered(Reply::Result(_)) => ending,
            AttemptResult::Answered(Reply::Error(_)) | AttemptResult::Failed(_) => {
                self.redactor().redact_ending(ending)
            },
        }
    }

    fn redactor(&self) -> Redactor {
        match self.headers() {
            Ok(headers) => headers.redactor(),
            Err(driver) => driver.pipe.redactor(),
        }
    }

    /// A modern session over HTTP opens without a request, so a call is the first to see that the
    /// server has changed. The known eras are forgotten then.
    fn forget_contradicted_era(&self, ending: &AttemptResult) {
        let refused = [Reason::Rejected, Reason::NotFound, Reason::Version];
        if let (AttemptResult::Failed(failure), Some(verdict)) = (ending, &self.known_eras)
            && refused.contains(&failure.diagnostic.reason)
        {
            verdict.forget();
        }
    }

    /// Sends a request and answers the server's requests for input until there is a final answer.
    ///
    /// # Cancel safety
    /// As [`Session::send`].
    pub async fn call(&self, request: Request, listener: &dyn Listener) -> AttemptResult {
        match (self.facts.era, request.origin) {
            // The client that wrote the request answers in a new request.
            (Era::Legacy, _)
            | (Era::Modern, RequestOrigin::Forwarded | RequestOrigin::ForwardedWithHeaders) => {
                self.send(request, listener).await
            },
            (Era::Modern, RequestOrigin::Own) => call_through_rounds(self, request, listener).await,
        }
    }

    /// Holds the stream for what the server sends outside of calls. Calls `on_gap` if something was
    /// missed.
    ///
    /// # Cancel safety
    /// Dropping it releases the stream.
    pub async fn hold_stream(&self, on_gap: impl Fn()) -> StreamHoldOutcome {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.hold_get_stream(on_gap).await,
            Driver::ModernHttp(_) => StreamHoldOutcome::Unsupported,
            // These have one stream, until they end.
            Driver::Stdio(driver) => driver.wait_until_ended().await,
            Driver::HttpSse(driver) => driver.wait_until_ended().await,
        }
    }

    /// Sends a notification; `params` is a raw JSON object.
    ///
    /// # Errors
    /// With how far it came, and why not further.
    pub async fn notify(&self, method: &str, params: &[u8]) -> Result<(), SendFailure> {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.notify(method, params).await,
            Driver::ModernHttp(driver) => driver.notify(method, params).await,
            Driver::HttpSse(driver) => driver.notify(method, Some(params)).await,
            Driver::Stdio(driver) => {
                let sent = driver.notify(method, params);
                sent.map_err(SendFailure::unsent)
            },
        }
    }

    /// Describes the child of this session, if there is one.
    pub fn child(&self) -> Option<ChildReport> {
        self.headers().err().map(|driver| driver.pipe.report())
    }

    /// Ends the session: `DELETE` at the server, or the whole process tree. Takes a few seconds
    /// at most.
    pub async fn close(&self) {
        self.try_close().await.ok();
    }

    /// Waits until the server has all cancels, for a short time: a process that leaves its session
    /// open may be gone before that.
    pub async fn flush_cancels(&self) {
        if let Driver::LegacyHttp(driver) = &self.driver {
            driver.poster.flush_cancels().await;
        }
    }

    /// The same. The error says why the server may still hold the session.
    pub async fn try_close(&self) -> Result<(), Diagnostic> {
        match &self.driver {
            Driver::LegacyHttp(driver) => return driver.try_close().await,
            Driver::ModernHttp(_) => {},
            Driver::Stdio(driver) => driver.pipe.close().await,
            Driver::HttpSse(driver) => driver.close(),
        }
        Ok(())
    }

    /// Reads a list to its end. Each item is raw JSON.
    ///
    /// Over modern HTTP, tools whose `x-mcp-header` breaks the rules are left out with a warning,
    /// as the protocol asks of clients.
    ///
    /// # Errors
    /// With the ending of the request that brought no page. A cursor that comes back, or a list
    /// beyond the limits of pages and bytes, is a bad answer.
    ///
    /// # Cancel safety
    /// As [`Session::send`].
    pub async fn list(
        &self,
        list: ListKind,
        deadlines: Deadlines,
    ) -> Result<Vec<Bytes>, AttemptResult> {
        let total_by = clock::after(deadlines.total);
        let mut pages = ListReader::new(list, self.server());
        while let Some(params) = pages.next_params() {
            // The deadline is for the list, not for each page.
            let total = total_by.saturating_duration_since(clock::now());
            let left = Deadlines { total, ..deadlines };
            let request = Request::new(list.method(), params).with_deadlines(left);
            let ending = self.call(request, &()).await;
            let AttemptResult::Answered(Reply::Result(page)) = &ending else {
                return Err(ending);
            };
            pages.add_page(page).map_err(Diagnostic::into_unknown)?;
        }
        let mut items = pages.into_items();
        if matches!(self.driver, Driver::ModernHttp(_)) {
            items.retain(|item| is_usable_item(list, item));
        }
        Ok(items)
    }
}

const MAX_ROUNDS: u32 = 10;
/// The pause after a round without requests, by which servers shed load.
const EMPTY_ROUND_DELAY: Duration = Duration::from_millis(200);

struct InputRound {
    requests: Vec<InputRequest>,
    state: Option<Bytes>,
}

/// Sends a request until there is a final answer.
async fn call_through_rounds(
    session: &Session,
    request: Request,
    listener: &dyn Listener,
) -> AttemptResult {
    let (server, deadlines) = (session.server(), request.deadlines);
    let total_by = clock::after(deadlines.total);
    let mut next = request.clone();
    for _ in 0..=MAX_ROUNDS {
        let ending = session.send(next, listener).await;
        let AttemptResult::Answered(Reply::Result(result)) = &ending else {
            return with_original_deadlines(ending, deadlines);
        };
        let round = match read_round(server, result) {
            Ok(Some(round)) => round,
            Ok(None) => return ending,
            Err(diagnostic) => return diagnostic.into_unknown(),
        };
        let answers = clock::timeout_at(total_by, collect_replies(&request, &round, listener));
        let params = match answers.await {
            Ok(Ok(params)) => params,
            // The server started the call when it asked; how far it went is unknown.
            Ok(Err(diagnostic)) => return diagnostic.into_unknown(),
            Err(clock::Elapsed) => return response::timeout_diagnostic(server).into_unknown(),
        };
        let total = total_by.saturating_duration_since(clock::now());
        next = Request {
            params,
            deadlines: Deadlines { total, ..deadlines },
            ..request.clone()
        };
    }
    let what =
        format!("`{server}` asked for input more than {MAX_ROUNDS} times and gave no answer");
    Diagnostic::new(Reason::TooManyRounds, what).into_unknown()
}

/// A request that comes back has its original deadlines, not the rest of them.
fn with_original_deadlines(ending: AttemptResult, deadlines: Deadlines) -> AttemptResult {
    let AttemptResult::Failed(mut failure) = ending else {
        return ending;
    };
    failure.delivery_failure = match failure.delivery_failure {
        DeliveryFailure::Unsent(request) => {
            DeliveryFailure::Unsent(request.with_deadlines(deadlines))
        },
        DeliveryFailure::Refused(request) => {
            DeliveryFailure::Refused(request.with_deadlines(deadlines))
        },
        DeliveryFailure::Unknown => DeliveryFailure::Unknown,
    };
    AttemptResult::Failed(failure)
}

/// The round that a result asks for; none if it is final.
fn read_round(server: &str, result: &[u8]) -> Result<Option<InputRound>, Diagnostic> {
    match read_result_type(result) {
        Ok(ResultType::InputRequired { requests, state }) => {
            Ok(Some(InputRound { requests, state }))
        },
        Ok(ResultType::Complete) => Ok(None),
        // We declare no extension, so there is no other kind of result.
        Ok(ResultType::Other(kind)) => {
            let what = format!("the result of `{server}` is of a kind we did not declare");
            let why = format!("resultType \"{}\"", sanitize_line(kind.as_bytes(), 60));
            Err(Diagnostic::new(Reason::BadReply, what).with_cause(why))
        },
        Err(malformed) => {
            let what = format!("the result of `{server}` is not an MCP result");
            Err(Diagnostic::new(Reason::BadReply, what).with_cause(malformed.to_string()))
        },
    }
}

/// The parameters of the next round: the same, with the input and the state.
async fn collect_replies(
    request: &Request,
    round: &InputRound,
    listener: &dyn Listener,
) -> Result<Params, Diagnostic> {
    if round.requests.is_empty() {
        clock::sleep(EMPTY_ROUND_DELAY).await;
    }
    let mut answers = Vec::new();
    for InputRequest {
        key,
        method,
        params,
    } in &round.requests
    {
        let question = ServerRequest::new(method, params.clone());
        let kind = question.kind;
        let answer = reply_payload(kind, listener.on_request(question).await);
        // What nobody can answer is skipped; the server asks again or goes on without it.
        if let ReplyPayload::Result(raw) = answer {
            answers.push((key.as_str(), raw));
        }
    }
    if let ([], [first, ..]) = (answers.as_slice(), round.requests.as_slice()) {
        let method = sanitize_line(first.method.as_bytes(), 60);
        let what = format!("the server needs an answer to `{method}`, and nobody here can give it");
        return Err(Diagnostic::new(Reason::TooManyRounds, what));
    }
    let mut responses = Vec::new();
    write_input_responses(&mut responses, answers.iter().map(|(key, raw)| (*key, raw)));
    let mut edits = vec![Edit::Set("inputResponses", &responses)];
    match &round.state {
        Some(state) => edits.push(Edit::Set("requestState", state)),
        None => edits.push(Edit::Remove("requestState")),
    }
    let mut raw = Vec::new();
    request.params.write_edited(&mut raw, &edits, &[]);
    Params::parse(raw.into()).map_err(|malformed| {
        let what = "the input for the server's request is not valid JSON";
        Diagnostic::new(Reason::InvalidRequest, what).with_cause(malformed.to_string())
    })
}
