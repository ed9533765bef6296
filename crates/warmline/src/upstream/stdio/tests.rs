//! Children here are shell scripts. Each answers `{"id":N}` lines as its test needs.

use std::sync::Arc;

use std::time::Duration;

use super::*;
use crate::upstream::server::Reach;

mod delivery;
mod news;

const PATIENCE: Duration = Duration::from_secs(20);

/// Reads requests and sets `id` for each; what to do with it is the test's.
const READ: &str = r#"read_id() { IFS= read -r line || exit 0; id=${line#*\"id\":}; id=${id%%[,\}]*}; }
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":{%s}}\n' "$1" "$2"; }
"#;

async fn spawn(script: &str) -> Pipe {
    spawn_with(script, |_| {}).await
}

async fn spawn_with(script: &str, change: impl FnOnce(&mut Server)) -> Pipe {
    let mut server = Server::stdio("files", "sh", ["-c", &format!("{READ}{script}")]);
    change(&mut server);
    let Reach::Stdio(reach) = &server.reach else {
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

async fn next(call: &mut PipeCall) -> PipeNews {
    clock::timeout(PATIENCE, call.next())
        .await
        .expect("news must come")
}

async fn reply(call: &mut PipeCall) -> String {
    let news = next(call).await;
    let PipeNews::Reply(message) = news else {
        panic!("no reply: {news:?}")
    };
    String::from_utf8(message.raw().to_vec()).unwrap()
}

async fn loss(call: &mut PipeCall) -> (Delivery, Trouble) {
    let news = next(call).await;
    let PipeNews::Lost { delivery, trouble } = news else {
        panic!("not lost: {news:?}")
    };
    (delivery, trouble)
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

#[tokio::test]
async fn a_call_is_answered_and_a_closed_child_is_gone() {
    let pipe = spawn("while read_id; do reply $id; done").await;
    for id in [7, 8] {
        let mut call = pipe.request(id, line(id));
        assert_eq!(
            reply(&mut call).await,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
    let report = pipe.report();
    assert!(is_alive(report.pid));
    assert_eq!(report.exit, None);
    assert!(!report.warden, "this binary cannot be a warden");
    assert!(report.path.contains("/bin"), "{}", report.path);
    clock::timeout(PATIENCE, pipe.close()).await.unwrap();
    assert!(!is_alive(report.pid), "gone and reaped");
    assert_eq!(pipe.report().exit.as_deref(), Some("exit status 0"));

    let (delivery, trouble) = loss(&mut pipe.request(9, line(9))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unsent, Reason::Closed)
    );
}

/// A16, reliability P3: replies are matched by id.
#[tokio::test]
async fn replies_in_any_order_reach_their_own_calls() {
    let pipe = spawn("read_id; a=$id; read_id; b=$id; reply $b; reply $a; read_id").await;
    let (mut first, mut second) = (pipe.request(1, line(1)), pipe.request(2, line(2)));
    assert!(reply(&mut first).await.contains(r#""id":1"#));
    assert!(reply(&mut second).await.contains(r#""id":2"#));
}

/// A36: all of it arrives exactly.
#[tokio::test]
async fn the_environment_arguments_and_folder_reach_the_child_exactly() {
    let script = r#"read_id; reply $id "\"v\":\"$V|$1|$2|$(pwd)|${HIDDEN-unset}\"""#;
    let pipe = spawn_with(script, |server| {
        let Reach::Stdio(reach) = &mut server.reach else {
            panic!("stdio")
        };
        reach
            .args
            .extend(["zero".to_owned(), "a b".to_owned(), "*".to_owned()]);
        reach.env.insert("V".to_owned(), "x  y".to_owned());
        reach.cwd = Some("/".into());
    })
    .await;
    assert!(
        reply(&mut pipe.request(1, line(1)))
            .await
            .contains("x  y|a b|*|/|unset")
    );
}

/// reliability O24: what a child says of its variables when it dies is not told on.
#[tokio::test]
async fn a_child_that_dies_does_not_tell_on_its_variables() {
    let script = "read line; echo \"no login with $KEY\" >&2; echo \"$KEY\"; exit 3";
    let pipe = spawn_with(script, |server| {
        let Reach::Stdio(reach) = &mut server.reach else {
            panic!("stdio")
        };
        reach.env.insert("KEY".to_owned(), "canary-key".to_owned());
    })
    .await;
    let (_, trouble) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(
        trouble.why.as_deref(),
        Some("no login with [redacted: KEY]")
    );
    let report = pipe.report();
    assert_eq!(report.skipped_line.as_deref(), Some("[redacted: KEY]"));
    assert!(!format!("{report:?}").contains("canary"));
}

/// reliability P33: closing ends the child.
#[tokio::test]
async fn a_stubborn_child_is_gone_when_close_returns() {
    let script = "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >&2; while :; do sleep 1; done' &
        echo $$ >&2; while :; do sleep 1; done";
    let pipe = spawn(script).await;
    until(|| pipe.report().stderr_tail.lines().count() == 2).await;
    let tail = pipe.report().stderr_tail;
    let pids: Vec<u32> = tail.lines().map(|pid| pid.parse().unwrap()).collect();
    let began = clock::now();
    pipe.close().await;
    let took = clock::now() - began;
    assert!(
        took >= Duration::from_secs(4),
        "input and TERM get 2 s each, not {took:?}"
    );
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(pipe.report().exit.as_deref(), Some("signal 9"));
    for pid in pids {
        until(|| !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn dropping_the_last_pipe_closes_the_child_in_the_background() {
    let pipe = spawn("while read_id; do reply $id; done").await;
    let other = pipe.clone();
    let pid = pipe.report().pid;
    drop(pipe);
    assert!(
        reply(&mut other.request(1, line(1)))
            .await
            .contains("result")
    );
    drop(other);
    until(|| !is_alive(pid)).await;
}

/// P73, reliability P26: closing goes on without its caller.
#[tokio::test]
async fn a_close_that_is_dropped_goes_on() {
    let pipe = spawn("trap '' TERM; while :; do sleep 1; done").await;
    let pid = pipe.report().pid;
    clock::timeout(Duration::from_millis(1), pipe.close())
        .await
        .ok();
    drop(pipe);
    until(|| !is_alive(pid)).await;
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

#[tokio::test]
async fn f31_an_escaped_grandchild_that_holds_the_output_delays_nobody() {
    let script = "setsid sh -c 'echo $$ >&2; exec sleep 1000' & read_id; exit 3";
    let pipe = spawn(script).await;
    until(|| !pipe.report().stderr_tail.is_empty()).await;
    let (_, trouble) = loss(&mut pipe.request(1, line(1))).await;
    assert_eq!(trouble.what, "`files` ended with exit status 3");
    clock::timeout(PATIENCE, pipe.close()).await.unwrap();
    // Without a warden it gets away; this is what `warden: false` in a report means.
    let escaped = pipe.report().stderr_tail.parse().unwrap();
    let escaped = rustix::process::Pid::from_raw(escaped).unwrap();
    rustix::process::kill_process(escaped, rustix::process::Signal::KILL).unwrap();
}

/// P34, P105: each is told with its reason.
#[tokio::test]
async fn programs_that_do_not_start_are_errors_with_a_reason() {
    let missing = Server::stdio("files", "/no/such/program", [""; 0]);
    let Reach::Stdio(reach) = &missing.reach else {
        panic!("stdio")
    };
    let trouble = Pipe::spawn(&missing, reach, &Arc::default())
        .await
        .unwrap_err();
    assert_eq!(trouble.reason, Reason::ProgramMissing);
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
        let trouble = start_failed("files", std::path::Path::new("/bin/x"), &errno.into());
        assert_eq!(trouble.reason, reason, "{errno}");
        assert!(trouble.what.contains("`files`"), "{}", trouble.what);
        assert!(trouble.why.is_some_and(|why| !why.is_empty()));
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
