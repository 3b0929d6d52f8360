//! Observations that precede effects, repeat exits, or have a program too many.

use crate::world::{fifo, generation, ms, task};
use talea_core::Monotonic;
use talea_deploy::input::{Exit, Program, RequestId, Setting, StopSignal, Thread};
use talea_deploy::{
    Deployment, Effect, EffectNumber, Input, Observation, ProcessId, Record, Request, ThreadId,
};

const AFTER_ALL: EffectNumber = EffectNumber(u64::MAX);

/// Returns a machine with one task, whose restarts have no back-off.
fn machine() -> (Deployment, Monotonic) {
    let now = Monotonic::from_ns(1_000_000_000);
    let mut machine = Deployment::restore(Record::default(), now);
    let mut spec = task("a", "one", 40);
    spec.health.restart.backoff = ms(0);
    let what = Request::Apply { generation: generation(1, vec![spec]), confirm: None };
    machine.handle(now, Input::Requested { request: RequestId(1), what });
    changes(&mut machine);
    (machine, now)
}

/// Takes the effects and returns those that change the computer.
fn changes(machine: &mut Deployment) -> Vec<(EffectNumber, Effect)> {
    let effects = std::iter::from_fn(|| machine.poll_effect());
    let is_change = |effect: &Effect| {
        matches!(effect, Effect::Start(_) | Effect::Stop { .. } | Effect::Set { .. })
    };
    effects.filter(|(_, effect)| is_change(effect)).collect()
}

fn program(pid: u32, exit: Option<Exit>) -> Program {
    let main = Thread { id: ThreadId { start: 5, tid: pid }, attr: fifo(40, 0) };
    Program {
        process: ProcessId { start: u64::from(pid), pid },
        task: "a".to_owned(),
        command: task("a", "one", 40).command,
        exit,
        is_ready: false,
        threads: vec![main],
    }
}

fn observe(
    machine: &mut Deployment,
    now: Monotonic,
    seen: EffectNumber,
    programs: Vec<Program>,
) -> Vec<(EffectNumber, Effect)> {
    machine.handle(now, Input::Observed(Observation { seen, programs, occupied: Vec::new() }));
    changes(machine)
}

#[test]
fn d2_an_observation_before_a_start_starts_no_second_program() {
    let (mut machine, now) = machine();
    let started = observe(&mut machine, now, EffectNumber(0), vec![]);
    let [(start, Effect::Start(_))] = started[..] else { panic!("{started:?}") };
    let before = EffectNumber(start.0 - 1);
    assert_eq!(observe(&mut machine, now, before, vec![]), []);
    assert_eq!(machine.status().tasks[0].counters.failures, 0);
    // The start is lost.
    assert_eq!(observe(&mut machine, now, start, vec![]).len(), 1);
    assert_eq!(machine.status().tasks[0].counters.failures, 1);
}

#[test]
fn d2_an_exit_that_is_observed_again_is_one_failure() {
    let (mut machine, now) = machine();
    observe(&mut machine, now, EffectNumber(0), vec![]);
    observe(&mut machine, now, AFTER_ALL, vec![program(7, None)]);
    let exited = program(7, Some(Exit::Code(1)));
    let restarted = observe(&mut machine, now, AFTER_ALL, vec![exited.clone()]);
    let [(start, Effect::Start(_))] = restarted[..] else { panic!("{restarted:?}") };
    let before = EffectNumber(start.0 - 1);
    assert_eq!(observe(&mut machine, now, before, vec![exited.clone()]), []);
    assert_eq!(observe(&mut machine, now, AFTER_ALL, vec![exited, program(8, None)]), []);
    assert_eq!(machine.status().tasks[0].counters.failures, 1);
}

#[test]
fn d2_the_next_program_waits_for_the_processes_of_the_last_one() {
    let (mut machine, now) = machine();
    observe(&mut machine, now, EffectNumber(0), vec![]);
    observe(&mut machine, now, AFTER_ALL, vec![program(7, None)]);
    let occupied = vec![program(7, None).task];
    for _ in 0..2 {
        let programs = vec![program(7, Some(Exit::Code(1)))];
        let seen = AFTER_ALL;
        let occupied = occupied.clone();
        machine.handle(now, Input::Observed(Observation { seen, programs, occupied }));
        assert_eq!(changes(&mut machine), []);
        assert_eq!(machine.status().tasks[0].counters.failures, 1);
    }
    let started = observe(&mut machine, now, AFTER_ALL, vec![]);
    assert!(matches!(started[..], [(_, Effect::Start(_))]), "{started:?}");
}

#[test]
fn d2_of_two_programs_of_a_task_the_known_one_stays() {
    let (mut machine, now) = machine();
    observe(&mut machine, now, EffectNumber(0), vec![]);
    observe(&mut machine, now, AFTER_ALL, vec![program(7, None)]);
    let process = program(6, None).process;
    let stop = Effect::Stop { process, signal: StopSignal::Terminate };
    for programs in [vec![program(6, None), program(7, None)], vec![program(7, None)]] {
        let expected: &[Effect] =
            if programs.len() == 2 { std::slice::from_ref(&stop) } else { &[] };
        let found = observe(&mut machine, now, AFTER_ALL, programs);
        let found: Vec<Effect> = found.into_iter().map(|(_, effect)| effect).collect();
        assert_eq!(found, expected);
    }
    assert_eq!(machine.status().tasks[0].process, Some(program(7, None).process));
}

#[test]
fn d2_an_observation_before_a_set_repeats_no_set() {
    let (mut machine, now) = machine();
    observe(&mut machine, now, EffectNumber(0), vec![]);
    observe(&mut machine, now, AFTER_ALL, vec![program(7, None)]);
    let mut changed = program(7, None);
    changed.threads[0].attr.policy = fifo(3, 0).policy;
    let set = observe(&mut machine, now, AFTER_ALL, vec![changed.clone()]);
    let [(number, Effect::Set { setting: Setting::Policy { .. }, .. })] = set[..] else {
        panic!("{set:?}")
    };
    let before = EffectNumber(number.0 - 1);
    assert_eq!(observe(&mut machine, now, before, vec![changed.clone()]), []);
    // The set is lost, and repeated. This is the same repair.
    assert_eq!(observe(&mut machine, now, number, vec![changed]).len(), 1);
    assert_eq!(machine.status().tasks[0].counters.repairs, 1);
}
