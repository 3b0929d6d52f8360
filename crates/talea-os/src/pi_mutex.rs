//! A mutex with priority inheritance.
//!
//! Model: a PI futex (`FUTEX_LOCK_PI`, `futex(2)`). The word is zero or the owner's thread number;
//! locking and unlocking without contention need no system call. Waiting threads do not spin: a
//! FIFO thread that spins on a lock whose owner has a lower priority on the same CPU never ends.
//!
//! Absent on purpose: poisoning, because a panic inside ends the run that the lock belongs to. Not
//! usable across a fork, because the child's thread numbers differ.

use crate::Tid;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

/// Value protected by a PI futex.
pub struct PiMutex<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and the futex word allows one thread at a time
// to have a guard, so sharing the mutex is no more than sending the value between threads.
unsafe impl<T: Send> Sync for PiMutex<T> {}

thread_local! {
    /// Number of this thread, or 0 before the first use. `gettid` costs more than the lock.
    static OWN_TID: Cell<u32> = const { Cell::new(0) };
}

fn own_tid() -> u32 {
    OWN_TID.with(|me| {
        if me.get() == 0 {
            me.set(Tid::current().as_raw().unsigned_abs());
        }
        me.get()
    })
}

impl<T> PiMutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> PiMutex<T> {
        PiMutex { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Locks the mutex. Blocks until the mutex is free.
    ///
    /// # Panics
    /// If the calling thread owns the mutex already.
    pub fn lock(&self) -> PiMutexGuard<'_, T> {
        if self.word.compare_exchange(0, own_tid(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            loop {
                match futex::lock_pi(&self.word, Flags::PRIVATE, None) {
                    Ok(()) => break,
                    // A signal; or the owner is about to exit and the kernel asks to try again.
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Err(error) => panic!("FUTEX_LOCK_PI: {error}"),
                }
            }
        }
        PiMutexGuard { lock: self, here: PhantomData }
    }

    /// Locks the mutex if it is free. Returns `None` otherwise.
    pub fn try_lock(&self) -> Option<PiMutexGuard<'_, T>> {
        let is_mine =
            self.word.compare_exchange(0, own_tid(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_mine.then(|| PiMutexGuard { lock: self, here: PhantomData })
    }

    /// Returns the value, consuming the mutex.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PiMutex").finish_non_exhaustive()
    }
}

/// Guard that grants access to the value and unlocks the mutex on drop. The guard is not `Send`,
/// because the futex word contains the owner's thread number.
#[must_use = "dropping the guard unlocks the mutex"]
pub struct PiMutexGuard<'a, T> {
    lock: &'a PiMutex<T>,
    here: PhantomData<*const ()>,
}

impl<T> Deref for PiMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this thread owns the lock while the guard lives, and the reference lives no
        // longer than the guard.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for PiMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard itself is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for PiMutexGuard<'_, T> {
    fn drop(&mut self) {
        if self
            .lock
            .word
            .compare_exchange(own_tid(), 0, Ordering::Release, Ordering::Relaxed)
            .is_err()
        {
            // Other threads wait: the kernel has marked the word and hands over the ownership.
            futex::unlock_pi(&self.lock.word, Flags::PRIVATE).expect("this thread owns the lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_at_a_time() {
        const ROUNDS: u64 = 20_000;
        let lock = PiMutex::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        // In two steps, so that two threads inside would lose increments.
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
    fn try_lock_fails_while_another_thread_owns_the_mutex() {
        let lock = PiMutex::new(0);
        let held = lock.try_lock().expect("an unlocked mutex");
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        *lock.try_lock().expect("an unlocked mutex") += 1;
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    fn a_sleeping_owner_is_waited_for() {
        let lock = PiMutex::new(false);
        std::thread::scope(|scope| {
            let mut held = lock.lock();
            let other = scope.spawn(|| *lock.lock());
            std::thread::sleep(std::time::Duration::from_millis(20));
            *held = true;
            drop(held);
            assert!(other.join().expect("it gets the lock"), "the owner's write is visible");
        });
    }
}
