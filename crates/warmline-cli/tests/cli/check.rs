//! `warmline check`: what is wrong with a file, and that nothing in it is used.

use crate::tells;
use crate::warmline::Warmline;

#[test]
fn check_names_the_place_and_the_right_word_and_executes_nothing() {
    let warmline = Warmline::new();
    tells!(warmline.run(&["check"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: there is no configuration file to look at
      hint: `warmline init` writes one; or name a file
    ");
    warmline.write_user("warmline.toml", "[gateway]\nlisten = '0.0.0.0:8484'\n");
    tells!(warmline.run(&["check"]), @r#"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `0.0.0.0:8484` can be reached from elsewhere, and `gateway.auth` is `local`
      where: [HOME]/.config/warmline/warmline.toml:2:1
      hint: make tokens with `warmline token new NAME` and decide `gateway.auth = "tokens"`, or listen on 127.0.0.1
    "#);
    let file = warmline.write(
        "warmline.toml",
        "[gateway]\nlissen = '127.0.0.1:8484'\n[servers.a]\ncommand = ['touch', 'executed']\n",
    );
    tells!(warmline.run(&["check", "warmline.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[config-unknown-key]: `lissen` is not a setting of `gateway`
      where: warmline.toml:2:1
        |
      2 | lissen = …
        | ^^^^^^ did you mean `listen`?
    ");
    std::fs::write(&file, "[gateway]\nauth = 'non'\n").unwrap();
    tells!(warmline.run(&["check", "warmline.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `gateway.auth` cannot be `non`
      where: warmline.toml:2:8
        |
      2 | auth = 'non'
        |        ^^^^^ did you mean `none`?
    ");
    std::fs::write(&file, "[gateway]\nrun_from = ['thread']\n").unwrap();
    tells!(warmline.run(&["check", "warmline.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `thread` is no place where a client names a run
      where: warmline.toml:2:1
      hint: write `_meta:KEY` or `header:NAME`
    ");
    std::fs::write(&file, "[gateway]\ntls_key = 'key.pem'\n").unwrap();
    tells!(warmline.run(&["check", "warmline.toml"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: `gateway.tls_key` is decided, and `gateway.tls_certificate` is not
      where: warmline.toml:2:1
      hint: name both files, or none
    ");
    std::fs::write(&file, "[servers.a]\ncommand = ['touch', 'executed']\n").unwrap();
    tells!(warmline.run(&["check", "warmline.toml", "--json"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"check","file":"warmline.toml","servers":1,"trusted":true}
    "#);
    let again = warmline.run(&["check", "--config", "warmline.toml"]);
    assert_eq!((again.exit, again.stderr.as_str()), (0, ""), "{again}");
    assert!(!warmline.work().join("executed").exists());
}

/// What a file of another program wants filled in has to be there: `serve` would not start.
#[test]
fn check_names_a_variable_that_is_not_there() {
    let declared = r#"{"mcpServers": {"a": {"url": "https://example.com/mcp",
        "headers": {"Authorization": "Bearer ${NO_SUCH_TOKEN}"}}}}"#;
    let warmline = Warmline::new();
    warmline.write("mcp.json", declared);
    tells!(warmline.run(&["check", "mcp.json"]), @r"
    exit: 2
    ----- stderr -----
    error[config-bad-value]: a variable of `a` cannot be filled in
      where: mcp.json:1:22
      why: `NO_SUCH_TOKEN` is not set
    ");
    let warmline = Warmline::new().with("NO_SUCH_TOKEN", "secret-of-a-test");
    warmline.write("mcp.json", declared);
    let told = warmline.run(&["check", "mcp.json"]);
    assert_eq!(told.exit, 0, "{told}");
    assert!(!told.everything().contains("secret-of-a-test"), "{told}");
}

/// Keys of other programs are theirs; one that is nearly ours is told, and no error.
#[test]
fn check_tells_of_keys_that_are_probably_misspelt() {
    let warmline = Warmline::new();
    let declared = r#"{"mcpServers": {"a": {"command": "x", "agrs": ["y"], "timeout": 3, "alwaysAllow": []}}}"#;
    warmline.write("mcp.json", declared);
    tells!(warmline.run(&["check", "mcp.json"]), @r"
    exit: 0
    ----- stdout -----
    ok  mcp.json · 1 server
    ----- stderr -----
    note: `agrs` of `a` in mcp.json says nothing here: did you mean `args`?
    ");
}
