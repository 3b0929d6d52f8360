//! Program of a job: the steps that divide its work.
//!
//! Model: the steps of a job cut its work into segments. At the end of a segment, the driver
//! performs the actions at that offset in order. A contended lock or a suspension interrupts these
//! actions. The remaining actions follow when the job resumes.

use super::{Cost, JobStep, StepAction};
use crate::engine::{ChannelId, ResourceId};
use crate::mutate;
use crate::{Span, Work};
use alloc::vec;
use alloc::vec::Vec;

/// The steps of one task, and the progress of its current job.
#[derive(Clone, Debug)]
pub struct JobProgram {
    /// `versions[v]`: steps of version `v`. The last element applies to all further versions.
    versions: Vec<Vec<JobStep>>,
    version: usize,
    next: usize,
    /// Cost of the current job.
    cost: Work,
    /// End of the current segment, as an offset in the job's work.
    done: Work,
    /// Resources that the current job holds.
    held: Vec<ResourceId>,
    job: u64,
    /// `floating[v]`: sections at random offsets in version `v`, like `versions`.
    floating: Vec<Option<Floating>>,
    seed: u64,
    /// Random numbers of the current job.
    random: u64,
    /// Offset at which the next part inside or outside of a floating section begins.
    boundary: Work,
}

/// Longest and last section of a job whose sections have random offsets.
#[derive(Clone, Copy, Debug)]
struct Floating {
    longest: Work,
    last: Work,
}

impl JobProgram {
    /// Creates the program of a task with the given cost and channels.
    ///
    /// Each input has the number of tokens of an activation. The result is `None` if the jobs only
    /// compute.
    pub fn new(
        cost: &Cost,
        inputs: &[(ChannelId, u32)],
        outputs: &[ChannelId],
    ) -> Option<JobProgram> {
        let program = |cost: &Cost| {
            let mut steps = match cost {
                Cost::WithSteps { steps, .. } => steps.clone(),
                _ => Vec::new(),
            };
            let has_step = |steps: &[JobStep], wanted: &dyn Fn(&StepAction) -> bool| {
                steps.iter().any(|step| wanted(&step.action))
            };
            for &(channel, tokens) in inputs {
                if !has_step(
                    &steps,
                    &|action| matches!(action, StepAction::Pop(of, _) if *of == channel),
                ) {
                    steps.insert(
                        0,
                        JobStep { at: Work::ZERO, action: StepAction::Pop(channel, vec![tokens]) },
                    );
                }
            }
            for &channel in outputs {
                if !has_step(
                    &steps,
                    &|action| matches!(action, StepAction::Push(of, _) if *of == channel),
                ) {
                    steps.push(JobStep {
                        at: Work::from_ns(u64::MAX),
                        action: StepAction::Push(channel, vec![1]),
                    });
                }
            }
            steps
        };
        let mut versions: Vec<Vec<JobStep>> = cost.by_version().into_iter().map(program).collect();
        let mut floating = Vec::new();
        for steps in &mut versions {
            let of = |step: &JobStep| match step.action {
                StepAction::FloatingSections { longest, last } => Some(Floating { longest, last }),
                _ => None,
            };
            floating.push(steps.iter().find_map(of));
            steps.retain(|step| of(step).is_none());
        }
        let held = Vec::with_capacity(versions.iter().map(Vec::len).max().unwrap_or(0));
        let is_empty = versions.iter().all(Vec::is_empty) && floating.iter().all(Option::is_none);
        let (cost, done) = (Work::ZERO, Work::ZERO);
        (!is_empty).then_some(JobProgram {
            versions,
            version: 0,
            next: 0,
            cost,
            done,
            held,
            job: 0,
            floating,
            seed: 0,
            random: 0,
            boundary: Work::ZERO,
        })
    }

    /// Whether a job may wait for a device and keep its CPU idle.
    pub fn may_hold(&self) -> bool {
        let holds =
            |step: &JobStep| matches!(step.action, StepAction::Occupy { is_spinning: false, .. });
        self.versions.iter().flatten().any(holds)
    }

    /// Sets the seed of the offsets of floating sections.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> JobProgram {
        JobProgram { seed, ..self }
    }

    /// Starts a job in `version` with the total `cost`. Returns the length of its first segment.
    ///
    /// # Panics
    /// If the steps are not sorted.
    pub fn begin(&mut self, job: u64, version: u32, cost: Work) -> Work {
        self.version = (version as usize).min(self.versions.len() - 1);
        (self.next, self.job, self.cost, self.done) = (0, job, cost, Work::ZERO);
        self.held.clear();
        self.random = self.seed ^ mix(job);
        let floats = self.floating[self.version].is_some();
        self.boundary = if floats { Work::ZERO } else { Work::from_ns(u64::MAX) };
        self.advance()
    }

    /// Begins a part inside or outside of a floating section. Parts are as long as the longest
    /// section, short, or in between, with equal probability.
    fn begin_part(&mut self, Floating { longest, last }: Floating) -> ResolvedAction {
        self.random = mix(self.random);
        let from = self.done;
        let is_in_last =
            !last.is_zero() && from.as_ns().saturating_add(last.as_ns()) >= self.cost.as_ns();
        let length = match self.random % 3 {
            _ if is_in_last => u64::MAX,
            0 => longest.as_ns(),
            1 => 1,
            _ => self.random / 3 % longest.as_ns() + 1,
        };
        self.boundary = Work::from_ns(from.as_ns().saturating_add(length));
        if !is_in_last && !last.is_zero() {
            let begin_of_last = self.cost.checked_sub(last).unwrap_or(self.cost);
            self.boundary = self.boundary.min(begin_of_last);
        }
        let nonpreemptive = is_in_last || self.random & 1 << 40 == 0;
        ResolvedAction::PreemptionPoint { nonpreemptive }
    }

    /// Advances to the next step, or to the end. Returns the length of the segment.
    fn advance(&mut self) -> Work {
        let step = mutate!(
            "sim-mark-order",
            self.versions[self.version]
                .get(self.next)
                .map_or(self.cost, |step| step.at.min(self.cost)),
            self.versions[self.version].get(self.next).map_or(self.cost, |_| self.cost)
        );
        let step = step.min(self.boundary);
        let segment = step.checked_sub(self.done).expect("steps are sorted");
        self.done = step;
        segment
    }

    /// Returns the next action at the end of the current segment; `None` after the last action.
    pub fn next_action(&mut self) -> Option<ResolvedAction> {
        if let Some(floating) = self.floating[self.version]
            && self.boundary <= self.done
            && self.done < self.cost
        {
            return Some(self.begin_part(floating));
        }
        while let Some(step) = self.versions[self.version]
            .get(self.next)
            .filter(|step| step.at.min(self.cost) <= self.done)
        {
            self.next += 1;
            let is_over = mutate!("sim-mark-short", self.done == self.cost, self.done > self.cost);
            let own = |counts: &[u32]| counts[(self.job % counts.len() as u64) as usize];
            match &step.action {
                StepAction::Lock(_)
                | StepAction::Suspend(_)
                | StepAction::Occupy { .. }
                | StepAction::PreemptionPoint
                    if is_over => {}
                StepAction::PreemptionPoint => {
                    return Some(ResolvedAction::PreemptionPoint { nonpreemptive: true });
                }
                StepAction::FloatingSections { .. } => unreachable!("not a step of a program"),
                StepAction::Unlock(resource) if !self.held.contains(resource) => {}
                StepAction::Lock(resource) => {
                    self.held.push(*resource);
                    return Some(ResolvedAction::Lock(*resource));
                }
                StepAction::Unlock(resource) => {
                    self.held.retain(|held| held != resource);
                    return Some(ResolvedAction::Unlock(*resource));
                }
                StepAction::Suspend(span) => return Some(ResolvedAction::Suspend(*span)),
                &StepAction::Occupy { length, is_spinning } => {
                    return Some(ResolvedAction::Occupy { length, is_spinning });
                }
                StepAction::Push(channel, counts) => {
                    return Some(ResolvedAction::Push(*channel, own(counts)));
                }
                StepAction::Pop(channel, counts) => {
                    return Some(ResolvedAction::Pop(*channel, own(counts)));
                }
            }
        }
        None
    }

    /// Starts the segment that follows, and returns its length; `None` if the job has completed.
    ///
    /// # Panics
    /// If the steps are not sorted.
    pub fn next_segment(&mut self) -> Option<Work> {
        let is_over = self.done == self.cost && self.next == self.versions[self.version].len();
        (!is_over).then(|| self.advance())
    }
}

/// An action with its arguments for one job.
#[derive(Clone, Copy, Debug)]
pub enum ResolvedAction {
    /// Requests a resource.
    Lock(ResourceId),
    /// Releases a resource.
    Unlock(ResourceId),
    /// Waits for an event other than a CPU, for a span.
    Suspend(Span),
    /// Waits for a device and keeps the CPU: [`StepAction::Occupy`].
    Occupy {
        /// Time that the device takes.
        length: Span,
        /// Whether the job consumes CPU time.
        is_spinning: bool,
    },
    /// Pushes a number of tokens.
    Push(ChannelId, u32),
    /// Pops a number of tokens.
    Pop(ChannelId, u32),
    /// Passes a preemption point.
    PreemptionPoint {
        /// Whether a nonpreemptive section begins here.
        nonpreemptive: bool,
    },
}

/// Returns a pseudo-random number (SplitMix64).
fn mix(from: u64) -> u64 {
    let mut z = from.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
