//! What `warmline url NAME --for CLIENT` prints, given to the client it is for.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use super::fixture::{World, counted, counts, typed, within_limits};
use super::real_parts::{node, part, python};

impl World {
    fn snippet(&self, client: &str) -> String {
        let at = ["--at", &self.gateway, "--run", "trip"];
        let words = ["url", "demo", "--for", client];
        self.printed(&[words, at].concat())
    }

    /// What a caller counts to who has this URL and this header.
    fn counts(&self, url: &str, header: &str) -> Vec<u64> {
        counted(&self.printed(&["call", url, "counter", "--header", header]))
    }
}

#[test]
fn langchain_takes_what_is_printed() {
    let world = World::new(&[]);
    let client = python("langchain", "pasted.py");
    let more = r#"
counter = next(tool for tool in tools if tool.name == "counter")
for _ in range(2):
    print((await counter.ainvoke({}))[0]["text"])
"#;
    let counted = counts(&client, &(world.snippet("langchain") + more));
    assert_eq!(counted, [1, 2]);
    // Without a run the text names one by itself.
    let own = world.printed(&["url", "demo", "--for", "langchain", "--at", &world.gateway]);
    assert_eq!(counts(&client, &(own + more)), [1, 2]);
}

/// No model is asked: whoever runs the agent calls its tool.
#[test]
fn openai_agents_takes_what_is_printed() {
    let world = World::new(&[]);
    let before = r#"
from agents import Runner

async def run(agent, said):
    for _ in range(2):
        print((await agent.mcp_servers[0].call_tool("counter", {})).content[0].text)

Runner.run = run
"#;
    let program = format!("{before}\n{}", world.snippet("openai-agents"));
    assert_eq!(counts(&python("agents", "pasted.py"), &program), [1, 2]);
}

/// The model is filled in: one that calls the tool.
#[test]
fn pydantic_ai_takes_what_is_printed() {
    let world = World::new(&[]);
    let snippet = world.snippet("pydantic-ai").replace("\"…\"", "model");
    let program = format!(
        r#"
from pydantic_ai.models.test import TestModel
model = TestModel(call_tools=["counter"])
{snippet}
for _ in range(2):
    print((await agent.run("Count.")).output)
"#
    );
    assert_eq!(counts(&python("agents", "pasted.py"), &program), [1, 2]);
}

#[test]
fn both_python_sdks_take_what_is_printed() {
    let world = World::new(&[]);
    let more = r#"
            print((await session.call_tool("counter", {})).content[0].text)
"#;
    let program = world.snippet("python").trim_end().to_owned() + more;
    for (environment, count) in [("mcp1", 1), ("mcp2", 2)] {
        let seen = counts(&python(environment, "pasted.py"), &program);
        assert_eq!(seen, [count], "{environment}");
    }
}

#[test]
fn the_typescript_sdk_takes_what_is_printed() {
    let world = World::new(&[]);
    let more = r"
for (const _ of [1, 2]) {
  console.log((await client.callTool({ name: 'counter', arguments: {} })).content[0].text);
}
await client.close();
";
    let mut client = within_limits(node("client-v2.mjs").path);
    client
        .args(["--input-type=module", "-"])
        .current_dir(part("node"));
    let output = typed(&mut client, &(world.snippet("typescript") + more));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(counted(&said), [1, 2], "{said}");
}

#[test]
fn curl_takes_what_is_printed() {
    let world = World::new(&[]);
    let output = typed(&mut within_limits("/bin/sh"), &world.snippet("curl"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.starts_with("HTTP/1.1 200"), "{output:?}");
    assert!(said.contains("mcp-session-id: "), "{said}");
}

/// The words that a shell makes of it are the command's; what they name lets callers in.
#[test]
fn the_words_for_claude_name_the_server() {
    let world = World::new(&[]);
    let stand_in = world.warmline.home().join("claude");
    std::fs::write(&stand_in, "#!/bin/sh\nprintf '%s\\n' \"$@\"\n").unwrap();
    std::fs::set_permissions(&stand_in, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut shell = within_limits("/bin/sh");
    shell.env("PATH", stand_in.parent().unwrap());
    let output = typed(&mut shell, &world.snippet("claude"));
    let said = String::from_utf8(output.stdout).unwrap();
    let words: Vec<&str> = said.lines().collect();
    let [mcp, add, option, kind, name, url, header, value] = words[..] else {
        panic!("{said}");
    };
    let fixed = [mcp, add, option, kind, name, header];
    let expected = ["mcp", "add", "--transport", "http", "demo", "--header"];
    assert_eq!(fixed, expected);
    assert_eq!(world.counts(url, value), [1]);
}

/// Editors read a file; what it names lets callers in. Nothing of them runs without a window.
#[test]
fn the_files_of_editors_name_the_server() {
    let world = World::new(&[]);
    for (client, below, kind, count) in [
        ("cursor", "mcpServers", None, 1),
        ("vscode", "servers", Some("http"), 2),
    ] {
        let file: Value = serde_json::from_str(&world.snippet(client)).unwrap();
        let entry = &file[below]["demo"];
        assert_eq!(entry["type"].as_str(), kind, "{client}");
        let header = entry["headers"]["Authorization"].as_str().unwrap();
        let header = format!("Authorization: {header}");
        let seen = world.counts(entry["url"].as_str().unwrap(), &header);
        assert_eq!(seen, [count], "{client}");
    }
}

/// A file of an editor is one that we read too.
#[test]
fn a_file_for_cursor_is_a_configuration_of_ours() {
    let world = World::new(&[]);
    let file = world.warmline.write("mcp.json", &world.snippet("cursor"));
    let path: &Path = &file;
    let words = [
        "call",
        "demo",
        "counter",
        "--config",
        path.to_str().unwrap(),
    ];
    assert_eq!(counted(&world.printed(&words)), [1]);
}
