//! The scheduler machine on real threads.
//!
//! Model: each root of a system has its machine, and each CPU that it owns a *dispatcher*: a pinned
//! FIFO thread at the top of the band, asleep in one futex wait for messages and timers. When it
//! wakes it tells the machine what has happened (what was consumed, which jobs have ended, which
//! have come), polls its orders, and has a [`Mechanism`] obey them on the *workers*, one thread a
//! task, which stand below it in the band. The loop is the twin of the simulator's: the same
//! machine, unchanged, the same events in the same order, the same orders. What a driver owes the
//! machine is written in docs/model.md.
//!
//! Strict: no worker runs that the machine has not chosen, and nobody spins to keep others out; as
//! long as whoever is chosen computes. If a job sleeps or blocks within itself, which the machine
//! isn't told, one that was stopped may go on meanwhile on a root with one CPU.
//!
//! A map: [`run`] sets a run up and tears it down; `dispatcher` is the loop, `root` its body
//! without threads in it (`root::desk`: the pieces of jobs and what they do between them;
//! `root::alarm`: who is awake when); `office` is where all of that is shared and who may step it;
//! `worker` is the other side, [`programs`] what runs in the place of workers; [`mechanism`] moves
//! workers; [`native`] is roots that need none of it, because Linux produces their schedule;
//! [`record`] keeps what went in and came out, in memory and as a file, [`replay`] gets the same
//! out of a fresh machine, [`course`] says who ran in what order, [`truth`] what the kernel says to
//! that; [`work`] is what jobs do, [`load`] how many come and how long they are.
#![forbid(unsafe_code)]

pub mod course;
mod dispatcher;
pub mod flow;
pub mod holes;
mod letters;
pub mod load;
mod mailbox;
pub mod mechanism;
pub mod native;
mod office;
pub mod panics;
pub mod programs;
pub mod record;
mod remote;
pub mod replay;
pub mod rights;
mod root;
pub mod run;
mod stage;
mod stretch;
mod tally;
#[cfg(test)]
mod tests;
pub mod truth;
mod warden;
mod watchdog;
pub mod work;
mod worker;

pub use course::{Course, Turn};
pub use flow::Flow;
pub use holes::Hole;
pub use load::{Arrival, Arrivals, Load};
pub use mechanism::{After, Chosen, Means, Mechanism, Wish};
pub use programs::{Fate, ProgramReport};
pub use record::{Entry, What};
pub use remote::Remote;
pub use rights::{Crew, Grantor, Standing};
pub use run::{
    Band, Failure, Options, Report, RootPlan, RootReport, TaskPlan, execute, execute_granted,
    execute_until,
};
pub use stretch::Stretch;
pub use tally::Tally;
pub use truth::{Ran, Stood, Unobeyed};
pub use work::{Body, Job, Pace};
