//! Code of `docs/manual/runtime.md` as a program; a test compares the two.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use talea_runtime::{
    Application, Config, DeviceWait, Priorities, Server, Table, Task, Version, first_cpus,
    wait_for_device,
};

const MS: Duration = Duration::from_millis(1);

/// Number of displayed frames.
static SHOWN: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);

struct Frame(u64);

impl Frame {
    fn next() -> Frame {
        Frame(TAKEN.fetch_add(1, Ordering::Relaxed))
    }
}

fn half(frame: Option<Frame>) {
    assert!(frame.expect("it comes for one").0 < TAKEN.load(Ordering::Relaxed));
}

fn on_gpu(frame: Option<Frame>) {
    half(frame);
}

fn on_cpu(frame: Option<Frame>) {
    half(frame);
}

fn other_half() {}

fn show() {
    SHOWN.fetch_add(1, Ordering::Release);
}

fn fork_and_join() -> Result<(), Box<dyn Error>> {
    let mut app = Application::new(Config { cpus: first_cpus(2)?, ..Config::default() });
    let gpu = app.accelerator("gpu");
    let fork = app.task(Task::periodic("fork", Duration::from_millis(25)));
    let left = app.task(Task::node("left"));
    let right = app.task(Task::node("right"));
    let join = app.task(Task::node("join"));
    let (to_left, at_left) = app.channel::<Frame>(fork, left, 1);
    app.edge(fork, right);
    app.edge(left, join);
    app.edge(right, join);

    app.version(fork, "plain", move |_| drop(to_left.push(Frame::next())));
    let fast = app.version(left, "gpu", {
        let at = at_left.clone();
        move |_| on_gpu(at.pop())
    });
    app.uses(fast, gpu);
    app.version(left, "cpu", move |_| on_cpu(at_left.pop()));
    app.version(right, "plain", |_| other_half());
    app.version(join, "plain", |_| show());

    let running = app.start()?;
    for _ in 0..2_000 {
        if SHOWN.load(Ordering::Acquire) >= 8 {
            break;
        }
        std::thread::sleep(5 * MS);
    }
    let (app, report) = running.stop()?;
    println!(
        "{} of {} frames late",
        report.tasks[join.number()].deadline_misses,
        report.tasks[join.number()].jobs
    );
    drop(app);
    Ok(())
}

/// Device: a thread that answers requests.
struct Device {
    requests: Sender<()>,
    answers: Receiver<()>,
}

impl Device {
    fn new() -> Device {
        let ((requests, requested), (answer, answers)) = (channel(), channel());
        std::thread::spawn(move || requested.iter().try_for_each(|()| answer.send(())));
        Device { requests, answers }
    }

    fn start(&self) {
        self.requests.send(()).expect("the device lives");
    }

    fn read(&self) {
        self.answers.recv().expect("the device lives");
        SHOWN.fetch_add(1, Ordering::Release);
    }
}

fn waits() -> Result<(), Box<dyn Error>> {
    let mut app = Application::new(Config::default());
    let left = app.task(Task::periodic("left", 5 * MS));
    let device = Device::new();
    let on_gpu = Version::new("gpu").cost(2 * MS).waits(6 * MS, DeviceWait::Free);
    app.version(left, on_gpu, move |_| {
        device.start();
        wait_for_device(|| device.read());
    });
    let before = SHOWN.load(Ordering::Acquire);
    let running = app.start()?;
    for _ in 0..2_000 {
        if SHOWN.load(Ordering::Acquire) > before {
            break;
        }
        std::thread::sleep(5 * MS);
    }
    running.stop()?;
    if SHOWN.load(Ordering::Acquire) == before {
        Err("no answer of the device".into())
    } else {
        Ok(())
    }
}

fn policy() -> Result<Application, Box<dyn Error>> {
    let priorities = Priorities::Custom { name: "edf-us", make: policy_edf_us::make };
    let mut app =
        Application::new(Config { priorities, cpus: first_cpus(2)?, ..Config::default() });
    let task = app.task(Task::periodic("task", 20 * MS));
    app.version(task, Version::new("plain").cost(MS), |_| {});
    app.describe()?;
    Ok(app)
}

fn server(mut app: Application) {
    let server = app.server(Server::deferrable("requests", 2 * MS, 10 * MS));
    let request = app.task(Task::activated("request", 100 * MS).served_by(server));
    app.version(request, "plain", |_| {});
}

fn table() -> Result<(), Box<dyn Error>> {
    let mut app = Application::new(Config { cpus: first_cpus(2)?, ..Config::default() });
    let [fork, left] = ["fork", "left"].map(|name| app.task(Task::periodic(name, 20 * MS)));
    app.version(fork, Version::new("plain").cost(5 * MS), |_| {});
    let fast = app.version(left, Version::new("gpu").cost(8 * MS), |_| {});
    let table = Table::new(20 * MS)
        .entry(0, Duration::ZERO, 5 * MS, fork)
        .entry(1, 5 * MS, 8 * MS, left)
        .in_version(fast);
    app.set_table(Some(table));
    let text = app.describe()?;
    app.set_table(Some(app.read_table(&text)?));
    Ok(())
}

/// Runs all programs of the chapter.
pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    fork_and_join()?;
    waits()?;
    server(policy()?);
    table()
}
