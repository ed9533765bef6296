//! Lines of a child's output, however they are cut.

use proptest::prelude::*;

use super::*;

fn lines_of(pieces: &[&[u8]], max: usize) -> Vec<StdioLine> {
    let mut codec = LineCodec::new(max);
    let mut lines = Vec::new();
    for piece in pieces {
        codec.push(piece);
        lines.extend(codec.by_ref());
    }
    lines.extend(codec.finish());
    assert!(codec.next().is_none() && codec.finish().is_none());
    lines
}

fn full(text: &str) -> StdioLine {
    StdioLine::Complete(Bytes::copy_from_slice(text.as_bytes()))
}

#[test]
fn lines_end_in_lf_or_crlf_and_blank_ones_are_skipped() {
    #[rustfmt::skip]
    let table: Vec<(&str, Vec<StdioLine>)> = vec![
        ("a\nb\n",          vec![full("a"), full("b")]),
        ("a\r\nb\r\n",      vec![full("a"), full("b")]),
        ("a\n\n\r\n \t\nb", vec![full("a"), full("b")]),
        ("a\rb\n",          vec![full("a\rb")]),
        ("a\r\r\n",         vec![full("a\r")]),
        ("",                vec![]),
        ("\n",              vec![]),
        ("no end",          vec![full("no end")]),
        ("12345678\n",      vec![full("12345678")]),
        ("12345678\r\n",    vec![full("12345678")]),
        ("123456789\nb\n",  vec![StdioLine::TooLong { id: None, bytes: 9 }, full("b")]),
        ("123456789\r\nb",  vec![StdioLine::TooLong { id: None, bytes: 9 }, full("b")]),
        ("123456789",       vec![StdioLine::TooLong { id: None, bytes: 9 }]),
    ];
    for (text, lines) in table {
        assert_eq!(lines_of(&[text.as_bytes()], 8), lines, "{text:?}");
    }
}

#[test]
fn a_line_that_is_too_long_is_told_with_the_id_in_its_first_4_kib() {
    let x = "x".repeat(5000);
    #[rustfmt::skip]
    let table = [
        (format!(r#"{{"jsonrpc":"2.0","id":42,"result":"{x}"}}"#),                      Some(42)),
        (format!(r#"{{"jsonrpc":"2.0", "\u0069d" : 42 , "result":"{x}"}}"#),            Some(42)),
        (format!(r#"{{"result":{{"id":1}},"id":42,"more":"{x}"}}"#),                    Some(42)),
        (format!(r#"{{"jsonrpc":"2.0","result":"{x}","id":42}}"#),                      None),
        (format!(r#"{{"jsonrpc":"2.0","result":{{"id":1,"x":"{x}"}},"id":42}}"#),       None),
        (format!(r#"{{"jsonrpc":"2.0","id":"42","result":"{x}"}}"#),                    None),
        (format!(r#"{{"jsonrpc":"2.0","id":-42,"result":"{x}"}}"#),                     None),
        (format!(r#"[{{"id":42}},"{x}"]"#),                                             None),
        (format!("garbage {x}"),                                                        None),
    ];
    for (text, id) in table {
        let line = format!("{text}\n");
        let expected = [StdioLine::TooLong {
            id,
            bytes: text.len(),
        }];
        assert_eq!(
            lines_of(&[line.as_bytes()], 4096),
            expected,
            "{}",
            text.split_at(40).0
        );
    }
}

#[test]
fn an_id_that_the_4_kib_cut_is_not_taken_for_a_shorter_one() {
    let pad = "x".repeat(4096 - r#"{"p":"","id":12"#.len());
    let text = format!(r#"{{"p":"{pad}","id":1234,"result":{{}}}}"#);
    assert_eq!(&text.as_bytes()[4094..4098], b"1234");
    let lines = lines_of(&[text.as_bytes()], 4096);
    assert_eq!(
        lines,
        [StdioLine::TooLong {
            id: None,
            bytes: text.len()
        }]
    );
}

/// reliability I25: a line holds no more than its limit.
#[test]
fn a_line_without_end_holds_no_more_than_the_limit() {
    let mut codec = LineCodec::new(64);
    for _ in 0..10_000 {
        codec.push(&[b'x'; 100]);
        assert_eq!(codec.next(), None);
        assert!(codec.buffer.len() <= 65);
    }
    assert_eq!(
        codec.finish(),
        Some(StdioLine::TooLong {
            id: None,
            bytes: 1_000_000
        })
    );
}

#[test]
fn every_cut_of_every_output_gives_the_same_lines() {
    let output =
        "{\"id\":1}\r\n\r\n{\"id\":22,\"r\":\"0123456789\"}\r\nabc\n\n{\"id\":3}\r\r\nlast";
    let bytes = output.as_bytes();
    for max in [0, 1, 8, 9, 10, 27, 28, 29, 100] {
        let whole = lines_of(&[bytes], max);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(
                    lines_of(&pieces, max),
                    whole,
                    "max {max}, cut at {first}, {second}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn pieces_of_any_size_give_the_lines_of_the_whole(
        output in "[a\\r\\n{}\":0-9id]{0,60}",
        cuts in proptest::collection::vec(1_usize..9, 1..40),
        max in 0_usize..40,
    ) {
        let mut rest = output.as_bytes();
        let mut pieces = Vec::new();
        for cut in cuts {
            let (piece, left) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = left;
        }
        pieces.push(rest);
        prop_assert_eq!(lines_of(&pieces, max), lines_of(&[output.as_bytes()], max));
    }
}
