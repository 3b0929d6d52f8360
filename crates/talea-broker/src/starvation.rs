//! Starved CPUs: FIFO and RR threads of grants that leave ordinary threads no CPU time.
//!
//! Model: on each CPU the driver has a *canary*, an ordinary thread that it asks to run
//! ([`Effect::CheckCanaries`]). Only the CPUs of attached FIFO and RR threads are checked. A canary
//! that has not run since the last check is *silent*. While one is silent, the checks follow each
//! other in [`SHORT_PERIOD`].
//!
//! | state of a CPU | check | next state |
//! | --- | --- | --- |
//! | any | its canary has run | *served* |
//! | *served* | silent | *silent* |
//! | *silent* | silent for less than the bound | *silent* |
//! | *silent* | silent for the bound, grants have consumed half of the CPU | *silent*, some demoted |
//! | *silent* | silent for the bound, grants have consumed less | *starved by others*, logged |
//!
//! *Demoted*: the broker detaches and restores the thread ([`DetachCause::Starvation`]). The number
//! doubles at each check, 1, 2, 4 and so on, until the canary runs.
//!
//! *Order.* Threads without a limit precede threads with one, because a limited thread leaves the
//! CPU by itself. Of these, the grants of the last rule are first, by the first rule that admits
//! their client; those that no rule binds are last. Within a rule, the highest consumption since
//! the last check is first, then the newest spec.
//!
//! *Bounds.* [`BOUND`] for threads without a limit. A limited thread may compute for longer within
//! its declaration, up to the kernel's own limit of 0.95 s in each second. [`LIMITED_BOUND`] is
//! above that, so limited threads are demoted only where this limit is switched off or exceeded.
//!
//! Invariants.
//!
//! 1. Threads of the deadline class stay: they have the kernel's admission test.
//! 2. Threads are demoted only if those that may be demoted have consumed half of the CPU together
//!    since the last check. So a grant is not demoted because of threads without a grant, or
//!    because of a limited thread within its budget.
//! 3. An interval in which the driver itself was late does not count: the whole computer was
//!    stalled, or the daemon was stopped.

use crate::broker::{Broker, Timer};
use crate::input::{Effect, LogEvent, ThreadId};
use crate::trail::AuditEvent;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use talea_core::setup::{OnOverrun, RuleId};
use talea_core::{CpuSet, Monotonic, Policy, Span, Work, mutate};
use talea_proto::SpecId;
use talea_proto::message::DetachCause;

/// Time of silence after which threads without a limit are demoted.
const BOUND: Span = Span::from_ns(500_000_000);
/// Time of silence after which limited threads are demoted.
const LIMITED_BOUND: Span = Span::from_ns(1_200_000_000);
/// Period of the checks while a canary is silent.
const SHORT_PERIOD: Span = Span::from_ns(50_000_000);
/// Delay of a check beyond which its interval does not count.
const MAX_DELAY: Span = Span::from_ns(100_000_000);
/// Part of an interval that the threads that may be demoted must have consumed together: half of
/// it. Otherwise they are not the cause.
const CAUSING_PART: u64 = 2;

/// State of the checks.
#[derive(Debug, Default)]
pub(crate) struct Canaries {
    /// CPUs of the attached FIFO and RR threads, unless `is_stale`.
    cpus: CpuSet,
    /// Whether attached threads or their attributes have changed.
    pub(crate) is_stale: bool,
    silent: BTreeMap<u32, Silence>,
    /// CPU times of threads at the last check, if a canary was silent.
    consumed: BTreeMap<ThreadId, Work>,
    checked_at: Option<Monotonic>,
    /// Latest time at which the next check is on time.
    due: Monotonic,
    /// Time of [`Timer::CheckCanaries`].
    pub(crate) timer: Option<Monotonic>,
}

/// Silence of one canary.
#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    lasting: Span,
    /// Number of checks that have demoted threads.
    steps: u32,
    is_logged: bool,
}

/// A thread that may be demoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Candidate {
    slot: u32,
    spec: SpecId,
    is_limited: bool,
    rule: Option<RuleId>,
    consumed: Work,
}

/// Moves the threads to be demoted to the front, in order, and returns their number.
fn choose(candidates: &mut [Candidate], steps: u32) -> usize {
    candidates.sort_unstable_by_key(|candidate| {
        let order = (Reverse(candidate.rule), Reverse(candidate.consumed), Reverse(candidate.spec));
        mutate!("starvation-order", (candidate.is_limited, order), (true, order))
    });
    candidates.len().min(1 << steps.min(16))
}

impl Broker {
    /// Orders a check of the canaries, if a FIFO or RR thread is attached or a canary is silent.
    pub(crate) fn check_canaries(&mut self) {
        if std::mem::take(&mut self.canaries.is_stale) {
            self.canaries.cpus = self.fifo_cpus();
        }
        let mut cpus = self.canaries.cpus;
        self.canaries.silent.keys().for_each(|&cpu| cpus.insert(cpu));
        if !cpus.is_empty() {
            mutate!("starvation-check", self.emit(Effect::CheckCanaries { cpus }), ());
        }
    }

    /// Returns the CPUs that attached FIFO and RR threads may use.
    fn fifo_cpus(&self) -> CpuSet {
        let attached =
            self.threads.values().filter_map(|&slot| self.specs.at(slot).thread.as_ref());
        let fifo = attached.filter(|thread| is_fifo(thread.applied.policy));
        let cpus = fifo.map(|thread| match &thread.applied.cpus {
            cpus if cpus.is_empty() => &self.platform.cpus,
            cpus => cpus,
        });
        cpus.fold(CpuSet::EMPTY, |all, cpus| all.union(cpus))
    }

    /// Handles the result of a check. `consumed` contains the CPU times of the FIFO and RR threads
    /// on silent CPUs.
    pub(crate) fn canaries_checked(&mut self, silent: &CpuSet, consumed: &[(ThreadId, Work)]) {
        let now = self.now;
        let canaries = &mut self.canaries;
        let before = canaries.checked_at.replace(now);
        let interval = before.map_or(Span::ZERO, |at| now.saturating_since(at));
        let is_late = mutate!("starvation-late", now > canaries.due, false);
        canaries.silent.retain(|&cpu, _| silent.contains(cpu));
        for cpu in silent {
            let silence = canaries.silent.entry(cpu).or_default();
            if !is_late {
                silence.lasting = silence.lasting.checked_add(interval).unwrap_or(BOUND);
            }
        }
        let consumed = consumed.iter().copied().collect();
        let last = std::mem::replace(&mut canaries.consumed, consumed);
        if !is_late {
            for cpu in silent {
                self.relieve(cpu, interval, &last);
            }
        }
        self.arm_canaries();
    }

    /// Arms the next check while a canary is silent. Otherwise the next inspection checks them.
    fn arm_canaries(&mut self) {
        if let Some(at) = self.canaries.timer.take() {
            self.timers.remove(&(at, Timer::CheckCanaries));
        }
        let inspection = self.inspection_at.unwrap_or(self.now);
        // Once logged, others starve the CPU.
        let is_pending = self.canaries.silent.values().any(|silence| !silence.is_logged);
        let next = if is_pending {
            let at = self.now.saturating_add(SHORT_PERIOD);
            self.timers.insert((at, Timer::CheckCanaries));
            self.canaries.timer = Some(at);
            at
        } else {
            if self.threads.is_empty() {
                self.canaries.silent.clear();
            }
            inspection
        };
        self.canaries.due = next.saturating_add(MAX_DELAY);
    }

    /// Demotes threads that starve `cpu`, if its canary has been silent for long enough.
    fn relieve(&mut self, cpu: u32, interval: Span, last: &BTreeMap<ThreadId, Work>) {
        let silence = self.canaries.silent.get(&cpu).copied().unwrap_or_default();
        if silence.lasting < BOUND || interval.is_zero() {
            return;
        }
        let mut candidates = self.consumers(cpu, last);
        let cause = interval.as_ns() / CAUSING_PART;
        let consumed = |candidates: &[Candidate]| {
            candidates.iter().map(|candidate| candidate.consumed.as_ns()).sum::<u64>()
        };
        let has_consumers = consumed(&candidates) >= cause;
        candidates.retain(|candidate| !candidate.is_limited || silence.lasting >= LIMITED_BOUND);
        let is_cause = mutate!("starvation-cause", consumed(&candidates) >= cause, true);
        let count = if is_cause { choose(&mut candidates, silence.steps) } else { 0 };
        for candidate in &candidates[..count] {
            mutate!(
                "starvation-demote",
                self.force_detach(candidate.slot, DetachCause::Starvation),
                ()
            );
        }
        if let Some(silence) = self.canaries.silent.get_mut(&cpu) {
            silence.steps += u32::from(count > 0);
            silence.is_logged |= !has_consumers;
        }
        if !has_consumers && !silence.is_logged {
            self.log(LogEvent::StarvedByOthers { cpu });
            self.record_daemon_event(AuditEvent::Starved { cpu });
        }
    }

    /// Returns the attached FIFO and RR threads that have consumed CPU time since the `last` check
    /// and may have done so on `cpu`.
    fn consumers(&self, cpu: u32, last: &BTreeMap<ThreadId, Work>) -> Vec<Candidate> {
        let candidate = |(thread, &slot): (&ThreadId, &u32)| {
            let spec = self.specs.at(slot);
            let attached = spec.thread.as_ref().filter(|_| spec.is_idle() && spec.in_ledger)?;
            let cpus = attached.applied.cpus;
            let is_here = is_fifo(attached.applied.policy)
                && (cpus.is_empty() || cpus.contains(cpu))
                && !attached.exited;
            let consumed = self.canaries.consumed.get(thread)?.checked_sub(*last.get(thread)?)?;
            (is_here && !consumed.is_zero()).then(|| Candidate {
                slot,
                spec: spec.id,
                is_limited: attached
                    .limit
                    .is_some_and(|limit| limit.on_overrun != OnOverrun::Notify),
                rule: self.clients.snapshot(spec.client).first_rule(spec.plugin),
                consumed,
            })
        };
        self.threads.iter().filter_map(candidate).collect()
    }
}

fn is_fifo(policy: Policy) -> bool {
    matches!(policy, Policy::Fifo(_) | Policy::Rr(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_grants_of_the_last_rule_with_the_highest_consumption_are_first() {
        let candidate = |slot, is_limited, rule: Option<u32>, consumed| Candidate {
            slot,
            spec: SpecId(slot.into()),
            is_limited,
            rule: rule.map(RuleId),
            consumed: Work::from_ns(consumed),
        };
        let mut candidates = [
            candidate(1, true, Some(9), 90),
            candidate(2, false, None, 90),
            candidate(3, false, Some(1), 90),
            candidate(4, false, Some(2), 10),
            candidate(5, false, Some(2), 20),
            candidate(6, false, Some(2), 20),
        ];
        let counts: Vec<usize> = (0..5).map(|steps| choose(&mut candidates, steps)).collect();
        assert_eq!(counts, [1, 2, 4, 6, 6]);
        assert_eq!(candidates.map(|candidate| candidate.slot), [6, 5, 4, 3, 2, 1]);
        assert_eq!(choose(&mut [], 40), 0);
    }
}
