//! The official Rust SDK. Its client over Unix sockets is the one that needs no second HTTP stack;
//! what it says above the socket is the same.

use std::borrow::Cow;

use rmcp::model::{CallToolRequestParams, ProtocolVersion};
use rmcp::service::RunningService;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, UnixSocketHttpClient};
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use tempfile::TempDir;
use tokio::net::{TcpStream, UnixListener};

use super::client_process::{ClientReport, counts};
use super::fixture::{DUAL, LEGACY, MODERN, World};

type Client = RunningService<RoleClient, ()>;

/// A Unix socket that leads to where a URL leads.
struct SocketBridge {
    folder: TempDir,
}

impl SocketBridge {
    fn to(url: &str) -> Self {
        let authority = url.split('/').nth(2).unwrap().to_owned();
        let folder = TempDir::new().unwrap();
        let listener = UnixListener::bind(folder.path().join("way")).unwrap();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut far = TcpStream::connect(&authority).await.unwrap();
                tokio::spawn(async move {
                    // Either side may leave in the middle; that is theirs to judge.
                    tokio::io::copy_bidirectional(&mut near, &mut far)
                        .await
                        .ok();
                });
            }
        });
        Self { folder }
    }

    async fn client(&self, url: &str, lifecycle: ClientLifecycleMode) -> Client {
        let socket = self.folder.path().join("way");
        let http = UnixSocketHttpClient::new(socket.to_str().unwrap(), url);
        let config = StreamableHttpClientTransportConfig::with_uri(url);
        let transport = StreamableHttpClientTransport::with_client(http, config);
        let served = ().serve_with_lifecycle(transport, lifecycle).await;
        served.unwrap_or_else(|error| panic!("{url}: {error}"))
    }
}

async fn visit(url: String, lifecycle: ClientLifecycleMode) -> ClientReport {
    let way = SocketBridge::to(&url);
    let client = way.client(&url, lifecycle).await;
    let tools = client.list_all_tools().await.unwrap();
    let mut said = Vec::new();
    for _ in 0..2 {
        let call = CallToolRequestParams::new(Cow::Borrowed("counter"));
        let result = serde_json::to_value(client.call_tool(call).await.unwrap()).unwrap();
        said.push(result["content"][0]["text"].as_str().unwrap().to_owned());
    }
    let seen = ClientReport {
        version: client
            .peer_info()
            .map(|peer| peer.protocol_version.to_string()),
        tools: tools
            .into_iter()
            .map(|tool| tool.name.into_owned())
            .collect(),
        counts: counts(&said),
    };
    client.cancel().await.unwrap();
    seen
}

/// As it comes it says `initialize`, and offers a version of the other era in it.
#[tokio::test]
async fn the_rust_sdk_is_served_and_runs_stay_apart() {
    let world = World::new().await;
    let seen = |url| visit(url, ClientLifecycleMode::Initialize);
    let direct = seen(world.direct(LEGACY)).await;
    assert_eq!(direct.counts, [1, 2]);
    for url in [
        world.through(LEGACY),
        world.through(LEGACY),
        world.in_run("one", LEGACY),
        world.in_run("other", LEGACY),
    ] {
        assert_eq!(seen(url).await, direct);
    }
    let again = seen(world.in_run("one", LEGACY)).await;
    assert_eq!(again.counts, [3, 4]);
    world.finish().await;
}

#[tokio::test]
async fn the_rust_sdk_is_served_in_both_eras_when_it_asks_first() {
    let world = World::new().await;
    for server in [LEGACY, DUAL, MODERN] {
        let asks = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        };
        let direct = visit(world.direct(server), asks.clone()).await;
        assert_eq!(visit(world.through(server), asks).await, direct, "{server}");
    }
    world.finish().await;
}
