//! A table from a list: job after job takes the best place that those before it have left.
//!
//! R. L. Graham, "Bounds for certain multiprocessing anomalies", Bell System Technical Journal
//! 45(9), 1966, with insertion into gaps. A job takes the version and CPU with which it ends first
//! (ties: fewer pieces, then declaration), without accelerators in pieces that fill gaps. On one
//! CPU, listed by deadlines, that is the schedule of EDF.

use super::{Choice, Piece, Problem, minus};
use alloc::vec::Vec;
use talea_core::Span;

/// What is taken of one CPU or accelerator: disjoint, by start.
#[derive(Clone, Default)]
struct Taken(Vec<(Span, Span)>);

impl Taken {
    fn add(&mut self, start: Span, end: Span) {
        let at = self.0.partition_point(|&(taken, _)| taken < start);
        self.0.insert(at, (start, end));
    }

    /// The earliest instant from `from` on at which `length` is free.
    fn free_for(&self, from: Span, length: Span) -> Span {
        let mut start = from;
        for &(taken, until) in &self.0[self.0.partition_point(|&(_, until)| until <= from)..] {
            if start + length <= taken {
                break;
            }
            start = start.max(until);
        }
        start
    }

    /// Calls `take` with one gap after the other from `from` on, until it has enough; the last gap
    /// has no end.
    fn gaps(&self, from: Span, mut take: impl FnMut(Span, Option<Span>) -> bool) {
        let mut start = from;
        for &(taken, until) in &self.0[self.0.partition_point(|&(_, until)| until <= from)..] {
            if start < taken && take(start, Some(taken)) {
                return;
            }
            start = start.max(until);
        }
        take(start, None);
    }
}

/// A table under construction.
pub(super) struct Builder<'a> {
    problem: &'a Problem,
    cpus: Vec<Taken>,
    accelerators: Vec<Taken>,
    ends: Vec<Span>,
    pieces: Vec<Piece>,
    /// Of the place that is being tried.
    trial: Vec<(Span, Span)>,
    best: Vec<(Span, Span)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(problem: &'a Problem) -> Builder<'a> {
        let widest =
            problem.jobs.iter().flat_map(|job| &job.choices).map(|choice| choice.accelerators);
        let accelerators = 64 - widest.fold(0, |all, some| all | some).leading_zeros();
        Builder {
            problem,
            cpus: alloc::vec![Taken::default(); problem.cpus as usize],
            accelerators: alloc::vec![Taken::default(); accelerators as usize],
            ends: alloc::vec![Span::ZERO; problem.jobs.len()],
            pieces: Vec::new(),
            trial: Vec::new(),
            best: Vec::new(),
        }
    }

    /// Empties the table.
    pub(super) fn clear(&mut self) {
        self.cpus.iter_mut().chain(&mut self.accelerators).for_each(|taken| taken.0.clear());
        self.pieces.clear();
    }

    /// Places `job`, all whose predecessors are placed, and says when it ends.
    pub(super) fn place(&mut self, job: usize) -> Span {
        let spec = &self.problem.jobs[job];
        let from = spec.after.iter().map(|&before| self.ends[before]).fold(spec.release, Ord::max);
        let mut found: Option<((Span, usize), usize, u32)> = None;
        for (number, choice) in spec.choices.iter().enumerate() {
            for cpu in (0..self.problem.cpus).filter(|cpu| spec.cpus >> cpu & 1 == 1) {
                self.trial.clear();
                if choice.accelerators == 0 && self.problem.preemptive {
                    self.fill(cpu, from, choice);
                } else {
                    self.fit(cpu, from, choice);
                }
                let end = self.trial.last().expect("there is room in the end").1;
                let worth = (end, self.trial.len());
                if found.is_none_or(|(best, ..)| worth < best) {
                    found = Some((worth, number, cpu));
                    core::mem::swap(&mut self.trial, &mut self.best);
                }
            }
        }
        let ((end, _), choice, cpu) = found.expect("well formed");
        for &(start, end) in &self.best {
            self.cpus[cpu as usize].add(start, end);
            for (number, taken) in self.accelerators.iter_mut().enumerate() {
                if spec.choices[choice].accelerators >> number & 1 == 1 {
                    taken.add(start, end);
                }
            }
            self.pieces.push(Piece { job, choice, cpu, start, end });
        }
        self.ends[job] = end;
        end
    }

    /// In pieces, each of which pays the overhead.
    fn fill(&mut self, cpu: u32, from: Span, choice: &Choice) {
        let (overhead, trial) = (self.problem.overhead, &mut self.trial);
        let mut left = choice.cost;
        self.cpus[cpu as usize].gaps(from, |start, until| {
            let wanted = start + overhead + left;
            let end = until.map_or(wanted, |until| until.min(wanted));
            // A piece that pays its overhead and nothing more is none.
            if let Some(done) =
                minus(end, start).checked_sub(overhead).filter(|done| !done.is_zero())
            {
                trial.push((start, end));
                left = minus(left, done);
            }
            left.is_zero()
        });
    }

    /// In one piece, with the accelerators.
    fn fit(&mut self, cpu: u32, from: Span, choice: &Choice) {
        let length = choice.cost + self.problem.overhead;
        let held = |number: usize| choice.accelerators >> number & 1 == 1;
        let mut start = from;
        loop {
            let mut next = self.cpus[cpu as usize].free_for(start, length);
            for (_, taken) in
                self.accelerators.iter().enumerate().filter(|&(number, _)| held(number))
            {
                next = taken.free_for(next, length);
            }
            if next == start {
                break;
            }
            start = next;
        }
        self.trial.push((start, start + length));
    }

    /// The table so far, by start.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let mut pieces = self.pieces.clone();
        pieces.sort_by_key(|piece| (piece.start, piece.cpu));
        pieces
    }
}
