//! Host processes of foreign plugins.
//!
//! Model: each plugin instance has one process ([`HostProcess`]), started before the first grant. A
//! process that exits or misses a time-out is started again after [`FIRST_DELAY`]; each further
//! failure doubles the delay. A plugin that violates the protocol stays out of service until the
//! next start of the daemon.
//! One call is in flight at a time; later calls wait in the host's queue. The time-out of a call
//! starts when the call is sent, and does not run while other threads keep the host from its CPU
//! (module `call_time`).
//!
//! | state of a host | transition | next state |
//! | --- | --- | --- |
//! | *idle*: no call in flight | a call is queued and sent | *busy* |
//! | *busy*: a call in flight, others queued | valid answer; next call sent | *busy*, *idle* |
//! | *idle*, *busy* | exit, time-out | *failed*, with a restart |
//! | *idle*, *busy* | invalid answer, or the broker stops the host | *failed* |
//! | *failed*: killed; every call is answered with a failure | the restart is due | *starting* |
//! | *starting*: no calls | the plugin is initialised | *idle* |
//! | *starting* | exit, time-out, its `init` refuses | *failed*, with a restart |
//!
//! The standard error of a plugin is written to the log under the plugin's name, at most
//! [`LINES_PER_SECOND`] lines per second.
//!
//! ReTiF, J. Systems Architecture 2021, section 3.4.

use crate::call_time::CallStart;
use crate::host_process::{HostProcess, Started};
use crate::log::Log;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;
use talea_broker::Ticket;
use talea_broker::input::{ForeignAnswer, ForeignCall};
use talea_core::mutate;
use talea_core::setup::{PluginKind, PluginSetup, Setup};
use talea_core::{Monotonic, Span};
use talea_os::{clock, files, seqpacket};
use talea_proto::Task;
use talea_proto::host::{
    self, HOST_VERSION, HostRequest, HostResponse, PluginFunction, TEXT_MAX, failure,
};
use talea_proto::message::Name;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Maximum duration of loading and `init`.
const INIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum total duration of all `fini` functions; less than a second.
const FINI_TIMEOUT: Span = Span::from_ns(300_000_000);
/// Delay of the first restart.
const FIRST_DELAY: Span = Span::from_ns(100_000_000);
/// Longest delay of a restart.
const MAX_DELAY: Span = Span::from_ns(10_000_000_000);
/// Time without a failure after which the delay is [`FIRST_DELAY`] again.
const STABLE_AFTER: Span = Span::from_ns(60_000_000_000);
/// Maximum number of logged lines of a plugin per second.
const LINES_PER_SECOND: u32 = 10;

/// Host of one plugin.
#[derive(Debug)]
struct Host {
    name: String,
    process: HostProcess,
    socket: OwnedFd,
    stderr: File,
    /// Queued calls. The first one has been sent.
    pending: VecDeque<PendingCall>,
    /// Time at which the call in flight times out or is checked.
    deadline: Option<Monotonic>,
    /// Start of the call in flight.
    started: CallStart,
    failed: bool,
    /// Whether the host initialises its plugin.
    starting: bool,
    /// Time of the next restart of a failed host; `None` if there is none.
    restart_at: Option<Monotonic>,
    /// Delay of the last restart.
    delay: Span,
    /// Time of the last start.
    started_at: Monotonic,
    lines: LineBuffer,
}

#[derive(Debug)]
struct PendingCall {
    ticket: Ticket,
    epoch: u64,
    request: HostRequest,
    timeout: Span,
}

/// Event of a host.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HostEvent {
    /// A call was answered, or will never be answered (`None`).
    Answered(Ticket, Option<ForeignAnswer>),
    /// The host of this plugin has failed.
    Failed(u32),
    /// The host of this plugin was started again; its descriptors are new.
    Restarted(u32),
    /// The host of this plugin serves again.
    Serves(u32),
}

/// Reason why a host fails.
#[derive(Debug)]
enum HostFailure {
    /// The process has ended or is late: a new one may serve.
    Ended(String),
    /// An answer violates the protocol.
    Violation(String),
}

/// Hosts of all foreign plugins, by index of the plugin.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    running: Vec<Option<Host>>,
    plugins: Vec<PluginSetup>,
    /// Path of the host program, if not the default.
    program: Option<PathBuf>,
}

impl Hosts {
    /// Starts a process for each foreign plugin of `setup` and waits until all of them are ready.
    ///
    /// The error names the plugin that failed, with the reason. The other hosts are stopped.
    pub(crate) fn start(setup: &Setup, program: Option<&Path>, log: &Log) -> Result<Hosts, String> {
        let mut hosts = Vec::with_capacity(setup.plugins.len());
        let mut taken = Vec::new();
        for plugin in &setup.plugins {
            let host = match &plugin.kind {
                PluginKind::Foreign(_) => {
                    let host = Host::start(plugin, program, &taken, log);
                    Some(host.map_err(|why| {
                        format!("plugin `{}` failed to start: {why}", plugin.name)
                    })?)
                }
                _ => None,
            };
            taken.extend(host.as_ref().and_then(|host: &Host| host.process.uid()));
            hosts.push(host);
        }
        let (plugins, program) = (setup.plugins.clone(), program.map(Path::to_owned));
        Ok(Hosts { running: hosts, plugins, program })
    }

    /// Returns the descriptors for the event loop: index, socket, standard error.
    pub(crate) fn descriptors(
        &self,
    ) -> impl Iterator<Item = (u64, BorrowedFd<'_>, BorrowedFd<'_>)> {
        let hosts = self.running.iter().enumerate();
        hosts.filter_map(|(index, host)| {
            let host = host.as_ref()?;
            Some((index as u64, host.socket.as_fd(), host.stderr.as_fd()))
        })
    }

    /// Returns the descriptors of one host.
    pub(crate) fn descriptors_of(&self, index: u32) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let host = self.running.get(index as usize)?.as_ref()?;
        Some((host.socket.as_fd(), host.stderr.as_fd()))
    }

    /// Returns the time of the next time-out or restart; `None` if there is none.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        let hosts = self.running.iter().flatten();
        hosts.flat_map(|host| [host.deadline, host.restart_at]).flatten().min()
    }

    /// Sends a call, or queues it behind earlier calls.
    #[allow(clippy::too_many_arguments)] // The fields of the broker's effect, and two sinks.
    pub(crate) fn enqueue(
        &mut self,
        now: Monotonic,
        plugin: u32,
        ticket: Ticket,
        request: &ForeignCall,
        timeout: Span,
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) {
        let Some(host) = self
            .running
            .get_mut(plugin as usize)
            .and_then(Option::as_mut)
            .filter(|host| !host.failed && !host.starting)
        else {
            events.push(HostEvent::Answered(ticket, None));
            return;
        };
        let (epoch, request) = translate(request, ticket);
        host.pending.push_back(PendingCall { ticket, epoch, request, timeout });
        if host.pending.len() == 1
            && let Err(why) = host.send_front(now)
        {
            host.fail(now, plugin, &HostFailure::Ended(why), events, log);
        }
    }

    /// Handles a readable socket of a host.
    pub(crate) fn on_readable(
        &mut self,
        now: Monotonic,
        index: u64,
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) {
        let Some(host) = self.running.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        if host.failed {
            return;
        }
        if host.starting {
            return host.on_init_answer(now, index as u32, events, log);
        }
        match host.receive() {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let answered = host
                    .pending
                    .pop_front()
                    .expect("`receive` has matched the answer with the first call");
                let answer = ForeignAnswer {
                    epoch: answered.epoch,
                    verdict: answer.verdict,
                    cpu: answer.cpu,
                    priority: answer.priority,
                };
                events.push(HostEvent::Answered(answered.ticket, Some(answer)));
                host.deadline = None;
                if let Err(why) = host.send_front(now) {
                    host.fail(now, index as u32, &HostFailure::Ended(why), events, log);
                }
            }
            Err(why) => host.fail(now, index as u32, &why, events, log),
        }
    }

    /// Handles output of a plugin on its standard error. Returns `false` when the plugin has closed
    /// it.
    pub(crate) fn on_stderr_readable(&mut self, now: Monotonic, index: u64, log: &Log) -> bool {
        let Some(host) = self.running.get_mut(index as usize).and_then(Option::as_mut) else {
            return false;
        };
        host.log_stderr(now, log)
    }

    /// Returns the standard error of a host, to stop watching it.
    pub(crate) fn stderr(&self, index: u64) -> Option<BorrowedFd<'_>> {
        self.running.get(index as usize)?.as_ref().map(|host| host.stderr.as_fd())
    }

    /// Returns the socket of a failed host, to stop watching it.
    pub(crate) fn failed_socket(&self, index: u32) -> Option<BorrowedFd<'_>> {
        let host = self.running.get(index as usize)?.as_ref()?;
        host.failed.then(|| host.socket.as_fd())
    }

    /// Stops the host of a plugin that the broker no longer calls; `false` if the host has already
    /// stopped.
    pub(crate) fn stop_host(&mut self, plugin: u32) -> bool {
        let host = self.running.get_mut(plugin as usize).and_then(Option::as_mut);
        let Some(host) = host.filter(|host| !host.failed) else { return false };
        host.stop();
        host.pending.clear();
        host.restart_at = None;
        true
    }

    /// Closes the connection of every host and waits a bounded time for their `fini`.
    pub(crate) fn shut_down(&mut self, log: &Log) {
        let hosts = || self.running.iter().flatten().filter(|host| !host.failed);
        for host in hosts() {
            // A host reads the end of the stream. An error means that the host has already exited.
            let _ = rustix::net::shutdown(&host.socket, rustix::net::Shutdown::Both);
        }
        let end = clock::now() + FINI_TIMEOUT;
        for host in hosts() {
            let now = clock::now();
            let left = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: end.as_ns().saturating_sub(now.as_ns()) as i64,
            };
            // A host that has exited has closed its standard error. Dropping the last handle kills
            // a child that has not exited by then.
            let _ = rustix::event::poll(
                &mut [rustix::event::PollFd::new(&host.stderr, rustix::event::PollFlags::empty())],
                Some(&left),
            );
        }
        for host in self.running.iter_mut().flatten() {
            host.log_stderr(clock::now(), log);
        }
    }

    /// Fails the hosts with an expired time-out, and starts those whose restart is due.
    pub(crate) fn expire(&mut self, now: Monotonic, events: &mut Vec<HostEvent>, log: &Log) {
        let taken: Vec<u32> =
            self.running.iter().flatten().filter_map(|host| host.process.uid()).collect();
        for (index, host) in self.running.iter_mut().enumerate() {
            let Some(host) = host else { continue };
            if host.restart_at.is_some_and(|at| at <= now) {
                let program = self.program.as_deref();
                host.restart(
                    now,
                    index as u32,
                    (&self.plugins[index], program, &taken),
                    events,
                    log,
                );
                continue;
            }
            if host.starting && host.deadline.is_some_and(|deadline| deadline <= now) {
                let why = format!("its init was not done within {} s", INIT_TIMEOUT.as_secs());
                host.fail(now, index as u32, &HostFailure::Ended(why), events, log);
                continue;
            }
            if mutate!(
                "plugin-foreign-late",
                host.deadline.is_some_and(|deadline| deadline <= now),
                host.deadline.is_some_and(|deadline| deadline <= now && deadline > now)
            ) {
                let timeout = host.pending.front().map_or(Span::ZERO, |first| first.timeout);
                if let Some(left) = host.started.left(host.process.pid(), now, timeout) {
                    host.deadline = Some(now + left);
                } else {
                    let why = HostFailure::Ended(format!("no answer within {timeout}"));
                    host.fail(now, index as u32, &why, events, log);
                }
            }
        }
    }
}

impl Host {
    /// Starts a host and waits until its plugin is initialised.
    fn start(
        plugin: &PluginSetup,
        program: Option<&Path>,
        taken: &[u32],
        log: &Log,
    ) -> Result<Host, String> {
        let mut host = Host::spawn(plugin, program, taken)?;
        let ready = host.wait_for_init();
        // Output up to now explains a failure; later lines are read by the event loop.
        host.log_stderr(clock::now(), log);
        ready?;
        log.info(format_args!("plugin `{}`: {}", host.name, host.process.isolation()));
        host.starting = false;
        rustix::io::ioctl_fionbio(&host.socket, true)
            .map_err(|error| format!("socket: {error}"))?;
        Ok(host)
    }

    /// Starts the process of a host and sends it the setup.
    fn spawn(plugin: &PluginSetup, program: Option<&Path>, taken: &[u32]) -> Result<Host, String> {
        let PluginKind::Foreign(options) = &plugin.kind else {
            return Err("it is no plugin from outside".to_owned());
        };
        let (module, argument) = (&options.module, &options.argument);
        files::check_trusted(Path::new(module)).map_err(|untrusted| untrusted.to_string())?;
        if module.len() > TEXT_MAX || argument.len() > TEXT_MAX {
            return Err(format!("`module` and `argument` may have at most {TEXT_MAX} bytes each"));
        }
        let Started { process, socket, stderr, pass } = HostProcess::start(program, taken)?;
        seqpacket::set_timeout(&socket, INIT_TIMEOUT)
            .map_err(|error| format!("time-out: {error}"))?;
        let host = Host {
            name: plugin.name.clone(),
            process,
            socket,
            stderr,
            pending: VecDeque::new(),
            deadline: None,
            started: CallStart::default(),
            failed: false,
            starting: true,
            restart_at: None,
            delay: FIRST_DELAY,
            started_at: clock::now(),
            lines: LineBuffer::default(),
        };
        host.send_setup(plugin, (module, argument), pass.as_ref().map(AsFd::as_fd))?;
        Ok(host)
    }

    /// Starts a failed host again.
    fn restart(
        &mut self,
        now: Monotonic,
        index: u32,
        (plugin, program, taken): (&PluginSetup, Option<&Path>, &[u32]),
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) {
        self.restart_at = None;
        let spawned = Host::spawn(plugin, program, taken).and_then(|host| {
            let non_blocking = rustix::io::ioctl_fionbio(&host.socket, true);
            non_blocking.map(|()| host).map_err(|error| format!("socket: {error}"))
        });
        match spawned {
            Ok(host) => {
                let deadline = now.saturating_add(Span::from_ns(INIT_TIMEOUT.as_nanos() as u64));
                *self = Host { delay: self.delay, deadline: Some(deadline), ..host };
                events.push(HostEvent::Restarted(index));
            }
            Err(why) => {
                log.error(format_args!("plugin `{}` cannot be started again: {why}", self.name));
                self.plan_restart(now);
            }
        }
    }

    /// Plans the next restart.
    fn plan_restart(&mut self, now: Monotonic) {
        let is_stable = now >= self.started_at.saturating_add(STABLE_AFTER);
        let delay = if is_stable { FIRST_DELAY } else { self.delay };
        self.restart_at = mutate!("plugin-foreign-restart", Some(now.saturating_add(delay)), None);
        self.delay = Span::from_ns(delay.as_ns() * 2).min(MAX_DELAY);
    }

    /// Handles the answer of a host that was started again.
    fn on_init_answer(
        &mut self,
        now: Monotonic,
        index: u32,
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) {
        match self.wait_for_init() {
            Ok(()) => {
                (self.starting, self.deadline) = (false, None);
                events.push(HostEvent::Serves(index));
            }
            Err(why) => {
                self.log_stderr(now, log);
                self.fail(now, index, &HostFailure::Ended(why), events, log);
            }
        }
    }

    fn send_setup(
        &self,
        plugin: &PluginSetup,
        (module, argument): (&str, &str),
        pass: Option<BorrowedFd>,
    ) -> Result<(), String> {
        let band = plugin.band.ok_or("a foreign plugin needs `priorities`")?;
        let setup = host::HostSetup {
            version: HOST_VERSION,
            priority_low: band.low.0.into(),
            priority_high: band.high.0.into(),
            module_len: module.len() as u16,
            argument_len: argument.len() as u16,
            cpus: *plugin.cpus.words(),
            name: Name::new(&plugin.name).unwrap_or_default().0,
        };
        let mut message = setup.as_bytes().to_vec();
        message.extend_from_slice(module.as_bytes());
        message.extend_from_slice(argument.as_bytes());
        seqpacket::send(&self.socket, &message, pass).map_err(|error| format!("its host: {error}"))
    }

    /// Receives the answer to the setup.
    fn wait_for_init(&mut self) -> Result<(), String> {
        let mut buffer = [0; size_of::<HostResponse>() + 1];
        let received = seqpacket::recv_sender(&self.socket, &mut buffer);
        let (len, sender) = received.map_err(|error| {
            if error.kind() == io::ErrorKind::TimedOut {
                return format!("its init was not done within {} s", INIT_TIMEOUT.as_secs());
            }
            format!("its host: {error}")
        })?;
        if len == 0 {
            return Err(format!("its host {} during init", self.exit_description()));
        }
        let answer = HostResponse::read_from_bytes(&buffer[..len])
            .map_err(|_| "its host sent an invalid answer to the setup".to_owned())?;
        match answer.verdict {
            0 => {
                self.process.set_sender(sender)?;
                seqpacket::report_senders(&self.socket, false)
                    .map_err(|error| format!("socket: {error}"))
            }
            failure::LOAD => {
                Err("its module could not be loaded (see the previous line)".to_owned())
            }
            failure::SANDBOX => {
                Err("its host could not drop its capabilities (see the previous line)".to_owned())
            }
            code => Err(format!("its init refused with {code}")),
        }
    }

    fn send_front(&mut self, now: Monotonic) -> Result<(), String> {
        let Some(first) = self.pending.front() else { return Ok(()) };
        self.deadline = Some(now + first.timeout);
        self.started = CallStart::of(self.process.pid(), now);
        seqpacket::send(&self.socket, first.request.as_bytes(), None).map_err(|error| {
            match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    self.exit_description()
                }
                _ => error.to_string(),
            }
        })
    }

    /// Receives the answer to the first queued call; `None` if no message has arrived.
    fn receive(&mut self) -> Result<Option<HostResponse>, HostFailure> {
        let mut buffer = [0; size_of::<HostResponse>() + 1];
        let received = match seqpacket::recv(&self.socket, &mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(HostFailure::Ended(self.exit_description()));
            }
            Err(error) => return Err(HostFailure::Ended(error.to_string())),
        };
        if received.len == 0 {
            return mutate!(
                "plugin-foreign-ended",
                Err(HostFailure::Ended(self.exit_description())),
                Ok(None)
            );
        }
        let in_flight = self.pending.front().ok_or_else(|| {
            HostFailure::Violation("it sent a message although no call was in flight".to_owned())
        })?;
        let answer = HostResponse::read_from_bytes(&buffer[..received.len]).map_err(|_| {
            HostFailure::Violation(format!(
                "its answer has {} bytes instead of {}",
                received.len,
                size_of::<HostResponse>()
            ))
        })?;
        if mutate!("plugin-foreign-ticket", answer.ticket != in_flight.request.ticket, false) {
            let why = "its answer has the ticket of another call";
            return Err(HostFailure::Violation(why.to_owned()));
        }
        Ok(Some(answer))
    }

    fn exit_description(&mut self) -> String {
        // The host's end of the socket is closed: the host has exited or is no longer usable.
        self.process.end(&self.socket)
    }

    fn fail(
        &mut self,
        now: Monotonic,
        plugin: u32,
        why: &HostFailure,
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) {
        self.stop();
        let text = match why {
            HostFailure::Ended(text) | HostFailure::Violation(text) => text,
        };
        log.error(format_args!("plugin `{}`: {text}", self.name));
        if matches!(why, HostFailure::Ended(_)) {
            self.plan_restart(now);
        }
        events.extend(
            self.pending.drain(..).map(|pending| HostEvent::Answered(pending.ticket, None)),
        );
        events.push(HostEvent::Failed(plugin));
    }

    fn stop(&mut self) {
        self.failed = true;
        self.starting = false;
        self.deadline = None;
        self.process.end(&self.socket);
    }

    /// Logs the plugin's output; `false` at its end.
    fn log_stderr(&mut self, now: Monotonic, log: &Log) -> bool {
        let mut buffer = [0; 4096];
        match self.stderr.read(&mut buffer) {
            Ok(0) => {
                self.lines.finish(&self.name, now, log);
                false
            }
            Ok(length) => {
                self.lines.take(&self.name, &buffer[..length], now, log);
                true
            }
            Err(error) => {
                matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }
}

/// Line buffer for a plugin's standard error.
#[derive(Debug, Default)]
struct LineBuffer {
    partial: Vec<u8>,
    second: u64,
    written: u32,
}

impl LineBuffer {
    /// Maximum length of a line in bytes; longer lines are split.
    const MAX_LINE_LEN: usize = 512;

    fn take(&mut self, name: &str, bytes: &[u8], now: Monotonic, log: &Log) {
        for &byte in bytes {
            if byte == b'\n' || self.partial.len() >= LineBuffer::MAX_LINE_LEN {
                self.finish(name, now, log);
            }
            if byte != b'\n' {
                self.partial.push(byte);
            }
        }
    }

    fn finish(&mut self, name: &str, now: Monotonic, log: &Log) {
        let second = now.as_ns() / 1_000_000_000;
        if second != self.second {
            (self.second, self.written) = (second, 0);
        }
        if !self.partial.is_empty() {
            self.written += 1;
            match self.written {
                ..=LINES_PER_SECOND => {
                    log.info(format_args!(
                        "plugin `{name}`: {}",
                        String::from_utf8_lossy(&self.partial)
                    ));
                }
                over if over == LINES_PER_SECOND + 1 => {
                    log.info(format_args!(
                        "plugin `{name}` wrote more than {LINES_PER_SECOND} lines in one second; \
                         the rest of this second is dropped"
                    ));
                }
                _ => {}
            }
        }
        self.partial.clear();
    }
}

/// Returns the call in the host protocol, and the ledger's epoch for the answer.
fn translate(request: &ForeignCall, ticket: Ticket) -> (u64, HostRequest) {
    let mut out = HostRequest::new_zeroed();
    out.ticket = ticket.0;
    let mut epoch_now = 0;
    let set_params = |out: &mut HostRequest, task: &Task| {
        let params = &task.params;
        out.period_ns = params.period.map_or(0, Span::as_ns);
        out.runtime_ns = params.runtime.map_or(0, talea_core::Work::as_ns);
        out.desired_ns = params.desired.map_or(0, talea_core::Work::as_ns);
        out.deadline_ns = params.deadline.map_or(0, Span::as_ns);
        out.priority = params.priority.map_or(0, |priority| priority.0.into());
        out.flags = if task.ignore_admission { host::IGNORE_ADMISSION } else { 0 };
    };
    let (call, spec) = match request {
        ForeignCall::Accept { task, cpus, replaces, epoch } => {
            set_params(&mut out, task);
            out.cpus = *cpus.words();
            epoch_now = *epoch;
            match replaces {
                None => (PluginFunction::Accept, 0),
                Some(spec) => (PluginFunction::Change, spec.0),
            }
        }
        ForeignCall::Schedule { spec, task, cpu, priority } => {
            set_params(&mut out, task);
            out.cpus = *talea_core::CpuSet::single(*cpu).words();
            out.place_cpu = *cpu as i32;
            out.place_priority = i32::from(*priority);
            (PluginFunction::Schedule, spec.0)
        }
        ForeignCall::Release { spec } => (PluginFunction::Release, spec.0),
        ForeignCall::Attach { spec } => (PluginFunction::Attach, spec.0),
        ForeignCall::Detach { spec } => (PluginFunction::Detach, spec.0),
    };
    out.call = call as u32;
    out.spec = spec;
    (epoch_now, out)
}
