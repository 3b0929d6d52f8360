//! Host processes of foreign plugins.
//!
//! Model: each plugin instance has one process ([`HostProcess`]). At the start, the daemon waits
//! for all of them, but no longer than [`START_PATIENCE`]: then it serves without those that are
//! late. A process that exits or misses a time-out is started again after [`FIRST_DELAY`]; each
//! further failure doubles the delay. A plugin that violates the protocol stays out of service
//! until the next start of the daemon.
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
//! | *failed*: killed; every call is answered with a failure | the restart is due | *spawning* |
//! | *spawning*: a thread starts the process | the process has started | *starting* |
//! | *spawning* | the process does not start | *failed*, with a restart |
//! | *starting*: no calls | the plugin is initialised | *idle* |
//! | *starting* | exit, time-out, its `init` refuses | *failed*, with a restart |
//!
//! The standard error of a plugin is written to the log under the plugin's name, with a limit
//! (module `plugin_output`).
//!
//! ReTiF, J. Systems Architecture 2021, section 3.4.

use crate::call_time::CallStart;
use crate::event_queue::{EventQueue, left};
use crate::host_process::{Collector, HostProcess, Started};
use crate::log::Log;
use crate::plugin_output::LineBuffer;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use talea_broker::Ticket;
use talea_broker::host_call;
use talea_broker::input::{ForeignAnswer, ForeignCall, Platform};
use talea_core::mutate;
use talea_core::setup::{ForeignClass, PluginKind, PluginSetup, Setup};
use talea_core::{Monotonic, Span};
use talea_os::capabilities::{CapSet, keep_only};
use talea_os::{clock, files, seqpacket};
use talea_proto::SpecId;
use talea_proto::host::{
    self, HOST_VERSION, HostRequest, HostResponse, RESPONSE_MAX, TEXT_MAX, failure,
};
use talea_proto::message::Name;
use zerocopy::{FromBytes, IntoBytes};

/// Time that the start of the daemon waits for its hosts: a host that gets no CPU time must not
/// keep the daemon from its other clients.
const START_PATIENCE: Span = Span::from_ns(1_000_000_000);
/// Maximum duration of loading and `init`.
const INIT_TIMEOUT: Span = Span::from_ns(10_000_000_000);
/// Maximum total duration of all `fini` functions; less than a second.
const FINI_TIMEOUT: Span = Span::from_ns(300_000_000);
/// Delay of the first restart.
const FIRST_DELAY: Span = Span::from_ns(100_000_000);
/// Longest delay of a restart.
const MAX_DELAY: Span = Span::from_ns(10_000_000_000);
/// Time without a failure after which the delay is [`FIRST_DELAY`] again.
const STABLE_AFTER: Span = Span::from_ns(60_000_000_000);

/// A foreign plugin, and when its host starts again.
#[derive(Debug)]
struct ForeignPlugin {
    setup: PluginSetup,
    /// The last host; `None` until the first one has started.
    host: Option<Host>,
    /// Time of the next restart of a failed host; `None` if there is none.
    restart_at: Option<Monotonic>,
    /// Delay of the last restart.
    delay: Span,
    /// Time of the last start.
    started_at: Monotonic,
}

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
    lines: LineBuffer,
}

/// New levels of specs, and whether the plugin may have more of them.
type NewRanks = (Vec<(SpecId, i32)>, bool);

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
    Answered(Ticket, Option<Box<ForeignAnswer>>),
    /// This plugin has given specs new levels; whether it may have more of them.
    Ranked(u32, Vec<(SpecId, i32)>, bool),
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
    /// The host has closed its connection. The log gets the exit status of its process.
    Closed,
    /// The process is late or cannot be used: a new one may serve.
    Ended(String),
    /// An answer violates the protocol.
    Violation(String),
}

/// Hosts of all foreign plugins.
#[derive(Debug)]
pub(crate) struct Hosts {
    /// `plugins[p]`: plugin `p`, if it is from outside.
    plugins: Vec<Option<ForeignPlugin>>,
    starter: Starter,
}

impl Hosts {
    /// Starts a process for each foreign plugin of `setup`, and waits until all of them are ready,
    /// but no longer than [`START_PATIENCE`]. [`Hosts::late`] returns the others.
    ///
    /// The error names the plugin that refused to start, with the reason. The other hosts are
    /// stopped. A host that crashes is late: it starts again as at any other time, because a plugin
    /// must not keep the daemon from serving the others.
    pub(crate) fn start(
        setup: &Setup,
        platform: &Platform,
        program: Option<&Path>,
        log: Log,
    ) -> Result<Hosts, String> {
        let now = clock::now();
        let foreign = |plugin: &PluginSetup| {
            matches!(plugin.kind, PluginKind::Foreign(_)).then(|| ForeignPlugin {
                setup: plugin.clone(),
                host: None,
                restart_at: None,
                delay: FIRST_DELAY,
                started_at: now,
            })
        };
        let starter = Starter::new(program.map(Path::to_owned), DeadlineFacts::of(platform), log)
            .map_err(|error| format!("event: {error}"))?;
        let mut hosts = Hosts { plugins: setup.plugins.iter().map(foreign).collect(), starter };
        let patience = mutate!("plugin-foreign-patience", START_PATIENCE, INIT_TIMEOUT);
        hosts.wait_for_first(now.saturating_add(patience), &log)?;
        Ok(hosts)
    }

    /// Starts the first host of each plugin and waits for them until `end`.
    fn wait_for_first(&mut self, end: Monotonic, log: &Log) -> Result<(), String> {
        let failed = |plugin: &ForeignPlugin, why| {
            format!("plugin `{}` failed to start: {why}", plugin.setup.name)
        };
        let mut missing = 0;
        for (index, plugin) in self.plugins.iter().enumerate() {
            if let Some(plugin) = plugin {
                self.starter.start(index as u32, &plugin.setup);
                missing += 1;
            }
        }
        while missing > 0 && clock::now() < end {
            for (index, started) in self.starter.results.take_until(end) {
                missing -= 1;
                let Some(plugin) = &mut self.plugins[index as usize] else { continue };
                plugin.host = Some(started.map_err(|why| failed(plugin, why))?);
            }
        }
        for plugin in self.plugins.iter_mut().flatten() {
            let Some(host) = &mut plugin.host else { continue };
            let ready = host.wait_until_ready(end);
            // Output up to now explains a failure; later lines are read by the event loop.
            host.log_stderr(clock::now(), log);
            match ready {
                Ok(()) if host.starting => {}
                Ok(()) => host.log_isolation(log),
                Err(HostFailure::Closed) => {
                    let end = host.process.end_and_wait(&host.socket);
                    log.error(format_args!("plugin `{}`: its host {end} during init", host.name));
                    plugin.host = None;
                    plugin.plan_restart(clock::now());
                }
                Err(HostFailure::Ended(why) | HostFailure::Violation(why)) => {
                    return Err(failed(plugin, why));
                }
            }
        }
        Ok(())
    }

    /// Returns the plugins whose host is not ready yet.
    pub(crate) fn late(&self) -> Vec<u32> {
        let plugins = self.plugins.iter().enumerate();
        let late = plugins.filter(|(_, plugin)| {
            let is_ready = |host: &Host| !host.starting && !host.failed;
            plugin.as_ref().is_some_and(|plugin| !plugin.host.as_ref().is_some_and(is_ready))
        });
        late.map(|(index, _)| index as u32).collect()
    }

    /// Returns the descriptor that is readable when [`Hosts::take_started`] has a result.
    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.starter.results.as_fd()
    }

    /// Handles the processes that have started since the last call.
    pub(crate) fn take_started(&mut self, now: Monotonic, events: &mut Vec<HostEvent>, log: &Log) {
        for (index, started) in self.starter.results.take() {
            let Some(plugin) = &mut self.plugins[index as usize] else { continue };
            match started {
                Ok(host) => {
                    plugin.started_at = now;
                    plugin.host = Some(host);
                    events.push(HostEvent::Restarted(index));
                }
                Err(why) => {
                    log.error(format_args!(
                        "plugin `{}` cannot be started again: {why}",
                        plugin.setup.name
                    ));
                    plugin.plan_restart(now);
                }
            }
        }
    }

    fn hosts(&self) -> impl Iterator<Item = (usize, &Host)> {
        let plugins = self.plugins.iter().enumerate();
        plugins.filter_map(|(index, plugin)| Some((index, plugin.as_ref()?.host.as_ref()?)))
    }

    fn host(&self, index: u64) -> Option<&Host> {
        self.plugins.get(index as usize)?.as_ref()?.host.as_ref()
    }

    fn plugin_mut(&mut self, index: u64) -> Option<&mut ForeignPlugin> {
        self.plugins.get_mut(index as usize)?.as_mut()
    }

    /// Returns the descriptors for the event loop: index, socket, standard error.
    pub(crate) fn descriptors(
        &self,
    ) -> impl Iterator<Item = (u64, BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.hosts().map(|(index, host)| (index as u64, host.socket.as_fd(), host.stderr.as_fd()))
    }

    /// Returns the descriptors of one host.
    pub(crate) fn descriptors_of(&self, index: u32) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        let host = self.host(index.into())?;
        Some((host.socket.as_fd(), host.stderr.as_fd()))
    }

    /// Returns the time of the next time-out or restart; `None` if there is none.
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        let plugins = self.plugins.iter().flatten();
        let times = |plugin: &ForeignPlugin| {
            [plugin.host.as_ref().and_then(|host| host.deadline), plugin.restart_at]
        };
        plugins.flat_map(times).flatten().min()
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
        let foreign = self.plugin_mut(plugin.into());
        let is_ready = |host: &&mut Host| !host.failed && !host.starting;
        let host = foreign.and_then(|foreign| foreign.host.as_mut()).filter(is_ready);
        let Some(host) = host else {
            events.push(HostEvent::Answered(ticket, None));
            return;
        };
        let (epoch, request) = (host_call::epoch(request), host_call::request(request, ticket));
        host.pending.push_back(PendingCall { ticket, epoch, request, timeout });
        if host.pending.len() == 1
            && let Err(why) = host.send_front(now)
        {
            self.fail(now, plugin, &why, events, log);
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
        let foreign = self.plugin_mut(index);
        let host = foreign.and_then(|foreign| foreign.host.as_mut());
        let Some(host) = host.filter(|host| !host.failed) else { return };
        let handled = if host.starting {
            host.on_init_answer(index as u32, events, log)
        } else {
            host.on_answer(now, index as u32, events)
        };
        if let Err(why) = handled {
            self.fail(now, index as u32, &why, events, log);
        }
    }

    /// Ends a host, and plans its restart unless it has violated the protocol.
    fn fail(
        &mut self,
        now: Monotonic,
        index: u32,
        why: &HostFailure,
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) {
        let Some(plugin) = self.plugin_mut(index.into()) else { return };
        if let Some(host) = &mut plugin.host {
            host.log_stderr(now, log);
            host.fail(why, events, log);
        }
        if !matches!(why, HostFailure::Violation(_)) {
            plugin.plan_restart(now);
        }
        events.push(HostEvent::Failed(index));
    }

    /// Handles output of a plugin on its standard error. Returns `false` when the plugin has closed
    /// it.
    pub(crate) fn on_stderr_readable(&mut self, now: Monotonic, index: u64, log: &Log) -> bool {
        let foreign = self.plugin_mut(index);
        let host = foreign.and_then(|foreign| foreign.host.as_mut());
        host.is_some_and(|host| host.log_stderr(now, log))
    }

    /// Returns the standard error of a host, to stop watching it.
    pub(crate) fn stderr(&self, index: u64) -> Option<BorrowedFd<'_>> {
        self.host(index).map(|host| host.stderr.as_fd())
    }

    /// Returns the socket of a failed host, to stop watching it.
    pub(crate) fn failed_socket(&self, index: u32) -> Option<BorrowedFd<'_>> {
        self.host(index.into()).filter(|host| host.failed).map(|host| host.socket.as_fd())
    }

    /// Stops the host of a plugin that the broker no longer calls; `false` if the host has already
    /// stopped.
    pub(crate) fn stop_host(&mut self, plugin: u32) -> bool {
        let Some(foreign) = self.plugin_mut(plugin.into()) else { return false };
        let Some(host) = foreign.host.as_mut().filter(|host| !host.failed) else { return false };
        host.stop(true);
        host.pending.clear();
        foreign.restart_at = None;
        true
    }

    /// Closes the connection of every host and waits a bounded time for their `fini`.
    pub(crate) fn shut_down(&mut self, log: &Log) {
        let hosts = || self.hosts().map(|(_, host)| host).filter(|host| !host.failed);
        for host in hosts() {
            host.process.expect_end();
            // A host reads the end of the stream. An error means that the host has already exited.
            let _ = rustix::net::shutdown(&host.socket, rustix::net::Shutdown::Both);
        }
        let end = clock::now() + FINI_TIMEOUT;
        for host in hosts() {
            // A host that has exited has closed its standard error. Dropping the last handle kills
            // a child that has not exited by then.
            let _ = rustix::event::poll(
                &mut [rustix::event::PollFd::new(&host.stderr, rustix::event::PollFlags::empty())],
                Some(&left(end)),
            );
        }
        for host in self.plugins.iter_mut().flatten().filter_map(|plugin| plugin.host.as_mut()) {
            host.log_stderr(clock::now(), log);
        }
    }

    /// Fails the hosts with an expired time-out, and starts those whose restart is due.
    pub(crate) fn expire(&mut self, now: Monotonic, events: &mut Vec<HostEvent>, log: &Log) {
        for index in 0..self.plugins.len() {
            let Some(plugin) = &mut self.plugins[index] else { continue };
            if plugin.restart_at.is_some_and(|at| at <= now) {
                plugin.restart_at = None;
                self.starter.start(index as u32, &plugin.setup);
                continue;
            }
            let Some(host) = &mut plugin.host else { continue };
            if let Some(why) = host.expire(now) {
                self.fail(now, index as u32, &HostFailure::Ended(why), events, log);
            }
        }
    }
}

impl ForeignPlugin {
    /// Plans the next restart.
    fn plan_restart(&mut self, now: Monotonic) {
        let is_stable = now >= self.started_at.saturating_add(STABLE_AFTER);
        let delay = if is_stable { FIRST_DELAY } else { self.delay };
        self.restart_at = mutate!("plugin-foreign-restart", Some(now.saturating_add(delay)), None);
        self.delay = Span::from_ns(delay.as_ns() * 2).min(MAX_DELAY);
    }
}

/// Facts about the kernel's deadline class for plugins.
#[derive(Clone, Copy, Debug)]
struct DeadlineFacts {
    /// Share of a CPU that the kernel admits, in units of 2^-64, at most `u64::MAX`.
    share: u64,
    /// Shortest and longest period.
    period: (Span, Span),
}

impl DeadlineFacts {
    fn of(platform: &Platform) -> DeadlineFacts {
        DeadlineFacts {
            share: u64::try_from(platform.deadline_share.bits()).unwrap_or(u64::MAX),
            period: platform.deadline_period,
        }
    }
}

/// Result of a start: index of the plugin, and its host or the reason why there is none.
type StartResult = (u32, Result<Host, String>);

/// Starter of hosts. A thread per process starts it and then waits for its end: see
/// [`HostProcess`].
#[derive(Debug)]
struct Starter {
    shared: Arc<StarterShared>,
    results: Arc<EventQueue<StartResult>>,
}

#[derive(Debug)]
struct StarterShared {
    /// Path of the host program, if not the default.
    program: Option<PathBuf>,
    facts: DeadlineFacts,
    /// `users[p]`: user of the last host of plugin `p`. Locked during a start, so that no two
    /// choose the same user.
    users: Mutex<BTreeMap<u32, u32>>,
    log: Log,
}

impl Starter {
    fn new(program: Option<PathBuf>, facts: DeadlineFacts, log: Log) -> io::Result<Starter> {
        let shared = Arc::new(StarterShared { program, facts, users: Mutex::default(), log });
        Ok(Starter { shared, results: Arc::new(EventQueue::new()?) })
    }

    /// Starts a host. Does not wait for it.
    fn start(&self, index: u32, setup: &PluginSetup) {
        let (shared, setup) = (self.shared.clone(), setup.clone());
        // The thread outlives the event loop of an embedded daemon. Then the host is dropped, which
        // ends it.
        let results = Arc::downgrade(&self.results);
        let report = move |result| {
            if let Some(results) = results.upgrade() {
                results.push((index, result));
            }
        };
        let thread = std::thread::Builder::new().name(format!("talea-host/{index}"));
        if let Err(error) = thread.spawn(move || shared.run(index, &setup, report)) {
            self.results.push((index, Err(format!("thread: {error}"))));
        }
    }
}

impl StarterShared {
    /// Starts the process of a host, reports it, and waits for its end.
    fn run(&self, index: u32, setup: &PluginSetup, report: impl FnOnce(Result<Host, String>)) {
        let started = {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            let taken: Vec<u32> = users.values().copied().collect();
            let started = Host::spawn(setup, self.facts, self.program.as_deref(), &taken);
            let uid = started.as_ref().ok().and_then(|(host, _)| host.process.uid());
            users.extend(uid.map(|uid| (index, uid)));
            started
        };
        // The first hosts start before the daemon drops its rights. A thread that waits needs none,
        // and may always drop them.
        let _ = keep_only(CapSet::of(&[]));
        match started {
            Ok((host, collector)) => {
                report(Ok(host));
                if let Some(collector) = collector {
                    collector.collect(&setup.name, &self.log);
                }
            }
            Err(why) => report(Err(why)),
        }
    }
}

impl Host {
    /// Starts the process of a host and sends it the setup.
    fn spawn(
        plugin: &PluginSetup,
        facts: DeadlineFacts,
        program: Option<&Path>,
        taken: &[u32],
    ) -> Result<(Host, Option<Collector>), String> {
        let PluginKind::Foreign(options) = &plugin.kind else {
            return Err("it is no plugin from outside".to_owned());
        };
        let (module, argument) = (&options.module, &options.argument);
        files::check_trusted(Path::new(module)).map_err(|untrusted| untrusted.to_string())?;
        if module.len() > TEXT_MAX || argument.len() > TEXT_MAX {
            return Err(format!("`module` and `argument` may have at most {TEXT_MAX} bytes each"));
        }
        let Started { process, socket, stderr, pass, collector } =
            HostProcess::start(program, taken)?;
        rustix::io::ioctl_fionbio(&socket, true).map_err(|error| format!("socket: {error}"))?;
        let host = Host {
            name: plugin.name.clone(),
            process,
            socket,
            stderr,
            pending: VecDeque::new(),
            deadline: Some(clock::now() + INIT_TIMEOUT),
            started: CallStart::default(),
            failed: false,
            starting: true,
            lines: LineBuffer::default(),
        };
        host.send_setup(
            plugin,
            options.class,
            facts,
            (module, argument),
            pass.as_ref().map(AsFd::as_fd),
        )?;
        Ok((host, collector))
    }

    /// Waits for the answer to the setup until `end`; without one, the host is still starting.
    fn wait_until_ready(&mut self, end: Monotonic) -> Result<(), HostFailure> {
        let mut poll = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        if rustix::event::poll(&mut poll, Some(&left(end))).is_ok_and(|count| count == 0) {
            return Ok(());
        }
        self.receive_init()
    }

    /// Handles the answer to the setup of a host whose start the event loop watches.
    fn on_init_answer(
        &mut self,
        index: u32,
        events: &mut Vec<HostEvent>,
        log: &Log,
    ) -> Result<(), HostFailure> {
        self.receive_init()?;
        if !self.starting {
            self.log_isolation(log);
            events.push(HostEvent::Serves(index));
        }
        Ok(())
    }

    fn log_isolation(&self, log: &Log) {
        log.info(format_args!("plugin `{}`: {}", self.name, self.process.isolation()));
    }

    /// Handles the answer to a call.
    fn on_answer(
        &mut self,
        now: Monotonic,
        index: u32,
        events: &mut Vec<HostEvent>,
    ) -> Result<(), HostFailure> {
        let Some((answer, ranks)) = self.receive()? else { return Ok(()) };
        let answered =
            self.pending.pop_front().expect("`receive` has matched the answer with the first call");
        let (ranks, more) = ranks;
        if !ranks.is_empty() || more {
            events.push(HostEvent::Ranked(index, ranks, more));
        }
        let answer = host_call::answer(&answer, answered.epoch);
        events.push(HostEvent::Answered(answered.ticket, Some(Box::new(answer))));
        self.deadline = None;
        self.send_front(now)
    }

    /// Returns the reason if the host is late.
    fn expire(&mut self, now: Monotonic) -> Option<String> {
        let is_due = self.deadline.is_some_and(|deadline| deadline <= now);
        if self.starting {
            let seconds = INIT_TIMEOUT.as_ns() / 1_000_000_000;
            return is_due.then(|| format!("its init was not done within {seconds} s"));
        }
        if !mutate!("plugin-foreign-late", is_due, false) {
            return None;
        }
        let timeout = self.pending.front().map_or(Span::ZERO, |first| first.timeout);
        let left = self.started.left(self.process.pid(), now, timeout);
        self.deadline = left.map(|left| now + left);
        left.is_none().then(|| format!("no answer within {timeout}"))
    }

    fn send_setup(
        &self,
        plugin: &PluginSetup,
        class: ForeignClass,
        facts: DeadlineFacts,
        (module, argument): (&str, &str),
        pass: Option<BorrowedFd>,
    ) -> Result<(), String> {
        let band = plugin.band.map_or((0, 0), |band| (band.low.0, band.high.0));
        let setup = host::HostSetup {
            version: HOST_VERSION,
            priority_low: band.0.into(),
            priority_high: band.1.into(),
            module_len: module.len() as u16,
            argument_len: argument.len() as u16,
            cpus: *plugin.cpus.words(),
            name: Name::new(&plugin.name).unwrap_or_default().0,
            class: match class {
                ForeignClass::Fifo => host::class::FIFO,
                ForeignClass::Rr => host::class::RR,
                ForeignClass::Deadline => host::class::DEADLINE,
            },
            reserved: 0,
            deadline_share: facts.share,
            period_min_ns: facts.period.0.as_ns(),
            period_max_ns: facts.period.1.as_ns(),
        };
        let mut message = setup.as_bytes().to_vec();
        message.extend_from_slice(module.as_bytes());
        message.extend_from_slice(argument.as_bytes());
        seqpacket::send(&self.socket, &message, pass).map_err(|error| format!("its host: {error}"))
    }

    /// Receives the answer to the setup, after which the host serves. Without an answer it is still
    /// starting.
    fn receive_init(&mut self) -> Result<(), HostFailure> {
        let ended = |why: String| HostFailure::Ended(why);
        let mut buffer = [0; size_of::<HostResponse>() + 1];
        let (len, sender) = match seqpacket::recv_sender(&self.socket, &mut buffer) {
            Ok((0, _)) => return Err(HostFailure::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(HostFailure::Closed);
            }
            Err(error) => return Err(ended(format!("its host: {error}"))),
        };
        let answer = HostResponse::read_from_bytes(&buffer[..len])
            .map_err(|_| ended("its host sent an invalid answer to the setup".to_owned()))?;
        match answer.verdict {
            0 => {
                self.process.set_sender(sender).map_err(ended)?;
                seqpacket::report_senders(&self.socket, false)
                    .map_err(|error| ended(format!("socket: {error}")))?;
                (self.starting, self.deadline) = (false, None);
                Ok(())
            }
            failure::LOAD => {
                Err(ended("its module could not be loaded (see the previous line)".to_owned()))
            }
            failure::SANDBOX => Err(ended(
                "its host could not drop its capabilities (see the previous line)".to_owned(),
            )),
            code => Err(ended(format!("its init refused with {code}"))),
        }
    }

    fn send_front(&mut self, now: Monotonic) -> Result<(), HostFailure> {
        let Some(first) = self.pending.front() else { return Ok(()) };
        self.deadline = Some(now + first.timeout);
        self.started = CallStart::of(self.process.pid(), now);
        seqpacket::send(&self.socket, first.request.as_bytes(), None).map_err(|error| {
            match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => HostFailure::Closed,
                _ => HostFailure::Ended(error.to_string()),
            }
        })
    }

    /// Receives the answer to the first queued call; `None` if no message has arrived.
    fn receive(&mut self) -> Result<Option<(HostResponse, NewRanks)>, HostFailure> {
        let mut buffer = [0; RESPONSE_MAX + 1];
        let received = match seqpacket::recv(&self.socket, &mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Err(HostFailure::Closed);
            }
            Err(error) => return Err(HostFailure::Ended(error.to_string())),
        };
        if received.len == 0 {
            return mutate!("plugin-foreign-ended", Err(HostFailure::Closed), Ok(None));
        }
        let in_flight = self.pending.front().ok_or_else(|| {
            HostFailure::Violation("it sent a message although no call was in flight".to_owned())
        })?;
        let wrong_length =
            || HostFailure::Violation(format!("its answer has a wrong length, {}", received.len));
        let (answer, ranks) =
            HostResponse::read_message(&buffer[..received.len]).ok_or_else(wrong_length)?;
        if mutate!("plugin-foreign-ticket", answer.ticket != in_flight.request.ticket, false) {
            let why = "its answer has the ticket of another call";
            return Err(HostFailure::Violation(why.to_owned()));
        }
        Ok(Some((answer, host_call::ranks(&ranks))))
    }

    fn fail(&mut self, why: &HostFailure, events: &mut Vec<HostEvent>, log: &Log) {
        let text = match why {
            HostFailure::Closed => self.process.service_end(),
            HostFailure::Ended(text) | HostFailure::Violation(text) => Some(text.as_str()),
        };
        if let Some(text) = text {
            log.error(format_args!("plugin `{}`: {text}", self.name));
        }
        self.stop(!matches!(why, HostFailure::Closed));
        events.extend(
            self.pending.drain(..).map(|pending| HostEvent::Answered(pending.ticket, None)),
        );
    }

    /// Ends the process. With `is_expected`, the log does not need its exit status.
    fn stop(&mut self, is_expected: bool) {
        self.failed = true;
        self.starting = false;
        self.deadline = None;
        self.process.end(&self.socket, is_expected);
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
