//! The description of an application builds the tree that is started.

use crate::{
    Application, Config, Error, Mapping, Priorities, Selection, Server, ServerId, Task, TaskId,
    Version,
};
use proptest::prelude::*;
use std::time::Duration;
use talea_core::Span;
use talea_core::engine::{NodeSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::workload::Arrivals;
use talea_system::{self as system, Registry, System};

const US: Duration = Duration::from_micros(1);

/// Declaration of a task.
#[derive(Clone, Debug)]
struct Said {
    /// Kind of the task: 0 periodic, 1 sporadic, 2 activated, 3 activated with an expected
    /// distance.
    kind: u8,
    us: u32,
    deadline: Option<u32>,
    offset: u32,
    priority: u8,
    core: u32,
    backlog: Option<u32>,
    versions: Vec<(u32, u32, u64, u64, u64, Vec<usize>)>,
}

fn declared_task() -> impl Strategy<Value = Said> {
    let version = (
        1_u32..5_000,
        0_u32..5_000,
        0_u64..1_000,
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(0_usize..3, 0..3),
    );
    let times =
        (0_u8..4, 1_u32..200_000, proptest::option::of(1_u32..200_000), 0_u32..50_000, any::<u8>());
    let rest = (0_u32..4, proptest::option::of(0_u32..9), prop::collection::vec(version, 1..4));
    (times, rest).prop_map(|((kind, us, deadline, offset, priority), (core, backlog, versions))| {
        Said { kind, us, deadline, offset, priority, core, backlog, versions }
    })
}

fn declare(
    app: &mut Application,
    servers: &[ServerId],
    at: usize,
    declared_task: &Said,
    is_node: bool,
) -> TaskId {
    let (name, us) = (format!("task-{at}"), declared_task.us * US);
    let mut task = match declared_task.kind {
        _ if is_node => Task::node(&name),
        0 => Task::periodic(&name, us).offset(declared_task.offset * US),
        1 => Task::sporadic(&name, us),
        2 => Task::activated(&name, us),
        _ => Task::activated(&name, us).expected((declared_task.offset + 1) * US),
    };
    if let Some(deadline) = declared_task.deadline.filter(|_| !is_node) {
        task = task.deadline(deadline * US);
    }
    if let Some(backlog) = declared_task.backlog {
        task = task.backlog(backlog);
    }
    let cpus = app.config.cpus.len() as u32;
    let core = declared_task.core % cpus;
    let cores = (0..cpus).filter(|cpu| *cpu == core || declared_task.priority >> cpu & 1 == 1);
    // About every third.
    if let Some(&server) = servers.get(declared_task.offset as usize % 6) {
        task = task.served_by(server);
    }
    app.task(task.priority(declared_task.priority).core(core).cores(cores))
}

/// A policy that is unknown here.
const OUTSIDE: Priorities = Priorities::Custom { name: "edf-us", make: policy_edf_us::make };

/// Generates applications of up to seven tasks. The last three may be nodes with up to five earlier
/// tasks as sources.
fn application() -> impl Strategy<Value = Application> {
    let alike = prop::bool::weighted(0.8);
    let config = (0_u8..5, 0_u8..3, any::<bool>(), any::<bool>(), 1_u32..5, 0_u8..5, 0_u32..=1_000);
    let edges =
        prop::collection::vec((any::<prop::sample::Index>(), 0_u32..3, any::<bool>()), 0..6);
    (
        config,
        alike,
        prop::collection::vec(declared_task(), 1..5),
        prop::collection::vec((declared_task(), edges), 0..4),
    )
        .prop_map(
            |(
                (priorities, mapping, preemptive, inheritance, cpus, selection, weight),
                alike,
                mut roots,
                nodes,
            )| {
                // Tasks of one graph have one period and deadline.
                if alike {
                    let (us, deadline) = (roots[0].us, roots[0].deadline);
                    for declared_task in &mut roots {
                        (declared_task.kind, declared_task.us, declared_task.deadline) =
                            (declared_task.kind % 3, us, deadline);
                    }
                }
                let priorities = [
                    Priorities::Edf,
                    Priorities::RateMonotonic,
                    Priorities::DeadlineMonotonic,
                    Priorities::User,
                    OUTSIDE,
                ][usize::from(priorities)];
                let selection = [
                    Selection::Declared,
                    Selection::Energy,
                    Selection::TradeOff { weight },
                    Selection::Mode,
                    Selection::Mask,
                ][usize::from(selection)];
                let mapping = [Mapping::Global, Mapping::Clustered, Mapping::Partitioned]
                    [usize::from(mapping)];
                let cpus = (0..cpus).collect();
                let config = Config {
                    mapping,
                    priorities,
                    preemptive,
                    selection,
                    inheritance,
                    cpus,
                    ..Config::default()
                };
                let mut app = Application::new(config);
                let last = app.config.cpus.len() as u32 - 1;
                let servers = [
                    Server::deferrable("requests", 10 * US, 100 * US)
                        .priority(7)
                        .core(last)
                        .cores([last]),
                    Server::bandwidth("band", 20 * US, 300 * US),
                ]
                .map(|server| app.server(server));
                let accelerators = ["gpu", "dsp", "npu"].map(|name| app.accelerator(name));
                let mut tasks: Vec<TaskId> = Vec::new();
                let all = roots.iter().map(|declared_task| (declared_task, None));
                for (at, (declared_task, edges)) in all
                    .chain(nodes.iter().map(|(declared_task, edges)| (declared_task, Some(edges))))
                    .enumerate()
                {
                    let edges = edges.map_or(&[][..], |edges| &edges[..]);
                    let id = declare(&mut app, &servers, at, declared_task, !edges.is_empty());
                    let mut sources: Vec<TaskId> = Vec::new();
                    for (from, size, twice) in edges {
                        let from = *from.get(&tasks);
                        if sources.contains(&from) {
                            continue;
                        }
                        sources.push(from);
                        match size {
                            0 => app.edge(from, id),
                            size => {
                                _ = app.channel_of::<u8>(
                                    from,
                                    id,
                                    *size,
                                    if *twice { *size } else { 1 },
                                );
                            }
                        }
                    }
                    for (number, (least, more, energy, modes, needs, uses)) in
                        declared_task.versions.iter().enumerate()
                    {
                        let version = Version::new(&format!("v{number}"));
                        let version = if *more == 0 {
                            version.cost(*least * US)
                        } else {
                            version.costs(*least * US, (least + more) * US)
                        };
                        let version = version.energy(*energy).modes(*modes).needs(*needs);
                        let version = app.version(id, version, |_| {});
                        let mut known = Vec::new();
                        for &accelerator in uses.iter().filter(|&&accelerator| {
                            let is_new = !known.contains(&accelerator);
                            known.push(accelerator);
                            is_new
                        }) {
                            app.uses(version, accelerators[accelerator]);
                        }
                    }
                    tasks.push(id);
                }
                app
            },
        )
}

fn read(text: &str) -> System {
    let registry = Registry::new().policy("edf-us", policy_edf_us::make);
    system::read_with(text, "described", &(), &registry)
        .unwrap_or_else(|found| panic!("{found:?}\n{text}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn y1_the_described_file_builds_the_engine_that_is_started(app in application()) {
        let cpus = app.config.cpus.len() as u32;
        let text = match (app.describe(), app.checked_tree(cpus)) {
            (Ok(text), _) => text,
            // Roots of one graph with other periods, or a core that does not exist: no run and no
            // file.
            (Err(Error::Declared(_)), Err(Error::Declared(_))) => return Ok(()),
            (described, tree) => panic!("{described:?}, {tree:?}"),
        };
        let system = read(&text);
        let [root] = &system.roots[..] else { panic!("one root: {text}") };
        let tree = app.checked_tree(cpus).expect("it was described");
        let machine = |tree: &talea_core::engine::Tree| format!("{:#?}", tree.build().expect("it was checked"));
        prop_assert_eq!(machine(&tree), machine(&root.tree), "{}", text);
        for (declared, source) in app.tasks.iter().zip(&root.sources) {
            let costs = source.cost.by_version();
            prop_assert_eq!(declared.versions.len(), costs.len());
            for (version, cost) in declared.versions.iter().zip(costs) {
                prop_assert_eq!(version.cost.as_ref(), Some(cost));
            }
        }
    }
}

/// Builds an application of a periodic task, a sporadic task, two activated tasks and a node.
fn mixed() -> (Application, [TaskId; 5]) {
    let mut app = Application::new(Config::default());
    let tasks = [
        Task::periodic("camera", 500_000 * US).offset(3 * US).deadline(400_000 * US),
        Task::sporadic("messages", 20_000 * US),
        Task::activated("asked", 50_000 * US),
        Task::activated("expected", 50_000 * US).expected(70_000 * US),
        Task::node("detect"),
    ]
    .map(|task| app.task(task));
    app.edge(tasks[0], tasks[4]);
    for task in tasks {
        app.version(task, Version::new("cpu").cost(1_000 * US), |_| {});
    }
    (app, tasks)
}

#[test]
fn y1_y13_arrivals_in_the_file_are_as_declared_or_expected() {
    let (app, tasks) = mixed();
    let system = read(&app.describe().expect("it can be described"));
    let sources = &system.roots[0].sources;
    let arrivals = |of: TaskId| &sources[of.number()].arrivals;
    let every = |us: u64, offset: u64| Arrivals::Periodic {
        offset: Span::from_ns(offset * 1_000),
        period: Span::from_ns(us * 1_000),
        jitter: Span::ZERO,
    };
    assert_eq!(arrivals(tasks[0]), &every(500_000, 3));
    assert_eq!(arrivals(tasks[1]), &every(20_000, 0), "as often as it may");
    assert_eq!(arrivals(tasks[2]), &Arrivals::List(vec![]), "no rule");
    assert_eq!(arrivals(tasks[3]), &every(70_000, 0));
    assert_eq!(arrivals(tasks[4]), &Arrivals::List(vec![]), "its graph activates it");
}

#[test]
fn y21_a_custom_policy_is_in_the_file_by_name_and_names_the_tasks_that_it_rejects() {
    let (mut app, tasks) = mixed();
    app.config().priorities = OUTSIDE;
    assert!(app.config.priorities == OUTSIDE && app.config.priorities != Priorities::Edf);
    let text = app.describe().expect("it can be described");
    assert!(text.contains("policy = \"edf-us\""), "{text}");
    assert!(system::read(&text, "described", &()).is_err(), "a reader must register it");
    let PolicySpec::Custom { name: "edf-us", .. } = policy(&read(&text)) else { panic!("{text}") };
    // The policy classifies tasks by their costs.
    app.version(tasks[1], "gpu", |_| {});
    let Err(Error::Declared(why)) = app.start() else { panic!("its utilization is unknown") };
    assert!(why.starts_with("task messages: ") && why.contains("cost"), "{why}");
}

fn policy(system: &System) -> PolicySpec {
    match system.roots[0].tree.get(Tree::ROOT).map(|root| &root.spec) {
        Some(NodeSpec::Scheduler(root)) => root.policy.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn applications_that_no_file_can_describe_are_refused_and_named() {
    let refused = |app: &Application| match app.describe() {
        Err(Error::Declared(why)) => why,
        other => panic!("{other:?}"),
    };
    let (mut app, tasks) = mixed();
    app.version(tasks[1], "gpu", |_| {});
    assert!(
        refused(&app).contains("task messages, version gpu: the cost of a job is not declared")
    );
    let (mut app, _) = mixed();
    app.config().selection = Selection::User(|_| None);
    assert!(refused(&app).contains("function"));
    let (mut app, _) = mixed();
    app.config().priorities = Priorities::Custom { name: "edf", make: policy_edf_us::make };
    assert!(
        refused(&app).contains("policy edf: Talea has a policy of this name"),
        "{}",
        refused(&app)
    );
    let (mut app, _) = mixed();
    let blank = app.task(Task::periodic("two words", US));
    app.version(blank, Version::new("only").cost(US), |_| {});
    assert!(refused(&app).contains("`two words` can't be a name"), "{}", refused(&app));
    let (mut app, tasks) = mixed();
    app.edge(tasks[4], tasks[0]);
    assert!(refused(&app).starts_with("task "), "a circle");
    let (mut app, tasks) = mixed();
    let other = app.task(Task::periodic("other", US));
    app.version(other, "only", |_| {});
    app.edge(tasks[0], other);
    assert!(refused(&app).contains("task other: it is periodic, and a graph activates it"));
}
