//! What outlives Warmline itself: a gateway ends, another one takes its place, and nobody notices.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use warmline::core::era::Era;
use warmline::store::FileStore;
use warmline::{Server, Vault, Warmline};
use warmline_gateway::{Gateway, Options};
use warmline_testkit::LedgerServer;

use super::Stage;
use super::steps::count;
use super::world::{PATIENCE, World, bug, unanswered};
use crate::clock;
use crate::problem::Outcome;
use crate::report::text::seconds;

/// A client goes on in its session, and the server in its own, when the gateway between is another.
pub(super) async fn restarting(stage: &Stage<'_>, world: &World) -> Outcome<()> {
    stage.title(
        6,
        "The gateway ends in the middle of a run, and starts again",
    );
    let folder = tempfile::tempdir().map_err(|error| bug(&error.to_string()))?;
    let first = Front::start(folder.path(), &world.http, ANY_PORT).await?;
    let address = first.gateway.address();
    let client = client_of(address)?;
    let run = client.begin();
    let server = run.server(World::WEB).map_err(|e| unanswered(&e))?;
    let mut before = Vec::new();
    for _ in 0..2 {
        before.push(count(server.call("counter", json!({})).await)?);
    }
    stage.row("restart", "before", &before.join(" "), "");
    let sessions = world.http.counts().initializes;
    first.end().await;
    let begun = clock::now();
    let second = Front::start(folder.path(), &world.http, address).await?;
    let after = count(server.call("counter", json!({})).await)?;
    let took = seconds(begun.elapsed());
    let means = match world.http.counts().initializes - sessions {
        0 => format!("{took} later, in the same session"),
        _ => format!("{took} later, in another session"),
    };
    stage.row("restart", "the next call", &after, &means);
    run.end().await;
    client.close().await;
    second.end().await;
    stage.command("G=http://127.0.0.1:8484/runs/trip/servers/127-0-0-1-8400/mcp");
    stage.command(SERVE);
    stage.command("warmline call $G counter");
    stage.command("kill -9 $GATEWAY; wait $GATEWAY");
    stage.command(SERVE);
    stage.command("warmline call $G counter");
    Ok(())
}

/// A gateway with an engine of its own, whose sessions are kept in a folder.
struct Front {
    warm: Warmline,
    gateway: Gateway,
}

impl Front {
    async fn start(folder: &Path, server: &LedgerServer, listen: SocketAddr) -> Outcome<Self> {
        let vault = Vault::in_folder(folder).map_err(|trouble| bug(&trouble.to_string()))?;
        let warm = Warmline::builder()
            .server(patient(server.url()))
            .store(FileStore::in_folder(folder.join("sessions")))
            .vault(vault)
            .build()
            .map_err(|error| unanswered(&error))?;
        let options = Options {
            listen,
            ..Options::default()
        };
        let gateway = Gateway::start(warm.clone(), options).await;
        let gateway = gateway.map_err(|error| bug(&error.to_string()))?;
        Ok(Self { warm, gateway })
    }

    /// What it knew is in its folder now, and nowhere else.
    async fn end(self) {
        self.gateway.stop().await;
        self.warm.close().await;
    }
}

/// A client that holds one session with the gateway, as most that are well made do.
fn client_of(gateway: SocketAddr) -> Outcome<Warmline> {
    let url = format!("http://{gateway}/servers/{}/mcp", World::WEB);
    let client = Warmline::builder().server(patient(url)).build();
    client.map_err(|error| unanswered(&error))
}

fn patient(url: String) -> Server {
    let server = Server::http(World::WEB, url).era(Era::Legacy);
    server.patience(PATIENCE, PATIENCE)
}

const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// How the gateway is started by hand.
const SERVE: &str = "warmline serve $U --auth none & GATEWAY=$!; sleep 1";
