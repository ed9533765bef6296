//! Recognises repeated list changes: a subscriber receives each change once, though several
//! sessions report it.
//!
//! A server reports a change on each of its sessions, and a subscriber may hear several of them. The
//! first report of each session is one change, the second another. Where a session reports a change
//! alone, it counts as the one that another session reported before. That does no harm while the
//! subscriber has not read the list since: it reads both changes at once. A subscriber that read the
//! list, or was notified long ago, is notified again; so is one whose reads are not known.

use std::time::Duration;

use warmline_platform::clock::{self, Instant};
use warmline_platform::lock::Mutex;
use warmline_upstream::SourceSession;

pub(crate) const LISTS: [&str; 3] = ["tools", "prompts", "resources"];
/// A later report is another change.
const DEDUP_WINDOW: Duration = Duration::from_secs(5);
/// With more sessions a change may be reported twice.
const MAX_SESSIONS: usize = 8;

/// The list changes that one subscriber received lately.
#[derive(Debug, Default)]
pub(crate) struct ListChangeDedup(Mutex<[RecentListChange; LISTS.len()]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListChangeSource {
    /// A session of the server.
    Session(SourceSession),
    /// The engine: a report may have been missed.
    Engine,
}

#[derive(Debug, Default)]
struct RecentListChange {
    /// When, and how often the subscriber had read the list by then.
    last_notified: Option<(Instant, u32)>,
    changes: u32,
    per_session: Vec<(SourceSession, u32)>,
    engine_notified: bool,
}

impl ListChangeDedup {
    /// Whether a notification is new to a subscriber that read its list `asked` times.
    pub(crate) fn is_new(&self, method: &str, by: ListChangeSource, asked: Option<u32>) -> bool {
        match (list_index(method), asked) {
            (Some(list), Some(asked)) => match self.0.lock().get_mut(list) {
                Some(lately) => lately.is_new(by, asked, clock::now()),
                None => true,
            },
            _ => true,
        }
    }

    /// Forgets everything: another session reports from now on.
    pub(crate) fn reset(&self) {
        *self.0.lock() = Default::default();
    }
}

impl RecentListChange {
    fn is_new(&mut self, by: ListChangeSource, asked: u32, now: Instant) -> bool {
        let holds = self.last_notified.is_some_and(|(at, before)| {
            before == asked && now.saturating_duration_since(at) <= DEDUP_WINDOW
        });
        if !holds {
            *self = Self::default();
        }
        let is_news = match by {
            ListChangeSource::Engine => !std::mem::replace(&mut self.engine_notified, true),
            ListChangeSource::Session(speaker) => self.increment_count(speaker) > self.changes,
        };
        if is_news {
            self.changes += u32::from(by != ListChangeSource::Engine);
            self.last_notified = Some((now, asked));
        }
        is_news
    }

    /// How often a session reported a change by now.
    fn increment_count(&mut self, speaker: SourceSession) -> u32 {
        if let Some((_, count)) = self.per_session.iter_mut().find(|(one, _)| *one == speaker) {
            *count += 1;
            return *count;
        }
        if self.per_session.len() >= MAX_SESSIONS {
            self.per_session.clear();
            self.changes = 0;
        }
        self.per_session.push((speaker, 1));
        1
    }
}

/// The index of the list whose change a notification reports.
pub(crate) fn list_index(method: &str) -> Option<usize> {
    let list = method.strip_prefix("notifications/")?;
    let list = list.strip_suffix("/list_changed")?;
    LISTS.iter().position(|known| *known == list)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mcp-spec T32: each row is what happens to one who attends, and what is told of it.
    #[test]
    fn a_change_is_told_once_and_none_is_lost() {
        let rows = [
            ("one session tells all it says", "aaa", "!!!"),
            ("two sessions tell one change", "ab", "!."),
            ("and the next one, in any order", "abba", "!.!."),
            ("one of them is ahead", "aabb", "!!.."),
            ("a third comes in", "abcabc", "!..!.."),
            ("the list was read in between", "a?b", "! !"),
            ("and again", "ab?ba", "!. !."),
            ("it was long ago", "a_b", "! !"),
            ("we say that something was missed", "..", "!."),
            ("which a server never says", ".a.b", "!!.."),
            ("it was missed again after that was read", ".?.", "! !"),
            ("a list changed, and then something was missed", "a.", "!!"),
            (
                "more sessions than are told apart",
                "abcdefghi",
                "!.......!",
            ),
        ];
        for (what, events, expected) in rows {
            let (mut lately, mut now, mut asked) = (RecentListChange::default(), clock::now(), 0);
            let speakers = [0_u8; 9];
            let told: String = events
                .chars()
                .map(|event| {
                    let by = match event {
                        '?' => {
                            asked += 1;
                            return ' ';
                        },
                        '_' => {
                            now += 2 * DEDUP_WINDOW;
                            return ' ';
                        },
                        '.' => ListChangeSource::Engine,
                        letter => {
                            let which = letter as usize - 'a' as usize;
                            ListChangeSource::Session(SourceSession::from_ref(&speakers[which]))
                        },
                    };
                    match lately.is_new(by, asked, now) {
                        true => '!',
                        false => '.',
                    }
                })
                .collect();
            assert_eq!(told, expected, "{what}: {events}");
        }
    }

    #[test]
    fn who_does_not_say_when_they_ask_is_told_everything() {
        let repeats = ListChangeDedup::default();
        let by = |of: &u8| ListChangeSource::Session(SourceSession::from_ref(of));
        let [one, other] = [0, 1];
        let changed = "notifications/tools/list_changed";
        for asked in [None, Some(0)] {
            assert!(repeats.is_new(changed, by(&one), asked));
            assert_eq!(repeats.is_new(changed, by(&other), asked), asked.is_none());
        }
        let others = "notifications/prompts/list_changed";
        assert!(repeats.is_new(others, by(&other), Some(0)), "another list");
        for _ in 0..2 {
            let updated = "notifications/resources/updated";
            assert!(
                repeats.is_new(updated, ListChangeSource::Engine, Some(0)),
                "no list"
            );
        }
        repeats.reset();
        assert!(repeats.is_new(changed, by(&other), Some(0)));
    }
}
