//! `warmline url`: what to paste, for each client.

use crate::prelude::*;

#[test]
fn a_url_is_printed_with_what_to_paste() {
    let warmline = Warmline::new();
    warmline.write_user(
        "warmline.toml",
        "[servers.github]\nurl = 'https://example.com/mcp'\n",
    );
    for client in [
        "langchain",
        "claude",
        "cursor",
        "vscode",
        "openai-agents",
        "pydantic-ai",
        "python",
        "typescript",
        "curl",
    ] {
        let output = warmline.run(&["url", "github", "--for", client]);
        output.exits(0).says("if `serve` uses another");
        let token = local_token(&warmline.state());
        output
            .prints(format!("Bearer {token}"))
            .prints("/servers/github/mcp");
    }
    shows!(warmline, @r#"
    $ warmline url github --for langchain
    from langchain_mcp_adapters.client import MultiServerMCPClient

    run = "chat-1"  # one name per conversation: its calls share a session with the server
    client = MultiServerMCPClient({
        "github": {
            "transport": "http",
            "url": f"http://127.0.0.1:[PORT]/runs/{run}/servers/github/mcp",
            "headers": {"Authorization": "Bearer [TOKEN]"},
        }
    })
    tools = await client.get_tools()
    2> the gateway listens on `127.0.0.1:[PORT]` by default; if `serve` uses another address, add --at http://HOST:PORT
    $ warmline url github --for cursor --run trip
    {
      "mcpServers": {
        "github": {
          "headers": {
            "Authorization": "Bearer [TOKEN]"
          },
          "url": "http://127.0.0.1:[PORT]/runs/trip/servers/github/mcp"
        }
      }
    }
    2> the gateway listens on `127.0.0.1:[PORT]` by default; if `serve` uses another address, add --at http://HOST:PORT
    "#);
    for client in ["langchain", "openai-agents", "pydantic-ai"] {
        for (words, run) in [(&[][..], "chat-1"), (&["--run", "trip"], "trip")] {
            let output = warmline.run(&[&["url", "github", "--for", client], words].concat());
            output
                .prints(format!("run = \"{run}\""))
                .prints("/runs/{run}/servers/github");
        }
    }
    shows!(warmline, @r"
    $ warmline url githup
    2> error[server-unknown]: no server is configured as `githup`
    2>   hint: did you mean `github`?
    exit: 2
    $ warmline url --at https://mcp.example.com/
    https://mcp.example.com/mcp
    Authorization: Bearer [TOKEN]
    ");
    let elsewhere = warmline.run(&["url", "githup", "--at", "https://mcp.example.com/"]);
    assert_eq!(elsewhere.exit, 0, "it may know other servers: {elsewhere}");
}

/// Where the gateway is said to listen is told with who says so: it may have been started otherwise.
#[test]
fn a_url_says_by_what_the_gateway_listens_there() {
    let warmline = Warmline::new();
    let output = warmline.run(&["url", "typed-at-serve"]);
    tells!(output, @r"
    exit: 0
    ----- stdout -----
    http://127.0.0.1:[PORT]/servers/typed-at-serve/mcp
    Authorization: Bearer [TOKEN]
    ----- stderr -----
    the gateway listens on `127.0.0.1:[PORT]` by default; if `serve` uses another address, add --at http://HOST:PORT
    note: no file declares `typed-at-serve`: it only exists if `serve` names it
    ");
    warmline.write_user("warmline.toml", "[gateway]\nlisten = '127.0.0.1:9484'\n");
    let output = warmline.run(&["url"]);
    output.says("/.config/warmline/warmline.toml:2; if");
}

/// Who must show a token of their own is told where one comes from.
#[test]
fn a_url_says_where_a_token_comes_from() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[gateway]\nauth = 'tokens'\n");
    let output = warmline.run(&["url", "--for", "cursor"]);
    output
        .prints("Bearer YOUR_TOKEN")
        .says("replace YOUR_TOKEN by a token: `warmline token new NAME` makes one");
}
