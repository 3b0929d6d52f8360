//! The instant at which a requested switch of a root to another tree takes effect.
//!
//! Model: a driver runs an engine of one tree, and is to run one of another tree: with other
//! tables, budgets, tasks or criteria. The engine of the new tree starts at the *switch instant*
//! with its own time zero. [`SwitchRule`] finds that instant from the tree in force.
//!
//! | tree in force | switch instant | cause |
//! | --- | --- | --- |
//! | has tables | the next common end of all its frames | [`SwitchCause::FrameEnd`] |
//! | has no table | the first instant at which no job is pending | [`SwitchCause::Idle`] |
//! | has no table, and a job is always pending | one longest period later | [`SwitchCause::Limit`] |
//!
//! The frames of a tree are those of its `partitions` and `table` schedulers. All begin at time
//! zero, so they end together at the multiples of their least common multiple, the *major frame*.
//! ARINC 653 changes a module schedule at the end of the major frame (part 2,
//! SET_MODULE_SCHEDULE). An idle instant ends all interference of the tree in force (Tindell and
//! Alonso, *A very simple protocol for mode changes in priority preemptive systems*, 1996; survey:
//! Real and Crespo, *Mode change protocols for real-time systems*, Real-Time Systems 26, 2004).
//!
//! Bounds. Before the switch instant, the tree in force supplies what its analysis assumes. From
//! the first idle instant at or after the switch instant on, the new tree does, because its engine
//! starts with full budgets and the first slots, as at the start of a run. A job that is pending at
//! the switch instant is in neither analysis: only [`SwitchCause::Idle`] excludes such jobs.
//!
//! Invariants:
//!
//! 1. A switch takes effect at most [`SwitchRule::max_delay`] after its request.
//! 2. A frame is never cut: with tables, the switch instant is a multiple of the major frame.
//!
//! Absent on purpose: offsets between the tasks of the old and the new tree. An analysis of a
//! transition that needs them uses this rule as its earliest instant.

use super::spec::NodeSpec;
use super::tree::{MAX_RUN, Tree};
use crate::mutate;
use crate::sched::PolicySpec;
use crate::{Span, Time};

/// Rule by which a switch from one tree to another takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchRule {
    major_frame: Option<Span>,
    longest_period: Span,
}

/// Requested switch that has not taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingSwitch {
    /// End of the frame, or with `at_idle` the limit.
    due: Time,
    /// Whether an idle instant before `due` is the switch instant.
    at_idle: bool,
}

/// Cause of a switch instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchCause {
    /// All frames of the tree in force ended.
    FrameEnd,
    /// No job was pending.
    Idle,
    /// A job was pending all the time, for the longest period.
    Limit,
}

/// Switch instant with its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchInstant {
    /// The instant, in the time of the tree that was in force.
    pub at: Time,
    /// Its cause.
    pub cause: SwitchCause,
}

impl SwitchRule {
    /// Returns the rule of the tree in force. A tree whose major frame would be longer than
    /// [`MAX_RUN`] counts as one without tables.
    pub fn of(tree: &Tree) -> SwitchRule {
        let mut major_frame = None;
        let mut longest_period = Span::ZERO;
        for (_, node) in tree.nodes() {
            match &node.spec {
                NodeSpec::Task(task) if task.period >= MAX_RUN => {}
                NodeSpec::Task(task) => longest_period = longest_period.max(task.period),
                NodeSpec::Scheduler(spec) => {
                    if let Some(server) = &spec.reservation {
                        longest_period = longest_period.max(server.period);
                    }
                    let frame = match spec.policy {
                        PolicySpec::Partitions { frame, .. } => frame,
                        PolicySpec::Table { hyperperiod, .. } => hyperperiod,
                        _ => continue,
                    };
                    longest_period = longest_period.max(frame);
                    major_frame = Some(least_common_multiple(major_frame.unwrap_or(frame), frame));
                }
            }
        }
        let is_valid = |frame: &Span| !frame.is_zero() && *frame <= MAX_RUN;
        SwitchRule { major_frame: major_frame.filter(is_valid), longest_period }
    }

    /// Returns the major frame: the least common multiple of all frames of the tree. `None` if the
    /// tree has no table.
    pub fn major_frame(&self) -> Option<Span> {
        self.major_frame
    }

    /// Returns the longest period of a task, a server or a table. The period of a task that never
    /// ends its job is [`MAX_RUN`], which does not count.
    pub fn longest_period(&self) -> Span {
        self.longest_period
    }

    /// Returns the maximum time from a request to its switch instant.
    pub fn max_delay(&self) -> Span {
        self.major_frame.unwrap_or(self.longest_period)
    }

    /// Returns the switch that was requested at `now`, in the time of the tree in force. A request
    /// at the end of a frame takes effect there.
    pub fn request(&self, now: Time) -> PendingSwitch {
        let Some(frame) = self.major_frame else {
            let due = now.saturating_add(self.longest_period);
            return PendingSwitch { due, at_idle: true };
        };
        let frames = now.as_ns().div_ceil(frame.as_ns());
        let due = Time::from_ns(frames.saturating_mul(frame.as_ns()));
        PendingSwitch { due, at_idle: false }
    }
}

impl PendingSwitch {
    /// Returns the time at which the driver has to ask for the switch instant again even without an
    /// event.
    pub fn next_wakeup(&self) -> Time {
        self.due
    }

    /// Returns the switch instant if it is at or before `now`. `is_idle` says whether no job is
    /// pending at `now`. The driver asks after the completions of each instant.
    pub fn instant(&self, now: Time, is_idle: bool) -> Option<SwitchInstant> {
        let is_due = now >= self.due;
        let instant = |at, cause| Some(SwitchInstant { at, cause });
        mutate!(
            "governor-switch-at-once",
            match self.at_idle {
                false if is_due => instant(self.due, SwitchCause::FrameEnd),
                true if is_idle => instant(now, SwitchCause::Idle),
                true if is_due => instant(now, SwitchCause::Limit),
                _ => None,
            },
            instant(now.min(self.due), SwitchCause::FrameEnd)
        )
    }
}

/// Returns the least common multiple of two lengths, or more than [`MAX_RUN`].
fn least_common_multiple(a: Span, b: Span) -> Span {
    let (mut x, mut y) = (a.as_ns(), b.as_ns());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    let product = (a.as_ns() / x.max(1)).saturating_mul(b.as_ns());
    Span::from_ns(product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Work;
    use crate::engine::{NodeId, SchedulerSpec, TaskSpec};
    use crate::sched::Slot;
    use crate::server::{Reservation, ServerKind};
    use alloc::vec;

    fn span(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    fn time(ms: u64) -> Time {
        Time::ZERO + span(ms)
    }

    fn table(tree: &mut Tree, parent: Option<NodeId>, frame: u64) -> NodeId {
        let slots = vec![Slot { start: Span::ZERO, end: span(1), owner: 0 }];
        let policy = PolicySpec::Partitions { frame: span(frame), slots, lending: false };
        let spec = SchedulerSpec::new("table", policy);
        let Some(parent) = parent else {
            *tree = Tree::new(1, spec);
            return Tree::ROOT;
        };
        tree.scheduler(parent, spec)
    }

    #[test]
    fn d30_nested_tables_switch_at_the_common_end_of_their_frames() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let root = table(&mut tree, None, 20);
        let inner = table(&mut tree, Some(root), 30);
        tree.task(inner, TaskSpec::new("a", span(500)));
        let rule = SwitchRule::of(&tree);
        assert_eq!((rule.major_frame(), rule.max_delay()), (Some(span(60)), span(60)));
        for (asked, due) in [(0, 0), (1, 60), (59, 60), (60, 60), (61, 120)] {
            let switch = rule.request(time(asked));
            assert_eq!(switch.next_wakeup(), time(due), "asked at {asked} ms");
            if asked < due {
                assert_eq!(
                    switch.instant(time(due - 1), true),
                    None,
                    "idle or not, no frame is cut"
                );
            }
            // The driver wakes late, and the new frame begins in time.
            let late = switch.instant(time(due + 7), false);
            let instant = SwitchInstant { at: time(due), cause: SwitchCause::FrameEnd };
            assert_eq!(late, Some(instant));
        }
    }

    #[test]
    fn d32_a_tree_without_a_table_switches_when_idle_or_after_its_longest_period() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
        server.reservation =
            Some(Reservation::new(ServerKind::HardCbs, Work::from_ns(1_000_000), span(40)));
        let server = tree.scheduler(Tree::ROOT, server);
        tree.task(server, TaskSpec::new("a", span(10)));
        tree.task(Tree::ROOT, TaskSpec::new("greedy", MAX_RUN));
        let rule = SwitchRule::of(&tree);
        assert_eq!((rule.major_frame(), rule.longest_period()), (None, span(40)));
        let switch = rule.request(time(5));
        let idle = SwitchInstant { at: time(5), cause: SwitchCause::Idle };
        assert_eq!(switch.instant(time(5), true), Some(idle));
        assert_eq!(switch.instant(time(44), false), None);
        let limit = SwitchInstant { at: time(45), cause: SwitchCause::Limit };
        assert_eq!(switch.instant(time(45), false), Some(limit));
    }

    #[test]
    fn frames_without_a_common_end_within_a_run_switch_as_without_a_table() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let root = table(&mut tree, None, 1_000_000_007);
        table(&mut tree, Some(root), 998_244_353);
        let rule = SwitchRule::of(&tree);
        assert_eq!((rule.major_frame(), rule.max_delay()), (None, span(1_000_000_007)));
    }
}
