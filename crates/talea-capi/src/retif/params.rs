//! Declared parameters: getters, setters, and conversion to a spec of the daemon.

use super::layout::RtfParams;
use crate::convert::{declared, malformed, name, priority};
use crate::ffi::CallResult;
use std::ffi::c_char;
use talea_client::{Field, Spec};
use talea_core::{Params, Span, Work};
use talea_proto::Task;

impl RtfParams {
    pub(super) const NONE: RtfParams = RtfParams {
        runtime: 0,
        des_runtime: 0,
        period: 0,
        deadline: 0,
        priority: 0,
        sched_plugin: [0; 32],
        ignore_admission: 0,
    };

    /// Converts the parameters to a spec. The end of the session, and so of the process, releases
    /// the spec.
    pub(super) fn spec(&self) -> CallResult<Spec> {
        Ok(Spec::from_task(Task {
            params: Params {
                period: ns(Field::Period, self.period)?.map(Span::from_ns),
                runtime: ns(Field::Runtime, self.runtime)?.map(Work::from_ns),
                desired: ns(Field::Desired, self.des_runtime)?.map(Work::from_ns),
                deadline: ns(Field::Deadline, self.deadline)?.map(Span::from_ns),
                priority: priority(self.priority)?,
            },
            plugin: name(&self.sched_plugin)?,
            ignore_admission: self.ignore_admission != 0,
            ..Task::default()
        }))
    }
}

/// Converts microseconds to nanoseconds. Returns `None` if the value is not declared.
fn ns(field: Field, us: u64) -> CallResult<Option<u64>> {
    match declared(us) {
        Some(us) => us
            .checked_mul(1_000)
            .map(Some)
            .ok_or_else(|| malformed(field, u64::MAX, i64::MAX as u64)),
        None => Ok(None),
    }
}

/// Copies a C string, cut to the length that fits with a terminating zero. NULL becomes the empty
/// string.
///
/// # Safety
/// `text` is NULL, a C string, or an array of at least 31 bytes.
unsafe fn copy_name(text: *const c_char) -> [u8; 32] {
    let mut name = [0; 32];
    if !text.is_null() {
        // Not `CStr::from_ptr`: the original took an array of 32 bytes, which need not be
        // terminated.
        for (index, to) in name[..31].iter_mut().enumerate() {
            // SAFETY: all bytes before this one were not zero, so the string, or the array, goes on
            // here.
            *to = unsafe { text.add(index).read() } as u8;
            if *to == 0 {
                break;
            }
        }
    }
    name
}

/// Defines the initializer, setters and getters of `rtf_params`, once for each prefix of ReTiF's
/// API: `rtf_params_`, `rtf_param_`, `rts_params_` and `rts_param_`.
macro_rules! spelled {
    ($($init:ident
       $($set:ident $get:ident $field:ident $type:ty)*;
       $set_scheduler:ident $get_scheduler:ident $ignore:ident)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(p: *mut RtfParams) {
            // SAFETY: NULL or the caller's structure.
            if let Some(p) = unsafe { p.as_mut() } {
                *p = RtfParams::NONE;
            }
        }

        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $set(p: *mut RtfParams, value: $type) {
                // SAFETY: NULL or the caller's structure.
                if let Some(p) = unsafe { p.as_mut() } {
                    p.$field = value;
                }
            }

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $get(p: *const RtfParams) -> $type {
                // SAFETY: NULL or the caller's structure.
                unsafe { p.as_ref() }.map_or(0, |p| p.$field)
            }
        )*

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set_scheduler(p: *mut RtfParams, sched_plugin: *const c_char) {
            // SAFETY: NULL or the caller's structure.
            if let Some(p) = unsafe { p.as_mut() } {
                // SAFETY: NULL or a string.
                p.sched_plugin = unsafe { copy_name(sched_plugin) };
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get_scheduler(p: *const RtfParams, sched_plugin: *mut c_char) {
            // SAFETY: NULL or the caller's structure, and room for 32 bytes.
            let pointers = unsafe { (p.as_ref(), sched_plugin.cast::<[u8; 32]>().as_mut()) };
            if let (Some(p), Some(to)) = pointers {
                *to = p.sched_plugin;
                to[31] = 0;
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ignore(p: *mut RtfParams, ignore_admission: u8) {
            // SAFETY: NULL or the caller's structure.
            if let Some(p) = unsafe { p.as_mut() } {
                p.ignore_admission = ignore_admission;
            }
        }
    )* };
}

spelled! {
    rtf_params_init
    rtf_params_set_runtime rtf_params_get_runtime runtime u64
    rtf_params_set_des_runtime rtf_params_get_des_runtime des_runtime u64
    rtf_params_set_period rtf_params_get_period period u64
    rtf_params_set_deadline rtf_params_get_deadline deadline u64
    rtf_params_set_priority rtf_params_get_priority priority u32;
    rtf_params_set_scheduler rtf_params_get_scheduler rtf_params_ignore_admission

    rtf_param_init
    rtf_param_set_runtime rtf_param_get_runtime runtime u64
    rtf_param_set_des_runtime rtf_param_get_des_runtime des_runtime u64
    rtf_param_set_period rtf_param_get_period period u64
    rtf_param_set_deadline rtf_param_get_deadline deadline u64
    rtf_param_set_priority rtf_param_get_priority priority u32;
    rtf_param_set_scheduler rtf_param_get_scheduler rtf_param_ignore_admission

    rts_params_init
    rts_params_set_runtime rts_params_get_runtime runtime u64
    rts_params_set_des_runtime rts_params_get_des_runtime des_runtime u64
    rts_params_set_period rts_params_get_period period u64
    rts_params_set_deadline rts_params_get_deadline deadline u64
    rts_params_set_priority rts_params_get_priority priority u32;
    rts_params_set_scheduler rts_params_get_scheduler rts_params_ignore_admission

    rts_param_init
    rts_param_set_runtime rts_param_get_runtime runtime u64
    rts_param_set_des_runtime rts_param_get_des_runtime des_runtime u64
    rts_param_set_period rts_param_get_period period u64
    rts_param_set_deadline rts_param_get_deadline deadline u64
    rts_param_set_priority rts_param_get_priority priority u32;
    rts_param_set_scheduler rts_param_get_scheduler rts_param_ignore_admission
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_params_get_ignore_admission(p: *const RtfParams) -> u8 {
    // SAFETY: NULL or the caller's structure.
    unsafe { p.as_ref() }.map_or(0, |p| p.ignore_admission)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_param_get_ignore_admission(p: *const RtfParams) -> u8 {
    // SAFETY: NULL or the caller's structure.
    unsafe { p.as_ref() }.map_or(0, |p| p.ignore_admission)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    #[test]
    fn r1_zero_means_not_declared_and_times_are_microseconds() {
        let nothing = RtfParams::NONE.spec().expect("nothing is a specification");
        assert_eq!(nothing.task(), &Task::default());
        let params = RtfParams { period: 10_000, runtime: 2_000, ..RtfParams::NONE };
        let task = *params.spec().expect("good").task();
        assert_eq!(task.params.period, Some(Span::from_ns(10_000_000)));
        assert_eq!(task.params.runtime, Some(Work::from_ns(2_000_000)));
        assert_eq!(task.params.deadline, None);
    }

    #[test]
    fn what_does_not_fit_is_refused_not_cut() {
        let long = RtfParams { period: u64::MAX / 999, ..RtfParams::NONE };
        assert!(long.spec().is_err());
        let high = RtfParams { priority: 256 + 50, ..RtfParams::NONE };
        assert!(high.spec().is_err());
        let unterminated = RtfParams { sched_plugin: [b'x'; 32], ..RtfParams::NONE };
        assert!(unterminated.spec().is_err());
    }

    #[test]
    fn names_are_copied_with_their_end() {
        // SAFETY: strings, one of them an array without an end.
        unsafe {
            assert_eq!(&copy_name(c"rm".as_ptr())[..3], b"rm\0");
            assert_eq!(copy_name(std::ptr::null()), [0; 32]);
            let array = [b'y'; 32];
            let copy = copy_name(array.as_ptr().cast());
            assert_eq!((copy[30], copy[31]), (b'y', 0));
            assert_eq!(CStr::from_bytes_until_nul(&copy).expect("ended").to_bytes().len(), 31);
        }
    }
}
