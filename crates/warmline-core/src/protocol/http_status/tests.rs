//! Rows D39 to D71 of the delivery chapter, and what they rest on.

use super::*;

const OURS: u64 = 7;

fn facts(status: u16, body: &Bytes) -> HttpReplyFacts<'_> {
    HttpReplyFacts {
        status,
        era: Era::Legacy,
        has_session_id: false,
        request_id: OURS,
        body: ReplyBody::Complete(body),
        challenge: None,
        matching: SessionGoneMatching::Sure,
    }
}

fn error(id: &str, code: i64, message: &str) -> Bytes {
    let text =
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#);
    text.into()
}

/// A meaning as one word, for tables.
fn word(meaning: &Result<Message, ReplyFailure>) -> String {
    let Err(failure) = meaning else {
        return "answered".to_owned();
    };
    let kind = match failure.is_refused {
        true => "refused",
        false => "unknown",
    };
    match failure.session_gone {
        Some(dialect) => format!("{kind} {} {dialect}", failure.reason),
        None => format!("{kind} {}", failure.reason),
    }
}

#[test]
fn answers_are_told_from_everything_else() {
    let result = |id: &str| Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    #[rustfmt::skip]
    let table: Vec<(&str, u16, Bytes, &str)> = vec![
        ("D41", 200, result("7"),                                     "answered"),
        ("D41", 200, error("7", -32603, "no"),                        "answered"),
        ("D41", 200, error("null", -32603, "no"),                     "answered"),
        ("D41", 200, error("\"server-error\"", -32603, "no"),         "answered"),
        ("D41", 200, error("7", -32022, "no"),                        "answered"),
        ("D41", 206, result("7"),                                     "answered"),
        ("D42", 400, error("7", -32000, "no"),                        "answered"),
        ("D42", 403, error("7", -32000, "no"),                        "answered"),
        ("D42", 409, error("7", -32000, "no"),                        "answered"),
        ("D42", 500, error("7", -32603, "no"),                        "answered"),
        ("D42", 503, error("7", -32603, "no"),                        "answered"),
        ("D42", 500, result("7"),                                     "answered"),
        ("D28", 200, Bytes::new(),                                    "unknown bad-reply"),
        ("D28", 204, Bytes::new(),                                    "unknown bad-reply"),
        ("D28", 200, Bytes::from_static(b"<html>"),                   "unknown bad-reply"),
        ("D28", 200, Bytes::from_static(b"{\"ok\":true}"),            "unknown bad-reply"),
        ("D28", 200, Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}"), "unknown bad-reply"),
        ("D28", 200, Bytes::from_static(b"[{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}]"), "unknown bad-reply"),
        ("D30", 200, result("8"),                                     "unknown bad-reply"),
        ("D30", 200, result("\"7\""),                                 "unknown bad-reply"),
        ("D47", 400, error("7", -32021, "no"),                        "answered"),
        ("D47", 400, error("null", -32602, "no"),                     "answered"),
        ("D48", 400, error("null", -32700, "no"),                     "refused rejected"),
        ("D48", 400, error("7", -32600, "no"),                        "refused rejected"),
        ("D45", 400, error("7", -32022, "no"),                        "refused version"),
        ("D45", 400, error("null", -32022, "no"),                     "refused version"),
        ("D46", 400, error("7", -32020, "no"),                        "refused header-mismatch"),
        ("D50", 400, error("8", -32022, "for another"),               "refused rejected"),
        ("D50", 400, error("null", -32000, "no"),                     "refused rejected"),
        ("D54", 404, error("7", -32601, "no"),                        "answered"),
        ("D54", 404, error("null", -32601, "no"),                     "answered"),
        ("D51", 401, error("7", -32000, "no"),                        "refused unauthorized"),
        ("D67", 429, error("7", -32000, "slow down"),                 "refused rate-limited"),
        ("D68", 500, error("null", -32603, "no"),                     "unknown server-error"),
        ("D68", 500, error("null", -32603, "Session terminated before the request completed"), "unknown server-error"),
    ];
    for (row, status, body, meaning) in table {
        let read = classify_reply(&facts(status, &body));
        assert_eq!(word(&read), meaning, "{row}: {status} {body:?}");
    }
}

#[test]
fn statuses_speak_for_themselves_where_the_body_does_not() {
    #[rustfmt::skip]
    let table: &[(&str, &[u16], &str)] = &[
        ("D39", &[301, 302, 303],                          "unknown redirect"),
        ("D40", &[307, 308],                               "refused redirect"),
        ("D44", &[202],                                    "unknown no-reply-channel"),
        ("D50", &[400],                                    "refused rejected"),
        ("D51", &[401],                                    "refused unauthorized"),
        ("D52", &[403],                                    "refused forbidden"),
        ("D55", &[404],                                    "refused not-found"),
        ("D56", &[405],                                    "refused rejected"),
        ("D57", &[406, 415, 417, 426, 428, 451, 501, 505], "refused rejected"),
        ("D58", &[407],                                    "refused proxy"),
        ("D59", &[408],                                    "unknown timeout"),
        ("D60", &[409],                                    "unknown conflict"),
        ("D61", &[410],                                    "refused not-found"),
        ("D62", &[411, 413, 414, 431],                     "refused too-large"),
        ("D63", &[421],                                    "refused rejected"),
        ("D64", &[422],                                    "refused rejected"),
        ("D65", &[402, 418, 424, 423, 499],                "unknown rejected-unclear"),
        ("D66", &[425],                                    "refused too-early"),
        ("D67", &[429],                                    "refused rate-limited"),
        ("D68", &[500, 507, 511, 599],                     "unknown server-error"),
        ("D69", &[502, 504, 520, 523, 527, 530],           "unknown gateway-error"),
        ("D70", &[503],                                    "unknown unavailable"),
        ("D72", &[100, 199, 600, 999],                     "unknown bad-reply"),
    ];
    for era in [Era::Legacy, Era::Modern] {
        for (row, statuses, meaning) in table {
            for status in *statuses {
                let body = Bytes::from_static(b"some words");
                let read = classify_reply(&HttpReplyFacts {
                    era,
                    ..facts(*status, &body)
                });
                assert_eq!(word(&read), *meaning, "{row}: {status} {era}");
            }
        }
    }
}

/// A162, E26: in the modern era nothing is taken for session loss.
#[test]
fn a_modern_server_has_no_session_to_lose() {
    let body = error("7", -32000, "No valid session ID provided");
    for (status, meaning) in [(400, "answered"), (404, "answered"), (410, "answered")] {
        let modern = HttpReplyFacts {
            era: Era::Modern,
            has_session_id: true,
            ..facts(status, &body)
        };
        assert_eq!(word(&classify_reply(&modern)), meaning, "{status}");
    }
}

/// A170, E4: a request that needs a session was not executed.
#[test]
fn a_request_that_needs_a_session_is_refused() {
    let body = error("null", -32600, "Bad Request: Missing session ID");
    assert_eq!(
        word(&classify_reply(&facts(400, &body))),
        "refused session-gone needs-session"
    );
}

#[test]
fn a_body_that_did_not_arrive_leaves_only_what_the_status_says() {
    #[rustfmt::skip]
    let table = [
        ("D27", 200, ReplyBody::Truncated,      "unknown reply-lost"),
        ("D29", 200, ReplyBody::TooLarge, "unknown reply-too-large"),
        ("D71", 500, ReplyBody::Truncated,      "unknown server-error"),
        ("D71", 500, ReplyBody::TooLarge, "unknown server-error"),
        ("D50", 400, ReplyBody::Truncated,      "refused rejected"),
        ("D53", 404, ReplyBody::Truncated,      "refused session-gone not-found"),
        ("D51", 401, ReplyBody::TooLarge, "refused unauthorized"),
    ];
    let empty = Bytes::new();
    for (row, status, body, meaning) in table {
        let cut = HttpReplyFacts {
            body,
            has_session_id: true,
            ..facts(status, &empty)
        };
        assert_eq!(
            word(&classify_reply(&cut)),
            meaning,
            "{row}: {status} {body:?}"
        );
    }
}

/// reliability P7: when in doubt it is unknown.
#[test]
fn no_status_is_called_refused_unless_a_row_says_so() {
    let refusing = [
        307, 308, 400, 401, 403, 404, 405, 406, 407, 410, 411, 413, 414, 415, 417, 421, 422, 425,
        426, 428, 429, 431, 451, 501, 505,
    ];
    let body = Bytes::from_static(b"words");
    for status in 0..=1000 {
        let read = classify_reply(&HttpReplyFacts {
            era: Era::Modern,
            ..facts(status, &body)
        });
        let is_refused = read.as_ref().is_err_and(|failure| failure.is_refused);
        assert_eq!(is_refused, refusing.contains(&status), "{status}");
    }
}
