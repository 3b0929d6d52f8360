//! A bound for every task of a described root, or the node for which no test is known.
//!
//! [`Roots::bounds`] walks from the root to each task and carries two things along: the *supply* that there is (a CPU,
//! the slots of a partition, what a server gives: [`crate::supply`]) and what is *above*, that is, served before the task
//! at each scheduler on the way ([`crate::supply::Curve`]). Where it arrives, the task's longest response is the least window
//! whose supply holds its own work and all that.
//!
//! Assumptions: 1. [`talea_core::machine::Tree::check`] has accepted the tree; the semantics are those of docs/model.md; 2. jobs come
//! as the sources say, at least T apart, and take at most what [`talea_core::workload::Cost::most`] says; 3. no holes.
//!
//! | node | rule | kind |
//! | --- | --- | --- |
//! | `fp`, `rm`, `dm`, `criticality` | siblings that can show a key as urgent are above; in an `fp` level, equals too (FIFO) | exact for tasks with distinct keys, else sufficient |
//! | `edf` | Spuri's search with what is above (M. González Harbour and J. C. Palencia, RTSS 2003) on any supply; the demand test for servers; groups that are EDF themselves belong to the level | exact for tasks alone, else sufficient |
//! | `fifo` | EDF with equal deadlines | exact for tasks alone |
//! | `rr`, policies from outside, EDF over groups that are not | every sibling is above: any policy that leaves no time idle | sufficient |
//! | partition table | the own slots, exactly; what others lend comes on top; others lose what it takes, by slots or by responses | sufficient |
//! | hard server | a task (Q, T) for others; for clients what [`crate::supply::server`] says, if it has its budget in time | sufficient |
//! | soft CBS | a group, whatever its deadline: what it ran ahead it owes, so that under EDF it gives no Γ | sufficient |
//! | not preemptive | the longest job below, less a nanosecond, once | sufficient |
//! | several CPUs | Bertogna and Cirinei (EDF), Guan et al. (fixed priorities), for tasks below the root that may use all CPUs | sufficient |
//!
//! *Shown keys.* A scheduler shows the key of its head unless it has one of its own. While a task pends, the head of its group is
//! at least as urgent as the task if the group orders by the same key, or is a partition table whose slot is open; otherwise
//! the least urgent below it is reckoned with. Of a sibling only what can stand at the head with a key as urgent is above.
//!
//! *Overheads* (release; decision, level and switch with each order to run): each job pays two orders to run, its own and
//! that of whoever goes on after it; each arrival pays at the highest priority of all; one order to run of a less
//! urgent job may be under way when a window begins. Proved for roots without servers, tables and round robin, whose budgets,
//! slots and quanta give orders of their own; elsewhere no test is known with overheads.
//!
//! *Shared resources*: for children of a root that orders by fixed keys (ceiling or inheritance) or by deadline (ceiling), with
//! the terms of [`crate::uni::protocols`].

mod answer;
pub mod disturb;
mod edf;
mod global;
mod keys;
mod picture;
mod read;
mod resources;
mod servers;
mod walk;

pub use answer::{Answer, CARD, NoTest, Reason};
pub use picture::Picture;
pub use walk::Roots;
