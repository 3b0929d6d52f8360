//! Mailbox of a dispatcher: completions by workers, and requests from outside.
//!
//! | content | written by | read as |
//! | --- | --- | --- |
//! | completions | workers, with one push each ([`MpscStack`]) | tasks, oldest first |
//! | activations | any thread: counter of the task, then its mark | count per task |
//! | conditions | any thread: value, then its bit | the last value of each kind |
//! | stop request | any thread: its bit | once |
//!
//! Invariants:
//!
//! - B1. Writers store the content, then the mark, then notify. A writer that was preempted before
//!   the notification has not reported.
//! - B2. The reader loads the key of the event count before the contents, and stores it as
//!   `last_key`. If the key is unchanged, nothing was reported since the last read, and the reader
//!   skips the contents.
//! - B3. No thread waits for another: a writer may be stopped between two stores, possibly forever.
//!   A mark without content means that an earlier read took the content of an unfinished writer.
//! - B4. A worker is in the stack at most once: it reports a completion once, and gets the next
//!   segment only after that was read. Reports of a suspension within a segment are in the same
//!   stack ([`suspension_state`](crate::suspension_state), U1).
//! - B5. Read order: stop bit, completions, activations, conditions; a step delivers conditions
//!   before activations, and the stop last. So a condition set before an activation, by one thread,
//!   is delivered no later than it, and an activation before a stop no later than the stop.

use crate::mpsc_stack::{AtomicInt, MpscStack};
use crate::worker_slot::WorkerSlot;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use talea_core::engine::{Condition, Event, TaskId};
use talea_core::mutate;
use talea_os::event_count::EventCount;

/// Types of which a mailbox consists. They are a parameter, so that loom runs the same code through
/// all interleavings.
pub(crate) trait SyncPrimitives {
    type U8: AtomicInt<u8> + Debug;
    type U32: AtomicInt + Debug;
    type U64: AtomicInt<u64> + Debug;
    type EventCount: Default + Debug;
    /// Element of the completion stack.
    type Slot;

    /// Returns the key of an event count; see [`EventCount::key`].
    fn key(event_count: &Self::EventCount) -> u32;
    /// Notifies an event count; see [`EventCount::notify`].
    fn notify(event_count: &Self::EventCount);
    /// Returns the link of an element in the completion stack.
    fn next(slot: &Self::Slot) -> &Self::U32;
    /// Returns the counter of the task's activations that no step has read.
    fn activations(slot: &Self::Slot) -> &Self::U32;
}

/// Types of the standard library and of [`talea_os`].
#[derive(Debug)]
pub(crate) struct Std;

impl SyncPrimitives for Std {
    type U8 = AtomicU8;
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type EventCount = EventCount;
    type Slot = WorkerSlot;

    fn key(event_count: &EventCount) -> u32 {
        event_count.key()
    }

    fn notify(event_count: &EventCount) {
        event_count.notify();
    }

    fn next(slot: &WorkerSlot) -> &AtomicU32 {
        &slot.next
    }

    fn activations(slot: &WorkerSlot) -> &AtomicU32 {
        &slot.activations
    }
}

/// Condition updates: the last value of each kind counts, because each is absolute.
#[derive(Debug)]
struct ConditionUpdates<M: SyncPrimitives> {
    /// Kinds of conditions with an unread update, one bit each.
    pending: M::U32,
    battery: M::U64,
    mode: M::U8,
    permitted: M::U64,
}

/// Maximum number of events in a batch: three conditions and a stop.
const MAX_EVENTS: usize = 4;

impl<M: SyncPrimitives> ConditionUpdates<M> {
    const STOPPED: u32 = 1;
    const BATTERY: u32 = 2;
    const MODE: u32 = 4;
    const PERMITTED: u32 = 8;

    fn new() -> ConditionUpdates<M> {
        let (battery, permitted) = (M::U64::new(0), M::U64::new(0));
        ConditionUpdates { pending: M::U32::new(0), battery, mode: M::U8::new(0), permitted }
    }

    fn set(&self, condition: Condition) {
        let pending = match condition {
            Condition::Battery(battery) => {
                self.battery.store(battery, Ordering::Release);
                Self::BATTERY
            }
            Condition::Mode(mode) => {
                self.mode.store(mode, Ordering::Release);
                Self::MODE
            }
            Condition::Permitted(permitted) => {
                self.permitted.store(permitted, Ordering::Release);
                Self::PERMITTED
            }
        };
        self.pending.or(pending, Ordering::AcqRel);
    }

    /// Takes the stop request. Returns whether there was one since the last call.
    fn take_stop(&self) -> bool {
        self.pending.load(Ordering::Acquire) & Self::STOPPED != 0
            && self.pending.and(!Self::STOPPED, Ordering::AcqRel) & Self::STOPPED != 0
    }

    /// Moves the updates into `events`, and leaves a stop request in place.
    fn drain(&self, events: &mut Vec<Event>) {
        if self.pending.load(Ordering::Acquire) & !Self::STOPPED == 0 {
            return;
        }
        let pending = self.pending.and(Self::STOPPED, Ordering::AcqRel);
        let mut push = |bit: u32, event: Event| {
            if pending & bit != 0 {
                events.push(event);
            }
        };
        push(
            Self::BATTERY,
            Event::Changed(Condition::Battery(self.battery.load(Ordering::Acquire))),
        );
        push(Self::MODE, Event::Changed(Condition::Mode(self.mode.load(Ordering::Acquire))));
        push(
            Self::PERMITTED,
            Event::Changed(Condition::Permitted(self.permitted.load(Ordering::Acquire))),
        );
    }
}

/// Tasks per word of activation marks.
const TASKS_PER_WORD: usize = u64::BITS as usize;

/// Contents of the mailbox that one step reads. The memory is allocated before the run.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Tasks whose segments have ended, oldest first.
    pub(crate) completed: Vec<TaskId>,
    /// Activated tasks with the number of their activations.
    pub(crate) activations: Vec<(TaskId, u32)>,
    /// Condition updates. A stop request is the last element.
    pub(crate) events: Vec<Event>,
}

impl Batch {
    /// Creates a batch for `tasks` tasks.
    pub(crate) fn new(tasks: usize) -> Batch {
        Batch {
            completed: Vec::with_capacity(tasks),
            activations: Vec::with_capacity(tasks),
            events: Vec::with_capacity(MAX_EVENTS),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.completed.clear();
        self.activations.clear();
        self.events.clear();
    }
}

/// Mailbox of one dispatcher.
#[derive(Debug)]
pub(crate) struct Mailbox<M: SyncPrimitives = Std> {
    completions: MpscStack<M::U32>,
    /// Tasks with unread activations, one bit each.
    activation_marks: Box<[M::U64]>,
    updates: ConditionUpdates<M>,
    /// Event count by which the dispatcher waits.
    pub(crate) event_count: M::EventCount,
    /// Key of the event count at the last read. Only the holder of the root lock uses it.
    last_key: M::U32,
}

impl Mailbox {
    /// Creates a mailbox for `tasks` tasks.
    pub(crate) fn new(tasks: usize) -> Mailbox {
        Mailbox::with_primitives(tasks)
    }
}

impl<M: SyncPrimitives> Mailbox<M> {
    fn with_primitives(tasks: usize) -> Mailbox<M> {
        let activation_marks =
            (0..tasks.div_ceil(TASKS_PER_WORD)).map(|_| M::U64::new(0)).collect();
        let (event_count, last_key) = (M::EventCount::default(), M::U32::new(0));
        Mailbox {
            completions: MpscStack::new(),
            activation_marks,
            updates: ConditionUpdates::new(),
            event_count,
            last_key,
        }
    }

    /// Reports that the segment of `task` has ended.
    pub(crate) fn post_completion(&self, task: TaskId, slots: &[M::Slot]) {
        mutate!(
            "exec-mailbox-ring",
            {
                self.completions.push(task.0, M::next(&slots[task.0 as usize]));
                M::notify(&self.event_count);
            },
            {
                M::notify(&self.event_count);
                self.completions.push(task.0, M::next(&slots[task.0 as usize]));
            }
        );
    }

    /// Requests a job of `task`.
    pub(crate) fn request_activation(&self, task: TaskId, slots: &[M::Slot]) {
        let at = task.0 as usize;
        M::activations(&slots[at]).add(1, Ordering::AcqRel);
        mutate!(
            "exec-mailbox-ask",
            {
                self.activation_marks[at / TASKS_PER_WORD]
                    .or(1 << (at % TASKS_PER_WORD), Ordering::AcqRel);
                M::notify(&self.event_count);
            },
            {
                M::notify(&self.event_count);
                self.activation_marks[at / TASKS_PER_WORD]
                    .or(1 << (at % TASKS_PER_WORD), Ordering::AcqRel);
            }
        );
    }

    /// Reports a change of a condition.
    pub(crate) fn set_condition(&self, condition: Condition) {
        self.updates.set(condition);
        M::notify(&self.event_count);
    }

    /// Requests the end of releases.
    pub(crate) fn request_stop(&self) {
        self.updates.pending.or(ConditionUpdates::<M>::STOPPED, Ordering::AcqRel);
        M::notify(&self.event_count);
    }

    /// Moves the contents of the mailbox into `batch`, which must be empty.
    pub(crate) fn drain(&self, slots: &[M::Slot], batch: &mut Batch) {
        self.drain_with_hook(slots, batch, || {});
    }

    /// Drains the mailbox, and calls `hook` between any two reads: tests run the operations of
    /// other threads in the hook.
    fn drain_with_hook(&self, slots: &[M::Slot], batch: &mut Batch, mut hook: impl FnMut()) {
        // Most reads find nothing new.
        let key = M::key(&self.event_count);
        if self.last_key.load(Ordering::Relaxed) == key {
            return;
        }
        self.last_key.store(key, Ordering::Relaxed);
        // First, so that no activation made before a stop is read after it.
        let is_stopped = self.updates.take_stop();
        let are_conditions_first = mutate!("exec-news-first", false, true);
        if are_conditions_first {
            self.updates.drain(&mut batch.events);
        }
        hook();
        self.completions
            .drain(|who| M::next(&slots[who as usize]), |who| batch.completed.push(TaskId(who)));
        batch.completed.reverse();
        for (word, asked) in self.activation_marks.iter().enumerate() {
            // Usually none.
            if asked.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut marks = asked.swap(0, Ordering::AcqRel);
            while marks != 0 {
                let at = word * TASKS_PER_WORD + marks.trailing_zeros() as usize;
                marks &= marks - 1;
                let count = M::activations(&slots[at]).swap(0, Ordering::AcqRel);
                if count > 0 {
                    batch
                        .activations
                        .push((TaskId(at as u32), mutate!("exec-asked-once", count, 1)));
                }
            }
        }
        hook();
        // Last, so that a condition set before an activation is read no later than that: a step
        // delivers conditions first.
        if !are_conditions_first {
            self.updates.drain(&mut batch.events);
        }
        mutate!("exec-mailbox-read", {}, {
            self.last_key.store(M::key(&self.event_count), Ordering::Relaxed);
        });
        if is_stopped {
            batch.events.push(Event::Stopped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use talea_core::Monotonic;

    fn slots(n: usize) -> Vec<WorkerSlot> {
        (0..n).map(|_| WorkerSlot::default()).collect()
    }

    #[test]
    fn completions_are_read_once_and_in_order() {
        let (mailbox, slots) = (Mailbox::new(4), slots(4));
        let mut batch = Batch::new(4);
        for task in [2, 0, 3] {
            mailbox.post_completion(TaskId(task), &slots);
        }
        mailbox.drain(&slots, &mut batch);
        assert_eq!(batch.completed, [TaskId(2), TaskId(0), TaskId(3)]);
        batch.clear();
        mailbox.drain(&slots, &mut batch);
        assert_eq!(batch.completed, []);
        mailbox.post_completion(TaskId(0), &slots);
        mailbox.drain(&slots, &mut batch);
        assert_eq!(batch.completed, [TaskId(0)]);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const TASKS: u32 = 4;
        const ROUNDS: u32 = 5_000;
        let (mailbox, slots) = (Mailbox::new(4), slots(TASKS as usize));
        let go: Vec<EventCount> = (0..TASKS).map(|_| EventCount::new()).collect();
        std::thread::scope(|scope| {
            for task in 0..TASKS {
                let (mailbox, slots, go) = (&mailbox, &slots, &go[task as usize]);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        mailbox.post_completion(TaskId(task), slots);
                        // A worker does not report again before its report was read.
                        go.wait(round, Monotonic::NEVER);
                    }
                });
            }
            let (mut seen, mut batch) = (0, Batch::new(TASKS as usize));
            while seen < TASKS * ROUNDS {
                let key = mailbox.event_count.key();
                batch.clear();
                mailbox.drain(&slots, &mut batch);
                seen += batch.completed.len() as u32;
                for task in &batch.completed {
                    go[task.0 as usize].notify();
                }
                if batch.completed.is_empty() {
                    mailbox.event_count.wait(key, Monotonic::NEVER);
                }
            }
        });
    }

    #[test]
    fn no_activation_is_lost_or_duplicated_between_threads() {
        const THREADS: u32 = 3;
        const EACH: u32 = 20_000;
        let (mailbox, slots) = (Mailbox::new(4), slots(2));
        let finished = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    (0..EACH)
                        .for_each(|count| mailbox.request_activation(TaskId(count % 2), &slots));
                    finished.fetch_add(1, Ordering::AcqRel);
                    mailbox.event_count.notify();
                });
            }
            let (mut seen, mut batch) = ([0; 2], Batch::new(2));
            loop {
                let key = mailbox.event_count.key();
                let are_finished = finished.load(Ordering::Acquire) == THREADS;
                batch.clear();
                mailbox.drain(&slots, &mut batch);
                for &(task, count) in &batch.activations {
                    assert!(count > 0);
                    seen[task.0 as usize] += count;
                }
                if batch.activations.is_empty() {
                    if are_finished {
                        break;
                    }
                    mailbox.event_count.wait(key, Monotonic::NEVER);
                }
            }
            assert_eq!(seen, [THREADS * EACH / 2; 2]);
        });
    }

    #[test]
    fn the_last_update_of_each_condition_counts_and_a_stop_comes_after_them() {
        let (mailbox, slots) = (Mailbox::new(0), slots(0));
        let read = || {
            let mut batch = Batch::new(0);
            mailbox.drain(&slots, &mut batch);
            batch.events
        };
        mailbox.request_stop();
        for mode in [3, 1, 2] {
            mailbox.set_condition(Condition::Mode(mode));
        }
        mailbox.set_condition(Condition::Battery(7));
        let changed = |condition| Event::Changed(condition);
        let expected =
            [changed(Condition::Battery(7)), changed(Condition::Mode(2)), Event::Stopped];
        assert_eq!(read(), expected);
        assert_eq!(read(), []);
        mailbox.set_condition(Condition::Permitted(5));
        assert_eq!(read(), [changed(Condition::Permitted(5))]);
    }

    #[test]
    fn a_writer_stopped_while_activating_blocks_no_other_writer() {
        let (mailbox, slots) = (Mailbox::new(70), slots(70));
        // Counted, but not yet marked.
        slots[69].activations.fetch_add(1, Ordering::AcqRel);
        mailbox.request_activation(TaskId(69), &slots);
        let mut batch = Batch::new(70);
        mailbox.drain(&slots, &mut batch);
        assert_eq!(batch.activations, [(TaskId(69), 2)]);
        // The writer continues: its mark has no content.
        mailbox.activation_marks[1].fetch_or(1 << 5, Ordering::AcqRel);
        mailbox.event_count.notify();
        batch.clear();
        mailbox.drain(&slots, &mut batch);
        assert_eq!(batch.activations, []);
    }

    /// Returns the events of each step, in order, if `program` runs in this gap of the first read.
    fn delivered_events(gap: usize, program: impl Fn(&Mailbox, &[WorkerSlot])) -> Vec<Vec<String>> {
        let (mailbox, slots) = (Mailbox::new(1), slots(1));
        // A notification without content, so that the mailbox is read.
        mailbox.event_count.notify();
        let mut gaps = 0;
        let hook = || {
            if gaps == gap {
                program(&mailbox, &slots);
            }
            gaps += 1;
        };
        let mut steps = Vec::new();
        let mut batch = Batch::new(1);
        let mut tell = |batch: &mut Batch| {
            let (stops, said): (Vec<Event>, Vec<Event>) =
                batch.events.iter().partition(|&&event| event == Event::Stopped);
            let said = said.iter().map(|_| "changed".to_owned());
            let asked = batch.activations.iter().map(|(_, count)| format!("activated {count}"));
            let stops = stops.iter().map(|_| "stopped".to_owned());
            steps.push(said.chain(asked).chain(stops).collect());
            batch.clear();
        };
        mailbox.drain_with_hook(&slots, &mut batch, hook);
        tell(&mut batch);
        for _ in 0..2 {
            mailbox.drain(&slots, &mut batch);
            tell(&mut batch);
        }
        assert!(gap < gaps, "the read has such a gap");
        steps
    }

    #[test]
    fn y6_a_condition_set_before_an_activation_is_delivered_before_it_wherever_the_reader_is() {
        for gap in 0..2 {
            let all: Vec<String> = delivered_events(gap, |mailbox, slots| {
                mailbox.set_condition(Condition::Battery(7));
                mailbox.request_activation(TaskId(0), slots);
            })
            .concat();
            assert_eq!(all, ["changed", "activated 1"], "gap {gap}");
        }
    }

    #[test]
    fn y14_an_activation_before_a_stop_is_delivered_before_it_wherever_the_reader_is() {
        for gap in 0..2 {
            let all: Vec<String> = delivered_events(gap, |mailbox, slots| {
                mailbox.request_activation(TaskId(0), slots);
                mailbox.set_condition(Condition::Mode(1));
                mailbox.request_stop();
            })
            .concat();
            assert_eq!(all.last().map(String::as_str), Some("stopped"), "gap {gap}: {all:?}");
            assert_eq!(all.len(), 3, "gap {gap}: {all:?}");
        }
    }

    /// Tests of the same code under loom.
    mod interleaved {
        use super::*;
        use crate::mpsc_stack;
        use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
        use loom::sync::{Arc, Mutex};
        use loom::thread;

        #[derive(Debug)]
        struct Checked;

        #[derive(Default)]
        struct Links {
            next: AtomicU32,
            activations: AtomicU32,
        }

        impl SyncPrimitives for Checked {
            type U8 = AtomicU8;
            type U32 = AtomicU32;
            type U64 = AtomicU64;
            type EventCount = mpsc_stack::tests::EventCount;
            type Slot = Links;

            fn key(event_count: &Self::EventCount) -> u32 {
                event_count.key()
            }

            fn notify(event_count: &Self::EventCount) {
                event_count.notify();
            }

            fn next(slot: &Links) -> &AtomicU32 {
                &slot.next
            }

            fn activations(slot: &Links) -> &AtomicU32 {
                &slot.activations
            }
        }

        /// A report to the mailbox.
        type Report = fn(&TestMailbox);

        /// Contents that the steps have read.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        struct ReadEvents {
            ended: usize,
            asked: u32,
            changed: bool,
            stopped: bool,
        }

        /// Mailbox with the state behind the root lock.
        struct TestMailbox {
            mailbox: Mailbox<Checked>,
            slots: [Links; 2],
            state: Mutex<ReadEvents>,
        }

        fn mailbox_under_test() -> Arc<TestMailbox> {
            let state = Mutex::new(ReadEvents::default());
            Arc::new(TestMailbox {
                mailbox: Mailbox::with_primitives(2),
                slots: Default::default(),
                state,
            })
        }

        impl TestMailbox {
            /// Makes a step. Returns everything that the steps have read.
            fn step(&self) -> ReadEvents {
                let mut state = self.state.lock().unwrap();
                let mut batch = Batch::new(2);
                self.mailbox.drain(&self.slots, &mut batch);
                state.ended += batch.completed.len();
                state.asked += batch.activations.iter().map(|(_, count)| count).sum::<u32>();
                state.stopped |= batch.events.contains(&Event::Stopped);
                state.changed |= batch.events.iter().any(|said| *said != Event::Stopped);
                *state
            }

            /// Waits as a dispatcher does (key, step, wait) until the steps have read `all`. A lost
            /// report is a deadlock, which loom reports.
            fn wait_for(&self, all: ReadEvents) {
                loop {
                    let key = self.mailbox.event_count.key();
                    if self.step() == all {
                        return;
                    }
                    self.mailbox.event_count.wait(key);
                }
            }

            fn post(&self, task: u32) {
                self.mailbox.post_completion(TaskId(task), &self.slots);
            }

            fn ask(&self) {
                self.mailbox.request_activation(TaskId(0), &self.slots);
            }

            fn change(&self) {
                self.mailbox.set_condition(Condition::Mode(1));
            }
        }

        /// Runs `check` under loom with at most two preemptions. Few bugs need more (Musuvathi and
        /// Qadeer, PLDI 2007).
        fn model(check: impl Fn() + Sync + Send + 'static) {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(2);
            model.check(check);
        }

        #[test]
        fn in_every_interleaving_a_reader_that_skips_an_unchanged_mailbox_misses_nothing() {
            let report: [(Report, ReadEvents); 4] = [
                (
                    |mailbox_under_test| mailbox_under_test.post(0),
                    ReadEvents { ended: 1, ..ReadEvents::default() },
                ),
                (TestMailbox::ask, ReadEvents { asked: 1, ..ReadEvents::default() }),
                (TestMailbox::change, ReadEvents { changed: true, ..ReadEvents::default() }),
                (
                    |mailbox_under_test| mailbox_under_test.mailbox.request_stop(),
                    ReadEvents { stopped: true, ..ReadEvents::default() },
                ),
            ];
            for (report, all) in report {
                loom::model(move || {
                    let mailbox_under_test = mailbox_under_test();
                    let writer = Arc::clone(&mailbox_under_test);
                    thread::spawn(move || report(&writer));
                    mailbox_under_test.wait_for(all);
                });
            }
        }

        #[test]
        fn in_every_interleaving_of_two_writers_a_reader_finds_each_completion_once() {
            model(|| {
                let mailbox_under_test = mailbox_under_test();
                for task in 0..2 {
                    let writer = Arc::clone(&mailbox_under_test);
                    thread::spawn(move || writer.post(task));
                }
                mailbox_under_test.wait_for(ReadEvents { ended: 2, ..ReadEvents::default() });
            });
        }

        #[test]
        fn in_every_interleaving_two_steppers_together_find_everything_once() {
            model(|| {
                let mailbox_under_test = mailbox_under_test();
                let (writer, worker) =
                    (Arc::clone(&mailbox_under_test), Arc::clone(&mailbox_under_test));
                thread::spawn(move || {
                    writer.post(0);
                    writer.ask();
                });
                thread::spawn(move || worker.step());
                mailbox_under_test.wait_for(ReadEvents {
                    ended: 1,
                    asked: 1,
                    ..ReadEvents::default()
                });
            });
        }

        #[test]
        fn y14_in_every_interleaving_an_activation_before_a_stop_is_found_with_it_and_once() {
            model(|| {
                let mailbox_under_test = mailbox_under_test();
                let (first, other) =
                    (Arc::clone(&mailbox_under_test), Arc::clone(&mailbox_under_test));
                // One thread activates and stops; another activates meanwhile.
                let stopping = thread::spawn(move || {
                    first.ask();
                    first.mailbox.request_stop();
                });
                let asking = thread::spawn(move || other.ask());
                for _ in 0..2 {
                    let found = mailbox_under_test.step();
                    assert!(
                        !found.stopped || found.asked >= 1,
                        "its own activation came before the stop"
                    );
                    if found.stopped {
                        break;
                    }
                }
                stopping.join().unwrap();
                asking.join().unwrap();
                assert_eq!(mailbox_under_test.step().asked, 2, "nothing is lost or duplicated");
            });
        }

        #[test]
        fn y6_in_every_interleaving_a_condition_set_first_is_found_no_later() {
            loom::model(|| {
                let mailbox_under_test = mailbox_under_test();
                let program = {
                    let mailbox_under_test = Arc::clone(&mailbox_under_test);
                    thread::spawn(move || {
                        mailbox_under_test.change();
                        mailbox_under_test.ask();
                    })
                };
                for _ in 0..2 {
                    let found = mailbox_under_test.step();
                    assert!(
                        found.changed || found.asked == 0,
                        "the job would have the old conditions"
                    );
                }
                program.join().unwrap();
                let found = mailbox_under_test.step();
                assert_eq!((found.asked, found.changed), (1, true));
            });
        }
    }
}
