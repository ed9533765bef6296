//! Rows P13 to P15 and P17: what says nothing of the era. Nobody is greeted, and the error says
//! what is really wrong.

use crate::prelude::*;

use std::net::TcpListener;

use warmline_testkit::ConnectionEnd as Hangup;

use super::fixture::{End, MODERN, PROBE, Scene};

/// Plays against a server that would serve both eras, had it not said this.
async fn nothing_is_concluded(story: &str, scene: Scene, reason: Reason) {
    let scene = scene.hasty();
    let end = End::Fails(reason);
    scene.plays(story, end, PROBE).await.unwrap_err();
    let scene = scene.patient();
    let again = scene.open().await.unwrap();
    assert_eq!(End::Opens(again.facts().version), MODERN, "{story}");
    drop(again);
    scene.ends(story).await;
}

fn saying(fault: Fault) -> Scene {
    Scene::new(Personality::dual()).once("server/discover", fault)
}

fn streaming(fault: Fault) -> Scene {
    let personality = Personality::dual().reply(ReplyFormat::Sse(SseFormat::plain()));
    Scene::new(personality).once("server/discover", fault)
}

/// A32, E5: an HTTP error in the handshake is typed by its status.
#[tokio::test]
async fn a_status_that_is_not_the_servers_word_is_no_verdict() {
    let rows: [(u16, Reason); 11] = [
        (401, Reason::Unauthorized),
        (403, Reason::Forbidden),
        (408, Reason::Timeout),
        (429, Reason::RateLimited),
        (500, Reason::ServerError),
        (501, Reason::Rejected),
        (502, Reason::GatewayError),
        (503, Reason::Unavailable),
        (504, Reason::GatewayError),
        (520, Reason::GatewayError),
        (524, Reason::GatewayError),
    ];
    let bodies = [
        "",
        "<html>sorry</html>",
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"sorry"}}"#,
    ];
    for (status, reason) in rows {
        for body in bodies {
            let story = format!("HTTP {status} {body}");
            let scene = saying(Fault::Reply(CannedReply::new(status, body).json()));
            nothing_is_concluded(&story, scene, reason).await;
        }
    }
}

#[tokio::test]
async fn a_request_that_is_taken_like_a_notice_is_no_verdict() {
    let scene = saying(Fault::Reply(CannedReply::new(202, "")));
    nothing_is_concluded("P17", scene, Reason::NoReplyChannel).await;
}

/// reliability T6: a server that points elsewhere is not followed there.
#[tokio::test]
async fn a_redirect_is_not_followed_and_no_verdict() {
    for status in [301, 302, 303, 307, 308] {
        let canned = CannedReply::new(status, "").header("Location", "http://127.0.0.1:9/mcp");
        let scene = saying(Fault::Reply(canned)).hasty();
        let story = format!("HTTP {status}");
        let trouble = scene.fails(&story, Reason::Redirect, PROBE).await;
        assert!(trouble.cause.unwrap().contains("http://127.0.0.1:9/mcp"));
    }
}

#[tokio::test]
async fn a_connection_that_breaks_is_no_verdict() {
    let places = [
        CutPoint::BeforeExecuting,
        CutPoint::AfterExecuting,
        CutPoint::InHead,
        CutPoint::AfterHead,
        CutPoint::InBody(1),
        CutPoint::InBody(60),
    ];
    for at in places {
        for how in [Hangup::Fin, Hangup::Rst] {
            let story = format!("{at:?} {how:?}");
            nothing_is_concluded(&story, saying(Fault::Cut(at, how)), Reason::ReplyLost).await;
            let story = format!("{story} in a stream");
            nothing_is_concluded(&story, streaming(Fault::Cut(at, how)), Reason::ReplyLost).await;
        }
    }
    let early = Fault::Cut(CutPoint::AfterEvents(0), Hangup::Clean);
    nothing_is_concluded(
        "a stream without an answer",
        streaming(early),
        Reason::ReplyLost,
    )
    .await;
}

/// A86, P62: a probe has a limit.
#[tokio::test]
async fn silence_is_no_verdict_over_http() {
    for moment in [FaultTiming::BeforeExecuting, FaultTiming::AfterExecuting] {
        let scene = saying(Fault::Silence(moment));
        nothing_is_concluded(&format!("{moment:?}"), scene, Reason::Timeout).await;
    }
    nothing_is_concluded(
        "a stream without end",
        streaming(Fault::EndlessStream),
        Reason::Timeout,
    )
    .await;
}

#[tokio::test]
async fn a_body_without_end_is_no_verdict() {
    let scene = saying(Fault::EndlessBody).patient();
    scene
        .fails("a body without end", Reason::ReplyTooLarge, PROBE)
        .await;
}

/// A33, E11: a refused connection is told as such.
#[tokio::test]
async fn a_port_where_nobody_listens_is_no_verdict() {
    let scene = Scene::new(Personality::dual());
    scene.ledger.stop();
    let trouble = scene
        .fails("nobody listens", Reason::ConnectRefused, &[])
        .await;
    assert_eq!(trouble.code, Code::CannotReach);
    scene.ledger.start_again().unwrap();
    scene.plays("it is back", MODERN, PROBE).await.unwrap();
}

#[tokio::test]
async fn a_port_that_takes_connections_and_says_nothing_is_no_verdict() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut scene = Scene::new(Personality::dual()).hasty();
    let url = format!("http://{}/mcp", silent.local_addr().unwrap());
    scene.server = ServerTarget {
        timeouts: scene.server.timeouts,
        ..ServerTarget::http("scene", url.parse().unwrap())
    };
    scene.fails("silence", Reason::Timeout, &[]).await;
}

/// A32, E5: a refused credential is told with the challenge.
#[tokio::test]
async fn a_refused_credential_is_told_with_what_the_server_asks_for() {
    let scene = Scene::new(Personality::dual().token("sesame"));
    let trouble = scene.fails("no token", Reason::Unauthorized, &[]).await;
    assert_eq!(trouble.code, Code::CredentialRefused);
    assert!(trouble.hint.unwrap().contains("token"));
}

#[tokio::test]
async fn a_busy_server_is_told_with_its_own_time_to_wait() {
    let canned = CannedReply::new(429, "").header("Retry-After", "7");
    let scene = saying(Fault::Reply(canned));
    let trouble = scene.fails("busy", Reason::RateLimited, PROBE).await;
    assert_eq!(trouble.retry_after, Some(Duration::from_secs(7)));
}
