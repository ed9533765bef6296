//! What servers say of themselves in a handshake.

use super::*;
use crate::message::parse_error::ParseErrorKind;

#[test]
fn an_initialize_result_is_read_with_and_without_what_is_optional() {
    let full = br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},
        "serverInfo":{"name":"s","version":"1"},"instructions":"be kind","_meta":{"x":1}}"#;
    let read = read_initialize_result(full).expect("full");
    assert_eq!(read.version, "2025-11-25");
    assert_eq!(read.capabilities, r#"{"tools":{}}"#);
    assert_eq!(
        read.server_info.as_deref(),
        Some(&br#"{"name":"s","version":"1"}"#[..])
    );
    assert_eq!(read.instructions.as_deref(), Some("be kind"));

    let bare =
        read_initialize_result(br#"{"protocolVersion":"1999","capabilities":{}}"#).expect("bare");
    assert_eq!(
        (bare.version.as_str(), bare.server_info, bare.instructions),
        ("1999", None, None)
    );
}

#[test]
fn a_handshake_result_without_what_it_must_have_is_refused() {
    #[rustfmt::skip]
    let table: &[(&[u8], &str)] = &[
        (br"{}",                                                 "protocolVersion"),
        (br#"{"capabilities":{}}"#,                              "protocolVersion"),
        (br#"{"protocolVersion":7,"capabilities":{}}"#,          "protocolVersion"),
        (br#"{"protocolVersion":"2025-11-25"}"#,                 "capabilities"),
        (br#"{"protocolVersion":"2025-11-25","capabilities":1}"#, "capabilities"),
    ];
    for (raw, member) in table {
        let fault = read_initialize_result(raw).expect_err(member);
        assert!(fault.to_string().contains(member), "{fault}");
    }
    let fault = read_discover_result(br#"{"capabilities":{}}"#).expect_err("no versions");
    assert_eq!(
        fault.kind,
        ParseErrorKind::MissingMember("supportedVersions")
    );
    assert_eq!(
        read_discover_result(b"[]").expect_err("no object").kind,
        ParseErrorKind::NotObject
    );
}

#[test]
fn a_discover_result_is_read() {
    let full =
        br#"{"resultType":"complete","supportedVersions":["2026-07-28",7,"x"],"capabilities":{},
        "ttlMs":5000,"cacheScope":"public","instructions":"i",
        "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}}"#;
    let read = read_discover_result(full).expect("full");
    assert_eq!(read.supported_versions, ["2026-07-28", "x"]);
    assert_eq!(
        read.server_info.as_deref(),
        Some(&br#"{"name":"s","version":"1"}"#[..])
    );
}
