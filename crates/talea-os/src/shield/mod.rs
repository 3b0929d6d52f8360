//! CPUs that are kept clear of everybody else for the time of a run (YASMIN, sections 3.3 and 3.5;
//! "shielded processors").
//!
//! Model: whatever runs on some CPUs without being bound to them is told to run on the others:
//! threads, one by one, by their affinity; interrupts; the kernel's workers that are bound to no
//! CPU; and interrupts to come. What stays is told with its reason: the kernel's own threads of
//! each CPU, interrupts that it does not let go, whoever somebody has put there with a real-time
//! policy. The timer's tick and other CPUs' calls stay, too, and are no news.
//!
//! Invariant: every change is in the books before it is made, and is taken back when the [`Shield`]
//! is dropped; if the process is killed, by its keeper; if both are killed at the same instant, by
//! the next shield or [`sweep`].
//!
//! One shield at a time on a machine, as two could not both be put back. A thread that begins
//! meanwhile inherits where its parent may run, and one that moves itself back is not followed:
//! [`Shield::strangers`] tells. In a PID namespace others' threads can't be seen.
//!
//! Absent on purpose: cpuset partitions (decision 13).

mod books;
mod ground;
mod heirs;
#[cfg(test)]
mod tests;

use crate::dropcaps::{self, Capability};
use crate::keeper::{Duty, Keeper, Post};
use crate::{Tid, clock, proc};
pub use books::Restored;
use books::{Books, Entry, Owner, Turned};
use ground::{Ground, Knob, Linux};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use talea_core::CpuSet;
use talea_core::mutate;

/// Where the books are: gone with the boot, as what they speak of is.
const BOOKS: &str = "/run/talea-shield";
/// Looks for threads that others begin meanwhile.
const ROUNDS: u32 = 10;

/// Why there is no shield.
#[derive(Debug)]
pub enum Refusal {
    /// No CPU was named, or one that is not online.
    NoSuchCpus(Box<CpuSet>),
    /// No CPU would be left for everybody else.
    NothingLeft,
    /// Another process has one.
    Busy {
        /// A thread of it.
        by: Tid,
    },
    /// It takes root, and `CAP_SYS_NICE` above all.
    NoRight,
    /// The kernel refused.
    Os {
        /// What.
        doing: &'static str,
        /// Its answer.
        error: io::Error,
    },
}

/// What may still use a shielded CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A thread.
    Thread {
        /// Its number.
        tid: Tid,
        /// Its name.
        name: String,
    },
    /// An interrupt.
    Interrupt {
        /// Its number.
        number: u32,
        /// Whose it is.
        name: String,
    },
    /// All the kernel's workers that are bound to no CPU.
    Workers,
}

/// Why it was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A thread of the kernel that belongs to its CPU, or to workers whose end is near.
    Bound,
    /// It goes elsewhere the next time that it comes: an interrupt that is on its way to another
    /// CPU, or a thread that handles one.
    Follows,
    /// Somebody has put it there with a real-time policy, and promised something by it.
    Promised,
    /// The kernel said no with this number: to an interrupt that it manages itself (`EPERM`,
    /// `EIO`), to a thread in a cpuset without other CPUs (`EINVAL`), to one with a reservation
    /// (`EBUSY`).
    Refused(i32),
    /// It came there later, or went back.
    Came,
}

/// Something that was not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// What.
    pub what: What,
    /// Why.
    pub why: Why,
}

/// What a shield has done, as was seen when it had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// Threads that were moved.
    pub threads: u32,
    /// Interrupts that were moved.
    pub interrupts: u32,
    /// Whatever may still use a CPU of it.
    pub left: Vec<Left>,
}

/// CPUs that are kept clear. Dropping it puts everything back.
#[derive(Debug)]
pub struct Shield {
    books: Books,
    path: PathBuf,
    cpus: CpuSet,
    cleared: Cleared,
    keeper: Option<Keeper>,
}

/// What the keeper of a shield does.
struct Undo {
    path: PathBuf,
    owner: Owner,
    boot: [u8; 16],
}

impl Duty for Undo {
    fn clean(&self) {
        // The descriptors of the process are not its own any more; and a next shield may have been
        // faster.
        if let Ok(Some(books)) = Books::reopen(&self.path, self.owner, self.boot) {
            books.undo(&Linux);
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Whether CPUs could be shielded here, whoever asks.
///
/// # Errors
/// If not: [`Refusal::NoSuchCpus`], [`Refusal::NothingLeft`].
pub fn check(cpus: &CpuSet) -> Result<(), Refusal> {
    others(cpus).map(drop)
}

/// The CPUs that are left for everybody else.
fn others(cpus: &CpuSet) -> Result<CpuSet, Refusal> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online")
        .and_then(|text| CpuSet::parse(text.trim_end()).map_err(io::Error::other))
        .map_err(|error| Refusal::Os { doing: "asking which CPUs are online", error })?;
    if cpus.is_empty() || !cpus.is_subset(&online) {
        return Err(Refusal::NoSuchCpus(Box::new(*cpus)));
    }
    let rest = online.difference(cpus);
    mutate!(
        "runtime-shield-all",
        if rest.is_empty() { Err(Refusal::NothingLeft) } else { Ok(rest) },
        Ok(rest)
    )
}

impl Shield {
    /// Clears these CPUs of everybody but the calling thread, and whom it makes.
    ///
    /// # Errors
    /// If that can't be begun; what can't be moved is no error.
    pub fn raise(cpus: &CpuSet) -> Result<Shield, Refusal> {
        let rest = others(cpus)?;
        if !dropcaps::effective().is_ok_and(|held| held.has(Capability::SysNice)) {
            return Err(Refusal::NoRight);
        }
        Shield::raise_at(Path::new(BOOKS), cpus, &rest)
    }

    fn raise_at(path: &Path, cpus: &CpuSet, rest: &CpuSet) -> Result<Shield, Refusal> {
        let os = |doing| move |error| Refusal::Os { doing, error };
        let boot = clock::boot_id().map_err(os("asking which boot this is"))?;
        let (path, place, other) = (path.to_owned(), path.to_owned(), Arc::new(OnceLock::new()));
        let begin = {
            let other = Arc::clone(&other);
            move |parent, start| {
                let owner = Owner { parent, start };
                match Books::begin(&path, &Linux, owner, boot)? {
                    Ok(books) => {
                        let top = crate::groups::hierarchy();
                        Ok((Post::new(Undo { path, owner, boot }, top.as_deref(), None)?, books))
                    }
                    Err(found) => {
                        // There must be no keeper of another one's books, not for a moment.
                        let _ = other.set(found.parent);
                        Err(crate::sys::errno(libc::EBUSY))
                    }
                }
            }
        };
        let (keeper, books) = Keeper::start(begin).map_err(|error| match other.get() {
            Some(&by) => Refusal::Busy { by },
            None => Refusal::Os { doing: "keeping books of what is changed in /run", error },
        })?;
        let mut shield = Shield {
            books,
            path: place,
            cpus: *cpus,
            cleared: Cleared::default(),
            keeper: Some(keeper),
        };
        let clear = Clear { ground: &Linux, books: &shield.books, cpus: *cpus, rest: *rest };
        let mut cleared = clear.all();
        cleared.left = clear.look(&cleared.left);
        shield.cleared = cleared;
        Ok(shield)
    }

    /// Which CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// What was done.
    pub fn cleared(&self) -> &Cleared {
        &self.cleared
    }

    /// Who may use its CPUs now and could not when it was raised: threads of other processes that
    /// are not the kernel's own, and interrupts.
    pub fn strangers(&self) -> Vec<Left> {
        let clear =
            Clear { ground: &Linux, books: &self.books, cpus: self.cpus, rest: CpuSet::EMPTY };
        let mut found = clear.look(&[]);
        found.retain(|left| {
            left.why == Why::Came && !self.cleared.left.iter().any(|known| known.what == left.what)
        });
        found
    }

    /// Puts everything back now, and says what came of it.
    pub fn lower(mut self) -> Restored {
        self.undo()
    }

    fn undo(&mut self) -> Restored {
        let Some(keeper) = self.keeper.take() else { return Restored::default() };
        let restored = self.books.undo(&Linux);
        // Before the keeper leaves: books without anybody would be an orphan's.
        let _ = std::fs::remove_file(&self.path);
        keeper.dismiss();
        restored
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        self.undo();
    }
}

/// Puts back what a shield has left whose process was killed together with its keeper; nothing
/// where there is none.
///
/// # Errors
/// Without the right to it.
pub fn sweep() -> io::Result<Option<Restored>> {
    Books::sweep(Path::new(BOOKS), &Linux)
}

/// Whether there is one for [`sweep`].
pub fn is_left() -> bool {
    Books::are_left(Path::new(BOOKS), &Linux)
}

/// Clears CPUs.
struct Clear<'a> {
    ground: &'a dyn Ground,
    books: &'a Books,
    cpus: CpuSet,
    rest: CpuSet,
}

impl Clear<'_> {
    /// Everything that can be moved; what refused, in `left`.
    fn all(&self) -> Cleared {
        let mut cleared = Cleared::default();
        for knob in [Knob::NewInterrupts, Knob::Workers] {
            if let Err(error) = self.turn(knob)
                && knob == Knob::Workers
            {
                cleared.left.push(Left { what: What::Workers, why: refused(&error) });
            }
        }
        for number in self.ground.interrupts() {
            match self.turn(Knob::Interrupt(number)) {
                Ok(moved) => cleared.interrupts += u32::from(moved),
                Err(error) => {
                    let what = What::Interrupt { number, name: String::new() };
                    cleared.left.push(Left { what, why: refused(&error) });
                }
            }
        }
        let mut refusals = Vec::new();
        for _ in 0..ROUNDS {
            let before = cleared.threads;
            let mut found = Vec::new();
            self.ground.each(&mut |process, tid, stat| found.push((process, tid, *stat)));
            refusals.clear();
            for (process, tid, stat) in found {
                match self.move_away(process, tid, &stat) {
                    Ok(moved) => cleared.threads += u32::from(moved),
                    Err(error) => refusals.push(Left {
                        what: What::Thread { tid, name: String::new() },
                        why: refused(&error),
                    }),
                }
            }
            if cleared.threads == before {
                break;
            }
        }
        cleared.left.append(&mut refusals);
        cleared
    }

    /// Whether it had to be moved, and was.
    fn turn(&self, knob: Knob) -> io::Result<bool> {
        // An interrupt that has gone meanwhile.
        let Ok(was) = self.ground.read(knob) else { return Ok(false) };
        let went = match knob {
            Knob::Interrupt(number) => {
                // Where it may go anywhere but goes to one CPU only.
                self.ground.read(Knob::Effective(number)).ok().filter(|cpus| cpus.len() == 1)
            }
            _ => None,
        };
        let went = went.and_then(|cpus| cpus.iter().next()).filter(|&cpu| was.contains(cpu));
        let Some(now) = self.without(&was) else { return Ok(false) };
        let mut entry = Entry { what: Turned::Knob(knob), went, returning: false, was, now };
        let at = self.books.add(&entry)?;
        self.ground.turn(knob, &now)?;
        self.correct(at, &mut entry, &self.ground.read(knob))?;
        Ok(true)
    }

    fn move_away(&self, process: Tid, tid: Tid, stat: &proc::Stat) -> io::Result<bool> {
        if tid == Tid::current() || stat.has_ended() {
            return Ok(false);
        }
        // One that has ended meanwhile.
        let Ok(was) = self.ground.affinity(tid) else { return Ok(false) };
        let Some(now) = self.without(&was) else { return Ok(false) };
        if self.stays(process, tid, stat, &was).is_some() {
            return Ok(false);
        }
        let anywhere = self.cpus.union(&self.rest).is_subset(&was);
        let what = Turned::Thread { process, tid, start: stat.start_ticks, anywhere };
        let mut entry = Entry { what, went: None, returning: false, was, now };
        let at = self.books.add(&entry)?;
        match self.ground.set_affinity(tid, &now) {
            Err(error) if crate::sys::is(&error, libc::ESRCH) => return Ok(false),
            set => set?,
        }
        self.correct(at, &mut entry, &self.ground.affinity(tid))?;
        Ok(true)
    }

    /// The kernel may have taken less than was said: what is put back is told by what it has.
    fn correct(&self, at: u64, entry: &mut Entry, found: &io::Result<CpuSet>) -> io::Result<()> {
        match *found {
            Ok(found) if found != entry.now && found != entry.was => {
                entry.now = found;
                self.books.correct(at, entry)
            }
            _ => Ok(()),
        }
    }

    /// Where something may go instead; nothing if it needs not.
    fn without(&self, was: &CpuSet) -> Option<CpuSet> {
        if was.intersection(&self.cpus).is_empty() {
            return None;
        }
        let now = was.difference(&self.cpus);
        Some(if now.is_empty() { self.rest } else { now })
    }

    /// Why a thread is not moved; nothing if it is to be.
    fn stays(&self, process: Tid, tid: Tid, stat: &proc::Stat, may_use: &CpuSet) -> Option<Why> {
        let is_put_there = may_use.is_subset(&self.cpus);
        if stat.is_bound() {
            Some(Why::Bound)
        } else if stat.is_kernel_thread()
            && proc::comm(tid).is_ok_and(|name| name.starts_with("irq/"))
        {
            Some(Why::Follows)
        } else if is_put_there && stat.is_kernel_thread() {
            Some(Why::Bound)
        } else if is_put_there && (self.ground.is_real_time(tid) || process == Tid::of_process()) {
            // Its own it has put there itself.
            Some(Why::Promised)
        } else {
            None
        }
    }

    /// Who may use these CPUs now but for this process, with the reasons that `known` has.
    fn look(&self, known: &[Left]) -> Vec<Left> {
        let mut left: Vec<Left> =
            known.iter().filter(|left| left.what == What::Workers).cloned().collect();
        let why = |is_it: &dyn Fn(&What) -> bool| {
            known.iter().find(|left| is_it(&left.what)).map_or(Why::Came, |left| left.why)
        };
        let has_ours = |cpus: &CpuSet| !cpus.intersection(&self.cpus).is_empty();
        for number in self.ground.interrupts() {
            let Ok(may) = self.ground.read(Knob::Interrupt(number)) else { continue };
            let goes = self.ground.read(Knob::Effective(number)).unwrap_or(may);
            if has_ours(&goes) {
                let is_it =
                    |what: &What| matches!(what, What::Interrupt { number: n, .. } if *n == number);
                let why = if has_ours(&may) { why(&is_it) } else { Why::Follows };
                left.push(Left { what: What::Interrupt { number, name: name_of(number) }, why });
            }
        }
        self.ground.each(&mut |process, thread, stat| {
            let Ok(may_use) = self.ground.affinity(thread) else { return };
            if !has_ours(&may_use) || process == Tid::of_process() || stat.has_ended() {
                return;
            }
            let why = self.stays(process, thread, stat, &may_use).unwrap_or_else(|| {
                why(&|what| matches!(what, What::Thread { tid, .. } if *tid == thread))
            });
            let name = proc::comm(thread).unwrap_or_default();
            left.push(Left { what: What::Thread { tid: thread, name }, why });
        });
        left
    }
}

fn refused(error: &io::Error) -> Why {
    Why::Refused(error.raw_os_error().unwrap_or(0))
}

/// Whose an interrupt is: its handlers have a directory each.
fn name_of(interrupt: u32) -> String {
    let entries = std::fs::read_dir(format!("/proc/irq/{interrupt}"));
    let is_directory =
        |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let names = entries.into_iter().flatten().flatten().filter(is_directory);
    let names: Vec<String> =
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.join(",")
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Thread { tid, name } => write!(f, "thread {tid} ({name})"),
            What::Interrupt { number, name } => write!(f, "interrupt {number} ({name})"),
            What::Workers => f.write_str("the kernel's unbound workers"),
        }?;
        match self.why {
            Why::Bound => f.write_str(": the kernel's own, bound to its CPU"),
            Why::Follows => f.write_str(": goes elsewhere the next time that it comes"),
            Why::Promised => f.write_str(": put there with a real-time policy"),
            Why::Refused(number) => {
                write!(
                    f,
                    ": the kernel does not let it go: {}",
                    io::Error::from_raw_os_error(number)
                )
            }
            Why::Came => f.write_str(": came there meanwhile"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NoSuchCpus(cpus) if cpus.is_empty() => f.write_str("no CPU was named"),
            Refusal::NoSuchCpus(cpus) => write!(f, "not all of CPUs {cpus} are online"),
            Refusal::NothingLeft => f.write_str("all CPUs would be shielded, and none left for everybody else"),
            Refusal::Busy { by } => write!(f, "thread {by} has a shield, and there is one at a time"),
            Refusal::NoRight => f.write_str(
                "a shield takes root: CAP_SYS_NICE to move others' threads, and the files of interrupts, which are root's; the daemon does neither for anybody",
            ),
            Refusal::Os { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Refusal::Os { error, .. } => Some(error),
            _ => None,
        }
    }
}
