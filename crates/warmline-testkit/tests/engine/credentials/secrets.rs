//! Where secrets come from, and where they never go.

use crate::prelude::*;

use warmline_engine::credentials::{CredentialHeader, CredentialSource, Secret};

use crate::credentials::fixture::{
    count, count_in, declared, engine, executed, saw_no_credential, sessions, shown, stateful,
};

/// A31: a secret header wins over a static one of the same name, and what was declared stays as it
/// was.
#[tokio::test]
async fn a_secret_header_wins_over_a_static_one() {
    let ledger = stateful();
    let plain = declared(&ledger)
        .header("Authorization", "Bearer static")
        .header("X-Team", "lamp");
    let secret = Secret::first_of([Secret::env("WARMLINE_TEST_NOT_SET"), Secret::new("secret")]);
    let none = Secret::env("WARMLINE_TEST_NOT_SET").optional();
    let table = [
        (plain.clone().bearer(secret), "Bearer secret"),
        (plain.clone().bearer(none), "Bearer static"),
        (plain, "Bearer static"),
    ];
    for (server, expected) in table {
        let warm = engine(server.clone());
        let shown = format!("{server:?}");
        let before = ledger.ledger().entries().len();
        let run = warm.begin_run();
        count_in(&run).await;
        run.end().await;
        for line in &ledger.ledger().entries()[before..] {
            assert_eq!(line.credential.as_deref(), Some(expected), "{shown}");
            assert_eq!(line.extra_headers["x-team"], "lamp");
        }
        assert_eq!(ledger.violations(), Vec::<String>::new(), "it comes once");
        assert_eq!(format!("{server:?}"), shown);
        assert!(!shown.contains("Bearer secret"), "{shown}");
        warm.close().await;
    }
}

/// A178: no token, no header.
#[tokio::test]
async fn without_a_token_no_header_is_sent() {
    let ledger = stateful();
    let secret = Secret::first_of([Secret::env("WARMLINE_TEST_NOT_SET"), Secret::new("")]);
    let warm = engine(declared(&ledger).bearer(secret.optional()));
    let run = warm.begin_run();
    count_in(&run).await;
    assert!(saw_no_credential(&ledger));
    run.end().await;
}

/// A177: the token of the call, then the variable, and the first that is there.
#[tokio::test]
async fn the_first_token_that_is_there_is_sent() {
    let ledger = stateful();
    // A variable that is set wherever tests run; a test may not set any.
    let variable = || Secret::env("PATH");
    let in_it = format!("Bearer {}", std::env::var("PATH").unwrap());
    let table = [
        (
            Secret::first_of([Secret::new("of-the-call"), variable()]),
            "Bearer of-the-call",
        ),
        (Secret::first_of([Secret::new(""), variable()]), &in_it),
    ];
    for (secret, expected) in table {
        let warm = engine(declared(&ledger).bearer(secret));
        let run = warm.begin_run();
        count_in(&run).await;
        let last = executed(&ledger, "counter").pop().unwrap();
        assert_eq!(last.credential.as_deref(), Some(expected));
        run.end().await;
    }
}

/// A175, A179: a token given with a call is a header, and no part of the arguments.
#[tokio::test]
async fn a_token_of_a_call_is_no_argument() {
    let ledger = stateful();
    let warm = Warmline::builder().build().unwrap();
    let server = Server::http("lamp", ledger.url()).bearer(Secret::new("canary"));
    let arguments = json!({ "city": "Bern" });
    let echoed = warm.once(server).call("echo", &arguments).await.unwrap();
    echoed.ok().unwrap();
    let line = executed(&ledger, "echo").pop().unwrap();
    assert_eq!(line.arguments, arguments);
    assert_eq!(line.credential.as_deref(), Some("Bearer canary"));
    warm.close().await;
}

/// A119: what a file says by now is what the server sees, after one refusal at the latest.
#[tokio::test]
async fn a_file_that_was_replaced_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "token-1\n").unwrap();
    let ledger = crate::credentials::fixture::guarded("token-1");
    let warm = engine(declared(&ledger).bearer(Secret::file(&file)));
    let run = warm.begin_run();
    assert_eq!(count_in(&run).await, 1);
    std::fs::write(&file, "token-2\n").unwrap();
    ledger.control().require_token("token-2");
    assert_eq!(count_in(&run).await, 2);
    assert_eq!(sessions(&ledger, "counter").len(), 1);
    run.end().await;
}

/// A60: each identity has a file of its own, and nobody gets another's.
#[tokio::test]
async fn each_identity_shows_its_own_token() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["alice", "bob"] {
        std::fs::write(folder.path().join(name), format!("of-{name}")).unwrap();
    }
    let ledger = stateful();
    let secret = Secret::file(folder.path().join("{identity}"));
    let key = CredentialHeader::new("Authorization", "Key {}").unwrap();
    let warm = engine(declared(&ledger).credential(CredentialSource::in_header(secret, key)));
    for name in ["alice", "bob"] {
        let server = warm.identity(name).server("lamp").unwrap();
        count(&server).await;
    }
    let tokens: Vec<String> = shown(&ledger, "counter").into_iter().collect();
    assert_eq!(tokens, ["Key of-alice", "Key of-bob"]);
    warm.close().await;
}

/// What the page of settings says of a credential command: it runs before the first request, and
/// again when the server refuses what it printed.
#[tokio::test]
async fn a_credential_command_runs_once_until_its_token_is_refused() {
    let ledger = stateful();
    let folder = tempfile::tempdir().unwrap();
    let noted = folder.path().join("runs");
    let script = format!("echo x >> {0}; echo token-$(wc -l < {0})", noted.display());
    let warm = engine(declared(&ledger).bearer(Secret::command(["sh", "-c", script.as_str()])));
    let runs = || std::fs::read_to_string(&noted).unwrap().lines().count();
    let run = warm.begin_run();
    for _ in 0..3 {
        count_in(&run).await;
    }
    assert_eq!(runs(), 1);
    ledger.control().require_token("token-2");
    for _ in 0..3 {
        count_in(&run).await;
    }
    assert_eq!(runs(), 2);
    run.end().await;
    warm.close().await;
}

/// How a server is there while its credential command thinks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Declared {
    Still,
    TakenAway,
    Nowhere,
}

/// reliability P25, I37: nothing of a closed engine runs: a command that still thinks about a token
/// is ended with all it started, also where its server was taken away meanwhile or is declared
/// nowhere.
#[tokio::test]
async fn a_credential_command_ends_with_its_engine() {
    for how in [Declared::Still, Declared::TakenAway, Declared::Nowhere] {
        let ledger = stateful();
        let folder = tempfile::tempdir().unwrap();
        let noted = folder.path().join("pid");
        let script = format!("echo $$ > {}; sleep 1000", noted.display());
        let server = declared(&ledger).bearer(Secret::command(["sh", "-c", script.as_str()]));
        let (warm, server) = if how == Declared::Nowhere {
            let warm = Warmline::builder().build().unwrap();
            let once = warm.once(server);
            (warm, once)
        } else {
            let warm = engine(server);
            let lamp = warm.server("lamp").unwrap();
            (warm, lamp)
        };
        let call = server.call("counter", json!({}));
        let error = call.timeout(Duration::from_secs(1)).await.unwrap_err();
        assert_eq!(error.code().as_str(), "deadline", "{error:?}");
        let pid = std::fs::read_to_string(&noted).unwrap();
        let place = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
        assert!(place.exists(), "{how:?}: the command thinks");
        if how == Declared::TakenAway {
            assert!(warm.remove_server("lamp"));
        }
        warm.close().await;
        // It was killed by now. What is dead and not yet fetched has no words any more.
        let has_words =
            || std::fs::read(place.join("cmdline")).is_ok_and(|words| !words.is_empty());
        until(&format!("{how:?}: the command ends"), || !has_words()).await;
    }
}
