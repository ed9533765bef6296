//! HTTP, as little of it as the scripts need: one request on a connection of its own, and the
//! messages of its reply as they come.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// A reply that is being read.
pub(crate) struct Reply {
    pub(crate) status: u16,
    head: Vec<(String, String)>,
    body: BufReader<TcpStream>,
    /// What of a body that comes in chunks is read and not yet given away.
    read: Vec<u8>,
    over: bool,
}

/// Sends a message.
pub(crate) fn send(url: &str, verb: &str, headers: &[(String, String)], body: &[u8]) -> Reply {
    let rest = url.strip_prefix("http://").unwrap();
    let (authority, path) = rest.split_once('/').unwrap();
    let mut socket = TcpStream::connect(authority).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let mut head = format!("{verb} /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
    Reply::begin(BufReader::new(socket))
}

impl Reply {
    fn begin(mut body: BufReader<TcpStream>) -> Self {
        let status = line(&mut body).split(' ').nth(1).unwrap().parse().unwrap();
        let mut head = Vec::new();
        loop {
            let line = line(&mut body);
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            head.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Self {
            status,
            head,
            body,
            read: Vec::new(),
            over: false,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.head.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The next message: an event that has data, or the whole of a body that is not a stream.
    pub(crate) fn message(&mut self) -> Option<Vec<u8>> {
        let is_stream = self
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_stream {
            while self.more() {}
            let all = std::mem::take(&mut self.read);
            return (!all.is_empty()).then_some(all);
        }
        loop {
            while let Some(event) = self.event() {
                let data = data(&event);
                if !data.is_empty() {
                    return Some(data.into_bytes());
                }
            }
            if !self.more() {
                return None;
            }
        }
    }

    /// One event of what was read, whole.
    fn event(&mut self) -> Option<String> {
        let text = std::str::from_utf8(&self.read).ok()?;
        let ends = ["\r\n\r\n", "\n\n", "\r\r"];
        let (at, end) = ends
            .iter()
            .filter_map(|end| Some((text.find(end)?, end.len())))
            .min()?;
        let event = text.get(..at)?.to_owned();
        self.read.drain(..at + end);
        Some(event)
    }

    /// Reads on; says whether there was more.
    fn more(&mut self) -> bool {
        if self.over {
            return false;
        }
        if self.header("transfer-encoding").is_none() {
            self.over = true;
            let length = self
                .header("content-length")
                .map(|text| text.parse().unwrap());
            let read = self.body.by_ref().take(length.unwrap_or(u64::MAX));
            return { read }.read_to_end(&mut self.read).unwrap() > 0;
        }
        let size = u64::from_str_radix(line(&mut self.body).trim(), 16).unwrap_or(0);
        self.body
            .by_ref()
            .take(size)
            .read_to_end(&mut self.read)
            .unwrap();
        line(&mut self.body);
        self.over = size == 0;
        !self.over
    }
}

fn line(from: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    line
}

/// The data of an event.
fn data(event: &str) -> String {
    let lines = event.split(['\r', '\n']);
    let data: Vec<&str> = lines
        .filter_map(|line| line.strip_prefix("data:"))
        .map(|data| data.strip_prefix(' ').unwrap_or(data))
        .collect();
    data.join("\n")
}
