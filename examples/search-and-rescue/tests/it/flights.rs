//! Whole flights. How fast the machine is says nothing here; without the right to real-time
//! priorities they fly as well.

use search_and_rescue::alarm::{Alarm, KEY};
use search_and_rescue::cost::Costs;
use search_and_rescue::mission::{self, Drone, Flown, Setup, Versions};
use search_and_rescue::scene::{self, Kind};
use std::time::Duration;
use talea_kernel_tests::{Bench, kernel, needs};
use talea_runtime::{Mapping, Priorities};

fn setup(versions: Versions) -> Option<Setup> {
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    let whole = cpus.len() == 2;
    let costs = whole.then(|| Costs::measure(&cpus, &mission::frames()))?;
    Some(Setup {
        mapping: Mapping::Global,
        priorities: Priorities::Edf,
        preemptive: true,
        versions,
        cpus,
        frames: 12,
        costs,
        insist: false,
    })
}

fn flown(setup: &Setup) -> Flown {
    Drone::new(setup.clone()).fly().expect("it can be flown")
}

/// How many boats a frame shows.
fn boats_in(frame: u32) -> usize {
    scene::things(frame).iter().filter(|thing| thing.kind == Kind::Boat).count()
}

#[test]
fn y6_y18_what_the_drone_sends_is_what_is_in_the_sea_and_secret_if_there_are_boats() {
    let _bench = Bench::new("drone_sends");
    let setup = setup(Versions::Both);
    needs!("two CPUs", setup.is_some());
    let mut setup = setup.expect("two CPUs");
    // In no hurry: what is asked here has nothing to do with time.
    setup.costs.detect = setup.costs.detect.max(Duration::from_millis(60));
    let flown = flown(&setup);
    assert_eq!(flown.heard[1], 0, "every message is sound");
    let numbers: Vec<u32> = flown.sent.iter().map(|sent| sent.frame).collect();
    // The camera is on from the third on; a handler that is late by a frame hears it later.
    assert!(numbers.first().is_some_and(|first| (2..5).contains(first)), "{numbers:?}");
    assert!(numbers.is_sorted() && numbers.last() == Some(&(setup.frames - 1)), "{numbers:?}");
    for sent in &flown.sent {
        let alarm = Alarm::read(&sent.bytes, &KEY).expect("a message");
        assert_eq!((alarm.frame, alarm.boats()), (sent.frame, boats_in(sent.frame)));
        assert_eq!(alarm.sightings.len(), scene::things(sent.frame).len());
        let frames = mission::frames();
        assert!(alarm.picture == frames[sent.frame as usize]);
    }
    // The mode is told while a frame is detected, and chosen when it is encoded. One that is
    // overtaken by the next frame's may be sent in that one's mode: in a flight in which nobody is
    // late there is none.
    if flown.frames[0] == 0 {
        for sent in &flown.sent {
            assert_eq!(sent.bytes[0], u8::from(boats_in(sent.frame) > 0), "frame {}", sent.frame);
        }
    }
    let secret = flown.sent.iter().filter(|sent| sent.bytes[0] == 1).count();
    assert!(secret >= 2 && secret < flown.sent.len(), "{secret} of {}", flown.sent.len());
    let encode = flown.report.tasks.iter().find(|task| task.name == "encode").expect("a task");
    let done = encode.versions.iter().sum::<u64>();
    assert_eq!((encode.versions[1] as usize, done as usize), (secret, flown.sent.len()));
}

#[test]
fn y5_y7_y18_where_and_in_which_versions_it_runs_changes_nothing_of_what_is_sent() {
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
        let flown = flown(setup);
        let count =
            flown.report.tasks.iter().filter(|task| !["encode", "handler"].contains(&&*task.name));
        assert!(
            count.clone().all(|task| task.versions.len() == 1 && task.panics == 0),
            "{:?}",
            flown.report
        );
        let read = |sent: &search_and_rescue::mission::Sent| {
            Alarm::read(&sent.bytes, &KEY).expect("a message")
        };
        flown.sent.iter().map(read).collect()
    };
    let (ours, theirs) = (alarms(&base), alarms(&partitioned));
    // What a late handler lets go by at the begin is in neither.
    let mut same = 0;
    for alarm in &ours {
        let Some(other) = theirs.iter().find(|other| other.frame == alarm.frame) else { continue };
        assert_eq!(alarm.sightings.len(), other.sightings.len());
        for (a, b) in alarm.sightings.iter().zip(&other.sightings) {
            assert!(
                a.kind == b.kind && a.drift == b.drift && a.picture == b.picture,
                "frame {}",
                alarm.frame
            );
        }
        same += 1;
    }
    assert!(same >= 5, "{same} frames in both");
}

#[test]
fn y18_the_drone_says_itself_as_a_system_file_that_hands_on_what_is_in_the_frames() {
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
        insist: false,
    };
    let text = setup.describe().expect("a system file");
    let system = talea_system::system::read(&text, "drone.toml", &()).expect("it was checked");
    // Fifteen sixteenths of 300 / 4 + 4 · (80 + 80) + 45 ms, with CPU versions it is 300 + 4 · 120
    // + 45.
    assert_eq!(setup.costs.fullest(), [ms(825), ms(760)]);
    assert_eq!(setup.costs.period(), Duration::from_micros(712_500));
    assert_eq!(system.duration.as_ns(), 20 * 712_500_000);
    assert_eq!(system.roots[0].tree.channels.len(), 4);
    let counts: Vec<String> = (0..scene::FRAMES)
        .map(|frame| if frame < 2 { 0 } else { scene::things(frame).len() }.to_string())
        .collect();
    assert!(text.contains(&format!("push = [{}]", counts.join(", "))), "{text}");
    // Secure from the first frame with boats to the first without.
    let changes = &system.roots[0].surroundings.changes;
    let modes: Vec<u64> = changes.iter().map(|(at, _)| at.as_ns() / 712_500_000).collect();
    let is_secure = |frame: &u64| boats_in(*frame as u32) > 0;
    let first = (0..20).find(|frame| is_secure(frame)).expect("boats");
    assert_eq!(modes, [first, (first..20).find(|frame| !is_secure(frame)).expect("none")]);
}
