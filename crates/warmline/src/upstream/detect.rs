//! Detection: how the era of a server is found out, and a session opened in it.
//!
//! Asked by: [`Upstream::open`].  The rows (what an answer means) are in
//! [`warmline_core::verdict`]; this file asks the questions and takes the next step.
//!
//! The probe is always `server/discover`, which has no side effects; never a `tools/call`, which
//! some legacy servers run without a handshake. An outage, a refused credential or a busy server
//! is no verdict. Over stdio silence is none either: after a while `initialize` goes out as well,
//! and whatever is answered first decides.

mod pipe;
mod two_endpoints;

use std::sync::Arc;

use bytes::Bytes;
use warmline_core::code::{Code, Reason};
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::Trouble;
use warmline_core::key::Transport;
use warmline_core::policy::Sessions;
use warmline_core::protocol::envelope::{Kind, Message, RpcError};
use warmline_core::protocol::handshake;
use warmline_core::protocol::meta::ClientMeta;
use warmline_core::verdict::{self, HttpAnswer, Probe};

use super::Upstream;
use super::facts::{Evidence, Facts};
use super::greeting::{self, Offer};
use super::hearing;
use super::hidden::Hidden;
use super::legacy::{INITIALIZED, LegacyHttp};
use super::limits::Ids;
use super::modern::ModernHttp;
use super::pipes::Piped;
use super::server::{HttpReach, Reach, Server};
use super::session::{Declared, Driver, Session};
use super::stdio::{self, Pipe};
use super::unheard::Unheard;
use super::verdicts::{Held, Learnt};
use super::wording;
use crate::clock;

/// Opens a session, finding out the era unless it is said or remembered.
pub(crate) async fn open(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
) -> Result<Session, Trouble> {
    let verdict = upstream.verdicts.recall(server, declared);
    let known = verdict
        .as_ref()
        .and_then(|verdict| match server.said_era() {
            Some(era) => verdict.leg(era),
            None => verdict.preferred(),
        });
    if let Some(known) = known {
        let said = server.in_era(known.era);
        match Opening::begin(upstream, &said, declared)?
            .run(Some(known))
            .await
        {
            Err(trouble) if speaks_of_the_era(&trouble) => {
                upstream.verdicts.forget(server, declared);
                if server.said_era().is_some() {
                    return Err(trouble);
                }
            },
            opened => return opened,
        }
    }
    ask(upstream, server, declared).await
}

/// The same, whatever is remembered.
pub(crate) async fn ask(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
) -> Result<Session, Trouble> {
    let opening = Opening::begin(upstream, server, declared)?;
    opening.run(None).await
}

/// Whether a failed opening says that what we remembered of the server is no longer true.
pub(crate) fn speaks_of_the_era(trouble: &Trouble) -> bool {
    let reasons = [
        Reason::Version,
        Reason::Handshake,
        Reason::NotMcp,
        Reason::Rejected,
        Reason::NotFound,
        Reason::SilentServer,
        Reason::ChildExit,
    ];
    reasons.contains(&trouble.reason)
}

/// What a POST to a URL gets where nothing takes one.
const NO_POST: [Reason; 2] = [Reason::NotFound, Reason::Rejected];

/// An opening under way, and what it has learnt.
struct Opening<'a> {
    upstream: &'a Upstream,
    server: &'a Server,
    /// The era to speak; none finds out.
    era: Option<Era>,
    declared: &'a Declared,
    evidence: Vec<Evidence>,
}

impl<'a> Opening<'a> {
    fn begin(
        upstream: &'a Upstream,
        server: &'a Server,
        declared: &'a Declared,
    ) -> Result<Self, Trouble> {
        let era = server.said_era();
        if let Some(version) = server.version.filter(|version| era != Some(version.era())) {
            return Err(at_odds_with_itself(server, version));
        }
        Ok(Self {
            upstream,
            server,
            era,
            declared,
            evidence: Vec::new(),
        })
    }

    /// What `initialize` offers, where nothing better is known than the newest version.
    fn offer(&self, best: Option<Version>) -> Offer {
        match self.server.version {
            Some(wanted) => Offer::Exactly(wanted),
            None => Offer::UpTo(self.spoken().or(best).unwrap_or(Version::NEWEST_LEGACY)),
        }
    }

    /// The legacy version that the client behind us speaks, if it said one.
    fn spoken(&self) -> Option<Version> {
        let stated = self.declared.version;
        stated.filter(|version| version.era() == Era::Legacy)
    }

    async fn run(self, known: Option<&Facts>) -> Result<Session, Trouble> {
        let began = clock::now();
        let (upstream, server, declared) = (self.upstream, self.server, self.declared);
        let (driver, mut facts) = match &server.reach {
            Reach::Http(reach) => self.http(reach, known).await?,
            Reach::Stdio(reach) => self.stdio(reach).await?,
        };
        if !facts.evidence.is_empty() {
            let hidden = Hidden::of_server(server);
            for seen in &mut facts.evidence {
                seen.answer = hidden.strike(std::mem::take(&mut seen.answer));
            }
        }
        facts.opened_in = began.elapsed();
        let facts = upstream.facts.share(Arc::new(facts));
        let learnt = match known {
            Some(_) => Learnt::Confirmed,
            None => Learnt::Asked,
        };
        upstream.verdicts.learn(server, declared, &facts, learnt);
        let verdict = match driver {
            Driver::ModernHttp(_) => Some(Held::new(&upstream.verdicts, server, declared)),
            Driver::LegacyHttp(_) | Driver::Piped(_) | Driver::TwoEndpoints(_) => None,
        };
        Ok(Session::new(driver, facts, verdict))
    }

    async fn http(
        self,
        reach: &HttpReach,
        known: Option<&Facts>,
    ) -> Result<(Driver, Facts), Trouble> {
        if self.era == Some(Era::Legacy) {
            return self.http_legacy(reach, None, known).await;
        }
        let head = self.upstream.letterhead(self.server, reach)?;
        let modern = ModernHttp::new(head, (Version::NEWEST_MODERN, self.declared))
            .heard_by(hearing(self.server));
        // Nothing is opened with a modern server over HTTP: what is remembered is all there is.
        if let Some(known) = known {
            return Ok((Driver::ModernHttp(Box::new(modern)), known.clone()));
        }
        self.http_probe(reach, modern).await
    }

    async fn http_probe(
        mut self,
        reach: &HttpReach,
        modern: ModernHttp,
    ) -> Result<(Driver, Facts), Trouble> {
        let mut heard = modern.discover().await.map_err(in_handshake)?;
        let mut again = true;
        loop {
            let reading = verdict::read_probe_http(as_answer(&heard), Version::NEWEST_MODERN);
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
                    heard = modern.discover().await.map_err(in_handshake)?;
                },
                Probe::Legacy { best } => {
                    self.speaks_no_modern();
                    if self.era.is_none() {
                        return self.http_legacy(reach, best, None).await;
                    }
                    return Err(self.not_offered(&heard.words));
                },
                other @ (Probe::RetryAt(_)
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
        best: Option<Version>,
        known: Option<&Facts>,
    ) -> Result<(Driver, Facts), Trouble> {
        let head = self.upstream.letterhead(self.server, reach)?;
        if self.server.sessions == Sessions::Never {
            let (version, heard) = (self.server.version, hearing(self.server));
            let session = LegacyHttp::without_session(head, version, heard);
            return Ok((Driver::LegacyHttp(session), self.unasked(Transport::Http)));
        }
        // Where a POST was not taken the last time, it need not be tried first.
        if known.is_some_and(|known| known.transport == Transport::HttpSse)
            && let Some(opened) = self.two_endpoints(reach).await
        {
            return opened.map_err(in_handshake);
        }
        let offer = self.offer(best);
        let mut tries = 0;
        loop {
            tries += 1;
            let said = (offer, self.declared);
            let heard = (hearing(self.server), Unheard::of(self.server));
            let opened = LegacyHttp::open(head.clone(), said, heard, &mut self.evidence);
            match opened.await {
                Ok((session, mut facts)) => {
                    facts.evidence = self.evidence;
                    return Ok((Driver::LegacyHttp(session), facts));
                },
                // The answer broke off, or the second half of the handshake was not taken: both
                // may be chance, so there is one more try.
                Err(trouble) if tries == 1 && self.was_chance(&trouble) => {},
                Err(trouble) if NO_POST.contains(&trouble.reason) && !self.was_greeted() => {
                    let opened = self.two_endpoints(reach).await;
                    return opened.unwrap_or(Err(trouble)).map_err(in_handshake);
                },
                Err(trouble) => return Err(in_handshake(trouble)),
            }
        }
    }

    /// The server answered the probe as a legacy one does: that is worth remembering, so that it
    /// is not asked anew by everybody who would like to speak so.
    fn speaks_no_modern(&self) {
        let verdicts = &self.upstream.verdicts;
        verdicts.learn_missing(self.server, self.declared, Era::Modern);
    }

    fn was_chance(&self, trouble: &Trouble) -> bool {
        trouble.reason == Reason::ReplyLost || self.was_greeted()
    }

    /// Whether `initialize` was answered, and only the second half of the handshake was not taken.
    fn was_greeted(&self) -> bool {
        let last = self.evidence.last();
        last.is_some_and(|last| last.step == INITIALIZED)
    }

    fn piped(&self, pipe: Pipe, ids: Ids, said: Option<ClientMeta>) -> Driver {
        Driver::Piped(Box::new(Piped::new(&self.server.name, pipe, ids, said)))
    }

    /// The facts of a legacy server that shall not be greeted: it said nothing of itself.
    fn unasked(self, transport: Transport) -> Facts {
        Facts {
            era: Era::Legacy,
            // What a server must take for granted where nobody says anything else.
            version: self.server.version.unwrap_or(Version::V2025_03_26),
            transport,
            keeps_session: transport == Transport::Stdio,
            server_info: None,
            capabilities: Bytes::from_static(b"{}"),
            instructions: None,
            evidence: self.evidence,
            opened_in: std::time::Duration::ZERO,
            expires_in: None,
            said: None,
            heard: None,
        }
    }

    /// The facts of a modern server, from what it said of itself.
    fn discovered(
        &mut self,
        version: Version,
        heard: &greeting::Heard,
        transport: Transport,
    ) -> Result<Facts, Trouble> {
        // A server that knows the modern errors is modern, even if it refuses our probe.
        if let Some(error) = heard.message.as_ref().and_then(Message::error) {
            return Err(greeting::refused_handshake(
                &self.server.name,
                "server/discover",
                &error,
            ));
        }
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
            expires_in: None,
            said: Some(result),
            heard: Some(clock::now()),
        })
    }

    fn no_session(&self, probe: &Probe, heard: greeting::Heard) -> Trouble {
        match probe {
            Probe::Incompatible { supported } => self.incompatible(supported),
            Probe::RetryAt(_) => self.at_odds(&heard.words),
            Probe::Modern(_)
            | Probe::Legacy { .. }
            | Probe::NoVerdict { .. }
            | Probe::AskBoth
            | Probe::Broken => self.unopened(heard),
        }
    }

    /// What the trouble is, or what the server said in the place of an answer.
    fn unopened(&self, heard: greeting::Heard) -> Trouble {
        if let Some(trouble) = heard.trouble {
            return in_handshake(trouble);
        }
        let server = &self.server.name;
        let error = heard.message.as_ref().and_then(Message::error);
        match error.and_then(|error| RpcError::parse(&error).ok()) {
            Some(error) => greeting::said_instead(server, heard.status, &error),
            None => {
                let what = format!("`{server}` cannot be understood");
                Trouble::new(Reason::Handshake, what).because(heard.words)
            },
        }
    }

    fn at_odds(&self, why: &str) -> Trouble {
        Trouble::new(
            Reason::Version,
            format!(
                "`{}` refuses the version that it says it supports",
                self.server.name
            ),
        )
        .because(why)
    }

    fn not_offered(&self, why: &str) -> Trouble {
        let trouble = Trouble::new(
            Reason::Version,
            format!("`{}` does not speak the modern era", self.server.name),
        );
        let trouble = trouble.because(why);
        match self.server.version {
            Some(_) => self.offer(None).explain(trouble),
            None => trouble.hint("leave the era to be found out, or say `legacy`"),
        }
    }

    fn incompatible(&self, supported: &[String]) -> Trouble {
        let trouble = Trouble::new(
            Reason::Version,
            format!("`{}` speaks no version that we speak", self.server.name),
        )
        .because(format!(
            "it supports {}",
            wording::plain(supported.join(", ").as_bytes(), 200)
        ));
        self.offer(None).explain(trouble)
    }

    /// A program that said no message in its time. One that answered a probe lives; it only did not
    /// answer what came next. One that said something else speaks, but not MCP.
    fn silent(&self, pipe: &Pipe) -> Trouble {
        let (server, limit) = (&self.server.name, self.server.times.start.as_secs_f64());
        let lives = |evidence: &Evidence| !evidence.answer.starts_with("silence");
        if self.evidence.iter().any(lives) {
            let what = format!(
                "`{server}` did not answer `initialize` within {limit} s (`start_timeout`)"
            );
            return Trouble::new(Reason::SilentServer, what);
        }
        match pipe.report().skipped_line {
            Some(line) => {
                let what = format!(
                    "`{server}` wrote no MCP message within {limit} s of its start (`start_timeout`)"
                );
                Trouble::new(Reason::BadReply, what).because(stdio::no_message(&line))
            },
            None => {
                let what = format!(
                    "`{server}` showed no sign of life within {limit} s of its start (`start_timeout`)"
                );
                Trouble::new(Reason::SilentServer, what)
            },
        }
    }

    /// A child that failed to start says why on its standard error.
    fn in_start(&self, mut trouble: Trouble, pipe: &Pipe) -> Trouble {
        if trouble.reason == Reason::BadReply {
            let by_hand = "start the program by hand: its output is for MCP messages alone, and everything else belongs on stderr";
            trouble.hint.get_or_insert_with(|| by_hand.to_owned());
        }
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

/// A setting that contradicts another one.
fn at_odds_with_itself(server: &Server, version: Version) -> Trouble {
    let era = version.era();
    let what = format!(
        "`{}` shall be spoken to in version {version}, which is of the {era} era",
        server.name
    );
    Trouble::new(Reason::InvalidRequest, what)
        .coded(Code::ConfigBadValue)
        .because("its `era` says otherwise")
        .hint("leave one of them out")
}

/// What came back, as the table of rows reads it. An answer that broke off is none, and a result
/// that is not for our question says nothing.
fn as_answer(heard: &greeting::Heard) -> HttpAnswer<'_> {
    let broken_off = [Reason::ReplyLost, Reason::ReplyTooLarge, Reason::Timeout];
    match (&heard.message, &heard.trouble) {
        (None, Some(trouble)) if broken_off.contains(&trouble.reason) => {
            HttpAnswer::None(trouble.reason)
        },
        (Some(message), Some(_)) if message.kind() == Kind::Result => {
            HttpAnswer::Status(heard.status, None)
        },
        (message, _) => HttpAnswer::Status(heard.status, message.as_ref()),
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

/// What goes wrong while a session opens is a failed opening, whatever it would mean for a call.
fn in_handshake(mut trouble: Trouble) -> Trouble {
    if trouble.reason == Reason::BadReply {
        trouble.reason = Reason::NotMcp;
        trouble
            .hint
            .get_or_insert_with(|| "check the URL: an MCP endpoint often ends in /mcp".to_owned());
    }
    if trouble.code.usual_delivery() != Some(Delivery::Unsent)
        && trouble.code != Code::CredentialRefused
    {
        trouble.code = Code::OpenFailed;
    }
    trouble
}
