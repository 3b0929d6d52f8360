//! A bound for every task of a described root, or the node for which no test is known.
//!
//! [`Roots::bounds`] walks from the root to each task and carries two things along: the *supply*
//! that there is (a CPU, the slots of a partition, what a server gives: [`crate::supply`]) and what
//! is *above*, that is, served before the task at each scheduler on the way
//! ([`crate::supply::Curve`]). Where it arrives, the task's longest response is the least window
//! whose supply holds its own work and all that.
//!
//! Assumptions: 1. [`talea_core::machine::Tree::check`] has accepted the tree; the semantics are
//! those of docs/model.md; 2. jobs come as the sources say, at least T apart, and take at most what
//! [`talea_core::workload::Cost::most`] says; 3. no holes: with any ([`Roots::holes`]) no test is
//! known.
//!
//! | node | rule | kind |
//! | --- | --- | --- |
//! | `fp`, `rm`, `dm`, `criticality` | siblings that can show a key as urgent are above; in an `fp` level, equals too (FIFO) | exact for tasks below a root, told apart by their keys (in an `fp` level) or numbers, that may all come together |
//! | `edf` | Spuri's search with what is above (M. González Harbour and J. C. Palencia, RTSS 2003) on any supply; the demand test for servers; groups that are EDF themselves belong to the level | exact for the last task of a root that has only tasks, if it is sporadic and the others may come together |
//! | `fifo` | EDF with equal deadlines | as `edf` |
//! | `rr`, policies from outside, EDF over groups that are not | every sibling is above: any policy that leaves no time idle | sufficient |
//! | partition table | the own slots, exactly; what others lend comes on top; others lose what it takes, by slots or by responses; none below a root that does not preempt | sufficient |
//! | one graph that has its CPUs for itself | Graham's bound of each node's longest chain (`graph`) | sufficient |
//! | off-line table | each task of the root by itself, job by job through its entries where arrivals are known (`table`) | sufficient |
//! | hard server | a task (Q, T) for others; for clients what [`crate::supply::server`] says, if it has its budget in time | sufficient |
//! | soft CBS | a group, whatever its deadline: what it ran ahead it owes, so that under EDF it gives no Γ | sufficient |
//! | not preemptive | the longest job below, less a nanosecond, once; for tasks alone below such a root [`crate::uni::np_fp`] and [`crate::uni::np_edf`] | exact for tasks alone below an `fp` root that come when they like |
//! | several CPUs | Bertogna and Cirinei (EDF, and any that leaves no CPU idle), Guan et al. (fixed priorities), else any of [`crate::multi::any`], for tasks below the root that may use all CPUs; one CPU each: as on that CPU | sufficient |
//!
//! *Exact* is a bound that is a response, in some run that the description allows and in which no
//! job is refused. That takes sources that can do it: sporadic ones that may come late drift
//! through all distances, periodic ones come together if their offsets and jitters are equal;
//! lists, and costs that are not always possible, show nothing. Under EDF the task itself has to
//! come some time after the others, and those that are due at the same time with smaller numbers
//! are served first. Everything else is *sufficient*.
//!
//! *Tasks without a test* stop only those that they can delay: who is above them, in another
//! partition, or beside their server need not care. They stop all where somebody does not preempt,
//! where accelerators or resources are shared, and with overheads.
//!
//! *Shown keys.* A scheduler shows the key of its head unless it has one of its own. While a task
//! pends, the head of its group is at least as urgent as the task if the group orders by the same
//! key, or is a partition table whose slot is open; otherwise the least urgent below it is reckoned
//! with. Of a sibling only what can stand at the head with a key as urgent is above.
//!
//! *Overheads* (release; decision, level and switch with each order to run). Orders queue on their
//! CPU: one that is superseded before it was carried out has been decided on all the same. An order
//! is given when a job arrives, or when one ends, so that each job pays two; of the last one in a
//! window the second comes too late to count. Each arrival pays at the highest priority of all.
//! When a window begins, orders of those who are not above may be queued: nobody ends while there
//! is a queue, and from one end to the next each task is ordered at most once, so that it is at
//! most one for each of them (for a root that does not preempt: none beyond those of the job under
//! way). That is so in roots without servers, tables and round robin, whose budgets, slots and
//! quanta give orders of their own; elsewhere no test is known with overheads.
//!
//! *Shared resources*: for children of a root that orders by fixed keys (ceiling or inheritance) or
//! by deadline (ceiling), with the terms of [`crate::uni::protocols`]. Under EDF no sections that
//! touch: the floor moves between them, so that somebody may come in who then waits. With
//! overheads: ceilings only, since each wait for a holder is two orders more; where a ceiling is
//! shared by equals that are ordered by number, or a floor is fixed as somebody arrives, a job may
//! wait once after all, and pays four orders.
//!
//! *Losses* ([`Roots::lost`]): a CPU that does nothing for up to L in all while there is something
//! to do (its machine was away, in one piece or in slices) supplies L less in any window in which
//! somebody waits, wherever the pieces lie: sbf(t) − L. Each server has to have its budget in time
//! even so; its clients then have what it gives less L, whether it pays for a time in which a
//! client stood still (that is a matter of its clock) or not: what is lost at its level makes
//! nobody wait longer than the same work more of them, since that would fit into the budget that
//! waits, or need another one. For tasks alone below a root that does not preempt L blocks once; by
//! deadline they have the search alone. No test is known with losses on several CPUs, for an
//! off-line table or for a graph alone.

mod answer;
pub mod disturb;
mod edf;
mod global;
mod graph;
mod keys;
mod overheads;
mod picture;
mod read;
mod resources;
mod roots;
mod servers;
mod table;
mod walk;

pub use answer::{Answer, CARD, NoTest, Reason};
pub use picture::Picture;
pub use roots::Roots;
pub use table::CARD as TABLE;
