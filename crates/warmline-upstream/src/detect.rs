//! Detects the era of a server, and opens a session in it. [`warmline_core::era_detection`] reads the
//! answers; here the probes are sent.
//!
//! The probe is always `server/discover`, which has no side effects, and never a `tools/call`, which
//! some legacy servers run without a handshake. An outage, a refused credential or a busy server says
//! nothing about the era. Silence over stdio does not either: after a while `initialize` is sent as
//! well, and the first answer decides.

mod http;
mod stdio;

use std::sync::Arc;

use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::error::code::{Code, Reason};
use warmline_core::exchange::Diagnostic;
use warmline_core::message::envelope::Message;
use warmline_core::pool_key::Transport;
use warmline_core::protocol::handshake as handshake_message;

use super::Upstream;
use super::handshake;
use super::redaction::Redactor;
use super::sanitize;
use super::server_facts::{Evidence, ServerFacts};
use super::session::{Driver, Session};
use super::target::{ClientProfile, ServerTarget, TransportConfig};
use crate::server_facts::known_eras::KnownErasEntry;
use crate::stdio::pipe::{self, Pipe};
use warmline_platform::clock;

/// Opens a session. Detects the era unless it is configured or known.
pub(crate) async fn open(
    upstream: &Upstream,
    server: &ServerTarget,
    profile: &ClientProfile,
) -> Result<Session, Diagnostic> {
    let known_eras = upstream.known_eras_entry(server, profile);
    let known = known_eras.get().unwrap_or_default();
    let facts = match server.required_era() {
        Some(era) => known.facts_of(era),
        None => known.preferred_facts(),
    };
    if let Some(facts) = facts {
        let target = server.with_era(facts.era);
        let opener = SessionOpener::new(upstream, &target, profile, &known_eras)?;
        match opener.open(Some(facts)).await {
            Err(diagnostic) if contradicts_known_era(&diagnostic) => {
                known_eras.forget();
                if server.required_era().is_some() {
                    return Err(diagnostic);
                }
            },
            opened => return opened,
        }
    }
    let opener = SessionOpener::new(upstream, server, profile, &known_eras)?;
    opener.open(None).await
}

pub(crate) fn contradicts_known_era(diagnostic: &Diagnostic) -> bool {
    let reasons = [
        Reason::Version,
        Reason::Handshake,
        Reason::NotMcp,
        Reason::Rejected,
        Reason::NotFound,
        Reason::SilentServer,
        Reason::ChildExit,
    ];
    reasons.contains(&diagnostic.reason)
}

/// The second half of the legacy handshake.
const INITIALIZED_METHOD: &str = "notifications/initialized";

/// An opening, and what it has learnt.
struct SessionOpener<'a> {
    upstream: &'a Upstream,
    server: &'a ServerTarget,
    /// The era to speak; none detects it.
    era: Option<Era>,
    profile: &'a ClientProfile,
    known_eras: &'a KnownErasEntry,
    evidence: Vec<Evidence>,
}

impl<'a> SessionOpener<'a> {
    fn new(
        upstream: &'a Upstream,
        server: &'a ServerTarget,
        profile: &'a ClientProfile,
        known_eras: &'a KnownErasEntry,
    ) -> Result<Self, Diagnostic> {
        let era = server.required_era();
        if let Some(version) = server.version.filter(|version| era != Some(version.era())) {
            return Err(conflicting_settings(server, version));
        }
        Ok(Self {
            upstream,
            server,
            era,
            profile,
            known_eras,
            evidence: Vec::new(),
        })
    }

    fn is_legacy(&self) -> bool {
        self.era == Some(Era::Legacy)
    }

    /// The version that `initialize` offers; the newest if nothing better is known.
    fn offered_version(&self, best: Option<Version>) -> Version {
        let client = self.profile.version;
        let client = client.filter(|version| version.era() == Era::Legacy);
        let offer = self.server.version.or(client).or(best);
        offer.unwrap_or(Version::NEWEST_LEGACY)
    }

    /// A configured version is the only one we take; else the server chooses.
    fn check_version(&self, chosen: Version) -> Result<(), Diagnostic> {
        if self.server.version.is_none_or(|wanted| wanted == chosen) {
            return Ok(());
        }
        let what = format!(
            "`{}` does not speak the configured version",
            self.server.name
        );
        let why = format!("it chose version {chosen}");
        let diagnostic = Diagnostic::new(Reason::Version, what).with_cause(why);
        Err(self.add_wanted_version(diagnostic))
    }

    fn add_wanted_version(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        if let (Some(wanted), Reason::Version | Reason::Handshake) =
            (self.server.version, diagnostic.reason)
        {
            let why = diagnostic.cause.take().unwrap_or_default();
            diagnostic.cause = Some(format!("version {wanted} is configured; {why}"));
            let hint =
                "remove `version`, so that it is negotiated, or set one that the server speaks";
            diagnostic.hint.get_or_insert_with(|| hint.to_owned());
        }
        diagnostic
    }

    async fn open(mut self, known: Option<&Arc<ServerFacts>>) -> Result<Session, Diagnostic> {
        let began = clock::now();
        let (driver, mut facts) = match &self.server.transport {
            TransportConfig::Http(reach) => self.open_http(reach, known.map(|it| &**it)).await?,
            TransportConfig::Stdio(reach) => self.open_stdio(reach).await?,
        };
        if !facts.evidence.is_empty() {
            let redactor = Redactor::for_server(self.server);
            for seen in &mut facts.evidence {
                seen.answer = redactor.redact(std::mem::take(&mut seen.answer));
            }
        }
        facts.open_duration = began.elapsed();
        let facts = self.upstream.facts_interner.intern(Arc::new(facts));
        match known {
            Some(_) => self.known_eras.confirm_facts(&facts),
            None => self.known_eras.record_facts(&facts),
        }
        // Only a call shows that a modern server over HTTP has changed.
        let is_modern_http = matches!(driver, Driver::ModernHttp(_));
        let known_eras = is_modern_http.then(|| Box::new(self.known_eras.clone()));
        Ok(Session::new(driver, facts, known_eras))
    }

    /// The facts of a legacy server that gets no handshake.
    fn assumed_facts(&mut self, transport: Transport) -> ServerFacts {
        // What a server must assume if nobody says anything else.
        let version = self.server.version.unwrap_or(Version::V2025_03_26);
        ServerFacts {
            evidence: std::mem::take(&mut self.evidence),
            ..ServerFacts::assumed(version, transport)
        }
    }

    fn discovered_facts(
        &mut self,
        version: Version,
        message: Option<&Message>,
        transport: Transport,
    ) -> Result<ServerFacts, Diagnostic> {
        let server = &self.server.name;
        // A server with modern errors is modern, even if it refuses our probe.
        if let Some(error) = message.and_then(Message::error) {
            return Err(handshake::handshake_refused(
                server,
                "server/discover",
                &error,
            ));
        }
        let result = message.and_then(Message::result).unwrap_or_default();
        let found = handshake_message::read_discover_result(&result).map_err(|malformed| {
            let what = format!("`{server}` answered `server/discover` in a form that is not MCP");
            Diagnostic::new(Reason::Handshake, what).with_cause(malformed.to_string())
        })?;
        // A process may keep state; behind a URL nothing belongs to a session.
        Ok(ServerFacts {
            server_info: found.server_info,
            capabilities: found.capabilities,
            instructions: found.instructions,
            evidence: std::mem::take(&mut self.evidence),
            handshake_result: Some(result),
            learned_at: Some(clock::now()),
            ..ServerFacts::assumed(version, transport)
        })
    }

    /// The facts that the result of `initialize` gave, if it is the version we want.
    fn check_facts(
        &mut self,
        facts: Result<ServerFacts, Diagnostic>,
    ) -> Result<ServerFacts, Diagnostic> {
        let facts = facts.map_err(|diagnostic| self.add_wanted_version(diagnostic))?;
        self.check_version(facts.version)?;
        Ok(ServerFacts {
            evidence: std::mem::take(&mut self.evidence),
            ..facts
        })
    }

    fn version_contradiction(&self, why: &str) -> Diagnostic {
        let server = &self.server.name;
        let what = format!("`{server}` refuses the version that it says it supports");
        Diagnostic::new(Reason::Version, what).with_cause(why)
    }

    fn modern_era_missing(&self, why: &str) -> Diagnostic {
        let what = format!("`{}` does not speak the modern era", self.server.name);
        let diagnostic = Diagnostic::new(Reason::Version, what).with_cause(why);
        match self.server.version {
            Some(_) => self.add_wanted_version(diagnostic),
            None => diagnostic.with_hint("remove `era`, so that it is detected, or set `legacy`"),
        }
    }

    fn no_common_version(&self, supported: &[String]) -> Diagnostic {
        let what = format!("`{}` speaks no version that we speak", self.server.name);
        let supported = sanitize::sanitize_line(supported.join(", ").as_bytes(), 200);
        let why = format!("it supports {supported}");
        let diagnostic = Diagnostic::new(Reason::Version, what).with_cause(why);
        self.add_wanted_version(diagnostic)
    }

    /// The diagnostic of a program that sent no message in time. One that answered a probe is alive; one
    /// that wrote something else does not speak MCP.
    fn silent_child(&self, pipe: &Pipe) -> Diagnostic {
        let (server, limit) = (&self.server.name, self.server.timeouts.start.as_secs_f64());
        let lives = |evidence: &Evidence| !evidence.answer.starts_with("silence");
        if self.evidence.iter().any(lives) {
            let what = format!(
                "`{server}` did not answer `initialize` within {limit} s (`start_timeout`)"
            );
            return Diagnostic::new(Reason::SilentServer, what);
        }
        let within = format!("within {limit} s of its start (`start_timeout`)");
        match pipe.report().last_skipped_line {
            Some(line) => {
                let what = format!("`{server}` wrote no MCP message {within}");
                Diagnostic::new(Reason::BadReply, what).with_cause(pipe::skipped_line_text(&line))
            },
            None => {
                let what = format!("`{server}` showed no sign of life {within}");
                Diagnostic::new(Reason::SilentServer, what)
            },
        }
    }

    /// Adds the last line of standard error, which often says why a child failed.
    fn start_failure(&self, mut diagnostic: Diagnostic, pipe: &Pipe) -> Diagnostic {
        if diagnostic.reason == Reason::BadReply {
            let by_hand = "start the program by hand: its standard output is for MCP messages only; everything else belongs on stderr";
            diagnostic.hint.get_or_insert_with(|| by_hand.to_owned());
        }
        if diagnostic.cause.is_none() {
            let tail = pipe.report().stderr_tail;
            let last = tail.lines().last();
            diagnostic.cause = last.map(|last| format!("{last} (last line of stderr)"));
        }
        as_open_failure(diagnostic)
    }

    fn add_evidence(&mut self, step: &'static str, answer: &str) {
        self.evidence.push(Evidence {
            step,
            answer: answer.to_owned(),
        });
    }
}

fn conflicting_settings(server: &ServerTarget, version: Version) -> Diagnostic {
    let era = version.era();
    let what = format!(
        "`version` of `{}` is {version}, which is of the {era} era",
        server.name
    );
    Diagnostic::new(Reason::InvalidRequest, what)
        .with_code(Code::ConfigBadValue)
        .with_cause("its `era` says otherwise")
        .with_hint("leave one of them out")
}

/// Gives a diagnostic the code of a failed opening, whatever it would mean for a call.
fn as_open_failure(mut diagnostic: Diagnostic) -> Diagnostic {
    if diagnostic.reason == Reason::BadReply {
        diagnostic.reason = Reason::NotMcp;
        diagnostic
            .hint
            .get_or_insert_with(|| "check the URL: an MCP endpoint often ends in /mcp".to_owned());
    }
    if diagnostic.code.usual_delivery() != Some(Delivery::Unsent)
        && diagnostic.code != Code::CredentialRefused
    {
        diagnostic.code = Code::OpenFailed;
    }
    diagnostic
}
