//! What is promised of process trees.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use warmline_core::delivery::Delivery;
use warmline_core::error::code::Reason;
use warmline_core::exchange::{AttemptResult, Request};
use warmline_core::message::params::Params;
use warmline_upstream::{ClientProfile, ProgramSource, Upstream};

use crate::owner_program::{self, STUBBORN, STUBBORN_PROCESSES};
use crate::{Story, now, on_runtime, process_scan, until};

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
pub(crate) async fn expect_gone(mark: &str, limit: Duration) -> Result<Duration, String> {
    let gone = until("the tree is gone", limit, || {
        process_scan::marked(mark).is_empty()
    })
    .await;
    for left in process_scan::marked(mark)
        .into_iter()
        .filter_map(Pid::from_raw)
    {
        kill_process(left, Signal::KILL).ok();
    }
    gone
}

pub(crate) fn expect(what: &str, is_true: bool) -> Result<(), String> {
    if is_true {
        Ok(())
    } else {
        Err(what.to_owned())
    }
}

/// Kills a program that holds so many stubborn trees, in the way that its first argument says.
pub(crate) fn killed_owner(holds: &str, trees: usize) -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    let mut command = this_binary();
    command
        .args([holds, &mark, &trees.to_string()])
        .stdout(Stdio::piped());
    let mut held = Ours(command.spawn().map_err(|error| error.to_string())?);
    let stdout = held.0.stdout.take().ok_or("no output")?;
    let mut ready = String::new();
    BufReader::new(stdout)
        .read_line(&mut ready)
        .map_err(|error| error.to_string())?;
    expect("the owner is ready", ready == "ready\n")?;
    on_runtime(async {
        // One warden for each tree.
        let processes = trees * (STUBBORN_PROCESSES + 1);
        let all_up = || process_scan::marked(&mark).len() >= processes;
        until("the trees stand", Duration::from_secs(10), all_up).await?;
        held.0.kill().map_err(|error| error.to_string())?;
        expect_gone(&mark, Duration::from_secs(3)).await
    })?;
    Ok(())
}

fn closed_tree() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let session = owner_program::open(&owner_program::server(STUBBORN, &mark)).await?;
        let report = session.child().ok_or("no child")?;
        expect("it has a warden", report.has_warden)?;
        let all_up = || process_scan::marked(&mark).len() > STUBBORN_PROCESSES;
        until("the tree stands", Duration::from_secs(10), all_up).await?;
        let began = now();
        session.close().await;
        let took = began.elapsed();
        expect_gone(&mark, Duration::ZERO).await?;
        expect(
            &format!("closing took {took:?}"),
            took < Duration::from_secs(6),
        )?;
        let exit = session.child().and_then(|report| report.exit);
        expect(&format!("{exit:?}"), exit.as_deref() == Some("signal 9"))
    })
}

fn stopped_child() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let session = owner_program::open(&owner_program::server("serve", &mark)).await?;
        let server = i32::try_from(session.child().ok_or("no child")?.pid).map_err(|_| "pid")?;
        let server = Pid::from_raw(server).ok_or("no server")?;
        kill_process(server, Signal::STOP).map_err(|error| error.to_string())?;
        session.close().await;
        expect_gone(&mark, Duration::ZERO).await?;
        Ok(())
    })
}

fn nothing_left() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    let ours = i32::try_from(std::process::id()).map_err(|_| "pid")?;
    on_runtime(async {
        let tasks = || {
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks()
        };
        let mut before = None;
        for round in 0..10 {
            let session = owner_program::open(&owner_program::server("serve", &mark)).await?;
            session.close().await;
            drop(session);
            until("its tasks ended", Duration::from_secs(1), || tasks() == 0).await?;
            let open = process_scan::descriptors(ours).len();
            // The first child makes the runtime listen for signals, once.
            let before = *before.get_or_insert(open);
            expect(
                &format!("round {round}: {open} descriptors, not {before}"),
                open == before,
            )?;
        }
        expect_gone(&mark, Duration::ZERO).await?;
        Ok(())
    })
}

fn ended_server() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    let script = "setsid sh -c 'trap \"\" TERM; sleep 1000; :' & on_call='exit 7'; serve";
    on_runtime(async {
        let session = owner_program::open(&owner_program::server(script, &mark)).await?;
        // The warden, the server, the shell of its own session, and what that waits for.
        let stands = || process_scan::marked(&mark).len() >= 4;
        until("the grandchild stands", Duration::from_secs(5), stands).await?;
        let ending = session
            .call(Request::new("tools/call", Params::empty()), &())
            .await;
        expect(
            &format!("{ending:?}"),
            ending.delivery() == Delivery::Unknown,
        )?;
        expect_gone(&mark, Duration::from_secs(1)).await?;
        let report = session.child().ok_or("no child")?;
        expect(
            &format!("{:?}", report.exit),
            report.exit.as_deref() == Some("exit status 7"),
        )?;
        // The shell of its own session, and what it waits for.
        expect(
            &format!("{} were left behind", report.orphans_killed),
            report.orphans_killed == 2,
        )
    })
}

fn died_in_a_call() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    let script = "on_call='echo out of memory >&2; kill -9 $$'; serve";
    on_runtime(async {
        let session = owner_program::open(&owner_program::server(script, &mark)).await?;
        let began = now();
        let ending = session
            .call(Request::new("tools/call", Params::empty()), &())
            .await;
        let took = began.elapsed();
        let AttemptResult::Failed(failure) = ending else {
            return Err("it was answered".to_owned());
        };
        let trouble = &failure.diagnostic;
        expect(&format!("{trouble:?}"), trouble.reason == Reason::ChildExit)?;
        expect(&trouble.message, trouble.message.contains("signal 9"))?;
        expect(
            "its last words",
            trouble.cause.as_deref() == Some("out of memory"),
        )?;
        expect(&format!("it took {took:?}"), took < Duration::from_secs(2))?;
        session.close().await;
        expect_gone(&mark, Duration::ZERO).await?;
        Ok(())
    })
}

fn killed_warden() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    let script = "trap '' TERM; sleep 1000 & on_call='sleep 1000'; serve";
    on_runtime(async {
        let session = owner_program::open(&owner_program::server(script, &mark)).await?;
        let server = i32::try_from(session.child().ok_or("no child")?.pid).map_err(|_| "pid")?;
        let (_, warden, ..) = process_scan::stat(server).ok_or("no server")?;
        let killing = async {
            let calling = || process_scan::marked(&mark).len() == 4;
            until("the call runs", Duration::from_secs(10), calling).await?;
            let warden = Pid::from_raw(warden).ok_or("no warden")?;
            kill_process(warden, Signal::KILL).map_err(|error| error.to_string())
        };
        let request = Request::new("tools/call", Params::empty());
        let (killed, ending) = tokio::join!(killing, session.call(request, &()));
        killed?;
        expect(
            &format!("{ending:?}"),
            ending.delivery() == Delivery::Unknown,
        )?;
        expect_gone(&mark, Duration::from_secs(1)).await?;
        Ok(())
    })
}

fn clean_start() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    on_runtime(async {
        let session = owner_program::open(&owner_program::server("serve", &mark)).await?;
        let server = i32::try_from(session.child().ok_or("no child")?.pid).map_err(|_| "pid")?;
        let (_, warden, group, its_session) = process_scan::stat(server).ok_or("no server")?;
        let ours = process_scan::stat(i32::try_from(std::process::id()).map_err(|_| "pid")?);
        let (.., our_group, our_session) = ours.ok_or("no stat of ours")?;
        expect("it leads its group", group == server && group != our_group)?;
        expect("it is in another session", its_session != our_session)?;
        // What we were started with, any child of ours has too.
        let given = process_scan::given_to_us();
        let own = |pid| {
            process_scan::descriptors(pid)
                .into_iter()
                .filter(|it| !given.contains(it))
                .count()
        };
        expect(
            "a descriptor of ours is open in the server",
            own(server) == 0,
        )?;
        // The control socket and the eye on the server.
        expect("the warden has more than it needs", own(warden) == 2)?;
        session.close().await;
        expect_gone(&mark, Duration::ZERO).await?;
        Ok(())
    })
}

fn reaped_orphans() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    // Each call leaves an orphan that ends by itself a little later.
    let script = r#"on_call='sh -c "sleep 0.1 & exit 0"; answer "\"result\":{}"'; serve"#;
    on_runtime(async {
        let session = owner_program::open(&owner_program::server(script, &mark)).await?;
        let server = i32::try_from(session.child().ok_or("no child")?.pid).map_err(|_| "pid")?;
        let (_, warden, ..) = process_scan::stat(server).ok_or("no server")?;
        for _ in 0..20 {
            let ending = session
                .call(Request::new("tools/call", Params::empty()), &())
                .await;
            expect(
                &format!("{ending:?}"),
                ending.delivery() == Delivery::Answered,
            )?;
        }
        let ended = || process_scan::marked(&mark).len() == 2;
        until("the orphans ended", Duration::from_secs(5), ended).await?;
        let reaped = || process_scan::zombies_of(warden) == 0;
        until("the zombies are gone", Duration::from_secs(1), reaped).await?;
        session.close().await;
        Ok(())
    })
}

fn failed_start() -> Result<(), String> {
    let folder = Folder::new()?;
    let script = folder.0.join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").map_err(|error| error.to_string())?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).map_err(|error| error.to_string())?;
    on_runtime(async {
        let mut server = owner_program::server("", &process_scan::fresh_mark());
        owner_program::reach(&mut server).program = script.display().to_string();
        match Upstream::new()
            .open(&server, &ClientProfile::default())
            .await
        {
            Ok(_) => Err("it opened".to_owned()),
            Err(trouble) => expect(
                &format!("{trouble:?}"),
                trouble.reason == Reason::ProgramMissing,
            ),
        }
    })
}

fn dropped_opening() -> Result<(), String> {
    let mark = process_scan::fresh_mark();
    // Never answers: the opening is dropped at several moments of its start.
    let server = owner_program::server(
        "trap '' TERM; setsid sleep 1000 & while :; do sleep 1; done",
        &mark,
    );
    on_runtime(async {
        for milliseconds in [0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 200] {
            let opening = owner_program::open(&server);
            let opened = tokio::time::timeout(Duration::from_millis(milliseconds), opening).await;
            expect("nobody answers", opened.is_err())?;
        }
        expect_gone(&mark, Duration::from_secs(6)).await?;
        Ok(())
    })
}

fn found_by_login_shell() -> Result<(), String> {
    let folder = Folder::new()?;
    let bin = folder.0.join("bin");
    let told = |error: std::io::Error| error.to_string();
    std::fs::create_dir(&bin).map_err(told)?;
    std::os::unix::fs::symlink("/bin/sh", bin.join("only-in-the-profile")).map_err(told)?;
    let profile = format!(
        "echo welcome; echo asked >> \"$HOME/asked\"; PATH={}:/usr/bin:/bin",
        bin.display()
    );
    std::fs::write(folder.0.join(".profile"), profile).map_err(told)?;
    let mut command = this_binary();
    command
        .args([owner_program::FIND, "only-in-the-profile"])
        .env_clear();
    command
        .env("PATH", "/bare")
        .env("SHELL", "/bin/sh")
        .env("HOME", &folder.0);
    let output = command.output().map_err(told)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let program = bin.join("only-in-the-profile");
    let expected = format!(
        "{} {} {}:/usr/bin:/bin:/bare\n",
        ProgramSource::LoginShell,
        program.display(),
        bin.display()
    );
    expect(&format!("{said} is not {expected}"), said == expected)?;
    let asked = std::fs::read_to_string(folder.0.join("asked")).map_err(told)?;
    expect("the shell is asked once", asked == "asked\n")
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, String> {
        let path =
            std::env::temp_dir().join(format!("warmline-children-{}", process_scan::fresh_mark()));
        std::fs::create_dir(&path).map_err(|error| error.to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
