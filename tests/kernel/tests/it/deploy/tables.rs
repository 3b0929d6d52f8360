//! Changes of the table of a governed root while its programs run.

use super::governed::{GOVERNOR, group_of, request, statistics};
use super::{kill, ms};
use crate::exec::programs::hogs;
use crate::governor::scene::{cpu, is_possible, number};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use talea_core::Monotonic;
use talea_core::rng::Rng;
use talea_deploy::text::message::{Ask, ConditionText};
use talea_exec::StoppedTime;
use talea_kernel_tests::deployd::{Deployd, apply_on};
use talea_kernel_tests::{Bench, Runs, eventually, needs, needs_root};
use talea_os::switch_trace::SwitchTrace;
use talea_os::{Tid, cgroup::Cgroup};

const MS: u64 = 1_000_000;
const FRAME: u64 = 20 * MS;
/// Number of changes of the table in a measurement.
const CHANGES: usize = 20;
/// Number of switches that a trace has room for.
const MAX_SWITCHES: usize = 1 << 17;
/// Tasks with a program: one that works a millisecond of forty, and two that always want the CPU.
const TASKS: [&str; 3] = ["steady", "first", "second"];

/// Returns a table whose frame has 20 ms: 3 ms for `steady`, 15 ms that `first` and `second` share
/// at `split`, in milliseconds of the frame, and a pause for ordinary threads.
fn table(split: u64) -> String {
    let slot = |owner: &str, length: u64| {
        format!("[[scheduler.slot]]\nowner = \"{owner}\"\nlength = \"{length}ms\"\n")
    };
    let mut text =
        "[[scheduler]]\nname = \"cpu\"\npolicy = \"partitions\"\nframe = \"20ms\"\n".to_owned();
    for (owner, length) in [("p0", 3), ("p1", split - 3), ("p2", 18 - split), ("p3", 2)] {
        text += &slot(owner, length);
    }
    for (at, task) in TASKS.iter().chain(&["none"]).enumerate() {
        let part = format!(
            "[[scheduler]]\nname = \"p{at}\"\nin = \"cpu\"\npolicy = \"fp\"\n[[task]]\n\
             name = \"{task}\"\nin = \"p{at}\"\npriority = 100\nprogram = [\"/bin/true\"]\n"
        );
        text += &part;
        if at == 0 {
            text += "period = \"40ms\"\ncost = \"1ms\"\n";
        }
    }
    text
}

/// Returns the request that puts a system in force. `steady` sleeps 40 ms and works one.
fn apply(text: &str, hogs: &Path) -> Ask {
    let Ask::Apply { generation, confirm } = request(text, hogs, None) else { panic!("an apply") };
    let generation = &generation.generation;
    let mut tasks = generation.tasks().to_vec();
    if let Some(steady) = tasks.iter_mut().find(|task| task.name == "steady") {
        steady.command.words = vec![hogs.display().to_string(), "40".to_owned()];
    }
    apply_on(generation.roots()[0].clone(), &tasks, confirm)
}

/// Puts a table in force, and returns the start of its first frame.
fn change(deployd: &Deployd, split: u64, hogs: &Path) -> u64 {
    deployd.change(&apply(&table(split), hogs));
    deployd.running(GOVERNOR);
    number(&statistics(deployd), "zero_ns")
}

/// Returns another random split of the 15 ms.
fn other_split(rng: &mut Rng, split: u64) -> u64 {
    let other = 5 + rng.below(10);
    if other < split { other } else { other + 1 }
}

/// Execution of the programs over some changes of the table.
struct Measured {
    /// Start of the first frame of each table, and its split.
    tables: Vec<(u64, u64)>,
    /// CPU time of each task, and the part of that outside of the slots of the table in force.
    ran: [u64; 3],
    outside: [u64; 3],
    /// Number of slots, and of those in which a program of another slot ran for longer than the
    /// tolerance.
    slots: u64,
    late_slots: u64,
}

/// Changes the table at random instants, and measures the execution by the kernel's switch records.
fn measure(deployd: &Deployd, rng: &mut Rng, first: (u64, u64), hogs: &Path) -> Measured {
    let groups: Vec<Arc<Cgroup>> = TASKS.iter().map(|task| group_of(deployd, task)).collect();
    let trace = SwitchTrace::start(&[cpu()], MAX_SWITCHES).expect("root may");
    let mut tables = vec![first];
    let begin = talea_os::clock::now();
    for _ in 0..CHANGES {
        std::thread::sleep(Duration::from_nanos(rng.below(3 * FRAME)));
        let split = other_split(rng, tables[tables.len() - 1].1);
        tables.push((change(deployd, split, hogs), split));
    }
    let threads: Vec<Vec<Tid>> =
        groups.iter().map(|group| group.threads().expect("there")).collect();
    let record = trace.finish().expect("root may");
    assert_eq!(record.lost, 0, "the trace has room");
    let zero = Monotonic::from_ns(first.0);
    let (mut ran, mut outside, mut late) = ([0; 3], [0; 3], Vec::new());
    let mut frames = 0..0;
    for interval in record.intervals.iter().filter(|interval| interval.from > begin.max(zero)) {
        let of = |threads: &Vec<Tid>| interval.thread.is_some_and(|tid| threads.contains(&tid));
        let Some(task) = threads.iter().position(of) else { continue };
        let (mut from, end) = (interval.from.as_ns(), interval.to.as_ns());
        while from < end {
            let &(zero, split) =
                tables.iter().rev().find(|table| table.0 <= from).expect("the first");
            let frame = (from - zero) / FRAME * FRAME + zero;
            let to = end.min(frame + FRAME);
            let (start, stop) = [(0, 3 * MS), (3 * MS, split * MS), (split * MS, 18 * MS)][task];
            let inside = to.min(frame + stop).saturating_sub(from.max(frame + start));
            let beyond = to - from - inside;
            ran[task] += to - from;
            outside[task] += beyond;
            if beyond > StoppedTime::TOLERANCE.as_ns() {
                late.push((frame, task));
            }
            frames = if frames.start == 0 { frame..frame } else { frames.start..frame };
            from = to;
        }
    }
    late.dedup();
    let slots = (frames.end - frames.start) / FRAME * 2;
    Measured { tables, ran, outside, slots, late_slots: late.len() as u64 }
}

/// Returns the first number of a key in the statistics of a task.
fn number_of(text: &str, task: &str, key: &str) -> u64 {
    let (_, of_task) = text.split_once(&format!("\"name\": \"{task}\"")).expect("the task");
    number(of_task, key)
}

#[test]
fn d30_twenty_changes_of_the_table_take_effect_at_the_end_of_a_frame_with_the_same_processes() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-tables");
    let deployd = Deployd::start(&bench);
    let hogs = hogs(&bench);
    let mut rng = Rng::new(30);
    deployd.change(&apply(&table(10), &hogs));
    let all = || [GOVERNOR, "steady", "first", "second"].map(|task| deployd.running(task));
    let pids = all();
    let mut last = (number(&statistics(&deployd), "zero_ns"), 10);
    let measured = Runs::at_least(1).repeat(|| {
        let before = number_of(&statistics(&deployd), "steady", "late");
        let measured = measure(&deployd, &mut rng, last, &hogs);
        last = measured.tables[CHANGES];
        // No stall makes a frame shorter or longer.
        for tables in measured.tables.windows(2) {
            let after = tables[1].0 - tables[0].0;
            assert_eq!(after % FRAME, 0, "a frame is cut: {:?}", measured.tables);
            assert!(after > 0, "{:?}", measured.tables);
        }
        assert_eq!(all(), pids, "no process starts again");
        let late = number_of(&statistics(&deployd), "steady", "late") - before;
        let Measured { ran, outside, slots, late_slots, .. } = &measured;
        println!(
            "{ran:?} ns, {outside:?} outside; {late_slots} of {slots} slots late; {late} jobs"
        );
        let is_kept = (0..3).all(|task| outside[task] * 50 <= ran[task]);
        (is_kept && *late_slots * 20 <= *slots && late == 0).then_some(measured)
    });
    let Measured { ran, slots, .. } = measured.expect("one conclusive run");
    assert!(slots >= 40 && ran[1].min(ran[2]) > 100 * MS, "too little has run: {ran:?}");
    let text = statistics(&deployd);
    assert!(number_of(&text, "steady", "jobs") > 20, "{text}");
    assert!(text.contains("\"switched_at\": \"the end of the frame\""), "{text}");
    assert!(!text.contains("instead of"), "nothing has changed a policy: {text}");
}

#[test]
fn d31_a_kill_amid_a_change_of_the_table_ends_with_that_table_and_the_same_programs() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-table-kills");
    let mut deployd = Deployd::start(&bench);
    let hogs = hogs(&bench);
    let mut rng = Rng::new(31);
    deployd.change(&apply(&table(10), &hogs));
    let mut governor = deployd.running(GOVERNOR);
    let pids = TASKS.map(|task| deployd.running(task));
    let mut split = 10;
    for round in 0..12 {
        split = other_split(&mut rng, split);
        let request = apply(&table(split), &hogs);
        deployd.change(&request);
        std::thread::sleep(Duration::from_nanos(rng.below(FRAME + 5 * MS)));
        if round % 2 == 0 {
            kill(governor);
            eventually("there is another governor", || {
                let task = deployd.task(GOVERNOR);
                let pid = task.pid.filter(|_| task.condition == ConditionText::Running);
                pid.is_some_and(|pid| pid as i32 != governor)
            });
            governor = deployd.running(GOVERNOR);
        } else {
            deployd.kill();
            deployd.restart();
        }
        assert_eq!(deployd.running(GOVERNOR), governor, "round {round}");
        let Ask::Apply { generation, .. } = &request else { panic!("an apply") };
        let task = generation.generation.task(GOVERNOR).expect("a governor");
        let hash = task.governed.as_ref().expect("a governor").hash();
        let is_in_force = || statistics(&deployd).contains(&format!("\"governs\": \"{hash}\""));
        eventually("the table is in force", is_in_force);
        assert_eq!(TASKS.map(|task| deployd.running(task)), pids, "round {round}");
    }
}

#[test]
fn d32_a_root_without_a_table_changes_when_it_is_idle_or_after_its_longest_period() {
    needs_root!();
    needs!("two CPUs, cgroup v2 and its perf events", is_possible());
    let bench = Bench::new("deploy-table-idle");
    let deployd = Deployd::start(&bench);
    let hogs = hogs(&bench);
    let server = |budget: u64, task: &str| {
        format!(
            "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n[[scheduler]]\nname = \"box\"\n\
             in = \"cpu\"\nserver = \"deferrable\"\npriority = 200\nbudget = \"{budget}ms\"\n\
             period = \"20ms\"\n[[task]]\nname = \"{task}\"\nin = \"box\"\n\
             program = [\"/bin/true\"]\n"
        )
    };
    for (task, cause) in [("steady", "an idle instant"), ("first", "the limit, with pending jobs")]
    {
        deployd.change(&apply(&server(4, task), &hogs));
        let pids = [GOVERNOR, task].map(|task| deployd.running(task));
        for budget in [8, 4, 8] {
            deployd.change(&apply(&server(budget, task), &hogs));
            assert_eq!([GOVERNOR, task].map(|task| deployd.running(task)), pids);
            let text = statistics(&deployd);
            assert!(text.contains(&format!("\"switched_at\": \"{cause}\"")), "{text}");
        }
        let group = group_of(&deployd, task);
        let before = group.used().expect("its group");
        std::thread::sleep(Duration::from_secs(1));
        let used = group.used().expect("its group").checked_sub(before).expect("a clock");
        // One millisecond of 41, or the new budget of each period.
        let most = if task == "steady" { 60 } else { 460 };
        assert!(used.as_ns() < ms(most).as_ns(), "{task} used {used} of a second");
        assert!(task == "steady" || used.as_ns() > ms(250).as_ns(), "{task} used {used}");
    }
}
