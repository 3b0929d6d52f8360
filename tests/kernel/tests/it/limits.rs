//! Budgets of FIFO and RR threads: a thread consumes what it has declared, and no more.

use crate::tasks::{reserved, with};
use std::fs;
use std::time::Instant;
use talea_core::{CpuSet, Params, Priority};
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, Runs, config, eventually, kernel, needs_root,
};
use talea_os::sched;
use talea_proto::message::Notes;
use talea_proto::{Granted, Request, Task};

/// Time for which CPU-bound threads and their competitors run, in milliseconds.
const LONG: u32 = 2_000;

/// Budget of [`tenth`], in nanoseconds.
const BUDGET_NS: u64 = 1_000_000;

/// Returns a task of 10 % of a CPU, for a plugin whose budgets the daemon enforces.
fn tenth(plugin: &str) -> Task {
    let task = reserved(10, 1_000);
    let params = Params { priority: Some(Priority(5)), ..task.params };
    with(plugin, Task { params, ..task })
}

/// Attaches a thread with nice value 19, which gets hardly any CPU time as an ordinary thread. So
/// its consumption beside a competitor comes from its grant.
fn attach_nice(client: &Client<'_>, agent: &Agent, task: Task) -> (Granted, i32) {
    let granted = client.create(task);
    let tid = agent.thread();
    sched::set_nice(kernel::tid(tid), 19).expect("root may");
    client.attach(granted.spec, tid);
    (granted, tid)
}

/// Starts an ordinary thread of the superuser that consumes the rest of the CPU.
fn competitor(cpu: u32) -> (Agent, i32) {
    let root = Agent::root();
    let tid = root.thread();
    sched::set_affinity(kernel::tid(tid), &CpuSet::single(cpu)).expect("our thread");
    (root, tid)
}

/// Returns the share of a CPU, in per cent, that the thread `hog` consumes beside a competitor.
fn share(agent: &Agent, hog: i32, kind: &str, cpu: u32) -> f64 {
    let (root, other) = competitor(cpu);
    root.begin(&format!("hog {other} {LONG} spin"));
    agent.begin(&format!("hog {hog} {LONG} {kind}"));
    let took = |said: String| said.parse::<f64>().expect("microseconds");
    let (hog, _) = (took(agent.finish()), root.finish());
    hog / f64::from(LONG) / 10.0
}

/// Returns the shares of at most three runs, up to the first one that is as expected. A thread in a
/// long system call gives its CPU up later, if the computer stalls meanwhile.
fn until(is_expected: impl Fn(f64) -> bool, mut share: impl FnMut() -> f64) -> Vec<f64> {
    let mut shares = Vec::new();
    while shares.len() < 3 && !shares.last().is_some_and(|&last| is_expected(last)) {
        shares.push(share());
    }
    shares
}

#[test]
fn attack_3_a_thread_that_exceeds_its_declaration_gets_its_declaration() {
    needs_root!();
    let bench = Bench::new("limits");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for (plugin, kind) in
        [("rm", "spin"), ("rm", "calls"), ("rm", "bursts"), ("fp", "spin"), ("rr", "calls")]
    {
        let (granted, tid) = attach_nice(&client, &alice, tenth(plugin));
        assert!(!granted.notes.contains(Notes::BUDGET_NOT_ENFORCED), "{granted:?}");
        let cpu = granted.cpu.expect("one CPU");
        let is_near = |share: f64| (6.0..14.0).contains(&share);
        let shares = until(is_near, || share(&alice, tid, kind, cpu));
        assert!(is_near(shares[shares.len() - 1]), "{plugin}, {kind}: {shares:.1?} % of 10 %");
        let info = client.query(granted.spec);
        assert!(info.overruns.count > 50 && info.overruns.last_ns > 0, "{:?}", info.overruns);
        eventually("it has its policy again", || kernel::policy(tid).is_realtime());
        client.done(&Request::Release(granted.spec));
        assert_eq!(kernel::attr(tid).policy, sched::Policy::Other { nice: 19 });
    }
}

/// Attack: no hog breaks the grant of another user, and ordinary threads keep most of the CPU. With
/// `TALEA_SOAK` each hog runs for ten seconds, under each plugin.
#[test]
fn attack_3_hogs_of_every_kind_leave_the_grant_of_another_user_alone() {
    needs_root!();
    let is_soak = std::env::var_os("TALEA_SOAK").is_some();
    let plugins = ["rm", "fp", "rr"];
    let kinds = [("spin", 1), ("spin", 3), ("calls", 1), ("bursts", 1), ("fork", 1), ("move", 1)];
    for (number, (kind, count)) in kinds.into_iter().enumerate() {
        let one = &plugins[number % 3..=number % 3];
        for plugin in if is_soak { &plugins[..] } else { one } {
            hogs_beside_a_neighbour(plugin, kind, count, if is_soak { 10_000 } else { 1_000 });
        }
    }
}

/// Runs `count` hogs for `long` milliseconds, above a proved grant of another user.
fn hogs_beside_a_neighbour(plugin: &str, kind: &str, count: u32, long: u32) {
    let bench = Bench::new("limits-hogs");
    let daemon = Daemon::start(&bench, &config::open());
    let on_first = |task: Task| Task { cpus: CpuSet::single(0), cpus_mandatory: true, ..task };
    let bob = Agent::user(BOB);
    let of_bob = bob.connect(&daemon);
    // The hogs preempt the neighbour, whose period is longer.
    let (neighbour, neighbour_tid) =
        attach_nice(&of_bob, &bob, on_first(with("rm", reserved(40, 4_000))));
    assert!(!neighbour.notes.contains(Notes::NOT_PROVED), "{neighbour:?}");
    let hogs: Vec<Agent> = (0..count).map(|_| Agent::user(ALICE)).collect();
    let client = hogs[0].connect(&daemon);
    let attached: Vec<(Granted, i32)> =
        hogs.iter().map(|hog| attach_nice(&client, hog, on_first(tenth(plugin)))).collect();
    let others: Vec<(Agent, i32)> = kernel::cpus().iter().map(competitor).collect();
    let took = |agent: &Agent| {
        let us = agent.finish().parse::<f64>().expect("microseconds");
        us / f64::from(long) / 10.0
    };
    // A stall of the computer makes a job late, too, and a long system call that is interrupted by
    // the computer goes on for longer; but hardly in three runs.
    let is_left_alone = (0..3).any(|_| {
        for (root, tid) in &others {
            root.begin(&format!("hog {tid} {long} spin"));
        }
        for (hog, (_, tid)) in hogs.iter().zip(&attached) {
            hog.begin(&format!("hog {tid} {long} {kind}"));
        }
        // A job that starts 30 ms after its release is about to miss its deadline.
        let jobs = long / 40 - 2;
        bob.begin(&format!("jobs {neighbour_tid} {jobs} 40000 3000 30000"));
        let late = bob.finish();
        let got: f64 = hogs.iter().map(took).sum();
        let ordinary: Vec<f64> = others.iter().map(|(root, _)| took(root)).collect();
        println!(
            "{plugin}, {count} {kind}: {got:.1} %, an ordinary thread {:.1} %, {late} of {jobs} \
             jobs late",
            ordinary[0]
        );
        // What is declared, one budget, 2 %, and what nice 19 gets beside nice 0.
        let most = f64::from(count) * (10.0 + 100.0 / f64::from(long) + 1.6) + 2.0;
        got < most && ordinary[0] > 5.0 && late == "0"
    });
    assert!(is_left_alone, "{plugin}, {count} {kind}: see the three runs above");
}

/// Attack: a thread that detaches and attaches again does not get a second budget.
#[test]
fn attack_3_attaching_again_refills_no_budget() {
    needs_root!();
    let bench = Bench::new("limits-again");
    let daemon = Daemon::start(&bench, &config::open());
    // The hog's own process waits for the hog; another one of the user has the connection.
    let (hogs, other_process) = (Agent::user(ALICE), Agent::user(ALICE));
    let client = other_process.connect(&daemon);
    let (granted, tid) = attach_nice(&client, &hogs, tenth("rm"));
    // A detached thread may run on any CPU: on an idle one it would get all of it.
    let others: Vec<(Agent, i32)> = kernel::cpus().iter().map(competitor).collect();
    for (root, other) in &others {
        root.begin(&format!("hog {other} {LONG} spin"));
    }
    hogs.begin(&format!("hog {tid} {LONG} spin"));
    let begun = Instant::now();
    let mut cycles = 0;
    while begun.elapsed().as_millis() < u128::from(LONG) - 200 {
        client.done(&Request::Detach(granted.spec));
        client.attach(granted.spec, tid);
        cycles += 1;
    }
    let took = |said: String| said.parse::<f64>().expect("microseconds");
    let hog = took(hogs.finish());
    for (root, _) in &others {
        root.finish();
    }
    let share = hog / f64::from(LONG) / 10.0;
    println!("{share:.1} % of 10 % in {cycles} cycles");
    assert!(cycles > 50, "{cycles} cycles");
    assert!(share < 14.0, "{share:.1} % of 10 % in {cycles} cycles");
}

/// A job that starts late is closer to the next one, which may then have to wait for the refill of
/// the first one's budget. Such a run is inconclusive.
#[test]
fn a_thread_within_its_budget_is_not_throttled_and_wakes_at_most_once_per_period() {
    const JOBS: u64 = 50;
    needs_root!();
    let bench = Bench::new("limits-honest");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    for percent in [30, 60] {
        let (granted, tid) = attach_nice(&client, &alice, tenth("rm"));
        Runs::at_least(1).repeat(|| {
            let before = enforcer_wakeups(daemon.pid());
            let overruns = client.query(granted.spec).overruns.count;
            let cost = percent * 10;
            let late =
                alice.order(&format!("jobs {tid} {JOBS} 10000 {cost} {}", (1_000 - cost) / 2));
            let overruns = client.query(granted.spec).overruns.count - overruns;
            let wakeups = enforcer_wakeups(daemon.pid()) - before;
            if late != "0" {
                return None;
            }
            assert_eq!(overruns, 0, "{percent} % of the budget");
            assert!(wakeups <= JOBS + JOBS / 10, "{percent} % of the budget: {wakeups} wake-ups");
            Some(())
        });
        client.done(&Request::Release(granted.spec));
    }
}

#[test]
fn a_demoted_thread_keeps_its_spec_and_may_be_attached_again() {
    needs_root!();
    let bench = Bench::new("limits-demote");
    let config =
        config::open().replace("kind = \"rm\"\n", "kind = \"rm\"\non_overrun = \"demote\"\n");
    let daemon = Daemon::start(&bench, &config);
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let (granted, tid) = attach_nice(&client, &alice, tenth("rm"));
    alice.order(&format!("hog {tid} 200 spin"));
    eventually("it is detached", || client.query(granted.spec).tid.is_none());
    assert_eq!(kernel::attr(tid).policy, sched::Policy::Other { nice: 19 });
    assert!(daemon.wait_for_line("exceeded its budget").is_some());
    client.attach(granted.spec, tid);
    eventually("it is real-time again", || kernel::policy(tid).is_realtime());
}

#[test]
fn a_grant_without_a_runtime_is_unlimited_and_says_so() {
    needs_root!();
    let bench = Bench::new("limits-none");
    let daemon = Daemon::start(&bench, &config::open());
    let alice = Agent::user(ALICE);
    let client = alice.connect(&daemon);
    let granted = client.create(with("fp", crate::tasks::ranked(5)));
    assert!(granted.notes.contains(Notes::UNLIMITED), "{granted:?}");
    assert!(!client.create(tenth("fp")).notes.contains(Notes::UNLIMITED));
}

/// Attack: a thread that `allow_unbounded` lets go without a runtime gets no CPU time beyond
/// `max_utilization`, and more threads do not get more.
#[test]
fn attack_3_threads_without_a_runtime_share_the_rule() {
    const RULE: f64 = 5.0;
    /// The budget of one thread, in per cent of the run.
    const ONE_BUDGET: f64 = 5.0 * 100.0 / LONG as f64;
    needs_root!();
    let bench = Bench::new("limits-rule");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_utilization = 0.05\n\
         allow_unbounded = true\n\
         [[rule]]\ndomain = \"#{BOB}\"\nplugin = \"fp\"\nallow_unbounded = true\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (alice, bob) = (Agent::user(ALICE), Agent::user(BOB));
    let (client, of_bob) = (alice.connect(&daemon), bob.connect(&daemon));
    let cpus = CpuSet::single(0);
    let task = Task { cpus, cpus_mandatory: true, ..with("fp", crate::tasks::ranked(5)) };
    assert!(of_bob.create(task).notes.contains(Notes::UNLIMITED), "no rule bounds it");
    for count in [1, 3] {
        let hogs: Vec<Agent> = (0..count).map(|_| Agent::user(ALICE)).collect();
        let attached: Vec<_> = hogs.iter().map(|hog| attach_nice(&client, hog, task)).collect();
        for (granted, _) in &attached {
            assert!(!granted.notes.contains(Notes::UNLIMITED), "{granted:?}");
            assert!(!granted.notes.contains(Notes::BUDGET_NOT_ENFORCED), "{granted:?}");
        }
        let (root, other) = competitor(0);
        sched::set_nice(kernel::tid(other), -10).expect("root may");
        root.begin(&format!("hog {other} {LONG} spin"));
        for (hog, (_, tid)) in hogs.iter().zip(&attached) {
            hog.begin(&format!("hog {tid} {LONG} spin"));
        }
        let took = |hog: &Agent| hog.finish().parse::<f64>().expect("microseconds");
        let shares: Vec<f64> = hogs.iter().map(|hog| took(hog) / f64::from(LONG) / 10.0).collect();
        root.finish();
        let sum: f64 = shares.iter().sum();
        println!("{count} threads: {sum:.2} % of {RULE} %: {shares:.2?}");
        assert!(sum <= RULE + ONE_BUDGET + 2.0, "{shares:?} of {RULE} %");
        let least = RULE / f64::from(count) / 2.0;
        assert!(shares.iter().all(|&share| share > least), "{shares:?} of {RULE} %");
        for (granted, tid) in attached {
            eventually("it has its policy again", || kernel::policy(tid).is_realtime());
            client.done(&Request::Release(granted.spec));
        }
    }
}

/// Attack: threads that come and go replace the limits of the others, but refill no budget.
#[test]
fn attack_3_replaced_shares_refill_no_budget() {
    needs_root!();
    let bench = Bench::new("limits-shares");
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nmax_utilization = 0.05\nallow_unbounded = true\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let (hog, other_process) = (Agent::user(ALICE), Agent::user(ALICE));
    let client = other_process.connect(&daemon);
    let cpus = CpuSet::single(0);
    let task = Task { cpus, cpus_mandatory: true, ..with("fp", crate::tasks::ranked(5)) };
    let (granted, tid) = attach_nice(&client, &hog, task);
    let (second, idle) = (client.create(task), other_process.thread());
    let (root, other) = competitor(0);
    sched::set_nice(kernel::tid(other), -5).expect("root may");
    root.begin(&format!("hog {other} {LONG} spin"));
    hog.begin(&format!("hog {tid} {LONG} spin"));
    let begun = Instant::now();
    let mut cycles = 0;
    while begun.elapsed().as_millis() < u128::from(LONG) - 200 {
        client.attach(second.spec, idle);
        client.done(&Request::Detach(second.spec));
        cycles += 1;
    }
    let took = hog.finish().parse::<f64>().expect("microseconds");
    root.finish();
    let share = took / f64::from(LONG) / 10.0;
    println!("{share:.2} % of 5 % in {cycles} cycles");
    assert!(cycles > 50, "{cycles} cycles");
    assert!(share < 7.25, "{share:.2} % of 5 % in {cycles} cycles");
    assert!(client.query(granted.spec).overruns.count > 0, "the count goes on");
}

/// `TALEA_MEASURE` sets the number of overruns; `docs/manual/enforcement.md` contains the results.
#[test]
fn what_a_thread_consumes_beyond_its_budget_is_a_part_of_the_budget() {
    needs_root!();
    let bench = Bench::new("limits-granularity");
    let config =
        config::open().replace("kind = \"rm\"\n", "kind = \"rm\"\non_overrun = \"demote\"\n");
    let daemon = Daemon::start(&bench, &config);
    let rounds = std::env::var("TALEA_MEASURE").ok().and_then(|text| text.parse().ok());
    let rounds: u32 = rounds.unwrap_or(20);
    let (hogs, other_process) = (Agent::user(ALICE), Agent::user(ALICE));
    let client = other_process.connect(&daemon);
    for kind in ["spin", "calls"] {
        let granted = client.create(tenth("rm"));
        let cpu = granted.cpu.expect("one CPU");
        let tid = hogs.thread();
        // Beside the competitor, the hog gets CPU time under its grant only.
        let (root, other) = competitor(cpu);
        sched::set_nice(kernel::tid(other), -10).expect("root may");
        sched::set_nice(kernel::tid(tid), 19).expect("root may");
        sched::set_affinity(kernel::tid(tid), &CpuSet::single(cpu)).expect("root may");
        let long = 1_000 + rounds * 40;
        root.begin(&format!("hog {other} {long} spin"));
        hogs.begin(&format!("hog {tid} {long} {kind}"));
        let mut beyond: Vec<u64> = (0..rounds)
            .map(|_| {
                let before = cpu_time(tid);
                client.attach(granted.spec, tid);
                eventually("it is demoted", || client.query(granted.spec).tid.is_none());
                let beyond = cpu_time(tid).saturating_sub(before).saturating_sub(BUDGET_NS);
                // Its budget is refilled.
                std::thread::sleep(std::time::Duration::from_millis(15));
                beyond
            })
            .collect();
        hogs.finish();
        root.finish();
        client.done(&Request::Release(granted.spec));
        beyond.sort_unstable();
        let (median, p99) = (beyond[beyond.len() / 2], beyond[beyond.len() * 99 / 100]);
        println!("{kind}: {} us, {} us at p99, of {rounds}", median / 1_000, p99 / 1_000);
        assert!(median < BUDGET_NS / 2, "{kind}: {median} ns beyond a budget of {BUDGET_NS} ns");
    }
}

/// Returns the CPU time of a thread in nanoseconds, exact while the thread does not run.
fn cpu_time(tid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{tid}/schedstat")).expect("a thread");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Returns the number of voluntary context switches of the daemon's enforcers.
fn enforcer_wakeups(daemon: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{daemon}/task")).expect("the daemon");
    let mut sum = 0;
    for task in tasks.flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\ttalea-limit/") {
            let count =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sum += count.map_or(0, |count| count.trim().parse().expect("a number"));
        }
    }
    sum
}
