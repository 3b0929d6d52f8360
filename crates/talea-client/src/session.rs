//! Connection that is re-established when it breaks, with the specs granted through it.
//!
//! Model: [`Session`] remembers every spec that the daemon has granted through it, with the spec's
//! token. If the connection has ended, the next request first makes a new connection and claims all
//! specs. A spec that the daemon no longer knows is *lost*, which its grant reports.
//!
//! While a daemon restarts, a call waits for the next one, up to its time-out, and repeats its
//! request: see `retry.rs`. A session that has waited in vain does not wait again until it has
//! found a daemon. Before its first connection, a session waits only if a socket exists that no
//! process answers, which a killed daemon has left.
//!
//! The daemon gives a process that connects again a few seconds to claim the grants of the daemon
//! before. Therefore the session that detects a restart lets all sessions of the process claim
//! theirs, also those of clients that make no requests. Another copy of the library in the process
//! has sessions of its own, and the daemon expects its claims when it connects itself.
//!
//! A child of a fork has its parent's memory but is another client. The child starts with a
//! connection of its own and holds nothing, so that it neither reads its parent's replies nor
//! releases its parent's grants. The child also has a lock of its own: a thread that does not exist
//! in the child may hold the copy of the parent's lock.

use crate::connection::{Connection, ConnectionError};
use crate::failure::Failure;
use crate::retry::{Attempts, is_gone};
use crate::siblings::Siblings;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use talea_core::mutate;
use talea_os::process;
use talea_proto::{Code, Granted, Reply, Request, SpecId, VERSION};

/// Sessions of this process. A session that is not registered reconnects with its own next request.
static SESSIONS: Siblings<Session> = Siblings::new();

/// State shared by the clones of a client and its grants.
#[derive(Debug)]
pub(crate) struct Session {
    path: PathBuf,
    timeout: Duration,
    /// Process that the session acts for, with its user.
    acts_for: Option<(OwnedFd, u32)>,
    per_process: PerProcess,
}

/// State of one process, and the link to the state of a child process.
#[derive(Debug)]
struct PerProcess {
    process: u32,
    state: Mutex<State>,
    child: OnceLock<Box<PerProcess>>,
}

#[derive(Debug)]
struct State {
    connection: Option<Connection>,
    /// Instance of the daemon at the last welcome.
    instance: Option<u64>,
    held: BTreeMap<SpecId, HeldGrant>,
    /// Specs that the caller has dropped. The session releases them as soon as there is a
    /// connection.
    to_release: Vec<SpecId>,
    /// Whether a call has waited for a daemon in vain.
    has_given_up: bool,
}

/// Reason why there is no connection.
#[derive(Debug)]
enum NoConnection {
    /// The daemon may be restarting.
    Passing(Failure),
    /// Waiting would not help.
    Final(Failure),
}

#[derive(Clone, Copy, Debug)]
struct HeldGrant {
    granted: Granted,
    lost: bool,
}

impl State {
    fn new() -> State {
        State {
            connection: None,
            instance: None,
            held: BTreeMap::new(),
            to_release: Vec::new(),
            has_given_up: false,
        }
    }
}

impl PerProcess {
    fn new() -> PerProcess {
        PerProcess {
            process: process::id(),
            state: Mutex::new(State::new()),
            child: OnceLock::new(),
        }
    }
}

impl Session {
    /// Creates a session and registers it.
    pub(crate) fn new(
        path: PathBuf,
        timeout: Duration,
        acts_for: Option<(OwnedFd, u32)>,
    ) -> Arc<Session> {
        // Zero would mean to wait forever.
        let timeout = timeout.max(Duration::from_millis(1));
        let per_process = PerProcess::new();
        let session = Arc::new(Session { path, timeout, acts_for, per_process });
        SESSIONS.register(&session);
        session
    }

    /// Connects if there is no connection.
    pub(crate) fn connect(&self) -> Result<(), Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let mut attempts = Attempts::new(deadline, !state.has_given_up);
        self.reconnect(&mut state, &mut attempts, deadline)
    }

    /// Sends a request and waits for the reply for at most the time-out, including the time to
    /// connect.
    pub(crate) fn ask(&self, request: &Request, fd: Option<BorrowedFd>) -> Result<Reply, Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let reply = self.ask_locked(&mut state, request, fd, deadline, true)?;
        Session::release_unclaimed(&mut state, deadline);
        Ok(reply)
    }

    /// Variant of [`Session::ask`] for a request that grants specs. The session holds the granted
    /// specs from then on.
    pub(crate) fn ask_and_hold(&self, request: &Request) -> Result<Reply, Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let reply = self.ask_locked(&mut state, request, None, deadline, true)?;
        let granted = match &reply {
            Reply::Granted(granted) => std::slice::from_ref(granted),
            Reply::GrantedGroup(group) => group,
            _ => &[],
        };
        for granted in granted {
            state.held.insert(granted.spec, HeldGrant { granted: *granted, lost: false });
        }
        Session::release_unclaimed(&mut state, deadline);
        Ok(reply)
    }

    /// Releases a spec. The session forgets the spec only when the daemon has answered. Until then
    /// a new connection must claim the spec, or could not release it.
    pub(crate) fn release(&self, spec: SpecId) -> Result<Reply, Failure> {
        self.release_spec(spec, true)
    }

    /// Releases a spec now, or with the next request if there is no daemon. Does not wait for a
    /// daemon: a program with many grants must be able to end.
    pub(crate) fn release_soon(&self, spec: SpecId) {
        drop(self.release_spec(spec, false));
    }

    fn release_spec(&self, spec: SpecId, is_patient: bool) -> Result<Reply, Failure> {
        let deadline = self.deadline();
        let mut state = self.lock();
        let request = Request::Release(spec);
        let reply = self.ask_locked(&mut state, &request, None, deadline, is_patient);
        if reply.is_ok() {
            state.held.remove(&spec);
        } else if state.held.contains_key(&spec) {
            state.to_release.push(spec);
        }
        Session::release_unclaimed(&mut state, deadline);
        reply
    }

    /// Returns what the daemon granted for a spec. Returns `None` in a child of the process that
    /// requested the grant.
    pub(crate) fn held(&self, spec: SpecId) -> Option<Granted> {
        self.lock().held.get(&spec).map(|held| held.granted)
    }

    /// Whether the session does not hold this spec, or the daemon did not know it after a
    /// reconnection.
    pub(crate) fn is_lost(&self, spec: SpecId) -> bool {
        self.lock().held.get(&spec).is_none_or(|held| held.lost)
    }

    /// Forgets a spec, so that the session does not claim it again.
    pub(crate) fn forget(&self, spec: SpecId) {
        self.lock().held.remove(&spec);
    }

    pub(crate) fn instance(&self) -> Option<u64> {
        self.lock().instance
    }

    /// Claims the grants of this session from instance `instance` of the daemon of `other`, unless
    /// the session is in use: then it detects the restart itself.
    pub(crate) fn claim_from(&self, other: &Session, instance: u64, deadline: Instant) {
        let mut state = match self.own().state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let holds = state.held.values().any(|held| !held.lost);
        if holds && self.path == other.path && state.instance != Some(instance) {
            // The next request of the session tries again.
            drop(self.connect_once(&mut state, deadline));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves the state as it was between two of its steps.
        self.own().state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of this process.
    fn own(&self) -> &PerProcess {
        let process = process::id();
        let mut own = &self.per_process;
        while mutate!("recovery-client-fork", own.process != process, false) {
            // Closing our copy of the descriptor does not end the parent's connection. If the lock
            // is held, its holder has stayed behind in the parent, and the copy is closed at the
            // end or by `exec`.
            if let Ok(mut parents) = own.state.try_lock() {
                parents.connection = None;
            }
            own = own.child.get_or_init(|| Box::new(PerProcess::new()));
        }
        own
    }

    fn ask_locked(
        &self,
        state: &mut State,
        request: &Request,
        fd: Option<BorrowedFd>,
        deadline: Instant,
        is_patient: bool,
    ) -> Result<Reply, Failure> {
        let mut attempts = Attempts::new(deadline, is_patient && !state.has_given_up);
        loop {
            self.reconnect(state, &mut attempts, deadline)?;
            let connection = state.connection.as_mut().expect("just connected");
            match attempts.exchange(connection, request, fd) {
                Ok(reply) => return Ok(reply),
                // The daemon is slow, not gone: its reply is discarded when it arrives.
                Err(ConnectionError::TimedOut) => return Err(self.timed_out()),
                Err(broken) => {
                    state.connection = None;
                    if !attempts.may_repeat(request, &broken) {
                        return Err(self.failure(broken));
                    }
                }
            }
        }
    }

    /// Connects if there is no connection, and waits for a daemon that restarts.
    fn reconnect(
        &self,
        state: &mut State,
        attempts: &mut Attempts,
        deadline: Instant,
    ) -> Result<(), Failure> {
        if state.connection.is_some() {
            return Ok(());
        }
        let before = state.instance;
        loop {
            match self.connect_once(state, deadline) {
                Ok(()) => break,
                Err(NoConnection::Passing(_)) if attempts.pause() => {}
                Err(NoConnection::Passing(failure)) => {
                    state.has_given_up |= attempts.is_patient();
                    return Err(failure);
                }
                Err(NoConnection::Final(failure)) => return Err(failure),
            }
        }
        state.has_given_up = false;
        if let Some(instance) =
            state.instance.filter(|_| before.is_some() && before != state.instance)
        {
            for other in SESSIONS.others(self) {
                other.claim_from(self, instance, deadline);
            }
        }
        Ok(())
    }

    /// Connects to the daemon, sends the hello, and claims all specs.
    fn connect_once(&self, state: &mut State, deadline: Instant) -> Result<(), NoConnection> {
        state.connection = None;
        let timeout = deadline.saturating_duration_since(Instant::now()).min(self.timeout);
        let was_connected = state.instance.is_some();
        let mut connection =
            Connection::open(&self.path, self.timeout, timeout).map_err(|error| {
                let is_passing = match error.kind() {
                    io::ErrorKind::TimedOut => return NoConnection::Final(self.timed_out()),
                    // A killed daemon has left its socket.
                    io::ErrorKind::ConnectionRefused => true,
                    io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => was_connected,
                    _ => is_gone(&error),
                };
                let failure = self.connection("connect", error);
                if is_passing {
                    NoConnection::Passing(failure)
                } else {
                    NoConnection::Final(failure)
                }
            })?;
        let failed = |broken: ConnectionError| match &broken {
            ConnectionError::Lost(_) => NoConnection::Passing(self.failure(broken)),
            ConnectionError::NotSent(error) if is_gone(error) => {
                NoConnection::Passing(self.failure(broken))
            }
            _ => NoConnection::Final(self.failure(broken)),
        };
        let hello = Request::Hello { min: VERSION, max: VERSION };
        let instance = match connection.exchange(&hello, None, deadline).map_err(failed)? {
            Reply::Welcome { version: VERSION, instance } => instance,
            Reply::Refused(refusal) => {
                return Err(NoConnection::Final(Failure::Rejected(refusal)));
            }
            other => return Err(NoConnection::Final(unexpected(&other))),
        };
        if let Some((process, uid)) = &self.acts_for {
            let request = Request::ActFor { uid: *uid };
            match connection.exchange(&request, Some(process.as_fd()), deadline).map_err(failed)? {
                Reply::Done => {}
                Reply::Refused(refusal) => {
                    return Err(NoConnection::Final(Failure::Rejected(refusal)));
                }
                other => return Err(NoConnection::Final(unexpected(&other))),
            }
        }
        let is_restarted = was_connected && state.instance != Some(instance);
        if mutate!("recovery-client-seed", is_restarted, false) {
            // The daemon expects the claims of this library, and of no other copy in the process.
            connection.send_seed(deadline).map_err(failed)?;
        }
        let mut ask =
            |request: &Request| connection.exchange(request, None, deadline).map_err(failed);
        for (&spec, held) in state
            .held
            .iter_mut()
            .filter(|(_, held)| mutate!("recovery-client-claim", !held.lost, false))
        {
            match ask(&Request::Claim { spec, token: held.granted.token })? {
                Reply::Granted(granted) => held.granted = granted,
                // The daemon stops, or it still works on the thread of the spec.
                Reply::Refused(refusal) if matches!(refusal.code, Code::Stopping | Code::Busy) => {
                    return Err(NoConnection::Passing(Failure::Rejected(refusal)));
                }
                Reply::Refused(_) => held.lost = true,
                other => return Err(NoConnection::Final(unexpected(&other))),
            }
        }
        state.instance = Some(instance);
        state.connection = Some(connection);
        Ok(())
    }

    /// Releases the specs granted to abandoned requests, and the specs that could not be released
    /// before.
    fn release_unclaimed(state: &mut State, deadline: Instant) {
        while let Some(connection) = state.connection.as_mut() {
            let Some(spec) = mutate!(
                "recovery-client-orphan",
                connection.pop_unclaimed().or_else(|| state.to_release.pop()),
                state.to_release.pop()
            ) else {
                return;
            };
            match connection.exchange(&Request::Release(spec), None, deadline) {
                Ok(_) => drop(state.held.remove(&spec)),
                Err(broken) => {
                    state.to_release.push(spec);
                    if !matches!(broken, ConnectionError::TimedOut) {
                        state.connection = None;
                    }
                    return;
                }
            }
        }
    }

    /// Returns the deadline of a call, which includes the wait for other threads' requests.
    fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn failure(&self, broken: ConnectionError) -> Failure {
        match broken {
            ConnectionError::NotSent(source) => self.connection("send", source),
            ConnectionError::Lost(source) => self.connection("receive", source),
            ConnectionError::TimedOut => self.timed_out(),
            ConnectionError::Rejected(refusal) => Failure::Rejected(refusal),
            ConnectionError::Undecodable(refusal) => Failure::Protocol(refusal.to_string()),
        }
    }

    fn connection(&self, doing: &'static str, source: io::Error) -> Failure {
        Failure::Connection { path: self.path.clone(), doing, source }
    }

    fn timed_out(&self) -> Failure {
        Failure::TimedOut { path: self.path.clone(), after: self.timeout }
    }
}

/// Creates the failure for a reply of another kind.
pub(crate) fn unexpected(reply: &Reply) -> Failure {
    let text = format!("{reply:?}");
    let end = text.floor_char_boundary(60);
    Failure::Protocol(format!("unexpected reply: {}", &text[..end]))
}
