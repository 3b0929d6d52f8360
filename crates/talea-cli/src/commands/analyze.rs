//! `talea analyze`: schedulability analysis of a described system.

use talea_study::analysis::{self, Analysis, AnalyzeArgs, ModesReport, SynthesisTarget, name_of};
use talea_study::exit::{Exit, usage};
use talea_study::output::{colored, note};
use talea_study::system_file::load;
use talea_system::{Registry, System};

pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let mut system = load(&args.file, &Registry::default())?;
    if let Some(mode) = &args.mode {
        system = system.in_mode(mode).map_err(usage)?;
    }
    change(&mut system, args)?;
    if let Some(what) = args.synthesize {
        if what != SynthesisTarget::Server && !(args.server.is_empty() && args.period.is_empty()) {
            return Err(usage("--server and --period are for --synthesize server"));
        }
        return analysis::synthesize(what, args, &system);
    }
    if !args.interference.is_empty() {
        return analysis::show_interference(args, &system);
    }
    if args.sensitivity {
        return analysis::show_sensitivity(args, &system);
    }
    if !system.modes.is_empty() {
        if args.html.is_some() || args.witness.is_some() {
            let names: Vec<&str> = system.modes.iter().map(|mode| mode.name.as_str()).collect();
            let names = names.join(", ");
            return Err(usage(format!(
                "--html and --witness are about one mode: add --mode with one of {names}"
            )));
        }
        let report = ModesReport::of(&args.file, &args.what_if, &system)?;
        args.output.print(&report, || report.text(colored()))?;
        return Ok(if report.is_proved() { Exit::Ok } else { Exit::Failure });
    }
    let analysis = Analysis::of(&args.file, args.what_if.clone(), &system)?;
    if let Some(path) = &args.witness
        && !analysis.write_witness(path)?
    {
        note(&format!("no job is known to be late: {} is not written", path.display()));
    }
    if let Some(path) = &args.html {
        analysis.write_page(path, &system)?;
    }
    args.output.print(&analysis.report, || analysis.report.text(colored()))?;
    Ok(if analysis.report.is_proved() { Exit::Ok } else { Exit::Failure })
}

/// Makes the changes of `--what-if`, in each mode that has what they name.
fn change(system: &mut System, args: &AnalyzeArgs) -> anyhow::Result<()> {
    for change in &args.what_if {
        let mut made = change.make(system);
        for mode in &mut system.modes {
            // A mode may lack the name. Another fault would leave the mode unchanged.
            made = match (change.make(&mut mode.system), made) {
                (Ok(()), Err(before)) if before.is_unknown() => Ok(()),
                (Err(error), Ok(())) if error.is_unknown() => Ok(()),
                (Err(error), Err(before)) if before.is_unknown() => Err(error),
                (Err(error), Ok(())) => Err(error),
                (_, before) => before,
            };
        }
        made.map_err(|error| usage(error.to_string()))?;
    }
    let modes = system.modes.iter().map(|mode| &mode.system);
    for root in modes.flat_map(|mode| &mode.roots).chain(&system.roots) {
        if let Err(error) = root.tree.check() {
            let changes: Vec<String> =
                args.what_if.iter().map(|change| format!("{:?}", change.to_string())).collect();
            let node = name_of(&root.tree, error.node);
            return Err(usage(format!("what-if {}: {node}: {}", changes.join(", "), error.kind)));
        }
    }
    Ok(())
}
