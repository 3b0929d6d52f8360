//! A witness: arrivals with which a job comes too late, as a file. `talea analyze --witness` writes
//! it, `talea simulate --witness` runs it and misses the same deadline.
//!
//! The file is relative to the system that it was found in: it names it, and the changes that were
//! made to it; the arrivals of one root's tasks take the place of the described ones, and all costs
//! are at their worst. Tasks that a graph activates keep what they have.

use crate::commands::simulate::short;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use talea_core::machine::{Body, Job, TaskId};
use talea_core::mutate;
use talea_core::workload::{Arrivals, Case};
use talea_core::{Span, Time};
use talea_sim::{Completion, Sink, World};
use talea_system::system::what_if::Change;
use talea_system::system::{Root, System};

/// A search looks at a million jobs at most, with two times each.
const MOST: u64 = 1 << 28;

/// The file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Witness {
    /// The shape of the file.
    schema: u32,
    /// Where it was found.
    file: String,
    what_if: Vec<String>,
    root: String,
    /// Of what else is random in the root.
    seed: u64,
    pub(crate) late: Late,
    tasks: Vec<Task>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    name: String,
    /// Nominal, and when it is seen; none for tasks that a graph activates.
    arrivals_ns: Option<Vec<(u64, u64)>>,
}

/// The job that is late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Late {
    pub(crate) task: String,
    pub(crate) job: u64,
    pub(crate) release_ns: u64,
    pub(crate) deadline_ns: u64,
    /// None: it does not, as far as anybody looked.
    pub(crate) end_ns: Option<u64>,
}

impl Late {
    /// How long a run has to be that shows it.
    fn until(&self) -> Time {
        Time::from_ns(self.end_ns.unwrap_or(self.deadline_ns).saturating_add(1))
    }
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Late { task, job, .. } = self;
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

/// Every arrival.
struct Recorded(Vec<Vec<(u64, u64)>>);

impl Sink for Recorded {
    fn arrived(&mut self, now: Time, task: TaskId, nominal: Time) {
        self.0[task.0 as usize].push((nominal.as_ns(), now.as_ns()));
    }
}

/// Looks for one job.
struct Looking {
    task: u32,
    release_ns: u64,
    end: Option<Time>,
}

impl Sink for Looking {
    fn completed(&mut self, job: &Completion) {
        if job.task.0 == self.task && job.release.as_ns() == self.release_ns {
            self.end = Some(job.end);
        }
    }
}

fn is_activated(root: &Root, number: usize) -> bool {
    let tasks = root.tree.nodes().filter_map(|(id, node)| match &node.body {
        Body::Task(spec) => Some((id, spec)),
        Body::Scheduler(_) => None,
    });
    let mut tasks = tasks.skip(number);
    tasks.next().is_some_and(|(id, spec)| {
        spec.inherits || root.tree.channels.iter().any(|channel| channel.to == id)
    })
}

impl Witness {
    /// What `late` needs of a root that was simulated with this seed and all costs at their worst.
    pub(crate) fn of(
        file: &str,
        what_if: &[Change],
        root: &Root,
        seed: u64,
        late: Late,
    ) -> anyhow::Result<Witness> {
        let machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
        let world = World::new(machine, root.tree.cpus, &root.workload(seed));
        let mut recorded = Recorded(vec![Vec::new(); root.tasks.len()]);
        world.with_case(Case::Worst).within(&root.surroundings).run(late.until(), &mut recorded);
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

    /// Writes it.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Reads one; else what is wrong with it.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Result<Witness, String>> {
        let origin = path.display();
        let mut text = String::new();
        let opened = std::fs::File::open(path)
            .and_then(|file| file.take(MOST + 1).read_to_string(&mut text));
        opened.with_context(|| format!("cannot read {origin}"))?;
        if text.len() as u64 > MOST {
            return Ok(Err(format!(
                "{origin}: no witness of talea analyze --witness: longer than {MOST} bytes"
            )));
        }
        Ok(match serde_json::from_str::<Witness>(&text) {
            Ok(witness) if witness.schema == SCHEMA => Ok(witness),
            Ok(witness) => Err(format!(
                "{origin}: a witness of format {}, and this talea reads {SCHEMA}",
                witness.schema
            )),
            Err(error) => Err(format!("{origin}: no witness of talea analyze --witness: {error}")),
        })
    }

    /// The seed of its root.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Leaves of `system` the one root, changed, with these arrivals.
    pub(crate) fn arrange(&self, system: &mut System) -> Result<(), String> {
        for text in &self.what_if {
            let change = Change::parse(text).map_err(|error| error.to_string())?;
            change.make(system).map_err(|error| error.to_string())?;
        }
        system.roots.retain(|root| root.name == self.root);
        system.expectations.clear();
        let Some(root) = system.roots.first_mut() else {
            return Err(format!(
                "there is no root {:?}; the witness was found in {}",
                self.root, self.file
            ));
        };
        if !root.tasks.iter().eq(self.tasks.iter().map(|task| &task.name)) {
            return Err(format!(
                "{} has other tasks than {}, in which the witness was found",
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
            source.arrivals = Arrivals::Seen(times.collect());
        }
        Ok(())
    }

    /// How long it takes.
    pub(crate) fn duration(&self) -> Span {
        self.late.until().since(Time::ZERO)
    }

    /// Whether the job is as late again in an arranged root, and when it ends, if it does so within
    /// the witness.
    pub(crate) fn recurs(&self, root: &Root) -> anyhow::Result<(bool, Option<u64>)> {
        let machine =
            root.tree.build().map_err(|error| anyhow::anyhow!("{}: {}", root.name, error.why))?;
        let world = World::new(machine, root.tree.cpus, &root.workload(self.seed));
        let task = root.tasks.iter().position(|name| *name == self.late.task).unwrap_or(0) as u32;
        let mut looking = Looking { task, release_ns: self.late.release_ns, end: None };
        let until = Time::ZERO + self.duration();
        let mut world = world.with_case(Case::Worst).within(&root.surroundings);
        world.run(until, &mut looking);
        let end = looking.end.map(Time::as_ns);
        let mut unfinished = world.machine().unfinished(TaskId(task));
        let recurs = match end {
            // It has to be there, and to be due by then.
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
