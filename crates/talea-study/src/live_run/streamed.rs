//! Summary of a real run while the run goes on: its record is replayed part by part.
//!
//! The memory is independent of the length of the run. A consumer of the whole record (a check
//! against the kernel, a file of events) has to keep it instead.

use super::report::replay_error;
use crate::report::Outline;
use crate::run_summary::{self, RootSummary, RunRecorder};
use talea_core::engine::Engine;
use talea_core::{Span, Time};
use talea_exec::replay::{Divergence, Replay};
use talea_exec::{RecordEntry, RecordSink};
use talea_system::Root;

/// Root whose record is replayed.
struct StreamedRoot<'a> {
    machine: Engine,
    replay: Replay,
    seen: RunRecorder<'a>,
    differs: Option<Divergence>,
}

/// Sink that summarizes each root.
pub struct StreamedSummary<'a> {
    outlines: &'a [Outline],
    roots: Vec<StreamedRoot<'a>>,
}

impl<'a> StreamedSummary<'a> {
    /// Prepares the summary of a run of this length.
    ///
    /// # Errors
    /// If a tree cannot be built.
    pub fn new(
        roots: &[Root],
        outlines: &'a [Outline],
        duration: Span,
    ) -> anyhow::Result<StreamedSummary<'a>> {
        let of = |(root, outline): (&Root, &'a Outline)| {
            let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
            let seen = RunRecorder::new(outline, &machine, duration, false, None, None);
            let replay = Replay::new(machine.tasks());
            Ok(StreamedRoot { machine, replay, seen, differs: None })
        };
        let roots = roots.iter().zip(outlines).map(of).collect::<anyhow::Result<_>>()?;
        Ok(StreamedSummary { outlines, roots })
    }

    /// Ends the summary of a run of this length. `lost[root]` is the number of missing entries of
    /// the root.
    ///
    /// # Errors
    /// If an engine returned other orders than in the run.
    pub fn finish(self, length: Span, lost: &[u64]) -> anyhow::Result<Vec<RootSummary>> {
        let of = |((mut root, outline), lost): ((StreamedRoot<'_>, &Outline), &u64)| {
            if let Some(differs) = root.differs {
                return Err(replay_error(differs));
            }
            let recorded = root.replay.last();
            let end = if *lost > 0 { recorded } else { recorded.max(Time::ZERO + length) };
            let unfinished = root.seen.finish(&root.machine, end, &[]);
            Ok(run_summary::summarize(outline, root.seen, unfinished, end).0)
        };
        self.roots.into_iter().zip(self.outlines).zip(lost).map(of).collect()
    }
}

impl RecordSink for StreamedSummary<'_> {
    fn take(&mut self, root: usize, entries: &[RecordEntry]) {
        let StreamedRoot { machine, replay, seen, differs } = &mut self.roots[root];
        if differs.is_none() {
            *differs = replay.feed(machine, entries, seen, |_, _, _| ()).err();
        }
    }
}
