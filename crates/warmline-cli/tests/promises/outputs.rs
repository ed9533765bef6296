//! What commands print with `--json`: members, types and words.

use crate::before::{self, Lines, add_shapes};
use crate::home::{BINARY, Home, Running};

/// Runs commands, and collects the shapes of what they print under a name each.
struct Outputs<'h> {
    home: &'h Home,
    lines: Lines,
}

impl<'h> Outputs<'h> {
    fn of(home: &'h Home) -> Self {
        Self {
            home,
            lines: Lines::new(),
        }
    }

    fn add(&mut self, name: &str, exit: i32, words: &[&str]) -> String {
        let mut all = vec!["--json"];
        all.extend(words);
        let output = self.home.run(&all);
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let code = output.status.code();
        assert_eq!(code, Some(exit), "{words:?}\n{stdout}{stderr}");
        add_shapes(&format!("{name} stdout"), &stdout, &mut self.lines);
        add_shapes(&format!("{name} stderr"), &stderr, &mut self.lines);
        stdout
    }

    /// The same of a program that speaks MCP over stdio.
    fn program(&mut self, name: &str, exit: i32, words: &[&str], more: &[&str]) {
        let mut all = words.to_vec();
        all.extend(["--", BINARY, "demo-server", "--stdio"]);
        all.extend(more);
        self.add(name, exit, &all);
    }
}

const CRASH: &str = r#"{"tool":"pay","fault":{"crash":"after-executing"}}"#;

#[test]
fn calls_print_what_they_did() {
    let home = Home::new();
    let mut outputs = Outputs::of(&home);
    let legacy = &["--era", "legacy"];
    let modern = &["--era", "modern"];
    outputs.program("call legacy", 0, &["call", "counter"], legacy);
    outputs.program("call modern", 0, &["call", "counter"], modern);
    outputs.program("call failed", 1, &["call", "note_read", "title=x"], legacy);
    outputs.program("call unknown tool", 2, &["call", "no-such"], legacy);
    outputs.program("call wrong value", 2, &["call", "pay"], legacy);
    let pay = &["call", "pay", "amount=1"];
    outputs.program(
        "call lost",
        4,
        pay,
        &["--era", "legacy", "--", "--fault", CRASH],
    );
    let in_run = &["call", "counter", "--run", "trip"];
    outputs.program("call noted", 0, in_run, legacy);
    let raw = &["request", "tools/list"];
    outputs.program("request legacy", 0, raw, legacy);
    outputs.program("request modern", 0, raw, modern);
    outputs.program("request refused", 1, &["request", "no/such"], legacy);
    outputs.program("tools", 0, &["tools"], legacy);
    outputs.program("tools one", 0, &["tools", "pay"], legacy);
    outputs.program("doctor", 0, &["doctor"], &[]);
    outputs.add("call nowhere", 3, &["call", "http://127.0.0.1:9/mcp", "x"]);
    outputs.add("usage", 2, &["call", "--no-such-flag"]);
    before::same("outputs-calls.txt", &outputs.lines);
}

#[test]
fn runs_over_http_print_whose_session_it_was() {
    let home = Home::new();
    let server = Running::demo_server(&home, &["--era", "legacy"]);
    let mut outputs = Outputs::of(&home);
    let url = server.url().to_owned();
    let call = ["call", &url, "counter", "--run", "trip"];
    outputs.add("call in a run", 0, &call);
    outputs.add("call in a run again", 0, &call);
    outputs.add("ps without a gateway", 0, &["ps"]);
    outputs.add("doctor url", 0, &["doctor", &url]);
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let port = address.rsplit(':').next().unwrap().to_owned();
    drop(server);
    // The same address, and nothing is known there of what was before.
    let server = Running::start(
        &home,
        &["demo-server", "--json", "--http", &port, "--era", "legacy"],
    );
    outputs.add("call after a loss", 0, &call);
    outputs.add("end", 0, &["end", "trip"]);
    outputs.add("end unknown", 2, &["end", "trip"]);
    drop(server);
    before::same("outputs-runs.txt", &outputs.lines);
}

#[test]
fn files_and_tokens_print_what_was_written() {
    let home = Home::new();
    let mut outputs = Outputs::of(&home);
    outputs.add("doctor of nothing", 0, &["doctor"]);
    outputs.add("init", 0, &["init"]);
    outputs.add("init again", 0, &["init"]);
    let url = "http://127.0.0.1:9/mcp";
    outputs.add("add", 0, &["add", "demo", url]);
    outputs.add("add again", 2, &["add", "demo", url]);
    outputs.add("add here", 0, &["add", "here", "--here", "--", "sh"]);
    home.write(
        ".mcp.json",
        r#"{"mcpServers": {"there": {"command": "sh"}}}"#,
    );
    outputs.add("check untrusted", 0, &["check"]);
    outputs.add("call untrusted", 2, &["call", "there", "x"]);
    outputs.add("trust", 0, &["trust", "--yes"]);
    outputs.add("check", 0, &["check"]);
    home.write("wrong.toml", "[servers.x]\ncomand = ['sh']\n");
    outputs.add("check wrong", 2, &["check", "wrong.toml"]);
    outputs.add("url", 0, &["url", "demo"]);
    outputs.add("url of all", 0, &["url", "--run", "trip"]);
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
        outputs.add("url to paste", 0, &["url", "demo", "--for", client]);
    }
    let made = outputs.add(
        "token new",
        0,
        &["token", "new", "alice", "--expires", "90d"],
    );
    assert!(made.contains("wl_"), "{made}");
    outputs.add("token list", 0, &["token", "list"]);
    outputs.add("token revoke", 0, &["token", "revoke", "alice"]);
    outputs.add("token revoke again", 2, &["token", "revoke", "alice"]);
    before::same("outputs-files.txt", &outputs.lines);
}

/// A gateway in the background; it goes with the test.
struct Up<'h>(&'h Home);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.run(&["down", "--now"]);
    }
}

#[test]
fn the_background_gateway_prints_what_it_holds() {
    let home = Home::new();
    let up = Up(&home);
    let mut outputs = Outputs::of(&home);
    outputs.add("up", 0, &["up"]);
    let words = &["call", "counter", "--run", "trip"];
    outputs.program("call through up", 0, words, &["--era", "legacy"]);
    outputs.program("call through up again", 0, words, &["--era", "legacy"]);
    let broken = ["call", "x", "--run", "trip", "--", "/no/such"];
    outputs.add("call of nothing through up", 3, &broken);
    outputs.add("ps", 0, &["ps"]);
    outputs.add("end", 0, &["end", "trip"]);
    outputs.add("down", 0, &["down"]);
    outputs.add("down again", 0, &["down"]);
    drop(up);
    before::same("outputs-up.txt", &outputs.lines);
}

/// `run` gives its program these variables, and they reach the gateway.
#[test]
fn a_program_inside_a_run_finds_its_variables() {
    let home = Home::new();
    home.write(
        ".config/warmline/warmline.toml",
        &format!(
            "[servers.demo]\ncommand = ['{BINARY}', 'demo-server', '--stdio', '--era', 'legacy']\n"
        ),
    );
    let script = format!("env; '{BINARY}' --json call demo counter");
    let output = home.run(&["run", "--name", "trip", "--", "sh", "-c", &script]);
    let said = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{stderr}");
    let mut lines = Lines::new();
    for line in said.lines() {
        if line.starts_with('{') {
            add_shapes("call inside", line, &mut lines);
        } else if let Some((name, _)) = line.split_once('=') {
            lines.insert(format!("variable {name}"));
        }
    }
    before::nothing_is_lost("outputs-run.txt", &lines);
}
