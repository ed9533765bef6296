//! Detection over a child's pipes: one shared channel, on which silence is no verdict.

use std::ops::ControlFlow;

use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Request, Trouble};
use warmline_core::key::Transport;
use warmline_core::policy::Sessions;
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::params::Params;
use warmline_core::verdict::{self, Probe, StdioAnswer};

use super::{Opening, client_meta};
use crate::clock;
use crate::upstream::facts::Facts;
use crate::upstream::greeting;
use crate::upstream::limits::Ids;
use crate::upstream::modern::write_modern;
use crate::upstream::pipes::notification;
use crate::upstream::server::StdioReach;
use crate::upstream::session::Driver;
use crate::upstream::stdio::{self, Pipe, PipeCall, PipeNews};
use crate::upstream::wording;

impl Opening<'_> {
    pub(super) async fn stdio(self, reach: &StdioReach) -> Result<(Driver, Facts), Trouble> {
        let pipe = self.spawn(reach).await?;
        let started = pipe.clone();
        let opened = self.on_pipe(pipe, reach).await;
        or_closed(opened, &started).await
    }

    async fn spawn(&self, reach: &StdioReach) -> Result<Pipe, Trouble> {
        // Boxed: a start is rare, and what it needs on its way is large.
        Box::pin(Pipe::spawn(self.server, reach, &self.upstream.children)).await
    }

    async fn on_pipe(mut self, pipe: Pipe, reach: &StdioReach) -> Result<(Driver, Facts), Trouble> {
        let ids = Ids::new();
        if self.era == Some(Era::Legacy) {
            return self.legacy(pipe, ids).await;
        }
        match self.probe(&pipe, &ids).await {
            Probed::Modern(version, message) => {
                let heard = heard_on_pipe(message);
                let facts = self.discovered(version, &heard, Transport::Stdio)?;
                let said = client_meta(version, self.declared);
                pipe.set_questions(stdio::Questions::Ignored);
                Ok((self.piped(pipe, ids, Some(said)), facts))
            },
            Probed::Initialized(message) => self.initialized(pipe, ids, &message),
            Probed::Legacy if self.era.is_none() => {
                self.speaks_no_modern();
                self.legacy(pipe, ids).await
            },
            // Some servers end on any request before `initialize`: a new one gets it first.
            Probed::Ended(_) if self.era.is_none() => {
                let fresh = self.spawn(reach).await?;
                let started = fresh.clone();
                let opened = self.legacy(fresh, Ids::new()).await;
                or_closed(opened, &started).await
            },
            Probed::Legacy => {
                self.speaks_no_modern();
                Err(self.not_offered("it answers `server/discover` as a legacy server does"))
            },
            Probed::Ended(trouble) | Probed::Failed(trouble) => Err(self.in_start(trouble, &pipe)),
        }
    }

    /// Greets a legacy server, unless it shall not be greeted.
    async fn legacy(self, pipe: Pipe, ids: Ids) -> Result<(Driver, Facts), Trouble> {
        if self.server.sessions == Sessions::Never {
            let driver = self.piped(pipe, ids, None);
            return Ok((driver, self.unasked(Transport::Stdio)));
        }
        self.initialize(pipe, ids).await
    }

    /// Asks `server/discover`, and after a silence `initialize` as well.
    async fn probe(&mut self, pipe: &Pipe, ids: &Ids) -> Probed {
        let start_by = clock::after(self.server.times.start);
        let mut silence_by = start_by.min(clock::after(self.server.times.probe_silence));
        let mut asked = Asked {
            discover: self.ask_discover(pipe, ids),
            initialize: None,
        };
        let mut again = true;
        loop {
            let news = match asked.next(silence_by, start_by, self.era).await {
                // It may be slow, or know nothing before a greeting that it shall not get.
                Heard::Silence if self.server.sessions == Sessions::Never => {
                    self.note("server/discover", "silence");
                    return Probed::Legacy;
                },
                Heard::Silence => {
                    self.note(
                        "server/discover",
                        "silence, so `initialize` went out as well",
                    );
                    let call = self.ask_initialize(pipe, ids);
                    asked.initialize = Some(call);
                    asked.next(start_by, start_by, self.era).await
                },
                news @ (Heard::Discover(_)
                | Heard::Initialize(_)
                | Heard::Ended(_)
                | Heard::Nothing) => news,
            };
            let probe = match self.hear(news, pipe) {
                ControlFlow::Continue(probe) => probe,
                ControlFlow::Break(probed) => return probed,
            };
            match probe {
                // Also the server that was only slow, and became modern by our late probe. Either
                // way it is modern now, and silence asks for nothing else any more.
                Probe::RetryAt(_) if std::mem::take(&mut again) => {
                    silence_by = start_by;
                    asked = Asked {
                        discover: self.ask_discover(pipe, ids),
                        initialize: None,
                    };
                },
                Probe::RetryAt(_) => {
                    let last = self.evidence.last();
                    let why = last.map(|last| last.answer.as_str()).unwrap_or_default();
                    return Probed::Failed(self.at_odds(why));
                },
                Probe::Incompatible { supported } => {
                    return Probed::Failed(self.incompatible(&supported));
                },
                Probe::Modern(_)
                | Probe::Legacy { .. }
                | Probe::NoVerdict { .. }
                | Probe::AskBoth
                | Probe::Broken => {
                    let initialize = asked.initialize;
                    return self.legacy_after_probe(pipe, initialize, start_by).await;
                },
            }
        }
    }

    /// What the news of a probe say: a verdict to go on with, or the end of the probe.
    fn hear(&mut self, news: Heard, pipe: &Pipe) -> ControlFlow<Probed, Probe> {
        match news {
            Heard::Silence | Heard::Nothing => {
                ControlFlow::Break(Probed::Failed(self.silent(pipe)))
            },
            Heard::Ended(trouble) => {
                self.note("server/discover", &trouble.what);
                ControlFlow::Break(Probed::Ended(trouble))
            },
            Heard::Discover(message) => {
                match self.read("server/discover", StdioAnswer::Probe(&message)) {
                    Probe::Modern(version) => ControlFlow::Break(Probed::Modern(version, message)),
                    probe @ (Probe::Legacy { .. }
                    | Probe::RetryAt(_)
                    | Probe::Incompatible { .. }
                    | Probe::NoVerdict { .. }
                    | Probe::AskBoth
                    | Probe::Broken) => ControlFlow::Continue(probe),
                }
            },
            Heard::Initialize(message) => {
                let probe = self.read("initialize", StdioAnswer::Initialize(&message));
                if matches!(probe, Probe::RetryAt(_)) {
                    return ControlFlow::Continue(probe);
                }
                ControlFlow::Break(Probed::Initialized(message))
            },
        }
    }

    /// The probe said legacy. If the handshake is on its way already, its answer comes next.
    async fn legacy_after_probe(
        &mut self,
        pipe: &Pipe,
        initialize: Option<PipeCall>,
        by: clock::Instant,
    ) -> Probed {
        let Some(call) = initialize else {
            return Probed::Legacy;
        };
        match self.await_initialize(pipe, call, by).await {
            Ok(message) => {
                self.note("initialize", &wording::message_words(&message));
                Probed::Initialized(message)
            },
            Err(trouble) => Probed::Failed(trouble),
        }
    }

    fn read(&mut self, step: &'static str, answer: StdioAnswer<'_>) -> Probe {
        let reading = verdict::read_probe_stdio(answer);
        let words = match answer {
            StdioAnswer::Probe(message) | StdioAnswer::Initialize(message) => {
                wording::message_words(message)
            },
            StdioAnswer::Silence => "silence".to_owned(),
            StdioAnswer::Exit => "the program ended".to_owned(),
        };
        self.note(step, &format!("{words} ({})", reading.row));
        reading.probe
    }

    fn ask_discover(&self, pipe: &Pipe, ids: &Ids) -> PipeCall {
        let id = ids.next();
        let request = Request::new("server/discover", Params::empty());
        let said = client_meta(Version::NEWEST_MODERN, self.declared);
        pipe.request(id, write_modern(id, &request, &said))
    }

    fn ask_initialize(&self, pipe: &Pipe, ids: &Ids) -> PipeCall {
        let id = ids.next();
        let line = self.declared.initialize(id, self.offer(None).version());
        pipe.request(id, line)
    }

    async fn initialize(mut self, pipe: Pipe, ids: Ids) -> Result<(Driver, Facts), Trouble> {
        let call = self.ask_initialize(&pipe, &ids);
        let by = clock::after(self.server.times.start);
        match self.await_initialize(&pipe, call, by).await {
            Ok(message) => {
                self.note("initialize", &wording::message_words(&message));
                self.initialized(pipe, ids, &message)
            },
            Err(trouble) => Err(self.in_start(trouble, &pipe)),
        }
    }

    async fn await_initialize(
        &mut self,
        pipe: &Pipe,
        mut call: PipeCall,
        by: clock::Instant,
    ) -> Result<Message, Trouble> {
        loop {
            match clock::timeout_at(by, call.next()).await {
                Ok(PipeNews::Reply(message)) => return Ok(message),
                Ok(PipeNews::Notice(_) | PipeNews::Question(_) | PipeNews::Missed(_)) => {},
                Ok(PipeNews::Lost { trouble, .. }) => return Err(trouble),
                Err(clock::Elapsed) => return Err(self.silent(pipe)),
            }
        }
    }

    fn initialized(
        self,
        pipe: Pipe,
        ids: Ids,
        message: &Message,
    ) -> Result<(Driver, Facts), Trouble> {
        let offer = self.offer(None);
        let opened = greeting::read_initialize(&self.server.name, message);
        let opened = opened.map_err(|trouble| offer.explain(trouble))?;
        offer.accepts(&self.server.name, opened.version)?;
        pipe.speak(opened.version);
        pipe.say(notification("notifications/initialized", None))?;
        let driver = self.piped(pipe, ids, None);
        let mut facts = opened.facts(Transport::Stdio, true);
        facts.evidence = self.evidence;
        Ok((driver, facts))
    }
}

/// An opening that failed is told when its process is gone: whoever hears of it may start another
/// in its place.
async fn or_closed<T>(opened: Result<T, Trouble>, started: &Pipe) -> Result<T, Trouble> {
    if opened.is_err() {
        started.close().await;
    }
    opened
}

/// What a probe over stdio came to.
enum Probed {
    Modern(Version, Message),
    Legacy,
    Initialized(Message),
    Ended(Trouble),
    Failed(Trouble),
}

/// The requests of a probe that wait for their answers.
struct Asked {
    discover: PipeCall,
    initialize: Option<PipeCall>,
}

/// What the pipe brought for a probe.
enum Heard {
    Discover(Message),
    Initialize(Message),
    Ended(Trouble),
    /// Nothing yet; the time for a probe alone is over.
    Silence,
    /// Nothing; the time to start is over.
    Nothing,
}

impl Asked {
    async fn next(
        &mut self,
        silence_by: clock::Instant,
        start_by: clock::Instant,
        era: Option<Era>,
    ) -> Heard {
        // Where the era is said there is nothing else to ask.
        let alone = self.initialize.is_none() && era.is_none() && silence_by < start_by;
        let by = if alone { silence_by } else { start_by };
        loop {
            let (news, of_discover) = tokio::select! {
                biased;
                news = self.discover.next() => (news, true),
                news = next_of(&mut self.initialize) => (news, false),
                () = clock::sleep_until(by) => {
                    return if alone { Heard::Silence } else { Heard::Nothing };
                },
            };
            match news {
                PipeNews::Notice(_) | PipeNews::Question(_) | PipeNews::Missed(_) => {},
                PipeNews::Lost { trouble, .. } => return Heard::Ended(trouble),
                PipeNews::Reply(message) if of_discover => return Heard::Discover(message),
                PipeNews::Reply(message) => return Heard::Initialize(message),
            }
        }
    }
}

async fn next_of(call: &mut Option<PipeCall>) -> PipeNews {
    match call {
        Some(call) => call.next().await,
        None => std::future::pending().await,
    }
}

fn heard_on_pipe(message: Message) -> greeting::Heard {
    greeting::Heard {
        status: 200,
        words: wording::message_words(&message),
        message: Some(message),
        trouble: None,
    }
}
