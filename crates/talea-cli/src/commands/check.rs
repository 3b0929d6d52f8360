//! `talea check`: validates a configuration, with positions, reasons and remedies.
//!
//! The command reads the file like the daemon, but does not check its owner, because only the
//! daemon must trust the file.

use crate::args::CheckArgs;
use anyhow::Context;
use serde::Serialize;
use talea_config::Diagnostic;
use talea_config::{self as config, FILE_MAX, Loaded, RootDomains, Target};
use talea_core::CpuSet;
use talea_daemon::start::MachineNames;
use talea_os::bounded_read::read_bounded;
use talea_os::sysinfo::Hierarchy;
use talea_study::exit::{Exit, Unreadable};
use talea_study::output::{colored, count, print, print_json};

#[derive(Serialize)]
struct CheckReport {
    file: String,
    ok: bool,
    plugins: usize,
    rules: usize,
    diagnostics: Vec<DiagnosticJson>,
}

#[derive(Serialize)]
struct DiagnosticJson {
    severity: &'static str,
    file: String,
    line: u32,
    column: u32,
    what: String,
    why: String,
    remedy: String,
}

impl From<&Diagnostic> for DiagnosticJson {
    fn from(diagnostic: &Diagnostic) -> DiagnosticJson {
        DiagnosticJson {
            severity: diagnostic.severity.word(),
            file: diagnostic.origin.clone(),
            line: diagnostic.line,
            column: diagnostic.column,
            what: diagnostic.what.clone(),
            why: diagnostic.why.clone(),
            remedy: diagnostic.remedy.clone(),
        }
    }
}

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<Exit> {
    let origin = args.file.display().to_string();
    let bytes = read_bounded(&args.file, FILE_MAX).with_context(|| Unreadable::file(&args.file))?;
    let target = if let Some(count) = args.cpus {
        // Another machine: one root domain, as Linux makes it at first.
        let cpus = CpuSet::first(count);
        let domains = RootDomains { sets: vec![cpus], can_partition: true };
        Target::new(cpus).with_domains(domains)
    } else {
        let machine =
            talea_os::sysinfo::SystemInfo::probe().context("cannot count this machine's CPUs")?;
        let domains = RootDomains {
            sets: machine.admitting_domains(),
            can_partition: matches!(machine.cgroups.cpuset, Hierarchy::V1(_)),
        };
        Target::new(machine.online).with_present(machine.present).with_domains(domains)
    };
    let cpus = target.cpus;
    let read = config::read_bytes(&bytes, &origin, &MachineNames, &target);
    let diagnostics = match &read {
        Ok(loaded) => &loaded.warnings,
        Err(diagnostics) => diagnostics,
    };
    if args.output.json {
        print_json(&CheckReport {
            file: origin,
            ok: read.is_ok(),
            plugins: read.as_ref().map_or(0, |loaded| loaded.setup.plugins.len()),
            rules: read.as_ref().map_or(0, |loaded| loaded.setup.rules.len()),
            diagnostics: diagnostics.iter().map(DiagnosticJson::from).collect(),
        })?;
    } else {
        print(&talea_config::diagnostic::render(diagnostics, colored()))?;
        if let Ok(loaded) = &read {
            print(&sound(&origin, loaded, cpus.len()))?;
        }
    }
    Ok(if read.is_ok() { Exit::Ok } else { Exit::Usage })
}

fn sound(origin: &str, loaded: &Loaded, cpus: u32) -> String {
    let plugins = count(loaded.setup.plugins.len(), "plugin");
    let rules = count(loaded.setup.rules.len(), "access rule");
    let cpus = count(cpus as usize, "CPU");
    format!("{origin}: sound: {plugins}, {rules}, for a machine with {cpus}\n")
}
