//! Flies the mission once, and prints the messages that the ground station receives.

use search_and_rescue::alarm::{Alarm, KEY};
use search_and_rescue::cost::Costs;
use search_and_rescue::mission::{Drone, Flight, Setup, Versions, frames};
use search_and_rescue::scene;
use std::path::Path;
use std::process::ExitCode;
use talea_runtime::{Mapping, Policy, Priorities, Report, Rights, first_cpus};

const USAGE: &str = "\
Usage: search-and-rescue [partitioned] [dm] [whole-jobs] [cpu|device] [pictures=FOLDER] [describe]

Flies the mission of ten seconds and prints the messages that the ground station receives.
The time scale depends on the speed of this computer.

  partitioned      each task on its core (otherwise global)
  dm               deadline monotonic (otherwise EDF)
  whole-jobs       without preemption
  cpu, device      versions for the CPU or for the accelerator only (otherwise both)
  pictures=FOLDER  writes the pictures of the objects to the folder as PGM
  describe         prints the application as a system file, and does not fly";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("search-and-rescue: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let cpus = first_cpus(2).map_err(|error| error.to_string())?;
    let mut setup = Setup {
        mapping: Mapping::Global,
        priorities: Priorities::Edf,
        preemptive: true,
        versions: Versions::Both,
        frames: scene::FRAMES,
        costs: Costs::measure(&cpus, &frames()),
        require_real_time: false,
        cpus,
    };
    let (mut folder, mut describes) = (None, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "partitioned" => setup.mapping = Mapping::Partitioned,
            "dm" => setup.priorities = Priorities::DeadlineMonotonic,
            "whole-jobs" => setup.preemptive = false,
            "cpu" => setup.versions = Versions::Cpu,
            "describe" => describes = true,
            "device" => setup.versions = Versions::Accelerator,
            _ => match argument.strip_prefix("pictures=") {
                Some(name) => folder = Some(name.to_owned()),
                None => return Err(format!("unknown argument {argument:?}\n{USAGE}")),
            },
        }
    }
    if describes {
        print!("{}", setup.describe()?);
        return Ok(());
    }
    let period = setup.costs.period();
    println!("{:#?}\na frame every {period:?}", setup.costs);
    let flight = Drone::new(setup).fly().map_err(|error| error.to_string())?;
    print_flight(&flight, folder.as_deref().map(Path::new))
}

/// Returns the source of the right to real-time priorities, and the policies that the kernel
/// reports for the threads.
fn priorities(report: &Report) -> String {
    let source = match report.rights {
        _ if !report.is_real_time => {
            return "without real-time priorities: nothing is guaranteed".to_owned();
        }
        Rights::Daemon => "granted by talead",
        _ => "set by the program's own right",
    };
    let names = |policies: &mut dyn Iterator<Item = Policy>| {
        let mut names: Vec<String> = policies.map(|policy| format!("{policy:?}")).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    let jobs = names(&mut report.tasks.iter().filter_map(|task| task.policy));
    let dispatchers = names(&mut report.dispatchers.iter().copied());
    format!("real-time priorities, {source}: jobs {jobs}, dispatchers {dispatchers}")
}

/// Prints the messages of a flight, and writes the pictures of the objects to `folder`, if any.
fn print_flight(flight: &Flight, folder: Option<&Path>) -> Result<(), String> {
    for message in &flight.sent {
        let alarm = Alarm::read(&message.bytes, &KEY)?;
        let mode = if message.bytes[0] == 1 { "encrypted" } else { "plain" };
        let (frame, boats) = (message.frame, alarm.boats());
        println!("frame {frame:2} after {:?}, {mode}: {boats} boats", message.response_time);
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
                let path = folder.join(format!("frame-{frame:02}-{number}.pgm"));
                std::fs::write(&path, file)
                    .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            }
        }
    }
    let [frames, polls] =
        [flight.frames, flight.polls].map(|[late, all]| format!("{late} of {all}"));
    println!(
        "late: {frames} frames, {polls} polls for messages; received {} messages",
        flight.received[0]
    );
    println!("{}", priorities(&flight.report));
    Ok(())
}
