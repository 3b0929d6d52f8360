//! CPUs that are kept clear, on the real machine: what it is before a shield it is after it,
//! whoever is killed.

use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::CpuSet;
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root};
use talea_os::shield::{self, Refusal, Shield, What, Why};
use talea_os::{Attr, Policy, Tid, proc, sched};

/// The CPU that is shielded.
fn shielded() -> CpuSet {
    CpuSet::single(kernel::cpus().iter().last().expect("a CPU"))
}

/// What says where something runs, by its name: whole files, byte by byte.
type Scene = BTreeMap<String, String>;

fn numbers(path: &str) -> Vec<i32> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Threads that have ended by now, and such as have begun since, are in one of two scenes only.
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
            // A worker of the kernel's is nobody's, and goes where its pool is sent some time
            // later. A handler of interrupts follows its own.
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

/// What both have and is not the same.
fn changed(before: &Scene, after: &Scene) -> Vec<String> {
    let both = before.iter().filter_map(|(name, text)| Some((name, text, after.get(name)?)));
    both.filter(|(_, was, is)| was != is)
        .map(|(name, was, is)| format!("{name}: {was:?}, {is:?}"))
        .collect()
}

/// Does it, and compares the machine before with the machine after: at once what is nobody's but
/// ours or the kernel's. Somebody else may pin a thread of theirs for a moment: for those it is
/// done once more, and what has changed for good is found each time.
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
        assert!(!shield::is_left(), "{what}: nobody has put it back");
        found = changed(&before, &scene());
        assert!(found.iter().all(is_others), "{what}: {found:#?}");
        if found.is_empty() {
            return;
        }
    }
    panic!("{what}: {found:#?}");
}

/// A program that does nothing for long.
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

/// A program that begins another one when it is told.
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
fn y17_a_shield_clears_a_cpu_says_what_stays_and_leaves_no_trace() {
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
        let cleared = shield.cleared().clone();
        println!("{} threads and {} interrupts moved", cleared.threads, cleared.interrupts);
        for left in &cleared.left {
            println!("{left}");
        }
        assert_eq!((anywhere.may_use(), there.may_use()), (rest, rest));
        assert!(cleared.threads > 2, "{cleared:?}");
        // Whom somebody has promised a CPU to stays, and is told.
        assert_eq!(urgent.may_use(), cpus);
        let is_told = |tid: Tid, why: Why| {
            cleared.left.iter().any(|left| {
                left.why == why && matches!(left.what, What::Thread { tid: t, .. } if t == tid)
            })
        };
        assert!(is_told(urgent.tid(), Why::Promised), "{cleared:?}");
        let unexplained: Vec<_> =
            cleared.left.iter().filter(|left| left.why == Why::Came).collect();
        assert!(unexplained.len() <= 1, "one may have begun just now: {unexplained:?}");
        // There is one at a time.
        assert!(matches!(Shield::raise(&cpus), Err(Refusal::Busy { .. })));
        assert!(shield::sweep().expect("root may").is_none() && !shield::is_left(), "it is in use");
        drop(shield);
    });
    assert_eq!((anywhere.may_use(), there.may_use()), (all, cpus));
}

#[test]
fn y17_what_others_change_below_a_shield_is_theirs_and_children_get_what_their_parents_had() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("shield_meanwhile");
    let (cpus, all) = (shielded(), kernel::cpus());
    let (back, ended, pinned) = (Idler::start(), Idler::start(), Idler::start());
    sched::set_affinity(pinned.tid(), &all.difference(&cpus)).expect("root may");
    // Both there before, and begin further ones below the shield: one has its CPUs of the shield,
    // the other one of somebody else.
    let (mut moved, mut told) = (Shell::start(), Shell::start());
    sched::set_affinity(told.tid(), &all.difference(&cpus)).expect("root may");
    // Before and after is told by ticks of ten milliseconds.
    std::thread::sleep(Duration::from_millis(30));
    let shield = Shield::raise(&cpus).expect("root may");
    drop(ended);
    sched::set_affinity(back.tid(), &cpus).expect("root may");
    let strangers = shield.strangers();
    let is_back = |what: &What| matches!(what, What::Thread { tid, .. } if *tid == back.tid());
    assert!(strangers.iter().any(|left| is_back(&left.what)), "{strangers:?}");
    let (child, its) = (moved.begins(), told.begins());
    let may_use = |tid: Tid| sched::get_affinity(tid).expect("it lives");
    assert_eq!((may_use(child), may_use(its)), (all.difference(&cpus), all.difference(&cpus)));
    let restored = shield.lower();
    println!("{restored:?}");
    assert!(restored.left >= 1 && restored.ended >= 1 && restored.inherited >= 1, "{restored:?}");
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
    assert!(refusal.to_string().contains("none left"), "{refusal}");
    assert!(matches!(shield::check(&CpuSet::EMPTY), Err(Refusal::NoSuchCpus(_))));
    assert!(matches!(shield::check(&CpuSet::single(1000)), Err(Refusal::NoSuchCpus(_))));
}

const VICTIM: &str = "TALEA_SHIELD_VICTIM";

/// Not a test of its own: what the tests below kill, when they call this program again.
#[test]
fn a_shield_to_be_killed() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    eprintln!("begins");
    let shield = Shield::raise(&shielded()).expect("root may");
    eprintln!("raised");
    // Until it is told, or killed.
    let _ = std::io::stdin().read(&mut [0]);
    shield.lower();
    eprintln!("lowered");
}

/// A process with a shield; what it says.
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

fn keeper_of(pid: u32) -> Option<i32> {
    numbers("/proc").into_iter().find(|&child| {
        let tid = kernel::tid(child);
        proc::stat(tid).is_ok_and(|stat| stat.parent == pid as i32)
            && proc::comm(tid).is_ok_and(|name| name == "exec-keeper")
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
            // One that is killed before it has a keeper has moved nothing, and its empty books may
            // stay for the next.
            eventually("its keeper has put everything back", || !shield::is_left());
        });
    }
}

#[test]
fn y17_whoever_is_killed_with_the_keeper_of_a_shield_is_put_back_by_the_next() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("shield_doubles");
    let begin = || {
        let (child, mut said) = victim();
        hears(&mut said, "raised");
        let keeper = keeper_of(child.id()).expect("somebody keeps it");
        (child, said, keeper)
    };
    must_leave_no_trace("a keeper that is killed", || {
        let (mut child, mut said, keeper) = begin();
        signal(keeper, Signal::KILL);
        drop(child.stdin.take());
        hears(&mut said, "lowered");
        assert!(child.wait().expect("it ends").success());
    });
    for by_next in [true, false] {
        must_leave_no_trace("both killed", || {
            let (mut child, _said, keeper) = begin();
            // At the same instant: a keeper that is killed is followed by another one.
            signal(child.id() as i32, Signal::STOP);
            signal(keeper, Signal::KILL);
            child.kill().expect("it lives");
            child.wait().expect("it was killed");
            assert!(shield::is_left(), "nobody was there to put it back");
            if by_next {
                drop(Shield::raise(&shielded()).expect("root may"));
            } else {
                let restored = shield::sweep().expect("root may").expect("there was one");
                assert!(restored.restored > 0, "{restored:?}");
            }
        });
    }
}
