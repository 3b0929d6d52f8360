//! A search-and-rescue drone (YASMIN, Middleware 2021, section 5), with real work.
//!
//! Twice a second a frame of the sea, in which objects are [detected](detect); each is
//! [highlighted](highlight) and its [speed] estimated, and what was seen is [encoded and
//! sent](alarm), encrypted if there are boats. Beside it the handler of the [flight controller's
//! messages](flight). Detection, highlighting and speed have a version for the CPU and one for an
//! accelerator, which is [emulated](device) and finds the same.
//!
//! [`mission`] is the application: which tasks, which versions, what they hand on; [`cost`] what
//! they take on this machine; [`Setup::describe`](mission::Setup::describe) says it as a system
//! file. Frames and messages come from `data/`, which [`scene`] and [`flight`] have made.
#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_wrap, reason = "pixels and frames are few")]

pub mod alarm;
pub mod cost;
mod describe;
pub mod detect;
pub mod device;
pub mod flight;
pub mod highlight;
pub mod mission;
pub mod picture;
pub mod scene;
pub mod speed;
