//! Servers in the simulator against their supply and interference bounds.

use crate::rng::{rng, rounds, set, task};
use talea_analysis::supply::server::max_wait;
use talea_analysis::supply::{
    Dedicated, InterferenceCurve, Leftover, NestedServer, Server, Supply, davis_burns, fp,
};
use talea_analysis::verdict::Inconclusive;
use talea_core::engine::{NodeId, SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::workload::{Arrivals, Cost};
use talea_core::{Span, Time, Work};
use talea_sim::{Jobs, Simulation, Source, Workload};

pub(crate) const KINDS: [ServerKind; 4] =
    [ServerKind::Polling, ServerKind::Deferrable, ServerKind::Sporadic, ServerKind::HardCbs];

/// Returns the longest response of a client of a server, and of a task below the server. The tasks
/// `above` and `below` the server have (C, T, offset). The client has jobs (time, cost).
fn simulate(
    above: &[(u64, u64, u64)],
    of: Reservation,
    jobs: &[(u64, u64)],
    below: (u64, u64, u64),
) -> (u64, u64) {
    let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
    let mut workload = Workload::default();
    let until = 400;
    let mut add = |tree: &mut Tree, parent: NodeId, priority: u8, times: Vec<u64>, cost: Cost| {
        let mut spec = TaskSpec::new("task", Span::from_ns(1));
        spec.priority = priority;
        spec.backlog.capacity = 1 << 12;
        tree.task(parent, spec);
        let times = times.into_iter().map(Time::from_ns).collect();
        workload.sources.push(Source { arrivals: Arrivals::List(times), cost });
    };
    let constant = |cost: u64| Cost::Constant(Work::from_ns(cost));
    let periodic =
        |(_, period, offset): (u64, u64, u64)| (offset..until).step_by(period as usize).collect();
    for (at, &one) in above.iter().enumerate() {
        add(&mut tree, Tree::ROOT, 255 - at as u8, periodic(one), constant(one.0));
    }
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.overrides.priority = Some(100);
    server.reservation = Some(of);
    let server = tree.scheduler(Tree::ROOT, server);
    let (times, costs) = jobs.iter().map(|&(at, cost)| (at, Work::from_ns(cost))).unzip();
    add(&mut tree, server, 1, times, Cost::List(costs));
    add(&mut tree, Tree::ROOT, 1, periodic(below), constant(below.0));
    let mut world = Simulation::new(tree.build().expect("a tree"), 1, &workload);
    let mut ended = Jobs::default();
    world.run(Time::from_ns(until + 200), &mut ended);
    let client = above.len() as u32;
    let longest = |task: u32| {
        ended
            .ended
            .iter()
            .filter(|job| job.task.0 == task)
            .map(|job| job.response().as_ns())
            .max()
            .unwrap_or(0)
    };
    (longest(client), longest(client + 1))
}

/// Checks that no response of a client, or of a task below the server, exceeds its bound. Reports
/// whether the responses of clients attain their bounds.
#[test]
fn every_server_keeps_its_supply_and_interference_bounds() {
    let mut rng = rng(44);
    let mut reached = [[0u64; 2]; 4];
    for round in 0..rounds(6_000) {
        let at = (round % 4) as usize;
        let period = rng.between(2, 9);
        let budget = rng.between(1, period);
        let deadline =
            if at == 3 && rng.below(3) == 0 { rng.between(budget, period) } else { period };
        let mut of = Reservation::new(KINDS[at], Work::from_ns(budget), Span::from_ns(period));
        of.deadline = Some(Span::from_ns(deadline));
        of.offset = Span::from_ns(rng.below(period));
        let one = |rng: &mut crate::rng::Rng| {
            let period = rng.between(4, 14);
            (rng.between(1, 1 + period / 4), period, rng.below(12))
        };
        let above: Vec<(u64, u64, u64)> = (0..rng.below(3)).map(|_| one(&mut rng)).collect();
        let curves: Vec<InterferenceCurve> = (above.iter())
            .map(|&(cost, period, _)| InterferenceCurve {
                cost: Work::from_ns(cost),
                period: Span::from_ns(period),
                jitter: Span::ZERO,
            })
            .collect();
        let level = Leftover::new(Dedicated, &curves, 1 << 12);
        // One client of separation `apart`, the others random: the tight one is a burst of whole
        // windows.
        let (cost, apart) = (rng.between(1, 2 * budget), rng.between(2, 40));
        let first = rng.below(30);
        let mut next = first;
        let mut jobs = Vec::new();
        while next < 300 {
            jobs.push((next, if rng.below(4) == 0 { rng.between(1, cost) } else { cost }));
            next += apart + rng.below(2) * rng.below(9);
        }
        let below = (rng.between(1, 4), rng.between(8, 40), rng.below(20));
        let (client, under) = simulate(&above, of, &jobs, below);
        let tasks = [task(cost, apart, apart)];
        let Some(inside) = NestedServer::new(&of, level) else { continue };
        let within = level.time_for(of.budget).expect("it was asked");
        let coarse = Server::new(&of, within).expect("it is served in time");
        for work in 1..60 {
            let work = Work::from_ns(work);
            assert!(inside.time_for(work) <= coarse.time_for(work), "{above:?} {of:?} {work:?}");
        }
        if let Ok(bounds) = fp::bounds(&tasks, &inside, 10_000)
            && let Some(bound) = bounds[0]
        {
            let bound = bound.release.as_ns();
            assert!(client <= bound, "{above:?} {of:?} {jobs:?}: {client} > {bound}");
            reached[at][0] += u64::from(client == bound);
        }
        let mut curves = curves.clone();
        curves.push(InterferenceCurve::of_server(&of).expect("a hard budget"));
        let tasks = [task(below.0, below.1, below.1)];
        if let Ok(bounds) = fp::bounds(&tasks, &Leftover::new(Dedicated, &curves, 1 << 12), 10_000)
            && let Some(bound) = bounds[0]
        {
            let bound = bound.release.as_ns();
            assert!(under <= bound, "{above:?} {of:?} {jobs:?} {below:?}: {under} > {bound}");
            reached[at][1] += u64::from(under == bound);
        }
    }
    println!("reached (clients, below): {reached:?} of polling, deferrable, sporadic, CBS");
    // What a CBS takes is bounded by a staircase above the line on which it lives: not reached.
    assert!(
        reached.iter().all(|both| both[0] > 10) && reached[..3].iter().all(|both| both[1] > 10)
    );
}

#[test]
fn a_starved_server_yields_no_bound() {
    let tasks = set(&[(1, 50, 50)]);
    let of = Reservation::new(ServerKind::Deferrable, Work::from_ns(3), Span::from_ns(10));
    let above = |cost| {
        [InterferenceCurve {
            cost: Work::from_ns(cost),
            period: Span::from_ns(10),
            jitter: Span::ZERO,
        }]
    };
    assert!(davis_burns::bounds(&tasks, &of, &above(7), 1_000).is_ok());
    assert_eq!(
        davis_burns::bounds(&tasks, &of, &above(8), 1_000),
        Err(Inconclusive::Assumption { number: 8, task: 0 })
    );
    let soft = Reservation::new(ServerKind::SoftCbs, Work::from_ns(3), Span::from_ns(10));
    assert_eq!(
        davis_burns::bounds(&tasks, &soft, &[], 1_000),
        Err(Inconclusive::Assumption { number: 7, task: 0 })
    );
    assert_eq!(max_wait(&soft), None);
}

/// Evaluates equations 9 and 10 for D ≤ T as printed; `None` beyond `until`. The jitter T − Q of a
/// task that is not released with its server is added to the window.
fn printed(
    tasks: &[(u64, u64)],
    at: usize,
    q: u64,
    t: u64,
    servers: &[(u64, u64, u64)],
    until: u64,
) -> Option<u64> {
    let mut w = 1;
    loop {
        // From when the task comes: T − Q before its server can begin.
        let inside: u64 =
            tasks[..at].iter().map(|&(c, period)| (w + t - q).div_ceil(period) * c).sum();
        let load = tasks[at].0 + inside;
        let before = load.div_ceil(q) - 1;
        let others: u64 = servers
            .iter()
            .map(|&(c, period, j)| (w.saturating_sub(before * t) + j).div_ceil(period) * c)
            .sum();
        let next = load + before * (t - q) + others;
        if next == w {
            return Some(w + t - q);
        }
        if next > until {
            return None;
        }
        w = next;
    }
}

#[test]
fn davis_and_burns_2005_as_printed_gives_the_same() {
    let mut rng = rng(45);
    let mut compared = 0;
    for _ in 0..rounds(4_000) {
        let t = rng.between(4, 20);
        let q = rng.between(1, t / 2);
        let of = Reservation::new(ServerKind::Deferrable, Work::from_ns(q), Span::from_ns(t));
        let servers: Vec<(u64, u64, u64)> = (0..rng.below(3))
            .map(|_| {
                let period = rng.between(4, 24);
                let budget = rng.between(1, 1 + period / 4);
                (budget, period, rng.below(2) * (period - budget))
            })
            .collect();
        let above: Vec<InterferenceCurve> = (servers.iter())
            .map(|&(cost, period, jitter)| InterferenceCurve {
                cost: Work::from_ns(cost),
                period: Span::from_ns(period),
                jitter: Span::from_ns(jitter),
            })
            .collect();
        let tasks: Vec<(u64, u64)> =
            (0..rng.between(1, 3)).map(|_| (rng.between(1, 5), rng.between(40, 90))).collect();
        let specs: Vec<_> =
            tasks.iter().map(|&(cost, period)| task(cost, period, period)).collect();
        let Ok(bounds) = davis_burns::bounds(&specs, &of, &above, 1 << 14) else { continue };
        for (at, bound) in bounds.iter().enumerate() {
            let Some(bound) = bound.map(|bound| bound.release.as_ns()) else { continue };
            // The paper's equations are for D ≤ T.
            if bound <= tasks[at].1 {
                assert_eq!(
                    printed(&tasks, at, q, t, &servers, 10_000),
                    Some(bound),
                    "{of:?} {servers:?} {tasks:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 1_000, "{compared}");
}
