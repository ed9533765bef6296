//! `warmline serve`: who is let in, a configuration that changes, how it stops.

use crate::prelude::*;

use std::process::ChildStdout;

/// A gateway that runs; whatever becomes of a test, it does not outlive it.
pub(crate) struct Serving {
    child: Option<Child>,
    stdout: BufReader<ChildStdout>,
    /// The line that says where it listens.
    pub(crate) said: Value,
}

impl Serving {
    /// Starts one on a free port, and waits until it listens.
    pub(crate) fn start(warmline: &Warmline, words: &[&str]) -> Self {
        Self::start_at(warmline, "127.0.0.1:0", words)
    }

    /// The same where somebody expects it.
    pub(crate) fn start_at(warmline: &Warmline, listen: &str, words: &[&str]) -> Self {
        let mut all = vec!["serve", "--json", "--listen", listen];
        all.extend(words);
        let mut child = warmline
            .command(&all)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let said = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut told = String::new();
            let mut stderr = child.stderr.take().unwrap();
            stderr.read_to_string(&mut told).unwrap();
            panic!("{line}{told}")
        });
        Self {
            child: Some(child),
            stdout,
            said,
        }
    }

    pub(crate) fn base(&self) -> String {
        self.said["url"].as_str().unwrap().to_owned()
    }

    /// A page for machines that watch it.
    pub(crate) fn page(&self, path: &str) -> String {
        let base = self.said["ops"].as_str().unwrap();
        let address = base.strip_prefix("http://").unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        write!(
            socket,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        said
    }

    /// Tells it to read its files again, and waits until it refused what it found.
    pub(crate) fn refuses_its_file(&self) {
        self.tell(Signal::HUP);
        let none = r#"warmline_reload_total{result="refused"} 0"#;
        until("a file is refused", || {
            let page = self.page("/metrics");
            page.contains("warmline_reload_total") && !page.contains(none)
        });
    }

    pub(crate) fn tell(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// What it told when it ended.
    pub(crate) fn ended(mut self, warmline: &Warmline) -> CommandOutput {
        let mut output = self.child.take().unwrap().wait_with_output().unwrap();
        self.stdout.read_to_end(&mut output.stdout).unwrap();
        warmline.told(&output)
    }

    /// Stops it, and looks whether it went well.
    pub(crate) fn stop(self, warmline: &Warmline) -> String {
        self.tell(Signal::TERM);
        let output = self.ended(warmline);
        output.exits(0);
        output.stderr
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// The token of the machine that a test is.
pub(crate) fn local_token(state: &Path) -> String {
    let text = std::fs::read_to_string(state.join("local-token")).unwrap();
    text.trim().to_owned()
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = warmline_platform::clock::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

/// What a tool of the gateway answers to a command with this token.
fn call(warmline: &Warmline, url: &str, words: &[&str], token: &str) -> CommandOutput {
    let header = format!("Authorization: Bearer {token}");
    let mut all = vec!["call", url];
    all.extend(words);
    all.extend(["--header", &header]);
    warmline.run(&all)
}

/// A URL and a command need no file; the token of this machine lets its user in, and a run in the
/// path keeps state over commands that each open a session.
#[test]
fn a_url_and_a_program_are_served_without_any_file() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let program = ["--", BINARY, "demo-server", "--stdio", "--era", "legacy"];
    let url = server.url();
    let words: Vec<&str> = std::iter::once(url.as_str()).chain(program).collect();
    let serving = Serving::start(&warmline, &words);
    let names: Vec<&str> = serving.said["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|server| server["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 2, "{:?}", serving.said);
    let token = local_token(&warmline.state());
    for name in names {
        let url = format!("{}/runs/trip/servers/{name}/mcp", serving.base());
        for count in 1..=3 {
            let output = call(&warmline, &url, &["counter"], &token);
            let printed = output.stdout.trim();
            assert_eq!(printed, format!(r#"{{"count":{count}}}"#), "{output}");
        }
        let output = call(&warmline, &url, &["counter"], "wl_forged");
        output.says_first("error[credential-refused]");
    }
    let log = serving.stop(&warmline);
    assert!(!log.contains(&token), "{log}");
    assert_eq!(server.violations(), Vec::<String>::new());
}

/// A72: also that nobody is asked.
#[test]
fn people_are_told_where_it_listens_and_how_to_be_let_in() {
    let warmline = Warmline::new();
    warmline.write_user(
        "warmline.toml",
        "[gateway]\nlisten = '127.0.0.1:0'\n[servers.one]\ncommand = ['sh']\n[servers.second]\nurl = 'http://127.0.0.1:1/mcp'\n[servers.third]\ncommand = ['sh']\nenabled = false\n",
    );
    for words in [&["serve"][..], &["serve", "--auth", "none"]] {
        let mut child = warmline
            .command(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said: Vec<String> = lines.by_ref().take(8).map(Result::unwrap).collect();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let output = CommandOutput::of(0, &said.join("\n"));
        match words {
            ["serve"] => tells!(output, @r"
            exit: 0
            ----- stdout -----
            listening on http://127.0.0.1:[PORT] · 2 servers; sessions are not shared with other machines
              one         http://127.0.0.1:[PORT]/servers/one/mcp
              second      http://127.0.0.1:[PORT]/servers/second/mcp
              all in one  http://127.0.0.1:[PORT]/mcp
              in a run    http://127.0.0.1:[PORT]/runs/RUN/servers/NAME/mcp
              disabled    third
              ops pages   http://127.0.0.1:[PORT]/metrics /livez /readyz /servers
            callers send a token: `warmline url NAME --at http://127.0.0.1:[PORT]` prints it with a snippet to paste
            "),
            _ => tells!(output, @r#"
            exit: 0
            ----- stdout -----
            listening on http://127.0.0.1:[PORT] · 2 servers; sessions are not shared with other machines
              one         http://127.0.0.1:[PORT]/servers/one/mcp
              second      http://127.0.0.1:[PORT]/servers/second/mcp
              all in one  http://127.0.0.1:[PORT]/mcp
              in a run    http://127.0.0.1:[PORT]/runs/RUN/servers/NAME/mcp
              disabled    third
              ops pages   http://127.0.0.1:[PORT]/metrics /livez /readyz /servers
            callers need not authenticate: `auth = "none"`. Any program that reaches this port can call, and one that knows the name of a run can use it. Limits per identity have no effect
            "#),
        }
    }
}

/// What is said about pasting works as it stands, also where no file knows of the gateway.
#[test]
fn the_command_that_prints_what_to_paste_finds_the_gateway() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let text = format!("[servers.one]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let other = warmline.write("other folder.toml", &text.replace("one", "two"));
    let (url, other) = (server.url(), other.to_str().unwrap().to_owned());
    for words in [&[&*url][..], &["--config", &*other, "--state-dir", "kept"]] {
        let mut child = warmline
            .command(&[&["serve", "--listen", "127.0.0.1:0"], words].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = lines.by_ref().map(Result::unwrap);
        let told = told.skip_while(|line| !line.starts_with("callers send a token"));
        let line = told.take(1).next().unwrap();
        let command = line.split('`').nth(1).unwrap();
        let words: Vec<String> = shell_words::split(command).unwrap();
        let pasted = warmline.run(&words[1..]);
        let said: Vec<&str> = pasted.stdout.lines().collect();
        let [url, header] = said.as_slice() else {
            panic!("{command}: {pasted}")
        };
        let listed = warmline.run(&["tools", url, "--header", header]);
        assert_eq!(listed.exit, 0, "{command}: {listed}");
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

/// S32: what is switched off is named, and not as something that can be called.
#[test]
fn servers_that_are_switched_off_are_not_announced_as_served() {
    let warmline = Warmline::new();
    let (on, off) = (
        "[servers.on]\nurl = 'http://127.0.0.1:1/mcp'\n",
        "[servers.off]\ncommand = ['sh']\nenabled = false\n",
    );
    warmline.write_user("warmline.toml", &format!("{on}{off}"));
    let serving = Serving::start(&warmline, &[]);
    assert_eq!(serving.said["servers"].as_array().unwrap().len(), 1);
    assert_eq!(serving.said["servers"][0]["name"], "on");
    assert_eq!(serving.said["switched_off"][0], "off");
    serving.stop(&warmline);
}

/// P101: one dead server stops nobody, unless it is said to be required.
#[test]
fn a_gateway_does_not_start_without_a_server_that_is_required() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let declared = |dead: &str, alive: &str| {
        let url = server.url();
        let dead = format!("[servers.dead]\nurl = 'http://127.0.0.1:1/mcp'\n{dead}");
        let text = format!("{dead}[servers.alive]\nurl = '{url}'\n{alive}");
        warmline.write_user("warmline.toml", &text);
    };
    declared("", "required = true\n");
    let serving = Serving::start(&warmline, &[]);
    assert!(serving.page("/readyz").starts_with("HTTP/1.1 200"));
    serving.stop(&warmline);
    declared("required = true\n", "");
    let output = warmline.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((output.exit, output.stdout.as_str()), (3, ""), "{output}");
    for said in [
        "error[cannot-reach]: `dead` could not be reached",
        "hint: nothing starts without this server, because of `required = true`",
    ] {
        assert!(output.stderr.contains(said), "{said} is missing: {output}");
    }
}

/// A72: a gateway that asks nobody says so at its start (above), and `doctor` does.
#[test]
fn doctor_tells_of_a_gateway_that_asks_nobody() {
    let warmline = Warmline::new();
    warmline.write_user("warmline.toml", "[gateway]\nauth = 'none'\n");
    let output = warmline.run(&["doctor"]);
    let holds = output.stdout.contains("callers need not authenticate");
    assert!(holds, "{}", output.stdout);
}

/// S14: whoever demands that callers are asked gets no gateway that does not ask.
#[test]
fn a_gateway_that_has_to_ask_does_not_start_without() {
    let warmline = Warmline::new().with("AUTH_REQUIRED", "true");
    shows!(warmline, @r"
    $ warmline serve --auth none http://127.0.0.1:[PORT]/mcp
    2> error[config-bad-value]: callers must authenticate, and `gateway.auth` is `none`
    2>   why: AUTH_REQUIRED sets it
    2>   hint: set another `gateway.auth`, or remove `gateway.auth_required` (`AUTH_REQUIRED`)
    exit: 2
    ");
}

/// A refusal to start says what to do: nobody but loopback is served without a token.
#[test]
fn it_refuses_to_listen_where_others_are_without_asking_who_they_are() {
    let warmline = Warmline::new();
    shows!(warmline, @r"
    $ warmline serve http://127.0.0.1:[PORT]/mcp --listen 0.0.0.0:0
    2> error[config-bad-value]: `0.0.0.0:0` is reachable from the network, and `gateway.auth` is `local`
    2>   hint: create tokens with `warmline token new NAME` and serve with `--auth tokens`, or listen on 127.0.0.1
    exit: 2
    $ warmline serve http://127.0.0.1:[PORT]/mcp --listen 0.0.0.0:0 --auth none
    2> error[config-bad-value]: `0.0.0.0:0` is reachable from the network, and `gateway.auth` is `none`
    2>   hint: create tokens with `warmline token new NAME` and serve with `--auth tokens`, or listen on 127.0.0.1
    exit: 2
    $ warmline serve http://127.0.0.1:[PORT]/mcp --listen 0.0.0.0:0 --auth tokens
    2> error[config-bad-value]: callers need a token, and none exists
    2>   hint: create one with `warmline token new NAME`
    exit: 2
    $ warmline serve http://127.0.0.1:[PORT]/mcp --auth tokens --state-dir 'their state'
    2> error[config-bad-value]: callers need a token, and none exists
    2>   hint: create one with `warmline token new NAME --state-dir 'their state'`
    exit: 2
    $ warmline serve
    2> error[usage-bad-argument]: nothing to serve: no server is configured
    2>   hint: `warmline add NAME URL` adds one, or `warmline add NAME -- COMMAND`; `warmline init` imports those of desktop clients
    exit: 2
    $ warmline serve --ops off
    2> error[usage-bad-argument]: `--ops <ADDRESS>` cannot be `off`
    2>   hint: write an IP address and a port: 127.0.0.1:[PORT], [::1]:8484, or a port alone; `none` disables the pages
    exit: 2
    $ warmline serve --listen here
    2> error[usage-bad-argument]: `--listen <ADDRESS>` cannot be `here`
    2>   hint: write an IP address and a port: 127.0.0.1:[PORT], [::1]:8484, or a port alone
    exit: 2
    ");
}

/// A token is shown once, counts at once, and no longer after it was revoked.
#[test]
fn a_token_counts_from_when_it_is_made_until_it_is_revoked() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let serving = Serving::start(&warmline, &[&server.url()]);
    let name = serving.said["servers"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    let url = format!("{}/runs/trip/servers/{name}/mcp", serving.base());
    let made = warmline.run(&["token", "new", "alice"]);
    made.exits(0);
    let token = made.stdout.trim();
    let is_let_in = || call(&warmline, &url, &["counter"], token).exit == 0;
    until("the token counts", is_let_in);
    shows!(warmline, @r"
    $ warmline token list
    TOKEN  STANDS FOR  UNTIL
    alice  alice       -
    $ warmline token new alice
    2> error[usage-bad-argument]: token `alice` exists already
    2>   hint: choose another name with `--identity alice`, or revoke it first: `warmline token revoke alice`
    exit: 2
    $ warmline token revoke alica
    2> error[usage-bad-argument]: there is no token `alica`
    2>   hint: did you mean `alice`?
    exit: 2
    $ warmline token revoke alice
    2> token `alice` is revoked: a running gateway refuses it from now on
    ");
    until("the token counts no more", || !is_let_in());
    assert!(
        !warmline
            .run(&["token", "list"])
            .everything()
            .contains("alice")
    );
    let log = serving.stop(&warmline);
    assert!(!log.contains(token), "{log}");
    let kept = std::fs::read_dir(warmline.state().join("tokens")).unwrap();
    assert_eq!(kept.count(), 0);
}

/// reliability P28: what changes is told in one line; a bad file changes nothing; unchanged servers keep sessions.
#[test]
fn a_changed_file_is_read_whole_or_not_at_all() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let declared = format!("[servers.kept]\nurl = '{}'\n", server.url());
    let file = warmline.write_user("warmline.toml", &declared);
    let serving = Serving::start(&warmline, &["--auth", "none"]);
    let at = |name: &str| format!("{}/runs/trip/servers/{name}/mcp", serving.base());
    let counts = |name: &str| warmline.run(&["call", &at(name), "counter"]);
    assert_eq!(counts("kept").stdout.trim(), r#"{"count":1}"#);
    assert_ne!(counts("late").exit, 0);

    let second = format!("{declared}[servers.late]\nurl = '{}'\n", server.url());
    std::fs::write(&file, second).unwrap();
    until("the new server is there", || counts("late").exit == 0);
    let printed = counts("kept").stdout;
    assert_eq!(printed.trim(), r#"{"count":2}"#, "its session stays");

    std::fs::write(&file, "[servers.kept]\nurll = 'http://x'\n").unwrap();
    serving.refuses_its_file();
    assert_eq!(counts("kept").stdout.trim(), r#"{"count":3}"#);
    assert_eq!(counts("late").exit, 0, "what runs goes on");

    std::fs::write(&file, &declared).unwrap();
    // A run that is live keeps what it began with; whoever is outside of it finds nothing.
    let outside = format!("{}/servers/late/mcp", serving.base());
    let is_gone = || warmline.run(&["call", &outside, "counter"]).exit != 0;
    until("the server is gone", is_gone);
    assert_eq!(counts("kept").stdout.trim(), r#"{"count":4}"#);
    let log = serving.stop(&warmline);
    for line in [
        r#""changes":"added: late; unchanged: 1""#,
        r#""message":"configuration not read again, what runs goes on""#,
        "did you mean `url`?",
        r#""changes":"removed: late; unchanged: 1""#,
    ] {
        assert!(log.contains(line), "{line} is missing: {log}");
    }
}

/// A72: whoever lets everybody in by a changed file reads that in the log, as at the start.
#[test]
fn a_file_that_lets_everybody_in_is_told_as_such() {
    let warmline = Warmline::new();
    let declared = "[servers.kept]\nurl = 'http://127.0.0.1:1/mcp'\n";
    let file = warmline.write_user("warmline.toml", declared);
    let serving = Serving::start(&warmline, &[]);
    let times = |number: u64| format!(r#"warmline_reload_total{{result="taken"}} {number}"#);
    let lines = ["[gateway]\nauth = 'none'\n", "[gateway]\nauth = 'none'\n\n"];
    for (number, more) in (1..).zip(lines) {
        std::fs::write(&file, format!("{more}{declared}")).unwrap();
        until("the file is read again", || {
            serving.page("/metrics").contains(&times(number))
        });
    }
    // The one of the start, and both.
    assert!(
        serving
            .page("/metrics")
            .contains("\nwarmline_config_epoch 3\n"),
        "reliability O21"
    );
    let log = serving.stop(&warmline);
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("configuration reloaded"))
        .collect();
    assert_eq!(told.len(), 2, "{log}");
    assert!(told[0].contains(r#""at_once":"gateway.auth""#), "{log}");
    assert!(!told[0].contains("nothing changed"), "{log}");
    assert!(told[1].contains("nothing changed"), "{log}");
    let cautions = log
        .lines()
        .filter(|line| line.contains("need not authenticate"));
    let cautions: Vec<&str> = cautions.collect();
    assert_eq!(cautions.len(), 1, "it is told when it changes: {log}");
    assert!(cautions[0].contains(r#""level":"WARN""#), "{log}");
}

/// P50, reliability P27: the first signal lets calls end, and they do; the exit code says that none was cut.
#[test]
fn a_call_under_way_ends_before_the_gateway_does() {
    let (warmline, server, serving) = busy();
    let calling = std::thread::scope(|scope| {
        let calling = scope.spawn(|| slow(&warmline, &serving, "1500"));
        begun(&server);
        serving.tell(Signal::TERM);
        calling.join().unwrap()
    });
    calling.exits(0);
    serving.ended(&warmline).exits(0);
}

/// reliability P27: the second signal waits for nobody; what became of the call is not known, and said.
#[test]
fn a_second_signal_ends_at_once_and_says_that_calls_were_cut() {
    let (warmline, server, serving) = busy();
    let (calling, output) = std::thread::scope(|scope| {
        let base = serving.base();
        let calling = scope.spawn({
            let warmline = &warmline;
            move || {
                let url = format!("{base}/servers/busy/mcp");
                warmline.run(&["call", &url, "slow", "ms=60000"])
            }
        });
        begun(&server);
        serving.tell(Signal::TERM);
        serving.tell(Signal::INT);
        let output = serving.ended(&warmline);
        (calling.join().unwrap(), output)
    });
    output.exits(3);
    calling.exits(4);
}

/// reliability O1: whoever asks whether it is ready hears no before nobody is let in any more; a
/// second signal does not wait for that.
#[test]
fn a_gateway_that_is_watched_says_no_before_it_takes_nobody() {
    let (warmline, _server, serving) = busy();
    assert!(serving.page("/readyz").starts_with("HTTP/1.1 200"));
    serving.tell(Signal::TERM);
    until("it is not ready", || {
        serving.page("/readyz").starts_with("HTTP/1.1 503")
    });
    let url = format!("{}/servers/busy/mcp", serving.base());
    warmline.run(&["call", &url, "counter"]).exits(0);
    serving.tell(Signal::TERM);
    serving.ended(&warmline).exits(0).says("stopped at once");
}

fn busy() -> (Warmline, LedgerServer, Serving) {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let text = format!("[servers.busy]\nurl = '{}'\n", server.url());
    warmline.write_user("warmline.toml", &text);
    let serving = Serving::start(&warmline, &["--auth", "none"]);
    (warmline, server, serving)
}

fn slow(warmline: &Warmline, serving: &Serving, ms: &str) -> CommandOutput {
    let url = format!("{}/servers/busy/mcp", serving.base());
    warmline.run(&["call", &url, "slow", &format!("ms={ms}")])
}

fn begun(server: &LedgerServer) {
    until("the call began", || {
        let entries = server.ledger().entries();
        entries.iter().any(|entry| {
            entry.phase == ExecutionPhase::Begin && entry.tool.as_deref() == Some("slow")
        })
    });
}

/// Each would tidy up what the other holds. A gateway that was killed leaves its file behind, and
/// that is no gateway.
#[test]
fn a_second_gateway_on_one_state_folder_is_warned_of() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warmline = Warmline::new();
    let one = Serving::start(&warmline, &[&server.url()]);
    let pid = one.child.as_ref().unwrap().id();
    let other = Serving::start(&warmline, &[&server.url()]);
    let said = other.stop(&warmline);
    let warning = format!("another `warmline serve` (pid {pid}) uses the state folder");
    assert!(said.contains(&warning), "{said}");
    let state = warmline.work().join("state");
    let words = ["--state-dir", state.to_str().unwrap(), &server.url()];
    let apart = Serving::start(&warmline, &words).stop(&warmline);
    one.tell(Signal::KILL);
    let killed = one.ended(&warmline).stderr;
    let next = Serving::start(&warmline, &[&server.url()]).stop(&warmline);
    for said in [apart, killed, next] {
        assert!(!said.contains("another"), "{said}");
    }
}
