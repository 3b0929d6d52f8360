//! What keeps a CPU from getting on with jobs: holes and overheads.
//!
//! A *hole* is an interval in which nothing progresses on a CPU: a hypervisor, an interrupt storm,
//! a system management mode. An *overhead* is time that the scheduler itself spends on a CPU before
//! the job there goes on. Neither is work: no budget pays for it (docs/model.md, sections 6 and
//! 11), it only takes longer.

use talea_core::mutate;
pub use talea_core::workload::Overheads;
use talea_core::{Span, Time};

#[derive(Clone, Debug, Default)]
struct Spoiled {
    /// `[from, to)`, sorted, disjoint.
    holes: Vec<(Time, Time)>,
    /// Before this one all are over.
    first: usize,
    /// When the overheads so far have been spent.
    free_at: Time,
}

/// All CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Spoils {
    cpus: Vec<Spoiled>,
    pub(crate) overheads: Overheads,
    /// Per task: schedulers above it, and where it ran last.
    pub(crate) levels: Vec<u32>,
    pub(crate) last: Vec<usize>,
}

impl Spoils {
    /// `last`: where a task counts as having run before it ever did.
    pub(crate) fn new(cpus: usize, levels: Vec<u32>, last: Vec<usize>) -> Spoils {
        Spoils {
            cpus: vec![Spoiled::default(); cpus],
            overheads: Overheads::default(),
            levels,
            last,
        }
    }

    /// Sorts and joins the holes of a CPU.
    pub(crate) fn set_holes(&mut self, cpu: usize, mut holes: Vec<(Time, Time)>) {
        holes.retain(|(from, to)| from < to);
        holes.sort_unstable();
        let mut joined: Vec<(Time, Time)> = Vec::new();
        for (from, to) in holes {
            mutate!(
                "sim-hole-joined",
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
        self.cpus[cpu].holes = joined;
    }

    /// What has been got done between `from` and `now`.
    pub(crate) fn progress(&self, cpu: usize, from: Time, now: Time) -> Span {
        let cpu = &self.cpus[cpu];
        let from = from.max(cpu.free_at).min(now);
        let lost = |&(begin, end): &(Time, Time)| {
            end.min(now).max(from).since(begin.min(now).max(from)).as_ns()
        };
        let lost: u64 =
            cpu.holes[cpu.first..].iter().take_while(|hole| hole.0 < now).map(lost).sum();
        mutate!(
            "sim-hole-progress",
            Span::from_ns(now.since(from).as_ns() - lost),
            Span::from_ns(now.since(from).as_ns() - lost.min(0))
        )
    }

    /// When `span` from now has been got done.
    pub(crate) fn finish(&self, cpu: usize, now: Time, span: Span) -> Time {
        let cpu = &self.cpus[cpu];
        let mut at = now.max(cpu.free_at);
        let mut left = span;
        for &(begin, end) in &cpu.holes[cpu.first..] {
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
            at = mutate!("sim-hole-finish", end, at.max(begin));
        }
        at.saturating_add(left)
    }

    /// `cpu` spends this on scheduling, after what it has to spend already.
    pub(crate) fn spend(&mut self, cpu: usize, now: Time, span: Span) {
        if !span.is_zero() {
            self.cpus[cpu].free_at = self.finish(cpu, now, span);
        }
    }

    /// Nobody will ask about the time before `now` any more.
    pub(crate) fn forget(&mut self, cpu: usize, now: Time) {
        let cpu = &mut self.cpus[cpu];
        while cpu
            .holes
            .get(cpu.first)
            .is_some_and(|hole| mutate!("sim-hole-forgotten", hole.1, hole.0) <= now)
        {
            cpu.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn at(ns: u64) -> Time {
        Time::from_ns(ns)
    }

    #[test]
    fn progress_and_finish_equal_counting_the_good_nanoseconds() {
        let mut dice = Dice::new(7);
        for _ in 0..300 {
            let mut spoils = Spoils::new(1, vec![0], vec![0]);
            let holes: Vec<(Time, Time)> = (0..dice.below(6))
                .map(|_| {
                    let from = dice.below(60);
                    (at(from), at(from + dice.below(9)))
                })
                .collect();
            spoils.set_holes(0, holes.clone());
            let is_good = |ns: u64| !holes.iter().any(|&(from, to)| (from..to).contains(&at(ns)));
            let (from, length) = (dice.below(40), dice.below(40));
            let good = (from..from + length).filter(|&ns| is_good(ns)).count() as u64;
            assert_eq!(spoils.progress(0, at(from), at(from + length)).as_ns(), good, "{holes:?}");
            // The end of the last good nanosecond that it takes.
            let span = dice.below(20);
            let end = (from..)
                .filter(|&ns| is_good(ns))
                .take(span as usize)
                .last()
                .map_or(from, |ns| ns + 1);
            let said = spoils.finish(0, at(from), Span::from_ns(span));
            assert_eq!(spoils.progress(0, at(from), said).as_ns(), span);
            assert!(said.as_ns() == end || span == 0, "{holes:?} {from} {span}: {said:?} {end}");
            spoils.spend(0, at(from), Span::from_ns(span));
            spoils.forget(0, at(from));
            assert_eq!(spoils.progress(0, at(from), said.max(at(from + 40))).as_ns() + span, {
                let until = said.max(at(from + 40)).as_ns();
                (from..until).filter(|&ns| is_good(ns)).count() as u64
            });
        }
    }
}
