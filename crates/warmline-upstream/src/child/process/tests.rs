use super::*;

/// Tests that wait for the end of something give up after this long.
const PATIENCE: Duration = Duration::from_secs(10);

async fn start_shell(script: &str) -> (Process, ChildStreams) {
    let args = ["-c", script].map(str::to_owned);
    let environment = Environment::from([("PATH".into(), "/usr/bin:/bin".into())]);
    let start = SpawnSpec {
        program: Path::new("/bin/sh"),
        args: &args,
        environment: &environment,
        cwd: None,
        lifetime_token: None,
    };
    Process::spawn(start).await.unwrap()
}

async fn exit_of(process: &mut Process) -> ChildExit {
    clock::timeout(PATIENCE, process.wait_for_exit())
        .await
        .expect("it must end")
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

async fn wait_until_dead(pid: u32) {
    let dying = async {
        while is_alive(pid) {
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    clock::timeout(PATIENCE, dying).await.expect("it must die");
}

/// Reads a line that holds a process id.
async fn read_pid(stdout: &mut ChildStdout) -> u32 {
    let mut digits = String::new();
    loop {
        match stdout.read_u8().await.unwrap() {
            b'\n' => return digits.trim().parse().unwrap(),
            byte => digits.push(char::from(byte)),
        }
    }
}

#[tokio::test]
async fn an_exit_is_told_as_the_system_told_it() {
    let table = [
        ("exit 0", ChildExit::Code(0), "exit status 0"),
        ("exit 3", ChildExit::Code(3), "exit status 3"),
        ("exit 137", ChildExit::Code(137), "exit status 137"),
        ("kill -9 $$", ChildExit::Signal(9), "signal 9"),
        ("kill -15 $$", ChildExit::Signal(15), "signal 15"),
    ];
    for (script, exit, words) in table {
        let (mut process, _streams) = start_shell(script).await;
        assert_eq!(exit_of(&mut process).await, exit, "{script}");
        assert_eq!(process.wait_for_exit().await, exit, "asked again: {script}");
        assert_eq!(exit.to_string(), words);
    }
}

/// P34: a failed spawn is an error of its start.
#[tokio::test]
async fn a_program_that_cannot_run_is_an_error_of_its_start() {
    let environment = Environment::new();
    for (program, error) in [
        ("/does/not/exist", ErrorKind::NotFound),
        ("/etc/passwd", ErrorKind::PermissionDenied),
    ] {
        let start = SpawnSpec {
            program: Path::new(program),
            args: &[],
            environment: &environment,
            cwd: None,
            lifetime_token: None,
        };
        assert_eq!(
            Process::spawn(start).await.unwrap_err().kind(),
            error,
            "{program}"
        );
    }
}

/// reliability P31: a child gets nothing of ours.
#[tokio::test]
async fn a_child_gets_its_environment_and_nothing_of_ours() {
    let args = ["-c", "env; pwd"].map(str::to_owned);
    let environment = Environment::from([("ONLY".into(), "this one".into())]);
    let start = SpawnSpec {
        program: Path::new("/bin/sh"),
        args: &args,
        environment: &environment,
        cwd: Some(Path::new("/")),
        lifetime_token: None,
    };
    let (mut process, mut streams) = Process::spawn(start).await.unwrap();
    let mut said = String::new();
    streams.stdout.read_to_string(&mut said).await.unwrap();
    assert_eq!(exit_of(&mut process).await, ChildExit::Code(0));
    let mut lines: Vec<&str> = said
        .lines()
        .filter(|line| !line.starts_with("_="))
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, ["/", "ONLY=this one", "PWD=/"]);
}

/// P27, reliability I33: the whole group ends.
#[tokio::test]
async fn the_group_of_a_leader_that_ended_is_ended_too() {
    let (mut process, mut streams) = start_shell("sleep 1000 & echo $!; exit 0").await;
    let sleeper = read_pid(&mut streams.stdout).await;
    assert_eq!(exit_of(&mut process).await, ChildExit::Code(0));
    wait_until_dead(sleeper).await;
}

/// P27, reliability P33: TERM, then KILL.
#[tokio::test]
async fn a_group_that_ignores_term_is_killed() {
    let script = "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done";
    let (mut process, mut streams) = start_shell(script).await;
    let sleeper = read_pid(&mut streams.stdout).await;
    process.terminate();
    let early = clock::timeout(Duration::from_millis(100), process.wait_for_exit()).await;
    assert!(early.is_err(), "it ignores TERM");
    process.kill();
    assert_eq!(exit_of(&mut process).await, ChildExit::Signal(9));
    wait_until_dead(sleeper).await;
}

/// P27, reliability P33: dropping is ending.
#[tokio::test]
async fn dropping_a_process_ends_its_group() {
    let (process, mut streams) = start_shell("sleep 1000 & echo $!; wait").await;
    let sleeper = read_pid(&mut streams.stdout).await;
    let leader = process.pid();
    drop(process);
    wait_until_dead(sleeper).await;
    wait_until_dead(leader).await;
}
