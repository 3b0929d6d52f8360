//! Figures 6, 7 and 8: random sets under EDF, RM and FIFO at six utilizations.

use super::super::super::computer::load_averages;
use super::super::super::samples::median;
use super::super::super::thresholds::{self, Threshold};
use super::super::random_sets::{POLICIES, Set, set_of};
use super::{Effort, Instrumentation, RunMeasurement, cpu, data, finish, fit, mean, run};
use serde::Serialize;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::{Source, Workload};
use talea_sim::rng::Rng;
use talea_study::exit::Exit;
use talea_study::output::{self, Table};
use talea_study::plot::{Figure, Panel, Series};

/// Utilizations in thousandths. The last one shows the limit of EDF. Those of the paper extend to
/// 1000. On this computer the kernel takes a CPU away for the rest of a second after 95 % of the
/// second.
const UTILIZATIONS: [u64; 6] = [200, 400, 600, 800, 900, 920];

/// Figure of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Shown {
    /// Late jobs by utilization.
    Fig6,
    /// Scheduler overhead by utilization.
    Fig7,
    /// Non-scheduler overhead by utilization.
    Fig8,
}

/// Function from a run to the value that a line shows.
type PlottedValue = fn(&RunMeasurement) -> f64;

/// Result of one set under one policy.
#[derive(Serialize)]
struct SetRow {
    set: u64,
    tasks: usize,
    utilization: u64,
    policy: &'static str,
    #[serde(flatten)]
    run: RunMeasurement,
}

fn system(set: &Set, policy: &PolicySpec) -> (Tree, Workload) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu0", policy.clone()));
    let mut workload = Workload::default();
    for &(period, cost) in &set.tasks {
        let mut spec = TaskSpec::new("task", period);
        spec.backlog.capacity = 1_000;
        tree.task(Tree::ROOT, spec);
        workload.sources.push(Source::periodic(period, cost));
    }
    (tree, workload)
}

/// Runs all sets and prints one of the figures.
pub(in super::super) fn sets(shown: Shown, effort: &Effort) -> anyhow::Result<Exit> {
    let (cpu, load) = (cpu()?, load_averages());
    let mut rows = Vec::new();
    output::note(&format!(
        "{} sets, three policies, {} s each: about {} s; the paper's 1500 sets of 10 s are half a day: --sets, --seconds",
        effort.sets,
        effort.seconds,
        effort.sets * 3 * (effort.seconds + 1)
    ));
    for number in 0..effort.sets {
        let utilization = UTILIZATIONS[number as usize % UTILIZATIONS.len()];
        let mut rng = Rng::for_part(effort.seed, 6 << 32 | number);
        let n = rng.between(5, 50);
        let set = set_of(&mut rng, n, utilization * 1_000);
        for (name, policy) in &POLICIES {
            let (tree, workload) = system(&set, policy);
            let run = run(cpu, &tree, &workload, effort.duration(), Instrumentation::IdleThread)?
                .measure(effort.duration());
            rows.push(SetRow {
                set: number,
                tasks: set.tasks.len(),
                utilization,
                policy: name,
                run,
            });
        }
    }
    let found = SetResults { rows: &rows };
    let (name, figure, mut text, judged) = match shown {
        Shown::Fig6 => ("sf3p-fig6-live", found.fig6(), found.late(), found.fig6_thresholds()),
        Shown::Fig7 => ("sf3p-fig7-live", found.fig7(), found.overhead(), found.fig7_thresholds()),
        Shown::Fig8 => ("sf3p-fig8-live", found.fig8(), found.overhead(), found.fig8_thresholds()),
    };
    text = text + "\n" + &thresholds::text(&judged);
    let plot = effort.save(&format!("{name}.svg"), &figure.svg())?;
    let raw = effort.save(&format!("{name}.json"), &data(effort, &load, &rows, &judged)?)?;
    finish(&load, &text, &[plot, raw], &judged)
}

struct SetResults<'a> {
    rows: &'a [SetRow],
}

impl SetResults<'_> {
    /// Returns the runs of one policy, optionally at one utilization.
    fn of<'b>(
        &'b self,
        policy: &'b str,
        utilization: Option<u64>,
    ) -> impl Iterator<Item = &'b RunMeasurement> {
        let is = move |row: &&SetRow| {
            row.policy == policy && utilization.is_none_or(|it| it == row.utilization)
        };
        self.rows.iter().filter(is).map(|row| &row.run)
    }

    /// Returns the runs whose jobs are conclusive. The scheduling cost of all runs is conclusive.
    fn conclusive<'b>(
        &'b self,
        policy: &'b str,
        utilization: u64,
    ) -> impl Iterator<Item = &'b RunMeasurement> {
        self.of(policy, Some(utilization)).filter(|run| !run.is_inconclusive())
    }

    fn line(&self, name: &str, policy: &str, of: PlottedValue) -> Series {
        let at = |utilization: u64| {
            // A value that is not a number is unknown.
            let value =
                mean(self.of(policy, Some(utilization)).map(of).filter(|value| !value.is_nan()));
            (utilization as f64 / 10.0, value)
        };
        let points = UTILIZATIONS.into_iter().map(at).filter(|(_, value)| !value.is_nan());
        Series { name: name.to_owned(), points: points.collect() }
    }

    fn figure(&self, title: &str, y: &'static str, of: &[(&str, PlottedValue)]) -> Figure<'static> {
        let panel = |(name, of): &(&str, PlottedValue)| Panel {
            title: (*name).to_owned(),
            series: POLICIES.iter().map(|(policy, _)| self.line(policy, policy, *of)).collect(),
        };
        Figure {
            title: title.to_owned(),
            x: "utilisation %",
            y,
            panels: of.iter().map(panel).collect(),
        }
    }

    fn fig6(&self) -> Figure<'static> {
        self.figure(
            "SF3P Fig. 6: late jobs of the same sets, simulated and on threads",
            "late jobs %",
            &[
                ("simulated", |run| run.if_conclusive(run.simulated)),
                ("measured", |run| run.if_conclusive(run.measured)),
            ],
        )
    }

    fn fig7(&self) -> Figure<'static> {
        self.figure(
            "SF3P Fig. 7: scheduler overhead on threads",
            "CPU %",
            &[("measured", |run| run.cost.share * 100.0)],
        )
    }

    fn fig8(&self) -> Figure<'static> {
        self.figure(
            "SF3P Fig. 8: non-scheduler overhead on threads",
            "CPU %",
            &[("measured", |run| run.other.unwrap_or(f64::NAN).max(0.0) * 100.0)],
        )
    }

    fn late(&self) -> String {
        let mut table = Table::new(
            ">U % | POLICY | PAPER | >SIMULATED late % | >MEASURED late % | \
             >WORST DIFFERENCE | >SETS | >INCONCLUSIVE",
        );
        for utilization in UTILIZATIONS {
            for (policy, _) in &POLICIES {
                let all = self.of(policy, Some(utilization)).count();
                let some: Vec<&RunMeasurement> = self.conclusive(policy, utilization).collect();
                let paper = match (*policy, utilization) {
                    ("edf", _) => "0",
                    ("fifo", 600) => "about 10",
                    _ => "-",
                };
                table.row(vec![
                    (utilization / 10).to_string(),
                    (*policy).to_owned(),
                    paper.to_owned(),
                    format!("{:.2}", mean(some.iter().map(|run| run.simulated))),
                    format!("{:.2}", mean(some.iter().map(|run| run.measured))),
                    format!("{:.2}", worst(some.iter().copied())),
                    some.len().to_string(),
                    (all - some.len()).to_string(),
                ]);
            }
        }
        table.render()
    }

    fn overhead(&self) -> String {
        let mut table = Table::new(
            ">U % | POLICY | >SF3P here % | >SCHEDULER % | >µs/job | >of it WORKERS | \
             >WAKES/job | >NON-SCHEDULER %",
        );
        for (row, utilization) in UTILIZATIONS.into_iter().enumerate() {
            for (column, (policy, _)) in POLICIES.iter().enumerate() {
                let of = |of: &dyn Fn(&RunMeasurement) -> f64| {
                    mean(self.of(policy, Some(utilization)).map(of).filter(|value| !value.is_nan()))
                };
                table.row(vec![
                    (utilization / 10).to_string(),
                    (*policy).to_owned(),
                    theirs(row, column),
                    format!("{:.3}", of(&|run| run.cost.share * 100.0)),
                    format!("{:.1}", of(&|run| run.cost.dispatcher_us + run.cost.workers_us)),
                    format!("{:.1}", of(&|run| run.cost.workers_us)),
                    format!("{:.2}", of(&|run| run.cost.wakes)),
                    format!("{:.3}", of(&|run| run.other.unwrap_or(f64::NAN) * 100.0)),
                ]);
            }
        }
        table.render()
            + "SF3P here: its own program on a machine of this kind. A simulation has no overhead but the configured one.\n"
    }

    fn fig6_thresholds(&self) -> Vec<Threshold> {
        let all = || self.rows.iter().filter(|row| !row.run.is_inconclusive());
        let count = all().count();
        let apart = worst(all().map(|row| &row.run));
        let edf =
            all().filter(|row| row.policy == "edf").map(|row| row.run.measured).fold(0.0, f64::max);
        vec![
            Threshold {
                what: "late jobs of each set on threads and simulated".to_owned(),
                found: format!("{apart:.2} points apart at most, of {count} runs; at most 2"),
                passed: count > 0 && apart <= 2.0,
            },
            Threshold {
                what: "EDF misses nothing outside of stalls".to_owned(),
                found: format!("{edf:.2} % of a set at most"),
                passed: edf == 0.0,
            },
        ]
    }

    fn fig7_thresholds(&self) -> Vec<Threshold> {
        let mut judged = Vec::new();
        let at = |policy: &str, utilization| {
            mean(self.of(policy, Some(utilization)).map(|run| run.cost.share * 100.0))
        };
        for (policy, _) in &POLICIES {
            let points: Vec<(f64, f64)> = UTILIZATIONS
                .into_iter()
                .flat_map(|utilization| {
                    let share = move |run: &RunMeasurement| {
                        (utilization as f64 / 1_000.0, run.cost.share * 100.0)
                    };
                    self.of(policy, Some(utilization)).map(share)
                })
                .collect();
            // The line of the figure. Sets of one utilization differ in their jobs per second,
            // which few sets do not average out.
            let line: Vec<(f64, f64)> = UTILIZATIONS
                .into_iter()
                .map(|utilization| (utilization as f64 / 1_000.0, at(policy, utilization)))
                .filter(|(_, share)| !share.is_nan())
                .collect();
            let of_job = UTILIZATIONS.into_iter().filter_map(|utilization| {
                let us = |run: &RunMeasurement| run.cost.dispatcher_us + run.cost.workers_us;
                let some: Vec<f64> = self.of(policy, Some(utilization)).map(us).collect();
                (!some.is_empty()).then(|| (utilization as f64 / 1_000.0, median(some.into_iter())))
            });
            let (_, of_sets) = fit(&points);
            judged.push(linear(policy, &line, &of_job.collect::<Vec<_>>(), of_sets));
            let share = at(policy, 900);
            judged.push(Threshold {
                what: format!("{policy}: overhead at 90 %"),
                found: format!("{share:.3} %, at most 0.13; SF3P 0.27"),
                passed: share <= 0.13,
            });
        }
        let (edf, fifo) = (at("edf", 900), at("fifo", 900));
        judged.push(Threshold {
            what: "FIFO costs no more than EDF at 90 %".to_owned(),
            found: format!("{fifo:.3} and {edf:.3} %"),
            passed: fifo <= edf,
        });
        let most =
            mean(self.of("edf", Some(900)).map(|run| run.cost.dispatcher_us + run.cost.workers_us));
        judged.push(Threshold {
            what: "EDF at 90 %, per job".to_owned(),
            found: format!("{most:.1} µs, at most 40"),
            passed: most <= 40.0,
        });
        judged
    }

    fn fig8_thresholds(&self) -> Vec<Threshold> {
        // Only runs without stalls, because lost CPU time is no overhead.
        let without_stalls = || {
            self.rows
                .iter()
                .filter(|row| row.run.stalls == 0)
                .filter_map(|row| Some((row, row.run.other? * 100.0)))
        };
        let least = without_stalls().map(|(_, other)| other).fold(f64::INFINITY, f64::min);
        let cells: Vec<f64> = UTILIZATIONS
            .into_iter()
            .flat_map(|utilization| POLICIES.iter().map(move |(policy, _)| (utilization, *policy)))
            .map(|(utilization, policy)| {
                mean(
                    without_stalls()
                        .filter(|(row, _)| (row.utilization, row.policy) == (utilization, policy))
                        .map(|(_, other)| other),
                )
            })
            .filter(|mean| !mean.is_nan())
            .collect();
        let (low, high) = (
            cells.iter().copied().fold(f64::INFINITY, f64::min),
            cells.iter().copied().fold(0.0, f64::max),
        );
        vec![
            Threshold {
                what: "non-scheduler overhead is never negative".to_owned(),
                found: format!(
                    "{least:.3} % at least, in {} runs without a stall",
                    without_stalls().count()
                ),
                passed: least >= 0.0 && least.is_finite(),
            },
            Threshold {
                what: "and the same for all utilisations and policies".to_owned(),
                found: format!("{low:.3} to {high:.3} %, ± 0.1 asked for"),
                passed: high - low <= 0.2,
            },
        ]
    }
}

/// Evaluates the overhead by utilization. `line` is the line of the figure, and `of_job` has the µs
/// of a job.
///
/// If jobs wait, the worker that completes one begins the next one and wakes no thread. So each job
/// costs less on a busier CPU. Under FIFO, where each job waits for its turn, the sum is then far
/// from linear. In this case the cost of a job must lie on a falling line (`docs/decisions/0016`).
fn linear(policy: &str, line: &[(f64, f64)], of_job: &[(f64, f64)], of_sets: f64) -> Threshold {
    let ((slope, explained), (job_slope, of_jobs)) = (fit(line), fit(of_job));
    let grows = slope > 0.0 && explained > 0.8;
    let spares = slope > 0.0 && job_slope < 0.0 && of_jobs > 0.8;
    Threshold {
        what: format!("{policy}: overhead grows linearly with utilisation, or less"),
        found: format!(
            "{slope:.3} % for each 100 %, R² {explained:.3} of the line, above 0.8 ({of_sets:.3} of single sets); or a job costs \
             less the busier the CPU is: {job_slope:.1} µs for each 100 %, R² {of_jobs:.3}, above 0.8"
        ),
        passed: grows || spares,
    }
}

/// `THEIRS[utilization][policy]`: CPU time of SF3P's own program on a similar computer, in percent.
const THEIRS: [[f64; 3]; 6] = [
    [0.180, 0.165, 0.178],
    [0.198, 0.209, 0.204],
    [0.248, 0.247, 0.283],
    [0.277, 0.279, 0.273],
    [0.272, 0.271, 0.251],
    [f64::NAN; 3],
];

fn theirs(row: usize, column: usize) -> String {
    let percent = THEIRS[row][column];
    if percent.is_nan() { "-".to_owned() } else { format!("{percent:.3}") }
}

/// Returns the largest difference between simulated and measured late jobs, in points.
fn worst<'a>(of: impl Iterator<Item = &'a RunMeasurement>) -> f64 {
    of.map(|run| (run.simulated - run.measured).abs()).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_linear_or_slower_growth_is_distinguished_from_faster_growth() {
        let at = |of: fn(f64) -> f64| {
            UTILIZATIONS.map(|utilization| utilization as f64 / 1_000.0).map(|u| (u, of(u)))
        };
        let passed = |share: fn(f64) -> f64, job: fn(f64) -> f64| {
            linear("edf", &at(share), &at(job), 0.0).passed
        };
        assert!(passed(|u| 0.1 * u, |_| 10.0), "a job costs the same at all utilisations");
        assert!(
            passed(|u| 0.16 * u - 0.11 * u * u, |u| 16.0 - 11.0 * u),
            "each job is cheaper the more there are"
        );
        let saws = |u: f64| if (u * 5.0).rem_euclid(2.0) < 1.0 { 5.0 } else { 9.0 };
        assert!(
            !passed(|u| if (u * 5.0).rem_euclid(2.0) < 1.0 { 0.05 } else { 0.06 * u }, saws),
            "neither is a line"
        );
        assert!(!passed(|u| 0.1 - 0.05 * u, |u| 16.0 - 11.0 * u), "nothing that shrinks");
    }
}
