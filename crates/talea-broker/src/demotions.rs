//! Demotions of a subject on a CPU, and the delay of its next attach there.
//!
//! | state of a subject on a CPU | event | next state |
//! | --- | --- | --- |
//! | any | demoted | level + 1, *delayed* for [`FIRST_DELAY`] doubled at each level |
//! | *delayed* | its delay ends | *observed* |
//! | *observed* | [`QUIET`] without a demotion | level 0 |
//!
//! Demotions at successive checks of one silence count as one. An attach that has to wait for no
//! longer than [`crate::deferred::MAX_DEFER`] is deferred; any other is refused
//! ([`talea_proto::Code::Starvation`]) with the time that is left. A change that would move a
//! thread to such a CPU, or make it a FIFO or RR thread there, is refused.

use crate::subjects::Subject;
use std::collections::BTreeMap;
use talea_core::{CpuSet, Monotonic, Span, mutate};

/// Delay after the first demotion.
const FIRST_DELAY: Span = Span::from_ns(400_000_000);
/// Highest level: the longest delay is 51.2 s.
const MAX_LEVEL: u32 = 8;
/// Time without a demotion, after the delay, after which a subject has level 0 again.
const QUIET: Span = Span::from_ns(60_000_000_000);
/// Maximum time between demotions that count as one.
const SERIES: Span = Span::from_ns(150_000_000);

/// Demotions by CPU and subject.
#[derive(Debug, Default)]
pub(crate) struct Demotions {
    by_subject: BTreeMap<(Subject, u32), Demoted>,
}

#[derive(Clone, Copy, Debug)]
struct Demoted {
    level: u32,
    last: Monotonic,
    until: Monotonic,
}

impl Demotions {
    /// Records the demotion of a thread.
    pub(crate) fn add(&mut self, now: Monotonic, cpu: u32, subject: Subject) {
        let first = Demoted { level: 0, last: Monotonic::ZERO, until: now };
        let demoted = self.by_subject.entry((subject, cpu)).or_insert(first);
        let is_same = demoted.level > 0 && now.saturating_since(demoted.last) <= SERIES;
        if !is_same {
            let level = (demoted.level + 1).min(MAX_LEVEL);
            demoted.level = mutate!("starvation-doubles", level, 1);
        }
        let delay = Span::from_ns(FIRST_DELAY.as_ns() << (demoted.level - 1));
        (demoted.last, demoted.until) = (now, now.saturating_add(delay));
    }

    /// Returns the level of a subject on a CPU: 0 without a recent demotion.
    pub(crate) fn level(&self, cpu: u32, subject: Subject) -> u32 {
        self.by_subject.get(&(subject, cpu)).map_or(0, |demoted| demoted.level)
    }

    /// Forgets subjects after a quiet time. Linear in the demoted subjects.
    pub(crate) fn forget_old(&mut self, now: Monotonic) {
        self.by_subject.retain(|_, demoted| now < demoted.until.saturating_add(QUIET));
    }

    /// Returns the end of the subject's delay on any of these CPUs; `None` if there is none.
    pub(crate) fn delayed_until(
        &self,
        now: Monotonic,
        subject: Subject,
        cpus: &CpuSet,
    ) -> Option<Monotonic> {
        let all = self.by_subject.range((subject, 0)..=(subject, u32::MAX));
        let here = all.filter(|&(&(_, cpu), _)| cpus.is_empty() || cpus.contains(cpu));
        here.map(|(_, demoted)| demoted.until).filter(|&until| until > now).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_delay_doubles_up_to_a_bound_and_is_forgotten() {
        let at = |ms: u64| Monotonic::from_ns(ms * MS);
        let (user, cpus) = (Subject::user(5), CpuSet::single(1));
        let mut demotions = Demotions::default();
        let mut now = 1_000;
        for delay in [400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 51_200] {
            demotions.add(at(now), 1, user);
            assert_eq!(demotions.delayed_until(at(now), user, &cpus), Some(at(now + delay)));
            // A check later, of the same silence.
            demotions.add(at(now + 50), 1, user);
            let until = demotions.delayed_until(at(now), user, &CpuSet::EMPTY);
            assert_eq!(until, Some(at(now + 50 + delay)));
            now += 1_000;
        }
        assert_eq!(demotions.delayed_until(at(now), user, &CpuSet::single(0)), None);
        assert_eq!(demotions.delayed_until(at(now), Subject::user(6), &cpus), None);
        assert_eq!((demotions.level(1, user), demotions.level(0, user)), (8, 0));
        now += 51_200;
        assert_eq!(demotions.delayed_until(at(now), user, &cpus), None);
        demotions.forget_old(at(now + 50_000));
        assert_eq!(demotions.level(1, user), 8);
        demotions.forget_old(at(now + 60_000));
        assert_eq!(demotions.level(1, user), 0);
    }
}
