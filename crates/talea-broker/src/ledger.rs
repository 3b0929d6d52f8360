//! Ledger of all reservations: per CPU, per root domain, and per plugin at each of these places.
//!
//! Model: every accepted spec has one [`Claim`], on one CPU, on a whole root domain (`edf` without
//! pinning) or on all CPUs of a foreign plugin. The last one charges each of these CPUs in full, as
//! if the task never left it: pessimistic, and right wherever the task runs. The ledger releases a
//! claim with exactly the numbers that it reserved. So an empty ledger sums to exactly zero. A sum
//! below zero is a bug, on which the ledger panics. If a claim is released before its zero-lag time
//! (R36), the ledger holds the part of the charge that no successor takes over. A zero-lag hold is
//! not counted as a spec.
//!
//! Charges are rounded up. If a sum exceeds a limit by no more than the possible rounding, [`View`]
//! decides with exact fractions. So ten tasks of 10 % fill a CPU.
//!
//! Absent on purpose: the usage of each subject of an access rule. It belongs to the access policy
//! in [`crate::rules`].

mod view;

use talea_core::mutate;
pub(crate) use view::View;

use crate::exact_test::MAX_TASKS;
use crate::span_tree::SpanTree;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use talea_analysis::{Demand, Sporadic};
use talea_core::{Charge, CpuSet, Monotonic, Span, Work};

/// Place of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// One CPU.
    Cpu(u32),
    /// A root domain: an index into the ledger's list.
    Domain(u32),
    /// All CPUs of the plugin of this index, each of which is charged in full.
    Set(u32),
}

impl Place {
    /// Returns the CPU; `None` for several CPUs.
    pub(crate) fn cpu(self) -> Option<u32> {
        match self {
            Place::Cpu(cpu) => Some(cpu),
            Place::Domain(_) | Place::Set(_) => None,
        }
    }
}

/// Ledger entry: the reservation of one spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    /// Index of the plugin.
    pub(crate) plugin: u32,
    /// Place of the reservation.
    pub(crate) place: Place,
    /// Charge: Q^a / min(T, D).
    pub(crate) charge: Charge,
    /// Q^a in nanoseconds; 0 if unknown.
    pub(crate) work_ns: u64,
    /// min(T, D) in nanoseconds; 1 if unknown.
    pub(crate) span_ns: u64,
    /// T in nanoseconds, or min(T, D) without a period; 1 if unknown.
    pub(crate) period_ns: u64,
    /// Q^a / T; zero if unknown.
    pub(crate) rate: Charge,
    /// Whether the spec is in the kernel's deadline class.
    pub(crate) deadline: bool,
    /// Whether no guarantee is provable for tasks of the same or a lower priority, because the
    /// runtime is unknown or a failed test was ignored.
    pub(crate) unproved: bool,
}

impl Claim {
    /// Returns the bandwidth in the kernel's accounting: Q^a / T in the deadline class, zero in the
    /// others.
    pub(crate) fn bandwidth(&self) -> Charge {
        if self.deadline { self.rate } else { Charge::ZERO }
    }

    /// Returns the claim as a sporadic task with the deadline min(T, D).
    pub(crate) fn sporadic(&self) -> Sporadic {
        let (period, span) = (Span::from_ns(self.period_ns), Span::from_ns(self.span_ns));
        Sporadic::new(Work::from_ns(self.work_ns), period, span)
    }

    /// Returns the claim as a demand for the analysis.
    pub(crate) fn demand(&self) -> Demand {
        Demand { work: self.work_ns.into(), within: Span::from_ns(self.span_ns) }
    }
}

/// Account of one CPU.
#[derive(Clone, Debug, Default)]
struct CpuAccount {
    /// Sum of the charges on this CPU alone, or on a set that contains it.
    total: Charge,
    /// Number of these charges.
    charges: u32,
    /// Number of these specs, without zero-lag holds.
    specs: u32,
    /// Σ Q/T of all these charges.
    rate: Charge,
    /// Bandwidth in the kernel's accounting of this CPU.
    bandwidth: Charge,
    /// Number of unproved deadline-class claims.
    unproved: u32,
    /// Root domain for global claims on this CPU.
    domain: Option<u32>,
}

/// Account of one root domain with global claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainAccount {
    /// CPUs of the domain.
    pub(crate) cpus: CpuSet,
    /// Number of these CPUs.
    pub(crate) count: u32,
    /// Sum of the charges on the domain as a whole.
    pub(crate) total: Charge,
    charges: u32,
    specs: u32,
    bandwidth: Charge,
    unproved: u32,
    /// Sum and number of the charges on single CPUs of the domain.
    pinned: Charge,
    pinned_charges: u32,
    densities: BTreeMap<Charge, u32>,
    /// Whether the domain's claims interfere with an `rm` plugin on one of its CPUs.
    interferes: bool,
    /// Work of the domain's claims on any of its CPUs: each with twice its work (argument 4 in
    /// `talea_analysis::rm`). Empty if there is no such interference.
    pub(crate) classes: SpanTree,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    charge: Charge,
    specs: u32,
}

/// Accounts of all CPUs and root domains, the usage of each plugin, and the zero-lag holds.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    cpus: Vec<CpuAccount>,
    domains: Vec<DomainAccount>,
    /// `sets[plugin]`: CPUs of [`Place::Set`]; empty if the plugin may not name a set.
    sets: Vec<CpuSet>,
    plugins: usize,
    /// `usage[place * plugins + plugin]`: usage of one plugin at one place.
    usage: Vec<Usage>,
    zero_lag_holds: BinaryHeap<Reverse<(Monotonic, Claim)>>,
}

impl Ledger {
    /// Creates an empty ledger for `plugins` plugins on CPUs below `cpus`, with these domains for
    /// global claims; `rm` are the CPUs on which such claims interfere with `rm` plugins.
    pub(crate) fn new(plugins: usize, cpus: u32, domains: &[CpuSet], rm: &CpuSet) -> Ledger {
        let mut accounts = vec![CpuAccount::default(); cpus as usize];
        for (i, domain) in domains.iter().enumerate() {
            for cpu in domain {
                accounts[cpu as usize].domain = Some(i as u32);
            }
        }
        let domain = |cpus: &CpuSet| DomainAccount {
            cpus: *cpus,
            count: cpus.len(),
            interferes: !cpus.intersection(rm).is_empty(),
            ..DomainAccount::default()
        };
        Ledger {
            usage: vec![Usage::default(); (accounts.len() + domains.len()) * plugins],
            cpus: accounts,
            domains: domains.iter().map(domain).collect(),
            sets: vec![CpuSet::EMPTY; plugins],
            plugins,
            zero_lag_holds: BinaryHeap::new(),
        }
    }

    /// Lets the plugin name all of `cpus` as a place.
    pub(crate) fn allow_set(&mut self, plugin: u32, cpus: &CpuSet) {
        self.sets[plugin as usize] = *cpus;
    }

    /// Returns the CPUs that the plugin may name as a set; empty if it may not name one.
    pub(crate) fn set(&self, plugin: u32) -> &CpuSet {
        &self.sets[plugin as usize]
    }

    /// Returns the CPUs of a place.
    pub(crate) fn cpus_of(&self, place: Place) -> CpuSet {
        match place {
            Place::Cpu(cpu) => CpuSet::single(cpu),
            Place::Domain(domain) => self.domain(domain).cpus,
            Place::Set(plugin) => *self.set(plugin),
        }
    }

    /// Whether a claim at `place` counts in the account of `account`.
    fn counts(&self, place: Place, account: Place) -> bool {
        match (place, account) {
            (Place::Set(plugin), Place::Cpu(cpu)) => {
                mutate!("ledger-set-counts", self.set(plugin).contains(cpu), false)
            }
            _ => place == account,
        }
    }

    /// Returns how many accounts of single CPUs in the domain count a claim at `place`.
    fn pinned_times(&self, place: Place, domain: u32) -> u32 {
        match place {
            Place::Domain(_) => 0,
            _ => self.cpus_of(place).intersection(&self.domain(domain).cpus).len(),
        }
    }

    /// Returns the domain of this index.
    pub(crate) fn domain(&self, index: u32) -> &DomainAccount {
        &self.domains[index as usize]
    }

    /// Returns the classes of the claims on the whole root domain of `cpu`.
    pub(crate) fn domain_classes(&self, cpu: u32) -> &SpanTree {
        static NONE: SpanTree = SpanTree::new();
        self.domain_of(cpu).map_or(&NONE, |domain| &self.domain(domain).classes)
    }

    /// Returns the index of the domain whose global claims may run on `cpu`, if there is one.
    pub(crate) fn domain_of(&self, cpu: u32) -> Option<u32> {
        self.cpus[cpu as usize].domain
    }

    /// Returns the index of the domain with exactly these CPUs, if there is one.
    pub(crate) fn find_domain(&self, cpus: &CpuSet) -> Option<u32> {
        self.domains.iter().position(|domain| domain.cpus == *cpus).map(|index| index as u32)
    }

    fn usage_index(&self, place: Place, plugin: u32) -> usize {
        let place = match place {
            Place::Cpu(cpu) => cpu as usize,
            Place::Domain(domain) => self.cpus.len() + domain as usize,
            Place::Set(_) => unreachable!("a set is charged to its CPUs"),
        };
        place * self.plugins + plugin as usize
    }

    /// Adds `claim` and its spec to the accounts.
    pub(crate) fn reserve(&mut self, claim: &Claim) {
        self.count_spec(claim, 1);
        self.add_charge(claim);
    }

    /// Removes `claim` and its spec from the accounts.
    pub(crate) fn release(&mut self, claim: &Claim) {
        self.count_spec(claim, -1);
        self.subtract_charge(claim);
    }

    /// Releases `claim`, but holds the part `rest` until the time `until`.
    pub(crate) fn hold_until(&mut self, claim: &Claim, rest: &Claim, until: Monotonic) {
        self.release(claim);
        if mutate!("ledger-zero-lag", false, true) {
            return;
        }
        self.hold(rest, until);
    }

    /// Releases and returns one zero-lag hold that ends at `now` or before; `None` if there is
    /// none.
    pub(crate) fn release_expired(&mut self, now: Monotonic) -> Option<Claim> {
        self.pop_expired(now).map(|(_, claim)| claim)
    }

    /// Variant of [`Ledger::release_expired`] that also returns the end of the hold.
    pub(crate) fn pop_expired(&mut self, now: Monotonic) -> Option<(Monotonic, Claim)> {
        self.next_expiry().filter(|&at| at <= now)?;
        let Reverse((at, claim)) = self.zero_lag_holds.pop()?;
        self.subtract_charge(&claim);
        Some((at, claim))
    }

    /// Returns the end of the zero-lag hold that ends first, if there is one.
    pub(crate) fn next_expiry(&self) -> Option<Monotonic> {
        self.zero_lag_holds.peek().map(|Reverse((at, _))| *at).filter(|&at| at < Monotonic::NEVER)
    }

    /// Charges `claim` until `until`, without a spec: a zero-lag hold, or for
    /// [`Monotonic::NEVER`] a deadline thread without a grant.
    pub(crate) fn hold(&mut self, claim: &Claim, until: Monotonic) {
        self.add_charge(claim);
        self.zero_lag_holds.push(Reverse((until, *claim)));
    }

    /// Returns the claims of the deadline threads without a grant, in order.
    pub(crate) fn ungranted(&self) -> Vec<Claim> {
        let endless = self.zero_lag_holds.iter().filter(|Reverse((at, _))| *at == Monotonic::NEVER);
        let mut claims: Vec<Claim> = endless.map(|Reverse((_, claim))| *claim).collect();
        claims.sort_unstable();
        claims
    }

    /// Removes the claims of the deadline threads without a grant, and returns them.
    pub(crate) fn remove_ungranted(&mut self) -> Vec<Claim> {
        let claims = self.ungranted();
        self.zero_lag_holds.retain(|Reverse((at, _))| *at < Monotonic::NEVER);
        for claim in &claims {
            self.subtract_charge(claim);
        }
        claims
    }

    /// Returns the CPUs of `cpus` as places of claims: whole domains as far as possible.
    pub(crate) fn places_of(&self, cpus: &CpuSet) -> Vec<Place> {
        let (mut rest, mut places) = (*cpus, Vec::new());
        for (index, domain) in self.domains.iter().enumerate() {
            if !domain.cpus.is_empty() && domain.cpus.is_subset(&rest) {
                rest = rest.difference(&domain.cpus);
                places.push(Place::Domain(index as u32));
            }
        }
        places.extend(rest.iter().filter(|&cpu| cpu < self.cpus.len() as u32).map(Place::Cpu));
        places
    }

    /// Returns the zero-lag holds at `place`; `None` if there are too many in total to search.
    pub(crate) fn zero_lag_holds_at(&self, place: Place) -> Option<impl Iterator<Item = &Claim>> {
        let all = self.zero_lag_holds.iter().map(|Reverse((_, claim))| claim);
        (self.zero_lag_holds.len() <= MAX_TASKS)
            .then(|| all.filter(move |claim| claim.place == place))
    }

    fn count_spec(&mut self, claim: &Claim, by: i32) {
        if let Place::Set(_) = claim.place {
            return self.on_each_cpu(claim, |ledger, claim| ledger.count_spec(claim, by));
        }
        let usage = self.usage_index(claim.place, claim.plugin);
        let specs = match claim.place {
            Place::Cpu(cpu) => &mut self.cpus[cpu as usize].specs,
            Place::Domain(domain) => &mut self.domains[domain as usize].specs,
            Place::Set(_) => unreachable!("a set is charged to its CPUs"),
        };
        for count in [specs, &mut self.usage[usage].specs] {
            *count = count.checked_add_signed(by).expect("a released spec was not reserved");
        }
    }

    /// Applies a change to each CPU of the set of `claim`, as if the claim were on that CPU alone.
    fn on_each_cpu(&mut self, claim: &Claim, change: impl Fn(&mut Ledger, &Claim)) {
        let cpus = self.cpus_of(claim.place);
        let charged = mutate!("ledger-set-charge", cpus, CpuSet::EMPTY);
        for cpu in &charged {
            change(self, &Claim { place: Place::Cpu(cpu), ..*claim });
        }
    }

    fn add_charge(&mut self, claim: &Claim) {
        if let Place::Set(_) = claim.place {
            return self.on_each_cpu(claim, Ledger::add_charge);
        }
        let usage = self.usage_index(claim.place, claim.plugin);
        let add = |sum: &mut Charge, charge| *sum = sum.saturating_add(charge);
        add(&mut self.usage[usage].charge, claim.charge);
        match claim.place {
            Place::Cpu(cpu) => {
                let account = &mut self.cpus[cpu as usize];
                add(&mut account.total, claim.charge);
                add(&mut account.rate, claim.rate);
                add(&mut account.bandwidth, claim.bandwidth());
                account.charges += 1;
                account.unproved += u32::from(claim.unproved && claim.deadline);
                if let Some(domain) = account.domain {
                    let domain = &mut self.domains[domain as usize];
                    add(&mut domain.pinned, claim.charge);
                    domain.pinned_charges += 1;
                }
            }
            Place::Domain(domain) => {
                let account = &mut self.domains[domain as usize];
                add(&mut account.total, claim.charge);
                add(&mut account.bandwidth, claim.bandwidth());
                account.charges += 1;
                account.unproved += u32::from(claim.unproved);
                *account.densities.entry(claim.charge).or_default() += 1;
                if account.interferes {
                    account.classes.add(claim.span_ns, u128::from(claim.work_ns) * 2);
                }
            }
            Place::Set(_) => unreachable!("a set is charged to its CPUs"),
        }
    }

    fn subtract_charge(&mut self, claim: &Claim) {
        if let Place::Set(_) = claim.place {
            return self.on_each_cpu(claim, Ledger::subtract_charge);
        }
        let usage = self.usage_index(claim.place, claim.plugin);
        let subtract = |sum: &mut Charge, charge| {
            *sum = sum.checked_sub(charge).expect("a released charge was not reserved");
        };
        subtract(&mut self.usage[usage].charge, claim.charge);
        match claim.place {
            Place::Cpu(cpu) => {
                let account = &mut self.cpus[cpu as usize];
                subtract(&mut account.total, claim.charge);
                subtract(&mut account.rate, claim.rate);
                subtract(&mut account.bandwidth, claim.bandwidth());
                account.charges -= 1;
                account.unproved -= u32::from(claim.unproved && claim.deadline);
                if let Some(domain) = account.domain {
                    let domain = &mut self.domains[domain as usize];
                    subtract(&mut domain.pinned, claim.charge);
                    domain.pinned_charges -= 1;
                }
            }
            Place::Domain(domain) => {
                let account = &mut self.domains[domain as usize];
                subtract(&mut account.total, claim.charge);
                subtract(&mut account.bandwidth, claim.bandwidth());
                account.charges -= 1;
                account.unproved -= u32::from(claim.unproved);
                let count = account
                    .densities
                    .get_mut(&claim.charge)
                    .expect("a released density was not reserved");
                *count -= 1;
                if *count == 0 {
                    account.densities.remove(&claim.charge);
                }
                if account.interferes {
                    account.classes.remove(claim.span_ns, u128::from(claim.work_ns) * 2);
                }
            }
            Place::Set(_) => unreachable!("a set is charged to its CPUs"),
        }
    }

    /// Returns all zero-lag holds with their ends.
    #[cfg(test)]
    pub(crate) fn all_zero_lag_holds(&self) -> Vec<(Monotonic, Claim)> {
        self.zero_lag_holds.iter().map(|Reverse(lingerer)| *lingerer).collect()
    }

    /// Whether the ledger has no reservation and no zero-lag hold.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let cpu = |account: &CpuAccount| {
            (account.total, account.bandwidth, account.charges, account.specs, account.unproved)
                == (Charge::ZERO, Charge::ZERO, 0, 0, 0)
                && account.rate == Charge::ZERO
        };
        let domain = |account: &DomainAccount| {
            (account.total, account.bandwidth, account.charges, account.specs, account.unproved)
                == (Charge::ZERO, Charge::ZERO, 0, 0, 0)
                && (account.pinned, account.pinned_charges) == (Charge::ZERO, 0)
                && account.densities.is_empty()
                && account.classes.total().work == 0
        };
        self.cpus.iter().all(cpu)
            && self.domains.iter().all(domain)
            && self.usage.iter().all(|usage| usage.charge == Charge::ZERO && usage.specs == 0)
            && self.zero_lag_holds.is_empty()
    }
}
