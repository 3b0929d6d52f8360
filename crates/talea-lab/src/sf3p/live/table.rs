//! Table II: the flight management software in three configurations, with costs for a computer
//! whose CPU is unavailable for 50 ms of each full second. The shipped examples miss deadlines
//! after 5 s only, and leave A no time for such a computer; so this set has other periods and
//! costs.
//!
//! At worst cost all jobs together have 96.6 % of the CPU, on purpose: the kernel throttles them
//! once per second. Thresholds apply to jobs outside of stalls, which here extend to 200 ms after
//! their end.

use super::super::super::computer::load_averages;
use super::super::super::thresholds::{self, Threshold};
use super::super::super::units::MS;
use super::super::flight_management::{CONFIGURATIONS, PAPER, shipped};
use super::{Effort, Instrumentation, Run, cpu, data, finish, run};
use serde::Serialize;
use talea_core::engine::{NodeSpec, TaskId};
use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};
use talea_exec::Stall;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};

/// Prefix of the task name, average cost and worst cost in µs, for a virtual machine.
const COSTS: [(&str, u64, u64); 6] = [
    ("sens", 1_000, 1_500),
    ("loc_a", 1_400, 2_000),
    ("loc_c0", 2_000, 8_000),
    ("loc_c", 10_000, 40_000),
    ("nearest", 12_000, 48_000),
    ("video", 37_000, 37_000),
];
const AUDIO: u64 = 74_000;
/// `THEIRS[configuration]`: CPU time of SF3P's own program at worst cost, on a similar computer and
/// in the paper, in percent.
const THEIRS: [(f64, f64); 3] = [(0.40, 0.71), (0.31, 0.44), (0.24, 0.38)];
const GROUPS: [&str; 3] = ["B", "D", "A"];

/// Numbers of the jobs of one group.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Group {
    jobs: u64,
    late: u64,
    /// Number of jobs outside of stalls.
    clear: u64,
    clear_late: u64,
    simulated_late: u64,
}

/// Result of one run of one configuration.
#[derive(Serialize)]
struct Table2Row {
    config: &'static str,
    cost: &'static str,
    /// Results of the groups B, D and A.
    groups: [Group; 3],
    stalls: usize,
    scheduler_percent: f64,
}

/// Time after a stall in which jobs are excluded.
const AFTER: Span = Span::from_ns(200 * MS);

fn is_clear(stalls: &[Stall], from: Time, to: Time) -> bool {
    !stalls.iter().any(|stall| stall.may_affect(from, to, AFTER))
}

fn one(
    cpu: u32,
    config: &'static str,
    cost: &'static str,
    duration: Span,
) -> anyhow::Result<Table2Row> {
    let system = shipped(&format!("live-{config}.toml"))?;
    let root = &system.roots[0];
    let mut workload = root.workload(system.seed);
    for (name, source) in root.tasks.iter().zip(&mut workload.sources) {
        let us = COSTS.iter().find(|(begin, ..)| name.starts_with(begin));
        let us = us
            .map_or(AUDIO, |&(_, average, worst)| if cost == "average" { average } else { worst });
        source.cost = Cost::Constant(Work::from_ns(us * 1_000));
    }
    let mut tree = root.tree.clone();
    let nodes: Vec<_> = tree.nodes().map(|(id, _)| id).collect();
    for id in nodes {
        // No job is ever dropped.
        if let Some(NodeSpec::Task(spec)) = tree.get_mut(id).map(|node| &mut node.spec) {
            spec.backlog.capacity = 1_000;
        }
    }
    let ran = run(cpu, &tree, &workload, duration, Instrumentation::Sparse)?;
    let engine = tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
    let of = |task: u32| {
        let above = tree.ancestors(engine.node_of(TaskId(task))).next();
        GROUPS.iter().position(|name| above.is_some_and(|(_, spec)| spec.name == *name))
    };
    let groups = groups(&ran, Time::ZERO + duration, of);
    let scheduler_percent = ran.cost.share * 100.0;
    Ok(Table2Row { config, cost, groups, stalls: ran.stalls.len(), scheduler_percent })
}

fn groups(ran: &Run, until: Time, of: impl Fn(u32) -> Option<usize>) -> [Group; 3] {
    let mut groups = [Group::default(); 3];
    for (task, life, _, [simulated, measured]) in ran.jobs(until) {
        let Some(group) = of(task).map(|at| &mut groups[at]) else { continue };
        let from = life.release.unwrap_or(Time::ZERO);
        let to = life.end.unwrap_or(until).max(life.deadline.unwrap_or(from));
        let clear = is_clear(&ran.stalls, from, to);
        group.jobs += 1;
        group.late += u64::from(measured);
        group.simulated_late += u64::from(simulated);
        group.clear += u64::from(clear);
        group.clear_late += u64::from(clear && measured);
    }
    groups
}

/// Runs the configurations and prints the table.
pub(in super::super) fn table2(effort: &Effort) -> anyhow::Result<Exit> {
    let (cpu, load) = (cpu()?, load_averages());
    let mut rows = Vec::new();
    output::note(&format!("six runs of {} s, {} times", effort.seconds, effort.sets));
    for _ in 0..effort.sets {
        for (config, _) in CONFIGURATIONS {
            for cost in ["average", "worst"] {
                rows.push(one(cpu, config, cost, effort.duration())?);
            }
        }
    }
    let judged = evaluate(&rows);
    let mut text = table(&rows);
    text = text + "\n" + &thresholds::text(&judged);
    let raw = effort.save("sf3p-table2-live.json", &data(effort, &load, &rows, &judged)?)?;
    finish(&load, &text, &[raw], &judged)
}

/// Returns the sum of all runs of a configuration.
fn sum(rows: &[Table2Row], config: &str, cost: &str) -> ([Group; 3], usize, f64) {
    let mut all = [Group::default(); 3];
    let (mut stalls, mut share, mut count) = (0, 0.0, 0.0);
    for row in rows.iter().filter(|row| (row.config, row.cost) == (config, cost)) {
        for (all, one) in all.iter_mut().zip(&row.groups) {
            all.jobs += one.jobs;
            all.late += one.late;
            all.clear += one.clear;
            all.clear_late += one.clear_late;
            all.simulated_late += one.simulated_late;
        }
        stalls += row.stalls;
        share += row.scheduler_percent;
        count += 1.0;
    }
    (all, stalls, share / f64::max(count, 1.0))
}

fn table(rows: &[Table2Row]) -> String {
    let mut table = Table::new(
        "CONFIGURATION | COST | PAPER B/D/A % | SIMULATED % | MEASURED, clear of stalls % | \
         late of clear | >STALLS | >SCHEDULER % | PAPER, SF3P here %",
    );
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    for (number, (config, what)) in CONFIGURATIONS.into_iter().enumerate() {
        for cost in ["average", "worst"] {
            let (groups, stalls, share) = sum(rows, config, cost);
            let is_worst = cost == "worst";
            let join =
                |of: &dyn Fn(&Group) -> String| groups.iter().map(of).collect::<Vec<_>>().join("/");
            let theirs = THEIRS[number];
            table.row(vec![
                what.to_owned(),
                cost.to_owned(),
                if is_worst {
                    PAPER[number].map(|late| late.to_string()).join("/")
                } else {
                    "0/0/0".to_owned()
                },
                join(&|group| format!("{:.1}", percent(group.simulated_late, group.jobs))),
                join(&|group| format!("{:.1}", percent(group.clear_late, group.clear))),
                join(&|group| format!("{} of {}", group.clear_late, group.clear)),
                stalls.to_string(),
                format!("{share:.3}"),
                if is_worst { format!("{:.2}, {:.2}", theirs.1, theirs.0) } else { "-".to_owned() },
            ]);
        }
    }
    table.render()
        + "Simulated without stalls. These periods and costs are not those of the examples; what must agree is who is late: B never in C1, A \
           never in C1 and C2, B in C2, D in both.\n"
}

fn evaluate(rows: &[Table2Row]) -> Vec<Threshold> {
    let [c1, c2, c3] = ["c1", "c2", "c3"].map(|config| sum(rows, config, "worst"));
    let says = |what: &str, found: String, passed: bool| {
        let what = what.to_owned();
        Threshold { what, found, passed }
    };
    let late = |group: &Group| format!("{} of {}", group.clear_late, group.clear);
    let none = |group: &Group| group.clear > 0 && group.clear_late == 0;
    let some = |group: &Group| group.clear_late > 0;
    let ([b1, d1, a1], [b2, d2, a2], a3) = (c1.0, c2.0, c3.0[2]);
    let beside = |group: &Group, stalls: usize| {
        format!("{} late, {stalls} stalls, {} in C3", group.late, a3.late)
    };
    let mut thresholds = vec![
        says("C1: B is protected", late(&b1), none(&b1)),
        says("C1: A is isolated", late(&a1), none(&a1)),
        says("C2: A is isolated", late(&a2), none(&a2)),
        says("C2: B is not protected", late(&b2), some(&b2)),
        says(
            "C1 and C2: D is late",
            format!("{} and {}", late(&d1), late(&d2)),
            some(&d1) && some(&d2),
        ),
        says(
            "C1: A within stalls is late at most once in each, and less than in C3",
            beside(&a1, c1.1),
            a1.late <= c1.1 as u64 && a1.late <= a3.late,
        ),
        says(
            "C2: A within stalls is late at most once in each, and less than in C3",
            beside(&a2, c2.1),
            a2.late <= c2.1 as u64 && a2.late <= a3.late,
        ),
        says(
            "the deeper the tree the more it costs",
            format!("{:.3}, {:.3}, {:.3} %", c1.2, c2.2, c3.2),
            c1.2 > c2.2 && c2.2 > c3.2,
        ),
    ];
    for (number, share) in [c1.2, c2.2, c3.2].into_iter().enumerate() {
        let most = THEIRS[number].0;
        thresholds.push(says(
            &format!("C{}: overhead", number + 1),
            format!("{share:.3} %, below {most:.2}"),
            share < most,
        ));
    }
    thresholds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s11_a_job_is_clear_of_a_stall_before_it_and_well_after() {
        let at = |ms: u64| Time::from_ns(ms * MS);
        let stall = [Stall { cpu: 0, from: at(900), to: at(950) }];
        for (from, to, is) in [
            (0, 898, true),
            (0, 900, false),
            (1_149, 1_200, false),
            (1_151, 1_200, true),
            (800, 1_300, false),
        ] {
            assert_eq!(is_clear(&stall, at(from), at(to)), is, "{from} to {to}");
        }
    }
}
