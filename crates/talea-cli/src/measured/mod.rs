//! A described system on real threads, and what was measured told as a simulation tells it.
//!
//! Model: [`place()`] gives each root its CPUs; [`sketch()`] simulates the same jobs, for how much
//! there will be to write down and how busy the CPUs will be; [`run`](run()) draws the jobs and
//! lets them run; [`retell()`] puts the record of a root through a fresh machine into whatever a
//! simulation would be told to; [`check`] holds the kernel's switches against it. A [`recording`]
//! is all of it as a file.

mod checked;
mod mechanism;
mod native;
mod place;
mod recording;
mod retell;
mod run;
mod sketch;
mod told;

pub(crate) use checked::{Checked, check, excuses};
pub(crate) use mechanism::Mechanism;
pub(crate) use native::of as told_natively;
pub(crate) use place::{Places, place};
pub(crate) use recording::{Recording, Texts};
pub(crate) use retell::retell;
pub(crate) use run::{Measured, Refused, Rights, Setup, Spending, run};
pub(crate) use sketch::{Sketch, sketch, with_changes};
pub(crate) use told::{not_replayed, refuse, remark, says_strayed, tell};
