//! What workers have to say to a dispatcher: that a job is over.
//!
//! Model: a list of workers ([`Letters`]), linked through their slots. A worker puts itself in
//! front and rings; the dispatcher takes the whole list at once. Nobody waits for anybody, and
//! nobody can be in a list twice: a worker tells the end of a job once, and gets the next one only
//! after that was read. Everybody rings behind what he leaves, whatever that is, so a reader looks
//! only where the bell has rung since the last one did, and notes how often it had before it looks.
//! Whoever is stopped between leaving something and ringing has not told it yet.
//!
//! What comes from outside is counts and last words: how many jobs somebody asks for, by task, and
//! what battery, mode and permissions have become. Whoever says it may be stopped in the middle,
//! for ever; so each does its part with one instruction after the other, and nobody, least of all
//! the dispatcher, waits for another one's next. What is written is then marked; a mark without
//! anything behind it means that somebody else's mark was read before.

use crate::letters::{Letters, Word};
use crate::stage::Slot;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use talea_core::machine::{Condition, Event, TaskId};
use talea_core::mutate;
use talea_os::bell::Bell;

/// What a mailbox is made of; a parameter, so that a model checker runs the same code through all
/// interleavings.
pub(crate) trait Make {
    type Byte: Word<u8> + Debug;
    type Short: Word + Debug;
    type Long: Word<u64> + Debug;
    type Bell: Default + Debug;
    /// Whose letters these are.
    type Slot;

    /// See [`Bell::heard`].
    fn heard(bell: &Self::Bell) -> u32;
    /// See [`Bell::ring`].
    fn ring(bell: &Self::Bell);
    /// The next in the mailbox that it is in.
    fn next(slot: &Self::Slot) -> &Self::Short;
    /// Jobs that were asked for from outside and have not been read.
    fn asked(slot: &Self::Slot) -> &Self::Short;
}

/// Of what the machine has.
#[derive(Debug)]
pub(crate) struct Real;

impl Make for Real {
    type Byte = AtomicU8;
    type Short = AtomicU32;
    type Long = AtomicU64;
    type Bell = Bell;
    type Slot = Slot;

    fn heard(bell: &Bell) -> u32 {
        bell.heard()
    }

    fn ring(bell: &Bell) {
        bell.ring();
    }

    fn next(slot: &Slot) -> &AtomicU32 {
        &slot.next
    }

    fn asked(slot: &Slot) -> &AtomicU32 {
        &slot.asked
    }
}

/// What may be said of the world: the last of each kind counts, since each says how it is now.
#[derive(Debug)]
struct News<M: Make> {
    /// Which of them, a bit each.
    which: M::Short,
    battery: M::Long,
    mode: M::Byte,
    permitted: M::Long,
}

/// Kinds of news.
const KINDS: usize = 4;

impl<M: Make> News<M> {
    const STOPPED: u32 = 1;
    const BATTERY: u32 = 2;
    const MODE: u32 = 4;
    const PERMITTED: u32 = 8;

    fn new() -> News<M> {
        let (battery, permitted) = (M::Long::new(0), M::Long::new(0));
        News { which: M::Short::new(0), battery, mode: M::Byte::new(0), permitted }
    }

    fn change(&self, condition: Condition) {
        let which = match condition {
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
        self.which.or(which, Ordering::AcqRel);
    }

    /// Whether it was stopped, since this was last asked.
    fn take_stop(&self) -> bool {
        self.which.load(Ordering::Acquire) & Self::STOPPED != 0
            && self.which.and(!Self::STOPPED, Ordering::AcqRel) & Self::STOPPED != 0
    }

    /// What has become of the world; a stop stays.
    fn take(&self, said: &mut Vec<Event>) {
        if self.which.load(Ordering::Acquire) & !Self::STOPPED == 0 {
            return;
        }
        let which = self.which.and(Self::STOPPED, Ordering::AcqRel);
        let mut say = |bit: u32, event: Event| {
            if which & bit != 0 {
                said.push(event);
            }
        };
        say(
            Self::BATTERY,
            Event::Changed(Condition::Battery(self.battery.load(Ordering::Acquire))),
        );
        say(Self::MODE, Event::Changed(Condition::Mode(self.mode.load(Ordering::Acquire))));
        say(
            Self::PERMITTED,
            Event::Changed(Condition::Permitted(self.permitted.load(Ordering::Acquire))),
        );
    }
}

/// Tasks in a word of marks.
const WORD: usize = u64::BITS as usize;

/// All that is read in one step; its room is made before the run.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Whose pieces are over, oldest first.
    pub(crate) ended: Vec<TaskId>,
    /// Of whom how many jobs were asked for.
    pub(crate) asked: Vec<(TaskId, u32)>,
    /// What has become of the world.
    pub(crate) said: Vec<Event>,
}

impl Mail {
    /// Room for so many tasks.
    pub(crate) fn new(tasks: usize) -> Mail {
        Mail {
            ended: Vec::with_capacity(tasks),
            asked: Vec::with_capacity(tasks),
            said: Vec::with_capacity(KINDS),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ended.clear();
        self.asked.clear();
        self.said.clear();
    }
}

/// Of one dispatcher.
#[derive(Debug)]
pub(crate) struct Mailbox<M: Make = Real> {
    letters: Letters<M::Short>,
    /// Tasks of which somebody has asked for jobs, a bit each.
    asked: Box<[M::Long]>,
    news: News<M>,
    /// The dispatcher sleeps by it.
    pub(crate) bell: M::Bell,
    /// How often it had rung when this was last read, by whoever has the lock.
    read: M::Short,
}

impl Mailbox {
    /// For letters of so many tasks.
    pub(crate) fn new(tasks: usize) -> Mailbox {
        Mailbox::made(tasks)
    }
}

impl<M: Make> Mailbox<M> {
    fn made(tasks: usize) -> Mailbox<M> {
        let asked = (0..tasks.div_ceil(WORD)).map(|_| M::Long::new(0)).collect();
        let (bell, read) = (M::Bell::default(), M::Short::new(0));
        Mailbox { letters: Letters::new(), asked, news: News::new(), bell, read }
    }

    /// The job of `task` is over.
    pub(crate) fn post(&self, task: TaskId, slots: &[M::Slot]) {
        mutate!(
            "exec-mailbox-ring",
            {
                self.letters.put(task.0, M::next(&slots[task.0 as usize]));
                M::ring(&self.bell);
            },
            {
                M::ring(&self.bell);
                self.letters.put(task.0, M::next(&slots[task.0 as usize]));
            }
        );
    }

    /// Somebody wants a job of `task`.
    pub(crate) fn ask(&self, task: TaskId, slots: &[M::Slot]) {
        let at = task.0 as usize;
        M::asked(&slots[at]).add(1, Ordering::AcqRel);
        mutate!(
            "exec-mailbox-ask",
            {
                self.asked[at / WORD].or(1 << (at % WORD), Ordering::AcqRel);
                M::ring(&self.bell);
            },
            {
                M::ring(&self.bell);
                self.asked[at / WORD].or(1 << (at % WORD), Ordering::AcqRel);
            }
        );
    }

    /// The world has changed.
    pub(crate) fn change(&self, condition: Condition) {
        self.news.change(condition);
        M::ring(&self.bell);
    }

    /// No job is to come any more.
    pub(crate) fn stop(&self) {
        self.news.which.or(News::<M>::STOPPED, Ordering::AcqRel);
        M::ring(&self.bell);
    }

    /// Everything that was posted, oldest first, into `mail`, which is empty.
    pub(crate) fn take(&self, slots: &[M::Slot], mail: &mut Mail) {
        self.take_letting(slots, mail, || {});
    }

    /// The same; between two reads somebody else may do something.
    fn take_letting(&self, slots: &[M::Slot], mail: &mut Mail, mut others: impl FnMut()) {
        // Most steps find that nobody has.
        let rung = M::heard(&self.bell);
        if self.read.load(Ordering::Relaxed) == rung {
            return;
        }
        self.read.store(rung, Ordering::Relaxed);
        // First, so that of what somebody has asked for before a stop nothing is found after it.
        let is_stopped = self.news.take_stop();
        others();
        self.letters.take(|who| M::next(&slots[who as usize]), |who| mail.ended.push(TaskId(who)));
        mail.ended.reverse();
        for (word, asked) in self.asked.iter().enumerate() {
            // Most often nobody has.
            if asked.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut marks = asked.swap(0, Ordering::AcqRel);
            while marks != 0 {
                let at = word * WORD + marks.trailing_zeros() as usize;
                marks &= marks - 1;
                let count = M::asked(&slots[at]).swap(0, Ordering::AcqRel);
                if count > 0 {
                    mail.asked.push((TaskId(at as u32), mutate!("exec-asked-once", count, 1)));
                }
            }
        }
        others();
        // Last, so that whoever has said something and then asks for a job has it looked at before
        // that job: a step does what is said before what is asked for.
        self.news.take(&mut mail.said);
        mutate!("exec-mailbox-read", {}, {
            self.read.store(M::heard(&self.bell), Ordering::Relaxed);
        });
        if is_stopped {
            mail.said.push(Event::Stopped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;
    use talea_core::Time;

    fn slots(n: usize) -> Vec<Slot> {
        (0..n).map(|_| Slot::default()).collect()
    }

    #[test]
    fn letters_are_read_in_the_order_in_which_they_came_and_once() {
        let (mailbox, slots) = (Mailbox::new(4), slots(4));
        let mut mail = Mail::new(4);
        for task in [2, 0, 3] {
            mailbox.post(TaskId(task), &slots);
        }
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.ended, [TaskId(2), TaskId(0), TaskId(3)]);
        mail.clear();
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.ended, []);
        mailbox.post(TaskId(0), &slots);
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.ended, [TaskId(0)]);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        const TASKS: u32 = 4;
        const ROUNDS: u32 = 5_000;
        let (mailbox, slots) = (Mailbox::new(4), slots(TASKS as usize));
        let go: Vec<Bell> = (0..TASKS).map(|_| Bell::new()).collect();
        std::thread::scope(|scope| {
            for task in 0..TASKS {
                let (mailbox, slots, go) = (&mailbox, &slots, &go[task as usize]);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        mailbox.post(TaskId(task), slots);
                        // As a worker does: not again before it was read.
                        go.wait(round, Time::NEVER);
                    }
                });
            }
            let (mut seen, mut mail) = (0, Mail::new(TASKS as usize));
            while seen < TASKS * ROUNDS {
                let heard = mailbox.bell.heard();
                mail.clear();
                mailbox.take(&slots, &mut mail);
                seen += mail.ended.len() as u32;
                for task in &mail.ended {
                    go[task.0 as usize].ring();
                }
                if mail.ended.is_empty() {
                    mailbox.bell.wait(heard, Time::NEVER);
                }
            }
        });
    }

    #[test]
    fn nothing_that_is_asked_for_is_lost_or_doubled_whoever_asks() {
        const ASKERS: u32 = 3;
        const EACH: u32 = 20_000;
        let (mailbox, slots) = (Mailbox::new(4), slots(2));
        let gone = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..ASKERS {
                scope.spawn(|| {
                    (0..EACH).for_each(|count| mailbox.ask(TaskId(count % 2), &slots));
                    gone.fetch_add(1, Ordering::AcqRel);
                    mailbox.bell.ring();
                });
            }
            let (mut seen, mut mail) = ([0; 2], Mail::new(2));
            loop {
                let heard = mailbox.bell.heard();
                let are_gone = gone.load(Ordering::Acquire) == ASKERS;
                mail.clear();
                mailbox.take(&slots, &mut mail);
                for &(task, count) in &mail.asked {
                    assert!(count > 0);
                    seen[task.0 as usize] += count;
                }
                if mail.asked.is_empty() {
                    if are_gone {
                        break;
                    }
                    mailbox.bell.wait(heard, Time::NEVER);
                }
            }
            assert_eq!(seen, [ASKERS * EACH / 2; 2]);
        });
    }

    #[test]
    fn of_what_is_said_of_the_world_the_last_counts_and_a_stop_comes_behind_it() {
        let (mailbox, slots) = (Mailbox::new(0), slots(0));
        let read = || {
            let mut mail = Mail::new(0);
            mailbox.take(&slots, &mut mail);
            mail.said
        };
        mailbox.stop();
        for mode in [3, 1, 2] {
            mailbox.change(Condition::Mode(mode));
        }
        mailbox.change(Condition::Battery(7));
        let changed = |condition| Event::Changed(condition);
        let expected =
            [changed(Condition::Battery(7)), changed(Condition::Mode(2)), Event::Stopped];
        assert_eq!(read(), expected);
        assert_eq!(read(), []);
        mailbox.change(Condition::Permitted(5));
        assert_eq!(read(), [changed(Condition::Permitted(5))]);
    }

    #[test]
    fn who_is_stopped_while_asking_keeps_nobody_else_from_it() {
        let (mailbox, slots) = (Mailbox::new(70), slots(70));
        // Counted, and no mark yet.
        slots[69].asked.fetch_add(1, Ordering::AcqRel);
        mailbox.ask(TaskId(69), &slots);
        let mut mail = Mail::new(70);
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.asked, [(TaskId(69), 2)]);
        // It goes on: there is nothing behind its mark.
        mailbox.asked[1].fetch_or(1 << 5, Ordering::AcqRel);
        mailbox.bell.ring();
        mail.clear();
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.asked, []);
    }

    /// What steps would be told, in their order, if what `program` does falls into this gap of the
    /// first read.
    fn told(gap: usize, program: impl Fn(&Mailbox, &[Slot])) -> Vec<Vec<String>> {
        let (mailbox, slots) = (Mailbox::new(1), slots(1));
        // As somebody who has left nothing, so that it is read at all.
        mailbox.bell.ring();
        let mut gaps = 0;
        let others = || {
            if gaps == gap {
                program(&mailbox, &slots);
            }
            gaps += 1;
        };
        let mut steps = Vec::new();
        let mut mail = Mail::new(1);
        let mut tell = |mail: &mut Mail| {
            let (stops, said): (Vec<Event>, Vec<Event>) =
                mail.said.iter().partition(|&&event| event == Event::Stopped);
            let said = said.iter().map(|_| "changed".to_owned());
            let asked = mail.asked.iter().map(|(_, count)| format!("asked {count}"));
            let stops = stops.iter().map(|_| "stopped".to_owned());
            steps.push(said.chain(asked).chain(stops).collect());
            mail.clear();
        };
        mailbox.take_letting(&slots, &mut mail, others);
        tell(&mut mail);
        for _ in 0..2 {
            mailbox.take(&slots, &mut mail);
            tell(&mut mail);
        }
        assert!(gap < gaps, "there is such a gap");
        steps
    }

    #[test]
    fn y6_what_is_said_before_a_job_is_asked_for_is_told_before_it_wherever_the_reader_stands() {
        for gap in 0..2 {
            let all: Vec<String> = told(gap, |mailbox, slots| {
                mailbox.change(Condition::Battery(7));
                mailbox.ask(TaskId(0), slots);
            })
            .concat();
            assert_eq!(all, ["changed", "asked 1"], "gap {gap}");
        }
    }

    #[test]
    fn y14_what_is_asked_for_before_a_stop_is_told_before_it_wherever_the_reader_stands() {
        for gap in 0..2 {
            let all: Vec<String> = told(gap, |mailbox, slots| {
                mailbox.ask(TaskId(0), slots);
                mailbox.change(Condition::Mode(1));
                mailbox.stop();
            })
            .concat();
            assert_eq!(all.last().map(String::as_str), Some("stopped"), "gap {gap}: {all:?}");
            assert_eq!(all.len(), 3, "gap {gap}: {all:?}");
        }
    }

    /// The same code, in terms of the model checker.
    mod interleaved {
        use super::*;
        use crate::letters;
        use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
        use loom::sync::{Arc, Mutex};
        use loom::thread;

        #[derive(Debug)]
        struct Checked;

        #[derive(Default)]
        struct Links {
            next: AtomicU32,
            asked: AtomicU32,
        }

        impl Make for Checked {
            type Byte = AtomicU8;
            type Short = AtomicU32;
            type Long = AtomicU64;
            type Bell = letters::tests::Bell;
            type Slot = Links;

            fn heard(bell: &Self::Bell) -> u32 {
                bell.heard()
            }

            fn ring(bell: &Self::Bell) {
                bell.ring();
            }

            fn next(slot: &Links) -> &AtomicU32 {
                &slot.next
            }

            fn asked(slot: &Links) -> &AtomicU32 {
                &slot.asked
            }
        }

        /// Somebody leaves something.
        type Leaves = fn(&Desk);

        /// What steps have found, all together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        struct Found {
            ended: usize,
            asked: u32,
            changed: bool,
            stopped: bool,
        }

        /// A mailbox, and what there is of it behind the lock of those who step.
        struct Desk {
            mailbox: Mailbox<Checked>,
            slots: [Links; 2],
            office: Mutex<Found>,
        }

        fn desk() -> Arc<Desk> {
            let office = Mutex::new(Found::default());
            Arc::new(Desk { mailbox: Mailbox::made(2), slots: Default::default(), office })
        }

        impl Desk {
            /// As a step by whoever it is: what has been found so far.
            fn step(&self) -> Found {
                let mut office = self.office.lock().unwrap();
                let mut mail = Mail::new(2);
                self.mailbox.take(&self.slots, &mut mail);
                office.ended += mail.ended.len();
                office.asked += mail.asked.iter().map(|(_, count)| count).sum::<u32>();
                office.stopped |= mail.said.contains(&Event::Stopped);
                office.changed |= mail.said.iter().any(|said| *said != Event::Stopped);
                *office
            }

            /// As a dispatcher does: hear, step, sleep over what was heard, until all of it is
            /// found. A letter that is slept over is a deadlock, which is found.
            fn listen(&self, all: Found) {
                loop {
                    let heard = self.mailbox.bell.heard();
                    if self.step() == all {
                        return;
                    }
                    self.mailbox.bell.wait(heard);
                }
            }

            fn post(&self, task: u32) {
                self.mailbox.post(TaskId(task), &self.slots);
            }

            fn ask(&self) {
                self.mailbox.ask(TaskId(0), &self.slots);
            }

            fn change(&self) {
                self.mailbox.change(Condition::Mode(1));
            }
        }

        /// Few bugs need more than two preemptions (Musuvathi and Qadeer, PLDI 2007).
        fn model(check: impl Fn() + Sync + Send + 'static) {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(2);
            model.check(check);
        }

        #[test]
        fn in_every_interleaving_a_reader_that_looks_only_where_it_has_rung_sleeps_over_nothing() {
            let leave: [(Leaves, Found); 4] = [
                (|desk| desk.post(0), Found { ended: 1, ..Found::default() }),
                (Desk::ask, Found { asked: 1, ..Found::default() }),
                (Desk::change, Found { changed: true, ..Found::default() }),
                (|desk| desk.mailbox.stop(), Found { stopped: true, ..Found::default() }),
            ];
            for (leave, all) in leave {
                loom::model(move || {
                    let desk = desk();
                    let writer = Arc::clone(&desk);
                    thread::spawn(move || leave(&writer));
                    desk.listen(all);
                });
            }
        }

        #[test]
        fn in_every_interleaving_of_two_writers_a_reader_finds_the_letter_of_each_and_once() {
            model(|| {
                let desk = desk();
                for task in 0..2 {
                    let writer = Arc::clone(&desk);
                    thread::spawn(move || writer.post(task));
                }
                desk.listen(Found { ended: 2, ..Found::default() });
            });
        }

        #[test]
        fn in_every_interleaving_two_who_step_in_turn_find_everything_between_them_and_once() {
            model(|| {
                let desk = desk();
                let (writer, worker) = (Arc::clone(&desk), Arc::clone(&desk));
                thread::spawn(move || {
                    writer.post(0);
                    writer.ask();
                });
                thread::spawn(move || worker.step());
                desk.listen(Found { ended: 1, asked: 1, ..Found::default() });
            });
        }

        #[test]
        fn y14_in_every_interleaving_what_was_asked_for_before_a_stop_is_found_with_it_and_once() {
            model(|| {
                let desk = desk();
                let (first, other) = (Arc::clone(&desk), Arc::clone(&desk));
                // One asks and stops it; another one asks meanwhile.
                let stopping = thread::spawn(move || {
                    first.ask();
                    first.mailbox.stop();
                });
                let asking = thread::spawn(move || other.ask());
                for _ in 0..2 {
                    let found = desk.step();
                    assert!(!found.stopped || found.asked >= 1, "its own was asked for before");
                    if found.stopped {
                        break;
                    }
                }
                stopping.join().unwrap();
                asking.join().unwrap();
                assert_eq!(desk.step().asked, 2, "nothing is lost or doubled");
            });
        }

        #[test]
        fn y6_in_every_interleaving_what_is_said_before_a_job_is_asked_for_is_found_with_it_or_before()
         {
            loom::model(|| {
                let desk = desk();
                let program = {
                    let desk = Arc::clone(&desk);
                    thread::spawn(move || {
                        desk.change();
                        desk.ask();
                    })
                };
                for _ in 0..2 {
                    let found = desk.step();
                    assert!(
                        found.changed || found.asked == 0,
                        "the job would have the world before"
                    );
                }
                program.join().unwrap();
                let found = desk.step();
                assert_eq!((found.asked, found.changed), (1, true));
            });
        }
    }
}
