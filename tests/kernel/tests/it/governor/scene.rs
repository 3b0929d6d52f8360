//! Groups, programs, governors, and measurements by the kernel's switch records.

use crate::exec::programs::{groups_of, hogs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use talea_core::Monotonic;
use talea_core::{Span, Work};
use talea_exec::{Load, Options, RootPlan, StoppedTime, TaskPlan, execute, work};
use talea_kernel_tests::{Bench, discharge, enlist, eventually, kernel, program};
use talea_os::cgroup::{self, Cgroup};
use talea_os::launch::Program;
use talea_os::switch_trace::{RunInterval, SwitchTrace};
use talea_os::users::Account;
use talea_os::wakeup_events::WakeupWatch;
use talea_os::{Policy, Tid, clock, sched};

use talea_os::users::User as OsUser;

/// Two partitions with a program each, and a pause, so that ordinary threads get their share
/// without the fair server. A server beside them has its budget in the pause.
pub(crate) const SYSTEM: &str = r#"
[[scheduler]]
name = "cpu"
policy = "fp"
[[scheduler]]
name = "box"
in = "cpu"
server = "deferrable"
priority = 200
budget = "1ms"
period = "20ms"
offset = "17ms"
[[scheduler]]
name = "table"
in = "cpu"
priority = 100
policy = "partitions"
frame = "20ms"
[[scheduler.slot]]
owner = "one"
length = "8ms"
[[scheduler.slot]]
owner = "two"
length = "8ms"
[[scheduler.slot]]
owner = "rest"
length = "4ms"
[[scheduler]]
name = "one"
in = "table"
policy = "fp"
[[scheduler]]
name = "two"
in = "table"
policy = "fp"
[[scheduler]]
name = "rest"
in = "table"
policy = "fp"
[[task]]
name = "boxed"
in = "box"
program = ["/bin/true"]
[[task]]
name = "first"
in = "one"
priority = 100
program = ["/bin/true"]
[[task]]
name = "second"
in = "two"
priority = 100
program = ["/bin/true"]
[[task]]
name = "none"
in = "rest"
priority = 100
program = ["/bin/true"]
"#;
const TASKS: [&str; 4] = ["boxed", "first", "second", "none"];
pub(crate) const FRAME: u64 = 20_000_000;
/// Start and end of the slot of each task in a frame.
pub(crate) const SLOTS: [(u64, u64); 4] =
    [(0, FRAME), (0, 8_000_000), (8_000_000, 16_000_000), (16_000_000, 20_000_000)];
/// Number of switches that a trace has room for.
pub(crate) const MAX_SWITCHES: usize = 1 << 17;

pub(crate) fn is_possible() -> bool {
    if kernel::cpus().len() < 2 {
        return false;
    }
    let Some(top) = cgroup::mount_point() else { return false };
    // Tests ask at the same time.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = top.join(format!("talea-test-probe-{}-{number}", std::process::id()));
    let opened = std::fs::create_dir(&path)
        .and_then(|()| Cgroup::open(path.clone()))
        .and_then(|group| WakeupWatch::open_group(&group, cpu()));
    let _ = std::fs::remove_dir(&path);
    opened.is_ok()
}

/// CPU of the root.
pub(crate) fn cpu() -> u32 {
    kernel::cpus().iter().nth(1).expect("two CPUs")
}

/// User of the program of a task.
struct User(u32);

impl User {
    fn of(task: usize) -> User {
        User(61_200 + task as u32)
    }

    fn account(&self) -> Account {
        let user = OsUser { name: format!("u{}", self.0), uid: self.0, gid: self.0 };
        Account { user, groups: vec![self.0], home: "/".into(), shell: "/bin/sh".into() }
    }
}

/// Groups of the tasks. Dropping them kills their members and removes them.
pub(super) struct Groups {
    top: PathBuf,
    groups: Vec<Arc<Cgroup>>,
}

impl Groups {
    fn create() -> Groups {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("talea-test-governor-{}-{number}", std::process::id());
        let top = cgroup::mount_point().expect("it was there").join(name);
        std::fs::create_dir(&top).expect("root may");
        let open = |name: &&str| {
            let path = top.join(name);
            std::fs::create_dir(&path).expect("root may");
            Arc::new(Cgroup::open(path).expect("a group of ours"))
        };
        let groups = TASKS.iter().map(open).collect();
        Groups { top, groups }
    }

    pub(super) fn pids(&self, task: usize) -> Vec<Tid> {
        let mut pids = self.groups[task].processes().expect("a group of ours");
        pids.sort_unstable_by_key(|pid| pid.as_raw());
        pids
    }

    pub(super) fn is_frozen(&self, task: usize) -> bool {
        self.groups[task].is_frozen().expect("a group of ours")
    }

    pub(super) fn is_freezing(&self, task: usize) -> bool {
        self.groups[task].is_freezing().expect("a group of ours")
    }

    /// Waits until each program has used CPU time.
    pub(super) fn run(&self) {
        self.run_of(&[0, 1, 2]);
    }

    /// Waits until the programs of these tasks have used CPU time.
    pub(super) fn run_of(&self, tasks: &[usize]) {
        let used = |task: usize| self.groups[task].used().expect("a group of ours");
        let before: Vec<Work> = (0..3).map(used).collect();
        eventually("the programs run", || tasks.iter().all(|&task| used(task) > before[task]));
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = std::fs::write(self.top.join("cgroup.kill"), "1");
        eventually("the groups are empty", || {
            self.groups.iter().for_each(|group| {
                let _ = std::fs::remove_dir(group.path());
            });
            std::fs::remove_dir(&self.top).is_ok()
        });
    }
}

/// Returns the policies of the threads of a group.
pub(super) fn levels(groups: &Groups, task: usize) -> Vec<Policy> {
    let threads = groups.groups[task].threads().expect("a group of ours");
    threads.into_iter().filter_map(|tid| sched::get(tid).ok()).map(|attr| attr.policy).collect()
}

/// Returns the user of the first process of each program.
pub(super) fn owners(groups: &Groups) -> [u32; 3] {
    [0, 1, 2].map(|task| {
        let pid = groups.pids(task)[0];
        std::fs::metadata(format!("/proc/{pid}")).expect("it runs").uid()
    })
}

/// Groups with programs, and the governors that follow each other.
pub(super) struct Scene<'b> {
    bench: &'b Bench,
    program: PathBuf,
    /// Dropped before the threads below, which wait for the programs.
    pub(super) groups: Groups,
    starters: Vec<Option<JoinHandle<()>>>,
}

impl<'b> Scene<'b> {
    pub(super) fn new(bench: &'b Bench) -> Scene<'b> {
        let starters = TASKS.iter().map(|_| None).collect();
        Scene { bench, program: hogs(bench), groups: Groups::create(), starters }
    }

    /// Starts a program in each group but the last one.
    pub(super) fn start_all(&mut self) {
        for task in 0..3 {
            self.start(task, &[]);
        }
    }

    pub(super) fn start(&mut self, task: usize, words: &[&str]) {
        let group = Arc::clone(&self.groups.groups[task]);
        let mut arguments = vec![self.program.clone().into_os_string()];
        arguments.extend(words.iter().map(std::ffi::OsString::from));
        let program = Program::find(&arguments).expect("just built");
        let program = program.run_as(Some(User::of(task).account()));
        group.freeze().expect("root may");
        let starter = std::thread::spawn({
            let group = Arc::clone(&group);
            // The program dies with this thread, and its start returns at its first order.
            move || {
                let child = program.start(&group, cpu(), 91, None);
                drop(child.expect("a start").wait());
            }
        });
        eventually("the program is in its group", || group.is_populated().expect("ours"));
        self.starters[task] = Some(starter);
    }

    /// Kills the program of a task, and starts it again when it has ended.
    pub(super) fn restart(&mut self, task: usize) {
        let group = &self.groups.groups[task];
        std::fs::write(group.path().join("cgroup.kill"), "1").expect("root may");
        eventually("the group is empty", || !group.is_populated().expect("ours"));
        self.starters[task].take().expect("started").join().expect("its program has ended");
        self.start(task, &[]);
    }

    /// Returns the options that name the groups.
    pub(super) fn arguments(&self) -> Vec<String> {
        let groups = TASKS.iter().zip(&self.groups.groups);
        let option =
            |(name, group): (&&str, &Arc<Cgroup>)| format!("{name}={}", group.path().display());
        groups.flat_map(|of| ["--group".to_owned(), option(of)]).collect()
    }

    fn command(&self, text: &str) -> Command {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = self.bench.write(&format!("system{number}.toml"), text);
        let mut command = Command::new(program("talea-governor"));
        command.arg("--system").arg(file).args(["--root", "cpu", "--cpus"]).arg(cpu().to_string());
        command
    }

    /// Starts a governor, and waits until it governs the groups.
    pub(super) fn govern(&self) -> Governor {
        let (socket, stats) = (self.bench.path("notify"), self.bench.path("stats.json"));
        let _ = std::fs::remove_file(&socket);
        let notified = UnixDatagram::bind(&socket).expect("a socket");
        notified.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
        let mut command = self.command(SYSTEM);
        command.args(self.arguments()).arg("--stats").arg(&stats).env("NOTIFY_SOCKET", &socket);
        let child = command.spawn().expect("the governor");
        enlist(child.id() as i32);
        let mut text = [0; 64];
        let length = notified.recv(&mut text).expect("it governs");
        assert!(text[..length].starts_with(b"READY=1"), "{text:?}");
        Governor { child, stats }
    }

    /// Runs a governor that refuses to govern.
    pub(super) fn refused(&self, text: &str, groups: &[&str]) -> Output {
        let mut command = self.command(text);
        command.args(groups).stdin(Stdio::null()).output().expect("the governor")
    }

    /// Releases the groups by the program.
    pub(super) fn release(&self) -> Output {
        let groups = self.groups.groups.iter().map(|group| group.path());
        let mut command = Command::new(program("talea-governor"));
        command.arg("--release").args(groups).output().expect("the program")
    }

    pub(super) fn measure(&self, governor: &Governor, length: Duration) -> Measured {
        let zero = number(&governor.stats(), "zero_ns");
        measure(&self.groups.groups[..3], length, || Monotonic::from_ns(zero))
    }
}

/// Governor. Dropping it kills it.
pub(super) struct Governor {
    child: Child,
    stats: PathBuf,
}

impl Governor {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("our child");
    }

    pub(super) fn kill(mut self) {
        self.child.kill().expect("our child");
        self.child.wait().expect("our child");
    }

    pub(super) fn terminate(mut self) -> ExitStatus {
        self.signal(rustix::process::Signal::TERM);
        self.child.wait().expect("our child")
    }

    /// Requests the statistics and returns their text.
    pub(super) fn stats(&self) -> String {
        let _ = std::fs::remove_file(&self.stats);
        self.signal(rustix::process::Signal::USR1);
        eventually("the statistics are written", || self.stats.exists());
        std::fs::read_to_string(&self.stats).expect("just written")
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        discharge(self.child.id() as i32);
    }
}

/// Returns the first number of a key in a JSON text.
pub(crate) fn number(text: &str, key: &str) -> u64 {
    let (_, rest) = text.split_once(&format!("\"{key}\": ")).expect("the key");
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().expect("a number")
}

/// Execution of the programs, by the kernel's switch records and clocks.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Part of its time that each program ran outside of its slots.
    pub(crate) outside_permille: Vec<u64>,
    /// CPU time of each program as a part of the trace.
    pub(super) share_permille: Vec<u64>,
    /// Times from the start of a slot to the first switch to its program.
    pub(super) starts: Vec<u64>,
    pub(crate) slots: u64,
    /// Number of slots in which a program of another slot ran for longer than the tolerance.
    pub(crate) late_slots: u64,
}

fn permille(part: u64, of: u64) -> u64 {
    part * 1_000 / of.max(1)
}

pub(super) fn median(values: &[u64]) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(u64::MAX)
}

/// Traces the CPU of the root for `length`. `zero` returns the start of the first frame.
pub(crate) fn measure(
    groups: &[Arc<Cgroup>],
    length: Duration,
    zero: impl FnOnce() -> Monotonic,
) -> Measured {
    let trace = SwitchTrace::start(&[cpu()], MAX_SWITCHES).expect("root may");
    let begin = clock::now();
    let used = || groups.iter().map(|group| group.used().expect("there")).collect::<Vec<_>>();
    let before = used();
    std::thread::sleep(length);
    let after = used();
    let lasted = clock::now().since(begin).as_ns();
    let threads: Vec<Vec<Tid>> =
        groups.iter().map(|group| group.threads().expect("there")).collect();
    let record = trace.finish().expect("root may");
    assert_eq!(record.lost, 0, "the trace has room");
    let zero = zero();
    let shares = before.iter().zip(&after).map(|(before, after)| {
        permille(after.checked_sub(*before).expect("a clock").as_ns(), lasted)
    });
    let share_permille = shares.collect();
    let of = |interval: &RunInterval| {
        threads.iter().position(|threads| interval.thread.is_some_and(|tid| threads.contains(&tid)))
    };
    let (mut ran, mut outside) = (vec![0; groups.len()], vec![0; groups.len()]);
    let (mut starts, mut late) = (Vec::new(), Vec::new());
    let (mut last_started, mut first_frame, mut last_frame) = (None, u64::MAX, 0);
    for interval in record.intervals.iter().filter(|interval| interval.from > begin.max(zero)) {
        let Some(task) = of(interval) else { continue };
        let (from, to) = (interval.from.since(zero).as_ns(), interval.to.since(zero).as_ns());
        let frame = from / FRAME;
        (first_frame, last_frame) = (first_frame.min(frame), last_frame.max(frame));
        let (start, end) = SLOTS[task];
        let (start, end) = (frame * FRAME + start, frame * FRAME + end);
        let inside = to.min(end).saturating_sub(from.max(start));
        let beyond = to - from - inside;
        ran[task] += to - from;
        outside[task] += beyond;
        if beyond > StoppedTime::TOLERANCE.as_ns() {
            late.push((frame, task));
        }
        if task > 0 && inside > 0 && last_started != Some((frame, task)) {
            last_started = Some((frame, task));
            starts.push(from.saturating_sub(start));
        }
    }
    late.dedup();
    let outside_permille =
        outside.iter().zip(&ran).map(|(&outside, &ran)| permille(outside, ran)).collect();
    let slots = (last_frame + 1).saturating_sub(first_frame) * 2;
    let late_slots = late.len() as u64;
    Measured { outside_permille, share_permille, starts, slots, late_slots }
}

/// Executes the system with the same programs for `length` and some seconds more. Returns what
/// `look` sees in their groups; its second argument returns the start of the first frame.
pub(crate) fn execute_beside<T>(
    bench: &Bench,
    length: Duration,
    look: impl FnOnce(&[Arc<Cgroup>], Box<dyn FnOnce() -> Monotonic + '_>) -> T,
) -> T {
    let text = format!("duration = \"10s\"\n{SYSTEM}");
    let system = talea_system::read(&text, "the test's own", &()).expect("a sound system");
    let root = &system.roots[0];
    let words = vec![hogs(bench).display().to_string()];
    let load = |task: usize| {
        let load = match task {
            3 => Load::default(),
            task => {
                let account = Some(User::of(task).account());
                Load { account, ..Load::for_program(words.clone()) }
            }
        };
        TaskPlan { load, body: work::spender() }
    };
    let plan = RootPlan {
        tree: &root.tree,
        tasks: (0..4).map(load).collect(),
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![cpu()],
    };
    let mut options = Options::new(Span::from_ns(length.as_nanos() as u64 + 3_000_000_000));
    (options.monitor, options.audit, options.record_capacity) = (false, false, 0);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| execute(vec![plan], &options));
        let mut top = None;
        eventually("its groups are there", || {
            top = groups_of(std::process::id());
            let open = |path: &PathBuf| (0..3).all(|task| has_run(&path.join(task.to_string())));
            top.as_ref().is_some_and(open)
        });
        let top = top.expect("found");
        let open = |task: usize| Cgroup::open(top.join(task.to_string())).expect("there");
        let groups: Vec<_> = (0..3).map(open).map(Arc::new).collect();
        look(&groups, Box::new(|| run.join().expect("no panic").expect("a run").zero))
    })
}

/// Whether the program in a group has executed for a millisecond.
fn has_run(group: &Path) -> bool {
    Cgroup::open(group.to_owned())
        .and_then(|group| group.used())
        .is_ok_and(|used| used > Work::from_ns(1_000_000))
}
