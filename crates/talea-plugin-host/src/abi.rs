//! The structures of `talea_plugin.h` in Rust.
//!
//! The header is the source; a C program in `tests/abi.rs` checks the numbers below against it.
//! Version 2 appends fields to the structures of version 1. A plugin of version 1 gets the sizes
//! of version 1, and so never reads the appended fields.

use std::ffi::{c_char, c_void};

/// `TALEA_PLUGIN_ABI`.
pub(crate) const ABI: u32 = 2;
/// The oldest version that the host loads.
pub(crate) const ABI_OLDEST: u32 = 1;
/// `TALEA_PLUGIN_IGNORE_ADMISSION`.
pub(crate) const IGNORE_ADMISSION: u32 = 1;
/// `TALEA_PLUGIN_NO`. With this verdict the host ignores the plugin's placement.
pub(crate) const NO: i32 = -1;
/// `TALEA_PLUGIN_REASON`.
pub(crate) const REASON: usize = 96;

/// Sizes of the structures in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// `sizeof(struct talea_plugin_setup)`.
    pub(crate) setup: u32,
    /// `sizeof(struct talea_plugin_task)`.
    pub(crate) task: u32,
    /// `sizeof(struct talea_plugin_place)`.
    pub(crate) place: u32,
    /// `sizeof(struct talea_plugin)`.
    pub(crate) plugin: u32,
}

impl Sizes {
    /// Sizes in version 1.
    pub(crate) const V1: Sizes = Sizes { setup: 160, task: 176, place: 16, plugin: 72 };

    /// Returns the sizes of a version; `None` if the host does not load it.
    pub(crate) fn of(version: u32) -> Option<Sizes> {
        match version {
            1 => Some(Sizes::V1),
            2 => Some(Sizes {
                setup: size_of::<Setup>() as u32,
                task: size_of::<Task>() as u32,
                place: size_of::<Place>() as u32,
                plugin: size_of::<Plugin>() as u32,
            }),
            _ => None,
        }
    }
}

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
    pub(crate) class: u32,
    pub(crate) reserved2: u32,
    pub(crate) deadline_share: u64,
    pub(crate) period_min_ns: u64,
    pub(crate) period_max_ns: u64,
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
    pub(crate) preferred: [u64; 16],
}

/// `struct talea_plugin_place`.
#[repr(C)]
pub(crate) struct Place {
    pub(crate) size: u32,
    pub(crate) cpu: i32,
    pub(crate) priority: i32,
    pub(crate) reserved: u32,
    pub(crate) runtime_ns: u64,
    pub(crate) deadline_ns: u64,
    pub(crate) period_ns: u64,
    pub(crate) cpus: [u64; 16],
    pub(crate) reason: [u8; REASON],
}

/// `struct talea_plugin_rank`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Rank {
    pub(crate) id: u64,
    pub(crate) priority: i32,
    pub(crate) reserved: u32,
}

/// `struct talea_plugin` of version 1. Any pointer may be null, because the plugin is untrusted.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PluginV1 {
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

/// `struct talea_plugin`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Plugin {
    pub(crate) v1: PluginV1,
    pub(crate) rank: Option<unsafe extern "C" fn(*mut c_void, *mut Rank, i32) -> i32>,
}

/// `talea_plugin_entry`.
pub(crate) type Entry = unsafe extern "C" fn(u32) -> *const PluginV1;

const _: () = {
    assert!(size_of::<Setup>() == 192);
    assert!(size_of::<Task>() == 304);
    assert!(size_of::<Place>() == 264);
    assert!(size_of::<Rank>() == 16);
    assert!(size_of::<PluginV1>() == 72);
    assert!(size_of::<Plugin>() == 80);
};
