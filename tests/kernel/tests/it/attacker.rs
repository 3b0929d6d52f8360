//! Attacks by a user with a local account; the daemon must refuse them all.
//!
//! Model: a [`Fixture`](fixture::Fixture) is a daemon with three kinds of clients. *Mallory* is an
//! ordinary user who does what the test says. *Bystanders* are threads of other users, some of them
//! under grants of their own, whose kernel attributes must not change. The *honest client* is
//! served during the attack, and its response times are measured.
//!
//! Every test ends with the same checks. Each answer must be a typed refusal, and each bystander
//! must be unchanged. The daemon must be the same process, with the same descriptors and about the
//! same memory. The honest client must have kept its service. The last check compares with a warm
//! baseline of the same minute, best of a few rounds, because the machine has stalls of 50 ms
//! without any attack.

mod bounds;
mod fd_passing;
mod files;
mod fixture;
mod flood;
mod identity_changes;
mod malformed_input;
mod other_users_threads;

pub(crate) use fixture::{figure, test_clients};
