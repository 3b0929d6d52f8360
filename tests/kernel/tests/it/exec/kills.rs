//! Runs with programs that are killed, in part or as a whole: nothing of them stays.
//!
//! Who is there is told by what every process of a victim inherits, its environment: no group, name
//! or parent has to be known for that.

use super::programs::{VICTIM, groups_of, hogs, keeper_of, kill, victim};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use talea_core::Span;
use talea_exec::{Options, execute};
use talea_kernel_tests::{Bench, eventually, kernel, needs, needs_root};
use talea_os::{Tid, groups, proc};

/// All that were started for a run with this program, but for `but`, which waits to be looked
/// after.
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

/// Ends a run and looks whether all of it goes by itself.
fn goes(program: &Path, mut run: Child, groups: Option<PathBuf>) {
    run.wait().expect("it was killed");
    eventually("everybody has gone", || there(program, 0).is_empty());
    if let Some(groups) = groups {
        eventually("its groups have gone", || !groups.exists());
    }
}

fn begun(program: &Path) -> (Child, PathBuf, u32) {
    let run = victim(program);
    let (mut groups, mut keeper) = (None, None);
    eventually("somebody keeps its groups", || {
        groups = groups_of(run.id());
        keeper = keeper_of(run.id());
        groups.is_some() && keeper.is_some()
    });
    let groups = groups.expect("it was found");
    eventually("the program has begun", || {
        let members = std::fs::read_to_string(groups.join("0/cgroup.procs")).unwrap_or_default();
        members.lines().count() > 1 || groups.join("0/inner").exists()
    });
    (run, groups, keeper.expect("it was found"))
}

/// A program that makes a group of its own below its own, and goes on in it.
fn nested(bench: &Bench) -> PathBuf {
    let top = groups::hierarchy().expect("it was there");
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
fn l20_a_stop_of_all_that_belongs_to_a_run_spares_its_keeper_and_the_programs_end() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", groups::hierarchy().is_some());
    let bench = Bench::new("exec_l20_unit");
    let program = hogs(&bench);
    let unit = groups::hierarchy()
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
    let mut groups = None;
    eventually("the program has begun", || {
        groups = groups_of(run.id());
        groups.as_ref().is_some_and(|groups| {
            let members =
                std::fs::read_to_string(groups.join("0/cgroup.procs")).unwrap_or_default();
            members.lines().count() > 2
        })
    });
    std::fs::write(unit.join("cgroup.kill"), "1").expect("root may");
    goes(&program, run, groups);
    eventually("nobody is in the group", || std::fs::remove_dir(&unit).is_ok());
}

#[test]
fn l20_a_keeper_that_is_killed_has_a_successor_which_does_its_work() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", groups::hierarchy().is_some());
    let bench = Bench::new("exec_l20_successor");
    for program in [hogs(&bench), nested(&bench)] {
        let (run, groups, mut keeper) = begun(&program);
        for _ in 0..3 {
            kill(keeper);
            let old = keeper;
            eventually("there is another one", || {
                let new = keeper_of(run.id()).filter(|&new| new != old);
                keeper = new.unwrap_or(old);
                new.is_some()
            });
        }
        kill(run.id());
        goes(&program, run, Some(groups));
    }
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Run,
    Keeper,
    Program,
    /// The run and its keeper, at the same instant: neither does anything between the two.
    Both,
    /// Everybody but one of the program's children.
    All,
}

#[test]
fn l20_whoever_is_killed_at_whatever_point_it_heals_at_once_or_when_somebody_comes() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    needs!("cgroup v2", groups::hierarchy().is_some());
    let rounds = if std::env::var_os("TALEA_SOAK").is_some() { 10 } else { 1 };
    // Numbers in an order that hits every phase of a start: linear congruential, as good as any
    // here.
    let mut dice = 4_711_u64;
    let mut roll = |below: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % below
    };
    let mut left = 0;
    for _ in 0..rounds {
        // One for each: they are watched, and this is long.
        let bench = Bench::new("exec_l20_points");
        let program = hogs(&bench);
        let before = groups::orphans();
        for who in [Who::Run, Who::Both, Who::Keeper, Who::All, Who::Program]
            .iter()
            .cycle()
            .take(10)
            .copied()
        {
            let mut run = victim(&program);
            std::thread::sleep(Duration::from_micros(roll(300_000)));
            let keeper = keeper_of(run.id());
            let mut programs = there(&program, run.id());
            programs.retain(|&pid| Some(pid) != keeper);
            let programs = &programs[..programs.len().saturating_sub(1)];
            strike(who, run.id(), keeper, programs);
            run.wait().expect("it ends, or was killed");
            if matches!(who, Who::Both | Who::All) {
                let is_there = |path: &&PathBuf| !before.contains(path);
                left += groups::orphans().iter().filter(is_there).count();
                come(roll(2) == 0);
            }
            eventually("everybody has gone", || there(&program, run.id()).is_empty());
            eventually("nothing is left", || {
                groups::orphans().iter().all(|path| before.contains(path))
            });
        }
    }
    assert!(left > 0, "nobody was ever hit when there was something to be left");
}

fn strike(who: Who, run: u32, keeper: Option<u32>, programs: &[u32]) {
    let signal = |pid: u32, signal| {
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
        // Who has ended by itself can't be killed.
        let _ = rustix::process::kill_process(pid, signal);
    };
    let at_once: Vec<u32> = match who {
        Who::Run => vec![run],
        Who::Keeper => keeper.into_iter().collect(),
        Who::Program => programs.to_vec(),
        Who::Both => [run].into_iter().chain(keeper).collect(),
        Who::All => [run].into_iter().chain(keeper).chain(programs.iter().copied()).collect(),
    };
    for &pid in &at_once {
        signal(pid, rustix::process::Signal::STOP);
    }
    for &pid in &at_once {
        signal(pid, rustix::process::Signal::KILL);
    }
}

/// Whoever comes next: a run of whatever kind, or `talea doctor --repair`.
fn come(runs: bool) {
    if runs {
        execute(Vec::new(), &Options::new(Span::from_ns(1_000_000))).expect("a run of nothing");
    } else {
        groups::sweep().expect("root may");
    }
}
