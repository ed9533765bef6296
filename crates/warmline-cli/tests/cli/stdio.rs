//! `warmline stdio`: a client of either era on a pipe.

use crate::prelude::*;

use std::process::{ChildStdin, ChildStdout};

use crate::background::processes_of;

/// A client and its pipe.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(warmline: &Warmline, words: &[&str]) -> Self {
        let mut all = vec!["stdio"];
        all.extend(words);
        let mut child = warmline
            .command(&all)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}"))
    }

    fn asked(&mut self, message: &Value) -> Value {
        self.say(message);
        self.hear()
    }

    /// Opens a legacy session.
    fn greet(&mut self) {
        let greeting = self.asked(&json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": { "name": "desk", "version": "1" },
            },
        }));
        assert_eq!(greeting["result"]["protocolVersion"], "2025-06-18");
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    fn count(&mut self, id: &Value) -> Value {
        let params = json!({ "name": "counter", "arguments": {} });
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        let answer = self.asked(&call);
        assert_eq!(&answer["id"], id, "{answer}");
        answer["result"]["structuredContent"]["count"].clone()
    }

    /// Closes its end; the exit code.
    fn leave(mut self) -> Option<i32> {
        drop(self.input.take());
        let mut rest = String::new();
        self.output.read_line(&mut rest).unwrap();
        assert_eq!(rest, "");
        self.child.wait().unwrap().code()
    }
}

fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A legacy client has one session of its own, which ends with it; what is no message is answered.
#[test]
fn a_legacy_client_has_a_run_of_its_own() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let mut client = Client::start(&warmline, &[&server.url()]);
    client.greet();
    assert_eq!(client.count(&json!(1)), 1);
    assert_eq!(client.count(&json!("two")), 2);
    let mut other = Client::start(&warmline, &[&server.url()]);
    other.greet();
    assert_eq!(other.count(&json!(1)), 1, "another client, another session");
    let refused = client.asked(&json!([]));
    assert_eq!(refused["error"]["code"], -32600, "{refused}");
    assert_eq!(client.count(&json!(3)), 3);
    assert_eq!(client.leave(), Some(0));
    assert_eq!(other.leave(), Some(0));
    assert_eq!(server.counts().open_sessions, 0);
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// Where an audit is configured, calls by a pipe stand in it as those of every other client.
#[test]
fn calls_by_a_pipe_stand_in_the_audit() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let file = warmline.work().join("audit.jsonl");
    let declared = format!(
        "[audit]\nfile = '{}'\n[servers.ledger]\nurl = '{}'\n",
        file.display(),
        server.url()
    );
    warmline.write_user("warmline.toml", &declared);
    let mut client = Client::start(&warmline, &[]);
    client.greet();
    assert_eq!(client.count(&json!(1)), 1);
    assert_eq!(client.leave(), Some(0));
    let written = std::fs::read_to_string(&file).unwrap();
    let lines = written
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calls: Vec<Value> = lines
        .filter(|line| line["method"] == "tools/call")
        .collect();
    assert_eq!(calls.len(), 1, "{written}");
    for (key, value) in [
        ("subject", "local"),
        ("server", "ledger"),
        ("tool", "counter"),
    ] {
        assert_eq!(calls[0][key], value, "{written}");
    }
    let missing = warmline.work().join("no/such/folder/audit.jsonl");
    let declared = declared.replace(&*file.to_string_lossy(), &missing.to_string_lossy());
    warmline.write_user("warmline.toml", &declared);
    let output = warmline.run(&["stdio"]);
    output.says_first("error[config-bad-value]: cannot write the audit");
    assert_eq!((output.exit, output.stdout.as_str()), (2, ""), "{output}");
}

/// P120: a run that was named outlives its client, and the next one goes on with it.
#[test]
fn a_named_run_goes_on_with_the_next_client() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    for count in 1..=3 {
        let mut client = Client::start(&warmline, &[&server.url(), "--run", "trip"]);
        client.greet();
        assert_eq!(client.count(&json!(1)), count);
        assert_eq!(client.leave(), Some(0));
    }
    assert_eq!(server.counts().open_sessions, 1);
}

/// A program goes with its client, whatever the run is called, and that is said at once.
#[test]
fn a_program_is_said_to_end_with_its_client_where_a_run_is_named() {
    let warmline = Warmline::new();
    warmline.write_user(
        "warmline.toml",
        "[servers.browser]\ncommand = ['sh']\n[servers.remote]\nurl = 'http://127.0.0.1:1/mcp'\n\
         [servers.asleep]\ncommand = ['sh']\nenabled = false\n",
    );
    shows!(warmline, @r"
    $ warmline stdio --run trip
    2> `browser` is a program and ends with this client: run `trip` keeps nothing of it. `warmline serve` keeps programs, for clients at the URL /runs/trip/servers/browser/mcp
    ");
    tells!(warmline.run(&["stdio", "remote", "--run", "trip"]), @"exit: 0");
    tells!(warmline.run(&["stdio", "browser"]), @"exit: 0");
    tells!(warmline.run(&["stdio", "--run", "trip", "--quiet", "--", "sh"]), @"exit: 0");
}

/// In front of several servers a client sees all of them in one, each tool under its server's name.
#[test]
fn several_servers_are_one_for_the_client() {
    let servers = [0, 1].map(|_| LedgerServer::start(Personality::legacy()).unwrap());
    let warmline = Warmline::new();
    let urls = servers.each_ref().map(LedgerServer::url);
    let mut client = Client::start(&warmline, &urls.each_ref().map(String::as_str));
    client.greet();
    let list = json!({ "jsonrpc": "2.0", "id": "l", "method": "tools/list" });
    let listed = client.asked(&list);
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["name"].as_str().unwrap());
    let counters: Vec<&str> = names.filter(|name| name.ends_with("__counter")).collect();
    assert_eq!(counters.len(), 2, "{listed}");
    for (name, count) in [(counters[0], 1), (counters[0], 2), (counters[1], 1)] {
        let params = json!({ "name": name, "arguments": {} });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let answer = client.asked(&call);
        assert_eq!(
            answer["result"]["structuredContent"]["count"], count,
            "{answer}"
        );
    }
    assert_eq!(client.leave(), Some(0));
    for server in &servers {
        assert_eq!(server.counts().open_sessions, 0);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

fn modern(id: u64, tool: &str, arguments: &Value) -> Value {
    json!({
        "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": {
            "name": tool, "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "desk", "version": "1" },
            },
        },
    })
}

/// A modern client says everything in each message, and gives a call up by another message.
#[test]
fn a_modern_client_calls_side_by_side_and_cancels_by_a_message() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let warmline = Warmline::new();
    let mut client = Client::start(&warmline, &[&server.url()]);
    client.say(&modern(1, "slow", &json!({ "ms": 60_000 })));
    let begun = || server.ledger().started_executions("slow") == 1;
    until("the slow call began", begun);
    let answer = client.asked(&modern(2, "counter", &json!({})));
    assert_eq!(answer["id"], 2, "{answer}");
    let cancel = json!({ "requestId": 1 });
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel }));
    let answer = client.asked(&modern(3, "counter", &json!({})));
    assert_eq!(answer["id"], 3, "{answer}");
    let exit_code = client.leave();
    assert_eq!(exit_code, Some(0), "it does not wait for what was given up");
    assert_eq!(server.ledger().executions("slow"), 0);
}

#[test]
fn a_name_that_no_run_may_have_is_refused_before_anything_is_read() {
    let warmline = Warmline::new();
    let output = warmline.run(&["stdio", "http://127.0.0.1:1/mcp", "--run", "a/b"]);
    assert_eq!((output.exit, output.stdout.as_str()), (2, ""), "{output}");
}

/// What a client hears of a call that is under way when something ends us, and the exit code.
fn cut(words: &[&str], ending: impl Fn(&mut Client)) -> (Value, Option<i32>, LedgerServer) {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let text = format!(
        "[limits]\ndrain = '2s'\n[servers.busy]\nurl = '{}'\n",
        server.url()
    );
    warmline.write_user("warmline.toml", &text);
    let mut client = Client::start(&warmline, words);
    client.greet();
    let params = json!({ "name": "slow", "arguments": { "ms": 120_000 } });
    client.say(&json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params }));
    until("the call began", || {
        server.ledger().started_executions("slow") == 1
    });
    ending(&mut client);
    let answer = client.hear();
    (answer, client.child.wait().unwrap().code(), server)
}

/// reliability O1b: whatever ends us in the middle of a call, its client has an answer, its server
/// hears of it, and the exit code says that it was cut.
#[test]
fn a_call_has_its_answer_whatever_ends_us() {
    let told = |client: &mut Client| {
        kill_process(Pid::from_child(&client.child), Signal::TERM).unwrap();
    };
    let left = |client: &mut Client| drop(client.input.take());
    let (own, named) = (["busy"], ["busy", "--run", "trip"]);
    for ((answer, exit, server), stay) in [
        (cut(&own, told), 0),
        (cut(&own, left), 0),
        // The session of a run that goes on is left to its record.
        (cut(&named, told), 1),
        (cut(&named, left), 1),
    ] {
        let found = (&answer["id"], &answer["error"]["code"]);
        assert_eq!(found, (&json!(5), &json!(7503)), "{answer}");
        let known = &answer["error"]["data"]["warmline"];
        assert_eq!(known["delivery"], "unknown", "{answer}");
        assert_eq!(exit, Some(3));
        let received = server.ledger().messages_received("notifications/cancelled");
        assert_eq!(received, 1);
        assert_eq!(server.counts().open_sessions, stay);
    }
}

/// P33: a program that heeds no signal is killed before we end.
#[test]
fn no_program_outlives_its_pipe() {
    let mark = "mark-of-a-pipe-that-is-told";
    let script = "trap '' TERM; \"$@\"; while :; do sleep 1; done";
    let warmline = Warmline::new();
    let command = ["sh", "-c", script, mark, BINARY, "demo-server"];
    let mut command = command.to_vec();
    command.extend(["--stdio", "--era", "legacy"]);
    let text = format!("[servers.deaf]\nera = 'legacy'\ncommand = {command:?}\n");
    warmline.write_user("warmline.toml", &text);
    let mut client = Client::start(&warmline, &["deaf"]);
    client.greet();
    assert_eq!(client.count(&json!(1)), 1);
    assert_eq!(processes_of(mark), 1);
    let pid = Pid::from_child(&client.child);
    kill_process(pid, Signal::TERM).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(client.child.wait().unwrap().code(), Some(0));
    assert_eq!(processes_of(mark), 0);
}

/// A named run outlives its client: `ps` shows what is left of it, and `end` ends it.
#[test]
fn a_run_that_clients_leave_is_shown_and_ended_by_name() {
    let (typed, declared) = (server(), server());
    let warmline = Warmline::new().with("CANARY", "canary-1");
    let text = format!(
        "[servers.demo]\nurl = '{}'\ncredential = {{ env = 'CANARY' }}\n",
        declared.url()
    );
    warmline.write_user("warmline.toml", &text);
    for (target, server) in [(typed.url(), &typed), ("demo".to_owned(), &declared)] {
        for round in 0..2 {
            let mut client = Client::start(&warmline, &[&target, "--run", "trip"]);
            client.greet();
            assert_eq!(client.count(&json!(1)), 1 + 2 * round);
            assert_eq!(client.count(&json!(2)), 2 + 2 * round);
            assert_eq!(client.leave(), Some(0));
        }
        assert_eq!(server.counts().open_sessions, 1);
    }
    // One that called nothing left nothing.
    let client = Client::start(&warmline, &["demo", "--run", "idle"]);
    assert_eq!(client.leave(), Some(0));
    shows!(warmline, @r#"
    $ warmline ps --json
    {"kind":"gateway","up":false}
    {"kind":"kept","run":"trip","server":"127.0.0.1:[PORT]","opened_at":[TIME],"used_at":[TIME]}
    {"kind":"kept","run":"trip","server":"demo","opened_at":[TIME],"used_at":[TIME]}
    $ warmline end trip
    2> run `trip` is ended
    "#);
    for server in [&typed, &declared] {
        assert_eq!(server.counts().open_sessions, 0);
        assert_eq!(server.counts().sessions, 1);
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}
