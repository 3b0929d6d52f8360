//! Specs by slot. The slot is also the spec's position in the state file, and is reused after a
//! release.
//!
//! The slab allocates slots in chunks, so that growth moves no spec. So the cost of a request does
//! not depend on the number of specs.

use crate::spec::Spec;

const CHUNK: usize = 64;

/// Specs by slot.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[Option<Spec>]>>,
    /// Number of slots ever used: all used slots are below it.
    end: u32,
    /// Slots below `end` without a spec.
    free: Vec<u32>,
}

impl Slab {
    /// Returns the spec in `slot`, if there is one.
    pub(crate) fn get(&self, slot: u32) -> Option<&Spec> {
        self.chunks.get(slot as usize / CHUNK)?[slot as usize % CHUNK].as_ref()
    }

    /// Returns the spec in `slot`, if there is one.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Spec> {
        self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].as_mut()
    }

    /// Returns the spec in `slot`, which must exist.
    pub(crate) fn at(&self, slot: u32) -> &Spec {
        self.get(slot).expect("an empty slot was used")
    }

    /// Returns the spec in `slot`, which must exist.
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut Spec {
        self.get_mut(slot).expect("an empty slot was used")
    }

    /// Returns the number of specs.
    pub(crate) fn len(&self) -> u32 {
        self.end - self.free.len() as u32
    }

    /// Returns the slot that [`Slab::insert`] uses next.
    pub(crate) fn next_slot(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.end)
    }

    /// Returns the end of the slots that are in use after `count` more specs.
    pub(crate) fn end_after(&self, count: u32) -> u32 {
        self.end + count.saturating_sub(self.free.len() as u32)
    }

    /// Inserts a spec into a free slot and returns the slot.
    pub(crate) fn insert(&mut self, spec: Spec) -> u32 {
        let slot = self.next_slot();
        self.free.pop();
        self.place(slot, spec);
        slot
    }

    /// Inserts a spec into this slot; `false` if the slot is in use.
    pub(crate) fn insert_at(&mut self, slot: u32, spec: Spec) -> bool {
        if slot < self.end {
            let Some(at) = self.free.iter().rposition(|&free| free == slot) else { return false };
            self.free.swap_remove(at);
        } else {
            self.free.extend(self.end..slot);
        }
        self.place(slot, spec);
        true
    }

    /// Removes the spec in `slot` and returns it, if there is one.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Spec> {
        let spec = self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].take()?;
        self.free.push(slot);
        Some(spec)
    }

    /// Iterates over the specs, lowest slot first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Spec)> {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter());
        entries.enumerate().filter_map(|(slot, spec)| Some((slot as u32, spec.as_ref()?)))
    }

    fn place(&mut self, slot: u32, spec: Spec) {
        self.end = self.end.max(slot + 1);
        while self.chunks.len() * CHUNK <= slot as usize {
            self.chunks.push((0..CHUNK).map(|_| None).collect());
        }
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Some(spec);
    }
}
