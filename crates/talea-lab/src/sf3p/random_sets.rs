//! Random task sets: Figure 6, the share of late jobs by utilization, for 1,500 sets under EDF, RM
//! and FIFO.

use super::due_jobs::{DueJobs, RUN};
use crate::folder;
use crate::units::MS;
use serde::Serialize;
use std::path::Path;
use talea_analysis::uni::fp_response;
use talea_analysis::{Sporadic, Verdict};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_sim::rng::Rng;
use talea_sim::{Completion, Simulation, Sink, Source, Workload};
use talea_study::batch;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::{Figure, Panel, Series};

const SETS: usize = 1_500;
/// Policies of the figure.
pub(crate) const POLICIES: [(&str, PolicySpec); 3] =
    [("edf", PolicySpec::Edf), ("rm", PolicySpec::RateMonotonic), ("fifo", PolicySpec::Fifo)];

/// Random set of the paper, with n in 5..=50 and a utilization of 20 to 100 %. Tasks are short (5
/// to 10 ms) or long (40 to 50 ms) with equal probability. All tasks have equal shares, so that the
/// arrival rate does not depend on n.
pub(crate) struct Set {
    pub(super) utilization: f64,
    pub(crate) tasks: Vec<(Span, Work)>,
}

fn set(seed: u64, number: u64) -> Set {
    let mut rng = Rng::for_part(seed, number);
    let n = rng.between(5, 50);
    let ppm = rng.between(200_000, 1_000_000);
    set_of(&mut rng, n, ppm)
}

/// Draws a set of `n` tasks with a utilization of `ppm` millionths of the CPU.
pub(crate) fn set_of(rng: &mut Rng, n: u64, ppm: u64) -> Set {
    let tasks = (0..n).map(|_| {
        let cost = if rng.below(2) == 0 {
            rng.between(5 * MS, 10 * MS)
        } else {
            rng.between(40 * MS, 50 * MS)
        };
        // Rounded up, so that the set never exceeds its utilization.
        let period = (u128::from(cost) * u128::from(n) * 1_000_000).div_ceil(u128::from(ppm));
        (Span::from_ns(period as u64), Work::from_ns(cost))
    });
    let mut tasks: Vec<_> = tasks.collect();
    // All first jobs arrive together, and ties go to the first task. Under FIFO, the choice of that
    // task changes the result by a point or two.
    tasks.sort_unstable();
    Set { utilization: ppm as f64 / 1e6, tasks }
}

fn late(set: &Set, policy: &PolicySpec) -> f64 {
    slower(set, policy, 1)
}

/// Simulates a set. All times are multiplied by `times`, including the length of the run.
fn slower(set: &Set, policy: &PolicySpec, times: u64) -> f64 {
    struct Until(DueJobs, Time);
    impl Sink for Until {
        fn on_completion(&mut self, job: &Completion) {
            self.0.in_time += u64::from(!job.is_late() && job.deadline <= self.1);
        }
    }
    let run = Time::from_ns(RUN.as_ns() * times);
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu0", policy.clone()));
    let mut workload = Workload::default();
    let mut due = Until(DueJobs::default(), run);
    for &(period, cost) in &set.tasks {
        let (period, cost) =
            (Span::from_ns(period.as_ns() * times), Work::from_ns(cost.as_ns() * times));
        let mut spec = TaskSpec::new("task", period);
        spec.backlog.capacity = 1_000;
        tree.task(Tree::ROOT, spec);
        workload.sources.push(Source::periodic(period, cost));
        // Job k has the implicit deadline k·T + T, so there are as many as whole periods.
        due.0.jobs += run.as_ns() / period.as_ns();
    }
    let engine = tree.build().expect("a flat tree");
    Simulation::new(engine, 1, &workload).run(run + Span::from_ns(1), &mut due);
    due.0.late_percent()
}

/// Whether no job under rate-monotonic priorities is ever late, by the exact test for the critical
/// instant with which each run begins.
fn is_schedulable(set: &Set) -> bool {
    let mut tasks: Vec<Sporadic> =
        set.tasks.iter().map(|&(period, cost)| Sporadic::new(cost, period, period)).collect();
    // A stable order, like that of the engine: ties go to the first task.
    tasks.sort_by_key(|task| task.period);
    matches!(fp_response::verdict(&tasks), Verdict::Proved { .. })
}

#[derive(Serialize)]
struct Point {
    utilization: f64,
    tasks: usize,
    late_percent: [f64; 3],
}

#[derive(Serialize)]
struct Data<'a> {
    policies: [&'static str; 3],
    sets: &'a [Point],
}

/// Plots the share of late jobs against the utilization, in files of `folder`.
pub(super) fn fig6(seed: u64, folder: &Path) -> anyhow::Result<Exit> {
    let points = batch::run("1500 sets, three policies", SETS, |number| {
        let set = set(seed, number as u64);
        let late_percent = [0, 1, 2].map(|policy: usize| late(&set, &POLICIES[policy].1));
        Point { utilization: set.utilization, tasks: set.tasks.len(), late_percent }
    });
    let names = POLICIES.map(|(name, _)| name);
    let mut table = Table::new(">U % | >SETS | >EDF late % | >RM late % | >FIFO late %");
    let mut lines: Vec<Series> =
        names.iter().map(|name| Series { name: (*name).to_owned(), points: vec![] }).collect();
    for step in 0..16 {
        let (low, high) = (0.2 + 0.05 * f64::from(step), 0.25 + 0.05 * f64::from(step));
        let within: Vec<&Point> = points
            .iter()
            .filter(|point| point.utilization >= low && (point.utilization < high || step == 15))
            .collect();
        let mean = |policy: usize| {
            within.iter().map(|point| point.late_percent[policy]).sum::<f64>()
                / within.len().max(1) as f64
        };
        let mut row =
            vec![format!("{:.0}-{:.0}", low * 100.0, high * 100.0), within.len().to_string()];
        for (policy, line) in lines.iter_mut().enumerate() {
            row.push(format!("{:.2}", mean(policy)));
            line.points.push(((low + high) * 50.0, mean(policy)));
        }
        table.row(row);
    }
    let proved = (0..SETS as u64).filter(|&number| is_schedulable(&set(seed, number))).count();
    let clean =
        |policy: usize| points.iter().filter(|point| point.late_percent[policy] == 0.0).count();
    let figure = Figure {
        title: "SF3P Fig. 6, simulated: late jobs against utilisation".to_owned(),
        x: "utilisation %",
        y: "late jobs %",
        panels: vec![Panel { title: format!("{SETS} sets of 10 s"), series: lines }],
    };
    let plot = folder::save(folder, "sf3p-fig6.svg", &figure.svg())?;
    let data = output::to_json(&Data { policies: names, sets: &points })?;
    let data = folder::save(folder, "sf3p-fig6.json", &data)?;
    output::print(&table.render())?;
    output::print(&format!(
        "sets without a late job: edf {}, rm {}, fifo {} of {SETS}; schedulable by theory: edf {SETS}, rm {proved}\n\
         the paper: EDF meets every deadline up to 99.9 %; FIFO misses about 10 % at 60 %\n\
         {}",
        clean(0),
        clean(1),
        clean(2),
        folder::written(&[plot, data])
    ))?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected means of 40 sets (`docs/decisions/0009`): utilization in thousandths, late jobs in
    /// percent under RM and under FIFO.
    const IDEAL: [(u64, f64, f64); 10] = [
        (300, 0.0, 0.0),
        (400, 0.0, 0.39),
        (500, 0.0, 1.39),
        (600, 0.0, 3.63),
        (700, 0.0, 6.24),
        (800, 0.0, 10.9),
        (900, 0.03, 18.5),
        (950, 0.53, 25.9),
        (990, 1.89, 69.0),
        (1_000, 2.18, 78.0),
    ];

    #[test]
    fn s6_the_share_of_sets_without_a_miss_is_the_theorys_within_one_per_cent() {
        const SETS_TESTED: u64 = 500;
        let (mut clean, mut proved) = ([0, 0], 0);
        for number in 0..SETS_TESTED {
            let set = set(1, number);
            let late = [0, 1].map(|policy: usize| late(&set, &POLICIES[policy].1));
            let is_proved = is_schedulable(&set);
            // A set that the test proves has no late job. Other sets have late first jobs, if those
            // are due within ten seconds.
            assert!(!is_proved || late[1] == 0.0, "set {number}");
            proved += u64::from(is_proved);
            (0..2).for_each(|policy| clean[policy] += u64::from(late[policy] == 0.0));
        }
        assert_eq!(clean[0], SETS_TESTED, "EDF: every set, as theory says");
        let difference = clean[1].abs_diff(proved);
        assert!(
            difference * 100 < SETS_TESTED,
            "RM: {} without a miss, {proved} schedulable",
            clean[1]
        );
        assert!(proved < SETS_TESTED && proved > SETS_TESTED / 2, "{proved}: both kinds occur");
    }

    /// The paper's slower computer: the same figure with all times multiplied by ten.
    #[test]
    fn s6_ten_times_slower_is_the_same_figure() {
        for number in 0..40 {
            let set = set(2, number);
            for (name, policy) in &POLICIES {
                let (as_is, tenfold) = (late(&set, policy), slower(&set, policy, 10));
                assert!(
                    (as_is - tenfold).abs() < 1e-9,
                    "{name}, set {number}: {as_is} and {tenfold}"
                );
            }
        }
    }

    #[test]
    fn s6_the_misses_of_1500_sets_lie_on_the_ideal_curve_and_edf_has_none() {
        for (thousandths, rm, fifo) in IDEAL {
            let sets = (0..150).map(|number| {
                let mut rng = Rng::for_part(6, thousandths << 32 | number);
                let n = rng.between(5, 50);
                set_of(&mut rng, n, thousandths * 1_000)
            });
            let mut found = [const { Vec::new() }; 3];
            for set in sets {
                for (found, (_, policy)) in found.iter_mut().zip(&POLICIES) {
                    found.push(late(&set, policy));
                }
            }
            assert!(found[0].iter().all(|late| *late == 0.0), "EDF at {thousandths}");
            for (found, ideal) in found[1..].iter().zip([rm, fifo]) {
                let mean = found.iter().sum::<f64>() / found.len() as f64;
                let variance = found.iter().map(|late| (late - mean).powi(2)).sum::<f64>()
                    / found.len() as f64;
                // The tolerance is one point. Under FIFO from 80 % on, 40 sets do not determine the
                // mean that well; there it is two standard errors of such a mean
                // (`docs/decisions/0009`).
                let rough = ideal > 10.0 && thousandths >= 800;
                let near = if rough { f64::max(1.0, 2.0 * (variance / 40.0).sqrt()) } else { 1.0 };
                assert!(
                    (mean - ideal).abs() < near,
                    "{thousandths}: {mean:.2}, not {ideal} ± {near:.2}"
                );
            }
        }
    }
}
