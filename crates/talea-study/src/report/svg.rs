//! Schedule as SVG: a row per CPU with the executed jobs, a row per server with its budget, and a
//! row per task. The row of a task has arrivals (up), deadlines (down), slots, execution and
//! tardiness.
//!
//! Details that are too dense are omitted or merged: arrows within a few pixels, narrow slots, and
//! segments of a job with an invisible gap.

#![allow(clippy::cast_precision_loss, reason = "a picture is exact to a tenth of a pixel")]

use super::outline::{ServerLine, SlotTable};
use super::{BudgetCurve, DrawnRoot, RunPage};
use crate::svg::{GREY_MIDDLE, GRID, Svg};
use std::fmt::Write;
use talea_sim::Segment;

/// Colours that are distinguishable with colour blindness (Okabe and Ito).
pub(super) const COLORS: [&str; 7] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00"];
const WIDTH: f64 = 1_000.0;
const ROW: f64 = 28.0;
const TOP: f64 = 50.0;
/// Maximum number of printed characters of a name.
const NAME: usize = 32;
/// Minimum average distance in pixels between two arrows of a row.
const DENSE: f64 = 6.0;

/// Coordinates of the drawing.
struct Sheet {
    left: f64,
    until_ns: u64,
    svg: Svg,
}

impl Sheet {
    fn x(&self, ns: u64) -> f64 {
        self.left + WIDTH * ns as f64 / self.until_ns.max(1) as f64
    }

    /// Draws the line and the name of a row.
    fn row(&mut self, name: &str, base: f64) {
        let shown: String = match name.char_indices().nth(NAME) {
            Some((at, _)) => format!("{}…", &name[..at]),
            None => name.to_owned(),
        };
        self.svg.text([self.left - 8.0, base - 3.0], "text-anchor=\"end\"", &shown);
        self.svg.path(&format!("M{} {base:.1}h{WIDTH}", self.left), "stroke=\"#999\"");
    }
}

/// Returns the schedule from 0 to `until_ns`.
pub fn svg(picture: &RunPage<'_>, until_ns: u64) -> String {
    let rows: usize = picture
        .roots
        .iter()
        .map(|DrawnRoot { outline, .. }| {
            outline.cpus as usize + outline.tasks.len() + outline.servers.len()
        })
        .sum();
    let names = picture.roots.iter().flat_map(|root| {
        let servers = root.outline.servers.iter().map(|server| server.name.len() + 7);
        root.outline.tasks.iter().map(|task| task.name.len()).chain(servers)
    });
    let left = 24.0 + 7.0 * names.max().unwrap_or(0).clamp(6, NAME + 1) as f64;
    let bottom = TOP + ROW * rows as f64;
    let (height, full) = (bottom + 34.0, left + WIDTH + 24.0);
    let cut = picture.roots.iter().filter_map(|root| root.schedule.cut).min();
    let until = cut.filter(|cut| cut.as_ns() < until_ns).map_or_else(String::new, |cut| {
        format!("; drawn up to {}", talea_core::Span::from_ns(cut.as_ns()))
    });
    let mut sheet = Sheet { left, until_ns, svg: Svg::new(full, height, 12) };
    let title = format!("{}{until}", picture.title);
    sheet.svg.text([12.0, 24.0], "font-size=\"15\" font-weight=\"600\"", &title);
    for step in 0..=10 {
        // Multiplied by the step first, because a tenth of 7 ns is no whole number.
        let at = (u128::from(until_ns) * step / 10) as u64;
        let x = sheet.x(at);
        sheet.svg.path(&format!("M{x:.1} {:.1}V{bottom:.1}", TOP - 8.0), GRID);
        sheet.svg.text([x, bottom + 18.0], GREY_MIDDLE, &talea_core::Span::from_ns(at).to_string());
    }
    let mut base = TOP + ROW - 6.0;
    for root in &picture.roots {
        for cpu in 0..root.outline.cpus {
            let name = if picture.roots.len() > 1 { root.outline.name.as_str() } else { "" };
            sheet.row(format!("{name} CPU {cpu}").trim_start(), base);
            ran(&mut sheet, root, |segment| segment.cpu.0 == cpu, base);
            base += ROW;
        }
        for (server, curve) in root.outline.servers.iter().zip(&root.budgets) {
            budget(&mut sheet, server, curve, base);
            base += ROW;
        }
        for task in 0..root.outline.tasks.len() {
            for table in &root.outline.tables {
                slots(&mut sheet, table, task as u32, base);
            }
            sheet.row(&root.outline.tasks[task].name, base);
            ran(&mut sheet, root, |segment| segment.task.0 as usize == task, base);
            marks(&mut sheet, root, task, base);
            base += ROW;
        }
    }
    sheet.svg.finish()
}

/// Draws the slots of a table in which a task may run.
fn slots(sheet: &mut Sheet, table: &SlotTable, task: u32, base: f64) {
    let until = sheet.until_ns;
    let wide = |ns: u64| WIDTH * ns as f64 / until.max(1) as f64;
    if wide(table.frame_ns) < DENSE * table.slots.len() as f64 {
        return;
    }
    for frame in (0..until).step_by(table.frame_ns.max(1) as usize) {
        for (number, slot) in
            table.slots.iter().enumerate().filter(|(_, slot)| slot.tasks.contains(&task))
        {
            let (start, end) =
                (frame.saturating_add(slot.start_ns), frame.saturating_add(slot.end_ns));
            if start >= until {
                continue;
            }
            let (from, to) = (sheet.x(start), sheet.x(end.min(until)));
            let color = if number % 2 == 0 { "#e3eef7" } else { "#f8eedc" };
            sheet.svg.rect([from, base - ROW + 4.0], [to - from, ROW - 4.0], color);
        }
    }
}

fn budget(sheet: &mut Sheet, server: &ServerLine, [times, left]: &BudgetCurve, base: f64) {
    sheet.row(&format!("budget {}", server.name), base);
    let high = |left: u64| base - (ROW - 8.0) * left as f64 / server.budget_ns.max(1) as f64;
    let mut line = String::new();
    let mut last = (0, 0);
    for (&at, &left) in times.iter().zip(left) {
        if at > sheet.until_ns {
            // Interpolated from the corner before, up to the edge.
            let (since, was) = last;
            let share = (sheet.until_ns - since) as f64 / (at - since).max(1) as f64;
            let there = was as f64 + (left as f64 - was as f64) * share;
            last = (sheet.until_ns, there.max(0.0) as u64);
            break;
        }
        let verb = if line.is_empty() { 'M' } else { 'L' };
        let _ = write!(line, "{verb}{:.2} {:.1}", sheet.x(at), high(left));
        last = (at, left);
    }
    if line.is_empty() {
        return;
    }
    let _ = write!(line, "L{:.2} {:.1}", sheet.x(sheet.until_ns), high(last.1));
    let (start, end) = (sheet.left, sheet.x(sheet.until_ns));
    let area = format!("{line}L{end:.2} {base:.1}L{start:.2} {base:.1}z");
    sheet.svg.path(&area, "fill=\"#6a4fb3\" fill-opacity=\"0.2\"");
    sheet.svg.path(&line, "stroke=\"#6a4fb3\" fill=\"none\"");
}

/// Draws the segments that belong to a row.
fn ran(sheet: &mut Sheet, root: &DrawnRoot<'_>, belongs: impl Fn(&Segment) -> bool, base: f64) {
    let until = sheet.until_ns;
    let segments = root.schedule.segments.iter();
    let mut here: Vec<&Segment> =
        segments.filter(|s| belongs(s) && s.start.as_ns() < until).collect();
    here.sort_by_key(|segment| segment.start);
    let mut here = here.into_iter().peekable();
    while let Some(segment) = here.next() {
        let from = sheet.x(segment.start.as_ns());
        let mut to = sheet.x(segment.end.as_ns().min(until));
        while let Some(next) = here.next_if(|next| {
            next.task == segment.task && to - from < DENSE && sheet.x(next.start.as_ns()) < to + 0.2
        }) {
            to = sheet.x(next.end.as_ns().min(until));
        }
        let color = COLORS[segment.task.0 as usize % COLORS.len()];
        sheet.svg.rect([from, base - 13.0], [(to - from).max(0.2), 13.0], color);
    }
}

fn marks(sheet: &mut Sheet, root: &DrawnRoot<'_>, task: usize, base: f64) {
    let (until, most) = (sheet.until_ns, (WIDTH / DENSE) as usize);
    let schedule = &root.schedule;
    let arrivals =
        schedule.arrivals.iter().filter(|(at, t)| t.0 as usize == task && at.as_ns() <= until);
    if arrivals.clone().count() <= most {
        for (at, _) in arrivals {
            let arrow = format!("M{:.2} {base:.1}v-19m-3 4l3 -4l3 4", sheet.x(at.as_ns()));
            sheet.svg.path(&arrow, "stroke=\"#222\" fill=\"none\"");
        }
    }
    let ended = schedule.ended.iter().map(|job| (job.task, job.deadline));
    let due = ended.chain(root.unfinished.iter().map(|(task, job)| (*task, job.deadline)));
    let due = due.filter(|(of, deadline)| of.0 as usize == task && deadline.as_ns() <= until);
    if due.clone().count() <= most {
        for (_, deadline) in due {
            let (x, y) = (sheet.x(deadline.as_ns()), base - 19.0);
            let arrow = format!("M{x:.2} {y:.1}v19m-3 -4l3 4l3 -4");
            sheet.svg.path(&arrow, "stroke=\"#777\" fill=\"none\"");
        }
    }
    // From the deadline to the end, if there is one.
    let ended = schedule
        .ended
        .iter()
        .filter(|job| job.is_late())
        .map(|job| (job.task, job.deadline, job.end));
    let never =
        root.unfinished.iter().map(|(task, job)| (*task, job.deadline, talea_core::Time::NEVER));
    for (_, deadline, end) in ended.chain(never).filter(|(of, ..)| of.0 as usize == task) {
        if deadline.as_ns() >= until {
            continue;
        }
        let (from, to) = (sheet.x(deadline.as_ns()), sheet.x(end.as_ns().min(until)));
        let (y, corner) = (base - 22.0, from + 5.0);
        let path = format!("M{from:.2} {y:.1}H{:.2}v3H{corner:.2}l-5 5z", to.max(corner));
        sheet.svg.path(&path, "fill=\"#c40018\"");
    }
}
