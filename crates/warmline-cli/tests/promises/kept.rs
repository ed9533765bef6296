//! What the program of before kept and sealed, taken up by the program of now: secrets, records of
//! sessions, notes of runs, tokens, the session id of a legacy client and a modern `requestState`.
//!
//! They were written with the wall clock at the year 2100 ([`late.c`](before/late.c)), so that they
//! never expire. The secrets in them were made for this test and open nothing else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::before::folder;
use crate::client::{Client, hello, request};
use crate::fake::{Fake, STATE};
use crate::home::{Home, Response, Running, text};

/// Records are bound to the URL of their server, so this address is fixed. Nobody else has it, and
/// tests of two worktrees wait for each other.
const ADDRESS: &str = "127.77.12.9:20484";
const LEGACY: &str = "http://127.77.12.9:20484/legacy/mcp";
const WITH_HEADER: [&str; 2] = ["--header", "X-Team: lamp"];

/// What somebody else than the state folder holds.
fn held() -> Value {
    let text = fs::read_to_string(folder().join("held.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The server's session of a run, or of a client at a path.
fn session_of(name: &str) -> String {
    held()["sessions"][name].as_str().unwrap().to_owned()
}

/// Copies a folder; what is copied belongs to its user alone, as it did.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            // A lock.
            continue;
        }
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::write(&to, fs::read(entry.path()).unwrap()).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// A home that has the same name in every folder, because notes name the folder of their records.
fn anywhere() -> Home {
    Home::new()
        .with("HOME", "/proc/self/cwd")
        .with("TEAM", "lamp")
}

fn old_home() -> Home {
    let home = anywhere();
    copy(&folder().join("state"), &home.state());
    home.write(".config/warmline/warmline.toml", &config());
    home
}

fn config() -> String {
    format!(
        "[gateway]\nauth = 'tokens'\n[servers.old]\nurl = '{LEGACY}'\n\
         [servers.ask]\nurl = 'http://{ADDRESS}/modern/mcp'\n"
    )
}

/// Commands that leave a run behind, each in another way; behind them the program of a server.
fn leaving() -> [Vec<&'static str>; 3] {
    [
        vec!["call", LEGACY, "ask", "--run", "typed"],
        vec![
            "call",
            "old",
            "ask",
            "--run",
            "named",
            "--header-env",
            "X-Team=TEAM",
        ],
        [
            &["call", LEGACY, "ask", "--run", "headed"][..],
            &WITH_HEADER,
        ]
        .concat(),
    ]
}

/// A client of `stdio --run` that calls once and leaves.
fn pipe(command: &mut Command) -> String {
    use std::io::Write as _;
    use std::process::Stdio;
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let call = request("tools/call", &json!({"name": "ask"}));
    for message in [hello(&json!({})), ready, call] {
        writeln!(stdin, "{message}").unwrap();
    }
    // Its end is told once it answered.
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    while !said.contains("\"id\":1") {
        let read = std::io::BufRead::read_line(&mut stdout, &mut said).unwrap();
        assert!(read > 0, "{said}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    said
}

const PIPE: [&str; 4] = ["stdio", "old", "--run", "piped"];

/// A modern request; it comes with what it was told to bring.
fn modern(state: Option<&str>) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "promises", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    });
    let mut params = json!({"name": "ask", "arguments": {}, "_meta": meta});
    if let Some(state) = state {
        params["requestState"] = state.into();
        let content = json!({"action": "accept", "content": {"name": "Ada"}});
        params["inputResponses"] = json!({"who": content});
    }
    request("tools/call", &params)
}

fn call_in_session(client: Client<'_>, path: &str, session: &str) -> Response {
    client.ask(path, session, "tools/call", &json!({"name": "ask"}))
}

fn ask(client: Client<'_>, state: Option<&str>) -> Response {
    let headers = [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "ask"),
    ];
    client.post("/runs/asked/servers/ask/mcp", &headers, &modern(state))
}

const IN_RUN: &str = "/runs/served/servers/old/mcp";
const ALONE: &str = "/servers/old/mcp";

/// The session that the server was called in since the last look; it must not have been greeted.
#[track_caller]
fn called_in(fake: &Fake) -> String {
    let asked = fake.asked();
    let greeted = asked.iter().any(|one| one.method() == "initialize");
    assert!(!greeted, "a session was opened: {asked:?}");
    let mut calls = asked.iter().filter(|one| one.method() == "tools/call");
    let session = calls.next().and_then(|one| one.session.clone());
    session.unwrap_or_else(|| panic!("no call in a session: {asked:?}"))
}

/// Everything in one test, because there is one server at one address.
#[test]
fn what_was_kept_before_is_taken_up() {
    let fake = Fake::at(ADDRESS, "now");
    let home = old_home();
    let kept = fs::read_to_string(folder().join("kept.json")).unwrap();
    let found = home.json(&["ps"]);
    assert_eq!(found, kept, "`ps` shows the runs that were left");
    tokens_count(&home);
    commands_go_on(&home, &fake);
    clients_go_on(&home, &fake);
    runs_end(&home, &fake);
}

fn tokens_count(home: &Home) {
    let listed = home.json(&["token", "list"]);
    let listed: Value = serde_json::from_str(listed.trim()).unwrap();
    assert_eq!(listed, held()["token"]["listed"]);
}

/// The next command of a run calls in the session that was left, and opens none.
fn commands_go_on(home: &Home, fake: &Fake) {
    for words in leaving() {
        fake.asked();
        let output = home.run(&[&["--json"], words.as_slice()].concat());
        let said = text(&output);
        let reply: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        assert_eq!(reply["warm"], true, "{said}");
        assert_eq!(reply["generation"], 1, "{said}");
        assert_eq!(called_in(fake), session_of(words[4]), "{words:?}");
    }
    fake.asked();
    pipe(&mut home.command(&PIPE));
    assert_eq!(called_in(fake), session_of("piped"));
}

/// Clients of the gateway go on with the session id and the state that they were given.
fn clients_go_on(home: &Home, fake: &Fake) {
    let held = held();
    let text = |key: &str| held[key].as_str().unwrap();
    let serving = Running::serve(home, &["--auth", "tokens"]);
    let client = Client {
        gateway: serving.url(),
        token: held["token"]["text"].as_str(),
    };
    for (path, session) in [
        (IN_RUN, text("session_in_run")),
        (ALONE, text("session_alone")),
    ] {
        fake.asked();
        let response = call_in_session(client, path, session);
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        let done = response.json();
        assert_eq!(
            done["result"]["content"][0]["text"], "done",
            "{path}: {done}"
        );
        assert_eq!(called_in(fake), session_of(path));
    }
    let other = call_in_session(client, ALONE, text("session_in_run"));
    assert_eq!(other.status, 404, "a session id is good for its own path");
    let response = ask(client, Some(text("request_state")));
    assert_eq!(response.status, 200, "{}", response.body);
    let done = response.json();
    assert_eq!(done["result"]["content"][0]["text"], "done", "{done}");
    let asked = fake.asked();
    let state = &asked.last().unwrap().message["params"]["requestState"];
    assert_eq!(state, STATE, "the server gets its own state back");
    drop(serving.stop());
}

/// `end` finds by its note what a run left, and ends it at its server.
fn runs_end(home: &Home, fake: &Fake) {
    for run in ["typed", "named", "piped"] {
        fake.asked();
        let output = home.run(&["end", run]);
        assert_eq!(output.status.code(), Some(0), "{run}: {}", text(&output));
        let asked = fake.asked();
        let ended = asked
            .iter()
            .any(|one| one.verb == "DELETE" && one.session == Some(session_of(run)));
        assert!(ended, "{run}: {asked:?}");
    }
}

/// Writes the fixtures again, with a program of before:
/// `make before WARMLINE_BEFORE=PROGRAM`
#[test]
#[ignore = "writes the fixtures instead of looking at them"]
fn write_what_is_kept() {
    let binary = std::env::var_os("WARMLINE_BEFORE").expect("WARMLINE_BEFORE names the program");
    let fake = Fake::at(ADDRESS, "before");
    let home = anywhere();
    let clock = home.path().join("late.so");
    let source = folder().join("late.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&clock)
        .arg(source)
        .status();
    assert!(built.unwrap().success());
    let home = home.with("LD_PRELOAD", clock.to_str().unwrap()).by(binary);
    home.write(".config/warmline/warmline.toml", &config());
    let listed =
        |words: &[&str]| -> Value { serde_json::from_str(home.json(words).trim()).unwrap() };
    let made = listed(&["token", "new", "alice", "--expires", "7d"]);
    let mut held = json!({"token": {"text": made["token"], "listed": listed(&["token", "list"])}});
    for words in leaving() {
        assert_eq!(home.run(&words).status.code(), Some(0), "{words:?}");
        held["sessions"][words[4]] = last_session(&fake).into();
    }
    pipe(&mut home.command(&PIPE));
    held["sessions"]["piped"] = last_session(&fake).into();
    hold(&home, &fake, &mut held);
    fs::write(folder().join("held.json"), format!("{held:#}\n")).unwrap();
    fs::write(folder().join("kept.json"), home.json(&["ps"])).unwrap();
    let to = folder().join("state");
    fs::remove_dir_all(&to).ok();
    copy(&home.state(), &to);
}

fn last_session(fake: &Fake) -> String {
    let asked = fake.asked();
    let mut calls = asked
        .iter()
        .rev()
        .filter(|one| one.method() == "tools/call");
    calls.next().unwrap().session.clone().unwrap()
}

/// What clients of a gateway are given.
fn hold(home: &Home, fake: &Fake, held: &mut Value) {
    let serving = Running::serve(home, &["--auth", "tokens"]);
    let token = held["token"]["text"].as_str().unwrap().to_owned();
    let client = Client {
        gateway: serving.url(),
        token: Some(&token),
    };
    for (path, name) in [(IN_RUN, "session_in_run"), (ALONE, "session_alone")] {
        let session = client.session(path);
        let called = call_in_session(client, path, &session).json();
        assert_eq!(called["result"]["content"][0]["text"], "done", "{called}");
        held["sessions"][path] = last_session(fake).into();
        held[name] = session.into();
    }
    let asked = ask(client, None).json();
    assert!(asked["result"]["requestState"].is_string(), "{asked}");
    held["request_state"] = asked["result"]["requestState"].clone();
    // A gateway that is killed leaves its records as they are.
    drop(serving);
}
