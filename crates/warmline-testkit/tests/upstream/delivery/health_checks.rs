//! Probes over HTTP: what a look at an idle session finds.

use crate::prelude::*;

use warmline_upstream::{HealthCheck, HealthCheckOutcome};

/// What a probe found, without its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Alive,
    NotUnderstood,
    Gone(Reason),
    Silent,
    Unreachable(Reason),
}

fn found(probed: HealthCheckOutcome) -> Health {
    match probed {
        HealthCheckOutcome::Alive => Health::Alive,
        HealthCheckOutcome::UnknownMethod => Health::NotUnderstood,
        HealthCheckOutcome::Gone(trouble) => Health::Gone(trouble.reason),
        HealthCheckOutcome::Silent => Health::Silent,
        HealthCheckOutcome::Unreachable(trouble) => Health::Unreachable(trouble.reason),
    }
}

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_session_that_lives_answers_the_probes_of_its_era() {
    let rows = [
        (Personality::legacy(), Era::Legacy, HealthCheck::Ping),
        (Personality::legacy(), Era::Legacy, HealthCheck::ToolsList),
        (Personality::modern(), Era::Modern, HealthCheck::Discover),
        (Personality::modern(), Era::Modern, HealthCheck::ToolsList),
    ];
    for (personality, era, probe) in rows {
        let setting = Setting::new(personality, era);
        let session = setting.open().await;
        let health = found(session.check_health(probe, LONG).await);
        assert_eq!(health, Health::Alive);
        let probes = setting.server.ledger().messages_received(probe.method());
        assert_eq!(probes, 1 + usize::from(probe == HealthCheck::Discover));
        assert_eq!(session.retired_reason(), None);
        drop(session);
        setting.finish().await;
    }
}

#[tokio::test]
async fn what_a_probe_gets_is_told_apart() {
    let unknown = Fault::Error {
        code: -32601,
        message: "Method not found".to_owned(),
        data: Value::Null,
    };
    let refused = Fault::Error {
        code: -32602,
        message: "Invalid params".to_owned(),
        data: Value::Null,
    };
    let rows: [(Fault, Health); 9] = [
        (unknown, Health::NotUnderstood),
        // An error is an answer, and only the living answer.
        (refused, Health::Alive),
        (
            reply(404, "Session not found"),
            Health::Gone(Reason::SessionGone),
        ),
        (reply(410, ""), Health::Gone(Reason::SessionGone)),
        (reply(401, ""), Health::Unreachable(Reason::Unauthorized)),
        (reply(503, ""), Health::Unreachable(Reason::Unavailable)),
        (reply(429, ""), Health::Unreachable(Reason::RateLimited)),
        (
            Fault::Cut(CutPoint::BeforeExecuting, ConnectionEnd::Rst),
            Health::Unreachable(Reason::ReplyLost),
        ),
        (Fault::Silence(FaultTiming::BeforeExecuting), Health::Silent),
    ];
    for (fault, expected) in rows {
        let story = format!("{fault:?}");
        let setting = Setting::legacy();
        let session = setting.open().await;
        setting.inject(FaultRule::new(fault).on_method("ping"));
        let limit = if expected == Health::Silent {
            SHORT
        } else {
            LONG
        };
        let probed = found(session.check_health(HealthCheck::Ping, limit).await);
        assert_eq!(probed, expected, "{story}");
        let gone = matches!(expected, Health::Gone(_));
        assert_eq!(session.retired_reason().is_some(), gone, "{story}");
        if !gone {
            let seen = found(session.check_health(HealthCheck::Ping, LONG).await);
            assert_eq!(seen, Health::Alive, "{story}");
        }
        drop(session);
        setting.finish().await;
    }
}

fn reply(status: u16, body: &str) -> Fault {
    Fault::Reply(CannedReply::new(status, body))
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
    let probed = found(session.unwrap().check_health(HealthCheck::Ping, LONG).await);
    assert_eq!(probed, Health::Unreachable(Reason::ConnectRefused));
    let trouble = upstream.check_reachable(&setting.known_as, LONG).await;
    assert_eq!(trouble.unwrap_err().reason, Reason::ConnectRefused);
    let trouble = upstream.check_responding(&setting.known_as, LONG).await;
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
                .check_reachable(&setting.known_as, LONG)
                .await
                .unwrap();
        }
        assert_eq!(setting.server.counts().requests, 0, "{era}");
        // A refusal, as legacy servers give it, is an answer too.
        setting
            .upstream
            .check_responding(&setting.known_as, LONG)
            .await
            .unwrap();
        let counts = setting.server.counts();
        assert_eq!((counts.requests, counts.sessions), (1, 0), "{era}");
        assert_eq!(counts.connections, 1, "{era}: one for all of them");
        let away = Fault::Reply(CannedReply::new(502, ""));
        setting.inject(FaultRule::new(away).on_method("server/discover"));
        let trouble = setting
            .upstream
            .check_responding(&setting.known_as, LONG)
            .await;
        assert_eq!(trouble.unwrap_err().reason, Reason::GatewayError, "{era}");
        let silent = Fault::Silence(FaultTiming::BeforeExecuting);
        setting.inject(FaultRule::new(silent).on_method("server/discover"));
        let trouble = setting
            .upstream
            .check_responding(&setting.known_as, SHORT)
            .await;
        assert_eq!(trouble.unwrap_err().reason, Reason::Timeout, "{era}");
        setting.finish().await;
    }
}
