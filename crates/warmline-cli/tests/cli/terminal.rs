//! What a person at a terminal sees and is asked.

use crate::prelude::*;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A command whose stdin and stderr are a terminal; its stdout is read by a program.
struct Sitting {
    child: Child,
    screen: File,
    seen: String,
}

impl Sitting {
    fn start(warmline: &Warmline, words: &[&str]) -> Self {
        Self::start_on("xterm", 200, warmline, words)
    }

    /// On a terminal of this kind and so many columns.
    fn start_on(kind: &str, columns: u16, warmline: &Warmline, words: &[&str]) -> Self {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&screen, size).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let open = || {
            File::options()
                .read(true)
                .write(true)
                .open(name.to_str().unwrap())
                .unwrap()
        };
        let mut command = warmline.command(words);
        command.env("TERM", kind).env("NO_COLOR", "1");
        command.stdin(open()).stderr(open()).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        Self {
            child,
            screen: File::from(screen),
            seen: String::new(),
        }
    }

    /// Waits until this text is on the screen.
    fn sees(&mut self, text: &str) {
        let mut bytes = [0; 4096];
        while !self.seen.contains(text) {
            let mut screen = [PollFd::new(&self.screen, PollFlags::IN)];
            let limit = Timespec {
                tv_sec: 30,
                tv_nsec: 0,
            };
            let ready = poll(&mut screen, Some(&limit)).unwrap();
            assert!(ready > 0, "{text:?} never came:\n{}", self.seen);
            match self.screen.read(&mut bytes) {
                Ok(count @ 1..) => self
                    .seen
                    .push_str(&String::from_utf8_lossy(&bytes[..count])),
                ended => panic!("{text:?} never came ({ended:?}):\n{}", self.seen),
            }
        }
    }

    fn types(&mut self, line: &str) {
        self.screen
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// The exit code, the answer, and what was on the screen.
    fn ends(mut self) -> (i32, String, String) {
        let mut answer = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut answer)
            .unwrap();
        let exit = self.child.wait().unwrap().code().unwrap_or(-1);
        // What is left on the screen; the end of a terminal is an error.
        let mut rest = Vec::new();
        drop(self.screen.read_to_end(&mut rest));
        self.seen.push_str(&String::from_utf8_lossy(&rest));
        (exit, answer, self.seen.replace("\r\n", "\n"))
    }
}

impl Drop for Sitting {
    /// A test that failed half-way leaves nobody waiting for a line.
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_form_is_filled_in_line_by_line_in_either_era() {
    for era in ["legacy", "modern"] {
        let warmline = Warmline::new();
        let words = against_demo(&["call", "ask_form"], &["--era", era]);
        let mut sitting = Sitting::start(&warmline, &words);
        sitting.sees("`warmline` asks: Round 1: what is your name?");
        for (prompt, typed) in [
            ("age (a whole number, at least 0, optional): ", "old"),
            ("invalid: it must be a whole number", "36"),
            ("colour (red | green, optional): ", ""),
            ("Name (a text, required): ", ""),
            ("a value is required", "Ada"),
            ("sure (`true` or `false`, optional) [true]: ", ""),
        ] {
            sitting.sees(prompt);
            sitting.types(typed);
        }
        let (exit, answer, seen) = sitting.ends();
        assert_eq!(exit, 0, "{seen}");
        let content = r#"{"age":36,"name":"Ada","sure":true}"#;
        let holds = answer.contains(content) && answer.contains("accept");
        assert!(holds, "{era}: {answer}");
    }
}

#[test]
fn a_url_is_shown_and_never_opened() {
    for (typed, action) in [("y", "accept"), ("n", "decline"), ("", "decline")] {
        let warmline = Warmline::new();
        let words = against_demo(&["call", "ask_url"], &["--era", "legacy"]);
        let mut sitting = Sitting::start(&warmline, &words);
        sitting.sees("it wants you to open https://example.org/confirm?code=1");
        sitting.sees("go on? [y/N] ");
        sitting.types(typed);
        let (exit, answer, seen) = sitting.ends();
        assert_eq!(exit, 0, "{seen}");
        let holds = answer.contains(&format!(r#""action":"{action}""#));
        assert!(holds, "{answer}");
    }
}

#[test]
fn a_question_can_be_declined_beforehand() {
    let warmline = Warmline::new();
    let words = against_demo(&["call", "ask_form", "--no-ask"], &["--era", "legacy"]);
    let (exit, answer, seen) = Sitting::start(&warmline, &words).ends();
    let outcome = (exit, answer.trim());
    assert_eq!(outcome, (0, r#"{"answers":[{"action":"decline"}]}"#));
    assert!(seen.contains("declined: --no-ask"), "{seen}");
}

#[test]
fn a_file_is_trusted_by_saying_yes() {
    for (typed, exit) in [("n", 2), ("y", 0)] {
        let warmline = Warmline::new();
        warmline.write(
            "warmline.toml",
            "[servers.a]\ncommand = ['sh', '-c', 'true']\n",
        );
        let mut sitting = Sitting::start(&warmline, &["trust"]);
        sitting.sees("reaches    sh -c true");
        sitting.sees("[y/N] ");
        sitting.types(typed);
        let (ended, _, seen) = sitting.ends();
        assert_eq!(ended, exit, "{seen}");
    }
}

#[test]
fn what_takes_long_is_said_on_a_terminal_and_wiped_away() {
    let warmline = Warmline::new();
    let words = against_demo(&["call", "slow", "ms=900"], &["--era", "legacy"]);
    let mut sitting = Sitting::start(&warmline, &words);
    sitting.sees("waiting for tools/call slow of warmline …");
    let (exit, answer, seen) = sitting.ends();
    assert_eq!((exit, answer.as_str()), (0, "took 900 ms\n"), "{seen}");
    assert!(seen.contains("\r\u{1b}[2K"), "{seen}");
    let holds = seen.contains("warmline · cold · opened");
    assert!(holds, "the cost is told: {seen}");
}

#[test]
fn how_far_a_server_is_stands_in_the_line_of_progress() {
    let warmline = Warmline::new();
    let words = against_demo(
        &["call", "progress", "steps=8", "pause_ms=200"],
        &["--era", "legacy"],
    );
    let mut sitting = Sitting::start(&warmline, &words);
    sitting.sees(" of 8");
    let (exit, _, seen) = sitting.ends();
    assert_eq!(exit, 0, "{seen}");
}

#[test]
fn the_line_of_progress_is_never_wider_than_the_terminal() {
    let warmline = Warmline::new();
    let words = against_demo(&["call", "slow", "ms=900"], &["--era", "legacy"]);
    let mut sitting = Sitting::start_on("xterm", 30, &warmline, &words);
    sitting.sees("waiting for tools/call");
    let (_, _, seen) = sitting.ends();
    let drawn: Vec<&str> = seen.split("\r\u{1b}[2K").collect();
    let waiting = drawn.iter().filter(|line| line.contains("waiting for"));
    for line in waiting {
        assert!(line.chars().count() < 30, "{line:?}");
    }
    let (_, _, seen) = Sitting::start_on("dumb", 80, &warmline, &words).ends();
    let holds = !seen.contains('\u{1b}') && !seen.contains("waiting");
    assert!(holds, "{seen:?}");
}

#[test]
fn what_follows_a_question_nobody_answered_stands_on_a_line_of_its_own() {
    let warmline = Warmline::new();
    let words = against_demo(&["call", "ask_form"], &["--era", "legacy"]);
    let mut sitting = Sitting::start(&warmline, &words);
    sitting.sees("optional): ");
    sitting.screen.write_all(b"\x04").unwrap();
    let (exit, answer, seen) = sitting.ends();
    assert_eq!(exit, 0, "{seen}");
    assert!(answer.contains("decline"), "{answer}");
    assert!(seen.contains("optional): \n"), "{seen:?}");
}

/// Ctrl-C reaches whoever sits at a terminal by itself; whatever else is told is passed on.
#[test]
fn a_program_on_a_terminal_is_told_to_end_by_the_first_signal() {
    for (signal, exit) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let warmline = Warmline::new();
        let script = "echo ready >&2; exec sleep 600";
        let words = ["run", "http://127.0.0.1:1/mcp", "--", "sh", "-c", script];
        let mut sitting = Sitting::start(&warmline, &words);
        sitting.sees("ready");
        let id = Pid::from_raw(sitting.child.id().try_into().unwrap()).unwrap();
        kill_process(id, signal).unwrap();
        let (ended, _, seen) = sitting.ends();
        assert_eq!(ended, exit, "{seen}");
    }
}

/// What is started by clients says so to whoever types it, and nothing to a client.
#[test]
fn whoever_types_stdio_is_told_that_it_waits_for_a_client() {
    let warmline = Warmline::new();
    let mut sitting = Sitting::start(&warmline, &against_demo(&["stdio"], &[]));
    sitting.sees("waiting for messages of an MCP client on stdin");
    sitting.sees(r#"{"mcpServers":{"warmline":{"args":["stdio","--","#);
    // The end of input.
    sitting.types("\u{4}");
    let (exit, answer, seen) = sitting.ends();
    assert_eq!((exit, answer.as_str()), (0, ""), "{seen}");
    let output = warmline.run_with_input(&against_demo(&["stdio"], &[]), "");
    assert_eq!((output.exit, output.everything().as_str()), (0, ""));
}

/// A gateway in the background that ends with its test.
struct Up<'w>(&'w Warmline);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.run(&["down", "--now"]);
    }
}

#[test]
fn the_end_of_a_run_says_what_it_waits_for() {
    let warmline = Warmline::new();
    assert_eq!(warmline.run(&["up", "--quiet"]).exit, 0);
    let up = Up(&warmline);
    // Values as a whole are sent at once: the call is the only one.
    let values = ["call", "slow", "--args", r#"{"ms":60000}"#, "--run", "trip"];
    let words = against_demo(&values, &["--era", "legacy"]);
    let mut calling = warmline.command(&words);
    let mut calling = calling
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the call is under way", || {
        let output = warmline.run(&["ps", "--json"]);
        let mut lines = output.stdout.lines();
        lines.any(|line| line.contains(r#""session":"#) && line.contains(r#""calls":1"#))
    });
    let mut sitting = Sitting::start(&warmline, &["end", "trip"]);
    sitting.sees("waiting for calls of run trip: they have 5 seconds");
    let (exit, _, seen) = sitting.ends();
    assert_eq!(exit, 0, "{seen}");
    assert_eq!(calling.wait().unwrap().code(), Some(4));
    drop(up);
}
