//! Service of servers to a client that consumes all the CPU time that it gets.

use super::scene::two_cpus;
use std::time::Instant;
use talea_core::criteria::Overrides;
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::server::{Reservation, ServerKind};
use talea_core::{Span, Time, Work};
use talea_exec::kernel_check::unordered_execution;
use talea_exec::{Arrival, Load, Options, RootPlan, RootReport, TaskPlan, execute, work};
use talea_kernel_tests::{Bench, kernel, needs, needs_root};

const MS: u64 = 1_000_000;
const BUDGET: u64 = 2 * MS;
const PERIOD: u64 = 20 * MS;
const LENGTH: u64 = 600 * MS;

/// Runs a client that always works in a server above a task that works while the client does not.
/// Returns the report of the root and the stalled time in nanoseconds.
fn greedy(kind: ServerKind) -> (RootReport, u64) {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
    let mut server = SchedulerSpec::new("server", PolicySpec::Fifo);
    server.overrides = Overrides { priority: Some(9), ..Overrides::default() };
    server.reservation = Some(Reservation::new(kind, Work::from_ns(BUDGET), Span::from_ns(PERIOD)));
    let server = tree.scheduler(Tree::ROOT, server);
    let _ = tree.task(server, TaskSpec::new("client", Span::from_ns(2 * LENGTH)));
    let _ = tree.task(Tree::ROOT, TaskSpec::new("background", Span::from_ns(PERIOD)));
    let task = |arrivals: Vec<Arrival>, cost| TaskPlan {
        load: Load::new(arrivals, vec![Work::from_ns(cost)]),
        body: work::spender(),
    };
    let at = |ns| Arrival { observed: Time::from_ns(ns), nominal: Time::from_ns(ns) };
    // Seven tenths in total: less than what the kernel takes from real-time threads.
    let background = (0..LENGTH / PERIOD).map(|k| at(k * PERIOD + MS)).collect();
    let tasks = vec![task(vec![at(0)], 2 * LENGTH), task(background, 12 * MS)];
    let mut options = Options::new(Span::from_ns(LENGTH));
    options.max_switches = 100_000;
    let plan = RootPlan {
        tree: &tree,
        tasks,
        changes: Vec::new(),
        flows: Vec::new(),
        cpus: vec![two_cpus()[0]],
    };
    let mut report = execute(vec![plan], &options).expect("a run");
    let stalls = report.stalls.iter().map(|stall| stall.length().as_ns()).sum();
    (report.roots.remove(0), stalls)
}

/// Returns the longest time, in nanoseconds, for which the client had the CPU, without the short
/// interruptions by the dispatcher and the stall monitor.
fn longest_burst(ran: &[talea_exec::ExecInterval]) -> u64 {
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
    // The custom server saves unused budget: a greedy client leaves none.
    let saver = ServerKind::Custom { name: "saver", make: super::outside::server::make };
    for kind in [
        ServerKind::Polling,
        ServerKind::Deferrable,
        ServerKind::Sporadic,
        ServerKind::HardCbs,
        saver,
    ] {
        let begun = Instant::now();
        // A stalled run is repeated: a stall costs a server time that no later period returns.
        let (root, stalls) = loop {
            let (root, stalls) = greedy(kind);
            if stalls < 2 * MS || begun.elapsed().as_secs() >= 3 {
                break (root, stalls);
            }
        };
        let client = root.consumed[0];
        let share = LENGTH / PERIOD * BUDGET;
        let got = client.total.as_ns();
        // Some microseconds beyond each budget are what a look costs that comes in time; and one
        // budget, because a run is cut anywhere.
        assert!(
            got <= share * 102 / 100 + BUDGET + stalls,
            "{kind:?}: {got} of {share}, stalls {stalls}"
        );
        assert!(
            got + BUDGET + stalls * BUDGET / MS >= share * 95 / 100,
            "{kind:?}: {got} of {share}, stalls {stalls}"
        );
        let ran = root.executed.as_ref().expect("root may ask who ran");
        let longest = longest_burst(ran);
        assert!(
            longest <= 2 * BUDGET + 300_000 + stalls,
            "{kind:?}: a burst of {longest}, stalls {stalls}"
        );
        // Not one worker ran that the machine had not chosen, but for the way from an order to its
        // effect.
        let stray =
            unordered_execution(1, &root.record, ran).iter().map(|out| out.length().as_ns()).max();
        assert!(stray.unwrap_or(0) <= MS + stalls, "{kind:?}: {stray:?}");
        println!(
            "{kind:?}: {got} of {share} ns, bursts up to {longest}, without an order {stray:?}, \
             stalls {stalls}"
        );
    }
}
