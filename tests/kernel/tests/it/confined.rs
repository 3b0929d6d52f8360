//! `confine = "partition"`: deadline threads on a CPU of their own; afterwards the machine is
//! unchanged.

use crate::tasks::{owned_by, ranked, reserved, with};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use talea_core::CpuSet;
use talea_kernel_tests::{
    ALICE, Agent, Bench, Client, Daemon, eventually, kernel, needs, needs_root,
};
use talea_os::sysinfo::{Hierarchy, SystemInfo};
use talea_os::{partition, proc};
use talea_proto::message::{Caveat, Mechanism, Notes};
use talea_proto::{Owner, Reply, Request, SpecId};

/// Returns the last CPU; all threads may use the others.
fn last() -> u32 {
    kernel::cpus().iter().last().expect("a CPU")
}

/// Returns a configuration of `edf` on the last CPU, in a partition of its own.
fn apart() -> String {
    configured(&format!("cpus = \"{}\"\nconfine = \"partition\"", last()))
}

fn configured(edf: &str) -> String {
    format!("[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"edf\"\nkind = \"edf\"\n{edf}\n")
}

/// Returns the mount point of the cgroup v1 cpusets, on a machine without partitions; otherwise
/// `None`. No deadline thread of an earlier test, of any program, has ended within its last period.
fn undivided() -> Option<PathBuf> {
    std::thread::sleep(Duration::from_millis(200));
    let machine = SystemInfo::probe().expect("this machine");
    match &machine.cgroups.cpuset {
        Hierarchy::V1(at) if machine.online.len() >= 2 && machine.is_one_domain() => {
            Some(at.into())
        }
        _ => None,
    }
}

/// Returns every cpuset of the machine with its settings.
fn sets(at: &Path) -> BTreeMap<PathBuf, String> {
    let text = |name: &str| std::fs::read_to_string(at.join(name)).unwrap_or_default();
    let names = ["cpuset.cpus", "cpuset.mems", "cpuset.sched_load_balance"];
    let mut all = BTreeMap::from([(at.to_owned(), names.map(text).concat())]);
    for entry in std::fs::read_dir(at).expect("a hierarchy").flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            all.append(&mut sets(&entry.path()));
        }
    }
    all
}

/// Journal of partitions; dropping it undoes what a failed test has left.
struct Undo(PathBuf);

impl Drop for Undo {
    fn drop(&mut self) {
        drop(partition::undo(&self.0));
    }
}

fn is_apart() -> bool {
    let machine = SystemInfo::probe().expect("this machine");
    machine.domain_of(last()).is_some_and(|domain| domain.cpus == CpuSet::single(last()))
}

/// Attaches a thread, which may sleep on another CPU, and wakes it.
#[track_caller]
fn attach(client: &Client, spec: SpecId, tid: i32) {
    match client.try_attach(spec, tid) {
        Reply::Done => {}
        Reply::DoneWithCaveat(Caveat::PendingWakeup) => {
            // Any wake-up in between makes it a deadline thread: first the daemon's state, then the
            // kernel's.
            let claimed = client.query(spec).attr.is_some();
            assert!(
                !claimed || kernel::policy(tid).is_deadline(),
                "nothing is claimed that is not so"
            );
            client.agent.work(tid, 1);
        }
        other => panic!("{other:?}"),
    }
    eventually("a thread that is awake has its deadline", || kernel::policy(tid).is_deadline());
    eventually("and the daemon says so", || client.query(spec).attr.is_some());
    assert_eq!(kernel::affinity(tid), CpuSet::single(last()));
}

#[test]
fn r12_a_partition_confines_a_thread_to_its_cpu_and_is_gone_with_the_daemon() {
    needs_root!();
    let bench = Bench::new("partition");
    let mount = undivided();
    needs!("cgroup v1 with undivided cpusets, and two CPUs", mount.is_some());
    let mount = mount.expect("it was just looked at");
    let (saved, journal) = (sets(&mount), bench.path("state").join("partitions"));
    let _undo = Undo(journal.clone());
    let mut daemon = Daemon::start(&bench, &apart());
    assert!(is_apart() && journal.exists());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for round in 0..5 {
        let tid = alice.thread();
        let before = (kernel::attr(tid), kernel::affinity(tid));
        let granted = client.create(with("edf", reserved(10, 2_000)));
        assert_eq!((granted.cpu, granted.mechanism), (Some(last()), Mechanism::DeadlinePinned));
        attach(&client, granted.spec, tid);
        alice.work(tid, 5);
        assert_eq!(proc::stat(kernel::tid(tid)).expect("its state").cpu, last(), "round {round}");
        // Its parameters can be changed where it is.
        let changed =
            Request::Change { spec: granted.spec, task: with("edf", reserved(10, 3_000)) };
        assert!(matches!(client.ask(&changed), Reply::Granted(_)));
        assert!(kernel::policy(tid).is_deadline());
        client.done(&Request::Release(granted.spec));
        assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before);
    }
    // A signal ends the daemon; the partition is not needed any more.
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success());
    assert_eq!(sets(&mount), saved, "{}", daemon.log());
    assert!(!journal.exists());
    assert!(SystemInfo::probe().expect("this machine").is_one_domain());
    assert_eq!(
        daemon.said_since_start(),
        ["talead: stopped by a signal; all grants stay in force"]
    );
}

#[test]
fn r7_a_change_into_another_root_domain_takes_effect_when_the_thread_wakes() {
    needs_root!();
    let bench = Bench::new("partition-change");
    let mount = undivided();
    needs!("cgroup v1 with undivided cpusets, and two CPUs", mount.is_some());
    let _undo = Undo(bench.path("state").join("partitions"));
    let fp = "[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"0\"\npriorities = \"20-39\"\n";
    let daemon = Daemon::start(&bench, &format!("{}{fp}", apart()));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for is_detached in [false, true] {
        let tid = alice.thread();
        let before = (kernel::attr(tid), kernel::affinity(tid));
        let granted = client.create(with("fp", ranked(5)));
        client.attach(granted.spec, tid);
        // The thread sleeps on CPU 0 from here on.
        alice.work(tid, 1);
        let change = Request::Change { spec: granted.spec, task: with("edf", reserved(10, 2_000)) };
        match client.ask(&change) {
            Reply::Granted(new) => {
                assert!(new.notes.contains(Notes::PENDING_WAKEUP), "{new:?}");
                assert_eq!(new.cpu, Some(last()));
            }
            other => panic!("{other:?}"),
        }
        // No terms cover a FIFO priority on the new CPU.
        assert_eq!(kernel::attr(tid), before.0);
        assert_eq!(kernel::affinity(tid), CpuSet::single(last()));
        if !is_detached {
            alice.work(tid, 1);
            eventually("it has its deadline", || kernel::policy(tid).is_deadline());
        }
        client.done(&Request::Detach(granted.spec));
        assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before);
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn r12_partitions_outlive_a_killed_daemon_with_the_grants_and_go_with_the_last() {
    needs_root!();
    let bench = Bench::new("partition-kill");
    let mount = undivided();
    needs!("cgroup v1 with undivided cpusets, and two CPUs", mount.is_some());
    let mount = mount.expect("it was just looked at");
    let (saved, journal) = (sets(&mount), bench.path("state").join("partitions"));
    let _undo = Undo(journal.clone());
    let mut daemon = Daemon::start(&bench, &apart());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let tid = alice.thread();
    let before = (kernel::attr(tid), kernel::affinity(tid));
    let granted = client.create(owned_by(Owner::Process, with("edf", reserved(10, 2_000))));
    attach(&client, granted.spec, tid);
    let (attr, divided) = (kernel::attr(tid), sets(&mount));
    let written =
        || std::fs::metadata(&journal).and_then(|meta| meta.modified()).expect("the journal");
    let begun = written();
    for end in [Signal::KILL, Signal::TERM, Signal::KILL] {
        daemon.signal(end);
        daemon.wait();
        assert_eq!(
            (kernel::attr(tid), sets(&mount)),
            (attr, divided.clone()),
            "nothing moves meanwhile"
        );
        daemon.restart();
        assert!(daemon.log().contains("adopted 1 of 1 grants"), "{}", daemon.log());
        // The kernel rebuilds its bandwidth accounting at each change of a cpuset: what is right is
        // not changed.
        assert_eq!((kernel::attr(tid), sets(&mount), written()), (attr, divided.clone(), begun));
        alice.work(tid, 2);
    }
    // An administrator has thought better of it while the daemon was down: the thread keeps its
    // deadline, without the partition.
    daemon.kill();
    bench.write("talead.toml", &configured("cpus = \"all\""));
    daemon.restart();
    assert_eq!(sets(&mount), saved, "{}", daemon.log());
    eventually("the thread may use the whole domain", || kernel::affinity(tid) == kernel::cpus());
    assert!(kernel::policy(tid).is_deadline());
    // And better again: the thread has to stay where it is, so there is no room for it in a
    // partition; what was promised holds until it is released.
    daemon.kill();
    bench.write("talead.toml", &apart());
    daemon.restart();
    let fresh = alice.connect(&daemon);
    assert!(matches!(fresh.claim(granted.spec, granted.token), Reply::Granted(_)));
    match fresh.ask(&Request::Release(granted.spec)) {
        Reply::Done | Reply::DoneWithCaveat(_) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before);
    let (code, said) = daemon.stop(&["--release"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(daemon.wait().success());
    assert_eq!(sets(&mount), saved);
    assert!(!journal.exists());
}

#[test]
fn r12_a_daemon_that_must_not_partition_the_machine_reports_it() {
    needs_root!();
    let bench = Bench::new("partition-not");
    let mount = undivided();
    needs!("cgroup v1 with undivided cpusets, and two CPUs", mount.is_some());
    let mount = mount.expect("it was just looked at");
    let saved = sets(&mount);
    // Nothing but the word makes a partition on cgroup v1.
    for confine in ["", "confine = \"auto\"", "confine = \"global\""] {
        let daemon = Daemon::start(&bench, &configured(&format!("cpus = \"all\"\n{confine}")));
        assert_eq!(sets(&mount), saved, "{confine}");
        drop(daemon);
    }
    // Another set that balances everywhere (as containers have): the domains would be merged again.
    let other = mount.join("other-set");
    std::fs::create_dir(&other).expect("a set");
    std::fs::write(other.join("cpuset.cpus"), kernel::cpus().to_string()).expect("its CPUs");
    let divided = sets(&mount);
    let daemon = Daemon::start(&bench, &apart());
    let now = sets(&mount);
    std::fs::remove_dir(&other).expect("removed");
    assert_eq!(now, divided, "everything was put back");
    let log = daemon.log();
    assert!(log.contains("another cpuset that balances its load"), "{log}");
    assert!(log.contains("rejects every task"), "{log}");
    drop(daemon);
    assert_eq!(sets(&mount), saved);
}
