//! Carries what an execution says to the client: as JSON or as events, whole or not.

use std::io;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use super::reply::{Reply, head};
use super::serve::{Exchange, Next};
use super::{Connection, sse};
use crate::call::Era;
use crate::dialects;
use crate::fault::{CutAt, End, Executes, Fault, Moment, Then};
use crate::ledger::Phase;
use crate::personality::{EventIds, ReplyForm, SseForm};
use crate::spoil::texts;
use crate::stream::{Reader, Stream};

/// How an answer is carried.
pub(crate) struct Carried {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) fault: Option<Fault>,
    /// The first message of the stream that is written.
    pub(crate) place: usize,
    /// The era of the execution and the bell that ends it; none for a stream without one.
    pub(crate) call: Option<(Era, Arc<Notify>)>,
}

/// Writes a whole reply.
pub(crate) async fn write_reply(connection: &mut Connection, reply: &Reply) -> Next {
    let body = match reply.cut {
        Some(cut) => reply.body.get(..cut).unwrap_or(&reply.body),
        None => &reply.body,
    };
    let written = if reply.status == 0 {
        connection.write(&[body]).await
    } else {
        connection.write(&[&reply.head(), body]).await
    };
    let is_whole = written.is_ok() && reply.cut.is_none() && reply.status != 0;
    match reply.then {
        Then::AsUsual if is_whole => Next::Again,
        Then::AsUsual | Then::Finish => Next::Finish,
        Then::Reset => Next::Reset,
        Then::Hold => Next::Hold,
    }
}

/// Writes what the stream says, from its place on.
pub(crate) async fn carry(
    exchange: &Exchange<'_>,
    connection: &mut Connection,
    stream: &Arc<Stream>,
    carried: Carried,
) -> Next {
    if let Some(next) = after_executing(exchange, connection, stream, &carried).await {
        return next;
    }
    if matches!(carried.fault, Some(Fault::EndlessBody)) {
        // It goes on until the client has enough.
        return endless_body(connection)
            .await
            .map_or(Next::Finish, |()| Next::Finish);
    }
    if may_be_json(exchange, &carried) {
        let first = tokio::select! {
            biased;
            first = stream.at(carried.place) => first,
            () = connection.closed() => {
                client_left(exchange, &carried);
                return Next::Finish;
            },
        };
        let response = first.unwrap_or_else(|| cancelled_answer(exchange));
        if is_response(&response) {
            return write_json(connection, &response, &carried).await;
        }
    }
    Events::new(exchange, connection, stream, &carried)
        .write()
        .await
}

/// Whether one JSON object can be the reply, if nothing must be said before it.
fn may_be_json(exchange: &Exchange<'_>, carried: &Carried) -> bool {
    exchange.state.personality.reply == ReplyForm::Json
        && exchange.facts.method != "subscriptions/listen"
        && carried.call.is_some()
        && !matches!(carried.fault, Some(Fault::EndlessStream))
}

/// Faults that strike when the effect is done and no byte of the reply was written.
async fn after_executing(
    exchange: &Exchange<'_>,
    connection: &mut Connection,
    stream: &Stream,
    carried: &Carried,
) -> Option<Next> {
    let id = &exchange.facts.id;
    let session = exchange.facts.session.as_deref();
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other fault strikes elsewhere"
    )]
    match carried.fault.as_ref()? {
        Fault::Cut(CutAt::AfterExecuting, end) => {
            stream.ended().await;
            Some(Next::of(*end))
        },
        Fault::Silence(Moment::AfterExecuting) => {
            stream.ended().await;
            Some(Next::Hold)
        },
        Fault::Delay(ms, Moment::AfterExecuting) => {
            stream.ended().await;
            tokio::time::sleep(std::time::Duration::from_millis(*ms)).await;
            None
        },
        Fault::Crash(Moment::AfterExecuting) => {
            stream.ended().await;
            exchange.state.crash.notify_one();
            Some(Next::Hold)
        },
        Fault::Reply(canned) if canned.executes == Executes::Yes => {
            stream.ended().await;
            Some(write_reply(connection, &Reply::of_canned(canned, id, session)).await)
        },
        Fault::Dialect(name) => {
            let words = dialects::named(name)?.post;
            if words.effect != dialects::Effect::Executed {
                return None;
            }
            stream.ended().await;
            Some(write_reply(connection, &exchange.words(&words)).await)
        },
        _ => None,
    }
}

/// A client that leaves cancels a modern request; a legacy one goes on.
fn client_left(exchange: &Exchange<'_>, carried: &Carried) {
    match &carried.call {
        Some((Era::Modern, cancelled)) => cancelled.notify_one(),
        Some((Era::Legacy, _)) => {},
        None => exchange
            .state
            .ledger
            .write(Phase::Abandoned, &exchange.facts),
    }
}

fn is_response(message: &Value) -> bool {
    message.get("method").is_none()
}

/// What a cancelled request gets where something must be said.
fn cancelled_answer(exchange: &Exchange<'_>) -> Value {
    let error = crate::message::RpcError::new(-32800, "Request cancelled");
    crate::message::response(&exchange.facts.id, &Err(error))
}

async fn write_json(connection: &mut Connection, response: &Value, carried: &Carried) -> Next {
    let mut reply = Reply::json(200, &Value::Null);
    reply.headers.extend(carried.headers.iter().cloned());
    if let Some(Fault::GiantHeader(size)) = carried.fault {
        reply = reply.header("X-Filler", &"x".repeat(size));
    }
    reply.body = texts(carried.fault.as_ref(), response).join(&b'\n');
    let head = reply.head();
    let Some(Fault::Cut(at, end)) = carried.fault else {
        return write_reply(connection, &reply).await;
    };
    let head_part = match at {
        CutAt::InHead => head.get(..head.len() / 2).unwrap_or_default(),
        CutAt::BeforeExecuting
        | CutAt::AfterExecuting
        | CutAt::AfterHead
        | CutAt::InBody(_)
        | CutAt::AfterEvents(_) => &head,
    };
    let body_part = match at {
        CutAt::InBody(count) => reply.body.get(..count).unwrap_or(&reply.body),
        CutAt::AfterEvents(_) => &reply.body,
        CutAt::BeforeExecuting | CutAt::AfterExecuting | CutAt::InHead | CutAt::AfterHead => &[],
    };
    drop(connection.write(&[head_part, body_part]).await);
    Next::of(end)
}

async fn endless_body(connection: &mut Connection) -> io::Result<()> {
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
    ];
    let mut head = head(200, &headers);
    head.extend(b"\r\n");
    connection.write(&[&head]).await?;
    let filler = vec![b' '; 16 * 1024];
    loop {
        connection.write(&[b"4000\r\n", &filler, b"\r\n"]).await?;
    }
}

/// A stream of events on its way to a client.
struct Events<'a> {
    exchange: &'a Exchange<'a>,
    connection: &'a mut Connection,
    stream: &'a Arc<Stream>,
    carried: &'a Carried,
    form: SseForm,
    /// Events and bytes of events that are still to be written before a cut.
    events_left: Option<usize>,
    bytes_left: Option<usize>,
    _reader: Reader,
}

impl<'a> Events<'a> {
    fn new(
        exchange: &'a Exchange<'a>,
        connection: &'a mut Connection,
        stream: &'a Arc<Stream>,
        carried: &'a Carried,
    ) -> Self {
        let mut form = exchange.state.personality.sse_form();
        if exchange.facts.era == Era::Modern.word() {
            form.event_ids = EventIds::Absent;
        }
        let (events_left, bytes_left) = match carried.fault {
            Some(Fault::Cut(CutAt::AfterEvents(count), _)) => (Some(count), None),
            Some(Fault::Cut(CutAt::InBody(count), _)) => (None, Some(count)),
            _ => (None, None),
        };
        Self {
            exchange,
            connection,
            stream,
            carried,
            form,
            events_left,
            bytes_left,
            _reader: stream.read_by(),
        }
    }

    async fn write(&mut self) -> Next {
        match self.write_all().await {
            Ok(next) => next,
            Err(_) => {
                client_left(self.exchange, self.carried);
                Next::Finish
            },
        }
    }

    async fn write_all(&mut self) -> io::Result<Next> {
        if let Some(next) = self.head().await? {
            return Ok(next);
        }
        if matches!(self.carried.fault, Some(Fault::EndlessStream)) {
            return self.endless().await;
        }
        let mut place = self.carried.place;
        if place == 0
            && let Some(priming) = sse::priming(&self.form, &format!("{}.0", self.stream.name))
        {
            self.chunk(&priming).await?;
        }
        while let Some(message) = self.next_message(place).await? {
            place += 1;
            if self.events_left == Some(0) {
                break;
            }
            if let Some(next) = self.message(place, &message).await? {
                return Ok(next);
            }
        }
        match self.carried.fault {
            Some(Fault::Cut(CutAt::AfterEvents(_) | CutAt::InBody(_), end))
                if end != End::Clean =>
            {
                Ok(Next::of(end))
            },
            _ => {
                self.connection.write(&[b"0\r\n\r\n"]).await?;
                Ok(Next::Again)
            },
        }
    }

    /// The head; an answer if the connection ends with it.
    async fn head(&mut self) -> io::Result<Option<Next>> {
        let mut headers = vec![
            ("Content-Type".to_owned(), "text/event-stream".to_owned()),
            ("Cache-Control".to_owned(), "no-cache".to_owned()),
            ("X-Accel-Buffering".to_owned(), "no".to_owned()),
            ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
        ];
        headers.extend(self.carried.headers.iter().cloned());
        if let Some(Fault::GiantHeader(size)) = self.carried.fault {
            headers.push(("X-Filler".to_owned(), "x".repeat(size)));
        }
        let mut head = head(200, &headers);
        head.extend(b"\r\n");
        match self.carried.fault {
            Some(Fault::Cut(CutAt::InHead, end)) => {
                let half = head.get(..head.len() / 2).unwrap_or_default();
                self.stream.ended().await;
                self.connection.write(&[half]).await?;
                Ok(Some(Next::of(end)))
            },
            Some(Fault::Cut(CutAt::AfterHead, end)) => {
                self.stream.ended().await;
                self.connection.write(&[&head]).await?;
                Ok(Some(Next::of(end)))
            },
            _ => self.connection.write(&[&head]).await.map(|()| None),
        }
    }

    /// The next message; comments are written while there is none.
    async fn next_message(&mut self, place: usize) -> io::Result<Option<Value>> {
        let every = self
            .form
            .keep_alive
            .unwrap_or(std::time::Duration::from_secs(3600));
        loop {
            tokio::select! {
                biased;
                message = self.stream.at(place) => return Ok(message),
                () = self.connection.closed() => return Err(io::ErrorKind::BrokenPipe.into()),
                () = tokio::time::sleep(every) => {},
            }
            self.chunk(&sse::comment(&self.form)).await?;
        }
    }

    async fn message(&mut self, place: usize, message: &Value) -> io::Result<Option<Next>> {
        let fault = self.carried.fault.as_ref().filter(|_| is_response(message));
        for text in texts(fault, message) {
            let id = format!("{}.{place}", self.stream.name);
            let event = sse::event(&self.form, &id, &text);
            if let Some(next) = self.event(&event).await? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    async fn event(&mut self, event: &[u8]) -> io::Result<Option<Next>> {
        if let Some(left) = &mut self.events_left {
            *left = left.saturating_sub(1);
        }
        let Some(left) = self.bytes_left else {
            return self.chunk(event).await.map(|()| None);
        };
        if let Some(part) = event.get(..left).filter(|part| part.len() < event.len()) {
            let size = format!("{:x}\r\n", event.len());
            self.connection.write(&[size.as_bytes(), part]).await?;
            let end = match self.carried.fault {
                Some(Fault::Cut(_, end)) => end,
                _ => End::Fin,
            };
            return Ok(Some(Next::of(end)));
        }
        self.bytes_left = Some(left - event.len());
        self.chunk(event).await.map(|()| None)
    }

    async fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = format!("{:x}\r\n", bytes.len());
        self.connection
            .write(&[size.as_bytes(), bytes, b"\r\n"])
            .await
    }

    async fn endless(&mut self) -> io::Result<Next> {
        let params = serde_json::json!({"level": "info", "data": "and on"});
        let message = crate::message::notification("notifications/message", &params);
        loop {
            let event = sse::event(&self.form, "endless.1", message.to_string().as_bytes());
            self.chunk(&event).await?;
            self.chunk(&sse::comment(&self.form)).await?;
        }
    }
}
