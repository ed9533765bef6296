//! The smallest server of each SDK: a counter. It shows what a session is worth on it.

use crate::prelude::*;

use super::session_check::{
    Expected, LEGACY, LEGACY_WITHOUT_SESSION, MODERN, MODERN_PROCESS, call, close, open, over_http,
    over_stdio, pinned, tools,
};

/// What the counter counts.
#[derive(Clone, Copy, Debug)]
enum Counts {
    /// The calls of a session: a second session begins anew.
    Session,
    /// The calls of the process: a second session goes on where the first ended.
    Process,
    /// Nothing: every call is the first.
    Call,
}

/// Two calls on one session, then one on another, with both sessions open.
async fn counts(server: &ServerTarget, expected: Expected, counts: Counts) {
    let first = open(server, expected).await;
    assert_eq!(tools(&first).await, ["bump"]);
    let second = open(server, expected).await;
    let mut seen = Vec::new();
    for session in [&first, &first, &second] {
        seen.push(call(session, "bump", json!({})).await);
    }
    let wanted = match counts {
        Counts::Session => ["1", "2", "1"],
        Counts::Process => ["1", "2", "3"],
        Counts::Call => ["1", "1", "1"],
    };
    assert_eq!(seen, wanted);
    close(first).await;
    close(second).await;
}

/// Over stdio every session is a process of its own, so any counter counts by session.
#[tokio::test]
async fn counters_over_stdio_count_by_session() {
    for (program, expected) in [
        (node("counter-v1.mjs"), LEGACY),
        (node("counter-v2.mjs"), MODERN_PROCESS),
        (python("mcp1", "counter_mcp1.py"), LEGACY),
        (python("mcp2", "counter_mcp2.py"), MODERN_PROCESS),
        (python("fastmcp3", "counter_fastmcp.py"), LEGACY),
    ] {
        counts(&over_stdio(&program), expected, Counts::Session).await;
    }
    let also_legacy = pinned(&over_stdio(&node("counter-v2.mjs")), Era::Legacy);
    counts(&also_legacy, LEGACY, Counts::Session).await;
}

#[tokio::test]
async fn legacy_counters_over_http_count_by_session() {
    for program in [
        node("counter-v1.mjs"),
        python("mcp1", "counter_mcp1.py"),
        python("fastmcp3", "counter_fastmcp.py"),
    ] {
        let running = Running::announced(&program.with("http"));
        counts(&over_http(&running), LEGACY, Counts::Session).await;
    }
    let mut two_endpoints = Running::announced(&python("mcp1", "counter_mcp1.py").with("sse"));
    two_endpoints.url = two_endpoints.url.replace("/mcp", "/sse");
    counts(&over_http(&two_endpoints), LEGACY, Counts::Session).await;
}

/// What a counter counts in the modern era, and on its legacy leg.
#[tokio::test]
async fn counters_of_both_eras_over_http_count_by_what_their_leg_keeps() {
    use Counts::{Call, Process, Session};
    for (program, modern, on_legacy, legacy) in [
        (
            node("counter-v2.mjs"),
            Process,
            LEGACY_WITHOUT_SESSION,
            Process,
        ),
        (python("mcp2", "counter_mcp2.py"), Process, LEGACY, Process),
        (
            python("fastmcp4", "counter_fastmcp.py"),
            Call,
            LEGACY,
            Session,
        ),
    ] {
        let program = program.with("http");
        let running = Running::announced(&program);
        counts(&over_http(&running), MODERN, modern).await;
        let running = Running::announced(&program);
        let server = pinned(&over_http(&running), Era::Legacy);
        counts(&server, on_legacy, legacy).await;
    }
    let modern_alone = node("counter-v2.mjs").with("http").with("modern");
    let running = Running::announced(&modern_alone);
    counts(&over_http(&running), MODERN, Process).await;
}
