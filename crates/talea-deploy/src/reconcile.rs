//! Comparison of the desired with the observed programs, and the effects that are missing.
//!
//! Rules, in this order.
//!
//! 1. The exit of a program is handled once, and forgotten.
//! 2. One program plays a task: it has the task's name and command, except for the table of a
//!    governor. Every other program is stopped, also a second one of the same task.
//! 3. A task starts its program if no program of its name runs, stops or is on its way, and no
//!    process of an ended one is left.
//! 4. The threads of a program that plays an active task have the task's attributes. Those of a
//!    governed task have its CPUs: the governor sets their policies. A governed program whose CPUs
//!    are contended has failed, and is killed. A governor that is ready and has another table gets
//!    the one of its task, again and again until it reports that.
//! 5. A governed program must be ready in time from the readiness of its governor on. Before, it is
//!    frozen.
//!
//! No rule orders a governor and its programs: decision 26 has the states of a root without one.

use crate::deployment::{ADJUST_PERIOD, Deployment, INSPECTION_PERIOD, STOP_GRACE, Stop};
use crate::drift::{Action, KINDS, missing};
use crate::generation::{Role, TaskSpec};
use crate::ids::{EffectNumber, ProcessId, SettingKind};
use crate::inactive::Inactive;
use crate::input::{
    Effect, Event, Exit, FailureCause, Observation, Program, RollbackCause, StopSignal,
};
use std::collections::{BTreeMap, BTreeSet};
use talea_core::health::RestartOn;
use talea_core::{Monotonic, Span, mutate};

/// Observed programs of one task.
#[derive(Clone, Debug, Default)]
struct Playing<'o> {
    /// The program that plays the task.
    running: Option<&'o Program>,
    /// Programs that have exited since the last observation.
    exits: Vec<(ProcessId, Exit)>,
}

impl Deployment {
    /// Compares an observation with the desired state.
    pub(crate) fn reconcile(&mut self, observation: &Observation, now: Monotonic) {
        let seen = observation.seen;
        self.starts.retain(|_, start| *start > seen);
        let generation = self.in_force.clone();
        let specs = generation.as_ref().map_or(&[][..], |generation| generation.tasks());
        let (playing, surplus) = self.assign(specs, observation);
        let mut blocked: BTreeSet<&str> = BTreeSet::new();
        if mutate!("deploy-occupied", true, false) {
            blocked.extend(observation.occupied.iter().map(String::as_str));
        }
        for program in surplus {
            blocked.insert(&program.task);
            self.stop(program.process, STOP_GRACE, seen, now);
        }
        for (index, (spec, playing)) in specs.iter().zip(&playing).enumerate() {
            match playing.running {
                Some(program) => self.running(index, spec, program, seen, now),
                None => self.ended(index, spec, &playing.exits, seen, now),
            }
        }
        // After a rollback the observation to come decides about starts and threads.
        if !mutate!("deploy-failed-first", self.roll_back_if_failed(now), false) {
            for (index, (spec, playing)) in specs.iter().zip(&playing).enumerate() {
                match playing.running {
                    Some(program) => self.repair(index, spec, program, seen, now),
                    None if blocked.contains(spec.name.as_str()) => {}
                    None => self.start(index, spec, now),
                }
            }
        }
        let exists = |process: &ProcessId, exited: bool| {
            let programs = &observation.programs;
            programs.iter().any(|of| of.process == *process && of.exit.is_some() == exited)
        };
        self.stops.retain(|process, _| exists(process, false));
        self.forgotten.retain(|process| exists(process, true));
        let is_busy = self.in_force.is_some()
            || !observation.programs.is_empty()
            || !observation.occupied.is_empty()
            || !self.starts.is_empty();
        self.wakeup_at = is_busy.then(|| self.next_inspection(now));
    }

    /// Assigns the running programs to tasks, and forgets the exited ones. The second result is the
    /// programs to stop.
    fn assign<'o>(
        &mut self,
        specs: &[TaskSpec],
        observation: &'o Observation,
    ) -> (Vec<Playing<'o>>, Vec<&'o Program>) {
        let by_name: BTreeMap<&str, usize> =
            specs.iter().enumerate().map(|(index, spec)| (spec.name.as_str(), index)).collect();
        let mut playing = vec![Playing::default(); specs.len()];
        let mut surplus = Vec::new();
        for program in &observation.programs {
            let task = by_name.get(program.task.as_str()).copied();
            let task = task.filter(|&task| specs[task].command.is_same_program(&program.command));
            if let Some(exit) = program.exit {
                self.emit(Effect::Forget { process: program.process });
                let is_new = self.forgotten.insert(program.process);
                if let Some(task) = task.filter(|_| mutate!("deploy-exit-once", is_new, true)) {
                    playing[task].exits.push((program.process, exit));
                }
                continue;
            }
            let Some(task) = task else {
                surplus.push(program);
                continue;
            };
            // The known program stays, else the first one.
            let rank = |of: &Program| (self.tasks[task].process != Some(of.process), of.process);
            match playing[task].running {
                Some(other) if rank(other) < rank(program) => surplus.push(program),
                other => {
                    surplus.extend(mutate!("deploy-second-program", other, None));
                    playing[task].running = Some(program);
                }
            }
        }
        (playing, surplus)
    }

    /// Stops a program: first by a request, after `grace` by a kill. A kill is repeated until the
    /// program is gone.
    fn stop(&mut self, process: ProcessId, grace: Span, seen: EffectNumber, now: Monotonic) {
        let Some(&stop) = self.stops.get(&process) else {
            self.emit(Effect::Stop { process, signal: StopSignal::Terminate });
            let stop = Stop { kill_at: now.saturating_add(grace), kill: None };
            self.stops.insert(process, stop);
            return;
        };
        let is_due = stop.kill_at <= now && stop.kill.is_none_or(|kill| kill <= seen);
        if mutate!("deploy-kill", is_due, false) {
            let kill = self.emit(Effect::Stop { process, signal: StopSignal::Kill });
            self.stops.insert(process, Stop { kill: Some(kill), ..stop });
        }
    }

    /// Handles a program that plays a task: its readiness, and its stop.
    fn running(
        &mut self,
        index: usize,
        spec: &TaskSpec,
        program: &Program,
        seen: EffectNumber,
        now: Monotonic,
    ) {
        let process = program.process;
        if self.tasks[index].process != Some(process) {
            self.tasks[index].begin(process, now);
            self.report(Event::Started { task: spec.name.clone(), process });
        }
        let state = &mut self.tasks[index];
        state.pending = state.pending.filter(|start| *start > seen);
        let was_ready = state.is_ready;
        state.is_ready |= program.is_ready;
        state.adjusts = program.command != spec.command;
        if spec.governed.is_some() && !was_ready && program.is_ready {
            self.governor_is_ready(spec.root, now);
        }
        let is_due = self.tasks[index].ready_by(spec).is_some_and(|by| by <= now);
        let is_late =
            is_due && !mutate!("deploy-governed-ready", self.waits_for_governor(spec), false);
        let state = &self.tasks[index];
        let mut is_stopping = state.inactive.is_some() || self.stops.contains_key(&process);
        if !is_stopping && mutate!("deploy-ready", is_late, false) {
            self.fail(index, spec, FailureCause::NotReady, now);
            is_stopping = !self.tasks[index].is_late;
        }
        if is_stopping {
            let grace = self.tasks[index].drain_within.unwrap_or(STOP_GRACE);
            self.stop(process, grace, seen, now);
        }
    }

    /// Whether a task waits for the governor of its root.
    fn waits_for_governor(&self, spec: &TaskSpec) -> bool {
        let Some(generation) = &self.in_force else { return false };
        let mut tasks = generation.tasks().iter().zip(&self.tasks);
        matches!(spec.command.role, Role::Governed(_))
            && tasks
                .any(|(of, state)| of.root == spec.root && of.governed.is_some() && !state.is_ready)
    }

    /// Lets the time of the programs of a root until they must be ready begin.
    fn governor_is_ready(&mut self, root: usize, now: Monotonic) {
        let Some(generation) = self.in_force.clone() else { return };
        for (spec, state) in generation.tasks().iter().zip(&mut self.tasks) {
            if spec.root == root && spec.governed.is_none() && state.process.is_some() {
                state.started_at = Some(now);
            }
        }
    }

    /// Compares the threads of a program with the attributes of its task.
    fn repair(
        &mut self,
        index: usize,
        spec: &TaskSpec,
        program: &Program,
        seen: EffectNumber,
        now: Monotonic,
    ) {
        if self.stops.contains_key(&program.process) {
            return;
        }
        let kinds: &[SettingKind] = match spec.command.role {
            Role::Linux => &KINDS,
            Role::Governed(_) => mutate!("deploy-governed", &[SettingKind::Cpus], &KINDS),
            Role::Governor(_) => &[],
        };
        self.adjust(index, spec, program, seen, now);
        let mut has_left = false;
        let mut old = std::mem::take(&mut self.tasks[index].threads);
        for thread in &program.threads {
            let mut state = old.remove(&thread.id).unwrap_or_default();
            for &kind in kinds {
                let setting = missing(kind, &spec.attr, thread);
                let action = state.value(kind).judge(setting.is_none(), seen, now);
                let (Some(setting), true) = (setting, action != Action::Keep) else { continue };
                if let Action::Repair { .. } = action {
                    let (task, thread) = (spec.name.clone(), thread.id);
                    let counters = &mut self.tasks[index].counters;
                    mutate!("deploy-repairs-counted", counters.repairs += 1);
                    let repairs = counters.repairs;
                    self.report(Event::Repaired { task, thread, kind, repairs });
                }
                if let Action::Set { is_last: true } | Action::Repair { is_last: true } = action {
                    let (task, thread) = (spec.name.clone(), thread.id);
                    self.report(Event::Contended { task, thread, kind });
                    has_left |= matches!(spec.command.role, Role::Governed(_));
                }
                let set = self.emit(Effect::Set { thread: thread.id, setting });
                state.value(kind).pending = Some(set);
            }
            self.tasks[index].threads.insert(thread.id, state);
        }
        // On another CPU it takes time from programs that its governor does not know.
        if mutate!("deploy-left-cpus", has_left, false) {
            self.fail(index, spec, FailureCause::LeftCpus, now);
            self.stop(program.process, Span::ZERO, seen, now);
        }
    }

    /// Orders the table of the task from its governor, if that has another one. A governor that is
    /// not ready has not read its table, and would end by the signal.
    fn adjust(
        &mut self,
        index: usize,
        spec: &TaskSpec,
        program: &Program,
        seen: EffectNumber,
        now: Monotonic,
    ) {
        let state = &mut self.tasks[index];
        if !state.adjusts {
            state.adjusted = None;
            return;
        }
        let is_due = state.adjusted.is_none_or(|(adjust, at)| {
            mutate!("deploy-adjust-again", adjust <= seen && at + ADJUST_PERIOD <= now, false)
        });
        if program.is_ready && is_due {
            let task = Box::new(spec.clone());
            let adjust = self.emit(Effect::Adjust { process: program.process, task });
            self.tasks[index].adjusted = Some((adjust, now));
        }
    }

    /// Handles that no program plays a task: its exit, or the end of its pending start.
    fn ended(
        &mut self,
        index: usize,
        spec: &TaskSpec,
        exits: &[(ProcessId, Exit)],
        seen: EffectNumber,
        now: Monotonic,
    ) {
        let state = &mut self.tasks[index];
        let known = state.process.take();
        let is_own = |&&(process, _): &&(ProcessId, Exit)| match known {
            Some(known) => known == process,
            // The program started and exited between two observations.
            None => state.pending.is_some() && !self.stops.contains_key(&process),
        };
        let exit = exits.iter().find(is_own).map(|&(_, exit)| exit);
        let was_pending = state.pending.is_some_and(|start| start <= seen);
        let cause = match (known, exit) {
            (_, Some(exit)) => FailureCause::Exited(exit),
            (Some(_), None) => FailureCause::Vanished,
            (None, None) if was_pending => FailureCause::NotStarted(None),
            (None, None) => return,
        };
        state.end();
        let was_stopped = known.is_some_and(|process| self.stops.contains_key(&process));
        let is_expected = was_stopped || self.tasks[index].inactive.is_some();
        if mutate!("deploy-own-stop", is_expected, false) {
            return;
        }
        let is_success = exit.is_some_and(Exit::is_success);
        match (is_success, spec.health.restart.when) {
            (true, RestartOn::Always) => {
                let next = self.tasks[index].restart(&spec.health.restart, now).map_err(Some);
                self.report_next(spec, next);
            }
            (true, RestartOn::Failure) => {
                self.tasks[index].inactive = Some(Inactive::Ended);
                self.report_next(spec, Err(Some(Inactive::Ended)));
            }
            (false, _) => self.fail(index, spec, cause, now),
        }
    }

    /// Handles a failure of a task.
    pub(crate) fn fail(
        &mut self,
        index: usize,
        spec: &TaskSpec,
        cause: FailureCause,
        now: Monotonic,
    ) {
        let next = self.tasks[index].fail(spec, cause, now);
        let failures = self.tasks[index].counters.failures;
        self.report(Event::Failure { task: spec.name.clone(), cause, failures });
        self.report_next(spec, next);
    }

    /// Reports the consequence of the end of a program.
    fn report_next(&mut self, spec: &TaskSpec, next: Result<Monotonic, Option<Inactive>>) {
        let task = spec.name.clone();
        match next {
            Ok(until) => self.report(Event::BackOff { task, until }),
            Err(Some(why)) => self.report(Event::Inactive { task, why }),
            Err(None) => {}
        }
    }

    /// Starts the program of a task if the task is active and its back-off has ended.
    fn start(&mut self, index: usize, spec: &TaskSpec, now: Monotonic) {
        let state = &self.tasks[index];
        let is_waiting = state.pending.is_some()
            || self.starts.contains_key(&spec.name)
            || state.not_before.is_some_and(|at| now < at);
        if is_waiting || mutate!("deploy-inactive", state.inactive.is_some(), false) {
            return;
        }
        let start = self.emit(Effect::Start(Box::new(spec.clone())));
        self.starts.insert(spec.name.clone(), start);
        self.tasks[index].order_start(start, now);
    }

    /// Returns to the generation before if a task that the generation on trial has changed has
    /// failed for good. Returns whether it did.
    pub(crate) fn roll_back_if_failed(&mut self, now: Monotonic) -> bool {
        let (Some(generation), Some(_)) = (&self.in_force, self.trial_until) else { return false };
        let has_changed = |spec: &TaskSpec| {
            let before = self.before.as_ref().and_then(|before| before.task(&spec.name));
            before != Some(spec)
        };
        let has_failed =
            |why: Option<Inactive>| matches!(why, Some(Inactive::Failed | Inactive::Idle));
        let mut tasks = generation.tasks().iter().zip(&self.tasks);
        let failed = tasks.find(|(spec, state)| has_failed(state.inactive) && has_changed(spec));
        let Some((spec, _)) = failed else { return false };
        let cause = RollbackCause::TaskFailed(spec.name.clone());
        self.roll_back(cause, None, now);
        true
    }

    fn next_inspection(&self, now: Monotonic) -> Monotonic {
        let specs = self.in_force.iter().flat_map(|generation| generation.tasks());
        let of_tasks = specs
            .zip(&self.tasks)
            .flat_map(|(spec, state)| [state.not_before, state.ready_by(spec)])
            .flatten();
        let kills = self.stops.values().map(|stop| stop.kill_at);
        let due = of_tasks.chain(kills).filter(|at| *at > now).min();
        let inspection = now.saturating_add(INSPECTION_PERIOD);
        due.map_or(inspection, |due| due.min(inspection))
    }
}
