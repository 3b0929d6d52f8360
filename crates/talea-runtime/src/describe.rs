//! An application as a system file.
//!
//! Model: the tree that the file describes is the tree that [`start`](Application::start) runs.
//! What the file says beside it, when jobs come and what they cost, is what was declared of them;
//! nothing of that binds a run. The text is read back before it is given out, so that whatever a
//! file can't hold, a name with a blank in it or a task that costs nothing, is told in the reader's
//! own words.

use crate::application::{Application, Declared};
use crate::config::ROOT;
use crate::running::Error;
use talea_core::Span;
use talea_core::workload::{Cost, Source, Surroundings};
use talea_system::diagnostic;
use talea_system::system::{self, Root, System};

/// How long its runs are if nobody says anything else: as that of any file.
const DURATION: Span = Span::from_ns(10_000_000_000);

impl Application {
    /// The system file of this application, as text: for `talea analyze`, `simulate` and `compare`.
    /// Its CPUs are those that it is configured for, one if it names none. One that runs by
    /// [somebody else's policy](crate::Priorities::Custom) is read by programs that have registered
    /// it under its name.
    ///
    /// Every version must say what it [costs](crate::Version::cost). Tasks that somebody activates
    /// come as often as is [expected](crate::Task::expected), sporadic ones otherwise as often as
    /// they may, others not by themselves.
    ///
    /// # Errors
    /// What a file can't say: an unknown cost, a function that chooses versions, a policy with the
    /// name of another one, names with other characters than letters, digits, `_`, `-` and `.`, two
    /// things of one name; and whatever [`start`](Application::start) would refuse.
    pub fn describe(&self) -> Result<String, Error> {
        let root = Root {
            name: ROOT.to_owned(),
            tree: self.sound_tree(self.config.cpus.len().max(1) as u32)?,
            sources: self.tasks.iter().map(source).collect::<Result<_, _>>()?,
            tasks: self.tasks.iter().map(|declared| declared.task.spec.name.clone()).collect(),
            programs: vec![None; self.tasks.len()],
            surroundings: Surroundings::default(),
        };
        let (expectations, warnings) = Default::default();
        let system =
            System { duration: DURATION, seed: 1, roots: vec![root], expectations, warnings };
        let text = system::write(&system).map_err(|error| Error::Declared(error.to_string()))?;
        let registry = self.config.registry().map_err(|name| {
            Error::Declared(format!(
                "policy {name}: Talea has one of this name: give yours another"
            ))
        })?;
        match system::read_with(&text, "the application", &(), &registry) {
            Ok(_) => Ok(text),
            Err(found) => Err(Error::Declared(diagnostic::render(&found, false))),
        }
    }
}

/// When the jobs of a task come, and what they cost.
fn source(declared: &Declared) -> Result<Source, Error> {
    let costs = declared.versions.iter().map(|version| {
        version.cost.clone().ok_or_else(|| {
            let (task, version) = (&declared.task.spec.name, &version.spec.name);
            let what = format!("task {task}, version {version}: nobody has said what a job costs");
            Error::Declared(format!(
                "{what}: declare it with `Version::new(\"{version}\").cost(…)`"
            ))
        })
    });
    Ok(Source {
        arrivals: declared.task.modelled(),
        cost: Cost::Versions(costs.collect::<Result<_, _>>()?),
    })
}

#[cfg(test)]
mod tests;
