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
use warmline_core::protocol::envelope::{Kind, Message};
use warmline_core::protocol::handshake;
use warmline_core::protocol::meta::ClientMeta;
use warmline_core::protocol::params::Params;
use warmline_core::verdict::{self, HttpAnswer, Probe, StdioAnswer};

use super::Upstream;
use super::answer::{self, Heard};
use super::legacy::LegacyHttp;
use super::limits::Ids;
use super::modern::{ModernHttp, write_modern};
use super::pipes::{Piped, notification};
use super::server::{HttpReach, Reach, Server, StdioReach};
use super::session::{Declared, Driver, Evidence, Facts, Session, Transport};
use super::stdio::{Pipe, PipeCall, PipeNews, Questions};
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
                    return Ok((Driver::ModernHttp(modern), facts));
                },
                Probe::RetryAt(_) if std::mem::take(&mut again) => {
                    heard = modern.discover().await?;
                },
                Probe::Legacy { best } if self.server.era.is_none() => {
                    return self
                        .http_legacy(reach, best.unwrap_or(Version::NEWEST_LEGACY))
                        .await;
                },
                other => return Err(self.no_session(&other, heard)),
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
                pipe.set_questions(Questions::Ignored);
                Ok((
                    Driver::Piped(Piped::new(&self.server.name, pipe, ids, Some(said))),
                    facts,
                ))
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
        let silence_by = clock::now() + self.server.times.probe_silence;
        let mut discover = self.ask_discover(pipe, ids);
        let mut initialize: Option<PipeCall> = None;
        let mut repeats = 2;
        loop {
            let waits = initialize.is_none() && self.server.era.is_none();
            let by = if waits {
                silence_by.min(start_by)
            } else {
                start_by
            };
            let news = tokio::select! {
                biased;
                news = discover.next() => (News::Discover, news),
                news = next_of(&mut initialize) => (News::Initialize, news),
                () = clock::sleep_until(by) => {
                    if waits && clock::now() < start_by {
                        self.note("server/discover", "silence, so `initialize` went out as well");
                        initialize = Some(self.ask_initialize(pipe, ids, Version::NEWEST_LEGACY));
                        continue;
                    }
                    return Probed::Failed(self.silent());
                },
            };
            match news {
                (_, PipeNews::Notice(_) | PipeNews::Question(_)) => {},
                (_, PipeNews::Lost { trouble, .. }) => {
                    self.note("server/discover", &trouble.what);
                    return Probed::Ended(trouble);
                },
                (News::Discover, PipeNews::Reply(message)) => {
                    let reading = verdict::read_probe_stdio(StdioAnswer::Probe(&message));
                    self.note(
                        "server/discover",
                        &format!("{} ({})", words(&message), reading.row),
                    );
                    match reading.probe {
                        Probe::Modern(version) => return Probed::Modern(version, message),
                        Probe::RetryAt(_) if repeats > 0 => {
                            repeats -= 1;
                            discover = self.ask_discover(pipe, ids);
                        },
                        Probe::Incompatible { supported } => {
                            return Probed::Failed(self.incompatible(&supported));
                        },
                        // The handshake is on its way already: its answer comes next.
                        _ if initialize.is_some() => {
                            return match self.await_initialize(initialize, start_by).await {
                                Ok(message) => Probed::Initialized(message),
                                Err(trouble) => Probed::Failed(trouble),
                            };
                        },
                        _ => return Probed::Legacy,
                    }
                },
                (News::Initialize, PipeNews::Reply(message)) => {
                    let reading = verdict::read_probe_stdio(StdioAnswer::Initialize(&message));
                    self.note(
                        "initialize",
                        &format!("{} ({})", words(&message), reading.row),
                    );
                    // The server was only slow, and has become modern by our late probe.
                    if matches!(reading.probe, Probe::RetryAt(_)) && repeats > 0 {
                        repeats -= 1;
                        initialize = None;
                        discover = self.ask_discover(pipe, ids);
                        continue;
                    }
                    return Probed::Initialized(message);
                },
            }
        }
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
        match self.await_initialize(Some(call), by).await {
            Ok(message) => {
                self.note("initialize", &words(&message));
                self.initialized(pipe, ids, &message)
            },
            Err(trouble) => Err(self.in_start(trouble, &pipe)),
        }
    }

    async fn await_initialize(
        &mut self,
        mut call: Option<PipeCall>,
        by: clock::Instant,
    ) -> Result<Message, Trouble> {
        loop {
            match clock::timeout_at(by, next_of(&mut call)).await {
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
        let mut facts = opened.facts(Transport::Stdio, true);
        facts.evidence = self.evidence;
        Ok((
            Driver::Piped(Piped::new(&self.server.name, pipe, ids, None)),
            facts,
        ))
    }

    /// The facts of a modern server, from what it said of itself.
    fn discovered(
        &mut self,
        version: Version,
        heard: &Heard,
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

    fn no_session(&self, probe: &Probe, heard: Heard) -> Trouble {
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

enum News {
    Discover,
    Initialize,
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

fn heard_on_pipe(message: Message) -> Heard {
    Heard {
        status: 200,
        words: words(&message),
        message: Some(message),
        trouble: None,
    }
}

/// What a message over the pipe says, in a few words.
fn words(message: &Message) -> String {
    match (message.kind(), message.error()) {
        (Kind::Error, Some(error)) => answer::error_words(&error),
        (Kind::Result, _) => "a result".to_owned(),
        _ => "a message that is no answer".to_owned(),
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
