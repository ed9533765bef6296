//! Values in headers, and what tools ask to be mirrored.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

#[test]
fn values_stand_plain_where_that_is_safe() {
    #[rustfmt::skip]
    let table = [
        ("echo",                "echo"),
        ("file:///a b.txt",     "file:///a b.txt"),
        ("",                    ""),
        ("Hello, 世界",          "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ",            "=?base64?IHBhZGRlZCA=?="),
        ("tail ",               "=?base64?dGFpbCA=?="),
        ("a\r\nEvil: 1",        "=?base64?YQ0KRXZpbDogMQ==?="),
        ("a\tb",                "=?base64?YQli?="),
        ("\u{7f}",              "=?base64?fw==?="),
        ("=?base64?eA==?=",     "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        ("=?BASE64?eA==?=",     "=?base64?PT9CQVNFNjQ/ZUE9PT89?="),
        ("=?base64",            "=?base64"),
    ];
    for (text, value) in table {
        assert_eq!(encode_value(text), value, "{text:?}");
        assert_eq!(decode_value(&encode_value(text)).as_deref(), Some(text));
    }
}

#[test]
fn values_nobody_may_write_are_not_read() {
    #[rustfmt::skip]
    let bad = ["=?base64?eA=?=", "=?base64?eB==?=", "=?base64?/w==?=", "=?base64?!?=", " a", "a "];
    for bad in bad {
        assert_eq!(decode_value(&HeaderValue::from_static(bad)), None, "{bad}");
    }
    let latin = HeaderValue::from_bytes(b"caf\xe9").expect("a header value");
    assert_eq!(decode_value(&latin), None);
}

#[test]
fn what_only_begins_or_ends_like_the_base64_form_stands_for_itself() {
    for plain in ["=?base64?eA==", "eA==?=", "=?BASE64?eA==?=", "=?base64"] {
        let value = HeaderValue::from_static(plain);
        assert_eq!(decode_value(&value).as_deref(), Some(plain));
    }
}

#[test]
fn requests_are_named_by_what_they_are_about() {
    let params = Params::parse(Bytes::from_static(
        br#"{"name":"echo","uri":"file:///\u00e9","taskId":"t-1"}"#,
    ))
    .expect("params");
    #[rustfmt::skip]
    let table = [
        ("tools/call",      Some("echo")),
        ("prompts/get",     Some("echo")),
        ("resources/read",  Some("=?base64?ZmlsZTovLy/DqQ==?=")),
        ("tasks/get",       Some("t-1")),
        ("tasks/update",    Some("t-1")),
        ("tools/list",      None),
        // The era that has the header has this method no more.
        ("tasks/result",    None),
        ("vendor/method",   None),
    ];
    for (method, name) in table {
        assert_eq!(
            mcp_name(method, &params),
            name.map(HeaderValue::from_static),
            "{method}"
        );
    }
    assert_eq!(mcp_name("tools/call", &Params::empty()), None);
}

#[test]
fn methods_stand_plain_or_not_at_all() {
    assert_eq!(
        mcp_method("tools/call"),
        Some(HeaderValue::from_static("tools/call"))
    );
    for bad in ["", "a b", "a\r\nb", "é"] {
        assert_eq!(mcp_method(bad), None, "{bad:?}");
    }
}

#[test]
fn session_ids_are_visible_ascii_of_bounded_length() {
    assert!(is_valid_session_id(b"0123-abc~!"));
    assert!(is_valid_session_id(&[b'x'; 1024]));
    let long = [b'x'; 1025];
    let bad: [&[u8]; 5] = [b"", b"a b", b"a\n", "é".as_bytes(), &long];
    assert!(bad.into_iter().all(|id| !is_valid_session_id(id)));
}

fn asked(schema: &str) -> Result<ParamHeaders, ParamHeaderError> {
    ParamHeaders::from_schema(schema.as_bytes())
}

#[test]
fn schemas_that_break_a_rule_name_it() {
    let property =
        |inside: &str| format!(r#"{{"type":"object","properties":{{"p":{{{inside}}}}}}}"#);
    let name = |name: &str| property(&format!(r#""type":"string","x-mcp-header":{name}"#));
    let reserved = |name: &str| ParamHeaderError::Reserved(name.to_owned());
    let wrong = || ParamHeaderError::WrongType("P".to_owned());
    #[rustfmt::skip]
    let table: Vec<(String, ParamHeaderError)> = vec![
        (name(r#""""#),                                                   ParamHeaderError::MissingName),
        (name("7"),                                                       ParamHeaderError::MissingName),
        (name("null"),                                                    ParamHeaderError::MissingName),
        (name(r#""a b""#),                                                ParamHeaderError::InvalidName("a b".into())),
        (name(r#""a:b""#),                                                ParamHeaderError::InvalidName("a:b".into())),
        (name(r#""a\r\nX: y""#),                                          ParamHeaderError::InvalidName("a\r\nX: y".into())),
        (name(r#""é""#),                                                  ParamHeaderError::InvalidName("é".into())),
        (name(r#""a(b""#),                                                ParamHeaderError::InvalidName("a(b".into())),
        (name(r#""a\u0000""#),                                            ParamHeaderError::InvalidName("a\0".into())),
        (name(r#""Authorization""#),                                      reserved("Authorization")),
        (name(r#""HOST""#),                                               reserved("HOST")),
        (name(r#""content-length""#),                                     reserved("content-length")),
        (property(r#""type":"number","x-mcp-header":"P""#),               wrong()),
        (property(r#""type":"object","x-mcp-header":"P""#),               wrong()),
        (property(r#""type":"array","x-mcp-header":"P""#),                wrong()),
        (property(r#""type":["string","integer"],"x-mcp-header":"P""#),   wrong()),
        (property(r#""x-mcp-header":"P""#),                               wrong()),
        (property(r#""type":"array","items":{"type":"string","x-mcp-header":"P"}"#), ParamHeaderError::OutsideProperties),
        (property(r#""oneOf":[{"type":"string","x-mcp-header":"P"}]"#),   ParamHeaderError::OutsideProperties),
        (property(r#""not":{"properties":{"q":{"type":"string","x-mcp-header":"P"}}}"#), ParamHeaderError::OutsideProperties),
        (r#"{"$defs":{"d":{"type":"string","x-mcp-header":"P"}}}"#.into(), ParamHeaderError::OutsideProperties),
        (r#"{"if":{"properties":{"p":{"x-mcp-header":"P"}}}}"#.into(),     ParamHeaderError::OutsideProperties),
        (r#"{"patternProperties":{"x":{"x-mcp-header":"P"}}}"#.into(),     ParamHeaderError::OutsideProperties),
        (r#"{"allOf":[{"properties":{"p":{"x-mcp-header":"P"}}}]}"#.into(), ParamHeaderError::OutsideProperties),
        (r#"{"type":"string","x-mcp-header":"P"}"#.into(),                 ParamHeaderError::OutsideProperties),
        (r#"{"properties":{"a":{"type":"string","x-mcp-header":"P"},"b":{"type":"string","x-mcp-header":"p"}}}"#.into(), ParamHeaderError::DuplicateName("p".into())),
    ];
    for (schema, rule) in table {
        assert_eq!(asked(&schema).expect_err(&schema), rule, "{schema}");
    }
}

#[test]
fn words_in_data_and_in_names_are_no_annotations() {
    for schema in [
        r#"{"properties":{"x-mcp-header":{"type":"number"}}}"#,
        r#"{"properties":{"p":{"type":"object","default":{"x-mcp-header":"P"}}}}"#,
        r#"{"properties":{"p":{"enum":[{"x-mcp-header":"P"}]}}}"#,
        r#"{"description":"x-mcp-header"}"#,
        r#"{"properties":true}"#,
        r"{}",
    ] {
        assert_eq!(asked(schema), Ok(ParamHeaders::default()), "{schema}");
    }
}

#[test]
fn a_schema_nested_too_deep_is_refused_and_one_that_asks_nothing_is_not_read() {
    let deep = |inside: &str| {
        format!(
            "{}{inside}{}",
            r#"{"properties":{"p":"#.repeat(200),
            "}}".repeat(200)
        )
    };
    let refused = asked(&deep(r#"{"type":"string","x-mcp-header":"P"}"#));
    assert!(
        matches!(refused, Err(ParamHeaderError::BadSchema(fault)) if fault.kind == crate::message::parse_error::ParseErrorKind::TooDeep)
    );
    assert_eq!(asked(&deep("{}")), Ok(ParamHeaders::default()));
    assert!(matches!(
        asked("[\"x-mcp-header\"]"),
        Err(ParamHeaderError::BadSchema(_))
    ));
    assert!(matches!(
        asked("{\"x-mcp-header\""),
        Err(ParamHeaderError::BadSchema(_))
    ));
}

const SCHEMA: &str = r#"{"type":"object","properties":{
    "region":{"type":"string","x-mcp-header":"Region"},
    "count":{"type":"integer","x-mcp-\u0068eader":"Count"},
    "dry":{"type":["boolean","null"],"x-mcp-header":"Dry"},
    "deep":{"type":"object","properties":{"er":{"type":"object","properties":{
        "name":{"type":"string","x-mcp-header":"Name"}}}}}}}"#;

#[test]
fn arguments_are_mirrored_by_their_paths() {
    #[rustfmt::skip]
    let table: &[(&str, &[(&str, &str)])] = &[
        (r"{}",                                              &[]),
        (r#"{"region":null,"count":null,"deep":null}"#,      &[]),
        (r#"{"region":"eu"}"#,                               &[("mcp-param-region", "eu")]),
        (r#"{"region":""}"#,                                 &[("mcp-param-region", "")]),
        (r#"{"region":"a\r\nX: y"}"#,                        &[("mcp-param-region", "=?base64?YQ0KWDogeQ==?=")]),
        (r#"{"count":42}"#,                                  &[("mcp-param-count", "42")]),
        (r#"{"count":-7}"#,                                  &[("mcp-param-count", "-7")]),
        (r#"{"count":42.0}"#,                                &[("mcp-param-count", "42")]),
        (r#"{"count":1e3}"#,                                 &[("mcp-param-count", "1000")]),
        (r#"{"count":9007199254740991}"#,                    &[("mcp-param-count", "9007199254740991")]),
        (r#"{"count":9007199254740991.0}"#,                  &[("mcp-param-count", "9007199254740991")]),
        (r#"{"dry":true}"#,                                  &[("mcp-param-dry", "true")]),
        (r#"{"dry":false}"#,                                 &[("mcp-param-dry", "false")]),
        (r#"{"deep":{"er":{"name":"x"}}}"#,                  &[("mcp-param-name", "x")]),
        (r#"{"deep":{"er":7}}"#,                             &[]),
        (r#"{"deep":{"er":{"na\u006de":"x"}},"region":"eu"}"#, &[("mcp-param-name", "x"), ("mcp-param-region", "eu")]),
    ];
    let tool = asked(SCHEMA).expect("valid");
    assert!(!tool.is_empty());
    for (arguments, headers) in table {
        let mut found = tool.headers_for(arguments.as_bytes()).expect(arguments);
        found.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("ascii")))
            .collect();
        assert_eq!(found, *headers, "{arguments}");
    }
}

#[test]
fn arguments_that_fit_no_header_are_refused() {
    let tool = asked(SCHEMA).expect("valid");
    let number = || ParamHeaderError::NotAnInteger("count".into());
    #[rustfmt::skip]
    let table = [
        (r#"{"count":9007199254740992}"#,    number()),
        (r#"{"count":-9007199254740992}"#,   number()),
        (r#"{"count":1.5}"#,                 number()),
        (r#"{"count":1e400}"#,               number()),
        (r#"{"region":["eu"]}"#,             ParamHeaderError::NotPrimitive("region".into())),
        (r#"{"region":{}}"#,                 ParamHeaderError::NotPrimitive("region".into())),
        (r#"{"region":"\ud800"}"#,           ParamHeaderError::NotPrimitive("region".into())),
    ];
    for (arguments, rule) in table {
        assert_eq!(
            tool.headers_for(arguments.as_bytes()),
            Err(rule),
            "{arguments}"
        );
    }
    for bad in [
        "[]",
        "{",
        r#"{"region":"a","region":"b"}"#,
        r#"{"deep":{"er":{"name":"a","name":"b"}}}"#,
    ] {
        assert!(
            matches!(
                tool.headers_for(bad.as_bytes()),
                Err(ParamHeaderError::BadArguments(_))
            ),
            "{bad}"
        );
    }
    assert_eq!(ParamHeaders::default().headers_for(b"anything"), Ok(vec![]));
}

proptest! {
    #[test]
    fn every_text_survives_the_way_through_a_header(text in any::<String>()) {
        let value = encode_value(&text);
        prop_assert!(value.as_bytes().iter().all(|byte| (b' '..=b'~').contains(byte)));
        prop_assert_eq!(decode_value(&value), Some(text));
    }
}

#[test]
fn headers_that_frame_a_message_or_speak_for_the_protocol_are_ours_alone() {
    let ours = [
        "content-length",
        "transfer-encoding",
        "host",
        "mcp-session-id",
        "mcp-param-x",
    ];
    for name in ours {
        assert!(is_reserved_header(&HeaderName::from_static(name)), "{name}");
    }
    for name in ["authorization", "traceparent", "x-github-token", "cookie"] {
        assert!(
            !is_reserved_header(&HeaderName::from_static(name)),
            "{name}"
        );
    }
}
