//! What somebody typed that was nearly right, and what they are told to type instead.

use crate::serve::{Serving, local_token, until};
use crate::tells;
use crate::warmline::{Warmline, against_demo};

/// A request that a server turns away is told as that: no tool was called.
#[test]
fn a_method_that_the_server_does_not_know_is_told_with_what_may_be_meant() {
    let warmline = Warmline::new();
    let asked = |words: &[&str], era: &str| warmline.run(&against_demo(words, &["--era", era]));
    tells!(asked(&["request", "tools/lst"], "legacy"), @r"
    exit: 1
    ----- stderr -----
    error[request-refused]: `warmline` knows no method `tools/lst`
      why: Method not found: tools/lst
      delivery: answered
      hint: did you mean `tools/list`?
    ");
    tells!(asked(&["request", "ping"], "modern"), @r"
    exit: 1
    ----- stderr -----
    error[request-refused]: `warmline` knows no method `ping`
      why: Method not found: ping
      delivery: answered
      hint: `ping` belongs to other versions than 2026-07-28: `--era legacy`
    ");
    tells!(asked(&["request", "resources/read", "uri=note://no"], "legacy"), @r#"
    exit: 1
    ----- stderr -----
    error[request-refused]: `warmline` answered resources/read with error -32002
      why: Resource not found ({"uri":"note://no"})
      delivery: answered
    "#);
}

/// Who forgets the server and begins with the tool is told so, and no value is repeated.
#[test]
fn a_server_that_was_forgotten_is_asked_for() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[servers.bank]\ncommand = ['sh']\n");
    tells!(warmline.run(&["call", "pay", "amount=3", "to=canary"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `pay`
      hint: the server comes first: `warmline call SERVER pay amount=… to=…`
    ");
    tells!(warmline.run(&["request", "tools/list"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `tools/list`
      hint: the server comes first: `warmline request SERVER tools/list`
    ");
    tells!(warmline.run(&["call", "bnk", "amount=3"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `bnk`
      hint: did you mean `bank`?
    ");
    tells!(warmline.run(&["call", "bank", "amount=3"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: no tool is named after `bank`
      hint: `warmline tools bank` lists the tools of `bank`
    ");
    tells!(warmline.run(&["call", "localhost:8000", "a=1"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `localhost:[PORT]`
      hint: a URL begins with `https://` or `http://`: `http://localhost:[PORT]`
    ");
    tells!(warmline.run(&["call", "to=canary"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `to=…` stands where a target should
      hint: the target comes first: a URL or a name; or a command last, behind `--`
    ");
}

/// Who forgets the `--` before a command gets it put where it belongs, with their own words.
#[test]
fn a_command_without_its_dashes_is_recognised() {
    let warmline = Warmline::new();
    warmline.write("srv.py", "");
    warmline.write_user(
        "warmline.toml",
        "[servers.sort]\nurl = 'http://127.0.0.1:1/mcp'\n",
    );
    tells!(warmline.run(&["tools", "npx", "-y", "server"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `-y` is not an option here
      hint: a command stands behind `--`: `warmline tools -- npx -y server`
    ");
    tells!(warmline.run(&["run", "python3", "ag.py"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `python3`
      hint: a command stands behind `--`: `warmline run -- python3 ag.py`
    ");
    tells!(warmline.run(&["call", "python3", "srv.py", "pay", "amount=3"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `pay` is not a value
      hint: a command stands behind `--`: `warmline call pay amount=… -- python3 srv.py`
    ");
    tells!(warmline.run(&["add", "x", "npx", "--json"]), @r#"
    exit: 2
    ----- stdout -----
    {"kind":"error","code":"usage-bad-argument","what":"that is not the URL of a server","why":"it does not begin with `https://` or `http://`","hint":"a command stands behind `--`: `warmline add x … -- npx`","exit":2}
    "#);
    // What is the name of a server means the server.
    let told = warmline.run(&["tools", "sort", "-y"]);
    assert!(told.stderr.contains("warmline tools --help"), "{told}");
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
      why: -32600 "Not Found: no server is called so here; look at the name in the path"
      delivery: unsent (not executed, safe to call again)
      hint: read what the server said, and look into its log
    "#);
    let astray = asked("/nope/mcp");
    assert!(astray.stderr.contains("nothing at this path"), "{astray}");
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
      hint: tell whoever runs the gateway: its log says why, and so does `warmline doctor NAME`
    ");
    tells!(asked("locked"), @r"
    exit: 3
    ----- stderr -----
    error[credential-unavailable]: `127.0.0.1:[PORT]` says: there is no credential for `locked`
      where: http://127.0.0.1:[PORT]/servers/locked/mcp
      why: HTTP 502, 7501
      delivery: unsent (not executed, safe to call again)
      hint: tell whoever runs the gateway to look at `credential` of this server
    ");
    let legacy = format!("{base}/servers/gone/mcp");
    tells!(warmline.run(&["call", &legacy, "x", "--era", "legacy"]), @r#"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` says: `gone` cannot be reached
      where: http://127.0.0.1:[PORT]/servers/gone/mcp
      why: 7501 "`gone` cannot be reached; not executed, safe to call again"
      delivery: unsent (not executed, safe to call again)
      hint: tell whoever runs the gateway: its log says why, and so does `warmline doctor NAME`
    "#);
    until("openings pause", || {
        asked("gone").stderr.contains("breaker-open")
    });
    let paused = asked("gone");
    let what = "its last openings failed, or did not last (program-missing)";
    assert!(paused.stderr.contains(what), "{paused}");
    assert_eq!(paused.exit, 3, "{paused}");
    serving.stop(&warmline);
}

/// Whoever shows the token of this machine runs the gateway, and reads what is wrong without its log.
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
    tells!(warmline.run(&["call", &place, "x", "--header", &header]), @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` says: the program of `gone` was not found: `no-such-program-4f1d`
      where: http://127.0.0.1:[PORT]/servers/gone/mcp
      why: HTTP 502, 7501
      delivery: unsent (not executed, safe to call again)
      hint: install it, or give its full path as `command`
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
      hint: look at the path, or make the folder first
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
    let told = warmline.run(&["tools", &format!("{}/mcp", serving.base())]);
    for said in [
        "`warmline url NAME` prints",
        "`warmline token new NAME` makes",
        "`MCP_AUTH_TOKEN`",
    ] {
        assert!(told.stderr.contains(said), "{told}");
    }
    serving.stop(&warmline);
}
