//! `call`, `request` and `tools`: answers, costs, and what became of every call.

use warmline_testkit::personality::Personality;
use warmline_testkit::{CutAt, End, Fault, LedgerServer, Rule};

use crate::tells;
use crate::warmline::{BINARY, Warmline, against_demo};

fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// A175, A189: a URL is all that a call needs.
#[test]
fn the_answer_is_the_output() {
    let warmline = Warmline::new();
    tells!(warmline.run(&against_demo(&["call", "pay", "amount=10", "account=lamp"], &[])), @r#"
    exit: 0
    ----- stdout -----
    {"account":"lamp","paid":10,"total":10}
    "#);
    let server = server();
    tells!(warmline.run(&["call", &server.url(), "note_write", "title=a", "text=b"]), @r"
    exit: 0
    ----- stdout -----
    written
    ");
    assert_eq!(server.ledger().executions("note_write"), 1);
    assert_eq!(server.counts().open_sessions, 0, "the session was ended");
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A175, A195: the same command, whatever the server is.
#[test]
fn both_eras_answer_over_both_transports() {
    let warmline = Warmline::new();
    for personality in [
        Personality::legacy(),
        Personality::modern(),
        Personality::dual(),
    ] {
        let server = LedgerServer::start(personality).unwrap();
        let told = warmline.run(&["call", &server.url(), "pay", "amount=3"]);
        assert_eq!(
            (told.exit, server.ledger().executions("pay")),
            (0, 1),
            "{told}"
        );
    }
    for era in ["legacy", "modern", "auto"] {
        let told = warmline.run(&against_demo(&["call", "pay", "amount=3"], &["--era", era]));
        assert_eq!(told.exit, 0, "{era}: {told}");
    }
}

#[test]
fn an_answer_for_programs_is_one_line() {
    let told = Warmline::new().run(&against_demo(
        &["call", "counter", "--json"],
        &["--era", "legacy"],
    ));
    tells!(told, @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reply","server":"warmline","tool":"counter","era":"legacy","warm":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1}}}
    "#);
}

#[test]
fn a_tool_that_says_no_has_its_own_exit_code() {
    let warmline = Warmline::new();
    tells!(warmline.run(&against_demo(&["call", "fail"], &[])), @r"
    exit: 1
    ----- stderr -----
    error[tool-failed]: `fail` of `warmline` said no
      where: tools/call fail
      why: this tool always fails
      delivery: answered
    ");
    let told = warmline.run(&against_demo(&["call", "fail", "--json"], &[]));
    assert!(
        told.exit == 1 && told.stdout.contains(r#""is_error":true"#),
        "{told}"
    );
}

/// A183: code, message and data arrive.
#[test]
fn an_error_of_the_protocol_reaches_the_reader_whole() {
    let server = server();
    let rule = || {
        Rule::new(Fault::Error {
            code: -32602,
            message: "amount is missing".to_owned(),
            data: serde_json::json!({"field": "amount"}),
        })
        .on_tool("pay")
    };
    server.inject(rule());
    let warmline = Warmline::new();
    tells!(warmline.run(&["call", &server.url(), "pay", "amount=1"]), @r#"
    exit: 1
    ----- stderr -----
    error[tool-failed]: `127.0.0.1:[PORT]` answered tools/call pay with error -32602
      why: amount is missing ({"field":"amount"})
      delivery: answered
    "#);
    server.inject(rule());
    tells!(warmline.run(&["call", &server.url(), "pay", "amount=1", "--json"]), @r#"
    exit: 1
    ----- stdout -----
    {"kind":"error","code":"tool-failed","delivery":"answered","server":"127.0.0.1:[PORT]","what":"`127.0.0.1:[PORT]` answered tools/call pay with error -32602","why":"amount is missing ({\"field\":\"amount\"})","exit":1}
    "#);
}

/// A18, E14: a tool that is not there is named with its server.
#[test]
fn a_value_or_a_tool_that_cannot_be_meant_is_never_sent() {
    let warmline = Warmline::new();
    let server = server();
    let url = server.url();
    tells!(warmline.run(&["call", &url, "pya", "amount=1"]), @r"
    exit: 2
    ----- stderr -----
    error[tool-unknown]: `127.0.0.1:[PORT]` has no tool `pya`
      delivery: unsent (not executed, safe to call again)
      hint: did you mean `pay`?
    ");
    tells!(warmline.run(&["call", &url, "pay", "amount=ten"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `amount` cannot be `ten`: it must be a whole number
      delivery: unsent (not executed, safe to call again)
    ");
    tells!(warmline.run(&["call", &url, "pay", "amount"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `amount` is not a value
      hint: write KEY=VALUE, KEY:=JSON or KEY=@FILE
    ");
    tells!(warmline.run(&["call", &url, "pay", "amount:={"]), @r#"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: the value of `amount` is not JSON
      why: EOF while parsing an object at line 1 column 1
      hint: write `amount=…` for a text, or quote JSON for the shell: 'amount:={"a":1}'
    "#);
    tells!(warmline.run(&["call", &url, "pay", "amount=@missing"]), @r#"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: the file of `amount` cannot be read
      where: missing
      why: No such file or directory (os error 2)
      hint: for a text that begins with `@` write 'amount:="@…"'
    "#);
    tells!(warmline.run(&["call", &url, "pay", "--args", "[1]"]), @r#"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: --args is not a JSON object
      where: --args
      why: invalid type: sequence, expected an object at line 1 column 0
      hint: write one object: --args '{"key":"value"}', --args @file or --args -
    "#);
    assert_eq!(server.ledger().received("tools/call"), 0);
    tells!(warmline.run(&["call", &url, "pay", "amuont=1", "amount=2"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `pay` has no argument `amuont`
      delivery: unsent (not executed, safe to call again)
      hint: did you mean `amount`? If not, write 'amuont:=JSON', which is sent as it is
    ");
    assert_eq!(server.ledger().executions("pay"), 0);
}

#[test]
fn values_come_from_files_and_from_input() {
    let warmline = Warmline::new();
    warmline.write("note.txt", "from a file\n");
    let echoed = |words: &[&str]| warmline.run(&against_demo(words, &[]));
    tells!(echoed(&["call", "echo", "text=@note.txt", "n:=[1, 2.50]", "s=1"]), @r#"
    exit: 0
    ----- stdout -----
    {"arguments":{"n":[1,2.5],"s":"1","text":"from a file\n"}}
    "#);
    tells!(echoed(&["call", "echo", "--args", r#"{"a": 1.0}"#]), @r#"
    exit: 0
    ----- stdout -----
    {"arguments":{"a":1.0}}
    "#);
    let told = warmline.run_with_input(
        &against_demo(&["call", "echo", "--args", "-"], &[]),
        r#"{"b": 2}"#,
    );
    tells!(told, @r#"
    exit: 0
    ----- stdout -----
    {"arguments":{"b":2}}
    "#);
}

/// A128, P87: an unknown outcome is told as one.
#[test]
fn a_call_that_may_have_run_says_so() {
    let server = server();
    server.inject(Rule::new(Fault::Cut(CutAt::AfterExecuting, End::Rst)).on_tool("pay"));
    let warmline = Warmline::new();
    tells!(warmline.run(&["call", &server.url(), "pay", "amount=10"]), @r"
    exit: 4
    ----- stderr -----
    error[answer-lost]: `127.0.0.1:[PORT]` sent no answer
      where: tools/call pay, [TIME] after sending
      why: Connection reset by peer (os error 104)
      delivery: unknown (may have been executed, check before calling again)
      hint: check whether it was executed before calling again
    ");
    assert_eq!(
        server.ledger().executions("pay"),
        1,
        "it was paid, and nobody paid again"
    );
    server.inject(Rule::new(Fault::Cut(CutAt::AfterExecuting, End::Rst)).on_tool("pay"));
    tells!(warmline.run(&["call", &server.url(), "pay", "amount=10", "--json"]), @r#"
    exit: 4
    ----- stdout -----
    {"kind":"error","code":"answer-lost","reason":"reply-lost","delivery":"unknown","server":"127.0.0.1:[PORT]","what":"`127.0.0.1:[PORT]` sent no answer","where":"tools/call pay, [TIME] after sending","why":"Connection reset by peer (os error 104)","hint":"check whether it was executed before calling again","exit":4}
    "#);
}

#[test]
fn a_call_that_takes_too_long_may_have_run() {
    let told = Warmline::new().run(&against_demo(
        &["call", "slow", "ms=60000", "--timeout", "2s"],
        &["--era", "legacy"],
    ));
    tells!(told, @r"
    exit: 4
    ----- stderr -----
    error[deadline]: `warmline` did not answer in time
      where: tools/call slow, [TIME] after sending
      delivery: unknown (may have been executed, check before calling again)
      hint: check whether it was executed before calling again; `--timeout` allows more time
    ");
}

#[test]
fn a_call_that_never_left_is_safe_to_repeat() {
    let warmline = Warmline::new();
    tells!(warmline.run(&["call", "http://127.0.0.1:1/mcp", "pay", "amount=1"]), @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp
      why: Connection refused (os error 111)
      delivery: unsent (not executed, safe to call again)
      hint: nobody listens there: start the server, or check host and port
    ");
    tells!(warmline.run(&["call", "http://127.0.0.1:1/mcp", "pay", "--json"]), @r#"
    exit: 3
    ----- stdout -----
    {"kind":"error","code":"cannot-reach","reason":"connect-refused","delivery":"unsent","server":"127.0.0.1:[PORT]","what":"`127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp","why":"Connection refused (os error 111)","hint":"nobody listens there: start the server, or check host and port","exit":3}
    "#);
    tells!(warmline.run(&["call", "pay", "--", "no-such-program"]), @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: the program of `no-such-program` was not found: `no-such-program`
      why: searched PATH [PATH]
      delivery: unsent (not executed, safe to call again)
      hint: install it, or give its full path as `command`
    ");
}

#[test]
fn a_question_is_declined_where_nobody_can_be_asked() {
    let warmline = Warmline::new();
    tells!(warmline.run(&against_demo(&["call", "ask_form"], &["--era", "legacy"])), @r#"
    exit: 0
    ----- stdout -----
    {"answers":[{"action":"decline"}]}
    ----- stderr -----
    `warmline` asked `elicitation/create`, declined: there is no terminal to ask on
    "#);
    tells!(warmline.run(&against_demo(&["call", "ask_form"], &["--era", "modern"])), @r#"
    exit: 0
    ----- stdout -----
    {"answers":[{"action":"decline"}]}
    ----- stderr -----
    `warmline` asked `elicitation/create`, declined: there is no terminal to ask on
    "#);
    tells!(warmline.run(&against_demo(&["call", "ask_form", "--json"], &["--era", "legacy"])), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reply","server":"warmline","tool":"ask_form","era":"legacy","warm":false,"declined":[{"method":"elicitation/create","why":"there is no terminal to ask on"}],"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"answers\":[{\"action\":\"decline\"}]}","type":"text"}],"structuredContent":{"answers":[{"action":"decline"}]}}}
    "#);
    tells!(warmline.run(&against_demo(&["call", "ask_sampling"], &["--era", "legacy"])), @r"
    exit: 1
    ----- stderr -----
    error[tool-failed]: `ask_sampling` of `warmline` said no
      where: tools/call ask_sampling
      why: the client cannot be asked this
      delivery: answered
    ");
    tells!(warmline.run(&against_demo(&["call", "ask_roots"], &["--era", "legacy"])), @r"
    exit: 1
    ----- stderr -----
    error[tool-failed]: `ask_roots` of `warmline` said no
      where: tools/call ask_roots
      why: the client cannot be asked this
      delivery: answered
    ");
    tells!(warmline.run(&against_demo(&["call", "ask_roots", "--root", "."], &["--era", "legacy"])), @r#"
    exit: 0
    ----- stdout -----
    {"answers":[{"roots":[{"name":"work","uri":"file://[WORK]"}]}]}
    "#);
}

#[test]
fn the_account_shows_what_was_sent_and_hides_values() {
    let warmline = Warmline::new();
    let words = ["call", "pay", "amount=4711", "--verbose"];
    tells!(warmline.run(&against_demo(&words, &["--era", "legacy"])), @r#"
    exit: 0
    ----- stdout -----
    {"account":null,"paid":4711,"total":4711}
    ----- stderr -----
    · opening a session to `warmline`: [WARMLINE] demo-server --stdio --era legacy
    → server/discover
    ← -32601 "Method not found" (Q4)
    → initialize
    ← a result
    · open after [TIME]: legacy 2025-11-25 · stdio · one process per session
    → tools/list
    ← 24 tools after [TIME]
      arguments: amount=… (values with --show-values)
    → tools/call pay
    ← result, [N] bytes, after [TIME]
    [PAD]warmline · cold · opened [TIME] · call [TIME]
    "#);
    let words = ["call", "pay", "amount=4711", "--verbose", "--show-values"];
    let told = warmline.run(&against_demo(&words, &[]));
    assert!(told.stderr.contains(r#"{"amount":4711}"#), "{told}");
}

#[test]
fn quiet_prints_the_answer_and_nothing_else() {
    let warmline = Warmline::new();
    let told = warmline.run(&against_demo(
        &["call", "pay", "unheard=1", "amount=1", "--quiet"],
        &[],
    ));
    assert_eq!((told.exit, told.stderr.as_str()), (0, ""));
    let told = warmline.run(&against_demo(
        &["call", "pay", "unheard=1", "amount=1", "--json"],
        &[],
    ));
    let note =
        r#"{"kind":"note","what":"`pay` has no argument `unheard`; it is sent all the same"}"#;
    assert_eq!((told.exit, told.stderr.as_str()), (0, ""), "{told}");
    assert_eq!(told.stdout.lines().next(), Some(note), "{told}");
}

#[test]
fn any_method_can_be_requested() {
    let warmline = Warmline::new();
    tells!(warmline.run(&against_demo(&["request", "ping"], &["--era", "legacy"])), @r"
    exit: 0
    ----- stdout -----
    {}
    ");
    tells!(warmline.run(&against_demo(&["request", "no/such"], &["--era", "legacy"])), @r"
    exit: 1
    ----- stderr -----
    error[request-refused]: `warmline` knows no method `no/such`
      why: Method not found: no/such
      delivery: answered
      hint: see what it can do: `warmline doctor -- [WARMLINE] demo-server --stdio --era legacy`
    ");
    tells!(warmline.run(&against_demo(&["request", "ping", "--json"], &["--era", "legacy"])), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reply","server":"warmline","method":"ping","era":"legacy","open_ms":[TIME],"call_ms":[TIME],"result":{}}
    "#);
    tells!(warmline.run(&against_demo(&["request"], &[])), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: no method is named
      hint: name one, as `tools/list` or `resources/list`
    ");
}

/// What a tool is and takes can be read before it is called.
#[test]
fn one_tool_is_told_in_full() {
    let warmline = Warmline::new();
    tells!(warmline.run(&against_demo(&["tools", "note_read"], &[])), @r"
    exit: 0
    ----- stdout -----
    note_read

      Reads a note of this session

    Arguments:
      title  text

    It says of itself: read-only.

    Example:
      warmline call note_read title=… -- [WARMLINE] demo-server --stdio
    ");
    tells!(warmline.run(&against_demo(&["tools", "note_raed"], &[])), @r"
    exit: 2
    ----- stderr -----
    error[tool-unknown]: `warmline` has no tool `note_raed`
      delivery: unsent (not executed, safe to call again)
      hint: did you mean `note_read`?
    ");
    let server = server();
    tells!(warmline.run(&["tools", &server.url(), "pay"]), @r"
    exit: 0
    ----- stdout -----
    pay

      Pays. Twice is twice

    Arguments:
      amount   whole number, needed
      account  text

    It says of itself: may destroy something, running it twice counts twice.

    Example:
      warmline call http://127.0.0.1:[PORT]/mcp pay amount=1
    ");
    tells!(warmline.run(&["tools", &server.url(), "counter", "--json"]), @r#"
    exit: 0
    ----- stdout -----
    {"kind":"tool","server":"127.0.0.1:[PORT]","tool":"counter","definition":{"description":"Counts its calls in this session","inputSchema":{"properties":{},"type":"object"},"name":"counter"}}
    "#);
    tells!(warmline.run(&["tools", &server.url(), "pay", "amount=1"]), @r"
    exit: 2
    ----- stderr -----
    error[usage-bad-argument]: `amount=…` is one word too many
      hint: name a server, and one tool at most
    ");
}

/// A server may show some of its tools only to whoever can be asked something.
#[test]
fn a_list_is_asked_for_by_the_same_client_as_a_call() {
    let warmline = Warmline::new();
    let script = format!("tee -a seen | {BINARY} demo-server --stdio --era legacy");
    let declared = |words: &[&str]| {
        let told = warmline.run(&[words, &["--", "sh", "-c", &script]].concat());
        assert_eq!(told.exit, 0, "{told}");
        let seen = warmline.work().join("seen");
        let text = std::fs::read_to_string(&seen).unwrap();
        std::fs::remove_file(seen).unwrap();
        let messages = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut declared = messages
            .map(|message: serde_json::Value| message["params"]["capabilities"].clone())
            .filter(|capabilities| !capabilities.is_null());
        declared.next().unwrap()
    };
    let of_call = declared(&["call", "counter"]);
    assert!(of_call["elicitation"].is_object(), "{of_call}");
    assert_eq!(declared(&["tools"]), of_call);
    assert_eq!(declared(&["doctor"]), of_call);
}

#[test]
fn tools_are_listed_one_per_line() {
    let warmline = Warmline::new();
    let told = warmline.run(&against_demo(&["tools"], &["--era", "legacy"]));
    let line = |begins: &str| {
        let mut lines = told.stdout.lines();
        let line = lines.find(|line| line.starts_with(begins));
        line.unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    let reads = line("  note_read ");
    assert!(reads.contains("[title]") && reads.contains("read-only"));
    assert!(reads.ends_with("Reads a note of this session"), "{reads}");
    // What a program reads is not cut, whatever the terminal of its user.
    let narrow = Warmline::new()
        .with("COLUMNS", "60")
        .run(&against_demo(&["tools"], &["--era", "legacy"]));
    assert_eq!(narrow.stdout, told.stdout);
    let json = warmline.run(&against_demo(&["tools", "--json"], &[]));
    assert!(
        json.stdout
            .lines()
            .all(|line| line.starts_with(r#"{"kind":"tool","server":"#)),
        "{json}"
    );
    tells!(warmline.run(&["tools", "http://127.0.0.1:1/mcp"]), @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: `127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp
      why: Connection refused (os error 111)
      delivery: unsent (not executed, safe to call again)
      hint: nobody listens there: start the server, or check host and port
    ");
}

/// P113: all pages, and no round for ever.
#[test]
fn lists_that_come_in_pages_are_read_to_their_end_and_endless_ones_are_not() {
    let server = LedgerServer::start(Personality::legacy().page_size(2)).unwrap();
    let warmline = Warmline::new();
    let told = warmline.run(&["call", &server.url(), "pay", "amount=1"]);
    assert_eq!(told.exit, 0, "{told}");
    server.inject(Rule::new(Fault::CursorLoop).on("tools/list").always());
    let told = warmline.run(&["tools", &server.url()]);
    assert!(
        told.exit != 0 && told.stderr.contains("lists tools without end"),
        "{told}"
    );
}

/// Rules of a file hold for single commands too, inside a run and outside.
#[test]
fn what_the_rules_do_not_allow_is_neither_listed_nor_called() {
    let server = server();
    let text = format!(
        "[servers.bank]\nurl = '{}'\ndeny = ['pay*']\n\n[servers.bank.tools.slow]\ncall_timeout = '1s'\n",
        server.url()
    );
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", &text);
    tells!(warmline.run(&["call", "bank", "pay", "amount=1"]), @r"
    exit: 2
    ----- stderr -----
    error[not-allowed]: `pay` of `bank` may not be called
      delivery: unsent (not executed, safe to call again)
      hint: change the rules of this server, or call another tool
    ");
    for words in [
        &["call", "bank", "pay", "amount=1", "--run", "trip"][..],
        &["request", "bank", "tools/call", "name=pay"],
        &["request", "bank", "tools/call", "name=pay", "--run", "trip"],
    ] {
        let told = warmline.run(words);
        assert!(
            told.exit == 2
                && told
                    .stderr
                    .starts_with("error[not-allowed]: `pay` of `bank`"),
            "{told}"
        );
    }
    assert_eq!(server.counts().requests, 0, "nothing was opened");
    let listed = warmline.run(&["tools", "bank"]);
    assert!(!listed.stdout.contains("  pay "), "{listed}");
    assert_eq!(server.ledger().executions("pay"), 0);
    for words in [
        &["call", "bank", "slow", "ms=60000"][..],
        &["call", "bank", "slow", "ms=60000", "--run", "trip"],
    ] {
        let told = warmline.run(words);
        assert!(
            told.exit == 4 && told.stderr.starts_with("error[deadline]"),
            "a tool has limits of its own: {told}"
        );
    }
}
