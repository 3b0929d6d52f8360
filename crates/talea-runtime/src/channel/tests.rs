//! Pushes and pops at the ends of a channel, and data that panic when they are dropped.

use super::{ChannelState, End, Input, Output, channel};
use crate::current_task::CurrentTask;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::engine::TaskId;
use talea_exec::{Flow, panics};

const SOURCE: TaskId = TaskId(0);
const SINK: TaskId = TaskId(1);

fn of_one_app<T: Send + 'static>(size: u32) -> (Output<T>, Input<T>, ChannelState) {
    let end = |task, name: &str| End { owner: CurrentTask::new(7, task), task: name.to_owned() };
    channel(Flow::new(SOURCE, SINK, size, 0), size, (end(SOURCE, "source"), end(SINK, "sink")))
}

fn said(does: impl FnOnce()) -> String {
    panics::message(catch_unwind(AssertUnwindSafe(does)).expect_err("it panics"))
}

#[test]
fn y10_a_datum_that_panics_while_it_is_made_is_not_pushed_and_takes_no_room() {
    let (put, take, kept) = of_one_app::<u64>(1);
    let (source, sink) = (CurrentTask::new(7, SOURCE), CurrentTask::new(7, SINK));
    source.enter(|| {
        assert_eq!(said(|| _ = put.push_with(|| panic!("on purpose"))), "on purpose");
        assert!(put.push_with(|| 7), "there is room");
        assert!(!put.push_with(|| unreachable!("there is none")));
        assert_eq!(put.push(8), Err(8));
    });
    assert_eq!(sink.enter(|| take.pop()), None, "pushed data are visible when the job has ended");
    assert_eq!(kept.counts.full.load(Ordering::Relaxed), 2);
}

#[test]
fn y10_a_thread_without_a_job_of_an_end_is_rejected_and_nothing_moves() {
    let (put, take, kept) = of_one_app::<u64>(1);
    let outside = said(|| _ = put.push(1));
    assert_eq!(
        outside,
        "the channel from source to sink: only a job of source pushes, in its own thread"
    );
    // Neither the other end, nor a task with the same number elsewhere, nor after a job that
    // panicked.
    assert!(
        said(|| CurrentTask::new(7, SINK).enter(|| _ = put.push_with(|| 1)))
            .contains("only a job of source")
    );
    assert!(
        said(|| CurrentTask::new(8, SINK).enter(|| _ = take.pop()))
            .contains("only a job of sink pops")
    );
    assert_eq!(said(|| CurrentTask::new(7, SOURCE).enter(|| panic!("in the job"))), "in the job");
    assert!(!put.is_mine() && !take.is_mine());
    assert!(CurrentTask::new(7, SOURCE).enter(|| put.is_mine() && !take.is_mine()));
    let counts = [&kept.counts.full, &kept.counts.empty].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [0, 0]);
    assert_eq!(CurrentTask::new(7, SOURCE).enter(|| put.push(1)), Ok(()), "there is room still");
}

#[test]
fn a_datum_that_panics_when_dropped_is_gone_and_all_after_it() {
    static GONE: AtomicU64 = AtomicU64::new(0);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            GONE.fetch_add(1, Ordering::Relaxed);
            panic!("on purpose");
        }
    }
    let (put, _, kept) = of_one_app::<Bomb>(3);
    CurrentTask::new(7, SOURCE).enter(|| (0..3).for_each(|_| assert!(put.push(Bomb).is_ok())));
    kept.clear();
    assert_eq!(GONE.load(Ordering::Relaxed), 3);
}
