//! Event streams, however they are cut, and beside another parser of the same language.

use futures_util::StreamExt as _;
use proptest::prelude::*;

use super::*;

const ROOMY: usize = 1 << 20;

fn events_of(pieces: &[&[u8]], max: usize) -> Vec<Result<SseEvent, SseTooLarge>> {
    let mut parser = SseParser::new(max);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(piece);
        events.extend(parser.by_ref());
    }
    parser.finish();
    assert!(parser.next().is_none(), "nothing is left after the end");
    events
}

fn parse(text: &str) -> Vec<SseEvent> {
    events_of(&[text.as_bytes()], ROOMY)
        .into_iter()
        .map(|event| event.expect("fits"))
        .collect()
}

fn event(name: Option<&str>, data: &str, id: Option<&str>, retry: Option<u64>) -> SseEvent {
    SseEvent {
        event: name.map(str::to_owned),
        data: Bytes::copy_from_slice(data.as_bytes()),
        id: id.map(str::to_owned),
        retry,
    }
}

#[test]
fn streams_are_read_as_the_standard_says() {
    #[rustfmt::skip]
    let table: Vec<(&str, Vec<SseEvent>)> = vec![
        ("data: a\n\n",                         vec![event(None, "a", None, None)]),
        ("data: a\r\n\r\n",                     vec![event(None, "a", None, None)]),
        ("data: a\r\r",                         vec![event(None, "a", None, None)]),
        ("data:a\n\n",                          vec![event(None, "a", None, None)]),
        ("data:  a\n\n",                        vec![event(None, " a", None, None)]),
        ("data: a\ndata: b\n\n",                vec![event(None, "a\nb", None, None)]),
        ("data: a\ndata\ndata: b\n\n",          vec![event(None, "a\n\nb", None, None)]),
        ("data: a:b\n\n",                       vec![event(None, "a:b", None, None)]),
        ("\u{feff}data: a\n\n",                 vec![event(None, "a", None, None)]),
        ("data: a\n\n\u{feff}data: b\n\n",      vec![event(None, "a", None, None)]),
        (": comment\n\ndata: a\n\n",            vec![event(None, "a", None, None)]),
        (":\n:\n\n\n",                          vec![]),
        ("unknown: x\nData: y\n\n",             vec![]),
        ("event: message\ndata: a\n\n",         vec![event(Some("message"), "a", None, None)]),
        ("event: prime\nid: 1\ndata:\n\n",      vec![event(Some("prime"), "", Some("1"), None)]),
        ("id: 0\nretry: 3000\n\n",              vec![event(None, "", Some("0"), Some(3000))]),
        ("data: a\nid: 5\nretry: 10\n\n",       vec![event(None, "a", Some("5"), Some(10))]),
        ("id: 1\nid: 2\ndata: a\n\n",           vec![event(None, "a", Some("2"), None)]),
        ("id: a\u{0}b\ndata: a\n\n",            vec![event(None, "a", None, None)]),
        ("id\ndata: a\n\n",                     vec![event(None, "a", Some(""), None)]),
        ("retry: 1s\ndata: a\n\n",              vec![event(None, "a", None, None)]),
        ("retry: +1\ndata: a\n\n",              vec![event(None, "a", None, None)]),
        ("retry: -1\ndata: a\n\n",              vec![event(None, "a", None, None)]),
        ("retry: 99999999999999999999\n\n",     vec![]),
        ("retry: \n\n",                         vec![]),
        ("data: a\n\ndata: b",                  vec![event(None, "a", None, None)]),
        ("data: a\n\ndata: b\n",                vec![event(None, "a", None, None)]),
        ("\n\n\ndata: a\n\n\n\n",               vec![event(None, "a", None, None)]),
        ("data: a\n\r\n",                       vec![event(None, "a", None, None)]),
    ];
    for (text, events) in table {
        assert_eq!(parse(text), events, "{text:?}");
    }
}

#[test]
fn an_event_ends_at_a_bare_carriage_return_without_waiting_for_more() {
    let mut parser = SseParser::new(ROOMY);
    parser.push(b"data: a\r\r");
    assert_eq!(parser.next(), Some(Ok(event(None, "a", None, None))));
    parser.push(b"\ndata: b\n\n");
    assert_eq!(parser.next(), Some(Ok(event(None, "b", None, None))));
}

#[test]
fn the_last_id_is_that_of_the_last_complete_event() {
    let mut parser = SseParser::new(ROOMY);
    parser.push(b"id: 1\ndata: a\n\nid: 2\ndata: b");
    assert_eq!(parser.by_ref().count(), 1);
    parser.finish();
    assert_eq!(parser.last_id(), Some("1"));
    parser.push(b"retry: 5\nid\ndata: c\n\n");
    assert_eq!(parser.by_ref().count(), 1);
    assert_eq!((parser.last_id(), parser.retry()), (None, Some(5)));
}

#[test]
fn bytes_that_are_no_text_pass_in_data_and_never_become_an_id() {
    let events = events_of(&[b"id: \xff\nevent: \xff\ndata: \xff\n\n"], ROOMY);
    let only = events.into_iter().next().expect("one").expect("fits");
    assert_eq!(only.data.as_ref(), b"\xff");
    assert_eq!((only.id, only.event.as_deref()), (None, Some("\u{fffd}")));
}

#[test]
fn an_event_that_is_too_large_is_told_once_and_skipped() {
    let long = "x".repeat(100);
    let many = "data: xxxxxxxxx\n".repeat(12);
    for large in [
        format!("data: {long}\n\n"),
        format!(": {long}\n\n"),
        format!("{many}\n"),
    ] {
        let text = format!("data: a\n\n{large}data: b\n\n");
        let events = events_of(&[text.as_bytes()], 64);
        assert_eq!(
            events,
            [
                Ok(event(None, "a", None, None)),
                Err(SseTooLarge {
                    max_event_bytes: 64
                }),
                Ok(event(None, "b", None, None)),
            ],
            "{large}"
        );
    }
}

#[test]
fn lines_without_a_value_count_too() {
    let events = events_of(&["data\n".repeat(100).as_bytes(), b"\ndata: b\n\n"], 64);
    let too_large = SseTooLarge {
        max_event_bytes: 64,
    };
    assert_eq!(events, [Err(too_large), Ok(event(None, "b", None, None))]);
}

#[test]
fn a_mark_of_byte_order_counts_at_the_start_alone_even_if_that_was_skipped() {
    let stream = format!("data: {}\n\n\u{feff}data: b\n\n", "x".repeat(100));
    let too_large = SseTooLarge {
        max_event_bytes: 64,
    };
    assert_eq!(events_of(&[stream.as_bytes()], 64), [Err(too_large)]);
}

#[test]
fn a_name_that_grows_when_it_is_made_text_does_not_make_its_event_too_large() {
    let mut stream = b"event: ".to_vec();
    stream.extend([0xe2; 40]);
    stream.extend(b"\n\ndata: a\n\n");
    let events = events_of(&[&stream], 64);
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(Result::is_ok));
    assert_eq!(events_of(&stream.chunks(1).collect::<Vec<_>>(), 64), events);
}

/// reliability I25: a line holds no more than its limit.
#[test]
fn a_line_without_end_holds_no_more_than_the_limit() {
    let mut parser = SseParser::new(64);
    let mut told = 0;
    for _ in 0..10_000 {
        parser.push(&[b'x'; 100]);
        told += parser.by_ref().filter(Result::is_err).count();
        assert!(parser.buffer.len() <= 64);
    }
    assert_eq!(told, 1);
}

#[test]
fn every_cut_of_every_stream_gives_the_same_events() {
    let streams = [
        "\u{feff}: hi\r\nid: 1\r\ndata: {\"a\":1}\r\n\r\nevent: x\rdata: b\r\rdata: c\n\n",
        "data: a\n\ndata: 01234567890123456789012345678901234567890123456789\n\nretry: 7\n\n",
        "id: é\ndata: ü\r\ndata: ö\n\r\n\n\nunknown\n\n:x\n\ndata\n\n",
    ];
    for stream in streams {
        let bytes = stream.as_bytes();
        let whole = events_of(&[bytes], 40);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(
                    events_of(&pieces, 40),
                    whole,
                    "{stream:?} cut at {first}, {second}"
                );
            }
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(events_of(&single, 40), whole, "{stream:?} byte by byte");
    }
}

/// Streams made of what matters to a parser.
fn streams() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "\n", "\n", "\n", "\r\n", "\r", "data: ", "data: ", "data:", "data", "id: ", "event: ",
        "retry: ", ": ", ":", " ", "7", "x", "é", "\u{feff}", "\0",
    ];
    proptest::collection::vec(any::<u8>(), 0..60).prop_map(|picks| {
        picks
            .iter()
            .map(|pick| PIECES[usize::from(*pick) % PIECES.len()])
            .collect()
    })
}

fn oracle(stream: &str) -> Vec<SseEvent> {
    let body = futures_util::stream::iter([Ok::<_, std::convert::Infallible>(
        Bytes::copy_from_slice(stream.as_bytes()),
    )]);
    let events = sse_stream::SseByteStream::new(body).map(|event| {
        let event = event.expect("the streams are text");
        SseEvent {
            event: event.event.filter(|name| !name.is_empty()),
            data: event.data.unwrap_or_default().into(),
            id: event.id,
            retry: event.retry,
        }
    });
    futures_util::FutureExt::now_or_never(events.collect()).expect("ready at once")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn events_are_those_that_another_parser_finds(stream in streams()) {
        prop_assert_eq!(parse(&stream), oracle(&stream));
    }

    #[test]
    fn pieces_of_any_size_give_the_events_of_the_whole(
        stream in streams(),
        cuts in proptest::collection::vec(1_usize..9, 1..40),
        max in 0_usize..60,
    ) {
        let mut rest = stream.as_bytes();
        let mut pieces = Vec::new();
        for cut in cuts {
            let (piece, left) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = left;
        }
        pieces.push(rest);
        prop_assert_eq!(events_of(&pieces, max), events_of(&[stream.as_bytes()], max));
    }

    /// reliability P19: no bytes make it panic.
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), max in 0_usize..80) {
        drop(events_of(&[&bytes], max));
    }
}
