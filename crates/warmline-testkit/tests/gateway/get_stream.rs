//! Standing streams that somebody still reads, whatever comes to an end around them.

use crate::prelude::*;

use warmline_store::FileStore;

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// A world of Alice's whose sessions are written down, as they are wherever a restart is survived.
async fn world_with_records(declare: impl FnOnce(Server) -> Server) -> (World, TempDir) {
    let folder = TempDir::new().unwrap();
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let warm = Warmline::builder()
        .server(declare(Server::http(LEDGER, server.url())))
        .store(FileStore::in_folder(folder.path()))
        .build()
        .unwrap();
    let world = World::around(server, warm, |options, vault| {
        known(options, vault, &["alice"])
    });
    (world.await, folder)
}

async fn subscribe(client: &Legacy, uri: &str) {
    let message = json!({
        "jsonrpc": "2.0", "id": 2, "method": "resources/subscribe", "params": { "uri": uri },
    });
    let answer: Value = client.post(&message).await.answer().await;
    assert!(answer["result"].is_object(), "{answer}");
}

async fn read_to_its_end(mut standing: Response) {
    while standing.event().await.is_some() {}
}

/// P81, A146: a client that listens before it calls for the first time is heard of, whoever came
/// before it: the session that its call opens is listened to.
#[tokio::test]
async fn a_client_that_listens_before_it_calls_hears_of_lists() {
    let (world, _folder) = world_with_records(|server| server).await;
    let control = world.control();
    let first = world.greet_as_alice(PATH).await;
    first.count().await;
    let second = world.greet_as_alice(PATH).await;
    let mut standing = second.get(None).await;
    assert!(standing.event().await.is_some(), "it has begun");
    second.count().await;
    streams_held(&control, 1).await;
    control.change_tools();
    standing.heard(TOOLS_CHANGED).await;
    first.delete().await;
    world.finish_with(&second).await;
}

/// P90: a session that takes the place of a lost one is listened to as the lost one was, also where
/// it is written down before anybody gets it.
#[tokio::test]
async fn a_healed_session_is_listened_to() {
    let (world, _folder) = world_with_records(|server| server).await;
    let control = world.control();
    let client = world.greet_as_alice(PATH).await;
    subscribe(&client, "note:///a").await;
    let mut standing = client.get(None).await;
    streams_held(&control, 1).await;
    control.forget_sessions();
    // It is looked for once more, and is not there.
    let ledger = world.server.ledger();
    while ledger.messages_received("GET") == 1 {
        pass(Duration::from_secs(1)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    client.count().await;
    streams_held(&control, 1).await;
    control.update_resource("note:///a");
    standing.heard("notifications/resources/updated").await;
    world.finish_with(&client).await;
}

/// How a client of Alice's comes to its end while it still reads.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// It ends its session.
    ItsSession,
    /// Somebody ends the run that it is in.
    ItsRun,
}

/// mcp-spec T32: where the client through whose session all others hear of lists comes to its end,
/// another takes its part, even if the first one never closes its stream.
#[tokio::test]
async fn the_end_of_one_client_makes_no_other_deaf() {
    for ends in [Ends::ItsSession, Ends::ItsRun] {
        let world = World::of_alice(Personality::legacy()).await;
        let control = world.control();
        let path = match ends {
            Ends::ItsSession => PATH.to_owned(),
            Ends::ItsRun => format!("/runs/trip{PATH}"),
        };
        let first = world.greet_as_alice(&path).await;
        first.count().await;
        let of_first = first.get(None).await;
        streams_held(&control, 1).await;
        let second = world.greet_as_alice(PATH).await;
        second.count().await;
        let mut of_second = second.get(None).await;
        assert!(of_second.event().await.is_some(), "it has begun");
        match ends {
            Ends::ItsSession => {
                first.delete().await;
            },
            Ends::ItsRun => {
                let shown = [("Authorization", "Bearer token-of-alice")];
                let address = world.gateway.address();
                let ended = request(address, "DELETE", "/runs/trip", &shown, "").await;
                assert!(matches!(ended.status, 200..=299), "{}", ended.status);
            },
        }
        let is_so = || control.open_get_streams() == 1 && control.session_ids().len() == 1;
        until("another took it over", is_so).await;
        control.change_tools();
        of_second.heard(TOOLS_CHANGED).await;
        drop(of_first);
        world.finish_with(&second).await;
    }
}

/// mcp-spec T32: a session whose stream cannot be had at this moment hears of lists for nobody:
/// another of the same identity tries meanwhile.
#[tokio::test]
async fn a_stream_that_cannot_be_had_keeps_nobody_from_another() {
    for status in [409, 503] {
        let world = World::of_alice(Personality::legacy()).await;
        let (control, ledger) = (world.control(), world.server.ledger());
        let busy = Fault::Reply(CannedReply::new(status, "not now"));
        world.inject(FaultRule::new(busy).on_method("GET").always());
        let clients = [
            world.greet_as_alice(PATH).await,
            world.greet_as_alice(PATH).await,
        ];
        let mut streams = Vec::new();
        for client in &clients {
            client.count().await;
            streams.push(client.get(None).await);
        }
        until("both were asked for one", || {
            let asked = ledger.entries().into_iter();
            let asked = asked.filter(|entry| entry.method == "GET");
            let by: BTreeSet<_> = asked.filter_map(|entry| entry.session).collect();
            by.len() == 2
        })
        .await;
        control.clear_faults();
        streams_held(&control, 1).await;
        control.change_tools();
        for mut stream in streams {
            stream.heard(TOOLS_CHANGED).await;
        }
        for client in clients {
            client.delete().await;
        }
        world.finish().await;
    }
}

/// The stream of a client that ended its session has nothing more to say, and ends too.
#[tokio::test]
async fn the_stream_of_a_session_that_was_ended_ends() {
    for path in [PATH, "/mcp"] {
        let world = World::new(Personality::legacy()).await;
        let client = Legacy::greet(&world, path, NEWEST, json!({})).await;
        let standing = client.get(None).await;
        assert_eq!(standing.status, 200);
        if path == PATH {
            client.count().await;
            let control = world.control();
            streams_held(&control, 1).await;
        }
        client.delete().await;
        read_to_its_end(standing).await;
        world.finish().await;
    }
}

/// A run that was ended and is begun again by its client is listened to on the stream that the
/// client has all the time.
#[tokio::test]
async fn a_run_that_is_begun_again_is_heard_on_the_stream_that_stands() {
    for path in ["/runs/trip/servers/ledger/mcp", "/runs/trip/mcp"] {
        let world = World::new(Personality::legacy()).await;
        let control = world.control();
        let client = Legacy::greet(&world, path, NEWEST, json!({})).await;
        let tool = match path.ends_with("/ledger/mcp") {
            true => "counter",
            false => "ledger__counter",
        };
        client.call(tool, json!({})).await;
        let mut standing = client.get(None).await;
        streams_held(&control, 1).await;
        let address = world.gateway.address();
        let ended = request(address, "DELETE", "/runs/trip", &[], "").await;
        assert!(matches!(ended.status, 200..=299), "{}", ended.status);
        until("its session is gone", || control.session_ids().is_empty()).await;
        client.call(tool, json!({})).await;
        streams_held(&control, 1).await;
        control.change_tools();
        standing.heard(TOOLS_CHANGED).await;
        assert_eq!(client.get(None).await.status, 409, "one stands");
        world.finish_with(&client).await;
    }
}
