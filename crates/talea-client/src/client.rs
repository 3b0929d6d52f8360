//! Client of the daemon: connections and requests.

use crate::failure::{Failure, Outcome, refused_locally};
use crate::session::{Session, unexpected};
use crate::spec::Spec;
use crate::{DEFAULT_TIMEOUT, DISABLE_ENV};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use talea_core::Span;
use talea_os::{Tid, clock, sched};
use talea_proto::message::{Caveat, CpuInfo, PluginInfo, SessionInfo, SpecInfo, Status};
use talea_proto::{
    Code, Field, Granted, PluginAnswer, Refusal, Reply, Request, SOCKET_ENV, SOCKET_PATH, SpecId,
    Task, ThreadRef,
};

/// Maximum time that an attach waits until the kernel admits the calling thread. The daemon repeats
/// the call after 1 ms, 2 ms, 4 ms and so on.
const ADMISSION_WAIT: Duration = Duration::from_millis(100);

/// Connection to the daemon. Clones of a client share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    session: Arc<Session>,
}

/// Builder of a [`Client`]: where and how to connect.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    path: Option<PathBuf>,
    timeout: Duration,
    acts_for: Option<(OwnedFd, u32)>,
}

/// The daemon's answer to an [explain](Client::explain) request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Index into `answers` of the plugin that the daemon would choose.
    pub chosen: Option<usize>,
    /// One answer per plugin that was asked.
    pub answers: Vec<PluginAnswer>,
    /// Refusal of a create request if no plugin accepts, including the refusal's own list of
    /// answers.
    pub refusal: Option<Refusal>,
}

impl Builder {
    /// Sets the path of the daemon's socket. The default is the value of `TALEA_SOCKET`, otherwise
    /// the system's socket.
    pub fn path(mut self, path: impl Into<PathBuf>) -> Builder {
        self.path = Some(path.into());
        self
    }

    /// Sets the time limit of each call, including the time to connect. The limit is at least a
    /// millisecond.
    pub fn timeout(mut self, timeout: Duration) -> Builder {
        self.timeout = timeout;
        self
    }

    /// Makes every connection act for the process of `pidfd`, all of whose user ids must be `uid`.
    /// Only a front end that the daemon's configuration lists, and the superuser, may do so. A
    /// refusal is [`Failure::Rejected`] of the connect.
    pub fn acting_for(mut self, pidfd: OwnedFd, uid: u32) -> Builder {
        self.acts_for = Some((pidfd, uid));
        self
    }

    /// Connects to the daemon.
    pub fn connect(self) -> Result<Client, Failure> {
        let client = self.lazy()?;
        client.session.connect()?;
        Ok(client)
    }

    /// Creates a client that connects with its first request.
    pub fn lazy(self) -> Result<Client, Failure> {
        if trusted_env(DISABLE_ENV).is_some_and(|value| !value.is_empty() && value != "0") {
            return Err(Failure::Disabled);
        }
        let path = self.path.unwrap_or_else(|| {
            trusted_env(SOCKET_ENV)
                .filter(|path| !path.is_empty())
                .map_or_else(|| SOCKET_PATH.into(), PathBuf::from)
        });
        Ok(Client { session: Session::new(path, self.timeout, self.acts_for) })
    }
}

/// Reads an environment variable. Returns `None` in a set-user-id or set-group-id program, because
/// the calling user controls the program's environment.
fn trusted_env(name: &str) -> Option<OsString> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() == geteuid() && getgid() == getegid() { std::env::var_os(name) } else { None }
}

impl Client {
    /// Connects to the daemon that `TALEA_SOCKET` names, or to the system's daemon.
    pub fn connect() -> Result<Client, Failure> {
        Client::builder().connect()
    }

    /// Returns a builder with the default socket and time limit.
    pub fn builder() -> Builder {
        Builder { path: None, timeout: DEFAULT_TIMEOUT, acts_for: None }
    }

    /// Returns whether the daemon would accept the spec for the calling thread, and why. Changes
    /// nothing. With mandatory CPUs the affinity of the thread does not matter, as at an attach.
    pub fn explain(&self, spec: &Spec) -> Outcome<Explanation> {
        let own = ThreadRef::OwnTid(rustix::thread::gettid().as_raw_pid() as u32);
        let own = (!spec.task().cpus_mandatory).then_some(own);
        let task = Task { thread: spec.task().thread.or(own), ..*spec.task() };
        match self.session.ask(&Request::Explain(task), None)? {
            Reply::Explained { chosen, answers, refusal } => Ok(Ok(Explanation {
                chosen: chosen.map(|index| index as usize),
                answers,
                refusal: refusal.map(|refusal| *refusal),
            })),
            other => refused(other),
        }
    }

    /// Returns the daemon's information about a spec.
    pub fn query(&self, spec: SpecId) -> Outcome<SpecInfo> {
        match self.session.ask(&Request::Query(spec), None)? {
            Reply::Spec(info) => Ok(Ok(*info)),
            other => refused(other),
        }
    }

    /// Releases a spec for which the caller has no [`Grant`](crate::Grant).
    pub fn release(&self, spec: SpecId) -> Outcome<()> {
        match self.session.release(spec)? {
            Reply::Done | Reply::DoneWithCaveat(_) => Ok(Ok(())),
            other => refused(other),
        }
    }

    /// Makes a thread real-time under a spec. `tid` is the number of a thread in this PID
    /// namespace, or of a process; 0 stands for the calling thread.
    ///
    /// An attach of a thread of this process costs one exchange. An attach of another thread costs
    /// two exchanges and a pidfd, and so does any attach if the daemon lives in another PID
    /// namespace (`docs/decisions/0015`).
    ///
    /// The kernel may admit the calling thread only after it has moved to another root domain
    /// (`docs/decisions/0005`). The call then waits until the thread is real-time, for at most
    /// 100 ms.
    pub fn attach(&self, spec: SpecId, tid: u32) -> Outcome<()> {
        let own = rustix::thread::gettid().as_raw_pid() as u32;
        let tid = if tid == 0 { own } else { tid };
        match self.session.ask(&Request::Attach { spec, thread: ThreadRef::OwnTid(tid) }, None)? {
            Reply::Refused(refusal) if refusal.code == Code::TidNotAccepted => {}
            Reply::DoneWithCaveat(Caveat::PendingWakeup) if tid == own => {
                await_admission();
                return Ok(Ok(()));
            }
            Reply::Done | Reply::DoneWithCaveat(_) => return Ok(Ok(())),
            other => return refused(other),
        }
        match thread_pidfd(tid) {
            Ok(pidfd) => self.attach_pidfd(spec, pidfd.as_fd()),
            Err(Errno::SRCH) => Ok(Err(refused_locally(Code::NoSuchThread, Field::Thread))),
            // Before Linux 6.9, and where a sandbox forbids the call, only the number names a
            // thread.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                self.done(&Request::Attach { spec, thread: ThreadRef::Tid(tid) }, None)
            }
            Err(error) => {
                Err(Failure::Os { doing: "open a pidfd of the thread", source: error.into() })
            }
        }
    }

    /// Attaches the thread of `pidfd` to `spec`. A process pidfd denotes the main thread of the
    /// process.
    pub fn attach_pidfd(&self, spec: SpecId, pidfd: BorrowedFd) -> Outcome<()> {
        self.done(&Request::Attach { spec, thread: ThreadRef::Pidfd }, Some(pidfd))
    }

    /// Restores the attributes that the spec's thread had before the attach.
    pub fn detach(&self, spec: SpecId) -> Outcome<()> {
        self.done(&Request::Detach(spec), None)
    }

    /// Returns the daemon's counters.
    pub fn status(&self) -> Outcome<Status> {
        match self.session.ask(&Request::Status, None)? {
            Reply::Status(status) => Ok(Ok(*status)),
            other => refused(other),
        }
    }

    /// Returns all plugins, in order of precedence.
    pub fn plugins(&self) -> Outcome<Vec<PluginInfo>> {
        self.collect(
            0,
            |&index| Request::Plugin(index),
            |reply, next| match reply {
                Reply::Plugin(info) => {
                    *next += 1;
                    Ok(*info)
                }
                other => Err(other),
            },
        )
    }

    /// Returns a plugin's state on each of its CPUs, in ascending order of CPUs.
    pub fn plugin_cpus(&self, plugin: u32) -> Outcome<Vec<CpuInfo>> {
        self.collect(
            0,
            |&index| Request::PluginCpu { plugin, index },
            |reply, next| match reply {
                Reply::PluginCpu(info) => {
                    *next += 1;
                    Ok(info)
                }
                other => Err(other),
            },
        )
    }

    /// Returns all specs that this user may see, in ascending order of their numbers.
    pub fn list(&self) -> Outcome<Vec<SpecInfo>> {
        self.collect(
            SpecId(0),
            |&from| Request::NextSpec(from),
            |reply, next| match reply {
                Reply::Spec(info) => {
                    *next = SpecId(info.granted.spec.0.saturating_add(1));
                    Ok(*info)
                }
                other => Err(other),
            },
        )
    }

    /// Returns all connections that this user may see, in ascending order of their numbers.
    pub fn sessions(&self) -> Outcome<Vec<SessionInfo>> {
        self.collect(
            0,
            |&from| Request::NextSession(from),
            |reply, next| match reply {
                Reply::Session(info) => {
                    *next = info.session.saturating_add(1);
                    Ok(info)
                }
                other => Err(other),
            },
        )
    }

    /// Ends the daemon. With `release`, the daemon releases all specs first. Only the superuser may
    /// stop the daemon.
    pub fn stop(&self, release: bool) -> Outcome<()> {
        self.done(&Request::Stop { release }, None)
    }

    /// Sends any request of the protocol. The client does not claim a spec granted in this way
    /// after a reconnection.
    pub fn request(&self, request: &Request, fd: Option<BorrowedFd>) -> Result<Reply, Failure> {
        self.session.ask(request, fd)
    }

    /// Connects to the daemon if there is no connection. A request would connect, too.
    pub fn reconnect(&self) -> Result<(), Failure> {
        self.session.connect()
    }

    /// Returns the number that distinguishes one start of the daemon from the next. Returns `None`
    /// before the first connection.
    pub fn instance(&self) -> Option<u64> {
        self.session.instance()
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn granted(&self, request: &Request) -> Outcome<Granted> {
        match self.session.ask_and_hold(request)? {
            Reply::Granted(granted) => Ok(Ok(granted)),
            other => refused(other),
        }
    }

    fn done(&self, request: &Request, fd: Option<BorrowedFd>) -> Outcome<()> {
        match self.session.ask(request, fd)? {
            Reply::Done | Reply::DoneWithCaveat(_) => Ok(Ok(())),
            other => refused(other),
        }
    }

    /// Requests one item after the other until the daemon has no more.
    fn collect<N, T>(
        &self,
        mut next: N,
        ask: impl Fn(&N) -> Request,
        take: impl Fn(Reply, &mut N) -> Result<T, Reply>,
    ) -> Outcome<Vec<T>> {
        let mut all = Vec::new();
        loop {
            match take(self.session.ask(&ask(&next), None)?, &mut next) {
                Ok(one) => all.push(one),
                Err(Reply::End) => return Ok(Ok(all)),
                Err(other) => return refused(other),
            }
        }
    }
}

/// Returns the refusal in a reply. Any other reply is a protocol error.
pub(crate) fn refused<T>(reply: Reply) -> Outcome<T> {
    match reply {
        Reply::Refused(refusal) => Ok(Err(*refusal)),
        other => Err(unexpected(&other)),
    }
}

/// Waits until the calling thread is real-time, for at most [`ADMISSION_WAIT`]. The thread sleeps
/// in its new root domain meanwhile, where the kernel admits it.
fn await_admission() {
    let end = clock::now() + Span::from_ns(ADMISSION_WAIT.as_nanos() as u64);
    let is_admitted = || sched::get(Tid::current()).is_ok_and(|attr| attr.policy.is_realtime());
    while !is_admitted() && clock::now() < end {
        clock::sleep_until(clock::now() + Span::from_ns(500_000));
    }
}

/// Opens a pidfd of one thread (`PIDFD_THREAD`). Returns `EINVAL` where the kernel lacks thread
/// pidfds.
fn thread_pidfd(tid: u32) -> Result<OwnedFd, Errno> {
    // The flag has the value of O_EXCL on every architecture.
    let thread = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());
    let tid = i32::try_from(tid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    pidfd_open(tid, thread)
}
