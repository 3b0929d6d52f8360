//! Channels of `yasmin.h`: structures of the program that the library connects.

use super::layout::YasChannel;
use super::state::{Connected, declare, room};
use crate::app::{Not, Pipe, wrong};
use crate::ffi::{CallError, CallResult, given, protect};
use crate::message::call;
use libc::{c_void, size_t};
use std::sync::atomic::Ordering;

/// Connects two tasks by a channel.
///
/// # Safety
/// `channel` is NULL or lives as long as the application.
unsafe fn join(
    source: i32,
    destination: i32,
    channel: *const YasChannel,
    tokens: u32,
) -> CallResult {
    declare(|yasmin| {
        // SAFETY: the caller's promise.
        let given = unsafe { given(channel, "the channel is NULL") }?;
        room("channel", "CHANNEL_SIZE", yasmin.channels.len(), yasmin.limits.channels)?;
        if yasmin.channels.iter().any(|known| known.0 == channel) {
            return Err(wrong("a channel connects two tasks: this one is connected already"));
        }
        yasmin.task(source)?;
        yasmin.task(destination)?;
        let ends = (source as u32, destination as u32);
        if given.length == 0 {
            yasmin.app.edge(ends.0, ends.1)?;
        } else {
            let length = u32::try_from(given.length)
                .map_err(|_| CallError::Caller(libc::ENOMEM, "a channel has too many elements"))?;
            let pipe = yasmin.app.channel(ends, given.item_size, (length, tokens))?;
            given.connected.store(pipe.cast_mut(), Ordering::Release);
        }
        yasmin.task(destination)?.is_node = true;
        yasmin.channels.push(Connected(channel));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_channel_join(
    source: i32,
    destination: i32,
    channel: *mut YasChannel,
    tokens: u32,
) {
    // SAFETY: as the header says.
    call(|| unsafe { join(source, destination, channel, tokens) });
}

/// Moves an element through the library's channel behind the program's channel. Returns whether it
/// did.
unsafe fn moves(
    channel: *const YasChannel,
    item: *const c_void,
    one: impl FnOnce(&Pipe) -> Result<(), Not>,
) -> bool {
    // SAFETY: the caller's promise.
    let Some(channel) = (unsafe { channel.as_ref() }).filter(|_| !item.is_null()) else {
        return false;
    };
    // SAFETY: `join` put it there, and it is taken away before it is freed; no thread cleans up
    // while jobs run.
    let pipe = unsafe { channel.connected.load(Ordering::Acquire).as_ref() };
    let Some(pipe) = pipe else { return false };
    protect(|| Ok(one(pipe).is_ok())).unwrap_or(false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_channel_put(
    channel: *mut YasChannel,
    item: *const c_void,
    size: size_t,
) -> bool {
    // SAFETY: as the header says.
    unsafe { moves(channel, item, |pipe| pipe.push(item, size)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn yas_channel_get(
    channel: *mut YasChannel,
    item: *mut c_void,
    size: size_t,
) -> bool {
    // SAFETY: as the header says.
    unsafe { moves(channel, item, |pipe| pipe.pop(item, size)) }
}
