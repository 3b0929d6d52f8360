//! Channels for elements of which the library knows only the size.
//!
//! Model: the typed channel of the runtime carries *places*: numbers of the cells of a buffer that
//! was allocated with the channel. A pushing job takes a free place, fills its cell and sends its
//! number. A popping job copies the cell out and returns the place. A place has one owner at a
//! time, so no thread reads a cell while another thread writes it.
//!
//! Invariant: only jobs of the source push, and only jobs of the sink pop, one after the other. A
//! job takes a place only when the channel has room. That room belonged to jobs of the sink that
//! have ended, so as many places are back. Then the queue of free places has no cell whose update a
//! stopped thread has left incomplete. A thread that finds such a cell would spin until the stopped
//! thread continues.

use crossbeam_queue::ArrayQueue;
use libc::c_void;
use std::cell::UnsafeCell;
use std::sync::Arc;
use talea_core::mutate;
use talea_runtime::{Application, Input, Output, TaskId};

/// Maximum number of elements of a channel. A larger number is a mistake of the caller.
const LENGTH_MAX: u32 = 1 << 20;
const BYTES_MAX: usize = 1 << 30;

/// Object of a `talea_channel *`.
pub struct Pipe {
    output: Output<Place>,
    input: Input<Place>,
    places: Arc<Places>,
}

/// Reason why no element was pushed or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Not {
    /// The calling thread runs no job of the task at this end.
    Allowed,
    /// The elements of the channel have another size.
    Fitting,
    /// The channel is full (push) or empty (pop).
    Now,
}

struct Places {
    free: ArrayQueue<u32>,
    item: usize,
    cells: Box<[UnsafeCell<u8>]>,
}

// SAFETY: only the owner of a place accesses its cell, and places move between threads only through
// queues.
unsafe impl Send for Places {}
// SAFETY: the same.
unsafe impl Sync for Places {}

/// Exclusive right to access one cell. Dropping it returns the cell to the free ones.
struct Place {
    of: Arc<Places>,
    number: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        // There is room for as many as there are.
        mutate!("capi-channel-place", {
            let _ = self.of.free.push(self.number);
        });
    }
}

impl Place {
    fn cell(&self) -> *mut u8 {
        let start = self.number as usize * self.of.item;
        UnsafeCell::raw_get(self.of.cells[start..start + self.of.item].as_ptr())
    }
}

impl Places {
    /// Creates a buffer of `length` cells of `item` bytes. Returns `None` if the buffer exceeds 1
    /// GiB, or if there is not enough memory.
    fn new(length: u32, item: usize) -> Option<Arc<Places>> {
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
    /// Creates a channel between two tasks. Returns `None` if the channel has too many elements,
    /// exceeds 1 GiB, or does not fit into memory.
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

    /// Checks that the elements of the channel have this size, and that the calling thread may use
    /// the end.
    fn may(&self, is_mine: bool, size: usize) -> Result<(), Not> {
        let fits = mutate!("capi-channel-size", self.places.item == size, self.places.item >= size);
        match (fits, mutate!("capi-channel-job", is_mine, true)) {
            (false, _) => Err(Not::Fitting),
            (true, false) => Err(Not::Allowed),
            (true, true) => Ok(()),
        }
    }

    /// Pushes an element. Returns [`Not::Now`] if there is no room.
    ///
    /// # Safety
    /// `item` points to `size` bytes.
    pub(crate) unsafe fn push(&self, item: *const c_void, size: usize) -> Result<(), Not> {
        self.may(self.output.is_mine(), size)?;
        let fill = || {
            let number = self.places.free.pop().expect("a place for all room that the channel has");
            let place = Place { of: Arc::clone(&self.places), number };
            // SAFETY: the caller's promise; the cell is ours as long as the place is, and no
            // other thread accesses it.
            unsafe { std::ptr::copy_nonoverlapping(item.cast::<u8>(), place.cell(), size) };
            place
        };
        if self.output.push_with(fill) { Ok(()) } else { Err(Not::Now) }
    }

    /// Pops an element. Returns [`Not::Now`] if there is none.
    ///
    /// # Safety
    /// `item` points to room for `size` bytes.
    pub(crate) unsafe fn pop(&self, item: *mut c_void, size: usize) -> Result<(), Not> {
        self.may(self.input.is_mine(), size)?;
        let place = self.input.pop().ok_or(Not::Now)?;
        // SAFETY: the caller's promise; the cell is ours as long as the place is, and no other
        // thread accesses it.
        unsafe { std::ptr::copy_nonoverlapping(place.cell(), item.cast::<u8>(), size) };
        Ok(())
    }
}
