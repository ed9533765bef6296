//! Attending: who hears what a session says outside any call, and the streams held for them.
//!
//! Asked by: whoever stands at a server for a client ([`ServerHandle::attend`]).  Told by: the
//! sessions themselves, through [`Told`] or their [`Setup`], and by the calls that subscribe or set a log level.
//!
//! A standing stream is held at a server only while somebody attends: for a session of its own
//! where its client can be asked, subscribed or set a log level; else one for all who attend the
//! same server as the same identity, because a list that changed concerns them all.
//!
//! [`ServerHandle::attend`]: crate::ServerHandle::attend

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use warmline_core::code::Reason;
use warmline_core::era::Era;
use warmline_core::exchange::{Question, QuestionKind};
use warmline_core::key::{Identity, Owner};

use crate::clock::{self, Instant};
use crate::connect::{Connect, Line, Setup};
use crate::engine::Caller;
use crate::entry::Entry;
use crate::pool::CellOf;
use crate::route::{self, Route};
use crate::sync::Mutex;
use crate::upstream::{Asked, Notices, Stood};

/// More questions than these are not put to those who attend one session at a time.
const MAX_ASKED: usize = 32;
/// How long to wait before a server that could not be met is looked for again: twice as long each
/// time, up to the longest.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
const LONGEST_AFTER: Duration = Duration::from_secs(120);
/// How long to wait before a server that refused a credential is asked for a stream again, and
/// twice as long each time.
const DENIED_FOR: Duration = Duration::from_secs(1);
/// What a server may have other ones of.
const LISTS: [&str; 3] = ["tools", "prompts", "resources"];

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
#[derive(Debug, Default)]
pub(crate) struct Attendance {
    places: Mutex<BTreeMap<(Identity, u64), Arc<Place>>>,
    numbers: AtomicU64,
}

/// Those who attend the sessions of one key.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    places: Mutex<Vec<Arc<Place>>>,
    asked: AtomicUsize,
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
    /// Something is different: a session came, an order was given, a stream ended.
    changed: Notify,
}

impl Attendance {
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
        if place.lists.swap(false, Ordering::Relaxed) {
            for other in of(&self.places.lock(), place.who) {
                other.changed.notify_one();
            }
        }
    }

    /// Tells all of an identity who have no stream of their own.
    fn tell(&self, who: Identity, method: &str, params: &[u8]) {
        let without: Vec<_> = of(&self.places.lock(), who)
            .filter(|place| !place.streams.load(Ordering::Relaxed))
            .cloned()
            .collect();
        for place in without {
            place.ear.notice(method, params);
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

    fn telling(&self) -> Telling<'_> {
        let setup = self.serves.get().and_then(Weak::upgrade);
        Telling {
            entry: &self.entry,
            audience: setup.and_then(|setup| setup.audience()),
        }
    }
}

impl Notices for Told {
    fn notice(&self, method: &str, params: &[u8]) {
        self.telling().notice(method, params);
    }

    fn overheard(&self, method: &str, params: &[u8]) {
        self.telling().overheard(method, params);
    }

    fn question(&self, question: Question) -> Option<Asked<'static>> {
        self.telling().question(question)
    }

    fn nobodys(&self, kind: QuestionKind) {
        self.entry.question_refused(kind);
    }
}

impl Notices for Setup {
    fn notice(&self, method: &str, params: &[u8]) {
        Telling::of(self).notice(method, params);
    }

    fn overheard(&self, method: &str, params: &[u8]) {
        Telling::of(self).overheard(method, params);
    }

    fn question(&self, question: Question) -> Option<Asked<'static>> {
        Telling::of(self).question(question)
    }

    fn nobodys(&self, kind: QuestionKind) {
        self.entry.question_refused(kind);
    }
}

/// Whom a session tells: the cache of its server, and those who attend the key it serves.
struct Telling<'a> {
    entry: &'a Entry,
    audience: Option<Arc<Audience>>,
}

impl<'a> Telling<'a> {
    fn of(setup: &'a Setup) -> Self {
        Self {
            entry: &setup.entry,
            audience: setup.audience(),
        }
    }

    fn listeners(&self) -> Vec<Arc<Place>> {
        let audience = self.audience.as_ref();
        audience
            .map(|audience| audience.places.lock().clone())
            .unwrap_or_default()
    }

    fn notice(&self, method: &str, params: &[u8]) {
        self.entry.notice(method, params);
        let listeners = self.listeners();
        for place in &listeners {
            place.ear.notice(method, params);
        }
        self.fan_out(&listeners, method, params);
    }

    fn overheard(&self, method: &str, params: &[u8]) {
        self.entry.notice(method, params);
        let listeners = self.listeners();
        // Where one client attends, the call that heard it is its own.
        if listeners.len() > 1 {
            for place in &listeners {
                place.ear.notice(method, params);
            }
        }
        self.fan_out(&listeners, method, params);
    }

    /// Tells whoever has no stream of their own, where this session hears for them.
    fn fan_out(&self, listeners: &[Arc<Place>], method: &str, params: &[u8]) {
        let of_a_list = method.ends_with("/list_changed");
        let lister = listeners
            .iter()
            .find(|place| place.lists.load(Ordering::Relaxed));
        if let (true, Some(lister)) = (of_a_list, lister) {
            self.entry.attendance.tell(lister.who, method, params);
        }
    }

    fn question(self, question: Question) -> Option<Asked<'static>> {
        let audience = self.audience?;
        let place = match audience.places.lock().as_slice() {
            [only] => Arc::clone(only),
            [] => return None,
            // Whose question it is cannot be known.
            [_, _, ..] => {
                self.entry.question_refused(question.kind);
                return None;
            },
        };
        let open = OpenQuestion::begin(&audience)?;
        let asked = place.ear.question(question)?;
        Some(Box::pin(async move {
            let answer = asked.await;
            drop(open);
            answer
        }))
    }
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

/// Attends for a caller until what is given back is dropped.
pub(crate) fn attend(caller: Caller, entry: Arc<Entry>, ear: Arc<dyn Notices>) -> Attending {
    Attending(clock::spawn("attend", stand(caller, entry, ear)))
}

async fn stand(caller: Caller, entry: Arc<Entry>, ear: Arc<dyn Notices>) {
    let mut again_after = AGAIN_AFTER;
    let cell = loop {
        match route::route(&caller, &entry, None).await {
            Ok(Route::Held(cell)) => break cell,
            // Nothing is held that could tell anything.
            Ok(Route::Once(_)) => return,
            // It speaks another era; to look again would start it again.
            Err(trouble) if trouble.reason == Reason::Version => return,
            Err(trouble) => {
                tracing::debug!(server = %entry.name, %trouble, "nobody to attend yet");
                clock::sleep(again_after).await;
                again_after = LONGEST_AFTER.min(again_after * 2);
            },
        }
    };
    let leg = cell.setup().leg;
    if leg.era == Era::Legacy && leg.keeps_session {
        Seat::take(&caller, entry, &cell, ear).sit().await;
    }
}

/// The place of somebody who attends; dropping it leaves it.
struct Seat {
    entry: Arc<Entry>,
    cell: Arc<CellOf<Connect>>,
    place: Arc<Place>,
}

impl Seat {
    fn take(
        caller: &Caller,
        entry: Arc<Entry>,
        cell: &Arc<CellOf<Connect>>,
        ear: Arc<dyn Notices>,
    ) -> Self {
        let attendance = &entry.attendance;
        let place = Arc::new(Place {
            who: caller.who.id,
            number: attendance.numbers.fetch_add(1, Ordering::Relaxed),
            ear,
            streams: AtomicBool::new(false),
            lists: AtomicBool::new(false),
            changed: Notify::new(),
        });
        let seat = (place.who, place.number);
        attendance.places.lock().insert(seat, Arc::clone(&place));
        let audience = &cell.setup().aside().audience;
        audience.places.lock().push(Arc::clone(&place));
        Self {
            entry,
            cell: Arc::clone(cell),
            place,
        }
    }

    /// Holds a stream as long as one is needed, on whatever session serves the key.
    async fn sit(&self) {
        let mut before: Option<Weak<Line>> = None;
        let mut denied_for = DENIED_FOR;
        loop {
            let held = self.newest().filter(|line| self.needs_stream(line));
            let Some(line) = held else {
                // Whoever has nothing to hear on hears for nobody.
                self.entry.attendance.disclaim(&self.place);
                self.place.changed.notified().await;
                continue;
            };
            self.place.streams.store(true, Ordering::Relaxed);
            // A session that takes the place of another may have other lists.
            if before.is_some_and(|before| before.as_ptr() != Arc::as_ptr(&line)) {
                self.lists_may_differ(&line);
            }
            before = Some(Arc::downgrade(&line));
            let credential = self.cell.setup().credential.as_ref();
            let epoch = credential.map_or(0, |credential| credential.epoch());
            let began = clock::now();
            let stood = tokio::select! {
                stood = line.stand(|| self.lists_may_differ(&line)) => Some(stood),
                () = self.place.changed.notified() => None,
            };
            self.place.streams.store(false, Ordering::Relaxed);
            match stood {
                None => {},
                Some(Stood::Denied) => {
                    if began.elapsed() > denied_for {
                        denied_for = DENIED_FOR;
                    }
                    self.entry.attendance.disclaim(&self.place);
                    self.renew(epoch).await;
                    self.until_replaced(&line, Some(clock::after(denied_for)))
                        .await;
                    denied_for = LONGEST_AFTER.min(denied_for * 2);
                },
                // Another session may have one, or another of the same identity.
                Some(Stood::Never | Stood::Over) => {
                    self.entry.attendance.disclaim(&self.place);
                    self.until_replaced(&line, None).await;
                },
            }
        }
    }

    /// Asks for another credential than the one that was refused.
    async fn renew(&self, refused: u64) {
        if let Some(credential) = &self.cell.setup().credential
            && credential.can_refresh()
            && let Err(trouble) = credential.refresh(refused).await
        {
            tracing::debug!(server = %self.entry.name, %trouble, "no fresh credential to listen with");
        }
    }

    /// Waits until another session serves the key, or until then.
    async fn until_replaced(&self, line: &Arc<Line>, by: Option<Instant>) {
        let is_newest = || {
            let newest = self.newest();
            newest.is_some_and(|newest| Arc::ptr_eq(&newest, line))
        };
        while is_newest() {
            let changed = self.place.changed.notified();
            match by {
                None => changed.await,
                Some(by) => {
                    if clock::timeout_at(by, changed).await.is_err() {
                        return;
                    }
                },
            }
        }
    }

    /// What the server said of its lists was not heard for a while: they may be others by now.
    fn lists_may_differ(&self, line: &Line) {
        self.entry.forget_lists();
        let capabilities = line.facts().capabilities.clone();
        let declared: Option<Value> = serde_json::from_slice(&capabilities).ok();
        for list in LISTS {
            let says_so = declared.as_ref().map(|all| &all[list]["listChanged"]);
            if says_so != Some(&Value::Bool(true)) {
                continue;
            }
            let method = format!("notifications/{list}/list_changed");
            self.place.ear.notice(&method, b"{}");
            if self.place.lists.load(Ordering::Relaxed) {
                self.entry.attendance.tell(self.place.who, &method, b"{}");
            }
        }
    }

    fn newest(&self) -> Option<Arc<Line>> {
        let sessions = self.cell.sessions().into_iter();
        let newest = sessions.max_by_key(|seen| seen.generation)?;
        Some(newest.session)
    }

    /// Whether a stream is needed: for what only this session is told, or for the lists of all.
    fn needs_stream(&self, line: &Line) -> bool {
        let setup = self.cell.setup();
        let key = self.cell.key();
        let is_of_run = key.run().is_some();
        let is_of_one = is_of_run || key.owner() != Owner::Everybody;
        let of_its_own = (is_of_run && setup.said.declared.declares_anything())
            || (is_of_one && !setup.orders().is_empty());
        let facts = line.facts();
        let lists = memchr::memmem::find(&facts.capabilities, b"\"listChanged\"").is_some();
        let hears_of_lists = (lists || of_its_own) && self.entry.attendance.claim(&self.place);
        of_its_own || hears_of_lists
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let attendance = &self.entry.attendance;
        let seat = (self.place.who, self.place.number);
        attendance.places.lock().remove(&seat);
        if let Some(audience) = self.cell.setup().audience() {
            let mut places = audience.places.lock();
            places.retain(|place| !Arc::ptr_eq(place, &self.place));
        }
        attendance.disclaim(&self.place);
    }
}
