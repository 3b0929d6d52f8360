//! The right to real-time priorities: the process's own, or the daemon's to give.
//!
//! Model: one group of grants, all or none: the watchdog, a dispatcher a CPU, a worker a task, each
//! with one of three levels, for as long as the run is. A group has at most [`GROUP`] grants; of an
//! application that needs more, several groups, and what one refuses the others give back. The
//! daemon decides by its rules; what it says no with is passed on.
//!
//! A dispatcher is granted the CPU that it drives, and a worker each CPU that its jobs may run on,
//! with what they use of it where that was declared: its thread holds the grant of one of them, and
//! grants without threads stand in for it on the others, so that what the daemon reckons with is
//! there on each of them. Who moves between CPUs must find the same order on all, now and when
//! others have come and gone: such an application needs a plugin that keeps one order for all its
//! CPUs (`levels = "common"`), which a grant says of itself. The watchdog may come to any of them.

use crate::config::Daemon;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use talea_client::{Client, CpuSet, Failure, GROUP_MAX, Grant, Notes, Outcome, Spec};
use talea_core::mutate;
use talea_exec::{Crew, Grantor};
use talea_os::Tid;
use talea_os::sched::{self, Policy};

/// A daemon that does not answer by then is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks the daemon; what it gives is held as long as this is.
pub(crate) struct ByDaemon<'a> {
    config: &'a Daemon,
    booked: &'a [Booking],
    held: Mutex<Vec<Grant>>,
}

/// What the daemon's books are to know of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Booking {
    /// Where its jobs may run.
    pub(crate) cpus: Vec<u32>,
    /// What a job costs at most, and how often one comes at most, if both were declared.
    pub(crate) demand: Option<(Duration, Duration)>,
}

/// A grant that is wanted.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// Whose it is; nobody's, if it only stands for a thread that may come there.
    thread: Option<Tid>,
    /// How many levels above the workers it belongs.
    above: u8,
    cpu: u32,
    demand: Option<(Duration, Duration)>,
}

/// Of all threads: each where it runs, and where it may.
fn wanted(crew: &Crew, booked: &[Booking]) -> Vec<Wanted> {
    let one =
        |tid: Tid, above: u8, cpu: u32| Wanted { thread: Some(tid), above, cpu, demand: None };
    let dispatchers = crew.dispatchers.iter().map(|&(tid, cpu)| one(tid, 1, cpu));
    let workers =
        crew.workers.iter().zip(booked).enumerate().flat_map(|(number, ((tid, _), booking))| {
            // Not all on the first, if it is the same to them.
            let home = number % booking.cpus.len().max(1);
            booking.cpus.iter().enumerate().map(move |(at, &cpu)| Wanted {
                thread: (at == home).then_some(*tid),
                above: 0,
                cpu,
                demand: booking.demand,
            })
        });
    let watchdog = crew.watchdog.iter().flat_map(|&tid| {
        let place = move |(at, &(_, cpu)): (usize, &(Tid, u32))| Wanted {
            thread: (at == 0).then_some(tid),
            ..one(tid, 2, cpu)
        };
        crew.dispatchers.iter().enumerate().map(place)
    });
    dispatchers.chain(workers).chain(watchdog).collect()
}

impl<'a> ByDaemon<'a> {
    /// `booked`: by task.
    pub(crate) fn new(config: &'a Daemon, booked: &'a [Booking]) -> ByDaemon<'a> {
        ByDaemon { config, booked, held: Mutex::new(Vec::new()) }
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

    fn spec(&self, wanted: &Wanted, plugin: Option<&str>) -> io::Result<Spec> {
        let priority = self.config.priority.saturating_add(wanted.above);
        let builder = Spec::builder().priority(priority).only_cpus(CpuSet::single(wanted.cpu));
        let builder = match plugin {
            Some(plugin) => builder.plugin(plugin),
            None => builder,
        };
        let builder = match wanted.demand {
            Some((cost, period)) => builder.runtime(cost).period(period),
            None => builder,
        };
        let of = self.config.priority;
        builder.build().map_err(|error| {
            refused(format!(
                "{error}: the application's priority is {of}, and what watches over it stands up to two above"
            ))
        })
    }

    /// The plugin for all of them: the one that takes a dispatcher. A worker that declares what it
    /// uses could be had by others, whose levels have nothing to do with a dispatcher's. Nothing,
    /// if none takes it: then the group is refused with the reason.
    fn plugin(&self, client: &Client, wanted: &[Wanted]) -> io::Result<Option<String>> {
        if self.config.plugin.is_some() || wanted.iter().all(|wanted| wanted.demand.is_none()) {
            return Ok(self.config.plugin.clone());
        }
        let Some(first) = wanted.first() else { return Ok(None) };
        let said = answer(client.explain(&self.spec(first, None)?))?;
        let chosen = said.chosen.and_then(|chosen| said.answers.get(chosen));
        Ok(chosen.map(|answer| answer.name.as_str().to_owned()))
    }

    /// All of them, each with its thread, or none.
    fn ask(&self, client: &Client, wanted: &[Wanted]) -> io::Result<Vec<Grant>> {
        let plugin = self.plugin(client, wanted)?;
        let mut grants = Vec::new();
        for group in wanted.chunks(GROUP_MAX) {
            let specs: Vec<Spec> = group
                .iter()
                .map(|wanted| self.spec(wanted, plugin.as_deref()))
                .collect::<io::Result<_>>()?;
            grants.extend(
                answer(client.create_group(&specs)).map_err(|error| of_all(error, wanted.len()))?,
            );
        }
        for (wanted, grant) in wanted.iter().zip(&grants) {
            if let Some(tid) = wanted.thread {
                answer(grant.attach(tid.as_raw() as u32))?;
            }
        }
        Ok(grants)
    }
}

/// Quotas and sums are about all groups of an application.
fn of_all(error: io::Error, count: usize) -> io::Error {
    if count <= GROUP_MAX {
        error
    } else {
        refused(format!("{error} (the application needs {count} grants)"))
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
        let grants = self.ask(&client, &wanted(crew, self.booked))?;
        must_stay(crew, &grants)?;
        // Whatever else puts them out of order is refused with what the kernel says of it, by
        // whoever asked for this.
        if mutate!(
            "runtime-given-order",
            !are_in_order(crew)?,
            crew.dispatchers.is_empty() && !are_in_order(crew)?
        ) {
            must_be_apart(&client, &grants)?;
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = grants;
        Ok(())
    }
}

/// An order that is that of one CPU fits that of another at best until somebody else asks for a
/// level there.
fn must_stay(crew: &Crew, grants: &[Grant]) -> io::Result<()> {
    let is_common = |grant: &Grant| {
        grant.granted().is_some_and(|granted| granted.notes.contains(Notes::COMMON_LEVELS))
    };
    mutate!(
        "runtime-common-order",
        if crew.dispatchers.len() < 2 || grants.iter().all(is_common) {
            return Ok(());
        },
        if crew.dispatchers.len() < 2 || grants.iter().all(is_common) || are_in_order(crew)? {
            return Ok(());
        }
    );
    Err(refused(
        "talead has granted levels in an order of each CPU's own: its plugin has to keep one order for all CPUs of the \
         application (`levels = \"common\"`)"
            .to_owned(),
    ))
}

/// As many distinct priorities as there are levels: whoever comes then shares one with its
/// neighbour.
fn must_be_apart(client: &Client, grants: &[Grant]) -> io::Result<()> {
    for grant in grants {
        let granted = answer(grant.info())?.granted;
        if !granted.notes.contains(Notes::LEVEL_SHARED) {
            continue;
        }
        let plugins = answer(client.plugins())?;
        let plugin = plugins.iter().find(|plugin| plugin.index == granted.plugin);
        let (name, (low, high)) =
            plugin.map_or(("?", (0, 0)), |plugin| (plugin.name.as_str(), plugin.band));
        let count = u32::from(high.saturating_sub(low)) + 1;
        return Err(refused(format!(
            "no level is free: {count} of the {count} levels of {name} are taken, and the application would share one \
             where it needs three of its own (`talea list` shows who has them; a wider band, `priorities`, has more, \
             and `refuse_sharing = true` refuses whoever comes when none is left)"
        )));
    }
    Ok(())
}

/// Whether every dispatcher stands above every worker, and the watchdog above them all.
fn are_in_order(crew: &Crew) -> io::Result<bool> {
    let level = |tid: Tid| {
        sched::get(tid).map(|attr| match attr.policy {
            Policy::Fifo(priority) | Policy::Rr(priority) => priority,
            _ => 0,
        })
    };
    let dispatchers =
        crew.dispatchers.iter().map(|&(tid, _)| level(tid)).collect::<io::Result<Vec<u8>>>()?;
    let workers =
        crew.workers.iter().map(|(tid, _)| level(*tid)).collect::<io::Result<Vec<u8>>>()?;
    let watchdog = crew.watchdog.iter().map(|&tid| level(tid)).collect::<io::Result<Vec<u8>>>()?;
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
    fn y22_every_cpu_is_booked_where_a_thread_may_run_and_each_thread_once() {
        let crew = Crew {
            watchdog: vec![tid(9)],
            dispatchers: vec![(tid(1), 4), (tid(2), 6)],
            workers: vec![(tid(11), vec![4, 6]), (tid(12), vec![4, 6]), (tid(13), vec![4, 6])],
        };
        let demand = Some((Duration::from_millis(2), Duration::from_millis(10)));
        let booked = [
            Booking { cpus: vec![4, 6], demand },
            Booking { cpus: vec![4, 6], demand: None },
            Booking { cpus: vec![6], demand },
        ];
        let wanted = wanted(&crew, &booked);
        let seen = |cpu| -> Vec<(Option<i32>, u8, bool)> {
            let here = wanted.iter().filter(|wanted| wanted.cpu == cpu);
            here.map(|wanted| {
                (wanted.thread.map(Tid::as_raw), wanted.above, wanted.demand.is_some())
            })
            .collect()
        };
        let on_4 =
            [(Some(1), 1, false), (Some(11), 0, true), (None, 0, false), (Some(9), 2, false)];
        assert_eq!(seen(4), on_4, "its dispatcher, two that may come, and who watches");
        let on_6 = [
            (Some(2), 1, false),
            (None, 0, true),
            (Some(12), 0, false),
            (Some(13), 0, true),
            (None, 2, false),
        ];
        assert_eq!(seen(6), on_6, "whose tasks are nobody else's, too");
    }
}
