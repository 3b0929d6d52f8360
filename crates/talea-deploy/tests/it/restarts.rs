//! Starts and restarts: back-off, attempts in a window, actions at failures.

use crate::world::{World, generation, ms, task};
use talea_core::Span;
use talea_deploy::input::{Exit, FailureCause};
use talea_deploy::{
    Condition, Effect, Event, Health, Inactive, OnFailure, Restart, RestartOn, STOP_GRACE, TaskSpec,
};

fn with_health(health: Health) -> TaskSpec {
    TaskSpec { health, ..task("a", "one", 40) }
}

/// Returns a task with two attempts that must be ready in time.
fn ready_within(ready: Span) -> TaskSpec {
    let limits = limited(2, ms(60_000), ms(100));
    with_health(Health { ready: Some(ready), ..limits.health })
}

fn limited(attempts: u32, within: Span, backoff: Span) -> TaskSpec {
    let restart = Restart { when: RestartOn::Failure, attempts, within, backoff };
    with_health(Health { restart, ..Health::default() })
}

fn started(world: &mut World, spec: TaskSpec) {
    world.apply(&generation(1, vec![spec]), None);
    world.run(ms(300));
}

fn condition(world: &World) -> Condition {
    world.machine.status().tasks[0].condition
}

fn starts(world: &World) -> usize {
    world.changes.iter().filter(|effect| matches!(effect, Effect::Start(_))).count()
}

#[test]
fn d10_the_back_off_doubles_with_each_restart_of_the_window() {
    let mut world = World::new(1);
    started(&mut world, limited(10, ms(60_000), ms(1_000)));
    for wait in [1_000, 2_000, 4_000, 8_000] {
        world.exit("a", Exit::Code(1));
        // The machine observes the exit within an inspection, and the program within another one.
        world.run(ms(wait - 10));
        assert_eq!(world.running("a").count(), 0, "{wait} ms");
        assert!(matches!(condition(&world), Condition::BackOff(_)));
        world.run(ms(210));
        assert_eq!(world.running("a").count(), 1, "{wait} ms");
    }
    assert_eq!(world.machine.status().tasks[0].counters.starts, 5);
    assert_eq!(world.machine.status().tasks[0].counters.failures, 4);
}

#[test]
fn d10_a_restart_of_the_machine_shortens_no_back_off() {
    let mut world = World::new(1);
    started(&mut world, limited(10, ms(60_000), ms(1_000)));
    world.exit("a", Exit::Code(1));
    for _ in 0..9 {
        world.run(ms(100));
        world.crash();
        assert_eq!(world.running("a").count(), 0);
    }
    world.run(ms(300));
    world.only("a");
    assert_eq!(world.machine.status().tasks[0].counters.failures, 1);
}

#[test]
fn d10_a_task_fails_after_its_attempts() {
    let mut world = World::new(1);
    started(&mut world, limited(3, ms(10_000), ms(100)));
    for _ in 0..4 {
        world.exit("a", Exit::Signal(11));
        world.run(ms(1_500));
    }
    assert_eq!(condition(&world), Condition::Inactive(Inactive::Failed));
    assert_eq!(starts(&world), 4, "the first start and three attempts");
    world.run(ms(20_000));
    assert_eq!(starts(&world), 4, "a failed task stays away");
    // Attempts outside of the window do not count.
    let mut world = World::new(1);
    started(&mut world, limited(3, ms(10_000), ms(100)));
    for _ in 0..8 {
        world.exit("a", Exit::Signal(11));
        world.run(ms(5_000));
        world.only("a");
    }
}

#[test]
fn d10_an_apply_starts_a_failed_task_again() {
    let mut world = World::new(1);
    let spec = limited(0, ms(10_000), ms(100));
    started(&mut world, spec.clone());
    world.exit("a", Exit::Code(2));
    world.run(ms(300));
    assert_eq!(condition(&world), Condition::Inactive(Inactive::Failed));
    world.apply(&generation(2, vec![spec]), None);
    world.run(ms(300));
    world.only("a");
}

#[test]
fn d10_a_program_that_succeeds_starts_again_only_if_asked() {
    for (when, running) in [(RestartOn::Failure, 0), (RestartOn::Always, 1)] {
        let mut world = World::new(1);
        let mut spec = task("a", "one", 40);
        spec.health.restart.when = when;
        started(&mut world, spec);
        world.exit("a", Exit::Code(0));
        world.run(ms(1_000));
        assert_eq!(world.running("a").count(), running);
        let failed = world.events.iter().any(|event| matches!(event, Event::Failure { .. }));
        assert!(!failed, "a success is no failure");
    }
}

#[test]
fn d11_a_failure_leaves_an_idle_task_idle_and_is_ignored_if_asked() {
    for (on_failure, exited, late) in [
        (OnFailure::Idle, Condition::Inactive(Inactive::Idle), Condition::Inactive(Inactive::Idle)),
        (OnFailure::Ignore, Condition::Inactive(Inactive::Ended), Condition::NotReady),
    ] {
        let spec = with_health(Health { on_failure, ready: Some(ms(500)), ..Health::default() });
        let mut world = World::new(1);
        started(&mut world, spec.clone());
        world.exit("a", Exit::Code(1));
        world.run(ms(5_000));
        assert_eq!((condition(&world), starts(&world)), (exited, 1));
        let mut world = World::new(1);
        world.never_ready = true;
        started(&mut world, spec);
        world.run(STOP_GRACE);
        assert_eq!((condition(&world), starts(&world)), (late, 1));
        let failures = world.events.iter().filter(|event| matches!(event, Event::Failure { .. }));
        assert_eq!(failures.count(), 1);
    }
}

#[test]
fn d11_a_program_that_is_not_ready_in_time_is_restarted() {
    let mut world = World::new(1);
    world.never_ready = true;
    let spec = ready_within(ms(200));
    world.apply(&generation(1, vec![spec]), None);
    world.run(ms(100));
    assert_eq!(condition(&world), Condition::NotReady);
    world.run(ms(5_000));
    assert_eq!((condition(&world), starts(&world)), (Condition::Inactive(Inactive::Failed), 3));
    let causes = world.events.iter().filter_map(|event| match event {
        Event::Failure { cause, .. } => Some(*cause),
        _ => None,
    });
    assert_eq!(causes.collect::<Vec<_>>(), [FailureCause::NotReady; 3]);
    // A program that is ready in time is left alone.
    let mut world = World::new(1);
    let spec = ready_within(ms(200));
    started(&mut world, spec);
    world.run(ms(5_000));
    assert_eq!((condition(&world), starts(&world)), (Condition::Running, 1));
}

#[test]
fn d10_a_start_that_the_kernel_refuses_is_a_failure() {
    let mut world = World::new(1);
    world.faults.refused = 100;
    world.apply(&generation(1, vec![limited(2, ms(60_000), ms(100))]), None);
    world.run(ms(3_000));
    assert_eq!((condition(&world), starts(&world)), (Condition::Inactive(Inactive::Failed), 3));
}
