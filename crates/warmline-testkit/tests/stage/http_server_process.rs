//! A real HTTP server that runs for one test and is gone with it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::real_parts::Program;

/// How long a server may take to say where it is, on a machine with much else to do.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// A server in a process group of its own; dropping it ends the group.
#[derive(Debug)]
pub(crate) struct Running {
    /// Where it answers.
    pub(crate) url: String,
    child: Child,
    folder: TempDir,
}

impl Running {
    /// Starts a server that prints `ready <url>`, and waits until it does.
    pub(crate) fn announced(program: &Program) -> Self {
        let mut running = Self::spawn(program);
        let stdout = running.child.stdout.take().unwrap();
        let (tell, told) = mpsc::channel();
        // Reads on to the end, so that the server never waits for somebody to listen.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(url) = line.strip_prefix("ready ") {
                    drop(tell.send(url.to_owned()));
                }
            }
        });
        match told.recv_timeout(READY_WITHIN) {
            Ok(url) => running.url = url,
            Err(_) => panic!("{program:?} is not ready; it said:\n{}", running.said()),
        }
        running
    }

    /// Starts a server that takes its port as an argument, and waits until it accepts connections.
    pub(crate) fn on_port(program: impl Fn(u16) -> Program) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let program = program(port);
        let mut running = Self::spawn(&program);
        let patience = READY_WITHIN.as_millis() / 50;
        let accepts = (0..patience).any(|_| {
            thread::sleep(Duration::from_millis(50));
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(
            accepts,
            "{program:?} is not ready; it said:\n{}",
            running.said()
        );
        running.url = format!("http://127.0.0.1:{port}/mcp");
        running
    }

    /// Starts a server that takes its port as its last argument again, where it was.
    pub(crate) fn start_again(&mut self, program: &Program) {
        let place = self.url.clone();
        let port = place
            .rsplit(':')
            .next()
            .and_then(|rest| rest.split('/').next());
        *self = Self::announced(&program.clone().with(port.unwrap()));
        assert_eq!(self.url, place);
    }

    /// Ends it as `kill -9` does: at once, with everything it remembered.
    pub(crate) fn kill(&mut self) {
        if let Ok(id) = i32::try_from(self.child.id())
            && let Some(group) = Pid::from_raw(id)
        {
            // A group that is gone already needs no killing.
            kill_process_group(group, Signal::KILL).ok();
        }
        drop(self.child.wait());
    }

    fn spawn(program: &Program) -> Self {
        let folder = TempDir::new().unwrap();
        let stderr = File::create(folder.path().join("stderr")).unwrap();
        let child = Command::new(&program.path)
            .args(&program.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{program:?} does not start: {error}"));
        Self {
            url: String::new(),
            child,
            folder,
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}
