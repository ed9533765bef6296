use std::path::Path;
use std::time::Duration;

use warmline_core::error::code::Code;

use super::*;
use warmline_platform::clock;

/// Tests that wait for the end of something give up after this long.
const PATIENCE: Duration = Duration::from_secs(20);

async fn run_words(words: &[&str]) -> Result<Token, Diagnostic> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    clock::timeout(PATIENCE, run_command("github", &words))
        .await
        .expect("it must end")
}

async fn until(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            clock::sleep(Duration::from_millis(5)).await;
        }
    };
    clock::timeout(PATIENCE, waiting)
        .await
        .expect("it must become true");
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn what_a_command_prints_is_the_token_and_no_shell_reads_it() {
    let table: [(&[&str], &str); 4] = [
        (&["printf", "%s", "token-1"], "token-1"),
        (&["printf", "\\n token-2 \\r\\n"], "token-2"),
        (&["printf", "%s", "$HOME; echo `id`"], "$HOME; echo `id`"),
        (&["/bin/sh", "-c", "cat; echo token-3"], "token-3"),
    ];
    for (words, token) in table {
        assert_eq!(*run_words(words).await.unwrap().value, token);
    }
}

/// reliability T9: a credential command that fails is told by how it ended and what to do. Nothing
/// it printed is repeated, on either output: its words may hold a secret.
#[tokio::test]
async fn a_command_that_fails_is_a_typed_error_without_its_words() {
    let table: [(&[&str], &str); 7] = [
        (&[], ""),
        (&["/bin/sh", "-c", "echo canary; exit 3"], "exit status 3"),
        (
            &[
                "/bin/sh",
                "-c",
                "echo first >&2; echo 'canary is no login' >&2; exit 1",
            ],
            "exit status 1",
        ),
        (
            &["/bin/sh", "-c", "echo canary >&2; kill -9 $$"],
            "signal 9",
        ),
        (&["true"], "it printed nothing"),
        (&["printf", "\\377"], "what it printed is no text"),
        (
            &["head", "-c", "70000", "/dev/zero"],
            "it printed more than 64 KiB",
        ),
    ];
    for (words, why) in table {
        let diagnostic = run_words(words).await.unwrap_err();
        assert_eq!(diagnostic.code, Code::CredentialUnavailable, "{words:?}");
        assert_eq!(diagnostic.cause.as_deref().unwrap_or_default(), why);
        assert!(!format!("{diagnostic:?}").contains("canary"));
        if why.contains("exit") || why.contains("signal") {
            let hint = diagnostic.hint.unwrap_or_default();
            assert!(hint.contains("run it by hand"), "{words:?}: {hint}");
        }
    }
    let missing = run_words(&["/does/not/exist"]).await.unwrap_err();
    assert_eq!(missing.code, Code::CredentialUnavailable);
    assert!(missing.cause.unwrap().contains("/does/not/exist"));
}

/// It never stops printing, and never has more than the limit read of it.
#[tokio::test]
async fn a_command_that_never_stops_printing_is_ended() {
    let diagnostic = run_words(&["yes"]).await.unwrap_err();
    assert_eq!(diagnostic.cause.unwrap(), "it printed more than 64 KiB");
}

/// A command whose standard error nobody read would stop at 64 KiB.
#[tokio::test]
async fn a_command_that_says_much_on_stderr_does_not_stop() {
    let script = "head -c 300000 /dev/zero >&2; echo token";
    let token = run_words(&["/bin/sh", "-c", script]).await.unwrap();
    assert_eq!(*token.value, "token");
}

/// P27: a command that is given up is ended with all it started.
#[tokio::test]
async fn a_command_that_is_given_up_ends_with_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script =
        "sleep 1000 & echo $! > \"$0.new\"; echo $$ >> \"$0.new\"; mv \"$0.new\" \"$0\"; wait";
    let words: Vec<String> = ["/bin/sh", "-c", script, pids.to_str().unwrap()]
        .map(str::to_owned)
        .to_vec();
    let hanging = clock::spawn(
        "hanging",
        async move { run_command("github", &words).await },
    );
    until(|| Path::exists(&pids)).await;
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    let text = std::fs::read_to_string(&pids).unwrap();
    assert_eq!(text.lines().count(), 2);
    for pid in text.lines() {
        until(|| !is_alive(pid)).await;
    }
}

/// A command that leaves somebody behind who holds its output is done when it is done.
#[tokio::test]
async fn what_a_command_leaves_behind_holds_nobody_up() {
    let token = run_words(&["/bin/sh", "-c", "sleep 1000 & echo token"]).await;
    assert_eq!(*token.unwrap().value, "token");
}
