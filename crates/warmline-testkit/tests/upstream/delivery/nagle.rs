//! Servers that leave Nagle on: no reply waits for our acknowledgement.
//!
//! Such a server writes the second piece of a reply only when the first is acknowledged, and a
//! kernel that delays its acknowledgement makes it wait about 40 ms: 800 ms for 20 replies. The
//! bound of 400 ms is the one assertion on time here. It is far from both sides, and the best of
//! a few runs counts, because another program may have the processor for a while.

use crate::prelude::*;

use warmline_testkit::WriteMode;

use super::fixture::Expected::Result;

const CALLS: usize = 20;
const FAR_BELOW_A_STALL: Duration = Duration::from_millis(400);

async fn twenty_calls(setting: &Setting, run: usize) -> Duration {
    let began = Instant::now();
    for number in 0..CALLS {
        let outcome = setting.pay(&format!("run {run}, call {number}"), &()).await;
        outcome.ends(Result);
    }
    began.elapsed()
}

#[tokio::test]
async fn replies_in_pieces_do_not_wait_for_our_acknowledgement() {
    for (personality, era) in [
        (Personality::legacy(), Era::Legacy),
        (Personality::modern(), Era::Modern),
    ] {
        for reply in [ReplyFormat::Json, ReplyFormat::Sse(SseFormat::plain())] {
            let personality = personality
                .clone()
                .reply(reply.clone())
                .write_mode(WriteMode::Pieces);
            let setting = Setting::new(personality, era);
            let mut best = Duration::MAX;
            for run in 0..5 {
                best = best.min(twenty_calls(&setting, run).await);
                if best < FAR_BELOW_A_STALL {
                    break;
                }
            }
            let holds = best < FAR_BELOW_A_STALL;
            assert!(holds, "{era:?} {reply:?}: {best:?} for {CALLS} calls");
            setting.finish().await;
        }
    }
}
