//! The daemon's loop: what the kernel says goes into the broker, what the broker asks for is done.
//!
//! Model: one thread, one epoll set, twin of the simulation's driver (plate F). A round waits,
//! reads the clock, takes at most one message from each connection that is ready (module `turns`:
//! in which order, and how many of one user; module `alone`: what is spared when there is only
//! one), and carries out the effects in order. The hot path is wait, receive, decode, decide,
//! store, send: no allocation of ours, no other system call.
//!
//! Invariants. The daemon never waits for a client: a reply that does not fit into its socket ends
//! the connection, and what may take its time to close is closed elsewhere (module `closing`). A
//! record lies in the state file before what it promises is done. A descriptor that can't be served
//! is not watched, so that the loop never spins.

mod accept;
mod adopt;
mod alone;
mod closing;
mod effects;
mod sessions;
mod threads;
mod token;
mod turns;

pub use adopt::Adoption;

use crate::entropy::Entropy;
use crate::hosts::{Hosts, News};
use crate::log::{Log, Reminder};
use crate::partitions::Partitions;
use accept::Door;
use alone::Alone;
use closing::Closing;
use sessions::Sessions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use talea_broker::{Broker, Input, SessionId};
use talea_core::setup::Setup;
use talea_core::{CpuSet, Span, Time};
use talea_os::epoll::{Epoll, Events, Interest};
use talea_os::machine::Machine;
use talea_os::seqpacket::Listener;
use talea_os::signals::{Signal, Signals};
use talea_os::statefile::{StateError, StateFile};
use talea_os::thread::debts;
use talea_os::{clock, seqpacket};
use talea_proto::MESSAGE_MAX;
use talea_proto::record::RECORD_SIZE;
use threads::{Processes, Threads};
use token::Token;
use turns::Turns;

/// Most events that one round takes: whoever is not among them can't have a turn.
const ROUND: usize = 1024;
/// Most ended threads that one round buries.
const DEATHS: u32 = 4;
/// How long the connections of a process that has ended may take to end by themselves, one after
/// the other in their user's turns. What then is left of them, because a child has inherited the
/// sockets, ends with the process.
const FAREWELL: Span = Span::from_ns(100_000_000);
/// Room in a new state file; it grows by itself.
const STATE_CAPACITY: usize = 64;
/// Beside the state file: until when threads must stay out of the deadline class.
const DEBTS_FILE: &str = "debts";
/// How long an embedded server waits for another one that holds the state.
const PATIENCE: Span = Span::from_ns(5_000_000_000);

/// Reads the administrator's file again; the error has been logged already.
pub type Reload = Box<dyn FnMut() -> Option<Setup>>;

/// What a server is made of.
pub struct Parts {
    /// Plugins, rules and quotas.
    pub setup: Setup,
    /// The machine that they are for.
    pub machine: Machine,
    /// Where grants are mirrored.
    pub state: StateFile,
    /// Where it stands what threads owe to their last deadline reservations.
    pub debts: debts::Kept,
    /// Cpuset partitions that end with the server, unless somebody still needs them.
    pub partitions: Option<Partitions>,
    /// Where clients come in.
    pub listeners: Vec<Listener>,
    /// Signals to obey, if any.
    pub signals: Option<Signals>,
    /// What to do on SIGHUP.
    pub reload: Option<Reload>,
    /// The plugins' host, if it is not where it belongs.
    pub host_program: Option<PathBuf>,
    /// Where lines go.
    pub log: Log,
}

/// Why [`Server::run`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// A signal asked for it; grants stay.
    Signal,
    /// A client asked for it.
    Stopped,
    /// Nobody is connected and nobody can connect: the end of an embedded server.
    Alone,
}

/// A broker with hands.
pub struct Server {
    broker: Broker,
    epoll: Epoll,
    door: Door,
    closing: Closing,
    /// Connections that are not read until their users' descriptors are closed.
    held_back: Vec<SessionId>,
    sessions: Sessions,
    turns: Turns,
    alone: Alone,
    threads: Threads,
    processes: Processes,
    hosts: Hosts,
    // Let go before the other one, which whoever comes next opens first.
    _debts: debts::Kept,
    state: StateFile,
    partitions: Option<Partitions>,
    signals: Option<Signals>,
    reload: Option<Reload>,
    entropy: Entropy,
    log: Log,
    news: Vec<News>,
    inbox: Box<[u8; MESSAGE_MAX]>,
    outbox: Box<[u8; MESSAGE_MAX]>,
    wakeups: u64,
    state_failing: bool,
    /// For what somebody could provoke as often as they like: connections turned away, and ends not
    /// watched.
    turned_away: Reminder,
    unwatched: Reminder,
    ending: Option<Ending>,
}

impl Server {
    /// Starts the plugins and takes over what an earlier daemon has left. The error says what can't
    /// work.
    pub fn new(parts: Parts) -> Result<(Server, Adoption), String> {
        let Parts {
            setup,
            machine,
            state,
            debts,
            partitions,
            listeners,
            signals,
            reload,
            host_program,
            log,
        } = parts;
        let os = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        let hosts = Hosts::start(&setup, host_program.as_deref(), &log)?;
        let made = partitions.as_ref().map_or(CpuSet::EMPTY, |partitions| *partitions.cpus());
        let mut broker = Broker::new(setup, crate::convert::machine(&machine, &made))?;
        let mut entropy = Entropy::new().map_err(os("random numbers"))?;
        // Zero would read as "no daemon yet".
        let instance = (entropy.take() as u64).max(1);
        broker.introduce(instance, std::process::id());
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
        let alone = Alone::new(&epoll).map_err(os("timers"))?;
        let mut server = Server {
            broker,
            epoll,
            door: Door::closed(),
            closing: Closing::new(),
            held_back: Vec::new(),
            sessions: Sessions::default(),
            turns: Turns::default(),
            alone,
            threads: Threads::default(),
            processes: Processes::default(),
            hosts,
            _debts: debts,
            state,
            partitions,
            signals,
            reload,
            entropy,
            log,
            news: Vec::new(),
            inbox: Box::new([0; MESSAGE_MAX]),
            outbox: Box::new([0; MESSAGE_MAX]),
            wakeups: 0,
            state_failing: false,
            turned_away: Reminder::default(),
            unwatched: Reminder::default(),
            ending: None,
        };
        let adoption = server.adopt(clock::now());
        // Only now: whoever connects meets a broker that knows what is granted already.
        server.door.open(listeners, &server.epoll).map_err(os("listening"))?;
        Ok((server, adoption))
    }

    /// A server for one client in this process: no socket in the file system, no signals, the same
    /// state file.
    ///
    /// It holds the state alone, so two of them, or one and a daemon, can't give out the same thing
    /// twice; it waits a few seconds for another to be done. [`Server::run`] returns when the
    /// client's end is closed; what is owned by a process or a thread stays granted and is found by
    /// whoever opens the state next.
    pub fn embedded(
        setup: Setup,
        machine: Machine,
        state: &Path,
        log: Log,
    ) -> Result<(Server, OwnedFd), String> {
        let file = StateFile::open_waiting(state, RECORD_SIZE, STATE_CAPACITY, PATIENCE)
            .map_err(|error| error.to_string())?;
        let debts = Server::keep_debts(state).map_err(|error| error.to_string())?;
        let parts = Parts {
            setup,
            machine,
            state: file,
            debts,
            // Those that exist are used; whoever rests between two questions makes none.
            partitions: None,
            listeners: Vec::new(),
            signals: None,
            reload: None,
            host_program: None,
            log,
        };
        let (mut server, _) = Server::new(parts)?;
        let pair = || -> io::Result<(OwnedFd, OwnedFd)> {
            let (ours, theirs) = seqpacket::pair(false)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            Ok((ours, theirs))
        };
        let (ours, theirs) = pair().map_err(|error| format!("socketpair: {error}"))?;
        server.welcome(clock::now(), ours).map_err(|error| format!("socketpair: {error}"))?;
        Ok((server, theirs))
    }

    /// Opens the state file at `path` for a daemon.
    pub fn open_state(path: &Path) -> Result<StateFile, StateError> {
        StateFile::open_or_create(path, RECORD_SIZE, STATE_CAPACITY)
    }

    /// Takes over what threads owe, from beside the open state file at `state`.
    pub fn keep_debts(state: &Path) -> Result<debts::Kept, StateError> {
        debts::keep_in(&state.with_file_name(DEBTS_FILE))
    }

    /// Serves until the end.
    //
    // Wait, receive and send are made in this frame, for speed: everything that leads to them is
    // inlined. Inside the kernel the processor's return stack is overwritten, so the first return
    // out of a function that made a system call is mispredicted, and costs up to 0.7 µs where a
    // virtual machine makes wrong guesses dear.
    pub fn run(&mut self) -> io::Result<Ending> {
        let mut events = Events::with_capacity(ROUND);
        loop {
            if self.ending.is_none() && self.sessions.is_empty() && self.door.is_closed_for_ever() {
                self.ending = Some(Ending::Alone);
            }
            if let Some(ending) = self.ending {
                self.hosts.finish(&self.log);
                for (uid, socket) in self.sessions.take_all(&self.epoll) {
                    self.closing.hang_up(uid, socket);
                }
                self.leave_partitions();
                return Ok(ending);
            }
            let until = self.next_wakeup();
            self.epoll.wait(&mut events, until)?;
            self.wakeups += 1;
            self.round(clock::now(), &events);
        }
    }

    /// The end: partitions go too, unless deadline threads live on in them, as the grants do.
    fn leave_partitions(&mut self) {
        let Some(partitions) = self.partitions.take() else { return };
        if self.threads.has_deadline() {
            let cpus = *partitions.cpus();
            self.log.info(format_args!(
                "cpuset partitions of CPUs {cpus} stay with the deadline threads in them; the next start takes them over, \
                 `talea doctor --repair` undoes them"
            ));
            return;
        }
        partitions.undo(self.threads.quiet_at(), &self.log);
    }

    fn next_wakeup(&self) -> Option<Time> {
        let times = [
            self.broker.next_wakeup(),
            self.hosts.next_deadline(),
            self.processes.next_due(),
            self.next_hearing(),
            self.door.retry_at(),
        ];
        times.into_iter().flatten().min()
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "see `Server::run`")]
    fn round(&mut self, now: Time, events: &Events) {
        if let Some(id) = self.note_speaker(now, events) {
            self.session_ready_inline(now, id, false);
            self.consider_alone();
        } else {
            self.distribute(now, events);
        }
        if self.ending.is_some() {
            return;
        }
        if let Some(process) = self.processes.departed(now) {
            self.tell(now, Input::ProcessGone { process });
        }
        if self.hosts.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.hosts.expire(now, &mut self.news, &self.log);
            self.pass_on(now);
        }
        if self.broker.next_wakeup().is_some_and(|at| at <= now) {
            self.tell(now, Input::Timer);
        }
        self.door.retry(now, &self.epoll);
        if !self.held_back.is_empty() {
            self.hear_again();
        }
    }

    /// What several have to say, or others than clients.
    #[inline(never)]
    fn distribute(&mut self, now: Time, events: &Events) {
        let mut deaths = 0;
        for event in events.iter() {
            match Token::unpack(event.token) {
                Token::Session(id) => self.take_turn(now, id, event.is_hangup()),
                Token::Crowd(uid) => self.take_turn_of_crowd(now, uid),
                // The rest is reported again: a thousand threads that end at once are nobody's
                // turn.
                Token::Thread(_) if deaths >= DEATHS => {}
                Token::Thread(id) => {
                    deaths += 1;
                    self.thread_ended(now, id);
                }
                Token::Process(id) => {
                    self.processes.ended(id, now.saturating_add(FAREWELL), &self.epoll);
                }
                Token::Listener(index) => self.callers(now, index),
                Token::Signals => self.signalled(now),
                Token::Beat => self.on_beat(),
                Token::Host(index) => {
                    self.hosts.readable(now, index, &mut self.news, &self.log);
                    self.pass_on(now);
                }
                Token::HostStderr(index) => {
                    if !self.hosts.stderr_readable(now, index, &self.log)
                        && let Some(stderr) = self.hosts.stderr(index)
                    {
                        // Watched until now, so this can't fail.
                        let _ = self.epoll.remove(stderr);
                    }
                }
            }
            if self.ending.is_some() {
                return;
            }
        }
        self.finish_turns(now);
    }

    /// One input, and everything that follows from it.
    fn tell(&mut self, now: Time, input: Input) {
        self.broker.handle(now, input);
        self.obey(now);
    }

    fn thread_ended(&mut self, now: Time, id: u64) {
        let thread = talea_broker::ThreadId(id);
        self.threads.ended(thread, &self.epoll);
        self.tell(now, Input::ThreadGone { thread });
    }

    /// What plugins' hosts have said goes to the broker, in order.
    fn pass_on(&mut self, now: Time) {
        for index in 0..self.news.len() {
            let input = match self.news[index] {
                News::Answered(ticket, answer) => Input::Answered { ticket, answer },
                News::Down(plugin) => {
                    self.unwatch_host(plugin);
                    Input::PluginDown { plugin }
                }
            };
            self.broker.handle(now, input);
        }
        self.news.clear();
        self.obey(now);
    }

    fn unwatch_host(&self, plugin: u32) {
        if let Some(socket) = self.hosts.dead_socket(plugin) {
            // Watched until now, so this can't fail.
            let _ = self.epoll.remove(socket);
        }
    }

    fn signalled(&mut self, now: Time) {
        while let Some(signal) =
            self.signals.as_ref().and_then(|signals| signals.take().ok().flatten())
        {
            match signal {
                Signal::Term | Signal::Int => self.ending = Some(Ending::Signal),
                Signal::Hup => {
                    if let Some(setup) = self.reload.as_mut().and_then(|reload| reload()) {
                        self.tell(now, Input::Reloaded { setup: Box::new(setup) });
                    }
                }
                // Not among those that are read.
                _ => {}
            }
        }
    }
}
