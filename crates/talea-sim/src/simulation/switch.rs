//! The end of a mode: a simulation up to the instant at which a requested switch takes effect.

use super::Simulation;
use talea_core::Time;
use talea_core::engine::{Observer, SwitchInstant, SwitchRule, TaskId};
use talea_core::mutate;
use talea_core::sink::Sink;

impl<W: Observer> Simulation<W> {
    /// Simulates all events before the switch that `rule` gives for a request at `request`, and
    /// returns the switch instant. The rule is that of the simulated tree. The new mode is another
    /// simulation, whose time zero is this instant. Jobs that complete exactly at the instant are
    /// [`Simulation::completions_at`].
    ///
    /// # Panics
    /// If the simulation has passed the request.
    pub fn run_to_switch(
        &mut self,
        rule: &SwitchRule,
        request: Time,
        sink: &mut impl Sink,
    ) -> SwitchInstant {
        assert!(self.outcome.now <= request, "the request is in the past");
        let pending = rule.request(request);
        self.run(request, sink);
        loop {
            let now = self.outcome.now;
            let instant = mutate!(
                "switch-without-rule",
                pending.instant(now, self.is_idle_at(now)),
                Some(SwitchInstant { at: now, cause: talea_core::engine::SwitchCause::Idle })
            );
            if let Some(instant) = instant {
                return instant;
            }
            // All events before `now` are simulated. Those at `now` are the next step.
            if self.next_event() <= now {
                self.advance(sink);
            }
            let next = self.next_event().max(now).min(pending.next_wakeup());
            self.outcome.now = next;
        }
    }

    /// Whether each job that arrived before `now` completes by `now`, without activating another
    /// one. All events before `now` are simulated.
    pub fn is_idle_at(&self, now: Time) -> bool {
        let pending: u64 = (0..self.engine.tasks())
            .map(|task| u64::from(self.engine.backlog(TaskId(task as u32))))
            .sum();
        let last = self
            .completions_at(now)
            .filter(|job| mutate!("switch-graph", !self.engine.has_successors(job.task), true));
        pending == last.count() as u64
    }
}
