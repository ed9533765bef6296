//! What callers read of an error, and what they do not.

use warmline_core::exchange::Diagnostic;

use super::*;

fn error(reason: Reason, what: &str) -> Error {
    let diagnostic = Diagnostic::new(reason, what);
    Error::from(
        diagnostic
            .with_cause("/srv/bin/x said canary")
            .with_hint("did you mean `secret-server`?"),
    )
}

/// Reliability O24, O26: where servers are and what they said stands in the log, not in answers.
#[test]
fn callers_over_the_network_read_no_places_and_no_last_words() {
    let place = "`x` failed at http://10.0.0.1/inner";
    let table = [
        (Reason::ConnectRefused, place),
        (Reason::ProgramMissing, place),
        (Reason::Spawn, place),
        (Reason::Tls, place),
        (Reason::Handshake, place),
        (Reason::CredentialUnavailable, place),
        (Reason::ResolveFailed, place),
        (Reason::StoreUnavailable, place),
        (Reason::Internal, place),
        // What becomes of a call is told in our own words, which name no place.
        (Reason::ChildExit, "`x` ended"),
        (Reason::Redirect, "`x` points elsewhere"),
    ];
    for (reason, what) in table {
        let error = error(reason, what);
        let told = call_error_message(b"1", &error, ErrorDetail::Limited);
        let told = String::from_utf8_lossy(&told);
        for hidden in ["canary", "/srv", "10.0.0.1", "inner", "secret-server"] {
            assert!(!told.contains(hidden), "{reason:?}: {told}");
        }
        assert!(told.contains(reason.as_str()), "{told}");
        let all = call_error_message(b"1", &error, ErrorDetail::Full);
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains(what) && all.contains("canary"), "{all}");
    }
}

#[test]
fn what_is_wrong_with_the_message_itself_is_told_to_everybody() {
    let error = error(Reason::InvalidRequest, "the parameters are no object");
    let told = error_fields(&error, ErrorDetail::Limited);
    assert_eq!(told["why"], "/srv/bin/x said canary");
    assert_eq!(told["hint"], "did you mean `secret-server`?");
}

#[test]
fn what_is_not_allowed_is_not_worth_a_second_call() {
    let told = call_error_message(b"1", &error(Reason::NotAllowed, "no"), ErrorDetail::Limited);
    let told = String::from_utf8_lossy(&told);
    assert!(
        told.contains("no; not executed, and calling again changes nothing"),
        "{told}"
    );
    assert!(!told.contains("safe to call again"), "{told}");
}
