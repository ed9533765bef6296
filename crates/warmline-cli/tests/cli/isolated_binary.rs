//! The binary, run in a home of its own, with an environment of its own.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The built binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_warmline");

/// What depends on the machine or the moment, and what stands in its place.
pub(crate) const FILTERS: &[(&str, &str)] = &[
    (r" {20,}", "[PAD]"),
    (r"searched PATH .*", "searched PATH [PATH]"),
    (r"expired \d+ days", "expired [N] days"),
    (r"127\.0\.0\.1( port |:)\d+", "127.0.0.1$1[PORT]"),
    (r"localhost( port |:)\d+", "localhost$1[PORT]"),
    (r"\b\d+(\.\d+)? (ms|µs|s)\b", "[TIME]"),
    (r#"_(ms|us)":\d+"#, r#"_$1":[TIME]"#),
    (r"result, \d+ bytes", "result, [N] bytes"),
    (
        r"\d+ variables? of ours (are|is) not passed on",
        "[N] variables of ours are not passed on",
    ),
    (r"\d+ folders?, as ours", "[N] folders, as ours"),
    (
        r"/(usr/)?bin/(sh|sleep) \(folder \d of \d in PATH\)",
        "[BIN]/$2",
    ),
    (r"wl_[A-Za-z0-9_-]{43}", "[TOKEN]"),
    (r#""pid":\d+"#, r#""pid":[PID]"#),
    (r"pid \d+", "pid [PID]"),
    (
        r#""fingerprint":"[0-9a-f]{8}""#,
        r#""fingerprint":[DIGEST]"#,
    ),
    (r#"_(at|seconds)":\d+"#, r#"_$1":[TIME]"#),
    (r#""sha256":"[0-9a-f]{64}""#, r#""sha256":"[DIGEST]""#),
];

/// A home, a working folder, and the way to run the binary in them.
pub(crate) struct Warmline {
    place: TempDir,
    variables: Vec<(String, String)>,
}

/// What a command told.
pub(crate) struct CommandOutput {
    place: String,
    pub(crate) exit: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Warmline {
    pub(crate) fn new() -> Self {
        let place = TempDir::new().unwrap();
        for folder in ["work", "home"] {
            std::fs::create_dir(place.path().join(folder)).unwrap();
        }
        Self {
            place,
            variables: Vec::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Warmline's folder for what it remembers.
    pub(crate) fn state(&self) -> PathBuf {
        self.home().join(".local/state/warmline")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.place.path().join("home")
    }

    /// Writes a file into the working folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        write(&self.work().join(name), text)
    }

    /// Writes a file into the user's configuration folder.
    pub(crate) fn write_user(&self, name: &str, text: &str) -> PathBuf {
        write(&self.home().join(".config/warmline").join(name), text)
    }

    pub(crate) fn command(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.home())
            .env("LANG", "C.UTF-8")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[impl AsRef<OsStr>]) -> CommandOutput {
        self.told(&self.command(words).output().unwrap())
    }

    pub(crate) fn told(&self, output: &Output) -> CommandOutput {
        CommandOutput {
            place: self.place.path().to_str().unwrap().to_owned(),
            exit: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// What somebody of this home told on stderr, and went well.
    pub(crate) fn told_on_stderr(&self, stderr: &str) -> CommandOutput {
        CommandOutput {
            place: self.place.path().to_str().unwrap().to_owned(),
            exit: 0,
            stdout: String::new(),
            stderr: stderr.to_owned(),
        }
    }

    /// Runs the commands of a transcript, and returns it with what they told. Its `[PORT]` is one that
    /// nobody listens at, `[DEMO]` the server of the demo over stdio.
    pub(crate) fn transcript(&self, names: &[(&str, &str)], expected: &str) -> String {
        let commands = expected.lines();
        let commands = commands.filter_map(|line| line.trim_start().strip_prefix("$ warmline"));
        let run = |command: &str| {
            let words = shell_words::split(command).unwrap();
            let words = words.iter().flat_map(|word| match word.as_str() {
                "[DEMO]" => [BINARY, "demo-server", "--stdio"]
                    .map(str::to_owned)
                    .to_vec(),
                word => vec![
                    names
                        .iter()
                        .fold(word.replace("[PORT]", "1"), |word, (name, value)| {
                            word.replace(name, value)
                        }),
                ],
            });
            let told = self.run(&words.collect::<Vec<_>>()).in_transcript();
            format!("$ warmline{command}\n{told}")
        };
        commands.map(run).collect()
    }

    /// Runs with this text as its input.
    pub(crate) fn run_with_input(&self, words: &[impl AsRef<OsStr>], input: &str) -> CommandOutput {
        let mut command = self.command(words);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        self.told(&child.wait_with_output().unwrap())
    }
}

/// Words for `-- warmline demo-server …` at the end of a command.
pub(crate) fn against_demo<'w>(words: &[&'w str], more: &[&'w str]) -> Vec<&'w str> {
    let mut all = words.to_vec();
    all.extend(["--", BINARY, "demo-server", "--stdio"]);
    all.extend(more);
    all
}

fn write(path: &Path, text: &str) -> PathBuf {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    path.to_owned()
}

impl CommandOutput {
    /// Something that was told in another way than by a whole command.
    pub(crate) fn of(exit: i32, stdout: &str) -> Self {
        Self {
            place: String::new(),
            exit,
            stdout: stdout.to_owned(),
            stderr: String::new(),
        }
    }

    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.exit, code, "{self}");
        self
    }

    #[track_caller]
    pub(crate) fn fails(&self) -> &Self {
        assert_ne!(self.exit, 0, "{self}");
        self
    }

    /// It succeeds, and says nothing on stderr.
    #[track_caller]
    pub(crate) fn succeeds(&self) -> &Self {
        assert_eq!((self.exit, self.stderr.as_str()), (0, ""), "{self}");
        self
    }

    /// What stderr has.
    #[track_caller]
    pub(crate) fn says(&self, text: impl AsRef<str>) -> &Self {
        let text = text.as_ref();
        assert!(self.stderr.contains(text), "{text} is missing: {self}");
        self
    }

    /// What stderr begins with.
    #[track_caller]
    pub(crate) fn says_first(&self, text: &str) -> &Self {
        assert!(self.stderr.starts_with(text), "{text} is missing: {self}");
        self
    }

    #[track_caller]
    pub(crate) fn does_not_say(&self, text: impl AsRef<str>) -> &Self {
        let text = text.as_ref();
        assert!(!self.stderr.contains(text), "{text} is there: {self}");
        self
    }

    /// What stdout has.
    #[track_caller]
    pub(crate) fn prints(&self, text: impl AsRef<str>) -> &Self {
        let text = text.as_ref();
        assert!(self.stdout.contains(text), "{text} is missing: {self}");
        self
    }

    #[track_caller]
    pub(crate) fn does_not_print(&self, text: impl AsRef<str>) -> &Self {
        let text = text.as_ref();
        assert!(!self.stdout.contains(text), "{text} is there: {self}");
        self
    }

    /// Lines of stdout, lines of stderr behind `2>`, and the exit code if it is not 0.
    fn in_transcript(&self) -> String {
        let (stdout, stderr) = (self.plain(&self.stdout), self.plain(&self.stderr));
        let mut told: Vec<String> = stdout.trim_end().lines().map(str::to_owned).collect();
        let stderr = stderr.trim_end().lines();
        told.extend(stderr.map(|line| format!("2> {line}").trim_end().to_owned()));
        told.extend((self.exit != 0).then(|| format!("exit: {}", self.exit)));
        told.iter().map(|line| format!("{line}\n")).collect()
    }

    fn plain(&self, text: &str) -> String {
        let text = text.replace(BINARY, "[WARMLINE]");
        if self.place.is_empty() {
            return text;
        }
        text.replace(&format!("{}/work", self.place), "[WORK]")
            .replace(&format!("{}/home", self.place), "[HOME]")
    }

    pub(crate) fn everything(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl std::fmt::Display for CommandOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "exit: {}", self.exit)?;
        if !self.stdout.is_empty() {
            writeln!(
                f,
                "----- stdout -----\n{}",
                self.plain(self.stdout.trim_end())
            )?;
        }
        if !self.stderr.is_empty() {
            writeln!(
                f,
                "----- stderr -----\n{}",
                self.plain(self.stderr.trim_end())
            )?;
        }
        Ok(())
    }
}
