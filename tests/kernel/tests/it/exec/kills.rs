//! Runs with programs that are killed, in part or as a whole: none of their processes and groups
//! stays.
//!
//! The tests find the processes of a victim by the environment that each of them inherits, so they
//! need to know no group, name or parent.

use super::programs::{VICTIM, groups_of, hogs, kill, reaper_of, victim};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::Span;
use talea_core::rng::Rng;
use talea_exec::{Options, execute};
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root};
use talea_os::{Tid, cgroup, proc};

/// Returns all processes that were started for a run with this program, except `but`, for which the
/// caller still has to wait.
fn there(program: &Path, but: u32) -> Vec<u32> {
    let wanted = format!("{VICTIM}={}", program.display()).into_bytes();
    let is_one = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|one| one == wanted)
            && Tid::new(*pid as i32)
                .is_some_and(|tid| proc::stat(tid).is_ok_and(|stat| !stat.has_ended()))
    };
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|&pid| pid != but).filter(is_one).collect()
}

/// Waits for a killed run, and checks that all of its processes and groups disappear by themselves.
fn goes(program: &Path, mut run: Child, cgroup: Option<PathBuf>) {
    run.wait().expect("it was killed");
    eventually("all processes have ended", || there(program, 0).is_empty());
    if let Some(cgroup) = cgroup {
        eventually("its groups have gone", || !cgroup.exists());
    }
}

fn begun(program: &Path) -> (Child, PathBuf, u32) {
    let run = victim(program);
    let (mut cgroup, mut reaper) = (None, None);
    eventually("a reaper watches its groups", || {
        cgroup = groups_of(run.id());
        reaper = reaper_of(run.id());
        cgroup.is_some() && reaper.is_some()
    });
    let cgroup = cgroup.expect("it was found");
    eventually("the program has begun", || {
        let members = std::fs::read_to_string(cgroup.join("0/cgroup.procs")).unwrap_or_default();
        members.lines().count() > 1 || cgroup.join("0/inner").exists()
    });
    (run, cgroup, reaper.expect("it was found"))
}

/// Returns a program that creates a control group below its own, and continues in it.
fn nested(bench: &Bench) -> PathBuf {
    let top = cgroup::mount_point().expect("it was there");
    let text = format!(
        "#!/bin/sh\nhere={}$(sed -n s/^0:://p /proc/self/cgroup)\nmkdir \"$here/inner\"\n\
         sh -c 'echo $$ > '\"$here/inner/cgroup.procs\"'; while :; do :; done' &\nwait\n",
        top.display()
    );
    let path = bench.write("nested", &text);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .expect("a file of ours");
    path
}

#[test]
fn l20_a_stop_of_all_that_belongs_to_a_run_spares_its_reaper_and_the_programs_end() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_unit");
    let program = hogs(&bench);
    let unit = cgroup::mount_point()
        .expect("it was there")
        .join(format!("talea-test-{}", std::process::id()));
    std::fs::create_dir(&unit).expect("a group of ours");
    // As a service manager does: in the group before it begins.
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", unit.display());
    let run = Command::new("sh")
        .args(["-c", &enter])
        .arg(std::env::current_exe().expect("our own path"))
        .args(["--exact", "exec::programs::a_run_to_be_killed", "--nocapture"])
        .env(VICTIM, &program)
        .stdout(Stdio::null())
        .spawn()
        .expect("ourselves");
    let mut cgroup = None;
    eventually("the program has begun", || {
        cgroup = groups_of(run.id());
        cgroup.as_ref().is_some_and(|cgroup| {
            let members =
                std::fs::read_to_string(cgroup.join("0/cgroup.procs")).unwrap_or_default();
            members.lines().count() > 2
        })
    });
    std::fs::write(unit.join("cgroup.kill"), "1").expect("root may");
    goes(&program, run, cgroup);
    eventually("no process is in the group", || std::fs::remove_dir(&unit).is_ok());
}

#[test]
fn l20_a_reaper_that_is_killed_has_a_successor_which_does_its_work() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let bench = Bench::new("exec_l20_successor");
    for program in [hogs(&bench), nested(&bench)] {
        let (run, cgroup, mut reaper) = begun(&program);
        for _ in 0..3 {
            kill(reaper);
            let old = reaper;
            eventually("there is another one", || {
                let new = reaper_of(run.id()).filter(|&new| new != old);
                reaper = new.unwrap_or(old);
                new.is_some()
            });
        }
        kill(run.id());
        goes(&program, run, Some(cgroup));
    }
}

/// Processes to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Run,
    Reaper,
    Program,
    /// The run and its reaper at the same instant, so that neither acts in between.
    Both,
    /// All processes but one of the program's children.
    All,
}

#[test]
fn l20_a_kill_of_any_process_at_any_point_is_repaired_at_once_or_by_the_next_run() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", cgroup::mount_point().is_some());
    let rounds = if std::env::var_os("TALEA_SOAK").is_some() { 10 } else { 1 };
    let mut rng = Rng::new(4_711);
    let mut left = 0;
    for _ in 0..rounds {
        // One for each: they are watched, and this is long.
        let bench = Bench::new("exec_l20_points");
        let program = hogs(&bench);
        let before = cgroup::leftover();
        for target in [Target::Run, Target::Both, Target::Reaper, Target::All, Target::Program]
            .iter()
            .cycle()
            .take(10)
            .copied()
        {
            let mut run = victim(&program);
            std::thread::sleep(Duration::from_micros(rng.below(300_000)));
            let reaper = reaper_of(run.id());
            let mut programs = there(&program, run.id());
            programs.retain(|&pid| Some(pid) != reaper);
            let programs = &programs[..programs.len().saturating_sub(1)];
            strike(target, run.id(), reaper, programs);
            run.wait().expect("it ends, or was killed");
            if matches!(target, Target::Both | Target::All) {
                let is_there = |path: &&PathBuf| !before.contains(path);
                left += cgroup::leftover().iter().filter(is_there).count();
                repair(rng.below(2) == 0);
            }
            eventually("all processes have ended", || there(&program, run.id()).is_empty());
            eventually("nothing is left", || {
                cgroup::leftover().iter().all(|path| before.contains(path))
            });
        }
    }
    assert!(left > 0, "no kill came when there was something to be left");
}

fn strike(target: Target, run: u32, reaper: Option<u32>, programs: &[u32]) {
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
        // A process that has ended by itself can't be killed.
        let _ = rustix::process::kill_process(pid, signal);
    };
    let at_once: Vec<u32> = match target {
        Target::Run => vec![run],
        Target::Reaper => reaper.into_iter().collect(),
        Target::Program => programs.to_vec(),
        Target::Both => [run].into_iter().chain(reaper).collect(),
        Target::All => [run].into_iter().chain(reaper).chain(programs.iter().copied()).collect(),
    };
    for &pid in &at_once {
        signal(pid, rustix::process::Signal::STOP);
    }
    for &pid in &at_once {
        signal(pid, rustix::process::Signal::KILL);
    }
}

/// Repairs leftovers like the next user of the groups: an empty run, or `talea doctor --repair`.
fn repair(runs: bool) {
    if runs {
        execute(Vec::new(), &Options::new(Span::from_ns(1_000_000))).expect("a run of nothing");
    } else {
        cgroup::remove_leftover().expect("root may");
    }
}
