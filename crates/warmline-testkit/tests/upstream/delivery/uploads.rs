//! Requests so large that they are still on their way when something happens.

use crate::prelude::*;

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpSocket;
use warmline_testkit::proxy::{Direction, LinkConditions, LinkFailure};

use super::fixture::Expected::{Refused, Result, Unknown};

/// Larger than all buffers on the way, so that it cannot have left us whole.
fn large_payment(account: &str) -> Request {
    let filler = "x".repeat(8 << 20);
    tool(
        "pay",
        &json!({"amount": 1, "account": account, "filler": filler}),
    )
}

/// reliability P6: a part of an upload is no witness.
#[tokio::test]
async fn an_upload_that_is_cut_in_its_middle_is_unknown_and_was_not_executed() {
    let mut setting = Setting::legacy();
    let proxy = FaultProxy::start(setting.server.address()).unwrap();
    setting.through(&proxy.proxied_url(&setting.server.url()));
    for (word, happening) in [("FIN", LinkFailure::Fin), ("RST", LinkFailure::Rst)] {
        let session = setting.session().await;
        let account = format!("D23 {word}");
        let cut = LinkConditions::default()
            .fail_after(100_000, happening)
            .once();
        proxy.set_conditions(Direction::Up, cut);
        let ending = session.call(large_payment(&account), &()).await;
        let outcome = setting.told(&account, ending);
        let expected = Unknown(Reason::ReplyLost);
        assert_eq!(outcome.ended, expected, "{account}: {:?}", outcome.trouble);
        assert_eq!(setting.executions(&account), 0);
        proxy.restore();
    }
    setting.finish().await;
}

#[tokio::test]
async fn an_upload_in_small_pieces_arrives_whole() {
    let mut setting = Setting::legacy();
    let proxy = FaultProxy::start(setting.server.address()).unwrap();
    setting.through(&proxy.proxied_url(&setting.server.url()));
    let session = setting.session().await;
    proxy.set_conditions(Direction::Up, LinkConditions::default().slice(4_000));
    let outcome = setting.told("pieces", session.call(large_payment("pieces"), &()).await);
    outcome.ends(Result);
    setting.finish().await;
}

/// Takes the place of a server, for one connection.
async fn in_its_place(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(1).unwrap()
}

/// Reads the beginning of a request and refuses it before the rest has come.
async fn refuse_early(listener: TcpListener) -> TcpStream {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut beginning = vec![0; 10_000];
    socket.read_exact(&mut beginning).await.unwrap();
    let refusal = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n";
    socket.write_all(refusal).await.unwrap();
    socket
}

#[tokio::test]
async fn a_refusal_that_comes_before_the_upload_is_done_is_heard() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    setting.server.stop();
    let listener = in_its_place(setting.server.address()).await;
    // The refusal ends it, not its time: a busy machine needs some for so much.
    let request = large_payment("D62 early").with_deadlines(within_ms(60_000, 60_000));
    let (ending, socket) = tokio::join!(session.call(request, &()), refuse_early(listener));
    let mut outcome = setting.told("D62 early", ending);
    outcome.ends(Refused(Reason::TooLarge));
    drop(socket);
    setting.server.start_again().unwrap();
    setting.go_on("D62 early", &mut outcome).await;
    setting.finish().await;
}

/// reliability P10: sending has a limit too.
#[tokio::test]
async fn an_upload_that_nobody_reads_ends_at_the_limit() {
    let mut setting = Setting::legacy();
    setting.known_as.timeouts.connection_idle = Duration::ZERO;
    let session = setting.session().await;
    setting.server.stop();
    let listener = in_its_place(setting.server.address()).await;
    let request = large_payment("D25 unread").with_deadlines(within_ms(300, 300));
    let outcome = setting.told("D25 unread", session.call(request, &()).await);
    outcome.ends(Unknown(Reason::Timeout));
    assert_eq!(setting.executions("D25 unread"), 0);
    drop(listener);
    setting.server.start_again().unwrap();
    setting.finish().await;
}
