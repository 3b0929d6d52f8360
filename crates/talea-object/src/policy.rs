//! A policy of an object as a [`Policy`] of the core.

use crate::abi::{self, NEVER};
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr::NonNull;
use talea_core::criteria::Criteria;
use talea_core::mutate;
use talea_core::sched::{Child, ChildInfo, Phase, Policy, ReadyChild, Resched};
use talea_core::{Time, Work};

/// Functions of a policy. Those that are not optional are present.
#[derive(Clone, Copy)]
pub(crate) struct PolicyTable {
    pub(crate) name: &'static str,
    pub(crate) create: abi::CreatePolicy,
    pub(crate) destroy: abi::Destroy,
    pub(crate) admit: Option<abi::Admit>,
    pub(crate) ready: abi::OfEntry,
    pub(crate) finished: abi::OfChild,
    pub(crate) update: abi::OfEntry,
    pub(crate) head: abi::Head,
    pub(crate) before: abi::Before,
    pub(crate) charge: Option<abi::ChargePolicy>,
    pub(crate) allowance: Option<abi::Allowance>,
    pub(crate) wakeups: Option<(abi::NextWakeup, abi::OfChild)>,
}

/// Instance of a policy.
pub(crate) struct ObjectPolicy {
    table: PolicyTable,
    this: NonNull<c_void>,
    /// Whether each child is ready.
    ready: Vec<bool>,
}

// SAFETY: an instance has one owner, so its functions are never called at the same time. The header
// allows calls from different threads one after the other.
unsafe impl Send for ObjectPolicy {}

impl fmt::Debug for ObjectPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectPolicy").field("name", &self.table.name).finish_non_exhaustive()
    }
}

impl ObjectPolicy {
    /// Creates an instance for a number of children.
    ///
    /// # Panics
    /// If the object has no memory for it.
    pub(crate) fn new(table: PolicyTable, children: usize) -> ObjectPolicy {
        let count = u32::try_from(children).expect("a scheduler has fewer children");
        // SAFETY: the header's contract of `create`, which has no pointer argument.
        let this = NonNull::new(unsafe { (table.create)(count) });
        let this = this.unwrap_or_else(|| panic!("policy {}: create() has failed", table.name));
        ObjectPolicy { table, this, ready: vec![false; children] }
    }

    fn entry(&self, call: abi::OfEntry, now: Time, entry: &ReadyChild) -> Resched {
        let entry = child_of(entry);
        // SAFETY: `this` is a live instance of this table, and `entry` lives during the call.
        resched(unsafe { call(self.this.as_ptr(), now.as_ns(), &raw const entry) })
    }
}

impl Drop for ObjectPolicy {
    fn drop(&mut self) {
        // SAFETY: `this` is a live instance of this table, and is not used again.
        unsafe { (self.table.destroy)(self.this.as_ptr()) };
    }
}

impl Policy for ObjectPolicy {
    fn admit(&mut self, info: &ChildInfo<'_>) -> Result<(), String> {
        let Some(admit) = self.table.admit else { return Ok(()) };
        let name = CString::new(info.name).unwrap_or_default();
        let info = abi::Info {
            child: info.child,
            has_cost: u32::from(info.cost.is_some()),
            cost_ns: info.cost.map_or(0, Work::as_ns),
            name: name.as_ptr(),
            criteria: criteria_of(&info.criteria),
        };
        // SAFETY: `this` is a live instance of this table; `info` and `name` live during the call.
        let reason = unsafe { admit(self.this.as_ptr(), &raw const info) };
        if reason.is_null() {
            return Ok(());
        }
        // SAFETY: a reason is a C string in static memory, by the header.
        Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned())
    }

    fn ready(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        self.ready[entry.child as usize] = true;
        self.entry(self.table.ready, now, entry)
    }

    fn finished(&mut self, now: Time, child: Child) -> Resched {
        self.ready[child as usize] = false;
        // SAFETY: `this` is a live instance of this table.
        resched(unsafe { (self.table.finished)(self.this.as_ptr(), now.as_ns(), child) })
    }

    fn update(&mut self, now: Time, entry: &ReadyChild) -> Resched {
        self.entry(self.table.update, now, entry)
    }

    fn head(&self, now: Time) -> Option<Child> {
        // SAFETY: `this` is a live instance of this table.
        let head = unsafe { (self.table.head)(self.this.as_ptr(), now.as_ns()) };
        let head = u32::try_from(head).ok()?;
        let is_ready = self.ready.get(head as usize).copied().unwrap_or(false);
        if mutate!("object-head", is_ready, true) {
            return Some(head);
        }
        // The engine relies on a ready head. The object has a fault: the lowest ready child.
        self.ready.iter().position(|&ready| ready).map(|child| child as Child)
    }

    fn before(&self, now: Time, a: &ReadyChild, b: &ReadyChild) -> bool {
        let (a, b) = (child_of(a), child_of(b));
        let (a, b) = (&raw const a, &raw const b);
        // SAFETY: `this` is a live instance of this table, and the entries live during the call.
        unsafe { (self.table.before)(self.this.as_ptr(), now.as_ns(), a, b) != 0 }
    }

    fn charge(&mut self, now: Time, child: Child, used: Work) -> Resched {
        let Some(charge) = self.table.charge else { return Resched::Keep };
        // SAFETY: `this` is a live instance of this table.
        resched(unsafe { charge(self.this.as_ptr(), now.as_ns(), child, used.as_ns()) })
    }

    fn needs_accounting(&self) -> bool {
        self.table.charge.is_some()
    }

    fn allowance(&self, now: Time, child: Child) -> Option<Work> {
        let allowance = self.table.allowance?;
        // SAFETY: `this` is a live instance of this table.
        let left = unsafe { allowance(self.this.as_ptr(), now.as_ns(), child) };
        (left != NEVER).then(|| Work::from_ns(left))
    }

    fn next_wakeup(&self) -> Option<(Time, Phase)> {
        let (next_wakeup, _) = self.table.wakeups?;
        let mut phase = 0;
        // SAFETY: `this` is a live instance of this table, and `phase` lives during the call.
        let at = unsafe { next_wakeup(self.this.as_ptr(), &raw mut phase) };
        let phase = [Phase::Ends, Phase::Arrivals].get(phase as usize).copied();
        (at != NEVER).then(|| (Time::from_ns(at), phase.unwrap_or(Phase::Starts)))
    }

    fn wake(&mut self, now: Time, phase: Phase) -> Resched {
        let Some((_, wake)) = self.table.wakeups else { return Resched::Keep };
        // SAFETY: `this` is a live instance of this table.
        resched(unsafe { wake(self.this.as_ptr(), now.as_ns(), phase as u32) })
    }
}

fn resched(said: i32) -> Resched {
    Resched::when(said == abi::PICK)
}

fn child_of(entry: &ReadyChild) -> abi::Child {
    abi::Child {
        child: entry.child,
        job: entry.job,
        ready_seq: entry.ready_seq,
        criteria: criteria_of(&entry.criteria),
    }
}

fn criteria_of(criteria: &Criteria) -> abi::Criteria {
    abi::Criteria {
        deadline_ns: criteria.deadline.as_ns(),
        arrival_ns: criteria.arrival.as_ns(),
        period_ns: criteria.period.as_ns(),
        relative_deadline_ns: criteria.relative_deadline.as_ns(),
        priority: criteria.priority,
        criticality: criteria.criticality,
        yields: criteria.yields.into(),
        reserved: [0; 5],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn create(_: u32) -> *mut c_void {
        NonNull::dangling().as_ptr()
    }
    unsafe extern "C" fn destroy(_: *mut c_void) {}
    unsafe extern "C" fn of_entry(_: *mut c_void, _: u64, _: *const abi::Child) -> i32 {
        abi::PICK
    }
    unsafe extern "C" fn of_child(_: *mut c_void, _: u64, _: u32) -> i32 {
        0
    }
    /// Returns the time as the first child.
    unsafe extern "C" fn head(_: *const c_void, now: u64) -> i64 {
        now.cast_signed()
    }
    unsafe extern "C" fn before(
        _: *const c_void,
        _: u64,
        _: *const abi::Child,
        _: *const abi::Child,
    ) -> i32 {
        0
    }

    #[test]
    fn a_head_that_is_not_ready_is_replaced_by_the_lowest_ready_child() {
        let table = PolicyTable {
            name: "wrong",
            create,
            destroy,
            admit: None,
            ready: of_entry,
            finished: of_child,
            update: of_entry,
            head,
            before,
            charge: None,
            allowance: None,
            wakeups: None,
        };
        let mut policy = ObjectPolicy::new(table, 4);
        let entry = |child| ReadyChild { child, job: 0, ready_seq: 0, criteria: Criteria::LEAST };
        for child in [1, 3] {
            assert_eq!(policy.ready(Time::ZERO, &entry(child)), Resched::Pick);
        }
        let heads = [3, 2, 4, u64::MAX].map(|now| policy.head(Time::from_ns(now)));
        assert_eq!(heads, [Some(3), Some(1), Some(1), None]);
        assert_eq!(policy.finished(Time::ZERO, 3), Resched::Keep);
        assert_eq!(policy.head(Time::from_ns(3)), Some(1));
    }
}
