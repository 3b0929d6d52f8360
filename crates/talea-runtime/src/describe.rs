//! Description of an application as a system file.
//!
//! Model: the file describes the tree that [`start`](Application::start) runs. Releases and costs
//! in the file are the declared ones and bind no run. The function reads the text back before it
//! returns the text. So the reader itself reports what a file cannot contain: a name with a blank,
//! or a task without cost.

use crate::application::{Application, Declared};
use crate::config::ROOT;
use crate::error::Error;
use talea_core::Span;
use talea_core::health::Health;
use talea_core::workload::{Cost, Environment, Source};
use talea_system::diagnostic;
use talea_system::{self as system, Root, System};

/// Duration of the runs of the file, as every file needs one.
const DURATION: Span = Span::from_ns(10_000_000_000);

impl Application {
    /// Returns the system file of this application, for `talea analyze`, `simulate` and `compare`.
    ///
    /// The file has the configured CPUs, or one CPU. A reader of a file with a [custom
    /// policy](crate::Priorities::Custom) must have registered that policy under its name. Every
    /// version must declare its [cost](crate::Version::cost). Activated tasks have a job as often
    /// as is [expected](crate::Task::expected). Without an expectation sporadic tasks have jobs as
    /// often as they may, and others have none.
    ///
    /// # Errors
    /// If the application has what a file cannot contain: an unknown cost, a selection by function,
    /// a policy with the name of another one, equal names, or names with characters other than
    /// letters, digits, `_`, `-` and `.`. Also the errors of [`start`](Application::start).
    pub fn describe(&self) -> Result<String, Error> {
        let root = Root {
            name: ROOT.to_owned(),
            tree: self.checked_tree(self.config.cpus.len().max(1) as u32)?,
            sources: self.tasks.iter().map(source).collect::<Result<_, _>>()?,
            tasks: self.tasks.iter().map(|declared| declared.task.spec.name.clone()).collect(),
            programs: vec![None; self.tasks.len()],
            users: vec![None; self.tasks.len()],
            health: vec![Health::default(); self.tasks.len()],
            logical: vec![false; self.tasks.len()],
            phases_known: false,
            surroundings: Environment::default(),
        };
        let (chains, expectations, warnings) = Default::default();
        let system = System {
            duration: DURATION,
            seed: 1,
            roots: vec![root],
            chains,
            expectations,
            warnings,
            modes: Vec::new(),
        };
        let text = system::write(&system).map_err(|error| Error::Declared(error.to_string()))?;
        let registry = self.config.registry().map_err(|name| {
            Error::Declared(format!(
                "policy {name}: Talea has a policy of this name: choose another one"
            ))
        })?;
        match system::read_with(&text, "the application", &(), &registry) {
            Ok(_) => Ok(text),
            Err(found) => Err(Error::Declared(diagnostic::render(&found, false))),
        }
    }
}

/// Returns the releases and costs of a task.
fn source(declared: &Declared) -> Result<Source, Error> {
    let costs = declared.versions.iter().map(|version| {
        version.cost_with_wait().ok_or_else(|| {
            let (task, version) = (&declared.task.spec.name, &version.spec.name);
            let what = format!("task {task}, version {version}: the cost of a job is not declared");
            Error::Declared(format!(
                "{what}: declare it with `Version::new(\"{version}\").cost(…)`"
            ))
        })
    });
    Ok(Source {
        arrivals: declared.task.workload_arrivals(),
        cost: Cost::Versions(costs.collect::<Result<_, _>>()?),
    })
}

#[cfg(test)]
mod tests;
