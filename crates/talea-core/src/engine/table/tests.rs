//! Tables against a reference model that is evaluated every nanosecond.

use super::Table;
use crate::sched::{Phase, TableEntry};
use crate::{Span, Time};
use alloc::vec::Vec;

#[test]
fn y11_owners_equal_a_table_evaluated_every_nanosecond() {
    let entry = |(cpu, start, end, owner)| {
        TableEntry::new(cpu, Span::from_ns(start), Span::from_ns(end), owner)
    };
    // Unsorted, with a delay slot, two adjacent entries, and one adjacent to the next hyperperiod.
    let entries: Vec<TableEntry> =
        [(0, 6, 10, 1), (0, 0, 2, 1), (0, 2, 5, 2), (1, 3, 4, 0)].map(entry).into();
    let mut table = Table::new(3, Span::from_ns(10), &entries);
    for now in 0..100 {
        for part in [Phase::Ends, Phase::Starts] {
            let due = (Time::from_ns(now), part);
            assert!(
                table.next_edge().is_none_or(|next_edge| next_edge >= due),
                "no boundary is skipped"
            );
            while table.next_edge() == Some(due) {
                assert!(table.cross_edge(due).is_some());
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
