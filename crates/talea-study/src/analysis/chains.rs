//! Chains of a system: bounds of their latencies against the requirements of the file.

use super::model::model_of;
use super::verdict::{Verdict, kind_name};
use crate::output::{Table, paint};
use crate::run_summary::{self, ChainSummary, RunRecorder, short, short_bound};
use serde::Serialize;
use std::fmt::Write;
use talea_analysis::test_info::TestKind;
use talea_analysis::tree::{ChainLatencies, ChainModel, RootModel};
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_sim::Simulation;
use talea_sim::rng::root_seed;
use talea_system::{Chain, System};

/// Analysis of one chain.
#[derive(Serialize)]
pub(super) struct ChainAnalysis {
    name: String,
    tasks: Vec<String>,
    reaction: LatencyAnalysis,
    age: LatencyAnalysis,
    /// Name of the test that gives the bounds; `None` if there are no bounds.
    test: Option<&'static str>,
    kind: Option<&'static str>,
    paper: Option<&'static str>,
    /// Reason why there are no bounds.
    why: Option<String>,
    /// Change that would give bounds, or settle an unknown verdict; `None` if neither is open.
    settled_by: Option<&'static str>,
}

/// Analysis of one latency of a chain.
#[derive(Serialize)]
struct LatencyAnalysis {
    bound_ns: Option<u64>,
    required_ns: Option<u64>,
    /// Longest simulated latency, if the requirement is not proved.
    simulated_ns: Option<u64>,
    /// `None` without a requirement.
    verdict: Option<Verdict>,
}

impl LatencyAnalysis {
    fn of(required: Option<Span>, bound: Option<Span>) -> LatencyAnalysis {
        let is_proved = |required: Span| bound.is_some_and(|bound| bound <= required);
        LatencyAnalysis {
            bound_ns: bound.map(Span::as_ns),
            required_ns: required.map(Span::as_ns),
            simulated_ns: None,
            verdict: required
                .map(|of| if is_proved(of) { Verdict::Proved } else { Verdict::Unknown }),
        }
    }

    /// Refutes the requirement if a simulation exceeds it, or if an exact bound does.
    fn refute(&mut self, simulated_ns: Option<u64>, is_exact: bool) {
        let Some(required) = self.required_ns.filter(|_| self.is_open()) else { return };
        self.simulated_ns = simulated_ns;
        let attained = self.bound_ns.filter(|_| is_exact);
        let is_exceeded = [simulated_ns, attained].into_iter().flatten().any(|ns| ns > required);
        if mutate!("analyze-chain-refuted", is_exceeded, false) {
            self.verdict = Some(Verdict::Refuted);
        }
    }

    fn is_open(&self) -> bool {
        self.verdict.is_some_and(|verdict| verdict != Verdict::Proved)
    }
}

impl ChainAnalysis {
    /// Whether a requirement is not proved.
    pub(super) fn is_open(&self) -> bool {
        self.reaction.is_open() || self.age.is_open()
    }

    fn latencies(&self) -> [(&'static str, &LatencyAnalysis); 2] {
        [("reaction", &self.reaction), ("age", &self.age)]
    }
}

/// Analyses the chains of a system. `responses[r][t]` is the bound of task `t` of root `r`.
pub(super) fn analyze(
    system: &System,
    responses: &[Vec<Option<Span>>],
) -> anyhow::Result<Vec<ChainAnalysis>> {
    if system.chains.is_empty() {
        return Ok(Vec::new());
    }
    let roots: Vec<RootModel<'_>> = system.roots.iter().map(|root| model_of(root)).collect();
    let mut chains: Vec<(ChainAnalysis, bool)> =
        system.chains.iter().map(|chain| bounds(system, chain, &roots, responses)).collect();
    // Only requirements that are not proved are worth a simulation.
    if chains.iter().any(|(chain, _)| chain.is_open()) {
        for ((chain, is_exact), seen) in chains.iter_mut().zip(simulate(system)?) {
            chain.reaction.refute(seen.reaction_max_ns, *is_exact);
            chain.age.refute(seen.age_max_ns, *is_exact);
        }
    }
    for (chain, _) in &mut chains {
        let is_unknown =
            chain.latencies().iter().any(|(_, of)| of.verdict == Some(Verdict::Unknown));
        if is_unknown && chain.settled_by.is_none() {
            chain.settled_by = Some(
                "an `offset` and a constant `cost` for each task if the phases are known, or smaller periods and costs; a longer simulation can only refute",
            );
        }
    }
    Ok(chains.into_iter().map(|(chain, _)| chain).collect())
}

/// Returns the bounds of a chain, and whether they are exact.
fn bounds(
    system: &System,
    chain: &Chain,
    roots: &[RootModel<'_>],
    responses: &[Vec<Option<Span>>],
) -> (ChainAnalysis, bool) {
    let tasks: Vec<(usize, usize)> = chain.tasks.iter().map(|of| (of.root, of.task)).collect();
    let logical: Vec<bool> =
        chain.tasks.iter().map(|of| system.roots[of.root].logical[of.task]).collect();
    let model = ChainModel { roots, tasks: &tasks, links: &chain.links, logical: &logical };
    let found = model.bound(responses);
    let names: Vec<String> = chain.task_names(&system.roots).map(str::to_owned).collect();
    let bound = |of: fn(&ChainLatencies) -> Span| found.bounds.as_ref().ok().map(of);
    let test = found.bounds.is_ok().then_some(found.test);
    let no = found.bounds.err();
    let analysis = ChainAnalysis {
        name: chain.name.clone(),
        reaction: LatencyAnalysis::of(chain.reaction, bound(|of| of.reaction)),
        age: LatencyAnalysis::of(chain.age, bound(|of| of.age)),
        test: test.map(|test| test.name),
        kind: test.map(|_| kind_name(found.kind)),
        paper: test.map(|test| test.paper),
        why: no.map(|no| format!("{}: {}", names[no.task], no.reason.text())),
        settled_by: no.map(|no| no.reason.settled_by()),
        tasks: names,
    };
    (analysis, found.kind == TestKind::Exact)
}

/// Simulates the system as described and measures its chains.
fn simulate(system: &System) -> anyhow::Result<Vec<ChainSummary>> {
    let outlines = run_summary::outlines(system)?;
    let end = Time::ZERO + system.duration;
    let mut summaries = Vec::new();
    for (number, (root, outline)) in system.roots.iter().zip(&outlines).enumerate() {
        let machine = root.tree.build().map_err(|error| anyhow::anyhow!("{}", error.kind))?;
        let mut seen = RunRecorder::new(outline, &machine, system.duration, false, None, None);
        let workload = root.workload(root_seed(system.seed, number));
        let world = Simulation::new(machine, root.tree.cpus, &workload);
        let unfinished = seen.run(&mut world.with_environment(&root.surroundings), end);
        summaries.push(run_summary::summarize(outline, seen, unfinished, end).0);
    }
    Ok(run_summary::check_chains(system, &summaries))
}

/// Formats the chains as a table, with the requirements that are not proved.
pub(super) fn text(chains: &[ChainAnalysis], color: bool) -> String {
    if chains.is_empty() {
        return String::new();
    }
    let mut table = Table::new("chain | latency | >required | >bound | verdict | test | kind");
    for chain in chains {
        for (what, latency) in chain.latencies() {
            table.row(vec![
                chain.name.clone(),
                what.to_owned(),
                latency.required_ns.map_or_else(|| "-".to_owned(), short),
                latency.bound_ns.map_or_else(|| "-".to_owned(), short_bound),
                latency.verdict.map_or("-", |verdict| verdict.word().0).to_owned(),
                chain.test.unwrap_or("-").to_owned(),
                chain.kind.unwrap_or("-").to_owned(),
            ]);
        }
    }
    let mut out = table.render();
    for chain in chains {
        if let Some(why) = &chain.why {
            let (word, tone) = Verdict::Unknown.word();
            let _ = writeln!(out, "{}: {}: {why}", paint(word, tone, color), chain.name);
        }
        for (what, latency) in chain.latencies() {
            let (Some(verdict), Some(required)) = (latency.verdict, latency.required_ns) else {
                continue;
            };
            if verdict == Verdict::Proved {
                continue;
            }
            let simulated = latency.simulated_ns;
            let seen =
                simulated.map_or_else(String::new, |ns| format!(", simulated {}", short(ns)));
            let bound = latency
                .bound_ns
                .map_or_else(|| "no bound".to_owned(), |ns| format!("bound {}", short_bound(ns)));
            let (word, tone) = verdict.word();
            let _ = writeln!(
                out,
                "{}: {}: {what}: {bound}{seen}, at most {} required",
                paint(word, tone, color),
                chain.name,
                short(required)
            );
        }
        if let Some(settled_by) = chain.settled_by {
            let _ = writeln!(out, "  to settle it: {settled_by}");
        }
    }
    let mut papers: Vec<(&str, &str)> =
        chains.iter().filter_map(|chain| Some((chain.test?, chain.paper?))).collect();
    papers.sort_unstable();
    papers.dedup();
    for (test, paper) in papers {
        let _ = writeln!(out, "{test}: {paper}");
    }
    out
}
