//! What has been given out: per CPU over all plugins, per CPU and plugin, and per root domain.
//!
//! Model: every accepted spec makes one [`Claim`], on one CPU or on a whole root domain (`edf`
//! without pinning). A claim is given back as the very numbers that were taken, so empty books add
//! up to exactly zero, and a negative book is a bug that panics. A claim that leaves before its
//! zero-lag time (checklist R36) keeps its charge, but not its seat among the specs, until that
//! time.
//!
//! Charges are rounded up; a sum that is over a limit by no more than its charges can have been
//! rounded is settled with exact fractions by [`View::fits`], off the hot path: ten tasks of 10 %
//! fill a CPU.
//!
//! Absent on purpose: what each subject of an access rule holds. That is policy, and lives in
//! [`crate::rules`].

mod view;

pub(crate) use view::View;

use crate::classes::Classes;
use crate::exact::TASKS_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use talea_analysis::{Demand, Sporadic};
use talea_core::{Charge, CpuSet, Span, Time, Work};

/// Where a claim lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// One CPU.
    Cpu(u32),
    /// A root domain: an index into the ledger's list.
    Domain(u32),
}

/// One entry: what a spec takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Claim {
    /// Index of the plugin.
    pub(crate) plugin: u32,
    /// Where.
    pub(crate) place: Place,
    /// Q^a / min(T, D).
    pub(crate) charge: Charge,
    /// Q^a in nanoseconds; 0 when unknown.
    pub(crate) work: u64,
    /// min(T, D) in nanoseconds; 1 when unknown.
    pub(crate) span: u64,
    /// T in nanoseconds, or the span where no period is known; 1 when unknown.
    pub(crate) period: u64,
    /// Q^a / T; zero when unknown.
    pub(crate) rate: Charge,
    /// Whether the kernel's deadline class serves it.
    pub(crate) deadline: bool,
    /// Whether nothing can be proved for those beside and below: the runtime is unknown, or a
    /// failed test was ignored.
    pub(crate) voids: bool,
}

impl Claim {
    /// What the kernel itself counts: Q^a / T in the deadline class, nothing in the others.
    pub(crate) fn bandwidth(&self) -> Charge {
        if self.deadline { self.rate } else { Charge::ZERO }
    }

    /// As a sporadic task that must end each job within min(T, D).
    pub(crate) fn sporadic(&self) -> Sporadic {
        let (period, span) = (Span::from_ns(self.period), Span::from_ns(self.span));
        Sporadic::new(Work::from_ns(self.work), period, span)
    }

    /// As the analysis sees it.
    pub(crate) fn demand(&self) -> Demand {
        Demand { work: self.work.into(), within: Span::from_ns(self.span) }
    }
}

/// One CPU.
#[derive(Clone, Debug, Default)]
struct CpuBook {
    /// All charges on this CPU alone.
    total: Charge,
    /// How many charges that is.
    charges: u32,
    /// Specs on this CPU alone, those that linger not counted.
    specs: u32,
    /// Σ Q/T of all of them.
    rate: Charge,
    /// What the kernel counts against its own share of this CPU.
    bandwidth: Charge,
    /// Deadline-class claims here that void proofs.
    voids: u32,
    /// The domain that global claims on this CPU go to.
    domain: Option<u32>,
}

/// One root domain with global claims.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainBook {
    /// Its CPUs.
    pub(crate) cpus: CpuSet,
    /// How many they are.
    pub(crate) count: u32,
    /// All charges on the domain as a whole.
    pub(crate) total: Charge,
    charges: u32,
    specs: u32,
    bandwidth: Charge,
    voids: u32,
    /// All charges on single CPUs of the domain, and how many that is.
    pinned: Charge,
    pinned_charges: u32,
    densities: BTreeMap<Charge, u32>,
    /// Whether an `rm` plugin on one of its CPUs has to reckon with its claims.
    interferes: bool,
    /// What the domain's claims may take from any of its CPUs: each with twice its work (argument 4
    /// in `talea_analysis::rm`). Empty when they interfere with nobody.
    pub(crate) classes: Classes,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    charge: Charge,
    specs: u32,
}

/// All books.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    cpus: Vec<CpuBook>,
    domains: Vec<DomainBook>,
    plugins: usize,
    /// By place, then plugin.
    held: Vec<Held>,
    lingering: BinaryHeap<Reverse<(Time, Claim)>>,
}

impl Ledger {
    /// Empty books for `plugins` plugins on CPUs below `cpus`, with these domains for global
    /// claims; `rm` are the CPUs on which such claims interfere with `rm` plugins.
    pub(crate) fn new(plugins: usize, cpus: u32, domains: &[CpuSet], rm: &CpuSet) -> Ledger {
        let mut books = vec![CpuBook::default(); cpus as usize];
        for (i, domain) in domains.iter().enumerate() {
            for cpu in domain {
                books[cpu as usize].domain = Some(i as u32);
            }
        }
        let domain = |cpus: &CpuSet| DomainBook {
            cpus: *cpus,
            count: cpus.len(),
            interferes: !cpus.intersection(rm).is_empty(),
            ..DomainBook::default()
        };
        Ledger {
            held: vec![Held::default(); (books.len() + domains.len()) * plugins],
            cpus: books,
            domains: domains.iter().map(domain).collect(),
            plugins,
            lingering: BinaryHeap::new(),
        }
    }

    /// The domain of this index.
    pub(crate) fn domain(&self, index: u32) -> &DomainBook {
        &self.domains[index as usize]
    }

    /// The domain whose global claims may run on `cpu`.
    pub(crate) fn domain_of(&self, cpu: u32) -> Option<u32> {
        self.cpus[cpu as usize].domain
    }

    /// The index of the domain that consists of exactly these CPUs.
    pub(crate) fn find_domain(&self, cpus: &CpuSet) -> Option<u32> {
        self.domains.iter().position(|domain| domain.cpus == *cpus).map(|index| index as u32)
    }

    fn held(&self, place: Place, plugin: u32) -> usize {
        let place = match place {
            Place::Cpu(cpu) => cpu as usize,
            Place::Domain(domain) => self.cpus.len() + domain as usize,
        };
        place * self.plugins + plugin as usize
    }

    /// Takes what `claim` says.
    pub(crate) fn take(&mut self, claim: &Claim) {
        self.seat(claim, 1);
        self.take_charge(claim);
    }

    /// Gives back what `claim` took.
    pub(crate) fn give(&mut self, claim: &Claim) {
        self.seat(claim, -1);
        self.give_charge(claim);
    }

    /// The spec of `claim` is gone, its charge stays until [`Ledger::expired`] returns it; `rest`
    /// is the part of the claim that stays.
    pub(crate) fn linger(&mut self, claim: &Claim, rest: &Claim, until: Time) {
        self.give(claim);
        self.take_charge(rest);
        self.lingering.push(Reverse((until, *rest)));
    }

    /// A charge that lingered until `now` at the latest, given back by this call.
    pub(crate) fn expired(&mut self, now: Time) -> Option<Claim> {
        self.next_expiry().filter(|&at| at <= now)?;
        let Reverse((_, claim)) = self.lingering.pop()?;
        self.give_charge(&claim);
        Some(claim)
    }

    /// When the next lingering charge is due.
    pub(crate) fn next_expiry(&self) -> Option<Time> {
        self.lingering.peek().map(|Reverse((at, _))| *at)
    }

    /// What lingers at `place`; `None` where so much lingers everywhere that it takes long to find
    /// out.
    pub(crate) fn lingering_at(&self, place: Place) -> Option<impl Iterator<Item = &Claim>> {
        let all = self.lingering.iter().map(|Reverse((_, claim))| claim);
        (self.lingering.len() <= TASKS_MAX).then(|| all.filter(move |claim| claim.place == place))
    }

    fn seat(&mut self, claim: &Claim, by: i32) {
        let held = self.held(claim.place, claim.plugin);
        let specs = match claim.place {
            Place::Cpu(cpu) => &mut self.cpus[cpu as usize].specs,
            Place::Domain(domain) => &mut self.domains[domain as usize].specs,
        };
        for count in [specs, &mut self.held[held].specs] {
            *count = count.checked_add_signed(by).expect("a spec given back that was not taken");
        }
    }

    fn take_charge(&mut self, claim: &Claim) {
        let held = self.held(claim.place, claim.plugin);
        let add = |sum: &mut Charge, charge| *sum = sum.saturating_add(charge);
        add(&mut self.held[held].charge, claim.charge);
        match claim.place {
            Place::Cpu(cpu) => {
                let book = &mut self.cpus[cpu as usize];
                add(&mut book.total, claim.charge);
                add(&mut book.rate, claim.rate);
                add(&mut book.bandwidth, claim.bandwidth());
                book.charges += 1;
                book.voids += u32::from(claim.voids && claim.deadline);
                if let Some(domain) = book.domain {
                    let domain = &mut self.domains[domain as usize];
                    add(&mut domain.pinned, claim.charge);
                    domain.pinned_charges += 1;
                }
            }
            Place::Domain(domain) => {
                let book = &mut self.domains[domain as usize];
                add(&mut book.total, claim.charge);
                add(&mut book.bandwidth, claim.bandwidth());
                book.charges += 1;
                book.voids += u32::from(claim.voids);
                *book.densities.entry(claim.charge).or_default() += 1;
                if book.interferes {
                    book.classes.add(claim.span, u128::from(claim.work) * 2);
                }
            }
        }
    }

    fn give_charge(&mut self, claim: &Claim) {
        let held = self.held(claim.place, claim.plugin);
        let subtract = |sum: &mut Charge, charge| {
            *sum = sum.checked_sub(charge).expect("a charge given back that was not taken");
        };
        subtract(&mut self.held[held].charge, claim.charge);
        match claim.place {
            Place::Cpu(cpu) => {
                let book = &mut self.cpus[cpu as usize];
                subtract(&mut book.total, claim.charge);
                subtract(&mut book.rate, claim.rate);
                subtract(&mut book.bandwidth, claim.bandwidth());
                book.charges -= 1;
                book.voids -= u32::from(claim.voids && claim.deadline);
                if let Some(domain) = book.domain {
                    let domain = &mut self.domains[domain as usize];
                    subtract(&mut domain.pinned, claim.charge);
                    domain.pinned_charges -= 1;
                }
            }
            Place::Domain(domain) => {
                let book = &mut self.domains[domain as usize];
                subtract(&mut book.total, claim.charge);
                subtract(&mut book.bandwidth, claim.bandwidth());
                book.charges -= 1;
                book.voids -= u32::from(claim.voids);
                let count =
                    book.densities.get_mut(&claim.charge).expect("a density that was not taken");
                *count -= 1;
                if *count == 0 {
                    book.densities.remove(&claim.charge);
                }
                if book.interferes {
                    book.classes.remove(claim.span, u128::from(claim.work) * 2);
                }
            }
        }
    }

    /// What lingers, and until when.
    #[cfg(test)]
    pub(crate) fn lingerers(&self) -> Vec<(Time, Claim)> {
        self.lingering.iter().map(|Reverse(lingerer)| *lingerer).collect()
    }

    /// Whether nothing at all is given out or lingers.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let cpu = |book: &CpuBook| {
            (book.total, book.bandwidth, book.charges, book.specs, book.voids)
                == (Charge::ZERO, Charge::ZERO, 0, 0, 0)
                && book.rate == Charge::ZERO
        };
        let domain = |book: &DomainBook| {
            (book.total, book.bandwidth, book.charges, book.specs, book.voids)
                == (Charge::ZERO, Charge::ZERO, 0, 0, 0)
                && (book.pinned, book.pinned_charges) == (Charge::ZERO, 0)
                && book.densities.is_empty()
                && book.classes.total().work == 0
        };
        self.cpus.iter().all(cpu)
            && self.domains.iter().all(domain)
            && self.held.iter().all(|held| held.charge == Charge::ZERO && held.specs == 0)
            && self.lingering.is_empty()
    }
}
