//! The gateway: MCP clients on one side, Warmline's engine on the other.
//!
//! A [`Gateway`] listens, authenticates callers, finds their run, speaks to each client in its own
//! era, and hands every call to the engine. It decides nothing about sessions.

mod access;
pub mod admin;
pub mod auth;
mod downstream;
mod endpoint;
mod gateway;
mod limits;
mod listener;
pub mod metrics;
mod ops;
pub mod options;
pub mod reload;
mod response;
mod shutdown;
mod startup;
mod timestamp;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
pub use warmline_config::{AccessRule, AccessSubject, DeclaredAccess};
use warmline_engine::Warmline;
use warmline_engine::metrics::Counter;

use crate::access::CurrentAccessPolicy;
pub use crate::access::RunSource;
use crate::access::audit::AuditLog;
pub use crate::access::audit::AuditOptions;
pub use crate::access::rules::AccessRules;
use crate::admin::AdminState;
pub use crate::admin::{ReloadFailure, ReloadRequest, ShutdownRequest};
pub use crate::auth::protected_resource::ProtectedResource;
pub use crate::auth::{
    Auth, AuthMethod, BearerToken, IpNetwork, JWT_ALGORITHMS, JwtAlgorithm, JwtOptions, KeySource,
    LOCAL_IDENTITY, TokenSource, TrustedProxies,
};
use crate::downstream::aggregate::absent::Absences;
use crate::downstream::http_sse::HttpSseSessions;
use crate::downstream::legacy::client_sessions::ClientSessions;
use crate::downstream::modern::listen::OpenListens;
use crate::downstream::modern::shared_listen::SharedListens;
pub use crate::downstream::stdio::{StdioClient, StdioShutdownHandle};
pub use crate::gateway::Gateway;
use crate::limits::ListenerLimiter;
pub use crate::limits::ListenerLimits;
pub use crate::listener::TlsFiles;
use crate::listener::{RejectionLog, UnfinishedResponses};
use crate::metrics::GatewayCounters;
pub use crate::ops::METRICS;
use crate::ops::process_health::ProcessHealth;
use crate::shutdown::DrainNotice;
pub use crate::startup::StartError;

/// The options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// Where it listens for MCP.
    pub listen: SocketAddr,
    /// Serves TLS there, with this certificate.
    pub tls: Option<TlsFiles>,
    /// A Unix socket for MCP, for the user who runs the gateway.
    pub socket: Option<PathBuf>,
    /// A Unix socket for `/admin`, for the same user. It may be the same one.
    pub admin_socket: Option<PathBuf>,
    /// Whether clients of the HTTP+SSE transport of 2024-11-05 are served, at
    /// `/servers/{server}/sse` beside `/servers/{server}/mcp`.
    pub sse: bool,
    /// Whether commands of the local user may declare servers at the admin socket: they could start
    /// the programs themselves.
    pub adopts_servers: bool,
    /// How callers authenticate.
    pub auth: Auth,
    /// Tells clients where they get tokens.
    pub protected_resource: Option<ProtectedResource>,
    /// Who may use which server and which tools.
    pub rules: AccessRules,
    /// Writes a line for every call.
    pub audit: Option<AuditOptions>,
    /// Where clients name their run, in order of precedence.
    pub run_from: Vec<RunSource>,
    /// Allowed names in `Host`, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Allowed origins of web pages, beside those of this machine.
    pub allowed_origins: Vec<String>,
    /// The largest message, in bytes.
    pub max_request: usize,
    /// How long a list of all servers waits for each of them.
    pub list_share: Duration,
    /// Limits on connections, requests and bytes.
    pub limits: ListenerLimits,
    /// Where `/livez`, `/readyz`, `/metrics` and `/servers` are served, without authentication.
    /// They show no identity, run or argument.
    pub ops: Option<SocketAddr>,
    /// Counts the lines that the log lost, for the metrics.
    pub lost_log_lines: Option<Arc<Counter>>,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            listen: ([127, 0, 0, 1], 8484).into(),
            tls: None,
            socket: None,
            admin_socket: None,
            sse: false,
            adopts_servers: false,
            auth: Auth::default(),
            protected_resource: None,
            rules: AccessRules::none(),
            audit: None,
            run_from: RunSource::defaults(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_request: 4 << 20,
            list_share: Duration::from_secs(10),
            limits: ListenerLimits::default(),
            ops: None,
            lost_log_lines: None,
        }
    }
}

/// What all connections share.
pub(crate) struct GatewayState {
    pub(crate) warmline: Warmline,
    /// The options of the start. Those that a reload changes are in the access policy.
    pub(crate) options: GatewayOptions,
    pub(crate) access: CurrentAccessPolicy,
    pub(crate) limiter: Arc<ListenerLimiter>,
    pub(crate) unfinished_responses: UnfinishedResponses,
    pub(crate) audit: Option<AuditLog>,
    pub(crate) clients: ClientSessions,
    pub(crate) sse_sessions: HttpSseSessions,
    pub(crate) listen_streams: OpenListens,
    pub(crate) shared_listens: SharedListens,
    pub(crate) absent_servers: Absences,
    pub(crate) counters: Arc<GatewayCounters>,
    pub(crate) rejection_log: RejectionLog,
    pub(crate) process_health: Arc<ProcessHealth>,
    pub(crate) drain_notice: DrainNotice,
    pub(crate) admin: AdminState,
    /// Whether new requests are rejected.
    pub(crate) stopping: watch::Receiver<bool>,
}

impl GatewayState {
    pub(crate) fn new(
        warmline: Warmline,
        options: GatewayOptions,
        address: SocketAddr,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            access: CurrentAccessPolicy::new(&options, address, &warmline),
            limiter: Arc::new(ListenerLimiter::new(options.limits)),
            unfinished_responses: UnfinishedResponses::default(),
            audit: None,
            clients: ClientSessions::default(),
            sse_sessions: HttpSseSessions::default(),
            listen_streams: OpenListens::default(),
            shared_listens: SharedListens::default(),
            absent_servers: Absences::default(),
            counters: Arc::default(),
            rejection_log: RejectionLog::default(),
            process_health: Arc::default(),
            drain_notice: DrainNotice::default(),
            admin: AdminState::new(options.adopts_servers),
            stopping,
            warmline,
            options,
        }
    }
}

pub(crate) async fn flush_audit(shared: &GatewayState) {
    if let Some(audit) = &shared.audit {
        audit.flush(Duration::from_secs(1)).await;
    }
}
