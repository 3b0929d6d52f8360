//! Conversion between the C structures and the declarations of the runtime.

use super::state::{Served, wrong};
use crate::ffi::CallResult;
use crate::layout::{TaleaAppConfig, TaleaTask, TaleaTaskVersion};
use std::time::Duration;
use talea_core::CpuSet;
use talea_runtime::{
    Config, Daemon, DeviceWait, Mapping, Priorities, Rights, Selection, Server, Task, Version,
    WaitMode, first_cpus,
};

const NON_PREEMPTIVE: u32 = 1;
const NO_INHERITANCE: u32 = 2;
const INSIST: u32 = 4;
const KEEP_CHANNELS: u32 = 8;
const SHIELD: u32 = 16;
const FLAGS: u32 = NON_PREEMPTIVE | NO_INHERITANCE | INSIST | KEEP_CHANNELS | SHIELD;

/// Number of the selection that needs a function of the caller.
const USER: u32 = 5;

const PERIODIC: u32 = 0;
const SPORADIC: u32 = 1;
const ACTIVATED: u32 = 2;
const NODE: u32 = 3;

const NO_BACKLOG: u32 = u32::MAX;

/// `RIGHTS[n]`: rights with number `n` in the header.
pub(crate) const RIGHTS: [Rights; 4] = [Rights::Any, Rights::Own, Rights::Daemon, Rights::Unused];

/// Returns `of[number]`, or an error that names `what` and the valid numbers.
fn one_of<T: Copy>(what: &str, number: u32, of: &[T]) -> CallResult<T> {
    of.get(number as usize)
        .copied()
        .ok_or_else(|| wrong(format!("{what} is {number}: there are 0 to {}", of.len() - 1)))
}

/// Converts a configuration. `user` is the selection that calls the caller's function, if there is
/// one.
pub(crate) fn config(given: &TaleaAppConfig, user: Option<Selection>) -> CallResult<Config> {
    let unknown = given.flags & !FLAGS;
    if unknown != 0 {
        return Err(wrong(format!("flags: {unknown:#x} is not known")));
    }
    if given.weight > 1_000 {
        return Err(wrong(format!("weight is {}: it is in thousandths", given.weight)));
    }
    let orders = [
        Priorities::Edf,
        Priorities::RateMonotonic,
        Priorities::DeadlineMonotonic,
        Priorities::User,
    ];
    let selections = [
        Selection::Declared,
        Selection::Energy,
        Selection::TradeOff { weight: given.weight },
        Selection::Mode,
        Selection::Mask,
    ];
    let selection = match user {
        Some(asked) if given.selection == USER => asked,
        None if given.selection == USER => {
            return Err(wrong(
                "selection is TALEA_SELECT_USER: talea_app_choose says first which function",
            ));
        }
        _ => one_of("selection", given.selection, &selections)?,
    };
    Ok(Config {
        mapping: one_of(
            "mapping",
            given.mapping,
            &[Mapping::Global, Mapping::Partitioned, Mapping::Clustered],
        )?,
        priorities: one_of("priorities", given.priorities, &orders)?,
        preemptive: given.flags & NON_PREEMPTIVE == 0,
        selection,
        inheritance: given.flags & NO_INHERITANCE == 0,
        wait_mode: match given.spin_ns {
            0 => WaitMode::Sleep,
            most => WaitMode::Spin(long(most)),
        },
        // As YASMIN does (section 3.5).
        lock_memory: true,
        retain_channels: given.flags & KEEP_CHANNELS != 0,
        cpus: cpus(given)?,
        shield: given.flags & SHIELD != 0,
        rights: one_of("rights", given.rights, &RIGHTS)?,
        daemon: daemon(given)?,
        require_real_time: given.flags & INSIST != 0,
    })
}

/// Returns the request to the daemon for rights.
fn daemon(given: &TaleaAppConfig) -> CallResult<Daemon> {
    let plugin =
        Some(name(&given.daemon_plugin)?).filter(|name| !name.is_empty()).map(str::to_owned);
    let daemon = Daemon { plugin, ..Daemon::default() };
    match given.daemon_priority {
        0 => Ok(daemon),
        1..=97 => Ok(Daemon { priority: given.daemon_priority as u8, ..daemon }),
        other => Err(wrong(format!("daemon_priority is {other}: there are 1 to 97"))),
    }
}

fn cpus(given: &TaleaAppConfig) -> CallResult<Vec<u32>> {
    let named: Vec<u32> = CpuSet::from_words(given.cpus).iter().collect();
    match given.workers as usize {
        0 => Ok(named),
        workers if named.is_empty() => {
            first_cpus(workers).map_err(|error| super::state::runtime_error(&error))
        }
        workers if workers == named.len() => Ok(named),
        workers => Err(wrong(format!("workers is {workers}, and cpus names {}", named.len()))),
    }
}

fn long(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// Returns the name in a field of 32 bytes, which a zero must terminate.
fn name(field: &[u8; 32]) -> CallResult<&str> {
    let end = field.iter().position(|&byte| byte == 0);
    let text = end.and_then(|end| str::from_utf8(&field[..end]).ok());
    text.ok_or_else(|| wrong("a name is text of at most 31 bytes with a zero behind it"))
}

/// Converts a task. `number` is the number of the task, from which a task without a name gets one.
pub(crate) fn task(given: &TaleaTask, number: usize, servers: &[Served]) -> CallResult<Task> {
    let name = match name(&given.name)? {
        "" => format!("task {number}"),
        name => name.to_owned(),
    };
    let refuse = |what: &str| Err(wrong(format!("task {name}: {what}")));
    let (period, deadline) = (long(given.period_ns), long(given.deadline_ns));
    let task = match given.kind {
        PERIODIC | SPORADIC if period.is_zero() => return refuse("its period_ns is not declared"),
        PERIODIC => Task::periodic(&name, period).offset(long(given.offset_ns)),
        SPORADIC => Task::sporadic(&name, period),
        ACTIVATED if deadline.is_zero() => return refuse("its deadline_ns is not declared"),
        ACTIVATED => Task::activated(&name, deadline),
        NODE => Task::node(&name),
        other => return refuse(&format!("kind is {other}: there are 0 to 3")),
    };
    if given.offset_ns != 0 && given.kind != PERIODIC {
        return refuse("offset_ns is for periodic tasks");
    }
    if given.period_ns != 0 && given.kind > SPORADIC {
        return refuse("period_ns is for periodic and sporadic tasks");
    }
    let Ok(priority) = u8::try_from(given.priority) else {
        return refuse(&format!("priority is {}: it is at most 255", given.priority));
    };
    let task = task.priority(priority).core(given.core);
    let task = if deadline.is_zero() { task } else { task.deadline(deadline) };
    let task = match (given.server, servers.get((given.server as usize).wrapping_sub(1))) {
        (0, _) => task,
        (_, Some(&Served { core: Some(core), .. })) if core != given.core => {
            return refuse(&format!(
                "core is {}: those that its server serves already have {core}",
                given.core
            ));
        }
        (_, Some(served)) => task.served_by(served.id),
        (other, None) => {
            return refuse(&format!(
                "server is {other}: there are 0, for none, to {}",
                servers.len()
            ));
        }
    };
    let task = match given.cores {
        0 => task,
        cores => task.cores((0..u64::BITS).filter(|core| cores >> core & 1 == 1)),
    };
    Ok(match given.backlog {
        0 => task,
        NO_BACKLOG => task.backlog(0),
        jobs => task.backlog(jobs),
    })
}

/// Returns a server of kind `kind`: deferrable, polling, sporadic or constant bandwidth.
pub(crate) fn server(name: &str, kind: u32, budget_ns: u64, period_ns: u64) -> CallResult<Server> {
    let makes: fn(&str, Duration, Duration) -> Server = one_of(
        "kind",
        kind,
        &[Server::deferrable, Server::polling, Server::sporadic, Server::bandwidth],
    )?;
    if budget_ns == 0 || budget_ns > period_ns {
        return Err(wrong(format!("server {name}: its budget is {budget_ns} ns of {period_ns}")));
    }
    Ok(makes(name, long(budget_ns), long(period_ns)))
}

/// Converts a version. `number` is the number of the version, from which a version without a name
/// gets one.
pub(crate) fn version(given: &TaleaTaskVersion, number: usize) -> CallResult<Version> {
    let version = match name(&given.name)? {
        // The name is valid in a system file.
        "" => Version::new(&format!("version-{number}")),
        name => Version::new(name),
    };
    let modes = if given.modes == 0 { u64::MAX } else { given.modes };
    let version = match given.time_ns {
        0 => version,
        most => version.cost(long(most)).time(long(most)),
    };
    let cpu = match given.wait {
        0 => DeviceWait::Free,
        1 => DeviceWait::Spin,
        2 => DeviceWait::Hold,
        other => return Err(wrong(format!("version {number}: wait is {other}: there are 0 to 2"))),
    };
    let version = version.waits(long(given.wait_ns), cpu);
    Ok(version.energy(given.energy).modes(modes).needs(given.needs))
}
