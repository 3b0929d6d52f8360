//! System files: the shipped files have the results of the papers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use talea_config::diagnostic::render;
use talea_core::engine::NodeSpec;
use talea_core::{Time, Work};
use talea_sim::{Completion, Counters, Jobs, Simulation};
use talea_system::{self as system, Include, Registry, System};

/// Files in `examples/systems`.
struct Shipped;

impl Include for Shipped {
    fn text(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        let text = shipped(path).ok_or("no such file")?;
        Ok((path.to_owned(), text))
    }
}

#[allow(clippy::disallowed_methods, reason = "a test reads its own examples")]
fn shipped(name: &str) -> Option<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systems");
    std::fs::read_to_string(folder.join(name)).ok()
}

fn read(name: &str) -> System {
    let text = shipped(name).unwrap_or_else(|| panic!("{name} is there"));
    system::read(&text, name, &Shipped).unwrap_or_else(|found| panic!("{name}: {found:#?}"))
}

/// Returns the deadline miss rate in thousandths for each scheduler with tasks, over the jobs that
/// have completed or are due after the file's duration.
fn misses(system: &System) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for root in &system.roots {
        let machine = root.tree.build().expect("a sound tree");
        let nodes: Vec<_> = (0..root.tasks.len())
            .map(|task| machine.node_of(talea_core::engine::TaskId(task as u32)))
            .collect();
        let mut world = Simulation::new(machine, root.tree.cpus, &root.workload(system.seed));
        let mut counters = Counters::new(root.tasks.len());
        let end = Time::ZERO + system.duration;
        world.run(end, &mut counters);
        for (task, node) in nodes.iter().enumerate() {
            let (_, above) = root.tree.ancestors(*node).next().expect("a scheduler");
            let count = counters.tasks[task];
            // Jobs that are due and have not completed.
            let id = talea_core::engine::TaskId(task as u32);
            let overdue = u64::from(world.engine().overdue(id, end));
            let sum = sums.entry(above.name.clone()).or_default();
            sum.0 += count.late + overdue;
            sum.1 += count.completed + overdue;
        }
    }
    sums.into_iter().map(|(name, (late, all))| (name, (late * 2_000 + all) / (2 * all))).collect()
}

#[test]
fn s11_table_2_the_flight_management_misses_what_the_paper_says_it_must() {
    let per_mille = |name: &str| {
        let misses = misses(&read(name));
        [misses["B"], misses["D"], misses["A"]]
    };
    for config in ["c1", "c2", "c3"] {
        assert_eq!(
            per_mille(&format!("fms-{config}-average.toml")),
            [0, 0, 0],
            "{config} at average cost"
        );
    }
    // The deadline miss rates of Table II, in per mille, within 3 points.
    for (config, published) in [("c1", [0, 280, 0]), ("c2", [220, 230, 0]), ("c3", [50, 70, 120])] {
        let found = per_mille(&format!("fms-{config}-worst.toml"));
        let near = found.iter().zip(published).all(|(found, of)| found.abs_diff(of) <= 30);
        assert!(near, "{config}: {found:?}, and {published:?} in the paper");
    }
    // Only the hierarchical configurations isolate A, and only C1 protects B.
    assert_eq!(per_mille("fms-c1-worst.toml"), [0, 286, 0]);
    assert_eq!(per_mille("fms-c2-worst.toml")[2], 0);
}

/// Returns the name of each task, its completed jobs, and the number of its overdue jobs, after one
/// run of a file. Several roots run one after the other.
fn run(system: &System) -> Vec<(String, Vec<Completion>, u64)> {
    let mut all = Vec::new();
    for root in &system.roots {
        let machine = root.tree.build().expect("a sound tree");
        let mut world = Simulation::new(machine, root.tree.cpus, &root.workload(system.seed))
            .with_environment(&root.surroundings);
        let mut jobs = Jobs::default();
        let end = Time::ZERO + system.duration;
        world.run(end, &mut jobs);
        for (task, name) in root.tasks.iter().enumerate() {
            let of: Vec<Completion> =
                jobs.ended.iter().filter(|job| job.task.0 as usize == task).copied().collect();
            let overdue = world.engine().overdue(talea_core::engine::TaskId(task as u32), end);
            all.push((name.clone(), of, u64::from(overdue)));
        }
    }
    all
}

fn parsed(text: &str) -> System {
    system::read(text, "changed.toml", &()).unwrap_or_else(|found| panic!("{found:#?}"))
}

/// Returns the response times of a task in milliseconds, rounded up.
fn responses(system: &System, task: &str) -> Vec<u64> {
    let of = run(system).into_iter().find(|(name, ..)| name == task).expect("a task of that name");
    of.1.iter().map(|job| job.response().as_ns().div_ceil(1_000_000)).collect()
}

/// Two jobs hold an accelerator each when a more urgent one requests both.
#[test]
fn y7_two_holders_that_inherit_one_key_are_in_the_order_of_equals() {
    let order = |policy: &str, tasks: [(&str, u8, u8); 2]| {
        let mut text =
            format!("duration = \"90ms\"\n[[scheduler]]\nname = \"r\"\npolicy = \"{policy}\"\n");
        text += "[[accelerator]]\nname = \"of-x\"\n[[accelerator]]\nname = \"of-y\"\n";
        let mut task = |name: &str, at: u8, priority: u8, uses: &str, cost: u8, deadline: u8| {
            let _ = writeln!(
                text,
                "[[task]]\nname = \"{name}\"\nperiod = \"100ms\"\ndeadline = \"{deadline}ms\"\noffset = \"{at}ms\"\n\
                 priority = {priority}\n[[task.version]]\nname = \"v\"\ncost = \"{cost}ms\"\naccelerators = [{uses}]"
            );
        };
        for (name, at, priority) in tasks {
            task(name, at, priority, &format!("\"of-{name}\""), 6, 90 - priority);
        }
        task("urgent", 2, 30, "\"of-x\", \"of-y\"", 1, 20);
        let mut ends: Vec<(Time, String)> = run(&parsed(&text))
            .into_iter()
            .map(|(name, jobs, _)| (jobs.first().expect("a job").end, name))
            .collect();
        ends.sort();
        ends.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ")
    };
    // Fixed priorities: the job that has become ready first, wherever it is declared.
    assert_eq!(order("fp", [("x", 0, 10), ("y", 1, 20)]), "x y urgent");
    assert_eq!(order("fp", [("y", 1, 20), ("x", 0, 10)]), "x y urgent");
    assert_eq!(order("fp", [("x", 1, 20), ("y", 0, 10)]), "y x urgent");
    // Other policies: the task that is declared first.
    for policy in ["edf", "dm"] {
        assert_eq!(order(policy, [("x", 0, 10), ("y", 1, 20)]), "x y urgent");
        assert_eq!(order(policy, [("y", 1, 20), ("x", 0, 10)]), "y x urgent");
    }
}

/// Checks that every expectation of a shipped file holds.
fn holds(name: &str) {
    let system = read(name);
    let all = run(&system);
    assert!(!system.expectations.is_empty(), "{name} expects nothing");
    for expectation in &system.expectations {
        let about = || all.iter().filter(|(task, ..)| expectation.is_about(task));
        let late: u64 = about()
            .map(|(_, jobs, overdue)| {
                jobs.iter().filter(|job| job.is_late()).count() as u64 + overdue
            })
            .sum();
        let worst =
            about().flat_map(|(_, jobs, _)| jobs).map(Completion::response).max().expect("a job");
        assert!(
            expectation.misses.is_none_or(|most| late <= most),
            "{name}: {expectation:?}: {late} late"
        );
        assert!(
            expectation.response.is_none_or(|most| worst <= most),
            "{name}: {expectation:?}: {worst}"
        );
    }
}

#[test]
fn y6_y7_versions_and_accelerators_of_a_file_are_chosen_by_each_of_the_five_methods() {
    holds("versions.toml");
    let text = shipped("versions.toml").expect("it is there");
    let by = |selection: &str| {
        responses(&parsed(&text.replace("selection = \"energy\"", selection)), "detect")
    };
    // The battery of 25 no longer holds the 30 of the accelerator's version, one of 10 only the 5
    // of the coarse one. At 0, 80 and 160 ms the accelerator is taken by `show`, whose deadline is
    // earlier.
    assert_eq!(by("selection = \"energy\""), [20, 5, 20, 5, 20, 20, 20, 20, 8, 8]);
    assert_eq!(by("selection = \"declared\""), [20, 5, 20, 5, 20, 5, 20, 5, 20, 5]);
    // Time only, then energy only.
    assert_eq!(by("selection = \"trade-off\"\nweight = 0"), [8, 5, 8, 5, 8, 5, 8, 5, 8, 5]);
    assert_eq!(by("selection = \"trade-off\"\nweight = 1000"), [8; 10]);
    // From 200 ms on mode 1, for which the accelerator's version is not meant; and bit 7 is not
    // permitted any more.
    assert_eq!(by("selection = \"mode\""), [20, 5, 20, 5, 20, 20, 20, 20, 20, 20]);
    assert_eq!(by("selection = \"mask\""), [20, 5, 20, 5, 20, 5, 8, 5, 8, 5]);
    // The fifth method is a function that a program has registered.
    let registry =
        Registry::new().selection("coarsest", |of| of.iter().map(|(at, _)| at).next_back());
    let own = text.replace("\"energy\"", "\"coarsest\"");
    let system = system::read_with(&own, "own.toml", &(), &registry).expect("a system");
    assert_eq!(responses(&system, "detect"), [8; 10]);
    let found = system::read(&own, "own.toml", &()).expect_err("the registry has no such policy");
    assert!(found[0].what.contains("`coarsest`"), "{found:?}");
}

#[test]
fn y9_y10_a_graph_of_a_file_is_activated_by_its_channels() {
    holds("graph.toml");
    let text = shipped("graph.toml").expect("it is there");
    let count = |text: &str| -> Vec<usize> {
        run(&parsed(text)).iter().map(|(_, jobs, _)| jobs.len()).collect()
    };
    // Every second fusion is recorded.
    assert_eq!(count(&text), [25, 25, 25, 12]);
    // Of four jobs the camera shows nothing in two, and two pictures in one.
    let uneven =
        text.replace("to = \"fusion\"\nsize = 4", "to = \"fusion\"\nsize = 4\npush = [1, 0, 0, 2]");
    assert_eq!(count(&uneven), [25, 25, 19, 9]);
    // Tokens that are not removed fill the channel, and further tokens are lost.
    let full = text.replace("to = \"fusion\"\nsize = 4", "to = \"fusion\"\nsize = 4\npop = [0]");
    assert_eq!(count(&full)[2], 4);
    // Nodes have what the roots have, unless they say something else.
    let system = parsed(&text.replace("name = \"record\"", "name = \"record\"\npriority = 7"));
    let tree = &system.roots[0].tree;
    let specs: Vec<_> = tree
        .nodes()
        .filter_map(|(_, node)| match &node.spec {
            NodeSpec::Task(spec) => {
                Some((spec.name.as_str(), spec.period.as_ns() / 1_000_000, spec.priority))
            }
            NodeSpec::Scheduler(_) => None,
        })
        .collect();
    assert_eq!(specs, [("camera", 40, 0), ("laser", 40, 0), ("fusion", 40, 0), ("record", 40, 7)]);
    assert_eq!(tree.channels[2].name, "fusion-record");
}

#[test]
fn y11_y12_an_off_line_table_of_a_file_is_followed() {
    holds("table.toml");
    let text = shipped("table.toml").expect("it is there");
    let system = parsed(&text);
    assert_eq!(responses(&system, "filter")[..4], [8, 14, 8, 14], "the versions of the entries");
    assert_eq!(responses(&system, "poll")[0], 3);
    // From 5 ms on, 10 ms and, 10 ms later, 8 ms.
    assert_eq!(responses(&system, "plan")[0], 28);
    let cpus: Vec<u32> = run(&system).iter().map(|(_, jobs, _)| jobs[0].cpu.0).collect();
    assert_eq!(cpus, [0, 0, 1]);
}

#[test]
fn y11_an_entry_of_a_file_may_say_that_its_job_goes_on() {
    struct Overruns(u64);
    impl talea_sim::Sink for Overruns {
        fn on_notification(&mut self, _: Time, note: &talea_core::engine::Notification) {
            self.0 += u64::from(matches!(note, talea_core::engine::Notification::Overrun { .. }));
        }
    }
    let overruns = |more: &str| {
        let system = parsed(&format!(
            "[[scheduler]]\nname = \"cpu\"\npolicy = \"table\"\nhyperperiod = \"20ms\"\n\
             [[scheduler.entry]]\nowner = \"t\"\nlength = \"4ms\"\n{more}\
             [[scheduler.entry]]\nowner = \"t\"\nstart = \"10ms\"\nlength = \"4ms\"\n\
             [[task]]\nname = \"t\"\nperiod = \"20ms\"\ncost = \"6ms\"\n"
        ));
        let root = &system.roots[0];
        let mut world =
            Simulation::new(root.tree.build().expect("a sound tree"), 1, &root.workload(1));
        let mut seen = Overruns(0);
        world.run(Time::from_ns(100_000_000), &mut seen);
        seen.0
    };
    assert_eq!(overruns(""), 5);
    assert_eq!(overruns("continues = true\n"), 0);
}

#[test]
fn y9_what_a_node_of_a_file_does_not_say_is_its_roots() {
    let system = parsed(
        "[[scheduler]]\nname = \"cpu\"\npolicy = \"dm\"\n\
         [[task]]\nname = \"root\"\nperiod = \"20ms\"\ndeadline = \"15ms\"\npriority = 7\ncost = \"1ms\"\n\
         [[task]]\nname = \"node\"\ncost = \"1ms\"\n\
         [[task]]\nname = \"own\"\ndeadline = \"12ms\"\npriority = 3\ncost = \"1ms\"\n\
         [[channel]]\nfrom = \"root\"\nto = \"node\"\n\
         [[channel]]\nfrom = \"root\"\nto = \"own\"\n",
    );
    let ms = |ns: u64| ns / 1_000_000;
    let seen = system.roots[0].tree.nodes().filter_map(|(_, node)| match &node.spec {
        NodeSpec::Task(spec) => {
            Some((ms(spec.period.as_ns()), ms(spec.deadline.as_ns()), spec.priority))
        }
        NodeSpec::Scheduler(_) => None,
    });
    assert_eq!(seen.collect::<Vec<_>>(), [(20, 15, 7), (20, 15, 7), (20, 12, 3)]);
}

#[test]
fn shared_resources_of_a_file_follow_their_protocol() {
    holds("resources.toml");
    let text = shipped("resources.toml").expect("it is there");
    let by = |protocol: &str| {
        let system = parsed(&text.replace("\"inheritance\"", protocol));
        (responses(&system, "high")[0], responses(&system, "middle")[0])
    };
    // `low` has had the bus from 2 to 5 ms when `high` comes, 5 ms of its section are left when it
    // asks at 6 ms.
    assert_eq!(by("\"inheritance\""), (10, 39));
    assert_eq!(by("\"ceiling\""), (10, 39));
    // `middle` comes at 6 ms, and all others wait for its 30 ms.
    assert_eq!(by("\"none\""), (40, 30));
    // After 50 ms for all others 4 ms of work, 20 ms of waiting, 6 ms of work.
    assert_eq!(responses(&parsed(&text), "log"), [80; 5]);
}

#[test]
fn y5_affinities_of_a_file_bind() {
    holds("affinity.toml");
    let all = run(&read("affinity.toml"));
    let cpus = |task: &str| {
        let of =
            all.iter().filter(|(name, ..)| name.starts_with(task)).flat_map(|(_, jobs, _)| jobs);
        of.map(|job| job.cpu.0).collect::<BTreeSet<u32>>()
    };
    assert_eq!(cpus("motor"), BTreeSet::from([0]));
    assert_eq!(cpus("radio"), BTreeSet::from([1]));
    assert_eq!(cpus("worker"), BTreeSet::from([2, 3]));
    assert!(cpus("service").is_subset(&BTreeSet::from([0, 1])));
}

#[test]
fn overheads_and_stalls_of_a_file_take_time_and_no_budget() {
    holds("interference.toml");
    let text = shipped("interference.toml").expect("it is there");
    let (disturbed, from) = (parsed(&text), text.find("[overheads]").expect("it has some"));
    let good = parsed(&text[..from]);
    let exact = |system: &System| -> Vec<u64> {
        run(system)[0].1.iter().map(|job| job.response().as_ns()).collect()
    };
    assert!(exact(&good).iter().all(|&ns| ns == 2_000_000));
    // An arrival, an order two levels deep, a change of job.
    assert_eq!(exact(&disturbed)[1], 2_000_000 + 2_000 + 1_000 + 100 + 3_000);
    assert!(exact(&disturbed)[10] >= 8_000_000, "6 ms of it are the stall");
    // The server's client runs for 5 ms in each 20 ms all the same.
    let ends = |system: &System| run(system)[1].1.len();
    assert_eq!(ends(&disturbed), ends(&good));
}

#[test]
fn l19_a_file_names_a_server_that_the_program_has_registered() {
    use talea_core::server::{Reservation, Server, ServerKind};
    /// Server that is always open, and so no reservation.
    #[derive(Debug)]
    struct Open(Time);
    impl Server for Open {
        fn wake(&mut self, _: Time) {}
        fn idle(&mut self, _: Time) {}
        fn charge(&mut self, _: Time, _: Work) {}
        fn exhausted(&mut self, _: Time) {}
        fn refill(&mut self, _: Time) {}
        fn budget(&self, _: Time) -> Work {
            Work::from_ns(1_000_000_000)
        }
        fn next_refill(&self, _: Time) -> Option<Time> {
            None
        }
        fn deadline(&self) -> Time {
            self.0
        }
    }
    let registry =
        Registry::new().server("open", |of: &Reservation| Box::new(Open(Time::ZERO + of.period)));
    let text =
        shipped("interference.toml").expect("it is there").replace("\"sporadic\"", "\"open\"");
    let system = system::read_with(&text, "own.toml", &(), &registry).expect("a system");
    let server = system.roots[0].tree.nodes().find_map(|(_, node)| match &node.spec {
        NodeSpec::Scheduler(spec) => spec.reservation,
        NodeSpec::Task(_) => None,
    });
    assert_eq!(server.map(|of| of.kind.name()), Some("open"));
    assert_ne!(server.map(|of| of.kind), Some(ServerKind::Sporadic));
    assert!(run(&system).iter().all(|(_, jobs, _)| !jobs.is_empty()));
    let found = system::read(&text, "own.toml", &()).expect_err("the registry has no such server");
    assert!(
        found[0].what.contains("`open`") && found[0].remedy.contains("\"deferrable\""),
        "{found:?}"
    );
}

/// Files with their names.
struct Files(&'static [(&'static str, &'static str)]);

impl Include for Files {
    fn text(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        let found = self.0.iter().find(|(name, _)| *name == path).ok_or("there is none")?;
        Ok((path.to_owned(), found.1.to_owned()))
    }
}

#[test]
fn l11_a_part_that_two_teams_include_is_read_once() {
    let files = Files(&[
        (
            "a.toml",
            "include = [\"cpu.toml\"]\n[[task]]\nname = \"a\"\nperiod = \"9ms\"\ncost = \"1ms\"\n",
        ),
        (
            "b.toml",
            "include = [\"cpu.toml\"]\n[[task]]\nname = \"b\"\nperiod = \"9ms\"\ncost = \"1ms\"\n",
        ),
        ("cpu.toml", "[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n"),
    ]);
    let all = "include = [\"a.toml\", \"b.toml\", \"cpu.toml\"]\n";
    let system = system::read(all, "all.toml", &files).unwrap_or_else(|found| panic!("{found:#?}"));
    assert_eq!(system.roots[0].tasks, ["a", "b"]);
}

/// Includes an empty file at every path.
struct Empty;

impl Include for Empty {
    fn text(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Ok((path.to_owned(), String::new()))
    }
}

#[test]
fn l11_a_system_has_at_most_256_files() {
    let read = |includes: usize| {
        let paths: Vec<String> = (0..includes).map(|number| format!("\"{number}.toml\"")).collect();
        // A repeated path adds no file.
        let text = format!(
            "include = [{}, \"0.toml\"]\n[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n",
            paths.join(", ")
        );
        system::read(&text, "all.toml", &Empty)
    };
    assert!(read(255).is_ok());
    let found = render(&read(256).expect_err("257 files"), false);
    assert!(found.contains("at most 256 files"), "{found}");
    assert!(found.contains("\"255.toml\""), "{found}");
}

#[test]
fn l11_a_file_has_one_name_in_all_files_that_include_it() {
    let folded = |path: &str| system::folded(Path::new(path)).display().to_string();
    for (path, name) in [
        ("a.toml", "a.toml"),
        ("./a.toml", "a.toml"),
        ("team/../a.toml", "a.toml"),
        ("team/./sub/../../a.toml", "a.toml"),
        ("../a.toml", "../a.toml"),
        ("team/../../a.toml", "../a.toml"),
        ("../../team/../a.toml", "../../a.toml"),
        ("/team/../../a.toml", "/a.toml"),
    ] {
        assert_eq!(folded(path), name, "{path}");
    }
}

#[test]
fn s13_a_file_turns_preemption_off() {
    let file = |more: &str| {
        parsed(&format!(
            "[[scheduler]]\nname = \"cpu\"\npolicy = \"edf\"\n{more}\
             [[task]]\nname = \"long\"\nperiod = \"100ms\"\ncost = \"10ms\"\n\
             [[task]]\nname = \"short\"\nperiod = \"100ms\"\ndeadline = \"20ms\"\noffset = \"2ms\"\ncost = \"3ms\"\n"
        ))
    };
    assert_eq!(responses(&file(""), "short")[0], 3);
    assert_eq!(responses(&file("preemptive = false\n"), "short")[0], 11);
}

#[test]
fn s19_a_name_that_files_know_already_means_nothing_else_in_any_program() {
    use talea_core::{sched, server};
    let policy: sched::PolicyFactory = |_| unreachable!("never built");
    let server: server::ServerFactory = |_| unreachable!("never built");
    let registry =
        || Registry::new().policy("mine", policy).server("own", server).selection("odd", |_| None);
    assert_eq!(registry().servers().count(), 1);
    let taken: [fn(Registry, sched::PolicyFactory, server::ServerFactory) -> Registry; 6] = [
        |registry, policy, _| registry.policy("edf", policy),
        |registry, policy, _| registry.policy("mine", policy),
        |registry, _, server| registry.server("cbs", server),
        |registry, _, server| registry.server("own", server),
        |registry, _, _| registry.selection("energy", |_| None),
        |registry, _, _| registry.selection("odd", |_| None),
    ];
    for add in taken {
        assert!(std::panic::catch_unwind(|| add(registry(), policy, server)).is_err());
    }
}

#[test]
fn l20_a_program_without_a_period_always_wants_the_cpu_and_gets_what_its_server_has() {
    let system = parsed(
        "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n[[scheduler]]\nname = \"box\"\nin = \"cpu\"\n\
         server = \"deferrable\"\nbudget = \"1ms\"\nperiod = \"50ms\"\npriority = 9\n[[task]]\nname = \"hog\"\nin = \"box\"\n\
         program = [\"sha1sum\", \"/dev/zero\"]\ncount = 2\n[[task]]\nname = \"a\"\nin = \"cpu\"\nperiod = \"10ms\"\ncost = \"3ms\"\n",
    );
    let hog = Some(vec!["sha1sum".to_owned(), "/dev/zero".to_owned()]);
    assert_eq!(system.roots[0].programs, [hog.clone(), hog, None]);
    assert!(system.roots[0].sources[0].is_endless() && !system.roots[0].sources[2].is_endless());
    // Neither ends, and each lower-priority task waits for one budget per period.
    assert_eq!(responses(&system, "hog0"), []);
    let waited = responses(&system, "a");
    assert_eq!((waited.len(), waited[0], waited[1]), (100, 4, 3));
    assert_eq!(waited.iter().filter(|&&response| response == 4).count(), 20);
}

#[test]
fn l20_a_program_with_a_period_and_a_cost_is_simulated_as_generated_work() {
    let task = |program: &str| {
        let text = format!(
            "duration = \"100ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n[[task]]\nname = \"a\"\nperiod = \"10ms\"\ncost = \"3ms\"\n{program}"
        );
        let system = parsed(&text);
        (responses(&system, "a"), system.roots[0].programs[0].is_some())
    };
    assert_eq!(task("program = [\"true\"]\n").0, task("").0);
    assert_eq!((task("program = [\"true\"]\n").1, task("").1), (true, false));
}

#[test]
fn y15_a_version_of_a_file_frees_its_cpu_or_keeps_it_while_it_waits_for_a_device() {
    let text = |cpu_use: &str, version: &str| {
        format!(
            "duration = \"30ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
             selection = \"mode\"\n[[change]]\nat = \"0\"\nmode = 1\n\
             [[task]]\nname = \"frames\"\nperiod = \"30ms\"\npriority = 2\n\
             [[task.version]]\nname = \"cpu\"\ncost = \"9ms\"\nmodes = [0]\n\
             [[task.version]]\nname = \"gpu\"\ncost = \"3ms\"\nmodes = [1]\n\
             [[task.suspension]]\nstart = \"1ms\"\nlength = \"5ms\"\n{cpu_use}{version}\
             [[task]]\nname = \"low\"\nperiod = \"30ms\"\noffset = \"1ms\"\ncost = \"4ms\"\n"
        )
    };
    let [free, spin, hold] =
        ["", "while = \"spin\"\n", "while = \"hold\"\n"].map(|of| text(of, "version = \"gpu\"\n"));
    // From 1 to 6 ms the frame is at the device.
    for (text, low) in [(&free, 4), (&spin, 11), (&hold, 11)] {
        let system = parsed(text);
        assert_eq!((responses(&system, "frames"), responses(&system, "low")), (vec![8], vec![low]));
        let text = talea_system::write(&system).expect("a system that a file can describe");
        assert_eq!(parsed(&text).roots[0].sources, system.roots[0].sources, "{text}");
    }
    let other = parsed(&text("while = \"hold\"\n", "version = \"cpu\"\n"));
    assert_eq!((responses(&other, "frames"), responses(&other, "low")), (vec![3], vec![6]));
    let every = parsed(&text("while = \"spin\"\n", ""));
    let text = talea_system::write(&every).expect("a system that a file can describe");
    assert_eq!(text.matches("[[task.suspension]]").count(), 1, "{text}");
    assert_eq!(parsed(&text).roots[0].sources, every.roots[0].sources, "{text}");
}

#[test]
fn curves_and_sections_are_written_as_they_are_read() {
    let head =
        "[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n[[task]]\nname = \"a\"\ncost = \"4ms\"\n";
    let forms = [
        "curve = { distances = [\"1ms\", \"30ms\"] }\n",
        "curve = { distances = [\"1ms\", \"30ms\"], extra_delay = \"2ms\" }\noffset = \"3ms\"\n",
        "curve = { burst = 3, within = \"30ms\", separation = \"1ms\" }\n",
        "curve = { trace = [\"0\", \"10ms\", \"13ms\"], jobs = 2 }\n",
        "period = \"10ms\"\ncurve = { jitter = \"25ms\" }\n",
        "period = \"10ms\"\ncurve = { jitter = \"25ms\", separation = \"2ms\" }\n",
        "period = \"10ms\"\npreemption_points = [\"1ms\", \"3ms\"]\n",
        "period = \"10ms\"\npreemption_points = []\n",
        "period = \"10ms\"\nnonpreemptive_max = \"2ms\"\n",
        "period = \"10ms\"\nnonpreemptive_max = \"2ms\"\nnonpreemptive_last = \"1ms\"\n",
        "period = \"10ms\"\njitter = \"25ms\"\n",
    ];
    let spec = |system: &System| {
        let mut nodes = system.roots[0].tree.nodes();
        nodes.find_map(|(_, node)| match &node.spec {
            NodeSpec::Task(spec) => Some(spec.clone()),
            NodeSpec::Scheduler(_) => None,
        })
    };
    for form in forms {
        let first = parsed(&format!("{head}{form}"));
        let text = talea_system::write(&first).expect("a system that a file can describe");
        let second = parsed(&text);
        assert_eq!(first.roots[0].sources, second.roots[0].sources, "{text}");
        let (first, second) = (spec(&first).expect("a task"), spec(&second).expect("a task"));
        assert_eq!(first.preemption, second.preemption, "{text}");
        assert_eq!((first.period, first.deadline), (second.period, second.deadline), "{text}");
    }
    for (form, known) in [("offset = \"0\"\n", true), ("offset = \"1ms\"\n", true), ("", false)] {
        let first = parsed(&format!("{head}period = \"10ms\"\n{form}"));
        let second = parsed(&talea_system::write(&first).expect("a system"));
        assert_eq!((first.roots[0].phases_known, second.roots[0].phases_known), (known, known));
    }
    let mean = spec(&parsed(&format!("{head}{}", forms[2]))).expect("a task");
    assert_eq!(mean.period.as_ns(), 10_000_000, "three jobs in 30 ms");
    // Of the jobs: three at once, a millisecond apart; the least urgent waits for a point.
    let text = "duration = \"20ms\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n\
         [[task]]\nname = \"low\"\nperiod = \"20ms\"\ncost = \"6ms\"\npreemption_points = [\"4ms\"]\n\
         [[task]]\nname = \"high\"\npriority = 3\ncost = \"1ms\"\noffset = \"1ms\"\n\
         curve = { burst = 2, within = \"30ms\", separation = \"1ms\" }\n";
    let system = parsed(text);
    assert_eq!(responses(&system, "high"), [4, 4]);
    assert_eq!(responses(&system, "low"), [8]);
}

#[test]
fn nothing_is_written_with_or_without_a_unit_where_it_may_be_nothing() {
    let text = |zero: &str| {
        format!(
            "duration = \"1s\"\n[[scheduler]]\nname = \"cpu\"\npolicy = \"fp\"\n[[task]]\nname = \"a\"\nperiod = \"5ms\"\n\
             cost = \"1ms\"\noffset = \"{zero}\"\njitter = \"{zero}\"\n"
        )
    };
    for zero in ["0", "0ns", "0ms"] {
        let system = talea_system::read(&text(zero), "the test's own", &()).expect(zero);
        assert_eq!(system.roots.len(), 1, "{zero}");
    }
    assert!(talea_system::read(&text("0xs"), "the test's own", &()).is_err());
}
