//! The smallest server of each SDK: a counter. It shows what a session is worth on it.

use serde_json::json;
use warmline::core::era::Era;
use warmline::upstream::Server;

use super::meeting::{
    Expected, LEGACY, LEGACY_WITHOUT_SESSION, MODERN, MODERN_PROCESS, call, close, open, over_http,
    over_stdio, pinned, tools,
};
use super::parts::{Program, node, python};
use super::running::Running;

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
async fn counts(server: &Server, expected: Expected, counts: Counts) {
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
async fn counts_over_stdio(program: Program, expected: Expected) {
    counts(&over_stdio(&program), expected, Counts::Session).await;
}

#[tokio::test]
async fn typescript_v1_over_stdio_keeps_its_count() {
    counts_over_stdio(node("counter-v1.mjs"), LEGACY).await;
}

#[tokio::test]
async fn typescript_v1_over_http_keeps_a_count_for_each_session() {
    let running = Running::announced(&node("counter-v1.mjs").with("http"));
    counts(&over_http(&running), LEGACY, Counts::Session).await;
}

#[tokio::test]
async fn typescript_v2_over_stdio_is_spoken_to_in_the_modern_era() {
    counts_over_stdio(node("counter-v2.mjs"), MODERN_PROCESS).await;
}

#[tokio::test]
async fn typescript_v2_over_stdio_also_speaks_the_legacy_era() {
    let server = pinned(&over_stdio(&node("counter-v2.mjs")), Era::Legacy);
    counts(&server, LEGACY, Counts::Session).await;
}

#[tokio::test]
async fn typescript_v2_over_http_is_modern_and_its_legacy_leg_keeps_no_session() {
    let running = Running::announced(&node("counter-v2.mjs").with("http"));
    counts(&over_http(&running), MODERN, Counts::Process).await;
    let running = Running::announced(&node("counter-v2.mjs").with("http"));
    let legacy = pinned(&over_http(&running), Era::Legacy);
    counts(&legacy, LEGACY_WITHOUT_SESSION, Counts::Process).await;
}

#[tokio::test]
async fn typescript_v2_without_its_legacy_leg_is_modern() {
    let running = Running::announced(&node("counter-v2.mjs").with("http").with("modern"));
    counts(&over_http(&running), MODERN, Counts::Process).await;
}

#[tokio::test]
async fn python_sdk_1_over_stdio_keeps_its_count() {
    counts_over_stdio(python("mcp1", "counter_mcp1.py"), LEGACY).await;
}

#[tokio::test]
async fn python_sdk_1_over_http_keeps_a_count_for_each_session() {
    let running = Running::announced(&python("mcp1", "counter_mcp1.py").with("http"));
    counts(&over_http(&running), LEGACY, Counts::Session).await;
}

#[tokio::test]
async fn python_1_over_two_endpoints_keeps_a_count_for_each_session() {
    let mut running = Running::announced(&python("mcp1", "counter_mcp1.py").with("sse"));
    running.url = running.url.replace("/mcp", "/sse");
    counts(&over_http(&running), LEGACY, Counts::Session).await;
}

#[tokio::test]
async fn python_sdk_2_over_stdio_is_spoken_to_in_the_modern_era() {
    counts_over_stdio(python("mcp2", "counter_mcp2.py"), MODERN_PROCESS).await;
}

#[tokio::test]
async fn python_sdk_2_over_http_is_modern_and_its_legacy_leg_issues_sessions() {
    let running = Running::announced(&python("mcp2", "counter_mcp2.py").with("http"));
    counts(&over_http(&running), MODERN, Counts::Process).await;
    let running = Running::announced(&python("mcp2", "counter_mcp2.py").with("http"));
    counts(
        &pinned(&over_http(&running), Era::Legacy),
        LEGACY,
        Counts::Process,
    )
    .await;
}

#[tokio::test]
async fn fastmcp_3_over_stdio_keeps_its_count() {
    counts_over_stdio(python("fastmcp3", "counter_fastmcp.py"), LEGACY).await;
}

#[tokio::test]
async fn fastmcp_3_over_http_keeps_a_count_for_each_session() {
    let running = Running::announced(&python("fastmcp3", "counter_fastmcp.py").with("http"));
    counts(&over_http(&running), LEGACY, Counts::Session).await;
}

#[tokio::test]
async fn fastmcp_4_over_http_keeps_a_count_only_on_its_legacy_leg() {
    let running = Running::announced(&python("fastmcp4", "counter_fastmcp.py").with("http"));
    counts(&over_http(&running), MODERN, Counts::Call).await;
    counts(
        &pinned(&over_http(&running), Era::Legacy),
        LEGACY,
        Counts::Session,
    )
    .await;
}
