//! What is a message, what is not, and where its parts stand.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn split(text: &str) -> Result<Message, ParseError> {
    Message::parse(Bytes::copy_from_slice(text.as_bytes()))
}

fn whole(text: &str) -> Message {
    split(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

#[test]
fn every_kind_of_message_is_told_by_its_members() {
    #[rustfmt::skip]
    let table = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,                          MessageKind::Request),
        (r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":{}}"#,            MessageKind::Request),
        (r#"{"jsonrpc":"2.0","id":-1,"method":"ping"}"#,                         MessageKind::Request),
        (r#"{"jsonrpc":"2.0","id":1.5,"result":{}}"#,                            MessageKind::Result),
        (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,            MessageKind::Notification),
        (r#"{"jsonrpc":"2.0","method":"x","params":null}"#,                      MessageKind::Notification),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,                              MessageKind::Result),
        (r#"{"result":null,"id":1,"jsonrpc":"2.0"}"#,                            MessageKind::Result),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}"#,         MessageKind::Error),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,      MessageKind::Error),
        (r#"{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}"#,                MessageKind::Error),
        (r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":1,"message":""}}"#, MessageKind::Error),
        (r#" { "jsonrpc" : "2.0" , "id" : 1 , "result" : {} } "#,                MessageKind::Result),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"extension":{"x":1}}"#,          MessageKind::Result),
    ];
    for (text, kind) in table {
        assert_eq!(whole(text).kind(), kind, "{text}");
    }
}

#[test]
fn what_is_no_message_is_refused_by_name_and_place() {
    #[rustfmt::skip]
    let table: &[(&str, ParseErrorKind, usize)] = &[
        ("",                                                        ParseErrorKind::Truncated,  0),
        ("  ",                                                      ParseErrorKind::Truncated,  2),
        ("hello",                                                   ParseErrorKind::NotJson,    0),
        ("<html>",                                                  ParseErrorKind::NotJson,    0),
        ("null",                                                    ParseErrorKind::NotObject,  0),
        ("\"text\"",                                                ParseErrorKind::NotObject,  0),
        (r#"[{"jsonrpc":"2.0","method":"x"}]"#,                     ParseErrorKind::Batch,      0),
        ("  []",                                                    ParseErrorKind::Batch,      2),
        ("[",                                                       ParseErrorKind::NotJson,    0),
        ("[1,]",                                                    ParseErrorKind::NotJson,    0),
        ("[] []",                                                   ParseErrorKind::NotJson,    0),
        ("{}",                                                      ParseErrorKind::NotJsonRpc, 0),
        (r#"{"id":1,"method":"x"}"#,                                ParseErrorKind::NotJsonRpc, 0),
        (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#,                ParseErrorKind::NotJsonRpc, 11),
        (r#"{"jsonrpc":2.0,"id":1,"method":"x"}"#,                  ParseErrorKind::NotJsonRpc, 11),
        (r#"{"jsonrpc":"2.0"}"#,                                    ParseErrorKind::UnknownMessageKind,     0),
        (r#"{"jsonrpc":"2.0","id":1}"#,                             ParseErrorKind::UnknownMessageKind,     0),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","result":{}}"#,    ParseErrorKind::UnknownMessageKind,     0),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":{}}"#,       ParseErrorKind::UnknownMessageKind,     0),
        (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#,             ParseErrorKind::BadId,      22),
        (r#"{"jsonrpc":"2.0","id":true,"method":"x"}"#,             ParseErrorKind::BadId,      22),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#,              ParseErrorKind::BadId,      22),
        (r#"{"jsonrpc":"2.0","id":1e400,"method":"x"}"#,            ParseErrorKind::BadId,      22),
        (r#"{"jsonrpc":"2.0","method":"x","id":-1E2}"#,             ParseErrorKind::BadId,      35),
        (r#"{"jsonrpc":"2.0","id":{},"result":1}"#,                 ParseErrorKind::BadId,      22),
        (r#"{"jsonrpc":"2.0","id":[1],"result":1}"#,                ParseErrorKind::BadId,      22),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#,                  ParseErrorKind::BadMethod,  33),
        (r#"{"jsonrpc":"2.0","id":1,"method":""}"#,                 ParseErrorKind::BadMethod,  33),
        (r#"{"jsonrpc":"2.0","method":"x","params":[1]}"#,          ParseErrorKind::BadParams,  39),
        (r#"{"jsonrpc":"2.0","method":"x","params":"no"}"#,         ParseErrorKind::BadParams,  39),
        (r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,                ParseErrorKind::BadError,   32),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x"}}"#,               ParseErrorKind::TrailingData,   37),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x"} {"#,              ParseErrorKind::TrailingData,   38),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x""#,                 ParseErrorKind::Truncated,  36),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}"#,         ParseErrorKind::DuplicateMember,  29),
        (r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"x"}"#,    ParseErrorKind::DuplicateMember,  34),
        (r#"{"\u0069d":1,"jsonrpc":"2.0","id":2,"method":"x"}"#,    ParseErrorKind::DuplicateMember,  34),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","a":1,"a":1}"#,    ParseErrorKind::DuplicateMember,  47),
        (r#"{"jsonrpc":"2.0","id":01,"method":"x"}"#,               ParseErrorKind::NotJson,    22),
        (r#"{"jsonrpc":"2.0","id":1 "method":"x"}"#,                ParseErrorKind::NotJson,    24),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":tru}}"#,          ParseErrorKind::NotJson,    41),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":[1}}}"#,          ParseErrorKind::NotJson,    40),
        (r#"{"jsonrpc":"2.0","id":1,"result":{"a":"\x"}}"#,         ParseErrorKind::NotJson,    40),
    ];
    for (text, what, at) in table {
        let fault = split(text).expect_err(text);
        assert_eq!(fault.kind, *what, "{text}");
        assert!(
            fault.offset.abs_diff(*at) <= 1,
            "{text}: {fault}, expected at {at}"
        );
    }
}

#[test]
fn bytes_that_are_no_text_are_refused_where_they_stop_being_text() {
    let raw = Bytes::from_static(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}");
    let fault = Message::parse(raw).expect_err("not UTF-8");
    assert_eq!(fault, ParseError::new(ParseErrorKind::NotUtf8, 34));
    assert_eq!(fault.to_string(), "not UTF-8 at byte 34");
}

#[test]
fn names_are_compared_unescaped() {
    let message = whole(r#"{"jsonrpc":"2.0","\u0069d":7,"m\u0065thod":"tools\/call"}"#);
    assert_eq!(message.id(), Some(RequestId::Number(7)));
    assert_eq!(message.method(), Some("tools/call"));
}

#[test]
fn ids_keep_their_type() {
    #[rustfmt::skip]
    let table = [
        ("1",                    RequestId::Number(1)),
        ("-5",                   RequestId::Number(-5)),
        ("9007199254740993",     RequestId::Number(9_007_199_254_740_993)),
        ("\"1\"",                RequestId::Text("1".into())),
        ("\"a\\u0062\"",         RequestId::Text("ab".into())),
        ("null",                 RequestId::Null),
        ("1.0",                  RequestId::Other),
        ("1e400",                RequestId::Other),
        ("99999999999999999999", RequestId::Other),
    ];
    for (raw, id) in table {
        let message = whole(&format!(r#"{{"jsonrpc":"2.0","id":{raw},"result":{{}}}}"#));
        assert_eq!(message.raw_id(), Some(raw.as_bytes()));
        assert_eq!(message.id(), Some(id), "{raw}");
    }
}

#[test]
fn a_response_is_ours_only_under_our_number() {
    let answers = |id: &str, ours| {
        whole(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)).is_response_to(ours)
    };
    assert!(answers("7", 7));
    assert!(!answers("8", 7));
    assert!(!answers("\"7\"", 7));
    assert!(!answers("-7", 7));
    assert!(!answers("null", 7));
    assert!(!whole(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).is_response_to(7));
}

#[test]
fn parts_are_slices_of_the_same_bytes() {
    let message = whole(r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1, 2]}}"#);
    let params = message.params().expect("params");
    assert_eq!(params, r#"{"a":[1, 2]}"#);
    let whole = message.raw().as_ptr_range();
    assert!(whole.contains(&params.as_ptr()));
    assert_eq!(message.result(), None);
    assert_eq!(message.error(), None);
}

#[test]
fn an_id_is_replaced_in_place() {
    #[rustfmt::skip]
    let table = [
        (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#,     r#"{"jsonrpc":"2.0","id":"x","method":"m"}"#),
        (r#"{"id" : "long" ,"jsonrpc":"2.0","result":1}"#, r#"{"id" : "x" ,"jsonrpc":"2.0","result":1}"#),
        (r#"{"jsonrpc":"2.0","error":{"code":1,"message":""}}"#,
         r#"{"id":"x","jsonrpc":"2.0","error":{"code":1,"message":""}}"#),
    ];
    for (before, after) in table {
        assert_eq!(whole(before).with_id(b"\"x\""), after);
    }
}

/// A183: code, message and data are kept.
#[test]
fn errors_are_read_with_their_numbers_texts_and_data() {
    let error = RpcError::parse(br#"{"code":-32600.0,"message":"a\n\u00e9","data":{"k":[1]}}"#);
    let error = error.expect("an error");
    assert_eq!((error.code, error.message.as_str()), (-32600, "a\né"));
    assert_eq!(error.data.as_deref(), Some(&br#"{"k":[1]}"#[..]));
    for bad in [
        r"{}",
        r#"{"code":1}"#,
        r#"{"message":"m"}"#,
        r#"{"code":"1","message":"m"}"#,
        r#"{"code":1.5,"message":"m"}"#,
        r#"{"code":9007199254740992.0,"message":"m"}"#,
    ] {
        assert_eq!(
            RpcError::parse(bad.as_bytes()).expect_err(bad).kind,
            ParseErrorKind::BadError,
            "{bad}"
        );
    }
}

#[test]
fn deep_nesting_and_lone_surrogates_pass_untouched() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{deep}}}"#);
    assert_eq!(whole(&text).result().map(|raw| raw.len()), Some(200_000));
    let lone = r#"{"jsonrpc":"2.0","id":1,"result":"\ud800"}"#;
    assert_eq!(whole(lone).result().as_deref(), Some(&br#""\ud800""#[..]));
}

#[test]
fn an_object_of_very_many_members_is_read_and_its_twins_are_found() {
    let members: String = (0..50_000).map(|n| format!(r#""m{n}":1,"#)).collect();
    let text = format!(r#"{{{members}"jsonrpc":"2.0","id":1,"result":1}}"#);
    assert_eq!(whole(&text).kind(), MessageKind::Result);
    let text = format!(r#"{{{members}"jsonrpc":"2.0","id":1,"result":1,"m49999":2}}"#);
    assert_eq!(
        split(&text).expect_err("twins").kind,
        ParseErrorKind::DuplicateMember
    );
}

proptest! {
    /// reliability P19: no bytes make it panic.
    #[test]
    fn no_bytes_make_it_panic(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(Message::parse(raw.into()));
    }

    #[test]
    fn no_cut_message_is_taken_for_a_whole_one(cut in 0_usize..74) {
        let text = r#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"é","x":1}}"#;
        prop_assert!(Message::parse(Bytes::copy_from_slice(&text.as_bytes()[..cut])).is_err());
    }

    #[test]
    fn a_changed_id_changes_nothing_else(id in any::<i64>(), method in "[a-z/]{1,20}", value in ".{0,20}") {
        let value = serde_json::to_string(&value).expect("text");
        let text = format!(r#"{{"jsonrpc":"2.0","method":"{method}","id":1,"params":{{"v":{value}}}}}"#);
        let changed = Message::parse(whole(&text).with_id(id.to_string().as_bytes())).expect("valid");
        prop_assert_eq!(changed.id(), Some(RequestId::Number(id)));
        prop_assert_eq!(changed.method(), Some(method.as_str()));
        prop_assert_eq!(changed.params(), whole(&text).params());
    }
}

fn split_texts(text: &'static str, version: Version) -> Vec<Bytes> {
    split_batch(Bytes::from_static(text.as_bytes()), Some(version)).collect()
}

#[test]
fn a_batch_is_taken_apart_where_the_version_knows_it() {
    let batch = " [ {\"a\":[1,{}]} ,\"],\", [2] ]\n";
    let apart = ["{\"a\":[1,{}]}", "\"],\"", "[2]"];
    for version in Version::ALL {
        let expected: &[&str] = match version {
            Version::V2025_03_26 => &apart,
            Version::V2024_11_05
            | Version::V2025_06_18
            | Version::V2025_11_25
            | Version::V2026_07_28 => &[batch],
        };
        assert_eq!(split_texts(batch, version), expected, "{version}");
    }
    let unknown: Vec<_> = split_batch(Bytes::from_static(batch.as_bytes()), None).collect();
    assert_eq!(unknown, [batch]);
}

#[test]
fn what_is_no_whole_batch_stays_one_text() {
    for text in [
        "", "{}", "[]", "[ ]", "[1", "[1,]", "[1] 2", "[1]]", "nothing", "\"[1]\"",
    ] {
        assert_eq!(split_texts(text, Version::V2025_03_26), [text]);
    }
    let bad = Bytes::from_static(b"[\"\xff\"]");
    let kept: Vec<_> = split_batch(bad.clone(), Some(Version::V2025_03_26)).collect();
    assert_eq!(kept, [bad]);
}
