//! Event loop of the daemon: it passes kernel events to the broker and executes the broker's
//! effects.
//!
//! Model: one thread, one epoll set; the simulated driver in `talea-broker` follows the same rules.
//! A round waits, reads the clock, receives at most one message from each ready connection, and
//! executes the effects in order. Module `serve` defines the order and the share of each user,
//! `accept_queue` those of new connections;
//! module `edge_trigger` defines the optimisation for a single busy connection. The hot path is
//! wait, receive, decode, decide, store, send, without an allocation or a further system call.
//!
//! Invariants.
//!
//! 1. The daemon never waits for a client. A reply that does not fit into its socket ends the
//!    connection. Descriptors that may take long to close are closed by other threads (module
//!    `deferred_close`).
//! 2. A record is in the state file before the recorded operation is executed.
//! 3. A descriptor that cannot be served is not watched, so the loop never spins.

mod accept;
mod accept_queue;
mod acceptor;
mod adopt;
mod changes;
mod cpus;
mod deferred_close;
mod edge_trigger;
mod effects;
mod fair_queue;
mod inspect;
mod processes;
mod receive;
mod reload;
mod serve;
mod sessions;
mod state_mirror;
mod survey;
mod threads;
mod token;
mod watchdog;

pub use reload::Reload;
use talea_core::mutate;

use crate::canaries::Canaries;
use crate::enforcement::{self, Enforcement};
use crate::entropy::Entropy;
use crate::hosts::{HostEvent, Hosts};
use crate::log::{Log, LogLimiter};
use crate::loop_priority::{self, LoopPriority};
use crate::partitions::Partitions;
use crate::rights;
use crate::service_manager::notify;
use crate::trail::{Trail, TrailOptions};
use acceptor::Acceptor;
use cpus::Cpus;
use deferred_close::DeferredClose;
use edge_trigger::AdaptivePolling;
use fair_queue::FairQueue;
use processes::Processes;
use reload::Reloader;
use sd_notify::NotifyState;
use sessions::Sessions;
use state_mirror::StateMirror;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use survey::Survey;
use talea_broker::{Broker, Input, Peer};
use talea_core::setup::{PluginKind, Setup};
use talea_core::{CpuSet, Monotonic, Span};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::seqpacket::Listener;
use talea_os::signals::{Signal, Signals};
use talea_os::statefile::{StateError, StateFile};
use talea_os::sysinfo::SystemInfo;
use talea_os::thread::dl_overruns;
use talea_os::{Tid, clock, proc, seqpacket};
use talea_proto::MESSAGE_MAX;
use talea_proto::record::RECORD_SIZE;
use threads::Threads;
use token::Token;
use watchdog::Watchdog;

/// Maximum number of events per round. A connection beyond it is not served in this round.
const MAX_EVENTS: usize = 1024;
/// Maximum number of thread exits handled per round.
const MAX_THREAD_EXITS: u32 = 4;
/// Time for the connections of an exited process to end by themselves, in their user's order.
/// Connections left after it, because a child has inherited the sockets, are then closed.
const PROCESS_EXIT_GRACE: Span = Span::from_ns(100_000_000);
/// Capacity of a new state file, in slots; the file grows on demand.
const STATE_CAPACITY: usize = 64;
/// File beside the state file: the times until which threads must stay out of the deadline class.
const OVERRUN_FILE: &str = "dl_overruns";
/// Maximum time that an embedded daemon waits for the lock on the state file.
const STATE_LOCK_TIMEOUT: Span = Span::from_ns(5_000_000_000);

/// Parts of a daemon.
pub struct Parts {
    /// Plugins, rules and quotas.
    pub setup: Setup,
    /// The machine.
    pub machine: SystemInfo,
    /// File that mirrors the grants.
    pub state: StateFile,
    /// File with the overruns of threads that have left the deadline class.
    pub overruns: dl_overruns::PersistGuard,
    /// Cpuset partitions, which are undone with the daemon unless threads still need them.
    pub partitions: Option<Partitions>,
    /// Sockets that accept clients.
    pub listeners: Vec<Listener>,
    /// Signals to handle, if any.
    pub signals: Option<Signals>,
    /// Function called on SIGHUP.
    pub reload: Option<Reload>,
    /// Path of the plugins' host program, if not the default.
    pub host_program: Option<PathBuf>,
    /// Whether the daemon drops its capabilities, runs above its bands and enforces the budgets of
    /// FIFO and RR threads; an embedded daemon does nothing of this.
    pub is_service: bool,
    /// Place of the audit trail, if there is one.
    pub trail: Option<TrailOptions>,
    /// Log.
    pub log: Log,
}

/// Result of the adoption at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Adoption {
    /// Number of occupied slots of the state file, including unreadable ones.
    pub found: usize,
    /// Number of grants that are in the state file after the adoption.
    pub kept: usize,
    /// Number of slots that were unreadable and have been cleared.
    pub unreadable: usize,
    /// Whether the file is from another boot, so that none of its grants is adopted.
    pub other_boot: bool,
}

/// Reason why [`Daemon::run`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal; the grants stay.
    Signal,
    /// The request of a client.
    Requested,
    /// No connection exists and none can be accepted: the end of an embedded daemon.
    Idle,
}

/// Rate limits for log lines that a client can cause repeatedly.
#[derive(Debug, Default)]
struct LogLimiters {
    /// Connections that are not accepted or not read.
    rejected: LogLimiter,
    /// Sockets to which only root can connect.
    restricted: LogLimiter,
    /// Threads that are not watched.
    unwatched: LogLimiter,
    /// CPUs that threads without a grant starve.
    starved: LogLimiter,
}

/// Buffers of one message each.
struct Buffers {
    inbox: Box<[u8; MESSAGE_MAX]>,
    outbox: Box<[u8; MESSAGE_MAX]>,
}

impl Buffers {
    fn new() -> Buffers {
        Buffers { inbox: Box::new([0; MESSAGE_MAX]), outbox: Box::new([0; MESSAGE_MAX]) }
    }
}

/// A broker with its driver.
pub struct Daemon {
    broker: Broker,
    epoll: Epoll,
    priority: LoopPriority,
    canaries: Canaries,
    acceptor: Acceptor,
    deferred_close: DeferredClose,
    sessions: Sessions,
    fair_queue: FairQueue,
    polling: AdaptivePolling,
    threads: Threads,
    survey: Survey,
    cpus: Cpus,
    processes: Processes,
    hosts: Hosts,
    // Dropped before `state`, whose lock the next daemon waits for.
    trail: Option<Trail>,
    state: StateMirror,
    partitions: Option<Partitions>,
    signals: Option<Signals>,
    reloader: Option<Reloader>,
    entropy: Entropy,
    log: Log,
    host_events: Vec<HostEvent>,
    buffers: Buffers,
    wakeups: u64,
    watchdog: Watchdog,
    limiters: LogLimiters,
    exit: Option<ExitReason>,
}

impl Daemon {
    /// Starts the plugins and adopts the grants of an earlier daemon. With [`Parts::is_service`],
    /// drops the capabilities, raises the calling thread, which must call [`Daemon::run`], and
    /// starts the enforcers. The error names the failed part.
    pub fn new(parts: Parts) -> Result<(Daemon, Adoption), String> {
        let Parts {
            setup,
            machine,
            state,
            overruns,
            partitions,
            listeners,
            signals,
            reload,
            host_program,
            is_service,
            trail,
            log,
        } = parts;
        let os = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let made = partitions.as_ref().map_or(CpuSet::EMPTY, |partitions| *partitions.cpus());
        let mut platform = crate::convert::platform(&machine, &made);
        let hosts = Hosts::start(&setup, &platform, host_program.as_deref(), log)?;
        let has_hosts =
            setup.plugins.iter().any(|plugin| matches!(plugin.kind, PluginKind::Foreign(_)));
        if is_service {
            // Capabilities are kept per thread: before the enforcers start.
            rights::drop_rights(has_hosts).map_err(os("dropping capabilities"))?;
            rights::lock_memory(&log);
        }
        let priority = is_service.then(|| raise(loop_priority::priority(&setup), &log));
        let priority = priority.flatten();
        // A starved daemon could not tell its own silence from that of a canary.
        let canaries = priority
            .as_ref()
            .map(|_| Canaries::start(&machine.online.difference(&machine.isolated)));
        let enforcement = is_service.then(|| Enforcement::start(&machine.present, &machine.online));
        let enforcement = match enforcement {
            Some(Ok(enforcement)) => Some(enforcement),
            Some(Err(error)) => {
                log.warning(format_args!(
                    "the budgets of FIFO and RR threads are not enforced: {error}"
                ));
                None
            }
            None => None,
        };
        let (priority, canaries) = (priority.unwrap_or_default(), canaries.unwrap_or_default());
        let trail = trail.map(|options| Trail::start(options, log)).transpose();
        let trail = trail.map_err(os("the audit trail"))?;
        platform.enforcement = enforcement.as_ref().map(|_| enforcement::GRANULARITY);
        let mut broker = Broker::new(setup, platform)?;
        let mut entropy = Entropy::new().map_err(os("random numbers"))?;
        // Zero means "no daemon yet".
        let instance = (entropy.take() as u64).max(1);
        broker.set_identity(instance, std::process::id());
        let epoll = Epoll::new().map_err(os("epoll"))?;
        if let Some(signals) = &signals {
            epoll.add(signals, Interest::READ, Token::Signals.pack()).map_err(os("signals"))?;
        }
        for (index, socket, stderr) in hosts.descriptors() {
            epoll.add(socket, Interest::READ, Token::Host(index).pack()).map_err(os("plugins"))?;
            epoll
                .add(stderr, Interest::READ, Token::HostStderr(index).pack())
                .map_err(os("plugins"))?;
        }
        epoll
            .add(hosts.event(), Interest::READ, Token::HostStarts.pack())
            .map_err(os("plugins"))?;
        if let Some(enforcement) = &enforcement {
            epoll
                .add(enforcement.event(), Interest::READ, Token::Demoted.pack())
                .map_err(os("limits"))?;
        }
        let reloader = reload.map(Reloader::new).transpose().map_err(os("reload"))?;
        if let Some(reloader) = &reloader {
            epoll
                .add(reloader.event(), Interest::READ, Token::Reloaded.pack())
                .map_err(os("reload"))?;
        }
        let polling = AdaptivePolling::new(&epoll).map_err(os("timers"))?;
        let cpus = Cpus::watch(machine.present, machine.online, &epoll);
        let threads = Threads::new(&machine, enforcement);
        let mut daemon = Daemon {
            broker,
            epoll,
            priority,
            canaries,
            acceptor: Acceptor::new(),
            deferred_close: DeferredClose::new(),
            sessions: Sessions::default(),
            fair_queue: FairQueue::default(),
            polling,
            threads,
            survey: Survey::default(),
            cpus,
            processes: Processes::default(),
            hosts,
            state: StateMirror::new(state, overruns),
            partitions,
            signals,
            reloader,
            entropy,
            trail,
            log,
            host_events: Vec::new(),
            buffers: Buffers::new(),
            wakeups: 0,
            watchdog: if is_service {
                Watchdog::from_environment(clock::now())
            } else {
                Watchdog::default()
            },
            limiters: LogLimiters::default(),
            exit: None,
        };
        for plugin in daemon.hosts.late() {
            daemon.handle_input(clock::now(), Input::HostStarting { plugin });
        }
        let adoption = daemon.adopt(clock::now());
        // Until here, the loop waits for threads that it has started.
        mutate!("daemon-start-inherits", daemon.priority.stop_inheritance(), Ok(()))
            .map_err(os("reset on fork"))?;
        daemon.update_change_events(clock::now());
        // Listening starts last: every connection finds a broker that knows the adopted grants.
        daemon.acceptor.listen(listeners, &daemon.epoll).map_err(os("listening"))?;
        Ok((daemon, adoption))
    }

    /// Creates a daemon for one client in this process: without a socket in the file system,
    /// without signals, with the same state file.
    ///
    /// The lock on the state file excludes any other daemon, so nothing is granted twice. An
    /// embedded daemon waits a few seconds for the lock. [`Daemon::run`] returns when the client's
    /// end is closed. Grants owned by a process or a thread stay in force; the next daemon on the
    /// same state adopts them.
    pub fn embedded(
        setup: Setup,
        machine: SystemInfo,
        state: &Path,
        log: Log,
    ) -> Result<(Daemon, OwnedFd), String> {
        let (mut daemon, ours, theirs) = Daemon::unconnected(setup, machine, state, log)?;
        daemon
            .add_connection(clock::now(), ours)
            .map_err(|error| format!("socketpair: {error}"))?;
        Ok((daemon, theirs))
    }

    /// Variant of [`Daemon::embedded`] that releases what a daemon left: the client has the rights
    /// of the superuser over every grant of the state file. The client is this process, which holds
    /// the file, and the kernel checks its right to each change of a thread.
    pub fn embedded_for_repair(
        setup: Setup,
        machine: SystemInfo,
        state: &Path,
        log: Log,
    ) -> Result<(Daemon, OwnedFd), String> {
        let (mut daemon, ours, theirs) = Daemon::unconnected(setup, machine, state, log)?;
        let failed = |error: io::Error| format!("socketpair: {error}");
        let uid = mutate!("repair-superuser", 0, rustix::process::geteuid().as_raw());
        let share = daemon.broker.subject_of_specs(uid).number();
        let session = daemon.sessions.add(ours, (uid, share), &daemon.epoll).map_err(failed)?;
        let pid = std::process::id();
        let pid_start = proc::stat(Tid::of_process()).map_err(failed)?.start_ticks;
        let peer = Peer { pid, pid_start, uid, ..Peer::default() };
        daemon.handle_input(clock::now(), Input::Connected { session, peer });
        Ok((daemon, theirs))
    }

    /// Creates an embedded daemon, with the two ends of its connection.
    fn unconnected(
        setup: Setup,
        machine: SystemInfo,
        state: &Path,
        log: Log,
    ) -> Result<(Daemon, OwnedFd, OwnedFd), String> {
        let file = StateFile::open_waiting(state, RECORD_SIZE, STATE_CAPACITY, STATE_LOCK_TIMEOUT)
            .map_err(|error| error.to_string())?;
        let overruns = Daemon::open_overruns(state).map_err(|error| error.to_string())?;
        let parts = Parts {
            setup,
            machine,
            state: file,
            overruns,
            // Existing partitions are used. An embedded daemon makes none, because it ends between
            // two requests.
            partitions: None,
            listeners: Vec::new(),
            signals: None,
            reload: None,
            host_program: None,
            is_service: false,
            trail: None,
            log,
        };
        let (daemon, _) = Daemon::new(parts)?;
        let pair = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (ours, theirs) = seqpacket::pair(false)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            Ok((ours, theirs))
        };
        let (ours, theirs) = pair().map_err(|error| format!("socketpair: {error}"))?;
        Ok((daemon, ours, theirs))
    }

    /// Opens the state file at `path` for a daemon.
    pub fn open_state(path: &Path) -> Result<StateFile, StateError> {
        StateFile::open_or_create(path, RECORD_SIZE, STATE_CAPACITY)
    }

    /// Opens the file of deadline overruns beside the open state file at `state`.
    pub fn open_overruns(state: &Path) -> Result<dl_overruns::PersistGuard, StateError> {
        let name = mutate!(
            "daemon-debts-forgotten",
            OVERRUN_FILE.to_owned(),
            format!("{OVERRUN_FILE}-{}", std::process::id())
        );
        dl_overruns::persist_to(&state.with_file_name(name))
    }

    /// Serves until a reason to exit, then closes all connections, ends all limits and undoes the
    /// partitions.
    // Performance: wait, receive and send are executed in this stack frame, so every function
    // between is inlined. The kernel overwrites the processor's return stack. Therefore the first
    // return from a function that made a system call is mispredicted, which costs up to 0.7 µs on a
    // virtual machine with expensive mispredictions.
    pub fn run(&mut self) -> io::Result<ExitReason> {
        let mut events = Events::with_capacity(MAX_EVENTS);
        loop {
            if self.exit.is_none() && self.sessions.is_empty() && self.acceptor.has_no_listener() {
                self.exit = Some(ExitReason::Idle);
            }
            if let Some(exit) = self.exit {
                self.hosts.shut_down(&self.log);
                self.threads.end_limits();
                for (share, socket) in self.sessions.remove_all(&self.epoll) {
                    self.deferred_close.hang_up(share, socket);
                }
                self.drop_waiting();
                self.undo_partitions();
                self.broker.flush_audit();
                self.store_audit();
                return Ok(exit);
            }
            let until = self.next_wakeup();
            self.epoll.wait(&mut events, until)?;
            self.wakeups += 1;
            let now = clock::now();
            self.priority.round_begun(now);
            self.run_round(now, &events);
            if let Some(change) = self.priority.round_ended(now) {
                self.change_shares(change);
            }
        }
    }

    /// Undoes the partitions at the end, unless deadline threads still use them.
    fn undo_partitions(&mut self) {
        let Some(partitions) = self.partitions.take() else { return };
        if self.threads.has_deadline() {
            let cpus = *partitions.cpus();
            self.log.info(format_args!(
                "the cpuset partitions of CPUs {cpus} remain, because deadline threads use them; the next start adopts them, \
                 `talea doctor --repair` undoes them"
            ));
            return;
        }
        partitions.undo(self.threads.dl_free_at(), &self.log);
    }

    fn next_wakeup(&self) -> Option<Monotonic> {
        let times = [
            self.broker.next_wakeup(),
            self.hosts.next_deadline(),
            self.processes.next_due(),
            self.threads.changes.next_due(),
            self.next_resume(),
            self.acceptor.resume_at(),
            self.watchdog.next_due(),
            self.next_turn(),
            self.priority.next_due(),
            self.survey.next_due(),
            self.canaries.cpu_times.next_due(),
        ];
        times.into_iter().flatten().min()
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Daemon::run`")]
    fn run_round(&mut self, now: Monotonic, events: &Events) {
        let (sessions, epoll) = (&mut self.sessions, &self.epoll);
        if let Some(id) = self.polling.note_active(now, events, sessions, epoll) {
            self.session_ready_inline(now, id, false);
            self.charge_session(now, id);
            self.polling.consider(&mut self.sessions, &self.epoll);
        } else {
            self.dispatch_events(now, events);
        }
        if self.exit.is_some() {
            return;
        }
        if let Some(process) = self.processes.next_exited(now) {
            let input = Input::ProcessExited { process };
            mutate!("life-process-end", self.handle_input(now, input));
        }
        if self.hosts.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.hosts.expire(now, &mut self.host_events, &self.log);
            self.forward_host_events(now);
        }
        if self.broker.next_wakeup().is_some_and(|at| at <= now) {
            self.handle_input(now, Input::Timer);
        }
        if self.survey.next_due().is_some_and(|at| at <= now) {
            self.continue_survey(now);
        }
        if self.canaries.cpu_times.next_due().is_some_and(|at| at <= now) {
            self.continue_check(now);
            self.run_effects(now);
        }
        self.update_change_events(now);
        if self.acceptor.has_waiting() {
            self.add_waiting(now);
        }
        self.resume_accepting(now);
        if self.sessions.has_suspended() {
            self.resume_reading();
        }
        self.watchdog.keep_alive(now);
    }

    /// Handles events of several connections, or of other sources than connections.
    #[inline(never)]
    fn dispatch_events(&mut self, now: Monotonic, events: &Events) {
        let mut exits = 0;
        for event in events.iter() {
            match Token::unpack(event.token) {
                Token::Session(id) => self.serve_or_defer(now, id, event.is_hangup()),
                Token::NestedSet(uid) => self.serve_or_defer_nested(now, uid),
                // The remaining exits are reported again: exits are handled in no user's share of
                // the round.
                Token::Thread(_) if exits >= MAX_THREAD_EXITS => {}
                Token::Thread(id) => {
                    exits += 1;
                    self.thread_ended(now, id);
                }
                Token::Process(id) => {
                    self.processes.ended(id, now.saturating_add(PROCESS_EXIT_GRACE), &self.epoll);
                }
                Token::Listener(index) => self.accept_ready(now, index),
                Token::Signals => self.on_signal(),
                Token::Reloaded => self.on_reloaded(now),
                Token::PollTimer => self.polling.on_timer(&mut self.sessions, &self.epoll),
                Token::Demoted => {
                    for thread in self.threads.take_demoted() {
                        self.report_overruns(now, thread);
                        self.handle_input(now, Input::Overrun { thread });
                    }
                }
                Token::ProcEvents => self.on_proc_events(now),
                Token::CpuEvents => self.on_cpu_events(now),
                Token::HostStarts => {
                    self.hosts.take_started(now, &mut self.host_events, &self.log);
                    self.forward_host_events(now);
                }
                Token::Host(index) => {
                    self.hosts.on_readable(now, index, &mut self.host_events, &self.log);
                    self.forward_host_events(now);
                }
                Token::HostStderr(index) => {
                    if !self.hosts.on_stderr_readable(now, index, &self.log)
                        && let Some(stderr) = self.hosts.stderr(index)
                    {
                        // The descriptor was watched until now, so this cannot fail.
                        let _ = self.epoll.remove(stderr);
                    }
                }
            }
            if self.exit.is_some() {
                return;
            }
        }
        self.serve_deferred(now);
    }

    /// Passes one input to the broker and executes the resulting effects.
    fn handle_input(&mut self, now: Monotonic, input: Input) {
        self.broker.handle(now, input);
        self.run_effects(now);
    }

    fn thread_ended(&mut self, now: Monotonic, id: u64) {
        let thread = talea_broker::ThreadId(id);
        self.report_overruns(now, thread);
        self.threads.ended(thread, &self.epoll);
        let input = Input::ThreadExited { thread };
        mutate!("life-thread-end", self.handle_input(now, input));
    }

    /// Passes the events of plugin hosts to the broker, in order.
    fn forward_host_events(&mut self, now: Monotonic) {
        let mut events = std::mem::take(&mut self.host_events);
        for event in events.drain(..) {
            let input = match event {
                HostEvent::Answered(ticket, answer) => {
                    Input::PluginAnswered { ticket, answer: answer.map(|answer| *answer) }
                }
                HostEvent::Ranked(plugin, ranks, more) => {
                    Input::PluginRanked { plugin, ranks, more }
                }
                HostEvent::Failed(plugin) => {
                    self.unwatch_host(plugin);
                    Input::HostFailed { plugin }
                }
                HostEvent::Restarted(plugin) => {
                    self.watch_host(plugin);
                    continue;
                }
                HostEvent::Serves(plugin) => Input::HostServes { plugin },
            };
            self.broker.handle(now, input);
        }
        self.host_events = events;
        self.run_effects(now);
    }

    /// Watches the new descriptors of a host. Without them its time-out ends it, and the next
    /// restart tries again.
    fn watch_host(&self, plugin: u32) {
        if let Some((socket, stderr)) = self.hosts.descriptors_of(plugin) {
            let watch = |fd, token: Token| self.epoll.add(fd, Interest::READ, token.pack());
            let watched = watch(socket, Token::Host(plugin.into()))
                .and_then(|()| watch(stderr, Token::HostStderr(plugin.into())));
            if let Err(error) = watched {
                self.log.error(format_args!("the host of a plugin cannot be watched: {error}"));
            }
        }
    }

    fn unwatch_host(&self, plugin: u32) {
        if let Some(socket) = self.hosts.failed_socket(plugin) {
            // The descriptor was watched until now, so this cannot fail.
            let _ = self.epoll.remove(socket);
        }
    }

    fn on_signal(&mut self) {
        while let Some(signal) =
            self.signals.as_ref().and_then(|signals| signals.take().ok().flatten())
        {
            match signal {
                Signal::Term | Signal::Int => self.exit = Some(ExitReason::Signal),
                Signal::Hup => self.begin_reload(),
                // No other signal is in the set.
                _ => {}
            }
        }
    }

    /// Begins to read the configuration again.
    fn begin_reload(&mut self) {
        if let Some(Err(error)) = self.reloader.as_ref().map(Reloader::begin) {
            self.log.error(format_args!(
                "the configuration is not reloaded: no thread can be started: {error}"
            ));
        }
    }

    /// Applies the configurations that were read.
    fn on_reloaded(&mut self, now: Monotonic) {
        let Some(reloader) = &self.reloader else { return };
        for setup in reloader.take() {
            let input = Input::Reloaded { setup: Box::new(setup) };
            mutate!("recovery-reload", self.handle_input(now, input), ());
            self.log.info("the configuration was reloaded");
            notify(&[NotifyState::Ready]);
        }
    }
}

/// Raises the calling thread above the bands of the plugins, where that is permitted.
fn raise(priority: u8, log: &Log) -> Option<LoopPriority> {
    let raised = LoopPriority::raise(priority);
    let raised = raised.inspect_err(|error| {
        log.warning(format_args!(
            "the daemon runs at ordinary priority: threads of its grants may delay its answers, and \
             starved CPUs are not detected; FIFO priority {priority} is not available: {error}"
        ));
    });
    raised.ok()
}
