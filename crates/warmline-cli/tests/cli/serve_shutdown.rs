//! How `warmline serve` stops: every call has an ending, every session is ended, no program stays.

use crate::prelude::*;

use warmline_testkit::FaultTiming;

use crate::background::processes_of;

/// A gateway with an audit, in front of one server.
struct Stage {
    warmline: Warmline,
    server: LedgerServer,
    serving: Serving,
}

/// Where calls of a stage go: outside of any run, and inside of one.
const PATHS: [&str; 2] = ["/servers/busy/mcp", "/runs/trip/servers/busy/mcp"];

impl Stage {
    fn set(limits: &str) -> Self {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        let warmline = Warmline::new();
        let audit = warmline.work().join("audit");
        let text = format!(
            "{limits}[audit]\nfile = '{}'\n[servers.busy]\nurl = '{}'\n",
            audit.display(),
            server.url()
        );
        warmline.write_user("warmline.toml", &text);
        let serving = Serving::start(&warmline, &["--auth", "none"]);
        Self {
            warmline,
            server,
            serving,
        }
    }

    /// What became of a call on each path when the gateway was told these.
    fn stopped_by(
        self,
        signals: &[Signal],
    ) -> (Vec<Value>, CommandOutput, LedgerServer, Vec<Value>) {
        let base = self.serving.base();
        let address = base.strip_prefix("http://").unwrap().to_owned();
        let calling = PATHS.map(|path| {
            let address = address.clone();
            std::thread::spawn(move || answered(&address, path))
        });
        until("the calls began", || {
            self.server.ledger().started_executions("slow") == PATHS.len()
        });
        for signal in signals {
            self.serving.tell(*signal);
        }
        let output = self.serving.ended(&self.warmline);
        let answers = calling.map(|calling| calling.join().unwrap());
        let calls = calls_of(&self.warmline);
        (answers.into(), output, self.server, calls)
    }
}

/// What the audit says of calls.
fn calls_of(warmline: &Warmline) -> Vec<Value> {
    let audit = std::fs::read_to_string(warmline.work().join("audit")).unwrap();
    let audit = audit
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let calls = audit.filter(|line: &Value| line["method"] == "tools/call");
    calls.collect()
}

/// A connection on which little is taken before it is read.
fn narrow(address: &str) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let socket = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(64 << 10).unwrap();
        let socket = socket.connect(address.parse().unwrap()).await.unwrap();
        socket.into_std().unwrap()
    });
    socket.set_nonblocking(false).unwrap();
    socket
}

/// A call, of which nothing is read yet.
fn asked(address: &str, path: &str, params: &Value) -> TcpStream {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params });
    let body = body.to_string();
    let mut socket = narrow(address);
    let accept = match params.get("_meta") {
        Some(_) => "application/json, text/event-stream",
        None => "application/json",
    };
    write!(
        socket,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Accept: {accept}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    socket
}

/// The answer to a call that takes longer than any test.
fn answered(address: &str, path: &str) -> Value {
    let params = json!({ "name": "slow", "arguments": { "ms": 120_000 } });
    let mut socket = asked(address, path, &params);
    let mut said = String::new();
    socket.read_to_string(&mut said).unwrap();
    let (_, body) = said.split_once("\r\n\r\n").unwrap_or_default();
    serde_json::from_str(body).unwrap_or_else(|_| panic!("no answer on {path}: {said:?}"))
}

/// Everybody was told, and nothing is left.
fn all_was_told(
    (answers, told, server, audit): (Vec<Value>, CommandOutput, LedgerServer, Vec<Value>),
) {
    for answer in &answers {
        assert_eq!(answer["id"], 7, "{answer}");
        assert_eq!(answer["error"]["code"], 7503, "{answer}");
        let known = &answer["error"]["data"]["warmline"];
        assert_eq!(known["delivery"], "unknown", "{answer}");
        assert_eq!(known["reason"], "draining", "{answer}");
    }
    told.exits(3).says(r#""cut":2"#);
    // Whoever keeps the log reads objects, also of the stop.
    for line in told.stderr.lines() {
        let object: Result<Value, _> = serde_json::from_str(line);
        assert!(object.is_ok(), "{line}");
    }
    told.says(r#""under_way":2"#);
    let ledger = server.ledger();
    let received = ledger.messages_received("notifications/cancelled");
    assert_eq!(received, answers.len());
    // The session of the run is left to its record.
    assert_eq!(ledger.messages_received("DELETE"), 1);
    assert_eq!(server.counts().open_sessions, 1);
    assert_eq!(audit.len(), answers.len(), "{audit:?}");
    for line in &audit {
        assert_eq!(line["delivery"], "unknown", "{line}");
        assert_eq!(line["code"], "draining", "{line}");
    }
}

/// reliability O1b: calls that outlast the time for closing are cancelled and told that nobody
/// knows, inside of runs and outside.
#[test]
fn calls_that_outlast_the_stop_are_told_that_nobody_knows() {
    let stage = Stage::set("[limits]\ndrain = '3s'\n");
    all_was_told(stage.stopped_by(&[Signal::TERM]));
}

/// reliability O1b: the second signal does the same, at once.
#[test]
fn a_second_signal_tells_every_call_before_it_ends() {
    let stage = Stage::set("");
    all_was_told(stage.stopped_by(&[Signal::TERM, Signal::INT]));
}

/// reliability O1b: a call whose client reads nothing of it is cut like any other, counted once, and
/// has its line in the log and in the audit.
#[test]
fn a_call_of_which_nothing_is_read_is_cut_when_the_time_is_over() {
    let stage = Stage::set("[limits]\ndrain = '3s'\n");
    let base = stage.serving.base();
    let address = base.strip_prefix("http://").unwrap();
    let reports = json!({ "steps": 400, "bytes": 100_000, "pause_ms": 0 });
    let meta = json!({ "progressToken": "mine" });
    let params = json!({ "name": "progress", "arguments": reports, "_meta": meta });
    let unread = asked(address, PATHS[1], &params);
    until("the call is done", || {
        stage.server.ledger().executions("progress") == 1
    });
    stage.serving.tell(Signal::TERM);
    let output = stage.serving.ended(&stage.warmline);
    output.exits(3).says(r#""cut":1"#).says("call failed");
    let audit = calls_of(&stage.warmline);
    assert_eq!(audit.len(), 1, "{audit:?}");
    assert_eq!(audit[0]["delivery"], "unknown", "{audit:?}");
    assert_eq!(audit[0]["code"], "draining", "{audit:?}");
    drop(unread);
}

/// A large answer, of which the first megabyte is read, and the gateway that gives it.
fn half_read(limits: &str) -> (Stage, TcpStream, usize) {
    const BYTES: usize = 12 << 20;
    let stage = Stage::set(limits);
    let base = stage.serving.base();
    let address = base.strip_prefix("http://").unwrap();
    let params = json!({ "name": "big", "arguments": { "bytes": BYTES } });
    let mut reading = asked(address, PATHS[0], &params);
    let mut read = 0;
    while read < 1 << 20 {
        read += some_of(&mut reading);
    }
    (stage, reading, read)
}

/// Reads what is there, up to what a slow line carries at a time; nothing at the end.
fn some_of(reading: &mut TcpStream) -> usize {
    reading.read(&mut vec![0; 64 << 10]).unwrap_or(0)
}

/// reliability O1: a call is over when its caller has the answer. Who reads slowly has the time that
/// calls have.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the client is on a slow line; nothing is waited for"
)]
fn a_large_answer_leaves_whole_before_the_gateway_ends() {
    let (stage, mut reading, mut read) = half_read("");
    stage.serving.tell(Signal::TERM);
    loop {
        // As on a line of 3 MB/s: what is left takes longer than it takes to close.
        std::thread::sleep(Duration::from_millis(20));
        match some_of(&mut reading) {
            0 => break,
            more => read += more,
        }
    }
    assert!(read > 12 << 20, "{read} bytes came");
    let output = stage.serving.ended(&stage.warmline);
    output.exits(0).says(r#""cut":0"#);
}

/// reliability O1b: an answer that its client does not take in time is cut, and said to be; a second
/// signal does not wait for it.
#[test]
fn an_answer_that_does_not_leave_in_time_was_cut() {
    for (limits, signals) in [
        ("[limits]\ndrain = '3s'\n", &[Signal::TERM][..]),
        ("", &[Signal::TERM, Signal::INT]),
    ] {
        let (stage, unread, _) = half_read(limits);
        for signal in signals {
            stage.serving.tell(*signal);
        }
        let output = stage.serving.ended(&stage.warmline);
        output.exits(3).says(r#""cut":1"#);
        drop(unread);
    }
}

/// P33, reliability O1b: a program that heeds neither the end of its input nor a signal is killed,
/// and the gateway waits for that.
#[test]
fn no_program_outlives_the_gateway() {
    // It goes on after its server has ended, and heeds no signal to end.
    let script = "trap '' TERM; \"$@\"; while :; do sleep 1; done";
    std::thread::scope(|scope| {
        for (mark, signals) in [
            ("mark-of-one-signal", &[Signal::TERM][..]),
            ("mark-of-two-signals", &[Signal::TERM, Signal::INT]),
        ] {
            scope.spawn(move || {
                let warmline = Warmline::new();
                // Not on its own command line, which would be found as well.
                let command = ["sh", "-c", script, mark, BINARY, "demo-server"];
                let mut command = command.to_vec();
                command.extend(["--stdio", "--era", "legacy"]);
                let text = format!("[servers.deaf]\nera = 'legacy'\ncommand = {command:?}\n");
                warmline.write_user("warmline.toml", &text);
                let serving = Serving::start(&warmline, &["--auth", "none"]);
                let url = format!("{}/runs/trip/servers/deaf/mcp", serving.base());
                warmline.run(&["call", &url, "counter"]).exits(0);
                assert_eq!(processes_of(mark), 1);
                for signal in signals {
                    serving.tell(*signal);
                }
                let output = serving.ended(&warmline);
                let left = processes_of(mark);
                assert_eq!((output.exit, left), (0, 0), "{mark}: {output}");
            });
        }
    });
}

/// reliability O1, O1b: a gateway that still waits for a server without which it does not begin is
/// stopped like one that listens, and its programs with it.
#[test]
fn a_gateway_that_waits_for_a_required_server_stops_when_it_is_told() {
    std::thread::scope(|scope| {
        for (mark, signals) in [
            ("mark-of-a-term", &[Signal::TERM][..]),
            ("mark-of-an-int", &[Signal::INT]),
            ("mark-of-one-more-signal", &[Signal::TERM, Signal::INT]),
        ] {
            scope.spawn(move || {
                let warmline = Warmline::new();
                // It says nothing, and heeds no signal to end.
                let script = "trap '' TERM; while :; do sleep 1; done";
                let command = ["sh", "-c", script, mark];
                let text = format!("[servers.silent]\nrequired = true\ncommand = {command:?}\n");
                warmline.write_user("warmline.toml", &text);
                let words = ["serve", "--json", "--listen", "127.0.0.1:0"];
                let mut command = warmline.command(&words);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                let child = command.spawn().unwrap();
                until("the program runs", || processes_of(mark) == 1);
                let told_at = warmline_platform::clock::now();
                for signal in signals {
                    kill_process(Pid::from_child(&child), *signal).unwrap();
                }
                let output = warmline.told(&child.wait_with_output().unwrap());
                let left = processes_of(mark);
                assert_eq!((output.exit, left), (0, 0), "{mark}: {output}");
                assert!(
                    output.stderr.contains("before it began"),
                    "{mark}: {output}"
                );
                let holds = told_at.elapsed() < Duration::from_secs(24);
                assert!(holds, "{mark}: {output}");
            });
        }
    });
}

/// reliability O1b, mcp-spec 6.6.4: who listens is told that it ends; nothing was cut with that.
#[test]
fn a_client_that_listens_is_told_the_end_and_is_no_call_that_was_cut() {
    for signals in [&[Signal::TERM][..], &[Signal::TERM, Signal::INT]] {
        let server = LedgerServer::start(Personality::modern()).unwrap();
        let warmline = Warmline::new();
        let text = format!("[servers.news]\nurl = '{}'\n", server.url());
        warmline.write_user("warmline.toml", &text);
        let serving = Serving::start(&warmline, &["--auth", "none"]);
        let base = serving.base();
        let mut stream = listening(base.strip_prefix("http://").unwrap());
        until("it listens", || server.control().open_listens() == 1);
        for signal in signals {
            serving.tell(*signal);
        }
        let output = serving.ended(&warmline);
        output
            .exits(0)
            .says(r#""cut":0"#)
            .does_not_say("call failed");
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert!(said.contains(r#""resultType":"complete""#), "{said}");
    }
}

/// A stream on which a client listens.
fn listening(address: &str) -> TcpStream {
    let params = json!({
        "notifications": { "resourceSubscriptions": ["ledger://page/1"] },
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    let body = json!({
        "jsonrpc": "2.0", "id": "L", "method": "subscriptions/listen", "params": params,
    });
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).unwrap();
    write!(
        socket,
        "POST /servers/news/mcp HTTP/1.1\r\nHost: {address}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    socket
}

/// reliability O1: a look of our own is nobody's call. A list that whoever asked for it left is not
/// waited for, and is no call that was cut.
#[test]
fn a_list_that_nobody_waits_for_holds_up_no_stop() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let hangs =
        FaultRule::new(Fault::Silence(FaultTiming::BeforeExecuting)).on_method("tools/list");
    server.inject(hangs.always());
    let warmline = Warmline::new();
    let text = format!("[servers.hung]\nera = 'modern'\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let serving = Serving::start(&warmline, &["--auth", "none"]);
    let base = serving.base();
    let address = base.strip_prefix("http://").unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let body = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": { "_meta": meta },
    });
    let body = body.to_string();
    let mut socket = TcpStream::connect(address).unwrap();
    write!(
        socket,
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: tools/list\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let asked = || server.ledger().messages_received("tools/list");
    until("the list is asked for", || asked() == 1);
    drop(socket);
    serving.tell(Signal::TERM);
    let output = serving.ended(&warmline);
    // Whatever is waited for and does not end is cut, and that is exit code 3.
    output.exits(0).says(r#""cut":0"#);
}
