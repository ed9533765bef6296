//! The gateway in the background: how it comes to be, what it shows, how it ends.

use crate::prelude::*;

mod commands;

use rustix::process::test_kill_process;

/// A gateway in the background; whatever becomes of a test, it does not outlive it.
pub(crate) struct Background {
    pub(crate) warmline: Warmline,
}

impl Background {
    fn up() -> Self {
        Self::up_in(Warmline::new(), &[])
    }

    pub(crate) fn up_in(warmline: Warmline, words: &[&str]) -> Self {
        let background = Self { warmline };
        let mut all = vec!["up", "--quiet"];
        all.extend(words);
        let output = background.warmline.run(&all);
        assert_eq!(output.exit, 0, "{output}{}", background.log());
        background
    }

    fn run(&self, words: &[&str]) -> CommandOutput {
        self.warmline.run(words)
    }

    /// What the counter of a run says, of a program in this folder.
    fn counted_in(&self, folder: &str, run: &str) -> String {
        let folder = self.warmline.work().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let words = against_demo(&["call", "counter", "--run", run], &["--era", "legacy"]);
        let mut command = self.warmline.command(&words);
        let output = self
            .warmline
            .told(&command.current_dir(folder).output().unwrap());
        let outcome = (output.exit, output.stderr.as_str());
        assert_eq!(outcome, (0, ""), "{output}{}", self.log());
        output.stdout.trim().to_owned()
    }

    fn counted(&self, run: &str) -> String {
        self.counted_in(".", run)
    }

    /// What `ps` tells programs, of one kind.
    fn ps(&self, kind: &str) -> Vec<Value> {
        let output = self.run(&["ps", "--json"]);
        output.exits(0);
        let lines = output
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.filter(|line: &Value| line["kind"] == kind).collect()
    }

    fn pid(&self) -> Pid {
        let gateway = self.ps("gateway");
        let pid = gateway[0]["pid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }

    fn folder(&self) -> PathBuf {
        self.warmline.state().join("up")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.warmline.run(&["down", "--now"]);
    }
}

fn is_alive(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

/// The processes of a program that was started with a word that nobody else has.
pub(crate) fn processes_of(word: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap();
    processes
        .filter_map(|entry| std::fs::read(entry.unwrap().path().join("cmdline")).ok())
        .filter(|line| {
            let line = String::from_utf8_lossy(line);
            line.split('\0').any(|part| part == word) && !line.contains("__warden")
        })
        .count()
}

/// The words of a call to a program whose command line holds a word of its own.
fn marked<'w>(words: &[&'w str], mark: &'w str) -> Vec<&'w str> {
    let mut all = words.to_vec();
    // The shell stays, and the word with it.
    let script = "\"$@\"; exit";
    all.extend(["--", "sh", "-c", script, mark]);
    all.extend([BINARY, "demo-server", "--stdio", "--era", "legacy"]);
    all
}

/// How a server stands is said to people in words of theirs, and to machines in those of the
/// gateway.
#[test]
fn a_server_that_fails_is_said_to() {
    let background = Background::up();
    let words = ["call", "x", "--run", "trip", "--", "no-such-program-here"];
    assert_eq!(background.run(&words).exit, 3);
    let told = background.run(&["ps"]).stdout;
    assert!(told.contains("no-such-program-here  failing  "), "{told}");
    assert_eq!(background.ps("server")[0]["state"], "degraded");
}

#[test]
fn runs_are_shown_and_ended() {
    let background = Background::up();
    background.counted("trip");
    shows!(background.warmline, @r#"
    $ warmline ps
    up [TIME] · pid [PID] · 1 server, 1 run, 1 session

    RUN   SESSIONS  CALLS NOW  AGE  IDLE
    trip  1         0          [TIME]  [TIME]

    SESSION OF  RUN   STATE  BY     RESTARTS  AGE  IDLE
    warmline    trip  idle   stdio  0         [TIME]  [TIME]

    SERVER    STATE  BY     ERA     SESSIONS  CALLS NOW  FAILS WITH
    warmline  ok     stdio  legacy  1         0          -
    $ warmline ps --json
    {"kind":"gateway","up":true,"pid":[PID],"version":"0.1.0","up_seconds":[TIME]}
    {"kind":"server","name":"warmline","state":"ok","transport":"stdio","eras":["legacy"],"sessions":1,"calls":0}
    {"kind":"run","name":"trip","fingerprint":[DIGEST],"sessions":1,"calls":0,"began_at":[TIME],"used_at":[TIME]}
    {"kind":"session","server":"warmline","run":"trip","session":"0.1","state":"idle","transport":"stdio","restarts":0,"opened_at":[TIME],"used_at":[TIME],"calls":0}
    $ warmline end trip
    2> run `trip` is ended
    $ warmline end trip
    2> error[run-unknown]: no run `trip` is live or kept
    2>   hint: `warmline ps` lists the runs; to end one of a `warmline serve --admin FILE`: `warmline end trip --socket FILE`, or `DELETE /runs/trip` at its URL
    exit: 2
    $ warmline end 'a b'
    2> error[usage-bad-argument]: `a b` is not a run name
    2>   hint: a name has 1 to 128 of A-Z, a-z, 0-9, `.`, `_`, `~` and `-`, and is not `.` or `..`
    exit: 2
    "#);
    assert!(background.ps("run").is_empty());
    assert_eq!(background.counted("trip"), r#"{"count":1}"#);
    let words = ["call", "counter", "--run", "trip", "--end-run"];
    let output = background.run(&against_demo(&words, &["--era", "legacy"]));
    assert_eq!(output.stdout.trim(), r#"{"count":2}"#);
    assert!(background.ps("run").is_empty());
}

/// What commands left before the gateway came is shown beside what it holds, and ended by name, met
/// by the gateway or not.
#[test]
fn runs_that_were_left_before_the_gateway_came_are_shown_and_ended() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let (warmline, url) = (Warmline::new(), server.url());
    for run in ["met", "unmet"] {
        let output = warmline.run(&["call", &url, "counter", "--run", run]);
        output.exits(0);
    }
    let background = Background::up_in(warmline, &[]);
    let output = background.run(&["call", &url, "counter", "--run", "met"]);
    assert_eq!(output.stdout.trim(), r#"{"count":2}"#, "{output}");
    let names = |kind: &str, key: &str| {
        let lines = background.ps(kind).into_iter();
        let names = lines.map(|line| line[key].as_str().unwrap().to_owned());
        names.collect::<Vec<String>>()
    };
    assert_eq!(names("run", "name"), ["met"]);
    assert_eq!(names("kept", "run"), ["unmet"]);
    for run in ["met", "unmet"] {
        let output = background.run(&["end", run]);
        assert_eq!(output.exit, 0, "{output}{}", background.log());
    }
    assert_eq!(names("kept", "run"), Vec::<String>::new());
    until("both are ended", || server.counts().open_sessions == 0);
    assert_eq!(server.counts().sessions, 2, "none was opened to be ended");
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[test]
fn without_a_gateway_every_command_says_so() {
    let warmline = Warmline::new();
    shows!(warmline, @r#"
    $ warmline ps
    2> no background gateway is up: `warmline up` starts one
    2> to look into a `warmline serve --admin FILE`: `warmline ps --socket FILE`
    $ warmline ps --json
    {"kind":"gateway","up":false}
    $ warmline down
    2> no background gateway is up
    $ warmline end trip
    2> error[run-unknown]: no run `trip` is live or kept
    2>   why: no background gateway is up
    2>   hint: `warmline ps` lists the runs; to end one of a `warmline serve --admin FILE`: `warmline end trip --socket FILE`, or `DELETE /runs/trip` at its URL
    exit: 2
    "#);
}

/// Who names the socket of a gateway means one that is there.
#[test]
fn a_socket_that_nobody_listens_at_is_told_and_not_started() {
    let warmline = Warmline::new();
    let output = warmline.run(&["ps", "--socket", "nowhere"]);
    tells!(output, @r"
    exit: 3
    ----- stderr -----
    error[cannot-reach]: nothing listens on the socket `nowhere`
      hint: name the socket of a running `warmline serve --admin FILE`
    ");
    for words in [&["down"][..], &["end", "trip"]] {
        let other = warmline.run(&[words, &["--socket", "nowhere"]].concat());
        assert_eq!(other.to_string(), output.to_string(), "{words:?}");
    }
}

/// Several that start at once come to one gateway, and all of them say which.
#[test]
fn several_that_start_at_once_are_one_gateway() {
    let background = Background {
        warmline: Warmline::new(),
    };
    let starting: Vec<Child> = (0..6)
        .map(|_| {
            let mut command = background.warmline.command(&["up", "--json"]);
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut pids: Vec<Value> = starting
        .into_iter()
        .map(|child| {
            let output = background.warmline.told(&child.wait_with_output().unwrap());
            output.exits(0);
            serde_json::from_str::<Value>(&output.stdout).unwrap()["pid"].clone()
        })
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
    shows!(background.warmline, @r#"
    $ warmline up --json
    {"kind":"up","pid":[PID],"version":"0.1.0","socket":"[HOME]/.local/state/warmline/up/socket","log":"[HOME]/.local/state/warmline/up/log"}
    "#);
}

/// What is kept of sessions, file by file.
fn records(background: &Background) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = std::fs::read_dir(background.warmline.state().join("sessions"));
    let paths = folder.unwrap().map(|entry| entry.unwrap().path());
    // What is being written has another name until it is whole.
    let whole = paths.filter(|path| path.extension().is_some_and(|end| end == "record"));
    let mut records: Vec<_> = whole
        .filter_map(|path| Some((path.clone(), std::fs::read(path).ok()?)))
        .collect();
    records.sort();
    records
}

/// A gateway that is killed leaves no program and no socket in the way of the next one, and the
/// run that lost its state hears of it.
#[test]
fn a_killed_gateway_leaves_nothing_behind() {
    let mark = "mark-of-a-killed-gateway";
    let background = Background::up();
    let call = || background.run(&marked(&["call", "counter", "--run", "trip"], mark));
    let told = background.run(&marked(&["tools", "--run", "trip"], mark));
    told.exits(0);
    let before = records(&background);
    assert_eq!(call().stdout.trim(), r#"{"count":1}"#);
    assert_eq!(call().stdout.trim(), r#"{"count":2}"#);
    until("it is written down that there is state", || {
        records(&background) != before
    });
    assert_eq!(processes_of(mark), 1);
    let pid = background.pid();
    kill_process(pid, Signal::KILL).unwrap();
    until("its programs are gone", || processes_of(mark) == 0);
    let holds = background.folder().join("socket").exists();
    assert!(holds, "it had no time to tidy up");
    assert_eq!(background.run(&["up", "--quiet"]).exit, 0);
    let told = call();
    assert!(told.stdout.starts_with("Note: the server"), "{told}");
    assert!(told.stdout.trim().ends_with(r#"{"count":1}"#), "{told}");
}

/// Calls in flight end before the gateway does; `--now` cuts them.
#[test]
fn going_down_lets_calls_end_unless_it_is_hurried() {
    let background = Background::up();
    let ledger = background.warmline.work().join("ledger");
    let slow = |run: &str, ms: u32| {
        // With values it is sent without a list before it.
        let arguments = format!(r#"{{"ms":{ms}}}"#);
        let words = ["call", "slow", "--args", &arguments, "--run", run];
        let ledger_path = ledger.to_str().unwrap();
        let options = ["--era", "legacy", "--", "--ledger", ledger_path];
        let mut command = background.warmline.command(&against_demo(&words, &options));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let calling = command.spawn().unwrap();
        // The session is leased before the call leaves: only its server knows that it runs.
        until("the server executes the call", || {
            let lines = std::fs::read_to_string(&ledger).unwrap_or_default();
            let begun = format!(r#""arguments":{arguments}"#);
            let mut lines = lines.lines();
            lines.any(|line| line.contains(r#""phase":"begin""#) && line.contains(&begun))
        });
        calling
    };
    let output = |calling: Child| {
        let output = calling.wait_with_output().unwrap();
        background.warmline.told(&output)
    };
    let calling = slow("trip", 1500);
    background.run(&["down"]).exits(0);
    output(calling).exits(0);

    assert_eq!(background.run(&["up", "--quiet"]).exit, 0);
    let calling = slow("next-trip", 60_000);
    background.run(&["down", "--now"]).exits(0);
    output(calling).exits(4);
}

/// A signal is a word as good as `down`: everything ends in order, programs too.
#[test]
fn a_signal_ends_it_with_all_that_it_started() {
    let mark = "mark-of-a-gateway-that-is-told";
    let background = Background::up();
    let output = background.run(&marked(&["call", "counter", "--run", "trip"], mark));
    assert_eq!(output.stdout.trim(), r#"{"count":1}"#, "{output}");
    assert_eq!(processes_of(mark), 1);
    let pid = background.pid();
    kill_process(pid, Signal::TERM).unwrap();
    until("it ended", || !is_alive(pid));
    assert_eq!(processes_of(mark), 0, "its programs ended before it");
    assert!(!background.folder().join("socket").exists());
}

/// A gateway that hangs holds no command up: each says so in time, with its process, and `down` ends
/// it.
#[test]
fn a_gateway_that_hangs_is_told_and_ended() {
    let background = Background::up();
    let pid = background.pid();
    kill_process(pid, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", pid.as_raw_pid());
    until("its threads stand still", || {
        std::fs::read_dir(&tasks).unwrap().all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        })
    });
    let call = against_demo(&["call", "counter", "--run", "trip"], &["--era", "legacy"]);
    let commands = [vec!["ps"], vec!["up"], vec!["end", "trip"], call];
    let background = &background;
    std::thread::scope(|scope| {
        for words in &commands {
            scope.spawn(move || {
                let output = background.run(words);
                assert_eq!(output.exit, 3, "{words:?}: {output}");
                let named = format!("process {} listens", pid.as_raw_pid());
                assert!(output.stderr.contains(&named), "{words:?}: {output}");
                assert!(
                    output.stderr.contains("warmline down"),
                    "{words:?}: {output}"
                );
            });
        }
    });
    background.run(&["down", "--now"]).exits(0);
    until("it is gone", || !is_alive(pid));
    assert_eq!(background.run(&["up", "--quiet"]).exit, 0);
}

/// Nobody needs it any more: it ends by itself, but not while a run lives.
#[test]
fn a_gateway_that_nobody_needs_ends_by_itself() {
    let background = Background::up_in(Warmline::new(), &["--idle", "300ms"]);
    let first = background.pid();
    until("it ended", || !is_alive(first));
    assert!(!background.folder().join("socket").exists());
    assert_eq!(
        background.run(&["up", "--quiet", "--idle", "300ms"]).exit,
        0
    );
    let second = background.pid();
    background.counted("trip");
    assert!(is_alive(second), "a run lives");
    assert_eq!(background.run(&["end", "trip", "--quiet"]).exit, 0);
    until("it ended", || !is_alive(second));
}

/// Only its user enters its folder, and what stands there is nobody else's.
#[test]
fn its_folder_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let background = Background::up();
    let mode = |name: &str| {
        let seen = std::fs::metadata(background.folder().join(name)).unwrap();
        seen.permissions().mode() & 0o777
    };
    assert_eq!(mode("."), 0o700);
    for name in ["socket", "log", "lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

/// A socket that is somebody else's kind is not spoken with.
#[test]
fn a_gateway_of_another_version_is_named() {
    let background = Background {
        warmline: Warmline::new(),
    };
    std::fs::create_dir_all(background.folder()).unwrap();
    let socket = background.folder().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let answering = std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = [0; 65_536];
            assert!(stream.read(&mut bytes).unwrap() > 0);
            let body = r#"{"version":"9.9.9","pid":1,"servers":[],"up_seconds":1}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\nwarmline-version: 9.9.9\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream
                .write_all(format!("{head}{body}").as_bytes())
                .unwrap();
        }
    });
    shows!(background.warmline, @r"
    $ warmline up
    2> error[open-failed]: the background gateway has version 9.9.9, this command 0.1.0
    2>   hint: restart it: `warmline down`, then `warmline up`; the state of programs is lost
    exit: 3
    $ warmline ps
    2> error[open-failed]: the background gateway has version 9.9.9, this command 0.1.0
    2>   hint: restart it: `warmline down`, then `warmline up`; the state of programs is lost
    exit: 3
    ");
    let words = against_demo(&["call", "counter", "--run", "trip"], &[]);
    tells!(background.run(&words), @r"
    exit: 3
    ----- stderr -----
    error[open-failed]: the background gateway has version 9.9.9, this command 0.1.0
      delivery: unsent (not executed, safe to call again)
      hint: restart it: `warmline down`, then `warmline up`; the state of programs is lost
    ");
    answering.join().unwrap();
    std::fs::remove_file(&socket).unwrap();
}

/// What is wrong with a file is told where somebody reads it.
#[test]
fn a_configuration_that_cannot_be_used_starts_nothing() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[servers.x]\nurll = 'http://x'\n");
    let output = warmline.run(&["up"]);
    output.says_first("error[config-unknown-key]");
    assert_eq!(output.exit, 2);
    assert!(!warmline.state().join("up/socket").exists());
}

/// Whoever started it may leave: it has no terminal and no folder of theirs.
#[test]
fn it_holds_nothing_of_the_shell_that_started_it() {
    let background = Background::up();
    let of = |what: &str| {
        let pid = background.pid().as_raw_nonzero();
        std::fs::read_link(format!("/proc/{pid}/{what}")).unwrap()
    };
    assert_eq!(of("cwd"), PathBuf::from("/"));
    assert_eq!(of("fd/0"), PathBuf::from("/dev/null"));
    assert_eq!(of("fd/2"), background.folder().join("log"));
    let session = Command::new("ps")
        .args(["-o", "sid=", "-p"])
        .arg(background.pid().as_raw_nonzero().to_string())
        .output();
    if let Ok(session) = session {
        let session = String::from_utf8_lossy(&session.stdout).trim().to_owned();
        assert_eq!(session, background.pid().as_raw_nonzero().to_string());
    }
}

/// A gateway that somebody serves is looked after by its socket in the same way.
#[test]
fn a_served_gateway_is_looked_after_by_its_admin_socket() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let socket = warmline.work().join("admin");
    let socket = socket.to_str().unwrap();
    let serving = Serving::start(&warmline, &["--admin", socket, &server.url()]);
    assert_eq!(serving.said["admin"], socket);
    let base = serving.said["servers"][0]["url"].as_str().unwrap();
    let url = base.replace("/servers/", "/runs/trip/servers/");
    let header = format!("Authorization: Bearer {}", local_token(&warmline.state()));
    let called = warmline.run(&["call", &url, "counter", "--header", &header]);
    called.exits(0);
    let output = warmline.run(&["ps", "--json", "--socket", socket]);
    output.prints(r#""kind":"run","name":"trip""#);
    assert_eq!(
        warmline.run(&["ps"]).stdout,
        "",
        "it is not the background one"
    );
    let alice = warmline.run(&["token", "new", "alice"]).stdout;
    let header_of_alice = format!("Authorization: Bearer {}", alice.trim());
    let url_of_alice = url.replace("trip", "hers");
    let called = warmline.run(&[
        "call",
        &url_of_alice,
        "counter",
        "--header",
        &header_of_alice,
    ]);
    called.exits(0);
    assert_eq!(server.counts().open_sessions, 2);
    for run in ["trip", "hers"] {
        warmline.run(&["end", run, "--socket", socket]).exits(0);
    }
    assert_eq!(server.counts().open_sessions, 0);
    warmline.run(&["down", "--socket", socket]).exits(0);
    assert_eq!(serving.ended(&warmline).exit, 0);
    assert!(!Path::new(socket).exists());
}
