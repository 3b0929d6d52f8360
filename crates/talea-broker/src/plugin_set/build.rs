//! Construction of the plugins from the setup and the platform; errors prevent the start of the
//! daemon.

use crate::input::Platform;
use crate::ledger::Ledger;
use crate::plugins::Plugin;
use crate::plugins::base::{PluginBase, narrowed};
use crate::plugins::edf::{Confinement, Edf, domain_of};
use crate::plugins::foreign::{Class, DeadlineClass, Foreign};
use crate::plugins::fp::{self, Fp};
use crate::plugins::rm::Rm;
use talea_core::CpuSet;
use talea_core::setup::{Band, ForeignClass, PLUGIN_NAME_MAX, PluginKind, PluginSetup, Setup};
use talea_proto::message::Name;

/// Description of a plugin.
#[derive(Clone, Debug)]
pub(super) struct PluginSummary {
    pub(super) name: Name,
    pub(super) kind: &'static str,
    pub(super) cpus: CpuSet,
    pub(super) band: Option<Band>,
    pub(super) specs: u32,
    pub(super) out_of_service: bool,
}

/// Checks the setup of one plugin and returns its description.
pub(super) fn summarize(
    plugin: &PluginSetup,
    platform: &Platform,
) -> Result<PluginSummary, String> {
    let Some(name) = Name::new(&plugin.name) else {
        return Err(format!("the name is invalid; it must have 1 to {PLUGIN_NAME_MAX} bytes"));
    };
    if plugin.cpus.is_empty() {
        return Err("its CPU set is empty; set `cpus`".to_owned());
    }
    let missing = plugin.cpus.difference(&platform.cpus);
    if !missing.is_empty() {
        return Err(format!("CPU {missing} does not exist here (CPUs: {})", platform.cpus));
    }
    let band = match (&plugin.kind, plugin.band) {
        (kind, _) if kind.is_deadline() => None,
        (_, None) => return Err("the range of priorities is missing; set `priorities`".to_owned()),
        (_, Some(band)) => Some(band),
    };
    if let Some(Band { low, high }) =
        band.filter(|b| b.low.outranks(b.high) || b.low.0 < 1 || b.high.0 > 99)
    {
        return Err(format!("the priorities {}-{} are not a range within 1-99", low.0, high.0));
    }
    Ok(PluginSummary {
        name,
        kind: plugin.kind.name(),
        cpus: plugin.cpus,
        band,
        specs: 0,
        out_of_service: false,
    })
}

/// Returns the confinement of each `edf` plugin on the machine's root domains, and `None` for the
/// other plugins. The error names two `edf` plugins whose confinements exclude each other.
pub(super) fn confinements(
    setup: &Setup,
    platform: &Platform,
) -> Result<Vec<Option<Confinement>>, String> {
    let of = |plugin: &PluginSetup| {
        plugin.kind.confine().map(|confine| Confinement::of(confine, &plugin.cpus, platform))
    };
    let all: Vec<Option<Confinement>> = setup.plugins.iter().map(of).collect();
    for (i, one) in all.iter().enumerate() {
        for (j, other) in all.iter().enumerate() {
            if let (Some(Confinement::Global(domain)), Some(Confinement::Pinned(own))) =
                (one, other)
            {
                let both = domain.intersection(own);
                if !both.is_empty() {
                    let (i, j) = (&setup.plugins[i].name, &setup.plugins[j].name);
                    return Err(format!(
                        "plugin {j:?}: a partition of CPU {both} would split the root domain of plugin {i:?}"
                    ));
                }
            }
        }
    }
    Ok(all)
}

pub(super) fn build(
    index: usize,
    summaries: &[PluginSummary],
    setup: &Setup,
    platform: &Platform,
    confinement: Option<Confinement>,
    ledger: &Ledger,
) -> Plugin {
    let cpus = match confinement {
        Some(Confinement::Pinned(own)) => own,
        _ => summaries[index].cpus,
    };
    let base = PluginBase { index: index as u32, cpus, fifo: platform.fifo };
    let band = |plugin: usize, cpu: u32| {
        let others = summaries
            .iter()
            .enumerate()
            .filter(|&(i, summary)| i != plugin && summary.cpus.contains(cpu));
        let band = summaries[plugin].band.expect("`summarize` has checked the band");
        // A foreign plugin assigns its levels itself, so no level can be withheld from it.
        let is_built_in = !matches!(setup.plugins[plugin].kind, PluginKind::Foreign(_));
        if is_built_in {
            narrowed(band, others.filter_map(|(_, summary)| summary.band))
        } else {
            band
        }
    };
    match &setup.plugins[index].kind {
        PluginKind::Edf(options) => {
            let confinement = confinement.expect("every `edf` plugin has a confinement");
            let domain = domain_of(Some(confinement), ledger);
            Plugin::Edf(Edf::new(base, options, confinement, domain, platform))
        }
        PluginKind::Rm(options) => {
            let outranked_by = |cpu: u32| {
                let own = band(index, cpu);
                let above = summaries.iter().enumerate().filter(|&(i, summary)| {
                    let reaches = |_: Band| !own.low.outranks(band(i, cpu).high);
                    i != index && summary.cpus.contains(cpu) && summary.band.is_none_or(reaches)
                });
                // Deadline threads without a grant outrank every plugin of fixed priorities.
                above.fold(1 << summaries.len(), |mask, (i, _)| mask | 1 << i)
            };
            Plugin::Rm(Box::new(Rm::new(
                base,
                options.clone(),
                |cpu| band(index, cpu),
                outranked_by,
            )))
        }
        PluginKind::Fp(options) => {
            Plugin::Fp(Fp::new(base, fp::Class::Fifo, options.clone(), |cpu| band(index, cpu)))
        }
        PluginKind::Rr(options) => {
            Plugin::Fp(Fp::new(base, fp::Class::Rr, options.clone(), |cpu| band(index, cpu)))
        }
        PluginKind::Foreign(options) => {
            let class = match (options.class, confinement) {
                (ForeignClass::Fifo, _) => Class::Fifo(band(index, 0)),
                (ForeignClass::Rr, _) => Class::Rr(band(index, 0)),
                (ForeignClass::Deadline, confinement) => {
                    Class::Deadline(DeadlineClass::new(confinement, platform, ledger))
                }
            };
            Plugin::Foreign(Foreign::new(base, class, options.timeout))
        }
    }
}
