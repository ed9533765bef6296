//! Ids and progress tokens: never reused, in a session or beside it.

use crate::prelude::*;

use super::fixture::Expected::Result;

/// A181, reliability I19, reliability P3: ids are ours, and none is used twice.
#[tokio::test]
async fn ids_are_never_reused_over_the_sessions_of_one_process() {
    for (personality, era) in [
        (Personality::legacy(), Era::Legacy),
        (Personality::modern(), Era::Modern),
    ] {
        let setting = Setting::new(personality, era);
        for _ in 0..5 {
            let session = setting.open().await;
            for number in 0..20 {
                let ending = session.call(tool("echo", &json!({"n": number})), &()).await;
                assert_eq!(Outcome::of(ending).ended, Result);
            }
        }
        let entries = setting.server.ledger().entries();
        let requests = entries
            .iter()
            .filter(|one| one.phase == ExecutionPhase::Received && !one.id.is_null());
        let ids: Vec<Value> = requests.map(|one| one.id.clone()).collect();
        let unique: BTreeSet<u64> = ids.iter().map(|id| id.as_u64().unwrap()).collect();
        assert_eq!(unique.len(), ids.len());
        // Beyond this JSON numbers are not exact everywhere.
        assert!(unique.iter().all(|id| *id < 1 << 53));
        setting.finish().await;
    }
}

/// P63, P79, reliability I19: a token is always sent, and none is used twice.
#[tokio::test]
async fn progress_tokens_are_never_reused_and_calls_side_by_side_hear_their_own() {
    for era in [Era::Legacy, Era::Modern] {
        let personality = personality_of(era);
        let form = ReplyFormat::Sse(SseFormat::plain());
        let setting = Setting::new(personality.reply(form), era);
        let (one, two) = (setting.open().await, setting.open().await);
        let calls = [7, 11, 13].map(|steps| {
            let ear = super::recording_listener::Ear::default();
            let (one, two) = (&one, &two);
            async move {
                for session in [one, two] {
                    let steps = json!({"steps": steps, "pause_ms": 2});
                    let ending = session.call(tool("progress", &steps), &ear).await;
                    assert_eq!(Outcome::of(ending).ended, Result);
                }
                let wanted: Vec<u64> = (1..=steps).chain(1..=steps).collect();
                assert_eq!(ear.progress(), wanted);
            }
        });
        let [a, b, c] = calls;
        tokio::join!(a, b, c);
        let entries = setting.server.ledger().entries();
        let calls = entries
            .iter()
            .filter(|one| one.phase == ExecutionPhase::Received && one.method == "tools/call");
        let tokens: Vec<String> = calls
            .map(|one| one.meta["progressToken"].to_string())
            .collect();
        let unique: BTreeSet<&String> = tokens.iter().collect();
        assert_eq!((tokens.len(), unique.len()), (6, 6), "{tokens:?}");
        setting.finish().await;
    }
}

/// A16, P108, reliability P3, reliability T2: calls on one session run side by side.
#[tokio::test]
async fn calls_side_by_side_get_their_own_answers() {
    for setting in [Setting::legacy, Setting::modern] {
        let setting = setting();
        let session = setting.session().await;
        let calls = (0..40).map(|number| {
            let (setting, session) = (&setting, &session);
            async move {
                let account = format!("side by side {number}");
                let ending = session.call(payment(&account), &()).await;
                let outcome = setting.told(&account, ending);
                outcome.ends(Result);
                assert_eq!(outcome.account(), account);
            }
        });
        let mut all: Vec<_> = calls.map(Box::pin).collect();
        std::future::poll_fn(|cx| {
            all.retain_mut(|call| call.as_mut().poll(cx).is_pending());
            if all.is_empty() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
        drop(all);
        setting.finish().await;
    }
}
