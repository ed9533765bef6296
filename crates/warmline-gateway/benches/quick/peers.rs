//! What stands between the clients and the fake server: nothing, nginx, Warmline.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::load::Speaks;

/// A program in front of the server, or the server itself.
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) at: SocketAddr,
    pub(crate) path: &'static str,
    pub(crate) speaks: Speaks,
    /// The processes whose time counts as its own.
    pub(crate) processes: Vec<u32>,
}

/// A process of ours that ends with this.
pub(crate) struct Ours(pub(crate) Child);

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts this program again in another role; it says on its first line where it listens.
pub(crate) fn role(words: &[&str]) -> (Ours, SocketAddr) {
    let program = std::env::current_exe().unwrap();
    let child = Command::new(program)
        .args(words)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Ours(child.unwrap());
    let mut line = String::new();
    let said = child.0.stdout.take().unwrap();
    BufReader::new(said).read_line(&mut line).unwrap();
    let address = line.trim().parse();
    let address = address.unwrap_or_else(|_| panic!("{words:?} said {line:?}"));
    (child, address)
}

/// A plain reverse proxy with kept connections, if nginx is installed.
pub(crate) fn nginx(target: SocketAddr, scratch: &std::path::Path) -> Option<(Ours, SocketAddr)> {
    let at = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let folder = scratch.display();
    let configuration = format!(
        "daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
         events {{ worker_connections 4096; }}
         http {{
           access_log off; keepalive_requests 100000000;
           client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
           fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
           upstream fake {{ server {target}; keepalive 64; keepalive_requests 100000000; }}
           server {{ listen {at}; location / {{
             proxy_pass http://fake; proxy_http_version 1.1;
             proxy_set_header Connection \"\"; proxy_buffering off; }} }}
         }}"
    );
    let file = scratch.join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    let child = Command::new("nginx")
        .arg("-c")
        .arg(&file)
        .arg("-p")
        .arg(scratch)
        .spawn();
    let child = Ours(child.ok()?);
    let by = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(at).is_err() {
        assert!(Instant::now() < by, "nginx does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((child, at))
}

/// How long these processes have run on a processor, all their threads together.
pub(crate) fn processor_time(processes: &[u32]) -> Duration {
    let nanoseconds = processes.iter().flat_map(|process| {
        let threads = fs::read_dir(format!("/proc/{process}/task"));
        let threads = threads.into_iter().flatten().flatten();
        threads.filter_map(|thread| {
            let said = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            said.split_whitespace().next()?.parse::<u64>().ok()
        })
    });
    Duration::from_nanos(nanoseconds.sum())
}
