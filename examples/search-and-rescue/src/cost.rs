//! What the functions take on this machine, and what follows from it: how long a frame is here, and
//! how fast the device that is emulated.
//!
//! The paper's costs are in a drawing only, and of another machine. Here everything is derived from
//! what the functions cost on this one: the device does a detection in a quarter of the time that a
//! CPU takes, a highlight or a speed in two thirds (they are small: most of it is the way there and
//! back); and a frame has [`Costs::period`]. So the schedule is the same on fast machines and slow
//! ones, in another time.

use crate::alarm::{Alarm, KEY, Sighting};
use crate::detect::{self, Object};
use crate::flight::{self, Log, Position, State};
use crate::picture::Picture;
use crate::{highlight, scene, speed};
use std::hint::black_box;
use std::time::Duration;
use talea_core::{CpuSet, Work};
use talea_os::{Tid, clock, sched};

/// CPU time of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Of a frame, by the CPU.
    pub detect: Duration,
    /// Of an object, by the CPU, while the other CPU estimates a speed.
    pub highlight: Duration,
    /// Of an object, by the CPU, while the other CPU highlights.
    pub speed: Duration,
    /// Of a frame with four objects, for everybody to read.
    pub plain: Duration,
    /// The same, encrypted.
    pub encrypted: Duration,
    /// Of the messages of a look.
    pub messages: Duration,
}

/// Objects in the fullest frames.
pub const MOST: u32 = 4;

/// The middle one of so many.
const TIMES: usize = 9;

fn spent(cpu: u32, mut work: impl FnMut()) -> Duration {
    // Best effort: without that CPU, on another one.
    let _ = sched::set_affinity(Tid::current(), &CpuSet::single(cpu));
    let mut spent: Vec<u64> = (0..TIMES)
        .map(|_| {
            let before = clock::thread_cpu_time();
            work();
            clock::thread_cpu_time().checked_sub(before).map_or(0, Work::as_ns)
        })
        .collect();
    spent.sort_unstable();
    Duration::from_nanos(spent[TIMES / 2])
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The fullest frame, what is in it, and the one before.
fn fullest(frames: &[Picture]) -> (&Picture, &Picture, Vec<Object>) {
    let number =
        (1..frames.len()).max_by_key(|&frame| scene::things(frame as u32).len()).unwrap_or(1);
    let (before, now) = (&frames[number - 1], &frames[number]);
    (before, now, detect::on_accelerator(now))
}

impl Costs {
    /// Measures them on these CPUs.
    ///
    /// # Panics
    /// If there is no CPU.
    pub fn measure(cpus: &[u32], frames: &[Picture]) -> Costs {
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        let (before, now, objects) = fullest(frames);
        let seen_before = |object: &&Object| scene::is_whole(object.x + scene::PACE, object.y);
        let object = *objects.iter().find(seen_before).expect("it was there before");
        let drift = speed::on_accelerator(before, now, &object, scene::PACE);
        let sighting = |object: &Object| Sighting {
            kind: object.kind,
            position: Position::default(),
            drift,
            picture: highlight::on_accelerator(now, object),
        };
        let sightings = objects.iter().map(sighting).collect();
        let alarm = Alarm { frame: 0, sightings, picture: now.clone() };
        let log = Log::read(&flight::recording()).expect("sound");
        let state = State::default();
        let look = log.until(0, flight::LOOK);
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                [
                    spent(first, || _ = black_box(detect::on_cpu(now))),
                    spent(first, || _ = black_box(alarm.plain())),
                    spent(first, || _ = black_box(alarm.encrypted(&KEY))),
                    spent(first, || state.hear_all(look)),
                ]
            });
            let [detect, plain, encrypted, messages] = joined(alone);
            let beside =
                scope.spawn(|| spent(last, || _ = black_box(highlight::on_cpu(now, &object))));
            let speed = scope.spawn(|| {
                spent(first, || _ = black_box(speed::on_cpu(before, now, &object, scene::PACE)))
            });
            let (highlight, speed) = (joined(beside), joined(speed));
            Costs { detect, highlight, speed, plain, encrypted, messages }
        })
    }

    /// A detection by the device.
    pub fn detect_by_device(&self) -> Duration {
        self.detect / 4
    }

    /// A highlight by the device.
    pub fn highlight_by_device(&self) -> Duration {
        self.highlight * 2 / 3
    }

    /// A speed by the device.
    pub fn speed_by_device(&self) -> Duration {
        self.speed * 2 / 3
    }

    /// What a frame with four objects takes with versions of one kind only, on two CPUs with
    /// nothing else to do: the CPU's, and the device's, which does one thing after the other.
    pub fn fullest(&self) -> [Duration; 2] {
        let by_device = self.highlight_by_device() + self.speed_by_device();
        let by_cpu = self.highlight.max(self.speed);
        [self.detect + by_cpu * MOST, self.detect_by_device() + by_device * MOST]
            .map(|time| time + self.encrypted)
    }

    /// Between two frames: fifteen sixteenths of the quicker of these. Neither kind of versions
    /// alone keeps up with the fullest frames then; whether both together do is for the scheduler
    /// to show. A whole number of microseconds, of which the handler's period is a quarter.
    pub fn period(&self) -> Duration {
        let [by_cpu, by_device] = self.fullest();
        let quicker = by_cpu.min(by_device).as_micros() as u64;
        Duration::from_micros(4 * (quicker * 15 / 64).max(1))
    }
}
