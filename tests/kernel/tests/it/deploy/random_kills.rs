//! Kills of any process of a deployment at random instants.

use super::governed::{BUSY, GOVERNOR, group_of, measured, pids, request};
use super::reservation::is_granted;
use super::{kill, ms};
use crate::exec::programs::{hogs, reaper_of};
use crate::governor::is_kept;
use crate::governor::scene::{SYSTEM, is_possible};
use crate::tasks::ranked;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use talea_core::rng::Rng;
use talea_core::{CpuSet, Monotonic};
use talea_deploy::text::message::{Ask, ConditionText};
use talea_deploy::{Role, RootSpec};
use talea_exec::stalls::{Monitor, PROBE_PERIOD, ProbeConfig};
use talea_kernel_tests::deployd::{Deployd, apply_roots, task, test_program};
use talea_kernel_tests::{Bench, Daemon, config, eventually, needs, needs_root};
use talea_os::cgroup::program_group;
use talea_os::{Tid, proc};

/// Period of the task on the other root, which is also its deadline.
const PERIOD_MS: u64 = 10;
const CONTROL: &str = "control";

/// Process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Talead,
    Deployd,
    Governor,
    Reaper,
    Program,
}

const VICTIMS: [Victim; 5] =
    [Victim::Talead, Victim::Deployd, Victim::Governor, Victim::Reaper, Victim::Program];

/// Returns the request that puts [`SYSTEM`] in force, and a periodic task that Linux schedules on
/// CPU 0.
fn with_control(bench: &Bench) -> Ask {
    let Ask::Apply { generation, .. } = request(SYSTEM, &hogs(bench), None) else {
        panic!("an apply")
    };
    let words = test_program(&["periodic", &PERIOD_MS.to_string(), "1"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut control = task(CONTROL, 93, &words);
    (control.root, control.command.role) = (1, Role::Linux);
    let mut tasks = generation.generation.tasks().to_vec();
    tasks.push(control);
    let mut roots = generation.generation.roots().to_vec();
    roots.push(RootSpec { name: "linux".to_owned(), cpus: CpuSet::single(0) });
    apply_roots(roots, &tasks, None)
}

fn governor_of(deployd: &Deployd) -> i32 {
    deployd.running(GOVERNOR)
}

fn reaper(deployd: &Deployd) -> Option<i32> {
    let pid = deployd.task(GOVERNOR).pid?;
    reaper_of(pid).map(|pid| pid as i32)
}

/// Waits until a task has another process, which runs.
fn wait_for_another(deployd: &Deployd, name: &str, killed: i32) {
    eventually(&format!("{name} runs again"), || {
        let task = deployd.task(name);
        task.condition == ConditionText::Running && task.pid.is_some_and(|pid| pid as i32 != killed)
    });
}

/// Returns the programs and governors of the test that no task has.
fn orphans(bench: &Bench, deployd: &Deployd) -> Vec<String> {
    let own: BTreeSet<PathBuf> =
        deployd.instances().iter().map(|of| PathBuf::from(&of.group)).collect();
    let folder = bench.path("").display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Tid::new);
        let Some(pid) = pid else { continue };
        let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let Ok(name) = proc::comm(pid) else { continue };
        if !words.contains(&folder) || ["talead", "talea-deployd", "talea-reaper"].contains(&&*name)
        {
            continue;
        }
        let group = program_group::of_process(pid).unwrap_or_default();
        if !own.contains(&group) {
            found.push(format!("{name} {pid} in {}", group.display()));
        }
    }
    found
}

/// Returns the number of reapers of governors.
fn reapers() -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_reaper = |pid: &Tid| {
        let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.contains("talea-governor")
            && proc::comm(*pid).is_ok_and(|name| name == "talea-reaper")
    };
    pids.filter_map(Tid::new).filter(is_reaper).count()
}

#[test]
fn d24_d35_kills_of_any_process_change_nothing_but_the_killed() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let kills = if std::env::var_os("TALEA_SOAK").is_some() { 300 } else { 30 };
    let bench = Bench::new("deploy-random-kills");
    let mut talead = Daemon::start(&bench, &config::open());
    let mut deployd = Deployd::start_beside(&bench, talead.socket());
    deployd.change(&with_control(&bench));
    let mut expected = pids(&deployd);
    let control = deployd.running(CONTROL);
    let monitor = Monitor::start(0, 99, ProbeConfig::FOR_RUNS);
    let begun = Instant::now();
    let mut rng = Rng::new(26);
    let mut took: Vec<(Victim, Duration)> = Vec::new();
    for round in 0..kills {
        let victim = VICTIMS[rng.below(VICTIMS.len() as u64) as usize];
        std::thread::sleep(Duration::from_micros(rng.below(150_000)));
        let begin = Instant::now();
        match victim {
            Victim::Talead => {
                talead.kill();
                talead.restart();
                eventually("its CPUs are reserved", || !is_granted(&talead, ranked(5)));
            }
            Victim::Deployd => {
                deployd.kill();
                deployd.restart();
            }
            Victim::Governor => {
                let governor = governor_of(&deployd);
                kill(governor);
                wait_for_another(&deployd, GOVERNOR, governor);
            }
            Victim::Reaper => {
                let mut killed = None;
                eventually("the governor has a reaper", || {
                    killed = reaper(&deployd);
                    killed.is_some()
                });
                kill(killed.expect("just found"));
                eventually("it has another one", || {
                    let now = reaper(&deployd);
                    now.is_some() && now != killed
                });
            }
            Victim::Program => {
                let at = rng.below(3) as usize;
                kill(expected[at]);
                wait_for_another(&deployd, BUSY[at].0, expected[at]);
                expected[at] = deployd.running(BUSY[at].0);
            }
        }
        took.push((victim, begin.elapsed()));
        assert_eq!(pids(&deployd), expected, "round {round}: {victim:?}");
        assert_eq!(deployd.running(CONTROL), control, "round {round}: {victim:?}");
        eventually("no process is left behind", || orphans(&bench, &deployd).is_empty());
    }
    let lasted = begun.elapsed();
    let stalls = monitor.stop().expect("root may");
    for victim in VICTIMS {
        let mut of: Vec<Duration> =
            took.iter().filter(|(of, _)| *of == victim).map(|&(_, took)| took).collect();
        of.sort_unstable();
        let median = of.get(of.len() / 2);
        println!("{victim:?}: {} kills, restored in {median:?}, at most {:?}", of.len(), of.last());
    }
    // The task of the other root: whatever is killed, it meets its deadlines.
    let log = deployd.log();
    let words = |begin: &str| {
        let lines = log.lines().filter_map(|line| line.strip_prefix(begin)).map(|rest| {
            rest.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>()
        });
        lines.collect::<Vec<_>>()
    };
    let is_stalled = |late: &[u64]| {
        stalls.iter().any(|stall| {
            let from = stall.from.saturating_sub(PROBE_PERIOD);
            let effect = stall.to + stall.length() + ms(PERIOD_MS);
            from <= Monotonic::from_ns(late[1]) && Monotonic::from_ns(late[0]) <= effect
        })
    };
    let late: Vec<Vec<u64>> = words("late ").into_iter().filter(|late| !is_stalled(late)).collect();
    let jobs = words("jobs ").iter().map(|words| words[0]).max().unwrap_or(0);
    println!("{jobs} jobs in {lasted:?}, {} stalls, late without one: {late:?}", stalls.len());
    assert!(late.is_empty(), "late jobs: {late:?}");
    assert!(u128::from(jobs * PERIOD_MS) * 2 > lasted.as_millis(), "{jobs} jobs in {lasted:?}");
    is_kept(&measured(&deployd));
    for (task, _) in BUSY {
        let processes = group_of(&deployd, task).processes().expect("its group");
        let own = deployd.running(task);
        assert!(processes.iter().any(|pid| pid.as_raw() == own), "{task}: {processes:?}");
    }
    assert_eq!(deployd.instances().len(), 6, "five programs and the governor");
    // The reapers of killed governors have ended.
    eventually("one reaper is left", || reapers() == 1);
}
