//! Drift of threads: repairs, their counter, and contention with another writer.

use crate::world::{World, fifo, generation, ms, task};
use talea_core::{Attr, CpuSet, Policy};
use talea_deploy::input::{Setting, SettingKind};
use talea_deploy::{CONTENTION_WINDOW, Effect, Event, MAX_REPAIRS, MAX_SETS, ThreadId};

/// Returns a world with one running program, and its thread.
fn running() -> (World, ThreadId) {
    let mut world = World::new(1);
    world.apply(&generation(1, vec![task("a", "one", 40)]), None);
    world.run(ms(500));
    world.changes.clear();
    let process = world.only("a");
    let thread = *world.programs[&process].threads.keys().next().expect("a thread");
    (world, thread)
}

fn repairs(world: &World) -> Vec<(SettingKind, u64)> {
    let repairs = world.events.iter().filter_map(|event| match event {
        Event::Repaired { kind, repairs, .. } => Some((*kind, *repairs)),
        _ => None,
    });
    repairs.collect()
}

#[test]
fn d8_a_changed_value_is_repaired_within_two_inspections_and_counted() {
    let (mut world, thread) = running();
    *world.thread_mut(thread).expect("it runs") =
        Attr { policy: Policy::Other { nice: 5 }, reset_on_fork: true, cpus: CpuSet::single(1) };
    world.run(ms(200));
    assert_eq!(world.difference(), None);
    assert_eq!(repairs(&world), [(SettingKind::Policy, 1), (SettingKind::Cpus, 2)]);
    assert_eq!(world.machine.status().tasks[0].counters.repairs, 2);
    // Only what differs is set.
    world.changes.clear();
    world.thread_mut(thread).expect("it runs").cpus = CpuSet::single(1);
    world.run(ms(200));
    let cpus = Setting::Cpus(CpuSet::single(0));
    assert_eq!(world.changes, [Effect::Set { thread, setting: cpus }]);
}

#[test]
fn d8_threads_of_a_program_get_its_attributes_and_this_is_no_repair() {
    let (mut world, _) = running();
    let process = world.only("a");
    let new = ThreadId { start: world.now.as_ns(), tid: world.new_id() };
    let ordinary =
        Attr { policy: Policy::Other { nice: 0 }, reset_on_fork: false, cpus: CpuSet::first(2) };
    world.programs.get_mut(&process).expect("it runs").threads.insert(new, ordinary);
    world.run(ms(200));
    assert_eq!(*world.thread_mut(new).expect("it runs"), fifo(40, 0));
    assert_eq!(repairs(&world), []);
}

#[test]
fn d9_five_repairs_in_a_minute_are_the_last() {
    let (mut world, thread) = running();
    for turn in 1..=MAX_REPAIRS + 3 {
        world.thread_mut(thread).expect("it runs").policy = Policy::Other { nice: 0 };
        world.run(ms(300));
        let is_repaired = world.thread_mut(thread).expect("it runs").policy == fifo(40, 0).policy;
        assert_eq!(is_repaired, turn <= MAX_REPAIRS, "turn {turn}");
    }
    assert_eq!(repairs(&world).len(), MAX_REPAIRS);
    let contended = |event: &&Event| matches!(event, Event::Contended { .. });
    assert_eq!(world.events.iter().filter(contended).count(), 1);
    let expected = vec![(thread, SettingKind::Policy)];
    assert_eq!(world.machine.status().tasks[0].contended, expected);
    // The other value of the thread is kept, and a restart of the machine changes nothing.
    world.crash();
    world.changes.clear();
    world.thread_mut(thread).expect("it runs").cpus = CpuSet::single(1);
    world.run(ms(500));
    let cpus = Setting::Cpus(CpuSet::single(0));
    assert_eq!(world.changes, [Effect::Set { thread, setting: cpus }]);
    assert_eq!(world.machine.status().tasks[0].contended, expected);
    // A generation with other attributes ends the contention.
    world.apply(&generation(2, vec![task("a", "one", 45)]), None);
    world.run(ms(300));
    assert_eq!(world.difference(), None);
    assert_eq!(world.machine.status().tasks[0].contended, []);
}

#[test]
fn d9_a_writer_that_is_faster_than_the_inspections_ends_the_sets() {
    let (mut world, thread) = running();
    for _ in 0..20 * MAX_SETS {
        world.thread_mut(thread).expect("it runs").policy = Policy::Other { nice: 0 };
        world.step();
    }
    let sets = world.changes.iter().filter(|effect| matches!(effect, Effect::Set { .. })).count();
    assert!(sets <= MAX_SETS + MAX_REPAIRS, "{sets} sets");
    assert_eq!(repairs(&world).len(), 1);
    let expected = vec![(thread, SettingKind::Policy)];
    assert_eq!(world.machine.status().tasks[0].contended, expected);
}

#[test]
fn d3_d9_a_change_of_another_task_does_not_touch_a_contended_value() {
    let (mut world, thread) = running();
    for _ in 0..=MAX_REPAIRS {
        world.thread_mut(thread).expect("it runs").policy = Policy::Other { nice: 0 };
        world.run(ms(300));
    }
    world.changes.clear();
    world.apply(&generation(2, vec![task("a", "one", 40), task("b", "one", 41)]), Some(ms(500)));
    world.run(ms(2_000));
    assert_eq!(world.machine.status().in_force.map(|of| of.number()), Some(1));
    let sets = world.changes.iter().filter(|effect| matches!(effect, Effect::Set { .. }));
    assert_eq!(sets.count(), 0, "{:?}", world.changes);
    assert_eq!(world.machine.status().tasks[0].counters.repairs, MAX_REPAIRS as u64);
}

#[test]
fn d9_repairs_at_longer_distances_go_on() {
    let (mut world, thread) = running();
    for turn in 1..=3 * MAX_REPAIRS {
        world.thread_mut(thread).expect("it runs").policy = Policy::Other { nice: 0 };
        world.run(CONTENTION_WINDOW);
        assert_eq!(world.difference(), None);
        assert_eq!(repairs(&world).len(), turn);
    }
    assert_eq!(world.machine.status().tasks[0].contended, []);
}

#[test]
fn d8_a_value_that_the_kernel_refuses_is_set_again_later() {
    let (mut world, thread) = running();
    world.faults.refused = 100;
    world.thread_mut(thread).expect("it runs").cpus = CpuSet::single(1);
    while !world.events.iter().any(|event| matches!(event, Event::SettingRefused { .. })) {
        world.step();
    }
    world.changes.clear();
    world.run(ms(9_000));
    assert_eq!(world.changes, [], "a refused value waits");
    world.faults.refused = 0;
    world.run(ms(2_000));
    assert_eq!(world.difference(), None);
    assert_eq!(repairs(&world).len(), 1);
}
