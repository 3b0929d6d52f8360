//! Attributes of threads, read from the kernel and set by effects.

use std::collections::BTreeSet;
use talea_core::Attr;
use talea_deploy::ThreadId;
use talea_deploy::input::{Errno, Setting, Thread};
use talea_os::cgroup::program_group::ProgramGroup;
use talea_os::{ApplyError, OpenError, Tid, proc, sched};

/// Returns the threads in a group with their attributes. Omits a thread that ends meanwhile.
///
/// The kernel gives the number of an ended process to the next one, which may be outside of the
/// group. So only processes count that are also in the group afterwards.
pub(crate) fn threads(group: &ProgramGroup) -> Vec<Thread> {
    let processes = group.processes().unwrap_or_default();
    let of_process = |pid: Tid| {
        let tids = proc::threads_of(pid).unwrap_or_default();
        tids.into_iter().filter_map(move |tid| thread(pid, tid)).collect::<Vec<_>>()
    };
    let mut found: Vec<(Tid, Vec<Thread>)> =
        processes.into_iter().map(|pid| (pid, of_process(pid))).collect();
    let after: BTreeSet<Tid> = group.processes().unwrap_or_default().into_iter().collect();
    found.retain(|(pid, _)| after.contains(pid));
    found.into_iter().flat_map(|(_, threads)| threads).collect()
}

fn thread(pid: Tid, tid: Tid) -> Option<Thread> {
    let stat = proc::stat_of(pid, tid).ok()?;
    if stat.has_ended() || stat.is_exiting() {
        return None;
    }
    let attr = sched::get(tid).ok()?;
    let attr = Attr {
        policy: attr.policy.into(),
        reset_on_fork: attr.reset_on_fork,
        cpus: sched::get_affinity(tid).ok()?,
    };
    let id = ThreadId { start: stat.start_ticks, tid: tid.as_raw() as u32 };
    Some(Thread { id, attr })
}

/// Sets a value of a thread. A thread that has ended is no error.
pub(crate) fn set(id: ThreadId, setting: &Setting) -> Result<(), Errno> {
    let Some(tid) = Tid::new(id.tid as i32) else { return Ok(()) };
    let thread = match talea_os::Thread::open(tid) {
        Ok(thread) => thread,
        Err(OpenError::Os(error)) => return Err(Errno(error.raw_os_error().unwrap_or(0))),
        Err(_) => return Ok(()),
    };
    if thread.start_ticks().ok() != Some(id.start) {
        return Ok(());
    }
    match *setting {
        Setting::Policy { policy, reset_on_fork } => {
            ended_is_fine(thread.apply(&kernel_attr(policy, reset_on_fork), None))
        }
        Setting::Cpus(cpus) => ended_is_fine(thread.pin(&cpus)),
    }
}

/// Sets all attributes of a thread.
pub(crate) fn set_all(tid: Tid, attr: &Attr) -> Result<(), Errno> {
    let Ok(thread) = talea_os::Thread::open(tid) else { return Ok(()) };
    let cpus = (!attr.cpus.is_empty()).then_some(&attr.cpus);
    ended_is_fine(thread.apply(&kernel_attr(attr.policy, attr.reset_on_fork), cpus))
}

fn kernel_attr(policy: talea_core::Policy, reset_on_fork: bool) -> sched::Attr {
    let policy = policy.into();
    if reset_on_fork { sched::Attr::grant(policy) } else { sched::Attr::plain(policy) }
}

fn ended_is_fine(result: Result<(), ApplyError>) -> Result<(), Errno> {
    match result {
        Ok(()) | Err(ApplyError::Gone) => Ok(()),
        Err(error) => Err(Errno(error.errno().unwrap_or(0))),
    }
}
