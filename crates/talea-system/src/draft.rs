//! Contents of the files, table by table, before names are resolved.

use crate::system::Expectation;
use std::ops::Range;
use talea_core::engine::{Affinity, Condition, Migration, Protocol, Selection};
use talea_core::health::Health;
use talea_core::server::Reservation;
use talea_core::workload::{Arrivals, Cost, Overheads};
use talea_core::{Span, Time, Work};

/// Name with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) file: usize,
    pub(super) at: Range<usize>,
}

/// Position in one of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) at: Range<usize>,
}

impl Named {
    pub(super) fn place(&self) -> Place {
        Place { file: self.file, at: self.at.clone() }
    }
}

pub(super) struct SlotDraft {
    pub(super) owner: Named,
    pub(super) start: Option<Span>,
    pub(super) length: Span,
    pub(super) place: Place,
}

pub(super) struct EntryDraft {
    pub(super) owner: Named,
    pub(super) cpu: u32,
    pub(super) start: Option<Span>,
    pub(super) length: Span,
    pub(super) version: Option<Named>,
    pub(super) activates: bool,
    pub(super) continues: bool,
    pub(super) place: Place,
}

pub(super) struct SchedulerDraft {
    pub(super) name: Named,
    pub(super) parent: Option<Named>,
    pub(super) policy: PolicyDraft,
    pub(super) server: Option<Reservation>,
    pub(super) cpus: u32,
    pub(super) migration: Migration,
    pub(super) preemptive: bool,
    pub(super) priority: Option<u8>,
    pub(super) criticality: Option<u8>,
    pub(super) affinity: Option<(Affinity, Place)>,
    pub(super) selection: Selection,
    pub(super) inheritance: bool,
}

/// Policy of a scheduler, with the keys that belong to it.
pub(super) enum PolicyDraft {
    RoundRobin {
        quantum: Span,
    },
    Partitions {
        frame: Span,
        lending: bool,
        slots: Vec<SlotDraft>,
    },
    Table {
        hyperperiod: Span,
        entries: Vec<EntryDraft>,
    },
    /// Any other policy, by name.
    Named(&'static str),
}

impl PolicyDraft {
    /// Returns the slots of partitions; empty for another policy.
    pub(super) fn slots(&self) -> &[SlotDraft] {
        match self {
            PolicyDraft::Partitions { slots, .. } => slots,
            _ => &[],
        }
    }

    /// Returns the entries of a table; empty for another policy.
    pub(super) fn entries(&self) -> &[EntryDraft] {
        match self {
            PolicyDraft::Table { entries, .. } => entries,
            _ => &[],
        }
    }
}

pub(super) struct VersionDraft {
    pub(super) name: Named,
    pub(super) cost: Cost,
    pub(super) accelerators: Vec<Named>,
    pub(super) energy: u32,
    pub(super) time: Option<Span>,
    pub(super) modes: u64,
    pub(super) needs: u64,
}

/// Critical section: `[from, to)` of a job's work.
pub(super) struct SectionDraft {
    pub(super) resource: Named,
    pub(super) from: Work,
    pub(super) to: Work,
    pub(super) at: Range<usize>,
}

/// Wait of a job for a device.
pub(super) struct SuspensionDraft {
    pub(super) after: Work,
    pub(super) length: Span,
    pub(super) cpu_use: CpuUse,
    /// Version with the wait; every version if there is none.
    pub(super) version: Option<Named>,
}

/// State of the CPU of a job that waits for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum CpuUse {
    /// Free for other jobs.
    #[default]
    Free,
    /// Busy: the job polls.
    Spin,
    /// Idle and not free.
    Hold,
}

/// Instants at which siblings may preempt the jobs of a task.
pub(super) enum PreemptionDraft {
    Anywhere,
    /// At these offsets of the work.
    Points(Vec<Work>),
    /// Outside of sections of up to `longest`, one of which, `last`, ends the job.
    Floating {
        longest: Work,
        last: Work,
    },
}

/// Interior of a job: everything at offsets of its work.
pub(super) struct StepsDraft {
    pub(super) sections: Vec<SectionDraft>,
    pub(super) suspensions: Vec<SuspensionDraft>,
    pub(super) preemption: PreemptionDraft,
}

pub(super) struct TaskDraft {
    pub(super) name: Named,
    pub(super) parent: Option<Named>,
    pub(super) parameters: ParametersDraft,
    /// Cost, by version if there are versions.
    pub(super) cost: Cost,
    pub(super) arrivals: Arrivals,
    /// Keys about arrivals, which an activated task must not have.
    pub(super) about_arrivals: Vec<(&'static str, Range<usize>)>,
    pub(super) enforce: bool,
    pub(super) backlog: Option<u32>,
    pub(super) count: Option<u32>,
    pub(super) affinity: Option<(Affinity, Place)>,
    pub(super) versions: Vec<VersionDraft>,
    pub(super) steps: StepsDraft,
    /// Program that runs in place of the task's work.
    pub(super) program: Option<ProgramDraft>,
    pub(super) at: Range<usize>,
}

/// Program that plays a task.
pub(super) struct ProgramDraft {
    /// Program with its arguments.
    pub(super) words: Vec<String>,
    pub(super) at: Range<usize>,
    /// Account of the program.
    pub(super) user: Option<String>,
    pub(super) health: Health,
}

/// Parameters of a task. A task of a graph inherits those that it does not state.
pub(super) struct ParametersDraft {
    /// Whether jobs read at their release and write at their deadline.
    pub(super) is_logical: bool,
    /// Period. A task that a graph or a table activates may have none.
    pub(super) period: Option<Span>,
    pub(super) deadline: Option<Span>,
    pub(super) priority: Option<u8>,
    pub(super) criticality: Option<u8>,
}

impl TaskDraft {
    /// Returns the names of the tasks that the table describes.
    pub(super) fn names(&self) -> impl Iterator<Item = String> + use<'_> {
        (0..self.count.unwrap_or(1)).map(|copy| match self.count {
            Some(_) => format!("{}{copy}", self.name.name),
            None => self.name.name.clone(),
        })
    }
}

/// Accelerator, or resource with its protocol.
pub(super) struct SharedDraft {
    pub(super) name: Named,
    pub(super) root: Option<Named>,
    pub(super) protocol: Protocol,
}

pub(super) struct ChannelDraft {
    pub(super) from: Named,
    pub(super) to: Named,
    pub(super) size: u32,
    pub(super) tokens: u32,
    pub(super) push: Option<Vec<u32>>,
    pub(super) pop: Option<Vec<u32>>,
    pub(super) place: Place,
}

pub(super) struct ChainDraft {
    pub(super) name: Option<Named>,
    pub(super) tasks: Vec<Named>,
    pub(super) reaction: Option<Span>,
    pub(super) age: Option<Span>,
    pub(super) line: u32,
    pub(super) place: Place,
}

pub(super) struct StallDraft {
    pub(super) root: Option<Named>,
    pub(super) cpu: u32,
    pub(super) from: Time,
    pub(super) to: Time,
    pub(super) place: Place,
}

/// Contents of all files.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) duration: Option<Span>,
    pub(super) seed: Option<u64>,
    pub(super) schedulers: Vec<SchedulerDraft>,
    pub(super) tasks: Vec<TaskDraft>,
    pub(super) accelerators: Vec<SharedDraft>,
    pub(super) resources: Vec<SharedDraft>,
    pub(super) channels: Vec<ChannelDraft>,
    /// Whether some channels could not be read. A task without a period may be at the end of one.
    pub(super) lost_channels: bool,
    pub(super) chains: Vec<ChainDraft>,
    pub(super) overheads: Option<(Overheads, Place)>,
    pub(super) stalls: Vec<StallDraft>,
    pub(super) changes: Vec<(Time, Condition)>,
    pub(super) expectations: Vec<(Expectation, Named)>,
    /// Names of items with faults. A reference to one of them is not reported again.
    pub(super) broken: Vec<Named>,
}
