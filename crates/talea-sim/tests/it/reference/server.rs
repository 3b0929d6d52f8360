//! Servers from their definitions, simulated one tick at a time.
//!
//! Polling: Lehoczky, Sha and Strosnider, RTSS 1987. Deferrable: Strosnider, Lehoczky and Sha,
//! 1995.
//!
//! Sporadic: Stanovich, Baker, Wang and González Harbour, RTAS 2010, section 5. The server counts
//! usage while it is active. The server splits the usage off when it has no more work or the refill
//! is exhausted. The usage returns one period after the refill's time. If the refill's deadline has
//! passed by then, the usage returns immediately and for a whole period.
//!
//! CBS: Abeni and Buttazzo, RTSS 1998. The hard CBS and the rule for D < T follow Linux' deadline
//! class.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Polling,
    Deferrable,
    Sporadic,
    HardCbs,
    SoftCbs,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Spec {
    pub(crate) kind: Kind,
    /// Q: budget.
    pub(crate) budget: u64,
    /// T: period.
    pub(crate) period: u64,
    /// D: deadline.
    pub(crate) deadline: u64,
    pub(crate) offset: u64,
}

/// Maximum number of refills of a sporadic server.
const MAX_REFILLS: usize = 16;

pub(crate) struct Server {
    of: Spec,
    pending: bool,
    /// Whether the last tick exhausted the budget.
    pub(crate) is_exhausted: bool,
    /// Remaining budget of a polling server, deferrable server or CBS.
    remaining: u64,
    due: u64,
    /// Next refill of a polling or deferrable server. For a hard CBS, the end of throttling.
    next: Option<u64>,
    /// Last refill of a polling server.
    refilled: Option<u64>,
    /// Whether the budget of a CBS is unused since its refill.
    is_fresh: bool,
    /// Refills of a sporadic server: time and amount.
    refills: Vec<(u64, u64)>,
    used: u64,
    /// Whether the first refill may be used.
    is_usable: bool,
}

impl Server {
    pub(crate) fn new(of: Spec) -> Server {
        let is_cbs = matches!(of.kind, Kind::HardCbs | Kind::SoftCbs);
        Server {
            of,
            pending: false,
            is_exhausted: false,
            remaining: if is_cbs { of.budget } else { 0 },
            due: u64::MAX,
            next: match of.kind {
                Kind::Polling | Kind::Deferrable => Some(of.offset),
                Kind::HardCbs | Kind::SoftCbs if of.offset > 0 => Some(of.offset),
                _ => None,
            },
            refilled: None,
            is_fresh: true,
            refills: vec![(of.offset, of.budget)],
            used: 0,
            is_usable: false,
        }
    }

    pub(crate) fn wake(&mut self, now: u64) {
        self.pending = true;
        match self.of.kind {
            Kind::Deferrable => {}
            // A client that arrives with the poll is served.
            Kind::Polling => {
                if self.refilled == Some(now) {
                    self.remaining = self.of.budget;
                }
            }
            Kind::Sporadic => {
                if self.refills[0].0 < now {
                    self.refills[0].0 = now;
                    self.is_usable = true;
                    self.join();
                }
            }
            Kind::HardCbs | Kind::SoftCbs => self.wake_cbs(now),
        }
    }

    fn wake_cbs(&mut self, now: u64) {
        let Spec { budget, period, deadline, .. } = self.of;
        if self.next.is_some() {
            return;
        }
        let begins = self.due.wrapping_sub(deadline);
        if self.is_fresh && (self.due == u64::MAX || now >= begins) {
            // Nothing of this period has been used: a new one may begin now.
            self.due = now + deadline;
        } else if now >= self.due {
            if deadline < period && now < begins + period {
                self.next = Some(begins + period);
            } else {
                (self.remaining, self.due, self.is_fresh) = (budget, now + deadline, true);
                // A budget that was just exhausted is full again.
                self.is_exhausted = false;
            }
        } else if self.remaining * deadline > (self.due - now) * budget {
            if deadline < period {
                self.remaining = (self.due - now) * budget / deadline;
                self.is_fresh = false;
                if self.remaining == 0 {
                    self.next = Some(begins + period);
                }
            } else {
                (self.remaining, self.due, self.is_fresh) = (budget, now + deadline, true);
            }
        }
    }

    pub(crate) fn idle(&mut self) {
        self.pending = false;
        match self.of.kind {
            Kind::Polling => self.remaining = 0,
            Kind::Sporadic if self.used > 0 => self.split(),
            _ => {}
        }
    }

    /// Charges a tick that ends at `now`.
    pub(crate) fn charge(&mut self, now: u64) {
        if self.of.kind == Kind::Sporadic {
            self.used += 1;
            if self.used == self.refills[0].1 {
                self.split();
                // A refill for exactly this time is performed in the phase of refills.
                self.is_usable = self.refills[0].0 < now;
                // The whole period has passed.
                if self.refills[0].0 + self.of.period < now {
                    self.refills[0].0 = now;
                    self.join();
                }
            }
        } else {
            self.remaining -= 1;
            self.is_fresh = false;
            self.is_exhausted = self.remaining == 0;
            let next = self.due - self.of.deadline + self.of.period;
            if self.is_exhausted && self.of.kind == Kind::HardCbs && next < now {
                (self.next, self.is_exhausted) = (Some(next), false);
                self.refill(now);
            }
        }
    }

    /// Schedules the used part one period after the time of its refill.
    fn split(&mut self) {
        let (at, amount) = self.refills[0];
        let used = std::mem::take(&mut self.used);
        if used == amount {
            self.refills.remove(0);
        } else {
            self.refills[0] = (at + used, amount - used);
        }
        let back = (at + self.of.period, used);
        let is_full = self.refills.len() == MAX_REFILLS;
        match self.refills.last_mut() {
            Some((at, amount)) if *at + *amount >= back.0 => *amount += used,
            // Late is safe, early is not.
            Some((at, amount)) if is_full => (*at, *amount) = (back.0 - *amount, *amount + used),
            _ => self.refills.push(back),
        }
    }

    /// Merges refills that can be used without a pause between them.
    fn join(&mut self) {
        while self.refills.len() > 1 && self.refills[1].0 <= self.refills[0].0 + self.refills[0].1 {
            let (_, amount) = self.refills.remove(1);
            self.refills[0].1 += amount;
        }
    }

    pub(crate) fn exhausted(&mut self, _now: u64) {
        self.is_exhausted = false;
        match self.of.kind {
            Kind::HardCbs => self.next = Some(self.due - self.of.deadline + self.of.period),
            Kind::SoftCbs => {
                (self.remaining, self.is_fresh) = (self.of.budget, true);
                self.due += self.of.period;
            }
            _ => {}
        }
    }

    pub(crate) fn refill_at(&self) -> Option<u64> {
        match self.of.kind {
            Kind::Sporadic => Some(self.refills[0].0).filter(|_| !self.is_usable),
            _ => self.next,
        }
    }

    pub(crate) fn refill(&mut self, now: u64) {
        let Spec { budget, period, deadline, .. } = self.of;
        match self.of.kind {
            Kind::Polling => {
                self.remaining = if self.pending { budget } else { 0 };
                (self.refilled, self.next, self.due) =
                    (Some(now), Some(now + period), now + deadline);
            }
            Kind::Deferrable => {
                (self.remaining, self.next, self.due) =
                    (budget, Some(now + period), now + deadline);
            }
            Kind::Sporadic => self.is_usable = true,
            Kind::HardCbs | Kind::SoftCbs => {
                let begins = self.next.take().expect("it waits");
                (self.remaining, self.is_fresh) = (budget, true);
                self.due = begins + deadline;
                if self.due < now {
                    // The whole period has passed.
                    self.due = now + deadline;
                }
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self.of.kind {
            Kind::Sporadic => self.is_usable,
            Kind::HardCbs => self.remaining > 0 && self.next.is_none(),
            // Never out of budget.
            Kind::SoftCbs => self.next.is_none(),
            _ => self.remaining > 0,
        }
    }

    pub(crate) fn deadline(&self) -> u64 {
        match self.of.kind {
            Kind::Sporadic => self.refills[0].0 + self.of.deadline,
            _ => self.due,
        }
    }
}
