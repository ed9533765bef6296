//! Sessions that can be asked hold a standing stream; what that changes for a call.

use crate::prelude::*;

use warmline_testkit::GetStreamSupport;

use super::connect_failures::is_unsent_where_nobody_accepts;
use super::fixture::Expected::Result;
use super::server_requests::EVERYTHING;

fn able(personality: Personality) -> Setting {
    let mut setting = Setting::new(personality, Era::Legacy);
    setting.declared.capabilities = EVERYTHING;
    setting
}

/// A148, P91: a server without GET stream is asked for one once.
#[tokio::test]
async fn a_call_that_can_be_asked_is_unsent_if_its_time_ends_before_it_is_connected() {
    let mut setting = able(Personality::legacy().get_stream(GetStreamSupport::Refused));
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    // The server has no standing stream; from now on it is not asked for one.
    assert_eq!(setting.pay("before", &()).await.ended, Result);
    is_unsent_where_nobody_accepts(setting, session).await;
}

/// A148, P91, P130: whatever a server without GET stream says to it, it is asked once, and calls
/// work.
#[tokio::test]
async fn a_server_without_a_standing_stream_is_asked_for_it_once() {
    for status in [405, 404, 406, 400] {
        let setting = able(Personality::legacy());
        let none = Fault::Reply(CannedReply::new(status, "no stream here"));
        setting.inject(FaultRule::new(none).on_method("GET").always());
        for number in 0..5 {
            let account = format!("{status}, {number}");
            let outcome = setting.pay(&account, &()).await;
            assert_eq!(outcome.ended, Result, "{account}: {:?}", outcome.trouble);
        }
        let ledger = setting.server.ledger();
        assert_eq!(ledger.messages_received("GET"), 1, "{status}");
        assert_eq!(ledger.messages_received("initialize"), 1, "{status}");
        setting.finish().await;
    }
}

/// A146: calls do not depend on the standing stream.
#[tokio::test]
async fn a_standing_stream_that_does_not_begin_does_not_keep_a_call_from_being_sent() {
    let setting = able(Personality::legacy());
    let session = setting.session().await;
    let silence = Fault::Silence(FaultTiming::BeforeExecuting);
    setting.inject(FaultRule::new(silence).on_method("GET"));
    let request = payment("held").with_deadlines(within_ms(1_000, 1_000));
    let call = tokio::time::timeout(Duration::from_millis(1_500), session.call(request, &()));
    let outcome = setting.told("held", call.await.unwrap());
    outcome.ends(Result);
    drop(session);
    setting.finish().await;
}

/// The answer to the last payment, as it would have come on its own connection.
fn answer(setting: &Setting, account: &str) -> Value {
    let entries = setting.server.ledger().entries();
    let call = entries
        .iter()
        .rfind(|one| one.method == "tools/call" && one.phase == ExecutionPhase::Received);
    json!({"jsonrpc": "2.0", "id": call.unwrap().id,
        "result": {"content": [], "structuredContent": {"account": account}}})
}

/// A146: what comes on the standing stream reaches its call.
#[tokio::test]
async fn an_answer_on_the_standing_stream_is_the_answer() {
    let setting = able(Personality::legacy());
    let session = setting.session().await;
    for (row, fault) in [
        (
            "D43",
            Fault::Reply(CannedReply::new(202, "").execute_first()),
        ),
        ("D84", Fault::Silence(FaultTiming::AfterExecuting)),
    ] {
        setting.inject(FaultRule::new(fault).on_tool("pay"));
        let request = payment(row).with_deadlines(within_ms(5_000, 5_000));
        let said = async {
            within(Duration::from_secs(5), || setting.executions(row) == 1).await;
            setting
                .server
                .control()
                .send_on_get_streams(&answer(&setting, row));
        };
        let (ending, ()) = tokio::join!(session.call(request, &()), said);
        let outcome = setting.told(row, ending);
        assert_eq!(outcome.ended, Result, "{row}: {:?}", outcome.trouble);
    }
    session.close().await;
    drop(session);
    setting.finish().await;
}
