//! Parts of a plan: mechanisms and attributes of roots, and differences of generations.

use crate::world::{fifo, generation, task};
use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
use talea_core::sched::PolicySpec;
use talea_core::{CpuSet, Policy, Priority, Span, Work};
use talea_deploy::mechanism::{MAX_LEVEL, MIN_LEVEL, Mechanism, START_LEVEL, plan};
use talea_deploy::{Difference, FileHash, Health};

fn ms(count: u64) -> Span {
    Span::from_ns(count * 1_000_000)
}

fn tree(policy: PolicySpec, tasks: &[(u8, u64)]) -> Tree {
    let mut tree = Tree::new(1, SchedulerSpec::new("cpu", policy));
    for (at, &(priority, period)) in tasks.iter().enumerate() {
        let spec = TaskSpec { priority, ..TaskSpec::new(&format!("t{at}"), ms(period)) };
        tree.task(Tree::ROOT, spec);
    }
    tree
}

fn levels(policy: PolicySpec, tasks: &[(u8, u64)]) -> Vec<u8> {
    let cpus = CpuSet::single(3);
    let plan = plan(&tree(policy, tasks), cpus, None);
    assert_eq!(plan.mechanism, Mechanism::Linux, "{}", plan.reason);
    let level = |attr: &talea_core::Attr| {
        assert_eq!((attr.cpus, attr.reset_on_fork), (cpus, false));
        let Policy::Fifo(Priority(level)) = attr.policy else { panic!("{attr:?}") };
        level
    };
    plan.attrs.iter().map(level).collect()
}

#[test]
fn d14_a_flat_root_gets_levels_in_the_order_of_its_policy() {
    let tasks = [(7, 30), (200, 10), (7, 10), (0, 20)];
    assert_eq!(levels(PolicySpec::FixedPriority, &tasks), [92, 93, 92, 91]);
    assert_eq!(levels(PolicySpec::RateMonotonic, &tasks), [90, 93, 92, 91]);
    assert_eq!(levels(PolicySpec::DeadlineMonotonic, &tasks), [90, 93, 92, 91]);
    assert_eq!(levels(PolicySpec::Fifo, &tasks), [93; 4]);
    let room = usize::from(MAX_LEVEL - MIN_LEVEL) + 1;
    let many: Vec<(u8, u64)> = (0..=room).map(|at| (at as u8, 10)).collect();
    assert_eq!(levels(PolicySpec::FixedPriority, &many[..room]).len(), room);
    let over = plan(&tree(PolicySpec::FixedPriority, &many), CpuSet::single(0), None);
    assert_eq!(over.mechanism, Mechanism::Freeze);
}

#[test]
fn d14_other_roots_need_a_governor_and_name_the_reason() {
    let rr = || PolicySpec::RoundRobin { quantum: Work::from_ns(4_000_000) };
    let mut nested = tree(PolicySpec::FixedPriority, &[(1, 10)]);
    nested.scheduler(Tree::ROOT, SchedulerSpec::new("inner", PolicySpec::Fifo));
    for (tree, quantum, reason) in [
        (tree(PolicySpec::Edf, &[(0, 10)]), None, "no policy like `edf`"),
        (tree(rr(), &[(0, 10)]), Some(ms(100)), "another quantum"),
        (tree(rr(), &[(0, 10)]), None, "another quantum"),
        (nested, None, "inner is a scheduler below another one"),
    ] {
        let plan = plan(&tree, CpuSet::single(0), quantum);
        assert_eq!(plan.mechanism, Mechanism::Freeze);
        assert!(plan.reason.contains(reason), "{}", plan.reason);
        let start = Policy::Rr(Priority(START_LEVEL));
        assert!(plan.attrs.iter().all(|attr| attr.policy == start));
    }
    let fits = plan(&tree(rr(), &[(0, 10)]), CpuSet::single(0), Some(ms(4)));
    assert_eq!(fits.mechanism, Mechanism::Linux);
    assert_eq!(fits.attrs[0].policy, Policy::Rr(Priority(MAX_LEVEL)));
}

#[test]
fn d14_a_difference_names_what_a_change_does_to_each_task() {
    let mut adjusted = task("d", "one", 40);
    let old = generation(
        1,
        vec![
            task("a", "one", 40),
            task("b", "one", 40),
            task("c", "one", 40),
            adjusted.clone(),
            task("e", "one", 40),
        ],
    );
    adjusted.health = Health { ready: Some(ms(1)), ..adjusted.health };
    let mut moved = task("c", "one", 40);
    moved.attr = fifo(40, 1);
    let new = generation(
        2,
        vec![task("f", "one", 40), task("e", "two", 40), moved, adjusted, task("b", "one", 40)],
    );
    let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        Difference::between(Some(&old), &new),
        Difference {
            new: names(&["f"]),
            restarted: names(&["e"]),
            adjusted: names(&["c", "d"]),
            unchanged: names(&["b"]),
            removed: names(&["a"]),
        }
    );
    let first = Difference::between(None, &old);
    assert_eq!(first, Difference { new: names(&["a", "b", "c", "d", "e"]), ..first.clone() });
}

#[test]
fn d14_the_hash_depends_on_every_text_and_on_their_borders() {
    let hash = |texts: &[&str]| FileHash::of(texts.iter().copied());
    let all = [&["ab", "c"][..], &["a", "bc"], &["abc"], &["abc", ""], &["ab", "d"]];
    for (at, one) in all.iter().enumerate() {
        assert_eq!(hash(one), hash(one));
        assert!(all[..at].iter().all(|other| hash(other) != hash(one)), "{one:?}");
    }
    assert_eq!(hash(&["abc"]).to_string().len(), 64);
}
