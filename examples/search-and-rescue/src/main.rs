//! Flies the mission once, and shows what the ground gets.

use search_and_rescue::alarm::{Alarm, KEY};
use search_and_rescue::cost::Costs;
use search_and_rescue::mission::{Drone, Flown, Setup, Versions, frames};
use search_and_rescue::scene;
use std::path::Path;
use std::process::ExitCode;
use talea_runtime::{Mapping, Policy, Priorities, Report, Rights, first_cpus};

const USAGE: &str = "\
Usage: search-and-rescue [partitioned] [dm] [whole-jobs] [cpu|device] [pictures=FOLDER] [describe]

Flies the mission of ten seconds (in as much time as this machine needs for its frames) and says what the ground gets. Without
words: global, EDF, preemptive, the CPU's versions and the accelerator's. With a folder, what is seen is written there as PGM.
`describe` prints it as a system file, for talea check, simulate, analyze and compare, and does not fly.";

fn main() -> ExitCode {
    match fly() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("search-and-rescue: {why}");
            ExitCode::FAILURE
        }
    }
}

fn fly() -> Result<(), String> {
    let cpus = first_cpus(2).map_err(|error| error.to_string())?;
    let mut setup = Setup {
        mapping: Mapping::Global,
        priorities: Priorities::Edf,
        preemptive: true,
        versions: Versions::Both,
        frames: scene::FRAMES,
        costs: Costs::measure(&cpus, &frames()),
        insist: false,
        cpus,
    };
    let (mut folder, mut describes) = (None, false);
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "partitioned" => setup.mapping = Mapping::Partitioned,
            "dm" => setup.priorities = Priorities::DeadlineMonotonic,
            "whole-jobs" => setup.preemptive = false,
            "cpu" => setup.versions = Versions::Cpu,
            "describe" => describes = true,
            "device" => setup.versions = Versions::Accelerator,
            _ => match word.strip_prefix("pictures=") {
                Some(name) => folder = Some(name.to_owned()),
                None => return Err(format!("{word}?\n{USAGE}")),
            },
        }
    }
    if describes {
        print!("{}", setup.describe()?);
        return Ok(());
    }
    let period = setup.costs.period();
    println!("{:#?}\na frame each {period:?}", setup.costs);
    let flown = Drone::new(setup).fly().map_err(|error| error.to_string())?;
    show(&flown, folder.as_deref().map(Path::new))
}

/// By whose right it flew, and how the kernel says that it scheduled it.
fn priorities(report: &Report) -> String {
    let whose = match report.rights {
        _ if !report.is_real_time => {
            return "without real-time priorities: nothing is promised".to_owned();
        }
        Rights::Daemon => "granted by talead",
        _ => "taken by its own right",
    };
    let named = |policies: &mut dyn Iterator<Item = Policy>| {
        let mut names: Vec<String> = policies.map(|policy| format!("{policy:?}")).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    let jobs = named(&mut report.tasks.iter().filter_map(|task| task.policy));
    let dispatchers = named(&mut report.dispatchers.iter().copied());
    format!("real-time priorities, {whose}: jobs {jobs}, dispatchers {dispatchers}")
}

fn show(flown: &Flown, folder: Option<&Path>) -> Result<(), String> {
    for sent in &flown.sent {
        let alarm = Alarm::read(&sent.bytes, &KEY)?;
        let how = if sent.bytes[0] == 1 { "encrypted" } else { "plain" };
        println!("frame {:2} after {:?}, {how}: {} boats", sent.frame, sent.took, alarm.boats());
        for (number, sighting) in alarm.sightings.iter().enumerate() {
            let degrees = |at: i32| f64::from(at) / 1e7;
            println!(
                "    {:?} at {:.6} N {:.6} E, {} cm/s",
                sighting.kind,
                degrees(sighting.position.latitude),
                degrees(sighting.position.longitude),
                sighting.drift.speed()
            );
            if let Some(folder) = folder {
                let mut file = Vec::new();
                sighting.picture.write(&mut file);
                let path = folder.join(format!("frame-{:02}-{number}.pgm", sent.frame));
                std::fs::write(&path, file)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    let [frames, looks] = [flown.frames, flown.looks].map(|[late, all]| format!("{late} of {all}"));
    println!(
        "late: {frames} frames, {looks} looks for messages; heard {} messages",
        flown.heard[0]
    );
    println!("{}", priorities(&flown.report));
    Ok(())
}
