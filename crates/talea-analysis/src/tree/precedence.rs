//! Flat roots with graphs beside other tasks, accelerators, restricted migration or any affinities.
//!
//! Response bounds of all tasks and nodes of graphs as the least fixed point of one equation for
//! each. A bound counts from the arrival of the graph. No first job can exceed its bound: before
//! that instant all other bounds hold, and with them the equation.
//!
//! Assumptions:
//! 1. The root orders by fixed keys, by deadline or by arrival, without a server. Its children are
//!    tasks. There are no overheads, stalls, losses and resources.
//! 2. A task is periodic or sporadic, perhaps with jitter. Its jobs neither suspend themselves nor
//!    lock. Another task has no bound, nor has any task that it can delay.
//! 3. A graph has one graph root, or several that always arrive together. Each channel carries one
//!    token for each activation, and a job moves at most one token through it.
//! 4. A job acquires the accelerators of its version at its first dispatch, all or none, until it
//!    completes; holders inherit (docs/model.md, section 7). So a holder never waits.
//! 5. Each activation of a graph completes before the next one: the bounds of its nodes are at most
//!    T. Otherwise none of them has a bound.
//!
//! *Level* K of a node v: the least urgent key among v and its predecessors (transitive). While v
//! is incomplete, v or a predecessor is ready, so that only jobs of level K delay v.
//!
//! *General form* (R. L. Graham 1969; M. Bertogna and M. Cirinei, RTSS 2007). With the longest
//! chain `len` to v and the work `vol` of its graph that may precede its completion,
//!
//! > w = len + H + ⌊(vol − len + B + Σ_u min(W_u(w), w − len + 1))/m⌋,
//! > W_u(w) = ⌊L/T_u⌋·C_u + min(C_u, L mod T_u), L = w + R_u − C_u,
//!
//! over the tasks u of the level that may use a CPU of the chain. If the chain migrates freely, or
//! is not preempted, m is the smallest affinity in it: a ready job of v waits only while all its
//! CPUs execute the level (A. Gujarati, F. Cerqueira and B. Brandenburg, ECRTS 2013, for weak
//! affinities). A preempted job that is bound to its CPU waits while that CPU executes the level,
//! and m = 1. By deadline, W_u is at most ⌊z/T_u⌋·C_u + min(C_u, z mod T_u), z = D_v − D_u + R_u:
//! the last job of u has v's deadline, and the first one completes by its bound. In a preemptive
//! root with equal affinities, fewer items than CPUs cause no delay, unless one may inherit and is
//! bound to the CPU of v.
//!
//! The window may also begin when the predecessors of v are complete; then the chain is v alone. On
//! one CPU that serves equal keys in the order of release, only jobs with v's key that were
//! released before delay v: of a chain of such nodes at most one.
//!
//! *Start form*, for preemptive jobs that are bound to their CPU: two windows. Until v starts, all
//! its CPUs execute the level, so that m is its affinity. When v starts on a CPU, no more urgent
//! job waits for a start that may use this CPU, and none that is bound to it is ready. From then on
//! only jobs that are released later delay v, all perhaps on this CPU:
//!
//! > w = C + Σ_u ⌈(w + J_u)/T_u⌉·C_u,
//!
//! with the latest release J_u of u. A job that waits for an accelerator, or holds one, may have
//! been released before. So R_u replaces J_u if u uses accelerators.
//!
//! *Blocking B.* Non-preemptive: at each node of the chain a started job outside the level on each
//! CPU, hence the m longest ones. Accelerators on several CPUs or by deadline: the tasks that may
//! hold an accelerator of the level count as tasks of the level, with all their jobs. While a job
//! of the chain waits for an accelerator, its holder executes, or all CPUs of the holder execute
//! the level. So the work of the *contenders*, the items that share an accelerator with the chain,
//! is H, which is not divided. m is then the smallest affinity among them, too. If the holder is
//! bound to its CPU, m = 1.
//!
//! *Local form* (K. Tindell and J. Clark, Microprocessing and Microprogramming 40, 1994: jitter of
//! successors), for fixed keys, nodes pinned to one CPU. Predecessors on other CPUs
//! release the local chain at J at the latest. From there
//!
//! > w = vol + B + Σ ⌈(w + J_u)/T_u⌉·C_u
//!
//! over the other local nodes of the level. Nodes whose predecessors are all local and in the level
//! share the jitter of their graph: when the level is idle, none of their work is pending. Another
//! node has the bound of its predecessors as jitter. The window begins at an idle instant of the
//! level after the previous activation of v's graph, because with the whole local work of the graph
//! the window ends within T; the order within the level does not change that. B: jobs outside the
//! level that have begun before the window and hold accelerators of the level, at most one for each
//! accelerator and task. Non-preemptive: one job outside the level that has begun, and v itself
//! meets no work after its start.
//!
//! *Deadline form* (M. Spuri, INRIA research report 2873, 1996: holistic analysis), preemptive, for
//! a CPU with pinned items: tasks of [`crate::uni::edf_response`]. The nodes of a graph that follow
//! each other on the CPU are one task, because they have one absolute deadline and one is ready
//! until all are complete. Predecessors on other CPUs are its jitter. B as above, for deadlines.
//!
//! The bound is the smallest of the forms. All forms are monotonic in all R, so that repeated
//! evaluation from below reaches the least fixed point. A round takes O(n²) for each step of w.

mod forms;
mod read;

use super::model::Model;
use crate::test_info::{Platform, TestInfo, TestKind};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use forms::{Forms, Part};
use read::System;
use talea_core::Span;
use talea_core::engine::NodeId;

/// Entry of this test in the catalogue.
pub const INFO: TestInfo = TestInfo {
    name: "precedence",
    policy: "flat FP, EDF, FIFO",
    platform: Platform::Global,
    model: "graphs beside tasks, accelerators, restricted migration, any affinities, jitter",
    kind: TestKind::Sufficient,
    paper: "Tindell and Clark, Microprocessing and Microprogramming 40, 1994; Bertogna and Cirinei, RTSS 2007; Gujarati, Cerqueira and Brandenburg, ECRTS 2013",
    sustainable: "costs",
    tests: &[
        "crates/talea-analysis/tests/it/tree/precedence.rs::no_simulated_response_exceeds_its_bound",
        "crates/talea-analysis/tests/it/tree/precedence.rs::all_phases_of_small_systems_are_within_the_bounds",
    ],
};

/// Largest number of rounds of the fixed point.
const MAX_ROUNDS: u32 = 1_000;

/// Returns the bounds that this test finds; empty for a root that it does not cover.
pub(super) fn bounds(model: &Model<'_>) -> BTreeMap<NodeId, Span> {
    let Some(system) = System::read(model) else { return BTreeMap::new() };
    let mut responses: Vec<Option<u64>> =
        system.items.iter().map(|item| item.is_known.then_some(item.chain)).collect();
    let mut steps = model.step_limit;
    for _ in 0..MAX_ROUNDS {
        let Some(next) = round(&system, &responses, &mut steps) else { break };
        if next == responses {
            let found = system.items.iter().zip(&responses).filter_map(|(item, response)| {
                response.map(|response| (item.node, Span::from_ns(response)))
            });
            return found.collect();
        }
        responses = next;
    }
    BTreeMap::new()
}

/// Evaluates all equations once; `None` if no steps are left.
fn round(system: &System, responses: &[Option<u64>], steps: &mut u64) -> Option<Vec<Option<u64>>> {
    let forms = Forms { system, responses };
    let by_deadline = forms.by_deadline(steps);
    let mut next = vec![None; responses.len()];
    for (at, item) in system.items.iter().enumerate() {
        let Some(before) = responses[at] else { continue };
        let found = [
            forms.general(at, Part::Chain, steps)?,
            forms.general(at, Part::Node, steps)?,
            forms.general(at, Part::Start, steps)?,
            forms.local(at, steps)?,
            by_deadline[at],
        ];
        let least = found.into_iter().flatten().min().filter(|&bound| bound <= item.period);
        next[at] = least.map(|least| least.max(before));
    }
    // Assumption 5.
    for (at, item) in system.items.iter().enumerate() {
        if item.graph.iter().any(|&other| next[other].is_none()) {
            next[at] = None;
        }
    }
    Some(next)
}
