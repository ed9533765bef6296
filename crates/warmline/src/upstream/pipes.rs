//! The drivers over stdio, both eras: one shared pipe, replies told apart by id.
//!
//! Asked by: [`session`](super::session).  The pipe itself (who owns the child, what was written,
//! whose question it is) is [`stdio`](super::stdio).

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::Era;
use warmline_core::exchange::{Ending, Reply, Request, Trouble};
use warmline_core::protocol::meta::{self, ClientMeta};
use warmline_core::protocol::params::Params;
use warmline_core::protocol::splice::{self, Edit};

use super::answer;
use super::hidden::Hidden;
use super::legacy::Stood;
use super::letterhead::Own;
use super::limits::{Digits, Ids, Limits};
use super::listener::{self, Back, Listener, Spoken, Turn};
use super::mirrors::{Mirrors, NotMirrored};
use super::modern::write_modern;
use super::session::Standing;
use super::stdio::{Abandoned, ChildReport, Pipe, PipeCall, PipeNews};
use super::stream::{Asking, Pause, Watch};
use crate::clock;

/// A session over a child's standard streams.
#[derive(Debug)]
pub(crate) struct Piped {
    server: String,
    pipe: Pipe,
    /// What each request says of us; nothing in the legacy era, where the handshake said it.
    said: Option<ClientMeta>,
    ids: Ids,
    /// What the tools that clients listed want mirrored into headers.
    mirrors: Mirrors,
    pub(crate) standing: Standing,
}

impl Piped {
    pub(crate) fn new(server: &str, pipe: Pipe, ids: Ids, said: Option<ClientMeta>) -> Self {
        Self {
            server: server.to_owned(),
            pipe,
            said,
            ids,
            mirrors: Mirrors::default(),
            standing: Standing::default(),
        }
    }

    /// What must not be told of what it sends.
    pub(crate) fn hidden(&self) -> Hidden {
        self.pipe.hidden()
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    fn era(&self) -> Era {
        if self.said.is_some() {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// Sends one request and stays with it to its end.
    pub(crate) async fn send(&self, request: Request, listener: &dyn Listener) -> Ending {
        if let Some(mismatch) = self.mismatch(&request) {
            return Ending::Answered(Reply::Error(mismatch));
        }
        let request = traced(request);
        let lists_tools = request.words().are_passed() && request.method() == "tools/list";
        let id = self.ids.next();
        let line = splice::one_line(self.write(id, &request));
        let mut watch = Watch::new(id, Limits::begin(request.patience()), listener);
        watch.back = (self.era() == Era::Legacy).then_some(self as &dyn Back);
        let mut call = Cancelling {
            pipe: &self.pipe,
            id,
            listener,
            call: if request.method() == LISTEN {
                self.pipe.listen(id, line)
            } else {
                self.pipe.request_of(listener.whose(), id, line)
            },
        };
        let ending = self.follow(&mut call, request, &mut watch).await;
        if let (true, Ending::Answered(Reply::Result(list))) = (lists_tools, &ending) {
            self.mirrors.note(&self.server, list);
        }
        ending
    }

    /// The error of a client that came over HTTP with headers unlike its arguments: a program never
    /// sees them, so nobody else would tell. A schema that breaks the rules binds nobody here.
    fn mismatch(&self, request: &Request) -> Option<Bytes> {
        match self.mirrors.made(request) {
            Err(NotMirrored::Mismatch(error)) => Some(error),
            Ok(_) | Err(NotMirrored::NotValid(_)) => None,
        }
    }

    async fn follow(
        &self,
        call: &mut Cancelling<'_>,
        request: Request,
        watch: &mut Watch<'_>,
    ) -> Ending {
        loop {
            let by = watch.by();
            // A child that always has more would never let the timer below speak.
            if clock::now() >= by {
                return self.late(call, request);
            }
            let news = tokio::select! {
                biased;
                turn = watch.open.turn() => match turn {
                    Turn::Answered(id, kind, answer) => {
                        watch.limits.sign_of_life();
                        let said = self.answer(&id, listener::spoken(kind, answer));
                        // A child that is gone says so by itself.
                        match said.err().filter(|trouble| trouble.reason == Reason::LocalResources) {
                            Some(trouble) => return answer::unanswered(&self.server, trouble).unknown(),
                            None => continue,
                        }
                    },
                    Turn::Undelivered(trouble) => {
                        return answer::unanswered(&self.server, trouble).unknown();
                    },
                },
                news = call.call.next() => news,
                () = clock::sleep_until(by) => continue,
            };
            match news {
                PipeNews::Notice(message) => {
                    drop(watch.heed_message(message));
                    if !watch.keep_pace().await {
                        return self.late(call, request);
                    }
                },
                PipeNews::Missed(notices) => watch.listener.missed(notices),
                PipeNews::Question(message) => {
                    if let Some(Pause::Ask(asking)) = watch.heed_message(message) {
                        self.hear_question(watch, asking);
                    }
                },
                // Until there is room it counts as untaken, so that the child is read no further.
                PipeNews::Reply(message) => {
                    return match watch.room_for(message.raw().len()).await {
                        true => answer::replied(&self.server, &message),
                        false => answer::late(&self.server),
                    };
                },
                PipeNews::Lost { delivery, trouble } => {
                    return self.lost(delivery, trouble, request);
                },
            }
        }
    }

    /// The call is lost, and mostly the child with it.
    fn lost(&self, delivery: Delivery, trouble: Trouble, request: Request) -> Ending {
        // An answer too large, no room to queue, or nobody who writes it at this moment is the
        // trouble of its call alone.
        let alone = [
            Reason::ReplyTooLarge,
            Reason::LocalResources,
            Reason::TimeoutUnsent,
        ];
        if !alone.contains(&trouble.reason) {
            self.standing.retire(trouble.reason);
        }
        match delivery {
            Delivery::Unsent => trouble.unsent(request),
            Delivery::Refused | Delivery::Answered | Delivery::Unknown => trouble.unknown(),
        }
    }

    /// The time is over: what is known depends on how much of the line the pipe took.
    fn late(&self, call: &Cancelling<'_>, request: Request) -> Ending {
        let server = &self.server;
        match call.call.abandon() {
            Abandoned::Written => {
                call.tell();
                answer::late(server)
            },
            Abandoned::Torn => {
                self.standing.retire(Reason::TimeoutUnsent);
                Trouble::new(
                    Reason::TimeoutUnsent,
                    format!("`{server}` stopped reading in the middle of the request"),
                )
                .because("the rest of the line would be read as another message, so it was ended")
                .unsent(request)
            },
            Abandoned::Unsent => Trouble::new(
                Reason::TimeoutUnsent,
                format!("the request to `{server}` could not be written in time"),
            )
            .because("the program does not read its standard input")
            .unsent(request),
        }
    }

    fn hear_question(&self, watch: &mut Watch<'_>, asking: Asking) {
        // A modern server must not ask over the pipe; nothing may be answered there.
        if self.era() == Era::Modern {
            tracing::debug!(
                server = self.server,
                method = asking.method,
                "request ignored"
            );
            return;
        }
        watch.ask(asking);
    }

    fn answer(&self, id: &[u8], spoken: Spoken) -> Result<(), Trouble> {
        let line = spoken.message(id);
        let said = self.pipe.say(splice::one_line(line.into()));
        if let Err(trouble) = &said {
            tracing::warn!(server = self.server, %trouble, "answer not delivered");
        }
        said
    }

    /// Sends a notification; `params` is a raw JSON object.
    pub(crate) fn notify(&self, method: &str, params: &[u8]) -> Result<(), Trouble> {
        self.pipe.say(notification(method, Some(params)))
    }

    /// Waits until the program is gone.
    pub(crate) async fn ended(&self) -> Stood {
        self.pipe.gone().await;
        self.standing.retire(Reason::ChildExit);
        Stood::Over
    }

    pub(crate) fn report(&self) -> ChildReport {
        self.pipe.report()
    }

    pub(crate) async fn close(&self) {
        self.pipe.close().await;
    }

    fn write(&self, id: u64, request: &Request) -> Bytes {
        if let Some(said) = &self.said {
            return write_modern(id, request, said);
        }
        write_legacy(id, request)
    }
}

impl Back for Piped {
    fn answer(&self, id: &[u8], spoken: Spoken, _: &Own) {
        let line = spoken.message(id);
        // A child that cannot be told is gone, and what it asked with it.
        self.pipe.say(splice::one_line(line.into())).ok();
    }
}

/// The request that stays open, so that a server can tell what changes.
const LISTEN: &str = "subscriptions/listen";

/// A program has no headers: what they say of a trace stands in `_meta`, where nothing does.
fn traced(request: Request) -> Request {
    let said = |name: &str| {
        let found = request.headers().iter().find(|(known, _)| known == name);
        let text = found.and_then(|(_, value)| value.to_str().ok())?;
        let mut raw = Vec::with_capacity(text.len() + 2);
        splice::write_text(&mut raw, text);
        request.params().meta_member(name).is_none().then_some(raw)
    };
    if request.headers().is_empty() {
        return request;
    }
    let parent = said(meta::TRACE_PARENT);
    // What vendors add belongs to its parent.
    let state = parent.as_ref().and_then(|_| said(meta::TRACE_STATE));
    let all = [
        (meta::TRACE_PARENT, parent),
        (meta::TRACE_STATE, state),
        (meta::BAGGAGE, said(meta::BAGGAGE)),
    ];
    let edits: Vec<Edit<'_>> = all
        .iter()
        .filter_map(|(name, raw)| Some(Edit::Set(name, raw.as_deref()?)))
        .collect();
    if edits.is_empty() {
        return request;
    }
    let mut raw = Vec::with_capacity(request.params().raw().len() + 256);
    request.params().write_with(&mut raw, &[], &edits);
    match Params::parse(raw.into()) {
        Ok(params) => request.with_params(params),
        // Edits of a checked object make a checked object.
        Err(_) => request,
    }
}

/// The bytes of a legacy request: its own id, and a progress token so that long tools can show
/// life.
pub(crate) fn write_legacy(id: u64, request: &Request) -> Bytes {
    let token = Digits::of(id);
    let mut body = Vec::with_capacity(128 + request.params().raw().len());
    let meta = [Edit::Set(meta::PROGRESS_TOKEN, token.as_bytes())];
    splice::write_request(
        &mut body,
        id,
        request.method(),
        request.params(),
        &[],
        &meta,
    );
    body.into()
}

/// One line that tells something.
pub(crate) fn notification(method: &str, params: Option<&[u8]>) -> Bytes {
    let mut line = Vec::new();
    splice::write_notification(&mut line, method, params);
    splice::one_line(line.into())
}

/// A call that is cancelled when it is dropped before its end. A call of which nothing has left
/// is only forgotten: the server must not hear of it.
struct Cancelling<'a> {
    pipe: &'a Pipe,
    id: u64,
    /// Who may know the words of whoever gave it up.
    listener: &'a dyn Listener,
    call: PipeCall,
}

impl Cancelling<'_> {
    /// Tells the server that nobody waits any more.
    fn tell(&self) {
        let notice = answer::cancelled(self.id, self.listener);
        // A child that cannot be told is gone, and its call with it.
        self.pipe.say(notice).ok();
    }
}

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        if self.call.is_under_way() {
            self.tell();
        }
    }
}
