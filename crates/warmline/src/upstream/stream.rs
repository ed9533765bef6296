//! One SSE stream of a call, read until the response is there or the stream is over.
//!
//! Used by both drivers. What a broken stream means is theirs to say: a legacy stream may be
//! resumed, a modern one is lost.

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use warmline_core::era::Version;
use warmline_core::exchange::{News, Question, QuestionKind};
use warmline_core::protocol::batch::{self, Parts};
use warmline_core::protocol::envelope::{Id, Kind, Message};
use warmline_core::protocol::params::unsaid;
use warmline_core::protocol::sse::{SseEvent, SseParser};

use super::answer::Before;
use super::calls::{Call, Heard};
use super::fair::Share;
use super::http::{Arrival, Cut};
use super::limits::Limits;
use super::listener::{self, Back, Came, LARGE, Listener, Open, Turn};
use super::notices::{Beside, Hearing, Speaker};
use super::pace::ASK_AFTER;
use super::whose;
use crate::clock::{self, Instant};

/// A stream with more stray responses than this is not trusted any more.
pub(crate) const MAX_STRAYS: u32 = 16;

/// What is followed while a call's stream is read, over all its resumptions.
pub(crate) struct Watch<'a> {
    pub(crate) id: u64,
    pub(crate) listener: &'a dyn Listener,
    pub(crate) open: Open<'a>,
    pub(crate) limits: Limits,
    /// Whether anything was told or asked before the answer.
    pub(crate) before: Before,
    /// Responses to ids that are not ours.
    pub(crate) strays: u32,
    /// Why the last event that could not be read was bad.
    pub(crate) bad: Option<String>,
    /// What comes for this call on the standing stream of its session, where there is one.
    pub(crate) standing: Option<Call>,
    /// Who hears what concerns everybody and comes on this stream.
    pub(crate) hearing: Hearing,
    /// Which session it is told by.
    pub(crate) speaker: Speaker,
    /// The headers of this call alone: whatever is sent for it carries them.
    pub(crate) own: Vec<(HeaderName, HeaderValue)>,
    /// Whether the listener gave room for the event under way.
    has_room: bool,
    /// Bytes that were told since those who hear it were last known to keep up.
    told: usize,
    /// The version that was agreed on, where one was.
    pub(crate) version: Option<Version>,
    /// What came and is not heeded yet: the rest of a batch.
    said: Parts,
    /// The answer, while the rest of its batch is heeded: nobody would hear that behind it.
    reply: Option<Message>,
    /// Where that goes which a question gets when the call ends before anybody answered it: a
    /// server must not wait for ever. None where servers cannot ask.
    pub(crate) back: Option<&'a dyn Back>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let Some(back) = self.back else { return };
        for (id, kind) in self.open.leave() {
            back.answer(&id, listener::refused(kind), &self.own);
        }
        for unheard in self.standing.iter().flat_map(Call::leave) {
            let kind = QuestionKind::of(unheard.method().unwrap_or_default());
            let id = unheard.raw_id().unwrap_or(b"null");
            back.answer(id, listener::refused(kind), &self.own);
        }
    }
}

/// Why reading a stream stopped.
pub(crate) enum Pause {
    /// The response is here.
    Reply(Message),
    /// The server asks something that must be answered on another request.
    Ask(Asking),
    /// Something became of a question.
    Turned(Turn),
    /// The server ended the stream without a response.
    Ended,
    /// The connection broke.
    Broken(String),
    /// An event was larger than the limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The limits of the call are over.
    Late,
    /// Too many responses that nobody asked for.
    Strays,
}

/// A request of the server.
pub(crate) struct Asking {
    pub(crate) id: Bytes,
    pub(crate) method: String,
    pub(crate) params: Bytes,
    pub(crate) came: Came,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(id: u64, limits: Limits, listener: &'a dyn Listener) -> Self {
        Self {
            id,
            listener,
            open: Open::default(),
            limits,
            before: Before::Nothing,
            strays: 0,
            bad: None,
            standing: None,
            hearing: Hearing::default(),
            speaker: Speaker::default(),
            own: Vec::new(),
            has_room: false,
            version: None,
            said: Parts::default(),
            reply: None,
            back: None,
            told: 0,
        }
    }

    /// Reads until something happens that the driver must act on.
    pub(crate) async fn read(&mut self, arrival: &mut Arrival, parser: &mut SseParser) -> Pause {
        let mut share = Share::default();
        // What stood behind a question.
        if let Some(pause) = self.heed_said() {
            return pause;
        }
        loop {
            if let Some(pause) = self.heed_all(parser, &mut share).await {
                return pause;
            }
            if !self.room_to_read(parser).await {
                return Pause::Late;
            }
            let by = self.by();
            // A stream that always has more lets the timer below speak late.
            if clock::now() >= by {
                return Pause::Late;
            }
            tokio::select! {
                biased;
                turn = self.open.turn() => return Pause::Turned(turn),
                message = next_of(&mut self.standing, self.listener) => {
                    let bytes = message.raw().len();
                    match self.heed_message(message) {
                        Some(Pause::Reply(_)) if !self.room_for(bytes).await => return Pause::Late,
                        Some(pause) => return pause,
                        None if !self.keep_pace().await => return Pause::Late,
                        None => {},
                    }
                },
                piece = arrival.piece() => match piece {
                    Some(Ok(bytes)) => {
                        parser.push(&bytes);
                        share.took(bytes.len()).await;
                    },
                    Some(Err(Cut::Broken(why))) => return Pause::Broken(why),
                    Some(Err(Cut::TooLarge { limit })) => return Pause::TooLarge { limit },
                    Some(Err(Cut::Late)) => return Pause::Late,
                    None => return Pause::Ended,
                },
                () = clock::sleep_until(by) => {},
            }
        }
    }

    /// Heeds what was read, no faster than those who hear it take it.
    async fn heed_all(&mut self, parser: &mut SseParser, share: &mut Share) -> Option<Pause> {
        for event in parser {
            let event = match event {
                Ok(event) => event,
                Err(large) => {
                    return Some(Pause::TooLarge {
                        limit: large.max_event_bytes,
                    });
                },
            };
            let bytes = event.data.len();
            if let Some(pause) = self.heed(event) {
                return Some(pause);
            }
            share.took(bytes).await;
            if !self.keep_pace().await || clock::now() >= self.limits.total_by() {
                return Some(Pause::Late);
            }
        }
        None
    }

    /// Waits for those who hear what came, where they are behind; says whether they took it before
    /// the call's total limit. The server's own time stands still meanwhile.
    pub(crate) async fn keep_pace(&mut self) -> bool {
        if self.told < ASK_AFTER {
            return true;
        }
        self.told = 0;
        let by = self.limits.total_by();
        let behind = [self.listener.behind(), self.hearing.behind()];
        for one in behind.into_iter().flatten() {
            if clock::timeout_at(by, one).await.is_err() {
                return false;
            }
        }
        self.limits.sign_of_life();
        true
    }

    /// Waits until the listener has room for a reply of so many bytes; says whether it had in time.
    pub(crate) async fn room_for(&mut self, bytes: usize) -> bool {
        let listener = self.listener;
        let room = (bytes > LARGE).then(|| listener.room(bytes)).flatten();
        match room {
            Some(room) => clock::timeout_at(self.by(), room).await.is_ok(),
            None => true,
        }
    }

    /// The same for a large event, while its end is not known: it may be as large as any. What is
    /// complete and was no answer is held no longer.
    async fn room_to_read(&mut self, parser: &SseParser) -> bool {
        let is_large = parser.unfinished() > LARGE;
        if self.has_room == is_large {
            return true;
        }
        self.has_room = is_large;
        if is_large {
            return self.room_for(parser.max_event_bytes()).await;
        }
        drop(self.listener.room(0));
        true
    }

    /// When waiting ends if nothing happens. While a person thinks about a question only the
    /// total limit runs.
    pub(crate) fn by(&mut self) -> Instant {
        if !self.open.is_empty() {
            return self.limits.total_by();
        }
        if clock::now() >= self.limits.by() && self.listener.is_asked() {
            self.limits.sign_of_life();
        }
        self.limits.by()
    }

    fn heed(&mut self, event: SseEvent) -> Option<Pause> {
        // Priming events have an id and no data; they are a sign of life all the same.
        if event.data.is_empty() {
            if event.id.is_some() {
                self.limits.sign_of_life();
            }
            return None;
        }
        self.heed_text(event.data)
    }

    /// What a text of the server means for this call: one message, or each of a batch.
    pub(crate) fn heed_text(&mut self, text: Bytes) -> Option<Pause> {
        self.said = batch::parts(text, self.version);
        self.heed_said()
    }

    /// What the rest of a text means; none where it is heeded and the call goes on.
    pub(crate) fn heed_said(&mut self) -> Option<Pause> {
        while let Some(text) = self.said.next() {
            match self.heed_one(text) {
                // The first answer counts.
                Some(Pause::Reply(reply)) => _ = self.reply.get_or_insert(reply),
                None => {},
                pause => return pause,
            }
        }
        self.reply.take().map(Pause::Reply)
    }

    fn heed_one(&mut self, text: Bytes) -> Option<Pause> {
        match Message::split(text) {
            Ok(message) => {
                let caller = self.listener.whose();
                match self.hearing.tell_beside(&message, self.speaker, caller) {
                    Beside::ForItsCaller => match self.heed_message(message) {
                        Some(Pause::Ask(asking)) => Some(Pause::Ask(Asking {
                            came: Came::WithItsCall,
                            ..asking
                        })),
                        pause => pause,
                    },
                    Beside::Told => {
                        self.told += message.raw().len();
                        self.before = Before::Something;
                        self.limits.sign_of_life();
                        None
                    },
                }
            },
            Err(malformed) => {
                self.bad = Some(malformed.to_string());
                None
            },
        }
    }

    /// What one message of the server means for this call.
    pub(crate) fn heed_message(&mut self, message: Message) -> Option<Pause> {
        match message.kind() {
            Kind::Result | Kind::Error => {
                if is_for(&message, self.id) {
                    self.open.replied();
                    return Some(Pause::Reply(message));
                }
                self.strays += 1;
                (self.strays > MAX_STRAYS).then_some(Pause::Strays)
            },
            Kind::Notification => {
                if let Some(id) = whose::taken_back(&message) {
                    self.open.withdraw(&id);
                } else if !self.is_progress_of_another(&message) {
                    self.told += message.raw().len();
                    self.before = Before::Something;
                    self.limits.sign_of_life();
                    self.notice(&message);
                }
                None
            },
            Kind::Request => {
                self.before = Before::Something;
                self.limits.sign_of_life();
                Some(Pause::Ask(Asking {
                    id: Bytes::copy_from_slice(message.raw_id().unwrap_or(b"null")),
                    method: message.method().unwrap_or_default().to_owned(),
                    params: message.params().unwrap_or_else(unsaid),
                    came: Came::Elsewhere,
                }))
            },
        }
    }

    /// Whether it reports on a call that is not this one: such a report is nobody's.
    fn is_progress_of_another(&self, message: &Message) -> bool {
        message.method() == Some("notifications/progress")
            && message
                .params()
                .and_then(|params| token_of(&params))
                .is_some_and(|token| token != self.id)
    }

    fn notice(&self, message: &Message) {
        let params = message.params().unwrap_or_else(unsaid);
        let news = match message.method().unwrap_or_default() {
            "notifications/progress" => News::Progress(params),
            "notifications/message" => News::Log(params),
            method => News::Other(method.to_owned(), params),
        };
        self.listener.news(news);
    }

    /// Passes a question on to the listener.
    pub(crate) fn ask(&mut self, asking: Asking) {
        let question = Question::new(&asking.method, asking.params);
        let came = (asking.id, asking.came);
        self.open.ask(came, question, self.listener);
    }
}

/// What comes next on a standing stream; never anything, where there is none.
pub(crate) async fn heard_on(standing: &mut Option<Call>) -> Heard {
    match standing {
        Some(call) => call.next().await,
        None => std::future::pending().await,
    }
}

/// The next message on a standing stream. Its end is no news to a call that has its own stream.
pub(crate) async fn next_of(standing: &mut Option<Call>, listener: &dyn Listener) -> Message {
    loop {
        match heard_on(standing).await {
            Heard::Message(message) => return message,
            Heard::Missed(notices) => listener.missed(notices),
            Heard::Lost(_) => *standing = None,
        }
    }
}

/// Whether a response belongs to our request on this very exchange. Errors made before a server
/// could read the id carry none, null, or a word of their own.
pub(crate) fn is_for(message: &Message, id: u64) -> bool {
    match message.id() {
        Some(Id::Number(number)) => u64::try_from(number) == Ok(id),
        None | Some(Id::Null) => message.kind() == Kind::Error,
        Some(Id::Text(text)) => message.kind() == Kind::Error && text == "server-error",
        Some(Id::Other) => false,
    }
}

/// The call that a report is about, where it says so. Our tokens are numbers; some servers write
/// them back as text, or as a number with a fraction of zero.
pub(crate) fn token_of(params: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct Report<'a> {
        #[serde(rename = "progressToken", borrow)]
        token: &'a serde_json::value::RawValue,
    }
    let report: Report<'_> = serde_json::from_slice(params).ok()?;
    let digits = report.token.get().trim_matches('"');
    let digits = digits.strip_suffix(".0").unwrap_or(digits);
    // What is no number of ours was never given out.
    Some(digits.parse().unwrap_or(u64::MAX))
}
