//! Reservation of the CPUs of a run in the ledger of the daemon, or in its state file.
//!
//! A run schedules its threads itself, above the grants on its CPUs, so it would break those with a
//! proved guarantee. The command names such grants and refuses the run, unless the user accepts
//! that. During the run, no other grant is placed on its CPUs. Without a broker there is no ledger
//! and no grant.

use crate::broker_client::{BrokerClient, Options, Refused};
use talea_core::CpuSet;
use talea_proto::message::Notes;
use talea_proto::refusal::{PluginVerdict, RejectionReason};
use talea_proto::{SpecId, SpecInfo, Task};
use talea_study::exit::not_executable;
use talea_study::live_run::CpuAssignment;
use talea_study::output::note;

/// Reserved CPUs. They stay reserved until the value is dropped or the process ends.
pub(crate) struct CpuReservation {
    link: BrokerClient,
    specs: Vec<SpecId>,
}

impl Drop for CpuReservation {
    fn drop(&mut self) {
        for &spec in &self.specs {
            self.link.release_unused(spec);
        }
    }
}

/// Reserves the CPUs of a run. Returns `None` if there is no ledger.
///
/// # Errors
/// A failure, or the reason for a refusal (`NotExecutable`).
pub(crate) fn reserve(
    options: &Options,
    places: &CpuAssignment,
    beside_grants: bool,
) -> anyhow::Result<Option<CpuReservation>> {
    let Ok(mut link) = BrokerClient::open(options) else { return Ok(None) };
    let cpus = places.iter().flatten().fold(CpuSet::EMPTY, |mut all, &cpu| {
        all.insert(cpu);
        all
    });
    if !beside_grants && let Some(broken) = broken_grants(&mut link, &cpus)? {
        return Err(not_executable(format!(
            "{broken}; release them, use other CPUs (--cpus), or give --beside-grants"
        )));
    }
    let tasks: Vec<Task> = cpus.iter().map(Task::whole_cpu).collect();
    let granted = match link.create_each(&tasks) {
        Ok(granted) => granted,
        Err(error) => {
            if is_reserved(&error) {
                return Err(not_executable(format!("{error:#}")));
            }
            if options.verbose {
                note(&format!("its CPUs are not reserved: {error:#}"));
            }
            return Ok(None);
        }
    };
    link.suspend();
    let specs = granted.iter().map(|granted| granted.spec).collect();
    Ok(Some(CpuReservation { link, specs }))
}

/// Describes the grants whose guarantee threads above all grants on `cpus` would break.
pub(crate) fn broken_grants(
    link: &mut BrokerClient,
    cpus: &CpuSet,
) -> anyhow::Result<Option<String>> {
    let specs = link.specs()?;
    let broken: Vec<String> =
        specs.iter().filter(|spec| is_broken(spec, cpus)).map(described).collect();
    let what = if broken.len() == 1 { "a grant" } else { "grants" };
    let text = || format!("it would break {what} on its CPUs: {}", broken.join(", "));
    Ok((!broken.is_empty()).then(text))
}

/// Whether another executor has reserved one of the CPUs.
fn is_reserved(error: &anyhow::Error) -> bool {
    let reserved = |verdict: &PluginVerdict| match verdict {
        PluginVerdict::No(no) => no.reason == RejectionReason::Reserved,
        _ => false,
    };
    error.downcast_ref::<Refused>().is_some_and(|Refused(refusal)| {
        refusal.answers.iter().any(|answer| reserved(&answer.verdict))
    })
}

/// Whether a run on `cpus` would break the guarantee of a grant.
fn is_broken(spec: &SpecInfo, cpus: &CpuSet) -> bool {
    let on_its_cpus = spec.granted.cpu.is_none_or(|cpu| cpus.contains(cpu));
    on_its_cpus && !spec.task.exclusive && !spec.granted.notes.contains(Notes::NOT_PROVED)
}

fn described(spec: &SpecInfo) -> String {
    let place = spec.granted.cpu.map_or_else(|| "all CPUs".to_owned(), |cpu| format!("CPU {cpu}"));
    format!("spec {} ({}, {place}) of user {}", spec.granted.spec.0, spec.plugin_name, spec.uid)
}
