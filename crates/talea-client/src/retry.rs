//! Requests that meet a restart of the daemon, and are repeated without a second effect.
//!
//! Model: a request that was sent and not answered may have taken effect. What a repetition means
//! depends on the request:
//!
//! | request | repetition |
//! | --- | --- |
//! | a question, claim, change | has the same effect as once |
//! | release, detach, attach | a refusal that shows the effect of the first one counts as success |
//! | create, alone or as a group | first claims the specs by the tokens that the first one had |
//! | stop | none: it would stop the next daemon |

use crate::connection::{Connection, ConnectionError};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_proto::message::Token;
use talea_proto::{Code, Reply, Request, SpecId};

/// Maximum number of times that a request is sent: a request that ends the daemon must not end many
/// of them.
const SENDS_MAX: u32 = 5;
/// First pause between two attempts to connect; the pauses double.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
/// Longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// Attempts of one call.
#[derive(Debug)]
pub(crate) struct Attempts {
    deadline: Instant,
    pause: Duration,
    is_patient: bool,
    sends: u32,
    was_lost: bool,
    /// Token of the grant of a create request that was lost.
    token: Option<Token>,
}

impl Attempts {
    /// Creates the attempts of a call. A call that is not patient does not wait for a daemon.
    pub(crate) fn new(deadline: Instant, is_patient: bool) -> Attempts {
        let pause = FIRST_PAUSE;
        Attempts { deadline, pause, is_patient, sends: 0, was_lost: false, token: None }
    }

    /// Whether the call waits for a daemon.
    pub(crate) fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// Pauses before the next attempt to connect. Returns false if there is no time for one.
    pub(crate) fn pause(&mut self) -> bool {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if !mutate!("client-restart-wait", self.is_patient, false) || left <= self.pause {
            return false;
        }
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// Sends the request, or finds the effect of an earlier attempt.
    pub(crate) fn exchange(
        &mut self,
        connection: &mut Connection,
        request: &Request,
        fd: Option<BorrowedFd>,
    ) -> Result<Reply, ConnectionError> {
        self.sends += 1;
        let grants = granted_count(request);
        if let Some(token) = mutate!("client-lost-create", self.token.take(), None) {
            let found = recover(connection, request, token, self.deadline);
            if found.is_err() {
                self.token = Some(token);
            }
            if let Some(reply) = found? {
                return Ok(reply);
            }
            // Nothing was granted: the request is as if it had not been sent.
            self.was_lost = false;
        }
        if grants > 0 {
            connection.send_seed(self.deadline)?;
        }
        let sent = connection.exchange(request, fd, self.deadline);
        if let Err(ConnectionError::Lost(_)) = sent {
            self.was_lost = true;
            self.token = connection.last_token().filter(|_| grants > 0);
        }
        sent.map(|reply| if self.was_lost { settled(request, reply) } else { reply })
    }

    /// Whether the request may be repeated on a new connection after this error.
    pub(crate) fn may_repeat(&self, request: &Request, error: &ConnectionError) -> bool {
        if self.sends >= SENDS_MAX {
            return false;
        }
        match error {
            ConnectionError::NotSent(error) => is_gone(error),
            ConnectionError::Lost(_) if !self.is_patient => false,
            ConnectionError::Lost(_) => match request {
                Request::Stop { .. } => false,
                // Until the request itself is sent, nothing is granted.
                Request::Create(_) | Request::CreateGroup(_) => {
                    !self.was_lost || self.token.is_some()
                }
                _ => true,
            },
            _ => false,
        }
    }
}

/// Whether the error means that the other end has closed the connection.
pub(crate) fn is_gone(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected
    )
}

/// Returns the number of specs that a request creates.
fn granted_count(request: &Request) -> usize {
    match request {
        Request::Create(_) => 1,
        Request::CreateGroup(tasks) => tasks.len(),
        _ => 0,
    }
}

/// Claims the specs of a create request that was not answered. Returns the reply that was lost, or
/// `None` if the request had no effect. The daemon records a group one by one: a part of a group is
/// released.
fn recover(
    connection: &mut Connection,
    request: &Request,
    token: Token,
    deadline: Instant,
) -> Result<Option<Reply>, ConnectionError> {
    let count = granted_count(request);
    let mut found = Vec::new();
    for index in 0..count {
        let claim = Request::Claim { spec: SpecId(0), token: token.of_group(index) };
        match connection.exchange(&claim, None, deadline)? {
            Reply::Granted(granted) => found.push(granted),
            // Any other refusal leaves open whether the spec exists.
            Reply::Refused(refusal) if refusal.code != Code::NoSuchSpec => {
                return Err(ConnectionError::Lost(std::io::ErrorKind::ConnectionReset.into()));
            }
            _ => {}
        }
    }
    if found.len() == count {
        return Ok(Some(match (request, &*found) {
            (Request::Create(_), &[granted]) => Reply::Granted(granted),
            _ => Reply::GrantedGroup(found),
        }));
    }
    for granted in found {
        connection.exchange(&Request::Release(granted.spec), None, deadline)?;
    }
    Ok(None)
}

/// Returns the reply to a request whose first attempt may have taken effect.
fn settled(request: &Request, reply: Reply) -> Reply {
    let Reply::Refused(refusal) = &reply else { return reply };
    let has_taken_effect = match (request, refusal.code) {
        (Request::Release(_), Code::NoSuchSpec) | (Request::Detach(_), Code::NotAttached) => true,
        // The numbers are those of the threads.
        (Request::Attach { .. }, Code::SpecTaken) => refusal.asked == refusal.limit,
        _ => false,
    };
    if mutate!("client-repeated", has_taken_effect, false) { Reply::Done } else { reply }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talea_proto::{Field, Refusal, ThreadRef};

    fn refused(code: Code, asked: u64, limit: u64) -> Reply {
        Reply::Refused(Box::new(Refusal {
            asked,
            limit,
            ..crate::failure::refused_locally(code, Field::Request)
        }))
    }

    #[test]
    fn attack_19_a_refusal_that_shows_the_effect_of_the_lost_request_is_a_success() {
        let spec = SpecId(7);
        let attach = Request::Attach { spec, thread: ThreadRef::Pidfd };
        let (release, detach) = (Request::Release(spec), Request::Detach(spec));
        for (request, reply) in [
            (&release, refused(Code::NoSuchSpec, 0, 0)),
            (&detach, refused(Code::NotAttached, 0, 0)),
            (&attach, refused(Code::SpecTaken, 44, 44)),
        ] {
            assert_eq!(settled(request, reply), Reply::Done);
        }
        for (request, reply) in [
            (&attach, refused(Code::SpecTaken, 44, 45)),
            (&attach, refused(Code::NoSuchSpec, 0, 0)),
            (&detach, refused(Code::NoSuchSpec, 0, 0)),
            (&release, refused(Code::Busy, 0, 0)),
        ] {
            assert_eq!(settled(request, reply.clone()), reply);
        }
    }

    #[test]
    fn a_stop_is_not_repeated_and_other_requests_a_few_times() {
        let mut attempts = Attempts::new(Instant::now() + Duration::from_secs(9), true);
        let lost = ConnectionError::Lost(rustix::io::Errno::CONNRESET.into());
        assert!(!attempts.may_repeat(&Request::Stop { release: false }, &lost));
        assert!(attempts.may_repeat(&Request::Status, &lost));
        assert!(!attempts.may_repeat(&Request::Status, &ConnectionError::TimedOut));
        attempts.sends = SENDS_MAX;
        assert!(!attempts.may_repeat(&Request::Status, &lost));
        let impatient = Attempts::new(Instant::now() + Duration::from_secs(9), false);
        assert!(!impatient.may_repeat(&Request::Status, &lost));
    }
}
