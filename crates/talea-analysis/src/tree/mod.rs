//! Response-time bounds for every task of a described root, or the node for which no test is known.
//!
//! [`RootModel::bounds`] follows the path from the root to each task. It accumulates two things:
//! the *supply* (a CPU, the slots of a partition, a server: [`crate::supply`]) and the
//! *interference*, the work that is served before the task at each scheduler of the path
//! ([`crate::supply::InterferenceCurve`]). The response-time bound is the shortest window whose
//! supply covers the task's own work and the interference.
//!
//! Assumptions:
//! 1. [`talea_core::engine::Tree::check`] has accepted the tree; the semantics are those of
//!    docs/model.md.
//! 2. Jobs arrive as the sources say, at least T apart, and cost at most
//!    [`talea_core::workload::Cost::max`].
//! 3. The CPU never stalls. With stalls ([`RootModel::stalls`]) no test is known.
//!
//! # Rules by node
//!
//! A bound is *sufficient* unless the rule says that it is exact.
//!
//! - `fp`, `rm`, `dm`, `criticality`: a sibling interferes if it can present a key that is urgent
//!   enough (*Effective keys* below). In an `fp` level equal keys interfere too (FIFO). Exact for
//!   tasks directly below a root that are distinguished by their keys (in an `fp` level) or numbers
//!   and can all be released together.
//! - `edf`: Spuri's search with interference from above (M. González Harbour and J. C. Palencia,
//!   RTSS 2003) on any supply. Servers use the demand test. Groups with plain EDF belong to the
//!   level. Exact for the last task of a root that has only tasks, if that task is sporadic and the
//!   others can be released together.
//! - `fifo`: EDF with equal deadlines; exact as `edf`.
//! - `rr`, custom policies, EDF over groups with other policies: every sibling interferes. This
//!   holds for any work-conserving policy.
//! - Partition table: the supply is the partition's own slots, exactly; lent time is extra. Other
//!   tasks lose the time of the table, bounded by slots or by responses. No test is known below a
//!   non-preemptive root.
//! - A single graph with dedicated CPUs: Graham's bound for the longest chain to each node
//!   (`graph`).
//! - Off-line table: each task of the root by itself, job by job through its entries where arrivals
//!   are known (`table`).
//! - Hard server: a task (Q, T) for others. Clients get the supply of [`crate::supply::server`], if
//!   the server receives its budget in time.
//! - Soft CBS: a group, whatever its deadline. Time that it consumed early delays its deadline, so
//!   under EDF it provides no periodic supply.
//! - Non-preemptive scheduler: the longest job below it, minus a nanosecond, blocks once. Flat task
//!   sets below such a root use [`crate::uni::np_fp`] and [`crate::uni::np_edf`]. Exact for flat
//!   task sets below an `fp` root whose phases are free.
//! - Several CPUs: Bertogna and Cirinei (EDF and any work-conserving policy), Guan et al. (fixed
//!   priorities), otherwise any test of [`crate::multi::portfolio`], for tasks below the root that
//!   may use all CPUs. Tasks pinned to one CPU each are analysed per CPU.
//!
//! *Exact* bounds are attained in some run that the description allows and in which no job is
//! refused. This requires sources that can produce the worst case. Sporadic sources with extra
//! separation reach every phasing. Periodic sources coincide if their offsets and jitters are
//! equal. Lists, and costs that cannot always be maximal, prove nothing. Under EDF the analysed
//! task itself must be able to arrive at some distance from the others, and equal deadlines with
//! smaller numbers are served first.
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
//! group without own key presents the key of its head. Let `next` be the child of scheduler S on
//! the path to task τ.
//!
//! 1. *Effective key*: the least urgent key that `next` can present while τ is pending. A group
//!    *propagates* keys if it orders by the same key (or is a partition table and the slot is
//!    open), preempts and has neither own key nor server. A propagating group presents a key at
//!    least as urgent as τ's. Otherwise the least urgent key below the group counts.
//! 2. *Interfering node*: a sibling whose most urgent key is at most the level K. K starts as the
//!    effective key, or as the level inherited from the scheduler above, whichever is less urgent.
//! 3. *Closure*: while an interfering node can present a less urgent key than K, K is raised to
//!    that key. The siblings on the path below `next` take part, as long as keys propagate. At the
//!    fixed point every interfering node is served before every other node. While τ is pending the
//!    CPU therefore serves τ's group or interfering nodes only, so that τ's supply is what the
//!    interference leaves.
//! 4. *Ties*: in a FIFO level equal keys interfere. Elsewhere the smaller number wins: a sibling
//!    with a larger number needs a strictly more urgent key, provided that K is still the effective
//!    key and that no interfering node can present the effective key or a less urgent one.
//! 5. *Inherited level*: if `next` propagates keys, its scheduler inherits K and the least urgent
//!    interfering key. If it does not, and some interfering node can present a key that is no more
//!    urgent than the most urgent key of `next`, then other children of `next` can run before that
//!    node. From there on every sibling on the path interferes.
//! 6. *Non-preemptive S*: a job that does not interfere may have started just before; the longest
//!    such job blocks once. If `next` is a group, jobs of its own other children count too, because
//!    they can start while an interfering node waits.
//!
//! # Overheads
//!
//! The costs are: release; decision, level and switch for each dispatch order. Orders queue on
//! their CPU. A superseded order has been decided nevertheless. An order is issued when a job
//! arrives or completes, so each job pays for two; the second order of the last job in a window
//! comes too late to count. Each release is charged at the highest priority. When a window begins,
//! orders for tasks that do not interfere may be queued. No job completes while orders are queued,
//! and between two completions each task is ordered at most once. So there is at most one such
//! order per task (for a non-preemptive root: none beyond those of the running job). Servers,
//! tables and round robin issue orders of their own (budgets, slots, quanta); with them and
//! overheads no test is known.
//!
//! # Shared resources
//!
//! Covered for children of a root that orders by fixed keys (ceiling or inheritance) or by deadline
//! (ceiling), with the terms of [`crate::uni::protocols`]. Under EDF contiguous sections are not
//! covered: the system ceiling moves between them, so that another job can start and then block.
//! With overheads only ceilings are covered, because each wait for a holder costs two more orders.
//! Where a ceiling is shared by equals that are ordered by number, or is raised as a job arrives,
//! that job may block once after all and pays for four orders.
//!
//! # Lost CPU time
//!
//! [`RootModel::lost`] is the time L that the CPU may be unavailable while work is pending
//! (hypervisor, firmware), in one piece or in many. It reduces the supply of every window in which
//! a job is pending: sbf(t) − L. Each server must receive its budget in time despite the loss. Its
//! clients have the server's supply less L, whether or not the server's budget is charged for a
//! loss (that depends on its clock): a loss at the server's level delays clients no more than the
//! same amount of extra client work, which fits into the waiting budget or needs another one. For
//! flat task sets below a non-preemptive root L blocks once; by deadline only the search applies.
//! No test is known with losses on several CPUs, for an off-line table or for a single graph.

mod analysis;
mod context;
mod demand_plot;
mod edf;
mod global;
mod graph;
mod overheads;
mod priority_keys;
mod resources;
mod root_model;
mod servers;
pub mod slot_interference;
mod table;
mod task_bound;
mod task_model;

pub use demand_plot::DemandPlot;
pub use root_model::RootModel;
pub use table::INFO as TABLE;
pub use task_bound::{INFO, NoBound, Reason, TaskBound};
