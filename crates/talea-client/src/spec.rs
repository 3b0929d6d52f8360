//! Specification of a task, with types and units.

use std::time::Duration;
use talea_core::{CpuSet, Priority, Span, Work};
use talea_proto::Task;
use talea_proto::message::{Name, Owner};

/// Task specification: any subset of period, runtime, desired runtime, deadline and priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec(Task);

/// Builder of a [`Spec`].
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct SpecBuilder {
    task: Task,
    wrong: Option<BadSpec>,
}

/// Reason why a specification is invalid for every daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSpec {
    /// The duration of the named parameter exceeds 2^64 − 1 nanoseconds.
    #[error("the {0} is longer than 584 years")]
    TooLong(&'static str),
    /// The number is not a real-time priority.
    #[error("{0} is not a real-time priority; give 1 (lowest) to 99 (highest)")]
    Priority(u8),
    /// The name cannot be that of a plugin.
    #[error("a plugin's name has 1 to 31 bytes, none of them zero")]
    PluginName,
}

impl Spec {
    /// Creates a builder that declares nothing.
    pub fn builder() -> SpecBuilder {
        SpecBuilder::default()
    }

    /// Converts the protocol's task to a specification.
    pub fn from_task(task: Task) -> Spec {
        Spec(task)
    }

    /// Returns the protocol's task.
    pub fn task(&self) -> &Task {
        &self.0
    }
}

impl SpecBuilder {
    /// Sets T, the distance between activations.
    pub fn period(mut self, period: Duration) -> SpecBuilder {
        self.task.params.period = self.ns("period", period).map(Span::from_ns);
        self
    }

    /// Sets Q, the CPU time that each activation needs.
    pub fn runtime(mut self, runtime: Duration) -> SpecBuilder {
        self.task.params.runtime = self.ns("runtime", runtime).map(Work::from_ns);
        self
    }

    /// Sets Q^d, the CPU time that each activation could use. It is at least the runtime.
    pub fn desired(mut self, desired: Duration) -> SpecBuilder {
        self.task.params.desired = self.ns("desired runtime", desired).map(Work::from_ns);
        self
    }

    /// Sets D, the relative deadline. The default is the period.
    pub fn deadline(mut self, deadline: Duration) -> SpecBuilder {
        self.task.params.deadline = self.ns("deadline", deadline).map(Span::from_ns);
        self
    }

    /// Sets P, the static priority, from 1 (lowest) to 99 (highest).
    pub fn priority(mut self, priority: u8) -> SpecBuilder {
        if !(1..=99).contains(&priority) {
            self.wrong.get_or_insert(BadSpec::Priority(priority));
        }
        self.task.params.priority = Some(Priority(priority));
        self
    }

    /// Restricts the request to one plugin.
    pub fn plugin(mut self, name: &str) -> SpecBuilder {
        self.task.plugin = Name::new(name);
        if self.task.plugin.is_none() {
            self.wrong.get_or_insert(BadSpec::PluginName);
        }
        self
    }

    /// Sets the preferred CPUs of the task.
    pub fn cpus(mut self, cpus: CpuSet) -> SpecBuilder {
        self.task.cpus = cpus;
        self.task.cpus_mandatory = false;
        self
    }

    /// Sets the CPUs on which the task must run.
    pub fn only_cpus(mut self, cpus: CpuSet) -> SpecBuilder {
        self.task.cpus = cpus;
        self.task.cpus_mandatory = true;
        self
    }

    /// Accepts the task even if its plugin's test fails. The option needs an access rule.
    pub fn ignore_admission(mut self, ignore: bool) -> SpecBuilder {
        self.task.ignore_admission = ignore;
        self
    }

    /// Sets the owner, whose end releases the grant.
    pub fn owner(mut self, owner: Owner) -> SpecBuilder {
        self.task.owner = owner;
        self
    }

    /// Returns the specification, or the first error in it.
    pub fn build(self) -> Result<Spec, BadSpec> {
        self.wrong.map_or(Ok(Spec(self.task)), Err)
    }

    fn ns(&mut self, what: &'static str, length: Duration) -> Option<u64> {
        let ns = u64::try_from(length.as_nanos()).ok();
        if ns.is_none() {
            self.wrong.get_or_insert(BadSpec::TooLong(what));
        }
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r1_undeclared_parameters_are_absent_not_zero() {
        let spec = Spec::builder().build().expect("nothing is a specification");
        assert_eq!(spec.task(), &Task::default());
        let spec = Spec::builder()
            .period(Duration::from_millis(10))
            .priority(7)
            .plugin("rm")
            .build()
            .expect("good");
        assert_eq!(spec.task().params.period, Some(Span::from_ns(10_000_000)));
        assert_eq!(spec.task().params.runtime, None);
        assert_eq!(spec.task().plugin, Name::new("rm"));
    }

    #[test]
    fn the_first_error_is_reported() {
        let build = |builder: SpecBuilder| builder.build();
        assert_eq!(build(Spec::builder().priority(0).plugin("")), Err(BadSpec::Priority(0)));
        assert_eq!(build(Spec::builder().priority(100)), Err(BadSpec::Priority(100)));
        assert_eq!(build(Spec::builder().plugin(&"x".repeat(32))), Err(BadSpec::PluginName));
        assert_eq!(
            build(Spec::builder().deadline(Duration::MAX)),
            Err(BadSpec::TooLong("deadline"))
        );
    }
}
