//! A search-and-rescue drone (YASMIN, Middleware 2021, section 5), with real work.
//!
//! Twice a second the drone takes a frame of the sea and [detects](detect) objects in it. Each
//! object is [highlighted](highlight), and its [speed] is estimated. The result is [encoded and
//! sent](alarm), encrypted if there are boats. A handler polls for the [flight controller's
//! messages](flight). Detection, highlighting and speed have a version for the CPU and a version
//! for an [emulated](device) accelerator, with equal results.
//!
//! [`mission`] declares the application: tasks, versions and channels. [`cost`] measures the
//! functions on this computer. [`Setup::describe`](mission::Setup::describe) writes the application
//! as a system file. Frames and messages are in `data/`; [`scene`] and [`flight`] generate them.
#![forbid(unsafe_code)]
#![allow(clippy::cast_possible_wrap, reason = "numbers of pixels and frames are small")]

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
