//! Published systems and their figures, compared with the bounds.

use crate::rng::set;
use talea_analysis::supply::{InterferenceCurve, Supply};
use talea_analysis::tree::slot_interference::{interference, min_slot, stretch_slots};
use talea_analysis::tree::{Reason, RootModel, TaskBound};
use talea_analysis::uni::{Scratch, np_edf};
use talea_core::engine::{Affinity, NodeId, NodeSpec, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::{PolicySpec, Slot};
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Source};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Workload};

const MS: u64 = 1_000_000;

fn fp(name: &str) -> SchedulerSpec {
    SchedulerSpec::new(name, PolicySpec::FixedPriority)
}

/// Adds a task and its source, in nanoseconds.
fn add(
    tree: &mut Tree,
    sources: &mut Vec<Source>,
    parent: NodeId,
    priority: u8,
    (cost, period, deadline): (u64, u64, u64),
) -> NodeId {
    let mut spec = TaskSpec::new("task", Span::from_ns(period));
    spec.deadline = Span::from_ns(deadline);
    spec.priority = priority;
    spec.backlog.capacity = 1 << 12;
    sources.push(Source::periodic(Span::from_ns(period), Work::from_ns(cost)));
    tree.task(parent, spec)
}

fn simulated(tree: &Tree, sources: &[Source], until: u64) -> Vec<u64> {
    let workload = Workload { sources: sources.to_vec(), seed: 1 };
    let mut jobs = Jobs::default();
    Simulation::new(tree.build().expect("a tree"), 1, &workload)
        .run(Time::from_ns(until), &mut jobs);
    let mut longest = vec![0; sources.len()];
    for job in &jobs.ended {
        let slot = &mut longest[job.task.0 as usize];
        *slot = job.response().as_ns().max(*slot);
    }
    longest
}

fn bounds(answers: &[TaskBound]) -> Vec<u64> {
    answers.iter().map(|answer| answer.bound.clone().expect("a bound").as_ns()).collect()
}

/// Returns tenths of a millisecond, rounded.
fn tenths(ns: u64) -> u64 {
    (ns + MS / 20) / (MS / 10)
}

#[test]
fn l_o4_the_bounds_of_figure_6() {
    // L3C as the least urgent task of TP_0, below seven tasks of U/7 each.
    let cases = [
        ([5, 10, 20, 50, 100, 200, 1000], [216, 440, 711, 981, 1442]),
        ([5, 10, 20, 40, 200, 1000, 1000], [346, 729, 1159, 1679, 2467]),
    ];
    for (periods, expected) in cases {
        for (tenth, expected) in (1..).zip(expected) {
            let mut tree = Tree::new(1, fp("TP_0"));
            let mut sources = Vec::new();
            for (at, period) in periods.into_iter().enumerate() {
                let period = period * MS;
                let cost = (period * tenth + 35) / 70;
                add(&mut tree, &mut sources, Tree::ROOT, 200 - at as u8, (cost, period, period));
            }
            add(&mut tree, &mut sources, Tree::ROOT, 1, (MS, 1000 * MS, 1000 * MS));
            let found = bounds(&RootModel::new(&tree, &sources).bounds());
            assert_eq!(tenths(found[7]), expected, "{periods:?} at {tenth} tenths");
            // Everything released together is the worst case: the bound is reached.
            assert_eq!(simulated(&tree, &sources, 1000 * MS)[7], found[7]);
        }
    }
}

/// Builds figure 4: A and C in sporadic servers of an EDF scheduler above B, which has the whole of
/// a partition.
fn figure_4(servers: bool) -> (Tree, Vec<Source>) {
    let mut tree = Tree::new(1, fp("TP_0"));
    let mut sources = Vec::new();
    let mut parents = [Tree::ROOT, Tree::ROOT];
    if servers {
        let mut band = SchedulerSpec::new("band", PolicySpec::Edf);
        band.overrides.priority = Some(9);
        let band = tree.scheduler(Tree::ROOT, band);
        for (parent, budget) in parents.iter_mut().zip([2, 1]) {
            let mut server = fp("server");
            server.reservation = Some(Reservation::new(
                ServerKind::Sporadic,
                Work::from_ns(budget * MS),
                Span::from_ns(10 * MS),
            ));
            *parent = tree.scheduler(band, server);
        }
    }
    let list =
        |at: &[u64]| Arrivals::List(at.iter().map(|&half| Time::from_ns(half * MS / 2)).collect());
    add(&mut tree, &mut sources, parents[0], 1, (MS, 10 * MS, 5 * MS));
    sources[0].arrivals = list(&[1, 21]);
    add(&mut tree, &mut sources, parents[1], 9, (MS, MS, 10 * MS));
    sources[1].arrivals = list(&[6, 16, 18, 20, 22, 24]);
    let slots = vec![Slot { start: Span::ZERO, end: Span::from_ns(MS), owner: 0 }];
    let table = PolicySpec::Partitions { frame: Span::from_ns(MS), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", table));
    let partition = tree.scheduler(table, fp("TP_1"));
    add(&mut tree, &mut sources, partition, 5, (5 * MS, 8 * MS, 8 * MS));
    (tree, sources)
}

#[test]
fn l_o1_b_of_figure_4_is_safe_below_the_band_and_not_below_the_burst() {
    let (tree, sources) = figure_4(true);
    let answers = RootModel::new(&tree, &sources).bounds();
    let b = answers[2].bound.clone().expect("a bound").as_ns();
    // 5 + 2 + 1 within 8: the band's budgets, once each.
    assert_eq!(b, 8 * MS);
    assert!(answers[2].is_proved());
    let found = simulated(&tree, &sources, 40 * MS);
    assert_eq!((found[0], found[2]), (MS, 7 * MS), "A 0.5 to 1.5; B 0 to 7 and 8 to 15");
    assert!(
        found.iter().zip(&answers).all(|(&found, answer)| answer
            .bound
            .as_ref()
            .is_ok_and(|bound| found <= bound.as_ns())
            || answer.bound.is_err())
    );
    // Without reservations C alone asks for the whole CPU while its burst lasts.
    let (tree, sources) = figure_4(false);
    let answers = RootModel::new(&tree, &sources).bounds();
    assert_eq!(answers[2].bound.clone().expect_err("no bound").reason, Reason::Overload);
    assert_eq!(simulated(&tree, &sources, 40 * MS)[2], 10 * MS, "B misses 16 by 2");
}

/// Builds the base system of L3C section 5: two partitions of 20 in 40, A in the second, B in TP_0.
/// The L3C service is in a server of 1 in 50 above both partitions.
fn base_system() -> (Tree, Vec<Source>, NodeId) {
    let mut tree = Tree::new(1, fp("TP_0"));
    let mut sources = Vec::new();
    let mut server = fp("L3C");
    server.overrides.priority = Some(250);
    server.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(MS), Span::from_ns(50 * MS)));
    let server = tree.scheduler(Tree::ROOT, server);
    add(&mut tree, &mut sources, server, 1, (650_000, 100 * MS, 1000 * MS));
    add(&mut tree, &mut sources, Tree::ROOT, 200, (2 * MS, 100 * MS, 5 * MS));
    let ms = |ms: u64| Span::from_ns(ms * MS);
    let slots = vec![
        Slot { start: ms(0), end: ms(20), owner: 0 },
        Slot { start: ms(20), end: ms(40), owner: 1 },
    ];
    let table = PolicySpec::Partitions { frame: ms(40), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", table));
    let first = tree.scheduler(table, fp("TP_1"));
    let second = tree.scheduler(table, fp("TP_2"));
    add(&mut tree, &mut sources, first, 50, (36 * MS, 80 * MS, 1000 * MS));
    add(&mut tree, &mut sources, second, 50, (10 * MS, 40 * MS, 40 * MS));
    sources[3].arrivals = Arrivals::Periodic { offset: ms(20), period: ms(40), jitter: Span::ZERO };
    (tree, sources, server)
}

#[test]
fn l_o2_the_base_system_is_safe_with_its_reservation() {
    let (tree, sources, server) = base_system();
    let roots = RootModel::new(&tree, &sources);
    let answers = roots.bounds();
    // B: its 2 and twice the budget of 1 back to back.
    assert_eq!(answers[1].bound, Ok(Span::from_ns(4 * MS)));
    assert!(answers[1].is_proved());
    let found = simulated(&tree, &sources, 2_000 * MS);
    for (found, answer) in found.iter().zip(&answers) {
        let bound = answer.bound.clone().expect("a bound").as_ns();
        println!("simulated {} us, bound {} us", found / 1_000, bound / 1_000);
        assert!(*found <= bound);
    }
    // What the band can take of any 20 ms: its budget twice; so a slot for A's 10 has to be 14
    // long, B's 2 included.
    let curves = roots.interference_of(&[server]).expect("a hard budget");
    assert_eq!(interference(&curves, Span::from_ns(20 * MS)), Work::from_ns(2 * MS));
    let above = roots.interference_of(&[server, answers[1].node]).expect("known");
    assert_eq!(min_slot(Work::from_ns(10 * MS), &above), Some(Span::from_ns(14 * MS)));
    assert_eq!(roots.supplied(server, Span::from_ns(150 * MS)), Ok(Work::from_ns(3 * MS)));
}

#[test]
fn a_starved_server_is_named() {
    let mut tree = Tree::new(1, fp("root"));
    let mut sources = Vec::new();
    add(&mut tree, &mut sources, Tree::ROOT, 9, (8, 10, 10));
    let mut spec = fp("server");
    spec.reservation =
        Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(3), Span::from_ns(10)));
    let server = tree.scheduler(Tree::ROOT, spec);
    add(&mut tree, &mut sources, server, 5, (1, 100, 100));
    let answers = RootModel::new(&tree, &sources).bounds();
    let no = answers[1].bound.clone().expect_err("starved");
    assert_eq!((no.node, no.reason), (server, Reason::Starved));
    assert!(answers[0].is_proved());
}

#[test]
fn interference_equals_that_of_the_remaining_supply() {
    use talea_analysis::supply::{Dedicated, Leftover};
    let band = [
        InterferenceCurve {
            cost: Work::from_ns(2),
            period: Span::from_ns(10),
            jitter: Span::from_ns(8),
        },
        InterferenceCurve { cost: Work::from_ns(1), period: Span::from_ns(7), jitter: Span::ZERO },
    ];
    for work in 1..60 {
        let work = Work::from_ns(work);
        assert_eq!(min_slot(work, &band), Leftover::new(Dedicated, &band, 1 << 10).time_for(work));
    }
    let full = [InterferenceCurve {
        cost: Work::from_ns(1),
        period: Span::from_ns(1),
        jitter: Span::ZERO,
    }];
    assert_eq!(min_slot(Work::from_ns(1), &full), None);
    assert_eq!(interference(&full, Span::from_ns(9)), Work::from_ns(9));
}

#[test]
fn a_thousand_tasks_on_four_levels_all_have_bounds() {
    let mut tree = Tree::new(1, fp("root"));
    let mut sources = Vec::new();
    for band in 0..10u64 {
        let mut spec = SchedulerSpec::new("band", PolicySpec::Edf);
        spec.overrides.priority = Some(20 + band as u8);
        let band_node = tree.scheduler(Tree::ROOT, spec);
        for server in 0..10 {
            let period = (20 + 10 * (9 - band) + server) * MS;
            let mut spec = fp("server");
            let kind = if server % 2 == 0 { ServerKind::HardCbs } else { ServerKind::Sporadic };
            spec.reservation =
                Some(Reservation::new(kind, Work::from_ns(period / 200), Span::from_ns(period)));
            let node = tree.scheduler(band_node, spec);
            for task in 0..10 {
                let period = (1_000 + 37 * task + server) * MS;
                add(
                    &mut tree,
                    &mut sources,
                    node,
                    100 - task as u8,
                    (period / 8_000, period, period),
                );
            }
        }
    }
    let mut reported = 0;
    let answers = RootModel::new(&tree, &sources).bounds_with_progress(|done, all| {
        assert!(done == reported + 1 && all == 1_000);
        reported = done;
    });
    let proved = answers.iter().filter(|answer| answer.is_proved()).count();
    assert_eq!(
        (proved, reported),
        (1_000, 1_000),
        "{:?}",
        answers.iter().find(|answer| !answer.is_proved())
    );
}

#[test]
fn jobs_pending_in_a_closed_partition_run_back_to_back() {
    let mut tree = Tree::new(1, fp("TP_0"));
    let mut sources = Vec::new();
    let slots = vec![Slot { start: Span::ZERO, end: Span::from_ns(20), owner: 0 }];
    let table = PolicySpec::Partitions { frame: Span::from_ns(40), slots, lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", table));
    let partition = tree.scheduler(table, fp("TP_1"));
    add(&mut tree, &mut sources, partition, 9, (4, 30, 60));
    add(&mut tree, &mut sources, Tree::ROOT, 5, (10, 200, 200));
    sources[1].arrivals = Arrivals::Periodic {
        offset: Span::from_ns(80),
        period: Span::from_ns(200),
        jitter: Span::ZERO,
    };
    // The job of 60 waits for the slot at 80, and that of 90 finds it open.
    let found = simulated(&tree, &sources, 150);
    assert_eq!(found[1], 18);
    let bound = RootModel::new(&tree, &sources).bounds()[1].bound.clone().expect("a bound");
    assert_eq!(bound, Span::from_ns(18));
}

/// Returns the work of two partitions in each frame of 40. Both are always busy. With `band`, a
/// scheduler above them uses the whole budget of its server.
fn served(slots: &[Slot], band: bool) -> Vec<[u64; 2]> {
    let mut tree = Tree::new(1, fp("TP_0"));
    let mut sources = Vec::new();
    if band {
        let mut server = fp("band");
        server.overrides.priority = Some(250);
        server.reservation =
            Some(Reservation::new(ServerKind::Deferrable, Work::from_ns(2), Span::from_ns(25)));
        let server = tree.scheduler(Tree::ROOT, server);
        add(&mut tree, &mut sources, server, 1, (1, 1, 1));
        // Now and then it keeps its budget for the end of a period.
        let times = (0..2_000).filter(|at| at % 170 > 20).map(Time::from_ns).collect();
        sources[0].arrivals = Arrivals::List(times);
    }
    let policy =
        PolicySpec::Partitions { frame: Span::from_ns(40), slots: slots.to_vec(), lending: false };
    let table = tree.scheduler(Tree::ROOT, SchedulerSpec::new("table", policy));
    for _ in 0..2 {
        let partition = tree.scheduler(table, fp("TP"));
        add(&mut tree, &mut sources, partition, 5, (1, 1, 1));
    }
    let workload = Workload { sources, seed: 1 };
    let mut jobs = Jobs::default();
    Simulation::new(tree.build().expect("a tree"), 1, &workload)
        .run(Time::from_ns(2_000), &mut jobs);
    let mut frames = vec![[0; 2]; 50];
    for job in &jobs.ended {
        let of = (job.task.0 + u32::from(!band)).checked_sub(1);
        if let (Some(of), Some(frame)) = (of, frames.get_mut((job.end.as_ns() as usize - 1) / 40)) {
            frame[of as usize] += 1;
        }
    }
    frames
}

#[test]
fn l3c_4_1_stretched_slots_hold_the_same_work_below_the_band() {
    let ns = Span::from_ns;
    let slots = [
        Slot { start: ns(0), end: ns(15), owner: 0 },
        Slot { start: ns(16), end: ns(26), owner: 1 },
    ];
    let band = [InterferenceCurve { cost: Work::from_ns(2), period: ns(25), jitter: ns(23) }];
    let stretched = stretch_slots(ns(40), &slots, &band).expect("there is room");
    let length = |slot: &Slot| slot.end.as_ns() - slot.start.as_ns();
    assert_eq!(stretched.iter().map(length).collect::<Vec<_>>(), [19, 14]);
    let before = served(&slots, false);
    let disturbed = served(&slots, true);
    let after = served(&stretched, true);
    assert!(before.iter().all(|frame| *frame == [15, 10]));
    assert!(
        disturbed.iter().any(|frame| frame[0] < 15) && disturbed.iter().any(|frame| frame[1] < 10)
    );
    assert!(after.iter().all(|frame| frame[0] >= 15 && frame[1] >= 10), "{after:?}");
    // Somewhere the band takes all that is said.
    assert!(
        after.iter().flatten().zip([15, 10].iter().cycle()).any(|(served, held)| served == held)
    );
    assert_eq!(stretch_slots(ns(32), &slots, &band), Err(Some(ns(33))));
    let full = [InterferenceCurve { cost: Work::from_ns(1), period: ns(1), jitter: ns(0) }];
    assert_eq!(stretch_slots(ns(40), &slots, &full), Err(None));
}

#[test]
fn a_thousand_tasks_flat_and_in_groups_all_have_bounds() {
    for policy in [PolicySpec::FixedPriority, PolicySpec::RateMonotonic, PolicySpec::Edf] {
        for depth in [0u64, 3] {
            let mut tree = Tree::new(1, SchedulerSpec::new("root", policy.clone()));
            let mut sources = Vec::new();
            let mut groups = vec![Tree::ROOT];
            for _ in 0..depth {
                let below = groups.iter().flat_map(|&group| [group; 4]).collect::<Vec<_>>();
                groups = below
                    .into_iter()
                    .map(|above| tree.scheduler(above, SchedulerSpec::new("group", policy.clone())))
                    .collect();
            }
            for task in 0..1_000u64 {
                let period = (1_000 + 7 * task % 900) * MS;
                let parent = groups[task as usize % groups.len()];
                add(
                    &mut tree,
                    &mut sources,
                    parent,
                    (250 - task / 4) as u8,
                    (period / 2_000 + task, period, period),
                );
            }
            let answers = RootModel::new(&tree, &sources).bounds();
            let bounded = answers.iter().filter(|answer| answer.bound.is_ok()).count();
            assert_eq!(bounded, 1_000, "{} {depth}", policy.name());
        }
    }
}

/// Non-preemptive flat task sets have the bounds of the non-preemptive tests.
#[test]
fn davis_2007_the_messages_of_table_3_end_as_they_do_on_the_bus() {
    let of = |policy: PolicySpec, deadlines: [u64; 3]| {
        let mut root = SchedulerSpec::new("bus", policy);
        root.preemptive = false;
        let mut tree = Tree::new(1, root);
        let mut sources = Vec::new();
        for ((at, period), deadline) in (0u8..).zip([2_500, 3_500, 3_500]).zip(deadlines) {
            add(&mut tree, &mut sources, Tree::ROOT, 3 - at, (1_000, period, deadline));
        }
        RootModel::new(&tree, &sources).bounds()
    };
    let messages = of(PolicySpec::FixedPriority, [2_500, 3_250, 3_500]);
    // Less the nanosecond that the job in the way came before.
    assert_eq!(bounds(&messages), [2_000 - 1, 3_000 - 1, 3_500]);
    assert!(
        messages
            .iter()
            .all(|message| message.is_proved() && message.test.name == "np-fp-response-times")
    );
    let by_deadline = of(PolicySpec::Edf, [2_500, 3_250, 3_500]);
    assert!(by_deadline.iter().all(TaskBound::is_proved));
    let by_response = |message: &TaskBound| message.test.name == "np-edf-response-times";
    assert!(by_deadline.iter().all(by_response));
    // A message that is due later blocks once, and only those that are due before it.
    let tasks = set(&[(1_000, 2_500, 2_500), (1_000, 3_500, 3_250), (1_000, 3_500, 3_500)]);
    let mut flat = vec![None; 3];
    np_edf::bounds(&tasks, &mut Scratch::new(), &mut flat).expect("in range");
    let flat: Vec<u64> = flat.iter().map(|bound| bound.expect("U < 1").arrival.as_ns()).collect();
    assert_eq!(bounds(&by_deadline), flat);
    // A job of the others is in the way of every first one.
    assert!(!of(PolicySpec::Edf, [1_500, 3_250, 3_500])[0].is_proved());
}

/// Demand decides where responses take too long.
#[test]
fn a_nearly_full_cpu_under_edf_is_proved_by_its_demand() {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
    let mut sources = Vec::new();
    for at in 0..150 {
        let period = 100_000_000 + 37_000 * at;
        let task = (period * 999 / 150_000, period, 100_000_000 + 30_000 * at);
        add(&mut tree, &mut sources, Tree::ROOT, 1, task);
    }
    let answers = RootModel::new(&tree, &sources).bounds();
    assert!(answers.iter().all(TaskBound::is_proved));
    assert!(answers.iter().any(|answer| answer.test.name == "edf-demand"));
}

/// A busy window that never ends repeats itself after a hyperperiod.
#[test]
fn a_full_cpu_with_jitter_has_its_bounds() {
    let mut tree = Tree::new(1, fp("cpu"));
    let mut sources = Vec::new();
    add(&mut tree, &mut sources, Tree::ROOT, 2, (5 * MS, 10 * MS, 10 * MS));
    add(&mut tree, &mut sources, Tree::ROOT, 1, (10 * MS, 20 * MS, 40 * MS));
    let jitter = Span::from_ns(MS);
    sources[0].arrivals =
        Arrivals::Periodic { offset: Span::ZERO, period: Span::from_ns(10 * MS), jitter };
    assert_eq!(bounds(&RootModel::new(&tree, &sources).bounds()), [6 * MS, 25 * MS]);
}

/// Covers several CPUs beyond the assumptions of the tests: any policy, one CPU for each task, D >
/// T, jitter.
#[test]
fn tasks_on_several_cpus_in_any_order_or_pinned_have_bounds() {
    let of = |policy: PolicySpec, own: [u32; 3], deadline: u64, jitter: u64| {
        let mut tree = Tree::new(2, SchedulerSpec::new("root", policy));
        let mut sources = Vec::new();
        for ((cost, period), cpu) in [(2, 10), (3, 20), (2, 30)].into_iter().zip(own) {
            let node = add(&mut tree, &mut sources, Tree::ROOT, 1, (cost, period, period));
            if let Some(NodeSpec::Task(spec)) = tree.get_mut(node).map(|node| &mut node.spec) {
                spec.affinity = if cpu < 2 { Affinity::only(cpu) } else { Affinity::ANY };
                spec.deadline =
                    Span::from_ns(if cost == 2 && period == 10 { deadline } else { period });
            }
        }
        let (period, jitter) = (Span::from_ns(10), Span::from_ns(jitter));
        sources[0].arrivals = Arrivals::Periodic { offset: Span::ZERO, period, jitter };
        RootModel::new(&tree, &sources).bounds()
    };
    let names = |answers: &[TaskBound]| {
        assert!(answers.iter().all(TaskBound::is_proved), "{answers:?}");
        answers.iter().map(|answer| answer.test.name).collect::<Vec<_>>()
    };
    for policy in [PolicySpec::Fifo, PolicySpec::FixedPriority] {
        assert_eq!(names(&of(policy, [9; 3], 10, 0)), ["bertogna-cirinei-any"; 3]);
    }
    for (deadline, jitter) in [(15, 0), (10, 1), (15, 3)] {
        assert_eq!(
            names(&of(PolicySpec::Edf, [9; 3], deadline, jitter)),
            ["bertogna-cirinei-any"; 3]
        );
        assert_eq!(names(&of(PolicySpec::RateMonotonic, [9; 3], deadline, jitter)), ["guan"; 3]);
    }
    let apart = of(PolicySpec::Edf, [0, 1, 1], 10, 1);
    assert_eq!((names(&apart), bounds(&apart)), (vec!["edf-response-times"; 3], vec![3, 3, 5]));
    let apart = of(PolicySpec::RateMonotonic, [0, 1, 1], 10, 0);
    assert_eq!((names(&apart), bounds(&apart)), (vec!["fp-response-times"; 3], vec![2, 3, 5]));
    // A job may come right behind the one before.
    let reason = of(PolicySpec::Edf, [9; 3], 15, 10)[0].bound.clone().map_err(|no| no.reason);
    assert_eq!(reason, Err(Reason::JitterOrLateDeadlines));
}
