//! Servers that are left out of a list: how long each is waited for, and who is told.
//!
//! Asked by: [`lists`](super::lists).  All servers are asked at once, so one that hangs delays a
//! list by its share and no more; and one that was waited for in vain a moment ago is not waited
//! for again: its answer goes on being read, and counts as soon as it is there.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use warmline::clock::{self, Instant};
use warmline::core::era::{Era, Version};
use warmline::core::key::Digest;
use warmline::{Code, Error, List};

use crate::failure::{self, Candour};
use crate::who::Subject;

/// How long a list waits for a server that was late just now.
const SHORT_SHARE: Duration = Duration::from_millis(250);
/// So long a server counts as late.
const LATE_FOR: Duration = Duration::from_secs(60);
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
    known: Mutex<HashMap<Whom, Absent>>,
    /// Servers that said to a legacy client that they speak the other era, and when.
    modern: Mutex<HashMap<String, Instant>>,
}

/// For whom, in which era, of which list, and which server: one that hangs at one of its lists may
/// be quick with the others.
type Whom = (Digest, Era, List, String);

#[derive(Debug)]
struct Absent {
    since: Instant,
    why: Kind,
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
    pub(super) fn share(&self, whom: &Whom, most: Duration) -> Result<Duration, Error> {
        let known = self.known.lock();
        match known.get(whom) {
            Some(absent) if absent.since.elapsed() < LATE_FOR => match &absent.why {
                Kind::Late => Ok(most.min(SHORT_SHARE)),
                Kind::OtherEra(error) => Err(error.clone()),
                Kind::Failed => Ok(most),
            },
            _ => Ok(most),
        }
    }

    /// A server was left out. One line says so, when it begins.
    pub(super) fn left_out(&self, whom: Whom, absent: &LeftOut) {
        let server = absent.server.as_str();
        if absent.is_modern() {
            let mut modern = self.modern.lock();
            if modern.len() >= MAX_REMEMBERED {
                modern.clear();
            }
            modern.insert(server.to_owned(), clock::now());
        }
        let why = match &absent.why {
            Why::Late => Kind::Late,
            Why::Failed(error) if error.code() == Code::EraUnknown => Kind::OtherEra(error.clone()),
            Why::Failed(_) => Kind::Failed,
        };
        let mut known = self.known.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        let now = clock::now();
        let before = match known.entry(whom) {
            // What was not asked again is not known any better.
            Entry::Occupied(mut known) => {
                let absent = known.get_mut();
                let was_asked =
                    !matches!(absent.why, Kind::OtherEra(_)) || absent.since.elapsed() >= LATE_FOR;
                if was_asked {
                    *absent = Absent { since: now, why };
                }
                true
            },
            Entry::Vacant(place) => {
                place.insert(Absent { since: now, why });
                false
            },
        };
        drop(known);
        if !before {
            let (code, what) = match &absent.why {
                Why::Late => (Code::Deadline, "it did not answer in time".to_owned()),
                Why::Failed(error) => (error.code(), format!("{error:#}")),
            };
            tracing::warn!(server, %code, what, "left out of the list of all servers");
        }
    }

    /// The servers that were left out of somebody's list lately, each with a word for why.
    pub(crate) fn now(&self) -> HashMap<String, &'static str> {
        let known = self.known.lock();
        let lately = known
            .iter()
            .filter(|(_, absent)| absent.since.elapsed() < LATE_FOR);
        lately
            .map(|((.., server), absent)| (server.clone(), absent.why.word()))
            .collect()
    }

    /// Whether a server said lately that it speaks the modern era alone.
    pub(crate) fn says_modern(&self, server: &str) -> bool {
        let known = self.modern.lock();
        let said = known.get(server);
        said.is_some_and(|said| said.elapsed() < MODERN_FOR)
    }

    /// A server is there.
    pub(super) fn present(&self, whom: &Whom) {
        let mut known = self.known.lock();
        if known.is_empty() {
            return;
        }
        let was = known.remove(whom);
        drop(known);
        if was.is_some() {
            let server = whom.3.as_str();
            tracing::info!(server, "back in the list of all servers");
        }
    }
}

/// Whom it is remembered for. Callers that nobody knows are told apart by nothing that lasts.
pub(super) fn whom(subject: &Subject, era: Era, list: List, server: &str) -> Whom {
    let who = match subject {
        Subject::Known(known) => known.identity.digest(),
        Subject::Anybody => Digest::new([0; 16]),
    };
    (who, era, list, server.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use warmline::core::code::Reason;
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
        whom(&Subject::Anybody, era, List::Tools, "a")
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_late_is_not_waited_for_again_for_a_while() {
        let absences = Absences::default();
        let here = of(Era::Legacy);
        assert_eq!(absences.share(&here, MOST).ok(), Some(MOST));
        absences.left_out(here.clone(), &left_out(Why::Late));
        assert_eq!(absences.share(&here, MOST).ok(), Some(SHORT_SHARE));
        assert_eq!(absences.share(&of(Era::Modern), MOST).ok(), Some(MOST));
        let prompts = whom(&Subject::Anybody, Era::Legacy, List::Prompts, "a");
        absences.present(&prompts);
        assert_eq!(absences.share(&prompts, MOST).ok(), Some(MOST));
        let still = absences.share(&here, MOST).ok();
        assert_eq!(still, Some(SHORT_SHARE), "it is quick with prompts alone");
        clock::sleep(LATE_FOR).await;
        assert_eq!(absences.share(&here, MOST).ok(), Some(MOST));
        absences.left_out(here.clone(), &left_out(Why::Late));
        absences.present(&here);
        assert_eq!(absences.share(&here, MOST).ok(), Some(MOST));
        absences.left_out(here.clone(), &failed(Reason::Dns));
        assert_eq!(absences.share(&here, MOST).ok(), Some(MOST), "it was quick");
    }

    #[tokio::test(start_paused = true)]
    async fn who_speaks_another_era_is_not_asked_again_for_a_while() {
        let absences = Absences::default();
        let here = of(Era::Legacy);
        let other = failed(Reason::Version);
        for _ in 0..3 {
            // That nobody asked it meanwhile makes the while no longer.
            absences.left_out(here.clone(), &other);
            assert!(absences.share(&here, MOST).is_err());
            clock::sleep(LATE_FOR / 3).await;
        }
        assert_eq!(absences.share(&here, MOST).ok(), Some(MOST));
        assert!(absences.says_modern("a") && !absences.says_modern("b"));
        clock::sleep(MODERN_FOR).await;
        assert!(!absences.says_modern("a"));
    }
}
