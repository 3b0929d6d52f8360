//! Clients that are killed, clients that live on, and the state of the machine.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use talea_core::CpuSet;
use talea_kernel_tests::{ALICE, Agent, Bench, Daemon, eventually, kernel};
use talea_os::sched::{self, Attr};
use talea_os::{proc, sysinfo};

/// User of the clients that are killed.
const DAVE: u32 = 60_005;
/// Number of threads of another process under a busy client's grants.
const FOREIGN: usize = 4;
/// Maximum time that a deadline thread needs to repay an overrun debt. The kernel charges a stall
/// of the machine to the thread, and runs the thread again, even to its end, only after the debt is
/// repaid. With 4 % of a CPU, 200 ms take 5 s.
const MAX_OVERRUN: Duration = Duration::from_secs(30);
/// Maximum difference of the kernel's bandwidth sum, in units of 2^-20 CPUs: the rest that
/// shrinking leaves of demoted sleeping threads. The smallest reservation of the test is 40,000.
const DUST: i64 = 256;

fn test_clients(bench: &Bench) -> Command {
    Command::new(crate::attacker::test_clients(bench))
}

/// Starts a client that outlives all kills.
pub(crate) fn holder(bench: &Bench, daemon: &Daemon) -> Agent {
    let holder = Agent::start(test_clients(bench), ALICE);
    let said = holder.order(&format!("start holder holder {}", daemon.socket().display()));
    assert_eq!(said, "started");
    holder
}

/// A busy client, and a process whose threads are under its grants.
pub(crate) struct BusyProcess {
    client: Option<Agent>,
    _other: Agent,
    threads: Vec<(i32, Attr, CpuSet)>,
}

impl BusyProcess {
    pub(crate) fn new(bench: &Bench) -> BusyProcess {
        let other = Agent::start(test_clients(bench), DAVE);
        let threads = (0..FOREIGN).map(|habit| {
            let tid = other.order(&format!("habit {habit}")).parse().expect("a thread");
            (tid, kernel::attr(tid), kernel::affinity(tid))
        });
        BusyProcess { threads: threads.collect(), client: None, _other: other }
    }

    /// Starts a new client. When the function returns, the client has attached all of its threads.
    pub(crate) fn go(&mut self, bench: &Bench, daemon: &Daemon, seed: u64) {
        let client = Agent::start(test_clients(bench), DAVE);
        let tids: Vec<String> = self.threads.iter().map(|(tid, ..)| tid.to_string()).collect();
        let order =
            format!("start busy busy {} {seed} {}", daemon.socket().display(), tids.join(" "));
        assert_eq!(client.order(&order), "started");
        self.client = Some(client);
    }

    /// Kills the client; returns the number of threads of the other process that were real-time
    /// then.
    #[track_caller]
    pub(crate) fn kill(&mut self) -> u32 {
        let real_time =
            self.threads.iter().filter(|(tid, ..)| kernel::policy(*tid).is_realtime()).count();
        let client = self.client.take().expect("a client at work");
        let pid = client.os_pid();
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("kill");
        let end = Instant::now() + MAX_OVERRUN;
        while threads(pid).into_iter().any(kernel::exists) {
            if Instant::now() > end {
                let left: Vec<_> =
                    threads(pid).into_iter().filter(|&tid| kernel::exists(tid)).collect();
                let left = left.into_iter().map(describe).collect::<Vec<_>>().join("\n");
                let deadline = thaw(&[DAVE]);
                panic!("killed and not dead:\n{left}\nthe user's deadline threads: {deadline:?}");
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        real_time as u32
    }

    fn is_back(&self) -> bool {
        self.threads
            .iter()
            .all(|(tid, attr, cpus)| (kernel::attr(*tid), kernel::affinity(*tid)) == (*attr, *cpus))
    }
}

impl Drop for BusyProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            thaw(&[DAVE]);
        }
    }
}

/// Makes the deadline threads of these users ordinary, and returns them with their policies. A
/// thread that the kernel does not replenish cannot even be killed before.
fn thaw(uids: &[u32]) -> Vec<(i32, sched::Policy)> {
    let all = real_time_threads(|uid| uids.contains(&uid));
    let frozen: Vec<_> = all.into_iter().filter(|(_, policy)| policy.is_deadline()).collect();
    for (tid, _) in &frozen {
        let _ = sched::set(kernel::tid(*tid), &Attr::plain(sched::Policy::NORMAL));
    }
    frozen
}

/// Returns the kernel state of a thread for a failure message.
fn describe(tid: i32) -> String {
    let file =
        |name: &str| std::fs::read_to_string(format!("/proc/{tid}/{name}")).unwrap_or_default();
    format!(
        "now {} thread {tid} {:?} stack {:?} {:?} {:?}",
        std::fs::read_to_string("/proc/uptime").unwrap_or_default().trim_end(),
        file("stat").rsplit(')').next().map(|rest| rest.chars().take(60).collect::<String>()),
        file("stack"),
        sched::get(kernel::tid(tid)).map(|attr| attr.policy),
        file("sched")
            .lines()
            .filter(|line| line.starts_with("dl.") || line.starts_with("se.exec_start"))
            .collect::<Vec<_>>(),
    )
}

/// Returns the threads of a process, also of one that is about to end.
fn threads(pid: i32) -> Vec<i32> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Waits until the threads under a killed client's grants have their former attributes.
#[track_caller]
pub(crate) fn eventually_back(busy: &BusyProcess, daemon: &Daemon) {
    let end = Instant::now() + MAX_OVERRUN;
    while !busy.is_back() {
        if Instant::now() > end {
            for (tid, attr, cpus) in &busy.threads {
                let now = (kernel::attr(*tid), kernel::affinity(*tid));
                eprintln!("thread {tid} was {attr:?} on {cpus:?} and is {now:?}");
            }
            panic!("not what they were before the killed client\n{}", daemon.log());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// State of the machine outside of the test's threads.
pub(crate) struct MachineState {
    bandwidth: Option<i64>,
    settings: BTreeMap<PathBuf, String>,
}

impl MachineState {
    pub(crate) fn before() -> MachineState {
        // The previous test may have left bandwidth that lingers for a period.
        let mut last = unexplained();
        let mut since = Instant::now();
        eventually("the kernel's bandwidth is at rest", || {
            let now = unexplained();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(100)
        });
        MachineState { bandwidth: last, settings: settings() }
    }

    /// Compares the machine with the recorded state after all clients have ended; returns the
    /// bandwidth that remains.
    pub(crate) fn compare(&self) -> Option<i64> {
        let strays = real_time_threads(|uid| [ALICE, DAVE].contains(&uid));
        assert!(strays.is_empty(), "real-time without a grant: {strays:?}");
        assert_eq!(self.settings, settings(), "settings of the scheduler have changed");
        let before = self.bandwidth?;
        let left = || unexplained().expect("readable before") - before;
        // Bandwidth lingers until its zero-lag time, a period at most. Less than before is no leak:
        // the kernel loses count when a program rebuilds the domains by writing to a sysctl or a
        // cpuset, which no program here does.
        let end = Instant::now() + Duration::from_secs(5);
        // A rest that equals the bandwidth of fair servers, with or without the earlier rest, is
        // not a leak of Talea.
        let fair = || is_fair_servers(left()) || is_fair_servers(left() + before);
        let leaked = || left() > DUST && !fair();
        while leaked() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        if left() > DUST && fair() {
            println!("the kernel counts its fair servers again: {} of 2^20", left());
            return Some(0);
        }
        assert!(
            left() <= DUST,
            "{} of 2^20 have leaked from the kernel's bandwidth ({before} before)",
            left()
        );
        if left() < -DUST {
            println!(
                "another program has rebuilt the domains: {} of 2^20 fewer than {before}",
                -left()
            );
        }
        Some(left())
    }
}

/// Returns the deadline bandwidth that the kernel has reserved beyond that of its deadline threads,
/// in units of 2^-20 CPUs: that of the fair servers, and any leak. `None` if it is not readable.
/// Threads of other programs do not change this sum.
fn unexplained() -> Option<i64> {
    let of = |(_, policy): (i32, sched::Policy)| match policy {
        sched::Policy::Deadline { runtime, period, .. } => {
            ((runtime.as_ns() << 20) / period.as_ns()) as i64
        }
        _ => 0,
    };
    Some(
        kernel::deadline_bandwidth()?
            - real_time_threads(|_| true).into_iter().map(of).sum::<i64>(),
    )
}

/// Whether `bandwidth` is that of the fair servers of one to three CPUs, 50 ms in each second. When
/// root domains are rebuilt, as by the partitions of other tests, the kernel drops some fair
/// servers from its sum and adds them again later. A leak of a busy client is different: its
/// reservations are 4 % each, those of fair servers 5 %, and no number of the former equals up to
/// three of the latter.
fn is_fair_servers(bandwidth: i64) -> bool {
    const ONE: i64 = 50 * (1 << 20) / 1_000;
    (1..=kernel::cpus().len().min(3) as i64).any(|count| (bandwidth - count * ONE).abs() <= DUST)
}

/// Returns the real-time threads of the users for which `asked` is true, with their policies.
fn real_time_threads(asked: impl Fn(u32) -> bool) -> Vec<(i32, sched::Policy)> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        for tid in threads(pid) {
            // A thread that ends meanwhile does not count.
            let Ok(status) = proc::status(kernel::tid(tid)) else { continue };
            let Ok(attr) = sched::get(kernel::tid(tid)) else { continue };
            let ours = asked(status.uids.effective) || asked(status.uids.real);
            if ours && attr.policy.is_realtime() && kernel::exists(tid) {
                found.push((tid, attr.policy));
            }
        }
    }
    found
}

/// Returns the settings that a daemon could have changed: the scheduler's sysctls, the control
/// groups and the admission limits.
fn settings() -> BTreeMap<PathBuf, String> {
    const OF_GROUPS: [&str; 8] = [
        "cpu.rt_runtime_us",
        "cpu.rt_period_us",
        "cpuset.cpus",
        "cpuset.mems",
        "cpuset.cpu_exclusive",
        "cpuset.sched_load_balance",
        "cpuset.cpus.partition",
        "cgroup.subtree_control",
    ];
    let mut all = BTreeMap::new();
    let mut take = |path: PathBuf| {
        if let Ok(text) = std::fs::read_to_string(&path) {
            all.insert(path, text);
        }
    };
    for entry in std::fs::read_dir("/proc/sys/kernel").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("sched_") {
            take(entry.path());
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [_, at, "cgroup" | "cgroup2", ..] = words[..] {
            let mut folders = vec![PathBuf::from(at)];
            while let Some(folder) = folders.pop() {
                for name in OF_GROUPS {
                    take(folder.join(name));
                }
                let inner = std::fs::read_dir(&folder).into_iter().flatten().flatten();
                folders
                    .extend(inner.filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
            }
        }
    }
    // Admission limits of the root domains.
    let domains: Vec<String> = sysinfo::dl_bandwidth()
        .into_iter()
        .flatten()
        .map(|entry| entry.limit.to_string())
        .collect();
    all.insert("limits of the domains".into(), domains.join(" "));
    all
}

/// Figures that the test prints at the end.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) client_kills: u32,
    pub(crate) daemon_kills: u32,
    /// Number of threads of other processes that had a real-time policy when the test killed their
    /// client.
    pub(crate) thrown_back: u32,
    looks: u64,
    answers: u64,
    failures: u64,
    daemons: u64,
    leftover: i64,
}

impl Figures {
    /// Adds the result of the holder, which must have lost nothing and must have connected to at
    /// least half of `daemons`.
    #[track_caller]
    pub(crate) fn add_holder(&mut self, said: &str, daemons: u32) {
        let figure = |name: &str| crate::attacker::figure(said, name);
        assert_eq!(
            (figure("lost"), figure("demoted")),
            (0, 0),
            "the holder has lost something: {said}"
        );
        assert_eq!(figure("grants"), 12);
        assert!(figure("answers") > 0 && figure("looks") > 0, "{said}");
        // It can miss a daemon that lived for a moment, not most of them.
        assert!(figure("instances") * 2 >= u64::from(daemons), "{said}");
        self.looks += figure("looks");
        self.answers += figure("answers");
        self.failures += figure("failures");
        self.daemons += figure("instances");
    }

    pub(crate) fn add_machine(&mut self, leftover: Option<i64>) {
        self.leftover = self.leftover.max(leftover.unwrap_or(0));
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} clients and {} daemons killed; {} threads of other processes were real-time at their client's end, \
             all are what they were; the holder looked at its threads {} times and asked about its grants {} times, \
             met {} daemons, {} calls fell into a gap, nothing was lost; {} of 2^20 left in the kernel's bandwidth",
            self.client_kills,
            self.daemon_kills,
            self.thrown_back,
            self.looks,
            self.answers,
            self.daemons,
            self.failures,
            self.leftover
        )
    }
}
