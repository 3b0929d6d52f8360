//! Requests to the daemon in the name of a caller.
//!
//! A call declares a priority, and by default a runtime in each period. The daemon's rules for the
//! caller decide which plugin serves the thread: `edf` gives a reservation, `fp` the priority. The
//! thread owns the grant, so the grant ends with the thread. Neither the end of this process nor a
//! restart of the daemon changes it.
//!
//! | state of the thread | call | effect |
//! | --- | --- | --- |
//! | without a grant | real time | create a spec and attach the thread |
//! | with the same grant of an earlier call | real time | none |
//! | with another grant that the thread owns | real time | release that grant, then as without one |
//! | without a grant | nice value | the daemon sets it, if the rules allow it (`min_nice`) |
//! | with a grant that the thread owns | nice value | release that grant, then as without one |
//! | with a grant of another owner | any | refusal |

use crate::caller::Caller;
use crate::options::Options;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use talea_client::{Client, Failure, Outcome};
use talea_core::{Params, Priority, Span, Work};
use talea_os::thread::Method;
use talea_os::{Thread, Tid};
use talea_proto::message::Owner;
use talea_proto::{Code, Refusal, Reply, Request, SpecId, Task, ThreadRef};
use zbus::fdo::{self, Error};

/// Time limit of one exchange with the daemon.
const EXCHANGE: Duration = Duration::from_millis(700);
/// Time after which a call sends no further request. A reply follows at most [`EXCHANGE`] later.
const LAST_REQUEST: Duration = Duration::from_millis(900);

/// State that a caller wants for a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// Real time with this priority.
    Priority(u32),
    /// No real time, but this nice value.
    Nice(i32),
}

/// Requests to the daemon.
#[derive(Debug)]
pub(crate) struct Service {
    options: Options,
}

/// Connection to the daemon that acts for a caller, with the time limit of the call.
struct Call {
    client: Client,
    begun: Instant,
}

impl Service {
    /// Creates the service. It has no connection: each call has its own.
    pub(crate) fn new(options: Options) -> Service {
        Service { options }
    }

    /// Returns the options.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Serves a call about thread `thread` of process `process`, or of the caller. Thread 0 is the
    /// main thread. Returns within two seconds.
    pub(crate) fn serve(
        &self,
        caller: &Caller,
        process: Option<u64>,
        thread: u64,
        wanted: Wanted,
    ) -> fdo::Result<()> {
        let process = process.unwrap_or(caller.pid.into());
        let thread = open_thread(process, thread)?;
        let result = match wanted {
            Wanted::Nice(nice) => {
                let nice = self.nice(nice)?;
                self.call(caller).and_then(|call| call.make_nice(nice, &thread))
            }
            Wanted::Priority(priority) => {
                let task = self.task(priority)?;
                self.call(caller).and_then(|call| call.make_realtime(&task, &thread))
            }
        };
        match result {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refusal)) => Err(error_of(&refusal)),
            Err(Failure::Rejected(refusal)) => Err(error_of(&refusal)),
            Err(failure) => Err(Error::Failed(failure.to_string())),
        }
    }

    fn call(&self, caller: &Caller) -> Result<Call, Failure> {
        let begun = Instant::now();
        let pidfd = caller
            .pidfd
            .try_clone()
            .map_err(|source| Failure::Os { doing: "copy the pidfd of the caller", source })?;
        let builder = Client::builder().timeout(EXCHANGE).acting_for(pidfd, caller.uid);
        let builder = match &self.options.socket {
            Some(path) => builder.path(path),
            None => builder,
        };
        Ok(Call { client: builder.connect()?, begun })
    }

    /// Checks a nice value.
    fn nice(&self, nice: i32) -> fdo::Result<i8> {
        let least = self.options.min_nice;
        match i8::try_from(nice) {
            _ if nice > 19 => Err(Error::Failed(format!("the nice value {nice} is above 19"))),
            Ok(nice) if nice >= least => Ok(nice),
            _ => Err(Error::AccessDenied(format!(
                "the nice value {nice} is below {least}, the property MinNiceLevel"
            ))),
        }
    }

    /// Returns the task that a priority stands for.
    fn task(&self, priority: u32) -> fdo::Result<Task> {
        let most = self.options.max_priority;
        let priority = match u8::try_from(priority) {
            Ok(0) => return Err(Error::Failed("the priority is 0, the lowest is 1".to_owned())),
            Ok(priority) if priority <= most => priority,
            _ => {
                return Err(Error::AccessDenied(format!(
                    "the priority {priority} is above {most}, the property MaxRealtimePriority"
                )));
            }
        };
        let runtime = Work::from_ns(self.options.runtime.as_nanos() as u64);
        let period = Span::from_ns(self.options.period.as_nanos() as u64);
        let is_timed = !runtime.is_zero();
        Ok(Task {
            params: Params {
                priority: Some(Priority(priority)),
                runtime: is_timed.then_some(runtime),
                period: is_timed.then_some(period),
                ..Params::default()
            },
            owner: Owner::Thread,
            ..Task::default()
        })
    }
}

impl Call {
    /// Makes the thread real-time under a grant for `task`.
    fn make_realtime(&self, task: &Task, thread: &Thread) -> Outcome<()> {
        match self.grant_of(thread)? {
            Some((_, held)) if is_same(&held, task) => return Ok(Ok(())),
            Some((spec, held)) => self.release(spec, &held)?,
            None => {}
        }
        let task = Task { thread: Some(named(thread)), ..*task };
        let spec = match self.ask(&Request::Create(task), Some(thread))? {
            Reply::Granted(granted) => granted.spec,
            other => return refused(other),
        };
        // If this fails, the spec ends with the connection, because it has no thread.
        done(self.ask(&Request::Attach { spec, thread: named(thread) }, Some(thread))?)
    }

    /// Makes the thread an ordinary thread with a nice value; its grant ends before.
    fn make_nice(&self, nice: i8, thread: &Thread) -> Outcome<()> {
        if let Some((spec, held)) = self.grant_of(thread)? {
            self.release(spec, &held)?;
        }
        done(self.ask(&Request::Nice { nice, thread: named(thread) }, Some(thread))?)
    }

    /// Releases a grant that its thread owns. Another owner keeps it, and the daemon refuses the
    /// request that follows.
    fn release(&self, spec: SpecId, held: &Task) -> Result<(), Failure> {
        if held.owner == Owner::Thread {
            self.ask(&Request::Release(spec), None)?;
        }
        Ok(())
    }

    /// Returns the spec that the thread is attached to, with its task.
    fn grant_of(&self, thread: &Thread) -> Result<Option<(SpecId, Task)>, Failure> {
        let tid = thread.tid().as_raw() as u32;
        let mut from = SpecId(0);
        while let Reply::Spec(info) = self.ask(&Request::NextSpec(from), None)? {
            let spec = info.granted.spec;
            if info.tid == Some(tid) {
                return Ok(Some((spec, info.task)));
            }
            from = SpecId(spec.0.saturating_add(1));
        }
        Ok(None)
    }

    /// Sends a request, with the pidfd of `thread`.
    fn ask(&self, request: &Request, thread: Option<&Thread>) -> Result<Reply, Failure> {
        if self.begun.elapsed() > LAST_REQUEST {
            let after = self.begun.elapsed();
            return Err(Failure::Os {
                doing: "answer the call",
                source: std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("the daemon needs too long: {} ms", after.as_millis()),
                ),
            });
        }
        let fd = thread.filter(|thread| named(thread) == ThreadRef::Pidfd).map(Thread::as_fd);
        self.client.request(request, fd)
    }
}

/// Opens a thread of a process.
fn open_thread(process: u64, thread: u64) -> fdo::Result<Thread> {
    let number = |value: u64| i32::try_from(value).ok().and_then(Tid::new);
    let missing = || Error::Failed(format!("process {process} has no thread {thread}"));
    let process_tid = number(process).ok_or_else(missing)?;
    let tid = if thread == 0 { process_tid } else { number(thread).ok_or_else(missing)? };
    let opened = Thread::open(tid).map_err(|_| missing())?;
    if opened.tgid() == process_tid { Ok(opened) } else { Err(missing()) }
}

/// Returns the reference to a thread in a request: its pidfd where the kernel has pidfds of
/// threads (Linux 6.9).
fn named(thread: &Thread) -> ThreadRef {
    match thread.method() {
        Method::Pidfd => ThreadRef::Pidfd,
        Method::StartTime => ThreadRef::Tid(thread.tid().as_raw() as u32),
    }
}

/// Whether two tasks declare the same.
fn is_same(held: &Task, task: &Task) -> bool {
    held.params == task.params && held.owner == task.owner
}

fn done(reply: Reply) -> Outcome<()> {
    match reply {
        Reply::Done | Reply::DoneWithCaveat(_) => Ok(Ok(())),
        other => refused(other),
    }
}

fn refused<T>(reply: Reply) -> Outcome<T> {
    match reply {
        Reply::Refused(refusal) => Ok(Err(*refusal)),
        other => Err(Failure::Protocol(format!("unexpected reply: {other:?}"))),
    }
}

/// Returns the error that rtkit would send: `AccessDenied` for a refusal, `Failed` for a thread
/// that does not exist and for a failure.
fn error_of(refusal: &Refusal) -> Error {
    let text = refusal.to_string();
    match refusal.code {
        Code::NoSuchThread | Code::Stopping | Code::Busy | Code::Version | Code::NotRecorded => {
            Error::Failed(text)
        }
        _ => Error::AccessDenied(text),
    }
}
