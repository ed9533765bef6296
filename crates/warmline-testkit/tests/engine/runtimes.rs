//! Several runtimes in one program: sessions do not depend on the one that opened them.
//!
//! A runtime of one thread rests between two `block_on`, as it does in programs that wrap
//! asynchronous code for others that block. What was begun in it rests with it.

use crate::prelude::*;

use tokio::runtime::Runtime;

use super::fixture::payments;

/// A runtime that rests whenever nobody waits in it.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn scene() -> (LedgerServer, Warmline) {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let declared = Server::http(LEDGER, server.url());
    let warm = Warmline::builder().server(declared).build().unwrap();
    (server, warm)
}

/// P75: a session that was opened in a runtime which rests now is used from another one, on a
/// connection of that one: no answer waits for somebody to drive the first.
#[test]
fn a_session_is_used_while_the_runtime_of_its_opener_rests() {
    let (server, warm) = scene();
    let (first, second) = (runtime(), runtime());
    let run = warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    assert_eq!(first.block_on(count(&ledger)), 1);
    second.block_on(async {
        for account in ["a", "b"] {
            let paid = payment(&ledger, account).timeout(secs(20)).await;
            paid.unwrap().ok().unwrap();
            assert_eq!(payments(&server, account), 1);
        }
        assert_eq!(count(&ledger).await, 2);
    });
    assert_eq!(first.block_on(count(&ledger)), 3, "it is the same session");
    assert_eq!(server.counts().initializes, 1);
    second.block_on(run.end());
    second.block_on(warm.close());
}

/// P75: whoever joined an opening that rests with the runtime of its opener carries out its own.
#[test]
fn an_opening_that_rests_with_its_runtime_is_passed_on() {
    let (server, warm) = scene();
    let slow = Fault::Delay(1_500, FaultTiming::BeforeExecuting);
    server.inject(FaultRule::new(slow).on_method("initialize").times(1));
    let (first, second) = (runtime(), runtime());
    let run = warm.begin_run();
    let ledger = run.server(LEDGER).unwrap();
    let given_up = first.block_on(async {
        let call = ledger.call("counter", json!({})).into_future();
        tokio::time::timeout(Duration::from_millis(300), call).await
    });
    assert!(given_up.is_err(), "it takes longer");
    let began = Instant::now();
    second.block_on(async {
        let call = ledger.call("counter", json!({})).timeout(secs(60));
        call.await.unwrap().ok().unwrap();
    });
    assert!(began.elapsed() < secs(25), "{:?}", began.elapsed());
    second.block_on(run.end());
    second.block_on(warm.close());
}

/// P75: a program is served by the runtime that it was started in. While that rests nothing is sent
/// to it, and callers in other runtimes are told so soon; when it goes on, so does the session.
#[test]
fn a_program_whose_runtime_rests_is_told_of_and_not_lost() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let declared = program.declared("child");
    let warm = Warmline::builder().server(declared).build().unwrap();
    let (first, second) = (runtime(), runtime());
    let run = warm.begin_run();
    let child = run.server("child").unwrap();
    assert_eq!(first.block_on(count(&child)), 1);
    let began = Instant::now();
    let error = second.block_on(async {
        let call = child.call("counter", json!({})).timeout(secs(120));
        call.await.unwrap_err()
    });
    assert_eq!(error.delivery(), Delivery::Unsent, "{error:?}");
    assert!(error.hint().unwrap().contains("runtime"), "{error:?}");
    assert!(began.elapsed() < secs(30), "{:?}", began.elapsed());
    assert_eq!(first.block_on(count(&child)), 2);
    assert_eq!(program.starts(), 1);
    first.block_on(run.end());
    first.block_on(warm.close());
    first.block_on(program.gone());
}
