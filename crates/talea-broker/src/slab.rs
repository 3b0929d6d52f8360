//! Specs by slot. A slot is also the spec's place in the state file, and is used again after a
//! release.
//!
//! In chunks, so that growth never moves what is there: no request pays for the specs before it.

use crate::spec::Spec;

const CHUNK: usize = 64;

/// Specs by slot.
#[derive(Debug, Default)]
pub(crate) struct Slab {
    chunks: Vec<Box<[Option<Spec>]>>,
    /// One more than the highest slot ever used.
    end: u32,
    /// Slots below `end` without a spec.
    free: Vec<u32>,
}

impl Slab {
    /// The spec in `slot`.
    pub(crate) fn get(&self, slot: u32) -> Option<&Spec> {
        self.chunks.get(slot as usize / CHUNK)?[slot as usize % CHUNK].as_ref()
    }

    /// The spec in `slot`.
    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut Spec> {
        self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].as_mut()
    }

    /// The spec in `slot`, which the caller knows to be there.
    pub(crate) fn at(&self, slot: u32) -> &Spec {
        self.get(slot).expect("a slot without a spec was named")
    }

    /// The spec in `slot`, which the caller knows to be there.
    pub(crate) fn at_mut(&mut self, slot: u32) -> &mut Spec {
        self.get_mut(slot).expect("a slot without a spec was named")
    }

    /// How many specs there are.
    pub(crate) fn len(&self) -> u32 {
        self.end - self.free.len() as u32
    }

    /// Puts a spec into the next free slot.
    pub(crate) fn insert(&mut self, spec: Spec) -> u32 {
        let slot = self.free.pop().unwrap_or(self.end);
        self.place(slot, spec);
        slot
    }

    /// Puts a spec into this slot; false when it is taken.
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

    /// Takes the spec out of `slot`.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Spec> {
        let spec = self.chunks.get_mut(slot as usize / CHUNK)?[slot as usize % CHUNK].take()?;
        self.free.push(slot);
        Some(spec)
    }

    /// The taken slots, lowest first.
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
