//! Every dialect met in the field, one row each.

use super::*;

const WITH_ID: bool = true;
const WITHOUT_ID: bool = false;

fn said(status: u16, body: &str, challenge: Option<&str>, sent: bool) -> Option<SessionGoneForm> {
    find_session_gone(&LegacyReply {
        status,
        body: body.as_bytes(),
        challenge,
        has_session_id: sent,
        request_id: 7,
    })
}

fn error(id: &str, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

/// a31: a proxy puts the sentence into a challenge.
#[test]
fn a_challenge_may_say_that_the_session_is_gone() {
    let challenge = r#"Bearer error="invalid_token", error_description="Unauthorized: No valid session ID provided""#;
    let expected = Some(SessionGoneForm::UnauthorizedNoValidId);
    assert_eq!(said(401, "", Some(challenge), WITH_ID), expected);
    let body = error("null", -32000, "Unauthorized: No valid session ID provided");
    assert_eq!(said(401, &body, Some("Bearer"), WITH_ID), expected);
    assert_eq!(
        said(
            401,
            "token expired",
            Some("Bearer error=\"invalid_token\""),
            WITH_ID
        ),
        None
    );
}

/// A172, E2, E4, E26, P7: what looks like a lost session and is none (rows G of the delivery chapter),
/// and forms that no server of the testkit speaks. The testkit holds every form of a known server
/// with what is read from it (`faults::dialects`).
#[test]
fn forms_and_their_borders_are_understood() {
    use SessionGoneForm as Form;
    #[rustfmt::skip]
    let table: Vec<(&str, u16, String, Option<Form>)> = vec![
        ("a13",   200, r#"{"jsonrpc":"2.0","id":7,"result":{"text":"Session not found"}}"#.into(), None),
        ("3.3.5", 400, "Session ID not found.".into(),                                 Some(Form::InvalidId)),
        ("3.3.5", 400, "No transport found for sessionId".into(),                      Some(Form::InvalidId)),
        ("3.3.5", 404, "Could not find session".into(),                                Some(Form::NotFound)),
        ("G1",    404, String::new(),                                                  Some(Form::NotFound)),
        ("G3",    404, error("null", -32600, "Invalid or expired session ID"),         Some(Form::NotFound)),
        ("G4",    400, error("null", -32000, "No valid session ID provided or not an initialize request"), Some(Form::NoValidId)),
        ("G4",    400, error("null", -32000, "Missing session ID"),                    Some(Form::HeaderStripped)),
        ("G4b",   400, error("null", -32000, "Mcp-Session-Id header is required"),     Some(Form::HeaderStripped)),
        ("G7",    409, "already running".into(),                                       None),
        ("G8",    503, "Too many open sessions".into(),                                None),
        ("G9",    500, "Error POSTing to endpoint (HTTP 400): Bad Request".into(),     None),
        ("G10",   200, error("7", -32001, "Session not found."),                       Some(Form::InBand)),
        ("G10",   200, error("7", -32001, "Checkout session not found"),               None),
        ("G10",   200, error("7", -32000, "Server error"),                             None),
        ("G12",   400, error("7", -32602, "the session argument must be a text"),      None),
        ("E4",    400, "Invalid session ID".into(),                                    Some(Form::InvalidId)),
        ("E26",   404, error("7", -32601, "Method not found"),                         None),
        ("E21",   500, error("7", -32603, "Internal error: session not found"),        Some(Form::Internal)),
        ("E21",   500, error("7", -32603, "Internal error"),                           None),
        ("E2",    400, error("null", -32000, "Bad Request"),                           None),
        ("A172",  400, "limit must be positive".into(),                                None),
        ("A172",  400, error("7", -32602, "Invalid session: no such browser tab"),     None),
    ];
    for (row, status, body, form) in table {
        assert_eq!(
            said(status, &body, None, WITH_ID),
            form,
            "{row}: {status} {body}"
        );
    }
}

/// A170, A172, E4, E9: rows b1 to b10: what servers reply to a request outside a session.
#[test]
fn a_request_without_an_id_learns_that_it_needs_a_session() {
    #[rustfmt::skip]
    let table: Vec<(&str, u16, String, Option<SessionGoneForm>)> = vec![
        ("b1",  400, error("\"server-error\"", -32600, "Bad Request: Missing session ID"), Some(SessionGoneForm::NeedsSession)),
        ("b2",  400, error("null", -32600, "Bad Request: Missing session ID"),       Some(SessionGoneForm::NeedsSession)),
        ("b3",  400, error("null", -32000, "Bad Request: Mcp-Session-Id header is required"), Some(SessionGoneForm::NeedsSession)),
        ("b3",  400, error("null", -32000, "Bad Request: Server not initialized"),   Some(SessionGoneForm::NeedsSession)),
        ("b4",  400, error("null", -32000, "Bad Request: No valid session ID provided"), Some(SessionGoneForm::NeedsSession)),
        ("b6",  400, error("7", -32022, "Unsupported protocol version"),             None),
        ("b7",  400, "Bad Request: Session ID is required".into(),                   Some(SessionGoneForm::NeedsSession)),
        ("b8",  422, "Unexpected message, expect initialize request".into(),         Some(SessionGoneForm::NeedsSession)),
        ("b8",  401, "Unauthorized: Session ID is required".into(),                  Some(SessionGoneForm::NeedsSession)),
        ("b9",  200, error("7", 0, r#"method \"tools/list\" is invalid during session initialization"#), Some(SessionGoneForm::NeedsSession)),
        ("b9",  200, error("7", 0, "no such tool"),                                  None),
        ("b9",  200, error("7", -32600, "is invalid during session initialization"), None),
        ("b10", 400, error("7", -32000, "Bad Request: A new session can only be created by an initialize request. Include a valid id."), Some(SessionGoneForm::NeedsSession)),
        ("a25", 404, "Invalid session ID".into(),                                    Some(SessionGoneForm::NeedsSession)),
        ("E4",  400, "Invalid session ID".into(),                                    Some(SessionGoneForm::NeedsSession)),
        ("E9",  400, "Session ID required in mcp-session-id header".into(),          Some(SessionGoneForm::NeedsSession)),
        ("E20", 400, error("null", -32600, "Invalid Request: Server already initialized"), Some(SessionGoneForm::SingleSession)),
        ("A172", 400, error("7", -32602, "missing session id"),                      None),
        ("rule 1", 404, error("null", -32001, "Session not found"),                  None),
        ("rule 1", 404, String::new(),                                               None),
        ("rule 1", 410, String::new(),                                               None),
        ("rule 1", 401, "Unauthorized: Session not found".into(),                    None),
        ("rule 1", 503, "unknown session".into(),                                    None),
    ];
    for (row, status, body, dialect) in table {
        assert_eq!(
            said(status, &body, None, WITHOUT_ID),
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
        assert_eq!(said(status, words, None, WITH_ID), None, "{status}");
    }
}

#[test]
fn words_are_sought_in_the_first_kib_alone() {
    let late = format!("{}session not found", "x".repeat(1024));
    assert_eq!(said(400, &late, None, WITH_ID), None);
    let early = format!("session not found{}", "x".repeat(100_000));
    assert_eq!(
        said(400, &early, None, WITH_ID),
        Some(SessionGoneForm::BadRequestNotFound)
    );
}

#[test]
fn each_dialect_says_what_helps_and_what_became_of_the_request() {
    use {Delivery as D, SessionGoneMatching as B, SessionGoneRemedy as R};
    #[rustfmt::skip]
    let table = [
        (SessionGoneForm::NotFound,              B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::NotFoundNamesSession,  B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::Gone,                  B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::SingleSession,         B::Sure, D::Refused, R::Wait),
        (SessionGoneForm::Stateless,             B::Sure, D::Refused, R::GoStateless),
        (SessionGoneForm::NoValidId,             B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::BadRequestNotFound,    B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::NotInitialized,        B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::InvalidId,             B::Sure, D::Refused, R::Reopen),
        (SessionGoneForm::HeaderStripped,              B::Sure, D::Refused, R::ReopenOnce),
        (SessionGoneForm::UnauthorizedNotFound,  B::Sure, D::Refused, R::ReopenOnce),
        (SessionGoneForm::UnauthorizedNoValidId, B::Sure, D::Refused, R::ReopenOnce),
        (SessionGoneForm::EndedWhileRunning,     B::Sure, D::Unknown, R::Reopen),
        (SessionGoneForm::Conflict,              B::Wide, D::Unknown, R::Reopen),
        (SessionGoneForm::Unavailable,           B::Wide, D::Unknown, R::Reopen),
        (SessionGoneForm::Wrapped,               B::Wide, D::Unknown, R::Reopen),
        (SessionGoneForm::InBand,                B::Wide, D::Unknown, R::Reopen),
        (SessionGoneForm::Internal,              B::Wide, D::Unknown, R::Reopen),
        (SessionGoneForm::NeedsSession,          B::Sure, D::Refused, R::Open),
        (SessionGoneForm::OtherUser,             B::Sure, D::Refused, R::DropSession),
    ];
    assert_eq!(table.map(|row| row.0), SessionGoneForm::ALL);
    for (dialect, breadth, delivery, remedy) in table {
        assert_eq!(dialect.matching(), breadth, "{dialect}");
        assert_eq!(dialect.delivery(), delivery, "{dialect}");
        assert_eq!(dialect.remedy(), remedy, "{dialect}");
    }
}

/// A49: only an answer that leaves nothing to end ends the tries to end a session.
#[test]
fn what_a_server_answers_to_delete_says_whether_anything_is_left() {
    for over in [200, 202, 204, 400, 404, 405, 410, 501] {
        assert!(is_session_deleted(over), "{over}");
    }
    for held in [301, 401, 403, 408, 429, 500, 502, 503, 504] {
        assert!(!is_session_deleted(held), "{held}");
    }
}
