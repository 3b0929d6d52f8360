//! CPUs that go off-line and come back under a running daemon.
//!
//! The machine needs a second CPU that the kernel can take off-line; a test that finds none says so
//! and checks nothing.

use crate::tasks::{periodic, ranked, with};
use std::path::PathBuf;
use talea_core::CpuSet;
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs_root};
use talea_os::sysinfo;
use talea_proto::message::DetachCause;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Reply, Request};

/// A CPU that a test takes off-line; dropping it brings the CPU back.
struct Switch {
    cpu: u32,
    file: PathBuf,
}

impl Switch {
    /// Returns the switch of the last CPU, if the machine has one.
    fn of_last_cpu() -> Option<Switch> {
        let cpus = kernel::cpus();
        let cpu = cpus.iter().last().filter(|_| cpus.len() > 1)?;
        let file = PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"));
        file.exists().then_some(Switch { cpu, file })
    }

    /// Returns false if the kernel refuses: its deadline threads need the CPU.
    fn set(&self, is_online: bool) -> bool {
        std::fs::write(&self.file, if is_online { "1" } else { "0" }).is_ok()
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.set(true);
    }
}

/// Returns the switch, or ends the test.
macro_rules! switch_or_return {
    () => {
        match Switch::of_last_cpu() {
            Some(switch) => switch,
            None => {
                eprintln!("skipped: the kernel takes no CPU of this machine off-line");
                return;
            }
        }
    };
}

#[test]
fn attack_6_no_grant_stays_on_a_cpu_that_goes_off_line() {
    const CYCLES: u32 = 6;
    needs_root!();
    let bench = Bench::new("hotplug");
    let switch = switch_or_return!();
    let daemon = Daemon::start(&bench, &format!("[daemon]\naccess = \"off\"\n{}", config::PLUGINS));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let (mut switched, cycles) =
        (0, if std::env::var_os("TALEA_SOAK").is_some() { 200 } else { CYCLES });
    for cycle in 0..cycles {
        let tids: Vec<i32> = (0..4).map(|_| alice.thread()).collect();
        let grants: Vec<_> = tids
            .iter()
            .enumerate()
            .map(|(number, &tid)| {
                let plugin = ["fp", "rm"][number % 2];
                let task = if plugin == "fp" { ranked(5) } else { periodic(20) };
                let granted = client.create(with(plugin, task));
                client.attach(granted.spec, tid);
                (granted, tid)
            })
            .collect();
        let here = |cpu: Option<u32>| cpu == Some(switch.cpu);
        assert!(grants.iter().any(|(granted, _)| here(granted.cpu)), "{cycle}: spread");
        if !switch.set(false) {
            // EBUSY: an answer of the kernel.
            for (granted, _) in &grants {
                client.done(&Request::Release(granted.spec));
            }
            continue;
        }
        switched += 1;
        eventually("no thread is real-time by a grant on the CPU", || {
            let mut left = grants.iter().filter(|(granted, _)| here(granted.cpu));
            left.all(|&(_, tid)| kernel::is_ordinary(tid))
        });
        for &(ref granted, tid) in &grants {
            let info = client.query(granted.spec);
            if !here(granted.cpu) {
                assert_eq!((info.tid, info.detached), (Some(tid as u32), None));
                continue;
            }
            assert_eq!((info.tid, info.detached), (None, Some(DetachCause::Offline)));
            // The next attach places it again.
            client.attach(granted.spec, tid);
            let cpu = client.query(granted.spec).granted.cpu.expect("one CPU");
            assert_ne!(cpu, switch.cpu);
            assert_eq!(kernel::affinity(tid), CpuSet::single(cpu));
        }
        let mut task = with("fp", ranked(1));
        (task.cpus, task.cpus_mandatory) = (CpuSet::single(switch.cpu), true);
        let refusal = client.refused(&Request::Create(task));
        let mut reasons = refusal.answers.iter().filter_map(|answer| match answer.verdict {
            PluginVerdict::No(no) => Some(no.reason),
            _ => None,
        });
        assert!(reasons.any(|reason| reason == RejectionReason::Offline), "{refusal:?}");
        assert!(switch.set(true));
        eventually("the CPU is used again", || match client.ask(&Request::Create(task)) {
            Reply::Granted(granted) => {
                client.done(&Request::Release(granted.spec));
                true
            }
            _ => false,
        });
        for (granted, tid) in grants {
            client.done(&Request::Release(granted.spec));
            alice.end_thread(tid);
        }
    }
    assert!(switched > 0, "the kernel has refused every time");
    assert_eq!(sysinfo::online_now(), Some(kernel::cpus()));
}

#[test]
fn attack_6_a_daemon_starts_while_a_configured_cpu_is_off_line() {
    needs_root!();
    let bench = Bench::new("hotplug-start");
    let switch = switch_or_return!();
    let text = format!(
        "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"{}\"\n\
         priorities = \"20-49\"\n",
        switch.cpu
    );
    let mut daemon = Daemon::start(&bench, &text);
    let alice = Agent::user(ALICE);
    let (tid, spec, token) = {
        let client = alice.connect(&daemon);
        let mut task = ranked(5);
        task.owner = talea_proto::Owner::Process;
        let granted = client.create(task);
        let tid = alice.thread();
        client.attach(granted.spec, tid);
        (tid, granted.spec, granted.token)
    };
    daemon.kill();
    assert!(switch.set(false), "the kernel takes the CPU off-line");
    daemon.restart();
    assert!(daemon.wait_for_line("are off-line").is_some());
    let client = alice.connect(&daemon);
    assert!(matches!(client.claim(spec, token), Reply::Granted(_) | Reply::Done));
    assert!(kernel::is_ordinary(tid), "the thread has left the CPU of its grant");
    assert_eq!(client.query(spec).detached, Some(DetachCause::Offline));
    assert!(switch.set(true));
    eventually("the grant is in force again", || {
        matches!(client.try_attach(spec, tid), Reply::Done)
    });
    assert_eq!(kernel::affinity(tid), CpuSet::single(switch.cpu));
}
