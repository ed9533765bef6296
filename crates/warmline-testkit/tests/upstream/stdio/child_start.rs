//! The start of a child (rows D97 to D99): what keeps it from starting, and what it is given.

use crate::prelude::*;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::child_session::{Child, result, tool};

async fn refused(server: &ServerTarget) -> Diagnostic {
    let opened = Upstream::new()
        .open(server, &ClientProfile::default())
        .await;
    no_task_left().await;
    opened.err().unwrap()
}

fn file(folder: &Path, mode: u32, content: &[u8]) -> ServerTarget {
    let path = folder.join(format!("program-{}", fastrand::u64(..)));
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    ServerTarget::stdio("child", path.to_str().unwrap(), [""; 0])
}

/// P34, P105: a program that cannot be started is an error of its opening.
#[tokio::test]
async fn a_program_that_cannot_be_started_is_an_error_that_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let missing = ServerTarget::stdio("child", "/no/such/program", [""; 0]);
    let unheard_of = ServerTarget::stdio("child", "no-such-program-anywhere", [""; 0]);
    let rows: [(&str, ServerTarget, Reason); 5] = [
        ("a path that leads nowhere", missing, Reason::ProgramMissing),
        (
            "a name that nobody knows",
            unheard_of,
            Reason::ProgramMissing,
        ),
        (
            "not executable",
            file(folder.path(), 0o644, b"#!/bin/sh\n"),
            Reason::Spawn,
        ),
        (
            "no interpreter",
            file(folder.path(), 0o755, b"#!/no/such/interpreter\n"),
            Reason::ProgramMissing,
        ),
        (
            "not a program",
            file(folder.path(), 0o755, b"\x7fELF and then nothing"),
            Reason::Spawn,
        ),
    ];
    for (story, server, reason) in rows {
        let trouble = refused(&server).await;
        let found = (trouble.reason, trouble.code);
        assert_eq!(found, (reason, Code::CannotReach), "{story}: {trouble:?}");
        assert!(trouble.message.contains("child"), "{story}: {trouble}");
        assert!(trouble.hint.is_some() || trouble.cause.is_some(), "{story}");
    }
}

#[tokio::test]
async fn a_folder_that_does_not_exist_is_an_error_that_names_it() {
    let mut server = ServerTarget::stdio("child", "sh", ["-c", "exit 0"]);
    if let TransportConfig::Stdio(reach) = &mut server.transport {
        reach.cwd = Some("/no/such/folder".into());
    }
    let trouble = refused(&server).await;
    assert_eq!(trouble.code, Code::CannotReach, "{trouble:?}");
    let page = format!("{trouble} {:?} {:?}", trouble.cause, trouble.hint);
    assert!(page.contains("/no/such/folder"), "{page}");
}

/// A36, reliability P31, reliability T10, reliability T12: a child gets what is listed for it.
#[tokio::test]
async fn a_child_gets_the_listed_variables_and_what_the_configuration_adds() {
    let program = env!("CARGO_BIN_EXE_warmline-ledger");
    let mut server = ServerTarget::stdio("child", program, ["--stdio"]);
    if let TransportConfig::Stdio(reach) = &mut server.transport {
        reach.env.insert("MODE".to_owned(), "quiet".to_owned());
        reach.env_pass.push("CARGO_MANIFEST_DIR".to_owned());
        reach.env_pass.push("NOT_SET_ANYWHERE".to_owned());
    }
    let session = Upstream::new()
        .open(&server, &ClientProfile::default())
        .await
        .unwrap();
    let answer = result(session.call(tool("env", json!({})), &()).await);
    let names = answer["structuredContent"]["names"]
        .as_array()
        .unwrap()
        .iter();
    let given: BTreeSet<String> = names
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();

    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut expected: BTreeSet<String> = ours
        .filter(|name| LISTED.contains(&name.as_str()) || name.starts_with("LC_"))
        .collect();
    expected.extend(["MODE".to_owned(), "CARGO_MANIFEST_DIR".to_owned()]);
    assert_eq!(given, expected);
    session.close().await;
    drop(session);
    no_task_left().await;
}

/// A36: command, arguments, values and folder arrive exactly. The value is too short to be struck
/// out of what the program says.
#[tokio::test]
async fn folder_arguments_and_values_reach_the_child_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"printf '%s|%s|%s|%s|%s\n' "$(pwd -P)" "$#" "$1" "$2" "$VALUE" >&2; hear"#;
    let program = Program::script(script);
    let mut server = ServerTarget {
        era: Some(Era::Legacy),
        ..program.server()
    };
    if let TransportConfig::Stdio(reach) = &mut server.transport {
        reach
            .args
            .extend(["a  b".to_owned(), "$HOME;*\"'".to_owned()]);
        reach.env.insert("VALUE".to_owned(), "=$y z".to_owned());
        reach.cwd = Some(folder.path().to_owned());
    }
    let trouble = refused(&server).await;
    let place = folder.path().canonicalize().unwrap();
    let said = format!("{}|2|a  b|$HOME;*\"'|=$y z", place.display());
    assert_eq!(trouble.cause.as_deref(), Some(said.as_str()));
    program.gone().await;
}

/// Run by the test below, in a process of its own with few descriptors.
#[tokio::test]
#[ignore = "needs a process with few descriptors"]
async fn sessions_are_opened_until_descriptors_run_out() {
    assert!(
        std::env::var_os("FEW_DESCRIPTORS").is_some(),
        "run by `a_machine_without_descriptors_is_told_from_a_broken_program`"
    );
    let mut held = Vec::new();
    let trouble = loop {
        let program = Program::ledger(&[]);
        match Upstream::new()
            .open(&program.server(), &ClientProfile::default())
            .await
        {
            Ok(session) => held.push(Child { program, session }),
            Err(trouble) => break trouble,
        }
        assert!(held.len() < 60, "they must run out");
    };
    let expected = (Reason::LocalResources, Code::CannotReach);
    assert_eq!((trouble.reason, trouble.code), expected, "{trouble:?}");
    // The others are not harmed, and there is room again when one ends.
    let last = held.pop().unwrap();
    last.works().await;
    last.session.close().await;
    drop(last);
    let program = Program::ledger(&[]);
    drop(
        Upstream::new()
            .open(&program.server(), &ClientProfile::default())
            .await
            .unwrap(),
    );
    drop(held);
    no_task_left().await;
}

/// P34, P92: a machine at its limit fails that opening alone.
#[test]
fn a_machine_without_descriptors_is_told_from_a_broken_program() {
    let test = "stdio::child_start::sessions_are_opened_until_descriptors_run_out";
    let output = Command::new("sh")
        .args([
            "-c",
            r#"ulimit -n 64; exec "$0" --exact --ignored --nocapture "$1""#,
        ])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env("FEW_DESCRIPTORS", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    let holds = output.status.success() && said.contains("1 passed");
    assert!(holds, "{said}");
}

/// What every child gets, where we have it.
const LISTED: &[&str] = &[
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "USER",
    "LANG",
    "TMPDIR",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];
