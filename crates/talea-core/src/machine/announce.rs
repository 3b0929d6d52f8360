//! Bottom up: a child has changed, and each scheduler above it shows its parent what that means
//! (SF3P section VI).

use super::{Kid, Machine, NONE, Signal, Watch};
use crate::Time;
use crate::criteria::Criteria;
use crate::mutate;
use crate::sched::{Resched, Scheduler};
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
            let (eligible, changed) = self.look_and_keep(now, parent);
            self.pass_on(now, node, eligible, changed, false);
        }
    }

    /// Tells the parent of a task what it needs to know.
    pub(super) fn show_task_again(&mut self, now: Time, task: u32) {
        self.show_task(now, task, false);
    }

    /// The same; `anew`: it stands at the end of any queue.
    #[inline(always)]
    pub(super) fn show_task(&mut self, now: Time, task: u32, anew: bool) {
        let state = &self.tasks[task as usize];
        let (node, eligible) = (state.node, state.released && state.held == 0);
        let shown = &mut self.nodes[node as usize].entry.criteria;
        let mut changed = false;
        if self.share.is_some() {
            let criteria = self.with_lent(task);
            return self.show(now, node, eligible, criteria, anew);
        }
        if let (true, Some(job)) = (state.released, state.ring.first()) {
            changed = (shown.arrival, shown.deadline) != (job.release, job.deadline);
            (shown.arrival, shown.deadline) = mutate!(
                "core-job-queued",
                (job.release, job.deadline),
                (job.release, job.deadline.min(shown.deadline))
            );
        }
        self.pass_on(now, node, eligible, changed, anew);
    }

    /// `node` is or is not eligible, with these criteria: tells its parent, and the parent its own,
    /// as far up as anything changes (SF3P section VI: the bottom-up phase).
    pub(super) fn show(
        &mut self,
        now: Time,
        node: u32,
        eligible: bool,
        criteria: Criteria,
        anew: bool,
    ) {
        let shown = &mut self.nodes[node as usize].entry.criteria;
        let changed = *shown != criteria;
        *shown = criteria;
        self.pass_on(now, node, eligible, changed, anew);
    }

    /// The same when `node` has its criteria already; `changed`: they are new.
    #[inline(always)]
    fn pass_on(&mut self, now: Time, node: u32, eligible: bool, changed: bool, anew: bool) {
        if let Some(group) = self.tell(now, node, eligible, changed, anew) {
            self.refresh(now, group);
        }
    }

    /// Tells the parent of `node`; which group is another one by that.
    #[inline(always)]
    fn tell(
        &mut self,
        now: Time,
        node: u32,
        eligible: bool,
        changed: bool,
        anew: bool,
    ) -> Option<u32> {
        let runnable = &mut self.nodes[node as usize];
        let was = core::mem::replace(&mut runnable.eligible, eligible);
        let is_news = if eligible { !was || anew || changed } else { was };
        if !is_news {
            return None;
        }
        if eligible && (!was || anew) {
            self.stamp += 1;
            runnable.entry.since = self.stamp;
        }
        let signal = match (was, eligible) {
            (false, _) => Signal::Ready,
            (true, false) => Signal::Finished,
            (true, true) => Signal::Update,
        };
        mutate!(
            "core-signals",
            if W::ON {
                self.watch.see(now, signal, self.ids[node as usize]);
            },
            if W::ON && signal != Signal::Update {
                self.watch.see(now, signal, self.ids[node as usize]);
            }
        );
        let (entry, parent) = (&runnable.entry, runnable.parent);
        if parent == NONE {
            return None;
        }
        if let (0, Some(global)) = (parent, &mut self.global) {
            match signal {
                Signal::Ready => global.ready(now, entry),
                Signal::Finished => global.finished(now, entry.child),
                _ => global.update(now, entry),
            }
            self.dirty = true;
            return None;
        }
        let group = &mut self.groups[parent as usize];
        let mut answer = match signal {
            Signal::Ready => group.policy.ready(now, entry),
            Signal::Finished => group.policy.finished(now, entry.child),
            _ => group.policy.update(now, entry),
        };
        if group.current == Some(entry.child) {
            answer = Resched::Pick;
            if !eligible {
                group.current = None;
            }
        }
        // Below a table nobody stands behind anybody: whoever comes may have a CPU of its own.
        (mutate!(
            "core-table-newcomer",
            answer == Resched::Pick || (parent == 0 && self.table.is_some()),
            answer == Resched::Pick
        ))
        .then_some(parent)
    }

    /// What a scheduler has to show: whether it is eligible, and its criteria.
    #[inline]
    pub(super) fn look(&mut self, now: Time, group: u32) -> (bool, Criteria) {
        self.dirty = true;
        self.stale = u64::MAX;
        let state = &mut self.groups[group as usize];
        let head = state.current.or_else(|| state.policy.settled_head(now));
        let mut eligible = head.is_some();
        let mut criteria = match head {
            Some(head) => {
                let kid = self.kids[(state.kids + head) as usize].node;
                state.own.over(&self.nodes[kid as usize].entry.criteria)
            }
            None => self.nodes[state.node as usize].entry.criteria,
        };
        if let Some(server) = &mut state.server {
            let pending = head.is_some();
            if pending != state.pending {
                if pending { server.wake(now) } else { server.idle(now) }
            }
            eligible &= !server.budget(now).is_zero();
            mutate!(
                "core-server-shown",
                {
                    criteria.deadline = server.deadline();
                },
                {}
            );

            if mutate!("core-server-job", state.due != criteria.deadline, state.due == Time::ZERO) {
                state.due = criteria.deadline;
                let entry = &mut self.nodes[state.node as usize].entry;
                entry.job = entry.job.wrapping_add(1);
            }
            state.pending = pending;
            self.rearm(now, group);
        }
        if let (true, Some(head)) = (self.share.is_some(), head) {
            criteria = self.with_lent_through(group, head, &criteria);
        }
        (eligible, criteria)
    }

    /// The same, kept in its entry: whether it is eligible, and whether anything else is new.
    #[inline]
    fn look_and_keep(&mut self, now: Time, group: u32) -> (bool, bool) {
        let node = self.groups[group as usize].node as usize;
        let job = self.nodes[node].entry.job;
        let (eligible, criteria) = self.look(now, group);
        let entry = &mut self.nodes[node].entry;
        let changed = entry.criteria != criteria || entry.job != job;
        entry.criteria = criteria;
        (eligible, changed)
    }

    /// Whether it matters what a scheduler shows. A root has nobody to show it to, only somebody
    /// who watches.
    #[inline(always)]
    pub(super) fn is_seen(&self, group: u32) -> bool {
        mutate!(
            "core-root-server",
            W::ON || group != 0 || self.groups[0].server.is_some(),
            W::ON || group != 0
        )
    }

    /// A policy, a server or a slot has changed by itself, or a child has: shows that, as far up as
    /// anything changes.
    pub(super) fn refresh(&mut self, now: Time, group: u32) {
        let mut next = Some(group);
        while let Some(group) = next {
            if !self.is_seen(group) {
                return self.refresh_root(now);
            }
            let node = self.groups[group as usize].node;
            let (eligible, changed) = self.look_and_keep(now, group);
            next = self.tell(now, node, eligible, changed, false);
        }
    }

    /// All that is asked of such a root is whether there is something to run.
    #[inline]
    fn refresh_root(&mut self, now: Time) {
        self.dirty = true;
        self.stale = u64::MAX;
        let root = &self.groups[0];
        let eligible = root.current.is_some() || !root.policy.is_idle(now);
        self.nodes[Kid::ROOT.node as usize].eligible = eligible;
    }
}
