//! What the pages say of servers whose sessions died.

use crate::prelude::*;

/// How the one server stands, by the page that tells whether we are ready.
async fn stands(world: &World) -> String {
    let ops = world.gateway.ops_address().unwrap();
    let mut response = raw_http::get(ops, "/readyz").await;
    let ready: Value = response.json().await;
    assert_eq!((response.status, &ready["ready"]), (200, &json!(true)));
    assert_eq!(ready["servers"][0]["server"], LEDGER);
    ready["servers"][0]["state"].as_str().unwrap().to_owned()
}

/// Lets time pass until the server stands like this, and no longer than a few checks of its health.
async fn comes_to_stand(world: &World, expected: &str) {
    for _ in 0..30 {
        if stands(world).await == expected {
            return;
        }
        pass(Duration::from_secs(10)).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to be {expected}");
}

/// P52: readiness says of each server how it really stands: one whose sessions all died is not shown
/// as well, though nobody calls it, and one that came back is.
#[tokio::test]
async fn readiness_tells_the_truth_about_sessions_that_died() {
    let world = World::with(Personality::legacy(), watched).await;
    assert_eq!(stands(&world).await, "untried");
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    client.count().await;
    assert_eq!(stands(&world).await, "ok");
    world.server.stop();
    world.control().forget_sessions();
    comes_to_stand(&world, "degraded").await;
    world.server.start_again().unwrap();
    comes_to_stand(&world, "ok").await;
    assert_eq!(client.count().await, 1);
    world.finish_with(&client).await;
}

/// One call of a server by hand.
async fn echo(world: &World, server: &str) -> Value {
    let path = format!("/servers/{server}/mcp");
    let message = call(1, "echo", json!({}));
    let mut reply = raw_http::post(world.gateway.address(), &path, &[], &message).await;
    reply.answer().await
}

/// P52, reliability O24: a credential that is not there, or whose command fails, has a line in the log
/// that says why without a word of the command, and is what the pages say went wrong last; once it is
/// there that is over.
#[tokio::test]
async fn a_missing_credential_is_told_and_shown() {
    let (book, _guard) = Logbook::open();
    let folder = tempfile::tempdir().unwrap();
    let (file, fails) = (folder.path().join("token"), folder.path().join("fails"));
    fs::write(&fails, "#!/bin/sh\necho said-by-the-command\nexit 3\n").unwrap();
    let ledger = LedgerServer::start(Personality::legacy().token("there-now")).unwrap();
    let shell = ["sh".to_owned(), fails.display().to_string()];
    let by_command = Server::http("command", ledger.url()).bearer(Secret::command(shell));
    let by_file = Server::http(LEDGER, ledger.url()).bearer(Secret::file(&file));
    let built = Warmline::builder().servers([by_file, by_command]);
    let world = World::around(ledger, built.build().unwrap(), |options, _| {
        watched(options)
    })
    .await;
    let failure = async |name: &str| {
        let ops = world.gateway.ops_address().unwrap();
        let page: Value = raw_http::get(ops, "/servers").await.json().await;
        let servers = page["servers"].as_array().unwrap().clone();
        let mut servers = servers.into_iter();
        let server = servers.find(|server| server["server"] == name).unwrap();
        (server["state"].clone(), server["last_failure"].clone())
    };
    for name in [LEDGER, "command"] {
        for _ in 0..3 {
            let refused = echo(&world, name).await;
            let code = &refused["error"]["data"]["warmline"]["code"];
            assert_eq!(code, "credential-unavailable");
        }
        let (state, last) = failure(name).await;
        assert_eq!(last["code"], "credential-unavailable", "{name}");
        assert_eq!((&state, &last["in_a_row"]), (&json!("degraded"), &json!(3)));
        let mut told = book.lines_with(&format!("server=\"{name}\""));
        told.retain(|line| line.starts_with("WARN"));
        let [line] = told.as_slice() else {
            panic!("not one line of {name}: {:#?}", book.lines());
        };
        assert!(line.contains("credential-unavailable"), "{line}");
    }
    assert!(!book.lines().concat().contains("said-by-the-command"));
    fs::write(&file, "there-now").unwrap();
    let answered = echo(&world, LEDGER).await;
    assert!(answered["result"].is_object(), "{answered}");
    let (state, last) = failure(LEDGER).await;
    assert_eq!((&state, &last["in_a_row"]), (&json!("ok"), &json!(0)));
    world.finish().await;
}
