//! Generations: apply, confirmation, rollback, drain, remove.

use crate::world::{World, generation, ms, task};
use talea_core::Monotonic;
use talea_deploy::input::{Refusal, RollbackCause, StopSignal};
use talea_deploy::{Condition, Effect, Event, Inactive, Request, STOP_GRACE};

fn rolled_back(world: &World) -> Vec<&RollbackCause> {
    let causes = world.events.iter().filter_map(|event| match event {
        Event::RolledBack { cause, .. } => Some(cause),
        _ => None,
    });
    causes.collect()
}

#[test]
fn d3_an_unchanged_task_is_not_touched_by_apply_and_rollback() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40), task("b", "one", 41)]), None);
    world.run(ms(500));
    let (a, b) = (world.only("a"), world.only("b"));
    world.changes.clear();
    // `b` gets another program; `c` is new, and stands before `a`.
    let next =
        generation(2, vec![task("c", "one", 39), task("b", "two", 41), task("a", "one", 40)]);
    world.apply(&next, Some(ms(2_000)));
    world.run(ms(1_000));
    assert_eq!(world.only("a"), a);
    assert_ne!(world.only("b"), b);
    world.only("c");
    world.run(ms(2_000));
    assert_eq!(rolled_back(&world), [&RollbackCause::NotConfirmed]);
    assert_eq!(world.difference(), None);
    assert_eq!(world.only("a"), a);
    assert_eq!(world.running("c").count(), 0);
    let of_a = world.changes.iter().filter(|effect| match effect {
        Effect::Start(task) => task.name == "a",
        Effect::Stop { process, .. } => *process == a,
        Effect::Set { thread, .. } => thread.tid == a.pid,
        _ => false,
    });
    assert_eq!(of_a.count(), 0, "{:?}", world.changes);
}

#[test]
fn d3_new_attributes_are_set_without_a_restart_and_are_no_repair() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40)]), None);
    world.run(ms(500));
    let process = world.only("a");
    world.apply(&generation(2, vec![task("a", "one", 45)]), None);
    world.run(ms(300));
    assert_eq!((world.difference(), world.only("a")), (None, process));
    let repairs = world.events.iter().filter(|event| matches!(event, Event::Repaired { .. }));
    assert_eq!(repairs.count(), 0);
}

#[test]
fn d4_a_generation_that_is_not_confirmed_in_time_is_rolled_back() {
    let mut world = World::new(1);
    let first = generation(1, vec![task("a", "one", 40)]);
    world.apply(&first, None);
    world.run(ms(500));
    world.apply(&generation(2, vec![task("a", "two", 40)]), Some(ms(700)));
    let until = world.now + ms(700);
    world.run(ms(600));
    assert_eq!(world.machine.status().trial_until, Some(until));
    world.run(ms(500));
    assert_eq!(rolled_back(&world), [&RollbackCause::NotConfirmed]);
    assert_eq!(world.machine.status().in_force.as_ref(), Some(&first));
    assert_eq!(world.difference(), None);
    // A restart of the machine during a trial does not prolong the trial.
    world.apply(&generation(3, vec![task("a", "two", 40)]), Some(ms(700)));
    let until = world.now + ms(700);
    world.run(ms(300));
    world.crash();
    assert_eq!(world.machine.status().trial_until, Some(until));
    world.run(ms(800));
    assert_eq!(world.machine.status().in_force.as_ref(), Some(&first));
}

#[test]
fn d4_a_confirmed_generation_stays() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40)]), Some(ms(700)));
    let other = world.ask(Request::Apply { generation: generation(2, vec![]), confirm: None });
    assert_eq!(world.answer(other), Some(Err(Refusal::OnTrial { generation: 1 })));
    world.run(ms(200));
    world.ask_ok(Request::Confirm);
    world.run(ms(2_000));
    assert_eq!(world.machine.status().in_force.map(|of| of.number()), Some(1));
    let again = world.ask(Request::Confirm);
    assert_eq!(world.answer(again), Some(Err(Refusal::NotOnTrial)));
    let stale = world.ask(Request::Apply { generation: generation(1, vec![]), confirm: None });
    assert_eq!(world.answer(stale), Some(Err(Refusal::StaleGeneration { last: 1 })));
}

#[test]
fn d4_a_program_that_is_never_ready_ends_the_trial() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40)]), None);
    world.run(ms(500));
    let mut changed = task("a", "two", 40);
    changed.health.ready = Some(ms(200));
    changed.health.restart.attempts = 0;
    world.never_ready = true;
    world.apply(&generation(2, vec![changed.clone()]), Some(ms(60_000)));
    world.run(ms(150));
    let confirm = world.ask(Request::Confirm);
    assert_eq!(world.answer(confirm), Some(Err(Refusal::NotReady { task: "a".to_owned() })));
    world.run(ms(1_000));
    assert_eq!(rolled_back(&world), [&RollbackCause::TaskFailed("a".to_owned())]);
    assert_eq!(world.difference(), None);
    // The first generation of a deployment leaves nothing.
    let mut world = World::new(1);
    world.never_ready = true;
    world.apply(&generation(1, vec![changed]), Some(ms(60_000)));
    world.run(ms(1_000));
    assert_eq!(world.machine.status().in_force, None);
    assert!(world.programs.is_empty());
    assert_eq!(world.machine.next_wakeup(), None);
}

#[test]
fn d5_a_rollback_returns_to_any_generation() {
    let mut world = World::new(1);
    let generations: Vec<_> = (1..=3)
        .map(|number| {
            generation(number, vec![task("a", ["one", "two", "three"][number as usize - 1], 40)])
        })
        .collect();
    for of in &generations {
        world.apply(of, None);
        world.run(ms(500));
    }
    world.ask_ok(Request::RollBack { to: None });
    world.run(ms(500));
    assert_eq!(world.machine.status().in_force.as_ref(), Some(&generations[1]));
    let nothing = world.ask(Request::RollBack { to: None });
    assert_eq!(world.answer(nothing), Some(Err(Refusal::NothingBefore)));
    world.ask_ok(Request::RollBack { to: Some(generations[0].clone()) });
    world.run(ms(500));
    assert_eq!(world.machine.status().in_force.as_ref(), Some(&generations[0]));
    assert_eq!(world.difference(), None);
}

#[test]
fn d6_a_drained_task_ends_and_starts_again_with_an_apply() {
    let mut world = World::new(1);
    let tasks = vec![task("a", "one", 40), task("b", "one", 41)];
    world.apply(&generation(1, tasks.clone()), None);
    world.run(ms(500));
    let b = world.only("b");
    let process = world.only("a");
    world.programs.get_mut(&process).expect("it runs").ignores_terminate = true;
    world.ask_ok(Request::Drain { task: Some("a".to_owned()), within: ms(1_000) });
    world.run(ms(900));
    assert_eq!(world.only("a"), process);
    world.run(ms(300));
    let signals = world.changes.iter().filter_map(|effect| match effect {
        Effect::Stop { process: of, signal } if *of == process => Some(*signal),
        _ => None,
    });
    assert_eq!(signals.collect::<Vec<_>>(), [StopSignal::Terminate, StopSignal::Kill]);
    world.crash();
    world.run(ms(5_000));
    let condition = world.machine.status().tasks[0].condition;
    assert_eq!(condition, Condition::Inactive(Inactive::Drained));
    world.apply(&generation(2, tasks), None);
    world.run(ms(300));
    assert_eq!((world.difference(), world.only("b")), (None, b));
    let unknown = world.ask(Request::Drain { task: Some("x".to_owned()), within: ms(1) });
    assert_eq!(world.answer(unknown), Some(Err(Refusal::UnknownTask { task: "x".to_owned() })));
}

#[test]
fn d7_a_removed_deployment_ends_its_programs_and_has_no_further_effect() {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40), task("b", "one", 41)]), None);
    world.run(ms(500));
    let process = world.only("a");
    world.programs.get_mut(&process).expect("it runs").ignores_terminate = true;
    world.ask_ok(Request::Remove);
    let changes = world.changes.len();
    world.run(STOP_GRACE + ms(1_000));
    let is_stop = |effect: &Effect| matches!(effect, Effect::Stop { .. });
    assert!(world.changes[changes..].iter().all(is_stop), "{:?}", &world.changes[changes..]);
    assert!(world.programs.is_empty());
    assert_eq!(world.machine.next_wakeup(), None, "a removed deployment costs nothing");
    let nothing = world.ask(Request::Remove);
    assert_eq!(world.answer(nothing), Some(Err(Refusal::NothingInForce)));
}

#[test]
fn d5_after_a_reboot_no_point_in_time_counts_and_a_trial_is_rolled_back() {
    let mut world = World::new(1);
    let first = generation(1, vec![task("a", "one", 40)]);
    world.apply(&first, None);
    world.run(ms(500));
    world.apply(&generation(2, vec![task("a", "two", 40)]), Some(ms(60_000)));
    world.run(ms(500));
    world.disk = world.disk.clone().after_boot();
    world.programs.clear();
    world.now = Monotonic::from_ns(1);
    world.crash();
    world.run(ms(500));
    assert_eq!(world.machine.status().in_force.as_ref(), Some(&first));
    assert_eq!(world.difference(), None);
}
