//! A credential command: a program of the user that prints a token.
//!
//! It gets our whole environment, no input and no shell. Errors say how it ended and repeat none of
//! its output, which may hold a secret. It is ended with all that it started when it is done, prints
//! too much, or its caller gives up.

use std::collections::BTreeMap;

use tokio::io::{AsyncRead, AsyncReadExt};
use warmline_core::exchange::Diagnostic;
use zeroize::Zeroizing;

use super::source::{parse_token, process_environment};
use super::{MAX_SECRET_BYTES, Token, credential_unavailable};
use warmline_upstream::child::find_program;
pub(crate) use warmline_upstream::child::process::{ChildExit, Process, SpawnSpec};
use warmline_upstream::target::StdioConfig;

/// Runs the program and returns what it prints, trimmed.
pub(super) async fn run_command(server: &str, words: &[String]) -> Result<Token, Diagnostic> {
    let [program, args @ ..] = words else {
        return Err(credential_unavailable(format!(
            "the credential command of `{server}` names no program"
        )));
    };
    let failed = |why: String| {
        let what = format!("`{program}`, the credential command of `{server}`, failed");
        credential_unavailable(what).with_cause(why)
    };
    let mut environment = process_environment();
    let found = find_program::find_program(server, &program_reach(program, args), &mut environment)
        .await
        .map_err(|diagnostic| failed(diagnostic.message))?;
    let start = SpawnSpec {
        program: &found.path,
        args,
        environment: &environment,
        cwd: None,
        lifetime_token: None,
    };
    let (process, streams) = Process::spawn(start)
        .await
        .map_err(|error| failed(error.to_string()))?;
    drop(streams.stdin);
    let Some((text, exit)) = collect_output(process, streams.stdout, streams.stderr).await else {
        return Err(failed("it printed more than 64 KiB".to_owned()));
    };
    if exit != ChildExit::Code(0) {
        return Err(failed(exit.to_string()).with_hint(RUN_BY_HAND_HINT));
    }
    match std::str::from_utf8(&text).map(parse_token) {
        Ok(Some(token)) => Ok(token),
        Ok(None) => Err(failed("it printed nothing".to_owned())),
        Err(_) => Err(failed("what it printed is no text".to_owned())),
    }
}

/// What a command prints, and how it ends; none if it prints too much. All at once: a command blocks
/// if nobody reads its standard error, and its exit counts even if a process that it started keeps
/// the output open.
async fn collect_output(
    mut process: Process,
    stdout: impl AsyncRead + Unpin,
    mut stderr: impl AsyncRead + Unpin,
) -> Option<(Zeroizing<Vec<u8>>, ChildExit)> {
    let most = u64::try_from(MAX_SECRET_BYTES).unwrap_or(u64::MAX);
    let reading = async {
        let mut text = Zeroizing::new(Vec::new());
        // An output that breaks off has ended: the exit status says the rest.
        stdout.take(most + 1).read_to_end(&mut text).await.ok();
        (text.len() <= MAX_SECRET_BYTES).then_some(text).ok_or(())
    };
    let drained = async {
        let mut sink = tokio::io::sink();
        tokio::io::copy(&mut stderr, &mut sink).await.ok();
        Ok(())
    };
    let exited = async { Ok(process.wait_for_exit().await) };
    let (text, (), exit) = tokio::try_join!(reading, drained, exited).ok()?;
    Some((text, exit))
}

fn program_reach(program: &str, args: &[String]) -> StdioConfig {
    StdioConfig {
        program: program.to_owned(),
        args: args.to_vec(),
        env: BTreeMap::new(),
        env_pass: Vec::new(),
        cwd: None,
        base_env: None,
        substituted: BTreeMap::new(),
    }
}

const RUN_BY_HAND_HINT: &str =
    "run it by hand to see why: what it says is not repeated here, it may hold a secret";

#[cfg(test)]
mod tests;
