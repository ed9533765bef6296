//! Nothing secret is left in what servers say, and all else is.

use proptest::prelude::*;

use super::*;

fn hidden(variables: &[(&str, &str)]) -> Redactor {
    let pairs = variables.iter();
    Redactor::for_environment(
        &pairs
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
    )
}

/// reliability O24: what a child was given in confidence is not in what it says.
#[test]
fn values_are_struck_out_of_what_a_child_says() {
    let child = hidden(&[
        ("TOKEN", "canary-1"),
        ("LONGER", "canary-1-and-more"),
        ("KEY", "-----BEGIN-----\nbody-of-the-key\n-----END-----"),
        ("MODE", "quiet"),
        ("HOME", "/home/somebody"),
        ("LC_ALL", "C.UTF-8"),
        ("HTTPS_PROXY", "http://me:pass-word@proxy:3128"),
    ]);
    let table = [
        ("token=canary-1!", "token=[redacted: TOKEN]!"),
        ("canary-1-and-more", "[redacted: LONGER]"),
        ("a body-of-the-key b", "a [redacted: KEY] b"),
        ("quiet in /home/somebody", "quiet in /home/somebody"),
        ("C.UTF-8", "C.UTF-8"),
        ("me:pass-word@proxy", "me:[redacted: HTTPS_PROXY]@proxy"),
        ("nothing of it", "nothing of it"),
    ];
    for (said, shown) in table {
        assert_eq!(child.redact(said.to_owned()), shown, "{said}");
    }
    assert_eq!(
        child.redact_truncated("ary-1 x".to_owned()),
        "[redacted: TOKEN] x"
    );
    assert_eq!(child.redact_truncated("other x".to_owned()), "other x");
    assert_eq!(format!("{child:?}"), "Hidden(9)");
}

fn of_url(url: &str, filled: &[(&str, &str)]) -> Redactor {
    let pairs = filled.iter();
    let reach = HttpConfig {
        url: url.parse().unwrap(),
        headers: vec![(
            http::header::AUTHORIZATION,
            HeaderValue::from_static("Bearer to/ken+1=="),
        )],
        ca_file: None,
        substituted: pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
    };
    Redactor::for_url(&reach)
}

/// A66: what a server repeats of a request is struck out, in whatever form it repeats it; where
/// the server is stays readable.
#[test]
fn what_a_server_repeats_of_a_request_is_struck_out() {
    let filled = [
        ("KEY", "s3cret&more"),
        ("HOST", "Example.com"),
        ("SHORT", "mcp"),
        (
            "PLACE",
            "http://other.example/hooks/0123456789abcdef?k=quite-long",
        ),
    ];
    let hidden = of_url("http://example.com/s3cret&more/mcp?key=in-query", &filled);
    let table = [
        ("Bearer to/ken+1==", "[redacted: authorization]"),
        ("got to/ken+1==.", "got [redacted: authorization]."),
        (
            r#"{"t":"to\/ken+1=="}"#,
            r#"{"t":"[redacted: authorization]"}"#,
        ),
        ("k=to%2Fken%2B1%3D%3D", "k=[redacted: authorization]"),
        ("?key=in-query", "?key=[redacted: key]"),
        (
            "http://example.com/s3cret&more/mcp",
            "http://example.com/[redacted: KEY]/mcp",
        ),
        ("/hooks/0123456789abcdef", "[redacted: PLACE]"),
        ("at 0123456789abcdef", "at [redacted: PLACE]"),
        ("http://other.example", "http://other.example"),
        (r"to\u002fken\u002B1\u003D=!", "[redacted: authorization]!"),
        (
            r#"{\"t\":\"to\\u002fken+1==\"}"#,
            r#"{\"t\":\"[redacted: authorization]\"}"#,
        ),
        ("cut off: to\\/ke…", "cut off: [redacted: authorization]…"),
        (
            "cut off: to/ken\\u00…",
            "cut off: [redacted: authorization]\\u00…",
        ),
        ("cut off: to/ke…\"", "cut off: [redacted: authorization]…\""),
        ("not a token…", "not a token…"),
    ];
    for (said, shown) in table {
        assert_eq!(hidden.redact(said.to_owned()), shown, "{said}");
    }
}

fn struck(said: &str, hidden: &Redactor) -> String {
    let error = Reply::Error(Bytes::copy_from_slice(said.as_bytes()));
    match hidden.redact_ending(AttemptResult::Answered(error)) {
        AttemptResult::Answered(Reply::Error(error)) => String::from_utf8(error.to_vec()).unwrap(),
        AttemptResult::Answered(Reply::Result(_)) | AttemptResult::Failed(_) => panic!("an error"),
    }
}

/// What is no part of a string is not taken for one, and no escape is torn.
#[test]
fn an_error_stays_json() {
    let hidden = hidden(&[
        ("PIN", "1234567"),
        ("NAME", "nobody"),
        ("TEXT", r#"a","bcd"#),
    ]);
    #[rustfmt::skip]
    let table = [
        (r#"{"code":-1,"data":[1234567, 8,"1234567"]}"#, r#"{"code":-1,"data":["[redacted: PIN]", 8,"[redacted: PIN]"]}"#),
        (r#"{"message":"a\nobody nobody"}"#,             r#"{"message":"a\nobody [redacted: NAME]"}"#),
        (r#"["a","bcd"]"#,                               r#"["a","bcd"]"#),
        (r#"["a\",\"bcd"]"#,                             r#"["[redacted: TEXT]"]"#),
        (r#"["unfinished nobody"#,                       r#"["unfinished [redacted: NAME]"#),
    ];
    for (said, shown) in table {
        assert_eq!(struck(said, &hidden), shown);
    }
}

/// One letter as JSON may write it.
fn escaped(letter: char, way: u8) -> String {
    let short = serde_json::to_string(&letter.to_string()).unwrap();
    let short = short.trim_matches('"').to_owned();
    let mut units = [0; 2];
    let units = letter.encode_utf16(&mut units);
    match way % 4 {
        0 if letter == '"' => "\\\"".to_owned(),
        0 => short,
        1 if letter == '/' => "\\/".to_owned(),
        1 | 2 => units.iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        _ => units.iter().map(|unit| format!("\\u{unit:04X}")).collect(),
    }
}

fn all_escaped(text: &str, ways: &[u8], times: usize) -> String {
    let mut text = text.to_owned();
    for _ in 0..times {
        let letters = text.chars().zip(ways.iter().cycle());
        text = letters.map(|(letter, way)| escaped(letter, *way)).collect();
    }
    text
}

proptest! {
    /// A66, reliability O24: a secret is struck out of an error in whatever way JSON spells it,
    /// and the rest stays byte for byte.
    #[test]
    fn no_spelling_hides_a_secret(
        secret in r#"[A-Z0-9+/="\\<&€😀]{6,24}"#,
        around in prop::array::uniform2(r#"[a-z "'é\n\t😊]{0,16}"#),
        ways in prop::collection::vec(any::<u8>(), 1..40),
        times in 1_usize..=MAX_ESCAPE_DEPTH,
    ) {
        let hidden = hidden(&[("SECRET", secret.as_str())]);
        let [before, after] = around.map(|text| all_escaped(&text, &ways, times));
        let error = |said: &str| {
            format!(r#"{{"code":-32000,"message":"{before}{said}{after}","data":["{said}",1]}}"#)
        };
        let said = error(&all_escaped(&secret, &ways, times));
        prop_assert!(serde_json::from_str::<serde_json::Value>(&said).is_ok());
        prop_assert_eq!(struck(&said, &hidden), error("[redacted: SECRET]"));
        let harmless = error("");
        prop_assert_eq!(struck(&harmless, &hidden), harmless);
    }
}
