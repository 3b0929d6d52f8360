//! Cause-effect chains: reaction time and data age of recorded jobs.
//!
//! Model (implicit communication of AUTOSAR): a job reads its input at its first dispatch and
//! writes its output at its completion. A *register* keeps the last value: a job reads the output
//! of the last predecessor job that has completed by then. Along a *channel* each job takes the
//! output of exactly one predecessor job, in order: job k of job k. The jobs of a task with logical
//! execution time read at their release and write at their deadline (T. Henzinger, B. Horowitz and
//! C. Kirsch, Proc. IEEE 91(1), 2003); the caller records these instants instead.
//!
//! Definitions. A *sample* is the read of a job of the first task. An *output* is the write of
//! a job of the last task. It depends on at most one sample.
//! 1. *Data age* of an output: length from its sample to the output. (M. Günzel et al., RTAS 2021:
//!    reduced data age.)
//! 2. *Reaction time*: length from an external event to the first output that depends on a sample
//!    at or after the event. (M. Dürr et al., CASES 2019.) The longest one begins just after a
//!    sample. So it is the length from the sample of an output to the first later output with
//!    another sample: the age of the data at the end of their use (M. Günzel et al., ECRTS 2023).
//!
//! Events before the first sample that reaches an output do not count: until then the chain starts.

use crate::{Span, Time};
use alloc::vec::Vec;

/// Communication between two tasks of a chain that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Last value: a job reads the output of the last completed job.
    Register,
    /// Edge of a graph, or FIFO channel, with one token for each job.
    Channel,
}

/// Instants at which a job reads its input and writes its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadWrite {
    /// First dispatch, or release.
    pub read: Time,
    /// Completion, or deadline.
    pub write: Time,
}

/// Latency of a chain in a run, with the jobs that cause it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Length from the sample to the output.
    pub length: Span,
    /// Number of the sample: a job of the first task, from 0.
    pub sample: u64,
    /// Number of the output: a job of the last task, from 0.
    pub output: u64,
}

/// Longest latencies of a chain in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Number of outputs that depend on a sample.
    pub outputs: u64,
    /// Longest reaction time; `None` with fewer than two different samples.
    pub reaction: Option<Latency>,
    /// Largest data age; `None` without outputs.
    pub age: Option<Latency>,
}

/// Kind of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyKind {
    /// Reaction time of events just after the sample.
    Reaction,
    /// Data age of the output.
    Age,
}

/// Returns the longest latencies of a chain of recorded jobs; see [`for_each_latency`].
pub fn latencies(links: &[Link], jobs: &[impl AsRef<[ReadWrite]>]) -> Latencies {
    let mut found = Latencies::default();
    for_each_latency(links, jobs, |kind, latency| match kind {
        LatencyKind::Reaction => longest(&mut found.reaction, latency),
        LatencyKind::Age => {
            found.outputs += 1;
            longest(&mut found.age, latency);
        }
    });
    found
}

/// Calls `use_latency` with the data age of each output, and with the reaction time of each sample
/// that a later one replaces. `jobs[i]` has the completed jobs of the chain's task `i` in the order
/// of their numbers, without gaps; `links[i]` leads from task `i` to task `i + 1`. O(number of
/// jobs).
///
/// # Panics
/// If there is not one link between any two tasks, or no task.
pub fn for_each_latency(
    links: &[Link],
    jobs: &[impl AsRef<[ReadWrite]>],
    mut use_latency: impl FnMut(LatencyKind, Latency),
) {
    assert_eq!(links.len() + 1, jobs.len(), "one link between any two tasks");
    let first = jobs[0].as_ref();
    // `samples[k]`: sample on which the output of job k depends.
    let mut samples: Vec<Option<usize>> = (0..first.len()).map(Some).collect();
    for (link, two) in links.iter().zip(jobs.windows(2)) {
        let (from, to) = (two[0].as_ref(), two[1].as_ref());
        let mut completed = 0;
        let sample_of = |(number, job): (usize, &ReadWrite)| {
            let source = match link {
                Link::Channel => Some(number),
                Link::Register => {
                    while crate::mutate!(
                        "core-chain-last-value",
                        from.get(completed).is_some_and(|other| other.write <= job.read),
                        from.get(completed).is_some_and(|other| other.read <= job.read)
                    ) {
                        completed += 1;
                    }
                    completed.checked_sub(1)
                }
            };
            source.and_then(|source| samples.get(source).copied().flatten())
        };
        samples = to.iter().enumerate().map(sample_of).collect();
    }
    let mut last: Option<usize> = None;
    let outputs = jobs[jobs.len() - 1].as_ref();
    for (number, (output, sample)) in outputs.iter().zip(&samples).enumerate() {
        let Some(sample) = *sample else { continue };
        let latency = |sample: usize| Latency {
            length: output.write.since(first[sample].read),
            sample: sample as u64,
            output: number as u64,
        };
        use_latency(LatencyKind::Age, latency(sample));
        if let Some(last) = last.filter(|&last| last != sample) {
            let from = crate::mutate!("core-chain-missed", last, sample);
            use_latency(LatencyKind::Reaction, latency(from));
        }
        last = Some(sample);
    }
}

/// Returns the jobs that carry the data of the output with the number `output`: a job of each task
/// of the chain, from the sample to the output. `None` if the output depends on no sample.
pub fn jobs_of_output(
    links: &[Link],
    jobs: &[impl AsRef<[ReadWrite]>],
    output: u64,
) -> Option<Vec<u64>> {
    let mut number = usize::try_from(output).ok()?;
    jobs.last()?.as_ref().get(number)?;
    let mut numbers = alloc::vec![output];
    for (link, two) in links.iter().zip(jobs.windows(2)).rev() {
        let (from, to) = (two[0].as_ref(), two[1].as_ref());
        number = match link {
            Link::Channel => number,
            Link::Register => {
                let read = to[number].read;
                let completed = from.partition_point(|job| {
                    crate::mutate!("core-chain-jobs", job.write <= read, job.read <= read)
                });
                completed.checked_sub(1)?
            }
        };
        from.get(number)?;
        numbers.push(number as u64);
    }
    numbers.reverse();
    Some(numbers)
}

fn longest(of: &mut Option<Latency>, latency: Latency) {
    if of.is_none_or(|of| of.length < latency.length) {
        *of = Some(latency);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn jobs(of: &[(u64, u64)]) -> Vec<ReadWrite> {
        of.iter()
            .map(|&(read, write)| ReadWrite {
                read: Time::from_ns(read),
                write: Time::from_ns(write),
            })
            .collect()
    }

    /// Returns the job of the next task that first reads the output of job `at`, or a later one.
    fn forward(link: Link, from: &[ReadWrite], to: &[ReadWrite], at: usize) -> Option<usize> {
        match link {
            Link::Channel => Some(at).filter(|&at| at < to.len()),
            Link::Register => to.iter().position(|job| job.read >= from[at].write),
        }
    }

    /// Returns the job of the previous task whose output job `at` reads.
    fn backward(link: Link, from: &[ReadWrite], to: &[ReadWrite], at: usize) -> Option<usize> {
        match link {
            Link::Channel => Some(at).filter(|&at| at < from.len()),
            Link::Register => from.iter().rposition(|job| job.write <= to[at].read),
        }
    }

    /// Latencies by the definitions: immediate forward and backward job chains, from any event.
    fn by_definition(links: &[Link], jobs: &[Vec<ReadWrite>]) -> (Option<Span>, Option<Span>) {
        let last = jobs.len() - 1;
        let sample =
            |output: usize| {
                links.iter().enumerate().rev().try_fold(output, |at, (hop, &link)| {
                    backward(link, &jobs[hop], &jobs[hop + 1], at)
                })
            };
        let length =
            |sample: usize, output: usize| jobs[last][output].write.since(jobs[0][sample].read);
        let outputs: Vec<(usize, usize)> =
            (0..jobs[last].len()).filter_map(|output| Some((sample(output)?, output))).collect();
        let age = outputs.iter().map(|&(sample, output)| length(sample, output)).max();
        let start = outputs.first().map(|&(sample, _)| sample);
        // The event comes just after the read of job `missed`.
        let reaction = (start.unwrap_or(usize::MAX)..jobs[0].len()).filter_map(|missed| {
            let next = Some(missed + 1).filter(|&next| next < jobs[0].len())?;
            let output = links
                .iter()
                .enumerate()
                .try_fold(next, |at, (hop, &link)| forward(link, &jobs[hop], &jobs[hop + 1], at))?;
            Some(length(missed, output))
        });
        (reaction.max(), age)
    }

    #[test]
    fn latencies_are_those_of_immediate_job_chains() {
        let mut rng = Rng::new(27);
        let (mut reactions, mut channels) = (0, 0);
        for _ in 0..3_000 {
            let tasks = rng.between(1, 4) as usize;
            let mut all: Vec<Vec<ReadWrite>> = Vec::new();
            let mut links = Vec::new();
            for task in 0..tasks {
                let mut at = rng.below(12);
                let mut own = Vec::new();
                let channel = task > 0 && rng.below(4) == 0;
                for job in 0..rng.between(3, 14) as usize {
                    if channel {
                        // A token activates the job.
                        let Some(token) = all[task - 1].get(job) else { break };
                        at = at.max(token.write.as_ns());
                    }
                    let end = at + rng.between(1, 6);
                    own.push((at, end));
                    at = end + rng.below(7);
                }
                if task > 0 {
                    links.push(if channel { Link::Channel } else { Link::Register });
                    channels += u64::from(channel);
                }
                all.push(jobs(&own));
            }
            let found = latencies(&links, &all);
            let length = |of: Option<Latency>| of.map(|of| of.length);
            let (reaction, age) = by_definition(&links, &all);
            assert_eq!(length(found.age), age, "{links:?} {all:?}");
            assert_eq!(length(found.reaction), reaction, "{links:?} {all:?}");
            let outputs = all[tasks - 1].len() as u64;
            let carriers = (0..=outputs).map(|output| jobs_of_output(&links, &all, output));
            let carriers: Vec<_> = carriers.collect();
            assert_eq!(
                carriers.iter().flatten().count() as u64,
                found.outputs,
                "{links:?} {all:?}"
            );
            for (latency, replaced) in [(found.age, 0), (found.reaction, 1)] {
                let Some(latency) = latency else { continue };
                let carriers = carriers[latency.output as usize].as_ref().expect("a sample");
                assert_eq!(carriers.len(), tasks);
                assert_eq!(carriers[tasks - 1], latency.output);
                assert!(carriers[0] >= latency.sample + replaced, "{links:?} {all:?}");
                assert!(replaced > 0 || carriers[0] == latency.sample, "{links:?} {all:?}");
                for (hop, (link, two)) in links.iter().zip(carriers.windows(2)).enumerate() {
                    let at = [two[0] as usize, two[1] as usize];
                    let source = backward(*link, &all[hop], &all[hop + 1], at[1]);
                    assert_eq!(source, Some(at[0]), "{links:?} {all:?}");
                }
            }
            reactions += u64::from(reaction.is_some());
        }
        assert!(reactions > 1_500 && channels > 500, "{reactions} {channels}");
    }

    #[test]
    fn a_register_is_read_at_the_first_dispatch() {
        let all = [jobs(&[(0, 3), (10, 13), (20, 23)]), jobs(&[(2, 5), (13, 16), (24, 25)])];
        let found = latencies(&[Link::Register], &all);
        // The first job of the second task reads nothing; the second reads what is written at the
        // same instant.
        let age = Latency { length: Span::from_ns(6), sample: 1, output: 1 };
        let reaction = Latency { length: Span::from_ns(15), sample: 1, output: 2 };
        assert_eq!((found.outputs, found.age, found.reaction), (2, Some(age), Some(reaction)));
        let empty = latencies(&[Link::Register], &[jobs(&[]), jobs(&[(0, 1)])]);
        assert_eq!(empty, Latencies::default());
    }
}
