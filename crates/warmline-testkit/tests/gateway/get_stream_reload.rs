//! Standing streams over a reload: whoever would be called is who is heard.

use crate::prelude::*;

use super::listen_only_clients::{pass_until, subscribe};

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const URI: &str = "note:///a";

/// A client whose stream stands.
async fn listener(world: &World, path: &str) -> (Legacy, Log) {
    let client = Legacy::greet(world, path, NEWEST, json!({})).await;
    let log = Log::of(client.get(None).await);
    (client, log)
}

/// What is shared ends where its server is reached otherwise. All who listen there hear the new
/// server from then on, and that its lists are others, also those who held no stream themselves.
#[tokio::test]
async fn a_server_that_is_reached_otherwise_is_heard_on_the_streams_that_stand() {
    for per in [SessionScope::Server, SessionScope::Identity] {
        let [server, other] = [(); 2].map(|()| LedgerServer::start(Personality::legacy()).unwrap());
        let declared = |server: &LedgerServer| Server::http(LEDGER, server.url()).session_per(per);
        let warm = Warmline::builder().server(declared(&server));
        let world = World::around(server, warm.build().unwrap(), |options, _| options).await;
        let [(first, of_first), (second, of_second)] =
            [listener(&world, PATH).await, listener(&world, PATH).await];
        let control = world.control();
        for log in [&of_first, &of_second] {
            pass_until("the old one is heard", || {
                control.change_tools();
                log.has(TOOLS_CHANGED)
            })
            .await;
        }
        world.add_server(declared(&other));
        let before = [&of_first, &of_second].map(|log| log.heard().len());
        for (log, before) in [(&of_first, before[0]), (&of_second, before[1])] {
            pass_until("lists are said to be others", || {
                log.heard()[before..]
                    .iter()
                    .any(|word| word == TOOLS_CHANGED)
            })
            .await;
        }
        for (client, log) in [(&first, &of_first), (&second, &of_second)] {
            subscribe(client).await;
            pass_until("the new one is heard", || {
                other.control().update_resource(URI);
                log.has(URI)
            })
            .await;
            client.delete().await;
        }
        world.finish().await;
        assert_eq!(other.violations(), Vec::<String>::new());
    }
}

/// A live run keeps a server that was taken away until a drain is over, also where it is declared
/// again before that. What is called after that is what is heard.
#[tokio::test]
async fn a_server_that_is_declared_again_is_heard_on_the_stream_that_stands() {
    let world = World::new(Personality::legacy()).await;
    let control = world.control();
    let (client, log) = listener(&world, PATH).await;
    client.count().await;
    streams_held(&control, 1).await;
    world.warm.set_servers(Vec::new()).unwrap();
    let again = Server::http(LEDGER, world.server.url());
    world.warm.set_servers(vec![again]).unwrap();
    pass_until("its session is gone", || control.session_ids().is_empty()).await;
    pass_until("it is listened to", || control.open_get_streams() == 1).await;
    until("lists are said to be others", || log.has(TOOLS_CHANGED)).await;
    subscribe(&client).await;
    control.update_resource(URI);
    until("it is heard", || log.has(URI)).await;
    world.finish_with(&client).await;
}
