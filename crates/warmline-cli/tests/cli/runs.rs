//! `--run`: state that is kept from one command to the next, and what is said where it is not.

use crate::prelude::*;

use crate::http_sse_server::OldServer;
use crate::output::interrupted;

fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// What the counter of a run says.
fn counted(warmline: &Warmline, server: &LedgerServer, words: &[&str]) -> String {
    let mut all = vec!["call".to_owned(), server.url(), "counter".to_owned()];
    all.extend(words.iter().map(|word| (*word).to_owned()));
    let output = warmline.run(&all);
    output.succeeds();
    output.stdout.trim().to_owned()
}

#[track_caller]
fn counts(warmline: &Warmline, server: &LedgerServer, words: &[&str], count: u32) {
    let expected = format!(r#"{{"count":{count}}}"#);
    assert_eq!(counted(warmline, server, words), expected);
}

/// Beside those of sessions there is one record that tells what the server is.
const OF_THE_SERVER: usize = 1;

fn records(folder: &Path) -> Vec<PathBuf> {
    let Ok(all) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    all.map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "record"))
        .collect()
}

/// A139, A203: two processes, one session, one handshake; another name is another session.
#[test]
fn two_commands_of_one_run_share_a_session_and_other_runs_do_not() {
    let (warmline, server) = (Warmline::new(), server());
    let count = |run| counted(&warmline, &server, &["--run", run]);
    assert_eq!(count("trip"), r#"{"count":1}"#);
    assert_eq!(count("trip"), r#"{"count":2}"#);
    assert_eq!(count("other"), r#"{"count":1}"#);
    assert_eq!(count("trip"), r#"{"count":3}"#);
    counts(&warmline, &server, &[], 1);
    assert_eq!(server.counts().open_sessions, 2);
    assert_eq!(
        server.ledger().messages_received("initialize"),
        3,
        "a session is taken up again with nothing on the wire"
    );
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A203: a session that is held for no run is not kept for one, and that is said.
#[test]
fn who_decided_that_sessions_are_no_runs_is_told_that_nothing_is_kept() {
    for per in ["identity", "server", "call"] {
        let (warmline, server) = (Warmline::new(), server());
        let url = server.url();
        let file = format!("[servers.demo]\nurl = \"{url}\"\nsession_per = \"{per}\"\n");
        warmline.write_user("warmline.toml", &file);
        for _ in 0..2 {
            let output = warmline.run(&["call", "demo", "counter", "--run", "trip"]);
            let outcome = (output.exit, output.stdout.trim());
            assert_eq!(outcome, (0, r#"{"count":1}"#), "{output}");
            for said in ["run `trip` keeps nothing of it", per] {
                output.says(said);
            }
        }
        let ended = warmline.run(&["call", "demo", "counter", "--run", "trip", "--end-run"]);
        ended.succeeds();
    }
}

#[test]
fn the_answer_says_whose_session_it_was_and_what_it_cost() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline call [URL] counter --run trip --json
    {"kind":"reply","server":"127.0.0.1:[PORT]","tool":"counter","era":"legacy","run":"trip","warm":false,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1}}}
    $ warmline call [URL] counter --run trip --json
    {"kind":"reply","server":"127.0.0.1:[PORT]","tool":"counter","era":"legacy","run":"trip","warm":true,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":2}","type":"text"}],"structuredContent":{"count":2}}}
    $ warmline request [URL] ping --run trip --json
    {"kind":"reply","server":"127.0.0.1:[PORT]","method":"ping","era":"legacy","run":"trip","warm":true,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"result":{}}
    "#);
    tells!(warmline.run(&["call", &url, "pay", "amount=3", "--run", "trip", "--verbose"]), @r#"
    exit: 0
    ----- stdout -----
    {"account":null,"paid":3,"total":3}
    ----- stderr -----
    · opening a session of run `trip` to `127.0.0.1:[PORT]`: http://127.0.0.1:[PORT]/mcp
    · resumed, nothing sent: legacy 2025-11-25 · http · keeps state per session
    → tools/list
    ← 24 tools after [TIME]
      arguments: amount=… (values with --show-values)
    → tools/call pay
    ← result, [N] bytes, after [TIME]
    [PAD]127.0.0.1:[PORT] · run trip · warm · call [TIME]
    "#);
}

#[test]
fn every_command_that_speaks_to_a_server_joins_the_run() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    for words in [
        &["tools", &url, "--run", "trip"][..],
        &["call", &url, "counter", "--run", "trip"],
        &["request", &url, "ping", "--run", "trip"],
    ] {
        warmline.run(words).exits(0);
    }
    let output = warmline.run(&[
        "request",
        &url,
        "tools/call",
        "name=counter",
        "--run",
        "trip",
    ]);
    output.prints(r#""count": 2"#);
    assert_eq!(server.ledger().messages_received("initialize"), 1);
    let output = warmline.run(&["call", &url, "ask_form", "--run", "trip"]);
    assert!(
        output.stdout.contains(r#"{"action":"decline"}"#),
        "calls on a session that another command opened can be asked something: {output}"
    );
}

/// A10: the run comes from whoever started us.
#[test]
fn the_environment_names_a_run_and_what_is_typed_wins() {
    let server = server();
    let warmline = Warmline::new().with("WARMLINE_RUN", "trip");
    let count = |words: &[&str]| counted(&warmline, &server, words);
    assert_eq!(count(&[]), r#"{"count":1}"#);
    assert_eq!(count(&["--run", "trip"]), r#"{"count":2}"#);
    assert_eq!(count(&["--run", "other"]), r#"{"count":1}"#);
    let empty = warmline.with("WARMLINE_RUN", "");
    counts(&empty, &server, &[], 1);
}

#[test]
fn a_run_that_is_ended_leaves_nothing_behind() {
    let (warmline, server) = (Warmline::new(), server());
    let count = |words: &[&str]| counted(&warmline, &server, words);
    assert_eq!(count(&["--run", "trip"]), r#"{"count":1}"#);
    assert_eq!(count(&["--run", "trip", "--end-run"]), r#"{"count":2}"#);
    assert_eq!(server.counts().open_sessions, 0, "it was closed");
    let records_left = records(&warmline.state().join("sessions")).len();
    assert_eq!(records_left, OF_THE_SERVER);
    assert_eq!(count(&["--run", "trip"]), r#"{"count":1}"#);
    shows!(warmline, "[SERVER]" = server.url(), @r"
    $ warmline call [SERVER] counter --end-run
    2> error[usage-bad-argument]: `--end-run` needs a run
    2>   hint: name it with --run NAME
    exit: 2
    ");
}

#[test]
fn a_name_that_no_run_can_have_is_refused_before_anything_is_done() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    shows!(warmline, "[URL]" = url, @r"
    $ warmline call [URL] counter --run 'my trip'
    2> error[usage-bad-argument]: `my trip` of --run is not a run name
    2>   hint: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and is not `.` or `..`
    exit: 2
    ");
    let long = "x".repeat(129);
    for name in ["", ".", "..", "a/b", "a\nb", "naïve", &long] {
        for command in [
            &["call", &url, "counter"][..],
            &["tools", &url],
            &["request", &url, "ping"],
        ] {
            let output = warmline.run(&[command, &["--run", name]].concat());
            assert_eq!(output.exit, 2, "{name:?}: {output}");
        }
    }
    let by_environment = Warmline::new().with("WARMLINE_RUN", "a/b");
    let output = by_environment.run(&["tools", &url]);
    output.exits(2).says("`a/b` of WARMLINE_RUN");
    assert_eq!(server.counts().requests, 0);
    assert!(!warmline.state().exists(), "nothing was made");
}

#[test]
fn a_program_says_that_it_cannot_be_kept_yet() {
    let warmline = Warmline::new();
    let run = |words: &[&str]| warmline.run(&against_demo(words, &["--era", "legacy"]));
    let first = run(&["call", "counter", "--run", "trip"]);
    tells!(first, @r#"
    exit: 0
    ----- stdout -----
    {"count":1}
    ----- stderr -----
    note: `warmline` is a program and ends with this command: run `trip` keeps nothing of it
      why: nothing holds it between commands; `warmline up` starts a gateway that does
    "#);
    let second = run(&["call", "counter", "--run", "trip"]);
    assert_eq!(second.to_string(), first.to_string());
    tells!(run(&["call", "counter", "--run", "trip", "--json"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"note","server":"warmline","run":"trip","what":"`warmline` is a program and ends with this command: run `trip` keeps nothing of it","why":"nothing holds it between commands; `warmline up` starts a gateway that does"}
    {"kind":"reply","server":"warmline","tool":"counter","era":"legacy","run":"trip","warm":false,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1}}}
    "#);
    let quiet = run(&["call", "counter", "--run", "trip", "--quiet"]);
    assert_eq!((quiet.exit, quiet.stderr.as_str()), (0, ""));
    let ended = run(&["call", "counter", "--run", "trip", "--end-run"]);
    ended.succeeds();
    assert!(!warmline.state().exists(), "there is nothing to write down");
}

#[test]
fn a_server_that_keeps_nothing_per_session_has_nothing_to_be_kept() {
    let warmline = Warmline::new();
    let told = |personality| {
        let server = LedgerServer::start(personality).unwrap();
        warmline.run(&["call", &server.url(), "echo", "a=1", "--run", "trip"])
    };
    tells!(told(Personality::modern()), @r#"
    exit: 0
    ----- stdout -----
    {"arguments":{"a":"1"}}
    ----- stderr -----
    note: `127.0.0.1:[PORT]` keeps no state per session: run `trip` has nothing to keep
    "#);
    let legacy = told(Personality::legacy_stateless());
    legacy.exits(0).says("keeps no state per session");
}

/// A140, P1: one new session; the loss is told in the answer, once, and nothing runs twice.
#[test]
fn a_server_that_was_restarted_between_two_commands_is_told_of() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    counted(&warmline, &server, &["--run", "trip"]);
    server.restart().unwrap();
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline call [URL] counter --run trip
    Note: the server `127.0.0.1:[PORT]` lost its session and was given a new one before this call. Whatever earlier calls left there, such as open pages, variables or transactions, is gone; redo what you still need. What follows is the result from the new session.
    {"count":1}
    "#);
    counts(&warmline, &server, &["--run", "trip"], 2);
    server.restart().unwrap();
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline call [URL] counter --run trip --json
    {"kind":"reply","server":"127.0.0.1:[PORT]","tool":"counter","era":"legacy","run":"trip","warm":true,"generation":3,"state_lost":true,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"type":"text","text":"Note: the server `127.0.0.1:[PORT]` lost its session and was given a new one before this call. Whatever earlier calls left there, such as open pages, variables or transactions, is gone; redo what you still need. What follows is the result from the new session."},{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1},"_meta":{"dev.warmline/generation":3,"dev.warmline/stateLost":true}}}
    "#);
    assert_eq!(server.ledger().executions("counter"), 4);
    assert_eq!(server.counts().open_sessions, 1);
}

#[test]
fn a_server_whose_calls_are_dangerous_on_fresh_state_is_not_called() {
    let (warmline, server) = (Warmline::new(), server());
    let text = format!(
        "[servers.bank]\nurl = '{}'\non_state_loss = 'fail'\n",
        server.url()
    );
    warmline.write_user("warmline.toml", &text);
    let call = || warmline.run(&["call", "bank", "pay", "amount=1", "--run", "trip"]);
    assert_eq!(call().exit, 0);
    server.restart().unwrap();
    tells!(call(), @r#"
    exit: 3
    ----- stderr -----
    error[session-lost]: `bank` lost the session's state, and a new session took its place (now generation 2)
      where: tools/call pay, [TIME] after sending
      why: what earlier calls left there, such as pages, variables or transactions, is gone
      delivery: refused (not executed, safe to call again)
      hint: called again, it runs on the new session, without what was there: do that again first; `on_state_loss = "tell"` goes on instead
    "#);
    assert_eq!(server.ledger().executions("pay"), 1);
    assert_eq!(call().exit, 0);
}

/// A141: what cannot be read costs a new session and a word, nothing else.
#[test]
fn a_record_that_is_broken_is_told_and_replaced() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    let spoil = |spoilt: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let all = records(&warmline.state().join("sessions"));
        assert_eq!(all.len(), OF_THE_SERVER + 1);
        for record in all {
            let bytes = std::fs::read(&record).unwrap();
            std::fs::write(&record, spoilt(bytes)).unwrap();
        }
    };
    counted(&warmline, &server, &["--run", "trip"]);
    spoil(&|_| b"garbage".to_vec());
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline call [URL] counter --run trip
    {"count":1}
    2> note[record-refused]: cannot use the record of run `trip`: its state is lost, and a new session was opened
    2>   why: its file is half written, or no record
    "#);
    counts(&warmline, &server, &["--run", "trip"], 2);
    spoil(&|mut bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    });
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline call [URL] counter --run trip --json
    {"kind":"note","code":"record-refused","server":"127.0.0.1:[PORT]","run":"trip","what":"cannot use the record of run `trip`: its state is lost, and a new session was opened","why":"it was changed, or sealed for something else"}
    {"kind":"reply","server":"127.0.0.1:[PORT]","tool":"counter","era":"legacy","run":"trip","warm":false,"generation":1,"state_lost":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1}}}
    "#);
    counts(&warmline, &server, &["--run", "trip"], 2);
}

/// DESIGN 5.4: secrets that were removed, or replaced by others, are told once, with what helps;
/// and that helps.
#[test]
fn secrets_that_were_lost_are_told_and_can_be_put_back() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    let secrets = warmline.state().join("secrets");
    let call = |run: &str| warmline.run(&["call", &url, "counter", "--run", run]);
    counted(&warmline, &server, &["--run", "trip"]);
    let old = std::fs::read(&secrets).unwrap();
    std::fs::remove_file(&secrets).unwrap();
    tells!(call("trip"), @r#"
    exit: 0
    ----- stdout -----
    {"count":1}
    ----- stderr -----
    note[record-refused]: the runs in this folder were sealed with other secrets: the state of run `trip` is lost, and a new session was opened
      why: the file `secrets` was removed or replaced
      hint: put the old file back to resume them; otherwise nothing needs to be done
    "#);
    for (run, expected) in [("trip", 2), ("other", 1)] {
        let expected = format!("{{\"count\":{expected}}}");
        let count = counted(&warmline, &server, &["--run", run]);
        assert_eq!(count, expected, "and once is enough");
    }
    std::fs::write(&secrets, &old).unwrap();
    counts(&warmline, &server, &["--run", "trip"], 2);
}

/// The same where the sealing key alone is another one: the run's record is found and not opened.
#[test]
fn a_sealing_key_that_was_replaced_is_told() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    counted(&warmline, &server, &["--run", "trip"]);
    let secrets = warmline.state().join("secrets");
    let old = std::fs::read_to_string(&secrets).unwrap();
    let instance = old
        .split_whitespace()
        .find(|word| word.starts_with("instance="))
        .unwrap();
    std::fs::write(&secrets, format!("{instance} seal={}", "ab".repeat(32))).unwrap();
    let output = warmline.run(&["call", &url, "counter", "--run", "trip", "--json"]);
    let notes = output
        .stdout
        .matches(r#""kind":"note","code":"record-refused""#)
        .count();
    assert_eq!((output.exit, notes), (0, 1), "{output}");
    output.prints("sealed with other secrets");
    counts(&warmline, &server, &["--run", "trip"], 2);
}

#[test]
fn a_folder_that_cannot_be_used_is_named_before_anything_is_sent() {
    let (warmline, server) = (Warmline::new(), server());
    let file = warmline.write("a-file", "");
    let url = server.url();
    let words = ["call", &url, "counter", "--run", "trip", "--state-dir"];
    let output = warmline.run(&[&words[..], &[file.to_str().unwrap()]].concat());
    tells!(output, @r"
    exit: 2
    ----- stderr -----
    error[store-unavailable]: cannot make the folder [WORK]/a-file
      why: File exists (os error 17)
      delivery: unsent (not executed, safe to call again)
      hint: runs are kept there between commands; choose another folder with --state-dir
    ");
    assert_eq!(server.counts().requests, 0);
    warmline.write("state/sessions", "no folder");
    let output = warmline.run(&[&words[..], &["state"]].concat());
    assert!(
        output.exit == 0
            && output.stdout.trim() == r#"{"count":1}"#
            && output.stderr.matches("note[store-unavailable]").count() == 1,
        "a call goes on without its record: {output}"
    );
}

#[test]
fn runs_are_kept_where_they_were_told_to_be() {
    let server = server();
    let (one, two) = (Warmline::new(), Warmline::new());
    let service = two.work().join("service");
    let two = two.with(
        "STATE_DIRECTORY",
        &format!("{}:/nowhere", service.display()),
    );
    counted(&two, &server, &["--run", "trip"]);
    assert_eq!(records(&service.join("sessions")).len(), OF_THE_SERVER + 1);
    let shared = service.to_str().unwrap();
    counts(&one, &server, &["--run", "trip", "--state-dir", shared], 2);
    let elsewhere = one.work().join("records");
    let one = one.with("WARMLINE_STORE_PATH", elsewhere.to_str().unwrap());
    counted(&one, &server, &["--run", "trip"]);
    assert_eq!(records(&elsewhere).len(), OF_THE_SERVER + 1);
    let holds = one.state().join("secrets").exists();
    assert!(holds, "keys lie elsewhere than what they seal");
}

/// A144: another credential never finds the session, and what is stored tells nobody of it.
#[test]
fn whoever_shows_another_header_has_another_session() {
    let server = server();
    let warmline = Warmline::new().with("TOKEN", "one");
    let as_header =
        |value: &str| counted(&warmline, &server, &["--run", "trip", "--header", value]);
    assert_eq!(as_header("X-Tenant: a"), r#"{"count":1}"#);
    assert_eq!(as_header("X-Tenant: b"), r#"{"count":1}"#);
    assert_eq!(as_header("X-Tenant: a"), r#"{"count":2}"#);
    let named = ["--run", "trip", "--header-env", "Authorization=TOKEN"];
    counts(&warmline, &server, &named, 1);
    let warmline = warmline.with("TOKEN", "two");
    counts(&warmline, &server, &named, 2);
    let sessions = server.control().session_ids();
    for record in records(&warmline.state().join("sessions")) {
        let bytes = std::fs::read(record).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(sessions.iter().all(|id| !text.contains(id.as_str())));
    }
}

/// A128, P87: a run changes nothing about payments.
#[test]
fn a_call_that_may_have_run_is_not_sent_again_and_its_session_goes_on() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    counted(&warmline, &server, &["--run", "trip"]);
    server.inject(
        FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst)).on_tool("pay"),
    );
    let output = warmline.run(&["call", &url, "pay", "amount=1", "--run", "trip"]);
    tells!(output, @r"
    exit: 4
    ----- stderr -----
    error[answer-lost]: `127.0.0.1:[PORT]` sent no answer
      where: tools/call pay, [TIME] after sending
      why: Connection reset by peer (os error 104)
      delivery: unknown (may have been executed, check before calling again)
      hint: check whether it was executed before calling again
    ");
    assert_eq!(server.ledger().executions("pay"), 1);
    counts(&warmline, &server, &["--run", "trip"], 2);
}

#[test]
fn a_command_that_is_interrupted_leaves_the_run_to_the_next() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    counted(&warmline, &server, &["--run", "trip"]);
    let words = ["call", &url, "slow", "ms=60000", "--run", "trip"];
    let output = interrupted(&warmline, &server, &words, Signal::INT);
    output.exits(4);
    counts(&warmline, &server, &["--run", "trip"], 2);
}

/// A144: whoever comes second takes the session of whoever was first.
#[test]
fn commands_that_begin_a_run_at_once_end_up_in_one_session() {
    let (warmline, server) = (Warmline::new(), server());
    let url = server.url();
    let started: Vec<_> = (0..4)
        .map(|_| {
            let mut command = warmline.command(&["call", &url, "counter", "--run", "trip"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    let mut said: Vec<String> = started
        .into_iter()
        .map(|child| String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    said.sort();
    let expected: Vec<String> = (1..=4).map(|n| format!("{{\"count\":{n}}}\n")).collect();
    assert_eq!(said, expected);
    assert_eq!(server.counts().open_sessions, 1, "the others were closed");
}

#[test]
fn a_server_that_cannot_be_reached_is_told_by_the_name_that_was_typed() {
    let output = Warmline::new().run(&["call", "http://127.0.0.1:1/mcp", "pay", "--run", "trip"]);
    tells!(output, @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp
      why: Connection refused (os error 111)
      delivery: unsent (not executed, safe to call again)
      hint: nothing listens there: start the server, or check host and port
    ");
}

/// In a run the leg that keeps state is taken, whatever else the server speaks.
#[test]
fn a_server_of_both_eras_is_met_where_it_keeps_state() {
    let warmline = Warmline::new();
    let server = LedgerServer::start(Personality::dual()).unwrap();
    counts(&warmline, &server, &["--run", "trip"], 1);
    counts(&warmline, &server, &["--run", "trip"], 2);
    assert_eq!(server.counts().open_sessions, 1);
}

/// A stream that ended with its command is no session that the server lost: that nothing is kept was
/// said before, on stderr.
#[test]
fn an_old_server_between_two_commands_has_lost_nothing() {
    let (warmline, server) = (Warmline::new(), OldServer::start());
    let words = [
        "call",
        &server.url(),
        "say",
        "--args",
        r#"{"a":1}"#,
        "--run",
        "trip",
    ];
    let first = warmline.run(&words);
    tells!(first, @r#"
    exit: 0
    ----- stdout -----
    {
      "arguments": {
        "a": 1
      }
    }
    ----- stderr -----
    note: `127.0.0.1:[PORT]` has a session that ends with its stream: run `trip` keeps nothing of it
      why: nothing holds it between commands; `warmline up` starts a gateway that does
    "#);
    until("the stream is over", || server.connections() == 0);
    let again = warmline.run(&words);
    assert_eq!(again.to_string(), first.to_string());
    let calls = server
        .heard()
        .into_iter()
        .filter(|method| method == "tools/call");
    assert_eq!(calls.count(), 2);
}
