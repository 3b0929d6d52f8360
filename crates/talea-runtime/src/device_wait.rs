//! Waits of jobs for devices (YASMIN section 3.5): the CPU of the job meanwhile.
//!
//! Model: the function of a job waits itself, in a system call or by polling, because only the
//! program knows when the device is ready. The version declares what the CPU does meanwhile. During
//! a wait of [`DeviceWait::Free`] the job is suspended for the engine ([`talea_exec::suspension`]).
//! During other waits the engine sees a job that computes.

use std::cell::Cell;
use talea_core::mutate;

/// Use of the CPU of a job while the job waits for a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceWait {
    /// The job suspends itself: other jobs run meanwhile.
    #[default]
    Free,
    /// The job polls: it keeps its CPU and consumes CPU time.
    Spin,
    /// The job sleeps and keeps its CPU, which is idle: less urgent jobs do not run.
    Hold,
}

thread_local! {
    /// Use of the CPU in waits of the job that this thread runs.
    static CURRENT: Cell<DeviceWait> = const { Cell::new(DeviceWait::Free) };
}

/// Sets the use of the CPU in waits of the job that the calling thread begins.
pub(crate) fn begin_job(cpu: DeviceWait) {
    CURRENT.set(cpu);
}

/// Waits for a device in the function of a job: calls `wait`, and returns its result.
///
/// What the CPU does meanwhile is declared by the version ([`Version::waits`]): by default it is
/// free for other jobs. The job continues when it is scheduled again, which may be later than the
/// end of the wait. The job keeps its accelerators.
///
/// With [`DeviceWait::Free`] and [`DeviceWait::Hold`] `wait` should only wait, in system calls. In
/// the first case it runs above all jobs where the application has real-time priorities. `wait`
/// repeats a system call that fails with `EINTR`, as the standard library does. With
/// [`DeviceWait::Spin`] `wait` polls.
///
/// With the daemon's rights all jobs have one priority. A job then notices the end of a wait only
/// when the job that has the CPU ends or waits, even if that job is less urgent.
///
/// In a thread that runs no job the function only calls `wait`. Within another wait, too.
///
/// [`Version::waits`]: crate::Version::waits
pub fn wait_for_device<T>(wait: impl FnOnce() -> T) -> T {
    match CURRENT.try_with(Cell::get) {
        Ok(DeviceWait::Free) => {
            mutate!("runtime-wait-free", talea_exec::suspend_job(wait), wait())
        }
        _ => wait(),
    }
}
