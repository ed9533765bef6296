//! A program spoken to over its own pipes, without anything between.

use crate::prelude::*;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::client::{hello, message, result};

/// A program that runs for one list.
struct Pipe {
    child: Child,
    up: ChildStdin,
    down: BufReader<ChildStdout>,
}

/// The list of a program's tools, in the bytes it came in.
pub(crate) fn tools(program: &Program, variables: &[(String, String)], era: Era) -> String {
    let mut child = Command::new(&program.path)
        .args(&program.args)
        .envs(variables.iter().cloned())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let up = child.stdin.take().unwrap();
    let down = BufReader::new(child.stdout.take().unwrap());
    let mut pipe = Pipe { child, up, down };
    if era == Era::Legacy {
        pipe.request(era, "initialize", hello());
        pipe.say(&message(era, None, "notifications/initialized", json!({})));
    }
    let tools = pipe.request(era, "tools/list", json!({}));
    pipe.end();
    tools
}

impl Pipe {
    fn say(&mut self, message: &Value) {
        writeln!(self.up, "{message}").unwrap();
        self.up.flush().unwrap();
    }

    /// The result of a request; what else is said on the way is not asked for here.
    fn request(&mut self, era: Era, method: &str, params: Value) -> String {
        self.say(&message(era, Some(1), method, params));
        loop {
            let mut line = String::new();
            let read = self.down.read_line(&mut line).unwrap();
            assert!(read > 0, "the program ended");
            if let Some(result) = result(&line) {
                return result;
            }
        }
    }

    /// Closes the pipes, which every program of these tests takes for its end.
    fn end(mut self) {
        drop(self.up);
        self.child.wait().unwrap();
    }
}
