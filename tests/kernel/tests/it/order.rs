//! Changes of grants: running threads keep the order of their tasks, and never lose their real-time
//! policy.

use crate::tasks::{ms, periodic, ranked, reserved, with};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use talea_core::CpuSet;
use talea_kernel_tests::{ALICE, Agent, Bench, Client, Daemon, config, kernel, needs, needs_root};
use talea_proto::message::Notes;
use talea_proto::refusal::{PluginVerdict, RejectionReason, Witness};
use talea_proto::{Code, Request, SpecId, Task};

/// Guard that sets its flag when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the task on CPU 0 only, so that all tasks are in one order.
fn here(task: Task) -> Task {
    Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..task }
}

fn start(client: &Client, task: Task) -> (SpecId, i32) {
    let granted = client.create(here(task));
    let tid = client.agent.thread();
    client.attach(granted.spec, tid);
    (granted.spec, tid)
}

#[test]
fn r15_retif_w4_threads_keep_rate_monotonic_order_whatever_order_they_come_in() {
    needs_root!();
    let bench = Bench::new("w4");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let mut threads: Vec<(u64, SpecId, i32)> = Vec::new();
    let check = |threads: &[(u64, SpecId, i32)]| {
        for &(period, _, tid) in threads {
            for &(other, _, rival) in threads {
                let (mine, theirs) = (kernel::priority(tid), kernel::priority(rival));
                assert!(
                    period >= other || mine > theirs,
                    "{period} ms has {mine}, {other} ms has {theirs}"
                );
            }
        }
    };
    // The order of the original's defect first, then more around and between.
    for period in [10, 100, 50, 5, 7, 70, 1, 1_000, 30, 31, 32, 33, 12] {
        let (spec, tid) = start(&client, with("rm", periodic(period)));
        threads.push((period, spec, tid));
        check(&threads);
    }
    // Leaving and changing periods keeps it, too.
    let (_, spec, tid) = threads.remove(3);
    client.done(&Request::Release(spec));
    assert!(kernel::is_ordinary(tid));
    check(&threads);
    threads[1].0 = 2;
    let said =
        client.ask(&Request::Change { spec: threads[1].1, task: here(with("rm", periodic(2))) });
    assert!(matches!(said, talea_proto::Reply::Granted(_)), "{said:?}");
    check(&threads);
    for (_, spec, tid) in threads {
        client.done(&Request::Release(spec));
        assert!(kernel::is_ordinary(tid));
    }
}

#[test]
fn r17_retif_w5_threads_keep_their_priorities_order() {
    needs_root!();
    let bench = Bench::new("w5");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for plugin in ["rr", "fp"] {
        let mut threads: Vec<(u8, i32)> = Vec::new();
        for priority in [50, 10, 30, 99, 1, 49, 51] {
            let (_, tid) = start(&client, with(plugin, ranked(priority)));
            threads.push((priority, tid));
            for &(wanted, tid) in &threads {
                for &(other, rival) in &threads {
                    let (mine, theirs) = (kernel::priority(tid), kernel::priority(rival));
                    assert_eq!(
                        wanted > other,
                        mine > theirs,
                        "{plugin}: {wanted} has {mine}, {other} {theirs}"
                    );
                }
            }
        }
    }
}

#[test]
fn r17_more_priorities_than_levels_are_refused_where_sharing_is() {
    needs_root!();
    let bench = Bench::new("r17");
    let config = "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"0\"\n\
                  priorities = \"20-22\"\nrefuse_sharing = true\n";
    let daemon = Daemon::start(&bench, config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for priority in [10, 20, 30, 20] {
        start(&client, ranked(priority));
    }
    let refusal = client.refused(&Request::Create(here(ranked(40))));
    assert_eq!(refusal.code, Code::NoPlugin, "{refusal:?}");
}

#[test]
fn r7_retif_w1_a_running_thread_is_changed_without_an_instant_outside_real_time() {
    needs_root!();
    let bench = Bench::new("r7");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let (spec, tid) = start(&client, with("rm", periodic(10)));
    let stop = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        // Also when an assertion below fails: the scope waits for the watcher.
        let _stop = StopOnDrop(&stop);
        let watcher = scope.spawn(|| {
            let mut seen = 0u64;
            while !stop.load(Ordering::Relaxed) {
                match talea_os::sched::get(kernel::tid(tid)) {
                    Ok(attr) => assert!(attr.policy.is_realtime(), "seen as {:?}", attr.policy),
                    // The kernel reads policy and priority without a lock: FIFO without a priority
                    // is half of each.
                    Err(error) => assert_eq!(error.raw_os_error(), Some(22), "{error}"),
                }
                seen += 1;
            }
            seen
        });
        for round in 0..50 {
            for task in [
                here(with("fp", ranked(9))),
                here(with("rr", ranked(9))),
                // Little, and soon forgotten: what leaves `edf` stays reserved until its zero-lag
                // time.
                with("edf", reserved(1, 10)),
                here(with("rm", reserved(20 + round, 1_000))),
            ] {
                let said = client.ask(&Request::Change { spec, task });
                assert!(matches!(said, talea_proto::Reply::Granted(_)), "{said:?}");
            }
        }
        // A change that can't be served changes nothing.
        let before = (kernel::attr(tid), client.query(spec));
        let refusal = client.refused(&Request::Change { spec, task: with("rm", ranked(5)) });
        assert_eq!(refusal.code, Code::NoPlugin);
        assert_eq!((kernel::attr(tid), client.query(spec)), before, "refused, so nothing changed");
        stop.store(true, Ordering::Relaxed);
        watcher.join()
    });
    assert!(seen.expect("always real-time") > 100, "the watcher has looked");
    client.done(&Request::Release(spec));
    assert!(kernel::is_ordinary(tid));
}

#[test]
fn r16_tasks_that_only_response_times_admit_are_granted_and_meet_their_deadlines() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let config = |test: &str| {
        format!(
            "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"rm\"\nkind = \"rm\"\ncpus = \"0\"\n\
             priorities = \"60-79\"\n{test}"
        )
    };
    // 45 %, 25 % and 20 % of harmonic periods: 1.45 · 1.25 · 1.2 > 2, and the last responds within
    // 1,440 of 1,600 ms.
    let set = [(400, 180), (800, 200), (1_600, 320)];
    let task = |(period, runtime): (u64, u64)| reserved(period, runtime * 1_000);
    let bench = Bench::new("r16");
    let daemon = Daemon::start(&bench, &config("test = \"hyperbolic\"\n"));
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    client.create(task(set[0]));
    client.create(task(set[1]));
    assert_eq!(client.refused(&Request::Create(task(set[2]))).code, Code::NoPlugin);
    drop(daemon);

    let daemon = Daemon::start(&bench, &config(""));
    let agents = set.map(|_| Agent::user(ALICE));
    let clients: Vec<Client> = agents.iter().map(|agent| agent.connect(&daemon)).collect();
    let threads: Vec<i32> = clients
        .iter()
        .zip(set)
        .map(|(client, params)| {
            let granted = client.create(task(params));
            assert!(!granted.notes.contains(Notes::NOT_PROVED), "{granted:?}");
            let tid = client.agent.thread();
            client.attach(granted.spec, tid);
            tid
        })
        .collect();
    let priorities: Vec<u8> = threads.iter().map(|&tid| kernel::priority(tid)).collect();
    assert!(priorities[0] > priorities[1] && priorities[1] > priorities[2], "{priorities:?}");
    // No more is available, and the refusal names the task that would miss its deadline.
    let refusal = clients[0].refused(&Request::Create(task((1_000, 90))));
    let late = Witness::DeadlineMiss {
        own: false,
        period: ms(1_600),
        deadline: ms(1_600),
        response: Some(ms(2_000)),
    };
    let PluginVerdict::No(no) = refusal.answers[0].verdict else { panic!("{refusal:?}") };
    assert_eq!((no.reason, no.witness), (RejectionReason::NoRoom, Some(late)), "{refusal}");
    // The process that passes the orders on must not wait behind their receivers.
    let others = kernel::cpus().difference(&CpuSet::single(0));
    for agent in &agents {
        talea_os::sched::set_affinity(kernel::tid(agent.os_pid()), &others).expect("another CPU");
    }
    // A job of each, the longest one first. A job needs 90 % of its declared runtime, because the
    // limit of the grant throttles one that needs all of it and is measured a little longer. If the
    // longest has ended before the others even received the order to begin (the CPU that passes the
    // orders on was taken away), the test tries again when all budgets are full, until two were
    // right.
    let (mut seen, mut right) = (Vec::<Vec<u64>>::new(), 0);
    while right < 2 && (seen.len() != 1 || right == 0) {
        assert!(seen.len() < 8, "in order of their periods: {seen:?} us");
        if !seen.is_empty() {
            thread::sleep(Duration::from_millis(2 * set[2].0));
        }
        for at in [2, 1, 0] {
            agents[at].begin(&format!("work {} {}", threads[at], set[at].1 * 9 / 10));
        }
        let took: Vec<u64> =
            agents.iter().map(|agent| agent.finish().parse().expect("microseconds")).collect();
        right += usize::from(took.is_sorted());
        seen.push(took);
    }
    let took = seen.last().expect("one");
    for (took, (period, _)) in took.iter().zip(set) {
        // Less than half of it, without interference.
        assert!(*took < period * 1_000, "{took} us of {period} ms");
    }
}
