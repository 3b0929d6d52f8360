//! Signals that are read from a descriptor.
//!
//! `signalfd(2)`: the signals are blocked in the calling thread and in threads that it creates
//! later. The kernel queues the signals in a descriptor, so no handler ever interrupts the daemon's
//! code. The caller must create the descriptor before other threads exist.

use crate::sys::check;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that Talea reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Request to end.
    Term,
    /// Interrupt from the keyboard.
    Int,
    /// Request to reload the configuration.
    Hup,
    /// Request to end and report the current state.
    Quit,
    /// Request to report the current state.
    Usr1,
    /// Signal whose meaning the program defines.
    Usr2,
    /// The terminal's window has another size.
    Winch,
    /// Stop from the keyboard.
    Tstp,
    /// Request to continue. The kernel has continued the process already.
    Cont,
    /// A child has changed its state.
    Chld,
}

impl Signal {
    /// All signals.
    pub const ALL: [Signal; 10] = [
        Signal::Term,
        Signal::Int,
        Signal::Hup,
        Signal::Quit,
        Signal::Usr1,
        Signal::Usr2,
        Signal::Winch,
        Signal::Tstp,
        Signal::Cont,
        Signal::Chld,
    ];

    /// Returns the kernel's number of the signal.
    pub fn number(self) -> i32 {
        match self {
            Signal::Term => libc::SIGTERM,
            Signal::Int => libc::SIGINT,
            Signal::Hup => libc::SIGHUP,
            Signal::Quit => libc::SIGQUIT,
            Signal::Usr1 => libc::SIGUSR1,
            Signal::Usr2 => libc::SIGUSR2,
            Signal::Winch => libc::SIGWINCH,
            Signal::Tstp => libc::SIGTSTP,
            Signal::Cont => libc::SIGCONT,
            Signal::Chld => libc::SIGCHLD,
        }
    }
}

/// Received signal with its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// The signal.
    pub signal: Signal,
    /// Whether the kernel itself has sent the signal, as for a terminal's keys, and not another
    /// process.
    pub by_kernel: bool,
}

/// Value `SI_KERNEL` of `siginfo.h`.
const BY_KERNEL: i32 = 0x80;

/// Descriptor that becomes readable when a signal of its set arrives.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks `wanted` in this thread and queues these signals in the descriptor. The signals stay
    /// blocked when the value is dropped, because an unread signal would otherwise kill the process
    /// at that moment.
    pub fn new(wanted: &[Signal]) -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, the calls after it use it initialised; the
        // signal numbers are constants that exist.
        let set = unsafe {
            check(libc::sigemptyset(set.as_mut_ptr()))?;
            for signal in wanted {
                check(libc::sigaddset(set.as_mut_ptr(), signal.number()))?;
            }
            set.assume_init()
        };
        // SAFETY: `set` is initialised; no old mask is asked for.
        let failed =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: `set` is initialised; the returned descriptor is fresh and ours.
        let fd = check(unsafe {
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        })?;
        // SAFETY: as above.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the next signal that has arrived, or `None` if there is none.
    pub fn take(&self) -> io::Result<Option<Signal>> {
        Ok(self.next()?.map(|arrived| arrived.signal))
    }

    /// Returns the next signal that has arrived, with its origin. Returns `None` if there is none.
    pub fn next(&self) -> io::Result<Option<ReceivedSignal>> {
        // Signal, error and code come first, each four bytes; the structure has 128 bytes and is
        // read whole.
        let mut info = [0u8; 128];
        match rustix::io::read(&self.0, &mut info) {
            Ok(_) => {
                let word = |at: usize| {
                    i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]])
                };
                let signal = Signal::ALL.into_iter().find(|signal| signal.number() == word(0));
                Ok(signal.map(|signal| ReceivedSignal { signal, by_kernel: word(8) == BY_KERNEL }))
            }
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Guard that blocks SIGTSTP, SIGTTIN and SIGTTOU in this thread and in threads that it creates.
/// While the guard exists, the keys of the terminal do not stop the process. A signal that arrived
/// meanwhile stops the process when the guard is dropped.
#[derive(Debug)]
pub struct TerminalStopsBlocked {
    before: libc::sigset_t,
    /// Marker that keeps the guard in its thread, because signal masks are per thread.
    here: PhantomData<*const ()>,
}

impl TerminalStopsBlocked {
    /// Blocks the signals. Call it before other threads exist.
    pub fn new() -> io::Result<TerminalStopsBlocked> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, the calls after it use it initialised; the
        // kernel fills `before` if it succeeds.
        unsafe {
            check(libc::sigemptyset(set.as_mut_ptr()))?;
            for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
                check(libc::sigaddset(set.as_mut_ptr(), signal))?;
            }
            match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(TerminalStopsBlocked { before: before.assume_init(), here: PhantomData }),
                failed => Err(io::Error::from_raw_os_error(failed)),
            }
        }
    }
}

impl Drop for TerminalStopsBlocked {
    fn drop(&mut self) {
        // Unblocks only these: others may have been blocked meanwhile and stay blocked.
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set, the calls after it use it initialised; `before`
        // is a whole set.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
                if libc::sigismember(&raw const self.before, signal) == 0 {
                    libc::sigaddset(set.as_mut_ptr(), signal);
                }
            }
            libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), std::ptr::null_mut());
        }
    }
}

/// Access to the descriptor, for `epoll`.
impl AsRawFd for Signals {
    fn as_raw_fd(&self) -> i32 {
        self.0.as_raw_fd()
    }
}
