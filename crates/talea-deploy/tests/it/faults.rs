//! Random faults, requests and restarts of the machine: after the last fault, the observed state
//! becomes the desired one.

use crate::world::{Faults, World, fifo, generation_with, governed, ms, task};
use std::collections::BTreeMap;
use std::sync::Arc;
use talea_core::{Attr, CpuSet, Policy};
use talea_deploy::input::Exit;
use talea_deploy::{
    ADJUST_PERIOD, Generation, INSPECTION_PERIOD, OnFailure, REFUSED_RETRY, Request, RestartOn,
    STOP_GRACE, TaskSpec, ThreadId,
};

/// Maximum number of wake-ups after the last fault until the observed state is the desired one: the
/// end of a trial (2 s), a stop by kill, the longest back-off (10 s, of a governor), a refused
/// value that is set again and a table that is ordered again, at one wake-up for each inspection,
/// and one more for each of the other timers.
fn max_steps() -> u64 {
    let lengths = [ms(2_000), STOP_GRACE, ms(10_000), REFUSED_RETRY, ADJUST_PERIOD];
    let total: u64 = lengths.iter().map(|length| length.as_ns()).sum();
    2 * (total / INSPECTION_PERIOD.as_ns()) + 20
}

fn number(name: &str) -> Option<u64> {
    std::env::var_os(name)?.to_str()?.parse().ok()
}

fn random_task(world: &mut World, name: &str) -> TaskSpec {
    let rng = &mut world.rng;
    let mut spec = task(name, ["one", "two"][rng.below(2) as usize], 40 + rng.below(2) as u8);
    spec.attr = Attr { cpus: CpuSet::single(rng.below(2) as u32), ..spec.attr };
    spec.health.ready = rng.chance(50).then(|| ms(300));
    spec.health.on_failure =
        *rng.pick(&[OnFailure::Restart, OnFailure::Restart, OnFailure::Ignore]);
    if rng.chance(30) {
        spec.health.restart.when = RestartOn::Always;
    }
    if rng.chance(20) {
        spec.health.restart.attempts = 1;
    }
    if rng.chance(30) {
        let TaskSpec { root, command, attr, .. } = governed(name, "one");
        (spec.root, spec.command.role, spec.attr.cpus) = (root, command.role, attr.cpus);
    }
    spec
}

fn random_generation(world: &mut World, number: u64) -> Arc<Generation> {
    let mut tasks = Vec::new();
    for name in ["a", "b", "c"] {
        // Most tasks are those of the generation in force.
        let old = world.disk.in_force.as_ref().and_then(|of| of.task(name).cloned());
        match old {
            Some(old) if world.rng.chance(60) => tasks.push(old),
            _ if world.rng.chance(20) => {}
            _ => tasks.push(random_task(world, name)),
        }
    }
    let system = ["a table", "another table"][usize::from(world.rng.chance(40))];
    generation_with(number, tasks, system)
}

/// Makes one random fault or request.
fn disturb(world: &mut World, last: &mut u64) {
    let processes: Vec<_> = world.programs.keys().copied().collect();
    match world.rng.below(16) {
        0 | 1 if !processes.is_empty() => {
            let process = *world.rng.pick(&processes);
            let exit =
                *world.rng.pick(&[Exit::Code(0), Exit::Code(1), Exit::Signal(11), Exit::Signal(9)]);
            world.count("exits");
            world.programs.get_mut(&process).expect("it exists").exit.get_or_insert(exit);
        }
        2 if !processes.is_empty() => {
            let process = *world.rng.pick(&processes);
            world.count("vanished");
            world.programs.remove(&process);
        }
        3..=6 if !processes.is_empty() => {
            let process = *world.rng.pick(&processes);
            let other = match world.rng.below(3) {
                0 => fifo(7, 1),
                1 => fifo(40, 1),
                _ => Attr { policy: Policy::Other { nice: 3 }, ..fifo(40, 0) },
            };
            world.count("threads changed");
            let threads = &mut world.programs.get_mut(&process).expect("it exists").threads;
            for attr in threads.values_mut() {
                *attr = other;
            }
        }
        7 if !processes.is_empty() => {
            let process = *world.rng.pick(&processes);
            let thread = ThreadId { start: world.now.as_ns(), tid: world.new_id() };
            let ordinary = Attr {
                policy: Policy::Other { nice: 0 },
                reset_on_fork: false,
                cpus: CpuSet::first(2),
            };
            world.count("threads created");
            let program = world.programs.get_mut(&process).expect("it exists");
            program.threads.insert(thread, ordinary);
        }
        8 => world.crash(),
        9 | 10 => {
            *last += 1;
            let next = random_generation(world, *last);
            let confirm = world.rng.chance(50).then(|| ms(2_000));
            world.count("applies");
            world.ask(Request::Apply { generation: next, confirm });
        }
        11 => {
            world.ask(Request::Confirm);
        }
        12 => {
            world.count("rollbacks");
            world.ask(Request::RollBack { to: None });
        }
        13 => {
            let task = world.rng.chance(80).then(|| (*world.rng.pick(&["a", "b"])).to_owned());
            world.count("drains");
            world.ask(Request::Drain { task, within: ms(500) });
        }
        14 if world.rng.chance(20) => {
            world.count("removals");
            world.ask(Request::Remove);
        }
        _ => {}
    }
}

fn run_seed(seed: u64, tally: &mut BTreeMap<&'static str, u64>) {
    let mut world = World::new(seed);
    world.faults = Faults { lost_effect: 10, refused: 5, delay: 10, ignores_terminate: 20 };
    let mut last = 0;
    for _ in 0..60 {
        disturb(&mut world, &mut last);
        world.step();
    }
    world.faults = Faults::default();
    let mut steps = 0;
    while let Some(what) = world.difference() {
        assert!(steps < max_steps(), "seed {seed}: {what} after {steps} steps");
        assert!(world.step(), "seed {seed}: {what}, and the machine waits for nothing");
        steps += 1;
    }
    // The state lasts, and the machine does nothing about it.
    let changes = world.changes.len();
    world.run(ms(1_000));
    assert_eq!(world.difference(), None, "seed {seed}");
    assert_eq!(world.changes.len(), changes, "seed {seed}: {:?}", &world.changes[changes..]);
    // Nor does a machine that starts again.
    world.crash();
    world.run(ms(1_000));
    assert_eq!(world.difference(), None, "seed {seed}");
    assert_eq!(world.changes.len(), changes, "seed {seed}: {:?}", &world.changes[changes..]);
    for (what, times) in &world.tally {
        *tally.entry(what).or_default() += times;
    }
    for event in &world.events {
        let text = format!("{event:?}");
        let name = text.split([' ', '{']).next().unwrap_or_default();
        *tally.entry(crate::faults::event_name(name)).or_default() += 1;
    }
}

/// Events whose number the test checks.
const EVENTS: [&str; 9] = [
    "InForce",
    "Confirmed",
    "RolledBack",
    "Removed",
    "Failure",
    "Inactive",
    "Repaired",
    "SettingRefused",
    "BackOff",
];

fn event_name(name: &str) -> &'static str {
    EVENTS.into_iter().find(|known| *known == name).unwrap_or("other events")
}

#[test]
fn d1_d2_after_the_faults_the_observed_state_is_the_desired_one() {
    let mut tally = BTreeMap::new();
    if let Some(seed) = number("TALEA_SEED") {
        return run_seed(seed, &mut tally);
    }
    for seed in 0..number("TALEA_SEEDS").unwrap_or(1_000) {
        run_seed(seed, &mut tally);
    }
    let faults = [
        "crashes",
        "lost effects",
        "refused effects",
        "lost answers",
        "delays",
        "starts",
        "starts of governors",
        "adjustments",
        "lost reports",
        "exits",
        "vanished",
        "threads changed",
        "threads created",
        "applies",
        "rollbacks",
        "drains",
        "removals",
    ];
    for what in faults.into_iter().chain(EVENTS) {
        assert!(
            tally.get(what).is_some_and(|&times| times >= 20),
            "{what}: too rare to be significant\n{tally:#?}"
        );
    }
}
