//! What is said about the command line itself.

use warmline_testkit::personality::Personality;

use crate::tells;
use crate::warmline::Warmline;

#[test]
fn help_fits_on_one_screen_and_has_examples() {
    let told = Warmline::new().run(&["--help"]);
    assert!(told.stdout.lines().count() <= 40, "{}", told.stdout);
    assert!(
        told.stdout.lines().all(|line| line.chars().count() <= 96),
        "{}",
        told.stdout
    );
    tells!(told, @r"
    exit: 0
    ----- stdout -----
    Call any MCP server, of either era, over HTTP or stdio, and know what became of every call.

    Usage: warmline COMMAND [TARGET] …

      call         Call a tool and print its answer
      request      Send any MCP request and print its result
      tools        List the tools of a server, or show what one of them takes
      doctor       Find out what is wrong with a server, and what to do about it
      serve        Stand between MCP clients and servers, and keep sessions warm for them
      stdio        Be an MCP server over stdio, in front of others: for desktop clients
      run          Run a program inside a run: what it calls shares sessions, which end with it
      up           Start a gateway in the background, which holds sessions between commands
      down         Stop the background gateway
      ps           Show what the background gateway holds, and runs that commands left
      end          End a run: its sessions are closed
      url          Print what a client has to be told to use a server through the gateway
      token        Make, list and revoke tokens that let callers into the gateway
      check        Look whether configuration files are right, and execute nothing
      init         Write a configuration file to begin with, with what desktop clients have already
      add          Add a server to a configuration file
      explain      Explain an error code
      trust        Look at a configuration file of this folder and accept it
      demo         See what Warmline is for, in a few seconds
      demo-server  Run the server of the demo, to try things against
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)


    A target is a URL, a name from warmline.toml or an mcpServers file, or a command behind `--`:
      warmline tools https://example.com/mcp
      warmline call github list_issues owner=acme repo=lamp
      warmline call echo message=hi -- npx -y some-server
      warmline doctor -- npx -y some-server
      warmline demo

    With every command: --json, --color WHEN, -q/--quiet, -v/--verbose.
    Exit: 0 fine · 1 the tool said no · 2 usage or configuration · 3 not executed, safe to call
    again · 4 may have been executed. `warmline help COMMAND` tells all.
    ");
}

#[test]
fn every_command_has_help_with_examples() {
    let warmline = Warmline::new();
    for command in [
        "call",
        "request",
        "tools",
        "doctor",
        "serve",
        "stdio",
        "run",
        "up",
        "down",
        "ps",
        "end",
        "init",
        "add",
        "url",
        "token",
        "check",
        "explain",
        "trust",
        "demo-server",
        "completions",
    ] {
        let told = warmline.run(&["help", command]);
        assert_eq!(told.exit, 0, "{command}");
        assert!(
            told.stdout.contains("Examples:"),
            "{command}: {}",
            told.stdout
        );
    }
}

#[test]
fn nothing_typed_shows_the_help_and_fails() {
    let told = Warmline::new().run(&[""; 0]);
    assert_eq!((told.exit, told.stdout.as_str()), (2, ""));
    assert!(told.stderr.contains("Usage: warmline COMMAND"));
}

#[test]
fn a_slip_of_the_hand_gets_the_nearest_right_word() {
    let warmline = Warmline::new();
    tells!(warmline.run(&["cal"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `cal` is no command
      hint: did you mean `call`?
    ");
    tells!(warmline.run(&["call", "--jsno"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--jsno` is not an option here
      hint: did you mean `--json`?
    ");
    tells!(warmline.run(&["call", "x", "y", "--era", "legcy"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--era <ERA>` cannot be `legcy`
      hint: did you mean `legacy`?
    ");
    tells!(warmline.run(&["call", "x", "y", "--timeout", "30"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--timeout <TIME>` cannot be `30`
      hint: write a number above 0 and a unit: 500ms, 30s, 2min, 1h
    ");
    tells!(warmline.run(&["call", "x", "y", "--timeout"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--timeout <TIME>` needs a value
      hint: `warmline --help` shows what can be typed
    ");
    tells!(warmline.run(&["tools", "--json", "--nonsense"]), @r#"
    exit: 2
    ----- stdout -----
    {"kind":"error","code":"usage-bad-argument","what":"`--nonsense` is not an option here","hint":"`warmline tools --help` shows what can be typed","exit":2}
    "#);
}

#[test]
fn a_target_that_cannot_be_meant_is_named() {
    let warmline = Warmline::new();
    tells!(warmline.run(&["call"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: neither a target nor a tool is named
      hint: `warmline help call` shows how
    ");
    tells!(warmline.run(&["call", "http://127.0.0.1:1/mcp"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: no tool is named after the URL
      hint: `warmline tools URL` lists the tools of a server
    ");
    tells!(warmline.run(&["call", "a=1"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `a=…` stands where a target should
      hint: the target comes first: a URL or a name; or a command last, behind `--`
    ");
    tells!(warmline.run(&["tools"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: no target is named
      hint: give a URL, a name, or a command behind `--`
    ");
    tells!(warmline.run(&["tools", "a", "b"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `a`
      hint: no configuration was found; give a URL, or a command behind `--`, or add one: `warmline add NAME URL`
    ");
    tells!(warmline.run(&["tools", "ftp://example.com/"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `ftp://example.com/` is not the URL of a server
      why: `ftp` is not a scheme of MCP; `http` and `https` are
    ");
    tells!(warmline.run(&["tools", "localhost:8400/mcp"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `localhost:[PORT]/mcp`
      hint: a URL begins with `https://` or `http://`: `http://localhost:[PORT]/mcp`
    ");
    tells!(warmline.run(&["tools", "http://127.0.0.1:1/mcp", "--", "npx"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: there are two targets: a URL and a command behind `--`
      hint: leave one of them out
    ");
    tells!(warmline.run(&["tools", "--header", "A: b", "--", "npx"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--header` is for a URL, and `npx` is a program
      hint: a program gets its settings by --env NAME=VALUE or --env-pass NAME
    ");
    tells!(warmline.run(&["tools", "http://127.0.0.1:1/mcp", "--env", "A=b"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `--env` is for a program, and `127.0.0.1:[PORT]` is a URL
    ");
    tells!(warmline.run(&["tools", "http://127.0.0.1:1/mcp", "--header", "nonsense"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: a --header has no `:`
      hint: write --header 'Name: value'
    ");
    tells!(warmline.run(&["tools", "http://127.0.0.1:1/mcp", "--header-env", "A=NOT_SET"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `NOT_SET` is not set, and `A` takes its value from it
      hint: set `NOT_SET` in the environment of this command
    ");
}

/// Lines of a log have a `reason` more often than a code.
#[test]
fn explain_knows_the_reasons_of_a_log() {
    let warmline = Warmline::new();
    tells!(warmline.run(&["explain", "child-exit"]), @r"
    exit: 0
    ----- stdout -----
    child-exit
      The process of the server ended.

      a reason of: what went wrong with an opening or a call
      it belongs to the code answer-lost, or `open-failed` while a session opens: `warmline explain answer-lost`
    child-exit
      The child ended.

      a reason of: `session gone`: what showed it
      it belongs to the code session-lost: `warmline explain session-lost`
    ");
    tells!(warmline.run(&["explain", "unknown-token", "--json"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reason","reason":"unknown-token","of":"`request refused`: a gateway turned somebody away","meaning":"It showed a token that is not known."}
    "#);
    #[rustfmt::skip]
    let table = [
        ("silent-server",    "open-failed"),
        ("connect-refused",  "cannot-reach"),
        ("no-token",         "request refused"),
        ("era",              "falls back"),
        ("reason=\"tls\"", "cannot-reach"),
        ("not-understood",   "check failed"),
    ];
    for (word, said) in table {
        let told = warmline.run(&["explain", word]);
        assert_eq!(told.exit, 0, "{told}");
        assert!(told.stdout.contains(said), "{told}");
    }
}

#[test]
fn explain_prints_the_page_of_a_code() {
    let warmline = Warmline::new();
    tells!(warmline.run(&["explain", "answer-lost"]), @r"
    exit: 0
    ----- stdout -----
    answer-lost
      The request was sent, and no answer to it arrived.

      whom it concerns: network
      delivery, as a rule: unknown (may have been executed, check before calling again)
      exit code, as a rule: 4

      usual causes:
      - the connection closed after the request was sent
      - the server, or a gateway before it, failed while it worked
      - the answer came, and could not be written to where the output goes

      what to try:
      - check whether it was executed before calling again
    ");
    tells!(warmline.run(&["explain", "error[config-untrusted]:"]), @r"
    exit: 0
    ----- stdout -----
    config-untrusted
      A configuration file was found in the working folder, and nobody said that it is trusted.

      whom it concerns: you
      exit code: 2

      usual causes:
      - the file is new, or changed since it was trusted
      - the folder was just cloned

      what to try:
      - read what the file would run with `warmline trust`, then confirm
      - give the file with `--config` if it is yours
    ");
    tells!(warmline.run(&["explain", "answr-lost"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `answr-lost` is no error code, and no reason
      hint: did you mean `answer-lost`?
    ");
    tells!(warmline.run(&["explain", "answer-lost", "--json"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"code","code":"answer-lost","meaning":"The request was sent, and no answer to it arrived.","party":"network","delivery":"unknown","causes":["the connection closed after the request was sent","the server, or a gateway before it, failed while it worked","the answer came, and could not be written to where the output goes"],"try":["check whether it was executed before calling again"]}
    "#);
    tells!(warmline.run(&["explain", "(P9)"]), @r"
    exit: 0
    ----- stdout -----
    P9
      how the era of a server is found out over HTTP: what it answers to `server/discover`

      answer: 400 with any other body
      so: legacy
    ");
    tells!(warmline.run(&["explain", "7503"]), @r"
    exit: 0
    ----- stdout -----
    7503, in a JSON-RPC error
      no answer came: the call may have been executed

      what to try:
      - see the word in `error.data.warmline.code`: `warmline explain WORD`
    ");
    for number in [
        "7501", "7502", "-32700", "-32600", "-32601", "-32602", "-32603", "-32002", "-32020",
        "-32022", "-32000",
    ] {
        let told = warmline.run(&["explain", number]);
        assert_eq!(told.exit, 0, "{told}");
        assert!(told.stdout.starts_with(number), "{told}");
    }
    assert_eq!(warmline.run(&["explain", "7504"]).exit, 2);
    let all = warmline.run(&["explain"]);
    assert_eq!(
        all.stdout.lines().count(),
        ::warmline::core::code::Code::ALL.len()
    );
}

#[test]
fn completions_exist_for_every_shell() {
    let warmline = Warmline::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let told = warmline.run(&["completions", shell]);
        assert!(
            told.exit == 0 && told.stdout.contains("demo-server"),
            "{shell}"
        );
    }
    tells!(warmline.run(&["completions", "bsh"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `<SHELL>` cannot be `bsh`
      hint: did you mean `bash`?
    ");
}

#[test]
fn colours_are_used_only_where_they_are_asked_for() {
    let plain = Warmline::new().run(&["explain", "bug"]);
    assert!(!plain.stdout.contains('\u{1b}'));
    let asked = Warmline::new().run(&["explain", "bug", "--color", "always"]);
    assert!(asked.stdout.contains('\u{1b}'));
    let refused = Warmline::new()
        .with("NO_COLOR", "1")
        .run(&["explain", "bug"]);
    assert!(!refused.stdout.contains('\u{1b}'));
    let server = warmline_testkit::LedgerServer::start(Personality::legacy()).unwrap();
    let told = Warmline::new().run(&["doctor", &server.url(), "--color", "never"]);
    assert!(!told.everything().contains('\u{1b}'));
}

#[test]
fn what_is_typed_wrong_is_named_as_what_it_is() {
    #[rustfmt::skip]
    let table: [(&[&str], &str, &str); 15] = [
        (&["call", "x", "y", "--rn", "z"],        "`--rn` is not an option here",           "`warmline call --help`"),
        (&["token", "nw", "x"],                   "`nw` is no command",                     "`warmline token --help`"),
        (&["remove", "x"],                        "`remove` is no command",                 "`warmline --help`"),
        (&["call", "echo", "message=hi", "--"],   "no command stands behind `--`",          ""),
        (&["--quiet"],                            "no command is named",                    "`warmline --help` shows what can be typed"),
        (&["explain", "x", "extra"],              "`extra` is one word too many",           ""),
        (&["tools", "x", "--timeout", "-5s"],     "cannot be `-5s`",                        "write a number above 0 and a unit"),
        (&["tools", "x", "--timeout", "0s"],      "cannot be `0s`",                         "write a number above 0 and a unit"),
        (&["completions", "tcsh"],                "cannot be `tcsh`",                       "it is one of `bash`"),
        (&["completions", "zhs"],                 "cannot be `zhs`",                        "did you mean `zsh`?"),
        (&["demo-server", "--http", "foo"],       "cannot be `foo`",                        "a port is a number from 0 to 65535"),
        (&["demo-server", "--", "--fault", r#"{"tool":"pay","fault":{"delay":5}}"#], "a --fault is not a rule of the demo server", "write for instance --fault"),
        (&["demo-server", "--", "--fault", "{"],  "EOF while parsing an object",            "write for instance --fault"),
        (&["tools", "://x"],                      "it does not begin with `https://` or `http://`", ""),
        (&["call", "http://127.0.0.1:1/", "x", "a=@."], "the file of `a` cannot be read",   ""),
    ];
    let warmline = Warmline::new();
    for (words, what, hint) in table {
        let told = warmline.run(words);
        assert_eq!(told.exit, 2, "{words:?} {told}");
        assert!(
            told.stderr.contains(what) && told.stderr.contains(hint),
            "{words:?} {told}"
        );
        for leak in [
            "begins with `@`",
            "invalid digit",
            "Fault::",
            "without a base",
        ] {
            assert!(!told.stderr.contains(leak), "{words:?} {told}");
        }
    }
    let told = warmline.run(&["demo-server", "--", "--help"]);
    assert!(
        told.exit == 0 && told.stdout.contains("--personality NAME"),
        "{told}"
    );
}

#[test]
fn an_exit_code_that_depends_is_not_told_as_one_number() {
    let warmline = Warmline::new();
    for code in ["deadline", "cancelled", "bug"] {
        let told = warmline.run(&["explain", code]);
        assert!(
            told.stdout
                .contains("exit code: 3 if it was not sent, 4 if it may have been executed"),
            "{told}"
        );
    }
}
