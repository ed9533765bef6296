//! What is promised of process trees.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{ChildReport, ProgramSource, Session};

use crate::owner_program::{self, STUBBORN, STUBBORN_PROCESSES};
use crate::{Story, alive_tasks, is_within, now, on_runtime, process_scan, until};

pub(crate) const ALL: &[Story] = &[
    // A49, P28, reliability P34: `kill -9` ends the tree.
    (
        "a_stubborn_tree_is_gone_within_3_s_after_kill_9_of_its_owner",
        || killed_owner(owner_program::HOLD, 1),
    ),
    // P28, reliability P34: and many of them.
    (
        "many_stubborn_trees_are_gone_within_3_s_after_kill_9_of_their_owner",
        || killed_owner(owner_program::HOLD, 12),
    ),
    // P27, reliability P33: closing ends the tree.
    ("a_stubborn_tree_is_gone_when_close_returns", closed_tree),
    // reliability P33: a stopped one too.
    ("a_stopped_child_is_gone_when_close_returns", stopped_child),
    // reliability P25: nothing is left of a closed session.
    (
        "a_closed_session_leaves_no_descriptor_and_no_task",
        nothing_left,
    ),
    // P27, reliability P33: what left its group ends too.
    (
        "a_detached_grandchild_ends_with_a_server_that_ends",
        ended_server,
    ),
    // P60: at once, with its signal.
    (
        "a_call_to_a_child_that_dies_fails_at_once_with_its_signal",
        died_in_a_call,
    ),
    (
        "a_warden_that_is_killed_takes_its_server_along",
        killed_warden,
    ),
    // reliability I33: a group of its own.
    (
        "a_child_has_a_group_and_session_of_its_own_and_only_its_three_streams",
        clean_start,
    ),
    // P29, reliability I33: every process is waited for.
    (
        "orphans_below_a_child_do_not_stay_as_zombies",
        reaped_orphans,
    ),
    // A28, P34: a failed start is told and leaves nothing.
    (
        "a_program_that_does_not_start_is_told_through_the_warden",
        failed_start,
    ),
    // A28, reliability P26: nor does a dropped opening.
    ("an_opening_that_is_dropped_leaves_no_tree", dropped_opening),
    // A37, P105: found as in a terminal.
    (
        "a_program_is_found_through_the_login_shell",
        found_by_login_shell,
    ),
];

/// A child of ours that is ended with the test, however that ends.
struct Ours(Child);

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn this_binary() -> Command {
    Command::new(std::env::current_exe().expect("this binary"))
}

/// Fails unless a tree is gone within the limit; whatever is left of it is killed.
pub(crate) async fn expect_gone(mark: &str, limit: Duration) {
    let gone = is_within(limit, || process_scan::marked(mark).is_empty()).await;
    for left in process_scan::marked(mark) {
        signal(left, Signal::KILL).ok();
    }
    assert!(gone, "not within {limit:?}: the tree is gone");
}

fn signal(process: i32, signal: Signal) -> rustix::io::Result<()> {
    kill_process(Pid::from_raw(process).expect("a process"), signal)
}

/// Opens a session to a server that runs this script, with its tree marked.
async fn open(script: &str, mark: &str) -> Session {
    let server = owner_program::server(script, mark);
    owner_program::open(&server).await.expect("a session")
}

fn child(session: &Session) -> ChildReport {
    session.child().expect("a child")
}

/// The process of a session's server.
fn server_process(session: &Session) -> i32 {
    i32::try_from(child(session).pid).expect("the number of a process")
}

/// The warden above a server: its parent.
fn warden_of(server: i32) -> i32 {
    let (_, warden, ..) = process_scan::stat(server).expect("a server");
    warden
}

async fn call(session: &Session) -> AttemptResult {
    let request = Request::new("tools/call", Params::empty());
    session.call(request, &()).await
}

/// Kills a program that holds so many stubborn trees, in the way that its first argument says.
pub(crate) fn killed_owner(holds: &str, trees: usize) {
    let mark = process_scan::fresh_mark();
    let mut command = this_binary();
    command
        .args([holds, &mark, &trees.to_string()])
        .stdout(Stdio::piped());
    let mut held = Ours(command.spawn().expect("the owner"));
    let stdout = held.0.stdout.take().expect("its output");
    let mut ready = String::new();
    let read = BufReader::new(stdout).read_line(&mut ready);
    read.expect("a line");
    assert_eq!(ready, "ready\n");
    on_runtime(async {
        // One warden for each tree.
        let processes = trees * (STUBBORN_PROCESSES + 1);
        let all_up = || process_scan::marked(&mark).len() >= processes;
        until("the trees stand", Duration::from_secs(10), all_up).await;
        held.0.kill().expect("an owner to kill");
        expect_gone(&mark, Duration::from_secs(3)).await;
    });
}

fn closed_tree() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let session = open(STUBBORN, &mark).await;
        assert!(child(&session).has_warden);
        let all_up = || process_scan::marked(&mark).len() > STUBBORN_PROCESSES;
        until("the tree stands", Duration::from_secs(10), all_up).await;
        let began = now();
        session.close().await;
        let took = began.elapsed();
        expect_gone(&mark, Duration::ZERO).await;
        assert!(took < Duration::from_secs(6), "closing took {took:?}");
        assert_eq!(child(&session).exit.as_deref(), Some("signal 9"));
    });
}

fn stopped_child() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let session = open("serve", &mark).await;
        signal(server_process(&session), Signal::STOP).expect("a server to stop");
        session.close().await;
        expect_gone(&mark, Duration::ZERO).await;
    });
}

fn nothing_left() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let mut before = None;
        for round in 0..10 {
            let session = open("serve", &mark).await;
            session.close().await;
            drop(session);
            let ended = || alive_tasks() == 0;
            until("its tasks ended", Duration::from_secs(1), ended).await;
            let open = process_scan::descriptors(process_scan::own_process()).len();
            // The first child makes the runtime listen for signals, once.
            assert_eq!(open, *before.get_or_insert(open), "round {round}");
        }
        expect_gone(&mark, Duration::ZERO).await;
    });
}

fn ended_server() {
    let mark = process_scan::fresh_mark();
    let script = "setsid sh -c 'trap \"\" TERM; sleep 1000; :' & on_call='exit 7'; serve";
    on_runtime(async {
        let session = open(script, &mark).await;
        // The warden, the server, the shell of its own session, and what that waits for.
        let stands = || process_scan::marked(&mark).len() >= 4;
        until("the grandchild stands", Duration::from_secs(5), stands).await;
        let ending = call(&session).await;
        assert_eq!(ending.delivery(), Delivery::Unknown, "{ending:?}");
        expect_gone(&mark, Duration::from_secs(1)).await;
        let report = child(&session);
        assert_eq!(report.exit.as_deref(), Some("exit status 7"));
        // The shell of its own session, and what it waits for.
        assert_eq!(report.orphans_killed, 2);
    });
}

fn died_in_a_call() {
    let mark = process_scan::fresh_mark();
    let script = "on_call='echo out of memory >&2; kill -9 $$'; serve";
    on_runtime(async {
        let session = open(script, &mark).await;
        let began = now();
        let ending = call(&session).await;
        let took = began.elapsed();
        let AttemptResult::Failed(failure) = ending else {
            panic!("it was answered");
        };
        let trouble = &failure.diagnostic;
        assert_eq!(trouble.reason, Reason::ChildExit, "{trouble:?}");
        assert!(trouble.message.contains("signal 9"), "{trouble:?}");
        assert_eq!(trouble.cause.as_deref(), Some("out of memory"));
        assert!(took < Duration::from_secs(2), "it took {took:?}");
        session.close().await;
        expect_gone(&mark, Duration::ZERO).await;
    });
}

fn killed_warden() {
    let mark = process_scan::fresh_mark();
    let script = "trap '' TERM; sleep 1000 & on_call='sleep 1000'; serve";
    on_runtime(async {
        let session = open(script, &mark).await;
        let warden = warden_of(server_process(&session));
        let killing = async {
            let calling = || process_scan::marked(&mark).len() == 4;
            until("the call runs", Duration::from_secs(10), calling).await;
            signal(warden, Signal::KILL).expect("a warden to kill");
        };
        let ((), ending) = tokio::join!(killing, call(&session));
        assert_eq!(ending.delivery(), Delivery::Unknown, "{ending:?}");
        expect_gone(&mark, Duration::from_secs(1)).await;
    });
}

fn clean_start() {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let session = open("serve", &mark).await;
        let server = server_process(&session);
        let (_, warden, group, its_session) = process_scan::stat(server).expect("a server");
        let ours = process_scan::stat(process_scan::own_process());
        let (.., our_group, our_session) = ours.expect("a stat of ours");
        assert_eq!(group, server, "it leads its group");
        assert_ne!(group, our_group);
        assert_ne!(its_session, our_session);
        // What we were started with, any child of ours has too.
        let given = process_scan::given_to_us();
        let own = |pid| {
            let mut open = process_scan::descriptors(pid);
            open.retain(|number| !given.contains(number));
            open.len()
        };
        assert_eq!(own(server), 0, "descriptors of ours in the server");
        // The control socket and the eye on the server.
        assert_eq!(own(warden), 2, "descriptors of the warden");
        session.close().await;
        expect_gone(&mark, Duration::ZERO).await;
    });
}

fn reaped_orphans() {
    let mark = process_scan::fresh_mark();
    // Each call leaves an orphan that ends by itself a little later.
    let script = r#"on_call='sh -c "sleep 0.1 & exit 0"; answer "\"result\":{}"'; serve"#;
    on_runtime(async {
        let session = open(script, &mark).await;
        let warden = warden_of(server_process(&session));
        for _ in 0..20 {
            let ending = call(&session).await;
            assert_eq!(ending.delivery(), Delivery::Answered, "{ending:?}");
        }
        let ended = || process_scan::marked(&mark).len() == 2;
        until("the orphans ended", Duration::from_secs(5), ended).await;
        let reaped = || process_scan::zombies_of(warden) == 0;
        until("the zombies are gone", Duration::from_secs(1), reaped).await;
        session.close().await;
    });
}

fn failed_start() {
    let folder = Folder::new();
    let script = folder.0.join("script");
    fs::write(&script, "#!/no/such/interpreter\n").expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).expect("its mode");
    on_runtime(async {
        let mut server = owner_program::server("", &process_scan::fresh_mark());
        owner_program::reach(&mut server).program = script.display().to_string();
        let opened = owner_program::open(&server).await;
        let trouble = opened.expect_err("no session");
        assert_eq!(trouble.reason, Reason::ProgramMissing, "{trouble:?}");
    });
}

fn dropped_opening() {
    let mark = process_scan::fresh_mark();
    // Never answers: the opening is dropped at several moments of its start.
    let script = "trap '' TERM; setsid sleep 1000 & while :; do sleep 1; done";
    let server = owner_program::server(script, &mark);
    on_runtime(async {
        for milliseconds in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 200] {
            let opening = owner_program::open(&server);
            let opened = tokio::time::timeout(Duration::from_millis(milliseconds), opening).await;
            assert!(opened.is_err(), "nobody answers");
        }
        expect_gone(&mark, Duration::from_secs(6)).await;
    });
}

fn found_by_login_shell() {
    let folder = Folder::new();
    let bin = folder.0.join("bin");
    let program = bin.join("only-in-the-profile");
    fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink("/bin/sh", &program).expect("a program");
    let profile = format!(
        "echo welcome; echo asked >> \"$HOME/asked\"; PATH={}:/usr/bin:/bin",
        bin.display()
    );
    fs::write(folder.0.join(".profile"), profile).expect("a profile");
    let mut command = this_binary();
    command
        .args([owner_program::FIND, "only-in-the-profile"])
        .env_clear()
        .env("PATH", "/bare")
        .env("SHELL", "/bin/sh")
        .env("HOME", &folder.0);
    let output = command.output().expect("its output");
    let expected = format!(
        "{} {} {}:/usr/bin:/bin:/bare\n",
        ProgramSource::LoginShell,
        program.display(),
        bin.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    let asked = fs::read_to_string(folder.0.join("asked")).expect("a login shell");
    assert_eq!(asked, "asked\n", "the shell is asked once");
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("warmline-children-{}", process_scan::fresh_mark());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}
