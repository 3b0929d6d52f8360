//! Real-time rights: the process's own, or grants of the daemon.
//!
//! Model: one group of grants, all or none: the watchdog, a dispatcher per CPU, a worker per task,
//! on three levels, for the length of the run. A group has at most [`GROUP_MAX`] grants. An
//! application that needs more grants has several groups, and one refusal returns all. The daemon
//! decides by its rules, and the runtime passes on a refusal.
//!
//! A dispatcher is granted its CPU, and a worker each CPU of its jobs, with the demand if the task
//! declares one. The thread of a worker holds the grant for one of these CPUs. On the other CPUs
//! grants without threads stand in for it, so that the daemon's ledger has the demand on each. A
//! worker that moves between CPUs must find the same order of priorities on all of them, even after
//! other clients have requested and released grants. Such an application needs a plugin that keeps
//! one order for all its CPUs (`levels = "common"`), which each grant reports. The watchdog may run
//! on any of them.

use crate::config::Daemon;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use talea_client::{Client, CpuSet, Failure, GROUP_MAX, Grant, Notes, Outcome, Spec};
use talea_core::mutate;
use talea_exec::{RightsProvider, RunThreads};
use talea_os::Tid;
use talea_os::sched::{self, Policy};

/// Timeout of the connection to the daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Rights provider that requests grants from the daemon and holds them.
pub(crate) struct DaemonRights<'a> {
    config: &'a Daemon,
    demands: &'a [TaskDemand],
    grants: Mutex<Vec<Grant>>,
}

/// Demand of a task for the daemon's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskDemand {
    /// CPUs on which jobs of the task may run.
    pub(crate) cpus: Vec<u32>,
    /// Maximum cost of a job and minimum distance of jobs, if the task declares both.
    pub(crate) demand: Option<(Duration, Duration)>,
}

/// Request for a grant.
#[derive(Clone, Copy, Debug)]
struct GrantRequest {
    /// Thread of the grant. `None` if the grant stands in for a thread that may move to the CPU.
    thread: Option<Tid>,
    /// Number of levels above the level of the workers.
    level: u8,
    cpu: u32,
    demand: Option<(Duration, Duration)>,
}

/// Returns the requests of all threads: one for the CPU on which each thread runs, and one for each
/// other CPU on which it may run.
fn grant_requests(threads: &RunThreads, demands: &[TaskDemand]) -> Vec<GrantRequest> {
    let one = |tid: Tid, level: u8, cpu: u32| GrantRequest {
        thread: Some(tid),
        level,
        cpu,
        demand: None,
    };
    let dispatchers = threads.dispatchers.iter().map(|&(tid, cpu)| one(tid, 1, cpu));
    let workers = threads.workers.iter().zip(demands).enumerate().flat_map(
        |(number, ((tid, _), demand_of_task))| {
            // Not all on the first CPU, if they are free to choose.
            let home = number % demand_of_task.cpus.len().max(1);
            let cpus = &demand_of_task.cpus;
            let cpus = &cpus[..mutate!("runtime-stand-ins", cpus.len(), cpus.len().min(1))];
            cpus.iter().enumerate().map(move |(at, &cpu)| GrantRequest {
                thread: (at == home).then_some(*tid),
                level: 0,
                cpu,
                demand: demand_of_task.demand,
            })
        },
    );
    let watchdog = threads.watchdog.iter().flat_map(|&tid| {
        let place = move |(at, &(_, cpu)): (usize, &(Tid, u32))| GrantRequest {
            thread: (at == 0).then_some(tid),
            ..one(tid, 2, cpu)
        };
        threads.dispatchers.iter().enumerate().map(place)
    });
    dispatchers.chain(workers).chain(watchdog).collect()
}

impl<'a> DaemonRights<'a> {
    /// Creates the provider. `demands[n]` is the demand of task `n`.
    pub(crate) fn new(config: &'a Daemon, demands: &'a [TaskDemand]) -> DaemonRights<'a> {
        DaemonRights { config, demands, grants: Mutex::new(Vec::new()) }
    }

    /// Connects to the daemon.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let builder = Client::builder().timeout(CONNECT_TIMEOUT);
        match &self.config.socket {
            Some(path) => builder.path(path.clone()),
            None => builder,
        }
        .connect()
    }

    fn spec(&self, request: &GrantRequest, plugin: Option<&str>) -> io::Result<Spec> {
        let priority = self.config.priority.saturating_add(request.level);
        let builder = Spec::builder().priority(priority).only_cpus(CpuSet::single(request.cpu));
        let builder = match plugin {
            Some(plugin) => builder.plugin(plugin),
            None => builder,
        };
        let builder = match request.demand {
            Some((cost, period)) => builder.runtime(cost).period(period),
            None => builder,
        };
        let of = self.config.priority;
        builder.build().map_err(|error| {
            refused(format!(
                "{error}: the application's priority is {of}, and its dispatchers and watchdog need up to two above it"
            ))
        })
    }

    /// Returns the plugin for all grants. If the configuration names a plugin, or no worker
    /// declares a demand, the result is the configured value. Otherwise the result is the plugin
    /// that accepts a dispatcher. Another plugin might accept a worker that declares its demand,
    /// with levels unrelated to a dispatcher's. The result is `None` if no plugin accepts the
    /// dispatcher. The daemon then refuses the group with the reason.
    fn plugin(&self, client: &Client, request: &[GrantRequest]) -> io::Result<Option<String>> {
        if self.config.plugin.is_some() || request.iter().all(|request| request.demand.is_none()) {
            return Ok(self.config.plugin.clone());
        }
        let Some(first) = request.first() else { return Ok(None) };
        let explanation = flatten(client.explain(&self.spec(first, None)?))?;
        let chosen = explanation.chosen.and_then(|chosen| explanation.answers.get(chosen));
        Ok(chosen.map(|answer| answer.name.as_str().to_owned()))
    }

    /// Requests all grants and attaches their threads, or fails with none.
    fn request(&self, client: &Client, request: &[GrantRequest]) -> io::Result<Vec<Grant>> {
        let plugin = self.plugin(client, request)?;
        let mut grants = Vec::new();
        for group in request.chunks(GROUP_MAX) {
            let specs: Vec<Spec> = group
                .iter()
                .map(|request| self.spec(request, plugin.as_deref()))
                .collect::<io::Result<_>>()?;
            grants.extend(
                flatten(client.create_group(&specs))
                    .map_err(|error| with_grant_count(error, request.len()))?,
            );
        }
        for (request, grant) in request.iter().zip(&grants) {
            if let Some(tid) = request.thread {
                flatten(grant.attach(tid.as_raw() as u32))?;
            }
        }
        Ok(grants)
    }
}

/// Adds the number of grants to an error, because quotas and sums concern all groups of an
/// application.
fn with_grant_count(error: io::Error, count: usize) -> io::Error {
    if count <= GROUP_MAX {
        error
    } else {
        refused(format!("{error} (the application needs {count} grants)"))
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// Flattens an outcome. A failure counts as a missing right, because there is no other provider.
fn flatten<T>(outcome: Outcome<T>) -> io::Result<T> {
    match outcome {
        Ok(Ok(granted)) => Ok(granted),
        Ok(Err(refusal)) => Err(refused(format!("talead refuses: {refusal}"))),
        Err(failure) => Err(refused(failure.to_string())),
    }
}

impl RightsProvider for DaemonRights<'_> {
    fn grant(&self, threads: &RunThreads) -> io::Result<()> {
        let client = self.connect().map_err(|failure| refused(failure.to_string()))?;
        let grants = self.request(&client, &grant_requests(threads, self.demands))?;
        require_common_levels(threads, &grants)?;
        // Any other wrong order is refused later with the kernel's policies.
        if mutate!(
            "runtime-given-order",
            !has_required_order(threads)?,
            threads.dispatchers.is_empty() && !has_required_order(threads)?
        ) {
            require_distinct_levels(&client, &grants)?;
        }
        *self.grants.lock().unwrap_or_else(PoisonError::into_inner) = grants;
        Ok(())
    }
}

/// Checks that the plugin keeps one order for all CPUs. Levels per CPU fit together only until
/// another client requests one.
fn require_common_levels(threads: &RunThreads, grants: &[Grant]) -> io::Result<()> {
    let is_common = |grant: &Grant| {
        grant.granted().is_some_and(|granted| granted.notes.contains(Notes::COMMON_LEVELS))
    };
    mutate!(
        "runtime-common-order",
        if threads.dispatchers.len() < 2 || grants.iter().all(is_common) {
            return Ok(());
        },
        if threads.dispatchers.len() < 2
            || grants.iter().all(is_common)
            || has_required_order(threads)?
        {
            return Ok(());
        }
    );
    Err(refused(
        "talead has granted levels in a separate order for each CPU: its plugin must keep one order for all CPUs of the \
         application (`levels = \"common\"`)"
            .to_owned(),
    ))
}

/// Checks that the levels are distinct, because in a full band neighbouring levels share a
/// priority.
fn require_distinct_levels(client: &Client, grants: &[Grant]) -> io::Result<()> {
    for grant in grants {
        let granted = flatten(grant.info())?.granted;
        if !granted.notes.contains(Notes::LEVEL_SHARED) {
            continue;
        }
        let plugins = flatten(client.plugins())?;
        let plugin = plugins.iter().find(|plugin| plugin.index == granted.plugin);
        let (name, (low, high)) =
            plugin.map_or(("?", (0, 0)), |plugin| (plugin.name.as_str(), plugin.band));
        let count = u32::from(high.saturating_sub(low)) + 1;
        return Err(refused(format!(
            "no level is free: {count} of the {count} levels of {name} are taken, and the application would share one \
             where it needs three of its own (`talea list` shows who has them; a wider band, `priorities`, has more, \
             and `refuse_sharing = true` refuses new grants when none is left)"
        )));
    }
    Ok(())
}

/// Whether every dispatcher is above every worker, and the watchdog above all of them.
fn has_required_order(threads: &RunThreads) -> io::Result<bool> {
    let level = |tid: Tid| {
        sched::get(tid).map(|attr| match attr.policy {
            Policy::Fifo(priority) | Policy::Rr(priority) => priority,
            _ => 0,
        })
    };
    let dispatchers =
        threads.dispatchers.iter().map(|&(tid, _)| level(tid)).collect::<io::Result<Vec<u8>>>()?;
    let workers =
        threads.workers.iter().map(|(tid, _)| level(*tid)).collect::<io::Result<Vec<u8>>>()?;
    let watchdog =
        threads.watchdog.iter().map(|&tid| level(tid)).collect::<io::Result<Vec<u8>>>()?;
    let is_above = watchdog.iter().min().is_none_or(|least| Some(least) > dispatchers.iter().max());
    Ok(is_above && dispatchers.iter().min() > workers.iter().max())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tid(number: i32) -> Tid {
        Tid::new(number).expect("positive")
    }

    #[test]
    fn y22_a_demand_is_charged_on_every_cpu_and_each_thread_is_granted_once() {
        let threads = RunThreads {
            watchdog: vec![tid(9)],
            dispatchers: vec![(tid(1), 4), (tid(2), 6)],
            workers: vec![(tid(11), vec![4, 6]), (tid(12), vec![4, 6]), (tid(13), vec![4, 6])],
        };
        let demand = Some((Duration::from_millis(2), Duration::from_millis(10)));
        let demands = [
            TaskDemand { cpus: vec![4, 6], demand },
            TaskDemand { cpus: vec![4, 6], demand: None },
            TaskDemand { cpus: vec![6], demand },
        ];
        let request = grant_requests(&threads, &demands);
        let seen = |cpu| -> Vec<(Option<i32>, u8, bool)> {
            let here = request.iter().filter(|request| request.cpu == cpu);
            here.map(|request| {
                (request.thread.map(Tid::as_raw), request.level, request.demand.is_some())
            })
            .collect()
        };
        let on_4 =
            [(Some(1), 1, false), (Some(11), 0, true), (None, 0, false), (Some(9), 2, false)];
        assert_eq!(seen(4), on_4, "its dispatcher, two stand-ins, and the watchdog");
        let on_6 = [
            (Some(2), 1, false),
            (None, 0, true),
            (Some(12), 0, false),
            (Some(13), 0, true),
            (None, 2, false),
        ];
        assert_eq!(seen(6), on_6, "also for its own task");
    }
}
