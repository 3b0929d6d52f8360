//! Windows of time partitions by the kernel's switches: of the executor, of a deployment, and of a
//! process that sleeps and freezes, one after the other in each round of one run.

use super::governed::{group_of, pids, request, statistics};
use crate::exec::programs::{build, hogs};
use crate::governor::scene::{
    FRAME, MAX_SWITCHES, SLOTS, SYSTEM, cpu, execute_beside, is_possible, number,
};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use talea_core::{Monotonic, Span, quantile};
use talea_deploy::text::message::Ask;
use talea_exec::StoppedTime;
use talea_exec::stalls::{Monitor, PROBE_PERIOD, ProbeConfig, Stall};
use talea_kernel_tests::deployd::Deployd;
use talea_kernel_tests::{Bench, Runs, discharge, enlist, eventually, kernel, needs, needs_root};
use talea_os::cgroup::{self, Cgroup};
use talea_os::switch_trace::{RunInterval, SwitchTrace};
use talea_os::{Tid, clock};

/// Priority of the monitor: above the governor and the dispatcher.
const MONITOR_PRIORITY: u8 = 99;
/// Tasks whose slots are measured.
const TASKS: [&str; 2] = ["first", "second"];

/// Windows of the two programs in a trace, without those that a stall may have changed.
#[derive(Debug, Default)]
struct Windows {
    name: &'static str,
    /// Times from the start of a window to the first switch to its program.
    starts: Vec<u64>,
    /// Times from the end of the other program to the first switch to this one.
    switches: Vec<u64>,
    /// Times for which the program of a window ran in the rest of the frame.
    beyond: Vec<u64>,
    /// Number of windows that stalls exclude.
    excluded: usize,
}

impl Windows {
    fn extend(&mut self, other: Windows) {
        self.starts.extend(other.starts);
        self.switches.extend(other.switches);
        self.beyond.extend(other.beyond);
        self.excluded += other.excluded;
    }

    /// Number of windows outside of which their program ran for longer than the tolerance.
    fn late(&self) -> usize {
        self.beyond.iter().filter(|&&ns| ns > StoppedTime::TOLERANCE.as_ns()).count()
    }

    fn is_conclusive(&self) -> bool {
        self.excluded * 2 <= self.starts.len()
    }
}

impl std::fmt::Display for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let us = |of: &[u64]| [50, 99, 100].map(|percent| at(of, percent) / 1_000);
        let Windows { name, starts, switches, beyond, excluded } = self;
        writeln!(
            f,
            "{name}: {} windows, {excluded} excluded; median, p99 and maximum in µs: starts {:?}, \
             switches {:?}, beyond {:?}; {} late",
            starts.len(),
            us(starts),
            us(switches),
            us(beyond),
            self.late()
        )
    }
}

/// Returns the value that `percent` % of the values do not exceed.
fn at(values: &[u64], percent: usize) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    quantile(&values, percent).unwrap_or(u64::MAX)
}

/// Traces the CPU for `length`, with an ordinary program on each CPU. `groups` are those of
/// [`TASKS`]; `zero` returns the start of the first frame.
fn windows(groups: &[Arc<Cgroup>], length: Duration, zero: impl FnOnce() -> Monotonic) -> Windows {
    // A switch writes to a control group, and waits for a lock of the kernel that a thread of any
    // CPU may hold.
    let start = |cpu: u32| Monitor::start(cpu, MONITOR_PRIORITY, ProbeConfig::FOR_RUNS);
    let monitors: Vec<Monitor> = kernel::cpus().iter().map(start).collect();
    let _ordinary = Ordinary::start();
    let trace = SwitchTrace::start(&[cpu()], MAX_SWITCHES).expect("root may");
    let begin = clock::now();
    std::thread::sleep(length);
    let end = clock::now();
    let threads: Vec<Vec<Tid>> =
        groups.iter().map(|group| group.threads().expect("there")).collect();
    let record = trace.finish().expect("root may");
    let stalls = monitors.into_iter().map(|monitor| monitor.stop().expect("root may"));
    let stalls: Vec<Stall<Monotonic>> = stalls.flatten().collect();
    assert_eq!(record.lost, 0, "the trace has room");
    let zero = zero();
    let of = |task: usize| -> Vec<&RunInterval> {
        let is_own =
            |ran: &&RunInterval| ran.thread.is_some_and(|tid| threads[task].contains(&tid));
        record.intervals.iter().filter(is_own).collect()
    };
    let ran = [of(0), of(1)];
    let frame = Span::from_ns(FRAME);
    let whole = |from: Monotonic| from.since(zero).as_ns().div_ceil(FRAME);
    // The first frame may have begun before the trace.
    let first = if begin > zero { whole(begin) + 1 } else { 1 };
    let mut found = Windows::default();
    for number in first.. {
        let start = zero + Span::from_ns(number * frame.as_ns());
        if start + frame > end {
            return found;
        }
        for task in [0, 1] {
            let (from, to) = SLOTS[task + 1];
            let (from, to) = (start + Span::from_ns(from), start + Span::from_ns(to));
            found.add(&ran[task], &ran[1 - task], [(start, start + frame), (from, to)], &stalls);
        }
    }
    found
}

impl Windows {
    /// Adds the window of a program that ran as in `own`, beside another one, with its frame.
    fn add(
        &mut self,
        own: &[&RunInterval],
        other: &[&RunInterval],
        [(begin, end), (from, to)]: [(Monotonic, Monotonic); 2],
        stalls: &[Stall<Monotonic>],
    ) {
        let is_hit = |stall: &Stall<Monotonic>| {
            stall.from.saturating_sub(PROBE_PERIOD) <= end && begin <= stall.to + PROBE_PERIOD
        };
        if stalls.iter().any(is_hit) {
            self.excluded += 1;
            return;
        }
        let within = |ran: &&&RunInterval| ran.from < to && from < ran.to;
        let first = own.iter().find(within).map(|ran| ran.from.max(from));
        let first = first.unwrap_or(to);
        self.starts.push(first.since(from).as_ns());
        let in_part = |from: Monotonic, to: Monotonic| -> u64 {
            let parts = own.iter().map(|ran| (ran.from.max(from), ran.to.min(to)));
            parts.filter(|(from, to)| from < to).map(|(from, to)| to.since(from).as_ns()).sum()
        };
        self.beyond.push(in_part(begin, from) + in_part(to, end));
        // Before the first program of a frame there is a pause.
        let last = other.iter().filter(|ran| ran.from < first).map(|ran| ran.to).max();
        if let Some(last) = last.filter(|&last| last + PROBE_PERIOD > from) {
            self.switches.push(first.since(last.min(first)).as_ns());
        }
    }
}

/// Programs that always want a CPU, as ordinary threads: one for each CPU.
struct Ordinary(Vec<Child>);

impl Ordinary {
    fn start() -> Ordinary {
        let start = |cpu: u32| {
            let mut command = Command::new("taskset");
            command.args(["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"]);
            let child = command.stdin(Stdio::null()).spawn().expect("util-linux");
            enlist(child.id() as i32);
            child
        };
        Ordinary(kernel::cpus().iter().map(start).collect())
    }
}

impl Drop for Ordinary {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
            discharge(child.id() as i32);
        }
    }
}

/// The process that sleeps and freezes, with its groups. Dropping it ends all of them.
struct Sleeper {
    child: Child,
    groups: Vec<PathBuf>,
    zero: Monotonic,
}

impl Sleeper {
    fn start(stand_in: &Path, program: &Path) -> Sleeper {
        let top = cgroup::mount_point().expect("it was there");
        let path = |task: &str| top.join(format!("talea-test-{task}-{}", std::process::id()));
        let groups = TASKS.map(path).to_vec();
        let mut command = Command::new(stand_in);
        command.arg(cpu().to_string()).arg(program).arg((FRAME / 1_000).to_string());
        for (group, (from, to)) in groups.iter().zip(&SLOTS[1..]) {
            std::fs::create_dir(group).expect("root may");
            command.arg(group).args([from, &(to - from)].map(|ns| (ns / 1_000).to_string()));
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("just built");
        enlist(child.id() as i32);
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let zero = Monotonic::from_ns(number(&line, "zero_ns"));
        Sleeper { child, groups, zero }
    }

    fn groups(&self) -> Vec<Arc<Cgroup>> {
        let open = |path: &PathBuf| Arc::new(Cgroup::open(path.clone()).expect("there"));
        self.groups.iter().map(open).collect()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        discharge(self.child.id() as i32);
        for group in &self.groups {
            let _ = std::fs::write(group.join("cgroup.kill"), "1");
            eventually("the group is empty", || std::fs::remove_dir(group).is_ok());
        }
    }
}

/// Waits until each program has executed.
fn have_run(groups: &[Arc<Cgroup>]) {
    let used = || groups.iter().map(|group| group.used().expect("there"));
    let before: Vec<_> = used().collect();
    eventually("the programs execute", || used().zip(&before).all(|(now, then)| now > *then));
}

/// Measures the executor, the deployment and the process that sleeps, in turn.
fn measure(
    bench: &Bench,
    deployd: &Deployd,
    (program, stand_in): (&Path, &Path),
    (rounds, length): (u32, Duration),
) -> [Windows; 3] {
    let [mut executor, mut deployed, mut sleeping] =
        ["executor", "deployed", "sleeping"].map(|name| Windows { name, ..Windows::default() });
    for _ in 0..rounds {
        executor.extend(execute_beside(bench, length, |groups, zero| {
            windows(&groups[1..], length, zero)
        }));
        deployd.change(&request(SYSTEM, program, None));
        pids(deployd);
        let groups = TASKS.map(|task| group_of(deployd, task));
        let zero = Monotonic::from_ns(number(&statistics(deployd), "zero_ns"));
        deployed.extend(windows(&groups, length, || zero));
        deployd.change(&Ask::Remove);
        eventually("nothing is deployed", || deployd.instances().is_empty());
        let sleeper = Sleeper::start(stand_in, program);
        let groups = sleeper.groups();
        have_run(&groups);
        sleeping.extend(windows(&groups, length, || sleeper.zero));
    }
    [executor, deployed, sleeping]
}

#[test]
fn d34_deployed_windows_begin_like_those_of_a_run_and_earlier_than_by_sleeping() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-windows");
    // Frames of 20 ms: 1,500 of them in a long run.
    let (rounds, length) = match std::env::var_os("TALEA_SOAK") {
        Some(_) => (10, Duration::from_millis(3_100)),
        None => (6, Duration::from_millis(600)),
    };
    let (program, stand_in) = (hogs(&bench), build(&bench, "partitions"));
    let deployd = Deployd::start(&bench);
    let all = Runs::at_least(1).repeat(|| {
        let all = measure(&bench, &deployd, (&program, &stand_in), (rounds, length));
        all.iter().all(Windows::is_conclusive).then_some(all)
    });
    let all = all.expect("one conclusive run");
    println!("{}", all.each_ref().map(Windows::to_string).concat());
    let [executor, deployed, sleeping] = &all;
    // Each freeze waits for a lock of the kernel that any change of a control group may hold.
    assert!(deployed.late() * 200 <= deployed.starts.len(), "{deployed}");
    let [start, slow] = [deployed, sleeping].map(|of| at(&of.starts, 99));
    assert!(slow >= start * 4, "{sleeping}{deployed}");
    // The same code schedules both, so that a difference is one of the surroundings.
    let medians = |of: &Windows| [at(&of.starts, 50), at(&of.switches, 50)];
    let pairs = medians(deployed).into_iter().zip(medians(executor));
    assert!(pairs.into_iter().all(|(ours, theirs)| ours <= theirs * 3), "{executor}{deployed}");
}
