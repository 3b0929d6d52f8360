//! A connection that heals itself, and what is held through it.
//!
//! Model: [`Session`] remembers every spec that the daemon has granted through it, with its token.
//! When the connection is gone, the next request first makes a new one and claims them all; a spec
//! that the daemon does not know any more is *lost*, which its grant can tell.
//!
//! A request that could not be sent is sent again on the new connection. One that was sent and
//! never answered is not: nobody knows whether it came to pass.
//!
//! A child of a fork has its parent's memory but is another client: it starts with a connection of
//! its own and holds nothing, so that it neither reads its parent's replies nor gives back its
//! parent's grants. It also has a lock of its own: its copy of the parent's may be held by a thread
//! that it does not have.

use crate::connection::{Broken, Connection};
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_os::process;
use talea_proto::{Granted, Reply, Request, SpecId, VERSION};

/// What clones of a client and its grants share.
#[derive(Debug)]
pub(crate) struct Session {
    path: PathBuf,
    timeout: Duration,
    own: Own,
}

/// What belongs to one process, and behind it what belongs to its child.
#[derive(Debug)]
struct Own {
    process: u32,
    state: Mutex<State>,
    child: OnceLock<Box<Own>>,
}

#[derive(Debug)]
struct State {
    connection: Option<Connection>,
    /// The daemon's instance at the last welcome.
    instance: Option<u64>,
    held: BTreeMap<SpecId, Held>,
    /// Held, but nobody wants them any more: to be given back as soon as there is a connection.
    unwanted: Vec<SpecId>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    granted: Granted,
    lost: bool,
}

impl State {
    fn new() -> State {
        State { connection: None, instance: None, held: BTreeMap::new(), unwanted: Vec::new() }
    }
}

impl Own {
    fn new() -> Own {
        Own { process: process::id(), state: Mutex::new(State::new()), child: OnceLock::new() }
    }
}

impl Session {
    pub(crate) fn new(path: PathBuf, timeout: Duration) -> Session {
        // Zero would mean to wait for ever.
        let timeout = timeout.max(Duration::from_millis(1));
        Session { path, timeout, own: Own::new() }
    }

    /// Makes sure that there is a connection.
    pub(crate) fn connect(&self) -> Result<(), Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        if state.connection.is_none() {
            self.reconnect(&mut state, deadline)?;
        }
        Ok(())
    }

    /// Asks, and waits for the answer for at most the time-out, connecting included.
    pub(crate) fn ask(&self, request: &Request, fd: Option<BorrowedFd>) -> Result<Reply, Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let reply = self.ask_locked(&mut state, request, fd, deadline)?;
        Session::give_orphans_back(&mut state, deadline);
        Ok(reply)
    }

    /// As [`Session::ask`] for a request that grants: what was granted is held from here on.
    pub(crate) fn ask_and_hold(&self, request: &Request) -> Result<Reply, Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let reply = self.ask_locked(&mut state, request, None, deadline)?;
        let granted = match &reply {
            Reply::Granted(granted) => std::slice::from_ref(granted),
            Reply::GrantedGroup(group) => group,
            _ => &[],
        };
        for granted in granted {
            state.held.insert(granted.spec, Held { granted: *granted, lost: false });
        }
        Session::give_orphans_back(&mut state, deadline);
        Ok(reply)
    }

    /// Gives a spec back. What is held is only forgotten when the daemon has answered: until then a
    /// new connection must claim it, or it could not be given back there.
    pub(crate) fn release(&self, spec: SpecId) -> Result<Reply, Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let reply = self.ask_locked(&mut state, &Request::Release(spec), None, deadline);
        if reply.is_ok() {
            state.held.remove(&spec);
        } else if state.held.contains_key(&spec) {
            state.unwanted.push(spec);
        }
        Session::give_orphans_back(&mut state, deadline);
        reply
    }

    /// What is known here of a spec; `None` in a child of the process that was granted it.
    pub(crate) fn held(&self, spec: SpecId) -> Option<Granted> {
        self.lock().held.get(&spec).map(|held| held.granted)
    }

    /// Whether the daemon was asked for this spec after a reconnection and did not know it.
    pub(crate) fn is_lost(&self, spec: SpecId) -> bool {
        self.lock().held.get(&spec).is_none_or(|held| held.lost)
    }

    /// Stops holding a spec; it is not claimed again.
    pub(crate) fn forget(&self, spec: SpecId) {
        self.lock().held.remove(&spec);
    }

    pub(crate) fn instance(&self) -> Option<u64> {
        self.lock().instance
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let process = process::id();
        let mut own = &self.own;
        mutate!(
            "recovery-client-fork",
            while own.process != process {
                // Closing our copy of the descriptor does not end the parent's connection. If the
                // lock is held, its holder has stayed behind in the parent, and the copy is closed
                // at the end or by `exec`.
                if let Ok(mut parents) = own.state.try_lock() {
                    parents.connection = None;
                }
                own = own.child.get_or_init(|| Box::new(Own::new()));
            },
            while own.process != process && process == 0 {
                // Closing our copy of the descriptor does not end the parent's connection. If the
                // lock is held, its holder has stayed behind in the parent, and the copy is closed
                // at the end or by `exec`.
                if let Ok(mut parents) = own.state.try_lock() {
                    parents.connection = None;
                }
                own = own.child.get_or_init(|| Box::new(Own::new()));
            }
        );
        // A panic of another thread leaves the state as it was between two of its steps.
        own.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask_locked(
        &self,
        state: &mut State,
        request: &Request,
        fd: Option<BorrowedFd>,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let mut fresh = false;
        loop {
            if state.connection.is_none() {
                self.reconnect(state, deadline)?;
                fresh = true;
            }
            let connection = state.connection.as_mut().expect("just connected");
            match connection.exchange(request, fd, deadline) {
                Ok(reply) => return Ok(reply),
                // The daemon is slow, not gone: its reply is thrown away when it comes.
                Err(Broken::TimedOut) => return Err(self.timed_out()),
                Err(Broken::NotSent(error)) if is_gone(&error) && !fresh => state.connection = None,
                Err(broken) => {
                    state.connection = None;
                    return Err(self.failure(broken));
                }
            }
        }
    }

    /// Connects, says hello, claims what is held.
    fn reconnect(&self, state: &mut State, deadline: Instant) -> Result<(), Failure> {
        state.connection = None;
        let mut connection =
            Connection::open(&self.path, self.timeout).map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => self.timed_out(),
                _ => self.connection("connect", error),
            })?;
        let mut ask = |request: &Request| {
            connection.exchange(request, None, deadline).map_err(|broken| self.failure(broken))
        };
        let instance = match ask(&Request::Hello { min: VERSION, max: VERSION })? {
            Reply::Welcome { version: VERSION, instance } => instance,
            Reply::Refused(refusal) => return Err(Failure::Rejected(refusal)),
            other => return Err(unexpected(&other)),
        };
        for (&spec, held) in state.held.iter_mut().filter(|(_, held)| !held.lost) {
            match ask(&Request::Claim { spec, token: held.granted.token })? {
                Reply::Granted(granted) => held.granted = granted,
                Reply::Refused(_) => held.lost = true,
                other => return Err(unexpected(&other)),
            }
        }
        state.instance = Some(instance);
        state.connection = Some(connection);
        Ok(())
    }

    /// Releases what was granted to requests that had been given up on, and what could not be
    /// released before.
    fn give_orphans_back(state: &mut State, deadline: Instant) {
        while let Some(connection) = state.connection.as_mut() {
            let Some(spec) = mutate!(
                "recovery-client-orphan",
                connection.take_orphan().or_else(|| state.unwanted.pop()),
                state.unwanted.pop()
            ) else {
                return;
            };
            match connection.exchange(&Request::Release(spec), None, deadline) {
                Ok(_) => drop(state.held.remove(&spec)),
                Err(broken) => {
                    state.unwanted.push(spec);
                    if !matches!(broken, Broken::TimedOut) {
                        state.connection = None;
                    }
                    return;
                }
            }
        }
    }

    /// Counted from before the wait for other threads' requests.
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn failure(&self, broken: Broken) -> Failure {
        match broken {
            Broken::NotSent(source) => self.connection("send", source),
            Broken::Lost(source) => self.connection("receive", source),
            Broken::TimedOut => self.timed_out(),
            Broken::Rejected(refusal) => Failure::Rejected(refusal),
            Broken::Garbled(refusal) => Failure::Protocol(refusal.to_string()),
        }
    }

    fn connection(&self, doing: &'static str, source: io::Error) -> Failure {
        Failure::Connection { path: self.path.clone(), doing, source }
    }

    fn timed_out(&self) -> Failure {
        Failure::TimedOut { path: self.path.clone(), after: self.timeout }
    }
}

/// Whether the other end has closed.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    )
}

/// A reply to something else.
pub(crate) fn unexpected(reply: &Reply) -> Failure {
    let text = format!("{reply:?}");
    let end = text.floor_char_boundary(60);
    Failure::Protocol(format!("a reply to something else: {}", &text[..end]))
}
