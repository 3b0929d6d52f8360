//! Budgets of servers over time.
//!
//! Model: a budget is a polyline. Between two instants of a run it is constant, or falls with time
//! while a client runs; at an instant it may jump. Only the corners are recorded. With overheads or
//! stalls, a budget falls more slowly than time passes, and a corner is recorded at each instant at
//! which it has fallen.

use super::outline::Outline;
use talea_core::Time;
use talea_core::engine::{Cpu, Engine, TaskId};

/// Budget of a server at an instant. Two corners at one instant are a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corner {
    /// Index in [`Outline::servers`].
    pub server: usize,
    pub(crate) at: Time,
    pub(crate) left_ns: u64,
}

/// Line from the last corner.
#[derive(Clone, Copy, Debug)]
struct BudgetSegment {
    since: u64,
    left: u64,
    falls: bool,
}

/// Observer of the budgets of one root.
#[derive(Debug)]
pub struct Budgets {
    /// `order[n]`: server of the engine's budget `n`.
    order: Vec<usize>,
    lines: Vec<Option<BudgetSegment>>,
    /// `running[cpu]`: task that runs on the CPU.
    running: Vec<Option<TaskId>>,
}

impl Budgets {
    /// Creates the curves of all servers of the engine.
    pub fn new(outline: &Outline, machine: &Engine) -> Budgets {
        let number = |(node, _)| outline.servers.iter().position(|server| server.node == node);
        Budgets {
            order: machine.budgets(Time::ZERO).filter_map(number).collect(),
            lines: vec![None; outline.servers.len()],
            running: vec![None; outline.cpus as usize],
        }
    }

    /// Whether there are no budgets.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Records that `cpu` runs `task`, or is idle.
    pub fn runs(&mut self, cpu: Cpu, task: Option<TaskId>) {
        // A migrating task leaves its earlier CPU.
        self.running.iter_mut().filter(|there| **there == task).for_each(|there| *there = None);
        self.running[cpu.0 as usize] = task;
    }

    /// Records the budgets after all events of an instant.
    pub fn observe(
        &mut self,
        machine: &Engine,
        outline: &Outline,
        now: Time,
        mut record: impl FnMut(Corner),
    ) {
        for (&server, (_, left)) in self.order.iter().zip(machine.budgets(now)) {
            let uses = |task: &TaskId| outline.tasks[task.0 as usize].servers.contains(&server);
            let falls = self.running.iter().flatten().any(uses);
            let (left, at) = (left.as_ns(), now.as_ns());
            let line = self.lines[server].replace(BudgetSegment { since: at, left, falls });
            let mut corner = |left_ns| record(Corner { server, at: now, left_ns });
            let Some(line) = line else {
                corner(left);
                continue;
            };
            let held_up = outline.has_interference && line.falls && left <= line.left;
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
    use talea_core::engine::{SchedulerSpec, TaskSpec, Tree};
    use talea_core::sched::PolicySpec;
    use talea_core::server::{Reservation, ServerKind};
    use talea_core::workload::Environment;
    use talea_core::{Span, Work};
    use talea_sim::{Simulation, Sink, Source};
    use talea_system::Root;

    impl Sink for Budgets {
        fn on_dispatch(&mut self, _: Time, cpu: Cpu, task: TaskId, _: u64) {
            Budgets::runs(self, cpu, Some(task));
        }

        fn on_idle(&mut self, _: Time, cpu: Cpu) {
            Budgets::runs(self, cpu, None);
        }
    }

    fn server(name: &str, budget: u64, period: u64) -> SchedulerSpec {
        let mut spec = SchedulerSpec::new(name, PolicySpec::Edf);
        let reservation =
            Reservation::new(ServerKind::Deferrable, Work::from_ns(budget), Span::from_ns(period));
        spec.reservation = Some(reservation);
        spec
    }

    /// Builds a task (3 every 20) below an inner server (2 every 10) below an outer one (6 every
    /// 20).
    fn nested() -> Root {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::Edf));
        let outer = tree.scheduler(Tree::ROOT, server("outer", 6, 20));
        let inner = tree.scheduler(outer, server("inner", 2, 10));
        tree.task(inner, TaskSpec::new("task", Span::from_ns(20)));
        Root {
            name: "root".to_owned(),
            tree,
            sources: vec![Source::periodic(Span::from_ns(20), Work::from_ns(3))],
            tasks: vec!["task".to_owned()],
            programs: vec![None],
            users: vec![None],
            health: vec![talea_core::health::Health::default()],
            logical: vec![false],
            phases_known: false,
            surroundings: Environment::default(),
        }
    }

    #[test]
    fn the_outer_budget_falls_while_the_inner_servers_client_runs_and_stays_when_it_stops() {
        let root = nested();
        let machine = root.tree.build().expect("two servers");
        let outline = Outline::of(&root, &machine);
        let mut budgets = Budgets::new(&outline, &machine);
        let mut world = Simulation::new(machine, 1, &root.workload(0));
        let mut corners = [Vec::new(), Vec::new()];
        while world.next_event() < Time::from_ns(20) {
            world.advance(&mut budgets);
            let now = world.now();
            let corner =
                |corner: Corner| corners[corner.server].push((corner.at.as_ns(), corner.left_ns));
            budgets.observe(world.engine(), &outline, now, corner);
        }
        // The job exhausts the inner budget at 2, continues with the refill at 10 and ends at 11.
        // The outer budget has no jumps.
        assert_eq!(corners[0], [(0, 6), (2, 4), (10, 4), (11, 3)]);
        assert_eq!(corners[1], [(0, 2), (2, 0), (10, 0), (10, 2), (11, 1)]);
    }
}
