//! What a channel takes and gives, from whom, and what is left of that which is thrown away.

use super::{End, Input, Kept, Output, channel};
use crate::doing::Doing;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use talea_core::machine::TaskId;
use talea_exec::{Flow, panics};

const SOURCE: TaskId = TaskId(0);
const SINK: TaskId = TaskId(1);

fn of_one_app<T: Send + 'static>(size: u32) -> (Output<T>, Input<T>, Kept) {
    let end = |task, name: &str| End { doing: Doing::new(7, task), task: name.to_owned() };
    channel(Flow::new(SOURCE, SINK, size, 0), size, (end(SOURCE, "source"), end(SINK, "sink")))
}

fn said(does: impl FnOnce()) -> String {
    panics::said(catch_unwind(AssertUnwindSafe(does)).expect_err("it panics"))
}

#[test]
fn y10_what_panics_while_it_is_made_was_not_put_in_and_takes_no_room() {
    let (put, take, kept) = of_one_app::<u64>(1);
    let (source, sink) = (Doing::new(7, SOURCE), Doing::new(7, SINK));
    source.during(|| {
        assert_eq!(said(|| _ = put.push_with(|| panic!("on purpose"))), "on purpose");
        assert!(put.push_with(|| 7), "there is room");
        assert!(!put.push_with(|| unreachable!("there is none")));
        assert_eq!(put.push(8), Err(8));
    });
    assert_eq!(sink.during(|| take.pop()), None, "what was put is seen when its job has ended");
    assert_eq!(kept.counts.full.load(Ordering::Relaxed), 2);
}

#[test]
fn y10_whoever_does_no_job_of_an_end_is_turned_away_and_nothing_moves() {
    let (put, take, kept) = of_one_app::<u64>(1);
    let nobody = said(|| _ = put.push(1));
    assert_eq!(
        nobody,
        "the channel from source to sink: only a job of source puts something in, in the thread that does it"
    );
    // Neither the other end, nor a task of the same number elsewhere, nor a job that has panicked.
    assert!(
        said(|| Doing::new(7, SINK).during(|| _ = put.push_with(|| 1)))
            .contains("only a job of source")
    );
    assert!(
        said(|| Doing::new(8, SINK).during(|| _ = take.pop())).contains("only a job of sink takes")
    );
    assert_eq!(said(|| Doing::new(7, SOURCE).during(|| panic!("in the job"))), "in the job");
    assert!(!put.is_mine() && !take.is_mine());
    assert!(Doing::new(7, SOURCE).during(|| put.is_mine() && !take.is_mine()));
    let counts = [&kept.counts.full, &kept.counts.empty].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts, [0, 0]);
    assert_eq!(Doing::new(7, SOURCE).during(|| put.push(1)), Ok(()), "there is room still");
}

#[test]
fn what_panics_when_it_is_thrown_away_is_gone_and_all_behind_it() {
    static GONE: AtomicU64 = AtomicU64::new(0);
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            GONE.fetch_add(1, Ordering::Relaxed);
            panic!("on purpose");
        }
    }
    let (put, _, kept) = of_one_app::<Bomb>(3);
    Doing::new(7, SOURCE).during(|| (0..3).for_each(|_| assert!(put.push(Bomb).is_ok())));
    kept.clear();
    assert_eq!(GONE.load(Ordering::Relaxed), 3);
}
