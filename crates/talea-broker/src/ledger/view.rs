//! The books as a question sees them, and what fits beside what is there.
//!
//! A view leaves out the spec that is about to be replaced. Its answers are exact: charges are
//! rounded up, and a sum that is over a limit by no more than that explains is counted anew with
//! fractions.

use super::{Claim, Ledger, Place};
use std::cmp::Reverse;
use talea_analysis::{Demand, edf, rm};
use talea_core::Charge;

/// Beyond so many different spans a close call is a refusal: settling it exactly would cost
/// milliseconds.
const EXACT_MAX: usize = 512;

/// Shows every claim to a visitor.
type Visit<'a> = dyn Fn(&mut dyn FnMut(&Claim)) + 'a;

/// The books as a question sees them: without the spec that is about to be replaced.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The books.
    pub(crate) ledger: &'a Ledger,
    /// What is judged as if it were gone.
    pub(crate) leaving: Option<&'a Claim>,
    /// All claims of specs, that of `leaving` not among them: only asked when rounding leaves a
    /// verdict open.
    pub(crate) claims: &'a Visit<'a>,
}

impl View<'_> {
    fn leaves(&self, place: Place) -> Option<&Claim> {
        self.leaving.filter(|claim| claim.place == place)
    }

    fn without(&self, place: Place, sum: Charge) -> Charge {
        self.leaves(place).map_or(sum, |claim| sum.saturating_sub(claim.charge))
    }

    /// All charges on `cpu` alone.
    pub(crate) fn total(&self, cpu: u32) -> Charge {
        self.without(Place::Cpu(cpu), self.ledger.cpus[cpu as usize].total)
    }

    /// All charges on the domain as a whole.
    pub(crate) fn domain_total(&self, domain: u32) -> Charge {
        self.without(Place::Domain(domain), self.ledger.domain(domain).total)
    }

    /// How loaded `cpu` is: its own charges and its part of its domain's.
    pub(crate) fn load(&self, cpu: u32) -> Charge {
        let own = self.total(cpu);
        match self.ledger.cpus[cpu as usize].domain {
            None => own,
            Some(domain) => {
                let part = self
                    .domain_total(domain)
                    .bits()
                    .div_ceil(self.ledger.domain(domain).count.into());
                own.saturating_add(Charge::from_bits(part))
            }
        }
    }

    /// Specs on `cpu`, or of its domain.
    pub(crate) fn specs(&self, cpu: u32) -> u32 {
        let book = &self.ledger.cpus[cpu as usize];
        let own = book.specs - u32::from(self.leaves(Place::Cpu(cpu)).is_some());
        let global = book.domain.map_or(0, |domain| {
            self.ledger.domain(domain).specs
                - u32::from(self.leaves(Place::Domain(domain)).is_some())
        });
        own + global
    }

    /// Specs of one plugin at `place`.
    pub(crate) fn specs_of(&self, plugin: u32, place: Place) -> u32 {
        let leaves = self.leaves(place).is_some_and(|claim| claim.plugin == plugin);
        self.ledger.held[self.ledger.held(place, plugin)].specs - u32::from(leaves)
    }

    /// Whether a deadline-class claim at `place` voids proofs there.
    pub(crate) fn voided(&self, place: Place) -> bool {
        let voids = match place {
            Place::Cpu(cpu) => self.ledger.cpus[cpu as usize].voids,
            Place::Domain(domain) => self.ledger.domain(domain).voids,
        };
        let leaves = self.leaves(place).is_some_and(|claim| claim.voids && claim.deadline);
        voids > u32::from(leaves)
    }

    /// What the kernel's own books would say of `place`, as far as charges tell: rounding is taken
    /// off, since the kernel rounds each task down.
    pub(crate) fn bandwidth(&self, place: Place) -> Charge {
        let (sum, charges) = match place {
            Place::Cpu(cpu) => {
                let book = &self.ledger.cpus[cpu as usize];
                (book.bandwidth, book.charges)
            }
            Place::Domain(domain) => {
                let book = self.ledger.domain(domain);
                (book.bandwidth, book.charges)
            }
        };
        let leaves = self.leaves(place).map_or(Charge::ZERO, Claim::bandwidth);
        let rounding = Charge::from_bits(u128::from(charges) + 1);
        sum.saturating_sub(leaves).saturating_sub(rounding)
    }

    /// Whether Σ Q/T over everything on `cpu` and `coming` stays within `limit`, as far as charges
    /// tell: a sum that is over it by no more than its charges were rounded up passes.
    pub(crate) fn may_fit(&self, cpu: u32, coming: &Claim, limit: Charge) -> bool {
        let book = &self.ledger.cpus[cpu as usize];
        let leaves = self.leaves(Place::Cpu(cpu)).map_or(Charge::ZERO, |claim| claim.rate);
        let rounding = Charge::from_bits(u128::from(book.charges) + 1);
        let sum = book.rate.saturating_sub(leaves).saturating_add(coming.rate);
        sum.saturating_sub(rounding) <= limit
    }

    /// Whether the charges on `cpu` alone and `coming` stay within `limit`, exactly.
    pub(crate) fn fits(&self, cpu: u32, coming: &Claim, limit: Charge) -> bool {
        let sum = self.total(cpu).saturating_add(coming.charge);
        let error = Charge::from_bits(u128::from(self.ledger.cpus[cpu as usize].charges) + 1);
        if sum <= limit || sum > limit.saturating_add(error) {
            return sum <= limit;
        }
        settled(self.demands(coming, |claim| claim.place == Place::Cpu(cpu)), limit)
    }

    /// Whether the domain's charges and `coming` pass the global test (Goossens, Funk and Baruah)
    /// with `cap` a CPU, and the domain's CPUs hold no more than `cap` each on average with
    /// everything that is on them, exactly.
    pub(crate) fn fits_globally(&self, domain: u32, coming: &Claim, cap: Charge) -> bool {
        let book = self.ledger.domain(domain);
        let densest = self.densest(domain).max(coming.charge);
        let sum = self.domain_total(domain).saturating_add(coming.charge);
        let left = sum.saturating_add(densest.times(book.count - 1));
        let room = cap.times(book.count);
        let error = Charge::from_bits(u128::from(book.charges + book.count) + 1);
        let global = if left <= room || left > room.saturating_add(error) {
            left <= room
        } else {
            let demands = self.demands(coming, |claim| claim.place == Place::Domain(domain));
            demands.len() <= EXACT_MAX && edf::global(&demands, book.count, cap)
        };
        global && self.fits_beside(domain, coming, room)
    }

    /// Whether everything in the domain, pinned or not, and `coming` stay within `room`, exactly.
    pub(crate) fn fits_beside(&self, domain: u32, coming: &Claim, room: Charge) -> bool {
        let book = self.ledger.domain(domain);
        let all = self.everything(domain).saturating_add(coming.charge);
        let error = Charge::from_bits(u128::from(book.charges + book.pinned_charges) + 1);
        if all <= room || all > room.saturating_add(error) {
            return all <= room;
        }
        let inside = |claim: &Claim| match claim.place {
            Place::Cpu(cpu) => book.cpus.contains(cpu),
            Place::Domain(other) => other == domain,
        };
        settled(self.demands(coming, inside), room)
    }

    /// All charges in the domain, pinned or not.
    pub(crate) fn everything(&self, domain: u32) -> Charge {
        let book = self.ledger.domain(domain);
        let inside =
            |claim: &&Claim| matches!(claim.place, Place::Cpu(cpu) if book.cpus.contains(cpu));
        let leaves = self.leaving.filter(inside).map_or(Charge::ZERO, |claim| claim.charge);
        self.domain_total(domain).saturating_add(book.pinned.saturating_sub(leaves))
    }

    /// The largest charge on the domain as a whole.
    pub(crate) fn densest(&self, domain: u32) -> Charge {
        let leaves = self.leaves(Place::Domain(domain)).map(|claim| claim.charge);
        let densities = self.ledger.domain(domain).densities.iter().rev();
        let mut left = densities.filter(|&(&charge, &count)| leaves != Some(charge) || count > 1);
        left.next().map_or(Charge::ZERO, |(&charge, _)| charge)
    }

    fn demands(&self, coming: &Claim, inside: impl Fn(&Claim) -> bool) -> Vec<Demand> {
        let mut demands = vec![coming.demand()];
        (self.claims)(&mut |claim| {
            if inside(claim) {
                demands.push(claim.demand());
            }
        });
        let lingering = self.ledger.lingering.iter().map(|Reverse((_, claim))| claim);
        demands.extend(lingering.filter(|claim| inside(claim)).map(Claim::demand));
        demands
    }
}

/// Whether Σ Q/min(T, D) ≤ `limit`, where rounding left it open.
fn settled(demands: Vec<Demand>, limit: Charge) -> bool {
    let demands = rm::merged(demands);
    demands.len() <= EXACT_MAX && edf::partitioned(&demands, limit)
}
