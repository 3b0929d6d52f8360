//! The plugins against reference models, through the interface of the plugin set.

mod between;
mod cpus;
mod edf;
mod exact;
mod fp;
mod life;
mod plain;
mod rm;
mod sets;
mod setup;
mod table_6;

use super::*;
use talea_core::Params;
use talea_core::rng::Rng;
use talea_core::setup::{
    Confine, EdfOptions, ForeignClass, ForeignOptions, FpLevels, FpOptions, OnOverrun, PluginKind,
    PluginSetup, RmOptions, RmTest,
};
use talea_proto::Rejection;

/// Nanoseconds per millisecond.
const MS: u64 = 1_000_000;

fn cpus(list: &str) -> CpuSet {
    CpuSet::parse(list).unwrap()
}

fn band(low: u8, high: u8) -> Band {
    Band { low: Priority(low), high: Priority(high) }
}

fn plugin(name: &str, list: &str, band: impl Into<Option<Band>>, kind: PluginKind) -> PluginSetup {
    PluginSetup {
        name: name.to_owned(),
        cpus: cpus(list),
        band: band.into(),
        kind,
        on_overrun: OnOverrun::Throttle,
    }
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
        confine: Confine::default(),
    };
    plugin(name, list, band(low, high), PluginKind::Foreign(options))
}

fn setup(plugins: Vec<PluginSetup>) -> Setup {
    Setup { plugins, ..Setup::default() }
}

/// Returns a platform of `count` CPUs with confinement for the deadline class.
fn pinnable(count: u32) -> Platform {
    Platform { partitionable: CpuSet::first(count), ..Platform::declared(count) }
}

/// Returns a period and a runtime, in nanoseconds.
fn periodic(period: u64, runtime: u64) -> Params {
    let (period, runtime) = (Some(Span::from_ns(period)), Some(Work::from_ns(runtime)));
    Params { period, runtime, ..Params::default() }
}

fn at_priority(priority: u8) -> Params {
    Params { priority: Some(Priority(priority)), ..Params::default() }
}

fn ask(params: &Params) -> PluginRequest<'_> {
    PluginRequest {
        params,
        allowed: CpuSet::EMPTY,
        preferred: CpuSet::EMPTY,
        ignore_admission: false,
        cap: RuntimeCap::default(),
        exact_tests: None,
        thread: ThreadScope::default(),
    }
}

fn offered(verdict: &Verdict) -> Option<Offer> {
    match verdict {
        Verdict::Ok(offer) | Verdict::Partial(offer) => Some(*offer),
        Verdict::No(_) => None,
    }
}

fn refused(verdict: Verdict) -> Rejection {
    match verdict {
        Verdict::No(no) => no,
        other => panic!("{other:?}"),
    }
}

/// Plugin set with a slot counter, audited after each change.
#[derive(Clone)]
struct Rig {
    setup: Setup,
    platform: Platform,
    plugin_set: PluginSet,
    next: u32,
}

impl Rig {
    fn new(platform: Platform, plugins: Vec<PluginSetup>) -> Rig {
        let setup = setup(plugins);
        let plugin_set = PluginSet::new(&setup, &platform).unwrap();
        Rig { setup, platform, plugin_set, next: 0 }
    }

    /// Reserves the task in `plugin`, or returns the rejection.
    fn create(&mut self, plugin: u32, ask: &PluginRequest<'_>) -> Result<SpecSlot, Rejection> {
        let verdict = self.plugin_set.ask(plugin, ask, None);
        let Some(offer) = offered(&verdict) else { return Err(refused(verdict)) };
        Ok(self.admit(plugin, ask, &offer))
    }

    fn admit(&mut self, plugin: u32, ask: &PluginRequest<'_>, offer: &Offer) -> SpecSlot {
        let slot = SpecSlot(self.next);
        self.next += 1;
        self.plugin_set.admit(plugin, slot, ask, offer);
        let (placed, promised) = (
            self.plugin_set.placement(slot),
            (offer.cpu, offer.runtime, offer.charge, offer.notes),
        );
        assert_eq!(
            (placed.cpu, placed.runtime, placed.charge, placed.notes),
            promised,
            "the placement differs from the offer"
        );
        slot
    }

    fn change(
        &mut self,
        slot: SpecSlot,
        plugin: u32,
        ask: &PluginRequest<'_>,
        free_at: Option<Monotonic>,
    ) -> Result<(), Rejection> {
        let verdict = self.plugin_set.ask(plugin, ask, Some(slot));
        let Some(offer) = offered(&verdict) else { return Err(refused(verdict)) };
        let is_unproved = free_at.is_some() && self.plugin_set.at(slot).claim.unproved;
        self.plugin_set.replace(slot, plugin, ask, &offer, free_at);
        let (placed, promised) = (
            self.plugin_set.placement(slot),
            (offer.cpu, offer.runtime, offer.charge, offer.notes),
        );
        // The zero-lag hold of a task with an ignored test makes guarantees unprovable while it
        // exists.
        let zero_lag_holds = if is_unproved { Notes::NOT_PROVED.0 & !offer.notes.0 } else { 0 };
        assert_eq!(
            (placed.cpu, placed.runtime, placed.charge, Notes(placed.notes.0 & !zero_lag_holds)),
            promised,
            "the placement differs from the offer"
        );
        Ok(())
    }

    fn attach(&mut self, slot: SpecSlot) -> u8 {
        self.plugin_set.set_attached(slot, true);
        self.plugin_set.placement(slot).priority
    }

    fn moved(&mut self) -> Vec<SpecSlot> {
        let mut moved = vec![];
        self.plugin_set.drain_moved(&mut moved);
        moved
    }

    fn slots(&self) -> Vec<SpecSlot> {
        let specs = self.plugin_set.specs.iter().enumerate();
        specs.filter(|(_, spec)| spec.is_some()).map(|(i, _)| SpecSlot(i as u32)).collect()
    }

    /// Compares the ledger with that of a new plugin set with the same specs, added one by one.
    fn audit(&self) {
        let mut fresh = PluginSet::new(&self.setup, &self.platform).unwrap();
        for slot in self.slots() {
            fresh.add_spec(slot, PlacedSpec { attached: false, ..*self.plugin_set.at(slot) });
        }
        for (at, claim) in self.plugin_set.ledger.all_zero_lag_holds() {
            fresh.ledger.reserve(&claim);
            fresh.ledger.hold_until(&claim, &claim, at);
            fresh.update_interference(&claim, true);
        }
        for plugin in 0..self.plugin_set.len() as u32 {
            fresh.summaries[plugin as usize].out_of_service =
                self.plugin_set.info(plugin).out_of_service;
            assert_eq!(self.plugin_set.info(plugin), fresh.info(plugin));
            for index in 0..self.platform.cpus.len() {
                let (here, there) =
                    (self.plugin_set.cpu_info(plugin, index), fresh.cpu_info(plugin, index));
                let accounts =
                    |info: Option<CpuInfo>| info.map(|info| (info.cpu, info.used, info.specs));
                assert_eq!(accounts(here), accounts(there), "plugin {plugin}, CPU index {index}");
            }
            for (one, other) in self.plugin_set.plugins.iter().zip(&fresh.plugins) {
                if let (Some(one), Some(other)) = (one.as_rm(), other.as_rm()) {
                    one.audit(other);
                }
            }
        }
    }

    /// Removes all specs and checks that the ledger is empty.
    fn clear(mut self) {
        for slot in self.slots() {
            self.plugin_set.release(slot, None);
        }
        self.plugin_set.release_expired(Monotonic::NEVER);
        assert!(self.plugin_set.ledger.is_empty(), "{:?}", self.plugin_set.ledger);
        self.audit();
    }
}
