//! Settings: which value counts, and where it came from.

use crate::prelude::*;

/// A111: the effective value of what somebody decided is shown with its origin.
#[test]
fn doctor_shows_every_decision_with_its_origin() {
    let warmline = Warmline::new()
        .with("MCP_SESSION_POOL_TTL", "120.0")
        .with("HEALTH_CHECK_INTERVAL", "15")
        .with("WARMLINE_LIMITS_PROCESSES", "8")
        .with("WARMLINE_SPARES", "3");
    warmline.write_user(
        "warmline.toml",
        "[servers.prog]\ncommand = ['sh']\nspares = 2\nwait = '5s'\n[runs]\nidle = '10min'\n",
    );
    let words = ["doctor", "prog", "--offline", "--era", "legacy"];
    tells!(warmline.run(&words), @r"
    exit: 0
    ----- stdout -----
    config       ok      [HOME]/.config/warmline/warmline.toml:1:10, no unknown keys
    trust        ok      not needed for a user file
    program      ok      sh → [BIN]/sh
    environment  ok      4 variables are not passed on
    would send   ok      the default variables (PATH, HOME, LANG …) · no secrets
    start        unseen  it was not started (--offline)

    settings
      spares                 3       WARMLINE_SPARES
      max_age                2min    MCP_SESSION_POOL_TTL
      wait                   5s      [HOME]/.config/warmline/warmline.toml:4
      check_after            15s     HEALTH_CHECK_INTERVAL
      health_check_interval  15s     HEALTH_CHECK_INTERVAL
      era[PAD]legacy  the command line
      limits.processes       8       WARMLINE_LIMITS_PROCESSES
      runs.idle              10min   [HOME]/.config/warmline/warmline.toml:6

    6 questions · 1 unseen
    no server was started or contacted: remove `--offline` to do so
    ");
    let output = warmline.run(&["doctor", "prog", "--offline", "--json"]);
    for line in [
        r#"{"kind":"setting","key":"spares","value":"3","origin":"environment","from":"WARMLINE_SPARES"}"#,
        r#"{"kind":"setting","key":"serial","value":"false","origin":"default"}"#,
    ] {
        assert!(output.stdout.contains(line), "{line} is missing: {output}");
    }
    let output = warmline.run(&["doctor", "prog", "--offline", "--verbose"]);
    let default = |line: &str| line.contains("serial") && line.ends_with("default");
    assert!(output.stdout.lines().any(default), "{output}");

    let all = warmline.run(&["doctor"]);
    all.prints("prog: wait").prints("limits.processes");
}

/// Where nothing is decided, gateways and runs of commands keep their records in the state folder;
/// `memory` is what programs have that embed the engine.
#[test]
fn doctor_shows_the_folder_that_records_are_kept_in() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[servers.prog]\ncommand = ['sh']\n");
    let folder = warmline.state().join("sessions").display().to_string();
    for words in [
        &["doctor", "--json"][..],
        &["doctor", "prog", "--offline", "--json"],
    ] {
        let output = warmline.run(words);
        let line = format!(
            r#"{{"kind":"setting","key":"store.path","value":"{folder}","origin":"default"}}"#
        );
        assert!(output.stdout.contains(&line), "{line} is missing: {output}");
    }
    let output = warmline
        .with("WARMLINE_STORE_PATH", "/elsewhere")
        .run(&["doctor", "--json"]);
    let line = r#""key":"store.path","value":"/elsewhere","origin":"environment""#;
    assert!(output.stdout.contains(line), "{line} is missing: {output}");
}

/// A111: rules about callers stand among the settings in words, and are not shown as none.
#[test]
fn doctor_shows_rules_about_callers() {
    let warmline = Warmline::new();
    let rules = "allow = [{ identity = 'alice' }, 'balance']\ndeny = [{ tools = ['delete_*'] }]\n";
    let declared = format!("[servers.bank]\ncommand = ['sh']\n{rules}");
    warmline.write_user("warmline.toml", &declared);
    for words in [&["doctor", "bank", "--offline"][..], &["doctor"]] {
        let output = warmline.run(words);
        for said in [
            "every tool for alice; balance for everybody",
            "delete_* for everybody",
        ] {
            assert!(output.stdout.contains(said), "{said} is missing: {output}");
        }
    }
}

/// A111: a variable that cannot be used ends every command before anything is sent.
#[test]
fn a_bad_variable_is_named_before_anything_is_sent() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new().with("WARMLINE_CALL_TIMEOUT", "10");
    shows!(warmline, "[SERVER]" = server.url(), @r"
    $ warmline call [SERVER] pay amount=1
    2> error[config-bad-value]: the variable `WARMLINE_CALL_TIMEOUT` is not a duration: `10`
    2>   why: it sets `call_timeout`: how long a call may take in all
    2>   hint: write a number and a unit: `500ms`, `30s`, `2min`, `1h`
    exit: 2
    ");
    assert_eq!(server.counts().connections, 0);
    let warmline = Warmline::new().with("WARMLINE_LIMITS_SESSIONS", "0");
    shows!(warmline, @r"
    $ warmline doctor
    config      look    no configuration file in [WORK], [HOME]/.config/warmline, /etc/warmline
                hint: give a target: `warmline doctor URL`, or `warmline doctor -- COMMAND`; `warmline add NAME URL` or `warmline init` writes a file
    settings    broken  the variable `WARMLINE_LIMITS_SESSIONS` cannot be 0
                why: it sets `limits.sessions`: HTTP sessions in all
                hint: 1 to 10000000 is possible

    2 questions · 1 to look at · 1 broken
    exit: 2
    ");
}

/// S23, S24, A180: variables that nobody reads are told, and so are slips in our own names.
#[test]
fn doctor_tells_variables_that_nobody_reads() {
    let warmline = Warmline::new()
        .with("MCP_USE_SESSION_MGMT", "true")
        .with("GITHUB_PAT", "canary")
        .with("WARMLINE_SPARE", "1");
    let output = warmline.run(&["doctor"]);
    assert!(!output.everything().contains("canary"), "{output}");
    tells!(output, @r#"
    exit: 0
    ----- stdout -----
    config      look    no configuration file in [WORK], [HOME]/.config/warmline, /etc/warmline
                hint: give a target: `warmline doctor URL`, or `warmline doctor -- COMMAND`; `warmline add NAME URL` or `warmline init` writes a file
    settings    look    GITHUB_PAT is set, but nothing reads it
                hint: name the variable for its server: `credential = { env = "…" }`
    settings    look    MCP_USE_SESSION_MGMT is set, but nothing reads it
                hint: set it for the server that needs it: `sessions = "always"`
    settings    look    WARMLINE_SPARE is set, but nothing reads it
                hint: did you mean `WARMLINE_SPARES`?

    4 questions · 4 to look at
    "#);
}

/// A165, A176, A177, S20, S21: a capability's declaration is all that is needed, with its variables.
#[test]
fn a_capability_is_called_with_nothing_but_variables() {
    let server = LedgerServer::start(Personality::legacy().token("general-token")).unwrap();
    let warmline = Warmline::new()
        .with("MCP_AUTH_TOKEN", "general-token")
        .with("MCP_SERVER_URL", &server.url());
    let file = warmline.write(
        "capability.json",
        r#"{"mcp_metadata": {"server_url": "https://example.invalid/mcp/", "server_name": "ledger", "tool_name": "pay"},
            "mcp_requires_session": "auto"}"#,
    );
    let file = file.to_str().unwrap();
    let output = warmline.run(&["call", "ledger", "pay", "amount=1", "--config", file]);
    output.exits(0);
    assert_eq!(server.ledger().executions("pay"), 1, "{output}");
    warmline.write(
        "capability.json",
        r#"{"mcp_metadata": {"server_name": "ledger"}, "mcp_requires_session": "perhaps"}"#,
    );
    shows!(warmline, "[FILE]" = file, @r"
    $ warmline call ledger pay amount=1 --config [FILE]
    2> error[config-bad-value]: `mcp_requires_session` of `ledger` cannot be `perhaps`
    2>   where: [WORK]/capability.json:1:69
    2>   hint: write `auto`, `always` or `never`
    exit: 2
    ");
}

/// A URL of the environment is named where it goes wrong; an empty one is none; and with several
/// servers `check` and `doctor` say that it speaks for nobody, as they do of a slip in a name.
#[test]
fn variables_that_go_wrong_or_unread_are_named() {
    let declared = |names: &[&str]| {
        let tables = names
            .iter()
            .map(|name| format!("[servers.{name}]\nurl = 'http://127.0.0.1:1/{name}'\n"));
        tables.collect::<String>()
    };
    let warmline = Warmline::new().with("MCP_SERVER_URL", "http://127.0.0.1:2/elsewhere");
    warmline.write_user("warmline.toml", &declared(&["a"]));
    let output = warmline.run(&["tools", "a"]);
    let place = "127.0.0.1:2/elsewhere (from MCP_SERVER_URL)";
    output.says(place).does_not_say("127.0.0.1:1");
    let empty = Warmline::new().with("MCP_SERVER_URL", "");
    empty.write_user("warmline.toml", &declared(&["a"]));
    empty.run(&["tools", "a"]).says("127.0.0.1:1/a");
    let several = warmline.with("WARMLINE_GATEWAY_LISTN", "127.0.0.1:0");
    several.write_user("warmline.toml", &declared(&["a", "b"]));
    shows!(several, @r#"
    $ warmline check
    ok  [HOME]/.config/warmline/warmline.toml · 2 servers
    2> note: WARMLINE_GATEWAY_LISTN is set, but nothing reads it: did you mean `WARMLINE_GATEWAY_LISTEN`?
    2> note: MCP_SERVER_URL is set, but applies to none of 2 servers: name it for its server: `url_env = "MCP_SERVER_URL"`
    $ warmline doctor
    config      ok      [HOME]/.config/warmline/warmline.toml: 2 servers, no unknown keys
    a           unseen  http://127.0.0.1:[PORT]/a
    b           unseen  http://127.0.0.1:[PORT]/b
    settings    look    WARMLINE_GATEWAY_LISTN is set, but nothing reads it
                hint: did you mean `WARMLINE_GATEWAY_LISTEN`?
    settings    look    MCP_SERVER_URL is set, but applies to none of 2 servers
                hint: name it for its server: `url_env = "MCP_SERVER_URL"`

    5 questions · 2 unseen · 2 to look at
    no server was started or contacted: `warmline doctor NAME` does
    "#);
}
