//! The front end on a private bus, with a real daemon and unprivileged users.

mod crowd;
mod desktop;
mod live;
mod pipewire;
mod replay;
mod reports;
mod stage;
mod stalls;
