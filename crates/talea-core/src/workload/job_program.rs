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
        let versions: Vec<Vec<JobStep>> = cost.by_version().into_iter().map(program).collect();
        let held = Vec::with_capacity(versions.iter().map(Vec::len).max().unwrap_or(0));
        let is_empty = versions.iter().all(Vec::is_empty);
        let (cost, done) = (Work::ZERO, Work::ZERO);
        (!is_empty).then_some(JobProgram {
            versions,
            version: 0,
            next: 0,
            cost,
            done,
            held,
            job: 0,
        })
    }

    /// Starts a job in `version` with the total `cost`. Returns the length of its first segment.
    ///
    /// # Panics
    /// If the steps are not sorted.
    pub fn begin(&mut self, job: u64, version: u32, cost: Work) -> Work {
        self.version = (version as usize).min(self.versions.len() - 1);
        (self.next, self.job, self.cost, self.done) = (0, job, cost, Work::ZERO);
        self.held.clear();
        self.advance()
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
        let segment = step.checked_sub(self.done).expect("steps are sorted");
        self.done = step;
        segment
    }

    /// Returns the next action at the end of the current segment; `None` after the last action.
    pub fn next_action(&mut self) -> Option<ResolvedAction> {
        while let Some(step) = self.versions[self.version]
            .get(self.next)
            .filter(|step| step.at.min(self.cost) <= self.done)
        {
            self.next += 1;
            let is_over = mutate!("sim-mark-short", self.done == self.cost, self.done > self.cost);
            let own = |counts: &[u32]| counts[(self.job % counts.len() as u64) as usize];
            match &step.action {
                StepAction::Lock(_) | StepAction::Suspend(_) if is_over => {}
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
    /// Pushes a number of tokens.
    Push(ChannelId, u32),
    /// Pops a number of tokens.
    Pop(ChannelId, u32),
}
