//! Calls side by side on one pipe: each hears its own answer, its own progress, and nothing else.

use crate::prelude::*;

use super::child_session::{Child, ERAS, result, tool};

/// Writes down what is told.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<(&'static str, Value)>>);

impl Listener for Ear {
    fn on_notification(&self, news: Notification) {
        let (kind, params) = match news {
            Notification::Progress(params) => ("progress", params),
            Notification::Log(params) => ("log", params),
            Notification::Other(_, params) => ("other", params),
        };
        let params = serde_json::from_slice(&params).unwrap();
        self.0.lock().unwrap().push((kind, params));
    }
}

impl Ear {
    fn heard(&self, kind: &str) -> Vec<Value> {
        let heard = self.0.lock().unwrap();
        let fitting = heard.iter().filter(|(one, _)| *one == kind);
        fitting.map(|(_, params)| params.clone()).collect()
    }
}

/// A16, P108, reliability P3: a slow call delays no fast one.
#[tokio::test]
async fn replies_in_any_order_reach_their_own_callers() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        let slow = |ms: u64| child.call("slow", json!({"ms": ms}));
        let echo = |n: u64| child.call("echo", json!({"n": n}));
        let (a, x, b, y, c, z) =
            tokio::join!(slow(250), echo(1), slow(150), echo(2), slow(50), echo(3));
        for (ending, ms) in [(a, 250), (b, 150), (c, 50)] {
            let expected = format!("took {ms} ms");
            assert_eq!(result(ending)["content"][0]["text"], expected, "{era}");
        }
        for (ending, n) in [(x, 1), (y, 2), (z, 3)] {
            assert_eq!(
                result(ending)["structuredContent"]["arguments"]["n"],
                n,
                "{era}"
            );
        }
        child.ends().await;
    }
}

/// P69: reading and writing do not wait for each other.
#[tokio::test]
async fn eight_megabytes_pass_both_ways_at_once() {
    const SIZE: usize = 8_000_000;
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        let both_ways = || child.call("big", json!({"bytes": SIZE, "filler": "y".repeat(SIZE)}));
        let (first, second) = tokio::join!(both_ways(), both_ways());
        for ending in [first, second] {
            let answer = result(ending);
            let found = answer["content"][0]["text"].as_str().unwrap().len();
            assert_eq!(found, SIZE, "{era}");
        }
        child.works().await;
        child.ends().await;
    }
}

/// P63, P79, reliability P3: progress arrives while the call runs.
#[tokio::test]
async fn progress_reaches_the_call_it_is_of() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        let (three, five) = (Ear::default(), Ear::default());
        let steps = |n: u64| tool("progress", json!({"steps": n, "pause_ms": 20}));
        let (first, second) = tokio::join!(
            child.session.call(steps(3), &three),
            child.session.call(steps(5), &five),
        );
        assert_eq!(result(first)["content"][0]["text"], "3 steps");
        assert_eq!(result(second)["content"][0]["text"], "5 steps");
        for (ear, total) in [(three, 3), (five, 5)] {
            let heard: Vec<Value> = ear
                .heard("progress")
                .iter()
                .map(|one| one["progress"].clone())
                .collect();
            let all: Vec<Value> = (1..=total).map(Value::from).collect();
            assert_eq!(heard, all, "{era}");
        }
        child.ends().await;
    }
}

#[tokio::test]
async fn log_lines_are_heard_by_the_call_that_runs() {
    let child = Child::ledger(Era::Legacy, &[]).await;
    let ear = Ear::default();
    result(
        child
            .session
            .call(tool("log", json!({"lines": 4})), &ear)
            .await,
    );
    let lines: Vec<Value> = ear
        .heard("log")
        .iter()
        .map(|one| one["data"].clone())
        .collect();
    assert_eq!(lines, ["line 1", "line 2", "line 3", "line 4"]);
    child.ends().await;
}

/// mcp-spec 2.2: a program of the one version that knows batches may speak in them; in every other
/// version such a line is noise.
#[tokio::test]
async fn a_program_may_speak_in_batches() {
    for (version, lines) in [("2025-03-26", 2), ("2025-11-25", 0)] {
        let script = format!(
            r#"
hear
reply '{{"protocolVersion":"{version}","capabilities":{{}},"serverInfo":{{"name":"s","version":"1"}}}}'
hear
line() {{ printf '{{"jsonrpc":"2.0","method":"notifications/message","params":{{"level":"info","data":%s}}}}' "$1"; }}
hear
printf '[%s, 5,[%s],%s,{{"jsonrpc":"2.0","id":%s,"result":{{"in":"batch"}}}}]\n' "$(line 1)" "$(line 9)" "$(line 2)" "$id"
reply '{{"in":"line"}}'
hear
"#
        );
        let child = Child::start(Program::script(&script), Era::Legacy).await;
        let ear = Ear::default();
        let call = child.session.call(tool("any", json!({})), &ear);
        let place = if lines > 0 { "batch" } else { "line" };
        assert_eq!(result(call.await)["in"], place, "{version}");
        let heard: Vec<Value> = ear
            .heard("log")
            .iter()
            .map(|one| one["data"].clone())
            .collect();
        assert_eq!(heard, (1..=lines).collect::<Vec<_>>(), "{version}");
        child.ends().await;
    }
}

#[tokio::test]
async fn a_flood_of_news_costs_some_of_them_and_never_the_answer() {
    for era in ERAS {
        let flood = r#"{"tool":"pay","fault":{"flood":20000}}"#;
        let child = Child::ledger(era, &["--fault", flood]).await;
        let ear = Ear::default();
        let paid = result(
            child
                .session
                .call(tool("pay", json!({"amount": 5})), &ear)
                .await,
        );
        assert_eq!(paid["structuredContent"]["paid"], 5, "{era}");
        assert!(!ear.heard("log").is_empty(), "{era}");
        child.works().await;
        child.ends().await;
    }
}

/// P71, P80, P135, reliability I18: a cancel concerns its own call.
#[tokio::test]
async fn a_dropped_call_is_cancelled_in_either_era_and_the_others_go_on() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        let other = child.call("slow", json!({"ms": 400}));
        let dropping = async {
            let dropped = child.call("slow", json!({"ms": 600_000}));
            let running = child.until_line("it runs", |line| {
                line["phase"] == "begin" && line["arguments"]["ms"] == 600_000
            });
            tokio::select! {
                ending = dropped => panic!("{ending:?}"),
                () = running => {},
            }
        };
        let (other, ()) = tokio::join!(other, dropping);
        result(other);
        child
            .until_line("it was abandoned", |line| line["phase"] == "abandoned")
            .await;
        let lines = child.program.lives().concat();
        let of =
            |fits: &dyn Fn(&Value) -> bool| lines.iter().find(|line| fits(line)).cloned().unwrap();
        let call = of(&|line| line["arguments"]["ms"] == 600_000);
        let cancel = of(&|line| line["method"] == "notifications/cancelled");
        assert_eq!(cancel["arguments"]["requestId"], call["id"], "{era}");
        child.works().await;
        child.ends().await;
    }
}

#[tokio::test]
async fn a_notice_is_heard_even_if_the_session_is_closed_right_after() {
    for era in ERAS {
        let child = Child::ledger(era, &[]).await;
        child
            .session
            .notify("notifications/roots/list_changed", b"{}")
            .await
            .unwrap();
        child.session.close().await;
        let told = |line: &Value| line["method"] == "notifications/roots/list_changed";
        assert!(child.program.lives().concat().iter().any(told), "{era}");
        child.ends().await;
    }
}
