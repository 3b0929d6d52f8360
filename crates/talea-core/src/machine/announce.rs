//! Bottom up: a child has changed, and each scheduler above it shows its parent what that means (SF3P section VI).

use super::{Machine, NONE, Signal, Watch};
use crate::Time;
use crate::criteria::Criteria;
use crate::sched::{Entry, Resched, Scheduler};
use crate::server::Server;

impl<W: Watch> Machine<W> {
    /// No scheduler above `node` holds on to it any more.
    pub(super) fn let_go(&mut self, mut node: u32) {
        while self.nodes[node as usize].parent != NONE {
            let group = &mut self.groups[self.nodes[node as usize].parent as usize];
            group.current = None;
            node = group.node;
        }
    }

    pub(super) fn look_again(&mut self, now: Time, mut node: u32) {
        while self.nodes[node as usize].parent != NONE {
            let parent = self.nodes[node as usize].parent;
            node = self.groups[parent as usize].node;
            let (eligible, criteria) = self.look(now, parent);
            self.show(now, node, eligible, criteria, false);
        }
    }

    /// Tells the parent of a task what it needs to know. `anew`: it stands at the end of any queue.
    #[inline(always)]
    pub(super) fn show_task(&mut self, now: Time, task: u32, anew: bool) {
        let state = &self.tasks[task as usize];
        let node = state.node;
        let mut criteria = self.nodes[node as usize].criteria;
        let eligible = state.released && state.held == 0;
        if let (true, Some(job)) = (state.released, state.ring.first()) {
            criteria.arrival = job.release;
            criteria.deadline = job.deadline;
        }
        if self.share.is_some() {
            criteria = self.with_lent(task, &criteria);
        }
        self.show(now, node, eligible, criteria, anew);
    }

    /// `node` is or is not eligible, with these criteria: tells its parent, and the parent its own, as far up as
    /// anything changes (SF3P section VI: the bottom-up phase).
    #[inline]
    pub(super) fn show(&mut self, now: Time, node: u32, eligible: bool, criteria: Criteria, anew: bool) {
        let (mut node, mut eligible, mut criteria, mut anew) = (node, eligible, criteria, anew);
        loop {
            let runnable = &mut self.nodes[node as usize];
            let was = runnable.eligible;
            if !eligible && !was {
                runnable.criteria = criteria;
                return;
            }
            if eligible && was && !anew && runnable.criteria == criteria {
                return;
            }
            if eligible && (!was || anew) {
                self.stamp += 1;
                runnable.since = self.stamp;
            }
            runnable.eligible = eligible;
            runnable.criteria = criteria;
            let signal = match (was, eligible) {
                (false, _) => Signal::Ready,
                (true, false) => Signal::Finished,
                (true, true) => Signal::Update,
            };
            let entry = Entry { child: runnable.child, since: runnable.since, criteria };
            let parent = runnable.parent;
            if W::ON {
                self.watch.see(now, signal, runnable.id);
            }
            if parent == NONE {
                return;
            }
            let group = &mut self.groups[parent as usize];
            if parent == 0
                && let Some(global) = &mut self.global
            {
                match signal {
                    Signal::Ready => global.ready(now, entry),
                    Signal::Finished => global.finished(now, entry.child),
                    _ => global.update(now, entry),
                }
                self.dirty = true;
                return;
            }
            let mut answer = match signal {
                Signal::Ready => group.policy.ready(now, &entry),
                Signal::Finished => group.policy.finished(now, entry.child),
                _ => group.policy.update(now, &entry),
            };
            if group.current == Some(entry.child) {
                answer = Resched::Pick;
                if !eligible {
                    group.current = None;
                }
            }
            if answer == Resched::Keep {
                return;
            }
            node = group.node;
            anew = false;
            (eligible, criteria) = self.look(now, parent);
        }
    }

    /// What a scheduler has to show: whether it is eligible, and its criteria.
    #[inline]
    pub(super) fn look(&mut self, now: Time, group: u32) -> (bool, Criteria) {
        self.dirty = true;
        let state = &mut self.groups[group as usize];
        let head = state.current.or_else(|| state.policy.head(now));
        let mut eligible = head.is_some();
        let mut criteria = match head {
            Some(head) => {
                let kid = self.kids[(state.kids + head) as usize];
                state.own.over(&self.nodes[kid as usize].criteria)
            }
            None => self.nodes[state.node as usize].criteria,
        };
        if let Some(server) = &mut state.server {
            let pending = head.is_some();
            if pending != state.pending {
                if pending { server.wake(now) } else { server.idle(now) }
            }
            eligible &= !server.budget(now).is_zero();
            criteria.deadline = server.deadline();
            state.pending = pending;
            self.rearm(now, group);
        }
        if let (true, Some(head)) = (self.share.is_some(), head) {
            criteria = self.with_lent_through(group, head, &criteria);
        }
        (eligible, criteria)
    }

    /// A policy, a server or a slot has changed by itself.
    pub(super) fn refresh(&mut self, now: Time, group: u32) {
        let (eligible, criteria) = self.look(now, group);
        self.show(now, self.groups[group as usize].node, eligible, criteria, false);
    }
}
