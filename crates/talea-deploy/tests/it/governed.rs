//! Roots with a governor.

use crate::world::{GOVERNOR, World, fifo, generation, generation_with, governed, ms, task};
use std::sync::Arc;
use talea_core::CpuSet;
use talea_deploy::input::{Exit, FailureCause, Refusal, StopSignal};
use talea_deploy::{
    Difference, Effect, Event, FileHash, Generation, Governed, InvalidGeneration, Request, Role,
    TaskSpec,
};

fn two() -> Vec<TaskSpec> {
    vec![governed("a", "one"), governed("b", "one")]
}

#[test]
fn d23_a_governed_root_gets_a_governor_and_no_attribute_of_its_programs_is_set() {
    let mut world = World::new(1);
    world.apply(&generation(1, [two(), vec![task("c", "one", 40)]].concat()), None);
    world.run(ms(500));
    assert_eq!(world.difference(), None);
    let starts: Vec<(&str, Option<&Governed>)> = world
        .changes
        .iter()
        .filter_map(|effect| match effect {
            Effect::Start(task) => Some((task.name.as_str(), task.governed.as_ref())),
            _ => None,
        })
        .collect();
    let governors: Vec<_> = starts.iter().filter(|(_, governed)| governed.is_some()).collect();
    assert_eq!(governors.len(), 1, "{starts:?}");
    assert_eq!(governors[0].0, GOVERNOR);
    assert_eq!(governors[0].1.map(|of| &of.tasks[..]), Some(&["a".into(), "b".into()][..]));
    // Another writer changes all threads: `check_set` of the world refuses a policy of one with a
    // governor.
    for program in world.programs.values_mut() {
        program.threads.values_mut().for_each(|attr| {
            *attr = fifo(7, 1);
        });
    }
    world.changes.clear();
    world.run(ms(500));
    assert_eq!(world.difference(), None);
    let sets = world.changes.iter().filter(|effect| matches!(effect, Effect::Set { .. })).count();
    assert_eq!(sets, 4, "CPUs of a, b and c, and the policy of c: {:?}", world.changes);
}

#[test]
fn d24_a_frozen_program_is_not_late_and_its_time_begins_with_the_governor() {
    let mut world = World::new(1);
    let mut late = governed("a", "one");
    late.health.ready = Some(ms(300));
    (world.fails_to_govern, world.never_ready) = (true, true);
    world.apply(&generation(1, vec![late]), None);
    world.run(ms(5_000));
    let failures = |world: &World, name: &str| {
        let status = world.machine.status();
        status.tasks.iter().find(|task| task.name == name).expect("a task").counters.failures
    };
    assert_eq!(failures(&world, "a"), 0);
    assert!(failures(&world, GOVERNOR) > 3);
    // The governor runs, and its program is late.
    (world.fails_to_govern, world.never_ready) = (false, false);
    world.run(ms(11_000));
    assert!(failures(&world, "a") >= 1);
    assert_eq!(world.difference(), None);
}

#[test]
fn d23_a_program_that_leaves_its_cpus_again_and_again_is_killed() {
    for is_each_time_new in [true, false] {
        let mut world = World::new(1);
        world.apply(&generation(1, two()), None);
        world.run(ms(500));
        let (runaway, other) = (world.only("a"), world.only("b"));
        world.programs.get_mut(&runaway).expect("it runs").ignores_terminate = true;
        let mut rounds = 0;
        while world.programs.contains_key(&runaway) {
            assert!(rounds < 40, "it is never killed");
            let threads = &mut world.programs.get_mut(&runaway).expect("it runs").threads;
            for attr in threads.values_mut() {
                attr.cpus = CpuSet::single(1);
            }
            // Before the machine has seen the value that it set, or after that.
            world.run(ms(if is_each_time_new { 100 } else { 250 }));
            rounds += 1;
        }
        world.run(ms(1_000));
        assert_eq!((world.difference(), world.only("b")), (None, other));
        let left = |event: &&Event| {
            let Event::Failure { task, cause, .. } = event else { return false };
            task == "a" && *cause == FailureCause::LeftCpus
        };
        assert_eq!(world.events.iter().filter(left).count(), 1);
    }
}

#[test]
fn d23_a_governor_is_drained_with_its_programs_only() {
    let mut world = World::new(1);
    world.apply(&generation(1, two()), None);
    world.run(ms(500));
    let drain =
        |task: Option<&str>| Request::Drain { task: task.map(str::to_owned), within: ms(100) };
    let request = world.ask(drain(Some(GOVERNOR)));
    let refused = Refusal::Governor { task: GOVERNOR.to_owned() };
    assert_eq!(world.answer(request), Some(Err(refused)));
    world.ask_ok(drain(None));
    world.run(ms(5_000));
    assert!(world.programs.is_empty());
}

#[test]
fn d24_a_governor_starts_again_without_end_and_its_programs_stay() {
    let mut world = World::new(1);
    world.apply(&generation(1, two()), None);
    world.run(ms(500));
    let programs = ["a", "b"].map(|name| world.only(name));
    let mut governors = vec![world.only(GOVERNOR)];
    for code in 0..50 {
        world.exit(GOVERNOR, if code % 2 == 0 { Exit::Code(0) } else { Exit::Signal(9) });
        world.run(ms(11_000));
        assert_eq!(world.difference(), None);
        assert_eq!(["a", "b"].map(|name| world.only(name)), programs);
        governors.push(world.only(GOVERNOR));
    }
    governors.dedup();
    assert_eq!(governors.len(), 51);
    // The first restart comes within the second that the groups stay frozen.
    world.run(ms(60_000));
    world.exit(GOVERNOR, Exit::Signal(9));
    world.run(ms(200));
    world.only(GOVERNOR);
}

#[test]
fn d25_another_table_keeps_the_governor_and_its_programs() {
    let mut world = World::new(1);
    world.apply(&generation(1, two()), None);
    world.run(ms(500));
    let (programs, governor) = (["a", "b"].map(|name| world.only(name)), world.only(GOVERNOR));
    // The same table, and the other command of a program, keep the governor.
    world.apply(&generation(2, vec![governed("a", "one"), governed("b", "two")]), None);
    world.run(ms(6_000));
    assert_eq!((world.only("a"), world.only(GOVERNOR)), (programs[0], governor));
    assert_ne!(world.only("b"), programs[1]);
    let programs = ["a", "b"].map(|name| world.only(name));
    let old = generation(3, vec![governed("a", "one"), governed("b", "two")]);
    let other = generation_with(3, vec![governed("a", "one"), governed("b", "two")], "another");
    let difference = Difference::between(Some(&old), &other);
    assert_eq!((&difference.adjusted[..], difference.unchanged.len()), (&[GOVERNOR.into()][..], 2));
    world.changes.clear();
    world.apply(&other, Some(ms(2_000)));
    // The frame has not ended, so the generation cannot be confirmed.
    let request = world.ask(Request::Confirm);
    let not_ready = Refusal::NotReady { task: GOVERNOR.to_owned() };
    assert_eq!(world.answer(request), Some(Err(not_ready)));
    world.run(ms(1_000));
    let table = |world: &World| world.programs[&world.only(GOVERNOR)].governs.clone();
    assert_eq!(Some(&table(&world)), other.task(GOVERNOR).map(|task| &task.command));
    assert!(matches!(world.changes[..], [Effect::Adjust { .. }]), "{:?}", world.changes);
    // The rollback brings the first table back.
    world.run(ms(2_000));
    assert_eq!(world.difference(), None);
    assert_eq!(Some(&table(&world)), old.task(GOVERNOR).map(|task| &task.command));
    assert_eq!(
        (["a", "b"].map(|name| world.only(name)), world.only(GOVERNOR)),
        (programs, governor)
    );
    world.ask_ok(Request::RollBack { to: Some(generation_with(9, two(), "a third")) });
    world.run(ms(6_000));
    assert_eq!((world.difference(), world.only(GOVERNOR)), (None, governor));
}

#[test]
fn d31_a_kill_of_the_governor_or_of_the_machine_amid_a_change_of_the_table_changes_nothing_else() {
    for (kill, wait) in (0..3).flat_map(|kill| (0..40).map(move |wait| (kill, 10 * wait))) {
        let mut world = World::new(1);
        world.apply(&generation(1, two()), None);
        world.run(ms(500));
        let programs = ["a", "b"].map(|name| world.only(name));
        let governor = world.only(GOVERNOR);
        let other = generation_with(2, two(), "another");
        world.apply(&other, None);
        world.run(ms(wait));
        match kill {
            0 => world.exit(GOVERNOR, Exit::Signal(9)),
            1 => world.crash(),
            // The report of the governor is lost.
            _ => {
                let of = world.programs.get_mut(&governor).expect("it runs");
                of.command.role = Role::Governor(FileHash::default());
            }
        }
        world.run(ms(4_000));
        assert_eq!(world.difference(), None);
        assert_eq!(["a", "b"].map(|name| world.only(name)), programs);
        assert_eq!(world.only(GOVERNOR) == governor, kill > 0, "{kill} after {wait} ms");
        let command = &world.programs[&world.only(GOVERNOR)].command;
        assert_eq!(Some(command), other.task(GOVERNOR).map(|task| &task.command));
    }
}

#[test]
fn d25_a_task_that_moves_between_the_kinds_of_roots_starts_again() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40)]), None);
    world.run(ms(500));
    let first = world.only("a");
    world.apply(&generation(2, vec![governed("a", "one")]), None);
    world.run(ms(6_000));
    let second = world.only("a");
    assert_ne!(first, second);
    world.apply(&generation(3, vec![task("a", "one", 40)]), None);
    world.run(ms(6_000));
    assert_ne!(world.only("a"), second);
    assert_eq!(world.running(GOVERNOR).count(), 0);
    assert_eq!(world.difference(), None);
}

#[test]
fn d25_a_trial_without_a_governor_that_is_ready_goes_back() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40)]), None);
    world.run(ms(500));
    let kept = world.only("a");
    world.never_ready = true;
    world.apply(&generation(2, vec![task("a", "one", 40), governed("b", "one")]), Some(ms(2_000)));
    world.run(ms(1_000));
    let request = world.ask(Request::Confirm);
    let not_ready = Refusal::NotReady { task: GOVERNOR.to_owned() };
    assert_eq!(world.answer(request), Some(Err(not_ready)));
    world.run(ms(10_000));
    assert_eq!((world.difference(), world.only("a")), (None, kept));
    let went_back = |event: &Event| matches!(event, Event::RolledBack { to: Some(1), .. });
    assert!(world.events.iter().any(went_back), "{:?}", world.events);
}

#[test]
fn d23_a_removed_root_ends_its_governor_and_its_programs() {
    let mut world = World::new(1);
    world.apply(&generation(1, two()), None);
    world.run(ms(500));
    world.changes.clear();
    world.ask_ok(Request::Remove);
    world.run(ms(10_000));
    assert!(world.programs.is_empty());
    let asked = world
        .changes
        .iter()
        .filter(|effect| matches!(effect, Effect::Stop { signal: StopSignal::Terminate, .. }));
    assert_eq!(asked.count(), 3, "{:?}", world.changes);
}

#[test]
fn d23_a_generation_whose_governor_does_not_fit_is_invalid() {
    let valid = generation(1, [two(), vec![task("c", "one", 40)]].concat());
    let (roots, report) = (valid.roots().to_vec(), valid.report().to_owned());
    let remade = |tasks: Vec<TaskSpec>| {
        Generation::new(1, valid.hash(), roots.clone(), tasks, report.clone(), false)
    };
    assert_eq!(remade(valid.tasks().to_vec()).map(Arc::new), Ok(valid.clone()));
    // The tasks are a, b, c and the governor.
    const LAST: usize = 3;
    assert_eq!(valid.tasks()[LAST].name, GOVERNOR);
    let wrong: [fn(&mut Vec<TaskSpec>); 9] = [
        |tasks| drop(tasks.remove(LAST)),
        |tasks| drop(tasks.remove(1)),
        |tasks| tasks[0].command.role = Role::Governed(CpuSet::single(0)),
        |tasks| tasks[1].command.role = Role::Linux,
        |tasks| tasks[0].governed = tasks[LAST].governed.clone(),
        |tasks| tasks[LAST].governed = None,
        |tasks| tasks[LAST].root = 0,
        |tasks| drop(tasks[LAST].command.words.pop()),
        |tasks| tasks[LAST].governed.as_mut().expect("a governor").system.push('x'),
    ];
    for (number, change) in wrong.into_iter().enumerate() {
        let mut tasks = valid.tasks().to_vec();
        change(&mut tasks);
        let found = remade(tasks).expect_err("a wrong generation");
        assert!(matches!(found, InvalidGeneration::Ungoverned(_)), "{number}: {found}");
    }
}
