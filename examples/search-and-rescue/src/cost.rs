//! Costs of the functions on this computer, and the parameters derived from them: the period of the
//! frames and the speed of the emulated device.
//!
//! The paper gives its costs only in a figure, for another computer. Here the device needs a
//! quarter of a CPU's time for a detection, and two thirds for a highlight or a speed, because
//! transfers dominate the small requests. The frames have the period [`Costs::period`]. So the
//! schedule is the same on fast and slow computers, on another time scale.

use crate::alarm::{Alarm, KEY, Sighting};
use crate::detect::{self, Object};
use crate::flight::{self, Log, Position, State};
use crate::picture::Picture;
use crate::{highlight, scene, speed};
use std::hint::black_box;
use std::time::Duration;
use talea_core::{CpuSet, Work};
use talea_os::{Tid, clock, sched};

/// CPU time of a job of each function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Detection in a frame, by a CPU.
    pub detect: Duration,
    /// Highlight of an object, by a CPU, while the other CPU estimates a speed.
    pub highlight: Duration,
    /// Speed of an object, by a CPU, while the other CPU highlights.
    pub speed: Duration,
    /// Encoding of a frame with [`MAX_OBJECTS`] objects as plain text.
    pub plain: Duration,
    /// Encoding and encryption of a frame with [`MAX_OBJECTS`] objects.
    pub encrypted: Duration,
    /// Handling of the messages of one poll.
    pub messages: Duration,
}

/// Maximum number of objects in a frame.
pub const MAX_OBJECTS: u32 = 4;

/// Number of measurements of a function; the median is the cost of the function.
const REPETITIONS: usize = 9;

/// Returns the median CPU time of `work` on a CPU.
fn median_cpu_time(cpu: u32, mut work: impl FnMut()) -> Duration {
    // Best effort: if the CPU is not permitted, the measurement uses another one.
    let _ = sched::set_affinity(Tid::current(), &CpuSet::single(cpu));
    let mut times: Vec<u64> = (0..REPETITIONS)
        .map(|_| {
            let before = clock::thread_cpu_time();
            work();
            clock::thread_cpu_time().checked_sub(before).map_or(0, Work::as_ns)
        })
        .collect();
    times.sort_unstable();
    Duration::from_nanos(times[REPETITIONS / 2])
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Returns the frame before the busiest frame, the busiest frame, and the objects in it.
fn busiest_frame(frames: &[Picture]) -> (&Picture, &Picture, Vec<Object>) {
    let number =
        (1..frames.len()).max_by_key(|&frame| scene::targets(frame as u32).len()).unwrap_or(1);
    let (before, now) = (&frames[number - 1], &frames[number]);
    (before, now, detect::on_accelerator(now))
}

impl Costs {
    /// Measures the functions on the first and the last of `cpus`.
    ///
    /// # Panics
    /// Panics if `cpus` is empty.
    pub fn measure(cpus: &[u32], frames: &[Picture]) -> Costs {
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        let (before, now, objects) = busiest_frame(frames);
        let was_visible =
            |object: &&Object| scene::is_inside_margin(object.x + scene::CAMERA_STEP, object.y);
        let object = *objects.iter().find(was_visible).expect("an object of two frames");
        let drift = speed::on_accelerator(before, now, &object, scene::CAMERA_STEP);
        let sighting = |object: &Object| Sighting {
            kind: object.kind,
            position: Position::default(),
            drift,
            picture: highlight::on_accelerator(now, object),
        };
        let sightings = objects.iter().map(sighting).collect();
        let alarm = Alarm { frame: 0, sightings, picture: now.clone() };
        let log = Log::read(&flight::recording()).expect("a recording");
        let state = State::default();
        let received = log.until(0, flight::POLL_PERIOD);
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                [
                    median_cpu_time(first, || _ = black_box(detect::on_cpu(now))),
                    median_cpu_time(first, || _ = black_box(alarm.plain())),
                    median_cpu_time(first, || _ = black_box(alarm.encrypted(&KEY))),
                    median_cpu_time(first, || state.handle_all(received)),
                ]
            });
            let [detect, plain, encrypted, messages] = join(alone);
            let highlight = scope
                .spawn(|| median_cpu_time(last, || _ = black_box(highlight::on_cpu(now, &object))));
            let speed = scope.spawn(|| {
                let speed = || speed::on_cpu(before, now, &object, scene::CAMERA_STEP);
                median_cpu_time(first, || _ = black_box(speed()))
            });
            let (highlight, speed) = (join(highlight), join(speed));
            Costs { detect, highlight, speed, plain, encrypted, messages }
        })
    }

    /// Returns the time that the device takes for a detection.
    pub fn detect_by_device(&self) -> Duration {
        self.detect / 4
    }

    /// Returns the time that the device takes for a highlight.
    pub fn highlight_by_device(&self) -> Duration {
        self.highlight * 2 / 3
    }

    /// Returns the time that the device takes for a speed.
    pub fn speed_by_device(&self) -> Duration {
        self.speed * 2 / 3
    }

    /// Returns the response times of a frame with [`MAX_OBJECTS`] objects on two CPUs without other
    /// work. The first value is for the versions for the CPU only, the second value for the
    /// versions for the device only. The device serves one request at a time. Detection precedes
    /// the work on the objects, and the encrypted encoding follows.
    pub fn busiest_frame(&self) -> [Duration; 2] {
        let by_device = self.highlight_by_device() + self.speed_by_device();
        let by_cpu = self.highlight.max(self.speed);
        [self.detect + by_cpu * MAX_OBJECTS, self.detect_by_device() + by_device * MAX_OBJECTS]
            .map(|time| time + self.encrypted)
    }

    /// Returns the period of the frames: fifteen sixteenths of the shorter time of
    /// [`Costs::busiest_frame`].
    ///
    /// So the versions of one kind alone do not suffice for the busiest frames. The schedule
    /// decides whether both kinds together suffice. The period is a multiple of four microseconds,
    /// because the period of the handler is a quarter of this period.
    pub fn period(&self) -> Duration {
        let [by_cpu, by_device] = self.busiest_frame();
        let shorter = by_cpu.min(by_device).as_micros() as u64;
        Duration::from_micros(4 * (shorter * 15 / 64).max(1))
    }
}
