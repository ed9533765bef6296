//! The reference: the same promises, said as plainly as possible. No counts are kept, nothing is
//! fast; whatever can be worked out is worked out anew.

use std::collections::BTreeMap;

use warmline_core::pool::{
    CellPolicy, Ends, Event, Generation, Health, Loss, Outcome, Proof, Sharing, Turn, Want, Why,
    Word,
};

/// What the model says is to be done. Order does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Said {
    Lease(u64, u32, Option<Lost>),
    Refuse(u64),
    Open(u32),
    Abandon(u32),
    Check(u32),
    Close(u32),
    Proven(u32),
    InVain(u32),
}

/// A loss: of which session, the how manieth it is, and whether anybody was told of it.
pub(crate) type Lost = (u32, u16, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Sure,
    Doubted,
    Excused,
}

#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "as plain as possible, to be held against"
)]
pub(crate) struct One {
    opening: bool,
    leases: u32,
    alone: bool,
    /// Alone because it asked to be: its calls are leases too.
    holder: bool,
    check: bool,
    over: bool,
    /// Its server ended it.
    gone: bool,
    /// Somebody ended it under its key: whoever has state there is told.
    lost: bool,
    heard: u64,
    used: u64,
    trust: Trust,
    silent: u32,
    left_state: bool,
    opened: u64,
    served: bool,
    in_vain: bool,
    proven: bool,
}

pub(crate) struct Model {
    proof: Proof,
    pub(crate) sharing: Sharing,
    pub(crate) ends: Ends,
    pub(crate) max: u32,
    pub(crate) most_waiters: u32,
    pub(crate) now: u64,
    pub(crate) line: Vec<(u64, Want, Turn)>,
    pub(crate) all: BTreeMap<u32, One>,
    next: u32,
    loss: Option<Lost>,
    ended: bool,
    said: Vec<Said>,
}

const OPENING: One = One {
    opening: true,
    leases: 0,
    alone: false,
    holder: false,
    check: false,
    over: false,
    gone: false,
    lost: false,
    heard: 0,
    used: 0,
    trust: Trust::Sure,
    silent: 0,
    left_state: false,
    opened: 0,
    served: false,
    in_vain: false,
    proven: false,
};

impl Model {
    pub(crate) fn new(policy: &CellPolicy) -> Self {
        Self {
            proof: policy.proof,
            sharing: policy.sharing,
            ends: policy.ends,
            max: policy.max,
            most_waiters: policy.waiters,
            now: 0,
            line: Vec::new(),
            all: BTreeMap::new(),
            next: 1,
            loss: None,
            ended: false,
            said: Vec::new(),
        }
    }

    pub(crate) fn on(&mut self, event: Event) -> Vec<Said> {
        self.take_in(event);
        if !self.ended {
            self.serve();
        }
        let mut said = std::mem::take(&mut self.said);
        said.sort_unstable();
        said
    }

    /// What is seen of a session: its state and leases.
    pub(crate) fn seen(&self) -> Vec<(u32, &'static str, u32)> {
        let seen = |(number, one): (&u32, &One)| {
            let word = match one {
                One { opening: true, .. } => "opening",
                One { over: true, .. } => "retiring",
                One { leases: 0, .. } => "idle",
                _ => "leased",
            };
            (*number, word, one.leases)
        };
        self.all.iter().map(seen).collect()
    }

    fn take_in(&mut self, event: Event) {
        match event {
            Event::Asked { waiter, want, turn } => {
                let full = turn == Turn::Last && self.line.len() >= self.most_waiters as usize;
                if self.ended || full {
                    self.said.push(Said::Refuse(waiter.0));
                } else {
                    self.line.push((waiter.0, want, turn));
                    // Who had a turn before, then who had none; each as they came.
                    self.line.sort_by_key(|(_, _, turn)| *turn == Turn::Last);
                }
            },
            Event::Left { waiter } => self.line.retain(|(one, ..)| *one != waiter.0),
            Event::Opened { generation, .. } => self.opened(generation.number()),
            Event::OpenFailed { generation } => self.open_failed(generation.number()),
            Event::Withdrawn { generation } => drop(self.all.remove(&generation.number())),
            Event::Deserted { generation } => self.deserted(generation.number()),
            Event::Joined { waiter, generation } => self.joined(waiter.0, generation.number()),
            Event::Settled {
                generation,
                outcome,
            } => self.settled(generation.number(), outcome),
            Event::Told { number } => {
                if let Some((_, last, told)) = &mut self.loss {
                    *told |= *last == number;
                }
            },
            Event::Gone { generation, why } => self.gone(generation.number(), why),
            Event::Checked { generation, health } => {
                self.judge(generation.number(), health);
                self.give_back(generation.number());
            },
            Event::KeptAlive { generation, health } => self.kept_alive(generation, health),
            Event::Doubted { .. } => self.doubt(|_| true),
            Event::Reconfigured(policy) => self.max = policy.max,
            Event::Swept { .. } => {},
            Event::RoomNeeded { generation } => self.room_needed(generation.number()),
            Event::Ended(_) => self.end(),
            Event::Cut => self.cut(),
        }
    }

    fn opened(&mut self, number: u32) {
        let now = self.now;
        let taken = self.taken();
        let Some(one) = self.all.get_mut(&number) else {
            return self.said.push(Said::Close(number));
        };
        (one.opening, one.heard, one.used, one.opened) = (false, now, now, now);
        if self.ended || taken > self.places() {
            self.close(number);
        }
    }

    fn open_failed(&mut self, number: u32) {
        self.all.remove(&number);
        let others = self.all.values().any(|one| !one.over);
        let told = if others {
            1.min(self.line.len())
        } else {
            self.line.len()
        };
        for (waiter, ..) in self.line.drain(..told) {
            self.said.push(Said::Refuse(waiter));
        }
    }

    fn deserted(&mut self, number: u32) {
        self.all.remove(&number);
        for (waiter, ..) in self.line.drain(..) {
            self.said.push(Said::Refuse(waiter));
        }
    }

    fn joined(&mut self, waiter: u64, number: u32) {
        let now = self.now;
        let Some(one) = self.all.get_mut(&number) else {
            return;
        };
        if one.holder && one.leases > 0 && !one.gone {
            one.leases += 1;
            one.used = now;
            self.said.push(Said::Lease(waiter, number, None));
        }
    }

    fn settled(&mut self, number: u32, outcome: Outcome) {
        let (now, side_by_side) = (self.now, self.sharing == Sharing::SideBySide);
        let Some(one) = self.all.get_mut(&number) else {
            return;
        };
        if outcome != Outcome::Unused {
            one.used = now;
        }
        match outcome {
            Outcome::Fine { left_state } => {
                (one.heard, one.silent, one.trust) = (now, 0, Trust::Sure);
                one.served = true;
                if !one.proven && self.proof.is_shown_by(one, now) {
                    one.proven = true;
                    self.said.push(Said::Proven(number));
                }
                let is_new = left_state && !one.left_state;
                one.left_state |= left_state;
                if is_new && one.over && one.lost && !self.ended {
                    self.lose(number);
                }
            },
            Outcome::Broken => one.trust = Trust::Doubted,
            Outcome::Dropped if !side_by_side => one.trust = Trust::Doubted,
            Outcome::Gone(why) => self.gone(number, why),
            Outcome::Dropped | Outcome::Unused => {},
        }
        self.give_back(number);
    }

    fn gone(&mut self, number: u32, why: Why) {
        let by_server = why != Why::ByOperator;
        let (now, proof) = (self.now, self.proof);
        let Some(one) = self.all.get_mut(&number).filter(|one| !one.opening) else {
            return;
        };
        if by_server && !one.proven && !one.in_vain && proof.is_missed_by(one, now) {
            one.in_vain = true;
            self.said.push(Said::InVain(number));
        }
        if one.over {
            return;
        }
        (one.over, one.gone, one.lost) = (true, by_server, true);
        let (has_state, idle) = (one.left_state, one.leases == 0);
        if has_state && !self.ended {
            self.lose(number);
        }
        if by_server {
            self.doubt(|other| other != number);
        }
        if idle {
            self.close(number);
        }
    }

    fn lose(&mut self, number: u32) {
        let before = self.loss.map_or(0, |(_, last, _)| last);
        self.loss = Some((number, before + 1, false));
    }

    fn judge(&mut self, number: u32, health: Health) {
        let (now, of_run) = (self.now, self.ends == Ends::WithRun);
        let Some(one) = self.all.get_mut(&number).filter(|one| !one.over) else {
            return;
        };
        match health {
            Health::Alive => (one.heard, one.silent, one.trust) = (now, 0, Trust::Sure),
            Health::Silent if of_run && one.silent < 2 => {
                one.silent += 1;
                one.trust = Trust::Excused;
            },
            Health::Unreachable => one.trust = Trust::Excused,
            Health::Refused if of_run => one.trust = Trust::Excused,
            Health::Gone | Health::Silent | Health::Refused => self.gone(number, Why::Gone),
        }
    }

    fn kept_alive(&mut self, generation: Generation, health: Health) {
        let number = generation.number();
        let Some(one) = self.all.get(&number).filter(|one| !one.opening) else {
            return;
        };
        let busy = one.leases > 0;
        if busy && !matches!(health, Health::Alive | Health::Gone) {
            return;
        }
        self.judge(number, health);
        if let Some(one) = self.all.get_mut(&number)
            && one.trust == Trust::Excused
        {
            one.trust = Trust::Doubted;
        }
    }

    fn doubt(&mut self, whom: impl Fn(u32) -> bool) {
        for (number, one) in &mut self.all {
            if whom(*number) && !one.opening && !one.over {
                one.trust = Trust::Doubted;
            }
        }
    }

    fn room_needed(&mut self, number: u32) {
        let idle = |one: &One| !one.opening && one.leases == 0;
        let is_idle = self.all.get(&number).is_some_and(idle);
        if self.ends == Ends::ByLimits && self.line.is_empty() && is_idle {
            self.close(number);
        }
    }

    fn end(&mut self) {
        self.ended = true;
        for (waiter, ..) in std::mem::take(&mut self.line) {
            self.said.push(Said::Refuse(waiter));
        }
        for number in self.all.keys().copied().collect::<Vec<_>>() {
            let Some(one) = self.all.get_mut(&number).filter(|one| !one.opening) else {
                continue;
            };
            one.over = true;
            if one.leases == 0 {
                self.close(number);
            }
        }
    }

    fn cut(&mut self) {
        for (number, one) in std::mem::take(&mut self.all) {
            self.said.push(if one.opening {
                Said::Abandon(number)
            } else {
                Said::Close(number)
            });
        }
    }

    fn close(&mut self, number: u32) {
        self.all.remove(&number);
        self.said.push(Said::Close(number));
    }

    fn give_back(&mut self, number: u32) {
        let Some(one) = self.all.get_mut(&number) else {
            return;
        };
        one.leases -= 1;
        if one.leases == 0 {
            (one.alone, one.holder, one.check) = (false, false, false);
            if one.over {
                self.close(number);
            }
        }
    }

    fn serve(&mut self) {
        while self.ends == Ends::ByLimits && self.taken() > self.places() {
            let idle = |one: &One| !one.opening && !one.over && one.leases == 0;
            let Some(number) = self.all.iter().rev().find(|(_, one)| idle(one)) else {
                break;
            };
            self.close(*number.0);
        }
        while let Some((waiter, want, _)) = self.line.first().copied() {
            let Some(number) = self.best(want) else { break };
            self.line.remove(0);
            let (now, loss) = (self.now, self.loss);
            let alone = want == Want::Exclusive || self.sharing != Sharing::SideBySide;
            if let Some(one) = self.all.get_mut(&number) {
                (one.used, one.alone) = (now, alone);
                one.holder = want == Want::Exclusive;
                one.leases += 1;
                if one.trust == Trust::Excused {
                    one.trust = Trust::Doubted;
                }
            }
            self.said.push(Said::Lease(waiter, number, loss));
        }
        let wanted = match self.sharing {
            Sharing::OneEach => self.line.len(),
            Sharing::SideBySide | Sharing::Serial => self.line.len().min(1),
        };
        let comes = |one: &&One| one.opening || (one.check && !one.over);
        while self.all.values().filter(comes).count() < wanted {
            let idle = |one: &One| !one.opening && !one.over && one.leases == 0;
            if let Some((number, one)) = self.all.iter_mut().find(|(_, one)| idle(one)) {
                (one.leases, one.alone, one.check) = (1, true, true);
                self.said.push(Said::Check(*number));
            } else if self.taken() < self.places() {
                self.all.insert(self.next, OPENING);
                self.said.push(Said::Open(self.next));
                self.next += 1;
            } else {
                break;
            }
        }
    }

    fn best(&self, want: Want) -> Option<u32> {
        let now = self.now;
        let fits = |one: &One| {
            let fresh = match one.trust {
                Trust::Sure => now < one.heard + 60,
                Trust::Doubted => false,
                Trust::Excused => true,
            };
            let joins = want == Want::Shared && self.sharing == Sharing::SideBySide && !one.alone;
            !one.opening && !one.over && if one.leases == 0 { fresh } else { joins }
        };
        let fitting = self.all.iter().filter(|(_, one)| fits(one));
        let best = fitting.max_by_key(|(number, one)| (one.used, **number));
        best.map(|(number, _)| *number)
    }

    /// Places taken: a server's word frees one at once.
    fn taken(&self) -> u32 {
        let takes = |one: &&One| match self.sharing {
            Sharing::OneEach => !(one.over && one.gone),
            Sharing::SideBySide | Sharing::Serial => !one.over,
        };
        u32::try_from(self.all.values().filter(takes).count()).expect("few")
    }

    fn places(&self) -> u32 {
        match self.sharing {
            Sharing::OneEach => self.max,
            Sharing::SideBySide | Sharing::Serial => 1,
        }
    }
}

/// Whether it was worth it to open a session: it served, or it is a minute old. It was in vain where
/// it was over at once, before it served; a process is over at once all that minute.
trait Shown {
    fn is_shown_by(&self, one: &One, now: u64) -> bool;
    fn is_missed_by(&self, one: &One, now: u64) -> bool;
}

impl Shown for Proof {
    fn is_shown_by(&self, one: &One, now: u64) -> bool {
        match self {
            Self::Serving => one.served,
            Self::Lasting(_) => now - one.opened >= 60,
        }
    }

    fn is_missed_by(&self, one: &One, now: u64) -> bool {
        match self {
            Self::Serving => !one.served && now - one.opened < 10,
            Self::Lasting(_) => now - one.opened < 60,
        }
    }
}

/// What the loss says, for comparing.
pub(crate) fn lost(loss: Option<Loss>) -> Option<Lost> {
    let loss = loss.filter(|loss| loss.why != Why::Bug)?;
    let told = loss.word == Word::Told;
    Some((loss.generation.number(), loss.number, told))
}
