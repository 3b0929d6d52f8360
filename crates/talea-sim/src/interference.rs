//! Interference: CPU stalls and scheduling overheads, which delay jobs.
//!
//! A *stall* is an interval in which no job progresses on a CPU: a hypervisor, an interrupt storm,
//! system management mode. An *overhead* is time that the scheduler itself spends on a CPU before
//! the job continues. Neither is work: it only delays the job, and the engine charges it to no
//! budget (docs/model.md, sections 6 and 11).

use talea_core::mutate;
pub use talea_core::workload::Overheads;
use talea_core::{Span, Time};

#[derive(Clone, Debug, Default)]
struct CpuInterference {
    /// Stalls `[from, to)`, sorted and disjoint.
    stalls: Vec<(Time, Time)>,
    /// Index of the first stall that has not ended.
    first: usize,
    /// Time at which the overheads added so far end.
    free_at: Time,
}

/// Interference on all CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Interference {
    cpus: Vec<CpuInterference>,
    pub(crate) overheads: Overheads,
    /// `levels[t]`: number of schedulers above task `t`.
    pub(crate) levels: Vec<u32>,
    /// `last[t]`: CPU on which task `t` ran last.
    pub(crate) last: Vec<usize>,
}

impl Interference {
    /// Creates a state without stalls and overheads. `last[t]` is the initial CPU of task `t`.
    pub(crate) fn new(cpus: usize, levels: Vec<u32>, last: Vec<usize>) -> Interference {
        Interference {
            cpus: vec![CpuInterference::default(); cpus],
            overheads: Overheads::default(),
            levels,
            last,
        }
    }

    /// Sorts and merges the stalls of a CPU.
    pub(crate) fn set_stalls(&mut self, cpu: usize, mut stalls: Vec<(Time, Time)>) {
        stalls.retain(|(from, to)| from < to);
        stalls.sort_unstable();
        let mut joined: Vec<(Time, Time)> = Vec::new();
        for (from, to) in stalls {
            mutate!(
                "sim-stall-joined",
                match joined.last_mut() {
                    Some(last) if from <= last.1 => last.1 = last.1.max(to),
                    _ => joined.push((from, to)),
                },
                match joined.last_mut() {
                    Some(last) if from <= last.1 => {}
                    _ => joined.push((from, to)),
                }
            )
        }
        self.cpus[cpu].stalls = joined;
    }

    /// Returns the progress of a job between `from` and `now`.
    pub(crate) fn progress(&self, cpu: usize, from: Time, now: Time) -> Span {
        let cpu = &self.cpus[cpu];
        let from = from.max(cpu.free_at).min(now);
        let lost = |&(begin, end): &(Time, Time)| {
            end.min(now).max(from).since(begin.min(now).max(from)).as_ns()
        };
        let lost: u64 =
            cpu.stalls[cpu.first..].iter().take_while(|stall| stall.0 < now).map(lost).sum();
        mutate!(
            "sim-stall-progress",
            Span::from_ns(now.since(from).as_ns() - lost),
            Span::from_ns(now.since(from).as_ns() - lost.min(0))
        )
    }

    /// Returns the time at which a job has progressed by `span` from now.
    pub(crate) fn finish_time(&self, cpu: usize, now: Time, span: Span) -> Time {
        let cpu = &self.cpus[cpu];
        let mut at = now.max(cpu.free_at);
        let mut left = span;
        for &(begin, end) in &cpu.stalls[cpu.first..] {
            if end <= at {
                continue;
            }
            if at < begin {
                let before = begin.since(at);
                if left <= before {
                    break;
                }
                left = left.checked_sub(before).expect("longer");
            }
            at = mutate!("sim-stall-finish", end, at.max(begin));
        }
        at.saturating_add(left)
    }

    /// Adds `span` of overhead on `cpu`, after the overheads that are already pending.
    pub(crate) fn add_overhead(&mut self, cpu: usize, now: Time, span: Span) {
        if !span.is_zero() {
            let charged = mutate!("rows-overhead", span, span + span + span);
            self.cpus[cpu].free_at = self.finish_time(cpu, now, charged);
        }
    }

    /// Discards stalls before `now`. Later queries are never about an earlier time.
    pub(crate) fn discard_before(&mut self, cpu: usize, now: Time) {
        let cpu = &mut self.cpus[cpu];
        while cpu
            .stalls
            .get(cpu.first)
            .is_some_and(|stall| mutate!("sim-stall-forgotten", stall.1, stall.0) <= now)
        {
            cpu.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn progress_and_finish_time_equal_a_count_of_unstalled_nanoseconds() {
        let mut rng = Rng::new(7);
        for _ in 0..300 {
            let mut interference = Interference::new(1, vec![0], vec![0]);
            let stalls: Vec<(Time, Time)> = (0..rng.below(6))
                .map(|_| {
                    let from = rng.below(60);
                    (at(from), at(from + rng.below(9)))
                })
                .collect();
            interference.set_stalls(0, stalls.clone());
            let is_unstalled =
                |ns: u64| !stalls.iter().any(|&(from, to)| (from..to).contains(&at(ns)));
            let (from, length) = (rng.below(40), rng.below(40));
            let unstalled = (from..from + length).filter(|&ns| is_unstalled(ns)).count() as u64;
            assert_eq!(
                interference.progress(0, at(from), at(from + length)).as_ns(),
                unstalled,
                "{stalls:?}"
            );
            // End of the last unstalled nanosecond of the span.
            let span = rng.below(20);
            let end = (from..)
                .filter(|&ns| is_unstalled(ns))
                .take(span as usize)
                .last()
                .map_or(from, |ns| ns + 1);
            let finish = interference.finish_time(0, at(from), Span::from_ns(span));
            assert_eq!(interference.progress(0, at(from), finish).as_ns(), span);
            assert!(
                finish.as_ns() == end || span == 0,
                "{stalls:?} {from} {span}: {finish:?} {end}"
            );
            interference.add_overhead(0, at(from), Span::from_ns(span));
            interference.discard_before(0, at(from));
            assert_eq!(
                interference.progress(0, at(from), finish.max(at(from + 40))).as_ns() + span,
                {
                    let until = finish.max(at(from + 40)).as_ns();
                    (from..until).filter(|&ns| is_unstalled(ns)).count() as u64
                }
            );
        }
    }
}
