//! Response-time bounds for every task of a described root, or the node for which no test is known.
//!
//! [`RootModel::bounds`] follows the path from the root to each task, and accumulates the *supply*
//! and the *interference*. The supply is that of a CPU, the slots of a partition, or a server
//! ([`crate::supply`]). The interference is the work that is served before the task at each
//! scheduler of the path ([`crate::supply::InterferenceCurve`]). The response-time bound is the
//! shortest window whose supply covers the task's own work and the interference.
//!
//! Assumptions:
//! 1. [`talea_core::engine::Tree::check`] has accepted the tree; the semantics are those of
//!    docs/model.md.
//! 2. Jobs arrive at least T apart, as their sources declare, and cost at most
//!    [`talea_core::workload::Cost::max`].
//! 3. The CPU never stalls. With stalls ([`RootModel::stalls`]) no test is known.
//!
//! # Rules by node
//!
//! A bound is *sufficient* unless the rule says that it is exact.
//!
//! - `fp`, `rm`, `dm`, `criticality`: a sibling interferes if it can present a key that is urgent
//!   enough (*Effective keys* below). In an `fp` level equal keys interfere too (FIFO). The bound
//!   is exact for tasks directly below a root if all can be released together. The keys (in an `fp`
//!   level) or the numbers must distinguish the tasks.
//! - `edf`: Spuri's search with interference from above (M. González Harbour and J. C. Palencia,
//!   RTSS 2003) on any supply. Servers use the demand test. The children of a scheduler with plain
//!   EDF belong to the level. The bound is exact for the last task of a root that has only tasks.
//!   That task must be sporadic, and the others must be able to be released together.
//! - `fifo`: EDF with equal deadlines; exact in the same cases.
//! - `rr`, custom policies, EDF over schedulers with other policies: every sibling interferes. This
//!   holds for any work-conserving policy.
//! - Partition table: the supply is the slots of the partition, without lent time. Other tasks lose
//!   the time of the table, bounded by slots or by responses. No test is known below a
//!   non-preemptive root.
//! - Jobs that suspend themselves: flat preemptive roots by fixed keys or EDF on one CPU
//!   ([`crate::uni::suspension`]). In trees suspensions count as work (`suspension`), below
//!   partitions without lending and deferrable servers.
//! - Flat roots with graphs, accelerators, restricted migration or any affinities, where no other
//!   rule gives a bound: the least fixed point of `precedence`.
//! - A single graph with dedicated CPUs: Graham's bound for the longest chain to each node
//!   (`graph`).
//! - Off-line table: each task of the root by itself, job by job through its entries where arrivals
//!   are known (`table`).
//! - Hard server: a task (Q, T) for other nodes. Clients get the supply of
//!   [`crate::supply::server`], if the server receives its budget in time.
//! - Soft CBS: a scheduler without server, whatever its deadline. Time that the CBS consumed early
//!   delays its deadline, so under EDF it provides no periodic supply.
//! - Non-preemptive scheduler: the longest job below it, minus a nanosecond, blocks once. Flat task
//!   sets below a non-preemptive root use [`crate::uni::np_fp`] and [`crate::uni::np_edf`]. The
//!   bound is exact for flat task sets below an `fp` root if all phases are free.
//! - Several CPUs: Bertogna and Cirinei (EDF and any work-conserving policy), Guan et al. (fixed
//!   priorities), otherwise any test of [`crate::multi::portfolio`], for tasks below the root that
//!   may use all CPUs. Tasks pinned to one CPU each are analysed per CPU.
//!
//! *Exact* bounds are attained in some run that the description allows and in which no job is
//! refused. This requires sources that can produce the worst case. Sporadic sources with random
//! separation reach every phasing. Periodic sources coincide if their offsets and jitters are
//! equal. Lists, and costs that cannot always be maximal, make a bound sufficient only. Under EDF
//! the analysed task itself must be able to arrive at some distance from the others. Tasks with
//! equal deadlines and smaller numbers are served first.
//!
//! # Tasks without a test
//!
//! A task without a known model prevents bounds only for the tasks that it can delay. Tasks of
//! higher priority, tasks in other partitions and tasks beside its server are unaffected. If a
//! scheduler is non-preemptive, if accelerators or resources are shared, or if overheads are
//! modelled, no task of the root has a bound.
//!
//! # Effective keys
//!
//! Schedulers with fixed keys (`fp`, `rm`, `dm`, `criticality`) compare the keys that their
//! children present; the smallest key is the most urgent. A child with an own key presents it. A
//! child scheduler without own key presents the key of its head. Let `next` be the child of
//! scheduler S on the path to task τ.
//!
//! 1. *Effective key*: the least urgent key that `next` can present while τ is pending. A child
//!    scheduler *propagates* keys if it orders by the same key (or is a partition table and the
//!    slot is open), preempts and has neither own key nor server. A scheduler that propagates keys
//!    presents a key at least as urgent as τ's. Otherwise the least urgent key below the scheduler
//!    counts.
//! 2. *Interfering node*: a sibling whose most urgent key is at most the level K. K starts as the
//!    effective key, or as the level inherited from the scheduler above, whichever is less urgent.
//! 3. *Closure*: while an interfering node can present a less urgent key than K, K is raised to
//!    that key. The siblings on the path below `next` take part, as long as keys propagate. At the
//!    fixed point every interfering node is served before every other node. While τ is pending the
//!    CPU therefore serves only `next` and the interfering nodes, so that τ's supply is the time
//!    that the interference leaves.
//! 4. *Ties*: in a FIFO level equal keys interfere. Elsewhere the smaller number wins: a sibling
//!    with a larger number needs a strictly more urgent key. This holds if K is still the effective
//!    key and if no interfering node can present the effective key or a less urgent key.
//! 5. *Inherited level*: if `next` propagates keys, its scheduler inherits K and the least urgent
//!    interfering key. If `next` does not propagate keys, let k be its most urgent key. If an
//!    interfering node can present k or a less urgent key, other children of `next` can run before
//!    that node. Then every sibling further down the path interferes.
//! 6. *Non-preemptive S*: a job of a node that does not interfere may have started just before. The
//!    longest of these jobs blocks once. If `next` is a scheduler, jobs of its own other children
//!    count too, because they can start while an interfering node waits.
//!
//! # Overheads
//!
//! The costs are: release; decision, level and switch for each dispatch order. Orders queue on
//! their CPU. The decision for a superseded order costs time nevertheless. The engine issues an
//! order when a job arrives or completes, so each job pays for two orders. The second order of the
//! last job in a window comes too late to count. Each release is charged at the highest priority.
//!
//! When a window begins, orders for tasks that do not interfere may be queued. No job completes
//! while orders are queued, and between two completions each task is ordered at most once. So there
//! is at most one queued order per task. Below a non-preemptive root there are none besides the
//! orders of the running job. Servers, tables and round robin issue orders of their own (budgets,
//! slots, quanta). No test is known for overheads together with one of these.
//!
//! # Shared resources
//!
//! Covered for children of a root that orders by fixed keys (ceiling or inheritance) or by deadline
//! (ceiling), with the terms of [`crate::uni::protocols`]. Under EDF contiguous sections are not
//! covered: the system ceiling moves between them, so that another job can start and then block.
//! With overheads only ceilings are covered, because each wait for a holder costs two more orders.
//!
//! Tasks with equal keys and an order by number may share a ceiling, or a ceiling may be raised as
//! a job arrives. In both cases the arriving job may block once after it has started and pays for
//! four orders.
//!
//! # Lost CPU time
//!
//! [`RootModel::lost`] is the time L that the CPU may be unavailable while work is pending
//! (hypervisor, firmware), in one part or in many. It reduces the supply of every window in which a
//! job is pending: sbf(t) − L. Each server must receive its budget in time despite the loss.
//!
//! The clients of a server have its supply less L, whether or not its budget is charged for a loss
//! (that depends on its clock). A loss at the level of the server delays clients no more than the
//! same amount of extra client work. The extra work fits into the waiting budget or needs another
//! budget.
//!
//! For flat task sets below a non-preemptive root L blocks once; by deadline only the search
//! applies. No test is known with losses on several CPUs, for an off-line table or for a single
//! graph.

mod assignment;
mod blocking;
mod bounds;
mod chain;
mod competition;
mod context;
mod demand_plot;
mod edf;
mod federated;
mod flat;
mod global;
mod graph;
mod interference;
mod levels;
mod model;
mod node_supply;
mod overheads;
mod passes;
mod phases;
mod precedence;
mod priority_keys;
mod queries;
mod responses;
mod root_model;
mod servers;
pub mod slot_interference;
mod suspension;
mod table;
mod task_bound;
mod task_model;
pub mod transition;
mod whole_root;

pub use assignment::{PriorityAssignment, assign_priorities};
pub use chain::{
    ChainBound, ChainLatencies, ChainModel, ChainReason, INFO as CHAIN,
    KNOWN_PHASES as CHAIN_KNOWN_PHASES, NoChainBound,
};
pub use demand_plot::DemandPlot;
pub use federated::{AffinityAssignment, assign_affinities};
pub use phases::INFO as KNOWN_PHASES;
pub use precedence::INFO as PRECEDENCE;
pub use root_model::RootModel;
pub use table::INFO as TABLE;
pub use task_bound::{INFO, NoBound, Reason, TaskBound};
