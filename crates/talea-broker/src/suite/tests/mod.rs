//! The plugins against plain twins, through the suite's front door.

mod between;
mod cpus;
mod edf;
mod exact;
mod fp;
mod life;
mod plain;
mod rm;
mod setup;
mod table_6;

use super::*;
use crate::dice::Dice;
use talea_core::Params;
use talea_core::setup::{
    Confine, EdfOptions, ForeignClass, ForeignOptions, FpLevels, FpOptions, PluginKind,
    PluginSetup, RmOptions, RmTest,
};
use talea_proto::No;

/// A millisecond.
const MS: u64 = 1_000_000;

fn cpus(list: &str) -> CpuSet {
    CpuSet::parse(list).unwrap()
}

fn band(low: u8, high: u8) -> Band {
    Band { low: Priority(low), high: Priority(high) }
}

fn plugin(name: &str, list: &str, band: impl Into<Option<Band>>, kind: PluginKind) -> PluginSetup {
    PluginSetup { name: name.to_owned(), cpus: cpus(list), band: band.into(), kind }
}

fn edf(name: &str, list: &str, confine: Confine, threshold: Option<Charge>) -> PluginSetup {
    plugin(name, list, None, PluginKind::Edf(EdfOptions { threshold, confine }))
}

fn rm(name: &str, list: &str, low: u8, high: u8, test: RmTest) -> PluginSetup {
    plugin(name, list, band(low, high), PluginKind::Rm(RmOptions { test, refuse_sharing: false }))
}

fn fp(name: &str, list: &str, low: u8, high: u8) -> PluginSetup {
    plugin(name, list, band(low, high), PluginKind::Fp(FpOptions::default()))
}

fn rr(name: &str, list: &str, low: u8, high: u8) -> PluginSetup {
    plugin(name, list, band(low, high), PluginKind::Rr(FpOptions::default()))
}

fn foreign(name: &str, list: &str, low: u8, high: u8) -> PluginSetup {
    let options = ForeignOptions {
        module: "/lib/example.so".to_owned(),
        argument: String::new(),
        timeout: Span::from_ns(50 * MS),
        class: ForeignClass::Fifo,
    };
    plugin(name, list, band(low, high), PluginKind::Foreign(options))
}

fn setup(plugins: Vec<PluginSetup>) -> Setup {
    Setup { plugins, ..Setup::default() }
}

/// `count` CPUs on which the deadline class can be pinned.
fn pinnable(count: u32) -> Machine {
    Machine { partitionable: CpuSet::first(count), ..Machine::declared(count) }
}

/// Period and runtime, in nanoseconds.
fn periodic(period: u64, runtime: u64) -> Params {
    let (period, runtime) = (Some(Span::from_ns(period)), Some(Work::from_ns(runtime)));
    Params { period, runtime, ..Params::default() }
}

fn at_priority(priority: u8) -> Params {
    Params { priority: Some(Priority(priority)), ..Params::default() }
}

fn ask(params: &Params) -> Ask<'_> {
    Ask {
        params,
        allowed: CpuSet::EMPTY,
        wished: CpuSet::EMPTY,
        ignore_admission: false,
        clip: Clip::default(),
        tries: None,
    }
}

fn offered(verdict: &Verdict) -> Option<Offer> {
    match verdict {
        Verdict::Ok(offer) | Verdict::Partial(offer) => Some(*offer),
        Verdict::No(_) => None,
    }
}

fn refused(verdict: Verdict) -> No {
    match verdict {
        Verdict::No(no) => no,
        other => panic!("{other:?}"),
    }
}

/// A suite with a slot counter, audited after each change.
#[derive(Clone)]
struct Rig {
    setup: Setup,
    machine: Machine,
    suite: Suite,
    next: u32,
}

impl Rig {
    fn new(machine: Machine, plugins: Vec<PluginSetup>) -> Rig {
        let setup = setup(plugins);
        let suite = Suite::new(&setup, &machine).unwrap();
        Rig { setup, machine, suite, next: 0 }
    }

    /// Takes the task on in `plugin`, or says why not.
    fn create(&mut self, plugin: u32, ask: &Ask<'_>) -> Result<Slot, No> {
        let verdict = self.suite.ask(plugin, ask, None);
        let Some(offer) = offered(&verdict) else { return Err(refused(verdict)) };
        Ok(self.admit(plugin, ask, &offer))
    }

    fn admit(&mut self, plugin: u32, ask: &Ask<'_>, offer: &Offer) -> Slot {
        let slot = Slot(self.next);
        self.next += 1;
        self.suite.admit(plugin, slot, ask, offer);
        let (placed, promised) =
            (self.suite.placed(slot), (offer.cpu, offer.runtime, offer.charge, offer.notes));
        assert_eq!(
            (placed.cpu, placed.runtime, placed.charge, placed.notes),
            promised,
            "not what was offered"
        );
        slot
    }

    fn change(
        &mut self,
        slot: Slot,
        plugin: u32,
        ask: &Ask<'_>,
        free_at: Option<Time>,
    ) -> Result<(), No> {
        let verdict = self.suite.ask(plugin, ask, Some(slot));
        let Some(offer) = offered(&verdict) else { return Err(refused(verdict)) };
        let spoils = free_at.is_some() && self.suite.at(slot).claim.voids;
        self.suite.replace(slot, plugin, ask, &offer, free_at);
        let (placed, promised) =
            (self.suite.placed(slot), (offer.cpu, offer.runtime, offer.charge, offer.notes));
        // What lingers of a task that ignored its test proves nothing as long as it is there.
        let lingering = if spoils { Notes::NOT_PROVED.0 & !offer.notes.0 } else { 0 };
        assert_eq!(
            (placed.cpu, placed.runtime, placed.charge, Notes(placed.notes.0 & !lingering)),
            promised,
            "not what was offered"
        );
        Ok(())
    }

    fn attach(&mut self, slot: Slot) -> u8 {
        self.suite.attached(slot, true);
        self.suite.placed(slot).priority
    }

    fn moved(&mut self) -> Vec<Slot> {
        let mut moved = vec![];
        self.suite.drain_moved(&mut moved);
        moved
    }

    fn slots(&self) -> Vec<Slot> {
        let entries = self.suite.entries.iter().enumerate();
        entries.filter(|(_, entry)| entry.is_some()).map(|(i, _)| Slot(i as u32)).collect()
    }

    /// The books are what a fresh suite's would be that had taken on the same specs, one by one.
    fn audit(&self) {
        let mut fresh = Suite::new(&self.setup, &self.machine).unwrap();
        for slot in self.slots() {
            fresh.enter(slot, Entry { attached: false, ..*self.suite.at(slot) });
        }
        for (at, claim) in self.suite.ledger.lingerers() {
            fresh.ledger.take(&claim);
            fresh.ledger.linger(&claim, &claim, at);
            fresh.overshadow(&claim, true);
        }
        for plugin in 0..self.suite.len() as u32 {
            fresh.faces[plugin as usize].out_of_service = self.suite.info(plugin).out_of_service;
            assert_eq!(self.suite.info(plugin), fresh.info(plugin));
            for index in 0..self.machine.cpus.len() {
                let (here, there) = (self.suite.cpu(plugin, index), fresh.cpu(plugin, index));
                let books =
                    |info: Option<CpuInfo>| info.map(|info| (info.cpu, info.used, info.specs));
                assert_eq!(books(here), books(there), "plugin {plugin}, CPU index {index}");
            }
            for (one, other) in self.suite.plugins.iter().zip(&fresh.plugins) {
                if let (Some(one), Some(other)) = (one.as_rm(), other.as_rm()) {
                    one.audit(other);
                }
            }
        }
    }

    /// Everything goes; nothing is left.
    fn clear(mut self) {
        for slot in self.slots() {
            self.suite.release(slot, None);
        }
        self.suite.expire(Time::NEVER);
        assert!(self.suite.ledger.is_empty(), "{:?}", self.suite.ledger);
        self.audit();
    }
}
