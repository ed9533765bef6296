//! The binary in a home of its own, a gateway that runs there, and plain HTTP to it.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The built binary.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_warmline");
/// Longer than anything takes here; a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(30);

/// A home, which is the working folder too.
pub(crate) struct Home {
    folder: TempDir,
    binary: OsString,
    variables: Vec<(String, String)>,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            binary: BINARY.into(),
            variables: Vec::new(),
        }
    }

    /// Another program is run there.
    pub(crate) fn by(mut self, binary: OsString) -> Self {
        self.binary = binary;
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join(".local/state/warmline")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path())
            .env("LANG", "C.UTF-8")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What a command prints on both, as lines of JSON.
    pub(crate) fn json(&self, words: &[&str]) -> String {
        let mut all = vec!["--json"];
        all.extend(words);
        text(&self.run(&all))
    }
}

/// Everything that was printed.
pub(crate) fn text(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    format!("{stdout}{stderr}")
}

/// A program that runs until it is dropped, and said in one line of JSON where it can be reached.
pub(crate) struct Running {
    child: Option<Child>,
    stdout: BufReader<ChildStdout>,
    stderr: Option<ChildStderr>,
    pub(crate) said: Value,
}

impl Running {
    pub(crate) fn start(home: &Home, words: &[&str]) -> Self {
        let mut child = home.command(words).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut stderr = child.stderr.take();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let said = serde_json::from_str(&line).unwrap_or_else(|_| {
            let mut why = String::new();
            stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("{line}{why}")
        });
        Self {
            child: Some(child),
            stdout,
            stderr,
            said,
        }
    }

    /// The demo server over HTTP on a free port.
    pub(crate) fn demo_server(home: &Home, more: &[&str]) -> Self {
        let mut words = vec!["demo-server", "--json", "--http"];
        words.extend(more);
        Self::start(home, &words)
    }

    /// A gateway on a free port.
    pub(crate) fn serve(home: &Home, more: &[&str]) -> Self {
        let mut words = vec!["serve", "--json", "--listen", "127.0.0.1:0"];
        words.extend(more);
        Self::start(home, &words)
    }

    pub(crate) fn url(&self) -> &str {
        self.said["url"].as_str().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().unwrap());
        kill_process(pid, signal).unwrap();
    }

    /// Stops it, and gives what it wrote on stderr.
    pub(crate) fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits for its end, and gives what it wrote on stderr.
    pub(crate) fn ended(&mut self) -> String {
        let mut log = String::new();
        let mut stderr = self.stderr.take().unwrap();
        stderr.read_to_string(&mut log).unwrap();
        self.stdout.read_to_string(&mut String::new()).unwrap();
        let status = self.child.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}: {log}");
        log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        let body = self.body.lines().find_map(|line| {
            let line = line.strip_prefix("data:").unwrap_or(line).trim();
            serde_json::from_str::<Value>(line)
                .ok()
                .filter(Value::is_object)
        });
        body.unwrap_or_else(|| panic!("{}\n{}", self.head, self.body))
    }
}

/// Sends one request over HTTP and reads the whole response.
pub(crate) fn http(url: &str, request: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let rest = url.strip_prefix("http://").unwrap();
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    exchange(socket, (request, &format!("/{path}")), headers, body)
}

/// The same over a Unix socket.
pub(crate) fn admin(socket: &Path, request: &str, path: &str, body: &str) -> Response {
    let socket = UnixStream::connect(socket).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    exchange(socket, (request, path), &[], body)
}

fn exchange(
    mut socket: impl Read + Write,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         {headers}Content-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut read = Vec::new();
    socket.read_to_end(&mut read).unwrap();
    let read = String::from_utf8(read).unwrap();
    let (head, body) = read.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let is_chunked = head.to_ascii_lowercase().contains("chunked");
    Response {
        status,
        head: head.to_owned(),
        body: if is_chunked {
            unchunked(body)
        } else {
            body.to_owned()
        },
    }
}

/// The body without the lines that say how long its pieces are.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        let (Some(piece), Some(rest)) = (rest.get(..length), rest.get(length + 2..)) else {
            break;
        };
        whole.push_str(piece);
        body = rest;
    }
    whole
}

/// Asks again until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    #[expect(clippy::disallowed_methods, reason = "a test gives up by itself")]
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}
