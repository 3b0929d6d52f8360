//! Registry of the objects of one kind in this process, such as its sessions.
//!
//! No function waits for a lock: a child of a fork may have the copy of a lock that a thread held
//! which does not exist in the child.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

/// Number of places. Objects beyond this number are not registered.
const PLACES: usize = 256;

/// Registry of the objects of one kind.
pub(crate) struct Siblings<T>([Mutex<Weak<T>>; PLACES]);

impl<T> Siblings<T> {
    /// Creates an empty registry.
    pub(crate) const fn new() -> Siblings<T> {
        Siblings([const { Mutex::new(Weak::new()) }; PLACES])
    }

    /// Registers an object until it is dropped.
    pub(crate) fn register(&self, object: &Arc<T>) {
        if let Some(mut place) = self.places().find(|place| place.strong_count() == 0) {
            *place = Arc::downgrade(object);
        }
    }

    /// Returns the registered objects other than `own`.
    pub(crate) fn others(&self, own: &T) -> impl Iterator<Item = Arc<T>> {
        self.places()
            .filter_map(|place| place.upgrade())
            .filter(move |object| !std::ptr::eq(&raw const **object, own))
    }

    /// Returns the places whose locks are free.
    fn places(&self) -> impl Iterator<Item = MutexGuard<'_, Weak<T>>> {
        self.0.iter().filter_map(|place| match place.try_lock() {
            Ok(place) => Some(place),
            Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }
}
