//! Tests of the drone's functions with the generated frames, and of flights on real threads.

mod flights;
mod functions;
mod user;
