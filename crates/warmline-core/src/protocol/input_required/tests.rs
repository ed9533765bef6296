//! Kinds of modern results.

use super::*;

#[test]
fn results_are_complete_unless_they_say_otherwise() {
    for raw in [
        r"{}",
        r#"{"resultType":"complete"}"#,
        r#"{"content":[],"inputRequests":{}}"#,
    ] {
        assert_eq!(
            read_result_type(raw.as_bytes()),
            Ok(ResultType::Complete),
            "{raw}"
        );
    }
    let task = read_result_type(br#"{"resultType":"task","taskId":"t"}"#);
    assert_eq!(task, Ok(ResultType::Other("task".into())));
}

#[test]
fn questions_keep_their_order_and_the_state_its_bytes() {
    let raw = br#"{"resultType":"input_required","requestState":"a\u00e9\n","inputRequests":{
        "z":{"method":"elicitation/create","params":{"message":"?"}},
        "a":{"method":"roots/list"}}}"#;
    let question = |key: &str, method: &str, params: &'static [u8]| InputRequest {
        key: key.to_owned(),
        method: method.to_owned(),
        params: Bytes::from_static(params),
    };
    let expected = ResultType::InputRequired {
        requests: vec![
            question("z", "elicitation/create", br#"{"message":"?"}"#),
            question("a", "roots/list", b"{}"),
        ],
        state: Some(Bytes::from_static(br#""a\u00e9\n""#)),
    };
    assert_eq!(read_result_type(raw), Ok(expected));
}

#[test]
fn a_state_alone_asks_to_come_again() {
    let read = read_result_type(br#"{"resultType":"input_required","requestState":"s"}"#);
    let state = Some(Bytes::from_static(b"\"s\""));
    assert_eq!(
        read,
        Ok(ResultType::InputRequired {
            requests: vec![],
            state
        })
    );
}

#[test]
fn a_question_that_asks_nothing_is_refused() {
    for raw in [
        r#"{"resultType":7}"#,
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{}}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{}}}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{"method":"x"},"a":{"method":"y"}}}"#,
        "7",
    ] {
        assert!(read_result_type(raw.as_bytes()).is_err(), "{raw}");
    }
}

#[test]
fn answers_are_written_under_their_keys() {
    let mut out = Vec::new();
    write_input_responses(
        &mut out,
        [("a\"", "{}"), ("b", "[1]")].iter().map(|(k, v)| (*k, *v)),
    );
    assert_eq!(out, br#"{"a\"":{},"b":[1]}"#);
}
