//! Programs behind the gateway: as many processes as sessions live, whatever clients do.

use crate::prelude::*;

use futures_util::future::join_all;

use super::census::until;

const PATH: &str = "/servers/child/mcp";
const CLIENTS: usize = 40;
/// Of all clients together.
const REQUESTS: usize = 10_000;

async fn gateway_of(server: Server) -> (Warmline, Gateway) {
    let builder = Warmline::builder().server(server).limits(|limits| {
        limits.processes = 100;
        limits.processes_per_identity = 100;
    });
    let warm = builder.build().unwrap();
    let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
    (warm, gateway)
}

async fn greet(at: SocketAddr) -> Legacy {
    Legacy::greet_at(at, PATH, NEWEST, json!({}), Vec::new()).await
}

/// Uses a session, and leaves it in one way or another; gives it back where it is still there.
async fn use_and_leave(at: SocketAddr, number: usize) -> Option<Legacy> {
    let client = greet(at).await;
    for expected in (1..).take(REQUESTS / CLIENTS) {
        assert_eq!(client.count().await, expected);
    }
    match number % 5 {
        // With a word.
        0 => {
            client.delete().await;
            return None;
        },
        // In the middle of a call that is not answered yet.
        1 => {
            let slow = call(1, "slow", json!({ "ms": 500 }));
            let left = tokio::time::timeout(Duration::from_millis(100), client.post(&slow));
            drop(left.await);
        },
        // In the middle of a stream.
        2 => {
            let mut steps = call(1, "progress", json!({ "steps": 20, "pause_ms": 10 }));
            steps["params"]["_meta"] = json!({ "progressToken": "mine" });
            let mut stream = client.post(&steps).await;
            assert!(stream.message().await.is_some());
        },
        // From its standing stream.
        3 => assert_eq!(client.get(None).await.status, 200),
        // Without a word.
        _ => {},
    }
    Some(client)
}

/// P26: after ten thousand requests of clients that leave in every way there is one process for each
/// session that lives, and none once all are ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_a_process_for_each_live_session_and_no_other() {
    let program = Program::ledger(&["--personality", "legacy"]);
    let (warm, gateway) = gateway_of(program.declared("child")).await;
    let at = gateway.address();
    let left = join_all((0..CLIENTS).map(|number| use_and_leave(at, number))).await;
    let live: Vec<Legacy> = left.into_iter().flatten().collect();
    assert_eq!(live.len(), CLIENTS * 4 / 5);
    let as_many = || program.alive() == live.len() && warm.snapshot().sessions.len() == live.len();
    until("each live session has its process", as_many).await;
    // Calls outside of any session have a process for their own time.
    let nobodys = Legacy {
        ticket: String::new(),
        ..live[0].clone()
    };
    for _ in 0..3 {
        assert_eq!(nobodys.count().await, 1);
    }
    until("they leave none behind", as_many).await;
    for client in &live {
        client.delete().await;
    }
    program.gone().await;
    gateway.stop().await;
    warm.close().await;
}

/// reliability T16: where nobody is asked who they are, a call that names no run has a program for
/// its own time: nobody could come back to it. In a run it is kept.
#[tokio::test]
async fn a_call_of_nobody_leaves_no_process_behind() {
    let program = Program::ledger(&["--personality", "modern"]);
    let declared = program.declared("child");
    let builder = Warmline::builder().server(declared).limits(|limits| {
        limits.processes = 2;
    });
    let warm = builder.build().unwrap();
    let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
    let count = |path: &str| {
        let asked = modern::call("counter", json!({})).at(path);
        asked.send_to(gateway.address())
    };
    for _ in 0..5 {
        assert_eq!(count(PATH).await.refusal(), (200, 0));
    }
    let is_so = || program.alive() == 0 && warm.snapshot().sessions.is_empty();
    until("they leave none behind", is_so).await;
    for _ in 0..2 {
        let answer = count("/runs/r1/servers/child/mcp").await;
        assert_eq!(answer.refusal(), (200, 0));
    }
    assert_eq!(program.alive(), 1, "one is kept for the run");
    gateway.stop().await;
    warm.close().await;
    program.gone().await;
}

/// P32: a program that is declared for all runs once, however many clients there are; any other one
/// runs for each of them alone.
#[tokio::test]
async fn a_program_for_all_runs_once_and_others_stay_private() {
    for (per, counts) in [(Some(SessionScope::Server), [1, 2, 3]), (None, [1, 1, 1])] {
        let program = Program::ledger(&["--personality", "legacy"]);
        let declared = program.declared("child");
        let (warm, gateway) = gateway_of(match per {
            Some(per) => declared.session_per(per),
            None => declared,
        })
        .await;
        let mut clients = Vec::new();
        for expected in counts {
            let client = greet(gateway.address()).await;
            assert_eq!(client.count().await, expected, "{per:?}");
            clients.push(client);
        }
        let processes = if per.is_some() { 1 } else { clients.len() };
        until("no other is left", || program.alive() == processes).await;
        for client in &clients {
            client.delete().await;
        }
        gateway.stop().await;
        warm.close().await;
        program.gone().await;
    }
}

/// What is told on a stream of this client, from where it broke or from now on; once nobody else
/// reads it.
async fn taken(client: &Legacy, last: Option<&str>) -> Response {
    loop {
        let stream = client.get(last).await;
        if stream.status != 409 {
            assert_eq!(stream.status, 200);
            return stream;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// mcp-spec T32: a program says nothing twice, and is not held up while a client is away. Who takes
/// its stream up where it broke is told that a list changed meanwhile.
#[tokio::test]
async fn a_list_of_a_program_that_changed_is_told_to_who_comes_back() {
    const CHANGED: &str = "notifications/tools/list_changed";
    for path in ["/runs/r/servers/child/mcp", "/runs/r/mcp"] {
        let program = Program::ledger(&["--personality", "legacy"]);
        let (warm, gateway) = gateway_of(program.declared("child")).await;
        let at = gateway.address();
        let client = Legacy::greet_at(at, path, NEWEST, json!({}), Vec::new()).await;
        let other = "/runs/r/servers/child/mcp";
        let other = Legacy::greet_at(at, other, NEWEST, json!({}), Vec::new()).await;
        other.count().await;
        let mut stream = client.get(None).await;
        let first = stream.event().await.unwrap().id.unwrap();
        drop(stream);
        // It is not read any more, and another one is: only that is told.
        let mut meanwhile = taken(&client, None).await;
        let telling = async {
            loop {
                other.call("change_tools", json!({})).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = meanwhile.heard(CHANGED) => {},
            () = telling => {},
        }
        drop(meanwhile);
        let mut again = taken(&client, Some(&first)).await;
        let missed = again.heard(CHANGED).await;
        assert_eq!(missed["method"], CHANGED);
        for client in [client, other] {
            client.delete().await;
        }
        gateway.stop().await;
        warm.close().await;
        program.gone().await;
    }
}
