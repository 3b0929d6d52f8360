//! Roots that Linux runs alone: what a wake costs there, and what reservations hold.

use crate::costs::{by_hand, of_a_task};
use crate::scene::{ms, spread, us};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{Span, Time, Work};
use talea_exec::native::Guarantee;
use talea_exec::{Arrivals, Load, Options, RequestedMechanism, RootPlan, TaskPlan, execute, work};
use talea_os::clock;

fn alone(duration: Span) -> Options {
    // Its only CPU is a root domain of its own. The stall monitor is a thread, and this machine
    // has none to spare.
    Options { monitor: false, mechanism: RequestedMechanism::Linux, ..Options::new(duration) }
}

#[test]
fn a_task_that_linux_runs_alone_wakes_hardly_later_than_a_plain_thread() {
    let period = ms(1);
    let (plain, plain_p99) = spread("a plain FIFO thread", by_hand(period));
    for policy in ["fp", "edf"] {
        let what = format!("a task of a native root, {policy}");
        let (ours, ours_p99) = spread(&what, of_a_task(policy, period, alone));
        let most = us(8).as_ns();
        assert!(
            ours <= plain + most && ours_p99 <= plain_p99 + most,
            "{policy}: at most {most} ns more"
        );
    }
}

/// Two tasks within their costs beside one whose jobs need four times their declared cost.
#[test]
fn s7_reservations_of_the_kernel_keep_deadlines_and_limit_overrunning_tasks() {
    let seconds = 5;
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
    let mut tasks = Vec::new();
    for (name, period, cost) in [("brisk", 10, 3), ("steady", 25, 5), ("greedy", 50, 10)] {
        let cost = Work::from_ns(cost * 1_000_000);
        let _ =
            tree.task(Tree::ROOT, TaskSpec { cost: Some(cost), ..TaskSpec::new(name, ms(period)) });
        let arrivals = Arrivals::Periodic { first: Time::ZERO, period: ms(period) };
        let load = Load { arrivals, costs: vec![vec![cost]], ..Load::default() };
        let body: talea_exec::JobBody<'_> = if name == "greedy" {
            Box::new(move |_, over| {
                let end = clock::thread_cpu_time().as_ns() + 4 * cost.as_ns();
                while clock::thread_cpu_time().as_ns() < end
                    && !over.load(std::sync::atomic::Ordering::Relaxed)
                {}
            })
        } else {
            work::spender()
        };
        tasks.push(TaskPlan { load, body });
    }
    let plan =
        RootPlan { tree: &tree, tasks, changes: Vec::new(), flows: Vec::new(), cpus: vec![0] };
    let report = execute(vec![plan], &alone(ms(1_000 * seconds))).expect("a run");
    let root = &report.roots[0];
    let course = root.native.as_ref().expect("what workers have seen");
    let Guarantee::Deadlines(budgets) = &course.guarantee else { panic!("{:?}", course.guarantee) };
    for (task, period) in [(0, 10), (1, 25)] {
        let lives = &course.jobs[task];
        let done =
            lives.iter().filter(|life| life.end.is_some_and(|end| end <= life.deadline)).count()
                as u64;
        let late =
            lives.iter().filter(|life| life.end.is_some_and(|end| end > life.deadline)).count();
        println!("task {task}: {done} in time, {late} late");
        // The last may be under way when the run is over.
        assert!(
            late == 0 && done + 1 >= 1_000 * seconds / period,
            "task {task}: {done} in time, {late} late"
        );
    }
    // The kernel takes an overrun until its tick (4 ms) from the next budget.
    let (used, periods) = (root.consumed[2].total.as_ns(), 20 * seconds);
    let share = budgets[2].as_ns() * periods;
    println!("greedy: {used} ns of {share}");
    assert!(used <= share + ms(4).as_ns() + share / 100, "{used} ns of {share}");
    assert!(
        used + budgets[2].as_ns() >= share * 95 / 100,
        "{used} ns of {share}: it has what it was promised"
    );
}
