//! Graphs and channels.

use crate::{MS, run, stopped};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use talea_kernel_tests::{Bench, kernel, needs};
use talea_runtime::{Application, Config, Mapping, Priorities, Task};

/// Builds a fork, two halves and a join that counts its jobs (listing 1 of the paper). One of the
/// halves has two versions.
fn fork_join(config: Config) -> (Application, Arc<AtomicU64>) {
    let mut app = Application::new(config);
    let joined = Arc::new(AtomicU64::new(0));
    let gpu = app.accelerator("gpu");
    let fork = app.task(Task::periodic("fork", 5 * MS));
    let left = app.task(Task::node("left"));
    let right = app.task(Task::node("right").core(1));
    let join = app.task(Task::node("join").core(1));
    // Room for a CPU stall of a third of a second.
    let (to_left, at_left) = app.channel::<u64>(fork, left, 64);
    let (from_left, at_join) = app.channel::<u64>(left, join, 64);
    app.edge(fork, right);
    app.edge(right, join);
    app.version(fork, "plain", move |job| to_left.push(job.number).expect("room"));
    let (first, second) = ((at_left.clone(), from_left.clone()), (at_left, from_left));
    let on_gpu = app.version(left, "gpu", move |_| {
        first.1.push(first.0.pop().expect("what fork has put") * 3).expect("room");
    });
    app.uses(on_gpu, gpu);
    app.version(left, "cpu", move |_| {
        second.1.push(second.0.pop().expect("a number") * 3).expect("room");
    });
    app.version(right, "plain", |_| {});
    app.version(join, "plain", {
        let joined = Arc::clone(&joined);
        move |job| {
            assert_eq!(at_join.pop(), Some(job.number * 3));
            joined.fetch_add(1, Ordering::Relaxed);
        }
    });
    (app, joined)
}

#[test]
fn y1_y5_y9_fork_and_join_run_end_to_end_under_every_policy_and_mapping() {
    let _bench = Bench::new("runtime_graphs");
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    needs!("two CPUs", cpus.len() == 2);
    let policies = [
        Priorities::Edf,
        Priorities::RateMonotonic,
        Priorities::DeadlineMonotonic,
        Priorities::User,
    ];
    for priorities in policies {
        for mapping in [Mapping::Global, Mapping::Partitioned] {
            for preemptive in [true, false] {
                let config = Config {
                    priorities,
                    mapping,
                    preemptive,
                    cpus: cpus.clone(),
                    ..Config::default()
                };
                let (app, joined) = fork_join(config.clone());
                let (_, report) = run(app, "ten joins", || joined.load(Ordering::Relaxed) >= 10);
                let jobs: Vec<u64> = report.tasks.iter().map(|task| task.jobs).collect();
                assert_eq!(jobs, [jobs[0]; 4], "what has come is done: {config:?}");
                assert_eq!(jobs[0], joined.load(Ordering::Relaxed));
                assert_eq!((report.rejected_pushes, report.failed_pops), (0, 0));
                let panics: u64 = report.tasks.iter().map(|task| task.panics).sum();
                assert_eq!(panics, 0, "{report:?}");
            }
        }
    }
}

#[test]
fn y9_a_pipeline_keeps_the_order_and_loses_nothing() {
    // A thousand at a period of 20 ms take twenty seconds.
    let is_soak = std::env::var_os("TALEA_SOAK").is_some();
    let (jobs, period) = if is_soak { (1_000, 20 * MS) } else { (500, 2 * MS) };
    let _bench = Bench::new("runtime_pipeline");
    let mut app = Application::new(Config::default());
    // Twice as much room as data, however long the CPU stalls.
    let room = 2 * jobs;
    let source = app.task(Task::periodic("source", period).backlog(room));
    let (middle, sink) =
        ["middle", "sink"].map(|name| app.task(Task::node(name).backlog(room))).into();
    let (put, take) = app.channel::<u64>(source, middle, room);
    let (put_on, take_on) = app.channel::<u64>(middle, sink, room);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (all, done) = channel();
    app.version(source, "plain", move |job| put.push(job.number).expect("room"));
    app.version(middle, "plain", move |_| {
        put_on.push(take.pop().expect("it came for one")).expect("room");
    });
    app.version(sink, "plain", {
        let seen = Arc::clone(&seen);
        move |_| {
            let mut seen = seen.lock().expect("whole");
            seen.push(take_on.pop().expect("it came for one"));
            if seen.len() == jobs as usize {
                all.send(()).expect("it is waited for");
            }
        }
    });
    let running = app.start().expect("it can be run");
    done.recv_timeout(period * jobs + Duration::from_mins(1)).expect("all of them come");
    let (_, report) = stopped(running);
    let seen = seen.lock().expect("whole");
    assert!(seen.iter().copied().eq(0..seen.len() as u64), "each once, in order: {seen:?}");
    assert_eq!(
        report.tasks.iter().map(|task| task.jobs).collect::<Vec<_>>(),
        [seen.len() as u64; 3]
    );
    let panics: u64 = report.tasks.iter().map(|task| task.panics).sum();
    assert_eq!(
        (report.rejected_pushes, report.failed_pops, report.refused, panics),
        (0, 0, 0, 0),
        "{report:?}"
    );
}

#[test]
fn y10_pushes_to_a_full_channel_and_pops_from_an_empty_one_fail_and_are_counted() {
    let _bench = Bench::new("runtime_channels");
    let mut app = Application::new(Config::default());
    let source = app.task(Task::periodic("source", 4 * MS));
    let sink = app.task(Task::node("sink"));
    // Each datum activates the sink, and there are two at a time.
    let (put, take) = app.channel::<u32>(source, sink, 2);
    let ends = Arc::new(AtomicU64::new(0));
    app.version(source, "plain", move |_| {
        assert_eq!(put.push(1), Ok(()));
        assert_eq!(put.push(2), Ok(()));
        assert_eq!(put.push(3), Err(3), "there is room for two");
    });
    app.version(sink, "plain", {
        let ends = Arc::clone(&ends);
        let mut next = 1;
        move |_| {
            assert_eq!(take.pop(), Some(next));
            next = 3 - next;
            if next == 1 {
                assert_eq!(take.pop(), None);
            }
            ends.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (_, report) = run(app, "20 ends", || ends.load(Ordering::Relaxed) >= 20);
    let [source, sink] = &report.tasks[..] else { panic!("two tasks") };
    if source.panics + sink.panics == 0 {
        assert_eq!((report.rejected_pushes, report.failed_pops), (source.jobs, sink.jobs / 2));
        assert_eq!(sink.jobs, 2 * source.jobs);
    } else {
        // After a CPU stall of a period the channel was full when the next job started.
        assert!(report.rejected_pushes > source.jobs, "{report:?}");
    }
}

#[test]
fn y9_y14_activations_before_the_stop_complete_and_those_without_room_are_counted() {
    let _bench = Bench::new("runtime_refused");
    let mut app = Application::new(Config::default());
    let (source, sink) =
        (app.task(Task::activated("source", 500 * MS)), app.task(Task::node("sink").backlog(0)));
    let (put, take) = app.channel::<u32>(source, sink, 4);
    app.version(source, "plain", move |_| {
        (0..3).for_each(|datum| put.push(datum).expect("room for four"));
    });
    app.version(sink, "plain", move |_| assert_eq!(take.pop(), Some(0)));
    let running = app.start().expect("it can be run");
    assert!(running.activate(source));
    let (_, report) = stopped(running);
    let jobs: Vec<(u64, u64)> = report.tasks.iter().map(|task| (task.jobs, task.panics)).collect();
    // Three data, one job for the first: there is no backlog for the others.
    assert_eq!((jobs, report.refused), (vec![(1, 0), (1, 0)], 2));
}

/// CPU time of `code` in nanoseconds.
fn cpu_time(code: impl FnOnce()) -> u64 {
    let begin = talea_os::clock::thread_cpu_time().as_ns();
    code();
    talea_os::clock::thread_cpu_time().as_ns() - begin
}

#[test]
fn y16_a_push_costs_little_more_than_that_to_a_locked_queue() {
    const PUSHES: u32 = 200;
    let _bench = Bench::new("runtime_channel_cost");
    let mut app = Application::new(Config::default());
    let source = app.task(Task::periodic("source", 50 * MS));
    let sink = app.task(Task::node("sink").backlog(PUSHES));
    let (put, take) = app.channel::<u32>(source, sink, PUSHES);
    // Thousandths of the cost of the queue: the smallest of all jobs.
    let least = Arc::new(AtomicU64::new(u64::MAX));
    let jobs = Arc::new(AtomicU64::new(0));
    app.version(source, "plain", {
        let (least, jobs) = (Arc::clone(&least), Arc::clone(&jobs));
        let queue = Mutex::new(std::collections::VecDeque::with_capacity(PUSHES as usize));
        move |_| {
            let mut pushed = 0;
            let ours = cpu_time(|| {
                pushed = (0..PUSHES).filter(|&datum| put.push(datum).is_ok()).count();
            });
            let by_hand = cpu_time(|| {
                (0..PUSHES).for_each(|datum| queue.lock().expect("no panic").push_back(datum));
            });
            queue.lock().expect("no panic").clear();
            if pushed == PUSHES as usize {
                least.fetch_min(ours * 1_000 / by_hand.max(1), Ordering::Relaxed);
                jobs.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    app.version(sink, "plain", move |_| while take.pop().is_some() {});
    let _ = run(app, "8 jobs", || jobs.load(Ordering::Relaxed) >= 8);
    let least = least.load(Ordering::Relaxed);
    println!("a push costs {least} thousandths of one to a locked queue");
    assert!(least < 5_000, "{least} thousandths");
}
