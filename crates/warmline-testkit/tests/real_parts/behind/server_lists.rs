//! Lists of real servers, with and without the gateway.

use crate::prelude::*;
use std::path::PathBuf;

use super::client::Client;
use super::stdio_process;
use crate::counter_rmcp::RmcpCounter;
use crate::real_parts::{kubernetes, official_http, python_command};

const LEGACY: &[Era] = &[Era::Legacy];
const MODERN: &[Era] = &[Era::Modern];
const BOTH: &[Era] = &[Era::Legacy, Era::Modern];

/// A server behind a gateway of its own.
pub(crate) struct Behind {
    warm: Warmline,
    gateway: Gateway,
}

impl Behind {
    pub(crate) async fn new(server: Server) -> Self {
        let warm = Warmline::builder().server(server).build().unwrap();
        let options = GatewayOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            ..GatewayOptions::default()
        };
        let gateway = Gateway::start(warm.clone(), options).await.unwrap();
        Self { warm, gateway }
    }

    /// Where the server answers, inside a run.
    pub(crate) fn url(&self) -> String {
        let address = self.gateway.address();
        format!("http://{address}/runs/one/servers/real/mcp")
    }

    pub(crate) async fn finish(self) {
        self.gateway.stop().await;
        self.warm.close().await;
    }
}

/// Talks with a server, off the threads that the gateway needs.
pub(crate) async fn off<T: Send + 'static>(talk: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(talk).await.unwrap()
}

async fn tools_at(url: String, era: Era) -> String {
    off(move || Client::begin(&url, era).request("tools/list", json!({}))).await
}

/// A server over HTTP lists the same with and without the gateway.
async fn over_http(url: &str, eras: &[Era]) {
    let behind = Behind::new(Server::http("real", url)).await;
    for &era in eras {
        let direct = tools_at(url.to_owned(), era).await;
        assert_eq!(tools_at(behind.url(), era).await, direct, "{era:?}");
    }
    behind.finish().await;
}

/// A program lists the same over its own pipes and behind the gateway.
async fn over_pipes(program: &Program, variables: &[(&str, PathBuf)], eras: &[Era]) {
    let words = std::iter::once(program.program()).chain(program.args.clone());
    let mut server = Server::stdio("real", words);
    let mut own = Vec::new();
    for (name, value) in variables {
        server = server.env(*name, text(value));
        own.push(((*name).to_owned(), text(value)));
    }
    let behind = Behind::new(server).await;
    for &era in eras {
        let (program, own) = (program.clone(), own.clone());
        let direct = off(move || stdio_process::tools(&program, &own, era)).await;
        assert_eq!(tools_at(behind.url(), era).await, direct, "{era:?}");
    }
    behind.finish().await;
}

#[tokio::test]
async fn everything_lists_the_same() {
    over_pipes(&official("everything"), &[], LEGACY).await;
    let running = Running::announced(&official_http("everything", "streamableHttp"));
    over_http(&running.url, LEGACY).await;
}

#[tokio::test]
async fn memory_files_and_thinking_list_the_same() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("memory.jsonl");
    over_pipes(&official("memory"), &[("MEMORY_FILE_PATH", file)], LEGACY).await;
    let root = text(&folder.path().canonicalize().unwrap());
    over_pipes(&official("filesystem").with(root), &[], LEGACY).await;
    over_pipes(&official("sequential-thinking"), &[], LEGACY).await;
}

#[tokio::test]
async fn time_and_git_list_the_same_in_both_eras() {
    for command in ["mcp-server-time", "mcp-server-git"] {
        over_pipes(&python_command("mcp2", command), &[], BOTH).await;
    }
}

#[tokio::test]
async fn fetch_lists_the_same_in_both_eras() {
    over_pipes(&python_command("fetch", "mcp-server-fetch"), &[], BOTH).await;
}

#[tokio::test]
async fn a_server_in_go_lists_the_same_over_pipes_and_http() {
    over_pipes(&kubernetes(), &[], BOTH).await;
    let running = Running::on_port(|port| {
        kubernetes()
            .with("--port")
            .with(port.to_string())
            .with("--bind-address")
            .with("127.0.0.1")
    });
    over_http(&running.url, LEGACY).await;
}

#[tokio::test]
async fn servers_on_the_typescript_sdks_list_the_same() {
    let running = Running::announced(&node("counter-v1.mjs").with("http"));
    over_http(&running.url, LEGACY).await;
    let running = Running::announced(&node("counter-v2.mjs").with("http"));
    over_http(&running.url, BOTH).await;
    let running = Running::announced(&node("counter-v2.mjs").with("http").with("modern"));
    over_http(&running.url, MODERN).await;
}

#[tokio::test]
async fn servers_on_the_python_sdks_list_the_same() {
    let running = Running::announced(&python("mcp1", "counter_mcp1.py").with("http"));
    over_http(&running.url, LEGACY).await;
    let running = Running::announced(&python("mcp2", "counter_mcp2.py").with("http"));
    over_http(&running.url, BOTH).await;
}

#[tokio::test]
async fn servers_on_fastmcp_list_the_same() {
    let running = Running::announced(&python("fastmcp2", "hello_fastmcp2.py"));
    over_http(&running.url, LEGACY).await;
    let running = Running::announced(&python("fastmcp3", "counter_fastmcp.py").with("http"));
    over_http(&running.url, LEGACY).await;
    let running = Running::announced(&python("fastmcp4", "counter_fastmcp.py").with("http"));
    over_http(&running.url, BOTH).await;
}

#[tokio::test]
async fn a_server_on_the_rust_sdk_lists_the_same() {
    let running = RmcpCounter::start(None);
    over_http(&running.url, BOTH).await;
}

/// Everything that a fixture of the conformance suite can be asked without being asked back.
fn everything_asked(url: &str, era: Era) -> Vec<Vec<String>> {
    let mut client = Client::begin(url, era);
    let lists = ["tools", "resources", "resources/templates", "prompts"];
    let mut heard: Vec<_> = lists
        .iter()
        .map(|list| client.heard(&format!("{list}/list"), json!({})))
        .collect();
    let tools = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_tool_with_progress",
        "there is none",
    ];
    for tool in tools {
        let mut params = json!({"name": tool, "arguments": {}});
        params["_meta"] = json!({"progressToken": "tök en"});
        heard.push(client.heard("tools/call", params));
    }
    for uri in [
        "test://static-text",
        "test://static-binary",
        "test://template/ä/data",
        "no:uri",
    ] {
        heard.push(client.heard("resources/read", json!({"uri": uri})));
    }
    let given = json!({"arg1": "a \"b\"", "arg2": "ä", "resourceUri": "test://x"});
    for name in [
        "test_simple_prompt",
        "test_prompt_with_arguments",
        "test_prompt_with_image",
        "none",
    ] {
        heard.push(client.heard("prompts/get", json!({"name": name, "arguments": given})));
    }
    heard
}

/// The fixtures of the conformance suite write JSON as their SDKs do, not as we would.
#[tokio::test]
async fn every_reply_of_a_fixture_is_the_same() {
    for (fixture, era) in [
        ("fixture-v1.mjs", Era::Legacy),
        ("fixture-v2.mjs", Era::Modern),
    ] {
        let running = Running::announced(&node(fixture));
        let behind = Behind::new(Server::http("real", &running.url)).await;
        let (url, place) = (running.url.clone(), behind.url());
        let direct = off(move || everything_asked(&url, era)).await;
        let through = off(move || everything_asked(&place, era)).await;
        assert_eq!(through, direct, "{fixture}");
        behind.finish().await;
    }
}
