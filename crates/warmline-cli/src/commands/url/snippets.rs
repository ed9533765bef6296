//! Snippets to paste, for each client: the shortest text that works unchanged.

use serde_json::{Value, json};

use super::{ClientEndpoint, SnippetClient};

pub(super) fn snippet(client: SnippetClient, place: &ClientEndpoint) -> String {
    match client {
        SnippetClient::Langchain => langchain(place),
        SnippetClient::Claude => claude(place),
        SnippetClient::Cursor => {
            pretty_json(&json!({ "mcpServers": { &place.name: server_entry(place) } }))
        },
        SnippetClient::Vscode => {
            let mut entry = server_entry(place);
            entry["type"] = json!("http");
            pretty_json(&json!({ "servers": { &place.name: entry } }))
        },
        SnippetClient::OpenaiAgents => openai_agents(place),
        SnippetClient::PydanticAi => pydantic_ai(place),
        SnippetClient::Python => python(place),
        SnippetClient::Typescript => typescript(place),
        SnippetClient::Curl => curl(place),
    }
}

/// The entry of an `mcpServers` file.
fn server_entry(place: &ClientEndpoint) -> Value {
    let mut entry = json!({ "url": place.url });
    if let Some(token) = &place.token {
        entry["headers"] = json!({ "Authorization": format!("Bearer {token}") });
    }
    entry
}

fn pretty_json(value: &Value) -> String {
    format!("{value:#}")
}

/// The headers, valid in Python and JavaScript.
fn header_object(place: &ClientEndpoint) -> String {
    let header = place
        .token
        .as_ref()
        .map(|token| format!("\"Authorization\": \"Bearer {token}\""));
    format!("{{{}}}", header.unwrap_or_default())
}

/// The line of a Python program that names its run.
fn run_assignment(place: &ClientEndpoint) -> String {
    format!(
        "run = \"{}\"  # one name per conversation: its calls share a session with the server",
        place.run_name
    )
}

/// It opens a session per call: the run in the path joins them.
fn langchain(place: &ClientEndpoint) -> String {
    let (name, url_in_run) = (&place.name, &place.run_url);
    let (run, headers) = (run_assignment(place), header_object(place));
    format!(
        r#"from langchain_mcp_adapters.client import MultiServerMCPClient

{run}
client = MultiServerMCPClient({{
    "{name}": {{
        "transport": "http",
        "url": f"{url_in_run}",
        "headers": {headers},
    }}
}})
tools = await client.get_tools()"#
    )
}

fn claude(place: &ClientEndpoint) -> String {
    let (name, url) = (&place.name, &place.url);
    let header = match &place.token {
        Some(token) => format!(" --header \"Authorization: Bearer {token}\""),
        None => String::new(),
    };
    format!("claude mcp add --transport http {name} {url}{header}")
}

/// It holds a session for one turn: the run in the path continues in the next.
fn openai_agents(place: &ClientEndpoint) -> String {
    let (run, url, headers) = (run_assignment(place), &place.run_url, header_object(place));
    format!(
        r#"from agents import Agent, Runner
from agents.mcp import MCPServerStreamableHttp

{run}
async with MCPServerStreamableHttp({{"url": f"{url}", "headers": {headers}}}) as server:
    agent = Agent(name="Assistant", mcp_servers=[server])
    result = await Runner.run(agent, "…")"#
    )
}

/// As [`openai_agents`].
fn pydantic_ai(place: &ClientEndpoint) -> String {
    let (run, url, headers) = (run_assignment(place), &place.run_url, header_object(place));
    format!(
        r#"from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

{run}
server = MCPToolset(f"{url}", headers={headers})
agent = Agent("…", toolsets=[server])"#
    )
}

fn python(place: &ClientEndpoint) -> String {
    let (url, headers) = (&place.url, header_object(place));
    format!(
        r#"from mcp import ClientSession
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

async with create_mcp_http_client(headers={headers}) as http:
    async with streamable_http_client("{url}", http_client=http) as streams:
        async with ClientSession(*streams[:2]) as session:
            await session.initialize()
            print(await session.list_tools())"#
    )
}

fn typescript(place: &ClientEndpoint) -> String {
    let (url, headers) = (&place.url, header_object(place));
    format!(
        r#"import {{ Client, StreamableHTTPClientTransport }} from '@modelcontextprotocol/client';

const transport = new StreamableHTTPClientTransport(new URL('{url}'), {{
  requestInit: {{ headers: {headers} }},
}});
const client = new Client({{ name: 'my-agent', version: '1.0.0' }});
await client.connect(transport);
console.log(await client.listTools());"#
    )
}

fn curl(place: &ClientEndpoint) -> String {
    let header = match &place.token {
        Some(token) => format!(" \\\n  -H 'Authorization: Bearer {token}'"),
        None => String::new(),
    };
    let message = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "curl", "version": "1" },
        },
    });
    format!(
        "curl -i {}{header} \\\n  -H 'Content-Type: application/json' \\\n  -H 'Accept: application/json, text/event-stream' \\\n  -d '{message}'",
        place.url
    )
}
