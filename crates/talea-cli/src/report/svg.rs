//! The schedule as SVG, a row per task: arrivals (up), deadlines (down), what ran, and what was late.

#![allow(clippy::cast_precision_loss, reason = "a picture is exact to a tenth of a pixel")]

use super::{Drawn, Picture};
use std::fmt::Write;

/// Hues that differ for people who see colours differently (Okabe and Ito).
pub(crate) const COLORS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00"];
const LEFT: f64 = 150.0;
const WIDTH: f64 = 1_000.0;
const ROW: f64 = 26.0;
const TOP: f64 = 46.0;

/// What happens from 0 to `until`.
pub(crate) fn svg(picture: &Picture<'_>, until_ns: u64) -> String {
    let rows: usize = picture.roots.iter().map(|root| root.tasks.len()).sum();
    let height = TOP + ROW * rows as f64 + 40.0;
    let full = LEFT + WIDTH + 20.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {full:.0} {height:.0}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#222\" role=\"img\">\n\
         <rect width=\"{full:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"15\" font-weight=\"600\">{}</text>\n",
        escaped(&picture.title)
    );
    let x = |ns: u64| LEFT + WIDTH * ns as f64 / until_ns.max(1) as f64;
    let mut y = TOP;
    for root in &picture.roots {
        for task in 0..root.tasks.len() {
            row(&mut text, root, task, y, until_ns, &x);
            y += ROW;
        }
    }
    for step in 0..=10 {
        let at = until_ns / 10 * step;
        let _ = writeln!(
            text,
            "<path d=\"M{0:.1} {TOP}V{y:.1}\" stroke=\"#e4e4e4\"/>\
             <text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"middle\" fill=\"#555\">{2}</text>",
            x(at),
            y + 18.0,
            talea_core::Span::from_ns(at)
        );
    }
    text.push_str("</svg>\n");
    text
}

fn row(text: &mut String, root: &Drawn<'_>, task: usize, y: f64, until: u64, x: &impl Fn(u64) -> f64) {
    let color = COLORS[task % COLORS.len()];
    let base = y + ROW - 6.0;
    let _ = writeln!(
        text,
        "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><path d=\"M{LEFT} {base:.1}h{WIDTH}\" stroke=\"#bbb\"/>",
        LEFT - 8.0,
        base - 2.0,
        escaped(root.tasks[task].0)
    );
    let schedule = &root.schedule;
    for segment in schedule.segments.iter().filter(|s| s.task.0 as usize == task && s.start.as_ns() < until) {
        let (from, to) = (x(segment.start.as_ns()), x(segment.end.as_ns().min(until)));
        let _ = writeln!(
            text,
            "<rect x=\"{from:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"13\" fill=\"{color}\"/>",
            base - 13.0,
            to - from
        );
        if root.cpus > 1 && to - from > 14.0 {
            let _ = writeln!(
                text,
                "<text x=\"{:.2}\" y=\"{:.1}\" font-size=\"9\" fill=\"#fff\">{}</text>",
                from + 3.0,
                base - 3.5,
                segment.cpu.0
            );
        }
    }
    for (at, _) in schedule.arrivals.iter().filter(|(at, t)| t.0 as usize == task && at.as_ns() <= until) {
        let _ = writeln!(
            text,
            "<path d=\"M{0:.2} {1:.1}v-18m-3 4l3 -4l3 4\" stroke=\"#222\" fill=\"none\"/>",
            x(at.as_ns()),
            base
        );
    }
    for job in schedule.ended.iter().filter(|job| job.task.0 as usize == task) {
        if job.deadline.as_ns() <= until {
            let _ = writeln!(
                text,
                "<path d=\"M{0:.2} {1:.1}v18m-3 -4l3 4l3 -4\" stroke=\"#888\" fill=\"none\"/>",
                x(job.deadline.as_ns()),
                base - 18.0
            );
        }
        if job.is_late() && job.end.as_ns() <= until {
            let _ = writeln!(
                text,
                "<path d=\"M{0:.2} {1:.1}l6 6m0 -6l-6 6\" stroke=\"#cc0000\" stroke-width=\"2\"/>",
                x(job.end.as_ns()) - 3.0,
                base - 21.0
            );
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
