//! Memory stays flat, whatever a server sends: bodies and streams without an end, giants, floods.
//!
//! The server is a process of its own, so that what is measured here is ours alone; one test,
//! because a second one beside it would be measured too.

use std::time::Duration;

use serde_json::json;
use warmline_core::era::Era;
use warmline_core::exchange::{AttemptResult, Deadlines, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{ClientProfile, ServerTarget, Session, Upstream};

use crate::ledger_process::{Apart, resident_kib};

/// A reply of 16 MiB, twice (a buffer is copied when it grows), and some room.
const ROOM_KIB: usize = 64 << 10;

/// Calls, and tells how much memory was held at most meanwhile, and how the call ended.
async fn most_held(session: &Session) -> (usize, AttemptResult) {
    let params =
        Params::from_serialize(&json!({ "name": "pay", "arguments": { "amount": 1 } })).unwrap();
    let limit = Duration::from_secs(1);
    let patience = Deadlines {
        idle: limit,
        total: limit,
    };
    let calling = session.send(
        Request::new("tools/call", params).with_deadlines(patience),
        &(),
    );
    let mut most = 0;
    let watching = async {
        loop {
            most = most.max(resident_kib());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let ending = tokio::select! {
        ending = calling => ending,
        never = watching => never,
    };
    (most.max(resident_kib()), ending)
}

/// P92, reliability P17, reliability P19: no server makes us grow.
#[test]
fn memory_stays_flat_whatever_a_server_sends() {
    crate::play_alone(async {
        let legacy: &[&str] = &["--personality", "legacy"];
        let streams: &[&str] = &["--personality", "legacy", "--sse", "plain"];
        let modern: &[&str] = &["--personality", "modern"];
        let table = [
            (legacy, Era::Legacy, r#""endless-body""#),
            (modern, Era::Modern, r#""endless-body""#),
            (streams, Era::Legacy, r#""endless-stream""#),
            (modern, Era::Modern, r#""endless-stream""#),
            (legacy, Era::Legacy, r#"{"giant":200000000}"#),
            (streams, Era::Legacy, r#"{"giant":200000000}"#),
            (streams, Era::Legacy, r#"{"flood":100000}"#),
        ];
        for (options, era, fault) in table {
            let rule = format!(r#"{{"tool":"pay","times":null,"fault":{fault}}}"#);
            let program = Apart::start(&[options, &["--fault", &rule]].concat());
            let mut server = ServerTarget::http("flood", program.url.parse().unwrap());
            server.era = Some(era);
            let session = Upstream::new()
                .open(&server, &ClientProfile::default())
                .await
                .unwrap();
            let before = resident_kib();
            for _ in 0..3 {
                let (most, ending) = most_held(&session).await;
                // News alone, however much, do not keep the answer from coming.
                let failed = matches!(ending, AttemptResult::Failed(_));
                let holds = failed || fault.contains("flood");
                assert!(holds, "{fault}, {era}: {ending:?}");
                let grown = most.saturating_sub(before);
                let holds = grown < ROOM_KIB;
                assert!(holds, "{fault}, {era}: {before} KiB, then {most} KiB");
            }
        }
    });
}
