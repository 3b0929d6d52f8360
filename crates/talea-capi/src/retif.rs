//! `retif.h`: ReTiF's names over the same client.
//!
//! Model: one connection a process, made with the first request. A task is known by the number in
//! its structure; everything else about it is in [`registry`]. The structure's 128 bytes carry what
//! the original's carried and nothing new: programs allocate them, copy them, and were compiled
//! before us.
//!
//! Three spellings of each function: `rtf_task_*` folds refusals into `RTF_FAIL`, as the original
//! did; `rtf_spec_*` and `rts_task_*` follow their papers.

mod explain;
mod layout;
mod params;
mod period;
mod query;
mod registry;
mod spelling;
mod task;
