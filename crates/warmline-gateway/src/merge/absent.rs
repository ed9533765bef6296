//! Servers that are left out of a list: how long each is waited for, and who is told.
//!
//! Asked by: [`lists`](super::lists), and whoever else asks all servers.  They are asked at once, so
//! one that hangs delays a list by its share and no more; and one that was waited for in vain is
//! not waited for again, whatever it is asked, until it answered: it is looked for meanwhile. A
//! server that hangs for one mostly hangs for all, so others wait less for it; but not so little
//! that somebody for whom alone it hangs could keep it from them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use warmline::clock::{self, Instant};
use warmline::core::code::Reason;
use warmline::core::era::{Era, Version};
use warmline::core::key::Digest;
use warmline::{Code, Error, List, ServerHandle};

use crate::Shared;
use crate::door;
use crate::failure::{self, Candour};
use crate::who::Subject;

/// How long a list waits for a server that was late, or is known to be away.
const SHORT_SHARE: Duration = Duration::from_millis(250);
/// How long a list waits for a server that was late for somebody else lately.
const LESSER_SHARE: Duration = Duration::from_secs(2);
/// So long a server that was left out is told as one, and is not asked again in an era that it
/// does not speak.
const LATE_FOR: Duration = Duration::from_secs(60);
/// So long one look for a server that was late goes on.
const LOOKS_FOR: Duration = Duration::from_secs(60);
/// So long it is believed that a server speaks the modern era.
const MODERN_FOR: Duration = Duration::from_secs(60 * 60);
/// More are not remembered.
const MAX_REMEMBERED: usize = 4_096;

/// Why a server is left out of a list.
#[derive(Debug)]
pub(crate) enum Why {
    /// It did not answer within its share of the time.
    Late,
    /// It could not be met, or said no.
    Failed(Error),
}

/// A server that is left out of a list.
#[derive(Debug)]
pub(crate) struct LeftOut {
    pub(crate) server: String,
    pub(crate) why: Why,
}

impl LeftOut {
    /// Whether it said that it speaks the modern era, and the client does not.
    fn is_modern(&self) -> bool {
        let modern = Version::NEWEST_MODERN.as_str();
        match &self.why {
            Why::Late => false,
            Why::Failed(error) => {
                error.code() == Code::EraUnknown
                    && error.why().is_some_and(|why| why.contains(modern))
            },
        }
    }

    /// What a client is told of it.
    pub(super) fn told(&self) -> Value {
        let (code, what) = match &self.why {
            Why::Late => (
                Code::Deadline.word(),
                "it did not answer in time".to_owned(),
            ),
            Why::Failed(error) if self.is_modern() => {
                let modern = Version::NEWEST_MODERN.as_str();
                let what = format!("`{}` speaks {modern} alone", self.server);
                (error.code().word(), what)
            },
            Why::Failed(error) => {
                let what = failure::what(error, Candour::Reserved);
                (error.code().word(), what)
            },
        };
        json!({ "server": self.server, "code": code, "what": what })
    }
}

/// The servers that were left out lately, and for whom.
#[derive(Debug, Default)]
pub(crate) struct Absences {
    known: Mutex<HashMap<Whom, Vec<Absent>>>,
    /// Servers that were late for anybody: at what, and when. Who answers it to anybody is none.
    late: Mutex<HashMap<(Era, String), (Asked, Instant)>>,
    /// Servers that said to a legacy client that they speak the other era, and when.
    modern: Mutex<HashMap<String, Instant>>,
}

/// For whom, in which era, and which server.
pub(crate) type Whom = (Digest, Era, String);

/// What a server was asked for: one that hangs at one of its lists may be quick with the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    List(List),
    /// To tell what it does, from a level on.
    Level,
}

#[derive(Debug)]
struct Absent {
    asked: Asked,
    since: Instant,
    why: Kind,
    looking: Looking,
}

/// Whether somebody waits for a server that was late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looking {
    Somebody,
    Nobody,
}

/// What is known of a server that is left out.
#[derive(Debug)]
enum Kind {
    Late,
    /// It does not speak the era: to ask again would only start it again.
    OtherEra(Error),
    Failed,
}

impl Kind {
    const fn word(&self) -> &'static str {
        match self {
            Self::Late => "late",
            Self::OtherEra(_) => "other-era",
            Self::Failed => "failed",
        }
    }
}

impl Absences {
    /// How long a list waits for a server, where it waits for `most` at most; or why it is left out
    /// without being asked.
    ///
    /// # Errors
    /// It said a moment ago that it does not speak the era.
    pub(crate) fn share(&self, whom: &Whom, most: Duration) -> Result<Duration, Error> {
        let known = self.known.lock();
        let absent = known.get(whom).map_or(&[][..], Vec::as_slice);
        let other_era = absent.iter().find_map(|absent| match &absent.why {
            Kind::OtherEra(error) if absent.is_fresh() => Some(error),
            Kind::OtherEra(_) | Kind::Late | Kind::Failed => None,
        });
        if let Some(error) = other_era {
            return Err(error.clone());
        }
        let is_late = absent.iter().any(|absent| matches!(absent.why, Kind::Late));
        drop(known);
        Ok(if is_late {
            most.min(SHORT_SHARE)
        } else if self.is_late_for_anybody(whom) {
            most.min(LESSER_SHARE)
        } else {
            most
        })
    }

    fn is_late_for_anybody(&self, (_, era, server): &Whom) -> bool {
        let late = self.late.lock();
        let since = late.get(&(*era, server.clone()));
        since.is_some_and(|(_, since)| since.elapsed() < LATE_FOR)
    }

    /// Notes that a server was late for somebody.
    fn is_late(&self, (_, era, server): &Whom, asked: Asked) {
        let mut late = self.late.lock();
        if late.len() >= MAX_REMEMBERED {
            late.clear();
        }
        let now = clock::now();
        late.insert((*era, server.clone()), (asked, now));
    }

    /// The same for a server that may be known to be away before anybody asked for a list.
    pub(crate) fn share_of(
        &self,
        server: &ServerHandle,
        whom: &Whom,
        most: Duration,
    ) -> Result<Duration, Error> {
        let most = if server.seems_absent() {
            most.min(SHORT_SHARE)
        } else {
            most
        };
        self.share(whom, most)
    }

    /// A server was left out. One line says so, when it begins.
    pub(crate) fn left_out(&self, whom: Whom, asked: Asked, left_out: &LeftOut) {
        let server = left_out.server.as_str();
        if left_out.is_modern() {
            let mut modern = self.modern.lock();
            if modern.len() >= MAX_REMEMBERED {
                modern.clear();
            }
            modern.insert(server.to_owned(), clock::now());
        }
        if matches!(left_out.why, Why::Late) {
            self.is_late(&whom, asked);
        }
        let why = match &left_out.why {
            Why::Late => Kind::Late,
            Why::Failed(error) if error.code() == Code::EraUnknown => Kind::OtherEra(error.clone()),
            Why::Failed(_) => Kind::Failed,
        };
        if self.note(whom, asked, why) == Before::There && asked != Asked::Level {
            let (code, what) = match &left_out.why {
                Why::Late => (Code::Deadline, "it did not answer in time".to_owned()),
                // Which folders it was looked for in, `doctor` says.
                Why::Failed(error) if error.reason() == Reason::ProgramMissing => {
                    (error.code(), error.to_string())
                },
                Why::Failed(error) => (error.code(), format!("{error:#}")),
            };
            tracing::warn!(server, %code, what, "left out of the list of all servers");
        }
    }

    fn note(&self, whom: Whom, asked: Asked, why: Kind) -> Before {
        let mut known = self.known.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        let absent = known.entry(whom).or_default();
        let since = clock::now();
        match absent.iter_mut().find(|absent| absent.asked == asked) {
            // What was not asked again is not known any better.
            Some(absent) if matches!(absent.why, Kind::OtherEra(_)) && absent.is_fresh() => {
                Before::LeftOut
            },
            Some(absent) => {
                (absent.since, absent.why) = (since, why);
                Before::LeftOut
            },
            None => {
                absent.push(Absent {
                    asked,
                    since,
                    why,
                    looking: Looking::Nobody,
                });
                Before::There
            },
        }
    }

    /// Waits on for a server that was late, beside the list that does not: when it `answers`, it
    /// is waited for again.
    pub(crate) fn look_for(
        shared: &Arc<Shared>,
        whom: Whom,
        asked: Asked,
        answers: impl Future<Output = bool> + Send + 'static,
    ) {
        let is_looked_for = shared
            .absences
            .looking(&whom, asked, Looking::Somebody)
            .is_none_or(|before| before == Looking::Somebody);
        if is_looked_for {
            return;
        }
        let mut stopping = shared.stopping.clone();
        let shared = Arc::downgrade(shared);
        drop(clock::spawn("look-for-server", async move {
            let answered = tokio::select! {
                answered = clock::timeout(LOOKS_FOR, answers) => answered,
                // Nobody asks for it any more.
                () = door::stopped(&mut stopping) => return,
            };
            let Some(shared) = shared.upgrade() else {
                return;
            };
            if answered.unwrap_or_default() {
                shared.absences.present(&whom, asked);
            } else {
                shared.absences.looking(&whom, asked, Looking::Nobody);
            }
        }));
    }

    /// Whether somebody looks for a server from now on; gives who did before, if it is absent.
    fn looking(&self, whom: &Whom, asked: Asked, now: Looking) -> Option<Looking> {
        let mut known = self.known.lock();
        let absent = known.get_mut(whom)?;
        let absent = absent.iter_mut().find(|absent| absent.asked == asked)?;
        Some(std::mem::replace(&mut absent.looking, now))
    }

    /// The servers that were left out of somebody's list lately, each with a word for why.
    pub(crate) fn now(&self) -> HashMap<String, &'static str> {
        let known = self.known.lock();
        let all = known
            .iter()
            .flat_map(|((.., server), absent)| absent.iter().map(move |one| (server, one)));
        let lately = all.filter(|(_, one)| one.is_fresh() && one.asked != Asked::Level);
        lately
            .map(|(server, one)| (server.clone(), one.why.word()))
            .collect()
    }

    /// Whether a server said lately that it speaks the modern era alone.
    pub(crate) fn says_modern(&self, server: &str) -> bool {
        let known = self.modern.lock();
        let said = known.get(server);
        said.is_some_and(|said| said.elapsed() < MODERN_FOR)
    }

    /// A server is there.
    pub(crate) fn present(&self, whom: &Whom, asked: Asked) {
        let server = (whom.1, whom.2.clone());
        let mut late = self.late.lock();
        if late.get(&server).is_some_and(|(at, _)| *at == asked) {
            late.remove(&server);
        }
        drop(late);
        let mut known = self.known.lock();
        let Some(absent) = known.get_mut(whom) else {
            return;
        };
        let was_absent = absent.iter().any(|absent| absent.asked == asked);
        // Whoever answers anything could be told a level as well.
        absent.retain(|absent| absent.asked != asked && absent.asked != Asked::Level);
        if absent.is_empty() {
            known.remove(whom);
        }
        drop(known);
        if was_absent && asked != Asked::Level {
            let server = whom.2.as_str();
            tracing::info!(server, "back in the list of all servers");
        }
    }
}

/// Whether a server was left out already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    There,
    LeftOut,
}

impl Absent {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < LATE_FOR
    }
}

/// Whom it is remembered for. Callers that nobody knows are told apart by nothing that lasts.
pub(crate) fn whom(subject: &Subject, era: Era, server: &str) -> Whom {
    let who = match subject {
        Subject::Known(known) => known.identity.digest(),
        Subject::Anybody => Digest::new([0; 16]),
    };
    (who, era, server.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline::core::exchange::Trouble;

    const MOST: Duration = Duration::from_secs(10);

    fn left_out(why: Why) -> LeftOut {
        LeftOut {
            server: "a".to_owned(),
            why,
        }
    }

    fn failed(reason: Reason) -> LeftOut {
        let trouble = Trouble::new(reason, "no").because("it speaks 2026-07-28");
        left_out(Why::Failed(Error::unsent(trouble)))
    }

    fn of(era: Era) -> Whom {
        whom(&Subject::Anybody, era, "a")
    }

    const TOOLS: Asked = Asked::List(List::Tools);
    const PROMPTS: Asked = Asked::List(List::Prompts);

    #[tokio::test(start_paused = true)]
    async fn who_was_late_is_not_waited_for_again_until_it_answers() {
        let absences = Absences::default();
        let here = of(Era::Legacy);
        let share = || absences.share(&here, MOST).ok();
        assert_eq!(share(), Some(MOST));
        absences.left_out(here.clone(), TOOLS, &left_out(Why::Late));
        assert_eq!(share(), Some(SHORT_SHARE));
        assert_eq!(absences.share(&of(Era::Modern), MOST).ok(), Some(MOST));
        absences.present(&here, PROMPTS);
        assert_eq!(share(), Some(SHORT_SHARE), "it is quick with prompts alone");
        clock::sleep(LATE_FOR * 10).await;
        assert_eq!(share(), Some(SHORT_SHARE), "nobody heard of it since");
        absences.present(&here, TOOLS);
        assert_eq!(share(), Some(MOST));
        absences.left_out(here.clone(), TOOLS, &failed(Reason::Dns));
        assert_eq!(share(), Some(MOST), "it was quick");
    }

    /// Others wait less for a server that was late for somebody, for a while, or until it answers
    /// to anybody; and never so little that it could be kept from them.
    #[tokio::test(start_paused = true)]
    async fn who_was_late_for_one_is_waited_for_less_by_others() {
        let absences = Absences::default();
        let somebody = |number: u8| (Digest::new([number; 16]), Era::Legacy, "a".to_owned());
        let (one, other) = (somebody(1), somebody(2));
        let share = |whom: &Whom| absences.share(whom, MOST).unwrap();
        absences.left_out(one.clone(), TOOLS, &left_out(Why::Late));
        assert_eq!((share(&one), share(&other)), (SHORT_SHARE, LESSER_SHARE));
        absences.present(&other, PROMPTS);
        assert_eq!(
            share(&other),
            LESSER_SHARE,
            "it is quick with prompts alone"
        );
        absences.present(&other, TOOLS);
        assert_eq!((share(&one), share(&other)), (SHORT_SHARE, MOST));
        absences.left_out(one.clone(), TOOLS, &left_out(Why::Late));
        clock::sleep(LATE_FOR).await;
        assert_eq!(share(&other), MOST, "it was long ago");
    }

    #[tokio::test(start_paused = true)]
    async fn who_speaks_another_era_is_not_asked_again_for_a_while() {
        let absences = Absences::default();
        let here = of(Era::Legacy);
        let other = failed(Reason::Version);
        for _ in 0..3 {
            // That nobody asked it meanwhile makes the while no longer.
            absences.left_out(here.clone(), TOOLS, &other);
            assert!(absences.share(&here, MOST).is_err());
            clock::sleep(LATE_FOR / 3).await;
        }
        assert_eq!(absences.share(&here, MOST).ok(), Some(MOST));
        assert!(absences.says_modern("a") && !absences.says_modern("b"));
        clock::sleep(MODERN_FOR).await;
        assert!(!absences.says_modern("a"));
    }
}
