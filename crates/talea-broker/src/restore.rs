//! The way back: a thread becomes again what it was before its grant (checklist R28).
//!
//! The books and the record let go only when the kernel has said that the thread is back: until
//! then it may still be real-time, and a daemon that starts in between must know. If the kernel
//! refuses the previous attributes (a CPU has gone, a limit has changed), ordinary ones on all CPUs
//! are tried, then ordinary ones wherever the thread is. If it refuses even these, a client that
//! asked is told so and keeps its grant; where nobody is left to ask again, it is tried once a
//! second until it succeeds or the thread ends.

use crate::broker::{Broker, Timer};
use crate::input::{Effect, Errno, LogEvent};
use crate::refuse::{ESRCH, kernel};
use crate::spec::{Asker, Restoring, Step};
use crate::suite::Slot;
use crate::threads::RETRY_AFTER;
use talea_core::mutate;
use talea_proto::message::But;
use talea_proto::{Refusal, Reply};

/// What a restoration is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A first apply was refused: nothing was granted, and what the kernel will not take back was
    /// never given.
    Courtesy,
    /// The spec stays.
    Detach,
    /// The spec ends, as its client asked.
    Release,
    /// The spec ends because its owner has ended, or the daemon is told to give everything back.
    Stubborn,
}

impl Broker {
    /// Sends the thread of a spec back, and answers when it has arrived.
    pub(crate) fn start_restore(
        &mut self,
        slot: u32,
        asker: Option<Asker>,
        answer: Option<Box<Refusal>>,
        way: Way,
    ) {
        if self.specs.at(slot).booked {
            self.suite.attached(Slot(slot), false);
        }
        let spec = self.specs.at_mut(slot);
        if let Some(at) = spec.thread.as_mut().and_then(|thread| thread.retry_at.take()) {
            self.timers.remove(&(at, Timer::Retry(slot)));
        }
        let spec = self.specs.at_mut(slot);
        spec.step =
            Step::Restoring(Restoring { refused: 0, errno: ESRCH, asker, answer, but: None, way });
        self.order_restore(slot);
    }

    /// Orders the next set of attributes.
    pub(crate) fn order_restore(&mut self, slot: u32) {
        let (ticket, ordinary) = (self.ticket(slot), self.ordinary());
        let spec = self.specs.at_mut(slot);
        let Step::Restoring(restoring) = &spec.step else { unreachable!("only on the way back") };
        let attached = spec.thread.as_mut().expect("only threads are sent back");
        let attr = match restoring.refused {
            0 => attached.previous,
            1 => ordinary,
            _ => Broker::leave_cpus(ordinary),
        };
        attached.ticket = Some(ticket);
        let thread = attached.thread;
        self.emit(Effect::Restore { ticket, thread, attr });
    }

    pub(crate) fn restore_done(
        &mut self,
        slot: u32,
        mut restoring: Restoring,
        result: Result<(), Errno>,
    ) {
        let errno = match result {
            // The kernel would not take what it was before.
            Ok(()) if restoring.refused > 0 => {
                let was_urgent = (self.specs.at(slot).thread.as_ref())
                    .is_some_and(|thread| thread.previous.policy.is_real_time());
                let but = if was_urgent || restoring.refused > 1 {
                    But::Demoted { errno: restoring.errno.0 }
                } else {
                    But::Wider
                };
                return self.restored_but(slot, restoring, but);
            }
            Ok(()) | Err(ESRCH) => return self.restored(slot, restoring),
            Err(errno) => errno,
        };
        if restoring.refused == 0 {
            restoring.errno = errno;
        }
        restoring.refused += 1;
        if restoring.refused < 3 {
            self.specs.at_mut(slot).step = Step::Restoring(restoring);
            return self.order_restore(slot);
        }
        self.give_up(slot, restoring);
    }

    /// The thread is back, or has ended.
    pub(crate) fn restored(&mut self, slot: u32, restoring: Restoring) {
        let Restoring { asker, answer, but, way, .. } = restoring;
        let free_at = self.zero_lag(slot).filter(|_| way != Way::Courtesy);
        self.strike_thread(slot);
        if way != Way::Courtesy && self.specs.at(slot).booked {
            self.tell_detached(slot);
        }
        match way {
            Way::Release | Way::Stubborn => self.drop_spec(slot, free_at),
            Way::Courtesy | Way::Detach => {
                self.keep_lag(slot, free_at);
                self.emit(Effect::Remember { slot });
            }
        }
        if let Some(asker) = asker {
            let done = but.map_or(Reply::Done, Reply::DoneBut);
            self.conclude(asker, answer.map_or(Ok(done), Err));
        }
        if way == Way::Courtesy || way == Way::Detach {
            self.reconsider(slot);
        }
    }

    /// The kernel took none of the three.
    fn give_up(&mut self, slot: u32, mut restoring: Restoring) {
        let (errno, now) = (restoring.errno, self.now);
        let attached = self.specs.at_mut(slot).thread.as_mut().expect("it could not be sent back");
        let (tid, first) = (attached.tid, !std::mem::replace(&mut attached.failing, true));
        if first {
            self.log(LogEvent::RestoreFailed { tid, errno });
        }
        match restoring.way {
            Way::Courtesy => self.restored(slot, restoring),
            Way::Detach | Way::Release => {
                self.suite.attached(Slot(slot), true);
                if let Some(asker) = restoring.asker {
                    self.refuse(asker, kernel(errno));
                }
                // Some of it may have been done.
                let attr = self.suite.attr(Slot(slot));
                self.order(slot, attr);
                self.reconsider(slot);
            }
            Way::Stubborn => {
                if let Some(asker) = restoring.asker.take() {
                    self.refuse(asker, kernel(errno));
                }
                restoring.refused = 0;
                let at = now.saturating_add(RETRY_AFTER);
                let spec = self.specs.at_mut(slot);
                spec.step = Step::Restoring(restoring);
                spec.thread.as_mut().expect("it could not be sent back").retry_at = Some(at);
                mutate!(
                    "recovery-refused-restore",
                    {
                        self.timers.insert((at, Timer::Retry(slot)));
                    },
                    {}
                );

                self.stuck += 1;
            }
        }
    }
}
