//! The table against a plain twin that asks every nanosecond.

use super::Table;
use crate::sched::{Part, TableEntry};
use crate::{Span, Time};
use alloc::vec::Vec;

#[test]
fn y11_owners_equal_those_of_a_table_that_is_read_anew_each_nanosecond() {
    let entry = |(cpu, start, end, owner)| {
        TableEntry::new(cpu, Span::from_ns(start), Span::from_ns(end), owner)
    };
    // Not in order, with a delay slot, two that touch, and one that touches itself across the end.
    let entries: Vec<TableEntry> =
        [(0, 6, 10, 1), (0, 0, 2, 1), (0, 2, 5, 2), (1, 3, 4, 0)].map(entry).into();
    let mut table = Table::new(3, Span::from_ns(10), &entries);
    for now in 0..100 {
        for part in [Part::Ends, Part::Starts] {
            let due = (Time::from_ns(now), part);
            assert!(table.edge().is_none_or(|edge| edge >= due), "nothing is forgotten");
            while table.edge() == Some(due) {
                assert!(table.pass(due).is_some());
            }
        }
        for cpu in 0..3u32 {
            let within = |entry: &&TableEntry| {
                entry.cpu == cpu && (entry.start.as_ns()..entry.end.as_ns()).contains(&(now % 10))
            };
            assert_eq!(
                table.owner(cpu as usize),
                entries.iter().find(within).map(|entry| entry.owner),
                "{now}"
            );
        }
    }
}
