//! Shares of `max_utilization` for threads without a runtime.
//!
//! A rule bounds the consumption of its subject. A grant with a runtime consumes its charge. A
//! thread without one is *sharing*: it gets a share of what the charges leave, and all sharing
//! threads of a subject get equal shares. The tightest rule of a thread decides.
//!
//! Invariants, for each rule.
//!
//! 1. Admission counts each attached sharing thread of the subject with `MIN_SHARE`. So a share
//!    is never below [`MIN_BUDGET`], whatever is admitted later.
//! 2. The charges and the shares add up to at most the rule. The exception is a subject that holds
//!    more without a request that was tested: after a reload, after an adoption, or by grants of a
//!    client that no rule binds. Grants stay, so its sharing threads keep the minimum budget.
//!
//! Equal shares need no request and no test. Of two users below one rule, the user with more
//! sharing threads gets more, as with more declared grants; a rule for each user prevents that.
//!
//! Absent on purpose: shares of clients that no rule binds. They are charged for what they declare,
//! but their sharing threads are unlimited and reduce no other thread's share.

use super::{Denial, Rules, Snapshot};
use std::collections::BTreeSet;
use talea_core::{Charge, Span, Work, mutate};
use talea_proto::{Code, Field};

/// Period of the limit of a sharing thread. A longer one delays lower priorities by a longer
/// budget; a shorter one costs more wake-ups and cannot enforce small shares.
pub const WINDOW: Span = Span::from_ns(100_000_000);

/// Minimum budget of a sharing thread in each [`WINDOW`]. Less is not enforced per period, because
/// the enforcement would cost more than the budget.
pub const MIN_BUDGET: Work = Work::from_ns(100_000);

/// Charge of [`MIN_BUDGET`].
pub(crate) const MIN_SHARE: Charge = Charge::new(MIN_BUDGET, WINDOW);

impl Rules {
    /// Adds an attached sharing thread: it counts in every rule that binds the client on `plugin`.
    pub fn add_sharing(&mut self, client: &Snapshot, plugin: u32, thread: u32) {
        for &(subject, ..) in client.shares_on(plugin) {
            self.usage[subject as usize].sharing.insert(thread);
            self.changed.insert(subject);
        }
    }

    /// Reverts [`Rules::add_sharing`] with the same arguments.
    pub fn remove_sharing(&mut self, client: &Snapshot, plugin: u32, thread: u32) {
        for &(subject, ..) in client.shares_on(plugin) {
            self.usage[subject as usize].sharing.remove(&thread);
            self.changed.insert(subject);
        }
    }

    /// Returns the budget of a sharing thread in each [`WINDOW`]; `None` if no rule binds the
    /// client on `plugin`. The budget of a thread that is not added yet is the one after
    /// [`Rules::add_sharing`].
    pub fn share(&self, client: &Snapshot, plugin: u32, thread: Option<u32>) -> Option<Work> {
        let share = |&(subject, limit, _): &(u32, Charge, _)| {
            let usage = &self.usage[subject as usize];
            let is_added = thread.is_some_and(|thread| usage.sharing.contains(&thread));
            let count = usage.sharing.len() as u128 + u128::from(!is_added);
            let held = mutate!("limit-rule-declared", usage.charge, Charge::ZERO);
            let left = limit.saturating_add(usage.rounding()).saturating_sub(held);
            let share = mutate!("limit-rule-equal", left.bits() / count, left.bits());
            Charge::from_bits(share).of(WINDOW).max(MIN_BUDGET)
        };
        client.shares_on(plugin).iter().map(share).min()
    }

    /// Returns the usage of a subject without `leaving`, with the minimum of its shares, and the
    /// maximum rounding error of that sum and one charge.
    pub(super) fn usage_without(
        &self,
        subject: u32,
        leaving: Option<(u32, Charge)>,
    ) -> (Charge, Charge) {
        let usage = &self.usage[subject as usize];
        let counts = self.subjects[subject as usize].1;
        let leaving = leaving.filter(|&(plugin, _)| counts.is_none_or(|only| only == plugin));
        let leaving = leaving.map_or(Charge::ZERO, |(_, charge)| charge);
        let count = usage.sharing.len() as u32;
        let minimum = mutate!("limit-rule-reserve", MIN_SHARE.times(count), Charge::ZERO);
        (usage.charge.saturating_add(minimum).saturating_sub(leaving), usage.rounding())
    }

    /// Checks that one more sharing thread of the client gets at least [`MIN_BUDGET`]. `leaving` is
    /// as in [`Rules::admit`].
    pub fn admit_sharing(
        &self,
        client: &Snapshot,
        plugin: u32,
        leaving: Option<(u32, Charge)>,
    ) -> Result<(), Denial> {
        for &(subject, limit, rule) in client.shares_on(plugin) {
            let (usage, slack) = self.usage_without(subject, leaving);
            let left = limit.saturating_add(slack).saturating_sub(usage);
            if mutate!("limit-rule-minimum", left < MIN_SHARE, false) {
                return Err(Denial {
                    code: Code::RuleBound,
                    field: Field::Utilization,
                    asked: MIN_SHARE.ppm(),
                    limit: left.ppm_down(),
                    rule: Some(rule),
                });
            }
        }
        Ok(())
    }

    /// Returns the sharing threads whose share may have changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<u32> {
        let subjects = std::mem::take(&mut self.changed);
        let of = |subject: u32| self.usage[subject as usize].sharing.iter().copied();
        subjects.into_iter().flat_map(of).collect()
    }

    /// Whether [`Rules::take_changed`] is due.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }
}
