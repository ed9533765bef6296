//! Configuration files and trust.

use warmline_testkit::LedgerServer;
use warmline_testkit::personality::Personality;

use crate::tells;
use crate::warmline::{BINARY, Warmline};

#[test]
fn a_name_is_looked_up_in_the_users_file() {
    let warmline = Warmline::new();
    let text =
        format!("[servers.demo]\ncommand = [{BINARY:?}, 'demo-server', '--stdio']\nspares = 1\n");
    warmline.write_user("warmline.toml", &text);
    let told = warmline.run(&["call", "demo", "pay", "amount=2"]);
    assert_eq!(
        (told.exit, told.stdout.contains(r#""paid":2"#)),
        (0, true),
        "{told}"
    );
    tells!(warmline.run(&["call", "dmo", "pay"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `dmo`
      hint: did you mean `demo`?
    ");
    tells!(warmline.run(&["call", "zzz", "pay"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `zzz`
      hint: one server is configured: `demo`
    ");
    tells!(warmline.run(&["call", "demo"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: no tool is named after `demo`
      hint: `warmline tools demo` lists the tools of `demo`
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
        let told = warmline.run(&["call", name, "pay", "amount=1", "--config", file]);
        assert_eq!(told.exit, 0, "{told}");
    }
    tells!(warmline.run(&["call", "x", "y", "--config", "missing.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[config-unreadable]: the configuration file `missing.toml` cannot be read
      why: no such file or directory
      hint: check the path and who may read it
    ");
}

#[test]
fn a_wrong_file_is_shown_where_it_is_wrong() {
    let warmline = Warmline::new();
    warmline.write(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/mcp'\nmax_perkey = 10\n",
    );
    tells!(warmline.run(&["call", "a", "x"]), @r"
    exit: 2
    ----- stderr -----
    error[config-unknown-key]: `max_perkey` is not a setting of a server
      where: [WORK]/warmline.toml:3:1
        |
      3 | max_perkey = …
        | ^^^^^^^^^^ did you mean `max_per_key`?
    ");
    tells!(warmline.run(&["call", "a", "x", "--json"]), @r#"
    exit: 2
    ----- stdout -----
    {"kind":"error","code":"config-unknown-key","what":"`max_perkey` is not a setting of a server","where":"[WORK]/warmline.toml:3:1","hint":"did you mean `max_per_key`?","exit":2}
    "#);
    warmline.write(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/mcp'\nera = 'legcy'\n",
    );
    tells!(warmline.run(&["call", "a", "x"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `era` cannot be `legcy`
      where: [WORK]/warmline.toml:3:7
        |
      3 | era = 'legcy'
        |       ^^^^^^^ did you mean `legacy`?
    ");
    warmline.write("warmline.toml", "[servers.a]\ncommand = 'npx -y canary'\n");
    tells!(warmline.run(&["call", "a", "x"]), @r#"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `command` is one text, and no shell will split it
      where: [WORK]/warmline.toml:2:11
      hint: write a list: `command = ["npx", "…", "…"]`
    "#);
    warmline.write("warmline.toml", "[servers.a\n");
    tells!(warmline.run(&["call", "a", "x"]), @r"
    exit: 2
    ----- stderr -----
    error[config-unreadable]: warmline.toml is not TOML
      where: [WORK]/warmline.toml:1:11
      why: unclosed table, expected `]`
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
    tells!(warmline.run(&["call", "web", "pay", "amount=1"]), @r"
    exit: 2
    ----- stderr -----
    error[config-untrusted]: `.mcp.json` of this folder is not trusted yet
      where: [WORK]/.mcp.json
      why: a configuration file can start programs, and this one lies in the working folder
      hint: look at what it does and accept it: `warmline trust`
    ");
    tells!(warmline.run(&["tools", "prog"]), @r"
    exit: 2
    ----- stderr -----
    error[config-untrusted]: `.mcp.json` of this folder is not trusted yet
      where: [WORK]/.mcp.json
      why: a configuration file can start programs, and this one lies in the working folder
      hint: look at what it does and accept it: `warmline trust`
    ");
    assert_eq!(server.counts().connections, 0);
    assert!(!warmline.work().join("ran").exists());

    tells!(warmline.run(&["trust"]), @r"
    exit: 2
    ----- stderr -----
    [WORK]/.mcp.json declares 2 servers:
      web
        reaches    http://127.0.0.1:[PORT]/mcp
        reads      TOKEN
        headers    X-Key
      prog
        reaches    touch ran
        sets       SECRET
    error[config-untrusted]: there is no terminal to ask on
      where: [WORK]/.mcp.json
      hint: look at the file, then accept it with `warmline trust --yes`
    ");
    let told = warmline.run(&["trust", "--yes"]);
    assert!(!told.everything().contains("canary"), "{told}");
    tells!(told, @r"
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
    let told = warmline.run(&["call", "web", "pay", "amount=1"]);
    assert_eq!(told.exit, 0, "{told}");
    tells!(warmline.run(&["trust", "--yes", "--json"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"trust","file":"[WORK]/.mcp.json","answer":"already","sha256":"[DIGEST]"}
    "#);

    warmline.write(
        ".mcp.json",
        r#"{"mcpServers": {"web": {"url": "http://127.0.0.1:1/mcp"}}}"#,
    );
    tells!(warmline.run(&["call", "web", "pay", "amount=1"]), @r"
    exit: 2
    ----- stderr -----
    error[config-untrusted]: `.mcp.json` of this folder changed since it was trusted
      where: [WORK]/.mcp.json
      why: a configuration file can start programs, and this one lies in the working folder
      hint: look at what it does and accept it: `warmline trust`
    ");
}

#[test]
fn trust_says_when_there_is_nothing_to_trust() {
    tells!(Warmline::new().run(&["trust"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: there is nothing to trust in this folder
      hint: `warmline.toml` and `.mcp.json` are looked for; or name a file
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
    let told = warmline.run(&["call", "web", "pay", "amount=1"]);
    assert_eq!(
        (told.exit, server.ledger().executions("pay")),
        (0, 1),
        "{told}"
    );
    assert!(told.stderr.contains("is also declared in"), "{told}");
    assert!(!warmline.work().join("ran").exists());
}

/// A177, S17: a token goes to nobody who did not name it.
#[test]
fn a_token_without_a_server_goes_to_the_one_that_was_typed_and_to_no_other() {
    let server = LedgerServer::start(Personality::legacy().token("general-token")).unwrap();
    let warmline = Warmline::new().with("MCP_AUTH_TOKEN", "general-token");
    let told = warmline.run(&["call", &server.url(), "pay", "amount=1"]);
    assert_eq!(told.exit, 0, "{told}");
    warmline.write_user(
        "warmline.toml",
        &format!(
            "[servers.a]\nurl = '{}'\n[servers.b]\nurl = '{}'\n",
            server.url(),
            server.url()
        ),
    );
    let told = warmline.run(&["call", "a", "pay", "amount=1"]);
    assert_eq!(told.exit, 3, "{told}");
    warmline.write_user(
        "warmline.toml",
        &format!("[servers.a]\nurl = '{}'\n", server.url()),
    );
    let told = warmline.run(&["call", "a", "pay", "amount=1"]);
    assert_eq!(told.exit, 0, "the only server: {told}");
    warmline.write_user(
        "warmline.toml",
        &format!(
            "[servers.a]\nurl = '{}'\nauth_env = 'MCP_AUTH_TOKEN'\n",
            server.url()
        ),
    );
    let told = warmline.run(&["call", "a", "pay", "amount=1"]);
    assert_eq!(told.exit, 0, "{told}");
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
    let told = warmline.run(&["doctor", "a", "--offline"]);
    assert!(
        told.stdout.contains("the URL comes from MCP_SERVER_URL"),
        "{told}"
    );
    let typed = warmline.run(&["call", "http://127.0.0.1:1/mcp", "pay", "amount=1"]);
    assert_eq!(
        (typed.exit, server.ledger().executions("pay")),
        (3, 1),
        "what was typed wins"
    );
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
    tells!(warmline.run(&["call", "web", "pay", "amount=1"]), @r"
    exit: 2
    ----- stderr -----
    error[config-untrusted]: `warmline.toml` of this folder is not trusted yet
      where: [WORK]/warmline.toml
      why: a configuration file can start programs, and this one lies in the working folder
      hint: look at what it does and accept it: `warmline trust`
    ");
    assert_eq!(server.ledger().executions("pay"), 1);
    assert_eq!(warmline.run(&["trust", "--yes"]).exit, 0);
    let told = warmline.run(&["doctor", "web"]);
    assert!(
        told.stdout.contains("`web` is also declared in ")
            && told.stdout.contains(".mcp.json, not used"),
        "{told}"
    );
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
    let told = warmline.run(&["trust"]);
    assert!(!told.everything().contains("canary"), "{told}");
    tells!(told, @r"
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
      hint: look at the file, then accept it with `warmline trust --yes`
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
    let told = warmline.run(&["trust"]);
    assert!(!told.everything().contains("canary"), "{told}");
    tells!(told, @r"
    exit: 2
    ----- stderr -----
    [WORK]/warmline.toml declares 1 server:
      ok
        reaches    http://127.0.0.1:[PORT]/mcp
    it decides for all servers, and for a gateway:
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
      …  is a value that looks like a secret: the file has it
    error[config-untrusted]: there is no terminal to ask on
      where: [WORK]/warmline.toml
      hint: look at the file, then accept it with `warmline trust --yes`
    ");
    tells!(warmline.run(&["trust", "--json", "--yes"]), @r#"
    exit: 0
    ----- stdout -----
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
    let told = warmline.run(&["doctor", "--offline", "--json"]);
    assert!(!told.everything().contains("canary"), "{told}");
    let told = warmline.run(&["check"]);
    assert!(!told.everything().contains("canary"), "{told}");
}

#[test]
fn a_server_that_cannot_be_used_says_why() {
    let warmline = Warmline::new();
    warmline.write_user(
        "mcp.json",
        r#"{"mcpServers": {"off": {"command": "x", "disabled": true}, "sock": {"type": "ws", "url": "ws://127.0.0.1:1"},
            "odd": {"command": "x", "env": {"Z": ["canary"]}}}}"#,
    );
    tells!(warmline.run(&["tools", "off"]), @r#"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `off` is switched off by `"disabled": true`
      where: [HOME]/.config/warmline/mcp.json:1:24
      hint: take `disabled` out, or set it to `false`
    "#);
    tells!(warmline.run(&["tools", "sock"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `sock` is of the kind `ws`, which is not an MCP server's
      where: [HOME]/.config/warmline/mcp.json:1:68
      hint: known kinds are `http`, `stdio`, `sse`, `streamable-http`
    ");
    tells!(warmline.run(&["tools", "odd"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `env.Z` of `odd` is a list, not a text
      where: [HOME]/.config/warmline/mcp.json:2:20
    ");
    warmline.write("empty.toml", "");
    tells!(warmline.run(&["tools", "x", "--config", "empty.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[server-unknown]: no server is called `x`
      hint: empty.toml declares no server
    ");
    warmline.write(
        "c.txt",
        r#"{"mcpServers": {"off": {"command": "x", "disabled": true}}}"#,
    );
    let told = warmline.run(&["tools", "off", "--config", "c.txt"]);
    assert!(told.stderr.contains("is switched off"), "{told}");
    warmline.write(
        "warmline.toml",
        "[servers.a]\nurl = 'http://127.0.0.1:1/${TOK}'\n",
    );
    tells!(warmline.run(&["tools", "a"]), @r#"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: warmline.toml does not fill in `${TOK}`
      where: [WORK]/warmline.toml:2:7
      hint: use `credential = { env = "TOK" }`, or `url_env`
    "#);
}
