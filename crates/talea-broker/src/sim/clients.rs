//! Random clients, well-behaved and misbehaving, with random events.
//!
//! A run has two phases: with faults, then without. In the second phase, within a bounded number of
//! steps, every request must be answered and the ledger must agree with the kernel. After all
//! clients have left, every counter must be zero.

mod checks;
mod configs;
mod faults;
mod requests;

use super::MS;
use super::rng::Rng;
use super::simulation::{Faults, Simulation};
use crate::input::{LogEvent, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use talea_core::{Monotonic, Span};
use talea_proto::Owner;
use talea_proto::message::{DetachCause, SpecId, Token};

/// Maximum period of all tasks: how long the kernel's bandwidth accounting may lag behind after a
/// restart.
const MAX_PERIOD: Span = Span::from_ns(200 * MS);

/// A spec granted to a client.
#[derive(Clone, Copy, Debug)]
struct HeldSpec {
    session: SessionId,
    token: Token,
    owner: Owner,
}

/// Number of occurrences of each event of a run, by name; detects a simulation that no longer
/// exercises an event.
pub type EventCounts = BTreeMap<&'static str, u32>;

/// A simulated run.
pub struct Clients {
    /// Simulated environment.
    pub world: Simulation,
    /// Counted events.
    pub counts: EventCounts,
    held: BTreeMap<SpecId, HeldSpec>,
    seen: BTreeSet<SpecId>,
    /// Specs that a client has released or claimed: their state is unknown.
    disturbed: BTreeSet<SpecId>,
    /// Thread that was last changed from outside.
    restless: Option<u32>,
    trouble: bool,
    lenient_until: Monotonic,
    restore_faults: bool,
}

/// Runs a seed for `steps` steps.
///
/// # Panics
/// If a checker finds a violation; one line names the seed.
pub fn run_seed(seed: u64, steps: u32) -> EventCounts {
    struct Named(u64);
    impl Drop for Named {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!(
                    "reproduce with: TALEA_SEED={} cargo test -p talea-broker simulation",
                    self.0
                );
            }
        }
    }
    let named = Named(seed);
    let mut crowd = Clients::new(Rng::Seed(seed));
    for _ in 0..steps {
        crowd.step();
    }
    crowd.finish();
    drop(named);
    crowd.counts
}

/// Runs the decisions of a fuzzer's bytes.
///
/// # Panics
/// If a checker finds a violation.
pub fn run_ops(bytes: &[u8]) {
    let mut crowd = Clients::new(Rng::Bytes(bytes.to_vec(), 0));
    for _ in 0..2_000 {
        if crowd.world.rng.is_exhausted() {
            break;
        }
        crowd.step();
    }
    crowd.finish();
}

impl Clients {
    /// Creates a run.
    pub fn new(mut rng: Rng) -> Clients {
        let (setup, platform, pinned) = configs::config(&mut rng);
        let faults = Faults {
            apply: rng.pick(&[0, 0, 30, 300]),
            restore: rng.pick(&[0, 0, 0, 600]),
            no_answer: rng.pick(&[0, 20]),
            out_of_bounds: rng.pick(&[0, 200]),
            full_disk: 0,
            crashes: rng.pick(&[0, 20]),
        };
        // A full disk needs no choice of its own: the seeds of the other faults stay what they are.
        let faults = Faults { full_disk: faults.no_answer * 5, ..faults };
        let mut world = Simulation::new(setup, platform, pinned, rng);
        world.faults = faults;
        Clients {
            world,
            counts: EventCounts::new(),
            held: BTreeMap::new(),
            seen: BTreeSet::new(),
            disturbed: BTreeSet::new(),
            restless: None,
            trouble: true,
            lenient_until: Monotonic::ZERO,
            restore_faults: faults.restore > 0,
        }
    }

    /// Executes one random event.
    pub fn step(&mut self) {
        match self.world.rng.below(100) {
            0..5 => self.add_client(),
            5..48 => self.ask(),
            48..52 => self.disturb(),
            52..56 => self.pass_time(),
            56..62 => self.answer_plugins(),
            62..80 => {
                for _ in 0..self.world.rng.below(6) {
                    self.world.run_effect();
                    self.world.deliver_input();
                }
            }
            80..84 => {
                self.world.deliver_exit();
            }
            84..92 => {
                if let Some(session) = self.any_session() {
                    self.world.read_one(session);
                }
            }
            92..99 => {
                self.world.run_until_idle();
                self.check();
            }
            _ => self.upheaval(),
        }
        self.take_replies();
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Checks the invariants of an idle system.
    fn check(&mut self) {
        self.world.check_idle(self.restore_faults);
        if self.world.now >= self.lenient_until {
            let refused: Vec<_> = self
                .world
                .refused_by_kernel
                .iter()
                .filter(|(at, ..)| *at >= self.lenient_until)
                .collect();
            assert!(refused.is_empty(), "the kernel refuses what the ledger admits: {refused:?}");
        }
        self.world.refused_by_kernel.clear();
    }

    /// Ends the phase with faults; all requests must be answered, then everything must be released.
    pub fn finish(&mut self) {
        self.trouble = false;
        self.world.faults = Faults::default();
        let threads: Vec<u32> = self.world.kernel.threads.keys().copied().collect();
        for tid in threads {
            self.world.kernel.wake(tid);
        }
        for _ in 0..200 {
            self.world.run_until_idle();
            self.answer_plugins();
            self.take_replies();
            self.world.advance(Span::from_ns(500 * MS));
        }
        self.world.run_until_idle();
        self.check();
        for (session, connection) in &self.world.connections {
            assert!(
                connection.outstanding.is_empty(),
                "{session:?} was never answered: {:?}",
                connection.outstanding
            );
        }
        let sessions: Vec<SessionId> = self.world.connections.keys().copied().collect();
        for session in sessions {
            self.world.close_connection(session);
        }
        self.end_fault_phase();
        let pids: Vec<u32> = self.world.kernel.processes.keys().copied().collect();
        for pid in pids {
            self.world.kernel.end_process(pid, self.world.now);
        }
        self.end_fault_phase();
        assert_eq!(self.world.leftovers(), Vec::<String>::new(), "some objects are left");
        assert!(
            self.world.file.is_empty(),
            "the state file still holds {:?}",
            self.world.file.keys()
        );
        assert_eq!(self.world.kernel.open_handles(), 0, "handles leak");
        assert_eq!(self.world.broker.next_wakeup(), None, "an idle daemon does not wake up");
        self.count_log();
    }

    /// Counts the broker's log events.
    fn count_log(&mut self) {
        for event in std::mem::take(&mut self.world.log) {
            self.count(match event {
                LogEvent::Refused { .. } => "refusals logged",
                LogEvent::RestoreFailed { .. } => "restores failed",
                LogEvent::ApplyFailed { .. } => "applies failed",
                LogEvent::RestoredWithCaveat { .. } => "restored with a restriction",
                LogEvent::Detached { cause: DetachCause::Credentials, .. } => {
                    "detached for their credentials"
                }
                LogEvent::Detached { cause: DetachCause::Affinity, .. } => {
                    "detached for their CPUs"
                }
                LogEvent::Detached { cause: DetachCause::Policy, .. } => {
                    "detached for their policy"
                }
                LogEvent::Detached { cause: DetachCause::Offline, .. } => "detached off-line",
                LogEvent::Detached { cause: DetachCause::Starvation, .. } => {
                    "detached for starvation"
                }
                LogEvent::StarvedByOthers { .. } => "CPUs starved by others",
                LogEvent::ReturnedToCpus { .. } => "returned to their CPUs",
                LogEvent::Adopted { .. } => "adopted",
                LogEvent::Demoted { .. } => "demoted",
                LogEvent::Dropped { .. } => "dropped",
                LogEvent::PluginOutOfService { .. } => "plugins out of service",
                LogEvent::PluginInService { .. } => "plugins in service again",
                LogEvent::PluginOutOfBounds { .. } => "plugins outside their bounds",
                LogEvent::ReloadRefused { .. } => "reloads refused",
                LogEvent::RateLimited { .. } => "rate limited",
                LogEvent::Suppressed { .. } => "suppressed",
            });
        }
    }

    fn end_fault_phase(&mut self) {
        for _ in 0..20 {
            self.world.run_until_idle();
            self.answer_plugins();
            self.world.advance(Span::from_ns(500 * MS));
        }
        self.world.run_until_idle();
        self.check();
    }
}
