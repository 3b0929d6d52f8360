//! CPUs that go off-line and come back.

use super::stage::{Words, by, setup, urgent, world_of};
use crate::input::Input;
use talea_core::CpuSet;
use talea_proto::message::DetachCause;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Code, Reply, Request};

fn take_offline(world: &mut crate::sim::Simulation, offline: CpuSet) {
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
