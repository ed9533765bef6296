//! `warmline run`: a run around a program.

use crate::prelude::*;

use std::os::unix::fs::PermissionsExt as _;

/// What a program calls shares one session, which ends with it; its exit code is passed on.
#[test]
fn a_program_finds_its_run_by_variables_and_leaves_nothing_behind() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let audit = warmline.work().join("audit.jsonl");
    let text = format!(
        "[audit]\nfile = '{}'\n[servers.ledger]\nurl = '{}'\n",
        audit.display(),
        server.url()
    );
    warmline.write_user("warmline.toml", &text);
    // Each call is a program of its own, as an agent that opens a session per call.
    let script = format!(
        "unset WARMLINE_RUN; for i in 1 2 3; do {BINARY} call $WARMLINE_URL/servers/ledger/mcp counter \
         --header \"Authorization: Bearer $WARMLINE_TOKEN\"; done; exit 7"
    );
    let output = warmline.run(&["run", "--name", "trip", "--", "sh", "-c", &script]);
    tells!(output, @r#"
    exit: 7
    ----- stdout -----
    {"count":1}
    {"count":2}
    {"count":3}
    ----- stderr -----
    run `trip`: 6 requests in 1 session; a session per request would have taken [TIME] more to open
    "#);
    assert_eq!(server.counts().open_sessions, 0);
    assert_eq!(server.ledger().executions("counter"), 3);
    assert_eq!(server.violations(), Vec::<String>::new());
    let audit = std::fs::read_to_string(audit).unwrap();
    let calls = audit
        .lines()
        .filter(|line| line.contains("\"tool\":\"counter\""));
    assert_eq!(calls.count(), 3, "{audit}");
}

/// A server that speaks both eras keeps its state for the program's commands, too.
#[test]
fn commands_inside_share_the_state_of_a_server_of_both_eras() {
    let server = LedgerServer::start(Personality::dual()).unwrap();
    let warmline = Warmline::new();
    let text = format!("[servers.ledger]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let script = format!("for i in 1 2 3; do {BINARY} call ledger counter; done");
    let output = warmline.run(&["run", "--name", "trip", "--", "sh", "-c", &script]);
    let counted = "{\"count\":1}\n{\"count\":2}\n{\"count\":3}\n";
    output.exits(0);
    assert_eq!(output.stdout, counted);
    assert_eq!(server.counts().open_sessions, 0);
}

/// reliability P7: what a gateway knows of a call is what its command says, in a run and outside.
#[test]
fn a_command_says_what_a_gateway_at_a_url_knows_of_its_call() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let words = [server.url(), "--auth".to_owned(), "none".to_owned()];
    let serving = Serving::start(&warmline, &words.each_ref().map(String::as_str));
    let name = serving.said["servers"][0]["name"].as_str().unwrap();
    let url = format!("{}/servers/{name}/mcp", serving.base());
    let in_a_run: &[&str] = &["--run", "trip"];
    for more in [&[], in_a_run] {
        let cut = Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst);
        server.inject(FaultRule::new(cut).on_tool("pay"));
        let pay = ["call", &url, "pay", "account=a", "amount=1", "--json"];
        let output = warmline.run(&[&pay, more].concat());
        output.exits(4);
        let holds = output.everything().contains(r#""delivery":"unknown""#);
        assert!(holds, "{output}");
    }
    drop(server);
    warmline.run(&["call", &url, "counter"]).exits(3);
    serving.stop(&warmline);
}

#[test]
fn what_cannot_be_run_is_named() {
    let warmline = Warmline::new();
    let url = "http://127.0.0.1:1/mcp";
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline run [URL]
    2> error[usage-bad-argument]: no program behind `--`
    2>   hint: `warmline run -- python agent.py`
    exit: 2
    $ warmline run -- true
    2> error[usage-bad-argument]: nothing to serve: no server is configured
    2>   hint: `warmline add NAME URL` adds one, or `warmline add NAME -- COMMAND`; `warmline init` imports those of desktop clients
    exit: 2
    $ warmline run [URL] --name 'a b' -- true
    2> error[usage-bad-argument]: `a b` is not a run name
    2>   hint: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and is not `.` or `..`
    exit: 2
    $ warmline run [URL] --name trip --json -- true
    2> {"kind":"note","run":"trip","requests":0,"sessions":0,"saved_ms":[TIME]}
    "#);
    let output = warmline.run(&["run", url, "--", "sh", "-c", "kill -9 $$"]);
    output.exits(137);
}

/// Whoever reads exit codes of shells reads these too.
#[test]
fn a_program_that_cannot_be_started_ends_as_it_would_in_a_shell() {
    let warmline = Warmline::new();
    let url = "http://127.0.0.1:1/mcp";
    shows!(warmline, "[URL]" = url, @r"
    $ warmline run [URL] -- no-such-program-here
    2> error[usage-bad-argument]: there is no program `no-such-program-here`
    2>   why: no folder of PATH has it
    2>   hint: check the spelling, or give the full path
    exit: 127
    $ warmline run [URL] -- ./no-such-file
    2> error[usage-bad-argument]: there is no program `./no-such-file`
    2>   why: there is no such file
    2>   hint: check the spelling, or give the full path
    exit: 127
    ");
    warmline.write("agent.py", "print('hi')\n");
    shows!(warmline, "[URL]" = url, @r"
    $ warmline run [URL] -- ./agent.py
    2> error[usage-bad-argument]: cannot execute the program `./agent.py`
    2>   why: Permission denied (os error 13)
    2>   hint: make the file executable: `chmod +x`
    exit: 126
    ");
    let script = warmline.write("script", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    shows!(warmline, "[URL]" = url, @r"
    $ warmline run [URL] -- ./script
    2> error[usage-bad-argument]: cannot execute the program `./script`
    2>   why: its interpreter does not exist
    2>   hint: check its first line, which names the interpreter
    exit: 126
    ");
    let output = warmline.run(&["run", url, "--json", "--", "no-such-program-here"]);
    assert!(output.everything().contains(r#""exit":127"#), "{output}");
}

/// A7: a run that is handed on by the environment is that of whoever began it, and goes on.
#[test]
fn a_run_inside_another_ends_nothing_of_it() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new().with("WARMLINE_RUN", "trip");
    let text = format!("[servers.ledger]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let call = ["call", "ledger", "counter"];
    let around = ["run", "--quiet", "--", BINARY];
    let output = [
        warmline.run(&call),
        warmline.run(&[&around[..], &call].concat()),
        warmline.run(&call),
    ];
    let counted = output.each_ref().map(|output| output.stdout.trim());
    let expected = [1, 2, 3].map(|count| format!(r#"{{"count":{count}}}"#));
    assert_eq!(counted, expected);
    assert_eq!(server.counts().initializes, 1);
    // What the program alone called goes on, too, and is known by name.
    let other = LedgerServer::start(Personality::legacy()).unwrap();
    let text = format!("{text}[servers.other]\nurl = '{}'\n", other.url());
    warmline.write_user("warmline.toml", &text);
    let alone = ["call", "other", "counter"];
    let output = warmline.run(&[&around[..], &alone].concat());
    assert_eq!(
        (output.exit, other.counts().open_sessions),
        (0, 1),
        "{output}"
    );
    warmline.run(&["ps"]).prints("other");
    warmline.run(&["end", "trip"]).exits(0);
    assert_eq!(other.counts().open_sessions, 0);
}

/// The store outlives a program, and the next one may have its number: names are never the same.
#[test]
fn a_run_without_a_name_has_one_that_nobody_can_guess() {
    let warmline = Warmline::new();
    let named = || {
        let words = ["run", "http://127.0.0.1:1/mcp", "--quiet", "--", "sh", "-c"];
        let output = warmline.run(&[&words[..], &["echo $WARMLINE_RUN"]].concat());
        output.exits(0);
        output.stdout.trim().to_owned()
    };
    let (first, second) = (named(), named());
    assert_ne!(first, second);
    assert!(first.len() >= "run-".len() + 32, "{first}");
}

/// Commands inside the program go through the gateway around it: nothing of theirs outlives it.
#[test]
fn what_commands_inside_a_program_open_ends_with_it() {
    let (server, typed) = (
        LedgerServer::start(Personality::legacy()).unwrap(),
        LedgerServer::start(Personality::legacy()).unwrap(),
    );
    let warmline = Warmline::new();
    let text = format!("[servers.ledger]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let script = format!(
        "{BINARY} call ledger counter; {BINARY} request ledger tools/call name=counter >&2; \
         {BINARY} call ledger counter --end-run; {BINARY} call ledger no_such; \
         {BINARY} call ledger counter --run other --end-run"
    );
    let output = warmline.run(&[
        "run", "--quiet", "--name", "trip", "--", "sh", "-c", &script,
    ]);
    tells!(output, @r#"
    exit: 0
    ----- stdout -----
    {"count":1}
    {"count":3}
    {"count":1}
    ----- stderr -----
    {
      "content": [
        {
          "text": "{\"count\":2}",
          "type": "text"
        }
      ],
      "structuredContent": {
        "count": 2
      }
    }
    note: run `trip` goes on: only the `warmline run` that began it ends it
    error[tool-unknown]: `ledger` has no tool `no_such`
      delivery: unsent (not executed, safe to call again)
      hint: it has 24 others; `warmline tools ledger` lists them
    "#);
    assert_eq!(server.counts().open_sessions, 0, "all of them ended");
    let script = format!("{BINARY} call ledger counter --end-run");
    let words = ["run", &typed.url(), "--quiet", "--", "sh", "-c", &script];
    let output = warmline.run(&words);
    let printed = output.stdout.trim();
    assert_eq!(
        printed, r#"{"count":1}"#,
        "it is not served there: {output}"
    );
    assert_eq!(server.counts().open_sessions, 0);
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// The gateway around a program knows its servers: files of the folder, trusted or not, and of the
/// user have no word in whom a name means there.
#[test]
fn a_name_means_the_server_of_the_gateway_around_before_any_file() {
    let (server, other) = (
        LedgerServer::start(Personality::legacy()).unwrap(),
        LedgerServer::start(Personality::legacy()).unwrap(),
    );
    let given = format!(
        "[servers.ledger]\nurl = '{}'\ndeny = ['pay']\n",
        server.url()
    );
    let script = format!(
        "{BINARY} call ledger counter; {BINARY} tools ledger --quiet | grep -c counter; \
         {BINARY} request ledger tools/call name=counter --json | grep -c '\"count\":2'; \
         {BINARY} call ledger pay amount=1"
    );
    let declared = format!(
        r#"{{"mcpServers": {{"ledger": {{"url": "{}"}}}}}}"#,
        other.url()
    );
    let beside: [(&str, Option<&str>, Option<&str>); 4] = [
        ("nothing", None, None),
        ("an untrusted file of the folder", Some(&declared), None),
        ("a broken one", Some("{\"mcpServers\": 1}"), None),
        ("a file of the user", None, Some(&declared)),
    ];
    for (what, of_folder, of_user) in beside {
        let warmline = Warmline::new();
        let file = warmline.home().join("given.toml");
        std::fs::write(&file, &given).unwrap();
        of_folder.map(|text| warmline.write(".mcp.json", text));
        of_user.map(|text| warmline.write_user("mcp.json", text));
        let output = warmline.run(&[
            "run",
            "--quiet",
            "--config",
            file.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            &script,
        ]);
        assert_eq!(output.stdout, "{\"count\":1}\n1\n1\n", "{what}: {output}");
        let no_tool = "`ledger` has no tool `pay`";
        assert!(output.stderr.contains(no_tool), "{what}: {output}");
        assert_eq!(server.counts().open_sessions, 0, "{what}: {output}");
    }
    assert_eq!(other.counts().requests, 0, "it was never asked");
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A gateway of its own has the run of a program: `ps` and `end` know others, and say so.
#[test]
fn commands_inside_are_told_whose_their_run_is() {
    let (server, beside) = (
        LedgerServer::start(Personality::legacy()).unwrap(),
        LedgerServer::start(Personality::legacy()).unwrap(),
    );
    let warmline = Warmline::new();
    let text = format!("[servers.ledger]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let inside = |script: &str| {
        let script = script.replace("warmline ", &format!("{BINARY} "));
        warmline.run(&[
            "run", "--quiet", "--name", "trip", "--", "sh", "-c", &script,
        ])
    };
    tells!(inside("warmline call ledger counter; warmline ps; warmline end trip"), @r#"
    exit: 2
    ----- stdout -----
    {"count":1}
    ----- stderr -----
    no background gateway is up: `warmline up` starts one
    to look into a `warmline serve --admin FILE`: `warmline ps --socket FILE`
    run `trip` belongs to the enclosing `warmline run`: its sessions are not shown
    error[usage-bad-argument]: run `trip` goes on: only the `warmline run` that began it ends it
    "#);
    assert_eq!(server.counts().open_sessions, 0);
    // What was typed goes beside it, and is the run's by name.
    let script = format!(
        "warmline call {} counter; warmline ps --json; warmline end trip",
        beside.url()
    );
    tells!(inside(&script), @r#"
    exit: 0
    ----- stdout -----
    {"count":1}
    {"kind":"gateway","up":false}
    {"kind":"kept","run":"trip","server":"127.0.0.1:[PORT]","opened_at":[TIME],"used_at":[TIME]}
    ----- stderr -----
    {"kind":"note","run":"trip","what":"run `trip` belongs to the enclosing `warmline run`: its sessions are not shown"}
    ended what commands left; run `trip` goes on: only the `warmline run` that began it ends it
    "#);
    assert_eq!(beside.counts().open_sessions, 0);
    let output = inside("warmline end other");
    output.says_first("error[run-unknown]");
}

/// Who called, and reached nobody, did call.
#[test]
fn requests_that_failed_are_counted() {
    let warmline = Warmline::new();
    let call = format!("{BINARY} call $WARMLINE_SERVERS counter; true");
    let url = "http://127.0.0.1:1/mcp";
    let words = ["run", url, "--name", "trip", "--", "sh", "-c", &call];
    let output = warmline.run(&words);
    let said = "run `trip`: 1 request failed, and no server received one\n";
    output.says(said);
    // Where no person looks, the log is for programs.
    let log = output.stderr.lines().filter(|line| line.starts_with('{'));
    let log: Vec<&str> = log.collect();
    let [line] = log.as_slice() else {
        panic!("not one line of the log: {output}");
    };
    assert!(line.contains(r#""reason":"connect-refused""#), "{output}");
}
