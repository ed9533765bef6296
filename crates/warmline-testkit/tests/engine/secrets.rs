//! A canary for every kind of secret: none of them is ever heard again.

use crate::prelude::*;

use http::header;

use super::log_capture::Logbook;

/// What people would not want to read anywhere.
const CANARIES: [&str; 6] = [
    "canary-token",
    "canary-static-header",
    "canary-of-a-call",
    "canary-cookie",
    "canary-variable",
    "canary-query",
];

/// Every way in which a call of this story goes wrong.
fn faults() -> [Fault; 7] {
    [
        Fault::Reply(CannedReply::new(401, "canary-token is not known")),
        Fault::Reply(CannedReply::new(403, "canary-static-header, go away")),
        Fault::Reply(CannedReply::new(500, "canary-of-a-call broke us")),
        Fault::Reply(CannedReply::new(200, "").json()),
        Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst),
        Fault::ForgetSessions,
        Fault::Error {
            code: -32000,
            message: "no".to_owned(),
            data: json!(null),
        },
    ]
}

/// An error as it is printed, the server's own words included.
fn printed(error: &Error) -> String {
    format!("{error} {error:?}")
}

/// reliability P30, A31, A66: neither tokens, headers, cookies, variables nor session ids stand in a line
/// of the log at any level, in an event, an error, a snapshot or anything that is printed; and no
/// identity does.
#[tokio::test]
async fn no_canary_is_heard_anywhere() {
    let (book, guard) = Logbook::open();
    let server = LedgerServer::start(Personality::legacy().token("canary-token")).unwrap();
    let program = Program::ledger(&["--personality", "legacy"]);
    let declared = Server::http("lamp", format!("{}?key=canary-query", server.url()))
        .header("X-Key", "canary-static-header")
        .header("Authorization", "Bearer canary-static-header")
        .bearer(Secret::new("canary-token"));
    let child = program.declared("child").env("CANARY", "canary-variable");
    let mut told = format!("{declared:?} {child:?}");
    let warm = Warmline::builder()
        .server(declared)
        .server(child)
        .store(MemoryStore::default())
        .build()
        .unwrap();
    let mut events = warm.events();
    let cookie = [(header::COOKIE, HeaderValue::from_static("canary-cookie"))];
    let who = warm
        .identity_from_headers(&cookie.into_iter().collect())
        .unwrap();
    let run = who.begin_run();
    let lamp = run.server("lamp").unwrap();
    let mut ids = Vec::new();
    for fault in faults() {
        server.inject(FaultRule::new(fault).on_tool("pay").always());
        let call = lamp.call("pay", json!({ "amount": 1 }));
        let call = call.header("X-Call", "canary-of-a-call");
        match call.timeout(Duration::from_secs(2)).await {
            Err(error) => told.push_str(&printed(&error)),
            Ok(paid) => told.push_str(&format!("{paid:?}")),
        }
        server.control().clear_faults();
        lamp.call("echo", json!({})).await.unwrap().ok().unwrap();
        ids.extend(lamp.current_session().and_then(|held| held.id));
        told.push_str(&serde_json::to_string(&warm.snapshot()).unwrap());
        told.push_str(&format!("{lamp:?} {run:?} {who:?} {warm:?}"));
    }
    let crashed = run.server("child").unwrap().call("crash", json!({})).await;
    told.push_str(&format!("{:?}", crashed.unwrap_err()));
    run.end().await;
    warm.close().await;
    drop((warm, who, lamp));
    while let Some(heard) = events.next().await {
        told.push_str(&format!("{heard:?}"));
    }
    program.gone().await;
    nothing_left().await;
    drop(guard);
    let lines = book.lines();
    assert!(lines.len() > 20, "something was logged: {lines:#?}");
    told.push_str(&lines.join("\n"));
    assert!(!ids.is_empty());
    for hidden in CANARIES.into_iter().chain(ids.iter().map(String::as_str)) {
        let place = told.find(hidden);
        let around = place.map(|at| told.get(at.saturating_sub(300)..at + 60));
        assert_eq!(around, None, "{hidden} was told");
    }
}

/// A66, reliability P30: a server or a program that repeats its secret in the error of a call tells
/// nobody, in whatever way its JSON spells it. What it answers otherwise is its caller's.
#[tokio::test]
async fn no_canary_is_heard_in_the_error_of_a_call() {
    const SECRET: &str = "aB3/kL9+canary==";
    let spelled = [
        SECRET.to_owned(),
        SECRET.replace('/', r"\/"),
        SECRET.replace('+', r"\u002B").replace('=', r"\u003d"),
        SECRET
            .chars()
            .map(|letter| format!(r"\u{:04x}", u32::from(letter)))
            .collect(),
        SECRET.replace('+', r"\\u002B"),
    ];
    for secret in spelled {
        let error = format!(
            r#"{{"jsonrpc":"2.0","id":$ID,"error":{{"code":-32000,"message":"bad {secret}!","data":["{secret}"]}}}}"#
        );
        let rule = FaultRule::new(Fault::Reply(CannedReply::new(200, &error).json()));
        let rule = rule.on_tool("pay").always();
        let fault = serde_json::to_string(&rule).unwrap();
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        server.inject(rule);
        let program = Program::ledger(&["--personality", "legacy", "--fault", &fault]);
        let warm = Warmline::builder()
            .server(Server::http("lamp", server.url()).bearer(Secret::new(SECRET)))
            .server(program.declared("child").env("CANARY", SECRET))
            .build()
            .unwrap();
        let run = warm.begin_run();
        for name in ["lamp", "child"] {
            let called = run.server(name).unwrap();
            let refused = called.call("pay", json!({ "amount": 1 })).await;
            let told = printed(&refused.unwrap_err());
            assert!(told.contains("bad [redacted: "), "{name}: {told}");
            assert!(!told.contains("kL9"), "{name}: {told}");
            let echoed = called.call("echo", json!({ "text": SECRET })).await;
            let echoed = echoed.unwrap().structured::<Value>().unwrap();
            assert_eq!(echoed["arguments"]["text"], SECRET, "{name}");
        }
        run.end().await;
        warm.close().await;
        program.gone().await;
    }
    nothing_left().await;
}
