//! A pipe that is full (witness W4, rows D101 to D103): what became of a call is known to the byte.

use crate::prelude::*;

use std::fs::File;

use rustix::process::Signal;

use super::child_session::{Child, failed, result};

/// What a pipe holds on Linux.
const PIPE: usize = 65_536;

/// Tells how long the line of a call was, then goes on with the rest of its script.
const MEASURE: &str = r#"hear; reply "{\"bytes\":${#line}}"; "#;

/// Calls `fill` so that its line has exactly this many bytes without the newline.
async fn measured(child: &Child) -> usize {
    let bare = result(child.call("fill", json!({"filler": ""})).await);
    usize::try_from(bare["bytes"].as_u64().unwrap()).unwrap()
}

fn filler(bytes: usize, bare: usize) -> Value {
    json!({"filler": "x".repeat(bytes - bare)})
}

/// How many bytes wait in the pipe to the child.
fn waiting(child: &Child) -> usize {
    let pid = child.session.child().unwrap().pid;
    let pipe = File::open(format!("/proc/{pid}/fd/0")).unwrap();
    usize::try_from(rustix::io::ioctl_fionread(pipe).unwrap()).unwrap()
}

/// Lets a script go on that waits for the file `go`.
fn let_go(child: &Child) {
    File::create(format!("{}/go", child.program.place())).unwrap();
}

/// reliability P6, reliability P7: the last byte decides.
#[tokio::test]
async fn the_last_byte_of_the_json_text_decides() {
    let rows = [
        (PIPE - 1, Delivery::Unknown),
        (PIPE, Delivery::Unknown),
        (PIPE + 1, Delivery::Unsent),
        (3 * PIPE, Delivery::Unsent),
    ];
    for (bytes, delivery) in rows {
        let child = Child::script(&format!("{MEASURE} exec sleep 600")).await;
        let bare = measured(&child).await;
        let killing = async {
            until("the pipe is full", || waiting(&child) == PIPE).await;
            child.signal(Signal::KILL);
        };
        let (ending, ()) = tokio::join!(child.call("fill", filler(bytes, bare)), killing);
        failed(ending, delivery, Reason::ChildExit);
        child.ends().await;
    }
}

/// reliability P7, reliability P10: a full pipe holds nobody beyond the limit.
#[tokio::test]
async fn a_call_of_which_no_byte_left_in_time_is_unsent_and_harmless() {
    let script = format!(
        r#"{MEASURE} n=0
        while [ ! -e "$WARMLINE_STAGE/go" ]; do sleep 0.01; done
        while :; do hear; n=$((n+1)); reply "{{\"n\":$n}}"; done"#
    );
    let child = Child::script(&script).await;
    let bare = measured(&child).await;
    let second_in_vain = async {
        until("the pipe is full", || waiting(&child) == PIPE).await;
        let ending = child.call_within(100, "second", json!({})).await;
        failed(ending, Delivery::Unsent, Reason::TimeoutUnsent);
        assert_eq!(child.session.retired_reason(), None);
        let dropped = child.call("dropped", json!({}));
        tokio::select! {
            biased;
            ending = dropped => panic!("{ending:?}"),
            () = tokio::task::yield_now() => {},
        }
        let_go(&child);
    };
    let first = child.call("first", filler(PIPE - 1, bare));
    let (first, ()) = tokio::join!(first, second_in_vain);
    assert_eq!(result(first)["n"], 1);
    let third = child.call("third", json!({})).await;
    assert_eq!(
        result(third)["n"],
        2,
        "what did not leave was never heard, nor anything about it"
    );
    child.ends().await;
}

#[tokio::test]
async fn a_torn_message_ends_the_child_and_others_in_flight_are_unknown() {
    let child = Child::script("hear; echo heard >&2; exec sleep 600").await;
    let torn = async {
        child.until_said("heard").await;
        let large = json!({"filler": "x".repeat(4 * PIPE)});
        child.call_within(150, "second", large).await
    };
    let (first, second) = tokio::join!(child.call("first", json!({})), torn);
    failed(first, Delivery::Unknown, Reason::ReplyLost);
    failed(second, Delivery::Unsent, Reason::TimeoutUnsent);
    child.program.gone().await;
    child.ends().await;
}

/// P71, P109: one writer: messages are never mixed.
#[tokio::test]
async fn a_dropped_call_does_not_tear_the_message_of_others() {
    let script = format!(
        r#"{MEASURE}
        while [ ! -e "$WARMLINE_STAGE/go" ]; do sleep 0.01; done
        while :; do hear; reply "{{\"bytes\":${{#line}}}}"; done"#
    );
    let child = Child::script(&script).await;
    measured(&child).await;
    {
        let dropped = child.call("dropped", json!({"filler": "x".repeat(4 * PIPE)}));
        let full = until("the pipe is full", || waiting(&child) == PIPE);
        tokio::select! {
            ending = dropped => panic!("{ending:?}"),
            () = full => {},
        }
    }
    let_go(&child);
    assert!(
        result(child.call("next", json!({})).await)["bytes"]
            .as_u64()
            .unwrap()
            < 1000
    );
    child.ends().await;
}

/// reliability P17, reliability I25: what waits to be written is bounded.
#[tokio::test]
async fn a_queue_that_nobody_reads_has_an_end_and_costs_only_the_call_that_meets_it() {
    let script = r#"
    while [ ! -e "$WARMLINE_STAGE/go" ]; do sleep 0.01; done
    while :; do hear; case $line in *tools/call*) reply '{}';; esac; done"#;
    let child = Child::script(script).await;
    let filler = json!({"filler": "x".repeat(1000)}).to_string();
    let mut refused = 0;
    for _ in 0..1200 {
        let notice = child.session.notify("notifications/any", filler.as_bytes());
        if let Err(trouble) = notice.await {
            assert_eq!(trouble.diagnostic.reason, Reason::LocalResources);
            refused += 1;
        }
    }
    assert!(
        refused > 0,
        "the queue has an end, and whoever meets it is told"
    );
    let ending = child.call("one too many", json!({})).await;
    failed(ending, Delivery::Unsent, Reason::LocalResources);
    assert_eq!(child.session.retired_reason(), None);
    let_go(&child);
    let room = async {
        while child.call("again", json!({})).await.delivery() != Delivery::Answered {
            tokio::task::yield_now().await;
        }
    };
    room.await;
    child.ends().await;
}
