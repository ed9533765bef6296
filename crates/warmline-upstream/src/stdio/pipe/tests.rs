//! What stories cannot see: byte counts, ids, the ends of children. Children are shell scripts.

use std::sync::Arc;

use std::time::Duration;

use warmline_core::message::envelope::Message;

use super::*;
use crate::pending::is_reply;
use crate::target::TransportConfig;

/// More than a pipe holds.
const OVER_THE_PIPE: usize = 300 << 10;

const PATIENCE: Duration = Duration::from_secs(20);

/// Reads requests and sets `id` for each; what to do with it is the test's.
const READ: &str = r#"read_id() { IFS= read -r line || exit 0; id=${line#*\"id\":}; id=${id%%[,\}]*}; }
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$1" "$2"; }
"#;

async fn spawn(script: &str) -> Pipe {
    spawn_with(script, |_| {}).await
}

async fn spawn_with(script: &str, change: impl FnOnce(&mut ServerTarget)) -> Pipe {
    let mut server = ServerTarget::stdio("files", "sh", ["-c", &format!("{READ}{script}")]);
    change(&mut server);
    let TransportConfig::Stdio(reach) = &server.transport else {
        panic!("a program is reached over stdio");
    };
    Pipe::spawn(&server, reach, &Arc::default()).await.unwrap()
}

fn line(id: u64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#).into()
}

/// A request whose line has this many bytes.
fn long_line(id: u64, bytes: usize) -> Bytes {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m","params":{{"x":""#);
    let rest = bytes - head.len() - 3;
    format!(r#"{head}{}"}}}}"#, "x".repeat(rest)).into()
}

async fn next(call: &mut PipeCall) -> PendingEvent {
    let next = clock::timeout(PATIENCE, call.next_event());
    next.await.expect("an event must come")
}

async fn message(call: &mut PipeCall) -> Message {
    match next(call).await {
        PendingEvent::Message(message) => message,
        event @ (PendingEvent::Dropped(_) | PendingEvent::Lost(..)) => panic!("{event:?}"),
    }
}

async fn reply(call: &mut PipeCall) -> String {
    let message = message(call).await;
    assert!(is_reply(&message), "{message:?}");
    String::from_utf8(message.raw().to_vec()).unwrap()
}

async fn loss(call: &mut PipeCall) -> (Delivery, Diagnostic) {
    match next(call).await {
        PendingEvent::Lost(delivery, diagnostic) => (delivery, diagnostic),
        event @ (PendingEvent::Message(_) | PendingEvent::Dropped(_)) => panic!("{event:?}"),
    }
}

async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            clock::sleep(Duration::from_millis(2)).await;
        }
    };
    clock::timeout(PATIENCE, waiting)
        .await
        .expect("it must happen");
}

/// Waits until the child said so on its standard error.
async fn until_said(pipe: &Pipe, word: &str) {
    until(|| pipe.report().stderr_tail.lines().any(|line| line == word)).await;
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// reliability O24: what a child says of its variables when it dies is not told on.
#[tokio::test]
async fn a_child_that_dies_does_not_tell_on_its_variables() {
    let script = "read line; echo \"no login with $KEY\" >&2; echo \"$KEY\"; exit 3";
    let pipe = spawn_with(script, |server| {
        let TransportConfig::Stdio(reach) = &mut server.transport else {
            panic!("stdio")
        };
        reach.env.insert("KEY".to_owned(), "canary-key".to_owned());
    })
    .await;
    let (_, diagnostic) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        diagnostic.cause.as_deref(),
        Some("no login with [redacted: KEY]")
    );
    let report = pipe.report();
    assert_eq!(report.last_skipped_line.as_deref(), Some("[redacted: KEY]"));
    assert!(!format!("{report:?}").contains("canary"));
}

#[tokio::test]
async fn the_end_of_the_runtime_ends_the_child() {
    let pid = std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let pipe = spawn("trap '' TERM; while :; do sleep 1; done").await;
            pipe.report().pid
        })
    })
    .join()
    .unwrap();
    // Nobody of that runtime is left to reap it; it is dead all the same.
    let is_dead = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.contains(") S") && !stat.contains(") R")
    };
    until(is_dead).await;
}

/// P34, P105: each is told with its reason.
#[tokio::test]
async fn programs_that_do_not_start_are_errors_with_a_reason() {
    let missing = ServerTarget::stdio("files", "/no/such/program", [""; 0]);
    let TransportConfig::Stdio(reach) = &missing.transport else {
        panic!("stdio")
    };
    let diagnostic = Pipe::spawn(&missing, reach, &Arc::default())
        .await
        .unwrap_err();
    assert_eq!(diagnostic.reason, Reason::ProgramMissing);
    for (errno, reason) in [
        (rustix::io::Errno::NOENT, Reason::ProgramMissing),
        (rustix::io::Errno::ACCESS, Reason::Spawn),
        (rustix::io::Errno::NOEXEC, Reason::Spawn),
        (rustix::io::Errno::TOOBIG, Reason::Spawn),
        (rustix::io::Errno::AGAIN, Reason::LocalResources),
        (rustix::io::Errno::NOMEM, Reason::LocalResources),
        (rustix::io::Errno::MFILE, Reason::LocalResources),
        (rustix::io::Errno::NFILE, Reason::LocalResources),
    ] {
        let diagnostic = start_failed("files", std::path::Path::new("/bin/x"), &errno.into());
        assert_eq!(diagnostic.reason, reason, "{errno}");
        assert!(
            diagnostic.message.contains("`files`"),
            "{}",
            diagnostic.message
        );
        assert!(diagnostic.cause.is_some_and(|why| !why.is_empty()));
    }
}

/// P29: a child that ends by itself is waited for within a second, though nobody closes its session.
#[tokio::test]
async fn a_child_that_ends_by_itself_is_no_zombie_a_second_later() {
    let pipes = futures_util::future::join_all((0..10).map(|_| spawn("exit 0"))).await;
    let pids: Vec<u32> = pipes.iter().map(|pipe| pipe.report().pid).collect();
    let gone = async {
        while pids.iter().any(|pid| is_alive(*pid)) {
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    let in_time = clock::timeout(Duration::from_secs(1), gone).await;
    assert!(in_time.is_ok(), "a zombie is older than a second");
    drop(pipes);
}

/// P29, reliability I33: every child is waited for.
#[tokio::test]
async fn a_thousand_quick_children_leave_no_zombie() {
    for _ in 0..20 {
        let pipes = futures_util::future::join_all((0..50).map(|_| spawn("exit 0"))).await;
        let pids: Vec<u32> = pipes.iter().map(|pipe| pipe.report().pid).collect();
        futures_util::future::join_all(pipes.iter().map(Pipe::close)).await;
        assert!(!pids.into_iter().any(is_alive));
    }
}

/// A35, P60: at once, with status and last words.
#[tokio::test]
async fn d99_and_d104_a_child_that_exits_fails_its_calls_at_once_with_status_and_last_words() {
    let script = "read_id; echo 'cannot open \u{1b}[31mconfig' >&2; exit 3";
    let pipe = spawn(script).await;
    let mut call = pipe.request(1, line(1));
    let (delivery, diagnostic) = loss(&mut call).await;
    assert_eq!(
        (delivery, diagnostic.reason),
        (Delivery::Unknown, Reason::ChildExit)
    );
    assert_eq!(diagnostic.message, "`files` ended with exit status 3");
    assert_eq!(diagnostic.cause.as_deref(), Some("cannot open config"));
    // Whoever asks again hears an end, and does not wait.
    assert_eq!(loss(&mut call).await.0, Delivery::Unknown);
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
    let (delivery, diagnostic) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        (delivery, diagnostic.reason),
        (Delivery::Unsent, Reason::ChildExit)
    );
    assert_eq!(diagnostic.message, "`files` ended with exit status 1");
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
async fn d103_a_torn_message_ends_the_child_and_others_in_flight_are_unknown() {
    let pipe = spawn("read_id; echo one >&2; while :; do sleep 1; done").await;
    let mut other = pipe.request(1, line(1));
    let mut torn = pipe.request(2, long_line(2, OVER_THE_PIPE));
    let mut behind = pipe.request(3, line(3));
    until_said(&pipe, "one").await;
    until(|| pipe.handle.shared.write_queue.written() > 0).await;
    assert_eq!(torn.abandon(), WriteProgress::Partial);
    assert_eq!(loss(&mut other).await.0, Delivery::Unknown);
    assert_eq!(loss(&mut behind).await.0, Delivery::Unsent);
    let pid = pipe.report().pid;
    until(|| !is_alive(pid)).await;
}

/// Sends each request back within its reply, while the request is still being written.
fn echo(bytes: usize) -> String {
    let head = r#"printf '{"jsonrpc":"2.0","id":%s,"result":'"#;
    format!(
        "id=1; while {head} $id; head -c {bytes}; echo '}}'; read -r rest; do id=$((id+1)); done"
    )
}

/// P71, P72, reliability I18: late replies are dropped.
#[tokio::test]
async fn d106_and_d107_late_replies_are_dropped_and_no_reason_to_end_the_child() {
    let script = "ids=; while [ ${#ids} -lt 90 ]; do read_id; ids=\"$ids $id\"; done; echo all >&2
        read_id; for late in $ids; do reply $late; done; reply $id; read_id";
    let pipe = spawn(script).await;
    let calls: Vec<PipeCall> = (10..40).map(|id| pipe.request(id, line(id))).collect();
    until_said(&pipe, "all").await;
    for (place, mut call) in calls.into_iter().enumerate() {
        if place % 2 == 0 {
            assert_eq!(call.abandon(), WriteProgress::Whole);
        }
    }
    let reply = reply(&mut pipe.request(50, line(50))).await;
    assert!(reply.contains(r#""id":50,"#), "{reply}");
}

/// P69: 100 MB fail by a stated limit.
#[tokio::test]
async fn p69_a_hundred_megabytes_fail_by_the_stated_limit_and_nothing_hangs() {
    const BYTES: usize = 100 << 20;
    let pipe = spawn(&echo(BYTES)).await;
    let (delivery, diagnostic) = loss(&mut pipe.request(1, long_line(1, BYTES))).await;
    assert_eq!(
        (delivery, diagnostic.reason),
        (Delivery::Unknown, Reason::ReplyTooLarge)
    );
    let mut again = pipe.request(2, long_line(2, BYTES));
    assert_eq!(
        loss(&mut again).await.0,
        Delivery::Unknown,
        "it goes on reading"
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
        let mut torn = pipe.request(2, long_line(2, LITTLE_OVER));
        until(|| pipe.handle.shared.write_queue.written() > 0).await;
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
        assert_eq!(torn.abandon(), WriteProgress::Partial);
        let left = pipe.handle.shared.write_queue.total_written();
        drop(torn);
        busy.await.unwrap();
        pipe.close().await;
        assert_eq!(
            pipe.handle.shared.write_queue.total_written(),
            left,
            "round {round}"
        );
    }
}

/// mcp-spec 6.6.5: a listen that its server ends by a cancel is over, and a result behind it is no stray.
#[tokio::test]
async fn a_listen_ends_by_a_cancel_as_by_a_result() {
    let script = r#"i=0; while [ $i -lt 40 ]; do i=$((i+1)); read_id
        printf '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n' $id
        reply $id; done; read_id; reply $id; read_id"#;
    let pipe = spawn(script).await;
    for id in 1..=40 {
        let mut listen = pipe.start_request(id, line(id), PendingKind::Listen, None);
        let message = message(&mut listen).await;
        let result = message.result().unwrap();
        assert_eq!(result, &br#"{"resultType":"complete"}"#[..]);
    }
    reply(&mut pipe.request(41, line(41))).await;
}

#[tokio::test]
async fn subscriptions_and_cancels_reach_the_call_they_name() {
    let script = r#"read_id; a=$id; read_id; b=$id
        printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}\n' $b
        printf '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n' $b
        printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
        reply $a; reply $b; read_id"#;
    let pipe = spawn(script).await;
    let caller = Some(CallerId::from_ref(&pipe));
    let mut first = pipe.start_request(1, line(1), PendingKind::Call, caller);
    let mut second = pipe.start_request(2, line(2), PendingKind::Call, caller);
    assert_eq!(
        message(&mut second).await.method().unwrap(),
        "notifications/tools/list_changed"
    );
    assert_eq!(
        message(&mut second).await.method().unwrap(),
        "notifications/cancelled"
    );
    reply(&mut second).await;
    assert_eq!(
        message(&mut first).await.method().unwrap(),
        "notifications/message",
        "all are one caller's: the oldest gets the rest"
    );
    reply(&mut first).await;
}

/// mcp-spec T32, DESIGN 4: what concerns everybody is told by one call of each caller, the oldest;
/// calls that nobody listens to hear nothing, and are asked nothing. A log line that names no call
/// could be of either caller's, and is told to none of them.
#[tokio::test]
async fn what_concerns_everybody_is_told_by_one_call_of_each_caller() {
    let script = r#"read_id; o=$id; read_id; a=$id; read_id; b=$id; read_id; c=$id
        printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}\n'
        printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
        reply $c; reply $b; reply $a
        printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}\n'; IFS= read -r got
        reply $o "\"got\":$got"; read_id"#;
    let pipe = spawn(script).await;
    let callers = [1_u8, 2];
    let [one, other] = callers
        .each_ref()
        .map(|caller| Some(CallerId::from_ref(caller)));
    let whose = [None, one, one, other];
    let mut calls: Vec<_> = (1..)
        .zip(whose)
        .map(|(id, whose)| pipe.start_request(id, line(id), PendingKind::Call, whose))
        .collect();
    let expected: [&[&str]; 4] = [
        &[],
        &["notifications/resources/updated"],
        &[],
        &["notifications/resources/updated"],
    ];
    for place in [3, 2, 1] {
        let call = &mut calls[place];
        for method in expected[place] {
            assert_eq!(message(call).await.method(), Some(*method), "call {place}");
        }
        reply(call).await;
    }
    let got = reply(&mut calls[0]).await;
    assert!(got.contains(r#""result":{"action":"cancel"}"#), "{got}");
}

#[tokio::test]
async fn d108_a_message_between_the_noise_starts_the_count_anew() {
    let noise = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo noise; done;";
    let script = format!("{noise} read_id; reply $id; {noise} read_id; reply $id; read_id");
    let pipe = spawn(&script).await;
    reply(&mut pipe.request(1, line(1))).await;
    reply(&mut pipe.request(2, line(2))).await;
    assert_eq!(pipe.report().skipped_lines, 120);
}

#[tokio::test]
async fn an_error_without_an_id_that_answers_a_notification_ends_no_call() {
    // Whoever says "method not found" has read the message: had it an id, it would be named.
    let refusal = r#"echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such notification"}}'"#;
    let pipe = spawn(&format!("read_id; {refusal}; reply $id; read_id")).await;
    assert!(
        reply(&mut pipe.request(1, line(1)))
            .await
            .contains("result")
    );
}

#[tokio::test]
async fn an_error_without_an_id_ends_no_call_while_another_was_given_up() {
    let error = r#"echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}'"#;
    let pipe = spawn(&format!(
        "read_id; echo ready >&2; read_id; {error}; reply $id; read_id"
    ))
    .await;
    let given_up = pipe.request(1, line(1));
    until_said(&pipe, "ready").await;
    drop(given_up);
    assert!(
        reply(&mut pipe.request(2, line(2)))
            .await
            .contains("result")
    );
}
