//! What every test here needs: a ledger server, sessions to it, payments, and the equation that
//! must hold between what callers were told and what the server did.

use crate::prelude::*;

use std::cell::Cell;
use std::collections::BTreeMap;

use warmline_core::exchange::{AttemptFailure, Deadlines, DeliveryFailure};
use warmline_testkit::Census;

/// How an attempt shall end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// With a result.
    Result,
    /// With this JSON-RPC error.
    Error(i64),
    Unsent(Reason),
    Refused(Reason),
    Unknown(Reason),
}

/// How an attempt ended, with all that the caller got.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) ended: Expected,
    pub(crate) trouble: Option<Diagnostic>,
    /// The request, where it was given back.
    pub(crate) given_back: Option<Request>,
    /// The raw result or error.
    pub(crate) answer: Value,
}

/// What was told of the attempts for one account.
#[derive(Clone, Copy, Debug, Default)]
struct ReportedOutcomes {
    results: usize,
    doubtful: usize,
}

thread_local! {
    // Every test has a thread and a runtime of its own. A keeper may outlive its connections by
    // half the time they are kept.
    static FINISHED: Cell<usize> = const { Cell::new(0) };
}

/// A server, and a client that keeps a session to it.
pub(crate) struct Setting {
    pub(crate) server: LedgerServer,
    pub(crate) upstream: Upstream,
    /// The server as the client knows it; tests change its limits.
    pub(crate) known_as: ServerTarget,
    pub(crate) declared: ClientProfile,
    kept: Mutex<Option<Arc<Session>>>,
    told: Mutex<BTreeMap<String, ReportedOutcomes>>,
}

impl Setting {
    /// The era follows from the personality, so that no probe disturbs the faults.
    pub(crate) fn new(personality: Personality, era: Era) -> Self {
        let server = LedgerServer::start(personality).unwrap();
        Self::around(server, era)
    }

    pub(crate) fn legacy() -> Self {
        Self::new(Personality::legacy(), Era::Legacy)
    }

    pub(crate) fn modern() -> Self {
        Self::new(Personality::modern(), Era::Modern)
    }

    pub(crate) fn around(server: LedgerServer, era: Era) -> Self {
        let mut known_as = ServerTarget::http("ledger", server.url().parse().unwrap());
        known_as.era = Some(era);
        Self {
            server,
            upstream: Upstream::new(),
            known_as,
            declared: ClientProfile::default(),
            kept: Mutex::default(),
            told: Mutex::default(),
        }
    }

    /// Goes another way to the server: through a proxy.
    pub(crate) fn through(&mut self, url: &str) {
        let reach = ServerTarget::http("ledger", url.parse().unwrap()).transport;
        self.known_as.transport = reach;
    }

    pub(crate) async fn open(&self) -> Session {
        self.try_open().await.unwrap()
    }

    pub(crate) async fn try_open(&self) -> Result<Session, Diagnostic> {
        self.upstream.open(&self.known_as, &self.declared).await
    }

    /// The session in use; a new one where the last was retired.
    pub(crate) async fn session(&self) -> Arc<Session> {
        let kept = self.kept.lock().unwrap().clone();
        if let Some(session) = kept.filter(|session| session.retired_reason().is_none()) {
            return session;
        }
        let fresh = Arc::new(self.open().await);
        *self.kept.lock().unwrap() = Some(Arc::clone(&fresh));
        fresh
    }

    /// Forgets the session in use, so that the next call opens one.
    pub(crate) fn forget(&self) {
        *self.kept.lock().unwrap() = None;
    }

    /// What the server does wrong from now on.
    pub(crate) fn inject(&self, rule: FaultRule) {
        self.server.inject(rule);
    }

    pub(crate) async fn pay(&self, account: &str, listener: &dyn Listener) -> Outcome {
        let session = self.session().await;
        let ending = session.call(payment(account), listener).await;
        self.told(account, ending)
    }

    /// Notes what the caller was told, and holds it against the ledger (Q1, Q2, Q4).
    pub(crate) fn told(&self, account: &str, ending: AttemptResult) -> Outcome {
        let outcome = Outcome::of(ending);
        let mut told = self.told.lock().unwrap();
        let one = told.entry(account.to_owned()).or_default();
        match outcome.ended {
            Expected::Result => one.results += 1,
            Expected::Error(_) | Expected::Unknown(_) => one.doubtful += 1,
            Expected::Unsent(_) | Expected::Refused(_) => {},
        }
        self.check_one(account, *one);
        outcome
    }

    fn check_one(&self, account: &str, told: ReportedOutcomes) {
        let done = self.executions(account);
        let most = told.results + told.doubtful;
        assert!(
            told.results <= done && done <= most,
            "{account}: executed {done} times, the caller was told {told:?}"
        );
    }

    /// How often the payments of this account were made.
    pub(crate) fn executions(&self, account: &str) -> usize {
        self.server.ledger().count(|entry| {
            entry.phase == ExecutionPhase::Commit
                && entry.arguments["account"].as_str() == Some(account)
        })
    }

    /// One row of a table: under this fault a payment ends as expected, what is given back can be
    /// sent again, and the next payment works, in a new session where the old one was retired.
    pub(crate) async fn row(&self, account: &str, rule: FaultRule, expected: Expected) -> Outcome {
        self.inject(rule);
        let mut outcome = self.pay(account, &()).await;
        assert_eq!(outcome.ended, expected, "{account}: {:?}", outcome.trouble);
        outcome.names_the_server(account);
        self.server.control().clear_faults();
        self.go_on(account, &mut outcome).await;
        outcome
    }

    /// Life after an outcome.
    pub(crate) async fn go_on(&self, account: &str, outcome: &mut Outcome) {
        if let Some(request) = outcome.given_back.take() {
            let ending = self.session().await.call(request, &()).await;
            let again = self.told(account, ending);
            assert_eq!(
                again.ended,
                Expected::Result,
                "{account}, sent again: {:?}",
                again.trouble
            );
            assert_eq!(self.executions(account), 1, "{account}, sent again");
        }
        let next = format!("{account}, next");
        let after = self.pay(&next, &()).await;
        assert_eq!(after.ended, Expected::Result, "{next}: {:?}", after.trouble);
        assert_eq!(after.account(), next);
    }

    /// The end of every test: the equation once more, nothing that a client must not do, and no
    /// task left but a keeper of the connections for each setting.
    pub(crate) async fn finish(self) {
        self.forget();
        for (account, told) in self.told.lock().unwrap().iter() {
            self.check_one(account, *told);
        }
        assert_eq!(self.server.violations(), Vec::<String>::new());
        let most = FINISHED.get() + 1;
        FINISHED.set(most);
        within(Duration::from_secs(5), || Census::take().tasks <= most).await;
    }
}

impl Outcome {
    pub(crate) fn of(ending: AttemptResult) -> Self {
        match ending {
            AttemptResult::Answered(Reply::Result(raw)) => Self {
                ended: Expected::Result,
                trouble: None,
                given_back: None,
                answer: serde_json::from_slice(&raw).unwrap(),
            },
            AttemptResult::Answered(Reply::Error(raw)) => {
                let answer: Value = serde_json::from_slice(&raw).unwrap();
                Self {
                    ended: Expected::Error(answer["code"].as_i64().unwrap()),
                    trouble: None,
                    given_back: None,
                    answer,
                }
            },
            AttemptResult::Failed(failure) => Self::failed(*failure),
        }
    }

    fn failed(failure: AttemptFailure) -> Self {
        let AttemptFailure {
            delivery_failure: fate,
            diagnostic: trouble,
        } = failure;
        let (ended, given_back) = match fate {
            DeliveryFailure::Unsent(request) => (Expected::Unsent(trouble.reason), Some(request)),
            DeliveryFailure::Refused(request) => (Expected::Refused(trouble.reason), Some(request)),
            DeliveryFailure::Unknown => (Expected::Unknown(trouble.reason), None),
        };
        Self {
            ended,
            trouble: Some(trouble),
            given_back,
            answer: Value::Null,
        }
    }

    /// It ended like this.
    #[track_caller]
    pub(crate) fn ends(&self, expected: Expected) {
        assert_eq!(self.ended, expected, "{:?}", self.trouble);
    }

    /// The account that the answer is about: it must be that of the question.
    pub(crate) fn account(&self) -> String {
        let account = &self.answer["structuredContent"]["account"];
        account.as_str().unwrap_or_default().to_owned()
    }

    /// All that people are shown.
    pub(crate) fn words(&self) -> String {
        self.trouble.as_ref().map_or_else(String::new, |trouble| {
            format!(
                "{}; {}",
                trouble.message,
                trouble.cause.as_deref().unwrap_or_default()
            )
        })
    }

    #[track_caller]
    pub(crate) fn names_the_server(&self, account: &str) {
        if let Some(trouble) = &self.trouble {
            let holds = trouble.message.contains("`ledger`");
            assert!(holds, "{account}: {}", trouble.message);
        }
    }
}

/// A server of one era alone.
pub(crate) fn personality_of(era: Era) -> Personality {
    match era {
        Era::Legacy => Personality::legacy(),
        Era::Modern => Personality::modern(),
    }
}

/// A payment that may not be made twice.
pub(crate) fn payment(account: &str) -> Request {
    tool("pay", &json!({"amount": 1, "account": account}))
}

/// A call of a tool that waits for seconds, not minutes, so that a test fails instead of hanging.
pub(crate) fn tool(name: &str, arguments: &Value) -> Request {
    let params = Params::from_serialize(&json!({"name": name, "arguments": arguments})).unwrap();
    Request::new("tools/call", params).with_deadlines(within_ms(20_000, 40_000))
}

pub(crate) fn within_ms(idle: u64, total: u64) -> Deadlines {
    Deadlines {
        idle: Duration::from_millis(idle),
        total: Duration::from_millis(total),
    }
}

/// Waits until something is true.
#[track_caller]
pub(crate) fn within(limit: Duration, fits: impl Fn() -> bool) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let waited = async {
            while !fits() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let came = tokio::time::timeout(limit, waited).await;
        assert!(
            came.is_ok(),
            "it did not come true in {limit:?}, at {caller}"
        );
    }
}
