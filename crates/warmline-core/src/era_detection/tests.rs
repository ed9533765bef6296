//! Every row of the detection tables.

use bytes::Bytes;

use super::*;

fn message(text: &str) -> Message {
    Message::parse(Bytes::copy_from_slice(text.as_bytes())).expect(text)
}

fn error(code: i64, data: &str) -> Message {
    message(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":"no","data":{data}}}}}"#
    ))
}

fn discovered_with(versions: &str) -> Message {
    message(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"result":{{"supportedVersions":{versions},"capabilities":{{}}}}}}"#
    ))
}

const NEW: Version = Version::V2026_07_28;
const ANY: EraVerdict = EraVerdict::Legacy { best: None };

fn legacy_at(version: Version) -> EraVerdict {
    EraVerdict::Legacy {
        best: Some(version),
    }
}

fn incompatible(date: &str) -> EraVerdict {
    EraVerdict::Incompatible {
        supported: vec![date.to_owned()],
    }
}

/// E23, E24, P116, P117: what an answer to the probe means.
#[test]
fn messages_over_http_are_read_row_by_row() {
    #[rustfmt::skip]
    let table: Vec<(&str, u16, Message, EraVerdict)> = vec![
        ("P1",  200, discovered_with(r#"["2026-07-28"]"#),                            EraVerdict::Modern(NEW)),
        ("P1",  200, discovered_with(r#"["2024-11-05","2025-03-26","2026-07-28"]"#),  EraVerdict::Modern(NEW)),
        ("P1",  200, discovered_with(r#"["2027-01-01","2026-07-28"]"#),               EraVerdict::Modern(NEW)),
        ("P2",  200, discovered_with(r#"["2025-03-26","2025-11-25","2025-06-18"]"#),  legacy_at(Version::V2025_11_25)),
        ("P2",  200, discovered_with(r#"["2024-10-07"]"#),                            ANY),
        ("P3",  200, discovered_with("[]"),                                           ANY),
        ("P3",  200, discovered_with(r#""2026-07-28""#),                              ANY),
        ("P3",  200, message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),              ANY),
        ("P3",  200, message(r#"{"jsonrpc":"2.0","id":1,"result":"ok"}"#),            ANY),
        ("P4",  400, error(-32022, r#"{"supported":["2026-07-28"]}"#),                EraVerdict::RetryAt(NEW)),
        ("P4",  200, error(-32022, r#"{"supported":["2025-11-25","2026-07-28"]}"#),   EraVerdict::RetryAt(NEW)),
        ("P5",  400, error(-32022, r#"{"supported":["2025-06-18","2024-11-05"]}"#),   legacy_at(Version::V2025_06_18)),
        ("P5",  400, error(-32022, r#"{"supported":["2027-01-01","2025-06-18"]}"#),   legacy_at(Version::V2025_06_18)),
        ("P6",  400, error(-32022, r#"{"supported":["2027-01-01"]}"#),                incompatible("2027-01-01")),
        ("P6",  200, discovered_with(r#"["2027-01-01"]"#),                            incompatible("2027-01-01")),
        ("P7",  400, error(-32022, "{}"),                                             ANY),
        ("P7",  400, error(-32022, "null"),                                           ANY),
        ("P7",  400, error(-32022, r#"{"supported":[]}"#),                            ANY),
        ("P7",  400, error(-32022, r#"{"supported":["draft",7]}"#),                   ANY),
        ("P7",  400, error(-32022, r#"{"supported":["0123456789","2026","2026-7-28"]}"#), ANY),
        ("P8",  400, error(-32020, "null"),                                           EraVerdict::Modern(NEW)),
        ("P8",  400, error(-32021, "{}"),                                             EraVerdict::Modern(NEW)),
        ("P9",  400, error(-32600, "null"),                                           ANY),
        ("P9",  400, error(-32000, "null"),                                           ANY),
        ("P9",  200, error(-32601, "null"),                                           ANY),
        ("P10", 404, error(-32601, "null"),                                           ANY),
        ("P11", 404, error(-32001, "null"),                                           ANY),
        ("P12", 415, error(-32600, "null"),                                           ANY),
        ("P13", 401, error(-32000, "null"),                           EraVerdict::Undetermined),
        ("P14", 500, error(-32603, "null"),                           EraVerdict::Undetermined),
    ];
    for (row, status, message, probe) in table {
        let read = classify_http_probe(Some((status, Some(&message))), NEW);
        assert_eq!(
            read,
            probe_result(row, probe),
            "{status} {:?}",
            message.raw()
        );
    }
}

#[test]
fn statuses_without_a_message_are_read_row_by_row() {
    #[rustfmt::skip]
    let table: Vec<(&str, &[u16], EraVerdict)> = vec![
        ("P3",  &[200, 204],                                                              ANY),
        ("P9",  &[400],                                                                   ANY),
        ("P11", &[404, 405],                                                              ANY),
        ("P12", &[402, 406, 409, 410, 413, 415, 421, 422, 428, 430, 499],                 ANY),
        ("P13", &[401, 403],                                                              EraVerdict::Undetermined),
        ("P14", &[302, 308, 407, 408, 429, 500, 501, 502, 503, 504, 522, 530, 599],       EraVerdict::Undetermined),
        ("P17", &[202],                                                                   EraVerdict::Undetermined),
    ];
    for (row, statuses, probe) in table {
        for status in statuses {
            let read = classify_http_probe(Some((*status, None)), NEW);
            assert_eq!(read, probe_result(row, probe.clone()), "{status}");
        }
    }
}

/// E5: an outage is no verdict.
#[test]
fn an_outage_is_not_a_legacy_server() {
    let read = classify_http_probe(None, NEW);
    assert_eq!((read.row, read.verdict), ("P15", EraVerdict::Undetermined));
}

/// Rows a reader of P16 gets: the message of an event stream counts as that of a body.
#[test]
fn every_client_error_but_those_of_access_and_the_way_is_evidence_for_legacy() {
    for status in 400..=499 {
        let read = classify_http_probe(Some((status, None)), NEW);
        let is_evidence = ![401, 403, 407, 408, 429].contains(&status);
        assert_eq!(read.verdict == ANY, is_evidence, "{status}: {read:?}");
    }
}

/// E23, E24, P116, P117: the same over stdio.
#[test]
fn answers_over_stdio_are_read_row_by_row() {
    #[rustfmt::skip]
    let table: Vec<(&str, Message, EraVerdict)> = vec![
        ("Q1", discovered_with(r#"["2026-07-28","2025-11-25"]"#),             EraVerdict::Modern(NEW)),
        ("Q2", error(-32022, r#"{"supported":["2026-07-28"]}"#),              EraVerdict::RetryAt(NEW)),
        ("Q2", error(-32022, r#"{"supported":["2027-01-01"]}"#),              incompatible("2027-01-01")),
        ("Q3", error(-32022, r#"{"supported":["2025-11-25"]}"#),              legacy_at(Version::V2025_11_25)),
        ("Q3", error(-32022, "null"),                                         ANY),
        ("Q3", discovered_with(r#"["2025-03-26"]"#),                          legacy_at(Version::V2025_03_26)),
        ("Q4", error(-32601, "null"),                                         ANY),
        ("Q4", error(-32602, "null"),                                         ANY),
        ("Q4", message(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),            ANY),
        ("Q4", message(r#"{"jsonrpc":"2.0","id":1,"error":{}}"#),             ANY),
    ];
    for (row, message, probe) in table {
        let read = classify_stdio_probe(&message);
        assert_eq!(read, probe_result(row, probe), "{:?}", message.raw());
    }
}

#[test]
fn a_late_initialize_is_read_row_by_row() {
    let table = [
        (
            "Q5",
            message(r#"{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25"}}"#),
            ANY,
        ),
        ("Q5", error(-32603, "null"), EraVerdict::Undetermined),
        // It was only slow, and is probed once more.
        (
            "Q7",
            error(-32022, r#"{"supported":["2026-07-28"]}"#),
            EraVerdict::RetryAt(NEW),
        ),
    ];
    for (row, message, verdict) in table {
        let read = classify_late_initialize(&message);
        assert_eq!(read, probe_result(row, verdict), "{:?}", message.raw());
    }
}
