//! Reuse of thread ids: the next thread with the same number is another thread.

use crate::tasks::{owned_by, periodic, with};
use rustix::process::Signal;
use std::process::{Child, Command};
use talea_kernel_tests::{
    ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::{self, Attr, Policy};
use talea_proto::{Owner, Request};

const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

/// Starts a process with exactly this number; `None` if other processes took the number each time.
fn process_numbered(pid: i32) -> Option<Child> {
    for _ in 0..200 {
        std::fs::write(LAST_PID, (pid - 1).to_string()).ok()?;
        let mut child = Command::new("/bin/sleep").arg("600").spawn().expect("sleep");
        if child.id() as i32 == pid {
            return Some(child);
        }
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
    None
}

#[test]
fn r32_retif_s7_a_foreign_process_with_the_same_number_and_policy_is_left_alone() {
    needs_root!();
    needs!("ns_last_pid", std::fs::metadata(LAST_PID).is_ok());
    let bench = Bench::new("s7");
    let mut daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for (round, owner) in [Owner::Session, Owner::Process, Owner::Thread].into_iter().enumerate() {
        let victim = Agent::user(ALICE);
        let number = victim.pid();
        let granted = client.create(owned_by(owner, with("rm", periodic(10))));
        client.attach(granted.spec, number);
        // The daemon is stopped while the kernel reuses the number.
        daemon.signal(Signal::STOP);
        victim.kill();
        let foreign = process_numbered(number);
        needs!("a process number of choice", foreign.is_some());
        let mut foreign = foreign.expect("checked above");
        let policy = Policy::Fifo(granted.priority);
        sched::set(kernel::tid(number), &Attr::plain(policy))
            .expect("the foreign is real-time by right");
        let affinity = kernel::affinity(number);
        if round == 1 {
            // Even the next daemon notices.
            daemon.kill();
            daemon.restart();
            let fresh = alice.connect(&daemon);
            assert_eq!(fresh.query(granted.spec).tid, None);
        } else {
            daemon.signal(Signal::CONT);
            client.ask(&Request::Detach(granted.spec));
            client.ask(&Request::Release(granted.spec));
        }
        assert_eq!(
            (kernel::policy(number), kernel::affinity(number)),
            (policy, affinity),
            "{owner:?}"
        );
        foreign.kill().expect("kill");
        foreign.wait().expect("wait");
        if round == 1 {
            return;
        }
        eventually("the spec is gone or has no thread", || client.status().attached == 0);
    }
}
