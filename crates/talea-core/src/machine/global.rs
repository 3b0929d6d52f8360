//! A root with several CPUs: the m most urgent of its children run.
//!
//! Model: whoever runs has left the policy; whoever waits stands in one of several copies of it,
//! the *lanes*: one for each set of CPUs that children may use, and, for jobs that were started on
//! a CPU and may not leave it, one for each CPU (YASMIN section 3.3: no job migration). A child is
//! a task or a scheduler; either uses one CPU at a time.
//!
//! Affinities are weak, as in Linux and LITMUS^RT: whoever waits takes a CPU of its own set from
//! whoever is less urgent there, and nobody is moved to make room for a third. With one CPU each
//! this is partitioned scheduling in one machine, which is how tasks on different CPUs share
//! accelerators and graphs.
//!
//! With one lane, as where nobody has affinities and jobs migrate, a change costs a look at each of
//! the m CPUs: O(m). With several, each move that it leads to compares the head of every lane with
//! who runs on its CPUs: O(lanes · m), and lanes are as many as there are different sets, plus m
//! where jobs may not migrate. Where a policy orders by a number ([`Rank`]), the number is
//! compared; the others are asked ([`Scheduler::before`]), so that policies from outside serve
//! several CPUs as well.

use super::{Affinity, Kid, Migration, NONE, Runnable};
use crate::Time;
use crate::heap::Heap;
use crate::mutate;
use crate::sched::{Built, Child, Entry, Rank, Scheduler};
use alloc::vec::Vec;
use core::hint::select_unpredictable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nowhere,
    /// Has become ready, and nobody has looked yet whether it goes to a CPU or into a lane.
    Fresh,
    Lane(u8),
    Cpu(u8),
}

#[derive(Clone, Copy, Debug)]
struct Place {
    at: At,
    /// The CPU that its job was started on, where that binds.
    bound: Option<u8>,
    /// Jobs of it, or below it, that were started and have not ended: of a scheduler it may be
    /// several.
    started: u32,
    /// The lane of those who may use the same CPUs.
    home: u8,
    /// Where it ran last; warm caches are worth a look.
    last: u8,
    /// Its number, of a policy that orders by one.
    rank: u64,
}

/// Those who wait: a lane for each set of CPUs.
#[derive(Debug)]
enum Lanes {
    /// Of a policy that orders by a number.
    Ranked(Rank, Vec<Heap>),
    /// Of any other.
    Policies(Vec<Built>),
}

/// Who has a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seat {
    rank: u64,
    /// Or [`NONE`].
    who: Child,
}

impl Seat {
    /// Gives way to everybody.
    const EMPTY: Seat = Seat { rank: u64::MAX, who: NONE };

    /// The order is that of the policy: whoever is greater has to give way. One number, for who is
    /// compared with whom is chance, and a branch on it is guessed wrong.
    #[inline]
    fn order(self) -> u128 {
        u128::from(self.rank) << 32 | u128::from(self.who)
    }
}

/// The children of the root, by their numbers.
#[derive(Clone, Copy)]
pub(super) struct Kids<'a> {
    pub(super) nodes: &'a [Runnable],
    pub(super) kids: &'a [Kid],
}

impl<'a> Kids<'a> {
    #[inline]
    fn entry(self, child: Child) -> &'a Entry {
        &self.nodes[self.kids[child as usize].node as usize].entry
    }
}

#[derive(Debug)]
pub(super) struct Global {
    lanes: Lanes,
    /// The CPUs of each home lane.
    homes: Vec<u64>,
    /// Who runs, per CPU.
    seats: Vec<Seat>,
    /// CPUs on which nobody runs, a bit each.
    idle: u64,
    /// CPUs that have been given to another child, or to the same anew, a bit each.
    touched: u64,
    /// Who is [`At::Fresh`], or [`NONE`]; only where there is one lane, by rank.
    fresh: Child,
    /// How many have become ready, have left a CPU or have another number since the last decision.
    news: u32,
    places: Vec<Place>,
    migration: Migration,
    preemptive: bool,
}

impl Global {
    /// `rank`: of the policy, of which `lane` makes a copy. `affinities`: of each child.
    pub(super) fn new(
        rank: Option<Rank>,
        lane: impl Fn() -> Built,
        affinities: &[Affinity],
        cpus: u32,
        migration: Migration,
        preemptive: bool,
    ) -> Global {
        let all = u64::MAX >> (64 - cpus);
        let mut homes: Vec<u64> = affinities.iter().map(|affinity| affinity.0 & all).collect();
        homes.sort_unstable();
        homes.dedup();
        let place = |affinity: &Affinity| {
            let home = homes.binary_search(&(affinity.0 & all)).expect("everybody has a home");
            let last = homes[home].trailing_zeros() as u8;
            Place { at: At::Nowhere, bound: None, started: 0, home: home as u8, last, rank: 0 }
        };
        let places: Vec<Place> = affinities.iter().map(place).collect();
        let lanes = match migration {
            Migration::Anytime => homes.len(),
            Migration::JobBoundaries => homes.len() + cpus as usize,
        };
        let children = affinities.len();
        Global {
            lanes: match rank {
                Some(rank) => {
                    Lanes::Ranked(rank, (0..lanes).map(|_| Heap::new(children)).collect())
                }
                None => Lanes::Policies((0..lanes).map(|_| lane()).collect()),
            },
            homes,
            seats: alloc::vec![Seat::EMPTY; cpus as usize],
            idle: all,
            touched: all,
            fresh: NONE,
            news: 0,
            places,
            migration,
            preemptive,
        }
    }

    /// Entries that were compared.
    #[cfg(test)]
    pub(super) fn compared(&self) -> u64 {
        match &self.lanes {
            Lanes::Ranked(_, lanes) => lanes.iter().map(|lane| lane.compared).sum(),
            Lanes::Policies(lanes) => lanes.iter().map(Built::compared).sum(),
        }
    }

    /// Who runs on `cpu`.
    #[inline]
    pub(super) fn running(&self, cpu: usize) -> Option<Child> {
        Some(self.seats[cpu].who).filter(|&who| who != NONE)
    }

    /// The first CPU that `who` may use.
    pub(super) fn first_cpu(&self, who: Child) -> u32 {
        self.homes[self.places[who as usize].home as usize].trailing_zeros()
    }

    /// CPUs that have been given to somebody or taken away since this was last asked, a bit each.
    #[inline]
    pub(super) fn take_touched(&mut self) -> u64 {
        core::mem::take(&mut self.touched)
    }

    /// Whether jobs stay on the CPU that they were started on.
    #[inline]
    pub(super) fn binds(&self) -> bool {
        self.migration == Migration::JobBoundaries
    }

    /// Whether somebody may have to wait beside an idle CPU.
    pub(super) fn may_wait(&self) -> bool {
        let cpus = self.seats.len() as u32;
        self.binds() || self.homes.iter().any(|home| home.count_ones() < cpus)
    }

    /// Whether who runs on CPU `a` comes before who runs on `b`.
    pub(super) fn outranks(&self, now: Time, kids: Kids<'_>, a: usize, b: usize) -> bool {
        match (self.running(a), self.running(b)) {
            (Some(a), Some(b)) => self.before(now, kids, a, b),
            (a, _) => a.is_some(),
        }
    }

    /// Whether nobody waits who should run: the audit's question.
    pub(super) fn is_settled(&self, now: Time, kids: Kids<'_>) -> bool {
        self.next_move(now, kids).is_none()
    }

    /// The CPUs of a lane.
    #[inline]
    fn cpus_of(&self, lane: usize) -> u64 {
        mutate!(
            "core-global-affinity",
            self.homes.get(lane).copied().unwrap_or_else(|| 1 << (lane - self.homes.len())),
            if lane < self.homes.len() {
                u64::MAX >> (64 - self.seats.len())
            } else {
                1 << (lane - self.homes.len())
            }
        )
    }

    /// `who` stands in its lane.
    #[inline]
    fn wait(&mut self, now: Time, who: &Entry) {
        let Lanes::Policies(lanes) = &mut self.lanes else { return self.wait_ranked(who.child) };
        let place = &mut self.places[who.child as usize];
        let lane = place.bound.map_or(place.home as usize, |cpu| self.homes.len() + cpu as usize);
        place.at = At::Lane(lane as u8);
        let _ = lanes[lane].ready(now, who);
    }

    /// The same for one whose number is known.
    #[inline]
    fn wait_ranked(&mut self, who: Child) {
        let Lanes::Ranked(_, lanes) = &mut self.lanes else { return };
        let place = &mut self.places[who as usize];
        let lane = place.bound.map_or(place.home as usize, |cpu| self.homes.len() + cpu as usize);
        place.at = At::Lane(lane as u8);
        lanes[lane].set(who, place.rank);
    }

    #[inline]
    pub(super) fn ready(&mut self, now: Time, who: &Entry) {
        self.news += 1;
        let Lanes::Ranked(rank, lanes) = &mut self.lanes else { return self.wait(now, who) };
        let place = &mut self.places[who.child as usize];
        place.rank = rank(who).min(Heap::LAST);
        if lanes.len() == 1 && self.fresh == NONE {
            place.at = At::Fresh;
            self.fresh = who.child;
        } else {
            self.wait(now, who);
        }
    }

    #[inline]
    fn leave(&mut self, now: Time, who: Child) {
        let at = core::mem::replace(&mut self.places[who as usize].at, At::Nowhere);
        // In the order in which they are likely; a jump by a table is guessed badly.
        if let At::Cpu(cpu) = at {
            self.seats[cpu as usize] = Seat::EMPTY;
            self.idle |= 1 << cpu;
            self.touched |= 1 << cpu;
            self.news += 1;
        } else if let At::Lane(lane) = at {
            match &mut self.lanes {
                Lanes::Ranked(_, lanes) => _ = lanes[lane as usize].remove(who),
                Lanes::Policies(lanes) => _ = lanes[lane as usize].finished(now, who),
            }
        } else if at == At::Fresh {
            self.fresh = NONE;
        }
    }

    #[inline]
    pub(super) fn finished(&mut self, now: Time, who: Child) {
        self.leave(now, who);
    }

    pub(super) fn update(&mut self, now: Time, who: &Entry) {
        self.news += 1;
        let place = &mut self.places[who.child as usize];
        if let Lanes::Ranked(rank, _) = self.lanes {
            place.rank = rank(who).min(Heap::LAST);
        }
        match (place.at, &mut self.lanes) {
            (At::Lane(lane), Lanes::Ranked(_, lanes)) => {
                lanes[lane as usize].set(who.child, place.rank)
            }
            (At::Lane(lane), Lanes::Policies(lanes)) => _ = lanes[lane as usize].update(now, who),
            (At::Cpu(cpu), _) => self.seats[cpu as usize].rank = place.rank,
            (At::Nowhere | At::Fresh, _) => {}
        }
    }

    /// A job of the child that has `cpu`, or below it, runs for the first time, and is bound to it
    /// from now on. Before, it may have been given that CPU and have lost it again at the same
    /// instant.
    pub(super) fn job_started(&mut self, cpu: usize) {
        if let Some(who) = self.running(cpu) {
            let place = &mut self.places[who as usize];
            place.started += 1;
            place.bound = mutate!("core-global-bound", Some(cpu as u8), None);
        }
    }

    /// A job of `who`, or below it, has given its CPU up by itself: where nobody is preempted,
    /// whoever is first now has it.
    pub(super) fn give_up(&mut self, now: Time, who: &Entry) {
        if let (false, At::Cpu(_)) = (self.preemptive, self.places[who.child as usize].at) {
            self.leave(now, who.child);
            self.wait(now, who);
        }
    }

    /// A job of `who` has ended: unless another one was interrupted below it, the next may be
    /// started anywhere.
    #[inline]
    pub(super) fn job_ended(&mut self, now: Time, who: &Entry, was_started: bool) {
        let place = &mut self.places[who.child as usize];
        place.started -= mutate!(
            "core-global-group",
            u32::from(was_started),
            place.started * u32::from(was_started)
        );
        if place.at == At::Nowhere {
            mutate!(
                "core-global-unbound",
                {
                    if place.started == 0 {
                        place.bound = None;
                    }
                },
                {}
            );

            return;
        }
        self.leave(now, who.child);
        let place = &mut self.places[who.child as usize];
        if place.started == 0 {
            place.bound = None;
        }
        self.wait(now, who);
    }

    #[inline]
    fn before(&self, now: Time, kids: Kids<'_>, a: Child, b: Child) -> bool {
        match &self.lanes {
            Lanes::Ranked(..) => {
                (self.places[a as usize].rank, a) < (self.places[b as usize].rank, b)
            }
            Lanes::Policies(lanes) => lanes[0].before(now, kids.entry(a), kids.entry(b)),
        }
    }

    /// Who should run instead of nobody or of somebody else, and where; the most urgent of them.
    #[inline]
    fn next_move(&self, now: Time, kids: Kids<'_>) -> Option<(Child, usize)> {
        match &self.lanes {
            Lanes::Ranked(_, lanes) => self.next_ranked(lanes),
            Lanes::Policies(lanes) => self.next_asked(now, kids, lanes),
        }
    }

    fn next_ranked(&self, lanes: &[Heap]) -> Option<(Child, usize)> {
        let moves = lanes.iter().enumerate().filter_map(|(at, lane)| {
            let (rank, who) = lane.first()?;
            let head = Seat { rank, who };
            Some((head, self.fits(head, self.cpus_of(at))?))
        });
        moves.min_by_key(|(head, _)| head.order()).map(|(head, cpu)| (head.who, cpu))
    }

    /// On which of these CPUs `head` should run instead of nobody or of whoever does.
    #[inline]
    fn fits(&self, head: Seat, cpus: u64) -> Option<usize> {
        let idle = cpus & self.idle;
        if idle != 0 {
            let last = u32::from(self.places[head.who as usize].last);
            let cpu = if idle >> last & 1 == 1 {
                mutate!("core-global-last", last, idle.trailing_zeros())
            } else {
                idle.trailing_zeros()
            };
            return Some(cpu as usize);
        }
        let cpu = self.worst(cpus);
        (mutate!(
            "core-nonpreemptive-global",
            mutate!("core-preemptive-global", self.preemptive, !self.preemptive)
                && self.seats[cpu].order() > head.order(),
            self.seats[cpu].order() > head.order()
        ))
        .then_some(cpu)
    }

    /// Of these CPUs, which are all busy, that of the least urgent.
    #[inline]
    fn worst(&self, mut cpus: u64) -> usize {
        let (mut worst, mut at) =
            (self.seats[cpus.trailing_zeros() as usize], cpus.trailing_zeros() as usize);
        cpus &= cpus - 1;
        while cpus != 0 {
            let cpu = cpus.trailing_zeros() as usize;
            cpus &= cpus - 1;
            let seat = self.seats[cpu];
            let is_worse = mutate!(
                "core-global-least",
                seat.order() > worst.order(),
                seat.order() < worst.order()
            );
            worst.rank = select_unpredictable(is_worse, seat.rank, worst.rank);
            worst.who = select_unpredictable(is_worse, seat.who, worst.who);
            at = select_unpredictable(is_worse, cpu, at);
        }
        at
    }

    fn next_asked(&self, now: Time, kids: Kids<'_>, lanes: &[Built]) -> Option<(Child, usize)> {
        let mut best: Option<(Child, usize)> = None;
        for (lane, waiting) in lanes.iter().enumerate() {
            let Some(head) = waiting.head(now) else { continue };
            let cpu = self.target(now, kids, self.cpus_of(lane), head);
            let running = self.running(cpu);
            let fits = running
                .is_none_or(|running| self.preemptive && self.before(now, kids, head, running));
            if fits && best.is_none_or(|(best, _)| self.before(now, kids, head, best)) {
                best = Some((head, cpu));
            }
        }
        best
    }

    /// Where `who` would go: an idle one of these CPUs, or that of the least urgent.
    fn target(&self, now: Time, kids: Kids<'_>, cpus: u64, who: Child) -> usize {
        let last = self.places[who as usize].last as usize;
        if cpus >> last & 1 == 1 && self.running(last).is_none() {
            return last;
        }
        let mut cpus = (0..self.seats.len()).filter(|cpu| cpus >> cpu & 1 == 1);
        let mut worst = cpus.next().expect("a lane has a CPU");
        for cpu in cpus {
            let Some(least) = self.running(worst) else { break };
            if self.running(cpu).is_none_or(|running| {
                mutate!(
                    "core-global-asked",
                    self.before(now, kids, least, running),
                    self.before(now, kids, running, least)
                )
            }) {
                worst = cpu;
            }
        }
        worst
    }

    /// Moves children until nobody who waits should run instead of somebody who does.
    #[inline(always)]
    pub(super) fn decide(&mut self, now: Time, kids: Kids<'_>) {
        let news = core::mem::take(&mut self.news);
        match &self.lanes {
            Lanes::Ranked(_, lanes) if lanes.len() == 1 => self.decide_in_one(now, kids, news),
            _ => self.decide_in_several(now, kids),
        }
        self.news = 0;
    }

    fn decide_in_several(&mut self, now: Time, kids: Kids<'_>) {
        while let Some((who, cpu)) = self.next_move(now, kids) {
            self.leave(now, who);
            self.seat(now, kids, who, cpu);
        }
    }

    /// The same with one lane, by rank. After the last decision nobody who waited came before
    /// somebody who ran, so that each piece of news moves one child at most.
    #[inline(always)]
    fn decide_in_one(&mut self, now: Time, kids: Kids<'_>, news: u32) {
        for _ in 0..news {
            let fresh = match self.fresh {
                NONE => Seat::EMPTY,
                who => Seat { rank: self.places[who as usize].rank, who },
            };
            // Where he is all the news, nobody but him can have a claim.
            let waiting = if mutate!(
                "core-global-fresh",
                news == 1 && fresh != Seat::EMPTY,
                fresh != Seat::EMPTY
            ) {
                Seat::EMPTY
            } else {
                self.first_waiting()
            };
            let head = if waiting.order() < fresh.order() { waiting } else { fresh };
            if head == Seat::EMPTY {
                break;
            }
            let Some(cpu) = self.fits(head, self.homes[0]) else { break };
            if head == fresh {
                self.fresh = NONE;
            } else if let Lanes::Ranked(_, lanes) = &mut self.lanes {
                lanes[0].remove(head.who);
            }
            self.seat(now, kids, head.who, cpu);
        }
        if self.fresh != NONE {
            let fresh = core::mem::replace(&mut self.fresh, NONE);
            self.wait_ranked(fresh);
        }
    }

    /// Who comes first in the one lane.
    #[inline]
    fn first_waiting(&self) -> Seat {
        let Lanes::Ranked(_, lanes) = &self.lanes else { return Seat::EMPTY };
        lanes[0].first().map_or(Seat::EMPTY, |(rank, who)| Seat { rank, who })
    }

    /// Gives `cpu` to `who`, who stands nowhere.
    #[inline]
    fn seat(&mut self, now: Time, kids: Kids<'_>, who: Child, cpu: usize) {
        let place = &mut self.places[who as usize];
        place.at = At::Cpu(cpu as u8);
        place.last = cpu as u8;
        mutate!("core-global-unbegun", {}, {
            if self.migration == Migration::JobBoundaries {
                place.bound = Some(cpu as u8);
            }
        });
        let seat = Seat { rank: place.rank, who };
        let preempted = core::mem::replace(&mut self.seats[cpu], seat);
        mutate!(
            "core-global-idle",
            {
                self.idle &= !(1 << cpu);
            },
            {}
        );

        self.touched |= 1 << cpu;
        if preempted.who == NONE {
            return;
        }
        match self.lanes {
            Lanes::Ranked(..) => self.wait_ranked(preempted.who),
            Lanes::Policies(_) => self.wait(now, kids.entry(preempted.who)),
        }
    }
}
