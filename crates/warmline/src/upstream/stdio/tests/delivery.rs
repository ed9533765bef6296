//! What is known of a request when its child fails it: rows D97 to D118.

use super::*;

/// More than a pipe holds.
const OVER_THE_PIPE: usize = 300 << 10;

/// A35, P60: at once, with status and last words.
#[tokio::test]
async fn d99_and_d104_a_child_that_exits_fails_its_calls_at_once_with_status_and_last_words() {
    let script = "read_id; echo 'cannot open \u{1b}[31mconfig' >&2; exit 3";
    let pipe = spawn(script).await;
    let mut call = pipe.request(1, line(1));
    let (delivery, trouble) = loss(&mut call).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::ChildExit)
    );
    assert_eq!(trouble.what, "`files` ended with exit status 3");
    assert_eq!(trouble.why.as_deref(), Some("cannot open config"));
    // Whoever asks again hears an end, and does not wait.
    assert_eq!(loss(&mut call).await.0, Delivery::Unknown);
}

/// P60: so is its signal.
#[tokio::test]
async fn d115_a_child_that_is_killed_is_told_by_its_signal() {
    let pipe = spawn("read_id; kill -9 $$").await;
    let (delivery, trouble) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::ChildExit)
    );
    assert_eq!(trouble.what, "`files` ended with signal 9");
}

#[tokio::test]
async fn a_reply_in_the_pipe_of_a_child_that_ended_still_counts() {
    for ending in ["exit 0", "kill -9 $$"] {
        let pipe = spawn(&format!("read_id; a=$id; read_id; reply $a; {ending}")).await;
        let (mut first, mut second) = (pipe.request(1, line(1)), pipe.request(2, line(2)));
        assert!(reply(&mut first).await.contains("result"));
        assert_eq!(loss(&mut second).await.0, Delivery::Unknown);
    }
}

#[tokio::test]
async fn a_last_reply_without_a_newline_counts() {
    let pipe = spawn(r#"read_id; printf '{"jsonrpc":"2.0","id":%s,"result":{}}' $id"#).await;
    assert!(
        reply(&mut pipe.request(1, line(1)))
            .await
            .contains("result")
    );
}

#[tokio::test]
async fn d100_a_child_that_ended_before_a_byte_was_taken_leaves_the_request_unsent() {
    let pipe = spawn("exec 0<&-; echo ready >&2; sleep 0.05; exit 1").await;
    until(|| pipe.report().stderr_tail == "ready").await;
    let (delivery, trouble) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unsent, Reason::ChildExit)
    );
    assert_eq!(trouble.what, "`files` ended with exit status 1");
}

#[tokio::test]
async fn d101_a_part_of_the_message_is_unsent() {
    let pipe = spawn("sleep 0.2; exit 1").await;
    let mut call = pipe.request(1, long_line(1, OVER_THE_PIPE));
    let (delivery, trouble) = loss(&mut call).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unsent, Reason::ChildExit)
    );
}

/// reliability P7: the last byte decides.
#[tokio::test]
async fn w4_the_last_byte_of_the_json_text_decides() {
    // A pipe that nobody reads takes exactly 65536 bytes.
    for (bytes, expected) in [
        (65_535, Delivery::Unknown),
        (65_536, Delivery::Unknown),
        (65_537, Delivery::Unsent),
    ] {
        let pipe = spawn("sleep 0.2; exit 1").await;
        let (delivery, _) = loss(&mut pipe.request(1, long_line(1, bytes))).await;
        assert_eq!(delivery, expected, "{bytes} bytes");
    }
}

#[tokio::test]
async fn w5_a_line_behind_a_full_pipe_was_never_taken() {
    let pipe = spawn("sleep 0.2; exit 1").await;
    let mut first = pipe.request(1, long_line(1, OVER_THE_PIPE));
    let mut second = pipe.request(2, line(2));
    assert_eq!(loss(&mut first).await.0, Delivery::Unsent);
    assert_eq!(loss(&mut second).await.0, Delivery::Unsent);
}

#[tokio::test]
async fn d102_a_call_given_up_before_a_byte_left_is_unsent_and_harmless() {
    let blocked = spawn("sleep 0.3; while read_id; do reply $id; done").await;
    let mut first = blocked.request(1, long_line(1, OVER_THE_PIPE));
    let second = blocked.request(2, line(2));
    let mut third = blocked.request(3, line(3));
    assert_eq!(second.abandon(), Abandoned::Unsent);
    assert!(reply(&mut first).await.contains(r#""id":1,"#));
    assert!(reply(&mut third).await.contains(r#""id":3,"#));
}

#[tokio::test]
async fn d103_a_torn_message_ends_the_child_and_others_in_flight_are_unknown() {
    let pipe = spawn("read_id; echo one >&2; while :; do sleep 1; done").await;
    let mut other = pipe.request(1, line(1));
    let torn = pipe.request(2, long_line(2, OVER_THE_PIPE));
    let mut behind = pipe.request(3, line(3));
    until_said(&pipe, "one").await;
    until(|| pipe.handle.desk.taken() > 0).await;
    assert_eq!(torn.abandon(), Abandoned::Torn);
    assert_eq!(loss(&mut other).await.0, Delivery::Unknown);
    assert_eq!(loss(&mut behind).await.0, Delivery::Unsent);
    let pid = pipe.report().pid;
    until(|| !is_alive(pid)).await;
}

/// P71, P109: one writer: messages are never mixed.
#[tokio::test]
async fn a_dropped_call_does_not_tear_the_message_of_others() {
    let pipe = spawn("sleep 0.2; while read_id; do reply $id; done").await;
    let dropped = pipe.request(1, long_line(1, OVER_THE_PIPE));
    let mut next = pipe.request(2, line(2));
    until(|| pipe.handle.desk.taken() > 0).await;
    drop(dropped);
    assert!(reply(&mut next).await.contains(r#""id":2,"#));
}

#[tokio::test]
async fn d105_a_child_that_closes_its_output_and_lives_is_ended() {
    let pipe = spawn("read_id; exec 1>&-; while :; do sleep 1; done").await;
    let (delivery, trouble) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::ReplyLost)
    );
    let pid = pipe.report().pid;
    until(|| !is_alive(pid)).await;
}

/// P71, P72, reliability I18: late replies are dropped.
#[tokio::test]
async fn d106_and_d107_late_replies_are_dropped_and_no_reason_to_end_the_child() {
    let script = "ids=; while [ ${#ids} -lt 90 ]; do read_id; ids=\"$ids $id\"; done; echo all >&2
        read_id; for late in $ids; do reply $late; done; reply $id; read_id";
    let pipe = spawn(script).await;
    let calls: Vec<PipeCall> = (10..40).map(|id| pipe.request(id, line(id))).collect();
    until_said(&pipe, "all").await;
    for (place, call) in calls.into_iter().enumerate() {
        if place % 2 == 0 {
            assert_eq!(call.abandon(), Abandoned::Written);
        }
    }
    let reply = reply(&mut pipe.request(50, line(50))).await;
    assert!(reply.contains(r#""id":50,"#), "{reply}");
}

#[tokio::test]
async fn d109_a_reply_over_the_limit_fails_its_call_alone() {
    let script = r#"read_id; printf '{"jsonrpc":"2.0","id":%s,"result":{"x":"' $id
        head -c 100000 /dev/zero | tr '\0' x; echo '"}}'; while read_id; do reply $id; done"#;
    let pipe = spawn_with(script, |server| server.sizes.line = 50_000).await;
    let (delivery, trouble) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::ReplyTooLarge)
    );
    assert!(
        trouble.what.contains("the limit is 50000"),
        "{}",
        trouble.what
    );
    assert!(
        reply(&mut pipe.request(2, line(2)))
            .await
            .contains("result")
    );
}

#[tokio::test]
async fn d118_closing_during_a_call_ends_it_at_once() {
    let pipe = spawn("trap '' TERM; read_id; echo one >&2; while :; do sleep 1; done").await;
    let mut call = pipe.request(1, line(1));
    until_said(&pipe, "one").await;
    let closing = pipe.close();
    let began = clock::now();
    let ending = async {
        let lost = loss(&mut call).await;
        (lost, clock::now() - began)
    };
    let (((delivery, trouble), took), ()) = tokio::join!(ending, closing);
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::Closed)
    );
    assert!(
        took < Duration::from_secs(1),
        "the result comes first: {took:?}"
    );
}

/// Sends each request back within its reply, while the request is still being written.
fn echo(bytes: usize) -> String {
    let head = r#"printf '{"jsonrpc":"2.0","id":%s,"result":'"#;
    format!(
        "id=1; while {head} $id; head -c {bytes}; echo '}}'; read -r rest; do id=$((id+1)); done"
    )
}

/// P69: reading and writing do not wait for each other.
#[tokio::test]
async fn p69_large_messages_pass_both_ways_at_once() {
    const BYTES: usize = 4 << 20;
    let pipe = spawn(&echo(BYTES)).await;
    let calls: Vec<PipeCall> = (1..=8)
        .map(|id| pipe.request(id, long_line(id, BYTES)))
        .collect();
    // Each is over once it has its reply: until then that counts as not taken.
    for mut call in calls {
        assert!(reply(&mut call).await.len() > BYTES);
    }
}

/// P69: 100 MB fail by a stated limit.
#[tokio::test]
async fn p69_a_hundred_megabytes_fail_by_the_stated_limit_and_nothing_hangs() {
    const BYTES: usize = 100 << 20;
    let pipe = spawn(&echo(BYTES)).await;
    let (delivery, trouble) = loss(&mut pipe.request(1, long_line(1, BYTES))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::ReplyTooLarge)
    );
    let mut again = pipe.request(2, long_line(2, BYTES));
    assert_eq!(
        loss(&mut again).await.0,
        Delivery::Unknown,
        "it goes on reading"
    );
}

/// reliability P17, reliability I25: what waits to be written is bounded.
#[tokio::test]
async fn a_queue_that_nobody_reads_has_an_end() {
    let pipe = spawn("while :; do sleep 1; done").await;
    let _first = pipe.request(1, long_line(1, OVER_THE_PIPE));
    let waiting: Vec<PipeCall> = (2..=1024).map(|id| pipe.request(id, line(id))).collect();
    let (delivery, trouble) = loss(&mut pipe.request(2000, line(2000))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unsent, Reason::LocalResources)
    );
    drop(waiting);
    assert!(
        pipe.request(3000, line(3000)).refused.is_none(),
        "there is room again"
    );
}

#[tokio::test]
async fn a_call_that_was_told_unsent_is_not_written_on_when_the_child_begins_to_read() {
    /// More than a pipe holds, and what is left of it fits once the child has read.
    const LITTLE_OVER: usize = 100 << 10;
    let folder = tempfile::tempdir().unwrap();
    for round in 0..40 {
        let go = folder.path().join(format!("go-{round}"));
        let script = format!(
            "trap '' TERM; while [ ! -e {} ]; do :; done; exec cat >/dev/null",
            go.display()
        );
        let pipe = spawn(&script).await;
        let torn = pipe.request(2, long_line(2, LITTLE_OVER));
        until(|| pipe.handle.desk.taken() > 0).await;
        // The child begins to read while the runtime is busy, and the call's time ends meanwhile:
        // the owner then learns of both at once.
        let deadline = clock::sleep(Duration::from_millis(10));
        let busy = clock::spawn("busy", async move {
            std::fs::write(&go, b"").unwrap();
            let began = clock::now();
            while began.elapsed() < Duration::from_millis(30) {
                std::hint::spin_loop();
            }
        });
        deadline.await;
        assert_eq!(torn.abandon(), Abandoned::Torn);
        let left = pipe.handle.desk.taken_in_all();
        drop(torn);
        busy.await.unwrap();
        pipe.close().await;
        assert_eq!(pipe.handle.desk.taken_in_all(), left, "round {round}");
    }
}
