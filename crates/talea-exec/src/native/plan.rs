//! Plan of a root for Linux: whether its policies can produce the schedule, and their parameters.

use super::MAX_DL_PERIOD;
use super::queue::ReleaseRule;
use crate::load::{Arrivals, Load};
use talea_core::engine::{NodeSpec, Preemption, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::PolicySpec;
use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};
use talea_os::sched::{self, DEADLINE_RUNTIME_MIN_NS};

/// Guarantee about the order of execution, in addition to the guarantee that only tasks with jobs
/// run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// No task runs while a task with a higher level has a job. Element `n` is the level of task
    /// `n`.
    Levels(Vec<u8>),
    /// The tasks share one level in time slices.
    RoundRobin,
    /// No task with a sufficient reservation misses a deadline. Element `n` is the budget of task
    /// `n`.
    Deadlines(Vec<Work>),
}

/// Plan of one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) guarantee: Guarantee,
    /// `policies[n]`: policy of the worker of task `n`.
    pub(crate) policies: Vec<sched::Policy>,
    /// `rules[n]`: release rule of task `n`.
    pub(crate) rules: Vec<ReleaseRule>,
    /// Reason for the guarantee, for reports.
    pub(crate) reason: String,
}

/// Lowest level. It is above threaded interrupts, which are FIFO 50.
const MIN_LEVEL: u8 = 51;
/// Overhead of a job beside its cost, for wake-up and sleep: some 20 µs on a virtual machine. The
/// kernel subtracts an overrun from the next budget, so a budget that is too small by a microsecond
/// delays a later job by a period.
const OVERHEAD_NS: u64 = 30_000;
/// Overhead in thousandths of the cost, for a hypervisor and for interrupts, which the kernel
/// charges to budgets.
const OVERHEAD_PERMILLE: u64 = 12;
/// Scale of a density.
const DENSITY_SCALE: u128 = 1_000_000_000;
/// Bounds of a period in the kernel, with default settings.
const PERIOD_BOUNDS: (Span, Span) = (Span::from_ns(100_000), MAX_DL_PERIOD);

/// Plans a root with these loads below level `top`; `quantum` is the kernel's quantum for SCHED_RR.
///
/// # Errors
/// The reason why Linux cannot schedule the root alone.
pub(crate) fn plan(
    tree: &Tree,
    loads: &[&Load],
    top: u8,
    quantum: Span,
    end: Time,
) -> Result<Plan, String> {
    let (policy, tasks) = flat_tasks(tree)?;
    for (task, load) in tasks.iter().zip(loads) {
        check_task(task, load)?;
    }
    let rules: Vec<ReleaseRule> = tasks.iter().map(|task| ReleaseRule::for_task(task)).collect();
    let by = |key: &dyn Fn(&TaskSpec) -> (u64, u32)| levels(&tasks, key, top);
    let (guarantee, policies, reason) = match policy {
        PolicySpec::FixedPriority => {
            fifo_plan(by(&|task| (u64::from(u8::MAX - task.priority), 0))?)
        }
        PolicySpec::RateMonotonic => fifo_plan(by(&|task| (task.period.as_ns(), 1))?),
        PolicySpec::DeadlineMonotonic => fifo_plan(by(&|task| (task.deadline.as_ns(), 1))?),
        PolicySpec::CriticalityMonotonic => {
            fifo_plan(by(&|task| (u64::from(u8::MAX - task.criticality), 1))?)
        }
        PolicySpec::Fifo => fifo_plan(by(&|_| (0, 0))?),
        PolicySpec::RoundRobin { quantum: wanted } if wanted.as_ns() == quantum.as_ns() => {
            let why = format!(
                "SCHED_RR at level {top} with the kernel's quantum, {quantum}, as requested"
            );
            (Guarantee::RoundRobin, vec![sched::Policy::Rr(top); tasks.len()], why)
        }
        PolicySpec::RoundRobin { quantum: wanted } => {
            return Err(format!(
                "SCHED_RR has a quantum of {quantum} on this system, not {wanted}"
            ));
        }
        PolicySpec::Edf => deadline_plan(&tasks, loads, &rules, end)?,
        other => return Err(format!("Linux has no policy like `{}`", other.name())),
    };
    Ok(Plan { guarantee, policies, rules, reason })
}

/// Returns the policy and the tasks of a root that is one scheduler with tasks as children.
fn flat_tasks(tree: &Tree) -> Result<(&PolicySpec, Vec<&TaskSpec>), String> {
    if tree.cpus != 1 {
        return Err(format!("its root has {} CPUs: Linux threads are pinned to one", tree.cpus));
    }
    if !tree.channels.is_empty() {
        return Err("its tasks are a graph, whose jobs activate each other".to_owned());
    }
    let (mut root, mut tasks) = (None, Vec::new());
    for (_, node) in tree.nodes() {
        match &node.spec {
            NodeSpec::Scheduler(spec) if spec.reservation.is_some() => {
                return Err(format!(
                    "`{}` is a server, whose budget must be enforced while jobs run",
                    spec.name
                ));
            }
            NodeSpec::Scheduler(spec) if node.parent.is_some() => {
                return Err(format!(
                    "`{}` is a scheduler below another one: Linux has one level of schedulers",
                    spec.name
                ));
            }
            NodeSpec::Scheduler(spec) if !spec.preemptive => {
                return Err(format!("`{}` is not preemptive, and Linux preempts", spec.name));
            }
            NodeSpec::Scheduler(spec) => root = Some(&spec.policy),
            NodeSpec::Task(spec) => tasks.push(spec),
        }
    }
    root.map(|policy| (policy, tasks)).ok_or_else(|| "it has no root".to_owned())
}

/// Checks that the worker of a task needs no decision while it runs.
fn check_task(task: &TaskSpec, load: &Load) -> Result<(), String> {
    let no = |why: &str| Err(format!("`{}` {why}", task.name));
    if load.program.is_some() {
        return no("is a program, which is stopped by freezing its cgroup");
    }
    if !task.versions.is_empty() {
        return no("has versions or accelerators, which must be selected for each job");
    }
    if task.preemption != Preemption::Anywhere {
        return no("has nonpreemptive sections, and Linux preempts");
    }
    if !task.uses.is_empty() || load.explicit_tokens || matches!(load.marks, Cost::WithSteps { .. })
    {
        return no("locks, suspends itself or moves tokens within a job");
    }
    if load.generator.is_some() || matches!(load.arrivals, Arrivals::OnDemand) {
        return no("has jobs that are activated during the run");
    }
    Ok(())
}

/// Assigns a level to each key, the smallest key at `top`. Keys with a 1 get one level per task,
/// and the first task gets the highest.
fn levels(
    tasks: &[&TaskSpec],
    key: &dyn Fn(&TaskSpec) -> (u64, u32),
    top: u8,
) -> Result<Vec<u8>, String> {
    let keys: Vec<(u64, u32)> =
        (0..).zip(tasks).map(|(at, task)| tie_broken_key(key(task), at)).collect();
    let mut distinct = keys.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let room = usize::from((top + 1).saturating_sub(MIN_LEVEL));
    if distinct.len() > room {
        return Err(format!(
            "it needs {} levels, and {MIN_LEVEL} to {top} are {room}",
            distinct.len()
        ));
    }
    let level = |key: &(u64, u32)| {
        top - mutate!(
            "exec-native-levels",
            distinct.binary_search(key).map_or(0, |at| at as u8),
            distinct.binary_search(key).map_or(0, |_| 0)
        )
    };
    Ok(keys.iter().map(level).collect())
}

fn tie_broken_key((key, is_strict): (u64, u32), at: u32) -> (u64, u32) {
    (key, is_strict * at)
}

fn fifo_plan(levels: Vec<u8>) -> (Guarantee, Vec<sched::Policy>, String) {
    let policies = levels.iter().map(|&level| sched::Policy::Fifo(level)).collect();
    let (low, high) = (levels.iter().min(), levels.iter().max());
    let why = match (low, high) {
        (Some(low), Some(high)) if low < high => format!("SCHED_FIFO levels {low} to {high}"),
        (Some(level), _) => format!("SCHED_FIFO level {level}"),
        _ => "SCHED_FIFO".to_owned(),
    };
    (Guarantee::Levels(levels), policies, why)
}

/// Plans a reservation for each task: the cost of its longest job plus overhead within each
/// deadline.
///
/// The period of the reservation is the deadline, even if the period of the task is longer. The
/// kernel throttles a reservation with a shorter deadline when its thread wakes between deadline
/// and period (`update_dl_revised_wakeup`, `dl_check_constrained_dl`). The next budget then arrives
/// a period later, so a task that was late once would stay late by the same time forever. With
/// equal deadline and period, a thread that wakes after its deadline gets a whole budget and a new
/// deadline. So the density has to fit, which is all that the kernel could guarantee anyway.
fn deadline_plan(
    tasks: &[&TaskSpec],
    loads: &[&Load],
    rules: &[ReleaseRule],
    end: Time,
) -> Result<(Guarantee, Vec<sched::Policy>, String), String> {
    let (mut policies, mut budgets, mut density) = (Vec::new(), Vec::new(), 0_u128);
    for ((task, load), rule) in tasks.iter().zip(loads).zip(rules) {
        let no = |why: String| Err(format!("`{}` {why}", task.name));
        let drawn = load.costs.iter().flatten().copied().max().unwrap_or(Work::ZERO);
        let cost = drawn.max(task.cost.unwrap_or(Work::ZERO)).as_ns();
        let runtime = mutate!(
            "exec-native-spare",
            (cost + cost / 1_000 * OVERHEAD_PERMILLE + OVERHEAD_NS).max(DEADLINE_RUNTIME_MIN_NS),
            cost.max(DEADLINE_RUNTIME_MIN_NS)
        );
        let (deadline, period) = (task.deadline, task.period);
        if deadline < PERIOD_BOUNDS.0 || deadline > PERIOD_BOUNDS.1 {
            return no(format!(
                "has a deadline of {deadline}; SCHED_DEADLINE takes {} to {}",
                PERIOD_BOUNDS.0, PERIOD_BOUNDS.1
            ));
        }
        if deadline > period || runtime > deadline.as_ns() {
            let runtime = Span::from_ns(runtime);
            return no(format!(
                "has a deadline of {deadline}: SCHED_DEADLINE wants budget ≤ deadline ≤ period, {runtime} and {period}"
            ));
        }
        if let Some(near) = rule.min_distance(&load.arrivals, end).filter(|&near| near < period) {
            return no(format!("has jobs {near} apart, and one budget each {period}"));
        }
        density += u128::from(runtime) * DENSITY_SCALE / u128::from(deadline.as_ns());
        if density > DENSITY_SCALE {
            return no(format!(
                "is one too many: with it, budgets in their deadlines are {} % of the CPU, and each is reserved until its deadline",
                density.div_ceil(DENSITY_SCALE / 100)
            ));
        }
        let runtime = Work::from_ns(runtime);
        budgets.push(runtime);
        policies.push(mutate!(
            "exec-native-density",
            sched::Policy::Deadline { runtime, deadline, period: deadline },
            sched::Policy::Deadline { runtime, deadline, period }
        ));
    }
    let why = "SCHED_DEADLINE, a reservation for each task; budgets are enforced at the kernel's tick \
               unless HRTICK is on";
    Ok((Guarantee::Deadlines(budgets), policies, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Arrival;
    use talea_core::engine::SchedulerSpec;
    use talea_core::server::{Reservation, ServerKind};

    const QUANTUM: Span = Span::from_ns(100_000_000);

    fn ms(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    fn tree(policy: PolicySpec, tasks: &[(u8, u64)]) -> Tree {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
        for (at, &(priority, period)) in tasks.iter().enumerate() {
            let spec = TaskSpec { priority, ..TaskSpec::new(&format!("t{at}"), ms(period)) };
            tree.task(Tree::ROOT, spec);
        }
        tree
    }

    fn load(period: u64) -> Load {
        let every = Arrivals::Periodic { first: Time::ZERO, period: ms(period) };
        Load { arrivals: every, costs: vec![vec![Work::from_ns(1_000_000)]], ..Load::default() }
    }

    fn of(tree: &Tree, loads: &[Load]) -> Result<Plan, String> {
        let loads: Vec<&Load> = loads.iter().collect();
        plan(tree, &loads, 93, QUANTUM, Time::from_ns(1_000_000_000))
    }

    fn levels_of(policy: PolicySpec, tasks: &[(u8, u64)]) -> Vec<u8> {
        let loads: Vec<Load> = tasks.iter().map(|&(_, period)| load(period)).collect();
        let plan = of(&tree(policy, tasks), &loads).expect("Linux can");
        let Guarantee::Levels(levels) = plan.guarantee else { panic!("no levels") };
        let policies: Vec<sched::Policy> =
            levels.iter().map(|&level| sched::Policy::Fifo(level)).collect();
        assert_eq!(plan.policies, policies);
        levels
    }

    #[test]
    fn fixed_priorities_are_levels_in_their_order() {
        let tasks = [(7, 30), (200, 10), (7, 10), (0, 20)];
        assert_eq!(levels_of(PolicySpec::FixedPriority, &tasks), [92, 93, 92, 91]);
        // Of two equal periods the engine always takes the lower task first, so each has a level.
        assert_eq!(levels_of(PolicySpec::RateMonotonic, &tasks), [90, 93, 92, 91]);
        assert_eq!(levels_of(PolicySpec::DeadlineMonotonic, &tasks), [90, 93, 92, 91]);
        assert_eq!(levels_of(PolicySpec::CriticalityMonotonic, &tasks), [93, 92, 91, 90]);
        assert_eq!(levels_of(PolicySpec::Fifo, &tasks), [93; 4]);
    }

    #[test]
    fn more_levels_than_there_are_is_refused_with_both_numbers() {
        let tasks: Vec<(u8, u64)> = (0..44).map(|at| (at, 10)).collect();
        let loads: Vec<Load> = tasks.iter().map(|_| load(10)).collect();
        let why = of(&tree(PolicySpec::FixedPriority, &tasks), &loads).expect_err("too many");
        assert!(why.contains("44 levels") && why.contains("51 to 93 are 43"), "{why}");
        assert!(of(&tree(PolicySpec::FixedPriority, &tasks[..43]), &loads[..43]).is_ok());
    }

    #[test]
    fn round_robin_needs_the_kernels_quantum() {
        let rr =
            |quantum: u64| PolicySpec::RoundRobin { quantum: Work::from_ns(quantum * 1_000_000) };
        let plan = of(&tree(rr(100), &[(0, 10)]), &[load(10)]).expect("the same quantum");
        assert_eq!(
            (plan.guarantee, plan.policies),
            (Guarantee::RoundRobin, vec![sched::Policy::Rr(93)])
        );
        let why = of(&tree(rr(4), &[(0, 10)]), &[load(10)]).expect_err("another one");
        assert!(why.contains("100ms") && why.contains("4ms"), "{why}");
    }

    #[test]
    fn a_reservation_has_room_for_the_longest_job_and_its_overhead() {
        let plan = of(&tree(PolicySpec::Edf, &[(0, 10)]), &[load(10)]).expect("it fits");
        let runtime = Work::from_ns(1_042_000);
        let policy_of_worker =
            sched::Policy::Deadline { runtime, deadline: ms(10), period: ms(10) };
        assert_eq!(
            (plan.guarantee, plan.policies),
            (Guarantee::Deadlines(vec![runtime]), vec![policy_of_worker])
        );
    }

    #[test]
    fn s7_the_period_of_a_reservation_is_its_deadline_and_the_density_must_fit() {
        let of = |deadlines: &[u64]| {
            let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
            for (at, &deadline) in deadlines.iter().enumerate() {
                let spec = TaskSpec {
                    deadline: ms(deadline),
                    ..TaskSpec::new(&format!("t{at}"), ms(100))
                };
                tree.task(Tree::ROOT, spec);
            }
            of(&tree, &deadlines.iter().map(|_| load(100)).collect::<Vec<_>>())
        };
        let runtime = Work::from_ns(1_042_000);
        let policies = of(&[20, 100]).expect("it fits").policies;
        let until = |deadline| sched::Policy::Deadline { runtime, deadline, period: deadline };
        assert_eq!(policies, [until(ms(20)), until(ms(100))]);
        // They use three hundredths of the CPU.
        assert!(of(&[3, 3]).is_ok());
        let why = of(&[3, 3, 3]).expect_err("one too many");
        assert!(why.contains("`t2` is one too many") && why.contains("105 %"), "{why}");
    }

    #[test]
    fn a_reservation_that_the_kernel_would_reject_is_refused_by_name() {
        let of = |edit: fn(&mut TaskSpec), load: Load| {
            let mut tree = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::Edf));
            let mut spec = TaskSpec::new("a", ms(10));
            edit(&mut spec);
            tree.task(Tree::ROOT, spec);
            of(&tree, &[load]).expect_err("refused")
        };
        assert!(of(|task| task.deadline = ms(11), load(10)).contains("budget ≤ deadline ≤ period"));
        assert!(of(|task| task.deadline = ms(1), load(10)).contains("1042us"));
        assert!(
            of(|task| (task.period, task.deadline) = (ms(5_000), ms(5_000)), load(5_000))
                .contains("5s")
        );
        let at = |at: u64| Arrival { observed: Time::from_ns(at), nominal: Time::from_ns(at) };
        let near = Load::new(vec![at(0), at(9_000_000)], vec![Work::from_ns(1_000)]);
        assert!(of(|_| {}, near).contains("9ms apart"));
    }

    #[test]
    fn features_that_decide_while_a_job_runs_are_refused_by_name() {
        let fp = || tree(PolicySpec::FixedPriority, &[(1, 10)]);
        let refused = |tree: &Tree, load: Load| of(tree, &[load]).expect_err("refused");
        let mut many = fp();
        many.cpus = 2;
        assert!(refused(&many, load(10)).contains("2 CPUs"));
        let mut deep = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
        let below = deep.scheduler(Tree::ROOT, SchedulerSpec::new("below", PolicySpec::Edf));
        deep.task(below, TaskSpec::new("t", ms(10)));
        assert!(refused(&deep, load(10)).contains("`below` is a scheduler below"));
        let reservation =
            Reservation::new(ServerKind::Deferrable, Work::from_ns(1_000_000), ms(10));
        let spec = SchedulerSpec {
            reservation: Some(reservation),
            ..SchedulerSpec::new("s", PolicySpec::Edf)
        };
        let mut server = Tree::new(1, SchedulerSpec::new("cpu", PolicySpec::FixedPriority));
        let below = server.scheduler(Tree::ROOT, spec);
        server.task(below, TaskSpec::new("t", ms(10)));
        assert!(refused(&server, load(10)).contains("`s` is a server"));
        let calm = SchedulerSpec {
            preemptive: false,
            ..SchedulerSpec::new("calm", PolicySpec::FixedPriority)
        };
        let mut calm = Tree::new(1, calm);
        calm.task(Tree::ROOT, TaskSpec::new("t", ms(10)));
        assert!(refused(&calm, load(10)).contains("`calm` is not preemptive"));
        let slots = PolicySpec::Partitions { frame: ms(10), slots: Vec::new(), lending: false };
        assert!(refused(&tree(slots, &[(0, 10)]), load(10)).contains("`partitions`"));
        assert!(
            refused(&fp(), Load { arrivals: Arrivals::OnDemand, ..load(10) })
                .contains("activated during the run")
        );
        assert!(refused(&fp(), Load { explicit_tokens: true, ..load(10) }).contains("tokens"));
        assert!(
            refused(&fp(), Load::for_program(vec!["true".to_owned()]))
                .contains("`t0` is a program")
        );
        let marks = Cost::Constant(Work::from_ns(9)).suspending(Work::from_ns(1), ms(1));
        assert!(refused(&fp(), Load { marks, ..load(10) }).contains("suspends itself"));
    }
}
