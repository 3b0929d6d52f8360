//! The installed files under systemd as process 1, with cgroup v2 and the clock of the host.
//!
//! `cargo xtask guest --systemd` boots the machine. The tests run one at a time, as root, and share
//! the machine: each one starts with [`scene::Scene::new`], which restores the installed state. No
//! test judges a measured time.
//!
//! A scenario is a file and its line here.
#![forbid(unsafe_code)]

mod activation;
mod deployment;
mod plugins;
mod repair;
mod scene;
mod unit;
mod upgrade;
