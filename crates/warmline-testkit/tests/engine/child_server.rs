//! A server that is a program, as a story declares it.

use warmline::{Server, Warmline};
use warmline_upstream::TransportConfig;

use super::stdio_program::Program;

impl Program {
    /// How an engine starts it, under this name.
    pub(crate) fn declared(&self, name: &str) -> Server {
        let TransportConfig::Stdio(reach) = self.server().transport else {
            panic!("a program is started, not reached");
        };
        let words = std::iter::once(reach.program).chain(reach.args);
        let mut declared = Server::stdio(name, words);
        for (variable, value) in reach.env {
            declared = declared.env(variable, value);
        }
        declared
    }

    /// An engine that has it, as `child`.
    pub(crate) fn engine(&self) -> Warmline {
        let child = self.declared("child");
        Warmline::builder().server(child).build().unwrap()
    }

    /// How many processes of it were started so far.
    pub(crate) fn starts(&self) -> usize {
        self.lives().len()
    }

    /// How often all its processes paid for an account.
    pub(crate) fn payments(&self, account: &str) -> usize {
        let lives = self.lives();
        let lines = lives.iter().flatten();
        lines
            .filter(|line| line["phase"] == "commit" && line["arguments"]["account"] == account)
            .count()
    }
}
