//! Who is where: the slots of the specs on each CPU and on each domain.
//!
//! For the exact tests, which must look at all tasks of one CPU while the broker has thousands.
//! Coming and going are O(1): every spec remembers its seat, and whoever sits last takes a seat
//! that falls free.

use crate::ledger::Place;

/// Slots by place.
#[derive(Clone, Debug)]
pub(crate) struct Residents {
    places: Vec<Vec<u32>>,
    cpus: usize,
}

impl Residents {
    /// Nobody yet, on CPUs below `cpus` and so many domains.
    pub(crate) fn new(cpus: u32, domains: usize) -> Residents {
        let cpus = cpus as usize;
        Residents { places: vec![Vec::new(); cpus + domains], cpus }
    }

    fn index(&self, place: Place) -> usize {
        match place {
            Place::Cpu(cpu) => cpu as usize,
            Place::Domain(domain) => self.cpus + domain as usize,
        }
    }

    /// The slots there.
    pub(crate) fn at(&self, place: Place) -> &[u32] {
        &self.places[self.index(place)]
    }

    /// A spec comes; its seat.
    pub(crate) fn put(&mut self, place: Place, slot: u32) -> u32 {
        let at = self.index(place);
        self.places[at].push(slot);
        (self.places[at].len() - 1) as u32
    }

    /// A spec goes; who has its seat now.
    pub(crate) fn take(&mut self, place: Place, seat: u32) -> Option<u32> {
        let at = self.index(place);
        self.places[at].swap_remove(seat as usize);
        self.places[at].get(seat as usize).copied()
    }
}
