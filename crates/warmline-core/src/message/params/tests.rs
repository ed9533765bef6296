//! What parameters are, and what may be read from them.

use super::*;

fn params(text: &str) -> Params {
    Params::parse(Bytes::copy_from_slice(text.as_bytes())).expect(text)
}

fn written(params: &Params, edits: &[Edit<'_>], meta_edits: &[Edit<'_>]) -> String {
    let mut out = Vec::new();
    params.write_edited(&mut out, edits, meta_edits);
    String::from_utf8(out).expect("text")
}

#[test]
fn members_are_read_by_their_unescaped_names() {
    let params =
        params(r#"{"n\u0061me":"a\"b","uri":"file:///x","taskId":"t","arguments":{"k":1}}"#);
    assert_eq!(params.name().as_deref(), Some("a\"b"));
    assert_eq!(params.uri().as_deref(), Some("file:///x"));
    assert_eq!(params.member("arguments"), Some(&br#"{"k":1}"#[..]));
    assert_eq!(params.member("missing"), None);
    assert!(!params.is_empty());
}

#[test]
fn a_name_that_is_no_text_is_none() {
    assert_eq!(params(r#"{"name":7}"#).name(), None);
}

#[test]
fn twins_are_refused_at_the_top_and_in_meta_but_not_below() {
    #[rustfmt::skip]
    let table: &[(&str, Option<(ParseErrorKind, usize)>)] = &[
        (r#"{"name":"a","name":"b"}"#,               Some((ParseErrorKind::DuplicateMember, 19))),
        (r#"{"name":"a","\u006eame":"b"}"#,          Some((ParseErrorKind::DuplicateMember, 24))),
        (r#"{"_meta":{"a":1,"a":2}}"#,               Some((ParseErrorKind::DuplicateMember, 20))),
        (r#"{"_meta":{"a":1},"_meta":{}}"#,          Some((ParseErrorKind::DuplicateMember, 25))),
        (r#"{"_meta":7}"#,                           Some((ParseErrorKind::BadMeta, 9))),
        (r#"{"_meta":[]}"#,                          Some((ParseErrorKind::BadMeta, 9))),
        (r"[1]",                                     Some((ParseErrorKind::NotObject, 0))),
        (r#""no""#,                                  Some((ParseErrorKind::NotObject, 0))),
        (r#"{"arguments":{"a":1,"a":2}}"#,           None),
        (r#"{"_meta":null}"#,                        None),
        (r"{}",                                      None),
    ];
    for (text, expected) in table {
        let parsed = Params::parse(Bytes::copy_from_slice(text.as_bytes()));
        assert_eq!(
            parsed.err(),
            expected.map(|(what, at)| ParseError::new(what, at)),
            "{text}"
        );
    }
}

#[test]
fn meta_members_are_set_beside_those_of_the_caller() {
    let table = [
        (r"{}", r#"{"_meta":{"progressToken":7}}"#),
        (
            r#"{"name":"a"}"#,
            r#"{"name":"a","_meta":{"progressToken":7}}"#,
        ),
        (
            r#"{"_meta":{"trace":"x"},"name":"a"}"#,
            r#"{"_meta":{"trace":"x","progressToken":7},"name":"a"}"#,
        ),
        (
            r#"{"_meta":{"progressToken":"theirs","trace":"x"}}"#,
            r#"{"_meta":{"progressToken":7,"trace":"x"}}"#,
        ),
        (r#"{"_meta":{}}"#, r#"{"_meta":{"progressToken":7}}"#),
        (r#"{"_meta":null}"#, r#"{"_meta":{"progressToken":7}}"#),
    ];
    for (before, after) in table {
        let edits = [Edit::Set("progressToken", b"7")];
        assert_eq!(written(&params(before), &[], &edits), after);
    }
}

#[test]
fn an_edit_of_meta_as_a_whole_wins() {
    let theirs = params(r#"{"_meta":{"a":1}}"#);
    let inner = [Edit::Set("b", b"2")];
    assert_eq!(
        written(&theirs, &[Edit::Set("_meta", b"{}")], &inner),
        r#"{"_meta":{}}"#
    );
    assert_eq!(written(&theirs, &[Edit::Remove("_meta")], &inner), "{}");
}

#[test]
fn removing_from_no_meta_makes_none() {
    assert_eq!(written(&Params::empty(), &[], &[Edit::Remove("a")]), "{}");
}

#[test]
fn meta_is_read_only_where_it_is_an_object() {
    assert_eq!(params(r#"{"_meta":null}"#).meta(), None);
    assert_eq!(
        params(r#"{"_meta":{"a":"b"}}"#).meta_member("a"),
        Some(&br#""b""#[..])
    );
    assert_eq!(params(r#"{"_meta":{"a":"b"}}"#).meta_member("c"), None);
}

#[test]
fn values_become_parameters_if_they_are_objects() {
    assert_eq!(
        Params::from_serialize(&serde_json::json!({"a": 1})).map(|p| p.raw().clone()),
        Ok(Bytes::from_static(br#"{"a":1}"#))
    );
    assert!(Params::from_serialize(&[1, 2]).is_err());
    assert!(Params::default().is_empty());
    assert!(params("{ }").is_empty());
    assert_eq!(Params::empty().raw(), &Bytes::from_static(b"{}"));
}
