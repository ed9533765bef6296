//! Streams of somebody who is turned out, or whose server is: all of them end, and soon.

use crate::prelude::*;

use super::access_rules::reload_as;
use super::modern::raw_client::call as modern_call;

const PAGE: &str = "ledger://page/1";
/// What is told without a word of anybody is told by then.
const SOON: Duration = Duration::from_secs(5);

/// Nobody may use the server.
fn closed_to_all() -> AccessRules {
    let everybody = AccessRule {
        subject: AccessSubject::Everyone,
        tools: None,
    };
    let rules = DeclaredAccess {
        allow: Vec::new(),
        deny: vec![everybody],
    };
    AccessRules::none().with_server(LEDGER, rules)
}

/// Somebody who hears of a resource in a run, at this place.
async fn subscribed(world: &World, path: &str) -> (Legacy, Response) {
    let client = world.greet_as_alice(path).await;
    let wanted = json!({
        "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": { "uri": PAGE },
    });
    let answer: Value = client.post(&wanted).await.answer().await;
    assert!(answer["result"].is_object(), "{answer}");
    let stream = client.get(None).await;
    assert_eq!(stream.status, 200);
    (client, stream)
}

/// Reads a stream to its end, which comes soon; gives what was told.
async fn rest_of(mut stream: Response, what: &str) -> Vec<Value> {
    let reading = async {
        let mut told = Vec::new();
        while let Some(message) = stream.message().await {
            told.push(message);
        }
        told
    };
    let read = tokio::time::timeout(SOON, reading).await;
    read.unwrap_or_else(|_| panic!("{what}: the stream goes on"))
}

/// P106: a server that is switched off by a reload tells nobody anything any more, neither at its own
/// place nor among all servers, and nobody listens to it anew; what runs had there is closed when a
/// drain is over. Switched on again, it serves.
#[tokio::test]
async fn a_server_that_is_switched_off_falls_silent() {
    let world = World::of_alice(Personality::legacy()).await;
    let control = world.control();
    let server = || Server::http(LEDGER, world.server.url());
    reload_as(&world, &|| vec![server()], AccessRules::none());
    let (client, own) = subscribed(&world, &format!("/runs/one{PATH}")).await;
    let (_merged, mut among_all) = subscribed(&world, "/runs/two/mcp").await;
    streams_held(&control, 2).await;
    control.update_resource(PAGE);
    among_all.heard("notifications/resources/updated").await;
    reload_as(
        &world,
        &|| vec![server().enabled(false)],
        AccessRules::none(),
    );
    rest_of(own, "its own place").await;
    streams_held(&control, 0).await;
    assert_eq!(client.get(None).await.status, 404);
    let holds = world.server.counts().open_sessions > 0;
    assert!(holds, "a drain takes a while");
    pass(Duration::from_secs(24)).await;
    let is_so = || world.server.counts().open_sessions == 0;
    until("no session is left", is_so).await;
    reload_as(&world, &|| vec![server()], AccessRules::none());
    assert_eq!(client.get(None).await.status, 200);
    assert_eq!(client.count().await, 1);
    world.finish().await;
}

/// P106: a server that is switched off and on again within the time of a drain lost nothing.
#[tokio::test]
async fn a_server_that_is_soon_switched_on_again_keeps_its_sessions() {
    let world = World::of_alice(Personality::legacy()).await;
    let server = || Server::http(LEDGER, world.server.url());
    let client = world.greet_as_alice(&format!("/runs/one{PATH}")).await;
    assert_eq!(client.count().await, 1);
    reload_as(
        &world,
        &|| vec![server().enabled(false)],
        AccessRules::none(),
    );
    reload_as(&world, &|| vec![server()], AccessRules::none());
    pass(Duration::from_secs(24)).await;
    assert_eq!(client.count().await, 2);
    world.finish().await;
}

/// P106: the stream of a server that was taken away ends when nothing is answered there any more.
#[tokio::test]
async fn the_stream_of_a_removed_server_ends_with_it() {
    let world = World::of_alice(Personality::legacy()).await;
    let (client, stream) = subscribed(&world, PATH).await;
    reload_as(&world, &Vec::new, AccessRules::none());
    pass(Duration::from_secs(24)).await;
    rest_of(stream, "removed").await;
    assert_eq!(client.get(None).await.status, 404);
    world.finish().await;
}

/// How somebody is turned out.
#[derive(Clone, Copy, Debug)]
enum Out {
    /// Their token counts no longer.
    Token,
    /// A rule denies them the server.
    Rule,
    /// The server is switched off.
    Off,
}

/// P59: the stream that answers a call ends as all others do when its caller is turned out, also
/// where it was taken up again, and at the place of all servers; what its tool still says reaches
/// nobody.
#[tokio::test]
async fn the_stream_that_answers_a_call_ends_when_its_caller_is_turned_out() {
    let places = [(PATH, "progress"), ("/mcp", "ledger__progress")];
    let outs = [Out::Token, Out::Rule, Out::Off];
    for (out, (path, tool)) in outs.map(|out| places.map(|place| (out, place))).concat() {
        let world = World::of_alice(Personality::dual()).await;
        let server = || Server::http(LEDGER, world.server.url());
        let legacy = world.greet_as_alice(path).await;
        let arguments = json!({ "steps": 200, "pause_ms": 100 });
        let asked = |id: i64| {
            let mut asked = call(id, tool, arguments.clone());
            asked["params"]["_meta"] = json!({ "progressToken": id });
            asked
        };
        let mut streams = vec![legacy.post(&asked(1)).await];
        let mut broken = legacy.post(&asked(2)).await;
        let first = loop {
            let event = broken.event().await.unwrap();
            if !event.data.is_empty() {
                break event;
            }
        };
        drop(broken);
        streams.push(legacy.get(first.id.as_deref()).await);
        for stream in &mut streams {
            stream.heard("notifications/progress").await;
        }
        let modern = modern_call("progress", arguments.clone())
            .with("Authorization", "Bearer token-of-alice")
            .changed(|body| body["params"]["_meta"]["progressToken"] = json!(1));
        let mut modern = modern.begin(&world).await;
        assert!(modern.message().await.is_some(), "{out:?}");
        match out {
            Out::Token => world.gateway.set_auth(Auth::tokens(Vec::new())),
            Out::Rule => reload_as(&world, &|| vec![server()], closed_to_all()),
            Out::Off => reload_as(
                &world,
                &|| vec![server().enabled(false)],
                AccessRules::none(),
            ),
        }
        for (number, stream) in streams.into_iter().enumerate() {
            let told = rest_of(stream, &format!("{out:?} {number}")).await;
            let holds = told.iter().all(|one| one.get("result").is_none());
            assert!(holds, "{told:?}");
        }
        let reading = async {
            while let Some(message) = modern.message().await {
                assert!(message.get("result").is_none(), "{message}");
            }
        };
        let ended = tokio::time::timeout(SOON, reading).await;
        assert!(ended.is_ok(), "{out:?}: the modern stream goes on");
        world.gateway.stop().await;
        world.warm.close().await;
    }
}
