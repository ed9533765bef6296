//! Probes over HTTP: what a look at an idle session finds.

use std::time::Duration;

use warmline::core::code::Reason;
use warmline::core::era::Era;
use warmline::upstream::{Probe, Probed};
use warmline_testkit::{Canned, CutAt, End, Fault, Moment, Personality, Rule};

use super::setting::Setting;

/// What a probe found, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Alive,
    NotUnderstood,
    Gone(Reason),
    Silent,
    Unreachable(Reason),
}

fn found(probed: Probed) -> Found {
    match probed {
        Probed::Alive => Found::Alive,
        Probed::NotUnderstood => Found::NotUnderstood,
        Probed::Gone(trouble) => Found::Gone(trouble.reason),
        Probed::Silent => Found::Silent,
        Probed::Unreachable(trouble) => Found::Unreachable(trouble.reason),
    }
}

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_session_that_lives_answers_the_probes_of_its_era() {
    let rows = [
        (Personality::legacy(), Era::Legacy, Probe::Ping),
        (Personality::legacy(), Era::Legacy, Probe::ToolsList),
        (Personality::modern(), Era::Modern, Probe::Discover),
        (Personality::modern(), Era::Modern, Probe::ToolsList),
    ];
    for (personality, era, probe) in rows {
        let setting = Setting::new(personality, era);
        let session = setting.open().await;
        assert_eq!(found(session.probe(probe, LONG).await), Found::Alive);
        assert_eq!(
            setting.server.ledger().received(probe.method()),
            1 + usize::from(probe == Probe::Discover)
        );
        assert_eq!(session.retired(), None);
        drop(session);
        setting.finish().await;
    }
}

#[tokio::test]
async fn what_a_probe_gets_is_told_apart() {
    let unknown = Fault::Error {
        code: -32601,
        message: "Method not found".to_owned(),
        data: serde_json::Value::Null,
    };
    let refused = Fault::Error {
        code: -32602,
        message: "Invalid params".to_owned(),
        data: serde_json::Value::Null,
    };
    let rows: [(Fault, Found); 9] = [
        (unknown, Found::NotUnderstood),
        // An error is an answer, and only the living answer.
        (refused, Found::Alive),
        (
            reply(404, "Session not found"),
            Found::Gone(Reason::SessionGone),
        ),
        (reply(410, ""), Found::Gone(Reason::SessionGone)),
        (reply(401, ""), Found::Unreachable(Reason::Unauthorized)),
        (reply(503, ""), Found::Unreachable(Reason::Unavailable)),
        (reply(429, ""), Found::Unreachable(Reason::RateLimited)),
        (
            Fault::Cut(CutAt::BeforeExecuting, End::Rst),
            Found::Unreachable(Reason::ReplyLost),
        ),
        (Fault::Silence(Moment::BeforeExecuting), Found::Silent),
    ];
    for (fault, expected) in rows {
        let story = format!("{fault:?}");
        let setting = Setting::legacy();
        let session = setting.open().await;
        setting.server.inject(Rule::new(fault).on("ping"));
        let limit = if expected == Found::Silent {
            SHORT
        } else {
            LONG
        };
        let probed = found(session.probe(Probe::Ping, limit).await);
        assert_eq!(probed, expected, "{story}");
        let gone = matches!(expected, Found::Gone(_));
        assert_eq!(session.retired().is_some(), gone, "{story}");
        if !gone {
            assert_eq!(
                found(session.probe(Probe::Ping, LONG).await),
                Found::Alive,
                "{story}"
            );
        }
        drop(session);
        setting.finish().await;
    }
}

fn reply(status: u16, body: &str) -> Fault {
    Fault::Reply(Canned::new(status, body))
}

#[tokio::test]
async fn a_server_that_is_away_says_nothing_of_the_session() {
    let mut setting = Setting::legacy();
    let kept = setting.open().await.kept().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("http://{}/mcp", free.local_addr().unwrap());
    drop(free);
    setting.through(&nowhere);
    let upstream = &setting.upstream;
    let session = upstream.resume(&setting.known_as, &setting.declared, &kept);
    let probed = found(session.unwrap().probe(Probe::Ping, LONG).await);
    assert_eq!(probed, Found::Unreachable(Reason::ConnectRefused));
    let trouble = upstream.reachable(&setting.known_as, LONG).await;
    assert_eq!(trouble.unwrap_err().reason, Reason::ConnectRefused);
    let trouble = upstream.answers(&setting.known_as, LONG).await;
    assert_eq!(trouble.unwrap_err().reason, Reason::ConnectRefused);
    setting.finish().await;
}

/// A98: the quiet look costs no request, the explicit one exactly one; neither touches a session.
#[tokio::test]
async fn a_look_at_a_server_touches_no_session() {
    for (personality, era) in [
        (Personality::legacy(), Era::Legacy),
        (Personality::modern(), Era::Modern),
    ] {
        let setting = Setting::new(personality, era);
        for _ in 0..3 {
            setting
                .upstream
                .reachable(&setting.known_as, LONG)
                .await
                .unwrap();
        }
        assert_eq!(setting.server.counts().requests, 0, "{era}");
        // A refusal, as legacy servers give it, is an answer too.
        setting
            .upstream
            .answers(&setting.known_as, LONG)
            .await
            .unwrap();
        let counts = setting.server.counts();
        assert_eq!((counts.requests, counts.sessions), (1, 0), "{era}");
        assert_eq!(counts.connections, 1, "{era}: one for all of them");
        let away = Fault::Reply(Canned::new(502, ""));
        setting.server.inject(Rule::new(away).on("server/discover"));
        let trouble = setting.upstream.answers(&setting.known_as, LONG).await;
        assert_eq!(trouble.unwrap_err().reason, Reason::GatewayError, "{era}");
        let silent = Fault::Silence(Moment::BeforeExecuting);
        setting
            .server
            .inject(Rule::new(silent).on("server/discover"));
        let trouble = setting.upstream.answers(&setting.known_as, SHORT).await;
        assert_eq!(trouble.unwrap_err().reason, Reason::Timeout, "{era}");
        setting.finish().await;
    }
}
