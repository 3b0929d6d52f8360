//! Worst case of a single request: a new period between existing ones, for which threads must
//! change their levels.

use super::placement::{Cpus, MeasuringThread};
use super::request::granted;
use super::samples::{Samples, Summary};
use super::server::{LabServer, Shape};
use super::tasks::Kind;
use anyhow::Context;
use serde::Serialize;
use std::sync::mpsc;
use std::thread::JoinHandle;
use talea_client::Spec;
use talea_core::rng::Rng;
use talea_core::{CpuSet, Params, Span, Work};
use talea_os::{Tid, sched};
use talea_proto::Task;

/// Measurements of requests that change the levels of attached threads.
#[derive(Debug, Serialize)]
pub(super) struct Reapplication {
    /// Number of threads that were attached beforehand.
    pub(super) attached: usize,
    pub(super) create: Summary,
    pub(super) release: Summary,
    /// Largest number of threads whose kernel priority one create changed.
    pub(super) most_moved: usize,
}

/// Number of periods in use: all levels but one. A new period between two others finds no free
/// level, so its neighbours must move.
const PERIODS: u64 = super::server::LEVELS - 1;

/// Measures creates under `rm` on one CPU, with `count` threads attached.
pub(super) fn measure(cpus: Cpus, count: usize) -> anyhow::Result<Reapplication> {
    let server =
        LabServer::start(Shape { kind: Kind::Rm, instances: 1, declared: None }, cpus.server)?;
    let client = server.client()?;
    let mut sleepers = Vec::with_capacity(count);
    let mut grants = Vec::with_capacity(count);
    for number in 0..count as u64 {
        let sleeper = Sleeper::start()?;
        let grant = granted(client.create(&spec(cpus.client, 20_000 * (1 + number % PERIODS))))?;
        granted(grant.attach(sleeper.tid().as_raw() as u32))?;
        sleepers.push(sleeper);
        grants.push(grant);
    }
    let _measuring = MeasuringThread::set_up(cpus)?;
    let mut random = Rng::new(7);
    let (mut create, mut release) = (Samples::default(), Samples::default());
    let mut most_moved = 0;
    for _ in 0..count.clamp(10, 200) {
        let between = spec(cpus.client, 20_000 * random.between(1, PERIODS - 1) + 10_000);
        let before = priorities(&sleepers)?;
        let grant = create.time(|| granted(client.create(&between)))?;
        let moved = before.iter().zip(priorities(&sleepers)?).filter(|(a, b)| **a != *b).count();
        most_moved = most_moved.max(moved);
        release.time(|| granted(grant.release()))?;
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Ok(Reapplication {
        attached: count,
        create: create.summary(),
        release: release.summary(),
        most_moved,
    })
}

fn spec(cpu: u32, period_us: u64) -> Spec {
    let params = Params {
        period: Span::from_us(period_us),
        runtime: Some(Work::from_ns(1_024)),
        ..Params::default()
    };
    Spec::from_task(Task {
        params,
        cpus: CpuSet::single(cpu),
        cpus_mandatory: true,
        ..Task::default()
    })
}

fn priorities(sleepers: &[Sleeper]) -> anyhow::Result<Vec<sched::Attr>> {
    sleepers
        .iter()
        .map(|sleeper| sched::get(sleeper.tid()).context("a sleeping thread is gone"))
        .collect()
}

/// Thread that sleeps until the value is dropped.
pub(super) struct Sleeper {
    tid: Tid,
    wake: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Sleeper {
    pub(super) fn start() -> anyhow::Result<Sleeper> {
        let (sender, receiver) = mpsc::channel();
        let (wake, sleep) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || {
            // Without a receiver, or without a sender of the wake-up, the thread ends.
            if sender.send(Tid::current()).is_ok() {
                let _ = sleep.recv();
            }
        })?;
        let tid = receiver.recv().context("a thread that did not start")?;
        Ok(Sleeper { tid, wake: Some(wake), thread: Some(thread) })
    }

    pub(super) fn tid(&self) -> Tid {
        self.tid
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // The thread has no reason to panic.
            let _ = thread.join();
        }
    }
}
