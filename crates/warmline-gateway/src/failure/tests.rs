//! What callers read of an error, and what they do not.

use warmline::core::exchange::Trouble;

use super::*;

fn error(reason: Reason, what: &str) -> Error {
    let trouble = Trouble::new(reason, what);
    Error::unsent(
        trouble
            .because("/srv/bin/x said canary")
            .hint("did you mean `secret-server`?"),
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
        let told = message(b"1", &error, Candour::Reserved);
        let told = String::from_utf8_lossy(&told);
        for hidden in ["canary", "/srv", "10.0.0.1", "inner", "secret-server"] {
            assert!(!told.contains(hidden), "{reason:?}: {told}");
        }
        assert!(told.contains(reason.word()), "{told}");
        let all = message(b"1", &error, Candour::Full);
        let all = String::from_utf8_lossy(&all);
        assert!(all.contains(what) && all.contains("canary"), "{all}");
    }
}

#[test]
fn what_is_wrong_with_the_message_itself_is_told_to_everybody() {
    let error = error(Reason::InvalidRequest, "the parameters are no object");
    let told = fields(&error, Candour::Reserved);
    assert_eq!(told["why"], "/srv/bin/x said canary");
    assert_eq!(told["hint"], "did you mean `secret-server`?");
}

#[test]
fn what_is_not_allowed_is_not_worth_a_second_call() {
    let told = message(b"1", &error(Reason::NotAllowed, "no"), Candour::Reserved);
    let told = String::from_utf8_lossy(&told);
    assert!(
        told.contains("no; not executed, and calling again changes nothing"),
        "{told}"
    );
    assert!(!told.contains("safe to call again"), "{told}");
}
