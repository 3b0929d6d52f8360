//! Conversion between C's structures and the client's values. A 0 in a structure means "not
//! declared" and becomes `None`.

use crate::ffi::{CallError, CallResult};
use crate::layout::{TaleaInfo, TaleaPlugin, TaleaSpec, TaleaStatus};
use talea_client::{Code, CpuSet, Field, Name, Owner, PluginInfo, Refusal, Spec, SpecInfo, Status};
use talea_core::{Params, Priority, Span, Work};
use talea_proto::Task;

const IGNORE_ADMISSION: u32 = 1;
const CPUS_MANDATORY: u32 = 2;

/// Creates a refusal that needs no daemon, because the protocol cannot express the request.
pub(crate) fn malformed(field: Field, asked: u64, limit: u64) -> CallError {
    let refusal = Refusal {
        code: Code::Malformed,
        field,
        asked,
        limit,
        errno: 0,
        index: 0,
        rule: None,
        answers: Vec::new(),
    };
    refusal.into()
}

pub(crate) fn spec(given: &TaleaSpec) -> CallResult<Spec> {
    if given.flags & !(IGNORE_ADMISSION | CPUS_MANDATORY) != 0 {
        return Err(malformed(
            Field::Request,
            given.flags.into(),
            (IGNORE_ADMISSION | CPUS_MANDATORY).into(),
        ));
    }
    let owner = match given.owner {
        0 => Owner::Session,
        1 => Owner::Process,
        2 => Owner::Thread,
        other => return Err(malformed(Field::Owner, other.into(), 2)),
    };
    Ok(Spec::from_task(Task {
        params: Params {
            period: declared(given.period_ns).map(Span::from_ns),
            runtime: declared(given.runtime_ns).map(Work::from_ns),
            desired: declared(given.desired_ns).map(Work::from_ns),
            deadline: declared(given.deadline_ns).map(Span::from_ns),
            priority: priority(given.priority)?,
        },
        plugin: name(&given.plugin)?,
        cpus: CpuSet::from_words(given.cpus),
        cpus_mandatory: given.flags & CPUS_MANDATORY != 0,
        ignore_admission: given.flags & IGNORE_ADMISSION != 0,
        owner,
        thread: None,
        exclusive: false,
    }))
}

pub(crate) fn declared(value: u64) -> Option<u64> {
    (value != 0).then_some(value)
}

/// Converts a priority. A value that does not fit into a byte is invalid. The daemon checks the
/// range.
pub(crate) fn priority(value: u32) -> CallResult<Option<Priority>> {
    match u8::try_from(value) {
        Ok(0) => Ok(None),
        Ok(priority) => Ok(Some(Priority(priority))),
        Err(_) => Err(malformed(Field::Priority, value.into(), 99)),
    }
}

/// Returns the name in a field of 32 bytes, which a zero must terminate. Returns `None` if the name
/// is empty.
pub(crate) fn name(field: &[u8; 32]) -> CallResult<Option<Name>> {
    let wrong = || malformed(Field::Plugin, 32, 31);
    let len = field.iter().position(|&byte| byte == 0).ok_or_else(wrong)?;
    let text = str::from_utf8(&field[..len]).map_err(|_| wrong())?;
    Ok(Name::new(text))
}

pub(crate) fn status(status: &Status) -> TaleaStatus {
    TaleaStatus {
        size: 0,
        pid: status.pid,
        instance: status.instance,
        uptime_ns: status.uptime_ns,
        requests: status.requests,
        refused: status.refused,
        wakeups: status.wakeups,
        plugins: status.plugins,
        sessions: status.sessions,
        specs: status.specs,
        attached: status.attached,
        adopted: status.adopted,
        rules: status.rules,
    }
}

pub(crate) fn plugin(info: &PluginInfo) -> TaleaPlugin {
    TaleaPlugin {
        size: 0,
        index: info.index,
        name: info.name.0,
        kind: info.kind.0,
        cpus: *info.cpus.words(),
        priority_low: info.band.0.into(),
        priority_high: info.band.1.into(),
        specs: info.specs,
        out_of_service: info.out_of_service.into(),
    }
}

pub(crate) fn info(info: &SpecInfo) -> TaleaInfo {
    let (params, granted) = (&info.task.params, &info.granted);
    TaleaInfo {
        size: 0,
        uid: info.uid,
        pid: info.pid,
        tid: info.tid.unwrap_or(0),
        spec_id: granted.spec.0,
        period_ns: params.period.map_or(0, Span::as_ns),
        runtime_ns: params.runtime.map_or(0, Work::as_ns),
        desired_ns: params.desired.map_or(0, Work::as_ns),
        deadline_ns: params.deadline.map_or(0, Span::as_ns),
        accepted_ns: granted.runtime.map_or(0, Work::as_ns),
        priority: params.priority.map_or(0, |priority| priority.0.into()),
        kernel_priority: granted.priority.into(),
        cpu: cpu(granted.cpu),
        mechanism: granted.mechanism as u32,
        notes: granted.notes.0,
        owner: match info.task.owner {
            Owner::Session => 0,
            Owner::Process => 1,
            Owner::Thread => 2,
        },
        plugin: info.plugin_name.0,
        overruns: info.overruns.count,
        last_overrun_ns: info.overruns.last_ns,
        throttled: info.overruns.is_throttled.into(),
        reserved: 0,
    }
}

/// Returns the number of a CPU, or -1 for a whole domain.
pub(crate) fn cpu(cpu: Option<u32>) -> i32 {
    cpu.map_or(-1, |cpu| cpu as i32)
}
