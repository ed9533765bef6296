//! The reference: the same promises, said as plainly as possible. No counts are kept, nothing is
//! fast; whatever can be worked out is worked out anew.

use std::collections::BTreeMap;

use warmline_core::pool::{
    EndCondition, EndReason, EntryPolicy, Event, Generation, HealthCheckResult, LeaseMode,
    LeaseOutcome, QueuePosition, Sharing, StabilityCriterion, StateLoss,
};

/// What the model says is to be done. Order does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ModelEffect {
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
    proof: StabilityCriterion,
    pub(crate) sharing: Sharing,
    pub(crate) ends: EndCondition,
    pub(crate) max: u32,
    pub(crate) most_waiters: u32,
    pub(crate) now: u64,
    pub(crate) line: Vec<(u64, LeaseMode, QueuePosition)>,
    pub(crate) all: BTreeMap<u32, One>,
    next: u32,
    loss: Option<Lost>,
    ended: bool,
    said: Vec<ModelEffect>,
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
    pub(crate) fn new(policy: &EntryPolicy) -> Self {
        Self {
            proof: policy.stability,
            sharing: policy.sharing,
            ends: policy.end_condition,
            max: policy.max_sessions,
            most_waiters: policy.max_waiters,
            now: 0,
            line: Vec::new(),
            all: BTreeMap::new(),
            next: 1,
            loss: None,
            ended: false,
            said: Vec::new(),
        }
    }

    pub(crate) fn on(&mut self, event: Event) -> Vec<ModelEffect> {
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
            Event::LeaseRequested {
                waiter,
                mode: want,
                position: turn,
            } => {
                let full =
                    turn == QueuePosition::Back && self.line.len() >= self.most_waiters as usize;
                if self.ended || full {
                    self.said.push(ModelEffect::Refuse(waiter.0));
                } else {
                    self.line.push((waiter.0, want, turn));
                    // Who had a turn before, then who had none; each as they came.
                    self.line
                        .sort_by_key(|(_, _, turn)| *turn == QueuePosition::Back);
                }
            },
            Event::WaiterLeft(waiter) => self.line.retain(|(one, ..)| *one != waiter.0),
            Event::Opened(generation, _) => self.opened(generation.number()),
            Event::OpenFailed(generation) => self.open_failed(generation.number()),
            Event::OpenCancelled(generation) => drop(self.all.remove(&generation.number())),
            Event::OpenerLost(generation) => self.deserted(generation.number()),
            Event::HolderCallStarted(waiter, generation) => {
                self.joined(waiter.0, generation.number());
            },
            Event::LeaseReturned(generation, outcome) => self.settled(generation.number(), outcome),
            Event::LossReported(number) => {
                if let Some((_, last, told)) = &mut self.loss {
                    *told |= *last == number;
                }
            },
            Event::SessionEnded(generation, why) => self.gone(generation.number(), why),
            Event::CheckFinished(generation, health) => {
                self.judge(generation.number(), health);
                self.give_back(generation.number());
            },
            Event::KeepAliveFinished(generation, health) => self.kept_alive(generation, health),
            Event::ServerLostSessions(..) => self.doubt(|_| true),
            Event::Reconfigured(policy) => self.max = policy.max_sessions,
            Event::MaintenanceTick(..) => {},
            Event::PermitNeeded(generation) => self.room_needed(generation.number()),
            Event::EntryEnded(_) => self.end(),
            Event::GraceExpired => self.cut(),
        }
    }

    fn opened(&mut self, number: u32) {
        let now = self.now;
        let taken = self.taken();
        let Some(one) = self.all.get_mut(&number) else {
            return self.said.push(ModelEffect::Close(number));
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
            self.said.push(ModelEffect::Refuse(waiter));
        }
    }

    fn deserted(&mut self, number: u32) {
        self.all.remove(&number);
        for (waiter, ..) in self.line.drain(..) {
            self.said.push(ModelEffect::Refuse(waiter));
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
            self.said.push(ModelEffect::Lease(waiter, number, None));
        }
    }

    fn settled(&mut self, number: u32, outcome: LeaseOutcome) {
        let (now, side_by_side) = (self.now, self.sharing == Sharing::SideBySide);
        let Some(one) = self.all.get_mut(&number) else {
            return;
        };
        if outcome != LeaseOutcome::Unused {
            one.used = now;
        }
        match outcome {
            LeaseOutcome::Answered {
                stateful: left_state,
            } => {
                (one.heard, one.silent, one.trust) = (now, 0, Trust::Sure);
                one.served = true;
                if !one.proven && self.proof.is_shown_by(one, now) {
                    one.proven = true;
                    self.said.push(ModelEffect::Proven(number));
                }
                let is_new = left_state && !one.left_state;
                one.left_state |= left_state;
                if is_new && one.over && one.lost && !self.ended {
                    self.lose(number);
                }
            },
            LeaseOutcome::ConnectionFailed => one.trust = Trust::Doubted,
            LeaseOutcome::Cancelled if !side_by_side => one.trust = Trust::Doubted,
            LeaseOutcome::SessionEnded(why) => self.gone(number, why),
            LeaseOutcome::Cancelled | LeaseOutcome::Unused => {},
        }
        self.give_back(number);
    }

    fn gone(&mut self, number: u32, why: EndReason) {
        let by_server = why != EndReason::ByOperator;
        let (now, proof) = (self.now, self.proof);
        let Some(one) = self.all.get_mut(&number).filter(|one| !one.opening) else {
            return;
        };
        if by_server && !one.proven && !one.in_vain && proof.is_missed_by(one, now) {
            one.in_vain = true;
            self.said.push(ModelEffect::InVain(number));
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

    fn judge(&mut self, number: u32, health: HealthCheckResult) {
        let (now, of_run) = (self.now, self.ends == EndCondition::WithRunEnd);
        let Some(one) = self.all.get_mut(&number).filter(|one| !one.over) else {
            return;
        };
        match health {
            HealthCheckResult::Alive => (one.heard, one.silent, one.trust) = (now, 0, Trust::Sure),
            HealthCheckResult::TimedOut if of_run && one.silent < 2 => {
                one.silent += 1;
                one.trust = Trust::Excused;
            },
            HealthCheckResult::Unreachable => one.trust = Trust::Excused,
            HealthCheckResult::Refused if of_run => one.trust = Trust::Excused,
            HealthCheckResult::Gone | HealthCheckResult::TimedOut | HealthCheckResult::Refused => {
                self.gone(number, EndReason::Gone);
            },
        }
    }

    fn kept_alive(&mut self, generation: Generation, health: HealthCheckResult) {
        let number = generation.number();
        let Some(one) = self.all.get(&number).filter(|one| !one.opening) else {
            return;
        };
        let busy = one.leases > 0;
        if busy && !matches!(health, HealthCheckResult::Alive | HealthCheckResult::Gone) {
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
        if self.ends == EndCondition::AtLimits && self.line.is_empty() && is_idle {
            self.close(number);
        }
    }

    fn end(&mut self) {
        self.ended = true;
        for (waiter, ..) in std::mem::take(&mut self.line) {
            self.said.push(ModelEffect::Refuse(waiter));
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
                ModelEffect::Abandon(number)
            } else {
                ModelEffect::Close(number)
            });
        }
    }

    fn close(&mut self, number: u32) {
        self.all.remove(&number);
        self.said.push(ModelEffect::Close(number));
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
        while self.ends == EndCondition::AtLimits && self.taken() > self.places() {
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
            let alone = want == LeaseMode::Exclusive || self.sharing != Sharing::SideBySide;
            if let Some(one) = self.all.get_mut(&number) {
                (one.used, one.alone) = (now, alone);
                one.holder = want == LeaseMode::Exclusive;
                one.leases += 1;
                if one.trust == Trust::Excused {
                    one.trust = Trust::Doubted;
                }
            }
            self.said.push(ModelEffect::Lease(waiter, number, loss));
        }
        let wanted = match self.sharing {
            Sharing::OnePerCaller => self.line.len(),
            Sharing::SideBySide | Sharing::Serial => self.line.len().min(1),
        };
        let comes = |one: &&One| one.opening || (one.check && !one.over);
        while self.all.values().filter(comes).count() < wanted {
            let idle = |one: &One| !one.opening && !one.over && one.leases == 0;
            if let Some((number, one)) = self.all.iter_mut().find(|(_, one)| idle(one)) {
                (one.leases, one.alone, one.check) = (1, true, true);
                self.said.push(ModelEffect::Check(*number));
            } else if self.taken() < self.places() {
                self.all.insert(self.next, OPENING);
                self.said.push(ModelEffect::Open(self.next));
                self.next += 1;
            } else {
                break;
            }
        }
    }

    fn best(&self, want: LeaseMode) -> Option<u32> {
        let now = self.now;
        let fits = |one: &One| {
            let fresh = match one.trust {
                Trust::Sure => now < one.heard + 60,
                Trust::Doubted => false,
                Trust::Excused => true,
            };
            let joins =
                want == LeaseMode::Shared && self.sharing == Sharing::SideBySide && !one.alone;
            !one.opening && !one.over && if one.leases == 0 { fresh } else { joins }
        };
        let fitting = self.all.iter().filter(|(_, one)| fits(one));
        let best = fitting.max_by_key(|(number, one)| (one.used, **number));
        best.map(|(number, _)| *number)
    }

    /// Places taken: a server's word frees one at once.
    fn taken(&self) -> u32 {
        let takes = |one: &&One| match self.sharing {
            Sharing::OnePerCaller => !(one.over && one.gone),
            Sharing::SideBySide | Sharing::Serial => !one.over,
        };
        u32::try_from(self.all.values().filter(takes).count()).expect("few")
    }

    fn places(&self) -> u32 {
        match self.sharing {
            Sharing::OnePerCaller => self.max,
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

impl Shown for StabilityCriterion {
    fn is_shown_by(&self, one: &One, now: u64) -> bool {
        match self {
            Self::FirstReply => one.served,
            Self::MinAge(_) => now - one.opened >= 60,
        }
    }

    fn is_missed_by(&self, one: &One, now: u64) -> bool {
        match self {
            Self::FirstReply => !one.served && now - one.opened < 10,
            Self::MinAge(_) => now - one.opened < 60,
        }
    }
}

/// What the loss says, for comparing.
pub(crate) fn lost(loss: Option<StateLoss>) -> Option<Lost> {
    let loss = loss.filter(|loss| loss.reason != EndReason::Bug)?;
    let told = loss.is_reported;
    Some((loss.generation.number(), loss.number, told))
}
