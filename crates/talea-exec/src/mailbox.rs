//! What workers have to say to a dispatcher: that a job is over.
//!
//! Model: a list of workers ([`Letters`]), linked through their slots. A worker puts itself in front and rings; the
//! dispatcher takes the whole list at once. Nobody waits for anybody, and nobody can be in a list twice: a worker tells
//! the end of a job once, and gets the next one only after that was read.
//!
//! What comes from outside comes the same way: tasks of which somebody asks for jobs, each with how many; and what becomes of
//! the world, in a queue of its own. Whoever says that may be stopped in the middle, so no lock is taken here.

use crate::letters::Letters;
use crate::stage::Slot;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::Ordering;
use talea_core::machine::{Event, TaskId};
use talea_os::bell::Bell;

/// Things that may be said from outside and have not been read; more than that are not taken.
const SAID: usize = 64;

/// All that is read in one step; its room is made before the run.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Whose pieces are over, oldest first.
    pub(crate) ended: Vec<TaskId>,
    /// Of whom how many jobs were asked for.
    pub(crate) asked: Vec<(TaskId, u32)>,
    /// What has become of the world, oldest first.
    pub(crate) said: Vec<Event>,
}

impl Mail {
    /// Room for so many tasks.
    pub(crate) fn new(tasks: usize) -> Mail {
        Mail {
            ended: Vec::with_capacity(tasks),
            asked: Vec::with_capacity(tasks),
            said: Vec::with_capacity(SAID),
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
    asked: Letters,
    said: ArrayQueue<Event>,
    /// The dispatcher sleeps by it.
    pub(crate) bell: Bell,
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox {
            letters: Letters::new(),
            asked: Letters::new(),
            said: ArrayQueue::new(SAID),
            bell: Bell::new(),
        }
    }
}

impl Mailbox {
    /// The job of `task` is over.
    pub(crate) fn post(&self, task: TaskId, slots: &[Slot]) {
        self.letters.put(task.0, &slots[task.0 as usize].next);
        self.bell.ring();
    }

    /// Somebody wants a job of `task`.
    pub(crate) fn ask(&self, task: TaskId, slots: &[Slot]) {
        let slot = &slots[task.0 as usize];
        // In the list it is once: whoever makes the count one puts it there, and whoever takes it out makes the count none.
        if slot.asked.fetch_add(1, Ordering::AcqRel) == 0 {
            self.asked.put(task.0, &slot.next_asked);
        }
        self.bell.ring();
    }

    /// The world has changed; whether there was room to say so.
    pub(crate) fn say(&self, what: Event) -> bool {
        let is_said = self.said.push(what).is_ok();
        self.bell.ring();
        is_said
    }

    /// Everything that was posted, oldest first, into `mail`, which is empty.
    pub(crate) fn take(&self, slots: &[Slot], mail: &mut Mail) {
        self.letters.take(|who| &slots[who as usize].next, |who| mail.ended.push(TaskId(who)));
        mail.ended.reverse();
        self.asked.take(
            |who| &slots[who as usize].next_asked,
            |who| {
                let count = slots[who as usize].asked.swap(0, Ordering::AcqRel);
                mail.asked.push((TaskId(who), count));
            },
        );
        mail.asked.reverse();
        while mail.said.len() < SAID
            && let Some(what) = self.said.pop()
        {
            mail.said.push(what);
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
        let (mailbox, slots) = (Mailbox::default(), slots(4));
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
        let (mailbox, slots) = (Mailbox::default(), slots(TASKS as usize));
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
        let (mailbox, slots) = (Mailbox::default(), slots(2));
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
    fn what_is_said_is_read_in_order_and_too_much_is_refused() {
        let (mailbox, slots) = (Mailbox::default(), slots(0));
        let said = (0..=SAID).filter(|_| mailbox.say(Event::Timer)).count();
        assert_eq!(said, SAID);
        let mut mail = Mail::new(0);
        assert!(!mailbox.say(Event::Stopped));
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.said.len(), SAID);
        mail.clear();
        assert!(mailbox.say(Event::Stopped));
        mailbox.take(&slots, &mut mail);
        assert_eq!(mail.said, [Event::Stopped]);
    }
}
