//! The gateway: MCP clients on one side, Warmline's engine on the other.
//!
//! A [`Gateway`] listens, finds out who is calling and which run they mean, speaks to each client
//! in its own era, and hands every call to the engine. It decides nothing about sessions.

mod admin;
mod audit;
mod body;
mod declared;
mod door;
mod face;
mod failure;
mod flow;
mod hosts;
mod lane;
pub mod local;
mod look;
mod merge;
pub mod metrics;
mod ops;
mod pass;
mod path;
pub mod reload;
mod reply;
mod rules;
pub mod settings;
mod starting;
mod terms;
mod ticket;
pub mod tokens;
mod trace;
mod which;
mod who;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use warmline::metrics::{ClosedSet as _, Counter};
use warmline::{Warmline, clock};

use crate::admin::Desk;
pub use crate::admin::{AskedToReload, Ending, Handing, Unreloaded};
use crate::audit::Audit;
pub use crate::audit::AuditOptions;
use crate::door::Acceptor;
use crate::door::Faults;
use crate::door::leaving::Leaving;
use crate::door::limits::Gate;
pub use crate::door::{Limits, Resource, TlsFiles};
use crate::face::legacy::clients::{self, Clients};
use crate::face::modern::listen::Listens;
use crate::face::modern::together::Together;
pub use crate::face::sse::Sse;
use crate::face::sse::Talks;
pub use crate::face::stdio::{Pipe, PipeHand};
pub use crate::failure::advice;
use crate::merge::absent::Absences;
use crate::metrics::{Counts, Face, StatusClass};
use crate::ops::Ops;
use crate::ops::departure::Departure;
use crate::ops::vitals::{self, Vitals};
pub use crate::rules::{Rule, Rules, ServerRules, Whose};
pub use crate::starting::NotStarted;
use crate::terms::Current;
pub use crate::which::RunFrom;
pub use crate::who::{
    Algorithm, Auth, Jwt, KeySource, LOCAL, Network, Token, TokenSource, TrustedProxies, Way,
};

/// What can be decided about a gateway.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens for MCP.
    pub listen: SocketAddr,
    /// Speaks TLS there, with this certificate.
    pub tls: Option<TlsFiles>,
    /// A socket of this machine beside it, by which our own user comes in.
    pub socket: Option<PathBuf>,
    /// A socket of this machine by which our own user sees what runs here and steers it. It may
    /// be the same one.
    pub admin: Option<PathBuf>,
    /// Whether clients of the 2024-11-05 transport are served.
    pub sse: Sse,
    /// Whether our own user may hand servers in by it.
    pub handing: Handing,
    /// How callers show who they are.
    pub auth: Auth,
    /// What clients are told of where they get tokens.
    pub resource: Option<Resource>,
    /// Who may use which server and which tools.
    pub rules: Rules,
    /// Writes a line for every call.
    pub audit: Option<AuditOptions>,
    /// Places where clients name their conversation, looked at in order.
    pub run_from: Vec<RunFrom>,
    /// Names beside those of this machine by which it may be called.
    pub hosts: Vec<String>,
    /// Origins of pages that may call it.
    pub origins: Vec<String>,
    /// The largest request that is taken, in bytes.
    pub max_request: usize,
    /// How long a list of all servers waits for one of them, and a call for a list that says whose
    /// it is. Whoever is late is left out.
    pub list_share: Duration,
    /// What the door holds at a time.
    pub limits: Limits,
    /// Where machines that watch it find their pages: `/livez`, `/readyz`, `/metrics`, `/servers`.
    /// They ask nobody who they are, and show no identity, no run and no argument.
    pub ops: Option<SocketAddr>,
    /// Lines that whoever writes the log could not write, to be shown among the numbers.
    pub log_lost: Option<Arc<Counter>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 8484).into(),
            tls: None,
            socket: None,
            admin: None,
            sse: Sse::Off,
            handing: Handing::Refused,
            auth: Auth::default(),
            resource: None,
            rules: Rules::none(),
            audit: None,
            run_from: RunFrom::usual(),
            hosts: Vec::new(),
            origins: Vec::new(),
            max_request: 4 << 20,
            list_share: Duration::from_secs(10),
            limits: Limits::default(),
            ops: None,
            log_lost: None,
        }
    }
}

/// A gateway that listens. It stops taking connections when it is dropped.
pub struct Gateway {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Nothing new is taken.
    stop: watch::Sender<bool>,
    /// Nobody is heard any more.
    close: watch::Sender<bool>,
    listening: Vec<JoinHandle<()>>,
    ops: Option<Ops>,
}

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) warm: Warmline,
    /// What was decided at the start. What may change since then is asked of the terms.
    pub(crate) options: Options,
    pub(crate) terms: Current,
    pub(crate) gate: Arc<Gate>,
    pub(crate) leaving: Leaving,
    pub(crate) audit: Option<Audit>,
    pub(crate) clients: Clients,
    pub(crate) talks: Talks,
    pub(crate) listens: Listens,
    pub(crate) together: Together,
    pub(crate) absences: Absences,
    pub(crate) counts: Arc<Counts>,
    pub(crate) faults: Faults,
    pub(crate) vitals: Vitals,
    pub(crate) departure: Departure,
    /// What whoever looks after the gateway did, and asked for.
    pub(crate) desk: Desk,
    /// Whether nothing new is taken any more.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Gateway {
    /// Begins to listen.
    ///
    /// # Errors
    /// It cannot listen there, or may not: others can reach the address, and nobody would be
    /// asked who they are. Or a server that is required does not answer.
    pub async fn start(warm: Warmline, options: Options) -> Result<Self, NotStarted> {
        if matches!(options.auth, Auth::None) && !options.listen.ip().is_loopback() {
            return Err(NotStarted::Unguarded(options.listen));
        }
        starting::meet_required(&warm).await?;
        let listening = listener_at(options.listen).await;
        let (listener, address) = listening.map_err(NotStarted::Address)?;
        let acceptor = options.tls.clone().map(Acceptor::new).transpose();
        let acceptor = acceptor.map_err(NotStarted::Tls)?.map(Arc::new);
        let ops = match options.ops {
            Some(address) => Some(listener_at(address).await.map_err(NotStarted::Ops)?),
            None => None,
        };
        let mut gateway = Self::behind_sockets(warm, options, address)?;
        let shared = Arc::clone(&gateway.shared);
        gateway.ops = ops.map(|(listener, address)| Ops::start(&shared, listener, address));
        let network = door::listen(shared, listener, acceptor, gateway.close.subscribe());
        let network = clock::spawn("listener", network);
        gateway.listening.push(network);
        Ok(gateway)
    }

    /// Begins to listen on sockets of this machine alone, for our own user.
    ///
    /// # Errors
    /// It cannot listen there.
    pub fn start_here(warm: Warmline, options: Options) -> Result<Self, NotStarted> {
        // Whoever calls by a socket calls a name of this machine, as on loopback.
        Self::behind_sockets(warm, options, ([127, 0, 0, 1], 0).into())
    }

    fn behind_sockets(
        warm: Warmline,
        options: Options,
        address: SocketAddr,
    ) -> Result<Self, NotStarted> {
        let sockets = door::sockets(&options)?;
        let (stop, stopping) = watch::channel(false);
        let audit = options.audit.clone();
        let mut shared = Shared::new(warm, options, address, stopping.clone());
        if let Some(audit) = audit {
            let started = Audit::start(audit, Arc::clone(&shared.counts.audit))?;
            shared.audit = Some(started);
        }
        let shared = Arc::new(shared);
        let looking = clients::look_after(Arc::downgrade(&shared), stopping.clone());
        let mut listening = vec![clock::spawn("clients", looking)];
        let looking = terms::look_after(Arc::downgrade(&shared), stopping.clone());
        listening.push(clock::spawn("terms", looking));
        let beating = vitals::beat(Arc::downgrade(&shared), |shared| &shared.vitals);
        drop(clock::spawn("heartbeat", beating));
        let close = watch::Sender::new(false);
        for (socket, opens) in sockets {
            let closing = close.subscribe();
            let local = door::listen_locally(Arc::clone(&shared), socket, opens, closing);
            listening.push(clock::spawn("local-listener", local));
        }
        Ok(Self {
            listening,
            shared,
            address,
            stop,
            close,
            ops: None,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where machines that watch it find their pages.
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops.as_ref().map(|ops| ops.address)
    }

    /// The engine behind it.
    pub fn warm(&self) -> &Warmline {
        &self.shared.warm
    }

    /// How many requests could not be answered as their callers hoped (5xx).
    pub fn requests_failed(&self) -> u64 {
        let failed = |face: &Face| self.shared.counts.requests.count(*face, StatusClass::Us);
        Face::ALL.iter().map(failed).sum()
    }

    /// Lets callers in by other rules from the next request on: a token that is not among them any
    /// more counts no longer. A listener that others can reach never stops to ask.
    pub fn let_in_by(&self, auth: Auth) {
        if matches!(auth, Auth::None) && !self.address.ip().is_loopback() {
            let address = self.address;
            tracing::error!(%address, "callers are asked on as before: others can reach it");
            return;
        }
        self.shared.terms.let_in_by(auth, &self.shared.warm);
    }

    /// Goes by other terms from the next request on, all of them together. What is done
    /// `meanwhile` is open to nobody whom the old terms or the new ones keep out; where it fails,
    /// the old ones count on.
    pub(crate) fn go_by<T, E>(
        &self,
        options: &Options,
        meanwhile: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let shared = &self.shared;
        let (terms, warm) = (&shared.terms, &shared.warm);
        let done = terms.replace(options, self.address, warm, meanwhile)?;
        shared.gate.hold_to(options.limits);
        Ok(done)
    }

    /// Ends when somebody asks by the admin socket that the gateway ends, and says how.
    pub async fn asked_to_end(&self) -> Ending {
        self.shared.desk.asked_to_end().await
    }

    /// Ends when somebody asks there that it ends at once.
    pub async fn asked_to_end_at_once(&self) {
        while self.asked_to_end().await != Ending::AtOnce {
            self.shared.desk.asked_again().await;
        }
    }

    /// Those who ask by the admin socket that the configuration is read again. Whoever holds this
    /// answers them.
    pub fn asked_to_reload(&self) -> mpsc::Receiver<AskedToReload> {
        self.shared.desk.reader.begin()
    }

    /// How long nobody has asked for anything; none while a run lives or a call is under way.
    pub fn idle_for(&self) -> Option<Duration> {
        self.shared.desk.idle_for(&self.shared.warm)
    }

    /// Says that it is about to go: `/readyz` says no, and every answer closes its connection. So
    /// long connections should still be taken, for whoever watches it to notice; not at all where
    /// nobody does.
    pub fn leave(&self) -> Duration {
        self.shared.departure.begin()
    }

    /// Takes no new call, and closes connections that rest; what is under way goes on. Who comes
    /// with a new call is told that it was not sent, and when to come back.
    pub fn drain(&self) {
        self.stop.send_replace(true);
    }

    /// How many answers are on their way to clients that have yet to take all of them.
    pub fn answers_leaving(&self) -> u64 {
        self.shared.leaving.answers()
    }

    /// Says that calls under way are cut: what their clients are told of that is no answer that
    /// [`Gateway::answers_leaving`] counts.
    pub fn calls_are_cut(&self) {
        self.shared.leaving.cut_calls();
    }

    /// Ends when no connection is left, after [`Gateway::drain`].
    pub async fn drained(&self) {
        // What all connections share hears of the end as well, and is there until we are not.
        while self.stop.receiver_count() > 1 {
            clock::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Takes no new connection, and closes those that rest. Calls under way go on. Every line of the
    /// audit so far is written when this ends, or cannot be for a second.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.close.send_replace(true);
        let listening = futures_util::future::join_all(self.listening);
        clock::timeout(Duration::from_secs(1), listening).await.ok();
        written_down(&self.shared).await;
    }
}

/// Waits for the audit, if there is one.
pub(crate) async fn written_down(shared: &Shared) {
    if let Some(audit) = &shared.audit {
        audit.flush(Duration::from_secs(1)).await;
    }
}

/// A listener, and where it listens.
async fn listener_at(
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), (SocketAddr, io::Error)> {
    let failed = |error| (address, error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("address", &self.address)
            .field("servers", &self.shared.warm.servers())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(
        warm: Warmline,
        options: Options,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            terms: Current::new(&options, address, &warm),
            gate: Arc::new(Gate::new(options.limits)),
            leaving: Leaving::default(),
            audit: None,
            clients: Clients::default(),
            talks: Talks::default(),
            listens: Listens::default(),
            together: Together::default(),
            absences: Absences::default(),
            counts: Arc::default(),
            faults: Faults::default(),
            vitals: Vitals::default(),
            departure: Departure::default(),
            desk: Desk::new(options.handing),
            stopping,
            warm,
            options,
        }
    }

    /// The largest request that is taken, in bytes.
    pub(crate) fn max_request(&self) -> usize {
        self.terms.load().max_request
    }
}
