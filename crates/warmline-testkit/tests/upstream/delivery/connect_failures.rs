//! Before anything left, connecting, and connections that end: D8 to D30 of the delivery table.
//!
//! Not here:
//! - D1 to D7, D9, D14 belong to what stands above one attempt (queue, breaker, policy).
//! - D10: a limit of descriptors would be met by every test of this process.
//! - D13, no route: loopback has none to lose; the silent half is here.
//! - D15, D16: `tls.rs`.
//! - D23: `uploads.rs`.
//! - D17: early data is never used. D18: there is no forward proxy yet.
//! - D31 to D38: HTTP/2.

use crate::prelude::*;

use tokio::net::TcpSocket;
use warmline_testkit::proxy::AcceptMode;

use super::fixture::Expected::{self, Result, Unknown, Unsent};

fn on_payment(fault: Fault) -> FaultRule {
    FaultRule::new(fault).on_tool("pay")
}

/// A port that nobody listens at.
async fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// A listener whose queue is full, so that the kernel drops every further knock (D13). The
/// sockets keep it full.
async fn full_listener(at: SocketAddr) -> (TcpListener, Vec<TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(at).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    let knock = Duration::from_millis(200);
    while let Ok(connected) = tokio::time::timeout(knock, TcpStream::connect(address)).await {
        waiting.push(connected.unwrap());
        assert!(waiting.len() < 64, "the queue never fills");
    }
    (listener, waiting)
}

/// A33, E11: no name, nobody there, no answer to a knock: each is told as such.
#[tokio::test]
async fn a_server_that_cannot_be_reached_gives_no_session_and_says_why() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.connect = Duration::from_millis(300);
    let closed = closed_port().await;
    let (full, _waiting) = full_listener("127.0.0.1:0".parse().unwrap()).await;
    let full = full.local_addr().unwrap();
    // A label of 64 letters is no name: no resolver is asked, here or elsewhere.
    let nowhere = format!("http://{}.invalid/mcp", "a".repeat(64));
    let table = [
        ("D11", nowhere, Reason::Dns),
        (
            "D12",
            format!("http://{closed}/mcp"),
            Reason::ConnectRefused,
        ),
        ("D13", format!("http://{full}/mcp"), Reason::ConnectTimeout),
    ];
    for (row, url, reason) in table {
        setting.through(&url);
        let trouble = setting.try_open().await.unwrap_err();
        assert_eq!(trouble.reason, reason, "{row}: {trouble:?}");
        assert_eq!(trouble.code, Code::CannotReach, "{row}: {trouble:?}");
        assert!(trouble.message.contains("`ledger`"), "{row}: {trouble}");
    }
    assert!(setting.server.ledger().entries().is_empty());
    setting.finish().await;
}

/// E5, reliability P7: an opening that fails, however, sends nothing of the caller.
#[tokio::test]
async fn a_session_that_could_not_be_opened_sent_nothing_of_the_caller() {
    let setting = Setting::legacy();
    let table = [
        (
            "cut off",
            Fault::Cut(CutPoint::AfterExecuting, ConnectionEnd::Rst),
            Reason::ReplyLost,
        ),
        (
            "a page",
            Fault::Reply(CannedReply::new(200, "<html>").header("Content-Type", "text/html")),
            Reason::NotMcp,
        ),
        (
            "busy",
            Fault::Reply(CannedReply::new(429, "")),
            Reason::RateLimited,
        ),
        (
            "other version",
            Fault::Version("1999-01-01".to_owned()),
            Reason::Version,
        ),
    ];
    for (account, fault, reason) in table {
        // Twice, because a handshake that broke off is tried once more.
        setting.inject(FaultRule::new(fault).on_method("initialize").times(2));
        let opened = setting.try_open().await;
        let trouble = opened
            .err()
            .unwrap_or_else(|| panic!("D8 {account}: it opened"));
        assert_eq!(trouble.reason, reason, "D8 {account}: {trouble:?}");
        setting.server.control().clear_faults();
        setting.pay(account, &()).await;
    }
    assert_eq!(setting.server.ledger().executions("pay"), 4);
    setting.finish().await;
}

/// reliability P7: what was not sent was not executed, and comes back.
#[tokio::test]
async fn a_server_that_went_away_gets_nothing_and_the_request_comes_back() {
    let setting = Setting::legacy();
    let session = setting.session().await;
    setting.server.stop();
    let ending = session.call(payment("D12"), &()).await;
    let mut outcome = setting.told("D12", ending);
    outcome.ends(Unsent(Reason::ConnectRefused));
    setting.server.start_again().unwrap();
    setting.go_on("D12", &mut outcome).await;
    setting.finish().await;
}

/// A48, A161, E27, P14, P61: a broken connection keeps the session and costs no call.
#[tokio::test]
async fn a_connection_that_died_at_rest_is_replaced_without_a_word() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        let session = setting.session().await;
        for round in 0..20 {
            setting.server.stop();
            setting.server.start_again().unwrap();
            let account = format!("D19 {round}");
            let outcome = setting.told(&account, session.call(payment(&account), &()).await);
            assert_eq!(outcome.ended, Result, "{account}: {:?}", outcome.trouble);
        }
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_connection_that_is_reset_at_the_door_is_never_called_executed() {
    let mut setting = Setting::legacy();
    let proxy = FaultProxy::start(setting.server.address()).unwrap();
    setting.through(&proxy.proxied_url(&setting.server.url()));
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    proxy.set_accept_mode(AcceptMode::Reset);
    for round in 0..50 {
        let account = format!("D20 {round}");
        let outcome = setting.told(&account, session.call(payment(&account), &()).await);
        // Whether the reset came before or after the body was asked for is a race; what the
        // caller is told must be true either way.
        let expected = [
            Unsent(Reason::Unreachable),
            Unsent(Reason::WriteFailed),
            Unknown(Reason::ReplyLost),
        ];
        let holds = expected.contains(&outcome.ended);
        assert!(holds, "{account}: {:?}", outcome.trouble);
    }
    proxy.restore();
    assert_eq!(setting.server.ledger().executions("pay"), 0);
    setting.finish().await;
}

/// Connections that end after the whole request left us: nobody can tell what became of it.
#[rustfmt::skip]
fn ends() -> Vec<(&'static str, Fault, Expected)> {
    let lost = Unknown(Reason::ReplyLost);
    let cut = Fault::Cut;
    vec![
        ("D21 read, FIN",        cut(CutPoint::BeforeExecuting, ConnectionEnd::Fin), lost),
        ("D21 read, RST",        cut(CutPoint::BeforeExecuting, ConnectionEnd::Rst), lost),
        ("D21 done, FIN",        cut(CutPoint::AfterExecuting, ConnectionEnd::Fin),  lost),
        ("D21 done, RST",        cut(CutPoint::AfterExecuting, ConnectionEnd::Rst),  lost),
        ("D26 in head, FIN",     cut(CutPoint::InHead, ConnectionEnd::Fin),          lost),
        ("D26 in head, RST",     cut(CutPoint::InHead, ConnectionEnd::Rst),          lost),
        ("D26 not HTTP",         Fault::Reply(CannedReply::raw("220 mail.example ESMTP\r\n\r\n").execute_first()), Unknown(Reason::BadReply)),
        ("D27 after head, FIN",  cut(CutPoint::AfterHead, ConnectionEnd::Fin),       lost),
        ("D27 after head, RST",  cut(CutPoint::AfterHead, ConnectionEnd::Rst),       lost),
        ("D27 in body, FIN",     cut(CutPoint::InBody(30), ConnectionEnd::Fin),      lost),
        ("D27 in body, RST",     cut(CutPoint::InBody(30), ConnectionEnd::Rst),      lost),
        ("D73 1xx, then cut",    Fault::Reply(CannedReply::raw("HTTP/1.1 102 Processing\r\n\r\n").execute_first()), lost),
    ]
}

/// P84, reliability P6: a reply that is lost says nothing of the request.
#[tokio::test]
async fn a_kept_connection_that_ends_in_the_middle_leaves_the_request_unknown() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        for (account, fault, expected) in ends() {
            setting.row(account, on_payment(fault), expected).await;
        }
        setting.finish().await;
    }
}

/// P84, reliability P6: the same on a fresh connection.
#[tokio::test]
async fn a_fresh_connection_that_ends_in_the_middle_leaves_the_request_unknown() {
    for setting in [Setting::legacy, Setting::modern] {
        let mut setting = setting();
        setting.known_as.timeouts.connection_idle = Duration::ZERO;
        for (account, fault, expected) in ends() {
            let account = account.replace("D21", "D22");
            setting.row(&account, on_payment(fault), expected).await;
        }
        let counts = setting.server.counts();
        assert_eq!(counts.connections, counts.requests, "a connection was kept");
        setting.finish().await;
    }
}

/// A97, reliability P10: connecting has a limit, and what was not connected was not sent.
#[tokio::test]
async fn a_call_whose_time_ends_before_it_is_connected_was_not_sent() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    is_unsent_where_nobody_accepts(setting, session).await;
}

/// A call on a session whose server stops to accept connections.
pub(crate) async fn is_unsent_where_nobody_accepts(setting: Setting, session: Arc<Session>) {
    setting.server.stop();
    let full = full_listener(setting.server.address()).await;
    let request = payment("D24").with_deadlines(within_ms(100, 5_000));
    let mut outcome = setting.told("D24", session.call(request, &()).await);
    outcome.ends(Unsent(Reason::TimeoutUnsent));
    drop((full, session));
    setting.server.start_again().unwrap();
    outcome.given_back = outcome
        .given_back
        .map(|request| request.with_deadlines(within_ms(9_000, 9_000)));
    setting.go_on("D24", &mut outcome).await;
    setting.finish().await;
}

/// A187, P135, reliability P10: silence ends at the limit of the call.
#[tokio::test]
async fn a_server_that_stays_silent_ends_the_call_at_its_limit_and_hears_the_cancel() {
    let setting = Setting::legacy();
    for (account, moment) in [
        ("D25 read", FaultTiming::BeforeExecuting),
        ("D25 done", FaultTiming::AfterExecuting),
    ] {
        let session = setting.session().await;
        setting.inject(on_payment(Fault::Silence(moment)));
        let request = payment(account).with_deadlines(within_ms(150, 5_000));
        let mut outcome = setting.told(account, session.call(request, &()).await);
        outcome.ends(Unknown(Reason::Timeout));
        setting.go_on(account, &mut outcome).await;
    }
    let ledger = setting.server.ledger();
    within(Duration::from_secs(5), || {
        ledger.messages_received("notifications/cancelled") == 2
    })
    .await;
    let asked = ledger.entries();
    for cancel in asked
        .iter()
        .filter(|entry| entry.method == "notifications/cancelled")
    {
        let id = &cancel.arguments["requestId"];
        assert!(
            asked
                .iter()
                .any(|entry| entry.method == "tools/call" && entry.id == *id)
        );
    }
    setting.finish().await;
}

#[tokio::test]
async fn one_hundred_and_two_and_then_silence_is_a_timeout() {
    let setting = Setting::legacy();
    let session = setting.session().await;
    let more = CannedReply::new(102, "").execute_first();
    setting.inject(on_payment(Fault::Reply(more)));
    let request = payment("D73").with_deadlines(within_ms(150, 5_000));
    let outcome = setting.told("D73", session.call(request, &()).await);
    outcome.ends(Unknown(Reason::Timeout));
    setting.finish().await;
}

/// Replies that are whole and wrong.
#[rustfmt::skip]
fn wrong() -> Vec<(&'static str, Fault, Expected)> {
    let bad = Unknown(Reason::BadReply);
    let canned = |status, kind: &str, body: &str| {
        Fault::Reply(CannedReply::new(status, body).header("Content-Type", kind).execute_first())
    };
    let json = "application/json";
    vec![
        ("D28 a page",           canned(200, "text/html", "<html>hello</html>"), bad),
        ("D28 wrong type",       canned(200, "text/plain", r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#), bad),
        ("D28 no type",          Fault::Reply(CannedReply::new(200, r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#).execute_first()), bad),
        ("D28 not JSON",         canned(200, json, "hello"), bad),
        ("D28 not JSON-RPC",     canned(200, json, r#"{"ok":true}"#), bad),
        ("D28 empty",            canned(200, json, ""), bad),
        ("D28 204",              Fault::Reply(CannedReply::new(204, "").execute_first()), bad),
        ("D28 batch",            Fault::CorruptReply(ReplyCorruption::Batch), bad),
        ("D28 both",             Fault::CorruptReply(ReplyCorruption::ResultAndError), bad),
        ("D28 neither",          canned(200, json, r#"{"jsonrpc":"2.0","id":$ID}"#), bad),
        ("D28 a request",        canned(200, json, r#"{"jsonrpc":"2.0","id":$ID,"method":"ping"}"#), bad),
        ("D28 unheard of",       canned(999, json, ""), bad),
        ("D30 another's",        Fault::CorruptReply(ReplyCorruption::Id(json!(77))), bad),
        ("D30 string twin",      Fault::CorruptReply(ReplyCorruption::IdAsString), bad),
        ("D30 float twin",       Fault::CorruptReply(ReplyCorruption::FractionalId), bad),
    ]
}

/// A182, E15, reliability P6: an empty or foreign body is a typed error.
#[tokio::test]
async fn a_whole_reply_that_is_no_answer_leaves_the_request_unknown() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        for (account, fault, expected) in wrong() {
            let session = setting.session().await;
            setting.row(account, on_payment(fault), expected).await;
            let retired = account.starts_with("D30").then_some(Reason::BadReply);
            assert_eq!(session.retired_reason(), retired, "{account}");
        }
        setting.finish().await;
    }
}

/// reliability P17, reliability I25: replies are bounded.
#[tokio::test]
async fn a_reply_over_the_limit_names_the_limit_and_keeps_the_session() {
    for setting in [Setting::legacy, Setting::modern] {
        let mut setting = setting();
        setting.known_as.size_limits.reply = 64 << 10;
        let session = setting.session().await;
        for (account, fault) in [
            ("D29 giant", Fault::GiantReply(70_000)),
            ("D29 endless", Fault::EndlessBody),
        ] {
            let expected = Unknown(Reason::ReplyTooLarge);
            let outcome = setting.row(account, on_payment(fault), expected).await;
            assert!(outcome.words().contains("65536"), "{}", outcome.words());
        }
        assert_eq!(session.retired_reason(), None);
        setting.finish().await;
    }
}

/// reliability P7: what looks alike is never called unsent.
#[tokio::test]
async fn a_server_that_closes_idle_connections_at_the_moment_of_use_is_never_misread() {
    let beat = Duration::from_millis(2);
    let setting = Setting::new(Personality::legacy().idle_close(beat), Era::Legacy);
    let mut unknown = 0;
    for round in 0..300 {
        let account = format!("on the beat {round}");
        let outcome = setting.pay(&account, &()).await;
        // Even a new connection may be closed before we come to write.
        let known = [
            Result,
            Unknown(Reason::ReplyLost),
            Unsent(Reason::WriteFailed),
        ];
        let holds = known.contains(&outcome.ended);
        assert!(holds, "{account}: {:?}", outcome.trouble);
        if outcome.ended == Result {
            assert_eq!(outcome.account(), account);
        }
        unknown += u32::from(outcome.ended == Unknown(Reason::ReplyLost));
        // Not a wait: the pause is the fault.
        tokio::time::sleep(beat).await;
    }
    assert!(unknown <= 30, "{unknown} of 300 payments are unknown");
    setting.finish().await;
}
