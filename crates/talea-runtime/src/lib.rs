//! Application runtime: tasks in several versions, accelerators, and graphs with channels, on real
//! CPUs.
//!
//! An application declares its tasks, the functions of their versions, the accelerators that these
//! versions use, and the channels between tasks. A [`Config`] selects policy and CPUs without a
//! change to the tasks. This is the model of YASMIN (Rouxel, Altmeyer, Grelck: "YASMIN: a real-time
//! middleware for COTS heterogeneous platforms", Middleware 2021, sections 2 and 3). Where the
//! paper leaves room, `docs/model.md` decides.
//!
//! The runtime has no ready queue and no task model of its own. It converts a declaration to a tree
//! of the scheduling engine, and [`talea_exec`] executes the tree.
//!
//! The example of the paper is a graph: a task that forks, two tasks for the halves, and a task
//! that joins. One of the halves has two versions.
//!
//! ```
//! use std::time::Duration;
//! use talea_runtime::{Application, Config, Task};
//!
//! let mut app = Application::new(Config::default());
//! let gpu = app.accelerator("gpu");
//! let fork = app.task(Task::periodic("fork", Duration::from_millis(25)));
//! let left = app.task(Task::node("left"));
//! let right = app.task(Task::node("right"));
//! let join = app.task(Task::node("join"));
//! let (to_left, at_left) = app.channel::<u32>(fork, left, 1);
//! let (from_left, joined) = app.channel::<u32>(left, join, 1);
//! app.edge(fork, right);
//! app.edge(right, join);
//!
//! app.version(fork, "plain", move |job| to_left.push(job.number as u32).expect("room for one"));
//! let on_gpu = app.version(left, "gpu", {
//!     let (at_left, from_left) = (at_left.clone(), from_left.clone());
//!     move |_| {
//!         let number = at_left.pop().expect("a datum of fork");
//!         from_left.push(number * 2).expect("room for one");
//!     }
//! });
//! app.uses(on_gpu, gpu);
//! app.version(left, "cpu", move |_| {
//!     let number = at_left.pop().expect("a datum of fork");
//!     from_left.push(number * 2).expect("room for one");
//! });
//! app.version(right, "plain", |_| {});
//! app.version(join, "plain", move |job| assert_eq!(joined.pop(), Some(job.number as u32 * 2)));
//!
//! let running = app.start().expect("a valid application");
//! std::thread::sleep(Duration::from_millis(60));
//! let (_app, report) = running.stop().expect("a run");
//! assert!(report.tasks[join.number()].jobs >= 1);
//! ```
#![forbid(unsafe_code)]

mod application;
mod channel;
mod config;
mod current_task;
mod describe;
mod device_wait;
mod error;
mod report;
mod rights;
mod running;
mod server;
mod shield;
mod table;
mod table_file;
mod task;

pub use application::{Accelerator, Application};
pub use channel::{Input, Output};
pub use config::{Config, Daemon, Mapping, Priorities, Rights, WaitMode};
pub use device_wait::{DeviceWait, wait_for_device};
pub use error::Error;
pub use report::{Report, ShieldReport, TaskReport};
pub use running::{NotStarted, RunHandle, Running, first_cpus};
pub use server::{Server, ServerId};
pub use table::Table;
pub use talea_core::engine::{Candidates, Condition, ContextSelector, Selection, VersionSelector};
pub use talea_exec::{Failure, Job};
pub use talea_os::sched::Policy;
pub use task::{Task, TaskId, Version, VersionId};
