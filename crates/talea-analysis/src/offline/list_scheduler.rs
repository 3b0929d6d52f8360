//! List scheduling: each job in list order receives the best remaining CPU and time.
//!
//! R. L. Graham, "Bounds for certain multiprocessing anomalies", BSTJ 45(9), 1966, with insertion
//! into gaps. A job receives the version and CPU with the earliest completion (ties: fewer pieces,
//! then declaration). A job without accelerators is split into pieces that fill gaps. If the list
//! is in order of deadlines, the table on one CPU is the schedule of EDF.

use super::model::{Choice, Piece, Problem, minus};
use alloc::vec::Vec;
use talea_core::Span;
use talea_core::mutate;

/// Busy intervals of one CPU or accelerator: disjoint, sorted by start.
#[derive(Clone, Default)]
struct BusyIntervals(Vec<(Span, Span)>);

impl BusyIntervals {
    fn add(&mut self, start: Span, end: Span) {
        let at = self.0.partition_point(|&(taken, _)| taken < start);
        self.0.insert(at, (start, end));
    }

    /// Returns the earliest time from `from` on at which `length` is free.
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

    /// Passes the gaps from `from` on to `take`, until it returns `true`. The last gap has no end.
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

/// Table under construction.
pub(super) struct Builder<'a> {
    problem: &'a Problem,
    cpus: Vec<BusyIntervals>,
    accelerators: Vec<BusyIntervals>,
    ends: Vec<Span>,
    pieces: Vec<Piece>,
    /// Pieces of the placement that is being tried.
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
            cpus: alloc::vec![BusyIntervals::default(); problem.cpus as usize],
            accelerators: alloc::vec![BusyIntervals::default(); accelerators as usize],
            ends: alloc::vec![Span::ZERO; problem.jobs.len()],
            pieces: Vec::new(),
            trial: Vec::new(),
            best: Vec::new(),
        }
    }

    /// Removes all pieces from the table.
    pub(super) fn clear(&mut self) {
        self.cpus.iter_mut().chain(&mut self.accelerators).for_each(|taken| taken.0.clear());
        self.pieces.clear();
    }

    /// Places `job` and returns its completion. All predecessors of `job` are placed.
    pub(super) fn place(&mut self, job: usize) -> Span {
        let spec = &self.problem.jobs[job];
        let from =
            spec.predecessors.iter().map(|&before| self.ends[before]).fold(spec.release, Ord::max);
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
                    mutate!("offline-accelerators", taken.add(start, end));
                }
            }
            self.pieces.push(Piece { job, choice, cpu, start, end });
        }
        self.ends[job] = end;
        end
    }

    /// Splits a job into pieces, each of which pays the overhead.
    fn fill(&mut self, cpu: u32, from: Span, choice: &Choice) {
        let (overhead, trial) = (self.problem.overhead, &mut self.trial);
        let mut left = choice.cost;
        self.cpus[cpu as usize].gaps(from, |start, until| {
            let wanted = start + overhead + left;
            let end = until.map_or(wanted, |until| until.min(wanted));
            // A piece with overhead only is dropped.
            if let Some(done) =
                minus(end, start).checked_sub(overhead).filter(|done| !done.is_zero())
            {
                trial.push((start, end));
                left = minus(left, done);
            }
            left.is_zero()
        });
    }

    /// Places a job in one piece, with its accelerators.
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

    /// Returns the table so far, sorted by start.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let mut pieces = self.pieces.clone();
        pieces.sort_by_key(|piece| (piece.start, piece.cpu));
        pieces
    }
}
