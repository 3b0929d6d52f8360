//! CPUs that go off-line and come back.

use super::adopt::reconnect;
use super::foreign::{ask, last, yes};
use super::stage::{Words, by, setup, timed, urgent, world_of};
use crate::input::{ForeignAnswer, ForeignCall, Input, SessionId};
use crate::sim::{Simulation, Target};
use talea_core::{Charge, CpuSet};
use talea_proto::message::DetachCause;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Code, Reply, Request, Task, ThreadRef};

fn take_offline(world: &mut Simulation, offline: CpuSet) {
    world.handle_input(Input::CpusChanged { offline });
    world.run_until_idle();
}

#[test]
fn attack_6_a_thread_on_an_off_line_cpu_is_detached_and_attached_elsewhere() {
    let mut world = world_of(setup(&["fp"], 2), 2);
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let granted = world.create(client, urgent(5));
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    let cpu = granted.cpu.expect("one CPU");
    take_offline(&mut world, CpuSet::single(cpu));
    let info = world.query(client, granted.spec).expect("the spec stays");
    assert_eq!((info.tid, info.detached), (None, Some(DetachCause::Offline)));
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    let info = world.query(client, granted.spec).expect("the spec stays");
    assert_eq!(info.granted.cpu, Some(1 - cpu), "it was placed again");
    // The CPU that is back is used again.
    take_offline(&mut world, CpuSet::EMPTY);
    assert_eq!(world.create(client, urgent(6)).cpu, Some(cpu));
    world.check_idle(false);
}

#[test]
fn attack_6_nothing_is_granted_on_an_off_line_cpu() {
    let mut world = world_of(setup(&["fp", "edf", "rm"], 2), 2);
    let client = world.connect(1000);
    take_offline(&mut world, CpuSet::single(1));
    for n in 0..6 {
        assert_eq!(world.create(client, by(urgent(5 + n), "fp")).cpu, Some(0));
    }
    let mut task = by(urgent(5), "fp");
    (task.cpus, task.cpus_mandatory) = (CpuSet::single(1), true);
    let refused = world.refused(client, Request::Create(task));
    assert_eq!(refused.code, Code::NoPlugin);
    let reasons = refused.answers.iter().filter_map(|answer| match answer.verdict {
        PluginVerdict::No(no) => Some((no.reason, no.limit)),
        _ => None,
    });
    assert!(reasons.into_iter().any(|found| found == (RejectionReason::Offline, 1)), "{refused:?}");
}

/// Answers calls with all CPUs of the call until there is none.
fn answer_all(world: &mut Simulation) {
    world.run_until_idle();
    let whole = |call: &ForeignCall| {
        let answer = yes(call)?;
        let ForeignCall::Accept { cpus, .. } = call else { return Some(answer) };
        let cpu = cpus.iter().next().map_or(-1, |cpu| cpu as i32);
        Some(ForeignAnswer { cpu, cpus: *cpus, ..answer })
    };
    while world.answer_call(whole) {
        world.run_until_idle();
    }
}

fn said(world: &mut Simulation, client: SessionId, request: Request) -> Reply {
    ask(world, client, request);
    answer_all(world);
    last(world, client).expect("a reply")
}

#[test]
fn attack_6_a_thread_on_a_set_is_detached_as_soon_as_one_of_its_cpus_is_off_line() {
    let mut world = world_of(setup(&["ours"], 2), 2);
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let ordinary = world.attr_of(tid);
    let Reply::Granted(granted) = said(&mut world, client, Request::Create(timed(2_000, 10_000)))
    else {
        panic!("granted")
    };
    assert_eq!(granted.cpu, None);
    assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
    answer_all(&mut world);
    assert_eq!(world.attr_of(tid).cpus, CpuSet::first(2));
    // A killed daemon restores the set.
    world.restart();
    answer_all(&mut world);
    assert_eq!(world.attr_of(tid).cpus, CpuSet::first(2));
    let client = reconnect(&mut world, tid);
    let claim = Request::Claim { spec: granted.spec, token: granted.token };
    assert!(matches!(said(&mut world, client, claim), Reply::Granted(_)));
    for cpu in 0..2 {
        take_offline(&mut world, CpuSet::single(cpu));
        answer_all(&mut world);
        let info = world.query(client, granted.spec).expect("the spec stays");
        assert_eq!((info.tid, info.detached), (None, Some(DetachCause::Offline)));
        assert_eq!(world.attr_of(tid), ordinary);
        take_offline(&mut world, CpuSet::EMPTY);
        assert_eq!(world.attach(client, granted.spec, tid), Reply::Done);
        answer_all(&mut world);
        assert_eq!(world.attr_of(tid).cpus, CpuSet::first(2));
    }
    // With a CPU off-line the plugin is asked again, and the set is charged no longer.
    take_offline(&mut world, CpuSet::single(0));
    answer_all(&mut world);
    let thread = ThreadRef::Pidfd;
    world.send(client, Request::Attach { spec: granted.spec, thread }, Some(Target::Thread(tid)));
    answer_all(&mut world);
    assert_eq!(last(&mut world, client), Some(Reply::Done));
    assert_eq!(world.attr_of(tid).cpus, CpuSet::single(1));
    let used = |world: &mut Simulation| {
        let of = |index| world.broker.plugin_set.cpu_info(0, index).expect("a CPU").used;
        [of(0), of(1)]
    };
    assert_eq!(used(&mut world), [Charge::ZERO, granted.charge]);
    world.check_idle(false);
}

#[test]
fn an_executor_reserves_each_cpu_of_a_set() {
    let mut world = world_of(setup(&["ours", "fp"], 2), 2);
    let client = world.connect(0);
    let task = Task { exclusive: true, ..by(timed(2_000, 10_000), "ours") };
    let Reply::Granted(granted) = said(&mut world, client, Request::Create(task)) else {
        panic!("granted")
    };
    for cpu in 0..2 {
        let mut task = by(urgent(5), "fp");
        (task.cpus, task.cpus_mandatory) = (CpuSet::single(cpu), true);
        assert!(matches!(said(&mut world, client, Request::Create(task)), Reply::Refused(_)));
    }
    said(&mut world, client, Request::Release(granted.spec));
    let task = by(urgent(5), "fp");
    assert!(matches!(said(&mut world, client, Request::Create(task)), Reply::Granted(_)));
}
