//! Values of a thread: repairs of drift, and contention with another writer.
//!
//! | state of a value | observed as desired | observed otherwise |
//! | --- | --- | --- |
//! | *new*: not observed as desired since the last set | *held* | set, [`MAX_SETS`] times within [`CONTENTION_WINDOW`]; then *contended* |
//! | *held* | – | repaired: set, counted; then *new* |
//! | *contended*: [`MAX_REPAIRS`] repairs within [`CONTENTION_WINDOW`] | – | no effect |
//! | *refused* by the kernel | *held* | set again after [`REFUSED_RETRY`] |
//!
//! A set that was lost is repeated and is no repair, because the value was not held in between. Nor
//! is it if another writer changed the value before the next observation, so that these sets have a
//! limit of their own. A value stays contended until its thread ends or its task changes.

use crate::ids::{EffectNumber, SettingKind};
use crate::input::{Setting, Thread};
use talea_core::{Attr, Monotonic, Span, mutate};

/// Number of repairs of one value within [`CONTENTION_WINDOW`] after which it is contended.
pub const MAX_REPAIRS: usize = 5;
/// Number of sets of one value within [`CONTENTION_WINDOW`], without an observation as desired,
/// after which it is contended.
pub const MAX_SETS: usize = 20;
/// Window of [`MAX_REPAIRS`] and [`MAX_SETS`].
pub const CONTENTION_WINDOW: Span = Span::from_ns(60_000_000_000);
/// Time after which a value that the kernel refused is set again.
pub const REFUSED_RETRY: Span = Span::from_ns(10_000_000_000);

/// Both kinds of values.
pub(crate) const KINDS: [SettingKind; 2] = [SettingKind::Policy, SettingKind::Cpus];

/// State of one value of a thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Value {
    is_held: bool,
    /// The last set, until an observation that includes it.
    pub(crate) pending: Option<EffectNumber>,
    repairs: Vec<Monotonic>,
    /// Sets since the value was last as desired.
    sets: Vec<Monotonic>,
    pub(crate) is_contended: bool,
    refused_until: Option<Monotonic>,
}

/// State of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadState {
    policy: Value,
    cpus: Value,
}

/// Action for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The value is as desired, or must not be touched.
    Keep,
    /// The value is set for the first time, or again after a set without effect.
    Set {
        /// Whether this is the last set.
        is_last: bool,
    },
    /// Another writer has changed the value.
    Repair {
        /// Whether this is the last repair.
        is_last: bool,
    },
}

impl ThreadState {
    pub(crate) fn value(&mut self, kind: SettingKind) -> &mut Value {
        match kind {
            SettingKind::Policy => &mut self.policy,
            SettingKind::Cpus => &mut self.cpus,
        }
    }

    pub(crate) fn is_contended(&self, kind: SettingKind) -> bool {
        match kind {
            SettingKind::Policy => self.policy.is_contended,
            SettingKind::Cpus => self.cpus.is_contended,
        }
    }
}

/// Returns the value of this kind, if it is not as desired.
pub(crate) fn missing(kind: SettingKind, desired: &Attr, found: &Thread) -> Option<Setting> {
    match kind {
        SettingKind::Policy => {
            let is_same = (desired.policy, desired.reset_on_fork)
                == (found.attr.policy, found.attr.reset_on_fork);
            (!is_same).then_some(Setting::Policy {
                policy: desired.policy,
                reset_on_fork: desired.reset_on_fork,
            })
        }
        SettingKind::Cpus => {
            let is_same = desired.cpus.is_empty() || desired.cpus == found.attr.cpus;
            (!is_same).then_some(Setting::Cpus(desired.cpus))
        }
    }
}

impl Value {
    /// Judges an observation that includes all effects up to `seen`.
    pub(crate) fn judge(
        &mut self,
        is_as_desired: bool,
        seen: EffectNumber,
        now: Monotonic,
    ) -> Action {
        // An observation before the set says nothing about the set.
        if self.pending.is_some_and(|set| mutate!("deploy-set-pending", seen < set, false)) {
            return Action::Keep;
        }
        self.pending = None;
        if is_as_desired {
            self.is_held = true;
            self.refused_until = None;
            self.sets.clear();
            return Action::Keep;
        }
        if mutate!("deploy-contended", self.is_contended, false)
            || self.refused_until.is_some_and(|until| now < until)
        {
            return Action::Keep;
        }
        let begin = now.saturating_sub(CONTENTION_WINDOW);
        if !std::mem::take(&mut self.is_held) {
            self.sets.retain(|&at| at > begin);
            self.sets.push(now);
            self.is_contended = mutate!("deploy-sets", self.sets.len() >= MAX_SETS, false);
            return Action::Set { is_last: self.is_contended };
        }
        self.repairs.retain(|&at| mutate!("deploy-repairs-window", at > begin, true));
        self.repairs.push(now);
        self.is_contended = self.repairs.len() >= MAX_REPAIRS;
        Action::Repair { is_last: self.is_contended }
    }

    /// Notes that the kernel refused the pending set.
    pub(crate) fn refuse(&mut self, now: Monotonic) {
        self.pending = None;
        self.refused_until = Some(now.saturating_add(REFUSED_RETRY));
    }
}
