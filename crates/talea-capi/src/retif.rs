//! Functions of `retif.h`, over the same client.
//!
//! Model: each process has one connection, created with the first request. The structure of a task
//! contains its number, and [`registry`] has everything else about the task. The 128 bytes of the
//! structure contain what ReTiF's own structure contains and nothing else, because compiled
//! programs allocate and copy them.
//!
//! Each function has three names: `rtf_task_*` converts refusals to `RTF_FAIL`, as ReTiF's own
//! library does. `rtf_spec_*` and `rts_task_*` follow their papers.

mod explain;
mod layout;
mod params;
mod period;
mod query;
mod registry;
mod spelling;
mod task;
