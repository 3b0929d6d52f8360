//! Usage and request rate of each subject, and the specs of each user.
//!
//! The request rate is limited by the generic cell rate algorithm (GCRA): per subject, one number
//! holds the theoretical arrival time of the next request. A subject may be `burst` requests ahead.
//! A subject further ahead gets one more answer; then its connections are not read until it is
//! within the burst again. Each connection is suspended separately, so the sum over all of them
//! meets the rate.

use crate::ids::Ids;
use crate::subjects::Subject;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use talea_core::mutate;
use talea_core::setup::Quota;
use talea_core::{Monotonic, Span};
use talea_proto::SpecId;
use talea_proto::message::Token;

const SECOND_NS: u64 = 1_000_000_000;

/// Usage of one subject.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// Number of connections.
    pub(crate) sessions: u32,
    /// Number of specs, including reserved ones.
    pub(crate) specs: u32,
    /// Number of threads whose attributes await their wake-up in another root domain.
    pub(crate) asleep: u32,
    /// Theoretical arrival time of the next request.
    arrival_time: Monotonic,
    /// Time of the last log line about the request rate.
    rate_logged: Option<Monotonic>,
}

/// Result of charging a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateVerdict {
    /// The request is within the burst.
    Within,
    /// The request exceeds the burst.
    Over {
        /// Time at which the next request is within the burst.
        until: Monotonic,
        /// Whether the event is to be logged.
        log: bool,
    },
}

/// All subjects that hold something or have sent requests recently.
#[derive(Debug, Default)]
pub(crate) struct Users {
    accounts: BTreeMap<Subject, Account>,
    /// Start of the next sweep.
    sweep: Option<Subject>,
    /// Specs of each user in order of ids: listing a user's specs must not depend on the number of
    /// other specs.
    ids: BTreeMap<u32, Ids>,
    /// User, token and id of each spec.
    tokens: BTreeSet<(u32, [u8; 16], SpecId)>,
}

impl Users {
    /// Returns the numbers of connections and specs of a subject.
    pub(crate) fn usage(&self, subject: Subject) -> (u32, u32) {
        self.accounts.get(&subject).map_or((0, 0), |account| (account.sessions, account.specs))
    }

    /// Returns the first spec of `uid` with at least this id, if there is one.
    pub(crate) fn spec_at_least(&self, uid: u32, id: SpecId) -> Option<(SpecId, u32)> {
        self.ids.get(&uid)?.at_least(id)
    }

    /// Returns the first spec of `uid` with this token, if there is one. A claim by token must not
    /// depend on the number of specs either.
    pub(crate) fn spec_with_token(&self, uid: u32, token: Token) -> Option<SpecId> {
        let first = (uid, token.0, SpecId(0));
        let last = (uid, token.0, SpecId(u64::MAX));
        self.tokens.range(first..=last).next().map(|&(.., id)| id)
    }

    /// Adds a spec to the list of its user.
    pub(crate) fn insert_id(&mut self, uid: u32, id: SpecId, token: Token, slot: u32) {
        self.tokens.insert((uid, token.0, id));
        self.ids.entry(uid).or_default().insert(id, slot);
    }

    /// Removes a spec from the list of its user.
    pub(crate) fn remove_id(&mut self, uid: u32, id: SpecId, token: Token) {
        self.tokens.remove(&(uid, token.0, id));
        if let Some(ids) = self.ids.get_mut(&uid) {
            ids.remove(id);
            if ids.len() == 0 {
                self.ids.remove(&uid);
            }
        }
    }

    /// Returns the mutable usage of a subject.
    pub(crate) fn account(&mut self, subject: Subject) -> &mut Account {
        self.accounts.entry(subject).or_default()
    }

    /// Charges a request of a subject with the cost of `weight` ordinary requests. The superuser is
    /// not limited.
    pub(crate) fn charge(
        &mut self,
        subject: Subject,
        now: Monotonic,
        quota: &Quota,
        weight: u32,
    ) -> RateVerdict {
        if subject == Subject::ROOT {
            return RateVerdict::Within;
        }
        let interval = SECOND_NS.div_ceil(u64::from(quota.requests_per_second.max(1)));
        let ahead = Span::from_ns(interval.saturating_mul(u64::from(quota.burst.max(1))));
        let account = self.account(subject);
        let price = Span::from_ns(interval.saturating_mul(weight.into()));
        account.arrival_time = account.arrival_time.max(now).saturating_add(price);
        if mutate!("quota-rate", account.arrival_time <= now.saturating_add(ahead), true) {
            return RateVerdict::Within;
        }
        let until = Monotonic::from_ns(account.arrival_time.as_ns() - ahead.as_ns());
        let log = account
            .rate_logged
            .is_none_or(|last| last.saturating_add(Span::from_ns(SECOND_NS)) <= now);
        if log {
            account.rate_logged = Some(now);
        }
        RateVerdict::Over { until, log }
    }

    /// Examines two subjects, and removes those without usage and with an arrival time in the past.
    /// A call for each new connection bounds the map by the number of subjects that connect within
    /// one burst.
    pub(crate) fn sweep(&mut self, now: Monotonic) {
        for _ in 0..2 {
            let from = self.sweep.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&subject, account)) = self.accounts.range((from, Bound::Unbounded)).next()
            else {
                self.sweep = None;
                return;
            };
            self.sweep = Some(subject);
            if account.sessions == 0 && account.specs == 0 && account.arrival_time <= now {
                self.accounts.remove(&subject);
            }
        }
    }

    /// Returns the number of specs with a token.
    pub(crate) fn token_count(&self) -> usize {
        self.tokens.len()
    }

    /// Returns the total numbers of connections and specs, and the number of known subjects.
    pub(crate) fn totals(&self) -> (u32, u32, usize) {
        let sum = |what: fn(&Account) -> u32| self.accounts.values().map(what).sum();
        (sum(|account| account.sessions), sum(|account| account.specs), self.accounts.len())
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
        let (mut users, quota, now) = (Users::default(), quota(1000, 5), Monotonic::from_ns(50));
        for _ in 0..5 {
            assert_eq!(users.charge(Subject::user(7), now, &quota, 1), RateVerdict::Within);
        }
        let until = Monotonic::from_ns(50 + 1_000_000);
        assert_eq!(
            users.charge(Subject::user(7), now, &quota, 1),
            RateVerdict::Over { until, log: true }
        );
        // Other users are not limited, and root never is.
        assert_eq!(users.charge(Subject::user(8), now, &quota, 1), RateVerdict::Within);
        for _ in 0..100 {
            assert_eq!(users.charge(Subject::ROOT, now, &quota, 1), RateVerdict::Within);
        }
    }

    #[test]
    fn retif_d4_a_user_that_waits_until_the_given_time_gets_exactly_the_rate() {
        let (mut users, quota, mut now) = (Users::default(), quota(1000, 10), Monotonic::ZERO);
        let mut served = 0;
        while now < Monotonic::from_ns(10 * SECOND_NS) && served < 100_000 {
            served += 1;
            if let RateVerdict::Over { until, .. } = users.charge(Subject::user(1), now, &quota, 1)
            {
                now = until;
            }
        }
        assert!((10_000..=10_012).contains(&served), "{served} requests in ten seconds");
    }

    #[test]
    fn retif_d4_a_group_is_charged_per_task() {
        let (mut users, quota, now) = (Users::default(), quota(1000, 100), Monotonic::ZERO);
        assert_eq!(users.charge(Subject::user(7), now, &quota, 64), RateVerdict::Within);
        let until = Monotonic::from_ns(28 * 1_000_000);
        assert_eq!(
            users.charge(Subject::user(7), now, &quota, 64),
            RateVerdict::Over { until, log: true }
        );
    }

    #[test]
    fn an_exceeded_rate_is_logged_once_per_second() {
        let (mut users, quota) = (Users::default(), quota(10, 1));
        let logs = (0..3000).filter(|ms| {
            matches!(
                users.charge(Subject::user(1), Monotonic::from_ns(ms * 1_000_000), &quota, 1),
                RateVerdict::Over { log: true, .. }
            )
        });
        assert_eq!(logs.count(), 3);
    }

    #[test]
    fn users_without_usage_are_removed() {
        let mut users = Users::default();
        for uid in 1..=1000 {
            users.charge(Subject::user(uid), Monotonic::ZERO, &quota(10, 10), 1);
        }
        users.account(Subject::user(5)).specs = 1;
        for _ in 0..1100 {
            users.sweep(Monotonic::from_ns(SECOND_NS));
        }
        assert_eq!(users.totals(), (0, 1, 1));
    }
}
