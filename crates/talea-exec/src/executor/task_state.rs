//! State of a task of a root: its load, the segment of its job, its CPU time.
//!
//! Model: a job program ([`JobProgram`]) cuts the work of a job into segments: where it locks,
//! suspends itself, or moves tokens. The worker runs one segment after the other.
//!
//! | state of a task | meaning |
//! | --- | --- |
//! | `None` | no job has started, or it has ended |
//! | `Pending(work)` | the next segment waits for a dispatch; the job may be blocked meanwhile |
//! | `PendingWait` | a wait for a device in which the worker keeps its CPU, to be started |
//! | `Rest` | the worker waits within a segment, as it has suspended its job |
//! | `Running` | the worker runs a segment, or was preempted in it |
//!
//! | from | to | function | cause |
//! | --- | --- | --- | --- |
//! | `None` | `Pending` | `begin_job` | the engine dispatched the job for the first time |
//! | `Pending` | `Running` | `start_segment` | the engine dispatched the job |
//! | `Running` | `Running` | none | the engine preempted and resumed the job |
//! | `Running`, `Pending(0)` | `None` | `end_segment` | the segment ended; one without work ends at once |
//! | `None` | `Pending` | `continue_job` | another segment follows |
//! | `None` | `PendingWait` | `occupy` | the job waits for a device and keeps its CPU |
//! | `PendingWait` | `Running` | `start_segment` | the engine dispatched the job |
//! | `Running` | `Rest` | `suspend` | the job suspends itself within the segment |
//! | `Rest` | `Running` | `start_segment` | the engine dispatched the job after its suspension |
//! | `None` | `None` | `end_job` | no segment follows |
//! | any | `None` | `interrupt` | the root switches to another tree |

use crate::job_stats::JobStats;
use crate::load::{Arrival, Cursor, Load};
use crate::work::{DeviceWait, Job};
use talea_core::engine::{ChannelId, Job as EngineJob};
use talea_core::mutate;
use talea_core::workload::job_program::{JobProgram, ResolvedAction};
use talea_core::{Time, Work};

/// State of the current segment of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    /// No job.
    None,
    /// The next segment, of this length, which waits for a dispatch of the job.
    Pending(Work),
    /// A wait for a device that the worker has not started.
    PendingWait(DeviceWait),
    /// The rest of a segment in which the job has suspended itself.
    Rest,
    /// The segment that the worker runs.
    Running,
}

/// State of one task.
#[derive(Debug)]
pub(super) struct TaskState {
    load: Cursor,
    /// Job program, if jobs have more than one segment.
    program: Option<JobProgram>,
    /// Channels of which the task is an end, if its jobs move tokens explicitly.
    channels: Vec<ChannelId>,
    /// Number of the job that has started and not ended.
    begun_job: Option<u64>,
    segment: Segment,
    /// Start and end of the wait in which the worker keeps its CPU idle, in that segment.
    hold: Option<(Time, Time)>,
    /// Value of the CPU clock of the worker up to which the engine was charged.
    charged: Work,
    /// Job that was pending when the root switched to another tree, with its first release.
    carried: Option<EngineJob>,
    stats: JobStats,
}

impl TaskState {
    /// Creates the state of a task whose worker has consumed `charged` before the run.
    pub(super) fn new(
        load: Load,
        inputs: &[(ChannelId, u32)],
        outputs: &[ChannelId],
        charged: Work,
    ) -> Self {
        let program =
            if load.explicit_tokens { None } else { JobProgram::new(&load.marks, inputs, outputs) };
        TaskState {
            load: Cursor::new(load),
            program,
            channels: Vec::new(),
            begun_job: None,
            segment: Segment::None,
            hold: None,
            charged,
            carried: None,
            stats: JobStats::default(),
        }
    }

    /// Adds a channel of which the task is an end.
    pub(super) fn add_channel(&mut self, channel: ChannelId) {
        self.channels.push(channel);
    }

    /// Returns the channels with tokens that jobs move explicitly.
    pub(super) fn explicit_channels(&self) -> &[ChannelId] {
        if self.load.has_explicit_tokens() { &self.channels } else { &[] }
    }

    pub(super) fn stats(&self) -> JobStats {
        self.stats
    }

    /// Returns the next arrival of the load.
    pub(super) fn next_arrival(&self) -> Option<Arrival> {
        self.load.next()
    }

    /// Takes the next arrival of the load.
    pub(super) fn take_arrival(&mut self) -> Option<Arrival> {
        let arrival = self.load.next()?;
        self.load.advance();
        Some(arrival)
    }

    /// Charges the CPU time up to value `used` of the worker's clock. Returns the work since the
    /// last charge; zero if a charged remainder was more than what was used.
    pub(super) fn charge_up_to(&mut self, used: Work) -> Work {
        let work = used.checked_sub(self.charged).unwrap_or(Work::ZERO);
        if !work.is_zero() {
            self.charged = used;
        }
        work
    }

    /// Charges `work` before the worker has consumed it.
    pub(super) fn charge_ahead(&mut self, work: Work) {
        self.charged += work;
    }

    /// Begins a job that was dispatched, unless it has begun before.
    pub(super) fn begin_job(&mut self, job: u64, version: u32) {
        if self.begun_job == Some(job) {
            return;
        }
        self.begun_job = Some(job);
        let cost = self.load.cost(mutate!("exec-segment-version", version, 0));
        let first = self.program.as_mut().map_or(cost, |program| program.begin(job, version, cost));
        self.segment = Segment::Pending(first);
    }

    /// Whether the next segment of the job program has no work.
    pub(super) fn is_segment_empty(&self) -> bool {
        self.program.is_some() && self.segment == Segment::Pending(Work::ZERO)
    }

    /// Whether the worker has not received the next segment yet.
    pub(super) fn is_segment_pending(&self) -> bool {
        matches!(self.segment, Segment::Pending(_) | Segment::PendingWait(_) | Segment::Rest)
    }

    /// Whether the worker runs a segment, or was preempted in it.
    pub(super) fn is_segment_running(&self) -> bool {
        self.segment == Segment::Running
    }

    /// Whether the worker runs a segment of `job`.
    pub(super) fn runs_job(&self, job: u64) -> bool {
        self.is_segment_running() && self.begun_job == Some(job)
    }

    /// Starts the pending segment of a job that was dispatched. Returns what the worker gets;
    /// `None` if the worker continues a segment.
    pub(super) fn start_segment(&mut self, number: u64, version: u32) -> Option<Job> {
        let (cost, wait) = match self.segment {
            Segment::Pending(cost) => (cost, None),
            Segment::PendingWait(wait) => (Work::ZERO, Some(wait)),
            Segment::Rest => (Work::ZERO, None),
            Segment::None | Segment::Running => return None,
        };
        self.segment = Segment::Running;
        Some(Job { wait, ..Job::new(number, version, cost) })
    }

    /// Interrupts the segment that the worker runs, because the job suspends itself.
    pub(super) fn suspend(&mut self) {
        assert_eq!(self.segment, Segment::Running, "only a running job suspends itself");
        self.segment = Segment::Rest;
    }

    /// Whether the job has suspended itself within a segment.
    pub(super) fn is_suspended(&self) -> bool {
        self.segment == Segment::Rest
    }

    /// Continues the job with a wait for a device, from `now` on.
    pub(super) fn occupy(&mut self, wait: DeviceWait, now: Time) {
        self.segment = Segment::PendingWait(wait);
        self.hold = (!wait.is_spinning).then_some((now, wait.until));
    }

    /// Ends the current segment at `now`. Returns the start and the end of a wait in which the
    /// worker kept its CPU idle.
    pub(super) fn end_segment(&mut self, now: Time) -> Option<(Time, Time)> {
        self.segment = Segment::None;
        self.hold.take().map(|(from, to)| (from, to.min(now)))
    }

    /// Returns the start and the end of the present wait in which the worker keeps its CPU idle.
    pub(super) fn hold(&self) -> Option<(Time, Time)> {
        self.hold
    }

    /// Whether a job may wait for a device and keep its CPU idle.
    pub(super) fn may_hold(&self) -> bool {
        self.program.as_ref().is_some_and(JobProgram::may_hold)
    }

    /// Takes the next action of the job program after a segment; `None` if the job works on, or
    /// ends.
    pub(super) fn take_action(&mut self) -> Option<ResolvedAction> {
        self.program.as_mut()?.next_action()
    }

    /// Continues the job with its next segment. Returns whether there is one. A job that stops here
    /// (`stops`) has one in any case: its end, when it continues.
    pub(super) fn continue_job(&mut self, stops: bool) -> bool {
        let next = self.program.as_mut().and_then(JobProgram::next_segment);
        match next.or(stops.then_some(Work::ZERO)) {
            Some(left) => {
                self.segment = Segment::Pending(left);
                true
            }
            None => false,
        }
    }

    /// Forgets the engine's job, because the root switches to another tree. `pending` is the first
    /// pending job, and `used` the value of the CPU clock.
    pub(super) fn interrupt(&mut self, pending: Option<EngineJob>, used: Work) {
        self.carried = self.carried.or(pending);
        (self.begun_job, self.segment, self.hold) = (None, Segment::None, None);
        let _ = self.charge_up_to(used);
    }

    /// Ends the job at `now`. `job` is its description by the engine.
    pub(super) fn end_job(&mut self, job: Option<EngineJob>, now: Time) {
        self.begun_job = None;
        if let Some(job) = self.carried.take().or(job) {
            self.stats.record(job, now);
        }
    }
}
