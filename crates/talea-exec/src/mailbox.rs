//! What workers have to say to a dispatcher: that a job is over.
//!
//! Model: a list of workers ([`Letters`]), linked through their slots. A worker puts itself in front and rings; the
//! dispatcher takes the whole list at once. Nobody waits for anybody, and nobody can be in a list twice: a worker tells
//! the end of a job once, and gets the next one only after that was read.

use crate::letters::Letters;
use crate::stage::Slot;
use talea_core::machine::TaskId;
use talea_os::bell::Bell;

/// Of one dispatcher.
#[derive(Debug)]
pub(crate) struct Mailbox {
    letters: Letters,
    /// The dispatcher sleeps by it.
    pub(crate) bell: Bell,
}

impl Default for Mailbox {
    fn default() -> Mailbox {
        Mailbox { letters: Letters::new(), bell: Bell::new() }
    }
}

impl Mailbox {
    /// The job of `task` is over.
    pub(crate) fn post(&self, task: TaskId, slots: &[Slot]) {
        self.letters.put(task.0, &slots[task.0 as usize].next);
        self.bell.ring();
    }

    /// Everything that was posted, oldest first, into `ended`, which is empty.
    pub(crate) fn take(&self, slots: &[Slot], ended: &mut Vec<TaskId>) {
        self.letters.take(|who| &slots[who as usize].next, |who| ended.push(TaskId(who)));
        ended.reverse();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_core::Time;

    fn slots(n: usize) -> Vec<Slot> {
        (0..n).map(|_| Slot::default()).collect()
    }

    #[test]
    fn letters_are_read_in_the_order_in_which_they_came_and_once() {
        let (mailbox, slots) = (Mailbox::default(), slots(4));
        let mut ended = Vec::new();
        for task in [2, 0, 3] {
            mailbox.post(TaskId(task), &slots);
        }
        mailbox.take(&slots, &mut ended);
        assert_eq!(ended, [TaskId(2), TaskId(0), TaskId(3)]);
        ended.clear();
        mailbox.take(&slots, &mut ended);
        assert_eq!(ended, []);
        mailbox.post(TaskId(0), &slots);
        mailbox.take(&slots, &mut ended);
        assert_eq!(ended, [TaskId(0)]);
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
            let (mut seen, mut ended) = (0, Vec::new());
            while seen < TASKS * ROUNDS {
                let heard = mailbox.bell.heard();
                ended.clear();
                mailbox.take(&slots, &mut ended);
                seen += ended.len() as u32;
                for task in &ended {
                    go[task.0 as usize].ring();
                }
                if ended.is_empty() {
                    mailbox.bell.wait(heard, Time::NEVER);
                }
            }
        });
    }
}
