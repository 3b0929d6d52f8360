//! The forms of the equation for one item.

use super::read::{Item, Order, System};
use crate::Sporadic;
use crate::uni::{Scratch, edf_response};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use talea_core::mutate;
use talea_core::{Span, Work};

/// Equations, with the responses of the round before.
pub(super) struct Forms<'s> {
    pub(super) system: &'s System,
    pub(super) responses: &'s [Option<u64>],
}

/// No steps are left.
type Steps<T> = Option<T>;

/// Part of a graph whose window the general form computes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The item and all its predecessors, from the arrival of the graph.
    Chain,
    /// The item, from the completion of its predecessors.
    Node,
    /// The item in two windows: before its start on any CPU, and after it on that CPU.
    Start,
}

/// Demand of another item: the longest response R, and the limit of its jobs.
struct Demand {
    cost: u64,
    period: u64,
    response: u64,
    /// Latest release of a job that may start after the item.
    late: u64,
    most_jobs: u64,
    /// Largest work of its jobs that are more urgent.
    most_work: u64,
    /// Blocking after each of its jobs.
    again: u64,
    /// Whether its jobs hold an accelerator for which the item may wait.
    is_contender: bool,
}

impl Demand {
    /// W in a window of length `window`.
    fn work(&self, window: u64) -> u64 {
        let reach = self.reach(window);
        let whole = (reach / self.period).saturating_mul(self.cost);
        let work = whole.saturating_add((reach % self.period).min(self.cost));
        work.min(self.most_work)
    }

    /// Returns the length by which a window of length `window` can grow while its work, at most
    /// `most`, grows as much. `most` grows with the window.
    fn growth(&self, window: u64, most: u64) -> u64 {
        let work = self.work(window);
        let rest = self.cost.saturating_sub(self.reach(window) % self.period);
        let own = rest.min(self.most_work - work);
        work.saturating_sub(most).saturating_add(own)
    }

    /// Work of the jobs that start in a window of length `window` after the start of the item.
    fn later_work(&self, window: u64) -> u64 {
        let jobs = window.saturating_add(self.late).div_ceil(self.period).min(self.most_jobs);
        mutate!("tree-precedence-start", jobs.saturating_mul(self.cost), 0)
    }

    /// Blocking after all jobs in a window of length `window`.
    fn blocking(&self, window: u64) -> u64 {
        let jobs = (self.reach(window) / self.period).saturating_add(1).min(self.most_jobs);
        jobs.saturating_mul(self.again)
    }

    fn reach(&self, window: u64) -> u64 {
        window.saturating_add(self.response).saturating_sub(self.cost)
    }
}

impl Forms<'_> {
    fn item(&self, at: usize) -> &Item {
        &self.system.items[at]
    }

    /// Returns the level of an item: the least urgent key of `chain`.
    fn level(&self, chain: impl Iterator<Item = usize>) -> u64 {
        match self.system.order {
            Order::Keys => chain.map(|one| self.item(one).key).max().unwrap_or(0),
            Order::Deadlines | Order::Any => u64::MAX,
        }
    }

    /// Whether accelerators are shared in a way that [`Forms::holders`] does not bound.
    fn counts_holders(&self) -> bool {
        self.system.cpus > 1 || self.system.order != Order::Keys
    }

    /// Returns the general form: `Some(None)` if the item has no bound by it.
    pub(super) fn general(&self, at: usize, part: Part, steps: &mut u64) -> Steps<Option<u64>> {
        let system = self.system;
        let item = self.item(at);
        let (chain, length, hops) = match part {
            Part::Chain => (item.before.clone(), item.chain, item.hops),
            Part::Node | Part::Start => (BTreeSet::from([at]), item.cost, 1),
        };
        let stays = system.preemptive && !system.migrates && system.cpus > 1;
        let is_start = matches!(part, Part::Start);
        if is_start && !stays {
            return Some(None);
        }
        let release = match part {
            Part::Chain => Some(item.jitter),
            Part::Node | Part::Start => self.completion(&item.predecessors, item.jitter),
        };
        let Some(release) = release else { return Some(None) };
        let level = self.level(chain.iter().copied());
        let in_level = |other: &Item| other.key <= level;
        let own = item.graph.iter().map(|&one| (one, self.item(one))).filter(|&(one, of)| {
            in_level(of) && !item.after.contains(&one) && !item.before.contains(&one)
        });
        let own_count = match part {
            Part::Chain => own.clone().count() + chain.len() - 1,
            Part::Node | Part::Start => own.clone().count(),
        };
        let before = item.before.iter().map(|&one| self.item(one).cost).sum::<u64>();
        let rest = match part {
            Part::Chain => before.saturating_sub(length),
            Part::Node | Part::Start => 0,
        };
        let rest = own.fold(rest, |sum, (_, of)| sum.saturating_add(of.cost));
        // Non-preemptive jobs on one CPU never find an accelerator held.
        let shares = system.preemptive || system.cpus > 1;
        let counts_holders = shares && self.counts_holders();
        let level_needs = if counts_holders {
            system.items.iter().filter(|of| in_level(of)).fold(0, |bits, of| bits | of.uses)
        } else {
            0
        };
        let (mut mask, mut least) = (0, u32::MAX);
        let mut narrow = |of: &Item| {
            (mask, least) = (mask | of.mask, least.min(of.mask.count_ones()));
        };
        for &one in &chain {
            narrow(self.item(one));
        }
        // Items of one graph that follow each other hold an accelerator one after the other.
        let is_contender = |other: usize, of: &Item| {
            let meets = |&one: &usize| {
                let (one, waiting) = (one, self.item(one));
                let is_ordered = of.before.contains(&one) || waiting.before.contains(&other);
                waiting.uses & of.uses != 0 && !is_ordered
            };
            counts_holders && chain.iter().any(meets)
        };
        let contenders = system.items.iter().enumerate().filter(|&(one, of)| is_contender(one, of));
        let waits_for = contenders.fold(0, |cpus, (_, of)| {
            narrow(of);
            cpus | of.mask
        });
        let own_items = item.graph.iter().map(|&one| (one, self.item(one)));
        let serial_rest = own_items
            .filter(|&(one, of)| is_contender(one, of) && !item.after.contains(&one))
            .fold(0, |sum: u64, (_, of)| sum.saturating_add(of.cost));
        let is_bound = stays && (!is_start || waits_for != 0);
        let is_serial = mutate!("tree-precedence-bound", is_bound, false);
        let parallel = if is_serial { 1 } else { u64::from(least.max(1)) };
        let meets = |of: &Item| of.mask & mask != 0;
        let blocks = |of: &Item| {
            meets(of)
                && match system.order {
                    Order::Keys => !in_level(of),
                    Order::Deadlines => true,
                    Order::Any => false,
                }
        };
        // Nodes of the same activation that may come first are in `rest`, and no other activation
        // is pending.
        let others = || {
            let is_own = |other: usize| item.graph.contains(&other) && system.order != Order::Keys;
            system.items.iter().enumerate().filter(move |&(other, _)| other != at && !is_own(other))
        };
        // Rests of the jobs that each CPU may have started before.
        let mut started: Vec<u64> = Vec::new();
        if !system.preemptive {
            if system.items.iter().any(|of| !of.is_known && meets(of)) {
                return Some(None);
            }
            started.extend(others().filter(|&(_, of)| blocks(of)).map(|(_, of)| of.cost - 1));
            started.sort_unstable_by(|a, b| b.cmp(a));
        }
        let blocking = started.first().copied().unwrap_or(0);
        let longest = || started.iter().take(parallel as usize).sum::<u64>();
        let started = mutate!("tree-precedence-blocking", longest(), 0);
        let mut demands = Vec::new();
        let mut queued: BTreeMap<usize, Demand> = BTreeMap::new();
        for (other, of) in system.items.iter().enumerate() {
            let holds = of.uses & level_needs != 0;
            let is_counted = if item.graph.contains(&other) {
                holds && !in_level(of)
            } else {
                in_level(of) || holds
            };
            if !is_counted || !meets(of) {
                continue;
            }
            let Some(response) = self.responses[other] else { return Some(None) };
            let (most_jobs, most_work) = if system.order == Order::Deadlines && !holds {
                let reach = item.deadline.saturating_add(response).saturating_sub(of.deadline);
                let whole = (reach / of.period).saturating_mul(of.cost);
                let work = whole.saturating_add((reach % of.period).min(of.cost));
                (reach.div_ceil(of.period), work)
            } else {
                (u64::MAX, u64::MAX)
            };
            // A job that waits for an accelerator, or holds one, may have been released before.
            let late = match of.uses {
                0 => self.completion(&of.predecessors, of.jitter),
                _ => Some(response),
            };
            let Some(late) = late else { return Some(None) };
            // When an accelerator is free again, a job outside the level may have begun.
            let part_is_node = matches!(part, Part::Node);
            let is_contender = is_contender(other, of);
            let demand = Demand {
                cost: of.cost,
                period: of.period,
                response,
                late,
                most_jobs,
                most_work,
                again: if is_contender { blocking } else { 0 },
                is_contender,
            };
            if part_is_node && of.key == level && self.is_queue_of_chains(other) {
                // One job of the chain may have been released before.
                let longest = queued.entry(of.graph[0]).or_insert(Demand {
                    most_jobs: 1,
                    response: 0,
                    cost: 0,
                    ..demand
                });
                longest.response = longest.response.max(response);
                longest.cost =
                    mutate!("tree-precedence-queue", longest.cost.max(of.cost), longest.cost);
                longest.most_work = longest.cost;
            } else {
                demands.push(demand);
            }
        }
        demands.extend(queued.into_values());
        // Own nodes that hold accelerators can precede such a job once each.
        let own_again =
            if waits_for != 0 { blocking.saturating_mul(item.graph.len() as u64) } else { 0 };
        let Some(holders) = (if counts_holders { Some(0) } else { self.holders(level) }) else {
            return Some(None);
        };
        // Every CPU executes the level when a job waits or is preempted.
        let is_symmetric = system.items.iter().all(|of| of.mask == self.item(0).mask);
        let count = demands.len() + own_count;
        // A holder that is bound to the CPU of the item may preempt it by inheritance.
        let is_boosted = stays && level_needs != 0;
        if is_symmetric && system.preemptive && waits_for == 0 && holders == 0 && !is_boosted {
            let enough = mutate!("tree-precedence-few", count < least as usize, count < 9);
            if enough && length <= item.period.saturating_sub(release) {
                return Some(Some(release.saturating_add(length)));
            }
        }
        let hops = if system.cpus > 1 { hops } else { 1 };
        let extra = rest.saturating_add(holders).saturating_add(started.saturating_mul(hops));
        // A job that is not preempted meets no work after its start.
        let last = if system.preemptive && !is_start { 0 } else { item.cost };
        let (ahead, reach) = (length - last, u64::from(last > 0));
        let fixed = ahead.saturating_add(serial_rest).saturating_add(own_again);
        let limit = item.period.saturating_sub(release);
        let (contenders, others): (Vec<Demand>, Vec<Demand>) = demands
            .into_iter()
            .partition(|of| mutate!("tree-precedence-contender", of.is_contender, false));
        let mut window = fixed;
        let mut growths = Vec::with_capacity(others.len());
        while window <= limit {
            *steps = steps.checked_sub(1 + (contenders.len() + others.len()) as u64)?;
            let most = window - ahead + 1;
            let work = |of: &Demand| of.work(window + reach).min(most);
            let sum = others.iter().map(work).fold(extra, u64::saturating_add);
            // A contender executes while the item waits for its accelerator.
            let serial =
                contenders.iter().map(|of| work(of).saturating_add(of.blocking(window + reach)));
            let next = serial.fold(fixed, u64::saturating_add).saturating_add(sum / parallel);
            if next <= window {
                let after = match part {
                    Part::Start => {
                        let demands = || contenders.iter().chain(&others);
                        after_start(rest + item.cost, demands, limit, steps)?
                    }
                    Part::Chain | Part::Node => Some(last),
                };
                return Some(
                    after.map(|after| release.saturating_add(window).saturating_add(after)),
                );
            }
            // While `parallel` demands or one contender grow with the window, each window is too
            // short.
            let growth = |of: &Demand| of.growth(window + reach, most);
            growths.clear();
            growths.extend(others.iter().map(growth));
            let place = growths.len().checked_sub(parallel as usize);
            let jump = place.map_or(0, |place| *growths.select_nth_unstable(place).1);
            let jump = contenders.iter().map(growth).fold(jump, u64::max);
            window = next.max(window.saturating_add(jump));
        }
        Some(None)
    }

    /// Whether equal keys are served in the order of release, and the graph of `at` is a chain of
    /// tasks with equal keys, of which one is released at a time.
    fn is_queue_of_chains(&self, at: usize) -> bool {
        let system = self.system;
        let graph = &self.item(at).graph;
        let is_ordered = |&one: &usize| {
            let of = self.item(one);
            of.key == self.item(at).key && of.before.len() + of.after.len() == graph.len()
        };
        system.keeps_order
            && system.items.iter().all(|of| of.uses == 0)
            && graph.iter().all(is_ordered)
    }

    /// Returns the latest completion of `predecessors`, at least `release`; `None` if one has no
    /// bound.
    fn completion(&self, predecessors: &[usize], release: u64) -> Option<u64> {
        predecessors
            .iter()
            .try_fold(release, |latest, &one| self.responses[one].map(|of| latest.max(of)))
    }

    /// Returns the longest blocking of `level` by jobs outside it that hold accelerators, on one
    /// CPU; `None` if it has no bound.
    fn holders(&self, level: u64) -> Option<u64> {
        if self.system.preemptive { self.holders_on(u64::MAX, level) } else { Some(0) }
    }

    /// Returns [`Forms::holders`] among the items that may use a CPU of `mask`.
    fn holders_on(&self, mask: u64, level: u64) -> Option<u64> {
        let items = || self.system.items.iter().filter(|of| of.mask & mask != 0);
        let needs = items().filter(|of| of.key <= level).fold(0, |bits, of| bits | of.uses);
        let outside = || items().filter(|of| of.key > level);
        let is_known = outside().all(|of| of.is_known || of.uses & needs == 0);
        let longest = mutate!("tree-precedence-holders", blocking(outside(), needs), 0);
        is_known.then_some(longest)
    }

    /// Returns the longest rest of a non-preemptive job outside `level` that has started on the CPU
    /// of `mask`; `None` if it has no bound.
    fn started_on(&self, mask: u64, level: u64) -> Option<u64> {
        let items = || self.system.items.iter().filter(|of| of.mask & mask != 0);
        let longest = items().filter(|of| of.key > level).map(|of| of.cost).max().unwrap_or(1);
        let rest = mutate!("tree-precedence-started", longest - 1, 0);
        items().all(|of| of.is_known).then_some(rest)
    }

    /// Whether the items on the CPU of `mask` share accelerators only with each other.
    fn shares_here(&self, mask: u64) -> bool {
        let uses = |is_here: bool| {
            let items = self.system.items.iter().filter(|of| (of.mask & mask != 0) == is_here);
            items.fold(0, |bits, of| bits | of.uses)
        };
        uses(true) & uses(false) == 0
    }

    /// Returns the local form: `Some(None)` if the item has no bound by it.
    pub(super) fn local(&self, at: usize, steps: &mut u64) -> Steps<Option<u64>> {
        let system = self.system;
        let item = self.item(at);
        let is_covered =
            system.order == Order::Keys && item.is_pinned() && self.shares_here(item.mask);
        // A task that may use this CPU and others may arrive here at any distance.
        let is_apart = |of: &Item| of.mask & item.mask == 0 || of.is_pinned();
        if !is_covered || !system.items.iter().all(is_apart) {
            return Some(None);
        }
        let is_here = |one: usize| self.item(one).mask == item.mask;
        // Local chain back from the item, and the latest completion of the predecessors elsewhere.
        let mut chain = vec![at];
        let mut release = Some(item.jitter);
        let mut next = 0;
        while let Some(&one) = chain.get(next) {
            next += 1;
            for &predecessor in &self.item(one).predecessors {
                if !is_here(predecessor) {
                    release = release.zip(self.responses[predecessor]).map(|(a, b)| a.max(b));
                } else if !chain.contains(&predecessor) {
                    chain.push(predecessor);
                }
            }
        }
        let Some(release) = release else { return Some(None) };
        let level = self.level(chain.iter().copied());
        let in_level = |one: usize| self.item(one).key <= level && is_here(one);
        // Latest release of an item of the level; `None` if it has no bound.
        let jitter = |one: usize| {
            let of = self.item(one);
            if of.before.iter().all(|&one| in_level(one)) {
                return Some(of.jitter);
            }
            self.completion(&of.predecessors, of.jitter)
        };
        let (mut own, mut own_all, mut own_release) = (0u64, 0u64, release);
        let mut others: Vec<(u64, u64, u64)> = Vec::new();
        for (one, of) in system.items.iter().enumerate().filter(|&(one, _)| in_level(one)) {
            let Some(latest) = jitter(one).filter(|_| of.is_known) else { return Some(None) };
            let jitter = mutate!("tree-precedence-jitter", latest, of.jitter);
            if item.graph.contains(&one) {
                own_all = own_all.saturating_add(of.cost);
                own_release = own_release.max(jitter);
                if !item.after.contains(&one) {
                    own = own.saturating_add(of.cost);
                }
            } else {
                match others.iter_mut().find(|other| (other.1, other.2) == (of.period, jitter)) {
                    Some(other) => other.0 = other.0.saturating_add(of.cost),
                    None => others.push((of.cost, of.period, jitter)),
                }
            }
        }
        let blocking = if system.preemptive {
            self.holders_on(item.mask, level)
        } else {
            self.started_on(item.mask, level)
        };
        let Some(blocking) = blocking else { return Some(None) };
        // `last` of the work meets no other work after its start.
        let mut window = |work: u64, last: u64, release: u64| -> Steps<Option<u64>> {
            let limit = item.period.saturating_sub(release);
            let mut window = work - last;
            while window <= limit {
                *steps = steps.checked_sub(1 + others.len() as u64)?;
                let next = others.iter().fold(work - last, |sum, &(cost, period, jitter)| {
                    let reach = window.saturating_add(u64::from(last > 0)).saturating_add(jitter);
                    sum.saturating_add(reach.div_ceil(period).saturating_mul(cost))
                });
                if next <= window {
                    return Some(Some(release.saturating_add(window).saturating_add(last)));
                }
                window = next;
            }
            Some(None)
        };
        // The whole local work ends before the next arrival.
        if window(own_all.saturating_add(blocking), 0, own_release)?.is_none() {
            return Some(None);
        }
        let last = if system.preemptive { 0 } else { item.cost };
        window(own.saturating_add(blocking), last, release)
    }

    /// Returns the deadline form of all items.
    pub(super) fn by_deadline(&self, steps: &mut u64) -> Vec<Option<u64>> {
        let system = self.system;
        let mut found = vec![None; system.items.len()];
        if system.order != Order::Deadlines || !system.preemptive {
            return found;
        }
        for cpu in 0..system.cpus {
            let mask = 1 << cpu;
            let here: Vec<usize> =
                (0..system.items.len()).filter(|&one| self.item(one).mask & mask != 0).collect();
            let is_local = |&one: &usize| self.item(one).mask == mask && self.item(one).is_known;
            if !here.iter().all(is_local) || !self.shares_here(mask) {
                continue;
            }
            let Some((groups, tasks)) = self.groups(mask, here) else { continue };
            let mut out = vec![None; tasks.len()];
            if edf_response::bounds(&tasks, &mut Scratch::with_limit(*steps), &mut out).is_err() {
                continue;
            }
            for (one, group) in groups {
                found[one] = out[group].map(|bound| bound.arrival.as_ns());
            }
        }
        found
    }

    /// Returns the group of each item in `here`, the items on the CPU of `mask`, and each group as
    /// one task; `None` if a predecessor on another CPU has no bound.
    fn groups(
        &self,
        mask: u64,
        mut here: Vec<usize>,
    ) -> Option<(BTreeMap<usize, usize>, Vec<Sporadic>)> {
        here.sort_by_key(|&one| self.item(one).before.len());
        let mut groups: BTreeMap<usize, usize> = BTreeMap::new();
        let mut tasks: Vec<Sporadic> = Vec::new();
        for one in here {
            let of = self.item(one);
            let deadline = Span::from_ns(of.deadline);
            // Graph roots arrive together. Another item joins the one group that releases it.
            let roots = of.graph.iter().filter(|&&root| self.item(root).predecessors.is_empty());
            let mut before = match of.predecessors.as_slice() {
                [] => roots.filter_map(|root| groups.get(root)).map(Some).collect(),
                predecessors => {
                    predecessors.iter().map(|from| groups.get(from)).collect::<Vec<_>>()
                }
            };
            before.dedup();
            let group = match before.as_slice() {
                &[Some(&group)] if tasks[group].deadline == deadline => group,
                _ => {
                    tasks.push(Sporadic {
                        jitter: Span::from_ns(self.completion(&of.predecessors, of.jitter)?),
                        blocking: Work::from_ns(self.holders_by_deadline(mask, of.deadline)),
                        ..Sporadic::new(Work::ZERO, Span::from_ns(of.period), deadline)
                    });
                    tasks.len() - 1
                }
            };
            let work = tasks[group].cost.as_ns().saturating_add(of.cost);
            tasks[group].cost = Work::from_ns(work);
            groups.insert(one, group);
        }
        Some((groups, tasks))
    }

    /// Returns the longest blocking of jobs with a relative deadline of `deadline` or more, by jobs
    /// with later deadlines that hold accelerators.
    fn holders_by_deadline(&self, mask: u64, deadline: u64) -> u64 {
        let items = || self.system.items.iter().filter(|of| of.mask & mask != 0);
        let at = |last: u64| {
            let needs = items().filter(|of| of.deadline <= last).fold(0, |bits, of| bits | of.uses);
            blocking(items().filter(|of| of.deadline > last), needs)
        };
        let later = items().map(|of| of.deadline).filter(|&other| other >= deadline);
        mutate!("tree-precedence-holders-edf", later.map(at).max().unwrap_or(0), 0)
    }
}

/// Returns the longest time from the start of an item to its completion, with `work` of its graph;
/// `Some(None)` beyond `limit`.
fn after_start<'d, I: Iterator<Item = &'d Demand>>(
    work: u64,
    demands: impl Fn() -> I,
    limit: u64,
    steps: &mut u64,
) -> Steps<Option<u64>> {
    let mut window = work;
    while window <= limit {
        *steps = steps.checked_sub(1 + demands().count() as u64)?;
        let later = demands().map(|of| of.later_work(window));
        let next = later.fold(work, u64::saturating_add);
        if next <= window {
            return Some(Some(window));
        }
        window = next;
    }
    Some(None)
}

/// Returns the longest work of `outside` that can hold accelerators in `needs` at one instant: one
/// job of each task, and one for each accelerator.
fn blocking<'i>(outside: impl Iterator<Item = &'i Item>, needs: u64) -> u64 {
    let (mut by_task, mut by_accelerator) = (0u64, [0u64; 64]);
    for of in outside.filter(|of| of.uses & needs != 0) {
        by_task = by_task.saturating_add(of.cost);
        for (bit, longest) in by_accelerator.iter_mut().enumerate() {
            if of.uses & needs & (1 << bit) != 0 {
                *longest = of.cost.max(*longest);
            }
        }
    }
    by_task.min(by_accelerator.iter().fold(0, |sum, &longest| sum.saturating_add(longest)))
}
