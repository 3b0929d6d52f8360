//! `talea analyze`: schedulability analysis of a described system.

use talea_study::analysis::{self, Analysis, AnalyzeArgs, SynthesisTarget, name_of};
use talea_study::exit::{Exit, usage};
use talea_study::output::{colored, note};
use talea_study::system_file::load;
use talea_system::Registry;

pub(crate) fn run(args: &AnalyzeArgs) -> anyhow::Result<Exit> {
    let _watch = args.limit.watch(args.output.json)?;
    let mut system = load(&args.file, &Registry::default())?;
    for change in &args.what_if {
        change.make(&mut system).map_err(|error| usage(error.to_string()))?;
    }
    for root in &system.roots {
        if let Err(error) = root.tree.check() {
            let changes: Vec<String> =
                args.what_if.iter().map(|change| format!("{:?}", change.to_string())).collect();
            let node = name_of(&root.tree, error.node);
            return Err(usage(format!("what-if {}: {node}: {}", changes.join(", "), error.kind)));
        }
    }
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
