//! The daemon, the kernel and the clients together. Test names carry the row ids of
//! `docs/requirements.md`.
#![forbid(unsafe_code)]

mod abuse;
mod answers;
mod arrivals;
mod attack;
mod attacker;
mod audit;
mod choice;
mod claims;
mod confined;
mod cost;
mod defects;
mod deploy;
mod exec;
mod files;
mod foreign;
mod governor;
mod hotplug;
mod identity;
mod limits;
mod lockout;
mod order;
mod overruns;
mod owners;
mod ownership;
mod putback;
mod recovery;
mod restart;
mod rules;
mod shield;
mod smoke;
mod starvation;
mod survival;
mod tasks;
mod tutorials;
