//! Replies that clients do not read: what is held of them has a limit, however their server answers.

use crate::prelude::*;

use super::ops_disconnects::{ask, becomes};

const BYTES: &str = "warmline_buffer_bytes";
/// So many calls are made of which nothing is read.
const CALLS: usize = 6;

/// A gateway that holds so many bytes of replies.
async fn world(personality: Personality, most: u32) -> World {
    World::with(personality, |options| {
        let mut options = watched(options);
        options.limits.max_request_bytes = most as usize;
        options
    })
    .await
}

/// Calls a tool so many times, and reads nothing of what it answers.
async fn leave_unread(client: &Legacy, tool: &str, arguments: Value) -> Vec<TcpStream> {
    let mut unread = Vec::new();
    for id in 0..CALLS {
        let id = i64::try_from(id).unwrap();
        unread.push(ask(client, &call(id, tool, arguments.clone())).await);
    }
    unread
}

/// Once nobody holds them any more, there is room again.
async fn all_go_on(world: World, unread: Vec<TcpStream>, client: &Legacy, count: i64) {
    drop(unread);
    becomes(&world, BYTES, ("kind", "replies"), 0.0).await;
    assert_eq!(client.count().await, count);
    world.finish_with(client).await;
}

/// Waits until there is no room for another reply of so many bytes.
async fn is_full(world: &World, most: u32, reply: u32) {
    let looking = async {
        while held(world).await + f64::from(reply) <= f64::from(most) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(20), looking).await;
    assert!(found.is_ok(), "{} of {most} are held", held(world).await);
}

async fn held(world: &World) -> f64 {
    let page = scraped(&world.gateway).await;
    page.number(BYTES, &[("kind", "replies")])
}

/// DESIGN 4, reliability I25: replies that clients do not read have a limit in all. Beyond it they
/// wait at their server, small ones pass, and all go on when the others are gone.
#[tokio::test]
async fn replies_that_nobody_reads_have_a_limit() {
    let most = 16_u32 << 20;
    let world = world(Personality::legacy(), most).await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let giant = FaultRule::new(Fault::GiantReply(6 << 20))
        .on_tool("echo")
        .always();
    world.inject(giant);
    let unread = leave_unread(&client, "echo", json!({})).await;
    let done = || world.server.ledger().executions("echo");
    until("all were executed", || done() == CALLS).await;
    assert_eq!(client.count().await, 1);
    let held = held(&world).await;
    assert!(held > 0.0 && held <= f64::from(most), "{held}");
    all_go_on(world, unread, &client, 2).await;
}

/// DESIGN 4, reliability I25: the same for replies that come as events.
#[tokio::test]
async fn events_that_nobody_reads_have_a_limit() {
    let (most, event) = (12_u32 << 20, 4_u32 << 20);
    let events = Personality::legacy().reply(ReplyFormat::Sse(SseFormat::plain()));
    let world = world(events, most).await;
    let client = Legacy::greet(&world, PATH, "2025-11-25", json!({})).await;
    let unread = leave_unread(&client, "big", json!({ "bytes": event - 1_024 })).await;
    let done = || world.server.ledger().executions("big");
    until("all were executed", || done() == CALLS).await;
    is_full(&world, most, event).await;
    assert_eq!(client.count().await, 1);
    let held = held(&world).await;
    assert!(held <= f64::from(most), "{held}");
    all_go_on(world, unread, &client, 2).await;
}

/// DESIGN 4, reliability I25: the same for those of a program. Whoever calls another one hears of
/// nothing.
#[tokio::test]
async fn replies_of_a_program_that_nobody_reads_have_a_limit() {
    const CHILD: &str = "/servers/child/mcp";
    let (most, reply) = (16_u32 << 20, 6_u32 << 20);
    let world = world(Personality::legacy(), most).await;
    let ledger = env!("CARGO_BIN_EXE_warmline-ledger");
    let child = Server::stdio("child", [ledger, "--stdio", "--personality", "legacy"]);
    world.add_server(child);
    let client = Legacy::greet(&world, CHILD, "2025-11-25", json!({})).await;
    let unread = leave_unread(&client, "big", json!({ "bytes": reply })).await;
    is_full(&world, most, reply).await;
    let other = Legacy::greet(&world, CHILD, "2025-11-25", json!({})).await;
    assert_eq!(other.count().await, 1);
    let held = held(&world).await;
    assert!(held <= f64::from(most), "{held}");
    other.delete().await;
    all_go_on(world, unread, &client, 1).await;
}
