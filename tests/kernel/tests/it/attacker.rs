//! What an attacker with a local account tries, and what it gets: refusals.
//!
//! Model: a [`siege`](siege::Siege) is a daemon with three kinds of people. *Mallory* is an
//! ordinary user who does whatever the test says. *Bystanders* are threads of others, some of them
//! under grants of their own, whose kernel attributes must not change by a bit. The *honest client*
//! is served all the while, and its times are taken.
//!
//! Every test ends with the same questions: was each answer a typed refusal, is every bystander as
//! it was, is the daemon the same process with the same descriptors and about the same memory, and
//! did the honest client keep its service? The last is judged against a warm baseline of the same
//! minute, best of a few rounds, because the machine has holes of 50 ms that nobody attacked it
//! with.

mod bounds;
mod disguises;
mod files;
mod flood;
mod noise;
mod parcels;
mod siege;
mod strangers;

pub(crate) use siege::{figure, troupe};
