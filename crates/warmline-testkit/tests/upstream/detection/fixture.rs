//! One opening against the ledger server over HTTP, and what must be true afterwards.

use crate::prelude::*;

use warmline_upstream::Timeouts;

use super::census::until;
use super::runtime_tasks::no_task_left;

/// What an opening comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A session of this version.
    Opens(Version),
    /// None, for this reason.
    Fails(Reason),
}

pub(crate) const MODERN: End = End::Opens(Version::V2026_07_28);
pub(crate) const LEGACY: End = End::Opens(Version::V2025_11_25);

/// What is sent when the probe decides by itself.
pub(crate) const PROBE: &[&str] = &["server/discover"];
/// What is sent when it is repeated.
pub(crate) const PROBE_TWICE: &[&str] = &["server/discover", "server/discover"];
/// What is sent when the probe says legacy.
pub(crate) const PROBE_THEN_HANDSHAKE: &[&str] =
    &["server/discover", "initialize", "notifications/initialized"];
/// What is sent when nobody needs to ask.
pub(crate) const HANDSHAKE: &[&str] = &["initialize", "notifications/initialized"];

/// A ledger server and the way to it.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) ledger: LedgerServer,
    pub(crate) server: ServerTarget,
    /// One for the whole scene: what it remembers, it remembers for the next opening.
    pub(crate) upstream: Upstream,
}

impl Scene {
    pub(crate) fn new(personality: Personality) -> Self {
        let ledger = LedgerServer::start(personality).unwrap();
        let mut server = ServerTarget::http("scene", ledger.url().parse().unwrap());
        // Resting connections end soon, so that the census need not wait for them.
        server.timeouts.connection_idle = Duration::from_millis(20);
        Self {
            ledger,
            server,
            upstream: Upstream::new(),
        }
    }

    /// The same server, doing this to the first request of a method.
    pub(crate) fn once(self, method: &str, fault: Fault) -> Self {
        self.ledger.inject(FaultRule::new(fault).on_method(method));
        self
    }

    /// The same server, doing this to every request of a method.
    pub(crate) fn always(self, method: &str, fault: Fault) -> Self {
        self.ledger
            .inject(FaultRule::new(fault).on_method(method).always());
        self
    }

    /// The same server, spoken to in one era whatever it offers.
    pub(crate) fn pinned(mut self, era: Era) -> Self {
        self.server.era = Some(era);
        self
    }

    /// The same server with little time for a message of the handshake.
    pub(crate) fn hasty(mut self) -> Self {
        self.server.timeouts = Timeouts {
            handshake: Duration::from_millis(400),
            ..self.server.timeouts
        };
        self
    }

    /// The same server with the usual time for it.
    pub(crate) fn patient(mut self) -> Self {
        self.server.timeouts.handshake = Timeouts::default().handshake;
        self
    }

    pub(crate) async fn open(&self) -> Result<Session, Diagnostic> {
        self.upstream
            .open(&self.server, &ClientProfile::default())
            .await
    }

    /// Opens, compares what it came to and what was sent, and ends what was opened.
    ///
    /// Returns the evidence of the opening, or its trouble, for whoever wants to know more.
    pub(crate) async fn plays(
        &self,
        story: &str,
        end: End,
        sent: &[&str],
    ) -> Result<String, Diagnostic> {
        let opened = self.open().await;
        let came_to = match &opened {
            Ok(session) => End::Opens(session.facts().version),
            Err(trouble) => End::Fails(trouble.reason),
        };
        assert_eq!(came_to, end, "{story}: {opened:?}");
        assert_eq!(self.ledger.ledger().methods(), sent, "{story}: {opened:?}");
        match opened {
            Ok(session) => {
                assert_eq!(session.facts().era, session.facts().version.era());
                let evidence = evidence(&session);
                session.close().await;
                self.ends(story).await;
                Ok(evidence)
            },
            Err(trouble) => {
                self.ends(story).await;
                check_page(story, &trouble);
                Err(trouble)
            },
        }
    }

    /// An opening that fails for this reason.
    pub(crate) async fn fails(&self, story: &str, reason: Reason, sent: &[&str]) -> Diagnostic {
        let end = End::Fails(reason);
        self.plays(story, end, sent).await.unwrap_err()
    }

    /// The census: no task, no connection, no session that we know of, nothing done wrong.
    pub(crate) async fn ends(&self, story: &str) {
        no_task_left().await;
        let open = || self.ledger.counts().open_connections;
        until("no connection is left", || open() == 0).await;
        let violations = self.ledger.violations();
        assert!(violations.is_empty(), "{story}: {violations:?}");
    }

    /// The version that the last `initialize` offered.
    pub(crate) fn offered(&self) -> String {
        let entries = self.ledger.ledger().entries();
        let greeting = entries
            .iter()
            .rfind(|entry| entry.phase == ExecutionPhase::Received && entry.method == "initialize");
        let params = &greeting.unwrap().arguments;
        params["protocolVersion"].as_str().unwrap().to_owned()
    }
}

/// Nothing of a caller was sent, so no code of a failed opening may sound as if something was.
fn check_page(story: &str, trouble: &Diagnostic) {
    let allowed = [
        Code::CannotReach,
        Code::OpenFailed,
        Code::RequestRefused,
        Code::CredentialRefused,
        Code::EraUnknown,
        Code::SessionLost,
    ];
    assert!(allowed.contains(&trouble.code), "{story}: {trouble:?}");
    assert!(trouble.message.contains("`scene`"), "{story}: {trouble:?}");
}

/// All steps of an opening and what came back.
pub(crate) fn evidence(session: &Session) -> String {
    let steps = session.facts().evidence.iter();
    let lines = steps.map(|one| format!("{}: {}", one.step, one.answer));
    lines.collect::<Vec<_>>().join("\n")
}
