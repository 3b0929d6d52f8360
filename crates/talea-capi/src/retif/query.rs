//! Items of the daemon by their index.
//!
//! A program counts the items first, and then requests index after index until it has as many items
//! as were counted. So a count keeps its items for the thread that counted. Items that end
//! meanwhile are still reported. Numbers below the highest counted one that were absent are
//! answered without the daemon, because the daemon never reuses a number.

use super::layout::{RtfClientInfo, RtfCpuInfo, RtfPluginInfo, RtfTaskInfo};
use super::registry;
use super::task::{ErrorStyle, NULL, result};
use crate::ffi::{CallError, CallResult};
use libc::{c_int, c_uint, pid_t};
use std::cell::RefCell;
use std::collections::BTreeMap;
use talea_client::{Charge, SpecId, SpecInfo};
use talea_core::Span;
use talea_proto::{Reply, Request};

const ERROR: c_int = -1;
const CONNECTED: c_int = 1;

#[derive(Default)]
struct Seen {
    tasks: BTreeMap<u32, RtfTaskInfo>,
    connections: Vec<RtfClientInfo>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

fn see<T>(with: impl FnOnce(&mut Seen) -> T) -> CallResult<T> {
    SEEN.try_with(|seen| with(&mut seen.borrow_mut()))
        .map_err(|_| CallError::Caller(libc::ESRCH, "the thread is ending"))
}

/// Returns a count, or `RTF_ERROR`.
fn count(inside: impl FnOnce() -> CallResult<usize>) -> c_int {
    let mut found = 0;
    let outcome = result(ErrorStyle::Plain, || {
        found = inside()?;
        Ok(())
    });
    if outcome == 1 { c_int::try_from(found).unwrap_or(c_int::MAX) } else { ERROR }
}

/// Returns 1 after writing an item to `data`, or `RTF_ERROR` for refusals and failures alike.
fn item<T>(data: *mut T, inside: impl FnOnce() -> CallResult<T>) -> c_int {
    let outcome = result(ErrorStyle::Plain, || {
        // SAFETY: NULL or the caller's structure.
        let data = unsafe { data.as_mut() }.ok_or(NULL)?;
        *data = inside()?;
        Ok(())
    });
    if outcome == 1 { 1 } else { ERROR }
}

fn nothing() -> CallError {
    CallError::Caller(libc::ENOENT, "there is nothing at this index")
}

#[unsafe(no_mangle)]
pub extern "C" fn rtf_connections_info() -> c_int {
    count(|| {
        let connections: Vec<_> = registry::client()?
            .sessions()??
            .iter()
            .map(|session| RtfClientInfo { pid: session.pid as pid_t, state: CONNECTED })
            .collect();
        let found = connections.len();
        see(|seen| seen.connections = connections)?;
        Ok(found)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_connection_info(desc: c_uint, data: *mut RtfClientInfo) -> c_int {
    item(data, || see(|seen| seen.connections.get(desc as usize).copied())?.ok_or_else(nothing))
}

#[unsafe(no_mangle)]
pub extern "C" fn rtf_plugins_info() -> c_int {
    count(|| Ok(registry::client()?.plugins()??.len()))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_plugin_info(desc: c_uint, data: *mut RtfPluginInfo) -> c_int {
    item(data, || match registry::client()?.request(&Request::Plugin(desc), None)? {
        Reply::Plugin(info) => Ok(RtfPluginInfo {
            name: info.name.0.map(|byte| byte as libc::c_char),
            cputot: info.cpus.len() as c_int,
        }),
        _ => Err(nothing()),
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_plugin_cpu_info(
    desc: c_uint,
    cpuid: c_uint,
    data: *mut RtfCpuInfo,
) -> c_int {
    let request = Request::PluginCpu { plugin: desc, index: cpuid };
    item(data, || match registry::client()?.request(&request, None)? {
        Reply::PluginCpu(info) => Ok(RtfCpuInfo {
            cpunum: info.cpu as c_int,
            freeu: share(info.free),
            ntask: info.specs as c_int,
        }),
        _ => Err(nothing()),
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn rtf_tasks_info() -> c_int {
    count(|| {
        let listed = registry::client()?.list()??;
        let tasks: BTreeMap<u32, RtfTaskInfo> = listed
            .iter()
            .filter_map(|spec| Some((number(spec.granted.spec)?, info(spec))))
            .collect();
        let found = tasks.len();
        see(|seen| seen.tasks = tasks)?;
        Ok(found)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rtf_task_info(desc: c_uint, data: *mut RtfTaskInfo) -> c_int {
    item(data, || {
        let own = registry::find(desc).ok().map(|entry| entry.grant.spec());
        let (seen, highest) =
            see(|seen| (seen.tasks.get(&desc).copied(), seen.tasks.keys().next_back().copied()))?;
        if desc == 0
            || (own.is_none() && seen.is_none() && highest.is_some_and(|highest| desc < highest))
        {
            return Err(nothing());
        }
        match registry::client()?.query(own.unwrap_or(SpecId(desc.into())))? {
            Ok(now) => Ok(info(&now)),
            Err(_) => seen.ok_or_else(nothing),
        }
    })
}

/// Returns a task's number in the range of `retif.h`; `None` if it has no such number.
fn number(spec: SpecId) -> Option<u32> {
    registry::number_of(spec).or_else(|| u32::try_from(spec.0).ok())
}

fn info(spec: &SpecInfo) -> RtfTaskInfo {
    let period_us = spec.task.params.period.map_or(0, Span::as_ns) / 1_000;
    RtfTaskInfo {
        tid: spec.tid.unwrap_or(0) as pid_t,
        ppid: spec.pid as pid_t,
        priority: spec.granted.priority.into(),
        period: c_int::try_from(period_us).unwrap_or(c_int::MAX),
        util: share(spec.granted.charge),
        pluginid: spec.granted.plugin as c_int,
    }
}

/// Converts a charge to a float for display. The ledger itself uses integers.
#[allow(clippy::cast_precision_loss, reason = "six digits are more than enough to look at")]
fn share(charge: Charge) -> f32 {
    charge.ppm() as f32 / 1_000_000.0
}
