//! Real-time priorities from the daemon for an ordinary user: real `talead`, real user, policies
//! read from the kernel.

use crate::{MS, stopped, user};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use talea_client::Spec;
use talea_kernel_tests::{ALICE, Bench, Daemon, config, eventually, kernel, needs, needs_root};
use talea_os::{Tid, sched};
use talea_runtime::{
    Application, Config, Error, Mapping, Policy, Priorities, Report, Rights, Task, TaskId,
};

/// Returns a client of root.
fn root(daemon: &Daemon) -> talea_client::Client {
    talea_client::Client::builder().path(daemon.socket()).connect().expect("a daemon")
}

fn level(policy: Policy) -> u8 {
    match policy {
        Policy::Fifo(priority) | Policy::Rr(priority) => priority,
        other => panic!("an ordinary thread: {other:?}"),
    }
}

/// Checks by the policies in the kernel that every dispatcher is above every worker.
fn must_be_real_time(report: &Report) {
    assert!(report.is_real_time, "{report:?}");
    assert_eq!((report.rights, &report.rights_error), (Rights::Daemon, &None));
    let workers = report.tasks.iter().map(|task| level(task.policy.expect("it was read")));
    let most = workers.max().expect("tasks");
    assert!(report.dispatchers.iter().all(|&policy| level(policy) > most), "{report:?}");
}

/// Application with a long job that short jobs preempt, independent of the kernel's order of equal
/// priorities: on one CPU.
struct Interrupted {
    app: Application,
    /// Largest number of short jobs that ended during a long one.
    seen: Arc<AtomicU64>,
    policies: Arc<Mutex<Vec<Policy>>>,
    long: TaskId,
}

fn interrupted(config: Config) -> Interrupted {
    let mut app = Application::new(Config { priorities: Priorities::User, ..config });
    let (short, long) = (
        app.task(Task::periodic("short", 5 * MS).priority(2)),
        app.task(Task::periodic("long", 60 * MS).priority(1)),
    );
    let (shorts, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let policies = Arc::new(Mutex::new(Vec::new()));
    app.version(short, "only", {
        let shorts = Arc::clone(&shorts);
        move |_| _ = shorts.fetch_add(1, Ordering::AcqRel)
    });
    app.version(long, "only", {
        let (seen, policies) = (Arc::clone(&seen), Arc::clone(&policies));
        move |_| {
            let own = sched::get(Tid::current()).expect("it is here").policy;
            policies.lock().expect("whole").push(own);
            let (before, end) = (shorts.load(Ordering::Acquire), Instant::now() + 30 * MS);
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            seen.fetch_max(shorts.load(Ordering::Acquire) - before, Ordering::AcqRel);
        }
    });
    Interrupted { app, seen, policies, long }
}

#[test]
fn y22_an_ordinary_user_gets_real_time_from_the_daemon_and_jobs_are_preempted() {
    if !user::is_it() {
        needs_root!();
        let bench = Bench::new("runtime_granted");
        let daemon = Daemon::start(&bench, &config::open());
        let name =
            "rights::y22_an_ordinary_user_gets_real_time_from_the_daemon_and_jobs_are_preempted";
        let said = user::must_pass(&bench, name, Some(daemon.socket()));
        assert!(!said.contains("without real-time priorities"), "{said}");
        let left = root(&daemon).list().expect("an answer").expect("a list");
        assert!(left.is_empty(), "everything was given back: {left:?}");
        return;
    }
    for _ in 0..2 {
        // The other plugin would give the CPU to a short job by itself, at the end of a long one's
        // quantum.
        let mut config = Config::default();
        config.daemon.plugin = Some("fp".to_owned());
        let Interrupted { app, seen, policies, long } = interrupted(config);
        let running = app.start().expect("it can be run");
        eventually("short jobs within a long one", || seen.load(Ordering::Acquire) >= 3);
        let (_, report) = stopped(running);
        must_be_real_time(&report);
        let reported = report.tasks[long.number()].policy.expect("it was read");
        let policies = policies.lock().expect("whole");
        assert!(policies.iter().all(|&policy| policy == reported), "{policies:?}, {reported:?}");
    }
}

/// Creates grants on the first CPU, so that the levels of the CPUs differ.
fn crowded(daemon: &Daemon, cpus: &[u32]) -> Vec<talea_client::Grant> {
    let first = cpus.iter().copied().take(1).collect();
    let spec = |priority| {
        Spec::builder().plugin("fp").priority(priority).only_cpus(first).build().expect("one")
    };
    let client = root(daemon);
    let grants =
        [90, 80, 70, 30].map(|priority| client.create(&spec(priority)).expect("an answer"));
    grants.into_iter().map(|grant| grant.expect("a grant")).collect()
}

#[test]
fn y22_on_two_cpus_dispatchers_are_above_workers_whatever_other_grants_exist() {
    const NAME: &str =
        "rights::y22_on_two_cpus_dispatchers_are_above_workers_whatever_other_grants_exist";
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    if !user::is_it() {
        needs_root!();
        needs!("two CPUs", cpus.len() == 2);
        let bench = Bench::new("runtime_crowded");
        let daemon = Daemon::start(&bench, &config::common_levels());
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        let grants = crowded(&daemon, &cpus);
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        drop(grants);
        return;
    }
    for (mapping, plugin) in
        [(Mapping::Global, "fp"), (Mapping::Partitioned, "fp"), (Mapping::Global, "rr")]
    {
        let mut config =
            Config { mapping, cpus: cpus.clone(), rights: Rights::Daemon, ..Config::default() };
        config.daemon.plugin = Some(plugin.to_owned());
        let mut app = Application::new(config);
        let done: Vec<Arc<AtomicU64>> = (0..4).map(|_| Arc::default()).collect();
        for (at, done) in done.iter().enumerate() {
            let task = app.task(Task::periodic(&format!("task{at}"), 4 * MS).core(at as u32 % 2));
            let done = Arc::clone(done);
            app.version(task, "only", move |_| _ = done.fetch_add(1, Ordering::Relaxed));
        }
        let running = app.start().expect("it can be run");
        eventually("jobs of all", || done.iter().all(|done| done.load(Ordering::Relaxed) >= 5));
        let (_, report) = stopped(running);
        must_be_real_time(&report);
    }
}

#[test]
fn y22_levels_in_separate_orders_are_returned_and_the_remedy_is_named() {
    const NAME: &str = "rights::y22_levels_in_separate_orders_are_returned_and_the_remedy_is_named";
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    if !user::is_it() {
        needs_root!();
        needs!("two CPUs", cpus.len() == 2);
        let bench = Bench::new("runtime_unfit");
        let daemon = Daemon::start(&bench, &config::open());
        // They fit now, and would not with other grants.
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        let grants = crowded(&daemon, &cpus);
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        let left = root(&daemon).list().expect("an answer").expect("a list");
        assert_eq!(left.len(), grants.len(), "all else was given back: {left:?}");
        return;
    }
    let mut config = Config { cpus, rights: Rights::Daemon, ..Config::default() };
    config.daemon.plugin = Some("fp".to_owned());
    let (_, report) = some_jobs(config);
    assert_eq!((report.is_real_time, report.rights), (false, Rights::Unused));
    let why = report.rights_error.expect("a reason");
    assert!(
        why.contains("one order for all CPUs of the application (`levels = \"common\"`)"),
        "{why}"
    );
}

#[test]
fn y22_an_application_that_would_share_the_last_level_is_refused_with_the_numbers() {
    const NAME: &str =
        "rights::y22_an_application_that_would_share_the_last_level_is_refused_with_the_numbers";
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    if !user::is_it() {
        needs_root!();
        needs!("two CPUs", cpus.len() == 2);
        let bench = Bench::new("runtime_taken");
        let rules = "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"all\"\n\
                     priorities = \"20-24\"\nlevels = \"common\"\n";
        let daemon = Daemon::start(&bench, rules);
        // Other grants have four of the five levels: dispatchers and workers share the last one.
        let grants = crowded(&daemon, &cpus);
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        let left = root(&daemon).list().expect("an answer").expect("a list");
        assert_eq!(left.len(), grants.len(), "all else was given back: {left:?}");
        return;
    }
    for count in [1, 2] {
        let cpus = cpus[..count].to_vec();
        let (_, report) = some_jobs(Config { cpus, rights: Rights::Daemon, ..Config::default() });
        assert_eq!((report.is_real_time, report.rights), (false, Rights::Unused));
        let why = report.rights_error.expect("a reason");
        assert!(why.contains("no level is free: 5 of the 5 levels of fp are taken"), "{why}");
        assert!(!why.contains("common"), "that is set: {why}");
    }
}

/// Builds an application on these CPUs with declared costs and the daemon's rights.
fn declared(cpus: &[u32], mapping: Mapping, priority: u8) -> Application {
    let mut config =
        Config { cpus: cpus.to_vec(), mapping, rights: Rights::Daemon, ..Config::default() };
    config.daemon.priority = priority;
    let mut app = Application::new(config);
    for core in 0..2 {
        let task = app.task(Task::periodic(&format!("task{core}"), 20 * MS).core(core));
        app.version(task, talea_runtime::Version::new("only").cost(4 * MS), |_| {});
    }
    app
}

/// Returns what the daemon knows of the threads of this process, as `talea list` has it: name (`-`
/// for none), CPU, and charge.
fn ledger() -> Vec<(String, u32, u64)> {
    let client = talea_client::Client::connect().expect("a daemon");
    let specs = client.list().expect("an answer").expect("a list");
    let name = |tid: u32| {
        std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).expect("a thread")
    };
    let row = |spec: &talea_client::SpecInfo| {
        let name = spec.tid.map_or("-".to_owned(), |tid| name(tid).trim().to_owned());
        (name, spec.granted.cpu.expect("it is on one"), spec.granted.charge.ppm())
    };
    let mut rows: Vec<_> = specs.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn y22_two_applications_are_charged_on_both_cpus_and_a_third_is_refused_with_the_numbers() {
    const NAME: &str = "rights::y22_two_applications_are_charged_on_both_cpus_and_a_third_is_refused_with_the_numbers";
    let cpus: Vec<u32> = kernel::cpus().iter().take(2).collect();
    if !user::is_it() {
        needs_root!();
        needs!("two CPUs", cpus.len() == 2);
        let bench = Bench::new("runtime_charged");
        // Six levels, three for each application.
        let rules = "[daemon]\naccess = \"off\"\n[[plugin]]\nname = \"fp\"\nkind = \"fp\"\ncpus = \"all\"\n\
                     priorities = \"20-25\"\nlevels = \"common\"\nrefuse_sharing = true\n";
        let daemon = Daemon::start(&bench, rules);
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        let left = root(&daemon).list().expect("an answer").expect("a list");
        assert!(left.is_empty(), "everything was given back: {left:?}");
        return;
    }
    let first = declared(&cpus, Mapping::Partitioned, 60).start().expect("it can be run");
    // A fifth of a CPU each.
    let own = ledger();
    let of = |name: &str, rows: &[(String, u32, u64)]| -> Vec<(u32, u64)> {
        let own = rows.iter().filter(|row| row.0.starts_with(name));
        own.map(|&(_, cpu, charge)| (cpu, charge)).collect()
    };
    assert_eq!(
        of("exec-task", &own),
        [(cpus[0], 200_000), (cpus[1], 200_000)],
        "each on its own: {own:?}"
    );
    assert_eq!(of("exec-cpu", &own), [(cpus[0], 0), (cpus[1], 0)], "{own:?}");
    assert_eq!((own.len(), of("-", &own)), (6, vec![(cpus[1], 0)]), "and who watches: {own:?}");
    let second = declared(&cpus, Mapping::Global, 40).start().expect("it can be run");
    let both = ledger();
    let mut stand_in = of("-", &both);
    stand_in.sort_unstable();
    let expected = [(cpus[0], 200_000), (cpus[1], 0), (cpus[1], 0), (cpus[1], 200_000)];
    assert_eq!(stand_in, expected, "where a job may go: {both:?}");
    assert_eq!((of("exec-task", &both).len(), both.len()), (4, 14), "{both:?}");
    let (_, refused) =
        stopped(declared(&cpus, Mapping::Global, 20).start().expect("without rights"));
    let why = refused.rights_error.expect("a reason");
    assert!(!refused.is_real_time && why.contains("talead refuses"), "{why}");
    assert!(why.contains("all 6 priority levels of the plugin are in use"), "{why}");
    assert_eq!(ledger(), both, "none of it");
    for running in [first, second] {
        let (_, report) = stopped(running);
        must_be_real_time(&report);
    }
}

/// Runs until there are some jobs, and returns the report.
fn some_jobs(config: Config) -> (Application, Report) {
    let mut app = Application::new(config);
    let done = Arc::new(AtomicU64::new(0));
    for name in ["a", "b", "c"] {
        let task = app.task(Task::periodic(name, 4 * MS));
        let done = Arc::clone(&done);
        app.version(task, "only", move |_| _ = done.fetch_add(1, Ordering::Relaxed));
    }
    let running = app.start().expect("it can be run");
    eventually("jobs", || done.load(Ordering::Relaxed) >= 9);
    stopped(running)
}

#[test]
fn y22_a_refusal_of_the_daemon_is_for_all_grants_and_reported() {
    const NAME: &str = "rights::y22_a_refusal_of_the_daemon_is_for_all_grants_and_reported";
    if !user::is_it() {
        needs_root!();
        // A quota of two of the five that it needs; a priority that it may not have; no rule.
        let few = format!(
            "[daemon]\naccess = \"off\"\n[daemon.quota]\nspecs_per_user = 2\n{}",
            config::PLUGINS
        );
        let low = format!("[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmax_priority = 50\n");
        for rules in [few, config::with_rules(&low), config::with_rules("")] {
            let bench = Bench::new("runtime_refused");
            let daemon = Daemon::start(&bench, &rules);
            let said = user::must_pass(&bench, NAME, Some(daemon.socket()));
            assert_eq!(said.matches("talead refuses").count(), 1, "once: {said}");
            let left = root(&daemon).list().expect("an answer").expect("a list");
            assert!(left.is_empty(), "none of them: {left:?}");
        }
        return;
    }
    let (mut app, report) = some_jobs(Config::default());
    assert_eq!((report.is_real_time, report.rights), (false, Rights::Unused));
    assert!(report.rights_error.expect("a reason").contains("talead refuses"));
    app.config().require_real_time = true;
    match app.start() {
        Err(Error::Run(failure)) => {
            assert!(failure.to_string().contains("talead refuses"), "{failure}");
        }
        other => panic!("a start that requires real time must fail: {other:?}"),
    }
}

#[test]
fn y22_rules_that_allow_three_priorities_are_enough() {
    const NAME: &str = "rights::y22_rules_that_allow_three_priorities_are_enough";
    if !user::is_it() {
        needs_root!();
        let bench = Bench::new("runtime_ruled");
        let rules = format!(
            "[[rule]]\ndomain = \"#{ALICE}\"\nplugin = \"fp\"\nmin_priority = 50\nmax_priority = 52\nallow_unbounded = true\n"
        );
        let mut daemon = Daemon::start(&bench, &config::with_rules(&rules));
        user::must_pass(&bench, NAME, Some(daemon.socket()));
        daemon.terminate();
        return;
    }
    let (_, report) = some_jobs(Config::default());
    must_be_real_time(&report);
}

#[test]
fn y22_rights_are_those_that_are_configured() {
    needs_root!();
    let _bench = Bench::new("runtime_own");
    let (_, report) = some_jobs(Config { rights: Rights::Own, ..Config::default() });
    assert_eq!((report.is_real_time, report.rights), (true, Rights::Own));
    let (_, report) = some_jobs(Config { rights: Rights::Unused, ..Config::default() });
    assert_eq!(
        (report.is_real_time, report.rights, report.rights_error),
        (false, Rights::Unused, None)
    );
    let no_daemon =
        talea_runtime::Daemon { socket: Some("/nonexistent".into()), ..Default::default() };
    let config = Config { rights: Rights::Daemon, daemon: no_daemon, ..Config::default() };
    let (_, report) = some_jobs(config);
    assert!(report.rights_error.expect("there is none").contains("no connection to talead"));
}

#[test]
fn y22_a_daemon_that_dies_takes_nothing_from_a_running_application() {
    const NAME: &str = "rights::y22_a_daemon_that_dies_takes_nothing_from_a_running_application";
    if !user::is_it() {
        needs_root!();
        let bench = Bench::new("runtime_orphaned");
        let mut daemon = Daemon::start(&bench, &config::open());
        let socket = daemon.socket().to_owned();
        std::thread::scope(|scope| {
            let child = scope.spawn(|| user::must_pass(&bench, NAME, Some(&socket)));
            eventually("four threads with their grants", || {
                let specs = root(&daemon).list().expect("an answer").expect("a list");
                child.is_finished() || specs.iter().filter(|spec| spec.tid.is_some()).count() == 4
            });
            daemon.kill();
            child.join().expect("it passes");
        });
        // The next daemon returns what the killed one left.
        daemon.restart();
        eventually("nothing is held", || {
            root(&daemon).list().expect("an answer").expect("a list").is_empty()
        });
        return;
    }
    let Interrupted { app, seen, .. } = interrupted(Config::default());
    let running = app.start().expect("it can be run");
    eventually("it is gone", || talea_client::Client::connect().is_err());
    seen.store(0, Ordering::Release);
    eventually("short jobs within a long one", || seen.load(Ordering::Acquire) >= 3);
    let (_, report) = stopped(running);
    must_be_real_time(&report);
}
