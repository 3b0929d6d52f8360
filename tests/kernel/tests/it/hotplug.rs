//! CPUs that go off-line and come back under a running daemon.
//!
//! The machine needs a second CPU that the kernel can take off-line.

use crate::tasks::{periodic, ranked, reserved, with};
use std::path::PathBuf;
use std::time::Instant;
use talea_core::CpuSet;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::{self, Policy};
use talea_os::sysinfo::{self, Hierarchy, SystemInfo};
use talea_proto::message::DetachCause;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{Reply, Request, Task};

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
    () => {{
        let switch = Switch::of_last_cpu();
        needs!("a second CPU that the kernel takes off-line", switch.is_some());
        switch.expect("a switch")
    }};
}

#[test]
fn attack_6_no_grant_stays_on_a_cpu_that_goes_off_line() {
    const CYCLES: u32 = 6;
    needs_root!();
    let bench = Bench::new("hotplug");
    let switch = switch_or_return!();
    let daemon = Daemon::start(&bench, &format!("[daemon]\naccess = \"off\"\n{}", config::PLUGINS));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let client = alice.connect(&daemon);
    let (mut delays, asking) = (Vec::new(), bob.connect(&daemon));
    let status = asking.encode(&Request::Status);
    let often = |count: u32| format!("ask-often {} {count} {status}", asking.index());
    let median = |said: String| {
        let first = said.split(' ').next().and_then(|median| median.parse().ok());
        first.unwrap_or_else(|| panic!("{said}"))
    };
    let mut busy: Vec<u64> = Vec::new();
    let quiet: u64 = median(bob.order(&often(50)));
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
        let begun = Instant::now();
        let is_off = switch.set(false);
        let took = begun.elapsed();
        if !is_off {
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
        delays.push((begun.elapsed().saturating_sub(took), took));
        // The daemon serves other users meanwhile.
        bob.begin(&often(50));
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
        busy.push(median(bob.finish()));
        for (granted, tid) in grants {
            client.done(&Request::Release(granted.spec));
            alice.end_thread(tid);
        }
    }
    assert!(switched > 0, "the kernel has refused every time");
    delays.sort_unstable();
    busy.sort_unstable();
    let (delay, took) = delays[delays.len() / 2];
    let request = busy[busy.len() / 2];
    println!(
        "no thread is real-time {delay:?} after the kernel has taken {took:?} to switch the CPU; \
         requests of another user take {request} us, quiet {quiet} us"
    );
    // An inspection would detect the change after 100 ms on average.
    assert!(delay < took, "{delays:?}");
    assert!(request < 50 * quiet, "{busy:?} us, quiet {quiet} us");
    assert_eq!(sysinfo::online_now(), Some(kernel::cpus()));
}

/// The kernel hides the CPU that is off-line in the affinity, which still contains it.
#[test]
fn attack_6_a_thread_on_a_set_with_an_off_line_cpu_gets_its_own_cpus_back() {
    needs_root!();
    let bench = Bench::new("hotplug-set");
    let switch = switch_or_return!();
    let object = bench.plugin("spread");
    let plugin = crate::foreign::foreign("spread", &object, "");
    let daemon = Daemon::start(&bench, &format!("[daemon]\naccess = \"off\"\n{plugin}"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let (tid, cpus) = (alice.thread(), kernel::cpus());
    let first = CpuSet::single(cpus.iter().next().expect("a CPU"));
    sched::set_affinity(kernel::tid(tid), &first).expect("an affinity");
    let before = kernel::attr(tid);
    let task = Task { cpus, cpus_mandatory: true, ..with("spread", reserved(10, 1_000)) };
    let granted = client.create(task);
    // The daemon learns at its first restore which CPUs a thread without a mask has.
    client.attach(granted.spec, tid);
    client.done(&Request::Detach(granted.spec));
    assert_eq!(kernel::affinity(tid), first);
    for _ in 0..3 {
        client.attach(granted.spec, tid);
        assert_eq!(kernel::affinity(tid), cpus);
        assert!(switch.set(false), "no deadline thread needs the CPU");
        eventually("the thread is detached", || client.query(granted.spec).tid.is_none());
        assert_eq!(client.query(granted.spec).detached, Some(DetachCause::Offline));
        assert!(switch.set(true));
        assert_eq!(kernel::attr(tid), before);
        assert_eq!(kernel::affinity(tid), first);
        eventually("the CPU is used again", || match client.ask(&Request::Create(task)) {
            Reply::Granted(again) => {
                client.done(&Request::Release(again.spec));
                again.cpu.is_none()
            }
            _ => false,
        });
    }
    client.done(&Request::Release(granted.spec));
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
    let enforcer = enforcer_of(&daemon, switch.cpu);
    assert_eq!(kernel::policy(enforcer), Policy::Fifo(99), "it needs no start later");
    let client = alice.connect(&daemon);
    assert!(matches!(client.claim(spec, token), Reply::Granted(_) | Reply::Done));
    assert!(kernel::is_ordinary(tid), "the thread has left the CPU of its grant");
    assert_eq!(client.query(spec).detached, Some(DetachCause::Offline));
    assert!(switch.set(true));
    eventually("the grant is in force again", || {
        matches!(client.try_attach(spec, tid), Reply::Done)
    });
    assert_eq!(kernel::affinity(tid), CpuSet::single(switch.cpu));
    assert_eq!(kernel::affinity(enforcer), CpuSet::single(switch.cpu));
}

/// Returns the thread of the daemon that enforces the budgets on a CPU.
fn enforcer_of(daemon: &Daemon, cpu: u32) -> i32 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("a daemon");
    let name = format!("talea-limit/{cpu}\n");
    let is_it = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm == name)
    };
    let found = tasks.flatten().find(is_it).expect("an enforcer for each CPU that is present");
    found.file_name().to_string_lossy().parse().expect("a number")
}

/// A cpuset of cgroup v1 with these CPUs; dropping it moves the thread out and removes it.
struct Narrow {
    root: PathBuf,
    own: PathBuf,
    tid: i32,
}

impl Narrow {
    fn confine(root: PathBuf, cpus: CpuSet, tid: i32) -> Narrow {
        let own = root.join(format!("talea-test-{}", std::process::id()));
        std::fs::create_dir(&own).expect("root may");
        let narrow = Narrow { root, own, tid };
        let memory = std::fs::read_to_string(narrow.root.join("cpuset.mems")).expect("memory");
        for (name, value) in [("cpuset.cpus", cpus.to_string()), ("cpuset.mems", memory)] {
            std::fs::write(narrow.own.join(name), value).expect(name);
        }
        std::fs::write(narrow.own.join("tasks"), tid.to_string()).expect("a thread of ours");
        narrow
    }
}

impl Drop for Narrow {
    fn drop(&mut self) {
        // The daemon may have ended already.
        let _ = std::fs::write(self.root.join("tasks"), self.tid.to_string());
        let removed = std::fs::remove_dir(&self.own);
        assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
    }
}

#[test]
fn attack_6_an_enforcer_that_cannot_return_to_its_cpu_returns_later() {
    needs_root!();
    let bench = Bench::new("hotplug-enforcer");
    let switch = switch_or_return!();
    let machine = SystemInfo::probe().expect("this machine");
    let cpusets = match machine.cgroups.cpuset {
        Hierarchy::V1(at) => Some(PathBuf::from(at)),
        _ => None,
    };
    needs!("cpusets of cgroup v1", cpusets.is_some());
    let daemon = Daemon::start(&bench, &format!("[daemon]\naccess = \"off\"\n{}", config::PLUGINS));
    let own = CpuSet::single(switch.cpu);
    let enforcer = enforcer_of(&daemon, switch.cpu);
    assert_eq!(kernel::affinity(enforcer), own);
    assert!(switch.set(false), "the kernel takes the CPU off-line");
    eventually("the kernel moves it away", || kernel::affinity(enforcer) != own);
    let others = kernel::cpus().difference(&own);
    let narrow = Narrow::confine(cpusets.expect("checked"), others, enforcer);
    assert!(switch.set(true));
    daemon.wait_for_line("is on another CPU").expect("a living daemon");
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut task = with("rm", periodic(20));
    (task.cpus, task.cpus_mandatory) = (own, true);
    let tid = alice.thread();
    client.attach(client.create(task).spec, tid);
    // Otherwise the kernel returns it when its cpuset permits that.
    sched::set_affinity(kernel::tid(enforcer), &others).expect("root may");
    drop(narrow);
    assert_eq!(kernel::affinity(enforcer), others);
    eventually("the enforcer is back", || kernel::affinity(enforcer) == own);
    let said = daemon.said_since_start();
    assert_eq!(said.iter().filter(|line| line.contains("on another CPU")).count(), 1, "{said:?}");
}
