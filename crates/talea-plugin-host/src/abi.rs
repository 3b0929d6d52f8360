//! The structures of `talea_plugin.h` in Rust.
//!
//! The header is the source; a C program in `tests/abi.rs` checks the numbers below against it.

use std::ffi::{c_char, c_void};

/// `TALEA_PLUGIN_ABI`.
pub(crate) const ABI: u32 = 1;
/// `TALEA_PLUGIN_IGNORE_ADMISSION`.
pub(crate) const IGNORE_ADMISSION: u32 = 1;
/// `TALEA_PLUGIN_NO`. With this verdict the host ignores the plugin's placement.
pub(crate) const NO: i32 = -1;

/// `struct talea_plugin_setup`.
#[repr(C)]
pub(crate) struct Setup {
    pub(crate) size: u32,
    pub(crate) priority_low: i32,
    pub(crate) priority_high: i32,
    pub(crate) reserved: u32,
    pub(crate) cpus: [u64; 16],
    pub(crate) name: *const c_char,
    pub(crate) argument: *const c_char,
}

/// `struct talea_plugin_task`.
#[repr(C)]
pub(crate) struct Task {
    pub(crate) size: u32,
    pub(crate) flags: u32,
    pub(crate) period_ns: u64,
    pub(crate) runtime_ns: u64,
    pub(crate) desired_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) priority: u32,
    pub(crate) reserved: u32,
    pub(crate) cpus: [u64; 16],
}

/// `struct talea_plugin_place`.
#[repr(C)]
pub(crate) struct Place {
    pub(crate) size: u32,
    pub(crate) cpu: i32,
    pub(crate) priority: i32,
    pub(crate) reserved: u32,
}

/// `struct talea_plugin`. Any pointer may be null, because the plugin is untrusted.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    pub(crate) size: u32,
    pub(crate) abi: u32,
    pub(crate) init: Option<unsafe extern "C" fn(*const Setup, *mut *mut c_void) -> i32>,
    pub(crate) fini: Option<unsafe extern "C" fn(*mut c_void)>,
    pub(crate) accept: Option<unsafe extern "C" fn(*mut c_void, *const Task, *mut Place) -> i32>,
    pub(crate) change:
        Option<unsafe extern "C" fn(*mut c_void, u64, *const Task, *mut Place) -> i32>,
    pub(crate) schedule: Option<unsafe extern "C" fn(*mut c_void, u64, *const Task, *const Place)>,
    pub(crate) release: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    pub(crate) attach: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    pub(crate) detach: Option<unsafe extern "C" fn(*mut c_void, u64)>,
}

/// `talea_plugin_entry`.
pub(crate) type Entry = unsafe extern "C" fn(u32) -> *const Plugin;

const _: () = {
    assert!(size_of::<Setup>() == 160);
    assert!(size_of::<Task>() == 176);
    assert!(size_of::<Place>() == 16);
    assert!(size_of::<Plugin>() == 72);
};
