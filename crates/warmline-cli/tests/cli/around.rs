//! `warmline run`: a run around a program.

use warmline_testkit::LedgerServer;
use warmline_testkit::personality::Personality;

use crate::tells;
use crate::warmline::{BINARY, Warmline};

/// What a program calls shares one session, which ends with it; its exit code is passed on.
#[test]
fn a_program_finds_its_run_by_variables_and_leaves_nothing_behind() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let audit = warmline.work().join("audit.jsonl");
    let text = format!(
        "[audit]\nfile = '{}'\n[servers.ledger]\nurl = '{}'\n",
        audit.display(),
        server.url()
    );
    warmline.write_user("warmline.toml", &text);
    // Each call is a program of its own, as an agent that opens a session per call.
    let script = format!(
        "unset WARMLINE_RUN; for i in 1 2 3; do {BINARY} call $WARMLINE_URL/servers/ledger/mcp counter \
         --header \"Authorization: Bearer $WARMLINE_TOKEN\"; done; exit 7"
    );
    let told = warmline.run(&["run", "--name", "trip", "--", "sh", "-c", &script]);
    tells!(told, @r#"
    exit: 7
    ----- stdout -----
    {"count":1}
    {"count":2}
    {"count":3}
    ----- stderr -----
    run `trip`: 6 requests in 1 session; a session per request would have taken [TIME] more to open
    "#);
    assert_eq!(server.counts().open_sessions, 0);
    assert_eq!(server.ledger().executions("counter"), 3);
    assert_eq!(server.violations(), Vec::<String>::new());
    let audit = std::fs::read_to_string(audit).unwrap();
    let calls = audit
        .lines()
        .filter(|line| line.contains("\"tool\":\"counter\""));
    assert_eq!(calls.count(), 3, "{audit}");
}

#[test]
fn what_cannot_be_run_is_named() {
    let warmline = Warmline::new();
    let url = "http://127.0.0.1:1/mcp";
    tells!(warmline.run(&["run", url, "--", "no-such-program-here"]), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: `no-such-program-here` cannot be started
      why: No such file or directory (os error 2)
      delivery: unsent (not executed, safe to call again)
    ");
    tells!(warmline.run(&["run", url]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: no program stands behind `--`
      hint: `warmline run -- python agent.py`
    ");
    tells!(warmline.run(&["run", "--", "true"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: there is nothing to serve: no server is configured
      hint: give a URL, or a command behind `--`; or write a `warmline.toml`: `warmline init`
    ");
    tells!(warmline.run(&["run", url, "--name", "a b", "--", "true"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: that cannot be the name of a run
      hint: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and is not `.` or `..`
    ");
    tells!(warmline.run(&["run", url, "--name", "trip", "--json", "--", "true"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"note","run":"trip","requests":0,"sessions":0,"saved_ms":[TIME]}
    "#);
    let told = warmline.run(&["run", url, "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(told.exit, 137, "{told}");
}
