//! A crowd of clients, honest and otherwise, and everything that can happen to them.
//!
//! A run has two phases: trouble, then calm. In the calm no fault happens any more, and within a
//! bounded number of steps every request must be answered, books and kernel must agree, and when
//! everybody has left every counter must be back to zero.

mod answers;
mod asks;
mod scene;
mod trouble;

use super::dice::Dice;
use super::world::{Faults, World};
use crate::input::{LogEvent, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use talea_core::{Span, Time};
use talea_proto::Owner;
use talea_proto::message::{SpecId, Token};

const MS: u64 = 1_000_000;
/// No period in a crowd is longer: how long the kernel's books may lag behind after a restart.
const LONGEST_PERIOD: Span = Span::from_ns(200 * MS);

/// A spec that a client was told it has.
#[derive(Clone, Copy, Debug)]
struct Held {
    session: SessionId,
    token: Token,
    owner: Owner,
}

/// How often what has happened in a run, by name: so that a simulation that no longer does anything
/// is noticed.
pub type Tally = BTreeMap<&'static str, u32>;

/// A run.
pub struct Crowd {
    /// What it runs in.
    pub world: World,
    /// What has happened.
    pub tally: Tally,
    held: BTreeMap<SpecId, Held>,
    seen: BTreeSet<SpecId>,
    /// Somebody has asked for the end of these or has taken them over: what is true of them is
    /// unknown.
    meddled: BTreeSet<SpecId>,
    trouble: bool,
    lenient_until: Time,
    restore_faults: bool,
}

/// Runs a seed for so many steps.
///
/// # Panics
/// When a checker finds something; one line names the seed.
pub fn run_seed(seed: u64, steps: u32) -> Tally {
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
    let mut crowd = Crowd::new(Dice::Seed(seed));
    for _ in 0..steps {
        crowd.step();
    }
    crowd.finish();
    drop(named);
    crowd.tally
}

/// Runs what a fuzzer's bytes say.
///
/// # Panics
/// When a checker finds something.
pub fn run_ops(bytes: &[u8]) {
    let mut crowd = Crowd::new(Dice::Bytes(bytes.to_vec(), 0));
    for _ in 0..2_000 {
        if crowd.world.dice.is_used_up() {
            break;
        }
        crowd.step();
    }
    crowd.finish();
}

impl Crowd {
    /// A world with its dice.
    pub fn new(mut dice: Dice) -> Crowd {
        let (setup, machine, pinned) = scene::scene(&mut dice);
        let faults = Faults {
            apply: dice.pick(&[0, 0, 30, 300]),
            restore: dice.pick(&[0, 0, 0, 600]),
            silence: dice.pick(&[0, 20]),
            lies: dice.pick(&[0, 200]),
            crashes: dice.pick(&[0, 20]),
        };
        let mut world = World::new(setup, machine, pinned, dice);
        world.faults = faults;
        Crowd {
            world,
            tally: Tally::new(),
            held: BTreeMap::new(),
            seen: BTreeSet::new(),
            meddled: BTreeSet::new(),
            trouble: true,
            lenient_until: Time::ZERO,
            restore_faults: faults.restore > 0,
        }
    }

    /// Something happens.
    pub fn step(&mut self) {
        match self.world.dice.below(100) {
            0..5 => self.newcomer(),
            5..48 => self.ask(),
            48..52 => self.disturb(),
            52..56 => self.pass_time(),
            56..62 => self.answer_plugins(),
            62..80 => {
                for _ in 0..self.world.dice.below(6) {
                    self.world.obey_one();
                    self.world.hear_one();
                }
            }
            80..84 => {
                self.world.notice_one();
            }
            84..92 => {
                if let Some(session) = self.any_session() {
                    self.world.read_one(session);
                }
            }
            92..99 => {
                self.world.settle();
                self.check();
            }
            _ => self.upheaval(),
        }
        self.take_replies();
    }

    fn count(&mut self, what: &'static str) {
        *self.tally.entry(what).or_default() += 1;
    }

    /// What must hold when nothing is under way.
    fn check(&mut self) {
        self.world.check_quiet(self.restore_faults);
        if self.world.now >= self.lenient_until {
            let refused: Vec<_> = self
                .world
                .refused_by_kernel
                .iter()
                .filter(|(at, ..)| *at >= self.lenient_until)
                .collect();
            assert!(refused.is_empty(), "the kernel refuses what the books admit: {refused:?}");
        }
        self.world.refused_by_kernel.clear();
    }

    /// Trouble ends; everything must come right, then to nothing.
    pub fn finish(&mut self) {
        self.trouble = false;
        self.world.faults = Faults::default();
        let threads: Vec<u32> = self.world.kernel.threads.keys().copied().collect();
        for tid in threads {
            self.world.kernel.wakes(tid);
        }
        for _ in 0..200 {
            self.world.settle();
            self.answer_plugins();
            self.take_replies();
            self.world.advance(Span::from_ns(500 * MS));
        }
        self.world.settle();
        self.check();
        for (session, line) in &self.world.lines {
            assert!(
                line.outstanding.is_empty(),
                "{session:?} was never answered: {:?}",
                line.outstanding
            );
        }
        let sessions: Vec<SessionId> = self.world.lines.keys().copied().collect();
        for session in sessions {
            self.world.hang_up(session);
        }
        self.quiet_down();
        let pids: Vec<u32> = self.world.kernel.processes.keys().copied().collect();
        for pid in pids {
            self.world.kernel.end_process(pid, self.world.now);
        }
        self.quiet_down();
        assert_eq!(self.world.leftovers(), Vec::<String>::new(), "not everything came back");
        assert!(
            self.world.file.is_empty(),
            "the state file still holds {:?}",
            self.world.file.keys()
        );
        assert_eq!(self.world.kernel.open_handles(), 0, "handles leak");
        assert_eq!(self.world.broker.next_wakeup(), None, "an idle daemon does not wake up");
        self.count_log();
    }

    /// What the broker wrote into its log.
    fn count_log(&mut self) {
        for event in std::mem::take(&mut self.world.log) {
            self.count(match event {
                LogEvent::Refused { .. } => "refusals logged",
                LogEvent::RestoreFailed { .. } => "restores failed",
                LogEvent::ApplyFailed { .. } => "moves failed",
                LogEvent::NotAsBefore { .. } => "not as before",
                LogEvent::Adopted { .. } => "adopted",
                LogEvent::Dropped { .. } => "dropped",
                LogEvent::PluginOut { .. } => "plugins out",
                LogEvent::PluginLied { .. } => "plugins lied",
                LogEvent::ReloadRefused { .. } => "reloads refused",
                LogEvent::RateLimited { .. } => "rate limited",
            });
        }
    }

    fn quiet_down(&mut self) {
        for _ in 0..20 {
            self.world.settle();
            self.answer_plugins();
            self.world.advance(Span::from_ns(500 * MS));
        }
        self.world.settle();
        self.check();
    }
}
