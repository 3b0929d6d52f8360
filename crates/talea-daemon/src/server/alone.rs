//! A busy connection that has the daemon to itself is watched for arrivals.
//!
//! A level-triggered set looks at a connection once more after each message, for whether there is
//! another. Who asks, waits for the answer and asks again never has another. So a connection that
//! was the only one to be heard in [`LONG`] rounds within one [`INTERVAL`] is reported when a
//! message arrives, and no longer while one is there.
//!
//! Invariant: nothing stays unread. Of requests that are sent ahead of the answers, two may arrive
//! before the first is reported, and then there is no arrival left to report the second. So while a
//! connection is watched for arrivals there is a beat: if something lies unread then, or nothing
//! was heard since the last one, what is there counts again. So it does as soon as anybody else is
//! heard. A request waits for at most two beats, and who was found to ask ahead time and again is
//! not watched for arrivals any more.

use super::Server;
use super::token::Token;
use std::io;
use talea_core::mutate;
use talea_core::{Span, Time};
use talea_os::alarm::Alarm;
use talea_os::epoll::{Epoll, Events, Interest};

/// Rounds without anybody else after which a connection is taken for alone.
const LONG: u32 = 16;
/// From one beat to the next; also the time within which those rounds must be.
const INTERVAL: Span = Span::from_ns(20_000_000);

/// Rounds, one after the other, in which the same connection was heard and nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    id: u64,
    rounds: u32,
    since: Time,
}

impl Run {
    /// With one more round, in which `id` was heard.
    fn and(run: Option<Run>, id: u64, now: Time) -> Run {
        let goes_on = |run: &Run| {
            mutate!(
                "daemon-arrivals-run",
                run.id == id && now.since(run.since) <= INTERVAL,
                now.since(run.since) <= INTERVAL
            )
        };
        let run = run.filter(goes_on).unwrap_or(Run { id, rounds: 0, since: now });
        Run { rounds: run.rounds + 1, ..run }
    }
}

/// Who may be alone; who is, the sessions know.
#[derive(Debug)]
pub(super) struct Alone {
    run: Option<Run>,
    /// Whether whoever is watched for arrivals was heard since the last beat.
    heard: bool,
    /// The next beat.
    beat: Alarm,
}

impl Alone {
    /// Nobody yet.
    pub(super) fn new(epoll: &Epoll) -> io::Result<Alone> {
        let beat = Alarm::new()?;
        epoll.add(&beat, Interest::ARRIVAL, Token::Beat.pack())?;
        Ok(Alone { run: None, heard: false, beat })
    }
}

impl Server {
    /// Notes who was heard in this round: the connection that alone had something to say, if that
    /// is all there was.
    #[inline]
    pub(super) fn note_speaker(&mut self, now: Time, events: &Events) -> Option<u64> {
        if let Some(event) = events.sole()
            && !event.is_hangup()
            && let Token::Session(id) = Token::unpack(event.token)
        {
            if self.sessions.alone() == Some(id) {
                self.alone.heard = true;
            } else {
                mutate!(
                    "daemon-arrivals-beside",
                    {
                        self.watch_levels();
                    },
                    {}
                );

                self.alone.run = Some(Run::and(self.alone.run, id, now));
            }
            return Some(id);
        }
        if events.iter().any(|event| Token::unpack(event.token) != Token::Beat) {
            self.alone.run = None;
            self.watch_levels();
        }
        None
    }

    /// After its message was served: from now on it may be watched for arrivals.
    #[inline]
    pub(super) fn consider_alone(&mut self) {
        if let Some(Run { id, rounds: LONG.., .. }) = self.alone.run {
            self.alone.run = None;
            self.watch_arrivals(id);
        }
    }

    #[cold]
    fn watch_arrivals(&mut self, id: u64) {
        if self.sessions.awaits_answers(id) {
            self.sessions.watch_arrivals(Some(id), &self.epoll);
            self.alone.heard = true;
            self.alone.beat.set(INTERVAL);
        }
    }

    /// Looks after whoever is watched for arrivals.
    pub(super) fn on_beat(&mut self) {
        let heard = std::mem::take(&mut self.alone.heard);
        if self.sessions.has_asked_ahead() || !heard {
            mutate!(
                "daemon-arrivals-beat",
                {
                    self.watch_levels();
                },
                {}
            );
        } else {
            self.alone.beat.set(INTERVAL);
        }
    }

    /// What is there counts again, for everybody.
    fn watch_levels(&mut self) {
        if self.sessions.alone().is_some() {
            self.sessions.watch_arrivals(None, &self.epoll);
            self.alone.heard = false;
            self.alone.beat.set(Span::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_another_speaker_and_with_its_time() {
        let at = |ns| Time::from_ns(ns);
        let first = Run::and(None, 1, at(5));
        assert_eq!(first, Run { id: 1, rounds: 1, since: at(5) });
        let second = Run::and(Some(first), 1, at(6));
        assert_eq!(second, Run { id: 1, rounds: 2, since: at(5) });
        assert_eq!(Run::and(Some(second), 2, at(7)), Run { id: 2, rounds: 1, since: at(7) });
        let last = at(5) + INTERVAL;
        assert_eq!(Run::and(Some(second), 1, last), Run { id: 1, rounds: 3, since: at(5) });
        let late = last + Span::from_ns(1);
        assert_eq!(Run::and(Some(second), 1, late), Run { id: 1, rounds: 1, since: late });
    }
}
