//! A session and its record: taken up again, written down, crossed out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use warmline_core::era::Era;
use warmline_core::exchange::Trouble;
use warmline_core::key::{Key, Transport};
use warmline_core::plan::Reach;
use warmline_core::pool::{Generation, Why};
use warmline_core::record::{self, Record};

use super::telling::failure_of;
use super::{CLOSE_WITHIN, Connect, Line, Orders, Setup};
use crate::clock;
use crate::metrics::{StoreOperation, StoreResult};
use crate::pool::{CellOf, Opened, Order};
use crate::store::{Records, Replaced, Written};
use crate::sync::Mutex;
use crate::upstream::{Declared, Facts, Kept};

/// What is written of the sessions of one key.
#[derive(Debug)]
pub(crate) struct Book {
    records: Arc<Records>,
    /// The record of the session that is held now, as it was written last.
    written: Mutex<Option<Box<Record>>>,
    /// Whether the store took that record: whoever comes next finds the session by it, however the
    /// store is doing when this process ends.
    is_stored: AtomicBool,
    /// Whether somebody is about to renew it.
    is_due: AtomicBool,
    /// Whether an earlier process, or another one, left something in its sessions, or lost it: runs
    /// of those may come here by their names.
    by_others: AtomicBool,
    /// Whether its record goes on to tell of a loss that somebody here was told of: others who
    /// shared the session may come back in a later process.
    tells_on: AtomicBool,
    /// Who writes of a session has it; only one does.
    pen: Semaphore,
    /// The highest generation whose record was crossed out: no late renewal brings it back.
    crossed_out: AtomicU32,
}

impl Book {
    pub(super) fn new(records: Arc<Records>) -> Box<Self> {
        Box::new(Self {
            records,
            written: Mutex::new(None),
            is_stored: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
            by_others: AtomicBool::new(false),
            tells_on: AtomicBool::new(false),
            pen: Semaphore::new(1),
            crossed_out: AtomicU32::new(0),
        })
    }
}

/// Whether the store has a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stored {
    So,
    NotYet,
}

impl Book {
    /// From now on this is the record of the session that is held.
    fn has_now(&self, record: Box<Record>, stored: Stored) {
        let mut written = self.written.lock();
        *written = Some(record);
        self.is_stored.store(stored == Stored::So, Ordering::SeqCst);
    }

    /// A record that others wrote is read.
    fn reads(&self, record: &Record) {
        let something = record.has_something_to_lose();
        self.by_others.fetch_or(something, Ordering::Relaxed);
    }

    fn is_stored(&self) -> bool {
        self.is_stored.load(Ordering::SeqCst)
    }
}

impl Connect {
    /// The session that an earlier process left to its record, with nothing on the wire.
    pub(super) async fn take_up(&self, order: &Order<Self>) -> Option<Opened<Line>> {
        let setup = &order.setup;
        let (book, key) = (setup.book.as_ref()?, order.key.as_ref()?);
        // A record is read once per key: afterwards this process knows better.
        if book.written.lock().is_some() {
            return None;
        }
        let began = clock::now();
        let loaded = book.records.load(key).await;
        let did = match &loaded {
            Ok(Some(_)) => StoreResult::Done,
            Ok(None) => StoreResult::Missing,
            Err(trouble) => failure_of(trouble),
        };
        Self::store_did(setup, StoreOperation::Load, did, began);
        if !matches!(loaded, Ok(Some(_))) {
            self.look_for_strangers(&setup.entry, &book.records).await;
        }
        let mut record = match loaded {
            Ok(record) => record?,
            Err(trouble) => {
                self.store_failed(setup, StoreOperation::Load, &trouble);
                return None;
            },
        };
        // By now no run goes on that could come back to hear of it.
        let idle = self.shared.ceilings.run_idle;
        record.untold_loss &= !(setup.is_shared() && record.age_at(clock::wall_seconds()) > idle);
        book.reads(&record);
        let opened = self.resumed(setup, &record);
        let lost = opened.is_none() && record.has_something_to_lose();
        book.has_now(Box::new(record), Stored::So);
        // Also where no session of this key is opened after all.
        setup.untold_loss.fetch_or(lost, Ordering::Relaxed);
        if opened.is_some() {
            // Other processes see by that that somebody came back.
            setup.renews();
        }
        opened
    }

    /// The session of a record, if it can be used without asking anybody.
    fn resumed(&self, setup: &Arc<Setup>, record: &Record) -> Option<Opened<Line>> {
        let id = record.session_id.clone()?;
        let place = record.key.place();
        let facts = Facts {
            era: place.era,
            version: record.version,
            transport: place.transport,
            keeps_session: true,
            server_info: record.server_info.clone(),
            capabilities: record.capabilities.clone(),
            instructions: record.instructions.clone(),
            evidence: Vec::new(),
            opened_in: Duration::ZERO,
            expires_in: None,
            said: None,
            heard: None,
        };
        let kept = Kept {
            session_id: id,
            facts: Arc::new(facts),
        };
        let target = setup.target(Some(Era::Legacy), Arc::<Setup>::clone(setup));
        let declared = Declared {
            client_name: record.declared.client_name.clone(),
            client_version: record.declared.client_version.clone(),
            capabilities: record.declared.capabilities.clone(),
            version: Some(record.version),
        };
        let session = match self.shared.upstream.resume(&target, &declared, &kept) {
            Ok(session) => session,
            Err(trouble) => {
                tracing::warn!(server = %setup.entry.name, %trouble, "a record is not used");
                return None;
            },
        };
        let Some(line) = self.line_again(setup, &record.key, session) else {
            tracing::warn!(server = %setup.entry.name, "a record is not used: its session id is that of another session");
            return None;
        };
        if record.log_level.is_some() || !record.subscriptions.is_empty() {
            let told = Orders::recorded(record);
            setup.aside().orders.lock().join(&told);
            setup.has_told(&line, told);
        }
        if record.left_state {
            line.leaves_state();
        }
        setup.goes_on_from(record);
        setup.is_served_by(&line);
        line.generation.store(record.generation, Ordering::Relaxed);
        Some(Opened {
            session: line,
            lost_state: record.untold_loss,
            left_state: record.left_state,
            generation: Generation::of(record.generation),
            // The wall clock may have jumped, and only the server's word ends a session: what it
            // said of its end is taken for a good moment to replace it, where nothing is lost.
            expires_in: None,
            renew_in: record.expires_in(clock::wall_seconds()),
        })
    }

    /// Writes a new session down before anybody gets it. Whoever was there first wins: then it is
    /// their session that is used, and ours is ended.
    pub(super) async fn write_down(&self, order: &Order<Self>, line: Arc<Line>) -> Opened<Line> {
        let setup = &order.setup;
        let mut opened = Opened::of(Arc::clone(&line));
        opened.expires_in = line.facts().expires_in;
        opened.renew_in = setup.entry.renew_in(opened.expires_in, self.shared.tick());
        let (Some(book), Some(key)) = (&setup.book, &order.key) else {
            return opened;
        };
        // What crosses out the session before it says first what was lost with it.
        let pen = book.pen.acquire().await.ok();
        let before = book.written.lock().clone();
        setup.moves_on(Some(key));
        book.tells_on.store(false, Ordering::Relaxed);
        opened.lost_state = setup.untold_loss.load(Ordering::Relaxed);
        // A process cannot be taken up again. What it knew died with it, and that is told.
        if let Some(before) = &before
            && before.generation >= order.generation.number()
        {
            opened.lost_state |= before.has_something_to_lose();
            opened.generation = Generation::of(before.generation.saturating_add(1));
        }
        let generation = opened.generation.unwrap_or(order.generation).number();
        line.generation.store(generation, Ordering::Relaxed);
        setup.untold_loss.fetch_or(
            opened.lost_state || setup.was_there.load(Ordering::Relaxed),
            Ordering::Relaxed,
        );
        let record = Box::new(self.record(setup, key, &line, generation));
        let began = clock::now();
        let written = book.records.save(&record, before.as_deref()).await;
        Self::store_did(setup, StoreOperation::Save, did_write(&written), began);
        drop(pen);
        match written {
            Written::Done(replaced) => {
                book.has_now(record, Stored::So);
                if replaced == Replaced::State && key.run().is_some() {
                    opened.lost_state = true;
                    setup.owes_word();
                }
                opened
            },
            Written::Not(trouble) => {
                self.store_failed(setup, StoreOperation::Save, &trouble);
                book.has_now(record, Stored::NotYet);
                opened
            },
            Written::Lost(winner) => match self.resumed_from(setup, &winner, before.as_deref()) {
                Some(theirs) => {
                    book.has_now(winner, Stored::So);
                    if !self.ends_another(setup, &line) {
                        clock::timeout(CLOSE_WITHIN, line.close()).await.ok();
                    }
                    self.give_back(setup, &line);
                    theirs
                },
                None => {
                    book.is_stored.store(false, Ordering::SeqCst);
                    opened
                },
            },
        }
    }

    /// The session of whoever was there first. A record that is older than what is replaced is no
    /// winner: the store came back as it was on an earlier day.
    fn resumed_from(
        &self,
        setup: &Arc<Setup>,
        winner: &Record,
        replaced: Option<&Record>,
    ) -> Option<Opened<Line>> {
        // Openings that failed here count as well: only what was held tells which one is older.
        let is_older = replaced.is_some_and(|replaced| winner.generation < replaced.generation);
        (!is_older).then(|| self.resumed(setup, winner)).flatten()
    }

    fn record(&self, setup: &Setup, key: &Key, line: &Line, generation: u32) -> Record {
        let facts = line.facts();
        let orders = setup.orders();
        let now = clock::wall_seconds();
        let declared = &setup.said.declared;
        Record {
            key: key.clone(),
            generation,
            session_id: line.kept().map(|kept| kept.session_id),
            version: facts.version,
            declared: record::Declared {
                client_name: declared.client_name.clone(),
                client_version: declared.client_version.clone(),
                capabilities: declared.capabilities.clone(),
            },
            capabilities: facts.capabilities.clone(),
            server_info: facts.server_info.clone(),
            instructions: facts.instructions.clone(),
            log_level: orders.log_level.clone(),
            subscriptions: orders.recordable(),
            left_state: setup.left_state.load(Ordering::Relaxed),
            untold_loss: setup.untold_loss.load(Ordering::Relaxed),
            opened_at: now,
            used_at: now,
            expires_at: facts.expires_in.map(|promised| {
                // A spare has lived for a part of it.
                let left = promised.saturating_sub(line.age(self.shared.tick()));
                now.saturating_add(left.as_secs())
            }),
        }
    }

    /// Renews the record of a session that is held, in the background.
    pub(crate) async fn renew_record(&self, cell: &Arc<CellOf<Self>>) {
        let setup = cell.setup();
        let Some(book) = &setup.book else {
            return;
        };
        if cell.sessions().is_empty() {
            return;
        }
        renew(setup, book).await;
    }

    /// What the record must say before this process ends: whoever comes next reads nothing else.
    pub(super) async fn leave_to_record(&self, setup: &Arc<Setup>) {
        if let Some(book) = &setup.book
            && let Some(trouble) = renew(setup, book).await
        {
            self.store_failed(setup, StoreOperation::Save, &trouble);
        }
    }

    /// Whether the session that a key holds, if it holds one, is left to its record.
    pub(crate) fn keeps(&self, cell: &Arc<CellOf<Self>>, why: Why) -> bool {
        let is_held = !cell.sessions().is_empty();
        is_held && self.is_left_to_its_record(cell.setup(), Some(cell.key()), why)
    }

    /// Whether a session is left as it is, for the process that comes after this one.
    pub(super) fn is_left_to_its_record(&self, setup: &Setup, key: Option<&Key>, why: Why) -> bool {
        let of_a_run = key.is_some_and(|key| key.run().is_some());
        let outlives = setup
            .book
            .as_ref()
            .is_some_and(|book| book.records.outlives_process() && book.is_stored());
        why == Why::Drained && of_a_run && outlives && setup.leg.transport == Transport::Http
    }

    /// Forgets the record of a session that is no more. Where somebody is owed word of what was lost
    /// with it, that stays, so that it outlives this process.
    pub(super) async fn cross_out(
        &self,
        setup: &Arc<Setup>,
        key: Option<&Key>,
        line: &Line,
        why: Why,
    ) {
        let (Some(book), Some(key)) = (&setup.book, key) else {
            return;
        };
        // What a process took with it is told to whoever comes after it.
        if why == Why::Drained && book.records.outlives_process() && key.run().is_some() {
            self.leave_to_record(setup).await;
            return;
        }
        let generation = line.generation.load(Ordering::Relaxed);
        book.crossed_out.fetch_max(generation, Ordering::SeqCst);
        // What is being written would stand there again afterwards.
        let pen = book.pen.acquire().await.ok();
        // Another process may have left state there. Limits of ours are no loss but for a run.
        let is_loss = key.run().is_some() || is_by_the_server(why);
        let is_known = line.has_left_state() || setup.has_untold_loss();
        // What it tells on was told here.
        let owes = |had: &Record| had.untold_loss && !book.tells_on.load(Ordering::Relaxed);
        let is_lost = |had: &Record| is_loss && (is_known || had.left_state || owes(had));
        let now = clock::wall_seconds();
        let word = |had: &Record| is_lost(had).then(|| had.word_of_loss(now));
        let outlives = book.records.outlives_process() && leaves_its_key(why);
        let stays = |had: &Record| word(had).filter(|_| outlives);
        let (records, id) = (&book.records, line.session_id());
        let began = clock::now();
        let had = records.clear_but(key, generation, id, stays).await;
        let did = match &had {
            Some(_) => StoreResult::Done,
            None => StoreResult::Missing,
        };
        Self::store_did(setup, StoreOperation::Clear, did, began);
        if had.as_ref().is_some_and(is_lost) {
            setup.untold_loss.store(true, Ordering::Relaxed);
        }
        if let Some(stays) = had.as_ref().and_then(stays) {
            book.has_now(Box::new(stays), Stored::So);
        }
        drop(pen);
    }

    /// Nobody is left who could be told what was lost with the sessions of a key: its run ended.
    pub(crate) async fn forget_loss(&self, cell: &CellOf<Self>) {
        let Some(book) = &cell.setup().book else {
            return;
        };
        let _pen = book.pen.acquire().await.ok();
        let owed = |written: &Record| written.session_id.is_none() && written.untold_loss;
        let word = book.written.lock().clone();
        if let Some(word) = word.filter(|written| owed(written)) {
            book.records.clear(&word.key, word.generation, None).await;
        }
    }
}

impl Setup {
    /// A call that was not repeatable was answered: from now on there is something to lose. The
    /// record says so in the background, never on the path of the call.
    pub(crate) fn leaves_state(self: &Arc<Self>) {
        if self.left_state.swap(true, Ordering::Relaxed) || self.book.is_none() {
            return;
        }
        self.renews();
    }

    /// The session of a record is held from now on, with what it remembers.
    fn goes_on_from(&self, record: &Record) {
        if let Some(book) = &self.book {
            book.reads(record);
        }
        let states = [
            (&self.left_state, record.left_state),
            (&self.untold_loss, record.untold_loss),
            (&self.was_there, false),
        ];
        for (state, is_so) in states {
            state.store(is_so, Ordering::Relaxed);
        }
    }

    /// From now on another session is held. What was left in the one before it is lost; whoever
    /// shares sessions outside of runs knows that limits end them.
    pub(super) fn moves_on(&self, key: Option<&Key>) {
        let had_state = self.left_state.swap(false, Ordering::Relaxed);
        if had_state && key.is_some_and(|key| key.run().is_some()) {
            self.untold_loss.store(true, Ordering::Relaxed);
        }
    }

    /// State was lost, and its record must say so until somebody was told.
    fn owes_word(self: &Arc<Self>) {
        if !self.untold_loss.swap(true, Ordering::Relaxed) {
            self.renews();
        }
    }

    /// Somebody was told what was lost: its record need not say so any more, unless there are others
    /// to be told. Whether all of them were is not known.
    pub(crate) fn gave_word(self: &Arc<Self>) {
        if let Some(book) = self.book.as_ref().filter(|_| self.is_shared()) {
            let is_owed = self.has_untold_loss();
            book.tells_on.fetch_or(is_owed, Ordering::Relaxed);
        }
        if self.untold_loss.swap(false, Ordering::Relaxed) && !self.is_shared() {
            self.renews();
        }
    }

    /// Whether more than one run may call on its session.
    fn is_shared(&self) -> bool {
        self.held
            .is_some_and(|(_, holding)| holding.reach == Reach::Shared)
    }

    /// Whether runs of other processes left something in its sessions, or lost it.
    pub(crate) fn was_left_by_others(&self) -> bool {
        let book = self.book.as_ref();
        book.is_some_and(|book| book.by_others.load(Ordering::Relaxed))
    }

    /// Renews the record in the background, once for all that changes until it is written.
    pub(super) fn renews(self: &Arc<Self>) {
        let book = self.book.as_deref();
        if book.is_none_or(|book| book.is_due.swap(true, Ordering::SeqCst)) {
            return;
        }
        let setup = Arc::clone(self);
        clock::spawn_if_running("record", async move {
            if let Some(book) = &setup.book {
                renew(&setup, book).await;
            }
        });
    }
}

/// Writes down what changed since the record was written, and says what kept it from that.
async fn renew(setup: &Arc<Setup>, book: &Book) -> Option<Trouble> {
    let _pen = book.pen.acquire().await.ok();
    // From here on what changes is not in what is written now.
    book.is_due.store(false, Ordering::SeqCst);
    let mut record = book.written.lock().clone()?;
    let generation = record.generation;
    if book.crossed_out.load(Ordering::SeqCst) >= generation {
        return None;
    }
    let orders = setup.orders();
    record.log_level.clone_from(&orders.log_level);
    record.subscriptions = orders.recordable();
    record.left_state |= setup.left_state.load(Ordering::Relaxed);
    record.untold_loss = setup.has_untold_loss() || book.tells_on.load(Ordering::Relaxed);
    let began = clock::now();
    let written = book.records.touch(&record).await;
    Connect::store_did(setup, StoreOperation::Save, did_write(&written), began);
    let mut now = book.written.lock();
    // Unless another session was written down meanwhile.
    let is_same = now.as_ref().is_some_and(|now| now.generation == generation);
    match written {
        Written::Done(_) if is_same => {
            *now = Some(record);
            book.is_stored.store(true, Ordering::SeqCst);
            None
        },
        // Another session's stands there.
        Written::Lost(_) if is_same => {
            book.is_stored.store(false, Ordering::SeqCst);
            None
        },
        Written::Done(_) | Written::Lost(_) => None,
        Written::Not(trouble) => Some(trouble),
    }
}

/// Whether the key of a session that ended so goes on with another.
const fn leaves_its_key(why: Why) -> bool {
    match why {
        Why::Aged
        | Why::IdleTooLong
        | Why::Evicted
        | Why::ByOperator
        | Why::CheckFailed
        | Why::Gone
        | Why::CredentialRefused
        | Why::Expired
        | Why::Bug => true,
        Why::RunEnded | Why::Reloaded | Why::Drained | Why::Kept | Why::OpenFailed => false,
    }
}

/// Whether a session ended by no limit of ours.
const fn is_by_the_server(why: Why) -> bool {
    matches!(
        why,
        Why::Gone | Why::CheckFailed | Why::CredentialRefused | Why::Expired
    )
}

fn did_write(written: &Written) -> StoreResult {
    match written {
        Written::Done(_) => StoreResult::Done,
        Written::Lost(_) => StoreResult::Lost,
        Written::Not(trouble) => failure_of(trouble),
    }
}
