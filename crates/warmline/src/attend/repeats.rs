//! Is it news? A list that changed is told to somebody once, though several sessions tell of it.
//!
//! Asked by: whoever tells somebody who attends.
//!
//! A server tells each of its sessions that a list changed, and somebody may be told by several of
//! them: by their own with a call, and by the one whose stream is held for the lists of all of
//! their identity. The first time that each of them says so is one change, the second time another.
//! Where a session says it alone, that is taken for the change that another one told before, which
//! does no harm as long as nobody asked for the list since: they have yet to read it, and read both.
//! So whoever asked for it, or was told long ago, is told again; and so is everybody of whom it is
//! not known when they ask.

use std::time::Duration;

use crate::clock::{self, Instant};
use crate::sync::Mutex;
use crate::upstream::Speaker;

/// What a server may have other ones of.
pub(super) const LISTS: [&str; 3] = ["tools", "prompts", "resources"];
/// What is told later than this is another change.
const LATELY: Duration = Duration::from_secs(5);
/// So many sessions are told apart: with more of them a change may be told again.
const MAX_SPEAKERS: usize = 8;

/// Which changes of lists somebody was told of lately.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<[Lately; LISTS.len()]>);

/// Who says that a list changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A session of the server.
    Session(Speaker),
    /// We do: something may have been missed.
    Ourselves,
}

/// What was told of one list.
#[derive(Debug, Default)]
struct Lately {
    /// When, and how often the list had been asked for by then.
    told: Option<(Instant, u32)>,
    /// How many changes sessions told of.
    changes: u32,
    /// How many each of them did.
    each: Vec<(Speaker, u32)>,
    /// Whether we told that something may have been missed.
    supposed: bool,
}

impl Repeats {
    /// Whether a notice is news to somebody who asked so often for the list that it is about.
    pub(super) fn is_news(&self, method: &str, by: By, asked: Option<u32>) -> bool {
        match (list_of(method), asked) {
            (Some(list), Some(asked)) => match self.0.lock().get_mut(list) {
                Some(lately) => lately.is_news(by, asked, clock::now()),
                None => true,
            },
            _ => true,
        }
    }

    /// Somebody who told them tells them no more: who takes their place begins anew.
    pub(super) fn forget(&self) {
        *self.0.lock() = Default::default();
    }
}

impl Lately {
    fn is_news(&mut self, by: By, asked: u32, now: Instant) -> bool {
        let holds = self.told.is_some_and(|(at, before)| {
            before == asked && now.saturating_duration_since(at) <= LATELY
        });
        if !holds {
            *self = Self::default();
        }
        let is_news = match by {
            By::Ourselves => !std::mem::replace(&mut self.supposed, true),
            By::Session(speaker) => self.counted(speaker) > self.changes,
        };
        if is_news {
            self.changes += u32::from(by != By::Ourselves);
            self.told = Some((now, asked));
        }
        is_news
    }

    /// How often a session told of a change by now.
    fn counted(&mut self, speaker: Speaker) -> u32 {
        if let Some((_, count)) = self.each.iter_mut().find(|(one, _)| *one == speaker) {
            *count += 1;
            return *count;
        }
        if self.each.len() >= MAX_SPEAKERS {
            self.each.clear();
            self.changes = 0;
        }
        self.each.push((speaker, 1));
        1
    }
}

/// Which list a notice says has changed, by its place.
pub(super) fn list_of(method: &str) -> Option<usize> {
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
            let (mut lately, mut now, mut asked) = (Lately::default(), clock::now(), 0);
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
                            now += 2 * LATELY;
                            return ' ';
                        },
                        '.' => By::Ourselves,
                        letter => {
                            let which = letter as usize - 'a' as usize;
                            By::Session(Speaker::of(&speakers[which]))
                        },
                    };
                    match lately.is_news(by, asked, now) {
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
        let repeats = Repeats::default();
        let by = |of: &u8| By::Session(Speaker::of(of));
        let [one, other] = [0, 1];
        let changed = "notifications/tools/list_changed";
        for asked in [None, Some(0)] {
            assert!(repeats.is_news(changed, by(&one), asked));
            assert_eq!(repeats.is_news(changed, by(&other), asked), asked.is_none());
        }
        let others = "notifications/prompts/list_changed";
        assert!(repeats.is_news(others, by(&other), Some(0)), "another list");
        for _ in 0..2 {
            let updated = "notifications/resources/updated";
            assert!(repeats.is_news(updated, By::Ourselves, Some(0)), "no list");
        }
        repeats.forget();
        assert!(repeats.is_news(changed, by(&other), Some(0)));
    }
}
