//! Shielded CPUs: CPUs kept free of all other threads and interrupts during a run (YASMIN, sections
//! 3.3 and 3.5; "shielded processors").
//!
//! Model: everything that may run on the shielded CPUs without being bound to them is moved to the
//! other CPUs: threads one by one by their affinity, interrupts, the kernel's unbound workers, and
//! the default affinity of new interrupts. What stays is reported with its reason: per-CPU kernel
//! threads, interrupts that the kernel does not move, threads pinned there with a real-time policy.
//! The timer tick and calls from other CPUs stay too and are not reported.
//!
//! | state | journal file | affinities | transition |
//! | --- | --- | --- | --- |
//! | *none* | absent, or of a dead owner | as configured | *raising*: [`Shield::raise`] |
//! | *raising* | owner, entries so far | partly moved | *raised*; on death *restoring* |
//! | *raised* | owner, all entries | moved | *restoring*: [`Shield::lower`], drop, death |
//! | *restoring* | owner, all entries | partly restored | *none*: the file is removed |
//!
//! | the process that dies | the process that restores |
//! | --- | --- |
//! | none | the owner, in [`Shield::lower`] or on drop |
//! | the owner | its reaper |
//! | the owner and its reaper | the next [`Shield::raise`], or [`recover`] |
//!
//! Invariants:
//!
//! 1. Every change is in the journal before it is made.
//! 2. There is at most one shield on a machine, because the original affinities of two could not
//!    both be restored. A journal whose owner lives belongs to that owner alone.
//! 3. Restoring is idempotent, so it may be interrupted and repeated at any point.
//! 4. The owner removes the journal before it disarms its reaper: a journal without a reaper would
//!    look like that of a killed process.
//!
//! A thread created meanwhile inherits the affinity of its parent, and a thread that moves itself
//! back is not followed; [`Shield::foreign`] reports them. In a PID namespace the threads of other
//! namespaces are invisible.
//!
//! Absent on purpose: cpuset partitions (decision 13).

mod inherited;
mod journal;
mod ops;
#[cfg(test)]
mod tests;

use crate::capabilities::{self, Capability};
use crate::reaper::{Cleanup, Reaper, ReaperConfig};
use crate::{Tid, clock, proc};
pub use journal::Restored;
use journal::{Change, Entry, Journal, Owner};
use ops::{AffinityTarget, Linux, SystemOps};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use talea_core::CpuSet;
use talea_core::mutate;

/// Path of the journal. `/run` is cleared at boot, when the threads in the journal have ended.
const JOURNAL: &str = "/run/talea-shield";
/// Maximum number of scans for threads created during the scans.
const MAX_SCANS: u32 = 10;

/// Reason why a shield cannot be raised.
#[derive(Debug)]
pub enum ShieldError {
    /// The set is empty or has a CPU that is not online.
    NoSuchCpus(Box<CpuSet>),
    /// No CPU would remain for all other threads.
    NothingLeft,
    /// Another process has a shield.
    Busy {
        /// Thread of the other process.
        by: Tid,
    },
    /// The process lacks the rights of root, above all `CAP_SYS_NICE`.
    NoRight,
    /// The kernel refused a step.
    Os {
        /// Step that failed.
        doing: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Thread or interrupt that may still use a shielded CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnmovedKind {
    /// A thread.
    Thread {
        /// Thread number.
        tid: Tid,
        /// Thread name.
        name: String,
    },
    /// An interrupt.
    Interrupt {
        /// Interrupt number.
        number: u32,
        /// Names of its handlers.
        name: String,
    },
    /// All of the kernel's unbound workers.
    UnboundWorkers,
}

impl UnmovedKind {
    fn is_interrupt(&self, with: u32) -> bool {
        matches!(self, UnmovedKind::Interrupt { number, .. } if *number == with)
    }
}

/// Reason why a thread or interrupt was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmovedReason {
    /// Per-CPU kernel thread, or a kernel worker that is about to end.
    CpuBound,
    /// The interrupt was given another CPU and moves at its next occurrence, together with the
    /// thread that handles it.
    MovesLater,
    /// A user pinned the thread there with a real-time policy, which may carry a guarantee.
    RealTime,
    /// The kernel refused the move with this error number. `EPERM` and `EIO`: an interrupt that the
    /// kernel manages itself. `EINVAL`: a thread in a cpuset without other CPUs. `EBUSY`: a thread
    /// with a reservation.
    Refused(i32),
    /// The thread or interrupt arrived after the shield was raised, or moved itself back.
    Arrived,
}

/// Thread or interrupt that was not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmoved {
    /// The thread or interrupt.
    pub kind: UnmovedKind,
    /// Reason why the thread or interrupt was not moved.
    pub reason: UnmovedReason,
}

/// Effect of a shield, as observed right after it was raised.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShieldReport {
    /// Number of threads moved.
    pub threads: u32,
    /// Number of interrupts moved.
    pub interrupts: u32,
    /// Threads and interrupts that may still use a shielded CPU.
    pub unmoved: Vec<Unmoved>,
}

/// Shielded CPUs. Dropping the shield restores all affinities.
#[derive(Debug)]
pub struct Shield {
    journal: Journal,
    path: PathBuf,
    cpus: CpuSet,
    report: ShieldReport,
    reaper: Option<Reaper>,
}

/// Cleanup by the reaper of a shield.
struct RestoreShield {
    path: PathBuf,
    owner: Owner,
    boot: [u8; 16],
}

impl Cleanup for RestoreShield {
    fn run(&self) {
        // The reaper has closed the process's descriptors. A later shield may have restored
        // already.
        if let Ok(Some(journal)) = Journal::reopen(&self.path, self.owner, self.boot) {
            journal.undo(&Linux);
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Checks whether `cpus` could be shielded on this machine, regardless of rights.
///
/// # Errors
/// [`ShieldError::NoSuchCpus`] or [`ShieldError::NothingLeft`].
pub fn check(cpus: &CpuSet) -> Result<(), ShieldError> {
    remaining_cpus(cpus).map(drop)
}

/// Returns the online CPUs outside `cpus`.
fn remaining_cpus(cpus: &CpuSet) -> Result<CpuSet, ShieldError> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .and_then(|text| CpuSet::parse(text.trim_end()).map_err(io::Error::other))
        .map_err(|error| ShieldError::Os { doing: "reading the online CPUs", error })?;
    if cpus.is_empty() || !cpus.is_subset(&online) {
        return Err(ShieldError::NoSuchCpus(Box::new(*cpus)));
    }
    let rest = online.difference(cpus);
    mutate!(
        "runtime-shield-all",
        if rest.is_empty() { Err(ShieldError::NothingLeft) } else { Ok(rest) },
        Ok(rest)
    )
}

impl Shield {
    /// Moves all threads off `cpus`, except for the calling thread and its children.
    ///
    /// # Errors
    /// If the shield cannot be raised. A thread that cannot be moved is no error.
    pub fn raise(cpus: &CpuSet) -> Result<Shield, ShieldError> {
        let rest = remaining_cpus(cpus)?;
        if !capabilities::effective().is_ok_and(|held| held.has(Capability::SysNice)) {
            return Err(ShieldError::NoRight);
        }
        Shield::raise_with_journal(Path::new(JOURNAL), cpus, &rest)
    }

    fn raise_with_journal(
        path: &Path,
        cpus: &CpuSet,
        rest: &CpuSet,
    ) -> Result<Shield, ShieldError> {
        let os = |doing| move |error| ShieldError::Os { doing, error };
        let boot = clock::boot_id().map_err(os("reading the boot id"))?;
        let (path, shield_path, other) =
            (path.to_owned(), path.to_owned(), Arc::new(OnceLock::new()));
        let begin = {
            let other = Arc::clone(&other);
            move |parent, start| {
                let owner = Owner { thread: parent, start_ticks: start };
                match Journal::start(&path, &Linux, owner, boot)? {
                    Ok(journal) => {
                        let top = crate::cgroup::mount_point();
                        Ok((
                            ReaperConfig::new(
                                RestoreShield { path, owner, boot },
                                top.as_deref(),
                                None,
                            )?,
                            journal,
                        ))
                    }
                    Err(found) => {
                        // A reaper must never exist for the journal of another owner.
                        let _ = other.set(found.thread);
                        Err(crate::sys::errno(libc::EBUSY))
                    }
                }
            }
        };
        let (reaper, journal) = Reaper::start(begin).map_err(|error| match other.get() {
            Some(&by) => ShieldError::Busy { by },
            None => ShieldError::Os { doing: "writing the journal in /run", error },
        })?;
        let mut shield = Shield {
            journal,
            path: shield_path,
            cpus: *cpus,
            report: ShieldReport::default(),
            reaper: Some(reaper),
        };
        let evacuation =
            Evacuation { ops: &Linux, journal: &shield.journal, cpus: *cpus, rest: *rest };
        let mut report = evacuation.run();
        report.unmoved = evacuation.list_users(&report.unmoved);
        shield.report = report;
        Ok(shield)
    }

    /// Returns the shielded CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Returns the effect of the shield.
    pub fn report(&self) -> &ShieldReport {
        &self.report
    }

    /// Returns the threads and interrupts that may use the shielded CPUs now and could not when the
    /// shield was raised. Omits threads of this process and per-CPU kernel threads.
    pub fn foreign(&self) -> Vec<Unmoved> {
        let evacuation = Evacuation {
            ops: &Linux,
            journal: &self.journal,
            cpus: self.cpus,
            rest: CpuSet::EMPTY,
        };
        let mut found = evacuation.list_users(&[]);
        found.retain(|unmoved| {
            unmoved.reason == UnmovedReason::Arrived
                && !self.report.unmoved.iter().any(|known| known.kind == unmoved.kind)
        });
        found
    }

    /// Restores all affinities at once and returns the result.
    pub fn lower(mut self) -> Restored {
        self.undo()
    }

    fn undo(&mut self) -> Restored {
        let Some(reaper) = self.reaper.take() else { return Restored::default() };
        let restored = self.journal.undo(&Linux);
        // Before the reaper is disarmed: see invariant 4.
        let _ = std::fs::remove_file(&self.path);
        reaper.disarm();
        restored
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Restores what a shield changed if both its process and its reaper were killed. Returns `None` if
/// there is no such shield.
///
/// # Errors
/// If this process lacks the right to change affinities.
pub fn recover() -> io::Result<Option<Restored>> {
    Journal::recover(Path::new(JOURNAL), &Linux)
}

/// Whether [`recover`] would restore anything.
pub fn has_leftover() -> bool {
    Journal::has_leftover(Path::new(JOURNAL), &Linux)
}

/// Move of threads and interrupts off the shielded CPUs.
struct Evacuation<'a> {
    ops: &'a dyn SystemOps,
    journal: &'a Journal,
    cpus: CpuSet,
    rest: CpuSet,
}

impl Evacuation<'_> {
    /// Moves all threads and interrupts that can be moved. The report lists the refusals in
    /// `unmoved`.
    fn run(&self) -> ShieldReport {
        let mut report = ShieldReport::default();
        for target in [AffinityTarget::NewInterrupts, AffinityTarget::UnboundWorkers] {
            if let Err(error) = self.move_mask(target)
                && target == AffinityTarget::UnboundWorkers
            {
                report
                    .unmoved
                    .push(Unmoved { kind: UnmovedKind::UnboundWorkers, reason: refused(&error) });
            }
        }
        for number in self.ops.interrupts() {
            match self.move_mask(AffinityTarget::Interrupt(number)) {
                Ok(moved) => report.interrupts += u32::from(moved),
                Err(error) => {
                    let what = UnmovedKind::Interrupt { number, name: String::new() };
                    report.unmoved.push(Unmoved { kind: what, reason: refused(&error) });
                }
            }
        }
        let mut refusals = Vec::new();
        for _ in 0..MAX_SCANS {
            let before = report.threads;
            let mut found = Vec::new();
            self.ops.for_each_thread(&mut |process, tid, stat| found.push((process, tid, *stat)));
            refusals.clear();
            for (process, tid, stat) in found {
                match self.move_thread(process, tid, &stat) {
                    Ok(moved) => report.threads += u32::from(moved),
                    Err(error) => refusals.push(Unmoved {
                        kind: UnmovedKind::Thread { tid, name: String::new() },
                        reason: refused(&error),
                    }),
                }
            }
            if report.threads == before {
                break;
            }
        }
        report.unmoved.append(&mut refusals);
        report
    }

    /// Removes the shielded CPUs from the mask of `target`. Returns whether the mask had to be
    /// changed and was changed.
    fn move_mask(&self, target: AffinityTarget) -> io::Result<bool> {
        // An interrupt that has disappeared meanwhile.
        let Ok(before) = self.ops.read_mask(target) else { return Ok(false) };
        let previous_cpu = match target {
            AffinityTarget::Interrupt(number) => {
                // Its mask may allow many CPUs, but it is delivered to one only.
                self.ops
                    .read_mask(AffinityTarget::EffectiveInterrupt(number))
                    .ok()
                    .filter(|cpus| cpus.len() == 1)
            }
            _ => None,
        };
        let previous_cpu =
            previous_cpu.and_then(|cpus| cpus.iter().next()).filter(|&cpu| before.contains(cpu));
        let Some(now) = self.reduced_mask(&before) else { return Ok(false) };
        let mut entry = Entry {
            change: Change::Mask(target),
            previous_cpu,
            restoring: false,
            before,
            applied: now,
        };
        let at = self.journal.append(&entry)?;
        self.ops.write_mask(target, &now)?;
        self.record_actual(at, &mut entry, &self.ops.read_mask(target))?;
        Ok(true)
    }

    fn move_thread(&self, process: Tid, tid: Tid, stat: &proc::Stat) -> io::Result<bool> {
        if tid == Tid::current() || stat.has_ended() {
            return Ok(false);
        }
        // A thread that has ended meanwhile.
        let Ok(before) = self.ops.affinity(tid) else { return Ok(false) };
        let Some(now) = self.reduced_mask(&before) else { return Ok(false) };
        if self.unmoved_reason(process, tid, stat, &before).is_some() {
            return Ok(false);
        }
        let anywhere = self.cpus.union(&self.rest).is_subset(&before);
        let what = Change::Thread { process, tid, start: stat.start_ticks, anywhere };
        let mut entry =
            Entry { change: what, previous_cpu: None, restoring: false, before, applied: now };
        mutate!("os-shield-late-journal", {}, drop(self.ops.set_affinity(tid, &now)));
        let at = self.journal.append(&entry)?;
        match self.ops.set_affinity(tid, &now) {
            Err(error) if crate::sys::is(&error, libc::ESRCH) => return Ok(false),
            set => set?,
        }
        self.record_actual(at, &mut entry, &self.ops.affinity(tid))?;
        Ok(true)
    }

    /// Records the affinity that the kernel has set, which may be smaller than the requested one.
    /// Restoring compares with the recorded affinity.
    fn record_actual(
        &self,
        at: u64,
        entry: &mut Entry,
        found: &io::Result<CpuSet>,
    ) -> io::Result<()> {
        match *found {
            Ok(found) if found != entry.applied && found != entry.before => {
                entry.applied = found;
                self.journal.update(at, entry)
            }
            _ => Ok(()),
        }
    }

    /// Returns the affinity without the shielded CPUs. Returns `None` if no change is necessary.
    fn reduced_mask(&self, before: &CpuSet) -> Option<CpuSet> {
        if before.intersection(&self.cpus).is_empty() {
            return None;
        }
        let now = before.difference(&self.cpus);
        Some(if now.is_empty() { self.rest } else { now })
    }

    /// Returns the reason why a thread is not moved. Returns `None` if the thread is to be moved.
    fn unmoved_reason(
        &self,
        process: Tid,
        tid: Tid,
        stat: &proc::Stat,
        may_use: &CpuSet,
    ) -> Option<UnmovedReason> {
        let is_pinned = may_use.is_subset(&self.cpus);
        if stat.is_bound() {
            Some(UnmovedReason::CpuBound)
        } else if stat.is_kernel_thread()
            && proc::comm(tid).is_ok_and(|name| name.starts_with("irq/"))
        {
            Some(UnmovedReason::MovesLater)
        } else if is_pinned && stat.is_kernel_thread() {
            Some(UnmovedReason::CpuBound)
        } else if is_pinned && (self.ops.is_real_time(tid) || process == Tid::of_process()) {
            // Threads of this process were pinned by the process itself.
            Some(UnmovedReason::RealTime)
        } else {
            None
        }
    }

    /// Lists the threads and interrupts that may use the shielded CPUs now, without threads of this
    /// process. Keeps the reasons in `known`.
    fn list_users(&self, known: &[Unmoved]) -> Vec<Unmoved> {
        let mut unmoved: Vec<Unmoved> = known
            .iter()
            .filter(|unmoved| unmoved.kind == UnmovedKind::UnboundWorkers)
            .cloned()
            .collect();
        let reason = |matches_kind: &dyn Fn(&UnmovedKind) -> bool| {
            known
                .iter()
                .find(|unmoved| matches_kind(&unmoved.kind))
                .map_or(UnmovedReason::Arrived, |unmoved| unmoved.reason)
        };
        let has_ours = |cpus: &CpuSet| !cpus.intersection(&self.cpus).is_empty();
        for number in self.ops.interrupts() {
            let Ok(may) = self.ops.read_mask(AffinityTarget::Interrupt(number)) else { continue };
            let goes =
                self.ops.read_mask(AffinityTarget::EffectiveInterrupt(number)).unwrap_or(may);
            if has_ours(&goes) {
                let reason = if has_ours(&may) {
                    reason(&|kind| kind.is_interrupt(number))
                } else {
                    UnmovedReason::MovesLater
                };
                unmoved.push(Unmoved {
                    kind: UnmovedKind::Interrupt { number, name: handler_names(number) },
                    reason,
                });
            }
        }
        self.ops.for_each_thread(&mut |process, thread, stat| {
            let Ok(may_use) = self.ops.affinity(thread) else { return };
            if !has_ours(&may_use) || process == Tid::of_process() || stat.has_ended() {
                return;
            }
            let reason =
                self.unmoved_reason(process, thread, stat, &may_use).unwrap_or_else(|| {
                    reason(
                        &|what| matches!(what, UnmovedKind::Thread { tid, .. } if *tid == thread),
                    )
                });
            let name = proc::comm(thread).unwrap_or_default();
            unmoved.push(Unmoved { kind: UnmovedKind::Thread { tid: thread, name }, reason });
        });
        unmoved
    }
}

fn refused(error: &io::Error) -> UnmovedReason {
    UnmovedReason::Refused(error.raw_os_error().unwrap_or(0))
}

/// Returns the names of an interrupt's handlers, which have a directory each.
fn handler_names(interrupt: u32) -> String {
    let entries = std::fs::read_dir(format!("/proc/irq/{interrupt}"));
    let is_directory =
        |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries.into_iter().flatten().flatten().filter(is_directory);
    let names: Vec<String> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.join(",")
}

impl fmt::Display for Unmoved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            UnmovedKind::Thread { tid, name } => write!(f, "thread {tid} ({name})"),
            UnmovedKind::Interrupt { number, name } => write!(f, "interrupt {number} ({name})"),
            UnmovedKind::UnboundWorkers => f.write_str("the kernel's unbound workers"),
        }?;
        match self.reason {
            UnmovedReason::CpuBound => f.write_str(": a per-CPU kernel thread"),
            UnmovedReason::MovesLater => f.write_str(": moves at its next occurrence"),
            UnmovedReason::RealTime => f.write_str(": pinned there with a real-time policy"),
            UnmovedReason::Refused(number) => {
                write!(
                    f,
                    ": the kernel refuses to move it: {}",
                    io::Error::from_raw_os_error(number)
                )
            }
            UnmovedReason::Arrived => f.write_str(": arrived meanwhile"),
        }
    }
}

impl fmt::Display for ShieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShieldError::NoSuchCpus(cpus) if cpus.is_empty() => f.write_str("the set of CPUs is empty"),
            ShieldError::NoSuchCpus(cpus) => write!(f, "not all of CPUs {cpus} are online"),
            ShieldError::NothingLeft => f.write_str("all CPUs would be shielded; leave at least one for other threads"),
            ShieldError::Busy { by } => write!(f, "thread {by} has a shield; only one can exist at a time"),
            ShieldError::NoRight => f.write_str(
                "a shield needs root: CAP_SYS_NICE to move other users' threads, and write access to \
                 root's interrupt files; the daemon does not raise shields",
            ),
            ShieldError::Os { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for ShieldError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ShieldError::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}
