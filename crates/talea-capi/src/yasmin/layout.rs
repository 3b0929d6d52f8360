//! Structures of `yasmin.h`.

use super::super::app::Pipe;
use crate::ffi::Sized32;
use libc::{c_char, c_void, size_t};
use std::sync::atomic::AtomicPtr;

/// Structure `yas_configuration` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct YasConfiguration {
    pub size: u32,
    pub periodic_tasks: u32,
    pub nonperiodic_tasks: u32,
    pub channels: u32,
    pub versions: u32,
    pub accelerators: u32,
    pub threads: u32,
    pub mapping: u32,
    pub priorities: u32,
    pub selection: u32,
    pub preemption: u32,
    pub trade_off_weight: u32,
    pub time_unit_ns: u64,
    pub worker_cpus: u64,
    pub spin_ns: u64,
}

/// Structure `yas_TData` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct YasData {
    pub name: *const c_char,
    pub period: u64,
    pub deadline: u64,
    pub core: u16,
    pub offset: u64,
    pub priority: u8,
    pub sporadic: u8,
}

/// Structure `yas_properties` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct YasProperties {
    pub size: u32,
    pub zero: u32,
    pub energy: u64,
    pub time: u64,
    pub modes: u64,
    pub permissions: u64,
}

/// Structure `yas_channel` of the header.
#[repr(C)]
pub struct YasChannel {
    pub name: *const c_char,
    pub item_size: size_t,
    pub length: size_t,
    pub connected: AtomicPtr<Pipe>,
}

/// Function of a version.
pub type Function = unsafe extern "C-unwind" fn(*mut c_void);
/// Function that returns the charge of the battery.
pub type Battery = unsafe extern "C-unwind" fn() -> u64;
/// Function that selects a version.
pub type Select = unsafe extern "C-unwind" fn(i32, u64, u64) -> i32;

// SAFETY: `repr(C)`, integers only, the size first; without padding, as the sizes of the fields add
// up to this.
unsafe impl Sized32 for YasConfiguration {}
// SAFETY: the same.
unsafe impl Sized32 for YasProperties {}
const _: () = assert!(size_of::<YasConfiguration>() == 72);
const _: () = assert!(std::mem::offset_of!(YasConfiguration, time_unit_ns) == 48);
const _: () = assert!(size_of::<YasProperties>() == 40);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<YasData>() == 48 && std::mem::offset_of!(YasData, sporadic) == 41);
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<YasChannel>() == 32);
