//! Standing streams: held for whoever attends a server, and only then.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use warmline::Server;
use warmline::upstream::Notices;
use warmline_testkit::proxy::Gate;
use warmline_testkit::{End, FaultProxy, LedgerServer, Personality, ReplyForm, SseForm};

use super::census::until;
use super::world::{LEDGER, World, count, pass, secs};

/// Writes down which resources are said to have changed.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<String>>);

impl Ear {
    fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Notices for Ear {
    fn notice(&self, method: &str, params: &[u8]) {
        assert_eq!(method, "notifications/resources/updated");
        let params: Value = serde_json::from_slice(params).unwrap();
        let uri = params["uri"].as_str().unwrap();
        self.0.lock().unwrap().push(uri.to_owned());
    }
}

/// A146, P90: a stream is opened after the handshake while somebody wants what comes on it. One that
/// breaks is taken up after the last event that was heard, so that nothing is missed, and its end
/// does not end the session. Nobody wants it any more: none is held.
#[tokio::test]
async fn a_stream_is_held_while_somebody_attends_and_goes_on_where_it_broke() {
    let personality = Personality::legacy().reply(ReplyForm::Sse(SseForm::resumable()));
    let server = LedgerServer::start(personality).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = proxy.url(&server.url());
    let world = World::around(server, |_| Server::http(LEDGER, &url), |builder| builder);
    let control = world.server.control();
    let run = world.warm.begin();
    let ledger = run.server(LEDGER).unwrap();
    for uri in ["note://first", "note://missed", "note://last"] {
        ledger.subscribe(uri).await.unwrap();
    }
    assert_eq!(count(&ledger).await, 1);
    assert_eq!(control.standing_streams(), 0, "nobody wants to hear");

    let ear = Arc::new(Ear::default());
    let heard = Arc::clone(&ear);
    let attending = ledger.attend(heard).unwrap();
    until("it is held", || control.standing_streams() == 1).await;
    control.update_resource("note://first");
    until("it is told", || ear.heard() == ["note://first"]).await;

    proxy.gate(Gate::Closed);
    proxy.end_all(End::Rst);
    until("it broke", || control.standing_streams() == 0).await;
    control.update_resource("note://missed");
    proxy.gate(Gate::Open);
    // It waits before it tries again.
    pass(secs(5)).await;
    until("what was missed is told", || ear.heard().len() == 2).await;
    control.update_resource("note://last");
    until("it goes on", || ear.heard().len() == 3).await;
    assert_eq!(
        ear.heard(),
        ["note://first", "note://missed", "note://last"]
    );
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 1));

    drop(attending);
    // As long as a connection may rest it may rest too.
    pass(secs(30)).await;
    until("none is held", || control.standing_streams() == 0).await;
    run.end().await;
    drop(ledger);
    world.finish().await;
}
