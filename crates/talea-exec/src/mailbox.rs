//! What workers have to say to a dispatcher: that a job is over.
//!
//! Model: a list of workers ([`Letters`]), linked through their slots. A worker puts itself in front and rings; the
//! dispatcher takes the whole list at once. Nobody waits for anybody, and nobody can be in a list twice: a worker tells
//! the end of a job once, and gets the next one only after that was read. Everybody rings behind what he leaves, whatever that is, so a
//! reader looks only where the bell has rung since the last one did.
//!
//! What comes from outside is counts and last words: how many jobs somebody asks for, by task, and what battery, mode and permissions
//! have become. Whoever says it may be stopped in the middle, for ever; so each does its part with one instruction after the other,
//! and nobody, least of all the dispatcher, waits for another one's next. What is written is then marked; a mark without anything
//! behind it means that somebody else's mark was read before.

use crate::letters::Letters;
use crate::stage::Slot;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use talea_core::machine::{Condition, Event, TaskId};
use talea_os::bell::Bell;

/// What may be said of the world: the last of each kind counts, since each says how it is now.
#[derive(Debug, Default)]
struct News {
    /// Which of them, a bit each.
    which: AtomicU32,
    battery: AtomicU64,
    mode: AtomicU8,
    permitted: AtomicU64,
}

impl News {
    const STOPPED: u32 = 1;
    const BATTERY: u32 = 2;
    const MODE: u32 = 4;
    const PERMITTED: u32 = 8;
    const KINDS: usize = 4;

    fn change(&self, condition: Condition) {
        let which = match condition {
            Condition::Battery(battery) => {
                self.battery.store(battery, Ordering::Release);
                News::BATTERY
            }
            Condition::Mode(mode) => {
                self.mode.store(mode, Ordering::Release);
                News::MODE
            }
            Condition::Permitted(permitted) => {
                self.permitted.store(permitted, Ordering::Release);
                News::PERMITTED
            }
        };
        self.which.fetch_or(which, Ordering::AcqRel);
    }

    /// Whether it was stopped, since this was last asked.
    fn take_stop(&self) -> bool {
        self.which.load(Ordering::Acquire) & News::STOPPED != 0
            && self.which.fetch_and(!News::STOPPED, Ordering::AcqRel) & News::STOPPED != 0
    }

    /// What has become of the world; a stop stays.
    fn take(&self, said: &mut Vec<Event>) {
        if self.which.load(Ordering::Acquire) & !News::STOPPED == 0 {
            return;
        }
        let which = self.which.fetch_and(News::STOPPED, Ordering::AcqRel);
        let mut say = |bit: u32, event: Event| {
            if which & bit != 0 {
                said.push(event);
            }
        };
        say(News::BATTERY, Event::Changed(Condition::Battery(self.battery.load(Ordering::Acquire))));
        say(News::MODE, Event::Changed(Condition::Mode(self.mode.load(Ordering::Acquire))));
        say(News::PERMITTED, Event::Changed(Condition::Permitted(self.permitted.load(Ordering::Acquire))));
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
            said: Vec::with_capacity(News::KINDS),
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
pub(crate) struct Mailbox {
    letters: Letters,
    /// Tasks of which somebody has asked for jobs, a bit each.
    asked: Box<[AtomicU64]>,
    news: News,
    /// The dispatcher sleeps by it.
    pub(crate) bell: Bell,
    /// How often it had rung when this was last read, by whoever has the lock.
    read: AtomicU32,
}

impl Mailbox {
    /// For letters of so many tasks.
    pub(crate) fn new(tasks: usize) -> Mailbox {
        let asked = (0..tasks.div_ceil(WORD)).map(|_| AtomicU64::new(0)).collect();
        let (bell, read) = (Bell::new(), AtomicU32::new(0));
        Mailbox { letters: Letters::new(), asked, news: News::default(), bell, read }
    }

    /// The job of `task` is over.
    pub(crate) fn post(&self, task: TaskId, slots: &[Slot]) {
        self.letters.put(task.0, &slots[task.0 as usize].next);
        self.bell.ring();
    }

    /// Somebody wants a job of `task`.
    pub(crate) fn ask(&self, task: TaskId, slots: &[Slot]) {
        let at = task.0 as usize;
        slots[at].asked.fetch_add(1, Ordering::AcqRel);
        self.asked[at / WORD].fetch_or(1 << (at % WORD), Ordering::AcqRel);
        self.bell.ring();
    }

    /// The world has changed.
    pub(crate) fn change(&self, condition: Condition) {
        self.news.change(condition);
        self.bell.ring();
    }

    /// No job is to come any more.
    pub(crate) fn stop(&self) {
        self.news.which.fetch_or(News::STOPPED, Ordering::AcqRel);
        self.bell.ring();
    }

    /// Everything that was posted, oldest first, into `mail`, which is empty.
    pub(crate) fn take(&self, slots: &[Slot], mail: &mut Mail) {
        self.take_letting(slots, mail, || {});
    }

    /// The same; between two reads somebody else may do something.
    fn take_letting(&self, slots: &[Slot], mail: &mut Mail, mut others: impl FnMut()) {
        // Most steps find that nobody has.
        let rung = self.bell.heard();
        if self.read.load(Ordering::Relaxed) == rung {
            return;
        }
        self.read.store(rung, Ordering::Relaxed);
        // First, so that of what somebody has asked for before a stop nothing is found after it.
        let is_stopped = self.news.take_stop();
        others();
        self.letters.take(|who| &slots[who as usize].next, |who| mail.ended.push(TaskId(who)));
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
                let count = slots[at].asked.swap(0, Ordering::AcqRel);
                if count > 0 {
                    mail.asked.push((TaskId(at as u32), count));
                }
            }
        }
        others();
        // Last, so that whoever has said something and then asks for a job has it looked at before that job: a step does what is
        // said before what is asked for.
        self.news.take(&mut mail.said);
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
        let expected = [changed(Condition::Battery(7)), changed(Condition::Mode(2)), Event::Stopped];
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

    /// What steps would be told, in their order, if what `program` does falls into this gap of the first read.
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

    /// What is asked for and said from outside, in terms of the model checker: as [`Mailbox::ask`], [`Mailbox::change`],
    /// [`Mailbox::stop`] and [`Mailbox::take`] do it.
    mod interleaved {
        use loom::sync::Arc;
        use loom::sync::atomic::{AtomicU32, Ordering};
        use loom::thread;

        const STOPPED: u32 = 1;
        const CHANGED: u32 = 2;

        #[derive(Default)]
        struct Outside {
            count: AtomicU32,
            mark: AtomicU32,
            news: AtomicU32,
        }

        impl Outside {
            fn ask(&self) {
                self.count.fetch_add(1, Ordering::AcqRel);
                self.mark.fetch_or(1, Ordering::AcqRel);
            }

            fn say(&self, what: u32) {
                self.news.fetch_or(what, Ordering::AcqRel);
            }

            /// How many were asked for, and whether it was stopped.
            fn take(&self) -> (u32, bool) {
                let (count, stopped, _) = self.take_all();
                (count, stopped)
            }

            /// The same, and whether the world has changed.
            fn take_all(&self) -> (u32, bool, bool) {
                let heard = |what: u32| {
                    self.news.load(Ordering::Acquire) & what != 0
                        && self.news.fetch_and(!what, Ordering::AcqRel) & what != 0
                };
                let stopped = heard(STOPPED);
                let marked =
                    self.mark.load(Ordering::Relaxed) != 0 && self.mark.swap(0, Ordering::AcqRel) != 0;
                let count = if marked { self.count.swap(0, Ordering::AcqRel) } else { 0 };
                (count, stopped, heard(CHANGED))
            }
        }

        #[test]
        fn y14_in_every_interleaving_what_was_asked_for_before_a_stop_is_found_with_it_and_once() {
            // Few bugs need more than two preemptions (Musuvathi and Qadeer, PLDI 2007).
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(2);
            model.check(|| {
                let outside = Arc::new(Outside::default());
                let (first, other) = (Arc::clone(&outside), Arc::clone(&outside));
                // One asks and stops it; another one asks meanwhile.
                let stopping = thread::spawn(move || {
                    first.ask();
                    first.say(STOPPED);
                });
                let asking = thread::spawn(move || other.ask());
                let (mut found, mut stopped) = (0, false);
                for _ in 0..2 {
                    let (count, is_stopped) = outside.take();
                    found += count;
                    stopped |= is_stopped;
                    if stopped {
                        break;
                    }
                }
                assert!(!stopped || found >= 1, "its own was asked for before");
                stopping.join().unwrap();
                asking.join().unwrap();
                found += outside.take().0;
                assert_eq!(found, 2, "nothing is lost or doubled");
            });
        }

        #[test]
        fn y6_in_every_interleaving_what_is_said_before_a_job_is_asked_for_is_found_with_it_or_before() {
            loom::model(|| {
                let outside = Arc::new(Outside::default());
                let program = {
                    let outside = Arc::clone(&outside);
                    thread::spawn(move || {
                        outside.say(CHANGED);
                        outside.ask();
                    })
                };
                let (mut found, mut changed) = (0, false);
                for _ in 0..2 {
                    let (count, _, is_changed) = outside.take_all();
                    found += count;
                    changed |= is_changed;
                    assert!(changed || found == 0, "the job would have the world before");
                }
                program.join().unwrap();
                found += outside.take_all().0;
                assert_eq!(found, 1);
            });
        }
    }
}
