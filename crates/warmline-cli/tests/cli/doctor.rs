//! `doctor`: what is wrong, and what to do about it, within its deadline.

use crate::prelude::*;

use std::time::Instant;

use crate::broken_servers;

/// P6: that a server works is shown by a real request, whose time is told.
#[test]
fn a_good_server_is_described() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline doctor -- [DEMO] --era legacy
    config        ok      command line: [WARMLINE] demo-server --stdio --era legacy
    program       ok      [WARMLINE] (the path given)
    path          ok      [N] folders, as ours
    start         ok      ready after [TIME]
    era           ok      legacy 2025-11-25: `server/discover` → -32601 "Method not found" (Q4), `initialize` → a result
    sessions      ok      legacy: keeps state, one process per run; modern: not spoken
    versions      ok      legacy 2025-11-25; it calls itself warmline-ledger 0.1.0
    capabilities  ok      completions, logging, prompts, resources, tools
    tools         ok      24 tools, 8 read-only, 15 without a hint about running twice
    first call    ok      tools/list took [TIME]
    stderr        ok      silent
    environment   ok      every variable is passed on
    would send    ok      the default variables (PATH, HOME, LANG …) · no secrets

    all is well (13 questions)
    "#);
    let server = LedgerServer::start(Personality::dual()).unwrap();
    shows!(warmline, "[SERVER]" = server.url(), @r#"
    $ warmline doctor [SERVER]
    config        ok      command line: http://127.0.0.1:[PORT]/mcp
    connect       ok      127.0.0.1 port [PORT] answered
    start         ok      ready after [TIME]
    era           ok      modern 2026-07-28: `server/discover` → HTTP 200, a result (P1)
    versions      ok      modern 2026-07-28, legacy 2025-11-25; it calls itself warmline-ledger 0.1.0
    capabilities  ok      completions, logging, prompts, resources, tools
    tools         ok      24 tools, 8 read-only, 15 without a hint about running twice
    first call    ok      tools/list took [TIME]
    would send    ok      no headers of yours · no secrets
    sessions      look    modern: keeps nothing per session; legacy: keeps state, one session per run
                  hint: if its tools need state between calls, speak legacy: `--era legacy`, or `era = "legacy"`

    10 questions · 1 to look at
    "#);
    let holds = server.ledger().messages_received("tools/list") > 0;
    assert!(holds, "a real request is made");
    let received = server.ledger().messages_received("tools/call");
    assert_eq!(received, 0, "nothing is called");
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let output = warmline.run(&["doctor", &server.url(), "--json"]);
    assert!(
        output
            .stdout
            .lines()
            .all(|line| line.starts_with(r#"{"kind":""#)),
        "{output}"
    );
    assert!(
        output
            .stdout
            .ends_with("{\"kind\":\"summary\",\"questions\":10,\"look\":0,\"broken\":0}\n"),
        "{output}"
    );
}

/// P105: the PATH that was searched is shown.
#[test]
fn a_program_that_is_missing() {
    tells!(Warmline::new().run(&["doctor", "--", "no-such-program", "--stdio"]), @r"
    exit: 2
    ----- stdout -----
    config       ok      command line: no-such-program --stdio
    environment  ok      every variable is passed on
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    program      broken  the program of `no-such-program` was not found: `no-such-program`
                 why: searched PATH [PATH]
                 hint: install it, or give its full path as `command`

    4 questions · 1 broken
    ");
    tells!(Warmline::new().run(&["doctor", "--offline", "--", "no-such-program"]), @r"
    exit: 2
    ----- stdout -----
    config       ok      command line: no-such-program
    environment  ok      every variable is passed on
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    start        unseen  it was not started (--offline)
    program      broken  `no-such-program` is in none of the 2 folders of PATH
                 hint: install it, or give its full path as `command`; the PATH of the login shell was not searched

    5 questions · 1 unseen · 1 broken
    no server was started or contacted: remove `--offline` to do so
    ");
}

#[test]
fn a_url_that_answers_html() {
    let server = broken_servers::html();
    tells!(Warmline::new().run(&["doctor", &server.url()]), @r"
    exit: 2
    ----- stdout -----
    config      ok      command line: http://127.0.0.1:[PORT]/mcp
    connect     ok      127.0.0.1 port [PORT] answered
    would send  ok      no headers of yours · no secrets
    era         broken  the answer of `127.0.0.1:[PORT]` is not an MCP answer
                why: HTTP 200, a web page: Welcome
                hint: check the URL: an MCP endpoint often ends in /mcp

    4 questions · 1 broken
    ");
}

#[test]
fn a_server_that_needs_a_token() {
    let server = LedgerServer::start(Personality::legacy().token("canary-token")).unwrap();
    tells!(Warmline::new().run(&["doctor", &server.url()]), @r#"
    exit: 2
    ----- stdout -----
    config      ok      command line: http://127.0.0.1:[PORT]/mcp
    connect     ok      127.0.0.1 port [PORT] answered
    would send  ok      no headers of yours · no secrets
    credential  broken  `127.0.0.1:[PORT]` requires a credential, and none was sent
                why: HTTP 401 "Unauthorized"
                hint: the variable `MCP_AUTH_TOKEN`, for a URL that is typed; or `--header-env Authorization=VARIABLE`, where the variable holds `Bearer …`; or `credential = { env = "VARIABLE" }` in the configuration, where it holds the token alone

    4 questions · 1 broken
    "#);
    let warmline = Warmline::new().with("MY_AUTH", "Bearer canary-token");
    let output = warmline.run(&[
        "doctor",
        &server.url(),
        "--header-env",
        "Authorization=MY_AUTH",
    ]);
    assert!(!output.everything().contains("canary"), "{output}");
    tells!(output, @r#"
    exit: 0
    ----- stdout -----
    config        ok      command line: http://127.0.0.1:[PORT]/mcp
    connect       ok      127.0.0.1 port [PORT] answered
    start         ok      ready after [TIME]
    era           ok      legacy 2025-11-25: `server/discover` → HTTP 400, -32600 "Bad Request: Missing session ID" (P9), `initialize` → HTTP 200, a result
    sessions      ok      legacy: keeps state, one session per run; modern: not spoken
    versions      ok      legacy 2025-11-25; it calls itself warmline-ledger 0.1.0
    capabilities  ok      completions, logging, prompts, resources, tools
    tools         ok      24 tools, 8 read-only, 15 without a hint about running twice
    first call    ok      tools/list took [TIME]
    would send    ok      authorization: …

    all is well (10 questions)
    "#);
}

#[test]
fn a_certificate_that_is_over() {
    let (authority, tls) = broken_servers::expired_tls();
    let server = LedgerServer::start_tls(Personality::legacy(), tls).unwrap();
    let warmline = Warmline::new();
    let file = warmline.write("ca.pem", &authority);
    let words = ["doctor", &server.url(), "--ca-file", file.to_str().unwrap()];
    tells!(warmline.run(&words), @r"
    exit: 2
    ----- stdout -----
    config      ok      command line: https://localhost:[PORT]/mcp
    connect     ok      localhost port [PORT] answered
    would send  ok      no headers of yours · no secrets
    tls         broken  `localhost:[PORT]` could not be reached safely: TLS to https://localhost:[PORT]/mcp failed
                why: its certificate expired [N] days ago
                hint: the certificate must be renewed at the server; or this machine's clock is wrong

    4 questions · 1 broken
    ");
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long the binary takes is what is tested"
)]
fn within(limit: Duration, run: impl FnOnce() -> CommandOutput) -> CommandOutput {
    let begun = Instant::now();
    let told = run();
    assert!(begun.elapsed() < limit, "it took {:?}", begun.elapsed());
    told
}

#[test]
fn a_server_that_hangs() {
    let server = broken_servers::silent();
    let warmline = Warmline::new();
    let words = ["doctor", &server.url(), "--timeout", "1s"];
    tells!(within(Duration::from_secs(20), || warmline.run(&words)), @r"
    exit: 2
    ----- stdout -----
    config      ok      command line: http://127.0.0.1:[PORT]/mcp
    connect     ok      127.0.0.1 port [PORT] answered
    would send  ok      no headers of yours · no secrets
    start       broken  `127.0.0.1:[PORT]` did not answer in time
                hint: it accepts connections and does not answer: it may hang, or not be an MCP server; or allow more time with `--timeout`

    settings
      connect_timeout    1s  the command line
      handshake_timeout  1s  the command line
      start_timeout      1s  the command line
      call_idle_timeout  1s  the command line
      call_timeout       1s  the command line

    4 questions · 1 broken
    ");
    let words = ["doctor", "--timeout", "1s", "--", "sleep", "600"];
    tells!(within(Duration::from_secs(20), || warmline.run(&words)), @r"
    exit: 2
    ----- stdout -----
    config       ok      command line: sleep 600
    program      ok      sleep → [BIN]/sleep
    environment  ok      every variable is passed on
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    start        broken  `sleep` showed no sign of life within [TIME] of its start (`start_timeout`)
                 hint: start it by hand and read its output: `sleep 600`; or allow more time with `--timeout`

    settings
      connect_timeout    1s  the command line
      handshake_timeout  1s  the command line
      start_timeout      1s  the command line
      call_idle_timeout  1s  the command line
      call_timeout       1s  the command line

    5 questions · 1 broken
    ");
}

#[test]
fn a_folder_that_is_not_trusted() {
    let warmline = Warmline::new();
    warmline.write(
        "warmline.toml",
        "[servers.prog]\ncommand = ['touch', 'ran']\n",
    );
    shows!(warmline, @r"
    $ warmline doctor prog
    config      ok      the file can be read, no unknown keys
    trust       broken  [WORK]/warmline.toml: `warmline.toml` of this folder is not trusted yet
                why: a configuration file can start programs, and this one lies in the working folder
                hint: look at what it does and accept it: `warmline trust`

    2 questions · 1 broken
    exit: 2
    $ warmline doctor
    config      ok      [WORK]/warmline.toml: 1 server, no unknown keys
    trust       broken  [WORK]/warmline.toml: `warmline.toml` of this folder is not trusted yet
                why: a configuration file can start programs, and this one lies in the working folder
                hint: look at what it does and accept it: `warmline trust`

    2 questions · 1 broken
    exit: 2
    ");
    assert!(!warmline.work().join("ran").exists());
}

#[test]
fn a_program_that_ends_at_once() {
    tells!(Warmline::new().run(&["doctor", "--", "sh", "-c", "echo 'no licence' >&2; exit 3"]), @r"
    exit: 2
    ----- stdout -----
    config       ok      command line: sh -c 'echo '\''no licence'\'' >&2; exit 3'
    program      ok      sh → [BIN]/sh
    environment  ok      every variable is passed on
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    start        broken  `sh` ended with exit status 3
                 why: no licence
                 hint: start it by hand and read its output: `sh -c 'echo '\''no licence'\'' >&2; exit 3'`

    5 questions · 1 broken
    ");
}

/// DESIGN 5.1: a modern program is no conversation, so the runs of an identity share it.
#[test]
fn a_program_of_both_eras_is_told_by_whom_it_is_shared() {
    let output = Warmline::new().run(&against_demo(&["doctor"], &[]));
    for leg in [
        "modern: keeps state, one process per identity",
        "legacy: keeps state, one process per run",
    ] {
        output.prints(leg);
    }
}

/// A secret that was left out, a variable that is not there: the program would miss them.
#[test]
fn what_a_program_would_miss_is_looked_at() {
    let warmline = Warmline::new();
    let words = ["doctor", "--offline", "--env-pass", "NOT_SET_HERE", "--"];
    let output = warmline.run(&[&words[..], &["sh", "--key", "FILL_IN"]].concat());
    tells!(output, @r"
    exit: 0
    ----- stdout -----
    config       ok      command line: sh --key FILL_IN
    program      ok      sh → [BIN]/sh
    would send   ok      the default variables, and NOT_SET_HERE: …
    start        unseen  it was not started (--offline)
    arguments    look    `FILL_IN` stands where `warmline init` left a secret out
                 hint: put the value there
    environment  look    `env_pass` names NOT_SET_HERE, which is not set
                 hint: set NOT_SET_HERE where Warmline is started, or remove it from `env_pass`

    6 questions · 1 unseen · 2 to look at
    no server was started or contacted: remove `--offline` to do so
    ");
}

/// What a program prints where only messages belong is shown, without its secrets.
#[test]
fn a_program_that_prints_something_else_and_ends() {
    let warmline = Warmline::new();
    let script = "echo Usage: x [$KEY]; exit 3";
    let words = [
        "tools",
        "--env",
        "KEY=canary-of-mine",
        "--",
        "sh",
        "-c",
        script,
    ];
    tells!(warmline.run(&words), @r#"
    exit: 3
    ----- stderr -----
    error[open-failed]: `sh` ended with exit status 3
      where: sh -c 'echo Usage: x [$KEY]; exit 3'
      why: its output has a line that is no message: "Usage: x [[redacted: KEY]]"
      delivery: unsent (not executed, safe to call again)
      hint: start it by hand and read its output: `sh -c 'echo Usage: x [$KEY]; exit 3'`
    "#);
    let script = "i=0; while [ $i -lt 200 ]; do echo hello; i=$((i+1)); done; sleep 600";
    shows!(warmline, "[SCRIPT]" = script, @r#"
    $ warmline tools -- sh -c [SCRIPT]
    2> error[open-failed]: `sh` was ended: its output is not MCP (100 lines or 1 MiB in a row)
    2>   where: sh -c 'i=0; while [ $i -lt 200 ]; do echo hello; i=$((i+1)); done; sleep 600'
    2>   why: its output has a line that is no message: "hello"
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: start the program by hand: its standard output is for MCP messages only; everything else belongs on stderr
    exit: 3
    "#);
}

/// The commonest mistake in a server: `print`. It is no silence, and more time does not help.
#[test]
fn a_program_that_prints_something_else_and_stays() {
    let warmline = Warmline::new();
    let script = "while read -r line; do echo I got a line; done";
    let words = ["doctor", "--timeout", "1s", "--", "sh", "-c", script];
    tells!(warmline.run(&words), @r#"
    exit: 2
    ----- stdout -----
    config       ok      command line: sh -c 'while read -r line; do echo I got a line; done'
    program      ok      sh → [BIN]/sh
    environment  ok      every variable is passed on
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    era          broken  `sh` wrote no MCP message within [TIME] of its start (`start_timeout`)
                 why: its output has a line that is no message: "I got a line"
                 hint: start the program by hand: its standard output is for MCP messages only; everything else belongs on stderr

    settings
      connect_timeout    1s  the command line
      handshake_timeout  1s  the command line
      start_timeout      1s  the command line
      call_idle_timeout  1s  the command line
      call_timeout       1s  the command line

    5 questions · 1 broken
    "#);
    for (said, told_so) in [
        (
            "echo Ready.",
            r#"1 line of its output is no message: "Ready.""#,
        ),
        (
            "echo Ready.; echo Go.",
            r#"2 lines of its output are no messages, the last is "Go.""#,
        ),
    ] {
        let script = format!(r#"{said}; exec "$0" demo-server --stdio"#);
        let output = warmline.run(&["doctor", "--", "sh", "-c", &script, BINARY]);
        let mut lines = output.stdout.lines();
        let start = lines.find(|line| line.starts_with("start "));
        assert!(
            start.is_some_and(|line| line.ends_with(told_so)),
            "{output}"
        );
    }
}

#[test]
fn everything_that_is_configured_is_looked_at_without_starting_it() {
    let warmline = Warmline::new().with("GITHUB_PAT", "x");
    shows!(warmline, @r#"
    $ warmline doctor
    config      look    no configuration file in [WORK], [HOME]/.config/warmline, /etc/warmline
                hint: give a target: `warmline doctor URL`, or `warmline doctor -- COMMAND`; `warmline add NAME URL` or `warmline init` writes a file
    settings    look    GITHUB_PAT is set, but nothing reads it
                hint: name the variable for its server: `credential = { env = "…" }`

    2 questions · 2 to look at
    "#);
    warmline.write_user(
        "warmline.toml",
        "[servers.good]\ncommand = ['sh']\n[servers.web]\nurl = 'https://example.com/mcp?key=canary'\n\
         [servers.gone]\ncommand = ['no-such-program']\n[servers.token]\nurl = 'https://example.com/mcp'\n\
         credential = { env = 'NOT_SET' }\n",
    );
    let output = warmline.run(&["doctor"]);
    assert!(!output.everything().contains("canary"), "{output}");
    tells!(output, @r#"
    exit: 2
    ----- stdout -----
    config      ok      [HOME]/.config/warmline/warmline.toml: 4 servers, no unknown keys
    good        unseen  sh
    web         unseen  https://example.com/mcp?…
    settings    look    GITHUB_PAT is set, but nothing reads it
                hint: name the variable for its server: `credential = { env = "…" }`
    gone        broken  `no-such-program` is in none of the 2 folders of PATH
                hint: install it, or give its full path as `command`; the PATH of the login shell was not searched
    token       broken  [HOME]/.config/warmline/warmline.toml:9:1: `NOT_SET` is not set, and `token` takes its token from it
                hint: set `NOT_SET` in the environment of this command

    6 questions · 2 unseen · 1 to look at · 2 broken
    no server was started or contacted: `warmline doctor NAME` does
    "#);
    shows!(warmline, @r#"
    $ warmline doctor gone --offline
    config       ok      [HOME]/.config/warmline/warmline.toml:5:10, no unknown keys
    trust        ok      not needed for a user file
    environment  ok      1 variable is not passed on; GITHUB_PAT looks like a secret
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    start        unseen  it was not started (--offline)
    settings     look    GITHUB_PAT is set, but nothing reads it
                 hint: name the variable for its server: `credential = { env = "…" }`
    program      broken  `no-such-program` is in none of the 2 folders of PATH
                 hint: install it, or give its full path as `command`; the PATH of the login shell was not searched

    7 questions · 1 unseen · 1 to look at · 1 broken
    no server was started or contacted: remove `--offline` to do so
    exit: 2
    $ warmline doctor goood
    2> error[server-unknown]: no server is called `goood`
    2>   hint: did you mean `good`?
    exit: 2
    "#);
}

#[test]
fn a_variable_that_a_child_will_miss_is_named() {
    let warmline = Warmline::new().with("GITHUB_TOKEN", "canary");
    warmline.write_user("warmline.toml", "[servers.github]\ncommand = ['sh']\n");
    let output = warmline.run(&["doctor", "github", "--offline"]);
    output
        .prints("the program does not get GITHUB_TOKEN")
        .prints("--env-pass GITHUB_TOKEN");
}

#[test]
fn a_doctor_does_not_send_to_the_doctor() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let table = [
        (
            CannedReply::new(404, "not here"),
            "many servers are at `/mcp`",
        ),
        (
            CannedReply::new(429, "slow down").header("Retry-After", "7"),
            "the server asks to wait 7 s",
        ),
        (
            CannedReply::new(403, "no"),
            "the credential may lack the permission",
        ),
        (CannedReply::new(500, "oops"), "and its log"),
        (
            CannedReply::redirect(302, "http://127.0.0.1:1/"),
            "use the URL that it redirects to",
        ),
    ];
    for (canned, hint) in table {
        server.inject(FaultRule::new(Fault::Reply(canned)).always());
        let output = warmline.run(&["doctor", &server.url()]);
        server.control().clear_faults();
        output
            .exits(2)
            .prints(hint)
            .does_not_print("warmline doctor");
    }
}

#[test]
fn what_is_kept_from_a_child_is_named_when_asked_for() {
    let warmline = Warmline::new()
        .with("ACME_TOKEN", "canary")
        .with("EDITOR", "canary");
    let output = warmline.run(&against_demo(&["doctor"], &[]));
    output
        .prints("ACME_TOKEN looks like a secret")
        .does_not_print("EDITOR");
    let output = warmline.run(&against_demo(&["doctor", "-v"], &[]));
    output.prints("ACME_TOKEN, EDITOR");
    assert!(!output.everything().contains("canary"), "{output}");
}

#[test]
fn a_port_without_tls() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url().replace("http://", "https://");
    let output = Warmline::new().run(&["doctor", &url, "--timeout", "1s"]);
    output.exits(2).prints("try the URL with `http://`");
}
