//! Carries what an execution says to the client: as JSON or as events, whole or not.

use std::io;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Notify;

use super::exchange::{ConnectionAction, HttpExchange};
use super::reply::{HttpReply, status_and_headers};
use super::{HttpConnection, sse};
use crate::faults::corrupt_reply::reply_messages;
use crate::faults::dialects;
use crate::faults::fault::{AfterReply, ConnectionEnd, CutPoint, ExecuteFirst, Fault, FaultTiming};
use crate::faults::personality::{EventIds, ReplyFormat, SseFormat};
use crate::ledger::ExecutionPhase;
use crate::server::call::Era;
use crate::server::message_stream::{MessageStream, StreamReaderGuard};

/// How an answer is carried.
pub(crate) struct ReplyOptions {
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) fault: Option<Fault>,
    /// The first message of the stream that is written.
    pub(crate) first_message: usize,
    /// The era of the execution and the bell that ends it; none for a stream without one.
    pub(crate) call: Option<(Era, Arc<Notify>)>,
}

/// Writes a whole reply.
pub(crate) async fn write_reply(
    connection: &mut HttpConnection,
    reply: &HttpReply,
) -> ConnectionAction {
    let body = match reply.cut_after {
        Some(cut) => reply.body.get(..cut).unwrap_or(&reply.body),
        None => &reply.body,
    };
    let written = if reply.status == 0 {
        connection.write_parts(&[body]).await
    } else {
        connection.write_parts(&[&reply.head_bytes(), body]).await
    };
    let is_whole = written.is_ok() && reply.cut_after.is_none() && reply.status != 0;
    match reply.after_reply {
        AfterReply::AsUsual if is_whole => ConnectionAction::NextRequest,
        AfterReply::AsUsual | AfterReply::Finish => ConnectionAction::Close,
        AfterReply::Reset => ConnectionAction::Reset,
        AfterReply::Hold => ConnectionAction::Hold,
    }
}

/// Writes what the stream says, from its place on.
pub(crate) async fn write_stream(
    exchange: &HttpExchange<'_>,
    connection: &mut HttpConnection,
    stream: &Arc<MessageStream>,
    carried: ReplyOptions,
) -> ConnectionAction {
    if let Some(next) = apply_late_fault(exchange, connection, stream, &carried).await {
        return next;
    }
    if matches!(carried.fault, Some(Fault::EndlessBody)) {
        // It goes on until the client has enough.
        return write_endless_body(connection)
            .await
            .map_or(ConnectionAction::Close, |()| ConnectionAction::Close);
    }
    if allows_json_reply(exchange, &carried) {
        let first = tokio::select! {
            biased;
            first = stream.message_at(carried.first_message) => first,
            () = connection.wait_for_close() => {
                handle_client_disconnect(exchange, &carried);
                return ConnectionAction::Close;
            },
        };
        let response = first.unwrap_or_else(|| cancelled_response(exchange));
        if is_response(&response) {
            return write_json_reply(connection, &response, &carried).await;
        }
    }
    EventWriter::new(exchange, connection, stream, &carried)
        .write()
        .await
}

/// Whether one JSON object can be the reply, if nothing must be said before it.
fn allows_json_reply(exchange: &HttpExchange<'_>, carried: &ReplyOptions) -> bool {
    exchange.state.personality.reply == ReplyFormat::Json
        && exchange.info.method != "subscriptions/listen"
        && carried.call.is_some()
        && !matches!(carried.fault, Some(Fault::EndlessStream))
}

/// Faults that strike when the effect is done and no byte of the reply was written.
async fn apply_late_fault(
    exchange: &HttpExchange<'_>,
    connection: &mut HttpConnection,
    stream: &MessageStream,
    carried: &ReplyOptions,
) -> Option<ConnectionAction> {
    let id = &exchange.info.id;
    let session = exchange.info.session.as_deref();
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other fault strikes elsewhere"
    )]
    match carried.fault.as_ref()? {
        Fault::Cut(CutPoint::AfterExecuting, end) => {
            stream.wait_for_end().await;
            Some(ConnectionAction::from_end(*end))
        },
        Fault::Silence(FaultTiming::AfterExecuting) => {
            stream.wait_for_end().await;
            Some(ConnectionAction::Hold)
        },
        Fault::Delay(ms, FaultTiming::AfterExecuting) => {
            stream.wait_for_end().await;
            tokio::time::sleep(std::time::Duration::from_millis(*ms)).await;
            None
        },
        Fault::Crash(FaultTiming::AfterExecuting) => {
            stream.wait_for_end().await;
            exchange.state.crash_signal.notify_one();
            Some(ConnectionAction::Hold)
        },
        Fault::Reply(canned) if canned.execute_first == ExecuteFirst::Yes => {
            stream.wait_for_end().await;
            Some(write_reply(connection, &HttpReply::from_canned(canned, id, session)).await)
        },
        Fault::Dialect(name) => {
            let words = dialects::by_name(name)?.post;
            if words.effect != dialects::DialectEffect::Executed {
                return None;
            }
            stream.wait_for_end().await;
            Some(write_reply(connection, &exchange.dialect_reply(&words)).await)
        },
        _ => None,
    }
}

/// A client that leaves cancels a modern request; a legacy one goes on.
fn handle_client_disconnect(exchange: &HttpExchange<'_>, carried: &ReplyOptions) {
    match &carried.call {
        Some((Era::Modern, cancelled)) => cancelled.notify_one(),
        Some((Era::Legacy, _)) => {},
        None => exchange
            .state
            .ledger
            .record(ExecutionPhase::Abandoned, &exchange.info),
    }
}

fn is_response(message: &Value) -> bool {
    message.get("method").is_none()
}

/// What a cancelled request gets where something must be said.
fn cancelled_response(exchange: &HttpExchange<'_>) -> Value {
    let error = crate::server::message::RpcError::new(-32800, "Request cancelled");
    crate::server::message::response(&exchange.info.id, &Err(error))
}

async fn write_json_reply(
    connection: &mut HttpConnection,
    response: &Value,
    carried: &ReplyOptions,
) -> ConnectionAction {
    let mut reply = HttpReply::json(200, &Value::Null);
    reply.headers.extend(carried.headers.iter().cloned());
    if let Some(Fault::GiantHeader(size)) = carried.fault {
        reply = reply.with_header("X-Filler", &"x".repeat(size));
    }
    reply.body = reply_messages(carried.fault.as_ref(), response).join(&b'\n');
    let head = reply.head_bytes();
    let Some(Fault::Cut(at, end)) = carried.fault else {
        return write_reply(connection, &reply).await;
    };
    let head_part = match at {
        CutPoint::InHead => head.get(..head.len() / 2).unwrap_or_default(),
        CutPoint::BeforeExecuting
        | CutPoint::AfterExecuting
        | CutPoint::AfterHead
        | CutPoint::InBody(_)
        | CutPoint::AfterEvents(_) => &head,
    };
    let body_part = match at {
        CutPoint::InBody(count) => reply.body.get(..count).unwrap_or(&reply.body),
        CutPoint::AfterEvents(_) => &reply.body,
        CutPoint::BeforeExecuting
        | CutPoint::AfterExecuting
        | CutPoint::InHead
        | CutPoint::AfterHead => &[],
    };
    drop(connection.write_parts(&[head_part, body_part]).await);
    ConnectionAction::from_end(end)
}

async fn write_endless_body(connection: &mut HttpConnection) -> io::Result<()> {
    let headers = [
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
    ];
    let mut head = status_and_headers(200, &headers);
    head.extend(b"\r\n");
    connection.write_parts(&[&head]).await?;
    let filler = vec![b' '; 16 * 1024];
    loop {
        connection
            .write_parts(&[b"4000\r\n", &filler, b"\r\n"])
            .await?;
    }
}

/// A stream of events on its way to a client.
struct EventWriter<'a> {
    exchange: &'a HttpExchange<'a>,
    connection: &'a mut HttpConnection,
    stream: &'a Arc<MessageStream>,
    options: &'a ReplyOptions,
    format: SseFormat,
    /// Events and bytes of events that are still to be written before a cut.
    events_left: Option<usize>,
    bytes_left: Option<usize>,
    _reader: StreamReaderGuard,
}

impl<'a> EventWriter<'a> {
    fn new(
        exchange: &'a HttpExchange<'a>,
        connection: &'a mut HttpConnection,
        stream: &'a Arc<MessageStream>,
        options: &'a ReplyOptions,
    ) -> Self {
        let mut format = exchange.state.personality.sse_format();
        if exchange.info.era == Era::Modern.as_str() {
            format.event_ids = EventIds::Absent;
        }
        let (events_left, bytes_left) = match options.fault {
            Some(Fault::Cut(CutPoint::AfterEvents(count), _)) => (Some(count), None),
            Some(Fault::Cut(CutPoint::InBody(count), _)) => (None, Some(count)),
            _ => (None, None),
        };
        Self {
            exchange,
            connection,
            stream,
            options,
            format,
            events_left,
            bytes_left,
            _reader: stream.add_reader(),
        }
    }

    async fn write(&mut self) -> ConnectionAction {
        match self.write_events().await {
            Ok(next) => next,
            Err(_) => {
                handle_client_disconnect(self.exchange, self.options);
                ConnectionAction::Close
            },
        }
    }

    async fn write_events(&mut self) -> io::Result<ConnectionAction> {
        if let Some(next) = self.write_head().await? {
            return Ok(next);
        }
        if matches!(self.options.fault, Some(Fault::EndlessStream)) {
            return self.write_endless_events().await;
        }
        let mut place = self.options.first_message;
        if place == 0
            && let Some(priming) =
                sse::priming_event(&self.format, &format!("{}.0", self.stream.name))
        {
            self.write_chunk(&priming).await?;
        }
        while let Some(message) = self.next_message(place).await? {
            place += 1;
            if self.events_left == Some(0) {
                break;
            }
            if let Some(next) = self.write_message(place, &message).await? {
                return Ok(next);
            }
        }
        match self.options.fault {
            Some(Fault::Cut(CutPoint::AfterEvents(_) | CutPoint::InBody(_), end))
                if end != ConnectionEnd::Clean =>
            {
                Ok(ConnectionAction::from_end(end))
            },
            _ => {
                self.connection.write_parts(&[b"0\r\n\r\n"]).await?;
                Ok(ConnectionAction::NextRequest)
            },
        }
    }

    /// The head; an answer if the connection ends with it.
    async fn write_head(&mut self) -> io::Result<Option<ConnectionAction>> {
        let mut headers = vec![
            ("Content-Type".to_owned(), "text/event-stream".to_owned()),
            ("Cache-Control".to_owned(), "no-cache".to_owned()),
            ("X-Accel-Buffering".to_owned(), "no".to_owned()),
            ("Transfer-Encoding".to_owned(), "chunked".to_owned()),
        ];
        headers.extend(self.options.headers.iter().cloned());
        if let Some(Fault::GiantHeader(size)) = self.options.fault {
            headers.push(("X-Filler".to_owned(), "x".repeat(size)));
        }
        let mut head = status_and_headers(200, &headers);
        head.extend(b"\r\n");
        match self.options.fault {
            Some(Fault::Cut(CutPoint::InHead, end)) => {
                let half = head.get(..head.len() / 2).unwrap_or_default();
                self.stream.wait_for_end().await;
                self.connection.write_parts(&[half]).await?;
                Ok(Some(ConnectionAction::from_end(end)))
            },
            Some(Fault::Cut(CutPoint::AfterHead, end)) => {
                self.stream.wait_for_end().await;
                self.connection.write_parts(&[&head]).await?;
                Ok(Some(ConnectionAction::from_end(end)))
            },
            _ => self.connection.write_parts(&[&head]).await.map(|()| None),
        }
    }

    /// The next message; comments are written while there is none.
    async fn next_message(&mut self, place: usize) -> io::Result<Option<Value>> {
        let every = self
            .format
            .keep_alive
            .unwrap_or(std::time::Duration::from_secs(3600));
        loop {
            tokio::select! {
                biased;
                message = self.stream.message_at(place) => return Ok(message),
                () = self.connection.wait_for_close() => return Err(io::ErrorKind::BrokenPipe.into()),
                () = tokio::time::sleep(every) => {},
            }
            self.write_chunk(&sse::keep_alive_comment(&self.format))
                .await?;
        }
    }

    async fn write_message(
        &mut self,
        place: usize,
        message: &Value,
    ) -> io::Result<Option<ConnectionAction>> {
        let fault = self.options.fault.as_ref().filter(|_| is_response(message));
        for text in reply_messages(fault, message) {
            let id = format!("{}.{place}", self.stream.name);
            let event = sse::message_event(&self.format, &id, &text);
            if let Some(next) = self.write_event(&event).await? {
                return Ok(Some(next));
            }
        }
        Ok(None)
    }

    async fn write_event(&mut self, event: &[u8]) -> io::Result<Option<ConnectionAction>> {
        if let Some(left) = &mut self.events_left {
            *left = left.saturating_sub(1);
        }
        let Some(left) = self.bytes_left else {
            return self.write_chunk(event).await.map(|()| None);
        };
        if let Some(part) = event.get(..left).filter(|part| part.len() < event.len()) {
            let size = format!("{:x}\r\n", event.len());
            self.connection
                .write_parts(&[size.as_bytes(), part])
                .await?;
            let end = match self.options.fault {
                Some(Fault::Cut(_, end)) => end,
                _ => ConnectionEnd::Fin,
            };
            return Ok(Some(ConnectionAction::from_end(end)));
        }
        self.bytes_left = Some(left - event.len());
        self.write_chunk(event).await.map(|()| None)
    }

    async fn write_chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = format!("{:x}\r\n", bytes.len());
        self.connection
            .write_parts(&[size.as_bytes(), bytes, b"\r\n"])
            .await
    }

    async fn write_endless_events(&mut self) -> io::Result<ConnectionAction> {
        let params = serde_json::json!({"level": "info", "data": "and on"});
        let message = crate::server::message::notification("notifications/message", &params);
        loop {
            let event =
                sse::message_event(&self.format, "endless.1", message.to_string().as_bytes());
            self.write_chunk(&event).await?;
            self.write_chunk(&sse::keep_alive_comment(&self.format))
                .await?;
        }
    }
}
