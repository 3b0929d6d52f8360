//! Tests with complete flights. The results depend neither on the speed of the computer nor on
//! real-time priorities.

use search_and_rescue::alarm::{Alarm, KEY};
use search_and_rescue::cost::Costs;
use search_and_rescue::mission::{self, Drone, Flight, SentMessage, Setup, Versions};
use search_and_rescue::scene::{self, Kind};
use std::time::Duration;
use talea_kernel_tests::{Bench, kernel, needs};
use talea_runtime::{Mapping, Priorities};

/// Returns the configuration of a flight of 12 frames, or `None` with fewer than two CPUs.
fn setup(versions: Versions) -> Option<Setup> {
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    let are_enough = cpus.len() == 2;
    let costs = are_enough.then(|| Costs::measure(&cpus, &mission::frames()))?;
    Some(Setup {
        mapping: Mapping::Global,
        priorities: Priorities::Edf,
        preemptive: true,
        versions,
        cpus,
        frames: 12,
        costs,
        require_real_time: false,
    })
}

fn fly(setup: &Setup) -> Flight {
    Drone::new(setup.clone()).fly().expect("a flight")
}

/// Returns the number of boats in a frame.
fn boats_in(frame: u32) -> usize {
    scene::targets(frame).iter().filter(|target| target.kind == Kind::Boat).count()
}

#[test]
fn y6_y18_the_drone_sends_the_targets_of_each_frame_encrypted_if_there_are_boats() {
    let _bench = Bench::new("drone_sends");
    let setup = setup(Versions::Both);
    needs!("two CPUs", setup.is_some());
    let mut setup = setup.expect("two CPUs");
    // A long period, because this test does not check times.
    setup.costs.detect = setup.costs.detect.max(Duration::from_millis(60));
    let flight = fly(&setup);
    assert_eq!(flight.received[1], 0, "every message is valid");
    let numbers: Vec<u32> = flight.sent.iter().map(|message| message.frame).collect();
    // The camera is on from the third frame; if the handler is late, it handles the command later.
    assert!(numbers.first().is_some_and(|first| (2..5).contains(first)), "{numbers:?}");
    assert!(numbers.is_sorted() && numbers.last() == Some(&(setup.frames - 1)), "{numbers:?}");
    for message in &flight.sent {
        let (frame, alarm) = (message.frame, Alarm::read(&message.bytes, &KEY).expect("a message"));
        assert_eq!((alarm.frame, alarm.boats()), (frame, boats_in(frame)));
        assert_eq!(alarm.sightings.len(), scene::targets(frame).len());
        let frames = mission::frames();
        assert!(alarm.picture == frames[frame as usize]);
    }
    // The detection of a frame sets the mode, and the encoding uses it. If the next frame is
    // detected before the encoding, the frame is sent in the mode of the next one. A flight without
    // late frames excludes this.
    if flight.frames[0] == 0 {
        for message in &flight.sent {
            let has_boats = boats_in(message.frame) > 0;
            assert_eq!(message.bytes[0], u8::from(has_boats), "frame {}", message.frame);
        }
    }
    let encrypted = flight.sent.iter().filter(|message| message.bytes[0] == 1).count();
    let count = flight.sent.len();
    assert!(encrypted >= 2 && encrypted < count, "{encrypted} of {count}");
    let encode = flight.report.tasks.iter().find(|task| task.name == "encode").expect("a task");
    let completed = encode.versions.iter().sum::<u64>();
    assert_eq!((encode.versions[1] as usize, completed as usize), (encrypted, count));
}

#[test]
fn y5_y7_y18_mapping_and_versions_do_not_change_the_messages() {
    let _bench = Bench::new("drone_versions");
    let base = setup(Versions::Cpu);
    needs!("two CPUs", base.is_some());
    let base = base.expect("two CPUs");
    let partitioned = Setup {
        mapping: Mapping::Partitioned,
        priorities: Priorities::DeadlineMonotonic,
        preemptive: false,
        versions: Versions::Accelerator,
        ..base.clone()
    };
    let alarms = |setup: &Setup| -> Vec<Alarm> {
        let flight = fly(setup);
        let mut tasks =
            flight.report.tasks.iter().filter(|task| !["encode", "handler"].contains(&&*task.name));
        assert!(
            tasks.all(|task| task.versions.len() == 1 && task.panics == 0),
            "{:?}",
            flight.report
        );
        let read = |message: &SentMessage| Alarm::read(&message.bytes, &KEY).expect("a message");
        flight.sent.iter().map(read).collect()
    };
    let (global, partitioned) = (alarms(&base), alarms(&partitioned));
    // A late handler may lose frames at the start, so only frames of both flights are compared.
    let mut common = 0;
    for alarm in &global {
        let Some(other) = partitioned.iter().find(|other| other.frame == alarm.frame) else {
            continue;
        };
        assert_eq!(alarm.sightings.len(), other.sightings.len());
        for (a, b) in alarm.sightings.iter().zip(&other.sightings) {
            assert!(
                a.kind == b.kind && a.drift == b.drift && a.picture == b.picture,
                "frame {}",
                alarm.frame
            );
        }
        common += 1;
    }
    assert!(common >= 5, "{common} common frames");
}

#[test]
fn y18_the_system_file_of_the_drone_has_the_tokens_and_modes_of_the_frames() {
    let ms = Duration::from_millis;
    let costs = Costs {
        detect: ms(300),
        highlight: ms(120),
        speed: ms(120),
        plain: ms(20),
        encrypted: ms(45),
        messages: ms(1),
    };
    let setup = Setup {
        mapping: Mapping::Partitioned,
        priorities: Priorities::DeadlineMonotonic,
        preemptive: false,
        versions: Versions::Both,
        cpus: vec![0, 1],
        frames: scene::FRAMES,
        costs,
        require_real_time: false,
    };
    let text = setup.describe().expect("a system file");
    let system = talea_system::read(&text, "drone.toml", &()).expect("a checked system file");
    // With the device's versions the busiest frame takes 300 / 4 + 4 · (80 + 80) + 45 ms, with the
    // CPU's 300 + 4 · 120 + 45 ms. The period is fifteen sixteenths of the shorter time.
    assert_eq!(setup.costs.busiest_frame(), [ms(825), ms(760)]);
    assert_eq!(setup.costs.period(), Duration::from_micros(712_500));
    assert_eq!(system.duration.as_ns(), 20 * 712_500_000);
    assert_eq!(system.roots[0].tree.channels.len(), 4);
    let counts: Vec<String> = (0..scene::FRAMES)
        .map(|frame| if frame < 2 { 0 } else { scene::targets(frame).len() }.to_string())
        .collect();
    assert!(text.contains(&format!("push = [{}]", counts.join(", "))), "{text}");
    // The mode is secure from the first frame with boats to the next frame without boats.
    let changes = &system.roots[0].surroundings.changes;
    let modes: Vec<u64> = changes.iter().map(|(at, _)| at.as_ns() / 712_500_000).collect();
    let is_secure = |frame: &u64| boats_in(*frame as u32) > 0;
    let first = (0..20).find(|frame| is_secure(frame)).expect("boats");
    assert_eq!(modes, [first, (first..20).find(|frame| !is_secure(frame)).expect("none")]);
}
