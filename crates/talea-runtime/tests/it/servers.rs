//! Servers and clusters: tasks of a server have no more than its budget, and tasks with cores run
//! nowhere else.

use crate::{MS, one_of_some, run, stopped};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use talea_core::Work;
use talea_kernel_tests::{Bench, eventually, kernel, needs};
use talea_os::{Tid, clock, sched};
use talea_runtime::{Application, Config, Error, Mapping, Priorities, Server, Task, TaskId};

const PERIOD: Duration = Duration::from_millis(10);
/// Work of an activated job: ten budgets.
const WORK: Duration = Duration::from_millis(20);

/// Consumes CPU time.
fn spend(work: Duration) {
    let end = clock::thread_cpu_time() + Work::from_ns(work.as_nanos() as u64);
    while clock::thread_cpu_time() < end {
        std::hint::spin_loop();
    }
}

/// Runs two activated jobs behind a server, above a periodic task. Returns the duration of each
/// job, and the number of periodic jobs that ended meanwhile.
fn served(
    server: fn(&str, Duration, Duration) -> Server,
    priorities: Priorities,
) -> Vec<(Duration, u64)> {
    let mut app = Application::new(Config { priorities, ..Config::default() });
    // Without a budget its jobs would keep the CPU until they end.
    let server = app.server(server("requests", 2 * MS, PERIOD).priority(9));
    let asked = app.task(Task::activated("asked", 1_000 * MS).served_by(server));
    let regular = app.task(Task::periodic("regular", PERIOD).priority(1));
    let (ends, regulars) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
    app.version(asked, "only", {
        let (ends, regulars) = (Arc::clone(&ends), Arc::clone(&regulars));
        move |_| {
            let (begin, before) = (Instant::now(), regulars.load(Ordering::Acquire));
            spend(WORK);
            let between = regulars.load(Ordering::Acquire) - before;
            ends.lock().expect("whole").push((begin.elapsed(), between));
        }
    });
    app.version(regular, "only", {
        let regulars = Arc::clone(&regulars);
        move |_| _ = regulars.fetch_add(1, Ordering::Release)
    });
    let running = app.start().expect("it can be run");
    (0..2).for_each(|_| assert!(running.activate(asked)));
    eventually("both", || ends.lock().expect("whole").len() == 2);
    stopped(running);
    ends.lock().expect("whole").clone()
}

#[test]
fn y13_an_activated_job_has_the_budget_of_its_server_and_the_others_their_cpu() {
    let _bench = Bench::new("runtime_server");
    let servers: [fn(&str, Duration, Duration) -> Server; 4] =
        [Server::deferrable, Server::polling, Server::sporadic, Server::bandwidth];
    for (number, server) in servers.into_iter().enumerate() {
        let priorities = if number == 3 { Priorities::Edf } else { Priorities::User };
        let mut seen = Vec::new();
        // In a CPU stall the thread's clock may go on, and a job has less to do than its cost.
        let is_kept = one_of_some(|| {
            seen = served(server, priorities);
            // Ten budgets: at least eight whole periods lie between the first and the last, and not
            // twice as many.
            let is_served = |took| (8 * PERIOD..16 * PERIOD).contains(&took);
            seen.iter().all(|&(took, between)| is_served(took) && between >= 5)
        });
        assert!(is_kept, "{number}: {WORK:?} of work, and regular jobs beside it: {seen:?}");
    }
}

#[test]
fn y5_tasks_of_clusters_run_on_their_cores_and_nowhere_else() {
    let _bench = Bench::new("runtime_clusters");
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    needs!("two CPUs", cpus.len() == 2);
    let mut app = Application::new(Config {
        mapping: Mapping::Clustered,
        cpus: cpus.clone(),
        ..Config::default()
    });
    let server = app.server(Server::deferrable("server", 2 * MS, PERIOD).cores([1]));
    let tasks = [
        Task::periodic("first", 4 * MS).cores([0]),
        Task::periodic("second", 4 * MS).cores([1]),
        Task::periodic("any", 4 * MS),
        Task::periodic("both", 4 * MS).cores([0, 1]),
        Task::periodic("served", PERIOD).served_by(server),
    ];
    let seen: Arc<Mutex<[BTreeSet<u32>; 5]>> = Arc::default();
    let counts: Arc<[AtomicU64; 5]> = Arc::default();
    for (at, task) in tasks.into_iter().enumerate() {
        let (seen, counts, task) = (Arc::clone(&seen), Arc::clone(&counts), app.task(task));
        app.version(task, "only", move |_| {
            let own = sched::get_affinity(Tid::current()).expect("it is here");
            seen.lock().expect("whole")[at].extend(own.iter());
            counts[at].fetch_add(1, Ordering::Release);
        });
    }
    run(app, "jobs of all", || counts.iter().all(|count| count.load(Ordering::Acquire) >= 10));
    let seen = seen.lock().expect("whole");
    let only = |cpu: u32| BTreeSet::from([cpu]);
    assert_eq!((&seen[0], &seen[1], &seen[4]), (&only(cpus[0]), &only(cpus[1]), &only(cpus[1])));
    assert!(seen.iter().all(|seen| seen.iter().all(|cpu| cpus.contains(cpu))), "{seen:?}");
}

#[test]
fn invalid_servers_are_refused_and_named() {
    let mut app = Application::new(Config::default());
    let server = app.server(Server::deferrable("greedy", 20 * MS, PERIOD));
    let task = app.task(Task::activated("asked", PERIOD).served_by(server));
    app.version(task, "only", |_| {});
    match app.start() {
        Err(Error::Declared(why)) => assert!(why.starts_with("server greedy:"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn l23_y13_a_server_that_is_joined_and_replaced_has_its_new_budget() {
    let _bench = Bench::new("runtime_server_anew");
    let ends: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let mut app = Application::new(Config { priorities: Priorities::User, ..Config::default() });
    let server = app.server(Server::deferrable("requests", 2 * MS, PERIOD).priority(9));
    let client = |app: &mut Application, name: &str| {
        let task = app.task(Task::activated(name, 1_000 * MS).served_by(server));
        let ends = Arc::clone(&ends);
        app.version(task, "only", move |_| {
            spend(WORK);
            ends.lock().expect("whole").push(Instant::now());
        });
        task
    };
    let mut clients = vec![client(&mut app, "first")];
    // From the activation of all of them until the last one has ended.
    let took = |app: Application, clients: &[TaskId]| {
        ends.lock().expect("whole").clear();
        let running = app.start().expect("it can be run");
        let begin = Instant::now();
        for task in clients {
            assert!(running.activate(*task));
        }
        eventually("all", || ends.lock().expect("whole").len() == clients.len());
        let last =
            ends.lock().expect("whole").iter().max().map_or(Duration::ZERO, |end| *end - begin);
        (stopped(running).0, last)
    };
    // Number of clients, and budget: whole periods that lie between the first budget and the last
    // at least; with the larger budget fewer than those, without a CPU stall.
    const ANY: u32 = 10_000;
    for (count, budget, least, most) in
        [(1, 2, 8, ANY), (1, 8, 1, 7), (2, 8, 3, 17), (2, 2, 18, ANY)]
    {
        if clients.len() < count {
            clients.push(client(&mut app, "second"));
        }
        app.replace_server(server, Server::deferrable("requests", budget * MS, PERIOD).priority(9));
        let (mut seen, mut given) = (Vec::new(), Some(app));
        let is_so = one_of_some(|| {
            let (back, took) = took(given.take().expect("it comes back each time"), &clients);
            given = Some(back);
            seen.push(took);
            took >= least * PERIOD && took <= most * PERIOD
        });
        assert!(is_so, "{count} with {budget} ms: {seen:?}");
        app = given.expect("it came back");
    }
}
