//! Events: who hears them, what they show, and that each is logged once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tracing::field::{Field, Visit};
use tracing::span;
use warmline_core::delivery::Delivery;
use warmline_core::error::code::{Code, Reason};
use warmline_core::pool::EndReason;
use warmline_core::pool::breaker::BreakerState;
use warmline_core::pool_key::{Digest, Identity, KeyOwner, RunId};
use warmline_core::protocol::session_gone::SessionGoneForm;

use super::{Event, EventItem, Events, Fingerprint, RunEnd, SessionRef, ShortId};
use crate::metrics::{
    BreakerScope, CheckResult, ChildEnd, HealCause, MethodLabel, OpenResult, RefreshResult,
    StoreOperation,
};
use warmline_platform::lock::Mutex;

const SESSION_ID: &str = "6f1ed002-ab59-4bbd-9e4b-secret-tail";

fn which() -> SessionRef {
    SessionRef {
        identity: Some(fingerprint(1)),
        run: Some(fingerprint(2)),
        ..SessionRef::for_server("github".into())
            .with_generation(3)
            .with_session_id(Some(SESSION_ID))
    }
}

fn fingerprint(seed: u8) -> Fingerprint {
    Fingerprint::from_digest(&Digest::new([seed; 16]))
}

/// One of each kind. A new kind is not shown here by itself: a test counts them.
fn one_of_each() -> Vec<Event> {
    let mut events = of_sessions();
    events.extend(of_servers_and_runs());
    events.push(failed());
    events
}

fn failed() -> Event {
    Event::CallFailed {
        session: which(),
        method: MethodLabel::ToolsCall,
        delivery: Delivery::Unknown,
        code: Code::AnswerLost,
        reason: Reason::Timeout,
        attempts: 1,
        took: Duration::from_millis(12),
    }
}

fn of_sessions() -> Vec<Event> {
    let took = Duration::from_millis(12);
    vec![
        Event::SessionOpened {
            session: which(),
            how: OpenResult::Opened,
            took,
        },
        Event::OpenFailed {
            session: which(),
            code: Code::CannotReach,
            reason: Reason::ConnectRefused,
            what: "nobody listens".into(),
        },
        Event::SessionClosed {
            session: which(),
            why: EndReason::RunEnded,
        },
        Event::SessionNotEnded {
            session: which(),
            what: Arc::from("`ledger` answered 500 when it was asked to end a session"),
        },
        Event::SessionGone {
            session: which(),
            cause: HealCause::Reported(SessionGoneForm::NotFound),
        },
        Event::SessionHealed {
            session: which(),
            from: 2,
            state_lost: true,
            took,
        },
        Event::CheckFailed {
            session: which(),
            found: CheckResult::Silent,
        },
        Event::ServerRequestRefused {
            server: "github".into(),
            method: "roots/list",
        },
        Event::CallRetried {
            session: which(),
            reason: Reason::SessionGone,
            attempt: 2,
        },
        Event::SpareTaken { session: which() },
        Event::IsolationViolation {
            session: which(),
            caller: Some(fingerprint(9)),
        },
        Event::LongLease {
            session: which(),
            method: Some("tools/call".into()),
            held: Duration::from_secs(61),
        },
        Event::ChildExited {
            session: which(),
            how: ChildEnd::Failed,
            what: "exit status 1".into(),
        },
    ]
}

fn of_servers_and_runs() -> Vec<Event> {
    let server: Arc<str> = "github".into();
    vec![
        breaker(BreakerState::Open),
        Event::RunStarted {
            identity: fingerprint(1),
            run: fingerprint(2),
        },
        Event::RunEnded {
            identity: fingerprint(1),
            run: fingerprint(2),
            why: RunEnd::Ended,
            sessions: 2,
        },
        Event::SpareOpened {
            server: Arc::clone(&server),
            took: Duration::from_millis(12),
        },
        Event::CredentialRefreshed {
            server: Arc::clone(&server),
            identity: None,
            result: RefreshResult::Renewed,
        },
        Event::StoreFailed {
            server: Arc::clone(&server),
            operation: StoreOperation::Save,
            what: "no space left".into(),
        },
        Event::StoreRecovered {
            server: Arc::clone(&server),
        },
        Event::RecordRefused {
            server: Arc::clone(&server),
            what: "sealed with another key".into(),
        },
        Event::SecretsReplaced {
            server: Arc::clone(&server),
        },
        Event::InvariantViolated {
            promise: "a lease was settled twice",
            server: Some(Arc::clone(&server)),
        },
        Event::ListChanged {
            server,
            list: "tools",
        },
        Event::Draining,
    ]
}

fn breaker(state: BreakerState) -> Event {
    Event::BreakerChanged {
        server: "github".into(),
        scope: BreakerScope::Identity,
        identity: Some(fingerprint(1)),
        state,
        reason: Some(Reason::Unauthorized),
        retry_in: Some(Duration::from_secs(10)),
    }
}

fn numbered(number: u32) -> Event {
    Event::SessionOpened {
        session: SessionRef::for_server("s".into()).with_generation(number),
        how: OpenResult::Opened,
        took: Duration::ZERO,
    }
}

#[test]
fn nothing_is_kept_for_nobody() {
    let events = Events::default();
    events.emit(Event::Draining);
    assert!(events.has_no_channel(), "made before anybody subscribed");
    drop(events.subscribe());
    events.emit(Event::Draining);
    assert!(
        events.subscribe().has_nothing(),
        "kept although nobody heard"
    );
}

#[tokio::test]
async fn a_subscriber_hears_everything_in_order_from_when_it_subscribed() {
    let events = Events::default();
    let mut early = events.subscribe();
    events.emit(numbered(1));
    let mut late = events.clone().subscribe();
    events.emit(numbered(2));
    assert_eq!(early.next().await, Some(EventItem::Event(numbered(1))));
    assert_eq!(early.next().await, Some(EventItem::Event(numbered(2))));
    assert_eq!(late.next().await, Some(EventItem::Event(numbered(2))));
    drop(events);
    assert_eq!(early.next().await, None, "the engine is gone");
}

#[tokio::test]
async fn a_slow_subscriber_loses_the_oldest_and_hears_how_many() {
    let events = Events::default();
    let (mut slow, mut quick) = (events.subscribe(), events.subscribe());
    for number in 0..3000 {
        events.emit(numbered(number));
        assert_eq!(quick.next().await, Some(EventItem::Event(numbered(number))));
    }
    let Some(EventItem::Missed(missed)) = slow.next().await else {
        panic!("nothing was missed");
    };
    let first = u32::try_from(missed).unwrap();
    for number in first..3000 {
        assert_eq!(slow.next().await, Some(EventItem::Event(numbered(number))));
    }
    assert!(slow.has_nothing());
}

#[tokio::test]
async fn a_subscription_is_a_stream_too() {
    let events = Events::default();
    let stream = events.subscribe().into_stream();
    events.emit(numbered(7));
    events.emit(Event::Draining);
    drop(events);
    let heard: Vec<EventItem> = stream.collect().await;
    assert_eq!(
        heard,
        [
            EventItem::Event(numbered(7)),
            EventItem::Event(Event::Draining)
        ]
    );
}

#[test]
fn every_event_says_its_kind_in_json_and_shows_no_whole_session_id() {
    for event in one_of_each() {
        let json = serde_json::to_string(&event).unwrap();
        let start = format!(r#"{{"kind":"{}""#, event.kind());
        assert!(json.starts_with(&start), "{json}");
        assert!(!json.contains("secret-tail"), "{json}");
        assert!(!json.contains("null"), "{json}");
    }
}

/// A35, A95: every event is logged once, with the name of its server.
#[test]
fn every_event_is_one_line_of_the_log_with_its_server_and_no_whole_session_id() {
    for event in one_of_each() {
        let lines = lines_of(|| Events::default().emit(event.clone()));
        assert_eq!(lines.len(), 1, "{} gave {lines:?}", event.kind());
        let line = lines.first().unwrap();
        assert!(!line.contains("secret-tail"), "{line}");
        if let Some(server) = event.server() {
            assert!(line.contains(&format!("server={server}")), "{line}");
        }
    }
}

/// A44, A95: members in JSON, levels and fields in the log are promises: they stand as they stood. A
/// breaker that changed says its scope and reason, a session that was not ended its key.
#[test]
fn events_are_written_as_they_were_before() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../warmline-cli/tests/promises/before/events-of-each-kind.txt"
    );
    let mut now = String::new();
    for event in one_of_each() {
        let json = serde_json::to_string(&event).unwrap();
        let lines = lines_of(|| Events::default().emit(event));
        writeln!(now, "{json}\n{}", lines.join("\n")).unwrap();
    }
    // The short form of a session id is another one in each process.
    let now = now.replace(&ShortId::from_session_id(SESSION_ID).to_string(), "SESSION");
    if std::env::var_os("WARMLINE_BLESS").is_some() {
        std::fs::write(file, &now).unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), now);
}

/// reliability O25: a server that is gone fails the check of every session that is held, and
/// takes them all along: each is one line for its server and reason, however many there are.
#[test]
fn a_server_that_is_gone_is_one_line_for_all_its_sessions() {
    let of_run = |run: u8| SessionRef {
        run: Some(fingerprint(run)),
        ..which()
    };
    let failed = |run: u8, found: CheckResult| Event::CheckFailed {
        session: of_run(run),
        found,
    };
    let gone = |run: u8| Event::SessionGone {
        session: of_run(run),
        cause: HealCause::CheckFailed,
    };
    let lines = lines_of(|| {
        let events = Events::default();
        for run in 0..100 {
            events.emit(failed(run, CheckResult::Unreachable));
            events.emit(gone(run));
        }
        events.emit(failed(0, CheckResult::Silent));
    });
    let shown = lines.iter().filter(|line| !line.starts_with("DEBUG"));
    let shown: Vec<_> = shown.map(|line| line.split(" server=").next()).collect();
    let expected = [
        "INFO message=check failed",
        "WARN message=session gone",
        "INFO message=check failed",
    ];
    assert_eq!(shown, expected.map(Some));
    assert_eq!(lines.len(), 201, "each stands among those for debugging");
}

/// reliability O24, reliability O25: a program that ends again and again is one line for how it ended,
/// with its last words. That its sessions went with it, and were opened anew, is no fault beside it.
#[test]
fn a_program_that_keeps_ending_is_one_line() {
    let lines = lines_of(|| {
        let events = Events::default();
        for _ in 0..100 {
            events.emit(Event::SessionGone {
                session: which(),
                cause: HealCause::ChildExit,
            });
            for how in [ChildEnd::Failed, ChildEnd::Finished] {
                events.emit(Event::ChildExited {
                    session: which(),
                    how,
                    what: "it ended: boom".into(),
                });
            }
            events.emit(Event::SessionHealed {
                session: which(),
                from: 1,
                state_lost: false,
                took: Duration::from_millis(1),
            });
        }
    });
    let shown = lines.iter().filter(|line| !line.starts_with("DEBUG"));
    let shown: Vec<_> = shown.map(|line| line.split(" server=").next()).collect();
    let expected = [
        "WARN message=child exited",
        "WARN message=child exited",
        "INFO message=healed",
    ];
    assert_eq!(shown, expected.map(Some));
    assert_eq!(lines.len(), 400, "each stands among those for debugging");
}

#[test]
fn kinds_differ_and_none_is_left_out_here() {
    let mut kinds: Vec<&str> = one_of_each().iter().map(Event::kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(
        kinds.len(),
        Event::KINDS,
        "add the new kind to `one_of_each`"
    );
}

/// reliability T9: two ids can be told apart, and nothing of them is shown.
#[test]
fn a_session_id_is_shown_by_a_digest_alone() {
    let ids = ["", "session7", SESSION_ID, "\u{1b}[31mred", "ééé"];
    let shown = ids.map(|id| ShortId::from_session_id(id).to_string());
    for (id, short) in ids.iter().zip(&shown) {
        assert_eq!(
            *short,
            ShortId::from_session_id(id).to_string(),
            "always the same"
        );
        assert_eq!(short.len(), 8);
        assert!(
            short.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{short}"
        );
    }
    let distinct: BTreeSet<_> = shown.iter().collect();
    assert_eq!(distinct.len(), ids.len());
}

#[test]
fn a_fingerprint_shows_four_bytes_and_everybody_has_none() {
    let digest = Digest::new([0xab; 16]);
    let expected = "abababab";
    assert_eq!(Fingerprint::from(Identity(digest)).to_string(), expected);
    assert_eq!(Fingerprint::from(RunId(digest)).to_string(), expected);
    assert_eq!(Fingerprint::from_owner(KeyOwner::AnyIdentity), None);
    assert_eq!(digest.fingerprint(), expected, "one form for people");
}

/// What was logged while a function ran, one text for each line.
fn lines_of(work: impl FnOnce()) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let catcher = Catcher(Arc::clone(&lines));
    tracing::subscriber::with_default(catcher, work);
    lines.lock().clone()
}

/// Keeps every line that is logged.
struct Catcher(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, " {}={value}", field.name()).unwrap();
    }
}

impl tracing::Subscriber for Catcher {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().push(text.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}
