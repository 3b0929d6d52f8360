//! What each user holds and how fast it may ask (checklist R38: no quota of any kind was the
//! original's D4).
//!
//! The request rate is a bucket of tokens, kept as one number: the time up to which the user has
//! paid for its requests (the generic cell rate algorithm). A user may be `burst` requests ahead;
//! whoever is further ahead is answered once more and then not read from until the debt is back
//! inside the burst. Each of its connections is held back on its own, so the sum over all of them
//! keeps the rate.

use crate::ids::Ids;
use std::collections::BTreeMap;
use std::ops::Bound;
use talea_core::mutate;
use talea_core::setup::Quota;
use talea_core::{Span, Time};
use talea_proto::SpecId;

const SECOND_NS: u64 = 1_000_000_000;
/// Refusals of one user that are logged in one second.
const REFUSALS_LOGGED: u32 = 20;

/// One user.
#[derive(Debug, Default)]
pub(crate) struct User {
    /// Connections now.
    pub(crate) sessions: u32,
    /// Specs now, with those that are only reserved.
    pub(crate) specs: u32,
    /// Its threads that sleep where they can't be given what they were promised.
    pub(crate) sleepers: u32,
    /// Its specs in order: a user's walk through its own must not pay for everybody else's.
    pub(crate) ids: Ids,
    /// Up to when its requests are paid for.
    paid: Time,
    /// When it was last written to the log that it asks too fast.
    logged: Option<Time>,
    /// The second in which its refusals were last logged, and how many.
    refusals: (u64, u32),
}

/// What a request costs its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    /// It was within the burst.
    Within,
    /// It was one too many.
    Over {
        /// When the next one is within the burst again.
        until: Time,
        /// Whether that is to be logged.
        log: bool,
    },
}

/// All users that hold something or have asked lately.
#[derive(Debug, Default)]
pub(crate) struct Users {
    users: BTreeMap<u32, User>,
    /// Where the next sweep goes on.
    sweep: u32,
}

impl Users {
    /// Connections and specs of `uid`.
    pub(crate) fn held(&self, uid: u32) -> (u32, u32) {
        self.users.get(&uid).map_or((0, 0), |user| (user.sessions, user.specs))
    }

    /// The first spec of `uid` whose id is at least this one.
    pub(crate) fn spec_at_least(&self, uid: u32, id: SpecId) -> Option<(SpecId, u32)> {
        self.users.get(&uid)?.ids.at_least(id)
    }

    /// Whether a refusal of `uid` may be logged now: whoever connects anew for each refusal must
    /// not fill the log.
    pub(crate) fn may_log(&mut self, uid: u32, now: Time) -> bool {
        let second = now.as_ns() / SECOND_NS;
        let refusals = &mut self.of(uid).refusals;
        if refusals.0 != second {
            *refusals = (second, 0);
        }
        refusals.1 += 1;
        refusals.1 <= REFUSALS_LOGGED
    }

    /// What `uid` holds, to be changed.
    pub(crate) fn of(&mut self, uid: u32) -> &mut User {
        self.users.entry(uid).or_default()
    }

    /// Books a request of `uid` that is as much work as `weight` ordinary ones. Root pays nothing.
    pub(crate) fn spend(&mut self, uid: u32, now: Time, quota: &Quota, weight: u32) -> Spent {
        if uid == 0 {
            return Spent::Within;
        }
        let interval = SECOND_NS.div_ceil(u64::from(quota.requests_per_second.max(1)));
        let ahead = Span::from_ns(interval.saturating_mul(u64::from(quota.burst.max(1))));
        let user = self.of(uid);
        let price = Span::from_ns(interval.saturating_mul(weight.into()));
        user.paid = user.paid.max(now).saturating_add(price);
        if mutate!("quota-rate", user.paid <= now.saturating_add(ahead), true) {
            return Spent::Within;
        }
        let until = Time::from_ns(user.paid.as_ns() - ahead.as_ns());
        let log =
            user.logged.is_none_or(|last| last.saturating_add(Span::from_ns(SECOND_NS)) <= now);
        if log {
            user.logged = Some(now);
        }
        Spent::Over { until, log }
    }

    /// Looks at two users and forgets those that hold nothing and owe nothing. Called for each new
    /// connection, it keeps the map as small as the number of users that connect within one burst.
    pub(crate) fn sweep(&mut self, now: Time) {
        for _ in 0..2 {
            let next = self.users.range((Bound::Included(self.sweep), Bound::Unbounded)).next();
            let Some((&uid, user)) = next else {
                self.sweep = 0;
                return;
            };
            self.sweep = uid.saturating_add(1);
            if user.sessions == 0 && user.specs == 0 && user.paid <= now {
                self.users.remove(&uid);
            }
        }
    }

    /// Connections and specs of everybody, and how many users are known.
    pub(crate) fn totals(&self) -> (u32, u32, usize) {
        let sum = |what: fn(&User) -> u32| self.users.values().map(what).sum();
        (sum(|user| user.sessions), sum(|user| user.specs), self.users.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota(rate: u32, burst: u32) -> Quota {
        Quota { requests_per_second: rate, burst, ..Quota::default() }
    }

    #[test]
    fn retif_d4_a_burst_passes_and_the_request_after_it_waits_one_interval() {
        let (mut users, quota, now) = (Users::default(), quota(1000, 5), Time::from_ns(50));
        for _ in 0..5 {
            assert_eq!(users.spend(7, now, &quota, 1), Spent::Within);
        }
        let until = Time::from_ns(50 + 1_000_000);
        assert_eq!(users.spend(7, now, &quota, 1), Spent::Over { until, log: true });
        // Somebody else is not held back, root never.
        assert_eq!(users.spend(8, now, &quota, 1), Spent::Within);
        for _ in 0..100 {
            assert_eq!(users.spend(0, now, &quota, 1), Spent::Within);
        }
    }

    #[test]
    fn retif_d4_whoever_waits_as_told_gets_exactly_the_rate() {
        let (mut users, quota, mut now) = (Users::default(), quota(1000, 10), Time::ZERO);
        let mut served = 0;
        while now < Time::from_ns(10 * SECOND_NS) && served < 100_000 {
            served += 1;
            if let Spent::Over { until, .. } = users.spend(1, now, &quota, 1) {
                now = until;
            }
        }
        assert!((10_000..=10_012).contains(&served), "{served} requests in ten seconds");
    }

    #[test]
    fn retif_d4_a_group_is_paid_for_by_its_tasks() {
        let (mut users, quota, now) = (Users::default(), quota(1000, 100), Time::ZERO);
        assert_eq!(users.spend(7, now, &quota, 64), Spent::Within);
        let until = Time::from_ns(28 * 1_000_000);
        assert_eq!(users.spend(7, now, &quota, 64), Spent::Over { until, log: true });
    }

    #[test]
    fn an_over_eager_user_is_logged_once_a_second() {
        let (mut users, quota) = (Users::default(), quota(10, 1));
        let logs = (0..3000).filter(|ms| {
            matches!(
                users.spend(1, Time::from_ns(ms * 1_000_000), &quota, 1),
                Spent::Over { log: true, .. }
            )
        });
        assert_eq!(logs.count(), 3);
    }

    #[test]
    fn users_that_hold_and_owe_nothing_are_forgotten() {
        let mut users = Users::default();
        for uid in 1..=1000 {
            users.spend(uid, Time::ZERO, &quota(10, 10), 1);
        }
        users.of(5).specs = 1;
        for _ in 0..1100 {
            users.sweep(Time::from_ns(SECOND_NS));
        }
        assert_eq!(users.totals(), (0, 1, 1));
    }
}
