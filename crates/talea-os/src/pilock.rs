//! A lock that lends the priority of who waits to who holds it.
//!
//! Model: a PI futex (`FUTEX_LOCK_PI`, `futex(2)`): zero, or the holder's thread number; taken and
//! given back without a system call while nobody waits. Nobody spins: a FIFO thread that spins on a
//! lock whose holder stands below it on the same CPU never ends.
//!
//! Absent on purpose: poisoning. Whoever panics inside ends the run that the lock belongs to. Not
//! usable across a fork: the child's numbers are others.

use crate::Tid;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

/// A value for one thread at a time.
pub struct PiLock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, of which the kernel's word lets one thread
// have one at a time, so sharing the lock is no more than sending the value from thread to thread.
unsafe impl<T: Send> Sync for PiLock<T> {}

thread_local! {
    /// Asking the kernel costs more than the lock.
    static ME: Cell<u32> = const { Cell::new(0) };
}

fn me() -> u32 {
    ME.with(|me| {
        if me.get() == 0 {
            me.set(Tid::current().as_raw().unsigned_abs());
        }
        me.get()
    })
}

impl<T> PiLock<T> {
    /// An open lock.
    pub const fn new(value: T) -> PiLock<T> {
        PiLock { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock, asleep.
    ///
    /// # Panics
    /// If the calling thread has it already.
    pub fn lock(&self) -> PiGuard<'_, T> {
        if self.word.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            loop {
                match futex::lock_pi(&self.word, Flags::PRIVATE, None) {
                    Ok(()) => break,
                    // A signal; or the holder is about to end, and the kernel says try again.
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(error) => panic!("FUTEX_LOCK_PI: {error}"),
                }
            }
        }
        PiGuard { lock: self, here: PhantomData }
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        let is_mine =
            self.word.compare_exchange(0, me(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_mine.then(|| PiGuard { lock: self, here: PhantomData })
    }

    /// The value, of a lock that nobody else can have any more.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> fmt::Debug for PiLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiLock").finish_non_exhaustive()
    }
}

/// The right to the value; dropping it opens the lock. Stays in its thread, whose number is in the
/// lock.
#[must_use = "the lock is open again once this is dropped"]
pub struct PiGuard<'a, T> {
    lock: &'a PiLock<T>,
    here: PhantomData<*const ()>,
}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread holds the lock as long as the guard lives, and lends the value for no
        // longer.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard itself is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for PiGuard<'_, T> {
    fn drop(&mut self) {
        if self.lock.word.compare_exchange(me(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // Somebody waits, so the kernel has marked the word and hands it over.
            futex::unlock_pi(&self.lock.word, Flags::PRIVATE).expect("the lock is ours");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        const ROUNDS: u64 = 20_000;
        let lock = PiLock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        // In two steps, so that two threads inside would lose some.
                        let mut value = lock.lock();
                        let before = *value;
                        std::hint::black_box(&mut *value);
                        *value = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 4 * ROUNDS);
        assert_eq!(lock.into_inner(), 4 * ROUNDS);
    }

    #[test]
    fn who_does_not_wait_has_it_only_when_nobody_else_has() {
        let lock = PiLock::new(0);
        let held = lock.try_lock().expect("an open lock");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        *lock.try_lock().expect("an open lock") += 1;
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn who_sleeps_holding_it_is_waited_for() {
        let lock = PiLock::new(false);
        std::thread::scope(|scope| {
            let mut held = lock.lock();
            let other = scope.spawn(|| *lock.lock());
            std::thread::sleep(std::time::Duration::from_millis(20));
            *held = true;
            drop(held);
            assert!(other.join().expect("it gets the lock"), "what was done before is seen");
        });
    }
}
