//! Starved CPUs: FIFO and RR threads of grants that leave ordinary threads no CPU time.
//!
//! Model: on each CPU the driver has a *canary*, an ordinary thread that it asks to run
//! ([`crate::Effect::CheckCanaries`]). Only the CPUs of attached FIFO and RR threads are checked. A
//! canary that has not run since the last check is *silent*. While one is silent, the checks follow
//! each other in [`SHORT_PERIOD`].
//!
//! | state of a CPU | check | next state |
//! | --- | --- | --- |
//! | any | its canary has run | *served* |
//! | *served* | silent | *silent* |
//! | *silent* | silent for less than the bound | *silent* |
//! | *silent* | silent for the bound, grants have consumed half of the CPU | *silent*, some demoted |
//! | *silent* | silent for the bound, grants have consumed less | *starved by others*, logged |
//!
//! *Demoted*: the broker detaches and restores the thread (`DetachCause::Starvation`). The number
//! doubles at each check, 1, 2, 4 and so on, until the canary runs. The subject of a demoted thread
//! waits before its next attach on that CPU (module `demotions`), and is demoted earlier and with
//! more threads at once if it starves the CPU again.
//!
//! *Charge.* CPU time on a silent CPU is charged to the subject of the thread, from the attach to
//! the detach of each thread. So a subject whose threads relieve each other is charged like one
//! thread. Of a thread that has exited, the CPU time since its last sample is not known: the time
//! during which one of the exited threads was attached is charged, once for all of them.
//!
//! *Order.* Threads without a limit precede threads with one, because a limited thread leaves the
//! CPU by itself. Of these, the grants of the last rule are first, by the first rule that admits
//! their client; those that no rule binds are last. Within a rule, the subject with the highest
//! charge since the last check is first; of its threads, that with the highest consumption, then
//! the newest spec. Sleeping threads of a subject are demoted if it has consumed half of the CPU.
//!
//! *Bounds.* [`BOUND`] for threads without a limit; half of it after each demotion of the subject
//! on this CPU, at least [`MIN_BOUND`]. A limited thread may compute for longer within
//! its declaration, up to the kernel's own limit of 0.95 s in each second. [`LIMITED_BOUND`] is
//! above that, so limited threads are demoted only where this limit is switched off or exceeded.
//!
//! Complexity of a check: linear in the attached threads, for each silent CPU. A sample at an
//! attach or detach is logarithmic. The driver may take long to sample many threads: the interval
//! of a check is that between two orders, and one check is in progress at a time.
//!
//! Invariants.
//!
//! 1. Threads of the deadline class stay: they have the kernel's admission test.
//! 2. Threads are demoted only if those that may be demoted have consumed half of the CPU together
//!    since the last check. So a grant is not demoted because of threads without a grant, or
//!    because of a limited thread within its budget.
//! 3. An interval whose end the driver itself reached late does not count: the whole computer was
//!    stalled, or the daemon was stopped.

mod demote;

use crate::demotions::Demotions;
use crate::input::ThreadId;
use crate::spec::Attached;
use crate::subjects::Subject;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use talea_core::setup::{OnOverrun, RuleId};
use talea_core::{CpuSet, Monotonic, Policy, Span, Work, mutate};
use talea_proto::SpecId;

/// Time of silence after which threads without a limit are demoted.
const BOUND: Span = Span::from_ns(500_000_000);
/// Lower bound of the time of silence after which threads of a subject are demoted again.
const MIN_BOUND: Span = Span::from_ns(200_000_000);
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
    /// Samples of the attached FIFO and RR threads on silent CPUs.
    samples: BTreeMap<ThreadId, Sample>,
    /// Threads that were detached since the last check.
    departed: Vec<Departed>,
    /// Time up to which exited threads of a subject are charged.
    exited_until: BTreeMap<Subject, Monotonic>,
    pub(crate) demotions: Demotions,
    /// Time of the order whose result is pending, and whether the order was late.
    ordered: Option<(Monotonic, bool)>,
    /// Time of the order of the last check.
    checked_at: Option<Monotonic>,
    /// Latest time at which the order of the next check is on time.
    due: Monotonic,
    /// Time of `Timer::CheckCanaries`.
    pub(crate) timer: Option<Monotonic>,
}

/// CPU time of a thread.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// At the last check, or at the attach if that was later.
    base: Work,
    latest: Work,
    /// Time of the latest sample.
    at: Monotonic,
}

impl Sample {
    fn consumed(&self) -> Work {
        self.latest.checked_sub(self.base).unwrap_or(Work::ZERO)
    }
}

/// Consumption of a thread from the last check to its detach.
#[derive(Clone, Copy, Debug)]
struct Departed {
    subject: Subject,
    cpus: CpuSet,
    is_limited: bool,
    consumed: Work,
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
    subject: Subject,
    is_limited: bool,
    rule: Option<RuleId>,
    consumed: Work,
    /// CPU time that is charged to the subject.
    charged: u64,
}

/// Returns the threads to be demoted: in order, `1 << steps` of them, and of the subjects of these
/// at least `1 << level` each.
fn choose(
    candidates: &mut [Candidate],
    steps: u32,
    level: impl Fn(Subject) -> u32,
) -> Vec<Candidate> {
    candidates.sort_unstable_by_key(|candidate| {
        let Candidate { rule, charged, subject, consumed, spec, .. } = *candidate;
        let order = (Reverse(rule), Reverse(charged), subject, Reverse(consumed), Reverse(spec));
        mutate!("starvation-order", (candidate.is_limited, order), (true, order))
    });
    let mut left = 1_u32 << steps.min(16);
    let mut counts: BTreeMap<Subject, u32> = BTreeMap::new();
    let mut is_chosen = |candidate: &&Candidate| {
        let count = counts.entry(candidate.subject).or_default();
        let most = mutate!("starvation-level", 1 << level(candidate.subject).min(16), 1);
        let is_chosen = left > 0 || (*count > 0 && *count < most);
        left = left.saturating_sub(1);
        *count += u32::from(is_chosen);
        is_chosen
    };
    candidates.iter().filter(|candidate| is_chosen(candidate)).copied().collect()
}

impl Canaries {
    /// Returns the time of silence after which unlimited threads of the subject are demoted.
    fn bound(&self, cpu: u32, subject: Subject) -> Span {
        let level = self.demotions.level(cpu, subject).min(16);
        Span::from_ns(BOUND.as_ns() >> level).max(MIN_BOUND)
    }

    fn sample(&mut self, thread: ThreadId, consumed: Work, at: Monotonic) {
        let first = Sample { base: consumed, latest: consumed, at };
        let sample = self.samples.entry(thread).or_insert(first);
        (sample.latest, sample.at) = (consumed, at);
    }

    /// Charges the thread of a subject, which is detached now.
    pub(crate) fn detached(&mut self, now: Monotonic, subject: Subject, thread: &Attached) {
        let Some(sample) = self.samples.remove(&thread.thread) else { return };
        // No time passes between the sample of a detach and the detach.
        let until = self.exited_until.entry(subject).or_default();
        let unknown = now.saturating_since(sample.at.max(*until)).as_ns();
        if unknown > 0 {
            *until = now;
        }
        let consumed = Work::from_ns(sample.consumed().as_ns().saturating_add(unknown));
        let cpus = thread.applied.cpus;
        let is_limited = is_limited(thread);
        self.departed.push(Departed { subject, cpus, is_limited, consumed });
    }
}

fn is_limited(thread: &Attached) -> bool {
    thread.limit.is_some_and(|limit| limit.on_overrun != OnOverrun::Notify)
}

pub(crate) fn is_fifo(policy: Policy) -> bool {
    matches!(policy, Policy::Fifo(_) | Policy::Rr(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(slot: u32, uid: u32, rule: Option<u32>, consumed: u64) -> Candidate {
        Candidate {
            slot,
            spec: SpecId(slot.into()),
            subject: Subject::user(uid),
            is_limited: false,
            rule: rule.map(RuleId),
            consumed: Work::from_ns(consumed),
            charged: 100,
        }
    }

    fn slots(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|candidate| candidate.slot).collect()
    }

    #[test]
    fn unlimited_grants_of_the_last_rule_with_the_highest_consumption_are_first() {
        let mut candidates = [
            Candidate { is_limited: true, ..candidate(1, 5, Some(9), 90) },
            candidate(2, 5, None, 90),
            candidate(3, 5, Some(1), 90),
            candidate(4, 5, Some(2), 10),
            candidate(5, 5, Some(2), 20),
            candidate(6, 5, Some(2), 20),
        ];
        let counts: Vec<usize> =
            (0..5).map(|steps| choose(&mut candidates, steps, |_| 0).len()).collect();
        assert_eq!(counts, [1, 2, 4, 6, 6]);
        assert_eq!(slots(&candidates), [6, 5, 4, 3, 2, 1]);
        assert_eq!(choose(&mut [], 40, |_| 0), []);
    }

    #[test]
    fn more_threads_of_a_demoted_subject_are_chosen_and_the_highest_charge_is_first() {
        let mut candidates = [
            candidate(1, 5, Some(2), 1),
            candidate(2, 5, Some(2), 0),
            candidate(3, 5, Some(2), 0),
            Candidate { charged: 40, ..candidate(4, 6, Some(2), 40) },
        ];
        let level = |subject| if subject == Subject::user(5) { 1 } else { 9 };
        assert_eq!(slots(&choose(&mut candidates, 0, level)), [1, 3]);
        assert_eq!(slots(&choose(&mut candidates, 2, level)), [1, 3, 2, 4]);
    }
}
