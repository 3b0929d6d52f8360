//! Restore: threads get their original attributes back; children and siblings never change.

use crate::tasks::{periodic, ranked, reserved, with};
use talea_core::{CpuSet, Span, Work};
use talea_kernel_tests::{
    ALICE, Agent, Bench, Daemon, config, eventually, kernel, needs, needs_root,
};
use talea_os::sched::{self, Attr, Policy};
use talea_proto::Request;

/// Sets attributes of a thread as a program outside of Talea does.
fn set(tid: i32, policy: Policy, cpus: Option<u32>) {
    let tid = kernel::tid(tid);
    sched::set(tid, &Attr::plain(policy)).expect("sched_setattr");
    if let Some(cpu) = cpus {
        sched::set_affinity(tid, &CpuSet::single(cpu)).expect("sched_setaffinity");
    }
}

#[test]
fn r28_retif_s10_policy_priority_nice_and_cpus_come_back() {
    needs_root!();
    let bench = Bench::new("s10");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let root = Agent::root();
    let by_root = root.connect(&daemon);
    for (policy, cpu) in [
        (Policy::Other { nice: 0 }, None),
        (Policy::Other { nice: 7 }, Some(0)),
        (Policy::Batch { nice: 3 }, None),
        (Policy::Idle, None),
        (Policy::Rr(5), Some(0)),
        (Policy::Fifo(3), None),
    ] {
        for (plugin, task) in [
            ("rm", periodic(10)),
            ("rr", ranked(5)),
            ("fp", ranked(5)),
            ("edf", reserved(10, 1_000)),
        ] {
            let tid = alice.thread();
            set(tid, policy, cpu);
            let before = (kernel::attr(tid), kernel::affinity(tid));
            let granted = by_root.create(with(plugin, task));
            if plugin == "edf" && cpu.is_some() && kernel::cpus().len() > 1 {
                // The kernel has no deadline thread on a part of its root domain.
                let refused = by_root.try_attach(granted.spec, tid);
                assert!(matches!(refused, talea_proto::Reply::Refused(_)), "{refused:?}");
                assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before);
                continue;
            }
            by_root.attach(granted.spec, tid);
            assert_ne!(kernel::attr(tid), before.0);
            by_root.done(&Request::Detach(granted.spec));
            assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before, "{plugin} detach");
            by_root.attach(granted.spec, tid);
            by_root.done(&Request::Release(granted.spec));
            assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before, "{plugin} release");
        }
    }
    // Loss of the session does the same.
    let tid = alice.thread();
    set(tid, Policy::Other { nice: 4 }, Some(0));
    let before = (kernel::attr(tid), kernel::affinity(tid));
    let granted = by_root.create(with("rm", periodic(10)));
    by_root.attach(granted.spec, tid);
    by_root.close();
    eventually("a gone session's thread is back", || {
        (kernel::attr(tid), kernel::affinity(tid)) == before
    });
}

#[test]
fn r28_the_kernels_deadline_bandwidth_is_balanced_after_every_way_out() {
    needs_root!();
    needs!("sched/debug of debugfs", kernel::deadline_bandwidth().is_some());
    let bench = Bench::new("bandwidth");
    let daemon = Daemon::start(&bench, &config::open());
    let reserved_now = || kernel::deadline_bandwidth().expect("it was readable");
    let before = reserved_now();
    // In units of 2^-20 CPUs; 5 % each. What the kernel itself rounds away when a thread is shrunk
    // to 1,024 ns in 4 s is less than one unit, and a leak is 52,428 of them.
    let is_balanced = || (reserved_now() - before).abs() < 64;
    let root = Agent::root();
    let watcher = root.connect(&daemon);
    for way in ["detach", "release", "close", "end of the thread", "kill"] {
        let alice = Agent::user(ALICE);
        let client = alice.connect(&daemon);
        let mut threads = Vec::new();
        for _ in 0..3 {
            let granted = client.create(with("edf", reserved(10, 500)));
            let tid = alice.thread();
            client.attach(granted.spec, tid);
            assert!(kernel::policy(tid).is_deadline());
            threads.push((granted.spec, tid));
        }
        assert!(reserved_now() - before > 150_000, "the kernel has reserved three times 5 %");
        match way {
            "detach" => threads.iter().for_each(|&(spec, _)| client.done(&Request::Detach(spec))),
            "release" => threads.iter().for_each(|&(spec, _)| client.done(&Request::Release(spec))),
            "close" => client.close(),
            "kill" => alice.kill(),
            _ => threads.iter().for_each(|&(_, tid)| alice.end_thread(tid)),
        }
        // Bandwidth of a deadline thread stays reserved until its zero-lag time, at most a period
        // away.
        eventually(way, is_balanced);
        drop(alice);
        eventually("the client is forgotten", || watcher.status().specs == 0);
    }
}

#[test]
fn retif_s6_children_of_a_real_time_thread_are_ordinary() {
    needs_root!();
    let bench = Bench::new("s6");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for (plugin, task) in
        [("rm", periodic(10)), ("rr", ranked(5)), ("fp", ranked(5)), ("edf", reserved(10, 1_000))]
    {
        let tid = alice.thread();
        let granted = client.create(with(plugin, task));
        client.attach(granted.spec, tid);
        for child in [alice.program_from(tid), alice.child_of(tid)] {
            assert!(kernel::is_ordinary(child), "{plugin}: {:?}", kernel::policy(child));
        }
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn r30_a_thread_id_means_one_thread_and_a_process_id_its_main_thread() {
    needs_root!();
    let bench = Bench::new("r30");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let (one, two) = (alice.thread(), alice.thread());
    let main = alice.pid();
    let granted = client.create(with("rm", periodic(10)));
    client.attach(granted.spec, one);
    assert!(kernel::policy(one).is_realtime());
    assert!(kernel::is_ordinary(two) && kernel::is_ordinary(main));
    client.done(&Request::Detach(granted.spec));
    client.attach(granted.spec, main);
    assert!(kernel::policy(main).is_realtime());
    assert!(kernel::is_ordinary(one) && kernel::is_ordinary(two));
    // A thread that starts later is ordinary, and stays so.
    let later = alice.thread();
    assert!(kernel::is_ordinary(later));
    client.done(&Request::Release(granted.spec));
    assert!([main, one, two, later].into_iter().all(kernel::is_ordinary));
}

#[test]
fn retif_s11_a_refused_attach_leaves_the_thread_as_it_was() {
    needs_root!();
    needs!(
        "kernel admission",
        talea_os::sysinfo::SystemInfo::probe().is_ok_and(|m| m.deadline_share().is_some())
    );
    let bench = Bench::new("s11");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("edf", reserved(10, 5_000)));
    // A program outside of Talea takes the kernel's bandwidth after the grant: the ledger is right,
    // and the kernel refuses.
    let hogs: Vec<i32> = (0..kernel::cpus().len()).map(|_| alice.thread()).collect();
    for &hog in &hogs {
        let policy = Policy::Deadline {
            runtime: Work::from_ns(80_000_000),
            deadline: Span::from_ns(100_000_000),
            period: Span::from_ns(100_000_000),
        };
        sched::set(kernel::tid(hog), &Attr::grant(policy)).expect("bandwidth for the hog");
    }
    let tid = alice.thread();
    let before = (kernel::attr(tid), kernel::affinity(tid));
    match client.try_attach(granted.spec, tid) {
        talea_proto::Reply::Refused(refusal) => {
            assert_eq!(refusal.code, talea_proto::Code::Kernel);
            assert_eq!(refusal.errno, 16, "EBUSY");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((kernel::attr(tid), kernel::affinity(tid)), before);
    for &hog in &hogs {
        // They leave by their own end, which leaks nothing.
        alice.end_thread(hog);
    }
    eventually("the room comes back", || {
        matches!(client.try_attach(granted.spec, tid), talea_proto::Reply::Done)
    });
}

#[test]
fn r28_a_thread_that_overruns_its_deadline_budget_is_attached_and_detached_and_still_runs() {
    needs_root!();
    let bench = Bench::new("overdrawn");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let tid = alice.thread();
    let granted = client.create(with("edf", reserved(20, 1_000)));
    for _ in 0..20 {
        client.attach(granted.spec, tid);
        // Far more than its budget: throttled in the middle, and taken out while it is.
        alice.begin(&format!("work {tid} 3"));
        detach_while_it_works(&daemon, granted.spec, tid);
        let took: u64 = alice.finish().parse().expect("the thread runs to the end of its work");
        assert!(took >= 3_000, "{took} us for 3 ms of work");
    }
    alice.end_thread(tid);
}

/// Detaches the thread by another connection of the superuser, because the agent is busy.
fn detach_while_it_works(daemon: &Daemon, spec: talea_proto::SpecId, tid: i32) {
    let root = Agent::root();
    let by_root = root.connect(daemon);
    let begun = talea_os::clock::thread_cpu_time();
    // Some time on our own CPU clock, so that the other has been throttled or not, from round to
    // round.
    while talea_os::clock::thread_cpu_time().as_ns() - begun.as_ns() < 500_000 {
        std::hint::spin_loop();
    }
    by_root.done(&Request::Detach(spec));
    assert!(kernel::is_ordinary(tid));
}
