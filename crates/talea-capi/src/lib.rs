//! Talea for C: `libtalea`, with the interfaces of `talea.h`, `retif.h` and `yasmin.h`.
//!
//! Model: every function is a few lines over `talea-client` or `talea-runtime`. The headers in
//! `include/` are the manual, so the comments here say only what the headers cannot say. Layouts
//! are compile-time assertions beside the structures.
//!
//! Invariants. No panic crosses the boundary to C ([`ffi`]). A function checks a pointer for NULL
//! and a structure's size before it reads any other field. The library exports only `talea_*`,
//! `rtf_*`, `rts_*` and `yas_*`.
//!
//! `unsafe` here is of four kinds: reading what a caller's pointer denotes, writing there, taking
//! back a handle that a call has returned, and calling a caller's function. The caller promises
//! that pointers, handles and functions are what the header says.
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
