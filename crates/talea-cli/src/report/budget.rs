//! How the budgets of servers go up and down.
//!
//! Model: a budget is a polyline. Between two instants of a run it either stays or, while a client
//! runs, falls as time passes; at an instant it may jump. Only the corners are told. Where
//! overheads and holes hold clients up, a budget falls more slowly than time passes, and a corner
//! is told at each instant at which it had fallen.

use super::outline::Outline;
use talea_core::Time;
use talea_core::machine::{Cpu, Machine, TaskId};

/// What a server has at an instant; two of one instant are a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corner {
    /// Its number in [`Outline::servers`].
    pub(crate) server: usize,
    pub(crate) at: Time,
    pub(crate) left_ns: u64,
}

/// From the last corner on.
#[derive(Clone, Copy, Debug)]
struct Line {
    since: u64,
    left: u64,
    falls: bool,
}

/// Watches the budgets of one root.
#[derive(Debug)]
pub(crate) struct Budgets {
    /// The server that each of the machine's budgets is of.
    order: Vec<usize>,
    lines: Vec<Option<Line>>,
    /// By CPU: what runs there.
    running: Vec<Option<TaskId>>,
}

impl Budgets {
    pub(crate) fn new(outline: &Outline, machine: &Machine) -> Budgets {
        let number = |(node, _)| outline.servers.iter().position(|server| server.node == node);
        Budgets {
            order: machine.budgets(Time::ZERO).filter_map(number).collect(),
            lines: vec![None; outline.servers.len()],
            running: vec![None; outline.cpus as usize],
        }
    }

    /// Whether there is anything to watch.
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// `cpu` goes over to `task`, or to nothing.
    pub(crate) fn runs(&mut self, cpu: Cpu, task: Option<TaskId>) {
        // Who moves leaves the CPU where it was.
        self.running.iter_mut().filter(|there| **there == task).for_each(|there| *there = None);
        self.running[cpu.0 as usize] = task;
    }

    /// Everything of this instant has happened.
    pub(crate) fn look(
        &mut self,
        machine: &Machine,
        outline: &Outline,
        now: Time,
        mut tell: impl FnMut(Corner),
    ) {
        for (&server, (_, left)) in self.order.iter().zip(machine.budgets(now)) {
            let uses = |task: &TaskId| outline.tasks[task.0 as usize].servers.contains(&server);
            let falls = self.running.iter().flatten().any(uses);
            let (left, at) = (left.as_ns(), now.as_ns());
            let line = self.lines[server].replace(Line { since: at, left, falls });
            let mut corner = |left_ns| tell(Corner { server, at: now, left_ns });
            let Some(line) = line else {
                corner(left);
                continue;
            };
            let held_up = outline.spoiled && line.falls && left <= line.left;
            let expected = match line.falls {
                true if held_up => left,
                true => line.left.saturating_sub(at - line.since),
                false => line.left,
            };
            let jumps = left != expected;
            if !jumps && falls == line.falls && !held_up {
                self.lines[server] = Some(line);
                continue;
            }
            if at > line.since && (line.falls || jumps) {
                corner(expected);
            }
            if jumps || (at > line.since && !line.falls) {
                corner(left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::machine::{SchedulerSpec, TaskSpec, Tree};
    use talea_core::sched::Policy;
    use talea_core::server::{Kind, Reservation};
    use talea_core::workload::Surroundings;
    use talea_core::{Span, Work};
    use talea_sim::{Sink, Source, World};
    use talea_system::system::Root;

    impl Sink for Budgets {
        fn runs(&mut self, _: Time, cpu: Cpu, task: TaskId, _: u64) {
            Budgets::runs(self, cpu, Some(task));
        }

        fn idles(&mut self, _: Time, cpu: Cpu) {
            Budgets::runs(self, cpu, None);
        }
    }

    fn server(name: &str, budget: u64, period: u64) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new(name, Policy::Edf);
        let reservation =
            Reservation::new(Kind::Deferrable, Work::from_ns(budget), Span::from_ns(period));
        spec.reservation = Some(reservation);
        spec
    }

    /// A task that needs 3 every 20, below an inner server (2 every 10) below an outer one (6 every
    /// 20).
    fn nested() -> Root {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::Edf));
        let outer = tree.scheduler(Tree::ROOT, server("outer", 6, 20));
        let inner = tree.scheduler(outer, server("inner", 2, 10));
        tree.task(inner, TaskSpec::new("task", Span::from_ns(20)));
        Root {
            name: "root".to_owned(),
            tree,
            sources: vec![Source::periodic(Span::from_ns(20), Work::from_ns(3))],
            tasks: vec!["task".to_owned()],
            programs: vec![None],
            surroundings: Surroundings::default(),
        }
    }

    #[test]
    fn the_outer_budget_falls_while_the_inner_servers_client_runs_and_stays_when_it_stops() {
        let root = nested();
        let machine = root.tree.build().expect("two servers");
        let outline = Outline::of(&root, &machine);
        let mut budgets = Budgets::new(&outline, &machine);
        let mut world = World::new(machine, 1, &root.workload(0));
        let mut corners = [Vec::new(), Vec::new()];
        while world.next_event() < Time::from_ns(20) {
            world.advance(&mut budgets);
            let now = world.now();
            let corner =
                |corner: Corner| corners[corner.server].push((corner.at.as_ns(), corner.left_ns));
            budgets.look(world.machine(), &outline, now, corner);
        }
        // The job stops at 2 without an inner budget, goes on with the refill at 10 and ends at 11.
        // No jumps outside.
        assert_eq!(corners[0], [(0, 6), (2, 4), (10, 4), (11, 3)]);
        assert_eq!(corners[1], [(0, 2), (2, 0), (10, 0), (10, 2), (11, 1)]);
    }
}
