//! The CPUs of a deployment in the ledger of `talead`: no grant is placed there.

use super::SLEEP;
use crate::tasks::{ranked, reserved};
use talea_core::CpuSet;
use talea_deploy::text::message::Ask;
use talea_kernel_tests::deployd::{Deployd, task};
use talea_kernel_tests::{
    ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Reply, Request, Task};

/// Whether a user gets this task on CPU 0. A refusal must name the reservation.
pub(super) fn is_granted(daemon: &Daemon, task: Task) -> bool {
    let agent = Agent::user(ALICE);
    let client = agent.connect(daemon);
    let task = Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..task };
    match client.ask(&Request::Create(task)) {
        Reply::Granted(granted) => {
            client.done(&Request::Release(granted.spec));
            true
        }
        Reply::Refused(refusal) => {
            let is_reserved = refusal.answers.iter().any(|answer| {
                matches!(answer.verdict, PluginVerdict::No(no)
                    if no.reason == RejectionReason::Reserved)
            });
            assert!(is_reserved, "{refusal}");
            false
        }
        other => panic!("{other:?}"),
    }
}

fn wait_until(daemon: &Daemon, granted: bool) {
    for task in [ranked(5), reserved(100, 1_000)] {
        eventually(&format!("granted: {granted}"), || is_granted(daemon, task) == granted);
    }
}

#[test]
fn d26_no_grant_is_placed_on_the_cpus_of_a_deployment_whichever_daemon_is_killed() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let bench = Bench::new("deploy-reserved");
    let mut daemon = Daemon::start(&bench, &config::open());
    let mut deployd = Deployd::start_beside(&bench, daemon.socket());
    wait_until(&daemon, true);
    deployd.apply(&[task("control", 93, &SLEEP)], None);
    wait_until(&daemon, false);
    // The other CPU is as before.
    let agent = Agent::user(ALICE);
    let beside = agent.connect(&daemon).create(reserved(100, 1_000));
    assert!(beside.cpu.is_none_or(|cpu| cpu != 0), "{beside:?}");

    daemon.kill();
    daemon.restart();
    wait_until(&daemon, false);
    deployd.kill();
    deployd.restart();
    wait_until(&daemon, false);
    deployd.change(&Ask::Remove);
    wait_until(&daemon, true);
}
