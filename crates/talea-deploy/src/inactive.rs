//! Reasons why a program is not started.

/// Reason why the program of a task is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactive {
    /// The program has ended: it succeeded, or its failure is ignored.
    Ended,
    /// The program has failed more often than its attempts permit.
    Failed,
    /// The program has failed, and its task stays idle.
    Idle,
    /// An administrator has drained the task.
    Drained,
}
