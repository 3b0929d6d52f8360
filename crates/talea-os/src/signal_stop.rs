//! Stops a thread of this process wherever it executes, until it is resumed.
//!
//! Model: a priority orders threads but does not stop one: on a CPU without other runnable threads
//! the lowest priority runs. So a thread that must not run is sent a signal, whose handler sleeps
//! in a futex until the stop is lifted. A thread that is preempted at that moment takes the signal
//! when it next gets a CPU, before any more of its own code. No second signal is sent while a stop
//! is in force.
//!
//! The signal is SIGURG, whose default action is to be ignored, so a late one does no harm. A
//! stopped thread continues where it was: the kernel restarts interrupted system calls where it can
//! (`signal(7)`, "Interruption of system calls": sleeps and polls with a time-out end with
//! `EINTR`). A stopped thread keeps its locks, as a preempted thread does.
//!
//! States of the word:
//!
//! | state | the thread | transition |
//! | --- | --- | --- |
//! | `RUNNING` | may run | `STOP_REQUESTED`: [`StopGate::stop`] signals |
//! | `STOP_REQUESTED` | has the signal pending | `PARKED`: its handler; `RUNNING`: resume |
//! | `PARKED` | sleeps in the handler | `RUNNING`: [`StopGate::resume`] wakes it |

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

const RUNNING: u32 = 0;
const STOP_REQUESTED: u32 = 1;
const PARKED: u32 = 2;

/// Stop state of one thread.
#[derive(Debug, Default)]
pub struct StopGate(AtomicU32);

thread_local! {
    /// Stop state of this thread; null for most threads. The variable is neither lazily initialized
    /// nor dropped, so a signal handler may read it.
    static OWN_GATE: Cell<*const AtomicU32> = const { Cell::new(null()) };
    /// Whether this thread defers stops.
    static STOP_DEFERRED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `section` and defers a stop until it has returned. A thread must use this while it holds a
/// lock that a resuming thread needs.
pub fn defer_stop<T>(section: impl FnOnce() -> T) -> T {
    struct Held(bool);
    impl Drop for Held {
        fn drop(&mut self) {
            // A signal before this point found the flag set; a later one finds the previous value.
            STOP_DEFERRED.with(|holds| holds.set(self.0));
            compiler_fence(Ordering::SeqCst);
        }
    }
    let held = Held(STOP_DEFERRED.with(|holds| holds.replace(true)));
    compiler_fence(Ordering::SeqCst);
    let done = section();
    drop(held);
    if !STOP_DEFERRED.with(Cell::get) {
        park();
    }
    done
}

impl StopGate {
    /// Creates the state of a thread that may run.
    pub const fn new() -> StopGate {
        StopGate(AtomicU32::new(RUNNING))
    }

    /// Runs `body` as a thread that can be stopped. A [`Handler`] must exist for the whole call.
    pub fn run_stoppable<T>(&self, body: impl FnOnce() -> T) -> io::Result<T> {
        struct Reset(*const AtomicU32);
        impl Drop for Reset {
            fn drop(&mut self) {
                OWN_GATE.with(|mine| mine.set(self.0));
            }
        }
        // The pointer is reset before the borrow of `self` ends, also on a panic.
        let _reset = Reset(OWN_GATE.with(|mine| mine.replace(&raw const self.0)));
        unblock_signal()?;
        Ok(body())
    }

    /// Stops `thread`, which must be in [`StopGate::run_stoppable`]. A running thread stops at
    /// once, and any other thread before it runs next. Does nothing if a stop is in force. `ESRCH`:
    /// no such thread in this process.
    pub fn stop(&self, thread: Tid) -> io::Result<()> {
        if self
            .0
            .compare_exchange(RUNNING, STOP_REQUESTED, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return Ok(());
        }
        let process = Tid::of_process().as_raw();
        // SAFETY: takes three integers; names a thread of this process only.
        check_long(unsafe {
            libc::syscall(libc::SYS_tgkill, process, thread.as_raw(), libc::SIGURG)
        })?;
        Ok(())
    }

    /// Lifts the stop. The thread continues where it was.
    pub fn resume(&self) {
        if self.0.swap(RUNNING, Ordering::AcqRel) == PARKED {
            // Only a misaligned word could make this fail.
            let _ = futex::wake(&self.0, Flags::PRIVATE, 1);
        }
    }

    /// Whether the thread is stopped and sleeps in the handler.
    pub fn is_parked(&self) -> bool {
        self.0.load(Ordering::Acquire) == PARKED
    }
}

/// Unblocks SIGURG in the calling thread, which may have inherited a signal mask.
fn unblock_signal() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set, which is used initialised; no old mask is asked for.
    let failed = unsafe {
        check(libc::sigemptyset(set.as_mut_ptr()))?;
        check(libc::sigaddset(set.as_mut_ptr(), libc::SIGURG))?;
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut())
    };
    if failed == 0 { Ok(()) } else { Err(crate::sys::errno(failed)) }
}

/// Signal handler, executed by the stopped thread. The handler uses only what `signal-safety(7)`
/// allows: atomics and a futex call. It preserves `errno`.
extern "C" fn on_signal(_signal: libc::c_int) {
    // SAFETY: each thread has an errno of its own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    mutate!(
        "os-gate-holds",
        {
            if !STOP_DEFERRED.with(Cell::get) {
                park();
            }
        },
        {
            park();
        }
    );

    // SAFETY: as above.
    unsafe { *errno = before };
}

/// Sleeps until the calling thread may run. Returns at once in a thread without a stop state.
fn park() {
    // SAFETY: null, or the word of a `StopGate` whose `run_stoppable` is on this thread's stack and
    // borrows it.
    if let Some(word) = unsafe { OWN_GATE.with(Cell::get).as_ref() } {
        loop {
            match word.load(Ordering::Acquire) {
                RUNNING => break,
                STOP_REQUESTED => {
                    let _ = word.compare_exchange(
                        STOP_REQUESTED,
                        PARKED,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                }
                // Woken, interrupted or no longer parked: the word says which.
                _ => _ = futex::wait(word, Flags::PRIVATE, PARKED, None),
            }
        }
    }
}

/// Number of [`Handler`]s, and the action that was installed before the first one.
static USERS: Mutex<(usize, Option<libc::sigaction>)> = Mutex::new((0, None));

/// Returns the address of the handler, as `sigaction` reports it.
fn handler_address() -> libc::sighandler_t {
    on_signal as *const () as libc::sighandler_t
}

/// Returns the current action for SIGURG.
fn current_action() -> io::Result<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: no new action; the kernel fills `action`.
    unsafe {
        check(libc::sigaction(libc::SIGURG, null(), action.as_mut_ptr()))?;
        Ok(action.assume_init())
    }
}

/// Sets the action for SIGURG. `action` was returned by the kernel, or has the async-signal-safe
/// handler of this module.
fn set_action(action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `action` is valid; the old one is not asked for.
    check(unsafe { libc::sigaction(libc::SIGURG, action, std::ptr::null_mut()) }).map(drop)
}

/// Guard that keeps the process's SIGURG handler installed.
#[derive(Debug)]
pub struct Handler(());

impl Handler {
    /// Installs the handler unless it is installed already. `EBUSY`: the program handles SIGURG
    /// itself.
    pub fn install() -> io::Result<Handler> {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        if users.0 == 0 {
            let before = current_action()?;
            if !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
                return Err(io::Error::from_raw_os_error(libc::EBUSY));
            }
            // SAFETY: a sigaction of zeroes is valid: no flags, no handler, an empty mask.
            let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
            action.sa_sigaction = handler_address();
            action.sa_flags = libc::SA_RESTART;
            set_action(&action)?;
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
            // A handler that the program has installed since then stays.
            if current_action().is_ok_and(|action| action.sa_sigaction == handler_address()) {
                let _ = set_action(&before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread_cpu_clock::ThreadCpuClock;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    /// The signal action is per process: one test at a time.
    static ONE: Mutex<()> = Mutex::new(());

    fn eventually(mut condition: impl FnMut() -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < end, "never happened");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_busy_thread_is_stopped_and_resumed() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _handler = Handler::install().expect("a handler");
        let (stop_gate, stop, steps) = (StopGate::new(), AtomicBool::new(false), AtomicU64::new(0));
        let (say, heard) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stop_gate
                    .run_stoppable(|| {
                        say.send((Tid::current(), ThreadCpuClock::current().expect("a clock")))
                            .expect("heard");
                        while !stop.load(Ordering::Relaxed) {
                            steps.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                    .expect("a mask");
            });
            let (tid, clock) = heard.recv().expect("the thread has started");
            let mut ran_on = 0;
            for _ in 0..50 {
                stop_gate.stop(tid).expect("it lives");
                stop_gate.stop(tid).expect("twice is once");
                eventually(|| stop_gate.is_parked());
                let (before, used) =
                    (steps.load(Ordering::Relaxed), clock.read().expect("it lives"));
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(steps.load(Ordering::Relaxed), before);
                // The thread may still have been on its way into the futex, and a CPU stall may
                // have hit it there.
                ran_on +=
                    u32::from(clock.read().expect("it lives").as_ns() - used.as_ns() > 1_000_000);
                stop_gate.resume();
                eventually(|| steps.load(Ordering::Relaxed) > before);
            }
            assert!(ran_on < 25, "in {ran_on} of 50 rounds the stopped thread used CPU time");
            // Resumed before the stop was noticed: no step is lost and the thread does not sleep
            // forever.
            for _ in 0..1_000 {
                stop_gate.stop(tid).expect("it lives");
                stop_gate.resume();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn a_deferred_stop_takes_effect_at_the_end_of_the_section() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _handler = Handler::install().expect("a handler");
        let (stop_gate, shut, steps) = (StopGate::new(), AtomicBool::new(false), AtomicU64::new(0));
        let (say, heard) = channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stop_gate
                    .run_stoppable(|| {
                        defer_stop(|| {
                            // The receiver may stop this thread at once.
                            say.send(Tid::current()).expect("heard");
                            while !shut.load(Ordering::Acquire) {
                                std::hint::spin_loop();
                            }
                            // The signal has arrived by now; this section still completes.
                            let end = Instant::now() + Duration::from_millis(20);
                            while Instant::now() < end {
                                steps.store(1, Ordering::Release);
                            }
                            defer_stop(|| ());
                            steps.store(2, Ordering::Release);
                        });
                        steps.store(3, Ordering::Release);
                    })
                    .expect("a mask");
            });
            stop_gate.stop(heard.recv().expect("the thread has started")).expect("it lives");
            shut.store(true, Ordering::Release);
            eventually(|| stop_gate.is_parked());
            let done = steps.load(Ordering::Acquire);
            stop_gate.resume();
            assert_eq!(done, 2, "the section completed and nothing after it ran");
            eventually(|| steps.load(Ordering::Acquire) == 3);
        });
    }

    #[test]
    fn a_thread_without_a_stop_state_ignores_the_signal() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let _handler = Handler::install().expect("a handler");
        let process = Tid::of_process().as_raw();
        // SAFETY: takes three integers; signals this thread, whose handler finds no stop state.
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
        set_action(&action).expect("a disposition");
    }

    #[test]
    fn a_program_keeps_its_own_handler() {
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let theirs = others as *const () as libc::sighandler_t;
        handle(theirs);
        let refused = Handler::install().expect_err("it is taken");
        assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
        assert_eq!(current_action().expect("a disposition").sa_sigaction, theirs);
        for before in [libc::SIG_IGN, libc::SIG_DFL] {
            handle(before);
            drop(Handler::install().expect("the default action"));
            assert_eq!(current_action().expect("a disposition").sa_sigaction, before);
        }
        // Replaced meanwhile: the replacement stays.
        let ours = Handler::install().expect("the default action");
        handle(theirs);
        drop(ours);
        assert_eq!(current_action().expect("a disposition").sa_sigaction, theirs);
        handle(libc::SIG_DFL);
    }
}
