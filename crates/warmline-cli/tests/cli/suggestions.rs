//! What somebody typed that was nearly right, and what they are told to type instead.

use crate::prelude::*;

/// A request that a server turns away is told as that: no tool was called.
#[test]
fn a_method_that_the_server_does_not_know_is_told_with_what_may_be_meant() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline request tools/lst -- [DEMO] --era legacy
    2> error[request-refused]: `warmline` has no method `tools/lst`
    2>   why: Method not found: tools/lst
    2>   delivery: answered
    2>   hint: did you mean `tools/list`?
    exit: 1
    $ warmline request ping -- [DEMO] --era modern
    2> error[request-refused]: `warmline` has no method `ping`
    2>   why: Method not found: ping
    2>   delivery: answered
    2>   hint: `ping` belongs to other versions than 2026-07-28: `--era legacy`
    exit: 1
    $ warmline request resources/read uri=note://no -- [DEMO] --era legacy
    2> error[request-refused]: `warmline` answered resources/read with error -32002
    2>   why: Resource not found ({"uri":"note://no"})
    2>   delivery: answered
    exit: 1
    "#);
}

/// Who forgets the server and begins with the tool is told so, and no value is repeated.
#[test]
fn a_server_that_was_forgotten_is_asked_for() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[servers.bank]\ncommand = ['sh']\n");
    shows!(warmline, @r"
    $ warmline call pay amount=3 to=canary
    2> error[server-unknown]: no server is called `pay`
    2>   hint: the server comes first: `warmline call SERVER pay amount=… to=…`
    exit: 2
    $ warmline request tools/list
    2> error[server-unknown]: no server is called `tools/list`
    2>   hint: the server comes first: `warmline request SERVER tools/list`
    exit: 2
    $ warmline call bnk amount=3
    2> error[server-unknown]: no server is called `bnk`
    2>   hint: did you mean `bank`?
    exit: 2
    $ warmline call bank amount=3
    2> error[usage-bad-argument]: no tool given after `bank`
    2>   hint: `warmline tools bank` lists the tools
    exit: 2
    $ warmline call localhost:[PORT] a=1
    2> error[server-unknown]: no server is called `localhost:[PORT]`
    2>   hint: a URL begins with `https://` or `http://`: `http://localhost:[PORT]`
    exit: 2
    $ warmline call to=canary
    2> error[usage-bad-argument]: expected a target, not `to=…`
    2>   hint: the target comes first: a URL or a name; or a command last, behind `--`
    exit: 2
    ");
}

/// Who forgets the `--` before a command is shown where it belongs.
#[test]
fn a_command_without_its_dashes_is_recognised() {
    let warmline = Warmline::new();
    warmline.write("srv.py", "");
    warmline.write_user(
        "warmline.toml",
        "[servers.sort]\nurl = 'http://127.0.0.1:1/mcp'\n",
    );
    shows!(warmline, @r#"
    $ warmline tools npx -y server
    2> error[usage-bad-argument]: unknown option `-y`
    2>   hint: put `--` before the command: `warmline tools -- npx …`
    exit: 2
    $ warmline run python3 ag.py
    2> error[server-unknown]: no server is called `python3`
    2>   hint: put `--` before the command: `warmline run -- python3 …`
    exit: 2
    $ warmline call python3 srv.py pay amount=3
    2> error[usage-bad-argument]: `pay` is not a value
    2>   hint: put `--` before the command: `warmline call TOOL -- python3 …`
    exit: 2
    $ warmline add x npx --json
    {"kind":"error","code":"usage-bad-argument","what":"not a server URL","why":"it does not begin with `https://` or `http://`","hint":"put `--` before the command: `warmline add x -- npx …`","exit":2}
    exit: 2
    "#);
    // What is the name of a server means the server.
    let output = warmline.run(&["tools", "sort", "-y"]);
    output.says("warmline tools --help");
}

/// A slip in the name of a server is told as one, and not as a path that leads nowhere.
#[test]
fn a_gateway_says_that_no_server_is_called_so() {
    let warmline = Warmline::new();
    let serving = Serving::start(&warmline, &["--auth", "none", "http://127.0.0.1:1/mcp"]);
    let asked = |path: &str| warmline.run(&["tools", &format!("{}{path}", serving.base())]);
    tells!(asked("/servers/nope/mcp"), @r#"
    exit: 3
    ----- stderr -----
    error[open-failed]: `127.0.0.1:[PORT]` refused `initialize`
      where: http://127.0.0.1:[PORT]/servers/nope/mcp
      why: -32600 "Not Found: no server has this name; check the path"
      delivery: unsent (not executed, safe to call again)
      hint: read the server's message, and its log
    "#);
    let astray = asked("/nope/mcp");
    astray.says("nothing at this path");
    serving.stop(&warmline);
}

/// What a Warmline says of a server behind it was understood: it is the headline, with its code,
/// and while openings pause it says what the last one failed of.
#[test]
fn what_a_gateway_says_of_a_server_is_the_headline() {
    let warmline = Warmline::new();
    warmline.write_user(
        "warmline.toml",
        "[servers.gone]\ncommand = ['no-such-program-4f1d']\n[servers.locked]\nurl = 'http://127.0.0.1:1/mcp'\n\
         credential = { env = 'NO_SUCH_TOKEN' }\n",
    );
    let serving = Serving::start(&warmline, &["--auth", "none"]);
    let base = serving.base();
    let asked = |name: &str| warmline.run(&["call", &format!("{base}/servers/{name}/mcp"), "x"]);
    tells!(asked("gone"), @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` says: `gone` cannot be reached
      where: http://127.0.0.1:[PORT]/servers/gone/mcp
      why: HTTP 502, 7501
      delivery: unsent (not executed, safe to call again)
      hint: tell the operator of the gateway: its log says why, and so does `warmline doctor NAME`
    ");
    tells!(asked("locked"), @r"
    exit: 3
    ----- stderr -----
    error[credential-unavailable]: `127.0.0.1:[PORT]` says: there is no credential for `locked`
      where: http://127.0.0.1:[PORT]/servers/locked/mcp
      why: HTTP 502, 7501
      delivery: unsent (not executed, safe to call again)
      hint: tell the operator of the gateway to look at `credential` of this server
    ");
    let legacy = format!("{base}/servers/gone/mcp");
    shows!(warmline, "[LEGACY]" = legacy, @r#"
    $ warmline call [LEGACY] x --era legacy
    2> error[cannot-reach]: `127.0.0.1:[PORT]` says: `gone` cannot be reached
    2>   where: http://127.0.0.1:[PORT]/servers/gone/mcp
    2>   why: 7501 "`gone` cannot be reached; not executed, safe to call again"
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: tell the operator of the gateway: its log says why, and so does `warmline doctor NAME`
    exit: 3
    "#);
    until("openings pause", || {
        asked("gone").stderr.contains("breaker-open")
    });
    let paused = asked("gone");
    let what = "its last openings failed, or did not last (program-missing)";
    paused.says(what).exits(3);
    serving.stop(&warmline);
}

/// Requests with the token of this machine see the cause of an error, without the log.
#[test]
fn our_own_user_is_told_the_cause_also_over_the_network() {
    let warmline = Warmline::new();
    warmline.write_user(
        "warmline.toml",
        "[servers.gone]\ncommand = ['no-such-program-4f1d']\n",
    );
    let serving = Serving::start(&warmline, &[]);
    let place = format!("{}/servers/gone/mcp", serving.base());
    let header = format!("Authorization: Bearer {}", local_token(&warmline.state()));
    shows!(warmline, "[PLACE]" = place, "[HEADER]" = header, @r"
    $ warmline call [PLACE] x --header [HEADER]
    2> error[cannot-reach]: `127.0.0.1:[PORT]` says: the program of `gone` was not found: `no-such-program-4f1d`
    2>   where: http://127.0.0.1:[PORT]/servers/gone/mcp
    2>   why: HTTP 502, 7501
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: install it, or give its full path as `command`
    exit: 3
    ");
    serving.stop(&warmline);
}

/// A folder that is not there is a slip, and is not made.
#[test]
fn add_makes_no_folder_but_the_one_of_the_user() {
    let warmline = Warmline::new();
    let place = warmline.work().join("typo/dir/x.toml");
    let words = [
        "add",
        "a",
        "http://127.0.0.1:1/mcp",
        "--config",
        place.to_str().unwrap(),
    ];
    tells!(warmline.run(&words), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: the folder `[WORK]/typo/dir` does not exist
      hint: check the path, or create the folder first
    ");
    assert!(!warmline.work().join("typo").exists());
    assert_eq!(
        warmline.run(&words[..3]).exit,
        0,
        "that of the user is made"
    );
}

/// A gateway that wants a token is one of ours: what prints and makes tokens is named.
#[test]
fn a_gateway_that_wants_a_token_is_told_with_where_tokens_come_from() {
    let warmline = Warmline::new();
    let serving = Serving::start(&warmline, &["http://127.0.0.1:1/mcp"]);
    let output = warmline.run(&["tools", &format!("{}/mcp", serving.base())]);
    for said in [
        "`warmline url NAME` prints",
        "`warmline token new NAME` makes",
        "`MCP_AUTH_TOKEN`",
    ] {
        output.says(said);
    }
    serving.stop(&warmline);
}
