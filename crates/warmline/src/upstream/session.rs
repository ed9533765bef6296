//! A session: one conversation with a server, whatever its era and transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use warmline_core::code::Reason;
use warmline_core::delivery::Delivery;
use warmline_core::era::{Era, Version};
use warmline_core::exchange::{Ending, Reply, Request, Trouble, Words};
use warmline_core::protocol::handshake;

use super::facts::{Facts, Kept};
use super::hidden::Hidden;
use super::http::Lost;
use super::legacy::{LegacyHttp, Stood};
use super::listener::Listener;
use super::modern::ModernHttp;
use super::pipes::Piped;
use super::rounds;
use super::stdio::ChildReport;
use super::two_endpoints::TwoEndpoints;
use super::verdicts::Held;

/// An open session to a server.
///
/// Calls may run side by side. Dropping it closes a child in the background and forgets an HTTP
/// session; [`Session::close`] ends both in order.
#[derive(Debug)]
pub struct Session {
    pub(crate) driver: Driver,
    facts: Arc<Facts>,
    verdict: Option<Box<Held>>,
}

#[derive(Debug)]
pub(crate) enum Driver {
    LegacyHttp(Arc<LegacyHttp>),
    ModernHttp(Box<ModernHttp>),
    Piped(Box<Piped>),
    TwoEndpoints(Box<TwoEndpoints>),
}

/// What we say of ourselves when a session is opened; fixed for its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Declared {
    /// The name of the program that speaks.
    pub client_name: String,
    /// Its version.
    pub client_version: String,
    /// What it can answer, as raw JSON of the protocol's client capabilities.
    pub capabilities: Bytes,
    /// The version it speaks, where it is to be spoken to the server as well; none: the newest.
    pub version: Option<Version>,
}

impl Default for Declared {
    /// Warmline itself, which can answer nothing.
    fn default() -> Self {
        Self {
            client_name: "warmline".to_owned(),
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: Bytes::from_static(b"{}"),
            version: None,
        }
    }
}

impl Declared {
    /// The bytes of `initialize`.
    pub(crate) fn initialize(&self, id: u64, offer: Version) -> Bytes {
        let mut body = Vec::with_capacity(256);
        handshake::write_initialize(
            &mut body,
            id,
            offer,
            &self.capabilities,
            &self.client_name,
            &self.client_version,
        );
        body.into()
    }

    /// Whether a server was told that we can answer anything.
    pub(crate) fn declares_anything(&self) -> bool {
        self.capabilities
            .iter()
            .any(|byte| !matches!(byte, b'{' | b'}') && !byte.is_ascii_whitespace())
    }
}

/// Whether a session may still be used.
///
/// Set once, by the exchange that saw why; a session whose state is in doubt is not used again.
#[derive(Debug, Default)]
pub(crate) struct Standing(AtomicU8);

impl Standing {
    /// Lets no new call in. The first reason stays.
    pub(crate) fn retire(&self, reason: Reason) {
        let place = Reason::ALL.iter().position(|r| *r == reason).unwrap_or(0);
        let mark = u8::try_from(place + 1).unwrap_or(u8::MAX);
        // A lost race means somebody else said why already.
        self.0
            .compare_exchange(0, mark, Ordering::Relaxed, Ordering::Relaxed)
            .ok();
    }

    /// Why no new call is let in; none while the session is fine.
    pub(crate) fn retired(&self) -> Option<Reason> {
        let mark = usize::from(self.0.load(Ordering::Relaxed));
        Reason::ALL.get(mark.checked_sub(1)?).copied()
    }
}

impl Session {
    pub(crate) fn new(driver: Driver, facts: Arc<Facts>, verdict: Option<Box<Held>>) -> Self {
        Self {
            driver,
            facts,
            verdict,
        }
    }

    /// What is known of this session since it was opened.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The same, to be held by others: sessions that are alike share it.
    pub fn shared_facts(&self) -> &Arc<Facts> {
        &self.facts
    }

    /// The id that the server issued, where it did.
    pub fn session_id(&self) -> Option<&str> {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.session_id(),
            Driver::ModernHttp(_) | Driver::Piped(_) | Driver::TwoEndpoints(_) => None,
        }
    }

    /// What [`Upstream::resume`](super::Upstream::resume) needs to go on with this session; none
    /// where it lives in a process or a stream, or is no session at all.
    pub fn kept(&self) -> Option<Kept> {
        self.session_id().map(|id| Kept {
            session_id: id.to_owned(),
            facts: Arc::clone(&self.facts),
        })
    }

    /// Why this session should not be used any more: the server said it is gone, or something
    /// happened that leaves its state in doubt. None while it is fine.
    pub fn retired(&self) -> Option<Reason> {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.standing.retired(),
            Driver::ModernHttp(driver) => driver.standing.retired(),
            Driver::Piped(driver) => driver.standing.retired(),
            Driver::TwoEndpoints(driver) => driver.standing().retired(),
        }
    }

    /// Sends one request and stays with it to its end: one attempt, one ending.
    ///
    /// A modern server's `input_required` is an answer here; [`Session::call`] goes on from it.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call in the way of its era. What became of it is unknown.
    pub async fn send(&self, request: Request, listener: &dyn Listener) -> Ending {
        if let Some(reason) = self.retired() {
            let what = format!("this session with `{}` is not used any more", self.server());
            return Trouble::new(Reason::Closed, what)
                .because(format!("it was retired before: {}", reason.word()))
                .hint("open a new session; what the old one remembered is lost")
                .unsent(request);
        }
        let ending = match &self.driver {
            Driver::LegacyHttp(driver) => driver.send(request, listener).await,
            Driver::ModernHttp(driver) => {
                let ending = driver.send(request, listener).await;
                self.doubt(&ending);
                ending
            },
            Driver::Piped(driver) => driver.send(request, listener).await,
            // On the heap: this transport is rare, and its call is large.
            Driver::TwoEndpoints(driver) => Box::pin(driver.send(request, listener)).await,
        };
        match ending {
            // Nothing in it is looked for, so nothing is asked for.
            Ending::Answered(Reply::Result(_)) => ending,
            Ending::Answered(Reply::Error(_)) | Ending::Failed(_) => {
                self.hidden().struck_ending(ending)
            },
        }
    }

    /// What must not be told of what it sends.
    fn hidden(&self) -> Hidden {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.hidden(),
            Driver::ModernHttp(driver) => driver.hidden(),
            Driver::Piped(driver) => driver.hidden(),
            Driver::TwoEndpoints(driver) => driver.hidden(),
        }
    }

    /// Nothing is opened with a modern server over HTTP, so its calls are the first to notice that
    /// it has become another one. What is remembered of it is forgotten then.
    fn doubt(&self, ending: &Ending) {
        let refused = [Reason::Rejected, Reason::NotFound, Reason::Version];
        if let (Ending::Failed(failure), Some(verdict)) = (ending, &self.verdict)
            && refused.contains(&failure.trouble.reason)
        {
            verdict.forget();
        }
    }

    /// Sends a request and answers the server's questions until there is a final answer.
    ///
    /// # Cancel safety
    /// As [`Session::send`].
    pub async fn call(&self, request: Request, listener: &dyn Listener) -> Ending {
        match (self.facts.era, request.words()) {
            // Whoever's words they are answers the questions in a request of its own.
            (Era::Legacy, _) | (Era::Modern, Words::Passed | Words::PassedWithHeaders) => {
                self.send(request, listener).await
            },
            (Era::Modern, Words::Ours) => rounds::drive(self, request, listener).await,
        }
    }

    /// Stands at the session: what it tells outside any call comes as long as somebody does. They
    /// are told where something was missed.
    ///
    /// # Cancel safety
    /// Dropping it ends the standing.
    pub(crate) async fn stand(&self, missed: impl Fn()) -> Stood {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.stand(missed).await,
            Driver::ModernHttp(_) => Stood::Never,
            // What they tell comes anyway, until they end.
            Driver::Piped(driver) => driver.ended().await,
            Driver::TwoEndpoints(driver) => driver.ended().await,
        }
    }

    /// Sends a notification; `params` is a raw JSON object.
    ///
    /// # Errors
    /// With the trouble that kept it from being delivered.
    pub async fn notify(&self, method: &str, params: &[u8]) -> Result<(), Trouble> {
        let told = self.tell(method, params).await;
        told.map_err(|lost| lost.trouble)
    }

    /// The same, for whoever wants to know what became of a notification that was not accepted.
    pub(crate) async fn tell(&self, method: &str, params: &[u8]) -> Result<(), Lost> {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.notify(method, params).await,
            Driver::ModernHttp(driver) => driver.notify(method, params).await,
            Driver::TwoEndpoints(driver) => driver.notify(method, Some(params)).await,
            // What cannot be written stays here.
            Driver::Piped(driver) => driver.notify(method, params).map_err(|trouble| Lost {
                delivery: Delivery::Unsent,
                trouble,
            }),
        }
    }

    /// The server's name, for messages.
    pub(crate) fn server(&self) -> &str {
        match &self.driver {
            Driver::LegacyHttp(driver) => driver.server(),
            Driver::ModernHttp(driver) => driver.server(),
            Driver::Piped(driver) => driver.server(),
            Driver::TwoEndpoints(driver) => driver.server(),
        }
    }

    /// What is known of the child behind this session, if it is one.
    pub fn child(&self) -> Option<ChildReport> {
        match &self.driver {
            Driver::Piped(driver) => Some(driver.report()),
            Driver::LegacyHttp(_) | Driver::ModernHttp(_) | Driver::TwoEndpoints(_) => None,
        }
    }

    /// Ends the session: `DELETE` at the server, or the whole process tree. Takes a few seconds
    /// at most.
    pub async fn close(&self) {
        self.end().await.ok();
    }

    /// Waits until the server has heard of every call that was cancelled, for a short time: whoever
    /// leaves a session as it is may be gone before that.
    pub(crate) async fn cancels_heard(&self) {
        if let Driver::LegacyHttp(driver) = &self.driver {
            driver.cancels_heard().await;
        }
    }

    /// The same as [`Session::close`], or why the server may hold the session still.
    pub(crate) async fn end(&self) -> Result<(), Trouble> {
        match &self.driver {
            Driver::LegacyHttp(driver) => return driver.end().await,
            Driver::ModernHttp(_) => {},
            Driver::Piped(driver) => driver.close().await,
            Driver::TwoEndpoints(driver) => driver.close(),
        }
        Ok(())
    }
}

/// Why something that was kept cannot be taken up.
pub(crate) fn not_kept(server: &str, why: &str) -> Trouble {
    let what = format!("the kept session with `{server}` cannot be taken up again");
    Trouble::new(Reason::RecordRefused, what).because(why)
}
