//! The application: tasks, versions, what they hand on.
//!
//! ```text
//!              ┌─▶ highlight, each object ─┐
//!  detect ─────┤                           ├─▶ encode ──▶ the ground        handler ◀── flight controller
//!   a frame    └─▶ speed, each object ─────┘    due with the frame           four times a frame
//! ```
//!
//! With two CPUs there is none to spare for the handler: where nobody is interrupted it waits for
//! the end of a highlight or a speed, and so it comes, and is due, four times a frame.

use crate::alarm::{Alarm, KEY, Sighting};
use crate::cost::Costs;
use crate::detect::{self, Object};
use crate::device::Device;
use crate::flight::{LOOK, Log, Position, State};
use crate::highlight;
use crate::picture::Picture;
use crate::scene::{Kind, PACE};
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

/// Which versions of detection, highlighting and speed there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// The CPU's.
    Cpu,
    /// The accelerator's.
    Accelerator,
    /// Both; the scheduler takes the accelerator's if it is free.
    Both,
}

/// How it is flown.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everywhere, or each task on its core.
    pub mapping: Mapping,
    /// Who goes first.
    pub priorities: Priorities,
    /// Whether jobs may be interrupted.
    pub preemptive: bool,
    /// What there is to choose from.
    pub versions: Versions,
    /// The machine's CPUs: two.
    pub cpus: Vec<u32>,
    /// Frames until the end.
    pub frames: u32,
    /// What everything takes here.
    pub costs: Costs,
    /// Whether to refuse to fly without real-time priorities.
    pub insist: bool,
}

/// Normal, and secure.
const MODES: [u8; 2] = [0, 1];
/// Objects of frames that wait: those of a whole mission.
const ROOM: u32 = 128;

/// A frame on its way through the graph.
struct Seen {
    frame: u32,
    position: Position,
    objects: Vec<Object>,
    pictures: Vec<OnceLock<Picture>>,
    drifts: Vec<OnceLock<Drift>>,
}

/// A frame, and which of its objects.
type Token = (Arc<Seen>, usize);

/// What the ground has received.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Of the mission.
    pub frame: u32,
    /// From when the frame came to when this was sent.
    pub took: Duration,
    /// What was sent.
    pub bytes: Vec<u8>,
}

/// What the tasks share.
struct Shared {
    frames: Vec<Picture>,
    log: Log,
    state: State,
    device: Device,
    hand: OnceLock<RunHandle>,
    ground: Mutex<Vec<Sent>>,
    setup: Setup,
}

/// In which version a job is done.
#[derive(Clone, Copy)]
enum By {
    Cpu,
    Device,
}

impl Shared {
    /// Of frames that wait and are not looked at there are none: a frame that comes while the
    /// camera or the payload is off is gone.
    fn detect(self: &Arc<Shared>, frame: u32, by: By) -> Option<Seen> {
        let is_one = frame < self.setup.frames && self.state.is_on();
        let picture = self.frames.get(frame as usize).filter(|_| is_one)?;
        let position = self.state.position();
        let objects = match by {
            By::Cpu => detect::on_cpu(picture),
            By::Device => {
                let shared = Arc::clone(self);
                self.device.call(self.setup.costs.detect_by_device(), move || {
                    detect::on_accelerator(&shared.frames[frame as usize])
                })
            }
        };
        let boats = objects.iter().filter(|object| object.kind == Kind::Boat).count();
        if let Some(hand) = self.hand.get() {
            hand.change(Condition::Mode(MODES[usize::from(boats > mutate!("drone-mode", 0, 9))]));
        }
        let pictures = objects.iter().map(|_| OnceLock::new()).collect();
        let drifts = objects.iter().map(|_| OnceLock::new()).collect();
        Some(Seen { frame, position, objects, pictures, drifts })
    }

    fn highlight(self: &Arc<Shared>, (seen, number): &Token, by: By) {
        // A frame in which nothing is, is sent as well.
        let Some(&object) = seen.objects.get(*number) else { return };
        let frame = seen.frame as usize;
        let picture = match by {
            By::Cpu => highlight::on_cpu(&self.frames[frame], &object),
            By::Device => {
                let shared = Arc::clone(self);
                self.device.call(self.setup.costs.highlight_by_device(), move || {
                    highlight::on_accelerator(&shared.frames[frame], &object)
                })
            }
        };
        let _ = seen.pictures[*number].set(picture);
    }

    fn speed(self: &Arc<Shared>, (seen, number): &Token, by: By) {
        let Some(&object) = seen.objects.get(*number) else { return };
        let frame = seen.frame as usize;
        let Some(before) = frame.checked_sub(1) else { return };
        let drift = match by {
            By::Cpu => speed::on_cpu(&self.frames[before], &self.frames[frame], &object, PACE),
            By::Device => {
                let shared = Arc::clone(self);
                self.device.call(self.setup.costs.speed_by_device(), move || {
                    speed::on_accelerator(
                        &shared.frames[before],
                        &shared.frames[frame],
                        &object,
                        PACE,
                    )
                })
            }
        };
        let _ = seen.drifts[*number].set(drift);
    }

    fn send(&self, seen: &Seen, is_secure: bool) {
        let sighting = |(number, object): (usize, &Object)| Sighting {
            kind: object.kind,
            position: seen.position.of_pixel(object.x, object.y),
            drift: seen.drifts[number].get().copied().unwrap_or(Drift { x: 0, y: 0 }),
            picture: seen.pictures[number].get().expect("highlighted before").clone(),
        };
        let sightings = seen.objects.iter().enumerate().map(sighting).collect();
        let picture = self.frames[seen.frame as usize].clone();
        let alarm = Alarm { frame: seen.frame, sightings, picture };
        let bytes = if is_secure { alarm.encrypted(&KEY) } else { alarm.plain() };
        let came = self.setup.costs.period() * seen.frame;
        let now = self.hand.get().map_or(Duration::ZERO, RunHandle::now);
        let sent = Sent { frame: seen.frame, took: now.saturating_sub(came), bytes };
        self.ground.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
    }
}

/// The drone on the ground.
pub struct Drone {
    app: Application,
    shared: Arc<Shared>,
    /// Whose jobs' ends are those of frames.
    encode: TaskId,
    handler: TaskId,
}

/// What a flight was.
#[derive(Debug)]
pub struct Flown {
    /// When it began, on the machine's monotonic clock.
    pub began: Time,
    /// Of the runtime.
    pub report: Report,
    /// In the order in which it was sent.
    pub sent: Vec<Sent>,
    /// Messages that were sound, and those that were not.
    pub heard: [u32; 2],
    /// Frames sent late, of how many.
    pub frames: [u64; 2],
    /// Looks for messages that ended late, of how many.
    pub looks: [u64; 2],
}

impl Drone {
    /// Declares everything.
    ///
    /// # Panics
    /// If what lies in `data/` is spoiled.
    pub fn new(setup: Setup) -> Drone {
        let Setup { mapping, priorities, preemptive, versions, insist, costs, .. } = setup.clone();
        let cpus = setup.cpus.clone();
        let config = Config {
            mapping,
            priorities,
            preemptive,
            require_real_time: insist,
            cpus,
            ..Config::default()
        };
        let mut app = Application::new(Config { selection: Selection::Mode, ..config });
        let shared = Arc::new(Shared {
            frames: frames(),
            log: Log::read(include_bytes!("../data/flight.tlog")).expect("a recording"),
            state: State::default(),
            device: Device::start(&setup.cpus),
            hand: OnceLock::new(),
            ground: Mutex::new(Vec::with_capacity(setup.frames as usize)),
            setup,
        });
        let device = app.accelerator("device");
        let period = costs.period();
        // Under DM all of the graph has one deadline, and ties go to the first: what was begun is
        // brought to its end.
        let encode = app.task(Task::node("encode").core(0).backlog(ROOM));
        let highlight = app.task(Task::node("highlight").core(0).backlog(ROOM));
        let speed = app.task(Task::node("speed").core(1).backlog(ROOM));
        let detect = app.task(Task::periodic("detect", period).core(0).backlog(ROOM));
        let handler = app.task(Task::periodic("handler", period / 4).core(1));
        let (to_highlight, at_highlight) = app.channel::<Token>(detect, highlight, ROOM);
        let (to_speed, at_speed) = app.channel::<Token>(detect, speed, ROOM);
        let (from_highlight, highlighted) = app.channel::<Arc<Seen>>(highlight, encode, ROOM);
        let (from_speed, estimated) = app.channel::<Arc<Seen>>(speed, encode, ROOM);

        let mut ways = Ways { app: &mut app, versions, device };
        ways.add(detect, [costs.detect_by_device(), costs.detect], |by| {
            let (shared, outputs) = (Arc::clone(&shared), [to_highlight.clone(), to_speed.clone()]);
            move |job: &Job| {
                let Some(seen) = shared.detect(job.number as u32, by).map(Arc::new) else { return };
                for number in 0..seen.objects.len().max(1) {
                    for output in &outputs {
                        put(output, (Arc::clone(&seen), number));
                    }
                }
            }
        });
        ways.add(highlight, [costs.highlight_by_device(), costs.highlight], |by| {
            each(&shared, &at_highlight, &from_highlight, move |shared, token| {
                shared.highlight(token, by);
            })
        });
        ways.add(speed, [costs.speed_by_device(), costs.speed], |by| {
            each(&shared, &at_speed, &from_speed, move |shared, token| shared.speed(token, by))
        });
        for (name, mode, cost) in
            [("plain", MODES[0], costs.plain), ("encrypted", MODES[1], costs.encrypted)]
        {
            let (shared, inputs) = (Arc::clone(&shared), [highlighted.clone(), estimated.clone()]);
            app.version(encode, Version::new(name).modes(1 << mode).cost(cost), move |_: &Job| {
                let [Some(seen), Some(same)] = [inputs[0].pop(), inputs[1].pop()] else {
                    unreachable!("it comes for one of each")
                };
                assert!(Arc::ptr_eq(&seen, &same), "frames come in their order");
                shared.send(&seen, mode == MODES[1]);
            });
        }
        let mut next = 0;
        let of_handler = Arc::clone(&shared);
        app.version(handler, Version::new("only").cost(costs.messages), move |job: &Job| {
            let come = of_handler.log.until(next, LOOK * job.number as u32);
            of_handler.state.hear_all(come);
            next += come.len();
        });
        Drone { app, shared, encode, handler }
    }

    /// As it is declared.
    pub fn application(&self) -> &Application {
        &self.app
    }

    /// Flies the mission, and brings what was begun to its end.
    ///
    /// # Errors
    /// As [`Application::start`].
    pub fn fly(self) -> Result<Flown, Error> {
        let Drone { app, shared, encode, handler } = self;
        let tell = |hand| _ = shared.hand.set(hand);
        let running = app.start_with(tell).map_err(|not_started| not_started.error)?;
        let end = shared.setup.costs.period() * shared.setup.frames;
        std::thread::sleep(end);
        let flown = Span::from_ns(running.handle().now().as_nanos() as u64);
        let began = Time::from_ns(clock::now().as_ns().saturating_sub(flown.as_ns()));
        let (app, report) = running.stop()?;
        // The functions, and what they share, go with it.
        drop(app);
        let of = |task: TaskId| {
            [report.tasks[task.number()].deadline_misses, report.tasks[task.number()].jobs]
        };
        let (frames, looks) = (of(encode), of(handler));
        let sent =
            std::mem::take(&mut *shared.ground.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Flown { began, sent, heard: shared.state.heard(), frames, looks, report })
    }
}

/// All frames of the mission.
///
/// # Panics
/// If what lies in `data/` is spoiled.
pub fn frames() -> Vec<Picture> {
    Picture::read_all(include_bytes!("../data/sea.pgm")).expect("pictures")
}

fn put<T>(output: &Output<T>, value: T) {
    // Frames that wait are all of a mission at most; the report counts what did not fit.
    let _ = output.push(value);
}

/// A task whose jobs take a token each, and hand the frame on with its last object.
fn each<W: Fn(&Arc<Shared>, &Token)>(
    shared: &Arc<Shared>,
    input: &Input<Token>,
    output: &Output<Arc<Seen>>,
    work: W,
) -> impl FnMut(&Job) + use<W> {
    let (shared, input, output) = (Arc::clone(shared), input.clone(), output.clone());
    move |_: &Job| {
        let token = input.pop().expect("it comes for one");
        work(&shared, &token);
        let (seen, number) = token;
        if mutate!("drone-last-object", number + 1 == seen.objects.len().max(1), number == 0) {
            put(&output, seen);
        }
    }
}

/// Adds the versions that there are, the accelerator's first.
struct Ways<'a> {
    app: &'a mut Application,
    versions: Versions,
    device: Accelerator,
}

impl Ways<'_> {
    fn add<F: FnMut(&Job) + Send + 'static>(
        &mut self,
        task: TaskId,
        [by_device, by_cpu]: [Duration; 2],
        function: impl Fn(By) -> F,
    ) {
        if self.versions != Versions::Cpu {
            let version = self.app.version(
                task,
                Version::new("device").cost(by_device),
                function(By::Device),
            );
            self.app.uses(version, self.device);
        }
        if self.versions != Versions::Accelerator {
            self.app.version(task, Version::new("cpu").cost(by_cpu), function(By::Cpu));
        }
    }
}
