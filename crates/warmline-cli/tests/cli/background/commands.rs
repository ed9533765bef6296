//! Commands that go through the gateway in the background: what it keeps for them between two.

use crate::prelude::*;

use super::Background;

/// A program keeps what it remembers from one command to the next; another run has another
/// process; without the gateway nothing is kept, and that is said.
#[test]
fn a_program_keeps_its_counter_between_two_commands() {
    let background = Background::up();
    for count in 1..=3 {
        let found = background.counted("trip");
        assert_eq!(found, format!(r#"{{"count":{count}}}"#));
    }
    assert_eq!(background.counted("other"), r#"{"count":1}"#);
    assert_eq!(background.counted("trip"), r#"{"count":4}"#);
    let words = ["request", "tools/call", "name=counter", "--run", "trip"];
    let output = background.run(&against_demo(&words, &["--era", "legacy"]));
    output.prints(r#""count": 5"#);
    assert_eq!(background.ps("run").len(), 2);
    assert_eq!(background.ps("session").len(), 2);
    shows!(background.warmline, @r"
    $ warmline down
    2> down
    ");
    let words = against_demo(&["call", "counter", "--run", "late"], &["--era", "legacy"]);
    tells!(background.run(&words), @r#"
    exit: 0
    ----- stdout -----
    {"count":1}
    ----- stderr -----
    note: `warmline` is a program and ends with this command: run `late` keeps nothing of it
      why: nothing holds it between commands; `warmline up` starts a gateway that does
    "#);
}

/// What goes wrong reads the same with the gateway and without: it is the user's own, and they are
/// told what to look at, not to come back later.
#[test]
fn what_goes_wrong_is_told_as_without_the_gateway() {
    let broken = ["--", "sh", "-c", "echo broken >&2; exit 3"];
    let dead: &[&str] = &["call", "http://127.0.0.1:1/mcp", "counter"];
    let lost = against_demo(
        &["call", "counter"],
        &[
            "--",
            "--fault",
            r#"{"tool":"counter","fault":{"crash":"before-executing"}}"#,
        ],
    );
    let alone = Warmline::new();
    let background = Background::up();
    for (words, hint) in [
        (
            dead.to_vec(),
            "nothing listens there: start the server, or check host and port",
        ),
        (
            [&["call", "counter"], &broken[..]].concat(),
            "start it by hand and read its output: `sh -c",
        ),
        (lost, "check whether it was executed before calling again"),
    ] {
        let mut named = words.clone();
        named.splice(2..2, ["--run", "trip"]);
        let without = |told: String| {
            let lines = told
                .lines()
                .filter(|line| !line.starts_with("  where: tools/call"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let (direct, through) = (alone.run(&words), background.run(&named));
        direct.says(hint);
        assert_eq!(without(direct.to_string()), without(through.to_string()));
    }
}

/// What commands left before the gateway came up stands below what it holds, as a table of its own.
#[test]
fn runs_that_nobody_holds_stand_below_those_of_the_gateway() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let words = ["call", &server.url(), "counter", "--run", "early"];
    assert_eq!(warmline.run(&words).exit, 0);
    let background = Background::up_in(warmline, &[]);
    let told = background.run(&["ps"]).stdout;
    let (held, kept) = told.split_once("\n\nKEPT RUN").unwrap();
    assert!(held.starts_with("up "), "{told}");
    let holds = kept.lines().any(|line| line.starts_with("early "));
    assert!(holds, "{told}");
    assert_eq!(background.run(&["end", "early"]).exit, 0);
}

/// What is typed is what is told: whether the session was there, what it cost, what was sent.
#[test]
fn the_answer_says_whether_the_session_was_warm() {
    let background = Background::up();
    let words = against_demo(&["call", "counter", "--run", "trip", "--json"], &[]);
    tells!(background.run(&words), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reply","server":"warmline","tool":"counter","era":"legacy","run":"trip","warm":false,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1}}}
    "#);
    tells!(background.run(&words), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reply","server":"warmline","tool":"counter","era":"legacy","run":"trip","warm":true,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":2}","type":"text"}],"structuredContent":{"count":2}}}
    "#);
    let words = against_demo(
        &["call", "pay", "amount=3", "--run", "trip", "--verbose"],
        &[],
    );
    tells!(background.run(&words), @r#"
    exit: 0
    ----- stdout -----
    {"account":null,"paid":3,"total":3}
    ----- stderr -----
    · opening a session of run `trip` to `warmline`: [WARMLINE] demo-server --stdio
    · resumed, nothing sent: legacy 2025-11-25 · stdio · one process per session
    → tools/list
    ← 24 tools after [TIME]
      arguments: amount=… (values with --show-values)
    → tools/call pay
    ← result, [N] bytes, after [TIME]
    [PAD]warmline · run trip · warm · call [TIME]
    "#);
    let words = against_demo(&["tools", "--run", "trip", "--json"], &[]);
    let output = background.run(&words);
    assert_eq!(output.stdout.lines().count(), 24, "{output}");
}

/// A program belongs to its run: a command that comes from another folder gets the process that
/// is there; another run's program starts where its own first command was typed.
#[test]
fn a_program_starts_where_its_run_first_named_it() {
    let background = Background::up();
    assert_eq!(background.counted_in("one", "trip"), r#"{"count":1}"#);
    assert_eq!(background.counted_in("two", "trip"), r#"{"count":2}"#);
    assert_eq!(background.counted_in("two", "other"), r#"{"count":1}"#);
    assert_eq!(background.counted_in("one", "third"), r#"{"count":1}"#);
    let folders = |run: &str| {
        background.run(&["ps", "--json"]).prints(run);
        let lines = background.ps("session");
        let line = lines
            .iter()
            .find(|line| line["run"] == run)
            .unwrap()
            .clone();
        line["server"].as_str().unwrap().to_owned()
    };
    let found = folders("trip");
    assert_eq!(found, folders("third"), "both were first named in `one`");
    assert_ne!(folders("trip"), folders("other"));
    let pwd = |folder: &str, run: &str| {
        let script = format!("pwd > started-in; exec {BINARY} demo-server --stdio --era legacy");
        let words = ["call", "counter", "--run", run, "--", "sh", "-c", &script];
        let mut command = background.warmline.command(&words);
        let folder = background.warmline.work().join(folder);
        let output = background
            .warmline
            .told(&command.current_dir(&folder).output().unwrap());
        output.exits(0);
        std::fs::read_to_string(folder.join("started-in")).unwrap()
    };
    for (folder, run) in [("one", "here"), ("two", "there")] {
        let expected = background.warmline.work().join(folder);
        assert_eq!(Path::new(pwd(folder, run).trim()), expected);
    }
}

/// What a later command decides about the same server counts from then on.
#[test]
fn a_command_may_decide_otherwise_about_a_server_that_is_there() {
    let background = Background::up();
    let era = |words: &[&str], run: &str| {
        let all = [&["call", "counter", "--json", "--run", run], words].concat();
        let output = background.run(&against_demo(&all, &[]));
        output.exits(0);
        let said: Value = serde_json::from_str(output.stdout.lines().last().unwrap()).unwrap();
        said["era"].as_str().unwrap().to_owned()
    };
    assert_eq!(era(&[], "one"), "legacy");
    assert_eq!(era(&["--era", "modern"], "two"), "modern");
    assert_eq!(era(&[], "three"), "legacy");
    assert_eq!(background.ps("server").len(), 1);
    let words = ["call", "counter", "--run", "three", "--era", "modern"];
    tells!(background.run(&against_demo(&words, &[])), @r#"
    exit: 0
    ----- stdout -----
    {"count":2}
    ----- stderr -----
    note: run `three` keeps speaking legacy with `warmline`, not modern
      why: a run keeps the session that it began with
      hint: name another run, or end this one: `warmline end three`
    "#);
}

/// The variables of the command count, not those of the shell that started the gateway.
#[test]
fn a_program_finds_the_variables_of_its_own_command() {
    let warmline = Warmline::new().with("TZ", "Europe/Zurich");
    let background = Background::up_in(warmline, &[]);
    let script = format!("env > variables; exec {BINARY} demo-server --stdio --era legacy");
    let words = [
        "call",
        "counter",
        "--run",
        "trip",
        "--env-pass",
        "PASSED",
        "--",
        "sh",
        "-c",
        &script,
    ];
    let mut command = background.warmline.command(&words);
    command
        .env_remove("TZ")
        .env("TERM", "of-the-command")
        .env("PASSED", "on")
        .env("SECRET", "canary");
    let output = background.warmline.told(&command.output().unwrap());
    output.exits(0);
    let variables = std::fs::read_to_string(background.warmline.work().join("variables")).unwrap();
    assert!(variables.contains("TERM=of-the-command\n"), "{variables}");
    assert!(variables.contains("PASSED=on\n"), "{variables}");
    assert!(!variables.contains("TZ="), "{variables}");
    assert!(!variables.contains("canary"), "{variables}");
    assert!(!background.log().contains("canary"), "{}", background.log());
}

/// reliability T11: what a file of the working folder says is not handed on until somebody trusts it.
#[test]
fn a_command_that_nobody_trusts_is_not_run_by_the_gateway_either() {
    let background = Background::up();
    let declared = format!("[servers.own]\ncommand = ['{BINARY}', 'demo-server', '--stdio']\n");
    background.warmline.write("warmline.toml", &declared);
    let output = background.run(&["call", "own", "counter", "--run", "trip"]);
    output.says_first("error[config-untrusted]");
    assert!(background.ps("session").is_empty());
    assert_eq!(background.run(&["trust", "--yes"]).exit, 0);
    for count in 1..=2 {
        let output = background.run(&["call", "own", "counter", "--run", "trip"]);
        let printed = output.stdout.trim();
        assert_eq!(printed, format!(r#"{{"count":{count}}}"#), "{output}");
    }
    assert_eq!(background.ps("session")[0]["server"], "own");
}

/// A run over HTTP that began without the gateway goes on in it, and goes on after it.
#[test]
fn a_run_over_http_goes_on_when_the_gateway_comes_and_goes() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let url = server.url();
    let words = ["call", url.as_str(), "counter", "--run", "trip"];
    assert_eq!(warmline.run(&words).stdout.trim(), r#"{"count":1}"#);
    let background = Background::up_in(warmline, &[]);
    assert_eq!(background.run(&words).stdout.trim(), r#"{"count":2}"#);
    assert_eq!(background.run(&words).stdout.trim(), r#"{"count":3}"#);
    assert_eq!(background.ps("run").len(), 1);
    assert_eq!(background.run(&["down"]).exit, 0);
    assert_eq!(background.run(&words).stdout.trim(), r#"{"count":4}"#);
    assert_eq!(server.ledger().messages_received("initialize"), 1);
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// What a tool says and what becomes of a call is told as without the gateway, exit codes
/// included.
#[test]
fn a_failure_is_told_as_if_nothing_stood_between() {
    let background = Background::up();
    let output = background.run(&["call", "x", "--run", "trip", "--", "no-such-program-here"]);
    tells!(output, @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: the program of `no-such-program-here` was not found: `no-such-program-here`
      why: searched PATH [PATH]
      delivery: unsent (not executed, safe to call again)
      hint: install it, or give its full path as `command`
    ");
    let output = background.run(&against_demo(&["call", "countr", "--run", "trip"], &[]));
    tells!(output, @r"
    exit: 2
    ----- stderr -----
    error[tool-unknown]: `warmline` has no tool `countr`
      delivery: unsent (not executed, safe to call again)
      hint: did you mean `counter`?
    ");
    let fault = r#"{"tool":"pay","fault":{"silence":"after-executing"}}"#;
    let words = [
        "call",
        "pay",
        "amount=3",
        "--run",
        "lost",
        "--timeout",
        "1s",
    ];
    let output = background.run(&against_demo(&words, &["--", "--fault", fault]));
    output.exits(4);
    let fault = r#"{"tool":"pay","fault":{"crash":"after-executing"}}"#;
    let words = ["call", "pay", "amount=3", "--run", "died"];
    let output = background.run(&against_demo(&words, &["--", "--fault", fault]));
    output.exits(4);
}

/// A129: what a program remembered is lost with the gateway that held it. The next command of the run
/// says so, once, also where none is up; a run that had nothing lost nothing.
#[test]
fn what_a_program_lost_with_the_gateway_is_told_by_the_next_command() {
    let background = Background::up();
    assert_eq!(background.counted("trip"), r#"{"count":1}"#);
    assert_eq!(background.counted("trip"), r#"{"count":2}"#);
    assert_eq!(background.run(&["down"]).exit, 0);
    let call = |run: &str| {
        let words = ["call", "counter", "--json", "--run", run];
        let output = background.run(&against_demo(&words, &["--era", "legacy"]));
        output.exits(0);
        let last = output.stdout.lines().last().unwrap();
        let said: Value = serde_json::from_str(last).unwrap();
        let lost = said["state_lost"].as_bool().unwrap();
        assert_eq!(last.contains("Note: the server `warmline` lost"), lost);
        let count = &said["result"]["structuredContent"]["count"];
        (count.as_i64().unwrap(), lost)
    };
    assert_eq!(call("other"), (1, false));
    assert_eq!(call("trip"), (1, true));
    assert_eq!(call("trip"), (1, false), "it is told once");
    assert_eq!(background.run(&["up", "--quiet"]).exit, 0);
    assert_eq!(call("trip"), (1, false), "it is told once");
    assert_eq!(call("trip"), (2, false));
}

/// No socket can have a path of any length: then no gateway is up there, and nobody minds.
#[test]
fn a_home_with_a_long_path_stops_no_command() {
    let long = || {
        let warmline = Warmline::new();
        let home = warmline.home().join("x".repeat(90));
        std::fs::create_dir(&home).unwrap();
        warmline.with("HOME", home.to_str().unwrap())
    };
    let warmline = long();
    let counter = against_demo(&["call", "counter", "--run", "trip"], &[]);
    let output = warmline.run(&counter);
    output.exits(0);
    assert_eq!(output.stdout, "{\"count\":1}\n");
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    for count in 1..=2 {
        let output = warmline.run(&["call", &server.url(), "counter", "--run", "trip"]);
        let counted = format!("{{\"count\":{count}}}\n");
        assert_eq!((output.exit, output.stdout), (0, counted));
    }
    let output = warmline.run(&["up"]);
    output
        .fails()
        .says("the system allows")
        .says("XDG_RUNTIME_DIR");
    // Where sockets have a folder of their own, it is up there.
    let sockets = warmline.work();
    let warmline = long().with("XDG_RUNTIME_DIR", sockets.to_str().unwrap());
    let background = Background::up_in(warmline, &[]);
    let counted = |number: u32| {
        let output = background.run(&counter);
        assert_eq!(
            output.stdout,
            format!("{{\"count\":{number}}}\n"),
            "{output}"
        );
    };
    counted(1);
    counted(2);
}
