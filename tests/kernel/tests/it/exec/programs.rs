//! Unmodified programs below servers.

use super::scene::two_cpus;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use talea_core::criteria::Overrides;
use talea_core::engine::TaskId;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_exec::{
    Arrival, Failure, Load, Options, ProgramExit, ProgramReport, Report, RootPlan, ScheduleEvent,
    ScheduleLog, TaskPlan, execute, work,
};
use talea_kernel_tests::{Bench, Runs, eventually, kernel, needs, needs_root};
use talea_os::wakeup_events::events_are_timely;
use talea_os::{Tid, cgroup, proc};

const MS: u64 = 1_000_000;

/// Compiles the program that consumes all CPU time.
pub(crate) fn hogs(bench: &Bench) -> PathBuf {
    build(bench, "hogs")
}

/// Compiles a program of `plugins` in C and returns its path.
pub(crate) fn build(bench: &Bench, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("plugins/{name}.c"));
    let program = bench.path(name);
    let output = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-std=gnu11", "-O1", "-pthread", "-o"])
        .args([&program, &source])
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A program below a server.
pub(super) struct Boxed {
    pub(super) kind: ServerKind,
    pub(super) budget: u64,
    pub(super) period: u64,
    pub(super) length: u64,
    pub(super) program: Vec<String>,
    pub(super) listen: bool,
}

impl Boxed {
    pub(super) fn run(&self) -> Report {
        self.try_run().expect("a run")
    }

    /// Runs the program above a task that works for six tenths of the time. Checks that the control
    /// groups of the run are removed afterwards, whatever its result.
    pub(super) fn try_run(&self) -> Result<Report, Failure> {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.overrides = Overrides { priority: Some(9), ..Overrides::default() };
        server.reservation = Some(Reservation::new(
            self.kind,
            Work::from_ns(self.budget),
            Span::from_ns(self.period),
        ));
        let server = tree.scheduler(Tree::ROOT, server);
        let _ = tree.task(server, TaskSpec::new("program", Span::from_ns(2 * self.length)));
        let _ = tree.task(Tree::ROOT, TaskSpec::new("background", Span::from_ns(20 * MS)));
        let at = |ns| Arrival { observed: Time::from_ns(ns), nominal: Time::from_ns(ns) };
        let background = (0..self.length / (20 * MS)).map(|k| at(k * 20 * MS + MS)).collect();
        let task = |load| TaskPlan { load, body: work::spender() };
        let tasks = vec![
            task(Load::for_program(self.program.clone())),
            task(Load::new(background, vec![Work::from_ns(12 * MS)])),
        ];
        let mut options = Options::new(Span::from_ns(self.length));
        options.wakeup_events = self.listen;
        let plan = RootPlan {
            tree: &tree,
            tasks,
            changes: Vec::new(),
            flows: Vec::new(),
            cpus: vec![two_cpus()[1]],
        };
        let over = AtomicBool::new(false);
        let (report, cgroup) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                loop {
                    let found = groups_of(std::process::id());
                    if found.is_some() || over.load(Ordering::Acquire) {
                        return found;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let report = execute(vec![plan], &options);
            over.store(true, Ordering::Release);
            (report, watch.join().expect("it only looks"))
        });
        let cgroup = cgroup.expect("its groups were there");
        assert!(!cgroup.exists(), "{}", cgroup.display());
        report
    }

    /// Repeats the run while stalls of the machine disturb it; returns the report and the stalled
    /// time in nanoseconds, at most a two-hundredth of the run.
    fn run_undisturbed(&self) -> (Report, u64) {
        let begin = Instant::now();
        let run = || {
            let report = self.run();
            let stalls = report.stalls.iter().map(|stall| stall.length().as_ns()).sum();
            let is_late = begin.elapsed().as_secs() >= 12;
            let is_conclusive = stalls < 2 * MS || (is_late && stalls * 200 <= self.length);
            is_conclusive.then_some((report, stalls))
        };
        Runs::at_least(1).repeat(run).expect("one conclusive run")
    }
}

/// Checks that no control group of this process is left; other users of the machine may have some.
/// [`Boxed::run`] checks those of a run that has ended.
fn is_clean() {
    let me = std::process::id();
    let is_ours = |path: &PathBuf| {
        owner(path).is_some_and(|tid| Path::new(&format!("/proc/{me}/task/{tid}")).exists())
    };
    assert_eq!(
        groups_there().into_iter().filter(is_ours).collect::<Vec<_>>(),
        Vec::<PathBuf>::new()
    );
}

/// Returns the thread after which a directory of groups is named.
fn owner(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("talea-exec-")?.split('-').next()?.parse().ok()
}

/// Returns the threads of a process.
pub(super) fn threads_of(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the leftover groups that are named after one of these threads; other users of the
/// machine may have some, too.
pub(super) fn orphans_of(threads: &[u32]) -> Vec<PathBuf> {
    let is_its = |path: &PathBuf| owner(path).is_some_and(|tid| threads.contains(&tid));
    cgroup::leftover().into_iter().filter(is_its).collect()
}

/// Returns the directory of groups of a process, if there is one.
pub(crate) fn groups_of(pid: u32) -> Option<PathBuf> {
    let is_its = |path: &PathBuf| {
        owner(path).is_some_and(|tid| Path::new(&format!("/proc/{pid}/task/{tid}")).exists())
    };
    groups_there().into_iter().find(is_its)
}

#[test]
fn l20_a_program_with_threads_children_and_a_stray_is_held_to_its_budget() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20");
    let program = vec![hogs(&bench).display().to_string()];
    let (budget, period, length) = (MS, 50 * MS, 3_000 * MS);
    let boxed =
        Boxed { kind: ServerKind::Deferrable, budget, period, length, program, listen: true };
    let (report, stalls) = boxed.run_undisturbed();
    let consumed = report.roots[0].consumed[0];
    let got = consumed.total.as_ns();
    println!(
        "{got} ns of {length} are {} ‰, {} without an order; stalls {stalls}",
        got * 1_000 / length,
        consumed.stray()
    );
    assert!(got <= length * 22 / 1_000 + stalls, "{got} ns, stalls {stalls}");
    assert!(got + budget + stalls >= length * 18 / 1_000, "{got} ns, stalls {stalls}");
    is_clean();
}

/// Returns the longest time, in nanoseconds, for which the program was ordered to run without a
/// pause, and the number of its completions.
fn turns(report: &Report) -> (u64, usize) {
    let course = ScheduleLog::from_record(1, &report.roots[0].record);
    let (mut longest, mut since, mut ended) = (0, None::<Time>, 0);
    for &(now, turn) in course.timed_events() {
        if matches!(turn, ScheduleEvent::Completed { task: TaskId(0), .. }) {
            ended += 1;
            continue;
        }
        if let Some(since) = since.take() {
            longest = longest.max(now.since(since).as_ns());
        }
        since = matches!(turn, ScheduleEvent::Dispatched { task: TaskId(0), .. }).then_some(now);
    }
    (longest, ended)
}

#[test]
fn l5_each_kind_of_server_gives_a_greedy_program_its_share_and_no_burst_beyond_two_budgets() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l5_program");
    let program = vec![hogs(&bench).display().to_string()];
    let (budget, period, length) = (2 * MS, 20 * MS, 3_000 * MS);
    for kind in
        [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs]
    {
        let boxed = Boxed { kind, budget, period, length, program: program.clone(), listen: true };
        let (report, stalls) = boxed.run_undisturbed();
        let got = report.roots[0].consumed[0].total.as_ns();
        let share = length / period * budget;
        let (longest, _) = turns(&report);
        println!("{kind:?}: {got} of {share} ns, bursts up to {longest}, stalls {stalls}");
        assert!(got <= share * 102 / 100 + stalls, "{kind:?}: {got} of {share}, stalls {stalls}");
        assert!(got + stalls >= share * 98 / 100, "{kind:?}: {got} of {share}, stalls {stalls}");
        assert!(
            longest <= 2 * budget + 300_000 + stalls,
            "{kind:?}: a burst of {longest}, stalls {stalls}"
        );
    }
    is_clean();
}

#[test]
fn l20_a_program_that_sleeps_and_works_has_a_job_each_time_that_it_wakes() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_sleeper");
    let program = vec![hogs(&bench).display().to_string(), "9".to_owned()];
    let (budget, period, length) = (3 * MS, 20 * MS, 1_000 * MS);
    for listen in [true, false] {
        let boxed = Boxed {
            kind: ServerKind::Deferrable,
            budget,
            period,
            length,
            program: program.clone(),
            listen,
        };
        let (report, stalls) = boxed.run_undisturbed();
        let consumed = report.roots[0].consumed[0];
        let (_, ended) = turns(&report);
        let ended_by = report.roots[0].programs[0].clone().expect("a program");
        println!("listen {listen}: {ended} jobs, {consumed:?}, {ended_by:?}, stalls {stalls}");
        let polled = !listen || !events_are_timely();
        let isolation = ended_by.isolation;
        assert_eq!(
            ended_by,
            ProgramReport { exit: ProgramExit::Killed, policy_changed: None, polled, isolation }
        );
        // Nine milliseconds of sleep and one of work, each time a little more; before each of the
        // first ones it may be loaded. While the machine stands still it does neither.
        let jobs = ended as u64;
        assert!(jobs * 10 * MS + stalls >= 800 * MS, "{jobs} jobs, stalls {stalls}");
        assert!(jobs <= 110 + stalls / MS, "{jobs} jobs, stalls {stalls}");
        assert!(consumed.total.as_ns() + stalls >= 80 * MS, "{consumed:?}, stalls {stalls}");
        // CPU time that the program consumes before its arrival is noticed.
        let each = if listen && events_are_timely() { 200_000 } else { 1_100_000 };
        assert!(
            consumed.stray().as_ns() <= jobs.max(110) * each + stalls,
            "{consumed:?}, stalls {stalls}"
        );
    }
    is_clean();
}

pub(super) const VICTIM: &str = "TALEA_TEST_VICTIM";

/// Run that other tests kill, by executing this program again; without the variable, the test does
/// nothing.
#[test]
fn a_run_to_be_killed() {
    let Ok(program) = std::env::var(VICTIM) else { return };
    let (budget, period, length) = (5 * MS, 20 * MS, 1_500 * MS);
    let boxed = Boxed {
        kind: ServerKind::Deferrable,
        budget,
        period,
        length,
        program: vec![program],
        listen: true,
    };
    let report = boxed.run();
    println!("exit {:?}", report.roots[0].programs[0]);
}

/// Starts a run with the program in a process of its own.
pub(super) fn victim(program: &Path) -> Child {
    Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "exec::programs::a_run_to_be_killed", "--nocapture"])
        .env(VICTIM, program)
        .stdout(Stdio::piped())
        .spawn()
        .expect("ourselves")
}

pub(super) fn groups_there() -> Vec<PathBuf> {
    let top = cgroup::mount_point().expect("it was there");
    let entries = std::fs::read_dir(top).expect("a folder").flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().contains("/talea-exec-"))
        .collect()
}

pub(super) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it lives");
}

/// Returns the reaper of a run: its child process of that name.
pub(crate) fn reaper_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_dir("/proc").ok()?.flatten();
    children.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(|&child: &u32| {
        let Some(child) = Tid::new(child as i32) else { return false };
        proc::stat(child).is_ok_and(|stat| stat.parent == pid as i32)
            && proc::comm(child).is_ok_and(|name| name == "talea-reaper")
    })
}

#[test]
fn l20_a_run_that_is_killed_at_any_point_leaves_no_program_and_no_group() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_kills");
    let program = hogs(&bench);
    let (begun, mut with_groups) = (Instant::now(), 0);
    // From before there is a group to the middle of the run, in steps that no other step is a
    // multiple of.
    for delay in (0..12_u64).map(|kill| kill * 17 % 331) {
        let mut run = victim(&program);
        std::thread::sleep(Duration::from_millis(delay));
        with_groups += usize::from(groups_of(run.id()).is_some());
        let threads = threads_of(run.id());
        kill(run.id());
        run.wait().expect("it was killed");
        eventually("the groups are gone with all who were in them", || {
            orphans_of(&threads).is_empty()
        });
        if begun.elapsed().as_secs() > 40 {
            break;
        }
    }
    assert!(with_groups >= 5, "only {with_groups} were killed when there was something to be kept");
}

#[test]
fn l20_kills_of_the_run_its_reaper_and_its_program_leave_nothing_behind() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_doubles");
    let program = hogs(&bench);
    let begin = || {
        let run = victim(&program);
        eventually("there are groups", || groups_of(run.id()).is_some());
        let mut reaper = None;
        eventually("a reaper watches them", || {
            reaper = reaper_of(run.id());
            reaper.is_some()
        });
        (run, reaper.expect("it was found"))
    };
    // The reaper alone: the run ends as if nothing had happened.
    let (run, reaper) = begin();
    let threads = threads_of(run.id());
    kill(reaper);
    let output = run.wait_with_output().expect("it ends");
    assert!(output.status.success() && orphans_of(&threads).is_empty(), "{output:?}");
    // The program alone: nothing of it is left to be run, but for its children.
    let (run, _) = begin();
    let threads = threads_of(run.id());
    let mut first = None;
    eventually("the program has begun", || {
        let text = groups_of(run.id())
            .and_then(|path| std::fs::read_to_string(path.join("0/cgroup.procs")).ok());
        // It was there before it began; its children were not.
        let text = text.filter(|text| text.lines().count() > 2);
        first = text.and_then(|text| text.lines().next()?.parse().ok());
        first.is_some()
    });
    let first = first.expect("it was found");
    // One and a half seconds, and five.
    let limits = std::fs::read_to_string(format!("/proc/{first}/limits")).expect("it lives");
    let limit =
        limits.lines().find(|line| line.starts_with("Max realtime timeout")).expect("a limit");
    assert_eq!(
        limit.split_whitespace().skip(3).take(2).collect::<Vec<_>>(),
        ["6500000", "6500000"]
    );
    kill(first);
    let output = run.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Exited(ExitStatus(unix_wait_status(9)))"), "{said}");
    assert!(output.status.success() && orphans_of(&threads).is_empty(), "{output:?}");
    // Both: the next run of a program removes the leftovers.
    let (mut run, reaper) = begin();
    let threads = threads_of(run.id());
    kill(reaper);
    kill(run.id());
    eventually("their owner has ended", || !orphans_of(&threads).is_empty());
    let ours = orphans_of(&threads);
    let found = cgroup::remove_leftover().expect("root may");
    run.wait().expect("it was killed");
    assert!(
        ours.iter().all(|path| found.contains(path)) && orphans_of(&threads).is_empty(),
        "{found:?}"
    );
}

/// Returns the time, in nanoseconds, for which the program was ordered to run in each period of its
/// server.
fn by_period(report: &Report, period: u64, length: u64) -> Vec<u64> {
    let course = ScheduleLog::from_record(1, &report.roots[0].record);
    let mut had = vec![0; (length / period) as usize];
    let mut since = None::<u64>;
    for &(now, turn) in course.timed_events() {
        let now = now.as_ns();
        if let (Some(from), false) = (since, matches!(turn, ScheduleEvent::Completed { .. })) {
            for (at, had) in had.iter_mut().enumerate() {
                let (begin, end) = (at as u64 * period, (at as u64 + 1) * period);
                *had += now.min(end).saturating_sub(from.max(begin));
            }
            since = None;
        }
        if matches!(turn, ScheduleEvent::Dispatched { task: TaskId(0), .. }) {
            since = Some(now);
        }
    }
    had
}

#[test]
fn l24_a_program_that_is_stopped_for_a_while_gets_no_more_than_its_budget_after_it() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l24_program");
    let program = vec![hogs(&bench).display().to_string()];
    let (budget, period, length) = (2 * MS, 20 * MS, 1_000 * MS);
    let boxed =
        Boxed { kind: ServerKind::Deferrable, budget, period, length, program, listen: true };
    let begun = Instant::now();
    let (had, stalls) = loop {
        let report = std::thread::scope(|scope| {
            let run = scope.spawn(|| boxed.run());
            let signal = |signal| {
                let members = groups_of(std::process::id()).map(|path| path.join("0/cgroup.procs"));
                let members =
                    members.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
                for pid in members.lines().filter_map(|line| line.parse().ok()) {
                    // One that has just ended is not stopped.
                    let _ = rustix::process::Pid::from_raw(pid)
                        .map(|pid| rustix::process::kill_process(pid, signal));
                }
            };
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(233));
                signal(rustix::process::Signal::STOP);
                std::thread::sleep(Duration::from_millis(50));
                signal(rustix::process::Signal::CONT);
            }
            run.join().expect("a run")
        });
        let stalls: u64 = report.stalls.iter().map(|stall| stall.length().as_ns()).sum();
        if stalls < 2 * MS || begun.elapsed().as_secs() >= 12 {
            break (by_period(&report, period, length), stalls);
        }
    };
    let most = had.iter().copied().max().unwrap_or(0);
    let without = had.iter().filter(|&&had| had < budget / 10).count();
    println!(
        "at most {most} ns in a period, next to none in {without} of {}, stalls {stalls}",
        had.len()
    );
    // A server without that accounting would give as much again.
    assert!(most <= budget * 3 / 2 + stalls, "{most}, stalls {stalls}: {had:?}");
    // Each stop covers a whole period; the first ones may come before the run has begun.
    assert!((2..=8).contains(&without), "{had:?}");
    is_clean();
}
