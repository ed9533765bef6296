//! What we write, byte for byte, and against the official schemas of every version.
//!
//! A golden file holds one message on one line. To change one on purpose, write the new bytes
//! into it by hand: a diff of the wire belongs into the review.

use bytes::Bytes;
use serde_json::{Value, json};
use warmline_core::era::Version;
use warmline_core::message::envelope::Message;
use warmline_core::message::params::Params;
use warmline_core::message::splice::{
    Edit, write_error, write_notification, write_request, write_result,
};
use warmline_core::protocol::handshake::write_initialize;
use warmline_core::protocol::input_required::write_input_responses;
use warmline_core::protocol::meta::{self, ClientMeta};

const CAPABILITIES: &[u8] = br#"{"elicitation":{},"roots":{}}"#;

macro_rules! golden {
    ($file:literal) => {
        include_str!(concat!("golden_files/", $file, ".json"))
    };
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("what we write is text")
}

fn params(text: &'static str) -> Params {
    Params::parse(Bytes::from_static(text.as_bytes())).expect(text)
}

fn client() -> ClientMeta {
    let capabilities = Bytes::from_static(CAPABILITIES);
    ClientMeta::new(Version::V2026_07_28, capabilities, "warmline", "0.1.0")
}

fn schema_of(version: Version) -> Value {
    let text = match version {
        Version::V2024_11_05 => include_str!("schemas/2024-11-05.json"),
        Version::V2025_03_26 => include_str!("schemas/2025-03-26.json"),
        Version::V2025_06_18 => include_str!("schemas/2025-06-18.json"),
        Version::V2025_11_25 => include_str!("schemas/2025-11-25.json"),
        Version::V2026_07_28 => include_str!("schemas/2026-07-28.json"),
    };
    serde_json::from_str(text).expect("a schema")
}

/// The message is what one definition of a version's schema says.
fn assert_valid(message: &str, definition: &str, version: Version) {
    Message::parse(Bytes::copy_from_slice(message.as_bytes())).expect(message);
    let mut schema = schema_of(version);
    let place = if schema.get("$defs").is_some() {
        "$defs"
    } else {
        "definitions"
    };
    let holds = schema[place].get(definition).is_some();
    assert!(holds, "{version} has no {definition}");
    schema["$ref"] = json!(format!("#/{place}/{definition}"));
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let value: Value = serde_json::from_str(message).expect(message);
    let faults: Vec<String> = validator
        .iter_errors(&value)
        .map(|fault| fault.to_string())
        .collect();
    let holds = faults.is_empty();
    assert!(holds, "{definition} of {version}: {faults:?}\n{message}");
}

fn assert_legacy(message: &str, definition: &str, since: Version) {
    for version in Version::ALL {
        if version >= since && version <= Version::NEWEST_LEGACY {
            assert_valid(message, definition, version);
        }
    }
}

fn assert_modern(message: &str, definition: &str) {
    assert_valid(message, definition, Version::V2026_07_28);
}

#[test]
fn the_schemas_do_refuse_what_is_wrong() {
    let refuses = |message: &str, definition: &str, version| {
        std::panic::catch_unwind(|| assert_valid(message, definition, version)).is_err()
    };
    let bare = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
    let no_meta = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}"#;
    assert!(refuses(bare, "InitializeRequest", Version::V2024_11_05));
    assert!(refuses(bare, "InitializeRequest", Version::V2025_11_25));
    assert!(refuses(no_meta, "CallToolRequest", Version::V2026_07_28));
}

#[test]
fn initialize_is_written_as_every_legacy_version_wants_it() {
    let initialize = |version| {
        written(|out| write_initialize(out, 1, version, CAPABILITIES, "warmline", "0.1.0"))
    };
    let newest = initialize(Version::NEWEST_LEGACY);
    assert_eq!(newest, golden!("legacy/initialize").trim_end());
    for version in Version::ALL
        .into_iter()
        .filter(|v| *v <= Version::NEWEST_LEGACY)
    {
        assert_valid(&initialize(version), "InitializeRequest", version);
    }
}

#[test]
fn initialized_is_written() {
    let message = written(|out| write_notification(out, "notifications/initialized", None));
    assert_eq!(message, golden!("legacy/initialized").trim_end());
    assert_legacy(&message, "InitializedNotification", Version::V2024_11_05);
}

#[test]
fn a_request_without_parameters_is_written() {
    let message = written(|out| write_request(out, 2, "tools/list", &Params::empty(), &[], &[]));
    assert_eq!(message, golden!("legacy/tools-list").trim_end());
    assert_legacy(&message, "ListToolsRequest", Version::V2024_11_05);
    let message = written(|out| write_request(out, 2, "ping", &Params::empty(), &[], &[]));
    assert_legacy(&message, "PingRequest", Version::V2024_11_05);
}

#[test]
fn a_legacy_call_carries_our_token_beside_the_callers_meta() {
    let call = params(
        r#"{"name":"add","arguments":{"a":1,"text":"é\n"},"_meta":{"progressToken":"theirs","vendor/x":1}}"#,
    );
    let message = written(|out| {
        write_request(
            out,
            3,
            "tools/call",
            &call,
            &[],
            &[Edit::Set(meta::PROGRESS_TOKEN, b"3")],
        );
    });
    assert_eq!(message, golden!("legacy/tools-call").trim_end());
    assert_legacy(&message, "CallToolRequest", Version::V2024_11_05);
}

fn write_cancelled(out: &mut Vec<u8>, params: &[u8]) {
    write_notification(out, "notifications/cancelled", Some(params));
}

#[test]
fn a_cancel_is_written_for_both_eras() {
    let message =
        written(|out| write_cancelled(out, br#"{"requestId":3,"reason":"the caller gave up"}"#));
    assert_eq!(message, golden!("legacy/cancelled").trim_end());
    assert_legacy(&message, "CancelledNotification", Version::V2024_11_05);
    let message = written(|out| write_cancelled(out, br#"{"requestId":3}"#));
    assert_eq!(message, golden!("modern/cancelled").trim_end());
    assert_modern(&message, "CancelledNotification");
}

#[test]
fn questions_of_legacy_servers_are_answered() {
    let id = br#""q-1""#;
    let accepted = written(|out| {
        write_result(out, id, br#"{"action":"accept","content":{"name":"Ada"}}"#);
    });
    assert_eq!(accepted, golden!("legacy/answer-accept").trim_end());
    let declined = written(|out| write_result(out, id, br#"{"action":"decline"}"#));
    assert_eq!(declined, golden!("legacy/answer-decline").trim_end());
    let pong = written(|out| write_result(out, b"9", b"{}"));
    assert_eq!(pong, golden!("legacy/answer-ping").trim_end());
    for answer in [&accepted, &declined, &pong] {
        assert_valid(answer, "JSONRPCResponse", Version::V2025_06_18);
        assert_valid(answer, "JSONRPCResponse", Version::V2025_11_25);
    }
    let refused = written(|out| write_error(out, id, -32601, "nobody here \"samples\""));
    assert_eq!(refused, golden!("legacy/answer-error").trim_end());
    assert_legacy(&refused, "JSONRPCMessage", Version::V2024_11_05);
    for result in [
        br#"{"action":"accept","content":{"name":"Ada"}}"#.as_slice(),
        br#"{"action":"decline"}"#,
    ] {
        assert_is_result(result, "ElicitResult", Version::V2025_06_18);
    }
}

/// A bare result, without an envelope, is what a definition says.
fn assert_is_result(raw: &[u8], definition: &str, version: Version) {
    let mut schema = schema_of(version);
    schema["$ref"] = json!(format!("#/definitions/{definition}"));
    let value: Value = serde_json::from_slice(raw).expect("JSON");
    jsonschema::validate(&schema, &value).expect(definition);
}

#[test]
fn notifications_with_parameters_are_written() {
    let message =
        written(|out| write_notification(out, "notifications/roots/list_changed", Some(b"{}")));
    assert_legacy(
        &message,
        "RootsListChangedNotification",
        Version::V2024_11_05,
    );
}

#[test]
fn discover_is_written() {
    let message = written(|out| {
        write_request(
            out,
            1,
            "server/discover",
            &Params::empty(),
            &[],
            &client().edits(),
        );
    });
    assert_eq!(message, golden!("modern/discover").trim_end());
    assert_modern(&message, "DiscoverRequest");
}

#[test]
fn a_modern_call_says_who_we_are() {
    let call = params(r#"{"name":"add","arguments":{"a":1},"_meta":{"traceparent":"00-1-2-01"}}"#);
    let client = client();
    let mut meta_edits = client.edits().to_vec();
    meta_edits.push(Edit::Set(meta::PROGRESS_TOKEN, b"5"));
    let message = written(|out| write_request(out, 5, "tools/call", &call, &[], &meta_edits));
    assert_eq!(message, golden!("modern/tools-call").trim_end());
    assert_modern(&message, "CallToolRequest");
}

#[test]
fn a_further_round_repeats_the_call_with_answers_and_state() {
    let call = params(r#"{"name":"add","arguments":{"a":1}}"#);
    let answers = [
        ("who", r#"{"action":"accept","content":{"name":"Ada"}}"#),
        ("roots", r#"{"roots":[]}"#),
    ];
    let responses = written(|out| write_input_responses(out, answers));
    let edits = [
        Edit::Set("inputResponses", responses.as_bytes()),
        Edit::Set("requestState", br#""op\u0061que""#),
    ];
    let message = written(|out| {
        write_request(out, 6, "tools/call", &call, &edits, &client().edits());
    });
    let expected = golden!("modern/tools-call-second-round").trim_end();
    assert_eq!(message, expected);
    assert_modern(&message, "CallToolRequest");
}

#[test]
fn other_modern_requests_are_valid_too() {
    #[rustfmt::skip]
        let table = [
            ("resources/read",       r#"{"uri":"file:///a"}"#,                                  "ReadResourceRequest"),
            ("prompts/get",          r#"{"name":"p"}"#,                                         "GetPromptRequest"),
            ("tools/list",           r"{}",                                                     "ListToolsRequest"),
            ("subscriptions/listen", r#"{"notifications":{"toolsListChanged":true}}"#,          "SubscriptionsListenRequest"),
        ];
    for (method, text, definition) in table {
        let message =
            written(|out| write_request(out, 7, method, &params(text), &[], &client().edits()));
        assert_modern(&message, definition);
    }
}
