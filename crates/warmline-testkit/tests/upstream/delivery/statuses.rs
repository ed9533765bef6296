//! Every HTTP status to the POST of a request: what it says of the request.
//!
//! Rows as in the table of statuses (D41 to D73). Each is met with no body, a page, an error for
//! our request, for nobody, for somebody else, and a body that is cut.
//!
//! Not here: D43 (the standing stream of a session carries questions, not answers), and the GET and
//! DELETE halves of D56 and D60.

use crate::prelude::*;

use super::fixture::Expected::{self, Error, Refused, Result, Unknown};

/// Statuses that mean the same, and what an error for our own request makes of them.
struct Row {
    name: &'static str,
    statuses: &'static [u16],
    means: Expected,
    ours: Ours,
}

/// What a JSON-RPC error for our own request changes.
#[derive(Clone, Copy)]
enum Ours {
    /// It is the answer (D42).
    Answers,
    /// Nothing: the status says all.
    Changes,
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    Row { name: "D39", statuses: &[301, 302, 303, 304], means: Unknown(Reason::Redirect), ours: Ours::Changes },
    Row { name: "D40", statuses: &[307, 308], means: Refused(Reason::Redirect), ours: Ours::Changes },
    Row { name: "D50", statuses: &[400], means: Refused(Reason::Rejected), ours: Ours::Answers },
    Row { name: "D51", statuses: &[401], means: Refused(Reason::Unauthorized), ours: Ours::Changes },
    Row { name: "D52", statuses: &[403], means: Refused(Reason::Forbidden), ours: Ours::Answers },
    Row { name: "D56", statuses: &[405], means: Refused(Reason::Rejected), ours: Ours::Answers },
    Row { name: "D57", statuses: &[406, 415, 417, 426, 428, 451, 501, 505], means: Refused(Reason::Rejected), ours: Ours::Answers },
    Row { name: "D58", statuses: &[407], means: Refused(Reason::Proxy), ours: Ours::Changes },
    Row { name: "D59", statuses: &[408], means: Unknown(Reason::Timeout), ours: Ours::Answers },
    Row { name: "D60", statuses: &[409], means: Unknown(Reason::Conflict), ours: Ours::Answers },
    Row { name: "D62", statuses: &[411, 413, 414, 431], means: Refused(Reason::TooLarge), ours: Ours::Answers },
    Row { name: "D63", statuses: &[421], means: Refused(Reason::Rejected), ours: Ours::Changes },
    Row { name: "D64", statuses: &[422], means: Refused(Reason::Rejected), ours: Ours::Answers },
    Row { name: "D65", statuses: &[402, 418, 424, 499], means: Unknown(Reason::RejectedUnclear), ours: Ours::Answers },
    Row { name: "D66", statuses: &[425], means: Refused(Reason::TooEarly), ours: Ours::Changes },
    Row { name: "D67", statuses: &[429], means: Refused(Reason::RateLimited), ours: Ours::Changes },
    Row { name: "D68", statuses: &[500, 507, 599], means: Unknown(Reason::ServerError), ours: Ours::Answers },
    Row { name: "D69", statuses: &[502, 504, 520, 527, 530], means: Unknown(Reason::GatewayError), ours: Ours::Answers },
    Row { name: "D70", statuses: &[503], means: Unknown(Reason::Unavailable), ours: Ours::Answers },
];

/// Where a session id was sent these say that the session is gone; without one nothing is there.
const SESSION_LOST: [Row; 2] = [
    Row {
        name: "D53",
        statuses: &[404],
        means: Refused(Reason::SessionGone),
        ours: Ours::Changes,
    },
    Row {
        name: "D61",
        statuses: &[410],
        means: Refused(Reason::SessionGone),
        ours: Ours::Changes,
    },
];
const NOTHING_THERE: [Row; 2] = [
    Row {
        name: "D55",
        statuses: &[404],
        means: Refused(Reason::NotFound),
        ours: Ours::Answers,
    },
    Row {
        name: "D61",
        statuses: &[410],
        means: Refused(Reason::NotFound),
        ours: Ours::Answers,
    },
];

const FOR_US: &str = r#"{"jsonrpc":"2.0","id":$ID,"error":{"code":-32099,"message":"no"}}"#;
const FOR_NOBODY: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32099,"message":"no"}}"#;
const FOR_ANOTHER: &str = r#"{"jsonrpc":"2.0","id":424242,"error":{"code":-32099,"message":"no"}}"#;

/// The replies a status is met with: a word, and whether it is an error for our request.
fn replies(status: u16) -> Vec<(&'static str, CannedReply)> {
    let page = CannedReply::new(status, "<html><h1>sorry</h1></html>");
    vec![
        ("bare", CannedReply::new(status, "")),
        ("page", page.header("Content-Type", "text/html")),
        ("for us", CannedReply::new(status, FOR_US).json()),
        ("for nobody", CannedReply::new(status, FOR_NOBODY).json()),
        ("for another", CannedReply::new(status, FOR_ANOTHER).json()),
        ("cut", CannedReply::new(status, FOR_US).json().cut_at(20)),
    ]
}

async fn meet(setting: &Setting, row: &Row) {
    for status in row.statuses {
        for (word, canned) in replies(*status) {
            // A body under 304 is no part of the reply; it is met among the bad input.
            if *status == 304 && !canned.body.is_empty() {
                continue;
            }
            let expected = match (word, row.ours) {
                ("for us", Ours::Answers) => Error(-32099),
                _ => row.means,
            };
            let account = format!("{} {status} {word}", row.name);
            let rule = FaultRule::new(Fault::Reply(canned.clone())).on_method("tools/call");
            setting.row(&account, rule, expected).await;
            if matches!(expected, Unknown(_)) {
                let account = format!("{account}, executed");
                let rule =
                    FaultRule::new(Fault::Reply(canned.execute_first())).on_method("tools/call");
                setting.row(&account, rule, expected).await;
                assert_eq!(setting.executions(&account), 1, "{account}");
            }
        }
    }
}

/// E3, reliability P6, reliability P7: every status has one meaning.
#[tokio::test]
async fn every_status_of_a_legacy_server_with_sessions_says_what_became_of_the_request() {
    let setting = Setting::legacy();
    for row in ROWS.iter().chain(&SESSION_LOST) {
        meet(&setting, row).await;
    }
    setting.finish().await;
}

/// reliability P6, reliability P7: the same without sessions.
#[tokio::test]
async fn every_status_of_a_legacy_server_without_sessions_says_what_became_of_the_request() {
    let setting = Setting::new(Personality::legacy_stateless(), Era::Legacy);
    for row in ROWS.iter().chain(&NOTHING_THERE) {
        meet(&setting, row).await;
    }
    setting.finish().await;
}

/// A162, E26, reliability P6, reliability P7: a modern server has no session to lose.
#[tokio::test]
async fn every_status_of_a_modern_server_says_what_became_of_the_request() {
    let setting = Setting::modern();
    for row in ROWS.iter().chain(&NOTHING_THERE) {
        meet(&setting, row).await;
    }
    setting.finish().await;
}

/// An error with this code under this status, for our request or for nobody.
fn error(status: u16, id: &str, code: i64) -> CannedReply {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"x"}}}}"#);
    CannedReply::new(status, &body).json()
}

/// Codes that say more than the status they come with.
#[rustfmt::skip]
fn coded() -> Vec<(&'static str, CannedReply, Expected)> {
    vec![
        ("D41 error for us",        error(200, "$ID", -32099),  Error(-32099)),
        ("D41 error for nobody",    error(200, "null", -32099), Error(-32099)),
        ("D44 nothing but 202",     CannedReply::new(202, ""),       Unknown(Reason::NoReplyChannel)),
        ("D45 for us",              error(400, "$ID", -32022),  Refused(Reason::Version)),
        ("D45 for nobody",          error(400, "null", -32022), Refused(Reason::Version)),
        ("D47 capability",          error(400, "$ID", -32021),  Error(-32021)),
        ("D47 params",              error(400, "$ID", -32602),  Error(-32602)),
        ("D47 params, for nobody",  error(400, "null", -32602), Error(-32602)),
        ("D48 parse error",         error(400, "null", -32700), Refused(Reason::Rejected)),
        ("D48 invalid, for us",     error(400, "$ID", -32600),  Refused(Reason::Rejected)),
        ("D54 method, for us",      error(404, "$ID", -32601),  Error(-32601)),
        ("D68 internal, nobody",    error(500, "null", -32603), Unknown(Reason::ServerError)),
    ]
}

#[tokio::test]
async fn some_codes_say_more_than_the_status_they_come_with() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        for (account, canned, expected) in coded() {
            let rule = FaultRule::new(Fault::Reply(canned)).on_method("tools/call");
            setting.row(account, rule, expected).await;
        }
        let rule = FaultRule::new(Fault::Delay(0, FaultTiming::AfterExecuting));
        let plain = setting
            .row("D41 result", rule.on_method("tools/call"), Result)
            .await;
        assert_eq!(plain.account(), "D41 result");
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_refusal_says_how_long_to_wait_and_whom_to_ask() {
    let setting = Setting::legacy();
    let busy = CannedReply::new(429, "").header("Retry-After", "7");
    let rule = FaultRule::new(Fault::Reply(busy)).on_method("tools/call");
    let outcome = setting
        .row("busy", rule, Refused(Reason::RateLimited))
        .await;
    let trouble = outcome.trouble.unwrap();
    assert_eq!(trouble.retry_after, Some(Duration::from_secs(7)));

    let down = CannedReply::new(503, "").header("Retry-After", "11");
    let rule = FaultRule::new(Fault::Reply(down)).on_method("tools/call");
    let outcome = setting
        .row("down", rule, Unknown(Reason::Unavailable))
        .await;
    let expected = Some(Duration::from_secs(11));
    assert_eq!(outcome.trouble.unwrap().retry_after, expected);

    // A date is a wait from now on, of an hour at most.
    let dates = [
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 3600),
    ];
    for (date, seconds) in dates {
        let down = CannedReply::new(503, "").header("Retry-After", date);
        let rule = FaultRule::new(Fault::Reply(down)).on_method("tools/call");
        let outcome = setting.row(date, rule, Unknown(Reason::Unavailable)).await;
        let asked = outcome.trouble.unwrap().retry_after;
        assert_eq!(asked, Some(Duration::from_secs(seconds)), "{date}");
    }

    let locked = CannedReply::new(401, "").header("WWW-Authenticate", "Bearer");
    let rule = FaultRule::new(Fault::Reply(locked)).on_method("tools/call");
    let outcome = setting
        .row("locked", rule, Refused(Reason::Unauthorized))
        .await;
    assert!(outcome.trouble.unwrap().hint.unwrap().contains("token"));

    let moved = CannedReply::new(308, "").header("Location", "http://127.0.0.1:1/elsewhere");
    let rule = FaultRule::new(Fault::Reply(moved)).on_method("tools/call");
    let outcome = setting.row("moved", rule, Refused(Reason::Redirect)).await;
    assert!(outcome.words().contains("http://127.0.0.1:1/elsewhere"));
    setting.finish().await;
}
