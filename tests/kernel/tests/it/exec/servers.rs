//! What servers give a client that takes all that it can get.

use super::scene::two_cpus;
use std::time::Instant;
use talea_core::criteria::Own;
use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::Policy;
use talea_core::server::{Kind, Reservation};
use talea_core::{Span, Time, Work};
use talea_exec::truth::out_of_order;
use talea_exec::{Arrival, Load, Options, RootPlan, RootReport, TaskPlan, execute, work};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};

const MS: u64 = 1_000_000;
const BUDGET: u64 = 2 * MS;
const PERIOD: u64 = 20 * MS;
const LENGTH: u64 = 600 * MS;

/// A client that would work all the time, in a server above a task that works whenever the client
/// does not.
fn greedy(kind: Kind) -> (RootReport, u64) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
    let mut server = SchedulerSpec::new("server", Policy::Fifo);
    server.own = Own { priority: Some(9), ..Own::default() };
    server.reservation = Some(Reservation::new(kind, Work::from_ns(BUDGET), Span::from_ns(PERIOD)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", Span::from_ns(2 * LENGTH)));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("background", Span::from_ns(PERIOD)));
    let task = |arrivals: Vec<Arrival>, cost| TaskPlan {
        load: Load::new(arrivals, vec![Work::from_ns(cost)]),
        body: work::spender(),
    };
    let at = |ns| Arrival { seen: Time::from_ns(ns), nominal: Time::from_ns(ns) };
    // Seven tenths in all: less than what the kernel takes from real-time threads.
    let background = (0..LENGTH / PERIOD).map(|k| at(k * PERIOD + MS)).collect();
    let tasks = vec![task(vec![at(0)], 2 * LENGTH), task(background, 12 * MS)];
    let mut options = Options::new(Span::from_ns(LENGTH));
    options.switches = 100_000;
    let plan = RootPlan {
        tree: &tree,
        tasks,
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![two_cpus()[0]],
    };
    let mut report = execute(vec![plan], &options).expect("a run");
    let holes = report.holes.iter().map(|hole| hole.length().as_ns()).sum();
    (report.roots.remove(0), holes)
}

/// The longest time in which the client had the CPU, but for the looks of dispatcher and monitor.
fn longest_burst(ran: &[talea_exec::Ran]) -> u64 {
    const LOOK: u64 = 200_000;
    let (mut longest, mut burst) = (0, None::<(Time, Time)>);
    for stay in ran.iter().filter(|stay| stay.task.0 == 0) {
        let from = match burst {
            Some((from, to)) if stay.from.since(to).as_ns() < LOOK => from,
            _ => stay.from,
        };
        burst = Some((from, stay.to));
        longest = longest.max(stay.to.since(from).as_ns());
    }
    longest
}

#[test]
fn l5_l19_each_kind_of_server_gives_a_greedy_client_its_share_and_no_burst_beyond_two_budgets() {
    needs_root!();
    needs!("two CPUs", kernel::cpus().len() >= 2);
    let _bench = Bench::new("exec_l5");
    // The one from outside saves what is not used: of a client that takes all, nothing.
    let saver = Kind::Custom { name: "saver", make: super::outside::server::make };
    for kind in [Kind::Polling, Kind::Deferrable, Kind::Sporadic, Kind::HardCbs, saver] {
        let begun = Instant::now();
        // A machine that stands still is asked again: what it costs a server, nobody makes up for.
        let (root, holes) = loop {
            let (root, holes) = greedy(kind);
            if holes < 2 * MS || begun.elapsed().as_secs() >= 3 {
                break (root, holes);
            }
        };
        let client = root.consumed[0];
        let share = LENGTH / PERIOD * BUDGET;
        let got = client.total.as_ns();
        // Some microseconds beyond each budget are what a look costs that comes in time; and one
        // budget, because a run is cut anywhere.
        assert!(
            got <= share * 102 / 100 + BUDGET + holes,
            "{kind:?}: {got} of {share}, holes {holes}"
        );
        assert!(
            got + BUDGET + holes * BUDGET / MS >= share * 95 / 100,
            "{kind:?}: {got} of {share}, holes {holes}"
        );
        let ran = root.ran.as_ref().expect("root may ask who ran");
        let longest = longest_burst(ran);
        assert!(
            longest <= 2 * BUDGET + 300_000 + holes,
            "{kind:?}: a burst of {longest}, holes {holes}"
        );
        // Not one worker ran that the machine had not chosen, but for the way from an order to its
        // effect.
        let stray = out_of_order(1, &root.record, ran).iter().map(|out| out.length().as_ns()).max();
        assert!(stray.unwrap_or(0) <= MS + holes, "{kind:?}: {stray:?}");
        println!(
            "{kind:?}: {got} of {share} ns, bursts up to {longest}, without an order {stray:?}, holes {holes}"
        );
    }
}
