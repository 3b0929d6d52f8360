//! A root with several CPUs: the m most urgent of its children run.
//!
//! Model: whoever runs has left the policy; whoever waits stands in one of several copies of it, the *lanes*: one for
//! each set of CPUs that children may use, and, for jobs that were started on a CPU and may not leave it, one for each
//! CPU (YASMIN section 3.3: no job migration). A child is a task or a scheduler; either uses one CPU at a time.
//!
//! Affinities are weak, as in Linux and LITMUS^RT: whoever waits takes a CPU of its own set from whoever is less urgent
//! there, and nobody is moved to make room for a third. With one CPU each this is partitioned scheduling in one machine,
//! which is how tasks on different CPUs share accelerators and graphs.
//!
//! A decision compares the heads of the lanes with who runs, O(m) per change, and asks [`Scheduler::before`], so that
//! policies from outside serve several CPUs as well.

use super::{Affinity, Migration};
use crate::Time;
use crate::sched::{Built, Child, Entry, Policy, Scheduler};
use alloc::vec::Vec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    Lane(u8),
    Cpu(u8),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: At,
    /// The CPU that its job was started on, where that binds.
    bound: Option<u8>,
    /// Jobs of it, or below it, that were started and have not ended: of a scheduler it may be several.
    started: u32,
    /// The lane of those who may use the same CPUs.
    home: u8,
    /// Where it ran last; warm caches are worth a look.
    last: u8,
    entry: Entry,
}

#[derive(Debug)]
pub(super) struct Global {
    lanes: Vec<Built>,
    /// The CPUs of each home lane.
    homes: Vec<u64>,
    /// Who runs, per CPU.
    running: Vec<Option<Child>>,
    places: Vec<Place>,
    migration: Migration,
    preemptive: bool,
}

impl Global {
    /// `affinities`: of each child.
    pub(super) fn new(
        policy: &Policy,
        affinities: &[Affinity],
        cpus: u32,
        migration: Migration,
        preemptive: bool,
    ) -> Global {
        let entry = Entry { child: 0, since: 0, criteria: crate::criteria::Criteria::LEAST };
        let all = u64::MAX >> (64 - cpus);
        let mut homes: Vec<u64> = affinities.iter().map(|affinity| affinity.0 & all).collect();
        homes.sort_unstable();
        homes.dedup();
        let place = |affinity: &Affinity| {
            let home = homes.binary_search(&(affinity.0 & all)).expect("everybody has a home");
            let last = homes[home].trailing_zeros() as u8;
            Place { at: At::Nowhere, bound: None, started: 0, home: home as u8, last, entry }
        };
        let places: Vec<Place> = affinities.iter().map(place).collect();
        let lanes = match migration {
            Migration::Anytime => homes.len(),
            Migration::JobBoundaries => homes.len() + cpus as usize,
        };
        Global {
            lanes: (0..lanes).map(|_| policy.build(affinities.len())).collect(),
            homes,
            running: alloc::vec![None; cpus as usize],
            places,
            migration,
            preemptive,
        }
    }

    /// Who runs on `cpu`.
    pub(super) fn running(&self, cpu: usize) -> Option<Child> {
        self.running[cpu]
    }

    /// Whether jobs stay on the CPU that they were started on.
    #[inline]
    pub(super) fn binds(&self) -> bool {
        self.migration == Migration::JobBoundaries
    }

    /// Whether somebody may have to wait beside an idle CPU.
    pub(super) fn may_wait(&self) -> bool {
        let cpus = self.running.len() as u32;
        self.binds() || self.homes.iter().any(|home| home.count_ones() < cpus)
    }

    /// `who`, who stands nowhere, was given a CPU, and no job was started there.
    pub(super) fn unbind(&mut self, who: Child) {
        let place = &mut self.places[who as usize];
        if place.started == 0 {
            place.bound = None;
        }
    }

    /// Whether who runs on CPU `a` comes before who runs on `b`.
    pub(super) fn outranks(&self, now: Time, a: usize, b: usize) -> bool {
        match (self.running[a], self.running[b]) {
            (Some(a), Some(b)) => self.before(now, a, b),
            (a, _) => a.is_some(),
        }
    }

    /// Whether nobody waits who should run: the audit's question.
    pub(super) fn is_settled(&self, now: Time) -> bool {
        self.lanes.iter().filter_map(|lane| lane.head(now)).all(|head| self.fits(now, head).is_none())
    }

    fn lane_of(&self, who: Child) -> u8 {
        let place = &self.places[who as usize];
        place.bound.map_or(place.home, |cpu| self.homes.len() as u8 + cpu)
    }

    fn wait(&mut self, now: Time, who: Child) {
        let lane = self.lane_of(who);
        let place = &mut self.places[who as usize];
        place.at = At::Lane(lane);
        let _ = self.lanes[lane as usize].ready(now, &place.entry);
    }

    pub(super) fn ready(&mut self, now: Time, entry: Entry) {
        self.places[entry.child as usize].entry = entry;
        self.wait(now, entry.child);
    }

    fn leave(&mut self, now: Time, who: Child) {
        match core::mem::replace(&mut self.places[who as usize].at, At::Nowhere) {
            At::Nowhere => {}
            At::Lane(lane) => {
                let _ = self.lanes[lane as usize].finished(now, who);
            }
            At::Cpu(cpu) => self.running[cpu as usize] = None,
        }
    }

    pub(super) fn finished(&mut self, now: Time, who: Child) {
        self.leave(now, who);
    }

    pub(super) fn update(&mut self, now: Time, entry: Entry) {
        let place = &mut self.places[entry.child as usize];
        place.entry = entry;
        if let At::Lane(lane) = place.at {
            let _ = self.lanes[lane as usize].update(now, &entry);
        }
    }

    /// A job of the child that has `cpu`, or below it, runs for the first time.
    pub(super) fn job_started(&mut self, cpu: usize) {
        if let Some(who) = self.running[cpu] {
            self.places[who as usize].started += 1;
        }
    }

    /// A job of `who` has ended: unless another one was interrupted below it, the next may be started anywhere.
    pub(super) fn job_ended(&mut self, now: Time, who: Child, was_started: bool) {
        let waits = self.places[who as usize].at != At::Nowhere;
        self.leave(now, who);
        let place = &mut self.places[who as usize];
        place.started -= u32::from(was_started);
        if place.started == 0 {
            place.bound = None;
        }
        if waits {
            self.wait(now, who);
        }
    }

    fn before(&self, now: Time, a: Child, b: Child) -> bool {
        self.lanes[0].before(now, &self.places[a as usize].entry, &self.places[b as usize].entry)
    }

    /// Where `who` would go: the CPU it is bound to, an idle one, or that of the least urgent.
    fn target(&self, now: Time, who: Child) -> usize {
        let place = &self.places[who as usize];
        if let Some(cpu) = place.bound {
            return cpu as usize;
        }
        if self.running[place.last as usize].is_none() {
            return place.last as usize;
        }
        let mut left = self.homes[place.home as usize];
        let mut worst = left.trailing_zeros() as usize;
        while left != 0 {
            let cpu = left.trailing_zeros() as usize;
            left &= left - 1;
            let Some(running) = self.running[cpu] else { return cpu };
            if cpu != worst && self.running[worst].is_some_and(|least| self.before(now, least, running)) {
                worst = cpu;
            }
        }
        worst
    }

    /// The CPU on which `who`, who waits, should run instead of nobody or of whoever does.
    #[inline]
    fn fits(&self, now: Time, who: Child) -> Option<usize> {
        let cpu = self.target(now, who);
        let fits = match self.running[cpu] {
            None => true,
            Some(running) => self.preemptive && self.before(now, who, running),
        };
        fits.then_some(cpu)
    }

    /// Moves children until nobody who waits should run instead of somebody who does.
    pub(super) fn decide(&mut self, now: Time) {
        loop {
            let mut best: Option<(Child, usize)> = None;
            for lane in &self.lanes {
                let Some(head) = lane.head(now) else { continue };
                if let Some(cpu) = self.fits(now, head)
                    && best.is_none_or(|(best, _)| self.before(now, head, best))
                {
                    best = Some((head, cpu));
                }
            }
            let Some((who, cpu)) = best else { return };
            let preempted = self.running[cpu];
            self.leave(now, who);
            let place = &mut self.places[who as usize];
            place.at = At::Cpu(cpu as u8);
            place.last = cpu as u8;
            if self.migration == Migration::JobBoundaries {
                place.bound = Some(cpu as u8);
            }
            self.running[cpu] = Some(who);
            if let Some(preempted) = preempted {
                self.wait(now, preempted);
            }
        }
    }
}
