//! What a child tells that belongs to no call is heard by whoever asked for it.

use crate::prelude::*;

use warmline_upstream::UnsolicitedListener;

use super::child_session::{Child, HANDSHAKE, result, tool};

/// Listens to a call.
struct Somebody;

impl Listener for Somebody {}

/// Writes down the methods of what belongs to no call.
#[derive(Debug, Default)]
struct Board(Mutex<Vec<String>>);

impl UnsolicitedListener for Board {
    fn on_notification(&self, method: &str, params: &[u8]) {
        assert!(params.starts_with(b"{"));
        self.0.lock().unwrap().push(method.to_owned());
    }
}

impl Board {
    fn methods(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

async fn watched(program: Program) -> (Arc<Board>, Child) {
    let board = Arc::new(Board::default());
    let server = ServerTarget {
        era: Some(Era::Legacy),
        unsolicited_listener: Some(Arc::clone(&board) as Arc<dyn UnsolicitedListener>),
        ..program.server()
    };
    (board, Child::of(program, server).await)
}

#[tokio::test]
async fn a_list_that_changes_in_the_middle_of_a_call_is_told() {
    let (board, child) = watched(Program::ledger(&[])).await;
    result(child.call("change_tools", json!({})).await);
    assert_eq!(board.methods(), ["notifications/tools/list_changed"]);
    child.ends().await;
}

#[tokio::test]
async fn what_comes_between_calls_is_told_and_what_belongs_to_a_call_is_not() {
    let script = r#"
tell() { printf '{"jsonrpc":"2.0","method":"notifications/%s","params":%s}\n' "$1" "$2"; }
tell message '{"level":"info","data":"between calls"}'
tell progress '{"progressToken":1,"progress":1}'
tell cancelled '{"requestId":1}'
tell resources/updated '{"uri":"a:b"}'
hear
tell message '{"level":"info","data":"in a call"}'
reply '{}'
hear
"#;
    let program = Program::script(&format!("{HANDSHAKE}{script}"));
    let (board, child) = watched(program).await;
    let heard = ["notifications/message", "notifications/resources/updated"];
    until("both are heard", || board.methods() == heard).await;
    let call = child.session.call(tool("any", json!({})), &Somebody);
    result(call.await);
    assert_eq!(board.methods(), heard, "the second line was its caller's");
    child.ends().await;
}
