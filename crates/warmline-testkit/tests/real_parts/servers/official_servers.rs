//! The servers of the official collection and one in Go: their own tools, called for real.

use crate::prelude::*;
use std::process::Command;
use std::sync::Mutex;

use warmline_core::exchange::{Notification, ServerRequest, ServerRequestKind, ServerRequestReply};
use warmline_upstream::{ClientProfile, Listener, ReplyFuture};

use super::session_check::{
    LEGACY, MODERN_PROCESS, call, call_heard, close, open, open_as, over_http, over_stdio, pinned,
    tools, with_variable,
};
use crate::real_parts::{kubernetes, official_http, python_command};

/// Hears everything, and answers a form with one fixed text.
#[derive(Debug, Default)]
struct Witness {
    progress: Mutex<Vec<Value>>,
    asked: Mutex<Vec<ServerRequestKind>>,
}

impl Listener for Witness {
    fn on_notification(&self, news: Notification) {
        if let Notification::Progress(raw) = news {
            self.progress
                .lock()
                .unwrap()
                .push(serde_json::from_slice(&raw).unwrap());
        }
    }

    fn on_request(&self, question: ServerRequest) -> ReplyFuture<'_> {
        self.asked.lock().unwrap().push(question.kind);
        let raw = json!({ "action": "accept", "content": { "name": "Ada" } }).to_string();
        Box::pin(std::future::ready(ServerRequestReply::Result(Bytes::from(
            raw,
        ))))
    }
}

async fn everything_works(server: &ServerTarget) {
    let session = open(server, LEGACY).await;
    // One of the thirteen is registered only after `notifications/initialized`.
    assert_eq!(tools(&session).await.len(), 13);
    let found = call(&session, "echo", json!({ "message": "hello" })).await;
    assert_eq!(found, "Echo: hello");
    assert!(
        call(&session, "get-sum", json!({ "a": 2, "b": 3 }))
            .await
            .contains('5')
    );
    close(session).await;
}

async fn everything_tells_its_progress(server: &ServerTarget) {
    let session = open(server, LEGACY).await;
    let witness = Witness::default();
    let arguments = json!({ "duration": 0.4, "steps": 4 });
    let tool = "trigger-long-running-operation";
    assert!(
        call_heard(&session, tool, arguments, &witness)
            .await
            .contains("completed")
    );
    let progress = witness.progress.lock().unwrap().clone();
    let steps: Vec<_> = progress
        .iter()
        .map(|one| one["progress"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [1, 2, 3, 4]);
    close(session).await;
}

async fn everything_gets_its_question_answered(server: &ServerTarget) {
    let declared = ClientProfile {
        capabilities: Bytes::from_static(br#"{"elicitation":{}}"#),
        ..ClientProfile::default()
    };
    let session = open_as(server, LEGACY, &declared).await;
    let witness = Witness::default();
    let heard = call_heard(&session, "trigger-elicitation-request", json!({}), &witness).await;
    assert!(heard.contains("Ada"), "{heard}");
    let kinds = witness.asked.lock().unwrap().clone();
    assert_eq!(kinds, [ServerRequestKind::Elicitation]);
    close(session).await;
}

#[tokio::test]
async fn everything_over_stdio_lists_calls_tells_and_asks() {
    let server = over_stdio(&official("everything"));
    everything_works(&server).await;
    everything_tells_its_progress(&server).await;
    everything_gets_its_question_answered(&server).await;
}

#[tokio::test]
async fn everything_over_http_lists_calls_tells_and_asks() {
    let running = Running::announced(&official_http("everything", "streamableHttp"));
    let server = over_http(&running);
    everything_works(&server).await;
    everything_tells_its_progress(&server).await;
    everything_gets_its_question_answered(&server).await;
}

#[tokio::test]
async fn everything_over_two_endpoints_lists_calls_tells_and_asks() {
    let mut running = Running::announced(&official_http("everything", "sse"));
    running.url = running.url.replace("/mcp", "/sse");
    let server = over_http(&running);
    everything_works(&server).await;
    everything_tells_its_progress(&server).await;
    everything_gets_its_question_answered(&server).await;
}

#[tokio::test]
async fn memory_keeps_its_graph_in_a_file_that_outlives_the_process() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("memory.jsonl");
    let server = with_variable(over_stdio(&official("memory")), "MEMORY_FILE_PATH", &file);
    let session = open(&server, LEGACY).await;
    assert_eq!(tools(&session).await.len(), 9);
    let ada = json!({ "name": "Ada", "entityType": "person", "observations": ["counts"] });
    call(&session, "create_entities", json!({ "entities": [ada] })).await;
    close(session).await;
    let session = open(&server, LEGACY).await;
    assert!(
        call(&session, "read_graph", json!({}))
            .await
            .contains("Ada")
    );
    close(session).await;
}

#[tokio::test]
async fn filesystem_reads_back_what_it_wrote() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let file = text(&root.join("note.txt"));
    let session = open(
        &over_stdio(&official("filesystem").with(text(&root))),
        LEGACY,
    )
    .await;
    assert_eq!(tools(&session).await.len(), 14);
    call(
        &session,
        "write_file",
        json!({ "path": file, "content": "kept" }),
    )
    .await;
    assert_eq!(
        call(&session, "read_text_file", json!({ "path": file })).await,
        "kept"
    );
    close(session).await;
}

#[tokio::test]
async fn sequential_thinking_remembers_its_thoughts_within_a_session() {
    let server = over_stdio(&official("sequential-thinking"));
    let session = open(&server, LEGACY).await;
    assert_eq!(tools(&session).await, ["sequentialthinking"]);
    for number in 1..=2 {
        let thought = json!({
            "thought": "so far", "thoughtNumber": number, "totalThoughts": 2, "nextThoughtNeeded": true,
        });
        let heard: Value =
            serde_json::from_str(&call(&session, "sequentialthinking", thought).await).unwrap();
        assert_eq!(heard["thoughtHistoryLength"], json!(number));
    }
    close(session).await;
}

#[tokio::test]
async fn time_answers_in_both_eras() {
    let server = over_stdio(&python_command("mcp2", "mcp-server-time"));
    for (server, expected) in [
        (server.clone(), MODERN_PROCESS),
        (pinned(&server, Era::Legacy), LEGACY),
    ] {
        let session = open(&server, expected).await;
        assert_eq!(tools(&session).await, ["get_current_time", "convert_time"]);
        let heard = call(&session, "get_current_time", json!({ "timezone": "UTC" })).await;
        assert!(heard.contains("UTC"), "{heard}");
        close(session).await;
    }
}

#[tokio::test]
async fn git_makes_a_branch_in_a_real_repository() {
    let folder = TempDir::new().unwrap();
    repository(folder.path());
    let session = open(
        &over_stdio(&python_command("mcp2", "mcp-server-git")),
        MODERN_PROCESS,
    )
    .await;
    assert_eq!(tools(&session).await.len(), 12);
    let path = text(folder.path());
    let branch = json!({ "repo_path": path, "branch_name": "warm" });
    call(&session, "git_create_branch", branch).await;
    let branches = git(folder.path(), &["branch", "--list", "warm"]);
    assert!(branches.contains("warm"), "{branches}");
    close(session).await;
}

fn repository(folder: &Path) {
    git(folder, &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(folder.join("note.txt"), "kept").unwrap();
    git(folder, &["add", "note.txt"]);
    let author = [
        "-c",
        "user.name=Ada",
        "-c",
        "user.email=ada@example.invalid",
    ];
    git(
        folder,
        &[&author[..], &["commit", "--quiet", "--message=first"]].concat(),
    );
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn kubernetes_over_stdio_is_spoken_to_in_the_modern_era() {
    let session = open(&over_stdio(&kubernetes()), MODERN_PROCESS).await;
    assert!(
        tools(&session)
            .await
            .contains(&"configuration_view".to_owned())
    );
    assert!(
        call(&session, "configuration_view", json!({}))
            .await
            .contains("nowhere")
    );
    close(session).await;
}

/// Its `server/discover` succeeds over HTTP and lists legacy versions only: not a modern server.
#[tokio::test]
async fn kubernetes_over_http_answers_discover_and_is_legacy_all_the_same() {
    let running = Running::on_port(|port| {
        kubernetes()
            .with("--port")
            .with(port.to_string())
            .with("--bind-address")
            .with("127.0.0.1")
    });
    let session = open(&over_http(&running), LEGACY).await;
    assert!(
        tools(&session)
            .await
            .contains(&"configuration_view".to_owned())
    );
    assert!(
        call(&session, "configuration_view", json!({}))
            .await
            .contains("nowhere")
    );
    close(session).await;
}
