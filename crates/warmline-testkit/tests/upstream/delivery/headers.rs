//! Headers: those of a request alone, those of the modern era, and those that a tool asks for.

use crate::prelude::*;

use super::fixture::Expected::{Error, Refused, Result};
use super::scripted_server::{ReplyStep, Stub};

/// Arguments that are plain, empty, beyond ASCII, at the edge of blanks, and of every type.
fn routings() -> Vec<Value> {
    vec![
        json!({"region": "eu", "level": 3, "dry": true, "place": {"zone": "a"}, "note": "n"}),
        json!({"region": "Zürich", "level": -7, "dry": false, "place": {"zone": "東京"}}),
        json!({"region": " padded ", "place": {"zone": "tab\tand\nline"}}),
        json!({"region": "", "level": 0}),
        json!({"region": "=?base64?bGl0ZXJhbA==?=", "place": {}}),
        json!({"region": null, "note": "nothing to mirror"}),
        json!({}),
    ]
}

#[tokio::test]
async fn arguments_are_mirrored_into_the_headers_that_a_tool_asks_for() {
    let setting = Setting::modern();
    let session = setting.session().await;
    let list = Request::new("tools/list", Params::empty());
    assert_eq!(Outcome::of(session.call(list, &()).await).ended, Result);
    for (number, mut arguments) in routings().into_iter().enumerate() {
        let account = format!("routed {number}");
        arguments["account"] = json!(account);
        let ending = session.call(tool("routed", &arguments), &()).await;
        let outcome = setting.told(&account, ending);
        assert_eq!(outcome.ended, Result, "{arguments}: {:?}", outcome.answer);
        assert_eq!(outcome.answer["structuredContent"]["arguments"], arguments);
    }
    assert_eq!(setting.server.ledger().messages_received("tools/list"), 1);
    setting.finish().await;
}

#[tokio::test]
async fn a_tool_whose_headers_are_not_known_is_looked_up_once_and_then_works() {
    let setting = Setting::modern();
    let session = setting.session().await;
    for round in 0..2 {
        let account = format!("unlisted {round}");
        let arguments = json!({"region": "eu", "account": account});
        let ending = session.call(tool("routed", &arguments), &()).await;
        let outcome = setting.told(&account, ending);
        outcome.ends(Result);
    }
    let ledger = setting.server.ledger();
    assert_eq!(ledger.messages_received("tools/list"), 1);
    assert_eq!(ledger.messages_received("tools/call"), 3);
    // The first try had to be wrong: nobody had seen the tool yet.
    assert_eq!(setting.server.violations().len(), 1);
    setting.server.control().clear_violations();
    setting.finish().await;
}

#[tokio::test]
async fn a_server_that_finds_the_headers_wrong_twice_has_refused() {
    let setting = Setting::modern();
    let session = setting.session().await;
    let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"Header mismatch"}}"#;
    let mismatch = Fault::Reply(CannedReply::new(400, body).json());
    setting.inject(FaultRule::new(mismatch).on_tool("pay").always());
    let mut outcome = setting.pay("D46", &()).await;
    outcome.ends(Refused(Reason::HeaderMismatch));
    outcome.names_the_server("D46");
    let ledger = setting.server.ledger();
    assert_eq!(ledger.messages_received("tools/call"), 2);
    assert_eq!(ledger.messages_received("tools/list"), 1);
    assert_eq!(session.retired_reason(), None);
    setting.server.control().clear_faults();
    setting.go_on("D46", &mut outcome).await;
    setting.finish().await;
}

#[tokio::test]
async fn a_list_that_cannot_be_had_leaves_the_refusal_as_it_is() {
    let setting = Setting::modern();
    let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"Header mismatch"}}"#;
    setting.inject(FaultRule::new(Fault::Reply(CannedReply::new(400, body).json())).on_tool("pay"));
    setting.inject(FaultRule::new(Fault::Reply(CannedReply::new(503, ""))).on_method("tools/list"));
    let mut outcome = setting.pay("no list", &()).await;
    outcome.ends(Refused(Reason::HeaderMismatch));
    setting.go_on("no list", &mut outcome).await;
    setting.finish().await;
}

/// P113: a cursor that goes round is noticed.
#[tokio::test]
async fn a_list_that_never_ends_is_not_read_for_ever() {
    let setting = Setting::modern();
    setting.inject(
        FaultRule::new(Fault::CursorLoop)
            .on_method("tools/list")
            .always(),
    );
    let session = setting.session().await;
    let arguments = json!({"region": "eu", "account": "loop"});
    let outcome = setting.told("loop", session.call(tool("routed", &arguments), &()).await);
    let holds = matches!(outcome.ended, Result | Refused(_));
    assert!(holds, "{:?}", outcome.trouble);
    assert!(setting.server.ledger().messages_received("tools/list") <= 100);
    setting.server.control().clear_violations();
    setting.finish().await;
}

#[tokio::test]
async fn names_and_uris_are_mirrored_whatever_their_letters() {
    let setting = Setting::modern();
    let session = setting.session().await;
    let outcome = Outcome::of(session.call(tool("nö such töol\t", &json!({})), &()).await);
    outcome.ends(Error(-32602));
    for uri in [
        "ledger://page/1",
        "ledger://säite/ 2",
        "ledger://=?base64?eA==?=",
    ] {
        let params = Params::from_serialize(&json!({"uri": uri})).unwrap();
        let outcome = Outcome::of(
            session
                .call(Request::new("resources/read", params), &())
                .await,
        );
        assert_eq!(outcome.ended, Result, "{uri}: {:?}", outcome.answer);
        assert_eq!(outcome.answer["contents"][0]["uri"], uri);
    }
    setting.finish().await;
}

/// A100, P57, P58: headers of one call arrive with that call and do not stick.
#[tokio::test]
async fn headers_of_the_server_and_of_one_request_arrive() {
    for era in [Era::Legacy, Era::Modern] {
        let stub = Stub::start(|_| {
            let body = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete"}}"#;
            vec![ReplyStep::Json(body.to_owned())]
        })
        .await;
        let mut server = stub.target(era);
        let TransportConfig::Http(reach) = &mut server.transport else {
            unreachable!("it was made for HTTP");
        };
        reach
            .headers
            .push(("x-always".parse().unwrap(), "yes".parse().unwrap()));
        reach
            .headers
            .push(("x-either".parse().unwrap(), "server".parse().unwrap()));
        let upstream = Upstream::new();
        let session = upstream
            .open(&server, &ClientProfile::default())
            .await
            .unwrap();
        let plain = tool("any", &json!({}));
        let dressed = plain
            .clone()
            .with_header("x-once".parse().unwrap(), "now".parse().unwrap())
            .with_header("x-either".parse().unwrap(), "request".parse().unwrap());
        for request in [plain.clone(), dressed, plain] {
            assert_eq!(Outcome::of(session.call(request, &()).await).ended, Result);
        }
        assert!(
            stub.seen()
                .iter()
                .all(|one| one.header("x-always") == Some("yes"))
        );
        let calls = stub.of("tools/call");
        let read = |name: &str| calls.iter().map(|one| one.header(name)).collect::<Vec<_>>();
        assert_eq!(read("x-once"), [None, Some("now"), None]);
        let found = read("x-either");
        assert_eq!(found, [Some("server"), Some("request"), Some("server")]);
        if era == Era::Modern {
            assert_eq!(read("mcp-method"), [Some("tools/call"); 3]);
            assert_eq!(read("mcp-name"), [Some("any"); 3]);
            assert_eq!(read("mcp-protocol-version"), [Some("2026-07-28"); 3]);
        }
    }
}

#[tokio::test]
async fn a_list_that_does_not_come_holds_the_call_no_longer_than_its_limit() {
    let setting = Setting::modern();
    let session = setting.session().await;
    let body = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"Header mismatch"}}"#;
    let mismatch = Fault::Reply(CannedReply::new(400, body).json());
    setting.inject(FaultRule::new(mismatch).on_tool("pay"));
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    setting.inject(FaultRule::new(silence).on_method("tools/list"));
    let request = payment("no list").with_deadlines(within_ms(300, 300));
    let call = tokio::time::timeout(Duration::from_secs(5), session.call(request, &()));
    let outcome = setting.told("no list", call.await.unwrap());
    outcome.ends(Refused(Reason::HeaderMismatch));
    setting.finish().await;
}

#[tokio::test]
async fn the_list_is_asked_for_with_the_headers_of_the_call() {
    let stub = Stub::start(|body| {
        let is_list = body["method"] == "tools/list";
        let answer = if is_list {
            r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","tools":[]}}"#
        } else {
            r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32020,"message":"Header mismatch"}}"#
        };
        let status = if is_list { "200 OK" } else { "400 Bad Request" };
        let answer = answer.replace("$ID", &body["id"].to_string());
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json");
        let length = answer.len();
        vec![ReplyStep::Raw(format!(
            "{head}\r\nContent-Length: {length}\r\n\r\n{answer}"
        ))]
    })
    .await;
    let session = stub.session(Era::Modern).await;
    let request =
        payment("headers").with_header("authorization".parse().unwrap(), "mine".parse().unwrap());
    let outcome = Outcome::of(session.call(request, &()).await);
    outcome.ends(Refused(Reason::HeaderMismatch));
    let lists = stub.of("tools/list");
    assert_eq!(lists.len(), 1);
    assert_eq!(lists[0].header("authorization"), Some("mine"));
}
