//! Output that cannot be written, and commands that are told to end.

use crate::prelude::*;

use warmline_testkit::LedgerEntry;

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_not_taken_for_one_that_was() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let url = server.url();
    let warmline = Warmline::new();
    #[rustfmt::skip]
    let table: [(&[&str], i32, &str); 8] = [
        (&["call", &url, "pay", "amount=7"],           4, "error[answer-lost]: cannot write the answer: No space left on device\n  delivery: answered"),
        (&["call", &url, "pay", "amount=7", "--json"], 4, "error[answer-lost]: cannot write the answer: No space left on device\n  delivery: answered"),
        (&["request", &url, "tools/list"],             4, "error[answer-lost]: cannot write the answer"),
        (&["tools", &url],                             3, "error[answer-lost]: cannot write the output"),
        (&["doctor", &url],                            3, "error[answer-lost]: cannot write the output"),
        (&["explain"],                                 3, "error[answer-lost]: cannot write the output"),
        (&["completions", "bash"],                     3, "error[answer-lost]: cannot write the output"),
        (&["--help"],                                  3, "error[answer-lost]: cannot write the output"),
    ];
    for (words, exit, said) in table {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = warmline.command(words).stdout(full).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {told}");
        assert!(told.contains(said), "{words:?}: {told}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let warmline = Warmline::new();
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = warmline
        .command(&["explain"])
        .stdout(write)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), told.as_str()), (Some(0), ""));
}

#[test]
fn a_call_that_is_interrupted_is_cancelled_and_may_have_run() {
    for signal in [Signal::INT, Signal::TERM] {
        interrupted_by(signal);
    }
    if !ignores_hangups() {
        interrupted_by(Signal::HUP);
    }
}

/// Whether these tests were started by `nohup`: commands of theirs keep to that.
fn ignores_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    ignored.is_some_and(|bits| bits & 1 == 1)
}

fn interrupted_by(signal: Signal) {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let words = ["call", &server.url(), "slow", "ms=60000"];
    let output = interrupted(&warmline, &server, &words, signal);
    output.exits(4);
    output.says_first("error[cancelled]: interrupted\n  where: tools/call slow");
    wait_for(&server, |entry| entry.method == "notifications/cancelled");
    assert_eq!(server.counts().open_sessions, 0, "the session was ended");
}

/// Runs a command that calls `slow`, and interrupts it once the server works on it.
pub(crate) fn interrupted(
    warmline: &Warmline,
    server: &LedgerServer,
    words: &[&str],
    signal: Signal,
) -> CommandOutput {
    let mut command = warmline.command(words);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(server, |entry| {
        entry.phase == ExecutionPhase::Begin && entry.tool.as_deref() == Some("slow")
    });
    kill_process(Pid::from_child(&child), signal).unwrap();
    warmline.told(&child.wait_with_output().unwrap())
}

fn wait_for(server: &LedgerServer, fits: impl Fn(&LedgerEntry) -> bool) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limit = Duration::from_secs(20);
    let seen = |entries: &[LedgerEntry]| entries.iter().any(&fits);
    assert!(runtime.block_on(server.ledger().wait_until(limit, seen)));
}

#[test]
fn advice_follows_what_became_of_the_call() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    server.inject(
        FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst))
            .on_method("tools/list"),
    );
    tells!(warmline.run(&["call", &server.url(), "pay", "amount=1"]), @r"
    exit: 3
    ----- stderr -----
    error[answer-lost]: `127.0.0.1:[PORT]` sent no answer
      where: tools/list, [TIME] after sending
      why: Connection reset by peer (os error 104)
      delivery: unsent (not executed, safe to call again)
      hint: nothing was executed: it is safe to call again
    ");
    assert_eq!(server.ledger().executions("pay"), 0);
    let page = CannedReply::new(200, "<!doctype html><title>Welcome</title>")
        .header("Content-Type", "text/html");
    server.inject(FaultRule::new(Fault::Reply(page)).on_tool("pay"));
    tells!(warmline.run(&["call", &server.url(), "pay", "amount=1"]), @r"
    exit: 4
    ----- stderr -----
    error[bad-answer]: the answer of `127.0.0.1:[PORT]` is not an MCP answer
      where: tools/call pay, [TIME] after sending
      why: HTTP 200, a web page: Welcome
      delivery: unknown (may have been executed, check before calling again)
      hint: check whether it was executed before calling again; report it to the server's makers
    ");
}

#[test]
fn an_odd_result_is_shown_as_it_is() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    server.inject(
        FaultRule::new(Fault::Result(serde_json::json!({"content": "nope"}))).on_tool("pay"),
    );
    let output = Warmline::new().run(&["call", &server.url(), "pay", "amount=1"]);
    output.prints(r#""content": "nope""#);
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let warmline = Warmline::new().with("WARMLINE_LOG", "trace");
    let output = warmline.run(&against_demo(&["call", "pay", "amount=1"], &[]));
    let holds = !output.stderr.is_empty() && !output.stderr.contains('\u{1b}');
    assert!(holds, "{output}");
}

#[test]
fn what_a_server_writes_cannot_look_like_a_line_of_ours() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let name = "x`\n  delivery: answered\n\u{1b}[2J";
    let tool = serde_json::json!({"name": name, "inputSchema": {"properties": {"a\nb": {}}}});
    let list = serde_json::json!({ "tools": [tool] });
    server.inject(
        FaultRule::new(Fault::Result(list))
            .on_method("tools/list")
            .always(),
    );
    let warmline = Warmline::new();
    for words in [
        &["call", &server.url(), "pay"][..],
        &["tools", &server.url()],
        &["tools", &server.url(), name],
    ] {
        let output = warmline.run(words);
        let forged = |line: &str| line.starts_with("  delivery: answered");
        assert!(!output.everything().lines().any(forged), "{output}");
        assert!(!output.everything().contains('\u{1b}'), "{output}");
    }
}
