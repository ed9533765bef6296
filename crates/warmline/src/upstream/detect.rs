//! Detection: how the era of a server is found out, and a session opened in it.
//!
//! Asked by: [`Upstream::open`].  The rows (what an answer means) are in
//! [`warmline_core::verdict`]; this file asks the questions and takes the next step.
//!
//! The probe is always `server/discover`, which has no side effects; never a `tools/call`, which
//! some legacy servers run without a handshake. An outage, a refused credential or a busy server
//! is no verdict. Over stdio silence is none either: after a while `initialize` goes out as well,
//! and whatever is answered first decides.

use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Request, Trouble};
use warmline_core::protocol::envelope::Message;
use warmline_core::protocol::handshake;
use warmline_core::protocol::meta::ClientMeta;
use warmline_core::protocol::params::Params;
use warmline_core::verdict::{self, HttpAnswer, Probe, StdioAnswer};

use super::Upstream;
use super::answer;
use super::legacy::LegacyHttp;
use super::limits::Ids;
use super::modern::{ModernHttp, write_modern};
use super::pipes::{Piped, notification};
use super::server::{HttpReach, Reach, Server, StdioReach};
use super::session::{Declared, Driver, Evidence, Facts, Session, Transport};
use super::stdio::{self, Pipe, PipeCall, PipeNews};
use crate::clock;

/// Opens a session, finding out the era unless it is said.
pub(crate) async fn open(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
) -> Result<Session, Trouble> {
    let began = clock::now();
    let opening = Opening {
        upstream,
        server,
        declared,
        evidence: Vec::new(),
    };
    let (driver, mut facts) = match &server.reach {
        Reach::Http(reach) => opening.http(reach).await?,
        Reach::Stdio(reach) => opening.stdio(reach).await?,
    };
    facts.opened_in = began.elapsed();
    Ok(Session::new(driver, facts))
}

/// An opening under way, and what it has learnt.
struct Opening<'a> {
    upstream: &'a Upstream,
    server: &'a Server,
    declared: &'a Declared,
    evidence: Vec<Evidence>,
}

impl Opening<'_> {
    async fn http(mut self, reach: &HttpReach) -> Result<(Driver, Facts), Trouble> {
        if self.server.era == Some(Era::Legacy) {
            return self.http_legacy(reach, Version::NEWEST_LEGACY).await;
        }
        let (endpoint, base) = self.upstream.endpoint(self.server, reach)?;
        let said = (Version::NEWEST_MODERN, self.declared);
        let modern = ModernHttp::new(endpoint, base, said, (self.server.times, self.server.sizes));
        let mut heard = modern.discover().await?;
        let mut again = true;
        loop {
            let answer = HttpAnswer::Status(heard.status, heard.message.as_ref());
            let reading = verdict::read_probe_http(answer, Version::NEWEST_MODERN);
            self.note(
                "server/discover",
                &format!("{} ({})", heard.words, reading.row),
            );
            match reading.probe {
                Probe::Modern(version) => {
                    let facts = self.discovered(version, &heard, Transport::Http)?;
                    return Ok((Driver::ModernHttp(Box::new(modern)), facts));
                },
                Probe::RetryAt(_) if std::mem::take(&mut again) => {
                    heard = modern.discover().await?;
                },
                Probe::Legacy { best } if self.server.era.is_none() => {
                    return self
                        .http_legacy(reach, best.unwrap_or(Version::NEWEST_LEGACY))
                        .await;
                },
                other @ (Probe::Legacy { .. }
                | Probe::RetryAt(_)
                | Probe::Incompatible { .. }
                | Probe::NoVerdict { .. }
                | Probe::AskBoth
                | Probe::Broken) => return Err(self.no_session(&other, heard)),
            }
        }
    }

    async fn http_legacy(
        mut self,
        reach: &HttpReach,
        offer: Version,
    ) -> Result<(Driver, Facts), Trouble> {
        let (endpoint, base) = self.upstream.endpoint(self.server, reach)?;
        let (session, mut facts) = LegacyHttp::open(
            endpoint,
            base,
            (offer, self.declared),
            (self.server.times, self.server.sizes),
            &mut self.evidence,
        )
        .await
        .map_err(in_handshake)?;
        facts.evidence = self.evidence;
        Ok((Driver::LegacyHttp(session), facts))
    }

    async fn stdio(mut self, reach: &StdioReach) -> Result<(Driver, Facts), Trouble> {
        if self.server.era == Some(Era::Legacy) {
            let pipe = Pipe::spawn(self.server, reach).await?;
            return self.initialize(pipe, Ids::new()).await;
        }
        let pipe = Pipe::spawn(self.server, reach).await?;
        let ids = Ids::new();
        match self.probe(&pipe, &ids).await {
            Probed::Modern(version, message) => {
                let heard = heard_on_pipe(message);
                let facts = self.discovered(version, &heard, Transport::Stdio)?;
                let said = client_meta(version, self.declared);
                pipe.set_questions(stdio::Questions::Ignored);
                Ok((self.piped(pipe, ids, Some(said)), facts))
            },
            Probed::Initialized(message) => self.initialized(pipe, ids, &message),
            Probed::Legacy if self.server.era.is_none() => self.initialize(pipe, ids).await,
            // Some servers end on any request before `initialize`: a new one gets it first.
            Probed::Ended(_) if self.server.era.is_none() => {
                let fresh = Pipe::spawn(self.server, reach).await?;
                self.initialize(fresh, Ids::new()).await
            },
            Probed::Legacy => {
                Err(self.not_offered("it answers `server/discover` as a legacy server does"))
            },
            Probed::Ended(trouble) | Probed::Failed(trouble) => Err(self.in_start(trouble, &pipe)),
        }
    }

    /// Asks `server/discover`, and after a silence `initialize` as well.
    async fn probe(&mut self, pipe: &Pipe, ids: &Ids) -> Probed {
        let start_by = clock::now() + self.server.times.start;
        let silence_by = start_by.min(clock::now() + self.server.times.probe_silence);
        let mut asked = Asked {
            discover: self.ask_discover(pipe, ids),
            initialize: None,
        };
        for _ in 0..=MAX_REPEATS {
            let news = match asked.next(silence_by, start_by, self.server.era).await {
                Heard::Silence => {
                    self.note(
                        "server/discover",
                        "silence, so `initialize` went out as well",
                    );
                    let call = self.ask_initialize(pipe, ids, Version::NEWEST_LEGACY);
                    asked.initialize = Some(call);
                    asked.next(start_by, start_by, self.server.era).await
                },
                news @ (Heard::Discover(_)
                | Heard::Initialize(_)
                | Heard::Ended(_)
                | Heard::Nothing) => news,
            };
            let probe = match self.hear(news) {
                Ok(probe) => probe,
                Err(probed) => return probed,
            };
            match probe {
                // Also the server that was only slow, and became modern by our late probe.
                Probe::RetryAt(_) => {
                    asked = Asked {
                        discover: self.ask_discover(pipe, ids),
                        initialize: None,
                    };
                },
                Probe::Incompatible { supported } => {
                    return Probed::Failed(self.incompatible(&supported));
                },
                Probe::Modern(_)
                | Probe::Legacy { .. }
                | Probe::NoVerdict { .. }
                | Probe::AskBoth
                | Probe::Broken => {
                    return self.legacy_after_probe(asked.initialize, start_by).await;
                },
            }
        }
        Probed::Failed(self.silent())
    }

    /// What the news of a probe say: a verdict to go on with, or the end of the probe.
    fn hear(&mut self, news: Heard) -> Result<Probe, Probed> {
        match news {
            Heard::Silence | Heard::Nothing => Err(Probed::Failed(self.silent())),
            Heard::Ended(trouble) => {
                self.note("server/discover", &trouble.what);
                Err(Probed::Ended(trouble))
            },
            Heard::Discover(message) => {
                match self.read("server/discover", StdioAnswer::Probe(&message)) {
                    Probe::Modern(version) => Err(Probed::Modern(version, message)),
                    probe @ (Probe::Legacy { .. }
                    | Probe::RetryAt(_)
                    | Probe::Incompatible { .. }
                    | Probe::NoVerdict { .. }
                    | Probe::AskBoth
                    | Probe::Broken) => Ok(probe),
                }
            },
            Heard::Initialize(message) => {
                let probe = self.read("initialize", StdioAnswer::Initialize(&message));
                if matches!(probe, Probe::RetryAt(_)) {
                    return Ok(probe);
                }
                Err(Probed::Initialized(message))
            },
        }
    }

    /// The probe said legacy. If the handshake is on its way already, its answer comes next.
    async fn legacy_after_probe(
        &mut self,
        initialize: Option<PipeCall>,
        by: clock::Instant,
    ) -> Probed {
        let Some(call) = initialize else {
            return Probed::Legacy;
        };
        match self.await_initialize(call, by).await {
            Ok(message) => Probed::Initialized(message),
            Err(trouble) => Probed::Failed(trouble),
        }
    }

    fn read(&mut self, step: &'static str, answer: StdioAnswer<'_>) -> Probe {
        let reading = verdict::read_probe_stdio(answer);
        let words = match answer {
            StdioAnswer::Probe(message) | StdioAnswer::Initialize(message) => {
                answer::message_words(message)
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

    fn ask_initialize(&self, pipe: &Pipe, ids: &Ids, offer: Version) -> PipeCall {
        let id = ids.next();
        let mut line = Vec::with_capacity(256);
        handshake::write_initialize(
            &mut line,
            id,
            offer,
            &self.declared.capabilities,
            &self.declared.client_name,
            &self.declared.client_version,
        );
        pipe.request(id, line.into())
    }

    async fn initialize(mut self, pipe: Pipe, ids: Ids) -> Result<(Driver, Facts), Trouble> {
        let call = self.ask_initialize(&pipe, &ids, Version::NEWEST_LEGACY);
        let by = clock::now() + self.server.times.start;
        match self.await_initialize(call, by).await {
            Ok(message) => {
                self.note("initialize", &answer::message_words(&message));
                self.initialized(pipe, ids, &message)
            },
            Err(trouble) => Err(self.in_start(trouble, &pipe)),
        }
    }

    async fn await_initialize(
        &mut self,
        mut call: PipeCall,
        by: clock::Instant,
    ) -> Result<Message, Trouble> {
        loop {
            match clock::timeout_at(by, call.next()).await {
                Ok(PipeNews::Reply(message)) => return Ok(message),
                Ok(PipeNews::Notice(_) | PipeNews::Question(_)) => {},
                Ok(PipeNews::Lost { trouble, .. }) => return Err(trouble),
                Err(clock::Elapsed) => return Err(self.silent()),
            }
        }
    }

    fn initialized(
        self,
        pipe: Pipe,
        ids: Ids,
        message: &Message,
    ) -> Result<(Driver, Facts), Trouble> {
        let opened = answer::read_initialize(&self.server.name, message)?;
        pipe.say(notification("notifications/initialized", None));
        let driver = self.piped(pipe, ids, None);
        let mut facts = opened.facts(Transport::Stdio, true);
        facts.evidence = self.evidence;
        Ok((driver, facts))
    }

    fn piped(&self, pipe: Pipe, ids: Ids, said: Option<ClientMeta>) -> Driver {
        Driver::Piped(Box::new(Piped::new(&self.server.name, pipe, ids, said)))
    }

    /// The facts of a modern server, from what it said of itself.
    fn discovered(
        &mut self,
        version: Version,
        heard: &answer::Heard,
        transport: Transport,
    ) -> Result<Facts, Trouble> {
        let result = heard
            .message
            .as_ref()
            .and_then(Message::result)
            .unwrap_or_default();
        let found = handshake::read_discover_result(&result).map_err(|malformed| {
            Trouble::new(
                Reason::Handshake,
                format!(
                    "`{}` answered `server/discover` in a form that is not MCP",
                    self.server.name
                ),
            )
            .because(malformed.to_string())
        })?;
        Ok(Facts {
            era: Era::Modern,
            version,
            transport,
            // A process keeps what it likes; behind a URL nothing belongs to a session.
            keeps_session: transport == Transport::Stdio,
            server_info: found.server_info,
            capabilities: found.capabilities,
            instructions: found.instructions,
            evidence: std::mem::take(&mut self.evidence),
            opened_in: std::time::Duration::ZERO,
        })
    }

    fn no_session(&self, probe: &Probe, heard: answer::Heard) -> Trouble {
        match probe {
            Probe::Legacy { .. } => self.not_offered(&heard.words),
            Probe::Incompatible { supported } => self.incompatible(supported),
            Probe::Modern(_)
            | Probe::RetryAt(_)
            | Probe::NoVerdict { .. }
            | Probe::AskBoth
            | Probe::Broken => heard.trouble.map_or_else(
                || {
                    Trouble::new(
                        Reason::Handshake,
                        format!("`{}` cannot be understood", self.server.name),
                    )
                    .because(heard.words.clone())
                },
                in_handshake,
            ),
        }
    }

    fn not_offered(&self, why: &str) -> Trouble {
        Trouble::new(
            Reason::Version,
            format!("`{}` does not speak the modern era", self.server.name),
        )
        .because(why)
        .hint("leave the era to be found out, or say `legacy`")
    }

    fn incompatible(&self, supported: &[String]) -> Trouble {
        Trouble::new(
            Reason::Version,
            format!("`{}` speaks no version that we speak", self.server.name),
        )
        .because(format!(
            "it supports {}",
            answer::plain(supported.join(", ").as_bytes(), 200)
        ))
    }

    fn silent(&self) -> Trouble {
        let limit = self.server.times.start.as_secs();
        Trouble::new(
            Reason::SilentServer,
            format!(
                "`{}` did not answer the handshake within {limit} s",
                self.server.name
            ),
        )
    }

    /// A child that failed to start says why on its standard error.
    fn in_start(&self, trouble: Trouble, pipe: &Pipe) -> Trouble {
        if trouble.why.is_some() {
            return in_handshake(trouble);
        }
        let tail = pipe.report().stderr_tail;
        match tail.lines().last() {
            Some(last) => in_handshake(trouble.because(format!("{last} (last line of stderr)"))),
            None => in_handshake(trouble),
        }
    }

    fn note(&mut self, step: &'static str, answer: &str) {
        self.evidence.push(Evidence {
            step,
            answer: answer.to_owned(),
        });
    }
}

/// What a probe over stdio came to.
enum Probed {
    Modern(Version, Message),
    Legacy,
    Initialized(Message),
    Ended(Trouble),
    Failed(Trouble),
}

/// How often the probe is repeated: once at another version, once more for a slow server.
const MAX_REPEATS: u32 = 2;

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
                PipeNews::Notice(_) | PipeNews::Question(_) => {},
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

fn client_meta(version: Version, declared: &Declared) -> ClientMeta {
    ClientMeta::new(
        version,
        declared.capabilities.clone(),
        &declared.client_name,
        &declared.client_version,
    )
}

fn heard_on_pipe(message: Message) -> answer::Heard {
    answer::Heard {
        status: 200,
        words: answer::message_words(&message),
        message: Some(message),
        trouble: None,
    }
}

/// What goes wrong while a session opens is a failed opening, whatever it would mean for a call.
fn in_handshake(mut trouble: Trouble) -> Trouble {
    if trouble.reason == Reason::BadReply {
        trouble.reason = Reason::NotMcp;
        trouble
            .hint
            .get_or_insert_with(|| "check the URL: an MCP endpoint often ends in /mcp".to_owned());
    }
    if trouble.code.usual_delivery() != Some(Delivery::Unsent)
        && trouble.code != warmline_core::code::Code::CredentialRefused
    {
        trouble.code = warmline_core::code::Code::OpenFailed;
    }
    trouble
}
