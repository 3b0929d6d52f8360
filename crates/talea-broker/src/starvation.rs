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
//! attach or detach is logarithmic.
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
use crate::demotions::Demotions;
use crate::input::{Effect, LogEvent, ThreadId};
use crate::spec::Attached;
use crate::subjects::Subject;
use crate::trail::AuditEvent;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use talea_core::setup::{OnOverrun, RuleId};
use talea_core::{CpuSet, Monotonic, Policy, Span, Work, mutate};
use talea_proto::SpecId;
use talea_proto::message::DetachCause;

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
    checked_at: Option<Monotonic>,
    /// Latest time at which the next check is on time.
    due: Monotonic,
    /// Time of [`Timer::CheckCanaries`].
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

impl Broker {
    /// Orders a check of the canaries, if a FIFO or RR thread is attached or a canary is silent.
    pub(crate) fn check_canaries(&mut self) {
        if std::mem::take(&mut self.canaries.is_stale) {
            self.canaries.cpus = self.fifo_cpus();
        }
        let mut cpus = self.canaries.cpus;
        self.canaries.silent.keys().for_each(|&cpu| cpus.insert(cpu));
        if !cpus.is_empty() {
            mutate!("starvation-check", self.emit(Effect::CheckCanaries { cpus }));
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

    /// Handles a sample of the CPU time of an attached thread. While a canary is silent, the driver
    /// takes one before each attach and each detach of a FIFO or RR thread.
    pub(crate) fn cpu_time(&mut self, thread: ThreadId, consumed: Work) {
        let attached =
            self.threads.get(&thread).and_then(|&slot| self.specs.at(slot).thread.as_ref());
        let is_needed = !self.canaries.silent.is_empty()
            && attached.is_some_and(|attached| is_fifo(attached.applied.policy));
        if mutate!("starvation-sample", is_needed, false) {
            self.canaries.sample(thread, consumed, self.now);
        }
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
        canaries.demotions.forget_old(now);
        for cpu in silent {
            let silence = canaries.silent.entry(cpu).or_default();
            if !is_late {
                silence.lasting = silence.lasting.checked_add(interval).unwrap_or(BOUND);
            }
        }
        for &(thread, consumed) in consumed {
            canaries.sample(thread, consumed, now);
        }
        if !is_late {
            for cpu in silent {
                self.relieve(cpu, interval);
            }
        }
        let canaries = &mut self.canaries;
        canaries.departed.clear();
        canaries.exited_until.clear();
        canaries.samples.retain(|_, sample| {
            sample.base = sample.latest;
            sample.at == now
        });
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
    fn relieve(&mut self, cpu: u32, interval: Span) {
        let silence = self.canaries.silent.get(&cpu).copied().unwrap_or_default();
        if silence.lasting < MIN_BOUND || interval.is_zero() {
            return;
        }
        let cause = interval.as_ns() / CAUSING_PART;
        let mut candidates = self.fifo_threads(cpu);
        // Subject, whether limited, and consumption of each thread.
        let here = |departed: &&Departed| departed.cpus.is_empty() || departed.cpus.contains(cpu);
        let departed = self.canaries.departed.iter().filter(here);
        let consumers: Vec<(Subject, bool, u64)> = departed
            .map(|departed| (departed.subject, departed.is_limited, departed.consumed.as_ns()))
            .chain(candidates.iter().map(|c| (c.subject, c.is_limited, c.consumed.as_ns())))
            .collect();
        let has_consumers = consumers.iter().map(|consumer| consumer.2).sum::<u64>() >= cause;
        let is_due = |subject, is_limited| {
            let bound = if is_limited { LIMITED_BOUND } else { self.canaries.bound(cpu, subject) };
            silence.lasting >= bound
        };
        let mut charged: BTreeMap<Subject, u64> = BTreeMap::new();
        for &(subject, is_limited, consumed) in &consumers {
            if mutate!("starvation-limited", is_due(subject, is_limited), true) {
                *charged.entry(subject).or_default() += consumed;
            }
        }
        candidates.retain_mut(|candidate| {
            candidate.charged = charged.get(&candidate.subject).copied().unwrap_or(0);
            let consumes = !candidate.consumed.is_zero() || candidate.charged >= cause;
            consumes && is_due(candidate.subject, candidate.is_limited)
        });
        let is_cause = mutate!("starvation-cause", charged.values().sum::<u64>() >= cause, true);
        if is_cause {
            let level = |subject| self.canaries.demotions.level(cpu, subject);
            let chosen = choose(&mut candidates, silence.steps, level);
            let mut subjects: Vec<Subject> = chosen.iter().map(|chosen| chosen.subject).collect();
            if subjects.is_empty() {
                // Its threads were detached meanwhile, or an operation is in progress for them.
                subjects.extend(charged.iter().max_by_key(|charge| charge.1).map(|most| *most.0));
            }
            subjects.sort_unstable();
            subjects.dedup();
            for subject in subjects {
                self.canaries.demotions.add(self.now, cpu, subject);
            }
            for candidate in &chosen {
                let (slot, cause) = (candidate.slot, DetachCause::Starvation);
                mutate!("starvation-demote", self.force_detach(slot, cause));
            }
        }
        if let Some(silence) = self.canaries.silent.get_mut(&cpu) {
            silence.steps += u32::from(is_cause);
        }
        if !has_consumers && silence.lasting >= BOUND && !silence.is_logged {
            self.log(LogEvent::StarvedByOthers { cpu });
            self.record_daemon_event(AuditEvent::Starved { cpu });
            if let Some(silence) = self.canaries.silent.get_mut(&cpu) {
                silence.is_logged = true;
            }
        }
    }

    /// Returns the attached FIFO and RR threads that may use `cpu`.
    fn fifo_threads(&self, cpu: u32) -> Vec<Candidate> {
        let candidate = |(thread, &slot): (&ThreadId, &u32)| {
            let spec = self.specs.at(slot);
            let attached = spec.thread.as_ref().filter(|_| spec.is_idle() && spec.in_ledger)?;
            let cpus = attached.applied.cpus;
            let is_here = is_fifo(attached.applied.policy)
                && (cpus.is_empty() || cpus.contains(cpu))
                && !attached.exited;
            is_here.then(|| Candidate {
                slot,
                spec: spec.id,
                subject: spec.subject,
                is_limited: is_limited(attached),
                rule: self.clients.snapshot(spec.client).first_rule(spec.plugin),
                consumed: self.canaries.samples.get(thread).map_or(Work::ZERO, Sample::consumed),
                charged: 0,
            })
        };
        self.threads.iter().filter_map(candidate).collect()
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
