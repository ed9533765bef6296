//! Every dialect met in the field, one row each.

use super::SentSession::{WithId, WithoutId};
use super::*;

fn said(status: u16, body: &str, challenge: Option<&str>, sent: SentSession) -> Option<Dialect> {
    read(&Reply {
        status,
        body: body.as_bytes(),
        challenge,
        sent,
        our_id: 7,
    })
}

fn error(id: &str, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

/// A172, P7: rows a1 to a38 of the reference: what servers reply to a POST with an id they do not
/// know.
#[test]
fn each_server_is_understood_when_it_does_not_know_a_session() {
    let j5 = r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#;
    #[rustfmt::skip]
    let table: Vec<(&str, u16, String, Option<Dialect>)> = vec![
        ("a1",  404, error("\"server-error\"", -32600, "Session not found"),        Some(Dialect::NotFound)),
        ("a2",  404, error("null", -32600, "Session not found"),                    Some(Dialect::NotFound)),
        ("a3",  400, "Bad Request: No valid session ID provided".into(),            Some(Dialect::NoValidId)),
        ("a4",  404, error("\"server-error\"", -32600, "Not Found: Session has been terminated"), Some(Dialect::NotFound)),
        ("a5",  404, error("null", -32600, "Session not found"),                    Some(Dialect::NotFound)),
        ("a6",  404, j5.into(),                                                     Some(Dialect::NotFound)),
        ("a7",  404, j5.into(),                                                     Some(Dialect::NotFound)),
        ("a8",  400, error("null", -32000, "Bad Request: Server not initialized"),  Some(Dialect::NotInitialized)),
        ("a9",  400, error("null", -32000, "Bad Request: No valid session ID provided"), Some(Dialect::NoValidId)),
        ("a9 GET",  400, "Invalid or missing session ID".into(),                    Some(Dialect::InvalidId)),
        ("a10", 400, error("null", -32000, "Bad Request: No valid session ID"),     Some(Dialect::NoValidId)),
        ("a11", 404, "Session not found".into(),                                    Some(Dialect::NotFound)),
        ("a12", 200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),              None),
        ("a12 GET", 405, error("null", -32000, "Method not allowed."),              None),
        ("a13", 200, r#"{"jsonrpc":"2.0","id":7,"result":{"text":"Session not found"}}"#.into(), None),
        ("a14", 404, "Not Found: Session not found".into(),                         Some(Dialect::NotFound)),
        ("a15", 401, "Unauthorized: Session not found".into(),                      Some(Dialect::UnauthorizedNotFound)),
        ("a16", 200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),              None),
        ("a17", 404, "session not found\n".into(),                                  Some(Dialect::NotFound)),
        ("a18", 404, "session is closing".into(),                                   Some(Dialect::NotFound)),
        ("a19", 403, "session user mismatch".into(),                                Some(Dialect::OtherUser)),
        ("a20", 405, String::new(),                                                 None),
        ("a21", 404, error("7", -32001, "Session not found"),                       Some(Dialect::NotFound)),
        ("a22", 403, error("7", -32000, "Forbidden: The currently authenticated user does not match the user who initiated the session"), Some(Dialect::OtherUser)),
        ("a23", 400, error("7", -32000, "Bad Request: The Mcp-Session-Id header is not supported in stateless mode"), Some(Dialect::Stateless)),
        ("a24", 200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),              None),
        ("a25", 404, "Invalid session ID".into(),                                   Some(Dialect::NotFound)),
        ("a25", 404, "Session terminated".into(),                                   Some(Dialect::NotFound)),
        ("a26", 404, r#"{"message":"Session not found: abc"}"#.into(),              Some(Dialect::NotFound)),
        ("a26 GET", 404, "<html>Not Found</html>".into(),                           Some(Dialect::NotFound)),
        ("a27", 404, error("null", -32001, "Session not found"),                    Some(Dialect::NotFound)),
        ("a28", 404, error("null", -32600, "Session not found"),                    Some(Dialect::NotFound)),
        ("a29", 404, error("7", -32600, "Session not found or has expired."),       Some(Dialect::NotFound)),
        ("a30", 404, j5.into(),                                                     Some(Dialect::NotFound)),
        ("a32", 400, error("null", -32000, "Bad Request: No valid session ID provided"), Some(Dialect::NoValidId)),
        ("a33", 404, j5.into(),                                                     Some(Dialect::NotFound)),
        ("a34", 404, "mcp: session not found".into(),                               Some(Dialect::NotFound)),
        ("a35", 400, "invalid session ID: cannot decrypt".into(),                   Some(Dialect::InvalidId)),
        ("a36", 404, r#"{"detail":"Session not found"}"#.into(),                    Some(Dialect::NotFound)),
        ("a37", 200, r#"{"jsonrpc":"2.0","id":7,"result":{}}"#.into(),              None),
        ("a38", 410, String::new(),                                                 Some(Dialect::Gone)),
        ("a38", 502, "session not found".into(),                                    None),
        ("3.3.5", 400, "Session ID not found.".into(),                              Some(Dialect::InvalidId)),
        ("3.3.5", 400, "No transport found for sessionId".into(),                   Some(Dialect::InvalidId)),
        ("3.3.5", 404, "Could not find session".into(),                             Some(Dialect::NotFound)),
    ];
    for (row, status, body, dialect) in table {
        assert_eq!(
            said(status, &body, None, WithId),
            dialect,
            "{row}: {status} {body}"
        );
    }
}

/// a31: a proxy puts the sentence into a challenge.
#[test]
fn a_challenge_may_say_that_the_session_is_gone() {
    let challenge = r#"Bearer error="invalid_token", error_description="Unauthorized: No valid session ID provided""#;
    let expected = Some(Dialect::UnauthorizedNoValidId);
    assert_eq!(said(401, "", Some(challenge), WithId), expected);
    let body = error("null", -32000, "Unauthorized: No valid session ID provided");
    assert_eq!(said(401, &body, Some("Bearer"), WithId), expected);
    assert_eq!(
        said(
            401,
            "token expired",
            Some("Bearer error=\"invalid_token\""),
            WithId
        ),
        None
    );
}

/// Rows G1 to G13 of the dialects that the list above does not hold.
#[test]
fn rows_of_the_delivery_chapter_are_understood() {
    #[rustfmt::skip]
    let table: Vec<(&str, u16, String, Option<Dialect>)> = vec![
        ("G1",  404, String::new(),                                                  Some(Dialect::NotFound)),
        ("G3",  404, error("null", -32600, "Invalid or expired session ID"),         Some(Dialect::NotFound)),
        ("G4",  400, error("null", -32000, "No valid session ID provided or not an initialize request"), Some(Dialect::NoValidId)),
        ("G4",  400, error("null", -32000, "Missing session ID"),                    Some(Dialect::Stripped)),
        ("G4b", 400, error("null", -32000, "Mcp-Session-Id header is required"),     Some(Dialect::Stripped)),
        ("G5",  410, "whatever".into(),                                              Some(Dialect::Gone)),
        ("G7",  409, "stale session".into(),                                         Some(Dialect::Conflict)),
        ("G7",  409, "already running".into(),                                       None),
        ("G8",  503, "Unknown session 1234".into(),                                  Some(Dialect::Unavailable)),
        ("G8",  503, "Too many open sessions".into(),                                None),
        ("G9",  500, "Error POSTing to endpoint (HTTP 400): Bad Request: No valid session ID provided".into(), Some(Dialect::Wrapped)),
        ("G9",  500, "Error POSTing to endpoint (HTTP 400): Bad Request".into(),     None),
        ("G10", 200, error("7", -32002, "Session not found"),                        Some(Dialect::InBand)),
        ("G10", 200, error("7", -32001, "Session not found."),                       Some(Dialect::InBand)),
        ("G10", 200, error("7", 32600, "Session terminated"),                        Some(Dialect::InBand)),
        ("G10", 200, error("7", -32001, "Checkout session not found"),               None),
        ("G10", 200, error("7", -32000, "Server error"),                             None),
        ("G11", 500, error("null", -32603, "Session terminated before the request completed"), Some(Dialect::EndedWhileRunning)),
        ("G12", 400, error("7", -32602, "the session argument must be a text"),      None),
    ];
    for (row, status, body, dialect) in table {
        assert_eq!(
            said(status, &body, None, WithId),
            dialect,
            "{row}: {status} {body}"
        );
    }
}

/// A172, E2, E4, E6 to E10, E18 to E22, E25, E26, P7: forms met in the field.
#[test]
fn forms_met_in_the_field_are_understood() {
    #[rustfmt::skip]
    let table: Vec<(&str, u16, String, Option<Dialect>)> = vec![
        ("E4",  400, "Invalid session ID".into(),                                    Some(Dialect::InvalidId)),
        ("E6",  404, error("null", -32001, "Session not found"),                     Some(Dialect::NotFound)),
        ("E7",  404, error("\"server-error\"", -32600, "Session not found"),         Some(Dialect::NotFound)),
        ("E8",  400, error("null", -32000, "Bad Request: No valid session ID provided"), Some(Dialect::NoValidId)),
        ("E9",  400, "Session ID required in mcp-session-id header".into(),          Some(Dialect::Stripped)),
        ("E10", 404, error("null", -32000, "Not Found: Unknown Mcp-Session-Id header"), Some(Dialect::NotFound)),
        ("E18", 404, error("7", -32601, "Not Found: Invalid session ID"),            Some(Dialect::NotFoundNamesSession)),
        ("E26", 404, error("7", -32601, "Method not found"),                         None),
        ("E19", 503, r#"{"error":"unknown session"}"#.into(),                        Some(Dialect::Unavailable)),
        ("E20", 400, error("null", -32600, "Invalid Request: Server already initialized"), Some(Dialect::SingleSession)),
        ("E21", 200, error("7", -32603, "Session not found"),                        Some(Dialect::Internal)),
        ("E21", 500, error("7", -32603, "Internal error: session not found"),        Some(Dialect::Internal)),
        ("E21", 500, error("7", -32603, "Internal error"),                           None),
        ("E22", 200, error("7", -32600, "Session terminated"),                       Some(Dialect::InBand)),
        ("E25", 400, error("null", -32000, "Bad Request: Server not initialized"),   Some(Dialect::NotInitialized)),
        ("E2",  400, error("null", -32000, "Bad Request"),                           None),
        ("A172", 400, "limit must be positive".into(),                               None),
        ("A172", 400, error("7", -32602, "Invalid session: no such browser tab"),    None),
    ];
    for (row, status, body, dialect) in table {
        assert_eq!(
            said(status, &body, None, WithId),
            dialect,
            "{row}: {status} {body}"
        );
    }
}

/// A170, A172, E4, E9: rows b1 to b10: what servers reply to a request outside a session.
#[test]
fn a_request_without_an_id_learns_that_it_needs_a_session() {
    #[rustfmt::skip]
    let table: Vec<(&str, u16, String, Option<Dialect>)> = vec![
        ("b1",  400, error("\"server-error\"", -32600, "Bad Request: Missing session ID"), Some(Dialect::NeedsSession)),
        ("b2",  400, error("null", -32600, "Bad Request: Missing session ID"),       Some(Dialect::NeedsSession)),
        ("b3",  400, error("null", -32000, "Bad Request: Mcp-Session-Id header is required"), Some(Dialect::NeedsSession)),
        ("b3",  400, error("null", -32000, "Bad Request: Server not initialized"),   Some(Dialect::NeedsSession)),
        ("b4",  400, error("null", -32000, "Bad Request: No valid session ID provided"), Some(Dialect::NeedsSession)),
        ("b6",  400, error("7", -32022, "Unsupported protocol version"),             None),
        ("b7",  400, "Bad Request: Session ID is required".into(),                   Some(Dialect::NeedsSession)),
        ("b8",  422, "Unexpected message, expect initialize request".into(),         Some(Dialect::NeedsSession)),
        ("b8",  401, "Unauthorized: Session ID is required".into(),                  Some(Dialect::NeedsSession)),
        ("b9",  200, error("7", 0, r#"method \"tools/list\" is invalid during session initialization"#), Some(Dialect::NeedsSession)),
        ("b9",  200, error("7", 0, "no such tool"),                                  None),
        ("b9",  200, error("7", -32600, "is invalid during session initialization"), None),
        ("b10", 400, error("7", -32000, "Bad Request: A new session can only be created by an initialize request. Include a valid id."), Some(Dialect::NeedsSession)),
        ("a25", 404, "Invalid session ID".into(),                                    Some(Dialect::NeedsSession)),
        ("E4",  400, "Invalid session ID".into(),                                    Some(Dialect::NeedsSession)),
        ("E9",  400, "Session ID required in mcp-session-id header".into(),          Some(Dialect::NeedsSession)),
        ("E20", 400, error("null", -32600, "Invalid Request: Server already initialized"), Some(Dialect::SingleSession)),
        ("A172", 400, error("7", -32602, "missing session id"),                      None),
        ("rule 1", 404, error("null", -32001, "Session not found"),                  None),
        ("rule 1", 404, String::new(),                                               None),
        ("rule 1", 410, String::new(),                                               None),
        ("rule 1", 401, "Unauthorized: Session not found".into(),                    None),
        ("rule 1", 503, "unknown session".into(),                                    None),
    ];
    for (row, status, body, dialect) in table {
        assert_eq!(
            said(status, &body, None, WithoutId),
            dialect,
            "{row}: {status} {body}"
        );
    }
}

/// A172, P4: what says nothing of a session is left alone.
#[test]
fn statuses_that_say_nothing_of_a_session_are_left_alone() {
    let words = "session not found, no valid session id provided";
    for status in [
        201, 202, 204, 301, 405, 406, 413, 415, 421, 429, 501, 502, 504, 599,
    ] {
        assert_eq!(said(status, words, None, WithId), None, "{status}");
    }
}

#[test]
fn words_are_sought_in_the_first_kib_alone() {
    let late = format!("{}session not found", "x".repeat(1024));
    assert_eq!(said(400, &late, None, WithId), None);
    let early = format!("session not found{}", "x".repeat(100_000));
    assert_eq!(
        said(400, &early, None, WithId),
        Some(Dialect::BadRequestNotFound)
    );
}

#[test]
fn each_dialect_says_what_helps_and_what_became_of_the_request() {
    use {Breadth as B, Delivery as D, Remedy as R};
    #[rustfmt::skip]
    let table = [
        (Dialect::NotFound,              B::Sure, D::Refused, R::Reopen),
        (Dialect::NotFoundNamesSession,  B::Sure, D::Refused, R::Reopen),
        (Dialect::Gone,                  B::Sure, D::Refused, R::Reopen),
        (Dialect::NoValidId,             B::Sure, D::Refused, R::Reopen),
        (Dialect::InvalidId,             B::Sure, D::Refused, R::Reopen),
        (Dialect::BadRequestNotFound,    B::Sure, D::Refused, R::Reopen),
        (Dialect::NotInitialized,        B::Sure, D::Refused, R::Reopen),
        (Dialect::Stateless,             B::Sure, D::Refused, R::GoStateless),
        (Dialect::Stripped,              B::Sure, D::Refused, R::ReopenOnce),
        (Dialect::UnauthorizedNotFound,  B::Sure, D::Refused, R::ReopenOnce),
        (Dialect::UnauthorizedNoValidId, B::Sure, D::Refused, R::ReopenOnce),
        (Dialect::EndedWhileRunning,     B::Sure, D::Unknown, R::Reopen),
        (Dialect::Conflict,              B::Wide, D::Unknown, R::Reopen),
        (Dialect::Unavailable,           B::Wide, D::Unknown, R::Reopen),
        (Dialect::Wrapped,               B::Wide, D::Unknown, R::Reopen),
        (Dialect::InBand,                B::Wide, D::Unknown, R::Reopen),
        (Dialect::Internal,              B::Wide, D::Unknown, R::Reopen),
        (Dialect::NeedsSession,          B::Sure, D::Refused, R::Open),
        (Dialect::OtherUser,             B::Sure, D::Refused, R::DropSession),
        (Dialect::SingleSession,         B::Sure, D::Refused, R::Wait),
    ];
    assert_eq!(table.map(|row| row.0), Dialect::ALL);
    for (dialect, breadth, delivery, remedy) in table {
        assert_eq!(dialect.breadth(), breadth, "{dialect}");
        assert_eq!(dialect.delivery(), delivery, "{dialect}");
        assert_eq!(dialect.remedy(), remedy, "{dialect}");
    }
}

/// A49: only an answer that leaves nothing to end ends the tries to end a session.
#[test]
fn what_a_server_answers_to_delete_says_whether_anything_is_left() {
    for over in [200, 202, 204, 400, 404, 405, 410, 501] {
        assert!(nothing_left_to_end(over), "{over}");
    }
    for held in [301, 401, 403, 408, 429, 500, 502, 503, 504] {
        assert!(!nothing_left_to_end(held), "{held}");
    }
}
