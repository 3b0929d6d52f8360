//! Witness: recorded arrivals with which a job is late. `talea analyze --witness` writes the file,
//! `talea simulate --witness` repeats the miss.
//!
//! The file refers to a system file and to the changes that were applied to it. The recorded
//! arrivals of one root's tasks replace the described ones, and all costs are the worst case. Tasks
//! that a graph activates keep their arrivals.

use crate::exit::{Unreadable, usage};
use crate::run_summary::short;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::path::Path;
use talea_core::engine::{Job, NodeSpec, TaskId};
use talea_core::mutate;
use talea_core::workload::{Arrivals, CostMode};
use talea_core::{Span, Time};
use talea_os::bounded_read::read_text_bounded;
use talea_sim::{Completion, Simulation, Sink};
use talea_system::what_if::Change;
use talea_system::{Root, System};

/// Maximum size of a file in bytes. A search simulates at most a million jobs, with two times each.
const MAX_BYTES: usize = 1 << 28;

/// Content of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// Version of the format.
    schema: u32,
    /// System file of the witness.
    file: String,
    what_if: Vec<String>,
    root: String,
    /// Seed of the other random values of the root.
    seed: u64,
    /// Job that is late.
    pub late: LateJob,
    tasks: Vec<Task>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    name: String,
    /// Nominal arrivals, each with the time at which the engine receives it. `None` for tasks that
    /// a graph activates.
    arrivals_ns: Option<Vec<(u64, u64)>>,
}

/// Job that is late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LateJob {
    /// Name of the task.
    pub task: String,
    /// Number of the job.
    pub job: u64,
    /// Release in nanoseconds.
    pub release_ns: u64,
    /// Absolute deadline in nanoseconds.
    pub deadline_ns: u64,
    /// Completion of the job. `None` if the job did not end during the search.
    pub end_ns: Option<u64>,
}

impl LateJob {
    /// Returns the end of a run that shows the miss.
    fn until(&self) -> Time {
        Time::from_ns(self.end_ns.unwrap_or(self.deadline_ns).saturating_add(1))
    }
}

impl std::fmt::Display for LateJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LateJob { task, job, .. } = self;
        let (release, due) = (short(self.release_ns), self.deadline_ns);
        write!(f, "job {job} of {task}, released at {release}, ")?;
        match self.end_ns {
            Some(end) => {
                write!(f, "ends at {}, {} late", short(end), short(end.saturating_sub(due)))
            }
            None => write!(f, "has not ended at its deadline, {}", short(due)),
        }
    }
}

const SCHEMA: u32 = 1;

/// Sink that records every arrival.
struct ArrivalRecorder(Vec<Vec<(u64, u64)>>);

impl Sink for ArrivalRecorder {
    fn on_arrival(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.0[task.0 as usize].push((nominal.as_ns(), now.as_ns()));
    }
}

/// Sink that finds one job.
struct JobFinder {
    task: u32,
    release_ns: u64,
    end: Option<Time>,
}

impl Sink for JobFinder {
    fn on_completion(&mut self, job: &Completion) {
        if job.task.0 == self.task && job.release.as_ns() == self.release_ns {
            self.end = Some(job.end);
        }
    }
}

fn is_activated(root: &Root, number: usize) -> bool {
    let tasks = root.tree.nodes().filter_map(|(id, node)| match &node.spec {
        NodeSpec::Task(spec) => Some((id, spec)),
        NodeSpec::Scheduler(_) => None,
    });
    let mut tasks = tasks.skip(number);
    tasks.next().is_some_and(|(id, spec)| {
        spec.inherits || root.tree.channels.iter().any(|channel| channel.to == id)
    })
}

impl Witness {
    /// Records the arrivals up to the end of the late job, in a root that was simulated with this
    /// seed and worst-case costs.
    pub fn record(
        file: &str,
        what_if: &[Change],
        root: &Root,
        seed: u64,
        late: LateJob,
    ) -> anyhow::Result<Witness> {
        let machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
        let world = Simulation::new(machine, root.tree.cpus, &root.workload(seed));
        let mut recorded = ArrivalRecorder(vec![Vec::new(); root.tasks.len()]);
        world
            .with_cost_mode(CostMode::Worst)
            .with_environment(&root.surroundings)
            .run(late.until(), &mut recorded);
        let all = root.tasks.iter().zip(recorded.0).enumerate();
        let tasks = all.map(|(number, (name, arrivals))| Task {
            name: name.clone(),
            arrivals_ns: (!is_activated(root, number)).then_some(arrivals),
        });
        Ok(Witness {
            schema: SCHEMA,
            file: file.to_owned(),
            what_if: what_if.iter().map(ToString::to_string).collect(),
            root: root.name.clone(),
            seed,
            late,
            tasks: tasks.collect(),
        })
    }

    /// Writes the witness to the file at `path`.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        crate::output::write_file(path, &text)
    }

    /// Reads a witness file. The inner error describes an invalid file.
    pub fn read(path: &Path) -> anyhow::Result<Witness> {
        let origin = path.display();
        let text = read_text_bounded(path, MAX_BYTES).with_context(|| Unreadable::file(path))?;
        match serde_json::from_str::<Witness>(&text) {
            Ok(witness) if witness.schema == SCHEMA => Ok(witness),
            Ok(witness) => Err(usage(format!(
                "{origin}: a witness of format {}, and this talea reads {SCHEMA}",
                witness.schema
            ))),
            Err(error) => {
                Err(usage(format!("{origin}: not a witness of talea analyze --witness: {error}")))
            }
        }
    }

    /// Returns the seed of the root.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Applies the changes and the arrivals, and removes the other roots.
    pub fn apply(&self, system: &mut System) -> Result<(), String> {
        for text in &self.what_if {
            let change = Change::parse(text).map_err(|error| error.to_string())?;
            change.make(system).map_err(|error| error.to_string())?;
        }
        system.roots.retain(|root| root.name == self.root);
        system.expectations.clear();
        let Some(root) = system.roots.first_mut() else {
            return Err(format!(
                "there is no root {:?}; the witness belongs to {}",
                self.root, self.file
            ));
        };
        if !root.tasks.iter().eq(self.tasks.iter().map(|task| &task.name)) {
            return Err(format!(
                "{} has other tasks than {}, to which the witness belongs",
                self.root, self.file
            ));
        }
        for (task, source) in self.tasks.iter().zip(&mut root.sources) {
            let Some(arrivals) = &task.arrivals_ns else { continue };
            let is_sorted = arrivals.windows(2).all(|two| two[0].0 <= two[1].0);
            if !is_sorted || arrivals.iter().any(|&(nominal, seen)| seen < nominal) {
                return Err(format!("the arrivals of {} are not in order", task.name));
            }
            let times = arrivals
                .iter()
                .map(|&(nominal, seen)| (Time::from_ns(nominal), Time::from_ns(seen)));
            source.arrivals = Arrivals::Observed(times.collect());
        }
        Ok(())
    }

    /// Returns the duration of a run that shows the miss.
    pub fn duration(&self) -> Span {
        self.late.until().since(Time::ZERO)
    }

    /// Returns whether the job is late by the same time in the changed root. Also returns the end
    /// of the job, if the end is within the witness.
    pub fn recurs(&self, root: &Root) -> anyhow::Result<(bool, Option<u64>)> {
        let machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.kind))?;
        let world = Simulation::new(machine, root.tree.cpus, &root.workload(self.seed));
        let task = root.tasks.iter().position(|name| *name == self.late.task).unwrap_or(0) as u32;
        let mut looking = JobFinder { task, release_ns: self.late.release_ns, end: None };
        let until = Time::ZERO + self.duration();
        let mut world = world.with_cost_mode(CostMode::Worst).with_environment(&root.surroundings);
        world.run(until, &mut looking);
        let end = looking.end.map(Time::as_ns);
        let mut unfinished = world.engine().unfinished(TaskId(task));
        let recurs = match end {
            // The job must exist and be due by then.
            None => {
                let is_it =
                    |job: Job| job.release.as_ns() == looking.release_ns && job.deadline < until;
                self.late.end_ns.is_none() && unfinished.any(is_it)
            }
            end => end == self.late.end_ns,
        };
        Ok(mutate!(
            "simulate-witness-recurs",
            (recurs, end),
            (recurs || end >= Some(0) || end.is_none(), end)
        ))
    }
}
