//! The world of a client: servers of every era, an engine, and a gateway in front of them.

use crate::prelude::*;
use warmline_testkit::{LedgerServer, Personality};

/// A server that keeps a session for each legacy client, and speaks nothing else.
pub(crate) const LEGACY: &str = "legacy";
/// A server that speaks both eras, and keeps a session on its legacy leg.
pub(crate) const DUAL: &str = "dual";
/// A server that knows no `initialize`.
pub(crate) const MODERN: &str = "modern";

/// Three servers behind a gateway that asks nobody who they are.
pub(crate) struct World {
    servers: [(&'static str, LedgerServer); 3],
    warm: Warmline,
    gateway: Gateway,
}

impl World {
    pub(crate) async fn new() -> Self {
        let servers = [
            (LEGACY, Personality::legacy()),
            (DUAL, Personality::dual()),
            (MODERN, Personality::modern()),
        ];
        let servers = servers.map(|(name, kind)| (name, LedgerServer::start(kind).unwrap()));
        let warm = servers
            .iter()
            .fold(Warmline::builder(), |builder, (name, server)| {
                builder.server(Server::http(*name, server.url()))
            })
            .build()
            .unwrap();
        let options = GatewayOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            sse: true,
            ..GatewayOptions::default()
        };
        let gateway = Gateway::start(warm.clone(), options).await.unwrap();
        Self {
            servers,
            warm,
            gateway,
        }
    }

    pub(crate) fn server(&self, name: &str) -> &LedgerServer {
        let found = self.servers.iter().find(|(known, _)| *known == name);
        &found.unwrap().1
    }

    /// Where a server answers without the gateway.
    pub(crate) fn direct(&self, server: &str) -> String {
        self.server(server).url()
    }

    /// Where it answers through the gateway.
    pub(crate) fn through(&self, server: &str) -> String {
        format!("http://{}/servers/{server}/mcp", self.gateway.address())
    }

    /// Where all of them answer in one.
    pub(crate) fn merged(&self) -> String {
        format!("http://{}/mcp", self.gateway.address())
    }

    /// The same inside a run.
    pub(crate) fn merged_in_run(&self, run: &str) -> String {
        format!("http://{}/runs/{run}/mcp", self.gateway.address())
    }

    /// Where one of them answers inside a run.
    pub(crate) fn in_run(&self, run: &str, server: &str) -> String {
        let address = self.gateway.address();
        format!("http://{address}/runs/{run}/servers/{server}/mcp")
    }

    /// Ends everything; nothing was done to a server that must not be.
    pub(crate) async fn finish(self) {
        self.gateway.stop().await;
        self.warm.close().await;
        for (name, server) in &self.servers {
            assert_eq!(server.violations(), Vec::<String>::new(), "{name}");
        }
    }
}
