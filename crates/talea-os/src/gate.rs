//! Stopping a thread of our own wherever it is, until it may go on.
//!
//! Model: a priority says who runs before whom, not that somebody may not run: on a CPU that nobody
//! else wants the least urgent thread runs. So a thread that must not run is sent a signal, whose
//! handler sleeps in a futex until the gate is open. A thread that something more urgent keeps from
//! its CPU takes the signal when it gets it next, before any more of its own code. Nothing is sent
//! to a thread twice while its gate is shut.
//!
//! The signal is SIGURG, which is ignored by default, so that one that comes after everything is
//! over does no harm. What the thread did when it was stopped it does on: system calls are
//! restarted where the kernel can (`signal(7)`, "Interruption of system calls": sleeps and polls
//! with a time-out end with `EINTR`). It keeps the locks that it holds, as a thread that is
//! preempted does.
//!
//! States of the word: open; shut, the thread has not noticed; parked, it sleeps in the handler.

use crate::Tid;
use crate::sys::{check, check_long};
use rustix::thread::futex::{self, Flags};
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};
use std::sync::{Mutex, PoisonError};
use talea_core::mutate;

const OPEN: u32 = 0;
const SHUT: u32 = 1;
const PARKED: u32 = 2;

/// The gate of one thread.
#[derive(Debug, Default)]
pub struct Gate(AtomicU32);

thread_local! {
    /// The gate that the thread stands behind; null for most. Neither lazy nor dropped, so that a
    /// handler may read it.
    static MINE: Cell<*const AtomicU32> = const { Cell::new(null()) };
    /// The thread may not be stopped just now.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Does `what` without being stopped meanwhile, as whoever holds a lock must not be that those need
/// who open gates. If the gate was shut, the thread is stopped when it is done.
pub fn unstopped<T>(what: impl FnOnce() -> T) -> T {
    struct Held(bool);
    impl Drop for Held {
        fn drop(&mut self) {
            // The signal may have come and found this set; one that comes later finds it as it was.
            HOLDS.with(|holds| holds.set(self.0));
            compiler_fence(Ordering::SeqCst);
        }
    }
    let held = Held(HOLDS.with(|holds| holds.replace(true)));
    compiler_fence(Ordering::SeqCst);
    let done = what();
    drop(held);
    if !HOLDS.with(Cell::get) {
        stand();
    }
    done
}

impl Gate {
    /// An open gate.
    pub const fn new() -> Gate {
        Gate(AtomicU32::new(OPEN))
    }

    /// Runs `inside` as a thread that this gate can stop. A [`Handler`] must live as long.
    pub fn within<T>(&self, inside: impl FnOnce() -> T) -> io::Result<T> {
        struct Reset(*const AtomicU32);
        impl Drop for Reset {
            fn drop(&mut self) {
                MINE.with(|mine| mine.set(self.0));
            }
        }
        // The pointer is taken away again before the borrow of `self` ends, also by a panic.
        let _reset = Reset(MINE.with(|mine| mine.replace(&raw const self.0)));
        admit_signal()?;
        Ok(inside())
    }

    /// Shuts the gate for `thread`, which is inside it; at once if it runs, else when it would.
    /// Nothing if it is shut. `ESRCH`: no such thread in this process.
    pub fn shut(&self, thread: Tid) -> io::Result<()> {
        if self.0.compare_exchange(OPEN, SHUT, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Ok(());
        }
        let process = Tid::of_process().as_raw();
        // SAFETY: takes three integers; names a thread of this process only.
        check_long(unsafe {
            libc::syscall(libc::SYS_tgkill, process, thread.as_raw(), libc::SIGURG)
        })?;
        Ok(())
    }

    /// Opens it; the thread goes on where it was.
    pub fn open(&self) {
        if self.0.swap(OPEN, Ordering::AcqRel) == PARKED {
            // Only a misaligned word could make this fail.
            let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
        }
    }

    /// Whether it is shut and its thread sleeps for it.
    pub fn has_parked(&self) -> bool {
        self.0.load(Ordering::Acquire) == PARKED
    }
}

/// Lets SIGURG through in this thread, whatever its parent had blocked.
fn admit_signal() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, which is used initialised; no old mask is asked for.
    let failed = unsafe {
        check(libc::sigemptyset(set.as_mut_ptr()))?;
        check(libc::sigaddset(set.as_mut_ptr(), libc::SIGURG))?;
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(crate::sys::errno(failed)) }
}

/// Runs in a thread that was stopped. Only what `signal-safety(7)` allows: atomics, a futex call,
/// and `errno` as it was.
extern "C" fn park(_signal: libc::c_int) {
    // SAFETY: each thread has an errno of its own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    mutate!(
        "os-gate-holds",
        {
            if !HOLDS.with(Cell::get) {
                stand();
            }
        },
        {
            stand();
        }
    );

    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Sleeps until the gate of the calling thread is open; at once where it has none.
fn stand() {
    // SAFETY: null, or the word of a gate whose `within` is on this thread's stack and borrows it.
    if let Some(word) = unsafe { MINE.with(Cell::get).as_ref() } {
        loop {
            match word.load(Ordering::Acquire) {
                OPEN => break,
                SHUT => {
                    let _ =
                        word.compare_exchange(SHUT, PARKED, Ordering::AcqRel, Ordering::Relaxed);
                }
                // Woken, interrupted or no longer parked: the word says which.
                _ => _ = futex::wait(word, Flags::PRIVATE, PARKED, None),
            }
        }
    }
}

/// How many use the handler, and what was there before the first.
static USERS: Mutex<(usize, Option<libc::sigaction>)> = Mutex::new((0, None));

/// What the kernel knows our handler by.
fn own() -> libc::sighandler_t {
    park as *const () as libc::sighandler_t
}

/// What becomes of a SIGURG at present.
fn installed() -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action; the kernel fills `action`.
    unsafe {
        check(libc::sigaction(libc::SIGURG, null(), action.as_mut_ptr()))?;
        Ok(action.assume_init())
    }
}

/// `action` is what the kernel gave us, or ours, whose handler does only what a handler may.
fn set(action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `action` is valid; the old one is not asked for.
    check(unsafe { libc::sigaction(libc::SIGURG, action, std::ptr::null_mut()) }).map(drop)
}

/// The process's handler of SIGURG, as long as somebody keeps one of these.
#[derive(Debug)]
pub struct Handler(());

impl Handler {
    /// Installs it, unless it is there. `EBUSY`: the program handles SIGURG itself.
    pub fn install() -> io::Result<Handler> {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        if users.0 == 0 {
            let before = installed()?;
            if !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            // SAFETY: a sigaction of zeroes is valid: no flags, no handler, an empty mask.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = own();
            action.sa_flags = libc::SA_RESTART;
            set(&action)?;
            users.1 = Some(before);
        }
        users.0 += 1;
        Ok(Handler(()))
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        users.0 -= 1;
        if users.0 == 0
            && let Some(before) = users.1.take()
        {
            // Whoever has taken the signal since then keeps it.
            if installed().is_ok_and(|action| action.sa_sigaction == own()) {
                let _ = set(&before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threadclock::ThreadClock;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// The signal is the process's: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    fn eventually(mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < end, "never happened");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_busy_thread_stands_still_behind_its_gate_and_goes_on() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _handler = Handler::install().expect("a handler");
        let (gate, stop, steps) = (Gate::new(), AtomicBool::new(false), AtomicU64::new(0));
        let (say, heard) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.within(|| {
                    say.send((Tid::current(), ThreadClock::current().expect("a clock")))
                        .expect("heard");
                    while !stop.load(Ordering::Relaxed) {
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .expect("a mask");
            });
            let (tid, clock) = heard.recv().expect("it has begun");
            let mut ran_on = 0;
            for _ in 0..50 {
                gate.shut(tid).expect("it lives");
                gate.shut(tid).expect("twice is once");
                eventually(|| gate.has_parked());
                let (before, used) =
                    (steps.load(Ordering::Relaxed), clock.read().expect("it lives"));
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(steps.load(Ordering::Relaxed), before);
                // The last of the way into the futex may still have been before it, with a stop of
                // the machine in it.
                ran_on +=
                    u32::from(clock.read().expect("it lives").as_ns() - used.as_ns() > 1_000_000);
                gate.open();
                eventually(|| steps.load(Ordering::Relaxed) > before);
            }
            assert!(ran_on < 25, "in {ran_on} of 50 rounds it used its CPU behind the gate");
            // Opened before it was noticed: no step is lost, and nobody sleeps for ever.
            for _ in 0..1_000 {
                gate.shut(tid).expect("it lives");
                gate.open();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_thread_that_holds_something_stands_still_when_it_has_put_it_down() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _handler = Handler::install().expect("a handler");
        let (gate, shut, steps) = (Gate::new(), AtomicBool::new(false), AtomicU64::new(0));
        let (say, heard) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.within(|| {
                    unstopped(|| {
                        // Whoever hears it may shut the gate at once.
                        say.send(Tid::current()).expect("heard");
                        while !shut.load(Ordering::Acquire) {
                            std::hint::spin_loop();
                        }
                        // The signal has come by now, and this is done all the same.
                        let end = Instant::now() + Duration::from_millis(20);
                        while Instant::now() < end {
                            steps.store(1, Ordering::Release);
                        }
                        unstopped(|| ());
                        steps.store(2, Ordering::Release);
                    });
                    steps.store(3, Ordering::Release);
                })
                .expect("a mask");
            });
            gate.shut(heard.recv().expect("it has begun")).expect("it lives");
            shut.store(true, Ordering::Release);
            eventually(|| gate.has_parked());
            let done = steps.load(Ordering::Acquire);
            gate.open();
            assert_eq!(done, 2, "all of it was done, and nothing after it");
            eventually(|| steps.load(Ordering::Acquire) == 3);
        });
    }

    #[test]
    fn a_thread_without_a_gate_takes_no_notice() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _handler = Handler::install().expect("a handler");
        let process = Tid::of_process().as_raw();
        // SAFETY: takes three integers; signals this thread, whose handler finds no gate.
        let sent = unsafe {
            libc::syscall(libc::SYS_tgkill, process, Tid::current().as_raw(), libc::SIGURG)
        };
        assert_eq!(sent, 0);
    }

    extern "C" fn others(_signal: libc::c_int) {}

    fn handle(by: libc::sighandler_t) {
        // SAFETY: a sigaction of zeroes is valid; `by` is a disposition, or a handler that does
        // nothing.
        let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
        action.sa_sigaction = by;
        set(&action).expect("a disposition");
    }

    #[test]
    fn a_program_keeps_its_own_handler() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = others as *const () as libc::sighandler_t;
        handle(theirs);
        let refused = Handler::install().expect_err("it is taken");
        assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
        assert_eq!(installed().expect("a disposition").sa_sigaction, theirs);
        for before in [libc::SIG_IGN, libc::SIG_DFL] {
            handle(before);
            drop(Handler::install().expect("nobody has it"));
            assert_eq!(installed().expect("a disposition").sa_sigaction, before);
        }
        // Taken meanwhile: it stays.
        let ours = Handler::install().expect("nobody has it");
        handle(theirs);
        drop(ours);
        assert_eq!(installed().expect("a disposition").sa_sigaction, theirs);
        handle(libc::SIG_DFL);
    }
}
