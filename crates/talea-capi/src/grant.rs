//! Functions of `talea.h` on a grant.

use crate::convert;
use crate::ffi::{CallError, given, read, write};
use crate::layout::{TaleaGrant, TaleaGranted, TaleaSpec};
use crate::message::call;
use libc::{c_int, pid_t};
use std::os::fd::BorrowedFd;
use talea_core::Work;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_attach(grant: *mut TaleaGrant, tid: pid_t) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let grant = unsafe { given(grant, "grant is NULL") }?;
        let tid =
            u32::try_from(tid).map_err(|_| CallError::Caller(libc::EINVAL, "tid is negative"))?;
        Ok(grant.0.attach(tid)??)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_attach_pidfd(grant: *mut TaleaGrant, pidfd: c_int) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let grant = unsafe { given(grant, "grant is NULL") }?;
        if pidfd < 0 {
            return Err(CallError::Caller(libc::EBADF, "pidfd is not a descriptor"));
        }
        // SAFETY: the caller keeps it open during the call; one that is not open is the kernel's
        // EBADF.
        let pidfd = unsafe { BorrowedFd::borrow_raw(pidfd) };
        Ok(grant.0.attach_pidfd(pidfd)??)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_detach(grant: *mut TaleaGrant) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let grant = unsafe { given(grant, "grant is NULL") }?;
        Ok(grant.0.detach()??)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_change(grant: *mut TaleaGrant, spec: *const TaleaSpec) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (grant, spec) = unsafe { (given(grant, "grant is NULL")?, read(spec)?) };
        Ok(grant.0.change(&convert::spec(&spec)?)??)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_release(grant: *mut TaleaGrant) -> c_int {
    call(|| {
        if grant.is_null() {
            return Ok(());
        }
        // SAFETY: `hand_out` returned the pointer, and no thread uses it any more.
        let grant = unsafe { Box::from_raw(grant) };
        Ok(grant.0.release()??)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_disown(grant: *mut TaleaGrant, spec_id: *mut u64) -> c_int {
    call(|| {
        if grant.is_null() {
            return Err(CallError::Caller(libc::EINVAL, "grant is NULL"));
        }
        // SAFETY: `hand_out` returned the pointer, and no thread uses it any more.
        let spec = unsafe { Box::from_raw(grant) }.0.disown();
        // SAFETY: NULL or room for a number.
        if let Some(spec_id) = unsafe { spec_id.as_mut() } {
            *spec_id = spec.0;
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_granted_get(
    grant: *const TaleaGrant,
    granted: *mut TaleaGranted,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let grant = unsafe { given(grant, "grant is NULL") }?;
        let known = grant.0.granted().ok_or(CallError::Caller(
            libc::ECHILD,
            "the grant belongs to the process that this one was forked from",
        ))?;
        let value = TaleaGranted {
            size: 0,
            cpu: convert::cpu(known.cpu),
            spec_id: known.spec.0,
            runtime_ns: known.runtime.map_or(0, Work::as_ns),
            granularity_ns: known.granularity.as_ns(),
            utilization_ppm: known.charge.ppm(),
            plugin: known.plugin,
            priority: known.priority.into(),
            mechanism: known.mechanism as u32,
            notes: known.notes.0,
            token: known.token.0,
            lost: grant.0.is_lost().into(),
            zero: 0,
        };
        // SAFETY: as the header says.
        unsafe { write(granted, &value) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_accepted_runtime_ns(grant: *const TaleaGrant) -> u64 {
    let runtime = crate::ffi::protect(|| {
        // SAFETY: as the header says.
        let grant = unsafe { given(grant, "grant is NULL") }?;
        Ok(grant.0.granted().and_then(|known| known.runtime).map_or(0, Work::as_ns))
    });
    runtime.unwrap_or(0)
}
