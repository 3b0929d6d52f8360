//! `talea status`: prints the daemon's counters.

use crate::args::StatusArgs;
use crate::broker_client::{BrokerClient, Options};
use crate::grant_text;
use crate::json::{PluginJson, StatusJson};
use std::fmt::Write;
use talea_proto::message::{CpuInfo, PluginInfo, Status};
use talea_study::exit::Exit;
use talea_study::output::{Table, count};

pub(crate) fn run(options: &Options, args: &StatusArgs) -> anyhow::Result<Exit> {
    let mut link = BrokerClient::require_daemon(options)?;
    let status = link.status()?;
    let mut plugins = Vec::new();
    for plugin in link.plugins()? {
        let cpus = link.plugin_cpus(plugin.index)?;
        plugins.push((plugin, cpus));
    }
    let report = plugins.iter().map(|(plugin, cpus)| PluginJson::new(plugin, cpus)).collect();
    args.output.print(&StatusJson::new(&status, report), || text(&status, &plugins))?;
    Ok(Exit::Ok)
}

fn text(status: &Status, plugins: &[(PluginInfo, Vec<CpuInfo>)]) -> String {
    let mut text = String::new();
    // Writing to a String can't fail.
    let _ = writeln!(text, "talead, process {}, up {}", status.pid, uptime(status.uptime_ns));
    let _ = writeln!(
        text,
        "{} ({} attached, {} taken over), {}, {}",
        count(status.specs as usize, "grant"),
        status.attached,
        status.adopted,
        count(status.sessions as usize, "connection"),
        count(status.rules as usize, "access rule"),
    );
    let _ = writeln!(
        text,
        "{} requests, {} refused, {} wake-ups\n",
        status.requests, status.refused, status.wakeups
    );
    let mut table = Table::new("PLUGIN | KIND | >PRIORITIES | >CPU | >GRANTS | >FREE | >ALL USED");
    for (plugin, cpus) in plugins {
        let band = match plugin.band {
            (0, 0) => "deadline".to_owned(),
            (low, high) => format!("{low}-{high}"),
        };
        let name = plugin.name.as_str().to_owned();
        let kind = plugin.kind.as_str().to_owned();
        if plugin.out_of_service {
            table.row(vec![name, kind, band, "out of service".to_owned()]);
            continue;
        }
        for (line, cpu) in cpus.iter().enumerate() {
            let first = |word: &str| if line == 0 { word.to_owned() } else { String::new() };
            table.row(vec![
                first(&name),
                first(&kind),
                first(&band),
                cpu.cpu.to_string(),
                cpu.specs.to_string(),
                grant_text::charge(cpu.free),
                grant_text::charge(cpu.used),
            ]);
        }
    }
    text.push_str(&table.render());
    text
}

/// Formats a duration in its two largest units that are not zero.
fn uptime(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}
