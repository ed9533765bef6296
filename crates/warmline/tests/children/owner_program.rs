//! Programs that own children: this binary under another first argument.

use std::process::ExitCode;

use warmline_core::era::Era;
use warmline_core::exchange::Diagnostic;
use warmline_upstream::{
    ClientProfile, ServerTarget, Session, StdioConfig, TransportConfig, Upstream,
};

use crate::{on_runtime, process_scan};

/// `HOLD mark count`: opens sessions to stubborn servers, says so, and waits to be killed.
pub(crate) const HOLD: &str = "__hold";
/// `FIND program`: opens two sessions to a program, and says how it was found.
pub(crate) const FIND: &str = "__find";

/// A legacy server as a shell script. `$after` runs after the handshake.
pub(crate) const SERVER: &str = r#"
answer() { printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$1"; }
serve() {
    while IFS= read -r line; do
        id=${line#*\"id\":}; id=${id%%[,\}]*}
        case $line in
            *'"initialize"'*) answer '"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}' ;;
            *'"tools/list"'*) answer '"result":{"tools":[]}' ;;
            *'"tools/call"'*) eval "$on_call" ;;
            *'"id":'*) answer '"error":{"code":-32601,"message":"method not found"}' ;;
        esac
    done
}
"#;

/// Ignores TERM and the end of its input, and leaves a detached shell with two children.
pub(crate) const STUBBORN: &str = r#"
trap '' TERM INT HUP
setsid sh -c 'trap "" TERM HUP; sleep 1000 & sleep 1000 & while :; do wait; sleep 1; done' &
sh -c 'sleep 1000; :' &
serve
while :; do sleep 1; done
"#;

/// The processes of a stubborn tree: the shell, the detached shell and its two, and two more.
pub(crate) const STUBBORN_PROCESSES: usize = 6;

/// A server that runs this script, with its tree marked.
pub(crate) fn server(script: &str, mark: &str) -> ServerTarget {
    let mut server = ServerTarget::stdio("tree", "sh", ["-c", &format!("{SERVER}{script}")]);
    server.era = Some(Era::Legacy);
    reach(&mut server)
        .env
        .insert(process_scan::MARK.to_owned(), mark.to_owned());
    server
}

pub(crate) fn reach(server: &mut ServerTarget) -> &mut StdioConfig {
    let TransportConfig::Stdio(reach) = &mut server.transport else {
        panic!("a program is reached over stdio");
    };
    reach
}

pub(crate) async fn open(server: &ServerTarget) -> Result<Session, Diagnostic> {
    let upstream = Upstream::new();
    upstream.open(server, &ClientProfile::default()).await
}

/// Opens the sessions and waits for ever.
pub(crate) fn hold(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let mark = arguments.next().expect("a mark");
    let count: usize = arguments
        .next()
        .and_then(|count| count.parse().ok())
        .expect("a count");
    on_runtime(async {
        let mut sessions = Vec::new();
        for _ in 0..count {
            sessions.push(open(&server(STUBBORN, &mark)).await.expect("a session"));
        }
        println!("ready");
        std::future::pending::<()>().await;
    });
    ExitCode::SUCCESS
}

/// Opens one session and then another, and tells about the program of the last.
pub(crate) fn find(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let program = arguments.next().expect("a program");
    on_runtime(async {
        let mut server = server("serve", "none");
        reach(&mut server).program = program;
        let first = open(&server).await.expect("a session");
        first.close().await;
        let session = open(&server).await.expect("another session");
        let report = session.child().expect("a child");
        session.close().await;
        println!(
            "{} {} {}",
            report.program_source,
            report.program.display(),
            report.path
        );
    });
    ExitCode::SUCCESS
}
