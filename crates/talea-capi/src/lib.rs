//! Talea for C: `libtalea`, with the interfaces of `talea.h`, `retif.h` and `yasmin.h`.
//!
//! Model: every function is a few lines over `talea-client` or `talea-runtime`. The headers in
//! `include/` are the manual; here is only what they can't say. Layouts are compile-time assertions
//! beside the structures.
//!
//! Invariants. No panic crosses the border ([`ffi`]). A pointer is checked for NULL, a structure
//! for its size, before anything of it is read. Nothing but `talea_*`, `rtf_*`, `rts_*` and `yas_*`
//! is exported.
//!
//! `unsafe` here is of four kinds: reading what a caller's pointer names, writing there, taking
//! back a handle that was given out, and calling a caller's function. That these are what the
//! header says is the caller's promise.
#![allow(unsafe_code, reason = "the border to C; each block carries its argument")]
#![warn(clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]
#![allow(missing_docs, clippy::missing_safety_doc, reason = "the headers are the manual")]
#![allow(unreachable_pub, reason = "what is exported to C need not be reachable from Rust")]

mod app;
mod client;
mod convert;
mod ffi;
mod grant;
mod layout;
mod message;
mod periodic;
mod query;
mod retif;
mod yasmin;
