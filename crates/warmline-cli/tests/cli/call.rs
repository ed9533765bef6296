//! `call`, `request` and `tools`: answers, costs, and what became of every call.

use crate::prelude::*;

fn server() -> LedgerServer {
    LedgerServer::start(Personality::legacy()).unwrap()
}

/// A175, A189: a URL is all that a call needs.
#[test]
fn the_answer_is_the_output() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline call pay amount=10 account=lamp -- [DEMO]
    {"account":"lamp","paid":10,"total":10}
    "#);
    let server = server();
    shows!(warmline, "[SERVER]" = server.url(), @r"
    $ warmline call [SERVER] note_write title=a text=b
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
        let output = warmline.run(&["call", &server.url(), "pay", "amount=3"]);
        output.exits(0);
        assert_eq!(server.ledger().executions("pay"), 1, "{output}");
    }
    for era in ["legacy", "modern", "auto"] {
        let output = warmline.run(&against_demo(&["call", "pay", "amount=3"], &["--era", era]));
        assert_eq!(output.exit, 0, "{era}: {output}");
    }
}

#[test]
fn an_answer_for_programs_is_one_line() {
    let output = Warmline::new().run(&against_demo(
        &["call", "counter", "--json"],
        &["--era", "legacy"],
    ));
    tells!(output, @r#"
    exit: 0
    ----- stdout -----
    {"kind":"reply","server":"warmline","tool":"counter","era":"legacy","warm":false,"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"count\":1}","type":"text"}],"structuredContent":{"count":1}}}
    "#);
}

#[test]
fn a_tool_that_says_no_has_its_own_exit_code() {
    let warmline = Warmline::new();
    shows!(warmline, @r"
    $ warmline call fail -- [DEMO]
    2> error[tool-failed]: `fail` of `warmline` returned an error
    2>   where: tools/call fail
    2>   why: this tool always fails
    2>   delivery: answered
    exit: 1
    ");
    let output = warmline.run(&against_demo(&["call", "fail", "--json"], &[]));
    output.exits(1).prints(r#""is_error":true"#);
}

/// A183: code, message and data arrive.
#[test]
fn an_error_of_the_protocol_reaches_the_reader_whole() {
    let server = server();
    let rule = || {
        FaultRule::new(Fault::Error {
            code: -32602,
            message: "amount is missing".to_owned(),
            data: serde_json::json!({"field": "amount"}),
        })
        .on_tool("pay")
    };
    server.inject(rule());
    let warmline = Warmline::new();
    shows!(warmline, "[SERVER]" = server.url(), @r#"
    $ warmline call [SERVER] pay amount=1
    2> error[tool-failed]: `127.0.0.1:[PORT]` answered tools/call pay with error -32602
    2>   why: amount is missing ({"field":"amount"})
    2>   delivery: answered
    exit: 1
    "#);
    server.inject(rule());
    shows!(warmline, "[SERVER]" = server.url(), @r#"
    $ warmline call [SERVER] pay amount=1 --json
    {"kind":"error","code":"tool-failed","delivery":"answered","server":"127.0.0.1:[PORT]","what":"`127.0.0.1:[PORT]` answered tools/call pay with error -32602","why":"amount is missing ({\"field\":\"amount\"})","exit":1}
    exit: 1
    "#);
}

/// A18, E14: a tool that is not there is named with its server.
#[test]
fn a_value_or_a_tool_that_cannot_be_meant_is_never_sent() {
    let warmline = Warmline::new();
    let server = server();
    let url = server.url();
    shows!(warmline, "[URL]" = url, @r#"
    $ warmline call [URL] pya amount=1
    2> error[tool-unknown]: `127.0.0.1:[PORT]` has no tool `pya`
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: did you mean `pay`?
    exit: 2
    $ warmline call [URL] pay amount=ten
    2> error[usage-bad-argument]: `amount` cannot be `ten`: it must be a whole number
    2>   delivery: unsent (not executed, safe to call again)
    exit: 2
    $ warmline call [URL] pay amount
    2> error[usage-bad-argument]: `amount` is not a value
    2>   hint: write KEY=VALUE, KEY:=JSON or KEY=@FILE
    exit: 2
    $ warmline call [URL] pay 'amount:={'
    2> error[usage-bad-argument]: the value of `amount` is not JSON
    2>   why: EOF while parsing an object at line 1 column 1
    2>   hint: write `amount=…` for a text, or quote JSON for the shell: 'amount:={"a":1}'
    exit: 2
    $ warmline call [URL] pay amount=@missing
    2> error[usage-bad-argument]: the file of `amount` cannot be read
    2>   where: missing
    2>   why: No such file or directory (os error 2)
    2>   hint: for a text that begins with `@` write 'amount:="@…"'
    exit: 2
    $ warmline call [URL] pay --args [1]
    2> error[usage-bad-argument]: --args is not a JSON object
    2>   where: --args
    2>   why: invalid type: sequence, expected an object at line 1 column 0
    2>   hint: write one object: --args '{"key":"value"}', --args @file or --args -
    exit: 2
    "#);
    assert_eq!(server.ledger().messages_received("tools/call"), 0);
    shows!(warmline, "[URL]" = url, @r"
    $ warmline call [URL] pay amuont=1 amount=2
    2> error[usage-bad-argument]: `pay` has no argument `amuont`
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: did you mean `amount`? If not, write 'amuont:=JSON', which is sent unchanged
    exit: 2
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
    let output = warmline.run_with_input(
        &against_demo(&["call", "echo", "--args", "-"], &[]),
        r#"{"b": 2}"#,
    );
    tells!(output, @r#"
    exit: 0
    ----- stdout -----
    {"arguments":{"b":2}}
    "#);
}

/// A128, P87: an unknown outcome is told as one.
#[test]
fn a_call_that_may_have_run_says_so() {
    let server = server();
    server.inject(
        FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst)).on_tool("pay"),
    );
    let warmline = Warmline::new();
    shows!(warmline, "[SERVER]" = server.url(), @r"
    $ warmline call [SERVER] pay amount=10
    2> error[answer-lost]: `127.0.0.1:[PORT]` sent no answer
    2>   where: tools/call pay, [TIME] after sending
    2>   why: Connection reset by peer (os error 104)
    2>   delivery: unknown (may have been executed, check before calling again)
    2>   hint: check whether it was executed before calling again
    exit: 4
    ");
    let found = server.ledger().executions("pay");
    assert_eq!(found, 1, "it was paid, and nobody paid again");
    server.inject(
        FaultRule::new(Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst)).on_tool("pay"),
    );
    shows!(warmline, "[SERVER]" = server.url(), @r#"
    $ warmline call [SERVER] pay amount=10 --json
    {"kind":"error","code":"answer-lost","reason":"reply-lost","delivery":"unknown","server":"127.0.0.1:[PORT]","what":"`127.0.0.1:[PORT]` sent no answer","where":"tools/call pay, [TIME] after sending","why":"Connection reset by peer (os error 104)","hint":"check whether it was executed before calling again","exit":4}
    exit: 4
    "#);
}

#[test]
fn a_call_that_takes_too_long_may_have_run() {
    let output = Warmline::new().run(&against_demo(
        &["call", "slow", "ms=60000", "--timeout", "2s"],
        &["--era", "legacy"],
    ));
    tells!(output, @r"
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
    shows!(warmline, @r#"
    $ warmline call http://127.0.0.1:[PORT]/mcp pay amount=1
    2> error[cannot-reach]: `127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp
    2>   why: Connection refused (os error 111)
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: nothing listens there: start the server, or check host and port
    exit: 3
    $ warmline call http://127.0.0.1:[PORT]/mcp pay --json
    {"kind":"error","code":"cannot-reach","reason":"connect-refused","delivery":"unsent","server":"127.0.0.1:[PORT]","what":"`127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp","why":"Connection refused (os error 111)","hint":"nothing listens there: start the server, or check host and port","exit":3}
    exit: 3
    $ warmline call pay -- no-such-program
    2> error[cannot-reach]: the program of `no-such-program` was not found: `no-such-program`
    2>   why: searched PATH [PATH]
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: install it, or give its full path as `command`
    exit: 3
    "#);
}

#[test]
fn a_question_is_declined_where_nobody_can_be_asked() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline call ask_form -- [DEMO] --era legacy
    {"answers":[{"action":"decline"}]}
    2> `warmline` asked `elicitation/create`, declined: there is no terminal to ask on
    $ warmline call ask_form -- [DEMO] --era modern
    {"answers":[{"action":"decline"}]}
    2> `warmline` asked `elicitation/create`, declined: there is no terminal to ask on
    $ warmline call ask_form --json -- [DEMO] --era legacy
    {"kind":"reply","server":"warmline","tool":"ask_form","era":"legacy","warm":false,"declined":[{"method":"elicitation/create","why":"there is no terminal to ask on"}],"open_ms":[TIME],"call_ms":[TIME],"delivery":"answered","is_error":false,"result":{"content":[{"text":"{\"answers\":[{\"action\":\"decline\"}]}","type":"text"}],"structuredContent":{"answers":[{"action":"decline"}]}}}
    $ warmline call ask_sampling -- [DEMO] --era legacy
    2> error[tool-failed]: `ask_sampling` of `warmline` returned an error
    2>   where: tools/call ask_sampling
    2>   why: the client cannot be asked this
    2>   delivery: answered
    exit: 1
    $ warmline call ask_roots -- [DEMO] --era legacy
    2> error[tool-failed]: `ask_roots` of `warmline` returned an error
    2>   where: tools/call ask_roots
    2>   why: the client cannot be asked this
    2>   delivery: answered
    exit: 1
    $ warmline call ask_roots --root . -- [DEMO] --era legacy
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
    let output = warmline.run(&against_demo(&words, &[]));
    output.says(r#"{"amount":4711}"#);
}

#[test]
fn quiet_prints_the_answer_and_nothing_else() {
    let warmline = Warmline::new();
    let output = warmline.run(&against_demo(
        &["call", "pay", "unheard=1", "amount=1", "--quiet"],
        &[],
    ));
    assert_eq!((output.exit, output.stderr.as_str()), (0, ""));
    let output = warmline.run(&against_demo(
        &["call", "pay", "unheard=1", "amount=1", "--json"],
        &[],
    ));
    let note = r#"{"kind":"note","what":"`pay` has no argument `unheard`; it is sent anyway"}"#;
    output.succeeds();
    assert_eq!(output.stdout.lines().next(), Some(note), "{output}");
}

#[test]
fn any_method_can_be_requested() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline request ping -- [DEMO] --era legacy
    {}
    $ warmline request no/such -- [DEMO] --era legacy
    2> error[request-refused]: `warmline` has no method `no/such`
    2>   why: Method not found: no/such
    2>   delivery: answered
    2>   hint: see its capabilities: `warmline doctor -- [WARMLINE] demo-server --stdio --era legacy`
    exit: 1
    $ warmline request ping --json -- [DEMO] --era legacy
    {"kind":"reply","server":"warmline","method":"ping","era":"legacy","open_ms":[TIME],"call_ms":[TIME],"result":{}}
    $ warmline request -- [DEMO]
    2> error[usage-bad-argument]: no method given
    2>   hint: name one, such as `tools/list` or `resources/list`
    exit: 2
    "#);
}

/// What a tool is and takes can be read before it is called.
#[test]
fn one_tool_is_told_in_full() {
    let warmline = Warmline::new();
    shows!(warmline, @r"
    $ warmline tools note_read -- [DEMO]
    note_read

      Reads a note of this session

    Arguments:
      title  text

    The server says: read-only.

    Example:
      warmline call note_read title=… -- [WARMLINE] demo-server --stdio
    $ warmline tools note_raed -- [DEMO]
    2> error[tool-unknown]: `warmline` has no tool `note_raed`
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: did you mean `note_read`?
    exit: 2
    ");
    let server = server();
    shows!(warmline, "[SERVER]" = server.url(), @r#"
    $ warmline tools [SERVER] pay
    pay

      Pays. Twice is twice

    Arguments:
      amount   whole number, required
      account  text

    The server says: may destroy something, running it twice counts twice.

    Example:
      warmline call http://127.0.0.1:[PORT]/mcp pay amount=1
    $ warmline tools [SERVER] counter --json
    {"kind":"tool","server":"127.0.0.1:[PORT]","tool":"counter","definition":{"description":"Counts its calls in this session","inputSchema":{"properties":{},"type":"object"},"name":"counter"}}
    $ warmline tools [SERVER] pay amount=1
    2> error[usage-bad-argument]: unexpected argument `amount=…`
    2>   hint: give a server, and at most one tool
    exit: 2
    "#);
}

/// A server may show some of its tools only to whoever can be asked something.
#[test]
fn a_list_is_asked_for_by_the_same_client_as_a_call() {
    let warmline = Warmline::new();
    let script = format!("tee -a seen | {BINARY} demo-server --stdio --era legacy");
    let declared = |words: &[&str]| {
        let output = warmline.run(&[words, &["--", "sh", "-c", &script]].concat());
        output.exits(0);
        let seen = warmline.work().join("seen");
        let text = std::fs::read_to_string(&seen).unwrap();
        std::fs::remove_file(seen).unwrap();
        let messages = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut declared = messages
            .map(|message: Value| message["params"]["capabilities"].clone())
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
    let output = warmline.run(&against_demo(&["tools"], &["--era", "legacy"]));
    let line = |begins: &str| {
        let mut lines = output.stdout.lines();
        let line = lines.find(|line| line.starts_with(begins));
        line.unwrap_or_else(|| panic!("{output}")).to_owned()
    };
    let reads = line("  note_read ");
    assert!(reads.contains("[title]") && reads.contains("read-only"));
    assert!(reads.ends_with("Reads a note of this session"), "{reads}");
    // What a program reads is not cut, whatever the terminal of its user.
    let narrow = Warmline::new()
        .with("COLUMNS", "60")
        .run(&against_demo(&["tools"], &["--era", "legacy"]));
    assert_eq!(narrow.stdout, output.stdout);
    let json = warmline.run(&against_demo(&["tools", "--json"], &[]));
    assert!(
        json.stdout
            .lines()
            .all(|line| line.starts_with(r#"{"kind":"tool","server":"#)),
        "{json}"
    );
    shows!(warmline, @r"
    $ warmline tools http://127.0.0.1:[PORT]/mcp
    2> error[cannot-reach]: `127.0.0.1:[PORT]` could not be reached at http://127.0.0.1:[PORT]/mcp
    2>   why: Connection refused (os error 111)
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: nothing listens there: start the server, or check host and port
    exit: 3
    ");
}

/// P113: all pages, and no round for ever.
#[test]
fn lists_that_come_in_pages_are_read_to_their_end_and_endless_ones_are_not() {
    let server = LedgerServer::start(Personality::legacy().page_size(2)).unwrap();
    let warmline = Warmline::new();
    let output = warmline.run(&["call", &server.url(), "pay", "amount=1"]);
    output.exits(0);
    server.inject(
        FaultRule::new(Fault::CursorLoop)
            .on_method("tools/list")
            .always(),
    );
    let output = warmline.run(&["tools", &server.url()]);
    output.fails().says("lists tools without end");
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
    shows!(warmline, @r"
    $ warmline call bank pay amount=1
    2> error[not-allowed]: `pay` of `bank` is not allowed
    2>   delivery: unsent (not executed, safe to call again)
    2>   hint: change the rules of this server, or call another tool
    exit: 2
    ");
    for words in [
        &["call", "bank", "pay", "amount=1", "--run", "trip"][..],
        &["request", "bank", "tools/call", "name=pay"],
        &["request", "bank", "tools/call", "name=pay", "--run", "trip"],
    ] {
        let output = warmline.run(words);
        output
            .exits(2)
            .says_first("error[not-allowed]: `pay` of `bank`");
    }
    assert_eq!(server.counts().requests, 0, "nothing was opened");
    let listed = warmline.run(&["tools", "bank"]);
    listed.does_not_print("  pay ");
    assert_eq!(server.ledger().executions("pay"), 0);
    for words in [
        &["call", "bank", "slow", "ms=60000"][..],
        &["call", "bank", "slow", "ms=60000", "--run", "trip"],
    ] {
        warmline.run(words).exits(4).says_first("error[deadline]");
    }
}
