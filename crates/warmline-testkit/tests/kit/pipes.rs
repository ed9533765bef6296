//! The program over pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::client::{initialize, modern};

struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_warmline-ledger"))
            .arg("--stdio")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            input: child.stdin.take(),
            child,
            output,
        }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.say(message);
        serde_json::from_str(&self.hear()).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn call(id: u64, tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
}

#[test]
fn a_pipe_is_a_session_and_its_ledger_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger");
    let mut program = Program::start(&["--ledger", path.to_str().unwrap()]);
    assert_eq!(
        program.ask(&initialize(json!({})))["result"]["protocolVersion"],
        "2025-11-25"
    );
    program.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    for count in 1..=2 {
        let reply = program.ask(&call(count + 1, "counter"));
        assert_eq!(reply["result"]["structuredContent"]["count"], count);
    }
    drop(program.input.take());
    assert!(program.child.wait().unwrap().success());
    let ledger = std::fs::read_to_string(path).unwrap();
    let lines = ledger
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let commits = lines.filter(|line| line["tool"] == "counter" && line["phase"] == "commit");
    assert_eq!(commits.count(), 2);
}

#[test]
fn both_eras_are_served_on_one_pipe() {
    let mut program = Program::start(&[]);
    let (_, discover) = modern(1, "server/discover", json!({}));
    assert_eq!(
        program.ask(&discover)["result"]["supportedVersions"],
        json!(["2026-07-28"])
    );
    assert!(program.ask(&initialize(json!({})))["result"].is_object());
}

#[test]
fn a_process_does_wrong_what_it_is_told_to() {
    let (_, discover) = modern(1, "server/discover", json!({}));
    let cases: [(&str, &str); 4] = [
        (
            r#"{"method":"server/discover","fault":{"crash":"before-executing"}}"#,
            "",
        ),
        (
            r#"{"method":"server/discover","fault":{"cut":["before-executing","fin"]}}"#,
            "",
        ),
        (
            r#"{"fault":{"error":{"code":-32601,"message":"Method not found"}}}"#,
            "-32601",
        ),
        (
            r#"{"fault":{"spoil":{"garbage-first":"Starting up..."}}}"#,
            "Starting up...\n",
        ),
    ];
    for (rule, said) in cases {
        let mut program = Program::start(&["--fault", rule]);
        program.say(&discover);
        let heard = program.hear();
        if said.is_empty() {
            assert_eq!(heard, "", "{rule}");
        } else {
            assert!(heard.contains(said), "{rule}: {heard}");
        }
    }
}

#[test]
fn a_process_that_crashes_says_so_by_its_code() {
    let mut program = Program::start(&["--personality", "legacy"]);
    program.ask(&initialize(json!({})));
    program.say(&call(2, "crash"));
    assert_eq!(program.child.wait().unwrap().code(), Some(70));
}

/// Ends a process the hard way when the test is over.
struct Stray(u32);

impl Drop for Stray {
    fn drop(&mut self) {
        drop(
            Command::new("kill")
                .args(["-9", &self.0.to_string()])
                .status(),
        );
    }
}

#[test]
fn a_stubborn_process_survives_term_and_the_end_of_its_input() {
    let arguments = [
        "--ignore-term",
        "--ignore-eof",
        "--grandchildren",
        "2",
        "--grandchildren-own-group",
    ];
    let mut program = Program::start(&arguments);
    program.ask(&initialize(json!({})));
    let pid = program.child.id();
    let strays: Vec<Stray> = warmline_testkit::census::children(pid)
        .iter()
        .map(|child| Stray(child.pid))
        .collect();
    assert_eq!(strays.len(), 2);
    drop(program.input.take());
    assert!(
        Command::new("kill")
            .arg(pid.to_string())
            .status()
            .unwrap()
            .success()
    );
    // Neither is an answer; that it still has its children is.
    assert_eq!(program.child.try_wait().unwrap(), None);
    assert_eq!(warmline_testkit::census::children(pid).len(), 2);
}

#[test]
fn a_process_greets_complains_and_starts_late() {
    let arguments = [
        "--greeting",
        "Welcome!",
        "--stderr-bytes",
        "200000",
        "--start-delay-ms",
        "50",
    ];
    let mut program = Program::start(&arguments);
    assert_eq!(program.hear(), "Welcome!\n");
    assert!(program.ask(&initialize(json!({})))["result"].is_object());
}

#[test]
fn a_process_that_does_not_read_lets_the_pipe_fill() {
    let mut program = Program::start(&["--read-limit", "1"]);
    program.ask(&initialize(json!({})));
    let mut input = program.input.take().unwrap();
    let (told, wait) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        // Ends when the process is killed, and not before.
        let line = vec![b' '; 1 << 20];
        let ended = input.write_all(&line);
        told.send(()).unwrap();
        ended.is_err()
    });
    assert!(
        wait.recv_timeout(std::time::Duration::from_millis(200))
            .is_err()
    );
    drop(program);
    assert!(writer.join().unwrap());
}

#[test]
fn a_pipe_that_has_turned_modern_may_refuse_to_turn_back() {
    let mut program = Program::start(&["--lock-era"]);
    let (_, discover) = modern(1, "server/discover", json!({}));
    program.ask(&discover);
    assert_eq!(program.ask(&initialize(json!({})))["error"]["code"], -32022);
}

#[test]
fn a_pipe_is_asked_and_told_in_the_middle_of_a_call() {
    let mut program = Program::start(&["--personality", "legacy"]);
    program.ask(&initialize(json!({"roots": {}})));
    program.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let question = program.ask(&call(2, "ask_roots"));
    assert_eq!(question["method"], "roots/list");
    program.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}));
    let reply: Value = serde_json::from_str(&program.hear()).unwrap();
    assert_eq!(reply["id"], 2);
    assert_eq!(
        program.ask(&call(3, "change_tools"))["method"],
        "notifications/tools/list_changed"
    );
}
