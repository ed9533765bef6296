//! `warmline url`: the URL and the token of a server at the gateway, and snippets for clients.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use warmline_config::gateway_settings::{AuthMode, GatewaySettings};
use warmline_config::{Config, parse_url};
use warmline_core::error::code::Code;
use warmline_engine::settings::{SettingOrigin, SettingsGroup as _};
use warmline_gateway::auth::token_store::TokenStore;

use crate::backend::selected_run::check_run_name;
use crate::hints::did_you_mean;
use crate::output::tool_content::pretty_json;
use crate::output::{CliResult, JsonFields, Problem, Report};
use crate::target::{folders_and_trust, state_folder};

const LONG_HELP: &str = "\
Print the URL and the token for using a server through the gateway, or a snippet for a client.

Nothing is contacted: the address comes from the configuration, the token from the state folder of
the gateway. The output holds the token of this machine: it is a secret.";

const EXAMPLES: &str = "\
Examples:
  warmline url github
  warmline url github --for langchain
  warmline url --for claude
  warmline url browser --for curl --run trip";

/// Print URL, token or a client snippet for a server of the gateway
#[derive(Debug, Args)]
#[command(long_about = LONG_HELP, after_long_help = EXAMPLES)]
pub(crate) struct UrlArgs {
    /// The server; default is all servers in one
    pub(crate) name: Option<String>,
    /// Print a snippet for this client
    #[arg(long = "for", value_name = "CLIENT")]
    pub(crate) client: Option<SnippetClient>,
    /// A run for the path: all users of this URL share one session with the server
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Option<String>,
    /// The URL of the gateway, if it is not where it listens
    #[arg(long = "at", value_name = "URL")]
    pub(crate) gateway_url: Option<String>,
    /// A configuration file, instead of those in the default places
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The state folder of the gateway
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SnippetClient {
    Langchain,
    Claude,
    Cursor,
    Vscode,
    OpenaiAgents,
    PydanticAi,
    Python,
    Typescript,
    Curl,
}

struct ClientEndpoint {
    name: String,
    url: String,
    /// The same with a run in its path that the client fills in as `{run}`.
    run_url: String,
    run_name: String,
    /// The token or a placeholder; none without authentication.
    token: Option<String>,
}

pub(super) fn run(typed: &UrlArgs, report: &Report) -> CliResult<u8> {
    let (folders, store) = folders_and_trust()?;
    let config = Config::read_skipping_untrusted(typed.config.as_deref(), &folders, &store)?;
    let mut settings = config.gateway_settings(&store);
    settings.apply_process_environment()?;
    // A gateway elsewhere may use other files.
    let name = typed.name.as_deref();
    let name = name.filter(|_| typed.gateway_url.is_none());
    name.map_or(Ok(()), |name| check_declared(name, &config))?;
    let token = client_token(&settings, typed)?;
    let place = client_endpoint(typed, &settings, token)?;
    match (typed.client, report.is_json()) {
        (client, true) => {
            let paste = client.map(|client| snippet(client, &place));
            let fields = JsonFields::with("name", &place.name)
                .put("url", &place.url)
                .put("token", &place.token)
                .put("paste", paste);
            report.print_object("url", &fields);
        },
        (Some(client), false) => report.print(&snippet(client, &place)),
        (None, false) => {
            report.print(&place.url);
            if let Some(token) = &place.token {
                report.print(&format!("Authorization: Bearer {token}"));
            }
        },
    }
    if typed.gateway_url.is_none() && !report.is_json() {
        report.print_note(&format!(
            "the gateway listens on `{}` by {}; if `serve` uses another address, add --at http://HOST:PORT",
            settings.listen,
            origin_text(&settings.origin("gateway.listen"))
        ));
    }
    if place.token.as_deref() == Some(TOKEN_PLACEHOLDER) && !report.is_json() {
        report.print_note(match settings.auth {
            AuthMode::Jwt => "replace YOUR_TOKEN by a JWT for this gateway",
            AuthMode::Local | AuthMode::Tokens | AuthMode::Proxy | AuthMode::None => {
                "replace YOUR_TOKEN by a token: `warmline token new NAME` makes one"
            },
        });
    }
    if let Some(name) = name.filter(|_| config.declarations().next().is_none()) {
        report.warn(&format!(
            "no file declares `{name}`: it only exists if `serve` names it"
        ));
    }
    if typed.client == Some(SnippetClient::Claude) && typed.name.is_none() {
        report.print_note("this is all servers in one; for one of them: `warmline url NAME`");
    }
    Ok(0)
}

/// Stands for a token that only its caller knows.
const TOKEN_PLACEHOLDER: &str = "YOUR_TOKEN";

/// Checks that the files declare a name. If they declare none, `serve` may name it.
fn check_declared(name: &str, config: &Config) -> CliResult<()> {
    let names = config.declarations();
    let names: Vec<&str> = names.map(|(_, server)| server.name.as_str()).collect();
    if names.is_empty() || names.contains(&name) {
        return Ok(());
    }
    let what = format!("no server is configured as `{}`", name.escape_debug());
    let hint = did_you_mean(name, names).unwrap_or_else(|| {
        "`warmline doctor` lists those that are; `--at URL` names another gateway".to_owned()
    });
    Err(Problem::new(Code::ServerUnknown, what).with_hint(hint))
}

fn origin_text(origin: &SettingOrigin) -> String {
    match origin {
        SettingOrigin::Default | SettingOrigin::Builder | SettingOrigin::MachineLimit => {
            "default".to_owned()
        },
        SettingOrigin::Environment(_) | SettingOrigin::File { .. } => origin.to_string(),
    }
}

fn client_token(settings: &GatewaySettings, typed: &UrlArgs) -> CliResult<Option<String>> {
    match settings.auth {
        AuthMode::None | AuthMode::Proxy => Ok(None),
        AuthMode::Tokens | AuthMode::Jwt => Ok(Some(TOKEN_PLACEHOLDER.to_owned())),
        AuthMode::Local => {
            let state = state_folder(typed.state_dir.as_deref())?;
            let local = TokenStore::in_state_folder(&state).local_token();
            let local = local.map_err(|error| {
                Problem::usage("cannot read or make the token of this machine")
                    .with_cause(error.to_string())
                    .with_hint("name the state folder of the gateway with --state-dir")
            })?;
            Ok(Some(local))
        },
    }
}

fn client_endpoint(
    typed: &UrlArgs,
    settings: &GatewaySettings,
    token: Option<String>,
) -> CliResult<ClientEndpoint> {
    let base = base_url(typed, settings)?;
    let inside = match &typed.name {
        Some(name) => format!("servers/{name}/mcp"),
        None => "mcp".to_owned(),
    };
    if let Some(run) = &typed.run {
        check_run_name(run, "")?;
    }
    Ok(ClientEndpoint {
        name: typed.name.clone().unwrap_or_else(|| "warmline".to_owned()),
        url: match &typed.run {
            Some(run) => format!("{base}/runs/{run}/{inside}"),
            None => format!("{base}/{inside}"),
        },
        run_url: format!("{base}/runs/{{run}}/{inside}"),
        run_name: typed.run.clone().unwrap_or_else(|| "chat-1".to_owned()),
        token,
    })
}

fn base_url(typed: &UrlArgs, settings: &GatewaySettings) -> CliResult<String> {
    if let Some(at) = &typed.gateway_url {
        parse_url(at).map_err(|why| Problem::usage("--at is not a URL").with_cause(why))?;
        return Ok(at.trim_end_matches('/').to_owned());
    }
    let listen = settings.listen;
    if listen.port() == 0 || listen.ip().is_unspecified() {
        let what = format!("the gateway listens on `{listen}`, which is not an address to call");
        return Err(Problem::usage(what).with_hint("add its address: --at http://HOST:PORT"));
    }
    Ok(format!("{}://{listen}", settings.scheme()))
}

/// A snippet to paste into a client: the shortest text that works unchanged.
fn snippet(client: SnippetClient, place: &ClientEndpoint) -> String {
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

/// The headers, valid in Python and JavaScript.
fn header_object(place: &ClientEndpoint) -> String {
    let header = place.token.as_ref();
    let header = header.map(|token| format!("\"Authorization\": \"Bearer {token}\""));
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
