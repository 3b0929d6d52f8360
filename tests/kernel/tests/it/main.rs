//! The daemon, the kernel and the clients together. Test names carry the rows of
//! `checklists/retif.md`.
#![forbid(unsafe_code)]

mod abuse;
mod arrivals;
mod attacker;
mod choice;
mod claims;
mod confined;
mod cost;
mod debts;
mod defects;
mod exec;
mod files;
mod foreign;
mod identity;
mod order;
mod owners;
mod ownership;
mod putback;
mod restart;
mod rules;
mod shield;
mod smoke;
mod survival;
mod tasks;
