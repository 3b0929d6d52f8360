//! Reports of practitioners: answers that ignored the thread, the machine or ended grants.
//! `talea run`, `talea explain` and `talea execute` with a real kernel.

use crate::harness::{Ended, finish, json};
use crate::live::Talea;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use talea_core::{CpuSet, Span, Work};
use talea_kernel_tests::{Bench, Daemon, config, kernel, needs, needs_root};
use talea_os::Tid;
use talea_os::sched::{self, Attr, Policy};

/// Runs a command in a thread with this affinity, which its children inherit.
fn with_affinity(cpus: CpuSet, command: &mut Command) -> Ended {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            sched::set_affinity(Tid::current(), &cpus).expect("an affinity");
            finish(command)
        });
        run.join().expect("the thread ends")
    })
}

/// A thread of this process in the deadline class, without a grant.
struct DeadlineThread {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl DeadlineThread {
    fn start(runtime_ms: u64, period_ms: u64) -> DeadlineThread {
        let ms = |ms: u64| ms * 1_000_000;
        let period = Span::from_ns(ms(period_ms));
        let runtime = Work::from_ns(ms(runtime_ms));
        let ((stop, stopped), (ready, started)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            let policy = Policy::Deadline { runtime, deadline: period, period };
            ready.send(sched::set(Tid::current(), &Attr::grant(policy))).expect("a test");
            let _ = stopped.recv();
        });
        started.recv().expect("a thread").expect("the kernel admits the thread");
        DeadlineThread { stop, thread: Some(thread) }
    }
}

impl Drop for DeadlineThread {
    fn drop(&mut self) {
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A child of the cpuset (version 1) of this process.
struct Cpuset(PathBuf);

impl Cpuset {
    fn new(root: &Path, cpus: &str) -> Cpuset {
        let set = Cpuset(root.join(format!("talea-answers-{}", std::process::id())));
        std::fs::create_dir(&set.0).expect("a cpuset");
        std::fs::write(set.0.join("cpuset.cpus"), cpus).expect("its CPUs");
        std::fs::write(set.0.join("cpuset.mems"), "0").expect("its memory");
        set
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // The kernel removes an exited task from the set a moment after its parent is informed.
        for _ in 0..1_000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

fn has_two_cpus() -> bool {
    kernel::cpus().len() >= 2
}

/// Runs a test with a broker in the process of `talea`, then with a daemon.
fn with_each_broker(name: &str, test: impl Fn(&Talea)) {
    let bench = Bench::new(name);
    test(&Talea::alone(&bench, config::PLUGINS));
    drop(bench);
    let bench = Bench::new(name);
    let daemon = Daemon::start(&bench, &config::open());
    test(&Talea::of(&bench, &daemon));
}

/// Arguments for 80 % of the domain's capacity of a task without another one.
const MOST: [&str; 6] = ["--period", "10ms", "--runtime", "8ms", "--plugin", "edf"];

#[test]
fn r36_a_grant_that_has_ended_is_not_charged_to_the_next_request() {
    needs_root!();
    with_each_broker("ended", |talea| {
        for end in ["exit 0", "kill -9 $$", "exec sleep 0.05"] {
            for _ in 0..4 {
                let mut arguments = vec!["run"];
                arguments.extend(MOST);
                arguments.extend(["--", "sh", "-c", end]);
                let ended = talea.run(&arguments);
                let expected = if end.starts_with("kill") { 137 } else { 0 };
                assert_eq!(ended.code, Some(expected), "{end}: {}", ended.err);
            }
            let mut arguments = vec!["explain"];
            arguments.extend(MOST);
            let ended = talea.run(&arguments);
            assert_eq!(ended.code, Some(0), "{end}: {}", ended.out);
        }
    });
}

#[test]
fn a_zero_lag_hold_beyond_a_second_is_named_with_its_end() {
    needs_root!();
    let bench = Bench::new("held");
    let daemon = Daemon::start(&bench, &config::open());
    let talea = Talea::of(&bench, &daemon);
    let long = ["--period", "4s", "--runtime", "3200ms", "--plugin", "edf"];
    let run = || talea.run(&[&["run"][..], &long, &["--", "true"]].concat());
    assert_eq!(run().code, Some(0));
    let refused = run();
    assert_eq!(refused.code, Some(125), "{}", refused.err);
    assert!(refused.err.contains("repeat the request in "), "{}", refused.err);
    let explained = talea.run(&[&["explain", "--json"][..], &long].concat());
    let witness = &json(&explained.out)["answers"][0]["witness"];
    assert_eq!(witness["kind"], "held", "{}", explained.out);
    assert!(witness["free_in_ns"].as_u64().is_some_and(|ns| ns <= 4_000_000_000));
}

#[test]
fn a_program_is_served_on_the_cpus_of_its_cpuset() {
    needs_root!();
    needs!("two CPUs", has_two_cpus());
    let root = Path::new("/sys/fs/cgroup/cpuset");
    needs!("cpusets of version 1", root.join("cpuset.cpus").exists());
    with_each_broker("cpuset", |talea| {
        for asked in [&["-P", "f:10"][..], &["--period", "10ms", "--runtime", "1ms"]] {
            let set = Cpuset::new(root, "1");
            let inner = talea.command(
                &[&["run"][..], asked, &["--", "grep", "Cpus_allowed_list", "/proc/self/status"]]
                    .concat(),
            );
            let mut outer = Command::new("sh");
            outer
                .args(["-c", "echo $$ >$0/tasks; exec \"$@\""])
                .arg(&set.0)
                .arg(inner.get_program())
                .args(inner.get_args());
            let ended = finish(&mut outer);
            assert_eq!(ended.code, Some(0), "{asked:?}: {}", ended.err);
            assert!(ended.out.trim().ends_with("\t1"), "{}", ended.out);
        }
    });
}

#[test]
fn the_affinity_of_the_user_is_kept_or_the_refusal_names_it() {
    needs_root!();
    needs!("two CPUs", has_two_cpus());
    let bench = Bench::new("mask");
    let only_0 = config::PLUGINS.replace("\"all\"", "\"0\"");
    let all = Talea::alone(&bench, config::PLUGINS);
    let asked = ["run", "-P", "f:10", "--", "grep", "Cpus_allowed_list", "/proc/self/status"];
    let kept = with_affinity(CpuSet::single(1), &mut all.command(&asked));
    assert_eq!(kept.code, Some(0), "{}", kept.err);
    assert!(kept.out.trim().ends_with("\t1"), "{}", kept.out);
    let only = Talea::alone(&bench, &only_0);
    let refused = with_affinity(CpuSet::single(1), &mut only.command(&asked));
    assert_eq!(refused.code, Some(125));
    assert!(refused.err.contains("the thread may use only CPUs 1 "), "{}", refused.err);
    let explained = ["explain", "-P", "f:10"];
    let explained = with_affinity(CpuSet::single(1), &mut only.command(&explained));
    assert_eq!(explained.code, Some(3), "{}", explained.out);
    assert!(explained.out.contains("the thread may use only CPUs 1 "), "{}", explained.out);
}

#[test]
fn deadline_threads_of_others_count_for_explain_and_run() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() == 2);
    with_each_broker("others", |talea| {
        let others = [DeadlineThread::start(80, 100), DeadlineThread::start(80, 100)];
        let most = ["--period", "100ms", "--runtime", "40ms"];
        let explained = talea.run(&[&["explain"][..], &most].concat());
        assert_eq!(explained.code, Some(3), "{}", explained.out);
        assert!(explained.out.contains("beside deadline threads without a grant"));
        let run = talea.run(&[&["run"][..], &most, &["--", "true"]].concat());
        assert_eq!(run.code, Some(125), "{}", run.err);
        assert!(run.err.contains("beside deadline threads without a grant"), "{}", run.err);
        // The kernel counts them for at most a period after their end; the request waits.
        drop(others);
        let run = talea.run(&[&["run"][..], &most, &["--plugin", "edf", "--", "true"]].concat());
        assert_eq!(run.code, Some(0), "{}", run.err);
    });
}

#[test]
fn a_time_limit_that_would_kill_the_program_is_refused_in_the_words_of_doctor() {
    needs_root!();
    let bench = Bench::new("rttime");
    let talea = Talea::alone(&bench, config::PLUGINS);
    let limited = |limit: &str, arguments: &[&str]| {
        let inner = talea.command(arguments);
        let mut outer = Command::new("prlimit");
        outer.arg(format!("--rttime={limit}")).arg(inner.get_program()).args(inner.get_args());
        outer.current_dir(bench.path(""));
        finish(&mut outer)
    };
    let doctor = json(&limited("0:0", &["doctor", "--json"]).out);
    let checks = doctor["checks"].as_array().expect("a list").clone();
    let check = checks.iter().find(|check| check["id"] == "rlimit-rttime").expect("a check");
    let meaning = check["meaning"].as_str().expect("a sentence");
    for command in ["run", "explain"] {
        let arguments =
            [&[command, "-P", "f:10"][..], if command == "run" { &["--", "true"] } else { &[] }];
        let ended = limited("0:0", &arguments.concat());
        assert_eq!(ended.code, Some(if command == "run" { 125 } else { 3 }), "{}", ended.err);
        assert!(format!("{}{}", ended.out, ended.err).contains(meaning), "{}", ended.err);
    }
    // The limit that suffices is far above what `true` needs, also on a slow machine.
    let declared = ["run", "--period", "1s", "--runtime", "200ms", "--plugin", "rm", "--", "true"];
    let ended = limited("199000:199000", &declared);
    assert_eq!(ended.code, Some(125));
    assert!(ended.err.contains("is 199ms, less than its runtime of 200ms"), "{}", ended.err);
    let enough = limited("200000:200000", &declared);
    assert_eq!(enough.code, Some(0), "{}", enough.err);
}

#[test]
fn an_executed_system_and_a_proved_grant_do_not_share_a_cpu() {
    needs_root!();
    with_each_broker("executor", |talea| {
        let busy = "duration = \"2s\"\n[[scheduler]]\nname = \"cpu0\"\npolicy = \"fp\"\n\
                    [[task]]\nname = \"busy\"\nin = \"cpu0\"\nperiod = \"100ms\"\ncost = \"50ms\"\n";
        let file = talea.write("busy.toml", busy);
        let file = file.to_str().expect("UTF-8");
        let on_cpu_0 =
            ["--period", "20ms", "--runtime", "2ms", "--plugin", "rm", "--cpus", "0", "--"];
        let victim = |command: &[&'static str]| [&["run"][..], &on_cpu_0, command].concat();
        // A grant before the run.
        let mut held = talea.command(&victim(&["sleep", "1.5"])).spawn().expect("a child");
        // A broker in the process of `talea` may hold the state file at this moment.
        talea_kernel_tests::eventually("the grant exists", || {
            let listed = talea.run(&["list", "--json"]);
            listed.code == Some(0) && json(&listed.out)["specs"][0]["tid"].is_number()
        });
        let executed = talea.run(&["execute", file, "--cpus", "0"]);
        assert_eq!(executed.code, Some(3), "{}", executed.err);
        assert!(executed.err.contains("it would break a grant"), "{}", executed.err);
        assert!(executed.err.contains("(rm, CPU 0) of user 0"), "{}", executed.err);
        let beside = ["execute", file, "--cpus", "0", "--beside-grants", "--for", "200ms"];
        let executed = talea.run(&beside);
        assert_ne!(executed.code, Some(3), "{}", executed.err);
        assert!(held.wait().expect("wait").success());
        // A grant during the run.
        let mut run = talea.command(&["execute", file, "--cpus", "0"]).spawn().expect("a child");
        let asked = [&["explain"][..], &on_cpu_0[..8]].concat();
        talea_kernel_tests::eventually("the run has its CPU", || {
            talea.run(&asked).out.contains("has reserved CPU 0")
        });
        let refused = talea.run(&victim(&["true"])).err;
        assert!(refused.contains(&format!("process {}", run.id())), "{refused}");
        assert!(run.wait().expect("wait").success());
        let after = talea.run(&victim(&["true"]));
        assert_eq!(after.code, Some(0), "{}", after.err);
    });
}
