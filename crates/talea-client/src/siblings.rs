//! Sessions of one process.
//!
//! The daemon gives a process that connects again a few seconds to claim the grants of the daemon
//! before. Therefore the session that detects a restart lets all sessions of the process claim
//! theirs, also those of clients that make no requests. Another copy of the library in the process
//! has sessions of its own, and the daemon expects its claims when it connects itself.
//!
//! No function waits for a lock: a child of a fork may have the copy of a lock that a thread held
//! which does not exist in the child.

use crate::session::Session;
use std::sync::{Arc, Mutex, TryLockError, Weak};
use std::time::Instant;

/// Number of places. The sessions of a process that holds more connections than this reconnect with
/// their own next requests.
const PLACES: usize = 256;

static SESSIONS: [Mutex<Weak<Session>>; PLACES] = [const { Mutex::new(Weak::new()) }; PLACES];

/// Registers a session until it is dropped.
pub(crate) fn register(session: &Arc<Session>) {
    let mut places = SESSIONS.iter().filter_map(|place| match place.try_lock() {
        Ok(place) => Some(place),
        Err(TryLockError::Poisoned(place)) => Some(place.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    });
    if let Some(mut place) = places.find(|place| place.strong_count() == 0) {
        *place = Arc::downgrade(session);
    }
}

/// Lets all other sessions of this process claim their grants from instance `instance` of the
/// daemon of `own`.
pub(crate) fn reconnect_others(own: &Session, instance: u64, deadline: Instant) {
    for place in &SESSIONS {
        let session = place.try_lock().ok().and_then(|place| place.upgrade());
        if let Some(session) = session.filter(|session| !std::ptr::eq(&raw const **session, own)) {
            session.claim_from(own, instance, deadline);
        }
    }
}
