//! A server that keeps state for each session, and `warmline serve` in front of it.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use warmline_testkit::{LedgerServer, Personality};

use super::isolated_binary::Warmline;
use super::real_parts::Program;

/// The server is configured as `demo`; it counts, in each session anew.
pub(crate) struct World {
    pub(crate) warmline: Warmline,
    server: LedgerServer,
    serving: Child,
    /// What every URL of the gateway begins with.
    pub(crate) gateway: String,
}

impl World {
    pub(crate) fn new(options: &[&str]) -> Self {
        let server = LedgerServer::start(Personality::legacy()).unwrap();
        let warmline = Warmline::new();
        let file = format!("[servers.demo]\nurl = '{}'\n", server.url());
        warmline.write_user("warmline.toml", &file);
        let words = ["serve", "--json", "--listen", "127.0.0.1:0"];
        let words: Vec<&str> = words.iter().chain(options).copied().collect();
        let mut serving = warmline
            .command(&words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(serving.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let gateway = said["url"].as_str().unwrap().to_owned();
        Self {
            warmline,
            server,
            serving,
            gateway,
        }
    }

    /// Where the server answers without us.
    pub(crate) fn direct(&self) -> String {
        self.server.url()
    }

    /// What a command prints that must go well.
    pub(crate) fn printed(&self, words: &[&str]) -> String {
        let output = self.warmline.run(words);
        assert_eq!(output.exit, 0, "{output}");
        output.stdout
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.kill().ok();
        self.serving.wait().ok();
    }
}

/// What a client counts to whose program is typed into it.
#[track_caller]
pub(crate) fn counts(client: &Program, program: &str) -> Vec<u64> {
    let output = typed(within_limits(&client.path).args(&client.args), program);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}\n{said}\n{complained}");
    counted(&said)
}

/// A client that does not hang, on a machine with much else to do.
pub(crate) fn within_limits(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/usr/bin/timeout");
    command.arg("90").arg(program);
    command
}

/// Runs a client with a text on its standard input.
pub(crate) fn typed(command: &mut Command, text: &str) -> Output {
    // No client has anybody else to tell, none goes through a proxy to this machine, and none is
    // to leave files in the tree.
    let mut child = command
        .env("NO_PROXY", "127.0.0.1")
        .env("no_proxy", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("OPENAI_AGENTS_DISABLE_TRACING", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// The counts in what a client printed, however it prints results.
pub(crate) fn counted(said: &str) -> Vec<u64> {
    let behind = said.split("\"count\":").skip(1);
    behind
        .map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().unwrap_or_else(|_| panic!("{said}"))
        })
        .collect()
}
