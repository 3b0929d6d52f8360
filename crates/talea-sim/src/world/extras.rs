//! What not every world has: marks in jobs, holes and overheads, changes of the conditions, notes.

use super::{World, span_of};
use crate::sink::Sink;
use crate::spoil::{Overheads, Spoils};
use talea_core::heap::Heap;
use talea_core::machine::{Condition, Cpu, Event, Handled, Note, TaskId, Watch};
use talea_core::mutate;
use talea_core::workload::script::{Deed, Script};
use talea_core::workload::{Case, Surroundings};
use talea_core::{Span, Time, Work};

/// What not every world has.
#[derive(Debug)]
pub(super) struct Extras {
    /// By task.
    pub(super) scripts: Vec<Option<Script>>,
    /// Tasks that have suspended themselves, by the end of that.
    wakes: Heap,
    /// What becomes of the world, in order of time, and how far that has come.
    changes: Vec<(Time, Condition)>,
    changed: usize,
    spoils: Option<Spoils>,
    /// When the world was last looked at.
    pub(super) now: Time,
}

impl Extras {
    fn next_change(&self) -> Time {
        self.changes.get(self.changed).map_or(Time::NEVER, |&(at, _)| at)
    }
}

impl Extras {
    /// What a job has got done on a CPU between `from` and `now`.
    pub(super) fn spent(&self, cpu: usize, from: Time, now: Time) -> Span {
        self.spoils.as_ref().map_or_else(
            || now.since(from),
            |spoils| {
                mutate!(
                    "sim-overhead-budget",
                    spoils.progress(cpu, from, now),
                    now.since(from).max(spoils.progress(cpu, from, now))
                )
            },
        )
    }

    /// A CPU goes over to a job of `task`.
    pub(super) fn spend_order(&mut self, now: Time, cpu: usize, task: TaskId, begins: bool) {
        let Some(spoils) = &mut self.spoils else { return };
        spoils.forget(cpu, now);
        let Overheads { decision, level, switch, migration, .. } = spoils.overheads;
        let levels = level.as_ns().saturating_mul(mutate!(
            "sim-overhead-level",
            u64::from(spoils.levels[task.0 as usize]),
            u64::from(spoils.levels[task.0 as usize] - 1)
        ));
        let mut cost = mutate!(
            "sim-overhead-switch",
            mutate!(
                "sim-overhead-decision",
                decision.as_ns().saturating_add(switch.as_ns()),
                switch.as_ns()
            )
            .saturating_add(levels),
            decision.as_ns().saturating_add(levels)
        );
        mutate!(
            "sim-overhead-migration",
            if core::mem::replace(&mut spoils.last[task.0 as usize], cpu) != cpu && !begins {
                cost = cost.saturating_add(migration.as_ns());
            },
            if core::mem::replace(&mut spoils.last[task.0 as usize], cpu) != cpu {
                cost = cost.saturating_add(migration.as_ns());
            }
        );
        spoils.spend(cpu, now, Span::from_ns(cost));
    }
}

impl<W: Watch> World<W> {
    pub(super) fn extras(&mut self) -> &mut Extras {
        let tasks = self.tasks.len();
        self.extras.get_or_insert_with(|| {
            Box::new(Extras {
                scripts: vec![None; tasks],
                wakes: Heap::new(tasks),
                changes: Vec::new(),
                changed: 0,
                spoils: None,
                now: Time::ZERO,
            })
        })
    }

    fn spoils(&mut self) -> &mut Spoils {
        let levels =
            (0..self.tasks.len()).map(|task| self.machine.depth(TaskId(task as u32))).collect();
        let first = (0..self.tasks.len()).map(|task| {
            mutate!("sim-overhead-first", self.machine.first_cpu(TaskId(task as u32)).0 as usize, 0)
        });
        let (cpus, first) = (self.cpus.len(), first.collect());
        self.extras().spoils.get_or_insert_with(|| Spoils::new(cpus, levels, first))
    }

    /// Every job costs what it does in this case. To be said before anything runs.
    #[must_use]
    pub fn with_case(mut self, case: Case) -> World<W> {
        self.case = case;
        self
    }

    /// Nothing progresses on `cpu` in these intervals `[from, to)`. Decisions are taken in time all
    /// the same.
    #[must_use]
    pub fn with_holes(mut self, cpu: Cpu, holes: Vec<(Time, Time)>) -> World<W> {
        self.spoils().set_holes(cpu.0 as usize, holes);
        self
    }

    /// Scheduling costs time.
    #[must_use]
    pub fn with_overheads(mut self, overheads: Overheads) -> World<W> {
        self.spoils().overheads = overheads;
        self
    }

    /// The battery, the mode or the mask change at these times.
    #[must_use]
    pub fn with_changes(mut self, mut changes: Vec<(Time, Condition)>) -> World<W> {
        changes.sort_by_key(|&(at, _)| at);
        self.extras().changes = changes;
        self
    }

    /// With everything that a description says about the surroundings of these CPUs.
    #[must_use]
    pub fn within(mut self, surroundings: &Surroundings) -> World<W> {
        let Surroundings { overheads, holes, changes } = surroundings;
        if *overheads != Overheads::default() {
            self = self.with_overheads(*overheads);
        }
        if !holes.is_empty() {
            for cpu in (0..self.cpus.len()).map(|cpu| Cpu(cpu as u32)) {
                let here = holes.iter().filter(|hole| hole.cpu == cpu);
                self = self.with_holes(cpu, here.map(|hole| (hole.from, hole.to)).collect());
            }
        }
        if changes.is_empty() { self } else { self.with_changes(changes.clone()) }
    }

    pub(super) fn next_extra(&self, extras: &Extras) -> Time {
        let wake = extras.wakes.first().map_or(Time::NEVER, |(at, _)| Time::from_ns(at));
        let next = wake.min(extras.next_change());
        let Some(spoils) = &extras.spoils else {
            return next.min(self.machine.next_wakeup().unwrap_or(Time::NEVER));
        };
        // Budgets are not used up in a hole: looking again and again while it lasts would show
        // nothing.
        (0..self.cpus.len()).fold(next.min(self.machine.next_timer()), |next, cpu| {
            let expiry = self.machine.budget_end(Cpu(cpu as u32));
            if expiry == Time::NEVER {
                return next;
            }
            next.min(spoils.finish(cpu, extras.now, expiry.max(extras.now).since(extras.now)))
        })
    }

    /// Sets when the piece under way on a CPU will be done.
    pub(super) fn aim(&mut self, now: Time, at: usize) {
        let Some(task) = self.cpus[at].running else { return };
        let left = span_of(self.tasks[task.0 as usize].left);
        let spoils = self.extras.as_ref().and_then(|extras| extras.spoils.as_ref());
        let end = spoils.map_or_else(|| now + left, |spoils| spoils.finish(at, now, left));
        self.ends[at] = end;
    }

    /// The job on a CPU has come to its end or to a mark.
    pub(super) fn reach(&mut self, now: Time, at: usize, sink: &mut impl Sink) {
        self.account::<true>(now, at);
        loop {
            let Some(task) = self.cpus[at].running else { return };
            let extras = self.extras.as_mut().expect("a world with extras");
            let Some(script) = &mut extras.scripts[task.0 as usize] else {
                return self.complete::<true>(now, at, sink);
            };
            let Some(deed) = script.act() else {
                match script.turn() {
                    None => return self.complete::<true>(now, at, sink),
                    Some(left) => {
                        self.tasks[task.0 as usize].left = left;
                        return self.aim(now, at);
                    }
                }
            };
            if self.does(now, task, deed) {
                continue;
            }
            // It stops here, unless what it waits for is had at this very instant.
            let script =
                self.extras.as_mut().and_then(|extras| extras.scripts[task.0 as usize].as_mut());
            self.tasks[task.0 as usize].left = script.and_then(Script::turn).unwrap_or(Work::ZERO);
            return self.aim(now, at);
        }
    }

    /// Whether the piece under way of a job is its last.
    pub(super) fn is_last(&self, task: TaskId) -> bool {
        let script =
            self.extras.as_ref().and_then(|extras| extras.scripts[task.0 as usize].clone());
        script.is_none_or(|mut script| {
            let stops = |deed: Deed| matches!(deed, Deed::Lock(_) | Deed::Suspend(_));
            while let Some(deed) = script.act() {
                if stops(deed) {
                    return false;
                }
            }
            script.turn().is_none()
        })
    }

    /// A job does something; whether it goes on at once.
    fn does(&mut self, now: Time, task: TaskId, deed: Deed) -> bool {
        match deed {
            Deed::Lock(resource) => {
                self.machine.handle(now, Event::Locked { task, resource }) != Handled::Waits
            }
            Deed::Unlock(resource) => {
                let _ = self.machine.handle(now, Event::Unlocked { task, resource });
                true
            }
            Deed::Suspend(span) => {
                let extras = self.extras.as_mut().expect("a world with extras");
                extras.wakes.set(task.0, (now + span).as_ns());
                let _ = self.machine.handle(now, Event::Blocked { task });
                false
            }
            Deed::Push(channel, count) => {
                for _ in 0..count {
                    let _ = self.machine.handle(now, Event::Pushed { channel });
                }
                true
            }
            Deed::Pop(channel, count) => {
                for _ in 0..count {
                    let _ = self.machine.handle(now, Event::Popped { channel });
                }
                true
            }
        }
    }

    /// What was said to happen at this time happens.
    pub(super) fn change(&mut self, now: Time) {
        let extras = self.extras.as_mut().expect("a world with extras");
        while let Some((_, task)) = extras.wakes.first().filter(|&(at, _)| at <= now.as_ns()) {
            extras.wakes.remove(task);
            let _ = self.machine.handle(now, Event::Woke { task: TaskId(task) });
        }
        while let Some(&(_, condition)) =
            extras.changes.get(extras.changed).filter(|&&(at, _)| at <= now)
        {
            extras.changed += 1;
            let _ = self.machine.handle(now, Event::Changed(condition));
        }
    }

    pub(super) fn spend_release(&mut self, now: Time, task: u32) {
        let Some(spoils) = self.extras.as_mut().and_then(|extras| extras.spoils.as_mut()) else {
            return;
        };
        let (cost, at) = (spoils.overheads.release, spoils.last[task as usize]);
        if cost.is_zero() {
            return;
        }
        // What runs there has come so far, and goes on when that is done.
        self.account::<true>(now, at);
        let spoils =
            self.extras.as_mut().and_then(|extras| extras.spoils.as_mut()).expect("asked before");
        spoils.spend(at, now, cost);
        self.aim(now, at);
    }

    pub(super) fn take_notes(&mut self, now: Time, sink: &mut impl Sink) {
        while let Some(note) = self.machine.poll_note() {
            match note {
                Note::Activated { task, .. } => {
                    sink.arrived(now, task, now);
                    self.spend_release(now, task.0);
                }
                Note::Refused { task } => {
                    sink.arrived(now, task, now);
                    sink.refused(now, task);
                }
                _ => {}
            }
            sink.noted(now, &note);
        }
    }
}
