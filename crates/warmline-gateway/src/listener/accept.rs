//! Accepts connections of the network and of the local sockets.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use warmline_platform::clock;

use super::ListenerRole;
use super::connection::serve_connection;
use super::local_socket::LocalListener;
use super::rejection::record_rejected_connection;
use super::tls::ReloadingTlsAcceptor;
use crate::auth::Peer;
use crate::limits::ConnectionPermit;
use crate::metrics::RejectionReason;
use crate::shutdown::wait_for_stop;
use crate::{GatewayOptions, GatewayState, StartError};

pub(crate) const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Response to a connection over the limit. It fits into any socket buffer.
const OVERLOADED_RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";

/// Accepts connections of the network until `closing`. During a drain it goes on, so that new
/// requests are rejected with a reason, and cancellations and replies to server requests arrive.
pub(crate) async fn accept_connections(
    shared: Arc<GatewayState>,
    listener: TcpListener,
    acceptor: Option<Arc<ReloadingTlsAcceptor>>,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = wait_for_stop(&mut closing) => return,
        };
        match accepted {
            Ok((socket, from)) => {
                let Some(permit) = acquire_permit(&shared, Peer::Address(from.ip())) else {
                    socket.try_write(OVERLOADED_RESPONSE).ok();
                    continue;
                };
                let (shared, stopping) = (Arc::clone(&shared), shared.stopping.clone());
                let serving = serve_tcp(shared, socket, from, acceptor.clone(), stopping);
                spawn_connection(permit, serving);
            },
            Err(error) => back_off(&error).await,
        }
    }
}

/// Binds the configured local sockets, each with its role.
pub(crate) fn bind_local_sockets(
    options: &GatewayOptions,
) -> Result<Vec<(LocalListener, ListenerRole)>, StartError> {
    let is_one = options.socket == options.admin_socket;
    let mcp_role = match is_one {
        true => ListenerRole::Both,
        false => ListenerRole::Mcp,
    };
    let mcp = options.socket.iter().map(|path| (path, mcp_role));
    let admin = options.admin_socket.iter().filter(|_| !is_one);
    let wanted = mcp.chain(admin.map(|path| (path, ListenerRole::Admin)));
    let bound = wanted.map(|(path, role)| {
        let listener = LocalListener::bind(path);
        let listener = listener.map_err(|error| StartError::Socket(path.clone(), error))?;
        Ok((listener, role))
    });
    bound.collect()
}

/// Accepts connections of the user who runs the gateway, until `closing`.
pub(crate) async fn accept_local_connections(
    shared: Arc<GatewayState>,
    listener: LocalListener,
    role: ListenerRole,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = wait_for_stop(&mut closing) => return,
        };
        match accepted {
            Ok(socket) => {
                let Some(permit) = acquire_permit(&shared, Peer::SameUser) else {
                    continue;
                };
                let (shared, stopping) = (Arc::clone(&shared), shared.stopping.clone());
                let peer = (Peer::SameUser, role);
                spawn_connection(permit, serve_connection(shared, socket, peer, stopping));
            },
            Err(error) => back_off(&error).await,
        }
    }
}

fn acquire_permit(shared: &Arc<GatewayState>, peer: Peer) -> Option<ConnectionPermit> {
    let permit = shared.limiter.try_acquire_connection(peer.address());
    if permit.is_none() {
        let rejected = (RejectionReason::Connections, "too many connections");
        record_rejected_connection(shared, peer, 0, rejected);
    }
    permit
}

fn spawn_connection(permit: ConnectionPermit, serving: impl Future<Output = ()> + Send + 'static) {
    drop(clock::spawn("connection", async move {
        serving.await;
        drop(permit);
    }));
}

async fn back_off(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a connection");
    clock::sleep(ACCEPT_RETRY_DELAY).await;
}

async fn serve_tcp(
    shared: Arc<GatewayState>,
    socket: TcpStream,
    from: SocketAddr,
    acceptor: Option<Arc<ReloadingTlsAcceptor>>,
    stopping: watch::Receiver<bool>,
) {
    let peer = (Peer::Address(from.ip()), ListenerRole::Mcp);
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%from, %error, "connection is not usable");
        return;
    }
    let Some(acceptor) = acceptor else {
        return serve_connection(shared, socket, peer, stopping).await;
    };
    match acceptor.accept(socket).await {
        Ok(socket) => serve_connection(shared, socket, peer, stopping).await,
        Err(error) => {
            let reason = RejectionReason::TlsHandshake;
            shared.counters.rejected.increment(reason);
            let what = format!("TLS handshake failed: {error}");
            shared
                .rejection_log
                .log_connection(reason, peer.0, 0, &what);
        },
    }
}
