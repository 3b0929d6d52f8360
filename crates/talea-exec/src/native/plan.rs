//! Whether Linux can produce the schedule of a root, and what it has to be told for that.

use super::LONGEST_PERIOD;
use super::queue::Rule;
use crate::load::{Arrivals, Load};
use talea_core::machine::{Body, TaskSpec, Tree};
use talea_core::mutate;
use talea_core::sched::Policy;
use talea_core::workload::Cost;
use talea_core::{Span, Time, Work};
use talea_os::sched::{self, DEADLINE_RUNTIME_MIN_NS};

/// What can be said of who runs when, beside that whoever runs has a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nobody runs while one with a higher level has a job: levels by task.
    Levels(Vec<u8>),
    /// The one level is shared in turns.
    Turns,
    /// Nobody is late whom the reservations have room for: budgets by task.
    Deadlines(Vec<Work>),
}

/// Of one root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) promise: Promise,
    /// By task: what its worker is.
    pub(crate) stands: Vec<sched::Policy>,
    /// By task.
    pub(crate) rules: Vec<Rule>,
    /// For people.
    pub(crate) why: String,
}

/// The lowest level: above threaded interrupts, which are FIFO 50.
const FLOOR: u8 = 51;
/// Beside its cost a job wakes and goes to sleep, which takes some 20 µs on a virtual machine. What
/// it overdraws is taken from its next budget, so one that is too small by a microsecond ends with
/// a job that waits for the next.
const SPARE: u64 = 30_000;
/// And thousandths of the cost: the kernel takes interrupts out of a budget, and what a hypervisor
/// takes.
const SPARE_SHARE: u64 = 12;
/// Of a density.
const WHOLE: u128 = 1_000_000_000;
/// What the kernel takes for a period, where nobody has moved the bounds.
const PERIODS: (Span, Span) = (Span::from_ns(100_000), LONGEST_PERIOD);

/// What the kernel is told of a root with these loads, by task, below the level `top`; `quantum` is
/// its own for SCHED_RR.
///
/// # Errors
/// Why Linux can't do it alone, in words.
pub(crate) fn plan(
    tree: &Tree,
    loads: &[&Load],
    top: u8,
    quantum: Span,
    end: Time,
) -> Result<Plan, String> {
    let (policy, tasks) = flat(tree)?;
    for (task, load) in tasks.iter().zip(loads) {
        alone(task, load)?;
    }
    let rules: Vec<Rule> = tasks.iter().map(|task| Rule::of(task)).collect();
    let by = |key: &dyn Fn(&TaskSpec) -> (u64, u32)| levels(&tasks, key, top);
    let (promise, stands, why) = match policy {
        Policy::FixedPriority => fixed(by(&|task| (u64::from(u8::MAX - task.priority), 0))?),
        Policy::RateMonotonic => fixed(by(&|task| (task.period.as_ns(), 1))?),
        Policy::DeadlineMonotonic => fixed(by(&|task| (task.deadline.as_ns(), 1))?),
        Policy::CriticalityMonotonic => {
            fixed(by(&|task| (u64::from(u8::MAX - task.criticality), 1))?)
        }
        Policy::Fifo => fixed(by(&|_| (0, 0))?),
        Policy::RoundRobin { quantum: wanted } if wanted.as_ns() == quantum.as_ns() => {
            let why =
                format!("SCHED_RR at level {top}, whose quantum is that of the file, {quantum}");
            (Promise::Turns, vec![sched::Policy::Rr(top); tasks.len()], why)
        }
        Policy::RoundRobin { quantum: wanted } => {
            return Err(format!(
                "SCHED_RR has a quantum of {quantum} on this machine, not of {wanted}"
            ));
        }
        Policy::Edf => reservations(&tasks, loads, &rules, end)?,
        other => return Err(format!("Linux has nothing like `{}`", other.name())),
    };
    Ok(Plan { promise, stands, rules, why })
}

/// The tasks of a root that is one scheduler with tasks below it and nothing else.
fn flat(tree: &Tree) -> Result<(&Policy, Vec<&TaskSpec>), String> {
    if tree.cpus != 1 {
        return Err(format!("its root has {} CPUs: threads are pinned to one", tree.cpus));
    }
    if !tree.channels.is_empty() {
        return Err("its tasks are a graph, whose jobs activate each other".to_owned());
    }
    let (mut root, mut tasks) = (None, Vec::new());
    for (_, node) in tree.nodes() {
        match &node.body {
            Body::Scheduler(spec) if spec.reservation.is_some() => {
                return Err(format!(
                    "`{}` is a server, whose budget somebody has to look after",
                    spec.name
                ));
            }
            Body::Scheduler(spec) if node.parent.is_some() => {
                return Err(format!(
                    "`{}` is a scheduler below another one: Linux has one level",
                    spec.name
                ));
            }
            Body::Scheduler(spec) if !spec.preemptive => {
                return Err(format!("`{}` is not preemptive, and Linux interrupts", spec.name));
            }
            Body::Scheduler(spec) => root = Some(&spec.policy),
            Body::Task(spec) => tasks.push(spec),
        }
    }
    root.map(|policy| (policy, tasks)).ok_or_else(|| "it has no root".to_owned())
}

/// Whether a task's thread can go its way without asking anybody.
fn alone(task: &TaskSpec, load: &Load) -> Result<(), String> {
    let no = |why: &str| Err(format!("`{}` {why}", task.name));
    if load.program.is_some() {
        return no("is a program, which is held by freezing its group");
    }
    if !task.versions.is_empty() {
        return no("has versions or accelerators, which somebody has to choose");
    }
    if !task.uses.is_empty() || load.tells || matches!(load.marks, Cost::Marked { .. }) {
        return no("locks, suspends itself or moves tokens on its way");
    }
    if matches!(load.arrivals, Arrivals::Asked) {
        return no("has jobs that are asked for while it runs");
    }
    Ok(())
}

/// A level for each key, the least at `top`; for keys with a 1 behind them one for each task, the
/// first task above.
fn levels(
    tasks: &[&TaskSpec],
    key: &dyn Fn(&TaskSpec) -> (u64, u32),
    top: u8,
) -> Result<Vec<u8>, String> {
    let keys: Vec<(u64, u32)> = (0..).zip(tasks).map(|(at, task)| key_of(key(task), at)).collect();
    let mut distinct = keys.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let room = usize::from((top + 1).saturating_sub(FLOOR));
    if distinct.len() > room {
        return Err(format!("it needs {} levels, and {FLOOR} to {top} are {room}", distinct.len()));
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

fn key_of((key, is_strict): (u64, u32), at: u32) -> (u64, u32) {
    (key, is_strict * at)
}

fn fixed(levels: Vec<u8>) -> (Promise, Vec<sched::Policy>, String) {
    let stands = levels.iter().map(|&level| sched::Policy::Fifo(level)).collect();
    let (low, high) = (levels.iter().min(), levels.iter().max());
    let why = match (low, high) {
        (Some(low), Some(high)) if low < high => format!("SCHED_FIFO levels {low} to {high}"),
        (Some(level), _) => format!("SCHED_FIFO level {level}"),
        _ => "SCHED_FIFO".to_owned(),
    };
    (Promise::Levels(levels), stands, why)
}

/// A reservation for each task: what its longest job costs and a little more, each deadline.
///
/// Its period is the deadline, also where that of the task is longer. A reservation whose deadline
/// comes first is throttled by the kernel when its thread wakes between the two
/// (`update_dl_revised_wakeup`, `dl_check_constrained_dl`), and gets the next budget a period after
/// that: who was late once would be late by the same for ever. Where both are one a thread that
/// wakes behind its deadline has a whole budget and a deadline from then on. So the density is what
/// has to fit, which is all that the kernel could promise anyway.
fn reservations(
    tasks: &[&TaskSpec],
    loads: &[&Load],
    rules: &[Rule],
    end: Time,
) -> Result<(Promise, Vec<sched::Policy>, String), String> {
    let (mut stands, mut budgets, mut density) = (Vec::new(), Vec::new(), 0_u128);
    for ((task, load), rule) in tasks.iter().zip(loads).zip(rules) {
        let no = |why: String| Err(format!("`{}` {why}", task.name));
        let drawn = load.costs.iter().flatten().copied().max().unwrap_or(Work::ZERO);
        let cost = drawn.max(task.cost.unwrap_or(Work::ZERO)).as_ns();
        let runtime = mutate!(
            "exec-native-spare",
            (cost + cost / 1_000 * SPARE_SHARE + SPARE).max(DEADLINE_RUNTIME_MIN_NS),
            cost.max(DEADLINE_RUNTIME_MIN_NS)
        );
        let (deadline, period) = (task.deadline, task.period);
        if deadline < PERIODS.0 || deadline > PERIODS.1 {
            return no(format!(
                "has a deadline of {deadline}; SCHED_DEADLINE takes {} to {}",
                PERIODS.0, PERIODS.1
            ));
        }
        if deadline > period || runtime > deadline.as_ns() {
            let runtime = Span::from_ns(runtime);
            return no(format!(
                "has a deadline of {deadline}: SCHED_DEADLINE wants budget ≤ deadline ≤ period, {runtime} and {period}"
            ));
        }
        if let Some(near) = rule.nearest(&load.arrivals, end).filter(|&near| near < period) {
            return no(format!("has jobs {near} apart, and one budget each {period}"));
        }
        density += u128::from(runtime) * WHOLE / u128::from(deadline.as_ns());
        if density > WHOLE {
            return no(format!(
                "is one too many: with it, budgets in their deadlines are {} % of the CPU, and each is reserved until its deadline",
                density.div_ceil(WHOLE / 100)
            ));
        }
        let runtime = Work::from_ns(runtime);
        budgets.push(runtime);
        stands.push(mutate!(
            "exec-native-density",
            sched::Policy::Deadline { runtime, deadline, period: deadline },
            sched::Policy::Deadline { runtime, deadline, period }
        ));
    }
    let why = "SCHED_DEADLINE, a reservation for each task; budgets are looked after at the kernel's tick \
               unless HRTICK is on";
    Ok((Promise::Deadlines(budgets), stands, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Arrival;
    use talea_core::machine::SchedulerSpec;
    use talea_core::server::{Kind, Reservation};

    const QUANTUM: Span = Span::from_ns(100_000_000);

    fn ms(ms: u64) -> Span {
        Span::from_ns(ms * 1_000_000)
    }

    fn tree(policy: Policy, tasks: &[(u8, u64)]) -> Tree {
        let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
        for (at, &(priority, period)) in tasks.iter().enumerate() {
            let spec = TaskSpec { priority, ..TaskSpec::new(&format!("t{at}"), ms(period)) };
            tree.task(Tree::ROOT, spec);
        }
        tree
    }

    fn load(period: u64) -> Load {
        let every = Arrivals::Every { first: Time::ZERO, period: ms(period) };
        Load { arrivals: every, costs: vec![vec![Work::from_ns(1_000_000)]], ..Load::default() }
    }

    fn of(tree: &Tree, loads: &[Load]) -> Result<Plan, String> {
        let loads: Vec<&Load> = loads.iter().collect();
        plan(tree, &loads, 93, QUANTUM, Time::from_ns(1_000_000_000))
    }

    fn levels_of(policy: Policy, tasks: &[(u8, u64)]) -> Vec<u8> {
        let loads: Vec<Load> = tasks.iter().map(|&(_, period)| load(period)).collect();
        let plan = of(&tree(policy, tasks), &loads).expect("Linux can");
        let Promise::Levels(levels) = plan.promise else { panic!("no levels") };
        let stands: Vec<sched::Policy> =
            levels.iter().map(|&level| sched::Policy::Fifo(level)).collect();
        assert_eq!(plan.stands, stands);
        levels
    }

    #[test]
    fn fixed_priorities_are_levels_in_their_order() {
        let tasks = [(7, 30), (200, 10), (7, 10), (0, 20)];
        assert_eq!(levels_of(Policy::FixedPriority, &tasks), [92, 93, 92, 91]);
        // Of two equal periods the machine takes the lower task first, always: levels of their own.
        assert_eq!(levels_of(Policy::RateMonotonic, &tasks), [90, 93, 92, 91]);
        assert_eq!(levels_of(Policy::DeadlineMonotonic, &tasks), [90, 93, 92, 91]);
        assert_eq!(levels_of(Policy::CriticalityMonotonic, &tasks), [93, 92, 91, 90]);
        assert_eq!(levels_of(Policy::Fifo, &tasks), [93; 4]);
    }

    #[test]
    fn more_levels_than_there_are_is_refused_with_both_numbers() {
        let tasks: Vec<(u8, u64)> = (0..44).map(|at| (at, 10)).collect();
        let loads: Vec<Load> = tasks.iter().map(|_| load(10)).collect();
        let why = of(&tree(Policy::FixedPriority, &tasks), &loads).expect_err("too many");
        assert!(why.contains("44 levels") && why.contains("51 to 93 are 43"), "{why}");
        assert!(of(&tree(Policy::FixedPriority, &tasks[..43]), &loads[..43]).is_ok());
    }

    #[test]
    fn turns_are_the_kernels_own_or_none() {
        let rr = |quantum: u64| Policy::RoundRobin { quantum: Work::from_ns(quantum * 1_000_000) };
        let plan = of(&tree(rr(100), &[(0, 10)]), &[load(10)]).expect("the same quantum");
        assert_eq!((plan.promise, plan.stands), (Promise::Turns, vec![sched::Policy::Rr(93)]));
        let why = of(&tree(rr(4), &[(0, 10)]), &[load(10)]).expect_err("another one");
        assert!(why.contains("100ms") && why.contains("4ms"), "{why}");
    }

    #[test]
    fn a_reservation_has_room_for_the_longest_job_and_what_surrounds_it() {
        let plan = of(&tree(Policy::Edf, &[(0, 10)]), &[load(10)]).expect("it fits");
        let runtime = Work::from_ns(1_042_000);
        let stand = sched::Policy::Deadline { runtime, deadline: ms(10), period: ms(10) };
        assert_eq!((plan.promise, plan.stands), (Promise::Deadlines(vec![runtime]), vec![stand]));
    }

    #[test]
    fn s7_a_reservation_lasts_until_its_deadline_and_that_is_what_has_to_fit() {
        let of = |deadlines: &[u64]| {
            let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::Edf));
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
        let stands = of(&[20, 100]).expect("it fits").stands;
        let until = |deadline| sched::Policy::Deadline { runtime, deadline, period: deadline };
        assert_eq!(stands, [until(ms(20)), until(ms(100))]);
        // Of the CPU they use three hundredths.
        assert!(of(&[3, 3]).is_ok());
        let why = of(&[3, 3, 3]).expect_err("one too many");
        assert!(why.contains("`t2` is one too many") && why.contains("105 %"), "{why}");
    }

    #[test]
    fn a_reservation_that_the_kernel_would_not_take_is_refused_by_name() {
        let of = |edit: fn(&mut TaskSpec), load: Load| {
            let mut tree = Tree::new(1, SchedulerSpec::new("cpu", Policy::Edf));
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
        let at = |at: u64| Arrival { seen: Time::from_ns(at), nominal: Time::from_ns(at) };
        let near = Load::new(vec![at(0), at(9_000_000)], vec![Work::from_ns(1_000)]);
        assert!(of(|_| {}, near).contains("9ms apart"));
    }

    #[test]
    fn what_takes_a_decision_while_a_job_runs_is_refused_with_its_name() {
        let fp = || tree(Policy::FixedPriority, &[(1, 10)]);
        let refused = |tree: &Tree, load: Load| of(tree, &[load]).expect_err("refused");
        let mut many = fp();
        many.cpus = 2;
        assert!(refused(&many, load(10)).contains("2 CPUs"));
        let mut deep = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
        let below = deep.scheduler(Tree::ROOT, SchedulerSpec::new("below", Policy::Edf));
        deep.task(below, TaskSpec::new("t", ms(10)));
        assert!(refused(&deep, load(10)).contains("`below` is a scheduler below"));
        let reservation = Reservation::new(Kind::Deferrable, Work::from_ns(1_000_000), ms(10));
        let spec = SchedulerSpec {
            reservation: Some(reservation),
            ..SchedulerSpec::new("s", Policy::Edf)
        };
        let mut server = Tree::new(1, SchedulerSpec::new("cpu", Policy::FixedPriority));
        let below = server.scheduler(Tree::ROOT, spec);
        server.task(below, TaskSpec::new("t", ms(10)));
        assert!(refused(&server, load(10)).contains("`s` is a server"));
        let calm = SchedulerSpec {
            preemptive: false,
            ..SchedulerSpec::new("calm", Policy::FixedPriority)
        };
        let mut calm = Tree::new(1, calm);
        calm.task(Tree::ROOT, TaskSpec::new("t", ms(10)));
        assert!(refused(&calm, load(10)).contains("`calm` is not preemptive"));
        let slots = Policy::Partitions { frame: ms(10), slots: Vec::new(), lending: false };
        assert!(refused(&tree(slots, &[(0, 10)]), load(10)).contains("`partitions`"));
        assert!(
            refused(&fp(), Load { arrivals: Arrivals::Asked, ..load(10) }).contains("asked for")
        );
        assert!(refused(&fp(), Load { tells: true, ..load(10) }).contains("tokens"));
        assert!(
            refused(&fp(), Load::of_program(vec!["true".to_owned()])).contains("`t0` is a program")
        );
        let marks = Cost::Constant(Work::from_ns(9)).suspending(Work::from_ns(1), ms(1));
        assert!(refused(&fp(), Load { marks, ..load(10) }).contains("suspends itself"));
    }
}
