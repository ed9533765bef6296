//! Answers that a server gives as a stream of events are streams for its client, too; whoever reads
//! only JSON gets JSON.

use crate::prelude::*;

use super::raw_http::Event;

const OLDER: &str = "2025-06-18";
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

fn streaming(personality: Personality) -> Personality {
    personality.reply(ReplyFormat::Sse(SseFormat::resumable()))
}

async fn rest(mut stream: Response) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.event().await {
        events.push(event);
    }
    events
}

/// P88: one result is a stream where its server makes one of it. Its ids are ours,
/// and those who know it are given one before anything is said.
#[tokio::test]
async fn a_stream_of_the_server_is_a_stream_for_its_client() {
    let world = World::new(streaming(Personality::legacy())).await;
    let both = "application/json, text/event-stream";
    for (version, accepts, form, primed) in [
        (NEWEST, both, EVENTS, true),
        (NEWEST, EVENTS, EVENTS, true),
        (NEWEST, JSON, JSON, false),
        (OLDER, both, EVENTS, false),
        (OLDER, JSON, JSON, false),
    ] {
        let client = Legacy::greet(&world, PATH, version, json!({})).await;
        let asked = call(1, "counter", json!({}));
        let mut response = client.post_with(&[("Accept", accepts)], &asked).await;
        let row = format!("{version} {accepts}");
        assert_eq!(response.header("content-type"), Some(form), "{row}");
        if form == JSON {
            assert_eq!(response.json().await["id"], 1, "{row}");
        } else {
            let mut events = rest(response).await;
            let answer = events.pop().unwrap();
            assert_eq!(answer.message()["id"], 1, "{row}");
            assert!(answer.id.is_some(), "{row}");
            assert_eq!(events.len(), usize::from(primed), "{row}: {events:?}");
            assert!(events.iter().all(|event| event.data.is_empty()));
            assert!(events.iter().all(|event| event.retry.is_some()));
        }
        client.delete().await;
    }
    world.finish().await;
}

/// The same in the modern era, where nothing is taken up again and events have no ids.
#[tokio::test]
async fn a_stream_of_a_modern_server_is_one_for_its_client() {
    for (personality, form) in [
        (streaming(Personality::modern()), EVENTS),
        (Personality::modern(), JSON),
    ] {
        let world = World::new(personality).await;
        let asked = || modern::call("counter", json!({}));
        let back = asked().send(&world).await;
        assert_eq!(back.header("content-type"), Some(form), "{back:?}");
        let back = asked().set("Accept", JSON).send(&world).await;
        assert_eq!(back.header("content-type"), Some(JSON), "{back:?}");
        assert_eq!(back.json()["result"]["resultType"], "complete");
        world.finish().await;
    }
}

/// P88: a server that closes its stream in the middle of a call wants to be asked for the rest. A
/// client that knows how is let go as well, for as long as the server said; others stay.
#[tokio::test]
async fn a_server_that_lets_its_caller_go_lets_the_client_go() {
    for (version, leaves) in [(NEWEST, true), (OLDER, false)] {
        let world = World::new(streaming(Personality::legacy())).await;
        let client = Legacy::greet(&world, PATH, version, json!({})).await;
        let cut = FaultRule::new(Fault::Cut(CutPoint::AfterEvents(0), ConnectionEnd::Clean))
            .on_method("tools/call");
        world.inject(cut);
        let mut events = rest(client.post(&call(1, "counter", json!({}))).await).await;
        if leaves {
            let [primed, last] = events.as_slice() else {
                panic!("{events:?}");
            };
            assert!(last.data.is_empty() && last.id.is_none(), "{last:?}");
            let pause: u64 = last.retry.as_deref().unwrap().parse().unwrap();
            assert!(pause <= 50, "{pause}");
            events = rest(client.get(primed.id.as_deref()).await).await;
        }
        let answers: Vec<Value> = events.iter().map(Event::message).collect();
        assert_eq!(answers.len(), 1, "{version}: {answers:?}");
        assert_eq!(answers[0]["id"], 1);
        assert_eq!(world.server.ledger().executions("counter"), 1);
        world.finish_with(&client).await;
    }
}

/// A wire that breaks is another thing: it is mended behind the client's back.
#[tokio::test]
async fn a_stream_that_breaks_upstream_stays_whole_for_the_client() {
    let world = World::new(streaming(Personality::legacy())).await;
    let client = Legacy::greet(&world, PATH, NEWEST, json!({})).await;
    for end in [ConnectionEnd::Fin, ConnectionEnd::Rst] {
        let cut = FaultRule::new(Fault::Cut(CutPoint::AfterEvents(0), end)).on_method("tools/call");
        world.inject(cut);
        let events = rest(client.post(&call(1, "counter", json!({}))).await).await;
        assert_eq!(events.last().unwrap().message()["id"], 1, "{end:?}");
    }
    world.finish_with(&client).await;
}

/// A client on a pipe could not come back: it is never let go.
#[tokio::test]
async fn a_client_on_a_pipe_stays_to_the_end() {
    let world = World::new(streaming(Personality::legacy())).await;
    let (mut input, theirs) = tokio::io::duplex(1 << 16);
    let (ours, output) = tokio::io::duplex(1 << 16);
    let pipe = StdioClient::new(world.warm.clone(), GatewayOptions::default()).for_server(LEDGER);
    let serving = tokio::spawn(pipe.serve(theirs, ours));
    let mut lines = BufReader::new(output).lines();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    input
        .write_all(format!("{}\n", initialize(NEWEST, json!({}))).as_bytes())
        .await
        .unwrap();
    assert!(lines.next_line().await.unwrap().is_some());
    let cut = FaultRule::new(Fault::Cut(CutPoint::AfterEvents(0), ConnectionEnd::Clean))
        .on_method("tools/call");
    world.inject(cut);
    let asked = format!("{ready}\n{}\n", call(1, "counter", json!({})));
    input.write_all(asked.as_bytes()).await.unwrap();
    let answer: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    assert_eq!(
        answer["result"]["structuredContent"]["count"], 1,
        "{answer}"
    );
    drop(input);
    serving.await.unwrap().unwrap();
    world.finish().await;
}
