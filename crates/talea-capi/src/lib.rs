//! Talea for C: `libtalea`, with the interfaces of `talea.h` and `retif.h`.
//!
//! Model: every function is a few lines over `talea-client`. The headers in `include/` are the manual; here is
//! only what they can't say. Layouts are compile-time assertions beside the structures.
//!
//! Invariants. No panic crosses the border ([`border`]). A pointer is checked for NULL, a structure for its size,
//! before anything of it is read. Nothing but `talea_*`, `rtf_*` and `rts_*` is exported.
//!
//! `unsafe` here is of three kinds: reading what a caller's pointer names, writing there, and taking back a
//! handle that was given out. That the pointers are what the header says is the caller's promise.
#![allow(unsafe_code, reason = "the border to C; each block carries its argument")]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]
#![allow(missing_docs, clippy::missing_safety_doc, reason = "the headers are the manual")]
#![allow(unreachable_pub, reason = "what is exported to C need not be reachable from Rust")]

mod ask;
mod border;
mod convert;
mod grant;
mod layout;
mod look;
mod message;
mod periodic;
mod retif;
