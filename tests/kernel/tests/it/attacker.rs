//! Attacks by a user with a local account; the daemon must refuse them all.
//!
//! Model: a [`Fixture`](fixture::Fixture) is a daemon with three kinds of clients. *Mallory* is an
//! ordinary user who does whatever the test says. *Bystanders* are threads of others, some of them
//! under grants of their own, whose kernel attributes must not change by a bit. The *honest client*
//! is served all the while, and its times are taken.
//!
//! Every test ends with the same questions: was each answer a typed refusal, is every bystander as
//! it was, is the daemon the same process with the same descriptors and about the same memory, and
//! did the honest client keep its service? The last is judged against a warm baseline of the same
//! minute, best of a few rounds, because the machine has stalls of 50 ms without any attack.

mod bounds;
mod fd_passing;
mod files;
mod fixture;
mod flood;
mod identity_changes;
mod malformed_input;
mod other_users_threads;

pub(crate) use fixture::{figure, test_clients};
