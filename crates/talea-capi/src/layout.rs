//! Structures of `talea.h`, field by field. The numbers in the assertions are also in the C test.

use crate::ffi::Sized32;
use talea_client::{Client, Grant};

/// Object of a `talea_client *`.
pub struct TaleaClient(pub(crate) Client);

/// Object of a `talea_grant *`.
pub struct TaleaGrant(pub(crate) Grant);

/// Structure `talea_refusal` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaRefusal {
    pub size: u32,
    pub code: i32,
    pub field: u32,
    pub kernel_errno: i32,
    pub asked: u64,
    pub limit: u64,
    pub fits: u64,
    pub fits_field: u32,
    pub index: u32,
    pub witness: u32,
    pub witness_own: u32,
    pub witness_at_ns: u64,
    pub witness_needs_ns: u64,
    pub witness_has_ns: u64,
}

/// Structure `talea_spec` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaSpec {
    pub size: u32,
    pub flags: u32,
    pub period_ns: u64,
    pub runtime_ns: u64,
    pub desired_ns: u64,
    pub deadline_ns: u64,
    pub priority: u32,
    pub owner: u32,
    pub plugin: [u8; 32],
    pub cpus: [u64; 16],
}

/// Structure `talea_granted` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaGranted {
    pub size: u32,
    pub cpu: i32,
    pub spec_id: u64,
    pub runtime_ns: u64,
    pub granularity_ns: u64,
    pub utilization_ppm: u64,
    pub plugin: u32,
    pub priority: u32,
    pub mechanism: u32,
    pub notes: u32,
    pub token: [u8; 16],
    pub lost: u32,
    pub zero: u32,
}

/// Structure `talea_status` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaStatus {
    pub size: u32,
    pub pid: u32,
    pub instance: u64,
    pub uptime_ns: u64,
    pub requests: u64,
    pub refused: u64,
    pub wakeups: u64,
    pub plugins: u32,
    pub sessions: u32,
    pub specs: u32,
    pub attached: u32,
    pub adopted: u32,
    pub rules: u32,
}

/// Structure `talea_plugin_info` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaPlugin {
    pub size: u32,
    pub index: u32,
    pub name: [u8; 32],
    pub kind: [u8; 32],
    pub cpus: [u64; 16],
    pub priority_low: u32,
    pub priority_high: u32,
    pub specs: u32,
    pub out_of_service: u32,
}

/// Structure `talea_info` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaInfo {
    pub size: u32,
    pub uid: u32,
    pub pid: u32,
    pub tid: u32,
    pub spec_id: u64,
    pub period_ns: u64,
    pub runtime_ns: u64,
    pub desired_ns: u64,
    pub deadline_ns: u64,
    pub accepted_ns: u64,
    pub priority: u32,
    pub kernel_priority: u32,
    pub cpu: i32,
    pub mechanism: u32,
    pub notes: u32,
    pub owner: u32,
    pub plugin: [u8; 32],
    pub overruns: u64,
    pub last_overrun_ns: u64,
    pub throttled: u32,
    pub reserved: u32,
}

/// Structure `talea_periodic` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaPeriodic {
    pub size: u32,
    pub flags: u32,
    pub start_ns: u64,
    pub period_ns: u64,
    pub index: u64,
    pub overruns: u64,
    pub skipped: u64,
    pub shifted_ns: u64,
}

/// Structure `talea_app_config` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaAppConfig {
    pub size: u32,
    pub flags: u32,
    pub mapping: u32,
    pub priorities: u32,
    pub selection: u32,
    pub weight: u32,
    pub workers: u32,
    pub rights: u32,
    pub cpus: [u64; 16],
    pub daemon_priority: u32,
    pub zero: u32,
    pub daemon_plugin: [u8; 32],
    pub spin_ns: u64,
}

/// Structure `talea_task` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaTask {
    pub size: u32,
    pub kind: u32,
    pub period_ns: u64,
    pub deadline_ns: u64,
    pub offset_ns: u64,
    pub priority: u32,
    pub core: u32,
    pub backlog: u32,
    pub server: u32,
    pub name: [u8; 32],
    pub cores: u64,
}

/// Structure `talea_task_version` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaTaskVersion {
    pub size: u32,
    pub wait: u32,
    pub energy: u64,
    pub time_ns: u64,
    pub modes: u64,
    pub needs: u64,
    pub name: [u8; 32],
    pub wait_ns: u64,
}

/// Structure `talea_choice` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaChoice {
    pub size: u32,
    pub task: u32,
    pub job: u64,
    pub free: u64,
    pub battery: u64,
    pub permitted: u64,
    pub mode: u32,
    pub versions: u32,
}

/// Structure `talea_job` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaJob {
    pub size: u32,
    pub task: u32,
    pub number: u64,
    pub version: u32,
    pub zero: u32,
}

/// Structure `talea_app_report` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaAppReport {
    pub size: u32,
    pub real_time: u32,
    pub length_ns: u64,
    pub refused: u64,
    pub full: u64,
    pub empty: u64,
    pub tasks: u32,
    pub rights: u32,
    pub rights_error: [u8; 256],
    pub shielded: u32,
    pub moved_threads: u32,
    pub moved_interrupts: u32,
    pub not_moved: u32,
    pub foreign_threads: u32,
    pub not_restored: u32,
    pub shield_error: [u8; 256],
}

/// Structure `talea_task_report` of the header.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct TaleaTaskReport {
    pub size: u32,
    pub versions: u32,
    pub jobs: u64,
    pub late: u64,
    pub longest_ns: u64,
    pub mean_ns: u64,
    pub version_jobs: [u64; 64],
    pub name: [u8; 32],
    pub policy: i32,
    pub priority: u32,
}

macro_rules! sized {
    ($($name:ident $size:literal { $($field:ident $offset:literal)* })*) => { $(
        // SAFETY: `repr(C)`, integers only, the size first; without padding, because the sizes of
        // the fields add up to the size asserted here.
        unsafe impl Sized32 for $name {}
        const _: () = assert!(size_of::<$name>() == $size);
        const _: () = assert!(std::mem::offset_of!($name, size) == 0);
        $(const _: () = assert!(std::mem::offset_of!($name, $field) == $offset);)*
    )* };
}

sized! {
    TaleaRefusal 80 { asked 16 fits 32 index 44 witness 48 witness_has_ns 72 }
    TaleaSpec 208 { period_ns 8 deadline_ns 32 priority 40 owner 44 plugin 48 cpus 80 }
    TaleaGranted 80 { spec_id 8 utilization_ppm 32 notes 52 token 56 lost 72 zero 76 }
    TaleaStatus 72 { instance 8 wakeups 40 rules 68 }
    TaleaPlugin 216 { name 8 kind 40 cpus 72 priority_low 200 out_of_service 212 }
    TaleaInfo 144 {
        spec_id 16 accepted_ns 56 priority 64 cpu 72 owner 84 plugin 88 overruns 120 throttled 136
    }
    TaleaPeriodic 56 { start_ns 8 skipped 40 shifted_ns 48 }
    TaleaAppConfig 208 {
        mapping 8 weight 20 rights 28 cpus 32 daemon_priority 160 daemon_plugin 168 spin_ns 200
    }
    TaleaTask 88 { period_ns 8 offset_ns 24 priority 32 backlog 40 name 48 cores 80 }
    TaleaTaskVersion 80 { wait 4 energy 8 needs 32 name 40 wait_ns 72 }
    TaleaChoice 48 { job 8 permitted 32 mode 40 versions 44 }
    TaleaJob 24 { number 8 version 16 }
    TaleaAppReport 584 {
        length_ns 8 empty 32 tasks 40 rights_error 48 shielded 304 shield_error 328
    }
    TaleaTaskReport 592 { jobs 8 mean_ns 32 version_jobs 40 name 552 policy 584 priority 588 }
}
