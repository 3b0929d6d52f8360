//! A daemon, bystanders, an honest client, and the invariants that every attack must leave intact.
//!
//! The kernel distributes CPU time, and an attacker that consumes it delays all threads. These
//! tests judge the daemon, so the daemon precedes all other threads on one CPU, and the honest
//! client has another.

use crate::tasks::{ms, ranked, with, work_us};
use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use talea_core::{CpuSet, Params};
use talea_kernel_tests::{Agent, BOB, Bench, Client, Daemon, config, eventually, kernel};
use talea_os::sched::{Attr, Policy};
use talea_proto::{Code, Refusal, Reply, Task};

/// The attacker: an ordinary user with an account.
pub(crate) const MALLORY: u32 = 60_004;
/// User of the honest client, whose service is measured.
const CAROL: u32 = 60_003;

/// A plugin for Bob alone, so that grants of other plugins move nothing there.
pub(crate) const QUIET: &str =
    "\n[[plugin]]\nname = \"quiet\"\nkind = \"fp\"\ncpus = \"all\"\npriorities = \"10-19\"\n";

/// Factor by which the 99th percentile of the honest client's calls may grow.
const SLOWER: u64 = 3;
/// Number of repetitions of a round before its figures count.
const ROUNDS: u32 = 8;
/// Number of rounds that must be good if the first was not: even an attack that succeeds in most
/// rounds has a good round by chance.
const GOOD: u32 = 2;
/// Minimum wait that counts as blocked; longer than any stall of the machine.
const BLOCKED: Duration = Duration::from_secs(1);
/// Minimum duration of a round, so that its 99th percentile is more than a few calls.
const ROUND: Duration = Duration::from_millis(300);
/// Memory that the daemon may keep after an attack, in KiB.
const MAX_KEPT_KIB: u64 = 8 * 1024;

/// A thread that no attack may change.
struct Bystander {
    what: &'static str,
    tid: i32,
    attr: Attr,
    cpus: CpuSet,
}

/// Response times of the honest client, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    calls: u64,
    failed: u64,
    median: u64,
    p99: u64,
    max: u64,
}

/// Environment of an attack. Fields drop in this order: clients, daemon, folder.
pub(crate) struct Fixture {
    honest: Agent,
    bob: Agent,
    root: Agent,
    pub(crate) daemon: Daemon,
    pub(crate) bench: Bench,
    bystanders: Vec<Bystander>,
    /// Whether the honest client also attaches a thread.
    pub(crate) attaching: bool,
    instance: u64,
    memory_kib: u64,
    /// Numbers of descriptors and specs before the attack.
    before: Cell<(usize, u32)>,
    _crowd: Confined,
}

/// Removal of the calling thread, and of everything that it starts, from the daemon's CPU until
/// this is dropped.
struct Confined(Option<rustix::thread::CpuSet>);

impl Confined {
    fn new() -> Confined {
        if kernel::cpus().len() < 2 {
            return Confined(None);
        }
        let before = rustix::thread::sched_getaffinity(None).expect("our CPUs");
        let mut others = before;
        others.unset(0);
        rustix::thread::sched_setaffinity(None, &others).expect("the other CPUs");
        Confined(Some(before))
    }

    /// Moves a process of one thread to the daemon's CPU.
    fn apart(&self, pid: i32) {
        if self.0.is_some() {
            let mut cpu = rustix::thread::CpuSet::new();
            cpu.set(0);
            let pid = rustix::process::Pid::from_raw(pid);
            rustix::thread::sched_setaffinity(pid, &cpu).expect("the daemon's CPU");
        }
    }
}

impl Drop for Confined {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            rustix::thread::sched_setaffinity(None, before).expect("our CPUs");
        }
    }
}

impl Fixture {
    /// Starts a daemon that is open to all users.
    pub(crate) fn new(name: &str) -> Fixture {
        Fixture::with(name, &config::open())
    }

    /// Starts a daemon with this configuration, which must let Carol use `rm` and Bob use
    /// [`QUIET`].
    pub(crate) fn with(name: &str, config: &str) -> Fixture {
        let bench = Bench::new(name);
        let daemon = Daemon::start(&bench, &format!("{config}{QUIET}"));
        Fixture::around(bench, daemon)
    }

    /// Returns the environment around a running daemon that has [`QUIET`].
    pub(crate) fn around(bench: Bench, daemon: Daemon) -> Fixture {
        let crowd = Confined::new();
        let (bob, root) = (Agent::user(BOB), Agent::root());
        let honest = Agent::start(Command::new(test_clients(&bench)), CAROL);
        crowd.apart(daemon.pid());
        let urgent = Attr::plain(Policy::Fifo(1));
        talea_os::sched::set(kernel::tid(honest.pid()), &urgent)
            .expect("a real-time policy for a process of ours");
        let (plain, granted, of_root) = (bob.thread(), bob.thread(), root.thread());
        let client = bob.connect(&daemon);
        let grant = client.create(with("quiet", ranked(5)));
        client.attach(grant.spec, granted);
        let status = root.connect(&daemon).status();
        daemon.wait_until_raised();
        let bystander = |what, tid| Bystander {
            what,
            tid,
            attr: kernel::attr(tid),
            cpus: kernel::affinity(tid),
        };
        let bystanders = vec![
            bystander("a thread of Bob's", plain),
            bystander("a thread of Bob's with a grant", granted),
            bystander("Bob's main thread", bob.pid()),
            bystander("a thread of root's", of_root),
            bystander("the daemon", daemon.pid()),
            bystander("the first process", 1),
        ];
        let mut fixture = Fixture {
            honest,
            bob,
            root,
            daemon,
            bench,
            bystanders,
            attaching: true,
            instance: status.instance,
            memory_kib: 0,
            before: Cell::new((0, status.specs)),
            _crowd: crowd,
        };
        // Memory that the daemon allocates once for the honest client does not count as kept for an
        // attack.
        fixture.measure(|| ());
        fixture.memory_kib = fixture.memory_now();
        fixture.take_stock();
        fixture
    }

    /// Records the descriptors and specs that exist before the attack.
    pub(crate) fn take_stock(&self) {
        let watcher = self.root.connect(&self.daemon);
        let specs = watcher.status().specs;
        let with_watcher = self.descriptors_now();
        watcher.close();
        eventually("the watcher has gone", || self.descriptors_now() < with_watcher);
        self.before.set((self.descriptors_now(), specs));
    }

    /// Returns the threads that a client must not be able to name, with descriptions.
    pub(crate) fn threads_of_others(&self) -> impl Iterator<Item = (&'static str, i32)> + '_ {
        self.bystanders.iter().map(|bystander| (bystander.what, bystander.tid))
    }

    /// Returns the agent of Bob, who has a grant.
    pub(crate) fn bob(&self) -> &Agent {
        &self.bob
    }

    /// Starts an attacker as a plain agent.
    pub(crate) fn mallory() -> Agent {
        Agent::user(MALLORY)
    }

    /// Sets the affinity of an agent to all CPUs, for a test of `edf`: a confined thread cannot use
    /// a whole root domain. Only for tests that measure nothing.
    pub(crate) fn on_all_cpus(agent: Agent) -> Agent {
        let all = kernel::cpus();
        talea_os::sched::set_affinity(kernel::tid(agent.pid()), &all).expect("all CPUs");
        agent
    }

    /// Starts the test clients' program as the user with this number.
    pub(crate) fn test_clients(&self, uid: u32) -> Agent {
        Agent::start(Command::new(test_clients(&self.bench)), uid)
    }

    /// Attacks for a while and measures the honest client beside it; then makes all checks.
    ///
    /// The function repeats the attack until a round has lasted long enough, and repeats rounds
    /// until one is good enough.
    #[track_caller]
    pub(crate) fn under(&self, attack: impl FnMut()) {
        self.take_stock();
        self.under_within(Some(SLOWER), attack);
        self.is_unharmed();
    }

    /// Runs an attack like [`Fixture::under`], but without the final checks, because some effects
    /// only end with the attacker.
    #[track_caller]
    pub(crate) fn under_until_gone(&self, attack: impl FnMut()) {
        self.take_stock();
        self.under_within(Some(SLOWER), attack);
    }

    /// Runs an attack whose threads use their grants, and so precede all other threads. No client
    /// may be blocked or refused, but some clients wait.
    #[track_caller]
    pub(crate) fn beside_grants(&self, attack: impl FnMut()) {
        self.take_stock();
        self.under_within(None, attack);
        self.is_unharmed();
    }

    #[track_caller]
    fn under_within(&self, slower: Option<u64>, mut attack: impl FnMut()) {
        let (mut seen, mut good) = (Vec::new(), 0);
        for round in 0..ROUNDS {
            let calm = self.measure(|| std::thread::sleep(ROUND / 2));
            let attacked = self.measure(|| {
                let begun = Instant::now();
                while {
                    attack();
                    begun.elapsed() < ROUND
                } {}
            });
            println!("calm {calm}, under attack {attacked}");
            assert_eq!(
                attacked.failed,
                0,
                "an honest request was not served: {attacked}\n{}",
                self.daemon.log()
            );
            let longest = Duration::from_nanos(attacked.max);
            assert!(
                longest < BLOCKED,
                "the honest client was blocked for {longest:?}\n{}",
                self.daemon.log()
            );
            good += u32::from(slower.is_none_or(|slower| attacked.p99 <= slower * calm.p99));
            if good == GOOD || (round == 0 && good == 1) {
                return;
            }
            seen.push((calm, attacked));
        }
        panic!(
            "the honest client's p99 has grown more than {SLOWER} times in nearly every round: {seen:?}"
        );
    }

    /// Measures the honest client while `meanwhile` runs.
    #[track_caller]
    pub(crate) fn measure(&self, meanwhile: impl FnOnce()) -> Service {
        let plain = if self.attaching { "" } else { " plain" };
        let begin = format!("start honest honest {} 150{plain}", self.daemon.socket().display());
        assert_eq!(self.honest.order(&begin), "started");
        meanwhile();
        Service::read(&self.honest.order("stop honest"))
    }

    /// Checks that every bystander is unchanged and that the daemon is sound.
    #[track_caller]
    pub(crate) fn is_unharmed(&self) {
        self.daemon.wait_until_raised();
        for Bystander { what, tid, attr, cpus } in &self.bystanders {
            let now = || (kernel::attr(*tid), kernel::affinity(*tid));
            // A daemon whose budget is exhausted is an ordinary thread for a while.
            if *tid == self.daemon.pid() {
                eventually("the daemon has its attributes", || now() == (*attr, *cpus));
            } else {
                assert_eq!(now(), (*attr, *cpus), "{what} was changed");
            }
        }
        let watcher = self.root.connect(&self.daemon);
        let status = watcher.status();
        assert_eq!(
            (status.instance, status.pid as i32),
            (self.instance, self.daemon.pid()),
            "it is another daemon now"
        );
        let (descriptors, specs) = self.before.get();
        eventually("specs of the attack are gone", || watcher.status().specs == specs);
        watcher.close();
        eventually("descriptors of the attack are closed", || {
            self.descriptors_now() <= descriptors
        });
        let memory = self.memory_now();
        let grown = memory.saturating_sub(self.memory_kib);
        assert!(
            grown < MAX_KEPT_KIB,
            "the daemon keeps {grown} KiB of the attack, {memory} in total"
        );
        assert!(!self.daemon.log().contains("panicked"), "{}", self.daemon.log());
    }

    /// Returns the number of descriptors that the daemon has open.
    pub(crate) fn descriptors_now(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.daemon.pid()))
            .expect("a living daemon")
            .count()
    }

    fn memory_now(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.daemon.pid()));
        let status = status.expect("a living daemon");
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    }
}

impl Service {
    fn read(said: &str) -> Service {
        let words: HashMap<&str, u64> = said
            .split(' ')
            .filter_map(|word| word.split_once('='))
            .map(|(k, v)| (k, v.parse().unwrap_or(0)))
            .collect();
        let word = |name: &str| {
            *words.get(name).unwrap_or_else(|| panic!("the honest client said {said:?}"))
        };
        Service {
            calls: word("calls"),
            failed: word("failed"),
            median: word("median"),
            p99: word("p99"),
            max: word("max"),
        }
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |ns: u64| ns / 1000;
        write!(
            f,
            "{}/{}/{} µs (median/p99/max of {} calls, {} failed)",
            us(self.median),
            us(self.p99),
            us(self.max),
            self.calls,
            self.failed
        )
    }
}

/// Copies the program of the test clients to a place where any user can execute it.
pub(crate) fn test_clients(bench: &Bench) -> PathBuf {
    let staged = bench.path("test_clients");
    if !staged.exists() {
        talea_kernel_tests::bench::copy(env!("CARGO_BIN_EXE_talea-test-clients"), &staged);
        set_mode(&staged, 0o755);
    }
    staged
}

/// Sets permissions.
pub(crate) fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode");
}

/// Returns the refusal of a reply, which must be one.
#[track_caller]
pub(crate) fn refusal(reply: Reply) -> Refusal {
    match reply {
        Reply::Refused(refusal) => *refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Returns the code of a refusal.
#[track_caller]
pub(crate) fn code(reply: Reply) -> Code {
    refusal(reply).code
}

/// Returns a small task, of which `rm` accepts many.
pub(crate) fn small() -> Task {
    let params = Params { period: Some(ms(100)), runtime: Some(work_us(100)), ..Params::default() };
    with("rm", Task { params, ..Task::default() })
}

/// Returns a task whose thread stays real-time, whatever it consumes.
pub(crate) fn unlimited() -> Task {
    with("fp", ranked(5))
}

/// Returns a count in a role's result.
pub(crate) fn figure(said: &str, name: &str) -> u64 {
    let found = said.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said:?}"))
}

/// Sends `request` with the descriptors that the words name, behind `ahead` copies of the request
/// without descriptors. Returns the daemon's last reply; `None` if it has closed the connection.
#[track_caller]
pub(crate) fn send_parcel(
    client: &Client,
    request: &talea_proto::Request,
    ahead: usize,
    what: &str,
) -> Option<Reply> {
    let message = client.encode(request);
    let said =
        client.agent.order(&format!("send-parcel {} {message} {ahead} {what}", client.index()));
    assert_eq!(said, "sent", "{what}");
    for _ in 0..ahead {
        client.receive()?;
    }
    client.receive().map(|(_, reply)| reply)
}

/// Sends like [`send_parcel`], without copies; returns `None` if the sender cannot create such a
/// descriptor.
#[track_caller]
pub(crate) fn send_parcel_if(
    client: &Client,
    request: &talea_proto::Request,
    what: &str,
) -> Option<Reply> {
    let message = client.encode(request);
    let said = client.agent.order(&format!("send-parcel {} {message} 0 {what}", client.index()));
    if said != "sent" {
        println!("{what}: {said}");
        return None;
    }
    client.receive().map(|(_, reply)| reply)
}

/// Returns the exit code and the standard error of a program that must end.
#[track_caller]
pub(crate) fn outcome(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("a program");
    let mut stderr = child.stderr.take().expect("piped");
    let saying = std::thread::spawn(move || {
        let mut said = String::new();
        let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
        said
    });
    let end = Instant::now() + Duration::from_secs(10);
    let status = loop {
        match child.try_wait().expect("wait") {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            None => {
                child.kill().expect("kill");
                child.wait().expect("wait");
                panic!("it runs on: {command:?}\n{}", saying.join().expect("a reader"));
            }
        }
    };
    (status.code(), saying.join().expect("a reader"))
}
