//! Picture of the runs side by side: the response time of each block, and the deadline.
//!
//! The scale is logarithmic, because response times range from one millisecond to seconds. The
//! picture is plain SVG text, which needs no library, script or font.
#![allow(clippy::cast_precision_loss, reason = "a picture is exact to a tenth of a pixel")]

use super::evaluate::BlockResult;
use super::job::DEADLINE;
use super::run::{Outcome, Run};
use std::fmt::Write;
use talea_study::svg::{GREY, GREY_END, GRID, Svg, escaped};

const WIDTH: f64 = 1080.0;
const HEIGHT: f64 = 400.0;
/// Left edge of the first panel's area of blocks. The following constants are the other sizes of
/// the picture.
const LEFT: f64 = 62.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 352.0;
const PANEL: f64 = 316.0;
const GAP: f64 = 26.0;

const MET: &str = "#2f6fb0";
const MISSED: &str = "#cc3524";
const IN_STALL: &str = "#8a8a8a";

/// Renders the picture as SVG.
pub(super) fn svg(outcome: &Outcome) -> String {
    let scale = Scale::of(outcome);
    let mut svg = Svg::new(WIDTH, HEIGHT, 13);
    svg.raw(format_args!("<title>Response time of every block, with and without Talea</title>"));
    for (number, run) in outcome.runs.iter().enumerate() {
        panel(&mut svg, LEFT + number as f64 * (PANEL + GAP), number == 0, run, &scale);
    }
    let key = format!(
        "Each dot: 10 ms of sound, {} of computing, on CPU {} beside {}. Above the line it came too late.",
        ms(outcome.size.block.as_ns()),
        outcome.cpu,
        busy(outcome.load),
    );
    svg.text([LEFT, HEIGHT - 14.0], GREY, &key);
    svg.finish()
}

/// Describes the load in words.
pub(super) fn busy(load: u32) -> String {
    if load == 1 {
        "1 ordinary busy process".to_owned()
    } else {
        format!("{load} ordinary busy processes")
    }
}

/// Renders nanoseconds as milliseconds.
pub(super) fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn panel(svg: &mut Svg, x: f64, labelled: bool, run: &Run, scale: &Scale) {
    svg.text([x, 30.0], "font-size=\"17\" font-weight=\"600\"", run.variant.title());
    let right = x + PANEL;
    for &(tick, ref label) in &scale.ticks {
        let y = scale.y(tick);
        svg.path(&format!("M{x:.0} {y:.1}H{right:.0}"), GRID);
        if labelled {
            let deadline = "text-anchor=\"end\" font-weight=\"600\"";
            let style = if tick == DEADLINE.as_ns() { deadline } else { GREY_END };
            svg.text([x - 6.0, y + 4.5], style, label);
        }
    }
    match &run.measurement {
        Ok(measurement) => {
            let verdict = &measurement.verdict;
            let missed = verdict.missed();
            // Misses in stalls do not count against the run.
            let color = if missed == verdict.in_stalls() { "#1d7a3a" } else { MISSED };
            svg.raw(format_args!(
                "<text x=\"{x:.0}\" y=\"52\"><tspan fill=\"{color}\" font-weight=\"600\">{missed} of {} blocks \
                 missed</tspan>{}</text>\n\
                 <text x=\"{x:.0}\" y=\"72\" fill=\"#555\">{}: median {:.1}, p99 {:.1}, max {:.1} ms</text>",
                measurement.blocks.len(),
                if verdict.in_stalls() > 0 {
                    format!(" ({} in stalls)", verdict.in_stalls())
                } else {
                    String::new()
                },
                escaped(&measurement.policy),
                verdict.median.as_ns() as f64 / 1e6,
                verdict.p99.as_ns() as f64 / 1e6,
                verdict.max.as_ns() as f64 / 1e6,
            ));
            let colors = [
                (BlockResult::Met, MET),
                (BlockResult::MissedInStall, IN_STALL),
                (BlockResult::MissedOverrun, MISSED),
                (BlockResult::Missed, MISSED),
            ];
            for (result, color) in colors {
                dots(svg, x, measurement, result, color, scale);
            }
        }
        Err(why) => {
            let first = why.lines().next().unwrap_or_default();
            let style = format!("fill=\"{MISSED}\"");
            svg.text([x, 52.0], &style, &format!("not shown: {first}"));
        }
    }
    let y = scale.y(DEADLINE.as_ns());
    let style = "stroke=\"#111\" stroke-width=\"1.4\" stroke-dasharray=\"7 4\"";
    svg.path(&format!("M{x:.0} {y:.1}H{right:.0}"), style);
}

/// Draws the blocks with one result. A dot is a stroke of length zero with round ends, and one path
/// has all dots of a colour.
fn dots(
    svg: &mut Svg,
    x: f64,
    measurement: &super::run::RunMeasurement,
    result: BlockResult,
    color: &str,
    scale: &Scale,
) {
    let count = measurement.blocks.len().max(2) - 1;
    let mut path = String::new();
    let has_result = |&(k, _): &(usize, _)| measurement.verdict.results[k] == result;
    for (k, block) in measurement.blocks.iter().enumerate().filter(has_result) {
        let _ = write!(
            path,
            "M{:.1} {:.1}h0",
            x + PANEL * k as f64 / count as f64,
            scale.y(block.response().as_ns())
        );
    }
    if !path.is_empty() {
        let style = "stroke-width=\"3\" stroke-linecap=\"round\" fill=\"none\"";
        svg.path(&path, &format!("stroke=\"{color}\" {style}"));
    }
}

/// Logarithmic scale of the picture, which converts nanoseconds to heights.
struct Scale {
    low: f64,
    high: f64,
    ticks: Vec<(u64, String)>,
}

impl Scale {
    fn of(outcome: &Outcome) -> Scale {
        let responses =
            outcome.runs.iter().filter_map(|run| run.measurement.as_ref().ok()).flat_map(
                |measurement| measurement.blocks.iter().map(|block| block.response().as_ns()),
            );
        let (low, high) =
            responses.fold((1_000_000, 30_000_000), |(low, high), ns| (low.min(ns), high.max(ns)));
        let (low, high) = (low.max(1000) as f64 * 0.9, high as f64 * 1.15);
        let mut ticks = Vec::new();
        let mut decade = 1000;
        while (decade as f64) < high {
            for step in [1, 2, 5] {
                let tick = decade * step;
                if (low..high).contains(&(tick as f64)) {
                    ticks.push((tick, talea_core::Span::from_ns(tick).to_string()));
                }
            }
            decade *= 10;
        }
        Scale { low: low.ln(), high: high.ln(), ticks }
    }

    fn y(&self, ns: u64) -> f64 {
        let share = ((ns.max(1) as f64).ln() - self.low) / (self.high - self.low);
        BOTTOM - share.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }
}
