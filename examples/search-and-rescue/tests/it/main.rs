//! The drone's functions, against what was drawn; and its flights, on real threads.

mod flights;
mod functions;
mod user;
