//! The gateway itself: its start, its reload, and its stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use warmline_engine::Warmline;
use warmline_platform::clock;

use crate::access::audit::AuditLog;
use crate::admin::{ReloadRequest, ShutdownRequest};
use crate::auth::Auth;
use crate::downstream::legacy::client_sessions;
use crate::listener::{self, ReloadingTlsAcceptor};
use crate::metrics::{RequestEra, StatusClass};
use crate::ops::{OpsListener, process_health};
use crate::startup::{self, StartError};
use crate::{GatewayOptions, GatewayState, access, flush_audit};

/// A running gateway. Dropping it stops accepting connections.
pub struct Gateway {
    pub(crate) shared: Arc<GatewayState>,
    pub(crate) address: SocketAddr,
    /// Stops accepting new requests.
    stop: watch::Sender<bool>,
    /// Stops accepting connections.
    close: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    ops: Option<OpsListener>,
}

impl Gateway {
    /// Starts a gateway.
    ///
    /// # Errors
    /// It cannot listen, it would be open to the network without authentication, or a required
    /// server does not answer.
    pub async fn start(warm: Warmline, options: GatewayOptions) -> Result<Self, StartError> {
        if matches!(options.auth, Auth::None) && !options.listen.ip().is_loopback() {
            return Err(StartError::OpenToNetwork(options.listen));
        }
        startup::check_required_servers(&warm).await?;
        let bound = bind_listener(options.listen).await;
        let (listener, address) = bound.map_err(StartError::Address)?;
        let acceptor = options.tls.clone().map(ReloadingTlsAcceptor::new);
        let acceptor = acceptor.transpose().map_err(StartError::Tls)?.map(Arc::new);
        let ops = match options.ops {
            Some(address) => Some(bind_listener(address).await.map_err(StartError::Ops)?),
            None => None,
        };
        let mut gateway = Self::start_with_sockets(warm, options, address)?;
        let shared = Arc::clone(&gateway.shared);
        gateway.ops = ops.map(|(listener, address)| OpsListener::start(&shared, listener, address));
        let closing = gateway.close.subscribe();
        let accepting = listener::accept_connections(shared, listener, acceptor, closing);
        gateway.tasks.push(clock::spawn("listener", accepting));
        Ok(gateway)
    }

    /// Starts a gateway on local sockets alone, for the user who runs it.
    ///
    /// # Errors
    /// It cannot listen.
    pub fn start_local(warm: Warmline, options: GatewayOptions) -> Result<Self, StartError> {
        // Requests on a socket name this machine as their host, as on loopback.
        Self::start_with_sockets(warm, options, ([127, 0, 0, 1], 0).into())
    }

    fn start_with_sockets(
        warm: Warmline,
        options: GatewayOptions,
        address: SocketAddr,
    ) -> Result<Self, StartError> {
        let sockets = listener::bind_local_sockets(&options)?;
        let (stop, stopping) = watch::channel(false);
        let audit = options.audit.clone();
        let mut shared = GatewayState::new(warm, options, address, stopping.clone());
        if let Some(audit) = audit {
            let started = AuditLog::start(audit, Arc::clone(&shared.counters))?;
            shared.audit = Some(started);
        }
        let shared = Arc::new(shared);
        let weak = || Arc::downgrade(&shared);
        let maintaining = client_sessions::run_maintenance(weak(), stopping.clone());
        let watching = access::watch_auth_changes(weak(), stopping);
        let mut tasks = vec![
            clock::spawn("client-sessions", maintaining),
            clock::spawn("auth-changes", watching),
        ];
        let beating = process_health::run_heartbeat(Arc::downgrade(&shared.process_health));
        drop(clock::spawn("heartbeat", beating));
        let close = watch::Sender::new(false);
        for (socket, role) in sockets {
            let (shared, closing) = (Arc::clone(&shared), close.subscribe());
            let accepting = listener::accept_local_connections(shared, socket, role, closing);
            tasks.push(clock::spawn("local-listener", accepting));
        }
        Ok(Self {
            tasks,
            shared,
            address,
            stop,
            close,
            ops: None,
        })
    }

    /// The address of MCP.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the ops pages.
    pub fn ops_address(&self) -> Option<SocketAddr> {
        self.ops.as_ref().map(|ops| ops.address)
    }

    /// The engine.
    pub fn warmline(&self) -> &Warmline {
        &self.shared.warmline
    }

    /// The number of requests that were answered with a 5xx status.
    pub fn requests_failed(&self) -> u64 {
        let requests = &self.shared.counters.requests;
        let failed = |era: &RequestEra| requests.count(*era, StatusClass::ServerError);
        RequestEra::ALL.iter().map(failed).sum()
    }

    /// Replaces the authentication from the next request on. Callers with revoked credentials lose
    /// their streams. A network listener keeps its authentication.
    pub fn set_auth(&self, auth: Auth) {
        let shared = &self.shared;
        if matches!(auth, Auth::None) && !self.address.ip().is_loopback() {
            let address = self.address;
            tracing::error!(%address, "authentication stays on: the address is reachable from the network");
            return;
        }
        shared.access.set_auth(auth, &shared.warmline);
    }

    /// Resolves when a stop is requested at the admin socket.
    pub async fn shutdown_requested(&self) -> ShutdownRequest {
        self.wait_for_shutdown(|request| *request != ShutdownRequest::NotRequested)
            .await
    }

    /// Resolves when a stop without waiting is requested there.
    pub async fn immediate_shutdown_requested(&self) {
        self.wait_for_shutdown(|request| *request == ShutdownRequest::AtOnce)
            .await;
    }

    async fn wait_for_shutdown(
        &self,
        is_wanted: impl FnMut(&ShutdownRequest) -> bool,
    ) -> ShutdownRequest {
        let mut requested = self.shared.admin.shutdown.subscribe();
        match requested.wait_for(is_wanted).await {
            Ok(request) => *request,
            // The sender lives as long as this.
            Err(_) => std::future::pending().await,
        }
    }

    /// The requests to reload the configuration, for its owner to answer.
    pub fn reload_requests(&self) -> mpsc::Receiver<ReloadRequest> {
        self.shared.admin.reload_queue.open()
    }

    /// How long the gateway has been idle; `None` while a run lives or a call is in flight.
    pub fn idle_time(&self) -> Option<Duration> {
        let snapshot = self.shared.warmline.snapshot();
        let mut servers = snapshot.servers.iter();
        let is_busy = servers.any(|server| server.count("calls_under_way", &[]) > 0);
        if is_busy || !snapshot.runs.is_empty() {
            return None;
        }
        let admin = &self.shared.admin;
        let used = Duration::from_millis(admin.last_used.load(Ordering::Relaxed));
        Some(admin.started_at.elapsed().saturating_sub(used))
    }

    /// Announces a shutdown: `/readyz` says no, and each response closes its connection. Returns
    /// how long to keep accepting connections, so that a watcher notices.
    pub fn announce_shutdown(&self) -> Duration {
        self.shared.drain_notice.announce()
    }

    /// Rejects new calls as not sent, with a time to retry, and closes idle connections. Calls in
    /// flight go on.
    pub fn drain(&self) {
        self.stop.send_replace(true);
    }

    /// The number of responses that clients have yet to read to their end.
    pub fn unfinished_responses(&self) -> u64 {
        self.shared
            .unfinished_responses
            .count
            .load(Ordering::Relaxed)
    }

    /// Marks calls in flight as cut: their responses no longer count as
    /// [`Gateway::unfinished_responses`].
    pub fn mark_calls_cut(&self) {
        let responses = &self.shared.unfinished_responses;
        responses.calls_cut.store(true, Ordering::Relaxed);
    }

    /// Resolves when no connection is left, after [`Gateway::drain`].
    pub async fn drained(&self) {
        // The shared state holds one receiver, as long as the gateway lives.
        while self.stop.receiver_count() > 1 {
            clock::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops accepting connections, and closes idle ones. Calls in flight go on. Waits up to a
    /// second for the audit to be written.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.close.send_replace(true);
        let tasks = futures_util::future::join_all(self.tasks);
        clock::timeout(Duration::from_secs(1), tasks).await.ok();
        flush_audit(&self.shared).await;
    }
}

async fn bind_listener(
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
            .field("servers", &self.shared.warmline.server_names())
            .finish_non_exhaustive()
    }
}
