//! The servers of the demo, the engine that calls them, and a gateway in front of one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use warmline_core::era::Era;
use warmline_core::error::code::Code;
use warmline_engine::events::{Event, EventItem};
use warmline_engine::{Server, ServerHandle, ToolResult, Warmline};
use warmline_gateway::{Gateway, GatewayOptions};
use warmline_platform::clock;
use warmline_store::FileStore;
use warmline_store::keyring::Keyring;
use warmline_testkit::LedgerServer;
use warmline_testkit::faults::personality::Personality;

use super::demo_failure;
use crate::output::problem::{CliResult, Problem};

/// A server over HTTP, one over stdio, and one over stdio with a spare.
pub(super) struct DemoServers {
    pub(super) warmline: Warmline,
    pub(super) http: LedgerServer,
}

impl DemoServers {
    pub(super) const HTTP: &str = "demo";
    /// This program, started as a server over stdio.
    pub(super) const STDIO: &str = "program";
    /// The same, with one process opened ahead.
    pub(super) const STDIO_WITH_SPARE: &str = "spared";

    pub(super) fn start() -> CliResult<Self> {
        let http = LedgerServer::start(Personality::legacy()).map_err(|error| {
            Problem::new(Code::CannotReach, "the demo server cannot listen")
                .with_cause(error.to_string())
        })?;
        let program = std::env::current_exe();
        let program = program.map_err(|error| demo_failure(&bug(&error)))?;
        let program = program.to_string_lossy().into_owned();
        let command = [
            program.as_str(),
            "demo-server",
            "--stdio",
            "--era",
            "legacy",
        ];
        let servers = [
            Server::http(Self::HTTP, http.url()),
            Server::stdio(Self::STDIO, command),
            Server::stdio(Self::STDIO_WITH_SPARE, command).spares(1),
        ];
        let builder = Warmline::builder().servers(servers.map(configure));
        let warmline = builder
            .build()
            .map_err(|error| demo_failure(&error.into()))?;
        Ok(Self { warmline, http })
    }

    pub(super) async fn wait_for_spare(&self) -> CliResult<()> {
        let mut events = self.warmline.events();
        // Spares are opened once a run has used the server.
        let run = self.warmline.begin_run();
        call_counter(&run.server(Self::STDIO_WITH_SPARE)?).await?;
        let opened = async {
            while let Some(event) = events.next().await {
                if matches!(event, EventItem::Event(Event::SpareOpened { .. })) {
                    return true;
                }
            }
            false
        };
        let opened = clock::timeout(STEP_TIMEOUT, opened).await;
        run.end().await;
        match opened {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(bug(&"no spare was opened")),
        }
    }
}

pub(super) async fn call_counter(server: &ServerHandle) -> CliResult<String> {
    let result = server.call("counter", json!({})).await;
    let result = result.and_then(ToolResult::ok)?.structured::<Value>()?;
    Ok(result
        .get("count")
        .map(Value::to_string)
        .unwrap_or_default())
}

/// A gateway with an engine of its own, whose sessions are kept in a folder.
pub(super) struct DemoGateway {
    warmline: Warmline,
    gateway: Gateway,
}

impl DemoGateway {
    pub(super) async fn start(
        folder: &Path,
        server: &LedgerServer,
        listen: Option<SocketAddr>,
    ) -> CliResult<Self> {
        let vault = Keyring::in_folder(folder).map_err(|diagnostic| bug(&diagnostic))?;
        let warmline = Warmline::builder()
            .server(configure(Server::http(DemoServers::HTTP, server.url())))
            .store(FileStore::in_folder(folder.join("sessions")))
            .vault(vault)
            .build()?;
        let options = GatewayOptions {
            listen: listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into()),
            ..GatewayOptions::default()
        };
        let gateway = Gateway::start(warmline.clone(), options).await;
        let gateway = gateway.map_err(|error| bug(&error))?;
        Ok(Self { warmline, gateway })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.gateway.address()
    }

    /// An engine that holds one session with the gateway, as well-made clients do.
    pub(super) fn client(&self) -> CliResult<Warmline> {
        let url = format!(
            "http://{}/servers/{}/mcp",
            self.address(),
            DemoServers::HTTP
        );
        let server = configure(Server::http(DemoServers::HTTP, url));
        Ok(Warmline::builder().server(server).build()?)
    }

    /// Stops it; what it knew is in its folder only.
    pub(super) async fn shut_down(self) {
        self.gateway.stop().await;
        self.warmline.close().await;
    }
}

fn configure(server: Server) -> Server {
    let server = server.era(Era::Legacy);
    server.deadlines(STEP_TIMEOUT, STEP_TIMEOUT)
}

pub(super) fn bug(why: &impl ToString) -> Problem {
    Problem::new(Code::Bug, why.to_string())
}

/// No step needs more time.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
