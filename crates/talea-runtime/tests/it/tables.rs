//! Off-line schedules: jobs start on the CPU and in the version of their entries, and not before
//! them.

use crate::{MS, one_of_some, stopped};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use talea_kernel_tests::{Bench, eventually, kernel, needs};
use talea_os::{Tid, sched};
use talea_runtime::{
    Application, Config, Error, Report, RunHandle, Table, Task, TaskId, Version, VersionId,
};

const HYPERPERIOD: Duration = Duration::from_millis(10);

/// Start of a job.
#[derive(Clone, Copy, Debug)]
struct Began {
    task: usize,
    version: usize,
    job: u64,
    at: Duration,
    cpu: u32,
}

/// Application of three tasks, the first with two versions, and the starts of their jobs.
struct Watched {
    app: Application,
    tasks: [TaskId; 3],
    /// Second version of the first task.
    second: VersionId,
    began: Arc<Mutex<Vec<Began>>>,
    handle: Arc<OnceLock<RunHandle>>,
}

fn watched(cpus: Vec<u32>, declare: impl Fn(&str) -> Task) -> Watched {
    let mut app = Application::new(Config { cpus, ..Config::default() });
    let (began, handle) =
        (Arc::new(Mutex::new(Vec::new())), Arc::new(OnceLock::<RunHandle>::new()));
    let tasks = ["a", "b", "c"].map(|name| app.task(declare(name)));
    let versions = [(0, 0), (0, 1), (1, 0), (2, 0)].map(|(task, version)| {
        let (began, handle) = (Arc::clone(&began), Arc::clone(&handle));
        let cost = Version::new(&format!("v{version}")).cost(MS);
        app.version(tasks[task], cost, move |job| {
            let cpus = sched::get_affinity(Tid::current()).expect("it is here");
            let cpu = cpus.iter().next().expect("it is pinned");
            let at = handle.get().expect("stored before the first job").now();
            began.lock().expect("whole").push(Began { task, version, job: job.number, at, cpu });
        })
    });
    Watched { app, tasks, second: versions[1], began, handle }
}

impl Watched {
    fn run(self, rounds: u64) -> (Vec<Began>, Report) {
        let (began, handle) = (self.began, self.handle);
        let tell = |reported: RunHandle| handle.set(reported).expect("once");
        let running = self.app.start_with(tell).expect("it can be run");
        let is_through = |began: &[Began]| (0..3).all(|task| count(began, task) >= rounds);
        eventually("rounds", || is_through(&began.lock().expect("whole")));
        let (_, report) = stopped(running);
        let began = began.lock().expect("whole").clone();
        (began, report)
    }
}

fn count(began: &[Began], task: usize) -> u64 {
    began.iter().filter(|began| began.task == task).count() as u64
}

/// Task, core, start and length of an entry.
type Entry = (usize, usize, u32, u32);

/// Checks that no job starts on another CPU or before its entry. Returns whether most jobs start
/// within their entries. After a CPU stall over an entry the job continues in the next entry.
fn follow(began: &[Began], cpus: &[u32], entries: &[Entry]) -> bool {
    let within = began.iter().filter(|began| {
        let &(_, core, start, length) =
            entries.iter().find(|entry| entry.0 == began.task).expect("one of these");
        assert_eq!(began.cpu, cpus[core], "where its entries are");
        let from = HYPERPERIOD * began.job as u32 + MS * start;
        assert!(began.at >= from, "before its entry at {from:?}: {began:?}");
        began.at < from + MS * length
    });
    2 * within.count() >= began.len()
}

fn two() -> Vec<u32> {
    kernel::cpus().iter().take(2).collect()
}

#[test]
fn y11_y12_a_table_in_code_determines_cpu_start_and_version_of_each_job() {
    let _bench = Bench::new("runtime_table");
    let cpus = two();
    needs!("two CPUs", cpus.len() == 2);
    let mostly = one_of_some(|| {
        // Idle time between the entries; the table activates the jobs, so that none is missing
        // after a CPU stall.
        let mut watched = watched(cpus.clone(), |name| Task::activated(name, HYPERPERIOD));
        let ([a, b, c], second) = (watched.tasks, watched.second);
        let table = Table::new(HYPERPERIOD).entry(0, MS, 2 * MS, a).in_version(second).activating();
        let table =
            table.entry(0, 5 * MS, 2 * MS, b).activating().entry(1, 4 * MS, 3 * MS, c).activating();
        watched.app.set_table(Some(table));
        let (began, report) = watched.run(30);
        assert!(
            report.tasks[0].versions[0] == 0 && report.tasks[0].versions[1] >= 30,
            "{report:?}"
        );
        assert!(
            began.iter().all(|began| began.task > 0 || began.version == 1),
            "the one that was chosen"
        );
        follow(&began, &cpus, &[(0, 0, 1, 2), (1, 0, 5, 2), (2, 1, 4, 3)])
    });
    assert!(mostly, "most begin within their entries");
}

/// Output of `talea analyze --synthesize table` for an application with the tasks `a`, `b` and `c`.
const SYNTHESIZED: &str = r#"
[[scheduler]]
name = "application"
policy = "table"
cpus = 2
hyperperiod = "10ms"

[[scheduler.entry]]
cpu = 0
owner = "a"
start = "0"
length = "1ms"
version = "v1"

[[scheduler.entry]]
cpu = 1
owner = "b"
start = "0"
length = "1ms"
version = "v0"

[[scheduler.entry]]
cpu = 0
owner = "c"
start = "1ms"
length = "1ms"
version = "v0"
"#;

#[test]
fn y11_y12_a_table_is_read_from_a_file_and_periodic_jobs_follow_it() {
    let _bench = Bench::new("runtime_table_file");
    let cpus = two();
    needs!("two CPUs", cpus.len() == 2);
    let mostly = one_of_some(|| {
        let mut watched = watched(cpus.clone(), |name| Task::periodic(name, HYPERPERIOD));
        let table = watched.app.read_table(SYNTHESIZED).expect("a table");
        watched.app.set_table(Some(table));
        // A complete file with the same table gives the same result.
        let described = watched.app.describe().expect("it can be described");
        assert!(
            described.contains("policy = \"table\"") && described.contains("[[task]]"),
            "{described}"
        );
        let again = watched.app.read_table(&described).expect("a table");
        watched.app.set_table(Some(again));
        assert_eq!(watched.app.describe().expect("it can be described"), described);
        let (began, _) = watched.run(30);
        let is_chosen = |began: &Began| began.version == usize::from(began.task == 0);
        assert!(began.iter().all(is_chosen), "the one that was chosen");
        follow(&began, &cpus, &[(0, 0, 0, 1), (1, 1, 0, 1), (2, 0, 1, 1)])
    });
    assert!(mostly, "most begin within their entries");
}

#[test]
fn y11_a_name_that_no_file_can_have_is_quoted_in_the_refusal() {
    const NAME: &str = "the \"first\" \\ one";
    let mut app = Application::new(Config::default());
    let task = app.task(Task::activated(NAME, HYPERPERIOD));
    app.version(task, "only", |_| {});
    match app.read_table(SYNTHESIZED) {
        Err(Error::Declared(why)) => {
            assert!(why.contains(&format!("`{NAME}` can't be a name")), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn y11_invalid_tables_are_refused_and_named() {
    let refused = |table: Table, app: &mut Application| {
        app.set_table(Some(table));
        match app.describe() {
            Err(Error::Declared(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let Watched { mut app, tasks: [a, b, _], .. } =
        watched(vec![0, 1], |name| Task::periodic(name, HYPERPERIOD));
    let overlap = Table::new(HYPERPERIOD).entry(0, MS, 3 * MS, a).entry(0, 2 * MS, MS, b);
    assert!(refused(overlap, &mut app).contains("overlap"), "two on one CPU");
    let twice = Table::new(HYPERPERIOD).entry(0, MS, 3 * MS, a).entry(1, 2 * MS, MS, a);
    let why = refused(twice, &mut app);
    assert!(why.contains("assigns its owner a second CPU at the same time"), "{why}");
    let beyond = Table::new(HYPERPERIOD).entry(7, MS, MS, a);
    let why = refused(beyond, &mut app);
    assert!(why.contains("is on a CPU that the root does not own"), "{why}");
    let why = |text: &str| match app.read_table(text) {
        Err(Error::Declared(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(why("[[scheduler]]\nname = \"root\"\npolicy = \"edf\"\n").contains("it has no table"));
    assert!(why(&SYNTHESIZED.replace("\"b\"", "\"x\"")).contains("no task is called `x`"));
    assert!(why(&SYNTHESIZED.replace("\"v1\"", "\"v7\"")).contains("v7"));
    let theirs = "[[task]]\nname = \"x\"\nperiod = \"10ms\"\ncost = \"1ms\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\n";
    let theirs = format!(
        "{}{theirs}[[task.version]]\nname = \"v1\"\ncost = \"1ms\"\n[[task]]\nname = \"c\"\nperiod = \"10ms\"\n[[task.version]]\nname = \"v0\"\ncost = \"1ms\"\n",
        SYNTHESIZED.replace("owner = \"b\"", "owner = \"x\"").replacen("version = \"v0\"", "", 1)
    );
    assert!(
        why(&theirs).contains("the table has entries of x, which is not a task of the application"),
        "{}",
        why(&theirs)
    );
}
