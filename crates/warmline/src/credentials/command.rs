//! A credential command: a program of the user that prints a token.
//!
//! What it gets: our whole environment, no input, and no shell.
//! What is told of it: how it ended. Its words are repeated nowhere, neither what it prints nor
//!   what it writes to its standard error: it handles secrets, and nobody can tell which of its
//!   words are one.
//! What it may not do: take for ever, print without end, or leave anything running. It is ended
//!   with all it started when it is done, when it prints too much, and when whoever asked gives
//!   up, which drops it.

use std::collections::BTreeMap;

use tokio::io::{AsyncRead, AsyncReadExt};
use warmline_core::exchange::Trouble;
use zeroize::Zeroizing;

use super::source::{environment, token_of};
use super::{SECRET_BYTES, Token, unavailable};
use crate::upstream::path;
use crate::upstream::process::{Exit, Process, Start};
use crate::upstream::server::StdioReach;

/// What the program prints, without the blanks around it.
pub(super) async fn run(server: &str, words: &[String]) -> Result<Token, Trouble> {
    let [program, args @ ..] = words else {
        return Err(unavailable(format!(
            "the credential command of `{server}` names no program"
        )));
    };
    let failed = |why: String| {
        let what = format!("`{program}`, the credential command of `{server}`, failed");
        unavailable(what).because(why)
    };
    let mut environment = environment();
    let found = path::find(server, &reach(program, args), &mut environment)
        .await
        .map_err(|trouble| failed(trouble.what))?;
    let start = Start {
        program: &found.path,
        args,
        environment: &environment,
        cwd: None,
        tether: None,
    };
    let (process, streams) = Process::start(start)
        .await
        .map_err(|error| failed(error.to_string()))?;
    drop(streams.stdin);
    match Ended::of(process, streams.stdout, streams.stderr).await {
        Ended::Printed(text, Exit::Code(0)) => match std::str::from_utf8(&text).map(token_of) {
            Ok(Some(token)) => Ok(token),
            Ok(None) => Err(failed("it printed nothing".to_owned())),
            Err(_) => Err(failed("what it printed is no text".to_owned())),
        },
        Ended::Printed(_, exit) => Err(failed(exit.to_string()).hint(BY_HAND)),
        Ended::PrintedTooMuch => Err(failed("it printed more than 64 KiB".to_owned())),
    }
}

/// How a command ended.
enum Ended {
    Printed(Zeroizing<Vec<u8>>, Exit),
    PrintedTooMuch,
}

impl Ended {
    /// All three at once: a command whose standard error nobody reads would stop there, and one
    /// that left somebody behind with its output open ends all the same.
    async fn of(
        mut process: Process,
        stdout: impl AsyncRead + Unpin,
        mut stderr: impl AsyncRead + Unpin,
    ) -> Self {
        let most = u64::try_from(SECRET_BYTES).unwrap_or(u64::MAX);
        let reading = async {
            let mut text = Zeroizing::new(Vec::new());
            // An output that breaks off is one that ended: the exit status says the rest.
            stdout.take(most + 1).read_to_end(&mut text).await.ok();
            (text.len() <= SECRET_BYTES).then_some(text).ok_or(())
        };
        let drained = async {
            tokio::io::copy(&mut stderr, &mut tokio::io::sink())
                .await
                .ok();
            Ok(())
        };
        let exited = async { Ok(process.exited().await) };
        match tokio::try_join!(reading, drained, exited) {
            Ok((text, (), exit)) => Self::Printed(text, exit),
            Err(()) => Self::PrintedTooMuch,
        }
    }
}

fn reach(program: &str, args: &[String]) -> StdioReach {
    StdioReach {
        program: program.to_owned(),
        args: args.to_vec(),
        env: BTreeMap::new(),
        env_pass: Vec::new(),
        cwd: None,
        surroundings: None,
        filled: BTreeMap::new(),
    }
}

/// What to do about one that failed: only there its words are seen.
const BY_HAND: &str =
    "run it by hand to see why: what it says is not repeated here, it may hold a secret";

#[cfg(test)]
mod tests;
