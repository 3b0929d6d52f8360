//! The structures of `talea_sched.h` in Rust.
//!
//! The header is the source; a C program in `tests/abi.rs` checks the numbers below against it.

use std::ffi::{c_char, c_void};

/// `TALEA_SCHED_ABI`.
pub(crate) const ABI: u32 = 1;
/// `TALEA_SCHED_PICK`.
pub(crate) const PICK: i32 = 1;
/// `TALEA_SCHED_NEVER`.
pub(crate) const NEVER: u64 = u64::MAX;

/// `struct talea_sched_criteria`.
#[repr(C)]
pub(crate) struct Criteria {
    pub(crate) deadline_ns: u64,
    pub(crate) arrival_ns: u64,
    pub(crate) period_ns: u64,
    pub(crate) relative_deadline_ns: u64,
    pub(crate) priority: u8,
    pub(crate) criticality: u8,
    pub(crate) yields: u8,
    pub(crate) reserved: [u8; 5],
}

/// `struct talea_sched_child`.
#[repr(C)]
#[expect(clippy::struct_field_names, reason = "the names of the header")]
pub(crate) struct Child {
    pub(crate) child: u32,
    pub(crate) job: u32,
    pub(crate) ready_seq: u64,
    pub(crate) criteria: Criteria,
}

/// `struct talea_sched_info`.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) child: u32,
    pub(crate) has_cost: u32,
    pub(crate) cost_ns: u64,
    pub(crate) name: *const c_char,
    pub(crate) criteria: Criteria,
}

type This = *mut c_void;
type ConstThis = *const c_void;
pub(crate) type Destroy = unsafe extern "C" fn(This);
pub(crate) type CreatePolicy = unsafe extern "C" fn(u32) -> This;
pub(crate) type Admit = unsafe extern "C" fn(This, *const Info) -> *const c_char;
pub(crate) type OfEntry = unsafe extern "C" fn(This, u64, *const Child) -> i32;
pub(crate) type OfChild = unsafe extern "C" fn(This, u64, u32) -> i32;
pub(crate) type Head = unsafe extern "C" fn(ConstThis, u64) -> i64;
pub(crate) type Before = unsafe extern "C" fn(ConstThis, u64, *const Child, *const Child) -> i32;
pub(crate) type ChargePolicy = unsafe extern "C" fn(This, u64, u32, u64) -> i32;
pub(crate) type Allowance = unsafe extern "C" fn(ConstThis, u64, u32) -> u64;
pub(crate) type NextWakeup = unsafe extern "C" fn(ConstThis, *mut u32) -> u64;
pub(crate) type CreateServer = unsafe extern "C" fn(u64, u64, u64, u64) -> This;
pub(crate) type AtTime = unsafe extern "C" fn(This, u64);
pub(crate) type ChargeServer = unsafe extern "C" fn(This, u64, u64);
pub(crate) type ValueAt = unsafe extern "C" fn(ConstThis, u64) -> u64;
pub(crate) type Value = unsafe extern "C" fn(ConstThis) -> u64;

/// `struct talea_sched_policy`. An object may leave out a function.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) size: u32,
    pub(crate) reserved: u32,
    pub(crate) name: *const c_char,
    pub(crate) create: Option<CreatePolicy>,
    pub(crate) destroy: Option<Destroy>,
    pub(crate) admit: Option<Admit>,
    pub(crate) ready: Option<OfEntry>,
    pub(crate) finished: Option<OfChild>,
    pub(crate) update: Option<OfEntry>,
    pub(crate) head: Option<Head>,
    pub(crate) before: Option<Before>,
    pub(crate) charge: Option<ChargePolicy>,
    pub(crate) allowance: Option<Allowance>,
    pub(crate) next_wakeup: Option<NextWakeup>,
    pub(crate) wake: Option<OfChild>,
}

/// `struct talea_sched_server`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Server {
    pub(crate) size: u32,
    pub(crate) reserved: u32,
    pub(crate) name: *const c_char,
    pub(crate) create: Option<CreateServer>,
    pub(crate) destroy: Option<Destroy>,
    pub(crate) wake: Option<AtTime>,
    pub(crate) idle: Option<AtTime>,
    pub(crate) charge: Option<ChargeServer>,
    pub(crate) exhausted: Option<AtTime>,
    pub(crate) refill: Option<AtTime>,
    pub(crate) budget: Option<ValueAt>,
    pub(crate) next_refill: Option<ValueAt>,
    pub(crate) deadline: Option<Value>,
}

/// `struct talea_sched_object`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) size: u32,
    pub(crate) abi: u32,
    pub(crate) policies: *const *const Policy,
    pub(crate) servers: *const *const Server,
}

/// `talea_sched_entry`.
pub(crate) type Entry = unsafe extern "C" fn(u32) -> *const Object;

const _: () = {
    assert!(size_of::<Criteria>() == 40);
    assert!(size_of::<Child>() == 56);
    assert!(size_of::<Info>() == 64);
    assert!(size_of::<Policy>() == 112);
    assert!(size_of::<Server>() == 96);
    assert!(size_of::<Object>() == 24);
};
