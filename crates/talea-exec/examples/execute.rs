//! Executes a system file on this machine's CPUs and holds every task against its simulation.
//!
//! `execute FILE [MILLISECONDS [RECORD]]`: roots get CPUs from 0 on, in the order of the file; jobs spend what they cost. Needs the
//! right to real-time priorities. Says at the end whether the record of the run is replayed, and writes that of each root
//! to RECORD.0, RECORD.1 and so on if it is asked to.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::ExitCode;
use talea_core::{Span, Time};
use talea_exec::record::text;
use talea_exec::{Arrival, Course, Load, Options, RootPlan, TaskPlan, What, execute, replay, work};
use talea_sim::dice::of_root;
use talea_sim::{Counters, World};
use talea_system::system::{self, Beside};

fn text_of(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("execute FILE [MILLISECONDS [RECORD]]")?;
    let content = std::fs::read_to_string(&file)?;
    let system = system::read(&content, &file, &Beside(text_of))
        .map_err(|found| talea_system::diagnostic::render(&found, false))?;
    let duration = match args.next() {
        Some(ms) => Span::from_ns(ms.parse::<u64>()?.checked_mul(1_000_000).ok_or("that is too long")?),
        None => system.duration,
    };
    let to = args.next();
    let until = Time::ZERO + duration;
    let mut cpus = 0..;
    let mut plans = Vec::new();
    for (number, root) in system.roots.iter().enumerate() {
        let drawn = talea_sim::draw(&root.workload(of_root(system.seed, number)), until);
        let tasks = drawn.into_iter().map(|drawn| {
            let arrivals = drawn.arrivals.iter().map(|&(seen, nominal)| Arrival { seen, nominal });
            let load = Load { arrivals: arrivals.collect(), costs: drawn.costs };
            TaskPlan { load, body: work::spender() }
        });
        let cpus = cpus.by_ref().take(root.tree.cpus as usize).collect();
        plans.push(RootPlan { tree: &root.tree, tasks: tasks.collect(), cpus });
    }
    let report = execute(plans, &Options::new(duration))?;
    for ((number, root), real) in system.roots.iter().enumerate().zip(&report.roots) {
        let mut counters = Counters::new(root.tasks.len());
        let workload = root.workload(of_root(system.seed, number));
        World::new(root.tree.build().expect("built before"), root.tree.cpus, &workload)
            .run(until, &mut counters);
        println!("{}: simulated and measured", root.name);
        for (at, (name, simulated)) in root.tasks.iter().zip(&counters.tasks).enumerate() {
            let (ended, late, worst) = measured(&root.tree, at, &real.record);
            println!(
                "  {name}: {} and {ended} jobs, {} and {late} late, worst response {} and {worst}; {} beside its jobs",
                simulated.completed,
                simulated.late,
                simulated.worst,
                real.consumed[at].stray()
            );
        }
        if let Some(to) = &to {
            let mut file = BufWriter::new(File::create(format!("{to}.{number}"))?);
            text::write(&real.record, &mut file)?;
            file.flush()?;
        }
        for effort in &real.effort {
            println!("  dispatcher: {effort:?}");
        }
        let turns = Course::of(root.tree.cpus, &real.record).turns().count();
        match replay::replay(&mut root.tree.build().expect("built before"), &real.record) {
            Ok(orders) => println!("  {turns} turns; replayed: the same {orders} orders"),
            Err(differs) => println!("  NOT replayed: {differs}"),
        }
    }
    let longest = report.holes.iter().map(talea_exec::Hole::length).max().unwrap_or(Span::ZERO);
    println!("{} holes, the longest {longest}", report.holes.len());
    for hole in &report.holes {
        println!("  CPU {} from {} to {} ns", hole.cpu, hole.from.as_ns(), hole.to.as_ns());
    }
    Ok(())
}

/// Jobs that ended, how many late, and the longest response, as a fresh machine has them when it is told the record.
fn measured(tree: &talea_core::machine::Tree, task: usize, record: &[talea_exec::Entry]) -> (u64, u64, Span) {
    let mut machine = tree.build().expect("built before");
    let (mut ended, mut late, mut worst) = (0, 0, Span::ZERO);
    for entry in record {
        match entry.what {
            What::Told(event) => {
                if let talea_core::machine::Event::Completed { task: of } = event
                    && of.0 as usize == task
                    && let Some(job) = machine.job(of)
                {
                    ended += 1;
                    late += u64::from(entry.now > job.deadline);
                    worst = worst.max(entry.now.since(job.release));
                }
                let _ = machine.handle(entry.now, event);
            }
            What::Ordered(_) | What::Polled => _ = machine.poll(entry.now),
            What::Step => {}
        }
    }
    (ended, late, worst)
}
