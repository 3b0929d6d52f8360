//! Priority inheritance and ceilings (Y8): the paper's oracle, trees, and a reference model.

use crate::harness::{Log, cost, listed, run, span, task, work};
use talea_core::criteria::Overrides;
use talea_core::engine::{
    AcceleratorId, Affinity, Migration, NodeId, Notification, Protocol, ResourceId, SchedulerSpec,
    TaskSpec, Tree, Version,
};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_sim::{Arrivals, Cost, Source};

fn uses(gpu: AcceleratorId) -> Vec<Version> {
    vec![Version { accelerators: vec![gpu], ..Version::new("gpu") }]
}

/// Y-O4: simulates three tasks and returns their completions. L (C 20, d 100) has the accelerator
/// from 0, M (C 30, d 65) arrives at 5, and H (C 10, d 51) requests the accelerator at 6.
fn oracle_4(policy: PolicySpec, inheritance: bool) -> [u64; 3] {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
    tree.inheritance = inheritance;
    let gpu = tree.accelerator("gpu");
    for (name, deadline, priority, wants) in
        [("L", 100, 1, true), ("M", 60, 2, false), ("H", 45, 3, true)]
    {
        let versions = if wants { uses(gpu) } else { Vec::new() };
        tree.task(Tree::ROOT, TaskSpec { priority, versions, ..task(name, deadline) });
    }
    let log = run(
        &tree,
        &[listed(&[0], cost(20)), listed(&[5], cost(30)), listed(&[6], cost(10))],
        1_000,
    );
    [log.ends(0)[0], log.ends(1)[0], log.ends(2)[0]]
}

#[test]
fn y8_oracle_4_without_and_with_inheritance_under_deadlines_and_priorities() {
    for policy in [PolicySpec::Edf, PolicySpec::FixedPriority, PolicySpec::DeadlineMonotonic] {
        assert_eq!(oracle_4(policy.clone(), false), [50, 35, 60], "{}", policy.name());
        assert_eq!(oracle_4(policy.clone(), true), [21, 60, 31], "{}", policy.name());
    }
}

/// Y-O4 with each task in a scheduler of its own.
fn oracle_4_in_groups(group: impl Fn(&str, u8) -> SchedulerSpec, policy: PolicySpec) -> [u64; 3] {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", policy));
    let gpu = tree.accelerator("gpu");
    for (name, deadline, priority, wants) in
        [("L", 100, 1, true), ("M", 60, 2, false), ("H", 45, 3, true)]
    {
        let versions = if wants { uses(gpu) } else { Vec::new() };
        let group = tree.scheduler(Tree::ROOT, group(name, priority));
        tree.task(group, TaskSpec { priority, versions, ..task(name, deadline) });
    }
    let log = run(
        &tree,
        &[listed(&[0], cost(20)), listed(&[5], cost(30)), listed(&[6], cost(10))],
        1_000,
    );
    [log.ends(0)[0], log.ends(1)[0], log.ends(2)[0]]
}

#[test]
fn y8_the_key_reaches_a_holder_in_another_subtree() {
    let plain = |name: &str, _| SchedulerSpec::new(name, PolicySpec::Fifo);
    assert_eq!(oracle_4_in_groups(plain, PolicySpec::Edf), [21, 60, 31]);
    assert_eq!(oracle_4_in_groups(plain, PolicySpec::FixedPriority), [21, 60, 31]);
    // Groups with priorities of their own.
    let own = |name: &str, priority| SchedulerSpec {
        overrides: Overrides { priority: Some(10 * priority), ..Overrides::default() },
        ..SchedulerSpec::new(name, PolicySpec::Edf)
    };
    assert_eq!(oracle_4_in_groups(own, PolicySpec::FixedPriority), [21, 60, 31]);
    // Servers with ample budget, whose deadlines the root orders by.
    let served = |name: &str, priority: u8| SchedulerSpec {
        reservation: Some(Reservation::new(
            ServerKind::HardCbs,
            work(70),
            span(200 - 40 * u64::from(priority)),
        )),
        ..SchedulerSpec::new(name, PolicySpec::Edf)
    };
    assert_eq!(oracle_4_in_groups(served, PolicySpec::Edf), [21, 60, 31]);
}

#[test]
fn y8_inside_a_group_that_hides_its_children_the_holder_precedes_its_siblings() {
    // The group G has priority 10 and contains L (holds the accelerator, 1) and X (200). H has 20.
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let gpu = tree.accelerator("gpu");
    let group = SchedulerSpec {
        overrides: Overrides { priority: Some(10), ..Overrides::default() },
        ..SchedulerSpec::new("G", PolicySpec::FixedPriority)
    };
    let group = tree.scheduler(Tree::ROOT, group);
    tree.task(group, TaskSpec { priority: 1, versions: uses(gpu), ..task("L", 500) });
    tree.task(group, TaskSpec { priority: 200, ..task("X", 500) });
    tree.task(Tree::ROOT, TaskSpec { priority: 20, versions: uses(gpu), ..task("H", 500) });
    tree.task(Tree::ROOT, TaskSpec { priority: 15, ..task("Z", 500) });
    let sources = [
        listed(&[0], cost(10)),
        listed(&[2], cost(10)),
        listed(&[4], cost(10)),
        listed(&[5], cost(10)),
    ];
    let log = run(&tree, &sources, 1_000);
    // L 0-2, X 2-4, H arrives and waits: L 4-12 before X and Z, H 12-22, Z 22-32, X 32-40.
    assert_eq!([log.ends(0), log.ends(2), log.ends(3), log.ends(1)], [[12], [22], [32], [40]]);
}

#[test]
fn y8_a_group_without_overrides_keeps_its_more_urgent_children_first() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let gpu = tree.accelerator("gpu");
    let group = tree.scheduler(Tree::ROOT, SchedulerSpec::new("G", PolicySpec::FixedPriority));
    tree.task(group, TaskSpec { priority: 1, versions: uses(gpu), ..task("L", 500) });
    tree.task(group, TaskSpec { priority: 200, ..task("X", 500) });
    tree.task(Tree::ROOT, TaskSpec { priority: 20, versions: uses(gpu), ..task("H", 500) });
    let log = run(
        &tree,
        &[listed(&[0], cost(10)), listed(&[2], cost(10)), listed(&[1], cost(10))],
        1_000,
    );
    assert_eq!([log.ends(1), log.ends(0), log.ends(2)], [[12], [20], [30]]);
}

#[test]
fn y8_on_several_cpus_the_holder_resumes_on_one() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let gpu = tree.accelerator("gpu");
    tree.task(Tree::ROOT, TaskSpec { versions: uses(gpu), ..task("L", 500) });
    tree.task(Tree::ROOT, task("M1", 60));
    tree.task(Tree::ROOT, task("M2", 61));
    tree.task(Tree::ROOT, TaskSpec { versions: uses(gpu), ..task("H", 40) });
    let arrivals = |inheritance: bool| {
        let mut tree = tree.clone();
        tree.inheritance = inheritance;
        let sources = [
            listed(&[0], cost(10)),
            listed(&[1], cost(30)),
            listed(&[1], cost(30)),
            listed(&[2], cost(5)),
        ];
        run(&tree, &sources, 1_000)
    };
    // L has its accelerator and is preempted at 1. H arrives at 2: with its key L preempts M2 and
    // completes at 11.
    let log = arrivals(true);
    assert_eq!([log.ends(0), log.ends(3), log.ends(1), log.ends(2)], [[11], [16], [31], [45]]);
    let log = arrivals(false);
    assert_eq!([log.ends(1), log.ends(2), log.ends(0), log.ends(3)], [[31], [31], [40], [45]]);
}

#[test]
fn y8_a_job_blocked_before_its_start_is_not_bound_to_that_cpu() {
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    tree.migration = Migration::JobBoundaries;
    let gpu = tree.accelerator("gpu");
    tree.task(Tree::ROOT, TaskSpec { versions: uses(gpu), ..task("L", 500) });
    tree.task(Tree::ROOT, TaskSpec { versions: uses(gpu), ..task("W", 400) });
    tree.task(Tree::ROOT, task("X", 50));
    // W would have had CPU 1 at 2. X has it from 3 to 53; L releases CPU 0 and the accelerator at
    // 10.
    let log =
        run(&tree, &[listed(&[0], cost(10)), listed(&[2], cost(5)), listed(&[3], cost(50))], 100);
    assert_eq!((log.starts(1), log.ends(1), log.ends(2)), (vec![10], vec![15], vec![53]));
}

#[test]
fn y8_inheritance_is_transitive() {
    // L locks R. H1 has the accelerator and waits for R; H2 waits for the accelerator. M arrives
    // between.
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let gpu = tree.accelerator("gpu");
    let r = tree.resource("r", Protocol::Inheritance);
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], ..task("L", 400) });
    tree.task(Tree::ROOT, TaskSpec { uses: vec![r], versions: uses(gpu), ..task("H1", 300) });
    tree.task(Tree::ROOT, task("M", 200));
    tree.task(Tree::ROOT, TaskSpec { versions: uses(gpu), ..task("H2", 100) });
    let sources = [
        listed(&[0], cost(20).locking(r, work(1), work(11))),
        listed(&[3], cost(10).locking(r, work(2), work(4))),
        listed(&[8], cost(50)),
        listed(&[9], cost(5)),
    ];
    let log = run(&tree, &sources, 1_000);
    // L 0-3, H1 3-5 until it requests R, L 5-8, M 8-9, H2 arrives: its key passes through H1 to L,
    // which unlocks after 5 more at 14; H1 14-22; H2 22-27; M 27-76; L 76-85.
    assert_eq!([log.ends(1), log.ends(3), log.ends(2), log.ends(0)], [[22], [27], [76], [85]]);
}

#[test]
fn y8_affinities_do_not_prevent_inheritance() {
    // One engine, two CPUs, partitioned: L and M on CPU 0, H on CPU 1.
    let mut tree = Tree::new(2, SchedulerSpec::new("root", PolicySpec::Edf));
    let gpu = tree.accelerator("gpu");
    let on = |cpu, spec: TaskSpec| TaskSpec { affinity: Affinity::only(cpu), ..spec };
    tree.task(Tree::ROOT, on(0, TaskSpec { versions: uses(gpu), ..task("L", 500) }));
    tree.task(Tree::ROOT, on(0, task("M", 60)));
    tree.task(Tree::ROOT, on(1, TaskSpec { versions: uses(gpu), ..task("H", 40) }));
    let sources = [listed(&[0], cost(10)), listed(&[1], cost(30)), listed(&[2], cost(5))];
    let log = run(&tree, &sources, 1_000);
    assert_eq!([log.ends(0), log.ends(2), log.ends(1)], [[11], [16], [40]]);
    assert!(log.runs.iter().all(|&(_, cpu, task)| cpu == u32::from(task == 2)));
}

#[test]
fn a_deadlock_is_reported() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let (a, b) =
        (tree.resource("a", Protocol::Inheritance), tree.resource("b", Protocol::Inheritance));
    let first = tree.task(Tree::ROOT, TaskSpec { uses: vec![a, b], ..task("1", 500) });
    tree.task(Tree::ROOT, TaskSpec { uses: vec![a, b], ..task("2", 100) });
    let crossed = |a, b| cost(10).locking(a, work(1), work(9)).locking(b, work(4), work(6));
    let log = run(&tree, &[listed(&[0], crossed(a, b)), listed(&[2], crossed(b, a))], 100);
    assert_eq!(first, NodeId(1));
    assert!(log.ended.is_empty());
    assert!(
        matches!(log.notifications[..], [(_, Notification::Deadlock { .. })]),
        "{:?}",
        log.notifications
    );
    // With ceilings no job reaches this state.
    for spec in &mut tree.resources {
        spec.protocol = Protocol::Ceiling;
    }
    let log = run(&tree, &[listed(&[0], crossed(a, b)), listed(&[2], crossed(b, a))], 100);
    assert_eq!([log.ends(0), log.ends(1)], [[20], [19]]);
}

/// Task of the reference model, with small numbers.
#[derive(Clone, Debug)]
struct Plain {
    arrival: u64,
    /// Largest delay of the observation of its job.
    jitter: u64,
    cost: u64,
    /// Key without inheritance: the absolute deadline or the period.
    key: u64,
    relative_deadline: u64,
    /// Steps: (offset, lock or unlock, resource), sorted.
    steps: Vec<(u64, bool, usize)>,
}

#[derive(Clone, Debug)]
struct State {
    done: u64,
    next: usize,
    wants: Option<usize>,
    end: Option<u64>,
    last: usize,
    /// Whether a request of its job is blocked.
    stalled: bool,
}

/// Reference model, which advances nanosecond by nanosecond and recomputes all keys each time.
struct Model<'a> {
    tasks: &'a [Plain],
    protocol: Protocol,
    is_edf: bool,
    states: Vec<State>,
    holders: Vec<Option<usize>>,
    locked_at: Vec<u64>,
    cpus: Vec<Option<usize>>,
    /// `seen[t]`: time of observation of task `t`'s job.
    seen: Vec<u64>,
    now: u64,
}

impl Model<'_> {
    fn stalls(&self, task: usize) -> bool {
        self.states[task].wants.is_some_and(|r| !self.may(task, r)) && self.states[task].stalled
    }

    fn ceiling(&self, r: usize) -> u64 {
        let users = self.tasks.iter().filter(|task| task.steps.iter().any(|step| step.2 == r));
        let least =
            users.map(|task| if self.is_edf { task.relative_deadline } else { task.key }).min();
        least.expect("used") + if self.is_edf { self.locked_at[r] } else { 0 }
    }

    /// Whether `task` may lock `r`. The resource must be free. If it has a ceiling, no other task
    /// may hold a resource with a ceiling that the task uses.
    fn may(&self, task: usize, r: usize) -> bool {
        let is_others = |other: usize| self.holders[other].is_some_and(|holder| holder != task);
        let meets = |other: usize| self.uses(task, other) && is_others(other);
        self.holders[r].is_none()
            && (self.protocol != Protocol::Ceiling || !(0..self.holders.len()).any(meets))
    }

    fn uses(&self, task: usize, r: usize) -> bool {
        self.tasks[task].steps.iter().any(|step| step.2 == r)
    }

    /// Returns the smallest key of released tasks that use a resource held by `task`. The holders
    /// count transitively with the tasks that wait for them.
    fn met(&self, task: usize) -> u64 {
        let mut least = u64::MAX;
        for r in (0..self.holders.len()).filter(|&r| self.holders[r] == Some(task)) {
            for other in (0..self.tasks.len()).filter(|&other| other != task && self.uses(other, r))
            {
                let state = &self.states[other];
                if self.seen[other] <= self.now && state.end.is_none() {
                    least = least.min(self.tasks[other].key);
                }
                if state.wants.is_some() && self.stalls(other) {
                    least = least.min(self.met(other));
                }
            }
        }
        least
    }

    /// Returns the effective key of `task` by inheritance or ceilings, with the number of the task
    /// as tie-breaker.
    fn key(&self, task: usize) -> (u64, usize) {
        let mut key = self.tasks[task].key;
        for (r, holder) in self.holders.iter().enumerate() {
            if *holder != Some(task) {
                continue;
            }
            match self.protocol {
                Protocol::None => {}
                Protocol::Ceiling => key = key.min(self.ceiling(r)).min(self.met(task)),
                Protocol::Inheritance => {
                    for other in 0..self.tasks.len() {
                        if other != task
                            && self.states[other].wants == Some(r)
                            && self.stalls(other)
                        {
                            key = key.min(self.key(other).0);
                        }
                    }
                }
            }
        }
        (key, task)
    }

    /// Performs the steps of the task at this offset. Returns whether there were any.
    fn action(&mut self, now: u64, task: usize) -> bool {
        let mut acted = false;
        while self.states[task].wants.is_none()
            && let Some(&(offset, lock, r)) = self.tasks[task].steps.get(self.states[task].next)
            && offset == self.states[task].done
        {
            acted = true;
            self.states[task].next += 1;
            match (lock, self.may(task, r)) {
                (false, _) => self.holders[r] = None,
                (true, true) => (self.holders[r], self.locked_at[r]) = (Some(task), now),
                (true, false) => {
                    (self.states[task].wants, self.states[task].stalled) = (Some(r), true);
                    // It has left its CPU, even if it is assigned another one at this instant.
                    self.cpus
                        .iter_mut()
                        .filter(|cpu| **cpu == Some(task))
                        .for_each(|cpu| *cpu = None);
                }
            }
        }
        // A task whose request may succeed now is no longer blocked.
        for task in 0..self.tasks.len() {
            if self.states[task].wants.is_some_and(|r| self.may(task, r)) {
                self.states[task].stalled = false;
            }
        }
        acted
    }

    fn decide(&mut self, now: u64) {
        loop {
            // A task that may not run leaves its CPU.
            for cpu in 0..self.cpus.len() {
                if self.cpus[cpu]
                    .is_some_and(|task| self.states[task].end.is_some() || self.stalls(task))
                {
                    self.cpus[cpu] = None;
                }
            }
            let mut waiting: Vec<usize> = (0..self.tasks.len())
                .filter(|&task| self.seen[task] <= now && self.states[task].end.is_none())
                .filter(|&task| !self.stalls(task) && !self.cpus.contains(&Some(task)))
                .collect();
            waiting.sort_by_key(|&task| self.key(task));
            if let Some(&best) = waiting.first() {
                let last = self.states[best].last;
                let idle = if self.cpus[last].is_none() {
                    Some(last)
                } else {
                    self.cpus.iter().position(Option::is_none)
                };
                let worst = (0..self.cpus.len())
                    .max_by_key(|&cpu| self.cpus[cpu].map(|task| self.key(task)));
                let worst = worst.filter(|&cpu| {
                    self.cpus[cpu].is_some_and(|task| self.key(best) < self.key(task))
                });
                if let Some(cpu) = idle.or(worst) {
                    self.cpus[cpu] = Some(best);
                    self.states[best].last = cpu;
                    continue;
                }
            }
            // Selected tasks with a pending request, the most urgent first.
            let mut running: Vec<usize> = self.cpus.iter().flatten().copied().collect();
            running.sort_by_key(|&task| self.key(task));
            let Some(&task) = running.iter().find(|&&task| self.states[task].wants.is_some())
            else {
                return;
            };
            let r = self.states[task].wants.expect("just found");
            if self.may(task, r) {
                (self.holders[r], self.locked_at[r]) = (Some(task), now);
                self.states[task].wants = None;
            } else {
                self.states[task].stalled = true;
            }
        }
    }

    fn run(mut self) -> Vec<Option<u64>> {
        for now in 0..400 {
            self.now = now;
            if self.states.iter().all(|state| state.end.is_some()) {
                break;
            }
            for cpu in 0..self.cpus.len() {
                let Some(task) = self.cpus[cpu] else { continue };
                self.action(now, task);
                if self.states[task].done == self.tasks[task].cost
                    && self.states[task].wants.is_none()
                {
                    self.states[task].end = Some(now);
                    self.cpus[cpu] = None;
                }
            }
            loop {
                self.decide(now);
                let cpus = self.cpus.clone();
                // Every task, independent of the others' steps.
                let actions: Vec<bool> =
                    cpus.iter().flatten().map(|&task| self.action(now, task)).collect();
                let acted = actions.contains(&true);
                if !acted {
                    break;
                }
            }
            for task in self.cpus.iter().flatten() {
                self.states[*task].done += 1;
            }
        }
        self.states.iter().map(|state| state.end).collect()
    }
}

/// Returns when the simulator observed each task's job.
fn seen(log: &Log, tasks: usize) -> Vec<u64> {
    let first = |task| log.arrived.iter().find(|arrival| arrival.1 == task);
    (0..tasks as u32).map(|task| first(task).map_or(u64::MAX, |arrival| arrival.0)).collect()
}

#[test]
fn y8_resources_under_three_protocols_agree_with_a_reference_model() {
    let mut rng = talea_sim::rng::Rng::new(8);
    let (mut waited, mut differ) = (0, 0);
    for case in 0..2_000 {
        let cpus = 1 + (case % 3) as u32;
        let is_edf = rng.below(2) == 0;
        let resources = 1 + rng.below(2) as usize;
        let tasks: Vec<Plain> = (0..3 + rng.below(6))
            .map(|_| {
                let cost = 1 + rng.below(12);
                let (arrival, relative_deadline) = (rng.below(10), 1 + rng.below(60));
                let mut steps = Vec::new();
                // Nested in the order of the resources, so no job waits forever.
                let (mut from, mut to) = (0, cost);
                for r in 0..resources {
                    if rng.below(2) == 0 && to - from >= 1 {
                        let begin = from + rng.below(to - from);
                        let end = begin + 1 + rng.below(to - begin);
                        let place = steps
                            .iter()
                            .position(|&(at, lock, _)| (at, lock) >= (begin, true) && !lock);
                        let place = place.unwrap_or(steps.len());
                        steps.splice(place..place, [(begin, true, r), (end, false, r)]);
                        (from, to) = (begin, end);
                    }
                }
                let key = if is_edf { arrival + relative_deadline } else { relative_deadline };
                let jitter = rng.below(2) * rng.below(30);
                Plain { arrival, jitter, cost, key, relative_deadline, steps }
            })
            .collect();
        let mut all = Vec::new();
        for protocol in [Protocol::None, Protocol::Inheritance, Protocol::Ceiling] {
            let policy = if is_edf { PolicySpec::Edf } else { PolicySpec::RateMonotonic };
            let mut tree = Tree::new(cpus, SchedulerSpec::new("root", policy));
            let ids: Vec<ResourceId> =
                (0..resources).map(|r| tree.resource(&r.to_string(), protocol)).collect();
            let mut sources: Vec<Source> = Vec::new();
            for plain in &tasks {
                let mut spec = TaskSpec::new("t", span(if is_edf { 1_000 } else { plain.key }));
                spec.deadline = span(plain.relative_deadline);
                let locks = |r: &usize| plain.steps.iter().any(|step| step.2 == *r);
                spec.uses = (0..resources).filter(locks).map(|r| ids[r]).collect();
                tree.task(Tree::ROOT, spec);
                let mut job: Cost = cost(plain.cost);
                for r in (0..resources).filter(locks) {
                    let offset = |lock| {
                        plain
                            .steps
                            .iter()
                            .find(|step| (step.1, step.2) == (lock, r))
                            .expect("both")
                            .0
                    };
                    job = job.locking(ids[r], work(offset(true)), work(offset(false)));
                }
                let (offset, jitter) = (span(plain.arrival), span(plain.jitter));
                let arrivals = Arrivals::Periodic { offset, period: span(1_000_000), jitter };
                sources.push(Source { arrivals, cost: job });
            }
            let log = run(&tree, &sources, 400);
            let got: Vec<Option<u64>> =
                (0..tasks.len() as u32).map(|task| log.ends(task).first().copied()).collect();
            let state = State { done: 0, next: 0, wants: None, end: None, last: 0, stalled: false };
            let model = Model {
                tasks: &tasks,
                protocol,
                is_edf,
                states: vec![state; tasks.len()],
                holders: vec![None; resources],
                locked_at: vec![0; resources],
                cpus: vec![None; cpus as usize],
                seen: seen(&log, tasks.len()),
                now: 0,
            };
            assert_eq!(
                got,
                model.run(),
                "case {case}, {protocol:?}, {cpus} CPUs, edf {is_edf}\n{tasks:#?}"
            );
            all.push(got);
        }
        waited += usize::from(all[0] != all[1]);
        differ += usize::from(all[1] != all[2]);
    }
    assert!(waited > 50 && differ > 50, "the protocols must matter: {waited}, {differ}");
}
