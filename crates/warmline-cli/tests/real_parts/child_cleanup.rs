//! Nothing a server started outlives Warmline: however Warmline itself ends, the whole tree of
//! wrappers below it is gone within three seconds.
//!
//! Every process of a test carries a mark in its environment, so that all of them can be found in
//! `/proc`, wherever they moved.
#![expect(
    clippy::disallowed_methods,
    reason = "other processes live in real time"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const MARK: &str = "WARMLINE_ORPHAN_TEST";
/// How long a tree may live on.
const GONE_WITHIN: Duration = Duration::from_secs(3);
/// How long npx and a server may take to start on a busy machine.
const UP_WITHIN: Duration = Duration::from_secs(60);

/// How Warmline is made to end.
#[derive(Clone, Copy, Debug)]
enum End {
    Kill,
    Terminate,
    Interrupt,
}

/// Warmline with a server below it.
struct Tree {
    warmline: Child,
    mark: String,
}

impl Tree {
    /// Runs `warmline ARGUMENTS --env MARK -- COMMAND`.
    fn start(arguments: &[&str], folder: &Path, command: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}-{number}", std::process::id());
        let warmline = Command::new(env!("CARGO_BIN_EXE_warmline"))
            .args(arguments)
            .args(["--env", &format!("{MARK}={mark}"), "--cwd"])
            .arg(folder)
            .arg("--")
            .args(command)
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { warmline, mark }
    }

    /// Every living process with our mark: its id and its command line.
    fn processes(&self) -> Vec<(u32, String)> {
        let wanted = format!("{MARK}={}", self.mark);
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        ids.filter_map(|id| {
            let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
            let is_ours = environment
                .split(|byte| *byte == 0)
                .any(|one| one == wanted.as_bytes());
            let words = fs::read(format!("/proc/{id}/cmdline")).ok()?;
            is_ours.then(|| (id, String::from_utf8_lossy(&words).replace('\0', " ")))
        })
        .collect()
    }

    /// Waits until all of these words stand in command lines below Warmline.
    fn wait_for(&mut self, words: &[&str]) {
        let own = self.warmline.id();
        let up = wait(UP_WITHIN, || {
            let below = self.processes().into_iter().filter(|(id, _)| *id != own);
            let lines: Vec<String> = below.map(|(_, line)| line).collect();
            words
                .iter()
                .all(|word| lines.iter().any(|line| line.contains(word)))
        });
        let ended = self.warmline.try_wait().unwrap();
        assert!(
            up,
            "{words:?} did not start ({ended:?}): {:#?}",
            self.processes()
        );
    }

    /// Ends Warmline; everything must be gone soon.
    fn end(&mut self, end: End) {
        match end {
            End::Kill => self.warmline.kill().unwrap(),
            End::Terminate => signal("TERM", &[self.warmline.id()]),
            End::Interrupt => signal("INT", &[self.warmline.id()]),
        }
        let ended = Instant::now();
        self.warmline.wait().unwrap();
        let gone = wait(GONE_WITHIN.saturating_sub(ended.elapsed()), || {
            self.processes().is_empty()
        });
        assert!(gone, "{end:?} left behind: {:#?}", self.processes());
    }
}

impl Drop for Tree {
    /// A failed test leaves nothing behind either.
    fn drop(&mut self) {
        let left: Vec<u32> = self.processes().into_iter().map(|(id, _)| id).collect();
        if !left.is_empty() {
            signal("KILL", &left);
        }
        drop(self.warmline.wait());
    }
}

/// Sends a signal by the shell's own `kill`.
fn signal(name: &str, ids: &[u32]) {
    let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
    let script = format!("kill -{name} {}", ids.join(" "));
    drop(
        Command::new("sh")
            .args(["-c", &script])
            .stderr(Stdio::null())
            .status(),
    );
}

/// Asks again and again until it is true or the time is over.
fn wait(limit: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let by = Instant::now() + limit;
    loop {
        if is_true() {
            return true;
        }
        if Instant::now() >= by {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The folder in which `npx` finds the pinned servers.
#[track_caller]
fn node_folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parts/node");
    let server = folder.join("node_modules/.bin/mcp-server-everything");
    assert!(server.exists(), "a real part is missing; run `make parts`");
    folder.canonicalize().unwrap()
}

const LONG_CALL: &[&str] = &[
    "call",
    "trigger-long-running-operation",
    "duration=120",
    "steps=120",
];

/// A49, P27, P28, reliability P34: whatever ends us ends the tree.
#[test]
fn a_server_under_npx_is_gone_however_warmline_ends() {
    for end in [End::Kill, End::Terminate, End::Interrupt] {
        let mut tree = Tree::start(
            LONG_CALL,
            &node_folder(),
            &["npx", "--no", "mcp-server-everything"],
        );
        tree.wait_for(&["npm", "node_modules/.bin/mcp-server-everything"]);
        tree.end(end);
    }
}

/// Deaf to the end of its input and to every signal that can be ignored, with a child that left
/// the process group, and a grandchild whose parent is gone.
const STUBBORN: &str = "trap '' TERM INT HUP
setsid sh -c 'trap \"\" TERM INT HUP; sleep 1001 & wait' &
(sh -c 'sleep 1002' &)
while :; do sleep 1003; done";

/// A49, P28, reliability P34: `kill -9` included.
#[test]
fn a_stubborn_tree_is_gone_when_warmline_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree = Tree::start(&["tools"], folder.path(), &["sh", "-c", STUBBORN]);
    tree.wait_for(&["sleep 1001", "sleep 1002", "sleep 1003"]);
    tree.end(End::Kill);
}

/// A19, P76: a call without a run leaves no process.
#[test]
fn a_call_that_ends_well_leaves_nothing_behind() {
    let command = ["npx", "--no", "mcp-server-everything"];
    let mut tree = Tree::start(&["call", "echo", "message=hello"], &node_folder(), &command);
    let status = tree.warmline.wait().unwrap();
    assert!(status.success(), "{status}");
    let holds = wait(GONE_WITHIN, || tree.processes().is_empty());
    assert!(holds, "{:#?}", tree.processes());
}
