//! Accounting: the engine charges consumed CPU time to budgets and quanta, and predicts their ends.

use super::{Engine, NONE, Observer};
use crate::mutate;
use crate::sched::{Policy, Resched};
use crate::server::Server;
use crate::{Span, Time, Work};

impl<W: Observer> Engine<W> {
    /// Charges the consumption of the task on `cpu` to every scheduler above it.
    pub(super) fn charge(&mut self, now: Time, cpu: usize, work: Work) {
        let Some(task) = self.cpus[cpu].scheduled.task().filter(|_| !work.is_zero()) else {
            return;
        };
        let mut node = self.tasks[task as usize].node;
        while self.nodes[node as usize].parent != NONE {
            let (parent, child) =
                (self.nodes[node as usize].parent, self.nodes[node as usize].entry.child);
            let scheduler = &mut self.schedulers[parent as usize];
            node = scheduler.node;
            if !scheduler.needs_accounting {
                continue;
            }
            let mut changed = false;
            if let Some(server) = &mut scheduler.server {
                // An overrun caused by a late driver is not charged twice.
                let budget = server.budget(now);
                if !budget.is_zero() {
                    server.charge(now, mutate!("core-server-over", work.min(budget), work));
                    let presented = self.nodes[node as usize].entry.criteria.deadline;
                    changed = server.budget(now).is_zero() || server.deadline() != presented;
                }
            }
            if scheduler.policy.needs_accounting() {
                changed |= scheduler.policy.charge(now, child, work) == Resched::Pick;
            }
            mutate!("core-server-nested", {}, {
                if scheduler.server.is_some() {
                    node = 0;
                }
            });
            // Propagated later: the ancestors have not been charged yet.
            if changed && !core::mem::replace(&mut scheduler.is_exhausted, true) {
                self.exhausted.push(parent);
            }
        }
        self.decision.need_resched = true;
    }

    /// Updates the predicted ends of the budgets in use.
    #[inline(always)]
    pub(super) fn update_budget_ends(&mut self, now: Time) {
        for cpu in 0..self.cpus.len() {
            if let (true, Some(task)) = (self.cpus[cpu].accounted, self.cpus[cpu].linked.task()) {
                self.cpus[cpu].budget_end = self.compute_budget_end(now, task);
            }
        }
    }

    pub(super) fn compute_budget_end(&self, now: Time, task: u32) -> Time {
        let mut node = self.tasks[task as usize].node;
        let mut left = None::<Work>;
        while self.nodes[node as usize].parent != NONE {
            let scheduler = &self.schedulers[self.nodes[node as usize].parent as usize];
            let child = self.nodes[node as usize].entry.child;
            node = scheduler.node;
            if !scheduler.needs_accounting {
                continue;
            }
            let budget = scheduler.server.as_ref().map(|server| server.budget(now));
            for bound in [budget, scheduler.policy.allowance(now, child)].into_iter().flatten() {
                left = Some(left.map_or(bound, |left| left.min(bound)));
            }
        }
        left.map_or(Time::NEVER, |left| now.saturating_add(Span::from_ns(left.as_ns())))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::{Cpu, Event, SchedulerSpec, TaskId, TaskSpec, Tree};
    use crate::sched::PolicySpec;
    use crate::server::{Reservation, ServerKind};
    use crate::{Span, Time, Work};

    #[test]
    fn l24_the_predicted_end_of_an_unused_budget_moves_with_each_poll() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", PolicySpec::FixedPriority));
        let mut spec = SchedulerSpec::new("server", PolicySpec::Fifo);
        spec.reservation = Some(Reservation::new(
            ServerKind::Deferrable,
            Work::from_ns(400),
            Span::from_ns(2_000),
        ));
        let server = tree.scheduler(Tree::ROOT, spec);
        let _ = tree.task(server, TaskSpec::new("task", Span::from_ns(9_000)));
        let mut engine = tree.build().expect("a sound tree");
        let at = |ns: u64| Time::from_ns(ns);
        let _ = engine.handle(at(0), Event::Arrived { task: TaskId(0), arrival: at(0) });
        while engine.poll(at(0)).is_some() {}
        assert_eq!(engine.budget_end(Cpu(0)), at(400));
        for look in [30, 370, 390] {
            assert_eq!(engine.poll(at(look)), None);
            assert_eq!(engine.budget_end(Cpu(0)), at(look + 400));
        }
        let _ = engine.handle(at(400), Event::Ran { cpu: Cpu(0), work: Work::from_ns(100) });
        assert_eq!(engine.poll(at(400)), None);
        assert_eq!(engine.budget_end(Cpu(0)), at(700));
    }
}
