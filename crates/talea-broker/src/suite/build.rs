//! From the administrator's setup and the machine's facts to plugins, or to what keeps the daemon
//! from starting.

use super::Face;
use crate::input::Machine;
use crate::ledger::Ledger;
use crate::plugins::edf::{Confinement, Edf};
use crate::plugins::foreign::Foreign;
use crate::plugins::fp::{Class, Fp};
use crate::plugins::rm::Rm;
use crate::plugins::{Core, Plugin, narrowed};
use talea_core::setup::{Band, PLUGIN_NAME_MAX, PluginKind, PluginSetup, Setup};
use talea_proto::message::Name;

/// What is wrong with a plugin's setup by itself, or its face.
pub(super) fn face(plugin: &PluginSetup, machine: &Machine) -> Result<Face, String> {
    let Some(name) = Name::new(&plugin.name) else {
        return Err(format!("a name has 1 to {PLUGIN_NAME_MAX} bytes"));
    };
    if plugin.cpus.is_empty() {
        return Err("it has no CPU".to_owned());
    }
    let missing = plugin.cpus.difference(&machine.cpus);
    if !missing.is_empty() {
        return Err(format!("CPU {missing} is not online (online: {})", machine.cpus));
    }
    let band = match (&plugin.kind, plugin.band) {
        (PluginKind::Edf(_), _) => None,
        (_, None) => return Err("it needs a range of priorities".to_owned()),
        (_, Some(band)) => Some(band),
    };
    if let Some(Band { low, high }) =
        band.filter(|b| b.low.outranks(b.high) || b.low.0 < 1 || b.high.0 > 99)
    {
        return Err(format!("priorities {}-{} are not a range within 1-99", low.0, high.0));
    }
    Ok(Face {
        name,
        kind: plugin.kind.word(),
        cpus: plugin.cpus,
        band,
        specs: 0,
        out_of_service: false,
    })
}

/// How each `edf` plugin meets the machine's root domains.
pub(super) fn confinements(
    setup: &Setup,
    machine: &Machine,
) -> Result<Vec<Option<Confinement>>, String> {
    let of = |plugin: &PluginSetup| match &plugin.kind {
        PluginKind::Edf(options) => Some(Confinement::of(options.confine, &plugin.cpus, machine)),
        _ => None,
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
                        "plugin {j:?}: it would partition CPU {both} out of the domain of {i:?}"
                    ));
                }
            }
        }
    }
    Ok(all)
}

pub(super) fn build(
    index: usize,
    faces: &[Face],
    setup: &Setup,
    machine: &Machine,
    confinement: Option<Confinement>,
    ledger: &Ledger,
) -> Plugin {
    let cpus = match confinement {
        Some(Confinement::Pinned(own)) => own,
        _ => faces[index].cpus,
    };
    let core = Core { index: index as u32, cpus, fifo: machine.fifo };
    let band = |plugin: usize, cpu: u32| {
        let others =
            faces.iter().enumerate().filter(|&(i, face)| i != plugin && face.cpus.contains(cpu));
        let band = faces[plugin].band.expect("checked before");
        // A foreign plugin names its levels itself, so it can't be told to leave one out.
        let told = !matches!(setup.plugins[plugin].kind, PluginKind::Foreign(_));
        if told { narrowed(band, others.filter_map(|(_, face)| face.band)) } else { band }
    };
    match &setup.plugins[index].kind {
        PluginKind::Edf(options) => {
            let confinement = confinement.expect("every edf has one");
            let domain = match confinement {
                Confinement::Global(cpus) => ledger.find_domain(&cpus),
                _ => None,
            };
            Plugin::Edf(Edf::new(core, options, confinement, domain, machine))
        }
        PluginKind::Rm(options) => {
            let outranked_by = |cpu: u32| {
                let own = band(index, cpu);
                let above = faces.iter().enumerate().filter(|&(i, face)| {
                    let reaches = |_: Band| !own.low.outranks(band(i, cpu).high);
                    i != index && face.cpus.contains(cpu) && face.band.is_none_or(reaches)
                });
                above.fold(0, |mask, (i, _)| mask | 1 << i)
            };
            Plugin::Rm(Box::new(Rm::new(
                core,
                options.clone(),
                |cpu| band(index, cpu),
                outranked_by,
            )))
        }
        PluginKind::Fp(options) => {
            Plugin::Fp(Fp::new(core, Class::Fifo, options.clone(), |cpu| band(index, cpu)))
        }
        PluginKind::Rr(options) => {
            Plugin::Fp(Fp::new(core, Class::Rr, options.clone(), |cpu| band(index, cpu)))
        }
        PluginKind::Foreign(options) => {
            let band = band(index, 0);
            Plugin::Foreign(Foreign::new(core, band, options.class, options.timeout))
        }
    }
}
