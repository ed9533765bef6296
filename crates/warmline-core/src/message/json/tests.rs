//! Where the tokens of a text end.

use super::*;
use proptest::prelude::*;
use serde_json::value::RawValue;

/// Whether a text is one value and nothing else.
fn is_taken(text: &str) -> bool {
    let text = text.as_bytes();
    let end = value_end(text, skip_whitespace(text, 0));
    end.is_ok_and(|end| skip_whitespace(text, end) == text.len())
}

fn assert_as_serde(text: &str) {
    let expected = serde_json::from_str::<&RawValue>(text.trim_start_matches(char::is_control));
    let text = text.trim_start_matches(char::is_control);
    assert_eq!(is_taken(text), expected.is_ok(), "{text:?}: {expected:?}");
}

#[test]
fn it_takes_what_serde_takes() {
    let texts = [
        "",
        " ",
        "{}",
        "[]",
        " { } ",
        "[ ]",
        "{\"a\":1}",
        "{\"a\" : [1 , 2 ] }",
        "{\"a\"}",
        "{\"a\":}",
        "{,}",
        "[,]",
        "[1,]",
        "{\"a\":1,}",
        "[1 2]",
        "{a:1}",
        "0",
        "00",
        "01",
        "-",
        "-0",
        "-01",
        "1.",
        "1.5",
        ".5",
        "1e",
        "1e5",
        "1E+5",
        "1e-",
        "1.5e3",
        "+1",
        "true",
        "tru",
        "truex",
        "null",
        "false",
        "\"\"",
        "\"",
        "\"\\\"",
        "\"\\u12\"",
        "\"\\uD800\"",
        "\"\\u00e9\"",
        "\"\\x\"",
        "\"\u{1}\"",
        "\"\u{7f}\"",
        "\"é\"",
        "[[[[]]]]",
        "[[[[]]]",
        "[}",
        "{]",
        "{\"a\":{\"b\":[{}]}}",
        "NaN",
        "\"long enough for a word \u{1f} inside\"",
        "\"long enough for a word \\\" inside\"",
        "[1]]",
    ];
    for text in texts {
        assert_as_serde(text);
    }
}

#[test]
fn depth_has_no_limit() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(is_taken(&deep));
    assert!(!is_taken(deep.trim_end_matches("]]")));
}

proptest! {
    #[test]
    fn it_takes_what_serde_takes_of_any_tokens(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                "{", "}", "[", "]", ",", ":", "\"a\"", "\"\\n\"", "\"\\u0041\"", "1", "-1.5e2",
                "0", "true", "null", " ", "\n", "\"", "\\", "é", "x", "\u{1f}",
                "\"twelve bytes\"",
            ]),
            0..12,
        ),
    ) {
        assert_as_serde(&tokens.concat());
    }

    #[test]
    fn it_takes_what_serde_takes_of_a_text_with_a_byte_changed(
        place in 0_usize..120,
        byte in 0_u8..128,
    ) {
        let text = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a\"b","arguments":{"a":[1,-2.5e3,{}],"b":null}}}"#;
        let mut bytes = text.as_bytes().to_vec();
        let place = place % bytes.len();
        bytes[place] = byte;
        assert_as_serde(std::str::from_utf8(&bytes).unwrap());
    }
}
