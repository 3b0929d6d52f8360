//! The right to real-time priorities: the process's own, or the daemon's to give.
//!
//! Model: one group of grants, all or none: the watchdog, a dispatcher a CPU, a worker a task, each with one of three levels, for as long
//! as the run is. A group has at most [`GROUP`] grants; of an application that needs more, several groups, and what one refuses the others
//! give back. The daemon decides by its rules; what it says no with is passed on.
//!
//! Levels keep their order on each CPU by itself (`fp`), and a job of a global application may run on any of its CPUs. If levels of
//! different CPUs don't fit together, all are asked for on the first: then the daemon's books say too little about the others.

use crate::config::Daemon;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use talea_client::{Client, CpuSet, Failure, GROUP_MAX, Grant, Outcome, Spec};
use talea_exec::{Crew, Grantor};
use talea_os::Tid;
use talea_os::sched::{self, Policy};

/// A daemon that does not answer by then is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the daemon; what it gives is held as long as this is.
pub(crate) struct ByDaemon<'a> {
    config: &'a Daemon,
    held: Mutex<Vec<Grant>>,
}

/// A thread, how many levels above the workers it belongs, and where.
type Wanted = (Tid, u8, Vec<u32>);

impl<'a> ByDaemon<'a> {
    pub(crate) fn new(config: &'a Daemon) -> ByDaemon<'a> {
        ByDaemon { config, held: Mutex::new(Vec::new()) }
    }

    /// Whether there is a daemon to ask.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let builder = Client::builder().timeout(PATIENCE);
        match &self.config.socket {
            Some(path) => builder.path(path.clone()),
            None => builder,
        }
        .connect()
    }

    fn spec(&self, above: u8, cpus: &[u32]) -> io::Result<Spec> {
        let priority = self.config.priority.saturating_add(above);
        let builder = Spec::builder().priority(priority).only_cpus(cpus.iter().copied().collect::<CpuSet>());
        let builder = match &self.config.plugin {
            Some(plugin) => builder.plugin(plugin),
            None => builder,
        };
        let of = self.config.priority;
        builder.build().map_err(|error| {
            refused(format!(
                "{error}: the application's priority is {of}, and what watches over it stands up to two above"
            ))
        })
    }

    /// All of them, each with its thread, or none.
    fn ask(&self, client: &Client, wanted: &[Wanted]) -> io::Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for group in wanted.chunks(GROUP_MAX) {
            let specs: Vec<Spec> =
                group.iter().map(|(_, above, cpus)| self.spec(*above, cpus)).collect::<io::Result<_>>()?;
            grants.extend(answer(client.create_group(&specs))?);
        }
        for ((tid, ..), grant) in wanted.iter().zip(&grants) {
            answer(grant.attach(tid.as_raw() as u32))?;
        }
        Ok(grants)
    }
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// What broke is no right either: there is nobody else to ask.
fn answer<T>(outcome: Outcome<T>) -> io::Result<T> {
    match outcome {
        Ok(Ok(granted)) => Ok(granted),
        Ok(Err(refusal)) => Err(refused(format!("talead refuses: {refusal}"))),
        Err(failure) => Err(refused(failure.to_string())),
    }
}

impl Grantor for ByDaemon<'_> {
    fn grant(&self, crew: &Crew) -> io::Result<()> {
        let client = self.connect().map_err(|failure| refused(failure.to_string()))?;
        let all: Vec<u32> = crew.dispatchers.iter().map(|&(_, cpu)| cpu).collect();
        let each = |place: &dyn Fn(&[u32]) -> Vec<u32>| -> Vec<Wanted> {
            let dispatchers = crew.dispatchers.iter().map(|&(tid, cpu)| (tid, 1, place(&[cpu])));
            let workers = crew.workers.iter().map(|(tid, cpus)| (*tid, 0, place(cpus)));
            let watchdog = crew.watchdog.iter().map(|&tid| (tid, 2, place(&all)));
            dispatchers.chain(workers).chain(watchdog).collect()
        };
        let mut grants = self.ask(&client, &each(&<[u32]>::to_vec))?;
        if all.len() > 1 && !are_in_order(crew)? {
            // Given back before they are asked for anew.
            grants.clear();
            let first = all[0];
            grants = self.ask(&client, &each(&|_| vec![first]))?;
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = grants;
        Ok(())
    }
}

/// Whether every dispatcher stands above every worker, and the watchdog above them all.
fn are_in_order(crew: &Crew) -> io::Result<bool> {
    let level = |tid: Tid| {
        sched::get(tid).map(|attr| match attr.policy {
            Policy::Fifo(priority) | Policy::Rr(priority) => priority,
            _ => 0,
        })
    };
    let dispatchers = crew.dispatchers.iter().map(|&(tid, _)| level(tid)).collect::<io::Result<Vec<u8>>>()?;
    let workers = crew.workers.iter().map(|(tid, _)| level(*tid)).collect::<io::Result<Vec<u8>>>()?;
    let watchdog = crew.watchdog.iter().map(|&tid| level(tid)).collect::<io::Result<Vec<u8>>>()?;
    let is_above = watchdog.iter().min().is_none_or(|least| Some(least) > dispatchers.iter().max());
    Ok(is_above && dispatchers.iter().min() > workers.iter().max())
}
