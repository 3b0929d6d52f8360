//! The servers by their definitions, a tick at a time.
//!
//! Polling: Lehoczky, Sha and Strosnider, RTSS 1987. Deferrable: Strosnider, Lehoczky and Sha,
//! 1995. Sporadic: Stanovich, Baker, Wang and González Harbour, RTAS 2010, section 5: usage is
//! counted while the server is active, split off when it has nothing more to run or the piece is
//! used up, and comes back one period after the piece's time, or at once and for a whole period if
//! its deadline is past by then. CBS: Abeni and Buttazzo, RTSS 1998; the hard one and the rule for
//! D < T as in Linux' deadline class.

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
    /// Q.
    pub(crate) budget: u64,
    /// T.
    pub(crate) period: u64,
    /// D.
    pub(crate) deadline: u64,
    pub(crate) offset: u64,
}

/// Pieces of a sporadic server at most.
const PIECES: usize = 16;

pub(crate) struct Server {
    of: Spec,
    pending: bool,
    /// The last tick used it up.
    pub(crate) is_exhausted: bool,
    /// Polling, deferrable, CBS: what is left.
    left: u64,
    due: u64,
    /// Polling, deferrable: the next refill. Hard CBS: the one that it waits for.
    next: Option<u64>,
    /// Polling: the last refill.
    refilled: Option<u64>,
    /// CBS: has been used since it was full.
    is_fresh: bool,
    /// Sporadic: from when, and how much.
    pieces: Vec<(u64, u64)>,
    used: u64,
    /// The first piece may be used.
    is_due: bool,
}

impl Server {
    pub(crate) fn new(of: Spec) -> Server {
        let is_cbs = matches!(of.kind, Kind::HardCbs | Kind::SoftCbs);
        Server {
            of,
            pending: false,
            is_exhausted: false,
            left: if is_cbs { of.budget } else { 0 },
            due: u64::MAX,
            next: match of.kind {
                Kind::Polling | Kind::Deferrable => Some(of.offset),
                Kind::HardCbs | Kind::SoftCbs if of.offset > 0 => Some(of.offset),
                _ => None,
            },
            refilled: None,
            is_fresh: true,
            pieces: vec![(of.offset, of.budget)],
            used: 0,
            is_due: false,
        }
    }

    pub(crate) fn wake(&mut self, now: u64) {
        self.pending = true;
        match self.of.kind {
            Kind::Deferrable => {}
            // Whoever arrives with the poll is found by it.
            Kind::Polling => {
                if self.refilled == Some(now) {
                    self.left = self.of.budget;
                }
            }
            Kind::Sporadic => {
                if self.pieces[0].0 < now {
                    self.pieces[0].0 = now;
                    self.is_due = true;
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
            // Nothing of this period has been used: it may as well begin now.
            self.due = now + deadline;
        } else if now >= self.due {
            if deadline < period && now < begins + period {
                self.next = Some(begins + period);
            } else {
                (self.left, self.due, self.is_fresh) = (budget, now + deadline, true);
                // What has only just been used up is full again.
                self.is_exhausted = false;
            }
        } else if self.left * deadline > (self.due - now) * budget {
            if deadline < period {
                self.left = (self.due - now) * budget / deadline;
                self.is_fresh = false;
                if self.left == 0 {
                    self.next = Some(begins + period);
                }
            } else {
                (self.left, self.due, self.is_fresh) = (budget, now + deadline, true);
            }
        }
    }

    pub(crate) fn idle(&mut self) {
        self.pending = false;
        match self.of.kind {
            Kind::Polling => self.left = 0,
            Kind::Sporadic if self.used > 0 => self.split(),
            _ => {}
        }
    }

    /// A tick that ends `now`.
    pub(crate) fn charge(&mut self, now: u64) {
        if self.of.kind == Kind::Sporadic {
            self.used += 1;
            if self.used == self.pieces[0].1 {
                self.split();
                // One that falls due at this very moment comes with the refills.
                self.is_due = self.pieces[0].0 < now;
                // So late that the whole of it has passed.
                if self.pieces[0].0 + self.of.deadline < now {
                    self.pieces[0].0 = now;
                    self.join();
                }
            }
        } else {
            self.left -= 1;
            self.is_fresh = false;
            self.is_exhausted = self.left == 0;
        }
    }

    /// What was used comes back a period after the time of its piece.
    fn split(&mut self) {
        let (at, amount) = self.pieces[0];
        let used = std::mem::take(&mut self.used);
        if used == amount {
            self.pieces.remove(0);
        } else {
            self.pieces[0] = (at + used, amount - used);
        }
        let back = (at + self.of.period, used);
        let is_full = self.pieces.len() == PIECES;
        match self.pieces.last_mut() {
            Some((at, amount)) if *at + *amount >= back.0 => *amount += used,
            // Late is safe, early is not.
            Some((at, amount)) if is_full => (*at, *amount) = (back.0 - *amount, *amount + used),
            _ => self.pieces.push(back),
        }
    }

    /// Pieces that can be used without a pause between them are one.
    fn join(&mut self) {
        while self.pieces.len() > 1 && self.pieces[1].0 <= self.pieces[0].0 + self.pieces[0].1 {
            let (_, amount) = self.pieces.remove(1);
            self.pieces[0].1 += amount;
        }
    }

    pub(crate) fn exhausted(&mut self, _now: u64) {
        self.is_exhausted = false;
        match self.of.kind {
            Kind::HardCbs => self.next = Some(self.due - self.of.deadline + self.of.period),
            Kind::SoftCbs => {
                (self.left, self.is_fresh) = (self.of.budget, true);
                self.due += self.of.period;
            }
            _ => {}
        }
    }

    pub(crate) fn refill_at(&self) -> Option<u64> {
        match self.of.kind {
            Kind::Sporadic => Some(self.pieces[0].0).filter(|_| !self.is_due),
            _ => self.next,
        }
    }

    pub(crate) fn refill(&mut self, now: u64) {
        let Spec { budget, period, deadline, .. } = self.of;
        match self.of.kind {
            Kind::Polling => {
                self.left = if self.pending { budget } else { 0 };
                (self.refilled, self.next, self.due) =
                    (Some(now), Some(now + period), now + deadline);
            }
            Kind::Deferrable => {
                (self.left, self.next, self.due) = (budget, Some(now + period), now + deadline);
            }
            Kind::Sporadic => self.is_due = true,
            Kind::HardCbs | Kind::SoftCbs => {
                let begins = self.next.take().expect("it waits");
                (self.left, self.is_fresh) = (budget, true);
                self.due = begins + deadline;
                if self.due < now {
                    // So late that the whole of it has passed.
                    self.due = now + deadline;
                }
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        match self.of.kind {
            Kind::Sporadic => self.is_due,
            Kind::HardCbs => self.left > 0 && self.next.is_none(),
            // Never out of budget.
            Kind::SoftCbs => self.next.is_none(),
            _ => self.left > 0,
        }
    }

    pub(crate) fn deadline(&self) -> u64 {
        match self.of.kind {
            Kind::Sporadic => self.pieces[0].0 + self.of.deadline,
            _ => self.due,
        }
    }
}
