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
        assert_eq!((told.exit, told.stderr.as_str()), (0, ""), "{told}");
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
    "#);
    tells!(warmline.run(&["url", "githup"]), @r"
    exit: 0
    ----- stdout -----
    http://127.0.0.1:[PORT]/servers/githup/mcp
    Authorization: Bearer [TOKEN]
    ----- stderr -----
    no server is configured as `githup`; did you mean `github`?
    ");
    tells!(warmline.run(&["url", "--at", "https://mcp.example.com/"]), @r"
    exit: 0
    ----- stdout -----
    https://mcp.example.com/mcp
    Authorization: Bearer [TOKEN]
    ");
}
