//! Functions of `talea.h` for periodic tasks. The caller's structure contains the whole state.

use crate::ffi::{CallError, read, write};
use crate::layout::TaleaPeriodic;
use crate::message::call;
use libc::c_int;
use std::time::Duration;
use talea_client::{OverrunPolicy, Periodic};
use talea_core::Monotonic;

const SKIP: u32 = 1;
const SHIFT: u32 = 2;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_periodic_start(
    periodic: *mut TaleaPeriodic,
    period_ns: u64,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let state = unsafe { read(periodic) }?;
        if period_ns == 0 {
            return Err(CallError::Caller(libc::EINVAL, "the period is 0"));
        }
        let start_ns = Periodic::start(Duration::from_nanos(period_ns)).started().as_ns();
        let fresh = TaleaPeriodic {
            start_ns,
            period_ns,
            index: 0,
            overruns: 0,
            skipped: 0,
            shifted_ns: 0,
            ..state
        };
        // SAFETY: as the header says.
        unsafe { write(periodic, &fresh) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_wait_period(periodic: *mut TaleaPeriodic) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let mut state = unsafe { read(periodic) }?;
        if state.period_ns == 0 {
            return Err(CallError::Caller(libc::EINVAL, "talea_periodic_start was not called"));
        }
        let late = match state.flags {
            flags if flags & SKIP != 0 => OverrunPolicy::Skip,
            flags if flags & SHIFT != 0 => OverrunPolicy::Shift,
            _ => OverrunPolicy::CatchUp,
        };
        let period = Duration::from_nanos(state.period_ns);
        let start = Monotonic::from_ns(state.start_ns);
        let activation =
            Periodic::start_at(start, period).after(state.index).overrun_policy(late).wait_period();
        state.index = activation.index;
        state.overruns = state.overruns.saturating_add(activation.overrun.into());
        state.skipped = state.skipped.saturating_add(activation.skipped);
        let shifted_ns = activation.shifted.as_ns();
        state.start_ns = state.start_ns.saturating_add(shifted_ns);
        state.shifted_ns = state.shifted_ns.saturating_add(shifted_ns);
        // SAFETY: as the header says.
        unsafe { write(periodic, &state) }
    })
}
