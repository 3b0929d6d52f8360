//! A million items between two producers and two consumers on two CPUs: failed pushes are reported,
//! and no item is lost.

use crate::{MS, stopped};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use talea_kernel_tests::{Bench, kernel, needs};
use talea_runtime::{Application, Config, Input, Output, RunHandle, Task, TaskId};

const ITEMS: u64 = 1_000_000;
const ROOM: u32 = 256;
/// Items that activate a consumer.
const BATCH: u32 = 64;
/// Minimum number of items that arrive: at most `ROOM` items are left in each of four channels.
const ALMOST: u64 = ITEMS - 4 * ROOM as u64;

/// Channels of a producer, with the next number of each.
struct Producer {
    channels: Vec<(Output<u64>, u64)>,
    turned_away: u64,
}

impl Producer {
    /// Pushes until all channels are full. Returns the number of pushed items.
    fn fill(&mut self) -> u64 {
        let mut put = 0;
        for (channel, next) in &mut self.channels {
            while channel.push(*next).is_ok() {
                *next += 1;
                put += 1;
            }
            self.turned_away += 1;
        }
        put
    }
}

/// Channels of a consumer, with the expected next number of each.
struct Consumer {
    channels: Vec<(Input<u64>, u64)>,
}

impl Consumer {
    /// Pops until all channels are empty. Returns the number of items, and of failed pops.
    fn drain(&mut self) -> (u64, u64) {
        let (mut taken, mut none) = (0, 0);
        for (channel, due) in &mut self.channels {
            while let Some(item) = channel.pop() {
                assert_eq!(item, *due, "each once, in order");
                *due += 1;
                taken += 1;
            }
            none += 1;
        }
        (taken, none)
    }
}

#[test]
fn y10_a_million_items_of_two_producers_reach_two_consumers_each_once_and_in_order() {
    let _bench = Bench::new("runtime_stress");
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    needs!("two CPUs", cpus.len() == 2);
    let mut app = Application::new(Config { cpus, ..Config::default() });
    let producers = ["p0", "p1"].map(|name| app.task(Task::activated(name, 50 * MS).backlog(4)));
    let consumers = ["c0", "c1"].map(|name| app.task(Task::node(name).backlog(64)));
    let counts: [Arc<AtomicU64>; 4] = Default::default();
    let [put, taken, full, empty] = &counts;
    let handle = Arc::new(OnceLock::<RunHandle>::new());
    let (enough, done) = channel();
    let mut takers = [Vec::new(), Vec::new()];
    for from in producers {
        let mut producer = Producer { channels: Vec::new(), turned_away: 0 };
        for (to, takers) in consumers.iter().zip(&mut takers) {
            let (output, input) = app.channel_of::<u64>(from, *to, ROOM, BATCH);
            producer.channels.push((output, 0));
            takers.push((input, 0));
        }
        let (put, full, handle) = (Arc::clone(put), Arc::clone(full), Arc::clone(&handle));
        app.version(from, "only", move |_| {
            let more = put.fetch_add(producer.fill(), Ordering::Relaxed) < ITEMS;
            full.fetch_add(std::mem::take(&mut producer.turned_away), Ordering::Relaxed);
            again(&handle, from, more);
        });
    }
    for (to, channels) in consumers.into_iter().zip(takers) {
        let (taken, empty, enough) = (Arc::clone(taken), Arc::clone(empty), enough.clone());
        let mut consumer = Consumer { channels };
        app.version(to, "only", move |_| {
            let (items, none) = consumer.drain();
            empty.fetch_add(none, Ordering::Relaxed);
            let before = taken.fetch_add(items, Ordering::Release);
            if (before..before + items).contains(&ALMOST) {
                enough.send(()).expect("it is waited for");
            }
        });
    }
    let running =
        app.start_with(|reported| handle.set(reported).expect("once")).expect("it can be run");
    for producer in producers {
        assert!(running.activate(producer));
    }
    done.recv_timeout(Duration::from_mins(1)).unwrap_or_else(|_| panic!("stuck: {counts:?}"));
    let (_, report) = stopped(running);
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!(
        report.tasks.iter().map(|task| task.panics).sum::<u64>(),
        0,
        "each once: {report:?}"
    );
    assert!(of(put) >= ITEMS && of(put) - of(taken) <= 4 * u64::from(ROOM), "{counts:?}");
    assert_eq!(
        (report.rejected_pushes, report.failed_pops),
        (of(full), of(empty)),
        "both are counted: {report:?}"
    );
    assert!(report.rejected_pushes > 0 && report.failed_pops > 0, "both have happened: {report:?}");
}

/// Activates the next job of `task` if `more` is true.
fn again(handle: &OnceLock<RunHandle>, task: TaskId, more: bool) {
    if more && let Some(handle) = handle.get() {
        handle.activate(task);
    }
}
