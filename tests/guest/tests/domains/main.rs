//! ReTiF's Listing 2 on eight CPUs, with cgroup v1 and v2: all pairs of plugins.
//!
//! `cargo xtask guest --eight` boots the machine. The tests run one at a time, as root, and judge
//! no measured time. The expected results follow from the rows of the listing and from the CPUs
//! that a thread may use; the test reads the results from the kernel.
//!
//! | machine | domains of the kernel | thread | may come to |
//! | --- | --- | --- | --- |
//! | cgroup v1 | CPU 0, made by the daemon; CPUs 1-7 | any | every plugin |
//! | cgroup v2 | CPUs 0-7 | any | every plugin but EDF, which serves nowhere |
//! | cgroup v2 | CPU 0, made by the administrator; CPUs 1-7 | in the partition | EDF |
//! | | | outside | every plugin but EDF |
#![forbid(unsafe_code)]

mod cgroups;

use cgroups::Version;
use talea_core::{CpuSet, Params, Priority, Span, Work};
use talea_import::File;
use talea_kernel_tests::{ALICE, Agent, Bench, Client, Daemon, eventually, kernel};
use talea_os::proc;
use talea_os::sched::{Attr, Policy};
use talea_proto::message::{Caveat, Name, Notes};
use talea_proto::{Granted, Reply, Request, SpecId, Task};

const LISTING_2: &str = include_str!("../../../../crates/talea-import/src/retif/listing-2.txt");

const PERIOD: Span = Span::from_ns(100_000_000);

/// Row of the listing.
struct Row {
    name: &'static str,
    module: &'static str,
    priorities: std::ops::RangeInclusive<u8>,
    cpus: CpuSet,
}

fn rows() -> Vec<Row> {
    let row = |line: &'static str| {
        let columns: Vec<&'static str> = line.split_whitespace().collect();
        let [name, module, priorities, cpus] = columns[..] else { panic!("{line}") };
        let (low, high) = priorities.split_once('-').expect("a range");
        let number = |text: &str| text.parse().expect("a priority");
        let cpus = CpuSet::parse(cpus).expect("a list");
        Row { name, module, priorities: number(low)..=number(high), cpus }
    };
    LISTING_2.lines().filter(|line| !line.starts_with('#')).map(row).collect()
}

impl Row {
    fn is_deadline(&self) -> bool {
        self.module == "EDF.so"
    }

    fn task(&self, runtime_ms: u64) -> Task {
        let params = Params {
            period: Some(PERIOD),
            runtime: Some(Work::from_ns(runtime_ms * 1_000_000)),
            priority: Some(Priority(10)),
            ..Params::default()
        };
        Task { params, plugin: Name::new(self.name), ..Task::default() }
    }
}

/// Lets a thread compute and waits until it sleeps. It answers before it sleeps, and whether the
/// kernel defers a policy depends on it.
#[track_caller]
fn work(agent: &Agent, tid: i32) {
    agent.work(tid, 1);
    eventually("the thread sleeps", || {
        proc::stat(kernel::tid(tid)).is_ok_and(|stat| stat.state == b'S')
    });
}

/// A thread of the agent, and the CPUs that its cpuset permits.
struct Thread<'a> {
    agent: &'a Agent,
    client: &'a Client<'a>,
    tid: i32,
    allowed: CpuSet,
    before: (Attr, CpuSet),
}

impl<'a> Thread<'a> {
    /// Starts a thread, which sleeps on one of its CPUs.
    fn new(agent: &'a Agent, client: &'a Client<'a>) -> Thread<'a> {
        let tid = agent.thread();
        work(agent, tid);
        let before = (kernel::attr(tid), kernel::affinity(tid));
        Thread { agent, client, tid, allowed: before.1, before }
    }

    /// Whether the plugin of the row has a CPU for the thread.
    fn may_come_to(&self, row: &Row) -> bool {
        !row.cpus.intersection(&self.allowed).is_empty()
    }

    /// Whether the kernel defers the deadline class: it admits a thread only where the thread is,
    /// and a sleeping thread moves when it wakes.
    fn is_deferred(&self, row: &Row) -> bool {
        let on = proc::stat(kernel::tid(self.tid)).expect("a living thread").cpu;
        row.is_deadline() && !row.cpus.contains(on)
    }

    #[track_caller]
    fn assert_unchanged(&self) {
        assert_eq!((kernel::attr(self.tid), kernel::affinity(self.tid)), self.before);
    }

    /// Asserts that the kernel has exactly what the row grants.
    #[track_caller]
    fn assert_has(&self, row: &Row, runtime_ms: u64) {
        let cpus = kernel::affinity(self.tid);
        let possible = row.cpus.intersection(&self.allowed);
        assert!(cpus.len() == 1 && cpus.is_subset(&possible), "{}: on {cpus}", row.name);
        let policy = kernel::policy(self.tid);
        let is_right = match (row.module, policy) {
            ("EDF.so", Policy::Deadline { runtime, deadline, period }) => {
                (runtime.as_ns(), deadline, period) == (runtime_ms * 1_000_000, PERIOD, PERIOD)
            }
            ("RM.so" | "FP.so", Policy::Fifo(level)) | ("RR.so", Policy::Rr(level)) => {
                row.priorities.contains(&level)
            }
            _ => false,
        };
        assert!(is_right, "{}: {policy:?}", row.name);
    }

    /// Wakes the thread, which then has what the row grants.
    #[track_caller]
    fn wake(&self, row: &Row, runtime_ms: u64) {
        work(self.agent, self.tid);
        eventually("a thread that is awake has its policy", || {
            kernel::policy(self.tid).is_realtime()
        });
        self.assert_has(row, runtime_ms);
        work(self.agent, self.tid);
        let on = proc::stat(kernel::tid(self.tid)).expect("a living thread").cpu;
        assert!(row.cpus.contains(on), "{}: ran on CPU {on}", row.name);
    }

    /// Asserts that the thread waits for its deadline, without a real-time policy, or has it.
    #[track_caller]
    fn assert_answered(&self, row: &Row, is_deferred: bool, runtime_ms: u64) {
        if is_deferred {
            assert!(kernel::is_ordinary(self.tid), "{:?}", kernel::policy(self.tid));
            assert_eq!(kernel::affinity(self.tid), row.cpus, "it will wake there");
        } else {
            self.assert_has(row, runtime_ms);
        }
        self.wake(row, runtime_ms);
    }

    #[track_caller]
    fn attach(&self, spec: SpecId, row: &Row, runtime_ms: u64) {
        let is_deferred = self.is_deferred(row);
        let deferred = Reply::DoneWithCaveat(Caveat::PendingWakeup);
        let wanted = if is_deferred { deferred } else { Reply::Done };
        assert_eq!(self.client.try_attach_own(spec, self.tid), wanted, "{}", row.name);
        self.assert_answered(row, is_deferred, runtime_ms);
    }

    #[track_caller]
    fn change(&self, spec: SpecId, row: &Row, runtime_ms: u64) {
        let is_deferred = self.is_deferred(row);
        match self.client.ask(&Request::Change { spec, task: row.task(runtime_ms) }) {
            Reply::Granted(granted) => {
                let is_pending = granted.notes.contains(Notes::PENDING_WAKEUP);
                assert_eq!(is_pending, is_deferred, "{}: {granted:?}", row.name);
            }
            other => panic!("{}: {other:?}", row.name),
        }
        self.assert_answered(row, is_deferred, runtime_ms);
    }
}

/// Starts the daemon with the imported listing. Access rules are no part of this test.
fn daemon(bench: &Bench) -> Daemon {
    let file = File { origin: "Listing 2", text: LISTING_2 };
    let imported = talea_import::retif(file, None).expect("the paper's own file");
    Daemon::start(bench, &imported.replace("access = \"rules\"", "access = \"off\""))
}

fn create(client: &Client, row: &Row, runtime_ms: u64) -> Reply {
    client.ask(&Request::Create(row.task(runtime_ms)))
}

/// Creates, attaches, changes, detaches, attaches again and releases, for all pairs of plugins.
/// Returns the numbers of pairs that are served and refused.
fn walk_all_pairs(agent: &Agent, client: &Client, is_partitioned: bool) -> (u32, u32) {
    let (mut served, mut refused) = (0, 0);
    for from in rows() {
        for to in rows() {
            let thread = Thread::new(agent, client);
            let serves = |row: &Row| is_partitioned || !row.is_deadline();
            let spec = match create(client, &from, 2) {
                Reply::Granted(Granted { spec, .. }) if serves(&from) => spec,
                Reply::Refused(_) if !serves(&from) => {
                    refused += 1;
                    continue;
                }
                other => panic!("{}: {other:?}", from.name),
            };
            if !thread.may_come_to(&from) {
                let said = client.try_attach_own(spec, thread.tid);
                assert!(matches!(said, Reply::Refused(_)), "{}: {said:?}", from.name);
                thread.assert_unchanged();
                client.done(&Request::Release(spec));
                refused += 1;
                continue;
            }
            thread.attach(spec, &from, 2);
            let (kept, runtime_ms) = if serves(&to) && thread.may_come_to(&to) {
                thread.change(spec, &to, 3);
                served += 1;
                (&to, 3)
            } else {
                let change = Request::Change { spec, task: to.task(3) };
                client.refused(&change);
                thread.assert_has(&from, 2);
                refused += 1;
                (&from, 2)
            };
            client.done(&Request::Detach(spec));
            thread.assert_unchanged();
            thread.attach(spec, kept, runtime_ms);
            client.done(&Request::Release(spec));
            thread.assert_unchanged();
            agent.end_thread(thread.tid);
        }
    }
    (served, refused)
}

#[test]
fn r19_listing_2_serves_all_pairs_of_plugins_on_eight_cpus_with_cgroup_v1() {
    let _cgroups = cgroups::switch_to(Version::V1);
    assert_eq!(kernel::cpus(), CpuSet::first(8));
    let bench = Bench::new("listing-v1");
    let daemon = daemon(&bench);
    let agent = Agent::user(ALICE);
    let client = agent.connect(&daemon);
    assert_eq!(walk_all_pairs(&agent, &client, true), (25, 0));
}

#[test]
fn r19_listing_2_serves_each_domain_of_eight_cpus_with_cgroup_v2() {
    let _cgroups = cgroups::switch_to(Version::V2);
    let bench = Bench::new("listing-v2");
    {
        // The daemon makes no partition: EDF serves nowhere.
        let daemon = daemon(&bench);
        assert!(daemon.log().contains("no cpuset partitions of CPUs 0"), "{}", daemon.log());
        let agent = Agent::user(ALICE);
        let client = agent.connect(&daemon);
        assert_eq!(walk_all_pairs(&agent, &client, false), (16, 9));
    }
    cgroups::make_partition_of(0);
    let daemon = daemon(&bench);
    let outside = Agent::user(ALICE);
    let client = outside.connect(&daemon);
    assert_eq!(walk_all_pairs(&outside, &client, true), (16, 9));
    let inside = Agent::user(ALICE);
    cgroups::enter_partition(inside.os_pid());
    let client = inside.connect(&daemon);
    assert_eq!(walk_all_pairs(&inside, &client, true), (1, 24));
}
