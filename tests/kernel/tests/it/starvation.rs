//! Threads that never sleep, on every CPU: the daemon answers, and ordinary threads get their
//! share.
//!
//! Every thread that never sleeps in these tests ends by itself after seconds, by the clock.

use crate::recovery::SmallDisk;
use crate::tasks::{ranked, reserved, with};
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use talea_core::CpuSet;
use talea_kernel_tests::{
    ALICE, Agent, BOB, Bench, Client, Daemon, Runs, config, eventually, kernel, needs, needs_root,
};
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};
use talea_proto::message::DetachCause;
use talea_proto::{Code, Granted, Reply, Request, Task};

/// Returns the name and the policy of each thread of a process.
fn threads(pid: i32) -> BTreeMap<String, Vec<Policy>> {
    let mut threads: BTreeMap<String, Vec<Policy>> = BTreeMap::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process").flatten() {
        let name = std::fs::read_to_string(task.path().join("comm")).expect("a thread");
        let tid: i32 = task.file_name().to_string_lossy().parse().expect("a number");
        threads.entry(name.trim().to_owned()).or_default().push(kernel::policy(tid));
    }
    threads
}

/// Returns the configuration in which the band of `fp` ends at `high`.
fn band_up_to(high: u8) -> String {
    config::open().replace("priorities = \"20-39\"", &format!("priorities = \"20-{high}\""))
}

#[test]
fn attack_13_the_daemon_runs_above_its_bands_and_its_helpers_do_not() {
    needs_root!();
    let bench = Bench::new("starvation-level");
    for (high, level) in [(59, 98), (98, 99)] {
        let daemon = Daemon::start(&bench, &band_up_to(high));
        let found = threads(daemon.pid());
        assert_eq!(kernel::policy(daemon.pid()), Policy::Fifo(level), "{found:?}");
        assert!(kernel::attr(daemon.pid()).reset_on_fork);
        let raised = ["talead", "talea-guardian", "talea-limit/"];
        let canaries = found.keys().filter(|name| name.starts_with("talea-canary/")).count();
        assert_eq!(canaries, kernel::cpus().len() as usize, "{found:?}");
        for (name, policies) in &found {
            let is_raised = raised.iter().any(|raised| name.starts_with(raised));
            assert_eq!(policies.iter().all(|policy| policy.is_realtime()), is_raised, "{found:?}");
        }
        // Under a limit of locked memory, later allocations would fail.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
        let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
        let locked = status.expect("a process").lines().find_map(|line| {
            line.strip_prefix("VmLck:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
        });
        assert_eq!(locked > Some(0), limit.is_none(), "{locked:?}");
        assert_eq!(daemon.log().contains("memory is not locked"), limit.is_some());
    }
}

#[test]
fn attack_13_a_flooded_daemon_leaves_ordinary_threads_their_share() {
    needs_root!();
    let bench = Bench::new("starvation-flood");
    let quota = "[daemon.quota]\nrequests_per_second = 1000000\n";
    let daemon = Daemon::start(&bench, &format!("{}{quota}", config::open()));
    const LONG: u64 = 2_000;
    let flooding: Vec<Agent> = (0..3).map(|i| Agent::user(ALICE + 10 * i)).collect();
    let mut status = String::new();
    for agent in &flooding {
        let clients: Vec<Client> = (0..4).map(|_| agent.connect(&daemon)).collect();
        status = clients[0].encode(&Request::Status);
    }
    for agent in &flooding {
        agent.begin(&format!("ask-all {LONG} {status}"));
    }
    // The daemon is raised for a small part of the time only.
    let (mut raised, mut samples) = (0, 0);
    let end = Instant::now() + Duration::from_millis(LONG * 3 / 4);
    std::thread::sleep(Duration::from_millis(LONG / 8));
    while Instant::now() < end {
        raised += u32::from(kernel::policy(daemon.pid()).is_realtime());
        samples += 1;
        std::thread::sleep(Duration::from_micros(700));
    }
    let answered: u64 =
        flooding.iter().map(|agent| agent.finish().parse::<u64>().expect("a number")).sum();
    assert!(answered > 1_000, "{answered} answers");
    println!("raised in {raised} of {samples} samples");
    assert!(raised > 0 && raised < samples * 9 / 10, "raised in {raised} of {samples} samples");
    drop(flooding);
    daemon.wait_until_raised();
}

/// Returns a task without a runtime on this CPU, which the daemon does not limit.
fn unlimited(cpu: u32) -> Task {
    Task { cpus: CpuSet::single(cpu), cpus_mandatory: true, ..with("fp", ranked(5)) }
}

/// Agents with an unlimited grant on each CPU.
struct Hogs(Vec<(Agent, Granted, i32)>);

impl Hogs {
    fn attach(daemon: &Daemon) -> Hogs {
        Hogs::attach_to(daemon, &kernel::cpus())
    }

    fn attach_to(daemon: &Daemon, cpus: &CpuSet) -> Hogs {
        let hog = |cpu| {
            let agent = Agent::user(ALICE);
            // A hog must not delay the start of the others.
            raise(agent.os_pid());
            let client = agent.connect(daemon);
            let granted = client.create(unlimited(cpu));
            let tid = agent.thread();
            client.attach(granted.spec, tid);
            (agent, granted, tid)
        };
        Hogs(cpus.iter().map(hog).collect())
    }

    /// Returns the causes for which the daemon has detached them.
    fn causes(&self, client: &Client) -> Vec<Option<DetachCause>> {
        self.0.iter().map(|(_, granted, _)| client.query(granted.spec).detached).collect()
    }

    /// Starts to compute without a pause, for this time.
    fn begin(&self, milliseconds: u64) {
        for (agent, _, tid) in &self.0 {
            agent.begin(&format!("hog {tid} {milliseconds} spin"));
        }
    }

    fn finish(&self) {
        self.0.iter().for_each(|(agent, ..)| drop(agent.finish()));
    }
}

/// An ordinary thread on each CPU, which consumes what the kernel leaves to such threads.
struct Ordinary(Vec<Agent>);

impl Ordinary {
    fn new() -> Ordinary {
        let pinned = |cpu| {
            let agent = Agent::root();
            let tid = kernel::tid(agent.os_pid());
            sched::set_affinity(tid, &CpuSet::single(cpu)).expect("root may");
            agent
        };
        Ordinary(kernel::cpus().iter().map(pinned).collect())
    }

    fn begin(&self, milliseconds: u64) {
        self.0.iter().for_each(|agent| agent.begin(&format!("compute {milliseconds}")));
    }

    fn finish(&self) {
        self.0.iter().for_each(|agent| drop(agent.finish()));
    }
}

/// Kernel without a limit of real-time threads. Dropping it, or the end of this process, restores
/// the limit.
struct Unthrottled(Child);

impl Unthrottled {
    fn new() -> Unthrottled {
        const LIMIT: &str = "/proc/sys/kernel/sched_rt_runtime_us";
        // Once: each read rebuilds the root domains.
        let before = std::fs::read_to_string(LIMIT).expect("the limit");
        let restore = format!("trap '' INT TERM HUP; read end; echo {} > {LIMIT}", before.trim());
        let guard = Command::new("sh").args(["-c", &restore]).stdin(Stdio::piped()).spawn();
        let guard = Unthrottled(guard.expect("a shell"));
        std::fs::write(LIMIT, "-1").expect("root may");
        guard
    }
}

impl Drop for Unthrottled {
    fn drop(&mut self) {
        self.0.stdin = None;
        let status = self.0.wait().expect("the shell");
        assert!(status.success(), "the limit of real-time threads is not restored: {status}");
    }
}

/// Lets a thread precede the hogs.
fn raise(tid: i32) {
    sched::set(kernel::tid(tid), &Attr::grant(Policy::Fifo(90))).expect("root may");
}

/// Priority of the calling thread above the hogs, until this is dropped.
struct Raised;

impl Raised {
    fn new() -> Raised {
        raise(Tid::current().as_raw());
        Raised
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        sched::set(Tid::current(), &Attr::plain(Policy::NORMAL)).expect("a thread of ours");
    }
}

/// Response times of a client, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    median: u64,
    p99: u64,
    max: u64,
}

/// Returns the response times of `count` status requests with pauses of a millisecond. The client
/// itself precedes the hogs, so only the daemon could be starved.
fn status_times(client: &Client, count: u32) -> Times {
    status_times_with(client, count, 1_000)
}

/// Returns the response times of `count` status requests with these pauses.
fn status_times_with(client: &Client, count: u32, pause_us: u32) -> Times {
    let status = client.encode(&Request::Status);
    let order = format!("response-times {} {count} {pause_us} {status}", client.index());
    let said = client.agent.order(&order);
    let mut words = said.split(' ').map(|word| word.parse().unwrap_or_else(|_| panic!("{said}")));
    let mut next = || words.next().expect("a number");
    Times { median: next(), p99: next(), max: next() }
}

#[test]
fn attack_13_the_daemon_answers_beside_hogs_on_every_cpu() {
    const HOGS_MS: u64 = 450;
    needs_root!();
    let bench = Bench::new("starvation-answers");
    let daemon = Daemon::start(&bench, &config::open());
    let (bob, root) = (Agent::user(BOB), Agent::root());
    let ordinary = Ordinary::new();
    for agent in [&bob, &root] {
        raise(agent.os_pid());
    }
    let _raised = Raised::new();
    let (client, superuser) = (bob.connect(&daemon), root.connect(&daemon));
    let is_measured = std::env::var_os("TALEA_MEASURE").is_some();
    if is_measured {
        let ordinary = Agent::root();
        let client = ordinary.connect(&daemon);
        for _ in 0..5 {
            println!("in a loop, an ordinary client: {:?}", status_times_with(&client, 20_000, 0));
        }
    }
    let (mut quiet, mut busy, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if is_measured { 10 } else { 3 } {
        quiet.push(status_times(&client, 200));
        let hogs = Hogs::attach(&daemon);
        ordinary.begin(600);
        hogs.begin(HOGS_MS);
        // The kernel's fair server serves ordinary threads for 50 ms first.
        std::thread::sleep(Duration::from_millis(HOGS_MS / 4));
        busy.push(status_times(&client, 200));
        let begun = Instant::now();
        superuser.done(&Request::Release(hogs.0[0].1.spec));
        releases.push(begun.elapsed());
        hogs.finish();
        ordinary.finish();
    }
    // A stall of the computer concerns one round.
    let median_of = |times: &[Times], of: fn(&Times) -> u64| {
        let mut all: Vec<u64> = times.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let of = |times: &[Times]| Times {
        median: median_of(times, |t| t.median),
        p99: median_of(times, |t| t.p99),
        max: median_of(times, |t| t.max),
    };
    let (quiet, busy) = (of(&quiet), of(&busy));
    releases.sort_unstable();
    let release = releases[releases.len() / 2];
    println!("in nanoseconds: quiet {quiet:?}, beside hogs {busy:?}, release {release:?}");
    assert!(busy.p99 < 100 * quiet.median, "quiet {quiet:?}, beside hogs {busy:?}");
    // A starved daemon answers when the hogs have ended.
    let most = u128::from(HOGS_MS) * 1_000_000 / 4;
    assert!(u128::from(busy.max) < most, "quiet {quiet:?}, beside hogs {busy:?}");
    assert!(release.as_nanos() < most, "release {release:?}");
}

#[test]
fn attack_13_a_daemon_restarts_beside_hogs_on_every_cpu() {
    const HOGS_MS: u64 = 700;
    needs_root!();
    let bench = Bench::new("starvation-restart");
    // In memory as /run is. Any other file system waits for ordinary threads of the kernel.
    let _disk = SmallDisk::mount(bench.path("state"), "4m");
    let mut daemon = Daemon::start(&bench, &config::open());
    let ordinary = Ordinary::new();
    let hogs = Hogs::attach(&daemon);
    // An ended deadline thread, whose bandwidth the next daemon asks the kernel for.
    let ended = Agent::user(BOB);
    let client = ended.connect(&daemon);
    let granted = client.create(with("edf", reserved(10, 200)));
    client.attach(granted.spec, ended.thread());
    daemon.kill();
    drop(ended);
    // As the service manager starts it. This thread and its children precede the hogs.
    let _raised = Raised::new();
    sched::set(Tid::current(), &Attr::plain(Policy::Fifo(90))).expect("root may");
    let plain = daemon.command(&[]);
    let mut command = Command::new("chrt");
    command.args(["--reset-on-fork", "--fifo", "98"]).arg(plain.get_program());
    command.args(plain.get_args()).env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS");
    command.env_remove("JOURNAL_STREAM").stdin(Stdio::null());
    ordinary.begin(HOGS_MS);
    hogs.begin(HOGS_MS);
    // The kernel's fair server serves ordinary threads for 50 ms first.
    std::thread::sleep(Duration::from_millis(HOGS_MS / 4));
    let begun = Instant::now();
    daemon.run_command(command).unwrap_or_else(|failed| panic!("{failed:?}"));
    let took = begun.elapsed();
    hogs.finish();
    let rest = begun.elapsed();
    ordinary.finish();
    println!("serves after {took:?}, the hogs ended after {rest:?}");
    assert!(took < rest / 2, "serves after {took:?}, the hogs ended after {rest:?}");
    let found = threads(daemon.pid());
    assert!(found.iter().all(|(name, policies)| {
        !name.starts_with("talea-canary") || policies.iter().all(|policy| !policy.is_realtime())
    }));
}

#[test]
fn attack_13_floods_of_others_beside_hogs_do_not_delay_a_client() {
    const HOGS_MS: u64 = 450;
    needs_root!();
    let bench = Bench::new("starvation-shares");
    let quota = "[daemon.quota]\nrequests_per_second = 1000000\n";
    let daemon = Daemon::start(&bench, &format!("{}{quota}", config::open()));
    let (bob, ordinary) = (Agent::user(BOB), Ordinary::new());
    let flooding: Vec<Agent> = (1..4).map(|i| Agent::user(ALICE + 10 * i)).collect();
    // All of them precede the hogs, so only the daemon could be starved.
    for agent in flooding.iter().chain([&bob]) {
        raise(agent.os_pid());
    }
    let _raised = Raised::new();
    let client = bob.connect(&daemon);
    let mut status = String::new();
    for agent in &flooding {
        let clients: Vec<Client> = (0..4).map(|_| agent.connect(&daemon)).collect();
        status = clients[0].encode(&Request::Status);
    }
    let (mut quiet, mut busy, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        quiet.push(status_times(&client, 200));
        let hogs = Hogs::attach(&daemon);
        ordinary.begin(600);
        hogs.begin(HOGS_MS);
        for agent in &flooding {
            agent.begin(&format!("ask-all {} {status}", HOGS_MS * 3 / 4));
        }
        // The kernel's fair server serves ordinary threads for 50 ms first.
        std::thread::sleep(Duration::from_millis(HOGS_MS / 4));
        busy.push(status_times(&client, 150));
        let of = |agent: &Agent| agent.finish().parse::<u64>().expect("a number");
        answers.push(flooding.iter().map(of).sum::<u64>());
        hogs.finish();
        ordinary.finish();
        daemon.wait_until_raised();
    }
    // A stall of the computer concerns one round.
    quiet.sort_unstable_by_key(|times| times.p99);
    busy.sort_unstable_by_key(|times| times.p99);
    let (quiet, busy) = (quiet[2], busy[2]);
    let ratio = busy.p99 / quiet.median;
    println!("in nanoseconds: quiet {quiet:?}, beside hogs and floods {busy:?}; {ratio} times");
    println!("answers of the flood: {answers:?}");
    assert!(answers.iter().all(|&count| count > 100), "{answers:?}");
    assert!(ratio < 100, "quiet {quiet:?}, beside hogs and floods {busy:?}");
}

#[test]
fn attack_13_a_client_that_pauses_after_a_burst_is_not_held() {
    needs_root!();
    let bench = Bench::new("starvation-idle");
    let quota = "[daemon.quota]\nrequests_per_second = 1000000\n";
    let daemon = Daemon::start(&bench, &format!("{}{quota}", config::open()));
    let bob = Agent::user(BOB);
    let client = bob.connect(&daemon);
    // Bursts exhaust the budget of the event loop. Then the loop is idle for a millisecond after
    // each request. Other threads starve it at most in a few rounds.
    let ratios: Vec<u64> = (0..15)
        .map(|_| {
            let burst = (0..100)
                .map(|_| status_times_with(&client, 100, 0))
                .find(|_| !kernel::policy(daemon.pid()).is_realtime())
                .expect("10,000 requests exhaust the budget");
            status_times(&client, 20).max / burst.median
        })
        .collect();
    println!("longest response after a burst, in medians of the burst: {ratios:?}");
    assert!(ratios.iter().filter(|&&ratio| ratio > 100).count() <= 4, "{ratios:?}");
}

/// Lets hogs on every CPU run for seconds, and checks that they are demoted before they end.
fn hogs_are_demoted(is_throttling: bool) {
    let bench = Bench::new("starvation-demoted");
    let unthrottled = (!is_throttling).then(Unthrottled::new);
    let name = if is_throttling { "throttling" } else { "no throttling" };
    let rules = format!(
        "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 9\nallow_unbounded = true\n"
    );
    let daemon = Daemon::start(&bench, &config::with_rules(&rules));
    let root = Agent::root();
    raise(root.os_pid());
    let superuser = root.connect(&daemon);
    let hogs = Hogs::attach(&daemon);
    let begun = Instant::now();
    // The kernel's fair server may serve the canary once before, and so restart its bound.
    hogs.begin(4_500);
    std::thread::sleep(Duration::from_millis(100));
    // This thread is ordinary: it continues when a hog is demoted, or by the kernel's fair server.
    while hogs.0.iter().any(|(_, _, tid)| kernel::policy(*tid).is_realtime()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = begun.elapsed();
    hogs.finish();
    let ended = begun.elapsed();
    drop(unthrottled);
    println!("{name}: demoted within {took:?}");
    assert!(took < ended * 2 / 3, "{name}: demoted after {took:?} of {ended:?}");
    let causes = hogs.causes(&superuser);
    assert!(causes.iter().all(|&cause| cause == Some(DetachCause::Starvation)), "{causes:?}");
    assert!(daemon.wait_for_line("left ordinary threads no time").is_some());
    // The grant is whole: its thread may be attached again.
    let (agent, granted, tid) = &hogs.0[0];
    agent.client_at(0).attach(granted.spec, *tid);
    assert!(kernel::policy(*tid).is_realtime());
}

#[test]
fn attack_13_hogs_on_every_cpu_are_demoted() {
    needs_root!();
    hogs_are_demoted(true);
}

#[test]
fn attack_13_hogs_on_every_cpu_are_demoted_also_without_throttling() {
    needs_root!();
    hogs_are_demoted(false);
}

#[test]
fn attack_13_a_grant_is_not_demoted_for_threads_of_others() {
    needs_root!();
    let bench = Bench::new("starvation-others");
    let daemon = Daemon::start(&bench, &config::open());
    let cpu = kernel::cpus().iter().last().expect("a CPU");
    // It computes for a third of a second, and pauses.
    let bursts = Hogs::attach_to(&daemon, &CpuSet::single(cpu));
    for _ in 0..4 {
        bursts.begin(330);
        bursts.finish();
        std::thread::sleep(Duration::from_millis(50));
    }
    let root = Agent::root();
    let client = root.connect(&daemon);
    assert!(client.query(bursts.0[0].1.spec).tid.is_some(), "{}", daemon.log());
    assert_eq!(daemon.said_since_start(), [""; 0]);
    let tid = root.thread();
    sched::set_affinity(kernel::tid(tid), &CpuSet::single(cpu)).expect("root may");
    sched::set(kernel::tid(tid), &Attr::grant(Policy::Fifo(50))).expect("root may");
    root.order(&format!("hog {tid} 1900 spin"));
    eventually("others are named", || {
        daemon.log().contains("no thread of a FIFO or RR grant is the cause")
    });
    assert!(client.query(bursts.0[0].1.spec).tid.is_some());
    let lines = daemon.said_since_start();
    assert_eq!(lines.len(), 1, "{lines:?}");
}

/// A check of the CPU times of so many threads takes many slices, and the checks follow each other
/// later.
#[test]
fn attack_13_a_hog_beside_a_thousand_threads_is_demoted_and_they_stay() {
    needs_root!();
    let bench = Bench::new("starvation-many");
    let daemon = Daemon::start(&bench, &config::open());
    let cpu = kernel::cpus().iter().last().expect("a CPU");
    let (bob, root) = (Agent::user(BOB), Agent::root());
    let holder = bob.connect(&daemon);
    let specs: Vec<_> = (0..1_000)
        .map(|_| {
            let spec = holder.create(unlimited(cpu)).spec;
            holder.attach(spec, bob.thread());
            spec
        })
        .collect();
    let hogs = Hogs::attach_to(&daemon, &CpuSet::single(cpu));
    let client = root.connect(&daemon);
    raise(root.os_pid());
    hogs.begin(4_000);
    eventually("the hog is demoted", || hogs.causes(&client) == [Some(DetachCause::Starvation)]);
    hogs.finish();
    assert_eq!(client.status().attached, specs.len() as u32);
}

/// On a busy machine a thread stays for longer than its turn, and could be demoted by itself. Such
/// a run is inconclusive.
#[test]
fn attack_13_threads_that_relieve_each_other_are_charged_to_their_user() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() > 1);
    let bench = Bench::new("starvation-relief");
    Runs::at_least(1).repeat(|| {
        // A new daemon charges the users for this run only.
        let daemon = Daemon::start(&bench, &config::open());
        relieve_each_other(&daemon).then_some(())
    });
}

/// Threads that relieve each other on a CPU, each of which ends before the bound of a thread. The
/// next thread waits for the CPU before one ends. Returns whether the run is conclusive.
fn relieve_each_other(daemon: &Daemon) -> bool {
    const TURN_MS: u64 = 120;
    const TURNS: usize = 36;
    /// Silence of a CPU after which the daemon demotes one thread that has caused it alone.
    const BOUND: Duration = Duration::from_millis(500);
    /// A process whose thread exits answers only when the thread has had the CPU for that.
    const PROCESSES: usize = 4;
    let cpu = kernel::cpus().iter().last().expect("a CPU");
    let (processes, root) = ([(); PROCESSES].map(|()| Agent::user(ALICE)), Agent::root());
    let (bob, fresh) = (Agent::user(BOB), Agent::user(ALICE));
    for agent in processes.iter().chain([&root, &bob, &fresh]) {
        raise(agent.os_pid());
    }
    let clients = processes.each_ref().map(|agent| agent.connect(daemon));
    let [superuser, others, own] = [&root, &bob, &fresh].map(|agent| agent.connect(daemon));
    let spec_of = |client: &Client| client.create(unlimited(cpu)).spec;
    let (of_bob, of_fresh) = ([spec_of(&others), spec_of(&others)], spec_of(&own));
    others.attach(of_bob[0], bob.thread());
    let turns: Vec<_> = (0..TURNS)
        .map(|turn| {
            let (agent, client) = (&processes[turn % PROCESSES], &clients[turn % PROCESSES]);
            (agent, client, spec_of(client), agent.thread())
        })
        .collect();
    let _raised = Raised::new();
    let begun = Instant::now();
    let mut attached: Vec<Instant> = Vec::new();
    let mut longest = Duration::ZERO;
    let is_demoted =
        |turn: usize| superuser.query(turns[turn].2).detached == Some(DetachCause::Starvation);
    let demoted = (0..TURNS).find(|&turn| {
        let (agent, client, spec, tid) = turns[turn];
        if turn >= PROCESSES {
            assert_eq!(agent.finish(), "ended");
        }
        client.attach(spec, tid);
        attached.push(Instant::now());
        agent.begin(&format!("hog {tid} {TURN_MS} spin"));
        let Some(before) = turn.checked_sub(1) else { return false };
        let (agent, _, _, tid) = turns[before];
        agent.finish();
        let is_over = is_demoted(before) || is_demoted(turn);
        longest = longest.max(attached[before].elapsed());
        agent.begin(&format!("end {tid}"));
        is_over
    });
    let took = begun.elapsed();
    let turn = demoted.unwrap_or_else(|| panic!("no thread is demoted in {TURNS} turns"));
    println!("turn {turn} of {TURNS}: demoted after {took:?}; longest attach {longest:?}");
    if longest >= BOUND {
        return false;
    }
    // Another process of the user, which has not computed, waits. Another user does not.
    let attach = |client: &Client, agent: &Agent, spec| {
        let (tid, begun) = (agent.thread(), Instant::now());
        let reply = client.try_attach(spec, tid);
        (reply, begun.elapsed())
    };
    let (reply, of_other) = attach(&others, &bob, of_bob[1]);
    assert_eq!(reply, Reply::Done);
    let (reply, of_user) = attach(&own, &fresh, of_fresh);
    println!("attach of another user {of_other:?}, of the user {of_user:?}: {reply:?}");
    let is_refused = matches!(&reply, Reply::Refused(no) if no.code == Code::Starvation);
    assert!(is_refused || of_user > 4 * of_other, "{reply:?} {of_user:?}, other {of_other:?}");
    assert!(superuser.query(of_bob[0]).tid.is_some(), "a sleeping thread of another user stays");
    turns[turn].0.finish();
    true
}

/// Returns the number of voluntary context switches of the canary of each CPU.
fn canary_wakeups(daemon: i32) -> BTreeMap<String, u64> {
    let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).expect("the daemon");
    let count = |task: std::fs::DirEntry| {
        let status = std::fs::read_to_string(task.path().join("status")).ok()?;
        let name = status.lines().next()?.strip_prefix("Name:\ttalea-canary/")?.to_owned();
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((name, line.trim().parse().ok()?))
    };
    tasks.flatten().filter_map(count).collect()
}

#[test]
fn a_canary_is_woken_only_beside_grants_and_five_times_a_second() {
    needs_root!();
    let bench = Bench::new("starvation-wakeups");
    let daemon = Daemon::start(&bench, &config::open());
    let first = kernel::cpus().iter().next().expect("a CPU");
    let woken = || {
        let before = canary_wakeups(daemon.pid());
        std::thread::sleep(Duration::from_secs(2));
        let after = canary_wakeups(daemon.pid());
        assert_eq!(before.len(), kernel::cpus().len() as usize, "{before:?}");
        before.into_iter().map(|(cpu, count)| (cpu.clone(), after[&cpu] - count)).collect()
    };
    let counts: BTreeMap<String, u64> = woken();
    assert!(counts.values().all(|&count| count == 0), "without grants: {counts:?}");
    let hogs = Hogs::attach_to(&daemon, &CpuSet::single(first));
    let counts: BTreeMap<String, u64> = woken();
    for (cpu, &count) in &counts {
        let most = if *cpu == first.to_string() { 11 } else { 0 };
        assert!(count <= most, "{counts:?}");
    }
    assert!(counts[&first.to_string()] > 5, "{counts:?}");
    drop(hogs);
}
