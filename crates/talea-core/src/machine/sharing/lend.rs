//! Priority inheritance and ceilings, through a tree.
//!
//! Sha, Rajkumar and Lehoczky, IEEE Trans. Computers 39(9), 1990; transitive. Who waits (the
//! ceiling: who might, and who is there) and who holds meet in a lowest common scheduler.
//! Everything on the holder's way up to it shows the more urgent of its own criteria and the *key*:
//! the waiter's criteria as that scheduler would see them, own values and servers' deadlines laid
//! over. A group shows the key only while its head is on such a way.
//!
//! Inside a group whose own values hide its children's from that scheduler, their numbers don't
//! compare with the key: if the key beats the group's own values, whoever leads to the holder comes
//! before all its siblings there, otherwise the key is compared as it is.
//!
//! Budgets are not lent: a holder in a server without budget waits for the refill, and so do those
//! who wait for it. The executor and the analysis see the same.
//!
//! Everything is computed anew when somebody begins or ends to wait or to hold, or comes while
//! somebody holds what he uses under a ceiling: O((waiters + users) · depth), and only then.

use super::super::{Machine, NONE, STALLED, Watch, What};
use super::{Protocol, Sharing, Wants};
use crate::Time;
use crate::criteria::Criteria;
use crate::mutate;
use crate::sched::{Child, Entry, Scheduler};
use crate::server::Server;

impl<W: Watch> Machine<W> {
    /// What a task shows: its own criteria with the deadline and arrival of its job, if that is
    /// released, and what was lent to it.
    #[cold]
    pub(in super::super) fn with_lent(&self, task: u32) -> Criteria {
        let (state, share) = (&self.tasks[task as usize], self.share.as_ref().expect("a gate"));
        let node = &self.nodes[state.node as usize];
        let mut natural = share.tasks[task as usize].natural;
        (natural.arrival, natural.deadline) = match state.ring.first().filter(|_| state.released) {
            Some(job) => (job.release, job.deadline),
            None => (node.entry.criteria.arrival, node.entry.criteria.deadline),
        };
        if node.boosted { natural.most_urgent(&share.lent[state.node as usize]) } else { natural }
    }

    /// What a group shows: `own`, and what was lent to it, if `head` leads to the holder.
    #[cold]
    pub(in super::super) fn with_lent_through(
        &self,
        group: u32,
        head: Child,
        own: &Criteria,
    ) -> Criteria {
        let (group, share) = (&self.groups[group as usize], self.share.as_ref().expect("a gate"));
        let kid = self.kids[(group.kids + head) as usize].node;
        let leads = self.nodes[kid as usize].boosted && self.nodes[group.node as usize].boosted;
        mutate!(
            "core-inheritance-group",
            if leads { own.most_urgent(&share.lent[group.node as usize]) } else { *own },
            if leads && own.yields {
                own.most_urgent(&share.lent[group.node as usize])
            } else {
                *own
            }
        )
    }

    /// The lowest node above or at both. Parents have smaller numbers than their children.
    pub(super) fn meet(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            let lower = if a > b { &mut a } else { &mut b };
            *lower = self.above(*lower).expect("one root");
        }
        a
    }

    /// `criteria` of something at `node`, as the scheduler at `meet` sees it.
    pub(super) fn fold(&self, mut node: u32, meet: u32, mut criteria: Criteria) -> Criteria {
        while let Some(above) = self.above(node).filter(|&above| above != meet) {
            node = above;
            let What::Group(group) = self.whats[node as usize] else {
                unreachable!("tasks have no children")
            };
            let group = &self.groups[group as usize];
            criteria = group.own.over(&criteria);
            if let Some(server) = &group.server {
                criteria.deadline = server.deadline();
            }
        }
        criteria
    }

    /// Whether a server stands between `node` and the scheduler at `meet`.
    pub(super) fn is_served(&self, node: u32, meet: u32) -> bool {
        let groups = core::iter::successors(self.above(node), |&at| self.above(at));
        groups.take_while(|&at| at != meet).any(|at| match self.whats[at as usize] {
            What::Group(group) => self.groups[group as usize].server.is_some(),
            What::Task(_) => false,
        })
    }

    /// A job of `task` is there now: whoever holds what it uses, and has a ceiling by that, comes
    /// before it.
    #[cold]
    pub(in super::super) fn meet_ceilings(&mut self, now: Time, task: u32) {
        if self.tasks[task as usize].released
            && self.share.as_ref().is_some_and(|share| share.is_below_ceiling(task))
        {
            self.relend(now);
        }
    }

    /// Computes anew who has inherited what, and tells whoever is concerned.
    pub(in super::super) fn relend(&mut self, now: Time) {
        let mut share = self.share.take().expect("a gate");
        share.tell.clear();
        for &node in &share.boosted {
            mutate!(
                "core-inheritance-end",
                {
                    self.nodes[node as usize].boosted = false;
                },
                {}
            );

            share.tell.push(node);
        }
        share.boosted.clear();
        for at in 0..share.waiting.len() {
            let from = share.waiting[at];
            share.walk += 1;
            share.met[from as usize] = share.walk;
            self.lend_along(now, &mut share, from, from);
        }
        for which in
            mutate!("core-resource-ceiling", 0, share.resources.len())..share.resources.len()
        {
            let resource = &share.resources[which];
            if resource.protocol == Protocol::Ceiling && resource.holder != NONE {
                let node = self.tasks[resource.holder as usize].node;
                let (key, meet, holder) = (resource.ceiling, resource.meet, resource.holder);
                self.lend(now, &mut share, node, meet, &key);
                // Those who are there: one that was late, came with the deadline of its graph or
                // stands behind a server may have an earlier deadline than the floor.
                for at in 0..share.resources[which].users.len() {
                    let user = share.resources[which].users[at];
                    if user != holder
                        && mutate!(
                            "core-ceiling-present",
                            self.tasks[user as usize].released,
                            !self.tasks[user as usize].released
                        )
                    {
                        share.walk += 1;
                        share.met[user as usize] = share.walk;
                        self.lend_to(now, &mut share, user, holder);
                    }
                }
            }
        }
        let Sharing { tell, boosted, .. } = &mut *share;
        tell.extend_from_slice(boosted);
        // From the leaves up, each once.
        tell.sort_unstable_by(|a, b| b.cmp(a));
        tell.dedup();
        let tell = core::mem::take(&mut share.tell);
        self.share = Some(share);
        for &node in &tell {
            match self.whats[node as usize] {
                What::Task(task) => self.show_task_again(now, task),
                What::Group(group) => self.refresh(now, group),
            }
        }
        self.share.as_mut().expect("put back").tell = tell;
    }

    /// Lends the key of `from` to those who hold what `at` waits for, and to those for whom they
    /// wait.
    fn lend_along(&mut self, now: Time, share: &mut Sharing, from: u32, at: u32) {
        let mut accelerators = match share.tasks[at as usize].wants {
            Wants::Version(version) if share.inheritance => {
                share.tasks[at as usize].needs[version as usize] & !share.free
            }
            Wants::Resource(which)
                if mutate!(
                    "core-resource-inheritance",
                    share.resources[which as usize].protocol != Protocol::None,
                    share.resources[which as usize].protocol == Protocol::Ceiling
                ) =>
            {
                for index in 0..share.tasks[at as usize].uses.len() {
                    let used = share.tasks[at as usize].uses[index].0;
                    if let Some(holder) = share.holder_for(at, which, used) {
                        self.lend_to(now, share, from, holder);
                    }
                }
                0
            }
            _ => 0,
        };
        while accelerators != 0 {
            let holder = share.holders[accelerators.trailing_zeros() as usize];
            accelerators &= accelerators - 1;
            self.lend_to(now, share, from, holder);
        }
    }

    fn lend_to(&mut self, now: Time, share: &mut Sharing, from: u32, holder: u32) {
        if share.met[holder as usize] == share.walk {
            return;
        }
        share.met[holder as usize] = share.walk;
        let (waits, holds) = (self.tasks[from as usize].node, self.tasks[holder as usize].node);
        let mut key = share.tasks[from as usize].natural;
        if let Some(job) = self.tasks[from as usize].ring.first() {
            (key.arrival, key.deadline) = (job.release, job.deadline);
        }
        let meet = self.meet(waits, holds);
        let key = self.fold(waits, meet, key);
        self.lend(now, share, holds, meet, &key);
        mutate!(
            "core-inheritance-chain",
            {
                if self.tasks[holder as usize].held & STALLED != 0 {
                    self.lend_along(now, share, from, holder);
                }
            },
            {}
        );
    }

    /// Lends `key` to everything from the task at `holder` up to below `meet`.
    fn lend(&mut self, now: Time, share: &mut Sharing, holder: u32, meet: u32, key: &Criteria) {
        let What::Group(scheduler) = self.whats[meet as usize] else { return };
        // What the groups on the way hide of the most urgent that there is.
        let shell = self.fold(holder, meet, Criteria::MOST);
        let entry = |criteria: &Criteria| Entry { child: 0, job: 0, since: 0, criteria: *criteria };
        let policy = &self.groups[scheduler as usize].policy;
        let inner = if policy.before(
            now,
            &entry(mutate!("core-inheritance-hidden", key, &shell)),
            &entry(&shell),
        ) {
            &Criteria::MOST
        } else {
            key
        };
        let mut at = holder;
        while at != meet {
            let above = self.above(at).expect("meet is above the holder");
            let value = if above == meet { key } else { inner };
            let node = &mut self.nodes[at as usize];
            let lent = &mut share.lent[at as usize];
            if node.boosted {
                *lent = lent.most_urgent(value);
            } else {
                node.boosted = true;
                *lent = *value;
                share.boosted.push(at);
            }
            at = above;
        }
    }
}
