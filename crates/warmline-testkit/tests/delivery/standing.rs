//! Sessions that can be asked hold a standing stream; what that changes for a call.

use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline_testkit::{Fault, GetStream, Moment, Personality, Rule};

use super::questions::EVERYTHING;
use super::setting::Expected::{Result, Unsent};
use super::setting::{Setting, payment, within_ms};

fn able(personality: Personality) -> Setting {
    let mut setting = Setting::new(personality, Era::Legacy);
    setting.declared.capabilities = EVERYTHING;
    setting
}

#[tokio::test]
async fn a_call_that_can_be_asked_is_unsent_if_its_time_ends_before_it_is_connected() {
    let mut setting = able(Personality::legacy().get_stream(GetStream::Refused));
    setting.known_as.times.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    // The server has no standing stream; from now on it is not asked for one.
    assert_eq!(setting.pay("before", &()).await.ended, Result);
    let address = setting.server.address();
    setting.server.stop();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    let silent = socket.listen(1).unwrap();
    let mut waiting = Vec::new();
    let knock = Duration::from_millis(200);
    while let Ok(connected) = tokio::time::timeout(knock, TcpStream::connect(address)).await {
        waiting.push(connected.unwrap());
    }
    let request = payment("D24").patient(within_ms(100, 5_000));
    let mut outcome = setting.told("D24", session.call(request, &()).await);
    assert_eq!(
        outcome.ended,
        Unsent(Reason::TimeoutUnsent),
        "{:?}",
        outcome.trouble
    );
    drop((silent, waiting, session));
    setting.server.start_again().unwrap();
    outcome.given_back = outcome
        .given_back
        .map(|request| request.patient(within_ms(9_000, 9_000)));
    setting.go_on("D24", &mut outcome).await;
    setting.finish().await;
}

#[tokio::test]
async fn a_standing_stream_that_does_not_begin_holds_a_call_no_longer_than_its_limit() {
    let setting = able(Personality::legacy());
    let session = setting.session().await;
    let silence = Fault::Silence(Moment::BeforeExecuting);
    setting.server.inject(Rule::new(silence).on("GET"));
    let request = payment("held").patient(within_ms(300, 300));
    let call = tokio::time::timeout(Duration::from_millis(1_500), session.call(request, &()));
    let outcome = setting.told("held", call.await.unwrap());
    assert_eq!(
        outcome.ended,
        Unsent(Reason::TimeoutUnsent),
        "{:?}",
        outcome.trouble
    );
    drop(session);
    setting.finish().await;
}
