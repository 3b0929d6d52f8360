//! Chains in a run: longest reaction time and data age, and whether they are as required.
//! [`super::chain_jobs`] records the jobs.

use super::{RootSummary, short};
use crate::output::{Table, Tone, paint};
use crate::report::DrawnChain;
use serde::Serialize;
use std::borrow::Borrow;
use std::fmt::Write;
use talea_core::chain::{self, Link, ReadWrite};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_system::{Chain, System};

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
    /// Jobs of the longest reaction time, from the first read after the event to the output.
    reaction_jobs: Vec<ChainJob>,
    /// Jobs of the largest data age, from the sample to the output.
    age_jobs: Vec<ChainJob>,
    /// Reason why nothing was measured.
    why: Option<&'static str>,
    /// Whether no latency exceeds its requirement.
    pub holds: bool,
}

/// Job that carries the data of a chain.
#[derive(Serialize)]
struct ChainJob {
    task: String,
    /// Number of the job, from 0.
    job: u64,
    /// First dispatch.
    read_ns: u64,
    /// Completion.
    write_ns: u64,
    /// Number of the root, and of the task in it.
    #[serde(skip)]
    place: [usize; 2],
}

/// Measures the chains of a system. `roots` are the summaries of its roots in one run.
pub fn check_chains(system: &System, roots: &[impl Borrow<RootSummary>]) -> Vec<ChainSummary> {
    system.chains.iter().map(|chain| check_chain(system, chain, roots)).collect()
}

fn check_chain(system: &System, chain: &Chain, roots: &[impl Borrow<RootSummary>]) -> ChainSummary {
    let (jobs, why) = match jobs(chain, roots) {
        Ok(jobs) => (Some(jobs), None),
        Err(why) => (None, Some(why)),
    };
    let found = jobs.as_ref().map(|jobs| chain::latencies(&chain.links, jobs)).unwrap_or_default();
    let carriers = |of: Option<chain::Latency>| -> Vec<ChainJob> {
        let numbers = of.zip(jobs.as_ref()).and_then(|(of, jobs)| {
            chain::jobs_of_output(&chain.links, jobs, of.output).map(|numbers| (numbers, jobs))
        });
        let Some((numbers, jobs)) = numbers else { return Vec::new() };
        let steps = numbers.iter().zip(jobs).zip(chain.task_names(&system.roots));
        steps
            .zip(&chain.tasks)
            .map(|(((&job, of_task), task), of)| ChainJob {
                task: task.to_owned(),
                job,
                read_ns: of_task[job as usize].read.as_ns(),
                write_ns: of_task[job as usize].write.as_ns(),
                place: [of.root, of.task],
            })
            .collect()
    };
    let (reaction_jobs, age_jobs) = (carriers(found.reaction), carriers(found.age));
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
        reaction_jobs,
        age_jobs,
        why,
        holds: is_measured && is_met(chain.reaction, reaction) && is_met(chain.age, age),
    }
}

/// Returns the recorded jobs of each task of a chain, or the reason why nothing was measured.
fn jobs<'r>(
    chain: &Chain,
    roots: &'r [impl Borrow<RootSummary>],
) -> Result<Vec<&'r [ReadWrite]>, &'static str> {
    let of_chain = || chain.tasks.iter().map(|of| (roots[of.root].borrow(), of.task));
    let end = of_chain().map(|(root, _)| root.chain_jobs.end).min().unwrap_or(Time::NEVER);
    let mut jobs: Vec<&[ReadWrite]> = Vec::new();
    for (root, task) in of_chain() {
        let of = root.chain_jobs.tasks[task].as_ref().ok_or("its jobs were not recorded")?;
        if of.has_gap {
            return Err("the record has gaps");
        }
        if of.is_late {
            return Err(
                "a job with logical execution time was late, so that its output was missing",
            );
        }
        // A token that is lost shifts the pairs of jobs at the two ends of a channel.
        let lost = root.events.overflows + root.events.underflows + root.events.not_activated;
        if chain.links.contains(&Link::Channel) && lost + root.tasks[task].refused > 0 {
            return Err("tokens of a channel were lost");
        }
        let count = of.jobs.partition_point(|job| job.write <= end);
        jobs.push(&of.jobs[..count]);
    }
    Ok(jobs)
}

/// Returns the longest latencies of chains for the page of a run.
pub fn drawn_chains(chains: &[ChainSummary]) -> Vec<DrawnChain> {
    let of_chain = chains.iter().flat_map(|chain| {
        let reaction = ("reaction", chain.reaction_max_ns, &chain.reaction_jobs);
        let age = ("age", chain.age_max_ns, &chain.age_jobs);
        [reaction, age].map(|(kind, length, jobs)| (chain, kind, length, jobs))
    });
    of_chain
        .filter_map(|(chain, kind, length, jobs)| {
            let column = |value: fn(&ChainJob) -> u64| jobs.iter().map(value).collect();
            Some(DrawnChain {
                name: chain.name.clone(),
                kind,
                start_ns: jobs.last()?.write_ns - length?,
                jobs: [
                    column(|job| job.place[0] as u64),
                    column(|job| job.place[1] as u64),
                    column(|job| job.job),
                    column(|job| job.read_ns),
                    column(|job| job.write_ns),
                ],
            })
        })
        .collect()
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
