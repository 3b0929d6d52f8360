//! Checks of the canaries, and demotions.

use super::{
    BOUND, CAUSING_PART, Candidate, Departed, LIMITED_BOUND, MAX_DELAY, MIN_BOUND, SHORT_PERIOD,
    Sample, choose, is_fifo, is_limited,
};
use crate::broker::{Broker, Timer};
use crate::input::{Effect, LogEvent, ThreadId};
use crate::refuse::refusal;
use crate::subjects::Subject;
use crate::trail::AuditEvent;
use std::collections::BTreeMap;
use talea_core::{Attr, CpuSet, Monotonic, Span, Work, mutate};
use talea_proto::message::DetachCause;
use talea_proto::{Code, Field, Refusal};

impl Broker {
    /// Returns the time before which a spec must not get these attributes, because threads of its
    /// subject have starved the CPU.
    pub(crate) fn starvation_delay(&self, slot: u32, attr: &Attr) -> Option<Monotonic> {
        if !is_fifo(attr.policy) {
            return None;
        }
        let subject = self.specs.at(slot).subject;
        let until = self.canaries.demotions.delayed_until(self.now, subject, &attr.cpus);
        mutate!("starvation-delay", until, None)
    }

    /// Returns the refusal of a request that would have to wait until `until`.
    #[expect(clippy::unnecessary_box_returns, reason = "refusals travel boxed")]
    pub(crate) fn starvation_refusal(&self, until: Monotonic) -> Box<Refusal> {
        let left = until.saturating_since(self.now).as_ns();
        refusal(Code::Starvation, Field::Thread, 0, left)
    }

    /// Orders a check of the canaries, if a FIFO or RR thread is attached or a canary is silent,
    /// unless a check is in progress.
    pub(crate) fn check_canaries(&mut self) {
        if self.canaries.ordered.is_some() {
            return;
        }
        if std::mem::take(&mut self.canaries.is_stale) {
            self.canaries.cpus = self.fifo_cpus();
        }
        let mut cpus = self.canaries.cpus;
        self.canaries.silent.keys().for_each(|&cpu| cpus.insert(cpu));
        if !cpus.is_empty() {
            let is_late = mutate!("starvation-late", self.now > self.canaries.due, false);
            self.canaries.ordered = Some((self.now, is_late));
            mutate!("starvation-check", self.emit(Effect::CheckCanaries { cpus }));
        }
    }

    /// Returns the CPUs that attached FIFO and RR threads may use.
    fn fifo_cpus(&self) -> CpuSet {
        let attached = self.threads.slots().filter_map(|slot| self.specs.at(slot).thread.as_ref());
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
            self.threads.slot_of(thread).and_then(|slot| self.specs.at(slot).thread.as_ref());
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
        let (ordered_at, is_late) = canaries.ordered.take().unwrap_or((now, false));
        let before = canaries.checked_at.replace(ordered_at);
        let interval = before.map_or(Span::ZERO, |at| ordered_at.saturating_since(at));
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
        let candidate = |(thread, slot): (ThreadId, u32)| {
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
                consumed: self.canaries.samples.get(&thread).map_or(Work::ZERO, Sample::consumed),
                charged: 0,
            })
        };
        self.threads.iter().filter_map(candidate).collect()
    }
}
