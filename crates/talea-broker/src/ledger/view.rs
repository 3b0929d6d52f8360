//! View of the ledger for an admission test.
//!
//! A view omits the spec to be replaced. Charges are rounded up. If a sum exceeds a limit by no
//! more than the possible rounding, the view computes the sum again with exact fractions.

use super::{Claim, Ledger, Place};
use std::cmp::Reverse;
use talea_analysis::{Demand, edf, rm};
use talea_core::Charge;

/// Maximum number of distinct spans for an exact decision. Beyond it, the view rejects a sum that
/// rounding leaves undecided, because exact arithmetic would cost milliseconds.
const EXACT_MAX: usize = 512;

/// Function that calls a visitor for every claim.
type Visit<'a> = dyn Fn(&mut dyn FnMut(&Claim)) + 'a;

/// View of the ledger without the spec to be replaced.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    /// The ledger.
    pub(crate) ledger: &'a Ledger,
    /// Claim treated as released.
    pub(crate) leaving: Option<&'a Claim>,
    /// Visits the claims of all specs except `leaving`: only used if rounding leaves a verdict
    /// undecided.
    pub(crate) claims: &'a Visit<'a>,
}

impl View<'_> {
    fn leaving_at(&self, place: Place) -> Option<&Claim> {
        self.leaving.filter(|claim| self.ledger.counts(claim.place, place))
    }

    fn without(&self, place: Place, sum: Charge) -> Charge {
        self.leaving_at(place).map_or(sum, |claim| sum.saturating_sub(claim.charge))
    }

    /// Returns the sum of the charges on `cpu` alone.
    pub(crate) fn total(&self, cpu: u32) -> Charge {
        self.without(Place::Cpu(cpu), self.ledger.cpus[cpu as usize].total)
    }

    /// Returns the sum of the charges on the domain as a whole.
    pub(crate) fn domain_total(&self, domain: u32) -> Charge {
        self.without(Place::Domain(domain), self.ledger.domain(domain).total)
    }

    /// Returns the load of `cpu`: its own charges and its part of its domain's charges.
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

    /// Returns the number of specs on `cpu` and on its domain.
    pub(crate) fn specs(&self, cpu: u32) -> u32 {
        let account = &self.ledger.cpus[cpu as usize];
        let own = account.specs - u32::from(self.leaving_at(Place::Cpu(cpu)).is_some());
        let global = account.domain.map_or(0, |domain| {
            self.ledger.domain(domain).specs
                - u32::from(self.leaving_at(Place::Domain(domain)).is_some())
        });
        own + global
    }

    /// Returns the number of specs of one plugin at `place`.
    pub(crate) fn specs_of(&self, plugin: u32, place: Place) -> u32 {
        let leaving = self.leaving_at(place).is_some_and(|claim| claim.plugin == plugin);
        self.ledger.usage[self.ledger.usage_index(place, plugin)].specs - u32::from(leaving)
    }

    /// Whether an unproved deadline-class claim at `place` makes guarantees there unprovable.
    pub(crate) fn is_unproved(&self, place: Place) -> bool {
        let unproved = match place {
            Place::Cpu(cpu) => self.ledger.cpus[cpu as usize].unproved,
            Place::Domain(domain) => self.ledger.domain(domain).unproved,
            // A deadline-class claim is on no set.
            Place::Set(_) => 0,
        };
        let leaving = self.leaving_at(place).is_some_and(|claim| claim.unproved && claim.deadline);
        unproved > u32::from(leaving)
    }

    /// Returns a lower bound of the kernel's bandwidth accounting at `place`: rounding is
    /// subtracted, because the kernel rounds each task down.
    pub(crate) fn bandwidth(&self, place: Place) -> Charge {
        let (sum, charges) = match place {
            Place::Cpu(cpu) => {
                let account = &self.ledger.cpus[cpu as usize];
                (account.bandwidth, account.charges)
            }
            Place::Domain(domain) => {
                let account = self.ledger.domain(domain);
                (account.bandwidth, account.charges)
            }
            Place::Set(_) => return Charge::ZERO,
        };
        let leaving = self.leaving_at(place).map_or(Charge::ZERO, Claim::bandwidth);
        let rounding = Charge::from_bits(u128::from(charges) + 1);
        sum.saturating_sub(leaving).saturating_sub(rounding)
    }

    /// Whether Σ Q/T over all claims on `cpu` alone and `coming` may be within `limit`. A sum that
    /// exceeds `limit` by no more than the rounding of its charges passes.
    pub(crate) fn may_fit(&self, cpu: u32, coming: &Claim, limit: Charge) -> bool {
        let account = &self.ledger.cpus[cpu as usize];
        let leaving = self.leaving_at(Place::Cpu(cpu)).map_or(Charge::ZERO, |claim| claim.rate);
        let rounding = Charge::from_bits(u128::from(account.charges) + 1);
        let sum = account.rate.saturating_sub(leaving).saturating_add(coming.rate);
        sum.saturating_sub(rounding) <= limit
    }

    /// Whether the charges on `cpu` alone and `coming` are within `limit`, exactly.
    pub(crate) fn fits(&self, cpu: u32, coming: &Claim, limit: Charge) -> bool {
        let sum = self.total(cpu).saturating_add(coming.charge);
        let error = Charge::from_bits(u128::from(self.ledger.cpus[cpu as usize].charges) + 1);
        if sum <= limit || sum > limit.saturating_add(error) {
            return sum <= limit;
        }
        let here = |claim: &Claim| self.ledger.counts(claim.place, Place::Cpu(cpu)).into();
        fits_exactly(self.demands(coming, here), limit)
    }

    /// Whether the domain's charges and `coming` pass the global test (Goossens, Funk and Baruah)
    /// with `cap` per CPU, and all charges in the domain are at most `cap` per CPU on average,
    /// exactly.
    pub(crate) fn fits_globally(&self, domain: u32, coming: &Claim, cap: Charge) -> bool {
        let account = self.ledger.domain(domain);
        let densest = self.densest(domain).max(coming.charge);
        let sum = self.domain_total(domain).saturating_add(coming.charge);
        let left = sum.saturating_add(densest.times(account.count - 1));
        let room = cap.times(account.count);
        let error = Charge::from_bits(u128::from(account.charges + account.count) + 1);
        let global = if left <= room || left > room.saturating_add(error) {
            left <= room
        } else {
            let demands =
                self.demands(coming, |claim| (claim.place == Place::Domain(domain)).into());
            demands.len() <= EXACT_MAX && edf::global(&demands, account.count, cap)
        };
        global && self.fits_beside(domain, coming, room)
    }

    /// Whether all charges in the domain, pinned or not, and `coming` are within `room`, exactly.
    pub(crate) fn fits_beside(&self, domain: u32, coming: &Claim, room: Charge) -> bool {
        let account = self.ledger.domain(domain);
        let all = self.everything(domain).saturating_add(coming.charge);
        let error = Charge::from_bits(u128::from(account.charges + account.pinned_charges) + 1);
        if all <= room || all > room.saturating_add(error) {
            return all <= room;
        }
        let inside = |claim: &Claim| {
            let whole = claim.place == Place::Domain(domain);
            u32::from(whole) + self.ledger.pinned_times(claim.place, domain)
        };
        fits_exactly(self.demands(coming, inside), room)
    }

    /// Returns the sum of the charges in the domain, pinned or not.
    pub(crate) fn everything(&self, domain: u32) -> Charge {
        let account = self.ledger.domain(domain);
        let pinned =
            |claim: &Claim| claim.charge.times(self.ledger.pinned_times(claim.place, domain));
        let leaving = self.leaving.map_or(Charge::ZERO, pinned);
        self.domain_total(domain).saturating_add(account.pinned.saturating_sub(leaving))
    }

    /// Returns the largest charge on the domain as a whole.
    pub(crate) fn densest(&self, domain: u32) -> Charge {
        let leaving = self.leaving_at(Place::Domain(domain)).map(|claim| claim.charge);
        let densities = self.ledger.domain(domain).densities.iter().rev();
        let mut left = densities.filter(|&(&charge, &count)| leaving != Some(charge) || count > 1);
        left.next().map_or(Charge::ZERO, |(&charge, _)| charge)
    }

    /// Returns the demand of `coming`, and that of each other claim `times` times.
    fn demands(&self, coming: &Claim, times: impl Fn(&Claim) -> u32) -> Vec<Demand> {
        let mut demands = vec![coming.demand()];
        let mut add = |claim: &Claim| demands.extend((0..times(claim)).map(|_| claim.demand()));
        (self.claims)(&mut add);
        self.ledger.zero_lag_holds.iter().for_each(|Reverse((_, claim))| add(claim));
        demands
    }
}

/// Whether Σ Q/min(T, D) ≤ `limit`, if rounding leaves it undecided.
fn fits_exactly(demands: Vec<Demand>, limit: Charge) -> bool {
    let demands = rm::merged(demands);
    demands.len() <= EXACT_MAX && edf::partitioned(&demands, limit)
}
