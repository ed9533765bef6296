//! The same script direct to a server and through the gateway: every reply must be the same, byte
//! for byte, but for ids that are not the client's and for a state that is sealed on its way.
//!
//! `WARMLINE_SCRIPTS` says how many scripts are played, `WARMLINE_SEED` plays only that one.
mod raw_http;
mod script;
mod script_player;

use crate::prelude::*;

use script::Script;
use script_player::{ScriptPlayer, StepReply};

/// How many scripts are played where nobody says otherwise.
const SCRIPTS: u64 = 200;

fn number(variable: &str) -> Option<u64> {
    let stated = std::env::var(variable).ok()?;
    Some(stated.parse().unwrap())
}

/// Plays a script at a URL.
async fn played(script: &Script, url: String) -> Vec<StepReply> {
    let script = script.clone();
    let playing = tokio::task::spawn_blocking(move || ScriptPlayer::at(&url, &script).play());
    playing.await.unwrap()
}

/// Plays a script twice, each time on a server of its own that has met nobody before.
async fn compare(seed: u64) {
    let script = Script::of(seed);
    let alone = LedgerServer::start(script.personality()).unwrap();
    let behind = LedgerServer::start(script.personality()).unwrap();
    let warm = Warmline::builder()
        .server(Server::http("ledger", behind.url()))
        .build()
        .unwrap();
    let gateway = Gateway::start(warm.clone(), local()).await.unwrap();
    let place = format!("http://{}{}", gateway.address(), script.path());
    let direct = played(&script, alone.url()).await;
    let through = played(&script, place).await;
    gateway.stop().await;
    warm.close().await;
    for (at, (direct, through)) in direct.iter().zip(&through).enumerate() {
        let step = script.step(at);
        assert_eq!(
            direct, through,
            "seed {seed}, step {at}: {step}\n{script:#?}"
        );
    }
    assert_eq!(direct.len(), through.len(), "seed {seed}");
    assert_eq!(behind.violations(), alone.violations(), "seed {seed}");
}

/// reliability T15, reliability H15: the same script direct to the server and through Warmline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reply_is_the_same_with_and_without_the_gateway() {
    let seeds = match number("WARMLINE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("WARMLINE_SCRIPTS").unwrap_or(SCRIPTS),
    };
    for seed in seeds {
        compare(seed).await;
    }
}
