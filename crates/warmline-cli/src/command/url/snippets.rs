//! What to paste, for each client: the shortest text that works as it is.

use serde_json::{Value, json};

use super::Place;
use crate::args::Client;

/// The text for a client.
pub(super) fn of(client: Client, place: &Place) -> String {
    match client {
        Client::Langchain => langchain(place),
        Client::Claude => claude(place),
        Client::Cursor => pretty(&json!({ "mcpServers": { &place.name: entry(place) } })),
        Client::Vscode => {
            let mut entry = entry(place);
            entry["type"] = json!("http");
            pretty(&json!({ "servers": { &place.name: entry } }))
        },
        Client::OpenaiAgents => openai_agents(place),
        Client::PydanticAi => pydantic_ai(place),
        Client::Python => python(place),
        Client::Typescript => typescript(place),
        Client::Curl => curl(place),
    }
}

/// The entry of an `mcpServers` file.
fn entry(place: &Place) -> Value {
    let mut entry = json!({ "url": place.url });
    if let Some(token) = &place.token {
        entry["headers"] = json!({ "Authorization": format!("Bearer {token}") });
    }
    entry
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}

/// The headers as a Python dict, and as an object of JavaScript.
fn headers(place: &Place) -> String {
    let header = place
        .token
        .as_ref()
        .map(|token| format!("\"Authorization\": \"Bearer {token}\""));
    format!("{{{}}}", header.unwrap_or_default())
}

/// The line of a Python program that names its run.
fn run(place: &Place) -> String {
    format!(
        "run = \"{}\"  # one name per conversation: its calls share a session with the server",
        place.run
    )
}

/// It opens a session per call: the run in the path keeps them together.
fn langchain(place: &Place) -> String {
    let Place {
        name, url_in_run, ..
    } = place;
    let (run, headers) = (run(place), headers(place));
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

fn claude(place: &Place) -> String {
    let Place { name, url, .. } = place;
    let header = match &place.token {
        Some(token) => format!(" --header \"Authorization: Bearer {token}\""),
        None => String::new(),
    };
    format!("claude mcp add --transport http {name} {url}{header}")
}

/// It holds a session for a turn: the run in the path goes on in the next one.
fn openai_agents(place: &Place) -> String {
    let (run, url, headers) = (run(place), &place.url_in_run, headers(place));
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
fn pydantic_ai(place: &Place) -> String {
    let (run, url, headers) = (run(place), &place.url_in_run, headers(place));
    format!(
        r#"from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

{run}
server = MCPToolset(f"{url}", headers={headers})
agent = Agent("…", toolsets=[server])"#
    )
}

fn python(place: &Place) -> String {
    let (url, headers) = (&place.url, headers(place));
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

fn typescript(place: &Place) -> String {
    let (url, headers) = (&place.url, headers(place));
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

fn curl(place: &Place) -> String {
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
