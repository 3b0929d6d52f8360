//! CPU shields on the real machine: its state before a shield is its state after it, whichever
//! process is killed.

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::CpuSet;
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root};
use talea_os::shield::{self, Shield, ShieldError, UnmovedKind, UnmovedReason};
use talea_os::{Attr, Policy, Tid, proc, sched};

/// Returns the CPU that is shielded.
fn shielded() -> CpuSet {
    CpuSet::single(kernel::cpus().iter().last().expect("a CPU"))
}

/// Affinities of threads, interrupts and work queues, by name, as the text of the kernel's files.
type Scene = BTreeMap<String, String>;

fn numbers(path: &str) -> Vec<i32> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the affinities. Threads that end or start between two calls are in only one of the
/// results.
fn scene() -> Scene {
    let mut scene = Scene::new();
    let mut read = |name: String, path: String| {
        if let Ok(text) = std::fs::read_to_string(path) {
            scene.insert(name, text);
        }
    };
    for irq in numbers("/proc/irq") {
        // Where it goes of those is the kernel's, and one that comes rarely is put back late.
        read(format!("irq {irq}"), format!("/proc/irq/{irq}/smp_affinity"));
    }
    read("new irqs".to_owned(), "/proc/irq/default_smp_affinity".to_owned());
    for file in ["cpumask", "cpumask_requested"] {
        read(file.to_owned(), format!("/sys/devices/virtual/workqueue/{file}"));
    }
    for process in numbers("/proc") {
        for thread in numbers(&format!("/proc/{process}/task")) {
            let tid = Tid::new(thread).expect("a thread");
            let (Ok(stat), Ok(name)) = (proc::stat(tid), proc::comm(tid)) else { continue };
            // A worker of the kernel's belongs to no process, and goes where its pool is sent some
            // time later. A handler of interrupts follows its own.
            if stat.is_bound() || stat.has_ended() || name.starts_with("irq/") {
                continue;
            }
            let status = std::fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
            let Ok(status) = status else { continue };
            let mask =
                status.lines().find(|line| line.starts_with("Cpus_allowed:")).expect("a mask");
            scene.insert(format!("thread {thread} {}", stat.start_ticks), mask.to_owned());
        }
    }
    scene
}

/// Returns the entries of both scenes that differ.
fn changed(before: &Scene, after: &Scene) -> Vec<String> {
    let both = before.iter().filter_map(|(name, text)| Some((name, text, after.get(name)?)));
    both.filter(|(_, was, is)| was != is)
        .map(|(name, was, is)| format!("{name}: {was:?}, {is:?}"))
        .collect()
}

/// Calls `does`, and compares the machine before with the machine after. A difference of the
/// kernel's or of the test's threads fails at once. Another program may pin its threads
/// temporarily. For those threads the function repeats the call, and fails if every call shows a
/// difference.
fn must_leave_no_trace(what: &str, mut does: impl FnMut()) {
    // Ordinary threads that can be moved: one that could run anywhere, and one that was pinned to
    // where it had to go.
    let (anywhere, there) = (Idler::start(), Idler::start());
    sched::set_affinity(there.tid(), &shielded()).expect("root may");
    let own = [anywhere.tid(), there.tid()].map(|tid| format!("thread {tid} "));
    let is_others = |trace: &String| {
        trace.starts_with("thread ") && !own.iter().any(|own| trace.starts_with(own))
    };
    let before = scene();
    assert!(own.iter().all(|own| before.keys().any(|name| name.starts_with(own))), "{before:#?}");
    let mut found = Vec::new();
    for _ in 0..3 {
        does();
        assert!(!shield::has_leftover(), "{what}: no process has restored it");
        found = changed(&before, &scene());
        assert!(found.iter().all(is_others), "{what}: {found:#?}");
        if found.is_empty() {
            return;
        }
    }
    panic!("{what}: {found:#?}");
}

/// A program that sleeps for a long time.
struct Idler(Child);

impl Idler {
    fn start() -> Idler {
        Idler(Command::new("sleep").arg("60").spawn().expect("it is started"))
    }

    fn tid(&self) -> Tid {
        kernel::tid(self.0.id() as i32)
    }

    fn may_use(&self) -> CpuSet {
        sched::get_affinity(self.tid()).expect("it lives")
    }
}

impl Drop for Idler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that starts another one on request.
struct Shell(Child);

impl Shell {
    fn start() -> Shell {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; sleep 60 & echo $!; wait"]);
        Shell(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell"))
    }

    fn tid(&self) -> Tid {
        kernel::tid(self.0.id() as i32)
    }

    fn begins(&mut self) -> Tid {
        drop(self.0.stdin.take());
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().expect("piped"))
            .read_line(&mut line)
            .expect("a number");
        kernel::tid(line.trim().parse().expect("a number"))
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn y17_a_shield_clears_a_cpu_reports_unmoved_threads_and_leaves_no_trace() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("shield_clears");
    let (cpus, all) = (shielded(), kernel::cpus());
    let rest = all.difference(&cpus);
    let (anywhere, there, urgent) = (Idler::start(), Idler::start(), Idler::start());
    sched::set_affinity(there.tid(), &cpus).expect("root may");
    sched::set_affinity(urgent.tid(), &cpus).expect("root may");
    sched::set(urgent.tid(), &Attr::plain(Policy::Fifo(1))).expect("root may");
    must_leave_no_trace("a shield", || {
        let shield = Shield::raise(&cpus).expect("root may");
        let cleared = shield.report().clone();
        println!("{} threads and {} interrupts moved", cleared.threads, cleared.interrupts);
        for left in &cleared.unmoved {
            println!("{left}");
        }
        assert_eq!((anywhere.may_use(), there.may_use()), (rest, rest));
        assert!(cleared.threads > 2, "{cleared:?}");
        // A real-time thread keeps its CPUs, and the report names it.
        assert_eq!(urgent.may_use(), cpus);
        let is_reported = |tid: Tid, why: UnmovedReason| {
            cleared.unmoved.iter().any(|left| {
                left.reason == why
                    && matches!(left.kind, UnmovedKind::Thread { tid: t, .. } if t == tid)
            })
        };
        assert!(is_reported(urgent.tid(), UnmovedReason::RealTime), "{cleared:?}");
        let unexplained: Vec<_> =
            cleared.unmoved.iter().filter(|left| left.reason == UnmovedReason::Arrived).collect();
        assert!(unexplained.len() <= 1, "one may have begun just now: {unexplained:?}");
        // There is one at a time.
        assert!(matches!(Shield::raise(&cpus), Err(ShieldError::Busy { .. })));
        assert!(
            shield::recover().expect("root may").is_none() && !shield::has_leftover(),
            "it is in use"
        );
        drop(shield);
    });
    assert_eq!((anywhere.may_use(), there.may_use()), (all, cpus));
}

#[test]
fn y17_affinities_set_by_others_below_a_shield_stay_and_children_get_those_of_their_parents() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("shield_meanwhile");
    let (cpus, all) = (shielded(), kernel::cpus());
    let (back, ended, pinned) = (Idler::start(), Idler::start(), Idler::start());
    sched::set_affinity(pinned.tid(), &all.difference(&cpus)).expect("root may");
    // Both there before, and begin further ones below the shield: the shield has set the CPUs
    // of one, another program those of the other.
    let (mut moved, mut pinned_shell) = (Shell::start(), Shell::start());
    sched::set_affinity(pinned_shell.tid(), &all.difference(&cpus)).expect("root may");
    // Ticks of ten milliseconds distinguish before and after.
    std::thread::sleep(Duration::from_millis(30));
    let shield = Shield::raise(&cpus).expect("root may");
    drop(ended);
    sched::set_affinity(back.tid(), &cpus).expect("root may");
    let foreign = shield.foreign();
    let is_back =
        |what: &UnmovedKind| matches!(what, UnmovedKind::Thread { tid, .. } if *tid == back.tid());
    assert!(foreign.iter().any(|left| is_back(&left.kind)), "{foreign:?}");
    let (child, its) = (moved.begins(), pinned_shell.begins());
    let may_use = |tid: Tid| sched::get_affinity(tid).expect("it lives");
    assert_eq!((may_use(child), may_use(its)), (all.difference(&cpus), all.difference(&cpus)));
    let restored = shield.lower();
    println!("{restored:?}");
    assert!(
        restored.skipped >= 1 && restored.ended >= 1 && restored.inherited >= 1,
        "{restored:?}"
    );
    assert_eq!(back.may_use(), cpus);
    assert_eq!((may_use(child), may_use(its)), (all, all.difference(&cpus)));
    assert_eq!(pinned.may_use(), all.difference(&cpus));
    for child in [child, its] {
        signal(child.as_raw(), Signal::KILL);
    }
}

#[test]
fn y17_all_cpus_can_not_be_shielded() {
    let online = CpuSet::first(std::fs::read_dir("/sys/devices/system/cpu").map_or(1, |entries| {
        let is_cpu =
            |name: &str| name.strip_prefix("cpu").is_some_and(|rest| rest.parse::<u32>().is_ok());
        entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_cpu)).count()
            as u32
    }));
    needs!("CPUs that are all online", kernel::cpus() == online);
    let refusal = shield::check(&online).expect_err("nothing would be left");
    assert!(refusal.to_string().contains("leave at least one"), "{refusal}");
    assert!(matches!(shield::check(&CpuSet::EMPTY), Err(ShieldError::NoSuchCpus(_))));
    assert!(matches!(shield::check(&CpuSet::single(1000)), Err(ShieldError::NoSuchCpus(_))));
}

const VICTIM: &str = "TALEA_SHIELD_VICTIM";

/// Shield that other tests kill, by executing this program again; without the variable, the test
/// does nothing.
#[test]
fn a_shield_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    eprintln!("begins");
    let shield = Shield::raise(&shielded()).expect("root may");
    eprintln!("raised");
    // Until standard input ends, or a kill.
    let _ = std::io::stdin().read(&mut [0]);
    shield.lower();
    eprintln!("lowered");
}

/// Starts a process with a shield; returns it with its standard error.
fn victim() -> (Child, BufReader<std::process::ChildStderr>) {
    let mut child = Command::new(std::env::current_exe().expect("our own path"))
        .args(["--exact", "shield::a_shield_to_be_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ourselves");
    let said = BufReader::new(child.stderr.take().expect("piped"));
    (child, said)
}

fn hears(said: &mut impl BufRead, word: &str) {
    let mut line = String::new();
    while said.read_line(&mut line).expect("it reads") > 0 {
        if line.trim_end() == word {
            return;
        }
        line.clear();
    }
    panic!("it never said {word}");
}

fn signal(pid: i32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
    rustix::process::kill_process(pid, signal).expect("it lives");
}

fn reaper_of(pid: u32) -> Option<i32> {
    numbers("/proc").into_iter().find(|&child| {
        let tid = kernel::tid(child);
        proc::stat(tid).is_ok_and(|stat| stat.parent == pid as i32)
            && proc::comm(tid).is_ok_and(|name| name == "talea-reaper")
    })
}

#[test]
fn y17_a_process_with_a_shield_that_is_killed_at_any_point_leaves_no_trace() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("shield_kills");
    // In microseconds, from when it begins on; and two while it is being lowered.
    let points =
        [0, 100, 300, 700, 1_500, 3_000, 6_000, 10_000, 20_000, 50_000].map(|after| (false, after));
    for (lowering, after) in points.into_iter().chain([(true, 300), (true, 2_000)]) {
        must_leave_no_trace("a kill", || {
            let (mut child, mut said) = victim();
            hears(&mut said, if lowering { "raised" } else { "begins" });
            if lowering {
                drop(child.stdin.take());
            }
            std::thread::sleep(Duration::from_micros(after));
            let _ = child.kill();
            child.wait().expect("it was killed");
            // One that is killed before it has a reaper has moved nothing, and its empty journal
            // may stay for the next.
            eventually("its reaper has restored everything", || !shield::has_leftover());
        });
    }
}

#[test]
fn y17_a_shield_killed_with_its_reaper_is_undone_by_the_next() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("shield_doubles");
    let begin = || {
        let (child, mut said) = victim();
        hears(&mut said, "raised");
        let reaper = reaper_of(child.id()).expect("a reaper");
        (child, said, reaper)
    };
    must_leave_no_trace("a reaper that is killed", || {
        let (mut child, mut said, reaper) = begin();
        signal(reaper, Signal::KILL);
        drop(child.stdin.take());
        hears(&mut said, "lowered");
        assert!(child.wait().expect("it ends").success());
    });
    for by_next in [true, false] {
        must_leave_no_trace("both killed", || {
            let (mut child, _said, reaper) = begin();
            // At the same instant: a reaper that is killed is followed by another one.
            signal(child.id() as i32, Signal::STOP);
            signal(reaper, Signal::KILL);
            child.kill().expect("it lives");
            child.wait().expect("it was killed");
            assert!(shield::has_leftover(), "no process was left to restore it");
            if by_next {
                drop(Shield::raise(&shielded()).expect("root may"));
            } else {
                let restored = shield::recover().expect("root may").expect("there was one");
                assert!(restored.restored > 0, "{restored:?}");
            }
        });
    }
}
