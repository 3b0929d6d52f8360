//! The application: tasks, versions and channels.
//!
//! ```text
//!              ┌─▶ highlight, each object ─┐
//!  detect ─────┤                           ├─▶ encode ──▶ ground station
//!   a frame    └─▶ speed, each object ─────┘    deadline of the frame
//!
//!  handler ◀── flight controller
//!   four times a frame
//! ```
//!
//! The handler shares two CPUs with the other tasks. Without preemption the handler waits for the
//! completion of a job of another task. The period of the handler, a quarter of the period of the
//! frames, permits this.

use crate::alarm::{Alarm, KEY, Sighting};
use crate::cost::Costs;
use crate::detect::{self, Object};
use crate::device::Device;
use crate::flight::{Log, POLL_PERIOD, Position, State};
use crate::highlight;
use crate::picture::Picture;
use crate::scene::{CAMERA_STEP, Kind};
use crate::speed::{self, Drift};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_os::clock;
use talea_runtime::{
    Accelerator, Application, Condition, Config, Error, Input, Job, Mapping, Output, Priorities,
    Report, RunHandle, Selection, Task, TaskId, Version,
};

/// Selection of the versions of detection, highlighting and speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Versions for the CPU only.
    Cpu,
    /// Versions for the accelerator only.
    Accelerator,
    /// Both versions. A job uses the version for the accelerator if the accelerator is free.
    Both,
}

/// Configuration of a flight.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Global scheduling, or each task on its core.
    pub mapping: Mapping,
    /// Priority assignment of the tasks.
    pub priorities: Priorities,
    /// Whether jobs may be preempted.
    pub preemptive: bool,
    /// Versions that the application has.
    pub versions: Versions,
    /// The two CPUs of the application.
    pub cpus: Vec<u32>,
    /// Number of frames in the flight.
    pub frames: u32,
    /// Costs of the functions on this computer.
    pub costs: Costs,
    /// Whether the flight fails without the right to real-time priorities.
    pub require_real_time: bool,
}

/// Numbers of the normal and the secure mode.
const MODES: [u8; 2] = [0, 1];
/// Capacity of channels and backlogs: all objects of a mission.
const CAPACITY: u32 = 128;

/// A frame in the graph, with the results for its objects.
struct FrameResults {
    frame: u32,
    position: Position,
    objects: Vec<Object>,
    pictures: Vec<OnceLock<Picture>>,
    drifts: Vec<OnceLock<Drift>>,
}

/// A frame and the number of one of its objects.
type Token = (Arc<FrameResults>, usize);

/// A message that the drone has sent to the ground station.
#[derive(Clone, Debug)]
pub struct SentMessage {
    /// Number of the frame in the mission.
    pub frame: u32,
    /// Length from the arrival of the frame to the sending of the message.
    pub response_time: Duration,
    /// Encoded [`Alarm`].
    pub bytes: Vec<u8>,
}

/// State that the tasks share.
struct Shared {
    frames: Vec<Picture>,
    log: Log,
    state: State,
    device: Device,
    run: OnceLock<RunHandle>,
    sent: Mutex<Vec<SentMessage>>,
    setup: Setup,
}

/// Processor of a version.
#[derive(Clone, Copy)]
enum Processor {
    Cpu,
    Device,
}

impl Shared {
    /// Detects the objects of a frame, and sets the mode. `None` while the camera or the payload is
    /// off, or after the last frame. Such a frame is lost.
    fn detect(self: &Arc<Shared>, frame: u32, processor: Processor) -> Option<FrameResults> {
        let is_processed = frame < self.setup.frames && self.state.is_on();
        let picture = self.frames.get(frame as usize).filter(|_| is_processed)?;
        let position = self.state.position();
        let objects = match processor {
            Processor::Cpu => detect::on_cpu(picture),
            Processor::Device => {
                let shared = Arc::clone(self);
                self.device.call(self.setup.costs.detect_by_device(), move || {
                    detect::on_accelerator(&shared.frames[frame as usize])
                })
            }
        };
        let boats = objects.iter().filter(|object| object.kind == Kind::Boat).count();
        if let Some(run) = self.run.get() {
            run.change(Condition::Mode(MODES[usize::from(boats > mutate!("drone-mode", 0, 9))]));
        }
        let pictures = objects.iter().map(|_| OnceLock::new()).collect();
        let drifts = objects.iter().map(|_| OnceLock::new()).collect();
        Some(FrameResults { frame, position, objects, pictures, drifts })
    }

    fn highlight(self: &Arc<Shared>, (results, number): &Token, processor: Processor) {
        // A frame without objects is also sent, and has a token.
        let Some(&object) = results.objects.get(*number) else { return };
        let frame = results.frame as usize;
        let picture = match processor {
            Processor::Cpu => highlight::on_cpu(&self.frames[frame], &object),
            Processor::Device => {
                let shared = Arc::clone(self);
                self.device.call(self.setup.costs.highlight_by_device(), move || {
                    highlight::on_accelerator(&shared.frames[frame], &object)
                })
            }
        };
        let _ = results.pictures[*number].set(picture);
    }

    fn speed(self: &Arc<Shared>, (results, number): &Token, processor: Processor) {
        let Some(&object) = results.objects.get(*number) else { return };
        let frame = results.frame as usize;
        let Some(before) = frame.checked_sub(1) else { return };
        let drift = match processor {
            Processor::Cpu => {
                speed::on_cpu(&self.frames[before], &self.frames[frame], &object, CAMERA_STEP)
            }
            Processor::Device => {
                let shared = Arc::clone(self);
                self.device.call(self.setup.costs.speed_by_device(), move || {
                    speed::on_accelerator(
                        &shared.frames[before],
                        &shared.frames[frame],
                        &object,
                        CAMERA_STEP,
                    )
                })
            }
        };
        let _ = results.drifts[*number].set(drift);
    }

    fn send(&self, results: &FrameResults, is_secure: bool) {
        let sighting = |(number, object): (usize, &Object)| Sighting {
            kind: object.kind,
            position: results.position.of_pixel(object.x, object.y),
            drift: results.drifts[number].get().copied().unwrap_or(Drift { x: 0, y: 0 }),
            picture: results.pictures[number].get().expect("a highlighted object").clone(),
        };
        let sightings = results.objects.iter().enumerate().map(sighting).collect();
        let picture = self.frames[results.frame as usize].clone();
        let alarm = Alarm { frame: results.frame, sightings, picture };
        let bytes = if is_secure { alarm.encrypted(&KEY) } else { alarm.plain() };
        let arrival = self.setup.costs.period() * results.frame;
        let now = self.run.get().map_or(Duration::ZERO, RunHandle::now);
        let response_time = now.saturating_sub(arrival);
        let message = SentMessage { frame: results.frame, response_time, bytes };
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(message);
    }
}

/// The drone before its flight.
pub struct Drone {
    app: Application,
    shared: Arc<Shared>,
    /// Task whose job completes a frame.
    encode: TaskId,
    handler: TaskId,
}

/// Result of a flight.
#[derive(Debug)]
pub struct Flight {
    /// Start of the flight, in monotonic time.
    pub began: Time,
    /// Report of the runtime.
    pub report: Report,
    /// Messages to the ground station, in the order of sending.
    pub sent: Vec<SentMessage>,
    /// Numbers of valid and of corrupt messages of the flight controller.
    pub received: [u32; 2],
    /// Numbers of late frames and of all frames.
    pub frames: [u64; 2],
    /// Numbers of late polls and of all polls. A poll is a job of the handler.
    pub polls: [u64; 2],
}

impl Drone {
    /// Declares the application.
    ///
    /// # Panics
    /// Panics if the files in `data/` are corrupt.
    pub fn new(setup: Setup) -> Drone {
        let Setup { mapping, priorities, preemptive, require_real_time, cpus, .. } = setup.clone();
        let (versions, costs) = (setup.versions, setup.costs);
        let mut app = Application::new(Config {
            mapping,
            priorities,
            preemptive,
            require_real_time,
            cpus,
            selection: Selection::Mode,
            ..Config::default()
        });
        let shared = Arc::new(Shared {
            frames: frames(),
            log: Log::read(include_bytes!("../data/flight.tlog")).expect("a recording"),
            state: State::default(),
            device: Device::start(&setup.cpus),
            run: OnceLock::new(),
            sent: Mutex::new(Vec::with_capacity(setup.frames as usize)),
            setup,
        });
        let device = app.accelerator("device");
        let period = costs.period();
        // Under DM all tasks of the graph have the same deadline, and ties go to the first declared
        // task. So a frame that has begun is completed before the next one.
        let encode = app.task(Task::node("encode").core(0).backlog(CAPACITY));
        let highlight = app.task(Task::node("highlight").core(0).backlog(CAPACITY));
        let speed = app.task(Task::node("speed").core(1).backlog(CAPACITY));
        let detect = app.task(Task::periodic("detect", period).core(0).backlog(CAPACITY));
        let handler = app.task(Task::periodic("handler", period / 4).core(1));
        let (to_highlight, at_highlight) = app.channel::<Token>(detect, highlight, CAPACITY);
        let (to_speed, at_speed) = app.channel::<Token>(detect, speed, CAPACITY);
        let (from_highlight, highlighted) =
            app.channel::<Arc<FrameResults>>(highlight, encode, CAPACITY);
        let (from_speed, estimated) = app.channel::<Arc<FrameResults>>(speed, encode, CAPACITY);

        let mut adder = VersionAdder { app: &mut app, versions, device };
        adder.add(detect, [costs.detect_by_device(), costs.detect], |processor| {
            let (shared, outputs) = (Arc::clone(&shared), [to_highlight.clone(), to_speed.clone()]);
            move |job: &Job| {
                let Some(results) = shared.detect(job.number as u32, processor) else { return };
                let results = Arc::new(results);
                for number in 0..results.objects.len().max(1) {
                    for output in &outputs {
                        push(output, (Arc::clone(&results), number));
                    }
                }
            }
        });
        adder.add(highlight, [costs.highlight_by_device(), costs.highlight], |processor| {
            per_object(&shared, &at_highlight, &from_highlight, move |shared, token| {
                shared.highlight(token, processor);
            })
        });
        adder.add(speed, [costs.speed_by_device(), costs.speed], |processor| {
            per_object(&shared, &at_speed, &from_speed, move |shared, token| {
                shared.speed(token, processor);
            })
        });
        for (name, mode, cost) in
            [("plain", MODES[0], costs.plain), ("encrypted", MODES[1], costs.encrypted)]
        {
            let (shared, inputs) = (Arc::clone(&shared), [highlighted.clone(), estimated.clone()]);
            app.version(encode, Version::new(name).modes(1 << mode).cost(cost), move |_: &Job| {
                let [Some(results), Some(same)] = [inputs[0].pop(), inputs[1].pop()] else {
                    unreachable!("a token of each channel activates the job")
                };
                assert!(Arc::ptr_eq(&results, &same), "both channels keep the order of frames");
                shared.send(&results, mode == MODES[1]);
            });
        }
        let mut next = 0;
        let handler_shared = Arc::clone(&shared);
        app.version(handler, Version::new("only").cost(costs.messages), move |job: &Job| {
            let received = handler_shared.log.until(next, POLL_PERIOD * job.number as u32);
            handler_shared.state.handle_all(received);
            next += received.len();
        });
        Drone { app, shared, encode, handler }
    }

    /// Returns the declared application.
    pub fn application(&self) -> &Application {
        &self.app
    }

    /// Flies the mission and completes all jobs that have arrived.
    ///
    /// # Errors
    /// Returns the errors of [`Application::start`] and of the stop.
    pub fn fly(self) -> Result<Flight, Error> {
        let Drone { app, shared, encode, handler } = self;
        let set_handle = |handle| _ = shared.run.set(handle);
        let running = app.start_with(set_handle).map_err(|not_started| not_started.error)?;
        let end = shared.setup.costs.period() * shared.setup.frames;
        std::thread::sleep(end);
        let elapsed = Span::from_ns(running.handle().now().as_nanos() as u64);
        let began = Time::from_ns(clock::now().as_ns().saturating_sub(elapsed.as_ns()));
        let (app, report) = running.stop()?;
        // Drops the functions of the versions, with their references to the shared state.
        drop(app);
        let late_and_all = |task: TaskId| {
            [report.tasks[task.number()].deadline_misses, report.tasks[task.number()].jobs]
        };
        let (frames, polls) = (late_and_all(encode), late_and_all(handler));
        let sent = std::mem::take(&mut *shared.sent.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Flight { began, sent, received: shared.state.message_counts(), frames, polls, report })
    }
}

/// Returns all frames of the mission.
///
/// # Panics
/// Panics if `data/sea.pgm` is corrupt.
pub fn frames() -> Vec<Picture> {
    Picture::read_all(include_bytes!("../data/sea.pgm")).expect("pictures")
}

fn push<T>(output: &Output<T>, value: T) {
    // The capacity suffices for a mission; the report counts values that did not fit.
    let _ = output.push(value);
}

/// Returns the function of a task whose jobs process one object each. The job of the last object
/// pushes the frame.
fn per_object<W: Fn(&Arc<Shared>, &Token)>(
    shared: &Arc<Shared>,
    input: &Input<Token>,
    output: &Output<Arc<FrameResults>>,
    work: W,
) -> impl FnMut(&Job) + use<W> {
    let (shared, input, output) = (Arc::clone(shared), input.clone(), output.clone());
    move |_: &Job| {
        let token = input.pop().expect("a token activates the job");
        work(&shared, &token);
        let (results, number) = token;
        if mutate!("drone-last-object", number + 1 == results.objects.len().max(1), number == 0) {
            push(&output, results);
        }
    }
}

/// Adder of the selected versions of a task; the version for the accelerator comes first.
struct VersionAdder<'a> {
    app: &'a mut Application,
    versions: Versions,
    device: Accelerator,
}

impl VersionAdder<'_> {
    fn add<F: FnMut(&Job) + Send + 'static>(
        &mut self,
        task: TaskId,
        [device_cost, cpu_cost]: [Duration; 2],
        function: impl Fn(Processor) -> F,
    ) {
        if self.versions != Versions::Cpu {
            let version = self.app.version(
                task,
                Version::new("device").cost(device_cost),
                function(Processor::Device),
            );
            self.app.uses(version, self.device);
        }
        if self.versions != Versions::Accelerator {
            self.app.version(task, Version::new("cpu").cost(cpu_cost), function(Processor::Cpu));
        }
    }
}
