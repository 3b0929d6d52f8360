//! Effects that the driver has not taken yet, and the tickets of orders.

use crate::input::{Effect, Ticket};
use std::collections::VecDeque;

/// Queue of effects, with the number of the orders so far.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    effects: VecDeque<Effect>,
    orders: u32,
}

impl Outbox {
    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Removes and returns the oldest effect.
    pub(crate) fn pop(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Creates a ticket that contains `place`: a slot, or a plugin.
    pub(crate) fn ticket(&mut self, place: u32) -> Ticket {
        self.orders = self.orders.wrapping_add(1);
        Ticket(u64::from(self.orders) << 32 | u64::from(place))
    }
}
