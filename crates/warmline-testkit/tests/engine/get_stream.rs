//! Standing streams: held for whoever attends a server, and only then.

use crate::prelude::*;

use warmline_testkit::proxy::AcceptMode;
use warmline_upstream::UnsolicitedListener;

/// Writes down which resources are said to have changed.
#[derive(Debug, Default)]
struct Ear(Mutex<Vec<String>>);

impl Ear {
    fn heard(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl UnsolicitedListener for Ear {
    fn on_notification(&self, method: &str, params: &[u8]) {
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
    let personality = Personality::legacy().reply(ReplyFormat::Sse(SseFormat::resumable()));
    let server = LedgerServer::start(personality).unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = proxy.proxied_url(&server.url());
    let world = World::around(server, |_| Server::http(LEDGER, &url), |builder| builder);
    let control = world.control();
    let (run, ledger) = world.new_run();
    for uri in ["note://first", "note://missed", "note://last"] {
        ledger
            .request("resources/subscribe", json!({ "uri": uri }))
            .await
            .unwrap();
    }
    assert_eq!(count(&ledger).await, 1);
    assert_eq!(control.open_get_streams(), 0, "nobody wants to hear");

    let ear = Arc::new(Ear::default());
    let heard = Arc::clone(&ear);
    let attending = ledger.subscribe_shared(heard, None).unwrap();
    until("it is held", || control.open_get_streams() == 1).await;
    control.update_resource("note://first");
    until("it is told", || ear.heard() == ["note://first"]).await;

    proxy.set_accept_mode(AcceptMode::Refuse);
    proxy.end_connections(ConnectionEnd::Rst);
    until("it broke", || control.open_get_streams() == 0).await;
    control.update_resource("note://missed");
    proxy.set_accept_mode(AcceptMode::Forward);
    // It waits before it tries again.
    pass(secs(5)).await;
    until("what was missed is told", || ear.heard().len() == 2).await;
    control.update_resource("note://last");
    until("it goes on", || ear.heard().len() == 3).await;
    let expected = ["note://first", "note://missed", "note://last"];
    assert_eq!(ear.heard(), expected);
    assert_eq!((count(&ledger).await, world.handshakes()), (2, 1));

    drop(attending);
    // As long as a connection may rest it may rest too.
    pass(secs(30)).await;
    until("none is held", || control.open_get_streams() == 0).await;
    run.end().await;
    drop(ledger);
    world.finish().await;
}

/// Writes down what is told, by its method.
#[derive(Debug, Default)]
struct Methods(Mutex<Vec<String>>);

impl Methods {
    fn heard(&self, method: &str) -> usize {
        let heard = self.0.lock().unwrap();
        heard.iter().filter(|one| *one == method).count()
    }
}

impl UnsolicitedListener for Methods {
    fn on_notification(&self, method: &str, _params: &[u8]) {
        self.0.lock().unwrap().push(method.to_owned());
    }
}

const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

/// P90, P91: a stream that could not be had when it was to be opened again is asked for later,
/// unless the server says that it has none. A credential that was refused is renewed first.
#[tokio::test]
async fn a_stream_that_is_refused_once_comes_back() {
    for status in [401, 408, 429, 503] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "token-1").unwrap();
        let server = LedgerServer::start(Personality::legacy().token("token-1")).unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let url = proxy.proxied_url(&server.url());
        let declare = |_| Server::http(LEDGER, &url).bearer(Secret::file(&file));
        let world = World::around(server, declare, |builder| builder);
        let control = world.control();
        let (run, ledger) = world.new_run();
        ledger
            .request("resources/subscribe", json!({ "uri": "note://a" }))
            .await
            .unwrap();
        let ear = Arc::new(Methods::default());
        let attending = ledger
            .subscribe_shared(Arc::<Methods>::clone(&ear), None)
            .unwrap();
        until("it is held", || control.open_get_streams() == 1).await;

        if status == 401 {
            control.require_token("token-2");
            std::fs::write(&file, "token-2").unwrap();
        } else {
            let busy = Fault::Reply(CannedReply::new(status, "not now"));
            world.inject(FaultRule::new(busy).on_method("GET").times(1));
        }
        proxy.end_connections(ConnectionEnd::Rst);
        until("it broke", || control.open_get_streams() == 0).await;
        // It waits before it tries again, each time longer.
        let is_late = tokio::time::Instant::now() + secs(3600);
        while control.open_get_streams() == 0 {
            let holds = tokio::time::Instant::now() < is_late;
            assert!(holds, "{status}: it is gone");
            pass(secs(2)).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        control.update_resource("note://a");
        until("it tells", || ear.heard(UPDATED) == 1).await;
        drop(attending);
        run.end().await;
        drop(ledger);
        world.finish().await;
    }
}

/// What comes while whoever attends is away for a moment is there when they come back.
#[tokio::test]
async fn what_comes_in_a_short_absence_is_not_lost() {
    for reply in [ReplyFormat::Json, ReplyFormat::Sse(SseFormat::resumable())] {
        let world = World::new(Personality::legacy().reply(reply));
        let control = world.control();
        let (run, ledger) = world.new_run();
        for uri in ["note://here", "note://missed", "note://late"] {
            ledger
                .request("resources/subscribe", json!({ "uri": uri }))
                .await
                .unwrap();
        }
        let ear = Arc::new(Ear::default());
        let attend = || {
            ledger
                .subscribe_shared(Arc::<Ear>::clone(&ear), None)
                .unwrap()
        };
        let attending = attend();
        until("it is held", || control.open_get_streams() == 1).await;
        control.update_resource("note://here");
        until("it is told", || ear.heard() == ["note://here"]).await;
        drop(attending);
        tokio::task::yield_now().await;
        control.update_resource("note://missed");
        // Long enough for what was said to arrive.
        for _ in 0..5 {
            count(&ledger).await;
        }
        let attending = attend();
        until("what was missed is told", || ear.heard().len() == 2).await;
        control.update_resource("note://late");
        until("it goes on", || ear.heard().len() == 3).await;
        assert_eq!(ear.heard(), ["note://here", "note://missed", "note://late"]);
        drop(attending);
        run.end().await;
        drop(ledger);
        world.finish().await;
    }
}

/// What a server said of its lists while a stream was broken cannot be known, unless it is resumed:
/// so all who attend are told that they may be others, each once, and so it is where a session was
/// replaced.
#[tokio::test]
async fn a_gap_in_a_stream_may_have_been_a_change_of_lists() {
    for (reply, told) in [
        (ReplyFormat::Json, 1),
        (ReplyFormat::Sse(SseFormat::resumable()), 0),
    ] {
        let server = LedgerServer::start(Personality::legacy().reply(reply)).unwrap();
        let proxy = FaultProxy::start(server.address()).unwrap();
        let url = proxy.proxied_url(&server.url());
        let world = World::around(server, |_| Server::http(LEDGER, &url), |builder| builder);
        let control = world.control();
        let (run, ledger) = world.new_run();
        ledger
            .request("resources/subscribe", json!({ "uri": "note://a" }))
            .await
            .unwrap();
        let ears = [(); 2].map(|()| Arc::new(Methods::default()));
        let attending = ears.each_ref().map(|ear| {
            ledger
                .subscribe_shared(Arc::<Methods>::clone(ear), None)
                .unwrap()
        });
        let all_heard = |what, times| ears.iter().all(|ear| ear.heard(what) == times);
        until("it is held", || control.open_get_streams() == 1).await;
        control.update_resource("note://a");
        until("it tells", || all_heard(UPDATED, 1)).await;
        assert!(all_heard(TOOLS_CHANGED, 0), "nothing was missed");

        proxy.end_connections(ConnectionEnd::Rst);
        until("it broke", || control.open_get_streams() == 0).await;
        pass(secs(3)).await;
        until("it is held again", || control.open_get_streams() == 1).await;
        control.update_resource("note://a");
        until("it tells again", || all_heard(UPDATED, 2)).await;
        assert!(all_heard(TOOLS_CHANGED, told));

        control.forget_sessions();
        count(&ledger).await;
        let is_so = || all_heard(TOOLS_CHANGED, told + 1);
        until("it is told of the new session", is_so).await;
        drop(attending);
        run.end().await;
        drop(ledger);
        world.finish().await;
    }
}

/// Counts what is heard.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl UnsolicitedListener for Count {
    fn on_notification(&self, _method: &str, _params: &[u8]) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// reliability P5, reliability P10: a standing stream that always has more lets others have their
/// turn: calls, timers, and whatever else runs on the same thread.
#[tokio::test]
async fn a_stream_that_never_pauses_lets_others_have_their_turn() {
    const NOTICES: usize = 20_000;
    let world = World::new(Personality::legacy());
    let event = "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":\"more\"}}\n\n";
    let flood =
        CannedReply::new(200, &event.repeat(NOTICES)).header("Content-Type", "text/event-stream");
    let ledger = world.in_run();
    ledger.set_log_level("info").await.unwrap();
    let rule = FaultRule::new(Fault::Reply(flood)).on_method("GET");
    world.inject(rule.times(1));
    let count = Arc::new(Count::default());
    let attending = ledger
        .subscribe_shared(Arc::<Count>::clone(&count), None)
        .unwrap();
    let heard = || count.0.load(Ordering::Relaxed);
    let turns = async {
        let mut most_in_one = 0;
        while heard() < NOTICES {
            let before = heard();
            tokio::task::yield_now().await;
            most_in_one = most_in_one.max(heard() - before);
        }
        most_in_one
    };
    let most_in_one = tokio::time::timeout(secs(30), turns).await.unwrap();
    let holds = most_in_one < 1_000;
    assert!(holds, "{most_in_one} notices were read in one turn");
    drop(attending);
    world.finish().await;
}
