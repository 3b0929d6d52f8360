//! Two partitions with a runnable thread each: latency of a switch beside that of a plain timer,
//! and overlaps according to the kernel.
//!
//! The threads compute, as does the thread that the plain timer interrupts. [`super::budget`]
//! describes the cost of an interrupt in kernel mode.

use super::super::samples::{Samples, Summary, median};
use super::super::thresholds::{Threshold, range};
use super::releases::{lateness_by_hand, outside_stalls, periodic};
use crate::units::us;
use anyhow::Context;
use serde::Serialize;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::{Span, Time, Work};
use talea_exec::stalls::PROBE_PERIOD;
use talea_exec::work::{self, Calibration};
use talea_exec::{ExecInterval, Options, RootPlan, Stall, TaskPlan, execute};

/// Frame of two slots of equal length.
const FRAME: Span = Span::from_ns(4_000_000);
const SLOT: Span = Span::from_ns(2_000_000);
/// Number of frames in one run. A FIFO thread may have a CPU for 0.95 s before the kernel's fair
/// server takes the CPU for 0.05 s.
const FRAMES: u64 = 200;

/// Measurements of one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Round {
    timer: Summary,
    switch: Summary,
}

/// Measurements of the switches between partitions.
#[derive(Debug, Default, Serialize)]
pub(super) struct SlotReport {
    frames: u64,
    /// Number of frames that stalls exclude.
    in_stalls: u64,
    timer: Summary,
    /// Latency from the start of a slot to the kernel's switch to its partition.
    switch: Summary,
    rounds: Vec<Round>,
    /// Number of slots in which the other partition ran after the slot's own one had begun.
    overlaps: u64,
    /// Time from the start of a slot until the other partition no longer had the CPU.
    beyond: Summary,
}

fn tree() -> Tree {
    let half = |owner: u32| {
        let start = Span::from_ns(u64::from(owner) * SLOT.as_ns());
        Slot { start, end: start + SLOT, owner }
    };
    let policy =
        PolicySpec::Partitions { frame: FRAME, slots: vec![half(0), half(1)], lending: false };
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    for name in ["one", "two"] {
        let partition = tree.scheduler(Tree::ROOT, SchedulerSpec::new(name, PolicySpec::Fifo));
        let _ = tree.task(partition, TaskSpec::new(name, Span::from_ns(100_000_000_000)));
    }
    tree
}

/// Runs the frames. Returns the execution intervals and the stalls. Time zero is the start of the
/// first frame.
fn run(
    cpu: u32,
    calibration: Calibration,
    frames: u64,
) -> anyhow::Result<(Vec<ExecInterval>, Vec<Stall>)> {
    let duration = Span::from_ns(frames * FRAME.as_ns());
    let tree = tree();
    let load = || {
        periodic(Span::ZERO, Span::from_ns(100_000_000_000), 1, Work::from_ns(duration.as_ns() * 2))
    };
    let tasks =
        (0..2).map(|_| TaskPlan { load: load(), body: work::counter(calibration) }).collect();
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![cpu] };
    let options = Options { audit: false, max_switches: 1 << 16, ..Options::new(duration) };
    let mut report = execute(vec![plan], &options)?;
    let ran = report
        .roots
        .remove(0)
        .executed
        .context("the kernel does not say who ran: root or CAP_PERFMON is needed")?;
    Ok((ran, report.stalls))
}

/// Measures all rounds.
pub(super) fn measure(cpu: u32, quick: bool) -> anyhow::Result<SlotReport> {
    let (rounds, frames) = if quick { (1, 50) } else { (10, FRAMES) };
    let (calibration, mut found) = (Calibration::measure(), SlotReport::default());
    let (mut timer, mut switch, mut beyond) = (Vec::new(), Vec::new(), Vec::new());
    let summary = |all: &[u64]| Samples::from(all.to_vec()).summary();
    for _ in 0..rounds {
        let by_hand = outside_stalls(lateness_by_hand(cpu, SLOT, frames as usize)?).0;
        let (ran, stalls) = run(cpu, calibration, frames)?;
        let before = switch.len();
        found.evaluate(&ran, &stalls, frames, &mut switch, &mut beyond);
        let round = Round { timer: summary(&by_hand), switch: summary(&switch[before..]) };
        found.rounds.extend((round.timer.count > 0 && round.switch.count > 0).then_some(round));
        timer.extend(by_hand);
        // The kernel's fair server serves what has waited for it.
        std::thread::sleep(std::time::Duration::from_millis(60));
    }
    found.timer = summary(&timer);
    (found.switch, found.beyond) = (summary(&switch), summary(&beyond));
    Ok(found)
}

impl SlotReport {
    /// Evaluates one run slot by slot. Excludes the first frame, in which all caches are cold, and
    /// the last frame, which ends with the run.
    fn evaluate(
        &mut self,
        ran: &[ExecInterval],
        stalls: &[Stall],
        frames: u64,
        switch: &mut Vec<u64>,
        beyond: &mut Vec<u64>,
    ) {
        let is_perturbed = |from: Time, to: Time| {
            stalls.iter().any(|stall| stall.may_affect(from, to, PROBE_PERIOD))
        };
        for frame in 1..frames - 1 {
            self.frames += 1;
            for owner in 0..2u32 {
                let from = Time::from_ns(frame * FRAME.as_ns() + u64::from(owner) * SLOT.as_ns());
                let to = from + SLOT;
                if is_perturbed(from, to) {
                    self.in_stalls += u64::from(owner == 0);
                    continue;
                }
                let within: Vec<&ExecInterval> =
                    ran.iter().filter(|ran| ran.from < to && from < ran.to).collect();
                let own = |ran: &&&ExecInterval| ran.task.0 == owner && ran.from >= from;
                let Some(first) = within.iter().find(own) else {
                    // The partition did not run in its own slot.
                    self.overlaps += 1;
                    continue;
                };
                switch.push(first.from.since(from).as_ns());
                let others = || within.iter().filter(|ran| ran.task.0 != owner);
                self.overlaps += u64::from(others().any(|ran| ran.to > first.from));
                if let Some(end) = others().map(|ran| ran.to).max() {
                    beyond.push(end.since(from).as_ns());
                }
            }
        }
    }

    pub(super) fn thresholds(&self) -> Vec<Threshold> {
        // Each round is compared with its own timer: a tick of the kernel at a slot boundary
        // affects a whole round.
        const MAX_MORE_US: f64 = 15.0;
        let threshold = |what: &str, of: fn(&Summary) -> u64| {
            let more =
                || self.rounds.iter().map(|round| us(of(&round.switch)) - us(of(&round.timer)));
            let (found, (low, high)) = (median(more()), range(more()));
            Threshold {
                what: format!("switch of partitions against a plain timer, {what}"),
                found: format!(
                    "{found:.1} µs more ({low:.1} to {high:.1} in {} rounds), at most {MAX_MORE_US:.0} µs more",
                    self.rounds.len()
                ),
                passed: !self.rounds.is_empty() && found <= MAX_MORE_US,
            }
        };
        vec![
            threshold("median", |summary| summary.median_ns),
            threshold("p99", |summary| summary.p99_ns),
            Threshold {
                what: format!(
                    "overlaps of partitions in {} frames, by the kernel's switches",
                    self.frames
                ),
                found: self.overlaps.to_string(),
                passed: self.frames > 0 && self.overlaps == 0,
            },
        ]
    }

    pub(super) fn text(&self) -> String {
        format!(
            "switch of partitions: median {:.1}, p99 {:.1} µs; a plain timer {:.1} / {:.1} µs; the old one goes on for {:.1} / {:.1} \
             µs; {} of {} frames in stalls\n",
            us(self.switch.median_ns),
            us(self.switch.p99_ns),
            us(self.timer.median_ns),
            us(self.timer.p99_ns),
            us(self.beyond.median_ns),
            us(self.beyond.p99_ns),
            self.in_stalls,
            self.frames,
        )
    }
}
