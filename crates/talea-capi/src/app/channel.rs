//! Channels of data that C knows by their size only.
//!
//! Model: the typed channel of the runtime carries *places*: numbers of the cells of a buffer that was allocated with the channel. Who
//! pushes takes a free place, fills it and sends its number; who pops copies it out and gives the place back. A place has one owner at a
//! time, so nobody reads what another one writes, however many threads push and pop.

use crossbeam_queue::ArrayQueue;
use libc::c_void;
use std::cell::UnsafeCell;
use std::sync::Arc;
use talea_runtime::{Application, Input, Output, TaskId};

/// More is a mistake.
const LENGTH_MAX: u32 = 1 << 20;
const BYTES_MAX: usize = 1 << 30;

/// What `talea_channel *` points to.
pub struct Pipe {
    output: Output<Place>,
    input: Input<Place>,
    places: Arc<Places>,
}

struct Places {
    free: ArrayQueue<u32>,
    item: usize,
    cells: Box<[UnsafeCell<u8>]>,
}

// SAFETY: a cell is touched by the owner of its place alone; places go from hand to hand through queues.
unsafe impl Send for Places {}
// SAFETY: the same.
unsafe impl Sync for Places {}

/// The right to one cell.
struct Place {
    of: Arc<Places>,
    number: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        // There is room for as many as there are.
        let _ = self.of.free.push(self.number);
    }
}

impl Place {
    fn cell(&self) -> *mut u8 {
        let start = self.number as usize * self.of.item;
        UnsafeCell::raw_get(self.of.cells[start..start + self.of.item].as_ptr())
    }
}

impl Places {
    /// Nothing, if there is no memory for so many.
    fn new(length: u32, item: usize) -> Option<Arc<Places>> {
        // One more than there is room for, so that it is the channel that finds itself full, and counts it.
        let length = length + 1;
        let bytes = item.checked_mul(length as usize).filter(|&bytes| bytes <= BYTES_MAX)?;
        let mut cells = Vec::new();
        cells.try_reserve_exact(bytes).ok()?;
        // Written here, so that no job is the first to touch a page.
        cells.resize_with(bytes, || UnsafeCell::new(0));
        let free = ArrayQueue::new(length as usize);
        for number in 0..length {
            let _ = free.push(number);
        }
        Some(Arc::new(Places { free, item, cells: cells.into() }))
    }
}

impl Pipe {
    /// Nothing, if it is larger than memory.
    pub(crate) fn new(
        app: &mut Application,
        (from, to): (TaskId, TaskId),
        (length, tokens): (u32, u32),
        item: usize,
    ) -> Option<Pipe> {
        let places = (length <= LENGTH_MAX).then(|| Places::new(length, item)).flatten()?;
        let (output, input) = app.channel_of(from, to, length, tokens);
        Some(Pipe { output, input, places })
    }

    /// Of its elements, in bytes.
    pub(crate) fn item(&self) -> usize {
        self.places.item
    }

    /// Whether there was room.
    ///
    /// # Safety
    /// `item` names as many bytes as an element has.
    pub(crate) unsafe fn push(&self, item: *const c_void) -> bool {
        let Some(number) = self.places.free.pop() else { return false };
        let place = Place { of: Arc::clone(&self.places), number };
        // SAFETY: the caller's promise; the cell is ours as long as the place is, and nobody else's memory.
        unsafe { std::ptr::copy_nonoverlapping(item.cast::<u8>(), place.cell(), self.places.item) };
        self.output.push(place).is_ok()
    }

    /// Whether there was one.
    ///
    /// # Safety
    /// `item` names room for as many bytes as an element has.
    pub(crate) unsafe fn pop(&self, item: *mut c_void) -> bool {
        let Some(place) = self.input.pop() else { return false };
        // SAFETY: the caller's promise; the cell is ours as long as the place is, and nobody else's memory.
        unsafe { std::ptr::copy_nonoverlapping(place.cell(), item.cast::<u8>(), self.places.item) };
        true
    }
}
