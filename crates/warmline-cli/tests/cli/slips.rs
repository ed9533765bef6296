//! What somebody typed that was nearly right, and what they are told to type instead.

use crate::serve::Serving;
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
