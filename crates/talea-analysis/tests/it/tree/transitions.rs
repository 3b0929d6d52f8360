//! Switches between modes: no simulated delay and no response across a switch exceeds its bound.

use super::random_trees::{Family, random_tree};
use crate::rng::{Rng, every, rng, round, short_tasks};
use talea_analysis::Sporadic;
use talea_analysis::tree::transition::{SwitchBound, switch_bound};
use talea_analysis::tree::{RootModel, TaskBound};
use talea_core::engine::{SchedulerSpec, SwitchCause, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot, TableEntry};
use talea_core::workload::{Arrivals, Cost, Environment, Overheads, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

/// Mode of a root, with the bounds of its analysis.
struct Mode {
    tree: Tree,
    workload: Workload,
    overheads: Overheads,
    bounds: Vec<TaskBound>,
    switch: SwitchBound,
    scale: u64,
}

fn mode(tree: Tree, workload: Workload, overheads: Overheads, phases: bool, scale: u64) -> Mode {
    let mut model = RootModel::new(&tree, &workload.sources).with_phases_known(phases);
    model.overheads = overheads;
    model.steps = 1 << 15;
    let bounds = model.bounds();
    let switch = switch_bound(&model, &bounds);
    Mode { tree, workload, overheads, bounds, switch, scale }
}

fn span(ns: u64) -> Span {
    Span::from_ns(ns)
}

/// Returns a mode with a partition table and known phases. Many of its jobs complete in their
/// frames.
fn partitioned(rng: &mut Rng) -> Mode {
    let frame = [12, 16, 24][rng.below(3) as usize];
    let cut = rng.between(frame / 3, 2 * frame / 3);
    let slots = vec![
        Slot { start: Span::ZERO, end: span(cut), owner: 0 },
        Slot { start: span(cut), end: span(frame), owner: 1 },
    ];
    let policy = PolicySpec::Partitions { frame: span(frame), slots, lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("table", policy));
    let mut sources = Vec::new();
    for _ in 0..2 {
        let policy = if rng.below(2) == 0 { PolicySpec::Edf } else { PolicySpec::FixedPriority };
        let partition = tree.scheduler(Tree::ROOT, SchedulerSpec::new("partition", policy));
        for at in 0..rng.between(1, 2) {
            let period = [frame, frame, frame / 2][rng.below(3) as usize];
            let mut spec = TaskSpec::new("task", span(period));
            spec.priority = at as u8;
            tree.task(partition, spec);
            let offset = span(rng.below(2) * rng.below(period));
            let jitter = Span::ZERO;
            let arrivals = Arrivals::Periodic { offset, period: span(period), jitter };
            sources
                .push(Source { arrivals, cost: Cost::Constant(Work::from_ns(rng.between(1, 3))) });
        }
    }
    mode(tree, Workload { sources, seed: rng.below(1 << 32) }, Overheads::default(), true, 1)
}

/// Returns a mode with an off-line table, whose entries or periods release jobs.
fn tabled(rng: &mut Rng) -> Mode {
    let hyperperiod = 24;
    let (mut entries, mut at) = (Vec::new(), 0);
    let activates = [rng.below(2) == 0, rng.below(2) == 0];
    while at + 2 < hyperperiod {
        let start = at + rng.below(3);
        let end = (start + rng.between(1, 6)).min(hyperperiod);
        let owner = rng.below(2) as u32;
        let mut entry = TableEntry::new(0, span(start), span(end.max(start + 1)), owner);
        entry.activates = activates[owner as usize];
        entries.push(entry);
        at = end.max(start + 1);
    }
    let has = |owner: u32| entries.iter().any(|entry: &TableEntry| entry.owner == owner);
    let is_released = [0, 1].map(|owner| activates[owner as usize] && has(owner));
    let policy = PolicySpec::Table { hyperperiod: span(hyperperiod), entries };
    let mut tree = Tree::new(1, SchedulerSpec::new("table", policy));
    let mut sources = Vec::new();
    for by_table in is_released {
        let period = span([24, 12, 8][rng.below(3) as usize]);
        tree.task(Tree::ROOT, TaskSpec::new("task", period));
        let offset = span(rng.below(2) * rng.below(8));
        let arrivals = if by_table {
            Arrivals::List(Vec::new())
        } else {
            Arrivals::Periodic { offset, period, jitter: span(rng.below(2)) }
        };
        sources.push(Source { arrivals, cost: Cost::Constant(Work::from_ns(rng.between(1, 4))) });
    }
    mode(tree, Workload { sources, seed: rng.below(1 << 32) }, Overheads::default(), false, 1)
}

fn random_mode(rng: &mut Rng) -> Mode {
    let family = match rng.below(8) {
        0 | 1 => return partitioned(rng),
        2 => return tabled(rng),
        3 => Family::Mixed,
        4 => Family::NonPreemptive,
        5 => Family::Overheads,
        _ => Family::Flat,
    };
    let of = random_tree(rng, family);
    mode(of.tree, of.workload, of.overheads, false, of.scale)
}

/// Results of a number of mode changes.
#[derive(Debug, Default)]
struct Tally {
    idle: u64,
    frames: u64,
    limits: u64,
    /// Switches without pending jobs, as proved.
    clean: u64,
    /// Switches with a delay.
    late: u64,
}

/// Simulates a mode up to a switch at a random request, and checks delay and responses.
fn leave(of: &Mode, rng: &mut Rng, tally: &mut Tally) {
    let engine = of.tree.build().expect("a tree");
    let surroundings = Environment { overheads: of.overheads, ..Environment::default() };
    let mut world =
        Simulation::new(engine, of.tree.cpus, &of.workload).with_environment(&surroundings);
    let request = Time::from_ns(rng.below(200 * of.scale));
    let mut jobs = Jobs::default();
    let instant = world.run_to_switch(&of.switch.rule, request, &mut jobs);
    match instant.cause {
        SwitchCause::Idle => tally.idle += 1,
        SwitchCause::FrameEnd => tally.frames += 1,
        SwitchCause::Limit => tally.limits += 1,
    }
    let delay = instant.at.since(request);
    assert!(delay <= of.switch.delay, "{delay} > {:?}\n{:?}", of.switch, of.tree);
    tally.late += u64::from(!delay.is_zero());
    if of.switch.is_clean.is_ok() {
        tally.clean += 1;
        let is_idle = world.is_idle_at(instant.at);
        assert!(is_idle, "a job is pending at {instant:?}\n{:?}\n{:?}", of.tree, of.workload);
    }
    let last: Vec<_> = world.completions_at(instant.at).collect();
    for job in jobs.ended.iter().chain(&last) {
        if let Ok(bound) = of.bounds[job.task.0 as usize].bound {
            assert!(job.response() <= bound, "{job:?} > {bound}\n{:?}", of.tree);
        }
    }
}

#[test]
fn d41_random_mode_changes_keep_the_bounds_of_delay_and_response() {
    let changes = if round().is_some() { 100_000 } else { 600 };
    let (mut rng, mut tally) = (rng(0xD41), Tally::default());
    // Each mode starts with a time zero of its own, as after a switch, and is then left.
    for _ in 0..changes {
        let old = random_mode(&mut rng);
        leave(&old, &mut rng, &mut tally);
    }
    println!("{tally:?}");
    let Tally { idle, frames, clean, late, .. } = tally;
    let few = changes / 20;
    assert!(idle > few && frames > few && clean > changes / 4 && late > few, "{tally:?}");
}

/// Job of the plain simulation below.
struct PlainJob {
    is_new: bool,
    task: usize,
    arrival: u64,
    deadline: u64,
    left: u64,
}

/// Reference model: simulates a switch of one CPU tick by tick, on one time line, without the
/// engine and without the code of the rule. Each task is released at the start of its mode and then
/// periodically. With `at_once` the switch happens at the request, and pending jobs continue.
/// Returns the delay of the switch, and the longest response of each task of both modes.
fn plain(
    [old, new]: [&[Sporadic]; 2],
    is_edf: bool,
    request: u64,
    at_once: bool,
) -> (u64, [Vec<u64>; 2]) {
    let mut responses = [vec![0; old.len()], vec![0; new.len()]];
    let mut jobs: Vec<PlainJob> = Vec::new();
    let mut switch = None;
    for now in 0.. {
        if switch.is_none() && now >= request && (jobs.is_empty() || at_once) {
            switch = Some(now);
        }
        let (tasks, start) = if let Some(at) = switch { (new, at) } else { (old, 0) };
        if switch.is_some_and(|at| now > at + 60) {
            break;
        }
        for (task, of) in tasks.iter().enumerate() {
            if (now - start) % of.period.as_ns() == 0 {
                let deadline = now + of.deadline.as_ns();
                let left = of.cost.as_ns();
                jobs.push(PlainJob {
                    is_new: switch.is_some(),
                    task,
                    arrival: now,
                    deadline,
                    left,
                });
            }
        }
        let urgency = |job: &PlainJob| {
            let key = if is_edf { job.deadline } else { job.task as u64 };
            (key, job.task, job.arrival)
        };
        let Some(at) = (0..jobs.len()).min_by_key(|&at| urgency(&jobs[at])) else { continue };
        jobs[at].left -= 1;
        if jobs[at].left == 0 {
            let PlainJob { is_new, task, arrival, .. } = jobs.remove(at);
            let longest = &mut responses[usize::from(is_new)][task];
            *longest = (*longest).max(now + 1 - arrival);
        }
        assert!(now < 10_000, "the switch happens");
    }
    (switch.expect("a switch") - request, responses)
}

/// Returns the bounds of a flat mode: of its switch, and of the response of each task.
fn flat(tasks: &[Sporadic], is_edf: bool) -> (SwitchBound, Vec<TaskBound>) {
    let policy = if is_edf { PolicySpec::Edf } else { PolicySpec::FixedPriority };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    let mut sources = Vec::new();
    for (at, task) in tasks.iter().enumerate() {
        let mut spec = TaskSpec::new("task", task.period);
        (spec.deadline, spec.priority) = (task.deadline, 100 - at as u8);
        tree.task(Tree::ROOT, spec);
        let arrivals =
            Arrivals::Periodic { offset: Span::ZERO, period: task.period, jitter: Span::ZERO };
        sources.push(Source { arrivals, cost: Cost::Constant(task.cost) });
    }
    let model = RootModel::new(&tree, &sources);
    let bounds = model.bounds();
    (switch_bound(&model, &bounds), bounds)
}

fn exceeds(responses: &[u64], bounds: &[TaskBound]) -> bool {
    let over = |(longest, bound): (&u64, &TaskBound)| {
        bound.bound.as_ref().is_ok_and(|bound| *longest > bound.as_ns())
    };
    responses.iter().zip(bounds).any(over)
}

/// Checks every request in a hyperperiod of the old mode, under fixed priorities and EDF. Returns
/// the number of switches, and of those that exceed a bound if they happen at once.
fn every_request(old: &[Sporadic], new: &[Sporadic]) -> (u64, u64) {
    let (mut switches, mut violations) = (0, 0);
    for is_edf in [false, true] {
        let (switch, old_bounds) = flat(old, is_edf);
        let (_, new_bounds) = flat(new, is_edf);
        if switch.is_clean.is_err() {
            continue;
        }
        let hyperperiod = old.iter().fold(1, |all, task| lcm(all, task.period.as_ns()));
        let mut longest = 0;
        for request in 0..=hyperperiod {
            let (delay, responses) = plain([old, new], is_edf, request, false);
            let case = || format!("{old:?} to {new:?} at {request}, EDF: {is_edf}");
            assert!(delay <= switch.delay.as_ns(), "{delay} > {switch:?}, {}", case());
            assert!(!exceeds(&responses[0], &old_bounds), "{responses:?}, {}", case());
            assert!(!exceeds(&responses[1], &new_bounds), "{responses:?}, {}", case());
            longest = longest.max(delay);
            switches += 1;
            let (_, responses) = plain([old, new], is_edf, request, true);
            let is_violated =
                exceeds(&responses[0], &old_bounds) || exceeds(&responses[1], &new_bounds);
            violations += u64::from(is_violated);
        }
        // A request one tick after all tasks are released waits longest.
        assert_eq!(longest + 1, switch.delay.as_ns(), "{old:?}, EDF: {is_edf}");
    }
    (switches, violations)
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

#[test]
fn d41_every_request_between_small_modes_keeps_the_bounds_and_a_swap_at_once_does_not() {
    let mut rng = rng(0xD420);
    let (mut switches, mut violations) = (0, 0);
    let mut check = |old: &[Sporadic], choices: &[Sporadic]| {
        let new: Vec<Sporadic> =
            old.iter().map(|_| choices[rng.below(choices.len() as u64) as usize]).collect();
        let (all, violated) = every_request(old, &new);
        (switches, violations) = (switches + all, violations + violated);
    };
    let short = short_tasks();
    every(&short, 2, |old| check(old, &short));
    let implicit: Vec<Sporadic> = short
        .iter()
        .filter(|task| task.deadline == task.period && task.cost.as_ns() <= 2)
        .copied()
        .collect();
    every(&implicit, 3, |old| check(old, &implicit));
    assert!(switches > 10_000, "{switches}");
    assert!(violations > switches / 100, "{violations} of {switches}");
}

#[test]
fn d41_what_is_not_proved_about_a_switch_is_unknown_with_its_reason() {
    let ms = |ms: u64| Span::from_ns(ms * 1_000_000);
    let one = |policy: &PolicySpec, period: u64, offset: u64, cost: u64, phases: bool| {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy.clone()));
        tree.task(Tree::ROOT, TaskSpec::new("task", ms(period)));
        let arrivals =
            Arrivals::Periodic { offset: ms(offset), period: ms(period), jitter: Span::ZERO };
        let cost = Cost::Constant(Work::from_ns(ms(cost).as_ns()));
        let sources = vec![Source { arrivals, cost }];
        let model = RootModel::new(&tree, &sources).with_phases_known(phases);
        let switch = switch_bound(&model, &model.bounds());
        (switch.delay, switch.is_clean.map_err(|no| no.why))
    };
    let slots = vec![Slot { start: Span::ZERO, end: ms(4), owner: 0 }];
    let table = PolicySpec::Partitions { frame: ms(10), slots, lending: false };
    assert_eq!(one(&PolicySpec::Edf, 10, 0, 3, false), (ms(3), Ok(())));
    assert_eq!(one(&table, 10, 0, 3, true), (ms(10), Ok(())));
    for ((delay, is_clean), part) in [
        (one(&PolicySpec::Edf, 10, 0, 11, false), "exceeds the longest period"),
        (one(&table, 10, 0, 3, false), "states no `offset`"),
        (one(&table, 15, 0, 3, true), "does not divide"),
        (one(&table, 10, 5, 3, true), "may be pending at the end"),
        (one(&table, 5, 0, 3, true), "no bound"),
    ] {
        assert_eq!(delay, ms(10), "{part}");
        let why = is_clean.expect_err(part);
        assert!(why.contains(part), "{part}: {why}");
    }
}
