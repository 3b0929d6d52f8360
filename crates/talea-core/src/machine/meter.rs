//! What is consumed, whose budgets and quanta it is charged to, and how long they last.

use super::{Machine, NONE, Watch};
use crate::mutate;
use crate::sched::{Resched, Scheduler};
use crate::server::Server;
use crate::{Span, Time, Work};

impl<W: Watch> Machine<W> {
    /// Charges everything above the task that runs on `cpu`.
    pub(super) fn ran(&mut self, now: Time, cpu: usize, work: Work) {
        let Some(task) = self.cpus[cpu].actual.task().filter(|_| !work.is_zero()) else { return };
        let mut node = self.tasks[task as usize].node;
        while self.nodes[node as usize].parent != NONE {
            let (parent, child) =
                (self.nodes[node as usize].parent, self.nodes[node as usize].entry.child);
            let group = &mut self.groups[parent as usize];
            node = group.node;
            if !group.metered {
                continue;
            }
            let mut changed = false;
            if let Some(server) = &mut group.server {
                // What ran over its budget, because a driver was late, is not charged twice.
                let budget = server.budget(now);
                if !budget.is_zero() {
                    server.charge(now, mutate!("core-server-over", work.min(budget), work));
                    let shown = self.nodes[node as usize].entry.criteria.deadline;
                    changed = server.budget(now).is_zero() || server.deadline() != shown;
                }
            }
            if group.policy.metered() {
                changed |= group.policy.charge(now, child, work) == Resched::Pick;
            }
            mutate!("core-server-nested", {}, {
                if group.server.is_some() {
                    node = 0;
                }
            });
            // Shown later: those above have not been charged yet.
            if changed && !core::mem::replace(&mut group.is_spent, true) {
                self.spent.push(parent);
            }
        }
        self.dirty = true;
    }

    /// When the budgets that are being used would be used up.
    #[inline(always)]
    pub(super) fn measure(&mut self, now: Time) {
        for cpu in 0..self.cpus.len() {
            if let (true, Some(task)) = (self.cpus[cpu].metered, self.cpus[cpu].target.task()) {
                self.cpus[cpu].expiry = self.expiry(now, task);
            }
        }
    }

    pub(super) fn expiry(&self, now: Time, task: u32) -> Time {
        let mut node = self.tasks[task as usize].node;
        let mut left = None::<Work>;
        while self.nodes[node as usize].parent != NONE {
            let group = &self.groups[self.nodes[node as usize].parent as usize];
            let child = self.nodes[node as usize].entry.child;
            node = group.node;
            if !group.metered {
                continue;
            }
            let budget = group.server.as_ref().map(|server| server.budget(now));
            for bound in [budget, group.policy.allowance(now, child)].into_iter().flatten() {
                left = Some(left.map_or(bound, |left| left.min(bound)));
            }
        }
        left.map_or(Time::NEVER, |left| now.saturating_add(Span::from_ns(left.as_ns())))
    }
}

#[cfg(test)]
mod tests {
    use crate::machine::{Cpu, Event, SchedulerSpec, TaskId, TaskSpec, Tree};
    use crate::sched::Policy;
    use crate::server::{Kind, Reservation};
    use crate::{Span, Time, Work};

    #[test]
    fn l24_a_budget_of_which_nothing_was_used_lasts_as_long_from_each_look_on() {
        let mut tree = Tree::new(1, SchedulerSpec::new("root", Policy::FixedPriority));
        let mut spec = SchedulerSpec::new("server", Policy::Fifo);
        spec.reservation =
            Some(Reservation::new(Kind::Deferrable, Work::from_ns(400), Span::from_ns(2_000)));
        let server = tree.scheduler(Tree::ROOT, spec);
        let _ = tree.task(server, TaskSpec::new("task", Span::from_ns(9_000)));
        let mut machine = tree.build().expect("a sound tree");
        let at = |ns: u64| Time::from_ns(ns);
        let _ = machine.handle(at(0), Event::Arrived { task: TaskId(0), arrival: at(0) });
        while machine.poll(at(0)).is_some() {}
        assert_eq!(machine.budget_end(Cpu(0)), at(400));
        for look in [30, 370, 390] {
            assert_eq!(machine.poll(at(look)), None);
            assert_eq!(machine.budget_end(Cpu(0)), at(look + 400));
        }
        let _ = machine.handle(at(400), Event::Ran { cpu: Cpu(0), work: Work::from_ns(100) });
        assert_eq!(machine.poll(at(400)), None);
        assert_eq!(machine.budget_end(Cpu(0)), at(700));
    }
}
