//! Real servers that are killed with `kill -9` in the middle of a run and started again: the next
//! call heals, its result says what is gone, and the run goes on.

use crate::prelude::*;
use warmline::ToolResult;
use warmline_engine::events::{Event, EventItem, EventSubscription};

use super::stateful_server::{REAL, Remembers, Stateful};

/// What a healed call says: the sentence for the model first, then the tool's own words.
fn tells_of_the_loss(result: &ToolResult, stateful: &Stateful) {
    assert!(result.state_lost(), "{result:?}");
    assert!(result.generation() > 1, "{result:?}");
    let text = result.text();
    let (sentence, own) = text.split_once('\n').unwrap();
    assert!(sentence.contains("gone"), "{sentence}");
    assert_eq!(own, "1", "the tool itself begins anew");
    assert_eq!(stateful.remembers, Remembers::Count);
}

/// The loss was told to whoever listens.
async fn healed(events: &mut EventSubscription) {
    loop {
        let heard = events.next().await.unwrap();
        if let EventItem::Event(Event::SessionHealed {
            from, state_lost, ..
        }) = heard
        {
            assert_eq!((from, state_lost), (1, true));
            return;
        }
    }
}

async fn bump(run: &Run) -> Result<ToolResult, warmline::Error> {
    run.server(REAL).unwrap().call("bump", json!({})).await
}

/// Two calls, `kill -9`, a call while nobody is there, the server again, and two calls more.
async fn heals_and_tells(program: &Program, path: &str) {
    let mut running = Running::announced(program);
    running.url = running.url.replace("/mcp", path);
    let stateful = Stateful::running(&running, Remembers::Count);
    let mut events = stateful.warm.events();
    let run = stateful.warm.begin_run();
    for wanted in 1..=2 {
        assert_eq!(stateful.step_in(&run).await, wanted);
    }
    running.kill();
    let error = bump(&run).await.unwrap_err();
    let holds = error.delivery().is_safe_to_retry();
    assert!(holds, "nobody was there: {error:?}");
    running.url = running.url.replace(path, "/mcp");
    running.start_again(program);
    tells_of_the_loss(&bump(&run).await.unwrap(), &stateful);
    healed(&mut events).await;
    let after = bump(&run).await.unwrap();
    assert_eq!((after.state_lost(), after.text().as_str()), (false, "2"));
    run.end().await;
    stateful.finish().await;
}

/// A48, A120, A129: servers over HTTP, one of them on its leg that keeps state.
#[tokio::test]
async fn servers_over_http_are_healed_after_kill_9() {
    for program in [
        node("counter-v1.mjs"),
        python("mcp1", "counter_mcp1.py"),
        python("fastmcp3", "counter_fastmcp.py"),
        python("fastmcp4", "counter_fastmcp.py"),
    ] {
        heals_and_tells(&program.with("http"), "/mcp").await;
    }
}

/// A48, A129, P8: a server of two endpoints, whose session ends with its stream.
#[tokio::test]
async fn a_server_of_two_endpoints_is_healed_after_kill_9() {
    heals_and_tells(&python("mcp1", "counter_mcp1.py").with("sse"), "/sse").await;
}

/// A48, A129: a child that is killed is a session that is lost; the next call starts another.
#[tokio::test]
async fn a_real_process_is_healed_after_kill_9() {
    let stateful = Stateful::program(&node("counter-v1.mjs"), Remembers::Count);
    let mut events = stateful.warm.events();
    let run = stateful.warm.begin_run();
    for wanted in 1..=2 {
        assert_eq!(stateful.step_in(&run).await, wanted);
    }
    stateful.kill_processes().await;
    tells_of_the_loss(&bump(&run).await.unwrap(), &stateful);
    healed(&mut events).await;
    let after = bump(&run).await.unwrap();
    assert_eq!((after.state_lost(), after.text().as_str()), (false, "2"));
    run.end().await;
    stateful.finish().await;
}
