//! What is said about the command line itself.

use crate::prelude::*;

#[test]
fn help_fits_on_one_screen_and_has_examples() {
    let output = Warmline::new().run(&["--help"]);
    assert!(output.stdout.lines().count() <= 40, "{}", output.stdout);
    assert!(
        output.stdout.lines().all(|line| line.chars().count() <= 96),
        "{}",
        output.stdout
    );
    tells!(output, @r"
    exit: 0
    ----- stdout -----
    Call any MCP server over HTTP or stdio, and learn whether each call ran.

    Usage: warmline COMMAND [TARGET] …

      call         Call a tool and print its answer
      request      Send any MCP request and print its result
      tools        List the tools of a server, or show one of them
      doctor       Diagnose a server, or the configuration
      serve        Run a gateway for your agents that keeps sessions with MCP servers open
      stdio        Serve your servers over stdio, for desktop clients that start a program
      run          Start a program whose calls share sessions until it ends
      up           Start a background gateway that holds sessions between commands
      down         Stop the background gateway
      ps           Show what the background gateway holds, and runs that commands left
      end          End a run: close its sessions
      url          Print URL, token or a client snippet for a server of the gateway
      token        Create, list and revoke tokens for callers of the gateway
      check        Check configuration files without using them
      init         Write a first configuration file, with the servers of desktop clients
      add          Add a server to a configuration file
      explain      Explain an error code
      trust        Review a configuration file of this folder and trust it
      demo         See what Warmline is for, in a few seconds
      demo-server  Run the server of the demo, to try things with
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)


    A target is a URL, a name from warmline.toml or an mcpServers file, or a command behind `--`:
      warmline tools https://example.com/mcp
      warmline call github list_issues owner=acme repo=lamp
      warmline call echo message=hi -- npx -y some-server
      warmline doctor -- npx -y some-server
      warmline demo

    With every command: --json, --color WHEN, -q/--quiet, -v/--verbose.
    Exit: 0 success · 1 error of the tool · 2 usage or configuration · 3 not executed, safe to call
    again · 4 may have been executed. `warmline help COMMAND` has the details.
    ");
}

#[test]
fn every_command_has_help_with_examples() {
    let warmline = Warmline::new();
    let commands = "call request tools doctor serve stdio run up down ps end init add url token check \
                    explain trust demo-server completions";
    for command in commands.split_whitespace() {
        warmline
            .run(&["help", command])
            .exits(0)
            .prints("Examples:");
    }
}

#[test]
fn nothing_typed_shows_the_help_and_fails() {
    let output = Warmline::new().run(&[""; 0]);
    assert_eq!((output.exit, output.stdout.as_str()), (2, ""));
    assert!(output.stderr.contains("Usage: warmline COMMAND"));
}

#[test]
fn a_slip_of_the_hand_gets_the_nearest_right_word() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline cal
    2> error[usage-bad-argument]: unknown command `cal`
    2>   hint: did you mean `call`?
    exit: 2
    $ warmline call --jsno
    2> error[usage-bad-argument]: unknown option `--jsno`
    2>   hint: did you mean `--json`?
    exit: 2
    $ warmline call x y --era legcy
    2> error[usage-bad-argument]: `--era <ERA>` cannot be `legcy`
    2>   hint: did you mean `legacy`?
    exit: 2
    $ warmline call x y --timeout 30
    2> error[usage-bad-argument]: `--timeout <TIME>` cannot be `30`
    2>   hint: write a number above 0 and a unit: 500ms, 30s, 2min, 1h
    exit: 2
    $ warmline call x y --timeout
    2> error[usage-bad-argument]: `--timeout <TIME>` needs a value
    2>   hint: see `warmline --help`
    exit: 2
    $ warmline tools --json --nonsense
    {"kind":"error","code":"usage-bad-argument","what":"unknown option `--nonsense`","hint":"see `warmline tools --help`","exit":2}
    exit: 2
    "#);
}

#[test]
fn a_target_that_cannot_be_meant_is_named() {
    let warmline = Warmline::new();
    shows!(warmline, @r"
    $ warmline call
    2> error[usage-bad-argument]: no target and no tool given
    2>   hint: see `warmline help call`
    exit: 2
    $ warmline call http://127.0.0.1:[PORT]/mcp
    2> error[usage-bad-argument]: no tool given after the URL
    2>   hint: `warmline tools URL` lists the tools
    exit: 2
    $ warmline call a=1
    2> error[usage-bad-argument]: expected a target, not `a=…`
    2>   hint: the target comes first: a URL or a name; or a command last, behind `--`
    exit: 2
    $ warmline tools
    2> error[usage-bad-argument]: no target given
    2>   hint: give a URL, a name, or a command behind `--`
    exit: 2
    $ warmline tools a b
    2> error[server-unknown]: no server is called `a`
    2>   hint: no configuration was found; give a URL, or a command behind `--`, or add one: `warmline add NAME URL`
    exit: 2
    $ warmline tools ftp://example.com/
    2> error[usage-bad-argument]: `ftp://example.com/` is not the URL of a server
    2>   why: `ftp` is not a scheme of MCP; `http` and `https` are
    exit: 2
    $ warmline tools localhost:[PORT]/mcp
    2> error[server-unknown]: no server is called `localhost:[PORT]/mcp`
    2>   hint: a URL begins with `https://` or `http://`: `http://localhost:[PORT]/mcp`
    exit: 2
    $ warmline tools example.com
    2> error[server-unknown]: no server is called `example.com`
    2>   hint: a URL begins with `https://` or `http://`: `http://example.com`
    exit: 2
    $ warmline tools 'npx -y thing'
    2> error[server-unknown]: no server is called `npx -y thing`
    2>   hint: put a command last, behind `--`, without quotes
    exit: 2
    $ warmline tools http://127.0.0.1:[PORT]/mcp -- npx
    2> error[usage-bad-argument]: there are two targets: a URL and a command behind `--`
    2>   hint: remove one of them
    exit: 2
    $ warmline tools --header 'A: b' -- npx
    2> error[usage-bad-argument]: `--header` is for a URL, and `npx` is a program
    2>   hint: a program gets its settings by --env NAME=VALUE or --env-pass NAME
    exit: 2
    $ warmline tools http://127.0.0.1:[PORT]/mcp --env A=b
    2> error[usage-bad-argument]: `--env` is for a program, and `127.0.0.1:[PORT]` is a URL
    exit: 2
    $ warmline tools http://127.0.0.1:[PORT]/mcp --header nonsense
    2> error[usage-bad-argument]: a --header has no `:`
    2>   hint: write --header 'Name: value'
    exit: 2
    $ warmline tools http://127.0.0.1:[PORT]/mcp --header-env A=NOT_SET
    2> error[usage-bad-argument]: `A` takes its value from `NOT_SET`, which is not set
    2>   hint: set `NOT_SET` in the environment of this command
    exit: 2
    ");
}

/// Lines of a log have a `reason` more often than a code.
#[test]
fn explain_knows_the_reasons_of_a_log() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline explain child-exit
    child-exit
      The process of the server ended.

      a reason of: a failed opening or call
      its code is answer-lost, or `open-failed` while a session opens: `warmline explain answer-lost`
    child-exit
      The child ended.

      a reason of: `session gone`: what showed it
      its code is session-lost: `warmline explain session-lost`
    $ warmline explain unknown-token --json
    {"kind":"reason","reason":"unknown-token","of":"`request refused`: a gateway rejected a request","meaning":"Its token is unknown, revoked or expired."}
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
        warmline.run(&["explain", word]).exits(0).prints(said);
    }
}

#[test]
fn explain_prints_the_page_of_a_code() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline explain answer-lost
    answer-lost
      The request was sent, and no answer to it arrived.

      responsible: network
      usual delivery: unknown (may have been executed, check before calling again)
      usual exit code: 4

      usual causes:
      - the connection closed after the request was sent
      - the server, or a gateway in front of it, failed while it worked
      - the answer came, and could not be written to where the output goes

      what to try:
      - check whether it was executed before calling again
    $ warmline explain error[config-untrusted]:
    config-untrusted
      A configuration file was found in the working folder, and it is not trusted yet.

      responsible: you
      exit code: 2

      usual causes:
      - the file is new, or changed since it was trusted
      - the folder was just cloned

      what to try:
      - read what the file would run with `warmline trust`, then confirm
      - give the file with `--config` if it is yours
    $ warmline explain answr-lost
    2> error[usage-bad-argument]: `answr-lost` is not an error code or a reason
    2>   hint: did you mean `answer-lost`?
    exit: 2
    $ warmline explain answer-lost --json
    {"kind":"code","code":"answer-lost","meaning":"The request was sent, and no answer to it arrived.","party":"network","delivery":"unknown","causes":["the connection closed after the request was sent","the server, or a gateway in front of it, failed while it worked","the answer came, and could not be written to where the output goes"],"try":["check whether it was executed before calling again"]}
    $ warmline explain '(P9)'
    P9
      how the era of a server over HTTP is detected, from its answer to `server/discover`

      answer: 400 with any other body
      so: legacy
    $ warmline explain 7503
    7503, in a JSON-RPC error
      no answer came: the call may have been executed

      what to try:
      - see the code in `error.data.warmline.code`: `warmline explain CODE`
    "#);
    for number in [
        "7501", "7502", "-32700", "-32600", "-32601", "-32602", "-32603", "-32002", "-32020",
        "-32022", "-32000",
    ] {
        let output = warmline.run(&["explain", number]);
        output.exits(0);
        assert!(output.stdout.starts_with(number), "{output}");
    }
    assert_eq!(warmline.run(&["explain", "7504"]).exit, 2);
    let all = warmline.run(&["explain"]);
    let lines = all.stdout.lines().count();
    assert_eq!(lines, warmline_core::error::code::Code::ALL.len());
}

#[test]
fn completions_exist_for_every_shell() {
    let warmline = Warmline::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = warmline.run(&["completions", shell]);
        output.exits(0).prints("demo-server");
    }
    shows!(warmline, @r"
    $ warmline completions bsh
    2> error[usage-bad-argument]: `<SHELL>` cannot be `bsh`
    2>   hint: did you mean `bash`?
    exit: 2
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
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let output = Warmline::new().run(&["doctor", &server.url(), "--color", "never"]);
    assert!(!output.everything().contains('\u{1b}'));
}

#[test]
fn what_is_typed_wrong_is_named_as_what_it_is() {
    #[rustfmt::skip]
    let table: [(&[&str], &str, &str); 15] = [
        (&["call", "x", "y", "--rn", "z"],        "unknown option `--rn`",           "`warmline call --help`"),
        (&["token", "nw", "x"],                   "unknown command `nw`",                     "`warmline token --help`"),
        (&["remove", "x"],                        "unknown command `remove`",                 "`warmline --help`"),
        (&["call", "echo", "message=hi", "--"],   "no command behind `--`",          ""),
        (&["--quiet"],                            "no command given",                    "see `warmline --help`"),
        (&["explain", "x", "extra"],              "unexpected argument `extra`",           ""),
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
        let output = warmline.run(words);
        assert_eq!(output.exit, 2, "{words:?} {output}");
        let holds = output.stderr.contains(what) && output.stderr.contains(hint);
        assert!(holds, "{words:?} {output}");
        for leak in [
            "begins with `@`",
            "invalid digit",
            "Fault::",
            "without a base",
        ] {
            assert!(!output.stderr.contains(leak), "{words:?} {output}");
        }
    }
    let output = warmline.run(&["demo-server", "--", "--help"]);
    output.exits(0).prints("--personality NAME");
}

#[test]
fn an_exit_code_that_depends_is_not_told_as_one_number() {
    let warmline = Warmline::new();
    for code in ["deadline", "cancelled", "bug"] {
        let output = warmline.run(&["explain", code]);
        output.prints("exit code: 3 if it was not sent, 4 if it may have been executed");
    }
}
