//! A server of an object as a [`Server`] of the core.

use crate::abi::{self, NEVER};
use std::ffi::c_void;
use std::fmt;
use std::ptr::NonNull;
use talea_core::mutate;
use talea_core::server::{Reservation, Server};
use talea_core::{Time, Work};

/// Functions of a server.
#[derive(Clone, Copy)]
pub(crate) struct ServerTable {
    pub(crate) name: &'static str,
    pub(crate) create: abi::CreateServer,
    pub(crate) destroy: abi::Destroy,
    pub(crate) wake: abi::AtTime,
    pub(crate) idle: abi::AtTime,
    pub(crate) charge: abi::ChargeServer,
    pub(crate) exhausted: abi::AtTime,
    pub(crate) refill: abi::AtTime,
    pub(crate) budget: abi::ValueAt,
    pub(crate) next_refill: abi::ValueAt,
    pub(crate) deadline: abi::Value,
}

/// Instance of a server.
pub(crate) struct ObjectServer {
    table: ServerTable,
    this: NonNull<c_void>,
    /// Whether a refill was due again at once. Such a server gets no further refill, because the
    /// engine would refill it endlessly.
    is_stuck: bool,
}

// SAFETY: an instance has one owner, so its functions are never called at the same time. The header
// allows calls from different threads one after the other.
unsafe impl Send for ObjectServer {}

impl fmt::Debug for ObjectServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectServer").field("name", &self.table.name).finish_non_exhaustive()
    }
}

impl ObjectServer {
    /// Creates an instance for a reservation.
    ///
    /// # Panics
    /// If the object has no memory for it.
    pub(crate) fn new(table: ServerTable, of: &Reservation) -> ObjectServer {
        let deadline = of.relative_deadline().as_ns();
        let (budget, period) = (of.budget.as_ns(), of.period.as_ns());
        // SAFETY: the header's contract of `create`, which has no pointer argument.
        let this = unsafe { (table.create)(budget, period, deadline, of.offset.as_ns()) };
        let this = NonNull::new(this);
        let this = this.unwrap_or_else(|| panic!("server {}: create() has failed", table.name));
        ObjectServer { table, this, is_stuck: false }
    }

    fn notify(&mut self, call: abi::AtTime, now: Time) {
        // SAFETY: `this` is a live instance of this table.
        unsafe { call(self.this.as_ptr(), now.as_ns()) };
    }

    fn value(&self, call: abi::ValueAt, now: Time) -> u64 {
        // SAFETY: `this` is a live instance of this table.
        unsafe { call(self.this.as_ptr(), now.as_ns()) }
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        // SAFETY: `this` is a live instance of this table, and is not used again.
        unsafe { (self.table.destroy)(self.this.as_ptr()) };
    }
}

impl Server for ObjectServer {
    fn wake(&mut self, now: Time) {
        self.notify(self.table.wake, now);
    }

    fn idle(&mut self, now: Time) {
        self.notify(self.table.idle, now);
    }

    fn charge(&mut self, now: Time, used: Work) {
        // SAFETY: `this` is a live instance of this table.
        unsafe { (self.table.charge)(self.this.as_ptr(), now.as_ns(), used.as_ns()) };
    }

    fn exhausted(&mut self, now: Time) {
        self.notify(self.table.exhausted, now);
    }

    fn refill(&mut self, now: Time) {
        self.notify(self.table.refill, now);
        let next = self.value(self.table.next_refill, now);
        self.is_stuck |= mutate!("object-refill", next <= now.as_ns(), false);
    }

    fn budget(&self, now: Time) -> Work {
        Work::from_ns(self.value(self.table.budget, now))
    }

    fn next_refill(&self, now: Time) -> Option<Time> {
        let next = self.value(self.table.next_refill, now);
        (next != NEVER && !self.is_stuck).then(|| Time::from_ns(next))
    }

    fn deadline(&self) -> Time {
        // SAFETY: `this` is a live instance of this table.
        Time::from_ns(unsafe { (self.table.deadline)(self.this.as_ptr()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Span;
    use talea_core::server::ServerKind;

    unsafe extern "C" fn create(_: u64, _: u64, _: u64, _: u64) -> *mut c_void {
        NonNull::dangling().as_ptr()
    }
    unsafe extern "C" fn destroy(_: *mut c_void) {}
    unsafe extern "C" fn at_time(_: *mut c_void, _: u64) {}
    unsafe extern "C" fn charge(_: *mut c_void, _: u64, _: u64) {}
    unsafe extern "C" fn value_at(_: *const c_void, _: u64) -> u64 {
        50
    }
    unsafe extern "C" fn value(_: *const c_void) -> u64 {
        90
    }

    #[test]
    fn a_refill_that_does_not_advance_is_the_last_one() {
        let table = ServerTable {
            name: "stuck",
            create,
            destroy,
            wake: at_time,
            idle: at_time,
            charge,
            exhausted: at_time,
            refill: at_time,
            budget: value_at,
            next_refill: value_at,
            deadline: value,
        };
        let of = Reservation::new(ServerKind::Polling, Work::from_ns(5), Span::from_ns(10));
        let mut server = ObjectServer::new(table, &of);
        let at = Time::from_ns;
        server.refill(at(49));
        assert_eq!(server.next_refill(at(49)), Some(at(50)));
        server.refill(at(50));
        assert_eq!(server.next_refill(at(50)), None);
        assert_eq!((server.budget(at(50)), server.deadline()), (Work::from_ns(50), at(90)));
    }
}
