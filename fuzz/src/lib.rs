//! What each fuzz target does with its input, and what must hold for every input.
//!
//! The tests of `warmline-core` include this file and replay the kept corpora with it, so it
//! uses nothing but the core, `bytes` and `serde_json`.

use bytes::Bytes;
use warmline_core::era::{Era, Version};
use warmline_core::era_detection::{
    classify_http_probe, classify_late_initialize, classify_stdio_probe,
};
pub(crate) use warmline_core::error::code::Reason;
use warmline_core::message::envelope::{Message, MessageKind, RpcError};
use warmline_core::message::lines::{LineCodec, StdioLine};
use warmline_core::message::params::Params;
use warmline_core::message::splice::{Edit, edit_object, to_single_line};
use warmline_core::message::sse::{SseEvent, SseParser, SseTooLarge};
use warmline_core::protocol::handshake::{read_discover_result, read_initialize_result};
pub use warmline_core::protocol::headers::{decode_value, encode_value};
use warmline_core::protocol::http_status::{HttpReplyFacts, ReplyBody, classify_reply};
use warmline_core::protocol::input_required::read_result_type;
use warmline_core::protocol::param_headers::ParamHeaders;
use warmline_core::protocol::session_gone::SessionGoneMatching;
use warmline_core::record::Record;

/// A message is split or refused; what is split is JSON, and stays the same under another id.
pub fn envelope(input: &[u8]) {
    let raw = Bytes::copy_from_slice(input);
    let message = match Message::parse(raw.clone()) {
        Ok(message) => message,
        Err(fault) => {
            return assert!(
                fault.offset <= input.len(),
                "{fault} is outside of the input"
            );
        },
    };
    assert!(is_json(input), "split what is no JSON");
    let renamed = Message::parse(message.with_id(b"\"another\""));
    // A notification that gets an id becomes a request; nothing else may change.
    let renamed = renamed.unwrap_or_else(|fault| unreachable!("under another id: {fault}"));
    assert!(renamed.kind() == message.kind() || message.kind() == MessageKind::Notification);
    assert_eq!(renamed.method(), message.method());
    assert_eq!(renamed.params(), message.params());
    assert_eq!(renamed.result(), message.result());
    assert_eq!(renamed.error(), message.error());
    let one = to_single_line(raw);
    assert!(!one.contains(&b'\n') && !one.contains(&b'\r'));
    assert!(
        Message::parse(one).is_ok(),
        "one line of a message is a message"
    );
    read_all_of(&message);
}

/// Edits by bytes leave valid parameters in which exactly the named members changed.
pub fn params_splice(input: &[u8]) {
    let Some((choice, raw)) = input.split_first() else {
        return;
    };
    let names = ["a", "_meta", "name", "\"é", "arguments"];
    let pick = |shift: u32| names[usize::from(choice.rotate_right(shift)) % names.len()];
    let edits = [Edit::Set(pick(0), b"{}"), Edit::Remove(pick(3))];
    let meta_edits = [Edit::Set("progressToken", b"7"), Edit::Remove("a")];
    let mut edited = Vec::new();
    let parsed = Params::parse(Bytes::copy_from_slice(raw));
    let done = edit_object(raw, &edits, &mut edited);
    let Ok(params) = parsed else { return };
    assert!(done.is_ok(), "edits of checked parameters are made");
    let after = reparsed(edited);
    assert_eq!(after.member(pick(0)), Some(&b"{}"[..]));
    for name in names.into_iter().filter(|name| *name != pick(0)) {
        let expected = if name == pick(3) {
            None
        } else {
            params.member(name)
        };
        assert_eq!(after.member(name), expected, "{name}");
    }
    let mut with_meta = Vec::new();
    params.write_edited(&mut with_meta, &[], &meta_edits);
    let after = reparsed(with_meta);
    assert_eq!(after.meta_member("progressToken"), Some(&b"7"[..]));
    assert_eq!(after.meta_member("a"), None);
    assert_eq!(after.member("name"), params.member("name"));
}

/// Pieces of a stream give the events of the whole, and no event is above the limit.
pub fn sse(input: &[u8]) {
    let Some((max, cut, stream)) = knobs(input) else {
        return;
    };
    let whole = events_of(stream.chunks(stream.len().max(1)), max);
    assert_eq!(events_of(stream.chunks(cut), max), whole);
    let fits = |event: &SseEvent| event.data.len() <= max;
    assert!(whole.iter().flatten().all(fits));
}

/// Pieces of output give the lines of the whole, and no line is above the limit.
pub fn lines(input: &[u8]) {
    let Some((max, cut, output)) = knobs(input) else {
        return;
    };
    let whole = lines_of(output.chunks(output.len().max(1)), max);
    assert_eq!(lines_of(output.chunks(cut), max), whole);
    for line in whole {
        match line {
            StdioLine::Complete(bytes) => assert!(bytes.len() <= max && !bytes.contains(&b'\n')),
            StdioLine::TooLong { bytes, .. } => assert!(bytes > max && bytes <= output.len()),
        }
    }
}

/// Texts survive the way through a header, and no argument breaks out of one.
pub fn headers(input: &[u8]) {
    if let Ok(text) = std::str::from_utf8(input) {
        assert_eq!(decode_value(&encode_value(text)).as_deref(), Some(text));
    }
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let (schema, arguments) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let Ok(tool) = ParamHeaders::from_schema(schema) else {
        return;
    };
    let Ok(found) = tool.headers_for(arguments) else {
        return;
    };
    for (name, value) in found {
        assert!(name.as_str().starts_with("mcp-param-"));
        assert!(
            value
                .as_bytes()
                .iter()
                .all(|byte| (b' '..=b'~').contains(byte))
        );
        assert!(decode_value(&value).is_some());
    }
}

/// Stored bytes are a record or refused; what was read is written as it was.
pub fn record(input: &[u8]) {
    let Ok(record) = Record::decode(input) else {
        return;
    };
    let written = record.encode();
    let written = written.unwrap_or_else(|part| unreachable!("read, but {part}"));
    // Fields that a later version added are left out, and nothing else changes.
    assert!(written.len() < input.len() || written == input);
    assert_eq!(Record::decode(&written), Ok(record));
}

/// Every reply has a meaning, and refusals are those the rows name.
pub fn gone_status(input: &[u8]) {
    let Some(([high, low, flags], body)) = input.split_first_chunk() else {
        return;
    };
    let has = |bit: u8| flags & bit != 0;
    let body = Bytes::copy_from_slice(body);
    let facts = HttpReplyFacts {
        status: u16::from_be_bytes([*high, *low]) % 1000,
        era: if has(1) { Era::Modern } else { Era::Legacy },
        has_session_id: has(2),
        request_id: u64::from(flags >> 6),
        body: if has(32) {
            ReplyBody::Truncated
        } else {
            ReplyBody::Complete(&body)
        },
        challenge: has(4).then(|| std::str::from_utf8(&body).unwrap_or_default()),
        matching: if has(8) {
            SessionGoneMatching::Wide
        } else {
            SessionGoneMatching::Sure
        },
    };
    let gone = match classify_reply(&facts) {
        Ok(message) => {
            assert!(matches!(
                message.kind(),
                MessageKind::Result | MessageKind::Error
            ));
            None
        },
        Err(failure) => {
            if failure.is_refused {
                assert!(failure.session_gone.is_some() || !(200..300).contains(&facts.status));
                assert!(failure.reason != Reason::Internal);
            }
            failure.session_gone
        },
    };
    if let Some(dialect) = gone {
        assert_eq!(
            facts.era,
            Era::Legacy,
            "a modern server has no session to lose"
        );
        assert!(dialect.matching() <= facts.matching);
    }
}

fn read_all_of(message: &Message) {
    if let Some(raw) = message.error() {
        drop(RpcError::parse(&raw));
    }
    if let Some(raw) = message.params() {
        drop(Params::parse(raw));
    }
    if let Some(raw) = message.result() {
        drop(read_initialize_result(&raw));
        drop(read_discover_result(&raw));
        drop(read_result_type(&raw));
    }
    for status in [200, 202, 400, 404, 500] {
        let answer = Some((status, Some(message)));
        drop(classify_http_probe(answer, Version::NEWEST_MODERN));
    }
    drop(classify_stdio_probe(message));
    drop(classify_late_initialize(message));
}

fn reparsed(raw: Vec<u8>) -> Params {
    Params::parse(raw.into()).unwrap_or_else(|fault| unreachable!("an edit broke it: {fault}"))
}

fn is_json(input: &[u8]) -> bool {
    serde_json::from_slice::<&serde_json::value::RawValue>(input).is_ok()
}

/// The limit, the size of pieces, and the rest of the input.
fn knobs(input: &[u8]) -> Option<(usize, usize, &[u8])> {
    let ([max, cut], rest) = input.split_first_chunk()?;
    Some((usize::from(*max), usize::from(*cut).max(1), rest))
}

fn events_of<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    max: usize,
) -> Vec<Result<SseEvent, SseTooLarge>> {
    let mut parser = SseParser::new(max);
    let mut events = Vec::new();
    for piece in pieces {
        parser.push(piece);
        events.extend(parser.by_ref());
    }
    events
}

fn lines_of<'a>(pieces: impl Iterator<Item = &'a [u8]>, max: usize) -> Vec<StdioLine> {
    let mut codec = LineCodec::new(max);
    let mut lines = Vec::new();
    for piece in pieces {
        codec.push(piece);
        lines.extend(codec.by_ref());
    }
    lines.extend(codec.finish());
    lines
}
