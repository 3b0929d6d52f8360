//! A million items between two producers and two consumers on two CPUs: what is not taken is told
//! to whoever puts, and nothing else is lost.

use crate::{MS, stopped};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use talea_kernel_tests::{Bench, kernel, needs};
use talea_runtime::{Application, Config, Hand, Input, Output, Task, TaskId};

const ITEMS: u64 = 1_000_000;
const ROOM: u32 = 256;
/// Of which so many activate a consumer.
const BATCH: u32 = 64;
/// What is left in the end is less than what activates somebody, in each of four channels.
const ALMOST: u64 = ITEMS - 4 * ROOM as u64;

/// The next number of each of a producer's channels, put until there is no room.
struct Producer {
    channels: Vec<(Output<u64>, u64)>,
    turned_away: u64,
}

impl Producer {
    /// As much as there is room for, and how much that was.
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

/// What is due next from each producer.
struct Consumer {
    channels: Vec<(Input<u64>, u64)>,
}

impl Consumer {
    /// Takes until there is nothing; how much was taken, and how often there was nothing.
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
    let hand = Arc::new(OnceLock::<Hand>::new());
    let (enough, done) = channel();
    let mut takers = [Vec::new(), Vec::new()];
    for from in producers {
        let mut producer = Producer { channels: Vec::new(), turned_away: 0 };
        for (to, takers) in consumers.iter().zip(&mut takers) {
            let (output, input) = app.channel_of::<u64>(from, *to, ROOM, BATCH);
            producer.channels.push((output, 0));
            takers.push((input, 0));
        }
        let (put, full, hand) = (Arc::clone(put), Arc::clone(full), Arc::clone(&hand));
        app.version(from, "only", move |_| {
            let more = put.fetch_add(producer.fill(), Ordering::Relaxed) < ITEMS;
            full.fetch_add(std::mem::take(&mut producer.turned_away), Ordering::Relaxed);
            again(&hand, from, more);
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
    let running = app.start_telling(|told| hand.set(told).expect("once")).expect("it can be run");
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
    assert_eq!((report.full, report.empty), (of(full), of(empty)), "both are counted: {report:?}");
    assert!(report.full > 0 && report.empty > 0, "both have happened: {report:?}");
}

/// One job asks for the next.
fn again(hand: &OnceLock<Hand>, task: TaskId, more: bool) {
    if more && let Some(hand) = hand.get() {
        hand.activate(task);
    }
}
