//! `warmline url`: what to paste, for each client.

use crate::serve::local_token;
use crate::tells;
use crate::warmline::Warmline;

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
        let told = warmline.run(&["url", "github", "--for", client]);
        assert_eq!(told.exit, 0, "{told}");
        assert!(
            told.stderr.contains("if `serve` was told another"),
            "{told}"
        );
        let token = local_token(&warmline.state());
        assert!(told.stdout.contains(&format!("Bearer {token}")), "{told}");
        assert!(told.stdout.contains("/servers/github/mcp"), "{told}");
    }
    tells!(warmline.run(&["url", "github", "--for", "langchain"]), @r#"
    exit: 0
    ----- stdout -----
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
    ----- stderr -----
    `127.0.0.1:[PORT]` is where it listens by default; if `serve` was told another address, say it: --at http://HOST:PORT
    "#);
    tells!(warmline.run(&["url", "github", "--for", "cursor", "--run", "trip"]), @r#"
    exit: 0
    ----- stdout -----
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
    ----- stderr -----
    `127.0.0.1:[PORT]` is where it listens by default; if `serve` was told another address, say it: --at http://HOST:PORT
    "#);
    for client in ["langchain", "openai-agents", "pydantic-ai"] {
        for (words, run) in [(&[][..], "chat-1"), (&["--run", "trip"], "trip")] {
            let told = warmline.run(&[&["url", "github", "--for", client], words].concat());
            assert!(told.stdout.contains(&format!("run = \"{run}\"")), "{told}");
            assert!(told.stdout.contains("/runs/{run}/servers/github"), "{told}");
        }
    }
    tells!(warmline.run(&["url", "githup"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is configured as `githup`
      hint: did you mean `github`?
    ");
    tells!(warmline.run(&["url", "--at", "https://mcp.example.com/"]), @r"
    exit: 0
    ----- stdout -----
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
    let told = warmline.run(&["url", "typed-at-serve"]);
    tells!(told, @r"
    exit: 0
    ----- stdout -----
    http://127.0.0.1:[PORT]/servers/typed-at-serve/mcp
    Authorization: Bearer [TOKEN]
    ----- stderr -----
    `127.0.0.1:[PORT]` is where it listens by default; if `serve` was told another address, say it: --at http://HOST:PORT
    note: no file declares `typed-at-serve`: it is there only if `serve` was told of it
    ");
    warmline.write_user("warmline.toml", "[gateway]\nlisten = '127.0.0.1:9484'\n");
    let told = warmline.run(&["url"]);
    assert!(
        told.stderr
            .contains("/.config/warmline/warmline.toml:2; if"),
        "{told}"
    );
}

/// Who must show a token of their own is told where one comes from.
#[test]
fn a_url_says_where_a_token_comes_from() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[gateway]\nauth = 'tokens'\n");
    let told = warmline.run(&["url", "--for", "cursor"]);
    assert!(told.stdout.contains("Bearer YOUR_TOKEN"), "{told}");
    assert!(
        told.stderr
            .contains("`warmline token new NAME` makes a token"),
        "{told}"
    );
}
