//! Edits by bytes, and the messages we write.

use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;

fn edited(raw: &str, edits: &[Edit<'_>]) -> String {
    let mut out = b"kept".to_vec();
    edit_object(raw.as_bytes(), edits, &mut out).expect(raw);
    String::from_utf8(out).expect("text").split_off(4)
}

#[test]
fn edits_change_what_they_name_and_nothing_else() {
    use Edit::{Remove, Set};
    #[rustfmt::skip]
    let table: &[(&str, &[Edit<'_>], &str)] = &[
        (r"{}",                       &[],                                r"{}"),
        (r"{ }",                      &[Set("a", b"1")],                  r#"{"a":1}"#),
        (r#"{"b":2}"#,                &[Set("a", b"1")],                  r#"{"b":2,"a":1}"#),
        (r#"{"a":0,"b":2}"#,          &[Set("a", b"1")],                  r#"{"a":1,"b":2}"#),
        (r#"{"b":2,"a":0}"#,          &[Set("a", b"[1]")],                r#"{"b":2,"a":[1]}"#),
        (r#"{"a":0}"#,                &[Remove("a")],                     r"{}"),
        (r#"{"a":0,"b":2}"#,          &[Remove("a")],                     r#"{"b":2}"#),
        (r#"{"b":2,"a":0}"#,          &[Remove("a")],                     r#"{"b":2}"#),
        (r#"{"b":2,"a":0,"c":3}"#,    &[Remove("a")],                     r#"{"b":2,"c":3}"#),
        (r#"{"b":2}"#,                &[Remove("a")],                     r#"{"b":2}"#),
        (r#"{"a":0}"#,                &[Remove("a"), Set("b", b"1")],     r#"{"b":1}"#),
        (r#"{"\u0061":0}"#,           &[Set("a", b"1")],                  r#"{"\u0061":1}"#),
        (r#"{"\u0061":0}"#,           &[Remove("a")],                     r"{}"),
        (r#"{"a":0}"#,                &[Set("a", b"1"), Set("a", b"2")],  r#"{"a":1}"#),
        (r"{}",                       &[Set("a", b"1"), Set("a", b"2")],  r#"{"a":1}"#),
        (r"{}",                       &[Set("q\"", b"1")],                r#"{"q\"":1}"#),
        ("{\n \"a\" : 0 ,\n \"b\" : [1, 2]\n}", &[Set("a", b"1")],        "{\n \"a\" : 1 ,\n \"b\" : [1, 2]\n}"),
        ("{ \"a\":0 , \"b\":2 }",     &[Remove("b")],                     "{ \"a\":0 }"),
    ];
    for (raw, edits, after) in table {
        assert_eq!(edited(raw, edits), *after, "{raw} with {edits:?}");
    }
}

#[test]
fn a_refused_edit_leaves_nothing_behind() {
    let mut out = b"kept".to_vec();
    for raw in [r#"{"a":1,"a":2}"#, r#"{"a":"#, "[]", "\u{0}"] {
        assert!(
            edit_object(raw.as_bytes(), &[Edit::Set("b", b"1")], &mut out).is_err(),
            "{raw}"
        );
        assert_eq!(out, b"kept");
    }
}

#[test]
fn a_hundred_edits_find_their_members() {
    let names: Vec<String> = (0..100).map(|n| format!("m{n}")).collect();
    let edits: Vec<Edit<'_>> = names.iter().map(|name| Edit::Set(name, b"1")).collect();
    let once = edited("{}", &edits);
    assert_eq!(once.matches(":1").count(), 100);
    assert_eq!(edited(&once, &edits), once);
}

#[test]
fn line_breaks_between_tokens_go_and_those_in_texts_stay() {
    let pretty = Bytes::from_static(b"{\r\n \"a\": \"x\\n\",\n \"b\": [1,\n2]\n}");
    assert_eq!(to_single_line(pretty), "{ \"a\": \"x\\n\", \"b\": [1,2]}");
    let plain = Bytes::from_static(b"{\"a\":1}");
    assert_eq!(to_single_line(plain.clone()).as_ptr(), plain.as_ptr());
}

#[test]
fn numbers_are_written_in_digits() {
    for number in [0, 7, 10, 9_007_199_254_740_991, u64::MAX] {
        let mut out = Vec::new();
        write_number(&mut out, number);
        assert_eq!(out, number.to_string().into_bytes());
    }
}

#[test]
fn errors_are_written_with_numbers_of_either_sign() {
    for code in [0, 7501, -32601, i64::MIN, i64::MAX] {
        let mut out = Vec::new();
        write_error(&mut out, b"null", code, "no");
        let expected =
            format!(r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":{code},"message":"no"}}}}"#);
        assert_eq!(out, expected.into_bytes());
    }
}

#[test]
fn parameters_without_members_are_left_out() {
    let mut out = Vec::new();
    write_request(
        &mut out,
        1,
        "ping",
        &Params::empty(),
        &[Edit::Remove("a")],
        &[],
    );
    assert_eq!(out, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
}

fn objects() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-d]{1,2}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    proptest::collection::btree_map("[a-d\"\\\\é]{1,2}", value, 0..6)
        .prop_map(|members| members.into_iter().collect())
}

proptest! {
    /// The same as editing a tree, whatever the object and however it is laid out.
    #[test]
    fn edits_by_bytes_do_what_edits_of_a_tree_do(
        object in objects(),
        pretty in any::<bool>(),
        edits in proptest::collection::vec(("[a-d\"\\\\é]{1,2}", proptest::option::of(any::<i32>())), 0..5),
    ) {
        let raw = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
        let raw = raw.expect("an object");
        let values: Vec<(String, Option<String>)> =
            edits.iter().map(|(name, value)| (name.clone(), value.map(|v| v.to_string()))).collect();
        let by_bytes: Vec<Edit<'_>> = values.iter().map(|(name, value)| match value {
            Some(value) => Edit::Set(name, value.as_bytes()),
            None => Edit::Remove(name),
        }).collect();
        let mut tree = object;
        for (name, value) in edits.iter().rev() {
            match value {
                Some(value) => { tree.insert(name.clone(), Value::from(*value)); },
                None => { tree.remove(name); },
            }
        }
        let after: Map<String, Value> = serde_json::from_str(&edited(&raw, &by_bytes)).expect("valid");
        prop_assert_eq!(after, tree);
    }
}
