//! Functions of `talea.h` that connect and send requests.

use crate::ffi::{CallError, CallResult, given, place, read};
use crate::layout::{TaleaClient, TaleaGrant, TaleaSpec};
use crate::message::call;
use crate::{convert, message};
use libc::{c_char, c_int, size_t};
use std::ffi::{CStr, OsStr};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;
use talea_client::{Client, Grant, Refusal, SpecId, Token};
use talea_proto::GROUP_MAX;

/// Moves a grant to the heap, and returns the handle for the caller.
pub(crate) fn hand_out(grant: Grant) -> *mut TaleaGrant {
    Box::into_raw(Box::new(TaleaGrant(grant)))
}

fn connect(path: Option<&CStr>, timeout_ns: u64) -> CallResult<*mut TaleaClient> {
    let mut builder = Client::builder();
    if let Some(path) = path {
        builder = builder.path(OsStr::from_bytes(path.to_bytes()));
    }
    if timeout_ns != 0 {
        builder = builder.timeout(Duration::from_nanos(timeout_ns));
    }
    Ok(Box::into_raw(Box::new(TaleaClient(builder.connect()?))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_connect(client: *mut *mut TaleaClient) -> c_int {
    // SAFETY: as the header says.
    unsafe { talea_connect_to(std::ptr::null(), 0, client) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_connect_to(
    path: *const c_char,
    timeout_ns: u64,
    client: *mut *mut TaleaClient,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let client = unsafe { place(client, "client is NULL") }?;
        *client = std::ptr::null_mut();
        // SAFETY: NULL or a string.
        let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
        *client = connect(path, timeout_ns)?;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_disconnect(client: *mut TaleaClient) {
    if !client.is_null() {
        // SAFETY: `connect` returned the pointer, and no thread uses it any more.
        drop(unsafe { Box::from_raw(client) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_create(
    client: *mut TaleaClient,
    spec: *const TaleaSpec,
    grant: *mut *mut TaleaGrant,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (client, grant) =
            unsafe { (given(client, "client is NULL")?, place(grant, "grant is NULL")?) };
        *grant = std::ptr::null_mut();
        // SAFETY: as the header says.
        let spec = convert::spec(&unsafe { read(spec) }?)?;
        *grant = hand_out(client.0.create(&spec)??);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_create_group(
    client: *mut TaleaClient,
    specs: *const TaleaSpec,
    count: size_t,
    grants: *mut *mut TaleaGrant,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let client = unsafe { given(client, "client is NULL") }?;
        if specs.is_null() || grants.is_null() {
            return Err(CallError::Caller(libc::EINVAL, "specs or grants is NULL"));
        }
        if count == 0 || count > GROUP_MAX {
            return Err(convert::malformed(
                talea_client::Field::Group,
                count as u64,
                GROUP_MAX as u64,
            ));
        }
        // SAFETY: room for `count` pointers, as the header says.
        let grants = unsafe { std::slice::from_raw_parts_mut(grants, count) };
        grants.fill(std::ptr::null_mut());
        // The distance between them is the caller's idea of their size.
        // SAFETY: there is at least one.
        let stride = unsafe { specs.cast::<u32>().read_unaligned() } as usize;
        let mut tasks = Vec::with_capacity(count);
        for index in 0..count {
            #[expect(clippy::cast_ptr_alignment, reason = "structures are read byte by byte")]
            let at = specs.cast::<u8>().wrapping_add(index * stride).cast::<TaleaSpec>();
            // SAFETY: the `index`-th of `count` structures of `stride` bytes; a wrong stride is
            // refused by the first of them.
            let one =
                convert::spec(&unsafe { read(at) }?).map_err(|error| at_index(error, index))?;
            tasks.push(one);
        }
        let group = client.0.create_group(&tasks)??;
        for (to, grant) in grants.iter_mut().zip(group) {
            *to = hand_out(grant);
        }
        Ok(())
    })
}

fn at_index(error: CallError, index: usize) -> CallError {
    match error {
        CallError::Refused(refusal) => CallError::from(Refusal { index: index as u32, ..*refusal }),
        other => other,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_explain(client: *mut TaleaClient, spec: *const TaleaSpec) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (client, spec) = unsafe { (given(client, "client is NULL")?, read(spec)?) };
        let explanation = client.0.explain(&convert::spec(&spec)?)??;
        if let Some(refusal) = explanation.refusal {
            return Err(refusal.into());
        }
        let Some(chosen) = explanation.chosen.and_then(|index| explanation.answers.get(index))
        else {
            let code = talea_client::Code::NoPlugin;
            let refusal = Refusal {
                code,
                field: talea_client::Field::Request,
                asked: 0,
                limit: 0,
                errno: 0,
                index: 0,
                rule: None,
                answers: explanation.answers,
            };
            return Err(refusal.into());
        };
        let mut text = format!("Plugin {} would get it.", chosen.name);
        for answer in &explanation.answers {
            let _ = write!(text, " {answer}");
        }
        message::set(&text, None);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_claim(
    client: *mut TaleaClient,
    spec_id: u64,
    token: *const [u8; 16],
    grant: *mut *mut TaleaGrant,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let (client, grant) =
            unsafe { (given(client, "client is NULL")?, place(grant, "grant is NULL")?) };
        *grant = std::ptr::null_mut();
        // SAFETY: as the header says.
        let token = Token(*unsafe { given(token, "token is NULL") }?);
        *grant = hand_out(client.0.claim(SpecId(spec_id), token)??);
        Ok(())
    })
}
