//! What a command and the background gateway say to each other: one of them may be of before, as
//! long as both call themselves by one version.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::before::{self, Lines, add_shape, folder};
use crate::fake::Fake;
use crate::home::{BINARY, Home, admin};

/// A background gateway; it goes with the test.
struct Up {
    home: Home,
    said: Value,
}

impl Up {
    fn start() -> Self {
        let home = Home::new().with("KEY", "secret");
        let said = serde_json::from_str(home.json(&["up"]).trim()).unwrap();
        Self { home, said }
    }

    fn socket(&self) -> PathBuf {
        self.home.state().join("up/socket")
    }

    /// Hands in what a command of before handed in.
    fn join(&self, name: &str, url: &str) -> Value {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        let version = self.said["version"].as_str().unwrap();
        let body = text
            .replace("[PROGRAM]", BINARY)
            .replace("[HOME]", self.home.path().to_str().unwrap())
            .replace("[URL]", url)
            .replace("[VERSION]", version);
        let joined = admin(&self.socket(), "POST", "/admin/join", &body);
        assert_eq!(joined.status, 200, "{name}: {}", joined.body);
        joined.json()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.home.run(&["down", "--now"]);
    }
}

#[test]
fn the_gateway_understands_a_command_of_before() {
    let (up, fake) = (Up::start(), Fake::start());
    let mut lines = Lines::new();
    let url = format!("{}/legacy/mcp", fake.base);
    for (name, body) in [("program", "join-program.json"), ("url", "join-url.json")] {
        let mut joined = up.join(body, &url);
        let is_there = joined["path"]
            .as_str()
            .unwrap()
            .starts_with("/runs/r/servers/");
        assert!(is_there, "{joined}");
        // What the handshake got differs between servers.
        joined["evidence"] = joined["evidence"][0].take();
        add_shape(name, &joined, &mut lines);
    }
    before::same("join-replies.txt", &lines);
}

/// Stands before the socket of a gateway, and keeps what commands say to it.
fn overhear(socket: &Path) -> Arc<Mutex<Vec<u8>>> {
    let behind = socket.with_file_name("behind");
    std::fs::rename(socket, &behind).unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
    let hears = Arc::clone(&heard);
    std::thread::spawn(move || {
        for front in listener.incoming() {
            let (mut front, mut back) = (front.unwrap(), UnixStream::connect(&behind).unwrap());
            let (mut up, mut down) = (front.try_clone().unwrap(), back.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut front));
            let hears = Arc::clone(&hears);
            std::thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(length @ 1..) = up.read(&mut piece) {
                    hears.lock().unwrap().extend_from_slice(&piece[..length]);
                    down.write_all(&piece[..length]).unwrap();
                }
            });
        }
    });
    heard
}

#[test]
fn a_command_says_what_a_gateway_of_before_understands() {
    let (up, fake) = (Up::start(), Fake::start());
    let heard = overhear(&up.socket());
    let file = format!(
        "[servers.whole]\nurl = '{}/legacy/mcp'\nheaders = {{ X-Team = 'lamp' }}\n\
         max_idle = '1min'\nallow = ['ask']\n[servers.whole.tools.ask]\nrepeatable = true\n\
         session_per = 'run'\ncall_timeout = '1min'\ncall_idle_timeout = '20s'\n",
        fake.base
    );
    up.home.write("whole.toml", &file);
    let program = [
        "call",
        "counter",
        "--run",
        "r",
        "--env",
        "MODE=x",
        "--env-pass",
        "KEY",
    ];
    let program = [&program[..], &["--", BINARY, "demo-server", "--stdio"]].concat();
    assert_eq!(up.home.run(&program).status.code(), Some(0));
    let url = [
        "call",
        "whole",
        "ask",
        "--run",
        "r",
        "--config",
        "whole.toml",
    ];
    let url = [&url[..], &["--header", "X-Who: me"]].concat();
    assert_eq!(up.home.run(&url).status.code(), Some(0));
    let heard = String::from_utf8(heard.lock().unwrap().clone()).unwrap();
    let mut lines = Lines::new();
    for joining in heard.split("POST /admin/join ").skip(1) {
        let (_, body) = joining.split_once("\r\n\r\n").unwrap();
        let mut bodies = serde_json::Deserializer::from_str(body).into_iter::<Value>();
        add_shape("join", &bodies.next().unwrap().unwrap(), &mut lines);
    }
    before::same("join-requests.txt", &lines);
}
