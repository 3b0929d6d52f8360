//! Structures of `retif.h`. Programs were compiled with the sizes and offsets of ReTiF's own header
//! (x86-64).

use libc::{c_char, c_int, c_void, pid_t};

/// Structure `rtf_params`. Times are in microseconds, and 0 means "not declared".
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RtfParams {
    pub runtime: u64,
    pub des_runtime: u64,
    pub period: u64,
    pub deadline: u64,
    pub priority: u32,
    pub sched_plugin: [u8; 32],
    pub ignore_admission: u8,
}

/// Structure `timespec`, which the C library aligns in this way on every 64-bit machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Timespec {
    pub sec: i64,
    pub nsec: i64,
}

/// Structures `rtf_task`, `rtf_spec` and `rts_task`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RtfTask {
    pub task_id: u32,
    pub dmiss: u32,
    pub acc_runtime: u64,
    pub c: *mut c_void,
    pub p: RtfParams,
    pub at: Timespec,
    pub dl: Timespec,
}

/// Structure `rtf_client_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RtfClientInfo {
    pub pid: pid_t,
    pub state: c_int,
}

/// Structure `rtf_task_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RtfTaskInfo {
    pub tid: pid_t,
    pub ppid: pid_t,
    pub priority: c_int,
    pub period: c_int,
    pub util: f32,
    pub pluginid: c_int,
}

/// Structure `rtf_plugin_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RtfPluginInfo {
    pub name: [c_char; 32],
    pub cputot: c_int,
}

/// Structure `rtf_cpu_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RtfCpuInfo {
    pub cpunum: c_int,
    pub freeu: f32,
    pub ntask: c_int,
}

macro_rules! sized {
    ($($name:ident $size:literal { $($field:ident $offset:literal)* })*) => { $(
        const _: () = assert!(size_of::<$name>() == $size);
        $(const _: () = assert!(std::mem::offset_of!($name, $field) == $offset);)*
    )* };
}

sized! {
    RtfParams 72 {
        runtime 0 des_runtime 8 period 16 deadline 24 priority 32 sched_plugin 36
        ignore_admission 68
    }
    RtfTask 128 { task_id 0 dmiss 4 acc_runtime 8 c 16 p 24 at 96 dl 112 }
    RtfClientInfo 8 { pid 0 state 4 }
    RtfTaskInfo 24 { tid 0 ppid 4 priority 8 period 12 util 16 pluginid 20 }
    RtfPluginInfo 36 { name 0 cputot 32 }
    RtfCpuInfo 12 { cpunum 0 freeu 4 ntask 8 }
}

const _: () = assert!(size_of::<libc::timespec>() == size_of::<Timespec>());
