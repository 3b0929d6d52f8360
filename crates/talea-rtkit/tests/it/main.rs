//! The front end on a private bus, with a real daemon and unprivileged users.

mod live;
mod replay;
mod stage;
