//! Chains in a run: longest reaction time and data age, and whether they are as required.
//!
//! The recorder keeps first dispatch and completion of the jobs of tasks in chains, 16 bytes each.
//! It ends after [`MAX_JOBS`] jobs of a root, so that the memory of a run is bounded; the latencies
//! are those of the outputs before that instant.

use super::{RootSummary, short};
use crate::output::{Table, Tone, paint};
use serde::Serialize;
use std::borrow::Borrow;
use std::fmt::Write;
use talea_core::chain::{self, Link, ReadWrite};
use talea_core::engine::TaskId;
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_sim::Completion;
use talea_system::{Chain, System};

/// Maximum number of recorded jobs of a root.
const MAX_JOBS: usize = 1 << 24;

/// Recorded jobs of the tasks in chains.
pub(crate) struct ChainJobs {
    /// `tasks[t]`: jobs of task `t`; `None` if no chain contains it.
    tasks: Vec<Option<TaskJobs>>,
    recorded: usize,
    /// End of the recording, if there were too many jobs.
    end: Time,
}

#[derive(Clone, Default)]
struct TaskJobs {
    /// First dispatch of the current job.
    read: Option<Time>,
    jobs: Vec<ReadWrite>,
    /// Whether a job without a first dispatch completed, or a number is missing.
    has_gap: bool,
}

impl ChainJobs {
    /// Creates an empty recording; `in_chain[t]` says whether to record task `t`.
    pub(super) fn new(in_chain: &[bool]) -> ChainJobs {
        let of = |&is_recorded: &bool| is_recorded.then(TaskJobs::default);
        ChainJobs { tasks: in_chain.iter().map(of).collect(), recorded: 0, end: Time::NEVER }
    }

    fn task(&mut self, task: TaskId) -> Option<&mut TaskJobs> {
        self.tasks.get_mut(task.0 as usize)?.as_mut()
    }

    pub(super) fn started(&mut self, now: Time, task: TaskId, job: u64) {
        if let Some(of) = self.task(task) {
            of.has_gap |= job != of.jobs.len() as u64;
            of.read = Some(now);
        }
    }

    pub(super) fn completed(&mut self, job: &Completion) {
        if self.end < Time::NEVER {
            return;
        }
        let Some(of) = self.task(job.task) else { return };
        match of.read.take() {
            Some(read) => of.jobs.push(ReadWrite { read, write: job.end }),
            None => of.has_gap = true,
        }
        self.recorded += 1;
        if self.recorded == MAX_JOBS {
            self.end = job.end;
        }
    }
}

/// Latencies of a chain in a run.
#[derive(Serialize)]
pub struct ChainSummary {
    /// Name of the chain.
    pub name: String,
    /// Names of its tasks.
    tasks: Vec<String>,
    line: u32,
    /// Number of outputs that depend on a sample.
    outputs: u64,
    /// Longest reaction time in nanoseconds.
    pub reaction_max_ns: Option<u64>,
    reaction_required_ns: Option<u64>,
    /// Largest data age in nanoseconds.
    pub age_max_ns: Option<u64>,
    age_required_ns: Option<u64>,
    /// Reason why nothing was measured.
    why: Option<&'static str>,
    /// Whether no latency exceeds its requirement.
    pub holds: bool,
}

/// Measures the chains of a system. `roots` are the summaries of its roots in one run.
pub fn check_chains(system: &System, roots: &[impl Borrow<RootSummary>]) -> Vec<ChainSummary> {
    system.chains.iter().map(|chain| check_chain(system, chain, roots)).collect()
}

fn check_chain(system: &System, chain: &Chain, roots: &[impl Borrow<RootSummary>]) -> ChainSummary {
    let (found, why) = match measure(chain, roots) {
        Ok(found) => (found, None),
        Err(why) => (chain::Latencies::default(), Some(why)),
    };
    let length = |of: Option<chain::Latency>| of.map(|of| of.length);
    let (reaction, age) = (length(found.reaction), length(found.age));
    let is_met = |required: Option<Span>, measured: Option<Span>| {
        let both = required.zip(measured);
        mutate!("study-chain-required", both, None)
            .is_none_or(|(required, measured)| measured <= required)
    };
    let is_measured = why.is_none() || (chain.reaction.is_none() && chain.age.is_none());
    ChainSummary {
        name: chain.name.clone(),
        tasks: chain.task_names(&system.roots).map(str::to_owned).collect(),
        line: chain.line,
        outputs: found.outputs,
        reaction_max_ns: reaction.map(Span::as_ns),
        reaction_required_ns: chain.reaction.map(Span::as_ns),
        age_max_ns: age.map(Span::as_ns),
        age_required_ns: chain.age.map(Span::as_ns),
        why,
        holds: is_measured && is_met(chain.reaction, reaction) && is_met(chain.age, age),
    }
}

fn measure(
    chain: &Chain,
    roots: &[impl Borrow<RootSummary>],
) -> Result<chain::Latencies, &'static str> {
    let of_chain = || chain.tasks.iter().map(|of| (roots[of.root].borrow(), of.task));
    let end = of_chain().map(|(root, _)| root.chain_jobs.end).min().unwrap_or(Time::NEVER);
    let mut jobs: Vec<&[ReadWrite]> = Vec::new();
    for (root, task) in of_chain() {
        let of = root.chain_jobs.tasks[task].as_ref().ok_or("its jobs were not recorded")?;
        if of.has_gap {
            return Err("the record has gaps");
        }
        // A token that is lost shifts the pairs of jobs at the two ends of a channel.
        let lost = root.events.overflows + root.events.underflows + root.events.not_activated;
        if chain.links.contains(&Link::Channel) && lost + root.tasks[task].refused > 0 {
            return Err("tokens of a channel were lost");
        }
        let count = of.jobs.partition_point(|job| job.write <= end);
        jobs.push(&of.jobs[..count]);
    }
    Ok(chain::latencies(&chain.links, &jobs))
}

/// Formats the chains of a run as a table, with a line for each requirement.
pub fn chain_lines(chains: &[ChainSummary], color: bool) -> String {
    if chains.is_empty() {
        return String::new();
    }
    let span = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), short);
    let mut table = Table::new("chain | >outputs | >reaction | >age");
    for chain in chains {
        table.row(vec![
            chain.name.clone(),
            chain.outputs.to_string(),
            span(chain.reaction_max_ns),
            span(chain.age_max_ns),
        ]);
    }
    let mut out = table.render();
    for chain in chains {
        if let Some(why) = chain.why {
            let word = paint("not measured", Tone::Doubtful, color);
            let _ = writeln!(out, "{word}: {}: {why}", chain.name);
        }
        let required = [
            ("reaction", chain.reaction_max_ns, chain.reaction_required_ns),
            ("age", chain.age_max_ns, chain.age_required_ns),
        ];
        let texts = required.into_iter().filter_map(|(what, measured, required)| {
            Some(format!("{what} {}, at most {} required", span(measured), short(required?)))
        });
        let text = texts.collect::<Vec<_>>().join("; ");
        if !text.is_empty() {
            let (word, tone) =
                if chain.holds { ("holds", Tone::Good) } else { ("fails", Tone::Bad) };
            let _ = writeln!(out, "{}: {}: {text}", paint(word, tone, color), chain.name);
        }
    }
    out
}
