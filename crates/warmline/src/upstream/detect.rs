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

use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::Trouble;
use warmline_core::key::Transport;
use warmline_core::protocol::envelope::{Kind, Message};
use warmline_core::protocol::handshake;
use warmline_core::protocol::meta::ClientMeta;
use warmline_core::verdict::{self, HttpAnswer, Probe};

use super::Upstream;
use super::facts::{Evidence, Facts};
use super::greeting;
use super::hearing;
use super::legacy::{INITIALIZED, LegacyHttp};
use super::limits::Ids;
use super::modern::ModernHttp;
use super::pipes::Piped;
use super::server::{HttpReach, Reach, Server};
use super::session::{Declared, Driver, Session};
use super::stdio::Pipe;
use super::verdicts::{Held, Verdict};
use super::wording;
use crate::clock;

/// Opens a session, finding out the era unless it is said or remembered.
pub(crate) async fn open(
    upstream: &Upstream,
    server: &Server,
    declared: &Declared,
) -> Result<Session, Trouble> {
    let verdict = match server.era {
        None => upstream.verdicts.recall(server, declared),
        Some(_) => None,
    };
    if let Some(known) = verdict.as_ref().and_then(Verdict::preferred) {
        let said = Server {
            era: Some(known.era),
            ..server.clone()
        };
        let opening = Opening::begin(upstream, &said, declared);
        match opening.run(Some(known)).await {
            Err(trouble) if speaks_of_the_era(&trouble) => {
                upstream.verdicts.forget(server, declared);
            },
            opened => return opened,
        }
    }
    Opening::begin(upstream, server, declared).run(None).await
}

/// Whether a failed opening says that what we remembered of the server is no longer true.
fn speaks_of_the_era(trouble: &Trouble) -> bool {
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
    declared: &'a Declared,
    evidence: Vec<Evidence>,
}

impl<'a> Opening<'a> {
    fn begin(upstream: &'a Upstream, server: &'a Server, declared: &'a Declared) -> Self {
        Self {
            upstream,
            server,
            declared,
            evidence: Vec::new(),
        }
    }

    async fn run(self, known: Option<&Facts>) -> Result<Session, Trouble> {
        let began = clock::now();
        let (upstream, server, declared) = (self.upstream, self.server, self.declared);
        let (driver, mut facts) = match &server.reach {
            Reach::Http(reach) => self.http(reach, known).await?,
            Reach::Stdio(reach) => self.stdio(reach).await?,
        };
        facts.opened_in = began.elapsed();
        let facts = upstream.facts.share(Arc::new(facts));
        upstream.verdicts.learn(server, declared, &facts);
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
        if self.server.era == Some(Era::Legacy) {
            return self.http_legacy(reach, Version::NEWEST_LEGACY).await;
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
                Probe::Legacy { best } if self.server.era.is_none() => {
                    let offer = best.unwrap_or(Version::NEWEST_LEGACY);
                    return self.http_legacy(reach, offer).await;
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
        let head = self.upstream.letterhead(self.server, reach)?;
        let mut tries = 0;
        loop {
            tries += 1;
            let (said, heard) = ((offer, self.declared), hearing(self.server));
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
                    return self
                        .or_two_endpoints(reach, trouble)
                        .await
                        .map_err(in_handshake);
                },
                Err(trouble) => return Err(in_handshake(trouble)),
            }
        }
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
        })
    }

    fn no_session(&self, probe: &Probe, heard: greeting::Heard) -> Trouble {
        match probe {
            Probe::Legacy { .. } => self.not_offered(&heard.words),
            Probe::Incompatible { supported } => self.incompatible(supported),
            Probe::RetryAt(_) => self.at_odds(&heard.words),
            Probe::Modern(_) | Probe::NoVerdict { .. } | Probe::AskBoth | Probe::Broken => {
                heard.trouble.map_or_else(
                    || {
                        Trouble::new(
                            Reason::Handshake,
                            format!("`{}` cannot be understood", self.server.name),
                        )
                        .because(heard.words.clone())
                    },
                    in_handshake,
                )
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
            wording::plain(supported.join(", ").as_bytes(), 200)
        ))
    }

    fn silent(&self) -> Trouble {
        let limit = self.server.times.start.as_secs_f64();
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
        && trouble.code != warmline_core::code::Code::CredentialRefused
    {
        trouble.code = warmline_core::code::Code::OpenFailed;
    }
    trouble
}
