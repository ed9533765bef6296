//! The cut sweep: an exchange is cut at every byte of the reply and of the request, by FIN and by
//! RST, and what the caller is told follows from the place of the cut.

use crate::prelude::*;

use warmline_testkit::proxy::{Direction, LinkConditions, LinkFailure, Traffic};

use super::fixture::Expected::{Result, Unknown, Unsent};

/// A setting behind a proxy, and the size of one exchange through it.
struct Sweep {
    setting: Setting,
    proxy: FaultProxy,
    up: u64,
    down: u64,
}

/// What follows the response in a stream: the end of its chunk, and the chunk that ends it all.
const AFTER_THE_EVENT: u64 = "\r\n0\r\n\r\n".len() as u64;

/// Accounts of one length, so that every exchange has the same size.
fn account(word: &str, place: u64) -> String {
    format!("{word} {place:05}")
}

fn echo(account: &str) -> Request {
    tool("echo", &json!({"account": account}))
}

/// What has passed, once nothing passes any more: the end of a stream comes after its answer.
async fn settled(proxy: &FaultProxy) -> Traffic {
    loop {
        let before = proxy.traffic();
        tokio::time::sleep(Duration::from_millis(30)).await;
        if proxy.traffic() == before {
            return before;
        }
    }
}

impl Sweep {
    async fn over(personality: Personality, era: Era) -> Self {
        let mut setting = Setting::new(personality, era);
        let proxy = FaultProxy::start(setting.server.address()).unwrap();
        setting.through(&proxy.proxied_url(&setting.server.url()));
        // Every exchange has a connection of its own, and no other byte passes on it.
        setting.known_as.timeouts.connection_idle = Duration::ZERO;
        let session = setting.session().await;
        let before = settled(&proxy).await;
        let ending = session.call(echo(&account("all", 0)), &()).await;
        assert_eq!(setting.told(&account("all", 0), ending).ended, Result);
        let after = settled(&proxy).await;
        Self {
            setting,
            proxy,
            up: after.bytes_up - before.bytes_up,
            down: after.bytes_down - before.bytes_down,
        }
    }

    /// Cuts one exchange; whether it was answered all the same.
    async fn cut(&self, direction: Direction, place: u64, happening: LinkFailure) -> bool {
        let word = match happening {
            LinkFailure::Fin => "fin",
            LinkFailure::Rst | LinkFailure::HalfClose | LinkFailure::Swallow => "rst",
        };
        let account = account(word, place);
        let session = self.setting.session().await;
        self.proxy.set_conditions(
            direction,
            LinkConditions::default().fail_after(place, happening),
        );
        let ending = session.call(echo(&account), &()).await;
        let outcome = self.setting.told(&account, ending);
        self.proxy.restore();
        if outcome.ended == Result {
            let echoed = &outcome.answer["structuredContent"]["arguments"]["account"];
            assert_eq!(echoed, account.as_str(), "the answer of another call");
            return true;
        }
        // Cut before its first byte, a connection may be dead before we write.
        let unsent = place == 0 && matches!(outcome.ended, Unsent(_));
        let told = unsent || outcome.ended == Unknown(Reason::ReplyLost);
        assert!(told, "{account}: {:?} {:?}", outcome.ended, outcome.trouble);
        false
    }

    async fn reply(self, answered_from: u64) {
        for happening in [LinkFailure::Fin, LinkFailure::Rst] {
            for place in 0..=self.down {
                let answered = self.cut(Direction::Down, place, happening).await;
                let whole = place >= answered_from;
                assert_eq!(
                    answered, whole,
                    "{happening:?} after {place} of {}",
                    self.down
                );
            }
        }
        self.setting.finish().await;
    }

    async fn request(self) {
        for happening in [LinkFailure::Fin, LinkFailure::Rst] {
            for place in 0..self.up {
                let answered = self.cut(Direction::Up, place, happening).await;
                assert!(!answered, "{happening:?} after {place} of {}", self.up);
            }
        }
        let whole = |entry: &warmline_testkit::LedgerEntry| {
            entry.method == "tools/call" && entry.phase == ExecutionPhase::Received
        };
        let arrived = self.setting.server.ledger().count(whole);
        assert_eq!(arrived, 1, "a part passed for the whole");
        self.setting.finish().await;
    }
}

fn streaming(personality: Personality) -> Personality {
    personality.reply(ReplyFormat::Sse(SseFormat::plain()))
}

fn eras() -> [(Personality, Era); 2] {
    [
        (Personality::legacy(), Era::Legacy),
        (Personality::modern(), Era::Modern),
    ]
}

/// reliability P6, reliability I23: each cut gives exactly one delivery.
#[tokio::test]
async fn a_json_reply_cut_at_any_byte_is_unknown_until_it_is_whole() {
    for (personality, era) in eras() {
        let sweep = Sweep::over(personality, era).await;
        let all = sweep.down;
        sweep.reply(all).await;
    }
}

/// reliability P6, reliability I23: the same for a stream.
#[tokio::test]
async fn a_stream_cut_at_any_byte_is_unknown_until_its_response_is_whole() {
    for (personality, era) in eras() {
        let sweep = Sweep::over(streaming(personality), era).await;
        let event = sweep.down - AFTER_THE_EVENT;
        sweep.reply(event).await;
    }
}

/// reliability P7: what is called unsent was never executed, wherever it was cut.
#[tokio::test]
async fn a_request_cut_at_any_byte_is_never_executed() {
    for (personality, era) in eras() {
        Sweep::over(personality, era).await.request().await;
    }
}

#[tokio::test]
async fn a_reply_in_pieces_of_one_byte_is_the_same_reply() {
    for (personality, era) in [
        (Personality::legacy(), Era::Legacy),
        (streaming(Personality::legacy()), Era::Legacy),
        (streaming(Personality::modern()), Era::Modern),
    ] {
        let sweep = Sweep::over(personality, era).await;
        sweep
            .proxy
            .set_conditions(Direction::Down, LinkConditions::default().slice(1));
        sweep
            .proxy
            .set_conditions(Direction::Up, LinkConditions::default().slice(1));
        let session = sweep.setting.session().await;
        let ending = session.call(echo("in pieces"), &()).await;
        let outcome = sweep.setting.told("in pieces", ending);
        outcome.ends(Result);
        assert_eq!(
            outcome.answer["structuredContent"]["arguments"]["account"],
            "in pieces"
        );
        sweep.setting.finish().await;
    }
}
