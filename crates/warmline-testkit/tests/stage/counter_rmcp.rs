//! A counter on the official Rust SDK, over HTTP: both eras; one count for each legacy session.
//!
//! It runs on a thread of its own until it is dropped. Who includes this file needs `rmcp` with
//! its server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

type Service = StreamableHttpService<Counter, LocalSessionManager>;

/// The server, until it is dropped.
pub(crate) struct RmcpCounter {
    pub(crate) url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RmcpCounter {
    /// On a free port of the loopback interface, with TLS where there is an acceptor.
    pub(crate) fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = match tls {
            Some(_) => format!("https://localhost:{port}/mcp"),
            None => format!("http://127.0.0.1:{port}/mcp"),
        };
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, tls) => {},
                    _ = stopped => {},
                }
            });
        });
        Self {
            url,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for RmcpCounter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) {
    let service = StreamableHttpService::new(
        || Ok(Counter::default()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    while let Ok((socket, _)) = listener.accept().await {
        socket.set_nodelay(true).ok();
        let (tls, service) = (tls.clone(), service.clone());
        tokio::spawn(async move {
            match tls {
                None => talk(socket, service).await,
                Some(tls) => {
                    if let Ok(socket) = tls.accept(socket).await {
                        talk(socket, service).await;
                    }
                },
            }
        });
    }
}

async fn talk(socket: impl AsyncRead + AsyncWrite + Unpin, service: Service) {
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { Ok::<_, std::convert::Infallible>(service.handle(request).await) }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), answer);
    connection.await.ok();
}

/// The handler: one for each session.
#[derive(Default)]
struct Counter {
    count: AtomicU64,
}

impl ServerHandler for Counter {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = JsonObject::from_iter([("type".to_owned(), "object".into())]);
        let bump = Tool::new("bump", "Count the calls of this session", schema);
        Ok(ListToolsResult::with_all_items(vec![bump]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let count = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let told = ContentBlock::text(count.to_string());
        Ok(CallToolResult::success(vec![told]).into())
    }
}
