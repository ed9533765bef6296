//! Sources that fail or hang: a typed error, nothing sent, nothing lost.

use crate::prelude::*;

use warmline_engine::credentials::{CredentialSource, Secret};

use crate::credentials::fixture::{count_in, declared, engine, stateful};

/// Bad input: a credential command that fails, hangs or prints what cannot be sent.
#[tokio::test]
async fn a_source_that_fails_or_hangs_is_a_typed_error_and_nothing_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let table = [
        (
            Secret::command(["/bin/sh", "-c", "echo canary >&2; exit 4"]),
            "exit status 4",
        ),
        (Secret::command(["sleep", "1000"]), "gave no answer in"),
        (
            Secret::command(["printf", "canary\\ncanary"]),
            "no header can carry",
        ),
        (Secret::command(["/does/not/exist"]), "/does/not/exist"),
        (
            Secret::env("WARMLINE_TEST_NOT_SET"),
            "WARMLINE_TEST_NOT_SET",
        ),
        (Secret::file(folder.path().join("missing")), "no such file"),
    ];
    for (secret, words) in table {
        let ledger = stateful();
        let source = CredentialSource::bearer(secret).with_timeout(Duration::from_millis(500));
        let warm = engine(declared(&ledger).credential(source));
        let run = warm.begin_run();
        let server = run.server("lamp").unwrap();
        let error = server.call("counter", json!({})).await.unwrap_err();
        assert_eq!(error.code(), Code::CredentialUnavailable, "{words}");
        assert_eq!(error.delivery(), Delivery::Unsent);
        assert!(error.hint().is_some());
        let said = format!("{error:?}");
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("canary"), "{said}");
        assert_eq!(ledger.counts().requests, 0, "nothing was sent");
        run.end().await;
    }
}

/// Bad input: a source that comes back is used by the next call; what was kept is still there.
#[tokio::test]
async fn a_source_that_comes_back_is_used_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let ledger = stateful();
    let warm = engine(declared(&ledger).bearer(Secret::file(&file)));
    let run = warm.begin_run();
    let server = run.server("lamp").unwrap();
    let error = server.call("counter", json!({})).await.unwrap_err();
    assert_eq!(error.code(), Code::CredentialUnavailable);
    std::fs::write(&file, "token").unwrap();
    assert_eq!(count_in(&run).await, 1);
    assert_eq!(count_in(&run).await, 2);
    run.end().await;
}
