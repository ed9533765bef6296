//! Attending: who hears what a session says outside any call, and the streams held for them.
//!
//! Asked by: whoever stands at a server for a client ([`ServerHandle::attend`]).  Told by: the
//! sessions themselves, through [`Told`] or their [`Setup`], and by the calls that subscribe or set a log level.
//!
//! A standing stream is held at a server only while somebody attends: for a session of its own
//! where its client can be asked, subscribed or set a log level; else one for all who attend the
//! same server as the same identity, because a list that changed concerns them all. The [`seat`] of
//! each sees to that.
//!
//! [`ServerHandle::attend`]: crate::ServerHandle::attend

mod repeats;
mod roots;
mod seat;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use warmline_core::exchange::{Question, QuestionKind};
use warmline_core::key::{Digest, Identity};
use warmline_core::pool::Generation;

use self::repeats::{By, LISTS, Repeats, list_of};
use crate::clock::{self, Instant};
use crate::connect::{Connect, Line, Setup, updated};
use crate::engine::Caller;
use crate::entry::Entry;
use crate::pool::Seen;
use crate::sync::Mutex;
use crate::upstream::{Asked, Notices, Roomy, Speaker, Whose, concerns_all};

/// More questions than these are not put to those who attend one session at a time.
const MAX_ASKED: usize = 32;
/// So many sessions of one server are opened at a time for those who only listen.
const MAX_OPENINGS: usize = 8;

/// Somebody attends until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the attending"]
pub struct Attending(JoinHandle<()>);

impl Attending {
    /// Whether nothing will be heard any more: nothing is held for this caller that could tell
    /// anything.
    pub fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// All who attend one server.
#[derive(Debug)]
pub(crate) struct Attendance {
    places: Mutex<BTreeMap<(Identity, u64), Arc<Place>>>,
    numbers: AtomicU64,
    /// Who opens a session for somebody who only listens has one.
    openings: Semaphore,
    /// When each list was last said to be another, by any session.
    changed: Mutex<[Option<Instant>; LISTS.len()]>,
    /// Since when there is anybody to attend.
    since: Instant,
}

impl Default for Attendance {
    fn default() -> Self {
        Self {
            places: Mutex::default(),
            numbers: AtomicU64::new(0),
            openings: Semaphore::new(MAX_OPENINGS),
            changed: Mutex::default(),
            since: clock::now(),
        }
    }
}

/// Those who attend the sessions of one key.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    places: Mutex<Vec<Arc<Place>>>,
    asked: AtomicUsize,
    /// The session that is heard for all of them.
    heard: Mutex<Weak<Line>>,
    /// The session that they were told last took the place of another; it may be an older one.
    replaced_by: AtomicU32,
}

/// Somebody who attends.
#[derive(Debug)]
struct Place {
    who: Identity,
    number: u64,
    ear: Arc<dyn Notices>,
    /// Whether a stream is held for it.
    streams: AtomicBool,
    /// Whether it is the one who hears of lists for all of its identity.
    lists: AtomicBool,
    /// What it was told of lists.
    repeats: Repeats,
    /// Something is different: a session came, an order was given, a stream ended.
    changed: Notify,
}

impl Place {
    /// Tells what is news here.
    fn tell(&self, method: &str, params: &[u8], by: By) {
        let asked = self.ear.asked_for_list(method);
        if self.repeats.is_news(method, by, asked) {
            self.ear.notice(method, params);
        }
    }
}

impl Attendance {
    /// Notes that a list changed, if a notice says so: somebody may be away.
    fn note(&self, method: &str) {
        if let Some(list) = list_of(method)
            && let Some(changed) = self.changed.lock().get_mut(list)
        {
            *changed = Some(clock::now());
        }
    }

    /// The lists that were said to be others since then.
    fn changed_since(&self, then: Instant) -> impl Iterator<Item = &'static str> + use<> {
        let changed = *self.changed.lock();
        let all = LISTS.into_iter().zip(changed);
        all.filter_map(move |(list, at)| (at? >= then).then_some(list))
    }

    /// Takes the part of the one who hears of lists, if nobody has it.
    fn claim(&self, place: &Place) -> bool {
        let places = self.places.lock();
        let mut others = of(&places, place.who);
        if others.any(|other| other.number != place.number && other.lists.load(Ordering::Relaxed)) {
            return false;
        }
        place.lists.store(true, Ordering::Relaxed);
        true
    }

    /// Lays the part down, and lets the others take it.
    fn disclaim(&self, place: &Place) {
        if !place.lists.swap(false, Ordering::Relaxed) {
            return;
        }
        let others: Vec<_> = of(&self.places.lock(), place.who).cloned().collect();
        for other in others {
            other.repeats.forget();
            other.changed.notify_one();
        }
    }

    /// Tells all of an identity who have no stream of their own and were not told yet.
    fn tell(&self, who: Identity, told: &[Arc<Place>], (method, params): (&str, &[u8]), by: By) {
        let is_told = |place: &Arc<Place>| told.iter().any(|one| Arc::ptr_eq(one, place));
        let without: Vec<_> = of(&self.places.lock(), who)
            .filter(|place| !place.streams.load(Ordering::Relaxed) && !is_told(place))
            .cloned()
            .collect();
        for place in without {
            place.tell(method, params, by);
        }
    }
}

fn of(
    places: &BTreeMap<(Identity, u64), Arc<Place>>,
    who: Identity,
) -> impl Iterator<Item = &Arc<Place>> {
    places
        .range((who, 0)..=(who, u64::MAX))
        .map(|(_, place)| place)
}

impl Audience {
    /// Something changed for the sessions of this key.
    pub(crate) fn changed(&self) {
        for place in self.places.lock().iter() {
            place.changed.notify_one();
        }
    }

    /// All of them: the client session that each is for, and whose it is.
    pub(crate) fn all(&self) -> Vec<(Option<Digest>, Identity)> {
        let places = self.places.lock();
        let all = places.iter().map(|place| (place.ear.client(), place.who));
        all.collect()
    }

    /// The session to be heard for all who attend: one, however many the key has, and the same for
    /// as long as it serves. So one that comes beside it takes no place, and what was ordered is
    /// told once.
    fn heard_of(&self, mut sessions: Vec<Seen<Connect>>) -> Option<Seen<Connect>> {
        let mut heard = self.heard.lock();
        let is_heard = |seen: &Seen<Connect>| {
            let is_it = Arc::as_ptr(&seen.session) == heard.as_ptr();
            is_it && seen.is_usable && seen.session.retired().is_none()
        };
        // Else the newest, which no other takes the place of soon.
        sessions.sort_by_key(|seen| (is_heard(seen), seen.generation));
        let seen = sessions.pop()?;
        *heard = Arc::downgrade(&seen.session);
        Some(seen)
    }

    /// Whether this session took the place of another, and nobody here was told so.
    fn is_replaced_by(&self, newest: Generation) -> bool {
        let newest = newest.number();
        self.replaced_by.swap(newest, Ordering::Relaxed) != newest
    }
}

/// Where a session tells what belongs to no call while nobody knows which key it will serve.
/// One that is opened for a key tells its [`Setup`].
#[derive(Debug)]
pub(crate) struct Told {
    entry: Arc<Entry>,
    /// The key that it serves, once it does.
    serves: OnceLock<Weak<Setup>>,
}

impl Told {
    pub(crate) fn new(entry: &Arc<Entry>) -> Arc<Self> {
        Arc::new(Self {
            entry: Arc::clone(entry),
            serves: OnceLock::new(),
        })
    }

    /// From now on its session serves this key.
    pub(crate) fn serve(&self, setup: &Arc<Setup>) {
        // A session serves one key in its life.
        self.serves.set(Arc::downgrade(setup)).ok();
    }

    fn telling<T>(&self, tell: impl FnOnce(Telling<'_>) -> T) -> T {
        let setup = self.serves.get().and_then(Weak::upgrade);
        tell(Telling {
            entry: &self.entry,
            setup: setup.as_deref(),
        })
    }
}

impl Notices for Told {
    fn notice(&self, method: &str, params: &[u8]) {
        self.telling(|telling| telling.notice(method, params));
    }

    fn for_all(&self, method: &str, params: &[u8], by: Speaker) -> Vec<Whose> {
        self.telling(|telling| telling.for_all(method, params, by))
    }

    fn is_heard_beside(&self, caller: Whose) -> bool {
        self.telling(|telling| telling.is_heard_beside(caller))
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        self.telling(|telling| telling.behind())
    }

    fn question(&self, question: Question) -> Option<Asked<'static>> {
        self.telling(|telling| telling.question(question))
    }

    fn question_of(&self, whose: Whose, question: Question) -> Option<Asked<'static>> {
        self.telling(|telling| telling.question_of(whose, question))
    }

    fn nobodys(&self, kind: QuestionKind) {
        self.entry.question_refused(kind);
    }
}

impl Notices for Setup {
    fn notice(&self, method: &str, params: &[u8]) {
        Telling::of(self).notice(method, params);
    }

    fn for_all(&self, method: &str, params: &[u8], by: Speaker) -> Vec<Whose> {
        Telling::of(self).for_all(method, params, by)
    }

    fn is_heard_beside(&self, caller: Whose) -> bool {
        Telling::of(self).is_heard_beside(caller)
    }

    fn behind(&self) -> Option<Roomy<'_>> {
        Telling::of(self).behind()
    }

    fn question(&self, question: Question) -> Option<Asked<'static>> {
        Telling::of(self).question(question)
    }

    fn question_of(&self, whose: Whose, question: Question) -> Option<Asked<'static>> {
        Telling::of(self).question_of(whose, question)
    }

    fn nobodys(&self, kind: QuestionKind) {
        self.entry.question_refused(kind);
    }
}

/// Whom a session tells: the cache of its server, and those who attend the key it serves.
struct Telling<'a> {
    entry: &'a Entry,
    /// What it serves; none while it serves no key.
    setup: Option<&'a Setup>,
}

impl<'a> Telling<'a> {
    fn of(setup: &'a Setup) -> Self {
        Self {
            entry: &setup.entry,
            setup: Some(setup),
        }
    }

    /// Those who are to hear a notice.
    fn listeners(&self, method: &str, params: &[u8]) -> Vec<Arc<Place>> {
        let audience = self
            .setup
            .and_then(|setup| Some((setup, setup.audience()?)));
        let Some((setup, audience)) = audience else {
            return Vec::new();
        };
        let mut listeners = audience.places.lock().clone();
        if let Some(uri) = updated(method, params) {
            listeners.retain(|place| setup.is_for(place.ear.client(), place.who, &uri));
        }
        listeners
    }

    fn notice(&self, method: &str, params: &[u8]) {
        drop(self.for_all(method, params, Speaker::default()));
    }

    /// Tells all who attend, and says whose calls need not tell it again.
    fn for_all(&self, method: &str, params: &[u8], by: Speaker) -> Vec<Whose> {
        self.entry.notice(method, params);
        let is_everybodys = self.setup.is_some_and(Setup::is_everybodys);
        if is_everybodys && !concerns_all(method) {
            self.entry.metrics.notices_withheld.one_more();
            return Vec::new();
        }
        let told = self.tell(method, params, By::Session(by));
        told.iter().filter_map(|place| place.ear.whose()).collect()
    }

    /// Tells all who attend, and those who hear of lists by one of them. Gives the former.
    fn tell(&self, method: &str, params: &[u8], by: By) -> Vec<Arc<Place>> {
        // Before it is known who listens: whoever comes from now on looks for it.
        self.entry.attendance.note(method);
        let listeners = self.listeners(method, params);
        for place in &listeners {
            place.tell(method, params, by);
        }
        self.fan_out(&listeners, (method, params), by);
        listeners
    }

    /// Whether anybody else than this caller attends.
    fn is_heard_beside(&self, caller: Whose) -> bool {
        let is_other = |place: &Arc<Place>| place.ear.is_heard_beside(caller);
        let audience = self.setup.and_then(Setup::audience);
        audience.is_some_and(|audience| audience.places.lock().iter().any(is_other))
    }

    /// Ends when all who attend keep up.
    fn behind(&self) -> Option<Roomy<'static>> {
        let listeners = self.setup?.audience()?.places.lock().clone();
        if listeners.iter().all(|place| place.ear.behind().is_none()) {
            return None;
        }
        Some(Box::pin(async move {
            // They are waited for at the same time: each says by itself when it was long enough.
            for place in listeners {
                if let Some(behind) = place.ear.behind() {
                    behind.await;
                }
            }
        }))
    }

    /// Tells whoever has no stream of their own, where this session hears for them: for one
    /// identity, or for each of those that share it.
    fn fan_out(&self, listeners: &[Arc<Place>], notice: (&str, &[u8]), by: By) {
        if !notice.0.ends_with("/list_changed") {
            return;
        }
        let hears_for_others = |place: &&Arc<Place>| place.lists.load(Ordering::Relaxed);
        for lister in listeners.iter().filter(hears_for_others) {
            let attendance = &self.entry.attendance;
            attendance.tell(lister.who, listeners, notice, by);
        }
    }

    fn question(self, question: Question) -> Option<Asked<'static>> {
        let setup = self.setup?;
        let audience = setup.audience()?;
        let places = audience.places.lock().clone();
        let asked = match places.as_slice() {
            [] => return None,
            // Where identities share a session, whoever listens alone is not whoever calls alone.
            _ if setup.is_everybodys() => None,
            [only] => return ask(&audience, only, question),
            // Whose question it is cannot be known.
            several => roots::of_all(&setup.entry, &audience, several, &question),
        };
        if asked.is_none() {
            self.entry.question_refused(question.kind);
        }
        asked
    }

    /// Puts a question to the one whose calls it may be of, where they attend.
    fn question_of(self, whose: Whose, question: Question) -> Option<Asked<'static>> {
        let audience = self.setup?.audience()?;
        let is_theirs = |place: &&Arc<Place>| place.ear.whose() == Some(whose);
        let place = audience.places.lock().iter().find(is_theirs).cloned()?;
        ask(&audience, &place, question)
    }
}

fn ask(audience: &Arc<Audience>, place: &Place, question: Question) -> Option<Asked<'static>> {
    let open = OpenQuestion::begin(audience)?;
    let asked = place.ear.question(question)?;
    Some(Box::pin(async move {
        let answer = asked.await;
        drop(open);
        answer
    }))
}

/// A question that somebody who attends has not answered yet.
struct OpenQuestion(Arc<Audience>);

impl OpenQuestion {
    /// Counts it, unless there are too many.
    fn begin(audience: &Arc<Audience>) -> Option<Self> {
        let open = Self(Arc::clone(audience));
        let before = audience.asked.fetch_add(1, Ordering::Relaxed);
        (before < MAX_ASKED).then_some(open)
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.asked.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Attends for a caller until what is given back is dropped. Who was there before says since when
/// it is away.
pub(crate) fn attend(
    caller: Caller,
    entry: Arc<Entry>,
    (ear, away): (Arc<dyn Notices>, Option<Instant>),
) -> Attending {
    let standing = seat::stand(caller, entry, ear, away);
    Attending(clock::spawn("attend", standing))
}
