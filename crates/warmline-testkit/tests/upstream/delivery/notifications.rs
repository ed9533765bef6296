//! What a server tells that belongs to no call is heard, on whatever stream it comes.

use crate::prelude::*;

use warmline_upstream::UnsolicitedListener;

use super::fixture::Expected::Result;
use super::recording_listener::Ear;
use super::scripted_server::{ReplyStep, Stub};
use super::server_requests::EVERYTHING;

const TOOLS: &str = "notifications/tools/list_changed";

/// Writes down what belongs to no call.
#[derive(Debug, Default)]
struct Board(Mutex<Vec<(String, Value)>>);

impl UnsolicitedListener for Board {
    fn on_notification(&self, method: &str, params: &[u8]) {
        let params = serde_json::from_slice(params).unwrap();
        self.0.lock().unwrap().push((method.to_owned(), params));
    }
}

impl Board {
    fn methods(&self) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        heard.iter().map(|(method, _)| method.clone()).collect()
    }
}

fn watched(server: &ServerTarget) -> (Arc<Board>, ServerTarget) {
    let board = Arc::new(Board::default());
    let mut server = server.clone();
    server.unsolicited_listener = Some(Arc::clone(&board) as Arc<dyn UnsolicitedListener>);
    (board, server)
}

async fn change_tools(session: &Session, ear: &Ear) {
    let outcome = Outcome::of(session.call(tool("change_tools", &json!({})), ear).await);
    outcome.ends(Result);
}

#[tokio::test]
async fn a_list_that_changes_in_the_middle_of_a_call_is_told_to_both() {
    for form in [ReplyFormat::Json, ReplyFormat::Sse(SseFormat::plain())] {
        let setting = Setting::new(Personality::legacy().reply(form), Era::Legacy);
        let (board, server) = watched(&setting.known_as);
        let session = setting.upstream.open(&server, &setting.declared).await;
        let ear = Ear::default();
        change_tools(&session.unwrap(), &ear).await;
        assert_eq!((board.methods(), ear.heard()), (vec![TOOLS.to_owned()], 1));
        setting.finish().await;
    }
}

#[tokio::test]
async fn a_list_that_changes_between_calls_is_heard_on_the_standing_stream() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.connection_idle = Duration::from_secs(5);
    let (board, server) = watched(&setting.known_as);
    let able = ClientProfile {
        capabilities: EVERYTHING,
        ..ClientProfile::default()
    };
    let listening = setting.upstream.open(&server, &able).await.unwrap();
    let paid = listening.call(tool("echo", &json!({"n": 1})), &()).await;
    assert_eq!(Outcome::of(paid).ended, Result);
    within(Duration::from_secs(5), || {
        setting.server.control().open_get_streams() == 1
    })
    .await;
    // Another session changes them; this one has no call under way.
    let other = setting.open().await;
    change_tools(&other, &Ear::default()).await;
    within(Duration::from_secs(5), || board.methods() == [TOOLS]).await;
    listening.close().await;
    setting.finish().await;
}

#[tokio::test]
async fn what_a_modern_server_tells_a_subscriber_is_heard_too() {
    let setting = Setting::modern();
    let (board, server) = watched(&setting.known_as);
    let session = setting.upstream.open(&server, &setting.declared).await;
    let session = session.unwrap();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let listen = Request::new(
        "subscriptions/listen",
        Params::from_serialize(&wanted).unwrap(),
    );
    let ear = Ear::default();
    let changing = async {
        within(Duration::from_secs(5), || ear.heard() >= 1).await;
        change_tools(&session, &Ear::default()).await;
        within(Duration::from_secs(5), || {
            board.methods().contains(&TOOLS.to_owned())
        })
        .await;
    };
    tokio::select! {
        ending = session.call(listen, &ear) => panic!("it ended: {ending:?}"),
        () = changing => {},
    }
    drop(session);
    setting.finish().await;
}

/// A log line in the middle of a call is its caller's; progress is never anybody else's.
#[tokio::test]
async fn what_belongs_to_a_call_is_told_to_its_caller_alone() {
    let told = [
        "message",
        "progress",
        "resources/updated",
        "prompts/list_changed",
    ];
    let stub = Stub::start(move |_| {
        let notice = |name: &&str| {
            let method = format!("notifications/{name}");
            ReplyStep::Event(json!({"jsonrpc": "2.0", "method": method, "params": {}}).to_string())
        };
        let answer = r#"{"jsonrpc":"2.0","id":$ID,"result":{}}"#;
        let events = told.iter().map(notice);
        events
            .chain([ReplyStep::Event(answer.to_owned())])
            .collect()
    })
    .await;
    let server = stub.target(Era::Legacy);
    let (board, server) = watched(&server);
    let session = Upstream::new()
        .open(&server, &ClientProfile::default())
        .await;
    let ear = Ear::default();
    let ending = session.unwrap().call(tool("any", &json!({})), &ear).await;
    assert_eq!(Outcome::of(ending).ended, Result);
    let heard = [
        "notifications/resources/updated",
        "notifications/prompts/list_changed",
    ];
    let found = (board.methods(), ear.heard());
    assert_eq!(found, (heard.map(str::to_owned).to_vec(), 4));
}
