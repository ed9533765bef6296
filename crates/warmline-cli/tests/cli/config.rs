//! Configuration files and trust.

use crate::prelude::*;

#[test]
fn a_name_is_looked_up_in_the_users_file() {
    let warmline = Warmline::new();
    let text =
        format!("[servers.demo]\ncommand = [{BINARY:?}, 'demo-server', '--stdio']\nspares = 1\n");
    warmline.write_user("warmline.toml", &text);
    let output = warmline.run(&["call", "demo", "pay", "amount=2"]);
    let stdout = (output.exit, output.stdout.contains(r#""paid":2"#));
    assert_eq!(stdout, (0, true), "{output}");
    shows!(warmline, @r"
    $ warmline call dmo pay
    2> error[server-unknown]: no server is called `dmo`
    2>   hint: did you mean `demo`?
    exit: 2
    $ warmline call zzz pay
    2> error[server-unknown]: no server is called `zzz`
    2>   hint: one server is configured: `demo`
    exit: 2
    $ warmline call demo
    2> error[usage-bad-argument]: no tool given after `demo`
    2>   hint: `warmline tools demo` lists the tools
    exit: 2
    ");
}

#[test]
fn a_file_that_is_given_is_trusted_and_alone() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let file = warmline.write(
        "other.json",
        &format!(
            r#"{{"mcpServers": {{"My Server": {{"type": "http", "url": "{}"}}}}}}"#,
            server.url()
        ),
    );
    let file = file.to_str().unwrap();
    for name in ["My Server", "my-server"] {
        let output = warmline.run(&["call", name, "pay", "amount=1", "--config", file]);
        output.exits(0);
    }
    shows!(warmline, @r"
    $ warmline call x y --config missing.toml
    2> error[config-unreadable]: the configuration file `missing.toml` cannot be read
    2>   why: no such file or directory
    2>   hint: check the path and who may read it
    exit: 2
    ");
}

#[test]
fn a_wrong_file_is_shown_where_it_is_wrong() {
    let warmline = Warmline::new();
    warmline.write(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/mcp'\nmax_perkey = 10\n",
    );
    shows!(warmline, @r#"
    $ warmline call a x
    2> error[config-unknown-key]: `max_perkey` is not a setting of a server
    2>   where: [WORK]/warmline.toml:3:1
    2>     |
    2>   3 | max_perkey = …
    2>     | ^^^^^^^^^^ did you mean `max_per_key`?
    exit: 2
    $ warmline call a x --json
    {"kind":"error","code":"config-unknown-key","what":"`max_perkey` is not a setting of a server","where":"[WORK]/warmline.toml:3:1","hint":"did you mean `max_per_key`?","exit":2}
    exit: 2
    "#);
    warmline.write(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/mcp'\nera = 'legcy'\n",
    );
    shows!(warmline, @r"
    $ warmline call a x
    2> error[config-bad-value]: `era` cannot be `legcy`
    2>   where: [WORK]/warmline.toml:3:7
    2>     |
    2>   3 | era = 'legcy'
    2>     |       ^^^^^^^ did you mean `legacy`?
    exit: 2
    ");
    warmline.write("warmline.toml", "[servers.a]\ncommand = 'npx -y canary'\n");
    shows!(warmline, @r#"
    $ warmline call a x
    2> error[config-bad-value]: `command` is one text, and no shell will split it
    2>   where: [WORK]/warmline.toml:2:11
    2>   hint: write a list: `command = ["npx", "…", "…"]`
    exit: 2
    "#);
    warmline.write("warmline.toml", "[servers.a\n");
    shows!(warmline, @r"
    $ warmline call a x
    2> error[config-unreadable]: warmline.toml is not TOML
    2>   where: [WORK]/warmline.toml:1:11
    2>   why: unclosed table, expected `]`
    exit: 2
    ");
}

#[test]
fn nothing_of_a_found_file_is_used_before_it_was_trusted() {
    let warmline = Warmline::new().with("TOKEN", "canary-token");
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    warmline.write(".mcp.json", &format!(
        r#"{{"mcpServers": {{"web": {{"url": "{}", "headers": {{"X-Key": "${{TOKEN}}"}}}}, "prog": {{"command": "touch", "args": ["ran"], "env": {{"SECRET": "canary-value"}}}}}}}}"#,
        server.url()
    ));
    shows!(warmline, @r"
    $ warmline call web pay amount=1
    2> error[config-untrusted]: `.mcp.json` of this folder is not trusted yet
    2>   where: [WORK]/.mcp.json
    2>   why: a configuration file can start programs, and this one lies in the working folder
    2>   hint: look at what it does and accept it: `warmline trust`
    exit: 2
    $ warmline tools prog
    2> error[config-untrusted]: `.mcp.json` of this folder is not trusted yet
    2>   where: [WORK]/.mcp.json
    2>   why: a configuration file can start programs, and this one lies in the working folder
    2>   hint: look at what it does and accept it: `warmline trust`
    exit: 2
    ");
    assert_eq!(server.counts().connections, 0);
    assert!(!warmline.work().join("ran").exists());

    shows!(warmline, @r"
    $ warmline trust
    2> [WORK]/.mcp.json declares 2 servers:
    2>   web
    2>     reaches    http://127.0.0.1:[PORT]/mcp
    2>     reads      TOKEN
    2>     headers    X-Key
    2>   prog
    2>     reaches    touch ran
    2>     sets       SECRET
    2> error[config-untrusted]: there is no terminal to ask on
    2>   where: [WORK]/.mcp.json
    2>   hint: review the file, then accept it with `warmline trust --yes`
    exit: 2
    ");
    let output = warmline.run(&["trust", "--yes"]);
    assert!(!output.everything().contains("canary"), "{output}");
    tells!(output, @r"
    exit: 0
    ----- stderr -----
    [WORK]/.mcp.json declares 2 servers:
      web
        reaches    http://127.0.0.1:[PORT]/mcp
        reads      TOKEN
        headers    X-Key
      prog
        reaches    touch ran
        sets       SECRET
    trusted [WORK]/.mcp.json
    ");
    warmline.run(&["call", "web", "pay", "amount=1"]).exits(0);
    shows!(warmline, @r#"
    $ warmline trust --yes --json
    {"kind":"trust","file":"[WORK]/.mcp.json","answer":"already","sha256":"[DIGEST]"}
    "#);

    warmline.write(
        ".mcp.json",
        r#"{"mcpServers": {"web": {"url": "http://127.0.0.1:1/mcp"}}}"#,
    );
    shows!(warmline, @r"
    $ warmline call web pay amount=1
    2> error[config-untrusted]: `.mcp.json` of this folder changed since it was trusted
    2>   where: [WORK]/.mcp.json
    2>   why: a configuration file can start programs, and this one lies in the working folder
    2>   hint: look at what it does and accept it: `warmline trust`
    exit: 2
    ");
}

#[test]
fn trust_says_when_there_is_nothing_to_trust() {
    tells!(Warmline::new().run(&["trust"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: there is nothing to trust in this folder
      hint: it has no `warmline.toml` and no `.mcp.json`; or name a file
    ");
    tells!(Warmline::new().run(&["trust", "missing.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[config-unreadable]: the configuration file `[WORK]/missing.toml` cannot be read
      why: no such file or directory
      hint: check the path and who may read it
    ");
}

#[test]
fn a_trusted_file_of_the_user_wins_over_a_stranger_in_the_folder() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    warmline.write_user(
        "warmline.toml",
        &format!("[servers.web]\nurl = '{}'\n", server.url()),
    );
    warmline.write(
        "warmline.toml",
        "[servers.web]\ncommand = ['touch', 'ran']\n",
    );
    let output = warmline.run(&["call", "web", "pay", "amount=1"]);
    output.exits(0);
    assert_eq!(server.ledger().executions("pay"), 1, "{output}");
    output.says("is also declared in");
    assert!(!warmline.work().join("ran").exists());
}

/// A177, S17: a token goes to nobody who did not name it.
#[test]
fn a_token_without_a_server_goes_to_the_one_that_was_typed_and_to_no_other() {
    let server = LedgerServer::start(Personality::legacy().token("general-token")).unwrap();
    let warmline = Warmline::new().with("MCP_AUTH_TOKEN", "general-token");
    let output = warmline.run(&["call", &server.url(), "pay", "amount=1"]);
    output.exits(0);
    warmline.write_user(
        "warmline.toml",
        &format!(
            "[servers.a]\nurl = '{}'\n[servers.b]\nurl = '{}'\n",
            server.url(),
            server.url()
        ),
    );
    warmline.run(&["call", "a", "pay", "amount=1"]).exits(3);
    warmline.write_user(
        "warmline.toml",
        &format!("[servers.a]\nurl = '{}'\n", server.url()),
    );
    let output = warmline.run(&["call", "a", "pay", "amount=1"]);
    assert_eq!(output.exit, 0, "the only server: {output}");
    warmline.write_user(
        "warmline.toml",
        &format!(
            "[servers.a]\nurl = '{}'\nauth_env = 'MCP_AUTH_TOKEN'\n",
            server.url()
        ),
    );
    warmline.run(&["call", "a", "pay", "amount=1"]).exits(0);
}

/// A176, S18: the URL of the one target is replaced.
#[test]
fn a_url_without_a_server_replaces_that_of_the_only_one() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new().with("MCP_SERVER_URL", &server.url());
    warmline.write_user(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/mcp'\n",
    );
    assert_eq!(warmline.run(&["call", "a", "pay", "amount=1"]).exit, 0);
    let output = warmline.run(&["doctor", "a", "--offline"]);
    output.prints("the URL comes from MCP_SERVER_URL");
    let typed = warmline.run(&["call", "http://127.0.0.1:1/mcp", "pay", "amount=1"]);
    typed.exits(3);
    assert_eq!(server.ledger().executions("pay"), 1, "what was typed wins");
}

#[test]
fn the_nearest_file_of_the_folder_is_meant_also_if_it_is_not_trusted() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    warmline.write(
        ".mcp.json",
        &format!(
            r#"{{"mcpServers": {{"web": {{"url": "{}"}}}}}}"#,
            server.url()
        ),
    );
    assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
    assert_eq!(warmline.run(&["call", "web", "pay", "amount=1"]).exit, 0);
    warmline.write(
        "warmline.toml",
        &format!("[servers.web]\nurl = '{}'\n", server.url()),
    );
    shows!(warmline, @r"
    $ warmline call web pay amount=1
    2> error[config-untrusted]: `warmline.toml` of this folder is not trusted yet
    2>   where: [WORK]/warmline.toml
    2>   why: a configuration file can start programs, and this one lies in the working folder
    2>   hint: look at what it does and accept it: `warmline trust`
    exit: 2
    ");
    assert_eq!(server.ledger().executions("pay"), 1);
    assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
    let output = warmline.run(&["doctor", "web"]);
    output
        .prints("`web` is also declared in ")
        .prints(".mcp.json, not used");
}

#[test]
fn what_is_shown_for_trust_cannot_be_forged() {
    let warmline = Warmline::new();
    warmline.write(
        ".mcp.json",
        r#"{"mcpServers": {
            "a": {"command": "sh", "args": ["-c", "touch ran\n  reads      NOTHING", "\u001b[2J", "two words"],
                  "env": {"PATH": "/tmp/evil", "LD_PRELOAD": "/tmp/x.so", "SECRET": "canary"}},
            "b\n  c": {"url": "https://example.com/${TOPSEC}/mcp"}}}"#,
    );
    let output = warmline.run(&["trust"]);
    assert!(!output.everything().contains("canary"), "{output}");
    tells!(output, @r"
    exit: 2
    ----- stderr -----
    [WORK]/.mcp.json declares 2 servers:
      a
        reaches    sh -c 'touch ran\n  reads      NOTHING' '\u{1b}[2J' 'two words'
        sets       LD_PRELOAD=/tmp/x.so PATH=/tmp/evil SECRET
      b\n  c
        reaches    https://example.com/${TOPSEC}/mcp
        reads      TOPSEC
    error[config-untrusted]: there is no terminal to ask on
      where: [WORK]/.mcp.json
      hint: review the file, then accept it with `warmline trust --yes`
    ");
}

/// What stands beside the servers counts as soon as the file is trusted: who may come in, where
/// others listen, which files are written.
#[test]
fn trust_shows_every_setting_beside_the_servers() {
    let warmline = Warmline::new();
    warmline.write(
        "warmline.toml",
        "[gateway]\nlisten = '0.0.0.0:7777'\nauth = 'proxy'\ntrusted_proxies = ['127.0.0.0/8', '10.0.0.0/8']\n\
         proxy_header = 'X-U'\n[gateway.jwt]\nissuer = 'https://evil/1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed'\naudiences = ['x']\n\
         keys_url = 'http://me:canary@127.0.0.1:1/keys?k=canary'\n[audit]\nfile = 'victim.txt'\n\
         [ops]\nlisten = '0.0.0.0:7778'\n[limits]\nprocesses = 7\n[servers.ok]\nurl = 'http://127.0.0.1:1/mcp'\n",
    );
    let output = warmline.run(&["trust"]);
    assert!(!output.everything().contains("canary"), "{output}");
    tells!(output, @r"
    exit: 2
    ----- stderr -----
    [WORK]/warmline.toml declares 1 server:
      ok
        reaches    http://127.0.0.1:[PORT]/mcp
    it sets for all servers, and for a gateway:
      limits.processes         7
      gateway.listen           0.0.0.0:7777
      gateway.auth             proxy
      gateway.trusted_proxies  127.0.0.0/8, 10.0.0.0/8
      gateway.proxy_header     X-U
      gateway.jwt.issuer       https://evil/1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed
      gateway.jwt.audiences    x
      gateway.jwt.keys_url     http://127.0.0.1:[PORT]/keys?…
      audit.file               [WORK]/victim.txt
      ops.listen               0.0.0.0:7778
      …  is a value that looks like a secret: see the file
    error[config-untrusted]: there is no terminal to ask on
      where: [WORK]/warmline.toml
      hint: review the file, then accept it with `warmline trust --yes`
    ");
    shows!(warmline, @r#"
    $ warmline trust --json --yes
    {"kind":"declaration","file":"[WORK]/warmline.toml","server":"ok","reaches":"http://127.0.0.1:[PORT]/mcp","runs":[],"sets":[],"reads":[],"headers":[]}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"limits.processes","value":"7"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.listen","value":"0.0.0.0:7777"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.auth","value":"proxy"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.trusted_proxies","value":"127.0.0.0/8, 10.0.0.0/8"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.proxy_header","value":"X-U"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.jwt.issuer","value":"https://evil/1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.jwt.audiences","value":"x"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"gateway.jwt.keys_url","value":"http://127.0.0.1:[PORT]/keys?…"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"audit.file","value":"[WORK]/victim.txt"}
    {"kind":"setting","file":"[WORK]/warmline.toml","key":"ops.listen","value":"0.0.0.0:7778"}
    {"kind":"trust","file":"[WORK]/warmline.toml","answer":"trusted","sha256":"[DIGEST]"}
    "#);
    let output = warmline.run(&["doctor", "--offline", "--json"]);
    assert!(!output.everything().contains("canary"), "{output}");
    let output = warmline.run(&["check"]);
    assert!(!output.everything().contains("canary"), "{output}");
}

#[test]
fn a_server_that_cannot_be_used_says_why() {
    let warmline = Warmline::new();
    warmline.write_user(
        "mcp.json",
        r#"{"mcpServers": {"off": {"command": "x", "disabled": true}, "sock": {"type": "ws", "url": "ws://127.0.0.1:1"},
            "odd": {"command": "x", "env": {"Z": ["canary"]}}}}"#,
    );
    shows!(warmline, @r#"
    $ warmline tools off
    2> error[config-bad-value]: `off` is switched off by `"disabled": true`
    2>   where: [HOME]/.config/warmline/mcp.json:1:24
    2>   hint: remove `disabled`, or set it to `false`
    exit: 2
    $ warmline tools sock
    2> error[config-bad-value]: `sock` is of the kind `ws`, which is not an MCP server's
    2>   where: [HOME]/.config/warmline/mcp.json:1:68
    2>   hint: known kinds are `http`, `stdio`, `sse`, `streamable-http`
    exit: 2
    $ warmline tools odd
    2> error[config-bad-value]: `env.Z` of `odd` is a list, not a text
    2>   where: [HOME]/.config/warmline/mcp.json:2:20
    exit: 2
    "#);
    warmline.write("empty.toml", "");
    shows!(warmline, @r"
    $ warmline tools x --config empty.toml
    2> error[server-unknown]: no server is called `x`
    2>   hint: empty.toml declares no server
    exit: 2
    ");
    warmline.write(
        "c.txt",
        r#"{"mcpServers": {"off": {"command": "x", "disabled": true}}}"#,
    );
    let output = warmline.run(&["tools", "off", "--config", "c.txt"]);
    output.says("is switched off");
    warmline.write(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/${TOK}'\n",
    );
    shows!(warmline, @r#"
    $ warmline tools a
    2> error[config-bad-value]: warmline.toml does not fill in `${TOK}`
    2>   where: [WORK]/warmline.toml:2:7
    2>   hint: use `credential = { env = "TOK" }`, or `url_env`
    exit: 2
    "#);
}
