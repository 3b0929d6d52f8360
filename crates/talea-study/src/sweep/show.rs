//! Presentation of a grid: a table of points, a table of runs, JSON, and a plot.

use super::axis::Axis;
use super::measure::{MeasuredOverheads, RunMeasurement};
use crate::output::Table;
use crate::plot::{Figure, Panel, Series};
use serde::Serialize;
use std::fmt::Write as _;

/// Point of the grid with its runs. Each run has a seed and a set.
pub struct Point {
    /// `values[axis]`: value of the axis at this point.
    pub values: Vec<String>,
    /// Seed, number of the generated set and measurement of each run.
    pub runs: Vec<(u64, u32, RunMeasurement)>,
}

/// Aggregates of a point.
#[derive(Serialize, Clone, Copy)]
pub struct Sums {
    runs: usize,
    /// Percentage of runs without a late or refused job.
    clean_percent: f64,
    /// Percentage of late or refused jobs, as the mean over the runs.
    late_percent: f64,
    /// The largest response time of all runs, in thousandths of its deadline.
    response_max_thousandths: u64,
    /// Scheduler overhead of real runs, as the mean over the runs, in percent of the CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduler_percent: Option<f64>,
    /// Non-scheduler overhead, in the same form.
    #[serde(skip_serializing_if = "Option::is_none")]
    other_percent: Option<f64>,
}

#[allow(clippy::cast_precision_loss, reason = "shown")]
impl Point {
    fn sums(&self) -> Sums {
        let count = self.runs.len().max(1) as f64;
        let seen = || self.runs.iter().map(|(_, _, seen)| seen);
        let mean = |of: fn(MeasuredOverheads) -> u64| {
            let ppm: Option<Vec<u64>> = seen().map(|seen| seen.overheads.map(of)).collect();
            ppm.map(|ppm| ppm.iter().sum::<u64>() as f64 / count / 10_000.0)
        };
        Sums {
            scheduler_percent: mean(|of| of.scheduler_ppm),
            other_percent: mean(|of| of.other_ppm),
            runs: self.runs.len(),
            clean_percent: 100.0 * seen().filter(|seen| seen.is_clean()).count() as f64 / count,
            late_percent: seen().map(RunMeasurement::late_percent).sum::<f64>() / count,
            response_max_thousandths: seen().map(|seen| seen.response).max().unwrap_or(0),
        }
    }
}

/// Plotted value.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlottedValue {
    /// Late and refused jobs, in percent.
    Late,
    /// Runs without a late or refused job, in percent.
    Clean,
    /// The largest response time in percent of its deadline.
    Response,
}

impl PlottedValue {
    fn words(self) -> (&'static str, &'static str) {
        match self {
            PlottedValue::Late => ("late jobs", "late jobs %"),
            PlottedValue::Clean => ("runs without a late job", "clean runs %"),
            PlottedValue::Response => ("largest response time", "response, % of the deadline"),
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "plotted")]
    fn of(self, sums: Sums) -> f64 {
        match self {
            PlottedValue::Late => sums.late_percent,
            PlottedValue::Clean => sums.clean_percent,
            PlottedValue::Response => sums.response_max_thousandths as f64 / 10.0,
        }
    }
}

/// Returns the points as a text table.
pub fn table(axes: &[Axis], points: &[Point]) -> String {
    let names: Vec<String> = axes.iter().map(|axis| axis.name().to_owned()).collect();
    let mut headings: Vec<&str> = names.iter().map(String::as_str).collect();
    headings.extend([">runs", ">clean %", ">late %", ">response/deadline"]);
    if is_executed(points) {
        headings.extend([">scheduler %", ">other %"]);
    }
    let mut table = Table::of(&headings);
    for point in points {
        let sums = point.sums();
        let mut row = point.values.clone();
        row.push(sums.runs.to_string());
        row.push(format!("{:.1}", sums.clean_percent));
        row.push(format!("{:.3}", sums.late_percent));
        let response = sums.response_max_thousandths;
        row.push(format!("{}.{:03}", response / 1_000, response % 1_000));
        let overheads = [sums.scheduler_percent, sums.other_percent].into_iter().flatten();
        row.extend(overheads.map(|percent| format!("{percent:.3}")));
        table.row(row);
    }
    table.render()
}

/// Whether the points are of real runs.
fn is_executed(points: &[Point]) -> bool {
    let mut runs = points.iter().flat_map(|point| &point.runs);
    runs.any(|(_, _, seen)| seen.overheads.is_some())
}

/// Returns the runs as CSV, one per line.
pub fn csv(axes: &[Axis], points: &[Point]) -> String {
    let mut out = String::new();
    for axis in axes {
        let _ = write!(out, "{},", cell(axis.name()));
    }
    out.push_str("seed,set,jobs,late,refused,response_max_thousandths");
    out.push_str(if is_executed(points) { ",scheduler_ppm,other_ppm\n" } else { "\n" });
    for point in points {
        let values: String = point.values.iter().map(|value| cell(value) + ",").collect();
        for (seed, set, seen) in &point.runs {
            let RunMeasurement { jobs, late, refused, response, overheads } = seen;
            let _ = write!(out, "{values}{seed},{set},{jobs},{late},{refused},{response}");
            if let Some(MeasuredOverheads { scheduler_ppm, other_ppm }) = overheads {
                let _ = write!(out, ",{scheduler_ppm},{other_ppm}");
            }
            out.push('\n');
        }
    }
    out
}

/// Quotes a cell as in RFC 4180.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[derive(Serialize)]
struct AxisJson<'a> {
    name: &'a str,
    values: &'a [String],
}

#[derive(Serialize)]
struct PointJson<'a> {
    /// `values[axis]`: value of the axis at this point.
    values: &'a [String],
    #[serde(flatten)]
    sums: Sums,
}

/// JSON of a grid.
#[derive(Serialize)]
pub struct SweepJson<'a> {
    file: String,
    duration_ns: Option<u64>,
    axes: Vec<AxisJson<'a>>,
    points: Vec<PointJson<'a>>,
}

/// Builds the JSON of a grid.
pub fn answer<'a>(
    file: String,
    duration_ns: Option<u64>,
    axes: &'a [Axis],
    points: &'a [Point],
) -> SweepJson<'a> {
    SweepJson {
        file,
        duration_ns,
        axes: axes
            .iter()
            .map(|axis| AxisJson { name: axis.name(), values: &axis.values })
            .collect(),
        points: points
            .iter()
            .map(|point| PointJson { values: &point.values, sums: point.sums() })
            .collect(),
    }
}

/// Selects the x axis among the numeric axes with several values: the utilization, or else the
/// longest axis.
pub fn x_axis(axes: &[Axis]) -> Option<(usize, Vec<f64>)> {
    let numbers = axes.iter().enumerate().filter(|(_, axis)| axis.values.len() > 1);
    let numbers = numbers.filter_map(|(at, axis)| Some((at, axis.numbers()?)));
    numbers.max_by_key(|(at, values)| {
        (axes[*at].name() == "utilization", values.len(), std::cmp::Reverse(*at))
    })
}

/// Returns the plot, with a line for each combination of the other axes.
pub fn svg(axes: &[Axis], points: &[Point], shown: PlottedValue, title: &str) -> Option<String> {
    let (right, numbers) = x_axis(axes)?;
    let mut series: Vec<Series> = Vec::new();
    for point in points {
        let others = |(at, value): (usize, &String)| {
            (at != right && axes[at].values.len() > 1).then(|| match &axes[at].target {
                super::axis::AxisTarget::Policy => value.clone(),
                _ => format!("{} {value}", axes[at].name()),
            })
        };
        let name: Vec<String> = point.values.iter().enumerate().filter_map(others).collect();
        let name = name.join(", ");
        let at = axes[right].values.iter().position(|value| *value == point.values[right])?;
        let dot = (numbers[at], shown.of(point.sums()));
        match series.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(dot),
            None => series.push(Series { name, points: vec![dot] }),
        }
    }
    for line in &mut series {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    let (what, unit) = shown.words();
    let is_time = axes[right].values.iter().any(|value| value.parse::<f64>().is_err());
    let x = format!("{}{}", axes[right].name(), if is_time { ", ms" } else { "" });
    let alone = axes.iter().filter(|axis| axis.values.len() == 1);
    let alone = alone.map(|axis| format!("{} {}", axis.name(), axis.values[0]));
    let title = std::iter::once(title.to_owned()).chain(alone).collect::<Vec<_>>().join(", ");
    let panels = vec![Panel { title: what.to_owned(), series }];
    Some(Figure { title, x: &x, y: unit, panels }.svg())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::axis::AxisTarget;

    fn grid() -> (Vec<Axis>, Vec<Point>) {
        let axes = vec![
            Axis::of(AxisTarget::Policy, "edf,rm").expect("a list"),
            Axis::of(AxisTarget::Utilization, "0.5,1").expect("a list"),
        ];
        let seen =
            |late| RunMeasurement { jobs: 200, late, refused: 0, response: 1_500, overheads: None };
        let point = |policy: &str, u: &str, late| Point {
            values: vec![policy.to_owned(), u.to_owned()],
            runs: vec![(1, 0, RunMeasurement { response: 1, ..seen(0) }), (2, 0, seen(late))],
        };
        (
            axes,
            vec![
                point("edf", "0.5", 0),
                point("edf", "1", 0),
                point("rm", "0.5", 0),
                point("rm", "1", 20),
            ],
        )
    }

    #[test]
    fn a_point_is_the_mean_of_its_runs() {
        let (axes, points) = grid();
        let sums = points[3].sums();
        assert!(
            (sums.clean_percent - 50.0).abs() < 1e-12 && (sums.late_percent - 5.0).abs() < 1e-12
        );
        assert_eq!(
            table(&axes, &points).lines().last(),
            Some("rm      1               2     50.0   5.000              1.500")
        );
        assert_eq!(csv(&axes, &points).lines().last(), Some("rm,1,2,0,200,20,0,1500"));
        assert_eq!(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }

    #[test]
    fn a_picture_has_a_line_for_each_combination_of_the_other_axes() {
        let (axes, points) = grid();
        let svg = svg(&axes, &points, PlottedValue::Late, "a < b").expect("a number to the right");
        assert_eq!(svg.matches("stroke-linejoin").count(), 2);
        assert!(svg.contains(">rm<") && svg.contains("a &lt; b") && svg.contains(">utilization<"));
        assert!(super::svg(&axes[..1], &points, PlottedValue::Late, "").is_none());
    }
}
