//! `talea metrics`: prints the daemon's counts and the granted CPU time for Prometheus.
#![allow(clippy::cast_precision_loss, reason = "values of both formats are 64-bit floats")]

mod exposition;

use crate::broker_client::{BrokerClient, Options};
use crate::user_names::UserNames;
use anyhow::Context;
use clap::Args;
use exposition::{Exposition, Format, Kind};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use talea_core::Charge;
use talea_proto::counters::TIME_BOUNDS_NS;
use talea_proto::message::{CpuInfo, PluginInfo, Status};
use talea_proto::{Code, Counters, SpecInfo};
use talea_study::exit::Exit;
use talea_study::output::{print, write_file};

/// Print metrics for Prometheus: grants, refusals, overruns, the time of requests.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: talea metrics --output /var/lib/prometheus/node-exporter/talea.prom"
)]
pub(crate) struct MetricsArgs {
    /// Print the text format of OpenMetrics instead of that of Prometheus.
    #[arg(long)]
    pub(crate) openmetrics: bool,
    /// Replace this file at once instead of printing, for node_exporter's textfile collector.
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

pub(crate) fn run(options: &Options, args: &MetricsArgs) -> anyhow::Result<Exit> {
    let mut link = BrokerClient::require_daemon(options)?;
    let (status, counters) = (link.status()?, link.counters()?);
    let mut plugins = Vec::new();
    for plugin in link.plugins()? {
        let cpus = link.plugin_cpus(plugin.index)?;
        plugins.push((plugin, cpus));
    }
    let specs = link.specs()?;
    let format = if args.openmetrics { Format::OpenMetrics } else { Format::Prometheus };
    let mut users = UserNames::default();
    let state = State { status, counters, plugins, users: by_user(&specs, |uid| users.name(uid)) };
    let text = state.expose(format);
    match &args.output {
        None => print(&text)?,
        Some(file) => replace_file(file, &text)?,
    }
    Ok(Exit::Ok)
}

/// Writes a file beside `file` and renames it, so that a reader never sees a part.
fn replace_file(file: &Path, text: &str) -> anyhow::Result<()> {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(fresh);
    write_file(&fresh, text)?;
    std::fs::rename(&fresh, file)
        .inspect_err(|_| drop(std::fs::remove_file(&fresh)))
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the granted CPU time of each user.
fn by_user(specs: &[SpecInfo], mut name: impl FnMut(u32) -> String) -> BTreeMap<String, Charge> {
    let mut users: BTreeMap<String, Charge> = BTreeMap::new();
    for spec in specs {
        let granted = users.entry(name(spec.uid)).or_insert(Charge::ZERO);
        *granted = granted.saturating_add(spec.granted.charge);
    }
    users
}

/// State of the daemon that the metrics describe.
struct State {
    status: Status,
    counters: Counters,
    plugins: Vec<(PluginInfo, Vec<CpuInfo>)>,
    /// Granted CPU time of each user.
    users: BTreeMap<String, Charge>,
}

impl State {
    fn expose(&self, format: Format) -> String {
        let mut out = Exposition::new(format);
        let (status, counters) = (&self.status, &self.counters);
        for (name, help, value) in [
            ("connections", "Open connections.", status.sessions),
            ("grants", "Grants in force.", status.specs),
            ("attached_threads", "Threads that a grant makes real-time.", status.attached),
            ("access_rules", "Access rules in force.", status.rules),
        ] {
            out.one(Kind::Gauge, name, help, value.into());
        }
        let seconds = status.uptime_ns as f64 / 1e9;
        out.one(Kind::Gauge, "uptime_seconds", "Time since the start of the daemon.", seconds);
        for (name, help, value) in [
            ("requests", "Requests received.", status.requests),
            ("loop_wakeups", "Wake-ups of the daemon's event loop.", status.wakeups),
            ("granted", "Grants accepted.", counters.grants),
            ("adopted", "Grants taken over from an earlier daemon.", counters.adoptions),
            ("claimed", "Grants taken over by another connection.", counters.claims),
            ("changed", "Changes of the terms of a grant.", counters.changes),
            ("released", "Grants ended.", counters.releases),
            ("attached", "Threads made real-time.", counters.attaches),
            ("detached", "Threads that ceased to be real-time.", counters.detaches),
            ("demoted", "Threads demoted by the daemon or root.", counters.demotions),
            ("drifts", "Threads that were not as granted.", counters.drifts),
            ("overruns", "Times at which a thread exceeded its budget.", counters.overruns),
            ("starvations", "Times without CPU time for ordinary threads.", counters.starvations),
            ("reloads", "Configurations read again.", counters.reloads),
            ("nice_changes", "Nice values set for threads without a grant.", counters.nice_changes),
        ] {
            out.one(Kind::Counter, name, help, value as f64);
        }
        let code = |&code: &Code| (code.stable_name().to_owned(), counters.refusals[code as usize]);
        let refusals = Code::ALL.iter().map(code).map(|(name, count)| (vec![name], count as f64));
        out.labelled(
            Kind::Counter,
            "refused",
            "Requests refused, by reason.",
            &["reason"],
            refusals.collect(),
        );
        let bounds = TIME_BOUNDS_NS.map(|ns| ns as f64 / 1e9);
        let help = "Time from the receipt of a request to its answer.";
        let times = &counters.request_times;
        out.histogram("request_seconds", help, &bounds, &times.counts, times.sum_ns as f64 / 1e9);
        self.expose_shares(&mut out);
        out.finish()
    }

    /// Adds the granted and the free CPU time, in CPUs.
    fn expose_shares(&self, out: &mut Exposition) {
        let mut cpus = BTreeMap::new();
        let mut free = Vec::new();
        for (plugin, infos) in &self.plugins {
            for cpu in infos {
                cpus.insert(cpu.cpu, ratio(cpu.used));
                let labels = vec![plugin.name.as_str().to_owned(), cpu.cpu.to_string()];
                free.push((labels, ratio(cpu.free)));
            }
        }
        let used = cpus.into_iter().map(|(cpu, used)| (vec![cpu.to_string()], used)).collect();
        let help = "CPU time that all plugins have granted, in CPUs.";
        out.labelled(Kind::Gauge, "granted_cpus", help, &["cpu"], used);
        let help = "CPU time that a plugin can still grant, in CPUs.";
        out.labelled(Kind::Gauge, "free_cpus", help, &["plugin", "cpu"], free);
        let user = |(name, charge): (&String, &Charge)| (vec![name.clone()], ratio(*charge));
        let help = "CPU time granted to a user, in CPUs.";
        let users = self.users.iter().map(user).collect();
        out.labelled(Kind::Gauge, "user_granted_cpus", help, &["user"], users);
        let plugin = |value: fn(&PluginInfo) -> u32| {
            let one = |(plugin, _): &(PluginInfo, _)| {
                (vec![plugin.name.as_str().to_owned()], f64::from(value(plugin)))
            };
            self.plugins.iter().map(one).collect()
        };
        let help = "Grants that a plugin serves.";
        out.labelled(Kind::Gauge, "plugin_grants", help, &["plugin"], plugin(|info| info.specs));
        let help = "Whether a plugin is out of service.";
        let outage = plugin(|info| info.out_of_service.into());
        out.labelled(Kind::Gauge, "plugin_outage", help, &["plugin"], outage);
    }
}

/// Returns a charge as a share of a CPU.
fn ratio(charge: Charge) -> f64 {
    charge.ppm() as f64 / 1e6
}

#[cfg(test)]
mod tests;
