//! Functions of `talea.h` that read the state of the daemon.

use crate::convert;
use crate::ffi::{CallError, CallResult, given, write};
use crate::layout::{TaleaClient, TaleaGrant, TaleaInfo, TaleaPlugin, TaleaStatus};
use crate::message::call;
use libc::c_int;
use talea_client::{Client, Failure, SpecId};
use talea_proto::{Reply, Request};

/// Requests one item of a list. Returns `ENOENT` at the end of the list.
fn item(client: &Client, request: &Request) -> CallResult<Reply> {
    match client.request(request, None)? {
        Reply::End => Err(CallError::Caller(libc::ENOENT, "there is no such item")),
        Reply::Refused(refusal) => Err(CallError::Refused(refusal)),
        reply => Ok(reply),
    }
}

fn strange() -> CallError {
    Failure::Protocol("a reply to something else".into()).into()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_status_get(
    client: *mut TaleaClient,
    status: *mut TaleaStatus,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let client = unsafe { given(client, "client is NULL") }?;
        let value = convert::status(&client.0.status()??);
        // SAFETY: as the header says.
        unsafe { write(status, &value) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_plugin_get(
    client: *mut TaleaClient,
    index: u32,
    plugin: *mut TaleaPlugin,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let client = unsafe { given(client, "client is NULL") }?;
        let Reply::Plugin(info) = item(&client.0, &Request::Plugin(index))? else {
            return Err(strange());
        };
        // SAFETY: as the header says.
        unsafe { write(plugin, &convert::plugin(&info)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_grant_status(grant: *mut TaleaGrant, info: *mut TaleaInfo) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let grant = unsafe { given(grant, "grant is NULL") }?;
        let known = grant.0.info()??;
        // SAFETY: as the header says.
        unsafe { write(info, &convert::info(&known)) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_next_spec(
    client: *mut TaleaClient,
    from: u64,
    info: *mut TaleaInfo,
) -> c_int {
    call(|| {
        // SAFETY: as the header says.
        let client = unsafe { given(client, "client is NULL") }?;
        let Reply::Spec(known) = item(&client.0, &Request::NextSpec(SpecId(from)))? else {
            return Err(strange());
        };
        // SAFETY: as the header says.
        unsafe { write(info, &convert::info(&known)) }
    })
}
